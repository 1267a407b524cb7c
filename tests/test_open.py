"""`postroom open` in its three forms: around a command, in the foreground, detached (10.8)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import COMMAND, Desk, running, wait_until

INSIDE = f"""
import json, os, subprocess, sys
run = lambda *words: subprocess.run([{COMMAND!r}, *words], capture_output=True, text=True)
kept = {{key: os.environ.get(key) for key in {["POSTROOM_SESSION", "POSTROOM_SOCKET", "POSTROOM_TOKEN", "POSTROOM_NAME", "CLAUDE_CODE_MESSAGING_TOKEN"]!r}}}
status = run("status", "--json")
bare = {{key: value for key, value in os.environ.items() if not key.startswith("POSTROOM_") or key == "POSTROOM_HOME"}}
by_ancestor = subprocess.run([{COMMAND!r}, "status", "--json"], env=bare, capture_output=True, text=True)
sent = run("send", "bob", "from inside", "--json")
print(json.dumps([kept, status.stdout, by_ancestor.stdout, sent.stdout, sent.stderr]))
sys.exit(7)
"""


@pytest.fixture
def desk(home: Path) -> Iterator[Desk]:
    """A private desk."""
    desk = Desk(home, os.environ)
    yield desk
    desk.leave()


@pytest.mark.rule("10.8", "10.38", "10.21", "05.26")
def test_around_a_command(desk: Desk, home: Path) -> None:
    """The command gets this session's identity and nobody else's; the exit code is its own; nothing is left."""
    desk.open("bob")
    done = desk.run(
        *("open", "--name", "alice", "--", sys.executable, "-c", INSIDE),
        environ={
            "POSTROOM_SESSION": "another",
            "POSTROOM_TOKEN": "another",
            "POSTROOM_NAME": "another",
            "CLAUDE_CODE_MESSAGING_TOKEN": "another",
        },
    )
    assert done.code == 7, done
    kept, status, by_ancestor, sent, err = json.loads(done.out)
    assert json.loads(status)["name"] == "alice", status
    assert json.loads(by_ancestor)["name"] == "alice"
    assert kept["POSTROOM_SESSION"] == json.loads(status)["session_id"]
    assert kept["POSTROOM_SOCKET"].endswith(".sock")
    assert kept["POSTROOM_TOKEN"] != "another"
    assert kept["POSTROOM_NAME"] is None
    assert kept["CLAUDE_CODE_MESSAGING_TOKEN"] is None
    assert json.loads(sent)["status"] == "queued", err
    [got] = desk.take("bob")
    assert (got["from"]["name"], got["from"]["verified"]) == ("alice", True)
    assert [row["name"] for row in desk.ok("list")["rows"]] == ["bob"]


@pytest.mark.rule("10.8")
def test_a_command_that_a_signal_ends_or_that_is_not_there(desk: Desk) -> None:
    """128 + n for a signal; a command that cannot be started is a usage error."""
    done = desk.run("open", "--name", "alice", "--", "sh", "-c", "kill -TERM $$")
    assert done.code == 128 + signal.SIGTERM
    done = desk.run("open", "--name", "alice", "--", "/no/such/command")
    assert (done.code, done.err.splitlines()[-2:][0].split(":")[0]) == (2, "postroom")
    assert desk.ok("list")["rows"] == []


@pytest.mark.rule("10.8", "05.29")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_goes_on_to_the_command(desk: Desk, number: signal.Signals) -> None:
    """SIGTERM and SIGHUP to the opener end the command, and then the session."""
    script = "import signal, time; print('ready', flush=True); signal.pause()"
    before = signal.signal(number, signal.SIG_DFL)  # the tests themselves may run under `nohup`
    try:
        opener = desk.start("open", "--name", "alice", "--", sys.executable, "-c", script)
    finally:
        signal.signal(number, before)
    assert opener.stdout is not None
    assert opener.stdout.readline() == b"ready\n"
    opener.send_signal(number)
    assert opener.wait(30) == 128 + number
    opener.communicate()
    assert desk.ok("list")["rows"] == []


@pytest.mark.rule("10.8")
def test_what_the_opener_ignores_the_command_ignores_too(desk: Desk) -> None:
    """Under `nohup` neither the session nor its command ends at SIGHUP."""
    script = (
        "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, flush=True); signal.pause()"
    )
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        opener = desk.start("open", "--name", "alice", "--", sys.executable, "-c", script)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert opener.stdout is not None
    assert opener.stdout.readline() == b"True\n"
    opener.send_signal(signal.SIGHUP)
    opener.send_signal(signal.SIGTERM)
    assert opener.wait(30) == 128 + signal.SIGTERM
    opener.communicate()


@pytest.mark.rule("10.9")
def test_a_session_around_a_command_ends_with_it(desk: Desk) -> None:
    """`close` does not take the session from under its command."""
    inside = f"import subprocess; print(subprocess.run([{COMMAND!r}, 'close', '--json'], capture_output=True).stdout.decode())"
    done = desk.run("open", "--name", "alice", "--", sys.executable, "-c", inside)
    assert json.loads(done.out)["error"]["code"] == "session_in_use"


@pytest.mark.rule("10.8", "10.3")
def test_in_the_foreground_it_prints_what_comes(desk: Desk) -> None:
    """What is printed is taken; SIGINT ends it with 130 and leaves no record."""
    desk.open("alice")
    opener = desk.start("open", "--name", "bob", "--json")
    assert opener.stderr is not None
    assert opener.stdout is not None
    assert b"bob" in opener.stderr.readline()
    desk.send("alice", "bob", "hello")
    [message] = json.loads(opener.stdout.readline())["messages"]
    assert message["text"] == "hello"
    wait_until(lambda: desk.take("bob") == [] and desk.ok("--session", "bob", "status")["queued"] == 0)
    opener.send_signal(signal.SIGINT)
    assert opener.wait(30) == 130
    opener.communicate()
    assert [row["name"] for row in desk.ok("list")["rows"]] == ["alice"]


@pytest.mark.rule("10.8")
def test_close_ends_one_in_the_foreground(desk: Desk) -> None:
    """`postroom close` from another terminal: exit code 0."""
    opener = desk.start("open", "--name", "bob")
    assert opener.stderr is not None
    opener.stderr.readline()
    desk.ok("--session", "bob", "close")
    assert opener.wait(30) == 0
    opener.communicate()


@pytest.mark.rule("05.26")
def test_a_session_keeps_out_the_children_of_another(desk: Desk) -> None:
    """A command inside alice may not act for bob; one that alice's command opened, it may."""
    desk.open("bob")
    inside = f"""
import json, subprocess
run = lambda *words: json.loads(subprocess.run([{COMMAND!r}, *words, "--json"], capture_output=True).stdout)
foreign = run("--session", "bob", "inbox", "--take")
mine = run("open", "--name", "mine", "--detach")
own = run("--session", "mine", "inbox", "--take")
closed = run("--session", "mine", "close")
listed = run("list")
print(json.dumps([foreign, mine, own, closed, listed]))
"""
    done = desk.run("open", "--name", "alice", "--", sys.executable, "-c", inside)
    assert done.code == 0, done
    foreign, mine, own, closed, listed = json.loads(done.out)
    assert foreign["error"]["code"] == "not_your_session"
    assert own == {"messages": [], "notices": []}
    assert closed["session_id"] == mine["session_id"]
    assert listed["self"]["name"] == "alice"


@pytest.mark.rule("10.8", "10.37")
def test_options_that_do_not_go_together(desk: Desk) -> None:
    """Each is a usage error, and nothing is opened."""
    for words in (
        ("open", "--detach", "--", "true"),
        ("open", "--resume", "0" * 8, "--name", "x", "--detach"),
        ("open", "--kind", "nonsense"),
        ("open", "--mode", "nonsense"),
        ("open", "--frobnicate"),
    ):
        assert desk.run(*words).code == 2, words
    assert desk.refused("open", "--resume", "no-such-session", "--detach")["code"] == "no_session"
    assert desk.ok("list")["rows"] == []


@pytest.mark.rule("05.4")
def test_what_goes_wrong_in_the_background_is_in_the_log(desk: Desk, home: Path) -> None:
    """A detached session's stderr goes to its log, mode 0600."""
    bob = desk.open("bob")
    log = home / f"state/sessions/{bob['session_id']}/log"
    assert log.stat().st_mode & 0o777 == 0o600
    target = os.readlink(f"/proc/{bob['pid']}/fd/2")
    assert target == str(log)
    assert running(bob["pid"])
    assert subprocess.run(["true"], check=False).returncode == 0


@pytest.mark.rule("10.8", "05.12")
def test_a_resume_says_that_the_mode_is_not_kept(desk: Desk) -> None:
    """Unless one is given; and nothing is said of it where nothing comes back."""
    session = desk.open("bob", "--mode", "bypassPermissions")
    assert desk.run("close", "--session", "bob").code == 0
    for mode, said in ((), True), (("--mode", "bypassPermissions"), False):
        done = desk.run("open", "--resume", session["session_id"], "--detach", *mode)
        assert done.code == 0
        assert ("a mode is not kept" in done.err) is said
        assert desk.run("close", "--session", "bob").code == 0
