"""An event loop whose every step is chosen: which ready callback runs next, and when time goes on.

`Stepping` is asyncio's own loop in all but two things. What is ready does not run in its order: `step` runs one callback of
those that are ready, the one that it is told. And its clock stands still until nothing is ready; then it leaps to the next
timer. A function for an executor runs as a callback of its own. So a test sees each interleaving that it asks for, again
and again, and nothing in it waits for real time.

Callbacks run in orders in which asyncio would not run them: what holds here rests on no order of callbacks.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

Value = TypeVar("Value")


class Step(asyncio.TimerHandle):
    """One callback, which can be run from outside."""

    def __init__(
        self,
        when: float,
        work: Callable[[], object],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        super().__init__(when, work, (), loop, context)
        self.work = work
        self.context = context or contextvars.copy_context()


class Stepping(asyncio.SelectorEventLoop):
    """See the module. It belongs to one thread.

    Attributes:
        complaints: what asyncio would have logged: exceptions that nobody took.
    """

    def __init__(self) -> None:
        super().__init__()
        self.complaints: list[str] = []
        self._now = 1000.0
        self._steps: list[Step] = []
        self._timers: list[Step] = []
        self.set_exception_handler(self._complain)

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.complaints.append(f"{context['message']}: {error!r} {context.get('future', '')}")

    # ── what asyncio asks of a loop ──────────────────────────────────────────────────────────────

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Step:
        step = Step(self._now, partial(callback, *args), self, context)
        self._steps.append(step)
        return step

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Step:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Step:
        step = Step(when, partial(callback, *args), self, context)
        self._timers.append(step)
        return step

    def run_in_executor(self, executor: Any, func: Callable[..., Value], *args: Any) -> asyncio.Future[Value]:
        given: asyncio.Future[Value] = self.create_future()

        def run() -> None:
            try:
                value = func(*args)
            except Exception as error:
                if not given.done():
                    given.set_exception(error)
            else:
                if not given.done():
                    given.set_result(value)

        self.call_soon(run)
        return given

    # ── choosing ─────────────────────────────────────────────────────────────────────────────────

    @property
    def ready(self) -> int:
        """How many callbacks could run now."""
        self._steps = [step for step in self._steps if not step.cancelled()]
        return len(self._steps)

    @property
    def next_timer(self) -> float | None:
        """In how many seconds the next timer is due; None: there is none."""
        self._timers = [timer for timer in self._timers if not timer.cancelled()]
        return min((timer.when() - self._now for timer in self._timers), default=None)

    def advance(self, seconds: float) -> None:
        """Lets the clock go on; the timers that are due become ready, in their order."""
        self._now += max(seconds, 0.0)
        due = sorted(
            (timer for timer in self._timers if timer.when() <= self._now), key=asyncio.TimerHandle.when
        )
        self._timers = [timer for timer in self._timers if timer.when() > self._now]
        self._steps += due

    def within(self, work: Callable[[], Value]) -> Value:
        """Calls a function as the loop would, at once."""
        came: list[Value] = []
        wrong: list[BaseException] = []

        def run() -> None:
            try:
                came.append(work())
            except BaseException as error:
                wrong.append(error)
            self.stop()

        super().call_soon(run)
        self.run_forever()
        if wrong:
            raise wrong[0]
        return came[0]

    def step(self, pick: int = 0) -> bool:
        """Runs one callback: of those that are ready the `pick`-th, counted round. False: none is ready."""
        ready = self.ready
        if not ready:
            return False
        self.within(partial(self._run, self._steps.pop(pick % ready)))
        return True

    def _run(self, step: Step) -> None:
        try:
            step.context.run(step.work)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": "a callback raised", "exception": error})

    def settle(self, picks: Sequence[int] = (), *, seconds: float = 0.0, most: int = 100_000) -> None:
        """Runs until nothing is ready, and lets time go on, timer after timer, for so many seconds.

        Args:
            picks: what is chosen first, then again from the beginning; nothing: always the oldest.
            seconds: of the loop's clock.
            most: callbacks; more is a loop that never comes to rest.
        """
        until, count = self._now + seconds, 0
        while True:
            while self.step(picks[count % len(picks)] if picks else 0):
                count += 1
                assert count < most, "the loop never comes to rest"
            after = self.next_timer
            if after is None or self._now + after > until:
                self._now = max(self._now, until)
                return
            self.advance(after)

    def finish(
        self, work: Coroutine[Any, Any, Value], picks: Sequence[int] = (), *, seconds: float = 600.0
    ) -> Value:
        """Runs a coroutine to its end; it fails the test where that waits for ever."""
        task = self.within(lambda: self.create_task(work))
        until, count = self._now + seconds, 0
        while not task.done():
            if self.step(picks[count % len(picks)] if picks else 0):
                count += 1
                continue
            after = self.next_timer
            assert after is not None, f"{task} waits for ever"
            assert self._now + after <= until, f"{task} waits longer than {seconds} s"
            self.advance(after)
        return task.result()

    def left(self) -> list[asyncio.Task[Any]]:
        """The tasks that have not ended."""
        return [task for task in asyncio.all_tasks(self) if not task.done()]
