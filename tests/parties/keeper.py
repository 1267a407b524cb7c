"""A session whose process has a child that keeps its lock, as one does that was forked around Python.

usage: keeper.py NAME

Prints one line, `{"id", "child"}`; both go on until they are killed.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import time

from postroom import open_session


async def main(name: str) -> None:
    """Opens the session, forks as a library in C would, and waits."""
    async with open_session(name) as session:
        child = ctypes.CDLL(None).fork()  # no hook of Python's runs in it: it keeps every descriptor
        if child == 0:
            while True:
                time.sleep(3600)
        print(json.dumps({"id": session.id, "child": child, "parent": os.getpid()}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
