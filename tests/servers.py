"""MCP servers of ours as real processes, and two ways to speak to them.

`through` is for the official SDK's own client. `Wire` is a client of its own that writes and reads single lines, for what
no well-behaved client does: half a line, an answer that nobody reads, a request that is taken back.

Between the tests and a server stands a process that does nothing: it is the client whose session the server is, so that
the tests themselves belong to no session and may run commands for all of them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.desk import COMMAND, SECONDS, Desk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from types import TracebackType

CLIENT = (
    "import signal, subprocess, sys\n"
    "server = subprocess.Popen(sys.argv[1:])\n"
    "for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):\n"
    "    signal.signal(one, lambda number, frame: server.send_signal(number))\n"
    "sys.exit(server.wait())\n"
)
"""The client's process: it hands its streams and its signals on, and its exit code back."""


def command(*words: str) -> list[str]:
    """The command line of a client that starts `postroom mcp` with these words."""
    return [sys.executable, "-c", CLIENT, COMMAND, "mcp", *words]


@asynccontextmanager
async def through(
    desk: Desk,
    *words: str,
    environ: Mapping[str, str] | None = None,
    argv: list[str] | None = None,
    errors: Any = None,
    **more: Any,
) -> AsyncGenerator[ClientSession]:
    """A session of the official client with a server of ours; `more` is for that client."""
    program, *arguments = argv or command(*words)
    parameters = StdioServerParameters(
        command=program, args=arguments, env={**desk.environ, **(environ or {})}, cwd=desk.folder
    )
    with open(os.devnull, "w") as nowhere:
        async with (
            stdio_client(parameters, errlog=errors or nowhere) as (reads, writes),
            ClientSession(reads, writes, **more) as session,
        ):
            await session.initialize()
            await session.call_tool(
                "list_agents", {}
            )  # the handshake does not wait for the session, a call does
            yield session


def said(result: Any) -> str:
    """The text of a result."""
    (block,) = result.content
    return str(block.text)


def document(result: Any) -> dict[str, Any]:
    """The document of a result."""
    assert result.structured_content is not None, result
    return dict(result.structured_content)


class Wire:
    """One client of single lines.

    Args:
        desk: where the server runs.
        words: for `postroom mcp`.
        argv: the whole command line, in place of a client and a server.
        capabilities: what this client can do.
    """

    def __init__(
        self,
        desk: Desk,
        *words: str,
        argv: list[str] | None = None,
        environ: Mapping[str, str] | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            argv or command(*words),
            env={**desk.environ, **(environ or {})},
            cwd=desk.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in = self.process.stdin.fileno()
        self._out = self.process.stdout.fileno()
        self._capabilities = dict(capabilities or {})
        self._begun = b""
        self._last = 0
        self.passed: list[dict[str, Any]] = []

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    # ── lines ────────────────────────────────────────────────────────────────────────────────────

    def write(self, data: bytes | Mapping[str, Any]) -> None:
        """Writes bytes as they are, or one message with its newline."""
        line = data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n"
        while line:
            line = line[os.write(self._in, line) :]

    def read(self, seconds: float = SECONDS) -> dict[str, Any]:
        """The next line that the server wrote; it must be one message."""
        end = time.monotonic() + seconds
        while b"\n" not in self._begun:
            left = end - time.monotonic()
            assert left > 0, "the server did not answer in time"
            assert select.select([self._out], [], [], left)[0], "the server did not answer in time"
            data = os.read(self._out, 65536)
            assert data, "the server has ended"
            self._begun += data
        line, _, self._begun = self._begun.partition(b"\n")
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return dict(message)

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next message of which this holds; what came before is in `passed`."""
        while not holds(message := self.read()):
            self.passed.append(message)
        return message

    # ── the protocol ─────────────────────────────────────────────────────────────────────────────

    def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, number: int | None = None
    ) -> int:
        """Writes a request and does not wait; returns its id."""
        self._last = self._last + 1 if number is None else number
        self.write(
            {
                "jsonrpc": "2.0",
                "id": self._last,
                "method": method,
                **({} if params is None else {"params": params}),
            }
        )
        return self._last

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Writes a notification."""
        self.write({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    def answer(self, request: int) -> dict[str, Any]:
        """The answer to a request."""
        return self.until(lambda message: message.get("id") == request and "method" not in message)

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A request and its answer."""
        return self.answer(self.request(method, params))

    def greet(self, version: str = "2025-11-25") -> dict[str, Any]:
        """The handshake; returns what the server said of itself."""
        answer = self.ask(
            "initialize",
            {
                "protocolVersion": version,
                "capabilities": self._capabilities,
                "clientInfo": {"name": "wire", "version": "1"},
            },
        )
        self.notify("notifications/initialized")
        self.text("list_agents")  # the handshake does not wait for the session, a call does
        return dict(answer["result"])

    def calling(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        number: int | None = None,
    ) -> int:
        """Writes the call of a tool and does not wait; returns the request's id."""
        params = {"name": tool, "arguments": arguments or {}, **({"_meta": meta} if meta else {})}
        return self.request("tools/call", params, number=number)

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """The result of a call."""
        answer = self.answer(self.calling(tool, arguments, **more))
        assert "result" in answer, answer
        return dict(answer["result"])

    def text(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> str:
        """The text of a call's result."""
        return str(self.call(tool, arguments, **more)["content"][0]["text"])

    # ── the end ──────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Closes the client's end of the server's input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ended(self) -> int:
        """Waits until the client's process has ended; returns its exit code."""
        return self.process.wait(SECONDS)

    def end(self) -> str:
        """Ends it, if it has not ended; returns what it wrote on standard error."""
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            if not stream.closed:
                stream.close()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            raise
        assert self.process.stderr is not None
        if self.process.stderr.closed:
            return ""
        with self.process.stderr:
            return self.process.stderr.read().decode()
