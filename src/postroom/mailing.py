"""Leaving for a teammate: what a session, or its program, writes into a mailbox of its team (07.3, 07.18).

The part of `teaming` that writes. A text is an entry as it stands; a structured record becomes its frame by the table of
roles; what no model sends, a program sends by `send_frame`. Just before the write the config is read once more: whoever is no
longer the member that was chosen gets nothing (02.21).

How it fails: what cannot be written is a refusal, and nothing was written. Entries to one mailbox are written in the order of
the calls, each when the one before it is done.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from postroom.core import contract, forms, frame_text, roles
from postroom.core import team as teams
from postroom.core.frames import ShutdownApproved, ShutdownRejected, ShutdownRequest
from postroom.core.mailfile import Entry
from postroom.core.message import Party, Receipt, Refusal
from postroom.core.refusals import refusal
from postroom.core.requests import Departure, Requests, opened, settled
from postroom.core.times import stamp
from postroom.errors import PostroomError
from postroom.state.locks import NotLocked
from postroom.transports.mailbox import MailboxFull, MailboxWriteFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from postroom.core.frames import Frame
    from postroom.core.index import Candidate, Resolved
    from postroom.core.requests import DepartureState
    from postroom.core.team import Team
    from postroom.session import Session
    from postroom.state.team_files import TeamFiles
    from postroom.transports.mailbox import Mailbox
    from postroom.voice import Voice

NOTE = "In {name}'s mailbox, on disk. Nothing says when it is read; a reply comes as its own message."
"""What `written` means of a teammate."""

SUMMARY = "a {type} frame"
"""The preview of an entry that holds a frame."""


class Mailing:
    """The part of `Teaming` that writes; see there."""

    if TYPE_CHECKING:
        session: Session
        files: TeamFiles
        name: str
        team: Team | None
        requests: Requests
        departures: dict[str, Departure]
        _turns: dict[str, asyncio.Lock]

        @property
        def enlisted(self) -> Mapping[str, Mailing]: ...

        @property
        def lead(self) -> bool: ...

        @property
        def members(self) -> frozenset[str]: ...

        def mailbox_of(self, name: str) -> Mailbox: ...

        def _step(self, member: str, state: DepartureState, now: int) -> None: ...

    async def deliver(
        self, voice: Voice, draft: contract.Draft, found: Resolved, msg_id: str | None
    ) -> Receipt | Refusal:
        """Writes one message, or one structured record, into a teammate's mailbox (07.3, 02.21)."""
        seat = self.enlisted.get(voice.origin.identity)
        if seat is not None:
            return await seat.deliver(voice, draft, found, msg_id)
        target = self._meant(found.candidate)
        if target.name == self.name:
            return refusal("cannot_message_self", name=target.name)
        async with self._turns.setdefault(target.name, asyncio.Lock()):  # in the order of the calls (11.6)
            return await self._deliver(voice, draft, found, target, msg_id)

    async def _deliver(
        self, voice: Voice, draft: contract.Draft, found: Resolved, target: Candidate, msg_id: str | None
    ) -> Receipt | Refusal:
        """The same, for the teammate that is meant, when it is this message's turn."""
        session = self.session
        if draft.text is not None and frame_text.parse(draft.text) is not None:
            return refusal("protocol_frame_in_text", what="built like a frame of the team protocol")
        try:
            team = await asyncio.to_thread(self.files.read)
        except (PostroomError, NotLocked) as error:
            return refusal("mailbox_write_failed", name=target.name, reason=sentence_of(error).rstrip("."))
        if team is None or team.identified(target.identity) is None:
            return refusal("team_member_changed", name=target.name)
        text = draft.text
        frame: Frame | None = None
        undo: Callable[[], None] | str | None = None
        if draft.record is not None:
            made = forms.outgoing(
                draft.record,
                me=self.name,
                to=target.name,
                members=self.members,
                requests=self.requests,
                now=session.now(),
            )
            if isinstance(made, Refusal):
                return made
            frame, text = made.frame, frame_text.encode(made.frame)
            undo = self._stepped(frame, target.name)
            if isinstance(undo, str):
                return refusal("invalid_record", problem=undo)
        assert text is not None, "a bare subscription to a teammate is refused before"
        summary = draft.summary or (SUMMARY.format(type=frame.type) if frame is not None else None)
        answer = await self._written(target.name, target.identity, text, summary, msg_id)
        if isinstance(answer, Refusal):
            if undo is not None:
                undo()
            return answer
        now = session.now()
        if frame is not None:
            self._sent(frame, target.name, now)
        return Receipt(
            status="written",
            msg_id=answer,
            to=Party(name=target.name, ref=target.ref, kind="teammate"),
            note=NOTE.format(name=target.name),
            pin=session.pinned(voice, draft.to, found, now),
            waiting=voice.waiting(),
            warnings=(*draft.warnings, *found.warnings),
        )

    def _meant(self, target: Candidate) -> Candidate:
        """The teammate that an agent inside this session is."""
        seat = self.enlisted.get(target.identity)
        member = None if seat is None or self.team is None else self.team.member(seat.name)
        return target if member is None or self.team is None else teams.candidate(self.team, member)

    def _sent(self, frame: Frame, to: str, now: int) -> None:
        """A frame of this session's has left: what follows from it here (07.18)."""
        match frame:
            case ShutdownRequest():
                self.departures[to] = Departure(member=to, request_id=frame.request_id, since=now)
            case ShutdownApproved():
                self._step(self.name, "approved", now)
            case ShutdownRejected():
                self._step(self.name, "rejected", now)
            case _:
                pass

    async def mail(self, to: str, text: str, *, summary: str | None = None) -> Receipt | Refusal:
        """Writes an entry under this session's name in the team: a text, or a frame that this program sends itself.

        Args:
            to: the name of a member, or `team-lead`.
            text: prose, or what `core.frame_text.encode` made.
            summary: a preview.
        """
        member = None if self.team is None else self.team.member(to)
        if self.team is None or member is None:
            return refusal("not_found", to=to)
        candidate = teams.candidate(self.team, member)
        answer = await self._written(to, candidate.identity, text, summary, None)
        if isinstance(answer, Refusal):
            return answer
        return Receipt(
            status="written",
            msg_id=answer,
            to=Party(name=to, ref=candidate.ref, kind="teammate"),
            note=NOTE.format(name=to),
        )

    async def _written(
        self, to: str, identity: str, text: str, summary: str | None, msg_id: str | None
    ) -> str | Refusal:
        """Writes an entry and journals it; returns the id under which it went."""
        session = self.session
        msg_id = msg_id or session.new_id()
        me = None if self.team is None else self.team.member(self.name)
        entry = Entry(
            from_=self.name,
            text=text,
            timestamp=stamp(session.now()),
            msg_id=msg_id,
            summary=summary,
            color=me.color if me is not None and me.color else None,
        )
        session.sending_to(msg_id, identity, to)
        refused: Refusal | None = None
        try:
            await self.mailbox_of(to).post(entry)
        except MailboxFull:
            refused = refusal("mailbox_full", name=to)
        except MailboxWriteFailed as error:
            refused = refusal("mailbox_write_failed", name=to, reason=error.reason)
        session.went(
            msg_id, "failed" if refused is not None else "written", refused.code if refused else f"to {to}"
        )
        return refused or msg_id

    async def send_frame(self, to: str, frame: Frame) -> Receipt | Refusal:
        """Sends a frame that this program makes itself: a request of its own, or its answer to one that is open.

        For what no model sends: permission and sandbox requests and answers, a plan for approval. The table of roles holds
        here too, and each request is answered once (07.13).

        Args:
            to: the name of a member, or `team-lead`.
            frame: with this session's own name wherever it names its sender.

        Returns a Receipt, or the refusal `invalid_record` or of the mailbox.
        """
        row = roles.ROWS[frame.type]
        may = roles.role_of(self.name, self.members) in row.senders
        if not may or roles.role_of(to, self.members) not in row.receivers:
            return refusal("invalid_record", problem=f"{frame.type} is not for {self.name} to send to {to}")
        undo = self._stepped(frame, to)
        if isinstance(undo, str):
            return refusal("invalid_record", problem=undo)
        answer = await self.mail(to, frame_text.encode(frame), summary=SUMMARY.format(type=frame.type))
        if isinstance(answer, Refusal):
            undo()
        else:
            self._sent(frame, to, self.session.now())
        return answer

    def _stepped(self, frame: Frame, to: str) -> Callable[[], None] | str:
        """Takes the step that a frame is in what is open, before it is written: nobody else takes it meanwhile (07.13).

        Returns what takes back this one step, whatever else has happened since; or why it is none.
        """
        row, member = roles.ROWS[frame.type], to if self.lead else self.name
        if row.begins is not None:
            request = roles.request_of(row.begins, frame, member)
            after = opened(self.requests, request)
            if not isinstance(after, Requests):
                return f"the request was not begun: {after}"
            self.requests = after
        elif row.answers is not None:
            found = self.requests.find(row.answers, member, roles.id_of(frame))
            if found is None:
                return "no request of that id waits for an answer"
            request = found
            self.requests = settled(self.requests, request)
        else:
            return lambda: None

        def undo() -> None:
            now, spent = self.requests, (request.kind, request.member, request.id)
            open_ = tuple(one for one in now.open if one != request)
            settled_ = tuple(one for one in now.settled if one != spent)
            self.requests = replace(
                now, open=open_ if row.begins is not None else (request, *open_), settled=settled_
            )

        return undo


def sentence_of(error: BaseException) -> str:
    """What went wrong, as a sentence for a person."""
    return error.message if isinstance(error, PostroomError) else f"{error}."
