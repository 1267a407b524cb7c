"""A loop for the tests: whatever its session is handed it passes on to the next one, for ever, as agents were seen to do.

usage: passing.py NAME NEXT LOG [TEXT]

Prints one line, `ready`, once it can be reached, and runs until it is killed. Each event is one line of LOG, written with
one call: `got`, then `said WORD`, WORD being the status or the code of the refusal, and `told KIND` for each notice.
Says TEXT, or something new each time.
"""

from __future__ import annotations

import asyncio
import os
import sys

from postroom import Receipt, open_session


async def main(name: str, to: str, log: str, text: str = "") -> None:
    """Takes and passes on for ever; SIGKILL is how it ends."""
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    got = 0
    async with open_session(name, handle_signals=False) as session:
        print("ready", flush=True)
        while await session.wait():
            lease = session.take()
            for notice in lease.notices:
                os.write(fd, f"told {notice.kind}\n".encode())
            for _ in lease.messages:
                got += 1
                os.write(fd, b"got\n")
                result = await session.send(to, text or f"status {got}", summary="status")
                word = result.status if isinstance(result, Receipt) else result.code
                os.write(fd, f"said {word}\n".encode())
            session.confirm(lease)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
