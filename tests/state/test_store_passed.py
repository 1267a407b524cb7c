"""What a client's own door took: passed on, and what may be said of it later (09.1, 11.1). Over both stores."""

from __future__ import annotations

import pytest

from postroom.core.message import TRANSITIONS, State
from postroom.errors import StoreFailed
from tests.state.stores import BOB, NOW, Desk, ids, later, message, states


def pass_on(desk: Desk, *msg_ids: str) -> None:
    """Has messages arrive and a door take them."""
    for msg_id in msg_ids:
        desk.put(message(msg_id))
    desk.store.take("lease", NOW)
    assert desk.store.confirm("lease", NOW + 1, door="a door") == list(msg_ids)


@pytest.mark.rule("09.1")
def test_what_a_door_took_is_passed_and_neither_waits_nor_counts_as_unread(desk: Desk) -> None:
    pass_on(desk, "m")
    for _ in range(2):  # and so it stays after a kill
        assert desk.store.find("m")[0].state == "passed"
        assert (desk.store.unread, desk.store.waiting_count) == (0, 0)
        assert desk.store.take("again", NOW + 2) == []
        desk.kill()
    assert states(desk.store.steps("m"))[-2:] == ["leased", "passed"]
    assert desk.store.steps("m")[-1].detail == "a door"


@pytest.mark.rule("09.1", "11.1")
def test_what_is_seen_in_a_turn_is_consumed(desk: Desk) -> None:
    pass_on(desk, "m")
    moved = desk.store.move_passed("m", "consumed", NOW + 2, "seen")
    assert [(each.msg_id, each.state) for each in moved] == [("m", "passed")]
    desk.kill()
    assert desk.store.find("m")[0].state == "consumed"
    assert desk.store.move_passed("m", "consumed", NOW + 3) == []
    assert desk.store.answered("m", NOW + 4)
    desk.store.commit()
    assert states(desk.store.steps("m"))[-3:] == ["passed", "consumed", "answered"]


@pytest.mark.rule("09.1", "11.4")
def test_what_a_door_dropped_waits_again_in_its_old_place_and_is_marked(desk: Desk) -> None:
    pass_on(desk, "first", "second")
    desk.put(message("third"))
    assert len(desk.store.move_passed("first", "accepted", NOW + 2, "the door dropped it")) == 1
    assert (desk.store.unread, desk.store.waiting_count) == (2, 2)
    desk.kill()
    waiting = desk.store.waiting()
    assert ids(waiting) == ["first", "third"]
    assert [each.redelivered for each in waiting] == [True, False]
    assert desk.store.steps("first")[-1].detail == "the door dropped it"


def test_what_comes_back_keeps_its_priority(desk: Desk) -> None:
    desk.put(later(message("slow")))
    desk.store.take("lease", NOW)
    desk.store.confirm("lease", NOW, door="a door")
    desk.store.move_passed("slow", "accepted", NOW + 1)
    desk.put(message("quick"))
    assert ids(desk.store.waiting()) == ["quick", "slow"]
    assert ids(desk.store.take("lease", NOW, later=False)) == ["quick"]


@pytest.mark.rule("03.8")
def test_what_was_denied_behind_a_door_is_gone_and_its_id_stays_settled(desk: Desk) -> None:
    pass_on(desk, "m")
    assert desk.store.move_passed("m", "denied", NOW + 2, "by its person")
    desk.kill()
    assert desk.store.find("m") == []
    assert desk.store.settled("alice-session", "m") is not None
    assert desk.store.steps("m")[-1].state == "denied"


def test_only_what_was_passed_on_moves(desk: Desk) -> None:
    desk.put(message("waits"))
    assert desk.store.move_passed("waits", "consumed", NOW) == []
    assert desk.store.move_passed("never seen", "consumed", NOW) == []
    desk.put(message("waits", origin=BOB))
    desk.store.take("lease", NOW, only="waits")
    desk.store.confirm("lease", NOW, door="a door")
    moved = desk.store.move_passed("waits", "consumed", NOW)
    assert [each.origin.identity for each in moved] == ["alice-session", BOB.identity]


@pytest.mark.parametrize("state", sorted({"leased", "held", "answered", "passed", "expired"}))
def test_a_step_that_is_none_changes_nothing(desk: Desk, state: State) -> None:
    pass_on(desk, "m")
    assert state not in TRANSITIONS["passed"]
    with pytest.raises(ValueError, match="cannot become"):
        desk.store.move_passed("m", state, NOW)
    assert desk.store.find("m")[0].state == "passed"


@pytest.mark.rule("05.27")
def test_a_broken_store_says_so_and_the_message_stays_passed(desk: Desk) -> None:
    pass_on(desk, "m")
    with desk.broken(), pytest.raises(StoreFailed):
        desk.store.move_passed("m", "accepted", NOW)
    desk.kill()
    assert desk.store.find("m")[0].state == "passed"
