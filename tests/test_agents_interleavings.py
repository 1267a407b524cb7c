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

    def gone_by(self, agent: Agent, entries: Sequence[Entry]) -> None:
        for entry in entries:  # what its run was told of, and did not read before it ended
            self.world.notices.pop((agent.id, entry.in_reply_to or ""), None)
        super().gone_by(agent, entries)


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


class Machine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="pr-", dir="/tmp")
        self.folder = f"{self.root}/session"
        os.mkdir(self.folder, 0o700)
        self.world = World()
        self.life = Life1(self.world, self.folder)
        self.ids: dict[str, str] = {}
        self.broken = False

    @initialize(live=st.sets(st.sampled_from(NAMES)))
    def begin(self, live: set[str]) -> None:
        life = self.life
        for name in NAMES:
            owner = life.agent("ada") if name == "kid" else None
            agent = life.loop.finish(life.agents.start(name, agent_id=f"id-{name}", owner=owner))
            self.ids[name] = agent.id
            self.world.runs[agent.id] = 1
            if name not in live:
                life.loop.finish(agent.finish("completed", result="first"))

    # ── rules ────────────────────────────────────────────────────────────────────────────────────

    @rule(sender=st.sampled_from(("main", *NAMES)), to=st.sampled_from(NAMES), times=st.integers(1, 3))
    def send(self, sender: str, to: str, times: int) -> None:
        if sender != to:
            for _ in range(times):
                self.life.senders.append(self.life.loop.create_task(self.life.say(sender, to)))

    @rule(picks=Picks)
    def steps(self, picks: list[int]) -> None:
        for pick in picks:
            self.life.loop.step(pick)

    @rule(picks=Picks)
    def settle(self, picks: list[int]) -> None:
        self.life.loop.settle(picks)

    @rule()
    def time_goes_on(self) -> None:
        after = self.life.loop.next_timer
        if after is not None:
            self.life.loop.advance(after)

    @rule(
        how=st.sampled_from(RESUMES),
        script=Scripts,
        senders=st.lists(st.sampled_from(("main", *NAMES)), min_size=1, max_size=4),
        to=st.sampled_from(NAMES),
        picks=Picks,
    )
    def resume(
        self, how: str, script: tuple[str, ...], senders: list[str], to: str, picks: list[int]
    ) -> None:
        """Several write to one agent, and its resume goes as it is told; the machine comes in where the picks end."""
        self.life.plans.append((how, script))
        for sender in senders:
            self.send(sender, to, 1)
        self.steps(picks)

    @rule(
        name=st.sampled_from(NAMES),
        senders=st.lists(st.sampled_from(("main", *NAMES)), min_size=1, max_size=3),
    )
    def leave_unread(self, name: str, senders: list[str]) -> None:
        """A run ends with something in its list."""
        for sender in senders:
            self.send(sender, name, 1)
        self.life.loop.settle(seconds=20)
        for sender in senders:
            self.send(sender, name, 1)
        self.life.loop.settle()
        self.finish(name, "completed")

    @rule(which=st.sampled_from(("guards", "created", "completed")), how=st.sampled_from(HOOKS))
    def plan_hook(self, which: str, how: str) -> None:
        getattr(self.life, which).append(how)

    @rule(name=st.sampled_from(NAMES), script=Scripts)
    def run(self, name: str, script: tuple[str, ...]) -> None:
        agent = self.life.agent(name)
        if agent.flight is None:  # the run of a flight is the host's `resume`'s to begin
            self.life.host(self.life.run(agent, agent.run, script))

    @rule(name=st.sampled_from(NAMES), status=st.sampled_from(("completed", "failed", "killed")))
    def finish(self, name: str, status: Any) -> None:
        async def work() -> None:
            agent = self.life.agent(name)
            if agent.flight is None:
                with contextlib.suppress(Veto):
                    await agent.finish(status)

        self.life.host(work())

    @rule(which=st.integers(0, 9), host=st.booleans())
    def cancel(self, which: int, host: bool) -> None:
        tasks = [one for one in (self.life.hosts if host else self.life.senders) if not one.done()]
        if tasks:
            self.life.loop.within(tasks[which % len(tasks)].cancel)

    @rule(name=st.sampled_from(NAMES), by_user=st.booleans())
    def stop(self, name: str, by_user: bool) -> None:
        self.life.host(self.life.stop(name, by_user))

    @rule(name=st.sampled_from(NAMES))
    def restart(self, name: str) -> None:
        self.life.loop.within(lambda: self.life.restart(name))

    @rule(name=st.sampled_from(NAMES))
    def evict(self, name: str) -> None:
        self.life.loop.within(lambda: self.life.evict(name))

    @rule(name=st.sampled_from(NAMES))
    def drain(self, name: str) -> None:
        agent = self.life.agent(name)
        if agent.state == "live":
            self.world.reads(agent.id, own(self.life.loop.within(agent.drain)))

    @rule(idle=st.booleans())
    def drain_main(self, idle: bool) -> None:
        self.life.took(self.life.loop.within(lambda: self.life.agents.main.drain(idle=idle)))

    @rule()
    def rest(self) -> None:
        self.life.took(self.life.loop.within(self.life.agents.main.rest))

    @rule()
    def observe(self) -> None:
        self.life.loop.within(lambda: self.life.observer.report("careful"))

    @precondition(lambda self: self.life.batches)
    @rule(which=st.integers(0, 9), confirm=st.booleans())
    def settle_batch(self, which: int, confirm: bool) -> None:
        life = self.life
        batch = life.batches[which % len(life.batches)]
        life.loop.within(lambda: life.confirm(batch) if confirm else life.release(batch))

    @rule()
    def close(self) -> None:
        """The session ends in order, whatever is under way; another process takes the folder up."""
        life, world = self.life, self.world
        self.broken = True
        life.loop.finish(life.session.close())
        ended = Counter(world.finished)
        life.loop.settle(seconds=5000)
        assert all(task.done() for task in life.senders), "a sender waits for ever"
        assert world.finished == ended, "nothing ends after the end"
        self.no_fault_was_seen()
        life.end()
        self.take_up(live={})
        self.broken = False

    @rule()
    def crash(self) -> None:
        """The process is gone in this instant; another one takes the folder up."""
        world, kept = self.world, f"{self.root}/kept"
        self.broken = True
        live = {agent.id: agent.run for agent in self.life.agents}
        shutil.copytree(self.folder, kept, symlinks=True)
        self.life.agents.world = self.life.world = World(handed=world.handed)
        self.life.end(crash=True)
        shutil.rmtree(self.folder)
        os.rename(kept, self.folder)
        self.take_up(live)
        self.broken = False

    def take_up(self, live: dict[str, int]) -> None:
        """Begins the next life, and judges what it is told: `live` are the runs that were killed with the process."""
        world = self.world
        due = set(world.finished) - world.confirmed
        owned = [key for key in due if key[0] == self.ids["kid"]]
        for record in world.sent.values():
            record.void = True
        world.read.clear()
        world.lost.clear()
        world.notices.clear()
        self.life = Life1(world, self.folder)
        batch = self.life.loop.within(lambda: self.life.agents.main.drain(idle=True))
        self.life.took(batch)
        told = [one.task for one in own(batch) if one.task is not None]
        keys = [(task.task_id, task.run) for task in told]
        assert len(keys) == len(set(keys)), "a run is told of twice"
        killed = {task.task_id: task.run for task in told if (task.task_id, task.run) not in world.finished}
        assert killed == live, "each run that was under way was killed, and nothing else"
        assert all(
            task.status == "killed"
            for task in told
            if task.task_id in killed and task.run == killed[task.task_id]
        )
        # What was put into the list of the agent that owns one is told by that list alone.
        assert due - set(owned) <= set(keys) <= due | set(killed.items())
        world.finished = Counter(dict.fromkeys(keys, 1))
        world.confirmed.clear()
        for name, identity in self.ids.items():
            assert self.life.agent(name).id == identity

    # ── what holds ───────────────────────────────────────────────────────────────────────────────

    def no_fault_was_seen(self) -> None:
        assert not self.world.faults, self.world.faults
        assert not self.life.loop.complaints, self.life.loop.complaints

    def teardown(self) -> None:
        well = False
        try:
            if self.ids and not self.broken:
                self.judge()
            well = not (self.world.faults or self.broken)
        finally:
            self.life.end(crash=not well)
            shutil.rmtree(self.root, ignore_errors=True)

    def judge(self) -> None:
        life, world = self.life, self.world
        life.plans.clear()
        life.guards.clear()
        life.created.clear()
        life.completed.clear()
        for _ in range(6):
            life.loop.settle(seconds=3000)
            for agent in list(life.agents):
                world.reads(agent.id, own(life.loop.within(agent.drain)))
            for batch in list(life.batches):
                life.loop.within(lambda batch=batch: life.confirm(batch))
            life.took(life.loop.within(lambda: life.agents.main.drain(idle=True)))
        self.no_fault_was_seen()
        assert all(task.done() for task in life.senders), "a sender waits for ever"
        reads = {who: Counter(entry.msg_id for entry in entries) for who, entries in world.read.items()}
        for text, sent in world.sent.items():
            if sent.void:
                continue
            target = self.ids[sent.target]
            came = [entry for entry in world.read.get(target, ()) if entry.text == text]
            assert len(came) <= 1, f"{text}: read {len(came)} times"
            if sent.outcome in ("queued", "resumed"):
                lost = world.lost[sent.msg_id]
                assert len(came) + lost == 1, f"{text}: {sent.outcome}, read {len(came)}, lost {lost}"
            elif sent.outcome != "cancelled":
                assert not came, f"{text}: {sent.outcome}, and read"
        for (who, msg_id), count in world.notices.items():
            seen = [one for one in world.read.get(who, ()) if one.in_reply_to == msg_id]
            assert len(seen) == count == 1, f"{who} was told {len(seen)} times of {msg_id}"
        for target, counted in reads.items():
            assert not [msg_id for msg_id, count in counted.items() if count > 1], target
            numbers: dict[str, int] = {}
            for entry in world.read[target]:
                sent = world.sent.get(entry.text)
                if sent is not None and not entry.redelivered:
                    assert numbers.get(sent.sender, -1) < sent.number, f"{entry.text} came too late"
                    numbers[sent.sender] = sent.number
        ends = Counter(
            (entry.task.task_id, entry.task.run)
            for who in ("main", self.ids["ada"])
            for entry in world.read.get(who, ())
            if entry.task is not None and entry.task.status != "running"
        )
        assert ends == world.finished, "each finish is told once"


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process crashes here, and not the machine."""
    monkeypatch.setattr(os, "fsync", str)  # it does nothing


@pytest.mark.rule("02.22", "02.23", "02.24", "02.27", "06.3", "06.4", "06.5", "06.11", "06.13")
def test_whatever_happens_what_was_accepted_is_read_once_or_its_sender_is_told() -> None:
    run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
        Machine,
        settings=settings(
            max_examples=int(os.environ.get("POSTROOM_TEST_EXAMPLES", "80")),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[
                HealthCheck.too_slow,
                HealthCheck.data_too_large,
                HealthCheck.filter_too_much,
            ],
        ),
    )
