"""Idle notices, asked for and told, between whole sessions: in process by a clock that a test moves, and by command (05.31)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from postroom import Notice, Receipt, Refusal, Session
from postroom.core import wire
from postroom.core.settings import DEFAULTS, InboundSetting, InboundValue, Settings
from postroom.state.memory_store import MemoryStore
from postroom.transport import Channel
from postroom.transports.memory import MemoryChannel, MemoryTransport
from tests.desk import SECONDS, Desk, running, wait_until
from tests.room import NOW, Room, texts
from tests.strangers import Raw, private_desk
from tests.transports.ends import run, turns

TABLE, HOURS_12, TURN_MS = 32, 43_200_000, 60_000
"""Subscriptions at once, how long one lasts, and how long a turn that nobody reports (05.31, 03.66)."""

SETTINGS = {
    value: replace(DEFAULTS, inbound=InboundSetting(value=value, scope="user", cause="explicit-setting"))
    for value in ("accept", "hold", "refuse")
}
"""What a user may have set of what comes in."""


@contextlib.asynccontextmanager
async def pair(room: Room, **options: Any) -> AsyncGenerator[tuple[Session, Session]]:
    """alice, who asks, and bob, who is watched; the options are bob's."""
    async with room.open("alice") as alice, room.open("bob", **options) as bob:
        yield alice, bob


async def asked(session: Session, to: str = "bob") -> str:
    """Subscribes, which must go well; returns the id of the request."""
    result = await session.send(to, notify_when_idle=True)
    assert isinstance(result, Receipt), result
    assert result.status == "written"
    await turns(50)
    return result.msg_id


async def told(session: Session) -> list[tuple[str, str | None, str]]:
    """The notices that a session's loop gets: kind, id, and what else they say."""
    await turns(50)
    lease = session.take()
    assert lease.messages == ()
    session.confirm(lease)
    return [(notice.kind, notice.msg_id, notice.detail) for notice in lease.notices]


# ── when it is told ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.31", "01.6")
def test_report_23_who_is_idle_already_says_so_at_once() -> None:
    """A session whose loop never took anything, and one that asked for more and found nothing."""

    async def work() -> None:
        room = Room()
        async with pair(room) as (alice, bob):
            request = await asked(alice)
            [notice] = alice.peek_notices()
            assert notice == Notice(kind="idle", at=NOW, msg_id=request, about="bob")
            assert await alice.wait(SECONDS)
            assert await told(alice) == [("idle", request, "")]
            await alice.send("bob", "hello", summary="s")
            assert texts(bob.drain()) == ["hello"]
            assert not bob.take()
            assert await told(alice) == []
            request = await asked(alice)
            assert await told(alice) == [("idle", request, "")]

    run(work())


@pytest.mark.rule("05.31")
def test_who_has_something_to_do_says_so_once_it_is_done_and_only_once() -> None:
    """While mail waits, while it is leased, while the turn goes on: nothing. Then one notice, and none for later turns."""

    async def work() -> None:
        room = Room()
        async with pair(room) as (alice, bob):
            result = await alice.send("bob", "do this", summary="s", notify_when_idle=True)
            assert isinstance(result, Receipt)
            assert (result.status, "told once when bob is idle" in result.note) == ("queued", True)
            assert await told(alice) == []
            lease = bob.take()
            assert texts(lease.messages) == ["do this"]
            assert await told(alice) == []
            bob.confirm(lease)
            assert await told(alice) == []
            assert not bob.take()
            [(kind, request, _)] = await told(alice)
            assert kind == "idle"
            assert request not in (None, result.msg_id)
            for _ in range(2):
                await alice.send("bob", f"and this, {room.new_id()}", summary="s")
                assert len(bob.drain()) == 1
                assert not bob.take()
            assert await told(alice) == []

    run(work())


@pytest.mark.rule("05.31")
@pytest.mark.parametrize("end", ["reported", "waiting", "a minute", "released"])
def test_what_ends_a_turn(end: str) -> None:
    """The client says so; the loop waits for more; a minute has passed. What is given back and still waits does not."""

    async def work() -> None:
        room = Room()
        async with pair(room) as (alice, bob):
            await alice.send("bob", "hello", summary="s")
            lease = bob.take()
            if end == "reported":
                bob.began_turn()
            request = await asked(alice)
            if end == "released":
                bob.release(lease)
                room.now += 2 * TURN_MS
                bob.tick()
                assert await told(alice) == []
                lease = bob.take()
            bob.confirm(lease)
            room.now += TURN_MS - 1
            bob.tick()
            assert await told(alice) == []
            if end == "reported":
                room.now += 10 * TURN_MS
                bob.tick()
                assert await told(alice) == []
                bob.ended_turn()
            elif end == "waiting":
                assert not await bob.wait(0)
            else:
                room.now += 1
                bob.tick()
            assert await told(alice) == [("idle", request, "")]

    run(work())


@pytest.mark.rule("05.31")
def test_what_was_taken_and_not_confirmed_is_not_done() -> None:
    """However long ago that was: a loop that has it may be at work on it."""

    async def work() -> None:
        room = Room()
        async with pair(room) as (alice, bob):
            await alice.send("bob", "hello", summary="s")
            lease = bob.take()
            await asked(alice)
            room.now += 100 * TURN_MS
            bob.tick()
            request = await asked(alice)
            assert await told(alice) == []
            bob.confirm(lease)
            assert await told(alice) == [("idle", request, "")]

    run(work())


@pytest.mark.rule("05.31")
def test_the_end_of_a_session_is_told_as_such() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("alice") as alice:
            async with room.open("bob") as bob:
                bob.began_turn()
                request = await asked(alice)
                assert await told(alice) == []
            assert await told(alice) == [("exited", request, "")]

    run(work())


@pytest.mark.rule("05.31")
@pytest.mark.parametrize("late", [False, True])
def test_a_subscription_lasts_twelve_hours(late: bool) -> None:
    """Nobody is told after that, not even that its time is over."""

    async def work() -> None:
        room = Room()
        async with pair(room) as (alice, bob):
            bob.began_turn()
            request = await asked(alice)
            room.now += HOURS_12 - (not late)
            bob.ended_turn()
            assert await told(alice) == ([] if late else [("idle", request, "")])

    run(work())


@pytest.mark.rule("05.31")
def test_a_repeat_refreshes_it() -> None:
    """The later request is the one that is answered, once, and its twelve hours count."""

    async def work() -> None:
        room = Room()
        async with pair(room) as (alice, bob):
            bob.began_turn()
            await asked(alice)
            room.now += HOURS_12 - 1
            again = await asked(alice)
            room.now += HOURS_12 - 1
            bob.ended_turn()
            assert await told(alice) == [("idle", again, "")]

    run(work())


@pytest.mark.rule("05.31", "11.10")
def test_the_thirty_third_is_told_that_it_cannot_be_told() -> None:
    """While one of the thirty-two may ask again; all of them are told in the end, and there is room anew."""

    async def work() -> None:
        room = Room()
        async with contextlib.AsyncExitStack() as stack:
            bob = await stack.enter_async_context(room.open("bob"))
            crowd = [await stack.enter_async_context(room.open(f"s{number}")) for number in range(TABLE + 1)]
            bob.began_turn()
            requests = [await asked(session) for session in crowd]
            assert await told(crowd[-1]) == [("unavailable", requests[-1], "")]
            requests[0] = await asked(crowd[0])
            assert await told(crowd[0]) == []
            bob.ended_turn()
            for session, request in zip(crowd[:-1], requests[:-1], strict=True):
                assert await told(session) == [("idle", request, "")]
            assert await told(crowd[-1]) == []
            request = await asked(crowd[-1])
            assert await told(crowd[-1]) == [("idle", request, "")]

    run(work())


@pytest.mark.rule("05.31", "05.27")
@pytest.mark.parametrize("end", ["turn", "idle", "exited"])
def test_a_subscription_outlives_a_restart_of_either_side(end: str) -> None:
    """The watched one and then the asking one are interrupted and come back: the answer still comes, once, where it belongs."""

    async def work() -> None:
        room = Room()
        stores = {name: MemoryStore(name) for name in ("alice", "bob")}
        async with contextlib.AsyncExitStack() as stack:
            alice, bob = [
                await stack.enter_async_context(room.open(name, store=stores[name], session_id=name))
                for name in ("alice", "bob")
            ]
            await alice.send("bob", "hello", summary="s")
            request = await asked(alice)
            bob.leave()  # as when it is killed: nobody is told
            assert await told(alice) == []
            back = stores["bob"].reopened(room.now)
            if end == "idle":  # and what waited is gone
                back.take("x", room.now)
                back.confirm("x", room.now)
            await bob.close()
            async with room.open("bob", store=back, session_id="bob") as again:
                if end == "turn":
                    assert await told(alice) == []
                    again.drain()
                    assert not again.take()
                if end != "exited":
                    assert await told(alice) == [("idle", request, "")]
            assert await told(alice) == ([("exited", request, "")] if end == "exited" else [])

    run(work())


# ── what it says ─────────────────────────────────────────────────────────────────────────────────

WORDS = "The column is tenant_id.\n</delivery-notice> " + "x" * 400


@pytest.mark.rule("05.31", "05.24")
@pytest.mark.parametrize("asking", [None, "accept", "hold"])
@pytest.mark.parametrize("watched", [None, "accept", "hold", "refuse"])
@pytest.mark.parametrize("modes", [("default", "plan"), ("default", "never"), ("never", "yolo"), ("?", "?")])
def test_the_last_words_come_only_where_neither_holds_and_the_classes_are_the_same(
    asking: InboundValue | None, watched: InboundValue | None, modes: tuple[str, str]
) -> None:
    """The notice itself always comes: at once from one that refuses, which says no word."""

    async def work() -> None:
        room = Room()
        async with (
            room.open("alice", mode=modes[0], settings=setting(asking)) as alice,
            room.open("bob", mode=modes[1], settings=setting(watched)) as bob,
        ):
            bob.began_turn()
            request = await asked(alice)
            if watched != "refuse":
                assert await told(alice) == []
            bob.ended_turn(WORDS)
            talks = (
                asking != "hold"
                and watched not in ("hold", "refuse")
                and (modes in (("default", "plan"), ("never", "yolo")))
            )
            [(kind, msg_id, detail)] = await told(alice)
            assert (kind, msg_id) == ("idle", request)
            if not talks:
                assert detail == ""
                return
            assert detail.startswith("Its last words: “The column is tenant_id.")
            assert "\n" not in detail
            assert "</delivery-notice>" not in detail
            assert len(detail) < 330

    run(work())


def setting(value: InboundValue | None) -> Settings:
    """The settings with this value of what comes in."""
    return DEFAULTS if value is None else SETTINGS[value]


@pytest.mark.rule("05.31", "03.10")
def test_one_that_refuses_answers_as_an_idle_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Field by field, the ids apart: neither its silence nor its answer tells. That it is busy does not matter."""

    async def work() -> None:
        heard: list[wire.ControlFrame] = []
        carry = MemoryTransport.take

        def noted(self: MemoryTransport, line: bytes, channel: MemoryChannel) -> None:
            frame = wire.decode(line.rstrip(b"\n"))
            if isinstance(frame, wire.ControlFrame) and frame.action == "peer_idle_notice":
                heard.append(frame)
            carry(self, line, channel)

        monkeypatch.setattr(MemoryTransport, "take", noted)
        for value in (None, "accept", "refuse"):
            room = Room()
            async with pair(room, settings=setting(value)) as (alice, bob):
                if value == "refuse":
                    bob.began_turn()
                await asked(alice)
                assert [kind for kind, _, _ in await told(alice)] == ["idle"]
        assert len(heard) == 3
        alike = [
            {key: getattr(frame, key) for key in frame.__struct_fields__ if key != "msg_id"}
            for frame in heard
        ]
        for frame in alike:
            for key in ("from_", "orig_msg_id"):
                assert frame.pop(key)
        assert alike[0] == alike[1] == alike[2]

    run(work())


# ── who may ask, and whom ────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.31", "01.22")
@pytest.mark.parametrize("text", [None, "and do this"])
@pytest.mark.parametrize("why", ["refuses", "no inbox", "too old"])
def test_where_nobody_can_be_told_the_whole_call_is_refused(why: str, text: str | None) -> None:
    """The attached message too."""

    async def work() -> None:
        room = Room()
        features = ("postroom_ack", "postroom_chain") if why == "too old" else ("notify_idle", "postroom_ack")
        async with (
            room.open("alice", settings=setting("refuse" if why == "refuses" else None)) as alice,
            room.open("mute", listens=False) as mute,
            room.open("bob", features=features) as bob,
        ):
            asking = mute if why == "no inbox" else alice
            refusal = await asking.send("bob", text, summary=text, notify_when_idle=True)
            assert isinstance(refusal, Refusal)
            assert refusal.code == "notify_not_allowed"
            assert refusal.message.startswith("Nothing was sent: ")
            assert bob.peek() == []
            assert bob.counts == {}
            assert [step for _, step in asking.store.log()] == []
            sent = await asking.send("bob", "without it", summary="s")
            assert isinstance(sent, Receipt)

    run(work())


@pytest.mark.rule("05.31", "05.24", "11.7")
def test_a_request_or_an_answer_that_is_forged_changes_nothing() -> None:
    """Under another's address, without one, about nothing that was asked, and from another than who was asked."""

    async def work() -> None:
        room = Room()
        async with pair(room) as (alice, bob), room.open("mallory") as mallory:
            bob.began_turn()
            stranger: Channel = room.line_from(mallory)
            for address in (alice.address, None, "uds:/tmp/none.sock", "memory:none"):
                frame = wire.ControlFrame(action="notify_when_idle", msg_id="x", from_=address)
                bob.control(frame, stranger)
            assert bob.counts == {"control-forged": 4}
            frame = wire.ControlFrame(action="notify_when_idle", from_=mallory.address)
            bob.control(frame, stranger)
            assert bob.counts["control-incomplete"] == 1
            request = await asked(alice)

            def answer(about: str, state: str, address: str | None = mallory.address) -> None:
                frame = wire.ControlFrame(
                    action="peer_idle_notice", orig_msg_id=about, state=state, from_=address
                )
                alice.control(frame, stranger)

            answer(request, "idle", bob.address)
            answer(request, "idle")
            answer("another", "exited")
            assert alice.counts == {"control-forged": 1, "control-foreign": 2}
            assert await told(alice) == []
            bob.ended_turn()
            assert await told(alice) == [("idle", request, "")]
            assert await told(mallory) == []

    run(work())


# ── by command ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def common() -> Iterator[Desk]:
    """A desk with alice and bob, for tests that leave them idle."""
    with private_desk() as desk:
        desk.open("alice")
        desk.open("bob")
        yield desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A desk of one's own."""
    with private_desk() as desk:
        yield desk


def waited(desk: Desk, name: str = "alice") -> list[dict[str, Any]]:
    """The notices that `wait` prints; there must be no message."""
    document = desk.ok("--session", name, "wait", "--timeout", f"{SECONDS:g}")
    assert document["messages"] == []
    return list(document["notices"])


@pytest.mark.rule("05.31", "10.2", "10.4")
def test_report_23_waiting_for_one_that_is_idle_returns_at_once(common: Desk) -> None:
    """A bare subscription by command, answered at once; `wait` returns for the notice alone and prints it."""
    asked = common.ok("--session", "alice", "send", "bob", "--notify-when-idle")
    assert (asked["status"], asked["to"]["name"]) == ("written", "bob")
    assert asked["note"] == "bob was asked to say once when it is idle, or ends; a notice comes then."
    [notice] = waited(common)
    assert (notice["kind"], notice["about"], notice["msg_id"]) == ("idle", "bob", asked["msg_id"])
    assert common.take("bob") == []
    done = common.run("--session", "alice", "wait", "--timeout", "0")
    assert (done.code, done.out) == (3, "Nothing came.\n")
    common.ok("--session", "alice", "send", "bob", "--notify-when-idle")
    done = common.run("--session", "alice", "wait", "--timeout", f"{SECONDS:g}")
    assert done.code == 0
    assert done.out.startswith('<delivery-notice kind="idle" about="bob" ')
    assert "\nbob has ended its turn, and nothing waits for it.\n" in done.out


@pytest.mark.rule("05.31", "10.2", "10.3")
def test_with_a_message_the_notice_comes_when_the_turn_is_over(common: Desk) -> None:
    """Not before the message was taken and its turn has ended: here, when `inbox --take` found nothing more."""
    common.send("alice", "bob", "do this", "--notify-when-idle")
    waiting = common.start("--session", "alice", "wait", "--json")
    assert common.ok("--session", "bob", "inbox")["messages"] != []
    assert [message["text"] for message in common.take("bob")] == ["do this"]
    assert waiting.poll() is None
    assert common.ok("--session", "alice", "inbox")["notices"] == []
    assert common.take("bob") == []
    out, err = waiting.communicate(timeout=SECONDS)
    assert (waiting.returncode, err) == (0, b"")
    assert b'"kind": "idle"' in out


@pytest.mark.rule("10.3", "05.31")
def test_a_notice_is_shown_by_a_mere_look_and_stays(common: Desk) -> None:
    common.ok("--session", "alice", "send", "bob", "--notify-when-idle")
    look = ("--session", "alice", "inbox")
    wait_until(lambda: common.ok(*look)["notices"])
    for _ in range(2):
        assert [notice["kind"] for notice in common.ok(*look)["notices"]] == ["idle"]
        assert "bob has ended its turn, and nothing waits for it." in common.run(*look).out
    assert [notice["kind"] for notice in waited(common)] == ["idle"]
    assert common.ok(*look)["notices"] == []


@pytest.mark.rule("05.31", "01.22", "10.38")
def test_an_outsider_cannot_ask_and_its_message_is_not_sent(common: Desk) -> None:
    """Neither with a text nor without one, nor where a session is opened for the answer alone."""
    for words in ((), ("a text",), ("a text", "--wait-reply", "0")):
        error = common.refused("send", "bob", *words, "--notify-when-idle")
        assert error["code"] == "notify_not_allowed"
    assert common.take("bob") == []


@pytest.mark.rule("05.31")
@pytest.mark.parametrize("how", ["close", "term"])
def test_the_end_of_a_real_session_is_told(desk: Desk, how: str) -> None:
    """By command and by SIGTERM, while it has something to do."""
    desk.open("alice")
    bob = desk.open("bob")
    desk.send("alice", "bob", "do this", "--notify-when-idle")
    if how == "close":
        desk.ok("--session", "bob", "close")
    else:
        os.kill(bob["pid"], signal.SIGTERM)
    assert [(notice["kind"], notice["about"]) for notice in waited(desk)] == [("exited", "bob")]
    wait_until(lambda: not running(bob["pid"]))


@pytest.mark.rule("05.31")
def test_a_request_that_came_before_a_kill_is_answered_after_the_resume(desk: Desk) -> None:
    desk.open("alice")
    bob = desk.open("bob")
    desk.send("alice", "bob", "do this", "--notify-when-idle")
    desk.send("alice", "bob", "and this")  # a request is not acknowledged, but what comes after it is
    desk.kill(bob)
    desk.open(None, "--resume", bob["session_id"])
    assert [message["text"] for message in desk.take("bob")] == ["do this", "and this"]
    assert desk.ok("--session", "alice", "inbox")["notices"] == []
    assert desk.take("bob") == []
    assert [notice["kind"] for notice in waited(desk)] == ["idle"]


@pytest.mark.rule("05.31", "05.24")
def test_a_stranger_on_the_socket_cannot_subscribe(common: Desk) -> None:
    """A program that is no session, under an address of its own and under alice's."""
    bob = next(one for one in common.opened.values() if one["name"] == "bob")
    alice = next(one for one in common.opened.values() if one["name"] == "alice")
    before = common.ok("--session", "bob", "status")["counts"].get("control-forged", 0)
    with Raw(bob["socket"]) as line:
        for path in ("/tmp/none.sock", alice["socket"], bob["socket"]):
            fields = {"type": "control", "action": "notify_when_idle", "msg_id": "x"}
            line.say({**fields, "from": f"uds:{path}"})
        assert line.post("hello")["status"] == "queued"
    assert common.ok("--session", "bob", "status")["counts"]["control-forged"] == before + 3
    assert len(common.take("bob")) == 1
    assert common.ok("--session", "alice", "inbox")["notices"] == []
