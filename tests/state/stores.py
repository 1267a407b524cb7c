"""The two kinds of store under one handle, and messages for them."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from postroom.core.message import Message, Notice, Origin, Step
from postroom.state.keeping import Retention, Store, rule_id
from postroom.state.memory_store import MemoryStore
from postroom.state.store import SqliteStore

NOW = 1_796_000_000_000
"""2026-11-30: the time at which nearly everything here happens."""

DAY = 86_400_000

QUICK = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where a sync costs nothing; what a disk does is looked at in `test_store_file`."""

ALICE = Origin(
    kind="peer", identity="alice-session", verified=True, name="alice", address="uds:/run/alice.sock"
)
BOB = Origin(kind="peer", identity="process:7:99", name=None)


def message(
    msg_id: str, text: str = "the column is tenant_id", origin: Origin = ALICE, at: int = NOW
) -> Message:
    """A message as it comes in."""
    return Message(msg_id=msg_id, text=text, origin=origin, received_at=at)


def later(made: Message) -> Message:
    """The same with the priority `later`."""
    return replace(made, priority="later")


def ids(messages: list[Message]) -> list[str]:
    return [each.msg_id for each in messages]


def states(steps: list[Step]) -> list[str]:
    return [step.state for step in steps]


@contextmanager
def no_writing() -> Generator[None]:
    """Makes every write of this process to a file fail, as a broken disk does: a real error for SQLite too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Desk(ABC):
    """One session's store, through closing, killing and opening again."""

    store: Store

    def put(self, *messages: Message) -> None:
        """Takes messages in and commits."""
        for each in messages:
            self.store.add(each, body=f"hash of {each.text[:40]}")
        self.store.commit()

    def hold(self, *messages: Message, expires_at: int | None = NOW + 300_000) -> list[int]:
        """Takes messages in as held and commits. Returns their numbers."""
        rows = [
            self.store.add(
                each,
                body="",
                verdict="held",
                cause="mode-mismatch",
                scope="default",
                rung="class",
                expires_at=expires_at,
                detail="mode-mismatch",
            )
            for each in messages
        ]
        self.store.commit()
        return rows

    @abstractmethod
    def broken(self) -> AbstractContextManager[None]:
        """While this lasts, nothing can be written."""

    @abstractmethod
    def reopen(self) -> None:
        """Closes the store and opens it again."""

    @abstractmethod
    def kill(self) -> None:
        """Opens what a process that was killed in this instant would have left."""

    @abstractmethod
    def end(self) -> None:
        """Cleans up."""


class MemoryDesk(Desk):
    def __init__(self, retention: Retention | None = None) -> None:
        self._own = MemoryStore("desk", retention=retention or Retention())
        self.store = self._own

    @contextmanager
    def broken(self) -> Generator[None]:
        self._own.failing = "broken"
        yield
        self._own.failing = ""

    def reopen(self) -> None:
        self._own.close()
        self.kill()

    def kill(self) -> None:
        self._own = self.store = self._own.reopened(NOW)

    def end(self) -> None:
        self._own.close()


class SqliteDesk(Desk):
    def __init__(self, retention: Retention | None = None) -> None:
        self._retention = retention
        self._base = Path(tempfile.mkdtemp(prefix="pr-store-", dir=QUICK))
        self._number = 0
        self.folder = self._base / "0"
        self.folder.mkdir(mode=0o700)
        self.store = self._open()

    def _open(self) -> SqliteStore:
        return SqliteStore.open(str(self.folder), now=NOW, session_name="desk", retention=self._retention)

    @contextmanager
    def broken(self) -> Generator[None]:
        with no_writing():
            yield

    def reopen(self) -> None:
        self.store.close()
        self.store = self._open()

    def kill(self) -> None:
        """The files are copied as they lie: what is not in them, the kill has taken."""
        before, killed = self.folder, self.store
        self._number += 1
        self.folder = self._base / str(self._number)
        self.folder.mkdir(mode=0o700)
        for file in before.iterdir():
            shutil.copyfile(file, self.folder / file.name)
            os.chmod(self.folder / file.name, 0o600)
        killed.close()
        shutil.rmtree(before)
        self.store = self._open()

    def end(self) -> None:
        self.store.close()
        shutil.rmtree(self._base)


DESKS: dict[str, type[MemoryDesk | SqliteDesk]] = {"memory": MemoryDesk, "sqlite": SqliteDesk}


def opened(folder: str, *, retention: Retention | None = None, kind: str = "ext4") -> SqliteStore:
    """Opens the store in a folder, on a file system of this kind."""
    return SqliteStore.open(
        folder, now=NOW, session_name="desk", retention=retention, file_system=lambda _: kind
    )


def filled(folder: str, *names: str, text: str = "text") -> SqliteStore:
    """Opens it, with a message of each of these names."""
    store = opened(folder)
    for name in names:
        store.add(message(name, text=text), body="")
    store.commit()
    return store


def listing(folder: str) -> dict[str, int]:
    """The names in a folder and the sizes."""
    return {file.name: file.stat().st_size for file in Path(folder).iterdir()}


def content(folder: str) -> dict[str, str]:
    """The names in a folder and what is in the files, as a hash."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in Path(folder).iterdir()}


HELD = Notice(kind="held", at=NOW, msg_id="m", about="bob", detail="mode-mismatch — nobody can be asked")
IDLE = Notice(kind="idle", at=NOW + 1)


def subscribe(store: Store, msg_id: str, identity: str = "s", *, mine: bool = False) -> None:
    store.subscribe(msg_id, mine=mine, identity=identity, name=identity.title(), at=NOW)


def one_of_everything(store: Store, size: int = 10) -> None:
    """Keeps one of everything and commits; the held text and the one that waits have this size."""
    store.add_rule("s", "s", NOW)
    store.owe("m", "uds:/a", "1:2", b"x", NOW)
    store.add_notice(HELD)
    subscribe(store, "a", mine=True)
    store.add(message("held", text="x" * size), body="", verdict="held")
    store.add(message("waits", text="x" * size), body="")
    store.commit()


ENDS: dict[str, Callable[[Store], object]] = {
    "rule": lambda store: store.drop_rule(rule_id("s", ())),
    "owed": lambda store: store.paid([each.row for each in store.owed()]),
    "notice": lambda store: store.drop_notices([row for row, _ in store.notices()]),
    "subscription": lambda store: store.unsubscribe("a", mine=True),
    "a hold": lambda store: store.end_hold(store.holds()[0].row, "denied", NOW),
    "a deadline": lambda store: store.change_hold(
        store.holds()[0].row, "mode-unknown", "default", "class", None
    ),
    "a hold and its notice": lambda store: (
        store.end_hold(store.holds()[0].row, "expired", NOW),
        store.owe("m", "uds:/a", "1:2", b"x" * 500, NOW),
    ),
}
"""What must work on a full disk too."""

BEGINNINGS: dict[str, Callable[[Store], object]] = {
    "rule": lambda store: store.add_rule("other", "o", NOW),
    "owed": lambda store: store.owe("n", "uds:/b", "1:3", b"y", NOW),
    "notice": lambda store: store.add_notice(IDLE),
    "subscription": lambda store: subscribe(store, "b"),
    "a hold": lambda store: store.add(message("new"), body="", verdict="held"),
    "a refusal": lambda store: store.add(message("new"), body="", verdict="refused"),
    "an approval": lambda store: store.release_hold(store.holds()[0].row, NOW),
    "an end and more": lambda store: (
        store.end_hold(store.holds()[0].row, "expired", NOW),
        store.add_notice(IDLE),
        store.paid([each.row for each in store.owed()]),
    ),
}
"""What a full disk refuses."""
