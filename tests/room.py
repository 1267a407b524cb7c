"""Sessions of one process with parts that a test can look into and break: for the tests of the middle layer.

Each is a process of its own as far as evidence goes. Time stands still unless a test moves it, ids are counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field, replace

from postroom import Gathering, Limits, Session
from postroom.core import envelope, wire
from postroom.core.message import Message, Step
from postroom.core.settings import DEFAULTS, Settings
from postroom.errors import StoreFailed
from postroom.opening import FEATURES
from postroom.standing import Standing
from postroom.state.keeping import Store
from postroom.state.memory_directory import MemoryDirectory
from postroom.state.memory_store import MemoryStore
from postroom.state.record import Kind, Record
from postroom.transport import Evidence
from postroom.transports.memory import Hub, MemoryTransport

NOW = 1_796_033_702_123
"""2026-11-30T10:15:02.123Z."""

ROOMY = replace(Limits.unbounded(), max_unread=50)
"""Bounds that let a test send what it likes, the cap on unread mail apart; `Limits()` are the usual ones."""

FAILED = StoreFailed("The message store cannot be written.", "Free some space, then try again.")


class DurableStore(MemoryStore):
    """A store in memory that commits as one in a file does: in its own time, and with a log of what it did.

    Attributes:
        events: `commit` for each group that was closed; channels write into the same list.
        unreadable: the next search for a step, a shown name or a message fails, as on a broken disk.
        unleasable: handing out fails.
        unnotable: writing down what is sent fails.
    """

    durable = True

    def __init__(self, session_name: str = "") -> None:
        super().__init__(session_name)
        self.events: list[str] = []
        self.unreadable = False
        self.unleasable = False
        self.unnotable = False

    def commit(self) -> None:
        if self.pending:
            super().commit()
            self.events.append("commit")

    def lose(self) -> None:
        """Fails as every method may: what was not committed is forgotten."""
        self.failing = "broken"
        try:
            super().commit()
        finally:
            self.failing = ""
        raise FAILED  # nothing was open

    def steps(self, msg_id: str) -> list[Step]:
        if self.unreadable:
            self.lose()
        return super().steps(msg_id)

    def known(self, shown: str) -> tuple[str, str] | None:
        if self.unreadable:
            self.lose()
        return super().known(shown)

    def find(self, msg_id: str) -> list[Message]:
        if self.unreadable:
            self.lose()
        return super().find(msg_id)

    def sending(self, msg_id: str, to_identity: str, to_name: str, at: int) -> None:
        if self.unnotable:
            self.lose()
        super().sending(msg_id, to_identity, to_name, at)

    def take(
        self, lease: str, now: int, *, later: bool = True, limit: int | None = None, only: str | None = None
    ) -> list[Message]:
        if self.unleasable:
            self.lose()
        return super().take(lease, now, later=later, limit=limit, only=only)


@dataclass(eq=False)
class Line:
    """The connection of somebody who writes frames by hand; a `postroom.transport.Channel`."""

    evidence: Evidence = field(default_factory=lambda: Evidence("memory", 4000, "stranger"))
    log: list[str] = field(default_factory=list[str])
    answers: list[tuple[str, str, str | None]] = field(default_factory=list[tuple[str, str, "str | None"]])
    flushes: int = 0

    def answer(self, line: bytes) -> None:
        frame = wire.decode(line.rstrip(b"\n"))
        assert isinstance(frame, wire.AckFrame)
        self.log.append(f"{frame.status} {frame.msg_id}")
        self.answers.append((frame.msg_id, frame.status, frame.reason))

    def flush(self) -> None:
        self.flushes += 1

    @property
    def statuses(self) -> list[str]:
        """What was answered, in order."""
        return [status for _, status, _ in self.answers]


def frame_of(
    says: str = "hello",
    msg_id: str | None = "m-1",
    *,
    ack: bool = True,
    address: str | None = None,
    name: str | None = None,
    session_id: str | None = None,
    text: str | None = None,
) -> wire.UserFrame:
    """A user frame as it is decoded from a line."""
    return wire.UserFrame(
        wire.Content(envelope.wire_form(says, address=None, name=name, mode=None)),
        msg_id=msg_id,
        ack=ack or None,
        from_=address,
        session_id=session_id,
        text=text,
    )


class Room:
    """Where sessions find each other, and what they are made of."""

    def __init__(self) -> None:
        self.gathering = Gathering()
        self.hub = Hub()
        self.now = NOW
        self.ids = (f"id-{number}" for number in range(10**9))
        self.stores: dict[str, Store] = {}
        self._pids = iter(range(100, 10**9))

    def clock(self) -> int:
        """The time, which stands still."""
        return self.now

    def new_id(self) -> str:
        """The next id."""
        return next(self.ids)

    @contextlib.asynccontextmanager
    async def open(
        self,
        name: str,
        *,
        store: Store | None = None,
        limits: Limits | None = ROOMY,
        session_id: str | None = None,
        listens: bool = True,
        reachable: bool = True,
        mode: str = "default",
        settings: Settings = DEFAULTS,
        kind: Kind = "headless",
        features: tuple[str, ...] = FEATURES,
    ) -> AsyncGenerator[Session]:
        """Opens a session.

        Args:
            name: its name.
            store: where it keeps its messages; in memory by default.
            limits: its bounds; None: those of the settings.
            session_id: its id; a new one by default.
            listens: whether it has an inbox.
            reachable: whether what it publishes says where that is.
            mode, settings: what it goes by.
            kind: how it is attended.
            features: what it announces.
        """
        session_id = session_id or f"session-{self.new_id()}"
        number = next(self._pids)
        transport = MemoryTransport(
            self.hub, session_id, evidence=Evidence("memory", number, f"start-{number}")
        )
        record = Record(
            pid=number,
            proc_start=f"start-{number}",
            session_id=session_id,
            name=self.gathering.claim(name, session_id),
            started_at=self.now,
            updated_at=self.now,
            messaging_socket_path=transport.address,
            peer_features=features,
            kind=kind,
        )
        address = transport.address if reachable else ""
        session = Session(
            record=record,
            clock=self.clock,
            ids=self.new_id,
            store=MemoryStore(record.name) if store is None else store,
            directory=MemoryDirectory(self.gathering, record, address),
            transport=transport,
            standing=Standing(mode, settings, limits, interactive=kind == "interactive"),
            key=session_id.encode(),
        )
        if listens:
            await session.serve()
        session.directory.publish(record)
        try:
            yield session
        finally:
            await session.close()

    def evidence_of(self, session: Session) -> Evidence:
        """What a connection from a session's process looks like."""
        return Evidence("memory", session.record.pid, session.record.proc_start)

    def line_from(self, session: Session, log: list[str] | None = None) -> Line:
        """A connection from a session's process, on which a test writes by hand."""
        return Line(self.evidence_of(session), [] if log is None else log)


def texts(messages: Iterable[Message]) -> list[str]:
    """The texts of messages, in order."""
    return [message.text for message in messages]


def states(session: Session, msg_id: str) -> list[str]:
    """The states that a session's journal has of a message, in order."""
    with session.reading() as store:
        return [step.state for step in store.steps(msg_id)]


def moved(session: Session, **changes: object) -> None:
    """Publishes a session's record with changes, as after a look at it that found them."""
    session.record = replace(session.record, **changes)  # pyright: ignore[reportArgumentType]
    session.directory.publish(session.record)
