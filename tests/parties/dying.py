"""A receiver that dies, by SIGKILL, right before or right after the commit of the first message that arrives.

usage: dying.py NAME before|after

Prints its session id once it can be reached.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from postroom import open_session


async def main(name: str, when: str) -> None:
    """Waits for its end."""
    async with open_session(name) as session:
        commit = session.store.commit

        def dies() -> None:
            if session.store.unread:
                if when == "after":
                    commit()
                os.kill(os.getpid(), signal.SIGKILL)
            commit()

        vars(session.store)["commit"] = dies
        print(session.id, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
