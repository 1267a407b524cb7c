"""Facts about processes: parsed from any bytes, read from real processes, and from a /proc made up for the test."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.state import processes

FakeProc = Callable[..., None]


def stat_line(
    pid: int, *, comm: str = "sleep", state: str = "S", parent: int = 1, start: int = 100, tty: int = 0
) -> str:
    """A line as the kernel writes it, with the fields that count where they belong."""
    fields = [state, str(parent), "7", "8", str(tty), *["0"] * 14, str(start), *["0"] * 30]
    return f"{pid} ({comm}) {' '.join(fields)}\n"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    """A /proc that shows what the test puts there."""
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "self").symlink_to(str(os.getpid()))
    monkeypatch.setattr(processes, "PROC", str(proc))

    def put(pid: int, **fields: object) -> None:
        (proc / str(pid)).mkdir(exist_ok=True)
        (proc / str(pid) / "stat").write_text(stat_line(pid, **fields))  # type: ignore[arg-type]

    return put


@pytest.mark.rule("05.29")
@pytest.mark.parametrize(
    "comm", ["sleep", "a b", "(sd-pam)", "x) S 1 2 3", "))((", "", "tmux: server", "a) Z 9 9 9 9 9"]
)
def test_the_start_is_field_22_whatever_the_command_is_called(comm: str) -> None:
    line = stat_line(42, comm=comm, state="R", parent=7, start=987654321, tty=34816).encode()
    assert processes.parse_stat(line) == processes.Process(parent=7, start="987654321", tty=34816, state="R")


@given(st.binary(max_size=300))
def test_no_bytes_make_the_parser_raise(line: bytes) -> None:
    found = processes.parse_stat(line)
    assert found is None or found.start.isdigit()


@given(
    st.binary(max_size=64).filter(lambda comm: b"\0" not in comm),
    st.integers(0, 2**63),
    st.integers(0, 2**31),
)
def test_what_the_kernel_writes_is_read_back(comm: bytes, start: int, parent: int) -> None:
    line = stat_line(1, comm="@", parent=parent, start=start).encode().replace(b"@", comm)
    found = processes.parse_stat(line)
    assert found is not None
    assert (found.start, found.parent) == (str(start), parent)


@pytest.mark.parametrize("line", [b"", b"1 (x) S", b"1 (x) S 1 2 3 4 5\n", b"not a stat at all"])
def test_a_line_that_is_cut_off_says_nothing(line: bytes) -> None:
    assert processes.parse_stat(line) is None


@pytest.mark.parametrize(
    ("line", "parent", "start"),
    [
        ("  501 Ss   ??       Thu Sep 24 00:30:39 2026\n", 501, "Thu Sep 24 00:30:39 2026"),
        ("1 R+ null Thu Sep  4 00:30:39 2026", 1, "Thu Sep  4 00:30:39 2026"),
    ],
)
def test_ps_of_macos_is_read(line: str, parent: int, start: str) -> None:
    found = processes.parse_ps(line)
    assert found is not None
    assert (found.parent, found.start) == (parent, start)
    assert (found.tty == 0) == ("??" in line)


@given(st.text(max_size=60))
def test_no_text_makes_the_ps_parser_raise(line: str) -> None:
    processes.parse_ps(line)


def test_this_process_and_its_parent_are_found() -> None:
    me = processes.start_of(os.getpid())
    assert me is not None
    assert me.isdigit()
    assert processes.parent_of(os.getpid()) == (os.getppid(), processes.start_of(os.getppid()))
    assert processes.alive(os.getpid(), me) is True


def test_a_start_is_a_time_of_the_clock() -> None:
    before = time.time()
    child = subprocess.Popen(["/bin/sleep", "60"])
    try:
        began = processes.began_at(processes.start_of(child.pid) or "")
        assert began is not None
        assert before - 1 < began < time.time() + 1
        assert child.pid in processes.everybody()
    finally:
        child.kill()
        child.wait()
    assert child.pid not in processes.everybody()
    assert processes.began_at("Mon Nov 30 21:00:00 2026") is None
    assert processes.began_at("") is None


@pytest.mark.rule("05.19")
@pytest.mark.parametrize("pid", [0, -1, -(2**40)])
def test_pid_0_is_nobody(pid: int) -> None:
    assert processes.start_of(pid) is None
    assert processes.ancestry(pid) == ()
    assert processes.alive(pid, "1") is False
    assert not processes.exists(pid)


def test_a_process_that_ended_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-I", "-c", "input()"], stdin=subprocess.PIPE)
    start = processes.start_of(child.pid)
    assert start is not None
    assert processes.alive(child.pid, start) is True
    child.communicate()
    assert processes.start_of(child.pid) is None
    assert processes.alive(child.pid, start) is False
    assert not processes.exists(child.pid)
    assert not processes.exists(2**62)


@pytest.mark.rule("05.11")
def test_a_killed_process_that_nobody_looked_after_is_gone() -> None:
    """Its parent has not waited for it: a zombie has a pid and a start, and holds nothing."""
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    start = processes.start_of(child.pid)
    assert start is not None
    child.kill()
    assert child.stdout is not None
    child.stdout.read()  # its end of the pipe closes when it dies
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.exists(child.pid)
    assert processes.start_of(child.pid) == start
    assert processes.alive(child.pid, start) is False
    child.communicate()


@pytest.mark.rule("05.11")
def test_report_18_a_pid_that_was_used_again_is_another_process(fake: FakeProc) -> None:
    fake(os.getpid(), start=500)
    assert processes.alive(os.getpid(), "500") is True
    assert processes.alive(os.getpid(), "499") is False


def test_without_a_known_start_nothing_is_claimed(fake: FakeProc) -> None:
    fake(os.getpid(), start=500)
    assert processes.alive(os.getpid(), "") is None


@pytest.mark.rule("05.25")
def test_without_proc_only_existence_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PROC", str(tmp_path / "none"))
    assert processes.start_of(os.getpid()) is None
    assert processes.alive(os.getpid(), "1") is None
    assert processes.ancestry(os.getpid()) == ()
    assert not processes.descends_from(os.getpid(), os.getppid(), "1")
    assert processes.controlling_tty(os.getpid()) == 0
    assert processes.boot_id() == ""
    assert processes.pid_domain().endswith(":pid:unknown")


@pytest.mark.rule("05.25")
def test_a_proc_of_another_pid_namespace_is_not_believed(fake: FakeProc, tmp_path: Path) -> None:
    """It may show a process under our number that is somebody else."""
    fake(os.getpid(), start=500)
    (tmp_path / "proc" / "self").unlink()
    (tmp_path / "proc" / "self").symlink_to(str(os.getpid() + 1))
    assert processes.start_of(os.getpid()) is None


@pytest.mark.rule("05.25")
def test_the_ancestry_ends_after_32_steps(fake: FakeProc) -> None:
    for pid in range(100, 160):
        fake(pid, parent=pid - 1, start=pid)
    line = processes.ancestry(150)
    assert line == tuple((pid, str(pid)) for pid in range(150, 117, -1))
    assert processes.descends_from(150, 118, "118")
    assert not processes.descends_from(150, 117, "117")
    assert processes.descends_from(150, 150, "150")
    assert not processes.descends_from(150, 140, "141")


def test_the_ancestry_ends_at_the_first_process(fake: FakeProc) -> None:
    fake(1, parent=0, start=1)
    fake(9, parent=1, start=4)
    assert processes.ancestry(9) == ((9, "4"), (1, "1"))
    assert processes.parent_of(1) is None
    assert processes.parent_of(77) is None


@pytest.mark.rule("05.25")
def test_a_parent_that_is_younger_than_its_child_is_another_process(fake: FakeProc) -> None:
    """The parent ended and its pid was used again between the two reads."""
    fake(9, parent=8, start=400)
    fake(8, parent=1, start=401)
    fake(1, parent=0, start=1)
    assert processes.ancestry(9) == ((9, "400"),)
    fake(8, parent=1, start=400)  # in the same tick: a fork at once
    assert processes.ancestry(9)[1] == (8, "400")


@pytest.mark.rule("05.25")
def test_a_real_grandchild_descends_from_this_process() -> None:
    me = processes.start_of(os.getpid())
    assert me is not None
    code = "import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', 'import os; print(os.getpid(), flush=True); input()'])"
    with subprocess.Popen(
        [sys.executable, "-I", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert processes.descends_from(grandchild, os.getpid(), me)
        assert not processes.descends_from(os.getpid(), grandchild, processes.start_of(grandchild) or "")
        assert [pid for pid, _ in processes.ancestry(grandchild)][:3] == [grandchild, child.pid, os.getpid()]
        child.communicate("\n\n")


@pytest.mark.rule("10.39")
def test_the_controlling_terminal_is_read_of_the_process_itself() -> None:
    pid, master = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-I", "-c", "print('here', flush=True); input()"])
    try:
        assert os.read(master, 100).startswith(b"here")
        assert processes.controlling_tty(pid) != 0
    finally:
        os.close(master)
        os.waitpid(pid, 0)
    with subprocess.Popen(
        [sys.executable, "-I", "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    ) as child:
        assert processes.controlling_tty(child.pid) == 0
        child.communicate(b"\n")


@pytest.mark.rule("05.29")
def test_the_pid_domain_is_written_as_neighbours_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    monkeypatch.setattr(processes, "MACHINE_ID", str(tmp_path / "machine-id"))
    namespace = os.readlink("/proc/self/ns/pid")
    assert processes.pid_domain() == f"linux:0123456789abcdef0123456789abcdef:{namespace}"
    monkeypatch.setattr(processes, "MACHINE_ID", str(tmp_path / "none"))
    boot = processes.boot_id()
    assert len(boot) == 36
    assert processes.pid_domain() == f"linux:{boot.replace('-', '')}:{namespace}"
    assert processes.machine() == os.uname().nodename
