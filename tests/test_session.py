"""One session between its parts: what arrives, leaves, is taken, and what it says when a part fails.

The interleavings are forced: a step of the event loop is one `asyncio.sleep(0)`, and nothing waits for real time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from postroom import Limits, Receipt, Refusal, Session, open_in_memory
from postroom.commits import TIDY_SECONDS
from postroom.core import contract, wire
from postroom.core.message import Lease, Message, Notice
from postroom.errors import InvalidName, SessionClosed, StoreFailed
from postroom.state.memory_directory import Gathering
from postroom.state.store import SqliteStore
from postroom.transport import Evidence
from postroom.transports.memory import MemoryChannel, MemoryTransport
from tests.room import DurableStore, Line, Room, frame_of, states, texts
from tests.state.stores import no_writing
from tests.transports.ends import run, turns, until


async def step() -> None:
    """One step of the event loop."""
    await asyncio.sleep(0)


async def sent(session: Session, to: str, text: str = "hello", **more: Any) -> Receipt:
    """Sends, which must go well."""
    result = await session.send(to, text, summary="s", **more)
    assert isinstance(result, Receipt), result
    return result


async def refused(session: Session, to: str, text: str | None = "hello", **more: Any) -> Refusal:
    """Sends, which must be refused."""
    result = await session.send(to, text, **{"summary": "s", **more})
    assert isinstance(result, Refusal), result
    return result


@contextlib.asynccontextmanager
async def pair(room: Room, **options: Any) -> AsyncGenerator[tuple[Session, Session]]:
    """alice and bob; the options are bob's."""
    async with room.open("alice") as alice, room.open("bob", **options) as bob:
        yield alice, bob


# ── arriving: commit and acknowledgement ─────────────────────────────────────────────────────────


@pytest.mark.rule("05.27", "05.22", "11.4")
def test_an_acknowledgement_follows_its_commit_one_step_later() -> None:
    """Nothing is said in the step of the arrival; in the next one the group is committed, then acknowledged."""

    async def work() -> None:
        room, store = Room(), DurableStore()
        async with room.open("bob", store=store) as bob:
            line = Line(log=store.events)
            bob.arrive(frame_of("one", "m-1"), line)
            assert store.events == []
            await step()
            assert store.events == ["commit", "queued m-1"]
            assert line.flushes == 1

    run(work())


@pytest.mark.rule("05.27")
def test_what_arrives_in_one_step_shares_one_commit() -> None:
    """Three messages on two connections: one sync, three acknowledgements, one flush a connection."""

    async def work() -> None:
        room, store = Room(), DurableStore()
        async with room.open("bob", store=store) as bob:
            first, second = Line(log=store.events), Line(Evidence("memory", 4001, "other"), store.events)
            bob.arrive(frame_of("one", "m-1"), first)
            bob.arrive(frame_of("two", "m-2"), second)
            bob.arrive(frame_of("three", "m-3"), first)
            await turns()
            assert store.events == ["commit", "queued m-1", "queued m-2", "queued m-3"]
            assert (first.flushes, second.flushes) == (1, 1)
            bob.arrive(frame_of("four", "m-4"), first)
            await turns()
            assert store.events[4:] == ["commit", "queued m-4"]

    run(work())


@pytest.mark.rule("05.27", "11.4")
def test_a_commit_that_fails_acknowledges_nothing() -> None:
    """Everybody in the group hears `store_failed`, nothing is kept, and the same ids may come again."""

    async def work() -> None:
        room, store = Room(), DurableStore()
        async with room.open("bob", store=store) as bob:
            lines = [Line(Evidence("memory", 4000 + number, "s"), store.events) for number in range(3)]
            for number, line in enumerate(lines):
                bob.arrive(frame_of(f"text {number}", f"m-{number}"), line)
            store.failing = "full"
            await turns()
            assert [line.statuses for line in lines] == [["store_failed"]] * 3
            assert bob.peek() == []
            assert bob.counts == {"store-failed": 1}
            store.failing = ""
            for number, line in enumerate(lines):
                bob.arrive(frame_of(f"text {number}", f"m-{number}"), line)
            await turns()
            assert [line.statuses[1:] for line in lines] == [["queued"]] * 3
            assert len(bob.peek()) == 3

    run(work())


@pytest.mark.rule("05.27", "11.4")
@pytest.mark.parametrize("reader", ["trace", "send", "in_reply_to"])
def test_a_reader_that_meets_a_broken_disk_costs_the_open_group_and_says_so(reader: str) -> None:
    """A failing read forgets what was not committed: its senders hear `store_failed`, never `queued`."""

    async def read(bob: Session) -> None:
        if reader == "trace":
            with bob.reading() as store:
                store.steps("m-1")
        elif reader == "send":
            await bob.send("alice [abcdef]", "x", summary="s")
        else:
            await bob.send("alice", "x", summary="s", in_reply_to="m-0")

    async def work() -> None:
        room, store = Room(), DurableStore()
        async with room.open("alice"), room.open("bob", store=store) as bob:
            line = Line(log=store.events)
            bob.arrive(frame_of("one", "m-1"), line)
            store.unreadable = True
            with pytest.raises(StoreFailed):
                await read(bob)
            await turns()
            assert line.statuses == ["store_failed"]
            store.unreadable = False
            assert bob.peek() == []

    run(work())


@pytest.mark.rule("05.27", "05.22")
def test_a_store_in_memory_has_nothing_to_wait_for() -> None:
    """It is acknowledged in the step of its arrival; one that is broken says `store_failed` and raises nothing."""

    async def work() -> None:
        async with Room().open("bob") as bob:
            line = Line()
            bob.arrive(frame_of("one", "m-1"), line)
            assert line.statuses == ["queued"]
            store: Any = bob.store
            store.failing = "full"
            bob.arrive(frame_of("two", "m-2"), line)
            assert line.statuses == ["queued", "store_failed"]
            store.failing = ""
            assert texts(bob.peek()) == ["one"]

    run(work())


@pytest.mark.rule("05.27", "11.1")
def test_taking_commits_what_came_before_it() -> None:
    """Messages of the same step are handed out, and acknowledged first."""

    async def work() -> None:
        room, store = Room(), DurableStore()
        async with room.open("bob", store=store) as bob:
            line = Line(log=store.events)
            bob.arrive(frame_of("one", "m-1"), line)
            lease = bob.take()
            assert store.events == ["commit", "queued m-1"]
            assert texts(lease.messages) == ["one"]
            await turns()  # the commit that was scheduled finds nothing to do
            assert store.events == ["commit", "queued m-1"]

    run(work())


@pytest.mark.rule("05.27")
def test_a_lease_that_fails_does_not_take_the_arrivals_with_it() -> None:
    """`--take` on a broken disk is store_failed; what came before stays acknowledged and waits."""

    async def work() -> None:
        room, store = Room(), DurableStore()
        async with room.open("bob", store=store) as bob:
            line = Line(log=store.events)
            bob.arrive(frame_of("one", "m-1"), line)
            store.unleasable = True
            with pytest.raises(StoreFailed):
                bob.take()
            assert line.statuses == ["queued"]
            store.unleasable = False
            assert texts(bob.drain()) == ["one"]

    run(work())


@pytest.mark.rule("05.27", "11.4")
def test_with_a_real_disk_too(tmp_path: Path) -> None:
    """SQLite: no answer before the commit, one for all of a step, and none of it after a failed write."""

    async def work() -> None:
        tmp_path.chmod(0o700)
        room = Room()
        store = SqliteStore.open(str(tmp_path), now=room.now, session_name="bob")
        async with room.open("bob", store=store) as bob:
            line = Line()
            for number in range(3):
                bob.arrive(frame_of(f"text {number}", f"m-{number}"), line)
            assert line.answers == []
            assert store.pending
            await step()
            assert line.statuses == ["queued"] * 3
            assert not store.pending
            bob.arrive(frame_of("lost", "m-9"), line)
            with no_writing():
                await step()
            assert line.statuses == ["queued"] * 3 + ["store_failed"]
            assert texts(bob.peek()) == ["text 0", "text 1", "text 2"]
            bob.arrive(frame_of("lost", "m-9"), line)
            await step()
            assert line.statuses[4:] == ["queued"]

    run(work())


# ── arriving: judgement ──────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("11.5", "03.8")
def test_the_same_id_again_has_one_effect_and_the_same_answer() -> None:
    """Also after it was consumed; another text under the id is journaled, and another sender's id is new."""

    async def work() -> None:
        async with Room().open("bob") as bob:
            line = Line()
            bob.arrive(frame_of("one", "m-1"), line)
            bob.arrive(frame_of("one", "m-1"), line)
            assert texts(bob.drain()) == ["one"]
            bob.arrive(frame_of("one", "m-1"), line)
            bob.arrive(frame_of("other", "m-1"), line)
            assert line.statuses == ["queued"] * 4
            assert bob.peek() == []
            with bob.reading() as store:
                details = [one.detail for one in store.steps("m-1") if one.state == "duplicate"]
            assert len(details) == 3
            assert "id-reuse" in details[-1]
            bob.arrive(frame_of("one", "m-1"), Line(Evidence("memory", 4001, "other")))
            assert texts(bob.drain()) == ["one"]

    run(work())


@pytest.mark.rule("03.7")
def test_what_is_for_another_session_is_not_taken() -> None:
    async def work() -> None:
        async with Room().open("bob") as bob:
            line = Line()
            bob.arrive(frame_of("one", "m-1", session_id="somebody-else"), line)
            bob.arrive(frame_of("two", "m-2", session_id=bob.id), line)
            assert line.statuses == ["misaddressed", "queued"]
            assert texts(bob.drain()) == ["two"]
            assert states(bob, "m-1") == ["dropped"]

    run(work())


@pytest.mark.rule("03.7")
def test_an_echo_of_ones_own_is_dropped() -> None:
    """Its own address in the `from`, or an id that it sent itself."""

    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            receipt = await sent(alice, "bob")
            line = Line()
            alice.arrive(frame_of("back", receipt.msg_id), line)
            alice.arrive(frame_of("mine", "m-9", address=alice.address), line)
            assert line.answers == [
                (receipt.msg_id, "dropped", "self-echo"),
                ("m-9", "dropped", "self-echo"),
            ]
            assert alice.peek() == []
            assert len(bob.peek()) == 1

    run(work())


@pytest.mark.rule("03.64")
def test_a_full_inbox_refuses_and_settles_nothing() -> None:
    """What is leased still counts; once something was read, the same id is taken."""

    async def work() -> None:
        room = Room()
        async with pair(room, limits=Limits(max_unread=2)) as (alice, bob):
            await sent(alice, "bob", "one")
            await sent(alice, "bob", "two")
            refusal = await refused(alice, "bob", "three", msg_id="m-3")
            assert refusal.code == "inbox_full"
            lease = bob.take()
            assert (await refused(alice, "bob", "three", msg_id="m-3")).code == "inbox_full"
            bob.confirm(lease)
            assert (await sent(alice, "bob", "three", msg_id="m-3")).msg_id == "m-3"
            assert texts(bob.drain()) == ["three"]

    run(work())


@pytest.mark.rule("03.64")
def test_the_cap_is_fifty_unless_it_is_lifted() -> None:
    async def work() -> None:
        async with Room().open("bob") as bob, Room().open("open", limits=Limits.unbounded()) as unbounded:
            line = Line()
            for number in range(51):
                bob.arrive(frame_of("x", f"m-{number}"), line)
                unbounded.arrive(frame_of("x", f"m-{number}"), Line())
            assert line.statuses == ["queued"] * 50 + ["inbox_full"]
            assert len(unbounded.peek()) == 51

    run(work())


@pytest.mark.rule("04.15", "02.8")
def test_a_sender_is_who_its_process_is_and_not_who_it_says() -> None:
    """From alice's process: verified, and answered under the name shown. From another: a claim, without address."""

    async def work() -> None:
        room = Room()
        async with pair(room) as (alice, bob):
            bob.arrive(frame_of("real", "m-1", address=alice.address, name="alice"), room.line_from(alice))
            bob.arrive(frame_of("forged", "m-2", address=alice.address, name="alice"), Line())
            bob.arrive(frame_of("renamed", "m-3", address=alice.address, name="root"), room.line_from(alice))
            real, forged, renamed = [message.origin for message in bob.drain()]
            assert (real.verified, real.identity, real.name, real.address) == (
                True,
                alice.id,
                "alice",
                alice.address,
            )
            assert (forged.verified, forged.identity, forged.name, forged.address) == (
                False,
                "process:4000:stranger",
                "alice",
                None,
            )
            assert (renamed.verified, renamed.name) == (True, "alice")

    run(work())


@pytest.mark.rule("05.30")
def test_a_text_that_does_not_fit_its_body_is_ignored_and_counted() -> None:
    async def work() -> None:
        async with Room().open("bob") as bob:
            bob.arrive(frame_of("what the envelope says", "m-1", text="something else"), Line())
            assert texts(bob.drain()) == ["what the envelope says"]
            assert bob.counts == {"text-ignored": 1}

    run(work())


@pytest.mark.rule("05.30", "11.1")
def test_an_address_that_is_none_is_journaled() -> None:
    """The message is taken; the journal says why nobody can answer it."""

    async def work() -> None:
        async with Room().open("bob") as bob:
            bob.arrive(frame_of("one", "m-1", address="uds:relative.sock"), Line())
            assert states(bob, "m-1") == ["received", "accepted", "one-way"]
            assert [message.origin.address for message in bob.drain()] == [None]

    run(work())


@pytest.mark.rule("05.21", "05.22")
def test_a_frame_without_an_id_or_a_wish_is_not_answered() -> None:
    """It gets an id of this session's; nothing is written back."""

    async def work() -> None:
        async with Room().open("bob") as bob:
            line = Line()
            bob.arrive(frame_of("no id", None), line)
            bob.arrive(frame_of("no wish", "m-2", ack=False), line)
            assert line.answers == []
            first, second = bob.drain()
            assert first.msg_id.startswith("id-")
            assert second.msg_id == "m-2"

    run(work())


@pytest.mark.rule("05.24")
def test_control_frames_are_counted_and_change_nothing() -> None:
    async def work() -> None:
        async with Room().open("bob") as bob:
            bob.control(wire.ControlFrame(action="rename", name="robert"), Line())
            bob.control(wire.ControlFrame(action="format the disk"), Line())
            assert bob.counts == {"control-rename": 1, "control-unknown": 1}
            assert bob.name == "bob"

    run(work())


def test_a_session_that_has_ended_takes_nothing() -> None:
    async def work() -> None:
        async with Room().open("bob") as bob:
            await bob.close()
            line = Line()
            bob.arrive(frame_of(), line)
            assert line.answers == []

    run(work())


# ── leaving ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("01.31", "11.2")
def test_a_receipt_says_what_is_known() -> None:
    """`queued`, to whom, under which id, the pin, and how many wait for the sender itself."""

    async def work() -> None:
        room = Room()
        async with pair(room) as (alice, bob):
            await sent(bob, "alice")
            receipt = await sent(alice, "bob", "the column is tenant_id", in_reply_to=None)
            assert (receipt.status, receipt.to.name, receipt.to.ref, receipt.to.kind) == (
                "queued",
                "bob",
                bob.ref,
                "session",
            )
            assert receipt.pin is not None
            assert (receipt.pin.name, receipt.pin.identity) == ("bob", bob.id)
            assert (receipt.waiting, receipt.warnings) == (1, ())
            assert "Not read" in receipt.note
            [message] = bob.drain()
            assert (message.text, message.msg_id, message.summary, message.sent_at) == (
                "the column is tenant_id",
                receipt.msg_id,
                "s",
                "2026-11-30T10:15:02Z",
            )
            assert states(alice, receipt.msg_id) == ["queued"]

    run(work())


@pytest.mark.rule("05.21", "06.2")
def test_what_is_for_later_waits_for_an_idle_loop() -> None:
    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            await sent(alice, "bob", "later", priority="later")
            assert bob.take(later=False) == Lease("", ())
            await sent(alice, "bob", "now")
            assert texts(bob.drain()) == ["now", "later"]

    run(work())


@pytest.mark.rule("01.20", "01.7", "01.22")
def test_refusals_of_the_second_stage() -> None:
    """Each says its code, and nothing leaves."""

    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            assert (await refused(alice, "alice")).code == "cannot_message_self"
            assert (await refused(alice, "ALI")).code == "cannot_message_self"
            assert (await refused(alice, f"alice [{alice.ref}]")).code == "cannot_message_self"
            assert (await refused(alice, "main")).code == "cannot_message_self"
            assert (await refused(alice, "Main")).code == "cannot_message_self"
            assert (await refused(alice, "nobody")).code == "not_found"
            assert (await refused(alice, "bob", "  ")).code == "message_missing"
            assert (await refused(alice, "bob", msg_id="has space")).code == "invalid_record"
            assert (await refused(alice, "bob", msg_id="ä")).code == "invalid_record"
            for call in (
                {"to": "bob", "message": "x", "summary": "s", "notify_when_idle": True},
                {"to": "bob", "notify_when_idle": True},
            ):
                result = await alice.send_call(call)
                assert isinstance(result, Refusal)
                assert result.code == "notify_not_allowed"
            assert bob.peek() == []

    run(work())


@pytest.mark.rule("01.20")
def test_the_caller_counts_only_when_nobody_else_matches() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("alice") as alice, room.open("alice-two") as two:
            receipt = await sent(alice, "ali")
            assert receipt.to.name == "alice-two"
            assert len(two.drain()) == 1

    run(work())


@pytest.mark.rule("01.19")
def test_a_line_over_a_million_characters_is_refused_before_it_leaves() -> None:
    """Exactly at the limit it goes, one more is refused with both sizes; characters count and not bytes."""

    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            refusal = await refused(alice, "bob", "ä" * 1_000_000)
            assert refusal.code == "message_too_large"
            size = int(refusal.message.partition("has ")[2].partition(" ")[0].replace(",", ""))
            fits = 1_000_000 - (size - 1_000_000)
            await sent(alice, "bob", "ä" * fits)
            refusal = await refused(alice, "bob", "ä" * (fits + 1))
            assert "1,000,001" in refusal.message
            assert "1,000,000" in refusal.message
            assert [len(text) for text in texts(bob.drain())] == [fits]

    run(work())


@pytest.mark.rule("01.26", "02.13")
def test_a_session_without_an_inbox_is_unavailable() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("alice") as alice, room.open("bob", reachable=False):
            assert (await refused(alice, "bob")).code == "peer_unavailable"

    run(work())


@pytest.mark.rule("02.13")
def test_one_that_ended_is_not_found_and_the_sentence_says_when() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("alice") as alice:
            async with room.open("bob"):
                await sent(alice, "bob")
            refusal = await refused(alice, "bob")
            assert refusal.code == "not_found"
            assert "2026-11-30T10:15:02Z" in refusal.message

    run(work())


@pytest.mark.rule("02.13")
def test_one_that_dies_while_it_is_looked_for_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed at every look and never alive: looked at again twice, then said."""

    async def work() -> None:
        async with pair(Room()) as (alice, _bob):
            looks: list[int] = []
            monkeypatch.setattr(alice.directory, "live", set[str]().__contains__)  # nobody
            monkeypatch.setattr(alice.directory, "refresh", lambda: looks.append(1))
            assert (await refused(alice, "bob")).code == "peer_unavailable"
            assert len(looks) == 2

    run(work())


@pytest.mark.rule("02.13")
def test_a_refusal_is_believed_only_after_a_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who came since the last look is found."""

    async def work() -> None:
        room = Room()
        async with room.open("alice") as alice, contextlib.AsyncExitStack() as later:
            opened = await later.enter_async_context(room.open("bob"))
            room.gathering.index.remove(opened.id)  # as before the look
            monkeypatch.setattr(alice.directory, "refresh", lambda: opened.directory.publish(opened.record))
            await sent(alice, "bob")
            assert len(opened.drain()) == 1

    run(work())


def dropping(monkeypatch: pytest.MonkeyPatch, room: Room, times: int) -> list[bytes]:
    """Makes the way to others break so many times, after the line was written; returns what was written."""
    carried: list[bytes] = []
    carry = room.hub.carry

    def breaking(target: MemoryTransport, line: bytes, channel: MemoryChannel) -> None:
        carried.append(line)
        if len(carried) <= times:
            channel.close()
        else:
            carry(target, line, channel)

    monkeypatch.setattr(room.hub, "carry", breaking)
    return carried
