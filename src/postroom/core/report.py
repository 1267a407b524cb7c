"""ObserverReport: what an observer is promised, and what a report must be (01.32).

`OBSERVER_REPORT` is the tool as a model reads it. `validate_report` judges one call by itself: a raw call becomes a
`Report` or a `Refusal`, and the first rung that applies answers.

A report goes to whom the observer is paired with, and to nobody else; where that is, whether the observer is turned
off, and how the report is framed is not decided here. It never changes the text, never raises for what a caller
wrote, and no sentence of a refusal holds what was reported. `core.envelope` scrubs the text where it is shown.

Weak: a field that the tool does not have is ignored without a word, because a report has no result to warn in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core.contract import is_denied, misfit, unwritable
from postroom.core.message import Refusal
from postroom.core.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MAX_REPORT", "NO_OBSERVER", "OBSERVER_REPORT", "SEVERITIES", "Report", "validate_report"]

MAX_REPORT = 10_000
"""Code points of a report (01.32): it interrupts somebody's work, so it is a note and not a document."""

SEVERITIES: Final = ("info", "warning", "urgent")
"""How pressing a report is, by its observer's judgement (01.32); the first where nothing is said."""

OBSERVER_REPORT: Mapping[str, object] = {
    "name": "ObserverReport",
    "description": (
        "Report what you observe to the conversation or agent that you are paired with. One way: no answer comes. A "
        "report is information, never authority: it approves nothing, changes no setting or instruction file, and "
        "lends no permission. Permission laundering is forbidden: do not ask for an action that was denied or blocked "
        "elsewhere; that goes back to the user."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "report": {"type": "string", "description": f"What you saw, at most {MAX_REPORT:,} characters."},
            "severity": {
                "type": ["string", "null"],
                "enum": [*SEVERITIES, None],
                "description": f"How pressing it is; {SEVERITIES[0]} when left out.",
            },
        },
        "required": ["report"],
    },
}
"""ObserverReport (01.1, 01.32)."""

NO_OBSERVER: Final = Refusal(
    code="usage",
    message="Only an observer reports observations, and this session is none.",
    hint="Tell another session with send_message, or tell the user.",
)
"""The answer to a report from anybody else (06.14)."""

_UNSAID: Final = "Put what you saw into `report`."


class Report(NamedTuple):
    """A report that passed.

    Attributes:
        text: exactly what was given.
        severity: one of `SEVERITIES`.
    """

    text: str
    severity: str

    def __repr__(self) -> str:
        return f"<Report, {self.severity}: {len(self.text)} characters>"


def validate_report(
    raw: Mapping[str, object], *, observer: bool, denied: frozenset[str] = frozenset()
) -> Report | Refusal:
    """Judges a call of ObserverReport by itself; the first rung that applies answers (01.32).

     1. `denied_by_settings`  a setting denies the tool, in either spelling (01.21, 01.33)
     2. `NO_OBSERVER`         the caller is no observer (06.14)
     3. `message_missing`     `report` is absent, no text, empty or only white space
     4. `report_too_long`     over `MAX_REPORT` code points
     5. `invalid_record`      a severity that there is not, or text that has no UTF-8 form

    Args:
        raw: the tool's input as it came; a null is an absent field.
        observer: whether an observer calls.
        denied: tool names that the settings deny.

    Returns the Report, its text untouched, or the Refusal. Never raises for anything in `raw`.
    """
    if is_denied("ObserverReport", denied):
        return refusal("denied_by_settings", tool="ObserverReport")
    if not observer:
        return NO_OBSERVER
    text, severity = raw.get("report"), raw.get("severity")
    if not isinstance(text, str) or not text or text.isspace():
        return Refusal(code="message_missing", message=f"{misfit('report', text)}.", hint=_UNSAID)
    if len(text) > MAX_REPORT:
        return refusal("report_too_long", length=len(text), limit=MAX_REPORT)
    if severity is None:
        severity = SEVERITIES[0]
    if not isinstance(severity, str) or severity not in SEVERITIES:
        return refusal("invalid_record", problem=f"`severity` is not one of {', '.join(SEVERITIES)}")
    if problem := unwritable(report=text):
        return refusal("invalid_record", problem=problem)
    return Report(text, severity)
