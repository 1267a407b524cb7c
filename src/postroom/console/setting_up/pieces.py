"""What is put into a program's configuration: the server's entry, the hooks, a word in our own settings (09.17).

It says how each looks, and tells by what an entry runs whether it is ours: this Postroom's or another's. It reads and
writes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from shlex import join, split
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "postroom"
"""What our entry is called in every program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How this Postroom is started by another program: isolated from where it is started (09.17).

    Attributes:
        python: the absolute path of the interpreter.
        script: the absolute path of the command.
    """

    python: str
    script: str

    def server(self, client: str) -> list[str]:
        """The words that start the MCP server."""
        return [self.python, "-I", self.script, "mcp", "--client", client]

    def hook(self, client: str, event: str) -> str:
        """The line, for a shell, that runs a hook."""
        return join([self.python, "-I", self.script, "hook", client, event])


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The entry of the MCP server.

    Attributes:
        paths: where the file may lie; the first that is there, else the first.
        keys: the objects, or the table, that it stands in.
        entry: what it says. `command` and `args` are kept right afterwards, the rest is the user's.
    """

    paths: tuple[str, ...]
    keys: tuple[str, ...]
    entry: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One hook.

    Attributes:
        event: what the program calls the moment.
        word: what `postroom hook CLIENT …` calls it.
        matcher: which of these moments; None where nothing is said about that.
        more: what the entry says beside the command.
    """

    event: str
    word: str
    matcher: str | None
    more: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The hooks of a program.

    Attributes:
        paths: as in `Server`.
        client: whose they are.
        command: how they are started.
        hooks: all of them.
        grouped: each stands in a group of hooks with one matcher; else by itself.
        version: what `version` stands beside the hooks, where no hooks were there; 0: none.
    """

    paths: tuple[str, ...]
    client: str
    command: Command
    hooks: tuple[Hook, ...]
    grouped: bool = True
    version: int = 0

    def entry(self, hook: Hook) -> dict[str, object]:
        """What stands in the list of an event."""
        line: dict[str, object] = {"command": self.command.hook(self.client, hook.word), **hook.more}
        if not self.grouped:
            return line
        matcher = {} if hook.matcher is None else {"matcher": hook.matcher}
        return {**matcher, "hooks": [{"type": "command", **line}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """A word in `publishTo` of Postroom's own settings: sessions show themselves to that program (09.13)."""

    paths: tuple[str, ...]
    word: str


Piece = Server | Hooks | Publishing


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One row.

    Attributes:
        name: of the client.
        title: as people call it.
        pieces: what goes where.
        next: two lines that say what to do now.
        off: (path, keys, value) of what switches hooks off in it, which is never changed, only told.
    """

    name: str
    title: str
    pieces: tuple[Piece, ...]
    next: tuple[str, str]
    off: tuple[tuple[str, tuple[str, ...], bool], ...] = ()

    @property
    def own(self) -> tuple[str, ...]:
        """Those of the files that are Postroom's own settings."""
        return tuple(path for piece in self.pieces if isinstance(piece, Publishing) for path in piece.paths)


# ---------------------------------------------------------------------------------------- ours


def is_server(entry: Any) -> bool:
    """Whether an entry starts a Postroom, this one or another: it runs `… postroom mcp …`."""
    words = _words(entry)
    return any(_is_postroom(one) and after == "mcp" for one, after in pairwise(words))


def hook_word(entry: Any, client: str) -> str:
    """The event of a hook that runs `… postroom hook CLIENT EVENT`, of this Postroom or another; else empty."""
    words = _words(entry)
    if words and " " in words[0]:
        try:
            words = [*split(words[0]), *words[1:]]
        except ValueError:
            return ""
    for at in range(len(words) - 3):
        if _is_postroom(words[at]) and words[at + 1 : at + 3] == ["hook", client]:
            return words[at + 3]
    return ""


def _is_postroom(word: str) -> bool:
    return os.path.basename(word) == NAME


def _words(entry: Any) -> list[str]:
    """The command and the arguments of an entry, in one list."""
    found: list[str] = []
    if isinstance(entry, dict):
        for key in ("command", "args"):
            part = cast("dict[str, object]", entry).get(key)
            found += [part] if isinstance(part, str) else []
            found += [str(one) for one in cast("list[object]", part)] if isinstance(part, list) else []
    return found
