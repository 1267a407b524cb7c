"""The verb `doors`: by what ways a message comes to this session's agent, and which of them are there now (09.16).

It shows and changes nothing: no message is taken, no text is shown, nothing dead is swept, as `status` does. `postroom
doctor` asks every session for it. A door that does not say in time whether it is there counts as not there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from postroom import clients, doors, present
from postroom.core.times import iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.call import Call
    from postroom.client import Client, DoorFact
    from postroom.control import Control
    from postroom.present import Document
    from postroom.session import Session

DOOR_SECONDS = 1.0
"""How long a door may take to say whether it is there: a client answers in milliseconds, and somebody waits."""


async def answer(control: Control, call: Call) -> None:
    """Answers `doors` (09.16)."""
    session = control.session
    shown = doors_document(session, await _doors(session, serving=control.finish is None))
    call.answer(shown, doors_text(shown))


def doors_document(session: Session, ways: Sequence[Document]) -> Document:
    """What `doors` answers: what the session knows of itself, of the mail that waits in it, and of the ways to its agent."""
    waiting = session.peek()
    oldest = min((message.received_at for message in waiting), default=None)
    return {
        **present.status_document(session.status(looking=False)),
        "client": session.record.entrypoint,
        "turn": session.turn,
        "waiters": session.waiters,
        "unread": session.store.unread,
        "most": session.standing.limits.max_unread,
        "oldest": None if oldest is None else iso(oldest),
        "waited": 0 if oldest is None else max(0, session.now() - oldest) // 1000,
        "doors": list(ways),
    }


def door_document(fact: DoorFact, why: str) -> Document:
    """One door: what is known of it, and why it is not there now; an empty `why`: it is."""
    return {
        "name": fact.name,
        "why": why,
        "wakes": fact.wakes,
        "during_turn": fact.during_turn,
        "confirms": fact.confirms,
        "needs": fact.needs,
    }


def doors_text(document: Document) -> str:
    """The same for a person."""
    rows = [
        (
            door["name"],
            door["why"] or "is there",
            "wakes an idle agent" if door["wakes"] else "does not wake",
            f"confirms {door['confirms']}",
        )
        for door in document["doors"]
    ]
    text = present.table(rows) if rows else "Whoever opened this session takes its mail.\n"
    oldest = f", the oldest since {document['oldest']}" if document["oldest"] else ""
    return f"{text}{document['unread']} unread{oldest}.\n"


async def _doors(session: Session, *, serving: bool) -> list[Document]:
    """Every door of the session's client, the best first; none for a session without one."""
    if session.record.entrypoint not in clients.CLIENTS:
        return []
    client = clients.load(session.record.entrypoint)
    whys = await asyncio.gather(*(_why(session, client, fact, serving=serving) for fact in client.doors))
    return [
        door_document(fact, why) for fact, why in zip(client.doors, cast("Sequence[str]", whys), strict=True)
    ]


async def _why(session: Session, client: Client, fact: DoorFact, *, serving: bool) -> str:
    """Why a door is not there; empty where it is."""
    match fact.name:
        case "hooks":
            waits = fact.wakes and session.waiters  # the hook that wakes it
            return "" if waits or session.hooked else "no hook of it has come yet"
        case "mcp":
            return "" if serving else "no MCP server that it started is this session"
        case "wait":
            return "" if session.waiters else "nobody waits"
        case _:
            return await _asked(session, fact)


async def _asked(session: Session, fact: DoorFact) -> str:
    """What a door of `doors.DOORS` says itself."""
    if fact.name not in doors.DOORS or session.attendant is None:
        return "nobody looks after it"
    try:
        door = doors.load(fact.name, cast("doors.Attended", session.attendant), lambda ids, why: None)
        try:
            async with asyncio.timeout(DOOR_SECONDS):
                return await door.ready()
        finally:
            await door.close()
    except TimeoutError:
        return "it does not say in time whether it is there"
    except Exception as error:
        session.log(f"door {fact.name}: {type(error).__name__}")
        return "it cannot be asked"
