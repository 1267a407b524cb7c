"""Who may send which frame to whom, and what comes of it: the roles of a team as one table (07.13 to 07.20).

`ROWS` has a row for each type: the role of the sender and of the receiver, the inner field that must name the sender,
which open request the frame begins or answers, and whether it is acted on, shown to the model, or always dropped.
`judge` goes by it and answers a `Verdict`, with the reason for the journal where a frame is dropped.

It never reads a clock, never sends an answer, and proves no sender: `outer` is what a mailbox entry says, and any
program of this user can write one (07.4).

How it fails: a frame that may not be is a verdict, never an exception.

What is weak: the digest of an approved call is not compared: how it is made is not written anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from postroom.core.address import LEAD
from postroom.core.frames import (
    Frame,
    IdleNotification,
    ModeSetRequest,
    PermissionRequest,
    PermissionResponse,
    PlanApprovalResponse,
    SandboxPermissionRequest,
    SandboxPermissionResponse,
    ShutdownRequest,
)
from postroom.core.requests import Kind, Request, Requests, opened, settled

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

SYSTEM = "system"
"""The sender under which a lead's own program writes; the name is reserved, so that no member has it (02.2)."""

Role = Literal["lead", "member", "system", "stranger"]

Why = Literal[
    "always-dropped",
    "wrong-sender",
    "wrong-receiver",
    "not-about-oneself",
    "known-request",
    "too-many-open",
    "not-open",
    "other-host",
    "other-call",
    "not-stricter",
]
"""Why a frame is dropped, as the journal has it (07.17)."""

# ── the table ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one type of frame requires and does.

    Attributes:
        senders, receivers: the roles that may send and take it; none: it is always dropped.
        about: the attribute that must be the outer `from`; None: it names nobody.
        begins, answers: the sort of request that it opens, or of the open one that it answers.
        act: the receiver's program does something.
        show: its model reads it.
        rule: where it comes from.
    """

    senders: frozenset[Role]
    receivers: frozenset[Role]
    about: str | None = None
    begins: Kind | None = None
    answers: Kind | None = None
    act: bool = False
    show: bool = False
    rule: str


_NOBODY: frozenset[Role] = frozenset()
_LEAD: frozenset[Role] = frozenset({"lead"})
_MEMBER: frozenset[Role] = frozenset({"member"})
_SYSTEM: frozenset[Role] = frozenset({"system"})
_ANY: frozenset[Role] = _LEAD | _MEMBER

# fmt: off
_TABLE: tuple[tuple[str, frozenset[Role], frozenset[Role], str | None, Kind | None, Kind | None, str, str], ...] = (
    # type, who sends it, who takes it, the field about the sender, begins, answers, what it does, rule
    ("idle_notification", _MEMBER, _LEAD, "from_", None, None, "act show", "07.20"),
    ("shutdown_request", _LEAD, _MEMBER, "from_", "shutdown", None, "act show", "07.18"),
    ("shutdown_approved", _MEMBER, _LEAD, "from_", None, "shutdown", "act show", "07.18"),
    ("shutdown_rejected", _MEMBER, _LEAD, "from_", None, "shutdown", "act show", "07.18"),
    ("plan_approval_request", _MEMBER, _LEAD, "from_", "plan", None, "act show", "07.19"),
    ("plan_approval_response", _LEAD, _MEMBER, None, None, "plan", "act show", "07.13"),
    # A person decides about these two and no model, so that no model reads them.
    ("permission_request", _MEMBER, _LEAD, "agent_id", "permission", None, "act", "07.15"),
    ("permission_response", _LEAD, _MEMBER, None, None, "permission", "act", "07.13"),
    ("sandbox_permission_request", _MEMBER, _LEAD, "worker_name", "sandbox", None, "act", "07.15"),
    ("sandbox_permission_response", _LEAD, _MEMBER, None, None, "sandbox", "act", "07.13"),
    ("task_assignment", _ANY, _ANY, "assigned_by", None, None, "show", "07.23"),
    ("task_completed", _MEMBER, _LEAD, "from_", None, None, "show", "07.12"),
    ("teammate_terminated", _SYSTEM, _LEAD, None, None, None, "show", "07.12"),
    ("mode_set_request", _LEAD, _MEMBER, "from_", None, None, "act", "07.14"),
    ("team_permission_update", _NOBODY, _NOBODY, None, None, None, "", "07.16"),
)
# fmt: on

ROWS: Mapping[str, Row] = MappingProxyType(
    {
        kind: Row(
            senders=senders,
            receivers=receivers,
            about=about,
            begins=begins,
            answers=answers,
            act="act" in does,
            show="show" in does,
            rule=rule,
        )
        for kind, senders, receivers, about, begins, answers, does, rule in _TABLE
    }
)
"""Each type of frame and its row; each rule that compares roles is one (07.13 to 07.20)."""


def role_of(name: str, members: Collection[str]) -> Role:
    """The role of a name in a team: the lead by its reserved name, a member by the roster, exactly as written."""
    if name == LEAD:
        return "lead"
    if name == SYSTEM:
        return "system"
    return "member" if name in members else "stranger"


# ── modes ────────────────────────────────────────────────────────────────────────────────────────

_TO_DEFAULT = frozenset({"acceptEdits", "auto", "dontAsk"})
"""Modes from which `default` is a step to the stricter (07.14)."""


def stricter(mode: str, present: str) -> bool:
    """Whether a change of mode may come by mail: to `plan`, or to `default` from a laxer one (07.14)."""
    return (mode == "plan" and present != "plan") or (mode == "default" and present in _TO_DEFAULT)


# ── hosts ────────────────────────────────────────────────────────────────────────────────────────

MAX_HOST = 253
"""Characters of a host: what a name in the DNS can have."""


def askable(host: str) -> bool:
    """Whether a person is asked about a host: no pattern, nothing that cannot be seen, no longer than a name (07.15)."""
    return 0 < len(host) <= MAX_HOST and host.isprintable() and "*" not in host and " " not in host


# ── the verdict ──────────────────────────────────────────────────────────────────────────────────


def request_of(kind: Kind, frame: Frame, member: str) -> Request:
    """The request that a frame begins; `member` is who asks or, for a shutdown, who is asked."""
    request = Request(kind=kind, id=id_of(frame), member=member)
    match frame:
        case PermissionRequest():
            return replace(request, tool_name=frame.tool_name, tool_use_id=frame.tool_use_id)
        case SandboxPermissionRequest():
            return replace(request, host=frame.host_pattern.host)
        case _:
            return request


def id_of(frame: Frame) -> str:
    """The id of the request that a frame begins or answers; empty where it does neither."""
    return str(getattr(frame, "request_id", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What comes of a frame.

    Attributes:
        frame: as it counts: a plan's answer may have become a rejection.
        requests: what is open after it.
        act, show: the receiver's program does something; its model reads it. Neither: it is dropped.
        why: the reason where it is dropped; None where it is not.
        denied: a sandbox request for a host that nobody is asked about: the answer is no (07.15).
        mode: the permission mode to take, by a mode request or an approved plan; None: as it would be anyway.
        notes: for the journal, what of the frame does not count.
    """

    frame: Frame
    requests: Requests = field(repr=False)
    act: bool = False
    show: bool = False
    why: Why | None = None
    denied: bool = False
    mode: str | None = None
    notes: tuple[str, ...] = ()


def judge(
    frame: Frame,
    *,
    outer: str,
    me: str,
    members: Collection[str],
    requests: Requests,
    mode: str = "default",
    mode_after_plan: str = "default",
) -> Verdict:
    """Judges a frame that came; the first rung that applies answers (07.13 to 07.20).

    1. `always-dropped`     its row lets nobody send it
    2. `wrong-sender`       the outer `from` has no role that may; `wrong-receiver`: nor has the receiver
    3. `not-about-oneself`  the field about the sender names somebody else
    4. `known-request`      it begins a request whose id was there; `too-many-open`
    5. `not-open`           it answers a request that is not open; a plan's answer with another id than the open
                            one's is a rejection of that one (07.19)
    6. `other-host`         the answer is about another host, or `other-call`, than what was asked
    7. `not-stricter`       a mode that may not come by mail (07.14)

    Args:
        frame: as `frames.parse` read it.
        outer: the `from` of the entry.
        me: the receiver's own name.
        members: the names in the roster, without the lead.
        requests: what the receiver has open.
        mode: the receiver's permission mode.
        mode_after_plan: the one to which it goes back from plan mode.

    Returns the verdict; one that drops leaves the requests as they are.
    """
    row = ROWS[frame.type]

    def dropped(why: Why) -> Verdict:
        return Verdict(frame=frame, requests=requests, why=why)

    if not row.senders:
        return dropped("always-dropped")
    if role_of(outer, members) not in row.senders:
        return dropped("wrong-sender")
    if role_of(me, members) not in row.receivers:
        return dropped("wrong-receiver")
    if row.about is not None and (named := getattr(frame, row.about)) != outer and named is not None:
        return dropped("not-about-oneself")
    verdict = Verdict(frame=frame, requests=requests, act=row.act, show=row.show)
    member = outer if outer != LEAD else me
    if row.begins is not None:
        after = opened(requests, request_of(row.begins, frame, member))
        if not isinstance(after, Requests):
            return dropped(after)
        denied = isinstance(frame, SandboxPermissionRequest) and not askable(frame.host_pattern.host)
        return replace(verdict, requests=after, denied=denied)
    if row.answers is not None:
        request = requests.find(row.answers, member, id_of(frame))
        if request is None and isinstance(frame, PlanApprovalResponse):
            return _rejection(verdict, frame, member) or dropped("not-open")
        if request is None:
            return dropped("not-open")
        if why := _misses(frame, request):
            return dropped(why)
        kept, notes = _mode_and_notes(frame, mode_after_plan)
        return replace(verdict, requests=settled(requests, request), mode=kept, notes=notes)
    if isinstance(frame, ModeSetRequest):
        return replace(verdict, mode=frame.mode) if stricter(frame.mode, mode) else dropped("not-stricter")
    return verdict


def _rejection(verdict: Verdict, frame: PlanApprovalResponse, member: str) -> Verdict | None:
    """An answer that names another plan than the open one rejects that one; None where none is open (07.19)."""
    waiting = verdict.requests.of("plan", member)
    if not waiting:
        return None
    return replace(
        verdict,
        frame=replace(frame, approved=False, permission_mode=None),
        requests=settled(verdict.requests, waiting[-1]),
        notes=("it names another plan than the one that waits, which counts as rejected",),
    )


def _misses(frame: Frame, request: Request) -> Why | None:
    """Why an answer does not fit what was asked; None where it does."""
    match frame:
        case SandboxPermissionResponse():
            return None if frame.host == request.host else "other-host"
        case PermissionResponse(approved_request=approved):
            used, tool = request.tool_use_id, request.tool_name
            same = frame.tool_use_id in (None, used)
            if approved is not None:
                same = same and (approved.tool_use_id, approved.tool_name) == (used, tool)
            return None if same else "other-call"
        case _:
            return None


def _mode_and_notes(frame: Frame, mode_after_plan: str) -> tuple[str | None, tuple[str, ...]]:
    """What an answer would change besides: a mode only to a stricter one, rules not at all (07.14, 07.16)."""
    match frame:
        case PlanApprovalResponse(approved=True, permission_mode=str(wanted)) if wanted != mode_after_plan:
            if stricter(wanted, mode_after_plan):
                return wanted, ()
            return None, ("its permission mode does not count: it is not stricter",)
        case PermissionResponse(response=answer) if answer is not None and answer.permission_updates:
            return None, ("its changes of permission rules do not count: none come by mail",)
        case _:
            return None, ()


# ── what waits in a mailbox ──────────────────────────────────────────────────────────────────────


def superseded(waiting: Sequence[tuple[str, object]]) -> frozenset[int]:
    """The places of the idle notifications that a later one of the same member replaces (07.20).

    Args:
        waiting: the outer `from` and what `frames.parse` answered, in the order of the file.
    """
    latest: dict[str, int] = {}
    idle = [place for place, (_, frame) in enumerate(waiting) if isinstance(frame, IdleNotification)]
    latest.update((waiting[place][0], place) for place in idle)
    return frozenset(idle) - frozenset(latest.values())


def urgent_first(waiting: Sequence[tuple[str, object]]) -> list[int]:
    """The places in the order in which they are read: requests to shut down first, the rest as it came (07.9).

    A request that the lead did not send jumps no queue.
    """

    def rank(place: int) -> bool:
        outer, frame = waiting[place]
        return not (outer == LEAD and isinstance(frame, ShutdownRequest))

    return sorted(range(len(waiting)), key=rank)
