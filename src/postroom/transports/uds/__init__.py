"""Messages between the sessions of one machine, over Unix sockets (chapter 05).

`UdsTransport` serves a session's inbox socket and carries lines to the inboxes of others. It cuts the
stream into frames, takes the token of a first line, and hands each frame to the receiver with what is known
of the process that wrote it. It opens no network socket (11.15).

It never judges a message and never reads a text. The way in is `listener`, which the control socket
shares; the way out is `links`.

How it fails: bytes that are no frame are counted and skipped, and the connection goes on; what exceeds a
bound of 05.14 to 05.16 ends that connection. Nothing here is raised for what a peer did.

Weak: evidence is about the process that connected. A process of this user can connect on behalf of another.
"""

from __future__ import annotations

import os
import time
from hmac import compare_digest
from typing import TYPE_CHECKING

from postroom.core.address import uds_address, uds_path
from postroom.core.wire import AuthFrame, ControlFrame, Ignored, UserFrame, decode, encode_auth
from postroom.errors import BadFrame
from postroom.transport import SEND_SECONDS, Outcome
from postroom.transports.uds.links import CLOSED, Links, unsafe
from postroom.transports.uds.listener import Bounds, Connection, Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from postroom.transport import Receiver

__all__ = ["Bounds", "Connection", "Inbox", "Listener", "UdsTransport"]


class Inbox:
    """What the lines on an inbox socket mean. A `listener.Handler`.

    Args:
        receiver: gets the frames.
        tokens: token → its kind, `peer` or `child`.
    """

    __slots__ = ("_shown", "receiver")

    def __init__(self, receiver: Receiver, tokens: Mapping[str, str]) -> None:
        self.receiver = receiver
        self._shown = tuple((encode_auth(token)[:-1], kind) for token, kind in tokens.items())

    def opened(self, connection: Connection) -> None:
        """A connection without bytes is ordinary (05.19): somebody looks whether this session lives."""

    def lines(self, connection: Connection, lines: list[bytes]) -> None:
        """Hands each frame on by itself (05.17). Only a frame of a known type extends the stay (05.15)."""
        receiver = self.receiver
        valid = False
        for line in lines:
            first = not connection.spoken
            if first:
                connection.spoken = True
                kind = self._kind_of(line)
                if kind is not None:
                    connection.show(kind)
                    continue
            try:
                frame = decode(line)
            except BadFrame:
                receiver.count("bad-frame")
                continue
            if isinstance(frame, UserFrame):
                valid = True
                if frame.ack and frame.msg_id:
                    connection.owed += 1
                receiver.arrive(frame, connection)
            elif isinstance(frame, ControlFrame):
                valid = True
                receiver.control(frame, connection)
            elif isinstance(frame, AuthFrame):
                # A later one is ignored (05.20); a first one may only have been written in another way.
                kind = self._kind_of(encode_auth(frame.token)[:-1]) if first else None
                if kind is not None:
                    connection.show(kind)
                elif first:
                    receiver.count("wrong-token")
            else:
                receiver.count(frame.what if isinstance(frame, Ignored) else "stray-answer")
            if connection.closed:
                return
        if valid:
            connection.rest()

    def _kind_of(self, line: bytes) -> str | None:
        """The kind of the token that a line shows, as `encode_auth` writes it; None for any other line.

        Every token is compared in constant time, also after one that matched (05.20).
        """
        kind = None
        for shown, what in self._shown:
            if compare_digest(shown, line):
                kind = what
        return kind

    def closed(self, connection: Connection) -> None:
        """Nothing is kept of a connection."""

    def count(self, what: str) -> None:
        """A connection was ended for a reason."""
        self.receiver.count(what)


class UdsTransport:
    """Carries lines between the sessions of one machine; a `postroom.transport.Transport`.

    Args:
        path: where this session's inbox socket is made. None: it only sends.
        tokens: this session's tokens → their kind, `peer` or `child` (05.20).
        uid: the user whose processes are read and written to; this process's own by default.
        clock: returns seconds.
        bounds: what connections to the inbox may take.
    """

    scheme = "uds"
    ordered = True
    durable = True
    same_machine = True
    may_open = True

    def __init__(
        self,
        path: str | None,
        *,
        tokens: Mapping[str, str] | None = None,
        uid: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        bounds: Bounds | None = None,
    ) -> None:
        self.path = path
        self.listener: Listener | None = None
        self._tokens: Mapping[str, str] = tokens if tokens is not None else {}
        self._uid = os.geteuid() if uid is None else uid
        self._clock = clock
        self._bounds = bounds
        self._links: Links | None = None
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "serving" if self.listener else "not serving"
        return f"<UdsTransport {self.path or 'without an inbox'} {state}>"

    async def serve(self, receiver: Receiver) -> str:
        """Starts to accept for `receiver`; a second call only changes who receives.

        Returns this end's address. Raises UnfitPath where the socket cannot be made (05.5 to 05.7).
        """
        if self.path is None:
            raise ValueError("this transport was made without a path: it only sends")
        if self.listener is None:
            listener = Listener(
                self.path,
                Inbox(receiver, self._tokens),
                uid=self._uid,
                clock=self._clock,
                bounds=self._bounds,
            )
            listener.start()
            self.listener = listener
            self._closed = False
        else:
            self.listener.handler = Inbox(receiver, self._tokens)
        return uds_address(self.path)

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
        path = uds_path(address)
        if path is None:
            return unsafe("it is not the address of a socket")
        links = self._links
        if links is None:
            links = self._links = Links(uid=self._uid, clock=self._clock)
        if acknowledged and msg_id is not None:
            return await links.ask(path, line, msg_id, pid=pid, start=start, token=token, seconds=seconds)
        # One of ours has looked at this process on accept: it needs no moment more.
        lingering = {"linger": 0.0} if acknowledged else {}
        return await links.write(path, line, pid=pid, start=start, token=token, seconds=seconds, **lingering)

    async def close(self) -> None:
        """Stops accepting, ends every connection and removes the socket; a second call does nothing."""
        self._closed = True
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.close()
        links, self._links = self._links, None
        if links is not None:
            links.close()
