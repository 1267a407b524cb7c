"""The main queue: what waits for a loop inside this process, in the order in which it is to be read.

Three tiers, `now` before `next` before `later`, and in each the order of insertion, across threads and tasks
too (06.2). A drain at a boundary takes all of `now` and `next`, and `later` only when the loop is idle. `now`
is for the host's own input, from the user: what anybody else sends under it goes to `next`.

Not durable: it is a list. Mail of peers is in the store as well, and the queue is filled again from there
(06.3).

Threads may append while another drains: each append lands in that drain or in the next one, never in none
and never in both. Two drains at once are one too many: a queue has one loop. The capacity is counted for
each tier by itself, so that a flood of `later` cannot shut out the user; threads that append in the same
instant may pass it by one each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from postroom.core.message import Origin, Priority

CAPACITY = 10_000
"""Items of one tier: twice the highest `maxUnread` that a setting can ask for (03.64), so the inbox refuses first."""


class Queued(Protocol):
    """What the queue asks of an item; a `Message` is one."""

    @property
    def origin(self) -> Origin:
        """Who it comes from."""
        ...

    @property
    def priority(self) -> Priority:
        """`now`, `next` or `later`."""
        ...


Item = TypeVar("Item", bound=Queued)


def tier_of(item: Queued) -> Priority:
    """The tier in which an item waits: its own, but `now` is the user's alone (06.2, 05.21)."""
    priority = item.priority
    return "next" if priority == "now" and item.origin.kind != "user" else priority


class MainQueue(Generic[Item]):
    """What waits for one loop.

    Args:
        capacity: items that one tier holds at most.
    """

    __slots__ = ("_capacity", "_later", "_next", "_now")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._now: list[Item] = []
        self._next: list[Item] = []
        self._later: list[Item] = []

    def append(self, item: Item) -> bool:
        """Puts an item at the end of its tier (06.2).

        Returns False, and leaves the queue as it was, where that tier is full.
        """
        tier = self._next
        if item.priority != "next":
            tier = {"now": self._now, "next": self._next, "later": self._later}[tier_of(item)]
        if len(tier) >= self._capacity:
            return False
        tier.append(item)
        return True

    def drain(self, *, idle: bool = False) -> list[Item]:
        """Takes everything that a loop may read at this boundary (06.2).

        Args:
            idle: whether the loop has nothing else to do; only then is `later` handed over.

        Returns the items in reading order; empty when nothing waits.
        """
        taken = _emptied(self._next) if self._next else []
        if self._now:
            taken = _emptied(self._now) + taken
        if idle and self._later:
            taken += _emptied(self._later)
        return taken

    def peek(self, *, idle: bool = False) -> list[Item]:
        """Returns what a `drain` would hand over now, and takes nothing."""
        return self._now + self._next + (self._later if idle else [])

    def __len__(self) -> int:
        """How many items wait, in all tiers."""
        return len(self._now) + len(self._next) + len(self._later)


def _emptied(tier: list[Item]) -> list[Item]:
    """Takes what a tier holds. Two steps, each whole by itself: an item that another thread appends between
    them stands behind those that were copied and stays for the next drain; a swap could lose it."""
    taken = tier[:]
    del tier[: len(taken)]
    return taken
