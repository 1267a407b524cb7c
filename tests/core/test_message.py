"""The records: what they show of themselves, and which state may follow which."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.core.message import (
    TRANSITIONS,
    Lease,
    Message,
    Near,
    Notice,
    Origin,
    Party,
    Pin,
    Receipt,
    Refusal,
    State,
    Step,
    TaskNotification,
    iso,
)

STATES: tuple[State, ...] = get_args(State)
PEER = Origin(kind="peer", identity="5f0e…", verified=True, name="api-worker")


def message(state: State = "received", text: str = "the column is tenant_id") -> Message:
    return Message(msg_id="m-1", text=text, origin=PEER, received_at=1_796_033_702_000, state=state)


@pytest.mark.rule("11.1")
@pytest.mark.parametrize(
    "path",
    [
        ("received", "accepted", "leased", "consumed", "answered"),
        ("received", "accepted", "leased", "accepted", "leased", "consumed"),
        ("received", "held", "accepted"),
        ("received", "held", "denied"),
        ("received", "held", "expired"),
        ("received", "held", "evicted"),
        ("received", "refused"),
        ("received", "duplicate"),
        ("received", "throttled"),
        ("received", "full"),
        ("received", "accepted", "removed"),
    ],
)
def test_a_message_goes_its_way(path: tuple[State, ...]) -> None:
    one = message(path[0])
    for state in path[1:]:
        one = one.moved(state)
        assert one.state == state


@pytest.mark.rule("11.1")
@given(st.sampled_from(STATES), st.sampled_from(STATES))
def test_only_the_steps_of_the_table_are_taken(state: State, then: State) -> None:
    one = message(state)
    if then in TRANSITIONS.get(state, frozenset()):
        moved = one.moved(then)
        assert (moved.state, moved.msg_id, moved.text, moved.origin) == (then, one.msg_id, one.text, PEER)
        assert one.state == state
    else:
        with pytest.raises(ValueError, match=f"{state} cannot become {then}"):
            one.moved(then)


@pytest.mark.rule("11.1")
def test_the_table_is_the_figure_of_the_specification() -> None:
    steps = {f"{state} {then}" for state, following in TRANSITIONS.items() for then in following}
    assert steps == {
        *(f"received {then}" for then in "accepted held refused duplicate throttled full".split()),
        *(f"held {then}" for then in "accepted denied expired evicted".split()),
        *("accepted leased", "accepted removed", "leased consumed", "leased accepted", "consumed answered"),
        # What one of a client's doors has: not in the figure of 11.1, whose doors all confirm that it was read.
        *("leased passed", "passed consumed", "passed accepted", "passed denied"),
    }


@pytest.mark.rule("11.1")
def test_answered_comes_from_consumed_and_from_nothing_else() -> None:
    assert [state for state, following in TRANSITIONS.items() if "answered" in following] == ["consumed"]


@given(st.text(min_size=8), st.text(min_size=8))
def test_a_repr_shows_no_text(text: str, summary: str) -> None:
    shown = repr(Message(msg_id="m", text=text, origin=PEER, received_at=0, summary=summary))
    plain = repr(Message(msg_id="m", text="", origin=PEER, received_at=0))
    assert shown == plain
    assert "m" in shown


@given(st.text(min_size=8))
def test_neither_does_that_of_a_result(result: str) -> None:
    """The final text of an agent is its owner's business (06.11, 06.12)."""

    def receipt(text: str | None) -> Receipt:
        return Receipt(status="resumed", msg_id="m", to=Party(name="a", ref="3fa9c1"), note="n", result=text)

    def task(text: str | None) -> TaskNotification:
        return TaskNotification(task_id="t", name="a", status="completed", run=2, at=0, result=text)

    assert repr(receipt(result)) == repr(receipt(None))
    assert repr(task(result)) == repr(task(None))
    assert receipt(result) != receipt(None)
    assert "run=2" in repr(task(result))


def test_records_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        message().text = "another"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.rule("01.30")
def test_a_refusal_reads_as_one_paragraph() -> None:
    assert str(Refusal(code="x", message="That is wrong.", hint="Do this.")) == "That is wrong. Do this."
    assert str(Refusal(code="x", message="That is wrong.")) == "That is wrong."


def test_what_is_not_said_has_its_plain_default() -> None:
    receipt = Receipt(status="queued", msg_id="m", to=Party(name="a", ref="3fa9c1"), note="n")
    assert (receipt.pin, receipt.waiting, receipt.warnings, receipt.to.kind) == (None, 0, (), "session")
    assert receipt.result is None
    task = TaskNotification(task_id="t", name="a", status="running", run=1, at=0)
    assert (task.output_path, task.result, task.usage, task.worktree) == (None, None, None, None)
    assert (Refusal(code="x", message="m").candidates, Refusal(code="x", message="m").more) == ((), 0)
    assert Near(name="a", ref="3fa9c1").where == ""
    assert (Notice(kind="held", at=1).msg_id, Step(msg_id="m", at=1, where="a", state="held").detail) == (
        None,
        "",
    )
    assert Pin(name="a", identity="i") == Pin(name="a", identity="i")
    assert not Origin(kind="peer", identity="process:1:2").verified


def test_a_lease_is_true_where_it_holds_anything() -> None:
    assert not Lease("", ())
    assert Lease("lease", (message("leased"),))
    assert Lease("", (), (Notice(kind="held", at=1),))


@pytest.mark.parametrize(
    ("at", "written"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (999, "1970-01-01T00:00:00Z"),
        (1_796_033_702_500, "2026-11-30T10:15:02Z"),
        (-1, "1969-12-31T23:59:59Z"),
    ],
)
def test_iso(at: int, written: str) -> None:
    assert iso(at) == written


@given(st.integers(0, 4_000_000_000_000))
def test_iso_reads_back_to_the_same_second(at: int) -> None:
    read = datetime.strptime(iso(at), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert int(read.timestamp()) == at // 1000


@pytest.mark.rule("04.15", "11.7")
def test_a_journal_says_of_a_name_that_it_is_only_claimed() -> None:
    named = Origin(kind="peer", identity="id-1", name="alice", verified=True)
    claimed = Origin(kind="peer", identity="process:1:2", name="alice")
    nameless = Origin(kind="peer", identity="process:1:2")
    assert [origin.known_as for origin in (named, claimed, nameless)] == [
        "alice",
        "alice (claimed)",
        "process:1:2",
    ]
