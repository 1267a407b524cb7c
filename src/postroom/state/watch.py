"""Tells when something may have changed at some paths, without looking again and again: inotify over ctypes.

What it watches for one path: the folder in which the file lies or would lie; where that is missing, the nearest folder
above it that is there; every folder with a symlink on the way to the file, so that a link which is turned round is seen
as well as a change of what it points to; and whether a folder on the way is moved or removed. An event about another
file of those folders is read and dropped.

It never reads a file, and never says what changed: whoever is woken looks for himself, and has the paths covered anew,
since other folders may lie on the way now. Watches are set before that look, so nothing falls between the two.

How it fails: OSError where this system has no inotify or lets nobody have more of it. `cover` returns False where one
of the folders cannot be watched; the caller then looks from time to time.

What is weak: what another machine changes on a network file system tells nobody here. A change of the mode of a
folder above is seen at the next look. Each watcher takes one of the 128 instances that Linux gives a user.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import struct
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_ATTRIB, _CLOSE_WRITE, _MODIFY = 0x4, 0x8, 0x2
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF = 0x400, 0x800
_ONLYDIR, _DONT_FOLLOW, _MASK_ADD = 0x01000000, 0x02000000, 0x20000000

_ON_THE_WAY = _DELETE_SELF | _MOVE_SELF
_APPEARS = _ON_THE_WAY | _CREATE | _MOVED_TO
_OPENS_UP = _APPEARS | _ATTRIB
_TURNS = _APPEARS | _DELETE | _MOVED_FROM
_CHANGES = _TURNS | _ATTRIB | _MODIFY | _CLOSE_WRITE
"""A mask is for a folder; which of its files count is the caller's list of names."""

_EVENT = struct.Struct("iIII")
_READ_BYTES = 65_536
_READS = 16
"""Reads in one turn of the loop; more waits for the next."""

_LINKS = 40
"""Symlinks on the way to one file, as many as the kernel follows itself."""

_ROUNDS = 8
"""How often the way is walked again because a folder on it was new; then the next event has to help."""


class Step(NamedTuple):
    """One thing to watch on the way to a file.

    Attributes:
        folder: a folder, without a symlink in its path.
        name: the entry in it that counts; empty: the folder alone.
        mask: which events.
    """

    folder: str
    name: str
    mask: int


def steps(path: str) -> Iterator[Step]:
    """Walks to a file and tells what must be watched so that no change on the way to it is missed (03.36).

    Args:
        path: absolute; neither it nor its folder need be there.
    """
    ahead = path.split("/")[::-1]
    place = "/"
    links = 0
    while ahead:
        part = ahead.pop()
        if part in ("", ".", ".."):
            place = os.path.dirname(place) if part == ".." else place
            continue
        here = os.path.join(place, part)
        try:
            found = os.lstat(here)
            target = os.readlink(here) if stat.S_ISLNK(found.st_mode) else None
        except OSError as error:
            yield Step(place, part, _APPEARS if error.errno == errno.ENOENT else _OPENS_UP)
            return
        except ValueError:
            return  # no path of this system: nothing can come to lie there
        if target is not None:
            yield Step(place, part, _TURNS)
            links += 1
            if links > _LINKS:
                return
            ahead += target.split("/")[::-1]
            place = "/" if target.startswith("/") else place
        elif any(ahead) and stat.S_ISDIR(found.st_mode):
            yield Step(here, "", _ON_THE_WAY)
            place = here
        else:
            yield Step(place, part, _CHANGES)
            return


class Inotify(Protocol):
    """The three calls of the kernel; each raises OSError."""

    def open(self) -> int:
        """Makes an instance; returns its descriptor, which does not block."""
        ...

    def add(self, fd: int, folder: str, mask: int) -> int:
        """Watches a folder; returns the number of the watch, the same for the same folder."""
        ...

    def remove(self, fd: int, watch: int) -> None:
        """Ends a watch; none of that number is no error."""
        ...


class KernelInotify:
    """The calls of this system's C library. Raises OSError where it has none."""

    def __init__(self) -> None:
        try:
            import ctypes

            self._errno = ctypes.get_errno
            library = ctypes.CDLL(None, use_errno=True)
            self._open, self._add, self._remove = (
                library.inotify_init1,
                library.inotify_add_watch,
                library.inotify_rm_watch,
            )
        except (ImportError, AttributeError, TypeError) as error:
            raise OSError(errno.ENOSYS, "this system has no inotify") from error

    def open(self) -> int:
        """Makes an instance that does not block and is not handed down to another program."""
        return self._checked(self._open(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, fd: int, folder: str, mask: int) -> int:
        """Watches a folder, besides what is watched of it already."""
        return self._checked(self._add(fd, os.fsencode(folder), mask | _ONLYDIR | _DONT_FOLLOW | _MASK_ADD))

    def remove(self, fd: int, watch: int) -> None:
        """Ends a watch."""
        self._remove(fd, watch)

    def _checked(self, result: int) -> int:
        if result < 0:
            raise OSError(self._errno(), os.strerror(self._errno()))
        return result


class Watcher:
    """Watches some paths from the running event loop (03.36).

    Args:
        woken: called after something may have changed at one of them; once for what came together.
        kernel: the calls of the system.

    Raises OSError where there is no inotify, or none left for this user.
    """

    def __init__(self, woken: Callable[[], None], kernel: Inotify | None = None) -> None:
        self._woken = woken
        self._kernel: Inotify = kernel or KernelInotify()
        self._loop = asyncio.get_running_loop()
        self._watched: dict[int, set[str]] = {}
        self._fd = self._kernel.open()
        self._loop.add_reader(self._fd, self._read)

    def cover(self, paths: Iterable[str]) -> bool:
        """Watches what must be watched for these absolute paths, and nothing else any more.

        Returns False where a folder cannot be watched in which an entry counts.
        """
        paths = tuple(paths)
        whole = True
        for _ in range(_ROUNDS):
            known = set(self._watched)
            found, whole = self._watch(paths)
            for watch in known - found.keys():
                self._kernel.remove(self._fd, watch)
            self._watched = found
            if found.keys() <= known:
                break
        return whole

    def _watch(self, paths: tuple[str, ...]) -> tuple[dict[int, set[str]], bool]:
        """Each watch → the names that count in it; and whether every entry that counts is covered."""
        found: dict[int, set[str]] = {}
        whole = True
        for step in dict.fromkeys(step for path in paths for step in steps(path)):
            try:
                names = found.setdefault(self._kernel.add(self._fd, step.folder, step.mask), set())
            except OSError as error:
                # A folder on the way that we may pass and not list: that it is moved is then not seen.
                whole = whole and not step.name and error.errno == errno.EACCES
            else:
                names.add(step.name)
        return found, whole

    def _read(self) -> None:
        counts = False
        for _ in range(_READS):
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                break
            counts = self._counts(data) or counts
        if counts:
            self._woken()

    def _counts(self, data: bytes) -> bool:
        """Whether one of the events is about something that is watched; a queue that ran over is about all."""
        at = 0
        counts = False
        while at < len(data):
            watch, _, _, size = _EVENT.unpack_from(data, at)
            name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0"))
            counts = counts or watch < 0 or (watch in self._watched and name in ("", *self._watched[watch]))
            at += _EVENT.size + size
        return counts

    def stop(self) -> None:
        """Ends all watching. Harmless when it has ended."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
