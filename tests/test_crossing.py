"""Between a session of ours and a neighbour's: what crosses, in whose words, and what comes back (05.28, 09.13, 09.15).

The party on the other side is a process that is registered and speaks as recorded (`parties/claude_peer.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from postroom.core import envelope
from postroom.core.message import Decided, Message, Notice, Receipt, Refusal
from postroom.crossing import Crossing
from postroom.errors import UnfitPath
from postroom.neighbourhood import Neighbourhood
from postroom.neighbours.claude_code import ClaudeCode
from postroom.opening import Opened, opened_session
from postroom.session import Session
from postroom.state.directory import Directory
from postroom.state.roster import Roster
from postroom.transports import uds
from tests.claudes import Claude, claude, frame_of, recorded, settings_for
from tests.desk import Desk, running, wait_until
from tests.transports.ends import Recorder, run, until


def second_path(home: Path) -> str:
    """Where a session of this process listens among the sockets of Claude Code."""
    return str(home / f"run/cc-socks/{os.getpid()}.sock")


def record_of(home: Path, pid: int | None = None) -> dict[str, Any]:
    """What stands of a session of ours in that program's folder."""
    return json.loads((home / f"claude/sessions/{pid or os.getpid()}.json").read_text())


def key_of(home: Path) -> str:
    """The token that is told there."""
    [key] = (home / "claude/sessions").glob(f"{os.getpid()}.*.key")
    return json.loads(key.read_text())["peerToken"]


@contextlib.asynccontextmanager
async def shown(
    home: Path, *, mode: str = "default", **more: object
) -> AsyncGenerator[tuple[Opened, Claude]]:
    """A session of ours that is shown to Claude Code, and one of Claude Code's."""
    settings_for(home, "claude-code", **more)
    with claude(home, "theirs") as party:
        async with opened_session("ours", mode=mode) as opened:
            yield opened, party


async def write(party: Claude, home: Path, text: str, msg_id: str = "", **attributes: str) -> str:
    """Has the party send one message, with our token; returns its id."""
    msg_id = msg_id or str(uuid.uuid4())
    given = {"from_name": "theirs", "from_mode": "prompting", **attributes}
    sent = await asyncio.to_thread(party.write, text, second_path(home), msg_id, token=key_of(home), **given)
    assert sent["closed"], sent
    return msg_id


async def tell(party: Claude, home: Path, frame: dict[str, Any], **fields: object) -> None:
    """Has the party send one frame as it was recorded, from its own address, with other fields where given."""
    line = {**frame, "from": party.address, "msg_id": str(uuid.uuid4()), **fields}
    assert (await asyncio.to_thread(party.send, second_path(home), line))["closed"]


async def heard(party: Claude) -> tuple[str | None, dict[str, Any]]:
    """The next frame that the party got, and the token before it."""
    return await asyncio.to_thread(party.heard)


async def taken(session: Session) -> Message:
    """The one message that came."""
    assert await session.wait()
    lease = session.take()
    session.confirm(lease)
    [message] = lease.messages
    return message


async def noticed(session: Session) -> Notice:
    """The one notice that came."""
    assert await session.wait()
    lease = session.take()
    session.confirm(lease)
    [notice] = lease.notices
    return notice


# ── what comes in ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.13", "09.15", "03.66")
def test_a_message_comes_in_and_is_answered(home: Path) -> None:
    """From a process that was checked, in the class that it states; the answer goes on its chain, from our socket."""

    async def work() -> None:
        async with shown(home) as (opened, party):
            chain = "0123456789abcdef01234567"
            await write(party, home, "which <i> column?", hop_chain=chain)
            message = await taken(opened.session)
            origin = message.origin
            assert (message.text, message.hop_chain) == ("which <i> column?", (chain,))
            assert (origin.kind, origin.verified, origin.name) == ("peer", True, "theirs")
            assert (origin.identity, origin.stated_class) == (party.identity, "prompting")
            to = envelope.shown_from(origin)
            assert to is not None
            for target in (to, party.address):
                receipt = await opened.session.send(
                    target, "tenant_id", summary="the column", in_reply_to=message.msg_id
                )
                assert isinstance(receipt, Receipt)
                assert (receipt.status, receipt.warnings) == ("written", ())
                token, frame = await heard(party)
                assert token == party.token
                assert frame.keys() == frame_of("message").keys()
                assert frame["from"] == f"uds:{second_path(home)}"
                said = envelope.parse_wire(frame["message"]["content"])
                assert (said.body, said.name, said.mode) == ("tenant_id", "ours", "prompting")
                assert said.address == frame["from"]
                assert (said.hop_chain[0], len(said.hop_chain)) == (chain, 2)

    run(work())


@pytest.mark.rule("09.15", "04.15")
def test_an_address_that_is_not_the_processs_own_proves_nothing(home: Path) -> None:
    async def work() -> None:
        async with shown(home) as (opened, party):
            with claude(home, "other") as other:
                stolen = frame_of("message") | {"from": party.address, "msg_id": str(uuid.uuid4())}
                await asyncio.to_thread(other.send, second_path(home), stolen)
                message = await taken(opened.session)
                assert (message.origin.verified, message.origin.address) == (False, None)
                assert message.origin.identity == f"process:{other.pid}:{other.record['procStart']}"
                assert message.origin.name == "real-uno"

    run(work())


@pytest.mark.parametrize(
    ("attributes", "outcome"),
    [({}, "accepted"), ({"from_mode": "bypass"}, "held"), ({"from_mode": ""}, "accepted")],
)
@pytest.mark.rule("09.15", "03.5")
def test_what_it_states_is_its_class(home: Path, attributes: dict[str, str], outcome: str) -> None:
    async def work() -> None:
        async with shown(home) as (opened, party):
            given = {"from_mode": "prompting", **attributes}
            line = {key: value for key, value in given.items() if value}
            msg_id = str(uuid.uuid4())
            await asyncio.to_thread(party.write, "x", second_path(home), msg_id, **line)
            await until(lambda: opened.session.held() or opened.session.peek())
            assert bool(opened.session.held()) is (outcome == "held")

    run(work())


@pytest.mark.rule("03.7")
def test_what_comes_under_our_own_address_there_is_an_echo(home: Path) -> None:
    async def work() -> None:
        async with shown(home) as (opened, party):
            own = f"uds:{second_path(home)}"
            real = frame_of("message")
            echo = real | {"msg_id": str(uuid.uuid4())}
            inside = real["message"]["content"].replace(real["from"], own)
            unnamed = {key: value for key, value in echo.items() if key != "from"}
            for frame in (
                echo | {"from": own},
                unnamed | {"message": {"role": "user", "content": inside}, "msg_id": str(uuid.uuid4())},
                frame_of("idle") | {"from": own},
            ):
                await asyncio.to_thread(party.send, second_path(home), frame)
            await until(lambda: opened.session.counts.get("control-forged"))
            assert not opened.session.take()
            with opened.session.reading() as store:
                said = [step.detail for _, step in store.log() if step.state == "dropped"]
            assert said == ["self-echo"] * 2

    run(work())


@pytest.mark.rule("05.19", "05.20", "05.21")
def test_what_is_no_frame_or_shows_another_token_is_counted_and_the_rest_is_taken(home: Path) -> None:
    """A look at the socket without a byte is ordinary; so is a key that was read before it changed."""

    async def work() -> None:
        async with shown(home) as (opened, party):
            frame = frame_of("message") | {"from": party.address, "msg_id": str(uuid.uuid4())}
            await asyncio.to_thread(party.send, second_path(home))
            await asyncio.to_thread(
                party.send,
                second_path(home),
                "no json",
                {"type": "auth", "token": "late"},
                {"type": "mystery"},
                {"type": "ack", "msg_id": "m", "status": "queued"},
                frame,
                token="0" * 32,
            )
            assert (await taken(opened.session)).origin.verified
            assert opened.session.counts == {"wrong-token": 1, "bad-frame": 1, "unknown-type": 1}

    run(work())


@pytest.mark.rule("05.28")
def test_a_program_that_wants_a_token_is_not_heard_without_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Qwen Code does; the connection ends before anything is read of it."""
    monkeypatch.setattr(ClaudeCode, "needs_token", True)

    async def work() -> None:
        async with shown(home) as (opened, party):
            frame = frame_of("message") | {"from": party.address, "msg_id": str(uuid.uuid4())}
            for token in ("", "0" * 32):
                await asyncio.to_thread(party.send, second_path(home), frame, token=token)
            await until(lambda: opened.session.counts.get("wrong-token") == 2)
            assert not opened.session.take()
            await write(party, home, "with the token")
            assert (await taken(opened.session)).text == "with the token"

    run(work())


# ── what it is told ──────────────────────────────────────────────────────────────────────────────


async def receipt_for(party: Claude, msg_id: str, like: str) -> dict[str, Any]:
    """The receipt that the party got for a message: in the form of a real one, with its token."""
    token, frame = await heard(party)
    real = frame_of(like)
    assert token == party.token
    assert frame["orig_msg_id"] == msg_id
    assert frame.keys() >= real.keys() - {"status_detail", "dropped_msg_ids", "drop_reason"}
    same = ("type", "action", "status", "msgV")
    assert {key: frame[key] for key in same} == {key: real[key] for key in same}
    assert frame.get("drop_reason") == real.get("drop_reason")
    assert "/postroom/" not in json.dumps(frame)
    return frame


@pytest.mark.rule("09.2", "09.13", "05.24")
def test_it_is_told_what_becomes_of_its_messages(home: Path) -> None:
    """Held, released, denied, dropped, expired: from our socket there, in its words."""

    async def work() -> None:
        async with shown(home) as (opened, party):
            session = opened.session
            first = await write(party, home, "one", from_mode="bypass")
            assert (await receipt_for(party, first, "held"))["from"] == f"uds:{second_path(home)}"
            assert isinstance(session.approve(first), Decided)
            await receipt_for(party, first, "delivered")
            second = await write(party, home, "two", from_mode="bypass")
            await receipt_for(party, second, "held")
            assert isinstance(session.deny(second), Decided)
            await receipt_for(party, second, "denied")
            await write(party, home, "again")
            repeat = await write(party, home, "again")
            dropped = await receipt_for(party, repeat, "dropped")
            assert dropped["dropped_msg_ids"] == [repeat]
            last = await write(party, home, "three", from_mode="bypass")
            await receipt_for(party, last, "held")
        _, frame = party.heard()
        assert (frame["status"], frame["orig_msg_id"]) == ("expired", last)

    run(work())


@pytest.mark.rule("09.2", "03.54")
def test_it_is_told_that_it_is_refused_where_the_settings_say_so(home: Path) -> None:
    async def work() -> None:
        async with shown(home, crossSessionInbound="refuse", refusalNotice="tell") as (_, party):
            msg_id = await write(party, home, "one")
            frame = await receipt_for(party, msg_id, "refused")
            assert frame["status_detail"] == "refused"

    run(work())


@pytest.mark.rule("05.24", "09.15")
def test_a_process_that_is_not_registered_there_is_told_in_the_same_words(home: Path) -> None:
    """Its socket lies among the others: it is spoken to in their words, without a token, and never believed."""

    async def work() -> None:
        async with shown(home) as (opened, party):
            party.file.unlink()
            msg_id = await write(party, home, "one", from_mode="bypass")
            await until(opened.session.held)
            [hold] = opened.session.held()
            assert (hold.message.origin.verified, hold.message.origin.address) == (False, None)
            token, frame = await heard(party)
            assert (token, frame["status"], frame["orig_msg_id"]) == (None, "held", msg_id)
            assert frame["from"] == f"uds:{second_path(home)}"

    run(work())


@pytest.mark.rule("05.31", "09.13")
def test_it_is_told_once_that_this_session_is_idle(home: Path) -> None:
    async def work() -> None:
        async with shown(home) as (_, party):
            asked = frame_of("subscription") | {"from": party.address}
            await asyncio.to_thread(party.send, second_path(home), asked)
            token, frame = await heard(party)
            real = frame_of("idle")
            assert token == party.token
            assert frame.keys() >= real.keys() - {"detail"}
            assert (frame["action"], frame["state"]) == (real["action"], "idle")
            assert (frame["orig_msg_id"], frame["from"]) == (asked["msg_id"], f"uds:{second_path(home)}")

    run(work())


# ── what it tells ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["held", "denied", "refused", "dropped"])
@pytest.mark.rule("09.2", "05.24")
def test_a_real_receipt_is_applied_to_the_message(home: Path, name: str) -> None:
    """As it was recorded, but for the addresses and the id of the message."""

    async def work() -> None:
        async with shown(home) as (opened, party):
            session = opened.session
            receipt = await session.send("theirs", "hello", summary="a greeting")
            assert isinstance(receipt, Receipt)
            await tell(party, home, frame_of(name), orig_msg_id=receipt.msg_id)
            notice = await noticed(session)
            assert (notice.kind, notice.msg_id, notice.about) == (name, receipt.msg_id, "theirs")
            with session.reading() as store:
                assert store.steps(receipt.msg_id)[-1].state == name
            if name == "held":
                await tell(party, home, frame_of("delivered"), orig_msg_id=receipt.msg_id)
                assert (await noticed(session)).kind == "delivered"

    run(work())


@pytest.mark.rule("05.24", "09.15")
def test_nobody_else_can_say_what_became_of_a_message(home: Path) -> None:
    async def work() -> None:
        async with shown(home) as (opened, party):
            with claude(home, "other") as other:
                receipt = await opened.session.send("theirs", "hello", summary="a greeting")
                assert isinstance(receipt, Receipt)
                forged = frame_of("denied") | {"orig_msg_id": receipt.msg_id}
                await tell(other, home, forged)
                await tell(other, home, forged, **{"from": party.address})
                await until(lambda: len(opened.session.counts) == 2)
                assert opened.session.counts == {"control-foreign": 1, "control-forged": 1}
                assert not opened.session.take()

    run(work())


@pytest.mark.rule("05.31")
def test_it_is_asked_to_say_when_it_is_idle(home: Path) -> None:
    async def work() -> None:
        async with shown(home) as (opened, party):
            asked = await opened.session.send("theirs", notify_when_idle=True)
            assert isinstance(asked, Receipt)
            _, frame = await heard(party)
            assert frame.keys() == frame_of("subscription").keys()
            assert frame["msg_id"] == asked.msg_id
            await tell(party, home, frame_of("idle"), orig_msg_id=asked.msg_id)
            notice = await noticed(opened.session)
            assert (notice.kind, notice.about) == ("idle", "theirs")
            assert "done" in notice.detail

    run(work())


def test_a_session_without_a_key_is_written_to_without_a_token(home: Path) -> None:
    async def work() -> None:
        settings_for(home, "claude-code")
        with claude(home, "theirs", "--no-key") as party:
            async with opened_session("ours") as opened:
                assert isinstance(await opened.session.send("theirs", "hello", summary="x"), Receipt)
                assert (await heard(party))[0] is None

    run(work())


@pytest.mark.rule("05.24", "11.11")
def test_another_process_behind_its_socket_is_not_written_to(home: Path) -> None:
    """A record that names the socket of somebody else misleads nobody."""

    async def work() -> None:
        async with shown(home) as (opened, party):
            with claude(home, "other") as other:
                party.rewrite(messagingSocketPath=other.path)
                refused = await opened.session.send("theirs", "hello", summary="a greeting")
                assert isinstance(refused, Refusal)
                assert refused.code == "unsafe_target"

    run(work())


@pytest.mark.rule("05.9", "05.28")
def test_a_record_that_claims_a_socket_of_ours_changes_nothing(home: Path) -> None:
    """Who is written to, and in which words, is not for a claim to say."""

    async def work() -> None:
        async with shown(home) as (opened, party), opened_session("more") as more:
            party.rewrite(messagingSocketPath=more.socket_path)
            receipt = await opened.session.send("more", "hello", summary="a greeting")
            assert isinstance(receipt, Receipt)
            assert receipt.status == "queued"
            assert (await taken(more.session)).origin.identity == opened.session.id
            assert [row.name for row in opened.session.listing().rows] == ["more"]

    run(work())


# ── being shown ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.13", "05.28")
def test_nothing_is_published_unless_the_settings_name_the_program(home: Path) -> None:
    async def work() -> None:
        with claude(home, "theirs"):
            before = sorted((home / "claude/sessions").iterdir())
            async with opened_session("ours"):
                assert sorted((home / "claude/sessions").iterdir()) == before
                assert not os.path.lexists(second_path(home))

    run(work())


@pytest.mark.rule("09.13", "05.28", "03.36")
def test_it_is_shown_and_hidden_while_it_runs(home: Path) -> None:
    """Name and status follow; the setting works at once, both ways; nothing stays at the end."""

    async def work() -> None:
        file = home / f"claude/sessions/{os.getpid()}.json"
        async with shown(home) as (opened, party):
            record = record_of(home)
            assert (record["name"], record["sessionId"]) == ("ours", opened.session.id)
            assert record["messagingSocketPath"] == second_path(home)
            assert stat.S_IMODE(os.lstat(second_path(home)).st_mode) == 0o600
            opened.session.rename("ours-now")
            assert record_of(home)["formerNames"][0]["name"] == "ours"
            opened.session.record = opened.session.record.doing("busy", 5)
            opened.session.directory.publish(opened.session.record)
            assert record_of(home)["status"] == "busy"
            settings_for(home)
            await until(lambda: not file.exists())
            assert not os.path.lexists(second_path(home))
            receipt = await opened.session.send("theirs", "hello", summary="a greeting")
            assert isinstance(receipt, Receipt)
            assert "publishTo" in receipt.warnings[0]
            settings_for(home, "claude-code")
            await until(file.exists)
            again = await opened.session.send("theirs", "hello again", summary="a greeting")
            assert isinstance(again, Receipt)
            assert again.warnings == ()
            assert [one.name for one in (home / "claude/sessions").glob("*.json")].count(
                f"{party.pid}.json"
            ) == 1
        assert list((home / "claude/sessions").iterdir()) == []
        assert list((home / "run/cc-socks").iterdir()) == []

    run(work())


@pytest.mark.rule("05.28")
def test_a_second_session_of_a_process_says_that_there_is_room_for_one(home: Path) -> None:
    async def work() -> None:
        async with shown(home) as (opened, _), opened_session("more") as more:
            assert record_of(home)["sessionId"] == opened.session.id
            assert any("room for one a process" in one for one in more.session.status().problems)
            assert not any("room for one" in one for one in opened.session.status().problems)
            settings_for(home)
            await until(lambda: not any("room for one" in one for one in more.session.status().problems))

    run(work())


@pytest.mark.rule("05.28")
def test_a_session_of_that_program_is_not_shown_to_it(home: Path) -> None:
    async def work() -> None:
        settings_for(home, "claude-code")
        async with opened_session("ours", program="claude-code") as opened:
            assert not os.path.lexists(second_path(home))
            assert opened.session.status().problems == ()

    run(work())


@pytest.mark.rule("05.6", "09.13")
def test_what_cannot_be_published_is_said_and_the_session_goes_on(home: Path) -> None:
    async def work() -> None:
        settings_for(home, "claude-code")
        (home / "claude/sessions").mkdir(parents=True)
        (home / "claude/sessions").chmod(0o777)
        async with opened_session("ours") as opened:
            [problem] = [one for one in opened.session.status().problems if "not shown" in one]
            assert problem.startswith("This session is not shown to Claude Code: ")
            (home / "claude/sessions").chmod(0o700)
            opened.session.rename("ours-now")
            assert record_of(home)["name"] == "ours-now"
            assert not any("not shown" in one for one in opened.session.status().problems)

    run(work())


@pytest.mark.rule("05.6", "09.13")
def test_a_socket_that_cannot_be_made_is_said_and_made_once_it_can(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(near: ClaudeCode, pid: int) -> str:
        raise UnfitPath("/x", f"no folder for {near.program} {pid}")

    async def work() -> None:
        settings_for(home, "claude-code")
        with monkeypatch.context() as broken:
            broken.setattr(ClaudeCode, "socket_path", nowhere)
            opening = opened_session("ours")
            opened = await opening.__aenter__()
        [problem] = [one for one in opened.session.status().problems if "not shown" in one]
        assert "no folder for claude-code" in problem
        settings_for(home, "claude-code", desktopNotices=False)
        await until(lambda: os.path.lexists(second_path(home)))
        assert not any("not shown" in one for one in opened.session.status().problems)
        await opening.__aexit__(None, None, None)

    run(work())


def test_a_second_call_only_changes_who_receives(home: Path) -> None:
    async def work() -> None:
        settings_for(home, "claude-code")
        roster = Roster(str(home / "state"))
        (home / "state").mkdir(mode=0o700)
        around = Neighbourhood(Directory(roster), os.environ, roster.sessions_at)
        (home / "run/postroom").mkdir(mode=0o700)
        crossing = Crossing(uds.UdsTransport(str(home / "run/postroom/7.sock")), around)
        first, second = Recorder(), Recorder()
        crossing.publish_to(["claude-code"])
        address = await crossing.serve(first)
        assert await crossing.serve(second) == address
        with claude(home) as party:
            await asyncio.to_thread(party.write, "hello", second_path(home), "m")
            await until(lambda: second.frames)
        assert first.frames == []
        await crossing.close()
        await crossing.close()
        assert not os.path.lexists(second_path(home))

    run(work())


@pytest.mark.rule("05.29", "09.13")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_nothing_stays_there_after_a_signal(home: Path, number: signal.Signals) -> None:
    settings_for(home, "claude-code")
    desk = Desk(home, os.environ)
    opened = desk.open("ours")
    assert record_of(home, opened["pid"])["name"] == "ours"
    os.kill(opened["pid"], number)
    wait_until(lambda: not running(opened["pid"]))
    assert list((home / "claude/sessions").iterdir()) == []
    assert list((home / "run/cc-socks").iterdir()) == []


@pytest.mark.rule("05.10")
def test_what_a_killed_session_left_there_is_swept_by_whoever_looks(home: Path) -> None:
    settings_for(home, "claude-code")
    desk = Desk(home, os.environ)
    opened = desk.open("ours")
    os.kill(opened["pid"], signal.SIGKILL)
    wait_until(lambda: not running(opened["pid"]))
    assert len(list((home / "claude/sessions").iterdir())) == 2
    desk.ok("list")
    assert list((home / "claude/sessions").iterdir()) == []
    assert list((home / "run/cc-socks").iterdir()) == []


def test_the_recordings_say_what_they_are() -> None:
    for file in (Path(__file__).parent / "recorded/claude_code").glob("*.json"):
        made = recorded(file.stem)
        assert (made["program"], made["version"]) == ("Claude Code", "2.1.332")
        assert made["how"]
