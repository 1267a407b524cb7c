"""Delivering inside a session: to an agent's list, to the main queue, to a stopped agent by a resume (06.4, 06.8).

The part of `agents` that `sending` calls for a target inside the session. A live recipient costs no task and no await:
what is sent stands in its list when the call returns.

The same loop guard that stands before a session's inbox stands before each list here, with limits of the settings
(03.57): what agents say to each other comes to rest too. What is said travels with the chain of what caused it.

Weak: a message that was queued is not journaled; one that began a resume, or was lost, is.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from postroom.core import contract, loops, route
from postroom.core.address import shown
from postroom.core.message import Origin, Party, Receipt, Refusal
from postroom.core.queues import Entry
from postroom.core.refusals import refusal
from postroom.resuming import Flight
from postroom.sending import UNKNOWN_REPLY
from postroom.voice import Voice

if TYPE_CHECKING:
    from collections import Counter, OrderedDict
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from postroom.agent import Agent
    from postroom.core.index import Resolved
    from postroom.core.runs import AgentState
    from postroom.lifecycle import HookKind
    from postroom.mainline import MainLoop
    from postroom.session import Session

NOTE = "In {name}'s list in this process, not on disk. Not read yet; a reply comes as its own message."
"""What `queued` means of an agent (06.3)."""

RESUMED = "{name} was stopped and has been started again with this message, which is in this process, not on disk. Not read yet."
RETURNED = "{name} was stopped and has been started again with this message; {ended}."
ENDED: Mapping[AgentState, str] = {
    "completed": "it has completed its run",
    "failed": "its run has failed",
    "killed": "its run was ended before it was done",
}
"""How the run ended that a send has waited for, where background work is off (06.12)."""

REMEMBERED = 10_000
"""Ids that their senders chose and that are answered alike a second time (11.5), and ids that an answer may name."""


def once_of(sender: str, target: str, msg_id: str) -> str:
    """By what a message is known that its sender may send again (11.5): an id is one sender's, and for one target."""
    return f"{sender} {target} {msg_id}"


class Delivering:
    """The part of `Agents` that delivers; see there."""

    if TYPE_CHECKING:
        session: Session
        main: MainLoop
        main_target: Resolved
        background: bool
        resume: Callable[..., object] | None
        _answered: dict[str, Receipt]
        _asked: dict[str, tuple[asyncio.Task[Receipt | Refusal], Flight, str]]
        _asking: Counter[str]
        _unheard: set[str]
        _chains: OrderedDict[str, tuple[str, ...]]
        _guards: dict[str, loops.Guard]
        _main_party: Party

        def _check_open(self) -> None: ...

        def _agent(self, identity: str) -> Agent | str: ...

        def _resume(self, agent: Agent) -> None: ...

        def tell(
            self, what: HookKind, agent: Agent | None, *, status: str = "", msg_id: str = "", count: int = 0
        ) -> None: ...

    def deliver(
        self, voice: Voice, draft: contract.Draft, found: Resolved, msg_id: str | None
    ) -> Receipt | Refusal | Awaitable[Receipt | Refusal]:
        """Delivers one text inside the session (06.4); see the port `Inside`."""
        self._check_open()
        text, target = draft.text, found.candidate
        if text is None:
            return refusal("message_missing", problem="`message` is empty", spare="")
        once = None if msg_id is None else once_of(voice.origin.identity, target.identity, msg_id)
        if once is not None and (before := self._answered.get(once)) is not None:
            return before
        if once is not None and once in self._asked:
            return self._awaited(once)
        to_main = target.identity == self.session.id
        agent = None if to_main else self._agent(target.identity)
        if isinstance(agent, str):
            return refusal("resume_failed", name=target.name, reason=agent)
        way = route.MAIN if agent is None else route.PENDING if agent.takes else self._route(agent)
        if isinstance(way, Refusal):
            return way
        if len(text) > contract.MAX_SENT and (too_large := contract.too_large(len(text))):
            return too_large
        now = self.session.now()
        chain = self._chain(voice, draft, now)
        origin = voice.origin
        if voice.kind == "main" and agent is not None and not agent.background:
            # It may not write to the main conversation (06.8), so that one is shown by its name.
            origin = replace(voice.origin, name=self.session.name, one_way=True)
        if reason := self._guarded(agent, voice, text, chain, now):
            return refusal(contract.code_of(reason) or "rate_limited", name=target.name)
        entry = Entry(
            msg_id or self.session.new_id(),
            text,
            origin,
            True,
            "next",
            now,
            draft.summary,
            draft.in_reply_to,
            chain,
        )
        if agent is None:
            if not self.main.put(entry):
                return self._not_taken(None)
            self._deliverable(entry)
            self.tell("message_queued", None, msg_id=entry.msg_id)
            receipt = self._receipt(voice, draft, found, entry, "queued", NOTE.format(name="main"))
            if once is not None:
                self._remember(once, receipt)
            return receipt
        appended = agent.pending.append(entry)
        if appended == "full":
            return self._not_taken(agent)
        self._deliverable(entry)
        if agent.flight is None and isinstance(way, route.Resume):
            self._resume(agent)
        self.tell("message_queued", agent, msg_id=entry.msg_id)
        if agent.flight is not None:
            agent.flight.expect(entry.msg_id)
            answer = self._resumed(agent, agent.flight, voice, draft, found, entry)
            return answer if once is None else self._once(once, answer, agent.flight, entry.msg_id)
        agent.ring()
        receipt = self._receipt(voice, draft, found, entry, "queued", NOTE.format(name=agent.name))
        if once is not None:
            self._remember(once, receipt)
        return receipt

    def can_take(self, agent: Agent) -> bool:
        """Whether what is handed to an agent now is read: it is live, or may be resumed."""
        return agent.takes or isinstance(self._route(agent), route.Resume)

    def hand(self, agent: Agent, entry: Entry) -> None:
        """Puts what its mailbox brought into an agent's list; one whose run has ended is resumed for it (02.25, 07.9)."""
        self._agent(agent.id)  # it may have been evicted
        agent.pending.append(entry)
        self._deliverable(entry)
        if agent.takes:
            agent.ring()
            self.tell("message_queued", agent, msg_id=entry.msg_id)
        elif agent.flight is None and self.can_take(agent):
            self._resume(agent)

    def _route(self, agent: Agent) -> route.Route:
        return route.route(
            route.Recipient(
                kind="agent",
                state=agent.state,
                stopped_by_user=agent.life.stopped_by_user,
                resuming=agent.flight is not None,
                can_resume=self.resume is not None,
                name=agent.name,
            )
        )

    async def _resumed(
        self,
        agent: Agent,
        flight: Flight,
        voice: Voice,
        draft: contract.Draft,
        found: Resolved,
        entry: Entry,
    ) -> Receipt | Refusal:
        """Waits until the resume that a message began or joined has come to something (02.27)."""
        refused = await flight.joined(entry.msg_id, told=entry.msg_id not in self._unheard)
        if refused is not None:
            return Refusal(code=refused.code, message=refused.message, hint=refused.hint, msg_id=entry.msg_id)
        self.session.journal(entry.msg_id, "resumed", f"run {agent.run}", shown(agent.name, agent.ref))
        if self.background:
            return self._receipt(voice, draft, found, entry, "resumed", RESUMED.format(name=agent.name))
        assert flight.ended is not None, "it has begun"
        state, result = await asyncio.shield(flight.ended)
        again = agent.flight
        waits = any(one.msg_id == entry.msg_id for one in agent.pending.peek())
        if again is not None and (
            waits or again.holds(entry.msg_id)
        ):  # that run had not read it: the next does
            return await self._resumed(agent, again, voice, draft, found, entry)
        ended = f"{ENDED[state]}{'' if result else ', and has left no text'}"
        note = RETURNED.format(name=agent.name, ended=ended)
        return self._receipt(voice, draft, found, entry, "resumed", note, result)

    def _once(
        self, once: str, answer: Coroutine[None, None, Receipt | Refusal], flight: Flight, msg_id: str
    ) -> Coroutine[None, None, Receipt | Refusal]:
        """The answer to a message whose sender chose its id, and may ask again before there is one (11.5)."""

        def settle(task: asyncio.Task[Receipt | Refusal]) -> None:
            self._asked.pop(once, None)
            self._unheard.discard(msg_id)
            if (
                not task.cancelled()
                and task.exception() is None
                and isinstance(said := task.result(), Receipt)
            ):
                self._remember(once, said)

        under_way = asyncio.get_running_loop().create_task(answer)
        self._asked[once] = under_way, flight, msg_id
        under_way.add_done_callback(settle)
        return self._awaited(once)

    async def _awaited(self, once: str) -> Receipt | Refusal:
        """Waits for that answer. When nobody does any more, a message that is lost is told of by a notice (02.27)."""
        under_way, flight, msg_id = self._asked[once]
        self._asking[once] += 1
        try:
            return await asyncio.shield(under_way)
        finally:
            self._asking[once] -= 1
            if not self._asking[once]:
                del self._asking[once]
                if not under_way.done():
                    self._unheard.add(msg_id)
                    flight.left(msg_id)

    def _receipt(
        self,
        voice: Voice,
        draft: contract.Draft,
        found: Resolved,
        entry: Entry,
        status: Literal["queued", "resumed"],
        note: str,
        result: str | None = None,
    ) -> Receipt:
        target = found.candidate
        inside = target.kind == "agent"
        warnings = (*draft.warnings, *found.warnings)
        answered = draft.in_reply_to
        if answered and answered not in self._chains and not self.session.answered(answered):
            warnings += (UNKNOWN_REPLY.format(msg_id=answered),)
        return Receipt(
            status=status,
            msg_id=entry.msg_id,
            to=Party(name=target.name, ref=target.ref, kind="agent") if inside else self._main_party,
            note=note,
            pin=self.session.pinned(voice, draft.to, found, entry.at) if inside else None,
            waiting=voice.waiting(),
            warnings=warnings,
            result=result,
        )

    def _deliverable(self, entry: Entry) -> None:
        """Remembers a message of which an answer may speak, and the chain that the answer goes on (01.5, 03.66)."""
        chains = self._chains
        chains[entry.msg_id] = entry.hop_chain
        if len(chains) > REMEMBERED:
            chains.popitem(last=False)

    def _remember(self, once: str, receipt: Receipt) -> None:
        self._answered[once] = receipt
        if len(self._answered) > REMEMBERED:
            del self._answered[next(iter(self._answered))]

    def _chain(self, voice: Voice, draft: contract.Draft, now: int) -> tuple[str, ...]:
        """The chain of what a message answers or its sender's turn was caused by, and the sender's own token (03.66)."""
        if draft.in_reply_to is None:
            chain = voice.turns.chain(now)
        else:
            chain = self.session.cause(draft, voice)
            answered = self._chains.get(draft.in_reply_to, ())
            if len(answered) >= len(chain):
                chain = answered
        return (*chain, voice.token or self.session.own_token)

    def _caused(self, agent: Agent, owner: Agent | None) -> None:
        """A new agent goes on with the chain of the turn in which it was started (03.66)."""
        now = self.session.now()
        chain = self.session.turn_chain() if owner is None else owner.turns.chain(now)
        if chain:
            own = self.session.own_token if owner is None else owner.chain_token
            agent.turns.took([(*chain, own)], now)

    def _came_of(self, agent: Agent) -> tuple[str, ...]:
        """The chain that the end of a run goes on, which its owner hears: that of what the run was about (03.66).

        Without the owner's own token at its end. To begin a run and to hear of its end is one step, not a round that
        comes closer to its limit: how often it has its agents work is the host's affair.
        """
        chain = agent.turns.chain(self.session.now()) if agent.has_turn else ()
        own = self.session.own_token if agent.owner is None else agent.owner.chain_token
        return chain[:-1] if chain and chain[-1] == own else chain

    def _guarded(
        self, agent: Agent | None, voice: Voice, text: str, chain: tuple[str, ...], now: int
    ) -> str | None:
        """Why the loop guard in front of the recipient drops a message; None where it passes (03.57).

        The main conversation is its agents' owner: how often it says what to them is its host's affair, and only what goes
        around is stopped.
        """
        guard = self._guard_of("main") if agent is None else agent.guard
        own = self.session.own_token if agent is None else agent.chain_token
        if voice.kind == "main":
            return guard.around(chain, own)
        return guard.judge(voice.origin.identity, loops.repeat_of(text), chain, own, now, keep=True)

    def _not_taken(self, agent: Agent | None) -> Refusal:
        """There was no room for what the guard has let pass: it is no repeat when it comes again (03.60)."""
        (self._guard_of("main") if agent is None else agent.guard).forget_repeats()
        return refusal("inbox_full", name="main" if agent is None else agent.name)

    def _guard_of(self, who: str) -> loops.Guard:
        return self._guards.get(who) or self._guards.setdefault(
            who, loops.Guard(self.session.standing.limits)
        )

    def voice_of(self, agent: Agent) -> Voice:
        """An agent's own conversation (02.19)."""
        mayor = self.main_target if agent.background and not agent.workflow else None
        return Voice(
            "agent",
            self.session.recipients_for(agent.id, main=mayor, keeps=not agent.workflow),
            agent.turns,
            Origin(
                kind="agent",
                identity=agent.id,
                verified=True,
                name=agent.name,
                transport="queue",
                one_way=agent.workflow,  # an answer would go to a namesake
            ),
            lambda: len(agent.pending),
            background=mayor is not None,
            token=agent.chain_token,
        )

    def chain_token(self, identity: str) -> str:
        """The token of an agent in a hop chain."""
        return self.session.chain_token(identity)
