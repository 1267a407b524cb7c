"""Rows 8, 8b and 8c: a teammate's mailbox file. One writer, eight at once, and how soon an entry is received.

All of them sync the file and its folder at each append, because ours promises that. So the floor is held against ours on
the disk, as an append is there; and the format done plainly is held against ours in memory, where a sync costs nothing
and what is left is the software. The other half of each is shown and judged nowhere: in memory an append of ours is
about two splices at 100 entries, for looking at the folder, the locks and the array. The floor splices bytes behind a
`flock` and reads nothing of them; `plain` is the same visible file done as one would write it down.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.harness import ITSELF, Goal, Group, beside, floor, on_core, ours, peer
from benchmarks.mailbox_ends import LINE, POLL_SECONDS, WRITERS
from benchmarks.processes import IN_MEMORY, End, stop
from postroom.core import mailfile
from postroom.state.store_files import file_system_of
from postroom.transports.mailbox import Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from benchmarks.harness import Bench, Case

ENDS = str(Path(__file__).with_name("mailbox_ends.py"))

SIZES = {100: 0.3, 999: 0.15}
"""Entries that lie there before the append → what it may cost of the plain one. With one more the mailbox is full."""

WRITING = 8
"""Writer processes."""

OURS, BOTH, FLOOR, PLAIN = "ours", "ours, both locks", "splice", "the format done plainly"


@contextlib.contextmanager
def folder(in_memory: bool) -> Generator[str]:
    """A folder for inboxes, in memory where this system has such a place."""
    place = IN_MEMORY if in_memory and os.access(IN_MEMORY, os.W_OK) else None
    root = tempfile.mkdtemp(prefix="pb-", dir=place)
    try:
        os.mkdir(f"{root}/inboxes", 0o700)
        yield f"{root}/inboxes"
    finally:
        shutil.rmtree(root, ignore_errors=True)


def where(inboxes: str, in_memory: bool) -> str:
    """What kind of place it is, in words."""
    return (
        "in memory" if in_memory else f"on the disk ({file_system_of(inboxes) or 'an unknown file system'})"
    )


def appending(bench: Bench) -> Generator[Group]:
    """Row 8: one writer, at 100 entries and at the last that a mailbox takes."""
    for in_memory in (True, False):
        with folder(in_memory) as inboxes, on_core(bench.pins()[0].here):
            for size, least in SIZES.items():
                yield appending_at(size, least, inboxes, in_memory, bench)


def appending_at(size: int, least: float, inboxes: str, in_memory: bool, bench: Bench) -> Group:
    """Row 8 at one size."""
    path, data = f"{inboxes}/ann.json", mailfile.joined([LINE] * size)
    times = bench.count(100 if size < 500 else 30, least=1)

    def run(kind: str) -> float:
        append, seconds = WRITERS[kind](path), 0.0
        for _ in range(times):
            put(path, data)
            begun = perf_counter()
            append()
            seconds += perf_counter() - begun
        return seconds / times

    return Group(
        title=f"append to {size} entries, {where(inboxes, in_memory)}",
        slices=bench.slices if in_memory else 1,
        cases=cases(run),
        goals=(
            Goal(limit=least, of=OURS, over=PLAIN, text=f"≤ {least} of the format done plainly")
            if in_memory
            else Goal(limit=1.5, of=OURS, text="≤ 1.5 × a splice"),
        ),
    )


def cases(run: Callable[[str], float]) -> Sequence[Case]:
    """The four ways of adding an entry."""
    return (
        floor(FLOOR, lambda: run("floor")),
        ours(OURS, lambda: run("ours")),
        beside(BOTH, lambda: run("ours, both locks")),
        peer(PLAIN, lambda: run("plain")),
    )


def put(path: str, data: bytes) -> None:
    """Makes the file be this again."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


# ── eight writers ────────────────────────────────────────────────────────────────────────────────


def together(bench: Bench) -> Generator[Group]:
    """Row 8b: eight processes write to one mailbox; seconds for each entry, by the clock on the wall."""
    count = bench.count(25, least=1)
    for in_memory in (True, False):
        with contextlib.ExitStack() as stack:
            inboxes = stack.enter_context(folder(in_memory))
            crowds = {kind: crowd(stack, kind, inboxes, count) for kind in WRITERS}

            def run(kind: str, inboxes: str = inboxes, crowds: dict[str, list[Other]] = crowds) -> float:
                put(f"{inboxes}/ann.json", b"[]")
                begun = perf_counter()
                for each in crowds[kind]:
                    each.tell("go")
                for each in crowds[kind]:
                    each.heard()
                seconds = perf_counter() - begun
                found = len(Mailbox(inboxes, "ann", shared=False).snapshot().items)
                if found != WRITING * count:
                    raise RuntimeError(f"{found} of {WRITING * count} entries are there")
                return seconds / (WRITING * count)

            yield Group(
                title=f"{WRITING} writers, {where(inboxes, in_memory)}, each entry",
                cases=cases(run),
                goals=(
                    Goal(limit=1 / 5, of=OURS, over=PLAIN, text="≥ 5 × as many as done plainly")
                    if in_memory
                    else Goal(limit=1.5, of=OURS, text="≤ 1.5 × a splice"),
                ),
            )


def crowd(stack: contextlib.ExitStack, kind: str, inboxes: str, count: int) -> list[Other]:
    """Eight writers of one kind, ready."""
    return [stack.enter_context(other("writer", inboxes, kind, str(count))) for _ in range(WRITING)]


class Other(End):
    """A process of `mailbox_ends.py` that can be told something without waiting for the answer."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        self._in = process.stdin
        super().__init__(process)

    def tell(self, word: str) -> None:
        """Says a word."""
        self._in.write(f"{word}\n".encode())


@contextlib.contextmanager
def other(role: str, inboxes: str, *arguments: str) -> Generator[Other]:
    """One process of `mailbox_ends.py` while the block runs."""
    process = subprocess.Popen(
        [sys.executable, "-P", ENDS, role, inboxes, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    with process:
        try:
            yield Other(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            if role != "writer":
                process.terminate()
            stop(process)


# ── received ─────────────────────────────────────────────────────────────────────────────────────


def receiving(bench: Bench) -> Generator[Group]:
    """Row 8c: from the start of an append until another process has the entry."""
    for in_memory in (True, False):
        with contextlib.ExitStack() as stack:
            yield receiving_in(stack, in_memory, bench.count(100, least=1), bench.count(4, least=1))


def receiving_in(stack: contextlib.ExitStack, in_memory: bool, times: int, few: int) -> Group:
    """Row 8c in one kind of place."""
    readers: dict[str, tuple[Other, str]] = {}
    for role in ("events", "watch", "poll"):
        inboxes = stack.enter_context(folder(in_memory))
        put(f"{inboxes}/ann.json", b"[]")
        readers[role] = stack.enter_context(other(role, inboxes)), inboxes

    def run(role: str, kind: str, times: int) -> float:
        reader, inboxes = readers[role]
        path = f"{inboxes}/ann.json"
        append, seconds = WRITERS[kind](path), 0.0
        for number in range(times):
            if role == "poll":
                between(number / times)
            begun = perf_counter()
            append()
            seconds += reader.heard()["said"] - begun
            until_empty(path)
        return seconds / times

    return Group(
        title=f"append to received, {where(readers['watch'][1], in_memory)}",
        cases=(
            floor("a splice and an event of the file system", lambda: run("events", "floor", times)),
            ours("append, watcher, snapshot", lambda: run("watch", "ours", times)),
            peer("done plainly, looked at every 500 ms", lambda: run("poll", "plain", few)),
        ),
        goals=(
            Goal(limit=POLL_SECONDS / 100, over=ITSELF, text="≤ 1/100 of 500 ms")
            if in_memory
            else Goal(limit=2.0, text="≤ 2 × an event of the file system"),
        ),
        warm=False,
    )


def between(part: float) -> None:
    """Lets a part of the time between two looks go by, so that the appends fall anywhere in it."""
    until = perf_counter() + part * POLL_SECONDS
    while perf_counter() < until:
        pass


def until_empty(path: str) -> None:
    """Waits until the reader has emptied the file: the next append then finds an empty one."""
    while os.stat(path).st_size > len(b"[]"):
        pass
