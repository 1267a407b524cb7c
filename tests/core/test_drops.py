"""Drops: the first is told at once, what follows is gathered, and nobody is flooded."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from postroom.core import wire
from postroom.core.drops import (
    GATHER,
    MAX_A_MINUTE,
    MAX_IDS,
    MAX_SENDERS,
    MAX_WAITING,
    MINUTE,
    Batch,
    Drops,
    Heard,
)

NOW = 1_796_033_702_000


@pytest.mark.rule("03.55")
def test_the_first_is_told_at_once_and_what_follows_every_five_seconds() -> None:
    drops = Drops()
    assert drops.add("a", "m-1", "duplicate", NOW) == Batch(key="a", reason="duplicate", ids=("m-1",))
    assert drops.next_due() is None
    assert drops.add("a", "m-2", "duplicate", NOW + 1) is None
    assert drops.add("a", "m-3", "duplicate", NOW + 4_999) is None
    assert drops.next_due() == NOW + 5_000
    assert drops.due(NOW + 4_999) == []
    assert drops.due(NOW + 5_000) == [Batch(key="a", reason="duplicate", ids=("m-2", "m-3"))]
    assert drops.due(NOW + 5_001) == []
    # It goes on: what follows within five seconds of that is gathered too, what comes after them is a first again.
    assert drops.add("a", "m-4", "duplicate", NOW + 9_999) is None
    assert drops.due(NOW + 10_000) == [Batch(key="a", reason="duplicate", ids=("m-4",))]
    assert drops.add("a", "m-5", "duplicate", NOW + 15_000) == Batch(
        key="a", reason="duplicate", ids=("m-5",)
    )


@pytest.mark.rule("03.55")
def test_each_sender_is_told_by_itself() -> None:
    drops = Drops()
    assert drops.add("a", "m-1", "duplicate", NOW) is not None
    assert drops.add("b", "m-1", "duplicate", NOW + 1) is not None
    assert drops.add("a", "m-2", "duplicate", NOW + 2) is None
    assert drops.add("b", "m-2", "duplicate", NOW + 3) is None
    assert drops.next_due() == NOW + 5_000
    assert [batch.key for batch in drops.due(NOW + 5_000)] == ["a"]
    assert [batch.key for batch in drops.due(NOW + 5_001)] == ["b"]


def test_a_receipt_has_one_reason() -> None:
    drops = Drops()
    drops.add("a", "m-0", "duplicate", NOW)
    for msg_id, reason in (("m-1", "hop-loop"), ("m-2", "duplicate"), ("m-3", "hop-loop")):
        drops.add("a", msg_id, reason, NOW + 1)
    assert drops.due(NOW + GATHER) == [
        Batch(key="a", reason="hop-loop", ids=("m-1", "m-3")),
        Batch(key="a", reason="duplicate", ids=("m-2",)),
    ]


@pytest.mark.rule("03.55")
def test_more_than_256_go_in_several() -> None:
    drops = Drops()
    for number in range(MAX_IDS + 2):
        drops.add("a", f"m-{number}", "rate-limited", NOW)
    assert MAX_IDS == 256
    assert [len(batch.ids) for batch in drops.due(NOW + GATHER)] == [256, 1]


@pytest.mark.rule("03.55")
def test_forty_receipts_a_minute_and_the_rest_later() -> None:
    drops = Drops()
    reasons = ("hop-runaway", "hop-loop", "duplicate", "rate-limited", "queue-full")
    first = drops.add("a", "m-0", reasons[0], NOW)
    assert first is not None
    for number in range(1, 50):
        drops.add("a", f"m-{number}", f"{reasons[number % 5]}-{number}", NOW + 1)
    told = drops.due(NOW + GATHER)
    assert len(told) == MAX_A_MINUTE - 1 == 39
    assert drops.next_due() == NOW + MINUTE
    assert drops.due(NOW + MINUTE - 1) == []
    assert [batch.ids for batch in drops.due(NOW + MINUTE)] == [("m-40",)]
    assert drops.next_due() == NOW + GATHER + MINUTE
    assert len(drops.due(NOW + GATHER + MINUTE)) == 9
    assert drops.next_due() is None


@pytest.mark.rule("03.55")
def test_a_first_one_waits_too_when_forty_were_told() -> None:
    drops = Drops()
    for number in range(MAX_A_MINUTE + 1):
        drops.add("a", f"m-{number}", f"reason-{number}", NOW)
    assert len(drops.due(NOW + GATHER)) == MAX_A_MINUTE - 1
    drops.due(NOW + MINUTE)
    # Nothing waits now, and the five seconds are over; but all but one of the forty are younger than a minute.
    assert drops.add("a", "late", "duplicate", NOW + MINUTE + 1) is None
    assert drops.next_due() == NOW + MINUTE + GATHER
    assert [batch.ids for batch in drops.due(NOW + MINUTE + GATHER)] == [("late",)]


def test_what_was_gathered_is_told_early_when_the_session_ends() -> None:
    drops = Drops()
    for number in range(3):
        drops.add("a", f"m-{number}", "duplicate", NOW)
    assert [batch.ids for batch in drops.due(None)] == [("m-1", "m-2")]
    assert drops.due(None) == []
    assert drops.add("a", "m-3", "duplicate", NOW + GATHER) is not None


def test_an_id_that_waits_is_told_once() -> None:
    drops = Drops()
    for msg_id in ("m-1", "m-2", "m-2", "m-2"):
        drops.add("a", msg_id, "duplicate", NOW)
    drops.add("a", "m-2", "rate-limited", NOW)
    assert [batch.ids for batch in drops.due(NOW + GATHER)] == [("m-2",)]
    assert drops.untold == 0


@pytest.mark.rule("11.10")
def test_more_senders_than_are_remembered_are_counted_and_not_told() -> None:
    drops = Drops()
    for number in range(MAX_SENDERS):
        assert drops.add(f"s-{number}", "m-1", "rate-limited", NOW) is not None
    drops.add("s-7", "m-2", "rate-limited", NOW)
    assert drops.add("another", "m-1", "rate-limited", NOW + MINUTE - 1) is None
    assert drops.untold == 1
    assert drops.next_due() == NOW + GATHER  # and what waits is still told
    # A minute after the others were told last, they are forgotten; the one that waits is not.
    assert drops.add("another", "m-1", "rate-limited", NOW + MINUTE) is not None
    assert [(batch.key, batch.ids) for batch in drops.due(NOW + MINUTE)] == [("s-7", ("m-2",))]
    assert drops.untold == 1


@pytest.mark.rule("11.10")
def test_more_ids_than_can_wait_are_counted_and_not_told() -> None:
    drops = Drops()
    for number in range(MAX_WAITING + 3):
        drops.add("a", f"m-{number}", "rate-limited", NOW)
    assert drops.untold == 2
    told = drops.due(NOW + GATHER)
    assert (len(told), {len(batch.ids) for batch in told}) == (MAX_A_MINUTE - 1, {MAX_IDS})
    drops.add("a", "again", "rate-limited", NOW + GATHER)
    assert drops.untold == 2


def test_a_clock_that_is_set_back_silences_nobody() -> None:
    drops = Drops()
    assert drops.add("a", "m-1", "duplicate", NOW) is not None
    assert drops.add("a", "m-2", "duplicate", NOW - 3_600_000) is not None


class Dropping(RuleBasedStateMachine):
    """A flood, beside an account of what was dropped and what was told."""

    SENDERS = ("a", "b")

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.drops = Drops()
        self.number = 0
        self.dropped: Counter[tuple[str, str, str]] = Counter()
        self.told: Counter[tuple[str, str, str]] = Counter()
        self.receipts: dict[str, list[int]] = {sender: [] for sender in self.SENDERS}

    def sent(self, *batches: Batch | None) -> None:
        for batch in filter(None, batches):
            assert 1 <= len(batch.ids) <= 256
            self.receipts[batch.key].append(self.now)
            for msg_id in batch.ids:
                self.told[batch.key, msg_id, batch.reason] += 1

    @rule(
        sender=st.sampled_from(SENDERS),
        count=st.sampled_from([1, 2, 3, 300, 700]),
        kinds=st.integers(1, 60),
    )
    def drop(self, sender: str, count: int, kinds: int) -> None:
        quiet = not self.receipts[sender] or self.now - self.receipts[sender][-1] >= 5_000
        waits = any(key[0] == sender for key in self.dropped - self.told)
        recent = [at for at in self.receipts[sender] if self.now - at < 60_000]
        for nth in range(count):
            self.number += 1
            reason = f"reason-{self.number % kinds}"
            self.dropped[sender, f"m-{self.number}", reason] += 1
            at_once = self.drops.add(sender, f"m-{self.number}", reason, self.now)
            assert (at_once is not None) == (nth == 0 and quiet and not waits and len(recent) < 40)
            self.sent(at_once)

    @rule(milliseconds=st.sampled_from([0, 1, 4_999, 5_000, 20_000, 59_999, 60_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.now += milliseconds

    @rule()
    def the_timer_rings(self) -> None:
        due_at = self.drops.next_due()
        assert (due_at is None) == (self.dropped == self.told)
        if due_at is not None:
            self.now = max(self.now, due_at)
            batches = self.drops.due(self.now)
            assert batches
            self.sent(*batches)

    @rule()
    def somebody_looks(self) -> None:
        due_at = self.drops.next_due()
        batches = self.drops.due(self.now)
        assert bool(batches) == (due_at is not None and due_at <= self.now)
        self.sent(*batches)

    @invariant()
    def nobody_is_flooded(self) -> None:
        for times in self.receipts.values():
            for last, first in zip(times[40:], times, strict=False):
                assert last - first >= 60_000

    @invariant()
    def no_id_is_told_twice_or_without_cause(self) -> None:
        assert not self.told - self.dropped
        assert self.drops.untold == 0 or sum(self.dropped.values()) > MAX_WAITING

    def teardown(self) -> None:
        """In the end every id that was taken has been told."""
        for _ in range(200):
            if self.drops.next_due() is None:
                break
            self.the_timer_rings()
            self.nobody_is_flooded()
        assert sum((self.dropped - self.told).values()) == self.drops.untold


@pytest.mark.rule("03.55")
def test_a_flood_is_not_answered_by_a_flood() -> None:
    run_state_machine_as_test(
        Dropping, settings=settings(max_examples=40, stateful_step_count=15, deadline=None)
    )


# ── what is heard ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.24")
def test_forty_notices_of_one_sender_are_heard_in_a_minute() -> None:
    heard = Heard()
    assert all(heard.hear("a", NOW + number) for number in range(MAX_A_MINUTE))
    assert not heard.hear("a", NOW + MINUTE - 1)
    assert heard.hear("b", NOW + MINUTE - 1)
    assert heard.hear("a", NOW + MINUTE)
    assert not heard.hear("a", NOW + MINUTE)
    assert heard.hear("a", NOW + MINUTE + 1)


@pytest.mark.rule("11.10")
def test_the_least_recently_heard_is_forgotten() -> None:
    heard = Heard()
    for _ in range(MAX_A_MINUTE):
        heard.hear("a", NOW)
    for number in range(MAX_SENDERS - 1):
        heard.hear(f"s-{number}", NOW)
    assert not heard.hear("a", NOW)  # which makes it the most recent
    for number in range(MAX_SENDERS - 1):
        heard.hear(f"t-{number}", NOW)
    assert not heard.hear("a", NOW)
    for number in range(MAX_SENDERS):
        heard.hear(f"u-{number}", NOW)
    assert heard.hear("a", NOW)


def test_who_was_heard_before_a_clock_was_set_back_is_heard_after() -> None:
    heard = Heard()
    for _ in range(MAX_A_MINUTE):
        heard.hear("a", NOW)
    assert not heard.hear("a", NOW)
    assert heard.hear("a", NOW - 3_600_000)


@given(st.lists(st.integers(0, 9_000), max_size=200))
@settings(max_examples=50)
def test_never_more_than_forty_in_any_minute(steps: list[int]) -> None:
    heard, now = Heard(), NOW
    times: list[int] = []
    for milliseconds in steps:
        now += milliseconds
        in_a_minute = [at for at in times if now - at < MINUTE]
        passes = heard.hear("a", now)
        assert passes == (len(in_a_minute) < 40)
        if passes:
            times.append(now)


def test_a_receipt_holds_as_many_ids_as_are_read() -> None:
    assert MAX_IDS == wire.MAX_DROPPED
