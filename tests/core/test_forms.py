"""The public forms of SendMessage: to the wire and back, and only from and to the roles of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.core.contract import RECORDS, SEND_MESSAGE
from postroom.core.forms import SEND_MESSAGE_IN_A_TEAM, Outgoing, outgoing, public_form
from postroom.core.frame_text import encode, parse
from postroom.core.frames import PlanApprovalResponse, ShutdownApproved, ShutdownRejected, ShutdownRequest
from postroom.core.message import Refusal
from postroom.core.requests import Request, Requests
from postroom.core.roles import judge
from tests.framing import ALL, AT, LEAD, MEMBER

NOW = 1_796_040_000_000
OTHER = "tester"
OPEN = Requests(
    open=(
        Request(kind="shutdown", id="s1", member=MEMBER),
        Request(kind="plan", id="p1", member=MEMBER),
    )
)
ASK = {"type": "shutdown_request", "reason": "done"}
YES = {"type": "shutdown_response", "request_id": "s1", "approve": True}
PLAN = {"type": "plan_approval_response", "request_id": "p1", "approve": True, "feedback": "good"}


def send(
    record: dict[str, Any], me: str, to: str, requests: Requests = OPEN, **where: str
) -> Outgoing | Refusal:
    return outgoing(record, me=me, to=to, members=(MEMBER, OTHER), requests=requests, now=NOW, **where)


def sent(record: dict[str, Any], me: str, to: str, requests: Requests = OPEN, **where: str) -> Outgoing:
    made = send(record, me, to, requests, **where)
    assert isinstance(made, Outgoing)
    return made


def problem(record: dict[str, Any], me: str, to: str, requests: Requests = OPEN) -> str:
    made = send(record, me, to, requests)
    assert isinstance(made, Refusal)
    assert made.code == "invalid_record"
    return made.message


@pytest.mark.rule("07.18")
def test_a_request_to_shut_down_has_an_id_of_the_member_and_the_time() -> None:
    made = sent(ASK, LEAD, OTHER, Requests())
    assert made.frame == ShutdownRequest(
        request_id=f"shutdown-{NOW}@{OTHER}", from_=LEAD, timestamp="2026-11-30T12:00:00.000Z", reason="done"
    )
    assert made.requests.open == (Request(kind="shutdown", id=f"shutdown-{NOW}@{OTHER}", member=OTHER),)
    assert problem(ASK, LEAD, OTHER, made.requests) == f"{OTHER} was asked that a moment ago."


@pytest.mark.rule("07.18")
def test_a_response_to_a_shutdown_is_one_of_two_frames_and_is_sent_once() -> None:
    yes = sent(YES, MEMBER, LEAD, pane_id="%3", backend_type="tmux")
    assert yes.frame == ShutdownApproved(
        request_id="s1", from_=MEMBER, timestamp=AT, pane_id="%3", backend_type="tmux"
    )
    no = sent({**YES, "approve": False, "reason": "busy"}, MEMBER, LEAD)
    assert no.frame == ShutdownRejected(request_id="s1", from_=MEMBER, timestamp=AT, reason="busy")
    bare = sent({**YES, "approve": False}, MEMBER, LEAD)
    assert bare.frame == ShutdownRejected(request_id="s1", from_=MEMBER, timestamp=AT, reason="")
    assert "no request that waits" in problem(YES, MEMBER, LEAD, yes.requests)


@pytest.mark.rule("07.19")
@pytest.mark.parametrize("approve", [True, False])
def test_approve_of_the_tool_is_approved_on_the_wire(approve: bool) -> None:
    made = sent({**PLAN, "approve": approve}, LEAD, MEMBER)
    assert made.frame == PlanApprovalResponse(
        request_id="p1", approved=approve, timestamp=AT, feedback="good"
    )
    assert f'"approved":{str(approve).lower()}' in encode(made.frame)
    assert made.requests.of("plan", MEMBER) == ()


@pytest.mark.rule("07.18", "07.19")
@pytest.mark.parametrize(
    ("record", "me", "to", "says"),
    [
        (ASK, MEMBER, MEMBER, "shutdown_request is only for the lead of a team to send."),
        (ASK, MEMBER, LEAD, "shutdown_request is only for the lead of a team to send."),
        (ASK, LEAD, LEAD, "shutdown_request goes only to a member of a team."),
        (ASK, LEAD, "nobody", "shutdown_request goes only to a member of a team."),
        (YES, LEAD, MEMBER, "shutdown_response is only for a member of a team to send."),
        (YES, MEMBER, OTHER, "shutdown_response goes only to the lead of a team."),
        (PLAN, MEMBER, LEAD, "plan_approval_response is only for the lead of a team to send."),
        (PLAN, LEAD, LEAD, "plan_approval_response goes only to a member of a team."),
        (YES, OTHER, LEAD, "`message.request_id` is no request that waits for an answer."),
        (PLAN, LEAD, OTHER, "`message.request_id` is no request that waits for an answer."),
        (
            {**PLAN, "request_id": "p2"},
            LEAD,
            MEMBER,
            "`message.request_id` is no request that waits for an answer.",
        ),
    ],
)
def test_report_47_a_form_goes_only_where_it_would_count(
    record: dict[str, Any], me: str, to: str, says: str
) -> None:
    assert problem(record, me, to) == says


@pytest.mark.rule("01.4")
def test_a_frame_without_a_public_form_has_none() -> None:
    forms = {frame.type: public_form(frame) for frame in ALL}
    assert {kind for kind, form in forms.items() if form} == {
        *("shutdown_request", "shutdown_approved", "shutdown_rejected", "plan_approval_response"),
    }
    assert {str(form["type"]) for form in forms.values() if form} == set(RECORDS)


_WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@st.composite
def forms(draw: st.DrawFn) -> tuple[dict[str, Any], str, str]:
    kind = draw(st.sampled_from(sorted(RECORDS)))
    extra = draw(st.none() | _WORDS)
    approve = draw(st.booleans())
    if kind == "shutdown_request":
        record: dict[str, Any] = {"type": kind, "reason": extra}
    elif kind == "shutdown_response":
        record = {**YES, "approve": approve, "reason": None if approve else extra}
    else:
        record = {**PLAN, "approve": approve, "feedback": extra}
    me, to = (MEMBER, LEAD) if kind == "shutdown_response" else (LEAD, MEMBER)
    return {key: value for key, value in record.items() if value is not None}, me, to


@pytest.mark.rule("01.4", "07.12")
@settings(max_examples=150, deadline=None)
@given(forms())
def test_a_form_travels_counts_where_it_comes_and_is_the_same_again(
    form: tuple[dict[str, Any], str, str],
) -> None:
    record, me, to = form
    made = sent(record, me, to)
    frame = parse(encode(made.frame))
    assert frame == made.frame
    there = Requests() if record["type"] == "shutdown_request" else OPEN
    verdict = judge(made.frame, outer=me, me=to, members=(MEMBER,), requests=there)
    assert verdict.act
    assert public_form(made.frame) == record


def test_an_empty_reason_is_no_reason() -> None:
    frame = ShutdownRejected(request_id="s1", from_=MEMBER, timestamp=AT, reason="")
    assert public_form(frame) == {"type": "shutdown_response", "request_id": "s1", "approve": False}
    assert public_form(replace(frame, reason="x")) == {
        "type": "shutdown_response",
        "request_id": "s1",
        "approve": False,
        "reason": "x",
    }


@pytest.mark.rule("01.4")
def test_the_tool_names_each_form_while_a_team_is_active() -> None:
    plain = cast("Any", SEND_MESSAGE)["input_schema"]["properties"]
    told = cast("Any", SEND_MESSAGE_IN_A_TEAM)["input_schema"]["properties"]
    assert told["message"]["type"] == ["string", "object", "null"]
    for form in ("shutdown_request", "shutdown_response", "plan_approval_response"):
        assert f'"{form}"' in told["message"]["description"]
    assert {**told, "message": None} == {**plain, "message": None}
    assert SEND_MESSAGE_IN_A_TEAM["description"] == SEND_MESSAGE["description"]
