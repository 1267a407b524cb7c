"""What one drain hands over: attachments, what stands before them, and the way to say that the loop has them."""

from __future__ import annotations

import itertools

import pytest

from postroom import Batch, Notice, Origin
from postroom.core import envelope
from postroom.core.queues import Entry

USER = Origin(kind="user", identity="user", verified=True, name="user")
WORKER = Origin(kind="agent", identity="a1", verified=True, name="worker")
NOTICE = Notice(kind="renamed", at=0, msg_id="m9", about="peer")


def entry(text: str, origin: Origin = WORKER) -> Entry:
    """Something that waits."""
    return Entry(f"m{len(text)}", text, origin, is_meta=origin.kind != "user")


def batch(*entries: Entry, notices: tuple[Notice, ...] = ()) -> Batch:
    """A batch whose ids are numbers."""
    numbers = itertools.count(1)
    return Batch(entries, notices, ids=lambda: str(next(numbers)))


@pytest.mark.rule("06.6", "06.2")
def test_each_entry_is_an_attachment_with_an_id_of_its_own_that_stays() -> None:
    made = batch(entry("one"), entry("two", USER), notices=(NOTICE,))
    assert [(one.id, one.msg_id, one.is_meta) for one in made] == [
        ("1", "m3", True),
        ("2", "m3", False),
        ("3", "m9", True),
    ]
    assert made.attachments is made.attachments
    assert made.texts[1] == "two"
    assert made.text == "\n\n".join(made.texts)
    assert (len(made), bool(made), bool(batch())) == (3, True, False)
    assert "one" not in repr(made)
    assert "two" not in repr(made.attachments)


@pytest.mark.rule("04.1", "04.9")
@pytest.mark.parametrize("entries", [(), (entry("mine", USER),)])
def test_a_notice_never_begins_with_anything_but_a_sentence_of_ours(entries: tuple[Entry, ...]) -> None:
    """Alone, or behind the user's own words alone; of several the first."""
    made = batch(*entries, notices=(NOTICE, NOTICE))
    first, second = made.texts[-2:]
    assert first == f"{envelope.SYSTEM}\n\n{envelope.notice_text(NOTICE)}"
    assert second == envelope.notice_text(NOTICE)


@pytest.mark.rule("04.1")
def test_behind_a_preface_a_notice_needs_no_other() -> None:
    made = batch(entry("one"), notices=(NOTICE,))
    assert made.texts[0].startswith(envelope.PREFACE)
    assert made.texts[1] == envelope.notice_text(NOTICE)


@pytest.mark.rule("11.1")
def test_it_is_confirmed_once_or_given_back_once() -> None:
    said: list[str] = []

    def made() -> Batch:
        return Batch([entry("one")], confirm=lambda: said.append("yes"), release=lambda: said.append("no"))

    for first, then in (("confirm", "release"), ("release", "confirm")):
        one = made()
        for what in (first, first, then):
            getattr(one, what)()
    assert said == ["yes", "no"]


@pytest.mark.rule("11.1", "05.27")
def test_a_confirmation_that_failed_may_be_tried_again_or_taken_back() -> None:
    said: list[str] = []

    def confirm() -> None:
        said.append("tried")
        raise OSError

    one = Batch([entry("one")], confirm=confirm, release=lambda: said.append("given back"))
    for _ in range(2):
        with pytest.raises(OSError):  # noqa: PT011 - any will do
            one.confirm()
    one.release()
    assert said == ["tried", "tried", "given back"]
