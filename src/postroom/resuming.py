"""Resuming a stopped agent: one flight at a time, which every send that comes meanwhile joins (02.27, 06.13).

A flight asks, in this order: the host's guard, what lies on disk of the agent, a `task_created` hook, and then the host's
own `resume`, which has `start_seconds` to say that the run has started, by returning. Any of them may end it; then
whoever joined is told why, each for his own message, and the agent is as stopped as it was before. An agent is never made anew
under an old name (02.26).

What joined waits in the agent's pending list and is not handed out before the run has started. The entries that were
there when `resume` was called are its messages; what joined later is drained by the run. A run that is entered
(`Agent.running`) before `resume` has returned says so by that.

A `resume` that hangs is cancelled, where it can be, and what it comes to afterwards is ignored: its run finds the agent
stopped.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from postroom import calling
from postroom.agent import BEGUN
from postroom.batch import Batch
from postroom.core import runs
from postroom.core.message import Refusal
from postroom.core.queues import begins_a_run
from postroom.core.refusals import refusal
from postroom.errors import PostroomError
from postroom.lifecycle import Veto
from postroom.state.agent_files import Unusable

if TYPE_CHECKING:
    from postroom.agent import Agent
    from postroom.agents import Agents
    from postroom.core.queues import Entry
    from postroom.core.runs import AgentState

__all__ = ["RESUME_SECONDS", "Flight"]

RESUME_SECONDS = 30.0
"""How long a `resume` has to say that the run has started (06.13)."""

ALLOW_SECONDS = 30.0
"""How long a guard may take: what does not answer has not allowed it (06.13)."""


UNWRITTEN = {
    "store_failed": "its metadata could not be written, for a full disk or worse",
    "unfit_path": "its metadata could not be written, because its folder is unfit",
}
"""Why, by the code of an error: a model is shown no path (01.30)."""


class Failed(Exception):
    """The flight ends: why, in words for whoever sent."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Flight:
    """One resume of one agent.

    Attributes:
        over: done once it is known how it ended: None where the run has started, else the refusal.
        ended: done once the run that it starts has ended: how, and with which final text; None before it begins.
    """

    def __init__(self, host: Agents, agent: Agent) -> None:
        self.over: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        self._host = host
        self._agent = agent
        self._before = agent.life
        self._begun = False
        self._awaited: set[str] = set()
        self._handed: list[Entry] = []
        self.ended: asyncio.Future[tuple[AgentState, str | None]] | None = None
        # In the host's own context: what it begins is bound to this run, and not to that of whoever sent.
        self._task = asyncio.get_running_loop().create_task(self._fly(), context=host.context.copy())
        self._task.add_done_callback(self._fell)

    def holds(self, msg_id: str) -> bool:
        """Whether this message was handed to `resume`."""
        return any(entry.msg_id == msg_id for entry in self._handed)

    def left(self, msg_id: str) -> None:
        """Nobody waits any more for what becomes of this message."""
        self._awaited.discard(msg_id)

    def expect(self, msg_id: str) -> None:
        """A message has joined, whose sender will be told by what `joined` returns; from this instant on."""
        self._awaited.add(msg_id)

    async def joined(self, msg_id: str, *, told: bool = True) -> Refusal | None:
        """Waits until it is known. Whoever stops waiting has joined all the same.

        Args:
            msg_id: of the message that joined; its sender is told by what this returns.
            told: whether anybody hears what this returns; if not, a notice tells the sender.
        """
        if told:
            self.expect(msg_id)
        try:
            return await asyncio.shield(self.over)
        finally:
            self._awaited.discard(msg_id)

    def said(self) -> None:
        """The run says itself that it has started."""
        self._land(None)

    def cancel(self, why: Refusal) -> None:
        """Ends it from outside: the agent was stopped, or the session ends."""
        if not self.over.done():
            self._land(why)
            self._task.cancel()

    async def _fly(self) -> None:
        agent = self._agent
        try:
            await self._check()
            await self._start()
        except Failed as failed:
            self._land(refusal("resume_failed", name=agent.name, reason=failed.reason))
        except PostroomError as error:
            self._host.log(f"resuming {agent.id} failed: {error.message}")
            self._land(
                refusal(
                    "resume_failed",
                    name=agent.name,
                    reason=UNWRITTEN.get(error.code, "this program failed to"),
                )
            )
        except Exception as error:
            self._host.log(f"resuming {agent.id} failed: {type(error).__name__}: {error}")
            self._land(refusal("resume_failed", name=agent.name, reason="this program failed to"))
        else:
            self._land(None)

    def _fell(self, task: asyncio.Task[None]) -> None:
        """Its task has ended, however it did: whoever joined is told."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._host.log(f"resuming {self._agent.id} failed: {type(error).__name__}")
        self._land(refusal("resume_failed", name=self._agent.name, reason="it was taken back"))

    async def _check(self) -> None:
        """Everything that may refuse before the host is asked to start the run."""
        host, agent = self._host, self._agent
        if host.guard is not None:
            try:
                reason = await calling.call(host.guard, agent, seconds=ALLOW_SECONDS)
            except Exception as error:
                host.log(f"the guard of a resume raised {calling.named(error)}")
                raise Failed("whether it may be resumed could not be found out") from None
            if reason is not None:
                raise Failed(str(reason) or "its guard does not allow it")
        try:
            life, rebuilt = await asyncio.to_thread(host.kept, agent.id)
        except Unusable as flaw:
            raise Failed(flaw.reason) from None
        before = self._before
        if (life.name, life.runs, life.stopped_by_user) != (before.name, before.runs, before.stopped_by_user):
            raise Failed("its metadata is not what this session wrote")
        agent.voice.recipients.restore(rebuilt.pins)
        try:
            await host.ask("task_created", agent, run=agent.run + 1)
        except Veto as veto:
            raise Failed(f"a hook does not allow it: {veto.reason}") from None

    async def _start(self) -> None:
        """Begins the next run, and calls the host."""
        host, agent = self._host, self._agent
        life = runs.resumed(agent.life, host.session.now())
        if life is None:
            raise Failed("it was stopped meanwhile")
        if (
            host.background and not life.background
        ):  # nobody else waits for the end of a run that a message began
            life = replace(life, background=True)
            agent.may_write_to_main(host.main_target)
        host.keep(agent, life)
        self._begun = True
        waited = agent.pending.drain()
        entries = [entry for entry in waited if begins_a_run(entry)]
        host.gone_by(agent, [entry for entry in waited if not begins_a_run(entry)])
        self._handed = entries
        agent.took(entries)
        messages = Batch(entries, ids=host.session.new_id, release=self._give_back)
        self.ended = agent.ended_future()
        work = asyncio.get_running_loop().create_task(self._ask(messages))
        try:
            await asyncio.wait(
                {work, self.over}, timeout=host.start_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            work.cancel()
            raise
        finally:
            if not work.done():
                host.mind(work, agent)
        if self.over.done():
            if work.done():
                host.mind(work, agent)
            return
        if not work.done():
            work.cancel()
            seconds = f"{host.start_seconds:g}"
            host.log(f"resuming {agent.id}: no start within {seconds} s, taken back")
            raise Failed(f"it did not say within {seconds} s that its run had started")
        error = asyncio.CancelledError() if work.cancelled() else work.exception()
        if error is not None:
            what = calling.named(error)
            host.log(f"resuming {agent.id} raised {what}")
            raise Failed(f"its program raised {what}")

    def _give_back(self) -> None:
        """The host has no use for the messages yet: the run drains them, or they fail with the flight."""
        entries, self._handed = self._handed, []
        self._host.give_back(self._agent, entries)

    async def _ask(self, messages: Batch) -> None:
        """Calls the host, unless the flight was ended from outside in the meantime."""
        if self.over.done() and self.over.result() is not None:
            return
        assert self._host.resume is not None, "the route is refused where there is none"
        BEGUN.set({**BEGUN.get(), self._agent.id: self._agent.run})
        await calling.call(self._host.resume, self._agent, messages, seconds=None)

    def _land(self, why: Refusal | None) -> None:
        """It is known now: the agent runs, or is as stopped as it was, and nothing waits for it."""
        if self.over.done():
            return
        host, agent = self._host, self._agent
        agent.flight = None
        if why is None:
            host.started(agent)
            if self._handed:
                host.tell("message_drained", agent, count=len(self._handed))
        elif self._begun and agent.state == "live":
            # The number of the run is not given out again: what was begun may still come to life somewhere.
            before = self._before
            host.keep_anyhow(
                agent,
                replace(
                    agent.life,
                    state=before.state,
                    started_at=before.started_at,
                    ended_at=before.ended_at,
                    background=before.background,
                ),
            )
            agent.may_write_to_main(host.main_target if agent.background else None)
            agent.run_ended(None)
        if why is not None:
            # What the host had, and started no run with, ends with the rest that joined.
            left, self._handed = [*self._handed, *agent.pending.drain()], []
            host.dropped(agent, left, why, frozenset(self._awaited))
        self.over.set_result(why)
        agent.ring()

    def __repr__(self) -> str:
        return f"<Flight of {self._agent.name}, {'over' if self.over.done() else 'under way'}>"
