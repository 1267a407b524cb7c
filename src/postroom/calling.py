"""Calling a host's function: sync or async, with a deadline, and never so that it can stop the session.

An async one runs in the session's loop and is cancelled at its deadline; a plain one runs in a thread of its own, which
nobody can stop: at its deadline it is left alone, and what it comes to later is ignored. One that wants to end the
program (`SystemExit`) has failed, and ends nothing: `Quit` says so. Ctrl-C is the person's and passes.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Quit", "awaited", "call", "named"]


class Quit(Exception):
    """A host's function raised what is no error but an end, such as `SystemExit`: in a task that would end the loop."""


def named(error: BaseException) -> str:
    """What a host's function raised, for a log and for whoever waited: never its words."""
    return str(error) if isinstance(error, Quit) else type(error).__name__


async def call(
    function: Callable[..., object],
    *arguments: object,
    seconds: float | None,
    context: contextvars.Context | None = None,
) -> object:
    """Calls it and returns what it returns; what it raises is raised here.

    Args:
        function: a coroutine function, or a plain one, which may also return something to be awaited.
        arguments: for it.
        seconds: its deadline; None: it has none.
        context: in which it runs, where it has a deadline; None: a copy of the caller's.

    Raises TimeoutError at the deadline, and Quit in the place of what would end the loop. A coroutine that swallows its
    cancellation is left alone.
    """
    if seconds is None:
        return await _called(function, arguments)
    task = asyncio.get_running_loop().create_task(_called(function, arguments), context=context)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        _abandon(task)
        raise
    if not done:
        _abandon(task)
        raise TimeoutError
    return task.result()


async def awaited(given: Awaitable[object]) -> object:
    """Awaits what a host's function gave. What it raises is raised here, and Quit in the place of what would end the loop."""
    try:
        return await given
    except (Exception, asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Quit(type(error).__name__) from error


async def _called(function: Callable[..., object], arguments: tuple[object, ...]) -> object:
    return await awaited(_given(function, arguments))


async def _given(function: Callable[..., object], arguments: tuple[object, ...]) -> object:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ is one too
    ):
        return await cast("Awaitable[object]", function(*arguments))
    given = await _in_thread(function, arguments)
    return await given if inspect.isawaitable(given) else given


async def _in_thread(function: Callable[..., object], arguments: tuple[object, ...]) -> object:
    """Runs it in a thread that keeps no program from ending, as those of an executor would."""
    loop = asyncio.get_running_loop()
    given: asyncio.Future[object] = loop.create_future()

    def settle(value: object, error: BaseException | None) -> None:
        if given.done():
            return
        if error is None:
            given.set_result(value)
        elif isinstance(error, StopIteration):  # which no future takes
            given.set_exception(RuntimeError("it raised StopIteration"))
        elif isinstance(error, Exception):
            given.set_exception(error)
        else:  # it would end the loop, or pass for a cancellation
            given.set_exception(Quit(type(error).__name__))

    def run() -> None:
        value, failed = None, None
        try:
            value = function(*arguments)
        except BaseException as error:
            failed = error
        try:
            loop.call_soon_threadsafe(settle, value, failed)
        except RuntimeError:
            pass  # the loop has ended: nobody waits any more

    context = contextvars.copy_context()  # what it begins in the loop belongs to whom it was called for
    threading.Thread(target=context.run, args=(run,), name="postroom-host-call", daemon=True).start()
    return await given


def _abandon(task: asyncio.Task[object]) -> None:
    """Takes a call back; what it comes to is nobody's affair any more."""
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    task.cancel()
