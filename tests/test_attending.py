"""What a client reports of its turns, and what its doors say: between whole sessions, in process (chapter 09)."""

from __future__ import annotations

import asyncio

import pytest

from postroom import Receipt, Session, attending
from postroom.errors import StoreFailed
from tests.doorsteps import until
from tests.room import DurableStore, Room, states, texts
from tests.transports.ends import run, turns


async def arrived(alice: Session, *texts_of: str) -> list[str]:
    """Has bob get messages; returns their ids."""
    ids: list[str] = []
    for text in texts_of:
        result = await alice.send("bob", text, summary="s")
        assert isinstance(result, Receipt), result
        ids.append(result.msg_id)
    return ids


async def kinds(session: Session) -> list[str]:
    """The kinds of the notices that a session's loop gets."""
    await turns(50)
    lease = session.take()
    session.confirm(lease)
    return [notice.kind for notice in lease.notices]


@pytest.mark.rule("09.1")
def test_what_a_door_took_is_passed_on_and_no_other_door_gets_it() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("alice") as alice, room.open("bob") as bob:
            [msg_id] = await arrived(alice, "hello")
            lease = bob.take()
            bob.pass_on(lease, "codex queue")
            assert states(bob, msg_id)[-2:] == ["leased", "passed"]
            assert not bob.take()
            assert bob.status().queued == 0

    run(work())


@pytest.mark.rule("09.16")
def test_a_ring_is_journaled_beside_the_state_of_the_message() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("alice") as alice, room.open("bob") as bob:
            [msg_id] = await arrived(alice, "hello")
            bob.rang([msg_id], "codex queue", "failed", "nobody listens")
            assert texts(bob.peek()) == ["hello"]
            with bob.reading() as store:
                step = store.steps(msg_id)[-1]
            assert (step.state, step.detail) == ("rang", "codex queue: failed, nobody listens")
            assert bob.peek()[0].state == "accepted"

    run(work())


@pytest.mark.rule("09.1", "11.1")
def test_what_the_clients_turn_holds_is_consumed_and_can_be_answered() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("alice") as alice, room.open("bob") as bob:
            first, second = await arrived(alice, "one", "two")
            bob.pass_on(bob.take(), "native")
            bob.seen([first, "of somebody else"])
            assert states(bob, first)[-1] == "consumed"
            assert states(bob, second)[-1] == "passed"
            result = await bob.send("alice", "done", summary="s", in_reply_to=first)
            assert isinstance(result, Receipt)
            assert states(bob, first)[-1] == "answered"

    run(work())


@pytest.mark.rule("09.1", "11.1")
def test_an_answer_shows_that_what_was_passed_on_was_read() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("alice") as alice, room.open("bob") as bob:
            [msg_id] = await arrived(alice, "hello")
            bob.pass_on(bob.take(), "native")
            await bob.send("alice", "yes", summary="s", in_reply_to=msg_id)
            assert states(bob, msg_id)[-3:] == ["passed", "consumed", "answered"]

    run(work())


@pytest.mark.rule("09.1")
def test_what_a_door_dropped_waits_again_marked_and_wakes_whoever_waits() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("alice") as alice, room.open("bob") as bob:
            [msg_id] = await arrived(alice, "hello")
            bob.pass_on(bob.take(), "native")
            waiting = asyncio.ensure_future(bob.wait(30))
            await turns(20)
            assert bob.waiters == 1
            assert bob.take_back(msg_id, "its inbox dropped it")
            assert await waiting
            [message] = bob.take().messages
            assert (message.msg_id, message.redelivered) == (msg_id, True)
            assert not bob.take_back(msg_id, "a second time")

    run(work())


@pytest.mark.rule("09.2", "03.49")
def test_what_is_denied_behind_a_door_is_told_to_its_sender() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("alice") as alice, room.open("bob") as bob:
            [msg_id] = await arrived(alice, "hello")
            bob.pass_on(bob.take(), "native")
            assert bob.denied_behind(msg_id, "its person denied it")
            assert await kinds(alice) == ["denied"]
            assert not bob.peek()
            assert states(bob, msg_id)[-1] == "denied"

    run(work())


@pytest.mark.rule("09.12")
def test_turns_are_shown_as_the_client_reports_them() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("alice") as alice, room.open("bob") as bob:
            assert bob.turn == "unknown"
            bob.began_turn()
            assert (bob.turn, bob.record.status) == ("busy", "busy")
            bob.ended_turn("done")
            assert (bob.turn, bob.record.status) == ("idle", "idle")
            bob.doing("waiting")
            assert bob.record.status == "waiting"
            assert [row.state for row in alice.listing().rows] == ["idle"]  # published a moment later
            bob.ended_turn()

    run(work())


@pytest.mark.rule("09.16")
def test_what_is_known_of_a_message_to_it_is_shown_a_moment_later_and_only_where_it_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attending, "SHOWN_SECONDS", 0.0)

    async def work() -> None:
        room = Room()
        async with room.open("alice") as alice, room.open("bob") as bob:
            before = bob.record
            bob.reached(before.confirms, before.wakes)
            bob.sat_before(before.kind)
            assert bob.record is before
            bob.reached("written", False)
            bob.sat_before("interactive")

            def shown() -> list[tuple[str, bool, str]]:
                return [(row.confirms, row.wakes, row.presence) for row in alice.listing().rows]

            assert shown() == [("consumed", True, "headless")]
            await until(lambda: shown() == [("written", False, "interactive")])

    run(work())


@pytest.mark.rule("12.21")
def test_whoever_rings_doors_hears_of_what_the_client_reports() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("bob") as bob:
            for report in (bob.reported, bob.ended_turn):
                before = bob.reports
                heard = asyncio.ensure_future(bob.heard(10))
                await asyncio.sleep(0)
                report()
                assert await heard
                assert bob.reports == before + 1

    run(work())


@pytest.mark.rule("09.9")
def test_the_clients_own_name_is_followed_until_a_person_chooses_one() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("alice") as alice, room.open("bob") as bob:
            bob.called("fix-the-login")
            assert (bob.name, bob.record.name_source) == ("fix-the-login", "derived")
            assert isinstance(await alice.send("bob", "still here", summary="s"), Receipt)  # an alias
            for unfit in ("", "../x", "a\nb", "fix-the-login", "*"):
                bob.called(unfit)
                assert bob.name == "fix-the-login"
            bob.called("alice")
            assert bob.name not in ("alice", "fix-the-login")  # somebody else's: a variant
            bob.rename("mine")
            bob.called("of-the-client")
            assert bob.name == "mine"

    run(work())


def test_a_store_that_fails_gives_back_what_a_door_took() -> None:
    async def work() -> None:
        room = Room()
        store = DurableStore("bob")
        async with room.open("alice") as alice, room.open("bob", store=store) as bob:
            [msg_id] = await arrived(alice, "hello")
            lease = bob.take()
            store.failing = "broken"
            with pytest.raises(StoreFailed):
                bob.pass_on(lease, "native")
            store.failing = ""
            bob.release(lease)
            [message] = bob.take().messages
            assert (message.msg_id, message.redelivered) == (msg_id, True)

    run(work())


def test_a_log_line_goes_where_the_host_wants_it() -> None:
    async def work() -> None:
        room = Room()
        lines: list[str] = []
        async with room.open("bob") as bob:
            bob.log("nobody listens")
            bob.write_log = lines.append
            bob.log("a hook failed")
        assert lines == ["a hook failed"]

    run(work())
