"""The kept connection to one inbox that acknowledges: lines in order, and the answers to them.

Lines leave in the order of the calls, those of one step of the loop in one piece, and each acknowledgement
finds its line by the message id. Once the writing of a line began and its connection broke, it is asked
again, once, on a new connection, in the order in which it stood (05.23); what is then not answered is
`unknown`, never `failed`, never silently sent a third time.

It never reads a text, and decides nothing about whom it writes to: `links` makes the connections.

Weak: a peer that ends every connection after reading costs each line two connections.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from itertools import islice
from typing import Protocol

from postroom.core import wire
from postroom.errors import WireError
from postroom.transport import Outcome
from postroom.transports.uds.connection import AT_ONCE, READ_BYTES

__all__ = ["Line", "Route"]

CONNECTIONS_A_LINE = 2
"""A line is written to at most so many connections: asked, and asked again (05.23)."""

BUSY_SECONDS = 0.01
"""Between two tries to connect to a peer whose backlog is full."""

WRITE_BYTES = 262_144
"""Handed to the kernel at most at once; its buffer holds about as much."""

QUEUED_BYTES = 8_388_608
"""What may wait for a peer that reads nothing (11.10): two lines of the largest size."""

STRAY_ANSWERS = 1_000
"""Answers to nothing that was asked, after which a connection is ended: late ones are few."""

UNANSWERED = Outcome(status="unknown", detail="it was written, and no answer came in time")
BROKEN = Outcome(status="unknown", detail="the connection broke after the writing began")
QUEUED = Outcome(status="acknowledged", ack="queued")
SLOW = Outcome(status="failed", code="timeout", detail="nothing could be written in time")
REJECTED = Outcome(status="failed", code="connection_failed", detail="the peer closes connections unread")
CROWDED = Outcome(status="failed", code="connection_failed", detail="too much waits for this peer already")


class Owner(Protocol):
    """What a route needs of `links.Links`."""

    loop: asyncio.AbstractEventLoop

    def dial(self, path: str, pid: int, start: str) -> socket.socket | Outcome:
        """Connects after the checks. BlockingIOError: the backlog is full at the moment."""
        ...

    def rested(self, route: Route) -> None:
        """A route has nothing more to carry at the moment."""
        ...

    def ended(self, route: Route) -> None:
        """A route has no connection and no lines any more."""
        ...


class Line:
    """One line on its way to a peer that acknowledges."""

    __slots__ = ("began", "chances", "data", "deadline", "future", "msg_id", "number")

    def __init__(self, data: bytes, msg_id: str, deadline: float, future: asyncio.Future[Outcome]) -> None:
        self.data = data
        self.msg_id = msg_id
        self.deadline = deadline
        self.future = future
        self.number = 0
        self.began = False
        self.chances = CONNECTIONS_A_LINE

    def settle(self, outcome: Outcome) -> None:
        """Says what is known of it, once; a line that had begun never counts as failed."""
        if not self.future.done():
            self.future.set_result(BROKEN if self.began and outcome.status == "failed" else outcome)


class Route:
    """The kept connection to one path, with the lines that wait to be written and to be answered, in order."""

    def __init__(self, links: Owner, path: str, pid: int, start: str, token: str | None) -> None:
        self.path = path
        self.pid = pid
        self.start = start
        self.token = token
        self.used = 0.0
        self.queued = 0
        self.queue: deque[Line] = deque()
        self.waiting: dict[str, list[Line]] = {}
        self._links = links
        self._loop = links.loop
        self._sock: socket.socket | None = None
        self._reader = wire.LineReader()
        self._greeting = b""
        self._offset = 0  # bytes of the queue's first line that are written
        self._number = 0
        self._strays = 0
        self._fresh = True  # nothing was ever read from this connection
        self._writing = False  # the kernel's buffer is full; a writer is registered
        self._scheduled = False
        self._retry: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Whether a line waits to be written or answered."""
        return bool(self.queue or self.waiting)

    def lines(self) -> list[Line]:
        """Every line that waits, in the order of the calls."""
        written = [line for lines in self.waiting.values() for line in lines]
        written.sort(key=lambda line: line.number)
        return [*written, *self.queue]

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def post(self, line: Line) -> None:
        """Takes one line: a lone one leaves at once, those that follow in the same step leave together."""
        if self.queue and self.queued + len(line.data) > QUEUED_BYTES:
            line.settle(CROWDED)
            return
        self._number += 1
        line.number = self._number
        alone = not self.queue and not self.waiting
        self.queue.append(line)
        self.queued += len(line.data)
        if alone:
            self._go()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._later)

    def _later(self) -> None:
        self._scheduled = False
        self._go()

    def _go(self) -> None:
        """Writes what waits, over a new connection where there is none."""
        if self.queue and not self._writing and (self._sock is not None or self._connect()):
            self._write()

    def _connect(self) -> bool:
        """Returns whether there is a connection now; if not, either a retry is set or all lines have failed."""
        if self._retry is not None:
            return False
        try:
            found = self._links.dial(self.path, self.pid, self.start)
        except BlockingIOError:
            self._retry = self._loop.call_later(BUSY_SECONDS, self._try_again)
            return False
        if isinstance(found, Outcome):
            self.end(found)
            return False
        self._sock = found
        self._reader = wire.LineReader()
        self._greeting = wire.encode_auth(self.token) if self.token else b""
        self._fresh = True
        self._strays = 0
        self._loop.add_reader(found.fileno(), self._on_readable)
        return True

    def _try_again(self) -> None:
        self._retry = None
        self._go()

    def _write(self) -> None:
        while self.queue and self._sock is not None:
            data = self._piece()
            try:
                sent = self._sock.send(data, AT_ONCE)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._broke()
                return
            self._account(sent)
            if sent < len(data):
                if not self._writing:
                    self._writing = True
                    self._loop.add_writer(self._sock.fileno(), self._on_writable)
                return
        if self._writing and self._sock is not None:
            self._writing = False
            self._loop.remove_writer(self._sock.fileno())

    def _piece(self) -> bytes | memoryview:
        """What goes to the kernel next."""
        first = self.queue[0].data
        if len(self.queue) == 1 and not self._greeting:
            return memoryview(first)[self._offset :] if self._offset else first
        parts: list[bytes | memoryview] = [self._greeting, memoryview(first)[self._offset :]]
        size = len(first)
        for line in islice(self.queue, 1, None):
            if size >= WRITE_BYTES:
                break
            parts.append(line.data)
            size += len(line.data)
        return b"".join(parts)

    def _account(self, sent: int) -> None:
        """Moves the lines of which `sent` more bytes are written to those that wait for an answer."""
        if self._greeting:
            greeted = min(sent, len(self._greeting))
            self._greeting = self._greeting[greeted:]
            sent -= greeted
        while sent:
            line = self.queue[0]
            line.began = True
            left = len(line.data) - self._offset
            if sent < left:
                self._offset += sent
                return
            sent -= left
            self._offset = 0
            self.queue.popleft()
            self.queued -= len(line.data)
            self.waiting.setdefault(line.msg_id, []).append(line)

    def _on_writable(self) -> None:
        self._write()

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def _on_readable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        try:
            data = sock.recv(READ_BYTES, AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._broke()
            return
        self._fresh = False
        try:
            for answer in self._reader.feed(data):
                self._answered(answer)
        except WireError:
            self._broke()
            return
        if self._strays > STRAY_ANSWERS:
            self._broke()
        elif not self.busy:
            self._links.rested(self)

    def _answered(self, answer: bytes) -> None:
        """Settles the line that this answers, the one that asked first; anything else is ignored."""
        try:
            frame = wire.decode(answer)
        except WireError:
            frame = None
        lines = self.waiting.get(frame.msg_id) if isinstance(frame, wire.AckFrame) else None
        if lines is None or not isinstance(frame, wire.AckFrame):
            self._strays += 1
            return
        line = lines.pop(0)
        if not lines:
            del self.waiting[frame.msg_id]
        if frame.status == "queued" and not frame.reason:
            line.settle(QUEUED)
        else:
            line.settle(Outcome(status="acknowledged", ack=frame.status, reason=frame.reason or ""))

    # ── ends ─────────────────────────────────────────────────────────────────────────────────────

    def _broke(self) -> None:
        """The connection is gone: what waits is asked again in its order, once (05.23)."""
        lines, fresh = self.lines(), self._fresh
        self._disconnect()
        again: list[Line] = []
        for line in lines:
            # A kept connection that the peer had closed long since, with nothing written, costs no chance.
            if line.began or fresh:
                line.chances -= 1
            if line.chances:
                again.append(line)
            else:
                line.settle(REJECTED)
        self._replace([line for line in again if not line.future.done()])
        if self.queue:
            self._go()
        else:
            self._links.ended(self)

    def _replace(self, lines: list[Line]) -> None:
        self.waiting.clear()
        self.queue = deque(lines)
        self.queued = sum(len(line.data) for line in lines)
        self._offset = 0

    def _disconnect(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.remove_reader(sock.fileno())
            if self._writing:
                self._loop.remove_writer(sock.fileno())
            sock.close()
        self._writing = False

    def expire(self, now: float) -> None:
        """Settles the lines whose time is over; a line that got stuck half-written ends the connection."""
        stuck = False
        for line in self.lines():
            if line.deadline <= now:
                stuck = stuck or bool(self._offset and line is self.queue[0])
                line.settle(UNANSWERED if line.began else SLOW)
                self.forget(line)
        if stuck:
            self._broke()

    def forget(self, line: Line) -> None:
        """Nobody waits for this line any more. One that is half written still goes out whole."""
        lines = self.waiting.get(line.msg_id)
        if lines is not None and line in lines:
            lines.remove(line)
            if not lines:
                del self.waiting[line.msg_id]
        elif line in self.queue and not (self._offset and line is self.queue[0]):
            self.queue.remove(line)
            self.queued -= len(line.data)

    def end(self, outcome: Outcome) -> None:
        """Closes the connection; every line that still waits has this outcome."""
        lines = self.lines()
        self._disconnect()
        self._replace([])
        for line in lines:
            line.settle(outcome)
        self._links.ended(self)
