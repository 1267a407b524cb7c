"""Shared tasks: who may make, change, claim or remove one, and what blocks what (07.23).

What it decides: whether a step may be taken, and what the task is after it. `Board` is a task list as it was read. Each
verb takes a board and answers either a `TaskRefusal` or the task as it shall be written: writing that one file is the
whole step.

An edge, *this task blocks that one*, stands in both files, in `blocks` of the one and `blockedBy` of the other. It
counts where either says so: a writer that was killed between two files has left no half of an edge. `mended` says what
to write so that both sides say it again, and so that nothing names a task that is gone.

A blocker is open until it is completed or gone. One whose file cannot be read is open: nobody knows that it is done.

What it never does: read a clock, touch a file, or tell anybody. `assigned` says who is owed a `task_assignment`; sending
it is the caller's, and so is asking whether there is a member of that name.

How it fails: nothing here raises for what a caller, a model or a file says.

What is weak: a task proves no writer, and an owner no member: any program of this user can write either. An edge can
be made and goes with its tasks; nothing takes one away by itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

from postroom.core.message import Refusal
from postroom.core.taskfile import (
    LETTERS,
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_FILE,
    MAX_NAME,
    OURS,
    STATUSES,
    THEIRS,
    Task,
    encode,
    is_shallow,
    is_task_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from postroom.core.taskfile import TaskStatus

__all__ = [
    "REFUSALS",
    "Board",
    "Change",
    "Claimed",
    "Created",
    "Draft",
    "TaskRefusal",
    "Updated",
    "change_of",
    "claim",
    "create",
    "draft_of",
    "mended",
    "next_claimable",
    "open_blockers",
    "replaced",
    "unknown",
    "update",
]

DELETED = "deleted"
"""The status that removes a task; no file holds it."""

MAX_TASKS = 1000
"""Tasks in one list: each step reads the whole list, and nobody plans more (11.10). Longer lists of others are read."""

MAX_SUBJECT = 500
"""Characters of a subject: one line."""

MAX_DESCRIPTION = 50_000
"""Characters of a description: half of a message, at most six bytes each."""

MAX_METADATA = 50_000
"""Characters of the metadata, as JSON."""

MAX_NAMED = 10
"""Ids that one sentence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A task list as it was read.

    Attributes:
        tasks: by id, the oldest first.
        unreadable: id → why the file that lies there is no task; nothing is known of those, and they block.
    """

    tasks: Mapping[str, Task] = field(default_factory=dict[str, Task])
    unreadable: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A task that shall be made (07.23); fields as of `Task`."""

    subject: str
    description: str = ""
    active_form: str | None = None
    owner: str | None = None
    metadata: Mapping[str, Any] | None = None
    add_blocks: tuple[str, ...] = ()
    add_blocked_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What shall be changed of a task; None leaves it as it is (07.23).

    Attributes:
        subject, description, status: the new value; the status `deleted` removes the task, and nothing else
            of the change counts then.
        active_form, owner: the new one; empty: none.
        metadata: is merged in by key; a value of None takes the key away.
        add_blocks: tasks that this one shall block.
        add_blocked_by: tasks that shall block this one.
    """

    subject: str | None = None
    description: str | None = None
    active_form: str | None = None
    owner: str | None = None
    status: TaskStatus | Literal["deleted"] | None = None
    metadata: Mapping[str, Any] | None = None
    add_blocks: tuple[str, ...] = ()
    add_blocked_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRefusal(Refusal):
    """A step that was answered with no; `code` is one of `REFUSALS`.

    Attributes:
        others: the ids it is about: what blocks, what the agent is busy with, the way around of a cycle.
    """

    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """A task was made; `assigned` is the member that is owed a `task_assignment`."""

    task: Task
    assigned: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """A task was changed, or removed.

    Attributes:
        before: the task before it; None where what was removed could not be read.
        task: the task now; None: removed.
        unblocked: ids of pending tasks whose last open blocker this was (07.23).
        assigned: the member that is owed a `task_assignment`; None: no new owner, or who did it took it itself.
    """

    before: Task | None
    task: Task | None
    unblocked: tuple[str, ...] = ()
    assigned: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A task is the claimant's now, or was before."""

    task: Task


def replaced(board: Board, task_id: str, task: Task | None) -> Board:
    """A board after one step: with this task in the place of what was there, or without any."""
    others = {each: there for each, there in board.tasks.items() if each != task_id}
    unreadable = {each: why for each, why in board.unreadable.items() if each != task_id}
    return Board(tasks=others if task is None else {**others, task_id: task}, unreadable=unreadable)


# ── answers with no ──────────────────────────────────────────────────────────────────────────────

REFUSALS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "task_not_found": ("There is no task {id}", "List the tasks to see which there are."),
        "already_claimed": ("Task {id} belongs to {owner}", "Claim another one."),
        "already_resolved": ("Task {id} is completed", "Claim another one."),
        "blocked": ("Task {id} waits for {others}", "Claim one that nothing blocks."),
        "agent_busy": ("{claimant} is at work on {others}", "Complete or give that back first."),
        "task_cycle": (
            "Task {id} would wait for itself: {others}",
            "Leave out the edge that closes the circle.",
        ),
        "task_damaged": (
            "The file of task {id} cannot be used: {reason}",
            "Mend the file, or delete the task.",
        ),
        "tasks_full": ("The list holds {count:,} tasks, and no more fit", "Delete tasks that are done."),
        "invalid_task": ("{problem}", "Nothing was changed. Mend that field and call again."),
    }
)
"""Every way in which a step is answered with no: its code, its sentence, what to do next (07.23)."""


def _refused(code: str, others: Iterable[str] = (), *, joint: str = ", ", **facts: object) -> TaskRefusal:
    sentence, hint = REFUSALS[code]
    ids = tuple(others)
    shown = joint.join(ids[:MAX_NAMED])
    if len(ids) > MAX_NAMED:
        shown += f" and {len(ids) - MAX_NAMED} more"
    message = sentence.format(others=shown, **facts)
    return TaskRefusal(code=code, message=f"{message}.", hint=hint, others=ids)


def unknown(board: Board, task_id: str) -> TaskRefusal:
    """Why there is no such task to be worked on (07.23): `task_damaged` where its file cannot be read."""
    if reason := board.unreadable.get(task_id):
        return _refused("task_damaged", id=task_id, reason=reason)
    return _refused("task_not_found", id=_legible(task_id))


def _legible(text: str) -> str:
    """What a caller gave for an id, as it may stand in a sentence."""
    return text if is_task_id(text) else json.dumps(text[: 2 * MAX_DIGITS])


# ── edges ────────────────────────────────────────────────────────────────────────────────────────


def _blockers(board: Board) -> dict[str, set[str]]:
    """Each task's blockers, whichever side names them; those that are gone are left out."""
    there = board.tasks.keys() | board.unreadable.keys()
    found: dict[str, set[str]] = {each: set() for each in there}
    for task in board.tasks.values():
        found[task.id] |= there & set(task.blocked_by)
        for other in there & set(task.blocks):
            found[other].add(task.id)
    return found


def _is_open(board: Board, task_id: str) -> bool:
    return task_id in board.unreadable or board.tasks[task_id].status != "completed"


def open_blockers(board: Board) -> dict[str, tuple[str, ...]]:
    """What each task waits for: the ids of its blockers that are neither completed nor gone, the oldest first (07.23)."""
    return {
        each: tuple(sorted((other for other in others if _is_open(board, other)), key=int))
        for each, others in _blockers(board).items()
    }


def _way(blockers: Mapping[str, Iterable[str]], start: str, goal: str) -> tuple[str, ...] | None:
    """The tasks from one to another along its blockers; None where no way leads there."""
    came: dict[str, str] = {start: ""}
    ahead = [start]
    while ahead and goal not in came:
        here = ahead.pop()
        for other in sorted(blockers[here]):
            if other not in came:
                came[other] = here
                ahead.append(other)
    if goal not in came:
        return None
    way: list[str] = []
    here = goal
    while here:
        way.append(here)
        here = came[here]
    return tuple(reversed(way))


def _fault_of_edges(board: Board, task_id: str, change: Change | Draft) -> TaskRefusal | None:
    """Why the new edges cannot be: an end that is not there, or a circle (07.23)."""
    if not (change.add_blocks or change.add_blocked_by):
        return None
    blockers = _blockers(board)
    blockers.setdefault(task_id, set())
    edges = [(other, task_id) for other in change.add_blocked_by]
    edges += [(task_id, other) for other in change.add_blocks]
    for blocker, blocked in edges:
        for end in (blocker, blocked):
            if end not in blockers:
                return _refused("task_not_found", id=_legible(end))
        way = _way(blockers, blocker, blocked)
        if way is not None:
            return _refused("task_cycle", (blocked, *way), joint=" → ", id=blocked)
        blockers[blocked].add(blocker)
    return None


def mended(board: Board) -> tuple[Task, ...]:
    """Tasks whose lists shall be written again: each edge on both sides, and none to a task that is gone (07.23).

    What is not the id of a task of ours stays, and so does an edge to a file that cannot be read.
    """
    blockers = _blockers(board)
    blocked: dict[str, set[str]] = {each: set() for each in blockers}
    for each, others in blockers.items():
        for other in others:
            blocked[other].add(each)
    changed = (
        replace(
            task, blocks=_side(task.blocks, blocked[each]), blocked_by=_side(task.blocked_by, blockers[each])
        )
        for each, task in board.tasks.items()
    )
    return tuple(task for task in changed if task != board.tasks[task.id] and len(encode(task)) <= MAX_FILE)


def _side(written: tuple[str, ...], meant: set[str]) -> tuple[str, ...]:
    """One side's list: what is there keeps its order, what is missing comes at the end."""
    kept = tuple(each for each in written if each in meant or not is_task_id(each))
    return kept + tuple(sorted(meant.difference(kept), key=int))


# ── the verbs ────────────────────────────────────────────────────────────────────────────────────


def create(board: Board, task_id: str, draft: Draft, *, by: str | None = None) -> Created | TaskRefusal:
    """Makes a task (07.23).

    Args:
        board: the list.
        task_id: see `next_id`.
        draft: what it shall be.
        by: who makes it; a member that names itself the owner is owed no mail.
    """
    if problem := _problem(draft):
        return _refused("invalid_task", problem=problem)
    if len(board.tasks) + len(board.unreadable) >= MAX_TASKS:
        return _refused("tasks_full", count=MAX_TASKS)
    if refusal := _fault_of_edges(board, task_id, draft):
        return refusal
    task = Task(
        id=task_id,
        subject=draft.subject,
        description=draft.description,
        active_form=draft.active_form or None,
        owner=draft.owner or None,
        blocks=_joined((), draft.add_blocks),
        blocked_by=_joined((), draft.add_blocked_by),
        metadata=draft.metadata,
    )
    return _too_large(task) or Created(task=task, assigned=_assigned(None, task, by))


def update(board: Board, task_id: str, change: Change, *, by: str | None = None) -> Updated | TaskRefusal:
    """Changes a task, or removes it (07.23).

    Any status may follow any other; a completed task that is taken up again blocks again.

    Args:
        board: the list.
        task_id: which task.
        change: what shall be different.
        by: who does it; a member that makes itself the owner is owed no mail.
    """
    if change.status == DELETED and task_id in board.tasks.keys() | board.unreadable.keys():
        return Updated(before=board.tasks.get(task_id), task=None, unblocked=_unblocked(board, task_id, None))
    before = board.tasks.get(task_id)
    if before is None:
        return unknown(board, task_id)
    if problem := _problem(change):
        return _refused("invalid_task", problem=problem)
    if refusal := _fault_of_edges(board, task_id, change):
        return refusal
    plain = ("subject", "description", "status")
    given = {each: value for each in plain if (value := getattr(change, each)) is not None}
    metadata = before.metadata
    if change.metadata is not None:
        merged = {**(before.metadata or {}), **change.metadata}
        metadata = {key: value for key, value in merged.items() if value is not None}
        if problem := _flaw_of_metadata(metadata):
            return _refused("invalid_task", problem=f"`metadata` {problem}")
    task = replace(
        before,
        **given,
        active_form=before.active_form if change.active_form is None else change.active_form or None,
        owner=before.owner if change.owner is None else change.owner or None,
        blocks=_joined(before.blocks, change.add_blocks),
        blocked_by=_joined(before.blocked_by, change.add_blocked_by),
        metadata=metadata,
    )
    if refusal := _too_large(task):
        return refusal
    unblocked = _unblocked(board, task_id, task)
    return Updated(before=before, task=task, unblocked=unblocked, assigned=_assigned(before, task, by))


def claim(board: Board, task_id: str, claimant: str, *, one_at_a_time: bool = True) -> Claimed | TaskRefusal:
    """Gives a task to who asks for it first; it is in progress then (07.23).

    The ladder, first that answers: `task_not_found` (or `task_damaged`), `already_claimed` by another,
    `already_resolved`, `blocked`, `agent_busy`. Who claims its own task again gets the same answer again.

    Args:
        board: the list.
        task_id: which task.
        claimant: the member's name.
        one_at_a_time: refuse a claimant that has another task in progress.
    """
    if problem := _flaw_of_owner(claimant):
        return _refused("invalid_task", problem=f"`owner` {problem}")
    task = board.tasks.get(task_id)
    if task is None:
        return unknown(board, task_id)
    waits_for = open_blockers(board)[task_id]
    busy_with = _in_progress(board, claimant, task_id) if one_at_a_time else ()
    rungs: tuple[tuple[bool, str, tuple[str, ...]], ...] = (
        (task.owner is not None and not _is(task.owner, claimant), "already_claimed", ()),
        (task.status == "completed", "already_resolved", ()),
        (bool(waits_for), "blocked", waits_for),
        (bool(busy_with), "agent_busy", busy_with),
    )
    for applies, code, others in rungs:
        if applies:
            owner = json.dumps((task.owner or "")[:MAX_NAME])
            return _refused(code, others, id=task_id, owner=owner, claimant=claimant)
    claimed = replace(task, owner=task.owner or claimant, status="in_progress")
    return _too_large(claimed) or Claimed(task=claimed)


def next_claimable(board: Board) -> Task | None:
    """The oldest pending task without owner or open blocker; None: there is none (07.9)."""
    waiting = open_blockers(board)
    free = (
        task
        for task in board.tasks.values()
        if task.status == "pending" and task.owner is None and not waiting[task.id]
    )
    return min(free, key=lambda task: int(task.id), default=None)


def _is(owner: str, name: str) -> bool:
    """Whether an owner is that member; other programs also write `name@team`."""
    return owner.partition("@")[0] == name


def _in_progress(board: Board, claimant: str, but: str) -> tuple[str, ...]:
    """What else a member is at; tasks that it was only given are not."""
    return tuple(
        task.id
        for task in board.tasks.values()
        if task.id != but and task.status == "in_progress" and _is(task.owner or "", claimant)
    )


def _assigned(before: Task | None, task: Task, by: str | None) -> str | None:
    """Who is owed a `task_assignment` (07.23)."""
    had = before.owner if before else None
    return None if task.owner in (None, had, by) else task.owner


def _unblocked(board: Board, task_id: str, task: Task | None) -> tuple[str, ...]:
    """The pending tasks that a step leaves without open blocker."""
    after = replaced(board, task_id, task)
    was, now = open_blockers(board), open_blockers(after)
    others = (each for each in after.tasks.values() if each.id != task_id and each.status == "pending")
    return tuple(sorted((each.id for each in others if was[each.id] and not now[each.id]), key=int))


def _joined(there: tuple[str, ...], new: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*there, *new)))


def _too_large(task: Task) -> TaskRefusal | None:
    if len(encode(task)) > MAX_FILE:
        return _refused("invalid_task", problem=f"Task {task.id} has more than {MAX_FILE:,} bytes")
    return None


# ── what callers say ─────────────────────────────────────────────────────────────────────────────


def draft_of(raw: Mapping[str, object]) -> Draft | TaskRefusal:
    """Reads the arguments of `TaskCreate` (07.23).

    `subject`, and where wanted `description`, `activeForm`, `owner`, `metadata`, `addBlocks`, `addBlockedBy`; a value
    of None counts as missing, a field that is not known is refused.
    """
    values = _values(raw, _DRAFT)
    if isinstance(values, str):
        return _refused("invalid_task", problem=values)
    if "subject" not in values:
        return _refused("invalid_task", problem="`subject` is missing")
    return Draft(**values)


def change_of(raw: Mapping[str, object]) -> tuple[str, Change] | TaskRefusal:
    """Reads the arguments of `TaskUpdate`: `taskId` and what shall be different (07.23)."""
    values = _values(raw, (*_DRAFT, "status", "task_id"))
    if isinstance(values, str):
        return _refused("invalid_task", problem=values)
    task_id = values.pop("task_id", None)
    if task_id is None:
        return _refused("invalid_task", problem="`taskId` is missing")
    return task_id, Change(**values)


def _values(raw: Mapping[str, object], known: tuple[str, ...]) -> dict[str, Any] | str:
    """The fields of a call by our names, checked; or what is wrong."""
    values: dict[str, Any] = {}
    for name, value in raw.items():
        ours = OURS.get(name, name if name in known else "")
        if ours not in known or (ours == name and ours in THEIRS):
            return f"There is no field {json.dumps(name[:MAX_NAME])}"
        if value is None:
            continue
        values[ours] = tuple(cast("list[object]", value)) if isinstance(value, list) else value
        if flaw := _CHECKS[ours](values[ours]):
            return f"`{name}` {flaw}"
    return values


def _problem(said: Draft | Change) -> str:
    """What is wrong with a draft or a change; empty when nothing is."""
    for ours, check in _CHECKS.items():
        value = getattr(said, ours, None)
        if value is not None and (flaw := check(value)):
            return f"`{THEIRS.get(ours, ours)}` {flaw}"
    return ""


def _flaw_of_text(value: object, limit: int) -> str:
    if not isinstance(value, str):
        return "is not text"
    if len(value) > limit:
        return f"has {len(value):,} characters; at most {limit:,} are allowed"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair, which is no text"
    return ""


def _flaw_of_line(value: object) -> str:
    flaw = _flaw_of_text(value, MAX_SUBJECT)
    return flaw or ("" if str(value).strip() else "is blank")


def _flaw_of_owner(value: object) -> str:
    if isinstance(value, str) and 0 < len(value) <= MAX_NAME and LETTERS.issuperset(value):
        return ""
    return f"is not a member's name: 1 to {MAX_NAME} of A-Z, a-z, 0-9, `-` and `_`"


def _flaw_of_ids(value: object) -> str:
    ids = cast("tuple[object, ...]", value) if isinstance(value, list | tuple) else (None,)
    if not all(isinstance(each, str) for each in ids):
        return "is not a list of task ids"
    return "" if len(ids) <= MAX_TASKS else f"has {len(ids):,} ids; a list holds {MAX_TASKS:,}"


def _flaw_of_metadata(value: object) -> str:
    if not isinstance(value, dict | MappingProxyType):
        return "is not an object"
    if not is_shallow(cast("object", value), MAX_DEPTH - 1):
        return f"has more than {MAX_DEPTH - 1} levels"
    try:
        size = len(
            json.dumps(dict(cast("Mapping[str, object]", value)), allow_nan=False, separators=(",", ":"))
        )
    except (TypeError, ValueError):
        return "holds something that is not JSON"
    return "" if size <= MAX_METADATA else f"has {size:,} characters; at most {MAX_METADATA:,} are allowed"


_DRAFT = ("subject", "description", "active_form", "owner", "metadata", "add_blocks", "add_blocked_by")

_CHECKS: Mapping[str, Callable[[object], str]] = MappingProxyType(
    {
        "subject": _flaw_of_line,
        "description": lambda value: _flaw_of_text(value, MAX_DESCRIPTION),
        "active_form": lambda value: _flaw_of_text(value, MAX_SUBJECT),
        "owner": lambda value: "" if value == "" else _flaw_of_owner(value),
        "status": lambda value: (
            "" if value in (*STATUSES, DELETED) else f"is not one of {', '.join(STATUSES)} and {DELETED}"
        ),
        "metadata": _flaw_of_metadata,
        "add_blocks": _flaw_of_ids,
        "add_blocked_by": _flaw_of_ids,
        "task_id": lambda value: "" if isinstance(value, str) else "is not text",
    }
)
"""What each field of a call must be: a function from a value to what is wrong with it."""
