"""What waits inside a process: the main queue with its three priorities, and an agent's pending list.

**The main queue** (06.2): `now` before `next` before `later`, and in each the order of insertion, across threads and
tasks too. A drain at a boundary takes all of `now` and `next`, and `later` only when the loop is idle. A loop goes idle
by `rest`, in one step that hands over what waits if anything does; whoever then appends first is told to wake the loop,
and nobody after that until it drains (06.3). `now` is for the user's own input: what anybody else sends under it goes to
`next`. Of one task's progress only the latest waits, in the place of the first (06.11).

**A pending list** (06.4, 06.5): one agent's messages in the order of insertion; a drain takes all of it and clears it, in
one step.

Not durable: they are lists. Mail of peers is in the store as well, and stands in the main queue as a `Mark` (06.3).

Any thread may append while another drains: each append lands in that drain or in the next one, never in none and never
in both. One lock for all of them keeps that: it is held for a few instructions, and a lock for each of ten thousand agents
would be more than their empty lists. The capacity is counted for each tier by itself, so that a flood of `later`
cannot shut out the user.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from postroom.core.message import Origin, Priority, TaskNotification

CAPACITY = 10_000
"""Items of one tier, or of one agent: twice the highest `maxUnread` that a setting can ask for (03.64)."""

Appended = Literal["queued", "wake", "full"]
"""What an append came to: it waits; it waits and the loop is to be woken; there was no room for it."""


class Entry(NamedTuple):
    """One message inside a process. A tuple, because one is made for each send and it is made fast.

    Attributes:
        msg_id: its id.
        text: exactly as it was given; scrubbed only when it is shown to a model (04.7).
        origin: who it comes from.
        is_meta: no slash command and no @-mention in it is expanded (06.2).
        priority: `now`, `next` or `later`.
        at: when it was queued, epoch milliseconds.
        summary: a preview for people.
        in_reply_to: the id of the message that this one answers.
        hop_chain: as in `Message`.
        task: for a task notification: what it says.
        severity: of an observer's report.
        redelivered: it was handed out before and came back.
    """

    msg_id: str
    text: str
    origin: Origin
    is_meta: bool = True
    priority: Priority = "next"
    at: int = 0
    summary: str | None = None
    in_reply_to: str | None = None
    hop_chain: tuple[str, ...] = ()
    task: TaskNotification | None = None
    severity: str | None = None
    redelivered: bool = False

    def __repr__(self) -> str:
        return f"<Entry {self.msg_id} from {self.origin.known_as}: {len(self.text)} characters>"


class Mark(NamedTuple):
    """The place of a peer's message that lies in the store.

    Attributes:
        identity, msg_id: of whom, and which.
        priority: `next` or `later`.
    """

    identity: str
    msg_id: str
    priority: Priority = "next"


Item = TypeVar("Item", bound="Entry | Mark")

_LOCK = Lock()


def tier_of(item: Entry | Mark) -> Priority:
    """The tier in which an item waits: its own, but `now` is the user's alone (06.2, 05.21)."""
    priority = item.priority
    if priority == "now" and (isinstance(item, Mark) or item.origin.kind != "user"):
        return "next"
    return priority


def progress_of(item: Entry | Mark) -> str:
    """The task of whose progress an item tells; empty where it tells of none (06.11)."""
    task = item.task if isinstance(item, Entry) else None
    return task.task_id if task is not None and task.status == "running" else ""


def _place_of(items: Sequence[Entry | Mark], task_id: str) -> int | None:
    """Where the progress of a task waits already."""
    return next((at for at, item in enumerate(items) if progress_of(item) == task_id), None)


class MainQueue(Generic[Item]):
    """What waits for the main loop.

    Args:
        capacity: items that one tier holds at most.
    """

    __slots__ = ("_capacity", "_idle", "_tiers", "_woken")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._idle = False
        self._woken = False
        self._tiers: dict[Priority, list[Item]] = {"now": [], "next": [], "later": []}

    def append(self, item: Item) -> Appended:
        """Puts an item at the end of its tier (06.2); progress in the place of what waits of the same task."""
        with _LOCK:
            tier = self._tiers[tier_of(item)]  # not before: a drain puts new lists in the place of these
            if (key := progress_of(item)) and (at := _place_of(tier, key)) is not None:
                tier[at] = item
                return "queued"
            if len(tier) >= self._capacity:
                return "full"
            tier.append(item)
            return self._wakes()

    def nudge(self) -> bool:
        """Something waits elsewhere for this loop; whether it is to be woken for that (06.3)."""
        with _LOCK:
            return self._wakes() == "wake"

    def _wakes(self) -> Appended:
        if self._idle and not self._woken:
            self._woken = True
            return "wake"
        return "queued"

    def drain(self, *, idle: bool = False) -> list[Item]:
        """Takes everything that a loop may read at this boundary, and the loop is not idle from now on (06.2).

        Args:
            idle: whether the loop has nothing else to do; only then is `later` handed over.

        Returns the items in reading order; empty when nothing waits.
        """
        with _LOCK:
            self._idle = self._woken = False
            return self._taken(later=idle)

    def rest(self) -> list[Item]:
        """Takes everything that waits; where nothing does, the loop is idle from now on, in the same step (06.3)."""
        with _LOCK:
            taken = self._taken(later=True)
            self._idle, self._woken = not taken, False
            return taken

    def _taken(self, *, later: bool) -> list[Item]:
        tiers = self._tiers
        taken = tiers["now"] + tiers["next"]
        tiers["now"], tiers["next"] = [], []
        if later:
            taken += tiers["later"]
            tiers["later"] = []
        return taken

    def put_back(self, items: Iterable[Item]) -> None:
        """Puts entries that were drained to the front of their tiers, marked; a mark's message waits by itself."""
        with _LOCK:
            for item in reversed(list(items)):
                if isinstance(item, Entry):
                    self._tiers[tier_of(item)].insert(0, item._replace(redelivered=True))

    def peek(self, *, idle: bool = False) -> list[Item]:
        """Returns what a `drain` would hand over now, and takes nothing."""
        with _LOCK:
            tiers = self._tiers
            return tiers["now"] + tiers["next"] + (tiers["later"] if idle else [])

    @property
    def idle(self) -> bool:
        """Whether the loop has gone idle, and has not drained since."""
        return self._idle

    def __len__(self) -> int:
        """How many items wait, in all tiers."""
        return sum(map(len, self._tiers.values()))


class Pending:
    """What waits for one agent (06.4).

    Args:
        capacity: entries that it holds at most.
    """

    __slots__ = ("_capacity", "_items")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._items: list[Entry] = []

    def append(self, entry: Entry) -> Appended:
        """Puts an entry at the end (06.4); progress in the place of what waits of the same task (06.11)."""
        with _LOCK:
            items = self._items
            if entry.task is not None and (key := progress_of(entry)):
                at = _place_of(items, key)
                if at is not None:
                    items[at] = entry
                    return "queued"
            if len(items) >= self._capacity:
                return "full"
            items.append(entry)
            return "queued"

    def drain(self, limit: int | None = None) -> list[Entry]:
        """Takes everything, and clears it: one step (06.5).

        Args:
            limit: at most so many, the oldest, for a reader that can take no more at once.
        """
        with _LOCK:
            taken, self._items = self._items, [] if limit is None else self._items[limit:]
            return taken if limit is None else taken[:limit]

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Puts entries that were drained to the front, marked."""
        with _LOCK:
            self._items[:0] = [entry._replace(redelivered=True) for entry in entries]

    def peek(self) -> list[Entry]:
        """Returns what a `drain` would hand over now, and takes nothing."""
        with _LOCK:
            return list(self._items)

    def __len__(self) -> int:
        return len(self._items)
