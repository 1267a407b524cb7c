"""The transcripts that lie on disk: written line by line, and read back in a stream (02.17, 06.13).

What it decides: whether a file may be read as a transcript, and where a line begins. What the lines mean is
`core.transcript`'s concern.

`Transcript` adds lines to one file. Each line leaves in one write; where a process was killed in the middle of one, or
the disk was full, the next line begins on a line of its own. A transcript is a record, not a promise: a line that cannot
be written is lost, which is said once to a callback and noted in the file as soon as it can be, and work goes on. It is
never synced: what the machine's power takes with it is the last second.

`read` never waits, follows no symlink as the last part of a path, and holds one line at a time.

How it fails: `Unusable` from `read`, with a reason that a person or a model may see: it has no path in it, and nothing
of what the file holds. `ValueError` and `RecursionError` from `Transcript.write` for what no JSON can say.

What is weak: only the opened file is judged, and not the folders above a host's own transcript: whoever may move our
files may put another one of ours there. Reading the largest one that is read takes some seconds: not in an event loop.
"""

from __future__ import annotations

import contextlib
import os
import time
from threading import Lock
from typing import TYPE_CHECKING

from postroom.core.transcript import (
    MAX_TURN,
    VERSION,
    Rebuilding,
    Rebuilt,
    line,
    sent_facts,
)
from postroom.errors import UnfitPath
from postroom.state import files

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from postroom.core.message import Receipt, Refusal
    from postroom.core.transcript import Header

__all__ = ["MAX_TRANSCRIPT", "Transcript", "Unusable", "header_of", "read"]

MAX_TRANSCRIPT = 256 * 1024 * 1024
"""Bytes of a transcript: some hundred times a model's whole context, and read in seconds, well within the time that a
resume has. One that grows to this is not added to, so that it can always be read."""

CHUNK = 1024 * 1024
"""Bytes that are read at once."""


class Unusable(Exception):
    """Metadata or a transcript that cannot be used (02.26).

    Attributes:
        reason: why, in words that begin with `its` and end without a full stop; no path, nothing of the content.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# ── writing ──────────────────────────────────────────────────────────────────────────────────────


class Transcript:
    """Adds lines to one transcript. Any thread may; of processes, one at a time.

    No file is kept open: a session may have ten thousand agents.

    Args:
        path: absolute; its folder is there and was checked. Empty: nothing is kept, as in a session in memory.
        header: whose conversation it is: `session`, `agent`, `name`, `agent_type`, of which those that are empty may be
            missing; written at once where the file is new.
        problem: is told, once, in a sentence, that lines are lost.
        clock: epoch milliseconds; the machine's, where none is given.

    Attributes:
        path: as it was given.
        lost: lines that could not be written.
    """

    def __init__(
        self,
        path: str,
        *,
        header: Mapping[str, object],
        problem: Callable[[str], None] | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.path = path
        self.lost = 0
        self._header = header
        self._problem = problem
        self._clock = clock or _now
        self._owing = 0
        self._lock = Lock()
        self._add(b"")

    def write(self, record: Mapping[str, object]) -> None:
        """Adds a turn of the host's own, such as `{"role": "user", "content": …}`: it lies unchanged under `turn`.

        Raises ValueError and RecursionError for what no JSON can say; nothing for a disk.
        """
        self.event("turn", turn=record)

    def sent(self, to: str, answer: Receipt | Refusal) -> None:
        """Adds a send: its target as it was typed, and what came of it (02.17)."""
        self.event("sent", **sent_facts(to, answer))

    def event(self, kind: str, /, **facts: object) -> None:
        """Adds a line of another type, such as `agent_started` (see `core.transcript`). Raises as `write`."""
        if not self.path:
            return
        text = line(kind, facts, self._clock())
        if len(text) > MAX_TURN:
            text = line("too-long", {"was": kind, "bytes": len(text)}, self._clock())
        self._add(text)

    def _add(self, text: bytes) -> None:
        """Adds a line whole, after what has to stand before it. Empty: only the header, where it is missing."""
        if not self.path:
            return
        with self._lock:
            try:
                self._append(text)
                self._owing = 0
                return
            except (FileNotFoundError, UnfitPath) as error:
                reason = error.reason if isinstance(error, UnfitPath) else "its folder is gone"
            except OSError as error:
                reason = error.strerror or "it cannot be written"
            self.lost += bool(text)
            self._owing += bool(text)
            tell, self._problem = self._problem, None
        if tell is not None:
            tell(f"Lines of the transcript of {self._whose()} are lost: {reason}.")

    def _append(self, text: bytes) -> None:
        fd, found = files.open_private(self.path, files.APPEND)
        try:
            parts: list[bytes] = []
            if not found.st_size:
                parts.append(line("header", self._header, self._clock()))
            elif text and os.pread(fd, 1, found.st_size - 1) != b"\n":
                parts.append(b"\n")
            if self._owing:
                parts.append(line("lost", {"lines": self._owing}, self._clock()))
            data = b"".join((*parts, text))
            if found.st_size + len(data) > MAX_TRANSCRIPT:
                raise OSError(0, f"it has {MAX_TRANSCRIPT // 1024 // 1024} MiB already")
            while data:  # one write, unless the disk takes a part of it: then the next one says why
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)

    def _whose(self) -> str:
        agent = self._header.get("agent")
        return f"the agent {agent}" if agent else "the main conversation"


def _now() -> int:
    return time.time_ns() // 1_000_000


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


def read(path: str, *, readable: bool = False) -> Rebuilt:
    """Reads a transcript back (02.17).

    Args:
        path: absolute.
        readable: others may read it, though not write it: a host's own file.

    Raises Unusable where it is missing, no regular file of ours, open to others, larger than MAX_TRANSCRIPT, of a
    newer version, or holds no line that can be read. A broken line among others is skipped and counted.
    """
    rebuilding = Rebuilding()
    try:
        for each in _lines(path, readable):
            if each is None:
                rebuilding.skip()
            else:
                rebuilding.feed(each)
    except FileNotFoundError:
        raise Unusable("its transcript is missing") from None
    except UnfitPath as error:
        raise Unusable(f"its transcript cannot be used: {error.reason}") from None
    except OSError as error:
        raise Unusable(f"its transcript cannot be read: {error.strerror}") from None
    rebuilt = rebuilding.rebuilt()
    if rebuilt.newer:
        raise Unusable(f"its transcript is of a newer version ({rebuilt.newer}; this one reads {VERSION})")
    if not rebuilt.lines:
        raise Unusable("its transcript holds no line that can be read")
    return rebuilt


def header_of(path: str) -> Header | None:
    """Reads whose transcript a file of ours is, by its first line alone; None where that cannot be known.

    Args:
        path: absolute.
    """
    rebuilding = Rebuilding()
    try:
        with contextlib.closing(_lines(path, readable=False)) as lines:
            rebuilding.feed(next(lines, None) or b"")
    except (OSError, UnfitPath):
        return None
    return rebuilding.rebuilt().header


def _lines(path: str, readable: bool) -> Generator[bytes | None]:
    """The lines of a file; None for one that is too long to be held."""
    if not path.startswith("/"):
        raise UnfitPath(path, "not an absolute path")
    try:
        fd, found = files.open_private(path, readable=readable)
    except ValueError:  # a NUL, or half a surrogate pair
        raise UnfitPath(path, "not a path of this system") from None
    try:
        if found.st_size > MAX_TRANSCRIPT:
            raise UnfitPath(path, f"larger than {MAX_TRANSCRIPT // 1024 // 1024} MiB")
        left, pending, too_long = MAX_TRANSCRIPT, b"", False
        while left > 0 and (chunk := os.read(fd, CHUNK)):
            left -= len(chunk)
            first, *rest = chunk.split(b"\n")
            pending += first
            for each in rest:
                yield None if too_long else pending
                pending, too_long = each, False
            if len(pending) > MAX_TURN:
                pending, too_long = b"", True
        if too_long or pending:
            yield None if too_long else pending
    finally:
        os.close(fd)
