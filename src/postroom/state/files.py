"""Folders, files and locks that can be trusted: the only place that checks, locks, syncs and renames.

What it decides: whether a folder or a file is fit for private things (05.6), and whether somebody holds a lock
(05.11). A check walks from `/` down, one descriptor a step, and judges what was opened, not what a name
pointed to a moment before.

What it never does: print, change the mode of something that is there already, follow a symlink as the last
part of a path, or know what a file means.

How it fails: `UnfitPath` with the reason for what must not be trusted; `FileNotFoundError` for a file that is
not there; `StoreFailed` for a full disk and other failures of writing.

What is weak: access control lists are seen only as far as the kernel shows them in the mode. A folder that a
group may write is refused also where we are that whole group. On a network file system `flock` is as good as
that file system.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from postroom.errors import StoreFailed, UnfitPath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CONTROL_PATH_LIMIT = 103
"""Bytes of a control socket's path: the least that any system takes (macOS: 104 with its NUL) (05.7)."""

MAKE_TRIES = 3
"""How often a folder is made that another process removes at once."""

LINKS = 40
"""Symlinks followed on the way down, as many as the kernel follows itself."""

OPENER_SECONDS = 0.25
"""How long an opener tries for a lock: a lister holds it shared for an instant (05.11)."""

OTHERS = 0o077
"""Mode bits that a private folder or file must not have."""

WRITERS = 0o022
"""Mode bits that a folder must not have which others may look into."""

_MACOS = sys.platform == "darwin"
_STEP = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", getattr(os, "O_SEARCH", 0))
"""How each folder on the way is opened: to be looked at and passed through, without the right to list it."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
"""How a file is opened that may be anything: a FIFO or a terminal must not stop us."""

_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
APPEND = _LOCK | os.O_APPEND
"""How a file is opened to be locked, and to be added to: it may be anything, too, and is made where it is missing."""

_OWN_FILE, _OWN_FOLDER = stat.S_IFREG | 0o600, stat.S_IFDIR | 0o700
"""How our files and folders look as we make them: for those who look at thousands, a glance tells."""

_REASONS = {
    errno.ELOOP: "a symlink, which is not followed",
    errno.ENXIO: "not a regular file",
    errno.EISDIR: "a folder where a file should be",
    errno.ENOTDIR: "not a folder",
    errno.EACCES: "this user may not open it",
    errno.EPERM: "this user may not open it",
    errno.ENAMETOOLONG: "the path is too long",
}


def _refuse(path: str, error: OSError) -> NoReturn:
    """Raises what opening a file came to: FileNotFoundError as it is, anything else as UnfitPath."""
    if isinstance(error, FileNotFoundError):
        raise error
    reason = _REASONS.get(error.errno or 0) or error.strerror or "cannot be opened"
    raise UnfitPath(path, reason) from error


# ---------------------------------------------------------------------------------------- folders


def check_folder(path: str, *, readable: bool = False) -> None:
    """Checks that a folder is fit for private things (05.6).

    It is a real folder of ours, no symlink, closed to group and world; every folder above it is ours or
    root's and cannot be written by others, sticky ones apart. A symlink above it is passed where its owner
    is we or root and what it points to passes as well.

    Args:
        readable: others may look into it, though not write: another program's folder.

    Raises UnfitPath with the reason; a folder that does not exist is unfit.
    """
    os.close(_walk(path, make=False, parents=False, readable=readable))


def check_own_folder(path: str, *, readable: bool = False) -> None:
    """Checks a folder by itself, where those above it were checked before (05.6).

    Args:
        readable: as for `check_folder`.

    Raises UnfitPath with the reason; FileNotFoundError when nothing lies there.
    """
    try:
        found = os.lstat(path)
    except OSError as error:
        _refuse(path, error)
    if found.st_mode == _OWN_FOLDER and found.st_uid == os.geteuid():
        return
    if not stat.S_ISDIR(found.st_mode):
        raise UnfitPath(path, _REASONS[errno.ELOOP if stat.S_ISLNK(found.st_mode) else errno.ENOTDIR])
    _judge_own(path, found, os.geteuid(), readable)


def private_folder(path: str, *, parents: bool = True) -> None:
    """Makes a folder, mode 0700, where there is none, and checks it like `check_folder` (05.2, 05.6).

    Args:
        parents: also make the missing folders above it, 0700 too.

    Raises UnfitPath where it is unfit or cannot be made.
    """
    os.close(_walk(path, make=True, parents=parents))


def _walk(path: str, *, make: bool, parents: bool, readable: bool = False) -> int:
    """Goes down to a folder, judging each step; returns a descriptor of it."""
    parts = _parts(path)
    user = _user(path)
    ahead = parts[::-1]
    links = 0
    place = "/"
    here = os.open("/", _STEP)
    try:
        _judge_above("/", os.fstat(here), user)
        while ahead:
            part = ahead.pop()
            above, place = place, os.path.join(place, part)
            found = _enter(place, part, here, make=make and (parents or not ahead))
            if isinstance(found, str):
                links += 1
                if not ahead:
                    raise UnfitPath(place, "a symlink, which is not followed")
                if links > LINKS:
                    raise UnfitPath(path, "too many symlinks on the way")
                ahead += [step for step in found.split("/")[::-1] if step not in ("", ".")]
                place = above
                if not found.startswith("/"):
                    continue
                place = "/"
                found = os.open("/", _STEP)
            os.close(here)
            here = found
            if ahead:
                _judge_above(place, os.fstat(here), user)
        _judge_own(place, os.fstat(here), user, readable)
    except BaseException:
        os.close(here)
        raise
    return here


def _parts(path: str) -> list[str]:
    """The parts of an absolute path without `..`; UnfitPath for any other."""
    shown = path.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise UnfitPath(shown, "not a path of this system") from None
    parts = [part for part in path.split("/") if part not in ("", ".")]
    rungs = (
        (not path.startswith("/"), "not an absolute path"),
        ("\0" in path, "it holds a NUL"),
        (".." in parts, "it holds '..'"),
    )
    for broken, reason in rungs:
        if broken:
            raise UnfitPath(shown, reason)
    return parts


def _user(path: str) -> int:
    """Our uid; UnfitPath in a user namespace that maps none for us, where all strangers look like us."""
    user = os.geteuid()
    rows = _numbers("/proc/self/uid_map") if user == _overflow_uid() else None
    if rows is not None and not any(first <= user < first + count for first, _, count in rows):
        raise UnfitPath(path, "this user namespace maps no uid for us, so nothing can be told to be ours")
    return user


def _overflow_uid() -> int:
    """The uid under which a user namespace shows everybody whom it does not map: 65534."""
    rows = _numbers("/proc/sys/kernel/overflowuid")
    return rows[0][0] if rows else 65534


def _numbers(path: str) -> list[list[int]] | None:
    """The rows of numbers in a file that the kernel makes; None where there is no such file."""
    try:
        with open(path, "rb") as file:
            return [[int(word) for word in line.split()] for line in file]
    except (OSError, ValueError):
        return None


def _enter(place: str, part: str, above: int, *, make: bool) -> int | str:
    """Opens one folder on the way, or makes it; the text of the link where it is a symlink of ours or root's."""
    for _ in range(MAKE_TRIES):
        try:
            return os.open(part, _STEP, dir_fd=above)
        except FileNotFoundError:
            if not make:
                raise UnfitPath(place, "does not exist") from None
        except OSError as error:
            return _link(place, part, above, error)
        try:
            os.mkdir(part, 0o700, dir_fd=above)
        except FileExistsError:
            pass  # another process made it in this instant
        except OSError as error:
            raise UnfitPath(place, f"cannot be made ({error.strerror})") from error
    raise UnfitPath(place, "it disappears as often as it is made")


def _link(place: str, part: str, above: int, error: OSError) -> str:
    """What a symlink on the way says; UnfitPath for everything else that is no folder."""
    try:
        found = os.stat(part, dir_fd=above, follow_symlinks=False)
        if not stat.S_ISLNK(found.st_mode):
            _refuse(place, error)
        if found.st_uid not in (0, os.geteuid()):
            raise UnfitPath(place, f"a symlink that belongs to uid {found.st_uid}")
        return os.readlink(part, dir_fd=above)
    except OSError as problem:
        raise UnfitPath(place, problem.strerror or "cannot be opened") from problem


def _judge_above(place: str, found: os.stat_result, user: int) -> None:
    """Judges a folder on the way (05.6)."""
    _judge_owner(place, found, (0, user))
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        raise UnfitPath(
            place,
            f"others may write in it (mode {stat.S_IMODE(found.st_mode):04o})",
            f"Run `chmod go-w {place}`, or choose another folder.",
        )


def _judge_own(place: str, found: os.stat_result, user: int, readable: bool) -> None:
    """Judges the folder itself (05.6)."""
    _judge_owner(place, found, (user,))
    mode = f"(mode {stat.S_IMODE(found.st_mode):04o})"
    if found.st_mode & OTHERS and not readable:
        raise UnfitPath(
            place,
            f"others have access to it {mode}",
            f"Run `chmod 700 {place}`, or choose another folder.",
        )
    if found.st_mode & WRITERS:
        raise UnfitPath(
            place,
            f"others may write in it {mode}",
            f"Run `chmod go-w {place}`, or choose another folder.",
        )


def _judge_owner(place: str, found: os.stat_result, owners: tuple[int, ...]) -> None:
    if found.st_uid not in owners:
        unmapped = ", whom this user namespace does not map" if found.st_uid == _overflow_uid() else ""
        raise UnfitPath(place, f"it belongs to uid {found.st_uid}{unmapped}")


# ---------------------------------------------------------------------------------------- files


def check_file(path: str, *, socket: bool = False, folder: bool = True) -> None:
    """Checks a file by its name: ours, no symlink, closed to others, in a folder that passes (05.6).

    Args:
        path: absolute.
        socket: it must be a socket; else a regular file.
        folder: check its folder too; False where that was just done.

    Raises UnfitPath with the reason; FileNotFoundError when nothing lies there.
    """
    _parts(path)
    if folder:
        check_folder(os.path.dirname(path))
    try:
        found = os.lstat(path)
    except OSError as error:
        _refuse(path, error)
    _judge_file(path, found, socket=socket)


def _judge_file(path: str, found: os.stat_result, *, socket: bool = False, readable: bool = False) -> None:
    sort = "a socket" if socket else "a regular file"
    if stat.S_ISLNK(found.st_mode):
        raise UnfitPath(path, _REASONS[errno.ELOOP])
    if not (stat.S_ISSOCK(found.st_mode) if socket else stat.S_ISREG(found.st_mode)):
        raise UnfitPath(path, f"not {sort}")
    if found.st_uid != os.geteuid():
        raise UnfitPath(path, f"it belongs to uid {found.st_uid}")
    if found.st_mode & (0o033 if readable else OTHERS):
        raise UnfitPath(path, f"others have access to it (mode {stat.S_IMODE(found.st_mode):04o})")


def open_private(path: str, flags: int = _READ, *, readable: bool = False) -> tuple[int, os.stat_result]:
    """Opens a file that must be ours alone; returns its descriptor, for the caller to close, and what it is (05.6).

    Args:
        path, readable: as for `read_private`.
        flags: `_READ`, or APPEND: to add to it, made where it is missing.

    Raises as `read_private`; a file that is too large is none of its concern.
    """
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        _refuse(path, error)
    try:
        found = os.fstat(fd)
        _judge_file(path, found, readable=readable)
    except BaseException:
        os.close(fd)
        raise
    return fd, found


def read_private(path: str, limit: int, *, readable: bool = False) -> bytes:
    """Reads a small file that must be ours alone (05.6).

    Args:
        path: where it lies; its folder was checked before.
        limit: bytes that it may have.
        readable: others may read it, though not write it: another program's record.

    Raises UnfitPath for a symlink, a folder, a FIFO, a device, another's file, a loose mode or a file that is
    too large; FileNotFoundError when there is none. It never waits.
    """
    fd, found = open_private(path, readable=readable)
    try:
        data = os.read(fd, min(limit, found.st_size) + 1)
        while len(data) <= limit and (more := os.read(fd, limit + 1 - len(data))):
            data += more
    except OSError as error:
        _refuse(path, error)
    finally:
        os.close(fd)
    if len(data) > limit:
        raise UnfitPath(path, f"larger than {limit} bytes")
    return data


def write_atomic(
    path: str,
    data: bytes,
    *,
    mode: int = 0o600,
    sync: bool = True,
    before: Callable[[], None] | None = None,
) -> None:
    """Writes a whole file so that a reader sees the old one or the new one (05.29).

    A temporary file in the same folder, new and no symlink, every write checked, synced, renamed, and the
    folder synced. A file that was there is replaced, a symlink too, never what it points to.

    Args:
        path: where it shall lie; its folder was checked before.
        sync: False where losing it with the machine's power does no harm.
        before: called when all is written and synced, just before the rename; what it raises stops that.

    Raises StoreFailed where it could not be written, and what `before` raises; what was there stays.
    """
    folder, name = os.path.split(path)
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _write_at(at, name, data, mode, sync, before)
        finally:
            os.close(at)
    except OSError as error:
        raise StoreFailed(f"{path} could not be written ({error.strerror}).") from error


def temporary_name() -> str:
    """A new name for a temporary file; `is_temporary` knows it again."""
    return f".postroom-{os.getpid()}-{os.urandom(4).hex()}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a file's name is one that `temporary_name` gives: left over where its writer was killed."""
    return name.startswith(".postroom-") and name.endswith(".tmp")


def _write_at(
    at: int, name: str, data: bytes, mode: int, sync: bool, before: Callable[[], None] | None
) -> None:
    temporary = temporary_name()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o600, dir_fd=at)
    try:
        try:
            os.fchmod(fd, mode)
            _write_all(fd, data)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        if before is not None:
            before()
        os.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        try:
            os.unlink(temporary, dir_fd=at)
        except OSError:
            pass
        raise
    if sync:
        os.fsync(at)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


# ---------------------------------------------------------------------------------------- locks


def probe(path: str) -> bool:
    """Says whether a living process holds the lock at this path (05.11).

    The kernel lets go of a lock however its process dies, and knows it across pid namespaces. The look takes it
    shared for an instant; two looks do not disturb each other.

    Raises FileNotFoundError when there is no such file, UnfitPath when it can be no lock.
    """
    try:
        fd = os.open(path, _READ)
    except OSError as error:
        _refuse(path, error)
    try:
        found = os.fstat(fd)
        if found.st_mode != _OWN_FILE or found.st_uid != os.geteuid():
            _judge_file(path, found)  # what is no lock of ours proves nothing, however free it is
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # By itself and not by closing: a process forked in this instant may hold the descriptor too.
        fcntl.flock(fd, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError as error:
        _refuse(path, error)
    finally:
        os.close(fd)
    return False


class Lock:
    """An exclusive lock on a file that other processes respect (`flock`), released however its process ends.

    It does not go on into forked children, and a child's copy of this object is not held.

    Args:
        path: the lock file, made where it is missing; its folder was checked before.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._pid = 0

    @property
    def held(self) -> bool:
        """Whether this process holds it."""
        return self._fd >= 0 and self._pid == os.getpid()

    def acquire(self, seconds: float = OPENER_SECONDS) -> bool:
        """Takes the lock.

        Args:
            seconds: how long to try; 0 for once.

        Returns True when it is held now, False when somebody else kept it. Raises UnfitPath where the file
        is not ours, too open, or no file; FileNotFoundError where its folder is gone.
        """
        deadline = time.monotonic() + seconds
        while True:
            fd, _ = open_private(self.path, _LOCK)
            try:
                taken = self._try(fd, deadline)
                if taken and self._is_at_path(fd):
                    self._keep(fd)
                    fd = -1
                    return True
            finally:
                if fd >= 0:
                    os.close(fd)
            if not taken:
                return False

    def _try(self, fd: int, deadline: float) -> bool:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.002)
            except OSError as error:
                _refuse(self.path, error)
            else:
                return True

    def _is_at_path(self, fd: int) -> bool:
        """False when another file took its place meanwhile: the lock is then on a file without a name."""
        own = os.fstat(fd)
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    def _keep(self, fd: int) -> None:
        self._fd, self._pid = fd, os.getpid()
        close_in_children(fd)

    def replace(self, data: bytes = b"") -> None:
        """Puts a new lock file, with `data` in it, in the place of one whose holder is gone; and holds it (05.11).

        The caller makes sure that the holder is gone, and that nobody else does so at the same time.
        """
        folder = os.path.dirname(self.path)
        temporary = os.path.join(folder, temporary_name())
        try:
            fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _write_all(fd, data)
                os.rename(temporary, self.path)
            except BaseException:
                os.close(fd)
                os.unlink(temporary)
                raise
        except OSError as error:
            raise StoreFailed(f"{self.path} could not be replaced ({error.strerror}).") from error
        self.release()
        self._keep(fd)

    def write(self, data: bytes) -> None:
        """Writes down in the lock file who holds it; the lock must be held."""
        try:
            os.lseek(self._fd, 0, os.SEEK_SET)
            _write_all(self._fd, data)
            # Afterwards: ext4 waits for the disk where a file is emptied first and then written.
            os.ftruncate(self._fd, len(data))
        except OSError as error:
            raise StoreFailed(f"{self.path} could not be written ({error.strerror}).") from error

    def release(self) -> None:
        """Lets go of it, also where a child still has the descriptor; the file stays. Harmless when not held."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        if self._pid == os.getpid():
            keep_in_children(fd)
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


# ---------------------------------------------------------------------------------------- forked children

_closed_in_children: set[int | Callable[[], Iterable[int]]] = set()


def close_in_children(what: int | Callable[[], Iterable[int]]) -> None:
    """Sees to it that a forked child does not hold a descriptor on (05.11).

    In the child the number then means /dev/null, so that an object that still knows it closes nothing else.
    `keep_in_children` takes the same back, before the descriptor is closed here.

    Args:
        what: a descriptor; or what finds them in the child, such as `lambda: descriptors_below(folder)`.
    """
    _closed_in_children.add(what)


def keep_in_children(what: int | Callable[[], Iterable[int]]) -> None:
    """Takes `close_in_children` back."""
    _closed_in_children.discard(what)


def descriptors_below(folder: str) -> list[int]:
    """Finds this process's open descriptors of files below a folder, deleted ones too.

    Empty where the system does not tell (no /proc).
    """
    below = os.path.realpath(folder) + "/"
    try:
        numbers = [int(name) for name in os.listdir("/dev/fd" if _MACOS else "/proc/self/fd")]
    except OSError:
        return []
    return [number for number in numbers if _path_of(number).startswith(below)]


def _path_of(fd: int) -> str:
    """The path under which a descriptor was opened; empty where that is not told."""
    try:
        if _MACOS:
            return os.fsdecode(fcntl.fcntl(fd, 50, bytes(1024)).rstrip(b"\0"))  # F_GETPATH
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def _close_in_this_child() -> None:
    """Runs in every forked child."""
    numbers: set[int] = set()
    for what in _closed_in_children:
        numbers.update((what,) if isinstance(what, int) else what())
    _closed_in_children.clear()
    try:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        null = (
            -1
        )  # nothing is worth a lock that outlives its session: below, dup2 fails and the number is closed
    for number in numbers:
        try:
            os.dup2(null, number, inheritable=False)
        except OSError:
            os.closerange(number, number + 1)
    if null >= 0:
        os.close(null)


os.register_at_fork(after_in_child=_close_in_this_child)
