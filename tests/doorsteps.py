"""What the tests of doors share: a client as a door sees it, and doors that do what a test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from postroom import Session, clients
from postroom.client import Client, DoorFact
from postroom.core.message import PermissionClass
from postroom.doors import Attended, Rang
from postroom.doors.ringing import Ringer
from postroom.state import processes

RECORDED = Path(__file__).parent / "recorded"
PARTIES = Path(__file__).parent / "parties"

SECONDS = 30.0
"""The bound of every wait; no test depends on how long one takes."""


def recorded(name: str) -> dict[str, Any]:
    """One recording, such as `codex/queue`."""
    return json.loads((RECORDED / f"{name}.json").read_text())


def fact(name: str, **more: Any) -> DoorFact:
    """What is known of a door."""
    values: dict[str, Any] = {
        "wakes": True,
        "during_turn": "yes",
        "confirms": "accepted",
        "needs": "Nothing.",
    }
    return DoorFact(name=name, **{**values, **more})


TWO_DOORS = Client(
    name="generic",
    title="Program",
    doors=(fact("hooks"), fact("native", confirms="written"), fact("codex-queue")),
)


@dataclass
class Here:
    """A `postroom.doors.Attended`."""

    session: Session | None = None
    client: Client = TWO_DOORS
    process: tuple[int, str] = (0, "")
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str = "/"
    conversation: str = ""
    variables: Mapping[str, str] | None = None

    def variable(self, name: str) -> str:
        """What the test says, else what the process was started with."""
        if self.variables is not None:
            return self.variables.get(name, "")
        return processes.environment_of(self.process[0], (name,)).get(name, "")


def here_of(program: str, pid: int, **more: Any) -> Here:
    """A client's process as presence sees it."""
    values: dict[str, Any] = {
        "client": clients.load(program),
        "process": (pid, processes.start_of(pid) or ""),
        "environ": dict(os.environ),
    }
    return Here(**{**values, **more})


class Played:
    """A door that does what a test says; a `postroom.doors.Door`.

    Attributes:
        why_not: what it answers when it is asked whether it is there.
        outcomes: what its rings come to, one after the other; then `accepted`.
        gate: a ring waits for it before it comes to its end.
        rings: (text, ids, class) of each ring.
        looks: how often it was asked whether it is there.
    """

    def __init__(self, name: str, room: int = 100_000) -> None:
        self.name = name
        self.room = room
        self.why_not = ""
        self.outcomes: list[Rang | Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.rings: list[tuple[str, tuple[str, ...], PermissionClass | None]] = []
        self.looks = 0
        self.closed = False
        self.dropped: Callable[[Sequence[str], str], None] = lambda ids, why: None
        self.changed = asyncio.Event()

    async def ready(self) -> str:
        self.looks += 1
        self.changed.set()
        return self.why_not

    async def ring(self, text: str, msg_ids: Sequence[str], stated: PermissionClass | None) -> Rang:
        self.rings.append((text, tuple(msg_ids), stated))
        self.changed.set()
        await self.gate.wait()
        outcome = self.outcomes.pop(0) if self.outcomes else Rang("accepted")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def close(self) -> None:
        self.closed = True

    @property
    def ids(self) -> list[tuple[str, ...]]:
        """The messages of each ring."""
        return [ids for _, ids, _ in self.rings]


class Doors:
    """The doors of one client, all played."""

    def __init__(self, *doors: Played) -> None:
        self.all = {door.name: door for door in doors}

    def load(self, name: str, here: Attended, dropped: Callable[[Sequence[str], str], None]) -> Played:
        del here
        self.all[name].dropped = dropped
        return self.all[name]


@contextlib.asynccontextmanager
async def ringing(session: Session, played: Doors, **more: Any) -> AsyncGenerator[Ringer]:
    """Rings these doors for a session while the block runs."""
    client = replace(TWO_DOORS, **more)
    ringer = Ringer(Here(session, client), load_door=played.load)
    task = asyncio.get_running_loop().create_task(ringer.run())
    try:
        yield ringer
        assert not task.done() or session.closed, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], object]) -> None:
    """Lets the event loop go on until a condition holds; fails after the bound."""
    async with asyncio.timeout(SECONDS):
        while not holds():
            await asyncio.sleep(0.001)


def rings(session: Session, msg_id: str) -> list[str]:
    """What the journal has of a message's rings, in order."""
    with session.reading() as store:
        return [step.detail for step in store.steps(msg_id) if step.state == "rang"]
