"""A teammate's inbox file: entries are added and taken away, by programs of ours and by others (07.2 to 07.8).

    <team>/inboxes/<name>.json                     one JSON array (`core.mailfile`)
    <team>/inboxes/.<name>.lock                    the file lock, always taken, first
    <team>/inboxes/<name>.json.lock                the directory lock, taken where other programs write too
    <team>/inboxes/<name>.json.quarantine          what was no entry, one JSON object a line; `.quarantine.1` the one before
    <team>/inboxes/<name>.json.damaged-<hash>      copies of files that did not parse

An `append` that returned is renamed and synced: it survives a crash of anybody (11.19). A reader needs no lock, because
a file is only ever replaced as a whole. Who reads stores what he took first, and then removes it by its keys; an
entry that is still there after a crash has the same key again (07.5).

What it decides: when a file is damaged, and what becomes of what cannot be delivered. What it never does: make a
team's folder, believe an entry, keep what was taken, truncate, or write a byte on failure.

How it fails: `MailboxFull` and `MailboxWriteFailed` with a reason that a sender may see; both say that nothing was
written. `UnfitPath` from reading, for a file or folder that must not be trusted. A disk without room does not stop
the reading: what should have been moved aside stays, and is told once in this process.

What is weak: a foreign program that ignores the locks can lose an entry of ours between the last look and the rename. If
the folder cannot be synced after the rename, the sender hears of a failure though the entry is there. Quarantine and
copies are bounded, so the oldest of them go. Everything here blocks, up to LOCK_SECONDS: on an event loop, use `post`,
`look` and `drop`, which keep their order.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from postroom.core import mailfile
from postroom.core.mailfile import Contents, Entry, Item
from postroom.errors import StoreFailed, UnfitPath
from postroom.state import files, locks, processes
from postroom.state.locks import Held, LockLost, NotLocked

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["Leftover", "Mailbox", "MailboxFull", "MailboxWriteFailed", "Mark", "Snapshot"]

LOCK_SECONDS = 20.0
"""How long a writer of ours waits for its turn (07.3): a directory lock that was left over costs ten of them."""

EMPTY_SECONDS = 0.1
"""How long a file of no bytes is left to the program that is just making it (07.6)."""

MAX_READ = 256 * 1024 * 1024
"""Bytes of a file that is read at all: far more than any program writes, less than a machine's memory (11.10)."""

_STARTS = 8
"""How often a writer starts over because its lock was broken or the file was changed under it."""

MAX_QUARANTINE = 4 * 1024 * 1024
"""Bytes of a quarantine file before it becomes `.1`, and the one before it goes (11.10)."""

MAX_COPIES = 4
"""Copies of damaged files that are kept of one mailbox (11.10)."""

OLD_SECONDS = 3600.0
"""After this long no writer is at work on a temporary file, whoever has its process id now."""

Mark = tuple[int, int, int, int]
"""By what one state of a file is told from another: device, inode, size and time; the time alone would not do (12.29)."""

Kind = Literal["quarantine", "damaged", "lock", "aside", "temporary"]


class MailboxFull(Exception):
    """It takes no more until its owner has read some (07.6); nothing was written.

    Attributes:
        code: of `core.refusals`.
    """

    code = "mailbox_full"


class MailboxWriteFailed(Exception):
    """It could not be written (07.3); nothing was.

    Attributes:
        code: of `core.refusals`.
        reason: why, in a few words, without a path.
    """

    code = "mailbox_write_failed"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Changed(Exception):
    """The file is not what was read: another program wrote it, in spite of the locks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What lay in a mailbox at one moment.

    Attributes:
        items: the entries, in their order, each with its key; those that `read` marks were taken by another program.
        quarantined: what was no entry, and is told now and not again.
        copy: the name of the file to which a damaged one was copied aside; empty where none was, or it was told before.
        problem: why what is damaged could not be moved aside and is still there; empty where that is not so.
        mark: of the file that was read; None where there was none.
    """

    items: tuple[Item, ...] = ()
    quarantined: tuple[Item, ...] = ()
    copy: str = ""
    problem: str = ""
    mark: Mark | None = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries alone."""
        return tuple(item.entry for item in self.items if item.entry is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A file beside the mailbox that a person may want to know of.

    Attributes:
        kind: `quarantine` and `damaged` hold what could not be delivered; a left-over `lock`, one that was moved
            `aside`, and a `temporary` file are a killed writer's.
        name: its name in the folder.
        size: bytes; 0 for a lock.
        removed: it is gone now.
    """

    kind: Kind
    name: str
    size: int
    removed: bool


class Mailbox:
    """One member's inbox file.

    Args:
        folder: `<teams>/<team>/inboxes`, absolute; made when the first entry is written, if the team's own is there.
        name: the member's.
        shared: other programs write there too: everywhere but in a session's own state folder (07.3).
        seconds: how long a writer waits for its turn.
        stale_seconds: after how long a directory lock is left over.

    Raises InvalidName for a name that could be a path or share a file (07.8).
    """

    def __init__(
        self,
        folder: str,
        name: str,
        *,
        shared: bool,
        seconds: float = LOCK_SECONDS,
        stale_seconds: float = locks.STALE_SECONDS,
    ) -> None:
        self.folder = folder
        self.name = mailfile.check_member(name)
        self.shared = shared
        self.path = f"{folder}/{name}.json"
        self.file_lock = f"{folder}/.{name}.lock"
        self.directory_lock = f"{self.path}.lock"
        self._seconds = seconds
        self._stale_seconds = stale_seconds
        self._checked = False
        self._told: set[str] = set()
        self._thread: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        return f"<Mailbox {self.name}{' shared' if self.shared else ''}>"

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def append(self, entry: Entry) -> None:
        """Adds an entry at the end (07.3). When it returns, the entry is renamed and synced.

        A file that is damaged is copied aside first and what can be salvaged of it stays; the next `snapshot` of its
        owner does not tell of that copy, `repair` does.

        Raises MailboxFull, or MailboxWriteFailed with the reason: then nothing was written.
        """
        try:
            line = mailfile.encoded(entry)
        except ValueError as error:
            raise MailboxWriteFailed(str(error)) from None
        with _failing():
            self._make()
        self._rewrite(lambda lock: self._added(lock, line))

    def remove(self, keys: Collection[str]) -> int:
        """Takes entries away which the receiver's own store has now (07.5); the others keep their bytes.

        Args:
            keys: of `Item.key`.

        Returns how many were there and are gone. Raises MailboxWriteFailed: then all are still there.
        """
        return self._rewrite(lambda lock: self._dropped(lock, keys)) if keys else 0

    def _added(self, lock: Held, line: bytes) -> None:
        data, mark = self._read_made()
        new = mailfile.splice(data, line)
        if new == "damaged":
            self._copy_aside(data)
            new = mailfile.splice(mailfile.joined(item.raw for item in mailfile.parse(data).items), line)
        if isinstance(new, str):
            raise MailboxFull
        self._write(new, mark, lock)

    def _dropped(self, lock: Held, keys: Collection[str]) -> int:
        data, mark = self._read_made()
        contents = mailfile.parse(data)
        if not contents.whole:
            self._copy_aside(data)
        left, count = mailfile.without(contents, keys)
        if count or not contents.whole:
            self._write(left, mark, lock)
        return count

    def _rewrite(self, work: Callable[[Held], T]) -> T:
        """Does something under the locks, and starts over where they were lost or another wrote in spite of them."""
        until = time.monotonic() + self._seconds
        directory = self.directory_lock if self.shared else None
        with _failing():
            for _ in range(_STARTS):
                seconds = max(0.0, until - time.monotonic())
                try:
                    with locks.held(
                        self.file_lock, directory, seconds=seconds, stale_seconds=self._stale_seconds
                    ) as lock:
                        return work(lock)
                except (LockLost, _Changed):
                    continue
        raise MailboxWriteFailed("other programs change it again and again")

    def _make(self) -> None:
        """Makes the folder and the file where they are missing (07.3)."""
        try:
            self._check_folder()
        except FileNotFoundError:
            files.check_folder(os.path.dirname(self.folder), readable=self.shared)
            try:
                os.mkdir(self.folder, 0o700)
            except FileExistsError:
                pass
            self._check_folder()
        if os.path.lexists(self.path):
            return
        temporary = f"{self.folder}/{files.temporary_name()}"
        files.write_atomic(temporary, b"[]", sync=False)  # an empty mailbox is as good as none
        try:
            os.link(temporary, self.path)  # unlike a rename, it replaces nothing
        except FileExistsError:
            pass
        finally:
            os.unlink(temporary)

    def _write(self, data: bytes, mark: Mark | None, lock: Held) -> None:
        """Puts new bytes in the place of those that were read (07.3)."""

        def last_look() -> None:
            lock.check()
            if self.mark() != mark:
                raise _Changed

        files.write_atomic(self.path, data, before=last_look)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def mark(self) -> Mark | None:
        """What tells the file's state from another; None where there is none. Cheap: for a look every half second."""
        try:
            return _mark(os.lstat(self.path))
        except OSError:
            return None

    def snapshot(self) -> Snapshot:
        """Reads what lies there, and takes nothing away (07.5, 07.6).

        What is damaged is moved aside, under the locks, and told once. A file that is not there holds nothing; one that
        cannot be read is never taken for empty.

        Raises UnfitPath for a file or a folder that must not be trusted.
        """
        try:
            self._check_folder()
            data, mark = self._read()
        except FileNotFoundError:
            return Snapshot()
        contents = mailfile.parse(data)
        if data and contents.whole and not contents.bad:
            return Snapshot(items=contents.items, mark=mark)
        problem = ""
        quarantined: tuple[Item, ...] = contents.bad
        copy = "" if contents.whole else self._copy_name(data)
        try:
            contents, quarantined, copy, mark = self._rewrite(self._mend)
        except MailboxWriteFailed as failed:
            problem = failed.reason
        news = {item.key for item in quarantined}
        if copy:
            news.add(copy)
        told, self._told = self._told, news if problem else set()
        return Snapshot(
            items=contents.good,
            quarantined=tuple(item for item in quarantined if item.key not in told),
            copy="" if copy in told else copy,
            problem=problem,
            mark=mark,
        )

    def _mend(self, lock: Held) -> tuple[Contents, tuple[Item, ...], str, Mark | None]:
        """Moves aside what cannot be delivered: first it is written there, then it is gone from here."""
        data, mark = self._read_made()
        contents = mailfile.parse(data)
        copy = "" if contents.whole else self._copy_aside(data)
        if contents.bad:
            self._quarantine(contents.bad)
        if copy or contents.bad or not data:
            self._write(mailfile.joined(item.raw for item in contents.good), mark, lock)
            mark = self.mark()
        return contents, contents.bad, copy, mark

    def _read(self) -> tuple[bytes, Mark]:
        """The file's bytes, and what they are known by. Raises UnfitPath, FileNotFoundError."""
        fd, found = files.open_private(self.path, readable=self.shared)
        try:
            if found.st_size > MAX_READ:
                raise UnfitPath(self.path, f"larger than {MAX_READ} bytes")
            data = os.read(fd, found.st_size + 1)
            while len(data) < found.st_size and (more := os.read(fd, found.st_size - len(data))):
                data += more
        except OSError as error:
            raise UnfitPath(self.path, error.strerror or "cannot be read") from error
        finally:
            os.close(fd)
        return data, _mark(found)

    def _read_made(self) -> tuple[bytes, Mark | None]:
        """The same under the locks: a file that is just being made is looked at again (07.6); none is empty."""
        try:
            data, mark = self._read()
            if not data:
                time.sleep(EMPTY_SECONDS)
                data, mark = self._read()
        except FileNotFoundError:
            return b"", None
        return data, mark

    def _check_folder(self) -> None:
        """Checks the folder, at first with those above it, which others cannot change once they pass (07.8, 05.6)."""
        if self._checked:
            files.check_own_folder(self.folder, readable=self.shared)
        else:
            try:
                os.lstat(self.folder)
            except NotADirectoryError:
                pass  # the check says which
            files.check_folder(self.folder, readable=self.shared)
            self._checked = True

    # ── what cannot be delivered ─────────────────────────────────────────────────────────────────

    def _quarantine(self, bad: Collection[Item]) -> None:
        """Writes down what was no entry. Raises StoreFailed."""
        path = f"{self.path}.quarantine"
        said = [
            {
                "at": time.time_ns() // 1_000_000,
                "reason": item.reason,
                "bytes": item.raw.decode("utf-8", "replace"),
            }
            for item in bad
        ]
        lines = b"".join(json.dumps(each).encode() + b"\n" for each in said)
        try:
            if os.path.lexists(path) and os.lstat(path).st_size + len(lines) > MAX_QUARANTINE:
                os.rename(path, f"{path}.1")
            fd, _ = files.open_private(path, files.APPEND)
            try:
                while lines:
                    lines = lines[os.write(fd, lines) :]
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise StoreFailed(f"{path} could not be written ({error.strerror}).") from error

    def _copy_name(self, data: bytes) -> str:
        """By its content, so that the same damage is copied once."""
        return f"{self.name}.json.damaged-{sha256(data).hexdigest()[:16]}"

    def _copy_aside(self, data: bytes) -> str:
        """Keeps a file that does not parse; returns the copy's name, empty for one without a byte. Raises StoreFailed."""
        if not data:
            return ""
        name = self._copy_name(data)
        files.write_atomic(f"{self.folder}/{name}", data)
        copies = [
            each for each in self._beside() if each.startswith(f"{self.name}.json.damaged-") and each != name
        ]
        copies.sort(key=lambda each: _time(f"{self.folder}/{each}"))
        for each in copies[: max(0, len(copies) - MAX_COPIES + 1)]:
            try:
                os.unlink(f"{self.folder}/{each}")
            except OSError:
                pass  # it costs room, and nothing else
        return name

    def _beside(self) -> list[str]:
        try:
            return sorted(os.listdir(self.folder))
        except OSError:
            return []

    def repair(self) -> tuple[Leftover, ...]:
        """Lists what lies beside the mailbox, and removes what a killed writer left there.

        Removed are a directory lock that is left over, those that were moved aside, and temporary files whose writer is
        gone. What could not be delivered stays for a person. Never raises.
        """
        found: list[Leftover] = []
        for name in self._beside():
            path = f"{self.folder}/{name}"
            kind = self._kind(name)
            if kind is None:
                continue
            try:
                state = os.lstat(path)
            except OSError:
                continue
            size = 0 if stat.S_ISDIR(state.st_mode) else state.st_size
            removed = False
            if kind == "lock":
                if time.time() - state.st_mtime < self._stale_seconds:
                    continue  # somebody holds it
                removed = self._unlocked()
            elif kind == "aside" or (kind == "temporary" and _is_left(name, state)):
                removed = locks.remove_aside(path)
            elif kind == "temporary":
                continue
            found.append(Leftover(kind=kind, name=name, size=size, removed=removed))
        return tuple(found)

    def _kind(self, name: str) -> Kind | None:
        if files.is_temporary(name):
            return "temporary"  # of any mailbox in this folder
        own = f"{self.name}.json."
        if not name.startswith(own):
            return None
        rest = name.removeprefix(own)
        rungs: tuple[tuple[bool, Kind], ...] = (
            (rest == "lock", "lock"),
            (locks.is_aside(rest), "aside"),
            (rest in ("quarantine", "quarantine.1"), "quarantine"),
            (rest.startswith("damaged-"), "damaged"),
        )
        return next((kind for fits, kind in rungs if fits), None)

    def _unlocked(self) -> bool:
        """Breaks a directory lock that is left over, by taking it once."""
        try:
            with locks.held(
                self.file_lock, self.directory_lock, seconds=self._seconds, stale_seconds=self._stale_seconds
            ):
                return True
        except (NotLocked, UnfitPath):
            return False

    # ── on an event loop ─────────────────────────────────────────────────────────────────────────

    async def post(self, entry: Entry) -> None:
        """`append` in a thread: entries are added in the order of the calls (11.6)."""
        await self._in_thread(lambda: self.append(entry))

    async def look(self) -> Snapshot:
        """`snapshot` in a thread."""
        return await self._in_thread(self.snapshot)

    async def drop(self, keys: Collection[str]) -> int:
        """`remove` in a thread."""
        return await self._in_thread(lambda: self.remove(keys))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="postroom-mailbox")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Lets the thread end when it has done what was asked; a later call makes a new one."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=False)


@contextmanager
def _failing() -> Generator[None]:
    """Turns what stops a writer into the one error that says so, without a path."""
    try:
        yield
    except StoreFailed as error:
        cause = error.__cause__
        raise MailboxWriteFailed(_words(cause.strerror if isinstance(cause, OSError) else "")) from error
    except (UnfitPath, NotLocked) as error:
        raise MailboxWriteFailed(error.reason) from error
    except FileNotFoundError as error:
        raise MailboxWriteFailed("its folder is gone") from error
    except OSError as error:
        raise MailboxWriteFailed(_words(error.strerror)) from error


def _words(reason: str | None) -> str:
    return reason or "it cannot be written"


def _mark(found: os.stat_result) -> Mark:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _time(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def _is_left(name: str, state: os.stat_result) -> bool:
    """Whether nobody is at work on a temporary file any more."""
    pid = name.split("-")[1]
    return time.time() - state.st_mtime > OLD_SECONDS or not (pid.isdigit() and processes.exists(int(pid)))
