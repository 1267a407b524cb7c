"""Carrying lines to the Unix sockets of other sessions, and what is known afterwards.

To a peer that acknowledges, connections are kept, one a path (`route`). To any other peer each line has
a connection of its own, which is held open for a moment, so that the peer can still look at this process,
half-closed, and waited for: a clean close is all that such a peer says (05.22).

Before a connection is made, the path must be a socket of ours in a fit folder, no symlink; once it is made,
the process behind it must be this user's, and the expected one where that is known (05.24, 11.11).

How it fails: a line of which nothing was written has `failed`; one whose writing began is `unknown` where
no answer or clean close came. Nothing is raised for what a peer did.

Weak: `written` means that the peer closed, not that it understood.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING

from postroom.core import wire
from postroom.errors import UnfitPath
from postroom.state import files, processes
from postroom.transport import Outcome
from postroom.transports.uds.connection import AT_ONCE, READ_BYTES
from postroom.transports.uds.evidence import peer_of
from postroom.transports.uds.route import BROKEN, BUSY_SECONDS, REJECTED, SLOW, UNANSWERED, Line, Route

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Links", "unsafe"]

KEPT = 64
"""Connections kept at once, the least recently used goes first: as many as a session accepts (05.16)."""

IDLE_SECONDS = 60.0
"""A kept connection that carries nothing for so long is closed; opening one costs little."""

LINGER_SECONDS = 0.15
"""A neighbour may look at the process that wrote to it: the connection stays open so long after (B3)."""

FOLDER_SECONDS = 2.0
"""How long a folder that was found fit is taken to be so."""

WRITTEN = Outcome(status="written")
CLOSED = Outcome(status="failed", code="connection_failed", detail="this end has closed")
GONE = Outcome(status="failed", code="peer_unavailable", detail="nobody listens there")


def unsafe(detail: str) -> Outcome:
    """The outcome for a target that must not be written to (05.24)."""
    return Outcome(status="failed", code="unsafe_target", detail=detail)


class Turn:
    """Lets those who write to one path do it in the order of their calls."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class Links:
    """The connections from this process to the sockets of others. Made within a running loop.

    Args:
        uid: the only user whose sockets are written to.
        clock: returns seconds; the deadlines are on it.
        kept: how many connections are kept.
        idle: seconds after which an unused one is closed.
    """

    def __init__(
        self, *, uid: int, clock: Callable[[], float], kept: int = KEPT, idle: float = IDLE_SECONDS
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._uid = uid
        self._clock = clock
        self._limit = kept
        self._idle = idle
        self._routes: OrderedDict[str, Route] = OrderedDict()
        self._retired: set[Route] = set()
        self._folders: dict[str, tuple[float, str]] = {}
        self._turns: dict[str, Turn] = {}
        self._waits: set[asyncio.Future[bool]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._closed = False

    def __len__(self) -> int:
        return len(self._routes) + len(self._retired)

    # ── to a peer that acknowledges ──────────────────────────────────────────────────────────────

    async def ask(
        self, path: str, data: bytes, msg_id: str, *, pid: int, start: str, token: str | None, seconds: float
    ) -> Outcome:
        """Writes one line over the kept connection and waits for its acknowledgement (05.22, 05.23)."""
        if self._closed:
            return CLOSED
        now = self._clock()
        line = Line(data, msg_id, now + seconds, self.loop.create_future())
        route = self._route(path, pid, start, token)
        route.used = now
        route.post(line)
        if not line.future.done():
            self._arm(line.deadline)
        try:
            return await line.future
        finally:
            if line.future.cancelled():
                route.forget(line)

    def _route(self, path: str, pid: int, start: str, token: str | None) -> Route:
        route = self._routes.get(path)
        if route is not None:
            if route.token == token and (not pid or route.pid == pid) and (not start or route.start == start):
                self._routes.move_to_end(path)
                return route
            self._retire(route)
        while len(self._routes) >= self._limit:
            oldest = next((route for route in self._routes.values() if not route.busy), None)
            self._retire(oldest or next(iter(self._routes.values())))
        route = self._routes[path] = Route(self, path, pid, start, token)
        return route

    def _retire(self, route: Route) -> None:
        """No new line for this one: it ends as soon as its last line is settled."""
        del self._routes[route.path]
        self._retired.add(route)
        if not route.busy:
            route.end(CLOSED)

    def rested(self, route: Route) -> None:
        """A route has nothing more to carry at the moment."""
        if route in self._retired:
            route.end(CLOSED)
        else:
            self._arm(route.used + self._idle)

    def ended(self, route: Route) -> None:
        """A route has no connection and no lines any more."""
        self._retired.discard(route)
        if self._routes.get(route.path) is route:
            del self._routes[route.path]

    def _arm(self, deadline: float) -> None:
        """One timer for everything, moved forward only; none is set where nothing is open (12.21)."""
        if deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = deadline
            self._timer = self.loop.call_later(max(0.0, deadline - self._clock()), self.expire)

    def expire(self) -> None:
        """Settles the lines whose time is over, closes connections that are not used, sets the next timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = inf
        now = self._clock()
        for route in [*self._routes.values(), *self._retired]:
            route.expire(now)
            if not route.busy and (route.used + self._idle <= now or route in self._retired):
                route.end(CLOSED)
        for route in [*self._routes.values(), *self._retired]:
            lines = route.lines()
            self._arm(min(line.deadline for line in lines) if lines else route.used + self._idle)

    # ── to any other peer ────────────────────────────────────────────────────────────────────────

    async def write(
        self,
        path: str,
        data: bytes,
        *,
        pid: int,
        start: str,
        token: str | None,
        seconds: float,
        linger: float = LINGER_SECONDS,
    ) -> Outcome:
        """Writes one line over a connection of its own; a clean close within the time is `written` (05.22)."""
        until = self._clock() + seconds
        turn = self._turns.setdefault(path, Turn())
        turn.users += 1
        sock = None
        try:
            try:
                async with asyncio.timeout(seconds):
                    await turn.lock.acquire()
            except TimeoutError:
                return SLOW
            try:
                found = await self._reach(path, pid, start, until)
                if isinstance(found, Outcome):
                    return found
                sock = found
                outcome = await self._put(sock, (wire.encode_auth(token) if token else b"") + data, until)
            finally:
                turn.lock.release()
            return outcome or await self._part(sock, until, linger)
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[path]
            if sock is not None:
                sock.close()

    async def _reach(self, path: str, pid: int, start: str, until: float) -> socket.socket | Outcome:
        while not self._closed:
            try:
                return self.dial(path, pid, start)
            except BlockingIOError:
                if self._clock() >= until:
                    return SLOW
                await self._ready(None, until=min(until, self._clock() + BUSY_SECONDS))
        return CLOSED

    async def _put(self, sock: socket.socket, data: bytes, until: float) -> Outcome | None:
        """Writes all of it; returns an outcome where that cannot be done."""
        left = memoryview(data)
        while left:
            try:
                left = left[sock.send(left, AT_ONCE) :]
            except BlockingIOError:
                if not await self._ready(sock, writing=True, until=until):
                    return UNANSWERED if len(left) < len(data) else CLOSED if self._closed else SLOW
            except OSError:
                return BROKEN if len(left) < len(data) else REJECTED
        return None

    async def _part(self, sock: socket.socket, until: float, linger: float) -> Outcome:
        """Stays for a moment, half-closes, and waits for the other end to close."""
        outcome = await self._closes(sock, min(until, self._clock() + linger))
        if outcome is None and not self._closed:
            try:
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                return BROKEN
            outcome = await self._closes(sock, until)
        return outcome or UNANSWERED

    async def _closes(self, sock: socket.socket, until: float) -> Outcome | None:
        """Waits until the other end closes, and how; None when it did not. What it says is not listened to."""
        while self._clock() < until and await self._ready(sock, until=until):
            try:
                if not sock.recv(READ_BYTES, AT_ONCE):
                    return WRITTEN
            except BlockingIOError:
                continue
            except OSError:  # it closed with our line unread
                return BROKEN
        return None

    async def _ready(self, sock: socket.socket | None, *, until: float, writing: bool = False) -> bool:
        """Waits until the socket can be used: True; False when the time is over or this end closes."""
        if self._closed:
            return False
        wait: asyncio.Future[bool] = self.loop.create_future()
        timer = self.loop.call_later(max(0.0, until - self._clock()), settle, wait, False)
        self._waits.add(wait)
        if sock is not None:
            (self.loop.add_writer if writing else self.loop.add_reader)(sock.fileno(), settle, wait, True)
        try:
            return await wait
        finally:
            timer.cancel()
            self._waits.discard(wait)
            if sock is not None:
                (self.loop.remove_writer if writing else self.loop.remove_reader)(sock.fileno())

    # ── who is there ─────────────────────────────────────────────────────────────────────────────

    def dial(self, path: str, pid: int, start: str) -> socket.socket | Outcome:
        """Connects, after the checks of 05.24. BlockingIOError: the backlog is full at the moment."""
        try:
            found = os.lstat(path)
        except OSError:
            return GONE
        if not stat.S_ISSOCK(found.st_mode):
            return unsafe("it is no socket")
        if found.st_uid != self._uid:
            return unsafe("it is another user's socket")
        if reason := self._unfit(os.path.dirname(path)):
            return unsafe(f"its folder is unfit: {reason}")
        sock = None
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.setblocking(False)
            sock.connect(path)
            reason = self._stranger(*peer_of(sock), pid, start)
        except OSError as error:
            if sock is not None:
                sock.close()
            if isinstance(error, BlockingIOError):
                raise
            if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
                return GONE
            return Outcome(
                status="failed", code="connection_failed", detail=error.strerror or "cannot connect"
            )
        if reason:
            sock.close()
            return unsafe(reason)
        return sock

    def _stranger(self, found: int, uid: int, pid: int, start: str) -> str:
        """Why the process behind a socket is not the one that is meant; empty when it is."""
        if uid != self._uid:
            return "another user's process listens there"
        if pid and found != pid:
            return "another process listens there"
        if start and processes.start_of(found) != start:
            return "a process that came later has its pid"
        return ""

    def _unfit(self, folder: str) -> str:
        """Why a folder must not be trusted, remembered for a moment; empty when it may."""
        now = self._clock()
        known = self._folders.get(folder)
        if known is not None and now < known[0]:
            return known[1]
        try:
            files.check_folder(folder)
            reason = ""
        except UnfitPath as error:
            reason = error.reason
        if len(self._folders) >= KEPT:
            self._folders.clear()
        self._folders[folder] = (now + FOLDER_SECONDS, reason)
        return reason

    def close(self) -> None:
        """Ends every connection; whoever still waits is told what is known."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for route in [*self._routes.values(), *self._retired]:
            route.end(CLOSED)
        for wait in list(self._waits):
            settle(wait, False)


def settle(wait: asyncio.Future[bool], result: bool) -> None:
    """Ends a wait, if nobody has."""
    if not wait.done():
        wait.set_result(result)
