"""Messages between sessions of one process: the reference implementation of the port.

A `Hub` is a dictionary, address → who receives there. What it carries goes through the same codec as on a
socket, so that a program tested over it behaves as it will between processes. It ships for that: tests, the
simulation and examples run on it without a file or a socket.

It never decides, never waits for real time of its own accord, and is as durable as the receiver that answers.

How it fails: as the sockets do. A receiver that breaks the connection (`MemoryChannel.close`) before it has
answered is asked again once (05.23); one that does not answer in time leaves the outcome `unknown`.

Weak: there is no other process, so the evidence is what the transport was made with.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from hmac import compare_digest
from typing import TYPE_CHECKING

from postroom.core import wire
from postroom.errors import BadFrame, LineTooLong
from postroom.transport import SEND_SECONDS, Evidence, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroom.transport import Receiver

__all__ = ["Hub", "MemoryChannel", "MemoryTransport"]

SCHEME = "memory:"

TRIES = 2
"""Asked, and after a broken connection asked again, once (05.23)."""

GONE = Outcome(status="failed", code="peer_unavailable", detail="nobody listens there")
CLOSED = Outcome(status="failed", code="connection_failed", detail="this end has closed")
STRANGER = Outcome(status="failed", code="unsafe_target", detail="another process listens there")
BROKEN = Outcome(status="unknown", detail="the connection broke after the writing began")
UNANSWERED = Outcome(status="unknown", detail="it was written, and no answer came in time")
WRITTEN = Outcome(status="written")


class MemoryChannel:
    """The way back from one receiver to one sender; a `postroom.transport.Channel`.

    Attributes:
        evidence: what the sending transport was made with, and the token that it showed.
        closed: whether either side has ended it.
    """

    __slots__ = ("_answers", "_queued", "closed", "evidence")

    def __init__(self, evidence: Evidence, answers: asyncio.Queue[bytes | None]) -> None:
        self.evidence = evidence
        self.closed = False
        self._answers = answers
        self._queued: list[bytes] = []

    def answer(self, line: bytes) -> None:
        """Queues one line for the sender; nothing when the connection has ended."""
        if not self.closed:
            self._queued.append(line)

    def flush(self) -> None:
        """Hands over what is queued."""
        for line in self._queued:
            self._answers.put_nowait(line)
        self._queued.clear()

    def close(self) -> None:
        """Breaks the connection: what was not flushed is lost, and the sender notices."""
        if not self.closed:
            self.closed = True
            self._queued.clear()
            self._answers.put_nowait(None)


class Hub:
    """Who can be reached in this process. Override `carry` to lose, delay or repeat lines."""

    def __init__(self) -> None:
        self.ends: dict[str, MemoryTransport] = {}

    def carry(self, target: MemoryTransport, line: bytes, channel: MemoryChannel) -> None:
        """Brings one line to its target, at once."""
        target.take(line, channel)


class MemoryTransport:
    """One end at a hub; a `postroom.transport.Transport`.

    Args:
        hub: what connects it to the others.
        name: the part of its address after `memory:`.
        tokens: the tokens it knows → their kind (05.20).
        evidence: what receivers learn of this end; its `pid` is also what `send` compares with.
        user: ends of different users never reach one another (11.11).
    """

    scheme = "memory"
    ordered = True
    durable = True
    same_machine = True
    may_open = True

    def __init__(
        self,
        hub: Hub,
        name: str,
        *,
        tokens: Mapping[str, str] | None = None,
        evidence: Evidence | None = None,
        user: int = 0,
    ) -> None:
        self.address = SCHEME + name
        self.evidence = evidence or Evidence("memory")
        self.user = user
        self._hub = hub
        self._tokens: Mapping[str, str] = tokens if tokens is not None else {}
        self._receiver: Receiver | None = None
        self._closed = False
        self._asking: set[asyncio.Queue[bytes | None]] = set()
        self._channels: set[MemoryChannel] = set()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "serving" if self._receiver else "not serving"
        return f"<MemoryTransport {self.address} {state}>"

    async def serve(self, receiver: Receiver) -> str:
        """Starts to accept for `receiver`; a second call only changes who receives."""
        self._receiver = receiver
        self._closed = False
        self._hub.ends[self.address] = self
        return self.address

    def take(self, line: bytes, channel: MemoryChannel) -> None:
        """Hands what arrived to the receiver, frame by frame, and sends its answers."""
        receiver = self._receiver
        if receiver is None:
            channel.close()
            return
        try:
            lines = wire.LineReader().feed(line)
        except LineTooLong:
            receiver.count("too-long")
            channel.close()
            return
        self._channels.add(channel)
        for one in lines:
            try:
                frame = wire.decode(one)
            except BadFrame:
                receiver.count("bad-frame")
                continue
            if isinstance(frame, wire.UserFrame):
                receiver.arrive(frame, channel)
            elif isinstance(frame, wire.ControlFrame):
                receiver.control(frame, channel)
            elif isinstance(frame, wire.Ignored):
                receiver.count(frame.what)
            else:
                receiver.count("stray-answer")
        channel.flush()

    def told(self, sender: Evidence, token: str | None) -> Evidence:
        """What this end's receiver learns of a sender that shows this token; a wrong one is counted (05.20)."""
        if token is None:
            return sender
        kind = None
        for known, what in self._tokens.items():
            if compare_digest(known.encode(), token.encode(errors="replace")):
                kind = what
        if kind is None and self._receiver is not None:
            self._receiver.count("wrong-token")
        return replace(sender, token=kind)

    def parted(self, channel: MemoryChannel) -> None:
        """The sender has finished with this channel."""
        channel.close()
        self._channels.discard(channel)

    async def send(
        self,
        address: str,
        line: bytes,
        *,
        msg_id: str | None,
        acknowledged: bool,
        pid: int = 0,
        start: str = "",
        token: str | None = None,
        seconds: float = SEND_SECONDS,
    ) -> Outcome:
        """Carries one line; see `postroom.transport.Transport.send`."""
        if self._closed:
            return CLOSED
        until = asyncio.get_running_loop().time() + seconds
        for again in range(TRIES):
            target = self._hub.ends.get(address)
            if target is None:
                return BROKEN if again else GONE
            found = target.evidence
            if target.user != self.user or (pid and found.pid != pid) or (start and found.start != start):
                return BROKEN if again else STRANGER
            answers: asyncio.Queue[bytes | None] = asyncio.Queue()
            channel = MemoryChannel(target.told(self.evidence, token), answers)
            self._asking.add(answers)
            try:
                self._hub.carry(target, line, channel)
                if not acknowledged or msg_id is None:
                    return WRITTEN
                async with asyncio.timeout_at(until):
                    outcome = await acknowledgement(answers, msg_id)
            except TimeoutError:
                return UNANSWERED
            finally:
                self._asking.discard(answers)
                target.parted(channel)
            if outcome is not None or self._closed:
                return outcome or BROKEN
        return BROKEN

    async def close(self) -> None:
        """Stops accepting and ends every connection; a second call does nothing."""
        self._closed = True
        self._receiver = None
        if self._hub.ends.get(self.address) is self:
            del self._hub.ends[self.address]
        for channel in list(self._channels):
            channel.close()
        for answers in self._asking:
            answers.put_nowait(None)


async def acknowledgement(answers: asyncio.Queue[bytes | None], msg_id: str) -> Outcome | None:
    """Waits for the answer to this id and ignores every other; None when the connection broke."""
    while (answer := await answers.get()) is not None:
        try:
            frame = wire.decode(answer.rstrip(b"\n"))
        except BadFrame:
            continue
        if isinstance(frame, wire.AckFrame) and frame.msg_id == msg_id:
            return Outcome(status="acknowledged", ack=frame.status, reason=frame.reason or "")
    return None
