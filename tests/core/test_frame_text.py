"""A frame in the text of an entry: read, written, and never shown where it cannot be used."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.core.contract import FRAME_TYPES
from postroom.core.frame_text import MAX_ID, RECORD_OF, encode, parse
from postroom.core.frames import Answer, Frame, IdleNotification, Malformed, PermissionResponse
from tests.framing import ALL, AT, BY_TYPE

# The fields as a neighbour writes them: required, then those that may be absent.
WIRE: dict[str, tuple[set[str], set[str]]] = {
    "idle_notification": (
        {"from", "timestamp"},
        {"idleReason", "summary", "completedTaskId", "completedStatus", "failureReason", "result"},
    ),
    "shutdown_request": ({"requestId", "from", "timestamp"}, {"reason"}),
    "shutdown_approved": ({"requestId", "from", "timestamp"}, {"paneId", "backendType"}),
    "shutdown_rejected": ({"requestId", "from", "reason", "timestamp"}, set()),
    "plan_approval_request": ({"from", "timestamp", "planFilePath", "planContent", "requestId"}, set()),
    "plan_approval_response": ({"requestId", "approved", "timestamp"}, {"feedback", "permissionMode"}),
    "permission_request": (
        {
            *("request_id", "agent_id", "tool_name", "tool_use_id", "description", "input"),
            "permission_suggestions",
        },
        set(),
    ),
    "permission_response": (
        {"request_id", "subtype"},
        {"response", "error", "tool_use_id", "approved_request"},
    ),
    "sandbox_permission_request": (
        {"requestId", "workerId", "workerName", "hostPattern", "createdAt"},
        {"workerColor"},
    ),
    "sandbox_permission_response": ({"requestId", "host", "allow", "timestamp"}, set()),
    "task_assignment": ({"taskId", "subject", "description", "assignedBy", "timestamp"}, set()),
    "task_completed": ({"taskId"}, {"from", "taskSubject", "timestamp"}),
    "teammate_terminated": ({"message"}, set()),
    "mode_set_request": ({"mode", "from"}, set()),
    "team_permission_update": ({"permissionUpdate", "directoryPath", "toolName"}, set()),
}
KINDS = sorted(WIRE)


def raw_of(kind: str) -> dict[str, Any]:
    return json.loads(encode(BY_TYPE[kind]))


def why(text: str) -> str:
    found = parse(text)
    assert isinstance(found, Malformed)
    return found.reason


def changed(kind: str, **values: object) -> str:
    return json.dumps({**raw_of(kind), **values})


@pytest.mark.rule("07.12")
def test_each_type_has_one_record_and_the_types_are_those_of_the_contract() -> None:
    assert set(RECORD_OF) == set(WIRE) == FRAME_TYPES - {"shutdown_response"}


@pytest.mark.rule("07.12")
@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_is_read_as_it_was_written_with_the_names_of_the_wire(kind: str) -> None:
    frame = BY_TYPE[kind]
    text = encode(frame)
    assert parse(text) == parse(f" \n{text}\t") == frame
    required, optional = WIRE[kind]
    assert required <= set(raw_of(kind)) - {"type"} <= required | optional
    assert raw_of(kind)["type"] == kind
    assert len(fields(frame)) == len(required | optional)


@pytest.mark.rule("07.17")
@pytest.mark.parametrize(("kind", "gone"), [(kind, gone) for kind in KINDS for gone in sorted(WIRE[kind][0])])
def test_a_frame_with_a_field_missing_or_null_is_malformed(kind: str, gone: str) -> None:
    raw = raw_of(kind)
    del raw[gone]
    assert parse(json.dumps(raw)) == Malformed(type=kind, reason=f"`{gone}` is missing")
    assert parse(json.dumps({**raw, gone: None})) == Malformed(type=kind, reason=f"`{gone}` is missing")


@pytest.mark.parametrize(("kind", "gone"), [(kind, gone) for kind in KINDS for gone in sorted(WIRE[kind][1])])
def test_a_field_that_may_be_absent_may_be_null(kind: str, gone: str) -> None:
    raw = {key: value for key, value in raw_of(kind).items() if key != gone}
    absent = parse(json.dumps(raw))
    assert not isinstance(absent, Malformed)
    assert absent == parse(json.dumps({**raw, gone: None}))


@pytest.mark.rule("07.17")
@pytest.mark.parametrize(
    ("kind", "field"), [(kind, each) for kind in KINDS for each in sorted(WIRE[kind][0] | WIRE[kind][1])]
)
def test_a_field_of_the_wrong_type_is_malformed(kind: str, field: str) -> None:
    wrong: object = [1] if field in ("input", "createdAt") else {"x": 1} if field != "response" else "x"
    if field in ("hostPattern", "approved_request", "permissionUpdate"):
        wrong = 7
    reason = why(changed(kind, **{field: wrong}))
    assert reason.startswith(f"`{field}` is not ")


UNFIT: list[tuple[str, str, object, str]] = [
    (
        "idle_notification",
        "idleReason",
        "bored",
        "`idleReason` is not available or interrupted or failed",
    ),
    (
        "idle_notification",
        "completedStatus",
        "done",
        "`completedStatus` is not resolved or blocked or failed",
    ),
    ("shutdown_request", "requestId", "", "`requestId` is not a printable text of 1 to 200 characters"),
    ("shutdown_request", "requestId", "x" * (MAX_ID + 1), "`requestId` is not a printable text"),
    ("shutdown_request", "requestId", "a\nb", "`requestId` is not a printable text"),
    ("plan_approval_response", "approved", "true", "`approved` is not true or false"),
    ("plan_approval_response", "approved", 1, "`approved` is not true or false"),
    ("sandbox_permission_request", "createdAt", True, "`createdAt` is not a number"),
    ("sandbox_permission_request", "createdAt", "now", "`createdAt` is not a number"),
    ("sandbox_permission_request", "hostPattern", {}, "`host` is missing"),
    ("sandbox_permission_request", "hostPattern", {"host": 1}, "`host` is not text"),
    ("permission_response", "response", {"updated_input": []}, "`updated_input` is not an object"),
    ("permission_response", "response", {"permission_updates": {}}, "`permission_updates` is not a list"),
    ("permission_response", "subtype", "maybe", "`subtype` is not success or error"),
    ("permission_response", "subtype", "error", "`error` goes with the subtype error, and with no other"),
    ("permission_response", "error", "no", "`error` goes with the subtype error, and with no other"),
    ("team_permission_update", "permissionUpdate", {"type": "x"}, "`type` is not addRules"),
    (
        "team_permission_update",
        "permissionUpdate",
        {"type": "addRules", "rules": [7]},
        "`rules` is not a list of objects of their kind",
    ),
    (
        "team_permission_update",
        "permissionUpdate",
        {"type": "addRules", "rules": [{}]},
        "`toolName` is missing",
    ),
]


@pytest.mark.rule("07.17")
@pytest.mark.parametrize(("kind", "field", "value", "says"), UNFIT)
def test_a_value_that_a_field_cannot_have_is_malformed(
    kind: str, field: str, value: object, says: str
) -> None:
    assert why(changed(kind, **{field: value})).startswith(says)


def test_an_id_may_have_all_its_characters() -> None:
    frame = parse(changed("shutdown_request", requestId="x" * MAX_ID))
    assert not isinstance(frame, Malformed)


def test_a_no_to_a_tool_has_its_words_and_a_yes_may_have_nothing() -> None:
    no = PermissionResponse(request_id="r1", subtype="error", error="not today")
    yes = PermissionResponse(request_id="r1", subtype="success")
    changes = replace(yes, response=Answer(permission_updates=({"type": "setMode"},)))
    for frame in (no, yes, changes):
        assert parse(encode(frame)) == frame
    assert json.loads(encode(no)) == {
        "type": "permission_response",
        "request_id": "r1",
        "subtype": "error",
        "error": "not today",
    }


def test_a_field_that_is_not_known_is_ignored() -> None:
    assert parse(changed("mode_set_request", newer={"a": [1]})) == BY_TYPE["mode_set_request"]


def test_a_time_may_be_a_fraction_and_must_be_finite() -> None:
    kind = "sandbox_permission_request"
    assert parse(changed(kind, createdAt=1764504000000.5)) == BY_TYPE[kind]
    endless = encode(BY_TYPE[kind]).replace("1764504000000", "1e999")
    assert why(endless) == "`createdAt` is not a number"


@pytest.mark.rule("07.17")
@pytest.mark.parametrize(
    "kind", ["shutdown_response", "brand_new_frame", "Shutdown_Request", "mode_set_request2", "a_b"]
)
def test_a_type_that_is_built_like_a_frames_is_an_unknown_frame(kind: str) -> None:
    assert parse(json.dumps({"type": kind})) == Malformed(type=kind, reason="its type is not known")


@pytest.mark.parametrize(
    "text",
    [
        *("", "hello", "{", "{}", "[]", "a {b}", '{"type": "module"}', '{"type": "object", "a_b": 1}'),
        *('{"type": 7}', '{"type": null}', '{"a": {"type": "shutdown_request"}}', '["{", {"a": 1}]'),
        'Look: {"type": "shutdown_request"}',
        '{"type": "_"}',
        '{"type": "a__b"}',
        '{"type": "' + "a_" * 40 + 'a"}',
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
    ],
)
def test_prose_and_json_of_another_purpose_stay_prose(text: str) -> None:
    assert parse(text) is None


@pytest.mark.rule("07.17")
@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"type": "mode_set_request", "mode": "plan", "from": "team-lead"}\n```',
        '\ufeff{"type": "mode_set_request", "mode": "plan", "from": "team-lead"}',
        '{"type": "mode_set_request", "mode": "a\nb", "from": "team-lead"}',
        '{"type": "mode_set_request", "mode": NaN, "from": "team-lead"}',
        '{"type": "mode_set_request", "mode": ' + "9" * 5000 + "}",
    ],
)
def test_what_only_a_careless_reader_takes_for_a_frame_is_not_shown(text: str) -> None:
    assert why(text) == "it is a mode_set_request frame of the team protocol"


@pytest.mark.rule("07.17")
@pytest.mark.parametrize(
    "text",
    [
        '{"type": "mode_set_request", "mode": "plan", "mode": "default", "from": "team-lead"}',
        '{"type": "x", "type": "mode_set_request", "mode": "plan", "from": "team-lead"}',
        '{"type": "mode_set_request", "type": "x"}',
        '{"type": "mode_set_request", "mode": "plan", "from": "team-lead", "x": {"a": 1, "a": 2}}',
        '{"type": "mode_set_request", "mode": "plan", "from": "team-lead", "x": [{"a": 1, "a": 2}]}',
        '{"type": "mode_set_request", "mode": "\\ud83d", "mode": "default", "from": "team-lead"}',
    ],
)
def test_a_field_that_is_given_twice_is_malformed(text: str) -> None:
    assert why(text) == "it is a mode_set_request frame of the team protocol with a field given twice"


@pytest.mark.rule("07.17")
def test_what_is_nested_too_deep_to_be_read_is_not_shown() -> None:
    deep = '{"a":' + "[" * 200_000 + "]" * 200_000 + "}"
    assert why(deep) == "it is JSON nested too deep to tell it from a frame of the team protocol"


def test_half_of_a_surrogate_pair_is_no_reason_to_lose_a_frame() -> None:
    """A program that cuts a summary after 200 units leaves half of an emoji."""
    for half in ("\\ud83d", "\\uDE00", "\ud83d"):
        frame = parse(f'{{"type":"idle_notification","from":"a","timestamp":"{AT}","summary":"x{half}"}}')
        assert frame == IdleNotification(from_="a", timestamp=AT, summary="x?")
    whole = parse(f'{{"type":"idle_notification","from":"a","timestamp":"{AT}","summary":"\\ud83d\\ude00"}}')
    assert whole == IdleNotification(from_="a", timestamp=AT, summary="😀")


@pytest.mark.rule("07.17")
@pytest.mark.parametrize("kind", KINDS)
def test_a_reason_repeats_no_value(kind: str) -> None:
    for field in WIRE[kind][0] - {"input"}:
        assert "SECRET" not in why(changed(kind, **{field: {"SECRET": ["SECRET"]}}))


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def bent(draw: st.DrawFn) -> tuple[str, str]:
    """A frame with a few fields changed, taken away or added."""
    frame = draw(st.sampled_from(ALL))
    raw = raw_of(frame.type)
    names = st.sampled_from(sorted(raw)) | st.text(max_size=6)
    for name in draw(st.lists(names, max_size=3)):
        if name == "type" or draw(st.booleans()):
            raw.pop(name if name != "type" else "", None)
        else:
            raw[name] = draw(_JSON)
    return frame.type, json.dumps(raw, ensure_ascii=draw(st.booleans()))


@pytest.mark.rule("07.17", "07.12")
@settings(max_examples=200, deadline=None)
@given(bent())
def test_a_frame_however_bent_is_a_frame_or_malformed_and_never_prose(given_: tuple[str, str]) -> None:
    kind, text = given_
    found = parse(text)
    assert found is not None
    assert found.type == kind
    if not isinstance(found, Malformed):
        assert parse(encode(found)) == found


@settings(max_examples=200, deadline=None)
@given(st.text() | st.text(alphabet='{}[]":,\\ud8 type_shutdown') | _JSON.map(json.dumps))
def test_any_text_has_an_answer(text: str) -> None:
    found = parse(text)
    assert found is None or isinstance(found, Malformed | cast("Any", Frame))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(ALL), st.data())
def test_what_is_written_is_read_again_whatever_the_texts(frame: Frame, data: st.DataObject) -> None:
    words = st.text(st.characters(exclude_categories=["Cs"]))
    ids = {"request_id", "task_id", "completed_task_id", "tool_use_id"}
    free = [
        each.name
        for each in fields(frame)
        if isinstance(getattr(frame, each.name), str)
        and each.name not in ids | {"idle_reason", "completed_status", "subtype"}
    ]
    other = replace(frame, **{name: data.draw(words) for name in free})
    assert parse(encode(other)) == other
