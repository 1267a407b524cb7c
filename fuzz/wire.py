"""Any bytes either decode or raise the one documented error, in one chunk, in random ones and byte by byte.

    python fuzz/wire.py [--seconds N] [--seed N]

What is fed is built from whole frames, cut, joined and changed at random. Whatever comes, `LineReader` gives
the same lines however the bytes are cut and raises nothing but `LineTooLong`; `decode` answers or raises
`BadFrame`; what it answers can be read by `claims`, shown by `repr`, and written and read again unchanged. The
first input that breaks this is printed and the exit code is 1; the same seed finds it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from postroom.core import wire
from postroom.core.envelope import wire_form
from postroom.errors import BadFrame, LineTooLong

SMALL_LINE = 600
"""The limit while fuzzing, so that inputs pass it often."""

SEEDS = (
    wire.encode_auth("0" * 32),
    wire.encode_user(msg_id="m-1", content=wire_form("hi", address="uds:/a.sock", name="é", mode="bypass")),
    wire.encode_user(msg_id="m-2", content="bare", address="uds:/a.sock", acknowledge=True, text="</x>"),
    wire.encode_ack("m-1", "dropped", "rate-limited"),
    wire.encode_control(wire.ControlFrame(action="peer_message_status", status="held", orig_msg_id="m-1")),
    wire.encode_control(wire.ControlFrame(action="dance", dropped_msg_ids=("a", "b"), finished_at=1)),
    b'{"type":"user","msgV":2,"message":["later"]}\n',
    b'{"type":"user","message":{"content":"\\ud83d\\ude00"},"priority":[1,{"a":null}]}\r\n',
)
PIECES = (
    *(b"\n", b"\r\n", b" ", b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u", b"\\ud800", b"\\u0000", b",", b":"),
    *(
        b"null",
        b"true",
        b"1e400",
        b"-0.0",
        b"9" * 40,
        b'"type"',
        b'"user"',
        b'"control"',
        b'"msgV":2',
        b'"text":"',
    ),
    *(b"\xff", b"\xc3", b"\xa9", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf0\x9f\x99\x82", b"\0", b"\x1b"),
    *(
        b"<cross-session-message>\\n",
        b"\\n</cross-session-message>",
        b"[" * 3000,
        b"x" * 700,
        "é".encode() * 400,
    ),
)


def built(chance: random.Random) -> bytes:
    """One stream: a few frames, each perhaps changed in a few places."""
    stream = bytearray()
    for _ in range(chance.randrange(1, 4)):
        part = bytearray(chance.choice(SEEDS))
        for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
            place = chance.randrange(len(part) + 1)
            match chance.randrange(5):
                case 0:
                    part[place:place] = chance.choice(PIECES)
                case 1:
                    del part[place : place + chance.randrange(1, 9)]
                case 2:
                    part[place : place + 1] = bytes((chance.randrange(256),))
                case 3:
                    other = chance.choice(SEEDS)
                    part[place:place] = other[chance.randrange(len(other)) :]
                case _:
                    part[place : place + chance.randrange(6)] = chance.choice(PIECES)
        stream += part
    return bytes(stream)


def lines_of(chunks: list[bytes]) -> tuple[list[bytes], bool]:
    """The lines of a stream, its rest among them, and whether a line was too long."""
    reader, lines = wire.LineReader(SMALL_LINE), list[bytes]()
    try:
        for chunk in chunks:
            lines += reader.feed(chunk)
        rest = reader.rest()
    except LineTooLong:
        return lines, True
    return [*lines, rest] if rest else lines, False


def check_line(line: bytes) -> None:
    """One line is a frame or bad, and a frame can be read, shown, written and read again."""
    try:
        frame = wire.decode(line)
    except BadFrame:
        return
    repr(frame).encode()
    if isinstance(frame, wire.UserFrame):
        said = wire.claims(frame)
        assert said.text.strip(), "a blank message"
        assert said.text.encode(), "a text that cannot be kept"
        again = wire.encode_user(
            msg_id=frame.msg_id or "m",
            content=frame.message.content,
            address=frame.from_,
            session_id=frame.session_id,
            priority="later" if said.later else "next",
            acknowledge=bool(frame.ack),
            summary=frame.summary,
            sent_at=frame.sent_at,
            in_reply_to=frame.in_reply_to,
            text=frame.text,
        )
        copy = wire.decode(again)
        assert isinstance(copy, wire.UserFrame), "a written frame that is none"
        assert wire.claims(copy) == said, "claims that change on the way"
    elif isinstance(frame, wire.ControlFrame):
        copy = wire.decode(wire.encode_control(frame))
        assert isinstance(copy, wire.ControlFrame), "a written control frame that is none"
        assert copy.action == frame.action, "an action that changes on the way"
    elif isinstance(frame, wire.AckFrame):
        assert wire.decode(wire.encode_ack(frame.msg_id, frame.status, frame.reason)) in (
            frame,
            wire.AckFrame(frame.msg_id, frame.status),
        ), "an acknowledgement that changes on the way"


def check(stream: bytes, chance: random.Random) -> None:
    """The whole invariant for one stream; AssertionError, or whatever else was raised, where it breaks."""
    whole = lines_of([stream])
    bytewise = lines_of([stream[place : place + 1] for place in range(len(stream))])
    cuts = sorted(chance.randrange(len(stream) + 1) for _ in range(4))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert whole == bytewise == lines_of(pieces), "lines depend on how the stream is cut"
    for line in whole[0]:
        assert wire.code_points(line) <= SMALL_LINE, "a line over the limit"
        check_line(line)
    check_line(stream)


def main() -> int:
    """Runs for the given time; 0: nothing broke."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    chance = random.Random(options.seed)
    until = time.monotonic() + options.seconds
    rounds = 0
    while time.monotonic() < until:
        stream = built(chance)
        try:
            check(stream, chance)
        except Exception as error:
            print(f"seed {options.seed}, round {rounds}: {type(error).__name__}: {error}\n{stream!r}")
            return 1
        rounds += 1
    print(f"{rounds} streams, seed {options.seed}: nothing broke")
    return 0


if __name__ == "__main__":
    sys.exit(main())
