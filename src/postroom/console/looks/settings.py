"""Reads the settings files that apply here and to every session that lives, for `console.checks.settings`.

As `state.config` reads them, but once, and file by file. What `--settings` gave to a session is known to that session
alone, which says in its `status` what is wrong with it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from postroom.console.checks.settings import File, Place, Settings
from postroom.core.settings import Layer, broken_layer, effective, read_layer
from postroom.state.scopes import MANAGED, Senseless, find, parsed, sources_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from postroom.state.scopes import Source

_MOST_FOLDERS = 200
"""Working directories whose files are read: each is four reads."""


def look(cwd: str, environ: Mapping[str, str], others: Iterable[str], *, managed: str = MANAGED) -> Settings:
    """Gathers the facts. Never raises for what lies in a file.

    Args:
        cwd: the folder of this command.
        environ: the environment that says where the user's file lies.
        others: the working directories of sessions that live.
        managed: where the managed file lies.
    """
    files: dict[tuple[str, str], File] = {}
    here: list[Layer] = []
    folders = list(dict.fromkeys((cwd, *others)))[:_MOST_FOLDERS]
    for place, folder in enumerate(folders):
        if not folder.startswith("/"):
            continue
        for source in sources_of(folder, environ, managed, None):
            read = _read(source)
            if read is None:
                continue
            files.setdefault((source.scope, source.path), read[0])
            if place == 0:
                here.append(read[1])
    applies = effective(here)
    inbound = applies.inbound
    return Settings(
        files=tuple(files.values()),
        here=Place(
            cwd=cwd,
            inbound=None if inbound is None else inbound.value,
            scope="default" if inbound is None else inbound.scope,
            denied=tuple(sorted(applies.denied)),
            publish_to=applies.publish_to,
        ),
    )


def _read(source: Source) -> tuple[File, Layer] | None:
    """One file, and the layer that it makes; None where there is none."""
    scope, path = source.scope, source.path
    found = find(source)
    if found.what == "nothing":
        return None
    if found.what == "foreign":
        if not os.path.lexists(path):
            return None  # its folder is another's, and that is said of the file that is there
        return File(scope=scope, path=path, left_alone=found.reason), Layer(scope=scope, source=path)
    reason = found.reason
    if found.what == "bytes":
        try:
            layer = read_layer(scope, path, parsed(found.data))
        except Senseless as error:
            reason = str(error)
        else:
            said = tuple(sentence for sentence in layer.problems if sentence not in layer.unusable)
            return File(scope=scope, path=path, unusable=layer.unusable, said=said), layer
    layer = broken_layer(scope, path, reason, None)
    return File(scope=scope, path=path, unread=reason), layer
