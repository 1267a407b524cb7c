"""Sessions in namespaces: without any network (P12, Show 6), and in pid namespaces that share one state folder.

These tests need root, to make namespaces; CI runs as root.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.desk import COMMAND, SECONDS, Desk, running, wait_until
from tests.strangers import Inside, needs_root, private_desk

TEXT = "the column is tenant_id"

pytestmark = needs_root


# ── no network ───────────────────────────────────────────────────────────────────────────────────

MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""Machine → what the kernel calls it in a filter, and the number of the system call `socket` there."""

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, KILL = 0x7FFF0000, 0x80000000
LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06


def sockets_filter() -> Callable[[], None]:
    """Returns what forbids a process and all its children, for ever, every socket that is not a Unix one.

    The kernel kills who asks for another. What is returned runs between fork and exec, so everything is made before.
    """
    machine, call = MACHINES[platform.machine()]
    steps = [
        (LOAD, 0, 0, 4),  # the machine
        (IF_EQUAL, 0, 5, machine),
        (LOAD, 0, 0, 0),  # the system call
        (IF_EQUAL, 0, 3, call),
        (LOAD, 0, 0, 16),  # its first argument, the family
        (IF_EQUAL, 1, 0, 1),  # AF_UNIX
        (RETURN, 0, 0, KILL),
        (RETURN, 0, 0, ALLOW),
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    wanted = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(program)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def forbid() -> None:
        if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, wanted, 0, 0):
            raise OSError(ctypes.get_errno(), "the filter was not taken")
        assert program  # what `wanted` points to has to live until here

    return forbid


def families(pid: int) -> set[str]:
    """The kinds of sockets that a process has open: `unix`, or `other`."""
    unix = {line.split()[6] for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]}
    found: set[str] = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(link)
            if target.startswith("socket:"):
                found.add("unix" if target[8:-1] in unix else "other")
    return found


@pytest.fixture(scope="module")
def silent() -> Iterator[Inside]:
    """A desk in a network namespace without interfaces, where nobody may even ask for a network socket."""
    with private_desk() as desk:
        inside = Inside(desk.folder, desk.environ, "--net")
        if platform.machine() in MACHINES:
            inside.filter = sockets_filter()
        try:
            yield inside
        finally:
            inside.leave()


@pytest.mark.rule("11.15")
@pytest.mark.skipif(platform.machine() not in MACHINES, reason="the filter is written for x86_64 and aarch64")
@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK"])
def test_the_filter_kills_who_asks_for_a_network_socket(silent: Inside, family: str) -> None:
    """The control: without this, the next test would show nothing."""
    code = "import socket, sys; socket.socket(getattr(socket, sys.argv[1]), socket.SOCK_RAW if 'PACK' in sys.argv[1] else 1)"
    with silent.program(sys.executable, "-S", "-c", code, family) as process:
        process.communicate(timeout=SECONDS)
    assert process.returncode in (-signal.SIGSYS, 128 + signal.SIGSYS)


@pytest.mark.rule("11.15", "10.20")
def test_show_6_two_sessions_talk_without_any_network(silent: Inside) -> None:
    """Every command of the main job, and not one socket that is not a Unix one, in any of their processes."""
    interfaces = silent.shell("cat /proc/net/dev").splitlines()[2:]
    assert [line.split(":")[0].strip() for line in interfaces] in ([], ["lo"])
    assert "UP" not in silent.shell("ip link show up 2>/dev/null || true")
    alice, bob = silent.open("alice"), silent.open("bob")
    sent = silent.ok("--session", "alice", "send", "bob", TEXT)
    assert sent["status"] == "queued"
    [got] = silent.take("bob")
    assert (got["text"], got["from"]["name"], got["from"]["verified"]) == (TEXT, "alice", True)
    silent.send("bob", got["from"]["address"], "yes", "--in-reply-to", sent["msg_id"])
    assert [
        one["text"] for one in silent.ok("--session", "alice", "wait", "--timeout", "30")["messages"]
    ] == ["yes"]
    assert silent.ok("send", "bob", "from outside")["status"] == "queued"
    assert {row["name"] for row in silent.ok("list")["rows"]} == {"alice", "bob"}
    assert {step["where"] for step in silent.ok("trace", sent["msg_id"])["steps"]} == {"alice", "bob"}
    assert silent.ok("--session", "bob", "rename", "robert")["name"] == "robert"
    assert silent.ok("--session", "alice", "log")["rows"]
    assert silent.ok("--session", "alice", "status")["problems"] == []
    assert [families(one["pid"]) for one in (alice, bob)] == [{"unix"}, {"unix"}]
    assert silent.run("demo").code == 0


# ── pid namespaces over one state folder ─────────────────────────────────────────────────────────


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A desk outside, with alice open."""
    with private_desk() as desk:
        desk.open("alice")
        yield desk


@contextlib.contextmanager
def container(desk: Desk) -> Generator[Inside]:
    """A pid namespace that sees the same folders as a desk."""
    inside = Inside(desk.folder, desk.environ, "--pid")
    try:
        yield inside
    finally:
        inside.leave()


def names(desk: Desk) -> set[str]:
    """Who is listed from here."""
    return {row["name"] for row in desk.ok("list")["rows"]}


def records(desk: Desk) -> set[str]:
    """The files of the records."""
    return {path.name for path in (desk.folder / "state/sessions").glob("*.json")}


@pytest.mark.rule("05.10", "05.11", "05.19", "04.15", "02.3")
def test_live_sessions_see_each_other_across_pid_namespaces(desk: Desk) -> None:
    """The kernel's locks say who lives. Whom a pid of 0 connects for is not known, so nobody is verified."""
    with container(desk) as one, container(desk) as other:
        one.open("bob")
        one.open("bert")
        other.open("carol")
        everybody, before = {"alice", "bob", "bert", "carol"}, records(desk)
        assert len(before) == 4
        for place in (desk, one, other, desk, one, other):
            assert names(place) == everybody
        assert records(desk) == before
        for sender, name, receiver, to in (
            (desk, "alice", one, "bob"),
            (one, "bob", desk, "alice"),
            (one, "bob", other, "carol"),
            (other, "carol", one, "bob"),
        ):
            assert sender.ok("--session", name, "send", to, f"{name} to {to}")["status"] == "queued"
            [got] = receiver.take(to)
            assert got["text"] == f"{name} to {to}"
            assert (got["from"]["name"], got["from"]["verified"]) == (name, False)
            assert (got["from"]["address"], got["from"]["ref"]) == (None, None)
        one.send("bob", "bert", "next door")
        [got] = one.take("bert")
        assert (got["from"]["name"], got["from"]["verified"]) == ("bob", True)
        assert (
            one.ok("--session", "alice", "status")["name"] == "alice"
        )  # the token, not the process, admits here
        taken = desk.open("bob")
        assert taken["name"] == "bob-2"
        assert names(other) == {*everybody, "bob-2"}


@pytest.mark.rule("05.11", "02.13")
def test_an_ended_session_is_swept_only_by_who_can_judge_it(desk: Desk) -> None:
    """Killed, it is listed by nobody; its record stays until somebody of its own pid namespace looks."""
    with container(desk) as one, container(desk) as other:
        bob = one.open("bob")
        left = f"{bob['pid']}.json"
        one.shell(
            f"kill -9 {bob['pid']}; while kill -0 {bob['pid']} && ! grep -q 'State:.Z' /proc/{bob['pid']}/status; do :; done 2>/dev/null"
        )
        for place in (desk, other, desk):
            assert names(place) == {"alice"}
            assert left in records(desk)
            assert place.refused("send", "bob", TEXT, code=3)["code"] == "not_found"
        assert names(one) == {"alice"}
        assert left not in records(desk)
        assert not os.path.lexists(bob["socket"])
        carol = desk.open("carol")
        desk.kill(carol)
        for place in (one, other):
            assert names(place) == {"alice"}
            assert f"{carol['pid']}.json" in records(desk)
        assert names(desk) == {"alice"}
        assert f"{carol['pid']}.json" not in records(desk)


@contextlib.contextmanager
def first_process(desk: Desk, name: str) -> Generator[tuple[subprocess.Popen[str], int]]:
    """A session in the foreground as the first process of a pid namespace: what prints what arrives, and its pid here."""
    unshare = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    with subprocess.Popen(
        [*unshare, COMMAND, "open", "--name", name, "--json"],
        env=desk.environ,
        cwd=desk.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("postroom: this session is")
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            yield process, int(children[0])
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """The next messages that a session in the foreground prints."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())["messages"]


def firsts(desk: Desk) -> set[str]:
    """The records of sessions that are process 1 somewhere."""
    return {name for name in records(desk) if re.fullmatch(r"1(-[0-9a-f]{8})?\.json", name)}


@pytest.mark.rule("05.3", "05.10", "05.11", "05.12", "05.19")
def test_two_sessions_of_one_pid_live_side_by_side(desk: Desk) -> None:
    """Each is process 1 of its namespace: the second does not replace the first's record, and each gets its own mail."""
    with first_process(desk, "bob") as (bob, bobs_pid), first_process(desk, "carol") as (carol, _):
        assert len(firsts(desk)) == 2
        assert "1.json" in firsts(desk)
        for _ in range(2):
            assert names(desk) == {"alice", "bob", "carol"}
        for process, name in ((bob, "bob"), (carol, "carol")):
            desk.send("alice", name, f"to {name}")
            [got] = heard(process)
            assert (got["text"], got["from"]["verified"]) == (f"to {name}", False)
        session_id = next(row["session_id"] for row in desk.ok("list")["rows"] if row["name"] == "bob")
        os.kill(bobs_pid, signal.SIGKILL)
        wait_until(lambda: not running(bobs_pid))
        assert names(desk) == {"alice", "carol"}
        assert len(firsts(desk)) == 2, "nobody here can judge that one"
        desk.open(None, "--resume", session_id)
        assert names(desk) == {"alice", "bob", "carol"}
        assert len(firsts(desk)) == 1
        desk.send("alice", "carol", "still there")
        assert [one["text"] for one in heard(carol)] == ["still there"]
