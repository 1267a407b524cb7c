"""How much is handed over at once: whole messages in order, never a cut, never an overtaking."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.core.envelope import PREFACE, frame, notice_text
from postroom.core.message import Message, Notice, Origin
from postroom.core.portion import TOO_LONG, Portion, portion, units

NOW = 1_796_033_702_123
LIMIT = 2_000


def message(number: int, text: str, sender: str = "alice", *, verified: bool = True) -> Message:
    """A message of a peer."""
    origin = Origin(
        kind="peer", identity=f"id-{sender}", name=sender, verified=verified, address=f"uds:/{sender}"
    )
    return Message(msg_id=f"m-{number}", text=text, summary=None, origin=origin, received_at=NOW)


def notice(number: int, detail: str = "") -> Notice:
    """A notice about a message of one's own."""
    return Notice(kind="held", at=NOW, msg_id=f"n-{number}", about="carol", detail=detail)


def text_of(chosen: Portion, notices: list[Notice]) -> str:
    """What a client is given for a portion."""
    parts = [notice_text(each) for each in (*notices[: chosen.notices], *chosen.pointers)]
    parts += [frame(chosen.messages)] if chosen.messages else []
    return "\n\n".join(parts)


def test_nothing_waits() -> None:
    assert not portion([], [], limit=LIMIT)


@pytest.mark.rule("09.12")
def test_whole_messages_in_order_as_many_as_fit() -> None:
    waiting = [message(number, "x" * 300, f"s{number}") for number in range(10)]
    chosen = portion(waiting, [], limit=LIMIT)
    count = len(chosen.messages)
    assert 1 < count < 10
    assert chosen.messages == tuple(waiting[:count])
    assert units(frame(chosen.messages)) <= LIMIT
    assert units(frame(waiting[: count + 1])) > LIMIT


@pytest.mark.rule("09.12")
def test_a_smaller_one_behind_does_not_overtake_what_fits_the_next_time() -> None:
    waiting = [message(1, "x" * 900, "alice"), message(2, "y" * 900, "bob"), message(3, "z", "carol")]
    assert [each.msg_id for each in portion(waiting, [], limit=LIMIT).messages] == ["m-1"]


@pytest.mark.rule("09.12")
def test_one_that_never_fits_is_pointed_at_once_and_blocks_its_sender_alone() -> None:
    waiting = [
        message(1, "x" * LIMIT, "alice"),
        message(2, "after it", "alice"),
        message(3, "of another", "bob"),
    ]
    chosen = portion(waiting, [], limit=LIMIT)
    assert [each.msg_id for each in chosen.messages] == ["m-3"]
    (pointer,) = chosen.pointers
    assert (pointer.kind, pointer.msg_id, pointer.at) == (TOO_LONG, "m-1", NOW)
    assert pointer.about is not None
    assert pointer.about.startswith("alice [")
    assert "2,000 characters" in notice_text(pointer)
    assert "read_messages" in notice_text(pointer)
    again = portion(waiting, [], limit=LIMIT, told={"m-1"})
    assert (again.messages, again.pointers) == (chosen.messages, ())
    assert not portion(waiting[:2], [], limit=LIMIT, told={"m-1"})


def test_a_pointer_names_a_sender_that_cannot_be_answered_as_it_calls_itself() -> None:
    (pointer,) = portion([message(1, "x" * LIMIT, verified=False)], [], limit=LIMIT).pointers
    assert pointer.about == "alice"


def test_a_pointer_that_does_not_fit_waits_too() -> None:
    first = message(1, "x" * (LIMIT - units(frame((message(1, ""),)))), "bob")
    long = message(2, "y" * LIMIT, "alice")
    chosen = portion([first, long, message(3, "z", "carol")], [], limit=LIMIT)
    assert (chosen.messages, chosen.pointers) == ((first,), ())


@pytest.mark.rule("09.12")
def test_notices_come_first_and_are_counted() -> None:
    notices = [notice(number) for number in range(3)]
    chosen = portion([message(1, "hello")], notices, limit=LIMIT)
    assert (chosen.notices, len(chosen.messages)) == (3, 1)
    many = [notice(number, "w" * 200) for number in range(20)]
    chosen = portion([message(1, "hello")], many, limit=LIMIT)
    assert 0 < chosen.notices < 20
    assert chosen.messages == ()


def test_length_is_counted_as_the_clients_count_it() -> None:
    assert units("abc") == 3
    assert units("é") == 1
    assert units("😀!") == 3
    waiting = [message(1, "😀" * 700)]
    assert portion(waiting, [], limit=LIMIT).pointers == ()
    assert portion(waiting, [], limit=1_800).messages == ()


@settings(max_examples=150)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 2_500), st.sampled_from("abc")), max_size=12),
    details=st.lists(st.integers(0, 250), max_size=8),
    limit=st.integers(len(PREFACE) + 300, 3_000),
    told=st.sets(st.integers(0, 12)),
)
@pytest.mark.rule("09.12")
def test_whatever_waits_fits_and_nobody_overtakes_within_a_sender(
    sizes: list[tuple[int, str]], details: list[int], limit: int, told: set[int]
) -> None:
    waiting = [message(number, "t" * size, sender) for number, (size, sender) in enumerate(sizes)]
    notices = [notice(number, "d" * size) for number, size in enumerate(details)]
    chosen = portion(waiting, notices, limit=limit, told={f"m-{number}" for number in told})
    assert units(text_of(chosen, notices)) <= limit
    places = [waiting.index(each) for each in chosen.messages]
    assert places == sorted(places)
    for sender in "abc":
        of_sender = [each for each in waiting if each.origin.name == sender]
        taken = [each for each in chosen.messages if each.origin.name == sender]
        assert taken == of_sender[: len(taken)]
    assert not {each.msg_id for each in chosen.pointers} & {f"m-{number}" for number in told}
