"""A receiver for the crash tests: writes down every message that it is handed, then confirms it.

usage: sink.py SESSION-ID-or-- LOG   (`-` opens a new session, named `sink`)

Prints one line, `ID PID`, once it can be reached. Each handed message is one line of LOG, written with one call
before it is confirmed: `MSG_ID AGAIN SENDER NUMBER`, AGAIN being 1 when it was marked as redelivered.
"""

from __future__ import annotations

import asyncio
import os
import sys

from postroom import Limits, open_session


async def main(session_id: str, log: str) -> None:
    """Takes and writes down for ever; SIGKILL is how it ends."""
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    resume = None if session_id == "-" else session_id
    async with open_session(
        None if resume else "sink", resume=resume, limits=Limits.unbounded(), handle_signals=False
    ) as session:
        print(session.id, os.getpid(), flush=True)
        while await session.wait():
            lease = session.take()
            rows = [
                f"{message.msg_id} {int(message.redelivered)} {message.origin.name} {message.text}\n"
                for message in lease.messages
            ]
            os.write(fd, "".join(rows).encode())
            session.confirm(lease)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
