"""What a session remembers of its agents: on disk, in its index, by their tokens (06.13, 02.14).

The part of `agents` that writes `agent.json` and the transcripts, shows an agent under its name to whoever is inside the
session, and knows which process acts for whom. It decides nothing about a life: it keeps what it is given.

Weak: a life is shown as it is also where it could not be written, and said in the log: a next life of the session finds
what was written before.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from postroom.agent import Agent
from postroom.ask import INSIDE
from postroom.core.address import check_name, normal_form, ref_of, split_ref
from postroom.core.index import Candidate
from postroom.core.listing import Row
from postroom.core.message import Receipt, Refusal
from postroom.errors import BadUsage, InvalidName, PostroomError
from postroom.state.transcripts import Transcript

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroom.agent import Observer
    from postroom.core.index import Index
    from postroom.core.runs import Life
    from postroom.core.transcript import Rebuilt
    from postroom.session import Session
    from postroom.state.agent_files import AgentFiles, MemoryAgentFiles


class Remembering:
    """The part of `Agents` that keeps them; see there."""

    if TYPE_CHECKING:
        session: Session
        _agents: dict[str, Agent]
        _files: AgentFiles | MemoryAgentFiles
        _index: Index
        _known: dict[str, Candidate]
        _left: bool
        _names: dict[str, str]
        _tokens: dict[bytes, Agent | Observer | str]
        _transcripts: bool

        def _agent(self, identity: str) -> Agent | str: ...

        def log(self, line: str) -> None: ...

    # ── names ─────────────────────────────────────────────────────────────────────────────────────

    def _taken(self, form: str) -> bool:
        """Whether a name would mean somebody here already: an agent by its name or its id, or the session itself."""
        return form in self._names or form == normal_form(self.session.name)

    def _name(self, life: Life) -> None:
        self._names[normal_form(life.name)] = life.id
        self._names.setdefault(normal_form(life.id), life.id)

    def _unname(self, life: Life) -> None:
        for form in (normal_form(life.name), normal_form(life.id)):
            if self._names.get(form) == life.id:
                del self._names[form]

    # ── in the index ───────────────────────────────────────────────────────────────────────────────

    def _show(self, candidate: Candidate) -> None:
        """Has an agent be found under its name, from inside the session alone (02.14)."""
        self._known[candidate.identity] = candidate
        self._index.add(candidate)

    def rows(self) -> list[Row]:
        """Every agent that can be written to, for a listing (01.29)."""
        return [row_of(one, self._agents.get(identity)) for identity, one in self._known.items()]

    # ── those that are processes of their own ────────────────────────────────────────────────────

    def token_for(self, who: Agent | Observer) -> str:
        """A new token, by which a process is known as this agent or observer."""
        token = INSIDE + secrets.token_hex(16)
        # By its id, so that a token keeps no evicted agent in memory.
        self._tokens[digest(token)] = who.id if isinstance(who, Agent) and not who.workflow else who
        return token

    def environment(self, token: str) -> dict[str, str]:
        """What a process gets in its environment that acts with this token. Raises BadUsage for a session in memory."""
        identity = self.session.identity
        if not identity:
            raise BadUsage(
                "No process can reach a session in memory.", "Open it with `open_session` for that."
            )
        return {**identity, "POSTROOM_TOKEN": token}

    def _forget_token(self, who: Agent | Observer) -> None:
        """Nobody acts for this one any more."""
        for key in [key for key, one in self._tokens.items() if one is who]:
            del self._tokens[key]

    def by_token(self, token: str) -> Agent | Observer | None:
        """Whose token this is; None: nobody's. Looked up by its hash, so that no time tells anything of it."""
        who = self._tokens.get(digest(token)) if token else None
        if isinstance(who, str):
            found = self._agent(who)
            return found if isinstance(found, Agent) else None
        return who

    # ── what is kept ─────────────────────────────────────────────────────────────────────────────

    def keep(self, agent: Agent, life: Life, *, sync: bool = True) -> None:
        """Writes down how an agent stands, and shows it. Raises StoreFailed, with nothing changed."""
        # Nothing is kept of an agent of a script, and nobody finds it (06.16). Once the session has ended its files
        # may be another process's.
        if agent.workflow or self._left:
            agent.life = life
            return
        self._files.write(life, sync=sync)
        was = agent.life
        agent.life = life
        agent.unwritten = False
        if agent.id not in self._known or was.state != life.state or was.name != life.name:
            self._show(candidate_of(life))

    def keep_anyhow(self, agent: Agent, life: Life) -> PostroomError | None:
        """The same for what is so whether or not it can be written: a next life then finds what was written before.

        Returns why it could not be written; None where it was.
        """
        try:
            self.keep(agent, life)
        except PostroomError as error:
            self.log(f"how {agent.id} stands could not be written down: {error.code}")
            agent.life = life
            agent.unwritten = True
            self._show(candidate_of(life))
            return error
        return None

    def kept(self, identity: str) -> tuple[Life, Rebuilt]:
        """What lies on disk of an agent, checked for a resume. Raises Unusable. May be called in a thread."""
        life = self._files.read(identity)
        return life, self._files.check_transcript(life)

    def transcript_of(self, agent: Agent) -> Transcript | None:
        """The transcript that Postroom keeps for an agent; None where it keeps none."""
        path = agent.life.transcript
        if agent.workflow or path is None or path != self._files.transcript_path(agent.id):
            return None
        header = {
            "session": self.session.id,
            "agent": agent.id,
            "name": agent.name,
            "agent_type": agent.type,
        }
        return Transcript(path, header=header, clock=self.session.now, problem=self.session.log)

    def record_send(self, agent: Agent, raw: Mapping[str, object], answer: Receipt | Refusal) -> None:
        """Writes a send that pinned something new into the agent's transcript, from which its pins come back (02.17)."""
        if isinstance(answer, Refusal) or answer.pin is None or not self._transcripts:
            return
        to = str(raw.get("to"))
        if agent.recorded.get(to) == answer.pin.identity:  # it is a normal form itself, as most names are
            return
        split = split_ref(to)
        # By its normal form: a ref moves the pin of the name before it, there and back (02.18).
        form = normal_form(to if split is None else split[0] or answer.pin.name)
        if agent.recorded.get(form) != answer.pin.identity and agent.transcript is not None:
            agent.recorded[form] = answer.pin.identity
            agent.transcript.sent(to, answer)


def derived(agent_type: str, identity: str) -> str:
    """A name for an agent that was given none: its type, and two digits of its id."""
    digits = ref_of(identity)[:2]
    kept = "".join(c if c.isalnum() else "-" for c in agent_type).strip("-")[:61].strip("-")
    try:
        return check_name(f"{kept or 'agent'}-{digits}")
    except InvalidName:  # letters of which a name cannot be made
        return f"agent-{digits}"


def candidate_of(life: Life) -> Candidate:
    """An agent as it can be addressed inside its session."""
    return Candidate(
        identity=life.id,
        name=life.name,
        ref=ref_of(life.id),
        kind="agent",
        former=life.former,
        type=life.type,
        near=True,
        live=life.state == "live",
    )


def row_of(candidate: Candidate, agent: Agent | None) -> Row:
    """An agent as a listing shows it (01.29)."""
    state = "stopped" if not candidate.live else "busy"
    if agent is not None and candidate.live and agent.resting:
        state = "idle"
    return Row(
        identity=candidate.identity,
        name=candidate.name,
        kind="agent",
        state=state,
        type=candidate.type,
        seen_at=0 if agent is None else agent.seen_at,
        confirms="accepted",
    )


def digest(token: str) -> bytes:
    """A token as it is kept."""
    return hashlib.sha256(token.encode(errors="replace")).digest()
