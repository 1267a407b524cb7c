"""The text of a frame: read from a mailbox entry, and written into one (07.12, 07.17).

A frame is a JSON object that stands alone in the text. `parse` answers the record of its type, `Malformed` for what
is a frame and cannot be used, and None for prose; `encode` writes a record as its neighbours read it. The names on the
wire, in their mixed case, stand in one table, `_FIELDS`; which types there are, in `core.contract`.

It never decides who may send a frame, nor what follows from one: that is for `core.roles`.

How it fails: no text raises. Strict in what it takes and wide in what it keeps from being shown: a known frame with a
field missing, of the wrong type or given twice, one inside a code fence, and an object whose `type` is only built like
a frame's, two words with `_` between them, are all `Malformed`. Its reason never repeats what the text holds. A null
is an absent field, and a field that is not known is ignored.

What is weak: a text that is nothing but JSON of some other purpose, with a `type` such as `tool_use`, passes for an
unknown frame. Who sends such a text to a member should call `parse` first, and refuse it there.
"""

from __future__ import annotations

import json
import re
from functools import cache
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from postroom.core.contract import frame_in
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_ID = 200
"""Characters of the id of a request or task: `shutdown-`, a name of 64 and a time are well inside."""

# ── their fields on the wire ─────────────────────────────────────────────────────────────────────


class _Misfit(Exception):
    """A field does not fit; the text says why."""


class _Field(NamedTuple):
    """One field: how its value is read, the word for what it must be, whether it may be absent."""

    read: Callable[[object], object]
    word: str
    optional: bool = False


def _typed(kind: type) -> Callable[[object], object]:
    def read(value: object) -> object:
        if not isinstance(value, kind):
            raise _Misfit
        return value

    return read


def _id(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID or not value.isprintable():
        raise _Misfit
    return value


def _milliseconds(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise _Misfit
    return int(value)


def _items(value: object) -> tuple[object, ...]:
    return tuple(cast("list[object]", _typed(list)(value)))


def _one_of(*words: str) -> _Field:
    def read(value: object) -> object:
        if value not in words:
            raise _Misfit
        return value

    return _Field(read, " or ".join(words))


def _nested(record: type) -> _Field:
    def read(value: object) -> object:
        return _built(record, _typed(dict)(value))

    return _Field(read, "an object of its kind")


def _several(record: type) -> _Field:
    def read(value: object) -> object:
        return tuple(_built(record, _typed(dict)(each)) for each in _items(value))

    return _Field(read, "a list of objects of their kind")


def _or_none(wanted: _Field) -> _Field:
    return wanted._replace(optional=True)


_TEXT = _Field(_typed(str), "text")
_ID = _Field(_id, f"a printable text of 1 to {MAX_ID} characters")
_TRUTH = _Field(_typed(bool), "true or false")
_TIME = _Field(_milliseconds, "a number")
_OBJECT = _Field(_typed(dict), "an object")
_LIST = _Field(_items, "a list")
_TEXT_OR_NONE, _ID_OR_NONE = _or_none(_TEXT), _or_none(_ID)

_FIELDS: Final[Mapping[type, Mapping[str, _Field]]] = {
    IdleNotification: {
        "from": _TEXT,
        "timestamp": _TEXT,
        "idleReason": _or_none(_one_of("available", "interrupted", "failed")),
        "summary": _TEXT_OR_NONE,
        "completedTaskId": _ID_OR_NONE,
        "completedStatus": _or_none(_one_of("resolved", "blocked", "failed")),
        "failureReason": _TEXT_OR_NONE,
        "result": _TEXT_OR_NONE,
    },
    ShutdownRequest: {"requestId": _ID, "from": _TEXT, "reason": _TEXT_OR_NONE, "timestamp": _TEXT},
    ShutdownApproved: {
        "requestId": _ID,
        "from": _TEXT,
        "timestamp": _TEXT,
        "paneId": _TEXT_OR_NONE,
        "backendType": _TEXT_OR_NONE,
    },
    ShutdownRejected: {"requestId": _ID, "from": _TEXT, "reason": _TEXT, "timestamp": _TEXT},
    PlanApprovalRequest: {
        "from": _TEXT,
        "timestamp": _TEXT,
        "planFilePath": _TEXT,
        "planContent": _TEXT,
        "requestId": _ID,
    },
    PlanApprovalResponse: {
        "requestId": _ID,
        "approved": _TRUTH,
        "feedback": _TEXT_OR_NONE,
        "timestamp": _TEXT,
        "permissionMode": _TEXT_OR_NONE,
    },
    PermissionRequest: {
        "request_id": _ID,
        "agent_id": _TEXT,
        "tool_name": _TEXT,
        "tool_use_id": _ID,
        "description": _TEXT,
        "input": _OBJECT,
        "permission_suggestions": _LIST,
    },
    Answer: {"updated_input": _or_none(_OBJECT), "permission_updates": _or_none(_LIST)},
    ApprovedRequest: {"tool_use_id": _ID, "tool_name": _TEXT, "input_digest": _TEXT},
    PermissionResponse: {
        "request_id": _ID,
        "subtype": _one_of("success", "error"),
        "response": _or_none(_nested(Answer)),
        "error": _TEXT_OR_NONE,
        "tool_use_id": _ID_OR_NONE,
        "approved_request": _or_none(_nested(ApprovedRequest)),
    },
    HostPattern: {"host": _TEXT},
    SandboxPermissionRequest: {
        "requestId": _ID,
        "workerId": _TEXT,
        "workerName": _TEXT,
        "workerColor": _TEXT_OR_NONE,
        "hostPattern": _nested(HostPattern),
        "createdAt": _TIME,
    },
    SandboxPermissionResponse: {"requestId": _ID, "host": _TEXT, "allow": _TRUTH, "timestamp": _TEXT},
    TaskAssignment: {
        "taskId": _ID,
        "subject": _TEXT,
        "description": _TEXT,
        "assignedBy": _TEXT,
        "timestamp": _TEXT,
    },
    TaskCompleted: {
        "taskId": _ID,
        "from": _TEXT_OR_NONE,
        "taskSubject": _TEXT_OR_NONE,
        "timestamp": _TEXT_OR_NONE,
    },
    TeammateTerminated: {"message": _TEXT},
    ModeSetRequest: {"mode": _TEXT, "from": _TEXT},
    RuleLine: {"toolName": _TEXT, "ruleContent": _TEXT_OR_NONE},
    PermissionUpdate: {
        "type": _one_of("addRules"),
        "rules": _several(RuleLine),
        "behavior": _one_of("allow", "deny", "ask"),
        "destination": _one_of("session"),
    },
    TeamPermissionUpdate: {
        "permissionUpdate": _nested(PermissionUpdate),
        "directoryPath": _TEXT,
        "toolName": _TEXT,
    },
}

RECORD_OF: Mapping[str, type[Frame]] = MappingProxyType(
    {record.type: cast("type[Frame]", record) for record in cast("Any", Frame).__args__}
)
"""Each type on the wire and its record; with the public forms they are the contract's `FRAME_TYPES`."""


@cache
def _attribute(wire: str) -> str:
    """`requestId` is `request_id` here, and `from` is `from_`."""
    return "from_" if wire == "from" else re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", wire)


def _built(record: type, raw: object) -> object:
    """Makes a record of an object that was read. Raises _Misfit, whose text names fields and no values."""
    values: dict[str, object] = {}
    given = cast("Mapping[str, object]", raw)
    for wire, wanted in _FIELDS[record].items():
        value = given.get(wire)
        if value is not None:
            try:
                values[_attribute(wire)] = wanted.read(value)
            except _Misfit as inner:
                raise _Misfit(str(inner) or f"`{wire}` is not {wanted.word}") from None
        elif not wanted.optional:
            raise _Misfit(f"`{wire}` is missing")
    return record(**values)


# ── reading and writing ──────────────────────────────────────────────────────────────────────────

_LIKE_A_TYPE = re.compile(r"[a-z][a-z0-9]{0,31}(?:_[a-z0-9]{1,31}){1,7}", re.ASCII | re.IGNORECASE).fullmatch
"""How a type of the protocol is built, each of D4's: words with `_` between them."""


_HALF_PAIR = re.compile("[\ud800-\udfff]|\\\\u[dD]").search
"""Whether a text may hold half of a surrogate pair, as itself or as an escape."""


def _no_constant(_: str) -> None:
    raise ValueError


def _read(text: str) -> tuple[object, bool]:
    """The value of a JSON text, and whether a field is given twice anywhere in it. Raises as `json.loads` does."""
    twice = False

    def fields_of(pairs: list[tuple[str, object]]) -> dict[str, object]:
        nonlocal twice
        fields = dict(pairs)
        twice = twice or len(fields) < len(pairs)
        return fields

    value = json.loads(text, object_pairs_hook=fields_of, parse_constant=_no_constant)
    return value, twice


def parse(text: str) -> Frame | Malformed | None:
    """Reads the text of a mailbox entry (07.12, 07.17).

    Half of a surrogate pair, which a program leaves that cuts a text without looking, reads as `?`.

    Args:
        text: as it stands in the entry.

    Returns the frame; Malformed; or None for prose. Nothing is raised.
    """
    if "{" not in text:
        return None
    try:
        value, twice = _read(text)
        if _HALF_PAIR(text):
            value, _ = _read(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode())
    except (ValueError, RecursionError):
        value, twice = None, False
    if not isinstance(value, dict):
        # What is no JSON, or stands in a code fence, may still be meant for a frame, and would be shown as one.
        return Malformed(type="", reason=f"it is {what}") if (what := frame_in(text)) else None
    raw = cast("dict[str, object]", value)
    kind = raw.get("type")
    if twice and (what := frame_in(text)):
        return Malformed(type="", reason=f"it is {what} with a field given twice")
    if not isinstance(kind, str) or not _LIKE_A_TYPE(kind):
        return None
    record = RECORD_OF.get(kind)
    if record is None:
        return Malformed(type=kind, reason="its type is not known")
    try:
        frame = cast("Frame", _built(record, raw))
    except _Misfit as misfit:
        return Malformed(type=kind, reason=str(misfit))
    if isinstance(frame, PermissionResponse) and (frame.subtype == "error") is not (frame.error is not None):
        return Malformed(type=kind, reason="`error` goes with the subtype error, and with no other")
    return frame


def _written(value: object) -> object:
    """A value as JSON has it."""
    fields = _FIELDS.get(type(value))
    if fields is None:
        return (
            [_written(each) for each in cast("tuple[object, ...]", value)] if type(value) is tuple else value
        )
    given = {wire: getattr(value, _attribute(wire)) for wire in fields}
    return {wire: _written(each) for wire, each in given.items() if each is not None}


def encode(frame: Frame) -> str:
    """Writes a frame as the text of an entry: compact JSON, what is None left out (07.12)."""
    whole = {"type": frame.type, **cast("dict[str, object]", _written(frame))}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
