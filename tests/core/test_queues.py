"""The main queue: tiers in order, insertion order in each, and nothing lost between threads."""

from __future__ import annotations

import inspect
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from types import FrameType
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from postroom.core.message import Message, Origin, OriginKind, Priority
from postroom.core.queues import CAPACITY, MainQueue, tier_of

USER = Origin(kind="user", identity="user")
PEER = Origin(kind="peer", identity="5f0e")
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
KINDS: tuple[OriginKind, ...] = get_args(OriginKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """The least that can wait in a queue."""

    number: int
    priority: Priority = "next"
    origin: Origin = PEER


def numbers(things: list[Thing]) -> list[int]:
    return [thing.number for thing in things]


@pytest.mark.rule("06.2")
def test_now_before_next_before_later() -> None:
    queue: MainQueue[Thing] = MainQueue()
    for number, priority in enumerate(("later", "next", "now", "next", "later", "now")):
        assert queue.append(Thing(number=number, priority=priority, origin=USER))
    assert numbers(queue.drain(idle=True)) == [2, 5, 1, 3, 0, 4]
    assert len(queue) == 0


@pytest.mark.rule("06.2")
def test_later_waits_until_the_loop_is_idle() -> None:
    queue: MainQueue[Thing] = MainQueue()
    queue.append(Thing(number=0, priority="later"))
    queue.append(Thing(number=1))
    assert numbers(queue.drain()) == [1]
    assert queue.drain() == []
    assert len(queue) == 1
    assert numbers(queue.drain(idle=True)) == [0]
    assert queue.drain(idle=True) == []


@pytest.mark.rule("06.2", "05.21")
@given(st.sampled_from(KINDS), st.sampled_from(PRIORITIES))
def test_now_is_the_users_alone(kind: OriginKind, priority: Priority) -> None:
    thing = Thing(number=0, priority=priority, origin=Origin(kind=kind, identity="x"))
    expected = "next" if priority == "now" and kind != "user" else priority
    assert tier_of(thing) == expected
    queue: MainQueue[Thing] = MainQueue()
    queue.append(Thing(number=1))
    queue.append(thing)
    assert numbers(queue.drain(idle=True)) == ([0, 1] if expected == "now" else [1, 0])


def test_a_message_can_wait_there() -> None:
    queue: MainQueue[Message] = MainQueue()
    one = Message(msg_id="m", text="t", origin=PEER, received_at=0, priority="now")
    assert queue.append(one)
    assert queue.peek() == [one]
    assert queue.drain() == [one]


def test_looking_takes_nothing() -> None:
    queue: MainQueue[Thing] = MainQueue()
    for number, priority in enumerate(PRIORITIES):
        queue.append(Thing(number=number, priority=priority, origin=USER))
    assert numbers(queue.peek()) == [0, 1]
    assert numbers(queue.peek(idle=True)) == [0, 1, 2]
    assert len(queue) == 3
    queue.peek().clear()
    assert len(queue) == 3


@pytest.mark.rule("11.10")
def test_a_full_tier_takes_no_more_and_shuts_no_other() -> None:
    queue: MainQueue[Thing] = MainQueue(capacity=2)
    assert [queue.append(Thing(number=n, priority="later")) for n in range(3)] == [True, True, False]
    assert [queue.append(Thing(number=n)) for n in range(3, 6)] == [True, True, False]
    assert queue.append(Thing(number=6, priority="now", origin=USER))
    assert numbers(queue.drain(idle=True)) == [6, 3, 4, 0, 1]
    assert queue.append(Thing(number=7, priority="later"))


@pytest.mark.rule("11.10")
def test_the_capacity_is_bounded_unless_somebody_says_otherwise() -> None:
    queue: MainQueue[Thing] = MainQueue()
    thing = Thing(number=0)
    assert all(queue.append(thing) for _ in range(CAPACITY))
    assert not queue.append(thing)
    assert len(queue) == CAPACITY


@pytest.mark.rule("06.2")
def test_what_is_appended_during_a_drain_is_in_the_next_one() -> None:
    """Another thread's append is forced in between every two lines of the drain."""
    queue: MainQueue[Thing] = MainQueue()
    appended: list[int] = []

    def put(priority: Priority = "next") -> None:
        number = len(appended)
        appended.append(number)
        queue.append(Thing(number=number, priority=priority, origin=USER))

    for priority in PRIORITIES:
        put(priority)
    module = inspect.getsourcefile(MainQueue)
    appending = False

    def interleave(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal appending
        if frame.f_code.co_filename != module or appending:
            return None
        if event == "line":
            appending = True
            for priority in PRIORITIES:
                put(priority)
            appending = False
        return interleave

    before = sys.gettrace()
    sys.settrace(interleave)
    try:
        first = queue.drain(idle=True)
    finally:
        sys.settrace(before)
    between = len(appended)
    assert between > 12
    rest = queue.drain(idle=True)
    assert sorted(numbers(first) + numbers(rest)) == list(range(between))
    for priority in PRIORITIES:
        tier = [thing.number for thing in first + rest if thing.priority == priority]
        assert tier == sorted(tier)


@pytest.mark.rule("06.2")
def test_threads_keep_their_order_and_lose_nothing() -> None:
    queue: MainQueue[Thing] = MainQueue()
    each, threads = 500, 4
    start = threading.Barrier(threads + 1, timeout=30)

    def put(thread: int) -> None:
        start.wait()
        for number in range(each):
            queue.append(Thing(number=thread * each + number))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        writers = [threading.Thread(target=put, args=(thread,), daemon=True) for thread in range(threads)]
        for writer in writers:
            writer.start()
        start.wait()
        taken: list[int] = []
        while any(writer.is_alive() for writer in writers):
            taken += numbers(queue.drain())
        taken += numbers(queue.drain())
    finally:
        sys.setswitchinterval(interval)
    assert sorted(taken) == list(range(each * threads))
    for thread in range(threads):
        own = [number for number in taken if number // each == thread]
        assert own == sorted(own)


class Queue(RuleBasedStateMachine):
    """A queue beside the plainest model of one: a list that is sorted when it is drained."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: MainQueue[Thing] = MainQueue()
        self.waiting: list[tuple[int, Thing]] = []
        self.capacity = CAPACITY
        self.count = 0

    @initialize(capacity=st.integers(0, 4))
    def make(self, capacity: int) -> None:
        self.queue = MainQueue(capacity=capacity)
        self.capacity = capacity

    @rule(priority=st.sampled_from(PRIORITIES), origin=st.sampled_from([USER, PEER]))
    def append(self, priority: Priority, origin: Origin) -> None:
        thing = Thing(number=self.count, priority=priority, origin=origin)
        self.count += 1
        rank = {"now": 0 if origin is USER else 1, "next": 1, "later": 2}[priority]
        room = Counter(waiting for waiting, _ in self.waiting)[rank] < self.capacity
        assert self.queue.append(thing) is room
        if room:
            self.waiting.append((rank, thing))

    def readable(self, idle: bool) -> list[Thing]:
        ranked = sorted(self.waiting, key=lambda pair: pair[0])
        return [thing for rank, thing in ranked if idle or rank < 2]

    @rule(idle=st.booleans())
    def drain(self, idle: bool) -> None:
        expected = self.readable(idle)
        assert self.queue.drain(idle=idle) == expected
        self.waiting = [pair for pair in self.waiting if pair[1] not in expected]

    @invariant()
    def the_queue_shows_what_waits(self) -> None:
        assert len(self.queue) == len(self.waiting)
        for idle in (False, True):
            assert self.queue.peek(idle=idle) == self.readable(idle)


@pytest.mark.rule("06.2")
def test_the_order_holds_whatever_is_put_and_taken() -> None:
    run_state_machine_as_test(Queue, settings=settings(max_examples=100, stateful_step_count=30))  # pyright: ignore[reportUnknownMemberType]
