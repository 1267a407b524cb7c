"""Taking and giving up a place in a team: at a session's start, and by command (07.21, 07.22).

A session has one implicit team, whose lead it is. Its folder is made with the first member, by whoever joins; so a session
without members looks once a second whether there is one, by one `lstat`, and has nothing else of a team.

    attend(session, state)         as long as a session lives: takes up its place, or waits for a first member
    join(session, places, …)       becomes a member of another session's team
    leave(session)                 is none any more

One session takes part in one team: who has members of his own does not join another's.

How it fails: `BadUsage` with the next step for what cannot be joined; what writing the config raises. At a start nothing is
raised: it is a sentence in the session's problems.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from postroom.core.address import LEAD
from postroom.core.message import Refusal
from postroom.core.team import Joined, Member, founded, joined, taken_up, team_name
from postroom.errors import BadUsage, InvalidName, PostroomError
from postroom.state.locks import NotLocked
from postroom.state.teams import belongings, files_of, places_of, tasks_of

if TYPE_CHECKING:
    from postroom.call import Call
    from postroom.control import Control
    from postroom.core.team import Team
    from postroom.session import Session
    from postroom.state.team_files import TeamFiles
    from postroom.state.teams import Places
    from postroom.teaming import Teaming

__all__ = ["attend", "join", "leave"]

WAIT_SECONDS = 1.0
"""How often a session without a team looks for a first member: the most that one at rest may wake up (12.21)."""


async def attend(session: Session, state: str) -> None:
    """Takes up a session's place in a team, or waits for a first member of its own (07.22); as long as the session lives.

    Args:
        session: whose place it is.
        state: the state folder.
    """
    places = places_of(state)
    own = files_of(places, team_name(session.id), session.id)
    for one in await asyncio.to_thread(belongings, places, session.id):
        if not one.member.lead and is_free(session):
            _seated(session, places, one.team.name, one.member.name).begin()
            break
    while not session.closed:
        if is_free(session) and own.mark() is not None:
            await take_lead(session)
        await asyncio.sleep(WAIT_SECONDS)


def is_free(session: Session) -> bool:
    """Whether a session takes part in no team, and is not about to."""
    return session.place is None


def own_files(session: Session) -> TeamFiles:
    """The files of a session's own team (07.21). Raises BadUsage for a session in memory."""
    if session.folder is None:
        raise BadUsage("A session in memory has no team.", "Open it with `open_session`.")
    return files_of(places_of_session(session), team_name(session.id), session.id)


async def take_lead(session: Session) -> Teaming:
    """Takes the lead's place in a session's own team, as a crash may have left it (07.22). Once: not beside another."""
    seat = _seated(session, places_of_session(session), team_name(session.id), LEAD, session.id)

    def after_a_crash(team: Team | None) -> Team | None:
        return None if team is None else taken_up(team, (), session.now())

    try:
        if seat.files.mark() is not None:
            await asyncio.to_thread(seat.files.change, after_a_crash)
        await seat.look()
    except (PostroomError, NotLocked, OSError) as error:
        session.log(f"the team could not be taken up: {error}")
    seat.begin()
    return seat


def _seated(session: Session, places: Places, team: str, name: str, lead_session_id: str = "") -> Teaming:
    """Gives a session its place."""
    from postroom.teaming import Teaming

    headless = session.record.kind != "interactive"
    seat = Teaming(
        session,
        files_of(places, team, lead_session_id),
        tasks_of(places, team),
        name,
        headless=headless,
    )
    session.seat(seat)
    return seat


async def join(session: Session, places: Places, team: str, name: str | None = None) -> Teaming:
    """Has a session join another one's team, as a member (07.22).

    Args:
        session: who joins.
        places: where teams lie.
        team: the team's name, or the name of a session of ours whose implicit team is meant.
        name: what it asks to be called there; where somebody is called so it gets a variant. None: the session's name.

    Returns its place, whose `name` says what it is called. Raises BadUsage, InvalidName, and what writing raises.
    """
    if session.team is not None:
        raise BadUsage(
            f"This session takes part in the team {session.team.files.team} already.",
            "Run `postroom team leave` first; a lead cannot leave its members.",
        )
    lead = _lead_of(session, team)
    if lead is not None:
        team = team_name(lead)
    if team == team_name(session.id):
        raise BadUsage("That is this session's own team, whose lead it is.", "Join another one's.")
    if lead is not None and any(
        not one.member.lead for one in await asyncio.to_thread(belongings, places, lead)
    ):
        raise BadUsage(
            "That session is a member of another one's team, and leads none.", "Join the team that it is in."
        )
    files = files_of(places, team)
    wanted = Member(
        name=name or _member_name(session.name),
        cwd=session.record.cwd,
        mode=session.standing.mode,
        session_id=session.id,
        active=True,
    )
    done: list[Joined] = []

    def step(present: Team | None) -> Team | None:
        if present is None:
            if lead is None:
                return None
            present = founded(team, session.now(), lead_session_id=lead)
        done[:] = [joined(present, wanted, session.now())]
        return done[0].team

    await asyncio.to_thread(files.change, step)
    if not done:
        raise BadUsage(
            f"There is no team {team}, and no session here whose team it would be.",
            "Run `postroom list` to see the sessions; their names can be given for their teams.",
        )
    seat = _seated(session, places, team, done[0].member.name)
    try:
        if done[0].before:
            await _pass_over(seat)
        await seat.look()
    finally:  # a member it is, also where this look failed: the next one may do better
        seat.begin()
    return seat


async def _pass_over(seat: Teaming) -> None:
    """What lies in the inbox of a name that is used again was for somebody else: it is reported, not handed over (07.22)."""
    snapshot = await seat.mailbox.look()
    if snapshot.items:
        seat.session.found(
            f"{len(snapshot.items)} unread in the mailbox of {seat.name} were for a member that left, and were removed."
        )
        await seat.mailbox.drop([item.key for item in snapshot.items])


async def leave(session: Session) -> str:
    """Has a session leave the team of which it is a member; returns the team's name. Raises BadUsage, and what writing raises."""
    seat = session.team
    if seat is None:
        raise BadUsage("This session is in no team.", "Nothing is to be done.")
    if seat.lead:
        raise BadUsage(
            "The lead does not leave its team.", "End the session: its team ends with it, the tasks stay."
        )
    await seat.leave()
    session.seat(None)
    return seat.files.team


def _lead_of(session: Session, team: str) -> str | None:
    """The id of the live session whose implicit team is meant by that name."""
    for one in session.directory.index():
        if one.kind == "session" and one.local and team in (one.name, team_name(one.identity)):
            return one.identity
    return None


def _member_name(name: str) -> str:
    """A session's name as a member's: what a file name has no room for is left out (07.8)."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in name).strip("-")[:64]
    return kept or "member"


# ── by command ───────────────────────────────────────────────────────────────────────────────────


async def answer_join(control: Control, call: Call) -> None:
    """`team join --team NAME [--as NAME]` (07.22)."""
    args, session = call.args, control.session
    try:
        seat = await join(session, places_of_session(session), args.team, args.as_name)
    except (BadUsage, InvalidName) as error:
        return call.refused(Refusal(code=error.code, message=error.message, hint=error.hint))
    except NotLocked as error:
        return call.refuse("store_failed", f"The team could not be changed: {error}.", "Try again.")
    wished = args.as_name or _member_name(session.name)
    said = "" if seat.name == wished else f" {wished} is taken there."
    return call.answer(
        {"team": seat.files.team, "name": seat.name}, f"You are {seat.name} in {seat.files.team}.{said}\n"
    )


async def answer_leave(control: Control, call: Call) -> None:
    """`team leave` (07.22)."""
    try:
        team = await leave(control.session)
    except BadUsage as error:
        return call.refused(Refusal(code=error.code, message=error.message, hint=error.hint))
    except NotLocked as error:
        return call.refuse("store_failed", f"The team could not be changed: {error}.", "Try again.")
    return call.answer({"team": team}, f"You have left {team}.\n")


def places_of_session(session: Session) -> Places:
    """Where the teams lie of whom a session can be a member: in its own state folder."""
    assert session.folder is not None, "a session with a control socket has a folder"
    return places_of(os.path.dirname(os.path.dirname(session.folder)))
