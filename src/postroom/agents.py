"""The agents inside a session: who they are, how they are steered, resumed, watched and heard of (chapter 06).

For a program that runs its own agent loops. It starts agents, drains their lists and the main queue at its loops'
boundaries, and says how runs end; Postroom keeps the rest and never calls a model (06.1). One object does it: `Agents`,
made of an open session, in whose event loop everything here happens; `MainLoop.prompt` alone may be called by any thread.

SENDING: `deliver` is what `sending` calls for a target inside the session. `core.route` says what becomes of it: into a
live agent's list, or the main queue, at once and without a task; to a stopped one by a resume (`resuming`).

ENDING: `finish` writes down how a run ended, tells its owner once, and resumes the agent where something was sent to it
that its loop has not drained.

KEEPING: `agent.json` in the session's folder holds each agent's life (06.13). What a session that was killed left live is
killed, which its next life is told once.

Weak: the lists are in memory, and the receipts say so. A file of an agent is written when its life changes, and synced when
it ends: after a loss of power, not of the process, the file may be of the run before.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, OrderedDict
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from postroom.agent import Agent, Observer
from postroom.announcing import Announcing
from postroom.core import loops, route, runs
from postroom.core.address import RESERVED, check_name, normal_form, ref_of, shown, variant
from postroom.core.index import Candidate, Resolved
from postroom.core.message import Origin, Party, Receipt, Refusal
from postroom.core.queues import Entry, Mark, begins_a_run, progress_of
from postroom.core.refusals import refusal
from postroom.delivering import Delivering
from postroom.errors import BadUsage, PostroomError, SessionClosed
from postroom.lifecycle import Hooks, Lifecycle, LifecycleEvent
from postroom.mainline import MainLoop
from postroom.outcome import NOTHING, Outcome, path_text
from postroom.remembering import Remembering, candidate_of, derived
from postroom.resuming import RESUME_SECONDS, Flight
from postroom.scripting import Scripting
from postroom.state.agent_files import AgentFiles, MemoryAgentFiles, Unusable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from postroom.batch import Batch
    from postroom.core.message import RunStatus
    from postroom.core.runs import Life
    from postroom.lifecycle import HookKind
    from postroom.session import Session

__all__ = ["Agents"]


KEPT_GUARDS = 256
"""Guards of agents that were evicted, as many as a session's own guard knows senders (03.63)."""


class Agents(Delivering, Announcing, Remembering, Scripting):
    """The agents of one session, of which it is the only keeper.

    Args:
        session: an open session that hosts none yet.
        resume: starts a stopped agent's next run with these messages and returns, within `start_seconds`. A plain
            function is called in a thread. None: stopped agents stay stopped.
        run: runs an agent for `run_agent`: given the agent and the prompt, returns its final text.
        wake: called in the session's loop, once, when something is queued for a main loop that has gone idle (06.3).
        guard: says why an agent may not be resumed, None where it may; what raises has not allowed it (06.13).
        hooks: what is told of the boundaries (06.15).
        background: whether agents run in the background. If not, a send to a stopped one waits for the run that it starts
            and returns its final text (06.12).
        transcripts: whether Postroom keeps a transcript for agents whose host names none.
        start_seconds: how long `resume` has.

    Raises BadUsage where the session hosts agents already, StoreFailed and UnfitPath where their folder cannot be used.

        agents = Agents(session, resume=resume)
        worker = await agents.start("worker")
        async with worker.running() as run:
            while not done:
                request += worker.drain().texts
                ...
            run.result = "The tests pass."
    """

    def __init__(
        self,
        session: Session,
        *,
        resume: Callable[[Agent, Batch], object] | None = None,
        run: Callable[[Agent, str], Awaitable[str]] | None = None,
        wake: Callable[[], object] | None = None,
        guard: Callable[[Agent], object] | None = None,
        hooks: Hooks | None = None,
        background: bool = True,
        transcripts: bool = True,
        start_seconds: float = RESUME_SECONDS,
    ) -> None:
        self.session = session
        self.resume = resume
        self.guard = guard
        self.start_seconds = start_seconds
        self.background = background
        self.closed = False
        self.context = copy_context()
        self._left = False
        self._run = run
        self._transcripts = transcripts
        self._lifecycle = Lifecycle(hooks, session.log)
        self._agents: dict[str, Agent] = {}
        self._let_go: WeakValueDictionary[str, Agent] = WeakValueDictionary()
        self._names: dict[str, str] = {}
        self._owners: dict[str, str] = {}
        self._tokens: dict[bytes, Agent | Observer | str] = {}
        self._answered: dict[str, Receipt] = {}
        self._asked: dict[str, tuple[asyncio.Task[Receipt | Refusal], Flight, str]] = {}
        self._asking: Counter[str] = Counter()
        self._unheard: set[str] = set()
        self._scripts: set[asyncio.Task[str]] = set()
        self._chains: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._minded: set[asyncio.Task[object]] = set()
        self._guards: dict[str, loops.Guard] = {}
        self._files: AgentFiles | MemoryAgentFiles = (
            MemoryAgentFiles(session.id)
            if session.folder is None
            else AgentFiles(f"{session.folder}/agents", session.id)
        )
        self._main = session.host(self)
        self.main = MainLoop(session, wake, self._drained, self.is_over, self._prompted)
        self._index = session.directory.own_index()
        self._known: dict[str, Candidate] = {}
        self._main_party = Party(name="main", ref=ref_of(session.id))
        self.main_target = Resolved(
            Candidate(identity=session.id, name="main", ref=ref_of(session.id), near=True)
        )
        self._main.waiting = lambda: self.main.waiting
        self._main.origin = Origin(
            kind="coordinator", identity=session.id, verified=True, name=session.name, transport="queue"
        )
        session.on_mail(self.main.nudge)
        try:
            self._found()
        except BaseException:
            session.unhost()
            raise

    def _found(self) -> None:
        """Takes up what an earlier life of this session left (06.13)."""
        lives, flawed = self._files.found()
        now = self.session.now()
        for life in lives:
            killed = runs.crashed(life, now, notify=life.background and self.background)
            if killed is not None:
                life = killed
                self._files.write(life)
            self._name(life)
            self._show(candidate_of(life))
            for notification in life.owed:
                self._notify(None, notification)
        for identity, reason in flawed:
            if not identity:  # it is no agent's: nobody is called so
                self.session.found(f"{reason}.")
                continue
            name = self._files.name_of(identity) or identity
            self._names.setdefault(normal_form(name), identity)  # nobody else gets it (02.26)
            self.session.found(f"The agent {shown(name, ref_of(identity))} cannot be resumed: {reason}.")
            self._show(
                Candidate(
                    identity=identity,
                    name=name,
                    ref=ref_of(identity),
                    kind="agent",
                    near=True,
                    live=False,
                )
            )

    # ── who there is ─────────────────────────────────────────────────────────────────────────────

    async def start(
        self,
        name: str | None = None,
        *,
        agent_type: str = "",
        agent_id: str | None = None,
        background: bool = True,
        transcript: str | None = None,
        owner: Agent | None = None,
    ) -> Agent:
        """Registers an agent whose first run begins now.

        Args:
            name: what it is to be called inside the session; where another one here is called so, a variant (02.3).
                None: a name made of its type.
            agent_type: what sort of agent it is.
            agent_id: an identity of the host's own: 1 to 80 letters, digits, `-` and `_`; None: a new one.
            background: it reports its end by a notification; else to whoever runs it alone (06.11). One that a message
                resumes is a background agent from then on, as nobody else waits for its end.
            transcript: the path of the host's own transcript of it; None: Postroom keeps one.
            owner: the agent that hears of its end; None: the main conversation.

        Returns the Agent, whose `name` says what it is called. Raises InvalidName, BadUsage for an identity that is in use
        or cannot be one, or another argument that is not what it should be, Veto where a `task_created` hook says so,
        StoreFailed.
        """
        if owner is not None and (type(owner) is not Agent or owner.host is not self):
            raise BadUsage(
                "The owner of an agent is an agent of the same session.", "Give what `get` returns."
            )
        path = path_text("transcript", transcript)
        return await self._start(
            name,
            agent_type,
            agent_id,
            bool(background),
            None if path is None else os.path.abspath(path),
            owner,
            workflow=False,
        )

    async def _start(
        self,
        name: str | None,
        agent_type: str,
        agent_id: str | None,
        background: bool,
        transcript: str | None,
        owner: Agent | None,
        *,
        workflow: bool,
    ) -> Agent:
        self._check_open()
        for what, text in (("name", name), ("agent_type", agent_type), ("agent_id", agent_id)):
            if text is not None and not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise BadUsage(f"`{what}` is a text, and this is {type(text).__name__}.", "Give a text.")
        identity = self.session.new_id() if agent_id is None else self._own_id(agent_id)
        wished = check_name(name) if name is not None else derived(agent_type, identity)
        called = (
            wished
            if workflow
            else variant(wished, self._taken)
            if self._taken(normal_form(wished))
            else wished
        )
        life = runs.Life(
            id=identity,
            name=called,
            session_id=self.session.id,
            type=agent_type,
            transcript=transcript,
            background=background,
            started_at=self.session.now(),
        )
        agent = Agent(self, life, workflow=workflow, owner=owner)
        self._caused(agent, owner)
        if not workflow:
            self._name(life)
        try:
            await self.ask("task_created", agent, run=1)
            self._check_open()
            if not workflow:  # not before: nobody stops or finds what may not be
                self._agents[identity] = agent
                if self._transcripts and transcript is None:
                    life = replace(life, transcript=self._files.transcript_path(identity))
                self.keep(agent, life, sync=False)
                if agent.transcript is not None:
                    agent.transcript.event(
                        "agent_started", id=identity, name=called, agent_type=agent_type, run=1
                    )
        except BaseException:
            self._agents.pop(identity, None)
            if self._known.pop(identity, None) is not None:
                self._index.remove(identity, local=True)
            if not workflow:
                self._unname(life)
                self._files.discard(identity)
            raise
        self.tell("agent_started", agent)
        return agent

    def _own_id(self, identity: str) -> str:
        """An identity of the host's own, which nobody here is or is called (02.9). Raises BadUsage."""
        if not runs.is_agent_id(identity):
            raise BadUsage(
                "An agent's id has 1 to 80 letters, digits, - and _.", "Leave it out to get a new one."
            )
        if identity in self._agents or identity in self._known or self._index.get(identity) is not None:
            raise BadUsage("There is an agent of this id already.", "Send to it, or leave the id out.")
        if self._taken(form := normal_form(identity)) or form in RESERVED:
            raise BadUsage("Somebody here is called as this id.", "Take another id, or leave it out.")
        return identity

    def get(self, who: str) -> Agent | None:
        """The agent of this name or id, live or stopped; None where there is none that can be used."""
        if not isinstance(who, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadUsage(
                f"An agent is found by its name or id, and this is {type(who).__name__}.", "Give a text."
            )
        found = self._agent(who if who in self._known else self._names.get(normal_form(who), who))
        return found if isinstance(found, Agent) else None

    def _agent(self, identity: str) -> Agent | str:
        """An agent of this session, read anew where it was evicted; else why it cannot be used."""
        agent = self._agents.get(identity)
        if agent is not None:
            return agent
        try:
            life = self._files.read(identity)
        except Unusable as flaw:
            return flaw.reason
        # What has to be read runs nowhere in this process: its file was mended since the session was opened.
        life = runs.crashed(life, self.session.now(), notify=life.background and self.background) or life
        # Whoever still holds the object holds the agent: a batch, an observer, a token. There is never a second one.
        agent = self._let_go.pop(identity, None)
        if agent is None:
            owner = self._agent(self._owners[identity]) if identity in self._owners else None
            agent = Agent(self, life, owner=owner if isinstance(owner, Agent) else None)
            agent.guard_again(self._guards.pop(identity, None))
        else:
            agent.life = life
        self._agents[identity] = agent
        return agent

    def _own(self, agent: Agent) -> Agent:
        """An agent that a host names, taken up again where it was evicted. Raises BadUsage for what is none of these."""
        if type(agent) is not Agent or agent.host is not self:
            raise BadUsage("That is no agent of this session.", "Give what `start` or `get` returned.")
        if not agent.workflow:
            self._agent(agent.id)
        return agent

    def __iter__(self) -> Iterator[Agent]:
        """Those that are live."""
        return iter([agent for agent in self._agents.values() if agent.state == "live"])

    def __len__(self) -> int:
        """How many are live."""
        return sum(agent.state == "live" for agent in self._agents.values())

    # ── the end of a run ─────────────────────────────────────────────────────────────────────────

    async def finish(self, agent: Agent, run: int, status: RunStatus, said: Outcome = NOTHING) -> bool:
        """How one run of an agent ended; see `Agent.finish`. Once for each run: False where it has ended already."""
        if agent.state != "live" or agent.run != run:
            return False
        if agent.flight is not None:
            agent.flight.said()  # what ends has begun
        if status == "completed":
            await self.ask("task_completed", agent, status=status)
        life = runs.finished(
            agent.life,
            run,
            status,
            self.session.now(),
            result=said.result,
            usage=said.usage,
            output_path=said.output_path,
            worktree=said.worktree,
            notify=agent.background,
        )
        if life is None:
            return False
        self._ended(agent, life, said.result)
        return True

    def _ended(self, agent: Agent, life: Life, result: str | None) -> PostroomError | None:
        """A run has ended: written down first, then told. It has ended also where it could not be written down."""
        failed = self.keep_anyhow(agent, life)
        chain = self._came_of(agent)
        if agent.transcript is not None:
            agent.transcript.event("agent_stopped", id=agent.id, run=life.runs, status=life.state)
        agent.run_ended(result)
        if agent.background and life.owed and life.owed[-1].run == life.runs:
            self._notify(agent.owner, life.owed[-1], chain)
        self.tell("agent_stopped", agent, status=life.state)
        if agent.flight is None and len(agent.pending):
            self._go_on(agent)
        return failed

    def give_back(self, agent: Agent, entries: Sequence[Entry]) -> None:
        """Puts back what a drain handed over, to the front; where its run has ended, as if it had not been drained."""
        if not agent.workflow:
            self._agent(agent.id)  # it may have been evicted meanwhile
        agent.pending.put_back([entry for entry in entries if not self.is_over(entry)])
        agent.ring()
        if agent.state != "live" and agent.flight is None and len(agent.pending) and not self.closed:
            self._go_on(agent)

    def apply(self) -> None:
        """The settings have changed: their limits are those of each guard from now on (03.36)."""
        limits = self.session.standing.limits
        kept = [agent.guard for agent in (*self._agents.values(), *self._let_go.values()) if agent.has_guard]
        for guard in (*self._guards.values(), *kept):
            guard.limits = limits

    def _prompted(self, msg_id: str) -> None:
        """The user's words wait for the main loop."""
        self.tell("message_queued", None, msg_id=msg_id)

    def is_over(self, entry: Entry | Mark) -> bool:
        """Whether it tells how far a run has come that has ended by now: nobody reads that any more (06.11)."""
        if not (task_id := progress_of(entry)) or not isinstance(entry, Entry) or entry.task is None:
            return False
        agent = self._agents.get(task_id)
        return agent is None or agent.state != "live" or agent.run != entry.task.run

    def _go_on(self, agent: Agent) -> None:
        """What was sent to the run and not drained by it: it is a message to a stopped agent now (06.5)."""
        if not any(map(begins_a_run, agent.pending.peek())):
            self.gone_by(agent, agent.pending.drain())
            return
        way = self._route(agent)
        if self._agents.get(agent.id) is not agent:  # a script's, or one that cannot be read any more
            way = refusal("resume_failed", name=agent.name, reason="its run has ended")
        if isinstance(way, route.Resume):
            self._resume(agent)
        elif isinstance(way, Refusal):
            self.dropped(agent, agent.pending.drain(), way)

    def _resume(self, agent: Agent) -> None:
        """Begins a resume of an agent (06.13)."""
        agent.flight = Flight(self, agent)

    async def stop(self, agent: Agent, *, by_user: bool = True) -> None:
        """Stops an agent: its run was killed, and its task, where it is known, is cancelled.

        Args:
            agent: which.
            by_user: the user has stopped it: nothing resumes it until `restart` (02.24).

        What waits for it is dropped, and whoever sent it is told. Raises StoreFailed where it was stopped and that could not
        be written down: a next life of the session would not know of it.
        """
        agent = self._own(agent)
        why = (
            refusal("stopped_by_user", name=agent.name)
            if by_user
            else refusal("resume_failed", name=agent.name, reason="it was stopped before it had read this")
        )
        was_live = agent.state == "live" and agent.flight is None
        if agent.flight is not None:
            agent.flight.cancel(why)
        life = runs.stopped(agent.life, self.session.now(), by_user=by_user, notify=agent.background)
        left = agent.pending.drain()
        failed = self._ended(agent, life, None) if was_live else self.keep_anyhow(agent, life)
        agent.cancel_run()
        self.dropped(agent, left, why)
        if failed is not None:
            raise failed

    def restart(self, agent: Agent) -> None:
        """Lifts the user's stop: the next message resumes the agent (06.13). For the owner alone; no tool does it."""
        self._check_open()
        agent = self._own(agent)
        self.keep(agent, runs.restarted(agent.life))

    def evict(self, agent: Agent) -> None:
        """Lets go of a stopped agent; a message to it is answered from what lies on disk (02.25).

        Raises BadUsage for one that is live, and StoreFailed for one whose end is not on disk and cannot be written.
        """
        agent = self._own(agent)
        if agent.state == "live" or agent.flight is not None:
            raise BadUsage(f"{agent.name} is live.", "Stop it first.")
        if agent.unwritten:
            self.keep(agent, agent.life)
        if agent.owner is not None:
            self._owners[agent.id] = agent.owner.id
        if agent.has_guard:  # to let go of it gives no full bucket
            self._guards[agent.id] = agent.guard
            while len(self._guards) > KEPT_GUARDS:
                self._guards.pop(next(one for one in self._guards if one != "main"))
        if self._agents.pop(agent.id, None) is not None:
            self._let_go[agent.id] = agent

    def observe(self, watched: Agent | None = None, *, name: str = "observer") -> Observer:
        """Makes an observer of the main conversation, or of one agent (06.14). Nobody can address it.

        Args:
            watched: the agent; None: the main conversation.
            name: what its reports are signed with.
        """
        self._check_open()
        if watched is not None:
            watched = self._own(watched)
        return Observer(self, self.session.new_id(), check_name(name), watched)

    def mind(self, work: asyncio.Task[object], agent: Agent) -> None:
        """Holds on to a `resume` that goes on after its flight is over; what it raises is logged."""

        def ended(task: asyncio.Task[object]) -> None:
            self._minded.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self.log(f"what resumed {agent.id} raised {type(error).__name__}")

        self._minded.add(work)
        work.add_done_callback(ended)

    def started(self, agent: Agent) -> None:
        """A resume went well: the next run is under way."""
        agent.seen_at = self.session.now()
        if agent.transcript is not None:
            agent.transcript.event("agent_started", id=agent.id, name=agent.name, run=agent.run)
        self.tell("agent_started", agent)

    # ── hooks ────────────────────────────────────────────────────────────────────────────────────

    def tell(
        self, what: HookKind, agent: Agent | None, *, status: str = "", msg_id: str = "", count: int = 0
    ) -> None:
        """Tells the host's hook of a boundary; delays nothing (06.15)."""
        if what in self._lifecycle.heard:
            self._lifecycle.tell(self._event(what, agent, status=status, msg_id=msg_id, count=count))

    async def ask(self, what: HookKind, agent: Agent, *, run: int | None = None, status: str = "") -> None:
        """Asks a hook that may veto (06.15). Raises Veto."""
        if what in self._lifecycle.heard:
            await self._lifecycle.ask(self._event(what, agent, status=status, run=run))

    def _event(
        self,
        what: HookKind,
        agent: Agent | None,
        *,
        status: str = "",
        msg_id: str = "",
        count: int = 0,
        run: int | None = None,
    ) -> LifecycleEvent:
        return LifecycleEvent(
            kind=what,
            agent="" if agent is None else agent.id,
            name="main" if agent is None else agent.name,
            run=run if run is not None else 0 if agent is None else agent.run,
            status=status,
            msg_id=msg_id,
            count=count,
            at=self.session.now(),
        )

    def log(self, line: str) -> None:
        """Writes a line into the session's log."""
        self.session.log(line)

    # ── the end ──────────────────────────────────────────────────────────────────────────────────

    async def close(self) -> None:
        """The session ends: resumes under way fail, and what runs is killed, which a next life is told once."""
        if self.closed:
            return
        self.closed = True
        now = self.session.now()
        for agent in list(self._agents.values()):
            if agent.flight is not None:
                agent.flight.cancel(refusal("resume_failed", name=agent.name, reason="its session has ended"))
            killed = runs.crashed(agent.life, now, notify=agent.background)
            if killed is not None and agent.id in self._known:
                self.keep_anyhow(agent, killed)
                if agent.transcript is not None:
                    agent.transcript.event("agent_stopped", id=agent.id, run=killed.runs, status=killed.state)
                agent.run_ended(None)
                agent.cancel_run()
                self.tell("agent_stopped", agent, status=killed.state)
        for script in self._scripts:
            script.cancel()
        self._left = True
        self.main.close()
        await self._lifecycle.close()

    def _check_open(self) -> None:
        if self.closed and not self.session.closed:
            raise SessionClosed(
                f"The agents of {self.session.name} have been closed.",
                "Open the session again for others.",
            )
        if self.closed:
            raise SessionClosed(
                f"The session {self.session.name} has ended.", "Open it again with its session id."
            )

    def __repr__(self) -> str:
        return f"<Agents of {self.session.name}: {len(self)} live>"
