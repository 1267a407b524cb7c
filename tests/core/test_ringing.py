"""By which way what waits is brought to a client's model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.core.ringing import (
    FIRST_REST_MS,
    LONGEST_REST_MS,
    PATIENCE_MS,
    WAITER_MS,
    Advice,
    Scene,
    advise,
    fits,
    in_doubt,
    portion,
    rest_ms,
)

NOW = 1_000_000


@dataclass(frozen=True, slots=True)
class Door:
    """A door as the ladder sees it."""

    name: str
    wakes: bool = True
    during_turn: Literal["yes", "after", "no"] = "yes"


INBOX = Door("inbox")
QUEUE = Door("queue", during_turn="after")
ASIDE = Door("aside", wakes=False)
CALL = Door("call", during_turn="no")

IDLE = Scene(waiting=1, turn="idle", hooks=True, ways=(INBOX, QUEUE), now=NOW)
BUSY = replace(IDLE, turn="busy")


@pytest.mark.rule("12.21")
def test_where_nothing_waits_nothing_is_done_and_nothing_looks_again() -> None:
    assert advise(replace(IDLE, waiting=0)) == Advice(rung="nothing", ways=(), again=None)


@pytest.mark.rule("09.1")
def test_what_waits_is_theirs_who_wait_for_it() -> None:
    assert advise(replace(IDLE, waiters=1)) == Advice(rung="waiter", again=NOW + WAITER_MS)


@pytest.mark.rule("09.5")
def test_in_a_turn_that_hooks_report_the_next_hook_takes_it() -> None:
    assert advise(replace(BUSY, waited_ms=500)) == Advice(rung="hook", again=NOW + PATIENCE_MS - 500)


def test_hooks_are_not_waited_for_without_end() -> None:
    assert advise(replace(BUSY, waited_ms=PATIENCE_MS - 1)).rung == "hook"
    assert advise(replace(BUSY, waited_ms=PATIENCE_MS)) == Advice(rung="ring", ways=("inbox", "queue"))


def test_a_turn_without_hooks_is_reached_by_what_brings_something_in_a_turn() -> None:
    scene = replace(BUSY, hooks=False, ways=(CALL, ASIDE, QUEUE))
    assert advise(scene) == Advice(rung="ring", ways=("aside", "queue"))


@pytest.mark.rule("09.1")
def test_an_idle_session_is_woken_by_the_best_door_that_wakes() -> None:
    assert advise(replace(IDLE, ways=(ASIDE, CALL, INBOX))) == Advice(rung="ring", ways=("call", "inbox"))


def test_a_session_that_reports_nothing_needs_a_door_that_fits_both() -> None:
    scene = replace(IDLE, turn="unknown", hooks=False, ways=(ASIDE, CALL, INBOX, QUEUE))
    assert advise(scene) == Advice(rung="ring", ways=("inbox", "queue"))


@pytest.mark.parametrize(
    ("turn", "ways"),
    [("idle", (ASIDE,)), ("busy", (CALL,)), ("unknown", (ASIDE, CALL)), ("idle", ())],
)
def test_where_no_door_fits_it_waits_to_be_asked_for(
    turn: Literal["idle", "busy", "unknown"], ways: tuple[Door, ...]
) -> None:
    assert advise(replace(IDLE, turn=turn, hooks=False, ways=ways)) == Advice(rung="no-door")


@pytest.mark.rule("12.21")
def test_doors_that_failed_rest_and_the_first_to_wake_is_waited_for() -> None:
    resting = {"inbox": NOW + 900, "queue": NOW + 400, "other": NOW + 1}
    assert advise(replace(IDLE, resting=resting)) == Advice(rung="resting", again=NOW + 400)


def test_a_door_that_rests_is_passed_over_and_one_that_has_rested_is_not() -> None:
    assert advise(replace(IDLE, resting={"inbox": NOW + 1})).ways == ("queue",)
    assert advise(replace(IDLE, resting={"inbox": NOW})).ways == ("inbox", "queue")


@pytest.mark.rule("12.21")
def test_rests_grow_and_are_bounded() -> None:
    assert [rest_ms(n) for n in (1, 2, 3)] == [FIRST_REST_MS, 2 * FIRST_REST_MS, 4 * FIRST_REST_MS]
    assert rest_ms(9) == 256_000
    assert rest_ms(10) == rest_ms(10_000) == LONGEST_REST_MS


@pytest.mark.parametrize(
    ("sizes", "room", "most", "count"),
    [
        ((), 10, 5, 0),
        ((99,), 10, 5, 1),
        ((99, 1), 10, 5, 1),
        ((4, 6), 10, 5, 2),
        ((4, 7), 10, 5, 1),
        ((1, 1, 1), 10, 2, 2),
    ],
)
def test_one_ring_carries_what_fits_and_always_the_first(
    sizes: tuple[int, ...], room: int, most: int, count: int
) -> None:
    assert portion(sizes, room, most) == count


@pytest.mark.rule("09.16")
@pytest.mark.parametrize(
    ("rings", "doubtful"),
    [
        ([], False),
        (["queue: accepted"], False),
        (["queue: failed, it is not there"], False),
        (["queue: begun"], True),
        (["queue: unknown, no answer: it may have it"], True),
        (["queue: unknown", "inbox: failed"], True),
        (["queue: begun", "queue: accepted"], False),
        (["queue: failed", "inbox: begun"], True),
    ],
)
def test_the_rings_say_whether_it_is_in_doubt(rings: list[str], doubtful: bool) -> None:
    assert in_doubt(rings) is doubtful


DOORS = st.builds(Door, st.sampled_from("abcd"), st.booleans(), st.sampled_from(("yes", "after", "no")))
SCENES = st.builds(
    Scene,
    waiting=st.integers(0, 3),
    waited_ms=st.integers(0, 2 * PATIENCE_MS),
    waiters=st.integers(0, 2),
    turn=st.sampled_from(("idle", "busy", "unknown")),
    hooks=st.booleans(),
    ways=st.lists(DOORS, max_size=4, unique_by=lambda door: door.name),
    resting=st.dictionaries(st.sampled_from("abcd"), st.integers(NOW - 10, NOW + 10)),
    now=st.just(NOW),
)


@settings(max_examples=200)
@given(SCENES)
def test_whatever_the_scene_a_ring_is_for_doors_that_fit_and_a_second_look_is_ahead(scene: Scene) -> None:
    advice = advise(scene)
    assert (advice.rung == "ring") is bool(advice.ways)
    ways = {way.name: way for way in scene.ways}
    for name in advice.ways:
        assert fits(ways[name], scene.turn)
        assert scene.resting.get(name, NOW) <= NOW
    if advice.again is not None:
        assert scene.waiting
        assert NOW < advice.again <= NOW + PATIENCE_MS
    if scene.waiters or not scene.waiting:
        assert not advice.ways
