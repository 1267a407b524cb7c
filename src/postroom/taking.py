"""Taking: how a session's loop gets what waits for it, and says that it has it (11.1).

What is taken is leased. A lease that is confirmed is consumed; one that is released, or whose taker ends, waits
again and is marked. Messages are kept by the store, notices beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.commits import Expected, deadline_in
from postroom.core.message import Lease, Message
from postroom.errors import StoreFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from postroom.commits import Bell, Commits
    from postroom.core import loops
    from postroom.core.message import Notice
    from postroom.hearing import Noticeboard
    from postroom.idling import Activity
    from postroom.sending import Sending
    from postroom.standing import Standing
    from postroom.state.keeping import Store
    from postroom.telling import Telling


class Taking:
    """The part of a session that its loop reads from; see `Session`."""

    if TYPE_CHECKING:
        store: Store
        standing: Standing
        _activity: Activity
        _bell: Bell
        _board: Noticeboard
        _clock: Callable[[], int]
        _closed: bool
        _commits: Commits
        _expected: list[Expected]
        _ids: Callable[[], str]
        _sending: Sending
        _telling: Telling
        _turns: loops.Turns

        def _check_open(self) -> None: ...

        def _rested(self) -> None: ...

    def peek(self) -> list[Message]:
        """What waits, in the order in which it would be handed out; nothing is taken (10.3)."""
        self._check_open()
        with self._commits.using():
            return self.store.waiting()

    def peek_notices(self) -> tuple[Notice, ...]:
        """The notices that wait; nothing is taken."""
        return self._board.peek()

    def take(
        self,
        *,
        later: bool = True,
        limit: int | None = None,
        only: str | None = None,
        notices: bool = True,
        most_notices: int | None = None,
    ) -> Lease:
        """Hands over what waits, under a lease (11.1).

        Args:
            later: also what has priority `later`; a loop that is not idle passes False (06.2).
            limit: at most so many messages.
            only: just the message of this id.
            notices: also what the system says about this session's own messages.
            most_notices: at most so many of those.

        Returns a Lease, false when there was nothing. Raises StoreFailed where the store cannot write:
        nothing is handed over then (05.27).
        """
        self._check_open()
        self._commits.now()  # by itself: were the lease to fail, the arrivals before it must not go with it
        lease = self._ids()
        told = self._board.take(lease, most_notices) if notices else ()
        messages: list[Message] = []
        try:
            if self.store.waiting_count:
                with self._commits.using():
                    messages = self.store.take(lease, self._clock(), later=later, limit=limit, only=only)
        except StoreFailed:
            self._board.release(lease)
            raise
        if messages or told:
            # What a tool of one's own said has no chain, and takes none away.
            chains = [m.hop_chain for m in messages if m.hop_chain or m.origin.kind != "own_child"]
            self._turns.took(chains, self._clock())
            self._activity.took()
        elif only is None:
            self._turns.took_nothing()
            self._activity.took_nothing()
        if not (messages or told):
            self._rested()
            return Lease("", ())
        self._activity.leases.add(lease)
        return Lease(lease, tuple(messages), told)

    def drain(self) -> list[Message]:
        """Takes everything that waits and confirms it at once: for a loop that cannot fail in between.

        A message whose reader dies right after this is not handed out again; `take` and `confirm` are
        for whoever wants that. Notices wait for a `take`.
        """
        lease = self.take(notices=False)
        self.confirm(lease)
        return list(lease.messages)

    def confirm(self, lease: Lease) -> None:
        """Says that the loop's next model request contains these messages: they are consumed (11.1).

        Raises StoreFailed where that cannot be written, and SessionClosed after `close`: the messages are then
        handed out again, marked.
        """
        if not lease.id:
            return
        self._check_open()
        self._commits.now()
        now = self._clock()
        with self._commits.using():
            confirmed = self.store.confirm(lease.id, now) if lease.messages else []
        self._board.confirm(lease.id)
        self._activity.leases.discard(lease.id)
        self._sending.confirmed(confirmed, now)
        if self.standing.settings.read_receipts:
            with self._commits.noting():
                for message in lease.messages:
                    self._telling.owe_read(message)
        self._rested()

    def release(self, lease: Lease) -> None:
        """Gives a lease back: its messages wait again, marked `redelivered` (11.1).

        After `close` there is nothing to do: they wait for the session to come back. Raises StoreFailed.
        """
        if lease.id and not self._closed:
            self._activity.leases.discard(lease.id)
            self._board.release(lease.id)
            self._commits.now()
            with self._commits.using():
                self.store.release(lease.id, self._clock())
            self._bell.ring()

    async def wait(self, timeout: float | None = None) -> bool:
        """Waits until a message or a notice is there.

        Args:
            timeout: seconds; None waits for ever.

        Returns True when something waits; False when the time ran out or the session ended.
        """
        return await self._something_waits(deadline_in(timeout), notices=True)

    async def stirs(self, timeout: float | None = None) -> bool:
        """Waits until what waits here may be other than it was: something came, was given back, a turn ended.

        Args:
            timeout: seconds; None waits for ever.

        Returns False when the time ran out or the session ended. Whoever waits here counts as one that waits for mail.
        """
        if self._closed:
            return False
        self._activity.waiters += 1
        try:
            self._rested()
            return await self._bell.heard(deadline_in(timeout)) and not self._closed
        finally:
            self._activity.waiters -= 1

    async def _something_waits(self, deadline: float | None, *, notices: bool) -> bool:
        while not self._closed:
            if (notices and len(self._board)) or (self.store.waiting_count and not self.store.pending):
                return True
            self._activity.waiters += 1
            try:
                self._rested()
                if not await self._bell.heard(deadline):
                    return False
            finally:
                self._activity.waiters -= 1
        return False

    async def wait_for(
        self, wanted: Callable[[Message], bool], timeout: float | None = None
    ) -> Message | None:
        """Waits until a message that is wanted has been accepted; takes nothing.

        Args:
            wanted: says of a message whether it is the one.
            timeout: seconds; None waits for ever.

        Returns the first such message, also one that another reader takes meanwhile, or None when the time ran
        out or the session ended.
        """
        if self._closed:
            return None
        deadline = deadline_in(timeout)
        expected = Expected(wanted, next(filter(wanted, self.peek()), None))
        self._expected.append(expected)
        try:
            while not self._closed:
                if expected.seen is not None and not self.store.pending:
                    return expected.seen
                if not await self._bell.heard(deadline):
                    return None
        finally:
            self._expected.remove(expected)
        return None

    async def messages(self) -> AsyncIterator[Message]:
        """Yields messages as they come, each consumed once the loop body has ended without an error.

        A body that raises or breaks gives its message back; it is handed out again, marked (11.1). Notices wait for
        a `take`.
        """
        while await self._something_waits(None, notices=False):
            lease = self.take(limit=1, notices=False)
            for message in lease.messages:
                try:
                    yield message
                except BaseException:
                    self.release(lease)
                    raise
            self.confirm(lease)
