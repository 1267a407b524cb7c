"""A sender for the crash tests: sends numbered messages at full speed and writes down those acknowledged.

usage: source.py NAME TO LOG STOP

Sends until the file STOP exists. A send that is refused or whose outcome is unknown is tried again under the
same id, as P2 allows; LOG gets one line `MSG_ID NUMBER TRIES` for each one that was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid

from postroom import Limits, Receipt, open_session

PAUSE_SECONDS = 0.02
"""Between two tries: while the receiver is dead there is nobody to be fast for."""


async def main(name: str, to: str, log: str, stop: str) -> None:
    """Sends until it is told to stop."""
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    number = 0
    async with open_session(name, limits=Limits.unbounded()) as session:
        print(session.id, os.getpid(), flush=True)
        while not os.path.exists(stop):
            number += 1
            msg_id = str(uuid.uuid4())
            tries = 0
            while not os.path.exists(stop):
                tries += 1
                result = await session.send(to, str(number), summary="a number", msg_id=msg_id)
                if isinstance(result, Receipt) and result.status == "queued":
                    os.write(fd, f"{msg_id} {number} {tries}\n".encode())
                    break
                await asyncio.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
