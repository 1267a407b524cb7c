"""When a client's doors are rung, and what becomes of the messages (09.1, 09.16).

The store has every message first. `core.ringing` says by which way it is brought to the model; this acts on it: it
leases what waits, renders it, rings the best door that is there, and clears what the door confirms, no more than that.

    accepted, written   the messages are passed on: they are handed out no more, and count as consumed only once the
                        client's turn is seen to hold them
    failed              they wait again; the next door is tried, and the one that failed rests for a growing time
    unknown             they wait again, and no door is rung for them any more: they can be read, and are marked

One message never goes through two doors as two: a ring that began and of which nobody wrote down the end, because this
process died in it, counts as unknown after the next start. The journal says beside the state of each message which
door was rung and what came of it, and once which were not there. It is written and synced before a door is rung.

What others see of the session (`confirms`, `wakes`) follows the doors that are there. They are looked at when the session
opens, after each turn, and whenever one is tried.

Nothing wakes up while nothing waits (12.21). Messages that come close together share one ring, as many as the door
carries.

How it fails: what a door or the store throws is a line in the session's log, and the messages wait. It never raises for
anything but the end of its task.

Weak: what a ring brings as user text has the user's authority in some clients; the text says what it is (04.1). A door
that comes or goes while nothing is reported, and nothing waits, is noticed with the next report.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from postroom.client import HOOKS, MCP, reach
from postroom.core import envelope, ringing
from postroom.core.message import Lease
from postroom.doors import DOORS, Rang, load
from postroom.errors import PostroomError, SessionClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroom.client import DoorFact
    from postroom.core.message import Message, Notice, PermissionClass
    from postroom.doors import Attended, Door
    from postroom.session import Session

__all__ = ["Ringer"]

SETTLE_SECONDS = 0.05
"""Between a change and a ring: a reader that the same change woke comes first, and a burst becomes one ring."""

MOST_MESSAGES = 100
"""Messages of one ring; as many as Codex queues for a thread."""

TROUBLE_SECONDS = 30.0
"""After so long it is tried again where the store could not be written."""

DOOR_SECONDS = 1.0
"""How long a door may take to say whether it is there; one that does not is not."""

NOT_THERE = "not there"
"""The journal's word for a door that was not rung because it was not there."""


def doors_of(here: Attended) -> tuple[DoorFact, ...]:
    """The doors of a client that this process can ring, best first."""
    return tuple(fact for fact in here.client.doors if fact.name in DOORS)


class Ringer:
    """Rings the doors of one client, for its session, as long as `run` runs.

    Args:
        here: the client and its session.
        load_door: makes a door; `doors.load` unless a test has its own.
        serving: this process serves the agent's tools; else a hook of the client's started it.
        looked: called after each look at the doors.
    """

    def __init__(
        self,
        here: Attended,
        *,
        load_door: Callable[[str, Attended, Callable[[Sequence[str], str], None]], Door] = load,
        serving: bool = True,
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        self._here = here
        self._load = load_door
        self._serving = serving
        self._looked_at = looked
        self._reports = -1
        self._there: dict[str, bool] = {}
        self._facts = doors_of(here)
        self._doors: dict[str, Door] = {}
        self._failures: dict[str, int] = {}
        self._resting: dict[str, int] = {}
        self._turn = "unknown"
        self._seen: set[str] = set()  # messages of which it is known whether they are in doubt
        self._doubted: set[str] = set()
        self._doubted_notices: set[Notice] = set()
        self._drops: dict[str, int] = {}
        self._told: dict[str, set[tuple[str, str]]] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Rings until the session ends or the task is cancelled."""
        session = self._here.session
        if session is None or not self._facts:
            return
        listening = asyncio.get_running_loop().create_task(self._listen(session))
        try:
            while not session.closed:
                self._changed.clear()
                await self._look(session)
                again = await self._looked(session)
                if await self._woken(again):
                    await asyncio.sleep(SETTLE_SECONDS)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            for door in self._doors.values():
                await door.close()

    async def _listen(self, session: Session) -> None:
        """Notes every change, so that none is missed while a door is being rung."""
        while not session.closed:
            await session.heard()
            self._changed.set()
        self._changed.set()

    async def _woken(self, seconds: float | None) -> bool:
        """Waits for a change, at most so long; whether there was one."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _looked(self, session: Session) -> float | None:
        """Acts on one look at the session; returns the seconds after which it is looked again, None for a change."""
        try:
            while True:
                messages, notices = self._waiting(session)
                advice = ringing.advise(self._scene(session, messages, notices))
                if advice.rung != "ring":
                    return None if advice.again is None else max(0.0, (advice.again - session.now()) / 1000)
                await self._try(session, advice.ways)
        except SessionClosed:
            return None
        except PostroomError as error:
            session.log(f"doors: {error.code}: {error}")
            return TROUBLE_SECONDS
        except Exception as error:  # its words may hold a text, or a password
            session.log(f"doors: {type(error).__name__}")
            return TROUBLE_SECONDS

    # ── what is there ────────────────────────────────────────────────────────────────────────────

    async def _look(self, session: Session) -> None:
        """Looks at every door, where the client has said something since the last look."""
        if self._reports == session.reports:
            return
        self._reports = session.reports
        whys = await asyncio.gather(*(self._why_not(fact.name) for fact in self._facts))
        self._there = {fact.name: not why for fact, why in zip(self._facts, whys, strict=True)}
        self._show(session)

    async def _why_not(self, name: str) -> str:
        """Why a door is not there; empty where it is."""
        try:
            async with asyncio.timeout(DOOR_SECONDS):
                return await self._door(name).ready()
        except TimeoutError:
            return "it does not say in time whether it is there"
        except Exception as error:
            return f"it could not be looked at ({type(error).__name__})"

    def _show(self, session: Session) -> None:
        """Shows others what is known of a message that comes now (09.16)."""
        if not session.closed:
            session.reached(*reach(fact for fact in self._here.client.doors if self._is_there(session, fact)))
            self._looked_at()

    def _is_there(self, session: Session, fact: DoorFact) -> bool:
        if fact.name == HOOKS.name:
            waits = fact.wakes and session.waiters > 0  # the hook that wakes it
            return waits or session.hooked or not self._serving
        return self._serving if fact.name == MCP.name else self._there.get(fact.name, False)

    # ── what waits ───────────────────────────────────────────────────────────────────────────────

    def _waiting(self, session: Session) -> tuple[list[Message], tuple[Notice, ...]]:
        """What a door may bring now: nothing in doubt, and in a turn nothing that can wait for its end (06.2)."""
        if session.closed:
            return [], ()
        everything = session.peek() if session.store.waiting_count else []
        ids = {message.msg_id for message in everything}
        for message in everything:
            if message.msg_id not in self._seen:
                self._seen.add(message.msg_id)
                if message.redelivered and self._in_doubt(session, message.msg_id):
                    self._doubted.add(message.msg_id)
        for known in (self._seen, self._doubted):
            known &= ids
        for gone in self._told.keys() - ids:
            del self._told[gone]
        busy = session.turn == "busy"
        fit = [
            message
            for message in everything
            if message.msg_id not in self._doubted
            and self._drops.get(message.msg_id, 0) < ringing.MOST_RINGS
            and not (busy and message.priority == "later")
        ]
        told = session.peek_notices()
        self._doubted_notices &= set(told)
        return fit, tuple(notice for notice in told if notice not in self._doubted_notices)

    def _in_doubt(self, session: Session, msg_id: str) -> bool:
        """Whether an earlier life rang for it and did not write down the end."""
        with session.reading() as store:
            steps = store.steps(msg_id)
        return ringing.in_doubt([step.detail for step in steps if step.state == "rang"])

    def _scene(
        self, session: Session, messages: Sequence[Message], notices: Sequence[Notice]
    ) -> ringing.Scene:
        turn: ringing.Turn = (
            "busy" if session.turn == "busy" else "idle" if session.turn == "idle" else "unknown"
        )
        if turn != self._turn:  # what was not there may be there now
            self._turn = turn
            self._resting.clear()
            self._failures.clear()
        now = session.now()
        since = [message.received_at for message in messages] + [notice.at for notice in notices]
        return ringing.Scene(
            waiting=len(since),
            waited_ms=max(0, now - min(since, default=now)),
            waiters=session.waiters,
            turn=turn,
            hooks=turn != "unknown",
            ways=self._facts,
            resting=self._resting,
            now=now,
        )

    # ── a ring ───────────────────────────────────────────────────────────────────────────────────

    async def _try(self, session: Session, ways: Sequence[str]) -> None:
        """Tries doors, best first, until one has what waits or may have it."""
        for name in ways:
            door = self._door(name)
            why_not = await self._why_not(name)
            self._there[name] = not why_not
            self._show(session)
            messages, notices = self._waiting(session)
            if name not in ringing.advise(self._scene(session, messages, notices)).ways:
                return  # somebody was faster, or a turn has begun
            if why_not:
                self._rest(session, name)
                self._tell(session, name, messages, why_not)
            elif await self._rung(session, door, messages, notices):
                return

    def _door(self, name: str) -> Door:
        if name not in self._doors:
            self._doors[name] = self._load(name, self._here, partial(self._dropped, name))
        return self._doors[name]

    def _rest(self, session: Session, name: str) -> None:
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        self._resting[name] = session.now() + ringing.rest_ms(failures)

    def _tell(self, session: Session, name: str, messages: Sequence[Message], why_not: str) -> None:
        """Journals once for each message that a door is not there."""
        new = [m.msg_id for m in messages if (name, why_not) not in self._told.setdefault(m.msg_id, set())]
        for msg_id in new:
            self._told[msg_id].add((name, why_not))
        if new:
            session.rang(new, name, NOT_THERE, why_not)

    async def _rung(
        self, session: Session, door: Door, messages: Sequence[Message], notices: Sequence[Notice]
    ) -> bool:
        """Rings one door for what fits into it; whether no other door is to be tried for that."""
        messages = self._portion(door, messages)
        ids = tuple(dict.fromkeys(message.msg_id for message in messages))
        leases = self._leased(session, door.name, ids, notices)
        taken = [message for lease in leases for message in lease.messages]
        told = [notice for lease in leases for notice in lease.notices]
        rang = Rang("unknown", "it was broken off")
        try:
            rang = await door.ring(envelope.injected(taken, told), ids, stated_by(taken))
        except Exception as error:
            rang = Rang("unknown", f"{type(error).__name__} in the door")
            session.log(f"door {door.name}: {type(error).__name__}")
        finally:
            if not session.closed:
                self._settle(session, door.name, ids, leases, rang)
        return rang.outcome != "failed"

    def _leased(
        self, session: Session, name: str, ids: Sequence[str], notices: Sequence[Notice]
    ) -> list[Lease]:
        """Takes what is rung for; that it is rung for is written down before (09.16)."""
        if ids:
            session.rang(ids, name, ringing.BEGUN)
        leases: list[Lease] = []
        try:
            if notices:
                leases.append(session.take(limit=0))
            for msg_id in ids:
                leases.append(session.take(only=msg_id, notices=False))
        except BaseException:
            for lease in leases:
                session.release(lease)
            raise
        return leases

    def _portion(self, door: Door, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages in front that one ring carries; all of one class, which the door may have to state."""
        if not messages:
            return ()
        alike = 0
        for message in messages:
            if message.origin.stated_class != messages[0].origin.stated_class:
                break
            alike += 1
        sizes = (
            len(envelope.injected((message,), ()).encode(errors="replace")) for message in messages[:alike]
        )
        return messages[: ringing.portion(sizes, door.room, MOST_MESSAGES)]

    def _settle(
        self, session: Session, name: str, ids: Sequence[str], leases: Sequence[Lease], rang: Rang
    ) -> None:
        """Clears what the door confirmed, and writes down what came of the ring."""
        with contextlib.suppress(SessionClosed):
            if rang.outcome != "unknown":
                self._there[name] = rang.outcome != "failed"
                self._show(session)
            if rang.outcome in ("accepted", "written"):
                self._failures.pop(name, None)
                self._resting.pop(name, None)
                try:
                    for lease in leases:
                        session.pass_on(lease, name)
                except PostroomError:  # `begun` stays the last word
                    self._doubted.update(ids)
                    for lease in leases:
                        with contextlib.suppress(PostroomError):
                            session.release(lease)
                    raise
            else:
                self._rest(session, name)
            if rang.outcome == "unknown":
                self._doubted.update(ids)
                self._doubted_notices.update(notice for lease in leases for notice in lease.notices)
            if ids:
                session.rang(ids, name, rang.outcome, rang.detail)
            if rang.outcome not in ("accepted", "written"):
                for lease in leases:
                    session.release(lease)

    def _dropped(self, name: str, msg_ids: Sequence[str], status: str) -> None:
        """A client says that it has these messages no more: they wait again."""
        session = self._here.session
        if session is None or session.closed:
            return
        for msg_id in msg_ids:
            count = ringing.MOST_RINGS if status == "expired" else self._drops.pop(msg_id, 0) + 1
            self._drops[msg_id] = count
            if len(self._drops) > REMEMBERED:
                self._drops.pop(next(iter(self._drops)))
        most = max((self._drops[msg_id] for msg_id in msg_ids), default=1)
        rest = ringing.LONGEST_REST_MS if status == "refused" else ringing.rest_ms(most)
        self._resting[name] = session.now() + rest
        for msg_id in msg_ids:
            session.take_back(msg_id, f"its client says: {status}")


REMEMBERED = 1000
"""Messages of which it is remembered how often the client dropped them (11.10)."""


def stated_by(messages: Sequence[Message]) -> PermissionClass | None:
    """The class that every sender states; None where they differ or state none. What a person let in states none."""
    stated: set[PermissionClass | None] = {
        None if message.approved_by else message.origin.stated_class for message in messages
    }
    return stated.pop() if len(stated) == 1 else None
