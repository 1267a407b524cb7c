"""Drops: how often a sender is told that its messages were dropped, and how much is heard of one sender.

A message that the loop guard dropped is told to its sender, unless an acknowledgement said so. `Drops` gathers those
receipts sender by sender, so that no flood is answered by a flood (03.55): the first goes at once; what follows within
five seconds of a receipt waits until they are over. A receipt has one reason and at most 256 ids; 40 leave in any minute
for one sender, and what finds no place waits on. `Heard` holds the other side to as many (05.24).

It writes no receipt, sends nothing, keeps nothing beyond the process, and looks at no clock: times are epoch
milliseconds and come as arguments.

How it fails: not at all. What a bound leaves no room for is counted in `untold`, and nobody is told of it.

What is weak: a clock that is set back delays what is gathered by as much, and lets a sender be told more than forty
times in a true minute. `Heard` forgets the least recent of more than 1,024 senders, which may then begin anew.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final

MINUTE: Final = 60_000
"""In milliseconds."""

GATHER: Final = 5_000
"""Milliseconds for which drops of one sender are gathered, after the first was told at once (03.55)."""

MAX_A_MINUTE: Final = 40
"""Receipts to one sender, and notices heard of one, in a minute (03.55, 05.24)."""

MAX_SENDERS: Final = 1_024
"""Senders that are remembered for a minute (11.10): four times as many as the loop guard tracks by default."""

MAX_IDS: Final = 256
"""Ids in one receipt (03.55); as many as `core.wire` reads."""

MAX_WAITING: Final = 2 * MAX_A_MINUTE * MAX_IDS
"""Ids that wait to be told, of all senders together (11.10): twice what one may be told in a minute."""


class _Minute:
    """What happened in the last minute, at most `MAX_A_MINUTE` times."""

    __slots__ = ("times",)

    def __init__(self) -> None:
        self.times: deque[int] = deque(maxlen=MAX_A_MINUTE)

    def left(self, now: int) -> int:
        """How often it may still happen. A time that lies ahead is one of a clock that was set back."""
        times = self.times
        while times and not 0 <= now - times[0] < MINUTE:
            times.popleft()
        return MAX_A_MINUTE - len(times)


class _Gathered:
    """One sender, as `Drops` knows it."""

    __slots__ = ("minute", "opened", "waiting")

    def __init__(self, opened: int) -> None:
        self.minute = _Minute()
        self.opened = opened  # when it was told last, from which the gathering counts
        self.waiting: dict[str, str] = {}  # id → reason, in the order in which they were dropped

    def due(self) -> int:
        """When it may be told again."""
        gathered = self.opened + GATHER
        times = self.minute.times
        return gathered if len(times) < MAX_A_MINUTE else max(gathered, times[0] + MINUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One `dropped` receipt to be sent.

    Attributes:
        key: which sender it is for, as `Drops.add` was given it.
        reason: why these were dropped, in the wire's words.
        ids: which messages, in the order in which they were dropped; 1 to `MAX_IDS`.
    """

    key: str
    reason: str
    ids: tuple[str, ...]


class Drops:
    """The receipts for what was dropped, sender by sender: the first at once, what follows every five seconds (03.55).

    A receipt has one reason, so ids of different reasons go in different ones. At most `MAX_A_MINUTE` leave in any
    minute for one sender; what finds no place waits. An id that waits is not taken a second time.

    Attributes:
        untold: ids that were not taken, because a bound was reached, and of which nobody will be told.
    """

    __slots__ = ("_latest", "_senders", "_waiting", "untold")

    def __init__(self) -> None:
        self.untold = 0
        self._senders: dict[str, _Gathered] = {}
        self._waiting = 0
        self._latest = 0

    def add(self, key: str, msg_id: str, reason: str, now: int) -> Batch | None:
        """A message was dropped, and its sender may be told.

        Args:
            key: the sender, as the loop guard keys it (03.57).
            msg_id, reason: the message, and why, in the wire's words.
            now: epoch milliseconds.

        Returns the receipt that is to be sent at once, or None: it is gathered.
        """
        self._latest = now
        one = self._senders.get(key)
        if one is None:
            if len(self._senders) >= MAX_SENDERS:
                self._forget(now)
            if len(self._senders) >= MAX_SENDERS:
                self.untold += 1
                return None
            one = self._senders[key] = _Gathered(now - GATHER)
        if not one.waiting and not one.opened <= now < one.due():
            one.opened = now
            one.minute.times.append(now)
            return Batch(key=key, reason=reason, ids=(msg_id,))
        if msg_id not in one.waiting:
            if self._waiting < MAX_WAITING:
                one.waiting[msg_id] = reason
                self._waiting += 1
            else:
                self.untold += 1
        return None

    def due(self, now: int | None) -> list[Batch]:
        """Takes the receipts that are to be sent now.

        Args:
            now: epoch milliseconds; None: the session ends, and what was gathered is told early.
        """
        early = now is None
        at = self._latest = self._latest if now is None else now
        batches: list[Batch] = []
        for key, one in self._senders.items():
            left = one.minute.left(at)
            if not one.waiting or not left or not (early or at >= one.due()):
                continue
            by_reason: dict[str, list[str]] = {}
            for msg_id, reason in one.waiting.items():
                by_reason.setdefault(reason, []).append(msg_id)
            parts = [
                Batch(key=key, reason=reason, ids=tuple(ids[start : start + MAX_IDS]))
                for reason, ids in by_reason.items()
                for start in range(0, len(ids), MAX_IDS)
            ][:left]
            for batch in parts:
                one.minute.times.append(at)
                for msg_id in batch.ids:
                    del one.waiting[msg_id]
                self._waiting -= len(batch.ids)
            one.opened = at
            batches += parts
        return batches

    def next_due(self) -> int | None:
        """When `due` has something next, in epoch milliseconds; None: nothing is gathered."""
        return min((one.due() for one in self._senders.values() if one.waiting), default=None)

    def _forget(self, now: int) -> None:
        """Forgets the senders that were told nothing for a minute and wait for nothing."""
        quiet = [
            key
            for key, one in self._senders.items()
            if not one.waiting and one.minute.left(now) == MAX_A_MINUTE
        ]
        for key in quiet:
            del self._senders[key]


class Heard:
    """Bounds what is heard of one sender: 40 notices in any minute; more are to be counted and dropped (05.24).

    The least recently heard of more than `MAX_SENDERS` is forgotten, and may begin anew (11.10).
    """

    __slots__ = ("_senders",)

    def __init__(self) -> None:
        self._senders: OrderedDict[str, _Minute] = OrderedDict()

    def hear(self, key: str, now: int) -> bool:
        """Whether a notice of this sender, an identity, is still heard now, in epoch milliseconds; if so, it counts."""
        minute = self._senders.setdefault(key, _Minute())
        self._senders.move_to_end(key)
        if len(self._senders) > MAX_SENDERS:
            self._senders.popitem(last=False)
        if not minute.left(now):
            return False
        minute.times.append(now)
        return True
