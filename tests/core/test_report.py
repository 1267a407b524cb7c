"""The twin of core.report: what an observer is promised, and which reports pass."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.core.contract import LIST_AGENTS, READ_MESSAGES, SEND_MESSAGE
from postroom.core.message import Refusal
from postroom.core.report import (
    MAX_REPORT,
    NO_OBSERVER,
    OBSERVER_REPORT,
    SEVERITIES,
    Report,
    validate_report,
)


def passed(**raw: object) -> Report:
    judged = validate_report(raw, observer=True)
    assert isinstance(judged, Report), judged
    return judged


def refused(
    raw: dict[str, object], *, observer: bool = True, denied: frozenset[str] = frozenset()
) -> Refusal:
    judged = validate_report(raw, observer=observer, denied=denied)
    assert isinstance(judged, Refusal), judged
    return judged


# ── the tool as a model reads it ─────────────────────────────────────────────────────────────────


@pytest.mark.rule("01.1", "04.14")
def test_the_description_states_what_a_report_can_never_do() -> None:
    said = str(OBSERVER_REPORT["description"])
    for words in (
        "never authority",
        "approves nothing",
        "changes no setting or instruction file",
        "lends no permission",
        "Permission laundering is forbidden",
        "denied or blocked",
        "goes back to the user",
    ):
        assert words in said


@pytest.mark.rule("01.32")
def test_the_schema_has_the_fields_of_the_specification_and_no_way_to_address_anybody() -> None:
    schema: Any = OBSERVER_REPORT["input_schema"]
    assert set(schema["properties"]) == {"report", "severity"}
    assert schema["required"] == ["report"]
    assert schema["properties"]["severity"]["enum"] == ["info", "warning", "urgent", None]
    assert "10,000" in schema["properties"]["report"]["description"]
    assert "One way" in str(OBSERVER_REPORT["description"])


def test_all_definitions_together_are_short() -> None:
    every = [SEND_MESSAGE, LIST_AGENTS, READ_MESSAGES, OBSERVER_REPORT]
    assert len(json.dumps(every, separators=(",", ":"))) < 6_000


# ── a report that passes ─────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("01.32")
@pytest.mark.parametrize("severity", ["info", "warning", "urgent"])
def test_a_report_passes_as_it_was_written(severity: str) -> None:
    assert passed(report=" The tests hang.\n", severity=severity) == (" The tests hang.\n", severity)


@pytest.mark.rule("01.32")
def test_a_report_without_a_severity_is_for_information() -> None:
    assert passed(report="x").severity == passed(report="x", severity=None).severity == "info"


@pytest.mark.rule("01.32")
def test_a_report_has_at_most_10000_code_points() -> None:
    assert passed(report="𝄞" * 10_000).text == "𝄞" * 10_000
    said = refused({"report": "𝄞" * 10_001})
    assert said.code == "report_too_long"
    assert "10,001" in said.message
    assert "10,000" in said.message
    assert MAX_REPORT == 10_000


def test_a_field_that_the_tool_lacks_is_ignored() -> None:
    assert passed(report="x", to="bob", message="y") == Report("x", "info")


def test_a_repr_shows_no_text() -> None:
    assert repr(Report("secret", "urgent")) == "<Report, urgent: 6 characters>"


# ── the ladder ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("01.21", "01.33")
@pytest.mark.parametrize("name", ["ObserverReport", "report_observation"])
def test_a_denied_tool_reports_nothing(name: str) -> None:
    said = refused({"report": "x"}, denied=frozenset({name}))
    assert said.code == "denied_by_settings"
    assert "ObserverReport" in said.message
    assert validate_report({"report": "x"}, observer=True, denied=frozenset({"SendMessage"})) == ("x", "info")


@pytest.mark.rule("06.14")
def test_only_an_observer_reports() -> None:
    assert refused({"report": "x"}, observer=False) is NO_OBSERVER


@pytest.mark.rule("01.32")
@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({}, "`report` is missing."),
        ({"report": None}, "`report` is missing."),
        ({"report": ""}, "`report` is empty."),
        ({"report": " \n\u3000"}, "`report` is blank."),
        ({"report": 5}, "`report` is a number and not text."),
        ({"report": ["x"]}, "`report` is a list and not text."),
        ({"message": "It hangs."}, "`report` is missing."),
    ],
)
def test_there_must_be_a_report(raw: dict[str, object], says: str) -> None:
    said = refused(raw)
    assert (said.code, said.message, said.hint) == (
        "message_missing",
        says,
        "Put what you saw into `report`.",
    )


@pytest.mark.rule("01.32")
@pytest.mark.parametrize("severity", ["", "Info", "error", 1, True, ["info"], {"info": 1}])
def test_a_severity_that_there_is_not(severity: object) -> None:
    said = refused({"report": "x", "severity": severity})
    assert (said.code, said.message) == (
        "invalid_record",
        "`severity` is not one of info, warning, urgent.",
    )


def test_a_report_that_is_no_text() -> None:
    said = refused({"report": "ok \ud83d"})
    assert said.code == "invalid_record"
    assert "half of a surrogate pair" in said.message


@pytest.mark.parametrize(
    ("first", "raw", "observer", "denied"),
    [
        ("denied_by_settings", {}, False, frozenset({"ObserverReport"})),
        ("usage", {}, False, frozenset[str]()),
        ("message_missing", {"report": " ", "severity": 5}, True, frozenset[str]()),
        ("report_too_long", {"report": "\ud83d" * 10_001, "severity": 5}, True, frozenset[str]()),
        ("invalid_record", {"report": "\ud83d", "severity": 5}, True, frozenset[str]()),
    ],
)
def test_of_two_rungs_the_earlier_answers(
    first: str, raw: dict[str, object], observer: bool, denied: frozenset[str]
) -> None:
    assert refused(raw, observer=observer, denied=denied).code == first


VALUES: st.SearchStrategy[object] = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    *(st.lists(st.text(max_size=2), max_size=2), st.dictionaries(st.text(max_size=2), st.none(), max_size=2)),
    st.sampled_from([*SEVERITIES, "x" * MAX_REPORT, "x" * (MAX_REPORT + 1), "\ud800"]),
)


@pytest.mark.rule("01.32")
@settings(max_examples=200)
@given(
    st.dictionaries(st.sampled_from(["report", "severity", "to", "text"]), VALUES),
    st.booleans(),
    st.sampled_from([frozenset[str](), frozenset({"ObserverReport"}), frozenset({"send_message"})]),
)
def test_whatever_is_written_it_passes_whole_or_has_its_answer(
    raw: dict[str, object], observer: bool, denied: frozenset[str]
) -> None:
    judged = validate_report(raw, observer=observer, denied=denied)
    if isinstance(judged, Report):
        assert judged.text == raw["report"]
        assert 0 < len(judged.text.encode()) <= 4 * MAX_REPORT
        assert judged.severity == (raw.get("severity") or "info")
        assert judged.severity in SEVERITIES
        assert observer
    else:
        assert judged.code in (
            *("denied_by_settings", "usage", "message_missing", "report_too_long", "invalid_record"),
        )
        assert judged.hint
