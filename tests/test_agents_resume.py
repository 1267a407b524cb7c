"""A stopped agent is resumed once, by whoever writes to it, and everything that came meanwhile arrives (02.27, 06.13).

Fifty sends from threads and tasks at once; a `resume` of the host that raises, hangs, comes late or does its work before it
returns; guards and hooks that say no; background work that is off.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from postroom import (
    Agent,
    Agents,
    AgentStopped,
    Batch,
    Gathering,
    Hooks,
    LifecycleEvent,
    Receipt,
    Refusal,
    Session,
    SessionClosed,
    Veto,
    open_in_memory,
)
from postroom.core.queues import Entry
from postroom.core.settings import Limits
from tests.stepping import Stepping

SECONDS = 20
"""Any wait of a test ends after these."""

SENDERS = 10
EACH = 5


class Boom(Exception):
    """What a host's code raises."""


@dataclass
class Host:
    """A program that hosts agents, with a `resume` of a test's choice.

    Attributes:
        resumed: (run, texts) of each call of `resume`.
        drained: what the runs drained.
    """

    session: Session
    agents: Agents
    resumed: list[tuple[int, list[str]]] = field(default_factory=list[tuple[int, list[str]]])
    drained: list[str] = field(default_factory=list[str])
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def read(self, agent: Agent) -> None:
        self.drained += texts(agent.drain())

    @property
    def texts(self) -> list[str]:
        """Everything that reached the agent, in order."""
        return [text for _, handed in self.resumed for text in handed] + self.drained

    def work(self, agent: Agent, *, wait: int = 0, result: str | None = None) -> None:
        """Starts a run that reads until so many texts have come, and ends."""

        async def work() -> None:
            number = agent.run
            with contextlib.suppress(AgentStopped):
                async with agent.running(number) as run:
                    self.read(agent)
                    while len(self.texts) < wait:
                        await agent.wait(SECONDS)
                        self.read(agent)
                    run.result = result or f"the end of run {run.number}"

        self.spawn(work())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts a task of the host's."""
        self.tasks.add(asyncio.get_running_loop().create_task(work))

    async def settled(self) -> None:
        """Waits for the host's tasks."""
        while self.tasks:
            await asyncio.wait({self.tasks.pop()}, timeout=SECONDS)

    def notifications(self) -> list[tuple[str, str, int]]:
        batch = self.agents.main.drain(idle=True)
        batch.confirm()
        return [
            (one.task.task_id, one.task.status, one.task.run)
            for one in batch.entries
            if isinstance(one, Entry) and one.task is not None
        ]


def texts(batch: Batch) -> list[str]:
    return [one.text for one in batch.entries]


@contextlib.asynccontextmanager
async def hosting(
    resume: Callable[[Host, Agent, Batch], Any] | None, *, folder: Path | None = None, **options: Any
) -> AsyncGenerator[Host]:
    """A session with a host, whose calls of `resume` are written down."""
    async with open_in_memory("lead", Gathering(), limits=Limits.unbounded()) as session:
        if folder is not None:
            folder.mkdir(mode=0o700, exist_ok=True)
            session.folder = str(folder)

        async def called(agent: Agent, messages: Any) -> None:
            host.resumed.append((agent.run, texts(messages)))
            assert resume is not None
            answer = resume(host, agent, messages)
            if asyncio.iscoroutine(answer):
                await answer

        host = Host(session, Agents(session, resume=called if resume else None, **options))
        yield host
        for task in tuple(host.tasks):
            task.cancel()
        await host.settled()


async def stopped(host: Host, name: str = "worker", **options: Any) -> Agent:
    """An agent whose first run is over, and has been told of."""
    agent = await host.agents.start(name, **options)
    assert await agent.finish("completed", result="the first")
    if agent.background:
        assert host.notifications() == [(agent.id, "completed", 1)]
    return agent


def refused(answer: object, code: str = "resume_failed") -> str:
    """The sentence of a refusal."""
    assert isinstance(answer, Refusal), answer
    assert answer.code == code
    return answer.message


def begins(host: Host, agent: Agent, messages: Batch) -> None:
    host.work(agent)


def raises(host: Host, agent: Agent, messages: Batch) -> None:
    raise Boom


# ── fifty at once ────────────────────────────────────────────────────────────────────────────────


async def fifty(host: Host) -> list[tuple[str, Receipt | Refusal]]:
    """Fifty sends to `worker` at once: half of the senders are threads, half are tasks. None waits for its answers."""
    loop = asyncio.get_running_loop()
    voices = [await host.agents.start(f"sender{n}") for n in range(SENDERS)]
    gate = threading.Barrier(SENDERS // 2 + 1)

    async def one(n: int, i: int) -> tuple[str, Receipt | Refusal]:
        text = f"{n}.{i}"
        return text, await voices[n].send("worker", text, summary="s")

    def thread(n: int) -> list[tuple[str, Receipt | Refusal]]:
        gate.wait(SECONDS)
        futures = [asyncio.run_coroutine_threadsafe(one(n, i), loop) for i in range(EACH)]
        return [future.result(SECONDS) for future in futures]

    threads = [asyncio.ensure_future(asyncio.to_thread(thread, n)) for n in range(SENDERS // 2)]
    await asyncio.to_thread(gate.wait, SECONDS)
    # The threads' sends and these come to the loop at once, in whatever order.
    tasks = [loop.create_task(one(n, i)) for i in range(EACH) for n in range(SENDERS // 2, SENDERS)]
    answers = [answer for future in threads for answer in await future]
    return answers + [await task for task in tasks]


def in_order(said: list[str]) -> bool:
    """Whether what each sender said stands in its order."""
    return all(
        [text for text in said if text.startswith(f"{n}.")] == [f"{n}.{i}" for i in range(EACH)]
        for n in range(SENDERS)
    )


@pytest.mark.rule("02.23", "02.27", "06.13")
@pytest.mark.parametrize("round_", range(5))
def test_show_2_fifty_sends_to_a_stopped_agent_are_one_resume_and_fifty_messages(round_: int) -> None:
    async def main() -> None:
        told = asyncio.Event()

        async def resume(host: Host, agent: Agent, messages: Batch) -> None:
            await told.wait()  # until everybody has joined
            host.work(agent, wait=SENDERS * EACH)

        async with hosting(resume) as host:
            agent = await stopped(host)
            sending = asyncio.ensure_future(fifty(host))
            while len(host.resumed[0][1] if host.resumed else ()) + agent.waiting < SENDERS * EACH:
                await asyncio.sleep(0)
            told.set()
            answers = await sending
            await host.settled()
            assert [run for run, _ in host.resumed] == [2]
            assert len(answers) == SENDERS * EACH
            assert all(isinstance(one, Receipt) and one.status == "resumed" for _, one in answers)
            assert sorted(host.texts) == sorted(text for text, _ in answers)
            assert in_order(host.texts)
            assert len({one.msg_id for _, one in answers}) == SENDERS * EACH
            assert [one for one in host.notifications() if one[0] == agent.id] == [(agent.id, "completed", 2)]

    asyncio.run(main())


@pytest.mark.rule("02.27", "06.13")
def test_show_2_a_resume_that_fails_is_fifty_errors_and_no_agent() -> None:
    async def main() -> None:
        told = asyncio.Event()

        async def resume(host: Host, agent: Agent, messages: Batch) -> None:
            await told.wait()
            raise Boom

        async with hosting(resume) as host:
            agent = await stopped(host)
            before = agent.life
            sending = asyncio.ensure_future(fifty(host))
            while len(host.resumed[0][1] if host.resumed else ()) + agent.waiting < SENDERS * EACH:
                await asyncio.sleep(0)
            told.set()
            answers = await sending
            assert len(host.resumed) == 1
            assert len({one.msg_id for _, one in answers}) == SENDERS * EACH, "each has an error of its own"
            for _, one in answers:
                assert "worker" in refused(one)
                assert "Boom" in refused(one)
            assert (agent.state, agent.life.ended_at) == ("completed", before.ended_at)
            assert not agent.waiting
            assert not agent.drain()
            assert agent not in list(host.agents)
            assert host.notifications() == [], "no run was, so none has ended"
            for n in range(SENDERS):  # each was told by the answer, and by nothing else
                sender = host.agents.get(f"sender{n}")
                assert sender is not None
                assert not sender.drain()

    asyncio.run(main())


# ── a resume that fails ──────────────────────────────────────────────────────────────────────────


async def hangs(host: Host, agent: Agent, messages: Batch) -> None:
    await asyncio.Event().wait()


async def hangs_on(host: Host, agent: Agent, messages: Batch) -> None:
    """It does not let itself be cancelled, and begins the run when nobody waits for it any more."""
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        await asyncio.sleep(50)
    host.work(agent)


@pytest.mark.rule("02.26", "02.27", "06.13")
@pytest.mark.parametrize(
    ("resume", "why"),
    [(raises, "raised Boom"), (hangs, "within 30 s"), (hangs_on, "within 30 s")],
    ids=("raises", "hangs", "swallows"),
)
def test_a_resume_that_fails_leaves_the_agent_as_it_was(
    resume: Callable[[Host, Agent, Batch], Any], why: str, tmp_path: Path
) -> None:
    async def main() -> None:
        now = asyncio.get_running_loop().time
        async with hosting(resume, folder=tmp_path / "session") as host:
            agent = await stopped(host)
            before, began = agent.life, now()
            first, second = await asyncio.gather(
                host.session.send("worker", "one", summary="s"),
                host.session.send("worker", "two", summary="s"),
            )
            assert why in refused(first)
            assert why in refused(second)
            assert now() - began <= 31
            await asyncio.sleep(200)
            await host.settled()
            assert agent.state == "completed"
            assert agent.life.ended_at == before.ended_at
            assert host.drained == []
            assert host.notifications() == []
            # The number of the run that never was is not given out again.
            host.resumed.clear()
            again = asyncio.ensure_future(host.session.send("worker", "three", summary="s"))
            await asyncio.sleep(1)
            assert host.resumed == [(3, ["three"])]
            await again

    virtually(main)


@pytest.mark.rule("02.27", "06.13")
def test_a_run_that_comes_too_late_is_not_taken_for_the_next_one() -> None:
    async def main() -> None:
        late = asyncio.Event()

        async def resume(host: Host, agent: Agent, messages: Batch) -> None:
            number = agent.run
            if number == 2:

                async def come() -> None:
                    await late.wait()
                    with pytest.raises(AgentStopped):
                        async with agent.running(number):
                            pass
                    told.set()

                host.spawn(come())
                await asyncio.Event().wait()
            late.set()
            await told.wait()
            host.work(agent)

        told = asyncio.Event()
        async with hosting(resume) as host:
            agent = await stopped(host)
            refused(await host.session.send("worker", "one", summary="s"))
            answer = await host.session.send("worker", "two", summary="s")
            assert isinstance(answer, Receipt)
            assert agent.run == 3
            assert [handed for _, handed in host.resumed] == [["one"], ["two"]]
            await host.settled()
            assert host.notifications() == [(agent.id, "completed", 3)]

    virtually(main)


@pytest.mark.rule("06.13")
def test_no_resume_function_is_said() -> None:
    async def main() -> None:
        async with hosting(None) as host:
            await stopped(host)
            assert "no way to resume" in refused(await host.session.send("worker", "x", summary="s"))

    virtually(main)


@pytest.mark.rule("02.26", "06.13")
@pytest.mark.parametrize("harm", ["gone", "torn", "another", "no transcript", "huge"])
def test_what_lies_on_disk_decides(harm: str, tmp_path: Path) -> None:
    """Metadata or a transcript that cannot be used: `resume_failed`, and never a new identity under the name."""

    async def main() -> None:
        async with hosting(begins, folder=tmp_path / "session") as host:
            agent = await stopped(host)
            metadata = tmp_path / "session" / "agents" / agent.id / "agent.json"
            if harm == "gone":
                metadata.unlink()
            elif harm == "torn":
                metadata.write_bytes(metadata.read_bytes()[:-20])
            elif harm == "another":
                metadata.write_text(metadata.read_text().replace(agent.id, "somebody-else"))
            elif harm == "no transcript":
                metadata.with_name("transcript.jsonl").unlink()
            else:
                metadata.write_bytes(b" " * (1024 * 1024 + 1))
            reason = refused(await host.session.send("worker", "x", summary="s"))
            assert str(tmp_path) not in reason
            assert not host.resumed
            assert (agent.state, agent.run) == ("completed", 1)
            assert host.agents.get("worker") is agent

    virtually(main)


@pytest.mark.rule("02.27")
def test_a_disk_that_is_full_while_a_resume_fails_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async def resume(host: Host, agent: Agent, messages: Batch) -> None:
            monkeypatch.setattr(os, "open", full)
            raise Boom

        async with hosting(resume, folder=tmp_path / "session") as host:
            agent = await stopped(host)
            refused(await host.session.send("worker", "x", summary="s"))
            monkeypatch.undo()
            assert agent.state == "completed"

    really = os.open

    def full(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(28, "No space left on device")
        return really(path, flags, *rest, **named)

    virtually(main)


# ── a resume that begins the run in its own way ──────────────────────────────────────────────────


@pytest.mark.rule("06.13", "02.27")
def test_a_run_that_is_entered_before_resume_has_returned_has_started() -> None:
    async def main() -> None:
        async def resume(host: Host, agent: Agent, messages: Batch) -> None:
            async with agent.running() as run:
                await asyncio.sleep(500)  # far longer than it has to start
                host.read(agent)
                run.result = "done"

        async with hosting(resume) as host:
            agent = await stopped(host)
            answer = await host.session.send("worker", "one", summary="s")
            assert isinstance(answer, Receipt)
            assert answer.status == "resumed"
            later = await host.session.send("worker", "two", summary="s")
            assert isinstance(later, Receipt)
            assert later.status == "queued"
            await asyncio.sleep(501)
            assert host.texts == ["one", "two"]
            assert host.notifications() == [(agent.id, "completed", 2)]

    virtually(main)


@pytest.mark.rule("06.13", "06.11")
def test_a_resume_that_raises_after_its_run_began_fails_nobody() -> None:
    async def main() -> None:
        async def resume(host: Host, agent: Agent, messages: Batch) -> None:
            host.work(agent)
            await asyncio.sleep(0)
            raise Boom

        async with hosting(resume) as host:
            agent = await stopped(host)
            answer = await host.session.send("worker", "one", summary="s")
            assert isinstance(answer, Receipt)
            await host.settled()
            assert host.notifications() == [(agent.id, "completed", 2)]

    virtually(main)


@pytest.mark.rule("06.11", "06.13")
def test_an_agent_may_finish_in_the_middle_of_its_own_resume() -> None:
    """What was sent meanwhile begins the next resume; a `resume` that then raises changes nothing of what has ended."""

    async def main() -> None:
        async def resume(host: Host, agent: Agent, messages: Batch) -> None:
            if agent.run == 2:
                sending.append(asyncio.ensure_future(host.session.send("worker", "two", summary="s")))
                await asyncio.sleep(0)
                assert await agent.finish("completed", result="at once")
                assert not await agent.finish("completed", result="once more") or agent.run > 2
                raise Boom
            host.work(agent)

        sending: list[asyncio.Future[Receipt | Refusal]] = []
        async with hosting(resume) as host:
            agent = await stopped(host)
            answer = await host.session.send("worker", "one", summary="s")
            assert isinstance(answer, Receipt), answer
            assert isinstance(await sending[0], Receipt)
            await asyncio.sleep(1)
            await host.settled()
            assert host.resumed == [(2, ["one"]), (3, ["two"])]
            assert host.notifications() == [(agent.id, "completed", 2), (agent.id, "completed", 3)]

    virtually(main)


@pytest.mark.rule("06.5", "06.13")
def test_what_a_run_has_not_drained_when_it_ends_resumes_the_agent() -> None:
    async def main() -> None:
        async with hosting(begins) as host:
            agent = await host.agents.start("worker")
            for n in range(3):
                answer = await host.session.send("worker", str(n), summary="s")
                assert isinstance(answer, Receipt)
                assert answer.status == "queued"
            assert await agent.finish("completed", result="without a look")
            await asyncio.sleep(1)
            await host.settled()
            assert host.resumed == [(2, ["0", "1", "2"])]
            assert host.notifications() == [(agent.id, "completed", 1), (agent.id, "completed", 2)]

    virtually(main)


@pytest.mark.rule("06.5", "02.27")
def test_what_a_run_has_not_drained_is_lost_aloud_where_the_resume_fails() -> None:
    async def main() -> None:
        async with hosting(raises) as host:
            agent = await host.agents.start("worker")
            other = await host.agents.start("other")
            mine = await host.session.send("worker", "from main", summary="s")
            its = await other.send("worker", "from other", summary="s")
            assert isinstance(mine, Receipt)
            assert isinstance(its, Receipt)
            await agent.finish("completed")
            await asyncio.sleep(1)
            told = [
                one for one in host.agents.main.drain().entries if isinstance(one, Entry) and one.task is None
            ]
            assert [one.in_reply_to for one in told] == [mine.msg_id]
            assert [one.in_reply_to for one in other.peek()] == [its.msg_id]
            assert not agent.waiting

    virtually(main)


@pytest.mark.rule("02.24", "02.27")
@pytest.mark.parametrize("when", ["at once", "while it is checked", "while the host starts it"])
def test_a_users_stop_ends_a_resume_under_way(when: str) -> None:
    async def main() -> None:
        async with hosting(hangs) as host:
            agent = await host.agents.start("worker")
            queued = await host.session.send("worker", "left", summary="s")
            await agent.finish("completed")  # what is left begins a resume, for which nobody waits
            sending = asyncio.ensure_future(host.session.send("worker", "joined", summary="s"))
            for _ in range({"at once": 0, "while it is checked": 2, "while the host starts it": 40}[when]):
                await asyncio.sleep(0.001)
            await host.agents.stop(agent)
            host.resumed.clear()
            refused(await sending, "stopped_by_user")
            assert isinstance(queued, Receipt)
            told = [
                one for one in host.agents.main.drain().entries if isinstance(one, Entry) and one.task is None
            ]
            assert [one.in_reply_to for one in told] == [queued.msg_id], (
                "whoever was told it is queued hears of it"
            )
            refused(await host.session.send("worker", "x", summary="s"), "stopped_by_user")
            await asyncio.sleep(100)
            assert not host.resumed
            assert agent.state != "live"
            host.agents.restart(agent)
            again = asyncio.ensure_future(host.session.send("worker", "y", summary="s"))
            await asyncio.sleep(1)
            assert [handed for _, handed in host.resumed] == [["y"]]
            again.cancel()

    virtually(main)


@pytest.mark.rule("02.24", "06.13")
@pytest.mark.parametrize("steps", range(12))
def test_no_resume_is_called_once_its_flight_has_been_ended(steps: int) -> None:
    """The stop comes between any two steps of the resume."""

    async def main() -> None:
        async with hosting(hangs) as host:
            agent = await stopped(host)
            sending = asyncio.ensure_future(host.session.send("worker", "x", summary="s"))
            for _ in range(steps):
                await asyncio.sleep(0)
            before = len(host.resumed)
            await host.agents.stop(agent)
            refused(await sending, "stopped_by_user")
            await asyncio.sleep(100)
            assert len(host.resumed) == before

    virtually(main)


@pytest.mark.rule("02.27", "06.13")
def test_the_end_of_the_session_ends_a_resume_under_way() -> None:
    async def main() -> None:
        async with hosting(hangs) as host:
            await stopped(host)
            sending = asyncio.ensure_future(host.session.send("worker", "x", summary="s"))
            await asyncio.sleep(1)
            assert host.resumed
        assert "its session has ended" in refused(await sending)

    virtually(main)


# ── who may say no ───────────────────────────────────────────────────────────────────────────────


def says_no(agent: Agent) -> str | None:
    return "its budget is spent"


def says_nothing(agent: Agent) -> str | None:
    return ""


def guard_raises(agent: Agent) -> str | None:
    raise Boom


async def guard_hangs(agent: Agent) -> str | None:
    await asyncio.Event().wait()


async def guard_says_no(agent: Agent) -> str | None:
    return "its budget is spent"


@pytest.mark.rule("06.13")
@pytest.mark.parametrize(
    ("guard", "reason"),
    [
        (says_no, "its budget is spent"),
        (guard_says_no, "its budget is spent"),
        (says_nothing, "its guard does not allow it"),
        (guard_raises, "could not be found out"),
        (guard_hangs, "could not be found out"),
    ],
)
def test_a_guard_that_says_no_raises_or_hangs_keeps_the_agent_stopped(guard: Any, reason: str) -> None:
    async def main() -> None:
        async with hosting(begins, guard=guard) as host:
            agent = await stopped(host)
            assert reason in refused(await host.session.send("worker", "x", summary="s"))
            assert not host.resumed
            assert (agent.state, agent.run) == ("completed", 1)

    if guard in (guard_hangs, guard_says_no):
        virtually(main)
    else:
        asyncio.run(asyncio.wait_for(main(), SECONDS))  # a plain function is called in a real thread


@pytest.mark.rule("06.15", "06.13")
def test_a_hook_may_veto_a_resume() -> None:
    async def main() -> None:
        seen: list[tuple[str, int]] = []

        async def created(event: LifecycleEvent) -> None:
            seen.append((event.name, event.run))
            if event.run > 1:
                raise Veto("one run is enough")

        async with hosting(begins, hooks=Hooks(task_created=created)) as host:
            agent = await stopped(host)
            assert "one run is enough" in refused(await host.session.send("worker", "x", summary="s"))
            assert seen == [("worker", 1), ("worker", 2)]
            assert not host.resumed
            assert agent.state == "completed"

    virtually(main)


@pytest.mark.rule("06.11", "06.15")
def test_a_run_that_is_cancelled_while_a_hook_is_asked_was_killed() -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def completed(event: LifecycleEvent) -> None:
            asked.set()
            await asyncio.sleep(3)

        async with hosting(begins, hooks=Hooks(task_completed=completed)) as host:
            agent = await host.agents.start("worker")
            host.work(agent)
            await asked.wait()
            (task,) = host.tasks
            task.cancel()
            await host.settled()
            assert agent.state == "killed"
            assert host.notifications() == [(agent.id, "killed", 1)]

    virtually(main)


# ── who is resumed, and what comes back ──────────────────────────────────────────────────────────


@pytest.mark.rule("02.9", "02.23", "02.27")
@pytest.mark.parametrize("at_once", [True, False])
def test_report_5_a_completed_agent_by_name_and_by_raw_id_is_one_identity_resumed_once(
    at_once: bool, tmp_path: Path
) -> None:
    async def main() -> None:
        async with hosting(
            lambda host, agent, _: host.work(agent, wait=2), folder=tmp_path / "session"
        ) as host:
            agent = await stopped(host)
            by_name = host.session.send("worker", "by name", summary="s")
            by_id = host.session.send(agent.id, "by id", summary="s")
            if at_once:
                answers = await asyncio.gather(by_name, by_id)
            else:
                answers = [await by_name, await by_id]
            await host.settled()
            assert [run for run, _ in host.resumed] == [2]
            assert sorted(host.texts) == ["by id", "by name"]
            for answer in answers:
                assert isinstance(answer, Receipt)
                assert answer.to.ref == agent.ref
                assert (
                    answer.pin is None or answer.pin.identity == agent.id
                )  # an id is no name: nothing to pin
            assert [row.identity for row in host.agents.rows()] == [agent.id]
            assert host.notifications() == [(agent.id, "completed", 2)]

    virtually(main)


@pytest.mark.rule("02.25", "02.23", "06.13")
def test_an_evicted_agent_is_read_back_and_an_old_handle_of_it_still_means_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with hosting(begins, folder=tmp_path / "session") as host:
            old = await stopped(host)
            host.agents.evict(old)
            answer = await host.session.send("worker", "x", summary="s")
            assert isinstance(answer, Receipt)
            assert answer.to.ref == old.ref
            assert host.agents.get("worker") is old  # there is never a second one
            assert old.run == 2
            await host.settled()
            await host.agents.stop(old)  # by the handle from before
            assert (old.run, old.life.stopped_by_user) == (2, True)
            refused(await host.session.send("worker", "y", summary="s"), "stopped_by_user")

    virtually(main)


@pytest.mark.rule("06.11", "02.25")
def test_an_agent_that_was_evicted_still_reports_to_the_agent_that_owns_it() -> None:
    async def main() -> None:
        async with hosting(lambda host, agent, _: None) as host:
            owner = await host.agents.start("owner")
            child = await host.agents.start("child", owner=owner)
            for agent in (owner, child):
                await agent.finish("completed")
            owner.drain()
            host.notifications()
            host.agents.evict(child)
            host.agents.evict(owner)
            for name in ("owner", "child"):
                assert isinstance(await host.session.send(name, "go on", summary="s"), Receipt)
            again, child_again = host.agents.get("owner"), host.agents.get("child")
            assert again is not None
            assert child_again is not None
            await child_again.finish("completed")
            assert [one.task.run for one in again.peek() if one.task is not None] == [2]
            assert host.notifications() == []

    virtually(main)


@pytest.mark.rule("06.12")
def test_with_background_work_off_a_send_returns_the_final_text_of_the_run_that_it_starts() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def resume(host: Host, agent: Agent, messages: Batch) -> None:
            async def work() -> None:
                async with agent.running() as run:
                    await gate.wait()
                    host.read(agent)
                    run.result = f"the last words of run {run.number}"

            host.spawn(work())
            await asyncio.sleep(1)

        async with hosting(resume, background=False) as host:
            agent = await stopped(host)
            assert not agent.background
            sends = [
                asyncio.ensure_future(host.session.send("worker", str(n), summary="s")) for n in range(3)
            ]
            await asyncio.sleep(10)
            assert not any(send.done() for send in sends), "delivery and completion are one"
            live = await host.session.send("worker", "while it runs", summary="s")
            assert isinstance(live, Receipt)
            assert (live.status, live.result) == ("queued", None)
            gate.set()
            for send in sends:
                answer = await send
                assert isinstance(answer, Receipt)
                assert (answer.status, answer.result) == ("resumed", "the last words of run 2")
            assert host.texts == ["0", "1", "2", "while it runs"]
            assert host.notifications() == [], "nobody else is told"

    virtually(main)


@pytest.mark.rule("06.12")
@pytest.mark.parametrize("how", ["fails", "is stopped", "session ends"])
def test_with_background_work_off_nobody_waits_for_a_run_that_has_ended_otherwise(how: str) -> None:
    async def main() -> None:
        async def resume(host: Host, agent: Agent, messages: Batch) -> None:
            async def work() -> None:
                with contextlib.suppress(Boom, asyncio.CancelledError):
                    async with agent.running():
                        await asyncio.sleep(5)
                        if how == "fails":
                            raise Boom
                        await asyncio.sleep(500)

            host.spawn(work())

        async with hosting(resume, background=False) as host:
            agent = await stopped(host)
            sending = asyncio.ensure_future(host.session.send("worker", "x", summary="s"))
            await asyncio.sleep(1)
            if how == "is stopped":
                await host.agents.stop(agent)
            elif how == "session ends":
                await host.session.close()
            answer = await sending
            assert isinstance(answer, Receipt)
            assert answer.status == "resumed"
            assert answer.result == ("Boom" if how == "fails" else None)

    virtually(main)


@pytest.mark.rule("02.27")
def test_whoever_stops_waiting_has_joined_all_the_same() -> None:
    async def main() -> None:
        told = asyncio.Event()

        async def resume(host: Host, agent: Agent, messages: Batch) -> None:
            await told.wait()
            host.work(agent, wait=2)

        async with hosting(resume) as host:
            await stopped(host)
            first = asyncio.ensure_future(host.session.send("worker", "one", summary="s"))
            second = asyncio.ensure_future(host.session.send("worker", "two", summary="s"))
            await asyncio.sleep(1)
            first.cancel()
            await asyncio.sleep(0)
            told.set()
            assert isinstance(await second, Receipt)
            await host.settled()
            assert host.texts == ["one", "two"]

    virtually(main)


@pytest.mark.rule("11.5", "02.27")
def test_the_same_id_again_while_a_resume_is_under_way_and_after_it_is_one_message() -> None:
    async def main() -> None:
        async with hosting(lambda host, agent, _: host.work(agent, wait=1)) as host:
            await stopped(host)
            msg_id = host.session.new_id()
            raw = {"to": "worker", "message": "once", "summary": "s"}
            first = asyncio.ensure_future(host.session.send_call(raw, msg_id=msg_id))
            second = asyncio.ensure_future(host.session.send_call(raw, msg_id=msg_id))
            assert await first == await second
            await host.settled()
            assert await host.session.send_call(raw, msg_id=msg_id) == await first
            assert host.texts == ["once"]

    virtually(main)


@pytest.mark.rule("11.5", "06.8")
def test_the_same_id_again_to_main_is_one_message() -> None:
    async def main() -> None:
        async with hosting(begins) as host:
            agent = await host.agents.start("worker")
            msg_id = host.session.new_id()
            raw = {"to": "main", "message": "once", "summary": "s"}
            first = await agent.send_call(raw, msg_id=msg_id)
            assert await agent.send_call(raw, msg_id=msg_id) == first
            assert texts(host.agents.main.drain()) == ["once"]

    virtually(main)


@pytest.mark.rule("02.27")
@pytest.mark.parametrize("chosen", [True, False])
def test_whoever_waits_for_a_resume_is_told_of_its_failure_once(chosen: bool) -> None:
    """By the answer, and not by a notice too; also where the stop comes in the very step of the send."""

    async def main() -> None:
        async with hosting(hangs) as host:
            agent = await stopped(host)
            raw = {"to": "worker", "message": "x", "summary": "s"}
            msg_id = host.session.new_id() if chosen else None
            sending = asyncio.ensure_future(host.session.send_call(raw, msg_id=msg_id))
            while not agent.waiting:
                await asyncio.sleep(0)
            await host.agents.stop(agent)
            refused(await sending, "stopped_by_user")
            assert not host.agents.main.drain().entries

    virtually(main)


@pytest.mark.rule("02.27")
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_flight_whose_task_is_cancelled_by_whoever_cancels_all_fails_like_any_other(steps: int) -> None:
    async def main() -> None:
        async with hosting(hangs) as host:
            agent = await stopped(host)
            sending = asyncio.ensure_future(host.session.send("worker", "x", summary="s"))
            while not agent.waiting:
                await asyncio.sleep(0)
            for _ in range(steps):
                await asyncio.sleep(0)
            for task in asyncio.all_tasks():
                if "_fly" in repr(task.get_coro()):
                    task.cancel()
            assert "taken back" in refused(await sending)
            assert agent.state == "completed"

    virtually(main)


@pytest.mark.rule("06.11", "06.13")
def test_what_an_owner_has_confirmed_while_a_resume_fails_is_not_owed_again() -> None:
    async def main() -> None:
        async def resume(host: Host, agent: Agent, messages: Batch) -> None:
            host.agents.main.drain(idle=True).confirm()
            raise Boom

        async with hosting(resume) as host:
            agent = await host.agents.start("worker")
            await agent.finish("completed")
            assert [one.run for one in agent.life.owed] == [1]
            refused(await host.session.send("worker", "x", summary="s"))
            assert agent.life.owed == ()

    virtually(main)


@pytest.mark.rule("06.13")
def test_once_the_session_has_ended_its_agents_files_are_left_alone(tmp_path: Path) -> None:
    """They may be another process's by then."""

    async def main() -> None:
        async with hosting(begins, folder=tmp_path / "session") as host:
            agent = await host.agents.start("worker")
            await agent.finish("completed")
            batch = host.agents.main.drain()
            await host.session.close()
            metadata = tmp_path / "session" / "agents" / agent.id / "agent.json"
            metadata.write_text("the next process's")
            batch.confirm()
            await host.agents.stop(agent)
            with pytest.raises(SessionClosed):
                host.agents.restart(agent)
            assert metadata.read_text() == "the next process's"

    virtually(main)


@pytest.mark.rule("11.5")
def test_the_same_id_from_somebody_else_is_another_message() -> None:
    async def main() -> None:
        async with hosting(begins) as host:
            worker, other = await host.agents.start("worker"), await host.agents.start("other")
            msg_id = host.session.new_id()
            mine = {"to": "worker", "message": "mine", "summary": "s"}
            assert isinstance(await host.session.send_call(mine, msg_id=msg_id), Receipt)
            its = {"to": "worker", "message": "its", "summary": "s"}
            assert isinstance(await other.send_call(its, msg_id=msg_id), Receipt)
            assert texts(worker.drain()) == ["mine", "its"]

    virtually(main)


@pytest.mark.rule("06.5")
def test_what_a_dead_run_gives_back_resumes_the_agent_or_is_lost_aloud() -> None:
    async def main() -> None:
        async with hosting(begins) as host:
            agent = await host.agents.start("worker")
            await host.session.send("worker", "one", summary="s")
            batch = agent.drain()
            await agent.finish("failed")
            batch.release()
            await asyncio.sleep(1)
            await host.settled()
            assert host.resumed == [(2, ["one"])]
            answer = await host.session.send("worker", "two", summary="s")
            await asyncio.sleep(1)
            await host.settled()
            assert isinstance(answer, Receipt)

    virtually(main)


@pytest.mark.rule("06.3")
def test_what_an_idle_loop_gives_back_wakes_it() -> None:
    async def main() -> None:
        async with open_in_memory("lead", Gathering()) as session:
            woken: list[int] = []
            agents = Agents(session, wake=lambda: woken.append(1))
            agents.main.prompt("one")
            batch = agents.main.drain()
            assert not agents.main.rest()
            batch.release()
            await asyncio.sleep(0)
            assert woken == [1]
            assert texts(agents.main.drain()) == ["one"]

    virtually(main)


@pytest.mark.rule("06.11")
def test_nobody_is_resumed_to_hear_how_far_anothers_run_has_come() -> None:
    async def main() -> None:
        async with hosting(begins) as host:
            owner = await host.agents.start("owner")
            child = await host.agents.start("child", owner=owner)
            child.progress("half way")
            assert owner.waiting == 1
            await owner.finish("completed")
            await asyncio.sleep(1)
            assert not host.resumed
            assert owner.waiting == 0

    virtually(main)


@pytest.mark.rule("06.11")
def test_an_end_that_a_stopped_owner_has_not_read_is_told_to_the_main_conversation() -> None:
    async def main() -> None:
        async with hosting(begins) as host:
            owner = await host.agents.start("owner")
            child = await host.agents.start("child", owner=owner)
            await child.finish("completed", result="found")
            assert host.notifications() == []
            await host.agents.stop(owner)
            assert sorted(host.notifications()) == sorted(
                [(child.id, "completed", 1), (owner.id, "killed", 1)]
            )

    virtually(main)


@pytest.mark.rule("06.13")
def test_an_old_task_that_ends_late_leaves_the_next_run_cancellable() -> None:
    async def main() -> None:
        slow = asyncio.Event()
        killed: list[int] = []

        async def work(agent: Agent) -> None:
            async with agent.running() as run:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    killed.append(run.number)
                    if run.number == 1:
                        await slow.wait()  # it clears up at length
                    raise

        def resume(host: Host, agent: Agent, messages: Batch) -> None:
            host.spawn(work(agent))

        async with hosting(resume) as host:
            agent = await host.agents.start("worker")
            first = asyncio.get_running_loop().create_task(work(agent))
            await asyncio.sleep(1)
            await host.agents.stop(agent, by_user=False)
            assert isinstance(await host.session.send("worker", "go on", summary="s"), Receipt)
            await asyncio.sleep(1)
            slow.set()
            await asyncio.wait({first})
            await host.agents.stop(agent)
            await asyncio.sleep(1)
            assert killed == [1, 2]
            await host.settled()

    virtually(main)


@pytest.mark.rule("06.16")
def test_an_agent_of_a_script_that_is_stopped_is_not_kept_and_not_found() -> None:
    async def main() -> None:
        async def run(agent: Agent, prompt: str) -> str:
            await agents.stop(agent)
            await agents.stop(agent)
            return prompt

        async with open_in_memory("lead", Gathering()) as session:
            agents = Agents(session, run=run)
            with contextlib.suppress(asyncio.CancelledError):
                await session.run_agent("count", name="counter")
            assert agents.rows() == []
            refused(await session.send("counter", "x", summary="s"), "not_found")
            assert not agents.main.drain()

    virtually(main)


@pytest.mark.rule("06.13")
def test_a_session_that_ends_while_an_agent_is_made_leaves_none(tmp_path: Path) -> None:
    async def main() -> None:
        async def created(event: LifecycleEvent) -> None:
            await asyncio.sleep(2)

        async with hosting(begins, folder=tmp_path / "session", hooks=Hooks(task_created=created)) as host:
            making = asyncio.ensure_future(host.agents.start("worker"))
            await asyncio.sleep(1)
            await host.session.close()
            with pytest.raises(Exception, match="has ended"):
                await making
        assert not list((tmp_path / "session").rglob("agent.json"))

    virtually(main)


def virtually(main: Callable[[], Any]) -> None:
    """Runs a test in a loop in whose time nothing is waited for; nothing may be left of it."""
    loop = Stepping()
    try:
        loop.finish(main(), seconds=100_000)
        loop.settle(seconds=2000)
        left, complaints = loop.left(), loop.complaints
    finally:
        loop.close()
    assert not left
    assert not complaints
