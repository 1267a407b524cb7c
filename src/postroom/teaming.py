"""A session's place in a team: whom it may write to there, what its mailbox brings, what it has open (chapter 07).

`Teaming` is one place, the lead's or a member's. It looks at two files, the team's config and its own mailbox, once a second
(twice for a headless lead, 07.11) and no more often than that: a look at a file that has not changed costs one `lstat`.

SENDING: `deliver` is what `sending` calls for a teammate. A text is an entry as it stands; a structured record becomes its
frame by the table of roles. Just before the write the config is read once more: whoever is no longer the member that
was chosen gets nothing (02.21).

ARRIVING: prose and the words of frames that are shown become messages in the session's own store, from where its loop
takes them as any other mail; only then are the entries removed (07.5). A frame that may not be is journaled and never
shown (07.17). As much is taken as `maxUnread` leaves room for; the rest stays in the file.

It never believes an entry: every origin from a mailbox is claimed (07.4). It changes no permission of anybody: what a
frame asks of a program, not of a model, is handed to `acted`.

How it fails: a mailbox or config that cannot be read is a sentence in the session's problems, told once, and looked at
again. A folder that has gone is a team that has ended.

Weak: two looks may be a second apart, so whoever changes the config and at once writes to a newcomer may be ahead of it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from postroom.core import contract, forms, frame_text, frames, roles, wire
from postroom.core import team as teams
from postroom.core.address import LEAD
from postroom.core.frames import (
    IdleNotification,
    Malformed,
    ShutdownApproved,
    ShutdownRejected,
    ShutdownRequest,
)
from postroom.core.listing import Row
from postroom.core.mailfile import Entry
from postroom.core.message import Message, Origin, Party, Receipt, Refusal
from postroom.core.refusals import refusal
from postroom.core.requests import Departure, Requests, departed, forgotten, overdue
from postroom.core.times import stamp
from postroom.errors import PostroomError
from postroom.state.locks import NotLocked
from postroom.transports.mailbox import Mailbox, MailboxFull, MailboxWriteFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroom.core.frames import Frame
    from postroom.core.index import Candidate, Index, Resolved
    from postroom.core.mailfile import Item
    from postroom.core.team import Team
    from postroom.session import Session
    from postroom.state.tasklist import TaskList
    from postroom.state.team_files import TeamFiles
    from postroom.voice import Voice

__all__ = ["Teaming"]

LOOK_SECONDS = 1.0
"""How often a lead or a member with a person before it looks (07.10)."""

HEADLESS_SECONDS = 0.5
"""How often a headless lead looks while it has members (07.11)."""

NOTE = "In {name}'s mailbox, on disk. Nothing says when it is read; a reply comes as its own message."
"""What `written` means of a teammate."""

SUMMARY = "a {type} frame"


class Teaming:
    """One session's place in one team.

    Args:
        session: whose place it is.
        files: of the team.
        tasks: the team's shared tasks.
        name: its name in the team; `team-lead` for the lead.
        headless: nobody sits before it (07.11).
        acted: hears the verdict of each frame that asks something of the program (07.13 to 07.19), such as a permission
            request; None: nobody does, and such a request stays open.
    """

    def __init__(
        self,
        session: Session,
        files: TeamFiles,
        tasks: TaskList,
        name: str,
        *,
        headless: bool = False,
        acted: Callable[[roles.Verdict], None] | None = None,
    ) -> None:
        self.session = session
        self.files = files
        self.tasks = tasks
        self.name = name
        self.acted = acted
        self.team: Team | None = None
        self.requests = Requests()
        self.departures: dict[str, Departure] = {}
        self.enlisted: dict[str, Teaming] = {}
        self.mailbox = Mailbox(files.inboxes, name, shared=files.shared)
        self._index: Index = session.directory.own_index()
        self._shown: set[str] = set()
        self._boxes: dict[str, Mailbox] = {name: self.mailbox}
        self._seconds = HEADLESS_SECONDS if headless and self.lead else LOOK_SECONDS
        self._seen: tuple[object, object] = (None, None)
        self._told: set[str] = set()
        self._turns: dict[str, asyncio.Lock] = {}
        self._handed: dict[str, str] = {}
        self._leaving: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Teaming of {self.name} in {self.files.team}{'' if self.active else ', not active'}>"

    @property
    def lead(self) -> bool:
        """Whether this is the lead's place."""
        return self.name == LEAD

    @property
    def active(self) -> bool:
        """Whether the team has a member besides its lead (07.22)."""
        return self.team is not None and self.team.active

    @property
    def members(self) -> frozenset[str]:
        """The names in the roster, without the lead; who left counts until what it wrote before was read."""
        present = () if self.team is None else self.team.members
        return frozenset(one.name for one in present if not one.lead) | self._leaving

    @property
    def over(self) -> bool:
        """Whether this place is none any more."""
        return self._closed

    def mailbox_of(self, name: str) -> Mailbox:
        """The mailbox of a member. Raises InvalidName for a name that no member can have."""
        found = self._boxes.get(name)
        if found is None:
            found = self._boxes[name] = Mailbox(self.files.inboxes, name, shared=self.files.shared)
        return found

    # ── the clockwork ────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Begins to look. To be called in the session's loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while not (self._closed or self.session.closed):
            try:
                await self.look()
            except (PostroomError, NotLocked, OSError) as error:
                self._problem(f"The team {self.files.team} could not be looked at: {_sentence(error)}")
            await asyncio.sleep(self._seconds)

    def _problem(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            self.session.found(sentence)
            self.session.log(sentence)

    async def look(self) -> None:
        """Looks at the config and at the own mailbox, and takes what lies there. Raises what reading them raises."""
        async with self._looking:
            if self._closed:
                return
            if self.files.mark() != self._seen[0]:
                await self._read()
            if self.team is not None:
                if self.mailbox.mark() != self._seen[1]:
                    await self._take()
                self._forget_the_gone()
                await self._send_off()
                self._forget_the_gone()

    def _forget_the_gone(self) -> None:
        """Who has left has no request open any more, once what it wrote before that was read."""
        for name in self._leaving:
            self.requests = forgotten(self.requests, name)
        self._leaving.clear()

    async def _read(self) -> None:
        mark = self.files.mark()
        team = await asyncio.to_thread(self.files.read)
        before, self.team = self.team, team
        if before is not None and team is not None:
            self.team = teams.remembering(team, before, self.session.now())
        gone = teams.changes(before, team)
        self._leaving.update(member.name for member in gone.left if not member.lead)
        self._show()
        self._seen = (mark, self._seen[1])
        if team is not None:
            for problem in team.problems:
                self._problem(f"In the team {team.name}: {problem}")
            if not self.lead and team.member(self.name) is None:
                self._ended("it is no longer a member of it")
        elif before is not None:
            self._ended("its folder is gone")

    def _ended(self, why: str) -> None:
        """This place is none any more: the team has ended, or goes on without it."""
        self._problem(f"This session takes no part in the team {self.files.team} any more: {why}.")
        self.team = None
        self._show()
        self.stop()

    def _show(self) -> None:
        """Has teammates be found by name, from inside this session alone (02.9)."""
        shown: set[str] = set()
        if self.team is not None:
            inside = {seat.name for seat in self.enlisted.values()}  # found as agents, which is nearer (02.9)
            for member in self.team.members:
                if member.name in inside:
                    continue
                candidate = teams.candidate(self.team, member)
                shown.add(candidate.identity)
                if self._index.get(candidate.identity) != candidate:
                    self._index.add(candidate)
        for identity in self._shown - shown:
            self._index.remove(identity, local=True)
        self._shown = shown

    def rows(self) -> list[Row]:
        """The other members, for a listing (01.29). What each does is its own claim."""
        if self.team is None:
            return []
        inside = {seat.name for seat in self.enlisted.values()}  # they have rows as agents
        return [
            Row(
                identity=self.team.identity(member),
                name=member.name,
                kind="teammate",
                state="stopped"
                if member.evicted_at is not None
                else "idle"
                if member.active is False
                else "busy",
                type="" if member.lead else member.type,
                cwd=member.cwd,
                seen_at=member.joined_at,
                confirms="written",
            )
            for member in self.team.members
            if member.name != self.name and member.name not in inside
        ]

    # ── arriving ─────────────────────────────────────────────────────────────────────────────────

    async def _take(self) -> None:
        """Takes what the own mailbox holds, as far as there is room (07.5)."""
        session = self.session
        snapshot = await self.mailbox.look()
        if snapshot.copy:
            session.found(f"The mailbox of {self.name} was damaged; a copy of it is kept as {snapshot.copy}.")
        if count := len(snapshot.quarantined):
            entries, were = ("entry", "was") if count == 1 else ("entries", "were")
            session.found(
                f"{count} {entries} in the mailbox of {self.name} could not be used and {were} moved aside."
            )
        if snapshot.problem:
            self._problem(f"The mailbox of {self.name}: {snapshot.problem}")
        items = [item for item in snapshot.items if item.entry is not None and item.key not in self._handed]
        read = [(item.entry.from_, frame_text.parse(item.entry.text)) for item in items if item.entry]
        stale = roles.superseded(read)
        room = self._room()
        taken: list[str] = []
        messages: list[tuple[str, Message]] = []
        before = self.requests
        steps: list[Callable[[], None]] = []
        for place in roles.urgent_first(read):
            item, (outer, frame) = items[place], read[place]
            entry = item.entry
            assert entry is not None
            if entry.read or place in stale:
                taken.append(item.key)
                continue
            if len(messages) >= room:
                break
            text = self._judged(item, outer, frame, steps)
            if text is None:
                taken.append(item.key)
            else:
                messages.append((item.key, self._message(item, entry, text)))
        complete = len(taken) + len(messages) == len(items)
        try:
            taken += self._keep(messages)
        except BaseException:
            self.requests = before  # nothing has come: it comes again
            raise
        for step in steps:
            step()
        if taken:
            await self.mailbox.drop(taken)
        self._seen = (self._seen[0], self.mailbox.mark() if complete else None)

    def _room(self) -> int:
        """How many messages the receiver takes now (03.64)."""
        return self.session.standing.limits.max_unread - self.session.store.unread

    def _keep(self, messages: Sequence[tuple[str, Message]]) -> list[str]:
        """Gives the receiver its messages, each with the key of its entry; returns the keys of the entries that may go.

        They are durable when it returns: only then may entries go (07.5). Raises StoreFailed, with nothing kept.
        """
        if messages:
            self.session.take_in([message for _, message in messages])
        return [key for key, _ in messages]

    def _judged(
        self, item: Item, outer: str, frame: Frame | Malformed | None, steps: list[Callable[[], None]]
    ) -> str | None:
        """The text that a model reads of an entry; None where it reads nothing. What else is to be done goes to `steps`."""
        assert item.entry is not None
        if frame is None:
            return item.entry.text
        msg_id = id_of(item)
        if isinstance(frame, Malformed):
            self.session.journal(msg_id, "refused", f"frame: {frame.reason}", outer)
            return None
        verdict = roles.judge(
            frame,
            outer=outer,
            me=self.name,
            members=self.members,
            requests=self.requests,
            mode=self.session.standing.mode,
        )
        if verdict.why is not None:
            self.session.journal(msg_id, "refused", f"{frame.type}: {verdict.why}", outer)
            return None
        self.requests = verdict.requests
        for note in verdict.notes:
            self.session.journal(msg_id, "accepted", f"{frame.type}: {note}", outer)
        if verdict.act:
            steps.append(partial(self._act, verdict, outer))
        return frames.words(verdict.frame) if verdict.show else None

    def _act(self, verdict: roles.Verdict, outer: str) -> None:
        """What a frame asks of the program."""
        frame, now = verdict.frame, self.session.now()
        match frame:
            case ShutdownRequest():
                self.departures[self.name] = Departure(
                    member=self.name, request_id=frame.request_id, since=now
                )
            case ShutdownApproved():
                self._step(outer, "approved", now)
            case ShutdownRejected():
                self._step(outer, "rejected", now)
            case _:
                pass
        if self.acted is not None:
            try:
                self.acted(verdict)
            except Exception as error:
                self.session.log(f"the host's answer to {frame.type} raised {type(error).__name__}")

    def _step(self, member: str, state: str, now: int) -> None:
        present = self.departures.get(member)
        after = None if present is None else departed(present, state, now)  # pyright: ignore[reportArgumentType]
        if after is not None:
            self.departures[member] = after

    def _message(self, item: Item, entry: Entry, text: str) -> Message:
        """An entry as a message of this session: claimed, because any program of this user can write one (07.4)."""
        now = self.session.now()
        member = None if self.team is None else self.team.member(entry.from_)
        identity = f"{entry.from_}@{self.files.team}"
        if self.team is not None and member is not None:
            identity = self.team.identity(member)
        return Message(
            msg_id=id_of(item),
            text=text,
            origin=Origin(
                kind="lead" if entry.from_ == LEAD else "teammate",
                identity=f"mailbox:{identity}",
                name=entry.from_,
                transport="mailbox",
            ),
            received_at=now,
            summary=entry.summary,
            sent_at=entry.timestamp,
            state="accepted",
        )

    # ── leaving ──────────────────────────────────────────────────────────────────────────────────

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
            return refusal("mailbox_write_failed", name=target.name, reason=_sentence(error).rstrip("."))
        if team is None or team.identified(target.identity) is None:
            return refusal("team_member_changed", name=target.name)
        requests = self.requests
        text = draft.text
        frame: Frame | None = None
        if draft.record is not None:
            made = forms.outgoing(
                draft.record,
                me=self.name,
                to=target.name,
                members=self.members,
                requests=requests,
                now=session.now(),
            )
            if isinstance(made, Refusal):
                return made
            frame, requests, text = made.frame, made.requests, frame_text.encode(made.frame)
        assert text is not None, "a bare subscription to a teammate is refused before"
        summary = draft.summary or (SUMMARY.format(type=frame.type) if frame is not None else None)
        answer = await self._written(target.name, target.identity, text, summary, msg_id)
        if isinstance(answer, Refusal):
            return answer
        now = session.now()
        if frame is not None:
            self.requests = requests
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

    async def turn_ended(self, words: str = "", *, failed: str | None = None) -> None:
        """Tells the lead that a member's turn has ended (07.20). The lead tells nobody."""
        if self.lead or self.team is None:
            return
        frame = IdleNotification(
            from_=self.name,
            timestamp=stamp(self.session.now()),
            idle_reason="failed" if failed else "available",
            summary=words[:200] or None,
            failure_reason=failed,
        )
        await self.mail(LEAD, frame_text.encode(frame), summary=SUMMARY.format(type=frame.type))

    # ── going ────────────────────────────────────────────────────────────────────────────────────

    async def _send_off(self) -> None:
        """Sees to it that who approved to go is gone in time (07.18): the lead ends it; a member goes by itself."""
        now = self.session.now()
        for name, departure in list(self.departures.items()):
            if departure.state in ("rejected", "gone", "ended"):
                del self.departures[name]
            elif name == self.name and departure.state == "approved":
                self._step(name, "gone", now)
                await self.leave("shutdown")
            elif self.lead and (self.team is None or self.team.member(name) is None):
                self._step(name, "gone", now)
            elif self.lead and overdue(departure, now):
                self._step(name, "ended", now)
                await self._remove(name, "shutdown")

    async def _remove(self, name: str, why: teams.Why) -> None:
        """Takes a member out of the team. What lies unread in its mailbox is reported to the lead (07.22)."""
        at = self.session.now()

        def step(team: Team | None) -> Team | None:
            member = None if team is None else team.member(name)
            return (
                None
                if team is None or member is None
                else teams.without(team, team.identity(member), at, why)
            )

        await asyncio.to_thread(self.files.change, step)
        if self.lead:
            left = len((await self.mailbox_of(name).look()).items)
            if left:
                messages = f"{left} {'message' if left == 1 else 'messages'}"
                self.session.found(f"{name} has left the team; {messages} in its mailbox will not be read.")
        await self._read()

    async def leave(self, why: teams.Why = "left") -> None:
        """This member leaves its team (07.22). Raises what writing the config raises."""
        await self._remove(self.name, why)
        self.stop()

    def stop(self) -> None:
        """Looks no more. What lies in the mailbox stays there."""
        self._closed = True
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        for box in self._boxes.values():
            box.close()

    async def close(self) -> None:
        """The session ends: a member leaves; a lead takes its team's folder away, never the tasks (07.22)."""
        for seat in self.enlisted.values():
            seat.stop()
        if self._closed:
            return
        try:
            async with self._looking:
                if self.team is not None and not self.session.moves:
                    if self.lead:
                        await asyncio.to_thread(self.files.remove)
                    else:
                        await self.leave()
        except (PostroomError, NotLocked, OSError) as error:
            self.session.log(f"leaving the team failed: {_sentence(error)}")
        self.team = None
        self._show()
        self.stop()


def id_of(item: Item) -> str:
    """The id of an entry as a message: its own, or one made of the key by which it is known (07.4)."""
    entry = item.entry
    if entry is not None and entry.msg_id is not None and wire.is_id(entry.msg_id):
        return entry.msg_id
    return f"mailbox-{sha256(item.key.encode()).hexdigest()[:32]}"


def _sentence(error: BaseException) -> str:
    """What went wrong, as a sentence for a person."""
    return error.message if isinstance(error, PostroomError) else f"{error}."
