"""What every store promises of what is held or refused: one suite over both kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from postroom.core.holds import Hold
from postroom.core.inbound import Settled, Verdict
from postroom.core.message import TRANSITIONS, Message, State
from postroom.errors import StoreFailed
from postroom.state.keeping import Retention
from tests.state.stores import ALICE, BOB, DAY, NOW, Desk, ids, later, message, states


def held(made: Message) -> Message:
    return replace(made, state="held")


# ── coming ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.10", "03.8", "11.1")
@pytest.mark.parametrize("verdict", ["accepted", "held", "refused"])
def test_every_verdict_keeps_the_message_settles_its_id_and_is_journaled(
    desk: Desk, verdict: Verdict
) -> None:
    came = later(message("m", text="a hash, where it is refused"))
    row = desk.store.add(came, body="hash", verdict=verdict, detail="why")
    desk.store.commit()
    desk.kill()
    assert desk.store.find("m") == [replace(came, state=verdict)]
    assert desk.store.settled("alice-session", "m") == Settled(verdict, "hash")
    assert [(step.state, step.detail) for step in desk.store.steps("m")] == [
        ("received", "from alice"),
        (verdict, "why"),
    ]
    with pytest.raises(ValueError, match="settled already"):
        desk.store.add(came, body="hash")
    assert desk.store.add(message("next"), body="") == row + 1


@pytest.mark.rule("03.10", "11.1")
@pytest.mark.parametrize("verdict", ["held", "refused"])
def test_what_is_held_or_refused_is_not_unread_and_is_never_handed_out(desk: Desk, verdict: Verdict) -> None:
    desk.store.add(message("no"), body="", verdict=verdict)
    desk.put(message("yes"))
    for again in (False, True):
        if again:
            desk.kill()
        assert (desk.store.unread, desk.store.waiting_count) == (1, 1)
        assert ids(desk.store.waiting()) == ["yes"]
        assert desk.store.take("lease", NOW, only="no") == []
        assert not desk.store.answered("no", NOW)
        assert ids(desk.store.take("lease", NOW)) == ["yes"]
        assert desk.store.release("lease", NOW) == ["yes"]
    assert desk.store.find("no")[0].state == verdict


@pytest.mark.rule("03.8")
def test_the_same_id_from_two_senders_may_meet_two_verdicts(desk: Desk) -> None:
    desk.hold(message("m"))
    desk.put(message("m", origin=BOB))
    assert [each.state for each in desk.store.find("m")] == ["held", "accepted"]
    assert ids(desk.store.take("lease", NOW, only="m")) == ["m"]
    assert desk.store.confirm("lease", NOW) == ["m"]
    assert desk.store.answered("m", NOW)
    assert [each.state for each in desk.store.find("m")] == ["held", "answered"]


@pytest.mark.rule("03.47")
@pytest.mark.parametrize("end", ["kill", "reopen"])
@pytest.mark.parametrize("expires_at", [None, NOW - 1, NOW + 1])
def test_holds_survive_the_end_of_their_session_with_their_deadlines(
    desk: Desk, end: str, expires_at: int | None
) -> None:
    first, second = replace(message("a"), hop_chain=("t",), summary="s"), later(message("b", origin=BOB))
    rows = desk.hold(first, second, expires_at=expires_at)
    getattr(desk, end)()
    assert desk.store.holds() == [
        Hold(
            row=row,
            message=held(came),
            cause="mode-mismatch",
            scope="default",
            rung="class",
            expires_at=expires_at,
        )
        for row, came in zip(rows, (first, second), strict=True)
    ]


@pytest.mark.rule("10.13")
def test_the_text_of_a_hold_is_searched_and_the_journal_does_not_hold_it(desk: Desk) -> None:
    (row,) = desk.hold(message("m", text="SECRET words"))
    assert [step.state for _, step in desk.store.log(text="secret")] == ["received", "held"]
    desk.store.end_hold(row, "denied", NOW, "not now")
    assert desk.store.log(text="secret") == []
    assert "SECRET" not in repr(desk.store.steps("m"))


# ── let in ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.41", "11.1")
@pytest.mark.parametrize("approved_by", [None, "user"])
def test_a_hold_that_is_let_in_is_accepted_and_marked(desk: Desk, approved_by: str | None) -> None:
    (row,) = desk.hold(message("m"))
    released = desk.store.release_hold(row, NOW + 5, approved_by=approved_by, detail="a person said so")
    assert released == replace(message("m"), state="accepted", held=True, approved_by=approved_by)
    assert desk.store.holds() == []
    desk.store.commit()
    desk.kill()
    assert desk.store.waiting() == desk.store.find("m") == [released]
    assert (desk.store.unread, desk.store.waiting_count) == (1, 1)
    assert desk.store.settled("alice-session", "m") == Settled("accepted", "")
    steps = desk.store.steps("m")
    assert states(steps) == ["received", "held", "accepted"]
    assert (steps[2].at, steps[2].detail) == (NOW + 5, "a person said so")
    assert [each.held for each in desk.store.take("lease", NOW)] == [True]
    assert desk.store.confirm("lease", NOW) == ["m"]
    assert desk.store.answered("m", NOW)


@pytest.mark.rule("03.45", "11.17")
def test_released_holds_come_behind_what_was_accepted_before_and_next_still_before_later(desk: Desk) -> None:
    rows = desk.hold(message("h1"), later(message("h2")), message("h3"))
    desk.put(message("n1"), later(message("l1")), message("n2"))
    for row in (rows[0], rows[1], rows[2]):
        desk.store.release_hold(row, NOW)
    desk.put(message("n3"), later(message("l2")))
    expected = ["n1", "n2", "h1", "h3", "n3", "l1", "h2", "l2"]
    assert ids(desk.store.waiting()) == expected
    desk.kill()
    assert ids(desk.store.waiting()) == expected
    assert ids(desk.store.take("lease", NOW)) == expected
    assert desk.store.release("lease", NOW) == ["n1", "l1", "n2", "h1", "h2", "h3", "n3", "l2"]
    assert ids(desk.store.waiting()) == expected


@pytest.mark.rule("03.41")
def test_numbers_grow_whatever_becomes_of_holds(desk: Desk) -> None:
    first, second, third = desk.hold(message("a"), message("b"), message("c"))
    assert first < second < third
    desk.store.release_hold(first, NOW)
    desk.store.end_hold(third, "denied", NOW)
    desk.store.commit()
    desk.kill()
    (fourth,) = desk.hold(message("d"))
    assert fourth > third + 1
    assert [hold.row for hold in desk.store.holds()] == [second, fourth]


# ── ending ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.42", "11.1")
@pytest.mark.parametrize("state", ["denied", "expired", "evicted"])
def test_a_hold_that_ends_is_gone_with_its_text_and_stays_settled(desk: Desk, state: State) -> None:
    row, other = desk.hold(message("m"), message("other"))
    desk.store.end_hold(row, state, NOW + 7, "in words")
    assert [hold.row for hold in desk.store.holds()] == [other]
    assert desk.store.find("m") == []
    desk.store.commit()
    desk.kill()
    assert [hold.row for hold in desk.store.holds()] == [other]
    assert desk.store.find("m") == []
    assert desk.store.settled("alice-session", "m") == Settled("held", "")
    steps = desk.store.steps("m")
    assert states(steps) == ["received", "held", state]
    assert (steps[2].at, steps[2].detail) == (NOW + 7, "in words")
    assert state in TRANSITIONS["held"]
    assert desk.store.unread == 0


@pytest.mark.rule("03.40", "03.43")
def test_a_hold_may_come_to_be_held_for_another_reason_and_until_another_time(desk: Desk) -> None:
    row, other = desk.hold(message("m"), message("other"))
    untouched = desk.store.holds()[1]
    desk.store.change_hold(row, "repo-setting", "project", "setting", None)
    desk.store.commit()
    desk.kill()
    assert desk.store.holds() == [
        Hold(
            row=row,
            message=held(message("m")),
            cause="repo-setting",
            scope="project",
            rung="setting",
            expires_at=None,
        ),
        untouched,
    ]
    assert untouched.row == other


@pytest.mark.rule("11.1")
def test_what_is_no_hold_can_neither_be_let_in_nor_ended_nor_changed(desk: Desk) -> None:
    refused = desk.store.add(message("refused"), body="", verdict="refused")
    accepted = desk.store.add(message("accepted"), body="")
    (gone, there) = desk.hold(message("gone"), message("there"))
    desk.store.end_hold(gone, "expired", NOW)
    desk.store.commit()
    before = desk.store.log()
    for row in (refused, accepted, gone, 0, 99):
        with pytest.raises(ValueError, match="no hold"):
            desk.store.release_hold(row, NOW)
        with pytest.raises(ValueError, match="no hold"):
            desk.store.end_hold(row, "denied", NOW)
        with pytest.raises(ValueError, match="no hold"):
            desk.store.change_hold(row, "mode-unknown", "default", "mode-unknown", None)
    wrong: tuple[State, ...] = ("accepted", "refused", "consumed")
    for state in wrong:
        with pytest.raises(ValueError, match="cannot become"):
            desk.store.end_hold(there, state, NOW)
    assert not desk.store.pending
    assert desk.store.log() == before
    assert [hold.row for hold in desk.store.holds()] == [there]


# ── groups ──────────────────────────────────────────────────────────────────────────────────────────


def seen(desk: Desk) -> tuple[object, ...]:
    """All that a store shows."""
    store = desk.store
    found = [store.find(each) for each in ("h1", "h2", "h3", "h4", "n", "r")]
    known = [store.settled("alice-session", each) for each in ("h1", "h2", "h3", "h4", "n", "r")]
    counts = (store.unread, store.waiting_count)
    return (store.holds(), store.waiting(), store.log(), found, known, counts)


def change_everything(desk: Desk) -> None:
    """Of three holds one is let in, one denied, one changed; what is new is held, refused and accepted."""
    first, second, third = [hold.row for hold in desk.store.holds()]
    desk.store.release_hold(first, NOW, approved_by="user")
    desk.store.end_hold(second, "denied", NOW)
    desk.store.change_hold(third, "mode-unknown", "default", "mode-unknown", NOW)
    desk.store.add(message("h4"), body="", verdict="held")
    desk.store.add(message("r"), body="", verdict="refused")
    desk.store.add(message("n"), body="")


@pytest.mark.rule("05.27", "11.4")
def test_what_was_not_committed_never_happened_to_a_hold(desk: Desk) -> None:
    desk.hold(message("h1"), later(message("h2")), message("h3"))
    before = seen(desk)
    change_everything(desk)
    assert seen(desk) != before
    desk.kill()
    assert seen(desk) == before
    change_everything(desk)
    desk.store.commit()
    after = seen(desk)
    desk.kill()
    assert seen(desk) == after


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("way", ["commit", "take", "confirm", "prune"])
def test_a_failure_takes_everything_back_that_happened_to_holds(desk: Desk, way: str) -> None:
    desk.hold(message("h1"), later(message("h2")), message("h3"))
    desk.put(message("waits"))
    desk.store.take("lease", NOW)
    before = seen(desk)
    with desk.broken(), pytest.raises(StoreFailed):  # noqa: PT012 - where it fails is the store's choice
        change_everything(desk)
        if way == "commit":
            desk.store.commit()
        elif way == "prune":
            desk.store.prune(NOW)
        else:
            getattr(desk.store, way)("lease", NOW)
    assert seen(desk) == before
    assert not desk.store.pending
    change_everything(desk)
    desk.store.commit()
    assert ids(desk.store.waiting()) == ["h1", "n"]
    assert desk.store.confirm("lease", NOW) == ["waits"]


@pytest.mark.rule("05.27")
def test_an_approval_that_cannot_be_written_fails_and_the_next_one_works(desk: Desk) -> None:
    (row,) = desk.hold(message("m", text="x" * 50_000))
    with desk.broken(), pytest.raises(StoreFailed):  # noqa: PT012
        desk.store.release_hold(row, NOW, approved_by="user")
        desk.store.commit()
    assert [hold.row for hold in desk.store.holds()] == [row]
    assert desk.store.waiting() == []
    desk.store.release_hold(row, NOW, approved_by="user")
    desk.store.commit()
    assert ids(desk.store.waiting()) == ["m"]


@pytest.mark.rule("11.5")
def test_report_34_an_approved_message_that_is_sent_again_has_one_effect(desk: Desk) -> None:
    (row,) = desk.hold(message("m"))
    desk.store.release_hold(row, NOW)
    desk.store.commit()
    desk.kill()
    with pytest.raises(ValueError, match="settled already"):
        desk.store.add(message("m"), body="")
    desk.store.take("lease", NOW)
    desk.store.confirm("lease", NOW)
    with pytest.raises(ValueError, match="settled already"):
        desk.store.add(message("m"), body="", verdict="held")
    assert desk.store.unread == 0


# ── retention ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.38", "03.46")
def test_retention_leaves_holds_alone_and_is_not_told_of_what_was_refused(
    make: Callable[[Retention | None], Desk],
) -> None:
    desk = make(Retention(unread_age=DAY, consumed_age=DAY, consumed_count=0, refused_age=DAY))
    desk.hold(message("held", at=0), expires_at=None)
    desk.store.add(message("refused", at=0), body="", verdict="refused")
    desk.put(message("unread", at=0))
    assert ids(desk.store.prune(NOW)) == ["unread"]
    assert [hold.message.msg_id for hold in desk.store.holds()] == ["held"]
    assert desk.store.find("refused") == []
    assert desk.store.settled("alice-session", "refused") is not None
    assert "removed" not in states(desk.store.steps("refused"))
    desk.kill()
    assert [hold.message.msg_id for hold in desk.store.holds()] == ["held"]


@pytest.mark.rule("03.46", "11.10")
def test_a_released_hold_is_kept_from_its_release_on(make: Callable[[Retention | None], Desk]) -> None:
    keep = Retention(unread_age=DAY, consumed_age=DAY)
    desk = make(keep)
    unread, read = desk.hold(message("unread", at=0), message("read", at=0), expires_at=None)
    desk.store.release_hold(read, NOW)
    desk.store.take("lease", NOW)
    desk.store.confirm("lease", NOW)
    desk.store.release_hold(unread, NOW)
    assert desk.store.prune(NOW + DAY) == []
    assert ids(desk.store.waiting()) == ["unread"]
    assert ids(desk.store.find("read")) == ["read"]
    assert ids(desk.store.prune(NOW + DAY + 1)) == ["unread"]
    assert desk.store.find("read") == []


@pytest.mark.rule("11.10")
def test_refused_messages_go_by_age_and_by_count_a_bounded_number_at_once(
    make: Callable[[Retention | None], Desk],
) -> None:
    desk = make(Retention(refused_age=DAY, refused_count=3, batch=1))
    for number in range(14):
        desk.store.add(message(f"m{number}", at=NOW), body="", verdict="refused")
    left: list[int] = []
    for now in (NOW, NOW, NOW + DAY, NOW + DAY + 1):
        desk.store.prune(now)
        left.append(sum(len(desk.store.find(f"m{number}")) for number in range(14)))
    assert left == [6, 3, 3, 0]
    assert desk.store.settled("alice-session", "m0") is not None


@pytest.mark.rule("05.27", "03.8")
def test_gaps_in_the_numbers_cost_no_settled_id(make: Callable[[Retention | None], Desk]) -> None:
    """A released hold leaves its number, so that fewer ids have one of the newest numbers than are to be kept."""
    desk = make(Retention(settled_count=4, settled_age=0, refused_count=0))
    for number in range(5):
        desk.store.add(message(f"r{number}", at=NOW - DAY), body="", verdict="refused")
    (row,) = desk.hold(message("h", at=NOW - DAY))
    desk.store.release_hold(row, NOW - DAY)
    desk.store.prune(NOW)
    kept = [name for name in ("r0", "r1", "r2", "r3", "r4", "h") if desk.store.settled("alice-session", name)]
    assert kept == ["r2", "r3", "r4", "h"]


def test_an_id_stays_settled_while_its_hold_is_there(make: Callable[[Retention | None], Desk]) -> None:
    desk = make(Retention(settled_count=1, settled_age=0, refused_count=0))
    (row,) = desk.hold(message("held", at=NOW - 8 * DAY))
    desk.put(*(message(f"m{number}") for number in range(3)))
    desk.store.prune(NOW)
    assert desk.store.settled("alice-session", "held") is not None
    desk.store.end_hold(row, "expired", NOW)
    desk.store.prune(NOW)
    assert desk.store.settled("alice-session", "held") is None
    assert desk.store.settled(ALICE.identity, "m2") is not None


@pytest.mark.rule("03.8")
def test_a_release_that_failed_leaves_its_id_as_old_as_it_was(
    make: Callable[[Retention | None], Desk],
) -> None:
    desk = make(Retention(settled_count=1, settled_age=0, refused_count=0))
    (row,) = desk.hold(message("older", at=NOW - DAY))
    desk.store.add(message("newer", at=NOW - DAY), body="", verdict="refused")
    desk.store.commit()
    with desk.broken(), pytest.raises(StoreFailed):  # noqa: PT012
        desk.store.release_hold(row, NOW)
        desk.store.commit()
    desk.store.end_hold(row, "denied", NOW)
    desk.store.prune(NOW)
    assert desk.store.settled("alice-session", "older") is None
    assert desk.store.settled("alice-session", "newer") is not None
