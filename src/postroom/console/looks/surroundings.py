"""Looks at the variables of this shell and at the installation, for `console.checks.surroundings`."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from postroom.console.checks.surroundings import Surroundings
from postroom.errors import PostroomError
from postroom.state import processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from postroom.state.roster import Roster

_NEEDED = ("msgspec", "sqlite3")
"""What nothing works without."""


def look(environ: Mapping[str, str], book: Roster | None) -> Surroundings:
    """Gathers the facts. Never raises."""
    given = environ.get("POSTROOM_SESSION", "")
    session_id, stands = _meant(given, book)
    inside = _inside(book)
    path = environ.get("POSTROOM_SOCKET", "")
    return Surroundings(
        variables=tuple(sorted(name for name in environ if name.startswith("POSTROOM_"))),
        session=given,
        stands=stands,
        session_name=_name(session_id, book) or given,
        inside=_name(inside, book),
        same=bool(inside) and inside == session_id,
        token=bool(environ.get("POSTROOM_TOKEN")),
        socket=path if path and not os.path.lexists(path) else "",
        name=environ.get("POSTROOM_NAME", ""),
        missing=tuple(_missing()),
        command=_other_command(environ),
        own=sys.executable,
    )


def _meant(given: str, book: Roster | None) -> tuple[str, str]:
    """The id of the session that a variable names, and what is known of it."""
    if not given or book is None:
        return "", ""
    try:
        session_id = book.meant(given, ())
    except PostroomError:
        return "", "unknown"
    if session_id is None:
        return "", "unknown"
    return session_id, "live" if book.lives(session_id, doubtful=True) else "ended"


def _inside(book: Roster | None) -> str:
    """The id of the session in which this command runs; empty for none."""
    if book is None:
        return ""
    for pid, start in processes.ancestry(os.getppid()):
        if here := book.sessions_at(pid, start):
            return here[0]
    return ""


def _name(session_id: str, book: Roster | None) -> str:
    if not session_id or book is None:
        return ""
    return book.names.known(session_id).name or session_id


def _missing() -> Iterator[tuple[str, str]]:
    for library in _NEEDED:
        try:
            import_module(library)
        except ImportError as error:
            yield library, str(error)


def _other_command(environ: Mapping[str, str]) -> str:
    """The `postroom` that PATH leads to, where that is not beside this interpreter."""
    path = shutil.which("postroom", path=environ.get("PATH", ""))
    if path is None:
        return ""
    here = {
        os.path.realpath(os.path.dirname(each)) for each in (sys.executable, os.path.realpath(sys.executable))
    }
    here |= {os.path.realpath(f"{sys.prefix}/bin"), os.path.realpath(os.path.dirname(sys.argv[0] or "."))}
    places = {os.path.realpath(os.path.dirname(path)), os.path.dirname(os.path.realpath(path))}
    return path if here.isdisjoint(places) else ""
