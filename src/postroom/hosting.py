"""Hosting: what a session is to the agents inside it, and to whoever lists them (chapter 06).

The agents themselves are kept by `agents`, which a session knows by its port alone: a session that hosts none loads
nothing of it.
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import TYPE_CHECKING, cast

from postroom.core.listing import DEFAULT_ROWS, Listing, listing
from postroom.errors import BadUsage
from postroom.recipients import Recipients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from postroom.commits import Bell, Commits
    from postroom.core import contract, loops
    from postroom.core.index import Resolved
    from postroom.core.message import Message, Pin, Receipt, Refusal
    from postroom.core.transcript import Rebuilt
    from postroom.directory import Directory
    from postroom.origins import Origins
    from postroom.sending import Sending
    from postroom.state.keeping import Store
    from postroom.teaming import Teaming
    from postroom.voice import Inside, Teammates, Voice

NO_HOST = "This session hosts no agents."
HOST_FIRST = "Make an `Agents` of it first."


class Hosting:
    """The part of a session that agents inside it rest on; see `Session`.

    Attributes:
        folder: the session's folder; None for a session that keeps nothing on disk.
        identity: what a command that runs inside the session gets in its environment (10.8).
    """

    if TYPE_CHECKING:
        directory: Directory
        store: Store
        _bell: Bell
        _clock: Callable[[], int]
        _commits: Commits
        _ids: Callable[[], str]
        _origins: Origins
        _sending: Sending
        _turns: loops.Turns

        @property
        def id(self) -> str: ...

        @property
        def name(self) -> str: ...

        def _check_open(self) -> None: ...

    _telling_lead: set[asyncio.Task[None]]
    _reseated: Callable[[], None] | None = None
    folder: str | None = None
    identity: Mapping[str, str] = {}

    @property
    def inside(self) -> Inside | None:
        """The agents that this session hosts; None where it hosts none."""
        return self._sending.inside

    def host(self, inside: Inside) -> Voice:
        """Takes whoever keeps this session's agents, once; returns the main conversation's voice.

        Raises BadUsage where somebody keeps them already, and SessionClosed.
        """
        self._check_open()
        if self._sending.inside is not None:
            raise BadUsage("This session hosts agents already.", "Use the `Agents` that it has.")
        self._sending.inside = inside
        return self._sending.main

    def unhost(self) -> None:
        """Takes back `host`: what was taken could not begin."""
        self._sending.inside = None
        self._bell.rang = None

    def on_mail(self, heard: Callable[[], None]) -> None:
        """Has this called whenever something may have come."""
        self._bell.rang = heard

    def took_chains(self, chains: Sequence[tuple[str, ...]]) -> None:
        """The loop was handed messages with these chains: what it sends from now on was caused by them (03.66)."""
        self._turns.took(chains, self._clock())

    def new_id(self) -> str:
        """A new id of a message."""
        return self._ids()

    def recipients_for(self, conversation: str, *, main: Resolved | None, keeps: bool = True) -> Recipients:
        """Whom the names mean in the conversation of an agent inside this session (02.19).

        Args:
            conversation: the agent's id.
            main: this session's main conversation, where the agent may write to it (06.8).
            keeps: whether its pins outlive it.
        """
        return Recipients(
            self.store,
            self._commits,
            self.directory,
            conversation,
            self._origins.doubt,
            conversation,
            main,
            self.id,
            keeps=keeps,
        )

    # ── in a team ────────────────────────────────────────────────────────────────────────────────

    @property
    def team(self) -> Teaming | None:
        """This session's place in a team; None where it takes part in none (chapter 07)."""
        seat = cast("Teaming | None", self._sending.team)
        return seat if seat is not None and seat.team is not None else None

    @property
    def seated(self) -> bool:
        """Whether it has a place in a team, which may have ended meanwhile."""
        return self._sending.team is not None

    @property
    def place(self) -> Teaming | None:
        """Its place in a team that is not over, also where there is no team yet; None: it has none."""
        seat = cast("Teaming | None", self._sending.team)
        return None if seat is None or seat.over else seat

    def seat(self, seat: Teammates | None) -> None:
        """Takes a place in a team, or gives it up with None."""
        self._sending.team = seat
        if self._reseated is not None:
            self._reseated()

    def on_team(self, heard: Callable[[], None]) -> None:
        """Has this called whenever this session takes a place in a team, or gives it up."""
        self._reseated = heard

    def turn_over(self, words: str) -> None:
        """A turn has ended: a teammate tells its lead (07.20)."""
        if self._sending.team is not None:
            telling = asyncio.get_running_loop().create_task(self._sending.team.turn_ended(words))
            self._telling_lead.add(telling)
            telling.add_done_callback(self._telling_lead.discard)

    def take_in(self, messages: Sequence[Message]) -> None:
        """Keeps what a mailbox brought, each once (07.5, 11.5); it is on disk when this returns.

        Raises StoreFailed, with nothing taken, and SessionClosed.
        """
        self._check_open()
        new: list[Message] = []
        with self._commits.at_once():
            for message in messages:
                if self.store.settled(message.origin.identity, message.msg_id) is None:
                    body = sha256(message.text.encode(errors="replace")).hexdigest()
                    self.store.add(message, body=body, rung="team")
                    new.append(message)
        for message in new:
            if self._sending.inside is not None:
                self._sending.inside.came(message)
        self._bell.ring()

    def sending_to(self, msg_id: str, identity: str, name: str) -> None:
        """Journals that a message is about to leave to a teammate (11.2)."""
        with self._commits.noting():
            self.store.sending(msg_id, identity, name, self._clock())

    def went(self, msg_id: str, state: str, detail: str) -> None:
        """Journals what became of it."""
        with self._commits.noting():
            self.store.outcome(msg_id, state, self._clock(), detail)

    @property
    def own_token(self) -> str:
        """The token of the main conversation in a hop chain: one, whoever it writes to (03.66)."""
        return self._sending.token or self._sending.token_of(self.id)

    def cause(self, draft: contract.Draft, voice: Voice) -> tuple[str, ...]:
        """The chain of what a message inside this session answers or came of (03.66)."""
        return self._sending.cause(draft, voice)

    def answered(self, msg_id: str) -> bool:
        """Somebody inside this session answers that message; False where none of that id is known (01.5, 11.1)."""
        if not self._sending.knows(msg_id):
            return False
        with self._commits.noting():
            self._sending.mark_answered(msg_id, self._clock())
        return True

    def turn_chain(self) -> tuple[str, ...]:
        """The chain of the main conversation's turn; empty where no peer caused it (03.66)."""
        return self._turns.chain(self._clock())

    def chain_token(self, identity: str) -> str:
        """The token of somebody inside this session in a hop chain (03.66)."""
        return self._sending.token_of(identity)

    async def send_as(
        self, voice: Voice, raw: Mapping[str, object], *, msg_id: str | None = None
    ) -> Receipt | Refusal:
        """Sends what somebody inside this session says: `raw` is the input of SendMessage (chapter 01)."""
        self._check_open()
        return await self._sending.send(raw, voice=voice, name=self.name, msg_id=msg_id, priority="next")

    def pinned(self, voice: Voice, to: str, found: Resolved, now: int) -> Pin | None:
        """The pin that a send inside this session made or confirmed (02.17)."""
        pin = None if found.renames_pin else voice.recipients.pin_of(to, found)
        if pin is None:
            with self._commits.noting():
                pin = voice.recipients.pinned(to, found, now)
        return pin

    def journal(self, msg_id: str, state: str, detail: str, peer: str = "") -> None:
        """Writes a step of a message inside this session into the journal (11.1)."""
        with self._commits.noting():
            self.store.note(msg_id, state, self._clock(), detail, peer=peer)

    def restore_pins(self, past: Rebuilt) -> None:
        """Goes on with what names meant in an earlier conversation, in place of what they meant here (02.17).

        Args:
            past: a transcript of the main conversation, as `postroom.state.transcripts.read` reads it back.

        Raises SessionClosed.
        """
        self._check_open()
        recipients = self._sending.main.recipients
        recipients.restore(past.pins)
        with self._commits.noting():
            recipients.keep(self._clock())

    async def run_agent(self, prompt: str, *, name: str | None = None, agent_type: str = "") -> str:
        """Runs an agent for a script and returns its final text, to the script and to nobody else (06.16).

        The agent has no team and no mailbox, and nobody can address it.

        Args:
            prompt: what it is to do.
            name, agent_type: what it is called, for the host's own eyes.

        Raises BadUsage where this session hosts no agents or was given no `run`, and whatever the host's `run` raises.
        """
        self._check_open()
        if self._sending.inside is None:
            raise BadUsage(NO_HOST, HOST_FIRST)
        return await self._sending.inside.run(prompt, name=name, agent_type=agent_type)

    def listing(
        self, text: str | None = None, *, kind: str | None = None, limit: int = DEFAULT_ROWS
    ) -> Listing:
        """Who can be written to from here, this session's own row apart (01.29).

        Args:
            text: only rows whose name, former name or folder has this in it.
            kind: only rows of this kind: `session`, `agent` or `teammate`.
            limit: at most so many rows; what it leaves out is counted.
        """
        self._check_open()
        return self.listing_for(self.id, text, kind=kind, limit=limit)

    def listing_for(self, own: str, text: str | None, *, kind: str | None, limit: int) -> Listing:
        """The same for somebody inside the session: `own` is whose row comes first."""
        found = self.directory.rows()
        agents = () if self._sending.inside is None else self._sending.inside.rows()
        mates = () if self._sending.team is None else self._sending.team.rows()
        return listing(
            (*found.rows, *agents, *mates),
            own=own,
            text=text,
            kind=kind,
            limit=limit,
            unchecked=found.unchecked,
            sign=self.directory.sign,
        )
