"""The door of a client that has an inbox of its own: what waits is written into that, in its words (09.2).

The inbox is a Unix socket that the client's record names (`neighbours`). It is written to by this process, from a
socket of this process among the client's own: only there, and only to the process that wrote, does the client say
later what it made of a message. That socket is made with the first ring and published to nobody.

The envelope says `postroom` and the class that the senders state, and has no address: the text says itself whom each
message comes from and how it is answered. Its first line names the senders, since it is what a client shows of a message
that it holds. The client judges it again, by its own setting and its own person:

    held                        the senders are told so
    delivered, after held       the senders are told so
    denied                      the messages are denied, and their senders told
    dropped, refused, expired   the client has them no more: they wait again

How it fails: what was not written is `failed`; what was written to a client that did not close is `unknown`. A receipt
counts only from the client's own process and about what was written to it. A message that somebody writes to this
socket, which nobody reads, is refused aloud.

Weak: `written` means that the inbox closed. A client that ends with what it holds says so or does not.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from postroom import neighbours, transports
from postroom.core import envelope, notices, wire
from postroom.core.address import uds_address
from postroom.crossing import SecondInbox
from postroom.doors import Rang
from postroom.errors import PostroomError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroom.core.message import PermissionClass
    from postroom.core.wire import ControlFrame, UserFrame
    from postroom.doors import Attended
    from postroom.neighbour import Found, Neighbour
    from postroom.transport import Channel
    from postroom.transports.uds import Listener, UdsTransport

__all__ = ["NativeDoor", "door"]

ROOM_BYTES = 65_536
"""Text of one ring: what a model reads at once. The inbox takes sixteen times as much."""

MOST_NAMED = 3
"""Senders that the first line names; a client shows less of a longer one."""

REMEMBERED = 500
"""Rings of which a receipt may still come; older ones are out of mind there too (facts B6)."""

NAME = "postroom"
"""As whom the client shows what comes: it is this program that writes, on behalf of those in the text."""

MODES: dict[str, str] = {"bypassing": "bypass", "prompting": "prompting"}

BACK = frozenset(("dropped", "refused", "expired", "misaddressed"))
"""Receipts that say that the client has a message no more."""

SOMEBODY = "somebody who cannot be answered"
"""A sender without an address, or one that is not verified: its name is a claim, and stands in its block."""

NOBODY = (
    "This is only Postroom's way in, and nobody reads here. To answer, use the tool send_message of Postroom."
)


class Said(NamedTuple):
    """What a receipt says of one ring: its status, the same for the trace, and the client's own words."""

    ring: str
    status: str
    detail: str
    reason: str


def door(here: Attended, dropped: Callable[[Sequence[str], str], None]) -> NativeDoor:
    """Makes this door."""
    return NativeDoor(here, dropped)


class NativeDoor:
    """A `postroom.doors.Door`, and the `Receiver` of what the client says of its rings; see this module.

    Args:
        here: the client.
        dropped: called with the ids of messages that the client has no more, and its word for why.
    """

    name = "native"
    room = ROOM_BYTES

    def __init__(self, here: Attended, dropped: Callable[[Sequence[str], str], None]) -> None:
        self._here = here
        self._dropped = dropped
        self._neighbour: Neighbour | None = None
        self._listener: Listener | None = None
        self._own = ""
        self._transport: UdsTransport | None = None
        self._rings: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._held: set[str] = set()
        self._early: list[Said] | None = None  # receipts that come while a ring is under way
        self._answers: set[asyncio.Task[object]] = set()

    async def ready(self) -> str:
        """See the port: the client's record is read, and its socket connected to for a moment."""
        found = self._found()
        if isinstance(found, str):
            return found
        assert self._neighbour is not None
        there = await asyncio.to_thread(self._neighbour.probe, found)
        return "" if there else "its inbox takes no connection"

    async def ring(self, text: str, msg_ids: Sequence[str], stated: PermissionClass | None) -> Rang:
        """See the port."""
        found = self._found()
        if isinstance(found, str):
            return Rang("failed", found)
        assert self._neighbour is not None
        own = self._listening()
        text = f"{self._from(msg_ids)}{text}"
        ring = str(uuid.uuid4())
        content = envelope.wire_form(
            text, address=None, name=NAME, mode=MODES[stated] if stated is not None else None
        )
        line = wire.encode_user(msg_id=ring, content=content, address=own or None, text=text)
        said = self._neighbour.leave(line, own, found)
        if isinstance(said, str):
            return Rang("failed", said)
        self._rings[ring] = tuple(msg_ids)
        if len(self._rings) > REMEMBERED:
            self._held.discard(self._rings.popitem(last=False)[0])
        self._early = []
        try:
            outcome = await self._carrier().send(
                uds_address(found.path),
                said.line,
                msg_id=ring,
                acknowledged=False,
                pid=found.pid,
                start=found.start,
                token=said.token,
            )
        finally:
            early, self._early = self._early, None
            # The caller writes down what came of the ring in this step of the loop: a receipt is about that.
            asyncio.get_running_loop().call_soon(self._catch_up, early)
        if outcome.status == "failed":
            del self._rings[ring]
            return Rang("failed", outcome.detail)
        if outcome.status == "unknown":
            return Rang("unknown", outcome.detail)
        return Rang("written", "" if own else "no receipt can come")

    async def close(self) -> None:
        """See the port: its socket goes."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()
        for answer in self._answers:
            answer.cancel()

    # ── the client's inbox ───────────────────────────────────────────────────────────────────────

    def _found(self) -> Found | str:
        """The client's own record; else why it has none that can be written to."""
        if self._neighbour is None:
            program = self._here.client.neighbour
            if not program:
                return "it has no inbox of its own"
            self._neighbour = neighbours.load(program, self._here.environ)
        conversation = self._here.conversation
        for found in self._neighbour.look().found:
            if (found.pid, found.start) == self._here.process or (
                conversation and conversation in found.session_ids[:1]
            ):
                return f"it {found.condition}" if found.condition else found
        return "its own messaging is off, or its version has none"

    def _carrier(self) -> UdsTransport:
        if self._transport is None:
            uds: Any = transports.load("uds")
            made: UdsTransport = uds.UdsTransport(None)
            self._transport = made
        return self._transport

    def _listening(self) -> str:
        """The address of our socket among the client's; empty where none can be made: no receipt comes then."""
        if self._listener is None:
            assert self._neighbour is not None
            token = secrets.token_hex(self._neighbour.token_bytes)
            try:
                path = self._neighbour.socket_path(os.getpid())
                own = uds_address(path)
                uds: Any = transports.load("uds")
                listener: Listener = uds.Listener(path, SecondInbox(self, self._neighbour, token, own, ""))
                listener.start()
            except PostroomError as error:
                self._log(f"no receipt can come from the client's own inbox: {error}")
                return ""
            self._neighbour.answers_with(own, token)
            self._listener, self._own = listener, own
        return self._own

    # ── what the client says of it ───────────────────────────────────────────────────────────────

    def control(self, frame: ControlFrame, channel: Channel) -> None:
        """Takes a receipt; see the table of this module. Never raises."""
        word = notices.read_status(frame)
        evidence = channel.evidence
        if word is None or not self._is_client(evidence.pid, evidence.start):
            return
        said = [Said(ring, word.status, word.detail, frame.reason or "") for ring in word.ids]
        if self._early is not None:
            self._early += said
        else:
            self._catch_up(said)

    def _catch_up(self, said: list[Said]) -> None:
        for one in said:
            msg_ids = self._rings.get(one.ring)
            if msg_ids:
                try:
                    self._heard(one, msg_ids)
                except PostroomError as error:
                    self._log(f"what the client said of a message could not be kept: {error}")

    def _heard(self, said: Said, msg_ids: tuple[str, ...]) -> None:
        session = self._here.session
        if session is None:
            return
        ring, status = said.ring, said.status
        was_held = ring in self._held
        if status == "held":
            self._held.add(ring)
        else:
            self._held.discard(ring)
            del self._rings[ring]
        session.rang(msg_ids, self.name, status, said.detail)
        if status in BACK:
            self._dropped(msg_ids, status)
        elif status == "denied":
            for msg_id in msg_ids:
                session.denied_behind(msg_id, said.reason)
        elif status == "held" or (status == "delivered" and was_held):
            for msg_id in msg_ids:
                with session.reading() as store:
                    known = store.find(msg_id)
                for message in known:
                    if message.state == "passed":
                        session.tell(msg_id, message.origin.reply_path, status, said.reason)

    def arrive(self, frame: UserFrame, channel: Channel) -> None:
        """Refuses a message that was written to this socket: it reaches nobody, and its writer is told. Never raises."""
        found = self._found()
        neighbour = self._neighbour
        if isinstance(found, str) or neighbour is None or not frame.msg_id:
            return
        if not self._is_client(channel.evidence.pid, channel.evidence.start):
            return
        self._log("the client wrote to this door, which nobody reads; it was told")
        line = notices.status_line(
            "refused",
            orig_msg_id=frame.msg_id,
            address=self._own,
            msg_id=str(uuid.uuid4()),
            reason=NOBODY,
        )
        said = neighbour.leave(line, self._own, found)
        if not isinstance(said, str):
            sending = self._carrier().send(
                uds_address(found.path),
                said.line,
                msg_id=None,
                acknowledged=False,
                pid=found.pid,
                start=found.start,
                token=said.token,
            )
            task: asyncio.Task[object] = asyncio.get_running_loop().create_task(sending)
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    def count(self, what: str) -> None:
        """Ended connections and skipped frames are counted by nobody here."""

    def _from(self, msg_ids: Sequence[str]) -> str:
        """The first line: who wrote the messages; empty where none is there any more."""
        session = self._here.session
        if session is None or not msg_ids:
            return ""
        with session.reading() as store:
            found = [message for msg_id in msg_ids for message in store.find(msg_id)]
        names = list(dict.fromkeys(envelope.shown_from(each.origin) or SOMEBODY for each in found))
        if not names:
            return ""
        more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
        *before, last = names[:MOST_NAMED] + more
        return f"[Postroom] From {', '.join(before)}{' and ' if before else ''}{last}.\n\n"

    def _is_client(self, pid: int, start: str) -> bool:
        found = self._found()
        return not isinstance(found, str) and bool(pid) and (pid, start) == (found.pid, found.start)

    def _log(self, line: str) -> None:
        session = self._here.session
        if session is not None:
            session.log(f"door {self.name}: {line}")
