"""The hold queue: order, room, deadlines, judging again; and the table of who is told what."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from postroom.core import inbound
from postroom.core.holds import (
    CAPACITY,
    MIN_PREFIX,
    NEVER_EXPIRE,
    ONLY,
    TOLD_HEAD,
    WHO_IS_TOLD,
    Changes,
    Hold,
    HoldQueue,
    deadline,
    told_table,
)
from postroom.core.inbound import Judgement
from postroom.core.message import TRANSITIONS, Message, Origin
from postroom.core.settings import Cause, InboundSetting, InboundValue, Scope

CAUSES: tuple[Cause, ...] = get_args(Cause)
BY_SETTING: tuple[Cause, ...] = ("explicit-setting", "managed-setting", "repo-setting", "invalid-setting")
BY_DEFAULT = tuple(cause for cause in CAUSES if cause not in BY_SETTING)
START = 1_796_033_702_000
PERIOD = 300_000
PEER = Origin(kind="peer", identity="5f0e")


def hold(
    row: int, *, msg_id: str = "", cause: Cause = "mode-mismatch", expires_at: int | None = None
) -> Hold:
    message = Message(msg_id=msg_id or f"m-{row}", text="hello", origin=PEER, received_at=START, state="held")
    return Hold(row=row, message=message, cause=cause, scope="default", rung="class", expires_at=expires_at)


def by_setting(value: InboundValue, scope: Scope = "user", cause: Cause = "explicit-setting") -> Judgement:
    """What the ladder says of anybody's message under a setting."""
    setting = InboundSetting(value=value, scope=scope, cause=cause)
    return inbound.decide(PEER, False, inbound.Policy("prompting", setting, 50))


def held_for(cause: Cause) -> Judgement:
    return replace(inbound.OTHER_CLASS, cause=cause)


def rows(holds: tuple[Hold, ...] | list[Hold] | HoldQueue) -> list[int]:
    return [one.row for one in holds]


def rejudged(
    queue: HoldQueue,
    judgement: Judgement,
    now: int = START,
    expiry: int | None = PERIOD,
    *,
    kind: str = "headless",
    attached: bool = False,
) -> Changes:
    """All holds are judged to be the same."""
    return queue.rejudge(lambda _: judgement, now, expiry, kind=kind, attached=attached)


# ── who is told what ─────────────────────────────────────────────────────────────────────────────

FROM_THE_CHAPTER = [
    # what happens, the notice to the sender, its detail, the state here
    pytest.param("accepted", "", "", "accepted", marks=pytest.mark.rule("03.50")),
    ("repeated", "", "", "duplicate"),
    pytest.param("held", "held", "", "held", marks=pytest.mark.rule("03.51")),
    pytest.param("approved", "delivered", "", "accepted", marks=pytest.mark.rule("03.52")),
    pytest.param("released", "delivered", "", "accepted", marks=pytest.mark.rule("03.52")),
    pytest.param("denied", "denied", "", "denied", marks=pytest.mark.rule("03.53")),
    pytest.param("refused-since", "denied", "", "denied", marks=pytest.mark.rule("03.44")),
    pytest.param("expired", "expired", "deadline", "expired", marks=pytest.mark.rule("03.53")),
    pytest.param("evicted", "expired", "evicted", "evicted", marks=pytest.mark.rule("03.37")),
    pytest.param("session-ended", "expired", "session-ended", "expired", marks=pytest.mark.rule("03.46")),
    ("interrupted", "", "", "held"),
    pytest.param("unread", "expired", "unread", "removed", marks=pytest.mark.rule("03.46")),
    ("consumed", "read", "", "consumed"),
    pytest.param("refused", "refused", "", "refused", marks=pytest.mark.rule("03.54")),
    pytest.param("dropped", "dropped", "", "throttled", marks=pytest.mark.rule("03.55")),
    pytest.param("full", "dropped", "", "full", marks=pytest.mark.rule("03.56")),
]


@pytest.mark.parametrize(("event", "sender", "detail", "receiver"), FROM_THE_CHAPTER)
def test_who_is_told_what(event: str, sender: str, detail: str, receiver: str) -> None:
    row = WHO_IS_TOLD[event]
    assert (row.sender, row.detail, row.receiver) == (sender, detail, receiver)


def test_the_table_has_no_other_row() -> None:
    assert len(WHO_IS_TOLD) == len(FROM_THE_CHAPTER)


@pytest.mark.rule("03.54", "03.55", "03.56", "11.3")
def test_what_a_notice_depends_on() -> None:
    assert {event: row.only for event, row in WHO_IS_TOLD.items() if row.only} == {
        "refused": "refusalNotice",
        "dropped": "unacknowledged",
        "full": "unacknowledged",
        "consumed": "readReceipts",
    }


@pytest.mark.rule("11.3")
def test_a_refusal_after_a_hold_cannot_be_told_from_a_persons_no() -> None:
    denied, refused = WHO_IS_TOLD["denied"], WHO_IS_TOLD["refused-since"]
    assert (denied.sender, denied.detail, denied.words, denied.only) == (
        refused.sender,
        refused.detail,
        refused.words,
        refused.only,
    )
    assert denied.journal != refused.journal  # at home the difference is seen


@pytest.mark.rule("11.1")
def test_whatever_ends_a_hold_is_a_step_that_the_states_have() -> None:
    ends = {event: row.receiver for event, row in WHO_IS_TOLD.items() if row.happens.startswith("held")}
    assert set(ends.values()) - {"held"} == TRANSITIONS["held"]


def test_every_notice_but_those_of_a_hold_and_a_drop_has_its_words() -> None:
    told = {event for event, row in WHO_IS_TOLD.items() if row.sender}
    assert {event for event in told if not WHO_IS_TOLD[event].words} == {"held", "dropped", "full"}
    sentences = [row.words for row in WHO_IS_TOLD.values() if row.words]
    assert all(words[0].isupper() and words.endswith(".") for words in sentences)
    assert not [event for event, row in WHO_IS_TOLD.items() if row.words and not row.sender]


def test_the_table_for_the_documentation() -> None:
    table = told_table()
    assert len(table) == len(WHO_IS_TOLD)
    assert {len(row) for row in table} == {len(TOLD_HEAD)}
    cells = [cell for row in table for cell in row]
    assert not [cell for cell in cells if "|" in cell or "\n" in cell]
    by_event = dict(zip(WHO_IS_TOLD, table, strict=True))
    assert by_event["accepted"] == ("accepted on arrival", "nothing", "", "queued", "03.50")
    assert by_event["evicted"][1:3] == (
        "`expired` (evicted)",
        "Too many messages were held there, and the oldest one made room.",
    )
    assert by_event["refused"][1] == "`refused`, only where `refusalNotice` is `tell`"
    assert by_event["held"][1] == "`held`"


def test_every_condition_has_its_phrase() -> None:
    assert {row.only for row in WHO_IS_TOLD.values()} == set(ONLY)


# ── deadlines ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.38")
@pytest.mark.parametrize("cause", CAUSES)
def test_what_a_setting_holds_never_expires(cause: Cause) -> None:
    ends = deadline(cause, START, PERIOD, kind="headless", attached=False)
    assert ends == (None if cause in BY_SETTING else START + PERIOD)


def test_the_causes_that_never_expire_are_the_four_of_settings() -> None:
    assert frozenset(BY_SETTING) == NEVER_EXPIRE


@pytest.mark.rule("03.38")
def test_never_is_never() -> None:
    assert deadline("mode-unknown", START, None, kind="interactive", attached=True) is None


@pytest.mark.parametrize(
    ("kind", "attached", "runs"),
    [
        ("interactive", False, True),
        pytest.param("headless", False, True, marks=pytest.mark.rule("03.39")),
        ("external", False, True),
        pytest.param("bg", False, False, marks=pytest.mark.rule("03.40")),
        pytest.param("bg", True, True, marks=pytest.mark.rule("03.40")),
    ],
)
def test_a_deadline_runs_unless_nobody_has_attached_to_a_background_session(
    kind: str, attached: bool, runs: bool
) -> None:
    ends = deadline("mode-mismatch", START, 60_000, kind=kind, attached=attached)
    assert ends == (START + 60_000 if runs else None)


# ── the queue ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.37")
def test_a_hundred_are_held_and_then_the_oldest_goes() -> None:
    queue = HoldQueue()
    for row in range(1, CAPACITY + 1):
        assert queue.add(hold(row)) == ()
    assert len(queue) == CAPACITY == 100
    assert rows(queue.add(hold(101))) == [1]
    assert rows(queue.add(hold(102))) == [2]
    assert rows(queue) == list(range(3, 103))


@pytest.mark.rule("03.37")
def test_more_than_there_is_room_for_go_together_the_oldest_first() -> None:
    queue = HoldQueue([hold(row) for row in (5, 3, 4, 1, 2)], capacity=3)
    assert rows(queue) == [1, 2, 3, 4, 5]
    assert rows(queue.add(hold(6))) == [1, 2, 3]
    assert rows(queue) == [4, 5, 6]


def test_a_row_is_held_once() -> None:
    queue = HoldQueue([hold(1)])
    with pytest.raises(ValueError, match="row 1 is held already"):
        queue.add(hold(1, msg_id="other"))
    assert list(queue) == [hold(1)]


def test_one_that_was_taken_out_is_not_there_again() -> None:
    queue = HoldQueue([hold(1), hold(2)])
    assert queue.remove(1) == hold(1)
    assert queue.remove(1) is None
    assert rows(queue) == [2]


def test_holds_may_be_taken_out_while_they_are_gone_through() -> None:
    queue = HoldQueue([hold(row) for row in range(1, 5)])
    seen = [one.row for one in queue if queue.remove(one.row)]
    assert seen == [1, 2, 3, 4]
    assert not len(queue)


@pytest.mark.rule("10.5")
def test_an_id_is_found_whole_or_by_six_characters() -> None:
    queue = HoldQueue([hold(1, msg_id="abcdefgh"), hold(2, msg_id="abcdef"), hold(3, msg_id="abc")])
    assert rows(queue.find("abcdefgh")) == [1]
    assert rows(queue.find("abcdef")) == [2]  # the whole id of one, though another begins so
    assert rows(queue.find("abcdefg")) == [1]
    assert rows(queue.find("abc")) == [3]
    assert queue.find("abcde") == []  # shorter than a prefix may be
    assert len("abcdef") == MIN_PREFIX
    assert queue.find("xyzxyz") == []
    assert queue.find("") == []


@pytest.mark.rule("10.5")
def test_what_several_have_is_told_apart_by_nobody() -> None:
    queue = HoldQueue([hold(1, msg_id="abcdef-1"), hold(2, msg_id="abcdef-2"), hold(3, msg_id="abcdef-2")])
    assert rows(queue.find("abcdef")) == [1, 2, 3]
    assert rows(queue.find("abcdef-2")) == [2, 3]  # two senders may use one id
    assert rows(queue.find("abcdef-2#3")) == [3]
    assert rows(queue.find("abcdef-2#1")) == []


@pytest.mark.rule("03.38")
def test_what_is_due_and_when_the_next_is() -> None:
    queue = HoldQueue([hold(1), hold(2, expires_at=START + 2), hold(3, expires_at=START + 1)])
    assert queue.next_deadline() == START + 1
    assert queue.due(START) == ()
    assert rows(queue.due(START + 1)) == [3]
    assert rows(queue.due(START + 2)) == [2, 3]
    assert len(queue) == 3
    assert HoldQueue([hold(1)]).next_deadline() is None


@pytest.mark.rule("03.40")
def test_an_attach_gives_a_full_period_once() -> None:
    queue = HoldQueue([hold(1), hold(2, cause="explicit-setting"), hold(3, expires_at=START + 7)])
    later = START + 3_600_000
    assert queue.attached(later, PERIOD) == (hold(1, expires_at=later + PERIOD),)
    assert list(queue) == [
        hold(1, expires_at=later + PERIOD),
        hold(2, cause="explicit-setting"),
        hold(3, expires_at=START + 7),
    ]
    assert queue.attached(later + 1, PERIOD) == ()


@pytest.mark.rule("03.40")
def test_an_attach_begins_nothing_that_never_ends() -> None:
    queue = HoldQueue([hold(1)])
    assert queue.attached(START, None) == ()
    assert queue.next_deadline() is None


@pytest.mark.rule("03.40")
def test_a_period_that_began_with_an_attach_is_moved_as_any_other() -> None:
    queue = HoldQueue([hold(1)])
    queue.attached(START, PERIOD)
    rejudged(queue, held_for("mode-mismatch"), START + 1, 600_000, kind="bg", attached=True)
    assert queue.next_deadline() == START + 600_000


def test_an_attach_moves_no_deadline_that_runs_and_forgets_no_period() -> None:
    queue = HoldQueue([hold(1, expires_at=START + PERIOD)], expiry=PERIOD)
    assert queue.attached(START, 600_000) == ()
    rejudged(queue, held_for("mode-mismatch"), START + 1, 600_000, kind="bg", attached=True)
    assert queue.next_deadline() == START + 600_000


# ── judging again ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.43")
def test_exactly_those_that_are_acceptable_now_are_let_in_in_order_of_arrival() -> None:
    queue = HoldQueue([hold(row, expires_at=START + 9) for row in (4, 1, 3, 2)], expiry=PERIOD)
    asked: list[int] = []

    def decide(one: Hold) -> Judgement:
        asked.append(one.row)
        return inbound.ACCEPTED if one.row % 2 else inbound.OTHER_CLASS

    changes = queue.rejudge(decide, START, PERIOD, kind="headless", attached=False)
    assert asked == [1, 2, 3, 4]
    assert rows(changes.released) == [1, 3]
    assert (changes.dropped, changes.changed) == ((), ())
    assert rows(queue) == [2, 4]


@pytest.mark.rule("03.44")
def test_when_refuse_comes_to_apply_all_are_dropped() -> None:
    queue = HoldQueue([hold(row) for row in (1, 2, 3)])
    changes = rejudged(queue, by_setting("refuse"))
    assert rows(changes.dropped) == [1, 2, 3]
    assert (changes.released, changes.changed) == ((), ())
    assert not len(queue)


@pytest.mark.rule("03.45")
def test_when_settings_come_to_accept_all_are_let_in_in_order() -> None:
    queue = HoldQueue([hold(row) for row in (3, 1, 2)])
    changes = rejudged(queue, by_setting("accept"))
    assert rows(changes.released) == [1, 2, 3]
    assert not len(queue)


def test_a_judge_that_fails_changes_nothing() -> None:
    before = [hold(1, expires_at=START + 1), hold(2)]
    queue = HoldQueue(before, expiry=PERIOD)

    def decide(one: Hold) -> Judgement:
        if one.row == 2:
            raise LookupError
        return inbound.ACCEPTED

    with pytest.raises(LookupError):
        queue.rejudge(decide, START, None, kind="headless", attached=False)
    assert list(queue) == before


def test_a_hold_has_its_new_cause_scope_and_rung() -> None:
    queue = HoldQueue([hold(1, expires_at=START + 1)])
    changes = rejudged(queue, by_setting("hold", "project", "repo-setting"))
    again = replace(hold(1), cause="repo-setting", scope="project", rung="setting")
    assert changes.changed == (again,)
    assert list(queue) == [again]
    assert rejudged(queue, by_setting("hold", "project", "repo-setting")).changed == ()


@pytest.mark.parametrize(
    ("before", "cause", "kind", "attached", "after"),
    [
        # A deadline that runs goes on, whatever the new cause that expires, and whoever has gone meanwhile.
        (START + 5, "mode-unknown", "headless", False, START + 5),
        (START + 5, "mode-mismatch", "bg", False, START + 5),
        # A setting that holds ends it; one that no longer does begins a full period.
        (START + 5, "explicit-setting", "headless", False, None),
        (None, "mode-mismatch", "headless", False, START + PERIOD),
        pytest.param(None, "mode-mismatch", "bg", False, None, marks=pytest.mark.rule("03.40")),
        pytest.param(None, "mode-mismatch", "bg", True, START + PERIOD, marks=pytest.mark.rule("03.40")),
        # What is over is over.
        (START, "mode-mismatch", "headless", False, START),
        (START - 1, "managed-setting", "headless", False, None),
    ],
)
def test_what_becomes_of_a_deadline(
    before: int | None, cause: Cause, kind: str, attached: bool, after: int | None
) -> None:
    queue = HoldQueue([hold(1, expires_at=before)], expiry=PERIOD)
    rejudged(queue, held_for(cause), kind=kind, attached=attached)
    assert [one.expires_at for one in queue] == [after]


@pytest.mark.rule("03.36")
def test_a_new_dialog_expiry_applies_at_once_as_if_it_had_from_the_beginning() -> None:
    queue = HoldQueue([hold(1, expires_at=START + PERIOD)], expiry=PERIOD)
    same = held_for("mode-mismatch")
    assert rejudged(queue, same, START + 10, 600_000).changed == (hold(1, expires_at=START + 600_000),)
    rejudged(queue, same, START + 20, 60_000)
    assert queue.next_deadline() == START + 60_000
    rejudged(queue, same, START + 30, None)
    assert queue.next_deadline() is None
    rejudged(queue, same, START + 40, 60_000)
    assert queue.next_deadline() == START + 60_040


@pytest.mark.rule("03.47")
def test_after_a_resume_old_deadlines_go_on_whatever_is_set_now() -> None:
    """Nobody says under which period they were made; those past stay past, even under `never`."""
    queue = HoldQueue([hold(1, expires_at=START - 1), hold(2, expires_at=START + 1)])
    assert rejudged(queue, held_for("mode-mismatch"), START, 600_000).changed == ()
    assert rejudged(queue, held_for("mode-mismatch"), START, None).changed == (hold(2),)
    assert rows(queue.due(START)) == [1]


@given(st.lists(st.sampled_from([inbound.ACCEPTED, inbound.MODE_UNKNOWN, by_setting("refuse")]), max_size=12))
@settings(max_examples=100)
def test_every_hold_goes_one_way(judgements: list[Judgement]) -> None:
    queue = HoldQueue([hold(row) for row in range(len(judgements))])
    changes = queue.rejudge(
        lambda one: judgements[one.row], START, PERIOD, kind="interactive", attached=False
    )
    ways = {"accepted": changes.released, "refused": changes.dropped, "held": tuple(queue)}
    for outcome, holds in ways.items():
        assert rows(holds) == [row for row, one in enumerate(judgements) if one.outcome == outcome]


# ── over time ────────────────────────────────────────────────────────────────────────────────────

SMALL = 4
PERIODS = st.sampled_from([None, 60_000, 300_000, 600_000])


class Queueing(RuleBasedStateMachine):
    """A queue beside a plain account of when each hold's period began."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.rows = 0
        self.expiry: int | None = PERIOD
        self.kind = "headless"
        self.attached = False
        self.queue = HoldQueue(expiry=PERIOD, capacity=SMALL)
        self.causes: dict[int, Cause] = {}
        self.began: dict[int, int | None] = {}
        self.ended: list[int] = []

    @initialize(kind=st.sampled_from(["headless", "bg"]), expiry=PERIODS)
    def begins(self, kind: str, expiry: int | None) -> None:
        self.kind, self.expiry = kind, expiry
        self.queue = HoldQueue(expiry=expiry, capacity=SMALL)

    # The account

    def runs(self, cause: Cause) -> bool:
        standing = self.kind == "bg" and not self.attached
        return cause not in BY_SETTING and self.expiry is not None and not standing

    def ends(self, row: int) -> int | None:
        began = self.began[row]
        return None if began is None or self.expiry is None else began + self.expiry

    def gone(self, holds: tuple[Hold, ...], *, through_the_queue: bool = True) -> None:
        for one in holds:
            assert one.row not in self.ended
            self.ended.append(one.row)
            del self.causes[one.row], self.began[one.row]
            assert (self.queue.remove(one.row) is None) == through_the_queue

    def settle(self) -> None:
        """What is due ends, as its owner's timer would have it."""
        due = self.queue.due(self.now)
        expected = [row for row in self.causes if (ends := self.ends(row)) is not None and ends <= self.now]
        assert rows(due) == expected
        assert not [one for one in due if one.cause in BY_SETTING]
        self.gone(due, through_the_queue=False)

    # What happens

    @rule(cause=st.sampled_from(CAUSES))
    def arrives(self, cause: Cause) -> None:
        self.rows += 1
        ends = deadline(cause, self.now, self.expiry, kind=self.kind, attached=self.attached)
        oldest = list(self.causes)[:1] if len(self.causes) == SMALL else []
        self.causes[self.rows] = cause
        self.began[self.rows] = self.now if self.runs(cause) else None
        evicted = self.queue.add(hold(self.rows, cause=cause, expires_at=ends))
        assert rows(evicted) == oldest
        self.gone(evicted)

    @rule(seconds=st.integers(1, 400))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * 1000
        self.settle()

    @rule()
    def the_next_deadline_comes(self) -> None:
        due_at = self.queue.next_deadline()
        if due_at is not None:
            self.now = max(self.now, due_at)
            before = len(self.queue)
            self.settle()
            assert len(self.queue) < before

    @rule(data=st.data())
    def a_person_decides(self, data: st.DataObject) -> None:
        if self.causes:
            row = data.draw(st.sampled_from(list(self.causes)))
            (found,) = self.queue.find(f"m-{row}")
            self.gone((found,), through_the_queue=False)
            assert self.queue.remove(row) is None

    @rule(data=st.data(), expiry=PERIODS)
    def something_changes(self, data: st.DataObject, expiry: int | None) -> None:
        self.settle()
        choices = st.sampled_from(["accepted", "refused", *CAUSES])
        verdicts = {row: data.draw(choices) for row in self.causes}
        accepted, refused = by_setting("accept"), by_setting("refuse")

        def decide(one: Hold) -> Judgement:
            verdict = verdicts[one.row]
            if verdict in ("accepted", "refused"):
                return accepted if verdict == "accepted" else refused
            return held_for(next(cause for cause in CAUSES if cause == verdict))

        before = {one.row: one for one in self.queue}
        self.expiry = expiry
        changes = self.queue.rejudge(decide, self.now, expiry, kind=self.kind, attached=self.attached)
        assert rows(changes.released) == [row for row in before if verdicts[row] == "accepted"]
        assert rows(changes.dropped) == [row for row in before if verdicts[row] == "refused"]
        self.gone((*changes.released, *changes.dropped))
        for row in self.causes:
            self.causes[row] = next(cause for cause in CAUSES if cause == verdicts[row])
            if self.causes[row] in BY_SETTING or expiry is None:
                self.began[row] = None
            elif self.began[row] is None and self.runs(self.causes[row]):
                self.began[row] = self.now
        assert changes.changed == tuple(one for one in self.queue if one != before[one.row])
        self.settle()

    @rule()
    def somebody_attaches(self) -> None:
        if self.kind != "bg":
            return
        self.attached = True
        changed = self.queue.attached(self.now, self.expiry)
        begun = [row for row, cause in self.causes.items() if self.began[row] is None and self.runs(cause)]
        assert rows(changed) == begun
        for row in begun:
            self.began[row] = self.now

    @rule()
    def everybody_leaves(self) -> None:
        self.attached = False

    @rule()
    def the_session_is_killed_and_comes_back(self) -> None:
        self.queue = HoldQueue(reversed(list(self.queue)), expiry=self.expiry, capacity=SMALL)
        self.settle()

    # What always holds

    @invariant()
    def the_queue_is_as_the_account_has_it(self) -> None:
        assert {one.row: (one.cause, one.expires_at) for one in self.queue} == {
            row: (cause, self.ends(row)) for row, cause in self.causes.items()
        }
        assert len(self.queue) <= SMALL
        assert rows(self.queue) == sorted(self.causes)
        assert not set(self.ended) & set(rows(self.queue))
        assert len(set(self.ended)) == len(self.ended)

    @invariant()
    def a_deadline_stands_still_while_nobody_has_attached(self) -> None:
        ends = [one.expires_at for one in self.queue if one.expires_at is not None]
        assert self.queue.next_deadline() == (min(ends) if ends else None)
        assert not [one for one in self.queue if one.cause in BY_SETTING and one.expires_at is not None]


@pytest.mark.rule("03.37", "03.38", "03.40", "03.43", "03.47")
def test_a_queue_over_time() -> None:
    run_state_machine_as_test(Queueing, settings=settings(max_examples=100, stateful_step_count=30))
