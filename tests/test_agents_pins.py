"""What names have meant: one conversation for main and one for each agent, kept, moved, rebuilt (02.17 to 02.20)."""

from __future__ import annotations

import contextlib
import gc
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from postroom import Gathering, Pin, open_session, present
from postroom.core.address import shown
from postroom.state.transcripts import read
from tests.crew import hosted, names, peer_of, refused, sent, words
from tests.test_agents_recipients import Host, host
from tests.transports.ends import run

__all__ = ["host"]


@pytest.mark.rule("02.17", "02.7")
def test_a_send_to_an_agent_pins_its_name_and_the_result_carries_the_pin() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("worker")
            pin = Pin(name="worker", identity=worker.id)
            for to in ("worker", "Worker", "worker", shown("worker", worker.ref), "work"):
                assert sent(await session.send(to, f"by {to} {id(to)}", summary="s")).pin == pin
            assert (
                sent(await session.send(worker.id, "an id says nothing of a name", summary="s")).pin is None
            )
            other = await agents.start("other")
            assert sent(await other.send("main", "x", summary="s")).pin is None
            assert worker.waiting == 6

    run(work())


@pytest.mark.rule("02.18", "02.12")
def test_a_beginning_that_was_taken_for_a_name_is_pinned_as_it_was_typed() -> None:
    """The full name had a pin already: what was typed gets one too, and a newcomer called so does not get the mail."""

    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("worker")
            sent(await session.send("worker", "one", summary="s"))
            sent(await session.send("work", "two", summary="s"))
            newcomer = await agents.start("work")
            no = refused(await session.send("work", "three", summary="s"), "pin_mismatch")
            assert {one.ref for one in no.candidates} == {worker.ref, newcomer.ref}
            assert (words(worker.drain()), newcomer.waiting) == (["one", "two"], 0)

    run(work())


@pytest.mark.rule("02.18", "02.9", "02.15")
def test_a_name_that_a_session_had_is_not_an_agents_by_mere_nearness() -> None:
    """The conversation meant a session by it; then an agent here is called so: refused, until it is explicit."""

    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (session, agents), peer_of(here, "bob") as bob:
            sent(await session.send("bob", "one", summary="s"))
            near = await agents.start("bob")
            no = refused(await session.send("bob", "two", summary="s"), "pin_mismatch")
            assert {one.ref for one in no.candidates} == {bob.ref, near.ref}
            assert near.waiting == 0
            moved = sent(await session.send(shown("bob", near.ref), "three", summary="s"))
            assert moved.pin == Pin(name="bob", identity=near.id)
            assert sent(await session.send("bob", "four", summary="s")).to.kind == "agent"
            assert words(near.drain()) == ["three", "four"]
            assert [one.text for one in bob.drain()] == ["one"]
            back = sent(await session.send(shown("bob", bob.ref), "five", summary="s"))
            assert back.pin == Pin(name="bob", identity=bob.id)
            assert near.waiting == 0

    run(work())


@pytest.mark.rule("02.19")
def test_each_agent_has_a_conversation_of_its_own() -> None:
    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (session, agents), peer_of(here, "bob") as bob:
            one, two = await agents.start("one"), await agents.start("two")
            sent(await one.send("bob", "for the session", summary="s"))
            near = await agents.start("bob")
            refused(await one.send("bob", "x", summary="s"), "pin_mismatch")
            for send in (two.send, session.send):  # they have never meant anybody by it
                assert sent(await send("bob", "for the agent", summary="s")).to.ref == near.ref
            refused(await one.send("bob", "y", summary="s"), "pin_mismatch")
            assert near.waiting == 2
            assert len(bob.drain()) == 1
            three = await agents.start("three")  # a new conversation has no pins
            assert sent(await three.send("bob", "new here", summary="s")).to.ref == near.ref

    run(work())


@pytest.mark.rule("02.20", "02.23")
def test_a_pin_whose_agent_has_ended_is_that_agents_still() -> None:
    async def work() -> None:
        async with hosted() as (session, agents):
            worker = await agents.start("worker")
            sent(await session.send("worker", "one", summary="s"))
            await agents.stop(worker)
            newcomer = await agents.start("worker")
            assert newcomer.name == "worker-2"
            refused(await session.send("worker", "two", summary="s"), "stopped_by_user")
            assert newcomer.waiting == 0

    run(work())


@pytest.mark.rule("02.20", "02.18")
def test_a_pin_of_an_agent_that_is_gone_blocks_only_where_somebody_else_answers(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (session, agents):
            worker = await agents.start("worker")
            sent(await session.send("worker", "one", summary="s"))
        shutil.rmtree(host.folder(worker.id))
        async with host.open() as (session, agents):
            no = refused(await session.send("worker", "two", summary="s"), "not_found")
            assert "worker, whom it meant here, has ended" in no.message
            newcomer = await agents.start("worker")
            assert newcomer.name == "worker"
            no = refused(await session.send("worker", "three", summary="s"), "pin_mismatch")
            assert worker.ref in no.message
            assert [one.ref for one in no.candidates] == [newcomer.ref]
            assert newcomer.waiting == 0
            sent(await session.send(shown("worker", newcomer.ref), "four", summary="s"))
            sent(await session.send("worker", "five", summary="s"))
            assert words(newcomer.drain()) == ["four", "five"]

    run(work())


def typed(host: Host, agent_id: str) -> list[str]:
    """The targets of the sends that a transcript has."""
    text = (host.folder(agent_id) / "transcript.jsonl").read_text()
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    return [line["to"] for line in lines if line["type"] == "sent"]


def without_pins(folder: Path, conversation: str) -> int:
    """Removes the pins of a conversation from a store that nobody has open; how many there were."""
    with contextlib.closing(sqlite3.connect(folder / "store.db")) as store, store:
        return store.execute("DELETE FROM pin WHERE conversation = ?", (conversation,)).rowcount


@pytest.mark.rule("02.17", "02.23", "02.19")
@pytest.mark.parametrize("lost", [False, True], ids=["from the store", "from the transcript"])
def test_a_resumed_agent_means_by_its_names_whom_it_meant(host: Host, lost: bool) -> None:
    """Its transcript alone brings them back, in order, the moved ones as they were moved."""

    async def work() -> None:
        async with host.open() as (session, agents):
            worker = await agents.start("worker")
            one = await agents.start("helper")
            sent(await worker.send("helper", "first", summary="s"))
            refused(await worker.send("nobody-here", "x", summary="s"), "not_found")
            two = await agents.start("help")
            sent(await worker.send(shown("help", two.ref), "second", summary="s"))
            sent(await worker.send("helper", "third", summary="s"))
            assert worker.transcript is not None
            worker.transcript.write({"role": "assistant", "content": "a turn of the host's own"})
            await worker.finish()
            assert typed(host, worker.id) == ["helper", shown("help", two.ref)], "what pinned something new"
            folder = host.folder(worker.id).parent.parent
        if lost:
            assert without_pins(folder, worker.id) > 0
        for gone in (one, two):
            shutil.rmtree(host.folder(gone.id))
        async with host.open() as (session, agents):
            sent(await session.send("worker", "go on", summary="s"), "resumed")
            again = agents.get("worker")
            assert again is not None
            for name, before in (("helper", one), ("help", two)):
                stranger = await agents.start(name)
                no = refused(await again.send(name, "x", summary="s"), "pin_mismatch")
                assert before.ref in no.message
                assert stranger.waiting == 0
            assert sorted(names(agents.rows())) == ["help", "helper", "worker"]

    run(work())


@pytest.mark.rule("02.17", "02.19")
def test_a_hosts_own_transcript_brings_the_pins_back_too(host: Host) -> None:
    """A call of the tool and its answer, as a host writes them."""

    async def work() -> None:
        own = host.home / "conversation.jsonl"
        pin = {"name": "helper", "identity": "helper-of-old"}
        result = {"status": "queued", "msg_id": "m-1", "to": {"name": "helper", "ref": "abc"}, "pin": pin}
        call = {"id": "c-1", "name": "SendMessage", "input": {"to": "helper", "message": "x", "summary": "s"}}
        answer = {"tool_use_id": "c-1", "content": json.dumps(result)}
        forged = {
            "tool_use_id": "c-2",
            "content": json.dumps(result | {"pin": {"name": "main-x", "identity": "evil"}}),
        }
        own.write_text("".join(json.dumps(line) + "\n" for line in (call, answer, forged)))
        own.chmod(0o600)
        async with host.open() as (session, agents):
            worker = await agents.start("worker", transcript=str(own))
            await worker.finish()
            sent(await session.send("worker", "go on", summary="s"), "resumed")
            stranger, free = await agents.start("helper"), await agents.start("main-x")
            refused(await worker.send("helper", "x", summary="s"), "pin_mismatch")
            sent(await worker.send("main-x", "x", summary="s"))
            assert (stranger.waiting, free.waiting) == (0, 1)

    run(work())


@pytest.mark.rule("02.17")
def test_an_evicted_agent_keeps_its_pins(host: Host) -> None:
    async def work() -> None:
        async with open_session("bob", cwd=str(host.home)) as bob, host.open() as (session, agents):
            worker = await agents.start("worker")
            sent(await worker.send("bob", "one", summary="s"))
            await worker.finish()
            agents.evict(worker)
            gone = ref(worker)
            del worker
            gc.collect()
            assert gone() is None  # what comes back is made of what lies on disk
            sent(await session.send("worker", "go on", summary="s"), "resumed")
            again = agents.get("worker")
            assert again is not None
            near = await agents.start("bob")
            refused(await again.send("bob", "two", summary="s"), "pin_mismatch")
            assert near.waiting == 0
            assert len(bob.drain()) == 1

    run(work())


@pytest.mark.rule("02.17", "02.18")
def test_a_pin_that_was_moved_there_and_back_comes_back_as_it_was_last(host: Host) -> None:
    """From the transcript alone; the same target as it was typed before counts anew."""

    async def work() -> None:
        async with open_session("bob", cwd=str(host.home)) as bob:
            async with host.open() as (session, agents):
                worker = await agents.start("worker")
                near = await agents.start("bob")
                by_ref = {one.ref: shown("bob", one.ref) for one in (bob, near)}
                typed_ = (by_ref[bob.ref], by_ref[near.ref], "bob", by_ref[bob.ref], by_ref[near.ref], "BOB")
                for number, to in enumerate(typed_):
                    sent(await worker.send(to, f"number {number}", summary="s"))
                assert typed(host, worker.id) == [*typed_[:2], *typed_[3:5]]
                await worker.finish()
                folder = host.folder(worker.id).parent.parent
            assert without_pins(folder, worker.id) > 0
            async with host.open() as (session, agents):
                sent(await session.send("worker", "go on", summary="s"), "resumed")
                again, near_again = agents.get("worker"), agents.get("bob")
                assert again is not None
                assert near_again is not None
                sent(await again.send("bob", "the near one, as before", summary="s"), "resumed")
                assert near_again.run == 2

    run(work())


@pytest.mark.rule("02.17", "02.18")
def test_a_main_conversation_that_goes_on_elsewhere_keeps_what_its_names_meant(tmp_path: Path) -> None:
    """From a transcript with results in the form of chapter 01; a broken line is skipped and counted."""

    async def work() -> None:
        here = Gathering()
        async with hosted(here) as (session, _), peer_of(here, "reviewer") as first:
            receipt = sent(await session.send("reviewer", "one", summary="s"))
            path = tmp_path / "main.jsonl"
            lines = ['{"broken', json.dumps(present.receipt_document(receipt))]
            path.write_text("\n".join(lines) + "\n")
            async with hosted(here, name="heir") as (heir, _):
                past = read(str(path), readable=True)
                assert (past.lines, past.skipped) == (1, 1)
                heir.restore_pins(past)
                await first.close()
                async with peer_of(here, "reviewer") as second:
                    no = refused(await heir.send("reviewer", "two", summary="s"), "pin_mismatch")
                    assert [one.ref for one in no.candidates] == [second.ref]
                    with heir.reading() as store:
                        assert [pin.identity for _, pin in store.pins("main")] == [first.id]

    run(work())
