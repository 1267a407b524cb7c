"""What shared tasks look like: as documents for programs, and as lines for models and people (07.23).

A document of one task has the keys of its file, `activeForm` and `blockedBy` too, so that one who knows the file knows it;
`waitsFor` is added: those of its blockers that are still open. `docs/json.md` lists the keys.

Every word of a task is somebody else's: a line of ours has it on that line alone, with controls made visible, and a
description is set in, so that none of its lines can pass for one of ours (10.37).

It decides nothing and reads nothing. What a model may not be shown as it stands is `task_tools`'.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from postroom.core.tasks import open_blockers
from postroom.present import indented, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from postroom.core.taskfile import Task
    from postroom.core.tasks import Board
    from postroom.present import Document

__all__ = [
    "board_document",
    "board_text",
    "in_order",
    "row_text",
    "step_document",
    "task_document",
    "task_text",
]

NAMED = 20
"""Ids that one line names; the rest is a number."""


def in_order(board: Board) -> list[Task]:
    """The tasks of a list as they are shown: what is still to be done first, each half the oldest first."""
    return sorted(board.tasks.values(), key=lambda task: (task.status == "completed", int(task.id)))


# ── documents ────────────────────────────────────────────────────────────────────────────────────


def task_document(task: Task, waits_for: Sequence[str] = ()) -> Document:
    """One task (07.23).

    Args:
        task: the task.
        waits_for: the ids of its open blockers.
    """
    return {
        "id": task.id,
        "subject": task.subject,
        "description": task.description,
        "activeForm": task.active_form,
        "owner": task.owner,
        "status": task.status,
        "blocks": list(task.blocks),
        "blockedBy": list(task.blocked_by),
        "metadata": None if task.metadata is None else dict(task.metadata),
        "waitsFor": list(waits_for),
    }


def step_document(
    task: Document | None,
    *,
    assigned: str | None = None,
    unblocked: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Document:
    """What a step with one task came to.

    Args:
        task: its document; None: it was deleted, or none was free.
        assigned: the member that was mailed a `task_assignment`.
        unblocked: ids of the pending tasks that wait for nothing any more.
        warnings: what did not succeed beside it.
    """
    return {"task": task, "assigned": assigned, "unblocked": list(unblocked), "warnings": list(warnings)}


def board_document(board: Board, shown: Sequence[Task], *, left_out: int = 0) -> Document:
    """A list of tasks.

    Args:
        board: the whole list.
        shown: those of it that are listed.
        left_out: how many more there are that would belong there.
    """
    waiting = open_blockers(board)
    return {
        "tasks": [task_document(task, waiting[task.id]) for task in shown],
        "unreadable": [{"id": each, "reason": why} for each, why in board.unreadable.items()],
        "left_out": left_out,
    }


# ── lines ────────────────────────────────────────────────────────────────────────────────────────


def ids_text(ids: Sequence[str]) -> str:
    """Ids on one line: `3, 4 and 7 more`."""
    more = len(ids) - NAMED
    return ", ".join(ids[:NAMED]) + (f" and {more} more" if more > 0 else "")


def row_text(task: Task, waits_for: Sequence[str] = ()) -> str:
    """One task on one line: `3 · pending · owner schema · waits for 1, 2 · Rename the column`."""
    parts = [task.id, task.status]
    if task.owner:
        parts.append(f"owner {task.owner}")
    if waits_for and task.status != "completed":
        parts.append(f"waits for {ids_text(waits_for)}")
    return one_line(" · ".join([*parts, task.subject]))


def board_text(board: Board, shown: Sequence[Task], *, left_out: int = 0, narrowed: bool = False) -> str:
    """A list of tasks, a line each; arguments as of `board_document`, `narrowed`: only some were asked for."""
    waiting = open_blockers(board)
    lines = [row_text(task, waiting[task.id]) for task in shown]
    if not shown:
        lines.append("No task is like that." if narrowed else "There are no tasks.")
    if left_out:
        lines.append(f"{left_out:,} more: narrow it by `status` or `owner`.")
    lines += [one_line(f"Task {each} cannot be read: {why}.") for each, why in board.unreadable.items()]
    return "\n".join(lines)


def task_text(task: Task, waits_for: Sequence[str] = (), head: str = "description:") -> str:
    """All of one task; `head` stands above its description."""
    lines = [row_text(task, waits_for)]
    if task.active_form:
        lines.append(one_line(f"while it is done: {task.active_form}"))
    for says, ids in (("blocked by", task.blocked_by), ("blocks", task.blocks)):
        if ids:
            lines.append(one_line(f"{says} {ids_text(ids)}"))
    if task.metadata:
        lines.append(one_line(f"metadata: {_json(task.metadata)}"))
    if task.description:
        lines += [head, indented(task.description)]
    return "\n".join(lines)


def _json(metadata: Mapping[str, Any]) -> str:
    return json.dumps(dict(metadata), ensure_ascii=False)
