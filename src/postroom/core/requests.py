"""What is open between a lead and its members, and how a member goes: the two state machines of a team.

`Requests` holds what one participant has open: each request is open once and answered once, and its id is then used
up (07.13). `Departure` is a member's way from a request to shut down to being gone, or ended by the lead (07.18).

Neither reads a clock or changes anything: each step answers the state after it, or that it does not apply. A member is
known by its name here; when one goes, its requests are to be `forgotten`, so that the next of its name has none.

What is weak: an id that was settled long ago, more than `MAX_SETTLED` of its sort and member, could be used again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["shutdown", "plan", "permission", "sandbox"]
Unopened = Literal["known-request", "too-many-open"]

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


LIMITS: Mapping[Kind, tuple[int, bool]] = MappingProxyType(
    {
        # A lead that lost its memory asks again, and the member may answer any of them.
        "shutdown": (8, True),
        # A plan that was changed takes the place of the one before.
        "plan": (1, True),
        # Each of these blocks a call of the member, so that more than this is no honest member.
        "permission": (100, False),
        "sandbox": (100, False),
    }
)
"""Open requests of one sort and member, and whether the oldest makes room for one more (11.10)."""

MAX_SETTLED = 100
"""Ids of one sort and member that are remembered as answered (11.10)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An open request.

    Attributes:
        kind: what is asked for.
        id: by whoever asks; two members may have the same one.
        member: the member that asks or, for a shutdown, that is asked.
        host: of a sandbox request.
        tool_name, tool_use_id: of a permission request.
    """

    kind: Kind
    id: str
    member: str
    host: str | None = None
    tool_name: str | None = None
    tool_use_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What one participant has open; the lead of all members, a member of itself (07.13).

    Attributes:
        open: oldest first.
        settled: (kind, member, id) of those that were answered or superseded, oldest first.
    """

    open: tuple[Request, ...] = ()
    settled: tuple[tuple[Kind, str, str], ...] = field(default=(), repr=False)

    def of(self, kind: Kind, member: str) -> tuple[Request, ...]:
        """The open ones of a sort and member, oldest first."""
        return tuple(each for each in self.open if (each.kind, each.member) == (kind, member))

    def find(self, kind: Kind, member: str, request_id: str) -> Request | None:
        """The open request of that sort, member and id; None where there is none."""
        return next((each for each in self.of(kind, member) if each.id == request_id), None)


def opened(requests: Requests, request: Request) -> Requests | Unopened:
    """A request begins: open once, answered once (07.13, 07.18).

    Returns the requests after it, or why it is dropped: its id was there before, or too many are open.
    """
    kind, member = request.kind, request.member
    known = (kind, member, request.id) in requests.settled
    if known or requests.find(kind, member, request.id):
        return "known-request"
    most, oldest_goes = LIMITS[kind]
    present = requests.of(kind, member)
    if len(present) >= most:
        if not oldest_goes:
            return "too-many-open"
        requests = settled(requests, present[0])
    return replace(requests, open=(*requests.open, request))


def settled(requests: Requests, request: Request) -> Requests:
    """A request is answered, or superseded: it is not open any more, and its id is used up (07.13)."""
    spent = (request.kind, request.member, request.id)
    alike = [each for each in requests.settled if each[:2] == spent[:2]]
    oldest = alike[0] if len(alike) >= MAX_SETTLED else None
    return Requests(
        open=tuple(each for each in requests.open if each != request),
        settled=(*(each for each in requests.settled if each != oldest), spent),
    )


def forgotten(requests: Requests, member: str) -> Requests:
    """A member has gone: the next of its name has none of its requests (07.22)."""
    return Requests(
        open=tuple(each for each in requests.open if each.member != member),
        settled=tuple(each for each in requests.settled if each[1] != member),
    )


# ── departures ───────────────────────────────────────────────────────────────────────────────────

DepartureState = Literal["asked", "approved", "rejected", "gone", "ended"]

TRANSITIONS: Mapping[DepartureState, frozenset[DepartureState]] = MappingProxyType(
    {
        # Gone without an answer: its process ended before it came to it.
        "asked": frozenset({"approved", "rejected", "gone"}),
        "approved": frozenset({"gone", "ended"}),
        "rejected": frozenset(),
        "gone": frozenset(),
        "ended": frozenset(),
    }
)
"""From a state to those that may follow it (07.18)."""

GONE_WITHIN = 10_000
"""Milliseconds in which a member that approved is gone, before its lead ends it (07.18): time to write its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """One request to shut down, on its way; the same on both sides (07.18).

    Attributes:
        member: who is asked.
        request_id: the request.
        state: `asked`; `approved` or `rejected` by that member; `gone` by itself, or `ended` by the lead.
        since: epoch milliseconds at which it came into this state.
    """

    member: str
    request_id: str
    since: int
    state: DepartureState = "asked"


def departed(departure: Departure, state: DepartureState, at: int) -> Departure | None:
    """The departure in its next state; None for a step that `TRANSITIONS` lacks, such as a second answer (07.18)."""
    if state not in TRANSITIONS[departure.state]:
        return None
    return replace(departure, state=state, since=at)


def overdue(departure: Departure, now: int) -> bool:
    """Whether the lead is to end a member: it approved, and its time is over (07.18)."""
    return departure.state == "approved" and now - departure.since >= GONE_WITHIN
