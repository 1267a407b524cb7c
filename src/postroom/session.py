"""One agent's presence: the only place where a decision becomes an action.

A session runs the pure core over a store, a directory and transports. It takes its clock, its ids and all of
these as arguments, so the code that ships is the code that a simulation runs.

ARRIVING: a transport calls `arrive` with one frame. The core judges it, the store keeps it, and only when
the store has committed is it acknowledged; `commits` says when that is (05.27).

LEAVING: `send` validates, resolves, pins and carries one message, and says what is known about it, never more.

TAKING: `take` hands over what waits, under a lease; `confirm` says that the loop has it; `release`, or the
end of whoever took it, gives it back to be handed out again, marked (11.1).

It never names a transport or a client, never raises for what a peer sent, and answers a refusal as a value.
It belongs to one event loop: every method is called there.

Weak: a message that was sent while the sender's own store could not write is sent all the same; the journal
then lacks its row, and `problems` says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from hashlib import sha256
from typing import TYPE_CHECKING

from postroom.commits import Bell, Commits, Expected, deadline_in
from postroom.core import contract, inbox, letter, resolve, wire
from postroom.core.address import check_name, ref_of, shown
from postroom.core.listing import DEFAULT_ROWS, Listing, listing
from postroom.core.message import (
    Lease,
    Message,
    Notice,
    Party,
    Pin,
    Receipt,
    Refusal,
    Status,
)
from postroom.errors import SessionClosed, StoreFailed
from postroom.origins import Answerable, Origins
from postroom.recipients import Recipients

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping

    from postroom.directory import Directory
    from postroom.state.keeping import Store
    from postroom.state.record import Record
    from postroom.transport import Channel, Transport

__all__ = ["Session"]

SETTLING_SECONDS = 1.0
"""How long `close` waits until those who were sending have written down what they know: a step of the loop."""


class Session:
    """One running agent with a name, an inbox and a journal.

    Programs open one with `postroom.open_session`; the constructor is for those who bring their own parts.

    Args:
        record: what is published about this session.
        clock: returns epoch milliseconds.
        ids: returns a new message id each time.
        store: where messages, pins and the journal are kept.
        directory: who can be addressed from here.
        transport: what carries messages on this machine.
        limits: the bounds of chapter 03.
        problems: sentences for the person: what was skipped or is missing from the start.
        outsider: it only sends, once, and states neither a name nor a class (10.38).
    """

    def __init__(
        self,
        *,
        record: Record,
        clock: Callable[[], int],
        ids: Callable[[], str],
        store: Store,
        directory: Directory,
        transport: Transport,
        limits: inbox.Limits | None = None,
        problems: Iterable[str] = (),
        outsider: bool = False,
    ) -> None:
        self.record = record
        self.store = store
        self.directory = directory
        self.limits = limits or inbox.Limits()
        self.address: str | None = None
        self.counts: dict[str, int] = {}
        self._clock = clock
        self._ids = ids
        self._transport = transport
        self._problems = list(problems)
        self._closed = False
        self._bell = Bell()
        self._commits = Commits(store, self._bell, clock, self._forgotten)
        self._recipients = Recipients(store, self._commits, directory, record.session_id)
        self._origins = Origins(directory)
        self._answerable = Answerable(store)
        self._notices: list[Notice] = []
        self._expected: list[Expected] = []
        self._sending = 0
        self._answered_early: set[str] = set()
        self._caller = contract.Caller(kind="outsider" if outsider else "main")

    # ── what it is ───────────────────────────────────────────────────────────────────────────────

    @property
    def id(self) -> str:
        """The session id: its identity, which a rename or a restart does not change (02.7)."""
        return self.record.session_id

    @property
    def name(self) -> str:
        """The name that is its address."""
        return self.record.name

    @property
    def ref(self) -> str:
        """The short identifier that tells it from a namesake (02.7)."""
        return ref_of(self.id)

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self._closed

    @property
    def problems(self) -> tuple[str, ...]:
        """What the person should know: no inbox, a store set aside, skipped folders (05.6, 05.27)."""
        return (*self._problems, *self.store.problems)

    def now(self) -> int:
        """Epoch milliseconds by this session's clock."""
        return self._clock()

    def status(self) -> Status:
        """What this session knows of itself (10.27)."""
        return Status(
            name=self.name,
            ref=self.ref,
            session_id=self.id,
            peer_address=self.address,
            queued=self.store.waiting_count,
            problems=(*self.problems, *self.directory.problems()),
            counts=dict(self.counts),
        )

    def found(self, problem: str) -> None:
        """Adds a sentence to `problems`."""
        self._problems.append(problem)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.store.waiting_count} waiting"
        return f"<Session {shown(self.name, self.ref)} {state}>"

    # ── arriving ─────────────────────────────────────────────────────────────────────────────────

    async def serve(self) -> None:
        """Starts to accept. Everything that arrives goes through `arrive`."""
        self.address = await self._transport.serve(self)

    def arrive(self, frame: wire.UserFrame, channel: Channel) -> None:
        """Judges one frame, keeps it, and acknowledges it once the store has it (05.22, 11.4). Never raises."""
        if self._closed:
            return
        store, commits = self.store, self._commits
        now = self._clock()
        said = wire.claims(frame)
        if said.text_ignored:
            self.count("text-ignored")
        msg_id = frame.msg_id or self._ids()
        asker = channel if frame.ack and frame.msg_id else None
        body = sha256(said.text.encode()).hexdigest()
        origin = self._origins.of(said, channel.evidence)
        try:
            judgement = inbox.judge(
                inbox.Arrival(
                    msg_id=msg_id,
                    body=body,
                    own_address=said.address is not None and said.address == self.address,
                    own_message=store.was_sent(msg_id),
                    addressed=frame.session_id,
                ),
                inbox.Facts(
                    session_id=self.record.session_id,
                    settled=store.settled(origin.identity, msg_id),
                    unread=store.unread,
                ),
                self.limits,
            )
            if judgement.outcome == "accepted":
                message = letter.message_of(said, msg_id=msg_id, origin=origin, at=now)
                store.add(message, body=body)
                self._answerable.remember(origin, now)
                for expected in self._expected:
                    expected.see(message)
            else:
                store.note(
                    msg_id, judgement.journal, now, judgement.detail, peer=origin.name or origin.identity
                )
            if said.address_reason:
                peer = origin.name or origin.identity
                store.note(msg_id, "one-way", now, detail=said.address_reason, peer=peer)
            if not store.durable:
                store.commit()
        except StoreFailed:
            commits.owe(asker, msg_id, "store_failed", "")
            commits.lost()
            return
        except BaseException:  # an interrupt: the group is gone, and nobody in it may be acknowledged
            commits.lost()
            raise
        commits.tidy_later()
        if store.durable:
            commits.owe(asker, msg_id, judgement.ack, judgement.reason)
            commits.soon()
            return
        if asker is not None:
            asker.answer(wire.encode_ack(msg_id, judgement.ack, judgement.reason))
        self._bell.ring()

    def control(self, frame: wire.ControlFrame, channel: Channel) -> None:
        """Takes one control frame. None is acted on yet; each is counted (05.24)."""
        self.count(f"control-{frame.action}" if frame.action in wire.ACTIONS else "control-unknown")

    def count(self, what: str) -> None:
        """Counts something that was ignored."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def _forgotten(self) -> None:
        """The open group of the store is gone: what was remembered beside it is read again (05.27)."""
        self.count("store-failed")
        self._answerable.clear()
        self._recipients.forgotten()
        for expected in self._expected:
            expected.seen = None

    # ── leaving ──────────────────────────────────────────────────────────────────────────────────

    async def send(
        self,
        to: str,
        text: str | None = None,
        *,
        summary: str | None = None,
        in_reply_to: str | None = None,
        msg_id: str | None = None,
        priority: str = "next",
    ) -> Receipt | Refusal:
        """Sends one message to a peer.

        Args:
            to: a name, `name [ref]`, or the `from` of a message received here (01.2).
            text: what to say. No file, diff or history travels with it (04.3).
            summary: a preview, at most 200 code points; required with a text (01.3).
            in_reply_to: the id of the message that this one answers (01.5).
            msg_id: the id of a message whose outcome was `unknown`, to send it again (11.5).
            priority: `next` or `later`.

        Returns a Receipt that says what is known, or a Refusal with its code; never `delivered` (01.31).
        Raises SessionClosed after `close`.
        """
        return await self.send_call(
            {"to": to, "message": text, "summary": summary, "in_reply_to": in_reply_to},
            msg_id=msg_id,
            priority=priority,
        )

    async def send_call(
        self, raw: Mapping[str, object], *, msg_id: str | None = None, priority: str = "next"
    ) -> Receipt | Refusal:
        """The same for a raw call of the SendMessage tool: `raw` is its input (chapter 01)."""
        self._check_open()
        draft = contract.validate(raw, self._caller)
        if isinstance(draft, Refusal):
            return draft
        found = self._recipients.chosen(draft, msg_id, self.name)
        if isinstance(found, Refusal):
            return found
        target = found.candidate
        msg_id = msg_id or self._ids()
        named = self._caller.kind != "outsider"
        line = letter.line_of(
            draft,
            msg_id=msg_id,
            to=target.identity,
            at=self._clock(),
            address=self.address,
            name=self.name if named else None,
            # The mode is `default`, whose class is prompting (03.3, 10.8).
            mode="prompting" if named else None,
            priority=priority,
            acknowledge=target.acknowledges,
        )
        if too_large := contract.too_large(wire.code_points(line) - 1):
            return too_large
        warnings = (*draft.warnings, *found.warnings, *self._doubts(draft))
        with self._commits.noting():
            self.store.sending(msg_id, target.identity, target.name, self._clock())
        self._sending += 1
        try:
            outcome = await self._transport.send(
                target.address,
                line,
                msg_id=msg_id,
                acknowledged=target.acknowledges,
                pid=target.pid,
                start=target.start,
            )
        except asyncio.CancelledError:
            with self._commits.noting():
                self.store.outcome(msg_id, "unknown", self._clock(), detail="the sender did not wait")
            raise
        finally:
            self._sending -= 1
            self._bell.ring()
        answer = contract.outcome_of(
            status=outcome.status,
            ack=outcome.ack,
            reason=outcome.reason,
            code=outcome.code,
            detail=outcome.detail,
            name=target.name,
            msg_id=msg_id,
        )
        return self._sent(draft, found, msg_id, answer, warnings)

    def _doubts(self, draft: contract.Draft) -> tuple[str, ...]:
        """What the sender should know before anything is known of the outcome (01.31, 01.5)."""
        doubts: list[str] = []
        if self.address is None:
            sender = "An outsider" if self._caller.kind == "outsider" else "This session"
            doubts.append(f"{sender} has no inbox here, so nobody can answer this message.")
        if draft.in_reply_to:
            with self._commits.using():
                known = self.store.find(draft.in_reply_to)
            if not known:
                doubts.append(
                    f"No message {draft.in_reply_to} is known here; in_reply_to was sent all the same."
                )
        return tuple(doubts)

    def _sent(
        self,
        draft: contract.Draft,
        found: resolve.Resolved,
        msg_id: str,
        answer: contract.Sent | Refusal,
        warnings: tuple[str, ...],
    ) -> Receipt | Refusal:
        """Writes down what is known after a send, pins the name, and says it."""
        now = self._clock()
        target = found.candidate
        pin: Pin | None = None
        with self._commits.noting():
            if isinstance(answer, Refusal):
                self.store.outcome(msg_id, "failed", now, detail=answer.code)
            else:
                self.store.outcome(msg_id, answer.status, now, detail=f"to {shown(target.name, target.ref)}")
                pin = self._recipients.pinned(draft.to, found, now)
                if draft.in_reply_to and answer.status != "unknown":
                    self._mark_answered(draft.in_reply_to, now)
        if isinstance(answer, Refusal):
            return answer
        return Receipt(
            status=answer.status,
            msg_id=msg_id,
            to=Party(name=target.name, ref=target.ref, kind=target.kind),
            note=answer.note,
            pin=pin,
            waiting=self.store.waiting_count,
            warnings=warnings,
        )

    def _mark_answered(self, msg_id: str, now: int) -> None:
        """`answered` follows `consumed` and nothing else (11.1): an answer that is early waits for that."""
        known = self.store.find(msg_id)
        if any(message.state == "consumed" for message in known):
            self.store.answered(msg_id, now)
        elif known:
            self._answered_early.add(msg_id)

    # ── taking ───────────────────────────────────────────────────────────────────────────────────

    def peek(self) -> list[Message]:
        """What waits, in the order in which it would be handed out; nothing is taken (10.3)."""
        self._check_open()
        with self._commits.using():
            return self.store.waiting()

    def take(self, *, later: bool = True, limit: int | None = None, only: str | None = None) -> Lease:
        """Hands over what waits, under a lease (11.1).

        Args:
            later: also what has priority `later`; a loop that is not idle passes False (06.2).
            limit: at most so many messages.
            only: just the message of this id.

        Returns a Lease, false when there was nothing. Raises StoreFailed where the store cannot write:
        nothing is handed over then (05.27).
        """
        self._check_open()
        self._commits.now()  # by itself: were the lease to fail, the arrivals before it must not go with it
        notices, self._notices = tuple(self._notices), []
        if not self.store.waiting_count:
            return Lease("", (), notices)
        lease = self._ids()
        try:
            with self._commits.using():
                messages = self.store.take(lease, self._clock(), later=later, limit=limit, only=only)
        except StoreFailed:
            self._notices[:0] = notices
            raise
        return Lease(lease if messages else "", tuple(messages), notices)

    def drain(self) -> list[Message]:
        """Takes everything that waits and confirms it at once: for a loop that cannot fail in between.

        A message whose reader dies right after this is not handed out again; `take` and `confirm` are
        for whoever wants that.
        """
        lease = self.take()
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
            confirmed = self.store.confirm(lease.id, now)
        with self._commits.noting():
            for msg_id in self._answered_early.intersection(confirmed):
                self._answered_early.discard(msg_id)
                self.store.answered(msg_id, now)

    def release(self, lease: Lease) -> None:
        """Gives a lease back: its messages wait again, marked `redelivered` (11.1).

        After `close` there is nothing to do: they wait for the session to come back. Raises StoreFailed.
        """
        if lease.id and not self._closed:
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
        deadline = deadline_in(timeout)
        while not self._closed:
            if self._notices or (self.store.waiting_count and not self.store.pending):
                return True
            if not await self._bell.heard(deadline):
                return False
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

        A body that raises or breaks gives its message back; it is handed out again, marked (11.1).
        """
        while await self.wait():
            lease = self.take(limit=1)
            for message in lease.messages:
                try:
                    yield message
                except BaseException:
                    self.release(lease)
                    raise
                self.confirm(lease)

    # ── being somebody ───────────────────────────────────────────────────────────────────────────

    def rename(self, name: str) -> str:
        """Takes another name; the old one stays an alias until another live session takes it (02.4).

        Returns the name that it has now: a variant where a live session holds the wished one.
        Raises InvalidName for a name that breaks a rule.
        """
        self._check_open()
        wished = check_name(name)
        if wished == self.name:
            return self.name
        now = self._clock()
        claimed = self.directory.claim(wished, now)
        self.record = self.record.renamed(claimed, now)
        self.store.session_name = claimed
        self.directory.publish(self.record)
        return claimed

    @contextlib.contextmanager
    def reading(self) -> Generator[Store]:
        """The store, for whoever looks back with `steps` and `log` (10.12, 10.13). Only the session writes it."""
        self._check_open()
        with self._commits.using():
            yield self.store

    def listing(
        self, text: str | None = None, *, kind: str | None = None, limit: int = DEFAULT_ROWS
    ) -> Listing:
        """Who can be written to from here, this session's own row apart (01.29).

        Args:
            text: only rows whose name, former name or folder has this in it.
            kind: only rows of this kind: `session`, `agent` or `teammate`.
            limit: at most so many rows; what it leaves out is counted.
        """
        self._check_open()
        found = self.directory.rows()
        return listing(found.rows, own=self.id, text=text, kind=kind, limit=limit, unchecked=found.unchecked)

    # ── the end ──────────────────────────────────────────────────────────────────────────────────

    async def close(self) -> None:
        """Ends the session: nothing is accepted from now on, its record goes, what is unread stays (03.46)."""
        if self._closed:
            return
        self._closed = True
        self._commits.now()
        await self._transport.close()
        deadline = deadline_in(SETTLING_SECONDS)
        while self._sending and await self._bell.heard(deadline):
            pass  # whoever was sending writes down what is known of it
        self._commits.now()
        self.leave()

    def leave(self) -> None:
        """The part of `close` that can run in a signal handler: record, lock and store, without waiting.

        What was not committed yet is forgotten: nobody was told that it is kept.
        """
        self._closed = True
        self._commits.stop()
        self._bell.ring()
        with contextlib.suppress(StoreFailed):
            self.store.close()
        self.directory.leave(self._clock())

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosed(f"The session {self.name} has ended.", "Open it again with its session id.")
