"""A host's function is called with a deadline, and cannot stop the session whatever it does (06.13, 06.15)."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from functools import partial

import pytest

from postroom.calling import call


def plain(value: int) -> int:
    """A plain function."""
    return value + 1


async def later(value: int) -> int:
    """A coroutine function."""
    await asyncio.sleep(0)
    return value + 1


class Callable_:
    """An object that is called and awaited."""

    async def __call__(self, value: int) -> int:
        return value + 1


def handed(value: int) -> object:
    """A plain function that returns something to be awaited."""
    return later(value)


@pytest.mark.rule("06.13")
@pytest.mark.parametrize(
    "function",
    [plain, later, Callable_(), handed, partial(later), partial(plain)],
    ids=["plain", "async", "object", "awaitable", "partial async", "partial"],
)
def test_sync_or_async_it_gives_what_it_returns(function: Callable[..., object]) -> None:
    assert asyncio.run(call(function, 1, seconds=10)) == 2


@pytest.mark.rule("06.13")
@pytest.mark.parametrize("seconds", [10, None])
def test_what_it_raises_is_raised_here(seconds: float | None) -> None:
    def plainly() -> None:
        raise KeyError("x")

    async def awaited() -> None:
        raise KeyError("x")

    for function in (plainly, awaited):
        with pytest.raises(KeyError):
            asyncio.run(call(function, seconds=seconds))


def test_stop_iteration_of_a_plain_function_is_an_error_like_another() -> None:
    """A future cannot hold it."""
    with pytest.raises(RuntimeError):
        asyncio.run(call(partial(next, iter(())), seconds=10))


@pytest.mark.rule("06.13")
def test_a_plain_function_that_hangs_is_left_alone_at_its_deadline() -> None:
    release, ended = threading.Event(), threading.Event()

    def hang() -> None:
        release.wait(30)
        ended.set()

    async def work() -> None:
        with pytest.raises(TimeoutError):
            await call(hang, seconds=0.01)
        await asyncio.sleep(0)  # the loop goes on

    asyncio.run(work())
    release.set()  # it comes back to a loop that has ended, and nothing happens
    assert ended.wait(10)


@pytest.mark.rule("06.13")
def test_a_coroutine_that_swallows_its_cancellation_is_left_alone_at_its_deadline() -> None:
    async def work() -> None:
        swallowed, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        unheard: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, said: unheard.append(said))

        async def stubborn() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.set()
                await go.wait()
                ended.set()
                raise ValueError("nobody hears this") from None

        with pytest.raises(TimeoutError):
            await call(stubborn, seconds=0.01)
        await swallowed.wait()
        go.set()
        await ended.wait()
        await asyncio.sleep(0)
        gc.collect()  # a task that ended in an error that nobody asked for would say so now
        assert unheard == []

    asyncio.run(work())


@pytest.mark.rule("06.13")
def test_whoever_stops_waiting_takes_the_call_back() -> None:
    async def work() -> None:
        taken_back = asyncio.Event()
        begun = asyncio.Event()

        async def slow() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                taken_back.set()

        for seconds in (10, None):
            taken_back.clear()
            begun.clear()
            calling = asyncio.get_running_loop().create_task(call(slow, seconds=seconds))
            await begun.wait()
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            await taken_back.wait()

    asyncio.run(work())


def test_without_a_deadline_whoever_stops_waiting_waits_for_its_clean_up() -> None:
    async def work() -> None:
        begun, tidied = asyncio.Event(), asyncio.Event()

        async def slow() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                tidied.set()

        calling = asyncio.get_running_loop().create_task(call(slow, seconds=None))
        await begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert tidied.is_set()

    asyncio.run(work())


@pytest.mark.rule("06.13")
@pytest.mark.parametrize("seconds", [10, None])
def test_what_a_plain_function_comes_to_after_its_caller_stopped_waiting_is_ignored(
    seconds: float | None,
) -> None:
    release = threading.Event()
    threads: list[threading.Thread] = []

    async def work() -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        unheard: list[object] = []
        loop.set_exception_handler(lambda _, said: unheard.append(said))

        def hang() -> int:
            threads.append(threading.current_thread())
            loop.call_soon_threadsafe(begun.set)
            release.wait(30)
            return 1

        calling = loop.create_task(call(hang, seconds=seconds))
        async with asyncio.timeout(30):
            await begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await asyncio.sleep(0)  # the call that was taken back ends
        release.set()
        threads[0].join(30)
        assert not threads[0].is_alive()
        await asyncio.sleep(0)  # what it came to arrives in this loop
        await asyncio.sleep(0)
        assert unheard == []

    asyncio.run(work())


def test_an_async_function_is_called_in_the_loop_and_takes_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Thread", None)
    for function in (later, Callable_(), partial(later)):
        assert asyncio.run(call(function, 1, seconds=10)) == 2
