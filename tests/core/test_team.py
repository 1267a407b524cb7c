"""The members of a team: names that are files, and one identity for each member however often its name is used."""

from __future__ import annotations

import string
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from postroom.core.address import MAX_NAME, identity_hash, normal_form, ref_of
from postroom.core.index import Index
from postroom.core.team import (
    MAX_LEFT,
    Departure,
    Joined,
    Member,
    Strange,
    Team,
    Why,
    candidate,
    changes,
    check_member_name,
    check_team_name,
    evicted,
    folder_of,
    founded,
    is_member_name,
    joined,
    rebuilt,
    remembering,
    taken_up,
    team_name,
    updated,
    without,
)
from postroom.errors import InvalidName

SESSION = "1a2b3c4d-0000-4000-8000-000000000001"
NAME = "session-1a2b3c4d"
NEW = founded(NAME, 1_000, lead_session_id=SESSION)
FILE_LETTERS = string.ascii_letters + string.digits + "-_"

HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "../../../tmp/x",
    "/abs",
    "a/b",
    "a\\b",
    "a\0b",
    "a.json",
    "dot.",
    "a b",
    "a\n",
    "é",
    "٣",
    "ａ",
    "\u202eabc",
    "😀",
    "x" * (MAX_NAME + 1),
    "x" * 100_000,
]
"""Names that must be no file's: of case 14 and more."""


def add(team: Team, name: str, at: int = 2_000, **fields: str) -> Joined:
    return joined(team, Member(name=name, **fields), at)  # pyright: ignore[reportArgumentType]


def key(team: Team, name: str) -> str:
    """The identity of the member of that name."""
    member = team.member(name)
    assert member is not None
    return team.identity(member)


def some(team: Team | None) -> Team:
    assert team is not None
    return team


ONE = add(NEW, "worker", 2_000, cwd="/work", type="coder").team

# ── names ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.21")
@pytest.mark.parametrize(
    ("session_id", "name"),
    [
        (SESSION, NAME),
        (SESSION.upper(), NAME),
        ("1a2b3c4d", NAME),
        ("1a2b3c4", f"session-{identity_hash('1a2b3c4')[:8]}"),
        ("my-session", f"session-{identity_hash('my-session')[:8]}"),
        ("", f"session-{identity_hash('')[:8]}"),
    ],
)
def test_a_sessions_own_team_is_called_by_the_first_eight_digits_of_its_id(
    session_id: str, name: str
) -> None:
    assert team_name(session_id) == name == check_team_name(name)
    assert folder_of(name) == name


@pytest.mark.rule("07.21")
@pytest.mark.parametrize(
    ("team", "folder"),
    [("My Team", "my-team"), ("a.b_c-1", "a-b-c-1"), ("İ", "i-"), ("../x", "---x"), ("größe", "gr--e")],
)
def test_the_folder_of_a_team_has_lower_case_and_hyphens(team: str, folder: str) -> None:
    assert folder_of(team) == folder


@pytest.mark.rule("07.8")
@given(st.text(max_size=80))
@settings(max_examples=200)
def test_no_folder_of_a_team_lies_anywhere_else(team: str) -> None:
    assert set(folder_of(team)) <= set(string.ascii_lowercase + string.digits + "-")


@pytest.mark.rule("07.8")
@pytest.mark.parametrize("name", ["a", "A-z_0.9 b", "x" * MAX_NAME, "main"])
def test_what_a_team_can_be_called(name: str) -> None:
    assert check_team_name(name) == name


@pytest.mark.rule("07.8")
@pytest.mark.parametrize("name", [*(set(HOSTILE) - {"a.json", "a b"}), "-a", "a-", " a", "a@b", "_", "(a)"])
def test_report_14_a_team_is_called_nothing_that_could_mean_another_folder(name: str) -> None:
    with pytest.raises(InvalidName, match="A team's name has") as caught:
        check_team_name(name)
    assert len(name) < 3 or name not in str(caught.value)


@pytest.mark.rule("07.8")
@pytest.mark.parametrize("name", ["a", "A-z_09", "x" * MAX_NAME])
def test_what_a_member_can_be_called(name: str) -> None:
    assert is_member_name(name)
    assert check_member_name(name) == name


@pytest.mark.rule("07.8")
@pytest.mark.parametrize("name", HOSTILE)
def test_report_14_a_member_is_called_nothing_that_could_mean_another_file(name: str) -> None:
    assert not is_member_name(name)
    with pytest.raises(InvalidName, match="A member's name has") as caught:
        check_member_name(name)
    assert len(name) < 3 or name not in str(caught.value)


@pytest.mark.rule("02.2")
@pytest.mark.parametrize(
    "name", ["-a", "a_", "_", "main", "Team-Lead", "team_lead", "USER", "system", "postroom"]
)
def test_a_members_name_is_also_a_name_at_all(name: str) -> None:
    assert is_member_name(name)
    with pytest.raises(InvalidName):
        check_member_name(name)


@pytest.mark.rule("02.2")
def test_only_the_lead_is_called_team_lead_and_in_these_letters() -> None:
    assert check_member_name("team-lead", lead=True) == "team-lead"
    for name, lead in (("team-lead", False), ("Team-Lead", True), ("main", True)):
        with pytest.raises(InvalidName, match="reserved"):
            check_member_name(name, lead=lead)


# ── a team begins ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.22")
def test_a_team_is_active_while_it_has_a_member_besides_its_lead() -> None:
    assert not NEW.active
    assert ONE.active
    assert not some(without(ONE, key(ONE, "worker"), 3_000)).active


@pytest.mark.rule("07.22")
def test_the_first_entry_is_the_lead_whatever_is_said_of_it() -> None:
    [lead] = NEW.members
    assert lead == Member(
        name="team-lead",
        joined_at=1_000,
        agent_id=f"team-lead@{NAME}",
        type="team-lead",
        pane="leader",
        session_id=SESSION,
    )
    assert (NEW.name, NEW.created_at, NEW.lead_agent_id, NEW.lead_session_id) == (
        NAME,
        1_000,
        lead.agent_id,
        SESSION,
    )
    said = Member(name="x", cwd="/here", model="m", type="coder", evicted_at=1, joined_at=7)
    [told] = founded(NAME, 1_000, lead_session_id=SESSION, lead=said).members
    assert told == replace(lead, cwd="/here", model="m", pane="")
    assert lead.lead
    assert not replace(
        lead, backend="in-process", pane="in-process"
    ).in_process  # it does not end with itself


@pytest.mark.rule("07.8")
def test_no_team_is_founded_under_a_bad_name() -> None:
    with pytest.raises(InvalidName):
        founded("../x", 1, lead_session_id=SESSION)


def test_each_record_says_in_a_line_what_it_is() -> None:
    assert repr(ONE) == f"<Team '{NAME}' of 2 members>"
    assert repr(ONE.member("worker")) == "<Member 'worker' since 2000>"
    out = some(evicted(ONE, key(ONE, "worker"), 3_000))
    assert repr(out.member("worker")) == "<Member 'worker' since 2000, evicted>"


def test_an_entry_that_is_no_member_is_told_of_by_its_place() -> None:
    strange = Strange(reason="is not an object", raw=7)
    assert replace(ONE, entries=(*ONE.entries, strange)).problems == (
        "Entry 3 of the members is not an object.",
    )
    assert ONE.problems == ()


# ── joining ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.22")
def test_a_member_keeps_what_is_said_of_it_and_gets_its_id_here() -> None:
    said = Member(name="worker", cwd="/work", agent_id="x@y", joined_at=1, evicted_at=5, backend="tmux")
    done = joined(NEW, said, 2_000)
    assert done.member == Member(
        name="worker", cwd="/work", agent_id=f"worker@{NAME}", joined_at=2_000, backend="tmux"
    )
    assert done.team.members == (*NEW.members, done.member)
    assert (done.asked, done.before) == ("", ())


@pytest.mark.rule("02.3", "07.22")
def test_report_13_a_name_that_is_taken_gets_a_variant_and_that_is_said() -> None:
    team = ONE
    for name, asked, got in (
        ("worker", "worker", "worker-2"),
        ("Worker", "Worker", "Worker-3"),
        ("WORKER_2", "WORKER_2", "WORKER_2-2"),
        ("free", "", "free"),
    ):
        done = add(team, name)
        assert (done.asked, done.member.name) == (asked, got)
        assert done.member.agent_id == f"{got}@{NAME}"
        team = done.team


@pytest.mark.rule("07.8")
@given(st.lists(st.text("aB-_2", min_size=1, max_size=4), max_size=12))
@settings(max_examples=100)
def test_no_two_members_are_called_alike_or_by_what_no_file_can_have(names: list[str]) -> None:
    team = NEW
    for name in names:
        try:
            team = add(team, name).team
        except InvalidName:
            continue
    forms = [normal_form(member.name) for member in team.members]
    assert len(set(forms)) == len(forms)
    assert all(is_member_name(member.name) for member in team.members)


@pytest.mark.rule("07.8")
def test_a_variant_of_the_longest_name_has_no_more_letters() -> None:
    team = add(add(NEW, "x" * MAX_NAME).team, "x" * MAX_NAME).team
    assert [len(member.name) for member in team.members][1:] == [MAX_NAME, MAX_NAME]
    assert len({member.name for member in team.members}) == 3


@pytest.mark.rule("07.8")
def test_the_name_of_an_entry_that_is_no_member_is_taken_too() -> None:
    """Its program may write to the inbox of that name."""
    entry = Strange(reason="has the name worker, as an earlier one has", name="worker")
    team = replace(NEW, entries=(*NEW.entries, entry, Strange(reason="is not an object")))
    assert add(team, "worker").member.name == "worker-2"


@pytest.mark.rule("02.2", "07.8")
@pytest.mark.parametrize("name", ["team-lead", "main", "../x", "a/b"])
def test_nobody_joins_as_the_lead_or_under_a_bad_name(name: str) -> None:
    with pytest.raises(InvalidName):
        add(NEW, name)


# ── leaving, and a name that is used again ───────────────────────────────────────────────────────


@pytest.mark.rule("07.22")
def test_who_left_is_remembered_with_the_time() -> None:
    identity = key(ONE, "worker")
    team = some(without(ONE, identity, 3_000, "shutdown"))
    assert team.members == NEW.members
    [gone] = team.left
    assert gone == Departure(name="worker", joined_at=2_000, at=3_000, why="shutdown")
    assert team.identity(gone) == identity
    assert team.departed("Worker") == gone
    assert str(gone) == "worker was shut down at 1970-01-01T00:00:03Z."
    assert team.departed("another") is ONE.departed("worker") is None


@pytest.mark.rule("07.22")
def test_each_way_to_go_has_a_sentence() -> None:
    said = {str(Departure(name="w", joined_at=0, at=0, why=why)) for why in get_args(Why)}
    assert len(said) == 4
    assert "w left the team at 1970-01-01T00:00:00Z." in said


@pytest.mark.rule("07.22")
@pytest.mark.parametrize("later", [9_000, 2_000, 1])
def test_a_name_that_is_used_again_is_another_member_whatever_the_clock_says(later: int) -> None:
    first = key(ONE, "worker")
    team = some(without(ONE, first, 3_000))
    again = joined(team, Member(name="worker"), later)
    second = again.team.identity(again.member)
    assert again.before == team.left
    assert second != first
    assert again.team.identified(first) is None
    assert again.team.identified(second) == again.member
    assert again.team.departed("worker") is None
    third = joined(some(without(again.team, second, 4_000)), Member(name="worker"), later)
    assert third.team.identity(third.member) not in (first, second)
    assert [gone.joined_at for gone in third.before] == [2_000, again.member.joined_at]


@pytest.mark.rule("07.22")
def test_who_has_the_same_file_where_case_does_not_count_was_there_before() -> None:
    team = some(without(ONE, key(ONE, "worker"), 3_000))
    assert add(team, "Worker").before == team.left
    assert add(team, "work-er").before == ()


@pytest.mark.rule("07.22")
def test_of_several_that_left_under_one_name_the_last_is_told() -> None:
    team = some(without(ONE, key(ONE, "worker"), 3_000))
    team = add(team, "Worker", 4_000).team
    team = some(without(team, key(team, "Worker"), 5_000, "removed"))
    gone = team.departed("worker")
    assert gone is not None
    assert (gone.name, gone.at) == ("Worker", 5_000)


@pytest.mark.rule("07.22")
def test_what_is_remembered_is_bounded_and_the_latest_stay() -> None:
    team = NEW
    for number in range(MAX_LEFT + 5):
        team = add(team, f"w{number}").team
        team = some(without(team, key(team, f"w{number}"), 3_000 + number))
    assert [gone.name for gone in team.left] == [f"w{number}" for number in range(5, MAX_LEFT + 5)]


@pytest.mark.rule("07.22")
def test_what_another_program_took_out_without_a_word_is_remembered_once() -> None:
    before = add(add(ONE, "told").team, "silent").team
    after = some(without(before, key(before, "told"), 4_000))
    after = replace(after, entries=tuple(e for e in after.members if e.name not in ("silent", "team-lead")))
    team = remembering(after, before, 5_000)
    assert [(gone.name, gone.at, gone.why) for gone in team.left] == [
        ("told", 4_000, "left"),
        ("silent", 5_000, "vanished"),
    ]
    assert remembering(team, before, 6_000) is team
    assert remembering(ONE, ONE, 6_000) is ONE


@pytest.mark.rule("07.22")
def test_also_what_vanished_is_remembered_within_bounds() -> None:
    before = NEW
    for number in range(MAX_LEFT + 5):
        before = add(before, f"w{number}").team
    left = remembering(NEW, before, 9_000).left
    assert [left[0].name, left[-1].name, len(left)] == ["w5", f"w{MAX_LEFT + 4}", MAX_LEFT]


# ── evicting and rebuilding ──────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.25", "07.22")
def test_an_evicted_member_stays_one_and_is_rebuilt_as_the_same() -> None:
    identity = key(ONE, "worker")
    out = some(evicted(ONE, identity, 3_000))
    member = out.identified(identity)
    assert member is not None
    assert (member.evicted_at, member.active) == (3_000, False)
    assert out.active
    assert out.left == ()
    assert evicted(out, identity, 4_000) is None
    back = some(rebuilt(out, identity)).identified(identity)
    assert back == replace(member, evicted_at=None, active=True)


@pytest.mark.rule("07.22")
def test_an_eviction_at_the_beginning_of_time_is_one() -> None:
    out = some(evicted(ONE, key(ONE, "worker"), 0))
    assert evicted(out, key(ONE, "worker"), 1) is None
    assert rebuilt(out, key(ONE, "worker")) is not None


@pytest.mark.rule("02.21", "07.22")
def test_no_step_touches_another_member_than_the_one_that_is_meant() -> None:
    """Neither one that left, nor one that has its name now, nor the lead."""
    identity = key(ONE, "worker")
    team = joined(some(without(ONE, identity, 3_000)), Member(name="worker"), 4_000).team
    lead = key(team, "team-lead")
    for nobody in (identity, "", "worker"):
        assert without(team, nobody, 5_000) is evicted(team, nobody, 5_000) is rebuilt(team, nobody) is None
    assert without(team, lead, 5_000) is evicted(team, lead, 5_000) is rebuilt(team, lead) is None
    assert rebuilt(team, key(team, "worker")) is None  # it runs
    assert updated(team, Member(name="worker", joined_at=2_000)) is None


def test_other_news_of_a_member_takes_its_place() -> None:
    member = replace(some(ONE).members[1], mode="plan", active=False)
    assert some(updated(ONE, member)).members == (ONE.members[0], member)


@pytest.mark.rule("07.22")
@pytest.mark.parametrize("where", [{"backend": "in-process"}, {"pane": "in-process"}])
def test_after_a_crash_what_lived_in_the_leads_process_is_evicted(where: dict[str, str]) -> None:
    team = add(
        add(add(NEW, "inside", 2_000, **where).team, "alive", 2_000, **where).team, "pane", pane="%1"
    ).team
    lead = replace(team.members[0], backend="in-process")
    team = some(updated(team, lead))
    after = taken_up(team, {key(team, "alive")}, 5_000)
    assert [(member.name, member.evicted_at) for member in after.members] == [
        ("team-lead", None),
        ("inside", 5_000),
        ("alive", None),
        ("pane", None),
    ]
    assert taken_up(after, {key(team, "alive")}, 6_000) == after


# ── looking at it ────────────────────────────────────────────────────────────────────────────────


def test_two_looks_are_compared_by_who_the_members_are() -> None:
    worker = ONE.members[1]
    assert changes(None, None) == ((), (), ())
    assert changes(None, ONE) == (ONE.members, (), ())
    assert changes(ONE, None) == ((), ONE.members, ())
    again = joined(some(without(ONE, key(ONE, "worker"), 3_000)), Member(name="worker"), 4_000)
    assert changes(ONE, again.team) == ((again.member,), (worker,), ())
    idle = replace(worker, active=False)
    assert changes(ONE, some(updated(ONE, idle))) == ((), (), (idle,))


@pytest.mark.rule("02.7", "02.9")
def test_a_member_is_a_candidate_near_by_under_its_identity() -> None:
    worker = ONE.members[1]
    one = candidate(ONE, worker, own=True, address="mailbox:/x")
    assert one.identity == ONE.identity(worker) == f"worker@{NAME}#2000"
    assert (one.name, one.kind, one.type, one.where, one.near) == (
        "worker",
        "teammate",
        "coder",
        "/work",
        True,
    )
    assert (one.ref, one.own, one.address, one.live) == (ref_of(one.identity), True, "mailbox:/x", True)
    out = some(evicted(ONE, one.identity, 3_000))
    other = candidate(out, out.members[1])
    assert (other.live, other.own, other.identity) == (False, False, one.identity)
    index = Index([other])
    assert index.get(one.identity) == other


def test_one_name_is_one_identity_in_each_team() -> None:
    other = add(founded("other", 1_000, lead_session_id="s"), "worker", 2_000)
    assert other.team.identity(other.member) != key(ONE, "worker")


# ── any order of steps ───────────────────────────────────────────────────────────────────────────

NAMES = st.sampled_from(["a", "A", "b", "a-2"])
TIMES = st.integers(0, 50)


class AnyOrder(RuleBasedStateMachine):
    """Members come, go, are evicted and rebuilt, and the clock jumps: an identity is never used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.team = NEW
        self.seen: set[str] = set()

    def _one(self, number: int) -> str:
        identities = [self.team.identity(member) for member in self.team.members]
        return identities[number % len(identities)]

    @rule(name=NAMES, at=TIMES)
    def join(self, name: str, at: int) -> None:
        done = joined(self.team, Member(name=name), at)
        identity = done.team.identity(done.member)
        assert identity not in self.seen
        self.seen.add(identity)
        self.team = done.team

    @rule(number=st.integers(0, 9), at=TIMES)
    def leave(self, number: int, at: int) -> None:
        self.team = without(self.team, self._one(number), at) or self.team

    @rule(number=st.integers(0, 9), at=TIMES)
    def evict(self, number: int, at: int) -> None:
        identity = self._one(number)
        self.team = evicted(self.team, identity, at) or self.team
        assert self.team.identified(identity) is not None

    @rule(number=st.integers(0, 9))
    def rebuild(self, number: int) -> None:
        identity = self._one(number)
        self.team = rebuilt(self.team, identity) or self.team
        assert self.team.identified(identity) is not None

    @invariant()
    def everybody_is_there_or_remembered(self) -> None:
        here = {self.team.identity(member) for member in self.team.members if not member.lead}
        gone = {self.team.identity(one) for one in self.team.left}
        assert not here & gone
        assert here | gone == self.seen
        assert [member.name for member in self.team.members].count("team-lead") == 1


@pytest.mark.rule("07.22")
def test_an_identity_is_never_used_twice() -> None:
    run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
        AnyOrder, settings=settings(max_examples=60, stateful_step_count=20, deadline=None)
    )
