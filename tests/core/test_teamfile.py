"""The config of a team: read whatever lies there, written back with everything that another program put there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.core.team import (
    MAX_LEFT,
    Departure,
    Member,
    Strange,
    Team,
    evicted,
    founded,
    joined,
    rebuilt,
    updated,
    without,
)
from postroom.core.teamfile import MAX_DEPTH, MAX_TIME, Unreadable, encode, parse

NAME = "session-1a2b3c4d"
FOREIGN: dict[str, Any] = {
    "name": NAME,
    "description": "to mend the parser",
    "createdAt": 1_764_500_000_000,
    "leadAgentId": f"team-lead@{NAME}",
    "leadSessionId": "1a2b3c4d-0000-4000-8000-000000000001",
    "leadProcess": {"pid": 7, "procStart": "123"},
    "teamAllowedPaths": [{"path": "/p", "toolName": "Edit", "addedBy": "team-lead", "addedAt": 1.5}],
    "hiddenPaneIds": ["%3"],
    "members": [
        {
            "agentId": f"team-lead@{NAME}",
            "name": "team-lead",
            "agentType": "team-lead",
            "joinedAt": 1_764_500_000_000,
            "tmuxPaneId": "leader",
            "cwd": "/home/ann/größe",
            "subscriptions": [],
        },
        {
            "agentId": f"worker@{NAME}",
            "name": "worker",
            "agentType": "coder",
            "model": "m-1",
            "prompt": "Mend it.\u2028",
            "color": "blue",
            "planModeRequired": True,
            "joinedAt": 1_764_500_001_000,
            "tmuxPaneId": "%2",
            "cwd": "/work",
            "worktreePath": "/tree",
            "subscriptions": ["news"],
            "backendType": "tmux",
            "isActive": False,
            "mode": "plan",
            "sessionId": "5e55",
            "future": [None, {"a": 1e3}],
        },
    ],
    "later": {"x": [1, 2.5, None, True, "é"]},
}
"""A config as another program writes it, with keys that are not known here."""


def as_bytes(raw: object) -> bytes:
    return json.dumps(raw).encode()


def with_member(*members: object, **more: object) -> bytes:
    return as_bytes({"name": NAME, "members": members, **more})


def read(data: bytes) -> Team:
    team = parse(data)
    assert isinstance(team, Team), team
    return team


def reason(data: bytes) -> str:
    said = parse(data)
    assert isinstance(said, Unreadable), said
    return said.reason


def some(team: Team | None) -> Team:
    assert team is not None
    return team


TEAM = read(as_bytes(FOREIGN))
WORKER = TEAM.identity(TEAM.members[1])

# ── what is read ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.1", "07.22")
def test_every_field_of_another_programs_config_is_read() -> None:
    lead, worker = TEAM.members
    team = TEAM
    assert team == Team(
        name=NAME,
        description="to mend the parser",
        created_at=1_764_500_000_000,
        lead_agent_id=f"team-lead@{NAME}",
        lead_session_id="1a2b3c4d-0000-4000-8000-000000000001",
        entries=(lead, worker),
    )
    assert lead == Member(
        name="team-lead",
        joined_at=1_764_500_000_000,
        agent_id=f"team-lead@{NAME}",
        type="team-lead",
        pane="leader",
        cwd="/home/ann/größe",
    )
    assert worker == Member(
        name="worker",
        joined_at=1_764_500_001_000,
        agent_id=f"worker@{NAME}",
        type="coder",
        model="m-1",
        prompt="Mend it.\u2028",
        color="blue",
        plan_mode_required=True,
        pane="%2",
        cwd="/work",
        worktree="/tree",
        subscriptions=("news",),
        backend="tmux",
        active=False,
        mode="plan",
        session_id="5e55",
    )
    assert TEAM.problems == ()


@pytest.mark.rule("07.1", "07.22")
def test_the_least_that_is_a_config() -> None:
    assert read(with_member()) == Team(name=NAME)
    assert read(with_member({"name": "w"})).members == (Member(name="w"),)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"\xff", "it is not UTF-8"),
        (b"\xef\xbb\xbf{}", "it is not JSON"),
        (b"{", "it is not JSON"),
        (b"{}{}", "it is not JSON"),
        (as_bytes(FOREIGN)[:-1], "it is not JSON"),
        (b'{"name":"t","members":[],"x":NaN}', "it is not JSON"),
        (b'{"name":"t","members":[],"x":-Infinity}', "it is not JSON"),
        (b'{"name":"t","members":[],"x":1e999}', "it is not JSON"),
        (b'{"name":"t","members":[],"x":' + b"9" * 5_000 + b"}", "it is not JSON"),
        (b"[]", "it is not a JSON object"),
        (b"null", "it is not a JSON object"),
        (b'{"members":[]}', "it has no name of a team"),
        (b'{"name":"","members":[]}', "it has no name of a team"),
        (b'{"name":7,"members":[]}', "it has no name of a team"),
        (b'{"name":"t"}', "it has no list of members"),
        (b'{"name":"t","members":{}}', "it has no list of members"),
        (b"[" * 1_000_000, "it is nested too deep"),
        (with_member(x=json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)), "it is nested too deep"),
    ],
    ids=lambda value: value[:30] if isinstance(value, bytes) else "",
)
@pytest.mark.rule("07.22")
def test_bytes_that_are_no_config_are_told_apart(data: bytes, says: str) -> None:
    assert reason(data) == says


def test_what_is_nested_as_deep_as_allowed_is_read_and_written() -> None:
    team = read(with_member(x=json.loads("[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1))))
    assert read(encode(team)) == team


WRONG: tuple[tuple[tuple[str, ...], tuple[object, ...]], ...] = (
    (("joinedAt",), (-1, "1", None, True, MAX_TIME + 1, 1e300, [])),
    (("agentType", "cwd", "tmuxPaneId", "sessionId"), (1, None, {})),
    (("planModeRequired", "isActive"), (1, "true", None)),
    (("subscriptions",), ("x", [1], {"a": "b"}, None)),
)
"""Fields, and what they cannot hold."""


@pytest.mark.rule("07.22")
@pytest.mark.parametrize(
    ("key", "value"),
    [(key, value) for keys, values in WRONG for key in keys for value in values],
)
def test_a_field_that_is_not_what_it_should_be_says_nothing_and_stays(key: str, value: object) -> None:
    data = with_member({"name": "w", key: value})
    team = read(data)
    assert team.members == (Member(name="w"),)
    changed = some(updated(team, replace(team.members[0], mode="plan")))
    [written] = json.loads(encode(changed))["members"]
    assert written[key] == value
    assert written["mode"] == "plan"


def test_a_time_may_be_written_as_any_number_of_milliseconds() -> None:
    team = read(b'{"name":"t","createdAt":1.764e12,"members":[{"name":"w","joinedAt":%d}]}' % MAX_TIME)
    assert (team.created_at, team.members[0].joined_at) == (1_764_000_000_000, MAX_TIME)


@pytest.mark.rule("07.8")
@pytest.mark.parametrize(
    ("entry", "says", "name"),
    [
        (7, "is not an object", ""),
        ([], "is not an object", ""),
        ({}, "has a name that no member can have", ""),
        ({"name": 7}, "has a name that no member can have", ""),
        ({"name": "../../x"}, "has a name that no member can have", "../../x"),
        ({"name": "x" * 70}, "has a name that no member can have", "x" * 65),
        ({"name": "main"}, "has the name main, which is reserved", "main"),
        ({"name": "Team_Lead"}, "has the name Team_Lead, which is reserved", "Team_Lead"),
        ({"name": "w", "joinedAt": 9}, "has the name w, as an earlier one has", "w"),
    ],
)
def test_report_14_an_entry_that_can_be_no_member_is_kept_and_told_of(
    entry: object, says: str, name: str
) -> None:
    data = with_member({"name": "w"}, entry, {"name": "v"})
    team = read(data)
    assert team.entries == (Member(name="w"), Strange(reason=says, name=name), Member(name="v"))
    assert team.problems == (f"Entry 2 of the members {says}.",)
    done = joined(team, Member(name="new"), 5)
    assert json.loads(encode(done.team))["members"][1] == entry


# ── what is written ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.22")
def test_what_no_step_changed_is_written_as_it_came_and_in_its_order() -> None:
    assert encode(TEAM) == json.dumps(FOREIGN, indent=2, ensure_ascii=False).encode() + b"\n"


@pytest.mark.rule("07.1", "07.22")
def test_a_new_team_is_written_with_every_field_that_other_programs_need() -> None:
    team = founded(NAME, 1_000, lead_session_id="s-1")
    team = joined(
        team, Member(name="worker", cwd="/work", pane="in-process", backend="in-process"), 2_000
    ).team
    assert json.loads(encode(team)) == {
        "name": NAME,
        "createdAt": 1_000,
        "leadAgentId": f"team-lead@{NAME}",
        "leadSessionId": "s-1",
        "members": [
            {
                "agentId": f"team-lead@{NAME}",
                "name": "team-lead",
                "agentType": "team-lead",
                "joinedAt": 1_000,
                "tmuxPaneId": "leader",
                "cwd": "",
                "subscriptions": [],
                "sessionId": "s-1",
            },
            {
                "agentId": f"worker@{NAME}",
                "name": "worker",
                "joinedAt": 2_000,
                "tmuxPaneId": "in-process",
                "cwd": "/work",
                "subscriptions": [],
                "backendType": "in-process",
            },
        ],
    }


@pytest.mark.rule("07.22")
def test_one_change_changes_one_thing() -> None:
    busy = some(updated(TEAM, replace(TEAM.members[1], active=True, mode="", subscriptions=("a", "b"))))
    wanted = json.loads(as_bytes(FOREIGN))
    worker = wanted["members"][1]
    worker |= {"isActive": True, "subscriptions": ["a", "b"]}
    del worker["mode"]
    assert json.loads(encode(busy)) == wanted


@pytest.mark.rule("07.22")
def test_a_member_that_came_without_what_it_needs_gets_it_only_when_it_is_written() -> None:
    [written] = json.loads(encode(read(with_member({"name": "w", "x": 1}))))["members"]
    assert written == {
        "name": "w",
        "x": 1,
        "agentId": "",
        "joinedAt": 0,
        "tmuxPaneId": "",
        "cwd": "",
        "subscriptions": [],
    }


@pytest.mark.rule("02.25", "07.22")
def test_an_eviction_stands_under_our_key_and_goes_with_a_rebuilding() -> None:
    out = some(evicted(TEAM, WORKER, 9_000))
    data = encode(out)
    written = json.loads(data)["members"][1]
    assert written["postroom"] == {"evictedAt": 9_000}
    again = read(data)
    assert again == out
    back = some(rebuilt(again, WORKER))
    written = json.loads(encode(back))["members"][1]
    assert "postroom" not in written
    assert written["isActive"] is True
    assert read(encode(back)) == back


def test_what_else_stands_under_our_key_stays() -> None:
    """A later version of ours may write more there."""
    ours = {"evictedAt": 5, "new": [1]}
    team = read(with_member({"name": "w", "postroom": ours}, {"name": "v"}, postroom={"new": 2}))
    assert team.members[0].evicted_at == 5
    team = some(rebuilt(team, team.identity(team.members[0])))
    team = some(without(team, team.identity(team.members[1]), 7))
    written = json.loads(encode(team))
    assert written["members"][0]["postroom"] == {"new": [1]}
    assert written["postroom"] == {
        "new": 2,
        "left": [{"name": "v", "joinedAt": 0, "at": 7, "why": "left"}],
    }


@pytest.mark.parametrize("ours", [7, None, [], "x", {"evictedAt": "x", "left": 7}, {"left": {}}])
def test_our_key_may_hold_anything_and_says_nothing_then(ours: object) -> None:
    team = read(with_member({"name": "w", "postroom": ours}, postroom=ours))
    assert team == Team(name=NAME, entries=(Member(name="w"),))
    written = json.loads(encode(team))
    assert written["postroom"] == written["members"][0]["postroom"] == ours
    out = some(evicted(team, team.identity(team.members[0]), 4))
    assert read(encode(out)) == out


@pytest.mark.rule("07.22")
def test_who_left_is_written_down_with_the_time() -> None:
    team = some(without(TEAM, WORKER, 9_000, "shutdown"))
    written = json.loads(encode(team))
    assert written["postroom"] == {
        "left": [{"name": "worker", "joinedAt": 1_764_500_001_000, "at": 9_000, "why": "shutdown"}]
    }
    again = read(encode(team))
    assert again == team
    assert [member.name for member in again.members] == ["team-lead"]
    assert joined(again, Member(name="worker"), 1).before == team.left


def test_of_departures_that_cannot_be_used_the_rest_counts() -> None:
    good = {"name": "w", "joinedAt": 1, "at": 2, "why": "removed"}
    listed: list[object] = [7, {}, {"name": "../x", "at": 1}, good, {"name": "v", "why": {}}]
    team = read(with_member(postroom={"left": listed}))
    assert team.left == (
        Departure(name="w", joined_at=1, at=2, why="removed"),
        Departure(name="v", joined_at=0, at=0),
    )
    assert json.loads(encode(team))["postroom"] == {"left": listed}


def test_of_many_departures_the_latest_count() -> None:
    listed = [{"name": f"w{number}", "joinedAt": 1, "at": number} for number in range(MAX_LEFT + 3)]
    left = read(with_member(postroom={"left": listed})).left
    assert (left[0].name, len(left)) == ("w3", MAX_LEFT)


@pytest.mark.rule("07.22")
def test_an_entry_of_the_same_name_goes_with_the_member_and_takes_no_place_of_it() -> None:
    longest = "x" * 64
    team = read(with_member({"name": longest}, {"name": longest}, {"name": f"{longest}y"}))
    team = some(without(team, team.identity(team.members[0]), 3))
    assert [entry.name for entry in team.entries] == [f"{longest}y"]
    assert read(encode(team)) == team


@pytest.mark.rule("07.22")
def test_what_another_program_drops_costs_the_remembrance_and_no_identity() -> None:
    team = some(evicted(TEAM, WORKER, 9_000))
    plain = json.loads(encode(team))
    del plain["members"][1]["postroom"]
    again = read(as_bytes(plain))
    assert again.identified(WORKER) == replace(some(team).members[1], evicted_at=None)


def test_half_a_surrogate_pair_is_written_as_it_came() -> None:
    data = with_member({"name": "w", "cwd": "/\udcff", "prompt": "é"})
    again = read(encode(read(data)))
    assert again.members[0].cwd == "/\udcff"
    assert again.members[0].prompt == "é"


# ── whatever comes ───────────────────────────────────────────────────────────────────────────────

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = [*FOREIGN["members"][1], "postroom", "x"]
TIME = st.integers(0, 5) | ANYTHING
OURS = st.fixed_dictionaries({}, optional={"evictedAt": TIME, "x": ANYTHING}) | ANYTHING
ENTRY = ANYTHING | st.fixed_dictionaries(
    {"name": st.sampled_from(["w", "v", "team-lead", "main", "a/b"]) | ANYTHING},
    optional={key: OURS if key == "postroom" else ANYTHING for key in KEYS if key != "name"},
)
GONE = st.fixed_dictionaries(
    {"name": st.sampled_from(["w", "u"])}, optional={"joinedAt": TIME, "at": TIME, "why": TIME}
)
CONFIG = st.fixed_dictionaries(
    {"name": st.just(NAME), "members": st.lists(ENTRY, max_size=4)},
    optional={
        **{key: ANYTHING for key in FOREIGN if key not in ("name", "members")},
        "postroom": st.fixed_dictionaries({}, optional={"left": st.lists(GONE | ANYTHING, max_size=3)})
        | ANYTHING,
    },
)

STEPS: list[Callable[[Team, str], Team | None]] = [
    lambda team, identity: evicted(team, identity, 3),
    lambda team, identity: rebuilt(team, identity),
    lambda team, identity: without(team, identity, 4),
    lambda team, identity: joined(team, Member(name="w", cwd="/", pane="%1"), 2).team,
]


def kept(before: dict[str, Any], after: dict[str, Any], but: set[str]) -> bool:
    """Whether everything of one object stands in the other, some keys apart."""
    return all(
        json.dumps(after.get(key)) == json.dumps(value) for key, value in before.items() if key not in but
    )


@given(CONFIG, st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), max_size=3))
@settings(max_examples=200, deadline=None)
@pytest.mark.rule("07.22")
def test_any_config_and_any_steps_are_read_back_and_nothing_foreign_is_lost(
    raw: dict[str, Any], steps: list[tuple[Callable[[Team, str], Team | None], int]]
) -> None:
    team = read(as_bytes(raw))
    assert kept(raw, json.loads(encode(team)), {"members"})
    for step, number in steps:
        if team.members:
            team = step(team, team.identity(team.members[number % len(team.members)])) or team
    data = encode(team)
    again = read(data)
    assert again == team
    assert encode(again) == data
    written = json.loads(data)
    assert kept(raw, written, {"members", "postroom"})
    for entry, member in zip(team.entries, written["members"], strict=True):
        if isinstance(entry, Strange):
            assert json.dumps(member) == json.dumps(entry.raw)
        else:
            assert kept(cast("dict[str, Any]", entry.raw), member, {"isActive", "postroom"})


@given(st.binary(max_size=60) | ANYTHING.map(as_bytes) | st.text(max_size=30).map(str.encode))
@settings(max_examples=200)
def test_whatever_bytes_come_nothing_is_raised(data: bytes) -> None:
    assert isinstance(parse(data), Team | Unreadable)
