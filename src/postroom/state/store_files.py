"""What the store needs of its folder: what kind of file system it is, room for hard times, a safe fork.

THE RESERVE. When the disk is full, nothing more is accepted, but what was accepted must still be handed out
and confirmed (05.27). Two files are therefore made at their full size beforehand: the write-ahead log, of
which arrivals may use only the first part, and a ballast, which is given up when the rest of the log is used
up too: then the log can be copied back into the database, however full the disk is, and used anew. Arrivals
are refused from then on until both files are whole again.

What is weak: on a file system that copies on write (btrfs, ZFS) a block that was allocated before is no
promise of a later write, so only the ballast helps there; and another program may take the space of the
ballast in the instant in which it is given up.

A FORK. A child gets the parent's descriptors, which `state.files` takes from it, and a copy of SQLite's memory.
Should that copy ever be closed there, SQLite could remove the parent's log. So the connection is kept from
ever being closed in a child (05.11).
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from postroom.core.message import iso
from postroom.state.files import check_file

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = 4096
"""Bytes of a page, SQLite's default and the block of most file systems."""

FRAME = PAGE + 24
"""Bytes that a page takes in the log: a header comes with it."""

ARRIVAL_PAGES = 512
"""Pages of the log that arrivals may fill before it is copied back: about sixty commits, so that the copying
costs each of them a twentieth."""

LOG_BYTES = 3 * 1024 * 1024
"""The log's fixed size: 763 pages, so that 250 are left to leases and confirmations, at three pages each."""

BALLAST_BYTES = ARRIVAL_PAGES * PAGE
"""What the database can grow by when the log is copied back: not more pages than arrivals may have put there."""

BIG_PAGES = 64
"""A group that may take more than this must not live on the reserve: the disk is asked first."""

CORRUPT_KEPT = 3
"""Sets of corrupt files that are kept for whoever wants to look; an older one makes room (11.10)."""

NETWORK = frozenset(
    "9p afs beegfs ceph cifs coda gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs pvfs2 smb2 smb3 smbfs"
    " virtiofs vboxsf".split()
)
"""File systems whose files may be written from elsewhere, or whose locks and syncs are another machine's."""


def file_system_of(folder: str) -> str:
    """The type of the file system that a folder lies on, as Linux calls it (`ext4`, `nfs4`); empty: unknown."""
    try:
        device = os.stat(folder).st_dev
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            lines = mounts.read().splitlines()
    except OSError:
        return ""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        left, _, right = line.partition(" - ")
        if left.split(" ")[2:3] == [wanted]:
            return right.partition(" ")[0]
    return ""


def is_network(file_system: str) -> bool:
    """Whether a write-ahead log is out of place there (05.27). FUSE says nothing about what is behind it."""
    return file_system in NETWORK or file_system == "fuse" or file_system.startswith("fuse.")


def own_file(path: str) -> None:
    """Makes the store's file if there is none, private, and checks the one that is there (05.6, 11.11).

    Its log and the ballast are checked too: what lies there is read and written as part of the store.

    Raises UnfitPath, OSError where it cannot be made.
    """
    try:
        check_file(path)
    except FileNotFoundError:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    check_companions(path)


def check_companions(path: str) -> None:
    """Checks the files that belong to a store, as far as they are there. Raises UnfitPath (05.6)."""
    beside = (f"{path}-wal", f"{path}-shm", f"{path}-journal", ballast_of(path))
    for companion in beside:
        with contextlib.suppress(FileNotFoundError):
            check_file(companion, folder=False)


def ballast_of(path: str) -> str:
    """Where the ballast of a store lies."""
    return os.path.join(os.path.dirname(path), "store.ballast")


def set_aside(path: str, now: int) -> str:
    """Renames a corrupt store, its log with it, to a dated name beside it (05.27).

    Returns the new name, without the folder. Raises OSError.
    """
    folder, name = os.path.split(path)
    dated = f"{name}.corrupt-{iso(now).translate(str.maketrans('', '', '-:Z'))}"
    marker = f"{name}.corrupt-"
    sets = sorted({_set_of(entry) for entry in os.listdir(folder) if entry.startswith(marker)})
    if sets and sets[-1].startswith(dated):  # a second one in this second
        dated += f"~{int(sets[-1].partition('~')[2] or 1) + 1:03}"
    target = os.path.join(folder, dated)
    os.rename(path, target)
    for ending in ("-wal", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(path + ending, target + ending)
    kept = {*sets[1 - CORRUPT_KEPT :], dated}
    for entry in os.listdir(folder):
        if entry.startswith(marker) and _set_of(entry) not in kept:
            os.unlink(os.path.join(folder, entry))
    return dated


def _set_of(name: str) -> str:
    """The name of the corrupt store that a file belongs to."""
    return name.removesuffix("-wal").removesuffix("-journal")


class Room:
    """How much of the log is used, and the reserve that is set apart for leases and confirmations.

    A group is a transaction. Pages are counted from above, by what each write may take, since SQLite tells
    the true number only when the log is copied back.

    Args:
        path: the store's file.
        log: whether there is a write-ahead log to be kept at its full size.

    Attributes:
        whole: whether both files have their full size.
    """

    def __init__(self, path: str, *, log: bool) -> None:
        self._folder = os.path.dirname(path)
        self._ballast = ballast_of(path)
        self._log = f"{path}-wal" if log else None
        self._used = ARRIVAL_PAGES  # not known: copied back before the first group
        self._before = 0
        self._growing = False
        self.whole = False

    def opens(self, *, growing: bool, copy_back: Callable[[], bool]) -> bool:
        """Whether a group may be opened now. Leases always may; what makes the store grow needs the reserve.

        Args:
            growing: whether the group takes something in.
            copy_back: copies the log into the database; False: the disk is full.
        """
        if self._log is None:
            self._used = 0
        elif self._used >= ARRIVAL_PAGES:
            if copy_back():
                self._used = 0
            elif growing:
                return False
        if growing and not self.whole and not self.restore():
            return False
        self._before = self._used
        self._growing = False
        return True

    def takes(self, pages: int, *, growing: bool) -> None:
        """Counts what one write of the open group may take."""
        self._used += pages
        self._growing |= growing

    def commits(self) -> bool:
        """Whether the open group leaves the reserve alone: by its size, or because the disk has room beside it."""
        if not self._growing or self._used <= ARRIVAL_PAGES or self._used - self._before <= BIG_PAGES:
            return True
        if room_on_disk(self._folder, 2 * self._used * PAGE):
            return True
        self._before = ARRIVAL_PAGES  # so that the next group begins with an empty log
        return False

    def rolled_back(self) -> None:
        """The open group is gone, and its pages will be written over."""
        self._used = self._before

    def emptied(self) -> None:
        """The log was copied back."""
        self._used = 0

    def restore(self) -> bool:
        """Brings both files to their full size, where they are not. Returns whether they are."""
        try:
            _grow(self._ballast, BALLAST_BYTES)
            if self._log is not None:
                _grow(self._log, LOG_BYTES)
        except OSError:
            self.whole = False
        else:
            self.whole = True
        return self.whole

    def release(self) -> bool:
        """Gives the ballast's space to the disk. Returns False where it was given already."""
        self.whole = False
        try:
            os.unlink(self._ballast)
        except OSError:
            return False
        return True


def _grow(path: str, size: int) -> None:
    """Makes a file at least `size` bytes long, with the blocks behind it. Raises OSError, as for a full disk."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        length = os.fstat(descriptor).st_size
        if length >= size:
            return
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, length, size - length)
            else:
                os.pwrite(descriptor, bytes(size - length), length)
        except OSError:
            os.ftruncate(descriptor, length)  # some file systems keep the part that fitted
            raise
    finally:
        os.close(descriptor)


def room_on_disk(path: str, size: int) -> bool:
    """Whether the disk says that `size` more bytes fit; True where it says nothing."""
    try:
        found = os.statvfs(path)
    except OSError:
        return True
    return found.f_bavail * found.f_frsize >= size


def keep_for_ever(thing: object) -> None:
    """Keeps an object from being destroyed, at the end of the interpreter too.

    For a forked child, where destroying a connection would act on the parent's files.
    """
    with contextlib.suppress(ImportError):
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
