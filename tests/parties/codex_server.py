"""A Codex app-server that speaks the recorded frames: WebSocket on a Unix socket, one thread or several.

usage: codex_server.py HOME [JSON]

HOME is Codex's folder: the socket is made in it where Codex has it, and the lock of each thread is held open. JSON says
what this server is like; what it leaves out is as recorded:

    threads     [{"id", …}]: fields of `thread/read` that differ from the recording; one thread by default
    agent       the `userAgent`, with the version
    turn        what happens to `turn/start`: "accepted", "refused", "silent", "gone" (the connection ends)
    socket      where it listens, in place of Codex's own place
    windows     how many windows are connected to it; one by default

It prints {"pid", "socket", "threads"} once it listens, then each request as it came. A line `close` on its standard input
closes the windows, and it prints {"closed"}. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from websockets.asyncio.client import unix_connect
from websockets.asyncio.server import ServerConnection, unix_serve

RECORDED = Path(__file__).parents[1] / "recorded/codex/app-server.json"


def say(document: object) -> None:
    """Prints one line."""
    print(json.dumps(document), flush=True)


def recorded_answers() -> dict[str, dict[str, Any]]:
    """Method → what the real one answered first, and `turn/start refused` → its error."""
    found: dict[str, dict[str, Any]] = {}
    asked: dict[int, str] = {}
    for line in json.loads(RECORDED.read_text())["lines"]:
        if "id" in line.get("sent", {}):
            asked[line["sent"]["id"]] = line["sent"]["method"]
        elif "id" in line.get("came", {}):
            came = line["came"]
            method = asked[came["id"]] + (" refused" if "error" in came else "")
            found.setdefault(method, came)
    return found


class Server:
    """What it is like, and what it answers."""

    def __init__(self, like: dict[str, Any]) -> None:
        self.answers = recorded_answers()
        self.like = like
        thread = self.answers["thread/read"]["result"]["thread"]
        self.threads = {
            each["id"]: {**thread, **each} for each in like.get("threads", [{"id": thread["id"]}])
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to one request; None for silence."""
        method, params = request["method"], request.get("params", {})
        answer = dict(self.answers.get(method) or self.answers["turn/none refused"])
        if method == "initialize" and "agent" in self.like:
            answer = {"result": {**answer["result"], "userAgent": self.like["agent"]}}
        elif method == "thread/loaded/list":
            answer = {"result": {"data": list(self.threads), "nextCursor": None}}
        elif method == "thread/read":
            answer = {"result": {"thread": self.threads.get(params["threadId"])}}
        elif method == "turn/start":
            turn = self.like.get("turn", "accepted")
            if turn == "silent":
                return None
            if turn == "refused" or params["threadId"] not in self.threads:
                answer = dict(self.answers["turn/start refused"])
        return {**answer, "id": request["id"]}

    async def serve(self, connection: ServerConnection) -> None:
        """One connection, to its end."""
        async for line in connection:
            request = json.loads(line)
            say(request)
            if "id" not in request:
                continue
            # News that nobody asked for comes between, as from the real one.
            await connection.send('{"method":"thread/status/changed","params":{}}')
            if request["method"] == "turn/start" and self.like.get("turn") == "gone":
                connection.transport.abort()
                return
            answer = self.answer(request)
            if answer is not None:
                await connection.send(json.dumps(answer))


async def main(home: Path, like: dict[str, Any]) -> None:
    """Holds its threads, listens, and waits for the end of its input."""
    server = Server(like)
    locks = home / "thread-writer-locks"
    locks.mkdir(parents=True, exist_ok=True)
    held: list[int] = []
    for thread in server.threads:
        fd = os.open(locks / f"{thread}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(fd)
    path = like.get("socket") or str(home / "app-server-control/app-server-control.sock")
    Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    async with unix_serve(server.serve, path), AsyncExitStack() as windows:
        for _ in range(like.get("windows", 1)):
            await windows.enter_async_context(unix_connect(path, "ws://localhost/"))
        say({"pid": os.getpid(), "socket": path, "threads": list(server.threads)})
        while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
            if line == "close\n":
                await windows.aclose()
                say({"closed": True})
    for fd in held:
        os.close(fd)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}))
