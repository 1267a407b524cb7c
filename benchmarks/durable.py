"""Row 7: a message that is on the disk, synced, before it is acknowledged; alone, and from eight senders at once.

The floor is one insert into a table of SQLite, with a unique id and an index by which what waits is found, in the mode
that the store has: a write-ahead log, synced at every commit, held exclusively; no socket, no frame, no judgement. What a sync costs is the disk's affair and moves
within minutes, so only figures of the same rounds can be compared.
"""

from __future__ import annotations

import contextlib
import select
import sqlite3
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.harness import Goal, Group, beside, floor, on_core, ours
from benchmarks.inprocess import TEXT
from benchmarks.processes import SECONDS, private_place
from benchmarks.sockets import GUARDED, connected, in_turn, inbox
from postroom.opening import new_id
from postroom.state.store_files import file_system_of

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator, Sequence

    from benchmarks.harness import Bench, Pin

SENDERS = 8
ALONE = "socket → committed and synced → acknowledged, one at a time"
TOGETHER = f"the same, {SENDERS} senders, each message"


def accept(bench: Bench) -> Generator[Group]:
    """One message at a time, and eight senders that each have one in flight."""
    for pin in bench.pins():
        yield from accept_on(
            pin, bench.count(40, least=SENDERS), bench.count(160, least=SENDERS), bench.slices
        )


def accept_on(pin: Pin, count: int, many: int, slices: int) -> Generator[Group]:
    """Row 7 on these cores."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(private_place())
        receiver = stack.enter_context(inbox("sqlite", place.root, pin))
        redis = stack.enter_context(peers.redis_always(TEXT.encode(), count, place.path("redis"), pin.there))
        bare = stack.enter_context(contextlib.closing(table(place.path("bare.db"))))
        senders = [stack.enter_context(contextlib.closing(connected(receiver.path))) for _ in range(SENDERS)]
        stack.enter_context(on_core(pin.here))
        yield Group(
            title=f"into SQLite on {file_system_of(place.root) or 'an unknown file system'}",
            pin=pin.name,
            slices=slices,
            cases=(
                floor("a bare insert in the same mode", lambda: inserts(bare, count, 1)),
                ours(ALONE, lambda: receiver.receive(count, lambda payloads: in_turn(senders[0], payloads))),
                ours(
                    TOGETHER, lambda: receiver.receive(many, lambda payloads: in_turn_each(senders, payloads))
                ),
                beside(f"bare inserts, {SENDERS} in a commit, each", lambda: inserts(bare, many, SENDERS)),
                redis,
            ),
            goals=(
                Goal(limit=1.5, of=ALONE, text="≤ 1.5 × a bare insert"),
                Goal(limit=1 / 4, of=TOGETHER, over=ALONE, text=f"{SENDERS} senders ≤ 1/4 of one at a time"),
                Goal(limit=1 / 2, of=ALONE, over=peers.REDIS, text="≤ 1/2 of Redis with AOF always"),
            ),
            note=GUARDED,
        )


def table(path: str) -> sqlite3.Connection:
    """A file with one table, in the mode that the store has."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "PRAGMA locking_mode = EXCLUSIVE",
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "CREATE TABLE message(row INTEGER PRIMARY KEY, msg_id TEXT UNIQUE, owner TEXT, state INTEGER, text TEXT)",
        "CREATE INDEX waiting ON message(owner, state, row)",
    ):
        connection.execute(statement)
    return connection


def inserts(connection: sqlite3.Connection, count: int, together: int) -> float:
    """Seconds for each row, so many of them a commit."""
    execute = connection.execute
    insert = "INSERT INTO message(msg_id, owner, state, text) VALUES (?, 'builder', 0, ?)"
    rows = [(new_id(), TEXT) for _ in range(count)]
    begun = perf_counter()
    for first in range(0, count, together):
        execute("BEGIN IMMEDIATE")
        for row in rows[first : first + together]:
            execute(insert, row)
        execute("COMMIT")
    return (perf_counter() - begun) / count


def in_turn_each(senders: Sequence[socket.socket], payloads: Sequence[bytes]) -> float:
    """Seconds for each payload: every sender has one in flight, and sends its next as soon as it is acknowledged."""
    left = iter(payloads)
    poll, by_fd = select.poll(), {sender.fileno(): sender for sender in senders}
    for sender in senders:
        poll.register(sender, select.POLLIN)
    begun = perf_counter()
    flying = 0
    for sender, payload in zip(senders, left, strict=False):
        sender.sendall(payload)
        flying += 1
    while flying:
        for fd, _ in poll.poll(SECONDS * 1000):
            by_fd[fd].recv(65536)
            flying -= 1
            payload = next(left, None)
            if payload is not None:
                by_fd[fd].sendall(payload)
                flying += 1
    return (perf_counter() - begun) / len(payloads)
