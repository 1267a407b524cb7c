"""PORT: what a transport promises.

A transport carries one line to the place that owns the target and says what is known about it. It finds no
peers, makes no decision and never reads a message's text. It knows neither a session nor a client: what
arrives goes to a `Receiver`, what is known about the other end is `Evidence`, and an answer goes back
through the `Channel` on which the line came.

Each implementation states its guarantees as attributes (11.16 to 11.21). `transports.memory` is the
reference implementation and ships, so that programs can be tested without sockets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from postroom.core.wire import ControlFrame, UserFrame

__all__ = ["Channel", "Evidence", "Outcome", "Receiver", "Transport"]

OutcomeStatus = Literal["acknowledged", "written", "unknown", "failed"]

SEND_SECONDS = 5.0
"""Connect, write and acknowledgement, in all (05.18)."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the transport itself knows of the other end; nothing here was told by it, `token` apart.

    Attributes:
        transport: the scheme, such as `uds`.
        pid: the connecting process; 0 is no evidence (another pid namespace) (05.19).
        start: that process's start, field 22 of its stat; empty when it could not be read.
        ancestry: (pid, start) of the process and its ancestors, nearest first, at most 32.
        token: which of this session's tokens it showed: `peer`, `child` or `client`; None for none.
    """

    transport: str
    pid: int = 0
    start: str = ""
    ancestry: tuple[tuple[int, str], ...] = field(default=(), hash=False)  # follows from pid and start
    token: str | None = None


class Channel(Protocol):
    """The way back along which an acknowledgement goes: the connection on which the line came.

    A frame that asks for an answer (`ack` with a `msg_id`) keeps its connection open until `answer` was
    called for it, also when the other end has finished writing, for SEND_SECONDS at most.
    """

    @property
    def evidence(self) -> Evidence:
        """What is known of the other end."""
        ...

    def answer(self, line: bytes) -> None:
        """Queues one line, its newline included; nothing happens when the other end has gone."""
        ...

    def flush(self) -> None:
        """Sends what `answer` queued. A channel that is being read flushes by itself at the end."""
        ...


class Receiver(Protocol):
    """Where a transport hands what arrives. Each method returns at once and never raises.

    Should one raise all the same, the connection that caused it ends and the error goes to the event
    loop's exception handler.
    """

    def arrive(self, frame: UserFrame, channel: Channel) -> None:
        """Takes one user frame and answers it on the channel, now or after a commit, if it asked for that."""
        ...

    def control(self, frame: ControlFrame, channel: Channel) -> None:
        """Takes one control frame (05.24); it is answered by nobody."""
        ...

    def count(self, what: str) -> None:
        """Counts what was ignored or ended.

        Frames that were skipped: `bad-frame`, `unknown-type`, `too-new`, `stray-answer`, `wrong-token`.
        Connections that were ended or never read: `too-long`, `too-slow`, `too-many`, `unread` (the peer
        does not read its answers), `foreign-user`, `no-descriptor`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is known after carrying one line.

    Attributes:
        status: `acknowledged` (`ack` says how), `written` (the peer closed cleanly and cannot say more),
            `unknown` (the write began and no answer came), `failed` (nothing was written).
        ack: the acknowledgement's own status: `queued`, `inbox_full`, `dropped`, `misaddressed`,
            `store_failed`; empty without one.
        reason: the acknowledgement's reason, in the wire's words.
        code: for `failed`: `peer_unavailable`, `timeout`, `connection_failed` or `unsafe_target`.
        detail: a few words for people, without a path.
    """

    status: OutcomeStatus
    ack: str = ""
    reason: str = ""
    code: str = ""
    detail: str = ""


class Transport(Protocol):
    """One way of carrying lines.

    Attributes:
        scheme: the word before the colon of its addresses.
        ordered: lines to one address arrive in the order of the calls (11.6).
        durable: an acknowledgement means committed by the receiver.
        same_machine: reaches this machine only.
        may_open: may start a conversation, not only answer one.
    """

    scheme: str
    ordered: bool
    durable: bool
    same_machine: bool
    may_open: bool

    async def serve(self, receiver: Receiver) -> str:
        """Starts to accept for `receiver` and returns the address of this end (`uds:/…`).

        A second call only changes who receives. Raises UnfitPath where this end cannot be made.
        """
        ...

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
        """Carries one line (newline included) to `address`. Its place in the order is that of the call.

        Args:
            msg_id: the id by which the acknowledgement is recognised; None for a control frame.
            acknowledged: the peer announces `postroom_ack`: wait for its answer, and after an ambiguous
                failure ask again once with the same line (05.23). Otherwise a clean close is `written`.
            pid: the process that must be behind the address; 0: not known, as for one in another pid
                namespace, of which this side sees no pid.
            start: that process's start, to tell it from a later one of the same pid; empty: not known.
            token: the token to show first, if any.
            seconds: the bound on everything together.

        Never raises for a failure of the wire: that is an `Outcome`.
        """
        ...

    async def close(self) -> None:
        """Stops accepting, closes every connection and removes what it made; a second call does nothing.

        Whoever waits in `send` is told what is known: `unknown` where the writing began.
        """
        ...
