"""The main job on real processes: two sessions find each other, one writes, the other takes and answers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, running, wait_until

TEXT = "the column is tenant_id"


@pytest.fixture
def desk(home: Path) -> Iterator[Desk]:
    """A private desk."""
    desk = Desk(home, os.environ)
    yield desk
    desk.leave()


@pytest.fixture
def pair(desk: Desk) -> Desk:
    """The same with alice and bob open."""
    desk.open("alice")
    desk.open("bob")
    return desk


@pytest.mark.rule("10.8", "10.23", "10.25", "10.28", "01.31", "11.1", "04.15")
def test_show_2_a_message_crosses(pair: Desk) -> None:
    """Show 2 of the main job, as written."""
    sent = pair.ok("--session", "alice", "send", "bob", TEXT, "--summary", "schema")
    assert sent["status"] == "queued"
    [got] = pair.take("bob")
    assert got["text"] == TEXT
    assert got["summary"] == "schema"
    assert got["msg_id"] == sent["msg_id"]
    assert got["from"]["name"] == "alice"
    assert got["from"]["verified"] is True
    assert pair.take("bob") == []
    steps = [(step["where"], step["state"]) for step in pair.ok("trace", sent["msg_id"])["steps"]]
    assert [state for where, state in steps if where == "alice"] == ["queued"]
    assert [state for where, state in steps if where == "bob"] == [
        "received",
        "accepted",
        "leased",
        "consumed",
    ]


@pytest.mark.rule("02.8", "01.5", "10.22")
def test_an_answer_goes_to_the_from_that_was_shown(pair: Desk) -> None:
    """The address in an envelope reaches its sender, and marks what it answers."""
    sent = pair.send("alice", "bob", "ready?")
    [got] = pair.take("bob")
    pair.send("bob", got["from"]["address"], "yes", "--in-reply-to", sent["msg_id"])
    [answer] = pair.take("alice")
    assert (answer["text"], answer["in_reply_to"]) == ("yes", sent["msg_id"])
    states = [step["state"] for step in pair.ok("trace", sent["msg_id"])["steps"]]
    assert states[-1] == "answered"


@pytest.mark.rule("10.3", "11.1")
def test_looking_takes_nothing(pair: Desk) -> None:
    """`inbox` without --take shows what waits and leaves it."""
    pair.send("alice", "bob", TEXT)
    for _ in range(2):
        assert [message["text"] for message in pair.ok("--session", "bob", "inbox")["messages"]] == [TEXT]
    assert [message["text"] for message in pair.take("bob")] == [TEXT]


@pytest.mark.rule("10.4", "10.37")
def test_wait_returns_what_comes_and_3_when_nothing_does(pair: Desk) -> None:
    """`wait` blocks until a message; with a deadline it ends with 3."""
    done = pair.run("--session", "bob", "wait", "--timeout", "0", "--json")
    assert (done.code, done.document["messages"]) == (3, [])
    waiting = pair.start("--session", "bob", "wait", "--json")
    pair.send("alice", "bob", TEXT)
    out, _ = waiting.communicate(timeout=30)
    assert waiting.returncode == 0
    assert [message["text"] for message in json.loads(out)["messages"]] == [TEXT]
    assert pair.take("bob") == []


@pytest.mark.rule("10.2", "10.22")
def test_wait_reply_prints_the_answer(pair: Desk) -> None:
    """`send --wait-reply` ends with the answer to that message."""
    asking = pair.start("--session", "alice", "send", "bob", "ready?", "--wait-reply", "30", "--json")
    waiting = pair.start("--session", "bob", "wait", "--json")
    out, _ = waiting.communicate(timeout=30)
    [got] = json.loads(out)["messages"]
    pair.send("bob", "alice", "unrelated", "--in-reply-to", "11111111-2222-4333-8444-555555555555")
    pair.send("bob", got["from"]["address"], "yes", "--in-reply-to", got["msg_id"])
    out, _ = asking.communicate(timeout=30)
    assert asking.returncode == 0
    assert json.loads(out)["reply"]["text"] == "yes"
    assert [message["text"] for message in pair.take("alice")] == ["unrelated"]
    done = pair.run("--session", "alice", "send", "bob", "again?", "--wait-reply", "0", "--json")
    assert (done.code, done.document["reply"]) == (3, None)


@pytest.mark.rule("10.38")
def test_an_outsider_sends_without_a_reply_path(pair: Desk) -> None:
    """Outside any session `send` works, and says that nobody can answer."""
    sent = pair.ok("send", "bob", "from a script")
    assert any("answer" in warning for warning in sent["warnings"])
    assert "reply" not in sent["note"]  # it would say the contrary
    [got] = pair.take("bob")
    assert (got["text"], got["from"]["address"], got["from"]["verified"]) == ("from a script", None, False)
    assert (got["from"]["name"], got["from"]["class"]) == (None, None)


@pytest.mark.rule("11.4", "05.12", "02.13")
def test_a_killed_receiver_comes_back_with_its_mail(pair: Desk) -> None:
    """SIGKILL, then resume under the same id: name and mail are there; meanwhile it is not found."""
    bob = next(one for one in pair.opened.values() if one["name"] == "bob")
    pair.send("alice", "bob", TEXT)
    pair.kill(bob)
    error = pair.refused("--session", "alice", "send", "bob", "there?", code=3)
    assert error["code"] == "not_found"
    assert "ended" in error["message"]
    again = pair.open(None, "--resume", bob["session_id"])
    assert (again["session_id"], again["name"]) == (bob["session_id"], "bob")
    assert [message["text"] for message in pair.take("bob")] == [TEXT]


@pytest.mark.rule("05.29", "10.9", "10.8")
@pytest.mark.parametrize("how", ["close", signal.SIGTERM, signal.SIGINT])
def test_an_end_leaves_no_record(pair: Desk, home: Path, how: str | signal.Signals) -> None:
    """`close`, SIGTERM and SIGINT leave neither record nor socket behind; unread mail stays."""
    bob = next(one for one in pair.opened.values() if one["name"] == "bob")
    pair.send("alice", "bob", TEXT)
    if isinstance(how, signal.Signals):
        os.kill(bob["pid"], how)
    else:
        assert pair.ok("--session", "bob", "close") == {"session_id": bob["session_id"], "expired": 0}
    wait_until(lambda: not running(bob["pid"]))
    left = [path.name for path in (home / "state/sessions").iterdir() if path.is_file()]
    assert not [name for name in left if name.startswith(str(bob["pid"]))]
    assert not [path for path in (home / "run/postroom").iterdir() if path.name.startswith(str(bob["pid"]))]
    assert [row["name"] for row in pair.ok("list")["rows"]] == ["alice"]
    pair.open(None, "--resume", bob["session_id"])
    assert [message["text"] for message in pair.take("bob")] == [TEXT]


@pytest.mark.rule("05.12")
def test_a_session_runs_once(pair: Desk) -> None:
    """A session that runs cannot be resumed a second time."""
    bob = next(one for one in pair.opened.values() if one["name"] == "bob")
    error = pair.refused("open", "--resume", bob["session_id"], "--detach")
    assert error["code"] == "session_in_use"


@pytest.mark.rule("10.38", "10.37")
def test_what_is_not_there_is_said(pair: Desk) -> None:
    """Unknown sessions, messages, names, commands: each with its code and exit code."""
    assert pair.refused("--session", "carol", "inbox")["code"] == "no_session"
    assert pair.refused("inbox")["code"] == "no_session"
    assert pair.refused("trace", "no-such-id", code=3)["code"] == "unknown_message"
    assert pair.refused("--session", "bob", "trace", "no-such-id", code=3)["code"] == "unknown_message"
    error = pair.refused("--session", "alice", "send", "bbo", "hi", code=3)
    assert (error["code"], [one["name"] for one in error["candidates"]]) == ("not_found", ["bob"])
    assert pair.refused("frobnicate", code=2)["code"] == "usage"


@pytest.mark.rule("10.6", "10.27", "10.30")
def test_status_says_who_and_how_many(pair: Desk) -> None:
    """`status`: name, ref, queue, class; nothing set is said as such."""
    pair.send("alice", "bob", TEXT)
    status = pair.ok("--session", "bob", "status")
    assert (status["name"], status["queued"], status["class"]) == ("bob", 1, "prompting")
    assert status["inbound"] == {"value": None, "scope": "default"}
    assert status["problems"] == []
    assert status["peer_address"].startswith("uds:/")


@pytest.mark.rule("10.13")
def test_log_tells_what_happened(pair: Desk) -> None:
    """`log` finds steps by text, also those of a session that has ended."""
    sent = pair.send("alice", "bob", TEXT)
    pair.send("alice", "bob", "something else")
    rows = pair.ok("--session", "bob", "log", "tenant_id")["rows"]
    assert {row["msg_id"] for row in rows} == {sent["msg_id"]}
    bob = next(one for one in pair.opened.values() if one["name"] == "bob")
    pair.ok("--session", "bob", "close")
    wait_until(lambda: not running(bob["pid"]))
    rows = pair.ok("--session", bob["session_id"], "log", "tenant_id")["rows"]
    assert {row["state"] for row in rows} >= {"received", "accepted"}
