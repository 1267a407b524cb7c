"""Asks the person inside the client about what is held, where the client can put a form before them (09.9).

One question at a time, the oldest hold first, over the protocol's elicitation. The form has to be filled in: what lets a
message in, or drops it, is a choice that somebody made in it, with a note if they wrote one. Everything else decides
nothing: a form that is declined or put away, an answer without a choice, a client that could not show it. The message
then stays held, and `postroom held` shows it. For some clients decline by themselves where they are set up never to ask
(Codex does), and nobody may be told that a person denied a message which no person saw. A hold that ends meanwhile
takes its question back.

The answer comes on the client's own pipe, where no tool call and no process that the agent starts can write; what comes
there counts as the person's. What the form cannot do is left to the terminal: to accept a sender always.

Weak: the client answers for the person, and one that is set up to fill in forms by itself does so.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom import present, verdicts
from postroom.arguments import NOTE_LENGTH
from postroom.core.holds import numbered
from postroom.core.message import Refusal
from postroom.errors import PostroomError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from postroom.core.holds import Hold
    from postroom.core.message import PermissionClass
    from postroom.session import Session

__all__ = ["DROP", "LET_IN", "SCHEMA", "AskingInside", "Replied"]

LET_IN, DROP = "let it in", "drop it"
"""The choices, as the person reads them."""

SCHEMA = {
    "type": "object",
    "properties": {
        "decision": {
            "type": "string",
            "title": "Let this message in?",
            "description": "Let in, this session's agent reads it; dropped, its sender is told.",
            "enum": [LET_IN, DROP],
        },
        "note": {
            "type": "string",
            "title": "Note",
            "description": "Optional: a word to the session that gets the message, or to its sender.",
            "maxLength": NOTE_LENGTH,
        },
    },
    "required": ["decision"],
}
"""The form. Nothing in it is chosen beforehand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """What came back for one question.

    Attributes:
        decision: what was chosen; anything but one of the choices decides nothing.
        note: what the person wrote.
    """

    decision: str = ""
    note: str = ""


class AskingInside:
    """Asks about one hold after the other.

    Args:
        session: whose holds.
        ask: puts a question; raises where the client cannot.
    """

    def __init__(self, session: Session, ask: Callable[[str], Awaitable[Replied]]) -> None:
        self._session = session
        self._ask = ask
        self._asked: set[int] = set()

    async def run(self) -> None:
        """Asks until the session ends, or the client says that it cannot."""
        session = self._session
        session.askable = True
        try:
            while not session.closed:
                hold = next((hold for hold in session.held() if hold.row not in self._asked), None)
                if hold is None:
                    await session.changed()
                    continue
                self._asked.add(hold.row)
                replied = await self._answer(hold)
                if replied is not None:
                    self._decide(hold, replied)
        except Exception as error:
            session.log(f"the client cannot ask about what is held: {type(error).__name__}")
        finally:
            session.askable = False

    def _held(self, hold: Hold) -> bool:
        return any(hold.row == other.row for other in self._session.held())

    async def _answer(self, hold: Hold) -> Replied | None:
        """What the person says about a hold; None when it has ended meanwhile. Raises what `ask` raises."""
        session, loop = self._session, asyncio.get_running_loop()
        asking = asyncio.ensure_future(self._ask(question(hold, session)))
        try:
            while not asking.done() and self._held(hold):
                change = loop.create_task(session.changed())
                await asyncio.wait({asking, change}, return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
            return asking.result() if asking.done() else None
        finally:
            asking.cancel()

    def _decide(self, hold: Hold, replied: Replied) -> None:
        if not self._held(hold):
            return
        msg_id = numbered(hold)  # its sender's id may be another one's too
        try:
            said = None
            if replied.decision == LET_IN:
                said = self._session.approve(msg_id, note=replied.note or None)
            elif replied.decision == DROP:
                said = self._session.deny(msg_id, note=replied.note or None)
        except PostroomError as error:
            self._session.log(f"what the person decided about {msg_id} could not be kept: {error.message}")
            return
        if isinstance(said, Refusal):
            self._session.log(f"what the person decided about {msg_id} came to nothing: {said.message}")


def question(hold: Hold, session: Session) -> str:
    """What the person reads: who wrote, why it is held, how it begins, what each answer does."""
    message = hold.message
    begins, more = verdicts.preview(message.text)
    if more:
        begins += f"\n  … and {more:,} characters more: `{present.acting_for(session.name)} held --json`"
    until = "" if hold.expires_at is None else f" until {clock(hold.expires_at, session.now())}"
    lines = [  # some clients show four lines, and cut a long one
        present.one_line(f"From {verdicts.named_sender(message.origin)}:"),
        begins,
        f"It waits for you because {why(hold, session)}.",
        present.one_line(f"Without a choice it stays held{until}. Its id is {message.msg_id}."),
    ]
    return "\n".join(lines)


DOES: dict[PermissionClass | None, str] = {
    "bypassing": "acts without asking anybody",
    "prompting": "asks before it acts",
    None: "does not say whether it asks before it acts",
}
"""A permission class, or that none is stated, as somebody reads it who does not know the word."""


def why(hold: Hold, session: Session) -> str:
    """Why a message is held, without the words that only the documentation explains."""
    own = session.standing.permission_class
    if hold.cause not in ("mode-mismatch", "no-mode-asserted") or own == "unknown":
        return verdicts.CAUSES[hold.cause]
    return f"its sender {DOES[hold.message.origin.stated_class]}, and this session {DOES[own]}"


def clock(at: int, now: int) -> str:
    """A time of the near future as the clock of this machine shows it, with the date where that is another day.

    A form stands for as long as nobody answers, and a time that is left would not go on in it.

    Args:
        at, now: epoch milliseconds.
    """
    then, today = time.localtime(at / 1000), time.localtime(now / 1000)
    return time.strftime("%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)
