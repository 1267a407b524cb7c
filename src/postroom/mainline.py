"""The main queue of a session that a program drives itself: what waits for its own loop (06.2, 06.3).

Two sources, one order. What comes from inside the process (prompts, agents' messages, task notifications, observers'
reports) stands in the queue itself, and is lost with the process. A peer's mail lies in the session's store and stands in
the queue as a mark: a drain takes it under a lease, and a crash, or a batch that is not confirmed, brings it back, marked.

The host drains at its boundaries and goes idle by `rest` alone; between the two nothing is lost, and nobody is told that
the session is idle while something waits. A loop that has gone idle is handed `later` too when it drains next. Its `wake` is
called in the session's loop, once until it drains.

What the user says begins a turn of its own: what the loop sends then was not caused by what it was told before (03.66).

Weak: mail that another reader takes (a command, a hook) leaves its mark behind until the next drain.
"""

from __future__ import annotations

import asyncio
import inspect
from contextvars import copy_context
from typing import TYPE_CHECKING

from postroom.batch import Batch
from postroom.calling import awaited, named
from postroom.commits import Bell, deadline_in
from postroom.core.contract import unwritable
from postroom.core.message import Lease, Origin
from postroom.core.queues import Entry, MainQueue, Mark
from postroom.errors import BadUsage, SessionClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroom.core.message import Message, Priority
    from postroom.session import Session

__all__ = ["MainLoop"]

NOBODY = Lease("", ())


class MainLoop:
    """The main conversation's loop, as its host drives it.

    Args:
        session: whose.
        wake: the host's; called in the session's loop.
        drained: gets the entries that the host has confirmed, and how many messages there were in all.
        is_over: says of an entry that nobody needs to read it any more.
        prompted: hears the id of each prompt.
    """

    def __init__(
        self,
        session: Session,
        wake: Callable[[], object] | None,
        drained: Callable[[Sequence[Entry], int], None],
        is_over: Callable[[Entry | Mark], bool],
        prompted: Callable[[str], None],
    ) -> None:
        self._session = session
        self._wake = wake
        self._drained = drained
        self._is_over = is_over
        self._prompted = prompted
        self._context = copy_context()
        self._queue: MainQueue[Entry | Mark] = MainQueue()
        self._bell = Bell()
        self._loop = asyncio.get_running_loop()
        self._waking: set[asyncio.Task[object]] = set()
        self._user = Origin(kind="user", identity="user", verified=True, name="user", transport="queue")
        session.began_turn()
        session.waits_inside(self._queue.__len__)

    # ── coming in ────────────────────────────────────────────────────────────────────────────────

    def prompt(self, text: str, *, priority: Priority = "next", is_meta: bool = False) -> str:
        """Queues a prompt of the user (06.2). Any thread may call it.

        Args:
            text: the prompt; it is handed over as it is. Not empty.
            priority: `now`, `next`, or `later`, which waits until the loop is idle.
            is_meta: no slash command and no @-mention in it is to be expanded.

        Returns its id. Raises BadUsage for a priority that there is none of, for what is no text, and where the queue is
        full, and SessionClosed.
        """
        if priority not in ("now", "next", "later"):
            raise BadUsage(f"There is no priority {priority!r}.", "Use now, next or later.")
        session = self._session
        if session.closed:
            raise SessionClosed(
                f"The session {session.name} has ended.", "Open it again with its session id."
            )
        if not isinstance(text, str) or not text:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadUsage("A prompt is a text, and this is none.", "Give the user's words.")
        if problem := unwritable(prompt=text):
            raise BadUsage(f"{problem}.", "Give a text that has a UTF-8 form.")
        entry = Entry(
            session.new_id(), text, self._user, is_meta=is_meta, priority=priority, at=session.now()
        )
        if not self.put(entry):
            raise BadUsage("The main queue is full.", "Drain it first.")
        self._prompted(entry.msg_id)
        return entry.msg_id

    def put(self, entry: Entry | Mark) -> bool:
        """Queues something; False where the queue is full. Any thread may call it."""
        appended = self._queue.append(entry)
        if appended == "full":
            return False
        self._stir(appended == "wake")
        return True

    def nudge(self) -> None:
        """Peers' mail waits that has no mark: it was let in, or given back."""
        if self._session.store.waiting_count or self._session.peek_notices():
            self._stir(self._queue.nudge())

    def _stir(self, wake: bool) -> None:
        """Tells the host, in the session's loop, that something waits."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._heard(wake)
        else:
            self._loop.call_soon_threadsafe(self._heard, wake)

    def _heard(self, wake: bool) -> None:
        self._bell.ring()
        if wake and self._wake is not None:
            try:
                # In the host's own context: what it begins belongs to no agent's run.
                context = self._context.copy()
                given = context.run(self._wake)
                if inspect.isawaitable(given):
                    waking = self._loop.create_task(awaited(given), context=context)
                    self._waking.add(waking)
                    waking.add_done_callback(self._woke)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._not_woken(error)

    def _woke(self, waking: asyncio.Task[object]) -> None:
        self._waking.discard(waking)
        if not waking.cancelled() and (error := waking.exception()) is not None:
            self._not_woken(error)

    def _not_woken(self, error: BaseException) -> None:
        self._session.log(f"the host's wake raised {named(error)}")

    # ── going out ────────────────────────────────────────────────────────────────────────────────

    @property
    def waiting(self) -> int:
        """How many messages wait for the loop: of this process, and peers' mail."""
        inner = sum(type(item) is Entry for item in self._queue.peek(idle=True))
        return inner + self._session.store.waiting_count

    @property
    def idle(self) -> bool:
        """Whether the loop has gone idle by `rest`, and has not drained since."""
        return self._queue.idle

    def drain(self, *, idle: bool = False) -> Batch:
        """Hands over what the loop may read at this boundary (06.2): all of `now` and `next`.

        Args:
            idle: the loop has nothing else to do: `later` is handed over too. It has not, either, where it went idle by
                `rest` and has not drained since.

        Returns a Batch, to be confirmed once the next request contains it. Raises StoreFailed, with nothing taken.
        """
        idle = idle or self._queue.idle
        lease = self._session.take(later=idle) if self._mail() else NOBODY
        return self._batch(self._queue.drain(idle=idle), lease)

    def rest(self, words: str = "") -> Batch:
        """Goes idle, unless something waits: then that is handed over, and the loop goes on (06.3). One step.

        Args:
            words: the last words of the turn, for whoever wanted to know when this session is idle (05.31).
        """
        while True:
            lease = self._session.take() if self._mail() else NOBODY
            items = self._queue.rest()
            if lease and not items:
                items = self._queue.drain(idle=True)  # not idle after all
            if not (items or lease):
                self._session.ended_turn(words)
                return Batch()
            if batch := self._batch(items, lease):
                return batch
            # They were the places of mail that another reader has taken: again, to be idle.

    def _mail(self) -> bool:
        session = self._session
        return bool(session.store.waiting_count or session.peek_notices())

    def _batch(self, items: Sequence[Entry | Mark], lease: Lease) -> Batch:
        session = self._session
        items = [item for item in items if not self._is_over(item)]
        mail = {(one.origin.identity, one.msg_id): one for one in lease.messages}
        placed = {(one.identity, one.msg_id) for one in items if isinstance(one, Mark)}
        loose = [one for key, one in mail.items() if key not in placed]  # left by an earlier life, or let in
        entries: list[Entry | Message] = []
        tier = "now"
        for item in items:
            if tier == "now" and item.priority != "now":
                entries += [one for one in loose if one.priority != "later"]
                loose = [one for one in loose if one.priority == "later"]
                tier = "next"
            if tier == "next" and item.priority == "later":
                entries += loose
                loose, tier = [], "later"
            if isinstance(item, Entry):
                entries.append(item)
            elif (found := mail.get((item.identity, item.msg_id))) is not None:
                entries.append(found)
        entries += loose
        if not (entries or lease.notices):
            return Batch()
        own = [one for one in entries if isinstance(one, Entry)]
        asked = any(one.origin.kind == "user" and not one.is_meta for one in own)
        if asked or session.turn != "busy":
            session.began_turn()
        if asked or any(one.hop_chain for one in own):
            # What agents say was caused by something too; the batch as a whole is in the order of reading.
            chains = [one.hop_chain for one in entries if one.hop_chain or one.origin.kind == "peer"]
            if chains:
                session.took_chains(chains)

        def confirm() -> None:
            if lease:
                session.confirm(lease)
            self._drained(own, len(entries))

        def release() -> None:
            self._queue.put_back([item for item in items if not self._is_over(item)])
            if lease:
                session.release(lease)
            self._heard(self._queue.nudge() if items else False)

        return Batch(entries, lease.notices, ids=session.new_id, confirm=confirm, release=release)

    async def wait(self, timeout: float | None = None) -> bool:
        """Waits until `drain` would hand over something: for a loop that has gone idle by `rest` that is all that waits.

        Args:
            timeout: seconds; None waits for ever.

        Returns False when the time ran out or the session ended.
        """
        deadline = deadline_in(timeout)
        while not self._session.closed:
            if self._due():
                return True
            if not await self._bell.heard(deadline):
                return False
        return False

    def _due(self) -> bool:
        """Whether a `drain` would hand over something now. A mark may be left of mail that another reader has taken."""
        session, idle = self._session, self._queue.idle
        if session.peek_notices() or any(type(item) is Entry for item in self._queue.peek(idle=idle)):
            return True
        if not session.store.waiting_count:
            return False
        with session.reading() as store:
            return idle or any(one.priority != "later" for one in store.waiting())

    def close(self) -> None:
        """The session ends: whoever waits goes on."""
        self._bell.ring()
