"""A session that finds no folder for its sockets: the one that it would fall back to cannot be trusted either.

usage: mute.py NAME FALLBACK

Prints one JSON document, its status, once it is open. Each line that it reads is a name, to which it sends a message; it
prints what came of that as one line of JSON. Ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys

from postroom import Receipt, open_session
from postroom.state import places


async def main(name: str, fallback: str) -> None:
    """Opens, says what it is, and sends when it is told to."""
    places.TMP = fallback
    async with open_session(name) as session:
        status = session.status()
        print(json.dumps({"address": status.peer_address, "problems": status.problems}), flush=True)
        while to := sys.stdin.readline().strip():
            sent = await session.send(to, "one way", summary="one way")
            print(json.dumps(sent.warnings if isinstance(sent, Receipt) else sent.code), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
