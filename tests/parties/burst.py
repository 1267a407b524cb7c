"""A sender for the tests of limits: sends numbered messages at full speed and writes down what was said of each.

usage: burst.py NAME TO COUNT

Prints one line, `ready`, once its session is open, and begins when it reads a line. Then one line for each message:
`NUMBER WORD`, WORD being the status or the code of the refusal.
"""

from __future__ import annotations

import asyncio
import sys

from postroom import Receipt, open_session


async def main(name: str, to: str, count: int) -> None:
    """Sends so many messages, all under way at once, in order."""
    async with open_session(name) as session:
        print("ready", flush=True)
        sys.stdin.readline()
        results = await asyncio.gather(
            *(session.send(to, str(number), summary="a number") for number in range(count))
        )
        for number, result in enumerate(results):
            print(number, result.status if isinstance(result, Receipt) else result.code)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
