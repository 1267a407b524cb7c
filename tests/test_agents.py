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
            assert agents.get("same") is await first
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
