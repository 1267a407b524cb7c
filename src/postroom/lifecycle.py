"""What a host is told of its agents' lives: six hooks at six boundaries (06.15).

A hook is a callable of the host, sync or async, that gets one `LifecycleEvent`. It observes: it carries no message and
no text of one, it hears of a thing after it happened, and nothing in the session waits for it. Two may say no:
`task_created` and `task_completed` are asked, and raise `Veto` to prevent what they are asked about.

- What is told goes through one bounded queue and one task at a time, so that hooks see events in their order.
- A sync hook runs in a thread, an async one in the session's loop; each has a deadline, and at the deadline it is given
  up: an async one is cancelled, a sync one is left alone in its thread, because nobody can stop a thread.
- A hook that raises, hangs or is given up is a line in the session's log, and nothing else: it is no veto. A hook of
  which several calls have not come back is not called at all until one of them does.

It never decides what happens to a message, and keeps nothing: events that nobody heard are lost with the process.

What is weak: an async hook that blocks without awaiting blocks the loop that it runs in, and no deadline can help. A
hook that is slow each time delays what the others hear. A question does not wait for what is still queued, so an asked
hook may hear of the end of a run before another hears of its last message. A hook that ends its own session waits for
itself until its deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from postroom.calling import call
from postroom.errors import Veto

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Hooks", "LifecycleEvent"]

HookKind = Literal[
    "agent_started", "agent_stopped", "task_created", "task_completed", "message_queued", "message_drained"
]
"""The boundaries at which a host may look (06.15)."""

KINDS: tuple[HookKind, ...] = get_args(HookKind)

VETOABLE: frozenset[HookKind] = frozenset({"task_created", "task_completed"})
"""Where a hook may say no (06.15). The others hear of what has happened already."""

EVENT_SECONDS = 5.0
"""How long one call of a hook may take: what a person at a prompt would still wait for an agent to start."""

MAX_EVENTS = 10_000
"""Events that wait for their hooks; as many as messages wait for one agent. Later ones are counted and dropped."""

MAX_LATE = 3
"""Calls of one hook that may hang at once. It bounds the threads that a hook which never returns can take."""

MAX_ASKING = 8
"""Sync hooks that are asked at once: ten thousand agents that start together shall not be ten thousand threads."""

LOGGED = 10
"""Failures of one hook in a row that are logged each; a broken one shall not push all else out of the log."""

LOGGED_AGAIN = 1_000
"""After those, one in so many is logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleEvent:
    """What a hook is told (06.15). There is no message text in it.

    Attributes:
        kind: which boundary.
        agent: the id of the agent; empty where it is about the main conversation.
        name: its name; `main` for the main conversation.
        run: the number of its run; 0 for the main conversation.
        status: how the run ended; empty where none did.
        msg_id: which message; empty where it is about none, or about several.
        count: how many messages.
        at: epoch milliseconds.
    """

    kind: HookKind
    agent: str = ""
    name: str = ""
    run: int = 0
    status: str = ""
    msg_id: str = ""
    count: int = 0
    at: int = 0


if TYPE_CHECKING:
    Hook = Callable[[LifecycleEvent], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """A host's hooks (06.15): each a callable, sync or async, that gets one LifecycleEvent; None: nobody looks.

    Attributes:
        agent_started: an agent is live, for the first time or resumed.
        agent_stopped: a run has ended, however it did.
        task_created: an agent is about to start, or to be resumed; may raise Veto.
        task_completed: a run is about to count as completed; may raise Veto.
        message_queued: something waits for an agent or for the main conversation.
        message_drained: a loop has taken what waited.
    """

    agent_started: Hook | None = None
    agent_stopped: Hook | None = None
    task_created: Hook | None = None
    task_completed: Hook | None = None
    message_queued: Hook | None = None
    message_drained: Hook | None = None


class _Raised(NamedTuple):
    """What a hook raised, as a value: `SystemExit` in a task would else end the loop."""

    error: BaseException


class _Call:
    """One call of a hook, until it has really come back: a thread may do so long after it was given up.

    Attributes:
        given_up: nobody waits for it any more.
        ended: it runs nowhere.
    """

    __slots__ = ("ended", "given_up")

    def __init__(self) -> None:
        self.ended = False
        self.given_up = False


class Lifecycle:
    """Calls a host's hooks; made in the session's loop.

    Args:
        hooks: the host's; None: there are none, and nothing here ever costs anything.
        log: writes one line into the session's log; gets no message text.
        seconds: the deadline of each call, and of `close`.

    Attributes:
        heard: the kinds that somebody looks at; whoever tells of another may spare itself making the event.
        dropped: how many events no hook was called for, because too many waited or the session ended.
    """

    def __init__(
        self, hooks: Hooks | None, log: Callable[[str], None], *, seconds: float = EVENT_SECONDS
    ) -> None:
        self._hooks: dict[HookKind, Hook] = {
            kind: hook for kind in KINDS if (hook := getattr(hooks, kind, None)) is not None
        }
        self.heard: frozenset[HookKind] = frozenset(self._hooks)
        self.dropped = 0
        self._log = log
        self._seconds = seconds
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._asking = asyncio.Semaphore(MAX_ASKING)
        self._context = (
            contextvars.copy_context()
        )  # the host's own: what a hook begins belongs to no agent's run
        self._worker: asyncio.Task[None] | None = None
        self._failures: Counter[HookKind] = Counter()
        # What follows is touched by any thread that tells, and by those in which hooks run.
        self._lock = threading.Lock()
        self._queue: deque[LifecycleEvent] = deque()
        self._running = False
        self._unsaid = 0
        self._late: dict[HookKind, set[_Call]] = {kind: set() for kind in KINDS}

    @property
    def waiting(self) -> int:
        """How many events wait for their hooks."""
        return len(self._queue)

    # ── telling and asking ───────────────────────────────────────────────────────────────────────

    def tell(self, event: LifecycleEvent) -> None:
        """Lets a hook know (06.15). Never waits and never raises; any thread may call it.

        Where too many events wait already, this one is dropped, counted, and the log says so.
        """
        if event.kind not in self.heard:
            return
        with self._lock:
            if self._closed:
                return
            if len(self._queue) >= MAX_EVENTS:
                self.dropped += 1
                self._unsaid += 1
                return
            self._queue.append(event)
            if self._running:
                return
            self._running = True
        try:
            self._loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            pass  # the loop has ended, and with it whoever would have looked

    async def ask(self, event: LifecycleEvent) -> None:
        """Calls a hook and waits for its word (06.15).

        Raises Veto where the hook of a `task_created` or `task_completed` raised it. Any other exception, a hook that
        misses its deadline, and a hook that is not there are no veto.
        """
        hook = self._hooks.get(event.kind)
        if hook is None:
            return
        async with contextlib.nullcontext() if _is_async(hook) else self._asking:
            if self._closed:
                return
            veto = await self._call(hook, event, may_veto=event.kind in VETOABLE)
        if veto is not None:
            raise veto

    async def close(self) -> None:
        """Lets what is queued be heard, within the deadline, and calls no hook after that.

        A hook that still hangs is given up. May be called again.
        """
        with self._lock:
            self._closed = True
            running = self._running
        if running:
            self._begin()
        worker = self._worker
        if worker is not None:
            try:
                await asyncio.wait({worker}, timeout=self._seconds)
            finally:
                worker.cancel()
            await asyncio.wait({worker}, timeout=self._seconds)  # it ends in a step or two
        with self._lock:
            left = len(self._queue)
            self._queue.clear()
            self.dropped += left
            self._unsaid += left
        self._say_dropped()

    # ── the worker ───────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        """Starts the worker, out of the loop and not out of `tell`: a loop may run new tasks at once."""
        if self._worker is None or self._worker.done():
            self._worker = self._loop.create_task(self._work())

    async def _work(self) -> None:
        """Calls the hooks of what is queued, one after the other, and ends when there is nothing left."""
        while True:
            self._say_dropped()
            with self._lock:
                if not self._queue:
                    self._running = False
                    return
                event = self._queue.popleft()
            await self._call(self._hooks[event.kind], event)

    async def _call(self, hook: Hook, event: LifecycleEvent, *, may_veto: bool = False) -> Veto | None:
        """Calls a hook with its deadline, and logs what went wrong with it; returns a veto where there may be one."""
        kind = event.kind
        if len(self._late[kind]) >= MAX_LATE:
            self._failed(kind, f"is not called: {MAX_LATE} calls of it have not come back")
            return None
        one = _Call()
        function = self._watched if _is_async(hook) else self._guarded
        try:
            given = await call(
                function, hook, event, one, seconds=self._seconds, context=self._context.copy()
            )
        except asyncio.CancelledError:
            self._left(kind, one)
            raise
        except TimeoutError:  # the call's own: what a hook raises comes back as a value
            self._left(kind, one)
            self._failed(kind, f"took longer than {self._seconds:g} s and is not waited for")
            return None
        except Exception as error:  # no thread could be started
            given = _Raised(error)
        if not isinstance(given, _Raised):
            del self._failures[kind]
        elif may_veto and isinstance(given.error, Veto):
            return given.error
        else:
            self._failed(kind, f"raised {_what(given.error)}")
        return None

    def _guarded(self, hook: Hook, event: LifecycleEvent, one: _Call) -> object:
        """A sync hook, in a thread; what it returns may have to be awaited."""
        try:
            given = hook(event)
        except BaseException as error:
            return _Raised(error)
        finally:
            self._came_back(event.kind, one)
        if not inspect.isawaitable(given):
            return None
        if one.given_up:
            if inspect.iscoroutine(given):
                given.close()  # it will never be awaited
            return None
        return self._watched(lambda _: given, event, one)

    async def _watched(
        self, hook: Callable[[LifecycleEvent], Awaitable[object]], event: LifecycleEvent, one: _Call
    ) -> _Raised | None:
        """An async hook, in the loop. Ctrl-C is the person's and passes."""
        one.ended = False
        try:
            await hook(event)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return _Raised(error)
        finally:
            self._came_back(event.kind, one)
        return None

    def _left(self, kind: HookKind, one: _Call) -> None:
        """Nobody waits for this call any more."""
        with self._lock:
            one.given_up = True
            if not one.ended:
                self._late[kind].add(one)

    def _came_back(self, kind: HookKind, one: _Call) -> None:
        with self._lock:
            one.ended = True
            self._late[kind].discard(one)

    # ── the log ──────────────────────────────────────────────────────────────────────────────────

    def _failed(self, kind: HookKind, how: str) -> None:
        """Logs a failure; of a long row of them only some."""
        self._failures[kind] += 1
        count = self._failures[kind]
        if count <= LOGGED or not count % LOGGED_AGAIN:
            self._say(f"the hook {kind} {how}" + (f", {count} times in a row" if count > 1 else ""))

    def _say_dropped(self) -> None:
        with self._lock:
            count, self._unsaid = self._unsaid, 0
        if count:
            self._say(f"{count} events were heard by no hook: too many waited, or the session ended")

    def _say(self, line: str) -> None:
        try:
            self._log(line)
        except Exception:
            pass  # a log that cannot be written breaks nothing either


def _is_async(hook: Callable[..., object]) -> bool:
    """Whether a call of it makes a coroutine, so that it need not run in a thread."""
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(
        getattr(hook, "__call__", None)  # noqa: B004 - an object with an async __call__ is one too
    )


def _what(error: BaseException) -> str:
    """What was raised and where, and not its words: they are the host's, and may hold what no log may."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = trace and f" in {PurePath(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"
    return f"{type(error).__name__}{where or ''}"
