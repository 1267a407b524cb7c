"""What ListAgents shows: rows in a fixed order, filtered, cut at a limit that is said aloud (01.29).

Pure: the rows come from whoever looked. It never leaves something out in silence: what a limit cut is counted,
what could not be checked is named.

Its records are named tuples: a list without a session is a process of its own, and a dataclass costs that more to
define than everything else here to run (12.17).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from postroom.core.address import confusable, normal_form, shortest_refs, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from postroom.core.message import PartyKind

__all__ = ["Listing", "Row", "listing"]

DEFAULT_ROWS = 50
"""Rows shown unless the caller says otherwise: what a model can read at a glance (01.29)."""

_KIND_ORDER = {"agent": 0, "teammate": 1, "session": 2}


class Row(NamedTuple):
    """Somebody who can be written to.

    Attributes:
        identity: session id, agent id, or team and member id.
        name: the name that is the address.
        kind: session, agent or teammate.
        aliases: former names that still answer.
        state: `idle`, `busy`, `waiting`, `stopped` or `offline`.
        presence: for sessions: `interactive`, `headless`, `bg` or `external`.
        cwd: working directory of a local session.
        program: what runs the session.
        machine: where it runs.
        local: on this machine.
        pid: its process, for a local session.
        seen_at: epoch milliseconds of its last sign of life.
        condition: what changes the outcome of a send, such as `offline`; empty otherwise.
        confirms: what can be confirmed of a message to it: `consumed`, `accepted`, `written` or `nothing` (09.16).
        wakes: a message wakes it while it is idle.
        ref: filled in by `listing`: unique among the rows.
        warnings: filled in by `listing`: a name that looks like another (02.6).
        type: what sort of agent it is, by its host's word (06.13); empty for everybody else.
    """

    identity: str
    name: str
    kind: PartyKind = "session"
    aliases: tuple[str, ...] = ()
    state: str = "idle"
    presence: str = ""
    cwd: str = ""
    program: str = "postroom"
    machine: str = ""
    local: bool = True
    pid: int = 0
    seen_at: int = 0
    condition: str = ""
    confirms: str = "consumed"
    wakes: bool = True
    ref: str = ""
    warnings: tuple[str, ...] = ()
    type: str = ""


class Listing(NamedTuple):
    """The answer of ListAgents.

    Attributes:
        own: the caller's own row; None for a caller that is no session.
        rows: everybody else, in order.
        unchecked: (place, reason) of every place that could not be looked at.
        left_out: how many rows the limit cut.
    """

    own: Row | None
    rows: tuple[Row, ...]
    unchecked: tuple[tuple[str, str], ...] = ()
    left_out: int = 0


def listing(
    rows: Iterable[Row],
    *,
    own: str | None = None,
    text: str | None = None,
    kind: str | None = None,
    limit: int = DEFAULT_ROWS,
    unchecked: Sequence[tuple[str, str]] = (),
    sign: Callable[[str], int] | None = None,
) -> Listing:
    """Orders, filters and cuts rows (01.29).

    Args:
        rows: everybody that was found, in any order.
        own: the caller's identity.
        text: only rows whose name, former name or directory has this in it, letter case apart.
        kind: only rows of this kind.
        limit: at most so many rows besides the caller's own; zero or more.
        unchecked: places that could not be looked at, with the reason.
        sign: gives the last sign of life of an identity, epoch milliseconds; asked for what is shown alone, and never for
            an agent: its id is its host's, and names no session.
    """
    everybody = list(rows)
    refs = shortest_refs([row.identity for row in everybody])
    wanted = text.casefold() if text else ""
    mine = next((row for row in everybody if row.identity == own), None)
    others = [
        row
        for row in everybody
        if row.identity != own
        and (kind is None or row.kind == kind)
        and (not wanted or any(wanted in part.casefold() for part in (row.name, *row.aliases, row.cwd)))
    ]
    others.sort(
        key=lambda row: (_KIND_ORDER[row.kind], not row.local, normal_form(row.name), refs[row.identity])
    )

    def finished(row: Row) -> Row:  # only what is shown: fifty of a thousand (12.20)
        if sign is not None and row.kind != "agent":
            row = row._replace(seen_at=max(row.seen_at, sign(row.identity)))
        return _finished(row, refs[row.identity], everybody)

    return Listing(
        own=None if mine is None else finished(mine),
        rows=tuple(finished(row) for row in others[:limit]),
        unchecked=tuple(unchecked),
        left_out=max(0, len(others) - limit),
    )


def _finished(row: Row, ref: str, everybody: Sequence[Row]) -> Row:
    """The row with its ref and, where its name could be taken for another, the warning."""
    warning = None
    if not row.name.isascii():
        warning = confusable(row.name, (other.name for other in everybody if other.identity != row.identity))
    return row._replace(ref=ref, warnings=(warning,) if warning else ())


_CONFIRMED = {
    "accepted": "says that it took a message, not that it read it",
    "written": "never says that it read a message",
    "nothing": "says nothing of a message",
}
"""What can be confirmed of a message to somebody, in words; where a loop confirms that it has it, nothing (09.16)."""


def row_text(row: Row, now: int) -> str:
    """One row for a person or a model: what is known, separated by ` · `."""
    parts = [shown(row.name, row.ref)]
    if row.aliases:
        parts.append("was " + ", ".join(row.aliases))
    parts += [part for part in (row.presence or row.kind, row.state, row.cwd) if part]
    if row.type:
        parts.append(f"type {row.type}")
    if row.program != "postroom":
        parts.append(row.program)
    if row.seen_at:
        parts.append(f"active {age(now - row.seen_at)} ago")
    if row.confirms in _CONFIRMED:
        parts.append(_CONFIRMED[row.confirms])
    if not row.wakes:
        parts.append("reads at its next turn")
    parts += [part for part in (row.condition, *row.warnings) if part]
    return " · ".join(parts)


def age(milliseconds: int) -> str:
    """A length of time in one unit: `8s`, `11m`, `3h`, `2d`."""
    seconds = max(0, milliseconds) // 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
