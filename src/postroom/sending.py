"""Leaving: validates a call, finds whom it means, carries one message, and says what is known of it (chapter 01).

The stages are those of 01.7: the call alone, the target, the line. What is known is never more than the transport
said; a message is journaled before it leaves and after, and a name is pinned only by a send that went well.

A message carries the chain of the message that it answers or that of the latest one of the turn, whichever is longer,
or starts afresh (03.66). The receiver's bucket is mirrored, so that a burst is refused here, with the time at
which the next message fits, and not dropped there (03.67).

Weak: a message that was sent while the sender's own store could not write is sent all the same; the journal
then lacks its row, and `problems` says so.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from postroom.core import contract, letter, loops, notices, wire
from postroom.core.address import shown
from postroom.core.message import Party, Pin, Receipt, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from postroom.commits import Bell, Commits
    from postroom.core.index import Candidate, Resolved
    from postroom.idling import Idling
    from postroom.standing import Standing
    from postroom.state.keeping import Store
    from postroom.transport import Outcome, Transport
    from postroom.voice import Inside, Teammates, Voice

REMEMBERED = 256
"""Messages whose address is remembered, so that whoever was found there may say that they are for somebody else."""

ANSWERS = (Receipt, Refusal)
"""What a send inside the session is answered with at once. A tuple: a union would be made anew at each send."""

UNKNOWN_REPLY = "No message {msg_id} is known here; in_reply_to was sent all the same."
"""What the sender of an answer to nothing is told (01.5)."""

ANNOUNCED_IDLE = "You are told once when {name} is idle, or ends."
SUBSCRIBED = "{name} was asked to say once when it is idle, or ends; a notice comes then."
NOT_SUBSCRIBED = "{name} could not be asked to say when it is idle: {reason}."


class Sending:
    """What one session sends.

    Args:
        store, commits, clock, ids: as for the session.
        transport: carries the lines.
        standing: the class that is stated, the tools that are denied, the limits.
        idling: remembers what was asked.
        main: the main conversation.
        bell: rung after each send.
        key: makes this session's token in chains its own.
    """

    def __init__(
        self,
        store: Store,
        commits: Commits,
        clock: Callable[[], int],
        ids: Callable[[], str],
        transport: Transport,
        standing: Standing,
        idling: Idling,
        main: Voice,
        bell: Bell,
        key: bytes,
    ) -> None:
        self.under_way = 0
        self.address: str | None = None
        self.answered_early: set[str] = set()
        self._went_to: OrderedDict[str, str] = OrderedDict()
        self.pace = loops.Pace(standing.limits)
        self._store = store
        self._commits = commits
        self._clock = clock
        self._ids = ids
        self._transport = transport
        self._standing = standing
        self._idling = idling
        self._bell = bell
        self._key = key
        self._token = ""
        self.main = main
        self.inside: Inside | None = None
        self.team: Teammates | None = None
        self._callers: dict[tuple[str, bool, bool], contract.Caller] = {}

    @property
    def token(self) -> str:
        """This session's own token in a hop chain (03.66); empty while it has no address."""
        if not self._token and self.address is not None:
            self._token = loops.token_of(self.address, self._key)
        return self._token

    def token_of(self, identity: str) -> str:
        """The token of somebody inside this session in a hop chain."""
        return loops.token_of(f"agent:{identity}", self._key)

    def apply(self) -> None:
        """The settings have changed."""
        self.pace.limits = self._standing.limits
        if self.inside is not None:
            self.inside.apply()
        self._callers.clear()

    def _caller(self, voice: Voice) -> contract.Caller:
        """Who calls, as the tools' rules ask for it."""
        team = self.team
        # A teammate that is an agent of this process may send what a teammate may (01.16).
        speaks = "main" if team is not None and voice.origin.identity in team.enlisted else voice.kind
        kind = speaks, voice.background, team is not None and team.active
        caller = self._callers.get(kind)
        if caller is None:
            denied = self._standing.settings.denied
            caller = self._callers[kind] = contract.Caller(
                kind=kind[0], background=kind[1], team=kind[2], denied=denied
            )
        return caller

    async def send(
        self, raw: Mapping[str, object], *, voice: Voice, name: str, msg_id: str | None, priority: str
    ) -> Receipt | Refusal:
        """Sends one message, or subscribes, or both; see `Session.send_call`."""
        draft = contract.validate(raw, self._caller(voice))
        if isinstance(draft, Refusal):
            return draft
        found = voice.recipients.chosen(draft, msg_id, name)
        if isinstance(found, Refusal):
            return self._gone(draft.to) or found if found.code == "not_found" else found
        target = found.candidate
        # Where somebody of exactly this name has left, whoever is called nearly so is not meant.
        if target.kind == "teammate" and target.name != draft.to and (gone := self._gone(draft.to)):
            return gone
        team = self.team
        inside = team is not None and draft.record is not None and target.identity in team.enlisted
        if draft.record is not None and target.kind != "teammate" and not inside:
            return contract.refusal("structured_needs_teammate", name=target.name)
        if draft.notify_when_idle and (reason := self._unheard(target, voice)):
            return contract.refusal("notify_not_allowed", reason=reason)
        if team is not None and (target.kind == "teammate" or inside):
            return await team.deliver(voice, draft, found, msg_id)
        if target.near and self.inside is not None:
            answer = self.inside.deliver(voice, draft, found, msg_id)
            return answer if isinstance(answer, ANSWERS) else await answer
        if draft.text is None:
            return await self._subscribe_only(draft, found)
        with self._commits.using():
            again = msg_id is not None and self._store.was_sent(msg_id)
        msg_id = msg_id or self._ids()
        chain = self._chain(draft, voice)
        line = self._line(draft, target, name, msg_id, chain, priority)
        if too_large := contract.too_large(wire.code_points(line) - 1):
            return too_large
        if not again and (burst := self.pace.spend(target.identity, self._clock())):
            return contract.refusal(
                "sender_burst", count=burst.count, name=target.name, seconds=ceil(burst.seconds)
            )
        warnings = (*draft.warnings, *found.warnings, *self._doubts(draft, target))
        with self._commits.noting():
            self._store.sending(msg_id, target.identity, target.name, self._clock())
        self.main.turns.wrote(
            target.identity, chain, self._clock()
        )  # an answer comes to the main conversation
        self._went_to[msg_id] = target.address
        if len(self._went_to) > REMEMBERED:
            self._went_to.popitem(last=False)
        outcome = await self._carry(target, line, msg_id)
        if outcome.status == "failed":
            self.pace.give_back(target.identity)
        answer = contract.outcome_of(
            status=outcome.status,
            ack=outcome.ack,
            reason=outcome.reason,
            code=outcome.code,
            detail=outcome.detail,
            name=target.name,
            msg_id=msg_id,
            confirms=target.confirms,
            wakes=target.wakes,
            told=target.receipts and not target.one_way,
            answerable=self.address is not None and not target.one_way,
        )
        receipt = self._sent(draft, found, msg_id, answer, warnings, voice)
        if draft.notify_when_idle and isinstance(receipt, Receipt):
            return await self._subscribe_too(receipt, target)
        return receipt

    def _gone(self, to: str) -> Refusal | None:
        """The refusal for whoever was a member of the team and left: with the time (07.22). None: there was none."""
        team = None if self.team is None else self.team.team
        gone = None if team is None else team.departed(to)
        if gone is None:
            return None
        return Refusal(code="not_found", message=str(gone), hint=contract.refusal("not_found", to=to).hint)

    def _line(
        self,
        draft: contract.Draft,
        target: Candidate,
        name: str,
        msg_id: str,
        chain: tuple[str, ...],
        priority: str,
    ) -> bytes:
        named = self.main.kind != "outsider"
        return letter.line_of(
            draft,
            msg_id=msg_id,
            to=target.identity,
            at=self._clock(),
            address=self.address,
            name=name if named else None,
            mode=self._standing.stated if named else None,
            hop_chain=chain,
            priority=priority,
            acknowledge=target.acknowledges,
        )

    def went_to(self, msg_id: str) -> str | None:
        """The address to which one of the latest messages went, whoever turned out to be there (03.7)."""
        return self._went_to.get(msg_id)

    def _chain(self, draft: contract.Draft, voice: Voice) -> tuple[str, ...]:
        """The chain that a message carries: that of what it answers or came of, and this session's token (03.66)."""
        if not self.token:
            return ()
        chain = self.cause(draft, voice)
        # What an agent says because its main conversation told it to is said under that one's name: one hop, not two.
        told = voice.kind == "agent" and chain and chain[-1] == self.token
        return chain if told else (*chain, self.token)

    def cause(self, draft: contract.Draft, voice: Voice) -> tuple[str, ...]:
        """The chain of what a message answers or came of, the longer of the two (03.66)."""
        chain = voice.turns.chain(self._clock())
        if draft.in_reply_to:
            with self._commits.using():
                answered = next(reversed(self._store.find(draft.in_reply_to)), None)
            # Whoever goes on answering the first message of a thread would never come to rest.
            if answered is not None and len(answered.hop_chain) >= len(chain):
                chain = answered.hop_chain
        return chain

    async def _carry(self, target: Candidate, line: bytes, msg_id: str) -> Outcome:
        self.under_way += 1
        try:
            return await self._transport.send(
                target.address,
                line,
                msg_id=msg_id,
                acknowledged=target.acknowledges,
                pid=target.pid,
                start=target.start,
            )
        except asyncio.CancelledError:
            with self._commits.noting():
                self._store.outcome(msg_id, "unknown", self._clock(), detail="the sender did not wait")
            raise
        finally:
            self.under_way -= 1
            self._bell.ring()

    def _doubts(self, draft: contract.Draft, target: Candidate) -> tuple[str, ...]:
        """What the sender should know before anything is known of the outcome (01.31, 01.5)."""
        doubts: list[str] = []
        if self.address is None:
            sender = "An outsider" if self.main.kind == "outsider" else "This session"
            doubts.append(f"{sender} has no inbox here, so nobody can answer this message.")
        elif target.one_way:
            doubts.append(target.one_way)
        if draft.in_reply_to and not self.knows(draft.in_reply_to):
            doubts.append(UNKNOWN_REPLY.format(msg_id=draft.in_reply_to))
        return tuple(doubts)

    def knows(self, msg_id: str) -> bool:
        """Whether a message of this id came here and is still kept."""
        with self._commits.using():
            return bool(self._store.find(msg_id))

    def _sent(
        self,
        draft: contract.Draft,
        found: Resolved,
        msg_id: str,
        answer: contract.Sent | Refusal,
        warnings: tuple[str, ...],
        voice: Voice,
    ) -> Receipt | Refusal:
        """Writes down what is known after a send, pins the name, and says it."""
        now = self._clock()
        target = found.candidate
        pin: Pin | None = None
        with self._commits.noting():
            # A notice may have come before the acknowledgement was read: it says more, and stands.
            told = self._store.sent(msg_id)
            settled = told is not None and told.state in notices.TOLD
            if isinstance(answer, Refusal):
                self._store.outcome(msg_id, "failed", now, detail=answer.code)
            else:
                write = self._store.note if settled else self._store.outcome
                write(msg_id, answer.status, now, f"to {shown(target.name, target.ref)}")
                pin = voice.recipients.pinned(draft.to, found, now)
                if draft.in_reply_to and answer.status != "unknown":
                    self.mark_answered(draft.in_reply_to, now)
        if isinstance(answer, Refusal):
            return answer
        return Receipt(
            status=answer.status,
            msg_id=msg_id,
            to=Party(name=target.name, ref=target.ref, kind=target.kind),
            note=answer.note,
            pin=pin,
            waiting=voice.waiting(),
            warnings=warnings,
        )

    def mark_answered(self, msg_id: str, now: int) -> None:
        """`answered` follows `consumed` and nothing else (11.1): an answer that is early waits for that."""
        known = self._store.find(msg_id)
        if any(message.state == "passed" for message in known):
            # An answer shows that the loop has read what one of its doors took.
            self._store.move_passed(msg_id, "consumed", now, "it was answered")
            known = self._store.find(msg_id)
        if any(message.state == "consumed" for message in known):
            self._store.answered(msg_id, now)
        elif known:
            self.answered_early.add(msg_id)

    def confirmed(self, ids: list[str], now: int) -> None:
        """The loop has these messages: those that were answered early are answered now (11.1)."""
        with self._commits.noting():
            for msg_id in self.answered_early.intersection(ids):
                self.answered_early.discard(msg_id)
                self._store.answered(msg_id, now)

    # ── being told when somebody is idle ─────────────────────────────────────────────────────────

    def _unheard(self, target: Candidate, voice: Voice) -> str:
        """Why nobody can be told when this target is idle (01.22, 05.31); empty when it can be."""
        if voice.kind == "agent":
            return "only the main conversation can be told when a session is idle"
        if target.near:
            return f"{target.name} is no session"
        if voice.kind != "main" or self.address is None:
            return "only a session with an inbox can be told"
        if self._standing.refuses:
            return "this session takes nothing in, so it could not be told either"
        if target.kind != "session" or not target.local:
            return f"{target.name} is no session on this machine"
        if not target.tells_idle:
            return f"{target.name} runs a version that does not say when it is idle"
        return ""

    async def _ask_idle(self, target: Candidate) -> tuple[str, str]:
        """Asks a session to say when it is idle; returns the id of that, and why it failed, if it did."""
        asked = self._ids()
        with self._commits.noting():
            self._idling.asked(asked, target.identity, target.name)
            self._commits.now()
        line = notices.subscription_line(msg_id=asked, address=self.address or "", mode=self._standing.stated)
        outcome = await self._transport.send(
            target.address,
            line,
            msg_id=None,
            acknowledged=target.acknowledges,
            pid=target.pid,
            start=target.start,
        )
        return asked, "" if outcome.status in ("written", "unknown") else outcome.detail or outcome.code

    async def _subscribe_only(self, draft: contract.Draft, found: Resolved) -> Receipt | Refusal:
        """A bare subscription (01.6)."""
        target = found.candidate
        asked, reason = await self._ask_idle(target)
        if reason:
            return contract.refusal("connection_failed", name=target.name, reason=reason)
        return Receipt(
            status="written",
            msg_id=asked,
            to=Party(name=target.name, ref=target.ref, kind=target.kind),
            note=SUBSCRIBED.format(name=target.name),
            waiting=self._store.waiting_count,
            warnings=(*draft.warnings, *found.warnings),
        )

    async def _subscribe_too(self, receipt: Receipt, target: Candidate) -> Receipt:
        """A message that was sent, and a subscription after it."""
        _, reason = await self._ask_idle(target)
        if reason:
            failed = NOT_SUBSCRIBED.format(name=target.name, reason=reason)
            return replace(receipt, warnings=(*receipt.warnings, failed))
        return replace(receipt, note=f"{receipt.note} {ANNOUNCED_IDLE.format(name=target.name)}")
