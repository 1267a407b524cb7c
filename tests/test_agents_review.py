"""What two readings of chapter 06 found: each fault as a test, with the others of its kind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from postroom import (
    Agent,
    AgentStopped,
    BadUsage,
    Batch,
    Gathering,
    InvalidName,
    Limits,
    Refusal,
    SessionClosed,
)
from postroom.calling import Quit
from postroom.core.queues import Entry
from postroom.errors import PostroomError, StoreFailed, Veto
from postroom.lifecycle import Hooks, LifecycleEvent
from postroom.outcome import MAX_PATH_LENGTH, Outcome, ending, outcome
from postroom.state.agent_files import AgentFiles
from postroom.state.transcripts import read
from tests.crew import Starter, Time, attributes, blocks, hosted, peer_of, refused, sent, words
from tests.test_agents_recipients import Host, host
from tests.transports.ends import run, until

__all__ = ["host"]


# ── there is never a second one ──────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.13", "02.25", "02.27")
def test_what_comes_back_after_an_eviction_resumes_that_agent_once() -> None:
    async def work() -> None:
        starter = Starter()
        async with hosted(resume=starter) as (session, agents):
            worker = await agents.start("worker")
            sent(await session.send("worker", "one", summary="s"))
            batch = worker.drain()
            await worker.finish()
            agents.evict(worker)
            batch.release()
            await until(lambda: len(starter.calls) == 1)
            await until(lambda: worker.flight is None)
            sent(await session.send("worker", "two", summary="s"))
            assert starter.calls == [(worker.id, 2, ["one"])]
            assert agents.get("worker") is worker
            assert words(worker.drain()) == ["two"]
            assert len(agents) == 1

    run(work())


@pytest.mark.rule("06.13", "06.14", "02.25")
def test_observers_and_tokens_mean_the_agent_also_after_an_eviction(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (session, agents):
            worker = await agents.start("worker")
            observer = agents.observe(worker)
            token = worker.environment()["POSTROOM_TOKEN"]
            await worker.finish()
            agents.evict(worker)
            sent(await session.send("worker", "go on", summary="s"), "resumed")
            assert agents.by_token(token) is agents.get("worker") is worker
            sent(observer.report("it hesitates"))
            assert words(worker.drain()) == ["it hesitates"]

    run(work())


@pytest.mark.rule("02.25")
def test_an_evicted_agent_whose_object_nobody_holds_takes_no_memory(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (session, agents):
            worker = await agents.start("worker")
            sent(await worker.send("main", "hello", summary="s"))
            await worker.finish()
            agents.evict(worker)
            gone = ref(worker)
            del worker
            gc.collect()
            assert gone() is None
            sent(await session.send("worker", "go on", summary="s"), "resumed")

    run(work())


@pytest.mark.rule("06.13")
def test_what_is_no_agent_of_this_session_is_refused() -> None:
    async def work() -> None:
        async with hosted() as (_, agents), hosted(name="other") as (_, others):
            worker, stranger = await agents.start("worker"), await others.start("stranger")
            wrong: Any
            for wrong in ("worker", None, 5, stranger):
                for step in (agents.restart, agents.evict, agents.observe):
                    if wrong is not None or step != agents.observe:
                        with pytest.raises(BadUsage, match=r"start.*get"):
                            step(wrong)  # pyright: ignore[reportArgumentType]
                with pytest.raises(BadUsage):
                    await agents.stop(wrong)  # pyright: ignore[reportArgumentType]
                if wrong is not None:
                    with pytest.raises(BadUsage):
                        await agents.start("next", owner=wrong)
            for wrong in (None, 5, stranger):
                with pytest.raises(BadUsage):
                    agents.get(wrong)  # pyright: ignore[reportArgumentType]
            assert [agent.name for agent in agents] == [worker.name]

    run(work())


# ── hosts that fail ──────────────────────────────────────────────────────────────────────────────


class Odd(BaseException):
    """What is no Exception."""


@pytest.mark.rule("06.13")
@pytest.mark.parametrize("thrown", [SystemExit(3), Odd(), asyncio.CancelledError(), StopIteration()])
@pytest.mark.parametrize("as_async", [False, True])
def test_a_guard_or_a_resume_that_wants_to_end_the_program_has_failed(
    thrown: BaseException, as_async: bool
) -> None:
    def throw(*_: object) -> None:
        raise thrown

    async def throw_later(*_: object) -> None:
        await asyncio.sleep(0)
        raise thrown

    failing = throw_later if as_async else throw
    lines: list[str] = []

    async def work() -> None:
        for options in ({"guard": failing, "resume": Starter()}, {"resume": failing}):
            async with hosted(**options) as (session, agents):  # pyright: ignore[reportArgumentType]
                session.write_log = lines.append
                worker = await agents.start("worker")
                await worker.finish()
                for text in ("one", "two"):
                    refused(await session.send("worker", text, summary="s"), "resume_failed")
                assert (worker.state, worker.flight, worker.waiting) == ("completed", None, 0)

    run(work())
    if isinstance(thrown, SystemExit):
        assert any("SystemExit" in line for line in lines)


@pytest.mark.rule("06.3")
def test_a_wake_may_be_async_and_may_fail() -> None:
    woken: list[str] = []
    lines: list[str] = []

    async def wake() -> None:
        woken.append("begun")
        await asyncio.sleep(0)
        woken.append("done")
        raise SystemExit(1)

    async def work() -> None:
        async with hosted(wake=wake) as (session, agents):
            session.write_log = lines.append
            agents.main.rest()
            agents.main.prompt("hello")
            agents.main.prompt("and more")
            await until(lambda: woken == ["begun", "done"])
            await until(lambda: bool(lines))
            assert "SystemExit" in lines[0]
            assert words(agents.main.drain()) == ["hello", "and more"]

    run(work())


# ── what a run came to ───────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.11")
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, Outcome()),
        ({"result": "x", "usage": {"n": 1, "part": 0.5, "none": None}}, Outcome("x", {"n": 1, "part": 0.5})),
        ({"output_path": Path("/tmp/out")}, Outcome(output_path="/tmp/out")),
        ({"worktree": b"/tmp/w"}, Outcome(worktree="/tmp/w")),
        ({"worktree": "w" * MAX_PATH_LENGTH}, Outcome(worktree="w" * MAX_PATH_LENGTH)),
    ],
)
def test_what_is_plainly_meant_is_taken(given: Mapping[str, Any], kept: Outcome) -> None:
    assert outcome(**given) == kept


ODD: list[dict[str, Any]] = [
    {"result": {"text": "x"}},
    {"result": 5},
    {"result": b"x"},
    {"usage": 5},
    {"usage": {1: 1}},
    {"usage": {"n": "1"}},
    {"usage": {"n": True}},
    {"output_path": 5},
    {"output_path": ""},
    {"output_path": "a\0b"},
    {"worktree": "w" * (MAX_PATH_LENGTH + 1)},
    {"worktree": object()},
]


@pytest.mark.rule("06.11")
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_what_cannot_be_kept_is_refused_and_the_run_goes_on(odd: dict[str, Any], host: Host) -> None:
    async def work() -> None:
        async with host.open() as (_, agents):
            worker = await agents.start("worker")
            with pytest.raises(BadUsage):
                await worker.finish(**odd)
            assert worker.state == "live"
            assert await worker.finish(result="done")
            assert [entry.task and entry.task.result for entry in entries(agents.main.drain())] == ["done"]

    run(work())


@pytest.mark.rule("06.11")
@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("fails", [False, True])
def test_a_run_that_leaves_what_cannot_be_kept_has_failed_and_is_told(
    odd: dict[str, Any], fails: bool, host: Host
) -> None:
    async def work() -> None:
        async with host.open() as (_, agents):
            worker = await agents.start("worker")

            async def its_loop() -> None:
                async with worker.running() as its_run:
                    for name, value in odd.items():
                        setattr(its_run, name, value)
                    if fails:
                        raise ValueError

            with pytest.raises(ValueError if fails else BadUsage):
                await its_loop()
            assert worker.state == "failed"
            (told,) = entries(agents.main.drain())
            assert told.task is not None
            assert (told.task.status, told.task.run) == ("failed", 1)
            assert host.life(worker.id)["state"] == "failed"

    run(work())


@pytest.mark.rule("06.11")
@pytest.mark.parametrize("status", ["done", "running", "", None, 5, "Completed"])
def test_a_status_that_there_is_none_of_ends_nothing(status: Any) -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            worker = await agents.start("worker")
            with pytest.raises(BadUsage):
                await worker.finish(status)
            with pytest.raises(BadUsage):
                ending(status)
            assert worker.state == "live"

    run(work())


@pytest.mark.rule("06.16")
def test_a_script_gets_a_text_or_an_error() -> None:
    async def no_text(agent: Agent, prompt: str) -> Any:
        return {"text": prompt} if prompt == "parts" else None

    async def work() -> None:
        async with hosted(run=no_text) as (session, agents):
            for prompt in ("parts", "nothing"):
                with pytest.raises(BadUsage):
                    await session.run_agent(prompt)
            assert len(agents) == 0
            assert not agents.main.drain(idle=True)

    run(work())


# ── who is called how ────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.9", "01.20", "02.2")
@pytest.mark.parametrize("identity", ["worker", "WORKER", "main", "user", "system", "postroom", "lead"])
def test_an_id_that_is_somebodys_name_takes_over_nothing(identity: str) -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("worker")
            with pytest.raises(BadUsage):
                await agents.start("other", agent_id=identity)
            sent(await session.send("worker", "for it", summary="s"))
            sent(await worker.send("main", "for main", summary="s"))
            assert words(worker.drain()) == ["for it"]
            assert words(agents.main.drain()) == ["for main"]
            assert agents.get("other") is None

    run(work())


@pytest.mark.rule("02.9", "02.3", "02.7")
def test_a_name_that_is_somebodys_id_or_the_sessions_becomes_a_variant(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (session, agents):
            first = await agents.start("first", agent_id="job-7")
            second, third = await agents.start("JOB-7"), await agents.start("Lead")
            assert (second.name, third.name) == ("JOB-7-2", "Lead-2")
            sent(await session.send("job-7", "by id", summary="s"))
            assert words(first.drain()) == ["by id"]
        async with host.open() as (_, agents):
            assert (await agents.start("job-7")).name == "job-7-3"

    run(work())


@pytest.mark.rule("02.2")
@pytest.mark.parametrize("agent_type", ["ﬁxer", "١٢", "a" * 200, "-", "​", "e\u0301" * 70, "x<y>"])
def test_a_name_that_is_made_of_a_type_is_a_valid_one(agent_type: str) -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            agent = await agents.start(agent_type=agent_type)
            sent(await session.send(agent.name, "hello", summary="s"))
            assert agent.waiting == 1

    run(work())


@pytest.mark.rule("06.13", "02.2")
def test_what_start_is_given_is_checked(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (_, agents):
            wrong: Any
            for wrong in (5, b"x", ["x"]):
                for what in ("name", "agent_type", "agent_id"):
                    with pytest.raises((BadUsage, InvalidName)):
                        await agents.start(**{what: wrong})
            for wrong in (5, "", "a\0b"):
                with pytest.raises(BadUsage):
                    await agents.start("worker", transcript=wrong)
            with pytest.raises(BadUsage):
                await agents.start("worker", agent_id="")
            assert list(agents) == []
            agent = await agents.start("worker", transcript="own.jsonl")
            assert agent.life.transcript == str(Path("own.jsonl").absolute())

    run(work())


@pytest.mark.rule("06.13", "06.15")
def test_an_agent_that_could_not_begin_leaves_nothing(host: Host) -> None:
    def no(event: LifecycleEvent) -> None:
        raise Veto("not today")

    async def work() -> None:
        async with host.open(hooks=Hooks(task_created=no)) as (session, agents):
            with pytest.raises(PostroomError, match="not today"):
                await agents.start("worker", agent_id="job-1")
            assert agents.get("worker") is agents.get("job-1") is None
            assert agents.rows() == []
            assert not host.folder("job-1").exists()
            refused(await session.send("worker", "hello", summary="s"), "not_found")

    run(work())


# ── hop chains ───────────────────────────────────────────────────────────────────────────────────


def chain_of(batch: Batch) -> tuple[str, ...]:
    """The chain of the last entry."""
    return batch.entries[-1].hop_chain


@pytest.mark.rule("03.66")
def test_what_the_user_says_begins_a_chain_afresh_also_in_a_turn_that_goes_on() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("worker")
            for count in range(20):  # more rounds than a chain has
                agents.main.prompt(f"please {count}")
                agents.main.drain().confirm()
                sent(await session.send("worker", f"do {count}", summary="s"))
                assert len(chain_of(worker.drain())) == 1
                sent(await worker.send("main", f"did {count}", summary="s"))
                agents.main.drain().confirm()
            sent(await session.send("worker", "and", summary="s"))
            assert len(chain_of(worker.drain())) == 3
            agents.main.prompt("a tool's", is_meta=True)  # not what a person says
            agents.main.drain().confirm()
            sent(await session.send("worker", "more", summary="s"))
            assert len(chain_of(worker.drain())) == 3

    run(work())


@pytest.mark.rule("03.66", "03.68")
def test_one_chain_through_a_session_and_its_agent_comes_to_rest_as_between_sessions() -> None:
    async def work() -> None:
        clock, gathering = Time(), Gathering()
        calm = Limits(bucket_capacity=500, total_capacity=5000, repeat_seconds=0)
        async with (
            hosted(gathering, clock=clock, limits=calm) as (session, agents),
            peer_of(gathering, limits=calm) as peer,
        ):
            worker = await agents.start("worker")
            sent(await peer.send("lead", "begin", summary="s"))
            rounds = 0
            while agents.main.waiting:
                agents.main.drain().confirm()
                rounds += 1
                await session.send("worker", f"to it {rounds}", summary="s")
                worker.drain()
                await worker.send("main", f"from it {rounds}", summary="s")
                agents.main.drain().confirm()
                await session.send("peer", f"to the peer {rounds}", summary="s")
                peer.drain()
                await peer.send("lead", f"from the peer {rounds}", summary="s")
            # Each round passes through the main conversation twice, and it is returned to ten times at most.
            assert rounds <= 6

    run(work())


@pytest.mark.rule("03.66", "06.11")
def test_what_a_peer_caused_goes_on_through_a_new_agent_and_through_the_end_of_a_run() -> None:
    async def work() -> None:
        gathering = Gathering()
        async with hosted(gathering) as (session, agents), peer_of(gathering) as peer:
            sent(await peer.send("lead", "please", summary="s"))
            batch = agents.main.drain()
            batch.confirm()
            (first,) = batch.entries
            worker = await agents.start("worker")
            helper = await agents.start("helper", owner=worker)
            for who in (session, worker, helper):
                sent(await who.send("peer", f"from {who.name}", summary="s"))
            chains = [message.hop_chain for message in peer.drain()]
            assert [len(chain) for chain in chains] == [2, 2, 4]
            assert all(chain[0] == first.hop_chain[0] for chain in chains)
            agents.main.rest()
            await worker.finish(result="done")
            assert (
                chain_of(agents.main.drain()) == first.hop_chain
            )  # to hear of an end is no round of its own
            sent(await session.send("peer", "the answer", summary="s"))
            assert peer.drain()[0].hop_chain == chains[0]

    run(work())


@pytest.mark.rule("03.66")
def test_a_host_may_have_its_agent_work_as_often_as_it_wants() -> None:
    async def work() -> None:
        starter = Starter()
        async with hosted(resume=starter) as (session, agents):
            worker = await agents.start("worker")
            for count in range(40):
                await worker.finish(result=f"done {count}")
                agents.main.drain().confirm()
                sent(await session.send("worker", f"next {count}", summary="s"), "resumed")
            assert worker.run == 41

    run(work())


@pytest.mark.rule("03.66", "01.5", "11.1")
def test_an_answer_inside_goes_on_with_the_chain_of_what_it_answers() -> None:
    async def work() -> None:
        gathering = Gathering()
        async with hosted(gathering) as (session, agents), peer_of(gathering) as peer:
            worker = await agents.start("worker")
            asked = sent(await peer.send("lead", "please", summary="s"))
            agents.main.drain().confirm()
            agents.main.rest()
            answer = sent(await session.send("worker", "do it", summary="s", in_reply_to=asked.msg_id))
            assert answer.warnings == ()
            assert [step.state for step in session.store.steps(asked.msg_id)][-1] == "answered"
            chain = chain_of(worker.drain())
            assert len(chain) == 2
            await asyncio.sleep(0)
            back = sent(await worker.send("main", "did it", summary="s", in_reply_to=answer.msg_id))
            assert back.warnings == ()
            assert chain_of(agents.main.drain())[:2] == chain

    run(work())


@pytest.mark.rule("01.5")
def test_an_answer_inside_to_what_nobody_knows_is_sent_with_a_warning() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("worker")
            for sending in (
                session.send("worker", "x", summary="s", in_reply_to="no-such-id"),
                worker.send("main", "x", summary="s", in_reply_to="no-such-id"),
            ):
                receipt = sent(await sending)
                assert any("no-such-id" in warning for warning in receipt.warnings)

    run(work())


# ── scripts, and those who may not write back ────────────────────────────────────────────────────


@pytest.mark.rule("06.16", "04.1", "02.17")
def test_what_a_scripts_agent_says_cannot_be_answered_to_a_namesake() -> None:
    tokens: list[str] = []

    async def script(agent: Agent, prompt: str) -> str:
        sent(await agent.send("viewer", prompt, summary="s"))
        tokens.append(agent.id)
        return "done"

    async def work() -> None:
        async with hosted(run=script) as (session, agents):
            await agents.start("worker")
            viewer = await agents.start("viewer")
            assert await session.run_agent("look at this", name="worker") == "done"
            batch = viewer.drain()
            told = attributes(blocks(batch)[0])
            assert ("from" in told, told["name"]) == (False, "worker")
            assert list(session.store.pins(tokens[0])) == []

    run(work())


@pytest.mark.rule("06.16", "06.3")
def test_what_was_lost_of_a_scripts_agent_is_told_to_nobody_else() -> None:
    async def script(agent: Agent, prompt: str) -> str:
        sent(await agent.send("viewer", prompt, summary="s"))
        return "done"

    async def work() -> None:
        async with hosted(run=script) as (session, agents):
            viewer, talker = await agents.start("viewer"), await agents.start("talker", background=False)
            await session.run_agent("look at this")
            sent(await talker.send("viewer", "between us", summary="s"))
            await talker.finish()
            agents.evict(talker)
            await agents.stop(viewer)
            assert [entry.task and entry.task.status for entry in entries(agents.main.drain())] == ["killed"]

    run(work())


@pytest.mark.rule("06.8", "04.1")
@pytest.mark.parametrize("background", [True, False])
def test_only_who_may_write_to_main_is_shown_where_to_answer(background: bool) -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("worker", background=background)
            sent(await session.send("worker", "do this", summary="s"))
            told = attributes(blocks(worker.drain())[0])
            assert told.get("from") == ("main" if background else None)
            assert told.get("name") == (None if background else "lead")

    run(work())


# ── with background work off, and without it ─────────────────────────────────────────────────────


def running_to(text: str | None, error: type[BaseException] | None = None) -> Callable[..., Any]:
    """A host's `resume` whose run ends at once, so."""

    async def go(agent: Agent) -> None:
        try:
            async with agent.running() as its_run:
                its_run.result = text
                if error is not None:
                    raise error
        except (ValueError, asyncio.CancelledError):
            pass

    async def resume(agent: Agent, messages: Any) -> None:
        del messages
        tasks.add(asyncio.get_running_loop().create_task(go(agent)))

    tasks: set[asyncio.Task[None]] = set()
    return resume


@pytest.mark.rule("06.12")
@pytest.mark.parametrize(
    ("resume", "result", "words_of_note"),
    [
        (running_to("fine"), "fine", "it has completed its run."),
        (running_to(None), None, "has completed its run, and has left no text."),
        (running_to(None, ValueError), "ValueError", "its run has failed."),
        (running_to("so far", asyncio.CancelledError), "so far", "was ended before it was done."),
    ],
)
def test_a_send_that_waited_for_a_run_says_how_it_ended(
    resume: Any, result: str | None, words_of_note: str
) -> None:
    async def work() -> None:
        async with hosted(resume=resume, background=False) as (session, agents):
            worker = await agents.start("worker")
            await worker.finish()
            receipt = sent(await session.send("worker", "go", summary="s"), "resumed")
            assert receipt.result == result
            assert receipt.note.endswith(words_of_note)

    run(work())


@pytest.mark.rule("06.12")
def test_background_work_is_off_for_agents_of_an_earlier_life_too(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (_, agents):
            worker = await agents.start("worker")
            await worker.finish()
            agents.main.drain().confirm()
        async with host.open(background=False, resume=running_to("fine")) as (session, agents):
            receipt = sent(await session.send("worker", "go", summary="s"), "resumed")
            assert receipt.result == "fine"
            assert not agents.main.drain(idle=True)
            again = agents.get("worker")
            assert again is not None
            assert not again.background
            refused(await again.send("main", "hello", summary="s"), "main_not_addressable")
        async with host.open() as (_, agents):
            again = agents.get("worker")
            assert again is not None
            assert again.background

    run(work())


@pytest.mark.rule("06.11", "06.8")
def test_a_run_that_a_message_began_is_told_to_the_owner_also_of_a_synchronous_agent() -> None:
    async def work() -> None:
        starter = Starter()
        async with hosted(resume=starter) as (session, agents):
            worker = await agents.start("worker", background=False)
            refused(await worker.send("main", "early", summary="s"), "main_not_addressable")
            await worker.finish(result="for its caller")
            assert not agents.main.drain(idle=True)
            sent(await session.send("worker", "go on", summary="s"), "resumed")
            assert worker.background
            sent(await worker.send("main", "under way", summary="s"))
            await worker.finish(result="for main")
            told = entries(agents.main.drain())
            assert [entry.task.result if entry.task else entry.text for entry in told] == [
                "under way",
                "for main",
            ]

    run(work())


# ── the main queue ───────────────────────────────────────────────────────────────────────────────


def entries(batch: Batch) -> list[Entry]:
    """What comes from inside the process."""
    return [entry for entry in batch.entries if isinstance(entry, Entry)]


@pytest.mark.rule("06.2", "06.3")
def test_waiting_never_promises_what_a_drain_does_not_hand_over() -> None:
    async def work() -> None:
        gathering = Gathering()
        async with hosted(gathering) as (_, agents), peer_of(gathering) as peer:
            main, worker = agents.main, await agents.start("worker")
            worker.progress("10 %")
            sent(await peer.send("lead", "when you can", summary="s", priority="later"))
            assert not await main.wait(timeout=0)
            assert not main.drain()
            sent(await peer.send("lead", "now", summary="s"))
            assert await main.wait(timeout=5)
            batch = main.drain()
            assert words(batch) == ["now"]
            batch.confirm()
            assert not await main.wait(timeout=0)
            batch = main.rest()
            assert words(batch) == ["10 %", "when you can"]
            batch.confirm()
            assert not main.rest()
            assert main.idle
            worker.progress("20 %")
            assert await main.wait(timeout=5)
            assert words(main.drain()) == ["20 %"]  # it had gone idle, so `later` is due

    run(work())


@pytest.mark.rule("06.2", "11.1")
def test_what_is_given_back_waits_in_the_order_in_which_it_came() -> None:
    async def work() -> None:
        gathering = Gathering()
        async with hosted(gathering) as (_, agents), peer_of(gathering) as peer:
            worker = await agents.start("worker")
            for count in range(3):
                sent(await worker.send("main", f"inside {count}", summary="s"))
                sent(await peer.send("lead", f"outside {count}", summary="s"))
            batch = agents.main.drain()
            came = words(batch)
            assert came == [f"{side} {count}" for count in range(3) for side in ("inside", "outside")]
            batch.release()
            again = agents.main.drain()
            assert words(again) == came
            assert all(entry.redelivered for entry in again.entries)

    run(work())


@pytest.mark.rule("06.2", "03.41")
def test_what_was_let_in_waits_from_when_it_was_let_in() -> None:
    async def work() -> None:
        gathering = Gathering()
        async with hosted(gathering) as (session, agents), peer_of(gathering) as peer:
            session.set_mode("bypassPermissions", by="person")
            worker = await agents.start("worker")
            await peer.send("lead", "held", summary="s")
            (hold,) = session.held()
            sent(await worker.send("main", "before", summary="s"))
            session.approve(hold.message.msg_id)
            sent(await worker.send("main", "after", summary="s"))
            assert words(agents.main.drain()) == ["before", "held", "after"]

    run(work())


@pytest.mark.rule("06.2")
@pytest.mark.parametrize("text", [None, 5, b"x", "", "\ud800"])
def test_a_prompt_is_a_text(text: Any) -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            with pytest.raises(BadUsage):
                agents.main.prompt(text)
            agents.main.prompt("fine")
            assert agents.main.drain().texts == ["fine"]

    run(work())


@pytest.mark.rule("06.3")
def test_a_prompt_after_the_end_of_the_session_is_an_error() -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            pass
        with pytest.raises(SessionClosed):
            agents.main.prompt("hello")

    run(work())


# ── the ends of things ───────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.24")
def test_what_the_user_stopped_says_nothing_more() -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            worker, viewer = await agents.start("worker"), await agents.start("viewer")
            await agents.stop(worker)
            assert worker.stopped_by_user
            assert "stopped by the user" in repr(worker)
            for to in ("viewer", "main"):
                refused(await worker.send(to, "still here", summary="s"), "stopped_by_user")
            assert viewer.waiting == 0
            agents.restart(worker)
            assert not worker.stopped_by_user
            sent(await worker.send("viewer", "again", summary="s"))

    run(work())


@pytest.mark.rule("06.5", "06.13")
def test_the_loop_of_a_run_that_was_stopped_takes_nothing_of_the_next_one() -> None:
    taken: list[list[str]] = []

    async def work() -> None:
        tidied = asyncio.Event()

        async def loop(agent: Agent) -> None:
            async with agent.running():
                try:
                    await asyncio.Event().wait()
                finally:
                    await tidied.wait()
                    taken.append(words(agent.drain()))

        async with hosted(resume=Starter()) as (session, agents):
            worker = await agents.start("worker")
            old = asyncio.get_running_loop().create_task(loop(worker))
            await asyncio.sleep(0)
            await agents.stop(worker, by_user=False)
            sent(await session.send("worker", "begins the next", summary="s"), "resumed")
            sent(await session.send("worker", "for the next", summary="s"))
            tidied.set()
            with pytest.raises(asyncio.CancelledError):
                await old
            assert taken == [[]]
            assert (worker.state, words(worker.drain())) == ("live", ["for the next"])

    run(work())


@pytest.mark.rule("06.14", "06.11")
def test_nobody_is_resumed_for_what_concerned_the_run_that_ended() -> None:
    async def work() -> None:
        starter = Starter()
        async with hosted(resume=starter) as (session, agents):
            worker, viewer = await agents.start("worker"), await agents.start("viewer")
            sent(await worker.send("viewer", "lost", summary="s"))
            report = sent(agents.observe(worker).report("it hesitates"))
            await agents.stop(viewer)  # worker is told that its message was lost
            assert worker.waiting == 2
            await worker.finish()
            await asyncio.sleep(0)
            assert (worker.state, worker.waiting, starter.calls) == ("completed", 0, [])
            assert [step.state for step in session.store.steps(report.msg_id)] == ["failed"]

    run(work())


@pytest.mark.rule("06.14", "03.57", "03.60")
def test_an_observer_is_held_by_the_loop_guard_too() -> None:
    async def work() -> None:
        async with hosted(limits=Limits(bucket_capacity=5, refill_per_second=0.05)) as (_, agents):
            worker = await agents.start("worker")
            for observer in (agents.observe(), agents.observe(worker)):
                sent(observer.report("look"))
                refused(observer.report("look!"), "duplicate")
                for count in range(4):
                    sent(observer.report(f"look {count}"))
                refused(observer.report("once more"), "rate_limited")

    run(work())


@pytest.mark.rule("06.15", "06.13")
def test_the_end_of_the_session_is_the_end_of_its_runs() -> None:
    ended: list[tuple[str, str]] = []

    async def work() -> None:
        begun = asyncio.Event()

        async def loop(agent: Agent) -> None:
            async with agent.running():
                begun.set()
                await asyncio.Event().wait()

        hooks = Hooks(agent_stopped=lambda event: ended.append((event.name, event.status)))
        async with hosted(hooks=hooks) as (_, agents):
            worker = await agents.start("worker")
            await agents.start("viewer")
            task = asyncio.get_running_loop().create_task(loop(worker))
            await begun.wait()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work())
    assert sorted(ended) == [("viewer", "killed"), ("worker", "killed")]


@pytest.mark.rule("06.13")
def test_no_process_can_act_for_an_agent_of_a_session_in_memory() -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            worker = await agents.start("worker")
            for who in (worker, agents.observe()):
                with pytest.raises(BadUsage, match="memory"):
                    who.environment()

    run(work())


@pytest.mark.rule("01.29")
def test_an_agents_last_sign_of_life_is_its_latest_boundary(host: Host) -> None:
    async def work() -> None:
        clock = Time()
        async with hosted(clock=clock) as (_, agents):
            worker = await agents.start("worker")
            clock.now += 60_000
            worker.drain()
            assert agents.rows()[0].seen_at == clock.now

    run(work())


@pytest.mark.rule("06.15")
def test_a_veto_is_an_error_of_ours_and_the_run_goes_on() -> None:
    async def work() -> None:
        said = iter(["not tested yet"])

        def not_yet(event: LifecycleEvent) -> None:
            for reason in said:
                raise Veto(reason)

        async with hosted(hooks=Hooks(task_completed=not_yet)) as (_, agents):
            worker = await agents.start("worker")
            reasons: list[str] = []
            while worker.state == "live":
                try:
                    async with worker.running() as its_run:
                        its_run.result = f"after {len(reasons)} vetoes"
                except PostroomError as veto:
                    reasons.append(veto.message)
            assert reasons == ["not tested yet"]
            (told,) = entries(agents.main.drain())
            assert told.task is not None
            assert told.task.result == "after 1 vetoes"

    run(work())


# ── what an attack found ─────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.5", "06.7")
def test_a_worker_whose_run_was_stopped_goes_on_with_other_agents_and_with_this_one() -> None:
    async def work() -> None:
        async with hosted(resume=Starter()) as (session, agents):
            one, two = await agents.start("one"), await agents.start("two")

            async def worker() -> list[list[str]]:
                read: list[list[str]] = []
                try:
                    async with one.running():
                        await asyncio.Event().wait()
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    assert task is not None
                    task.uncancel()
                for agent in (two, one):
                    async with agent.running():
                        assert await agent.wait(5)
                        read.append(words(agent.drain()))
                return read

            task = asyncio.get_running_loop().create_task(worker())
            await asyncio.sleep(0)
            await agents.stop(one, by_user=False)
            sent(await session.send("one", "again", summary="s"), "resumed")
            for name in ("one", "two"):
                sent(await session.send(name, f"for {name}", summary="s"))
            async with asyncio.timeout(20):
                assert await task == [["for two"], ["for one"]]

    run(work())


@pytest.mark.rule("06.5", "02.24")
def test_what_a_stopped_run_has_begun_takes_and_ends_nothing_of_the_next() -> None:
    async def work() -> None:
        async with hosted(resume=Starter()) as (session, agents):
            worker = await agents.start("worker")
            begun, go = asyncio.Event(), asyncio.Event()
            left: list[asyncio.Task[tuple[list[str], bool, bool]]] = []

            async def child() -> tuple[list[str], bool, bool]:
                begun.set()
                await go.wait()
                return words(worker.drain()), await worker.wait(5), await worker.finish(result="old")

            async def loop() -> None:
                async with worker.running():
                    left.append(asyncio.get_running_loop().create_task(child()))
                    await begun.wait()
                    await agents.stop(worker, by_user=False)  # it stops itself
                    sent(await session.send("worker", "begins the next", summary="s"), "resumed")
                    sent(await session.send("worker", "for the next", summary="s"))
                    assert words(worker.drain()) == []
                    assert not await worker.finish(result="old")

            await loop()
            go.set()
            assert await left[0] == ([], False, False)
            assert (worker.state, worker.run, words(worker.drain())) == ("live", 2, ["for the next"])
            assert not await worker.finish(result="old", run_number=1)
            assert await worker.finish(result="new", run_number=2)

    run(work())


@pytest.mark.rule("06.13")
@pytest.mark.parametrize("plain", [False, True])
def test_a_run_that_comes_too_late_is_not_taken_for_the_next_one(plain: bool) -> None:
    async def work() -> None:
        late, over = asyncio.Event(), asyncio.Event()
        came: list[tuple[str, int | str]] = []
        tasks: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()

        async def begin(agent: Agent, text: str, first: bool) -> None:
            if first:
                await late.wait()
            try:
                async with agent.running() as its_run:
                    came.append((text, its_run.number))
                    await over.wait()
            except AgentStopped:
                came.append((text, "too late"))

        def started(agent: Agent, text: str) -> None:
            tasks.append(loop.create_task(begin(agent, text, text == "first")))

        def plainly(agent: Agent, messages: Any) -> None:
            loop.call_soon_threadsafe(started, agent, words(messages)[0])
            if words(messages)[0] == "first":
                raise ValueError

        async def resume(agent: Agent, messages: Any) -> None:
            started(agent, words(messages)[0])
            if words(messages)[0] == "first":
                raise ValueError

        async with hosted(resume=plainly if plain else resume) as (session, agents):
            worker = await agents.start("worker")
            await worker.finish()
            refused(await session.send("worker", "first", summary="s"), "resume_failed")
            sent(await session.send("worker", "second", summary="s"), "resumed")
            late.set()
            await until(lambda: len(came) == 2)
            assert sorted(came) == [("first", "too late"), ("second", 3)]
            with pytest.raises(AgentStopped, match="Another loop"):
                async with worker.running():
                    pass
            over.set()
            await asyncio.gather(*tasks)

    run(work())


@pytest.mark.rule("02.24", "06.13", "06.15")
def test_nobody_finds_or_stops_an_agent_that_a_hook_has_not_allowed_yet() -> None:
    async def work() -> None:
        asked, go = asyncio.Event(), asyncio.Event()

        async def slow(event: LifecycleEvent) -> None:
            asked.set()
            await go.wait()

        async with hosted(hooks=Hooks(task_created=slow)) as (session, agents):
            starting = asyncio.get_running_loop().create_task(agents.start("worker", agent_id="job"))
            await asked.wait()
            assert agents.get("worker") is agents.get("job") is None
            assert len(agents) == 0
            refused(await session.send("worker", "early", summary="s"), "not_found")
            go.set()
            assert await starting is agents.get("worker")

    run(work())


@pytest.mark.rule("02.24", "06.13")
def test_what_could_not_be_written_is_not_let_go_of(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with host.open() as (session, agents):
            worker = await agents.start("worker")

            def full(*_: object, **__: object) -> None:
                raise StoreFailed("The disk is full.")

            with monkeypatch.context() as disk:
                disk.setattr(AgentFiles, "write", full)
                with pytest.raises(StoreFailed):
                    await agents.stop(worker)
                with pytest.raises(StoreFailed):
                    agents.evict(worker)
                refused(await session.send("worker", "x", summary="s"), "stopped_by_user")
            agents.evict(worker)
            refused(await session.send("worker", "x", summary="s"), "stopped_by_user")

    run(work())


@pytest.mark.rule("03.57", "02.25")
def test_to_be_evicted_gives_no_full_bucket() -> None:
    async def work() -> None:
        starter = Starter()
        async with hosted(resume=starter, limits=Limits(bucket_capacity=5, refill_per_second=0.05)) as (
            _,
            agents,
        ):
            talker = await agents.start("talker")
            await agents.start("worker")
            for count in range(5):
                await talker.send("worker", f"{count}", summary="s")
                worker = agents.get("worker")
                assert worker is not None
                worker.drain()
                await worker.finish()
                agents.evict(worker)
                del worker
                gc.collect()
            refused(await talker.send("worker", "one more", summary="s"), "rate_limited")

    run(work())


@pytest.mark.rule("03.66", "03.68")
@pytest.mark.parametrize("split", [False, True])
def test_agents_that_answer_each_other_come_to_rest_also_where_one_task_reads_and_another_acts(
    split: bool,
) -> None:
    async def work() -> None:
        calm = Limits(bucket_capacity=500, total_capacity=5000, repeat_seconds=0)
        async with hosted(limits=calm) as (_, agents):
            pair = [await agents.start("ada"), await agents.start("bob")]
            count = 0
            ended = asyncio.Event()

            async def answer(me: Agent, other: Agent) -> None:
                nonlocal count
                count += 1
                if count > 100 or isinstance(
                    await me.send(other.name, f"answer {count}", summary="s"), Refusal
                ):
                    ended.set()

            async def read(me: Agent, heard: asyncio.Queue[None]) -> None:
                while await me.wait():
                    me.drain()
                    heard.put_nowait(None)

            async def act(me: Agent, other: Agent, heard: asyncio.Queue[None]) -> None:
                while True:
                    await heard.get()
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    await answer(me, other)

            async def both(me: Agent, other: Agent) -> None:
                while await me.wait():
                    me.drain()
                    await answer(me, other)

            tasks: list[asyncio.Task[None]] = []
            for me, other in (pair, pair[::-1]):
                if split:
                    heard: asyncio.Queue[None] = asyncio.Queue()
                    tasks += [
                        asyncio.create_task(read(me, heard)),
                        asyncio.create_task(act(me, other, heard)),
                    ]
                else:
                    tasks.append(asyncio.create_task(both(me, other)))
            sent(await pair[0].send("bob", "begin", summary="s"))
            async with asyncio.timeout(20):
                await ended.wait()
            assert count <= 30
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(work())


@pytest.mark.rule("03.66")
def test_a_loop_that_never_waits_says_that_what_it_sends_now_has_another_cause() -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            ada, bob = await agents.start("ada"), await agents.start("bob")
            sent(await bob.send("ada", "hello", summary="s"))
            ada.drain()
            ada.drain()
            sent(await ada.send("bob", "an answer", summary="s"))
            assert len(chain_of(bob.drain())) == 2
            ada.turn_over()
            sent(await ada.send("bob", "by my timer", summary="s"))
            assert len(chain_of(bob.drain())) == 1

    run(work())


@pytest.mark.rule("06.12", "02.27")
def test_without_background_work_a_sender_hears_of_the_run_that_read_its_message() -> None:
    async def work() -> None:
        begun, go = asyncio.Event(), asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        async def its_loop(agent: Agent, texts: list[str]) -> None:
            async with agent.running() as its_run:
                its_run.result = f"read {texts}"

        async def resume(agent: Agent, messages: Any) -> None:
            begun.set()
            if words(messages) == ["one"]:
                await go.wait()
            tasks.add(asyncio.get_running_loop().create_task(its_loop(agent, words(messages))))

        async with hosted(resume=resume, background=False) as (session, agents):
            await (await agents.start("worker")).finish()
            first = asyncio.create_task(session.send("worker", "one", summary="s"))
            await begun.wait()
            second = asyncio.create_task(session.send("worker", "two", summary="s"))
            await asyncio.sleep(0)
            go.set()
            async with asyncio.timeout(20):
                assert sent(await first, "resumed").result == "read ['one']"
                assert sent(await second, "resumed").result == "read ['two']"

    run(work())


@pytest.mark.rule("06.11")
def test_progress_that_comes_back_after_its_run_has_ended_is_read_by_nobody() -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            chief = await agents.start("chief")
            for owner in (None, chief):
                worker = await agents.start("worker", owner=owner)
                worker.progress("half")
                taken = agents.main.drain(idle=True) if owner is None else chief.drain()
                await worker.finish()
                agents.main.drain().confirm()
                chief.drain()
                taken.release()
                assert not agents.main.drain(idle=True)
                assert not chief.drain()

    run(work())


@pytest.mark.rule("02.27", "11.5")
def test_a_sender_that_stopped_waiting_is_told_by_a_notice_also_where_it_chose_the_id() -> None:
    async def work() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def resume(agent: Agent, messages: Any) -> None:
            begun.set()
            await go.wait()
            raise ValueError

        async with hosted(resume=resume) as (session, agents):
            await (await agents.start("worker")).finish()
            agents.main.drain().confirm()
            raw = {"to": "worker", "message": "x", "summary": "s"}
            msg_id = session.new_id()
            waiting = asyncio.create_task(session.send_call(raw, msg_id=msg_id))
            await begun.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            go.set()
            await until(lambda: agents.main.waiting == 1)
            assert msg_id in words(agents.main.drain())[0]

    run(work())


@pytest.mark.rule("11.5")
def test_a_send_that_is_under_way_is_not_forgotten_for_ten_thousand_others() -> None:
    async def work() -> None:
        begun, go = asyncio.Event(), asyncio.Event()
        starter = Starter()

        async def resume(agent: Agent, messages: Any) -> None:
            begun.set()
            await go.wait()
            await starter(agent, messages)

        async with hosted(resume=resume) as (session, agents):
            await (await agents.start("worker")).finish()
            other = await agents.start("other")
            msg_id = session.new_id()
            raw = {"to": "worker", "message": "pay 10", "summary": "s"}
            first = asyncio.create_task(session.send_call(raw, msg_id=msg_id))
            await begun.wait()
            for count in range(10_001):
                note = {"to": "other", "message": f"{count}", "summary": "s"}
                sent(await session.send_call(note, msg_id=session.new_id()))
                if not count % 1000:
                    other.drain()
            again = asyncio.create_task(session.send_call(raw, msg_id=msg_id))
            await asyncio.sleep(0)
            go.set()
            assert await first == await again
            assert starter.texts == ["pay 10"]

    run(work())


@pytest.mark.rule("06.16")
def test_to_stop_a_scripts_agent_stops_no_script() -> None:
    agents_: list[Agent] = []

    async def script(agent: Agent, prompt: str) -> str:
        agents_.append(agent)
        await asyncio.Event().wait()
        return prompt

    async def work() -> None:
        async with hosted(run=script) as (session, agents):
            running = asyncio.create_task(session.run_agent("x"))
            await until(lambda: bool(agents_))
            await agents.stop(agents_[0], by_user=False)
            with pytest.raises(AgentStopped):
                await running
            again = asyncio.create_task(session.run_agent("y"))
            await until(lambda: len(agents_) == 2)
            again.cancel()
            with pytest.raises(asyncio.CancelledError):
                await again
            assert agents_[1].state == "killed"

    run(work())


@pytest.mark.rule("02.25", "11.10")
def test_nothing_brings_an_evicted_agent_back_but_a_use_of_it(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (_, agents):
            chief = await agents.start("chief")
            gone: list[ref[Agent]] = []
            for number in range(5):
                agent = await agents.start(f"w{number}", owner=chief if number % 2 else None)
                agent.environment()
                await agent.finish(result="x")
                agents.evict(agent)
                gone.append(ref(agent))
                del agent
            chief.drain()
            await chief.finish()
            agents.evict(chief)
            gone.append(ref(chief))
            del chief
            agents.main.drain().confirm()
            gc.collect()
            assert [one() for one in gone] == [None] * 6

    run(work())


@pytest.mark.rule("06.3")
def test_a_time_to_wait_is_a_number() -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            worker = await agents.start("worker")
            for waiting in (worker.wait, agents.main.wait):
                with pytest.raises(ValueError, match="number"):
                    await waiting(float("nan"))
                assert not await waiting(-1)
                forever = asyncio.create_task(waiting(10**400))
                await asyncio.sleep(0)
                forever.cancel()

    run(work())


# ── what the last reading found ──────────────────────────────────────────────────────────────────


@pytest.mark.rule("11.5", "02.24", "02.27")
def test_a_message_that_was_lost_is_no_repeat_when_it_comes_again() -> None:
    async def work() -> None:
        starter = Starter()
        async with hosted(resume=starter) as (session, agents):
            worker, other = await agents.start("worker"), await agents.start("other")
            raw = {"to": "worker", "message": "x", "summary": "s"}
            msg_id = session.new_id()
            sent(await session.send_call(raw, msg_id=msg_id))
            sent(await session.send_call(raw | {"to": "other"}, msg_id=msg_id))
            assert words(other.drain()) == ["x"]  # to somebody else it is another message
            await agents.stop(worker)
            refused(await session.send_call(raw, msg_id=msg_id), "stopped_by_user")
            agents.restart(worker)
            sent(await session.send_call(raw, msg_id=msg_id), "resumed")
            assert starter.texts == ["x"]

    run(work())


@pytest.mark.rule("06.3", "06.15", "06.13")
@pytest.mark.parametrize("begun_by", ["wake", "async wake", "hook", "guard", "resume"])
def test_what_the_host_begins_elsewhere_is_bound_to_no_run_that_happened_to_cause_it(begun_by: str) -> None:
    async def work() -> None:
        turn: list[asyncio.Task[tuple[list[str], bool]]] = []
        second = asyncio.Event()

        async def later(worker: Agent) -> tuple[list[str], bool]:
            await second.wait()
            return words(worker.drain()), await worker.finish(result="by its host")

        def begins() -> None:
            if not turn and parts:
                turn.append(asyncio.get_running_loop().create_task(later(*parts)))

        async def async_begins(*_: object) -> None:
            begins()

        def guard(agent: Agent) -> None:
            if begun_by == "guard" and agent.name == "other":
                loop.call_soon_threadsafe(begins)

        async def resume(agent: Agent, messages: Any) -> None:
            if begun_by == "resume" and agent.name == "other":
                begins()

        loop = asyncio.get_running_loop()
        parts: list[Any] = []
        wake = begins if begun_by == "wake" else async_begins if begun_by == "async wake" else None
        hooks = Hooks(task_completed=async_begins) if begun_by == "hook" else None
        async with hosted(wake=wake, hooks=hooks, resume=resume, guard=guard) as (session, agents):
            worker, other = await agents.start("worker"), await agents.start("other")
            await other.finish("failed")
            agents.main.rest()
            agents.main.drain()
            agents.main.rest()
            parts.append(worker)

            async def its_loop() -> None:
                async with worker.running():
                    if begun_by in ("guard", "resume"):
                        sent(await worker.send("other", "x", summary="s"), "resumed")
                    else:
                        sent(await worker.send("main", "x", summary="s"))
                        await asyncio.sleep(0)

            await its_loop()
            await until(lambda: bool(turn))
            sent(await session.send("worker", "begins the next", summary="s"), "resumed")
            sent(await session.send("worker", "for it", summary="s"))
            second.set()
            assert await turn[0] == (["for it"], True)

    run(work())


@pytest.mark.rule("03.36", "03.57")
def test_other_limits_apply_at_once_inside_too() -> None:
    async def work() -> None:
        async with hosted(limits=None) as (session, agents):
            worker, talker = await agents.start("worker"), await agents.start("talker")
            for to in ("worker", "main"):
                sent(await talker.send(to, "first", summary="s"))
            standing = session.standing
            tight = replace(standing.settings, limits=replace(standing.settings.limits, bucket_capacity=5))
            session.apply(tight)
            for to in ("worker", "main"):
                for count in range(5):
                    answer = await talker.send(to, f"{count}", summary="s")
                    if isinstance(answer, Refusal):
                        break
                refused(await talker.send(to, "one more", summary="s"), "rate_limited")
            assert worker.waiting <= 6

    run(work())


@pytest.mark.rule("02.27", "06.12")
def test_without_background_work_too_who_stopped_waiting_is_told_by_a_notice() -> None:
    async def work() -> None:
        begun, go = asyncio.Event(), asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        async def its_loop(agent: Agent) -> None:
            async with agent.running():
                pass

        async def resume(agent: Agent, messages: Any) -> None:
            if agent.run > 2:
                raise ValueError
            begun.set()
            await go.wait()
            tasks.add(asyncio.get_running_loop().create_task(its_loop(agent)))

        async with hosted(resume=resume, background=False) as (session, agents):
            await (await agents.start("worker")).finish()
            first = asyncio.create_task(session.send("worker", "one", summary="s"))
            await begun.wait()
            msg_id = session.new_id()
            raw = {"to": "worker", "message": "two", "summary": "s"}
            second = asyncio.create_task(session.send_call(raw, msg_id=msg_id))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            go.set()
            await first
            await until(lambda: agents.main.waiting == 1)
            assert msg_id in words(agents.main.drain())[0]

    run(work())


@pytest.mark.rule("06.5", "06.11")
def test_a_loop_by_hand_says_which_run_it_is() -> None:
    async def work() -> None:
        async with hosted(resume=Starter()) as (session, agents):
            worker = await agents.start("worker")
            number = worker.run
            await agents.stop(worker, by_user=False)
            sent(await session.send("worker", "begins the next", summary="s"), "resumed")
            sent(await session.send("worker", "for it", summary="s"))
            assert not worker.drain(run_number=number)
            assert not await worker.finish(result="old", run_number=number)
            assert words(worker.drain(run_number=worker.run)) == ["for it"]

    run(work())


@pytest.mark.rule("06.11")
def test_progress_that_waits_elsewhere_is_not_read_after_the_end() -> None:
    async def work() -> None:
        async with hosted(resume=Starter()) as (session, agents):
            chief = await agents.start("chief")
            worker = await agents.start("worker", owner=chief)
            await chief.finish()
            worker.progress("half")  # nobody else is there: main's
            sent(await session.send("chief", "go on", summary="s"), "resumed")
            await worker.finish(result="done")
            assert [entry.task and entry.task.status for entry in entries(chief.drain())] == ["completed"]
            batch = agents.main.rest()
            assert [entry.task and entry.task.task_id for entry in entries(batch)] == [chief.id]
            chief.progress("a bit")

    run(work())


@pytest.mark.rule("02.26", "06.13")
def test_nothing_that_start_and_finish_take_makes_a_life_that_cannot_be_read(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (_, agents):
            odd: Any = 1
            agent = await agents.start("worker", background=odd, agent_type="\ud800", agent_id="w")
            with pytest.raises(BadUsage):
                await agent.finish(output_path="/tmp/\ud800")
            with pytest.raises(BadUsage):
                await agent.finish(worktree="/tmp/\ud800")
            with pytest.raises(BadUsage):
                await agents.start("other", transcript="/tmp/\ud800")
            raw: Any = b"/tmp/\xff"
            await agent.finish(result="\ud800", usage={"\ud800": 1}, output_path=raw)
        async with host.open() as (session, agents):
            again = agents.get("worker")
            assert again is not None
            assert session.problems == ()
            (told,) = entries(agents.main.drain())
            assert told.task is not None
            assert told.task.output_path == "/tmp/\udcff"

    run(work())


@pytest.mark.rule("06.16")
def test_a_run_that_wants_to_end_the_program_has_failed() -> None:
    async def leaves(agent: Agent, prompt: str) -> str:
        raise SystemExit(3)

    async def work() -> None:
        async with hosted(run=leaves) as (session, _):
            with pytest.raises(Quit, match="SystemExit"):
                await session.run_agent("x")

    run(work())


@pytest.mark.rule("06.16", "06.13")
def test_the_end_of_the_agents_is_the_end_of_what_runs_for_a_script() -> None:
    begun = asyncio.Event()

    async def script(agent: Agent, prompt: str) -> str:
        begun.set()
        await asyncio.Event().wait()
        return prompt

    async def work() -> None:
        async with hosted(run=script) as (session, agents):
            running = asyncio.create_task(session.run_agent("x"))
            await begun.wait()
            await agents.close()
            with pytest.raises(AgentStopped):
                await running
            with pytest.raises(SessionClosed, match="agents of lead"):
                await agents.start("late")

    run(work())


@pytest.mark.rule("06.8", "01.18")
def test_a_synchronous_agent_whose_resume_failed_may_not_write_to_main() -> None:
    async def resume(agent: Agent, messages: Any) -> None:
        raise ValueError

    async def work() -> None:
        async with hosted(resume=resume) as (session, agents):
            worker = await agents.start("worker", background=False)
            refused(await worker.send("main", "x", summary="s"), "main_not_addressable")
            await worker.finish()
            refused(await session.send("worker", "x", summary="s"), "resume_failed")
            assert not worker.background
            refused(await worker.send("main", "x", summary="s"), "main_not_addressable")

    run(work())


@pytest.mark.rule("06.14", "06.5")
def test_what_concerned_the_run_that_ended_is_not_handed_to_the_next() -> None:
    async def work() -> None:
        starter = Starter()
        async with hosted(resume=starter) as (session, agents):
            worker = await agents.start("worker")
            sent(agents.observe(worker).report("it hesitates"))
            sent(await session.send("worker", "go on", summary="s"))
            await worker.finish()
            await until(lambda: bool(starter.calls))
            assert starter.texts == ["go on"]

    run(work())


@pytest.mark.rule("06.13")
def test_a_stop_in_its_file_that_this_session_did_not_write_is_no_agent_of_its_own(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (session, agents):
            worker = await agents.start("worker")
            await worker.finish()
            path = host.folder(worker.id) / "agent.json"
            path.write_text(path.read_text().replace('"stopped_by_user":false', '"stopped_by_user":true'))
            refused(await session.send("worker", "x", summary="s"), "resume_failed")

    run(work())


@pytest.mark.rule("06.13", "02.17")
def test_the_transcript_says_that_the_end_of_the_session_killed_it(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (_, agents):
            worker = await agents.start("worker")
            assert worker.transcript is not None
            path = worker.transcript.path
        assert "killed" in repr(read(path).agents[worker.id])

    run(work())
