"""The public forms of a team's frames: what an agent gives SendMessage, and the frame that travels (01.4, 07.12).

`outgoing` makes the frame, by the same table of roles as it will be judged where it comes; `public_form` gives back
what an agent would have given. `approve` of the tool is `approved` on the wire, and a response to a shutdown is one of
two frames there.

It never checks a record's fields, which `contract.validate` did, and sends nothing.

How it fails: a record that may not be sent, or answers nothing, is the refusal `invalid_record`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from postroom.core.address import LEAD
from postroom.core.contract import SEND_MESSAGE
from postroom.core.frames import (
    Frame,
    PlanApprovalResponse,
    ShutdownApproved,
    ShutdownRejected,
    ShutdownRequest,
)
from postroom.core.refusals import refusal
from postroom.core.requests import Requests, opened, settled
from postroom.core.roles import ROWS, id_of, request_of, role_of
from postroom.core.times import stamp

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from postroom.core.message import Refusal
    from postroom.core.roles import Role


def _in_a_team() -> dict[str, object]:
    schema = cast("Mapping[str, Any]", SEND_MESSAGE["input_schema"])
    message = {
        "type": ["string", "object", "null"],
        "description": (
            "The text. Or, to a teammate, one record and no summary: "
            '{"type": "shutdown_request", "reason"?}, {"type": "shutdown_response", "request_id", "approve", '
            '"reason"?} or {"type": "plan_approval_response", "request_id", "approve", "feedback"?}.'
        ),
    }
    properties = {**schema["properties"], "message": message}
    return {**SEND_MESSAGE, "input_schema": {**schema, "properties": properties}}


SEND_MESSAGE_IN_A_TEAM: Mapping[str, object] = _in_a_team()
"""SendMessage as a model reads it while a team is active: `message` may be one of the public records (01.4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A frame to be sent, and what is open once it is."""

    frame: Frame
    requests: Requests = field(repr=False)


def outgoing(
    record: Mapping[str, object],
    *,
    me: str,
    to: str,
    members: Collection[str],
    requests: Requests,
    now: int,
    pane_id: str | None = None,
    backend_type: str | None = None,
) -> Outgoing | Refusal:
    """Turns a public form of SendMessage into its frame (01.4, 07.18, 07.19).

    `approve` of the tool is `approved` on the wire, and a response to a shutdown is one of two frames.

    Args:
        record: as `contract.validate` checked it.
        me, to: the names of the sender and the receiver in the team.
        members: the names in the roster, without the lead.
        requests: what the sender has open.
        now: epoch milliseconds.
        pane_id, backend_type: where a member runs that approves its shutdown.

    Returns the frame with the requests after it, or the refusal `invalid_record`.
    """
    frame = _frame_of(record, me, to, now, pane_id, backend_type)
    row = ROWS[frame.type]
    kind = record["type"]
    if role_of(me, members) not in row.senders:
        return refusal("invalid_record", problem=f"{kind} is only for {_they(row.senders)} to send")
    if role_of(to, members) not in row.receivers:
        return refusal("invalid_record", problem=f"{kind} goes only to {_they(row.receivers)}")
    member = to if me == LEAD else me
    if row.begins is not None:
        after = opened(requests, request_of(row.begins, frame, member))
        if not isinstance(after, Requests):
            return refusal("invalid_record", problem=f"{to} was asked that a moment ago")
        return Outgoing(frame=frame, requests=after)
    answered = row.answers and requests.find(row.answers, member, id_of(frame))
    if not answered:
        return refusal(
            "invalid_record", problem="`message.request_id` is no request that waits for an answer"
        )
    return Outgoing(frame=frame, requests=settled(requests, answered))


def _they(roles: frozenset[Role]) -> str:
    return "the lead of a team" if "lead" in roles else "a member of a team"


def _text(record: Mapping[str, object], key: str) -> str | None:
    value = record.get(key)
    return value if isinstance(value, str) else None


def _frame_of(
    record: Mapping[str, object], me: str, to: str, now: int, pane_id: str | None, backend_type: str | None
) -> Frame:
    at, reason, approve = stamp(now), _text(record, "reason"), record.get("approve") is True
    request_id = _text(record, "request_id") or ""
    match record["type"]:
        case "shutdown_request":
            made = f"shutdown-{now}@{to}"  # as Claude Code writes it, which shows its models no id of another form
            return ShutdownRequest(request_id=made, from_=me, reason=reason, timestamp=at)
        case "shutdown_response" if approve:
            return ShutdownApproved(
                request_id=request_id, from_=me, timestamp=at, pane_id=pane_id, backend_type=backend_type
            )
        case "shutdown_response":
            return ShutdownRejected(request_id=request_id, from_=me, timestamp=at, reason=reason or "")
        case _:
            feedback = _text(record, "feedback")
            return PlanApprovalResponse(
                request_id=request_id, approved=approve, feedback=feedback, timestamp=at
            )


def public_form(frame: Frame) -> dict[str, object] | None:
    """The public form of a frame, as an agent would have given it; None for a frame that has none (01.4)."""
    form: dict[str, object | None]
    match frame:
        case ShutdownRequest():
            form = {"type": "shutdown_request", "reason": frame.reason}
        case ShutdownApproved():
            form = {"type": "shutdown_response", "request_id": frame.request_id, "approve": True}
        case ShutdownRejected():
            form = {"type": "shutdown_response", "request_id": frame.request_id, "approve": False}
            form["reason"] = frame.reason or None
        case PlanApprovalResponse():
            form = {"type": "plan_approval_response", "request_id": frame.request_id}
            form |= {"approve": frame.approved, "feedback": frame.feedback}
        case _:
            return None
    return {key: value for key, value in form.items() if value is not None}
