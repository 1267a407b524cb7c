"""Writing to the sockets of others: who is written to, what is kept, and what is known afterwards.

The other end is a plain listening socket that the test drives, so that it can do what no session of ours
would: read half, answer nonsense, never accept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from postroom.core import wire
from postroom.state import files
from postroom.transport import Outcome
from postroom.transports.uds import UdsTransport, links, route
from postroom.transports.uds.links import Links
from tests.transports.ends import (
    Clock,
    Peer,
    Recorder,
    Sleepers,
    line,
    run,
    turns,
    until,
)

ACK = wire.encode_ack("m1", "queued")
BIG = line("m1", "x" * 900_000)


class Caught:
    """One connection that a plain socket accepted."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.seen = b""

    async def read(self, size: int = 65536) -> bytes:
        """Reads once."""
        more = await asyncio.get_running_loop().sock_recv(self.sock, size)
        self.seen += more
        return more

    async def lines(self, count: int) -> list[bytes]:
        """Reads until so many lines have come."""
        while self.seen.count(b"\n") < count:
            assert await self.read()
        return self.seen.splitlines(keepends=True)

    async def rest(self) -> bytes:
        """Reads until the other end has finished writing."""
        while await self.read():
            pass
        return self.seen

    async def answer(self, data: bytes) -> None:
        """Writes."""
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    def close(self) -> None:
        """Closes."""
        self.sock.close()


class Other:
    """Another program's inbox: a listening socket that does what the test says."""

    def __init__(self, path: Path, backlog: int = 100) -> None:
        self.path = str(path)
        self.address = f"uds:{path}"
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.bind(self.path)
        self.sock.listen(backlog)
        self.sock.setblocking(False)
        self.caught: list[Caught] = []
        self.blocking: list[Peer] = []

    async def catch(self) -> Caught:
        """Accepts one connection."""
        sock, _ = await asyncio.get_running_loop().sock_accept(self.sock)
        sock.setblocking(False)
        self.caught.append(Caught(sock))
        return self.caught[-1]

    def none_came(self) -> bool:
        """Whether nobody waits to be accepted."""
        try:
            self.caught.append(Caught(self.sock.accept()[0]))
        except BlockingIOError:
            return True
        return False

    def full(self) -> None:
        """Takes a place in the backlog."""
        self.blocking.append(Peer(self.path))

    def close(self) -> None:
        """Closes everything; the socket's file stays, as after a crash."""
        self.sock.close()
        for peer in self.blocking:
            peer.sock.close()
        for one in self.caught:
            one.close()


@contextlib.asynccontextmanager
async def other(folder: Path, backlog: int = 100) -> AsyncGenerator[tuple[Other, UdsTransport]]:
    """Another program's inbox, and a transport to write to it."""
    made, end = Other(folder / "other.sock", backlog), UdsTransport(None)
    try:
        yield made, end
    finally:
        await end.close()
        made.close()


def sending(
    end: UdsTransport, address: str, data: bytes = b"", msg_id: str = "m1", **more: Any
) -> asyncio.Task[Outcome]:
    """Starts to send one line to a peer that acknowledges."""
    more.setdefault("acknowledged", True)
    return asyncio.ensure_future(end.send(address, data or line(msg_id), msg_id=msg_id, **more))


root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")

# ── who is written to ────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.24", "11.11")
@pytest.mark.parametrize("acknowledged", [True, False])
def test_what_is_no_socket_of_ours_in_a_fit_folder_is_not_written_to(
    folder: Path, acknowledged: bool
) -> None:
    async def work() -> None:
        inner = folder / "inner"
        inner.mkdir(mode=0o700)
        made, end = Other(inner / "other.sock"), UdsTransport(None)
        (inner / "link.sock").symlink_to(made.path)
        (inner / "file.sock").write_text("")
        os.mkfifo(inner / "fifo.sock")
        (folder / "linked").symlink_to(inner)

        async def code(address: str) -> str:
            outcome = await end.send(address, line("m1"), msg_id="m1", acknowledged=acknowledged)
            assert outcome.status == "failed"
            assert str(folder) not in outcome.detail
            return outcome.code

        for name in ("link.sock", "file.sock", "fifo.sock"):
            assert await code(f"uds:{inner}/{name}") == "unsafe_target"
        assert await code(f"uds:{folder}/linked/other.sock") == "unsafe_target"
        assert await code("uds:other.sock") == "unsafe_target"
        assert await code(f"memory:{made.path}") == "unsafe_target"
        assert await code(f"uds:{inner}/nothing.sock") == "peer_unavailable"
        assert await code(f"uds:{folder}/none/other.sock") == "peer_unavailable"
        inner.chmod(0o755)
        end = UdsTransport(None)
        assert await code(made.address) == "unsafe_target"
        assert made.none_came()
        made.close()
        inner.chmod(0o700)
        end = UdsTransport(None)
        assert await code(made.address) == "peer_unavailable"  # nobody listens there any more

    run(work())


@pytest.mark.rule("11.11")
def test_a_socket_file_of_another_user_is_not_connected_to(folder: Path) -> None:
    async def work() -> None:
        made = Other(folder / "other.sock")
        end = UdsTransport(None, uid=os.geteuid() + 1)
        outcome = await sending(end, made.address)
        assert (outcome.code, outcome.detail) == ("unsafe_target", "it is another user's socket")
        assert made.none_came()
        made.close()
        await end.close()

    run(work())


@root
@pytest.mark.rule("05.24", "11.11")
def test_a_process_of_another_user_behind_our_socket_gets_nothing(folder: Path, sleeping: Sleepers) -> None:
    async def work() -> None:
        path = folder / "other.sock"
        folder.chmod(0o777)

        def child() -> socket.socket:
            os.setgid(65534)
            os.setuid(65534)
            sock = socket.socket(socket.AF_UNIX)
            sock.bind(str(path))
            sock.listen()
            return sock

        pid = sleeping(first=child)
        os.chown(path, os.geteuid(), os.getegid())
        folder.chmod(0o700)
        end = UdsTransport(None)
        for acknowledged in (True, False):
            outcome = await sending(end, f"uds:{path}", acknowledged=acknowledged, pid=pid)
            assert outcome == Outcome(
                status="failed", code="unsafe_target", detail="another user's process listens there"
            )
        await end.close()

    run(work())


@pytest.mark.rule("05.24")
def test_a_later_process_of_the_same_pid_gets_nothing(folder: Path) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            outcome = await sending(end, made.address, pid=os.getpid(), start="1")
            assert (outcome.code, "later" in outcome.detail) == ("unsafe_target", True)
            assert (await made.catch()).sock.recv(100) == b""

    run(work())


def test_a_folder_is_looked_at_again_after_a_moment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(files, "check_folder", looked.append)

    async def work() -> None:
        clock = Clock()
        made = [Other(folder / f"{number}.sock") for number in range(3)]
        end = UdsTransport(None, clock=clock)
        for one in made:
            await sending(end, one.address, seconds=0.0)
        assert looked == [str(folder)]
        clock.now += 2
        await sending(end, made[0].address, msg_id="m2", seconds=0.0, token="a" * 32)
        assert looked == [str(folder)] * 2
        for one in made:
            one.close()
        await end.close()

    run(work())


def test_many_folders_are_not_remembered_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "KEPT", 2)
    looked: list[str] = []
    monkeypatch.setattr(files, "check_folder", looked.append)

    async def work() -> None:
        end = UdsTransport(None, clock=Clock())
        made: list[Other] = []
        for name in ("a", "b", "c"):
            (folder / name).mkdir(mode=0o700)
            made.append(Other(folder / name / "x.sock"))
            await sending(end, made[-1].address, seconds=0.0)
        await sending(end, made[0].address, seconds=0.0, token="a" * 32)
        assert [Path(name).name for name in looked] == ["a", "b", "c", "a"]
        await end.close()
        for one in made:
            one.close()

    run(work())


def test_what_cannot_be_connected_to_has_failed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(sock: socket.socket) -> tuple[int, int]:
        raise OSError(107, "Transport endpoint is not connected")

    monkeypatch.setattr(links, "peer_of", refuses)

    async def work() -> None:
        async with other(folder) as (made, end):
            outcome = await sending(end, made.address)
            assert (outcome.status, outcome.code) == ("failed", "connection_failed")

    run(work())


def test_no_descriptor_is_left_to_connect_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):

            def none(*_: object) -> socket.socket:
                raise OSError(24, "Too many open files")

            with monkeypatch.context() as patched:
                patched.setattr(socket, "socket", none)
                outcome = await end.send(made.address, line("m1"), msg_id="m1", acknowledged=True)
            assert (outcome.code, outcome.detail) == ("connection_failed", "Too many open files")

    run(work())


# ── what is kept ─────────────────────────────────────────────────────────────────────────────────


def test_one_connection_serves_many_messages(folder: Path) -> None:
    async def work() -> None:
        recorder = Recorder()
        server, end = UdsTransport(str(folder / "a.sock")), UdsTransport(None)
        address = await server.serve(recorder)
        for number in range(5):
            assert (await sending(end, address, msg_id=f"m{number}")).ack == "queued"
        assert len({id(channel) for channel in recorder.channels}) == 1
        await server.close()
        await end.close()

    run(work())


def test_lines_of_one_step_leave_together_and_the_token_first(folder: Path) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            tasks = [sending(end, made.address, msg_id=f"m{number}", token="a" * 32) for number in range(9)]
            caught = await made.catch()
            assert await caught.lines(10) == [
                wire.encode_auth("a" * 32),
                *[line(f"m{number}") for number in range(9)],
            ]
            await caught.answer(b"".join(wire.encode_ack(f"m{number}", "queued") for number in range(9)))
            assert {(await task).ack for task in tasks} == {"queued"}
            assert made.none_came()

    run(work())


def test_the_same_bytes_twice_are_two_lines(folder: Path) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            same = line("m1", "the same")
            tasks = [sending(end, made.address, msg_id="m0")]
            tasks += [sending(end, made.address, same) for _ in range(2)]
            tasks.append(sending(end, made.address, msg_id="m2"))
            caught = await made.catch()
            assert await caught.lines(4) == [line("m0"), same, same, line("m2")]
            await caught.answer(b"".join(wire.encode_ack(one, "queued") for one in ("m0", "m1", "m1", "m2")))
            assert {(await task).ack for task in tasks} == {"queued"}

    run(work())


@pytest.mark.parametrize("more", [{"token": "a" * 32}, {"pid": os.getpid()}], ids=["token", "pid"])
def test_another_token_or_process_takes_another_connection(folder: Path, more: dict[str, Any]) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            first = sending(end, made.address)
            one = await made.catch()
            await one.lines(1)
            second = sending(end, made.address, msg_id="m2", **more)
            two = await made.catch()
            await two.answer(wire.encode_ack("m2", "queued"))
            assert (await second).ack == "queued"
            await one.answer(ACK)  # the first connection still carries what it was given
            assert (await first).ack == "queued"
            assert await one.rest() == line("m1")  # and then it ends
            third = sending(end, made.address, msg_id="m3", **more)
            await two.lines(2 + ("token" in more))
            await two.answer(wire.encode_ack("m3", "queued"))
            assert (await third).ack == "queued"

    run(work())


def test_a_connection_without_lines_is_let_go_for_another_token(folder: Path) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            first = sending(end, made.address)
            one = await made.catch()
            await one.lines(1)
            await one.answer(ACK)
            await first
            second = sending(end, made.address, msg_id="m2", token="a" * 32)
            two = await made.catch()
            assert await one.rest() == line("m1")
            await two.answer(wire.encode_ack("m2", "queued"))
            assert (await second).ack == "queued"

    run(work())


@contextlib.contextmanager
def servers(folder: Path, count: int) -> Generator[list[Other]]:
    """So many listening sockets."""
    made = [Other(folder / f"{number}.sock") for number in range(count)]
    try:
        yield made
    finally:
        for one in made:
            one.close()


def linked(clock: Callable[[], float], **more: Any) -> Links:
    """Links alone."""
    return Links(uid=os.geteuid(), clock=clock, **more)


def asked(made: Links, to: Other, msg_id: str = "m1", seconds: float = 5.0) -> asyncio.Task[Outcome]:
    """Asks over links alone."""
    return asyncio.ensure_future(
        made.ask(to.path, line(msg_id), msg_id, pid=0, start="", token=None, seconds=seconds)
    )


def test_the_least_recently_used_connection_goes_first(folder: Path) -> None:
    async def work() -> None:
        made = linked(Clock(), kept=2)
        with servers(folder, 4) as others:
            for one in (others[0], others[1]):
                task = asked(made, one)
                caught = await one.catch()
                await caught.lines(1)
                await caught.answer(ACK)
                assert (await task).ack == "queued"
            again = asked(made, others[0], "m2")
            await others[0].caught[0].lines(2)
            third = asked(made, others[2])  # takes the place of the one that rests
            assert await others[1].caught[0].rest() == line("m1")
            caught = await others[2].catch()
            await caught.lines(1)
            fourth = asked(made, others[3])  # none rests: the oldest still answers, and ends then
            await turns()
            assert len(made) == 3
            await others[0].caught[0].answer(wire.encode_ack("m2", "queued"))
            assert (await again).ack == "queued"
            assert await others[0].caught[0].rest()
            assert len(made) == 2
            made.close()
            assert [(await third).status, (await fourth).status] == ["unknown", "unknown"]

    run(work())


@pytest.mark.rule("12.21")
def test_an_unused_connection_is_closed_and_no_timer_is_left(folder: Path) -> None:
    async def work() -> None:
        clock = Clock()
        made = linked(clock)
        loop: Any = asyncio.get_running_loop()
        armed: list[float] = []
        call_at = loop.call_at

        def recording(when: float, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
            armed.append(when)
            return call_at(when, *args, **kwargs)

        loop.call_at = recording
        with servers(folder, 1) as (one,):
            task = asked(made, one)
            caught = await one.catch()
            await caught.lines(1)
            await caught.answer(ACK)
            assert (await task).ack == "queued"
            for number in range(1, 3):
                task = asked(made, one, f"m{number}")
                await caught.lines(number + 1)
                await caught.answer(wire.encode_ack(f"m{number}", "queued"))
                assert (await task).ack == "queued"
            assert len(armed) == 1  # the first line's deadline; nothing is armed a message
            clock.now += 5
            made.expire()
            assert len(armed) == 2
            assert len(made) == 1
            clock.now += 55
            made.expire()
            assert len(made) == 0
            assert await caught.rest()
            clock.now += 1000
            made.expire()
            assert len(armed) == 2
            made.close()

    run(work())


def test_a_connection_that_the_peer_closed_meanwhile_costs_nothing(folder: Path) -> None:
    async def work() -> None:
        recorder = Recorder()
        path = str(folder / "a.sock")
        first, end = UdsTransport(path), UdsTransport(None)
        address = await first.serve(recorder)
        assert (await sending(end, address)).ack == "queued"
        await first.close()
        second = UdsTransport(path)  # in the same step of the loop: nobody has noticed the end yet
        await second.serve(recorder)
        assert (await sending(end, address, msg_id="m2")).ack == "queued"
        await second.close()
        await turns()
        third = UdsTransport(path)  # here the end was noticed
        await third.serve(recorder)
        assert (await sending(end, address, msg_id="m3")).ack == "queued"
        assert recorder.ids == ["m1", "m2", "m3"]
        await third.close()
        await end.close()

    run(work())


# ── what is known ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.23", "11.6")
def test_after_a_break_the_lines_are_asked_again_in_their_order(folder: Path) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            tasks = [sending(end, made.address, msg_id=f"m{number}") for number in range(4)]
            first = await made.catch()
            await first.lines(4)
            await first.answer(wire.encode_ack("m1", "queued"))
            await until(tasks[1].done)
            first.close()
            second = await made.catch()
            tasks.append(sending(end, made.address, msg_id="m9"))
            assert await second.lines(4) == [line(msg_id) for msg_id in ("m0", "m2", "m3", "m9")]
            second.close()
            third = await made.catch()  # for the one that had not been asked again
            assert await third.lines(1) == [line("m9")]
            await third.answer(wire.encode_ack("m9", "queued"))
            assert [(await task).status for task in tasks] == [
                "unknown",
                "acknowledged",
                "unknown",
                "unknown",
                "acknowledged",
            ]

    run(work())


@pytest.mark.rule("05.23")
def test_a_break_in_the_middle_of_a_line_is_ambiguous_too(folder: Path) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            task = sending(end, made.address, BIG)
            first = await made.catch()
            await first.read(1000)
            first.close()
            second = await made.catch()
            assert (await second.lines(1))[0] == BIG  # from its beginning
            await second.answer(ACK)
            assert (await task).ack == "queued"

    run(work())


@pytest.mark.rule("05.23")
def test_a_peer_that_is_gone_after_the_writing_began_leaves_unknown(folder: Path) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            task = sending(end, made.address)
            (await made.catch()).close()
            Path(made.path).unlink()
            outcome = await task
            assert (outcome.status, outcome.code) == ("unknown", "")

    run(work())


def test_a_peer_that_closes_everything_unread_has_not_been_written_to(folder: Path) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            # A line that is longer than the kernel holds, behind one that was never read.
            def gone(*_: object) -> int:
                raise BrokenPipeError

            task: asyncio.Task[Outcome]
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(socket.socket, "send", gone)
                task = sending(end, made.address)
                outcome = await task
            assert (outcome.status, outcome.code) == ("failed", "connection_failed")
            assert [made.none_came() for _ in range(3)] == [False, False, True]  # twice, and no more

    run(work())


@pytest.mark.rule("05.18")
@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_backlog_that_stays_full_is_a_timeout(folder: Path, acknowledged: bool) -> None:
    async def work() -> None:
        async with other(folder, backlog=0) as (made, end):
            made.full()
            with pytest.raises(BlockingIOError):
                made.full()
            task = sending(end, made.address, acknowledged=acknowledged, seconds=0.05)
            if acknowledged:
                waiting = sending(end, made.address, msg_id="m2", seconds=0.05)
                assert (await waiting).code == "timeout"
            outcome = await task
            assert (outcome.status, outcome.code) == ("failed", "timeout")

    run(work())


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_full_backlog_is_tried_again_within_the_time(folder: Path, acknowledged: bool) -> None:
    async def work() -> None:
        async with other(folder, backlog=0) as (made, end):
            made.full()
            tasks = [
                sending(end, made.address, msg_id=f"m{number}", acknowledged=acknowledged)
                for number in (1, 2)
            ]
            await turns()
            (await made.catch()).close()
            caught = await made.catch()
            if acknowledged:
                assert await caught.lines(2) == [line("m1"), line("m2")]
                await caught.answer(ACK + wire.encode_ack("m2", "queued"))
            else:
                assert await caught.lines(1) == [line("m1")]
                caught.close()
                caught = await made.catch()
                assert await caught.lines(1) == [line("m2")]
                caught.close()
            assert {(await task).status for task in tasks} == {"acknowledged" if acknowledged else "written"}

    run(work())


@pytest.mark.rule("05.18", "05.23")
@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_peer_that_accepts_and_reads_nothing(folder: Path, acknowledged: bool) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            for data in (line("m1"), BIG):
                outcome = await sending(end, made.address, data, acknowledged=acknowledged, seconds=0.03)
                assert (outcome.status, outcome.code) == ("unknown", "")
                assert "no answer" in outcome.detail

    run(work())


def test_a_line_that_is_stuck_half_written_makes_way(folder: Path) -> None:
    async def work() -> None:
        clock = Clock()
        made = linked(clock)
        with servers(folder, 1) as (one,):
            stuck = asyncio.ensure_future(
                made.ask(one.path, BIG, "m1", pid=0, start="", token=None, seconds=1.0)
            )
            first = await one.catch()
            waiting = asked(made, one, "m2", seconds=9.0)
            never = asked(made, one, "m3", seconds=0.5)
            await turns()
            clock.now += 2
            made.expire()
            assert [(await stuck).status, (await never).code] == ["unknown", "timeout"]
            second = await one.catch()
            assert await second.lines(1) == [line("m2")]
            await second.answer(wire.encode_ack("m2", "queued"))
            assert (await waiting).ack == "queued"
            assert len(await first.rest()) < len(BIG)
            made.close()

    run(work())


def test_a_cancelled_line_that_is_half_written_goes_out_whole(folder: Path) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            half = sending(end, made.address, BIG)
            caught = await made.catch()
            unbegun, last = sending(end, made.address, msg_id="m2"), sending(end, made.address, msg_id="m3")
            await turns()
            half.cancel()
            unbegun.cancel()
            await turns()
            assert await caught.lines(2) == [BIG, line("m3")]
            await caught.answer(ACK + wire.encode_ack("m3", "queued"))
            assert (await last).ack == "queued"

    run(work())


def test_a_cancelled_line_of_several_with_one_id(folder: Path) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            first, second = sending(end, made.address), sending(end, made.address)
            caught = await made.catch()
            await caught.lines(2)
            first.cancel()
            await turns()
            await caught.answer(ACK)
            assert (await second).ack == "queued"

    run(work())


@pytest.mark.rule("11.10")
def test_what_waits_for_one_peer_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "QUEUED_BYTES", 2_000_000)

    async def work() -> None:
        async with other(folder) as (made, end):
            tasks = [sending(end, made.address, BIG, msg_id="m1") for _ in range(3)]
            outcome = await tasks[2]
            assert (outcome.status, outcome.code) == ("failed", "connection_failed")
            caught = await made.catch()
            await caught.lines(2)
            await caught.answer(ACK * 2)
            assert [(await task).ack for task in tasks[:2]] == ["queued", "queued"]

    run(work())


@pytest.mark.rule("11.14")
@pytest.mark.parametrize(
    "nonsense",
    [wire.encode_ack("m9", "queued") * 11, b"x\n" * 11, b"x" * (wire.MAX_LINE + 1)],
    ids=["acknowledgements", "lines", "one line"],
)
def test_a_peer_that_answers_nonsense_without_end_is_left(
    folder: Path, nonsense: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "STRAY_ANSWERS", 10)

    async def work() -> None:
        async with other(folder) as (made, end):
            task = sending(end, made.address)
            for _ in range(2):
                caught = await made.catch()
                await caught.lines(1)
                with contextlib.suppress(ConnectionError):
                    await caught.answer(nonsense)
            assert (await task).status == "unknown"
            assert made.none_came()

    run(work())


# ── to a neighbour ───────────────────────────────────────────────────────────────────────────────


def writing(
    made: Links, to: Other, *, linger: float, seconds: float = 5.0, token: str | None = None
) -> asyncio.Task[Outcome]:
    """Writes to a neighbour over links alone."""
    return asyncio.ensure_future(
        made.write(to.path, line("m1"), pid=0, start="", token=token, seconds=seconds, linger=linger)
    )


@pytest.mark.rule("05.22")
def test_a_neighbour_is_written_to_half_closed_and_waited_for(folder: Path) -> None:
    async def work() -> None:
        made = linked(asyncio.get_running_loop().time)
        with servers(folder, 1) as (one,):
            task = writing(made, one, linger=0.0, token="a" * 32)
            caught = await one.catch()
            assert await caught.rest() == wire.encode_auth("a" * 32) + line("m1")
            await turns()
            assert not task.done()  # not before the peer has closed
            caught.close()
            assert await task == Outcome(status="written")
            made.close()

    run(work())


def test_a_neighbour_may_look_at_us_before_we_finish_and_close_when_it_likes(folder: Path) -> None:
    async def work() -> None:
        made = linked(asyncio.get_running_loop().time)
        with servers(folder, 1) as (one,):
            task = writing(made, one, linger=3600.0, seconds=7200.0)
            caught = await one.catch()
            assert await caught.lines(1) == [line("m1")]
            await turns()
            with pytest.raises(BlockingIOError):
                caught.sock.recv(1)  # it stays open
            caught.close()
            assert await task == Outcome(status="written")
            made.close()

    run(work())


@pytest.mark.rule("05.22", "05.23")
@pytest.mark.parametrize("when", ["at once", "after the end"])
def test_a_neighbour_that_closes_unread_leaves_unknown(folder: Path, when: str) -> None:
    async def work() -> None:
        made = linked(asyncio.get_running_loop().time)
        with servers(folder, 1) as (one,):
            task = writing(made, one, linger=3600.0 if when == "at once" else 0.0, seconds=7200.0)
            caught = await one.catch()
            await turns()
            caught.close()
            assert (await task).status == "unknown"
            made.close()

    run(work())


def test_a_neighbour_that_resets_while_it_is_written_to(folder: Path) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            task = sending(end, made.address, BIG, acknowledged=False)
            caught = await made.catch()
            await caught.read(1000)
            caught.close()
            assert (await task).status == "unknown"

    run(work())


def test_a_neighbour_that_refuses_every_byte(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> int:
        raise BrokenPipeError

    async def work() -> None:
        async with other(folder) as (made, end):
            with monkeypatch.context() as patched:
                patched.setattr(socket.socket, "send", gone)
                outcome = await sending(end, made.address, acknowledged=False)
            assert (outcome.status, outcome.code) == ("failed", "connection_failed")

    run(work())


def test_a_neighbour_that_cannot_be_half_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise OSError(107, "not connected")

    async def work() -> None:
        made = linked(asyncio.get_running_loop().time)
        with servers(folder, 1) as (one,), monkeypatch.context() as patched:
            patched.setattr(socket.socket, "shutdown", gone)
            assert (await writing(made, one, linger=0.0)).status == "unknown"
            made.close()

    run(work())


def test_a_neighbour_takes_a_long_line_bit_by_bit(folder: Path) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            task = sending(end, made.address, BIG, acknowledged=False)
            caught = await made.catch()
            assert await caught.lines(1) == [BIG]
            caught.close()
            assert await task == Outcome(status="written")

    run(work())


@pytest.mark.rule("05.18")
def test_a_neighbour_that_never_closes_and_one_that_never_stops_talking(folder: Path) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            still = sending(end, made.address, acknowledged=False, seconds=0.03)
            await made.catch()
            assert (await still).status == "unknown"
            task = sending(end, made.address, acknowledged=False, seconds=0.03)
            caught = await made.catch()
            with contextlib.suppress(ConnectionError):
                while not task.done():
                    await caught.answer(b"la\n" * 1000)
            assert (await task).status == "unknown"

    run(work())


def test_who_waits_for_its_turn_waits_within_its_time(folder: Path) -> None:
    async def work() -> None:
        async with other(folder) as (made, end):
            first = sending(end, made.address, BIG, acknowledged=False)
            await made.catch()
            second = await sending(end, made.address, acknowledged=False, seconds=0.02)
            assert (second.status, second.code) == ("failed", "timeout")
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first

    run(work())


@pytest.mark.parametrize(
    ("data", "backlog", "expected"),
    [(line("m1"), 100, "unknown"), (BIG, 100, "unknown"), (line("m1"), 0, "failed")],
    ids=["written", "half written", "not connected"],
)
def test_closing_tells_whoever_writes_to_a_neighbour(
    folder: Path, data: bytes, backlog: int, expected: str
) -> None:
    async def work() -> None:
        async with other(folder, backlog) as (made, end):
            made.full()
            task = sending(end, made.address, data, acknowledged=False)
            await turns()
            assert not task.done()
            await end.close()
            assert (await task).status == expected

    run(work())


def test_links_that_closed_carry_nothing(folder: Path) -> None:
    async def work() -> None:
        made = linked(Clock())
        made.close()
        with servers(folder, 1) as (one,):
            assert (await asked(made, one)).code == "connection_failed"
            assert (await writing(made, one, linger=0.0)).code == "connection_failed"
            assert one.none_came()

    run(work())


def test_a_transport_without_a_path_only_sends(folder: Path) -> None:
    async def work() -> None:
        end = UdsTransport(None)
        with pytest.raises(ValueError, match="only sends"):
            await end.serve(Recorder())
        assert repr(end) == "<UdsTransport without an inbox not serving>"
        await end.close()
        assert repr(end) == "<UdsTransport without an inbox closed>"
        served = UdsTransport(str(folder / "a.sock"))
        await served.serve(Recorder())
        assert repr(served) == f"<UdsTransport {folder}/a.sock serving>"
        await served.close()

    run(work())
