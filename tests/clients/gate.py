"""A tool that takes as long as a test wants: the MCP server `gate`, with the one tool `pass`.

A call of it is a tool call that is under way: the tool tells the test's `Gate` that it was reached, and answers once
the test has opened. So what has to happen during a tool call does happen during one, on every machine.

The server is as small as one can be: no library, one line of JSON for each message.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["TOOL", "Gate", "gate", "server"]

TOOL = "gate/pass"
"""As a directive calls it."""

SECONDS = 120.0

DESCRIBED: dict[str, Any] = {
    "name": "pass",
    "description": "Returns once the gate is open.",
    "inputSchema": {"type": "object", "properties": {}},
    "annotations": {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False},
}


class Gate:
    """The test's side."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(place))
        self._server.listen()
        self._server.settimeout(SECONDS)

    @contextmanager
    def reached(self) -> Generator[None]:
        """Waits until an agent's call of the tool is under way; it ends when the block does."""
        connection, _ = self._server.accept()
        with connection:
            yield
            connection.sendall(b"open")

    def close(self) -> None:
        """Takes the gate away; whoever comes to it passes."""
        self._server.close()
        self.place.unlink(missing_ok=True)


@contextmanager
def gate(place: Path) -> Generator[Gate]:
    """A gate for as long as the block runs."""
    made = Gate(place)
    try:
        yield made
    finally:
        made.close()


def server(place: Path) -> list[str]:
    """The command line of the server, for a client's configuration."""
    return [sys.executable, str(Path(__file__)), str(place)]


def _pass(place: str) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(place)
        except OSError:
            return "there is no gate"
        return "passed" if connection.recv(16) else "the gate was taken away"


def _answer(asked: dict[str, Any], place: str) -> dict[str, Any] | None:
    """The result of one request; None for a method that is not known here."""
    match asked["method"]:
        case "initialize":
            version = asked["params"]["protocolVersion"]
            about = {"name": "gate", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": [DESCRIBED]}
        case "tools/call":
            return {"content": [{"type": "text", "text": _pass(place)}]}
        case "ping":
            return {}
        case _:
            return None


def main(place: str) -> None:
    """Serves until standard input ends."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked or "method" not in asked:
            continue
        result = _answer(asked, place)
        missing = {"error": {"code": -32601, "message": "there is no such method"}}
        reply = {"jsonrpc": "2.0", "id": asked["id"], **(missing if result is None else {"result": result})}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
