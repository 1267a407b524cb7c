"""Rows 1, 2, 3 and 3b: what happens inside one process, without a socket and without a disk.

Row 1 is measured over the functions that a send inside a session will go through, as agents
are not built yet. Row 2 runs between two whole sessions over the transport in memory, codec and journal included.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import unicodedata
from bisect import bisect_left, insort
from functools import lru_cache, partial
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.harness import Goal, Group, beside, floor, ours, peer, timed_over
from postroom import Evidence, Limits, Message, Origin, Receipt, Refusal, Session
from postroom.core import contract, resolve
from postroom.core.address import ref_of
from postroom.core.index import Candidate, Index
from postroom.core.queues import MainQueue
from postroom.opening import epoch_ms, new_id
from postroom.standing import Standing
from postroom.state.memory_directory import Gathering, MemoryDirectory
from postroom.state.memory_store import MemoryStore
from postroom.state.record import Record
from postroom.transports.memory import Hub, MemoryTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from benchmarks.harness import Bench

MANY = 100_000
FEW = 100
PROBES = 1_000

WORDS = "research build test review deploy plan docs front back data".split()
TEXT = "Please review the failing authentication tests in tests/auth. " * 4
SUMMARY = "request test review"


# ── the names ────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=4)
def names(count: int) -> tuple[str, ...]:
    """So many names, no two alike, in no order."""
    chance = random.Random(7)
    made = [f"{chance.choice(WORDS)}-{number:06d}-{chance.choice(WORDS)}" for number in range(count)]
    chance.shuffle(made)
    return tuple(made)


@lru_cache(maxsize=4)
def index(count: int) -> Index:
    """The shipped index of so many names. Python's collector leaves it alone: a round shall not wait for that."""
    made = Index(candidates(names(count)))
    gc.collect()
    gc.freeze()
    return made


def candidates(named: Sequence[str]) -> list[Candidate]:
    """A session for each name."""
    return [
        Candidate(
            identity=identity, name=name, ref=ref_of(identity), address=f"memory:{name}", pid=1000 + number
        )
        for number, name in enumerate(named)
        for identity in [f"00000000-0000-4000-8000-{number:012d}"]
    ]


def probes(count: int) -> list[str]:
    """Names that are asked for, spread over all of them."""
    return random.Random(11).choices(names(count), k=PROBES)


def other_spelling(name: str) -> str:
    """The same name as somebody else may write it."""
    return name.replace("-", "_").title()


def beginning(name: str) -> str:
    """The part of a name that is still nobody else's."""
    return name.rpartition("-")[0]


# ── row 1 ────────────────────────────────────────────────────────────────────────────────────────


def one_way(bench: Bench) -> Generator[Group]:
    """One message from one conversation of this process into the queue of another, and out of it."""
    many = names_of(bench)
    count = bench.count(1_000)
    targets = random.Random(13).choices(names(many), k=count)
    bare = bare_send(names(many), targets)
    with peers.autogen(TEXT) as autogen:
        publish = autogen and (lambda: autogen.publish(bench.count(200)))
        yield Group(
            title=f"validate, resolve among {many:,}, id, enqueue, drain",
            slices=bench.slices,
            cases=(
                floor("resolve, id, append, drain: dict, urandom, list, swap", lambda: bare(True)),
                ours("contract, resolve, id, Message, MainQueue", shipped_send(index(many), targets)),
                beside("the floor without an id", lambda: bare(False)),
                peer(peers.AUTOGEN_PUBLISH, publish, peers.NO_AUTOGEN),
            ),
            goals=(
                Goal(limit=4, text="≤ 4 × the floor"),
                Goal(limit=1 / 10, over=peers.AUTOGEN_PUBLISH, text="≤ 1/10 of autogen-core publish"),
            ),
            note="Without agents, which are not built yet; the loop guard is part of rows 2 and 4 to 7.",
        )


def bare_send(named: Sequence[str], targets: Sequence[str]) -> Callable[[bool], float]:
    """The least: a dictionary leads to a list, the list is swapped for an empty one."""
    identities = {name: f"id-{number}" for number, name in enumerate(named)}
    waiting: dict[str, list[tuple[str, str, str, str]]] = {identities[name]: [] for name in set(targets)}
    urandom = os.urandom

    def run(with_id: bool) -> float:
        begun = perf_counter()
        for to in targets:
            identity = identities[to]
            msg_id = urandom(16).hex() if with_id else ""
            waiting[identity].append((msg_id, "sender", SUMMARY, TEXT))
            taken = waiting[identity]
            waiting[identity] = []
            if not taken:
                raise RuntimeError("a message was lost")
        return (perf_counter() - begun) / len(targets)

    return run


def shipped_send(among: Index, targets: Sequence[str]) -> Callable[[], float]:
    """The same through the code that ships."""
    caller = contract.Caller(kind="agent")
    origin = Origin(kind="agent", identity="sender", verified=True, name="sender", transport="memory")
    pins = pinned()
    wanted = set(targets)
    queues: dict[str, MainQueue[Message]] = {
        candidate.identity: MainQueue() for candidate in among if candidate.name in wanted
    }

    def run() -> float:
        begun = perf_counter()
        for to in targets:
            draft = contract.validate({"to": to, "message": TEXT, "summary": SUMMARY}, caller)
            if isinstance(draft, Refusal) or draft.text is None:
                raise RuntimeError("a call was refused")
            found = resolve.resolve(draft.to, among, pins=pins, caller="sender")
            if isinstance(found, Refusal):
                raise RuntimeError("a name was refused")
            queue = queues[found.candidate.identity]
            queue.append(
                Message(
                    msg_id=new_id(),
                    text=draft.text,
                    origin=origin,
                    received_at=epoch_ms(),
                    summary=draft.summary,
                    in_reply_to=draft.in_reply_to,
                    state="accepted",
                )
            )
            if not queue.drain():
                raise RuntimeError("a message was lost")
        return (perf_counter() - begun) / len(targets)

    return run


# ── row 2 ────────────────────────────────────────────────────────────────────────────────────────


def message_and_answer(bench: Bench) -> Generator[Group]:
    """One message and its answer, one at a time."""
    with asyncio.Runner() as runner, peers.autogen(TEXT) as autogen:
        pair = runner.run(two_sessions())
        send = autogen and (lambda: autogen.send(bench.count(100)))
        yield Group(
            title="one at a time",
            slices=bench.slices,
            cases=(
                floor(
                    "two bare tasks, a list and an event each",
                    lambda: runner.run(bare_talk(bench.count(500))),
                ),
                ours("two sessions in memory", lambda: runner.run(talk(*pair, bench.count(100)))),
                peer(peers.AUTOGEN_SEND, send, peers.NO_AUTOGEN),
            ),
            goals=(
                Goal(limit=3, text="≤ 3 × two bare tasks"),
                Goal(limit=1 / 5, over=peers.AUTOGEN_SEND, text="≤ 1/5 of autogen-core send_message"),
            ),
            note="Two whole sessions with frames, journals and acknowledgements; agents of one session are not built yet.",
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


async def two_sessions() -> tuple[Session, Session]:
    """Two sessions of the library that know each other, over the transport in memory."""
    hub, gathering = Hub(), Gathering()
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


def queued(result: Receipt | Refusal) -> None:
    """A send that did not arrive spoils the figure."""
    if not isinstance(result, Receipt) or result.status not in ("queued", "written"):
        raise RuntimeError(f"it was not sent: {result}")


# ── rows 3 and 3b ────────────────────────────────────────────────────────────────────────────────


def bare_form(name: str) -> str:
    """The least that makes two spellings of a name one."""
    if name.isascii():
        return name.lower().replace("_", "-").replace(".", "-").replace(" ", "-")
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "-".join(plain.replace("_", " ").replace(".", " ").replace("-", " ").split())


class Bare:
    """Three tables over the same names, with no more code than a look-up."""

    def __init__(self, count: int) -> None:
        self.exact = {name: name for name in names(count)}
        self.by_form = {bare_form(name): name for name in self.exact}
        self.forms = sorted(self.by_form)

    def by_spelling(self, name: str) -> str | None:
        """Whoever has this name in some spelling."""
        return self.by_form.get(bare_form(name))

    def by_beginning(self, form: str) -> str | None:
        """The only one whose name begins so."""
        forms = self.forms
        at = bisect_left(forms, form)
        if at == len(forms) or not forms[at].startswith(form):
            return None
        if at + 1 < len(forms) and forms[at + 1].startswith(form):
            return None
        return self.by_form[forms[at]]


def pinned() -> resolve.Pins:
    """The pins of somebody who has written to a few others already."""
    pins = resolve.Pins()
    for candidate in candidates(["pinned-one", "pinned-two", "pinned-three"]):
        pins.made(candidate.name, resolve.Resolved(candidate, form=candidate.name))
    return pins


def resolved_over(among: Index, asked: Sequence[str], times: int) -> float:
    """Seconds for each target through the shipped ladder, called as a session calls it, with pins and a caller."""
    one, pins, received = resolve.resolve, pinned(), dict[str, str]()
    if any(isinstance(one(to, among, pins=pins, caller="sender"), Refusal) for to in asked):
        raise RuntimeError("a name was refused")
    begun = perf_counter()
    for _ in range(times):
        for to in asked:
            one(to, among, received=received, pins=pins, ended=nobody, caller="sender")
    return (perf_counter() - begun) / (times * len(asked))


def nobody(key: str) -> None:
    """No session has ended."""
    del key


def resolving(bench: Bench) -> Generator[Group]:
    """One look-up among 100,000 names, each of three ways against the least that finds it."""
    many, times = names_of(bench), bench.count(10)
    bare, exact, among = Bare(many), probes(many), index(many)
    for title, asked, least, work, limit in (
        ("exact name", exact, "dict", bare.exact.get, 5),
        (
            "another spelling",
            [other_spelling(name) for name in exact],
            "normalise and dict",
            bare.by_spelling,
            3,
        ),
        ("a unique prefix", [beginning(name) for name in exact], "bisect", bare.by_beginning, 3),
    ):
        yield Group(
            title=f"{title}, among {many:,}",
            slices=bench.slices,
            cases=(
                floor(least, partial(timed_over, work, asked, times)),
                ours("resolve", partial(resolved_over, among, asked, times)),
            ),
            goals=(Goal(limit=limit, text=f"≤ {limit} × {least}"),),
        )


def growing(bench: Bench) -> Generator[Group]:
    """The same among 100,000 as among 100, and what one change of the roster costs."""
    many, times = names_of(bench), bench.count(10)
    few = min(FEW, many)
    ways: tuple[tuple[str, Callable[[str], str]], ...] = (
        ("exact name", str),
        ("another spelling", other_spelling),
        ("a unique prefix", beginning),
    )
    for title, spelled in ways:
        asked_few, asked_many = [[spelled(name) for name in probes(count)] for count in (few, many)]
        yield Group(
            title=title,
            slices=bench.slices,
            cases=(
                floor(f"resolve among {few:,}", partial(resolved_over, index(few), asked_few, times)),
                ours(f"resolve among {many:,}", partial(resolved_over, index(many), asked_many, times)),
            ),
            goals=(Goal(limit=2, text=f"among {many:,} ≤ 2 × among {few:,}"),),
        )
    yield changing(many, bench.count(2_000))


def names_of(bench: Bench) -> int:
    """How many names there are; fewer where nothing but running matters."""
    return int(bench.choose(full=MANY, quick=MANY, smoke=MANY / 100))


def changing(many: int, count: int) -> Group:
    """One session comes and goes."""
    added = [f"new-{number:06d}" for number in range(count)]
    new = [
        Candidate(identity=f"new-{number}", name=name, ref="000000", address=f"memory:{name}")
        for number, name in enumerate(added)
    ]
    bare, among = Bare(many), index(many)
    tenth = candidates(names(many)[: many // 10])

    def least() -> float:
        begun = perf_counter()
        for name in added:
            bare.exact[name] = bare.by_form[name] = name
            insort(bare.forms, name)
        for name in added:
            del bare.exact[name], bare.by_form[name]
            del bare.forms[bisect_left(bare.forms, name)]
        return (perf_counter() - begun) / (2 * count)

    def change() -> float:
        begun = perf_counter()
        for candidate in new:
            among.add(candidate)
        for candidate in new:
            among.remove(candidate.identity)
        return (perf_counter() - begun) / (2 * count)

    def rebuild() -> float:
        begun = perf_counter()
        Index(tenth)
        return perf_counter() - begun

    rebuilt = "making a tenth of the index anew"
    return Group(
        title=f"one change among {many:,}",
        cases=(
            floor("two dicts and a sorted list", least),
            ours("Index.add or Index.remove", change),
            beside(rebuilt, rebuild),
        ),
        goals=(Goal(limit=1 / 100, over=rebuilt, text="no rebuild: ≤ 1/100 of one"),),
    )
