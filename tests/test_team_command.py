"""`postroom team` and `postroom team repair` on real files: no session is needed, nothing is taken, nothing believed (07.24).

The team is one that another program has written: its folders can be looked into by others, and its config and mail hold
what our own would not write.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.core.times import stamp
from tests.desk import Desk
from tests.strangers import OTHER_UID, needs_root, snapshot

HOUR = 3_600_000


@pytest.fixture
def desk(home: Path) -> Iterator[Desk]:
    """A private desk without a session."""
    desk = Desk(home, os.environ)
    yield desk
    desk.leave()


def written(path: Path, data: object, mode: int = 0o644) -> Path:
    """Writes a file as another program does, and the folders above it."""
    for folder in (path.parent.parent.parent, path.parent.parent, path.parent):
        folder.mkdir(exist_ok=True, mode=0o755, parents=True)
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    path.chmod(mode)
    return path


def old(path: Path) -> Path:
    """Makes something look as if nobody had touched it for a day."""
    yesterday = time.time() - 86_400
    os.utime(path, (yesterday, yesterday))
    return path


def entry(sender: str, text: str, ago: int = 0, **more: object) -> dict[str, object]:
    """An entry of a mailbox, written so many milliseconds ago."""
    at = int(time.time() * 1000) - ago
    return {"from": sender, "text": text, "timestamp": stamp(at), "read": False, **more}


CONFIG: dict[str, Any] = {
    "name": "refactor",
    "description": "Renaming",
    "createdAt": 1_796_033_702_123,
    "leadAgentId": "team-lead@refactor",
    "leadSessionId": "1b2c3d4e-0000-4000-8000-000000000000",
    "members": [
        {
            "name": "team-lead",
            "agentId": "team-lead@refactor",
            "agentType": "team-lead",
            "joinedAt": 1_796_033_702_123,
        },
        {
            "name": "schema",
            "agentType": "explorer",
            "joinedAt": 1_796_033_703_000,
            "backendType": "in-process",
        },
        {
            "name": "tests",
            "joinedAt": 1_796_033_704_000,
            "tmuxPaneId": "%3",
            "isActive": False,
            "cwd": "/a\u202eb",
        },
        {"name": "slow", "joinedAt": 1_796_033_705_000, "postroom": {"evictedAt": 1_796_033_800_000}},
        {"name": "own", "joinedAt": 1_796_033_706_000, "sessionId": "2b2c3d4e-0000-4000-8000-000000000000"},
        {"name": "../x", "joinedAt": 1},
    ],
    "postroom": {
        "left": [
            {"name": "gone", "joinedAt": 1, "at": 1_796_033_700_000, "why": "left"},
            {"name": "gone", "joinedAt": 2, "at": 1_796_033_701_000, "why": "left"},
            {"name": "schema", "joinedAt": 3, "at": 1_796_033_701_000, "why": "left"},
        ]
    },
}


@pytest.fixture
def theirs(home: Path) -> Path:
    """The folder of another program with one team in it, whose insides are in every state."""
    root = home / "theirs"
    team = root / "teams" / "refactor"
    inboxes = team / "inboxes"
    written(team / "config.json", CONFIG)
    lines = [
        entry("schema", "older", 2 * HOUR, read=True),
        entry("schema", "\x1b[31mred", HOUR + 5_000),
        entry("tests", "newer"),
        {"from": "tests"},
    ]
    written(inboxes / "team-lead.json", lines)
    written(inboxes / "schema.json", [])
    written(inboxes / "tests.json", b'[{"from":"a","text":"t","timestamp":"yesterday"}')
    written(inboxes / "gone.json", [entry("team-lead", "come back")])
    written(inboxes / "tests.json.quarantine", b"{}\n")
    written(inboxes / "slow.json", [], 0o666)
    tasks = root / "tasks" / "refactor"
    written(
        tasks / "1.json",
        {
            "id": "1",
            "subject": "first",
            "status": "in_progress",
            "owner": "tests",
            "blocks": ["2"],
            "blockedBy": [],
            "description": "",
        },
    )
    written(
        tasks / "2.json",
        {
            "id": "2",
            "subject": "second",
            "status": "pending",
            "blocks": [],
            "blockedBy": ["1"],
            "description": "",
        },
    )
    written(tasks / "3.json", b"{")
    return root


def flags(root: Path) -> tuple[str, ...]:
    """The options that name the folders."""
    return f"--teams-dir={root / 'teams'}", f"--tasks-dir={root / 'tasks'}"


# ── looking ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.24", "07.21", "07.22", "10.14", "10.29")
def test_a_team_is_shown_whole_and_nothing_is_touched(desk: Desk, theirs: Path) -> None:
    before = snapshot(theirs)
    shown = desk.ok("team", *flags(theirs))
    assert snapshot(theirs) == before
    assert (shown["team"], shown["description"], shown["active"]) == ("refactor", "Renaming", True)
    assert shown["lead_session_id"] == CONFIG["leadSessionId"]
    assert shown["folder"] == str(theirs / "teams/refactor")
    states = [
        (one["name"], one["type"], one["state"], one["pane"], one["active"]) for one in shown["members"]
    ]
    assert states == [
        ("team-lead", "team-lead", "lead", "", None),
        ("schema", "explorer", "in-process", "", None),
        ("tests", "", "pane", "%3", False),
        ("slow", "", "evicted", "", None),
        ("own", "", "session", "", None),
        ("gone", "", "left", "", None),
    ]
    by_name = {one["name"]: one for one in shown["members"]}
    assert by_name["slow"]["at"] == "2026-11-30T10:16:40Z"
    assert (by_name["gone"]["at"], by_name["schema"]["at"]) == ("2026-11-30T10:15:01Z", None)
    assert [one for one in shown["problems"] if "name that no member can have" in one]
    assert [one["id"] for one in shown["tasks"]] == ["1", "2"]
    assert [one["waitsFor"] for one in shown["tasks"]] == [[], ["1"]]
    assert shown["unreadable"][0]["id"] == "3"


@pytest.mark.rule("07.24", "07.4", "07.6")
def test_inboxes_tell_their_sizes_the_oldest_unread_and_what_is_damaged(desk: Desk, theirs: Path) -> None:
    shown = desk.ok("team", "--team=refactor", *flags(theirs))["inboxes"]
    boxes = {one["name"]: one for one in shown}
    assert list(boxes) == ["team-lead", "schema", "tests", "slow", "own", "gone"]
    lead = boxes["team-lead"]
    assert (lead["unread"], lead["read"], lead["unusable"], lead["whole"]) == (2, 1, 1, True)
    assert lead["bytes"] == (theirs / "teams/refactor/inboxes/team-lead.json").stat().st_size
    assert lead["oldest_from"] == "schema"
    assert 3600 <= lead["oldest_age"] < 7200
    tests = boxes["tests"]
    assert (tests["whole"], tests["unread"], tests["oldest"], tests["oldest_age"]) == (
        False,
        1,
        "yesterday",
        None,
    )
    assert tests["kept"] == [{"name": "tests.json.quarantine", "bytes": 3}]
    assert "others have access" in boxes["slow"]["problem"]
    assert (boxes["own"]["bytes"], boxes["own"]["oldest"], boxes["own"]["problem"]) == (0, None, "")
    assert (boxes["gone"]["member"], boxes["gone"]["unread"], lead["member"]) == (False, 1, True)


@pytest.mark.rule("07.24", "10.37")
def test_a_person_reads_it_in_lines_that_cannot_act_on_a_terminal(desk: Desk, theirs: Path) -> None:
    done = desk.run("team", *flags(theirs))
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out
    lines = {" ".join(line.split()) for line in done.out.splitlines()}
    for line in (
        "tests - pane %3 idle /a\\u202eb",
        "schema explorer in process",
        "slow - evicted since 2026-11-30T10:16:40Z",
        "gone - left at 2026-11-30T10:15:01Z",
        "1 · in_progress · owner tests · first",
        "2 · pending · waits for 1 · second",
    ):
        assert line in lines, done.out
    [lead] = [line for line in lines if line.startswith("team-lead") and "unread" in line]
    assert "2 unread; oldest 1 h old, from schema" in lead
    [tests] = [line for line in lines if line.startswith("tests") and "DAMAGED" in line]
    assert "tests.json.quarantine (3 bytes)" in tests
    assert "`postroom team repair` lists it." in done.out
    assert "is moved aside, and told, when its owner looks next." in done.out


@pytest.mark.rule("07.24", "07.21")
def test_the_tasks_lie_beside_the_teams_where_only_these_are_named(desk: Desk, theirs: Path) -> None:
    shown = desk.ok("team", flags(theirs)[0])
    assert [one["id"] for one in shown["tasks"]] == ["1", "2"]


# ── what cannot be shown ─────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.22", "10.37", "10.14")
def test_without_a_team_the_next_step_is_said(desk: Desk) -> None:
    error = desk.refused("team", code=3)
    assert error["code"] == "not_found"
    assert "postroom team join --team NAME" in error["hint"]
    assert desk.refused("team", "repair", code=3)["code"] == "not_found"
    error = desk.refused("team", "--team", "refactor", code=3)
    assert error["message"] == "There is no team refactor."


@pytest.mark.rule("07.21", "10.37")
def test_a_team_that_is_not_there_names_those_that_are(desk: Desk, theirs: Path) -> None:
    for words in (("team",), ("team", "repair")):
        error = desk.refused(*words, "--team", "nobody", *flags(theirs), code=3)
        assert (error["code"], error["hint"]) == ("not_found", "There is: refactor.")
    error = desk.refused("team", "--teams-dir", str(theirs / "none"), code=3)
    assert error["message"] == f"There is no folder {theirs / 'none'}."
    assert "--teams-dir" in error["hint"]


@pytest.mark.rule("07.21", "10.37")
def test_of_several_teams_none_is_guessed(desk: Desk, theirs: Path) -> None:
    written(theirs / "teams/other/config.json", {"name": "Other", "members": []})
    error = desk.refused("team", *flags(theirs), code=4)
    assert (error["code"], error["message"]) == ("ambiguous", "There are 2 teams: Other, refactor.")
    assert "--team" in error["hint"]
    assert desk.ok("team", "--team=Other", *flags(theirs))["active"] is False


@pytest.mark.rule("07.8")
@pytest.mark.parametrize("name", ["..", "../refactor", "/etc", "", "a/b", "x" * 65, "\u202e", "-x"])
def test_a_name_that_is_a_path_is_refused(desk: Desk, theirs: Path, name: str) -> None:
    for action in ((), ("repair",)):
        error = desk.refused("team", *action, f"--team={name}", *flags(theirs))
        assert error["code"] == "invalid_name"
        assert error["hint"]


@pytest.mark.rule("07.8")
def test_the_folder_of_another_team_is_refused_and_its_name_is_said(desk: Desk, theirs: Path) -> None:
    before = snapshot(theirs)
    for action in ((), ("repair",)):
        error = desk.refused("team", *action, "--team=Refactor", *flags(theirs))
        assert error["code"] == "unfit_path"
        assert "another team's" in error["message"]
    assert desk.refused("team", "--team=Refactor", *flags(theirs))["hint"] == "That one is called refactor."
    assert snapshot(theirs) == before


@pytest.mark.rule("07.22")
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"name": 1}', b"\xff", b'{"name": "refactor"}'])
def test_a_damaged_config_is_told_and_left_as_it_is(desk: Desk, theirs: Path, data: bytes) -> None:
    config = written(theirs / "teams/refactor/config.json", data)
    for words in (("team",), ("team", "--team=refactor")):
        error = desk.refused(*words, *flags(theirs))
        assert error["code"] == "unfit_path"
        assert str(config) in error["message"]
        assert "Mend it, or move it aside" in error["hint"]
    done = desk.run("team", "repair", "--json", *flags(theirs))
    assert (done.code, done.err) == (1, "unfit_path\n")
    [config_said] = [one for one in done.document["problems"] if str(config) in one]
    assert "Mend it, or move it aside" in config_said
    assert [one["kind"] for one in done.document["kept"]] == [
        "quarantine"
    ]  # the rest was looked at all the same
    assert config.read_bytes() == data


@needs_root
@pytest.mark.rule("07.8", "11.11")
@pytest.mark.parametrize("place", ["teams", "teams/refactor", "teams/refactor/config.json"])
def test_what_belongs_to_another_user_is_refused(desk: Desk, theirs: Path, place: str) -> None:
    os.chown(theirs / place, OTHER_UID, OTHER_UID)
    for action in ((), ("repair",)):
        done = desk.run("team", *action, "--team=refactor", "--json", *flags(theirs))
        assert (done.code, done.err) == (1, "unfit_path\n")
        said = done.document["problems"] if "problems" in done.document else [done.error["message"]]
        assert any(f"it belongs to uid {OTHER_UID}" in one for one in said)


@needs_root
@pytest.mark.rule("07.8", "07.24")
def test_inboxes_and_tasks_of_another_user_cost_only_themselves(desk: Desk, theirs: Path) -> None:
    os.chown(theirs / "teams/refactor/inboxes", OTHER_UID, OTHER_UID)
    os.chown(theirs / "tasks/refactor", OTHER_UID, OTHER_UID)
    shown = desk.ok("team", *flags(theirs))
    assert (shown["inboxes"], shown["tasks"]) == ([], [])
    assert sum(f"it belongs to uid {OTHER_UID}" in one for one in shown["problems"]) == 2
    assert len(shown["members"]) == 6
    done = desk.run("team", "repair", "--json", *flags(theirs))
    assert done.code == 1
    assert sum(f"it belongs to uid {OTHER_UID}" in one for one in done.document["problems"]) == 2


@pytest.mark.rule("07.8")
def test_symlinks_are_not_followed(desk: Desk, theirs: Path) -> None:
    team = theirs / "teams/refactor"
    team.rename(theirs / "elsewhere")
    team.symlink_to(theirs / "elsewhere")
    for action in ((), ("repair",)):
        assert desk.refused("team", *action, "--team=refactor", *flags(theirs))["code"] == "unfit_path"


# ── repairing ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.3", "07.6", "07.22", "07.23")
def test_repair_removes_what_killed_writers_left_and_keeps_what_a_person_may_want(
    desk: Desk, theirs: Path
) -> None:
    team, tasks = theirs / "teams/refactor", theirs / "tasks/refactor"
    left = [team / "config.json.lock", team / "inboxes/schema.json.lock", team / "inboxes/nobody.json.lock"]
    left += [
        tasks / "2.json.lock",
        team / "config.json.lock.broken-00",
        team / "inboxes/own.json.lock.broken-00",
    ]
    for path in left:
        path.mkdir()
        old(path)
    fresh = team / "inboxes/tests.json.lock"
    fresh.mkdir()  # somebody holds it
    written(team / "inboxes/own.json.damaged-0123456789abcdef", b"x")
    # One side of an edge is missing.
    one = json.loads((tasks / "1.json").read_bytes())
    written(tasks / "1.json", {**one, "blocks": []})
    config, mail = (team / "config.json").read_bytes(), (team / "inboxes/team-lead.json").read_bytes()
    done = desk.run("team", "repair", "--json", *flags(theirs))
    assert (done.code, done.err) == (0, ""), done
    mended = done.document
    assert sorted(mended["removed"]) == sorted(map(str, left))
    assert not any(path.exists() for path in left)
    assert fresh.exists()
    assert [(Path(one["path"]).name, one["kind"], one["bytes"]) for one in mended["kept"]] == [
        ("own.json.damaged-0123456789abcdef", "damaged", 1),
        ("tests.json.quarantine", "quarantine", 3),
    ]
    assert all(Path(one["path"]).exists() for one in mended["kept"])
    assert [said for said in mended["tasks"] if said.startswith("3.json cannot be used")]
    assert json.loads((tasks / "1.json").read_bytes())["blocks"] == ["2"]
    assert (team / "config.json").read_bytes() == config
    assert (team / "inboxes/team-lead.json").read_bytes() == mail
    again = desk.run("team", "repair", *flags(theirs))
    assert again.code == 0
    assert "removed" not in again.out
    assert "kept: " in again.out


@pytest.mark.rule("07.22")
def test_where_nothing_was_left_over_repair_says_so(desk: Desk, home: Path) -> None:
    written(home / "state/teams/refactor/config.json", {"name": "refactor", "members": []}, 0o600)
    for folder in ("state", "state/teams", "state/teams/refactor"):
        (home / folder).chmod(0o700)
    before = snapshot(home / "state/teams/refactor")
    done = desk.run("team", "repair")
    assert (done.code, done.out) == (0, "Nothing was left over in refactor.\n")
    assert snapshot(home / "state/teams/refactor") == before


@pytest.mark.rule("07.22", "07.23")
def test_the_tasks_of_a_team_that_has_ended_can_be_repaired(desk: Desk, theirs: Path) -> None:
    (theirs / "teams/refactor").rename(theirs / "teams/gone")
    (theirs / "teams/gone/config.json").unlink()
    mended = desk.ok("team", "repair", "--team=refactor", *flags(theirs))
    assert [said for said in mended["tasks"] if said.startswith("3.json cannot be used")]
    assert (mended["removed"], mended["kept"]) == ([], [])


# ── how it is used ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.37", "10.14")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("repair --each", "postroom team repair takes no --each"),
        ("--as me", "postroom team takes no --as"),
        ("leave --team x", "postroom team leave takes no --team"),
        ("join --team x --teams-dir y", "postroom team join takes no --teams-dir"),
        ("join --team x word", "postroom team join takes no TEXT"),
        ("join --team x -", "postroom team join takes no TEXT"),
        ("join", "postroom team join: --team is missing"),
        ("send hello", "postroom team send: --each is missing"),
        ("send --each", "postroom team send: TEXT is missing"),
    ],
)
def test_what_an_action_does_not_take_is_refused(desk: Desk, words: str, says: str) -> None:
    error = desk.refused("team", *words.split(), code=2)
    assert error["message"].startswith(says)
    assert error["hint"]


@pytest.mark.rule("10.38")
@pytest.mark.parametrize("words", ["join --team x", "leave", "claim", "claim 3", "send --each hello"])
def test_what_acts_for_a_session_needs_one(desk: Desk, words: str) -> None:
    error = desk.refused("team", *words.split())
    assert error["code"] == "no_session"
    assert "--session" in error["hint"]


@pytest.mark.rule("10.38")
def test_a_session_that_is_named_and_unknown_is_said(desk: Desk) -> None:
    assert desk.refused("team", "--session", "nobody")["code"] == "no_session"
