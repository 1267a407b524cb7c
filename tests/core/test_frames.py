"""What a model reads of a frame, and what it never does."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from postroom.core.contract import FRAME_TYPES
from postroom.core.frames import (
    MAX_SHOWN,
    IdleNotification,
    PlanApprovalRequest,
    PlanApprovalResponse,
    ShutdownRejected,
    ShutdownRequest,
    TaskAssignment,
    TaskCompleted,
    words,
)
from tests.framing import ALL, AT, BY_TYPE, MEMBER

UNREAD = {
    *("permission_request", "permission_response", "sandbox_permission_request"),
    *("sandbox_permission_response", "mode_set_request", "team_permission_update"),
}
IDLE = IdleNotification(from_=MEMBER, timestamp=AT)


@pytest.mark.rule("07.12")
def test_there_is_a_record_for_every_type_that_is_never_sent_as_text() -> None:
    assert set(BY_TYPE) == FRAME_TYPES - {"shutdown_response"}


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        IDLE.summary = "x"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_repr_shows_no_text_of_others() -> None:
    for frame in ALL:
        for said in ("done", "one test is left", "# Plan", "good", "ls", "list files", "/home", "write them"):
            assert said not in repr(frame).replace("RuleLine(tool_name='Bash', rule_content='ls')", "")


@pytest.mark.rule("07.12")
@pytest.mark.parametrize("kind", sorted(BY_TYPE))
def test_a_model_reads_sentences_and_never_the_frame(kind: str) -> None:
    said = words(BY_TYPE[kind])
    assert (said is None) == (kind in UNREAD)
    assert said is None or (said[0].isalpha() and kind not in said)


@pytest.mark.rule("07.18")
def test_a_request_to_shut_down_says_how_it_is_answered() -> None:
    said = words(
        ShutdownRequest(request_id='a"b', from_="team-lead", timestamp=AT, reason=" the work\nis done ")
    )
    assert said is not None
    first, second = said.split("\n")
    assert first == "Please shut down. Reason: the work is done"
    assert '{"type": "shutdown_response", "request_id": "a\\"b", "approve": true}' in second
    assert second.endswith("for a no, `approve` is false with `reason`.")
    assert (words(ShutdownRequest(request_id="a", from_="x", timestamp=AT)) or "").startswith(
        "Please shut down.\n"
    )


@pytest.mark.rule("07.18")
def test_an_answer_to_a_shutdown_says_what_it_is() -> None:
    assert words(BY_TYPE["shutdown_approved"]) == "I have agreed to shut down."
    assert words(BY_TYPE["shutdown_rejected"]) == "I have not agreed to shut down. Reason: one test is left"
    silent = ShutdownRejected(request_id="s1", from_=MEMBER, timestamp=AT, reason="  ")
    assert words(silent) == "I have not agreed to shut down."


@pytest.mark.rule("07.19")
def test_a_plan_is_shown_whole_and_its_answer_with_the_feedback() -> None:
    plan = "# Plan\n" + "1. step\n" * MAX_SHOWN
    said = words(
        PlanApprovalRequest(
            request_id="p1", from_=MEMBER, timestamp=AT, plan_file_path="/p", plan_content=plan
        )
    )
    assert said is not None
    assert said.endswith(plan)
    assert '"type": "plan_approval_response", "request_id": "p1"' in said
    assert "with `feedback`" in said
    yes = PlanApprovalResponse(request_id="p1", approved=True, timestamp=AT)
    assert words(yes) == "Your plan is approved."
    assert words(replace(yes, approved=False, feedback="too big\nsplit it")) == (
        "Your plan is not approved: change it and ask again.\ntoo big\nsplit it"
    )


@pytest.mark.rule("07.20")
def test_an_idle_notification_says_why_what_was_done_and_the_error() -> None:
    assert words(IDLE) == words(replace(IDLE, idle_reason="available")) == "My turn has ended and I am idle."
    assert words(replace(IDLE, idle_reason="interrupted")) == "My turn was interrupted and I am idle."
    failed = replace(IDLE, idle_reason="failed", failure_reason="no\nnetwork", summary="half of it")
    assert words(failed) == "My turn has failed and I am idle. Error: no network Summary: half of it"
    assert (
        words(replace(IDLE, result="It is done."))
        == "My turn has ended and I am idle. Last words: It is done."
    )
    assert words(replace(IDLE, completed_task_id="7")) == "My turn has ended and I am idle. Task 7: resolved."
    blocked = replace(IDLE, completed_task_id="7", completed_status="blocked")
    assert words(blocked) == "My turn has ended and I am idle. Task 7: blocked."


@pytest.mark.parametrize(("length", "cut"), [(MAX_SHOWN, False), (MAX_SHOWN + 1, True)])
def test_what_is_shown_in_a_line_is_cut(length: int, cut: bool) -> None:
    said = (words(replace(IDLE, summary="x" * length)) or "").partition("Summary: ")[2]
    assert len(said) == MAX_SHOWN
    assert said.endswith("…") is cut


def test_a_task_is_named_with_what_is_to_be_done() -> None:
    task = TaskAssignment(task_id="4", subject="a\nb", description="", assigned_by="team-lead", timestamp=AT)
    assert words(task) == "Task 4 is yours now: a b"
    assert words(replace(task, description="do\nit")) == "Task 4 is yours now: a b\ndo\nit"
    assert words(TaskCompleted(task_id="4")) == "Task 4 is completed."
    assert words(TaskCompleted(task_id="4", task_subject="tests")) == "Task 4 is completed. Subject: tests"
    assert words(BY_TYPE["teammate_terminated"]) == "researcher has shut down"
