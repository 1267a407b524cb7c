"""Teams of sessions that run as processes of their own: a member by name, whom nobody plays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from postroom.core.team import Member, founded, joined, team_name, without
from postroom.state.teams import files_of, places_of
from postroom.transports.mailbox import Mailbox

if TYPE_CHECKING:
    from postroom.core.mailfile import Entry
    from postroom.core.team import Team
    from tests.desk import Desk

NOW = 1_796_033_702_123


class Mates:
    """The team of a session: the files, as any program of this user can write them.

    Args:
        desk: where the session lives.
        session_id: of the lead.
    """

    def __init__(self, desk: Desk, session_id: str) -> None:
        self.id = session_id
        self.places = places_of(str(desk.folder / "state"))
        self.files = files_of(self.places, team_name(session_id), session_id)

    def add(self, name: str, **fields: Any) -> None:
        """A member joins; its lead sees that within a second."""

        def step(team: Team | None) -> Team:
            present = team or founded(self.files.team, NOW, lead_session_id=self.id)
            return joined(present, Member(name=name, **fields), NOW).team

        self.files.change(step)

    def remove(self, name: str) -> None:
        """A member leaves."""

        def step(team: Team | None) -> Team | None:
            member = None if team is None else team.member(name)
            assert team is not None
            assert member is not None
            return without(team, team.identity(member), NOW)

        self.files.change(step)

    def entries(self, name: str) -> list[Entry]:
        """What lies in a member's mailbox."""
        return list(Mailbox(self.files.inboxes, name, shared=False).snapshot().entries)
