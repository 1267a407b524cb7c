"""How much of what waits is handed over at once, where a client takes only so many characters.

Whole messages in their order, as many as fit; what does not fit waits for the next time. Nothing is ever cut: a message
that would not fit even alone is not handed over here at all, its reader is told once that it waits, and what the same
sender wrote after it waits behind it, so that nothing overtakes (11.6). What others wrote goes on.

The ladder, for each message in order; the first line that applies answers:

 1. its sender has a message before it that is too long → it waits behind that one
 2. it does not fit into an empty portion → it waits to be read otherwise; a pointer says so, once
 3. it does not fit into what is left → it waits, and everything after it
 4. else it is handed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.core.envelope import PREFACE, frame, notice_text, shown_from
from postroom.core.message import Notice

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from postroom.core.message import Message

TOO_LONG = "too-long"
"""The kind of notice that points at a message which has to be read otherwise."""

HOW_TO_READ = "It has {characters:,} characters. Read it with the tool read_messages, or in a shell: postroom inbox --take"


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """What is handed over now.

    Attributes:
        messages: whole, in their order.
        notices: how many of the notices that wait, from the first on.
        pointers: notices about messages that are too long, whose readers were not told yet.
    """

    messages: tuple[Message, ...] = ()
    notices: int = 0
    pointers: tuple[Notice, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.messages or self.notices or self.pointers)


def units(text: str) -> int:
    """How long a text is for a client: in units of UTF-16, in which those count that are written in JavaScript."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def portion(
    messages: Sequence[Message],
    notices: Sequence[Notice],
    *,
    limit: int,
    told: Collection[str] = (),
) -> Portion:
    """Decides what is handed over at once.

    Args:
        messages: what waits, in the order in which it is handed out.
        notices: what the system has to say, in order; they come first.
        limit: units of UTF-16 that the whole text may have, preface and blank lines included.
        told: the ids of messages that are too long and whose reader knows it.
    """
    room = limit
    fitting = 0
    for notice in notices:
        room -= units(notice_text(notice)) + 2
        if room < 0:
            return Portion(notices=fitting)
        fitting += 1
    alone = limit - units(PREFACE) - 2
    room -= units(PREFACE) + 2
    chosen: list[Message] = []
    pointers: list[Notice] = []
    behind: set[str] = set()
    for message in messages:
        if message.origin.identity in behind:
            continue
        # A frame is never shorter than its text, so what is far too long is not even made.
        size = len(message.text)
        if size <= alone:
            size = units(frame((message,))) - units(PREFACE)
        if size > alone:
            behind.add(message.origin.identity)
            if message.msg_id in told:
                continue
            pointer = _pointer(message)
            size = units(notice_text(pointer)) + 2
            if size > room:
                break
            pointers.append(pointer)
        elif size > room:
            break
        else:
            chosen.append(message)
        room -= size
    return Portion(messages=tuple(chosen), notices=fitting, pointers=tuple(pointers))


def _pointer(message: Message) -> Notice:
    return Notice(
        kind=TOO_LONG,
        at=message.received_at,
        msg_id=message.msg_id,
        about=shown_from(message.origin) or message.origin.name,
        detail=HOW_TO_READ.format(characters=len(message.text)),
    )
