"""What is said to Claude Code and heard from it: in the form in which real sessions of it write (05.28, 09.13, 09.15).

What real sessions of version 2.1.332 wrote is under `recorded/claude_code`.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.core import envelope, notices, wire
from postroom.errors import BadFrame
from postroom.neighbour import Found, Outgoing
from postroom.neighbours.claude_code import MAX_SENT, ClaudeCode
from postroom.neighbours.claude_record import dumps, published
from postroom.state.record import Record
from tests.claudes import frame_of, recorded

OWN = "uds:/run/user/1000/cc-socks/42.sock"
SOMEBODY = Found(program="claude-code", identity="claude-code:7:7", name="one", path="/x/cc-socks/7.sock")


@pytest.fixture
def near() -> ClaudeCode:
    """Claude Code; its folder is not looked at."""
    return ClaudeCode({}, "/nowhere")


def said(text: str, **more: Any) -> bytes:
    """A message as a session of ours writes it, with all that ours add."""
    address = "uds:/run/user/1000/postroom/42.sock"
    return wire.encode_user(
        msg_id="01a22e14-0abf-7d88-baa2-90695c38cd3d",
        content=envelope.wire_form(
            text, address=address, name="bob", mode="prompting", hop_chain=more.pop("hop_chain", ())
        ),
        address=address,
        session_id="claude-code:1:2",
        acknowledge=True,
        summary="what it is about",
        sent_at="2026-11-30T10:15:02Z",
        in_reply_to="m",
        text=text if envelope.escape_body(text) != text else None,
        **more,
    )


@pytest.mark.rule("09.13")
def test_a_message_leaves_as_a_real_one_is_written(near: ClaudeCode) -> None:
    """The same keys and the same envelope as recorded, and no field of ours."""
    real = frame_of("message")
    out = near.leave(said("hello <b> & </cross-session-message> ü"), OWN, SOMEBODY._replace(token="t" * 32))
    assert isinstance(out, Outgoing)
    assert out.token == "t" * 32
    frame = json.loads(out.line)
    assert frame.keys() == real.keys()
    content: str = real["message"]["content"]
    expected = content.replace(real["from"], OWN).replace("real-uno", "bob")
    assert frame["message"] == {"role": "user", "content": expected}
    assert (frame["from"], frame["priority"], frame["msgV"]) == (OWN, "next", 1)
    assert out.line.count(b"\n") == 1


@pytest.mark.rule("09.13", "03.66")
def test_the_chain_of_an_answer_is_sent_on(near: ClaudeCode) -> None:
    chain = ("0123456789abcdef01234567", "89abcdef0123456789abcdef")
    out = near.leave(said("x", hop_chain=chain), OWN, SOMEBODY)
    assert isinstance(out, Outgoing)
    there = envelope.parse_wire(json.loads(out.line)["message"]["content"])
    assert there.hop_chain == chain
    # A real one does the same: it adds its own token to the chain that came.
    back = envelope.parse_wire(frame_of("answer")["message"]["content"])
    assert back.hop_chain[0] == "0123456789abcdef01234567"
    assert len(back.hop_chain) == 2


def test_without_a_socket_there_a_message_names_no_way_back(near: ClaudeCode) -> None:
    out = near.leave(said("x"), "", SOMEBODY)
    assert isinstance(out, Outgoing)
    frame = json.loads(out.line)
    assert "from" not in frame
    assert "from=" not in frame["message"]["content"]
    assert (out.token, b"postroom" in out.line) == (None, False)


@pytest.mark.rule("09.13")
def test_a_message_and_its_token_have_room_for_each_other(near: ClaudeCode) -> None:
    """The limit is of characters, with the token's line and the newline counted in."""
    target = SOMEBODY._replace(token="t" * 32)
    small = near.leave(said("ü"), OWN, target)
    assert isinstance(small, Outgoing)
    used = len(wire.encode_auth("t" * 32)) + wire.code_points(small.line)
    assert isinstance(near.leave(said("ü" * (MAX_SENT - used + 1)), OWN, target), Outgoing)
    refused = near.leave(said("ü" * (MAX_SENT - used + 2)), OWN, target)
    assert refused == "it would have more than the 1,048,576 characters that Claude Code takes"


@pytest.mark.parametrize("name", ["held", "delivered", "denied", "refused", "dropped"])
@pytest.mark.rule("09.13", "09.2")
def test_a_receipt_leaves_as_a_real_one_is_written(near: ClaudeCode, name: str) -> None:
    real = frame_of(name)
    line = notices.status_line(
        name,
        orig_msg_id=real["orig_msg_id"],
        address="uds:/ours.sock",
        msg_id=real["msg_id"],
        reason="why",
        drop_reason=real.get("drop_reason", ""),
        dropped=(real["orig_msg_id"],) if name == "dropped" else (),
    )
    out = near.leave(line, OWN, SOMEBODY)
    assert isinstance(out, Outgoing)
    frame = json.loads(out.line)
    assert frame.keys() == real.keys()
    same = ("action", "status", "status_detail", "orig_msg_id", "drop_reason", "msgV", "msg_id")
    assert {key: frame.get(key) for key in same} == {key: real.get(key) for key in same}
    assert frame["from"] == OWN


@pytest.mark.parametrize(
    "frame",
    [
        wire.ControlFrame(action="peer_renamed", from_="uds:/o.sock", name="x"),
        wire.ControlFrame(action="peer_message_status", status="read", orig_msg_id="m"),
        wire.ControlFrame(action="peer_message_status", status="misaddressed", orig_msg_id="m"),
    ],
    ids=lambda frame: f"{frame.action} {frame.status or ''}",
)
@pytest.mark.rule("05.24")
def test_what_only_ours_understand_is_not_said_there(near: ClaudeCode, frame: wire.ControlFrame) -> None:
    assert near.leave(wire.encode_control(frame), OWN, SOMEBODY) == "Claude Code has no word for it"


def test_nothing_that_wants_an_answer_is_said_without_a_way_back(near: ClaudeCode) -> None:
    line = wire.encode_control(wire.ControlFrame(action="notify_when_idle", from_="uds:/o.sock", msg_id="m"))
    refused = near.leave(line, "", SOMEBODY)
    assert isinstance(refused, str)
    assert "publishTo" in refused
    out = near.leave(line, OWN, SOMEBODY)
    assert isinstance(out, Outgoing)
    assert json.loads(out.line).keys() <= frame_of("subscription").keys()


@pytest.mark.parametrize("name", ["message", "answer"])
@pytest.mark.rule("09.15")
def test_a_real_message_is_read(near: ClaudeCode, name: str) -> None:
    first, second = (near.decode(line.encode(), OWN) for line in recorded(name)["lines"])
    assert isinstance(first, wire.AuthFrame)
    assert isinstance(second, wire.UserFrame)
    claims = wire.claims(second)
    assert (claims.name, claims.mode, claims.attested) == ("real-uno", "prompting", True)
    assert claims.address == frame_of(name)["from"]


@pytest.mark.parametrize("name", ["held", "delivered", "denied", "refused", "dropped", "held-mode"])
@pytest.mark.rule("09.2")
def test_a_real_receipt_is_read(near: ClaudeCode, name: str) -> None:
    frame = near.decode(recorded(name)["lines"][1].encode(), OWN)
    assert isinstance(frame, wire.ControlFrame)
    word = notices.read_status(frame)
    assert word is not None
    assert word.status == name.removesuffix("-mode")
    assert word.ids == (frame_of(name)["orig_msg_id"],)


@pytest.mark.rule("09.13")
def test_a_real_one_lists_a_session_of_ours() -> None:
    """What its model read while one of ours was published as it is published here."""
    [text] = recorded("listing")["lines"]
    [row] = [line for line in text.splitlines() if "schema-bot" in line]
    assert [part.strip() for part in row.split("·")][1:3] == ["interactive", "idle"]
    raw = json.loads(dumps(published(Record(pid=7, session_id="s", name="schema-bot"), "/x/7.sock")))
    assert (raw["kind"], raw["status"]) == ("interactive", "idle")


@given(st.binary(max_size=200))
def test_no_bytes_make_decoding_fail(data: bytes) -> None:
    near = ClaudeCode({}, "/nowhere")
    with contextlib.suppress(BadFrame):
        near.decode(data, OWN)
