"""A program that opens a session of its own, in whatever mode it likes, as a client without a file of ours might.

usage: host.py NAME MODE SPEAKER

Prints one line, `{"id", "address"}`, once it can be reached. Each line that it reads is `{"by", "path", "frame"}`: it
writes that frame by hand onto that socket, by itself (`host`) or by a child that it has started, which is the program
SPEAKER (`child`), and prints the line that comes back. Ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE

from postroom import open_session

SECONDS = 30.0


async def main(name: str, mode: str, speaker: str) -> None:
    """Opens, says where it is, and speaks when it is told to."""
    async with open_session(name, mode=mode) as session:
        child = await asyncio.create_subprocess_exec(sys.executable, "-P", speaker, stdin=PIPE, stdout=PIPE)
        assert child.stdin is not None
        assert child.stdout is not None
        await child.stdout.readline()
        print(json.dumps({"id": session.id, "address": session.address}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            told = json.loads(line)
            if told["by"] == "child":
                child.stdin.write(line.encode())
                answer = await asyncio.wait_for(child.stdout.readline(), SECONDS)
            else:
                answer = await asyncio.wait_for(answered(told["path"], told["frame"]), SECONDS)
            print(answer.decode(), end="", flush=True)
        child.stdin.close()
        await child.wait()


async def answered(path: str, frame: object) -> bytes:
    """Writes one frame on a connection of its own; returns the line that comes back."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(json.dumps(frame).encode() + b"\n")
        return await reader.readline()
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
