"""One step with the shared tasks of a team: who may take it, what is written, and who is mailed (07.23).

They are there for who takes part in a team that has a member: a session, or an agent inside one that is a member itself
(`seat_of`). Everybody else hears `no_team`. Any member may change any task.

What may be done is `core.tasks`', the files are `state.tasklist`'s, which blocks and so runs in a thread. Whoever is made
the owner of a task, and did not do that itself, is mailed a `task_assignment`; nothing else is told to anybody. A step goes
on where its caller is taken back: the mail that belongs to it is written.

It never takes the name of who asks out of the arguments, and never raises for what they are.

How it fails: a refusal is a value. A list that cannot be read or written raises StoreFailed or UnfitPath, with nothing
changed. Where the mail cannot be written, the task has its owner all the same, and a warning says so.

Weak: who is a member is looked up just before the step, and not under the list's lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from postroom import boards
from postroom.core import contract, tasks
from postroom.core.frame_text import encode
from postroom.core.frames import TaskAssignment
from postroom.core.message import Refusal
from postroom.core.taskfile import STATUSES
from postroom.core.tasks import TaskRefusal
from postroom.core.times import stamp
from postroom.errors import PostroomError
from postroom.state.locks import NotLocked

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from postroom.agent import Agent
    from postroom.core.taskfile import Task
    from postroom.present import Document
    from postroom.session import Session
    from postroom.teaming import Teaming

__all__ = ["Done", "called", "seat_of"]

NAMED = 10
"""Members that a refusal names; the rest is a number."""

NONE_FREE = "No task is free: each is taken, done, or waits for another."


class Done(NamedTuple):
    """What one call came to.

    Attributes:
        text: for a model or a person, without a newline at its end.
        document: the same for programs.
        found: whether there was what was asked for.
    """

    text: str
    document: Document
    found: bool = True


def seat_of(session: Session, agent: Agent | None = None) -> Teaming | None:
    """The place in a team for which there are shared tasks (07.23); None: there are none.

    Args:
        session: the session.
        agent: an agent inside it, which may be a member itself (07.9); None: its main conversation.
    """
    seat = session.team
    if seat is None or not seat.active:
        return None
    return seat if agent is None else seat.enlisted.get(agent.id)


# ── a call ───────────────────────────────────────────────────────────────────────────────────────

_steps: set[asyncio.Task[Done | Refusal]] = set()
"""Steps under way, which nothing else may hold on to."""


async def called(
    session: Session,
    seat: Teaming | None,
    tool: str,
    arguments: Mapping[str, object],
    *,
    most: int | None = None,
    head: str = "description:",
) -> Done | Refusal:
    """Takes one step, or refuses it. It goes on where its caller is taken back.

    Args:
        session: whose settings count.
        seat: the place in the team of whoever asks.
        tool: the tool's name over MCP.
        arguments: of the tool.
        most: characters of a list; None: all of it.
        head: what stands above a description.

    Raises StoreFailed and UnfitPath, with nothing changed.
    """
    own = next(own for own, name in contract.TOOL_NAMES.items() if name == tool)
    if contract.is_denied(own, session.standing.settings.denied):
        return contract.refusal("denied_by_settings", tool=own)
    if seat is None:
        return contract.refusal("no_team")
    work = STEPS[tool](Asked(seat, plain(arguments), most, head))
    step = asyncio.get_running_loop().create_task(work)
    _steps.add(step)
    step.add_done_callback(_steps.discard)
    return await asyncio.shield(step)


def plain(arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments with an id as text where a model wrote a number, or `#3`."""

    def one(value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return value.strip().removeprefix("#") if isinstance(value, str) else value

    said = dict(arguments)
    for name in ("taskId", "addBlocks", "addBlockedBy"):
        value = said.get(name)
        if isinstance(value, list):
            said[name] = [one(each) for each in cast("list[object]", value)]
        elif name == "taskId" and value is not None:
            said[name] = one(value)
    return said


class Asked(NamedTuple):
    """One call: whose it is, what it says, and how the answer is to look; see `called`."""

    seat: Teaming
    arguments: Mapping[str, object]
    most: int | None
    head: str


async def create(asked: Asked) -> Done | Refusal:
    """`TaskCreate`."""
    seat = asked.seat
    draft = tasks.draft_of(asked.arguments)
    if isinstance(draft, TaskRefusal):
        return draft
    if (stranger := await no_member(seat, draft.owner)) is not None:
        return stranger
    made = await asyncio.to_thread(seat.tasks.create, draft, by=seat.name)
    if isinstance(made, TaskRefusal):
        return made
    return await stepped(seat, f"Task {made.task.id} was made.", made.task, owed=made.assigned)


async def update(asked: Asked) -> Done | Refusal:
    """`TaskUpdate`."""
    seat = asked.seat
    said = tasks.change_of(asked.arguments)
    if isinstance(said, TaskRefusal):
        return said
    task_id, change = said
    if change.status != tasks.DELETED and (stranger := await no_member(seat, change.owner)) is not None:
        return stranger
    made = await asyncio.to_thread(seat.tasks.update, task_id, change, by=seat.name)
    if isinstance(made, TaskRefusal):
        return made
    what = (
        "was deleted" if made.task is None else "is as it was" if made.task == made.before else "was changed"
    )
    return await stepped(
        seat, f"Task {task_id} {what}.", made.task, owed=made.assigned, unblocked=made.unblocked
    )


async def claim(asked: Asked) -> Done | Refusal:
    """`TaskClaim`: this task, or the oldest that is free."""
    seat = asked.seat
    fault, task_id = only_id(asked.arguments)
    if fault is not None:
        return fault
    if task_id is None:
        made = await asyncio.to_thread(seat.tasks.claim_next, seat.name)
    else:
        made = await asyncio.to_thread(seat.tasks.claim, task_id, seat.name)
    if isinstance(made, TaskRefusal):
        return made
    if made is None:
        return Done(NONE_FREE, boards.step_document(None), found=False)
    text = boards.task_text(made.task, (), asked.head)
    document = boards.task_document(made.task)
    return Done(f"Task {made.task.id} is yours.\n{text}", boards.step_document(document))


async def get(asked: Asked) -> Done | Refusal:
    """`TaskGet`."""
    fault, task_id = only_id(asked.arguments, required=True)
    if fault is not None:
        return fault
    board = await asyncio.to_thread(asked.seat.tasks.read)
    task = board.tasks.get(task_id or "")
    if task is None:
        return tasks.unknown(board, task_id or "")
    waits_for = tasks.open_blockers(board)[task.id]
    document = boards.step_document(boards.task_document(task, waits_for))
    return Done(boards.task_text(task, waits_for, asked.head), document)


async def list_(asked: Asked) -> Done | Refusal:
    """`TaskList`: what is to be done first; as many as fit."""
    wanted = dict(asked.arguments)
    status, owner = wanted.pop("status", None), wanted.pop("owner", None)
    if wanted:
        return invalid(f"There is no field {json.dumps(next(iter(wanted))[:64])}")
    if status is not None and status not in STATUSES:
        return invalid(f"`status` is not one of {', '.join(STATUSES)}")
    if owner is not None and not isinstance(owner, str):
        return invalid("`owner` is not text")
    board = await asyncio.to_thread(asked.seat.tasks.read)
    found = [
        task
        for task in boards.in_order(board)
        if status in (None, task.status) and owner in (None, (task.owner or "").partition("@")[0])
    ]
    shown = found if asked.most is None else fitting(found, tasks.open_blockers(board), asked.most)
    left_out = len(found) - len(shown)
    narrowed = status is not None or owner is not None
    return Done(
        boards.board_text(board, shown, left_out=left_out, narrowed=narrowed),
        boards.board_document(board, shown, left_out=left_out),
    )


STEPS: Mapping[str, Callable[[Asked], Coroutine[Any, Any, Done | Refusal]]] = {
    "task_create": create,
    "task_update": update,
    "task_list": list_,
    "task_get": get,
    "task_claim": claim,
}
"""Each tool by its name over MCP."""


# ── parts of a step ──────────────────────────────────────────────────────────────────────────────


def invalid(problem: str) -> TaskRefusal:
    """A field that cannot be used."""
    sentence, hint = tasks.REFUSALS["invalid_task"]
    return TaskRefusal(code="invalid_task", message=f"{sentence.format(problem=problem)}.", hint=hint)


def only_id(
    arguments: Mapping[str, object], *, required: bool = False
) -> tuple[TaskRefusal | None, str | None]:
    """Reads the arguments of a tool that takes nothing but `taskId`: what is wrong with them, and the id."""
    for name in arguments:
        if name != "taskId":
            return invalid(f"There is no field {json.dumps(name[:64])}"), None
    task_id = arguments.get("taskId")
    if task_id is None and required:
        return invalid("`taskId` is missing"), None
    if task_id is not None and not isinstance(task_id, str):
        return invalid("`taskId` is not text"), None
    return None, task_id


async def no_member(seat: Teaming, owner: str | None) -> TaskRefusal | None:
    """The refusal of an owner who is not in the team (07.23); None where it is, or where nobody is meant."""
    if not owner:
        return None
    team = await asyncio.to_thread(seat.files.read)
    if team is not None and team.member(owner) is not None:
        if (
            seat.team is None or seat.team.member(owner) is None
        ):  # it came a moment ago: it is to get its mail
            with contextlib.suppress(PostroomError, NotLocked, OSError):
                await seat.look()
        return None
    names = () if team is None else tuple(member.name for member in team.members)
    said = ", ".join(names[:NAMED])
    if (more := len(names) - NAMED) > 0:
        said += f" and {more} more"
    gone = None if team is None else team.departed(owner)
    went = "" if gone is None else f" ({str(gone).rstrip('.')})"
    return invalid(f"`owner` is {owner}, who is no member of the team{went}; members are {said}")


async def stepped(
    seat: Teaming,
    says: str,
    task: Task | None,
    *,
    owed: str | None = None,
    unblocked: Sequence[str] = (),
) -> Done:
    """What is answered to a step that was taken; whoever is owed a `task_assignment` is mailed it before (07.23)."""
    lines = [says]
    warnings: list[str] = []
    document: Document | None = None
    if task is not None:
        if owed is not None and (problem := await not_told(seat, task, owed)):
            warnings.append(f"{owed} is the owner and was not told: {problem}")
            owed = None
        waits_for: tuple[str, ...] = ()
        with contextlib.suppress(PostroomError):  # the step is taken, whatever becomes of this look
            waits_for = tasks.open_blockers(await asyncio.to_thread(seat.tasks.read)).get(task.id, ())
        lines.append(boards.row_text(task, waits_for))
        document = boards.task_document(task, waits_for)
    if owed is not None:
        lines.append(f"{owed} was mailed the task.")
    if unblocked:
        lines.append(f"Nothing blocks {boards.ids_text(unblocked)} any more.")
    lines += [f"warning: {warning}" for warning in warnings]
    return Done(
        "\n".join(lines),
        boards.step_document(document, assigned=owed, unblocked=unblocked, warnings=warnings),
    )


async def not_told(seat: Teaming, task: Task, owner: str) -> str:
    """Mails a `task_assignment` to an owner; why that could not be done, or nothing."""
    frame = TaskAssignment(
        task_id=task.id,
        subject=task.subject,
        description=task.description,
        assigned_by=seat.name,
        timestamp=stamp(seat.session.now()),
    )
    summary = f"task {task.id}: {task.subject}"[: contract.MAX_SUMMARY]
    try:
        result = await seat.mail(owner, encode(frame), summary=summary)
    except PostroomError as error:
        seat.session.log(f"the mail about task {task.id} failed: {error.message}")
        return f"{error.code}."
    return result.message if isinstance(result, Refusal) else ""


def fitting(found: Sequence[Task], waiting: Mapping[str, Sequence[str]], most: int) -> list[Task]:
    """As many tasks, from the first, as have their rows in so many bytes; one at least."""
    shown: list[Task] = []
    for task in found:
        most -= len(boards.row_text(task, waiting[task.id]).encode()) + 1
        if most < 0 and shown:
            break
        shown.append(task)
    return shown
