"""A process that holds the locks of one file, for tests that stop and kill it.

usage: locker.py FILE_LOCK DIRECTORY_LOCK|- SECONDS STALE_SECONDS

Prints `held` once it has them, or `not locked`. Then it obeys lines, answering each with one: `check` (`ours` or
`lost`), `fork` (a child's pid, which keeps all that it may), `leave` (`left`, and it ends).
"""

from __future__ import annotations

import os
import signal
import sys

from postroom.state.locks import LockLost, NotLocked, held


def main(file_lock: str, directory_lock: str, seconds: str, stale_seconds: str) -> None:
    """Takes the locks and obeys."""
    directory = None if directory_lock == "-" else directory_lock
    try:
        with held(file_lock, directory, seconds=float(seconds), stale_seconds=float(stale_seconds)) as lock:
            print("held", flush=True)
            for line in sys.stdin:
                if line.strip() == "leave":
                    break
                if line.strip() == "fork":
                    child = os.fork()
                    if child == 0:
                        signal.pause()
                    print(child, flush=True)
                    continue
                try:
                    lock.check()
                except LockLost:
                    print("lost", flush=True)
                else:
                    print("ours", flush=True)
    except NotLocked:
        print("not locked", flush=True)
    print("left", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
