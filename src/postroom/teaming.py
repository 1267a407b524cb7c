"""A session's place in a team: whom it may write to there, what its mailbox brings, what it has open (chapter 07).

`Teaming` is one place, the lead's or a member's. It looks at two files, the team's config and its own mailbox, once a second
(twice for a headless lead, 07.11) and no more often than that: a look at a file that has not changed costs one `lstat`.

SENDING is `mailing`'s: `deliver` is what `sending` calls for a teammate.

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

from postroom.core import frame_text, frames, roles, wire
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
from postroom.core.message import Message, Origin
from postroom.core.requests import Departure, Requests, departed, forgotten, overdue
from postroom.core.times import stamp
from postroom.mailing import SUMMARY, Mailing, sentence_of
from postroom.transports.mailbox import Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroom.core.frames import Frame
    from postroom.core.index import Index
    from postroom.core.mailfile import Item
    from postroom.core.requests import DepartureState
    from postroom.core.team import Team
    from postroom.session import Session
    from postroom.state.tasklist import TaskList
    from postroom.state.team_files import TeamFiles

__all__ = ["Teaming"]

LOOK_SECONDS = 1.0
"""How often a lead or a member with a person before it looks (07.10)."""

HEADLESS_SECONDS = 0.5
"""How often a headless lead looks while it has members (07.11)."""


class Teaming(Mailing):
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
        self._enlisted: dict[str, Teaming] = {}
        self.mailbox = Mailbox(files.inboxes, name, shared=files.shared)
        self._index: Index = session.directory.own_index()
        self._shown: set[str] = set()
        self._boxes: dict[str, Mailbox] = {name: self.mailbox}
        self.seconds = HEADLESS_SECONDS if headless and self.lead else LOOK_SECONDS
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

    @property
    def enlisted(self) -> dict[str, Teaming]:
        """The agents inside this session that are members: their places, by their ids (07.9)."""
        return self._enlisted

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
            except Exception as error:  # whatever it is, the next look may do better
                self._problem(f"The team {self.files.team} could not be looked at: {sentence_of(error)}")
            await asyncio.sleep(self.seconds)

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
                await self._part()
                await self._send_off()
                await self._part()

    async def _part(self) -> None:
        """Parts from who has left, once what it wrote before that was read: no request of its is open any more.

        What lies unread in its mailbox is reported to the lead, and to nobody else (07.22).
        """
        gone, self._leaving = self._leaving, set()
        for name in gone:
            self.requests = forgotten(self.requests, name)
            left = len((await self.mailbox_of(name).look()).items) if self.lead else 0
            if left:
                messages = f"{left} {'message' if left == 1 else 'messages'}"
                self.session.found(f"{name} has left the team; {messages} in its mailbox will not be read.")

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
        # What came since it was read may be in the file by now: only as it was read has it been seen.
        self._seen = (self._seen[0], snapshot.mark if complete and not taken else None)

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

    def _step(self, member: str, state: DepartureState, now: int) -> None:
        present = self.departures.get(member)
        after = None if present is None else departed(present, state, now)
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
        except Exception as error:  # the session ends all the same
            self.session.log(f"leaving the team failed: {sentence_of(error)}")
        self.team = None
        self._show()
        self.stop()


def id_of(item: Item) -> str:
    """The id of an entry as a message: its own, or one made of the key by which it is known (07.4)."""
    entry = item.entry
    if entry is not None and entry.msg_id is not None and wire.is_id(entry.msg_id):
        return entry.msg_id
    return f"mailbox-{sha256(item.key.encode()).hexdigest()[:32]}"
