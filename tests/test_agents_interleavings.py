"""Agents, their lists and their resumes under every order of events: what is accepted arrives once, or its sender hears of it.

A machine of Hypothesis plays a host: it sends, stops, restarts, evicts, drains, gives back, cancels and crashes, and
chooses which callback of the loop runs next (`stepping`). The host's `resume` starts runs at once, late or not at all, raises,
hangs past its deadline, swallows its cancellation. What it did is judged at the end, against what each party saw.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from postroom import (
    Agent,
    Agents,
    AgentStopped,
    BadUsage,
    Batch,
    Gathering,
    Hooks,
    LifecycleEvent,
    PostroomError,
    Receipt,
    Refusal,
    Session,
    Veto,
    open_in_memory,
)
from postroom.core.queues import Entry
from postroom.core.runs import Life
from postroom.core.settings import Limits
from postroom.opening import new_id
from tests.stepping import Stepping

NAMES = ("ada", "bob", "cyd", "kid")
"""The agents; `kid` belongs to `ada`."""

SESSION = "01890000-0000-7000-8000-000000000001"
START_SECONDS = 30.0

RESUMES = ("plain", "late", "hang", "swallow", "raise", "raise after", "inside", "inside then raise", "bare")
SCRIPT = ("drain", "give back", "pause", "nap", "wait", "progress", "send", "fail")
HOOKS = ("well", "no", "raise", "slow", "hang")

Picks = st.lists(st.integers(0, 7), min_size=2, max_size=16)
Scripts = st.lists(st.sampled_from(SCRIPT), max_size=5).map(tuple)


class Boom(Exception):
    """What a host's code raises."""


@dataclass
class Sent:
    """One message as its sender knows it."""

    sender: str
    target: str
    number: int
    msg_id: str = ""
    outcome: str = "under way"
    void: bool = False


@dataclass
class World:
    """What happened, as an onlooker saw it; it outlives the process."""

    sent: dict[str, Sent] = field(default_factory=dict[str, Sent])
    read: dict[str, list[Entry]] = field(default_factory=dict[str, list[Entry]])
    lost: Counter[str] = field(default_factory=Counter[str])
    notices: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    handed: dict[tuple[str, int], tuple[Entry, ...]] = field(
        default_factory=dict[tuple[str, int], tuple[Entry, ...]]
    )
    flights: list[object] = field(default_factory=list[object])
    runs: dict[str, int] = field(default_factory=dict[str, int])
    finished: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    confirmed: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    stopped: set[str] = field(default_factory=set[str])
    faults: list[str] = field(default_factory=list[str])

    def expect(self, holds: bool, what: str) -> None:
        """Notes a fault, wherever the code that sees it may run."""
        if not holds:
            self.faults.append(what)

    def reads(self, reader: str, entries: Sequence[Entry]) -> None:
        self.read.setdefault(reader, []).extend(entries)

    def returns(self, reader: str, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.read[reader].remove(entry)


class Watched(Agents):
    """The agents, and an onlooker."""

    def __init__(self, world: World, session: Session, **options: Any) -> None:
        self.world = world
        super().__init__(session, start_seconds=START_SECONDS, **options)

    def started(self, agent: Agent) -> None:
        world, key = self.world, (agent.id, agent.run)
        world.expect(agent.id not in world.stopped, f"{agent} runs though the user has stopped it")
        world.expect(world.runs.get(agent.id, 0) < agent.run, f"{agent}: its run numbers do not rise")
        world.runs[agent.id] = agent.run
        world.reads(agent.id, world.handed[key])
        super().started(agent)

    def keep(self, agent: Agent, life: Life, *, sync: bool = True) -> None:
        new = [(one.task_id, one.run) for one in life.owed if one not in agent.life.owed]
        super().keep(agent, life, sync=sync)
        self.world.finished.update(new)

    def dropped(
        self, agent: Agent, entries: Sequence[Entry], why: Refusal, awaited: frozenset[str] = frozenset()
    ) -> None:
        world = self.world
        for entry in entries:
            kind, sender = entry.origin.kind, entry.origin.identity
            if kind == "system":
                world.notices.pop((agent.id, entry.in_reply_to or ""), None)
            elif entry.task is None and entry.msg_id not in awaited:
                world.lost[entry.msg_id] += 1
                speaker = self.get(sender) if kind == "agent" else None
                if kind == "coordinator" or (speaker is not None and speaker.state == "live"):
                    world.notices["main" if kind == "coordinator" else sender, entry.msg_id] += 1
        super().dropped(agent, entries, why, awaited)


class Life1:
    """One life of the process: a loop, a session in it, its agents and its host."""

    def __init__(self, world: World, folder: str) -> None:
        self.world = world
        self.loop = Stepping()
        self.plans: list[tuple[str, tuple[str, ...]]] = []
        self.guards: list[str] = []
        self.created: list[str] = []
        self.completed: list[str] = []
        self.senders: list[asyncio.Task[None]] = []
        self.hosts: list[asyncio.Task[None]] = []
        self.batches: list[Batch] = []
        self._stack = contextlib.AsyncExitStack()
        ids = iter([SESSION])
        self.session = self.loop.finish(self._open(folder, ids))
        self.agents = self.loop.within(
            lambda: Watched(
                world,
                self.session,
                resume=self.resume,
                guard=self.guard,
                hooks=Hooks(task_created=self.on_created, task_completed=self.on_completed),
            )
        )
        self.observer = self.loop.within(self.agents.observe)

    async def _open(self, folder: str, ids: Iterator[str]) -> Session:
        session = await self._stack.enter_async_context(
            open_in_memory(
                "lead",
                Gathering(),
                limits=Limits.unbounded(),
                clock=lambda: int(self.loop.time() * 1000),
                ids=lambda: next(ids, "") or new_id(),
            )
        )
        session.folder = folder
        return session

    # ── the host ─────────────────────────────────────────────────────────────────────────────────

    def host(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self.hosts.append(task)
        return task

    async def say(self, sender: str, target: str) -> None:
        """Sends one message; its number is given when the sending begins."""
        number = len(self.world.sent)
        text = f"{sender} to {target}, {number}"
        record = self.world.sent[text] = Sent(sender, target, number)
        try:
            if sender == "main":
                answer = await self.session.send(target, text, summary="s")
            else:
                agent = self.agents.get(sender)
                assert agent is not None
                answer = await agent.send(target, text, summary="s")
        except asyncio.CancelledError:
            record.outcome = "cancelled"
            raise
        except PostroomError as error:
            record.outcome = error.code
            return
        record.outcome = answer.status if isinstance(answer, Receipt) else answer.code
        record.msg_id = answer.msg_id or ""

    async def resume(self, agent: Agent, messages: Batch) -> None:
        world, number = self.world, agent.run
        world.expect(agent.id not in world.stopped, f"{agent} is resumed though the user has stopped it")
        world.expect(agent.flight is not None, f"{agent} is resumed without a flight")
        world.expect(agent.flight not in world.flights, f"{agent} is resumed twice by one flight")
        world.flights.append(agent.flight)
        world.handed[agent.id, number] = tuple(one for one in messages.entries if isinstance(one, Entry))
        how, script = self.plans.pop(0) if self.plans else ("plain", ("drain",))
        if how == "raise":
            await asyncio.sleep(0)
            raise Boom
        if how == "bare":
            await agent.finish("completed", result="bare")
            return
        if how == "late":
            await asyncio.sleep(START_SECONDS / 2)
        elif how == "hang":
            await asyncio.sleep(START_SECONDS * 2)
        elif how == "swallow":
            try:
                await asyncio.sleep(START_SECONDS * 2)
            except asyncio.CancelledError:
                await asyncio.sleep(1)
        if how.startswith("inside"):
            await self.run(agent, number, script)
        else:
            self.host(self.run(agent, number, script))
        if how in ("raise after", "inside then raise"):
            await asyncio.sleep(0)
            raise Boom

    async def run(self, agent: Agent, number: int, script: Sequence[str]) -> None:
        """One run of an agent's loop."""
        with contextlib.suppress(AgentStopped, Boom, Veto):
            async with agent.running(number) as run:
                for what in script:
                    if agent.run != number or agent.state != "live":
                        return
                    await self.do(agent, what)
                run.result = f"the end of run {number}"

    async def do(self, agent: Agent, what: str) -> None:
        world = self.world
        if what == "fail":
            raise Boom
        if what in ("drain", "give back"):
            batch = agent.drain()
            entries = [one for one in batch.entries if isinstance(one, Entry)]
            world.reads(agent.id, entries)
            if what == "give back":
                await asyncio.sleep(0)
                world.returns(agent.id, entries)
                batch.release()
        elif what == "wait":
            await agent.wait(4)
        elif what == "progress":
            agent.progress("on the way")
        elif what == "send":
            target = NAMES[(NAMES.index(agent.name) + 1) % len(NAMES)]
            await self.say(agent.name, target)
        await asyncio.sleep(3 if what == "nap" else 0)

    async def guard(self, agent: Agent) -> str | None:
        how = self.guards.pop(0) if self.guards else "well"
        if how == "raise":
            raise Boom
        if how in ("slow", "hang"):
            await asyncio.sleep(3 if how == "slow" else 1000)
        return "it may not" if how == "no" else None

    async def on_created(self, event: LifecycleEvent) -> None:
        await self._hook(self.created)

    async def on_completed(self, event: LifecycleEvent) -> None:
        await self._hook(self.completed)

    async def _hook(self, plans: list[str]) -> None:
        how = plans.pop(0) if plans else "well"
        if how == "raise":
            raise Boom
        if how in ("slow", "hang"):
            await asyncio.sleep(3 if how == "slow" else 1000)
        if how == "no":
            raise Veto("not now")

    # ── what the machine does ────────────────────────────────────────────────────────────────────

    def agent(self, name: str) -> Agent:
        agent = self.agents.get(name)
        assert agent is not None
        return agent

    async def stop(self, name: str, by_user: bool) -> None:
        agent = self.agent(name)
        await self.agents.stop(agent, by_user=by_user)
        if by_user:
            self.world.stopped.add(agent.id)

    def restart(self, name: str) -> None:
        agent = self.agent(name)
        self.world.stopped.discard(agent.id)
        self.agents.restart(agent)

    def evict(self, name: str) -> None:
        with contextlib.suppress(BadUsage):
            self.agents.evict(self.agent(name))

    def took(self, batch: Batch) -> None:
        self.world.reads("main", own(batch))
        self.batches.append(batch)

    def confirm(self, batch: Batch) -> None:
        self.batches.remove(batch)
        batch.confirm()
        for entry in own(batch):
            if entry.task is not None and entry.task.status != "running":
                self.world.confirmed.add((entry.task.task_id, entry.task.run))

    def release(self, batch: Batch) -> None:
        self.batches.remove(batch)
        self.world.returns("main", own(batch))
        batch.release()

    def end(self, *, crash: bool = False) -> None:
        """Ends the session, in order; or rids the test of a process that has crashed."""
        loop = self.loop
        if loop.is_closed():
            return
        if crash:
            while loop.left():
                loop.within(lambda: [task.cancel() for task in loop.left()])
                loop.settle(seconds=2000)
        loop.finish(self._stack.aclose())
        loop.settle(seconds=2000)
        left, complaints = loop.left(), loop.complaints
        loop.close()
        if not crash:
            assert not left, f"tasks are left: {left}"
            assert not complaints, complaints


def own(batch: Batch) -> list[Entry]:
    return [one for one in batch.entries if isinstance(one, Entry)]
