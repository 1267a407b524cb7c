"""The inbox socket against bad peers: what each costs is its own connection and nothing else.

Peers are plain sockets in the same loop, or forked processes where another pid or user is meant. Deadlines
are forced by moving the listener's clock; no test sleeps.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import stat
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.core import wire
from postroom.core.wire import UserFrame
from postroom.errors import UnfitPath
from postroom.state import processes
from postroom.transport import Channel
from postroom.transports.uds import Bounds, Connection, Listener, UdsTransport, evidence, listener
from postroom.transports.uds.evidence import Witness
from tests.transports.ends import (
    Clock,
    Peer,
    Recorder,
    Sleepers,
    answered,
    forked,
    line,
    reaped,
    run,
    silent,
    turns,
    until,
)

TOKENS = {"a" * 32: "peer", "b" * 32: "child"}
ACK = wire.encode_ack("m1", "queued")


@dataclass
class Inbox:
    """A serving transport, with what a test needs around it."""

    path: str
    recorder: Recorder
    clock: Clock
    transport: UdsTransport
    peers: list[Peer] = field(default_factory=list[Peer])

    def peer(self) -> Peer:
        """Connects one more peer."""
        self.peers.append(Peer(self.path))
        return self.peers[-1]

    @property
    def listener(self) -> Listener:
        """The listener of the inbox socket."""
        assert self.transport.listener is not None
        return self.transport.listener

    @property
    def open(self) -> int:
        """Connections that have a place."""
        return len(self.listener.connections)

    async def accepted(self, count: int) -> None:
        """Waits until so many connections have a place."""
        await until(lambda: self.open == count)

    async def works(self) -> None:
        """A bystander is served as ever."""
        self.recorder.does = answered()
        assert await self.peer().write(line("bystander")).finish().ended() == wire.encode_ack(
            "bystander", "queued"
        )


def inbox(
    folder: Path,
    test: Callable[[Inbox], Coroutine[Any, Any, None]],
    *,
    does: Callable[[UserFrame, Channel], None] | None = None,
    bounds: Bounds | None = None,
    uid: int | None = None,
) -> None:
    """Runs a test against an inbox of its own; whatever is still open is closed, and the socket is gone."""

    async def work() -> None:
        clock = Clock()
        path = str(folder / "inbox.sock")
        transport = UdsTransport(path, tokens=TOKENS, clock=clock, bounds=bounds, uid=uid)
        made = Inbox(path, Recorder(does or answered()), clock, transport)
        assert await transport.serve(made.recorder) == f"uds:{path}"
        try:
            await test(made)
        finally:
            await transport.close()
            for peer in made.peers:
                peer.sock.close()
        assert not os.path.lexists(path)

    run(work())


root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")

# ── lines ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.17", "11.14")
@pytest.mark.parametrize(
    "bad",
    [
        b"not json",
        b"\xff\xfe{}",
        b'{"type":"user","message":{"role":"user","content":"\xff"}}',
        b"[" * 100_000,
        b'{"type":"user","message":' * 2000,
        b"[]",
        b"null",
        b"{}",
        b'{"type":7}',
        b'{"type":"user"}',
        b'{"type":"user","message":{"role":"user","content":["x"]}}',
        b'{"type":"user","message":{"role":"user","content":""}}',
        b'{"type":"auth","token":7}',
        b'{"type":"user","message":{"role":"user","content":"x"}',
        b"\0",
        b"\r",
    ],
)
def test_a_bad_line_is_skipped_and_the_connection_goes_on(folder: Path, bad: bytes) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer()
        assert await peer.pour(bad + b"\n" + line("m1"))
        assert await peer.line() == ACK
        assert it.recorder.ids == ["m1"]
        assert sum(it.recorder.counts.values()) == (bad != b"\r")
        await it.works()

    inbox(folder, work)


def test_blank_lines_are_nothing(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer().write(b"\n\n  \n\r\n" + line("m1") + b"\n\n" + line("m2") + b"\n")
        assert [await peer.line(), await peer.line()] == [ACK, wire.encode_ack("m2", "queued")]
        assert it.recorder.counts == {}

    inbox(folder, work)


@pytest.mark.rule("05.14", "11.14")
@pytest.mark.parametrize("ended", [True, False], ids=["with its newline", "never ending"])
def test_report_45_ten_megabytes_in_one_line_end_the_connection(folder: Path, ended: bool) -> None:
    async def work(it: Inbox) -> None:
        bystander = it.peer().write(line("m1"))
        assert await bystander.line() == ACK
        peer = it.peer()
        assert not await peer.pour(b"x" * 10_000_000 + b"\n" * ended)
        assert await peer.ended() == b""
        assert it.recorder.counts == {"too-long": 1}
        assert await bystander.write(line("m1")).line() == ACK
        await it.works()

    inbox(folder, work)


@pytest.mark.rule("05.14")
def test_lines_before_one_that_is_too_long_count(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer()
        await peer.pour(line("m1") + b"x" * (wire.MAX_LINE + 1))
        assert await peer.ended() == ACK
        assert it.recorder.ids == ["m1"]
        assert it.recorder.counts == {"too-long": 1}

    inbox(folder, work)


@settings(max_examples=60)
@given(data=st.data())
def test_however_a_stream_is_cut_the_same_frames_come_out(data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=6))
    stream = b"".join(line(f"m{number}", text) for number, text in enumerate(texts))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))

    async def work(it: Inbox) -> None:
        peer = it.peer()
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            if start < end:
                peer.write(stream[start:end])
                await turns(2)
        assert [await peer.line() for _ in texts] == [
            wire.encode_ack(f"m{number}", "queued") for number in range(len(texts))
        ]
        assert it.recorder.texts == texts

    with tempfile.TemporaryDirectory(prefix="pr-", dir="/tmp") as name:
        inbox(Path(name), work)


@pytest.mark.rule("11.14")
@settings(max_examples=60)
@given(
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=200),
            st.sampled_from(
                [b"\n", line("m1"), line("m1")[:-5], b'{"type":"auth","token":"x"}\n', b"{" * 5000]
            ),
        ),
        max_size=8,
    )
)
def test_whatever_bytes_come_a_bystander_is_served(pieces: list[bytes]) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer()
        for piece in pieces:
            await peer.pour(piece)
            await turns(2)
        await it.works()
        peer.finish()
        await peer.ended()
        await it.works()

    with tempfile.TemporaryDirectory(prefix="pr-", dir="/tmp") as name:
        inbox(Path(name), work)


def test_an_unfinished_line_is_read_at_the_end(folder: Path) -> None:
    """As the neighbours' sockets do (B3)."""

    async def work(it: Inbox) -> None:
        assert await it.peer().write(line("m1")[:-1]).finish().ended() == ACK
        assert await it.peer().write(line("m2")[:-9]).finish().ended() == b""
        assert it.recorder.ids == ["m1"]
        assert it.recorder.counts == {"bad-frame": 1}

    inbox(folder, work)


def test_an_unfinished_line_in_two_pieces_is_read_at_the_end(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer().write(line("m1")[:20])
        await it.accepted(1)
        assert await peer.write(line("m1")[20:-1]).finish().ended() == ACK
        await it.accepted(0)

    inbox(folder, work)


@pytest.mark.rule("05.19")
def test_a_connection_that_says_nothing_is_ordinary(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer()
        await it.accepted(1)
        assert await peer.write(line("m1")).line() == ACK
        for _ in range(3):
            it.peer().sock.close()
        await turns()
        assert it.recorder.counts == {}
        await it.works()

    inbox(folder, work)


@pytest.mark.rule("05.17")
def test_any_number_of_frames_on_one_connection(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer()
        for number in range(300):
            assert await peer.write(line(f"m{number}")).line() == wire.encode_ack(f"m{number}", "queued")
        assert it.open == 1
        assert len({id(channel) for channel in it.recorder.channels}) == 1

    inbox(folder, work)


def test_an_abrupt_end_in_the_middle_of_a_line(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer().write(line("m1")[:10])
        await it.accepted(1)
        peer.sock.close()
        await it.accepted(0)
        await it.works()

    inbox(folder, work)


def test_a_peer_that_leaves_without_reading_its_answers(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer().write(line("m1"))
        await until(lambda: it.recorder.frames)
        peer.sock.close()
        await it.accepted(0)
        await it.works()

    inbox(folder, work)


# ── time ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.15")
def test_thirty_seconds_to_the_first_frame_and_junk_does_not_extend_it(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        dribbling, talking, showing, mute = (it.peer() for _ in range(4))
        talking.write(b"junk\n")
        await it.accepted(4)
        for byte in line("m1")[:29]:
            it.clock.now += 1
            dribbling.write(bytes([byte]))
            talking.write(b'{"type":"dance"}\n')
            showing.write(wire.encode_auth("a" * 32))
            await turns(3)
            it.listener.expire()
        assert it.open == 4
        it.clock.now += 1
        it.listener.expire()
        for peer in (dribbling, talking, showing, mute):
            assert await peer.ended() == b""
        # Of these only the one that stands in the middle of a line has done something wrong.
        assert it.recorder.counts["too-slow"] == 1
        assert it.recorder.frames == []
        await it.works()

    inbox(folder, work)


@pytest.mark.rule("05.15")
def test_a_kept_connection_rests_ten_minutes_between_frames(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer()
        control = it.peer()
        await it.accepted(2)
        frame = wire.encode_control(wire.ControlFrame(action="notify_when_idle", from_="uds:/x"))
        for _ in range(3):
            control.write(frame)
            assert await peer.write(line("m1")).line() == ACK
            await turns()
            it.clock.now += 599
            peer.write(b"junk\n")
            await turns()
            it.listener.expire()
            assert it.open == 2
        it.clock.now += 1
        it.listener.expire()
        assert await peer.ended() == b""
        assert await control.ended() == b""

    inbox(folder, work)


@pytest.mark.rule("12.21")
def test_no_timer_is_left_when_nothing_is_open(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        armed: list[float] = []
        loop: Any = asyncio.get_running_loop()
        call_at = loop.call_at

        def recording(when: float, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
            armed.append(when)
            return call_at(when, *args, **kwargs)

        loop.call_at = recording
        peer = it.peer()
        await it.accepted(1)
        assert len(armed) == 1
        assert await peer.write(line("m1")).line() == ACK  # the deadline moved; the timer did not
        it.clock.now += 30
        it.listener.expire()
        assert len(armed) == 2
        peer.sock.close()
        await it.accepted(0)
        it.clock.now += 600
        it.listener.expire()
        await turns()
        assert len(armed) == 2

    inbox(folder, work)


def test_the_timer_itself_ends_a_connection(folder: Path) -> None:
    """The one test with the real clock: a bound of no time at all."""

    async def work() -> None:
        transport = UdsTransport(str(folder / "inbox.sock"), bounds=Bounds(first=0.0))
        await transport.serve(Recorder())
        peer = Peer(str(folder / "inbox.sock"))
        assert await peer.ended() == b""
        peer.sock.close()
        await transport.close()

    run(work())


# ── how many ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.16", "11.14")
def test_a_flood_of_connections_takes_the_place_of_idle_ones_only(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        it.recorder.does = silent
        busy = it.peer().write(line("m1"))
        half = it.peer().write(line("m2")[:10])
        await it.accepted(2)
        for number in range(198):
            it.peer()
            it.clock.now += 0.001
            if number % 20 == 0:
                await turns()
        await until(lambda: it.recorder.counts["too-many"] == 200 - 64)
        assert it.open == 64
        assert busy.open
        assert half.open
        assert [peer.open for peer in it.peers[2:]] == [False] * 136 + [True] * 62  # the oldest went first
        answered()(it.recorder.frames[0], it.recorder.channels[0])
        it.recorder.channels[0].flush()
        assert await busy.line() == ACK
        await it.works()

    inbox(folder, work)


@pytest.mark.rule("05.16")
def test_where_none_is_idle_the_new_one_is_closed_unread(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        for _ in range(64):
            it.peer().write(b"{")
        await it.accepted(64)
        late = it.peer().write(line("m1"))
        assert await late.ended() == b""
        assert it.recorder.frames == []
        assert it.recorder.counts == {"too-many": 1}
        it.clock.now += 5  # half lines that stand still do not keep everybody out
        assert await it.peer().write(line("m1")).line() == ACK
        assert it.open == 64

    inbox(folder, work)


@pytest.mark.rule("05.16")
def test_what_is_said_and_answered_at_once_takes_no_place(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        for _ in range(64):
            it.peer()
        await it.accepted(64)
        for _ in range(10):
            assert await it.peer().write(line("m1")).finish().ended() == ACK
        assert it.open == 64
        assert it.recorder.counts == {}

    inbox(folder, work)


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


def test_a_late_answer_reaches_one_who_has_finished_writing(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        it.recorder.does = silent
        peer = it.peer().write(line("m1") + line("m2")).finish()
        await it.accepted(1)
        await turns()
        answered()(it.recorder.frames[0], it.recorder.channels[0])
        it.recorder.channels[0].flush()
        assert await peer.line() == ACK
        assert it.open == 1
        answered()(it.recorder.frames[1], it.recorder.channels[1])
        it.recorder.channels[1].flush()
        assert await peer.ended() == wire.encode_ack("m2", "queued")
        assert it.open == 0

    inbox(folder, work)


def test_an_answer_that_never_comes_is_waited_for_as_long_as_a_sender_waits(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        it.recorder.does = silent
        inline = it.peer().write(line("m1")).finish()
        later = it.peer()
        await it.accepted(2)
        later.write(line("m2"))
        await until(lambda: len(it.recorder.frames) == 2)
        later.finish()
        await turns()
        it.clock.now += 4.9
        it.listener.expire()
        assert it.open == 2
        it.clock.now += 0.2
        it.listener.expire()
        assert it.open == 0
        assert [await inline.ended(), await later.ended()] == [b"", b""]

    inbox(folder, work)


def test_a_frame_without_an_id_is_owed_no_answer(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        frame = b'{"type":"user","ack":true,"message":{"role":"user","content":"x"}}\n'
        assert await it.peer().write(frame).finish().ended() == b""
        assert it.recorder.ids == [None]

    inbox(folder, work)


@pytest.mark.rule("11.14", "11.10")
def test_a_peer_that_never_reads_its_answers_is_closed(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer()
        batch = line("m" * 100) * 200
        while await peer.pour(batch):
            pass
        assert it.recorder.counts == {"unread": 1}
        assert it.open == 0
        await it.works()

    inbox(folder, work)


def test_an_answer_later_than_a_full_buffer_is_bounded_too(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer().write(line("m1"))
        await until(lambda: it.recorder.channels)
        channel = it.recorder.channels[0]
        while it.open:
            channel.answer(b"x" * 50_000 + b"\n")
            channel.flush()
        assert it.recorder.counts == {"unread": 1}
        channel.answer(b"x\n")
        channel.flush()
        assert peer.open is False

    inbox(folder, work)


def test_a_full_buffer_goes_on_when_the_peer_reads(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer()
        count = 6000  # their answers fill the kernel's buffer and stay below the bound
        pouring = asyncio.ensure_future(peer.pour(line("m1") * count))
        await until(lambda: len(it.recorder.frames) == count or it.recorder.counts)
        assert await pouring
        for _ in range(count):
            assert await peer.line() == ACK
        assert it.recorder.counts == {}
        assert await peer.write(line("m1")).line() == ACK

    inbox(folder, work)


@pytest.mark.rule("11.14")
def test_a_receiver_that_raises_ends_that_connection_and_is_reported(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        heard: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))

        def fails(frame: UserFrame, channel: Channel) -> None:
            raise ZeroDivisionError

        it.recorder.does = fails
        inline = it.peer().write(line("m1"))
        assert await inline.ended() == b""
        later = it.peer()
        await it.accepted(1)
        assert await later.write(line("m1")).ended() == b""
        assert [type(context["exception"]) for context in heard] == [ZeroDivisionError] * 2
        assert it.open == 0
        await it.works()

    inbox(folder, work)
