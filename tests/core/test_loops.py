"""The loop guard: order, buckets, repeats, chains, turns and pace, and that sessions come to rest."""

from __future__ import annotations

import hashlib
import math
import sys
import unicodedata
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from postroom.core.loops import (
    MAX_WRITTEN,
    Burst,
    Guard,
    Pace,
    Reason,
    Throttled,
    Turns,
    repeat_of,
    token_of,
)
from postroom.core.settings import Limits

NOW = 1_753_900_000_000
OWN = "a" * 24
OTHER = "b" * 24
TEXTS = count()


def fresh() -> str:
    """What a text is compared by that nobody has sent yet."""
    return f"text {next(TEXTS)}"


def hops(length: int, own: int = 0) -> tuple[str, ...]:
    """A chain of so many tokens, so many of them this session's own."""
    return (OWN,) * own + (OTHER,) * (length - own)


def passed(guard: Guard, key: str, times: Iterable[int]) -> int:
    """How many new texts of one sender pass, one at each of these times."""
    return sum(guard.judge(key, fresh(), (), OWN, now) is None for now in times)


# ── what two texts are compared by ───────────────────────────────────────────────────────────────


@pytest.mark.rule("03.60")
@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("acknowledged", "Acknowledged", False),
        ("Acknowledged.", " Acknowledged!!\n", True),
        ("the column is now tenant_id", "the column is now tenantid", True),
        ("a b", "ab", True),
        ("a\tb\r\n", "a b", True),
        ("ok…", "ok", True),
        ("ok\N{NO-BREAK SPACE}— “fine”", "ok fine", True),
        ("了解です。", "了解です", True),
        ("ok\N{ZERO WIDTH SPACE}", "ok", True),
        ("ok \N{TAG LATIN SMALL LETTER A}", "ok", True),
        ("x < 3", "x > 3", False),
        ("ok 👍", "ok", False),
        ("कि", "का", False),
        ("?", "!", False),
        ("...", "....", False),
        ("…", "", False),
        ("…", "…", True),
        ("\ud800.", "\ud800", True),
    ],
)
def test_white_space_and_punctuation_make_no_body_different(one: str, other: str, same: bool) -> None:
    assert (repeat_of(one) == repeat_of(other)) is same


def bare(text: str) -> str:
    """The text without what does not matter, one character after the other."""
    kept = [
        c for c in text if unicodedata.category(c)[0] not in "PZ" and unicodedata.category(c) not in "CcCf"
    ]
    return "".join(kept) or text


@pytest.mark.rule("03.60")
@given(st.text(), st.text())
def test_texts_are_alike_where_what_matters_is(one: str, other: str) -> None:
    assert repeat_of(one) == repeat_of(bare(one))
    assert (repeat_of(one) == repeat_of(other)) is (bare(one) == bare(other))


@pytest.mark.rule("03.60")
def test_every_character_of_unicode_is_known() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert repeat_of(everything) == repeat_of(bare(everything))
    assert repeat_of(everything.encode("ascii", "ignore").decode()) == repeat_of(bare(everything[:128]))


# ── the order ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.65")
@pytest.mark.parametrize(
    ("chain", "again", "empty", "reason"),
    [
        (hops(29, own=11), True, True, "hop-runaway"),
        (hops(28, own=11), True, True, "hop-loop"),
        (hops(28, own=10), True, True, "duplicate"),
        (hops(28, own=10), False, True, "rate-limited"),
        (hops(28, own=10), False, False, None),
    ],
)
def test_the_first_line_that_applies_answers(
    chain: tuple[str, ...], again: bool, empty: bool, reason: Reason | None
) -> None:
    guard = Guard(Limits())
    first = fresh()
    guard.kept("peer", first, NOW)
    if empty:
        assert passed(guard, "peer", [NOW] * 30) == 30
    assert guard.judge("peer", first if again else fresh(), chain, OWN, NOW) == reason


@pytest.mark.rule("03.62")
@pytest.mark.parametrize("most", [8, 28, 31])
def test_a_chain_longer_than_the_limit_runs_away(most: int) -> None:
    guard = Guard(Limits(max_chain_length=most))
    assert guard.judge("peer", fresh(), hops(most), OWN, NOW) is None
    assert guard.judge("peer", fresh(), hops(most + 1), OWN, NOW) == "hop-runaway"


@pytest.mark.rule("03.61")
@pytest.mark.parametrize("most", [3, 10, 28])
def test_the_own_token_more_often_than_the_limit_is_a_loop(most: int) -> None:
    guard = Guard(Limits(max_self_hops=most, max_chain_length=31))
    assert guard.judge("peer", fresh(), hops(31, own=most), OWN, NOW) is None
    assert guard.judge("peer", fresh(), hops(31, own=most + 1), OWN, NOW) == "hop-loop"
    assert guard.judge("peer", fresh(), hops(31, own=most + 1), "c" * 24, NOW) is None
    assert guard.judge("peer", fresh(), hops(31), "", NOW) is None


@pytest.mark.rule("03.65")
def test_what_is_dropped_costs_no_token() -> None:
    guard = Guard(Limits())
    again = fresh()
    guard.kept("peer", again, NOW)
    for _ in range(50):
        assert guard.judge("peer", fresh(), hops(29), OWN, NOW) == "hop-runaway"
        assert guard.judge("peer", fresh(), hops(20, own=11), OWN, NOW) == "hop-loop"
        assert guard.judge("peer", again, (), OWN, NOW) == "duplicate"
    assert passed(guard, "peer", [NOW] * 31) == 30


# ── repeats ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.60")
@pytest.mark.parametrize(
    ("seconds", "after", "reason"),
    [
        (30, 0, "duplicate"),
        (30, 29_999, "duplicate"),
        (30, 30_000, None),
        (0, 0, None),
        (600, 599_999, "duplicate"),
    ],
)
def test_a_repeat_counts_for_so_long(seconds: float, after: int, reason: Reason | None) -> None:
    guard = Guard(Limits(repeat_seconds=seconds))
    assert guard.judge("peer", "same", (), OWN, NOW) is None
    guard.kept("peer", "same", NOW)
    assert guard.judge("peer", "same", (), OWN, NOW + after) == reason
    assert guard.judge("another", "same", (), OWN, NOW + after) is None


@pytest.mark.rule("03.60")
def test_only_the_previous_message_is_repeated() -> None:
    guard = Guard(Limits())
    for text in ("one", "two", "one"):
        assert guard.judge("peer", text, (), OWN, NOW) is None
        guard.kept("peer", text, NOW)
    assert guard.judge("peer", "one", (), OWN, NOW) == "duplicate"


@pytest.mark.rule("03.60")
def test_what_passes_is_the_previous_one_at_once_where_that_is_known() -> None:
    guard = Guard(Limits())
    for text in ("one", "two", "one"):
        assert guard.judge("peer", text, (), OWN, NOW, keep=True) is None
    assert guard.judge("peer", "one", (), OWN, NOW + 29_999, keep=True) == "duplicate"
    assert (
        guard.judge("peer", "one", (), OWN, NOW + 30_000, keep=True) is None
    )  # what was dropped was not kept


@pytest.mark.rule("03.60")
def test_a_repeat_that_was_dropped_does_not_make_the_time_longer() -> None:
    guard = Guard(Limits())
    guard.kept("peer", "same", NOW)
    assert guard.judge("peer", "same", (), OWN, NOW + 29_000) == "duplicate"
    assert guard.judge("peer", "same", (), OWN, NOW + 30_000) is None


@pytest.mark.rule("03.8")
def test_what_settled_nothing_may_come_again() -> None:
    guard = Guard(Limits())
    assert guard.judge("peer", "full", (), OWN, NOW) is None  # and the inbox was full: nobody kept it
    assert guard.judge("peer", "full", (), OWN, NOW) is None
    guard.kept("peer", "full", NOW)
    guard.forget_repeats()  # and then the store lost it
    assert guard.judge("peer", "full", (), OWN, NOW) is None


# ── buckets ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.58", "03.57")
def test_a_sender_has_thirty_and_one_more_every_two_seconds() -> None:
    guard = Guard(Limits())
    assert passed(guard, "peer", [NOW] * 40) == 30
    assert passed(guard, "peer", [NOW + 1_999]) == 0
    assert passed(guard, "peer", [NOW + 2_000] * 2) == 1
    assert passed(guard, "peer", [NOW + 8_000] * 9) == 3
    assert passed(guard, "another", [NOW + 8_000] * 40) == 30
    assert passed(guard, "peer", [NOW + 3_600_000] * 99) == 30


@pytest.mark.rule("03.59")
def test_all_senders_together_have_a_hundred_and_twenty_and_four_every_second() -> None:
    guard = Guard(Limits())
    names = [f"peer {number}" for number in range(40)]
    assert sum(passed(guard, name, [NOW] * 4) for name in names) == 120
    assert sum(passed(guard, name, [NOW + 249]) for name in names) == 0
    assert sum(passed(guard, name, [NOW + 250]) for name in names) == 1
    assert sum(passed(guard, name, [NOW + 2_250]) for name in names) == 8


@pytest.mark.rule("03.58", "03.59")
@pytest.mark.parametrize("scarce", ["sender", "total"])
def test_tokens_are_taken_together_or_not_at_all(scarce: str) -> None:
    """Whichever is missing, the other bucket gives nothing away for what is dropped."""
    few, many = (1, 3) if scarce == "sender" else (3, 1)
    guard = Guard(
        Limits(bucket_capacity=few, total_capacity=many, refill_per_second=0.05, total_refill_per_second=0.5)
    )
    assert passed(guard, "peer", [NOW] * 50) == 1
    if scarce == "sender":
        assert passed(guard, "another", [NOW]) + passed(guard, "third", [NOW]) == 2
    else:
        assert passed(guard, "peer", [NOW + 2_000, NOW + 4_000]) == 2


@pytest.mark.rule("03.58")
def test_a_clock_that_is_set_back_gives_nothing_and_takes_nothing() -> None:
    guard = Guard(Limits())
    assert passed(guard, "peer", [NOW] * 31) == 30
    early = NOW - 3_600_000
    assert passed(guard, "peer", [early] * 2) == 0  # nothing for a step back
    assert passed(guard, "another", [early + 1_000]) == 1  # somebody else is heard meanwhile
    assert passed(guard, "peer", [early + 2_000] * 2) == 1  # and two seconds are two seconds
    guard.kept("peer", "same", early + 2_000)
    assert guard.judge("peer", "same", (), OWN, early - 9_000) == "duplicate"
    assert guard.judge("peer", "same", (), OWN, early + 20_999) == "duplicate"
    assert guard.judge("peer", "same", (), OWN, early + 21_000) is None


@pytest.mark.rule("03.58", "03.59")
def test_limits_that_change_leave_no_bucket_over_them() -> None:
    guard = Guard(Limits())
    assert passed(guard, "spent", [NOW] * 30) == 30
    assert passed(guard, "rich", [NOW]) == 1
    guard.limits = replace(guard.limits, bucket_capacity=5)
    guard.limits = replace(guard.limits, bucket_capacity=500)
    assert passed(guard, "spent", [NOW]) == 0
    assert passed(guard, "rich", [NOW] * 9) == 5
    guard.limits = replace(guard.limits, total_capacity=30)
    guard.limits = replace(guard.limits, total_capacity=5_000)
    assert sum(passed(guard, f"new {number}", [NOW]) for number in range(50)) == 30


@pytest.mark.rule("03.58", "03.59")
def test_what_came_back_before_a_change_counts_by_the_old_limits() -> None:
    guard = Guard(
        Limits(bucket_capacity=40, total_capacity=40, refill_per_second=0.5, total_refill_per_second=0.5)
    )
    assert passed(guard, "peer", [NOW] * 41) == 40
    guard.kept("another", fresh(), NOW + 4_000)
    guard.limits = replace(guard.limits, refill_per_second=50.0, total_refill_per_second=500.0)
    assert passed(guard, "peer", [NOW + 4_000] * 9) == 2
    assert passed(guard, "peer", [NOW + 4_100] * 9) == 5
    guard = Guard(Limits(bucket_capacity=500, total_capacity=30, total_refill_per_second=0.5))
    assert passed(guard, "peer", [NOW] * 40) == 30
    guard.kept("peer", fresh(), NOW + 4_000)
    guard.limits = replace(guard.limits, total_refill_per_second=500.0)
    assert passed(guard, "another", [NOW + 4_000] * 9) == 2


def test_the_other_limits_apply_at_once_too() -> None:
    guard = Guard(Limits())
    guard.kept("peer", "same", NOW)
    guard.limits = Limits(repeat_seconds=1, max_self_hops=3, max_chain_length=8)
    assert guard.judge("peer", "same", (), OWN, NOW + 1_000) is None
    assert guard.judge("peer", fresh(), hops(9), OWN, NOW) == "hop-runaway"
    assert guard.judge("peer", fresh(), hops(8, own=4), OWN, NOW) == "hop-loop"


@pytest.mark.rule("12.23")
def test_lifted_limits_hold_nothing_up() -> None:
    lifted = Limits.unbounded()
    guard, pace = Guard(lifted), Pace(replace(lifted, refill_per_second=math.inf))
    for _ in range(2_000):
        assert guard.judge("peer", "same", hops(32, own=32), OWN, NOW) is None
        guard.kept("peer", "same", NOW)
        assert pace.spend("peer", NOW) is None
    assert guard.throttled() == ()


# ── memory ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.63", "11.10")
def test_the_sender_heard_least_recently_is_forgotten() -> None:
    guard = Guard(Limits(max_tracked_senders=16, bucket_capacity=5, total_capacity=5_000))
    for number in range(16):
        assert passed(guard, f"peer {number}", [NOW] * 6) == 5
    assert passed(guard, "peer 0", [NOW]) == 0  # heard again, so that peer 1 is the oldest now
    assert passed(guard, "newcomer", [NOW]) == 1
    assert passed(guard, "peer 0", [NOW]) == 0
    assert passed(guard, "peer 1", [NOW]) == 1
    assert len(guard.throttled()) <= 16


@pytest.mark.rule("03.63", "11.10")
def test_fewer_senders_apply_at_once() -> None:
    guard = Guard(Limits(bucket_capacity=5, total_capacity=5_000))
    for number in range(256):
        assert passed(guard, f"peer {number}", [NOW] * 6) == 5
    assert len(guard.throttled()) == 256
    guard.limits = replace(guard.limits, max_tracked_senders=16)
    assert [throttled.sender for throttled in guard.throttled()] == [f"peer {n}" for n in range(240, 256)]


def test_a_guard_that_may_know_nobody_knows_the_one_who_writes() -> None:
    guard = Guard(Limits(max_tracked_senders=0))
    assert passed(guard, "peer", [NOW] * 31) == 30


@pytest.mark.rule("03.59", "03.63")
def test_being_forgotten_never_gives_more_than_all_have_together() -> None:
    guard = Guard(Limits(max_tracked_senders=16))
    crowd = [f"peer {number}" for number in range(40)]
    times = range(NOW, NOW + 60_000, 100)
    assert sum(passed(guard, name, [now]) for now in times for name in ("loud", *crowd)) <= 120 + 4 * 60


@pytest.mark.rule("03.55")
def test_people_see_what_was_dropped_of_whom() -> None:
    guard = Guard(Limits(bucket_capacity=5))
    passed(guard, "quiet", [NOW])
    passed(guard, "loud", [NOW] * 8)
    guard.judge("lost", fresh(), hops(29), OWN, NOW)
    guard.judge("lost", fresh(), hops(29), OWN, NOW)
    guard.judge("lost", fresh(), hops(22, own=11), OWN, NOW)
    before = guard.throttled()
    assert before == (
        Throttled("loud", {"rate-limited": 3}),
        Throttled("lost", {"hop-runaway": 2, "hop-loop": 1}),
    )
    passed(guard, "loud", [NOW])
    assert guard.throttled()[1] == Throttled("loud", {"rate-limited": 4})
    assert before[0].dropped == {"rate-limited": 3}


# ── any sequence ─────────────────────────────────────────────────────────────────────────────────

SOME_LIMITS = st.builds(
    Limits,
    bucket_capacity=st.integers(1, 4),
    refill_per_second=st.sampled_from([0.05, 0.5, 1.0, 3.5]),
    total_capacity=st.integers(1, 8),
    total_refill_per_second=st.sampled_from([0.5, 4.0, 7.25]),
    repeat_seconds=st.sampled_from([0, 1, 30]),
    max_self_hops=st.integers(1, 3),
    max_chain_length=st.integers(2, 5),
    max_tracked_senders=st.integers(1, 4),
)
STEPS = st.one_of(st.integers(0, 3_000), st.sampled_from([-100_000, -1, 250, 1_000, 30_000, 600_000]))


class Known:
    """One sender, as the rules tell it: fractions of tokens."""

    def __init__(self, capacity: int, at: int) -> None:
        self.level = Fraction(capacity)
        self.at = at
        self.previous: tuple[str, int] | None = None
        self.times: list[int] = []

    def fill(self, capacity: int, refill: float, at: int) -> None:
        self.level = min(self.level + Fraction(refill) * (at - self.at) / 1000, Fraction(capacity))
        self.at = at


class AnySequence(RuleBasedStateMachine):
    """Times, keys, texts, chains and limits in any order, against the rules told in fractions of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = Limits(bucket_capacity=3, total_capacity=5, max_tracked_senders=3, max_chain_length=4)
        self.highest = self.limits
        self.guard = Guard(self.limits)
        self.now = NOW
        self.time = 0
        self.known: OrderedDict[str, Known] = OrderedDict()
        self.all = Known(self.limits.total_capacity, 0)
        self.drops: Counter[Reason] = Counter()

    def pass_time(self, step: int) -> None:
        self.now += step
        self.time += max(step, 0)

    def sender(self, key: str) -> Known:
        known = self.known.pop(key, None) or Known(self.limits.bucket_capacity, self.time)
        self.known[key] = known
        while len(self.known) > self.limits.max_tracked_senders:
            self.known.popitem(last=False)
        return known

    def fill(self, known: Known) -> None:
        known.fill(self.limits.bucket_capacity, self.limits.refill_per_second, self.time)
        self.all.fill(self.limits.total_capacity, self.limits.total_refill_per_second, self.time)

    @rule(
        key=st.sampled_from("abcde"),
        text=st.sampled_from(["one", "two", "new", "new"]),
        length=st.integers(0, 7),
        own=st.integers(0, 4),
        keep=st.booleans(),
        step=STEPS,
    )
    def arrive(self, key: str, text: str, length: int, own: int, keep: bool, step: int) -> None:
        self.pass_time(step)
        text = fresh() if text == "new" else text
        chain = hops(length, own=min(own, length))
        known = self.sender(key)
        reason = self.guard.judge(key, text, chain, OWN, self.now)
        assert reason == self.expected(known, text, chain)
        if reason is None:
            self.delivered(known)
            if keep:
                self.guard.kept(key, text, self.now)
                known.previous = text, self.time

    def expected(self, known: Known, text: str, chain: Sequence[str]) -> Reason | None:
        if len(chain) > self.limits.max_chain_length:
            return "hop-runaway"
        if list(chain).count(OWN) > self.limits.max_self_hops:
            return "hop-loop"
        previous, since = known.previous or ("", 0)
        if previous == text and self.time < since + 1000 * self.limits.repeat_seconds:
            return "duplicate"
        self.fill(known)
        if known.level < 1 or self.all.level < 1:
            return "rate-limited"
        known.level -= 1
        self.all.level -= 1
        return None

    def delivered(self, known: Known) -> None:
        """Within any time that ends now: no more than the bucket of one, no more than that of all."""
        bounds = (
            (known.times, self.highest.bucket_capacity, self.highest.refill_per_second),
            (self.all.times, self.highest.total_capacity, self.highest.total_refill_per_second),
        )
        for times, capacity, refill in bounds:
            times.append(self.time)
            for number, since in enumerate(reversed(times), 1):
                assert number <= capacity + Fraction(refill) * (self.time - since) / 1000

    @rule(limits=SOME_LIMITS, step=STEPS)
    def change(self, limits: Limits, step: int) -> None:
        self.pass_time(step)
        self.guard.kept("a", "touch", self.now)  # so that the guard has seen this time
        self.sender("a").previous = "touch", self.time
        for known in self.known.values():
            self.fill(known)
            known.level = min(known.level, Fraction(limits.bucket_capacity))
        self.all.level = min(self.all.level, Fraction(limits.total_capacity))
        self.limits = self.guard.limits = limits
        while len(self.known) > limits.max_tracked_senders:
            self.known.popitem(last=False)
        self.highest = Limits(
            bucket_capacity=max(limits.bucket_capacity, self.highest.bucket_capacity),
            refill_per_second=max(limits.refill_per_second, self.highest.refill_per_second),
            total_capacity=max(limits.total_capacity, self.highest.total_capacity),
            total_refill_per_second=max(limits.total_refill_per_second, self.highest.total_refill_per_second),
        )

    @rule()
    def lose(self) -> None:
        self.guard.forget_repeats()
        for known in self.known.values():
            known.previous = None

    @invariant()
    def only_the_last_heard_are_known(self) -> None:
        assert {throttled.sender for throttled in self.guard.throttled()} <= set(self.known)


@pytest.mark.rule("03.58", "03.59", "03.68", "11.9")
def test_whatever_is_sent_stays_within_the_buckets() -> None:
    run_state_machine_as_test(AnySequence, settings=settings(max_examples=80, stateful_step_count=40))


# ── what leaves ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.67")
def test_a_burst_is_refused_where_it_begins() -> None:
    pace = Pace(Limits())
    assert [pace.spend("peer", NOW) for _ in range(30)] == [None] * 30
    assert pace.spend("peer", NOW) == Burst(count=30, seconds=2)
    assert pace.spend("peer", NOW + 1_000) == Burst(count=30, seconds=1)
    assert pace.spend("another", NOW + 1_000) is None
    assert pace.spend("peer", NOW + 2_000) is None
    assert pace.spend("peer", NOW + 2_000) == Burst(count=30, seconds=2)


@pytest.mark.rule("03.67")
def test_a_held_message_gives_its_token_back() -> None:
    pace = Pace(Limits())
    pace.give_back("peer")
    assert [pace.spend("peer", NOW) for _ in range(31)].count(None) == 30
    pace.give_back("peer")
    assert [pace.spend("peer", NOW) for _ in range(2)] == [None, Burst(count=30, seconds=2)]
    pace.spend("rich", NOW)
    for _ in range(5):
        pace.give_back("rich")
    assert [pace.spend("rich", NOW) for _ in range(31)].count(None) == 30


@pytest.mark.rule("03.67")
def test_the_count_says_what_was_sent_and_not_what_could_have_been() -> None:
    pace = Pace(Limits(bucket_capacity=5))
    assert pace.spend("peer", NOW - 3_600_000) is None
    assert [pace.spend("peer", NOW) for _ in range(5)] == [None] * 5
    pace.limits = Limits(bucket_capacity=30, refill_per_second=0.05)
    assert pace.limits.bucket_capacity == 30
    assert pace.spend("peer", NOW) == Burst(count=5, seconds=20)
    assert [pace.spend("peer", NOW + 3_600_000) for _ in range(31)][-1] == Burst(count=30, seconds=20)


def test_a_bucket_that_never_fills_says_so() -> None:
    pace = Pace(Limits(bucket_capacity=1, refill_per_second=0.0))
    assert pace.spend("peer", NOW) is None
    refused = pace.spend("peer", NOW + 3_600_000)
    assert refused is not None
    assert refused.seconds >= 1_000_000


@pytest.mark.rule("11.10")
def test_the_targets_written_to_last_are_known() -> None:
    pace = Pace(Limits(max_tracked_senders=16, bucket_capacity=5))
    for number in range(17):
        assert [pace.spend(f"peer {number}", NOW) for _ in range(6)].count(None) == 5
    assert pace.spend("peer 1", NOW) is not None
    assert pace.spend("peer 0", NOW) is None


@pytest.mark.rule("03.67", "03.58")
@given(
    st.lists(st.tuples(st.integers(0, 5_000), st.booleans()), max_size=80),
    st.integers(1, 6),
    st.sampled_from([0.05, 0.5, 3.5, 50.0]),
)
def test_what_the_pace_lets_go_the_guard_lets_in(
    steps: list[tuple[int, bool]], capacity: int, refill: float
) -> None:
    """And what it refuses fits after the seconds that it names, and not a second earlier."""
    limits = Limits(bucket_capacity=capacity, refill_per_second=refill)
    pace, guard, now = Pace(limits), Guard(limits), NOW
    for step, patient in steps:
        now += step
        refused = pace.spend("there", now)
        if refused is not None:
            assert guard.judge("here", fresh(), (), OWN, now) == "rate-limited"
            if not patient:
                continue
            assert refused.count <= capacity
            assert pace.spend("there", now + 1_000 * (refused.seconds - 1)) is not None
            now += 1_000 * refused.seconds
            assert pace.spend("there", now) is None
        assert guard.judge("here", fresh(), (), OWN, now) is None


# ── hop chains ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.66")
def test_a_token_is_a_keyed_hash_of_the_address() -> None:
    key, address = bytes(range(32)), "uds:/run/user/1000/postroom/123.sock"
    padded = key + bytes(32)
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded) + address.encode()).digest()
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded) + inner).hexdigest()
    assert token_of(address, key) == outer[:24]
    assert token_of(address, bytes(32)) != token_of(address, key) != token_of(f"{address}x", key)


ONE, TWO = ("1" * 24,), ("1" * 24, "2" * 24)


@pytest.mark.rule("03.66")
def test_a_message_carries_the_chain_of_the_latest_peer_input() -> None:
    turns = Turns()
    assert turns.chain(NOW) == ()
    turns.took([TWO, ONE], NOW)
    assert turns.chain(NOW) == ONE
    turns.took([TWO], NOW + 1)
    assert turns.chain(NOW + 1) == TWO
    turns.took([], NOW + 2)  # a notice, or the user: no peer's input, and the turn goes on
    assert turns.chain(NOW + 2) == TWO
    turns.took([()], NOW + 3)  # a peer's input that states a fresh chain
    assert turns.chain(NOW + 3) == ()


@pytest.mark.rule("03.66")
def test_a_turn_ends_with_a_take_that_returns_nothing() -> None:
    turns = Turns()
    turns.took([TWO], NOW)
    turns.took_nothing()
    assert turns.chain(NOW) == ()
    turns.took([], NOW + 1)
    assert turns.chain(NOW + 1) == ()


@pytest.mark.rule("03.66")
def test_a_turn_ends_sixty_seconds_after_what_was_taken() -> None:
    turns = Turns()
    turns.took([TWO], NOW)
    assert turns.chain(NOW + 59_999) == TWO
    turns.took([], NOW + 59_999)
    assert turns.chain(NOW + 119_998) == TWO
    assert turns.chain(NOW + 119_999) == ()
    turns.took([ONE], NOW + 200_000)
    turns.took([], NOW + 260_000)  # another turn, with no peer's input in it
    assert turns.chain(NOW + 260_000) == ()


@pytest.mark.rule("03.66")
def test_a_clock_that_is_set_back_does_not_keep_a_turn_open() -> None:
    turns = Turns()
    turns.took([TWO], NOW)
    assert turns.chain(NOW - 3_600_000) == TWO
    assert turns.chain(NOW - 3_600_000 + 60_000) == ()


@pytest.mark.rule("03.66")
def test_a_turn_that_the_client_reports_ends_when_it_says_so() -> None:
    turns = Turns()
    turns.began(NOW)
    turns.took([TWO], NOW)
    turns.took_nothing()
    assert turns.chain(NOW + 3_600_000) == TWO
    turns.ended()
    assert turns.chain(NOW + 3_600_000) == ()
    turns.took([ONE], NOW + 3_600_000)  # between two turns it is guessed again
    turns.took_nothing()
    assert turns.chain(NOW + 3_600_000) == ()


@pytest.mark.rule("03.66")
def test_what_woke_the_client_belongs_to_the_turn_that_it_begins() -> None:
    turns = Turns()
    turns.took([TWO], NOW)
    turns.began(NOW + 59_000)
    assert turns.chain(NOW + 3_600_000) == TWO
    turns.began(NOW + 3_600_000)  # the end of the one before was never reported
    assert turns.chain(NOW + 3_600_000) == ()
    turns.ended()
    turns.took([ONE], NOW + 3_600_000)
    turns.began(NOW + 3_660_000)  # long after
    assert turns.chain(NOW + 3_660_000) == ()


@pytest.mark.rule("03.66")
def test_a_peer_without_chains_goes_on_with_what_was_written_to_it() -> None:
    turns = Turns()
    assert turns.continued("peer", NOW) == ()
    turns.wrote("peer", TWO, NOW)
    assert turns.continued("another", NOW) == ()
    assert turns.continued("peer", NOW + 599_999) == TWO
    assert turns.continued("peer", NOW + 600_000) == ()
    turns.wrote("peer", ONE, NOW + 600_000)
    assert turns.continued("peer", NOW + 600_000) == ONE


@pytest.mark.rule("11.10")
def test_the_peers_written_to_longest_ago_are_forgotten() -> None:
    turns = Turns()
    for number in range(MAX_WRITTEN):
        turns.wrote(f"peer {number}", TWO, NOW)
    turns.wrote("peer 0", ONE, NOW)
    turns.wrote("newcomer", ONE, NOW)
    assert turns.continued("peer 0", NOW) == ONE
    assert turns.continued("peer 1", NOW) == ()
    assert turns.continued("peer 2", NOW) == TWO


class Event(NamedTuple):
    """What a session told its turns, and whether a reported turn was open before it."""

    what: str
    time: int
    within: bool
    chains: tuple[tuple[str, ...], ...] = ()


class AnyTurns(RuleBasedStateMachine):
    """Takes and reports in any order; which chain applies is found by looking back over all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns()
        self.now, self.time = NOW, 0
        self.events: list[Event] = []
        self.within = False

    def note(self, what: str, chains: Iterable[tuple[str, ...]] = ()) -> None:
        self.events.append(Event(what, self.time, self.within, tuple(chains)))
        self.within = self.within if what in ("took", "nothing") else what == "began"

    @rule(step=st.sampled_from([0, 1_000, 29_000, 59_999, 60_000, 3_600_000, -5_000, -3_600_000]))
    def wait(self, step: int) -> None:
        self.now += step
        self.time += max(step, 0)
        self.turns.chain(self.now)

    @rule(chains=st.lists(st.sampled_from([(), ONE, TWO]), max_size=2))
    def take(self, chains: list[tuple[str, ...]]) -> None:
        self.turns.took(chains, self.now)
        self.note("took", chains)

    @rule()
    def take_nothing(self) -> None:
        self.turns.took_nothing()
        self.note("nothing")

    @rule()
    def begin(self) -> None:
        self.turns.began(self.now)
        self.note("began")

    @rule()
    def end(self) -> None:
        self.turns.ended()
        self.note("ended")

    def expected(self) -> tuple[str, ...]:
        until, reported = self.time, self.within
        for event in reversed(self.events):
            match event.what:
                case "took":
                    if not reported and until - event.time >= 60_000:
                        return ()
                    if event.chains:
                        return event.chains[-1]
                    until = event.time
                case "nothing" if reported:
                    pass
                case "began" if not event.within:
                    until, reported = event.time, False
                case _:
                    return ()
        return ()

    @invariant()
    def the_chain_is_that_of_the_latest_input(self) -> None:
        assert self.turns.chain(self.now) == self.expected()


@pytest.mark.rule("03.66")
def test_turns_in_any_order() -> None:
    run_state_machine_as_test(AnyTurns, settings=settings(max_examples=100, stateful_step_count=20))


# ── sessions come to rest ────────────────────────────────────────────────────────────────────────


class Letter(NamedTuple):
    """One message under way or delivered."""

    sender: str
    to: str
    text: str
    chain: tuple[str, ...]


Habit = Callable[[str, Letter], Iterable[tuple[str, str]]]
"""What a session does about a letter: whom it writes to, and what."""


class Room:
    """Sessions on one simulated clock, each with the shipped guard and turns, that answer by habit.

    Args:
        names: the sessions.
        habit: what each does about a letter that it reads.
        think: how long a session takes until it reads what came, and again until it looks for more.
        carry: how long a message is under way.
        strips: those that send no chain, and do not announce chains.
        lies: those that send no chain, although they announce chains.
    """

    def __init__(
        self,
        names: Sequence[str],
        habit: Habit,
        *,
        limits: Limits | None = None,
        think: Callable[[], int] = lambda: 1_000,
        carry: Callable[[], int] = lambda: 10,
        strips: Sequence[str] = (),
        lies: Sequence[str] = (),
    ) -> None:
        self.now = NOW
        self.habit, self.think, self.carry, self.strips, self.lies = habit, think, carry, strips, lies
        self.guards = {name: Guard(limits or Limits()) for name in names}
        self.turns = {name: Turns() for name in names}
        self.tokens = {name: token_of(f"uds:/{name}.sock", b"k" * 32) for name in names}
        self.inboxes: dict[str, list[Letter]] = {name: [] for name in names}
        self.events: list[tuple[int, int, str, Letter | None]] = []
        self.delivered: list[tuple[int, Letter]] = []
        self.dropped: Counter[Reason] = Counter()
        self.order = count()

    def at(self, delay: int, name: str, letter: Letter | None = None) -> None:
        heappush(self.events, (self.now + delay, next(self.order), name, letter))

    def send(self, sender: str, to: str, text: str) -> None:
        chain = (*self.turns[sender].chain(self.now), self.tokens[sender])
        self.turns[sender].wrote(to, chain, self.now)
        self.at(
            self.carry(), to, Letter(sender, to, text, () if sender in (*self.strips, *self.lies) else chain)
        )

    def arrive(self, letter: Letter) -> None:
        if letter.sender in self.strips:
            letter = letter._replace(chain=self.turns[letter.to].continued(letter.sender, self.now))
        guard, repeat = self.guards[letter.to], repeat_of(letter.text)
        reason = guard.judge(letter.sender, repeat, letter.chain, self.tokens[letter.to], self.now)
        if reason is not None:
            self.dropped[reason] += 1
            return
        guard.kept(letter.sender, repeat, self.now)
        self.delivered.append((self.now, letter))
        self.inboxes[letter.to].append(letter)
        self.at(self.think(), letter.to)

    def look(self, name: str) -> None:
        letters, self.inboxes[name] = self.inboxes[name], []
        if not letters:
            self.turns[name].took_nothing()
            return
        self.turns[name].took([letter.chain for letter in letters], self.now)
        for letter in letters:
            for to, text in self.habit(name, letter):
                self.send(name, to, text)
        self.at(self.think(), name)

    def run(self, until: int | None = None) -> None:
        """Until nothing is under way and nobody has anything to do, or until that time."""
        while self.events and (until is None or self.events[0][0] <= until):
            self.now, _, name, letter = heappop(self.events)
            if letter is None:
                self.look(name)
            else:
                self.arrive(letter)

    def to(self, name: str) -> int:
        return sum(letter.to == name for _, letter in self.delivered)

    def by(self, name: str) -> int:
        return sum(letter.sender == name for _, letter in self.delivered)


def passes_on(names: Sequence[str]) -> Habit:
    """Everybody passes each letter on to the next one, in ever new words."""
    return lambda name, letter: [(names[(names.index(name) + 1) % len(names)], fresh())]


def answers(text: str) -> Habit:
    return lambda name, letter: [(letter.sender, text)]


@pytest.mark.rule("03.68", "03.66", "11.9")
@pytest.mark.parametrize(
    ("sessions", "deliveries", "reason"),
    [(2, 21, "hop-loop"), *((sessions, 28, "hop-runaway") for sessions in range(3, 9))],
)
@pytest.mark.parametrize("seconds", [0, 1, 50])
def test_sessions_that_pass_everything_on_come_to_rest(
    sessions: int, deliveries: int, reason: Reason, seconds: int
) -> None:
    names = "abcdefgh"[:sessions]
    room = Room(names, passes_on(names), think=lambda: 1_000 * seconds)
    room.send("a", "b", fresh())
    room.run()
    assert len(room.delivered) == deliveries
    assert room.dropped == {reason: 1}
    assert room.to("a") <= 10
    assert max(map(room.to, names)) <= 11


@pytest.mark.rule("03.61", "03.68")
def test_who_began_a_chain_gets_ten_of_it_and_the_other_one_and_ten_returns() -> None:
    room = Room("ab", passes_on("ab"))
    room.send("a", "b", fresh())
    room.run()
    assert (room.to("a"), room.to("b")) == (10, 11)
    assert (room.by("a"), room.by("b")) == (11, 10)


@pytest.mark.rule("03.66")
@pytest.mark.parametrize("deaf", ["a", "b"])
def test_a_loop_with_a_peer_that_knows_no_chains_comes_to_rest_too(deaf: str) -> None:
    """Its chain goes on with what was written to it, so only the other one's token is in there."""
    room = Room("ab", passes_on("ab"), strips=deaf)
    room.guards[deaf] = Guard(Limits.unbounded())  # it has none of ours
    room.send("a", "b", fresh())
    room.run()
    assert room.to("a" if deaf == "b" else "b") <= 11
    assert room.dropped == {"hop-loop": 1}


@pytest.mark.rule("03.66", "03.68")
def test_report_49_a_status_that_three_pass_round_stops() -> None:
    room = Room("abc", passes_on("abc"), think=lambda: 40_000)
    room.send("a", "b", fresh())
    room.run(until=NOW + 12 * 3_600_000)
    assert room.events == []
    assert len(room.delivered) == 28
    room.send("a", "b", fresh())  # somebody at a's keyboard: a fresh chain
    room.run()
    assert len(room.delivered) == 56


@pytest.mark.rule("03.60", "03.68")
@pytest.mark.parametrize(("seconds", "most"), [(1, 3), (14, 3), (31, 21)])
def test_report_49_two_that_acknowledge_for_ever_are_damped(seconds: int, most: int) -> None:
    """At once where they are quick, as repeats; by the chain where they are slow."""
    habits = {"a": answers("Acknowledged."), "b": answers("acknowledged")}
    room = Room("ab", lambda name, letter: habits[name](name, letter), think=lambda: 1_000 * seconds)
    room.send("a", "b", "The build is done.")
    room.run(until=NOW + 12 * 3_600_000)
    assert room.events == []
    assert len(room.delivered) == most


@pytest.mark.rule("03.61")
def test_report_49_a_session_that_writes_to_itself_stops() -> None:
    room = Room("a", passes_on("a"))
    room.send("a", "a", fresh())
    room.run()
    assert len(room.delivered) == 10


@pytest.mark.rule("03.58", "03.60")
@pytest.mark.parametrize("carry", [0, 500])
def test_report_49_a_lawful_coordinator_sends_eleven_reports(carry: int) -> None:
    """All of its reports arrive; of eleven acknowledgements without content in a row, one does."""
    received = answers("Received, thank you.")
    room = Room("cw", lambda name, letter: received(name, letter) if name == "w" else (), carry=lambda: carry)
    for number in range(11):
        room.send("c", "w", f"Report {number}: suite {number} is green.")
        room.run(until=room.now + carry)
    room.run()
    assert room.to("w") == 11
    assert room.to("c") == 1
    assert room.dropped == {"duplicate": 10}


@pytest.mark.rule("03.66", "03.68", "11.9")
def test_a_sender_that_strips_chains_and_varies_its_text_is_held_to_its_bucket() -> None:
    guard = Guard(Limits())
    assert passed(guard, "peer", range(NOW, NOW + 600_000, 100)) == 30 + 299
    assert guard.throttled() == (Throttled("peer", {"rate-limited": 6_000 - 329}),)


@pytest.mark.rule("03.59", "03.68")
@pytest.mark.parametrize("sessions", [3, 8])
@pytest.mark.parametrize("seconds", [1, 20])
def test_all_that_write_to_all_others_come_to_rest(sessions: int, seconds: int) -> None:
    """The 28 hold along each branch, the buckets for all of them; after 28 times the way there is silence."""
    names = "abcdefgh"[:sessions]
    room = Room(
        names,
        lambda name, letter: [(other, fresh()) for other in names if other != name],
        think=lambda: 1_000 * seconds,
    )
    room.send("a", "b", fresh())
    room.run()
    duration = 28 * (seconds + 0.01)
    assert room.delivered[-1][0] <= NOW + 1_000 * duration
    assert max(len(letter.chain) for _, letter in room.delivered) <= 28
    for name in names:
        assert room.to(name) <= 120 + 4 * duration
        senders = Counter(letter.sender for _, letter in room.delivered if letter.to == name)
        assert max(senders.values()) <= 30 + 0.5 * duration
    assert room.dropped["rate-limited"] > 0


@pytest.mark.rule("03.68", "11.9")
@pytest.mark.parametrize("sessions", [2, 3, 8])
def test_all_that_acknowledge_to_all_others_come_to_rest(sessions: int) -> None:
    names = "abcdefgh"[:sessions]
    room = Room(names, lambda name, letter: [(other, "Acknowledged.") for other in names if other != name])
    room.send("a", "b", "The build is done.")
    room.run()
    # One new text and one acknowledgement between each two, and again where 30 s have passed in between.
    assert len(room.delivered) <= 1 + sessions * (sessions - 1)


@pytest.mark.rule("03.68", "11.9")
@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 3), st.integers(0, 3))
def test_any_sessions_come_to_rest(seed: int, sessions: int, starts: int, spread: int) -> None:
    """Whoever writes to whom, in whichever order and however late: with a chain on each, it ends by itself."""
    random = Random(seed)
    names = "abcdef"[:sessions]

    def habit(name: str, letter: Letter) -> Iterable[tuple[str, str]]:
        others = [other for other in names if other != name]
        return [(random.choice(others), fresh()) for _ in range(random.randint(0, 1 + spread))]

    longest = 4_000
    room = Room(
        names, habit, think=lambda: random.randint(0, longest), carry=lambda: random.randint(0, longest)
    )
    for _ in range(starts):
        room.send(names[0], names[1], fresh())
    room.run()
    duration = room.delivered[-1][0] - NOW
    assert duration <= 28 * 2 * longest
    along: dict[tuple[str, ...], int] = Counter(letter.chain for _, letter in room.delivered)
    assert max(map(len, along)) <= 28
    for name, token in room.tokens.items():
        received = [letter for _, letter in room.delivered if letter.to == name]
        assert all(letter.chain.count(token) <= 10 for letter in received)
        assert len(received) <= 120 + 4 * math.ceil(duration / 1_000)


@pytest.mark.rule("03.66", "03.68")
def test_without_chains_the_room_does_not_rest_and_the_buckets_hold() -> None:
    """That the sessions above come to rest is the chains' doing, and not the room's."""
    room = Room("abc", passes_on("abc"), lies="abc", think=lambda: 100)
    room.send("a", "b", fresh())
    room.run(until=NOW + 60_000)
    assert room.dropped == {"rate-limited": 1}
    assert max(map(room.by, "abc")) == 30 + 5  # five came back in the ten seconds that it took
    room = Room("abc", passes_on("abc"), lies="abc", think=lambda: 2_000)
    room.send("a", "b", fresh())
    room.run(until=NOW + 3_600_000)
    assert len(room.delivered) > 1_000
    assert room.events
