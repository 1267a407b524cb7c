"""`postroom team` of sessions that run: joining, leaving, one message to each, and whose team is shown (07.21, 07.22)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.desk import ROOMY, Desk, wait_until


@pytest.fixture
def desk(home: Path) -> Iterator[Desk]:
    """A private desk with a lead and two others open."""
    desk = Desk(home, os.environ)
    desk.settings(limits=ROOMY)
    for name in ("lead", "worker", "tester"):
        desk.open(name)
    yield desk
    desk.leave()


def joined(desk: Desk) -> str:
    """Has both join, and waits until the lead has seen them; returns the team's name."""
    team = str(desk.ok("--session", "worker", "team", "join", "--team", "lead")["team"])
    desk.ok("--session", "tester", "team", "join", "--team", team, "--as", "tests")
    wait_until(lambda: len(seen(desk)) == 2)
    return team


def seen(desk: Desk) -> list[dict[str, Any]]:
    """The teammates that the lead can write to."""
    rows = desk.ok("--session", "lead", "list", "--kind", "teammate")["rows"]
    return [row for row in rows if row["name"] != "team-lead"]


def session_of(desk: Desk, name: str) -> str:
    """The id of a session."""
    return next(key for key, one in desk.opened.items() if one["name"] == name)


@pytest.mark.rule("07.21", "07.22", "07.24")
def test_sessions_join_and_are_shown_and_leave(desk: Desk) -> None:
    team = joined(desk)
    assert team == f"session-{session_of(desk, 'lead')[:8]}"
    named = [
        desk.ok("team", *words)
        for words in ((), ("--team", team), ("--team", "lead"), ("--session", "tester"))
    ]
    assert [one["team"] for one in named] == [team] * 4
    states = {one["name"]: (one["state"], one["session_id"]) for one in named[0]["members"]}
    assert states == {
        "team-lead": ("lead", session_of(desk, "lead")),
        "worker": ("session", session_of(desk, "worker")),
        "tests": ("session", session_of(desk, "tester")),
    }
    assert named[0]["lead_session_id"] == session_of(desk, "lead")
    assert desk.ok("--session", "worker", "team", "leave") == {"team": team}
    [gone] = [one for one in desk.ok("team")["members"] if one["name"] == "worker"]
    assert (gone["state"], bool(gone["at"])) == ("left", True)
    error = desk.refused("--session", "worker", "team", code=3)
    assert (error["code"], error["message"]) == (
        "not_found",
        "The session is in no team, and nobody is in its own.",
    )


@pytest.mark.rule("07.22")
def test_the_session_says_what_cannot_be_joined_or_left(desk: Desk) -> None:
    assert desk.refused("--session", "worker", "team", "join", "--team", "nobody", code=2)["hint"]
    assert desk.refused("--session", "worker", "team", "join", "--team", "../x")["code"] == "invalid_name"
    assert (
        desk.refused("--session", "worker", "team", "leave", code=2)["message"]
        == "This session is in no team."
    )
    text = desk.run("--session", "worker", "team", "join", "--team", "lead", "--as", "a b")
    assert (text.code, text.err.split("\n")[0]) == (1, "invalid_name")


@pytest.mark.rule("07.22", "10.14")
def test_one_message_to_each_member_and_none_to_oneself(desk: Desk) -> None:
    team = joined(desk)
    sent = desk.ok(
        "--session", "lead", "team", "send", "--each", "-", "--summary", "news", stdin="--json to all\n"
    )
    assert sent["status"] == "written"
    assert [(one["to"], one["status"]) for one in sent["results"]] == [
        ("worker", "written"),
        ("tests", "written"),
    ]
    ids = {one["msg_id"] for one in sent["results"]}
    assert len(ids) == 2
    for name in ("worker", "tester"):
        wait_until(lambda name=name: desk.ok("--session", name, "inbox")["messages"])
        [message] = desk.take(name)
        assert (message["text"], message["summary"]) == ("--json to all", "news")
        assert message["msg_id"] in ids
    done = desk.run("--session", "worker", "--json", "team", "send", "--each", "--team", team, "--", "-back")
    assert (done.code, done.document["status"]) == (0, "written")
    sent = done.document
    assert [one["to"] for one in sent["results"]] == ["team-lead", "tests"]
    wait_until(lambda: desk.ok("--session", "lead", "inbox")["messages"])
    assert [one["text"] for one in desk.take("lead")] == ["-back"]


@pytest.mark.rule("07.22")
def test_each_outcome_is_reported_and_the_exit_code_is_1_unless_all_were_written(
    desk: Desk, home: Path
) -> None:
    team = joined(desk)
    desk.kill(desk.opened[session_of(desk, "worker")])  # nobody empties its mailbox
    inbox = home / "state/teams" / team / "inboxes/worker.json"
    line = {"from": "team-lead", "text": "t", "timestamp": "2026-11-30T10:15:02Z"}
    inbox.parent.mkdir(mode=0o700, exist_ok=True)
    inbox.write_text(json.dumps([line] * 1000))
    inbox.chmod(0o600)
    done = desk.run("--session", "lead", "team", "send", "--each", "hello", "--json")
    assert (done.code, done.err) == (1, "partial\n")
    assert done.document["status"] == "partial"
    first, second = done.document["results"]
    assert (first["to"], first["error"]["code"]) == ("worker", "mailbox_full")
    assert "status" not in first
    assert (second["to"], second["status"]) == ("tests", "written")
    text = desk.run("--session", "lead", "team", "send", "--each", "hello")
    assert (text.code, text.err) == (1, "partial\n")
    assert "  worker: mailbox_full: " in text.out
    assert "  tests: written, id " in text.out
    desk.ok("--session", "tester", "team", "leave")
    wait_until(lambda: len(seen(desk)) == 1)
    done = desk.run("--session", "lead", "team", "send", "--each", "hello", "--json")
    assert (done.code, done.err, done.document["status"]) == (1, "failed\n", "failed")


@pytest.mark.rule("07.22")
def test_nobody_is_sent_anything_where_there_is_no_team(desk: Desk) -> None:
    error = desk.refused("--session", "lead", "team", "send", "--each", "hello", code=3)
    assert (error["code"], "team join" in error["hint"]) == ("not_found", True)
    joined(desk)
    error = desk.refused("--session", "lead", "team", "send", "--each", "hello", "--team", "other", code=3)
    assert error["message"] == "The session is no member of a team other."
    for name in ("worker", "tester"):
        desk.ok("--session", name, "team", "leave")
    error = desk.refused("--session", "lead", "team", "send", "--each", "hello", code=3)
    assert error["message"].startswith("Nobody else is in the team")


@pytest.mark.rule("07.22", "10.37")
def test_a_member_of_a_team_that_cannot_be_read_hears_which(desk: Desk, home: Path) -> None:
    team = joined(desk)
    config = home / "state/teams" / team / "config.json"
    config.write_bytes(b"{")
    for words in (("team",), ("team", "repair"), ("team", "send", "--each", "hello")):
        error = desk.refused("--session", "worker", *words, code=3)
        assert f"Who is in {team} cannot be read" in error["hint"]
    error = desk.refused("--session", "lead", "team")  # whose own it is
    assert (error["code"], str(config) in error["message"]) == ("unfit_path", True)
    assert config.read_bytes() == b"{"


@pytest.mark.rule("07.22")
def test_a_text_that_is_too_large_is_refused_once(desk: Desk) -> None:
    joined(desk)
    error = desk.refused("--session", "lead", "team", "send", "--each", "-", stdin="x" * 4_194_305)
    assert error["code"] == "message_too_large"
    assert desk.refused("--session", "lead", "team", "send", "--each", "-", stdin=b"\xff", code=2)["hint"]


@pytest.mark.rule("07.22", "10.14")
def test_a_session_of_the_same_name_gets_nothing_of_a_teammate(desk: Desk) -> None:
    joined(desk)
    desk.open("tests")  # as a member of the team is called
    sent = desk.ok("--session", "lead", "team", "send", "--each", "hello")
    assert sent["status"] == "written"
    wait_until(lambda: desk.ok("--session", "tester", "inbox")["messages"])
    assert desk.take("tests") == []


@pytest.mark.rule("07.23", "10.14")
def test_a_task_is_claimed_by_either_command(desk: Desk) -> None:
    joined(desk)
    for subject in ("first", "second"):
        desk.ok("--session", "lead", "task", "create", subject)
    assert desk.ok("--session", "worker", "team", "claim")["task"]["id"] == "1"
    assert desk.refused("--session", "tester", "team", "claim", "1")["code"] == "already_claimed"
    shown = desk.ok("team")["tasks"]
    assert [(one["id"], one["owner"], one["status"]) for one in shown] == [
        ("1", "worker", "in_progress"),
        ("2", None, "pending"),
    ]
