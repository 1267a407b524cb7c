"""What is held in sessions of real processes: how they end, on a full disk, and decided twice at once.

alice asks for permission, who gets her messages never does, so they are held (03.19).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.desk import COMMAND, SECONDS, Desk, wait_until
from tests.strangers import needs_root, private_desk
from tests.terminal import person, started_at_terminal

BYPASSING = ("--mode", "bypassPermissions")

HOLDER = str(Path(__file__).parent / "parties/holder.py")
"""A session that lives in a program."""

NUMBERS = itertools.count(1)
"""For names: alice has pinned those that she has written to."""


@pytest.fixture(scope="module")
def common() -> Iterator[Desk]:
    """A desk with alice, and dot who never asks either; each test brings a receiver of its own."""
    with private_desk() as desk:
        desk.open("alice")
        desk.open("dot", *BYPASSING)
        yield desk


def told(desk: Desk, msg_id: str, *states: str) -> list[str]:
    """Waits until alice's side of a message has come to just these states; returns what was said of each."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        steps = desk.ok("trace", msg_id)["steps"]
        found[:] = [step for step in steps if step["where"] == "alice" and step["state"] != "queued"]
        return len(found) >= len(states)

    wait_until(there)
    assert [step["state"] for step in found] == list(states)
    return [step["detail"] for step in found]


def held(desk: Desk, name: str) -> list[str]:
    """The ids of what a session holds."""
    return [hold["msg_id"] for hold in desk.ok("--session", name, "held")["held"]]


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def begun(desk: Desk, name: str, words: tuple[str, ...]) -> Generator[subprocess.Popen[bytes]]:
    """Starts a program in a process group of its own, as a shell does, and waits until its session is there."""
    with subprocess.Popen(
        [name if word == "NAME" else word for word in words],
        env=desk.environ,
        cwd=desk.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    ) as process:
        try:
            wait_until(lambda: desk.run("--session", name, "status").code == 0)
            yield process
        finally:
            process.kill()


FOREGROUND = (COMMAND, "open", "--name", "NAME", *BYPASSING)
AROUND = (*FOREGROUND, "--", "cat")
PROGRAM = (sys.executable, HOLDER, "NAME", "0", "ours")
WITH_HANDLERS = (sys.executable, HOLDER, "NAME", "0", "own")


@pytest.mark.rule("03.46", "03.53", "05.29")
@pytest.mark.parametrize(
    ("words", "how"),
    [
        pytest.param(FOREGROUND, signal.SIGTERM, id="foreground SIGTERM"),
        pytest.param(FOREGROUND, signal.SIGINT, id="foreground SIGINT"),
        pytest.param(FOREGROUND, "close", id="foreground close"),
        pytest.param(AROUND, "end", id="wrapped command's end"),
        pytest.param(AROUND, signal.SIGTERM, id="wrapped SIGTERM"),
        pytest.param(AROUND, signal.SIGINT, id="wrapped SIGINT"),
        pytest.param(PROGRAM, "end", id="program's end"),
        pytest.param(PROGRAM, signal.SIGTERM, id="program SIGTERM"),
        pytest.param(PROGRAM, signal.SIGINT, id="program SIGINT"),
        pytest.param(WITH_HANDLERS, signal.SIGINT, id="program with its own handlers SIGINT"),
    ],
)
def test_an_end_is_told_to_everybody_whose_message_waits(
    common: Desk, words: tuple[str, ...], how: str | signal.Signals
) -> None:
    """A wrapped command gets SIGINT with its session, as from a terminal; other signals its session hands on."""
    name = f"bob-{next(NUMBERS)}"
    with begun(common, name, words) as process:
        msg_id = common.send("alice", name, "hello")["msg_id"]
        told(common, msg_id, "held")
        if how == "close":
            assert common.ok("--session", name, "close")["expired"] == 1
        elif how == "end":
            assert process.stdin is not None
            process.stdin.close()
        elif how is signal.SIGINT:
            os.killpg(process.pid, signal.SIGINT)
        else:
            assert isinstance(how, signal.Signals)
            process.send_signal(how)
        process.wait(timeout=SECONDS)
    _, ended = told(common, msg_id, "held", "expired")
    assert "ended before anybody decided" in ended
    assert common.refused("--session", name, "held")["code"] == "no_session"


@pytest.mark.rule("03.46", "03.53", "05.29")
@pytest.mark.parametrize("how", ["close", signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=str)
def test_the_end_of_a_detached_session_is_told(common: Desk, how: str | signal.Signals) -> None:
    """What was accepted and is unread stays for a resume; of that nobody is told anything."""
    bob = common.open(f"bob-{next(NUMBERS)}", *BYPASSING)
    name = bob["name"]
    common.send("dot", name, "accepted")
    msg_id = common.send("alice", name, "hello")["msg_id"]
    told(common, msg_id, "held")
    if isinstance(how, signal.Signals):
        os.kill(bob["pid"], how)
    else:
        assert common.ok("--session", name, how)["expired"] == 1
    told(common, msg_id, "held", "expired")
    steps = common.ok("trace", msg_id)["steps"]
    assert [step["state"] for step in steps if step["where"] == name] == ["received", "held", "expired"]
    assert common.ok("--session", "dot", "inbox", "--take")["notices"] == []
    again = common.open(None, "--resume", bob["session_id"], *BYPASSING)
    assert [message["text"] for message in common.take(name)] == ["accepted"]
    assert again["held"] == 0
    common.kill(again)


# ── a full disk ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small() -> Iterator[tuple[Desk, Path]]:
    """A desk whose state lies on a disk of 24 MiB, with alice and bob; and that disk."""
    with private_desk() as desk:
        disk = desk.folder / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=0700", "tmpfs", str(disk)]
        subprocess.run(mount, check=True)
        try:
            desk.environ["POSTROOM_HOME"] = str(disk / "state")
            desk.open("alice")
            desk.open("bob", *BYPASSING)
            yield desk, disk
        finally:
            desk.leave()
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


def filled(disk: Path) -> Path:
    """Takes the last byte of a disk; returns the file that has it."""
    stone = disk / "stone"
    with stone.open("ab", buffering=0) as file:
        for size in (65_536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    assert os.statvfs(disk).f_bavail == 0
    return stone


LONG = 200_000
"""Of four characters each: more than fits into what a store keeps in reserve."""


@needs_root
@pytest.mark.rule("03.41", "05.27", "11.28")
def test_on_a_full_disk_an_approval_fails_aloud_and_works_later(small: tuple[Desk, Path]) -> None:
    """It is still held, nobody is told anything, no rule was made; a no works all the same."""
    desk, disk = small
    ids = [
        str(desk.ok("--session", "alice", "send", "bob", "-", stdin=text * LONG)["msg_id"])
        for text in ("one ", "two ")
    ]
    for msg_id in ids:
        told(desk, msg_id, "held")
    stone = filled(disk)
    for more in ((), ("--always",), ("--note", "go on")):
        error = person(desk, "--session", "bob", "approve", ids[0], *more, code=1)["error"]
        assert error["code"] == "store_failed"
        assert "disk is full" in error["message"]
        assert held(desk, "bob") == ids
    assert desk.ok("--session", "bob", "rules") == {"rules": []}
    assert desk.take("bob") == []
    assert person(desk, "--session", "bob", "deny", ids[1])["state"] == "denied"
    stone.unlink()
    assert person(desk, "--session", "bob", "approve", ids[0])["state"] == "accepted"
    assert [message["text"] for message in desk.take("bob")] == ["one " * LONG]
    told(desk, ids[0], "held", "delivered")
    told(desk, ids[1], "held", "denied")


# ── twice at once ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.5", "10.37", "03.41")
def test_of_two_who_decide_at_once_one_decides(common: Desk) -> None:
    """The other hears that it is not held any more; the message is there once, or is denied."""
    bob = common.open(f"bob-{next(NUMBERS)}", *BYPASSING)
    name = bob["name"]
    for verbs in (("approve", "approve"), ("approve", "deny"), ("deny", "deny")):
        msg_id = common.send("alice", name, " and ".join(verbs))["msg_id"]
        told(common, msg_id, "held")
        with contextlib.ExitStack() as stack:
            both = [
                stack.enter_context(
                    started_at_terminal(
                        *(COMMAND, "--session", name, verb, msg_id, "--json"),
                        env=common.environ,
                        cwd=common.folder,
                    )
                )
                for verb in verbs
            ]
            said = [process.communicate(timeout=SECONDS) for process in both]
            codes = [process.returncode for process in both]
        assert sorted(codes) == [0, 3], said
        won = verbs[codes.index(0)]
        assert b"not_held" in said[codes.index(3)][0]
        texts = [message["text"] for message in common.take(name)]
        assert texts == ([" and ".join(verbs)] if won == "approve" else [])
        told(common, msg_id, "held", "delivered" if won == "approve" else "denied")
    common.kill(bob)
