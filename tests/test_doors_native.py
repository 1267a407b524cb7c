"""The door of a client that has an inbox of its own, with a party that is like Claude Code 2.1.332 (09.2)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom import Session, clients
from postroom.core import envelope
from postroom.core.message import Receipt
from postroom.core.settings import DEFAULTS, InboundSetting
from postroom.doors import ringing as acting
from postroom.doors.native import NOBODY, NativeDoor
from postroom.neighbours.claude_code import ClaudeCode
from tests.claudes import Claude, claude, recorded
from tests.doorsteps import PARTIES, Here, here_of, rings, until
from tests.room import Room, states

ACCEPTING = replace(DEFAULTS, inbound=InboundSetting(value="accept", scope="user", cause="explicit-setting"))
NATIVE = replace(
    clients.load("claude-code"),
    doors=tuple(fact for fact in clients.load("claude-code").doors if fact.name == "native"),
)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "SETTLE_SECONDS", 0.0)


def here_for(peer: Claude, session: Session | None = None) -> Here:
    """The party as the client of a session."""
    return here_of("claude-code", peer.pid, session=session, client=NATIVE)


@contextlib.asynccontextmanager
async def ringing(peer: Claude, session: Session) -> AsyncGenerator[acting.Ringer]:
    """Rings the party's inbox for a session while the block runs."""
    ringer = acting.Ringer(here_for(peer, session))
    task = asyncio.get_running_loop().create_task(ringer.run())
    try:
        yield ringer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def line_of(peer: Claude) -> dict[str, Any]:
    """The next frame that came to the party; the line with the token is passed over."""
    while True:
        event = await asyncio.to_thread(peer.wait, "line")
        frame = json.loads(event["raw"])
        if frame["type"] != "auth":
            return frame


async def receipt(peer: Claude, frame: dict[str, Any], status: str, name: str, **more: object) -> None:
    """The party says what became of a frame, in the words of a recording."""
    said = json.loads(recorded(name)["lines"][-1])
    said |= {"orig_msg_id": frame["msg_id"], "msg_id": str(uuid.uuid4()), "from": peer.address, **more}
    assert said["status"] == status
    path = frame["from"].removeprefix("uds:")
    await asyncio.to_thread(peer.tell, do="send", path=path, token="", lines=[said])


async def sent(alice: Session, text: str = "hello") -> str:
    """Sends to bob; returns the message's id."""
    answer = await alice.send("bob", text, summary="s")
    assert isinstance(answer, Receipt)
    return answer.msg_id


def run(case: Any) -> None:
    """Runs one case in a loop of its own."""
    asyncio.run(case)


@pytest.mark.rule("09.2", "04.1")
def test_the_inbox_gets_a_canonical_envelope_that_states_the_senders_class(home: Path) -> None:
    async def case() -> None:
        room = Room()
        with claude(home, "agent") as peer:
            async with room.open("alice") as alice, room.open("bob") as bob:
                text = envelope.injected((), ())
                ref = alice.ref
                async with ringing(peer, bob):
                    msg_id = await sent(alice)
                    frame = await line_of(peer)
                    await until(lambda: not bob.store.unread)
                    text = envelope.injected(_found(bob, msg_id), ())
                assert rings(bob, msg_id) == ["native: begun", "native: written"]
                assert states(bob, msg_id)[-2:] == ["passed", "rang"]
        said = envelope.parse_wire(frame["message"]["content"])
        assert (said.attested, said.name, said.mode, said.address) == (
            True,
            "postroom",
            "prompting",
            frame["from"],
        )
        first, _, rest = said.body.partition("\n\n")  # what a client shows of what it holds
        assert first == f"[Postroom] From alice [{ref}]."
        assert rest == envelope.escape_body(text)
        assert rest.startswith(envelope.PREFACE)
        assert frame["from"] == f"uds:{home}/run/cc-socks/{os.getpid()}.sock"
        assert uuid.UUID(frame["msg_id"])

    run(case())


@pytest.mark.rule("09.2")
def test_the_first_line_names_whoever_wrote_and_few_of_many(home: Path) -> None:
    """It is all that a client shows of what it holds."""

    async def case() -> None:
        room = Room()
        with claude(home, "agent") as peer:
            async with room.open("bob") as bob:
                door = NativeDoor(here_for(peer, bob), lambda ids, why: None)
                ids: list[str] = []
                refs: dict[str, str] = {}
                for name in ("one", "two", "three", "four"):
                    async with room.open(name) as writer:
                        refs[name] = f"{name} [{writer.ref}]"
                        for text in ("a", "b"):
                            answer = await writer.send("bob", text, summary="s")
                            assert isinstance(answer, Receipt)
                            ids.append(answer.msg_id)

                def first(count: int) -> str:
                    return door._from(ids[:count])  # pyright: ignore[reportPrivateUsage]

                one, two, three = (refs[name] for name in ("one", "two", "three"))
                assert first(2) == f"[Postroom] From {one}.\n\n"
                assert first(4) == f"[Postroom] From {one} and {two}.\n\n"
                assert first(8) == f"[Postroom] From {one}, {two}, {three} and 1 more.\n\n"
                assert first(0) == door._from(["gone"]) == ""  # pyright: ignore[reportPrivateUsage]

    run(case())


def _found(session: Session, msg_id: str) -> list[Any]:
    with session.reading() as store:
        return store.find(msg_id)


@pytest.mark.rule("09.2")
def test_the_socket_for_receipts_goes_with_the_door_and_no_record_is_published(home: Path) -> None:
    async def case() -> None:
        with claude(home, "agent") as peer:
            door = NativeDoor(here_for(peer), lambda ids, why: None)
            assert await door.ready() == ""
            assert (await door.ring("text", ("m-1",), None)).outcome == "written"
            own = home / f"run/cc-socks/{os.getpid()}.sock"
            assert own.exists()
            assert [file.name for file in (home / "claude/sessions").glob("*.json")] == [f"{peer.pid}.json"]
            await door.close()
            assert not own.exists()

    run(case())


@pytest.mark.rule("09.2", "03.49")
def test_held_and_then_delivered_is_told_to_who_sent_it(home: Path) -> None:
    async def case() -> None:
        room = Room()
        with claude(home, "agent") as peer:
            async with room.open("alice") as alice, room.open("bob") as bob, ringing(peer, bob):
                msg_id = await sent(alice)
                frame = await line_of(peer)
                await receipt(peer, frame, "held", "held")
                await until(lambda: alice.peek_notices())
                assert states(bob, msg_id)[-3:] == ["passed", "rang", "rang"]
                await receipt(peer, frame, "delivered", "delivered")
                await until(lambda: len(alice.peek_notices()) == 2)
                assert [notice.kind for notice in alice.peek_notices()] == ["held", "delivered"]
                assert all(notice.msg_id == msg_id for notice in alice.peek_notices())
                assert rings(bob, msg_id)[2].startswith("native: held, ")
                assert states(bob, msg_id).count("passed") == 1

    run(case())


@pytest.mark.rule("09.2")
def test_denied_there_is_denied_here_and_its_sender_told(home: Path) -> None:
    async def case() -> None:
        room = Room()
        with claude(home, "agent") as peer:
            async with room.open("alice") as alice, room.open("bob") as bob, ringing(peer, bob):
                msg_id = await sent(alice)
                frame = await line_of(peer)
                await until(lambda: "passed" in states(bob, msg_id))
                await receipt(peer, frame, "denied", "denied")
                await until(lambda: alice.peek_notices())
                assert [notice.kind for notice in alice.peek_notices()] == ["denied"]
                assert states(bob, msg_id)[-1] == "denied"
                assert not bob.take()

    run(case())


@pytest.mark.rule("09.2")
@pytest.mark.parametrize(("name", "status"), [("refused", "expired"), ("dropped", "dropped")])
def test_what_it_has_no_more_waits_again(home: Path, name: str, status: str) -> None:
    async def case() -> None:
        room = Room()
        with claude(home, "agent") as peer:
            async with room.open("alice") as alice, room.open("bob") as bob, ringing(peer, bob):
                msg_id = await sent(alice)
                frame = await line_of(peer)
                await receipt(peer, frame, status, name)
                await until(lambda: bob.store.waiting_count)
                assert states(bob, msg_id)[-1] == "accepted"
                lease = bob.take()
                assert [message.redelivered for message in lease.messages] == [True]
                assert not alice.peek_notices()

    run(case())


@pytest.mark.rule("09.2")
def test_a_receipt_that_comes_before_the_inbox_has_closed_counts(home: Path) -> None:
    async def case() -> None:
        room = Room()
        with claude(home, "agent") as peer:
            async with room.open("alice") as alice, room.open("bob") as bob:
                dropped: list[str] = []
                door = NativeDoor(here_for(peer, bob), lambda ids, why: dropped.extend((*ids, why)))
                await sent(alice)
                lease = bob.take()
                ring = asyncio.ensure_future(door.ring("text", ("m-1",), None))
                while door._early is None:  # pyright: ignore[reportPrivateUsage]
                    await asyncio.sleep(0)
                number = next(iter(door._rings))  # pyright: ignore[reportPrivateUsage]
                frame = {"msg_id": number, "from": door._own}  # pyright: ignore[reportPrivateUsage]
                said = asyncio.ensure_future(receipt(peer, frame, "dropped", "dropped", dropped_msg_ids=None))
                assert (await ring).outcome == "written"
                await said
                await until(lambda: dropped)
                assert dropped == ["m-1", "dropped"]
                bob.release(lease)
                await door.close()

    run(case())


@pytest.mark.rule("09.2", "11.3")
def test_a_receipt_of_anybody_else_or_about_something_else_counts_for_nothing(home: Path) -> None:
    async def case() -> None:
        room = Room()
        with claude(home, "agent") as peer, claude(home, "other") as other:
            async with room.open("alice") as alice, room.open("bob") as bob, ringing(peer, bob):
                msg_id = await sent(alice)
                frame = await line_of(peer)
                await until(lambda: "passed" in states(bob, msg_id))
                await receipt(other, frame, "denied", "denied")
                await receipt(peer, {**frame, "msg_id": str(uuid.uuid4())}, "denied", "denied")
                await receipt(peer, frame, "held", "held")
                await until(lambda: alice.peek_notices())
                assert states(bob, msg_id)[-1] == "rang"
                assert [notice.kind for notice in alice.peek_notices()] == ["held"]

    run(case())


def test_a_message_to_the_door_itself_is_refused_aloud(home: Path) -> None:
    async def case() -> None:
        room = Room()
        with claude(home, "agent") as peer:
            async with room.open("alice") as alice, room.open("bob") as bob, ringing(peer, bob):
                said: list[str] = []
                bob.write_log = said.append
                await sent(alice)
                frame = await line_of(peer)
                lines = [
                    {
                        "msgV": 1,
                        "msg_id": "22222222-2222-4222-8222-222222222222",
                        "type": "user",
                        "message": {"role": "user", "content": "an answer"},
                        "from": peer.address,
                    }
                ]
                path = frame["from"].removeprefix("uds:")
                await asyncio.to_thread(peer.tell, do="send", path=path, token="", lines=lines)
                answer = await line_of(peer)
                assert answer["status"] == "expired"
                assert answer["status_detail"] == "refused"
                assert answer["orig_msg_id"] == lines[0]["msg_id"]
                assert answer["reason"] == NOBODY
                assert any("nobody reads" in line for line in said)
                assert not bob.store.waiting_count

    run(case())


@pytest.mark.rule("09.16")
def test_an_inbox_that_never_closes_may_have_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def case() -> None:
        with claude(home, "agent", "--mute") as peer:
            door = NativeDoor(here_for(peer), lambda ids, why: None)
            carrier = door._carrier()  # pyright: ignore[reportPrivateUsage]
            send = carrier.send

            async def soon(*given: Any, **more: Any) -> Any:
                return await send(*given, **{**more, "seconds": 1.0})

            monkeypatch.setattr(carrier, "send", soon)
            assert (await door.ring("text", ("m-1",), None)).outcome == "unknown"
            await door.close()

    run(case())


def test_a_client_that_is_gone_or_has_no_messaging_has_no_such_door(home: Path) -> None:
    async def case() -> None:
        with claude(home, "agent") as peer:
            here = here_for(peer)
            other = replace(here, process=(os.getpid(), "1"))
            assert (
                await NativeDoor(other, _nobody).ready()
                == "its own messaging is off, or its version has none"
            )
            by_conversation = replace(other, conversation=peer.record["sessionId"])
            assert await NativeDoor(by_conversation, _nobody).ready() == ""
            assert await NativeDoor(replace(here, client=clients.load("codex")), _nobody).ready() == (
                "it has no inbox of its own"
            )
        door = NativeDoor(here, _nobody)
        assert await door.ready()
        assert (await door.ring("text", ("m-1",), None)).outcome == "failed"
        await door.close()

    run(case())


def _nobody(ids: object, why: object) -> None:
    del ids, why


def test_where_no_socket_can_be_made_it_is_written_and_no_receipt_comes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case() -> None:
        room = Room()
        with claude(home, "agent") as peer:
            async with room.open("bob") as bob:
                said: list[str] = []
                bob.write_log = said.append
                door = NativeDoor(here_for(peer, bob), _nobody)
                assert await door.ready() == ""
                (home / f"run/cc-socks/{os.getpid()}.sock").write_text("in the way")

                def taken(neighbour: ClaudeCode, pid: int) -> str:
                    return f"{home}/run/cc-socks/{pid}.sock"

                monkeypatch.setattr(ClaudeCode, "socket_path", taken)
                rang = await door.ring("text", ("m-1",), "bypassing")
                assert (rang.outcome, rang.detail) == ("written", "no receipt can come")
                frame = await line_of(peer)
                assert "from" not in frame
                assert envelope.parse_wire(frame["message"]["content"]).mode == "bypass"
                assert any("no receipt" in line for line in said)
                await door.close()

    run(case())


@contextlib.contextmanager
def qwen(home: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[subprocess.Popen[str]]:
    """A session of Qwen Code that runs; see `parties/qwen_inbox.py`."""
    monkeypatch.setenv("QWEN_HOME", str(home / "qwen"))
    party = [sys.executable, str(PARTIES / "qwen_inbox.py"), str(home / "qwen"), str(home / "run")]
    with subprocess.Popen(party, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)


@pytest.mark.rule("09.2", "09.14")
def test_qwen_code_gets_its_own_words_and_the_token_with_which_it_answers(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case() -> None:
        with qwen(home, monkeypatch) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            ready = json.loads(process.stdout.readline())
            dropped: list[str] = []
            here = here_of("qwen-code", ready["pid"])
            async with Room().open("bob") as bob:
                here.session = bob
                door = NativeDoor(here, lambda ids, why: dropped.extend((*ids, why)))
                assert await door.ready() == ""
                assert (
                    await door.ring("a <cross-session-message> b", ("m-1",), "prompting")
                ).outcome == "written"
                auth, said = (json.loads(process.stdout.readline())["line"] for _ in range(2))
                assert auth == {"msgV": 1, "type": "auth", "token": ready["record"]["ipcToken"]}
                assert said["message"]["content"] == "a <cross-session-message> b"
                assert (said["fromName"], said["fromMode"]) == ("postroom", "prompting")
                assert said["toSessionId"] == ready["record"]["sessionId"]
                answer = {"msgV": 1, "msgId": "r-1", "type": "control", "action": "delivery_status"}
                answer |= {"status": "dropped", "origMsgId": said["msgId"], "dropReason": "queue-full"}
                token = {"msgV": 1, "type": "auth", "token": said["replyToken"]}
                for first in ({**token, "token": "0" * 64}, token):
                    told = {"path": said["from"], "lines": [first, answer]}
                    process.stdin.write(json.dumps(told) + "\n")
                    process.stdin.flush()
                await until(lambda: dropped)
                assert dropped == ["m-1", "dropped"]
                await door.close()

    run(case())


@pytest.mark.rule("11.1")
def test_what_the_turn_is_seen_to_hold_already_is_told_of_no_more(home: Path) -> None:
    async def case() -> None:
        room = Room()
        with claude(home, "agent") as peer:
            async with room.open("alice") as alice, room.open("bob") as bob, ringing(peer, bob):
                msg_id = await sent(alice)
                frame = await line_of(peer)
                await until(lambda: "passed" in states(bob, msg_id))
                bob.seen([msg_id])
                await receipt(peer, frame, "held", "held")
                await until(lambda: len(rings(bob, msg_id)) == 3)
                second = await sent(alice, "another")
                await receipt(peer, await line_of(peer), "held", "held")
                await until(lambda: alice.peek_notices())
                assert [notice.msg_id for notice in alice.peek_notices()] == [second]

    run(case())
