"""The twin of core.wire: lines, frames, and what a sender says."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroom.core.envelope import wire_form
from postroom.core.wire import (
    ACTIONS,
    MAX_ACTION,
    MAX_ID,
    MAX_LINE,
    MAX_SENT,
    AckFrame,
    AuthFrame,
    Claims,
    ControlFrame,
    Frame,
    Ignored,
    LineReader,
    UserFrame,
    claims,
    code_points,
    decode,
    encode_ack,
    encode_auth,
    encode_control,
    encode_user,
    readdressed,
    reply_path,
)
from postroom.errors import BadFrame, LineTooLong

ADDRESS = "uds:/run/user/1000/postroom/4711.sock"
TOKEN = "0123456789abcdef" * 2


def line(**fields: Any) -> bytes:
    """A user frame as a neighbour writes it, with fields changed; a field that is `...` is left out."""
    frame: dict[str, Any] = {
        "msgV": 1,
        "msg_id": "m-1",
        "type": "user",
        "message": {"role": "user", "content": "hello"},
        "priority": "next",
        "from": ADDRESS,
    }
    frame |= {"from" if key == "from_" else key: value for key, value in fields.items()}
    return json.dumps({key: value for key, value in frame.items() if value is not ...}).encode()


def user(**fields: Any) -> UserFrame:
    frame = decode(line(**fields))
    assert isinstance(frame, UserFrame)
    return frame


def said(content: str = "hello", **fields: Any) -> Claims:
    return claims(user(message={"content": content}, **fields))


# ── user frames ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.30")
def test_a_whole_user_frame_is_read() -> None:
    content = wire_form("hello", address=ADDRESS, name="api-worker", mode="bypass", hop_chain=("0" * 24,))
    frame = user(
        message={"role": "user", "content": content},
        session_id="s-2",
        ack=True,
        summary="greeting",
        sent_at="2026-11-30T10:15:02Z",
        in_reply_to="m-0",
    )
    assert (frame.msg_id, frame.session_id, frame.ack) == ("m-1", "s-2", True)
    assert claims(frame) == Claims(
        text="hello",
        attested=True,
        name="api-worker",
        mode="bypass",
        hop_chain=("0" * 24,),
        session=None,
        plugin=None,
        address=ADDRESS,
        address_reason="",
        summary="greeting",
        sent_at="2026-11-30T10:15:02Z",
        in_reply_to="m-0",
        later=False,
        text_ignored=False,
    )


@pytest.mark.rule("05.21")
def test_bare_text_is_an_unnamed_sender_that_states_no_class() -> None:
    frame = decode(b'{"type":"user","message":{"role":"user","content":"hi"}}')
    assert isinstance(frame, UserFrame)
    found = claims(frame)
    assert (found.text, found.attested, found.name, found.mode) == ("hi", False, None, None)
    assert (found.address, found.address_reason) == (None, "")


@pytest.mark.rule("05.21")
@pytest.mark.parametrize(
    ("priority", "later"),
    [
        ("next", False),
        ("later", True),
        ("now", False),
        ("Later", False),
        (None, False),
        (..., False),
        (5, False),
        (["later"], False),
    ],
)
def test_every_priority_but_later_reads_as_next(priority: object, later: bool) -> None:
    assert said(priority=priority).later is later


@pytest.mark.rule("05.30")
@pytest.mark.parametrize(
    "field", ["msgV", "msg_id", "from_", "session_id", "ack", "summary", "sent_at", "in_reply_to", "text"]
)
def test_report_37_null_is_absent(field: str) -> None:
    assert user(**{field: None}) == user(**{field: ...})


@pytest.mark.rule("05.21")
def test_report_50_unknown_fields_are_ignored() -> None:
    assert user(body="other text", file_attachments=[{"path": "/x"}], nested={"a": [1, {}]}) == user()


@pytest.mark.rule("05.30")
@pytest.mark.parametrize(
    "fields",
    [
        {"message": ...},
        {"message": None},
        {"message": "hello"},
        {"message": {}},
        {"message": {"content": None}},
        {"message": {"content": ""}},
        {"message": {"content": ["hello"]}},
        {"message": {"content": [{"type": "text", "text": "hello"}]}},
        {"msgV": "1"},
        {"msgV": True},
        {"msg_id": ""},
        {"msg_id": "m" * (MAX_ID + 1)},
        {"msg_id": "m 1"},
        {"msg_id": "m\n1"},
        {"msg_id": "mé"},
        {"msg_id": 7},
        {"from_": ["uds:/x"]},
        {"session_id": 1},
        {"ack": "yes"},
        {"summary": {}},
        {"sent_at": 1},
        {"in_reply_to": []},
        {"text": 0},
    ],
)
def test_a_field_of_the_wrong_type_is_a_bad_frame(fields: dict[str, Any]) -> None:
    with pytest.raises(BadFrame) as caught:
        decode(line(**fields))
    assert "hello" not in str(caught.value)


@pytest.mark.rule("05.30")
@pytest.mark.parametrize(
    "content",
    [
        " ",
        "\n\t\r\n",
        "\u3000",
        wire_form("", address=None, name=None, mode=None),
        wire_form(" \n", address=ADDRESS, name="a", mode="bypass"),
        wire_form("\u2003", address=None, name=None, mode=None),
        "<cross-session-message from='x'>\n\n</cross-session-message>",
    ],
)
def test_report_50_a_blank_message_is_a_bad_frame(content: str) -> None:
    with pytest.raises(BadFrame, match="blank"):
        decode(line(message={"content": content}))


@pytest.mark.rule("05.30")
@pytest.mark.parametrize("text", ["x ", "a > b\n", "<b>", ">", " x\n\n", "</cross-session-message> "])
def test_what_only_looks_blank_at_its_end_is_a_message(text: str) -> None:
    assert said(text).text == text
    content = wire_form(text, address=None, name=None, mode=None)
    assert said(content).attested
    assert said(content, text=text).text == text
    assert said("hi > \n</cross-session-message>").text == "hi > \n</cross-session-message>"


@pytest.mark.rule("05.30")
def test_text_counts_where_its_escaping_gives_exactly_the_body() -> None:
    text = "see </cross-session-message> there"
    content = wire_form(text, address=None, name="a", mode=None)
    assert said(content).text == "see <\\/cross-session-message> there"
    found = said(content, text=text)
    assert (found.text, found.text_ignored, found.name) == (text, False, "a")
    for other in ("see there", "", text + " ", content):
        found = said(content, text=other)
        assert (found.text, found.text_ignored) == ("see <\\/cross-session-message> there", True)
    assert said("plain", text="plain").text_ignored is False


@pytest.mark.rule("05.30")
@pytest.mark.parametrize(
    ("given_address", "reason"),
    [
        ("", ""),
        (ADDRESS, ""),
        ("uds:/a%20b.sock", ""),
        ("memory:0f1e", ""),
        ("memory:a b", "does not begin with uds:"),
        ("uds:/" + "s" * 295, ""),
        ("uds:/" + "s" * 296, "more than 300"),
        ("/run/x.sock", "does not begin with uds:"),
        ("UDS:/run/x.sock", "does not begin with uds:"),
        ("bridge:abc", "does not begin with uds:"),
        ("uds:run/x.sock", "absolute path"),
        ("uds:/run/../x.sock", "absolute path"),
        ("uds:/a b.sock", "absolute path"),
        ("uds:/é.sock", "absolute path"),
        ("uds:/a%00b", "absolute path"),
        ("uds:/a%2", "absolute path"),
    ],
)
def test_a_from_of_the_wrong_shape_is_no_reply_path(given_address: str, reason: str) -> None:
    found = said(from_=given_address)
    usable = given_address if given_address and not reason else None
    assert (found.address, reply_path(given_address)) == (usable, (found.address, found.address_reason))
    assert reason in found.address_reason
    assert bool(reason) == bool(found.address_reason)


@pytest.mark.rule("05.30")
def test_the_frames_from_comes_before_the_envelopes() -> None:
    content = wire_form("hi", address="uds:/other.sock", name="a", mode=None)
    assert said(content).address == ADDRESS
    assert said(content, from_=...).address == "uds:/other.sock"


@pytest.mark.rule("05.30")
def test_our_additions_are_bounded() -> None:
    found = said(summary="s" * 201, sent_at="t" * 65, in_reply_to="m" * 129)
    assert found.summary is not None
    assert (len(found.summary), found.summary[-1]) == (200, "…")
    assert (found.sent_at, found.in_reply_to) == (None, None)
    assert said(in_reply_to="").in_reply_to is None
    assert said(in_reply_to="m\u202e1").in_reply_to is None
    found = said(summary="s" * 200, sent_at="t" * 64, in_reply_to="m" * 128)
    assert (found.summary, found.sent_at, found.in_reply_to) == ("s" * 200, "t" * 64, "m" * 128)


# ── any line ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.21")
def test_unknown_types_and_later_versions_are_ignored() -> None:
    assert decode(b'{"type":"later-invention","message":5}') == Ignored("unknown-type")
    assert decode(line(msgV=2)) == Ignored("too-new")
    assert decode(line(msgV=10**30)) == Ignored("too-new")
    assert decode(line(msgV=1.5)) == Ignored("too-new")
    assert decode(line(msgV=2, message=["another", "shape"])) == Ignored("too-new")
    assert decode(b'{"type":"control","action":"rename","msgV":3}') == Ignored("too-new")
    assert isinstance(decode(line(msgV=1)), UserFrame)
    assert isinstance(decode(line(msgV=0)), UserFrame)


@pytest.mark.rule("05.30")
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "JSON"),
        (b"hello", "JSON"),
        (b'{"type":"user"', "JSON"),
        (b'{"type":"user"} x', "JSON"),
        (b'\xef\xbb\xbf{"type":"auth","token":"t"}', "JSON"),
        (b'{"type":"auth","token":"a\x01"}', "JSON"),
        (b'{"type":"auth","token":NaN}', "JSON"),
        (b'{"type":"auth","token":"\\ud800"}', "JSON"),
        (b'{"type":"auth","token":"\\udc00x"}', "JSON"),
        (b'{"type":"auth","token":"\\ud800\\u0041"}', "JSON"),
        (b'{"type":"auth","token":"t","other":"\\ud800"}', "JSON"),
        (b'{"type":"auth","token":"\xff"}', "UTF-8"),
        (b'{"type":"auth","token":"\xed\xa0\x80"}', "UTF-8"),
        (b'{"type":"auth","token":"t","other":"\xc0\x80"}', "UTF-8"),
        (b"[]", "the object itself"),
        (b"null", "the object itself"),
        (b"{}", "the object itself"),
        (b'{"type":5}', "`$.type`"),
        (b'{"type":null}', "`$.type`"),
        (b'{"type":"user","type":"auth","token":"t"}', "`$.type`"),
        (b'{"type":"secret","type":"user"}', "`$.type`"),
        (b'{"type":"user"}', "the object itself"),
        (b'{"type":"auth","token":null}', "`$.token`"),
        (b'{"type":"ack","status":"queued"}', "the object itself"),
        (b'{"type":"control"}', "the object itself"),
        (b'{"type":"control","action":null}', "`$.action`"),
        (b'{"type":"control","action":"rename","name":5}', "`$.name`"),
        (b'{"type":"user","msgV":1e400}', "`$.msgV`"),
        (b'{"type":"user","msgV":' + b"9" * 5000 + b"}", "`$.msgV`"),
        (b'{"type":"user","priority":' + b"[" * 200_000, "too deep"),
        (b'{"type":"user","unknown":' + b"[" * 200_000, "too deep"),
        (b'{"type":"user","message":' + b'{"a":' * 200_000, "too deep"),
        (b'{"other":' * 200_000, "too deep"),
        (b'{"msgV":"x","type":' + b"[" * 200_000, "too deep"),
    ],
)
def test_what_is_no_frame_is_a_bad_frame(data: bytes, words: str) -> None:
    with pytest.raises(BadFrame) as caught:
        decode(data)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.rule("05.30")
def test_white_space_around_an_object_and_doubled_keys_are_harmless() -> None:
    assert decode(b' \t{"type":"auth","token":"t"} \r') == AuthFrame("t")
    assert decode(b'{"type":"auth","token":"a","token":"b"}') == AuthFrame("b")
    assert decode(b'{"type":"auth","token":"\\u0000\\ud83d\\ude00"}') == AuthFrame("\0😀")
    assert decode(b'{"huge":' + b"9" * 9000 + b',"type":"auth","token":"t"}') == AuthFrame("t")


# ── control frames, acknowledgements, tokens ─────────────────────────────────────────────────────


@pytest.mark.rule("05.24")
def test_the_neighbours_control_frames_are_read() -> None:
    receipt = decode(
        b'{"type":"control","action":"peer_message_status","status":"dropped","reason":"r","from":"uds:/a",'
        b'"orig_msg_id":"m-1","drop_reason":"rate-limited","dropped_msg_ids":["m-1","m-2"],"msgV":1,"msg_id":"r-1"}'
    )
    assert receipt == ControlFrame(
        action="peer_message_status",
        status="dropped",
        reason="r",
        from_="uds:/a",
        orig_msg_id="m-1",
        drop_reason="rate-limited",
        dropped_msg_ids=("m-1", "m-2"),
        msgV=1,
        msg_id="r-1",
    )
    idle = decode(
        b'{"type":"control","action":"peer_idle_notice","orig_msg_id":"m","state":"idle","finished_at":1789216922033}'
    )
    assert isinstance(idle, ControlFrame)
    assert (idle.state, idle.finished_at) == ("idle", 1_789_216_922_033)
    asked = decode(
        b'{"type":"control","action":"notify_when_idle","from":"uds:/a","from_mode":"bypass","msg_id":"n"}'
    )
    assert isinstance(asked, ControlFrame)
    assert (asked.from_, asked.from_mode, asked.msg_id) == ("uds:/a", "bypass", "n")


@pytest.mark.rule("05.24")
@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_every_control_frame_comes_back(action: str) -> None:
    frame = ControlFrame(action=action, msg_id="c-1", from_=ADDRESS, name="new", former="old", detail="é")
    data = encode_control(frame)
    assert data.endswith(b"\n")
    assert b'"msgV":1' in data
    assert "é".encode() in data
    assert decode(data) == msgspec.structs.replace(frame, msgV=1)
    assert encode_control(msgspec.structs.replace(frame, msgV=1)) == data


@pytest.mark.rule("05.24")
def test_a_control_line_of_an_earlier_life_bears_the_address_of_today() -> None:
    frame = ControlFrame(action="peer_message_status", msg_id="m-1", from_=ADDRESS, status="held", reason="é")
    old = encode_control(msgspec.structs.replace(frame, from_="uds:/run/user/1000/postroom/1.sock"))
    assert readdressed(old, ADDRESS) == encode_control(frame)
    assert readdressed(encode_control(frame), ADDRESS) == encode_control(frame)
    assert decode(readdressed(old, None)[:-1]) == msgspec.structs.replace(frame, from_=None, msgV=1)
    for other in (line(), b"{", encode_ack("m-1", "queued")):
        assert readdressed(other, "uds:/elsewhere.sock") == other


@pytest.mark.rule("05.24")
def test_an_unknown_action_is_a_control_frame_of_that_action() -> None:
    assert decode(b'{"type":"control","action":"dance","reason":{"not":"text"}}') == ControlFrame(
        action="dance"
    )
    assert decode(b'{"type":"control","action":"dance"}') == ControlFrame(action="dance")
    assert decode(b'{"type":"control","action":"' + b"d" * 9000 + b'"}') == ControlFrame(
        action="d" * MAX_ACTION
    )


@pytest.mark.rule("03.55")
def test_a_receipt_names_at_most_256_messages() -> None:
    ids = [f"m-{number}" for number in range(256)]
    frame = {"type": "control", "action": "peer_message_status", "dropped_msg_ids": ids}
    assert isinstance(decode(json.dumps(frame).encode()), ControlFrame)
    with pytest.raises(BadFrame, match="dropped_msg_ids"):
        decode(json.dumps(frame | {"dropped_msg_ids": [*ids, "m"]}).encode())


@pytest.mark.rule("05.22")
def test_acknowledgements_come_back() -> None:
    assert encode_ack("m-1", "queued") == b'{"type":"ack","msg_id":"m-1","status":"queued"}\n'
    assert encode_ack("m-1", "queued", "") == encode_ack("m-1", "queued")
    assert decode(encode_ack("m-1", "dropped", "rate-limited")) == AckFrame("m-1", "dropped", "rate-limited")


@pytest.mark.rule("05.20")
def test_the_first_line_is_the_neighbours() -> None:
    assert encode_auth(TOKEN) == f'{{"type":"auth","token":"{TOKEN}"}}\n'.encode()
    assert decode(encode_auth(TOKEN)[:-1]) == AuthFrame(TOKEN)


@pytest.mark.rule("05.30")
@settings(max_examples=100)
@given(
    st.fixed_dictionaries(
        {
            "msg_id": st.from_regex(r"\A[!-~]{1,128}\Z"),
            "content": st.text(min_size=1).filter(lambda text: bool(text.strip())),
            "address": st.none() | st.just(ADDRESS),
            "session_id": st.none() | st.text(max_size=9),
            "priority": st.sampled_from(["next", "later"]),
            "acknowledge": st.booleans(),
            "summary": st.none() | st.text(max_size=9),
            "sent_at": st.none() | st.text(max_size=9),
            "in_reply_to": st.none() | st.just("m-0"),
            "text": st.none() | st.text(max_size=9),
        }
    )
)
def test_a_user_frame_comes_back(fields: dict[str, Any]) -> None:
    data = encode_user(**fields)
    assert data.count(b"\n") == 1
    assert data.endswith(b"\n")
    plain = json.loads(data)
    assert (plain["type"], plain["msgV"], plain["message"]["role"]) == ("user", 1, "user")
    assert data.decode().count("\\u") == json.dumps(plain, ensure_ascii=False).count("\\u")
    frame = decode(data[:-1])
    assert isinstance(frame, UserFrame)
    assert (frame.msg_id, frame.message.content, frame.from_) == (
        fields["msg_id"],
        fields["content"],
        fields["address"],
    )
    assert (frame.session_id, frame.priority, bool(frame.ack)) == (
        fields["session_id"],
        fields["priority"],
        fields["acknowledge"],
    )
    assert (frame.summary, frame.sent_at, frame.in_reply_to, frame.text) == (
        fields["summary"],
        fields["sent_at"],
        fields["in_reply_to"],
        fields["text"],
    )


@pytest.mark.rule("05.30")
def test_what_is_not_said_is_not_written() -> None:
    assert json.loads(encode_user(msg_id="m-1", content="hi")) == {
        "type": "user",
        "message": {"role": "user", "content": "hi"},
        "msgV": 1,
        "msg_id": "m-1",
        "priority": "next",
    }
    with pytest.raises(ValueError, match="surrogates"):
        encode_user(msg_id="m-1", content="\ud800")


def test_no_repr_shows_a_text_or_a_token() -> None:
    frame = user(message={"content": "hush"}, text="hush", summary="hush")
    for shown in (
        frame,
        frame.message,
        claims(frame),
        AuthFrame("hush"),
        ControlFrame(action="rename", detail="hush"),
    ):
        assert "hush" not in repr(shown)
    assert repr(frame) == "<UserFrame m-1 of 4 characters>"


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NEARLY = st.dictionaries(
    st.sampled_from(
        ["type", "msgV", "msg_id", "message", "from", "ack", "text", "action", "token", "status", "reason"]
    ),
    JUNK
    | st.sampled_from(["user", "auth", "control", "ack", "peer_message_status", 1, 2, {"content": "hi"}]),
).map(lambda value: json.dumps(value).encode())


def outcome(data: bytes) -> Frame | str:
    """What `decode` makes of a line: a frame, or the message of the one error that it may raise."""
    try:
        frame = decode(data)
    except BadFrame as error:
        return str(error)
    if isinstance(frame, UserFrame):
        claims(frame)
    return frame


@pytest.mark.rule("05.30")
@settings(max_examples=200)
@given(NEARLY | st.binary(max_size=60))
@example(b'{"type":"user","message":{"content":"\\u0000"}}')
def test_any_line_is_a_frame_or_bad(data: bytes) -> None:
    assert outcome(data) == outcome(b" " + data + b"\r")


# ── lines ────────────────────────────────────────────────────────────────────────────────────────


def read(chunks: list[bytes]) -> tuple[list[bytes], bool]:
    """Every line of a stream, its rest among them, and whether a line was too long."""
    reader, lines = LineReader(), list[bytes]()
    try:
        for chunk in chunks:
            lines += reader.feed(chunk)
        rest = reader.rest()
    except LineTooLong:
        assert reader.too_long
        return lines, True
    return [*lines, rest] if rest else lines, False


@pytest.mark.rule("05.14")
@pytest.mark.parametrize("filler", ["a", "é", "日", "🙂"])
@pytest.mark.parametrize(("over", "too_long"), [(-1, False), (0, False), (1, True)])
@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("size", [1 << 30, 65_536, 999_983])
def test_report_45_the_limit_counts_characters(
    filler: str, over: int, too_long: bool, ended: bool, size: int
) -> None:
    whole = filler.encode() * (MAX_LINE + over)
    stream = whole + (b"\n" if ended else b"")
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert read(chunks) == (([], True) if too_long else ([whole], False))
    assert code_points(whole) == MAX_LINE + over


@pytest.mark.rule("05.14")
def test_report_45_ten_megabytes_with_their_newline_in_one_read_are_refused() -> None:
    assert MAX_LINE == 1_048_576
    reader = LineReader()
    with pytest.raises(LineTooLong, match="1,048,576"):
        reader.feed(b"x" * 10_000_000 + b"\n")
    for again in (lambda: reader.feed(b"{}\n"), lambda: reader.feed(b""), reader.rest):
        with pytest.raises(LineTooLong):
            again()


@pytest.mark.rule("05.14")
def test_bytes_that_are_no_characters_are_bounded_too() -> None:
    assert read([b"\x80" * MAX_LINE] * 4) == ([b"\x80" * 4 * MAX_LINE], False)
    assert read([b"\x80" * MAX_LINE] * 4 + [b"\x80"]) == ([], True)


@pytest.mark.rule("05.14")
def test_whole_lines_before_a_long_one_are_handed_out_first() -> None:
    for tail in (b"x" * (MAX_LINE + 1), b"x" * (MAX_LINE + 1) + b"\n{}\n"):
        reader = LineReader()
        assert reader.feed(b'{"a":1}\n\n{"b":2}\n' + tail) == [b'{"a":1}', b'{"b":2}']
        assert reader.too_long
        with pytest.raises(LineTooLong):
            reader.feed(b"\n")


@pytest.mark.rule("05.14")
def test_the_count_starts_anew_with_each_line() -> None:
    half = b"x" * (MAX_LINE // 2)
    assert read([half, half + b"\n" + half, half + b"\n", half]) == ([half * 2, half * 2, half], False)


def test_blank_lines_are_skipped_and_carriage_returns_stay() -> None:
    assert read([b"\n", b" \t\r\n", b"a\r\n\n\nb\n \n", b"\r\n", b"c"]) == ([b"a\r", b"b", b"c"], False)
    assert read([b"a\n \r"]) == ([b"a"], False)
    assert read([]) == ([], False)


@given(st.lists(st.binary(max_size=6) | st.sampled_from([b"\n", b"\r\n", b" ", b"{}"]), max_size=12))
def test_however_a_stream_is_cut_its_lines_are_the_same(chunks: list[bytes]) -> None:
    stream = b"".join(chunks)
    whole = read([stream])
    assert read(chunks) == whole
    assert read([stream[place : place + 1] for place in range(len(stream))]) == whole
    assert whole[0] == [part for part in stream.split(b"\n") if part.strip()]


@pytest.mark.rule("01.19")
def test_what_we_send_is_shorter_than_what_a_neighbour_takes() -> None:
    assert MAX_SENT == 1_000_000 < MAX_LINE
