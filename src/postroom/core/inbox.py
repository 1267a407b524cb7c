"""May it come in: judges one arriving frame, by a ladder of which the first rung that answers wins (03.6).

`judge` is a pure function from what the frame says and what is known here to a `Judgement`: what becomes of
the frame, what its sender is told at once, and which rung decided. It stores nothing and tells nobody; the
session does both, the store first.

THE LADDER. The numbers are those of chapter 03; a rung that is not listed has no feature behind it yet, and
its place is between the two that surround it.

 1. shape: the frame bears this session's own address, or an id that this session sent → dropped, `self-echo`.
    It is addressed to another session id → dropped, `misaddressed` (03.7). What cannot be read at all never
    becomes an arrival: the wire layer drops it.
 2. settled ids: this sender's id was decided on before → the same acknowledgement again, and nothing happens
    twice; with another body it is journaled as `id-reuse` (03.8).
 3. … 11.: nothing is set and nobody is asked → accept.
 The cap: what would be accepted finds as many unread messages as the limit allows → `inbox_full`. It settles
    nothing: the same id may be tried again (03.64).

The cap stands below the settled ids, so a repeat is answered by a full inbox as it was before. What was
settled is looked up by the sender's identity and the id together: the same id from somebody else is new.

Every answer but the repeats' is a constant made beforehand: judging a frame makes no object.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Limits"]

Verdict = Literal["accepted", "held", "refused"]
"""What settles an id (03.8)."""

UNBOUNDED = 2**63 - 1
"""In the place of a limit that is lifted: more than a store can count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of chapter 03.

    Attributes:
        max_unread: messages accepted and not yet read, at most (03.64). Held ones are counted elsewhere.
    """

    max_unread: int = 50

    @classmethod
    def unbounded(cls) -> Limits:
        """Limits that never apply: for a program that measures; no settings file can ask for them (12.23)."""
        return cls(max_unread=UNBOUNDED)


class Arrival(NamedTuple):
    """What one frame says, as far as judging it goes. A tuple, because one is made for each frame.

    Attributes:
        msg_id: the sender's id of it, or one made here for a frame without.
        body: a hash of its text.
        own_address: whether its `from` is this session's own address.
        own_message: whether its id is that of a message that this session sent.
        addressed: the session id that it is meant for; None: it does not say.
    """

    msg_id: str
    body: str
    own_address: bool = False
    own_message: bool = False
    addressed: str | None = None


class Settled(NamedTuple):
    """What was decided before on an id of the same sender.

    Attributes:
        outcome: the verdict that stands.
        body: the hash of the text on which it was decided.
    """

    outcome: Verdict
    body: str


class Facts(NamedTuple):
    """What is known here at this instant.

    Attributes:
        session_id: this session's.
        settled: what this very sender's id was settled as; None: it is new.
        unread: messages accepted and not yet read.
    """

    session_id: str
    settled: Settled | None
    unread: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What becomes of one frame.

    Attributes:
        outcome: `accepted`, `duplicate` (settled before), `full`, or `dropped` (no message for this session).
        ack: what the acknowledgement says, where one was asked for (05.22).
        reason: its reason, in the wire's words; empty where the status says all.
        rung: which rung decided.
        settles: whether the id is settled by it (03.8).
        journal: the state that the journal gets a row for; empty for `accepted`, whose row is the store's own.
        detail: the words in that row.
    """

    outcome: Literal["accepted", "duplicate", "full", "dropped"]
    ack: Literal["queued", "inbox_full", "dropped", "misaddressed"]
    reason: str = ""
    rung: Literal["shape", "settled", "cap", "default"]
    settles: bool = False
    journal: str = ""
    detail: str = ""


ACCEPTED = Judgement(outcome="accepted", ack="queued", rung="default", settles=True)
FULL = Judgement(
    outcome="full", ack="inbox_full", reason="queue-full", rung="cap", journal="full", detail="inbox_full"
)
SELF_ECHO = Judgement(
    outcome="dropped", ack="dropped", reason="self-echo", rung="shape", journal="dropped", detail="self-echo"
)
MISADDRESSED = Judgement(
    outcome="dropped", ack="misaddressed", rung="shape", journal="dropped", detail="misaddressed"
)

REPEATS: Mapping[tuple[Verdict, bool], Judgement] = MappingProxyType(
    {
        # Whatever the verdict was, its acknowledgement was `queued`: a refusal must not show (03.10).
        (verdict, same): Judgement(
            outcome="duplicate",
            ack="queued",
            rung="settled",
            journal="duplicate",
            detail=f"{verdict} before" if same else f"id-reuse: another text was {verdict} under this id",
        )
        for verdict in ("accepted", "held", "refused")
        for same in (True, False)
    }
)
"""Verdict that stands, whether the body is the same → the answer to a repeat."""


def judge(arrival: Arrival, facts: Facts, limits: Limits) -> Judgement:
    """Judges one frame by the ladder above (03.6). Changes nothing and never raises.

    Args:
        arrival: what the frame says.
        facts: what is known here.
        limits: the bounds that apply.

    Returns one of the constants of this module.
    """
    if arrival.own_address or arrival.own_message:
        return SELF_ECHO
    if arrival.addressed is not None and arrival.addressed != facts.session_id:
        return MISADDRESSED
    settled = facts.settled
    if settled is not None:
        return REPEATS[settled.outcome, settled.body == arrival.body]
    if facts.unread >= limits.max_unread:
        return FULL
    return ACCEPTED
