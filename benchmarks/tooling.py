"""Row 12: the tools over MCP, from the client's side: one call, and how long a server needs until it answers.

The client is a few lines of blocking Python, the same for all: it writes one line and reads one. Our call is
`read_messages` with nothing there, which is as empty as the floor's tool; the others are shown beside it, because they do
what they are for. The interpreter is this one for all of them, for it has the SDK.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands import core_or_free
from benchmarks.harness import Goal, Group, beside, floor, on_core, ours, peer, timed
from benchmarks.installed import here
from benchmarks.peers import package
from benchmarks.processes import SECONDS, end, private_place

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from benchmarks.harness import Bench, Case, Pin
    from benchmarks.processes import Place

ENDS = str(Path(__file__).with_name("mcp_ends.py"))

EMPTY = "the SDK with an empty tool"
FASTMCP = "FastMCP with an empty tool"
NO_FASTMCP = "not installed: the package fastmcp"
READ = "postroom mcp, read_messages with nothing there"
START = "postroom mcp"


ROOMY = '{"limits": {"bucketCapacity": 500, "refillPerSecond": 50}}'
"""Room for what is sent beside the calls that are judged: as much as a settings file can give."""


class Server:
    """One server that runs, and its client.

    Args:
        argv: the server's command line.
        environ: its environment.
        core: where it runs.
    """

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], core: int | None) -> None:
        with on_core(core):
            self._process = subprocess.Popen(
                argv, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in = self._process.stdin
        self._out = self._process.stdout
        self._last = 0
        self.ask(
            "initialize",
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "benchmark", "version": "1"},
            },
        )
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _write(self, message: Mapping[str, Any]) -> None:
        self._in.write(json.dumps(message).encode() + b"\n")
        self._in.flush()

    def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """One request and its answer. RuntimeError where it was refused."""
        self._last += 1
        self._write({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        answer = json.loads(self._out.readline())
        if answer.get("id") != self._last or "result" not in answer:
            raise RuntimeError(f"{method} was answered with {answer}")
        return dict(answer["result"])

    def call(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """One call of a tool. RuntimeError where it failed."""
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError"):
            raise RuntimeError(f"{tool} failed: {result}")

    def close(self) -> None:
        """Ends it."""
        self._in.close()
        self._out.close()
        self._process.wait(SECONDS)


@contextlib.contextmanager
def served(place: Place, argv: Sequence[str], core: int | None) -> Generator[Server]:
    """A server, while the block runs."""
    server = Server(argv, place.environ, core)
    try:
        yield server
    finally:
        server.close()


def commands(place: Place) -> tuple[list[str], list[str], list[str] | None]:
    """The command lines of the floor, of ours, of the peer where it is installed."""
    ours_is = [here("").postroom, "mcp", "--client", "generic", "--name", "measured", "--settings", ROOMY]
    floor_is, peer_is = ([sys.executable, "-P", ENDS, role] for role in ("floor", "fastmcp"))
    return floor_is, ours_is, peer_is if package("fastmcp") is not None else None


def over_mcp(bench: Bench) -> Generator[Group]:
    """Row 12: one call, and a start."""
    for pin in core_or_free(bench):
        yield from calls_on(bench, pin)
    for pin in core_or_free(bench):
        yield from starts_on(bench, pin)


def calls_on(bench: Bench, pin: Pin) -> Generator[Group]:
    """One call on this core."""
    count = bench.count(400)
    with private_place() as place, contextlib.ExitStack() as running:
        bob = running.enter_context(end("host", "bob", core=pin.there, environ=place.environ))
        floor_is, ours_is, peer_is = commands(place)
        least = running.enter_context(served(place, floor_is, pin.there))
        own = running.enter_context(served(place, ours_is, pin.there))
        numbers = iter(range(sys.maxsize))

        def calls(server: Server, tool: str) -> Callable[[], float]:
            return lambda: timed(lambda: server.call(tool, {}), count)

        def sends() -> float:
            bob.ask("clear")
            return timed(lambda: own.call("send_message", letter(next(numbers))), max(1, count // 200))

        there: Case
        if peer_is is None:
            there = peer(FASTMCP, None, NO_FASTMCP)
        else:
            there = peer(FASTMCP, calls(running.enter_context(served(place, peer_is, pin.there)), "empty"))
        running.enter_context(on_core(pin.here))
        yield Group(
            title="one call of a tool over standard streams",
            pin=pin.name,
            slices=bench.slices,
            cases=(
                floor(EMPTY, calls(least, "empty")),
                ours(READ, calls(own, "read_messages")),
                beside("list_agents with one other", calls(own, "list_agents")),
                beside("send_message, delivered, synced, acknowledged", sends),
                there,
            ),
            goals=(
                Goal(limit=1.2, text=f"≤ 1.2 × {EMPTY}"),
                Goal(limit=0.8, over=FASTMCP, text=f"≤ 0.8 × {FASTMCP}"),
            ),
        )


def letter(number: int) -> dict[str, str]:
    """The arguments of a send, none twice the same."""
    return {"to": "bob", "message": f"The column is tenant_id ({number}).", "summary": "schema"}


def starts_on(bench: Bench, pin: Pin) -> Generator[Group]:
    """From the start of a server to its first answer, on this core."""
    with private_place() as place, on_core(pin.here):
        floor_is, ours_is, peer_is = commands(place)

        def starts(argv: Sequence[str]) -> Callable[[], float]:
            def start() -> float:
                begun = time.perf_counter()
                server = Server(argv, place.environ, pin.there)
                seconds = time.perf_counter() - begun
                server.close()
                return seconds

            return start

        yield Group(
            title="from the start of a server to its first answer",
            pin=pin.name,
            cases=(
                floor(EMPTY, starts(floor_is)),
                ours(START, starts(ours_is)),
                peer(FASTMCP, None if peer_is is None else starts(peer_is), NO_FASTMCP),
            ),
            goals=(
                Goal(limit=1.2, text=f"≤ 1.2 × {EMPTY}"),
                Goal(limit=0.8, over=FASTMCP, text=f"≤ 0.8 × {FASTMCP}"),
            ),
            note=f"With this environment's interpreter, for it has the SDK: {os.path.basename(sys.executable)}.",
        )
