"""A session with agents inside it, as the tests of chapter 06 host one, and short ways to say what is expected."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, Unpack

from postroom import Agent, Agents, Batch, Gathering, Limits, Receipt, Refusal, Session, open_in_memory
from postroom.core import envelope
from postroom.core.settings import DEFAULTS, Settings
from tests.room import NOW, ROOMY


class Time:
    """A clock that stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@dataclass(eq=False)
class Starter:
    """A host's `resume` that starts a run and says so at once; the run's loop is the test's.

    Attributes:
        calls: (agent's id, number of the run, texts that it was started with), in order.
    """

    calls: list[tuple[str, int, list[str]]] = field(default_factory=list[tuple[str, int, "list[str]"]])

    async def __call__(self, agent: Agent, messages: object) -> None:
        assert isinstance(messages, Batch)
        self.calls.append((agent.id, agent.run, words(messages)))

    @property
    def texts(self) -> list[str]:
        """All that runs were started with."""
        return list(itertools.chain.from_iterable(texts for _, _, texts in self.calls))


class HostOptions(TypedDict, total=False):
    """What `Agents` takes."""

    resume: Callable[[Agent, object], object] | None
    run: Any
    wake: Callable[[], object] | None
    guard: Callable[[Agent], object] | None
    hooks: Any
    background: bool
    transcripts: bool
    start_seconds: float


@contextlib.asynccontextmanager
async def hosted(
    gathering: Gathering | None = None,
    *,
    name: str = "lead",
    limits: Limits | None = ROOMY,
    settings: Settings = DEFAULTS,
    clock: Callable[[], int] | None = None,
    **options: Unpack[HostOptions],
) -> AsyncGenerator[tuple[Session, Agents]]:
    """A session in memory that hosts agents, with a clock that stands still."""
    here = gathering or Gathering()
    async with open_in_memory(name, here, limits=limits, settings=settings, clock=clock or Time()) as session:
        yield session, Agents(session, **options)


@contextlib.asynccontextmanager
async def peer_of(
    gathering: Gathering, name: str = "peer", *, limits: Limits | None = ROOMY
) -> AsyncGenerator[Session]:
    """Another session in the same gathering."""
    async with open_in_memory(name, gathering, limits=limits, clock=Time()) as session:
        yield session


def sent(answer: Receipt | Refusal, status: str = "queued") -> Receipt:
    """The receipt of a send that went well."""
    assert isinstance(answer, Receipt), answer
    assert answer.status == status, answer
    return answer


def refused(answer: Receipt | Refusal, code: str) -> Refusal:
    """The refusal of a send that did not."""
    assert isinstance(answer, Refusal), answer
    assert answer.code == code, answer
    return answer


def words(batch: Batch) -> list[str]:
    """The texts in a batch as their senders wrote them, in order."""
    return [entry.text for entry in batch.entries]


def blocks(batch: Batch) -> list[envelope.Block]:
    """The blocks that a model finds in a batch."""
    return envelope.unframe(batch.text)


def attributes(block: envelope.Block) -> dict[str, str]:
    """What a block says of itself."""
    return dict(block.attributes)


def denying(*tools: str) -> Settings:
    """Settings that deny these tools."""
    return replace(DEFAULTS, denied=frozenset(tools))


async def both(*sends: Any) -> list[Receipt | Refusal]:
    """Sends at one time; the answers in order."""
    return list(await asyncio.gather(*sends))


def names(rows: Iterable[Any]) -> list[str]:
    """What rows are called."""
    return [row.name for row in rows]
