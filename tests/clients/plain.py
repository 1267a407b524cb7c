"""A session that is no client's: a loop on the public library, which does what the messages that it reads tell it.

usage: plain.py NAME

It reads messages as they come and prints the text of each. The directive `%%call postroom/send_message {…}%%` in one
makes it send, as an agent with the same tool would; `%%say …%%` ends its turn, as everywhere.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from postroom import Receipt, open_session


async def main(name: str) -> None:
    """Reads and obeys until it is ended."""
    async with open_session(name) as session:
        print("ready", flush=True)
        async for message in session.messages():
            print(message.text, flush=True)
            for step in directives(message.text):
                if isinstance(step, tuple) and step[0] == "postroom/send_message":
                    done = await session.send(
                        step[1]["to"], step[1]["message"], summary=step[1].get("summary", "")
                    )
                    assert isinstance(done, Receipt), done


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.clients.model import directives

    asyncio.run(main(sys.argv[1]))
