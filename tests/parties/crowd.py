"""Many sessions that are listed and do nothing: each has its folder, its lock, its name and its record.

usage: crowd.py NAME…

Prints one line, `ready`, once all are listed; they end with its standard input.
"""

from __future__ import annotations

import os
import sys
import time
import uuid

from postroom.state import places, processes
from postroom.state.files import Lock
from postroom.state.record import Record
from postroom.state.roster import Roster


def main(names: list[str]) -> None:
    """Publishes them and holds their locks."""
    roster = Roster(places.needed_state_folder(os.environ)[0])
    pid, now = os.getpid(), time.time_ns() // 1_000_000
    locks = [join(roster, name, pid, now) for name in names]
    print("ready", flush=True)
    sys.stdin.read()
    for lock in locks:
        lock.release()


def join(roster: Roster, name: str, pid: int, now: int) -> Lock:
    """Adds one; returns its lock, held."""
    session_id = str(uuid.uuid4())
    lock = roster.open_folder(session_id)
    record = Record(
        pid=pid,
        proc_start=processes.start_of(pid) or "",
        boot_id=processes.boot_id(),
        pid_domain=processes.pid_domain(),
        session_id=session_id,
        name=roster.claim(name, session_id, chosen=True, now=now),
        started_at=now,
        updated_at=now,
    )
    roster.publish(record)
    return lock


if __name__ == "__main__":
    main(sys.argv[1:])
