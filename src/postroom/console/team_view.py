"""What a person is shown of a team: its members, what lies in their inboxes, its tasks and what blocks them (07.24).

    there(places)               the names of the teams in a folder
    look(places, name, now)     one team as it lies there
    document(seen), text(seen)  the same for a program and for a person

It reads and changes nothing: a mailbox that is damaged is told of and left as it is, for its owner or `team repair`. It takes
no lock, since files are only ever replaced as a whole. Every word of a config, an entry or a task is its writer's claim.

How it fails: `UnfitPath` (`Damaged`, `OtherTeam`) for a folder or config that cannot be used, `NoTeam` for one that is
not there. A mailbox or a task list that cannot be read costs that one, and is a sentence in its place.

Weak: members, inboxes and tasks are read one after the other, so what changes meanwhile may be seen by half. How old an entry is
goes by its writer's clock.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postroom import boards
from postroom.core import mailfile, teamfile
from postroom.core.tasks import Board
from postroom.core.team import Team, folder_of
from postroom.core.times import iso, stamped
from postroom.errors import CallerError, PostroomError, UnfitPath
from postroom.present import one_line, table
from postroom.state import files
from postroom.state.team_files import MAX_CONFIG, OtherTeam
from postroom.state.teams import MAX_TEAMS, files_of, tasks_of
from postroom.transports.mailbox import MAX_READ

if TYPE_CHECKING:
    from postroom.core.team import Member
    from postroom.present import Document
    from postroom.state.teams import Places

__all__ = ["Inbox", "Kept", "NoTeam", "Place", "Seen", "document", "look", "there"]

_OWN = re.compile(r"([A-Za-z0-9_-]{1,64})\.json")
_BESIDE = re.compile(r"([A-Za-z0-9_-]{1,64})\.json\.(?:quarantine(?:\.1)?|damaged-[0-9a-f]+)")

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
"""In what an age is said, the largest that fits."""


class NoTeam(CallerError):
    """There is no team, or none of that name."""

    code = "not_found"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One member's place in the team, or what is left of it.

    Attributes:
        name, type: as the config says.
        state: `lead`; `in-process` with the lead; `pane` of a terminal; `session` of its own; `evicted`; or `left`.
        joined_at: epoch milliseconds; 0: not said.
        at: when it was evicted or left; None for one that is there.
        pane: of which it is.
        active: False while it is idle; None: not said.
        mode, cwd, session_id: as the config says; empty: not said.
    """

    name: str
    type: str = ""
    state: str
    joined_at: int
    at: int | None = None
    pane: str = ""
    active: bool | None = None
    mode: str = ""
    cwd: str = ""
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A file with mail that could not be delivered: its name and its bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbox:
    """One inbox as it lies there.

    Attributes:
        name: whose.
        member: somebody in the team is called so.
        size: bytes; 0 where there is no file.
        unread, read: entries; `read` are those that an older program has taken and left there.
        unusable: what stands among them and is no entry.
        whole: the file is one JSON array; else the rest counts what can be salvaged.
        oldest: the time of the oldest unread entry, as its writer put it; empty where there is none.
        sender: of it.
        age: seconds since then; None where that is no time.
        kept: what lies beside it.
        problem: why it cannot be read; empty where it can.
    """

    name: str
    member: bool
    size: int = 0
    unread: int = 0
    read: int = 0
    unusable: int = 0
    whole: bool = True
    oldest: str = ""
    sender: str = ""
    age: int | None = None
    kept: tuple[Kept, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A team as it lies there.

    Attributes:
        team: its config.
        folder: its own.
        members: with those that went, the latest last.
        inboxes: of the members in their order, then of others.
        board: its tasks.
        problems: what is wrong, a sentence each.
    """

    team: Team
    folder: str
    members: tuple[Place, ...] = ()
    inboxes: tuple[Inbox, ...] = ()
    board: Board = field(default_factory=Board)
    problems: tuple[str, ...] = ()


# ── looking ──────────────────────────────────────────────────────────────────────────────────────


def there(places: Places) -> list[str]:
    """The names of the teams in a folder; where a config cannot be read, the folder's own (07.21).

    Raises UnfitPath where the folder must not be trusted.
    """
    if not os.path.lexists(places.teams):
        return []
    files.check_folder(places.teams, readable=places.shared)
    found: list[str] = []
    for folder in sorted(os.listdir(places.teams))[:MAX_TEAMS]:
        if not files.is_temporary(folder) and os.path.lexists(f"{places.teams}/{folder}/config.json"):
            found.append(_called(places, folder))
    return found


def _called(places: Places, folder: str) -> str:
    """The name of the team in a folder."""
    path = f"{places.teams}/{folder}"
    try:
        files.check_own_folder(path, readable=places.shared)
        said = teamfile.parse(files.read_private(f"{path}/config.json", MAX_CONFIG, readable=places.shared))
    except (UnfitPath, OSError):
        return folder
    return said.name if isinstance(said, Team) and folder_of(said.name) == folder else folder


def look(places: Places, name: str, now: int) -> Seen:
    """Looks at one team (07.24).

    Args:
        places: where teams and tasks lie.
        name: of the team, in full.
        now: epoch milliseconds, for ages.

    Raises InvalidName, NoTeam, UnfitPath.
    """
    found = files_of(places, name)
    try:
        team = found.read()
    except OtherTeam as error:
        called = _called(places, os.path.basename(found.folder))
        if called == name:
            raise
        raise OtherTeam(error.path, error.reason, f"That one is called {one_line(called)}.") from None
    if team is None:
        raise NoTeam(f"There is no team {one_line(name)}.")
    problems = list(team.problems)
    names = {member.name for member in team.members}
    inboxes: list[Inbox] = []
    try:
        listed = inbox_names(found.inboxes, shared=places.shared)
    except UnfitPath as error:
        problems.append(error.message)
    else:
        strangers = sorted(set(listed) - names)
        order = [*(member.name for member in team.members), *strangers]
        inboxes += [
            _inbox(found.inboxes, each, places, now, member=each in names, beside=listed.get(each, []))
            for each in order
        ]
    board = Board()
    try:
        board = tasks_of(places, name).read()
    except PostroomError as error:
        problems.append(error.message)
    return Seen(
        team=team,
        folder=found.folder,
        members=(*map(_place, team.members), *_gone(team)),
        inboxes=tuple(inboxes),
        board=board,
        problems=tuple(problems),
    )


def _place(member: Member) -> Place:
    rungs = (
        (member.lead, "lead"),
        (member.evicted_at is not None, "evicted"),
        (member.in_process, "in-process"),
        (bool(member.pane), "pane"),
    )
    return Place(
        name=member.name,
        type=member.type,
        state=next((state for fits, state in rungs if fits), "session"),
        joined_at=member.joined_at,
        at=member.evicted_at,
        pane=member.pane if member.pane.startswith("%") else "",
        active=member.active,
        mode=member.mode,
        cwd=member.cwd,
        session_id=member.session_id,
    )


def _gone(team: Team) -> list[Place]:
    """Who went and whose name nobody has now, each once (07.22)."""
    last = {gone.name: gone for gone in team.left if team.departed(gone.name) is gone}
    return [
        Place(name=gone.name, state="left", joined_at=gone.joined_at, at=gone.at) for gone in last.values()
    ]


def inbox_names(folder: str, *, shared: bool) -> dict[str, list[str]]:
    """Who has an inbox, or what is left of one: name → the files with mail that could not be delivered.

    Raises UnfitPath where the folder must not be trusted; none where it is not there.
    """
    try:
        files.check_own_folder(folder, readable=shared)
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UnfitPath(folder, error.strerror or "cannot be read") from error
    found: dict[str, list[str]] = {}
    for name in names:
        if own := _OWN.fullmatch(name):
            found.setdefault(own[1], [])
        elif beside := _BESIDE.fullmatch(name):
            found.setdefault(beside[1], []).append(name)
    return found


def _inbox(folder: str, name: str, places: Places, now: int, *, member: bool, beside: list[str]) -> Inbox:
    kept = tuple(Kept(name=each, size=_size(f"{folder}/{each}")) for each in beside)
    path = f"{folder}/{name}.json"
    try:
        data = files.read_private(path, MAX_READ, readable=places.shared)
    except FileNotFoundError:
        return Inbox(name=name, member=member, kept=kept)
    except UnfitPath as error:
        return Inbox(name=name, member=member, kept=kept, problem=error.message)
    contents = mailfile.parse(data)
    entries = [item.entry for item in contents.good if item.entry is not None]
    unread = [entry for entry in entries if not entry.read]
    oldest = unread[0] if unread else None
    return Inbox(
        name=name,
        member=member,
        size=len(data),
        unread=len(unread),
        read=len(entries) - len(unread),
        unusable=len(contents.bad),
        whole=contents.whole,
        oldest=oldest.timestamp if oldest else "",
        sender=oldest.from_ if oldest else "",
        age=_age(oldest.timestamp, now) if oldest else None,
        kept=kept,
    )


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _age(timestamp: str, now: int) -> int | None:
    try:
        return max(0, now - stamped(timestamp)) // 1000
    except (ValueError, OverflowError):
        return None


# ── for programs ─────────────────────────────────────────────────────────────────────────────────


def document(seen: Seen) -> Document:
    """What `team --json` prints (10.29)."""
    team = seen.team
    listed = boards.board_document(seen.board, boards.in_order(seen.board))
    return {
        "team": team.name,
        "description": team.description,
        "created_at": _time(team.created_at),
        "lead_session_id": team.lead_session_id,
        "active": team.active,
        "folder": seen.folder,
        "members": [
            {
                "name": one.name,
                "type": one.type,
                "state": one.state,
                "joined_at": _time(one.joined_at),
                "at": _time(one.at),
                "pane": one.pane,
                "active": one.active,
                "mode": one.mode,
                "cwd": one.cwd,
                "session_id": one.session_id,
            }
            for one in seen.members
        ],
        "inboxes": [
            {
                "name": one.name,
                "member": one.member,
                "unread": one.unread,
                "read": one.read,
                "unusable": one.unusable,
                "whole": one.whole,
                "bytes": one.size,
                "oldest": one.oldest or None,
                "oldest_from": one.sender or None,
                "oldest_age": one.age,
                "kept": [{"name": each.name, "bytes": each.size} for each in one.kept],
                "problem": one.problem,
            }
            for one in seen.inboxes
        ],
        "tasks": listed["tasks"],
        "unreadable": listed["unreadable"],
        "problems": list(seen.problems),
    }


def _time(at: int | None) -> str | None:
    return iso(at) if at else None


# ── for people ───────────────────────────────────────────────────────────────────────────────────


def text(seen: Seen) -> str:
    """What `team` prints (07.24)."""
    team = seen.team
    lead = f", led by the session {team.lead_session_id}" if team.lead_session_id else ""
    lines = [one_line(f"{team.name}{lead}, in {seen.folder}")]
    if team.description:
        lines.append(one_line(f"  {team.description}"))
    parts = (
        ("members", [_member_row(one) for one in seen.members]),
        ("inboxes", [_inbox_row(one) for one in seen.inboxes]),
    )
    for title, rows in parts:
        lines += [f"{title}:", *(table(rows).splitlines() if rows else ("  none",))]
    lines.append("tasks:")
    lines += [f"  {row}" for row in boards.board_text(seen.board, boards.in_order(seen.board)).splitlines()]
    lines += [one_line(f"problem: {each}") for each in seen.problems]
    if any(one.unusable or not one.whole for one in seen.inboxes):
        lines.append("What cannot be used in an inbox is moved aside, and told, when its owner looks next.")
    if any(one.kept for one in seen.inboxes):
        lines.append("What could not be delivered lies beside the inboxes; `postroom team repair` lists it.")
    return "\n".join(lines) + "\n"


_STATES = {"in-process": "in process", "session": "its own session"}


def _member_row(one: Place) -> tuple[str, ...]:
    state = _STATES.get(one.state, one.state)
    if one.pane and one.state == "pane":
        state = f"pane {one.pane}"
    if one.at is not None:
        state = f"{state} at {iso(one.at)}" if one.state == "left" else f"{state} since {iso(one.at)}"
    doing = {False: "idle", True: "busy", None: ""}[one.active if one.at is None else None]
    return "", one_line(one.name), one_line(one.type or "-"), one_line(state), doing, one_line(one.cwd)


def _inbox_row(one: Inbox) -> tuple[str, ...]:
    said = [f"{one.unread} unread" if one.unread else "nothing unread"]
    if one.oldest:
        said.append(f"oldest {_old(one)}from {one.sender} ({one.oldest})")
    if one.read:
        said.append(f"{one.read} read and left there")
    if not one.whole:
        said.append("DAMAGED: it is no JSON array")
    if one.unusable:
        said.append(f"{one.unusable} that cannot be used")
    if one.problem:
        said = [f"cannot be read: {one.problem}"]
    if not one.member:
        said.append("nobody in the team is called so")
    said += [f"{each.name} ({each.size:,} bytes)" for each in one.kept]
    return "", one.name, f"{one.size:,} bytes", one_line("; ".join(said))


def _old(one: Inbox) -> str:
    if one.age is None:
        return ""
    size, unit = next((each for each in _UNITS if one.age >= each[0]), _UNITS[-1])
    return f"{one.age // size} {unit} old, "
