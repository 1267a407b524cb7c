"""One agent inside a session, as its host holds it: its life, its pending list, and what it may do (chapter 06).

A host runs the agent's loop; at each boundary the loop drains what was sent to the agent meanwhile. Postroom keeps who
the agent is and which run it is in, and says once how each run ended. It never calls a model, and it never changes a
request that is under way.

Every method belongs to the session's event loop. The list of what waits is not on disk: it is lost with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from postroom.batch import Batch
from postroom.commits import Bell, deadline_in
from postroom.core import loops
from postroom.core.address import ref_of, shown
from postroom.core.listing import DEFAULT_ROWS
from postroom.core.message import Origin
from postroom.core.queues import Pending
from postroom.errors import AgentStopped

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from postroom.agents import Agents
    from postroom.core.listing import Listing
    from postroom.core.message import Receipt, Refusal, RunStatus
    from postroom.core.queues import Entry
    from postroom.core.runs import AgentState, Life
    from postroom.resuming import Flight
    from postroom.state.transcripts import Transcript
    from postroom.voice import Voice

__all__ = ["Agent", "Observer", "Run"]


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
        self.output_path: str | None = None
        self.worktree: str | None = None

    def __repr__(self) -> str:
        return f"<Run {self.number}>"


class Agent:
    """One agent; `Agents.start` makes it.

    Attributes:
        life: who it is and where it stands; what `agent.json` holds (06.13).
        workflow: started by `run_agent`: nobody can address it (06.16).
        owner: the agent that it reports to; None: the main conversation.
        recorded: the pins that its transcript holds: normal form of a name → identity.
    """

    __slots__ = (
        "_bell",
        "_chain",
        "_ended",
        "_guard",
        "_host",
        "_task",
        "_token",
        "_transcript",
        "_turns",
        "_voice",
        "_waiters",
        "flight",
        "life",
        "owner",
        "pending",
        "recorded",
        "ref",
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
        self.flight: Flight | None = None
        self._host = host
        self._bell: Bell | None = None
        self._ended: asyncio.Future[str | None] | None = None
        self._guard: loops.Guard | None = None
        self._task: asyncio.Task[object] | None = None
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
        """It reports its end by a notification, and may write to `main` (06.8, 06.11)."""
        return self.life.background

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
            self._transcript = self._host.transcript_of(self)
        return self._transcript

    def __repr__(self) -> str:
        return f"<Agent {shown(self.name, self.ref)} {self.state}, run {self.run}, {self.waiting} waiting>"

    # ── steering ─────────────────────────────────────────────────────────────────────────────────

    def drain(self, limit: int | None = None) -> Batch:
        """Hands over all that waits, at a boundary of the agent's loop, and clears it: one atomic step (06.5).

        Args:
            limit: at most so many, the oldest; for a loop that can take no more at once.
        """
        if self.flight is not None:  # what a resume was begun for is handed over by the resume
            return Batch()
        entries = self.pending.drain(limit)
        host = self._host
        if not entries:
            return Batch()
        self.took(entries)
        host.tell("message_drained", self, count=len(entries))
        return Batch(entries, ids=host.session.new_id, release=lambda: self.give_back(entries))

    def took(self, entries: Sequence[Entry]) -> None:
        """The loop has these: what it sends from now on was caused by them (03.66)."""
        chains = [entry.hop_chain for entry in entries if entry.hop_chain]
        if chains:
            self.turns.took(chains, self._host.session.now())

    def give_back(self, entries: Sequence[Entry]) -> None:
        """Puts back what a drain handed over, to the front."""
        self.pending.put_back(entries)
        self.ring()
        self._host.gave_back(self)

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
        while self.state == "live" and not self._host.closed:
            if self.flight is None and len(self.pending):
                return True
            if self._bell is None:
                self._bell = Bell()
            self._waiters += 1
            self._turn_over()
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
            self._voice = self._host.voice_of(self)
        return self._voice

    @property
    def turns(self) -> loops.Turns:
        """Which chain its messages carry (03.66)."""
        if self._turns is None:
            self._turns = loops.Turns()
            self._turns.began(self._host.session.now())
        return self._turns

    def _turn_over(self) -> None:
        """Its loop has nothing more to do about what it was told: what it sends next has another cause (03.66).

        That is known here and need not be guessed: the loop waits, or its run ends. A boundary at which nothing was
        there is neither.
        """
        if self._turns is not None:
            self._turns.began(self._host.session.now())

    @property
    def guard(self) -> loops.Guard:
        """The loop guard in front of its pending list (03.57)."""
        if self._guard is None:
            self._guard = loops.Guard(self._host.session.standing.limits)
        return self._guard

    @property
    def chain_token(self) -> str:
        """Its own token in a hop chain (03.66)."""
        if not self._chain:
            self._chain = self._host.chain_token(self.id)
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
        """The same for a raw call of the SendMessage tool: `raw` is its input (chapter 01)."""
        receipt = await self._host.session.send_as(self.voice, raw, msg_id=msg_id)
        self._host.record_send(self, raw, receipt)
        return receipt

    def progress(self, text: str) -> None:
        """Tells the owner how far the present run has come; only the latest word waits (06.11).

        Args:
            text: the progress, in a few words.
        """
        self._host.progress(self, text)

    def listing(
        self, text: str | None = None, *, kind: str | None = None, limit: int = DEFAULT_ROWS
    ) -> Listing:
        """Who can be written to from this agent, its own row apart; as `Session.listing` (01.29)."""
        return self._host.session.listing_for(self.id, text, kind=kind, limit=limit)

    def environment(self) -> dict[str, str]:
        """What a process that works as this agent gets in its environment, for `postroom send` and `postroom mcp` in it.

        It holds a token of this agent's own: never on a command line, never in a log.
        """
        self._token = self._token or self._host.token_for(self)
        return {**self._host.session.identity, "POSTROOM_TOKEN": self._token}

    # ── its run ──────────────────────────────────────────────────────────────────────────────────

    @contextlib.asynccontextmanager
    async def running(self, run_number: int | None = None) -> AsyncGenerator[Run]:
        """Wraps the agent's loop: says how the run ended when the block is left (06.11).

        Args:
            run_number: which run this is, as `run` was when `resume` was called; None: the present one. With it a run that
                comes too late is never taken for the one after it.

        Left without an error it has completed, with what was put into the Run; by an exception it has failed; cancelled,
        or stopped, it was killed. A `task_completed` hook that vetoes keeps it from completing: `Veto` is raised then, and
        the agent stays live.

        Yields the Run. Raises AgentStopped where the agent is not live, which ends a run that came too late.
        """
        if self.state != "live":
            raise AgentStopped(
                f"{self.name} is not live: its last run ended as {self.state}.", "A message to it resumes it."
            )
        if run_number not in (None, self.run):
            raise AgentStopped(f"{self.name} is in its run {self.run} by now.", "Let that one go on.")
        run = Run(self.run)
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
        finally:
            if self._task is task:  # and not that of a run after it
                self._task = None

    async def _close(self, run: Run, status: RunStatus) -> None:
        await self._host.finish(
            self,
            run.number,
            status,
            result=run.result,
            usage=run.usage,
            output_path=run.output_path,
            worktree=run.worktree,
        )

    async def finish(
        self,
        status: RunStatus = "completed",
        *,
        result: str | None = None,
        usage: Mapping[str, int | float] | None = None,
        output_path: str | None = None,
        worktree: str | None = None,
    ) -> bool:
        """Says how the present run ended, for a host that does not use `running` (06.11).

        Args:
            status: `completed`, `failed` or `killed`.
            result: the final text.
            usage, output_path, worktree: as in `Run`.

        What was sent to it and not drained resumes it at once. Returns False where no run is under way: it has ended
        already. Raises Veto where a `task_completed` hook says so.
        """
        return await self._host.finish(
            self,
            self.run,
            status,
            result=result,
            usage=usage,
            output_path=output_path,
            worktree=worktree,
        )

    def cancel_run(self) -> None:
        """Cancels the task that runs this agent's loop, where it is known."""
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def ended_future(self) -> asyncio.Future[str | None]:
        """Is done once the present run has ended, with its final text."""
        if self._ended is None or self._ended.done():
            self._ended = asyncio.get_running_loop().create_future()
        return self._ended

    def run_ended(self, result: str | None) -> None:
        """The present run has ended."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(result)
        self._ended = None
        self._turn_over()
        self.ring()


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
        self._host = host
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
        return self._host.report(self, raw)

    def environment(self) -> dict[str, str]:
        """As `Agent.environment`: a process with it offers `report_observation` over MCP, and nothing else."""
        self._token = self._token or self._host.token_for(self)
        return {**self._host.session.identity, "POSTROOM_TOKEN": self._token}

    def __repr__(self) -> str:
        watched = "the main conversation" if self.watched is None else self.watched.name
        return f"<Observer {self.name} of {watched}, {'on' if self.on else 'off'}>"
