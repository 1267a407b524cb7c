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


def test_a_receiver_may_close_everything_in_the_middle(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        where = it.listener

        def closes(frame: UserFrame, channel: Channel) -> None:
            where.close()

        it.recorder.does = closes
        kept = it.peer()
        await it.accepted(1)
        peer = it.peer().write(line("m1") + line("m2"))
        assert await peer.ended() == b""
        assert await kept.ended() == b""
        assert it.recorder.ids[0] == "m1"

    inbox(folder, work)


def test_closing_sends_what_was_answered(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        it.recorder.does = silent
        peer = it.peer().write(line("m1"))
        await it.accepted(1)
        answered()(it.recorder.frames[0], it.recorder.channels[0])
        await it.transport.close()
        assert await peer.ended() == ACK

    inbox(folder, work)


@pytest.mark.rule("11.15")
def test_every_socket_is_of_this_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    families: set[int] = set()
    make = socket.socket.__init__

    def noting(sock: socket.socket, family: int = -1, *args: Any, **kwargs: Any) -> None:
        make(sock, family, *args, **kwargs)
        families.add(sock.family)

    monkeypatch.setattr(socket.socket, "__init__", noting)

    async def work(it: Inbox) -> None:
        end = UdsTransport(None)
        for acknowledged in (True, False):
            sent = line("m1", ack=acknowledged)
            await end.send(f"uds:{it.path}", sent, msg_id="m1", acknowledged=acknowledged)
        await end.close()
        assert it.recorder.ids == ["m1", "m1"]

    inbox(folder, work)
    assert families == {socket.AF_UNIX}


# ── who ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.19")
def test_the_evidence_is_the_connecting_process_and_its_ancestors(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        await it.peer().write(line("m1")).line()
        found = it.recorder.evidence[0]
        assert (found.transport, found.pid, found.token) == ("uds", os.getpid(), None)
        assert found.start == processes.start_of(os.getpid())
        assert [pid for pid, _ in found.ancestry[:2]] == [os.getpid(), os.getppid()]

    inbox(folder, work)


@pytest.mark.rule("05.19")
def test_the_ancestry_is_walked_once_a_process_and_stat_read_once_a_connection(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[int] = []
    looked: list[int] = []
    ancestry, start_of = processes.ancestry, processes.start_of

    def walking(pid: int) -> tuple[tuple[int, str], ...]:
        walked.append(pid)
        return ancestry(pid)

    def looking(pid: int) -> str | None:
        looked.append(pid)
        return start_of(pid)

    monkeypatch.setattr(processes, "ancestry", walking)
    monkeypatch.setattr(processes, "start_of", looking)

    async def work(it: Inbox) -> None:
        peer = it.peer()
        for _ in range(5):
            await peer.write(line("m1")).line()
        assert looked == [os.getpid()]
        for _ in range(5):
            await it.peer().write(line("m1")).line()
        assert walked == [os.getpid()]
        assert len(looked) <= 6
        assert len(it.recorder.evidence) == 10
        assert len({id(one) for one in it.recorder.evidence}) == 1

    inbox(folder, work)


@pytest.mark.rule("05.25")
def test_a_process_that_has_gone_leaves_its_pid_and_nothing_else(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        def child() -> None:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(it.path)
                sock.sendall(wire.encode_auth("b" * 32) + line("m1"))

        pid = forked(child)
        assert reaped(pid) == 0  # before the loop could accept
        await until(lambda: it.recorder.frames)
        found = it.recorder.evidence[0]
        assert (found.pid, found.start, found.ancestry, found.token) == (pid, "", (), "child")

    inbox(folder, work)


@pytest.mark.rule("05.19")
def test_a_pid_of_zero_is_no_evidence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(sock: socket.socket) -> tuple[int, int]:
        return 0, os.geteuid()

    monkeypatch.setattr(listener, "peer_of", elsewhere)

    async def work(it: Inbox) -> None:
        await it.peer().write(line("m1")).line()
        assert it.recorder.evidence[0] == evidence.Evidence("uds")

    inbox(folder, work)


@pytest.mark.rule("05.19", "11.11")
def test_another_user_is_closed_unread(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer().write(line("m1"))
        assert await peer.ended() == b""
        assert it.recorder.frames == []
        assert it.recorder.counts == {"foreign-user": 1}
        assert it.open == 0

    inbox(folder, work, uid=os.geteuid() + 1)


@root
@pytest.mark.rule("05.19", "11.11")
def test_another_user_for_real_is_closed_unread(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        folder.chmod(0o711)  # as if the folder did not already keep others out
        Path(it.path).chmod(0o666)
        ready, go = os.pipe()

        def child() -> None:
            os.setgid(65534)
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(it.path)
                sock.sendall(line("m1"))
                os.close(go)
                try:
                    assert sock.recv(100) == b""
                except ConnectionResetError:
                    pass

        pid = forked(child)
        os.close(go)
        os.read(ready, 1)
        os.close(ready)
        await until(lambda: it.recorder.counts["foreign-user"] == 1)
        await it.works()
        assert reaped(pid) == 0
        assert it.recorder.ids == ["bystander"]

    inbox(folder, work)


@root
@pytest.mark.rule("11.11", "05.5")
def test_another_user_cannot_even_connect(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        def child() -> None:
            os.setgid(65534)
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX) as sock:
                try:
                    sock.connect(it.path)
                except PermissionError:
                    return
            raise AssertionError

        assert reaped(forked(child)) == 0
        folder.chmod(0o711)
        assert reaped(forked(child)) == 0  # the socket's own mode is enough

    inbox(folder, work)


@pytest.mark.rule("05.20")
def test_only_a_first_line_can_be_a_token(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        peer, child, wrong = (
            wire.encode_auth("a" * 32),
            wire.encode_auth("b" * 32),
            wire.encode_auth("c" * 32),
        )
        for stream, token in [
            (b"\n" + child + peer + line("m1"), "child"),
            (b'{ "token": "%s", "type": "auth" }\n' % (b"b" * 32) + line("m1"), "child"),
            (line("m1") + child + line("m1"), None),
            (b"junk\n" + child + line("m1"), None),
            (wrong + child + line("m1"), None),
        ]:
            it.recorder.evidence.clear()
            await it.peer().write(stream).finish().ended()
            assert [one.token for one in it.recorder.evidence][-1] == token
        assert it.recorder.counts == {"bad-frame": 1, "wrong-token": 1}

    inbox(folder, work)


@pytest.mark.rule("05.20")
def test_a_token_counts_for_the_frames_of_its_connection(folder: Path) -> None:
    async def work(it: Inbox) -> None:
        peer = it.peer().write(wire.encode_auth("b" * 32))
        await it.accepted(1)
        await peer.write(line("m1")).line()
        await peer.write(line("m1")).line()
        await it.peer().write(line("m1")).line()
        assert [one.token for one in it.recorder.evidence] == ["child", "child", None]
        assert {one.pid for one in it.recorder.evidence} == {os.getpid()}

    inbox(folder, work)


# ── processes that come again ────────────────────────────────────────────────────────────────────


class Table:
    """A process table that the test writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.starts: dict[int, str] = {}
        self.walked: list[int] = []

        def ancestry(pid: int) -> tuple[tuple[int, str], ...]:
            self.walked.append(pid)
            return ((pid, self.starts[pid]),)

        def no_watch(pid: int) -> int:
            raise OSError

        monkeypatch.setattr(processes, "start_of", self.starts.get)
        monkeypatch.setattr(processes, "ancestry", ancestry)
        monkeypatch.setattr(os, "pidfd_open", no_watch)


@pytest.mark.rule("05.19")
def test_a_pid_that_was_given_away_is_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    table, witness = Table(monkeypatch), Witness()
    table.starts[7] = "100"
    first = witness.about(7)
    assert witness.about(7) is first
    table.starts[7] = "200"
    second = witness.about(7)
    assert (first.start, second.start, second.ancestry) == ("100", "200", ((7, "200"),))
    del table.starts[7]
    assert witness.about(7) == evidence.Evidence("uds", 7)
    assert table.walked == [7, 7]


@pytest.mark.rule("05.19")
def test_the_least_recently_seen_of_500_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    table, witness = Table(monkeypatch), Witness()
    table.starts.update(dict.fromkeys(range(1, 502), "1"))
    for pid in range(1, 501):
        witness.about(pid)
    witness.about(1)
    witness.about(501)
    assert table.walked == [*range(1, 502)]
    table.walked.clear()
    witness.about(1)
    witness.about(501)
    assert table.walked == []
    witness.about(2)
    assert table.walked == [2]


def test_evidence_that_was_not_kept_can_show_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    table, witness = Table(monkeypatch), Witness()
    table.starts[7] = "100"
    gone = evidence.Evidence("uds", 8)
    assert witness.with_token(gone, "peer") == evidence.Evidence("uds", 8, token="peer")
    known = witness.about(7)
    assert witness.with_token(known, "peer") is witness.with_token(known, "peer")
    assert witness.with_token(known, "child").token == "child"
    assert known.token is None


def test_a_process_that_comes_again_is_watched_and_not_read(
    monkeypatch: pytest.MonkeyPatch, sleeping: Sleepers
) -> None:
    looked: list[int] = []
    start_of = processes.start_of

    def looking(pid: int) -> str | None:
        looked.append(pid)
        return start_of(pid)

    monkeypatch.setattr(processes, "start_of", looking)
    witness = Witness()
    pid = sleeping()
    first = witness.about(pid)
    assert witness.about(pid) is first
    looked.clear()
    assert witness.about(pid) is first
    assert looked == []
    sleeping.kill(pid)
    assert witness.about(pid) == evidence.Evidence("uds", pid)
    assert looked == [pid]
    witness.close()


def test_a_process_that_ends_while_it_is_being_watched_for_is_not_watched(sleeping: Sleepers) -> None:
    witness = Witness()
    pid = sleeping()
    first = witness.about(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # a zombie: its stat can still be read
    assert witness.about(pid) is first
    sleeping.kill(pid)
    assert witness.about(pid) == evidence.Evidence("uds", pid)
    witness.close()


def test_so_many_are_watched_and_no_more(monkeypatch: pytest.MonkeyPatch, sleeping: Sleepers) -> None:
    monkeypatch.setattr(evidence, "WATCHED", 1)
    before = len(os.listdir("/proc/self/fd"))
    witness = Witness()
    children = [sleeping() for _ in range(3)]
    for _ in range(3):
        for pid in children:
            assert witness.about(pid).ancestry[1][0] == os.getpid()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    witness.close()
    assert len(os.listdir("/proc/self/fd")) == before


# ── the socket's own file ────────────────────────────────────────────────────────────────────────


def started(path: Path) -> None:
    """Starts and closes a listener at this path."""

    async def work() -> None:
        made = Listener(str(path), Silent())
        made.start()
        made.start()  # once is enough
        try:
            assert stat.S_ISSOCK(path.lstat().st_mode)
        finally:
            made.close()
            made.close()

    run(work())


@dataclass
class Silent:
    """A handler that writes down what happens."""

    opens: list[Connection] = field(default_factory=list[Connection])
    closes: list[Connection] = field(default_factory=list[Connection])
    heard: list[bytes] = field(default_factory=list[bytes])
    reasons: list[str] = field(default_factory=list[str])
    answer: Callable[[Connection, bytes], None] | None = None

    def opened(self, connection: Connection) -> None:
        """A connection came."""
        self.opens.append(connection)

    def lines(self, connection: Connection, lines: list[bytes]) -> None:
        """Lines came."""
        self.heard += lines
        if self.answer is not None:
            for one in lines:
                self.answer(connection, one)

    def closed(self, connection: Connection) -> None:
        """A connection ended."""
        self.closes.append(connection)

    def count(self, what: str) -> None:
        """It ended for a reason."""
        self.reasons.append(what)


@pytest.mark.rule("05.5")
@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_the_socket_has_mode_0600_whatever_the_umask(folder: Path, umask: int) -> None:
    async def work(it: Inbox) -> None:
        assert stat.S_IMODE(Path(it.path).lstat().st_mode) == 0o600

    before = os.umask(umask)
    try:
        inbox(folder, work)
    finally:
        os.umask(before)


def test_the_mode_is_right_where_a_descriptor_has_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(fd: int, mode: int) -> None:
        raise OSError

    monkeypatch.setattr(os, "fchmod", refuses)

    async def work(it: Inbox) -> None:
        assert stat.S_IMODE(Path(it.path).lstat().st_mode) == 0o600

    inbox(folder, work)


def test_a_socket_that_nobody_listens_at_is_replaced(folder: Path) -> None:
    path = folder / "inbox.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    started(path)
    assert not path.exists()


@pytest.mark.rule("05.6", "11.11")
def test_what_is_no_stale_socket_of_ours_is_left_alone(folder: Path) -> None:
    path = folder / "inbox.sock"
    elsewhere = folder / "elsewhere.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(elsewhere))
    for make in (
        lambda: path.write_text("a file"),
        lambda: path.symlink_to(elsewhere),
        lambda: path.symlink_to(folder / "nothing"),
        lambda: path.mkdir(),
        lambda: os.mkfifo(path),
    ):
        make()
        before = path.lstat()
        with pytest.raises(UnfitPath, match="no socket"):
            started(path)
        assert path.lstat() == before
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    assert elsewhere.exists()


@root
@pytest.mark.rule("05.6", "11.11")
def test_another_users_socket_is_left_alone(folder: Path) -> None:
    path = folder / "inbox.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    os.chown(path, 65534, 65534)
    with pytest.raises(UnfitPath, match="another user"):
        started(path)
    assert path.lstat().st_uid == 65534


def test_a_socket_that_somebody_listens_at_is_left_alone(folder: Path) -> None:
    path = folder / "inbox.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(UnfitPath, match="another process listens"):
            started(path)
        assert path.exists()


def test_closing_removes_only_its_own_socket(folder: Path) -> None:
    path = folder / "inbox.sock"

    async def work() -> None:
        made = Listener(str(path), Silent())
        made.start()
        path.unlink()
        path.write_text("another's")
        made.close()
        assert path.read_text() == "another's"
        path.unlink()
        made.start()
        path.unlink()
        made.close()

    run(work())


@pytest.mark.rule("05.6")
def test_a_folder_that_others_may_enter_is_unfit(folder: Path) -> None:
    folder.chmod(0o755)
    with pytest.raises(UnfitPath):
        started(folder / "inbox.sock")
    folder.chmod(0o700)
    started(folder / "inbox.sock")


@pytest.mark.rule("05.7")
def test_a_path_of_103_bytes_is_the_longest(folder: Path) -> None:
    room = 103 - len(os.fsencode(folder)) - 1
    started(folder / ("x" * room))
    started(folder / ("ü" * (room // 2)))
    with pytest.raises(UnfitPath, match="103"):
        started(folder / ("x" * (room + 1)))


def test_a_path_that_cannot_be_bound_is_unfit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(sock: socket.socket, path: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(listener, "bind_private", refuses)
    with pytest.raises(UnfitPath, match="No space left"):
        started(folder / "inbox.sock")


@pytest.mark.rule("05.11")
def test_a_forked_child_does_not_hold_the_socket(folder: Path, sleeping: Sleepers) -> None:
    async def work() -> None:
        path = str(folder / "inbox.sock")
        transport = UdsTransport(path)
        await transport.serve(Recorder())
        os.link(path, folder / "kept.sock")  # the same socket, also after it was removed
        sleeping()
        await transport.close()
        with pytest.raises(ConnectionRefusedError):
            Peer(str(folder / "kept.sock"))

    run(work())


# ── the same listener for other lines ────────────────────────────────────────────────────────────


def listening(
    folder: Path,
    handler: Silent,
    test: Callable[[Listener, Clock], Coroutine[Any, Any, None]],
    **more: Any,
) -> None:
    """Runs a test against a listener alone."""

    async def work() -> None:
        clock = Clock()
        made = Listener(str(folder / "control.sock"), handler, clock=clock, **more)
        made.start()
        try:
            await test(made, clock)
        finally:
            made.close()
        assert handler.opens == handler.closes or sorted(map(id, handler.opens)) == sorted(
            map(id, handler.closes)
        )

    run(work())


def test_a_handler_may_close_after_what_it_wrote(folder: Path) -> None:
    def answer(connection: Connection, one: bytes) -> None:
        connection.write(b"no\n")
        connection.close()
        connection.close()

    handler = Silent(answer=answer)

    async def work(made: Listener, clock: Clock) -> None:
        for early in (True, False):
            peer = Peer(made.path)
            if not early:
                await until(lambda: len(made.connections) == 1)
            assert await peer.write(b"one\n").ended() == b"no\n"
            peer.sock.close()
        assert handler.heard == [b"one", b"one"]

    listening(folder, handler, work)


def test_a_handler_may_close_at_once(folder: Path) -> None:
    def answer(connection: Connection, one: bytes) -> None:
        connection.write(b"never seen\n")
        connection.close(after_flush=False)
        connection.write(b"never seen\n")
        connection.flush()
        connection.close()

    async def work(made: Listener, clock: Clock) -> None:
        peer = Peer(made.path)
        assert await peer.write(b"one\n").ended() == b""
        peer.sock.close()

    listening(folder, Silent(answer=answer), work)


def test_more_than_the_kernel_holds_is_sent_as_the_peer_reads(folder: Path) -> None:
    wanted = os.urandom(3_000_000)

    def answer(connection: Connection, one: bytes) -> None:
        connection.stay()
        connection.write(wanted[:2_000_000])
        connection.write(wanted[2_000_000:])
        connection.close()

    handler = Silent(answer=answer)

    async def work(made: Listener, clock: Clock) -> None:
        peer = Peer(made.path).write(b"one\n")
        await until(lambda: made.connections)
        clock.now += 100_000  # a pager that stands still
        made.expire()
        assert await peer.ended() == wanted
        peer.sock.close()

    listening(folder, handler, work)


def test_a_peer_that_leaves_while_it_is_written_to(folder: Path) -> None:
    def answer(connection: Connection, one: bytes) -> None:
        connection.stay()
        connection.write(b"x" * 3_000_000)

    handler = Silent(answer=answer)

    async def work(made: Listener, clock: Clock) -> None:
        peer = Peer(made.path).write(b"one\n")
        await until(lambda: made.connections)
        peer.sock.close()
        await until(lambda: handler.closes)
        handler.closes[0].write(b"x")
        handler.closes[0].flush()

    listening(folder, handler, work)


def test_a_connection_that_may_stay_is_neither_idle_nor_late(folder: Path) -> None:
    def answer(connection: Connection, one: bytes) -> None:
        connection.stay()

    handler = Silent(answer=answer)

    async def work(made: Listener, clock: Clock) -> None:
        peers = [Peer(made.path).write(b"wait\n") for _ in range(2)]
        await until(lambda: len(made.connections) == 2)
        clock.now += 100_000
        made.expire()
        late = Peer(made.path)
        assert await late.ended() == b""
        assert handler.reasons == ["too-many"]
        assert [peer.open for peer in peers] == [True, True]
        for peer in (*peers, late):
            peer.sock.close()
        await until(lambda: not made.connections)

    listening(folder, handler, work, bounds=Bounds(connections=2))


def test_a_line_limit_of_its_own(folder: Path) -> None:
    handler = Silent()

    async def work(made: Listener, clock: Clock) -> None:
        peer = Peer(made.path).write(b"x" * 100 + b"\n")
        await until(lambda: handler.heard)
        assert await peer.write(b"x" * 101).ended() == b""
        assert handler.heard == [b"x" * 100]
        assert handler.reasons == ["too-long"]
        peer.sock.close()

    listening(folder, handler, work, line_limit=100)


def test_whole_lines_before_a_longer_one_in_the_same_read(folder: Path) -> None:
    handler = Silent(answer=lambda connection, one: connection.write(one + b"!\n"))

    async def work(made: Listener, clock: Clock) -> None:
        peer = Peer(made.path).write(b"one\ntwo\n" + b"x" * 101 + b"\nthree\n")
        assert await peer.ended() == b"one!\ntwo!\n"
        assert handler.heard == [b"one", b"two"]
        assert handler.reasons == ["too-long"]
        peer.sock.close()

    listening(folder, handler, work, line_limit=100)


@pytest.mark.rule("11.10")
def test_more_at_once_than_may_be_left_unread(folder: Path) -> None:
    handler = Silent(answer=lambda connection, one: connection.write(b"x" * 3_000_000))

    async def work(made: Listener, clock: Clock) -> None:
        peer = Peer(made.path).write(b"one\n")
        await until(lambda: handler.closes)
        assert handler.reasons == ["unread"]
        assert len(await peer.ended()) < 3_000_000
        peer.sock.close()

    listening(folder, handler, work)


def test_a_peer_that_leaves_while_the_last_words_are_written(folder: Path) -> None:
    def answer(connection: Connection, one: bytes) -> None:
        connection.stay()
        connection.write(b"x" * 3_000_000)
        connection.close()

    handler = Silent(answer=answer)

    async def work(made: Listener, clock: Clock) -> None:
        peer = Peer(made.path).write(b"one\n")
        await until(lambda: made.connections)
        peer.sock.close()
        await until(lambda: handler.closes)
        assert handler.reasons == []

    listening(folder, handler, work)


@pytest.mark.rule("11.14")
def test_last_words_that_nobody_reads_are_not_waited_for(folder: Path) -> None:
    def answer(connection: Connection, one: bytes) -> None:
        connection.write(b"x" * 400_000)
        connection.close()

    handler = Silent(answer=answer)

    async def work(made: Listener, clock: Clock) -> None:
        peer = Peer(made.path).write(b"one\n")
        await until(lambda: made.connections)
        clock.now += 5.1
        made.expire()
        assert handler.reasons == ["too-slow"]
        peer.sock.close()

    listening(folder, handler, work)


def test_a_handler_that_raises_when_a_connection_opens(folder: Path) -> None:
    class Fails(Silent):
        def opened(self, connection: Connection) -> None:
            super().opened(connection)
            if len(self.opens) == 1:
                raise ZeroDivisionError

    handler = Fails(answer=lambda connection, one: connection.write(b"here\n"))

    async def work(made: Listener, clock: Clock) -> None:
        heard: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
        first = Peer(made.path)
        assert await first.ended() == b""
        assert [type(context["exception"]) for context in heard] == [ZeroDivisionError]
        second = Peer(made.path).write(b"there?\n")
        assert await second.line() == b"here\n"
        first.sock.close()
        second.sock.close()

    listening(folder, handler, work)


def test_a_connection_that_is_gone_before_it_is_accepted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = Silent(answer=lambda connection, one: connection.write(b"here\n"))
    accept, failures = listener.Listening.take, [BlockingIOError(), ConnectionAbortedError()]

    def fails(sock: listener.Listening) -> object:
        if failures:
            raise failures.pop()
        return accept(sock)

    monkeypatch.setattr(listener.Listening, "take", fails)

    async def work(made: Listener, clock: Clock) -> None:
        peer = Peer(made.path).write(b"there?\n")
        assert await peer.line() == b"here\n"
        assert failures == []
        peer.sock.close()

    listening(folder, handler, work)


def test_a_connection_whose_peer_cannot_be_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(sock: socket.socket) -> tuple[int, int]:
        raise OSError

    monkeypatch.setattr(listener, "peer_of", unknown)

    async def work(made: Listener, clock: Clock) -> None:
        peer = Peer(made.path).write(b"there?\n")
        assert await peer.ended() == b""
        peer.sock.close()

    handler = Silent()
    listening(folder, handler, work)
    assert (handler.opens, handler.heard) == ([], [])


def test_what_was_expected_keeps_a_connection(folder: Path) -> None:
    def answer(connection: Connection, one: bytes) -> None:
        connection.expect()

    handler = Silent(answer=answer)

    async def work(made: Listener, clock: Clock) -> None:
        peer = Peer(made.path).write(b"one\n").finish()
        await until(lambda: made.connections)
        assert repr(handler.opens[0]).endswith("ended, 1 owed, 0 bytes unsent>")
        handler.opens[0].answer(b"two\n")
        handler.opens[0].flush()
        assert await peer.ended() == b"two\n"
        assert repr(handler.opens[0]).startswith(f"<Connection pid {os.getpid()} closed")
        peer.sock.close()

    listening(folder, handler, work)


@pytest.mark.rule("11.14")
def test_without_descriptors_it_waits_and_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "PAUSE_SECONDS", 0.01)
    handler = Silent(answer=lambda connection, one: connection.write(b"here\n"))

    async def work(made: Listener, clock: Clock) -> None:
        peers = [Peer(made.path), Peer(made.path)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(peer.sock.fileno() for peer in peers) + 1, hard))
        try:
            await until(lambda: len(handler.reasons) >= 2)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert set(handler.reasons) == {"no-descriptor"}
        for peer in peers:
            assert await peer.write(b"there?\n").line() == b"here\n"
            peer.sock.close()

    listening(folder, handler, work)


def test_closing_while_it_waits_for_descriptors(folder: Path) -> None:
    handler = Silent()

    async def work(made: Listener, clock: Clock) -> None:
        peer = Peer(made.path)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (peer.sock.fileno() + 1, hard))
        try:
            await until(lambda: handler.reasons)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        made.close()
        assert await peer.ended() == b""
        peer.sock.close()

    listening(folder, handler, work)
