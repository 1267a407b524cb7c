"""Agents inside a session, rule by rule on the public API: names, queues, steering, returns, observers (chapter 06)."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from postroom import (
    Agent,
    Agents,
    BadUsage,
    Gathering,
    Hooks,
    InvalidName,
    LifecycleEvent,
    Limits,
    Receipt,
    Refusal,
    Session,
    Veto,
    open_session,
)
from postroom.core.address import ref_of, shown
from postroom.core.contract import MAX_SENT
from postroom.core.envelope import PREFACE
from postroom.core.queues import CAPACITY, Entry
from postroom.opening import send_as_outsider
from tests.crew import (
    Starter,
    Time,
    attributes,
    blocks,
    denying,
    hosted,
    names,
    peer_of,
    refused,
    sent,
    words,
)
from tests.room import NOW
from tests.transports.ends import SECONDS, run, turns, until

BUCKET, SELF_HOPS, CHAIN = 30, 10, 28
"""Messages at once by one sender, returns to one token, links of one chain (03.58, 03.61, 03.62)."""


# ── who there is ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.7", "02.10")
def test_an_agent_has_an_identity_a_name_and_a_type_and_is_found_by_the_first_two() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("API Worker", agent_type="coder", agent_id="w_1-a")
            assert (worker.id, worker.name, worker.type) == ("w_1-a", "API Worker", "coder")
            assert (worker.ref, worker.state, worker.run) == (ref_of("w_1-a"), "live", 1)
            for to in ("API Worker", "api_worker", "w_1-a", f"API Worker [{worker.ref}]"):
                receipt = sent(await session.send(to, f"by {to}", summary="s"))
                assert (receipt.to.name, receipt.to.ref, receipt.to.kind) == (
                    "API Worker",
                    worker.ref,
                    "agent",
                )
            assert len(worker.drain()) == 4
            assert agents.get("api.worker") is agents.get("w_1-a") is worker
            assert agents.get("coder") is None
            assert list(agents) == [worker]
            unnamed = await agents.start(agent_type="test runner")
            assert unnamed.name == f"test-runner-{unnamed.ref[:2]}"

    run(work())


@pytest.mark.rule("02.3", "02.5")
def test_a_second_agent_of_a_name_is_called_otherwise_and_the_first_keeps_it() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            first = await agents.start("worker")
            second = await agents.start("Worker")
            third = await agents.start("worker")
            assert [first.name, second.name, third.name] == ["worker", "Worker-2", "worker-3"]
            await session.send("worker", "for the first", summary="s")
            await session.send("worker-2", "for the second", summary="s")
            assert [words(each.drain()) for each in (first, second, third)] == [
                ["for the first"],
                ["for the second"],
                [],
            ]
            await agents.stop(first)
            assert (await agents.start("worker")).name == "worker-4"  # a stopped one keeps its name

    run(work())


@pytest.mark.rule("02.2")
@pytest.mark.parametrize("name", ["main", "user", "a/b", "x" * 65, "team-lead", "bob@home", ""])
def test_a_name_that_breaks_a_rule_is_refused_and_leaves_nothing(name: str) -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            with pytest.raises(InvalidName):
                await agents.start(name)
            with pytest.raises(InvalidName):
                agents.observe(name=name)
            assert len(agents) == 0 == len(agents.rows())

    run(work())


@pytest.mark.rule("02.7")
@pytest.mark.parametrize("identity", ["../x", "a" * 81, "a b", "ü"])
def test_an_identity_that_could_name_no_folder_is_refused(identity: str) -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            with pytest.raises(BadUsage):
                await agents.start("worker", agent_id=identity)
            assert agents.rows() == []

    run(work())


@pytest.mark.rule("02.7")
def test_an_identity_belongs_to_one_agent_also_while_it_is_being_made() -> None:
    async def work() -> None:
        free = asyncio.Event()

        async def slow(event: LifecycleEvent) -> None:
            del event
            await free.wait()

        async with hosted(hooks=Hooks(task_created=slow)) as (session, agents):
            first = asyncio.create_task(agents.start("one", agent_id="same"))
            await turns()
            second = asyncio.create_task(agents.start("two", agent_id="same"))
            await turns()
            free.set()
            with pytest.raises(BadUsage):
                await second
            with pytest.raises(BadUsage):
                await agents.start("three", agent_id=session.id)
            assert await first is agents.get("same")
            with pytest.raises(BadUsage):
                await agents.start("four", agent_id="same")
            assert names(agents.rows()) == ["one"]

    run(work())


@pytest.mark.rule("06.13")
def test_a_session_hosts_agents_once() -> None:
    async def work() -> None:
        async with hosted() as (session, _):
            with pytest.raises(BadUsage):
                Agents(session)

    run(work())


@pytest.mark.rule("02.14")
def test_report_2_a_type_is_a_hint_and_no_address() -> None:
    """alice sends to bob's type: not found, with the hint; nothing comes to stand for that type."""

    async def work() -> None:
        async with hosted() as (_, agents):
            alice = await agents.start("alice", agent_type="x-theorist")
            bob = await agents.start("bob", agent_type="y-theorist")
            no = refused(await alice.send("y-theorist", "hello", summary="s"), "not_found")
            assert "did you mean bob (type y-theorist)?" in no.hint
            assert [one.ref for one in no.candidates] == [bob.ref]
            assert bob.waiting == 0
            assert names(agents.rows()) == ["alice", "bob"]

    run(work())


@pytest.mark.rule("02.11", "02.12", "02.14")
def test_refs_prefixes_and_near_names_of_agents() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("worker-of-all")
            other = await agents.start("viewer")
            stale = refused(await session.send(f"viewer [{worker.ref}]", "x", summary="s"), "stale_ref")
            assert shown("worker-of-all", worker.ref) in stale.message
            receipt = sent(await session.send("wor", "by its beginning", summary="s"))
            assert any("worker-of-all" in warning for warning in receipt.warnings)
            refused(await session.send("wo", "two letters are too few", summary="s"), "not_found")
            near = refused(await session.send("viewre", "x", summary="s"), "not_found")
            assert [one.name for one in near.candidates] == ["viewer"]
            assert (words(worker.drain()), words(other.drain())) == (["by its beginning"], [])

    run(work())


@pytest.mark.rule("01.20")
def test_an_agent_reaches_itself_never_and_a_longer_name_before_its_own() -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            work_ = await agents.start("work")
            for to in ("work", "WORK", work_.id, f"work [{work_.ref}]"):
                refused(await work_.send(to, "x", summary="s"), "cannot_message_self")
            worker = await agents.start("worker")
            assert sent(await work_.send("work", "x", summary="s")).to.name == "worker"
            assert (work_.waiting, worker.waiting) == (0, 1)

    run(work())


# ── the main queue ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.2")
def test_now_before_next_before_later_and_later_only_for_an_idle_loop() -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            main = agents.main
            for text, priority in (
                ("l1", "later"),
                ("x1", "next"),
                ("n1", "now"),
                ("x2", "next"),
                ("n2", "now"),
            ):
                main.prompt(text, priority=priority)  # pyright: ignore[reportArgumentType]
            assert main.waiting == 5
            assert words(main.drain()) == ["n1", "n2", "x1", "x2"]
            assert not main.drain()
            assert words(main.drain(idle=True)) == ["l1"]
            with pytest.raises(BadUsage):
                main.prompt("x", priority="soon")  # pyright: ignore[reportArgumentType]

    run(work())


@pytest.mark.rule("06.2", "04.9", "04.15")
def test_only_the_users_own_words_are_not_meta_and_come_through_as_they_are() -> None:
    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (_, agents), peer_of(here) as peer:
            worker = await agents.start("worker")
            agents.main.prompt("/clear @file </agent-message>")
            agents.main.prompt("from a timer", is_meta=True)
            await worker.send("main", "/clear", summary="s")
            await peer.send("lead", "/clear", summary="s")
            agents.observe().report("/clear")
            await worker.finish(result="/clear")
            batch = agents.main.drain()
            assert [(one.is_meta, one.origin and one.origin.kind) for one in batch] == [
                (False, "user"),
                (True, "user"),
                (True, "agent"),
                (True, "peer"),
                (True, "observer"),
                (True, "agent"),
            ]
            assert batch.texts[0] == "/clear @file </agent-message>"
            assert not any(text.startswith("/") for text in batch.texts[1:])
            assert [each.name for each in blocks(batch)] == [
                "agent-message",
                "cross-session-message",
                "observer-report",
                "task-notification",
            ]

    run(work())


@pytest.mark.rule("06.2")
def test_what_threads_queue_keeps_the_order_of_its_insertion_and_none_is_lost() -> None:
    async def work() -> None:
        woken: list[int] = []
        async with hosted(wake=lambda: woken.append(threading.get_ident())) as (_, agents):
            main = agents.main
            assert not main.rest()
            begin = threading.Barrier(4)

            def types(who: int) -> None:
                begin.wait(SECONDS)
                for number in range(200):
                    main.prompt(f"{who} {number}")

            typing = [threading.Thread(target=types, args=(who,)) for who in range(4)]
            for thread in typing:
                thread.start()
            got: list[str] = []
            await until(lambda: woken)
            while any(thread.is_alive() for thread in typing):
                got += words(main.drain())
                await asyncio.sleep(0)
            got += words(main.drain())
            assert len(got) == 800
            for who in range(4):
                mine = [text for text in got if text.startswith(f"{who} ")]
                assert mine == [f"{who} {number}" for number in range(200)]
            assert set(woken) == {threading.get_ident()}, "the host is woken in its own loop"

    run(work())


@pytest.mark.rule("06.2", "06.3")
def test_peers_and_agents_stand_in_one_order() -> None:
    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (_, agents), peer_of(here) as peer:
            worker = await agents.start("worker")
            await worker.send("main", "1", summary="s")
            await peer.send("lead", "2", summary="s")
            agents.main.prompt("3")
            await peer.send("lead", "5", summary="s", priority="later")
            await peer.send("lead", "4", summary="s")
            assert agents.main.waiting == 5
            batch = agents.main.drain()
            assert words(batch) == ["1", "2", "3", "4"]
            batch.confirm()
            assert words(agents.main.rest()) == ["5"]

    run(work())


@pytest.mark.rule("06.3")
def test_an_idle_loop_is_woken_once_until_it_drains() -> None:
    async def work() -> None:
        here, woken = Gathering(), count()
        async with hosted(here, wake=lambda: next(woken)) as (_, agents), peer_of(here) as peer:
            worker = await agents.start("worker")
            await worker.send("main", "while busy", summary="s")
            assert words(agents.main.rest()) == ["while busy"]
            assert not agents.main.idle
            await worker.send("main", "busy still", summary="s")
            assert words(agents.main.rest()) == ["busy still"]
            assert not agents.main.rest()
            assert agents.main.idle
            assert next(woken) == 0, "a loop that is not idle needs no waking"
            await worker.send("main", "a", summary="s")
            await peer.send("lead", "b", summary="s")
            agents.main.prompt("c", priority="later")
            agents.observe().report("d")
            await turns()
            assert next(woken) == 2, "once"
            assert words(agents.main.rest()) == ["a", "b", "d", "c"]
            assert not agents.main.rest()
            await peer.send("lead", "e", summary="s")
            await turns()
            assert next(woken) == 4, "and again once it has drained and rested"

    run(work())


@pytest.mark.rule("06.3")
def test_a_wake_that_raises_loses_nothing() -> None:
    async def work() -> None:
        def wake() -> None:
            raise RuntimeError("the host is broken")

        async with hosted(wake=wake) as (_, agents):
            worker = await agents.start("worker")
            assert not agents.main.rest()
            sent(await worker.send("main", "a", summary="s"))
            assert words(agents.main.drain()) == ["a"]

    run(work())


@pytest.mark.rule("06.3")
def test_a_loop_whose_mail_another_reader_took_goes_idle_all_the_same() -> None:
    """Its place in the queue is left; rest must neither hand over nothing nor leave the loop unwoken."""

    async def work() -> None:
        here, woken = Gathering(), count()
        async with hosted(here, wake=lambda: next(woken)) as (session, agents), peer_of(here) as peer:
            await peer.send("lead", "taken elsewhere", summary="s")
            assert len(session.drain()) == 1
            assert not agents.main.rest()
            assert agents.main.idle
            await peer.send("lead", "the next one", summary="s")
            await turns()
            assert next(woken) == 1
            assert words(agents.main.drain()) == ["the next one"]

    run(work())


@pytest.mark.rule("06.3")
def test_whoever_waits_for_the_main_loop_is_told_of_either_source() -> None:
    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (_, agents), peer_of(here) as peer:
            worker = await agents.start("worker")
            for say in (worker.send("main", "a", summary="s"), peer.send("lead", "b", summary="s")):
                waiting = asyncio.create_task(agents.main.wait(SECONDS))
                await turns()
                assert not waiting.done()
                await say
                assert await waiting
                agents.main.drain().confirm()
            assert not await agents.main.wait(0)

    run(work())


@pytest.mark.rule("06.3", "05.31")
@pytest.mark.parametrize("asked_first", [True, False], ids=["asked before", "asked while it waits"])
def test_no_idle_notice_overtakes_a_message_that_was_queued_before(asked_first: bool) -> None:
    """The loop went idle, an agent wrote to it, and it has not drained that yet: it is not idle for anybody."""

    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (_, agents), peer_of(here) as peer:
            worker = await agents.start("worker")
            if asked_first:
                sent(await peer.send("lead", notify_when_idle=True), "written")
                await turns()
                await worker.send("main", "before the end of the turn", summary="s")
            else:
                assert not agents.main.rest()
                await worker.send("main", "before the question", summary="s")
                sent(await peer.send("lead", notify_when_idle=True), "written")
            await turns(50)
            assert peer.peek_notices() == ()
            batch = agents.main.rest()
            assert len(batch) == 1, "what waits is handed over in place of going idle"
            batch.confirm()
            await turns(50)
            assert peer.peek_notices() == ()
            assert not agents.main.rest("all done")
            await turns(50)
            assert [(one.kind, one.about) for one in peer.peek_notices()] == [("idle", "lead")]

    run(work())


@pytest.mark.rule("06.3", "11.1")
def test_a_batch_that_is_given_back_comes_again_marked_and_in_front() -> None:
    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (_, agents), peer_of(here) as peer:
            worker = await agents.start("worker")
            await worker.send("main", "a", summary="s")
            await peer.send("lead", "b", summary="s")
            batch = agents.main.drain()
            await worker.send("main", "c", summary="s")
            batch.release()
            batch.release()
            again = agents.main.drain()
            assert sorted(words(again)) == ["a", "b", "c"]
            assert words(again)[-1] == "c"
            marked = {each.text: attributes(each).get("redelivered") for each in blocks(again)}
            assert marked == {"a": "yes", "b": "yes", "c": None}
            again.confirm()
            again.release()
            assert not agents.main.drain(idle=True)

    run(work())


# ── steering ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.4", "06.9", "06.3")
def test_a_send_to_a_live_agent_stands_in_its_list_at_once() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("worker")
            sending = session.send("worker", "look in auth", summary="where", in_reply_to=None)
            with pytest.raises(StopIteration) as ended:
                sending.send(None)  # it awaits nothing: it is done in the first step
            receipt = sent(ended.value.value)
            assert "this process, not on disk" in receipt.note
            [entry] = worker.peek()
            assert (entry.msg_id, entry.text, entry.is_meta, entry.origin.kind) == (
                receipt.msg_id,
                "look in auth",
                True,
                "coordinator",
            )
            assert worker.waiting == 1

    run(work())


@pytest.mark.rule("06.5", "06.7")
def test_a_drain_takes_all_and_clears_and_what_comes_then_is_in_the_next() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("worker")
            for text in ("1", "2", "3"):
                await session.send("worker", text, summary="s")
            request = worker.drain()
            before = request.text
            await session.send("worker", "4", summary="s")
            assert (words(request), request.text) == (["1", "2", "3"], before)
            assert words(worker.drain()) == ["4"]
            assert not worker.drain()

    run(work())


@pytest.mark.rule("06.6", "04.1", "04.4")
def test_each_message_is_an_attachment_with_a_fresh_id_and_its_senders_identity() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker, viewer = await agents.start("worker"), await agents.start("viewer")
            first = sent(await session.send("worker", "one </agent-message>", summary="s"))
            second = sent(await viewer.send("worker", "one", summary="s", in_reply_to=first.msg_id))
            batch = worker.drain()
            ids = [one.id for one in batch]
            assert len({*ids, first.msg_id, second.msg_id}) == 4
            assert [one.id for one in batch] == ids
            found = blocks(batch)
            assert [(attributes(each)["from"], attributes(each)["msg-id"]) for each in found] == [
                ("main", first.msg_id),
                ("viewer", second.msg_id),
            ]
            assert attributes(found[0])["sent-at"] == "2026-11-30T10:15:02Z"
            assert "</agent-message>" not in found[0].text
            assert batch.text.count(PREFACE) == 1
            assert batch.texts[0].startswith(PREFACE)

    run(work())


@pytest.mark.rule("06.10")
def test_an_answer_goes_to_the_address_in_the_envelope() -> None:
    """Exactly as shown: from main, from another agent, and from a peer."""

    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (session, agents), peer_of(here) as peer:
            worker, viewer = await agents.start("worker"), await agents.start("viewer")
            await session.send("worker", "a", summary="s")
            await viewer.send("worker", "b", summary="s")
            for block in blocks(worker.drain()):
                shown_id = attributes(block)["msg-id"]
                sent(
                    await worker.send(attributes(block)["from"], "answer", summary="s", in_reply_to=shown_id)
                )
            assert words(agents.main.drain()) == ["answer"]
            [answer] = viewer.drain().entries
            assert isinstance(answer, Entry)
            assert (answer.text, answer.origin.identity) == ("answer", worker.id)
            await peer.send("lead", "c", summary="s")
            [block] = blocks(agents.main.drain())
            sent(await worker.send(attributes(block)["from"], "for the peer", summary="s"))
            assert [one.text for one in peer.drain()] == ["for the peer"]

    run(work())


# ── main ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.8")
def test_a_background_agent_writes_to_main() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("worker")
            agents.main.prompt("later", priority="later")
            receipt = sent(await worker.send("Main", "found it", summary="s"))
            assert (receipt.to.name, receipt.pin, receipt.waiting) == ("main", None, 0)
            sent(await worker.send(session.name, "by the session's own name", summary="s"))
            sent(await worker.send(f"lead [{session.ref}]", "by its ref", summary="s"))
            entries = agents.main.drain().entries
            assert [(each.text, each.origin.kind, each.origin.identity) for each in entries] == [
                ("found it", "agent", worker.id),
                ("by the session's own name", "agent", worker.id),
                ("by its ref", "agent", worker.id),
            ]
            assert all(
                isinstance(each, Entry) and each.priority == "next" and each.is_meta for each in entries
            )

    run(work())


@pytest.mark.rule("06.8", "01.18", "06.16")
def test_nobody_else_writes_to_main() -> None:
    async def work() -> None:
        tried: list[Receipt | Refusal] = []

        async def works(agent: Agent, prompt: str) -> str:
            del prompt
            tried.append(await agent.send("main", "x", summary="s"))
            return "done"

        async with hosted(run=works) as (session, agents):
            sync = await agents.start("sync", background=False)
            for to in ("main", "MAIN", session.name, f"lead [{session.ref}]"):
                refused(await sync.send(to, "x", summary="s"), "main_not_addressable")
            assert await agents.run("go") == "done"
            refused(tried[0], "main_not_addressable")
            refused(await session.send("main", "x", summary="s"), "cannot_message_self")
            refused(await session.send("lead", "x", summary="s"), "cannot_message_self")
            assert not agents.main.drain(idle=True)
        async with hosted(background=False) as (_, agents):
            worker = await agents.start("worker")
            refused(await worker.send("main", "x", summary="s"), "main_not_addressable")

    run(work())


@pytest.mark.rule("01.18")
def test_an_outsider_has_no_main(home: Path) -> None:
    async def work() -> None:
        async with open_session("lead", cwd=str(home)) as session:
            agents = Agents(session)
            worker = await agents.start("worker")
            for to, code in (
                ("main", "main_not_addressable"),
                ("worker", "not_found"),
                (worker.id, "not_found"),
            ):
                call: dict[str, object] = {"to": to, "message": "x", "summary": "s"}
                refused(await send_as_outsider(call, environ=os.environ), code)
            assert worker.waiting == 0 == agents.main.waiting

    run(work())


# ── the three return paths ───────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.11")
def test_the_end_of_a_run_is_told_to_its_owner_once_with_all_that_is_known() -> None:
    async def work() -> None:
        async with hosted(resume=Starter()) as (session, agents):
            worker, mate = await agents.start("worker"), await agents.start("mate")
            async with worker.running() as its:
                its.result, its.usage = "The tests pass.", {"input_tokens": 3}
                its.output_path, its.worktree = "/out/log", "/trees/7"
            assert not await worker.finish(result="once more")
            sent(await session.send("worker", "go on", summary="s"), "resumed")
            assert await worker.finish("failed", result="It broke.")
            batch = agents.main.drain()
            tasks = [each.task for each in batch.entries if isinstance(each, Entry) and each.task]
            assert [(one.task_id, one.status, one.run, one.result) for one in tasks] == [
                (worker.id, "completed", 1, "The tests pass."),
                (worker.id, "failed", 2, "It broke."),
            ]
            assert (tasks[0].output_path, tasks[0].worktree, tasks[0].usage) == (
                "/out/log",
                "/trees/7",
                {"input_tokens": 3},
            )
            assert [each.priority for each in batch.entries if isinstance(each, Entry)] == ["next", "next"]
            said = attributes(blocks(batch)[0])
            assert (said["status"], said["run"], said["task-id"]) == ("completed", "1", worker.id)
            assert not mate.drain(), "a final text is told to nobody else"

    run(work())


@pytest.mark.rule("06.11")
def test_a_run_that_raises_has_failed_and_one_that_is_cancelled_was_killed() -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            broken, stuck = await agents.start("broken"), await agents.start("stuck")
            with pytest.raises(ValueError, match="no such column"):
                async with broken.running():
                    raise ValueError("no such column")

            async def hangs(agent: Agent) -> None:
                async with agent.running():
                    await asyncio.Event().wait()

            task = asyncio.create_task(hangs(stuck))
            await turns()
            await agents.stop(stuck, by_user=False)
            with pytest.raises(asyncio.CancelledError):
                await task
            given_up = asyncio.create_task(hangs(await agents.start("given up")))
            await turns()
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            told = [each.task for each in agents.main.drain().entries if isinstance(each, Entry)]
            assert [one and (one.name, one.status) for one in told] == [
                ("broken", "failed"),
                ("stuck", "killed"),
                ("given up", "killed"),
            ]

    run(work())


@pytest.mark.rule("06.11", "06.2")
def test_of_progress_only_the_latest_waits_and_only_an_idle_loop_hears_it() -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            worker, other = await agents.start("worker"), await agents.start("other")
            for each in ("10 %", "20 %"):
                worker.progress(each)
                other.progress(f"other: {each}")
            worker.progress("30 %")
            assert not agents.main.drain()
            batch = agents.main.drain(idle=True)
            assert words(batch) == ["30 %", "other: 20 %"]
            assert [attributes(each)["status"] for each in blocks(batch)] == ["running", "running"]
            worker.progress("40 %")
            assert words(agents.main.drain(idle=True)) == ["40 %"]
            await worker.finish()
            agents.main.drain()
            worker.progress("too late")
            assert not agents.main.drain(idle=True)

    run(work())


@pytest.mark.rule("06.11")
def test_an_agent_that_owns_agents_hears_of_them_and_main_does_not() -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            chief = await agents.start("chief")
            hand, sync = await agents.start("hand", owner=chief), await agents.start("sync", background=False)
            hand.progress("10 %")
            hand.progress("20 %")
            await hand.finish(result="done")
            sync.progress("for whoever runs it")
            await sync.finish(result="for whoever runs it")
            assert words(chief.drain()) == ["done"]  # and not how far it was before that
            assert not agents.main.drain(idle=True)

    run(work())


@pytest.mark.rule("06.12")
def test_with_background_work_off_a_send_returns_the_final_text_of_the_run_that_it_started() -> None:
    async def work() -> None:
        async def resume(agent: Agent, messages: object) -> None:
            del messages
            asyncio.get_running_loop().create_task(goes_on(agent))

        async def goes_on(agent: Agent) -> None:
            async with agent.running() as its:
                await turns()
                its.result = f"run {agent.run} is done"

        async with hosted(resume=resume, background=False) as (session, agents):
            worker = await agents.start("worker")
            assert sent(await session.send("worker", "live", summary="s")).result is None
            worker.drain()
            await worker.finish(result="first")
            receipt = sent(await session.send("worker", "again", summary="s"), "resumed")
            assert receipt.result == "run 2 is done"
            assert worker.state == "completed"
            assert not agents.main.drain(idle=True), "it is told in the result and nowhere else"
        async with hosted(resume=resume) as (session, agents):
            worker = await agents.start("worker")
            await worker.finish(result="first")
            assert sent(await session.send("worker", "again", summary="s"), "resumed").result is None
            await until(lambda: worker.state == "completed")

    run(work())


# ── observers ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.14", "01.32")
def test_an_observer_reports_to_whom_it_watches_and_can_be_turned_off() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("worker")
            of_main, of_worker = agents.observe(name="watch"), agents.observe(worker)
            assert sent(of_main.report("careful", "urgent")).to.name == "main"
            assert sent(of_worker.report("slow")).to.name == "worker"
            [entry] = agents.main.drain().entries
            assert isinstance(entry, Entry)
            assert (entry.text, entry.severity, entry.priority) == ("careful", "urgent", "next")
            assert (entry.origin.kind, entry.origin.identity) == ("observer", of_main.id)
            batch = worker.drain()
            [block] = blocks(batch)
            assert (block.name, block.text, attributes(block)["severity"]) == (
                "observer-report",
                "slow",
                "info",
            )
            assert "from" not in attributes(block), "it cannot be answered"
            of_main.on = False
            refused(of_main.report("x"), "denied_by_settings")
            sent(of_worker.report("the other one is on"))
            refused(of_worker.report(" "), "message_missing")
            refused(of_worker.report("x" * 10_001), "report_too_long")
            refused(of_worker.report("x", "grave"), "invalid_record")
            sent(of_worker.report("x" * 10_000))
            await agents.stop(worker)
            refused(of_worker.report("x"), "peer_unavailable")
            assert not agents.main.drain(idle=True).entries[1:]
            del session

    run(work())


@pytest.mark.rule("06.14")
def test_nobody_can_address_an_observer() -> None:
    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (session, agents), peer_of(here) as peer:
            worker = await agents.start("worker")
            watch = agents.observe(name="watch")
            for to in ("watch", watch.id, f"watch [{ref_of(watch.id)}]"):
                code = "stale_ref" if "[" in to else "not_found"
                for send in (session.send, worker.send, peer.send):
                    refused(await send(to, "x", summary="s"), code)
            assert "watch" not in names(agents.rows())

    run(work())


# ── hooks ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.15")
def test_hooks_hear_of_each_boundary_in_its_order_and_of_no_text() -> None:
    async def work() -> None:
        heard: list[LifecycleEvent] = []

        async def hook(event: LifecycleEvent) -> None:
            heard.append(event)

        hooks = Hooks(
            agent_started=hook,
            agent_stopped=hook,
            task_created=hook,
            task_completed=hook,
            message_queued=hook,
            message_drained=hook,
        )
        async with hosted(hooks=hooks, resume=Starter()) as (session, agents):
            worker = await agents.start("worker")
            receipt = sent(await session.send("worker", "secret words", summary="s"))
            worker.drain()
            await until(lambda: len(heard) == 4)
            await worker.finish(result="secret words")
            again = sent(await session.send("worker", "secret words too", summary="s"), "resumed")
            await until(lambda: len(heard) == 11)
            what = [(each.kind, each.agent == worker.id, each.run, each.msg_id, each.count) for each in heard]
            assert what[:6] == [
                ("task_created", True, 1, "", 0),
                ("agent_started", True, 1, "", 0),
                ("message_queued", True, 1, receipt.msg_id, 0),
                ("message_drained", True, 1, "", 1),
                ("task_completed", True, 1, "", 0),
                *([("agent_stopped", True, 1, "", 0)] if heard[5].kind == "agent_stopped" else [what[5]]),
            ]
            kinds = [each.kind for each in heard[5:] if each.kind != "task_created"]
            # What waits for main is the end of the run; what waits for the agent begins the next.
            assert kinds == [
                *("message_queued", "agent_stopped", "message_queued"),
                *("agent_started", "message_drained"),
            ]
            told = [each for each in heard[5:] if each.kind == "message_queued"]
            assert [(each.agent, each.name) for each in told] == [("", "main"), (worker.id, "worker")]
            assert told[1].msg_id == again.msg_id
            assert "secret" not in repr(heard)

    run(work())


@pytest.mark.rule("06.15")
def test_the_main_queue_has_its_boundaries_too_and_peers_mail_is_in_it() -> None:
    async def work() -> None:
        heard: list[tuple[str, str, int]] = []

        async def hook(event: LifecycleEvent) -> None:
            assert (event.name, event.run) == ("main", 0)
            heard.append((event.kind, event.msg_id, event.count))

        here = Gathering()
        hooks = Hooks(message_queued=hook, message_drained=hook)
        async with hosted(here, hooks=hooks) as (_, agents), peer_of(here) as peer:
            worker = await agents.start("worker")
            ids = [
                sent(await worker.send("main", "a", summary="s")).msg_id,
                sent(await peer.send("lead", "b", summary="s")).msg_id,
                sent(agents.observe().report("c")).msg_id,
            ]
            batch = agents.main.drain()
            assert len(batch) == 3
            batch.confirm()
            await until(lambda: len(heard) == 4)
            assert heard == [*(("message_queued", each, 0) for each in ids), ("message_drained", "", 3)]

    run(work())


@pytest.mark.rule("06.15")
def test_a_hook_that_raises_breaks_no_delivery() -> None:
    async def work() -> None:
        def hook(event: LifecycleEvent) -> None:
            raise RuntimeError(event.kind)

        hooks = Hooks(**dict.fromkeys(Hooks.__dataclass_fields__, hook))  # pyright: ignore[reportArgumentType]
        async with hosted(hooks=hooks) as (session, agents):
            worker = await agents.start("worker")
            sent(await session.send("worker", "a", summary="s"))
            assert words(worker.drain()) == ["a"]
            assert await worker.finish(result="done")
            assert words(agents.main.drain()) == ["done"]

    run(work())


@pytest.mark.rule("06.15")
def test_a_veto_keeps_an_agent_from_being_made_and_a_run_from_completing() -> None:
    async def work() -> None:
        allowed: list[str] = []

        def hook(event: LifecycleEvent) -> None:
            if event.name.startswith("bad") and event.name not in allowed:
                raise Veto("not today")

        async with hosted(hooks=Hooks(task_created=hook), resume=Starter()) as (session, agents):
            with pytest.raises(Veto, match="not today"):
                await agents.start("bad")
            assert agents.rows() == []
            refused(await session.send("bad", "x", summary="s"), "not_found")
            await agents.start("good")
            assert names(agents.rows()) == ["good"]
            allowed.append("bad")
            assert (await agents.start("bad")).name == "bad", "the name was not taken"
        async with hosted(hooks=Hooks(task_completed=hook)) as (session, agents):
            worker = await agents.start("bad-end")
            with pytest.raises(Veto):
                await worker.finish(result="done")
            assert worker.state == "live"
            assert not agents.main.drain()
            assert await worker.finish("failed"), "only a completion is asked for"

    run(work())


# ── workflows ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.16")
def test_a_workflows_agent_answers_its_script_alone_and_nobody_can_address_it() -> None:
    async def work() -> None:
        here = Gathering()
        met: list[Agent] = []

        async with hosted(here, run=None) as (session, _):
            with pytest.raises(BadUsage):
                await session.run_agent("x")

        async def works(agent: Agent, prompt: str) -> str:
            met.append(agent)
            for who in (agents.get("mate"), None):
                send = session.send if who is None else who.send
                refused(await send(agent.name, "x", summary="s"), "not_found")
                refused(await send(agent.id, "x", summary="s"), "not_found")
            refused(await peer.send(agent.name, "x", summary="s"), "not_found")
            assert agent.name not in names(session.listing().rows)
            return f"the answer to {prompt}"

        async with hosted(here, name="second", run=works) as (session, agents), peer_of(here) as peer:
            mate = await agents.start("mate")
            assert await session.run_agent("how many?", name="counter") == "the answer to how many?"
            assert met[0].name == "counter"
            assert not agents.main.drain(idle=True)
            assert not mate.drain()
            assert agents.get("counter") is None
            with pytest.raises(BadUsage):
                async with hosted() as (bare, _):
                    await bare.run_agent("x")

    run(work())


@pytest.mark.rule("06.16")
def test_a_workflow_that_raises_raises_in_the_script() -> None:
    async def work() -> None:
        async def works(agent: Agent, prompt: str) -> str:
            raise ValueError(prompt)

        async with hosted(run=works) as (session, agents):
            with pytest.raises(ValueError, match="boom"):
                await session.run_agent("boom")
            assert not agents.main.drain(idle=True)

    run(work())


# ── lists ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("01.29")
def test_a_list_shows_itself_then_agents_then_sessions() -> None:
    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (session, agents), peer_of(here, "aaa") as peer:
            worker = await agents.start("worker", agent_type="coder")
            viewer = await agents.start("viewer")
            idle = await agents.start("zz")
            await agents.stop(viewer)
            waiting = asyncio.create_task(idle.wait(SECONDS))
            await turns()
            shown_ = session.listing()
            assert shown_.own is not None
            assert shown_.own.name == "lead"
            assert [(row.name, row.kind, row.state, row.type) for row in shown_.rows] == [
                ("viewer", "agent", "stopped", ""),
                ("worker", "agent", "busy", "coder"),
                ("zz", "agent", "idle", ""),
                ("aaa", "session", shown_.rows[3].state, ""),
            ]
            assert all(row.ref and row.seen_at for row in shown_.rows)
            assert names(session.listing("WORK").rows) == ["worker"]
            assert names(session.listing(kind="agent").rows) == ["viewer", "worker", "zz"]
            assert (names(session.listing(limit=1).rows), session.listing(limit=1).left_out) == (
                ["viewer"],
                3,
            )
            of_worker = worker.listing()
            assert of_worker.own is not None
            assert of_worker.own.name == "worker"
            assert names(of_worker.rows) == ["viewer", "zz", "aaa", "lead"]
            assert names(peer.listing().rows) == ["lead"], "a session's agents are its own affair"
            await session.send("zz", "x", summary="s")
            assert await waiting

    run(work())


@pytest.mark.rule("01.29", "02.14")
def test_every_row_of_a_list_can_be_written_to_by_its_name_and_by_its_ref() -> None:
    async def work() -> None:
        here = Gathering()
        async with hosted(here, resume=Starter()) as (session, agents), peer_of(here):
            ended = await agents.start("ended")
            await agents.start("worker")
            await ended.finish()
            for row in session.listing().rows:
                for number, to in enumerate((row.name, shown(row.name, row.ref))):
                    answer = await session.send(to, f"{number}", summary="s")
                    assert isinstance(answer, Receipt), answer
                    assert answer.to.name == row.name

    run(work())


# ── to other sessions ────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.8", "01.22", "01.15")
def test_an_agents_message_to_a_session_goes_out_as_the_session_and_is_answered_there() -> None:
    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (session, agents), peer_of(here) as peer:
            worker = await agents.start("worker")
            receipt = sent(await worker.send("peer", "a question", summary="s"))
            assert (receipt.to.kind, receipt.pin and receipt.pin.identity) == ("session", peer.id)
            [got] = peer.drain()
            assert (got.text, got.origin.kind, got.origin.name) == ("a question", "peer", "lead")
            sent(
                await peer.send(
                    shown(session.name, session.ref), "answer", summary="s", in_reply_to=got.msg_id
                )
            )
            assert worker.waiting == 0
            assert words(agents.main.drain()) == ["answer"]
            for to in ("peer", "worker-x", "main"):
                call = {"to": to, "message": "x", "summary": "s", "notify_when_idle": True}
                code = "not_found" if to == "worker-x" else "notify_not_allowed"
                no = refused(await worker.send_call(call), code)
                assert code == "not_found" or "only the main conversation" in no.message
            other = await agents.start("other")
            for who in (worker.send_call, session.send_call):
                call = {"to": "other", "message": "x", "summary": "s", "notify_when_idle": True}
                refused(await who(call), "notify_not_allowed")
            record = {"to": "other", "message": {"type": "shutdown_request"}}
            refused(await worker.send_call(record), "structured_needs_team")
            assert (other.waiting, len(peer.drain())) == (0, 0)

    run(work())


@pytest.mark.rule("02.14", "06.8")
def test_no_peer_can_address_an_agent() -> None:
    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (_, agents), peer_of(here) as peer:
            worker = await agents.start("worker")
            crew = Agents(peer)
            far = await crew.start("far")
            for to, code in (
                ("worker", "not_found"),
                (worker.id, "not_found"),
                (shown("worker", worker.ref), "stale_ref"),
            ):
                for send in (peer.send, far.send):
                    no = refused(await send(to, "x", summary="s"), code)
                    assert no.candidates == ()
            assert worker.waiting == 0
            assert names(far.listing().rows) == ["lead", "peer"]

    run(work())


@pytest.mark.rule("02.14", "06.8")
def test_no_peer_can_address_an_agent_over_sockets(home: Path) -> None:
    async def work() -> None:
        cwd = str(home)
        async with open_session("lead", cwd=cwd) as lead, open_session("peer", cwd=cwd) as peer:
            agents = Agents(lead)
            worker = await agents.start("worker")
            for to, code in (
                ("worker", "not_found"),
                (worker.id, "not_found"),
                (shown("worker", worker.ref), "stale_ref"),
            ):
                refused(await peer.send(to, "x", summary="s"), code)
            sent(await worker.send("peer", "a question", summary="s"))
            [got] = peer.drain()
            assert (got.origin.name, got.origin.identity) == ("lead", lead.id)
            sent(await peer.send(shown("lead", lead.ref), "answer", summary="s"))
            assert await agents.main.wait(SECONDS)
            assert words(agents.main.drain()) == ["answer"]
            assert worker.waiting == 0
            assert "worker" not in names(peer.listing().rows)
            lead.directory.refresh()
            sent(await lead.send("worker", "still here after a look around", summary="s"))
            assert worker.waiting == 1

    run(work())


@pytest.mark.rule("02.15")
def test_of_an_agent_and_a_session_of_one_name_the_near_one_is_taken_and_it_is_said() -> None:
    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (session, agents), peer_of(here, "worker") as peer:
            worker = await agents.start("worker")
            receipt = sent(await session.send("worker", "x", summary="s"))
            assert receipt.to.kind == "agent"
            assert any(peer.ref in warning for warning in receipt.warnings)
            assert (worker.waiting, peer.drain()) == (1, [])
            far = sent(await session.send(shown("worker", peer.ref), "y", summary="s"))
            assert far.to.kind == "session"
            assert [one.text for one in peer.drain()] == ["y"]

    run(work())


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("01.21", "01.33", "03.33")
@pytest.mark.parametrize("tool", ["SendMessage", "send_message"])
def test_a_denied_tool_stops_sends_to_and_from_agents(tool: str) -> None:
    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (session, agents), peer_of(here) as peer:
            worker = await agents.start("worker")
            watch = agents.observe()
            sent(await worker.send("main", "before", summary="s"))
            session.apply(denying(tool))
            for send, to in ((session.send, "worker"), (worker.send, "main"), (worker.send, "peer")):
                refused(await send(to, "x", summary="s"), "denied_by_settings")
            refused(await worker.send("", "x"), "denied_by_settings")
            sent(watch.report("is another tool"))
            assert (worker.waiting, peer.drain(), len(agents.main.drain())) == (0, [], 2)
            session.apply(denying())
            sent(await session.send("worker", "after", summary="s"))

    run(work())


@pytest.mark.rule("01.21", "01.33")
@pytest.mark.parametrize("tool", ["ObserverReport", "report_observation"])
def test_a_denied_report_is_not_taken(tool: str) -> None:
    async def work() -> None:
        async with hosted(settings=denying(tool)) as (session, agents):
            worker = await agents.start("worker")
            refused(agents.observe().report("x"), "denied_by_settings")
            refused(agents.observe(worker).report(""), "denied_by_settings")
            sent(await session.send("worker", "x", summary="s"))
            assert (worker.waiting, agents.main.waiting) == (1, 0)

    run(work())


@pytest.mark.rule("01.19", "01.7")
def test_a_text_that_no_line_could_carry_is_refused_after_what_is_wrong_with_its_target() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker, stopped = await agents.start("worker"), await agents.start("stopped")
            await agents.stop(stopped)
            agents.main.drain()
            refused(await worker.send("main", "x" * (MAX_SENT + 1), summary="s"), "message_too_large")
            no = refused(await session.send("worker", "ü" * (MAX_SENT + 1), summary="s"), "message_too_large")
            assert "1,000,001" in no.message
            assert "1,000,000" in no.message
            sent(await session.send("worker", "ü" * MAX_SENT, summary="s"))
            refused(await session.send("stopped", "x" * (MAX_SENT + 1), summary="s"), "stopped_by_user")
            assert (worker.waiting, agents.main.waiting) == (1, 0)

    run(work())


@pytest.mark.rule("01.13", "01.12", "01.14", "01.9", "01.10", "01.11")
def test_an_agents_call_is_held_to_the_same_rules() -> None:
    async def work() -> None:
        async with hosted() as (_, agents):
            worker, other = await agents.start("worker"), await agents.start("other")
            for to, text, summary, code in (
                ("other", "x", None, "summary_missing"),
                ("other", "x", "s" * 201, "summary_too_long"),
                ("other", " ", "s", "message_missing"),
                ("other", '{"type": "shutdown_request"}', "s", "protocol_frame_in_text"),
                (" ", "x", "s", "empty_target"),
                ("*", "x", "s", "broadcast_unsupported"),
                ("@other", "x", "s", "at_sign_in_target"),
            ):
                refused(await worker.send(to, text, summary=summary), code)
            assert other.waiting == 0

    run(work())


# ── loops ────────────────────────────────────────────────────────────────────────────────────────


async def passed_on(first: Agent, ring: list[Agent]) -> tuple[int, Receipt | Refusal]:
    """Each agent of a ring passes on what it got, always in new words, until one is refused; how many came."""
    number = 0
    while True:
        taker = ring[number % len(ring)]
        answer = await first.send(taker.id, f"message {number}", summary="s")
        if isinstance(answer, Refusal):
            return number, answer
        number += 1
        assert len(taker.drain()) == 1
        first = taker


@pytest.mark.rule("03.61", "03.66", "03.68")
def test_two_agents_that_answer_each_other_come_to_rest() -> None:
    async def work() -> None:
        async with hosted(limits=Limits()) as (_, agents):
            one, two = await agents.start("one"), await agents.start("two")
            delivered, no = await passed_on(one, [two, one])
            assert (delivered, no.code if isinstance(no, Refusal) else "") == (2 * SELF_HOPS + 1, "hop_loop")

    run(work())


@pytest.mark.rule("03.62", "03.66", "03.68")
def test_any_ring_of_agents_comes_to_rest_after_twenty_eight_deliveries() -> None:
    async def work() -> None:
        async with hosted(limits=Limits()) as (_, agents):
            ring = [await agents.start(f"agent {letter}") for letter in "abcd"]
            delivered, no = await passed_on(ring[-1], ring)
            assert (delivered, no.code if isinstance(no, Refusal) else "") == (CHAIN, "hop_runaway")

    run(work())


@pytest.mark.rule("03.66", "03.68")
def test_main_and_an_agent_that_answer_each_other_come_to_rest() -> None:
    async def work() -> None:
        async with hosted(limits=Limits()) as (session, agents):
            worker = await agents.start("worker")
            delivered = 0
            while delivered < 2 * CHAIN:
                if isinstance(await session.send("worker", f"and {delivered}?", summary="s"), Refusal):
                    break
                delivered += 1
                assert len(worker.drain()) == 1
                if isinstance(await worker.send("main", f"so {delivered}.", summary="s"), Refusal):
                    break
                delivered += 1
                assert len(agents.main.drain()) == 1
            assert delivered == 2 * SELF_HOPS + 1

    run(work())


@pytest.mark.rule("03.66")
def test_an_agent_that_looks_for_more_while_it_works_answers_in_the_chain_of_what_it_got() -> None:
    """A boundary with nothing there is not the end of its turn: that is its rest, or the end of its run."""

    async def work() -> None:
        clock = Time()
        async with hosted(limits=Limits(), clock=clock) as (session, agents):
            worker, other = await agents.start("worker"), await agents.start("other")
            await session.send("worker", "go", summary="s")
            worker.drain()
            clock.now += 120_000
            assert not worker.drain()
            await worker.send("other", "an answer", summary="s")
            assert len(other.peek()[0].hop_chain) == 2
            assert not await worker.wait(0)
            await worker.send("other", "of its own accord", summary="s")
            assert len(other.peek()[1].hop_chain) == 1

    run(work())


@pytest.mark.rule("03.66")
def test_a_chain_goes_from_a_peer_through_main_and_an_agent_to_a_peer_and_a_user_starts_afresh() -> None:
    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (session, agents), peer_of(here) as peer, peer_of(here, "next") as after:
            worker = await agents.start("worker")
            await peer.send("lead", "please", summary="s")
            [incoming] = agents.main.drain().entries
            await session.send("worker", "do it", summary="s")
            [inner] = worker.drain().entries
            await worker.send("next", "done", summary="s")
            [outgoing] = after.drain()
            assert inner.hop_chain[: len(incoming.hop_chain)] == incoming.hop_chain
            assert len(inner.hop_chain) == len(incoming.hop_chain) + 1
            assert (
                outgoing.hop_chain == inner.hop_chain
            )  # it goes out under the session's name, whose hop stands in it
            await worker.send("main", "what came of it", summary="s")
            agents.main.rest().confirm()
            await session.send("next", "as you wished", summary="s")
            [told] = after.drain()
            assert told.hop_chain[: len(inner.hop_chain)] == inner.hop_chain, (
                "an agent's word has a cause too"
            )
            assert not agents.main.rest()
            agents.main.prompt("something else")
            agents.main.drain()
            await session.send("next", "a new thing", summary="s")
            [fresh] = after.drain()
            assert len(fresh.hop_chain) == 1

    run(work())


@pytest.mark.rule("03.58", "03.60", "03.57")
def test_a_burst_and_a_repeat_inside_are_dropped() -> None:
    async def work() -> None:
        clock = Time()
        async with hosted(limits=Limits(), clock=clock) as (session, agents):
            worker, other = await agents.start("worker"), await agents.start("other")
            loud = await agents.start("loud")
            for number in range(BUCKET):
                sent(await loud.send("worker", f"number {number}", summary="s"))
            refused(await loud.send("worker", "one more", summary="s"), "rate_limited")
            # Its owner may say what it wants as often as it wants.
            sent(await session.send("worker", "go on", summary="s"))
            sent(await session.send("worker", "go on", summary="s"))
            sent(await other.send("worker", "another sender", summary="s"))
            refused(await other.send("worker", "another, sender!", summary="s"), "duplicate")
            sent(await other.send("main", "another sender", summary="s"))
            refused(await other.send("main", "another sender", summary="s"), "duplicate")
            clock.now += 30_000
            sent(await other.send("worker", "another sender", summary="s"))
            assert worker.waiting == BUCKET + 4

    run(work())


@pytest.mark.rule("03.60", "02.27")
def test_what_was_not_delivered_is_no_repeat_when_it_is_sent_again() -> None:
    """A resume that failed, a list that was dropped: the same words may come at once."""

    async def work() -> None:
        refuses = ["not now"]

        async with hosted(limits=Limits(), resume=Starter(), guard=lambda _: next(iter(refuses), None)) as (
            _,
            agents,
        ):
            worker, other = await agents.start("worker"), await agents.start("other")
            await worker.finish()
            refused(await other.send("worker", "go on", summary="s"), "resume_failed")
            refuses.clear()
            sent(await other.send("worker", "go on", summary="s"), "resumed")
            sent(await other.send("worker", "and then this", summary="s"))
            await agents.stop(worker)
            agents.restart(worker)
            sent(await other.send("worker", "and then this", summary="s"), "resumed")

    run(work())


@pytest.mark.rule("11.10", "03.60", "01.27")
@pytest.mark.parametrize("to", ["worker", "main"])
def test_a_full_list_takes_no_more_and_what_it_did_not_take_is_no_repeat(to: str) -> None:
    async def work() -> None:
        async with hosted(limits=replace(Limits.unbounded(), repeat_seconds=30)) as (_, agents):
            worker, other = await agents.start("worker"), await agents.start("other")
            for number in range(CAPACITY):
                sent(await other.send(to, f"number {number}", summary="s"))
            refused(await other.send(to, "one more", summary="s"), "inbox_full")
            taken = worker.drain() if to == "worker" else agents.main.drain()
            assert len(taken) == CAPACITY
            sent(await other.send(to, "one more", summary="s"))
            refused(await other.send(to, "one more", summary="s"), "duplicate")

    run(work())


@pytest.mark.rule("11.5")
def test_the_same_id_again_has_one_effect() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("worker")
            call = {"to": "worker", "message": "x", "summary": "s"}
            first = sent(await session.send_call(call, msg_id="0191-a"))
            again = sent(await session.send_call(call, msg_id="0191-a"))
            assert first.msg_id == again.msg_id == "0191-a"
            assert worker.waiting == 1

    run(work())


@pytest.mark.rule("01.31")
def test_a_result_says_how_many_wait_for_its_sender() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker, other = await agents.start("worker"), await agents.start("other")
            for text in "ab":
                await session.send("worker", text, summary="s")
                await worker.send("main", text, summary="s")
            assert sent(await worker.send("other", "x", summary="s")).waiting == 2
            assert sent(await session.send("other", "x", summary="s")).waiting == 2
            worker.drain()
            assert sent(await worker.send("other", "y", summary="s")).waiting == 0
            assert other.waiting == 3

    run(work())


@pytest.mark.rule("02.14", "11.10")
def test_a_gathering_keeps_nothing_of_a_session_that_has_left() -> None:
    async def work() -> None:
        here = Gathering()
        for _ in range(3):
            async with hosted(here) as (session, agents), peer_of(here) as peer:
                await agents.start("worker")
                refused(await peer.send("worker", "x", summary="s"), "not_found")
                sent(await session.send("peer", "x", summary="s"))
            assert here.copies == []

    run(work())


@pytest.mark.rule("06.13")
def test_after_the_end_of_its_session_nothing_is_started_or_sent() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("worker")
            waiting = asyncio.create_task(worker.wait(SECONDS))
            await turns()
            await session.close()
            assert not await waiting
            assert worker.state == "killed"
            for work in (agents.start("x"), worker.send("main", "x", summary="s"), session.run_agent("x")):
                with pytest.raises(Exception, match="has ended"):
                    await work
            assert isinstance(session, Session)
            assert session.now() == NOW

    run(work())
