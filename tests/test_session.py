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
    said: dict[str, Any] = {"summary": "s", **more}
    result = await session.send(to, text, **said)
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


def unanswered(monkeypatch: pytest.MonkeyPatch, session: Session) -> list[wire.UserFrame]:
    """Makes a session take frames without answering; returns what it took."""
    arrived: list[wire.UserFrame] = []

    def arrive(frame: wire.UserFrame, channel: object) -> None:
        arrived.append(frame)

    monkeypatch.setattr(session, "arrive", arrive)
    return arrived


@pytest.mark.rule("05.23", "01.31", "11.5")
def test_an_unknown_outcome_is_said_and_may_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The write began and no answer came: `unknown` with the id; under that id it has one effect."""

    async def work() -> None:
        room = Room()
        async with pair(room) as (alice, bob):
            carried = dropping(monkeypatch, room, 2)
            receipt = await sent(alice, "bob", "one")
            assert receipt.status == "unknown"
            assert len(carried) == 2
            assert states(alice, receipt.msg_id) == ["unknown"]
            again = await sent(alice, "bob", "one", msg_id=receipt.msg_id)
            assert (again.status, again.msg_id) == ("queued", receipt.msg_id)
            again = await sent(alice, "bob", "one", msg_id=receipt.msg_id)
            assert again.status == "queued"
            assert texts(bob.drain()) == ["one"]
            assert states(alice, receipt.msg_id) == ["unknown", "queued", "queued"]

    run(work())


@pytest.mark.rule("01.27", "11.2")
@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        ("store_failed", None, "store_failed"),
        ("inbox_full", "queue-full", "inbox_full"),
        ("misaddressed", None, "misaddressed"),
        ("dropped", "rate-limited", "rate_limited"),
    ],
)
def test_what_the_other_side_says_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, status: str, reason: str | None, code: str
) -> None:
    async def work() -> None:
        async with pair(Room()) as (alice, bob):

            def answer(frame: wire.UserFrame, channel: Any) -> None:
                channel.answer(wire.encode_ack(frame.msg_id or "", status, reason))

            monkeypatch.setattr(bob, "arrive", answer)
            refusal = await refused(alice, "bob", msg_id="m-1")
            assert refusal.code == code
            with alice.reading() as store:
                assert [(step.state, step.detail) for step in store.steps("m-1")] == [("failed", code)]

    run(work())


@pytest.mark.rule("01.31", "10.38")
def test_without_an_inbox_the_sender_is_warned_and_the_message_is_one_way() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("alice", listens=False) as alice, room.open("bob") as bob:
            receipt = await sent(alice, "bob")
            assert any("nobody can answer" in warning for warning in receipt.warnings)
            assert [message.origin.address for message in bob.drain()] == [None]

    run(work())


@pytest.mark.rule("01.5")
def test_an_answer_to_something_unknown_is_sent_with_a_warning() -> None:
    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            receipt = await sent(alice, "bob", in_reply_to="no-such-id")
            assert any("no-such-id" in warning for warning in receipt.warnings)
            assert [message.in_reply_to for message in bob.drain()] == ["no-such-id"]

    run(work())


@pytest.mark.rule("11.6")
def test_many_sends_to_one_target_keep_their_order() -> None:
    """A hundred at once, to a store that commits in its own time; each is acknowledged."""

    async def work() -> None:
        room = Room()
        async with pair(room, store=DurableStore(), limits=Limits.unbounded()) as (alice, bob):
            results = await asyncio.gather(*(sent(alice, "bob", str(number)) for number in range(100)))
            assert {result.status for result in results} == {"queued"}
            assert texts(bob.drain()) == [str(number) for number in range(100)]

    run(work())


@pytest.mark.rule("05.27")
def test_a_sender_whose_own_store_fails_sends_all_the_same() -> None:
    """The message arrives and the receipt says so; what could not be written down is counted."""

    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            store: Any = alice.store
            store.failing = "full"
            receipt = await sent(alice, "bob", "one")
            assert receipt.status == "queued"
            await turns()
            assert alice.counts["store-failed"] >= 1
            store.failing = ""
            assert texts(bob.drain()) == ["one"]
            assert states(alice, receipt.msg_id) == []

    run(work())


@pytest.mark.rule("05.27")
def test_writing_down_a_send_that_fails_costs_the_open_group_and_says_so() -> None:
    """The message goes; what had just arrived here is lost with the group, and its sender hears that."""

    async def work() -> None:
        room, store = Room(), DurableStore()
        async with room.open("alice", store=store) as alice, room.open("bob") as bob:
            line = Line(log=store.events)
            alice.arrive(frame_of("one", "m-1"), line)
            store.unnotable = True
            assert (await sent(alice, "bob")).status == "queued"
            await turns()
            assert line.statuses == ["store_failed"]
            assert alice.peek() == []
            assert len(bob.drain()) == 1

    run(work())


@pytest.mark.rule("11.2", "05.23")
def test_a_send_that_nobody_waits_for_any_more_is_journaled_as_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Interrupted while the answer is awaited: not known, and written down as that."""

    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            arrived = unanswered(monkeypatch, bob)
            sending = asyncio.create_task(alice.send("bob", "one", summary="s", msg_id="m-1"))
            await until(lambda: arrived)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert states(alice, "m-1") == ["unknown"]

    run(work())


@pytest.mark.rule("05.23")
def test_closing_in_the_middle_of_a_send_leaves_it_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender ends while it waits for the answer: the send says what is known, and raises nothing."""

    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            arrived = unanswered(monkeypatch, bob)
            sending = asyncio.create_task(alice.send("bob", "one", summary="s"))
            await until(lambda: arrived)
            await alice.close()
            result = await sending
            assert isinstance(result, Receipt)
            assert result.status == "unknown"

    run(work())


# ── pins and answers ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.17", "02.18", "02.4")
def test_a_name_goes_on_meaning_whom_it_meant() -> None:
    """bob renames, and the old name reaches him; another takes it, and only an explicit ref moves the pin."""

    async def work() -> None:
        room = Room()
        async with pair(room) as (alice, bob):
            await sent(alice, "bob", "one")
            assert bob.rename("robert") == "robert"
            assert (await sent(alice, "bob", "two")).to.name == "robert"
            async with room.open("bob") as other:
                assert other.name == "bob"
                refusal = await refused(alice, "bob", "three")
                assert refusal.code == "pin_mismatch"
                await sent(alice, f"bob [{other.ref}]", "four")
                await sent(alice, "bob", "five")
                assert texts(other.drain()) == ["four", "five"]
            assert texts(bob.drain()) == ["one", "two"]

    run(work())


@pytest.mark.rule("02.4")
def test_a_former_name_is_lost_once_another_session_took_it() -> None:
    async def work() -> None:
        room = Room()
        async with pair(room) as (alice, bob):
            bob.rename("robert")
            async with room.open("bob"):
                pass
            assert [row.aliases for row in alice.directory.rows().rows if row.identity == bob.id] == [()]
            assert (await refused(alice, "bob")).code == "not_found"

    run(work())


@pytest.mark.rule("02.17", "05.12", "11.8")
def test_pins_and_known_senders_come_back_with_the_session(tmp_path: Path) -> None:
    """A resumed session means the same by the same names, and answers to the `from` that it was shown."""

    async def work() -> None:
        tmp_path.chmod(0o700)
        room = Room()
        async with room.open("bob") as bob:
            for again in (False, True):
                store = SqliteStore.open(str(tmp_path), now=room.now, session_name="alice")
                async with room.open("alice", store=store, session_id="alice-id") as alice:
                    if not again:
                        await sent(alice, "bob", "one")
                        await sent(bob, "alice", "from bob")
                        alice.drain()
                        bob.rename("robert")
                        continue
                    async with room.open("bob"):
                        assert (await refused(alice, "bob", "two")).code == "pin_mismatch"
                        await sent(alice, f"bob [{bob.ref}]", "to the one who wrote")
                    assert texts(bob.drain()) == ["one", "to the one who wrote"]

    run(work())


@pytest.mark.rule("11.1", "01.5")
def test_an_answer_marks_what_was_consumed() -> None:
    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            receipt = await sent(alice, "bob", "ready?")
            bob.drain()
            await sent(bob, "alice", "yes", in_reply_to=receipt.msg_id)
            assert states(bob, receipt.msg_id)[-2:] == ["consumed", "answered"]

    run(work())


@pytest.mark.rule("11.1", "01.5")
def test_an_answer_that_is_early_marks_it_once_it_is_consumed() -> None:
    """Answered under the lease: `answered` follows `consumed` and nothing else, and only once."""

    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            receipt = await sent(alice, "bob", "ready?")
            lease = bob.take()
            await sent(bob, "alice", "yes", in_reply_to=receipt.msg_id)
            assert states(bob, receipt.msg_id)[-1] == "leased"
            bob.release(lease)
            bob.confirm(bob.take())
            assert states(bob, receipt.msg_id)[-2:] == ["consumed", "answered"]
            bob.confirm(bob.take())
            assert states(bob, receipt.msg_id).count("answered") == 1

    run(work())


@pytest.mark.rule("11.1")
def test_an_answer_that_did_not_arrive_marks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        room = Room()
        async with pair(room) as (alice, bob):
            receipt = await sent(alice, "bob", "ready?")
            bob.drain()
            dropping(monkeypatch, room, 2)
            assert (await sent(bob, "alice", "yes", in_reply_to=receipt.msg_id)).status == "unknown"
            assert states(bob, receipt.msg_id)[-1] == "consumed"

    run(work())


@pytest.mark.rule("02.8")
def test_an_answer_goes_to_the_from_that_was_shown_and_to_nobody_else() -> None:
    """Two of one name: the `from` of a message reaches its sender; a made-up one reaches nobody."""

    async def work() -> None:
        room = Room()
        async with pair(room) as (alice, bob):
            await sent(alice, "bob")
            bob.drain()
            alice.rename("alicia")
            async with room.open("alice"):
                await sent(bob, f"alice [{alice.ref}]", "to the one who wrote")
            assert texts(alice.drain()) == ["to the one who wrote"]
            assert (await refused(bob, "uds:/tmp/made-up.sock")).code == "not_found"

    run(work())


# ── taking ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("11.1", "10.3")
def test_looking_takes_nothing_and_taking_takes_once() -> None:
    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            receipt = await sent(alice, "bob")
            assert texts(bob.peek()) == texts(bob.peek()) == ["hello"]
            lease = bob.take()
            assert [message.state for message in lease.messages] == ["leased"]
            assert (bob.peek(), bob.take(), bob.status().queued) == ([], Lease("", ()), 0)
            bob.confirm(lease)
            assert states(bob, receipt.msg_id) == ["received", "accepted", "leased", "consumed"]
            bob.confirm(lease)
            bob.release(lease)
            assert states(bob, receipt.msg_id)[-1] == "consumed"

    run(work())


@pytest.mark.rule("11.1", "11.4")
def test_what_goes_back_comes_again_marked_and_in_its_place() -> None:
    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            for text in ("one", "two", "three"):
                await sent(alice, "bob", text)
            lease = bob.take(limit=2)
            assert texts(lease.messages) == ["one", "two"]
            await sent(alice, "bob", "four")
            bob.release(lease)
            again = bob.drain()
            assert texts(again) == ["one", "two", "three", "four"]
            assert [message.redelivered for message in again] == [True, True, False, False]

    run(work())


@pytest.mark.rule("11.1")
def test_one_message_can_be_taken_by_its_id() -> None:
    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            await sent(alice, "bob", "one")
            wanted = await sent(alice, "bob", "two")
            bob.confirm(bob.take(only=wanted.msg_id))
            assert bob.take(only="no-such-id") == Lease("", ())
            assert texts(bob.drain()) == ["one"]

    run(work())


@pytest.mark.rule("11.4")
def test_a_drain_is_consumed_at_once() -> None:
    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            receipt = await sent(alice, "bob")
            assert texts(bob.drain()) == ["hello"]
            assert states(bob, receipt.msg_id)[-1] == "consumed"
            assert bob.drain() == []

    run(work())


def noticed(session: Session, notice: Notice) -> None:
    """A notice comes for a session's loop."""
    session._board.put(notice)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.rule("05.27")
def test_notices_come_with_the_next_lease_and_outlive_one_that_fails() -> None:
    async def work() -> None:
        room, store = Room(), DurableStore()
        async with pair(room, store=store) as (alice, bob):
            notice = Notice(kind="held", at=room.now)
            noticed(bob, notice)
            assert await bob.wait(0)
            await sent(alice, "bob")
            store.unleasable = True
            with pytest.raises(StoreFailed):
                bob.take()
            store.unleasable = False
            lease = bob.take()
            assert lease.notices == (notice,)
            assert bob.take() == Lease("", ())
            bob.confirm(lease)
            noticed(bob, notice)
            alone = bob.take()
            assert (alone.messages, alone.notices, bool(alone)) == ((), (notice,), True)
            bob.release(alone)
            again = bob.take()
            assert again.notices == (notice,)
            bob.confirm(again)
            assert bob.take() == Lease("", ())

    run(work())


@pytest.mark.rule("11.4")
def test_what_is_confirmed_after_the_end_is_not_confirmed() -> None:
    """The loop learns it, and the messages wait for the session to come back."""

    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            await sent(alice, "bob")
            lease = bob.take()
            await bob.close()
            with pytest.raises(SessionClosed):
                bob.confirm(lease)
            bob.release(lease)

    run(work())


# ── waiting ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.4", "05.27")
def test_waiting_ends_with_the_commit_and_not_before() -> None:
    """What is not durable yet does not count as there."""

    async def work() -> None:
        room, store = Room(), DurableStore()
        async with room.open("bob", store=store) as bob:
            assert await bob.wait(0) is False
            waiting = asyncio.create_task(bob.wait())
            await turns()
            looking = asyncio.create_task(
                bob.wait()
            )  # looks for the first time in the step after the arrival
            for task in (waiting, looking):
                task.add_done_callback(lambda _: store.events.append("woken"))
            bob.arrive(frame_of(), Line(log=store.events))
            assert await asyncio.gather(waiting, looking) == [True, True]
            await turns()
            assert store.events == ["commit", "queued m-1", "woken", "woken"]
            assert await bob.wait(0) is True
            bob.drain()
            assert await bob.wait(0) is False

    run(work())


@pytest.mark.rule("10.4")
def test_a_failed_commit_wakes_nobody() -> None:
    async def work() -> None:
        room, store = Room(), DurableStore()
        async with room.open("bob", store=store) as bob:
            waiting = asyncio.create_task(bob.wait())
            await turns()
            bob.arrive(frame_of(), Line())
            store.failing = "full"
            await turns()
            assert not waiting.done()
            store.failing = ""
            bob.arrive(frame_of(), Line())
            assert await waiting is True

    run(work())


@pytest.mark.rule("10.4")
def test_the_end_wakes_whoever_waits() -> None:
    """`wait` and `wait_for` end without a message; everybody who waits, not one of them."""

    async def work() -> None:
        async with Room().open("bob") as bob:
            waiting = [asyncio.create_task(bob.wait()) for _ in range(3)]
            wanting = asyncio.create_task(bob.wait_for(lambda _: True))
            await turns()
            await bob.close()
            assert await asyncio.gather(*waiting) == [False] * 3
            assert await wanting is None
            assert await bob.wait() is False
            assert await bob.wait_for(lambda _: True) is None

    run(work())


@pytest.mark.rule("10.22")
def test_waiting_for_a_certain_message_takes_none() -> None:
    async def work() -> None:
        async with pair(Room(), store=DurableStore()) as (alice, bob):
            wanting = asyncio.create_task(bob.wait_for(lambda message: message.text == "two"))
            await sent(alice, "bob", "one")
            await turns()
            assert not wanting.done()
            await sent(alice, "bob", "two")
            found = await wanting
            assert found is not None
            assert found.text == "two"
            assert texts(bob.peek()) == ["one", "two"]
            assert await bob.wait_for(lambda message: message.text == "three", 0) is None

    run(work())


@pytest.mark.rule("10.22")
def test_a_message_that_was_waited_for_is_told_whoever_takes_it() -> None:
    """Also where it is gone again in the step in which it came; but never before it was committed."""

    async def work() -> None:
        async with pair(Room(), store=DurableStore()) as (alice, bob):
            wanting = asyncio.create_task(bob.wait_for(lambda message: message.text == "two"))
            await turns()
            await sent(alice, "bob", "one")
            sending = asyncio.create_task(alice.send("bob", "two", summary="s"))
            while bob.status().queued != 2:
                await step()
            assert texts(bob.drain()) == ["one", "two"]
            await sending
            found = await wanting
            assert found is not None
            assert found.text == "two"

    run(work())


@pytest.mark.rule("10.22", "05.27")
def test_a_message_that_was_lost_with_its_group_was_not_waited_for() -> None:
    async def work() -> None:
        room, store = Room(), DurableStore()
        async with room.open("bob", store=store) as bob:
            wanting = asyncio.create_task(bob.wait_for(lambda _: True))
            await turns()
            bob.arrive(frame_of("lost", "m-1"), Line())
            store.failing = "full"
            await turns()
            store.failing = ""
            bob.arrive(frame_of("kept", "m-2"), Line())
            found = await wanting
            assert found is not None
            assert found.text == "kept"

    run(work())


@pytest.mark.rule("05.27", "11.10")
def test_what_is_too_old_goes_a_while_after_something_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece of it each time something is written, and once for all that came in between."""
    delays: list[float] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        later = loop.call_later

        def call_later(delay: float, callback: Any, *args: Any, **more: Any) -> asyncio.TimerHandle:
            delays.append(delay)
            return later(0, callback, *args, **more)

        room = Room()
        async with room.open("bob") as bob:
            monkeypatch.setattr(loop, "call_later", call_later)
            bob.arrive(frame_of("old", "m-1"), Line())
            bob.arrive(frame_of("old too", "m-2"), Line())
            assert delays == [TIDY_SECONDS]
            await turns()
            assert texts(bob.peek()) == ["old", "old too"]
            room.now += 31 * 86_400_000
            bob.arrive(frame_of("new", "m-3"), Line())
            await turns()
            assert texts(bob.peek()) == ["new"]
            assert states(bob, "m-1")[-1] == "removed"
            assert delays == [TIDY_SECONDS] * 2

    run(work())


@pytest.mark.rule("10.4", "11.1")
def test_what_is_given_back_wakes_the_next_one_who_waits() -> None:
    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            await sent(alice, "bob")
            lease = bob.take()
            waiting = asyncio.create_task(bob.wait())
            await turns()
            assert not waiting.done()
            bob.release(lease)
            assert await waiting is True

    run(work())


@pytest.mark.rule("11.1")
def test_the_loop_over_messages_consumes_each_after_its_body() -> None:
    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            for text in ("one", "two"):
                await sent(alice, "bob", text)
            seen: list[Message] = []
            async for message in bob.messages():
                assert states(bob, message.msg_id)[-1] == "leased"
                if seen:
                    assert states(bob, seen[-1].msg_id)[-1] == "consumed"
                seen.append(message)
                if len(seen) == 2:
                    await sent(alice, "bob", "last")
                if len(seen) == 3:
                    break
            assert texts(seen) == ["one", "two", "last"]
            await until(bob.peek)
            [again] = bob.drain()
            assert (again.text, again.redelivered) == ("last", True)

    run(work())


@pytest.mark.rule("11.1")
def test_a_body_that_fails_gives_its_message_back() -> None:
    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            await sent(alice, "bob")

            async def body() -> None:
                async for _ in bob.messages():
                    raise LookupError("the loop could not use it")

            with pytest.raises(LookupError):
                await body()
            await until(bob.peek)
            assert [(message.text, message.redelivered) for message in bob.drain()] == [("hello", True)]

    run(work())


def test_the_loop_over_messages_ends_with_the_session() -> None:
    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            await sent(alice, "bob")
            seen: list[str] = []

            async def body() -> None:
                async for message in bob.messages():
                    seen.append(message.text)

            looping = asyncio.create_task(body())
            await until(lambda: seen)
            await bob.close()
            await looping
            assert seen == ["hello"]

    run(work())


# ── being somebody ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.3", "02.4")
def test_renaming() -> None:
    """A name that is free; the same one; one that is taken, of which it gets a variant; the journal follows."""

    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            assert bob.rename("bob") == "bob"
            assert bob.record.former_names == ()
            assert bob.rename("robert") == "robert"
            assert bob.rename("Alice") == "Alice-2"
            assert (bob.name, alice.name) == ("Alice-2", "alice")
            receipt = await sent(alice, "robert")
            assert receipt.to.name == "Alice-2"
            with bob.reading() as store:
                assert {step.where for step in store.steps(receipt.msg_id)} == {"Alice-2"}

    run(work())


@pytest.mark.rule("02.2")
@pytest.mark.parametrize("name", ["", "main", "a/b", "x@y", "-"])
def test_a_bad_name_changes_nothing(name: str) -> None:
    async def work() -> None:
        async with Room().open("bob") as bob:
            with pytest.raises(InvalidName):
                bob.rename(name)
            assert bob.name == "bob"

    run(work())


@pytest.mark.rule("10.27", "10.30")
def test_status_says_what_it_knows() -> None:
    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            await sent(alice, "bob")
            bob.found("The disk looks tired.")
            bob.count("nonsense")
            status = bob.status()
            assert (status.name, status.ref, status.session_id) == ("bob", bob.ref, bob.id)
            assert (status.peer_address, status.queued) == (bob.address, 1)
            assert status.problems == ("The disk looks tired.",)
            assert status.counts == {"nonsense": 1}
            assert (status.inbound, status.inbound_scope) == (None, "default")
            assert repr(bob) == f"<Session bob [{bob.ref}] 1 waiting>"
            assert bob.closed is False

    run(work())


def test_the_end_can_be_said_twice_and_everything_says_so() -> None:
    async def work() -> None:
        async with pair(Room()) as (alice, bob):
            await asyncio.gather(bob.close(), bob.close())
            await bob.close()
            assert (bob.closed, repr(bob)) == (True, f"<Session bob [{bob.ref}] closed>")
            calls = (bob.peek, bob.take, bob.drain, lambda: bob.rename("x"))
            for call in calls:
                with pytest.raises(SessionClosed):
                    call()
            with pytest.raises(SessionClosed):
                await bob.send("alice", "x", summary="s")
            with pytest.raises(SessionClosed), bob.reading():
                pass
            assert [row.name for row in alice.directory.rows().rows] == ["alice"]

    run(work())


@pytest.mark.rule("05.29")
def test_leaving_needs_no_event_loop() -> None:
    """What a signal handler does: the record goes at once, and what was open is forgotten, not committed."""
    room, store = Room(), DurableStore()

    async def work() -> None:
        async with room.open("bob", store=store) as bob:
            bob.arrive(frame_of(), Line())
            bob.leave()
            assert room.gathering.records == {}
            assert store.events == []
            assert not store.pending

    run(work())


# ── the public way in ────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.3")
def test_sessions_of_one_process_by_the_public_door() -> None:
    """`open_in_memory`: messages cross, names are taken once, an end frees them."""

    async def work() -> None:
        here = Gathering()
        async with open_in_memory("alice", here) as alice, open_in_memory("bob", here) as bob:
            await sent(alice, "bob", "hello")
            [message] = bob.drain()
            assert (message.text, message.origin.name, message.origin.verified) == ("hello", "alice", True)
            async with open_in_memory("Bob", here) as second:
                assert second.name == "Bob-2"
        async with open_in_memory("bob", here) as again:
            assert again.name == "bob"
            with pytest.raises(InvalidName):
                async with open_in_memory("user", here):
                    pass

    run(work())


def test_a_refusal_of_the_call_itself_is_the_contracts() -> None:
    """The first stage is `core.contract`'s, and every caller goes through it."""

    async def work() -> None:
        async with pair(Room()) as (alice, _bob):
            raw: dict[str, object] = {"to": "*", "message": "x", "summary": "s"}
            assert await alice.send_call(raw) == contract.validate(raw, contract.Caller(kind="main"))

    run(work())
