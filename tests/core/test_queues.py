"""The main queue and the pending lists: order, idleness in one step, and nothing lost between threads."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from postroom.core import queues
from postroom.core.message import Origin, OriginKind, Priority, RunStatus, TaskNotification
from postroom.core.queues import CAPACITY, Entry, MainQueue, Mark, Pending, begins_a_run, progress_of, tier_of

USER = Origin(kind="user", identity="user")
AGENT = Origin(kind="agent", identity="a1", name="worker")
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
KINDS: tuple[OriginKind, ...] = get_args(OriginKind)
STATUSES: tuple[RunStatus, ...] = get_args(RunStatus)

Either = Entry | Mark


def entry(name: object, priority: Priority = "next", origin: Origin = AGENT) -> Entry:
    return Entry(str(name), "words", origin, priority=priority)


def about(
    task_id: str,
    words: str,
    status: RunStatus = "running",
    priority: Priority = "later",
    *,
    run: int = 1,
    at: int = 0,
) -> Entry:
    said = TaskNotification(task_id=task_id, name="worker", status=status, run=run, at=at, result=words)
    return Entry(words, words, AGENT, priority=priority, task=said)


def ids(items: list[Entry] | list[Either]) -> list[str]:
    return [item.msg_id for item in items]


def main(capacity: int = CAPACITY) -> MainQueue[Either]:
    return MainQueue(capacity)


class Both:
    """A main queue and an agent's list, to which the same is done."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.queue, self.pending = main(capacity), Pending(capacity)

    def append(self, *items: Entry) -> list[str]:
        answers = [self.queue.append(item) for item in items]
        assert [self.pending.append(item) for item in items] == answers
        return answers

    def put_back(self, *items: Entry) -> None:
        self.queue.put_back(iter(items))
        self.pending.put_back(items)

    def drain(self) -> list[Entry]:
        taken = self.pending.drain()
        assert self.queue.drain(idle=True) == taken
        return taken

    def waiting(self) -> list[str]:
        shown = ids(self.pending.peek())
        assert ids(self.queue.peek(idle=True)) == shown
        assert len(self.queue) == len(self.pending) == len(shown)
        return shown


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
@pytest.mark.parametrize("status", [status for status in STATUSES if status != "running"])
@pytest.mark.parametrize("priority", PRIORITIES)
def test_an_end_drops_the_progress_of_its_run_in_whatever_tier_that_waits(
    status: RunStatus, priority: Priority
) -> None:
    queue, pending = main(), Pending()
    for append in (queue.append, pending.append):
        for item in (entry("m", "later"), about("t1", "a1"), about("t2", "b1"), entry("n", "later")):
            append(item)
        assert append(about("t1", "done", status, priority)) == "queued"
        append(about("t1", "a2", run=2))
        append(about("t2", "b2"))
    assert len(queue) == len(pending) == 5
    later = ["m", "b2", "n", "a2"]
    assert ids(pending.drain()) == ["m", "b2", "n", "done", "a2"]
    assert ids(queue.drain(idle=True)) == (
        ["done", *later] if priority != "later" else ["m", "b2", "n", "done", "a2"]
    )


@pytest.mark.rule("06.11")
def test_an_end_leaves_the_progress_of_a_later_run() -> None:
    both = Both()
    both.append(about("t1", "again", run=2), about("t1", "done before", "killed", "later"))
    assert both.waiting() == ["again", "done before"]
    both.append(about("t1", "done", "completed", "later", run=2))
    assert both.waiting() == ["done before", "done"]


@pytest.mark.rule("06.11")
def test_progress_that_comes_late_is_left_out() -> None:
    both = Both()
    both.append(about("t1", "done", "completed", "later", run=2), about("t1", "older", "failed", "later"))
    assert both.append(about("t1", "late", run=2), about("t1", "too late")) == ["queued", "queued"]
    assert both.waiting() == ["done", "older"]
    both.append(about("t1", "again", run=3), about("t1", "of the run before", run=2))
    assert both.waiting() == ["done", "older", "again"]
    both.drain()
    both.append(about("t1", "again", run=3), about("t1", "of the run before", run=2))
    assert both.waiting() == ["again"]


@pytest.mark.rule("06.11")
def test_of_progress_in_two_tiers_only_the_latest_waits() -> None:
    queue = main()
    for item in (about("t1", "a1"), about("t1", "a2", priority="next")):
        assert queue.append(item) == "queued"
    assert ids(queue.peek(idle=True)) == ["a2"]
    queue.append(about("t1", "a3"))
    assert queue.peek() == []
    assert ids(queue.drain(idle=True)) == ["a3"]


@pytest.mark.rule("06.11")
def test_an_end_takes_the_room_of_its_progress_and_drops_none_where_there_is_no_room() -> None:
    both = Both(1)
    both.append(about("t1", "a1"))
    assert both.append(about("t1", "before", "failed", "later", run=0)) == ["full"]
    assert both.append(about("t2", "other", "failed", "later")) == ["full"]
    assert both.append(about("t1", "done", "completed", "later")) == ["queued"]
    assert both.append(about("t2", "b1"), entry("m", "later")) == ["full", "full"]
    assert both.waiting() == ["done"]
    queue = main(1)
    for item in (entry("m"), about("t1", "a1")):
        queue.append(item)
    assert queue.append(about("t1", "done", "completed", "next")) == "full"
    assert ids(queue.drain(idle=True)) == ["m", "a1"]


def test_the_room_of_progress_that_an_end_dropped_is_free_again() -> None:
    both = Both(2)
    both.append(about("t1", "a1"), about("t1", "done", "completed", "later"))
    assert both.append(entry("m", "later"), entry("n", "later")) == ["queued", "full"]


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
def test_of_progress_that_replaces_what_came_back_an_idle_loop_is_told() -> None:
    queue = main()
    queue.rest()
    queue.put_back([about("t1", "a1")])
    assert queue.append(about("t1", "a2")) == "wake"


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


@pytest.mark.rule("06.2", "06.3")
def test_a_batch_that_comes_back_stands_as_it_stood_marks_too() -> None:
    queue = main()
    items: list[Either] = [entry("0", "now", USER), Mark("peer", "1"), entry("2"), Mark("peer", "3")]
    items += [Mark("peer", "4", "later"), entry("5", "later"), Mark("peer", "6", "later")]
    for item in reversed(items):
        queue.append(item)
    assert ids(queue.drain(idle=True)) == ["0", "3", "2", "1", "6", "5", "4"]
    queue.append(Mark("peer", "new"))
    queue.append(entry("new later", "later"))
    queue.put_back(items)
    back = queue.drain(idle=True)
    assert ids(back) == ["0", "1", "2", "3", "new", "4", "5", "6", "new later"]
    assert [item for item in back if isinstance(item, Mark)] == [
        *items[1::2][:2],
        back[4],
        items[4],
        items[6],
    ]
    assert [item.redelivered for item in back if isinstance(item, Entry)] == [True, True, True, False]


def test_what_comes_back_in_two_parts_stands_in_the_order_of_each() -> None:
    queue = main()
    queue.put_back([Mark("peer", "c"), entry("d")])
    queue.put_back([entry("a"), Mark("peer", "b")])
    assert ids(queue.drain()) == ["a", "b", "c", "d"]


def test_what_is_put_back_needs_no_room() -> None:
    queue, pending = main(1), Pending(1)
    queue.append(entry("here"))
    queue.put_back([entry("a"), entry("b")])
    assert ids(queue.drain()) == ["a", "b", "here"]
    pending.append(entry("here"))
    pending.put_back([entry("a"), entry("b")])
    assert ids(pending.drain()) == ["a", "b", "here"]


@pytest.mark.rule("06.11")
def test_progress_that_comes_back_gives_way_to_what_was_said_since() -> None:
    both = Both()
    both.append(entry("m", "later"), about("t1", "a1", at=2), about("t2", "b1"), about("t3", "c1"))
    taken = both.drain()
    both.append(about("t1", "a2", at=1), about("t3", "c2", run=2))
    both.put_back(*taken)
    assert both.waiting() == ["m", "b1", "a2", "c2"]
    both.append(about("t1", "a3"), about("t2", "b2"), entry("n", "later"))
    assert ids(both.drain()) == ["m", "b2", "a3", "c2", "n"]


@pytest.mark.rule("06.11")
@pytest.mark.parametrize("priority", PRIORITIES)
@pytest.mark.parametrize("run", [1, 2])
def test_progress_that_comes_back_is_left_out_where_its_end_waits(priority: Priority, run: int) -> None:
    queue, pending = main(), Pending()
    taken = [about("t1", "a1"), about("t2", "b1")]
    for append in (queue.append, pending.append):
        append(about("t1", "done", "completed", priority, run=run))
    queue.put_back(taken)
    pending.put_back(taken)
    assert sorted(ids(queue.drain(idle=True))) == sorted(ids(pending.drain())) == ["b1", "done"]


@pytest.mark.rule("06.11")
def test_progress_of_the_next_run_comes_back_beside_an_end() -> None:
    both = Both()
    both.append(about("t1", "done", "completed", "later"))
    both.put_back(about("t1", "again", run=2))
    assert both.waiting() == ["again", "done"]
    both.append(about("t1", "again: more", run=2))
    assert both.waiting() == ["again: more", "done"]


@pytest.mark.rule("06.11")
def test_progress_that_comes_back_replaces_that_of_an_earlier_run() -> None:
    both = Both()
    both.append(about("t1", "of the run before"))
    both.put_back(about("t1", "again", run=2))
    assert both.waiting() == ["again"]


@pytest.mark.rule("06.11")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_where_progress_was_drained_twice_and_both_come_back_the_latest_is_kept(
    order: tuple[int, ...],
) -> None:
    both = Both()
    drained: list[list[Entry]] = []
    for at in range(2):
        both.append(about("t1", f"a{at}", at=at))
        drained.append(both.drain())
    for number in order:
        both.put_back(*drained[number])
    assert both.waiting() == ["a1"]
    both.drain()
    both.put_back(*drained[0], entry("m", "later"), *drained[1])
    assert both.waiting() == ["a1", "m"]


@pytest.mark.rule("06.11")
@pytest.mark.parametrize("priority", PRIORITIES)
def test_an_end_that_comes_back_drops_the_progress_of_its_run(priority: Priority) -> None:
    queue, pending = main(), Pending()
    end = about("t1", "done", "completed", priority)
    for append in (queue.append, pending.append):
        append(about("t1", "a1"))
        append(about("t2", "b2", run=2))
    for put_back in (queue.put_back, pending.put_back):
        put_back([end, about("t2", "b done", "killed", "later")])
        put_back([about("t1", "a1"), end])
    expected = ["b done", "b2", "done", "done"]
    assert sorted(ids(queue.drain(idle=True))) == sorted(ids(pending.drain())) == expected


@pytest.mark.rule("06.11")
@pytest.mark.parametrize("runs", [(1, 2), (2, 1)])
def test_behind_an_end_that_came_back_late_progress_is_left_out(runs: tuple[int, int]) -> None:
    both = Both()
    for run in runs:
        both.put_back(about("t1", f"done {run}", "completed", "later", run=run))
        both.put_back(entry(f"before {run}", "later"))
        both.append(about("t1", "late", run=run))
    both.append(about("t1", "late too", run=2))
    first, second = runs
    assert both.waiting() == [f"before {second}", f"done {second}", f"before {first}", f"done {first}"]


@pytest.mark.rule("06.11")
def test_of_progress_that_came_back_and_bears_the_same_time_the_first_is_kept() -> None:
    both = Both()
    both.put_back(about("t1", "a1"))
    both.put_back(about("t1", "a2"))
    assert both.waiting() == ["a1"]


@pytest.mark.rule("06.11")
def test_an_end_that_comes_back_stays_though_its_task_runs_again() -> None:
    queue = main()
    queue.put_back([about("t1", "done", "completed", "later", run=2)])
    queue.append(about("t1", "again", run=3))
    queue.put_back([about("t1", "done before", "killed", "later")])
    assert ids(queue.drain(idle=True)) == ["done before", "done", "again"]


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


@pytest.mark.rule("06.11")
def test_progress_finds_its_place_after_the_oldest_were_taken() -> None:
    pending = Pending()
    for item in (entry("m"), about("t1", "a1"), about("t3", "done", "completed"), about("t2", "b1")):
        pending.append(item)
    assert ids(pending.drain(2)) == ["m", "a1"]
    for item in (about("t2", "b2"), about("t3", "late"), about("t1", "a2")):
        pending.append(item)
    assert ids(pending.drain(1)) == ["done"]
    pending.append(about("t3", "nobody knows that it is late"))
    assert ids(pending.drain()) == ["b2", "a2", "nobody knows that it is late"]


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
    assert ids(pending.peek()) == ["a2", "m", "b1"]
    pending.append(about("t1", "done", "completed"))
    assert ids(pending.drain()) == ["m", "b1", "done"]


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


@pytest.mark.rule("06.3")
def test_an_append_to_a_busy_loop_does_not_wake_it_for_what_it_has_read(gate: Gate) -> None:
    """Before the append has answered, the loop reads what it put in, and goes idle: there is nothing to wake it for."""
    queue = main()
    read: list[list[str]] = []
    gate.meanwhile = lambda: read.extend([ids(queue.rest()), ids(queue.rest())])
    assert queue.append(entry("a")) == "queued"
    assert read == [["a"], []]
    assert queue.idle
    assert queue.append(entry("b")) == "wake"


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

TASKS = st.builds(
    about,
    st.sampled_from(["t1", "t2"]),
    st.just("words"),
    st.sampled_from(["running", "running", "completed", "killed"]),
    st.sampled_from(["next", "later"]),
    run=st.integers(1, 3),
)
ITEMS: st.SearchStrategy[Either] = st.one_of(
    st.builds(entry, st.just("entry"), st.sampled_from(PRIORITIES), st.sampled_from([USER, AGENT])),
    st.builds(Mark, st.just("peer"), st.just("mark"), st.sampled_from(["next", "later"])),
    TASKS,
    TASKS,
)


def numbered(item: Either, number: int) -> Either:
    """The same with a name and a time of its own."""
    if isinstance(item, Mark):
        return item._replace(msg_id=str(number))
    task = None if item.task is None else replace(item.task, at=number)
    return item._replace(msg_id=str(number), task=task)


def told_by(item: Either) -> tuple[str, int, bool]:
    """Of which task and run an item tells, and whether it is progress."""
    task = item.task if isinstance(item, Entry) else None
    return ("", 0, False) if task is None else (task.task_id, task.run, task.status == "running")


class Plain:
    """The plainest model of what waits: one list that is searched from its start, and sorted when it is read."""

    def __init__(self, rank: Callable[[Either], int], capacity: int) -> None:
        self.rank = rank
        self.capacity = capacity
        self.items: list[Either] = []

    def outdates(self, item: Either) -> bool:
        """Whether the end of that progress waits, or something of a later run."""
        name, run, _ = told_by(item)
        return any(
            name == other and (of > run or (of == run and not running))
            for other, of, running in map(told_by, self.items)
        )

    def progress(self, item: Either) -> list[Either]:
        """Progress of that task, until that run."""
        name, run, _ = told_by(item)
        return [one for one in self.items if told_by(one) in {(name, of, True) for of in range(run + 1)}]

    def append(self, item: Either) -> bool:
        """Whether there was room."""
        name, _, running = told_by(item)
        if running and self.outdates(item):
            return True
        old = self.progress(item) if name else []
        same = [one for one in old if self.rank(one) == self.rank(item)]
        if not same and sum(self.rank(one) == self.rank(item) for one in self.items) >= self.capacity:
            return False
        if running and same:
            self.items[self.items.index(same[0])] = item
        else:
            self.items.append(item)
        self.items = [one for one in self.items if one not in old]
        return True

    def take(self, readable: Callable[[Either], bool], limit: int | None = None) -> list[Either]:
        taken = sorted(filter(readable, self.items), key=self.rank)[:limit]
        self.items = [one for one in self.items if one not in taken]
        return taken

    def put_back(self, items: list[Either]) -> None:
        back = Plain(self.rank, len(items))
        for item in items:
            back.append(item._replace(redelivered=True) if isinstance(item, Entry) else item)
        for item in tuple(back.items):
            name, run, running = told_by(item)
            waits = self.progress(item) if name else []
            newer = any(running and told_by(one)[1] == run and self.newer(one, item) for one in waits)
            if newer or (running and self.outdates(item)):
                back.items.remove(item)
            else:
                self.items = [one for one in self.items if one not in waits]
        self.items = [*back.items, *self.items]

    @staticmethod
    def newer(waits: Either, item: Either) -> bool:
        return not (isinstance(waits, Entry) and waits.redelivered) or int(waits.msg_id) >= int(item.msg_id)

    def check(self) -> None:
        """Of each task one progress, and none beside the end of its run."""
        told = [told_by(item) for item in self.items]
        running = Counter(name for name, _, runs in told if runs)
        assert all(count == 1 for count in running.values())
        for name, run, runs in told:
            assert not (runs and any(name == other and of >= run for other, of, on in told if not on))


def rank_of(item: Either) -> int:
    """In which tier: only a user's own stands before the others."""
    if item.priority == "now" and isinstance(item, Entry) and item.origin is USER:
        return 0
    return 2 if item.priority == "later" else 1


class Queue(RuleBasedStateMachine):
    """A queue beside the model."""

    def __init__(self) -> None:
        super().__init__()
        self.queue, self.plain = main(), Plain(rank_of, CAPACITY)
        self.drained: list[list[Either]] = []
        self.loop = "busy"
        self.count = 0

    @initialize(capacity=st.integers(0, 4))
    def make(self, capacity: int) -> None:
        self.queue, self.plain = main(capacity), Plain(rank_of, capacity)

    def _wakes(self) -> bool:
        wakes = self.loop == "idle"
        if wakes:
            self.loop = "woken"
        return wakes

    @rule(what=ITEMS)
    def append(self, what: Either) -> None:
        self.count += 1
        item = numbered(what, self.count)
        answer = self.queue.append(item)
        if self.plain.append(item):
            assert answer == ("wake" if self._wakes() else "queued")
        else:
            assert answer == "full"

    @rule()
    def nudge(self) -> None:
        assert self.queue.nudge() is self._wakes()

    @rule(idle=st.booleans())
    def drain(self, idle: bool) -> None:
        expected = self.plain.take(lambda item: idle or rank_of(item) < 2)
        assert self.queue.drain(idle=idle) == expected
        self.drained.append(expected)
        self.loop = "busy"

    @rule()
    def rest(self) -> None:
        expected = self.plain.take(lambda item: True)
        assert self.queue.rest() == expected
        self.drained.append(expected)
        self.loop = "busy" if expected else "idle"

    @precondition(lambda self: any(self.drained))
    @rule(which=st.integers(0, 9), parts=st.integers(1, 2))
    def put_back(self, which: int, parts: int) -> None:
        self.drained = [part for part in self.drained if part]
        at = which % len(self.drained)
        back = [item for part in self.drained[at : at + parts] for item in part]
        del self.drained[at : at + parts]
        self.queue.put_back(iter(back))
        self.plain.put_back(back)

    @invariant()
    def the_queue_shows_what_waits(self) -> None:
        self.plain.check()
        assert len(self.queue) == len(self.plain.items)
        assert self.queue.idle is (self.loop != "busy")
        ordered = sorted(self.plain.items, key=rank_of)
        assert self.queue.peek(idle=True) == ordered
        assert self.queue.peek() == [item for item in ordered if rank_of(item) < 2]


@pytest.mark.rule("06.2", "06.3", "06.11")
def test_the_order_holds_whatever_is_put_and_taken() -> None:
    run_state_machine_as_test(Queue, settings=settings(max_examples=150, stateful_step_count=30))  # pyright: ignore[reportUnknownMemberType]


class AgentsList(RuleBasedStateMachine):
    """An agent's list beside the model."""

    def __init__(self) -> None:
        super().__init__()
        self.pending, self.plain = Pending(4), Plain(lambda item: 0, 4)
        self.drained: list[Entry] = []
        self.count = 0

    @rule(what=ITEMS)
    def append(self, what: Either) -> None:
        self.count += 1
        item = numbered(what, self.count)
        if isinstance(item, Entry):
            answer = self.pending.append(item)
            assert answer == ("queued" if self.plain.append(item) else "full")

    @rule(limit=st.none() | st.integers(0, 4))
    def drain(self, limit: int | None) -> None:
        taken = self.pending.drain(limit)
        assert taken == self.plain.take(lambda item: True, limit)
        self.drained += taken

    @rule(cut=st.integers(0, 4))
    def put_back(self, cut: int) -> None:
        back, self.drained = self.drained[cut:], self.drained[:cut]
        self.pending.put_back(back)
        self.plain.put_back([*back])

    @invariant()
    def it_shows_what_waits(self) -> None:
        self.plain.check()
        assert self.pending.peek() == self.plain.items
        assert len(self.pending) == len(self.plain.items)


@pytest.mark.rule("06.4", "06.5", "06.11")
def test_an_agents_list_holds_whatever_is_put_and_taken() -> None:
    run_state_machine_as_test(AgentsList, settings=settings(max_examples=150, stateful_step_count=30))  # pyright: ignore[reportUnknownMemberType]


@pytest.mark.rule("06.5", "06.11", "06.14")
def test_a_message_or_the_end_of_a_task_begins_a_run_and_nothing_else_does() -> None:
    def of(kind: OriginKind) -> Entry:
        return Entry("m", "t", Origin(kind=kind, identity="x"))

    silent: set[OriginKind] = {"observer", "system"}
    for kind in get_args(OriginKind):
        assert begins_a_run(of(kind)) != (kind in silent)
    assert begins_a_run(about("t1", "done", "completed"))
    assert not begins_a_run(about("t1", "half"))
