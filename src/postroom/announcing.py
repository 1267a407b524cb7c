"""What is said inside a session beside messages: how runs ended, what was lost, what observers saw (06.11, 06.14).

The part of `agents` that puts task notifications, notices of what was lost, and observers' reports into the lists of
those whom they concern.

A notification is owed until its owner's loop has confirmed it: it is on disk with the agent's life, and a restart tells
it again if it was not. What an agent that owns agents is told is in its list alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from postroom.agent import Agent, Observer
from postroom.core import runs
from postroom.core.address import shown
from postroom.core.contract import code_of
from postroom.core.loops import repeat_of
from postroom.core.message import Origin, Party, Receipt, Refusal
from postroom.core.queues import Entry, Mark, progress_of
from postroom.core.refusals import refusal
from postroom.core.report import validate_report
from postroom.delivering import once_of
from postroom.errors import BadUsage, PostroomError
from postroom.state.agent_files import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from weakref import WeakValueDictionary

    from postroom.core.loops import Guard
    from postroom.core.message import Message, TaskNotification
    from postroom.core.runs import Life
    from postroom.lifecycle import HookKind
    from postroom.mainline import MainLoop
    from postroom.session import Session
    from postroom.state.agent_files import AgentFiles, MemoryAgentFiles

OFF = Refusal(
    code="denied_by_settings",
    message="The host of this session has turned this observer's reports off.",
    hint="Go on without reporting.",
)


class Announcing:
    """The part of `Agents` that tells owners, senders and the observed; see there."""

    if TYPE_CHECKING:
        session: Session
        main: MainLoop
        _agents: dict[str, Agent]
        _answered: dict[str, Receipt]
        _files: AgentFiles | MemoryAgentFiles
        _let_go: WeakValueDictionary[str, Agent]
        _main_party: Party

        def _check_open(self) -> None: ...

        def _agent(self, identity: str) -> Agent | str: ...

        def _came_of(self, agent: Agent) -> tuple[str, ...]: ...

        def _guard_of(self, who: str) -> Guard: ...

        def keep(self, agent: Agent, life: Life, *, sync: bool = True) -> None: ...

        def keep_anyhow(self, agent: Agent, life: Life) -> PostroomError | None: ...

        def log(self, line: str) -> None: ...

        def tell(
            self, what: HookKind, agent: Agent | None, *, status: str = "", msg_id: str = "", count: int = 0
        ) -> None: ...

    def _notify(
        self, owner: Agent | None, notification: TaskNotification, chain: tuple[str, ...] = ()
    ) -> None:
        """Puts a task notification into its owner's queue (06.11); `chain` is that of what began the run (03.66)."""
        origin = Origin(
            kind="agent",
            identity=notification.task_id,
            verified=True,
            name=notification.name,
            transport="queue",
        )
        entry = Entry(
            self.session.new_id(),
            notification.result or "",
            origin,
            priority="later" if notification.status == "running" else "next",
            at=notification.at,
            hop_chain=chain,
            task=notification,
        )
        if owner is not None and owner.state == "live" and owner.pending.append(entry) != "full":
            owner.ring()
            self.tell("message_queued", owner, msg_id=entry.msg_id)
            if notification.status != "running":
                self._told([entry])  # that owner's list is all the memory there is of it
        elif self.main.put(entry):
            self.tell("message_queued", None, msg_id=entry.msg_id)
        else:
            self.log("the main queue is full: a task notification waits on disk")

    def progress(self, agent: Agent, text: str) -> None:
        """How far a run has come; see `Agent.progress` (06.11). Nothing for an agent that is not live."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadUsage(f"Progress is a text, and this is {type(text).__name__}.", "Give a few words.")
        if agent.state == "live" and agent.background:
            said = runs.progress(agent.life, text, self.session.now())
            self._notify(agent.owner, said, self._came_of(agent))

    def _drained(self, entries: Sequence[Entry], count: int) -> None:
        """The main loop has this: so many messages, peers' among them, and these of this process."""
        if count:
            self.tell("message_drained", None, count=count)
        self._told(entries)

    def _told(self, entries: Sequence[Entry]) -> None:
        """The owner's loop has these notifications: a restart does not tell them again."""
        for entry in entries:
            task = entry.task
            if task is None or task.status == "running":
                continue
            agent = self._agents.get(task.task_id) or self._let_go.get(task.task_id)
            try:
                if agent is not None:
                    self.keep(agent, runs.told(agent.life, task.run), sync=False)
                else:  # it was evicted, and need not come back for this
                    self._files.write(runs.told(self._files.read(task.task_id), task.run), sync=False)
            except Unusable:
                pass  # nothing of it is told again
            except PostroomError as error:  # a restart will tell it again
                self.log(f"that {task.task_id} was told of could not be written down: {error.code}")

    def came(self, message: Message) -> None:
        """A peer's message was accepted; see the port `Inside`."""
        self.main.put(Mark(message.origin.identity, message.msg_id, message.priority))
        self.tell("message_queued", None, msg_id=message.msg_id)

    def dropped(
        self, agent: Agent, entries: Sequence[Entry], why: Refusal, awaited: frozenset[str] = frozenset()
    ) -> None:
        """These will not be read: it is journaled, and whoever sent one is told.

        Args:
            agent: whose list they were in.
            entries: what was in it.
            why: as a send to it would be refused now.
            awaited: the ids of those whose senders still wait for an answer, which tells them.

        Sent again, it is no repeat: it was never read (03.60).
        """
        if entries:
            agent.guard.forget_repeats()
        for entry in entries:
            if entry.task is not None:  # how a run ended that this agent owns: the main conversation hears it
                if entry.task.status != "running" and not self.main.put(entry):
                    self._owe_again(entry.task)
                continue
            self.session.journal(entry.msg_id, "failed", why.code, shown(agent.name, agent.ref))
            self._answered.pop(once_of(entry.origin.identity, agent.id, entry.msg_id), None)
            if entry.msg_id not in awaited and entry.origin.kind in ("coordinator", "agent"):
                self._tell_lost(agent, entry, why)

    def _owe_again(self, task: TaskNotification) -> None:
        """Nobody has room for the end of a run: it is owed, and told after a restart."""
        self.log("the main queue is full: a task notification waits on disk")
        child = self._agents.get(task.task_id)
        if child is not None:
            self.keep_anyhow(child, replace(child.life, owed=(*child.life.owed, task)[-runs.OWED_MAX :]))

    def gone_by(self, agent: Agent, entries: Sequence[Entry]) -> None:
        """These concerned a run that has ended, and nobody is resumed for them."""
        for entry in entries:
            if not progress_of(entry):
                self.session.journal(entry.msg_id, "failed", "peer_unavailable", shown(agent.name, agent.ref))

    def _tell_lost(self, agent: Agent, entry: Entry, why: Refusal) -> None:
        """A notice to the sender of a message that was queued and is lost; one whose run has ended is told nothing."""
        origin = Origin(kind="system", identity="system", verified=True, name="system", transport="queue")
        notice = Entry(
            self.session.new_id(),
            f"{why.message} Your message {entry.msg_id} to it was not read.",
            origin,
            at=self.session.now(),
            in_reply_to=entry.msg_id,
        )
        if entry.origin.kind == "coordinator":
            self.main.put(notice)
            return
        sender = self._agents.get(entry.origin.identity)
        if sender is not None and sender.state == "live" and sender is not agent:
            sender.pending.append(notice)
            sender.ring()

    # ── observers ────────────────────────────────────────────────────────────────────────────────

    def report(self, observer: Observer, raw: Mapping[str, object]) -> Receipt | Refusal:
        """Takes a report to whoever is watched (01.32); see `Observer.report`."""
        self._check_open()
        said = validate_report(raw, observer=True, denied=self.session.standing.settings.denied)
        if isinstance(said, Refusal):
            return said
        if not observer.on:
            return OFF
        agent, now = observer.watched, self.session.now()
        name = "main" if agent is None else agent.name
        if agent is not None and agent.state != "live":
            return refusal("peer_unavailable", name=name)
        # An observer writes by itself too: the guard in front of the list holds it like anybody else (03.57).
        guard = self._guard_of("main") if agent is None else agent.guard
        if reason := guard.judge(observer.id, repeat_of(said.text), (), "", now, keep=True):
            return refusal(code_of(reason) or "rate_limited", name=name)
        entry = Entry(self.session.new_id(), said.text, observer.origin, at=now, severity=said.severity)
        if agent is None:
            taken = self.main.put(entry)
        else:
            taken = agent.pending.append(entry) != "full"
            agent.ring()
        if not taken:
            guard.forget_repeats()
            return refusal("inbox_full", name=name)
        self.tell("message_queued", agent, msg_id=entry.msg_id)
        return Receipt(
            status="queued",
            msg_id=entry.msg_id,
            to=self._main_party if agent is None else Party(name=name, ref=agent.ref, kind="agent"),
            note=f"In {name}'s list in this process, not on disk. Not read yet; it cannot be answered.",
        )
