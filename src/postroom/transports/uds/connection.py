"""One accepted connection to a Unix socket: what it may take, and the way back to the other end.

A `Connection` cuts what comes into lines, hands them to its listener's handler, and sends what is answered:
all answers to one read leave in one piece. Reading, handing on and answering happen inside one callback of
the loop (12.24).

It never waits. A peer that writes too long a line, or leaves its answers unread, loses the connection; an
exception of the handler ends it too and goes on to the loop's exception handler (11.14).

Weak: bytes that the kernel has taken count as sent, read or not. A half line may stand for
`STALLED_SECONDS` before its place can be given to somebody else.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Protocol

from postroom.errors import LineTooLong
from postroom.transport import SEND_SECONDS

if TYPE_CHECKING:
    from _socket import socket as BareSocket

    from postroom.transport import Evidence
    from postroom.transports.uds.listener import Listener

__all__ = ["Bounds", "Connection", "Handler"]

FIRST_SECONDS = 30.0
"""From accept to the first valid frame; junk does not extend it (05.15)."""

REST_SECONDS = 600.0
"""How long a kept connection may rest between valid frames (05.15)."""

CONNECTIONS = 64
"""Open at once (05.16). Those that are answered and closed within one callback take no place."""

STALLED_SECONDS = SEND_SECONDS
"""A half line that has not grown for so long counts as idle (05.16): no sender takes longer for a whole one
(05.18), and 64 half lines would otherwise shut everybody out for the whole of FIRST_SECONDS."""

OWED_SECONDS = SEND_SECONDS
"""How long an answer may take after the other end has finished writing: it waits no longer (05.18)."""

UNSENT_BYTES = 262_144
"""What a peer may leave unread of its answers, beyond the kernel's own buffer (11.10)."""

UNSENT_BYTES_STAYING = 67_108_864
"""The same where a request is answered in its own time: an inbox full of the largest messages, for a reader
that stands still, as a pager does."""

AT_ONCE = int(socket.MSG_DONTWAIT)
"""Every read and write: what cannot be done at once is done when the loop says that it can."""

READ_BYTES = 65_536
"""Read at most at once: about a hundred messages, then the others have their turn (12.24)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one connection, and all of them together, may take. Seconds, bytes, and a number."""

    first: float = FIRST_SECONDS
    rest: float = REST_SECONDS
    owed: float = OWED_SECONDS
    stalled: float = STALLED_SECONDS
    connections: int = CONNECTIONS
    unsent: int = UNSENT_BYTES
    unsent_staying: int = UNSENT_BYTES_STAYING


class Handler(Protocol):
    """What a listener hands its connections to. Each method returns at once."""

    def opened(self, connection: Connection) -> None:
        """A process of this user has connected; `connection.evidence` says which."""
        ...

    def lines(self, connection: Connection, lines: list[bytes]) -> None:
        """Whole lines, without their newlines, blank ones left out; at least one."""
        ...

    def closed(self, connection: Connection) -> None:
        """The connection has ended, by either side; nothing reaches the other end any more."""
        ...

    def count(self, what: str) -> None:
        """A connection ended for a reason: `foreign-user`, `too-many`, `too-long`, `too-slow`, `unread`."""
        ...


class Connection:
    """One accepted connection: evidence about the other end, and the way back to it.

    It is a `postroom.transport.Channel`.

    Attributes:
        evidence: what is known of the other end, taken once on accept (05.19).
        owed: answers that are still to come; the connection is kept for them when the other end has
            finished writing.
        deadline: when it ends unless a valid frame comes, on the listener's clock.
        active: when something was last read from it.
        spoken: for the handler: whether a first line has come, which alone may be a token (05.20).
        watched: for the listener: whether the loop watches it for reading.
    """

    __slots__ = (
        "_ended",
        "_half",
        "_limit",
        "_lines",
        "_listener",
        "_out",
        "_pending",
        "_reading",
        "_sock",
        "_unsent",
        "active",
        "deadline",
        "evidence",
        "fd",
        "owed",
        "spoken",
        "watched",
    )

    def __init__(self, listener: Listener, sock: BareSocket, evidence: Evidence, now: float) -> None:
        self.evidence = evidence
        self.fd = sock.fileno()
        self.owed = 0
        self.active = now
        self.deadline = now + listener.bounds.first
        self.spoken = False
        self.watched = False
        self._listener = listener
        self._sock: BareSocket | None = sock
        self._lines = listener.reader()
        self._out: list[bytes] = []
        self._pending: memoryview | None = None  # what a full kernel buffer left; a writer is registered
        self._unsent = 0
        self._limit = listener.bounds.unsent
        self._half = False
        self._reading = False
        self._ended = False

    def __repr__(self) -> str:
        state = "closed" if self._sock is None else "ended" if self._ended else "open"
        return f"<Connection pid {self.evidence.pid} {state}, {self.owed} owed, {self._unsent} bytes unsent>"

    # ── the way back ─────────────────────────────────────────────────────────────────────────────

    def expect(self) -> None:
        """An answer is to come: `answer` will be called once more than otherwise."""
        self.owed += 1

    def answer(self, line: bytes) -> None:
        """Queues one line for the other end, its newline included; nothing when it has gone."""
        if self.owed:
            self.owed -= 1
        if self._sock is not None:
            self._out.append(line)
            self._unsent += len(line)

    def write(self, data: bytes) -> None:
        """Queues any bytes; like `answer`, but it is nothing that was owed."""
        if self._sock is not None:
            self._out.append(data)
            self._unsent += len(data)

    def flush(self) -> None:
        """Sends what is queued, in one piece. While the connection is read it does nothing: the end of
        the read flushes once for all."""
        sock = self._sock
        if self._reading or sock is None:
            return
        if self._pending is not None:
            if self._unsent > self._limit:
                self.drop("unread")
            return
        out = self._out
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            try:
                sent = sock.send(data, AT_ONCE)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.drop()
                return
            self._unsent -= sent
            if self._unsent:
                if self._unsent > self._limit:
                    self.drop("unread")
                    return
                self._pending = memoryview(data)[sent:]
                self._listener.loop.add_writer(self.fd, self._on_writable)
                return
        if self._ended and not self.owed:
            self.drop()

    def close(self, after_flush: bool = True) -> None:
        """Ends it; nothing is read from it any more.

        Args:
            after_flush: first send what is queued, in OWED_SECONDS at most unless it may stay; else that
                is lost.
        """
        if self._sock is None:
            return
        if not after_flush:
            self.drop()
            return
        self.owed = 0
        self._finish_reading()
        self._part()

    # ── how long it may stay ─────────────────────────────────────────────────────────────────────

    def rest(self) -> None:
        """A valid frame came: it may rest so long until the next (05.15)."""
        self.deadline = self.active + self._listener.bounds.rest

    def stay(self) -> None:
        """It may stay until either side ends it, idle or not: a request is answered in its own time."""
        self.deadline = inf
        self._limit = self._listener.bounds.unsent_staying

    def show(self, kind: str) -> None:
        """The other end showed the token of this kind (05.20)."""
        self.evidence = self._listener.witness.with_token(self.evidence, kind)

    def idle(self, now: float) -> bool:
        """Nothing is owed, unsent, or half read, and it was not let stay (05.16)."""
        if self.owed or self._unsent or self._ended or self.deadline == inf:
            return False
        return not self._half or now - self.active >= self._listener.bounds.stalled

    def expire(self) -> None:
        """Its time is over. One that had finished, or said nothing at all, has done nothing wrong (B3)."""
        self.drop("too-slow" if self.owed or self._unsent or self._half else "")

    @property
    def open(self) -> bool:
        """Whether lines may still come from it."""
        return self._sock is not None and not self._ended

    @property
    def closed(self) -> bool:
        """Whether it has ended wholly."""
        return self._sock is None

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def first_read(self) -> None:
        """Reads what lies there already, on accept; if that was all of it, the connection is over at once."""
        if self.read() and not self._half and self.open:
            self.read()

    def read(self) -> bool:
        """Reads once; the loop's reader callback. Returns whether anything came."""
        sock = self._sock
        if sock is None:
            return False
        try:
            data = sock.recv(READ_BYTES, AT_ONCE)
        except BlockingIOError:
            return False
        except OSError:
            self.drop()
            return False
        if data:
            self._take(data)
            return True
        rest = self._lines.rest()
        self._finish_reading()
        self._half = False
        if rest:
            self._hand_on([rest])
        self._part()
        return False

    def _take(self, data: bytes) -> None:
        listener = self._listener
        self.active = listener.clock()
        self._half = data[-1] != 10
        try:
            lines = self._lines.feed(data)
        except LineTooLong:
            self.drop("too-long")
            return
        if lines:
            self._hand_on(lines)
            self.flush()
            if self._lines.too_long:  # these lines came before it
                self.drop("too-long")

    def _hand_on(self, lines: list[bytes]) -> None:
        self._reading = True
        try:
            self._listener.handler.lines(self, lines)
        except Exception:
            self.drop()
            raise
        finally:
            self._reading = False

    def _finish_reading(self) -> None:
        if not self._ended:
            self._ended = True
            listener = self._listener
            if self.deadline != inf:
                self.deadline = min(self.deadline, listener.clock() + listener.bounds.owed)
            if self.watched:
                self.watched = False
                listener.loop.remove_reader(self.fd)

    def _part(self) -> None:
        """Nothing more is read: it ends now, or when what is owed and unsent has left, or at its deadline."""
        self.flush()
        if self._sock is not None:
            self._listener.arm(self.deadline)

    def _on_writable(self) -> None:
        sock, pending = self._sock, self._pending
        if sock is None or pending is None:
            return
        try:
            sent = sock.send(pending, AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            self.drop()
            return
        self._unsent -= sent
        if sent < len(pending):
            self._pending = pending[sent:]
            return
        self._pending = None
        self._listener.loop.remove_writer(self.fd)
        self.flush()

    def drop(self, why: str = "") -> None:
        """Ends it now; what is queued is lost. `why` is counted."""
        sock = self._sock
        if sock is None:
            return
        self._sock = None
        listener = self._listener
        if self._pending is not None:
            listener.loop.remove_writer(self.fd)
            self._pending = None
        if self.watched:
            self.watched = False
            listener.loop.remove_reader(self.fd)
        listener.connections.pop(self.fd, None)
        self._out.clear()
        self._unsent = 0
        sock.close()
        if why:
            listener.handler.count(why)
        listener.handler.closed(self)
