"""Between a message and its frame: the line of one that leaves, the message of one that came.

Pure: what a session knows comes in as arguments. It decides nothing; who may write to whom, and what is let in,
is settled before `line_of` and by `core.inbound`. Sizes are judged on the finished line (`contract.too_large`).

How it fails: `line_of` raises ValueError for an address or a mode that no envelope has a place for, and for text
without a UTF-8 form; `contract.validate` lets neither come here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.core import envelope, wire
from postroom.core.message import Message, iso

if TYPE_CHECKING:
    from postroom.core.contract import Draft
    from postroom.core.message import Origin


def line_of(
    draft: Draft,
    *,
    msg_id: str,
    to: str,
    at: int,
    address: str | None,
    name: str | None,
    mode: str | None,
    hop_chain: tuple[str, ...] = (),
    priority: str = "next",
    acknowledge: bool = False,
) -> bytes:
    """The line that is sent: the neighbours' frame, with the fields of ours (05.30).

    Args:
        draft: what is said.
        msg_id: the id under which it travels.
        to: the session id that it is meant for, the receiver's guard against a mistaken address (03.7).
        at: epoch milliseconds, the sender's clock.
        address: where an answer goes; None: nobody can answer.
        name, mode: what the sender says of itself; None: nothing.
        hop_chain: the tokens of the sessions that this thread passed through, the sender's last (03.66).
        priority: `next` or `later`.
        acknowledge: ask for an acknowledgement; only of those who announce it (05.22).

    Returns one line with its newline.
    """
    text = draft.text or ""
    return wire.encode_user(
        msg_id=msg_id,
        content=envelope.wire_form(text, address=address, hop_chain=hop_chain, name=name, mode=mode),
        address=address,
        session_id=to,
        priority=priority,
        acknowledge=acknowledge,
        summary=draft.summary,
        sent_at=iso(at),
        in_reply_to=draft.in_reply_to,
        text=text if envelope.escape_body(text) != text else None,
    )


def message_of(
    said: wire.Claims, *, msg_id: str, origin: Origin, at: int, hop_chain: tuple[str, ...] | None = None
) -> Message:
    """The message that a frame brought: its sender's words, and who that is by what was checked (04.15).

    Args:
        said: what the sender says.
        msg_id: its id, or one made here for a frame without.
        origin: who it comes from.
        at: epoch milliseconds, the receiver's clock.
        hop_chain: the chain that it goes on, where that is not the one that it bears (03.66).
    """
    return Message(
        msg_id=msg_id,
        text=said.text,
        origin=origin,
        received_at=at,
        summary=said.summary,
        sent_at=said.sent_at,
        in_reply_to=said.in_reply_to,
        priority="later" if said.later else "next",
        hop_chain=said.hop_chain if hop_chain is None else hop_chain,
        state="accepted",
    )
