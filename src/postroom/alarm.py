"""One timer for everything in a session that has a time: deadlines of holds, gathered receipts, subscriptions.

It sleeps on the event loop's clock and asks the session's clock what is due, so that a test or a simulation may set
that clock forward and call `look` itself. Nothing wakes up while nothing is due (12.21).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_SECONDS = 3600.0
"""Looked at again after so long at the latest: the wall clock may be set forward, or the machine sleep."""


AGAIN_SECONDS = 1.0
"""What is due and could not be done, on a full disk perhaps, is tried again after so long."""


class Alarm:
    """Wakes a session when something is due.

    Args:
        clock: returns epoch milliseconds.
        next_due: when the next thing is due by that clock; None: nothing is.
        ring: does what is due; gets the time.
    """

    def __init__(
        self, clock: Callable[[], int], next_due: Callable[[], int | None], ring: Callable[[int], None]
    ) -> None:
        self._clock = clock
        self._next_due = next_due
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._at: int | None = None

    def set(self) -> None:
        """Sets the timer to what is due next; to be called whenever that may have changed."""
        at = self._next_due()
        if at != self._at:
            self._set(at, 0.0)

    def _set(self, at: int | None, least: float) -> None:
        self.stop()
        if at is not None:
            self._at = at
            seconds = min(max(least, (at - self._clock()) / 1000), LONGEST_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(seconds, self.look)

    def look(self) -> None:
        """Does what is due by the clock, and sets the timer anew."""
        self.stop()
        now = self._clock()
        due = self._next_due()
        if due is not None and due <= now:
            self._ring(now)
            due = self._next_due()
        self._set(due, AGAIN_SECONDS if due is not None and due <= now else 0.0)

    def stop(self) -> None:
        """Wakes nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._at = None
