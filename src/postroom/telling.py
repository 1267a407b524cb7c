"""What senders are told of their messages: kept until it is told, and told only to the process that sent them.

A notice is owed from the same commit on that brought its cause, so neither a crash nor a restart forgets it (chapter
03, Holds). Once it is committed it goes to the address that the message gave, on a connection of its own, and only if
the process behind that address is the one that sent the message, by pid and start (05.24). Whoever cannot be told is
not told, and the journal says why; nobody answers a notice, and no notice is about a notice.

What the loop guard dropped is told without being kept: at once for the first, then gathered (03.55).

No sender is told faster than it hears: what it would have to drop (05.24) stays owed until the minute has passed.

Weak: a sender that was restarted meanwhile is another process, and is told nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from postroom.core import notices
from postroom.core.address import uds_path
from postroom.core.drops import MAX_SENDERS, MINUTE
from postroom.core.wire import MEMORY, readdressed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from postroom.commits import Commits
    from postroom.core.message import Message, Origin
    from postroom.core.notices import Batch
    from postroom.directory import Directory
    from postroom.state.keeping import Owed, Store
    from postroom.transport import Outcome, Transport

TRIES = 3
"""How often a notice is tried whose sender did not take it in time; after that nobody waits for it any more."""

TOLD_A_MINUTE = 36
"""Notices to one address in a minute. A session hears forty of another, and what it drops is not told again (05.24)."""

AGAIN_MS = 5_000
"""How soon it is looked whether the minute has passed."""

TELLING_SECONDS = 3.0
"""How long the end of a session waits for its last notices to leave (facts C3)."""

MET = 256
"""Sessions that wrote to this one and hear that it is renamed; the least recent goes first (11.10)."""

MISADDRESSED = "misaddressed"
"""Gathered like what was dropped; one alone is told in a status of its own (03.7)."""

ELSEWHERE = "This is another session than the one that it was for."

FOR_GOOD = frozenset({"peer_unavailable", "unsafe_target"})
"""Outcomes after which nobody will ever take it: the process has gone, or another one is there."""


def parts_of(reply_path: str) -> tuple[str, int, str] | None:
    """A reply path as (address, pid, start); None where there is none (05.24)."""
    process, _, address = reply_path.partition(" ")
    pid, _, start = process.partition(":")
    return (address, int(pid), start) if address and pid.isdigit() and start else None


class Telling:
    """The notices of one session to those who sent it messages.

    Args:
        store: keeps what is owed.
        commits: is told where the store fails.
        transport: carries them.
        directory: knows which addresses are those of sessions of ours.
        clock: returns epoch milliseconds.
        ids: returns a new id each time.
    """

    def __init__(
        self,
        store: Store,
        commits: Commits,
        transport: Transport,
        directory: Directory,
        clock: Callable[[], int],
        ids: Callable[[], str],
    ) -> None:
        self.address: str | None = None
        self._store = store
        self._commits = commits
        self._transport = transport
        self._directory = directory
        self._clock = clock
        self._ids = ids
        self._drops = notices.Drops()
        self._paths: dict[str, str] = {}
        self._met: OrderedDict[str, str] = OrderedDict()
        self._dirty = True
        self._tries: dict[int, int] = {}
        self._flying: set[int] = set()
        self._minutes: OrderedDict[str, deque[int]] = OrderedDict()
        self._again: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._queues: dict[str, deque[Owed]] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._closed = False

    def owe(
        self, about: str, reply_path: str, status: str, *, reason: str, detail: str = "", note: str = ""
    ) -> bool:
        """Owes the sender of a message one notice; joins the open group. Raises StoreFailed.

        Args:
            about: the id of its message.
            reply_path: as its origin bears it; without one nobody is told, and False is returned.
            status: what happened, in the words of 05.24.
            reason: the same in words.
            detail: why it ended, where the status alone does not say.
            note: what a person added; it is passed on as that person's words.
        """
        if parts_of(reply_path) is None:
            return False
        line = notices.status_line(
            status,
            orig_msg_id=about,
            address=self.address,
            msg_id=self._ids(),
            reason=reason,
            detail=detail,
            note=note,
        )
        self.owe_line(about, reply_path, line)
        return True

    def owe_line(self, about: str, reply_path: str, line: bytes) -> None:
        """Owes a line that is made already; joins the open group. Raises StoreFailed."""
        parts = parts_of(reply_path)
        if parts is not None:
            address, pid, start = parts
            self._store.owe(about, address, f"{pid}:{start}", line, self._clock())
            self._dirty = True

    def superseded(self, about: str) -> None:
        """What is still owed about a message is out of date: more is known of it now. Raises StoreFailed.

        It keeps a sender from hearing that something is held which has ended, and keeps room in its minute for that.
        """
        if not self._queues and self._again is None:
            return  # nothing is late
        late = {one.row for queue in self._queues.values() for one in queue if one.about == about}
        if self._again is not None:
            late |= {
                one.row for one in self._store.owed() if one.about == about and one.row not in self._flying
            }
        if late:
            self._store.paid(sorted(late))
            for queue in self._queues.values():
                kept = [one for one in queue if one.row not in late]
                queue.clear()
                queue.extend(kept)
            self._flying -= late

    def owe_read(self, message: Message) -> None:
        """Owes a read receipt, to a session of ours alone (05.24); joins the open group. Raises StoreFailed."""
        origin = message.origin
        if origin.address is not None and self._directory.acknowledges(origin.address):
            self.owe(message.msg_id, origin.reply_path, "read", reason=notices.READ_WORDS)

    def met(self, origin: Origin) -> None:
        """A session has written to this one."""
        if origin.address is not None:
            self._met[origin.identity] = origin.reply_path
            self._met.move_to_end(origin.identity)
            if len(self._met) > MET:
                self._met.popitem(last=False)

    def renamed(self, name: str, former: str) -> None:
        """Tells those that wrote lately what this session is called now; nobody waits for it (05.24)."""
        line = notices.renamed_line(name=name, former=former, address=self.address, msg_id=self._ids())
        for path in self._met.values():
            parts = parts_of(path)
            if parts is not None and not self._closed and self._directory.acknowledges(parts[0]):
                self._start(self._send(parts[0], line, parts[1], parts[2]))

    def dropped(self, key: str, reply_path: str, msg_id: str, reason: str) -> None:
        """Tells a sender whose frame asked for no acknowledgement that it was dropped: now, or gathered (03.55)."""
        if parts_of(reply_path) is None:
            return
        self._paths[key] = reply_path
        batch = self._drops.add(key, msg_id, reason, self._clock())
        if batch is not None:
            self._post(batch)
            if self._drops.next_due() is None:
                self._paths.clear()

    def next_due(self) -> int | None:
        """When `tick` has something to do; None: never."""
        times = (self._drops.next_due(), self._again)
        return min((at for at in times if at is not None), default=None)

    def tick(self, now: int) -> None:
        """Sends the gathered receipts whose time has come, and what had to wait for the next minute."""
        for batch in self._drops.due(now):
            self._post(batch)
        if self._drops.next_due() is None:
            self._paths.clear()
        if self._again is not None and self._again <= now:
            self._go_on()

    def _pause(self) -> None:
        self._again = self._clock() + AGAIN_MS
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(AGAIN_MS / 1000, self._go_on)

    def _go_on(self) -> None:
        self._again = None
        self._dirty = True
        self.deliver()

    def _post(self, batch: Batch) -> None:
        parts = parts_of(self._paths.get(batch.key, ""))
        if parts is None or self._closed:
            return
        address, pid, start = parts
        alone = batch.reason == MISADDRESSED and len(batch.ids) == 1
        line = notices.status_line(
            MISADDRESSED if alone else "dropped",
            orig_msg_id=batch.ids[0],
            address=self.address,
            msg_id=self._ids(),
            reason=ELSEWHERE if batch.reason == MISADDRESSED else notices.dropped_words(batch.reason),
            drop_reason="" if alone else batch.reason,
            dropped=() if alone else batch.ids,
        )
        self._start(self._send(address, line, pid, start))

    # ── on their way ─────────────────────────────────────────────────────────────────────────────

    def deliver(self) -> None:
        """Sends what is owed and committed; to be called after each commit."""
        if not self._dirty or self._store.pending or self._closed:
            return
        with self._commits.noting():
            owed = self._store.owed()
            self._dirty = False
            for one in owed:
                if one.row not in self._flying:
                    self._flying.add(one.row)
                    queue = self._queues.get(one.address)
                    if queue is None:
                        queue = self._queue_for(one.address)
                    queue.append(one)

    def _queue_for(self, address: str) -> deque[Owed]:
        """Begins to carry what is owed to one address."""
        queue: deque[Owed] = deque()
        self._queues[address] = queue
        self._start(self._carry(address, queue))
        return queue

    def _start(self, work: Coroutine[None, None, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, address: str, queue: deque[Owed]) -> None:
        """Tells one sender everything that is owed to it, in order."""
        try:
            while queue:
                if not self._hears(address):
                    self._pause()
                    break
                one = queue.popleft()
                pid, _, start = one.process.partition(":")
                # It may have been written before a restart, at another socket: from there nobody believes it.
                line = readdressed(one.line, self.address)
                outcome = await self._send(address, line, int(pid), start)
                self._told(one, outcome)
        finally:
            self._queues.pop(address, None)
            self._flying.difference_update(one.row for one in queue)

    def _hears(self, address: str) -> bool:
        """Whether who is there hears one more notice in this minute."""
        times, now = self._minutes.get(address), self._clock()
        while times and not 0 <= now - times[0] < MINUTE:
            times.popleft()
        return times is None or len(times) < TOLD_A_MINUTE

    async def _send(self, address: str, line: bytes, pid: int, start: str) -> Outcome:
        self._minutes.setdefault(address, deque(maxlen=TOLD_A_MINUTE)).append(self._clock())
        self._minutes.move_to_end(address)
        if len(self._minutes) > MAX_SENDERS:
            self._minutes.popitem(last=False)
        # One of ours needs no moment to look at this process; a neighbour does (facts B3).
        ours = address.startswith(MEMORY) or (
            uds_path(address) is not None and self._directory.verify(address, pid, start) is not None
        )
        return await self._transport.send(address, line, msg_id=None, acknowledged=ours, pid=pid, start=start)

    def _told(self, one: Owed, outcome: Outcome) -> None:
        self._flying.discard(one.row)
        if self._closed:
            return
        self._tries[one.row] = self._tries.get(one.row, 0) + 1
        lasting = outcome.status == "failed" and outcome.code in FOR_GOOD
        if outcome.status != "written" and not lasting and self._tries[one.row] < TRIES:
            self._dirty = True
            asyncio.get_running_loop().call_later(TELLING_SECONDS, self.deliver)
            return
        del self._tries[one.row]
        with self._commits.noting():
            self._store.paid([one.row])
            if outcome.status != "written":
                self._store.note(
                    one.about, "not-told", self._clock(), f"its sender was not told: {outcome.detail}"
                )

    def lost(self) -> None:
        """The open group of the store is gone: what is owed is read again."""
        self._dirty = True

    async def close(self) -> None:
        """Sends what is left, within a bound; what does not leave stays owed for a resume."""
        for batch in self._drops.due(None):
            self._post(batch)
        self.deliver()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=TELLING_SECONDS)
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
