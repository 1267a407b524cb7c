"""Those who write to a mailbox and read it, ours and the least that does the same: also as processes of their own.

usage: python -P mailbox_ends.py ROLE FOLDER ARGUMENT…

Each role prints one JSON line once it is ready and ends with its standard input.

    writer KIND COUNT   at each word appends COUNT entries to `ann` and answers; KIND is a key of WRITERS
    events              floor: waits for a rename in the folder, reads the file, empties it, says when it had the entries
    watch               ours: the library's watcher and mailbox, on an event loop
    poll                the format done plainly: looks every 500 ms

The floor checks that the first and the last byte are those of an array, and splices; it holds a `flock`, syncs the file
and its folder. `plain` is the format done as one would write it down: a directory lock that is asked for again and
again, the whole array read and written anew, with two spaces of indent. Both sync, because ours does.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from postroom.core import mailfile
from postroom.core.mailfile import Entry
from postroom.state.watch import Watcher
from postroom.transports.mailbox import Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

TEXT = (
    "The column is called tenant_id now; the migration ran on all three shards and nothing else has changed. "
    * 2
)
ENTRY = Entry(
    from_="researcher",
    text=TEXT,
    timestamp="2026-11-30T12:00:00.000Z",
    msg_id="00000000-0000-4000-8000-000000000000",
    summary="tenant_id",
    color="blue",
)
LINE = mailfile.encoded(ENTRY)

POLL_SECONDS = 0.5
_MOVED_TO = 0x80


# ── writers ──────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def flocked(path: str) -> Generator[None]:
    """A `flock`."""
    fd = os.open(f"{path}.flock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextmanager
def with_directory(path: str) -> Generator[None]:
    """A directory as the lock, asked for again and again."""
    wait = 0.005
    while True:
        try:
            os.mkdir(f"{path}.lock")
            break
        except FileExistsError:
            time.sleep(wait)
            wait = min(2 * wait, 0.1)
    try:
        yield
    finally:
        os.rmdir(f"{path}.lock")


def contents(path: str) -> bytes:
    """The file's bytes."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def replace(path: str, data: bytes) -> None:
    """Puts a synced file in the place of another, and syncs the folder."""
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(temporary, path)
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def spliced(path: str) -> None:
    """The floor."""
    line = mailfile.encoded(ENTRY)
    with flocked(path):
        data = contents(path)
        if data[:1] != b"[" or data[-1:] != b"]":
            raise ValueError("no array")
        replace(path, b"".join((data[:-1], b"," if len(data) > 2 else b"", line, b"]")))


def plainly(path: str) -> None:
    """The format done plainly."""
    with with_directory(path):
        entries = json.loads(contents(path))
        entries.append(json.loads(LINE))
        replace(path, json.dumps(entries, indent=2).encode())


def ours(shared: bool) -> Callable[[str], Callable[[], None]]:
    """What ships."""

    def made(path: str) -> Callable[[], None]:
        mailbox = Mailbox(os.path.dirname(path), "ann", shared=shared)
        return lambda: mailbox.append(ENTRY)

    return made


WRITERS: dict[str, Callable[[str], Callable[[], None]]] = {
    "floor": lambda path: lambda: spliced(path),
    "ours": ours(False),
    "ours, both locks": ours(True),
    "plain": lambda path: lambda: plainly(path),
}
"""Kind → what makes, for the path of a file, the function that appends one entry."""


def say(**document: Any) -> None:
    """Prints one line."""
    print(json.dumps(document), flush=True)


def writer(path: str, kind: str, count: str) -> None:
    """Appends at each word."""
    append = WRITERS[kind](path)
    say(ready=True)
    for _ in sys.stdin:
        for _ in range(int(count)):
            append()
        say(said=True)


# ── readers ──────────────────────────────────────────────────────────────────────────────────────


def taken(path: str) -> list[object]:
    """Reads all and empties the file, with the least that does it."""
    with flocked(path):
        entries: list[object] = json.loads(contents(path))
        if entries:
            replace(path, b"[]")
        return entries


def told(entries: list[object]) -> None:
    """Says when the entries were there."""
    if entries:
        say(said=time.perf_counter())


def events(path: str) -> None:
    """The floor: the kernel tells of each rename."""
    library = ctypes.CDLL(None)
    fd = library.inotify_init1(os.O_CLOEXEC)
    library.inotify_add_watch(fd, os.path.dirname(path).encode(), _MOVED_TO)
    say(ready=True)
    while True:
        os.read(fd, 65_536)
        entries: list[object] = json.loads(contents(path))
        told(entries)
        if entries:
            taken(path)


def poll(path: str) -> None:
    """Looks every half second."""
    say(ready=True)
    while True:
        time.sleep(POLL_SECONDS)
        entries: list[object] = json.loads(contents(path))
        told(entries)
        if entries:
            taken(path)


def watch(path: str) -> None:
    """Ours: on an event loop, woken by the library's watcher."""

    async def work() -> None:
        mailbox = Mailbox(os.path.dirname(path), "ann", shared=False)
        woken = asyncio.Event()
        watcher = Watcher(woken.set)
        watcher.cover([path])
        say(ready=True)
        while True:
            await woken.wait()
            woken.clear()
            found = mailbox.snapshot()
            told([*found.entries])
            mailbox.remove([item.key for item in found.items])

    asyncio.run(work())


READERS: dict[str, Callable[[str], None]] = {"events": events, "poll": poll, "watch": watch}


def main(role: str, folder: str, *arguments: str) -> None:
    """Plays one role."""
    path = f"{folder}/ann.json"
    if role == "writer":
        writer(path, *arguments)
    else:
        READERS[role](path)


if __name__ == "__main__":
    main(*sys.argv[1:])
