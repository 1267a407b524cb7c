"""Who speaks in one conversation of a session: its main loop, or one of its agents (02.19).

A conversation has pins of its own, a turn of its own, and a kind of caller that the tools' rules ask for. What is
sent in it goes the way of `sending`, whoever speaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from postroom.agent import Agent, Observer
    from postroom.core import contract, loops
    from postroom.core.index import Resolved
    from postroom.core.listing import Row
    from postroom.core.message import Message, Origin, Receipt, Refusal
    from postroom.core.team import Team
    from postroom.recipients import Recipients


class Inside(Protocol):
    """PORT: whoever keeps the agents inside a session (chapter 06): `postroom.agents`, loaded by those who host any."""

    def deliver(
        self, voice: Voice, draft: contract.Draft, found: Resolved, msg_id: str | None
    ) -> Receipt | Refusal | Awaitable[Receipt | Refusal]:
        """Delivers one text to somebody inside the session, or refuses it. Nothing is awaited for a live one."""
        ...

    def came(self, message: Message) -> None:
        """A peer's message was accepted: it has its place in the main queue (06.3)."""
        ...

    def rows(self) -> Sequence[Row]:
        """The agents, for a listing (01.29)."""
        ...

    def by_token(self, token: str) -> Agent | Observer | None:
        """Whose token this is, an agent's or an observer's; None: nobody's here."""
        ...

    async def run(self, prompt: str, *, name: str | None = None, agent_type: str = "") -> str:
        """Runs an agent for a script (06.16); see `Session.run_agent`."""
        ...

    def apply(self) -> None:
        """The settings have changed (03.36)."""
        ...

    async def close(self) -> None:
        """The session ends: so do its agents."""
        ...


class Teammates(Protocol):
    """PORT: a session's place in a team (chapter 07): `postroom.teaming`, loaded by those who take part in one."""

    @property
    def active(self) -> bool:
        """Whether the team has a member besides its lead (07.22)."""
        ...

    @property
    def team(self) -> Team | None:
        """The team as it was seen last; None: there is none."""
        ...

    @property
    def over(self) -> bool:
        """Whether this place is none any more."""
        ...

    @property
    def enlisted(self) -> Mapping[str, object]:
        """The agents inside this session that are members: by their ids (07.9)."""
        ...

    async def deliver(
        self, voice: Voice, draft: contract.Draft, found: Resolved, msg_id: str | None
    ) -> Receipt | Refusal:
        """Writes a message or a structured record into a teammate's mailbox, or refuses it (07.3)."""
        ...

    def rows(self) -> Sequence[Row]:
        """The other members, for a listing (01.29)."""
        ...

    async def turn_ended(self, words: str = "") -> None:
        """The turn of this session has ended (07.20)."""
        ...

    async def close(self) -> None:
        """The session ends: it leaves the team (07.22)."""
        ...


class Voice:
    """One conversation, as whoever sends in it.

    Attributes:
        kind: the main conversation, an agent, or an outsider without a session.
        background: an agent that may write to `main` (06.8).
        recipients: whom names mean in it.
        turns: which chain its messages carry.
        origin: as whom its messages are shown inside this session.
        token: its own token in a hop chain inside this session (03.66).
        waiting: how many messages wait for it.
    """

    __slots__ = ("background", "kind", "origin", "recipients", "token", "turns", "waiting")

    def __init__(
        self,
        kind: Literal["main", "agent", "outsider"],
        recipients: Recipients,
        turns: loops.Turns,
        origin: Origin,
        waiting: Callable[[], int],
        *,
        background: bool = True,
        token: str = "",
    ) -> None:
        self.kind: Literal["main", "agent", "outsider"] = kind
        self.recipients = recipients
        self.turns = turns
        self.origin = origin
        self.waiting = waiting
        self.background = background
        self.token = token
