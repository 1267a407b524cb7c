"""Folders, files and locks: real ones, hostile ones, and processes that die. As root also other users' ones."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import StoreFailed, UnfitPath
from postroom.state import files

OTHER = 54321
"""A uid that is nobody's here."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@pytest.fixture
def box(home: Path) -> Path:
    """A private folder of ours with nothing in it."""
    folder = home / "box"
    folder.mkdir(mode=0o700)
    return folder


def reason_of(check: Callable[[str], object], path: Path | str) -> str:
    """Why a path is not trusted."""
    with pytest.raises(UnfitPath) as caught:
        check(str(path))
    return caught.value.reason


# ── folders ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.6")
def test_a_private_folder_of_ours_passes(box: Path) -> None:
    files.check_folder(str(box))
    files.check_folder(f"{box}/./")


@pytest.mark.rule("05.6", "11.11")
@pytest.mark.parametrize("mode", [0o701, 0o710, 0o702, 0o720, 0o740, 0o755, 0o777, 0o1777])
def test_a_folder_that_others_may_enter_fails(box: Path, mode: int) -> None:
    box.chmod(mode)
    assert "others have access" in reason_of(files.check_folder, box)


@pytest.mark.rule("05.6", "11.11")
def test_a_symlink_in_the_folders_place_fails(box: Path, home: Path) -> None:
    (home / "link").symlink_to(box)
    assert "symlink" in reason_of(files.check_folder, home / "link")
    assert "symlink" in reason_of(files.private_folder, home / "link")


@pytest.mark.rule("05.6", "11.11")
@pytest.mark.parametrize(("mode", "passes"), [(0o755, True), (0o775, False), (0o757, False), (0o1777, True)])
def test_a_folder_above_that_others_may_write_fails_unless_it_is_sticky(
    box: Path, mode: int, passes: bool
) -> None:
    inner = box / "inner"
    inner.mkdir(mode=0o700)
    box.chmod(mode)
    if passes:
        files.check_folder(str(inner))
    else:
        with pytest.raises(UnfitPath) as caught:
            files.check_folder(str(inner))
        assert caught.value.path == str(box)
        assert "others may write" in caught.value.reason
        assert "chmod" in caught.value.hint


@as_root
@pytest.mark.rule("05.6", "11.11")
def test_another_users_folder_fails(box: Path) -> None:
    """Needs root."""
    inner = box / "inner"
    inner.mkdir(mode=0o700)
    os.chown(inner, OTHER, -1)
    assert f"uid {OTHER}" in reason_of(files.check_folder, inner)
    below = inner / "below"
    below.mkdir(mode=0o700)
    assert f"uid {OTHER}" in reason_of(files.check_folder, below)


@as_root
@pytest.mark.rule("05.6")
def test_a_folder_below_ones_of_root_passes_for_a_user(box: Path) -> None:
    """Needs root, to become the user: /tmp and / are root's."""
    folder = Path(f"/tmp/pr-user-{os.getpid()}")
    folder.mkdir(mode=0o700)
    try:
        os.chown(folder, OTHER, -1)
        code = (
            f"import os; from postroom.state import files; os.setuid({OTHER}); files.check_folder('{folder}')"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
    finally:
        folder.rmdir()


@as_root
@pytest.mark.rule("05.6")
def test_report_21_a_folder_of_an_unmapped_user_is_named_as_such(box: Path) -> None:
    """Needs root. In a user namespace everybody who is not mapped is uid 65534."""
    inner = box / "inner"
    inner.mkdir(mode=0o700)
    os.chown(box, 65534, -1)
    assert "65534, whom this user namespace does not map" in reason_of(files.check_folder, inner)


@as_root
@pytest.mark.rule("05.6")
def test_a_user_namespace_that_does_not_map_us_is_no_place_for_private_files(box: Path) -> None:
    """Needs root, to become a user who may make such a namespace. There every stranger would look like us."""
    code = (
        "import ctypes, os, sys; from postroom.errors import UnfitPath; from postroom.state import files\n"
        f"os.setuid({OTHER})\n"
        "if ctypes.CDLL(None).unshare(0x10000000): sys.exit('refused')  # CLONE_NEWUSER\n"
        "try: files.check_folder('/tmp')\n"
        "except UnfitPath as error: print(os.geteuid(), error.reason)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    if done.stderr == "refused\n":
        pytest.skip("this machine lets no user make a user namespace")
    assert done.stdout.startswith("65534 this user namespace maps no uid for us")


@pytest.mark.rule("05.6")
def test_a_symlink_of_ours_further_up_is_passed_and_what_it_points_to_is_judged(
    box: Path, home: Path
) -> None:
    (box / "real" / "inner").mkdir(parents=True, mode=0o700)
    (box / "real").chmod(0o700)
    for target in (str(box / "real"), "../box/./real", "real"):
        link = (home if "/" in target else box) / "up"
        link.unlink(missing_ok=True)
        link.symlink_to(
            target if target.startswith("/") or link.parent == box else target.removeprefix("../")
        )
        files.check_folder(f"{link}/inner")
    (box / "deep").mkdir(mode=0o700)
    (box / "deep" / "over").symlink_to("../real")
    files.check_folder(f"{box}/deep/over/inner")
    (box / "real").chmod(0o777)
    assert "others may write" in reason_of(files.check_folder, f"{box}/deep/over/inner")


@pytest.mark.rule("05.6")
def test_symlinks_in_a_circle_end(box: Path) -> None:
    (box / "a").symlink_to("b")
    (box / "b").symlink_to("a")
    assert "too many symlinks" in reason_of(files.check_folder, box / "a" / "inner")


@as_root
@pytest.mark.rule("05.6", "11.11")
def test_a_symlink_of_another_user_further_up_fails(box: Path, home: Path) -> None:
    """Needs root."""
    (box / "inner").mkdir(mode=0o700)
    link = home / "theirs"
    link.symlink_to(box)
    os.chown(link, OTHER, -1, follow_symlinks=False)
    assert f"a symlink that belongs to uid {OTHER}" in reason_of(files.check_folder, link / "inner")


@pytest.mark.rule("05.6")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("relative/path", "not an absolute path"),
        ("", "not an absolute path"),
        ("/tmp/../etc", "'..'"),
        ("/tmp/a\0b", "NUL"),
        ("/tmp/\ud800", "not a path"),
        ("/tmp/" + "x" * 300, "too long"),
        ("/", "others have access"),
        ("/dev/null", "not a folder"),
        ("/dev/null/x", "not a folder"),
    ],
)
def test_what_can_be_no_private_folder(path: str, reason: str) -> None:
    assert reason in reason_of(files.check_folder, path)


@given(st.text(max_size=40))
def test_no_path_makes_the_check_raise_anything_else(path: str) -> None:
    with pytest.raises(UnfitPath):
        files.check_folder("/dev/null/" + path)
    with pytest.raises(UnfitPath):
        files.check_folder("\0" + path)


@pytest.mark.rule("05.6", "11.11")
def test_a_folder_is_checked_by_itself_where_those_above_it_were(box: Path) -> None:
    inner = box / "inner"
    inner.mkdir(mode=0o700)
    box.chmod(0o777)
    files.check_own_folder(str(inner))
    inner.chmod(0o750)
    assert "others have access" in reason_of(files.check_own_folder, inner)
    (box / "link").symlink_to("inner")
    assert "symlink" in reason_of(files.check_own_folder, box / "link")
    (box / "file").write_text("")
    assert reason_of(files.check_own_folder, box / "file") == "not a folder"
    with pytest.raises(FileNotFoundError):
        files.check_own_folder(str(box / "none"))


@pytest.mark.rule("05.2")
def test_a_missing_folder_is_made_private_with_those_above_it(box: Path) -> None:
    with pytest.raises(UnfitPath, match="does not exist"):
        files.check_folder(str(box / "a" / "b"))
    files.private_folder(str(box / "a" / "b"))
    for folder in (box / "a", box / "a" / "b"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files.private_folder(str(box / "a" / "b"))


def test_without_parents_only_the_last_folder_is_made(box: Path) -> None:
    with pytest.raises(UnfitPath, match="does not exist"):
        files.private_folder(str(box / "a" / "b"), parents=False)
    assert not (box / "a").exists()
    files.private_folder(str(box / "a"), parents=False)


@pytest.mark.rule("05.6")
def test_nothing_is_made_below_a_folder_that_fails(box: Path) -> None:
    box.chmod(0o777)
    with pytest.raises(UnfitPath):
        files.private_folder(str(box / "a"))
    assert not (box / "a").exists()


def test_a_folder_that_cannot_be_made_is_unfit(box: Path) -> None:
    (box / "file").write_text("")
    assert reason_of(files.private_folder, box / "file") == "not a folder"
    assert "cannot be made" in reason_of(files.private_folder, "/proc/self/postroom")


def test_the_check_leaves_no_descriptor_open(box: Path) -> None:
    before = os.listdir("/proc/self/fd")
    files.check_folder(str(box))
    for bad in (box / "none", box / "none" / "below"):
        reason_of(files.check_folder, bad)
    assert len(os.listdir("/proc/self/fd")) == len(before)


# ── files ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.29")
def test_a_file_is_written_whole_private_and_synced(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("fsync", "rename"):
        real = getattr(os, name)

        def noted(
            *args: object, name: str = name, real: Callable[..., object] = real, **kw: object
        ) -> object:
            calls.append(name)
            return real(*args, **kw)

        monkeypatch.setattr(files.os, name, noted)
    files.write_atomic(str(box / "a"), b"one")
    assert calls == ["fsync", "rename", "fsync"]
    assert (box / "a").read_bytes() == b"one"
    assert stat.S_IMODE((box / "a").stat().st_mode) == 0o600
    files.write_atomic(str(box / "a"), b"two", sync=False)
    assert calls == ["fsync", "rename", "fsync", "rename"]
    assert os.listdir(box) == ["a"]


@pytest.mark.rule("05.29")
def test_writing_goes_on_where_the_system_took_a_part(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def three_bytes(fd: int, data: bytes) -> int:
        return real(fd, data[:3])

    monkeypatch.setattr(files.os, "write", three_bytes)
    files.write_atomic(str(box / "a"), b"0123456789")
    assert (box / "a").read_bytes() == b"0123456789"


@pytest.mark.rule("05.29", "11.11")
def test_a_symlink_in_a_files_place_is_replaced_and_not_followed(box: Path) -> None:
    (box / "target").write_text("precious")
    (box / "a").symlink_to("target")
    files.write_atomic(str(box / "a"), b"new")
    assert (box / "target").read_text() == "precious"
    assert (box / "a").read_bytes() == b"new"
    assert not (box / "a").is_symlink()


@pytest.mark.rule("05.29")
@pytest.mark.parametrize("step", ["write", "fsync", "rename"])
def test_a_failure_leaves_the_old_file_and_nothing_beside_it(
    box: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    (box / "a").write_bytes(b"old")

    def full(*_args: object, **_kw: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, step, full)
    with pytest.raises(StoreFailed, match="No space left"):
        files.write_atomic(str(box / "a"), b"new")
    assert (box / "a").read_bytes() == b"old"
    assert os.listdir(box) == ["a"]


def test_a_file_in_no_folder_cannot_be_written(box: Path) -> None:
    (box / "link").symlink_to(box)
    for folder in ("none", "link"):
        with pytest.raises(StoreFailed):
            files.write_atomic(str(box / folder / "a"), b"x")


@pytest.mark.rule("05.29")
def test_a_reader_never_sees_half_a_file_while_a_writer_is_killed(box: Path) -> None:
    path = str(box / "a")
    files.write_atomic(path, b"0" * 5000)
    code = (
        "from postroom.state import files\nprint(flush=True)\n"
        f"while True:\n for c in b'ab': files.write_atomic({path!r}, bytes([c]) * 5000, sync=False)\n"
    )
    seen: set[bytes] = set()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        while not {b"a", b"b"} <= seen:
            data = files.read_private(path, 5000)
            assert data == data[:1] * 5000
            seen.add(data[:1])
        writer.kill()
    assert files.read_private(path, 5000)[:1] in {b"a", b"b"}
    assert all(files.is_temporary(name) for name in os.listdir(box) if name != "a")


@pytest.mark.rule("05.6", "11.11")
def test_only_a_private_regular_file_is_read(box: Path) -> None:
    (box / "ours").write_bytes(b"secret")
    (box / "ours").chmod(0o600)
    assert files.read_private(str(box / "ours"), 6) == b"secret"
    (box / "link").symlink_to("ours")
    os.mkfifo(box / "fifo", 0o600)
    (box / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(box / "sock"))
    (box / "loose").write_bytes(b"x")
    (box / "loose").chmod(0o640)

    def read(path: str) -> bytes:
        return files.read_private(path, 100)

    assert "symlink" in reason_of(read, box / "link")
    assert "not a regular file" in reason_of(read, box / "fifo")
    assert "not a regular file" in reason_of(read, box / "folder")
    assert "not a regular file" in reason_of(read, box / "sock")
    assert "not a regular file" in reason_of(read, "/dev/zero")
    assert "others have access" in reason_of(read, box / "loose")
    assert "not a folder" in reason_of(read, box / "ours" / "x")
    with pytest.raises(FileNotFoundError):
        read(str(box / "none"))


@pytest.mark.rule("05.6")
def test_a_file_that_is_too_large_is_not_read(box: Path) -> None:
    (box / "big").write_bytes(b"x" * 101)
    (box / "big").chmod(0o600)
    assert reason_of(lambda path: files.read_private(path, 100), box / "big") == "larger than 100 bytes"
    assert len(files.read_private(str(box / "big"), 101)) == 101


def test_anothers_readable_record_is_read_only_where_that_is_asked_for(box: Path) -> None:
    (box / "theirs").write_bytes(b"x")
    (box / "theirs").chmod(0o644)
    assert files.read_private(str(box / "theirs"), 10, readable=True) == b"x"
    (box / "theirs").chmod(0o666)
    assert "others have access" in reason_of(
        lambda path: files.read_private(path, 10, readable=True), box / "theirs"
    )


@as_root
@pytest.mark.rule("05.6", "11.11")
def test_another_users_file_is_not_read(box: Path) -> None:
    """Needs root."""
    (box / "theirs").write_bytes(b"x")
    (box / "theirs").chmod(0o600)
    os.chown(box / "theirs", OTHER, -1)
    assert f"uid {OTHER}" in reason_of(lambda path: files.read_private(path, 10), box / "theirs")


@pytest.mark.rule("05.6", "05.24")
def test_a_socket_is_checked_with_its_folder(box: Path) -> None:
    path = str(box / "1.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
    os.chmod(path, 0o600)

    def check(path: str) -> None:
        files.check_file(path, socket=True)

    check(path)
    assert reason_of(files.check_file, path) == "not a regular file"
    os.chmod(path, 0o666)
    assert "others have access" in reason_of(check, path)
    (box / "link").symlink_to("1.sock")
    assert "symlink" in reason_of(check, box / "link")
    (box / "file").write_bytes(b"")
    assert reason_of(check, box / "file") == "not a socket"
    with pytest.raises(FileNotFoundError):
        check(str(box / "none"))
    os.chmod(path, 0o600)
    box.chmod(0o755)
    assert "others have access" in reason_of(check, path)
    files.check_file(path, socket=True, folder=False)


# ── locks ────────────────────────────────────────────────────────────────────────────────────────

HOLDER = """
import sys
from postroom.state import files
lock = files.Lock(sys.argv[1])
assert lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def free_lock(path: str) -> None:
    """Makes a lock file that nobody holds."""
    lock = files.Lock(path)
    assert lock.acquire()
    lock.release()


def hold(path: Path) -> subprocess.Popen[str]:
    """A process that holds a lock until its stdin is closed or it is killed."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


@pytest.mark.rule("05.11")
def test_a_lock_is_seen_while_its_holder_lives_and_free_once_it_is_killed(box: Path) -> None:
    with hold(box / "lock") as holder:
        assert files.probe(str(box / "lock")) is True
        assert not files.Lock(str(box / "lock")).acquire(0)
        holder.kill()
        holder.wait()
    assert files.probe(str(box / "lock")) is False
    lock = files.Lock(str(box / "lock"))
    assert lock.acquire(0)
    assert lock.held
    assert files.probe(str(box / "lock")) is True
    lock.release()
    lock.release()
    assert not lock.held
    assert files.probe(str(box / "lock")) is False


@pytest.mark.rule("05.11")
def test_an_opener_waits_out_a_listers_instant(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lister's shared lock goes away while the opener tries."""
    import fcntl

    path = str(box / "lock")
    free_lock(path)
    lister = os.open(path, os.O_RDONLY)
    fcntl.flock(lister, fcntl.LOCK_SH)
    waits: list[float] = []

    def waited(seconds: float) -> None:
        waits.append(seconds)
        fcntl.flock(lister, fcntl.LOCK_UN)

    monkeypatch.setattr(files.time, "sleep", waited)
    opener = files.Lock(path)
    assert not opener.acquire(0)
    assert opener.acquire()
    assert len(waits) == 1
    os.close(lister)
    opener.release()


@pytest.mark.rule("05.11")
def test_a_look_does_not_disturb_another_look(box: Path) -> None:
    import fcntl

    path = str(box / "lock")
    free_lock(path)
    lister = os.open(path, os.O_RDONLY)
    fcntl.flock(lister, fcntl.LOCK_SH)
    assert files.probe(path) is False
    os.close(lister)


@pytest.mark.rule("05.6", "11.11")
def test_a_lock_is_a_private_regular_file(box: Path) -> None:
    (box / "real").write_bytes(b"")
    (box / "link").symlink_to("real")
    os.mkfifo(box / "fifo", 0o600)
    (box / "loose").write_bytes(b"")
    (box / "loose").chmod(0o666)

    def acquire(path: str) -> None:
        files.Lock(path).acquire(0)

    assert "symlink" in reason_of(acquire, box / "link")
    assert "symlink" in reason_of(files.probe, box / "link")
    assert "not a regular file" in reason_of(acquire, box / "fifo")
    assert "others have access" in reason_of(acquire, box / "loose")
    with pytest.raises(FileNotFoundError):
        files.probe(str(box / "none"))
    with pytest.raises(FileNotFoundError):
        acquire(str(box / "none" / "lock"))
    assert stat.S_IMODE((box / "real").stat().st_mode) != 0o600
    acquire(str(box / "new"))
    assert stat.S_IMODE((box / "new").stat().st_mode) == 0o600


@pytest.mark.rule("05.11")
def test_a_lock_file_that_was_replaced_meanwhile_is_opened_anew(
    box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking another process puts a new file there, or takes the file away."""
    import fcntl

    path = str(box / "lock")
    real = fcntl.flock
    for disturb in ("replace", "remove"):
        done: list[str] = []

        def flock(fd: int, what: int, disturb: str = disturb, done: list[str] = done) -> None:
            if not done:
                done.append(disturb)
                (box / "lock").unlink()
                if disturb == "replace":
                    files.write_atomic(path, b"")
            real(fd, what)

        monkeypatch.setattr(files.fcntl, "flock", flock)
        lock = files.Lock(path)
        assert lock.acquire(0)
        assert files.probe(path) is True
        lock.release()


def test_what_a_lock_says_is_replaced_whole(box: Path) -> None:
    lock = files.Lock(str(box / "lock"))
    assert lock.acquire()
    lock.write(b"a longer text")
    lock.write(b"short")
    assert (box / "lock").read_bytes() == b"short"
    lock.release()
    with pytest.raises(StoreFailed):
        lock.write(b"x")


@pytest.mark.rule("05.11")
def test_a_lock_that_is_replaced_is_held_and_the_old_holder_has_nothing(box: Path) -> None:
    with hold(box / "lock") as holder:
        lock = files.Lock(str(box / "lock"))
        assert not lock.acquire(0)
        lock.replace(b"mine")
        assert lock.held
        assert (box / "lock").read_bytes() == b"mine"
        assert os.listdir(box) == ["lock"]
        lock.release()
        assert files.probe(str(box / "lock")) is False
        assert holder.poll() is None
        assert holder.stdin is not None
        holder.stdin.close()


def test_a_lock_that_cannot_be_replaced_leaves_nothing(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_kw: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "rename", full)
    lock = files.Lock(str(box / "lock"))
    with pytest.raises(StoreFailed, match="No space left"):
        lock.replace()
    assert not lock.held
    assert os.listdir(box) == []


# ── forked children ──────────────────────────────────────────────────────────────────────────────

FORKER = """
import os, sys
from postroom.state import files
folder, kept = sys.argv[1], sys.argv[2] == "kept"
lock = files.Lock(folder + "/lock")
assert lock.acquire()
store = open(folder + "/store", "w+")
below = lambda: files.descriptors_below(folder)
files.close_in_children(below)
if kept:
    files.keep_in_children(lock._fd)
    files.keep_in_children(below)
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.close(reading)
    links = [os.readlink("/proc/self/fd/%d" % fd) for fd in (store.fileno(), lock._fd)]
    held = lock.held
    if not kept:
        lock.release()
        store.close()
    os.write(writing, repr((links, held)).encode())
    os.close(writing)
    sys.stdin.read()
    os._exit(0)
os.close(writing)
print(os.read(reading, 1000).decode(), flush=True)
sys.stdin.read()
"""


@pytest.mark.rule("05.11")
@pytest.mark.parametrize("how", ["closed", "kept"])
def test_a_forked_child_holds_neither_lock_nor_store(box: Path, how: str) -> None:
    """The parent is killed while its child lives on; what was taken back before the fork goes on in it."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKER, str(box), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        said = parent.stdout.readline()
        assert files.probe(str(box / "lock")) is True
        parent.kill()
        parent.wait()
        expected = (["/dev/null"] * 2, False) if how == "closed" else ([f"{box}/store", f"{box}/lock"], False)
        assert said == f"{expected!r}\n"
        assert files.probe(str(box / "lock")) is (how == "kept")
        assert parent.stdin is not None
        parent.stdin.close()  # the child ends


@pytest.mark.rule("05.11")
def test_descriptors_below_a_folder_are_found_deleted_ones_too(box: Path) -> None:
    (box / "deep").mkdir()
    assert files.descriptors_below(str(box)) == []
    with open(box / "a", "w") as one, open(box / "deep" / "b", "w") as two:
        (box / "a").unlink()
        assert sorted(files.descriptors_below(str(box))) == sorted([one.fileno(), two.fileno()])
        assert files.descriptors_below(str(box / "deep")) == [two.fileno()]
        assert files.descriptors_below(f"{box}/dee") == []
    assert files.descriptors_below(str(box)) == []


def test_many_processes_take_turns_at_one_lock(box: Path) -> None:
    """Each adds one to a number that it reads and writes in two steps: one that did not wait would lose."""
    code = (
        "import sys\nfrom postroom.state import files\n"
        f"lock = files.Lock('{box}/lock')\nsys.stdin.readline()\n"
        "for _ in range(50):\n"
        " assert lock.acquire(30)\n"
        f" n = int(open('{box}/n').read()); open('{box}/n', 'w').write(str(n + 1))\n"
        " lock.release()\n"
    )
    (box / "n").write_text("0")
    adders = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) for _ in range(6)]
    for adder in adders:
        assert adder.stdin is not None
        adder.stdin.close()
    assert [adder.wait(60) for adder in adders] == [0] * 6
    assert (box / "n").read_text() == "300"
