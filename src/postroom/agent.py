"""One agent inside a session, as its host holds it: its life, its pending list, and what it may do (chapter 06).

A host runs the agent's loop; at each boundary the loop drains what was sent to the agent meanwhile. Postroom keeps who
the agent is and which run it is in, and says once how each run ended. It never calls a model, and it never changes a
request that is under way.

Every method belongs to the session's event loop. The list of what waits is not on disk: it is lost with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING
from weakref import ref

from postroom.batch import Batch
from postroom.commits import Bell, deadline_in
from postroom.core import loops
from postroom.core.address import ref_of, shown
from postroom.core.listing import DEFAULT_ROWS
from postroom.core.message import Origin, Refusal
from postroom.core.queues import Pending
from postroom.errors import AgentStopped, BadUsage
from postroom.outcome import ending, outcome

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from os import PathLike

    from postroom.agents import Agents
    from postroom.core.index import Resolved
    from postroom.core.listing import Listing
    from postroom.core.message import Receipt, RunStatus
    from postroom.core.queues import Entry
    from postroom.core.runs import AgentState, Life
    from postroom.resuming import Flight
    from postroom.state.transcripts import Transcript
    from postroom.voice import Voice

__all__ = ["Agent", "Observer", "Run"]

BEGUN: ContextVar[Mapping[str, int]] = ContextVar("postroom_runs", default=MappingProxyType({}))
"""For which run of which agent this task was begun: by `resume`, or inside `running`. What it begins inherits that."""

SILENCED = Refusal(
    code="stopped_by_user",
    message="The user has stopped this agent: what it does counts as cancelled, and nothing is sent.",
    hint="End here. Its owner may restart it.",
)
"""The answer to an agent whose loop goes on after it was stopped (02.24)."""


class Run:
    """One run of an agent, while it is under way.

    Attributes:
        number: which run of the agent, from 1 (06.11).
        result: the final text; for whoever owns the agent, and for nobody else.
        usage: what it used, such as `input_tokens`.
        output_path: where its output lies.
        worktree: the working tree that it leaves behind.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.result: str | None = None
        self.usage: Mapping[str, int | float] | None = None
        self.output_path: str | PathLike[str] | None = None
        self.worktree: str | PathLike[str] | None = None

    def __repr__(self) -> str:
        return f"<Run {self.number}>"


class Agent:
    """One agent; `Agents.start` makes it.

    Attributes:
        host: the `Agents` that keeps it.
        life: who it is and where it stands; what `agent.json` holds (06.13).
        unwritten: what its life is now could not be written down.
        workflow: started by `run_agent`: nobody can address it (06.16).
        owner: the agent that it reports to; None: the main conversation.
        recorded: the pins that its transcript holds: normal form of a name → identity.
        seen_at: its last sign of life: its loop drained, or its run began or ended; epoch milliseconds.
    """

    __slots__ = (
        "__weakref__",
        "_bell",
        "_chain",
        "_ended",
        "_guard",
        "_inside",
        "_speaker",
        "_task",
        "_token",
        "_transcript",
        "_turns",
        "_voice",
        "_waiters",
        "flight",
        "host",
        "life",
        "owner",
        "pending",
        "recorded",
        "ref",
        "seen_at",
        "unwritten",
        "workflow",
    )

    def __init__(
        self, host: Agents, life: Life, *, workflow: bool = False, owner: Agent | None = None
    ) -> None:
        self.life = life
        self.ref = ref_of(life.id)
        self.workflow = workflow
        self.owner = owner
        self.pending = Pending()
        self.recorded: dict[str, str] = {}
        self.seen_at = life.ended_at or life.started_at
        self.flight: Flight | None = None
        self.unwritten = False
        self.host = host
        self._bell: Bell | None = None
        self._ended: asyncio.Future[tuple[AgentState, str | None]] | None = None
        self._guard: loops.Guard | None = None
        self._task: asyncio.Task[object] | None = None
        self._inside = 0
        self._speaker: ref[asyncio.Task[object]] | None = None
        self._token = ""
        self._chain = ""
        self._transcript: Transcript | None = None
        self._turns: loops.Turns | None = None
        self._voice: Voice | None = None
        self._waiters = 0

    # ── what it is ───────────────────────────────────────────────────────────────────────────────

    @property
    def id(self) -> str:
        """Its identity, which no rename and no resume changes (02.7)."""
        return self.life.id

    @property
    def name(self) -> str:
        """The name under which it is addressed inside the session."""
        return self.life.name

    @property
    def type(self) -> str:
        """What sort of agent it is; a hint, never an address (02.14)."""
        return self.life.type

    @property
    def state(self) -> AgentState:
        """`live`, or how its last run ended."""
        return self.life.state

    @property
    def run(self) -> int:
        """The number of its present run, or of its last one (06.11)."""
        return self.life.runs

    @property
    def background(self) -> bool:
        """It reports its end by a notification, and may write to `main` (06.8, 06.11). With background work off none does."""
        return self.life.background and self.host.background

    @property
    def stopped_by_user(self) -> bool:
        """Nothing resumes it until its owner calls `restart` (02.24)."""
        return self.life.stopped_by_user

    @property
    def takes(self) -> bool:
        """Whether what is sent to it goes into its list at once: `core.route`'s answer to almost every send, in brief."""
        life = self.life
        return life.state == "live" and self.flight is None and not life.stopped_by_user

    @property
    def waiting(self) -> int:
        """How many messages wait for its next boundary."""
        return len(self.pending)

    @property
    def transcript(self) -> Transcript | None:
        """The transcript that Postroom keeps for it, to which the host adds its turns; None where the host has its own."""
        if self._transcript is None:
            self._transcript = self.host.transcript_of(self)
        return self._transcript

    def __repr__(self) -> str:
        state = f"{self.state}, stopped by the user" if self.stopped_by_user else self.state
        return f"<Agent {shown(self.name, self.ref)} {state}, run {self.run}, {self.waiting} waiting>"

    # ── steering ─────────────────────────────────────────────────────────────────────────────────

    def drain(self, limit: int | None = None, *, run_number: int | None = None) -> Batch:
        """Hands over all that waits, at a boundary of the agent's loop, and clears it: one atomic step (06.5).

        Args:
            limit: at most so many, the oldest; for a loop that can take no more at once.
            run_number: as for `running`, for a loop that does not use that: of another run's nothing is handed over.
        """
        host = self.host
        # What a resume was begun for is handed over by the resume; and what waits for a run is not for what is left of
        # an earlier one.
        if self.flight is not None or self._is_of_another_run() or run_number not in (None, self.run):
            return Batch()
        entries = [entry for entry in self.pending.drain(limit) if not host.is_over(entry)]
        self.seen_at = host.session.now()
        if not entries:
            return Batch()
        self.took(entries)
        host.tell("message_drained", self, count=len(entries))
        return Batch(entries, ids=host.session.new_id, release=lambda: host.give_back(self, entries))

    def took(self, entries: Sequence[Entry]) -> None:
        """The loop has these: what it sends from now on was caused by them (03.66)."""
        chains = [entry.hop_chain for entry in entries if entry.hop_chain]
        if chains:
            self.turns.took(chains, self.host.session.now())

    def peek(self) -> tuple[Entry, ...]:
        """What waits, in order; nothing is taken."""
        return tuple(self.pending.peek())

    async def wait(self, timeout: float | None = None) -> bool:
        """Waits until something is there to drain.

        Args:
            timeout: seconds; None waits for ever.

        Returns False when the time ran out, or the agent's run or its session ended.
        """
        deadline = deadline_in(timeout)
        while self.state == "live" and not self.host.closed and not self._is_of_another_run():
            if self.flight is None and len(self.pending):
                return True
            if self._bell is None:
                self._bell = Bell()
            self._waiters += 1
            if self._speaker is None or self._speaker() in (None, asyncio.current_task()):
                self.turn_over()  # nobody else acts on what this loop was told
            try:
                if not await self._bell.heard(deadline):
                    return False
            finally:
                self._waiters -= 1
        return False

    @property
    def resting(self) -> bool:
        """Whether its loop waits for something to come."""
        return self._waiters > 0

    def ring(self) -> None:
        """Whoever waits for this agent looks again."""
        if self._bell is not None:
            self._bell.ring()

    # ── sending ──────────────────────────────────────────────────────────────────────────────────

    @property
    def voice(self) -> Voice:
        """The agent's own conversation: its pins, its turn, its kind of caller (02.19)."""
        if self._voice is None:
            self._voice = self.host.voice_of(self)
        return self._voice

    @property
    def turns(self) -> loops.Turns:
        """Which chain its messages carry (03.66)."""
        if self._turns is None:
            self._turns = loops.Turns()
            self._turns.began(self.host.session.now())
        return self._turns

    @property
    def has_turn(self) -> bool:
        """Whether there is anything that its messages could go on."""
        return self._turns is not None

    def turn_over(self) -> None:
        """Its loop has nothing more to do about what it was told: what it sends next has another cause (03.66).

        Waiting says so, and so does the end of its run; a boundary at which nothing was there does not. A loop that
        never waits says it by this, before what its own timer or tool has it send.
        """
        if self._turns is not None:
            self._turns.began(self.host.session.now())

    @property
    def has_guard(self) -> bool:
        """Whether anybody has written to it."""
        return self._guard is not None

    def guard_again(self, guard: loops.Guard | None) -> None:
        """Goes on with the guard that it had before it was evicted; None: it had none."""
        self._guard = guard

    @property
    def guard(self) -> loops.Guard:
        """The loop guard in front of its pending list (03.57)."""
        if self._guard is None:
            self._guard = loops.Guard(self.host.session.standing.limits)
        return self._guard

    @property
    def chain_token(self) -> str:
        """Its own token in a hop chain (03.66)."""
        if not self._chain:
            self._chain = self.host.chain_token(self.id)
        return self._chain

    async def send(
        self, to: str, text: str, *, summary: str | None = None, in_reply_to: str | None = None
    ) -> Receipt | Refusal:
        """Sends one message as this agent: to another agent, to `main`, or to a session.

        Args:
            to: a name, `name [ref]`, an agent's id, `main`, or the `from` of a message (01.2).
            text: what to say.
            summary: a preview, at most 200 code points; required (01.3).
            in_reply_to: the id of the message that this one answers (01.5).

        Returns a Receipt that says what is known, or a Refusal with its code. To another session it goes out under this
        session's name, and an answer comes to the main conversation: nobody elsewhere can address an agent.
        """
        raw = {"to": to, "message": text, "summary": summary, "in_reply_to": in_reply_to}
        return await self.send_call(raw)

    async def send_call(self, raw: Mapping[str, object], *, msg_id: str | None = None) -> Receipt | Refusal:
        """The same for a raw call of the SendMessage tool: `raw` is its input (chapter 01).

        What the user has stopped says nothing more (02.24).
        """
        if self.life.stopped_by_user:
            return SILENCED
        if self._speaker is None or self._speaker() is not asyncio.current_task():
            task = asyncio.current_task()
            self._speaker = None if task is None else ref(task)
        receipt = await self.host.session.send_as(self.voice, raw, msg_id=msg_id)
        self.host.record_send(self, raw, receipt)
        return receipt

    def progress(self, text: str) -> None:
        """Tells the owner how far the present run has come; only the latest word waits (06.11).

        Args:
            text: the progress, in a few words.
        """
        self.host.progress(self, text)

    def listing(
        self, text: str | None = None, *, kind: str | None = None, limit: int = DEFAULT_ROWS
    ) -> Listing:
        """Who can be written to from this agent, its own row apart; as `Session.listing` (01.29)."""
        return self.host.session.listing_for(self.id, text, kind=kind, limit=limit)

    def environment(self) -> dict[str, str]:
        """What a process that works as this agent gets in its environment, for `postroom send` and `postroom mcp` in it.

        It holds a token of this agent's own: never on a command line, never in a log. Raises BadUsage for a session in
        memory, which no other process can reach.
        """
        self._token = self._token or self.host.token_for(self)
        return self.host.environment(self._token)

    # ── its run ──────────────────────────────────────────────────────────────────────────────────

    @contextlib.asynccontextmanager
    async def running(self, run_number: int | None = None) -> AsyncGenerator[Run]:
        """Wraps the agent's loop: says how the run ended when the block is left (06.11).

        Args:
            run_number: which run this is, as `run` was when `resume` was called; None: the one for which `resume` was
                called from which this task was begun, else the present one. A run that comes too late is never taken for
                the one after it.

        Left without an error it has completed, with what was put into the Run; by an exception it has failed; cancelled,
        or stopped, it was killed. A `task_completed` hook that vetoes keeps it from completing: `Veto` is raised then, and
        the agent stays live.

        Yields the Run. Raises AgentStopped where the agent is not live, which ends a run that came too late, and where
        another loop stands in this run.
        """
        if run_number is None:
            run_number = BEGUN.get().get(self.id)
        if self.state != "live":
            raise AgentStopped(
                f"{self.name} is not live: its last run ended as {self.state}.", "A message to it resumes it."
            )
        if run_number not in (None, self.run):
            raise AgentStopped(f"{self.name} is in its run {self.run} by now.", "Let that one go on.")
        if self._task is not None and self._inside == self.run:
            raise AgentStopped(
                f"Another loop stands in run {self.run} of {self.name}.", "Let that one go on."
            )
        run = Run(self.run)
        self._inside = run.number
        BEGUN.set({**BEGUN.get(), self.id: run.number})
        if self.flight is not None:
            self.flight.said()
        task = self._task = asyncio.current_task()
        try:
            yield run
        except asyncio.CancelledError:
            await self._close(run, "killed")
            raise
        except BaseException as error:
            run.result = run.result or f"{type(error).__name__}"
            await self._close(run, "failed")
            raise
        else:
            try:
                await self._close(run, "completed")
            except asyncio.CancelledError:  # while a hook was asked
                await self._close(run, "killed")
                raise
            except BadUsage:  # what was put into the Run cannot be kept
                await self._close(run, "failed")
                raise
        finally:
            if self._task is task:  # and not that of a run after it
                self._task = None
            # What this task does from now on belongs to no run; what it has begun belongs to that one.
            BEGUN.set({who: number for who, number in BEGUN.get().items() if who != self.id})

    async def _close(self, run: Run, status: RunStatus) -> None:
        try:
            said = outcome(run.result, run.usage, run.output_path, run.worktree)
        except BadUsage as error:
            if status == "completed":
                raise
            said = outcome(error.message)
        await self.host.finish(self, run.number, status, said)

    async def finish(
        self,
        status: RunStatus = "completed",
        *,
        result: str | None = None,
        usage: Mapping[str, int | float] | None = None,
        output_path: str | PathLike[str] | None = None,
        worktree: str | PathLike[str] | None = None,
        run_number: int | None = None,
    ) -> bool:
        """Says how the present run ended, for a host that does not use `running` (06.11).

        Args:
            status: `completed`, `failed` or `killed`.
            result: the final text.
            usage, output_path, worktree: as in `Run`.
            run_number: as for `running`.

        What was sent to it and not drained resumes it at once. Returns False where no run is under way: it has ended
        already. Raises Veto where a `task_completed` hook says so, and BadUsage for a status that there is none of, or
        for what is no text, path or number; then the run is still under way.
        """
        if run_number is None:
            run_number = BEGUN.get().get(self.id, self.run)
        return await self.host.finish(
            self, run_number, ending(status), outcome(result, usage, output_path, worktree)
        )

    def cancel_run(self) -> None:
        """Cancels the task that runs this agent's loop, where it is known."""
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _is_of_another_run(self) -> bool:
        """Whether whoever asks was begun for a run of this agent that is not the present one."""
        return BEGUN.get().get(self.id, self.run) != self.run

    def ended_future(self) -> asyncio.Future[tuple[AgentState, str | None]]:
        """Is done once the present run has ended: how, and with which final text."""
        if self._ended is None or self._ended.done():
            self._ended = asyncio.get_running_loop().create_future()
        return self._ended

    def run_ended(self, result: str | None) -> None:
        """The present run has ended."""
        self.seen_at = self.life.ended_at or self.seen_at
        if self._ended is not None and not self._ended.done():
            self._ended.set_result((self.state, result))
        self._ended = None
        self.turn_over()
        self.ring()

    def may_write_to_main(self, main: Resolved | None) -> None:
        """It is a background agent from now on (06.8); `main` is how its main conversation is found. None: it is none."""
        if self._voice is not None:
            self._voice.background = main is not None
            self._voice.recipients.main = main


class Observer:
    """A watcher paired with the main conversation or with one agent: it can report, and nothing else (06.14).

    Attributes:
        id: its identity.
        name: what its reports are signed with.
        watched: the agent that it watches; None: the main conversation.
        on: whether its reports are taken; the host may set it.
    """

    def __init__(self, host: Agents, identity: str, name: str, watched: Agent | None) -> None:
        self.id = identity
        self.name = name
        self.watched = watched
        self.on = True
        self.origin = Origin(kind="observer", identity=identity, verified=True, name=name, transport="queue")
        self.host = host
        self._token = ""

    def report(self, report: str, severity: str = "info") -> Receipt | Refusal:
        """Reports what was seen (01.32). One way: it grants nothing and cannot be answered.

        Args:
            report: at most 10,000 characters.
            severity: `info`, `warning` or `urgent`.
        """
        return self.report_call({"report": report, "severity": severity})

    def report_call(self, raw: Mapping[str, object]) -> Receipt | Refusal:
        """The same for a raw call of the ObserverReport tool."""
        return self.host.report(self, raw)

    def environment(self) -> dict[str, str]:
        """As `Agent.environment`: a process with it offers `report_observation` over MCP, and nothing else."""
        self._token = self._token or self.host.token_for(self)
        return self.host.environment(self._token)

    def __repr__(self) -> str:
        watched = "the main conversation" if self.watched is None else self.watched.name
        return f"<Observer {self.name} of {watched}, {'on' if self.on else 'off'}>"
