"""The open group of a session's store: committed once a step of the event loop, acknowledged after it (05.27).

What arrives joins the store's open group. The first arrival of a step schedules the commit for the next step;
what arrives meanwhile shares its sync; a single message waits for nobody. An acknowledgement is owed until
the commit, and never leaves before it.

`StoreFailed` means that the store has forgotten everything since the last commit, whoever met it, a mere reader
too. So every use of the store goes through here or tells it (`lost`): then whoever waits for the group hears
`store_failed`, and nobody is told that a forgotten message is kept.

It decides nothing, knows no message, and belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from postroom.core import wire
from postroom.errors import StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from postroom.core.message import Message
    from postroom.state.keeping import Store
    from postroom.transport import Channel


TIDY_SECONDS = 60.0
"""How long after a write retention runs: no busy moment then, and one commit for many messages (05.27)."""


TIDY_TURNED_AWAY = 400
"""Messages turned away after which retention does not wait: their three rows each in the journal are fewer than it
removes at once, so that a flood does not outgrow it (11.10)."""


class Bell:
    """Wakes whoever waits for a change: a commit, a notice, the end."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()
        self.rang: Callable[[], None] | None = None
        """Called at each ring too."""

    def ring(self) -> None:
        """Wakes everybody who waits at this moment."""
        if self.rang is not None:
            self.rang()
        if self._waiters:
            waiters, self._waiters = self._waiters, set()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def heard(self, deadline: float | None) -> bool:
        """Waits for the next ring; False when the deadline, on the event loop's clock, came first."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            if deadline is None:
                await waiter
                return True
            # Not `wait_for`, which swallows a cancellation that comes with the ring, up to Python 3.11.
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True


class Expected:
    """Somebody waits for one message: the first that is wanted, whoever takes it.

    Attributes:
        seen: that message, once it was accepted; it counts when it has been committed.
    """

    def __init__(self, wanted: Callable[[Message], bool], seen: Message | None = None) -> None:
        self._wanted = wanted
        self.seen = seen

    def see(self, message: Message) -> None:
        """A message was accepted."""
        if self.seen is None and self._wanted(message):
            self.seen = message


FOR_EVER = 10.0**9
"""Seconds after which nobody waits any more: thirty years. What is longer is for ever, and no clock's overflow."""


def deadline_in(seconds: float | None) -> float | None:
    """The time on the event loop's clock in so many seconds; None for never. ValueError for what is no number."""
    if seconds is None or seconds >= FOR_EVER:
        return None
    if seconds != seconds:
        raise ValueError("a time to wait is a number of seconds")
    return asyncio.get_running_loop().time() + seconds


class Commits:
    """When the open group is committed, and who is told.

    Args:
        store: whose group.
        bell: rung after each commit.
        clock: returns epoch milliseconds.
        forgotten: called when a group was lost, after everybody in it was told.
        kept: called after each commit, when everybody in it was told.
        removed: gets the unread messages that retention has removed (03.46); joins the open group.
    """

    def __init__(
        self,
        store: Store,
        bell: Bell,
        clock: Callable[[], int],
        forgotten: Callable[[], None],
        kept: Callable[[], None],
        removed: Callable[[list[Message]], None],
    ) -> None:
        self._store = store
        self._bell = bell
        self._clock = clock
        self._forgotten = forgotten
        self._kept = kept
        self._removed = removed
        self._tidying: asyncio.TimerHandle | None = None
        self._turned_away = 0
        self._owed: list[tuple[Channel | None, str, str, str]] = []
        self._scheduled = False

    def owe(self, channel: Channel | None, msg_id: str, status: str, reason: str) -> None:
        """Owes an acknowledgement until the open group is committed; a channel of None asked for none."""
        self._owed.append((channel, msg_id, status, reason))

    def soon(self) -> None:
        """Sees to it that the open group is committed in the next step of the event loop."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._due)

    def _due(self) -> None:
        self._scheduled = False
        self.now()

    def now(self) -> None:
        """Commits what is open, then acknowledges it; a failure acknowledges nothing. Never raises."""
        try:
            self._store.commit()
        except StoreFailed:
            self.lost()
            return
        self._acknowledge()
        self._kept()
        self._bell.ring()

    def lost(self) -> None:
        """After StoreFailed the whole open group is gone: whoever waits for it hears `store_failed` (05.27)."""
        self._owed = [(channel, msg_id, "store_failed", "") for channel, msg_id, _, _ in self._owed]
        self._acknowledge()
        self._forgotten()

    def _acknowledge(self) -> None:
        """Answers everybody to whom something is owed, one flush a channel."""
        owed, self._owed = self._owed, []
        channels: dict[int, Channel] = {}
        for channel, msg_id, status, reason in owed:
            if channel is not None:
                channel.answer(wire.encode_ack(msg_id, status, reason))
                channels[id(channel)] = channel
        for channel in channels.values():
            channel.flush()

    def tidy_later(self) -> None:
        """Retention runs a while after something was written, and never while nothing is (05.27, 12.21)."""
        if self._tidying is None:
            self._tidying = asyncio.get_running_loop().call_later(TIDY_SECONDS, self._tidy)

    def turned_away(self) -> None:
        """A message was not kept, and the journal says so: nothing bounds how many come, so after some it is tidied."""
        self._turned_away += 1
        if self._turned_away == TIDY_TURNED_AWAY and self._tidying is not None:
            self._tidying.cancel()
            self._tidying = asyncio.get_running_loop().call_later(0, self._tidy)

    def _tidy(self) -> None:
        """Removes what is too old or too much to be kept, a bounded piece of it (05.27, 11.10)."""
        self._tidying = None
        pieces, self._turned_away = 1 + self._turned_away // TIDY_TURNED_AWAY, 0
        self.now()
        with self.noting():
            for _ in range(pieces):
                self._removed(self._store.prune(self._clock()))

    def stop(self) -> None:
        """Tidies no more: the session ends."""
        if self._tidying is not None:
            self._tidying.cancel()

    @contextlib.contextmanager
    def using(self) -> Generator[None]:
        """Around a use of the store whose failure is the caller's to hear: the group's waiters hear it too."""
        try:
            yield
        except StoreFailed:
            self.lost()
            raise

    @contextlib.contextmanager
    def at_once(self) -> Generator[None]:
        """Around writes that are committed with nothing else, before their caller is answered. Raises StoreFailed."""
        self.now()
        with self.using():
            yield
            self._store.commit()
        self._kept()

    @contextlib.contextmanager
    def noting(self) -> Generator[None]:
        """Around writes that must not stop what they are about: a failure costs them and nothing else."""
        try:
            yield
        except StoreFailed:
            self.lost()
        else:
            if self._store.pending:
                self.soon()
