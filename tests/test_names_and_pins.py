"""Names on real sessions: taken, given, changed, shared by accident, and what a conversation remembers (Show 3)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.desk import Desk


@pytest.fixture
def desk(home: Path) -> Iterator[Desk]:
    """A private desk."""
    desk = Desk(home, os.environ)
    yield desk
    desk.leave()


def record_of(home: Path, session: dict[str, Any]) -> Path:
    """The file in which a session says what it is called."""
    return home / f"state/sessions/{session['pid']}.json"


def call_it(home: Path, session: dict[str, Any], name: str) -> None:
    """Rewrites a session's record under another name, as a race between two machines or programs would leave it."""
    path = record_of(home, session)
    record = json.loads(path.read_text())
    record["name"] = name
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps(record))
    fresh.chmod(0o600)
    fresh.rename(path)


@pytest.mark.rule("02.14", "02.12", "10.24")
def test_a_near_name_is_offered_and_never_taken(desk: Desk) -> None:
    """`send bbo` finds nobody and offers bob."""
    desk.open("alice")
    desk.open("bob")
    error = desk.refused("--session", "alice", "send", "bbo", "hi", code=3)
    assert (error["code"], [one["name"] for one in error["candidates"]]) == ("not_found", ["bob"])
    assert desk.take("bob") == []


@pytest.mark.rule("02.14", "02.11", "01.30")
def test_two_of_one_name_are_ambiguous_and_each_ref_reaches_its_own(desk: Desk, home: Path) -> None:
    """Two live sessions of one name: refused with both refs; each ref reaches its own."""
    desk.open("alice")
    first, second = desk.open("bob"), desk.open("bobby-two")
    call_it(home, second, "bob")
    error = desk.refused("--session", "alice", "send", "bob", "hi", code=4)
    assert error["code"] == "ambiguous"
    assert {(one["name"], one["ref"]) for one in error["candidates"]} == {
        ("bob", first["ref"]),
        ("bob", second["ref"]),
    }
    for session in (first, second):
        desk.send("alice", f"bob [{session['ref']}]", f"for {session['ref']}")
        [got] = desk.take(session["session_id"])
        assert got["text"] == f"for {session['ref']}"


@pytest.mark.rule("02.17", "02.18", "02.4", "11.8")
def test_a_rename_keeps_the_pin_and_a_newcomer_of_the_name_does_not_get_it(desk: Desk) -> None:
    """bob renames: the old name still reaches him. Another takes it: the send is refused until it is explicit."""
    desk.open("alice")
    bob = desk.open("bob")
    desk.send("alice", "bob", "one")
    assert desk.ok("--session", "bob", "rename", "robert")["name"] == "robert"
    assert desk.send("alice", "bob", "two")["to"]["name"] == "robert"
    assert [message["text"] for message in desk.take("robert")] == ["one", "two"]
    other = desk.open("bob")
    assert other["name"] == "bob"
    error = desk.refused("--session", "alice", "send", "bob", "three")
    assert error["code"] == "pin_mismatch"
    assert f"bob [{other['ref']}]" in error["message"] + error["hint"]
    assert "robert" in error["message"]
    desk.send("alice", f"bob [{other['ref']}]", "four")
    desk.send("alice", "bob", "five")
    assert [message["text"] for message in desk.take(other["session_id"])] == ["four", "five"]
    assert desk.take(bob["session_id"]) == []


@pytest.mark.rule("02.17", "02.18")
def test_pins_survive_a_crash_of_the_one_that_made_them(desk: Desk) -> None:
    """alice is killed and resumed: she still means the bob that she wrote to."""
    alice = desk.open("alice")
    desk.open("bob")
    desk.send("alice", "bob", "one")
    desk.ok("--session", "bob", "rename", "robert")
    desk.open("bob")
    desk.kill(alice)
    desk.open(None, "--resume", alice["session_id"])
    assert desk.refused("--session", "alice", "send", "bob", "two")["code"] == "pin_mismatch"


@pytest.mark.rule("02.20")
def test_a_pin_whose_target_ended_does_not_block(desk: Desk) -> None:
    """bob ended: the name is not found, and the sentence says so; it blocks only once somebody else answers."""
    desk.open("alice")
    bob = desk.open("bob")
    desk.send("alice", "bob", "one")
    desk.kill(bob)
    error = desk.refused("--session", "alice", "send", "bob", "two", code=3)
    assert error["code"] == "not_found"
    assert "ended" in error["message"]


@pytest.mark.rule("02.3", "02.1")
def test_a_name_belongs_to_the_first_live_session(desk: Desk) -> None:
    """A newcomer gets a variant and is told; `--session NAME` means the first."""
    first = desk.open("reviewer")
    second = desk.open("Reviewer")
    assert second["name"].casefold() == "reviewer-2"
    assert any("reviewer" in problem.casefold() for problem in second["problems"])
    assert desk.ok("--session", "reviewer", "status")["session_id"] == first["session_id"]
    desk.open("alice")
    renamed = desk.ok("--session", "alice", "rename", "reviewer")
    assert renamed["name"] == "reviewer-3"


@pytest.mark.rule("02.1")
def test_without_a_name_the_folder_gives_it(desk: Desk, home: Path) -> None:
    """Folder name and two digits of the session id; POSTROOM_NAME goes before it."""
    folder = home / "my app!"
    folder.mkdir()
    derived = desk.open(None, cwd=folder)
    assert derived["name"] == f"my app-{derived['session_id'][:2]}"
    named = desk.open(None, environ={"POSTROOM_NAME": "from-env"})
    assert named["name"] == "from-env"


@pytest.mark.rule("02.2", "10.37")
@pytest.mark.parametrize("name", ["main", "a/b", "-x", "x.", "", "a" * 65, "tab\there", "a@b", "user"])
def test_a_bad_name_is_refused(desk: Desk, name: str) -> None:
    """Each names the rule that it breaks; nothing is opened."""
    done = desk.run("open", f"--name={name}", "--detach", "--json")
    assert (done.code, done.error["code"]) == (1, "invalid_name")
    assert done.error["message"]
    assert desk.ok("list")["rows"] == []


@pytest.mark.rule("02.12", "02.17")
def test_a_prefix_is_taken_with_a_warning_and_pins_the_full_name(desk: Desk) -> None:
    """`rev` finds reviewer; two characters are too few; the full name is pinned too."""
    desk.open("alice")
    desk.open("reviewer")
    sent = desk.send("alice", "rev", "hi")
    assert sent["to"]["name"] == "reviewer"
    assert any("reviewer" in warning for warning in sent["warnings"])
    assert desk.refused("--session", "alice", "send", "re", "hi", code=3)["code"] == "not_found"


@pytest.mark.rule("01.20")
def test_a_session_does_not_write_to_itself(desk: Desk) -> None:
    """Its own name and `main` are refused, unless somebody else matches too."""
    desk.open("alice")
    assert desk.refused("--session", "alice", "send", "alice", "hi")["code"] == "cannot_message_self"
    assert desk.refused("--session", "alice", "send", "main", "hi")["code"] == "cannot_message_self"
    desk.open("alice-two")
    assert desk.send("alice", "ali", "hi")["to"]["name"] == "alice-two"
