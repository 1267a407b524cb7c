"""Members of a team: their names, who each of them is, and what a team is after each step (07.8, 07.21, 07.22).

What it decides: what a team and its folder are called; whether a name can be a member's; what a team is after somebody
joined, left, was evicted or rebuilt; who a member is for the resolution. How a team is written down is `teamfile`'s.

Who a member is, is told by its name, its team and the time at which it joined: `Team.identity`. The file of other
programs has no place for an id, and needs none for this one: a name that is used again gets a later time, and so
another identity, also where a program in between threw away the keys that it does not know.

What it never does: read a clock, touch a file, or change anything: each step answers the team after it, and None where
it does not apply.

How it fails: `InvalidName` for a name that somebody chose.

What is weak: where another program dropped what is remembered of a member that left, one that gets its name in the very
millisecond of its joining has its identity. Names that differ in their case alone are two members where another program
made both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from postroom.core.address import (
    LEAD,
    MAX_NAME,
    check_name,
    identity_hash,
    normal_form,
    ref_of,
    variant,
)
from postroom.core.index import Candidate
from postroom.core.times import iso
from postroom.errors import InvalidName

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MAX_LEFT = 200
"""Departures that are remembered, the latest: as many members as a lead of other programs may start."""

SESSION_DIGITS = 8
"""Hex digits of a session's id in the name of its team (07.21)."""

IN_PROCESS = "in-process"
"""What stands for a pane and a backend where a member lives in the lead's own process."""

Why = Literal["left", "shutdown", "removed", "vanished"]
"""How a member went: by itself, by a shutdown that it approved, put out by the lead, or nobody said."""

_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_MEMBER = _LETTERS | frozenset("-_")
_TEAM_NAME = _LETTERS | frozenset(" -_.")
_FOLDER = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")

# ── names ────────────────────────────────────────────────────────────────────────────────────────


def team_name(session_id: str) -> str:
    """Returns the name of a session's implicit team: `session-` and the first eight hex digits of its id (07.21).

    Where the id does not begin with eight, those of its hash stand for them.
    """
    digits = session_id[:SESSION_DIGITS].lower()
    if len(digits) < SESSION_DIGITS or not set(digits) <= set("0123456789abcdef"):
        digits = identity_hash(session_id)[:SESSION_DIGITS]
    return f"session-{digits}"


def check_team_name(name: str) -> str:
    """Returns the name of a team where it can be one (07.8, 07.21).

    Its folder keeps letters and digits of ASCII alone, so nothing else is allowed but what joins them.

    Raises InvalidName; the text never repeats the name.
    """
    if (
        0 < len(name) <= MAX_NAME
        and _TEAM_NAME.issuperset(name)
        and name[0] in _LETTERS
        and name[-1] in _LETTERS
    ):
        return name
    raise InvalidName(
        f"A team's name has 1 to {MAX_NAME} letters A to Z, digits, spaces, '-', '_' and '.', and begins and ends with "
        "a letter or digit.",
        "Choose another name for the team.",
    )


def folder_of(team: str) -> str:
    """Returns the name of a team's folder: lower case, every character but `a` to `z` and digits a hyphen (07.21).

    Two teams may have one folder: whoever opens it compares the name in its config (07.8). Takes any text, and answers
    one that names no other folder than one directly inside.
    """
    return "".join(letter if letter in _FOLDER else "-" for letter in team.lower())


def is_member_name(name: str) -> bool:
    """Whether a name can be that of a file of the team: 1 to 64 of `[A-Za-z0-9_-]` (07.8)."""
    return 0 < len(name) <= MAX_NAME and _MEMBER.issuperset(name)


def check_member_name(name: str, *, lead: bool = False) -> str:
    """Returns the name of a member where it can be one (07.8), which is also a name at all (02.2).

    Args:
        name: what somebody chose.
        lead: True for the lead, who alone is called `team-lead`.

    Raises InvalidName; the text never repeats the name.
    """
    if not is_member_name(name):
        raise InvalidName(
            f"A member's name has 1 to {MAX_NAME} letters A to Z, digits, '-' and '_', and nothing else.",
            "Choose another name for the member.",
        )
    return check_name(name, lead=lead and name == LEAD)


# ── records ──────────────────────────────────────────────────────────────────────────────────────

_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a team (07.22). Every field is a claim of whoever wrote the file.

    Attributes:
        name: its address, and the name of its inbox.
        joined_at: epoch milliseconds; 0 where the file does not say.
        agent_id: `<name>@<team>`.
        type: what sort of agent; the lead's is `team-lead`.
        model, prompt, color: as it was started.
        plan_mode_required: it plans first, and the lead approves.
        pane: `%N`, `in-process`, `leader`, or empty.
        cwd, worktree: where it works.
        subscriptions: as in the file.
        backend: `in-process`, `tmux` or `iterm2`.
        active: False while it is idle; None: not said.
        mode: its permission mode.
        session_id: its session, where it has one of its own.
        evicted_at: since when it runs nowhere and can be rebuilt (02.25); None: it runs.
        raw: the entry as it came, unknown keys too; no part of comparing.
    """

    name: str
    joined_at: int = 0
    agent_id: str = ""
    type: str = ""
    model: str = ""
    prompt: str = ""
    color: str = ""
    plan_mode_required: bool = False
    pane: str = ""
    cwd: str = ""
    worktree: str = ""
    subscriptions: tuple[str, ...] = ()
    backend: str = ""
    active: bool | None = None
    mode: str = ""
    session_id: str = ""
    evicted_at: int | None = None
    raw: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<Member {self.name!r} since {self.joined_at}{', evicted' if self.evicted_at is not None else ''}>"

    @property
    def lead(self) -> bool:
        """Whether it is the lead: the name says it, since the name is that of the lead's inbox."""
        return self.name == LEAD

    @property
    def in_process(self) -> bool:
        """Whether it lives in the lead's own process, and so ends with it."""
        return not self.lead and IN_PROCESS in (self.backend, self.pane)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strange:
    """An entry among the members that is none: kept as it came, and never addressed.

    Attributes:
        reason: why, as the end of a sentence that begins with the entry.
        name: what it is called; empty where that cannot be told.
        raw: the entry; no part of comparing.
    """

    reason: str
    name: str = ""
    raw: object = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A member that is gone (07.22).

    Attributes:
        name: what it was called.
        joined_at, at: when it came and when it went, epoch milliseconds.
        why: how it went.
    """

    name: str
    joined_at: int
    at: int
    why: Why = "left"

    def __str__(self) -> str:
        """What a sender is told, as a sentence: with the time."""
        return f"{self.name} {_WENT[self.why]} at {iso(self.at)}."


_WENT: Mapping[Why, str] = {
    "left": "left the team",
    "shutdown": "was shut down",
    "removed": "was removed from the team",
    "vanished": "was no longer in the team",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """What `config.json` says of a team (07.22).

    Attributes:
        name: of the team, in full; its folder's is shorter.
        description: empty: none.
        created_at: epoch milliseconds.
        lead_agent_id: `team-lead@<team>`.
        lead_session_id: the session that the team belongs to; empty: not said.
        entries: the members in the order of the file, and what stands among them and is none.
        left: who went, the latest last.
        raw: the object as it came, unknown keys too; no part of comparing.
    """

    name: str
    description: str = ""
    created_at: int = 0
    lead_agent_id: str = ""
    lead_session_id: str = ""
    entries: tuple[Member | Strange, ...] = ()
    left: tuple[Departure, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<Team {self.name!r} of {len(self.members)} members>"

    @property
    def members(self) -> tuple[Member, ...]:
        """The members, the lead too."""
        return tuple(entry for entry in self.entries if isinstance(entry, Member))

    @property
    def active(self) -> bool:
        """Whether it has a member besides the lead, one that was evicted included (07.22)."""
        return any(not member.lead for member in self.members)

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each entry that is no member."""
        return tuple(
            f"Entry {place} of the members {entry.reason}."
            for place, entry in enumerate(self.entries, 1)
            if isinstance(entry, Strange)
        )

    def identity(self, one: Member | Departure) -> str:
        """The key that never changes: team and member id (02.7). A name that is used again has another one."""
        return f"{one.name}@{self.name}#{one.joined_at}"

    def member(self, name: str) -> Member | None:
        """The member of exactly this name."""
        return next((member for member in self.members if member.name == name), None)

    def identified(self, identity: str) -> Member | None:
        """The member of this identity; None where it is no longer in the team (02.21)."""
        return next((member for member in self.members if self.identity(member) == identity), None)

    def departed(self, name: str) -> Departure | None:
        """Who was called so, in normal form, and went last; None also where a member is called so (07.22)."""
        form = normal_form(name)
        if any(normal_form(member.name) == form for member in self.members):
            return None
        return next((gone for gone in reversed(self.left) if normal_form(gone.name) == form), None)


# ── steps ────────────────────────────────────────────────────────────────────────────────────────


class Joined(NamedTuple):
    """Somebody joined.

    Attributes:
        team: with the new member.
        member: as it is in the team.
        asked: the name that it asked for, where it got a variant of it; else empty. It must be told (02.3).
        before: who had the file of this name before and went. What lies in that inbox is theirs, and is not handed to
            the new member (07.22).
    """

    team: Team
    member: Member
    asked: str
    before: tuple[Departure, ...]


def founded(name: str, at: int, *, lead_session_id: str, lead: Member | None = None) -> Team:
    """A team with its lead in it, which is not active before another one joins (07.22).

    Args:
        name: of the team.
        at: epoch milliseconds.
        lead_session_id: whose team it is.
        lead: what is known of the lead: where it works, its model; its name, id, type and session are those of a lead.

    Raises InvalidName for a name that can be no team's.
    """
    check_team_name(name)
    lead_agent_id = f"{LEAD}@{name}"
    first = replace(
        lead or Member(name=LEAD, pane="leader"),
        name=LEAD,
        joined_at=at,
        agent_id=lead_agent_id,
        type=LEAD,
        session_id=lead_session_id,
        evicted_at=None,
    )
    return Team(
        name=name,
        created_at=at,
        lead_agent_id=lead_agent_id,
        lead_session_id=lead_session_id,
        entries=(first,),
    )


def joined(team: Team, wanted: Member, at: int) -> Joined:
    """A member joins, under the name that it asks for or a variant of it: `-2`, `-3`, … (07.22).

    A name is taken where another entry has its normal form, so that nobody is mistaken for another, and no two inboxes
    are one file where case does not count.

    Args:
        team: the team as it is.
        wanted: the member; its time, id and eviction are set here.
        at: epoch milliseconds; a clock that went back makes no identity that somebody had.

    Raises InvalidName for a name that can be no member's; the lead does not join, it founds.
    """
    asked = check_member_name(wanted.name)
    forms = {normal_form(entry.name) for entry in team.entries}
    name = variant(asked, forms.__contains__) if normal_form(asked) in forms else asked
    before = tuple(gone for gone in team.left if gone.name.casefold() == name.casefold())
    member = replace(
        wanted,
        name=name,
        joined_at=max(at, *(gone.joined_at + 1 for gone in before)) if before else at,
        agent_id=f"{name}@{team.name}",
        evicted_at=None,
    )
    after = replace(team, entries=(*team.entries, member))
    return Joined(after, member, "" if name == asked else asked, before)


def without(team: Team, identity: str, at: int, why: Why = "left") -> Team | None:
    """A member left, and is remembered with the time (07.22). None where nobody has that identity, or the lead has.

    Further entries of its name go with it: none of them becomes a member by that.
    """
    member = team.identified(identity)
    if member is None or member.lead:
        return None
    gone = Departure(name=member.name, joined_at=member.joined_at, at=at, why=why)
    entries = tuple(entry for entry in team.entries if entry.name != member.name)
    return replace(team, entries=entries, left=(*team.left, gone)[-MAX_LEFT:])


def evicted(team: Team, identity: str, at: int) -> Team | None:
    """A member runs no more but stays one: a message rebuilds it (02.25). None where there is none to evict."""
    member = team.identified(identity)
    if member is None or member.lead or member.evicted_at is not None:
        return None
    return _with(team, member, replace(member, evicted_at=at, active=False))


def rebuilt(team: Team, identity: str) -> Team | None:
    """An evicted member runs again, the same one (02.25). None where nobody of that identity was evicted."""
    member = team.identified(identity)
    if member is None or member.evicted_at is None:
        return None
    return _with(team, member, replace(member, evicted_at=None, active=True))


def updated(team: Team, member: Member) -> Team | None:
    """Something else of a member changed: its pane, its mode, whether it is idle. None where it is in the team no more.

    Args:
        team: the team as it is.
        member: of the same name and time of joining as the one in the team.
    """
    present = team.identified(team.identity(member))
    return None if present is None else _with(team, present, member)


def taken_up(team: Team, running: Collection[str], at: int) -> Team:
    """The lead's session started again after a crash: what lived in its process has been evicted (07.22).

    Args:
        team: as the crash left it.
        running: identities of members that run all the same.
        at: epoch milliseconds.
    """
    for member in team.members:
        identity = team.identity(member)
        if member.in_process and identity not in running:
            team = evicted(team, identity, at) or team
    return team


def remembering(team: Team, before: Team, at: int) -> Team:
    """The team with a departure for each member that another program took out of the file without one (07.22).

    Args:
        team: as it is now.
        before: as it was seen last.
        at: epoch milliseconds at which it was seen to be gone.
    """
    known = {team.identity(one) for one in (*team.members, *team.left)}
    gone = tuple(
        Departure(name=member.name, joined_at=member.joined_at, at=at, why="vanished")
        for member in before.members
        if not member.lead and team.identity(member) not in known
    )
    return replace(team, left=(*team.left, *gone)[-MAX_LEFT:]) if gone else team


def _with(team: Team, old: Member, new: Member) -> Team:
    return replace(team, entries=tuple(new if entry is old else entry for entry in team.entries))


class Changes(NamedTuple):
    """What is different between two looks at a team, the members as they are now, or as they were.

    Attributes:
        joined: who is new; a name that is used again is a new member.
        left: who is gone.
        changed: who is the same and differs in something that is known here.
    """

    joined: tuple[Member, ...]
    left: tuple[Member, ...]
    changed: tuple[Member, ...]


def changes(before: Team | None, after: Team | None) -> Changes:
    """Compares two looks at one team; None: there was no team."""
    old = {} if before is None else {before.identity(member): member for member in before.members}
    new = {} if after is None else {after.identity(member): member for member in after.members}
    return Changes(
        tuple(member for identity, member in new.items() if identity not in old),
        tuple(member for identity, member in old.items() if identity not in new),
        tuple(member for identity, member in new.items() if old.get(identity, member) != member),
    )


def candidate(team: Team, member: Member, *, own: bool = False, address: str = "") -> Candidate:
    """A member as the resolution knows it (02.9).

    Args:
        team, member: who.
        own: it is the caller itself.
        address: where it is reached.
    """
    identity = team.identity(member)
    return Candidate(
        identity=identity,
        name=member.name,
        ref=ref_of(identity),
        kind="teammate",
        where=member.cwd,
        type=member.type,
        near=True,
        own=own,
        address=address,
        confirms="written",
        live=member.evicted_at is None,
    )
