"""Attending: what the program around an agent reports of its turns, and what became of its doors (chapter 09).

A client says when a turn begins and ends, which permission mode it is in, what it calls its session. A door is how
something reaches its model without being asked for; each ring of one is journaled beside the state of the message and
never in place of it (09.16). Some doors cannot say that the model has read anything: what they took is *passed* on, and
counts as consumed only once the client's turn is seen to hold it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from postroom.commits import deadline_in
from postroom.core.address import check_name
from postroom.errors import InvalidName, StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from postroom.commits import Bell, Commits
    from postroom.core import loops
    from postroom.core.message import Lease, State
    from postroom.directory import Directory
    from postroom.hearing import Noticeboard
    from postroom.idling import Activity
    from postroom.state.keeping import Store
    from postroom.state.record import Kind, Record
    from postroom.state.record import Status as Doing
    from postroom.telling import Telling

SHOWN_SECONDS = 1.0
"""Between two publications of what a session does: a listing need not know sooner, and each costs a sync (12.21)."""


class Attendant(Protocol):
    """What looks after a session for its client: its presence."""

    def learned(self, conversation: str, cwd: str = "", title: str = "") -> None:
        """A hook or a call says which conversation this is, where it works and what the client calls it (09.9)."""
        ...


class Attending:
    """The part of a session that its client and its doors speak to; see `Session`.

    Attributes:
        reports: how often the client said something after which its doors may be others.
        hooked: a hook of the client has come, to this process or to the one from which the session was taken over.
    """

    reports = 0
    hooked = False

    if TYPE_CHECKING:
        record: Record
        directory: Directory
        store: Store
        _activity: Activity
        _bell: Bell
        _board: Noticeboard
        _clock: Callable[[], int]
        _closed: bool
        _commits: Commits
        _telling: Telling
        _turns: loops.Turns
        _showing: asyncio.TimerHandle | None
        write_log: Callable[[str], None] | None
        attendant: Attendant | None

        def _check_open(self) -> None: ...

        def _rested(self) -> None: ...

        def _call(self, wished: str, source: str) -> str: ...

    # ── turns ────────────────────────────────────────────────────────────────────────────────────

    @property
    def turn(self) -> str:
        """`busy` or `idle` as the client reported it; `unknown` where no client reports turns."""
        return self._activity.turn

    @property
    def waiters(self) -> int:
        """How many readers wait for something to come, right now."""
        return self._activity.waiters

    def log(self, line: str) -> None:
        """Writes a line into this session's log, for the person who asks why something did not arrive (05.4).

        Args:
            line: never the text of a message, never a token.
        """
        if self.write_log is not None:
            self.write_log(line)

    def waits_inside(self, waiting: Callable[[], int]) -> None:
        """Has what waits here count too: while it is more than none, nobody is told that this session is idle (06.3)."""
        self._activity.inside = waiting

    def began_turn(self) -> None:
        """The client reports that a turn has begun; what was taken just before belongs to it (03.66)."""
        self._turns.began(self._clock())
        self._activity.began()
        self.doing("busy")

    def ended_turn(self, words: str = "") -> None:
        """The client reports that the turn has ended.

        Args:
            words: its last words, for whoever wanted to know when this session is idle (05.31).
        """
        self._turns.ended()
        self._activity.ended(words)
        self.doing("idle")
        self._rested()
        self.reported()  # a door that wakes may be the right one now
        self.turn_over(words)

    def turn_over(self, words: str) -> None:
        """A turn has ended, with these last words: whoever takes part in something with this session hears it."""

    def reported(self) -> None:
        """The client said something after which its doors may be others: whoever rings them looks again."""
        self.reports += 1
        self._bell.ring()

    def doing(self, status: Doing) -> None:
        """Shows others what this session does; published at most once a second (05.29)."""
        if status == self.record.status:
            return
        self.record = self.record.doing(status, self._clock())
        self._show_soon()

    def reached(self, confirms: str, wakes: bool) -> None:
        """Shows others what is known of a message that comes here, by the doors that are there now (09.16).

        Args:
            confirms: as in the record: what can be confirmed of it.
            wakes: it reaches an idle session.
        """
        if (confirms, wakes) != (self.record.confirms, self.record.wakes):
            self.record = self.record.reached(confirms, wakes, self._clock())
            self._show_soon()

    def sat_before(self, kind: Kind) -> None:
        """Shows others whether somebody sits in front of the client now."""
        if kind != self.record.kind:
            self.record = self.record.attended(kind, self._clock())
            self._show_soon()

    def _show_soon(self) -> None:
        if self._showing is None:
            self._showing = asyncio.get_running_loop().call_later(SHOWN_SECONDS, self._show)

    def _show(self) -> None:
        self._showing = None
        if not self._closed:
            try:
                self.directory.publish(self.record)
            except (StoreFailed, OSError):
                pass  # the next change tries again; the mail does not hang on it

    def called(self, title: str) -> None:
        """Follows the client's own name of its session (09.9); one that a person chose here stays.

        A title that breaks a rule of names changes nothing.
        """
        if self.record.name_source == "user" or not title:
            return
        try:
            check_name(title)
        except InvalidName:
            return
        self._call(title, "derived")

    # ── doors ────────────────────────────────────────────────────────────────────────────────────

    async def heard(self, timeout: float | None = None) -> bool:
        """Waits for the next change: a commit, a notice, the end of a turn, the end of the session.

        Whoever rings doors waits here: unlike a reader in `wait`, it does not count as somebody who waits for mail.

        Args:
            timeout: seconds; None waits for ever.

        Returns False when the time ran out.
        """
        return await self._bell.heard(deadline_in(timeout))

    def pass_on(self, lease: Lease, door: str) -> None:
        """Says that one of the client's doors has these messages, which is all that it can say (09.1).

        They are handed out no more: they are passed. Notices count as read.

        Args:
            lease: from `take`.
            door: which.

        Raises StoreFailed where that cannot be written, and SessionClosed: the messages are then handed out again.
        """
        self._check_open()
        self._commits.now()
        with self._commits.using():
            self.store.confirm(lease.id, self._clock(), door=door)
        self._board.confirm(lease.id)
        self._activity.leases.discard(lease.id)

    def rang(self, msg_ids: Iterable[str], door: str, outcome: str, detail: str = "") -> None:
        """Journals that a door was rung for some messages, and what came of it, apart from their state (09.16)."""
        self._check_open()
        said = f"{door}: {outcome}, {detail}" if detail else f"{door}: {outcome}"
        with self._commits.noting():
            for msg_id in msg_ids:
                self.store.note(msg_id, "rang", self._clock(), said)

    def noted(self, msg_id: str, what: str, detail: str) -> None:
        """Journals a fact about a message beside its state, such as the trace that it belongs to (09.9)."""
        self._check_open()
        with self._commits.noting():
            self.store.note(msg_id, what, self._clock(), detail)

    def seen(self, msg_ids: Iterable[str]) -> None:
        """The client's turn is seen to hold these messages: what was passed on of them is consumed (11.1)."""
        self._moved(msg_ids, "consumed", "its client's turn holds it")

    def take_back(self, msg_id: str, why: str) -> bool:
        """A door says that it dropped a message: it waits again, marked as handed out before. Whether it was there."""
        back = self._moved((msg_id,), "accepted", why)
        if back:
            self._bell.ring()
        return back

    def denied_behind(self, msg_id: str, why: str) -> bool:
        """The client's own person denied a message that was passed on: it is gone, and its sender is told."""
        return self._moved((msg_id,), "denied", why)

    def _moved(self, msg_ids: Iterable[str], state: State, why: str) -> bool:
        self._check_open()
        moved = False
        for msg_id in msg_ids:
            self._commits.now()
            with self._commits.using():
                messages = self.store.move_passed(msg_id, state, self._clock(), why)
            for message in messages if state == "denied" else ():
                self.tell(message.msg_id, message.origin.reply_path, "denied", why)
            moved = moved or bool(messages)
        return moved

    def tell(self, msg_id: str, reply_path: str, status: str, reason: str = "") -> None:
        """Tells the sender of a message what its client's own inbox made of it (03.49)."""
        with self._commits.noting():
            self._telling.owe(msg_id, reply_path, status, reason=reason)
