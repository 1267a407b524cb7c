"""A receiver that is a program and never asks for permission, so that it holds what sessions send that do.

usage: holder.py NAME SECONDS SIGNALS

Its clock is SECONDS late. SIGNALS is `own` where the program has handlers of its own for signals, else `ours`. Prints its
session id once it can be reached, and what it holds, as one line of ids, once it has read a line. At the line `approve`
it approves the oldest one and kills itself with SIGKILL in the same step, before a word of that can have left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from postroom import open_session, opening


async def main(name: str, seconds: int, *, ours: bool) -> None:
    """Does what it is told, until its standard input or a signal ends it."""
    wall_clock = opening.epoch_ms
    opening.epoch_ms = lambda: wall_clock() - 1000 * seconds
    async with open_session(name, mode="bypassPermissions", handle_signals=ours) as session:
        print(session.id, flush=True)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            print(*(hold.message.msg_id for hold in session.held()), flush=True)
            if line.strip() == b"approve":
                session.approve(session.held()[0].message.msg_id)
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), ours=sys.argv[3] == "ours"))
