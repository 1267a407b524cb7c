"""One frame of each type, as the tests of the team's frames use them."""

from __future__ import annotations

from collections.abc import Mapping

from postroom.core.frames import (
    Answer,
    ApprovedRequest,
    Frame,
    HostPattern,
    IdleNotification,
    ModeSetRequest,
    PermissionRequest,
    PermissionResponse,
    PermissionUpdate,
    PlanApprovalRequest,
    PlanApprovalResponse,
    RuleLine,
    SandboxPermissionRequest,
    SandboxPermissionResponse,
    ShutdownApproved,
    ShutdownRejected,
    ShutdownRequest,
    TaskAssignment,
    TaskCompleted,
    TeammateTerminated,
    TeamPermissionUpdate,
)

AT = "2026-11-30T12:00:00.000Z"
LEAD, MEMBER = "team-lead", "researcher"

ALL: tuple[Frame, ...] = (
    IdleNotification(from_=MEMBER, timestamp=AT, idle_reason="available", summary="done"),
    ShutdownRequest(request_id="s1", from_=LEAD, timestamp=AT, reason="the work is done"),
    ShutdownApproved(request_id="s1", from_=MEMBER, timestamp=AT, pane_id="%3", backend_type="tmux"),
    ShutdownRejected(request_id="s1", from_=MEMBER, timestamp=AT, reason="one test is left"),
    PlanApprovalRequest(
        request_id="p1", from_=MEMBER, timestamp=AT, plan_file_path="/plan.md", plan_content="# Plan\n1. go"
    ),
    PlanApprovalResponse(request_id="p1", approved=True, timestamp=AT, feedback="good"),
    PermissionRequest(
        request_id="r1",
        agent_id=MEMBER,
        tool_name="Bash",
        tool_use_id="t1",
        description="list files",
        input={"command": "ls"},
        permission_suggestions=({"type": "addRules"},),
    ),
    PermissionResponse(
        request_id="r1",
        subtype="success",
        response=Answer(updated_input={"command": "ls -l"}),
        tool_use_id="t1",
        approved_request=ApprovedRequest(tool_use_id="t1", tool_name="Bash", input_digest="abc"),
    ),
    SandboxPermissionRequest(
        request_id="h1",
        worker_id="w1",
        worker_name=MEMBER,
        host_pattern=HostPattern(host="example.org"),
        created_at=1_764_504_000_000,
    ),
    SandboxPermissionResponse(request_id="h1", host="example.org", allow=True, timestamp=AT),
    TaskAssignment(task_id="4", subject="tests", description="write them", assigned_by=LEAD, timestamp=AT),
    TaskCompleted(task_id="4", from_=MEMBER, task_subject="tests"),
    TeammateTerminated(message="researcher has shut down"),
    ModeSetRequest(mode="plan", from_=LEAD),
    TeamPermissionUpdate(
        permission_update=PermissionUpdate(
            type="addRules",
            rules=(RuleLine(tool_name="Bash", rule_content="ls"), RuleLine(tool_name="Read")),
            behavior="allow",
            destination="session",
        ),
        directory_path="/home/a",
        tool_name="Bash",
    ),
)

BY_TYPE: Mapping[str, Frame] = {frame.type: frame for frame in ALL}
