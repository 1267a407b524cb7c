"""Row 14: listing, with 1,000 live sessions and 5,000 records of sessions that were killed.

The live ones are of one process that holds their locks. The killed ones have what a killed session leaves: record,
key file, socket, folder and free lock. A look that finds them removes them, so those that follow find the live
ones alone; each kind of look has its own floor.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from hashlib import sha256
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.harness import Goal, Group, floor, ours
from benchmarks.processes import end, private_place
from postroom import present
from postroom.core.listing import listing
from postroom.opening import FEATURES, epoch_ms
from postroom.state import processes
from postroom.state.directory import Directory
from postroom.state.record import Record
from postroom.state.roster import Roster
from postroom.state.tenure import Tenure

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from benchmarks.harness import Bench
    from benchmarks.processes import Place

LIVE = 1_000
STALE = 5_000

NOBODY = 5_000_000
"""Pids from here on belong to no process: Linux gives out none above 4,194,304."""


def listing_many(bench: Bench) -> Generator[Group]:
    """A session's next look, a first look, and the first look after many were killed."""
    live = int(bench.choose(full=LIVE, quick=LIVE, smoke=20))
    stale = int(bench.choose(full=STALE, quick=STALE // 10, smoke=100))
    with private_place() as place, end("crowd", place.state, place.run, str(live), environ=place.environ):
        known = Directory(Roster(place.state))
        locks = [
            f"{place.state}/sessions/{name}/lock"
            for name in os.listdir(f"{place.state}/sessions")
            if "." not in name
        ]
        yield Group(
            title=f"`list` of a session that has looked before, {live:,} live",
            slices=bench.slices,
            cases=(
                floor("probing the live ones", lambda: probing(locks)),
                ours("Directory.rows, listing, text", lambda: listed(known, live)),
            ),
            goals=(Goal(limit=2, text="≤ 2 × probing the live ones"),),
        )
        yield Group(
            title=f"the first `list`, {live:,} live",
            slices=bench.slices,
            cases=(
                floor("reading their records and probing them", lambda: looking(place, live)),
                ours("Directory.rows, listing, text", lambda: listed(Directory(Roster(place.state)), live)),
            ),
            goals=(Goal(limit=2, text="≤ 2 × reading and probing"),),
        )
        yield Group(
            title=f"the first `list`, {live:,} live and {stale:,} stale, which it removes",
            cases=(
                floor(
                    "reading, probing, removing", lambda: after(place, stale, lambda: looking(place, live))
                ),
                ours(
                    "Directory.rows, listing, text",
                    lambda: after(place, stale, lambda: listed(Directory(Roster(place.state)), live)),
                ),
            ),
            goals=(Goal(limit=2, text="≤ 2 × reading, probing, removing"),),
            rounds=None if bench.mode == "smoke" else 5,
            warm=False,
        )


# ── what looks ───────────────────────────────────────────────────────────────────────────────────


def listed(directory: Directory, live: int) -> float:
    """Seconds of one `list` as a session answers it."""
    begun = perf_counter()
    found = directory.rows()
    text = present.listing_text(listing(found.rows, unchecked=found.unchecked), epoch_ms())
    took = perf_counter() - begun
    if len(found.rows) != live or not text:
        raise RuntimeError(f"{len(found.rows)} of {live} were listed")
    return took


def held(path: str) -> bool:
    """Whether somebody holds the lock at a path: the least that can tell."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def probing(locks: list[str]) -> float:
    """Seconds of looking at every lock."""
    begun = perf_counter()
    count = sum(held(lock) for lock in locks)
    took = perf_counter() - begun
    if count != len(locks):
        raise RuntimeError(f"{count} of {len(locks)} are held")
    return took


def looking(place: Place, live: int) -> float:
    """Seconds of reading every record, looking at its lock, and removing what a dead one left."""
    sessions = f"{place.state}/sessions"
    begun = perf_counter()
    count = 0
    for name in os.listdir(sessions):
        if not name.endswith(".json"):
            continue
        with open(f"{sessions}/{name}", "rb") as file:
            record = json.loads(file.read())
        if held(f"{sessions}/{record['sessionId']}/lock"):
            count += 1
            continue
        path = record["messagingSocketPath"]
        os.unlink(f"{sessions}/{name}")
        os.unlink(f"{sessions}/{record['pid']}.{sha256(path.encode()).hexdigest()}.key")
        os.unlink(path)
    took = perf_counter() - begun
    if count != live:
        raise RuntimeError(f"{count} of {live} are held")
    return took


# ── those that were killed ───────────────────────────────────────────────────────────────────────


def after(place: Place, count: int, look: Callable[[], float]) -> float:
    """Leaves behind what so many killed sessions would, then looks."""
    for number in range(count):
        leave_behind(place, number)
    return look()


def leave_behind(place: Place, number: int) -> None:
    """What one killed session leaves."""
    sessions, pid = f"{place.state}/sessions", NOBODY + number
    session_id = f"11111111-0000-4000-8000-{number:012d}"
    path = f"{place.run}/{pid}.sock"
    boot, domain, now = processes.boot_id(), processes.pid_domain(), epoch_ms()
    folder = f"{sessions}/{session_id}"
    if not os.path.isdir(folder):
        os.mkdir(folder, 0o700)
    write(f"{folder}/lock", Tenure(pid=pid, start="1", boot_id=boot, pid_domain=domain).to_bytes())
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(path)
    os.chmod(path, 0o600)
    key = {"peerToken": "0" * 32, "procStart": "1", "pidDomain": domain}
    write(f"{sessions}/{pid}.{sha256(path.encode()).hexdigest()}.key", json.dumps(key).encode())
    record = Record(
        pid=pid,
        proc_start="1",
        boot_id=boot,
        pid_domain=domain,
        session_id=session_id,
        name=f"killed-{number:06d}",
        cwd="/home/somebody/projects",
        started_at=now,
        updated_at=now,
        status_updated_at=now,
        machine=processes.machine(),
        peer_features=FEATURES,
        messaging_socket_path=path,
    )
    write(f"{sessions}/{pid}.json", record.to_json())


def write(path: str, data: bytes) -> None:
    """Writes a private file, plainly. One that is there is not emptied first: some file systems sync it then."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(fd, data)
    os.ftruncate(fd, len(data))
    os.close(fd)
