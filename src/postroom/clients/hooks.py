"""What a session answers the hooks of its client, in its own process (09.5, 09.12).

`postroom hook CLIENT EVENT` hands over what the client said on standard input (`postroom.hook`); here its session learns
from it which mode the client is in, whether a turn runs, what the conversation is and what it is called. Where the
event can carry a text, what waits goes with it, in the client's own JSON, and counts as consumed once the hook has
written it (11.1). What a client takes at once is limited: `core.portion` says what fits, and the rest waits.

WHO GETS MAIL. The main conversation: an event of a subagent, or of another conversation of the same process, is given
none and reports nothing. At the end of a turn, mail keeps the turn from ending; not where the client says that a hook
has kept it going already, and not more than MAX_BLOCKS times in a row. Text that a client takes for its user's begins
with the preface all the same (04.9).

WAKING. `wake` is no event but a background hook that waits until there is mail and then ends in a way that wakes the
client. One waits at a time: a newer one takes the older one's place.

It never fails a turn: an event that is not known, input that is none, a store that cannot write are answered with
nothing and a line in the session's log. No line holds a text, a name of a tool, or a token.

Weak: that the hook has written its answer is all that is known; a client that is killed in that moment has not read
it. The events of Gemini CLI's subagents bear no mark; they are told apart by when they come, and only where the hook
for `BeforeTool` is installed.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

from postroom.clients import load
from postroom.core import envelope
from postroom.core.portion import portion
from postroom.errors import PostroomError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from postroom.call import Call
    from postroom.client import Client, Event, Report
    from postroom.control import Control
    from postroom.core.message import Lease
    from postroom.session import Session

MAX_INJECTED = 10_000
"""Characters that a hook may give its client at once: of more, Claude Code shows the model a file's name (09.12)."""

MAX_BLOCKS = 5
"""Turns in a row that mail keeps from ending. Clients that say so themselves are asked once; this is for those that do
not, and below the eight after which Claude Code ends the turn anyway."""

MAX_LOOKED = 20
"""Messages that are looked at for one answer: it holds about so many of the shortest worth sending."""

MAX_POINTED = 1_000
"""Messages too long for a hook of which is remembered that their reader was told (11.10)."""

WOKEN = 2
"""The exit code with which a background hook of Claude Code wakes it, and shows it what is on standard error."""

MOVED = 4
"""The code by which that hook is told that the session ends here: it may go on in another process."""


@dataclass(eq=False)
class _Waker:
    """A background hook that waits for mail. `handing`: it is being given some, and is not to be disturbed."""

    call: Call
    task: asyncio.Task[None] | None
    handing: bool = False

    def end(self) -> None:
        """Ends it without having woken anybody, unless it is about to."""
        if not self.handing:
            self.call.done()
            if self.task is not None:
                self.task.cancel()


@dataclass(eq=False)
class Attended:
    """What is remembered between the hooks of one session's client.

    Attributes:
        conversation: the client's id of the conversation whose session this is; empty before the first event.
        turn: the client's id of the turn; empty where it tells none.
        goes_on: the turn was kept from ending, so what the client calls a new one is not.
        blocks: how often in a row that was so.
        delegated: tools under way that run subagents.
        told: the ids of messages that are too long, and whose reader knows it.
        waker: the background hook that waits.
    """

    conversation: str = ""
    turn: str = ""
    goes_on: bool = False
    blocks: int = 0
    delegated: int = 0
    told: dict[str, None] = field(default_factory=dict[str, None])
    waker: _Waker | None = None


_attended: WeakKeyDictionary[Session, Attended] = WeakKeyDictionary()


async def answer(control: Control, call: Call) -> None:
    """Answers `hook CLIENT EVENT` (09.12). Never an error: what goes wrong is a line in the session's log."""
    session = control.session
    session.hooked = True
    attended = _attended.setdefault(session, Attended())
    try:
        client = load(call.args.client)
        event = client.events.get(call.args.event)
        if event is None:
            session.log(f"hook {client.name}: there is no event {_word(call.args.event)}")
        elif event.kind == "wake":
            await _wake(session, attended, call)
        elif (report := _read(session, client, event, call.stdin)) is not None:
            await _event(session, attended, call, client, event, report)
    except PostroomError as error:
        session.log(f"hook {_word(call.args.client)} {_word(call.args.event)}: {error.code}")
    except Exception as error:
        session.log(f"hook {_word(call.args.client)} {_word(call.args.event)}: {type(error).__name__}")
    if not call.ended:
        call.done()


def _word(text: object) -> str:
    """A word of a command line as a log shows it."""
    return "".join(character for character in str(text)[:40] if character.isprintable())


def _read(session: Session, client: Client, event: Event, stdin: str | int | None) -> Report | None:
    """What the client said; None for what is no JSON object, which is logged."""
    if isinstance(stdin, str):
        try:
            payload: object = json.loads(stdin)
        except (ValueError, RecursionError):
            payload = None
        if isinstance(payload, dict):
            return client.read(cast("Mapping[str, object]", payload))
    session.log(f"hook {client.name} {event.name}: its input is {_kind(stdin)}")
    return None


def _kind(stdin: str | int | None) -> str:
    if isinstance(stdin, int):
        return f"too large ({stdin} characters)"
    return "no JSON object" if stdin else "empty"


async def _event(
    session: Session, attended: Attended, call: Call, client: Client, event: Event, report: Report
) -> None:
    """Takes in one event of the client, and gives it what waits where it can carry that."""
    if report.agent or not _concerns(attended, event, report):
        return
    _learn(session, attended, event, report)
    inside_subagent = _delegation(attended, event, report)
    render = None if inside_subagent else event.render
    if event.kind == "turn-end":
        keeps = render is not None and not report.stop_active and attended.blocks < MAX_BLOCKS
        attended.goes_on = False
        try:
            if keeps and render is not None:
                attended.goes_on = await _hand_over(session, attended, call, render, idle=True)
        finally:  # the hook may have been ended in the middle
            attended.blocks = attended.blocks + 1 if attended.goes_on else 0
            if not attended.goes_on:
                session.ended_turn(report.words)
    elif render is not None:
        await _hand_over(session, attended, call, render, idle=event.kind != "tool")


def _concerns(attended: Attended, event: Event, report: Report) -> bool:
    """Whether an event is one of the conversation whose session this is: the one that began, or spoke to its user, last."""
    if event.kind in ("session-start", "turn-start") or not attended.conversation:
        attended.conversation = report.session_id or attended.conversation
    return not report.session_id or report.session_id == attended.conversation


def _learn(session: Session, attended: Attended, event: Event, report: Report) -> None:
    """Tells the session what an event says about its client: mode, conversation, name, turn."""
    if report.mode is not None and report.mode != session.standing.mode:
        # A hook is a child of the client, as a command in its shell is: it reports, and lets nothing in (03.43).
        session.set_mode(report.mode, by="child")
    if event.kind in ("session-start", "turn-start"):
        attended.told.clear()  # whoever begins anew is told again what waits
        attended.delegated = 0
        if session.attendant is not None:
            session.attendant.learned(report.session_id, report.cwd, report.title)
        else:
            session.called(report.title)
    match event.kind:
        case "session-start":
            session.reported()
        case "turn-start":
            _begin(session, attended, report)
        case "tool" if session.turn == "idle":  # a turn that nobody's prompt began
            session.began_turn()
        case "tool":
            session.doing("busy")
        case "session-end":
            session.ended_turn()
        case _:
            pass
    if report.waits == "user" and session.turn == "busy":
        session.ended_turn()  # nothing else tells that a person has interrupted it
    elif report.waits == "permission":
        session.doing("waiting")


def _begin(session: Session, attended: Attended, report: Report) -> None:
    """A turn begins, unless the client calls so what goes on: what it was told counts for all of it (03.66)."""
    if "msg-id=" in report.prompt:
        blocks = envelope.unframe(report.prompt)
        session.seen([value for block in blocks for key, value in block.attributes if key == "msg-id"])
    same = bool(report.turn) and report.turn == attended.turn
    if not (session.turn == "busy" and (same or attended.goes_on)):
        session.began_turn()
    attended.turn = report.turn
    attended.goes_on = False


def _delegation(attended: Attended, event: Event, report: Report) -> bool:
    """Counts the tools under way that run subagents; returns whether this event may be of one of those."""
    if event.kind == "turn-end":
        attended.delegated = 0
    elif report.delegates:
        attended.delegated = (
            max(0, attended.delegated - 1) if event.kind == "tool" else attended.delegated + 1
        )
    return attended.delegated > 0


# ── mail ─────────────────────────────────────────────────────────────────────────────────────────


async def _hand_over(
    session: Session, attended: Attended, call: Call, render: Callable[[str], str], *, idle: bool
) -> bool:
    """Gives the hook what waits and fits, and confirms it once that is written (11.1).

    Args:
        session, attended, call: whose hook, and the way back to it.
        render: the client's own way to take a text.
        idle: the turn has not begun or is about to end: what has time for that goes too (06.2).

    Returns whether the hook has written something.
    """
    taken = _taken(session, attended, idle=idle)
    if taken is None:
        return False
    leases, text, pointed = taken
    printed = False
    try:
        printed = await call.printed(render(text))
    finally:
        for lease in leases:
            if printed:
                session.confirm(lease)
            else:
                session.release(lease)
    if printed:
        attended.told.update(dict.fromkeys(pointed))
        while len(attended.told) > MAX_POINTED:
            del attended.told[next(iter(attended.told))]
    return printed


def _taken(session: Session, attended: Attended, *, idle: bool) -> tuple[list[Lease], str, list[str]] | None:
    """Takes what waits and fits: (leases, the text, ids of messages it only points at); None for nothing."""
    notices = session.peek_notices()
    with session.reading() as store:
        waiting = store.waiting(MAX_LOOKED) if store.waiting_count else []
    if not idle:
        waiting = [message for message in waiting if message.priority != "later"]
    chosen = portion(waiting, notices, limit=MAX_INJECTED - len(envelope.ANSWER_WITH) - 2, told=attended.told)
    if not chosen:
        return None
    leases: list[Lease] = []
    in_a_row = chosen.messages == tuple(waiting[: len(chosen.messages)])
    if chosen.notices or (chosen.messages and in_a_row):
        most = len(chosen.messages) if in_a_row else 0
        leases.append(session.take(later=idle, limit=most, most_notices=chosen.notices))
    if not in_a_row:
        leases += [session.take(only=message.msg_id, notices=False) for message in chosen.messages]
    messages = [message for lease in leases for message in lease.messages]
    told = [notice for lease in leases for notice in lease.notices]
    return (
        leases,
        envelope.injected(messages, (*told, *chosen.pointers)),
        [one.msg_id or "" for one in chosen.pointers],
    )


# ── waking ───────────────────────────────────────────────────────────────────────────────────────


async def _wake(session: Session, attended: Attended, call: Call) -> None:
    """Answers the background hook: waits until there is mail, gives it that, and ends with WOKEN."""
    if attended.waker is not None:
        attended.waker.end()
    waker = attended.waker = _Waker(call, asyncio.current_task())
    try:
        while not call.ended:
            waker.handing = True
            woken = await _hand_over(session, attended, call, str, idle=True)
            waker.handing = False
            if woken:
                return call.done(code=WOKEN)
            if not await session.stirs():
                return call.done(code=MOVED)
    finally:
        if attended.waker is waker:
            attended.waker = None
    return None
