"""Frames of a team: a record for each of them, and what a model reads of one (07.12).

`core.frame_text` reads them from the text of a mailbox entry and writes them there, `core.roles` says who may send which
and what comes of it. Nothing in a record is believed here, its `from` least of all.

`words` makes the sentences that stand in the place of a frame's JSON. They are not scrubbed: the caller puts them into
the sender's block, where every text is (04.4).

It never parses, decides or raises.

What is weak: a plan or a task's description is shown whole; how much a model gets at once is for `core.portion`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SHOWN = 200
"""Characters of a name, summary or reason that `words` shows (07.12); a plan is shown whole."""

# ── the records ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleNotification:
    """A member's turn has ended (07.20)."""

    type: ClassVar[str] = "idle_notification"
    from_: str
    timestamp: str
    idle_reason: Literal["available", "interrupted", "failed"] | None = None
    summary: str | None = field(default=None, repr=False)
    completed_task_id: str | None = None
    completed_status: Literal["resolved", "blocked", "failed"] | None = None
    failure_reason: str | None = field(default=None, repr=False)
    result: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownRequest:
    """The lead asks a member to end (07.18)."""

    type: ClassVar[str] = "shutdown_request"
    request_id: str
    from_: str
    timestamp: str
    reason: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownApproved:
    """A member will end; where it runs, so that the lead can end it otherwise (07.18)."""

    type: ClassVar[str] = "shutdown_approved"
    request_id: str
    from_: str
    timestamp: str
    pane_id: str | None = None
    backend_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownRejected:
    """A member goes on, and says why (07.18)."""

    type: ClassVar[str] = "shutdown_rejected"
    request_id: str
    from_: str
    timestamp: str
    reason: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanApprovalRequest:
    """A member in plan mode asks the lead whether its plan may be carried out (07.19)."""

    type: ClassVar[str] = "plan_approval_request"
    request_id: str
    from_: str
    timestamp: str
    plan_file_path: str = field(repr=False)
    plan_content: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanApprovalResponse:
    """The lead's answer to a plan; `permission_mode` is what the lead would have it run in (07.19)."""

    type: ClassVar[str] = "plan_approval_response"
    request_id: str
    approved: bool
    timestamp: str
    feedback: str | None = field(default=None, repr=False)
    permission_mode: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRequest:
    """A member asks whether it may use a tool (07.15)."""

    type: ClassVar[str] = "permission_request"
    request_id: str
    agent_id: str
    tool_name: str
    tool_use_id: str
    description: str = field(repr=False)
    input: Mapping[str, object] = field(repr=False)
    permission_suggestions: tuple[object, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a yes to a tool says besides: the input to use instead, and changes of rules."""

    updated_input: Mapping[str, object] | None = field(default=None, repr=False)
    permission_updates: tuple[object, ...] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovedRequest:
    """The call for which a yes was given, as newer programs repeat it."""

    tool_use_id: str
    tool_name: str
    input_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionResponse:
    """The lead's answer about a tool: `success` is a yes, `error` a no with its words (07.13)."""

    type: ClassVar[str] = "permission_response"
    request_id: str
    subtype: Literal["success", "error"]
    response: Answer | None = None
    error: str | None = field(default=None, repr=False)
    tool_use_id: str | None = None
    approved_request: ApprovedRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPattern:
    """The host that a member wants to reach."""

    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPermissionRequest:
    """A member's sandbox asks for a host; `created_at` in epoch milliseconds (07.15)."""

    type: ClassVar[str] = "sandbox_permission_request"
    request_id: str
    worker_id: str
    worker_name: str
    host_pattern: HostPattern
    created_at: int
    worker_color: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPermissionResponse:
    """The lead's answer about a host (07.13)."""

    type: ClassVar[str] = "sandbox_permission_response"
    request_id: str
    host: str
    allow: bool
    timestamp: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAssignment:
    """Somebody has set the receiver as a task's owner (07.23)."""

    type: ClassVar[str] = "task_assignment"
    task_id: str
    subject: str = field(repr=False)
    description: str = field(repr=False)
    assigned_by: str
    timestamp: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCompleted:
    """A member has completed a task."""

    type: ClassVar[str] = "task_completed"
    task_id: str
    from_: str | None = None
    task_subject: str | None = field(default=None, repr=False)
    timestamp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TeammateTerminated:
    """The lead's own program says that a member has ended."""

    type: ClassVar[str] = "teammate_terminated"
    message: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSetRequest:
    """The lead would have a member in another permission mode (07.14)."""

    type: ClassVar[str] = "mode_set_request"
    mode: str
    from_: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """A permission rule."""

    tool_name: str
    rule_content: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionUpdate:
    """Rules to be added for the session."""

    type: Literal["addRules"]
    rules: tuple[RuleLine, ...]
    behavior: Literal["allow", "deny", "ask"]
    destination: Literal["session"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamPermissionUpdate:
    """A change of rules for a whole team, which nobody follows (07.16)."""

    type: ClassVar[str] = "team_permission_update"
    permission_update: PermissionUpdate
    directory_path: str = field(repr=False)
    tool_name: str


Frame = (
    IdleNotification
    | ShutdownRequest
    | ShutdownApproved
    | ShutdownRejected
    | PlanApprovalRequest
    | PlanApprovalResponse
    | PermissionRequest
    | PermissionResponse
    | SandboxPermissionRequest
    | SandboxPermissionResponse
    | TaskAssignment
    | TaskCompleted
    | TeammateTerminated
    | ModeSetRequest
    | TeamPermissionUpdate
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """A frame that cannot be used: it is removed, journaled and never shown (07.17).

    Attributes:
        type: what it gives as its type; empty where that cannot be told.
        reason: why, in words that are ours.
    """

    type: str
    reason: str


# ── what a model reads ───────────────────────────────────────────────────────────────────────────


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_SHOWN else f"{line[: MAX_SHOWN - 1].rstrip()}…"


def _said(label: str, text: str | None) -> str:
    """` Label: text`, nothing for no text."""
    return f" {label}: {_cut(text)}" if text and text.strip() else ""


_IDLE: Mapping[str | None, str] = MappingProxyType(
    {
        None: "My turn has ended and I am idle.",
        "available": "My turn has ended and I am idle.",
        "interrupted": "My turn was interrupted and I am idle.",
        "failed": "My turn has failed and I am idle.",
    }
)


def _idle(frame: IdleNotification) -> str:
    task = ""
    if frame.completed_task_id:
        task = f" Task {_cut(frame.completed_task_id)}: {frame.completed_status or 'resolved'}."
    said = (
        _said("Error", frame.failure_reason)
        + _said("Summary", frame.summary)
        + _said("Last words", frame.result)
    )
    return f"{_IDLE[frame.idle_reason]}{task}{said}"


def _record(form: str, request_id: str, word: str) -> str:
    shape = json.dumps({"type": form, "request_id": request_id, "approve": True}, ensure_ascii=False)
    return f"Answer with SendMessage whose `message` is {shape}; for a no, `approve` is false with `{word}`."


def words(frame: Frame) -> str | None:
    """What a model reads of a frame, in the place of its JSON (07.12); None for what no model reads.

    The caller puts it into the sender's block, where it is scrubbed like any text.
    """
    match frame:
        case IdleNotification():
            return _idle(frame)
        case ShutdownRequest():
            answer = _record("shutdown_response", frame.request_id, "reason")
            return f"Please shut down.{_said('Reason', frame.reason)}\n{answer}"
        case ShutdownApproved():
            return "I have agreed to shut down."
        case ShutdownRejected():
            return f"I have not agreed to shut down.{_said('Reason', frame.reason)}"
        case PlanApprovalRequest():
            answer = _record("plan_approval_response", frame.request_id, "feedback")
            return f"Please look at my plan.\n{answer}\n\n{frame.plan_content}"
        case PlanApprovalResponse():
            verdict = (
                "Your plan is approved."
                if frame.approved
                else "Your plan is not approved: change it and ask again."
            )
            return f"{verdict}\n{frame.feedback}" if frame.feedback else verdict
        case TaskAssignment():
            text = f"\n{frame.description}" if frame.description else ""
            return f"Task {_cut(frame.task_id)} is yours now: {_cut(frame.subject)}{text}"
        case TaskCompleted():
            return f"Task {_cut(frame.task_id)} is completed.{_said('Subject', frame.task_subject)}"
        case TeammateTerminated():
            return frame.message
        case _:
            return None
