"""The table of roles: each row takes its frame from the right sender at the right receiver, and from nobody else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.core.frames import (
    Answer,
    ApprovedRequest,
    Frame,
    HostPattern,
    IdleNotification,
    Malformed,
    ModeSetRequest,
    PermissionRequest,
    PermissionResponse,
    PlanApprovalRequest,
    PlanApprovalResponse,
    SandboxPermissionRequest,
    SandboxPermissionResponse,
    ShutdownApproved,
    ShutdownRequest,
    TaskCompleted,
)
from postroom.core.requests import LIMITS, Kind, Request, Requests
from postroom.core.roles import (
    MAX_HOST,
    ROWS,
    Verdict,
    Why,
    askable,
    judge,
    role_of,
    stricter,
    superseded,
    urgent_first,
)
from tests.framing import ALL, AT, BY_TYPE, LEAD, MEMBER

OTHER, STRANGER, SYSTEM = "tester", "nobody", "system"
MEMBERS = (MEMBER, OTHER)
NAMES = (LEAD, MEMBER, OTHER, SYSTEM, STRANGER)
KINDS = sorted(BY_TYPE)
OPEN = Requests(
    open=(
        Request(kind="shutdown", id="s1", member=MEMBER),
        Request(kind="plan", id="p1", member=MEMBER),
        Request(kind="permission", id="r1", member=MEMBER, tool_name="Bash", tool_use_id="t1"),
        Request(kind="sandbox", id="h1", member=MEMBER, host="example.org"),
    )
)
MODES = ("default", "plan", "acceptEdits", "auto", "dontAsk", "bypassPermissions", "yolo")

# Written a second time, as the specification and the facts have them, and not taken from the table.
EXPECTED: dict[str, tuple[set[str], set[str], str | None, str]] = {
    "idle_notification": ({"member"}, {"lead"}, "from_", "act show"),
    "shutdown_request": ({"lead"}, {"member"}, "from_", "act show"),
    "shutdown_approved": ({"member"}, {"lead"}, "from_", "act show"),
    "shutdown_rejected": ({"member"}, {"lead"}, "from_", "act show"),
    "plan_approval_request": ({"member"}, {"lead"}, "from_", "act show"),
    "plan_approval_response": ({"lead"}, {"member"}, None, "act show"),
    "permission_request": ({"member"}, {"lead"}, "agent_id", "act"),
    "permission_response": ({"lead"}, {"member"}, None, "act"),
    "sandbox_permission_request": ({"member"}, {"lead"}, "worker_name", "act"),
    "sandbox_permission_response": ({"lead"}, {"member"}, None, "act"),
    "task_assignment": ({"lead", "member"}, {"lead", "member"}, "assigned_by", "show"),
    "task_completed": ({"member"}, {"lead"}, "from_", "show"),
    "teammate_terminated": ({"system"}, {"lead"}, None, "show"),
    "mode_set_request": ({"lead"}, {"member"}, "from_", "act"),
    "team_permission_update": (set(), set(), None, ""),
}
BEGINNING: dict[str, Kind] = {
    "shutdown_request": "shutdown",
    "plan_approval_request": "plan",
    "permission_request": "permission",
    "sandbox_permission_request": "sandbox",
}
ANSWERING: dict[str, Kind] = {
    "shutdown_approved": "shutdown",
    "shutdown_rejected": "shutdown",
    "plan_approval_response": "plan",
    "permission_response": "permission",
    "sandbox_permission_response": "sandbox",
}
PAIRS = [(kind, outer, me) for kind in KINDS for outer in NAMES for me in NAMES]


def role(name: str) -> str:
    return {LEAD: "lead", SYSTEM: "system", STRANGER: "stranger"}.get(name, "member")


def of(outer: str, me: str) -> Requests:
    """All four sorts open, for the member that the two names are about."""
    member = me if outer == LEAD else outer
    return Requests(open=tuple(replace(each, member=member) for each in OPEN.open))


def come(
    frame: Frame,
    outer: str,
    me: str,
    *,
    requests: Requests | None = None,
    mode: str = "default",
    mode_after_plan: str = "default",
) -> Verdict:
    if requests is None:
        requests = Requests() if frame.type in BEGINNING else of(outer, me)
    return judge(
        frame,
        outer=outer,
        me=me,
        members=MEMBERS,
        requests=requests,
        mode=mode,
        mode_after_plan=mode_after_plan,
    )


def by(frame: Frame, outer: str) -> Frame:
    """The frame with its field about the sender as it must be."""
    about = EXPECTED[frame.type][2]
    return replace(frame, **cast("dict[str, Any]", {about: outer})) if about else frame


def is_dropped(verdict: Verdict, why: Why, before: Requests) -> None:
    assert verdict.why == why
    assert not verdict.act
    assert not verdict.show
    assert (verdict.mode, verdict.denied, verdict.requests) == (None, False, before)


def test_the_table_has_every_type_and_says_what_the_specification_says() -> None:
    assert set(ROWS) == set(EXPECTED) == set(BY_TYPE)
    for kind, row in ROWS.items():
        senders, receivers, about, does = EXPECTED[kind]
        assert (row.senders, row.receivers, row.about) == (senders, receivers, about)
        assert (row.act, row.show) == ("act" in does, "show" in does)
        assert (row.begins, row.answers) == (BEGINNING.get(kind), ANSWERING.get(kind))
        assert row.rule.startswith("07.")


@pytest.mark.rule("07.13", "07.14", "07.15", "07.16", "07.17", "07.18", "07.20")
@pytest.mark.parametrize(("kind", "outer", "me"), PAIRS)
def test_each_frame_counts_from_its_roles_and_is_dropped_from_every_other(
    kind: str, outer: str, me: str
) -> None:
    senders, receivers, _, does = EXPECTED[kind]
    frame = by(BY_TYPE[kind], outer)
    verdict = come(frame, outer, me)
    before = Requests() if kind in BEGINNING else of(outer, me)
    if not senders:
        is_dropped(verdict, "always-dropped", before)
    elif role(outer) not in senders:
        is_dropped(verdict, "wrong-sender", before)
    elif role(me) not in receivers:
        is_dropped(verdict, "wrong-receiver", before)
    else:
        assert verdict.why is None
        assert verdict.frame == frame
        assert (verdict.act, verdict.show) == ("act" in does, "show" in does)


@pytest.mark.rule("07.15")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if EXPECTED[kind][2]])
def test_a_frame_that_is_about_somebody_else_than_its_sender_is_dropped(kind: str) -> None:
    senders, receivers, *_ = EXPECTED[kind]
    outer = MEMBER if "member" in senders else LEAD
    me = LEAD if "lead" in receivers else MEMBER
    before = Requests() if kind in BEGINNING else of(outer, me)
    for named in {*NAMES, MEMBER.upper(), ""} - {outer}:
        is_dropped(come(by(BY_TYPE[kind], named), outer, me), "not-about-oneself", before)


def test_a_completed_task_need_not_say_by_whom() -> None:
    assert come(TaskCompleted(task_id="4"), MEMBER, LEAD).show


@pytest.mark.parametrize("name", ["Team-Lead", "team-lead ", "Researcher", ""])
def test_a_role_is_of_the_name_exactly_as_written(name: str) -> None:
    assert role_of(name, MEMBERS) == "stranger"
    assert [role_of(each, MEMBERS) for each in NAMES] == [*map(role, NAMES)]


@pytest.mark.rule("07.16")
def test_a_change_of_the_teams_rules_is_dropped_though_a_lead_sends_it() -> None:
    is_dropped(come(BY_TYPE["team_permission_update"], LEAD, MEMBER), "always-dropped", of(LEAD, MEMBER))


@pytest.mark.rule("07.18")
def test_report_47_a_member_cannot_have_itself_another_or_the_lead_shut_down() -> None:
    for outer, me in ((MEMBER, MEMBER), (MEMBER, OTHER), (MEMBER, LEAD)):
        frame = ShutdownRequest(request_id="s1", from_=outer, timestamp=AT)
        is_dropped(come(frame, outer, me), "wrong-sender", Requests())
    is_dropped(come(BY_TYPE["shutdown_request"], LEAD, LEAD), "wrong-receiver", Requests())


# ── requests and their answers ───────────────────────────────────────────────────────────────────


def ends(kind: str) -> tuple[str, str]:
    """Who sends a frame of this type, and to whom."""
    return (LEAD, MEMBER) if "lead" in EXPECTED[kind][0] else (MEMBER, LEAD)


@pytest.mark.rule("07.18", "07.19")
@pytest.mark.parametrize("kind", sorted(BEGINNING))
def test_a_request_is_opened_once(kind: str) -> None:
    outer, me = ends(kind)
    first = come(BY_TYPE[kind], outer, me)
    (request,) = first.requests.open
    assert (request.kind, request.member) == (BEGINNING[kind], MEMBER)
    assert request in OPEN.open
    is_dropped(come(BY_TYPE[kind], outer, me, requests=first.requests), "known-request", first.requests)


def test_so_many_permissions_may_be_asked_for_at_once() -> None:
    frame = cast("PermissionRequest", BY_TYPE["permission_request"])
    requests = Requests()
    for number in range(LIMITS["permission"][0]):
        requests = come(replace(frame, request_id=f"n{number}"), MEMBER, LEAD, requests=requests).requests
    is_dropped(come(frame, MEMBER, LEAD, requests=requests), "too-many-open", requests)


@pytest.mark.rule("07.13", "07.18")
@pytest.mark.parametrize("kind", sorted(ANSWERING))
def test_an_answer_counts_once_and_only_where_its_request_is_open(kind: str) -> None:
    outer, me = ends(kind)
    frame = BY_TYPE[kind]
    first = come(frame, outer, me, requests=OPEN)
    assert first.act
    assert {each.kind for each in OPEN.open} - {each.kind for each in first.requests.open} == {
        ANSWERING[kind]
    }
    is_dropped(come(frame, outer, me, requests=first.requests), "not-open", first.requests)
    is_dropped(come(frame, outer, me, requests=Requests()), "not-open", Requests())


@pytest.mark.rule("07.13", "07.18")
@pytest.mark.parametrize("kind", sorted(ANSWERING))
def test_an_answer_is_about_this_members_request_alone(kind: str) -> None:
    outer, me = ends(kind)
    if outer == LEAD:
        verdict = come(BY_TYPE[kind], LEAD, OTHER, requests=OPEN)
    else:
        verdict = come(by(BY_TYPE[kind], OTHER), OTHER, me, requests=OPEN)
    is_dropped(verdict, "not-open", OPEN)


@pytest.mark.rule("07.13")
@pytest.mark.parametrize("kind", sorted(set(ANSWERING) - {"plan_approval_response"}))
def test_an_answer_with_another_id_is_dropped(kind: str) -> None:
    outer, me = ends(kind)
    other = replace(BY_TYPE[kind], **cast("dict[str, Any]", {"request_id": "zz"}))
    is_dropped(come(other, outer, me, requests=OPEN), "not-open", OPEN)


@pytest.mark.rule("07.19")
def test_a_plans_answer_for_another_id_rejects_the_plan_that_waits() -> None:
    frame = PlanApprovalResponse(request_id="old", approved=True, timestamp=AT, permission_mode="plan")
    verdict = come(frame, LEAD, MEMBER, requests=OPEN)
    assert verdict.act
    assert verdict.show
    assert verdict.frame == replace(frame, approved=False, permission_mode=None)
    assert verdict.requests.of("plan", MEMBER) == ()
    assert verdict.mode is None
    assert "another plan" in verdict.notes[0]


@pytest.mark.rule("07.19")
def test_a_plan_that_was_rejected_may_be_asked_about_again() -> None:
    no = replace(cast("PlanApprovalResponse", BY_TYPE["plan_approval_response"]), approved=False)
    after = come(no, LEAD, MEMBER, requests=OPEN).requests
    again = replace(cast("PlanApprovalRequest", BY_TYPE["plan_approval_request"]), request_id="p2")
    assert come(again, MEMBER, LEAD, requests=after).act


@pytest.mark.rule("07.13")
def test_an_answer_about_another_host_is_dropped() -> None:
    frame = replace(
        cast("SandboxPermissionResponse", BY_TYPE["sandbox_permission_response"]), host="example.com"
    )
    is_dropped(come(frame, LEAD, MEMBER, requests=OPEN), "other-host", OPEN)


@pytest.mark.rule("07.13")
@pytest.mark.parametrize(
    "answer",
    [
        PermissionResponse(request_id="r1", subtype="success", tool_use_id="t2"),
        PermissionResponse(
            request_id="r1",
            subtype="success",
            approved_request=ApprovedRequest(tool_use_id="t2", tool_name="Bash", input_digest=""),
        ),
        PermissionResponse(
            request_id="r1",
            subtype="success",
            approved_request=ApprovedRequest(tool_use_id="t1", tool_name="Write", input_digest=""),
        ),
        PermissionResponse(
            request_id="r1",
            subtype="success",
            tool_use_id="t2",
            approved_request=ApprovedRequest(tool_use_id="t1", tool_name="Bash", input_digest=""),
        ),
    ],
)
def test_an_answer_about_another_call_is_dropped(answer: PermissionResponse) -> None:
    is_dropped(come(answer, LEAD, MEMBER, requests=OPEN), "other-call", OPEN)


def test_an_answer_of_an_older_program_names_no_call() -> None:
    for subtype, error in (("success", None), ("error", "no")):
        answer = PermissionResponse(request_id="r1", subtype=cast("Any", subtype), error=error)
        assert come(answer, LEAD, MEMBER, requests=OPEN).act


@pytest.mark.rule("07.15")
@pytest.mark.parametrize(
    ("host", "asked"),
    [
        *(("example.org", True), ("[::1]:80", True), ("a" * MAX_HOST, True), ("a" * (MAX_HOST + 1), False)),
        *(("", False), ("*", False), ("*.org", False), ("a b", False), ("a\tb", False), ("a\u202eb", False)),
    ],
)
def test_nobody_is_asked_about_a_host_that_is_none(host: str, asked: bool) -> None:
    assert askable(host) is asked
    frame = cast("SandboxPermissionRequest", BY_TYPE["sandbox_permission_request"])
    verdict = come(replace(frame, host_pattern=HostPattern(host=host)), MEMBER, LEAD)
    assert verdict.act
    assert verdict.denied is not asked
    assert len(verdict.requests.open) == 1


# ── modes ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.14")
@pytest.mark.parametrize("present", MODES)
@pytest.mark.parametrize("wanted", MODES)
def test_a_mode_comes_by_mail_only_where_it_is_stricter(wanted: str, present: str) -> None:
    allowed = (wanted == "plan" and present != "plan") or (wanted, present) in {
        *(("default", "acceptEdits"), ("default", "auto"), ("default", "dontAsk")),
    }
    assert stricter(wanted, present) is allowed
    verdict = come(ModeSetRequest(mode=wanted, from_=LEAD), LEAD, MEMBER, mode=present)
    if allowed:
        assert (verdict.act, verdict.show, verdict.mode) == (True, False, wanted)
    else:
        is_dropped(verdict, "not-stricter", of(LEAD, MEMBER))


@pytest.mark.rule("07.14")
@pytest.mark.parametrize("after", MODES)
@pytest.mark.parametrize("wanted", MODES)
def test_an_approved_plan_brings_no_laxer_mode_with_it(wanted: str, after: str) -> None:
    frame = PlanApprovalResponse(request_id="p1", approved=True, timestamp=AT, permission_mode=wanted)
    verdict = come(frame, LEAD, MEMBER, requests=OPEN, mode="plan", mode_after_plan=after)
    assert verdict.act
    assert verdict.mode == (wanted if stricter(wanted, after) else None)
    assert bool(verdict.notes) is (wanted != after and not stricter(wanted, after))
    no = come(replace(frame, approved=False), LEAD, MEMBER, requests=OPEN, mode_after_plan=after)
    assert (no.mode, no.notes) == (None, ())


@pytest.mark.rule("07.16")
def test_a_yes_brings_no_rules_with_it() -> None:
    yes = PermissionResponse(
        request_id="r1",
        subtype="success",
        response=Answer(permission_updates=({"type": "setMode", "mode": "bypassPermissions"},)),
    )
    verdict = come(yes, LEAD, MEMBER, requests=OPEN)
    assert verdict.act
    assert verdict.mode is None
    assert "none come by mail" in verdict.notes[0]
    assert come(replace(yes, response=Answer()), LEAD, MEMBER, requests=OPEN).notes == ()


# ── what waits in a mailbox ──────────────────────────────────────────────────────────────────────


def idle(name: str, number: int) -> tuple[str, object]:
    return name, IdleNotification(from_=name, timestamp=AT, summary=str(number))


@pytest.mark.rule("07.20")
def test_idle_notifications_of_a_member_collapse_into_the_latest() -> None:
    waiting = [
        idle(MEMBER, 1),
        idle(OTHER, 1),
        (MEMBER, None),
        idle(MEMBER, 2),
        (MEMBER, "x"),
        idle(MEMBER, 3),
    ]
    assert superseded(waiting) == {0, 3}
    assert superseded([]) == frozenset()


@pytest.mark.rule("07.9")
def test_a_request_to_shut_down_is_read_before_older_mail() -> None:
    ask = BY_TYPE["shutdown_request"]
    waiting: list[tuple[str, object]] = [
        (MEMBER, None),
        (MEMBER, ask),
        (LEAD, None),
        (LEAD, ask),
        (OTHER, None),
    ]
    assert urgent_first(waiting) == [3, 0, 1, 2, 4]


_WAITING = st.lists(
    st.tuples(
        st.sampled_from(NAMES), st.none() | st.sampled_from(ALL) | st.just(Malformed(type="x", reason="y"))
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(_WAITING)
@pytest.mark.rule("07.20")
def test_what_waits_loses_nothing_but_idle_notifications_with_a_later_one(
    waiting: list[tuple[str, object]],
) -> None:
    gone = superseded(waiting)
    for place, (name, frame) in enumerate(waiting):
        later = any(
            other == name and isinstance(each, IdleNotification) for other, each in waiting[place + 1 :]
        )
        assert (place in gone) is (isinstance(frame, IdleNotification) and later)
    assert sorted(urgent_first(waiting)) == [*range(len(waiting))]


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[Frame, str, str]:
    frame = draw(st.sampled_from(ALL))
    outer, me = draw(st.sampled_from(NAMES)), draw(st.sampled_from((LEAD, MEMBER)))
    if draw(st.booleans()):
        frame = by(frame, outer)
    if hasattr(frame, "request_id"):
        other = {"request_id": draw(st.sampled_from(["s1", "p1", "r1", "h1", "2"]))}
        frame = replace(frame, **cast("dict[str, Any]", other))
    return frame, outer, me


@pytest.mark.rule("07.13", "07.17")
@settings(max_examples=200, deadline=None)
@given(st.lists(arrivals(), max_size=25))
def test_whatever_comes_each_request_is_answered_once_and_what_is_dropped_changes_nothing(
    frames: list[tuple[Frame, str, str]],
) -> None:
    held = {LEAD: OPEN, MEMBER: OPEN}
    answered: list[tuple[str, str, str]] = []
    for frame, outer, me in frames:
        before = held[me]
        verdict = come(frame, outer, me, requests=before)
        if verdict.why is not None:
            assert verdict.why in get_args(Why)
            is_dropped(verdict, verdict.why, before)
            continue
        assert verdict.act or verdict.show
        assert role(outer) in EXPECTED[frame.type][0]
        if kind := ANSWERING.get(frame.type):
            ended = [each for each in before.open if each not in verdict.requests.open]
            assert [each.kind for each in ended] == [kind]
            answered.append((me, ended[0].member, f"{kind} {ended[0].id}"))
        held[me] = verdict.requests
    assert len(answered) == len(set(answered))


def test_the_outer_sender_counts_and_not_what_the_frame_says() -> None:
    frame = ShutdownApproved(request_id="s1", from_=MEMBER, timestamp=AT)
    is_dropped(come(frame, OTHER, LEAD, requests=OPEN), "not-about-oneself", OPEN)
    assert come(frame, MEMBER, LEAD, requests=OPEN).act
