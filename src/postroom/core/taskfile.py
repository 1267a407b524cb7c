"""How a shared task is written down, and what tasks and their lists are called (07.23).

    <tasks>/<list id>/<N>.json          one task
    <tasks>/<list id>/.highwatermark    the last id that was given out

What it decides: what a task is; whether bytes are one; which id comes next; in which folder a list lies.

What it never does: touch a file, judge what a task says, or drop a field that it does not know.

How it fails: `read_task` answers a reason for bytes that are no task, and `read_mark` and `next_id` answer None.
Nothing here raises for what a file holds.

What is weak: the numbers of foreign fields pass through Python's floats.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

TaskStatus = Literal["pending", "in_progress", "completed"]
STATUSES: tuple[TaskStatus, ...] = get_args(TaskStatus)

MAX_FILE = 1024 * 1024
"""Bytes of one task's file: all of the limits below together, with room for what other programs add."""

MAX_DEPTH = 32
"""Levels of lists and objects in a task: far below what any reader of JSON takes."""

MAX_NAME = 64
"""Characters of an owner (07.8) and of a list's id: the first names a mailbox, the second a folder."""

MAX_DIGITS = 15
"""Digits of an id: every reader of JSON keeps such a number exact."""

LAST_ID = 10**MAX_DIGITS - 1
"""The largest id."""

MARK_LOST = 1000
"""How far ids jump where the high-water mark cannot be read: tasks that were removed above all others may have had
the numbers in between (07.23)."""

_DIGITS = frozenset("0123456789")
LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
"""What names and list ids are made of (07.8)."""

THEIRS = MappingProxyType(
    {
        "active_form": "activeForm",
        "blocked_by": "blockedBy",
        "add_blocks": "addBlocks",
        "add_blocked_by": "addBlockedBy",
        "task_id": "taskId",
    }
)
OURS = MappingProxyType({theirs: ours for ours, theirs in THEIRS.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One shared task (07.23).

    Attributes:
        id: a number, as text; never given to another task of the list.
        subject: one line.
        description: what is to be done.
        active_form: the subject in the words of somebody who is at it.
        owner: the name of the member that has it.
        status: where it stands.
        blocks, blocked_by: ids of tasks; an edge counts where either side has it, see `open_blockers`.
        metadata: whatever its makers keep with it; JSON.
        extra: fields of the file that are none of ours, kept as they came.
    """

    id: str
    subject: str = field(repr=False)
    description: str = field(default="", repr=False)
    active_form: str | None = field(default=None, repr=False)
    owner: str | None = None
    status: TaskStatus = "pending"
    blocks: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    metadata: Mapping[str, Any] | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


# ── ids and names ────────────────────────────────────────────────────────────────────────────────


def is_task_id(text: str) -> bool:
    """Whether a text is an id of a task: a number above 0 without leading zeros, of 15 digits at most."""
    return 0 < len(text) <= MAX_DIGITS and text[0] != "0" and _DIGITS.issuperset(text)


def list_folder(list_id: str, *, shared: bool) -> str | None:
    """The name of the folder in which a list lies; None: no list can have that id (07.8, 07.23).

    Args:
        list_id: a team's name, a session's id, or what a person chose.
        shared: in another program's folder, which writes `-` for every letter outside `[A-Za-z0-9_-]`; in our own such
            an id is refused, so that no two lists share a folder.
    """
    if not 0 < len(list_id) <= MAX_NAME or not (shared or LETTERS.issuperset(list_id)):
        return None
    return "".join(letter if letter in LETTERS else "-" for letter in list_id)


def read_mark(data: bytes) -> int | None:
    """Reads the high-water mark: the last id that was given out; None for bytes that are none."""
    text = data.strip().decode("latin-1")
    return int(text) if text == "0" or is_task_id(text) else None


def last_id(mark: int | None, ids: Iterable[str]) -> int:
    """The last id that may have been given out, to be the new high-water mark (07.23).

    Args:
        mark: the high-water mark, 0 where there was none yet; None: there is one that cannot be read.
        ids: of every file that lies there, whatever it holds.
    """
    last = max(map(int, ids), default=0)
    return min(last + MARK_LOST, LAST_ID) if mark is None else max(mark, last)


def next_id(mark: int | None, ids: Iterable[str]) -> str | None:
    """The id of the next task; None where numbers have come to their end (07.23). Arguments as of `last_id`."""
    last = last_id(mark, ids)
    return str(last + 1) if last < LAST_ID else None


# ── the file ─────────────────────────────────────────────────────────────────────────────────────

_FIELDS = (
    "id",
    "subject",
    "description",
    "active_form",
    "owner",
    "status",
    "blocks",
    "blocked_by",
    "metadata",
)
"""A task's fields in the order in which they are written."""


def encode(task: Task) -> bytes:
    """Writes a task as the JSON of its file; fields without a value are left out (07.23)."""
    written: dict[str, object] = {}
    for ours in _FIELDS:
        value = getattr(task, ours)
        if value is not None:
            written[THEIRS.get(ours, ours)] = dict(value) if ours == "metadata" else value
    written |= {name: value for name, value in task.extra.items() if name not in written}
    text = json.dumps(written, ensure_ascii=False, indent=2)
    try:
        return text.encode()
    except UnicodeEncodeError:  # another program's half character: escaped, as it came
        return json.dumps(written, indent=2).encode()


def read_task(data: bytes, task_id: str) -> Task | str:
    """Reads a task's file (07.23).

    Args:
        data: what lies there.
        task_id: of the file's name, which the task must have.

    Returns the task, or why these bytes are none. An unknown field is kept, an unknown status is never guessed at.
    """
    try:
        raw: object = json.loads(data.decode(), parse_constant=_no_number, parse_float=_number)
    except UnicodeDecodeError:
        return "it is not UTF-8"
    except RecursionError:
        return "it is nested too deep"
    except ValueError:
        return "it is not JSON" if data else "it is empty"
    if not isinstance(raw, dict):
        return "it is not a JSON object"
    if not is_shallow(cast("object", raw)):
        return "it is nested too deep"
    fields = cast("dict[str, Any]", raw)
    values: dict[str, Any] = {}
    for ours, read in _READ.items():
        value = fields.get(THEIRS.get(ours, ours))
        try:
            values[ours] = read(value)
        except TypeError:
            fault = "is missing" if value is None else "is not what it should be"
            return f"`{THEIRS.get(ours, ours)}` {fault}"
    if values["id"] != task_id:
        return "it is another task's"
    known = {THEIRS.get(ours, ours) for ours in _READ}
    extra = {name: value for name, value in fields.items() if name not in known}
    return Task(**values, extra=extra)


def _no_number(word: str) -> object:
    raise ValueError(word)


def _number(text: str) -> float:
    """A number that can be written again: one that is larger than any float cannot."""
    value = float(text)
    return value if abs(value) < float("inf") else cast("float", _no_number(text))


def is_shallow(value: object, levels: int = MAX_DEPTH) -> bool:
    """Whether a value of JSON has so many levels of lists and objects at most."""
    level: list[Any] = [value]
    for _ in range(levels):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict | MappingProxyType):
                inner += cast("Mapping[str, Any]", each).values()
            elif isinstance(each, list | tuple):
                inner += cast("list[Any]", each)
        level = inner
    return not any(isinstance(each, dict | MappingProxyType | list | tuple) for each in level)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _text_or_nothing(value: object) -> str | None:
    return _text(value) or None if value is not None else None


def _status(value: object) -> str:
    if value not in STATUSES:
        raise TypeError
    return cast("str", value)


def _ids(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise TypeError
    return tuple(dict.fromkeys(_text(each) for each in cast("list[object]", value)))


def _object_or_nothing(value: object) -> object:
    if value is not None and not isinstance(value, dict):
        raise TypeError
    return cast("object", value)


_READ: Mapping[str, Callable[[object], object]] = MappingProxyType(
    {
        "id": _text,
        "subject": _text,
        "description": lambda value: "" if value is None else _text(value),
        "active_form": _text_or_nothing,
        "owner": _text_or_nothing,
        "status": _status,
        "blocks": _ids,
        "blocked_by": _ids,
        "metadata": _object_or_nothing,
    }
)
"""What each field of a file may be: the value as we hold it, or TypeError."""
