"""The receiving machine: which rung answers, and that an id is decided on once for each sender."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from postroom.core.inbox import (
    ACCEPTED,
    FULL,
    MISADDRESSED,
    REPEATS,
    SELF_ECHO,
    Arrival,
    Facts,
    Judgement,
    Limits,
    Settled,
    Verdict,
    judge,
)

HERE = "5f0e7a31-session"
VERDICTS: tuple[Verdict, ...] = ("accepted", "held", "refused")
NEW = Arrival(msg_id="m-1", body="b1")
QUIET = Facts(session_id=HERE, settled=None, unread=0)
LIMITS = Limits()

arrivals = st.builds(
    Arrival,
    msg_id=st.sampled_from(["m-1", "m-2"]),
    body=st.sampled_from(["b1", "b2"]),
    own_address=st.booleans(),
    own_message=st.booleans(),
    addressed=st.sampled_from([None, HERE, "another"]),
)
settled = st.none() | st.builds(
    Settled, outcome=st.sampled_from(VERDICTS), body=st.sampled_from(["b1", "b2"])
)
facts = st.builds(Facts, session_id=st.just(HERE), settled=settled, unread=st.integers(0, 60))


@pytest.mark.rule("03.50")
def test_an_ordinary_message_is_accepted() -> None:
    judgement = judge(NEW, QUIET, LIMITS)
    assert (judgement.outcome, judgement.ack, judgement.reason) == ("accepted", "queued", "")
    assert judgement.settles
    assert not judgement.journal


@pytest.mark.rule("03.7")
@pytest.mark.parametrize(
    "arrival",
    [NEW._replace(own_address=True), NEW._replace(own_message=True)],
    ids=["own address", "an id that this session sent"],
)
def test_report_11_what_comes_from_oneself_is_dropped(arrival: Arrival) -> None:
    judgement = judge(arrival, QUIET, LIMITS)
    assert (judgement.outcome, judgement.ack, judgement.reason) == ("dropped", "dropped", "self-echo")
    assert judgement.detail == "self-echo"


@pytest.mark.rule("03.7")
def test_what_is_meant_for_another_session_is_misaddressed() -> None:
    judgement = judge(NEW._replace(addressed="another"), QUIET, LIMITS)
    assert (judgement.outcome, judgement.ack) == ("dropped", "misaddressed")
    assert judge(NEW._replace(addressed=HERE), QUIET, LIMITS) is ACCEPTED
    assert judge(NEW._replace(addressed=""), QUIET, LIMITS) is MISADDRESSED


@pytest.mark.rule("03.8")
@pytest.mark.parametrize("verdict", VERDICTS)
def test_report_37_a_settled_id_is_acknowledged_as_before(verdict: Verdict) -> None:
    judgement = judge(NEW, QUIET._replace(settled=Settled(outcome=verdict, body="b1")), LIMITS)
    assert (judgement.outcome, judgement.ack, judgement.reason) == ("duplicate", "queued", "")
    assert not judgement.settles
    assert "id-reuse" not in judgement.detail


@pytest.mark.rule("03.8")
@pytest.mark.parametrize("verdict", VERDICTS)
def test_another_body_under_a_settled_id_is_journaled(verdict: Verdict) -> None:
    judgement = judge(NEW, QUIET._replace(settled=Settled(outcome=verdict, body="b2")), LIMITS)
    assert (judgement.outcome, judgement.ack) == ("duplicate", "queued")
    assert judgement.detail.startswith("id-reuse")


@pytest.mark.rule("03.10")
def test_a_repeat_of_a_refused_message_shows_no_more_than_any_repeat() -> None:
    for same in (True, False):
        assert (
            len({(REPEATS[v, same].outcome, REPEATS[v, same].ack, REPEATS[v, same].reason) for v in VERDICTS})
            == 1
        )


@pytest.mark.rule("03.64")
@pytest.mark.parametrize(("unread", "full"), [(0, False), (49, False), (50, True), (51, True)])
def test_the_fifty_first_unread_message_finds_a_full_inbox(unread: int, full: bool) -> None:
    judgement = judge(NEW, QUIET._replace(unread=unread), LIMITS)
    assert (judgement is FULL) == full


@pytest.mark.rule("03.64")
def test_the_limit_is_a_setting() -> None:
    few = Limits(max_unread=10)
    assert judge(NEW, QUIET._replace(unread=9), few) is ACCEPTED
    assert judge(NEW, QUIET._replace(unread=10), few) is FULL


@pytest.mark.rule("03.8", "03.56")
def test_a_full_inbox_says_so_and_settles_nothing() -> None:
    assert (FULL.ack, FULL.reason, FULL.journal) == ("inbox_full", "queue-full", "full")
    assert not FULL.settles
    assert not SELF_ECHO.settles
    assert not MISADDRESSED.settles


@pytest.mark.rule("12.23")
def test_the_library_can_lift_every_limit() -> None:
    lifted = Limits.unbounded()
    for limit in fields(lifted):
        assert getattr(lifted, limit.name) > getattr(Limits(), limit.name)
    assert judge(NEW, QUIET._replace(unread=sys.maxsize - 1), lifted) is ACCEPTED


def earlier_rungs(arrival: Arrival, known: Facts, limits: Limits) -> list[str]:
    """Every rung that would answer, were it asked alone: in the order of the ladder."""
    return [
        name
        for name, applies in (
            ("self-echo", arrival.own_address or arrival.own_message),
            ("misaddressed", arrival.addressed not in (None, known.session_id)),
            ("settled", known.settled is not None),
            ("cap", known.unread >= limits.max_unread),
        )
        if applies
    ] + ["default"]


@pytest.mark.rule("03.6")
@settings(max_examples=200)
@given(arrivals, facts)
def test_the_first_rung_that_applies_answers_and_says_that_it_did(arrival: Arrival, known: Facts) -> None:
    judgement = judge(arrival, known, LIMITS)
    first = earlier_rungs(arrival, known, LIMITS)[0]
    assert (
        judgement.reason
        if judgement is SELF_ECHO
        else judgement.ack
        if judgement is MISADDRESSED
        else judgement.rung
    ) == first
    assert judge(arrival, known, LIMITS) is judgement


@given(arrivals, facts)
def test_judging_makes_no_object(arrival: Arrival, known: Facts) -> None:
    constants = (ACCEPTED, FULL, SELF_ECHO, MISADDRESSED, *REPEATS.values())
    assert any(judge(arrival, known, LIMITS) is constant for constant in constants)


@pytest.mark.rule("11.1")
def test_every_answer_but_an_acceptance_leaves_a_row() -> None:
    answers: list[Judgement] = [FULL, SELF_ECHO, MISADDRESSED, *REPEATS.values()]
    assert all(answer.journal and answer.detail for answer in answers)
    assert len({replace(answer, detail="") for answer in answers}) == 4


def test_the_table_of_repeats_is_whole() -> None:
    assert set(REPEATS) == set(product(VERDICTS, (True, False)))


class Inbox(RuleBasedStateMachine):
    """Senders that try again, reuse ids and read each other's; a receiver that reads now and then.

    The machine keeps what a store keeps: settled ids by sender and id, and the unread. What must hold is that
    every pair of sender and id has its effect at most once, whatever is sent again and in whatever order.
    """

    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.settled: dict[tuple[str, str], Settled] = {}
        self.delivered: list[tuple[str, str, str]] = []
        self.unread = 0
        self.limits = Limits()

    @initialize(cap=st.integers(1, 3))
    def open(self, cap: int) -> None:
        self.limits = Limits(max_unread=cap)

    @rule(target=ids, number=st.integers(0, 5))
    def name(self, number: int) -> str:
        return f"m-{number}"

    @rule(sender=st.sampled_from(["a", "b"]), msg_id=ids, body=st.sampled_from(["b1", "b2"]))
    def arrive(self, sender: str, msg_id: str, body: str) -> None:
        key = (sender, msg_id)
        before = self.settled.get(key)
        judgement = judge(
            Arrival(msg_id=msg_id, body=body),
            Facts(session_id=HERE, settled=before, unread=self.unread),
            self.limits,
        )
        if before is not None:
            assert judgement.outcome == "duplicate"
            assert judgement.ack == "queued"
            assert ("id-reuse" in judgement.detail) == (before.body != body)
        elif self.unread >= self.limits.max_unread:
            assert judgement.ack == "inbox_full"
        else:
            assert judgement.ack == "queued"
        if judgement.outcome == "accepted":
            self.delivered.append((sender, msg_id, body))
            self.unread += 1
        if judgement.settles:
            self.settled[key] = Settled(outcome="accepted", body=body)

    @rule(sender=st.sampled_from(["a", "b"]), msg_id=ids, verdict=st.sampled_from(["held", "refused"]))
    def decide(self, sender: str, msg_id: str, verdict: Verdict) -> None:
        """A later rung held or refused that id; an id is decided on once."""
        self.settled.setdefault((sender, msg_id), Settled(outcome=verdict, body="b1"))

    @rule()
    def read(self) -> None:
        self.unread = 0

    @invariant()
    def an_id_has_one_effect_for_each_sender(self) -> None:
        keys = [(sender, msg_id) for sender, msg_id, _ in self.delivered]
        assert len(keys) == len(set(keys))

    @invariant()
    def the_unread_stay_within_the_limit(self) -> None:
        assert self.unread <= self.limits.max_unread


@pytest.mark.rule("03.8", "11.5")
def test_whatever_is_sent_again_has_one_effect() -> None:
    run_state_machine_as_test(Inbox, settings=settings(max_examples=100, stateful_step_count=30))  # pyright: ignore[reportUnknownMemberType]


def test_the_same_id_from_another_sender_is_new() -> None:
    """The record is looked up by sender and id; another's is not a fact of this arrival."""
    records = {("a", "m-1"): Settled(outcome="accepted", body="b1")}
    answers = [
        judge(NEW, QUIET._replace(settled=records.get((sender, "m-1"))), LIMITS).outcome
        for sender in ("a", "b")
    ]
    assert answers == ["duplicate", "accepted"]


@pytest.mark.rule("03.8")
def test_rival_V16_a_retry_after_a_lost_answer_does_not_double() -> None:
    """The receiver died between the store and the answer: the store still knows the id."""
    first = judge(NEW, QUIET, LIMITS)
    assert first.settles
    again = judge(
        NEW, Facts(session_id=HERE, settled=Settled(outcome="accepted", body="b1"), unread=50), LIMITS
    )
    assert (again.outcome, again.ack) == ("duplicate", first.ack)
