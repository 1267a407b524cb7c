"""Two locks around one file: who gets them, what a killed or stopped holder leaves, and what is never taken away."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from postroom.errors import UnfitPath
from postroom.state import files, locks
from postroom.state.locks import LockLost, NotLocked, held
from tests.desk import wait_until

LOCKER = Path(__file__).parent.parent / "parties" / "locker.py"

STALE = 0.4
"""Seconds after which a directory lock is left over in these tests, where a real one has ten."""

SECONDS = 30.0
"""More than anything here takes."""


class Locker:
    """A process that holds the locks; see tests/parties/locker.py."""

    def __init__(self, place: Path, *, shared: bool, stale: float = STALE) -> None:
        directory = str(place / "box.json.lock") if shared else "-"
        words = [str(place / ".box.lock"), directory, str(SECONDS), str(stale)]
        self.process = subprocess.Popen(
            [sys.executable, str(LOCKER), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.hear() == "held"

    def hear(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, word: str) -> str:
        """Has it do something; its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.hear()

    def signal(self, what: signal.Signals) -> None:
        """Stops, continues or kills it, and waits until that is so."""
        self.process.send_signal(what)
        if what == signal.SIGKILL:
            self.process.wait()
        elif what == signal.SIGSTOP:
            os.waitpid(self.process.pid, os.WUNTRACED)

    def end(self) -> None:
        """Ends it, whatever state it is in."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def locker(place: Path, *, shared: bool = False, stale: float = STALE) -> Generator[Locker]:
    """A process that holds the locks while the block runs."""
    one = Locker(place, shared=shared, stale=stale)
    try:
        yield one
    finally:
        one.end()


@pytest.fixture
def place(home: Path) -> Path:
    return home


@pytest.fixture
def file_lock(place: Path) -> str:
    return str(place / ".box.lock")


@pytest.fixture
def directory_lock(place: Path) -> str:
    return str(place / "box.json.lock")


def free(file_lock: str, directory_lock: str | None = None) -> bool:
    """Whether the locks can be had at once."""
    try:
        with held(file_lock, directory_lock, seconds=0):
            return True
    except NotLocked:
        return False


# ── the file lock ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.3")
def test_the_file_lock_is_held_while_the_block_runs_and_stays_as_a_file(place: Path, file_lock: str) -> None:
    with held(file_lock, seconds=0) as lock:
        assert not free(file_lock)
        assert files.probe(file_lock)
        assert (lock.file_lock, lock.directory_lock) == (file_lock, None)
        lock.check()
    assert free(file_lock)
    assert set(os.listdir(place)) == {"run", ".box.lock"}
    assert os.stat(file_lock).st_mode & 0o777 == 0o600


def test_a_block_that_fails_lets_go(file_lock: str, directory_lock: str) -> None:
    with pytest.raises(ZeroDivisionError), held(file_lock, directory_lock, seconds=0):
        raise ZeroDivisionError
    assert free(file_lock, directory_lock)


@pytest.mark.rule("07.3")
def test_another_process_keeps_us_out_until_it_is_killed(place: Path, file_lock: str) -> None:
    with locker(place) as one:
        with (
            pytest.raises(NotLocked, match="another process holds it") as error,
            held(file_lock, seconds=0.05),
        ):
            pass
        assert error.value.path == file_lock
        one.signal(signal.SIGKILL)
        assert free(file_lock)


def test_a_stopped_holder_of_the_file_lock_keeps_it(place: Path, file_lock: str) -> None:
    with locker(place) as one:
        one.signal(signal.SIGSTOP)
        assert not free(file_lock)
        one.signal(signal.SIGCONT)
        assert one.tell("check") == "ours"


def test_a_lock_file_that_was_removed_is_noticed(file_lock: str) -> None:
    with held(file_lock, seconds=0) as lock:
        os.unlink(file_lock)
        with pytest.raises(LockLost) as error:
            lock.check()
        assert error.value.path == file_lock
        with held(file_lock, seconds=0) as other:
            other.check()
            with pytest.raises(LockLost):
                lock.check()


def test_who_waited_for_a_file_that_was_removed_takes_the_new_one(file_lock: str) -> None:
    got: list[bool] = []

    def wait() -> None:
        with held(file_lock, seconds=SECONDS) as lock:
            lock.check()
            got.append(True)

    with held(file_lock, seconds=0):
        waiter = threading.Thread(target=wait)
        waiter.start()
        wait_until(lambda: not _head_is_free(file_lock))
        os.unlink(file_lock)
    waiter.join(SECONDS)
    assert got == [True]


def _head_is_free(path: str) -> bool:
    """Whether nobody stands at the head of the line."""
    fd, _ = files.open_private(path, files.APPEND)
    try:
        return locks._head(fd, fcntl.F_WRLCK)  # pyright: ignore[reportPrivateUsage]
    finally:
        os.close(fd)


@pytest.mark.rule("11.11")
def test_a_lock_file_that_must_not_be_trusted_is_refused(place: Path, file_lock: str) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.write_bytes(b"")
    for make, reason in (
        (lambda: os.symlink(elsewhere, file_lock), "symlink"),
        (lambda: os.mkdir(file_lock), "folder"),
        (lambda: os.mkfifo(file_lock), "not a regular file"),
        (lambda: os.close(os.open(file_lock, os.O_CREAT, 0o600)) or os.chmod(file_lock, 0o622), "others"),
    ):
        make()
        with pytest.raises(UnfitPath, match=reason), held(file_lock, seconds=0):
            pass
        if os.path.isdir(file_lock):
            os.rmdir(file_lock)
        else:
            os.unlink(file_lock)


def test_a_folder_that_is_gone_is_said(place: Path) -> None:
    with pytest.raises(NotLocked, match="its folder is gone"), held(f"{place}/none/.box.lock", seconds=0):
        pass
    with (
        pytest.raises(NotLocked, match="its folder is gone"),
        held(f"{place}/.box.lock", f"{place}/none/box.json.lock", seconds=0),
    ):
        pass


@contextmanager
def somebody_at_the_head(file_lock: str) -> Generator[None]:
    """Somebody stands at the head of the line and does not ask for the lock: a process that was stopped there."""
    fd, _ = files.open_private(file_lock, files.APPEND)
    assert locks._head(fd, fcntl.F_WRLCK)  # pyright: ignore[reportPrivateUsage]
    try:
        yield
    finally:
        os.close(fd)


@pytest.mark.rule("07.7")
def test_whoever_comes_later_stands_behind_the_head_of_the_line(
    file_lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the lock is free at this moment, as it is when a holder lets go and comes back at once."""
    monkeypatch.setattr(locks, "_COURTESY_SECONDS", SECONDS)
    asked = threading.Semaphore(0)
    head, locked = locks._head, locks._locked  # pyright: ignore[reportPrivateUsage]
    tries: list[str] = []

    def counted_head(fd: int, kind: int) -> bool:
        asked.release()
        return head(fd, kind)

    def counted_locked(path: str, fd: int) -> bool:
        tries.append(path)
        return locked(path, fd)

    def come() -> None:
        with held(file_lock, seconds=SECONDS):
            pass

    comer = threading.Thread(target=come)
    with somebody_at_the_head(file_lock):
        monkeypatch.setattr(locks, "_head", counted_head)
        monkeypatch.setattr(locks, "_locked", counted_locked)
        comer.start()
        for _ in range(5):
            assert asked.acquire(timeout=SECONDS)
        assert tries == []
    comer.join(SECONDS)
    assert tries == [file_lock]


def test_a_process_that_was_stopped_at_the_head_of_the_line_keeps_nobody_out(file_lock: str) -> None:
    with somebody_at_the_head(file_lock), held(file_lock, seconds=1e9) as lock:
        lock.check()


def test_a_system_without_such_locks_has_no_line(file_lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with somebody_at_the_head(file_lock):
        monkeypatch.setattr(locks, "_OFD", None)
        assert free(file_lock)


def test_many_that_never_pause_starve_nobody(file_lock: str) -> None:
    """Eight that ask again at once, until each has had twenty turns."""
    turns = [0] * 8

    def work(number: int) -> None:
        while min(turns) < 20:
            with held(file_lock, seconds=SECONDS):
                turns[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(SECONDS)
    assert min(turns) >= 20


# ── the directory lock ───────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.3")
def test_both_locks_are_held_and_the_directory_goes(file_lock: str, directory_lock: str) -> None:
    with held(file_lock, directory_lock, seconds=0) as lock:
        assert os.path.isdir(directory_lock)
        assert lock.directory_lock == directory_lock
        lock.check()
        assert not free(file_lock)
    assert not os.path.lexists(directory_lock)
    assert free(file_lock, directory_lock)


@pytest.mark.rule("07.3")
def test_a_directory_lock_of_another_program_is_waited_for(file_lock: str, directory_lock: str) -> None:
    os.mkdir(directory_lock)
    with (
        pytest.raises(NotLocked, match="another program holds it") as error,
        held(file_lock, directory_lock, seconds=0.02),
    ):
        pass
    assert error.value.path == directory_lock
    assert os.path.isdir(directory_lock)
    assert free(file_lock)
    got: list[bool] = []

    def wait() -> None:
        with held(file_lock, directory_lock, seconds=SECONDS):
            got.append(True)

    waiter = threading.Thread(target=wait)
    waiter.start()
    wait_until(lambda: not free(file_lock))
    assert got == []
    os.rmdir(directory_lock)
    waiter.join(SECONDS)
    assert got == [True]


@pytest.mark.rule("07.3")
def test_the_lock_of_a_killed_holder_is_broken_when_it_is_old(
    place: Path, file_lock: str, directory_lock: str
) -> None:
    with locker(place, shared=True) as one:
        one.signal(signal.SIGKILL)
    assert os.path.isdir(directory_lock)
    with held(file_lock, directory_lock, seconds=SECONDS, stale_seconds=STALE) as lock:
        lock.check()
    assert sorted(os.listdir(place)) == [".box.lock", "run"]


@pytest.mark.rule("07.3")
def test_a_lock_that_was_old_when_we_came_does_not_cost_its_time_again(
    directory_lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at once more, a little later: a machine or a holder that was just woken renews it by then."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    os.mkdir(directory_lock)
    os.utime(directory_lock, (1, 1))
    look = locks._Look(directory_lock, 10.0)  # pyright: ignore[reportPrivateUsage]
    assert not look.is_left_over()
    os.utime(directory_lock)
    now[0] += 0.3
    assert not look.is_left_over()
    os.utime(directory_lock, (1, 1))
    assert not look.is_left_over()
    now[0] += 0.3
    assert look.is_left_over()


@pytest.mark.rule("07.3")
def test_a_lock_from_the_future_is_broken_too(file_lock: str, directory_lock: str) -> None:
    """A clock that was set back: the lock's time never comes, and it is not renewed."""
    os.mkdir(directory_lock)
    later = time.time() + 86_400
    os.utime(directory_lock, (later, later))
    with held(file_lock, directory_lock, seconds=SECONDS, stale_seconds=STALE) as lock:
        lock.check()


@pytest.mark.rule("07.3")
def test_a_lock_that_is_renewed_is_never_broken(place: Path, file_lock: str, directory_lock: str) -> None:
    with locker(place, shared=True) as one:
        was = os.lstat(directory_lock)
        os.rename(file_lock, f"{file_lock}.away")  # as for a program that knows of no file lock of ours
        with (
            pytest.raises(NotLocked),
            held(file_lock, directory_lock, seconds=3 * STALE, stale_seconds=STALE),
        ):
            pass
        found = os.lstat(directory_lock)
        assert found.st_ino == was.st_ino
        assert found.st_mtime_ns > was.st_mtime_ns
        os.rename(f"{file_lock}.away", file_lock)
        assert one.tell("check") == "ours"
        assert one.tell("leave") == "left"
    assert not os.path.lexists(directory_lock)


@pytest.mark.rule("07.3")
def test_a_stopped_holder_learns_that_its_lock_was_broken(
    place: Path, file_lock: str, directory_lock: str
) -> None:
    with locker(place, shared=True) as one:
        one.signal(signal.SIGSTOP)
        os.rename(file_lock, f"{file_lock}.away")
        with held(file_lock, directory_lock, seconds=SECONDS, stale_seconds=STALE) as lock:
            os.rename(f"{file_lock}.away", file_lock)
            one.signal(signal.SIGCONT)
            assert one.tell("check") == "lost"
            assert one.tell("leave") == "left"
            assert os.path.isdir(directory_lock), "it took away another's lock"
            assert lock.directory_lock is not None


@pytest.mark.rule("07.3")
def test_a_holder_that_was_stopped_too_long_has_lost_its_lock_though_nobody_broke_it(
    place: Path, directory_lock: str
) -> None:
    """Another program may have found it old a moment ago and be about to break it."""
    with locker(place, shared=True) as one:
        one.signal(signal.SIGSTOP)
        was = os.lstat(directory_lock).st_mtime
        wait_until(lambda: time.time() > was + 2 * STALE)
        one.signal(signal.SIGCONT)
        assert one.tell("check") == "lost"
        assert one.tell("leave") == "left"


@pytest.mark.rule("07.3")
def test_a_lock_that_another_took_over_is_noticed_though_it_looks_alike(
    file_lock: str, directory_lock: str
) -> None:
    with held(file_lock, directory_lock, seconds=0) as lock:
        os.rmdir(directory_lock)
        with pytest.raises(LockLost):
            lock.check()
        os.mkdir(
            directory_lock
        )  # a file system may give the new one the number of the old one, were that free
        with pytest.raises(LockLost) as error:
            lock.check()
        assert error.value.path == directory_lock
    assert os.path.isdir(directory_lock), "it took away another's lock"


@pytest.mark.rule("07.3")
def test_breaking_puts_back_a_lock_that_was_taken_meanwhile(directory_lock: str) -> None:
    os.mkdir(directory_lock)
    look = locks._Look(directory_lock, 0.0)  # pyright: ignore[reportPrivateUsage]
    assert look.is_left_over()
    os.rename(directory_lock, f"{directory_lock}.old")  # its number stays taken
    os.mkdir(directory_lock)
    theirs = os.lstat(directory_lock)
    assert not look.move_aside()
    found = os.lstat(directory_lock)
    assert (found.st_ino, found.st_mtime_ns) == (theirs.st_ino, theirs.st_mtime_ns)
    os.rmdir(directory_lock)
    assert not look.move_aside()
    assert not look.is_left_over()


@pytest.mark.rule("07.3")
def test_putting_back_takes_no_place_that_was_taken_meanwhile(
    directory_lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkdir(directory_lock)
    look = locks._Look(directory_lock, 0.0)  # pyright: ignore[reportPrivateUsage]
    assert look.is_left_over()
    os.rename(directory_lock, f"{directory_lock}.old")
    os.mkdir(directory_lock)
    real = os.rename
    theirs: list[int] = []

    def rename(old: str, new: str) -> None:
        real(old, new)
        if not theirs:
            os.mkdir(directory_lock)
            theirs.append(os.lstat(directory_lock).st_ino)

    monkeypatch.setattr(os, "rename", rename)
    assert not look.move_aside()
    assert os.lstat(directory_lock).st_ino == theirs[0]


@pytest.mark.rule("07.3")
def test_a_lock_is_not_renewed_when_it_is_too_late(file_lock: str, directory_lock: str) -> None:
    """Or a holder that was stopped would find it in order when it comes back."""
    with held(file_lock, directory_lock, seconds=0, stale_seconds=1000.0) as lock:
        directory = lock._directory  # pyright: ignore[reportPrivateUsage]
        assert directory is not None
        directory.renew()
        lock.check()
        directory._renewed -= 1001.0  # pyright: ignore[reportPrivateUsage]
        directory.renew()
        with pytest.raises(LockLost):
            lock.check()


@pytest.mark.rule("07.3")
def test_the_child_of_a_killed_holder_holds_nothing(place: Path, file_lock: str) -> None:
    with locker(place) as one:
        child = int(one.tell("fork"))
        try:
            one.signal(signal.SIGKILL)
            wait_until(lambda: free(file_lock))
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["file", "symlink", "full"])
def test_what_lies_in_the_place_of_the_lock_wedges_nothing(
    place: Path, file_lock: str, directory_lock: str, kind: str
) -> None:
    precious = place / "precious"
    precious.write_text("kept")
    if kind == "file":
        Path(directory_lock).write_text("")
    elif kind == "symlink":
        os.symlink(precious, directory_lock)
    else:
        os.mkdir(directory_lock)
        Path(directory_lock, "owner").write_text("")
    with held(file_lock, directory_lock, seconds=SECONDS, stale_seconds=STALE):
        assert os.path.isdir(directory_lock)
    assert precious.read_text() == "kept"
    left = [name for name in os.listdir(place) if locks.is_aside(name)]
    assert len(left) == (kind == "full")
    for name in left:
        assert not locks.remove_aside(f"{place}/{name}")
        os.unlink(f"{place}/{name}/owner")
        assert locks.remove_aside(f"{place}/{name}")


def test_a_lock_that_cannot_be_broken_is_waited_for_until_the_deadline(
    file_lock: str, directory_lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkdir(directory_lock)

    def fails(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(NotLocked), held(file_lock, directory_lock, seconds=0.1, stale_seconds=0.01):
        pass
    assert os.path.isdir(directory_lock)


def test_a_directory_that_cannot_be_made_is_said(
    file_lock: str, directory_lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "mkdir", fails)
    with pytest.raises(NotLocked, match="No space left"), held(file_lock, directory_lock, seconds=SECONDS):
        pass
    assert free(file_lock)


def test_who_was_stopped_between_making_it_and_opening_it_has_not_got_it(
    file_lock: str, directory_lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then it may be another's. The clock goes on as it does for a stopped process."""
    real = os.mkdir
    late = [0.0]

    def made(path: str, mode: int = 0o777) -> None:
        real(path, mode)
        late[0] += 8.0

    monotonic = time.monotonic
    monkeypatch.setattr(os, "mkdir", made)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + late[0])
    with pytest.raises(NotLocked), held(file_lock, directory_lock, seconds=1.0, stale_seconds=10.0):
        pass


def test_a_forked_child_keeps_nothing(file_lock: str, directory_lock: str) -> None:
    read, write = os.pipe()
    with held(file_lock, directory_lock, seconds=0):
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        os.close(read)
    assert free(file_lock, directory_lock)
    os.close(write)
    os.waitpid(child, 0)


def test_a_child_that_forked_behind_our_back_keeps_nothing_either(file_lock: str) -> None:
    with held(file_lock, seconds=0):
        child = ctypes.CDLL(None).fork()
        if child == 0:
            signal.pause()
    assert free(file_lock)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_locks_of_short_life_are_renewed_in_their_own_time(place: Path, file_lock: str) -> None:
    """Beside one of ten seconds, which is renewed by the same thread."""
    other = f"{place}/.other.lock"
    slow, quick = f"{place}/slow.lock", f"{place}/quick.lock"
    with (
        held(file_lock, slow, seconds=0, stale_seconds=1000.0),
        held(other, quick, seconds=0, stale_seconds=STALE) as lock,
    ):
        was = os.lstat(quick).st_mtime
        wait_until(lambda: time.time() > was + 2 * STALE)
        lock.check()
        assert os.lstat(quick).st_mtime > was
