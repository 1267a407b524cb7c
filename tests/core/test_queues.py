"""The main queue and the pending lists: order, idleness in one step, and nothing lost between threads."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from postroom.core import queues
from postroom.core.message import Origin, OriginKind, Priority, RunStatus, TaskNotification
from postroom.core.queues import CAPACITY, Entry, MainQueue, Mark, Pending, progress_of, tier_of

USER = Origin(kind="user", identity="user")
AGENT = Origin(kind="agent", identity="a1", name="worker")
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
KINDS: tuple[OriginKind, ...] = get_args(OriginKind)
STATUSES: tuple[RunStatus, ...] = get_args(RunStatus)

Either = Entry | Mark


def entry(name: object, priority: Priority = "next", origin: Origin = AGENT) -> Entry:
    return Entry(str(name), "words", origin, priority=priority)


def about(task_id: str, words: str, status: RunStatus = "running", priority: Priority = "later") -> Entry:
    said = TaskNotification(task_id=task_id, name="worker", status=status, run=1, at=0, result=words)
    return Entry(words, words, AGENT, priority=priority, task=said)


def ids(items: list[Entry] | list[Either]) -> list[str]:
    return [item.msg_id for item in items]


def main(capacity: int = CAPACITY) -> MainQueue[Either]:
    return MainQueue(capacity)


# ── what waits ───────────────────────────────────────────────────────────────────────────────────


def test_a_repr_names_the_sender_and_shows_no_text() -> None:
    shown = repr(Entry("m1", "the secret", AGENT, summary="also secret"))
    assert "secret" not in shown
    assert "m1" in shown
    assert "worker" in shown
    assert "10 characters" in shown


@pytest.mark.rule("06.2", "05.21")
@given(st.sampled_from(KINDS), st.sampled_from(PRIORITIES))
def test_now_is_the_users_alone(kind: OriginKind, priority: Priority) -> None:
    item = entry("it", priority, Origin(kind=kind, identity="x"))
    expected = "next" if priority == "now" and kind != "user" else priority
    assert tier_of(item) == expected
    queue = main()
    queue.append(entry("first"))
    queue.append(item)
    assert ids(queue.drain(idle=True)) == (["it", "first"] if expected == "now" else ["first", "it"])


@pytest.mark.rule("05.21")
@pytest.mark.parametrize(("asked", "tier"), [("now", "next"), ("next", "next"), ("later", "later")])
def test_a_mark_stands_for_a_peer_and_is_never_now(asked: Priority, tier: Priority) -> None:
    assert tier_of(Mark("peer", "m", asked)) == tier


@pytest.mark.rule("06.11")
@pytest.mark.parametrize("status", STATUSES)
def test_only_what_still_runs_is_progress(status: RunStatus) -> None:
    assert progress_of(about("t1", "w", status)) == ("t1" if status == "running" else "")


def test_a_message_and_a_mark_are_no_progress() -> None:
    assert progress_of(entry("m")) == ""
    assert progress_of(Mark("peer", "m")) == ""


# ── the order ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.2")
def test_now_before_next_before_later() -> None:
    queue = main()
    for number, priority in enumerate(("later", "next", "now", "next", "later", "now")):
        assert queue.append(entry(number, priority, USER)) == "queued"
    assert ids(queue.drain(idle=True)) == ["2", "5", "1", "3", "0", "4"]
    assert len(queue) == 0


@pytest.mark.rule("06.2")
def test_marks_and_entries_share_one_order() -> None:
    queue = main()
    items: list[Either] = [entry("a"), Mark("peer", "b"), entry("c"), Mark("peer", "d")]
    for item in items:
        queue.append(item)
    assert queue.drain() == items


@pytest.mark.rule("06.2")
def test_later_waits_until_the_loop_is_idle() -> None:
    queue = main()
    queue.append(entry("l", "later"))
    queue.append(entry("n"))
    assert ids(queue.drain()) == ["n"]
    assert queue.drain() == []
    assert len(queue) == 1
    assert ids(queue.drain(idle=True)) == ["l"]
    assert queue.drain(idle=True) == []


def test_looking_takes_nothing() -> None:
    queue = main()
    for priority in PRIORITIES:
        queue.append(entry(priority, priority, USER))
    assert ids(queue.peek()) == ["now", "next"]
    assert ids(queue.peek(idle=True)) == ["now", "next", "later"]
    queue.peek(idle=True).clear()
    assert len(queue) == 3


@pytest.mark.rule("11.10")
def test_a_full_tier_takes_no_more_and_shuts_no_other() -> None:
    queue = main(2)
    assert [queue.append(entry(n, "later")) for n in range(3)] == ["queued", "queued", "full"]
    assert [queue.append(entry(n)) for n in range(3, 6)] == ["queued", "queued", "full"]
    assert queue.append(entry(6, "now", USER)) == "queued"
    assert ids(queue.drain(idle=True)) == ["6", "3", "4", "0", "1"]
    assert queue.append(entry(7, "later")) == "queued"


@pytest.mark.rule("11.10")
def test_the_capacity_is_bounded_unless_somebody_says_otherwise() -> None:
    queue, pending = main(), Pending()
    item = entry("same")
    for put, held in ((queue.append, queue), (pending.append, pending)):
        assert {put(item) for _ in range(CAPACITY)} == {"queued"}
        assert put(item) == "full"
        assert len(held) == CAPACITY


# ── progress ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.11")
def test_of_one_tasks_progress_the_latest_waits_in_the_place_of_the_first() -> None:
    queue = main()
    for item in (about("t1", "a1"), about("t2", "b1"), entry("x", "later"), about("t1", "a2")):
        assert queue.append(item) == "queued"
    assert ids(queue.drain(idle=True)) == ["a2", "b1", "x"]
    assert queue.append(about("t1", "a3")) == "queued"
    assert ids(queue.drain(idle=True)) == ["a3"]


@pytest.mark.rule("06.11")
def test_each_finish_waits_by_itself() -> None:
    queue = main()
    for words in ("first", "second"):
        queue.append(about("t1", words, "completed", "next"))
    assert ids(queue.drain()) == ["first", "second"]


@pytest.mark.rule("06.11")
def test_progress_finds_its_place_in_a_full_tier() -> None:
    queue, pending = main(1), Pending(1)
    for append, drain in ((queue.append, lambda: queue.drain(idle=True)), (pending.append, pending.drain)):
        assert append(about("t1", "old")) == "queued"
        assert append(about("t2", "none")) == "full"
        assert append(about("t1", "new")) == "queued"
        assert ids(drain()) == ["new"]


# ── idle ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.3")
def test_a_busy_loop_is_not_woken() -> None:
    queue = main()
    assert not queue.idle
    assert queue.append(entry("a")) == "queued"
    assert not queue.nudge()


@pytest.mark.rule("06.3")
def test_an_idle_loop_is_woken_once_until_it_drains() -> None:
    queue = main()
    assert queue.rest() == []
    assert queue.idle
    assert queue.append(entry("a", "later")) == "wake"
    assert queue.append(entry("b")) == "queued"
    assert not queue.nudge()
    assert queue.idle
    assert ids(queue.drain()) == ["b"]
    assert not queue.idle
    assert queue.append(entry("c")) == "queued"
    assert ids(queue.rest()) == ["c", "a"]
    assert queue.rest() == []
    assert queue.append(entry("d")) == "wake"


@pytest.mark.rule("06.3")
def test_going_idle_hands_over_what_waits_instead() -> None:
    queue = main()
    queue.append(entry("n"))
    queue.append(entry("l", "later"))
    assert ids(queue.rest()) == ["n", "l"]
    assert not queue.idle
    assert queue.append(entry("x")) == "queued"


@pytest.mark.rule("06.3")
def test_what_waits_elsewhere_wakes_once_as_well() -> None:
    queue = main()
    queue.rest()
    assert [queue.nudge(), queue.nudge()] == [True, False]
    assert queue.append(entry("a")) == "queued"
    queue.drain()
    queue.rest()
    assert queue.nudge()


@pytest.mark.rule("06.3")
def test_resting_again_arms_the_wake_again() -> None:
    queue = main()
    queue.rest()
    assert queue.nudge()
    assert queue.rest() == []
    assert queue.append(entry("a")) == "wake"


@pytest.mark.rule("06.3")
def test_an_append_that_finds_no_room_wakes_nobody() -> None:
    queue = main(0)
    queue.rest()
    assert queue.append(entry("a")) == "full"
    assert queue.nudge()


# ── put back ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.3")
def test_what_is_put_back_stands_first_in_its_tier_and_is_marked() -> None:
    queue = main()
    for number, priority in enumerate(("now", "next", "next", "later", "later")):
        queue.append(entry(number, priority, USER))
    taken = queue.drain(idle=True)
    for priority in PRIORITIES:
        queue.append(entry(f"new {priority}", priority, USER))
    queue.put_back(taken)
    back = queue.drain(idle=True)
    assert ids(back) == ["0", "new now", "1", "2", "new next", "3", "4", "new later"]
    marked = [item.msg_id for item in back if isinstance(item, Entry) and item.redelivered]
    assert marked == ["0", "1", "2", "3", "4"]


@pytest.mark.rule("06.3")
def test_a_mark_is_not_put_back_since_its_message_lies_in_the_store() -> None:
    queue = main()
    queue.put_back([Mark("peer", "a"), entry("b")])
    assert ids(queue.drain()) == ["b"]


def test_what_is_put_back_needs_no_room() -> None:
    queue, pending = main(1), Pending(1)
    queue.append(entry("here"))
    queue.put_back([entry("a"), entry("b")])
    assert ids(queue.drain()) == ["a", "b", "here"]
    pending.append(entry("here"))
    pending.put_back([entry("a"), entry("b")])
    assert ids(pending.drain()) == ["a", "b", "here"]


# ── one agent ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.4", "06.5")
def test_a_drain_hands_over_the_whole_list_in_order_and_clears_it() -> None:
    pending = Pending()
    for name, priority in zip("abc", reversed(PRIORITIES), strict=True):
        assert pending.append(entry(name, priority, USER)) == "queued"
    assert ids(pending.peek()) == ["a", "b", "c"]
    pending.peek().clear()
    assert ids(pending.drain()) == ["a", "b", "c"]
    assert pending.drain() == []
    assert len(pending) == 0


@pytest.mark.rule("06.5")
def test_what_is_appended_after_a_drain_is_in_the_next_one() -> None:
    pending = Pending()
    pending.append(entry("a"))
    first = pending.drain()
    pending.append(entry("b"))
    assert ids(first) == ["a"]
    assert ids(pending.drain()) == ["b"]


@given(st.integers(0, 5), st.integers(0, 7))
def test_a_reader_that_can_take_no_more_takes_the_oldest(waiting: int, limit: int) -> None:
    pending = Pending()
    names = [str(number) for number in range(waiting)]
    for name in names:
        pending.append(entry(name))
    assert ids(pending.drain(limit)) == names[:limit]
    assert ids(pending.peek()) == names[limit:]


def test_what_an_agent_gives_back_stands_first_and_is_marked() -> None:
    pending = Pending()
    pending.append(entry("a"))
    pending.append(entry("b"))
    taken = pending.drain()
    pending.append(entry("c"))
    pending.put_back(taken)
    assert [(one.msg_id, one.redelivered) for one in pending.drain()] == [
        ("a", True),
        ("b", True),
        ("c", False),
    ]


@pytest.mark.rule("06.11")
def test_an_agents_list_keeps_the_latest_progress_of_each_task() -> None:
    pending = Pending()
    for item in (about("t1", "a1"), entry("m"), about("t2", "b1"), about("t1", "a2")):
        assert pending.append(item) == "queued"
    pending.append(about("t1", "done", "completed"))
    assert ids(pending.drain()) == ["a2", "m", "b1", "done"]


# ── threads ──────────────────────────────────────────────────────────────────────────────────────


class Gate:
    """A lock at which others come first: before it is taken, or as soon as it is given back.

    What is done `before` is done whole. What is done `meanwhile` is begun by another thread while the lock is held,
    stands before it, and gets it before the first one can take it again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.before: Callable[[], object] | None = None
        self.meanwhile: Callable[[], object] | None = None
        self._reached = threading.Event()

    def __enter__(self) -> None:
        self._reached.set()
        if (before := self.before) is not None:
            self.before = None
            before()
        assert self._lock.acquire(timeout=30)

    def __exit__(self, *_: object) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is None:
            self._lock.release()
            return
        self._reached.clear()
        other = threading.Thread(target=meanwhile, daemon=True)
        other.start()
        reached = self._reached.wait(30)
        self._lock.release()
        assert reached, "the other thread asked for no lock"
        other.join(30)
        assert not other.is_alive()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    monkeypatch.setattr(queues, "_LOCK", made)
    return made


@pytest.mark.rule("06.3")
def test_nothing_falls_between_the_last_drain_and_idle(gate: Gate) -> None:
    """An append comes while the loop goes idle: it is behind that step, so it wakes and is handed over next."""
    queue = main()
    answers: list[str] = []
    gate.meanwhile = lambda: answers.append(queue.append(entry("late")))
    assert queue.rest() == []
    assert answers == ["wake"]
    assert queue.idle
    assert ids(queue.rest()) == ["late"]


@pytest.mark.rule("06.2")
def test_what_is_appended_during_a_drain_is_in_the_next_one(gate: Gate) -> None:
    queue = main()
    queue.append(entry("a"))
    gate.meanwhile = lambda: queue.append(entry("b"))
    assert ids(queue.drain()) == ["a"]
    assert ids(queue.drain()) == ["b"]


@pytest.mark.rule("06.2")
@pytest.mark.parametrize("priority", PRIORITIES)
def test_an_append_that_a_drain_came_before_is_in_the_next_one(gate: Gate, priority: Priority) -> None:
    queue = main()
    queue.append(entry("a", priority, USER))
    taken: list[Either] = []
    gate.before = lambda: taken.extend(queue.drain(idle=True))
    assert queue.append(entry("b", priority, USER)) == "queued"
    assert ids(taken) == ["a"]
    assert ids(queue.drain(idle=True)) == ["b"]


@pytest.mark.rule("06.5")
def test_an_append_that_an_agents_drain_came_before_is_in_the_next_one(gate: Gate) -> None:
    pending = Pending()
    pending.append(entry("a"))
    taken: list[Entry] = []
    gate.before = lambda: taken.extend(pending.drain())
    pending.append(entry("b"))
    assert ids(taken) == ["a"]
    assert ids(pending.drain()) == ["b"]


@pytest.mark.rule("06.5")
def test_an_append_during_an_agents_drain_lands_in_its_next_one(gate: Gate) -> None:
    pending = Pending()
    pending.append(entry("a"))
    gate.meanwhile = lambda: pending.append(entry("b"))
    assert ids(pending.drain()) == ["a"]
    assert ids(pending.drain()) == ["b"]


@pytest.mark.rule("06.3")
def test_of_two_threads_that_append_to_an_idle_loop_one_wakes_it(gate: Gate) -> None:
    queue = main()
    queue.rest()
    answers: list[str] = []
    gate.meanwhile = lambda: answers.append(queue.append(entry("other")))
    answers.append(queue.append(entry("one")))
    assert sorted(answers) == ["queued", "wake"]


@contextmanager
def switching_often() -> Generator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def flood(append: Callable[[Entry], object], drain: Callable[[], list[str]]) -> None:
    """Four threads append while this one drains: each item comes once, and each thread's in its order."""
    each, threads = 500, 4
    start = threading.Barrier(threads + 1, timeout=30)

    def put(thread: int) -> None:
        start.wait()
        for number in range(each):
            append(entry(thread * each + number))

    with switching_often():
        writers = [threading.Thread(target=put, args=(thread,), daemon=True) for thread in range(threads)]
        for writer in writers:
            writer.start()
        start.wait()
        taken: list[str] = []
        while any(writer.is_alive() for writer in writers):
            taken += drain()
        taken += drain()
    numbers = [int(name) for name in taken]
    assert sorted(numbers) == list(range(each * threads))
    for thread in range(threads):
        own = [number for number in numbers if number // each == thread]
        assert own == sorted(own)


@pytest.mark.rule("06.2")
def test_threads_keep_their_order_and_lose_nothing() -> None:
    queue = main()
    flood(queue.append, lambda: ids(queue.drain()))


@pytest.mark.rule("06.4", "06.5")
def test_threads_that_write_to_one_agent_lose_nothing() -> None:
    pending = Pending()
    flood(pending.append, lambda: ids(pending.drain()))


@pytest.mark.rule("06.3")
def test_a_loop_that_sleeps_until_it_is_woken_reads_everything() -> None:
    """The loop goes on only when an append says `wake`: one that were lost would leave it asleep for good."""
    each, threads = 300, 3
    queue = main()
    woken = threading.Semaphore(0)
    start = threading.Barrier(threads + 1, timeout=30)

    def put(thread: int) -> None:
        start.wait()
        for number in range(each):
            if queue.append(entry(thread * each + number)) == "wake":
                woken.release()

    taken: list[str] = []
    with switching_often():
        for thread in range(threads):
            threading.Thread(target=put, args=(thread,), daemon=True).start()
        start.wait()
        while len(taken) < each * threads:
            if items := queue.rest():
                taken += ids(items)
            else:
                assert woken.acquire(timeout=30), "asleep, and something waits"
    assert sorted(map(int, taken)) == list(range(each * threads))
    assert not woken.acquire(blocking=False)


# ── whatever is put and taken ────────────────────────────────────────────────────────────────────

ITEMS = st.one_of(
    st.tuples(st.just("entry"), st.sampled_from(PRIORITIES), st.sampled_from([USER, AGENT])),
    st.tuples(st.just("mark"), st.sampled_from(PRIORITIES), st.just(AGENT)),
    st.tuples(st.sampled_from(["t1", "t2"]), st.just("later"), st.just(AGENT)),
)


class Queue(RuleBasedStateMachine):
    """A queue beside the plainest model of one: a list that is sorted when it is drained."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = main()
        self.capacity = CAPACITY
        self.waiting: list[tuple[int, Either]] = []
        self.taken: list[Either] = []
        self.loop = "busy"
        self.count = 0

    @initialize(capacity=st.integers(0, 4))
    def make(self, capacity: int) -> None:
        self.queue = main(capacity)
        self.capacity = capacity

    def _wakes(self) -> bool:
        wakes = self.loop == "idle"
        if wakes:
            self.loop = "woken"
        return wakes

    @rule(what=ITEMS)
    def append(self, what: tuple[str, Priority, Origin]) -> None:
        kind, priority, origin = what
        name = f"{kind} {self.count}"
        self.count += 1
        item: Either
        if kind == "mark":
            item = Mark("peer", name, priority)
        else:
            item = entry(name, priority, origin) if kind == "entry" else about(kind, name)
        rank = {"now": 0 if kind == "entry" and origin is USER else 1, "next": 1, "later": 2}[priority]
        same = [
            at for at, (_, old) in enumerate(self.waiting) if kind.startswith("t") and old.msg_id[:2] == kind
        ]
        answer = self.queue.append(item)
        if same:
            self.waiting[same[0]] = (rank, item)
            assert answer == "queued"
        elif Counter(waiting for waiting, _ in self.waiting)[rank] >= self.capacity:
            assert answer == "full"
        else:
            self.waiting.append((rank, item))
            assert answer == ("wake" if self._wakes() else "queued")

    @rule()
    def nudge(self) -> None:
        assert self.queue.nudge() is self._wakes()

    def readable(self, idle: bool) -> list[Either]:
        ranked = sorted(self.waiting, key=lambda pair: pair[0])
        return [item for rank, item in ranked if idle or rank < 2]

    @rule(idle=st.booleans())
    def drain(self, idle: bool) -> None:
        expected = self.readable(idle)
        assert self.queue.drain(idle=idle) == expected
        self.waiting = [pair for pair in self.waiting if pair[1] not in expected]
        self.taken, self.loop = expected, "busy"

    @rule()
    def rest(self) -> None:
        expected = self.readable(True)
        assert self.queue.rest() == expected
        self.waiting, self.taken = [], expected
        self.loop = "busy" if expected else "idle"

    @rule()
    def put_back(self) -> None:
        """Before anything new of the same task came: progress that is put back beside newer one is not modelled."""
        newer = {progress_of(item) for _, item in self.waiting} - {""}
        back = [one for one in self.taken if isinstance(one, Entry) and progress_of(one) not in newer]
        self.queue.put_back([one for one in self.taken if isinstance(one, Mark) or one in back])
        again = [one._replace(redelivered=True) for one in back]
        ranks = {"now": 0, "next": 1, "later": 2}
        self.waiting = [*((ranks[tier_of(one)], one) for one in again), *self.waiting]
        self.taken = []

    @invariant()
    def the_queue_shows_what_waits(self) -> None:
        assert len(self.queue) == len(self.waiting)
        assert self.queue.idle is (self.loop != "busy")
        for idle in (False, True):
            assert self.queue.peek(idle=idle) == self.readable(idle)


@pytest.mark.rule("06.2", "06.3")
def test_the_order_holds_whatever_is_put_and_taken() -> None:
    run_state_machine_as_test(Queue, settings=settings(max_examples=100, stateful_step_count=30))  # pyright: ignore[reportUnknownMemberType]
