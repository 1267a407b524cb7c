"""Rows 1 and 2: agents inside one session, through the agents that ship.

One session in memory has ten thousand live agents, and ninety thousand other names in its index. What is timed is what
a host calls: `Agent.send_call` and `Agent.drain`, and for an answer `Agent.wait`. The loop guard counts with its limits
lifted (12.23), and each name was written to before, as in a conversation that goes on.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
from contextlib import AsyncExitStack, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import peers
from benchmarks.harness import ITSELF, Goal, Group, beside, floor, ours, peer
from benchmarks.inprocess import SUMMARY, TEXT, candidates, names, names_of
from postroom import Evidence, Gathering, Limits, Receipt, Refusal, Session, open_in_memory
from postroom.agents import Agents
from postroom.core.queues import CAPACITY
from postroom.opening import epoch_ms, new_id
from postroom.standing import Standing
from postroom.state import memory_directory
from postroom.state.memory_directory import MemoryDirectory
from postroom.state.memory_store import MemoryStore
from postroom.state.record import Record
from postroom.transports.memory import Hub, MemoryTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence

    from benchmarks.harness import Bench
    from postroom.agent import Agent

LIVE = 10_000

EXCHANGES = 10
"""Messages and answers of one cause: so many returns the guard's limits allow (03.61)."""


class House(NamedTuple):
    """A session with agents in it.

    Attributes:
        session: the session.
        agents: all of them; beside the sender each has a name of `inprocess.names`.
        sender: the one that writes.
        live: the others.
    """

    session: Session
    agents: Agents
    sender: Agent
    live: Sequence[Agent]


async def built(stack: AsyncExitStack, many: int, live: int) -> House:
    """A session among so many names, so many of which are live agents of its own."""
    session = await stack.enter_async_context(
        open_in_memory("hosting", Gathering(), limits=Limits.unbounded())
    )
    agents = Agents(session, transcripts=False)
    inside, outside = names(many)[:live], names(many)[live:]
    index = session.directory.own_index()
    for candidate in candidates(outside):
        index.add(candidate)
    sender = await agents.start("sender")
    return House(session, agents, sender, [await agents.start(name) for name in inside])


@contextmanager
def house(runner: asyncio.Runner, many: int, live: int) -> Generator[House]:
    """The same while a block runs."""
    stack = AsyncExitStack()
    try:
        yield runner.run(built(stack, many, live))
    finally:
        runner.run(stack.aclose())


def leave_alone() -> None:
    """Python's collector does not look at what is there now: a round shall not wait for that."""
    gc.collect()
    gc.freeze()


def call(to: str, in_reply_to: str | None = None) -> dict[str, object]:
    """What a model gives to the SendMessage tool."""
    raw: dict[str, object] = {"to": to, "message": TEXT, "summary": SUMMARY}
    return raw if in_reply_to is None else {**raw, "in_reply_to": in_reply_to}


def queued(result: Receipt | Refusal) -> None:
    """A send that did not arrive spoils the figure."""
    if not isinstance(result, Receipt) or result.status not in ("queued", "written"):
        raise RuntimeError(f"it was not sent: {result}")


# ── row 1 ────────────────────────────────────────────────────────────────────────────────────────


def one_way(bench: Bench) -> Generator[Group]:
    """One message from one agent of this process to another, and what a host with very many of them sees."""
    many = names_of(bench)
    live = int(bench.choose(full=LIVE, quick=LIVE, smoke=LIVE / 100))
    count = bench.count(1_000)
    with asyncio.Runner() as runner, house(runner, many, live) as made, peers.autogen(TEXT) as autogen:
        leave_alone()
        publish = autogen and (lambda: autogen.publish(bench.count(200)))
        targets = random.Random(13).choices(made.live, k=count)
        yield Group(
            title=f"validate, resolve among {many:,}, guard, id, enqueue, drain",
            slices=bench.slices,
            cases=(
                floor("resolve, id, append, drain: dict, urandom, list, swap", bare_send(many, targets)),
                ours("Agent.send_call, Agent.drain", lambda: runner.run(send_and_drain(made, targets))),
                beside("the floor without an id", bare_send(many, targets, with_id=False)),
                peer(peers.AUTOGEN_PUBLISH, publish, peers.NO_AUTOGEN),
            ),
            goals=(
                Goal(limit=4, text="≤ 4 × the floor"),
                Goal(limit=1 / 10, over=peers.AUTOGEN_PUBLISH, text="≤ 1/10 of autogen-core publish"),
            ),
        )
        yield Group(
            title=f"{live:,} live agents, a message each, then each drains",
            cases=(
                floor("the same dict and lists", lambda: bare_round(made.live)),
                ours("Agent.send_call, Agent.drain", lambda: runner.run(send_then_drain(made))),
            ),
        )
        most = min(CAPACITY, bench.count(CAPACITY))
        yield Group(
            title=f"one drain of {most:,} that wait for one agent, a message",
            cases=(
                floor("a list is swapped and made a tuple", lambda: bare_drain(most)),
                ours("Agent.drain", lambda: runner.run(drain_all(made, most, shown=False))),
                beside(
                    "Agent.drain, and each as the model sees it", lambda: runner.run(drain_all(made, most))
                ),
            ),
        )
        yield Group(
            title="tasks that a message costs",
            unit="tasks",
            cases=(
                floor("an append", lambda: 0.0),
                ours(
                    "Agent.send_call, Agent.drain",
                    lambda: runner.run(tasks_made(lambda: send_and_drain(made, targets), count)),
                ),
            ),
            goals=(Goal(limit=0, over=ITSELF, text="none"),),
            rounds=1,
        )


def bare_send(many: int, targets: Sequence[Agent], *, with_id: bool = True) -> Callable[[], float]:
    """The least: a dictionary leads to a list, the list is swapped for an empty one."""
    identities = {name: f"id-{number}" for number, name in enumerate(names(many))}
    asked = [agent.name for agent in targets]
    waiting: dict[str, list[tuple[str, str, str, str]]] = {identities[name]: [] for name in asked}
    urandom = os.urandom

    def run() -> float:
        begun = perf_counter()
        for to in asked:
            identity = identities[to]
            msg_id = urandom(16).hex() if with_id else ""
            waiting[identity].append((msg_id, "sender", SUMMARY, TEXT))
            taken = waiting[identity]
            waiting[identity] = []
            if not taken:
                raise RuntimeError("a message was lost")
        return (perf_counter() - begun) / len(asked)

    return run


async def send_and_drain(made: House, targets: Sequence[Agent]) -> float:
    """One message and its drain, again and again."""
    send = made.sender.send_call
    begun = perf_counter()
    for agent in targets:
        queued(await send(call(agent.name)))
        if len(agent.drain()) != 1:
            raise RuntimeError("a message was lost")
    return (perf_counter() - begun) / len(targets)


def bare_round(live: Sequence[Agent]) -> float:
    """A list for each name: all are written to, then all are swapped."""
    waiting: dict[str, list[tuple[str, str, str, str]]] = {agent.name: [] for agent in live}
    urandom = os.urandom
    begun = perf_counter()
    for name in waiting:
        waiting[name].append((urandom(16).hex(), "sender", SUMMARY, TEXT))
    for name in waiting:
        taken = waiting[name]
        waiting[name] = []
        if not taken:
            raise RuntimeError("a message was lost")
    return (perf_counter() - begun) / len(waiting)


async def send_then_drain(made: House) -> float:
    """All are written to, then all drain."""
    send = made.sender.send_call
    begun = perf_counter()
    for agent in made.live:
        queued(await send(call(agent.name)))
    for agent in made.live:
        if len(agent.drain()) != 1:
            raise RuntimeError("a message was lost")
    return (perf_counter() - begun) / len(made.live)


def bare_drain(count: int) -> float:
    """A list is swapped for an empty one, and made a tuple that nobody changes."""
    waiting = [(f"{number:032x}", "sender", SUMMARY, TEXT) for number in range(count)]
    begun = perf_counter()
    taken, waiting = waiting, []
    kept = tuple(taken)
    took = perf_counter() - begun
    if len(kept) != count:
        raise RuntimeError("a message was lost")
    return took / count


async def drain_all(made: House, count: int, *, shown: bool = True) -> float:
    """One agent has very much waiting, and takes it in one step.

    Args:
        shown: whether each is made an attachment for the model too.
    """
    agent = made.live[0]
    for _ in range(count):
        queued(await made.sender.send_call(call(agent.name)))
    begun = perf_counter()
    batch = agent.drain()
    if shown and len(batch.texts) != count:
        raise RuntimeError("an attachment is missing")
    took = perf_counter() - begun
    if len(batch) != count:
        raise RuntimeError("a message was lost")
    return took / count


async def tasks_made(work: Callable[[], Awaitable[object]], count: int) -> float:
    """How many tasks the event loop was asked for, for each of `count` messages."""
    loop = asyncio.get_running_loop()
    made: list[object] = []

    def counting(
        loop: asyncio.AbstractEventLoop, coroutine: Coroutine[object, object, object], **more: object
    ) -> asyncio.Task[object]:
        made.append(None)
        return asyncio.Task(coroutine, loop=loop, **more)  # type: ignore[arg-type]

    loop.set_task_factory(counting)  # type: ignore[arg-type]
    try:
        await work()
    finally:
        loop.set_task_factory(None)
    return len(made) / count


# ── row 2 ────────────────────────────────────────────────────────────────────────────────────────


def message_and_answer(bench: Bench) -> Generator[Group]:
    """One message and its answer, one at a time."""
    two, whole = "two agents of one session", "two sessions in memory"
    count = bench.count(500)
    with (
        asyncio.Runner() as runner,
        house(runner, names_of(bench), 1) as made,
        peers.autogen(TEXT) as autogen,
    ):
        leave_alone()
        pair = runner.run(two_sessions())
        send = autogen and (lambda: autogen.send(bench.count(100)))
        yield Group(
            title="one at a time",
            slices=bench.slices,
            cases=(
                floor("two bare tasks, a list and an event each", lambda: runner.run(bare_talk(count))),
                ours(two, lambda: runner.run(talk_inside(made.sender, made.live[0], count))),
                beside(whole, lambda: runner.run(talk(*pair, bench.count(100)))),
                peer(peers.AUTOGEN_SEND, send, peers.NO_AUTOGEN),
            ),
            goals=(
                Goal(limit=3, text="≤ 3 × two bare tasks"),
                Goal(limit=1 / 5, over=peers.AUTOGEN_SEND, text="≤ 1/5 of autogen-core send_message"),
            ),
            note="Two sessions go through frames, journals, leases and acknowledgements.",
        )
        for session in pair:
            runner.run(session.close())


async def bare_talk(count: int) -> float:
    """Two tasks that hand each other a message through a list, and wake each other."""
    there: list[tuple[str, str]] = []
    back: list[tuple[str, str]] = []
    asked, answered = asyncio.Event(), asyncio.Event()

    async def answer() -> None:
        while True:
            await asked.wait()
            asked.clear()
            back.extend(there)
            there.clear()
            answered.set()

    answering = asyncio.create_task(answer())
    begun = perf_counter()
    for _ in range(count):
        there.append((os.urandom(16).hex(), TEXT))
        asked.set()
        await answered.wait()
        answered.clear()
        back.clear()
    took = (perf_counter() - begun) / count
    answering.cancel()
    return took


async def talk_inside(asking: Agent, answering: Agent, count: int) -> float:
    """One agent asks another and waits for the answer, again and again.

    After some exchanges the asking one has nothing more to do, and begins anew: with the limits lifted, the chain of
    what caused what would else grow for ever.
    """

    async def answer() -> None:
        while await answering.wait():
            for entry in answering.drain().entries:
                queued(await answering.send_call(call(asking.name, in_reply_to=entry.msg_id)))

    task = asyncio.create_task(answer())
    begun = perf_counter()
    for number in range(count):
        queued(await asking.send_call(call(answering.name)))
        await asking.wait()
        if not asking.drain():
            raise RuntimeError("an answer was lost")
        if number % EXCHANGES == 0:
            await asking.wait(0.0)
    took = (perf_counter() - begun) / count
    task.cancel()
    return took


async def two_sessions() -> tuple[Session, Session]:
    """Two sessions of the library that know each other, over the transport in memory."""
    hub, gathering = Hub(), memory_directory.Gathering()
    made: list[Session] = []
    for name in ("asking", "answering"):
        address = f"memory:{name}"
        record = Record(
            pid=os.getpid(),
            session_id=f"id-{name}",
            name=name,
            messaging_socket_path=address,
            peer_features=("postroom_ack",),
        )
        gathering.claim(name, record.session_id)
        gathering.join(record, address)
        session = Session(
            record=record,
            clock=epoch_ms,
            ids=new_id,
            store=MemoryStore(name),
            directory=MemoryDirectory(gathering, record, address),
            transport=MemoryTransport(hub, name, evidence=Evidence("memory", pid=os.getpid())),
            standing=Standing(limits=Limits.unbounded()),
        )
        await session.serve()
        made.append(session)
    return made[0], made[1]


async def talk(asking: Session, answering: Session, count: int) -> float:
    """One asks and waits for the answer, again and again."""

    async def answer() -> None:
        while await answering.wait():
            for message in answering.drain():
                queued(
                    await answering.send("asking", message.text, summary=SUMMARY, in_reply_to=message.msg_id)
                )

    task = asyncio.create_task(answer())
    begun = perf_counter()
    for _ in range(count):
        queued(await asking.send("answering", TEXT, summary=SUMMARY))
        await asking.wait()
        if not asking.drain():
            raise RuntimeError("an answer was lost")
    took = (perf_counter() - begun) / count
    task.cancel()
    for session in (asking, answering):  # every round begins with what a session keeps, and no more
        for _ in range(count // 100 + 1):
            session.store.prune(epoch_ms())
    return took
