"""A session of its own process whose clock stands still unless a test moves it; what is due by it happens then.

usage: clocked.py NAME

Prints one line, `{"id", "address"}`, once it can be reached. Each line that it reads is a number of seconds by which its
clock moves on; it prints `moved`. Ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys

from postroom import open_session, opening


async def main(name: str) -> None:
    """Stands still, and moves on when it is told to."""
    now = opening.epoch_ms()
    opening.epoch_ms = lambda: now
    async with open_session(name) as session:
        print(json.dumps({"id": session.id, "address": session.address}), flush=True)
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        while line := await reader.readline():
            now += round(float(line) * 1000)
            session.tick()
            print("moved", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
