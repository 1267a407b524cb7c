"""Rows 15 and 16: what a session costs while nothing happens, and what it keeps in memory.

At rest, a session of the command and a bare interpreter with the same imports are looked at over the same seconds,
through what the kernel counts of them (Linux only). Memory is what Python's own allocator says was kept.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import time
import tracemalloc
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.harness import ITSELF, Goal, Group, beside, floor, ours
from benchmarks.inprocess import candidates
from benchmarks.inside import House, house, queued, send_and_drain
from benchmarks.installed import installed
from benchmarks.processes import SECONDS, end, private_place
from benchmarks.sockets import lines
from postroom import Evidence, Limits, Session
from postroom.core import wire
from postroom.core.index import Index
from postroom.opening import epoch_ms, new_id
from postroom.standing import Standing
from postroom.state.directory import Directory
from postroom.state.memory_directory import Gathering, MemoryDirectory
from postroom.state.memory_store import MemoryStore
from postroom.state.record import Record
from postroom.state.roster import Roster
from postroom.transports.memory import Hub, MemoryTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from benchmarks.harness import Bench
    from postroom.agent import Agent

WINDOWS = 5
TEXT_BYTES = 500
MINUTE = 60.0


# ── row 15 ───────────────────────────────────────────────────────────────────────────────────────


class Look(NamedTuple):
    """What the kernel counts of one process, since its start or for a length of time.

    Attributes:
        cpu: seconds that its threads ran.
        wakes: how often they gave up the processor of their own accord: once for each time they were woken.
        resident: bytes of memory.
    """

    cpu: float
    wakes: float
    resident: int


def look(pid: int) -> Look:
    """Looks at a process."""
    wakes = resident = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                wakes += int(line.split()[1])
            elif line.startswith("VmRSS:"):
                resident = int(line.split()[1]) * 1024
    return Look(time.clock_gettime(cpu_clock(pid)), wakes, resident)


def cpu_clock(pid: int) -> int:
    """The clock that counts what a process has run, to the nanosecond: Linux derives its number from the pid."""
    return (~pid << 3) | 2


def at_rest(bench: Bench) -> Generator[Group]:
    """Row 15: a session that nobody writes to."""
    command = installed(bench)
    seconds = bench.choose(full=60, quick=10, smoke=0.2)
    windows = 1 if bench.mode == "smoke" else WINDOWS
    with private_place() as place, end("idle", python=command.python, environ=place.environ) as bare:
        opened = subprocess.run(
            [command.postroom, "open", "--name", "resting", "--detach", "--json"],
            env=place.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
        pid = int(json.loads(opened.stdout)["pid"])
        try:
            time.sleep(bench.choose(full=2, quick=1, smoke=0))
            rests = [rest((bare.pid, pid), seconds / windows) for _ in range(windows)]
        finally:
            os.kill(pid, signal.SIGTERM)
    figures: tuple[tuple[str, Callable[[Look], float], Sequence[Goal]], ...] = (
        ("CPU in a minute", lambda each: each.cpu, ()),
        (
            "wake-ups",
            lambda each: each.wakes,
            (Goal(limit=1, over=ITSELF, text="no more than one a second"),),
        ),
        ("resident memory", lambda each: each.resident, (Goal(limit=2, text="≤ 2 × the same imports"),)),
    )
    for (title, figure, goals), unit in zip(figures, ("s", "/s", "B"), strict=True):
        yield Group(
            title=f"{title}, over {seconds:g} s",
            unit=unit,
            cases=(
                floor("a bare interpreter with the same imports", given([figure(each) for each, _ in rests])),
                ours("postroom open --detach", given([figure(each) for _, each in rests])),
            ),
            goals=goals,
            rounds=len(rests),
            warm=False,
            note=command.note,
        )


def rest(pids: tuple[int, int], seconds: float) -> tuple[Look, Look]:
    """What two processes did over the same seconds: CPU for each minute, wake-ups for each second, and memory."""
    before, begun = [look(pid) for pid in pids], time.perf_counter()
    time.sleep(seconds)
    afterwards, took = [look(pid) for pid in pids], time.perf_counter() - begun
    one, other = (
        Look((now.cpu - then.cpu) / took * MINUTE, (now.wakes - then.wakes) / took, now.resident)
        for then, now in zip(before, afterwards, strict=True)
    )
    return one, other


def given(values: Sequence[float]) -> Callable[[], float]:
    """Hands out what was measured already, a value a round."""
    return iter(values).__next__


# ── row 16 ───────────────────────────────────────────────────────────────────────────────────────


def memory(bench: Bench) -> Generator[Group]:
    """Row 16: what one more waiting message keeps, and one more session that can be written to."""
    count = int(bench.choose(full=4_000, quick=1_000, smoke=40))
    text = "x" * (TEXT_BYTES - 7)
    with asyncio.Runner() as runner:
        yield Group(
            title=f"a waiting message of {TEXT_BYTES} bytes, in the memory store",
            unit="B",
            cases=(
                floor(
                    "its text in a list",
                    lambda: kept(lambda: [f"{n:07d}{text}" for n in range(count)], count),
                ),
                ours("a session's inbox", lambda: kept(waiting(runner, count, text), count)),
            ),
            goals=(Goal(limit=4 * TEXT_BYTES, over=ITSELF, text=f"≤ 4 × its text, {4 * TEXT_BYTES:,} B"),),
        )
    yield from memory_inside(bench, count, text)
    peers = int(bench.choose(full=1_000, quick=500, smoke=20))
    with private_place() as place, end("crowd", place.state, place.run, str(peers), environ=place.environ):
        names = [f"worker-{number:06d}" for number in range(peers)]
        yield Group(
            title=f"a tracked peer, of {peers:,}",
            unit="B",
            cases=(
                floor(
                    "its name, identity and address in a dict",
                    lambda: kept(
                        lambda: {f"{each}": (f"id-{each}-{new_id()}", f"uds:/run/{each}") for each in names},
                        peers,
                    ),
                ),
                ours(
                    "a session's directory: record, candidate, index",
                    lambda: kept(tracking(place.state), peers),
                ),
                beside("the index alone", lambda: kept(lambda: Index(candidates(names)), peers)),
            ),
            goals=(Goal(limit=1024, over=ITSELF, text="≤ 1 KiB"),),
        )


def memory_inside(bench: Bench, count: int, text: str) -> Generator[Group]:
    """The same inside one session: a message that waits for an agent, and an agent.

    Args:
        count: messages.
        text: what each says, apart from its number.
    """
    live = int(bench.choose(full=1_000, quick=500, smoke=20))
    names = [f"worker-{number:06d}" for number in range(live)]

    async def send(agent: Agent, to: Agent, said: str = text) -> None:
        queued(await agent.send_call({"to": to.name, "message": said, "summary": "one"}))

    async def sent(made: House) -> object:
        for number in range(count):
            await send(made.sender, made.live[0], f"{number:07d}{text}")
        if made.live[0].waiting != count:
            raise RuntimeError("a message was lost")
        return made

    async def started(made: House, *, heard: bool, wrote: bool) -> object:
        new = [await made.agents.start(name) for name in names]
        for agent in new:
            if heard:
                await send(made.sender, agent)
                agent.drain()
            if wrote:
                await send(agent, made.live[0])
                made.live[0].drain()
        return new

    def in_a_house(work: Callable[[House], Awaitable[object]], many: int) -> float:
        with asyncio.Runner() as runner, house(runner, 1, 1) as made:
            runner.run(send_and_drain(made, made.live))
            return kept(lambda: runner.run(awaited(work(made))), many)

    yield Group(
        title=f"a message of {TEXT_BYTES} bytes that waits for an agent",
        unit="B",
        cases=(
            floor(
                "its text in a list",
                lambda: kept(lambda: [f"{n:07d}{text}" for n in range(count)], count),
            ),
            ours("an agent's list", lambda: in_a_house(sent, count)),
        ),
        goals=(Goal(limit=4 * TEXT_BYTES, over=ITSELF, text=f"≤ 4 × its text, {4 * TEXT_BYTES:,} B"),),
    )
    yield Group(
        title=f"a live agent, of {live:,}",
        unit="B",
        cases=(
            floor(
                "its name, identity and list in a dict",
                lambda: kept(
                    lambda: {f"{each}": (f"id-{each}-{new_id()}", list[str]()) for each in names}, live
                ),
            ),
            ours("as it was started", lambda: in_a_house(partial(started, heard=False, wrote=False), live)),
            beside(
                "that one other has written to",
                lambda: in_a_house(partial(started, heard=True, wrote=False), live),
            ),
            beside(
                "that has written to one other too",
                lambda: in_a_house(partial(started, heard=True, wrote=True), live),
            ),
        ),
        goals=(Goal(limit=1024, over=ITSELF, text="≤ 1 KiB"),),
    )


async def awaited(work: Awaitable[object]) -> object:
    """What a runner may run."""
    return await work


def kept(make: Callable[[], object], count: int) -> float:
    """Bytes for each of `count` that are still there when `make` has ended and its result is held."""
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        result = make()
        gc.collect()
        now, _ = tracemalloc.get_traced_memory()
        del result
    finally:
        tracemalloc.stop()
    return (now - before) / count


class Quiet:
    """A channel whose other end does not listen."""

    def __init__(self) -> None:
        self.evidence = Evidence("uds", pid=os.getpid(), start="1")

    def answer(self, line: bytes) -> None:
        """Nobody reads it."""

    def flush(self) -> None:
        """Nothing is queued."""


def waiting(runner: asyncio.Runner, count: int, text: str) -> Callable[[], object]:
    """Prepares so many frames; what is returned lets a session of the library take them in."""
    address = "uds:/run/postroom/1000.sock"
    frames = [line for number in range(count) for line in lines(1, address, f"{number:07d}{text}")]

    async def take_in() -> object:
        record = Record(pid=os.getpid(), session_id="id-receiver", name="receiver")
        session = Session(
            record=record,
            clock=epoch_ms,
            ids=new_id,
            store=MemoryStore(),
            directory=MemoryDirectory(Gathering(), record, "memory:receiver"),
            transport=MemoryTransport(Hub(), "receiver"),
            standing=Standing(limits=Limits.unbounded()),
        )
        channel = Quiet()
        for line in frames:
            frame = wire.decode(line.rstrip())
            assert isinstance(frame, wire.UserFrame)
            session.arrive(frame, channel)
        if session.store.waiting_count != count:
            raise RuntimeError("a message was lost")
        return session

    return lambda: runner.run(take_in())


def tracking(state: str) -> Callable[[], object]:
    """What a session keeps of everybody it can write to."""

    def look_around() -> object:
        directory = Directory(Roster(state))
        directory.index()
        return directory

    return look_around
