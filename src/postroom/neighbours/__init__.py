"""Programs with sessions of their own on this machine: the table, name → module, each loaded on first use.

Whether a program is here at all is told by its folder alone, so that nobody pays for a neighbour that he has not
(12.17). A module here knows the core and the port `postroom.neighbour`, and no other neighbour. It offers
`neighbour(environ, folder)`, which returns a `postroom.neighbour.Neighbour`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, cast

from postroom.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroom.neighbour import Neighbour

__all__ = ["NEIGHBOURS", "Place", "folder_of", "load", "there"]


class Place(NamedTuple):
    """Where a program keeps the records of its sessions.

    Attributes:
        module: the module that knows it.
        variable: the environment variable that names its folder.
        default: its folder below the home folder, where the variable is not set.
        sessions: the folder of records in that.
    """

    module: str
    variable: str
    default: str
    sessions: str = "sessions"


NEIGHBOURS: dict[str, Place] = {
    "claude-code": Place("postroom.neighbours.claude_code", "CLAUDE_CONFIG_DIR", ".claude"),
    "qwen-code": Place("postroom.neighbours.qwen_code", "QWEN_HOME", ".qwen"),
}
"""Name, as settings and lists have it → where its sessions are, and the module that knows them."""


def folder_of(program: str, environ: Mapping[str, str]) -> str:
    """The folder of a program's records; empty where neither its variable nor a home folder is set."""
    place = NEIGHBOURS[program]
    base = environ.get(place.variable)
    if not base:
        home = environ.get("HOME")
        base = home and os.path.join(home, place.default)
    return os.path.normpath(os.path.join(base, place.sessions)) if base and os.path.isabs(base) else ""


def there(environ: Mapping[str, str]) -> list[str]:
    """The programs whose folder of records exists: one look each."""
    return [name for name in NEIGHBOURS if (folder := folder_of(name, environ)) and os.path.lexists(folder)]


def load(program: str, environ: Mapping[str, str]) -> Neighbour:
    """Imports what knows this program, and points it to the folder that the environment names.

    Raises Unsupported for a program that nothing here knows.
    """
    if program not in NEIGHBOURS:
        known = ", ".join(NEIGHBOURS)
        raise Unsupported(f"Nothing here knows the neighbour {program!r}.", f"There are: {known}.")
    from importlib import import_module

    module = import_module(NEIGHBOURS[program].module)
    return cast("Neighbour", module.neighbour(environ, folder_of(program, environ)))
