"""A host's lifecycle hooks: what they hear, and that nothing which goes wrong in one reaches anybody else (06.15)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any

import pytest

from postroom import lifecycle
from postroom.lifecycle import KINDS, MAX_LATE, VETOABLE, Hooks, Lifecycle, LifecycleEvent, Veto
from tests.transports.ends import run, turns, until

SOON = 0.01
"""A deadline that is there to be missed."""

NEVER = 30.0
"""A deadline that no test waits for."""

OBSERVING = [kind for kind in KINDS if kind not in VETOABLE]

Log = list[str]


def quiet(line: str) -> None:
    """A log that nobody reads."""


def no_thread(thread: threading.Thread) -> None:
    """The system can start no more threads."""
    raise RuntimeError("can't start new thread")


def event(kind: Any = "message_queued", msg_id: str = "") -> LifecycleEvent:
    """Something that happened."""
    return LifecycleEvent(kind=kind, agent="a-1", name="builder", run=2, msg_id=msg_id, count=1, at=1_000)


def hooked(kind: str, hook: Callable[[LifecycleEvent], object], **more: Any) -> Hooks:
    """Hooks of which one or more are there."""
    return Hooks(**{kind: hook, **more})


@contextlib.asynccontextmanager
async def told(
    hooks: Hooks | None, log: Log | None = None, seconds: float = NEVER
) -> AsyncGenerator[Lifecycle]:
    """A Lifecycle that is closed in the end."""
    life = Lifecycle(hooks, quiet if log is None else log.append, seconds=seconds)
    try:
        yield life
    finally:
        await life.close()


@pytest.fixture
def gate() -> Generator[threading.Event]:
    """What a sync hook hangs on; opened in the end, so that no thread outlives its test for long."""
    made = threading.Event()
    yield made
    made.set()


# ── what a hook hears ────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.15")
def test_hooks_sync_and_async_hear_of_everything_in_order() -> None:
    async def work() -> None:
        heard: list[tuple[str, str, bool]] = []
        here = threading.get_ident()

        def sync(one: LifecycleEvent) -> None:
            heard.append((one.kind, one.msg_id, threading.get_ident() == here))

        async def later(one: LifecycleEvent) -> None:
            await turns(3)
            sync(one)

        hooks = Hooks(
            agent_started=later,
            agent_stopped=sync,
            task_created=sync,
            task_completed=later,
            message_queued=later,
            message_drained=sync,
        )
        async with told(hooks) as life:
            for number in range(10):
                for kind in KINDS:
                    life.tell(event(kind, f"m-{number}"))
            assert heard == [], "nothing runs inside tell"
            await until(lambda: len(heard) == 60)
        in_loop = {"agent_started", "task_completed", "message_queued"}
        assert heard == [(kind, f"m-{number}", kind in in_loop) for number in range(10) for kind in KINDS]

    run(work())


@pytest.mark.rule("06.15")
def test_whatever_can_be_called_and_awaited_is() -> None:
    async def work() -> None:
        heard: list[str] = []

        async def note(prefix: str, one: LifecycleEvent) -> None:
            await asyncio.sleep(0)
            heard.append(prefix + one.msg_id)

        class Callee:
            async def __call__(self, one: LifecycleEvent) -> None:
                await note("object ", one)

        def returning(one: LifecycleEvent) -> Awaitable[None]:
            return note("returned ", one)

        hooks = Hooks(
            agent_started=functools.partial(note, "partial "),
            agent_stopped=Callee(),
            message_queued=returning,
        )
        async with told(hooks) as life:
            for kind in ("agent_started", "agent_stopped", "message_queued"):
                life.tell(event(kind, "m"))
            await until(lambda: len(heard) == 3)
        assert heard == ["partial m", "object m", "returned m"]

    run(work())


def test_a_hook_gets_the_event_as_it_is_and_no_other_hears_of_it() -> None:
    async def work() -> None:
        heard: list[LifecycleEvent] = []
        other: list[LifecycleEvent] = []
        one = event("agent_stopped")
        async with told(Hooks(agent_stopped=heard.append, agent_started=other.append)) as life:
            assert life.heard == {"agent_stopped", "agent_started"}
            life.tell(event("message_queued"))
            life.tell(one)
        assert heard == [one]
        assert other == []

    run(work())


@pytest.mark.parametrize("hooks", [None, Hooks()])
def test_without_hooks_nothing_is_made(hooks: Hooks | None) -> None:
    async def work() -> None:
        async with told(hooks) as life:
            for kind in KINDS:
                life.tell(event(kind))
                await life.ask(event(kind))
            await turns()
            assert life.heard == frozenset()
            assert life.waiting == 0
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run(work())


@pytest.mark.rule("06.15")
def test_any_thread_may_tell() -> None:
    async def work() -> None:
        heard: list[str] = []
        async with told(Hooks(message_queued=lambda one: heard.append(one.msg_id))) as life:
            thread = threading.Thread(target=lambda: [life.tell(event(msg_id=str(n))) for n in range(100)])
            thread.start()
            await until(lambda: len(heard) == 100)
            thread.join()
        assert heard == [str(n) for n in range(100)]

    run(work())


def test_telling_after_the_loop_has_ended_raises_nothing() -> None:
    heard: list[LifecycleEvent] = []

    async def work() -> Lifecycle:
        return Lifecycle(Hooks(message_queued=heard.append), quiet)

    life = asyncio.run(work())
    life.tell(event())
    life.tell(event())
    assert heard == []
    assert life.waiting == 2


# ── what goes wrong in one ───────────────────────────────────────────────────────────────────────


def sync_raising(error: BaseException) -> Callable[[LifecycleEvent], object]:
    def hook(one: LifecycleEvent) -> None:
        raise error

    return hook


def async_raising(error: BaseException) -> Callable[[LifecycleEvent], object]:
    async def hook(one: LifecycleEvent) -> None:
        await asyncio.sleep(0)
        raise error

    return hook


def late_raising(error: BaseException) -> Callable[[LifecycleEvent], object]:
    raising = async_raising(error)
    return lambda one: raising(one)


@pytest.mark.rule("06.15")
@pytest.mark.parametrize("raising", [sync_raising, async_raising, late_raising])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("the secret words"),
        StopIteration(),
        TimeoutError(),
        asyncio.CancelledError(),
        SystemExit(3),
        Veto("the secret words"),
    ],
    ids=repr,
)
def test_what_a_hook_raises_is_logged_without_its_words_and_breaks_nothing(
    raising: Callable[[BaseException], Any], error: BaseException
) -> None:
    async def work() -> None:
        log: Log = []
        heard: list[LifecycleEvent] = []
        hooks = hooked("message_queued", raising(error), message_drained=heard.append)
        async with told(hooks, log) as life:
            life.tell(event("message_queued"))
            life.tell(event("message_drained"))
            await until(lambda: heard)
        assert len(log) == 1
        if (
            isinstance(error, StopIteration) and raising is not sync_raising
        ):  # Python's own rule of coroutines
            assert log[0].startswith("the hook message_queued raised RuntimeError")
        else:
            named = type(error).__name__
            assert log[0].startswith(f"the hook message_queued raised {named} in test_lifecycle.py, line ")
        assert "secret" not in log[0]

    run(work())


@pytest.mark.rule("06.15")
def test_ctrl_c_in_a_thread_is_a_hooks_own_and_in_the_loop_the_persons() -> None:
    log: Log = []

    async def work(hook: Callable[[LifecycleEvent], object]) -> None:
        async with told(Hooks(message_queued=hook), log) as life:
            life.tell(event())

    asyncio.run(work(sync_raising(KeyboardInterrupt())))
    assert len(log) == 1
    assert "raised KeyboardInterrupt" in log[0]
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(work(async_raising(KeyboardInterrupt())))


def test_a_hook_that_cannot_be_called_so_is_logged() -> None:
    async def work() -> None:
        log: Log = []
        wrong: Any = lambda: None  # noqa: E731 - it takes no event
        async with told(Hooks(agent_started=wrong), log) as life:
            life.tell(event("agent_started"))
        assert [line.partition(" in ")[0] for line in log] == ["the hook agent_started raised TypeError"]

    run(work())


@pytest.mark.rule("06.15")
def test_where_no_thread_can_be_started_the_log_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        log: Log = []
        async with told(Hooks(message_queued=print), log) as life:
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", no_thread)
                life.tell(event())
                await until(lambda: log)
        assert "the hook message_queued raised RuntimeError" in log[0]

    run(work())


def test_a_log_that_cannot_be_written_breaks_nothing() -> None:
    async def work() -> None:
        heard: list[LifecycleEvent] = []

        def full(line: str) -> None:
            raise OSError("full")

        life = Lifecycle(Hooks(message_queued=sync_raising(ValueError()), message_drained=heard.append), full)
        life.tell(event("message_queued"))
        life.tell(event("message_drained"))
        await life.close()
        assert len(heard) == 1

    run(work())


def test_a_hook_that_always_fails_does_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "LOGGED", 2)
    monkeypatch.setattr(lifecycle, "LOGGED_AGAIN", 5)

    async def work() -> None:
        log: Log = []
        works = False

        async def hook(one: LifecycleEvent) -> None:
            if not works:
                raise ValueError

        async with told(Hooks(message_queued=hook), log) as life:
            for _ in range(12):
                life.tell(event())
            await until(lambda: len(log) == 4)
            assert [line.rpartition(", ")[2] for line in log[1:]] == [
                f"{n} times in a row" for n in (2, 5, 10)
            ]
            await until(lambda: not life.waiting)
            works = True
            life.tell(event())
            await until(lambda: not life.waiting)
            await turns()
            works = False
            life.tell(event())
            await until(lambda: len(log) == 5)
            assert "in a row" not in log[4], "one that worked begins a new row"

    run(work())


# ── what does not come back ──────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.15")
def test_an_async_hook_that_never_returns_is_cancelled_and_the_next_is_heard() -> None:
    async def work() -> None:
        log: Log = []
        heard: list[LifecycleEvent] = []
        cancelled: list[bool] = []

        async def hanging(one: LifecycleEvent) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(True)

        hooks = Hooks(message_queued=hanging, message_drained=heard.append)
        async with told(hooks, log, SOON) as life:
            for _ in range(MAX_LATE + 2):  # it comes back when it is cancelled, so it is called each time
                life.tell(event("message_queued"))
            life.tell(event("message_drained"))
            await until(lambda: heard)
        assert cancelled == [True] * (MAX_LATE + 2)
        assert log[0] == "the hook message_queued took longer than 0.01 s and is not waited for"
        assert len(log) == MAX_LATE + 2

    run(work())


@pytest.mark.rule("06.15")
def test_a_sync_hook_that_hangs_is_left_alone_and_the_next_is_heard(gate: threading.Event) -> None:
    async def work() -> None:
        log: Log = []
        heard: list[LifecycleEvent] = []
        hooks = Hooks(message_queued=lambda _: gate.wait(), message_drained=heard.append)
        async with told(hooks, log, SOON) as life:
            life.tell(event("message_queued"))
            life.tell(event("message_drained"))
            await until(lambda: heard)
        assert log == ["the hook message_queued took longer than 0.01 s and is not waited for"]

    run(work())
    assert not gate.is_set()


@pytest.mark.rule("06.15")
@pytest.mark.parametrize("sync", [True, False])
def test_a_hook_of_which_several_calls_hang_is_not_called_until_one_comes_back(
    sync: bool, gate: threading.Event
) -> None:
    async def work() -> None:
        log: Log = []
        called: list[str] = []
        let_go = asyncio.Event()

        def blocking(one: LifecycleEvent) -> None:
            called.append(one.msg_id)
            gate.wait()

        async def stubborn(one: LifecycleEvent) -> None:
            called.append(one.msg_id)
            while not let_go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await let_go.wait()

        async with told(Hooks(message_queued=blocking if sync else stubborn), log, SOON) as life:
            for number in range(MAX_LATE + 2):
                life.tell(event(msg_id=str(number)))
            await until(lambda: len(log) == MAX_LATE + 2)
            assert called == [str(number) for number in range(MAX_LATE)]
            assert all("took longer" in line for line in log[:MAX_LATE])
            assert all("is not called: 3 calls of it have not come back" in line for line in log[MAX_LATE:])
            gate.set()
            let_go.set()
            for number in range(100_000):  # until the calls that hung have come back
                life.tell(event(msg_id=f"again {number}"))
                await until(lambda: not life.waiting)
                await turns(3)
                if "again" in called[-1]:
                    break
            assert "again" in called[-1]

    run(work())


def test_a_hook_given_up_that_returns_a_coroutine_after_all_leaves_no_trace(gate: threading.Event) -> None:
    """Nobody awaits it any more; that it was never awaited would be a warning, and so a failure here."""

    async def work() -> None:
        log: Log = []
        awaited: list[bool] = []
        ended = threading.Event()

        async def never() -> None:
            awaited.append(True)

        def late(one: LifecycleEvent) -> Any:
            gate.wait()
            ended.set()
            return never() if one.msg_id == "a coroutine" else Idle()

        class Idle:
            def __await__(self) -> Generator[Any]:
                awaited.append(True)
                yield

        async with told(Hooks(message_queued=late), log, SOON) as life:
            life.tell(event(msg_id="a coroutine"))
            life.tell(event(msg_id="another"))
            await until(lambda: len(log) == 2)
            gate.set()
            await until(ended.is_set)
            await turns()
        assert awaited == []

    run(work())


@pytest.mark.rule("06.15")
def test_more_than_may_wait_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "MAX_EVENTS", 5)

    async def work() -> None:
        log: Log = []
        heard: list[str] = []
        go = asyncio.Event()

        async def hook(one: LifecycleEvent) -> None:
            await go.wait()
            heard.append(one.msg_id)

        async with told(Hooks(message_queued=hook), log) as life:
            life.tell(event(msg_id="first"))
            await until(lambda: not life.waiting)  # it is in the hook's hands
            for number in range(8):
                life.tell(event(msg_id=str(number)))
            assert (life.waiting, life.dropped) == (5, 3)
            go.set()
            await until(lambda: len(heard) == 6)
        assert heard == ["first", "0", "1", "2", "3", "4"]
        assert log == ["3 events were heard by no hook: too many waited, or the session ended"]

    run(work())


def test_as_many_events_wait_as_messages_for_one_agent() -> None:
    assert lifecycle.MAX_EVENTS == 10_000


# ── asking ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.15")
@pytest.mark.parametrize("kind", sorted(VETOABLE))
@pytest.mark.parametrize("raising", [sync_raising, async_raising, late_raising])
def test_a_veto_is_raised_where_a_hook_may_say_no(kind: Any, raising: Callable[[BaseException], Any]) -> None:
    async def work() -> None:
        log: Log = []
        async with told(hooked(kind, raising(Veto("not on a Sunday"))), log) as life:
            with pytest.raises(Veto) as caught:
                await life.ask(event(kind))
        assert caught.value.reason == "not on a Sunday"
        assert log == []

    run(work())


@pytest.mark.rule("06.15")
@pytest.mark.parametrize("kind", OBSERVING)
def test_an_observing_hook_cannot_say_no(kind: Any) -> None:
    async def work() -> None:
        log: Log = []
        async with told(hooked(kind, async_raising(Veto("no"))), log) as life:
            await life.ask(event(kind))
        assert len(log) == 1
        assert f"the hook {kind} raised Veto" in log[0]

    run(work())


@pytest.mark.rule("06.15")
@pytest.mark.parametrize("raising", [sync_raising, async_raising])
@pytest.mark.parametrize("error", [ValueError(), asyncio.CancelledError(), SystemExit()], ids=repr)
def test_a_hook_that_fails_when_asked_is_no_veto(
    raising: Callable[[BaseException], Any], error: BaseException
) -> None:
    async def work() -> None:
        log: Log = []
        async with told(Hooks(task_created=raising(error)), log) as life:
            await life.ask(event("task_created"))
        assert len(log) == 1

    run(work())


@pytest.mark.rule("06.15")
@pytest.mark.parametrize("sync", [True, False])
def test_a_hook_that_hangs_when_asked_is_no_veto(sync: bool, gate: threading.Event) -> None:
    async def work() -> None:
        log: Log = []

        async def hanging(one: LifecycleEvent) -> None:
            await asyncio.Event().wait()

        def blocking(one: LifecycleEvent) -> None:
            gate.wait()

        async with told(Hooks(task_created=blocking if sync else hanging), log, SOON) as life:
            await life.ask(event("task_created"))
        assert len(log) == 1
        assert "task_created took longer" in log[0]

    run(work())


def test_whoever_asks_waits_for_the_answer_and_may_give_up(gate: threading.Event) -> None:
    async def work() -> None:
        log: Log = []
        state: list[str] = []

        async def slow(one: LifecycleEvent) -> None:
            state.append("asked")
            try:
                await asyncio.Event().wait()
            finally:
                state.append("cancelled")

        async with told(Hooks(task_created=slow, task_completed=lambda _: gate.wait()), log) as life:
            asking = asyncio.create_task(life.ask(event("task_created")))
            await until(lambda: state)
            await turns()
            assert not asking.done()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await until(lambda: len(state) == 2)
            for _ in range(MAX_LATE):  # a thread whose asker has gone counts as one that hangs
                asking = asyncio.create_task(life.ask(event("task_completed")))
                await turns()
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
            assert log == []
            await life.ask(event("task_completed"))
            assert len(log) == 1
            assert "is not called: 3 calls" in log[0]

    run(work())


def test_sync_hooks_are_not_asked_by_ever_more_threads(gate: threading.Event) -> None:
    async def work() -> None:
        inside: list[str] = []

        def hook(one: LifecycleEvent) -> None:
            inside.append(one.msg_id)
            gate.wait()

        async with told(Hooks(task_created=hook)) as life:
            asked = [
                asyncio.create_task(life.ask(event("task_created", str(number)))) for number in range(20)
            ]
            await until(lambda: len(inside) == lifecycle.MAX_ASKING)
            await turns(100)
            assert len(inside) == lifecycle.MAX_ASKING
            gate.set()
            await asyncio.gather(*asked)
        assert sorted(inside, key=int) == [str(number) for number in range(20)]

    run(work())


# ── the end ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.15")
@pytest.mark.parametrize("begun", [True, False])
def test_close_lets_what_is_queued_be_heard(begun: bool) -> None:
    async def work() -> None:
        heard: list[str] = []

        async def hook(one: LifecycleEvent) -> None:
            await turns(2)
            heard.append(one.msg_id)

        life = Lifecycle(Hooks(message_queued=hook), quiet)
        for number in range(50):
            life.tell(event(msg_id=str(number)))
        if begun:
            await turns(3)
        await life.close()
        assert heard == [str(number) for number in range(50)]
        life.tell(event(msg_id="after"))
        await life.ask(event(msg_id="after"))
        await turns()
        await life.close()
        assert (len(heard), life.waiting, life.dropped) == (50, 0, 0)

    run(work())


@pytest.mark.rule("06.15")
@pytest.mark.parametrize("sync", [True, False])
def test_close_gives_up_what_hangs_and_counts_what_nobody_heard(sync: bool, gate: threading.Event) -> None:
    """The hook's own deadline does not help here: there are more events than the time to close allows."""

    async def work() -> None:
        log: Log = []
        called: list[LifecycleEvent] = []

        async def hanging(one: LifecycleEvent) -> None:
            called.append(one)
            await asyncio.Event().wait()

        def blocking(one: LifecycleEvent) -> None:
            called.append(one)
            gate.wait()

        life = Lifecycle(Hooks(message_queued=blocking if sync else hanging), log.append, seconds=SOON)
        for _ in range(1_000):
            life.tell(event())
        await life.close()
        await turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert life.waiting == 0
        if not sync:  # a sync one is not called again after three, so that the rest passes quickly
            assert life.dropped + len(called) == 1_000
            assert life.dropped > 0
            assert log[-1].startswith(f"{life.dropped} events were heard by no hook")

    run(work())
    assert not gate.is_set()


def test_whoever_waits_to_ask_asks_nothing_once_it_is_closed(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "MAX_ASKING", 1)

    async def work() -> None:
        inside: list[str] = []

        def hook(one: LifecycleEvent) -> None:
            inside.append(one.msg_id)
            gate.wait()

        life = Lifecycle(Hooks(task_created=hook), quiet)
        asked = [asyncio.create_task(life.ask(event("task_created", str(number)))) for number in range(2)]
        await until(lambda: inside)
        await life.close()
        gate.set()
        await asyncio.gather(*asked)
        assert inside == ["0"]

    run(work())


def test_a_hook_that_closes_ends_at_its_deadline_at_the_latest() -> None:
    async def work() -> None:
        closing: list[Lifecycle] = []
        tried: list[bool] = []

        async def hook(one: LifecycleEvent) -> None:
            tried.append(True)
            await closing[0].close()

        async with told(Hooks(message_queued=hook), None, SOON) as life:
            closing.append(life)
            life.tell(event())
            await until(lambda: tried)

    run(work())


def test_who_gives_up_closing_leaves_no_worker_behind() -> None:
    async def work() -> None:
        begun: list[bool] = []

        async def hanging(one: LifecycleEvent) -> None:
            begun.append(True)
            await asyncio.Event().wait()

        life = Lifecycle(Hooks(message_queued=hanging), quiet, seconds=NEVER)
        life.tell(event())
        await until(lambda: begun)
        closing = asyncio.create_task(life.close())
        await turns()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(work())


def test_a_veto_says_why() -> None:
    assert (str(Veto("busy")), Veto("busy").reason) == ("busy", "busy")
    assert Veto().reason == ""
