"""Faults that a reading against the specification found on real processes; each stays mended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.desk import COMMAND, SECONDS, Desk, running, wait_until

TERMINATED = """
import asyncio, os, signal, sys
from postroom import Limits, open_session
from postroom.state import schema
from postroom.state.store import SqliteStore

async def main():
    async with open_session(None if len(sys.argv) > 1 else "victim", resume=sys.argv[1] if len(sys.argv) > 1 else None) as session:
        write = session.store._write
        def deadly(sql, *values):
            done = write(sql, *values)
            if sql == schema.ADD_LETTER:
                os.kill(os.getpid(), signal.SIGTERM)
            return done
        session.store._write = deadly
        print(session.id, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def knocking(session: dict[str, Any]) -> bool:
    """Whether somebody has connected to the inbox of a session that is stopped: the kernel lists it beside the listener."""
    return Path("/proc/net/unix").read_text().count(f"{session['socket']}\n") > 1


@pytest.fixture
def desk(home: Path) -> Iterator[Desk]:
    """A private desk."""
    desk = Desk(home, os.environ)
    yield desk
    desk.leave()


@pytest.mark.rule("11.4", "11.5", "05.29")
def test_a_signal_between_two_writes_loses_nothing_and_leaves_no_socket(desk: Desk, home: Path) -> None:
    """SIGTERM in the middle of keeping a message: not acknowledged, not settled; sent again, it arrives."""
    desk.open("alice")
    victim = subprocess.Popen(
        [sys.executable, "-P", "-c", TERMINATED], env=desk.environ, stdout=subprocess.PIPE, text=True
    )
    assert victim.stdout is not None
    session_id = victim.stdout.readline().strip()
    done = desk.run("--session", "alice", "send", "victim", "keep me", "--json")
    assert victim.wait(SECONDS) == -signal.SIGTERM
    victim.stdout.close()
    assert (done.code, done.document["status"]) == (1, "unknown")
    assert done.err.split() == ["unknown"]
    assert not [path for path in (home / "run/postroom").iterdir() if path.name.startswith(str(victim.pid))]
    desk.open(None, "--resume", session_id)
    desk.send("alice", "victim", "keep me", "--msg-id", done.document["msg_id"])
    assert [message["text"] for message in desk.take("victim")] == ["keep me"]


@pytest.mark.rule("10.38")
def test_postroom_session_decides_over_an_inherited_socket(desk: Desk) -> None:
    """Inside alice's command POSTROOM_SESSION=bob means bob, who refuses it; never alice in bob's name."""
    desk.open("bob")
    inside = f"POSTROOM_SESSION=bob {COMMAND} status --json"
    done = desk.run("open", "--name", "alice", "--", "sh", "-c", inside)
    assert json.loads(done.out)["error"]["code"] == "not_your_session"


@pytest.mark.rule("05.26", "11.3")
def test_what_a_session_left_is_kept_from_the_children_of_another(desk: Desk) -> None:
    """Neither its journal, nor its folder, nor its resume; the session that opened it is excepted."""
    bob = desk.open("bob")
    desk.ok("--session", "bob", "close")
    commands = f"""
import json, subprocess
def run(*words):
    return json.loads(subprocess.run([{COMMAND!r}, *words, "--json"], capture_output=True).stdout)
mine = run("open", "--name", "mine", "--detach")["session_id"]
run("--session", "mine", "close")
print(json.dumps([
    run("--session", "bob", "log"),
    run("--session", "bob", "close", "--forget"),
    run("open", "--resume", {bob["session_id"]!r}, "--detach"),
    run("--session", mine, "close", "--forget"),
]))
"""
    done = desk.run("open", "--name", "alice", "--", sys.executable, "-c", commands)
    *others, own = json.loads(done.out)
    assert [answer["error"]["code"] for answer in others] == ["not_your_session"] * 3
    assert "error" not in own
    desk.open(None, "--resume", bob["session_id"])


@pytest.mark.rule("05.23")
def test_a_send_whose_session_died_is_unknown(desk: Desk) -> None:
    """The sender's process is killed while it waits for the acknowledgement: never `no_session`, as if nothing went."""
    alice, bob = desk.open("alice"), desk.open("bob")
    os.kill(bob["pid"], signal.SIGSTOP)
    sending = desk.start("--session", "alice", "send", "bob", "did it leave?", "--json")
    wait_until(lambda: knocking(bob))
    desk.kill(alice)
    out, err = sending.communicate(timeout=SECONDS)
    os.kill(bob["pid"], signal.SIGCONT)
    assert (sending.returncode, err.split()) == (1, [b"unknown"])
    assert json.loads(out)["error"]["code"] == "unknown"


@pytest.mark.rule("11.2")
def test_a_sender_that_was_killed_says_that_it_does_not_know(desk: Desk) -> None:
    """After its return the journal has the message, as unknown."""
    alice, bob = desk.open("alice"), desk.open("bob")
    os.kill(bob["pid"], signal.SIGSTOP)
    msg_id = "11111111-2222-4333-8444-555555555555"
    sending = desk.start("--session", "alice", "send", "bob", "x", "--msg-id", msg_id)
    wait_until(lambda: knocking(bob))
    desk.ok("--session", "alice", "status")  # a step of its loop later what it sends is written down
    desk.kill(alice)
    sending.communicate(timeout=SECONDS)
    os.kill(bob["pid"], signal.SIGCONT)
    desk.open(None, "--resume", alice["session_id"])
    steps = desk.ok("--session", "alice", "trace", msg_id)["steps"]
    assert [step["state"] for step in steps] == ["unknown"]


@pytest.mark.rule("01.19")
def test_a_text_of_controls_that_is_too_large_is_said_to_be_too_large(desk: Desk) -> None:
    """Three million control characters: six times as much on the way, and the same words as for any text."""
    desk.open("alice")
    desk.open("bob")
    for text in ("\x01" * 3_000_000, "é" * 3_000_000):
        done = desk.run("--session", "alice", "send", "bob", "-", "--json", stdin=text)
        assert (done.code, done.error["code"]) == (1, "message_too_large")
        assert "1,000,000" in done.error["message"]
    assert desk.ok("--session", "alice", "status")["counts"] == {}


@pytest.mark.rule("10.22")
def test_a_reply_that_another_reader_takes_still_ends_the_wait(desk: Desk) -> None:
    """`--wait-reply` beside a session in the foreground, which prints and takes whatever comes."""
    desk.open("bob")
    front = desk.start("open", "--name", "alice")
    assert front.stderr is not None
    front.stderr.readline()
    asking = desk.start("--session", "alice", "send", "bob", "ready?", "--wait-reply", "30", "--json")
    [asked] = desk.ok("--session", "bob", "wait")["messages"]
    desk.send("bob", asked["from"]["address"], "yes", "--in-reply-to", asked["msg_id"])
    out, _ = asking.communicate(timeout=SECONDS)
    assert json.loads(out)["reply"]["text"] == "yes"
    front.send_signal(signal.SIGTERM)
    front.communicate(timeout=SECONDS)


@pytest.mark.rule("11.10")
def test_a_refused_open_leaves_nothing(desk: Desk, home: Path) -> None:
    """No folder for a name that is refused, nor for the short-lived session of an outsider's --wait-reply."""
    desk.open("bob")
    before = set((home / "state/sessions").iterdir())
    for name in ("a/b", "main"):
        assert desk.run("open", "--name", name, "--detach").code == 1
    assert desk.run("send", "bob", "hi", "--wait-reply", "0").code == 3
    assert {path for path in (home / "state/sessions").iterdir() if path.is_dir()} <= before


@pytest.mark.rule("05.6", "10.6")
def test_a_session_without_any_socket_folder_is_not_a_dead_end(desk: Desk, home: Path) -> None:
    """Its command still lists, sends one-way, and hears from `status` why it cannot be answered."""
    desk.open("bob")
    inside = f"{COMMAND} status --json; {COMMAND} list --json; {COMMAND} send bob one-way --json"
    program = (
        "import sys; from postroom.state import places; places.TMP = '/proc'; "
        "from postroom.__main__ import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, "open", "--name", "mute", "--", "sh", "-c", inside],
        env={**desk.environ, "XDG_RUNTIME_DIR": "/proc"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    status, listed, sent = (json.loads(line) for line in done.stdout.splitlines())
    assert status["peer_address"] is None
    assert any("no inbox" in problem for problem in status["problems"])
    assert "bob" in [row["name"] for row in listed["rows"]]
    assert sent["status"] == "queued"
    assert [message["text"] for message in desk.take("bob")] == ["one-way"]


@pytest.mark.rule("10.12")
def test_a_trace_names_who_did_not_answer(desk: Desk) -> None:
    """A stopped session's steps are missing, and that is said."""
    desk.open("alice")
    bob = desk.open("bob")
    sent = desk.send("alice", "bob", "hi")
    os.kill(bob["pid"], signal.SIGSTOP)
    done = desk.run("trace", sent["msg_id"], "--json")
    os.kill(bob["pid"], signal.SIGCONT)
    assert [one["place"] for one in done.document["unchecked"]] == ["bob"]
    assert "bob" in done.err
    assert running(bob["pid"])
