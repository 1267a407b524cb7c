"""One agent's presence: the only place where a decision becomes an action.

A session runs the pure core over a store, a directory and transports. It takes its clock, its ids and all of
these as arguments, so the code that ships is the code that a simulation runs.

ARRIVING: a transport calls `arrive` with one frame. The core judges it, the store keeps it, and only when
the store has committed is it acknowledged; `commits` says when that is (05.27). What is held waits in `holding`;
what senders are told goes through `telling`; what this session is told of its own messages comes in by `hearing`.

LEAVING: `send` validates, resolves, pins and carries one message, and says what is known about it, never more
(`sending`).

TAKING: `take` hands over what waits, under a lease; `confirm` says that the loop has it; `release`, or the
end of whoever took it, gives it back to be handed out again, marked (11.1).

It never names a transport or a client, never raises for what a peer sent, and answers a refusal as a value.
It belongs to one event loop: every method is called there.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from postroom.alarm import Alarm
from postroom.attending import Attending
from postroom.commits import Bell, Commits, Expected, deadline_in
from postroom.core import contract, holds, inbound, letter, loops, wire
from postroom.core.address import check_name, ref_of, shown
from postroom.core.message import Message, Origin, Receipt, Refusal, Status
from postroom.deciding import Deciding
from postroom.errors import SessionClosed, StoreFailed
from postroom.hearing import Hearing, Noticeboard
from postroom.holding import Holding
from postroom.hosting import Hosting
from postroom.idling import Activity, Idling
from postroom.origins import Answerable, Origins
from postroom.recipients import Recipients
from postroom.sending import Sending
from postroom.standing import Standing
from postroom.taking import Taking
from postroom.telling import MISADDRESSED, Telling
from postroom.voice import Voice

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from postroom.attending import Attendant
    from postroom.core.inbound import Judgement
    from postroom.directory import Directory
    from postroom.state.keeping import Store
    from postroom.state.record import Record
    from postroom.transport import Channel, Transport

__all__ = ["Session"]

SETTLING_SECONDS = 1.0
"""How long `close` waits until those who were sending have written down what they know: a step of the loop."""


class Session(Taking, Deciding, Hosting, Attending):
    """One running agent with a name, an inbox and a journal.

    Programs open one with `postroom.open_session`; the constructor is for those who bring their own parts.

    Args:
        record: what is published about this session.
        clock: returns epoch milliseconds.
        ids: returns a new message id each time.
        store: where messages, pins and the journal are kept.
        directory: who can be addressed from here.
        transport: what carries messages on this machine.
        standing: the mode, the settings and the limits; by default what applies where nothing is set.
        key: makes this session's token in hop chains its own: random bytes, made at its start (03.66).
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
        standing: Standing | None = None,
        key: bytes = b"",
        problems: Iterable[str] = (),
        outsider: bool = False,
    ) -> None:
        self.record = record
        self.store = store
        self.directory = directory
        self.standing = standing = standing or Standing()
        self.address: str | None = None
        self.counts: dict[str, int] = {}
        self._clock = clock
        self._ids = ids
        self._transport = transport
        self._problems = list(problems)
        self._closed = False
        self._telling_lead = set()
        self._showing: asyncio.TimerHandle | None = None
        self.attendant: Attendant | None = None
        self.write_log: Callable[[str], None] | None = None
        self.moves = False
        """It ends here to go on in another process at once: nobody is told that it ends (09.11)."""
        self._bell = bell = Bell()
        self._hold_bell = Bell()
        self._commits = commits = Commits(store, bell, clock, self._forgotten, self._kept, self._removed)
        self._origins = Origins(directory, (record.pid, record.proc_start))
        self._recipients = Recipients(store, commits, directory, record.session_id, self._origins.doubt)
        self._answerable = Answerable(store)
        self._guard = loops.Guard(standing.limits)
        self._turns = loops.Turns()
        self._activity = Activity(clock)
        self._telling = Telling(store, commits, transport, directory, clock, ids)
        self._board = Noticeboard(store, commits)
        self._holding = Holding(
            store,
            commits,
            standing,
            self._telling,
            clock,
            kind=record.kind,
            noticed=self._board.put,
            let_in=self._came_in,
            changed=self._changed,
        )
        self._idling = Idling(
            store, clock, ids, standing, self._telling, self._board, self._activity, self.count
        )
        self._sending = Sending(
            store,
            commits,
            clock,
            ids,
            transport,
            standing,
            self._idling,
            Voice(
                "outsider" if outsider else "main",
                self._recipients,
                self._turns,
                Origin(kind="coordinator", identity=record.session_id, verified=True, transport="queue"),
                lambda: store.waiting_count,
            ),
            bell,
            key,
        )
        self._hearing = Hearing(
            store,
            commits,
            directory,
            clock,
            self._board,
            self.count,
            self._sending.pace.give_back,
            {"notify_when_idle": self._idling.subscribe, "peer_idle_notice": self._idling.heard},
            self._recipients.wrote_to,
            self._sending.went_to,
        )
        self._expected: list[Expected] = []
        self._alarm = Alarm(clock, self._next_due, self._due)
        standing.accept_always(store.rules())

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
        """What the person should know: no inbox, a store set aside, skipped folders, settings (05.6, 05.27, 03.35)."""
        return (
            *self._problems,
            *self.standing.problems(surface=self._holding.askable),
            *self.store.problems,
        )

    def now(self) -> int:
        """Epoch milliseconds by this session's clock."""
        return self._clock()

    def status(self, *, looking: bool = True) -> Status:
        """What this session knows of itself (10.27, 10.30).

        Args:
            looking: also look who is there, which sweeps what is dead, and say what was passed over.
        """
        setting = self.standing.settings.inbound
        denied = contract.is_denied("SendMessage", self.standing.settings.denied)
        return Status(
            name=self.name,
            ref=self.ref,
            session_id=self.id,
            program=self.record.entrypoint,
            peer_address=self.address,
            permission_class=self.standing.permission_class,
            mode=self.standing.mode,
            inbound=None if setting is None else setting.value,
            inbound_scope="default" if setting is None else setting.scope,
            queued=self.store.waiting_count,
            held=len(self._holding),
            off=(*(("send",) if denied else ()), *(("receive",) if self.standing.refuses else ())),
            problems=(*self.problems, *(self.directory.problems() if looking else ())),
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
        self.address = self._telling.address = self._sending.address = await self._transport.serve(self)
        self.begin()

    def begin(self) -> None:
        """Looks at what an earlier life left: holds past their time end now, a setting may decide (03.47).

        `serve` does it; a session without an inbox is told to.
        """
        self._holding.tick(self._clock())
        self._holding.rejudge("the settings say so now")
        self._rested()  # who asked an earlier life when it is idle is told, if it has nothing to do (05.31)
        self._commits.now()
        self._alarm.set()

    def arrive(self, frame: wire.UserFrame, channel: Channel) -> None:
        """Judges one frame, keeps it, and acknowledges it once the store has it (05.22, 11.4). Never raises."""
        if self._closed:
            return
        store, commits, standing = self.store, self._commits, self.standing
        now = self._clock()
        said = wire.claims(frame)
        if said.text_ignored:
            self.count("text-ignored")
        msg_id = frame.msg_id or self._ids()
        asker = channel if frame.ack and frame.msg_id else None
        body = sha256(said.text.encode()).hexdigest()
        origin = self._origins.of(said, channel.evidence)
        chain = said.hop_chain or self._continued(origin, now)
        repeat = loops.repeat_of(said.text)
        try:
            judgement = inbound.judge(
                inbound.Arrival(
                    msg_id=msg_id,
                    body=body,
                    own_address=said.address is not None and said.address == self.address,
                    own_message=store.was_sent(msg_id),
                    addressed=frame.session_id,
                ),
                inbound.Facts(
                    session_id=self.record.session_id,
                    settled=store.settled(origin.identity, msg_id),
                    unread=store.unread,
                ),
                origin,
                standing.ruled(origin),
                standing.arriving,
                partial(self._guard.judge, origin.identity, repeat, chain, self._sending.token, now),
            )
            if judgement.settles:
                message = letter.message_of(said, msg_id=msg_id, origin=origin, at=now, hop_chain=chain)
                self._settle(message, judgement, body)
                self._guard.kept(origin.identity, repeat, now)
            else:
                peer = origin.known_as
                if judgement.rung != "shape":
                    store.note(msg_id, "received", now, peer=peer)
                store.note(msg_id, judgement.journal, now, judgement.detail, peer=peer)
                commits.turned_away()
                if asker is None and judgement is not inbound.SELF_ECHO and judgement.rung != "settled":
                    reason = judgement.reason or MISADDRESSED
                    self._telling.dropped(origin.identity, origin.reply_path, msg_id, reason)
                    self._alarm.set()
            reason = said.address_reason or self._origins.doubt(said.address)
            if reason and origin.address is None:  # nothing is doubted of a sender that was verified
                store.note(msg_id, "one-way", now, detail=reason, peer=origin.known_as)
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
        self._kept()
        self._bell.ring()

    def _settle(self, message: Message, judgement: Judgement, body: str) -> None:
        """Keeps what was accepted, held or refused: the same work for each (03.10). Raises StoreFailed."""
        verdict: inbound.Verdict = "accepted"
        expires_at = None
        if judgement.outcome == "held":
            verdict = "held"
            expires_at = self._holding.deadline(judgement, message.received_at)
            message = replace(message, state="held")
        elif judgement.outcome == "refused":  # the hash in place of the text: what is refused is not kept
            verdict = "refused"
            message = replace(message, state="refused", text=body, summary=None)
        row = self.store.add(
            message,
            body=body,
            verdict=verdict,
            cause=judgement.cause,
            scope=judgement.scope,
            rung=judgement.rung,
            expires_at=expires_at,
            detail=judgement.detail,
        )
        self._answerable.remember(message.origin, message.received_at)
        self._telling.met(message.origin)
        if verdict == "accepted":
            self._came_in(message)
            for expected in self._expected:
                expected.see(message)
        elif verdict == "held":
            assert judgement.cause, "a hold has a cause"
            self._holding.came(
                holds.Hold(
                    row=row,
                    message=message,
                    cause=judgement.cause,
                    scope=judgement.scope,
                    rung=judgement.rung,
                    expires_at=expires_at,
                )
            )
        elif self.standing.settings.refusal_notice == "tell":
            told = holds.WHO_IS_TOLD["refused"]
            self._telling.owe(
                message.msg_id, message.origin.reply_path, "refused", reason=told.words, detail=told.detail
            )

    def _came_in(self, message: Message) -> None:
        """A message was accepted, or let in: it has its place among what waits inside (06.2)."""
        if self._sending.inside is not None:
            self._sending.inside.came(message)

    def _continued(self, origin: Origin, now: int) -> tuple[str, ...]:
        """The chain that a message without one goes on: of a peer that sends none and was written to (03.66)."""
        chain = self._turns.continued(origin.identity, now)
        return () if chain and self.directory.sends_chains(origin.identity) else chain

    def control(self, frame: wire.ControlFrame, channel: Channel) -> None:
        """Takes one control frame (05.24); it is answered by nobody. Never raises."""
        if self._closed:
            return
        if frame.from_ is not None and frame.from_ == self.address:
            self.count("control-forged")  # nobody tells itself anything (03.7, 05.24)
            return
        self._hearing.control(frame, channel)
        if not self.store.durable:
            self._commits.now()
        self._alarm.set()

    def count(self, what: str) -> None:
        """Counts something that was ignored."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def _forgotten(self) -> None:
        """The open group of the store is gone: what was remembered beside it is read again (05.27)."""
        self.count("store-failed")
        self._answerable.clear()
        self._recipients.forgotten()
        self._guard.forget_repeats()
        self._telling.lost()
        for expected in self._expected:
            expected.seen = None
        for part in (self._board, self._holding, self._idling):
            part.reload()

    def _kept(self) -> None:
        """A group was committed: what is owed to senders may leave."""
        self._telling.deliver()

    def _removed(self, messages: list[Message]) -> None:
        """Retention has removed unread mail: its senders are told (03.46). Joins the open group."""
        told = holds.WHO_IS_TOLD["unread"]
        for message in messages:
            self._telling.owe(
                message.msg_id,
                message.origin.reply_path,
                told.sender,
                reason=told.words,
                detail=told.detail,
            )

    # ── what has a time ──────────────────────────────────────────────────────────────────────────

    def _next_due(self) -> int | None:
        times = (self._holding.next_due(), self._telling.next_due(), self._idling.next_due())
        return min((at for at in times if at is not None), default=None)

    def _due(self, now: int) -> None:
        with self._commits.noting():
            self._holding.tick(now)
            self._telling.tick(now)
            self._idling.tick(now)

    @property
    def owes(self) -> bool:
        """Whether somebody would be told something if the session ended now."""
        return bool(len(self._holding)) or self._idling.watched

    def tick(self) -> None:
        """Does what is due by this session's clock: the timer calls it, and whoever sets the clock forward."""
        self._alarm.look()

    def _changed(self) -> None:
        """A hold came or went: whoever shows them looks again."""
        self._alarm.set()
        self._hold_bell.ring()

    def _rested(self) -> None:
        """The loop may be idle now: whoever wants to know is told (05.31)."""
        if self._idling.watched:
            with self._commits.noting():
                self._idling.tick(self._clock())
            self._alarm.set()

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
        notify_when_idle: bool = False,
    ) -> Receipt | Refusal:
        """Sends one message to a peer.

        Args:
            to: a name, `name [ref]`, or the `from` of a message received here (01.2).
            text: what to say. No file, diff or history travels with it (04.3).
            summary: a preview, at most 200 code points; required with a text (01.3).
            in_reply_to: the id of the message that this one answers (01.5).
            msg_id: the id of a message whose outcome was `unknown`, to send it again (11.5).
            priority: `next` or `later`.
            notify_when_idle: be told once when that session is idle; the text may then be left out (01.6).

        Returns a Receipt that says what is known, or a Refusal with its code; never `delivered` (01.31).
        Raises SessionClosed after `close`.
        """
        return await self.send_call(
            {
                "to": to,
                "message": text,
                "summary": summary,
                "in_reply_to": in_reply_to,
                "notify_when_idle": notify_when_idle or None,
            },
            msg_id=msg_id,
            priority=priority,
        )

    async def send_call(
        self, raw: Mapping[str, object], *, msg_id: str | None = None, priority: str = "next"
    ) -> Receipt | Refusal:
        """The same for a raw call of the SendMessage tool: `raw` is its input (chapter 01)."""
        self._check_open()
        sending = self._sending
        return await sending.send(raw, voice=sending.main, name=self.name, msg_id=msg_id, priority=priority)

    # ── being somebody ───────────────────────────────────────────────────────────────────────────

    def rename(self, name: str) -> str:
        """Takes another name; the old one stays an alias until another live session takes it (02.4).

        Returns the name that it has now: a variant where a live session holds the wished one.
        Raises InvalidName for a name that breaks a rule.
        """
        self._check_open()
        wished = check_name(name)
        if wished == self.name:
            self.record = replace(self.record, name_source="user")
        return self._call(wished, "user")

    def _call(self, wished: str, source: str) -> str:
        """Has it called so, or by a variant where a live session has that name; `source` as in its record."""
        if wished == self.name:
            return self.name
        now, former = self._clock(), self.name
        claimed = self.directory.claim(wished, now, chosen=source == "user")
        self.record = self.record.renamed(claimed, now, source)
        self.store.session_name = claimed
        self.directory.publish(self.record)
        self._telling.renamed(claimed, former)
        return claimed

    @contextlib.contextmanager
    def reading(self) -> Generator[Store]:
        """The store, for whoever looks back with `steps` and `log` (10.12, 10.13). Only the session writes it."""
        self._check_open()
        with self._commits.using():
            yield self.store

    # ── the end ──────────────────────────────────────────────────────────────────────────────────

    async def close(self) -> None:
        """Ends the session: nothing is accepted from now on, its record goes, what is unread stays (03.46).

        What is held is dropped and its senders are told `expired`; whoever wanted to know when it is idle is told
        that it ends. Telling is bounded in time; what does not leave is told after a resume. A session that only `moves`
        keeps all that, as one that was killed does.
        """
        if self._closed:
            return
        if self._sending.inside is not None:
            await self._sending.inside.close()
        if self._sending.team is not None:
            await self._sending.team.close()
        self._closed = True
        self._alarm.stop()
        self._commits.now()
        now = self._clock()
        if not self.moves:
            self._holding.end_all("session-ended", now)
            with self._commits.noting():
                self._idling.tick(now, "exited")
        self._commits.now()
        await self._telling.close()
        await self._transport.close()
        deadline = deadline_in(SETTLING_SECONDS)
        while self._sending.under_way and await self._bell.heard(deadline):
            pass  # whoever was sending writes down what is known of it
        self._commits.now()
        self.leave()

    def leave(self) -> None:
        """The part of `close` that can run in a signal handler: record, lock and store, without waiting.

        What was not committed yet is forgotten: nobody was told that it is kept.
        """
        self._closed = True
        self._alarm.stop()
        if self._showing is not None:
            self._showing.cancel()
        self._commits.stop()
        self._bell.ring()
        self._hold_bell.ring()
        with contextlib.suppress(StoreFailed):
            self.store.close()
        self.directory.leave(self._clock())

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosed(f"The session {self.name} has ended.", "Open it again with its session id.")
