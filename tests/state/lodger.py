"""A process that is a session as far as files go, for the roster's tests; they talk to it and kill it.

usage: lodger.py STATE OPTIONS

OPTIONS is a JSON object: `id`, `name`; `sockets` (a folder: it listens there), `client` ([pid, start]), `domain`
and `boot` (what it believes of itself), `publish` (false: it only holds its lock). It prints one JSON object once
it is there. Then it obeys lines of its standard input, answering each with one line: `fork` (a child that keeps
every descriptor, as one that is forked behind Python's back does; answers the child's pid), `rename NAME`,
`leave`. At the end of its input it ends without tidying up.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
from typing import Any

from postroom.state import processes
from postroom.state.record import Record
from postroom.state.roster import Roster


def main(state: str, options: dict[str, Any]) -> None:
    """Opens a session and obeys."""
    if domain := options.get("domain"):
        processes.pid_domain = lambda: domain
    if boot := options.get("boot"):
        processes.boot_id = lambda: boot
    roster = Roster(state)
    session_id = options["id"]
    lock = roster.open_folder(session_id)
    name = roster.claim(options.get("name", session_id), session_id, chosen=True, now=1)
    stem = roster.free_stem(os.getpid())
    record = Record(
        pid=os.getpid(),
        proc_start=processes.start_of(os.getpid()) or "",
        boot_id=processes.boot_id(),
        pid_domain=processes.pid_domain(),
        session_id=session_id,
        name=name,
    )
    listeners: list[socket.socket] = []
    if folder := options.get("sockets"):
        path = f"{folder}/{stem}.sock"
        roster.write_key(stem, path, "0" * 32)
        for each in (path, f"{folder}/{stem}.ctl.sock"):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(each)
            os.chmod(each, 0o600)
            listener.listen()
            listeners.append(listener)
        record = record.listening(path, ("postroom_ack",), 2)
    if client := options.get("client"):
        record = record.attached(*client)
    path = roster.publish(record) if options.get("publish", True) else ""
    say({"pid": os.getpid(), "start": record.proc_start, "stem": stem, "name": name, "path": path})
    for line in sys.stdin:
        verb, _, argument = line.strip().partition(" ")
        if verb == "fork":
            child = ctypes.CDLL(None).fork()
            if child == 0:
                signal.pause()
            say(child)
        elif verb == "rename":
            record = record.renamed(roster.claim(argument, session_id, chosen=True, now=3), 3)
            roster.publish(record)
            say(record.name)
        elif verb == "leave":
            roster.leave(record, lock, 12345)
            say("left")
    os._exit(0)


def say(what: object) -> None:
    """Prints one line."""
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
