"""The life of one agent: its runs, how each ended, and who has been told (06.11, 06.13).

`Life` is what `agent.json` holds. Each function answers what a life is after one step, and nothing where the step does
not apply: a run that has ended already cannot end again, whoever says so. A run has a number of its own, which is never
given out twice.

It reads no clock and writes nothing. It decides neither whether an agent may be resumed (`core.route`) nor who hears of
an end: it keeps what is owed until it is told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast

from postroom.core.message import TaskNotification

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroom.core.message import RunStatus

AgentState = Literal["live", "completed", "failed", "killed"]

TRANSITIONS: Mapping[AgentState, frozenset[AgentState]] = MappingProxyType(
    {
        "live": frozenset({"completed", "failed", "killed"}),
        "completed": frozenset({"live"}),
        "failed": frozenset({"live"}),
        "killed": frozenset({"live"}),
    }
)
"""From a state to those that may follow it: a run ends, a resume begins the next (06.13)."""

OWED_MAX = 100
"""Ends of runs that an owner has not been told; the oldest goes: more is an owner that never drains (11.10)."""

MAX_ID = 80
"""Characters of an agent's id: it is the name of a folder."""

_ID = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One agent, as far as it outlives its process (06.13).

    Attributes:
        id: its identity, see `is_agent_id`.
        name: what it is called inside its session.
        session_id: whose agent it is.
        type: what sort of agent; a hint.
        former: names that it had.
        transcript: the path of its transcript; None: it has none.
        background: its owner is told of each end.
        state: `live`, or how its last run ended.
        stopped_by_user: nothing resumes it (02.24).
        runs: the number of its present run, or of its last one.
        started_at, ended_at: of that run, epoch milliseconds.
        owed: ends of which the owner has not been told, oldest first.
    """

    id: str
    name: str
    session_id: str
    type: str = ""
    former: tuple[str, ...] = ()
    transcript: str | None = None
    background: bool = True
    state: AgentState = "live"
    stopped_by_user: bool = False
    runs: int = 1
    started_at: int = 0
    ended_at: int | None = None
    owed: tuple[TaskNotification, ...] = ()


def is_agent_id(identity: str) -> bool:
    """Whether it can be an agent's id: 1 to 80 letters of ASCII, digits, `-` and `_`."""
    return 0 < len(identity) <= MAX_ID and _ID.issuperset(identity)


def finished(
    life: Life,
    run: int,
    status: RunStatus,
    at: int,
    *,
    result: str | None = None,
    usage: Mapping[str, int | float] | None = None,
    output_path: str | None = None,
    worktree: str | None = None,
    notify: bool = True,
) -> Life | None:
    """A run has ended (06.11).

    Args:
        life: the agent.
        run: which run.
        status: how it ended.
        at: epoch milliseconds.
        result, usage, output_path, worktree: as in `TaskNotification`.
        notify: whether its owner is owed a notification.

    Returns None where that run is not under way: it ended before, or another one is.
    """
    if life.state != "live" or life.runs != run or status not in TRANSITIONS["live"]:
        return None
    owed = life.owed
    if notify:
        said = TaskNotification(
            task_id=life.id,
            name=life.name,
            status=status,
            run=run,
            at=at,
            output_path=output_path,
            result=result,
            usage=usage,
            worktree=worktree,
        )
        owed = (*owed, said)[-OWED_MAX:]
    return replace(life, state=cast("AgentState", status), ended_at=at, owed=owed)


def resumed(life: Life, at: int) -> Life | None:
    """Its next run begins; None where it is live, or the user has stopped it (02.23, 02.24)."""
    if life.state == "live" or life.stopped_by_user:
        return None
    return replace(life, state="live", runs=life.runs + 1, started_at=at, ended_at=None)


def stopped(life: Life, at: int, *, by_user: bool, notify: bool = True) -> Life:
    """It was stopped: a run under way was killed, and what the user stopped stays so (02.24)."""
    killed = finished(life, life.runs, "killed", at, notify=notify) or life
    return replace(killed, stopped_by_user=True) if by_user else killed


def restarted(life: Life) -> Life:
    """Its owner lifts the user's stop (06.13)."""
    return replace(life, stopped_by_user=False)


def crashed(life: Life, at: int, *, notify: bool = True) -> Life | None:
    """Its process has gone: a run that was under way was killed; None where none was."""
    return finished(life, life.runs, "killed", at, notify=notify)


def told(life: Life, run: int) -> Life:
    """Its owner has been told of the end of that run."""
    return replace(life, owed=tuple(one for one in life.owed if one.run != run))


def progress(life: Life, text: str, at: int) -> TaskNotification:
    """How far the present run has come (06.11)."""
    return TaskNotification(
        task_id=life.id, name=life.name, status="running", run=life.runs, at=at, result=text
    )
