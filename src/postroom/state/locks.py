"""The locks under which files are rewritten that several programs share: `held` takes one or both.

    with held(f"{folder}/.{name}.lock", f"{folder}/{name}.json.lock", seconds=20.0) as lock:
        ...read, and write a temporary file...
        lock.check()                      # raises LockLost: throw the temporary file away and start over
        ...rename...

What it decides: whose turn it is. The *file lock* is a `flock`: the kernel frees it however its holder dies. The
*directory lock* is what other programs take: `mkdir` gets it, its time is renewed while it is held, and one whose time
stands still for `stale_seconds` counts as left over and is moved aside by one rename (07.3).

Fairness: who finds the file lock taken stands in line. The head of the line, one process at a time, is held by a lock on
the first byte of the same file; only the head asks for the lock again and again, the others ask for the head, all
at the same pace, which never grows slower. So a holder that lets go and comes back at once finds the head taken and
stands behind, and nobody is passed over for long. Who has stood for _COURTESY_SECONDS asks for both, so that a process
that was stopped at the head of the line does not keep the others from a lock that nobody holds.

What it never does: remove the file of a file lock, wait beyond its deadline, take away a directory lock that is not
its own, or say that what it protects has stayed as it was: that is for the caller to compare, at the same moment
as `check`.

How it fails: `NotLocked` with the reason, when the deadline has passed or the lock cannot be made; `UnfitPath` where
the lock file is a symlink, another's, or open to others. `LockLost` from `check`.

What is weak: between `check` and the caller's rename a foreign program may still break a lock that it believes left
over. A stopped process that holds the `flock` keeps it: the others run into their deadlines. Where a system has no
locks on open file descriptions, there is no line, and the lock goes to whoever asks at the right moment. It blocks the
calling thread: on an event loop, call it in another.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import stat
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING

from postroom.state import files

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Held", "LockLost", "NotLocked", "held"]

STALE_SECONDS = 10.0
"""Without a renewal for this long, a directory lock is left over: what other programs go by, too (07.3)."""

_RENEWALS = 4
"""How often in `stale_seconds` a held directory lock is renewed: one that comes late does no harm."""

_SECOND_LOOK = 0.025
"""Part of `stale_seconds` for which a lock that looks old is looked at again: a machine or a holder that has just
been woken renews it in that time."""

_HEAD_SECONDS = 0.00005
"""Between two tries of the head of the line."""

_LINE_SECONDS = 0.001
"""Between two tries of the others, half of it by chance."""

_COURTESY_SECONDS = 0.02
"""How long one stands behind the head of the line and does not ask for the lock itself."""

_FIRST_WAIT, _LONGEST_WAIT = 0.002, 0.1
"""Seconds between two tries for a directory lock: from the first to the last, doubled each time, half by chance."""

_OFD = getattr(fcntl, "F_OFD_SETLK", None)
_ASIDE = ".broken-"


class NotLocked(Exception):
    """A lock was not got.

    Attributes:
        path: which lock.
        reason: why, in a few words, without a path.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class LockLost(Exception):
    """A lock is not ours any more, or may be taken from us in this moment: nothing may be written under it.

    Attributes:
        path: which lock.
    """

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was lost")
        self.path = path


class Held:
    """The locks that one thread holds; made by `held`.

    Attributes:
        file_lock, directory_lock: their paths; the second is None where there is none.
    """

    def __init__(self, file_lock: str, fd: int) -> None:
        self.file_lock = file_lock
        self.directory_lock: str | None = None
        self._fd = fd
        self._directory: _Directory | None = None

    def check(self) -> None:
        """Looks whether the locks are still ours; to be called just before the rename (07.3).

        Raises LockLost where one was removed, replaced, or not renewed in time: this process was stopped, and
        another may be breaking it.
        """
        if not _is_at(self.file_lock, self._fd):
            raise LockLost(self.file_lock)
        if self._directory is not None:
            self._directory.check()

    def _enter(self, directory: _Directory) -> None:
        self.directory_lock, self._directory = directory.path, directory


@contextlib.contextmanager
def held(
    file_lock: str,
    directory_lock: str | None = None,
    *,
    seconds: float,
    stale_seconds: float = STALE_SECONDS,
) -> Generator[Held]:
    """Holds one or two locks while the block runs (07.3).

    Args:
        file_lock: path of a file, made 0600 where it is missing; its folder was checked before.
        directory_lock: path of the directory that is the lock of other programs; None where there are none.
        seconds: how long to try for both together; 0: once.
        stale_seconds: how old a directory lock must be to count as left over.

    Raises NotLocked where one of them was not got, and UnfitPath for a lock file that must not be used.
    """
    deadline = time.monotonic() + seconds
    fd = _take(file_lock, deadline)
    try:
        lock = Held(file_lock, fd)
        if directory_lock is None:
            yield lock
            return
        directory = _make(directory_lock, deadline, stale_seconds)
        try:
            lock._enter(directory)  # pyright: ignore[reportPrivateUsage] - of this module
            yield lock
        finally:
            directory.release()
    finally:
        files.keep_in_children(fd)
        fcntl.flock(
            fd, fcntl.LOCK_UN
        )  # by itself: a child that forked behind Python's back may have the file too
        os.close(fd)


# ── the file lock ────────────────────────────────────────────────────────────────────────────────


def _take(path: str, deadline: float) -> int:
    """Takes the `flock`; returns its descriptor."""
    while True:
        try:
            fd, _ = files.open_private(path, files.APPEND, readable=True)
        except FileNotFoundError:
            raise NotLocked(path, "its folder is gone") from None
        try:
            _stand_in_line(path, fd, deadline)
            if _is_at(path, fd):
                files.close_in_children(fd)
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # it was removed while we waited: the others lock another file


def _stand_in_line(path: str, fd: int, deadline: float) -> None:
    """Waits for the lock behind those who came before."""
    head = _head(fd, fcntl.F_WRLCK)
    patience = time.monotonic() + _COURTESY_SECONDS
    while True:
        now = time.monotonic()
        if (head or now >= patience or now >= deadline) and _locked(path, fd):
            break
        if now >= deadline:
            raise NotLocked(path, "another process holds it")
        time.sleep(_HEAD_SECONDS if head else _LINE_SECONDS * random.uniform(0.5, 1.0))
        head = head or _head(fd, fcntl.F_WRLCK)
    if head:
        _head(fd, fcntl.F_UNLCK)


def _locked(path: str, fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise NotLocked(path, error.strerror or "it cannot be locked") from error
    return True


def _head(fd: int, kind: int) -> bool:
    """Takes or gives up the head of the line; True where it is ours, or where this system knows none."""
    if _OFD is None:
        return True
    if sys.platform == "darwin":
        what = struct.pack("qqihh", 0, 1, 0, kind, os.SEEK_SET)
    else:
        what = struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 1, 0)
    try:
        fcntl.fcntl(fd, _OFD, what)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def _is_at(path: str, fd: int) -> bool:
    """Whether what is open here still lies at its path."""
    own = os.fstat(fd)
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)


# ── the directory lock ───────────────────────────────────────────────────────────────────────────


class _Directory:
    """A directory lock that is ours. Its open descriptor keeps its number from being given to another one."""

    def __init__(self, path: str, fd: int, made: float, stale_seconds: float) -> None:
        self.path = path
        self.stale_seconds = stale_seconds
        self._fd = fd
        self._renewed = made
        files.close_in_children(fd)
        _renewing.add(self)

    def check(self) -> None:
        if self._renewed + self.stale_seconds <= time.monotonic() or not _is_at(self.path, self._fd):
            raise LockLost(self.path)

    def renew(self) -> None:
        """Sets its time to now; nothing where it is too late, since another may have begun to break it."""
        now = time.monotonic()
        if now < self._renewed + self.stale_seconds:
            try:
                os.utime(self._fd)
            except OSError:
                return
            self._renewed = now

    def release(self) -> None:
        _renewing.discard(self)
        try:
            self.check()
            os.rmdir(self.path)
        except (LockLost, OSError):
            pass  # it is another's now, or somebody put a file in it: then it grows old and is moved aside
        files.keep_in_children(self._fd)
        os.close(self._fd)


def _make(path: str, deadline: float, stale_seconds: float) -> _Directory:
    """Makes the directory, and waits for one that is there."""
    look = _Look(path, stale_seconds)
    wait = _FIRST_WAIT
    while True:
        began = time.monotonic()
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            raise NotLocked(path, _why(error)) from error
        else:
            if (directory := _opened(path, began, stale_seconds)) is not None:
                return directory
            continue
        if look.is_left_over() and look.move_aside():
            continue
        if time.monotonic() >= deadline:
            raise NotLocked(path, "another program holds it")
        time.sleep(min(wait * random.uniform(0.5, 1.0), max(0.0, deadline - time.monotonic())))
        wait = min(2 * wait, _LONGEST_WAIT)


def _why(error: OSError) -> str:
    return "its folder is gone" if error.errno == errno.ENOENT else error.strerror or "it cannot be made"


def _opened(path: str, began: float, stale_seconds: float) -> _Directory | None:
    """Opens the directory that we made; None where so much time went by that it may be another's."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    if time.monotonic() - began >= stale_seconds / 2:
        os.close(fd)
        return None
    return _Directory(path, fd, began, stale_seconds)


class _Look:
    """What one waiter has seen of a directory lock: whether it is left over.

    It is where its time stands still for `stale_seconds` while we look on; or where it was that old when we came,
    by this machine's clock, and is not renewed for a moment more. So a clock that was set back wedges nothing.
    """

    def __init__(self, path: str, stale_seconds: float) -> None:
        self.path = path
        self._stale_seconds = stale_seconds
        self._seen: tuple[int, int, int] | None = None
        self._since = 0.0

    def is_left_over(self) -> bool:
        """Looks once more."""
        now = time.monotonic()
        try:
            found = os.lstat(self.path)
        except OSError:
            self._seen = None
            return False
        seen = (found.st_dev, found.st_ino, found.st_mtime_ns)
        if seen != self._seen:
            self._seen, self._since = seen, now
        old = time.time() - found.st_mtime > self._stale_seconds
        return now - self._since >= self._stale_seconds * (_SECOND_LOOK if old else 1.0)

    def move_aside(self) -> bool:
        """Takes it away by one rename, and puts it back where that caught another one; True where it is gone."""
        aside = f"{self.path}{_ASIDE}{os.urandom(4).hex()}"
        try:
            os.rename(self.path, aside)
            found = os.lstat(aside)
            if (found.st_dev, found.st_ino, found.st_mtime_ns) == self._seen:
                remove_aside(aside)
                return True
            if not os.path.lexists(self.path):
                os.rename(aside, self.path)
        except OSError:
            pass  # another was quicker, or the folder cannot be written
        return False


def is_aside(name: str) -> bool:
    """Whether a file's name is that of a directory lock that was moved aside: left over where it could not be removed."""
    return _ASIDE in name


def remove_aside(path: str) -> bool:
    """Removes a lock that was moved aside; False where it stays, since somebody put a file in it."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            os.rmdir(path)
        else:
            os.unlink(path)
    except OSError:
        return False
    return True


# ── renewing ─────────────────────────────────────────────────────────────────────────────────────


class _Renewing:
    """Renews the directory locks of this process: one thread, there while any is held and for one interval more."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._all: set[_Directory] = set()
        self._interval = 0.0

    def add(self, directory: _Directory) -> None:
        """Begins to renew a lock."""
        interval = directory.stale_seconds / _RENEWALS
        with self._changed:
            self._all.add(directory)
            if not self._interval:
                threading.Thread(target=self._run, name="postroom-locks", daemon=True).start()
            elif interval >= self._interval:
                return
            self._interval = interval
            self._changed.notify()

    def discard(self, directory: _Directory) -> None:
        """Ends it; afterwards its descriptor is not used any more."""
        with self._changed:
            self._all.discard(directory)

    def _run(self) -> None:
        with self._changed:
            while self._all:
                for directory in self._all:
                    directory.renew()
                self._changed.wait(self._interval)
            self._interval = 0.0

    def forget(self) -> None:
        """In a forked child: the thread and the locks are the parent's."""
        self._changed, self._all, self._interval = threading.Condition(), set(), 0.0


_renewing = _Renewing()
os.register_at_fork(after_in_child=_renewing.forget)
