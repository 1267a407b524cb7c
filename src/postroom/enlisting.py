"""Agents inside a session that are members of its team: their mail, and the tasks that they take up (07.9, 07.23).

    seat = await enlist(agents, agent)

An enlisted agent has a mailbox as any member, under its own name. While its loop waits it looks twice a second, in this
order: what its list holds comes first; then its mail, a request to shut down before what is older; then the oldest shared
task that nobody has, which it claims.

What comes by mail goes into the agent's list, and its entry stays in the file until the loop has drained it: a crash loses
nothing, and brings what was drained at that moment again. Mail to one whose run has ended resumes it as any message does.

What it never does: take a task for an agent that the user has stopped, or that has something to do.

Weak: a turn that is shorter than half a second, with nothing taken in it, is told to the lead together with the next one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from postroom.core import frame_text
from postroom.core.address import LEAD
from postroom.core.message import Origin
from postroom.core.queues import CAPACITY, Entry
from postroom.core.tasks import Claimed
from postroom.core.team import Joined, Member, check_member_name, founded, joined, rebuilt, team_name
from postroom.errors import BadUsage
from postroom.joining import own_files, take_lead
from postroom.teaming import Teaming, id_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.agent import Agent
    from postroom.agents import Agents
    from postroom.core.message import Message
    from postroom.core.team import Team, Why

__all__ = ["Enlisted", "enlist"]

TURN_SECONDS = 0.5
"""How often an idle teammate inside the lead's process looks (07.9)."""

TASK = """You have taken up the shared task #{id}: {subject}

{description}

When it is done, set its status to completed (TaskUpdate); if it cannot be done, say so to team-lead."""


class Enlisted(Teaming):
    """The place of an agent inside the lead's process.

    Args:
        chief: the lead's place.
        agents: who keeps the agent.
        agent: the agent.
        name: its name in the team.
    """

    def __init__(self, chief: Teaming, agents: Agents, agent: Agent, name: str) -> None:
        super().__init__(chief.session, chief.files, chief.tasks, name)
        self.agents = agents
        self.agent = agent
        self._chief = chief
        self.seconds = TURN_SECONDS
        self._turn = agent.seen_at
        self._tasks_seen: object = None

    def _show(self) -> None:
        """Its lead shows the team."""

    async def look(self) -> None:
        """Looks, where the agent has nothing else to do (07.9)."""
        await self._settle()
        if self.files.mark() != self._seen[0]:
            async with self._looking:
                await self._read()
        agent = self.agent
        if self.team is None or agent.waiting or agent.flight is not None or not self.agents.can_take(agent):
            return
        if agent.resting and agent.seen_at != self._turn:
            self._turn = agent.seen_at
            await self.turn_ended()
        if agent.resting or agent.state != "live":
            await super().look()
        if agent.resting and not agent.waiting:
            await self._take_up()

    async def _settle(self) -> None:
        """Lets go of the entries that the agent's loop has drained (07.5)."""
        if not self._handed:
            return
        waiting = {entry.msg_id for entry in self.agent.pending.peek()}
        flying = self.agent.flight is not None
        drained = [key for key, msg_id in self._handed.items() if msg_id not in waiting and not flying]
        if drained:
            await self.mailbox.drop(drained)
            for key in drained:
                self._handed.pop(key, None)

    async def discard_stale(self) -> None:
        """Throws away the frames that an earlier life has left: what they were about is over (02.25)."""
        stale = [
            item
            for item in (await self.mailbox.look()).items
            if item.entry is not None and frame_text.parse(item.entry.text) is not None
        ]
        for item in stale:
            self.session.journal(id_of(item), "refused", "frame: of an earlier life")
        if stale:
            await self.mailbox.drop([item.key for item in stale])

    def _room(self) -> int:
        return CAPACITY - self.agent.waiting

    def _keep(self, messages: Sequence[tuple[str, Message]]) -> list[str]:
        """Puts messages into the agent's list; their entries stay until it has drained them."""
        for key, message in messages:
            entry = Entry(
                message.msg_id,
                message.text,
                message.origin,
                at=message.received_at,
                summary=message.summary,
            )
            self._handed[key] = message.msg_id
            self.agents.hand(self.agent, entry)
        return []

    async def _take_up(self) -> None:
        """Claims the oldest task that nobody has, and puts it before the agent (07.9, 07.23)."""
        if not self.session.standing.settings.claim_tasks:
            return
        mark = await asyncio.to_thread(self.tasks.mark)
        if mark == self._tasks_seen:
            return
        claimed = await asyncio.to_thread(self.tasks.claim_next, self.name)
        if not isinstance(claimed, Claimed):
            self._tasks_seen = mark
            return
        task = claimed.task
        entry = Entry(
            self.session.new_id(),
            TASK.format(id=task.id, subject=task.subject, description=task.description).rstrip(),
            Origin(kind="lead", identity=f"mailbox:{LEAD}@{self.files.team}", name=LEAD, transport="queue"),
            at=self.session.now(),
            summary=f"task {task.id}",
        )
        self.agents.hand(self.agent, entry)

    async def leave(self, why: Why = "left") -> None:
        """It is a member no more; its agent is stopped, as nothing tells it what to do."""
        await super().leave(why)
        self._chief.enlisted.pop(self.agent.id, None)
        if self.agent.state == "live":
            await self.agents.stop(self.agent, by_user=False)


async def enlist(agents: Agents, agent: Agent) -> Enlisted:
    """Makes an agent a member of its session's own team, under the agent's name (07.22).

    Args:
        agents: who keeps it.
        agent: it is live or stopped; its name must be one that a member can have.

    Returns its place. Raises BadUsage where it is a member already or its session is another one's teammate, InvalidName,
    and what writing the team raises.
    """
    session = agents.session
    name = check_member_name(agent.name)
    if session.team is not None and agent.id in session.team.enlisted:
        raise BadUsage(f"{agent.name} is a member already.", "Use the place that `enlist` returned for it.")
    if session.team is not None and not session.team.lead:
        raise BadUsage("This session is a member of another one's team.", "Run `postroom team leave` first.")
    files, done = own_files(session), list[Joined]()
    # Before: it says of all that lived in an earlier process that they were evicted.
    chief = session.place or await take_lead(session)
    wanted = Member(name=name, type=agent.type, pane="in-process", backend="in-process", active=True)

    def step(team: Team | None) -> Team:
        at = session.now()
        team = team or founded(team_name(session.id), at, lead_session_id=session.id)
        present = team.member(name)
        if present is not None and present.in_process:  # of an earlier life of this session: the same one
            back = rebuilt(team, team.identity(present)) or team
            done[:] = [Joined(back, present, "", ())]
        else:
            done[:] = [joined(team, wanted, at)]
        return done[0].team

    await asyncio.to_thread(files.change, step)
    seat = Enlisted(chief, agents, agent, done[0].member.name)
    await seat.discard_stale()
    chief.enlisted[agent.id] = seat
    await chief.look()
    await seat.look()
    seat.begin()
    return seat
