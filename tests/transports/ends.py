"""What the transports' tests share: a receiver that writes down what it gets, and bounded waiting."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from postroom.core import wire
from postroom.core.wire import ControlFrame, UserFrame
from postroom.transport import Channel, Evidence

SECONDS = 30.0
"""The bound on every wait: a loaded machine needs seconds, a broken program would wait for ever."""


def run(work: Coroutine[Any, Any, None]) -> None:
    """Runs one test's coroutine; whatever the loop's exception handler hears fails it."""
    heard: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
        async with asyncio.timeout(SECONDS):
            await work

    asyncio.run(watched())
    assert heard == []


async def until(holds: Callable[[], object]) -> None:
    """Lets the loop turn until a condition holds; the test's own bound ends it otherwise."""
    while not holds():
        await asyncio.sleep(0)


async def turns(count: int = 20) -> None:
    """Lets the loop turn a few times, so that what should not happen has its chance."""
    for _ in range(count):
        await asyncio.sleep(0)


def answered(status: str = "queued", reason: str | None = None) -> Callable[[UserFrame, Channel], None]:
    """A way to receive: answers every frame that asks, at once."""

    def answer(frame: UserFrame, channel: Channel) -> None:
        if frame.ack and frame.msg_id:
            channel.answer(wire.encode_ack(frame.msg_id, status, reason))

    return answer


def silent(frame: UserFrame, channel: Channel) -> None:
    """A way to receive: never answers."""


@dataclass
class Recorder:
    """A receiver that writes down what arrives and does with it what the test says."""

    does: Callable[[UserFrame, Channel], None] = field(default_factory=answered)
    frames: list[UserFrame] = field(default_factory=list[UserFrame])
    evidence: list[Evidence] = field(default_factory=list[Evidence])
    controls: list[ControlFrame] = field(default_factory=list[ControlFrame])
    channels: list[Channel] = field(default_factory=list[Channel])
    counts: Counter[str] = field(default_factory=Counter[str])

    def arrive(self, frame: UserFrame, channel: Channel) -> None:
        """Writes a frame down, and does what the test says."""
        self.frames.append(frame)
        self.channels.append(channel)
        self.evidence.append(channel.evidence)
        self.does(frame, channel)

    def control(self, frame: ControlFrame, channel: Channel) -> None:
        """Writes a control frame down."""
        self.controls.append(frame)
        self.evidence.append(channel.evidence)

    def count(self, what: str) -> None:
        """Counts."""
        self.counts[what] += 1

    @property
    def texts(self) -> list[str]:
        """The contents that came, in order."""
        return [frame.message.content for frame in self.frames]

    @property
    def ids(self) -> list[str | None]:
        """The ids that came, in order."""
        return [frame.msg_id for frame in self.frames]


def line(msg_id: str, content: str = "hello", *, ack: bool = True) -> bytes:
    """One user frame as a line."""
    return wire.encode_user(msg_id=msg_id, content=content, acknowledge=ack)


@dataclass
class Clock:
    """Seconds that pass when the test says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class Peer:
    """A plain client socket."""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.setblocking(False)
        try:
            self.sock.connect(path)
        except OSError:
            self.sock.close()
            raise
        self.seen = b""

    def write(self, data: bytes) -> Peer:
        """Writes what fits at once."""
        assert self.sock.send(data) == len(data)
        return self

    async def pour(self, data: bytes) -> bool:
        """Writes all of it; False when the other end closed before that."""
        try:
            await asyncio.get_running_loop().sock_sendall(self.sock, data)
        except ConnectionError:
            return False
        return True

    def finish(self) -> Peer:
        """Half-closes: nothing more will be written."""
        self.sock.shutdown(socket.SHUT_WR)
        return self

    async def line(self) -> bytes:
        """The next line that comes back."""
        while b"\n" not in self.seen:
            more = await asyncio.get_running_loop().sock_recv(self.sock, 65536)
            assert more, f"closed after {self.seen!r}"
            self.seen += more
        first, _, self.seen = self.seen.partition(b"\n")
        return first + b"\n"

    async def ended(self) -> bytes:
        """Everything that comes until the other end closes."""
        with contextlib.suppress(ConnectionError):
            while more := await asyncio.get_running_loop().sock_recv(self.sock, 65536):
                self.seen += more
        return self.seen

    @property
    def open(self) -> bool:
        """Whether the other end has not closed, at this moment."""
        poll = select.poll()
        poll.register(self.sock, select.POLLRDHUP)
        return not poll.poll(0)


def forked(child: Callable[[], None]) -> int:
    """Runs a function in a child process and returns its pid; the child never comes back."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child()
            code = 0
        finally:
            os._exit(code)
    return pid


def reaped(pid: int) -> int:
    """Waits for a child and returns its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Sleepers:
    """Children that live until they are killed."""

    def __init__(self) -> None:
        self.pids: set[int] = set()

    def __call__(self, first: Callable[[], object] = int) -> int:
        """Starts one and returns its pid, once it has done what it does first."""
        ready, tell = os.pipe()

        def child() -> None:
            kept = first()
            os.write(tell, b"!")
            signal.pause()
            del kept

        pid = forked(child)
        self.pids.add(pid)
        os.close(tell)
        os.read(ready, 1)
        os.close(ready)
        return pid

    def kill(self, pid: int) -> None:
        """Kills one and waits for its end."""
        self.pids.discard(pid)
        os.kill(pid, signal.SIGKILL)
        assert reaped(pid) == -signal.SIGKILL
