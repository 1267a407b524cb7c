"""A listening Unix socket on the event loop: who connects, and how long they may stay.

Both sockets of a session are a `Listener`: the inbox and the control socket. It knows connections and
lines; what a line means is its handler's. A connection that has said all it has to say within the callback
that accepted it is answered and closed there; only one that goes on gets a reader and a place (12.24).

It never decides about a message, never reads one byte from another user (05.19), and never waits.

How it fails: connections over a bound are ended and counted at the handler, the rest goes on (11.14).
Without descriptors it stops accepting for a second.

Weak: a peer's pid may have been given to another process between its connect and the read of its start
time.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import stat
import time
from _socket import socket as BareSocket
from functools import partial
from math import inf
from typing import TYPE_CHECKING, cast

from postroom.core.wire import MAX_LINE, LineReader
from postroom.errors import UnfitPath
from postroom.state import files
from postroom.transports.uds.connection import Bounds, Connection
from postroom.transports.uds.evidence import Witness, peer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroom.transports.uds.connection import Handler

__all__ = ["Listener"]

ACCEPTS = 16
"""Connections accepted in one callback; then the rest of the loop has its turn (12.24)."""

BACKLOG = 512
"""Connections the kernel keeps for a session that is busy; a sender beyond that asks again within its bound."""

PAUSE_SECONDS = 1.0
"""No accepting for so long when this process has no descriptors left: the listener stays readable meanwhile."""

PATH_BYTES = files.CONTROL_PATH_LIMIT
"""Longest path of a socket: the kernel's limit is 107 on Linux and 103 on macOS (05.7)."""


class Listening(socket.socket):
    """A listening socket that accepts without detours.

    `accept` of the socket module looks up the family and type again and wraps what it made: a tenth of all
    that a short connection costs (12.6).
    """

    def take(self) -> BareSocket:
        """Accepts one connection; raises as `accept` does."""
        # What `accept` itself calls in CPython, which typeshed leaves out.
        accept = cast("Callable[[], tuple[int, object]]", self._accept)  # pyright: ignore
        fd, _address = accept()
        return BareSocket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)


class Listener:
    """Listens at one path and reads every connection to it.

    Args:
        path: where to listen, absolute, at most PATH_BYTES bytes, in a folder that passes the check of 05.6.
        handler: gets the connections.
        uid: the only user who is read; this process's own by default.
        clock: returns seconds; the deadlines are on it.
        bounds: what connections may take.
        line_limit: characters of a line; a longer one ends its connection (05.14).

    Attributes:
        connections: those that are open at this moment, by descriptor, oldest first.
    """

    def __init__(
        self,
        path: str,
        handler: Handler,
        *,
        uid: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        bounds: Bounds | None = None,
        line_limit: int = MAX_LINE,
    ) -> None:
        self.path = path
        self.handler = handler
        self.clock = clock
        self.bounds = bounds or Bounds()
        self.reader = LineReader if line_limit == MAX_LINE else partial(LineReader, line_limit)
        self.connections: dict[int, Connection] = {}
        self.loop: asyncio.AbstractEventLoop
        self.witness = Witness()
        self._uid = os.geteuid() if uid is None else uid
        self._sock: Listening | None = None
        self._made: tuple[int, int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._pause: asyncio.TimerHandle | None = None

    # ── beginning and end ────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Makes the socket, mode 0600, and starts to accept on the running loop; once is enough.

        A socket that lies there, is ours and answers nobody is replaced. Raises UnfitPath for a path that
        is too long, in an unfit folder, or taken by anything else (05.5, 05.6, 05.7).
        """
        if self._sock is not None:
            return
        self.loop = asyncio.get_running_loop()
        path = self.path
        if len(os.fsencode(path)) > PATH_BYTES:
            raise UnfitPath(path, f"longer than {PATH_BYTES} bytes", "Use a shorter XDG_RUNTIME_DIR.")
        files.check_folder(os.path.dirname(path))
        self._clear_stale()
        sock = Listening(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            bind_private(sock, path)
            made = os.lstat(path)
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            raise UnfitPath(path, f"cannot listen there ({error.strerror})") from error
        self._sock = sock
        self._made = (made.st_dev, made.st_ino)
        self._more = select.poll()
        self._more.register(sock.fileno(), select.POLLIN)
        files.close_in_children(sock.fileno())
        self.loop.add_reader(sock.fileno(), self._on_acceptable)

    def _clear_stale(self) -> None:
        """Removes a socket of ours that nobody listens at; anything else at the path is UnfitPath."""
        path = self.path
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise UnfitPath(path, "something that is no socket lies there", "Remove it.")
        if found.st_uid != self._uid:
            raise UnfitPath(path, "another user's socket lies there")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            if probe.connect_ex(path) != errno.ECONNREFUSED:
                raise UnfitPath(path, "another process listens there")
        os.unlink(path)

    def close(self) -> None:
        """Stops accepting, sends what can be sent at once, ends every connection, removes the socket."""
        sock = self._sock
        if sock is None:
            return
        self._sock = None
        self.loop.remove_reader(sock.fileno())
        files.keep_in_children(sock.fileno())
        sock.close()
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()
        self._timer = self._pause = None
        self._timer_at = inf
        for connection in list(self.connections.values()):
            connection.flush()
            connection.drop()
        self.witness.close()
        try:
            found = os.lstat(self.path)
            if (found.st_dev, found.st_ino) == self._made:
                os.unlink(self.path)
        except FileNotFoundError:
            pass

    # ── accepting ────────────────────────────────────────────────────────────────────────────────

    def _on_acceptable(self) -> None:
        more = self._more.poll  # a failing accept costs the kernel a socket each time; a look is cheap
        for turn in range(ACCEPTS):
            listener = self._sock
            if listener is None or (turn and not more(0)):
                return
            try:
                sock = listener.take()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError:
                self._no_descriptor()
                return
            self._admit(sock)

    def _admit(self, sock: BareSocket) -> None:
        try:
            pid, uid = peer_of(sock)
        except OSError:
            sock.close()
            return
        if uid != self._uid:
            sock.close()
            self.handler.count("foreign-user")
            return
        now = self.clock()
        # Asked before anything is read: a message that is kept and then not acknowledged would be worse.
        if len(self.connections) >= self.bounds.connections and self._oldest_idle(now) is None:
            sock.close()
            self.handler.count("too-many")
            return
        connection = Connection(self, sock, self.witness.about(pid), now)
        try:
            self.handler.opened(connection)
        except Exception:
            connection.drop()
            raise
        connection.first_read()
        if not connection.closed:
            self._keep(connection, now)

    def _keep(self, connection: Connection, now: float) -> None:
        """Gives a connection that goes on its place, a reader and a deadline."""
        if self._sock is None:  # the handler closed the listener meanwhile
            connection.drop()
            return
        if len(self.connections) >= self.bounds.connections:
            oldest = self._oldest_idle(now)
            if oldest is not None:
                oldest.drop("too-many")
        self.connections[connection.fd] = connection
        if connection.open:
            connection.watched = True
            self.loop.add_reader(connection.fd, connection.read)
        self.arm(connection.deadline)

    def _oldest_idle(self, now: float) -> Connection | None:
        idle = [connection for connection in self.connections.values() if connection.idle(now)]
        return min(idle, key=lambda connection: connection.active) if idle else None

    def _no_descriptor(self) -> None:
        """The listener stays readable while nothing can be accepted: without a pause the loop would spin."""
        self.handler.count("no-descriptor")
        sock = self._sock
        if sock is not None:
            self.loop.remove_reader(sock.fileno())
            self._pause = self.loop.call_later(PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        self._pause = None
        if self._sock is not None:
            self.loop.add_reader(self._sock.fileno(), self._on_acceptable)

    # ── deadlines ────────────────────────────────────────────────────────────────────────────────

    def arm(self, deadline: float) -> None:
        """Sees to it that `expire` runs at this time at the latest. One timer for all connections: it is
        moved forward only, and not set again once none is open, so that a session at rest sleeps (12.21)."""
        if deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = deadline
            self._timer = self.loop.call_later(max(0.0, deadline - self.clock()), self.expire)

    def expire(self) -> None:
        """Ends the connections whose time is over, and sets the timer for the next one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = inf
        now = self.clock()
        for connection in list(self.connections.values()):
            if connection.deadline <= now:
                connection.expire()
        self.arm(min((connection.deadline for connection in self.connections.values()), default=inf))


def bind_private(sock: socket.socket, path: str) -> None:
    """Binds a socket file of mode 0600. It does not listen yet, so nobody can connect before the mode is right.

    Linux gives the file the mode of the descriptor; elsewhere the file is changed. The process-wide umask
    is left alone: other threads may be making files.
    """
    try:
        os.fchmod(sock.fileno(), 0o600)
    except OSError:
        pass
    sock.bind(path)
    if stat.S_IMODE(os.lstat(path).st_mode) != 0o600:
        os.chmod(path, 0o600)
