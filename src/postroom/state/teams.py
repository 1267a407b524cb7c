"""Where teams and their tasks lie, and which of them a session belongs to (07.21).

    <state>/teams/<team>/…     `team_files`, and the inboxes
    <state>/tasks/<team>/…     `tasklist`: the list of a team is called as the team

A neighbour's folders (`--teams-dir`, `--tasks-dir`) are shared with its own programs, so that their locks are taken too.

How it fails: a team that cannot be read is passed over by `belongings`; whoever opens it by `files_of` hears why.

What is weak: `belongings` reads every team there is. Nobody needs it but at a session's start, and for a command.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from postroom.core.team import team_name
from postroom.errors import InvalidName, PostroomError
from postroom.state.locks import NotLocked
from postroom.state.tasklist import TaskList
from postroom.state.team_files import TeamFiles

if TYPE_CHECKING:
    from postroom.core.team import Member, Team

__all__ = ["Belonging", "Places", "belongings", "files_of", "places_of", "tasks_of"]

MAX_TEAMS = 1_000
"""Teams that are looked at for a session: more than one per session that ever lived here is left over (11.10)."""


class Places(NamedTuple):
    """The folders of all teams and of all task lists.

    Attributes:
        teams, tasks: absolute.
        shared: other programs write there too (07.3).
    """

    teams: str
    tasks: str
    shared: bool = False


class Belonging(NamedTuple):
    """A session's place in one team."""

    team: Team
    member: Member


def places_of(state: str, teams: str | None = None, tasks: str | None = None) -> Places:
    """The folders under a state folder, or a neighbour's.

    Args:
        state: the state folder, absolute.
        teams, tasks: in their place, a neighbour's; the tasks of one lie beside its teams where only these are named.
    """
    if teams is None and tasks is None:
        return Places(f"{state}/teams", f"{state}/tasks")
    teams_folder = os.path.abspath(teams) if teams is not None else f"{state}/teams"
    beside = f"{os.path.dirname(teams_folder)}/tasks"
    return Places(teams_folder, os.path.abspath(tasks) if tasks is not None else beside, True)


def files_of(places: Places, team: str, lead_session_id: str = "") -> TeamFiles:
    """The files of one team. Raises InvalidName for a name that can be no team's."""
    return TeamFiles(places.teams, team, shared=places.shared, lead_session_id=lead_session_id)


def tasks_of(places: Places, team: str) -> TaskList:
    """The shared tasks of one team. Raises InvalidName for a name that can be no list's."""
    return TaskList(places.tasks, team, shared=places.shared)


def belongings(places: Places, session_id: str) -> tuple[Belonging, ...]:
    """Every team that a session is a member or the lead of, its own first (07.21). Never raises."""
    try:
        folders = sorted(os.listdir(places.teams))[:MAX_TEAMS]
    except OSError:
        return ()
    own = team_name(session_id)
    found: list[Belonging] = []
    for folder in folders:
        try:
            team = files_of(places, folder).read()
        except (PostroomError, NotLocked, InvalidName, OSError):
            continue
        if team is None:
            continue
        for member in team.members:
            is_lead = member.lead and team.lead_session_id == session_id
            if is_lead or (not member.lead and member.session_id == session_id):
                found.append(Belonging(team, member))
    return tuple(sorted(found, key=lambda one: (one.team.name != own, one.team.name)))
