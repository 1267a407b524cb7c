"""What both doors of Codex share: where it keeps its things, which thread is meant, and how its server is asked.

A *thread* is Codex's word for a conversation. The process that has one open holds a lock on it, in the folder
`thread-writer-locks` of Codex's home; a dead thread has none, though its queue would still take what is put there.

It reads files and locks and changes nothing. `Asking` speaks the app-server's JSON-RPC over whatever carries lines.

How it fails: what cannot be read is empty or False. `Refused` is the server's own error; `Silent` means that no
answer came, or none that could be read.

Weak: the protocol is Codex's own and marked experimental there. What is used of it was seen in 0.171.0. Which window shows
which thread is told by nothing: while one of several is open, the threads of all count as shown. Somebody who steers a
Codex from elsewhere is no window.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import TYPE_CHECKING, Any, Protocol, cast

from postroom.state import processes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroom.doors import Attended

__all__ = [
    "MAX_ANSWER",
    "MAX_INPUT",
    "Asking",
    "Refused",
    "Silent",
    "Wire",
    "home_of",
    "is_open",
    "thread_of",
    "why_closed",
    "windows",
]

MAX_INPUT = 1_048_576
"""Characters that Codex takes as the input of one turn, and as one item of its queue."""

MAX_ANSWER = 16_777_216
"""Bytes of one line from its server: it repeats what was put into its queue, each character as six at most."""

LOCKS = "thread-writer-locks"

LISTENS = 0x10000
"""The kernel's mark, in `/proc/net/unix`, of a socket that listens."""

CONNECTED = "03"
"""Its word there for a connection."""

_THREAD = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_VERSION = re.compile(r"/(\d{1,6})\.(\d{1,6})\.(\d{1,6})").search


class Refused(Exception):
    """The server answered with an error; what was asked has not been done."""


class Silent(Exception):
    """The server ended the connection, or sent what is no answer."""


def home_of(here: Attended) -> str:
    """Codex's own folder, as the client's process was told, or where it is by default; empty: not known."""
    given = here.variable("CODEX_HOME") or here.environ.get("CODEX_HOME", "")
    if given:
        return given if os.path.isabs(given) else ""
    home = here.variable("HOME") or here.environ.get("HOME", "")
    return os.path.join(home, ".codex") if os.path.isabs(home) else ""


def _held(here: Attended) -> set[str]:
    """The threads whose lock the client's own process holds open."""
    paths = (path.rpartition("/") for path in processes.open_files(here.process[0]))
    names = (name for folder, _, name in paths if folder.rpartition("/")[2] == LOCKS)
    return {thread for name in names if _THREAD(thread := name.removesuffix(".lock"))}


def thread_of(here: Attended) -> str:
    """The thread that is this session's: the one that hooks or calls named, else the only one that is open.

    Returns its id; empty where none is open, or where there are several and nobody said which.
    """
    if _THREAD(here.conversation):
        return here.conversation
    held = _held(here)
    return held.pop() if len(held) == 1 else ""


def is_open(here: Attended, thread: str) -> bool:
    """Whether some process has this thread open: the client's own, or Codex's server behind it."""
    if thread in _held(here):
        return True
    try:
        found = os.stat(os.path.join(home_of(here), LOCKS, f"{thread}.lock"))
        with open(f"{processes.PROC}/locks", encoding="ascii", errors="replace") as file:
            locks = file.read()
    except OSError:
        return False
    return f" {os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino} " in locks


def windows(pid: int) -> int | None:
    """How many programs are connected to the Unix socket on which a Codex server listens; None where it listens on none.

    Its own protocol does not tell: a thread whose window has closed looks there like an idle one for about two minutes.
    """
    inodes = {name[8:-1] for name in processes.open_files(pid) if name.startswith("socket:[")}
    try:
        with open(f"{processes.PROC}/{pid}/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            rows = [row.split(maxsplit=7) for row in file.read().splitlines()[1:]]
    except OSError:
        return None
    own = [(row[3], row[5], row[7]) for row in rows if len(row) == 8 and row[6] in inodes]
    paths = {path for flags, _, path in own if int(flags, 16) & LISTENS}
    return sum(state == CONNECTED and path in paths for _, state, path in own) if paths else None


def why_closed(here: Attended, thread: str) -> str:
    """Why nothing that is brought to a thread would be seen: no process has it open, or no window; empty: it would be."""
    if not is_open(here, thread):
        return "its thread is not open in any process"
    return "no window shows it any more" if windows(here.process[0]) == 0 else ""


class Wire(Protocol):
    """What carries the lines."""

    async def send(self, line: str) -> None:
        """Sends one JSON document."""
        ...

    async def receive(self) -> str | bytes:
        """Returns the next one. Raises Silent where there is no more."""
        ...


class Asking:
    """One conversation with an app-server: a question, its answer, the next one.

    Args:
        wire: carries the lines.
        name, version: who asks.
    """

    def __init__(self, wire: Wire, name: str, version: str) -> None:
        self._wire = wire
        self._who = {"name": name, "title": name.capitalize(), "version": version}
        self._number = 0
        self.version = (0, 0, 0)

    async def hello(self) -> None:
        """Begins; the server's version is known then."""
        answer = await self.ask(
            "initialize", {"clientInfo": self._who, "capabilities": {"experimentalApi": True}}
        )
        found = _VERSION(str(answer.get("userAgent", "")))
        if found is not None:
            self.version = (int(found[1]), int(found[2]), int(found[3]))
        await self._wire.send('{"method":"initialized"}')

    async def ask(self, method: str, params: Mapping[str, object]) -> dict[str, Any]:
        """Asks one thing. Raises Refused, Silent, and what the wire raises; whoever calls bounds the time."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        await self._wire.send(json.dumps(request))
        while True:
            answer = _object(await self._wire.receive())
            if answer.get("id") != self._number or "method" in answer:
                continue  # news, or a question to somebody who can answer it
            if "result" in answer:
                result = answer["result"]
                return cast("dict[str, Any]", result) if isinstance(result, dict) else {}
            error = answer.get("error")
            message = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else None
            raise Refused(" ".join(str(message or "an error without words").split())[:200])


def _object(line: str | bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise Silent("what came is no JSON") from None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


NO_ANSWER = (Silent, OSError, EOFError, asyncio.TimeoutError)
"""What it means that no answer came, whatever carried the question."""
