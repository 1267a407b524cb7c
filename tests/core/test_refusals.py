"""The table of codes: whole, well said, and filled in without a caller's words breaking it."""

from __future__ import annotations

import ast
import inspect
from string import Formatter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom import errors
from postroom.core.message import Near
from postroom.core.refusals import (
    CODES,
    MAX_FACT,
    NOT_BUILT,
    code_of,
    legible,
    not_held,
    refusal,
    wire_reason,
)

SPECIFIED = """
denied_by_settings observer_cannot_send empty_target broadcast_unsupported at_sign_in_target message_missing
summary_missing summary_too_long protocol_frame_in_text structured_needs_team structured_not_for_subagent
main_not_addressable invalid_record
not_found ambiguous stale_ref pin_mismatch partial_index cannot_message_self structured_needs_teammate
notify_not_allowed stopped_by_user resume_failed team_member_changed
message_too_large sender_burst needs_approval reply_only peer_unavailable unsafe_target
timeout connection_failed inbox_full store_failed misaddressed duplicate rate_limited hop_loop hop_runaway
mailbox_write_failed mailbox_full
invalid_name name_taken session_in_use no_session not_your_session not_held needs_person setting_invalid
report_too_long not_sent
""".split()


def facts_of(template: str) -> dict[str, object]:
    """A value for each fact that a template names: a number where it is written as one."""
    return {
        name: 7 if form or name in ("count", "seconds") else f"<{name}>"
        for _, name, form, _ in Formatter().parse(template)
        if name
    }


@pytest.mark.rule("01.28")
def test_every_code_of_the_specification_is_there() -> None:
    assert set(SPECIFIED) <= set(CODES)
    assert len(SPECIFIED) == len(set(SPECIFIED))


@pytest.mark.rule("01.28")
def test_beyond_them_only_what_programs_and_people_meet() -> None:
    assert set(CODES) - set(SPECIFIED) == {
        *(
            "unknown",
            "unknown_message",
            "unknown_rule",
            "no_team",
            "usage",
            "session_closed",
            "unfit_path",
            "unsupported",
        ),
    }


def test_the_codes_that_wait_for_their_feature_exist() -> None:
    assert set(CODES) >= NOT_BUILT
    assert {code for code, row in CODES.items() if not row.built} == NOT_BUILT


@pytest.mark.rule("01.25", "01.28")
@pytest.mark.parametrize(
    ("code", "facts", "says"),
    [
        ("stopped_by_user", {"name": "coder"}, "The user has stopped coder"),
        ("resume_failed", {"name": "coder", "reason": "its transcript is gone"}, "its transcript is gone."),
        ("report_too_long", {"length": 10_001, "limit": 10_000}, "10,001 characters; at most 10,000"),
    ],
)
def test_what_agents_and_observers_meet_is_built(code: str, facts: dict[str, Any], says: str) -> None:
    assert CODES[code].built
    assert says in refusal(code, **facts).message


@pytest.mark.rule("01.7")
@pytest.mark.parametrize("code", CODES)
def test_each_says_what_is_wrong_and_what_to_do(code: str) -> None:
    row = CODES[code]
    facts: dict[str, Any] = {**facts_of(row.sentence), **facts_of(row.hint)}
    said = refusal(code, **facts)
    assert said.code == code
    assert said.message.endswith(".")
    assert said.hint.endswith(".") or row.hint in ("{advice}",) or row.hint.endswith("{spare}")
    assert "{" not in str(said)
    for name in facts_of(row.sentence):
        assert f"<{name}>" in said.message or "7" in said.message


@pytest.mark.parametrize("code", CODES)
def test_each_names_its_rule(code: str) -> None:
    chapter, _, number = CODES[code].rule.partition(".")
    assert len(chapter) == 2
    assert chapter.isdigit()
    assert not number or number.isdigit()


@pytest.mark.rule("11.2")
def test_report_38_an_unknown_outcome_is_not_called_a_failure() -> None:
    said = str(refusal("unknown", name="b"))
    assert "not known" in said
    assert "fail" not in said


def test_the_errors_that_callers_meet_are_codes_too() -> None:
    raised = {
        kind.code
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.PostroomError) and not issubclass(kind, errors.WireError)
    }
    assert raised - {"error"} <= set(CODES)


def test_a_missing_fact_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError, match="inbox_full needs the fact 'name'"):
        refusal("inbox_full")
    with pytest.raises(KeyError):
        refusal("inbox_overfull", name="b")


def test_a_refusal_carries_what_belongs_to_it() -> None:
    near = (Near(name="b", ref="3fa9c1"),)
    said = refusal("ambiguous", to="b", count=4, candidates=near, more=3, msg_id="m-1")
    assert (said.candidates, said.more, said.msg_id) == (near, 3, "m-1")
    assert refusal("ambiguous", to="b", count=4).msg_id is None
    assert "m-1" in str(refusal("unknown_message", msg_id="m-1"))


@pytest.mark.rule("01.30")
@given(st.text())
def test_a_fact_cannot_break_the_paragraph(fact: str) -> None:
    said = str(refusal("not_found", to=fact))
    assert said.isprintable()
    said.encode()
    assert len(said) < 12 * MAX_FACT


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("api-worker [3fa9c1]", "api-worker [3fa9c1]"),
        ("日本", "日本"),
        ("a\nb", "a\\nb"),
        ("\u202eevil", "\\u202eevil"),
        ("\ud83d", "\\ud83d"),
        ("x" * MAX_FACT, "x" * MAX_FACT),
        ("x" * (MAX_FACT + 1), "x" * MAX_FACT + "…"),
        ("{name}", "{name}"),
    ],
)
def test_legible(text: str, shown: str) -> None:
    assert legible(text) == shown
    assert shown in str(refusal("not_found", to=text))


@pytest.mark.rule("01.28")
@given(st.sampled_from(sorted(CODES)))
def test_a_code_and_its_wire_reason_are_one(code: str) -> None:
    assert code_of(wire_reason(code)) == code
    if code != "inbox_full":
        assert wire_reason(code) == code.replace("_", "-")


@pytest.mark.rule("01.28")
def test_what_the_wire_says_otherwise() -> None:
    assert wire_reason("inbox_full") == "queue-full"
    assert code_of("queue-full") == "inbox_full"
    assert [code_of(reason) for reason in ("self-echo", "bad-frame", "id-reuse", "")] == [None] * 4


def test_no_code_stands_in_the_table_twice() -> None:
    """A dict would swallow it: so the rows are read from the source."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(refusal) or refusal))
    rows = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "_ROWS" and node.value
    )
    assert isinstance(rows, ast.Tuple)
    assert len(rows.elts) == len(CODES)


@pytest.mark.rule("10.5")
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("01a22d", "begins the ids of 2 held messages"),
        ("01a2", "is too short to stand for a held message"),
        ("01a22d-1", "is too short"),  # only one has it: the session would have taken it
        ("ffffff", "No message ffffff is held here"),
        ("one-id", "Several held messages have the id one-id"),
    ],
)
def test_why_an_id_stands_for_no_held_message(asked: str, says: str) -> None:
    said = not_held(asked, ["01a22d-1", "01a22d-2", "77", "one-id", "one-id"])
    assert said.code == "not_held"
    assert says in said.message
    assert said.hint
