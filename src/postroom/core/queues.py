"""What waits inside a process: the main queue with its three priorities, and an agent's pending list.

**The main queue** (06.2): `now` before `next` before `later`, and in each the order of insertion, across threads and
tasks too. A drain at a boundary takes all of `now` and `next`, and `later` only when the loop is idle. A loop goes idle
by `rest`, in one step that hands over what waits if anything does; whoever then appends first is told to wake the loop,
and nobody after that until it drains (06.3). `now` is for the user's own input: what anybody else sends under it goes to
`next`.

**A pending list** (06.4, 06.5): one agent's messages in the order of insertion; a drain takes all of it and clears it, in
one step.

**Progress** (06.11): of one task only the latest waits, in the place of the first, and none behind the end of its run.
An end drops what waits of that run, in every tier; progress that comes, or comes back, behind an end or behind newer
progress is left out.

Not durable: they are lists. Mail of peers is in the store as well, and stands in the main queue as a `Mark` (06.3).

Any thread may append while another drains: each append lands in that drain or in the next one, never in none and never
in both. One lock for all of them keeps that: it is held while a list changes, and a lock for each of ten thousand agents
would be more than their empty lists. The capacity is counted for each tier by itself, so that a flood of `later`
cannot shut out the user.

It is a plain lock. A signal handler may run in the very thread that holds it, between two instructions of a drain: an
append from there would wait for ever, as would one from a finaliser. An asyncio program takes its signals by
`loop.add_signal_handler`; a handler of `signal.signal` hands the append to the loop by `loop.call_soon_threadsafe`. To
ask how many wait takes no lock.

Weak: where progress of one run was drained twice and both come back, the time that it bears tells which is the latest.
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

TIERS: tuple[Priority, ...] = ("now", "next", "later")
"""In the order of reading (06.2)."""

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


def begins_a_run(entry: Entry) -> bool:
    """Whether somebody is resumed for what its last run has not drained: for a message, and for the end of a task of its own.

    How far another's run has come, what an observer saw and what was lost concern a run, and go with it.
    """
    return not progress_of(entry) and entry.origin.kind not in ("observer", "system")


class _Progress(NamedTuple, Generic[Item]):
    """The latest progress of one task.

    Attributes:
        behind: how many items stand before it, other progress not counted.
        task: what it says.
        item: the entry that says it.
    """

    behind: int
    task: TaskNotification
    item: Item


class _Line(Generic[Item]):
    """What waits in one tier, or for one agent, in order. Its methods are called with the lock held.

    Progress is kept beside the rest: it is found, replaced and dropped without a search, and nothing else moves for it.
    A line that holds nothing of tasks pays nothing for that.

    Attributes:
        items: all but progress.
        room: how many of these there may be.
        progress: task → its latest; in the order of their places.
        ends: task → the latest run of which the end is among the items.
    """

    __slots__ = ("_capacity", "ends", "items", "progress", "room")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.items: list[Item] = []
        self.room = capacity
        self.progress: dict[str, _Progress[Item]] | None = None
        self.ends: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self.items) + len(self.progress or ())

    def progress_until(self, task_id: str, run: int) -> _Progress[Item] | None:
        """The progress of a task, if it is of that run or of an earlier one."""
        found = self.progress.get(task_id) if self.progress else None
        return found if found is not None and found.task.run <= run else None

    def outdates(self, task: TaskNotification, *, back: bool = False) -> bool:
        """Whether progress has nothing to tell beside what waits here: the end of its run, or anything of a later run.

        Args:
            task: the progress.
            back: it comes back: progress of its run that was said since is newer too, or that came back and is no older.
        """
        if self.ends and self.ends.get(task.task_id, 0) >= task.run:
            return True
        waits = self.progress.get(task.task_id) if self.progress else None
        if waits is None or waits.task.run < task.run:
            return False
        if waits.task.run > task.run:
            return True
        said_since = isinstance(waits.item, Entry) and not waits.item.redelivered
        return back and (said_since or waits.task.at >= task.at)

    def forget(self, task_id: str, run: int) -> None:
        """Drops the progress of a task, if it is of that run or of an earlier one."""
        if self.progress and self.progress_until(task_id, run):
            del self.progress[task_id]
            self.room += 1

    def add(self, item: Item) -> None:
        """Puts an item at the end, or progress in the place of what waits of the same task; there is room for it."""
        task = item.task if isinstance(item, Entry) else None
        if task is None:
            self.items.append(item)
        elif task.status != "running":
            self.items.append(item)
            ends = self.ends = self.ends or {}
            ends[task.task_id] = max(task.run, ends.get(task.task_id, 0))
        else:
            progress = self.progress = self.progress or {}
            first = progress.get(task.task_id)
            behind = len(self.items) if first is None else first.behind
            progress[task.task_id] = _Progress(behind, task, item)
            self.room = self._capacity - len(progress)

    def waiting(self) -> list[Item]:
        """A list of its own of all that waits."""
        if not self.progress:
            return self.items.copy()
        found: list[Item] = []
        done = 0
        for behind, _, item in self.progress.values():
            found += self.items[done:behind]
            found.append(item)
            done = behind
        return found + self.items[done:]

    def fill(self, waiting: Iterable[Item]) -> None:
        """Lets this wait, and nothing else. In one step, for those who ask without the lock how many wait."""
        new: _Line[Item] = _Line(self._capacity)
        for item in waiting:
            new.add(item)
        self.items, self.progress, self.ends, self.room = new.items, new.progress, new.ends, new.room

    def take_back(self, came: _Line[Item]) -> None:
        """Puts what another line holds before what waits here; no task has progress in both."""
        if self.progress or came.progress or came.ends:
            self.fill(came.waiting() + self.waiting())
        else:
            self.items[:0] = came.items

    def take(self, limit: int | None = None) -> list[Item]:
        """Takes the oldest, at most so many; None: all."""
        if self.progress is None and self.ends is None:
            taken = self.items
            self.items = [] if limit is None else taken[limit:]
        else:
            taken = self.waiting()
            self.fill([] if limit is None else taken[limit:])
        return taken if limit is None else taken[:limit]


def _tell(lines: Iterable[_Line[Item]], line: _Line[Item], item: Item, task: TaskNotification) -> bool:
    """Puts what is told of a run into one of the lines, and drops the progress that it replaces in any (06.11).

    Returns False where there is no room for it; then nothing is dropped. Progress that is outdated is left out.
    """
    running = task.status == "running"
    if running and any(one.outdates(task) for one in lines):
        return True
    if len(line.items) >= line.room and line.progress_until(task.task_id, task.run) is None:
        return False
    for one in lines:
        if one is not line or not running:
            one.forget(task.task_id, task.run)
    line.add(item)
    return True


def _give_back(lines: Sequence[_Line[Item]], items: Iterable[tuple[int, Item]]) -> None:
    """Puts items to the front of lines, marked, in the order in which they come.

    Args:
        lines: of one queue.
        items: each with the number of its line.
    """
    placed = [(at, one._replace(redelivered=True) if isinstance(one, Entry) else one) for at, one in items]
    with _LOCK:
        back: list[_Line[Item]] = [_Line(len(placed)) for _ in lines]
        for at, item in placed:
            task = item.task if isinstance(item, Entry) else None
            if task is None:
                back[at].add(item)
            else:
                _tell(back, back[at], item, task)
        for came in back:
            for task_id, run in (came.ends or {}).items():
                for line in lines:
                    line.forget(task_id, run)
            for _, task, _ in tuple((came.progress or {}).values()):
                outdated = any(line.outdates(task, back=True) for line in lines)
                for line in (came,) if outdated else lines:
                    line.forget(task.task_id, task.run)
        for line, came in zip(lines, back, strict=True):
            line.take_back(came)


class MainQueue(Generic[Item]):
    """What waits for the main loop.

    Args:
        capacity: items that one tier holds at most.
    """

    __slots__ = ("_idle", "_lines", "_woken")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._idle = False
        self._woken = False
        self._lines: dict[Priority, _Line[Item]] = {tier: _Line(capacity) for tier in TIERS}

    def append(self, item: Item) -> Appended:
        """Puts an item at the end of its tier (06.2); progress in the place of what waits of the same task (06.11)."""
        line = self._lines[tier_of(item)]
        task = item.task if isinstance(item, Entry) else None
        with _LOCK:
            if task is not None:
                if not _tell(self._lines.values(), line, item, task):
                    return "full"
                return self._wakes()
            items = line.items
            if len(items) >= line.room:
                return "full"
            items.append(item)
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
        lines = self._lines
        taken = lines["now"].take() + lines["next"].take()
        return taken + lines["later"].take() if later else taken

    def put_back(self, items: Iterable[Item]) -> None:
        """Puts what was drained to the front of its tiers, in the order of `items`; entries are marked (06.3).

        Args:
            items: entries and marks of one drain, or of several. A mark whose mail another reader has taken meanwhile
                is the place of nothing; one that is not given back leaves its mail in the store, without a place.

        Needs no room. Progress is left out where the end of its run waits by now, or newer progress of its task (06.11).
        """
        _give_back([*self._lines.values()], ((TIERS.index(tier_of(item)), item) for item in items))

    def peek(self, *, idle: bool = False) -> list[Item]:
        """Returns what a `drain` would hand over now, and takes nothing."""
        with _LOCK:
            lines = self._lines
            found = lines["now"].waiting() + lines["next"].waiting()
            return found + lines["later"].waiting() if idle else found

    @property
    def idle(self) -> bool:
        """Whether the loop has gone idle, and has not drained since."""
        return self._idle

    def __len__(self) -> int:
        """How many items wait, in all tiers."""
        return sum(map(len, self._lines.values()))


class Pending:
    """What waits for one agent (06.4).

    Args:
        capacity: entries that it holds at most.
    """

    __slots__ = ("_line",)

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._line: _Line[Entry] = _Line(capacity)

    def append(self, entry: Entry) -> Appended:
        """Puts an entry at the end (06.4); progress in the place of what waits of the same task (06.11)."""
        with _LOCK:
            line = self._line
            items = line.items
            if entry.task is None:
                if len(items) < line.room:
                    items.append(entry)
                    return "queued"
                return "full"
            return "queued" if _tell((line,), line, entry, entry.task) else "full"

    def drain(self, limit: int | None = None) -> list[Entry]:
        """Takes everything, and clears it: one step (06.5).

        Args:
            limit: at most so many, the oldest, for a reader that can take no more at once.
        """
        with _LOCK:
            return self._line.take(limit)

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Puts entries that were drained to the front, marked, in their order. Needs no room.

        Progress is left out where the end of its run waits by now, or newer progress of its task (06.11).
        """
        _give_back((self._line,), ((0, entry) for entry in entries))

    def peek(self) -> list[Entry]:
        """Returns what a `drain` would hand over now, and takes nothing."""
        with _LOCK:
            return self._line.waiting()

    def __len__(self) -> int:
        return len(self._line)
