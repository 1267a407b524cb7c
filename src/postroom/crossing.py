"""Across to other programs: a `Transport` over ours that speaks a neighbour's words where a neighbour listens.

LEAVING: a line to an address in a neighbour's space is said in that program's words (`neighbour.leave`), with the token
that it wants, and from this session's socket there; every other line passes through untouched.

ARRIVING: for each neighbour that `publishTo` names, this process listens at a second socket in that program's own
folder, because it answers only there and only to the process that wrote to it (05.28). What comes in is handed to the
same receiver: it meets the same ladder, with the same evidence about its process (09.15). A message that gives this
session's own second address as its sender's is handed on as one from this session's own address, which is turned away.

ONE SESSION A PROCESS is shown to each neighbour, for its records are named by pid; a second one says so.

It never reads a text, decides nothing, and opens no socket that `publishTo` does not ask for.

How it fails: a socket or record that cannot be made is a sentence in the neighbourhood's problems, and the session goes
on without; a line that a neighbour has no words for is a failed `Outcome` with the reason.

Weak: where this session has no socket among a neighbour's, what it sends there goes one way.
"""

from __future__ import annotations

import os
import secrets
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, NamedTuple

from postroom import transports
from postroom.core import envelope, wire
from postroom.core.address import uds_address
from postroom.errors import BadFrame, PostroomError
from postroom.neighbourhood import Post
from postroom.transport import SEND_SECONDS, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroom.neighbour import Neighbour
    from postroom.neighbourhood import Neighbourhood
    from postroom.transport import Receiver, Transport
    from postroom.transports.uds import Connection, Listener

__all__ = ["Crossing", "SecondInbox"]

_taken: dict[tuple[str, str], Crossing] = {}
"""(program, folder of its records) → whose session of this process is shown there."""


class Second(NamedTuple):
    """A second socket that listens."""

    neighbour: Neighbour
    listener: Listener
    address: str


class SecondInbox:
    """What the lines on a second socket mean; a `listener.Handler`.

    Args:
        receiver: gets the frames.
        neighbour: whose words they are.
        token: what whoever connects may show, or must where `neighbour.needs_token`.
        own: the address of this socket.
        main: this session's own address.
    """

    __slots__ = ("_main", "_neighbour", "_own", "_token", "receiver")

    def __init__(self, receiver: Receiver, neighbour: Neighbour, token: str, own: str, main: str) -> None:
        self.receiver = receiver
        self._neighbour = neighbour
        self._token = token
        self._own = own
        self._main = main

    def opened(self, connection: Connection) -> None:
        """A connection without bytes is ordinary: that is how a neighbour looks who lives (facts B1.4)."""

    def lines(self, connection: Connection, lines: list[bytes]) -> None:
        """Hands each frame on by itself (05.17)."""
        receiver = self.receiver
        valid = False
        for line in lines:
            first, connection.spoken = not connection.spoken, True
            try:
                frame = self._neighbour.decode(line, self._own)
            except BadFrame:
                receiver.count("bad-frame")
                frame = None
            shown = isinstance(frame, wire.AuthFrame) and first and self._knows(frame.token)
            if shown:
                connection.show("peer")
            elif first and self._neighbour.needs_token:
                receiver.count("wrong-token")
                connection.drop()
                return
            elif isinstance(frame, wire.AuthFrame) and first:
                receiver.count("wrong-token")
            elif isinstance(frame, wire.UserFrame):
                valid = True
                receiver.arrive(self._told_apart(frame), connection)
            elif isinstance(frame, wire.ControlFrame):
                valid = True
                receiver.control(frame, connection)
            elif isinstance(frame, wire.Ignored):
                receiver.count(frame.what)
            if connection.closed:
                return
        if valid:
            connection.rest()

    def _knows(self, token: str) -> bool:
        return compare_digest(token.encode(errors="replace"), self._token.encode())

    def _told_apart(self, frame: wire.UserFrame) -> wire.UserFrame:
        """The frame; one under this session's own address there as one under its own address (03.7)."""
        given = frame.from_ or envelope.parse_wire(frame.message.content).address
        if given != self._own:
            return frame
        return wire.UserFrame(frame.message, frame.msgV, frame.msg_id, from_=self._main)

    def closed(self, connection: Connection) -> None:
        """Nothing is kept of a connection."""

    def count(self, what: str) -> None:
        """A connection was ended for a reason."""
        self.receiver.count(what)


class Crossing:
    """Carries lines to our sessions and to the neighbours'; a `postroom.transport.Transport`.

    Args:
        inner: carries what stays among ours; its sockets are Unix sockets.
        neighbourhood: knows which address is whose, and shows this session to neighbours.
    """

    scheme = "uds"
    same_machine = True
    may_open = True

    def __init__(self, inner: Transport, neighbourhood: Neighbourhood) -> None:
        self._inner = inner
        self._neighbourhood = neighbourhood
        self._receiver: Receiver | None = None
        self._main = ""
        self._wanted: tuple[str, ...] = ()
        self._seconds: dict[str, Second] = {}
        self.ordered = inner.ordered
        self.durable = inner.durable

    def __repr__(self) -> str:
        shown = ", ".join(self._seconds) or "nobody"
        return f"<Crossing over {self._inner!r}, shown to {shown}>"

    async def serve(self, receiver: Receiver) -> str:
        """See the port; the second sockets listen from now on."""
        self._main = await self._inner.serve(receiver)
        self._receiver = receiver
        for second in self._seconds.values():
            handler = second.listener.handler
            assert isinstance(handler, SecondInbox)
            handler.receiver = receiver
        self._settle()
        return self._main

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
        """See the port; what goes to a neighbour is never acknowledged, and a clean close is `written` (05.22)."""
        there = self._neighbourhood.at(address)
        if there is not None:
            neighbour, target = there
            second = self._seconds.get(neighbour.program)
            said = neighbour.leave(line, second.address if second is not None else "", target)
            if isinstance(said, str):
                return Outcome(status="failed", code="unsafe_target", detail=said)
            line, token, acknowledged = said.line, said.token, False
        return await self._inner.send(
            address,
            line,
            msg_id=msg_id,
            acknowledged=acknowledged,
            pid=pid,
            start=start,
            token=token,
            seconds=seconds,
        )

    # ── being shown ──────────────────────────────────────────────────────────────────────────────

    def publish_to(self, programs: Iterable[str]) -> None:
        """Shows this session to these neighbours from now on, and to no other (setting `publishTo`, 09.13).

        Before `serve` it is only remembered. What cannot be done is said among the neighbourhood's problems.
        """
        self._wanted = tuple(dict.fromkeys(programs))
        if self._receiver is not None:
            self._settle()

    def _settle(self) -> None:
        for program in [shown for shown in self._seconds if shown not in self._wanted]:
            self._close(program)
        for program in [said for said in self._neighbourhood.said if said not in self._wanted]:
            del self._neighbourhood.said[program]
        for program in self._wanted:
            if program not in self._seconds:
                self._open(program)

    def _open(self, program: str) -> None:
        """Listens among a neighbour's sockets, and shows this session there."""
        said = self._neighbourhood.said
        said.pop(program, None)
        record = self._neighbourhood.own
        if record is not None and record.entrypoint == program:
            return  # it is one of that program's own sessions, which shows itself
        assert self._receiver is not None
        neighbour = self._neighbourhood.neighbour(program)
        place = (program, neighbour.folder)
        if _taken.setdefault(place, self) is not self:
            said[program] = (
                f"Another session of this process is shown to {neighbour.title}, which has room for one a process."
            )
            return
        try:
            path = neighbour.socket_path(os.getpid())
            token = secrets.token_hex(neighbour.token_bytes)
            address = uds_address(path)
            uds: Any = transports.load("uds")
            listener: Listener = uds.Listener(
                path, SecondInbox(self._receiver, neighbour, token, address, self._main)
            )
            listener.start()
        except PostroomError as error:
            del _taken[place]
            said[program] = f"This session is not shown to {neighbour.title}: {error}"
            return
        self._seconds[program] = Second(neighbour, listener, address)
        self._neighbourhood.appear(program, Post(neighbour, path, token))

    def _close(self, program: str) -> None:
        """Is shown there no longer: the record first, so that nobody finds what does not listen."""
        second = self._seconds.pop(program)
        self._neighbourhood.vanish(program)
        second.listener.close()
        _taken.pop((program, second.neighbour.folder), None)

    async def close(self) -> None:
        """See the port."""
        self._receiver = None
        for program in list(self._seconds):
            self._close(program)
        await self._inner.close()
