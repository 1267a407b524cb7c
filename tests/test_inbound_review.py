"""Faults that a reading of chapter 03 against the code found, each as a test of what is right."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from postroom import Decided, Limits, Receipt, Refusal, Session
from postroom.core.holds import numbered
from postroom.core.message import Origin
from postroom.core.settings import DEFAULTS, InboundSetting, Settings
from postroom.origins import OWN_CHILD
from postroom.transport import Evidence
from tests.room import ROOMY, DurableStore, Line, Room, frame_of
from tests.simulated import ends, hears, held, kinds, says
from tests.transports.ends import run, until

MINUTE = 60_000


def expiring(minutes: int, **more: object) -> Settings:
    """Settings with this deadline for holds."""
    return replace(DEFAULTS, dialog_expiry=minutes * MINUTE, **more)  # pyright: ignore[reportArgumentType]


def by_user(value: str) -> Settings:
    """Settings in which the user's file says what becomes of what arrives."""
    setting = InboundSetting(value=value, scope="user", cause="explicit-setting")  # pyright: ignore[reportArgumentType]
    return replace(DEFAULTS, inbound=setting)


def deadlines(session: Session) -> list[int | None]:
    """When the holds of a session end."""
    return [hold.expires_at for hold in session.held()]


@pytest.mark.rule("03.38", "03.36")
def test_a_deadline_moves_with_its_own_setting_alone() -> None:
    """What was set while nothing was held is what the next hold is made under."""

    async def work() -> None:
        room = Room()
        async with room.open("a", mode="bypassPermissions") as a, room.open("b", settings=expiring(10)) as b:
            b.apply(expiring(5))
            await says(a, "b")
            assert deadlines(b) == [room.now + 5 * MINUTE]
            b.apply(expiring(5, read_receipts=True))
            assert deadlines(b) == [room.now + 5 * MINUTE]
            b.apply(expiring(10))
            assert deadlines(b) == [room.now + 10 * MINUTE]

    run(work())


@pytest.mark.rule("05.31")
def test_the_end_of_a_turn_that_nobody_reports_is_waited_for() -> None:
    """Nothing else need happen in the session that is watched: its own timer tells."""

    async def work() -> None:
        room = Room()
        async with room.open("a") as a, room.open("b") as b:
            await says(a, "b")
            b.confirm(b.take())
            assert isinstance(await a.send("b", notify_when_idle=True), Receipt)
            assert kinds(hears(a)) == []
            loop = asyncio.get_running_loop()
            due = loop.time() + 60
            assert [
                timer
                for timer in loop._scheduled  # pyright: ignore
                if not timer.cancelled() and due - 5 < timer.when() < due + 1  # pyright: ignore
            ], "no timer waits for the end of the turn"
            room.now += MINUTE
            b.tick()
            await until(lambda: kinds(a.peek_notices()) == ["idle"])

    run(work())


@pytest.mark.rule("03.66", "03.68", "11.9")
def test_two_that_answer_only_the_first_message_come_to_rest() -> None:
    """Naming an old message does not cut what the exchange has grown to since."""

    async def work() -> None:
        room = Room()
        limits = replace(ROOMY, max_self_hops=Limits().max_self_hops, max_chain_length=28)
        async with room.open("a", limits=limits) as a, room.open("b", limits=limits) as b:
            first = await says(a, "b", "begin")
            ids = {b.name: first, a.name: ""}
            delivered = 1
            for number in range(100):
                speaker, other = (b, a) if number % 2 == 0 else (a, b)
                if not speaker.drain():
                    break
                answer = await speaker.send(
                    other.name, f"word {number}", summary="s", in_reply_to=ids[speaker.name] or None
                )
                if isinstance(answer, Receipt):
                    delivered += 1
                    ids[other.name] = ids[other.name] or answer.msg_id
            assert delivered <= 28

    run(work())


@pytest.mark.rule("03.66")
def test_what_a_tool_of_ones_own_says_does_not_end_a_chain() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("a") as a, room.open("b") as b:
            await says(a, "b", "because of this")
            own = (b.record.pid, b.record.proc_start)
            child = Evidence("memory", 9000, "later", ((9000, "later"), own))
            b.arrive(frame_of("a tool has finished", "m-tool"), Line(child))
            lease = b.take()
            assert [message.origin.kind for message in lease.messages] == ["peer", "own_child"]
            assert lease.messages[1].origin.name == OWN_CHILD
            b.confirm(lease)
            await says(b, "a", "an answer")
            [answer] = a.drain()
            assert len(answer.hop_chain) == 2

    run(work())


@pytest.mark.rule("04.15", "11.7")
def test_a_claimed_name_is_never_shown_as_if_it_were_checked() -> None:
    """Neither in the notice of an approval nor in the journal, nor found there under the name."""

    async def work() -> None:
        room = Room()
        async with room.open("b", settings=by_user("hold")) as b:
            b.arrive(frame_of("let me in", "m-1", name="alice"), Line())
            b.arrive(
                frame_of("", "m-1", name="alice"), Line()
            )  # settled: a second row of the journal, by the same name
            assert held(b) == ["m-1"]
            b.approve("m-1", note="looks fine")
            [notice] = b.peek_notices()
            assert (notice.kind, notice.about) == ("approved", None)
            with b.reading() as store:
                assert next(step.detail for step in store.steps("m-1") if step.state == "received") == (
                    "from alice (claimed)"
                )
                assert store.log(peer="alice") == []
                assert store.log(peer="alice (claimed)")

    run(work())
    assert Origin(kind="peer", identity="i", name="alice", verified=True).known_as == "alice"


@pytest.mark.rule("03.46", "03.53")
def test_a_sender_hears_the_end_and_not_first_what_is_out_of_date() -> None:
    """Thirty holds of one sender at a session that ends: each end is told as far as its minute goes, and no held late."""

    async def work() -> None:
        room = Room()
        async with room.open("a", mode="bypassPermissions") as a:
            async with room.open("b") as b:
                for number in range(30):
                    await says(a, "b", f"word {number}")
                assert len(held(b)) == 30
            told = kinds(hears(a))
            assert told.count("expired") + told.count("held") <= 40
            assert told[-1] == "expired"
            last = [place for place, kind in enumerate(told) if kind == "held"]
            assert not last or max(last) < told.index("expired")

    run(work())


@pytest.mark.rule("03.36", "03.45", "05.27")
def test_judging_again_that_a_full_disk_forbade_is_done_later() -> None:
    async def work() -> None:
        room, store = Room(), DurableStore("b")
        async with (
            room.open("a") as a,
            room.open("b", store=store, settings=by_user("hold")) as b,
        ):
            first = await says(a, "b", "first")
            second = await says(a, "b", "second")
            store.failing = "full"
            b.apply(by_user("accept"))
            assert held(b) == [first, second]
            store.failing = ""
            b.tick()
            await until(lambda: not b.store.pending)
            assert held(b) == []
            assert [message.msg_id for message in b.drain()] == [first, second]
            assert ends(b, [first, second]) == ["consumed", "consumed"]

    run(work())


@pytest.mark.rule("03.2", "03.43")
def test_plan_is_bypassing_for_an_interactive_session_that_can_leave_it_for_a_mode_without_questions() -> (
    None
):
    async def work() -> None:
        room = Room()
        async with room.open("a", mode="plan", kind="interactive") as a, room.open("b", mode="plan") as b:
            assert a.status().permission_class == "prompting"
            for session in (a, b):
                session.set_mode("plan", by="client", bypass_available=True)
            assert (a.status().permission_class, b.status().permission_class) == ("bypassing", "prompting")

    run(work())


@pytest.mark.rule("03.43", "03.21")
def test_a_child_may_make_it_stricter_and_never_laxer() -> None:
    """An unknown class holds what waits under another cause; nobody but a person or the client lets anything in."""

    async def work() -> None:
        room = Room()
        async with room.open("a", mode="bypassPermissions") as a, room.open("b") as b:
            await says(a, "b")
            b.set_mode("whatever", by="child")
            assert [hold.cause for hold in b.held()] == ["mode-unknown"]
            b.set_mode("bypassPermissions", by="child")
            b.apply(replace(DEFAULTS, read_receipts=True))
            assert len(b.held()) == 1
            b.set_mode("bypassPermissions", by="somebody")  # pyright: ignore[reportArgumentType]
            assert len(b.held()) == 1
            b.set_mode("bypassPermissions", by="person")
            assert held(b) == []

    run(work())


@pytest.mark.rule("11.10", "03.55")
def test_who_was_told_at_once_is_not_remembered() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("b", limits=Limits(bucket_capacity=5)) as b:
            for number in range(50):
                line = Line(Evidence("memory", 5000 + number, "s"))
                for _ in range(2):  # the second repeats the first, under another id
                    b.arrive(frame_of("again", None, ack=False, address="memory:nobody"), line)
            assert len(b._telling._paths) <= 1  # pyright: ignore[reportPrivateUsage]

    run(work())


@pytest.mark.rule("03.7", "05.24")
def test_who_is_somebody_else_may_say_so() -> None:
    """The address that was written to tells that the message is for another session; a third one may not."""

    async def work() -> None:
        room = Room()
        features = ("notify_idle", "postroom_chain")
        async with (
            room.open("a") as a,
            room.open("b", features=features) as b,
            room.open("c") as c,
        ):
            stray = frame_of("for b", "m-9", ack=False, address=a.address, session_id="somebody-else")
            b.arrive(stray, room.line_from(a))
            c.arrive(stray, room.line_from(a))
            await until(lambda: a.counts.get("control-foreign", 0) == 2)
            assert kinds(hears(a)) == []  # a did not send m-9
            # As if a had written to b's address, and b had become somebody else meanwhile.
            a.store.sending("m-9", "somebody-else", "b", room.now)
            a._sending._went_to["m-9"] = str(b.address)  # pyright: ignore[reportPrivateUsage]
            for session in (c, b):
                session.arrive(stray, room.line_from(a))
            room.now += 10_000
            c.tick()
            b.tick()
            await until(lambda: kinds(a.peek_notices()) == ["misaddressed"])
            assert a.peek_notices()[0].about == "b"

    run(work())


@pytest.mark.rule("10.5", "03.8", "03.41")
def test_two_held_messages_of_one_id_are_told_apart() -> None:
    """Senders choose their ids, so one may bear another's: neither is taken for the other."""

    async def work() -> None:
        room = Room()
        async with room.open("b", settings=by_user("hold")) as b:
            for number, text in enumerate(("honest", "forged")):
                b.arrive(frame_of(text, "m-1"), Line(Evidence("memory", 6000 + number, "s")))
            first, second = b.held()
            for decide in (b.approve, b.deny):
                said = decide("m-1")
                assert isinstance(said, Refusal)
                assert said.code == "not_held"
            assert numbered(second) == f"m-1#{second.row}"
            assert isinstance(b.deny(numbered(second)), Decided)
            assert b.held() == (first,)
            assert isinstance(b.approve("m-1"), Decided)
            assert [message.text for message in b.drain()] == ["honest"]

    run(work())
