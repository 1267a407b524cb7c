"""Other programs that do the same work, where they happen to be installed.

None is needed. What is absent becomes a case that says so. Their packages are loaded by name, from this environment or
else from the folder `PEERS`, and are untyped here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.harness import peer, timed
from benchmarks.installed import CACHE
from benchmarks.processes import free_port, server

if TYPE_CHECKING:
    from collections.abc import Generator

    from benchmarks.harness import Case

AUTOGEN_PUBLISH = "autogen-core, publish_message"
AUTOGEN_SEND = "autogen-core, send_message"
JETSTREAM = "NATS JetStream, publish and acknowledgement, in a file without a sync"
REDIS = "Redis, XADD, AOF always"

NO_AUTOGEN = "not installed: the package autogen-core"
NO_JETSTREAM = "not installed: the program nats-server and the package nats-py"
NO_REDIS = "not installed: the program redis-server and the package redis"


PEERS = CACHE / "peers"
"""Where packages may be put with `pip install --target`, so that nothing of theirs gets into this environment."""


def package(name: str) -> Any:
    """A package by its name; None where it is not installed."""
    if str(PEERS) not in sys.path:
        sys.path.append(str(PEERS))  # at the end: what this environment has comes first
    try:
        return import_module(name)
    except ImportError:
        return None


# ── autogen-core ─────────────────────────────────────────────────────────────────────────────────


@dataclass
class Note:
    """What one agent says to another."""

    to: str
    summary: str
    message: str


class Autogen:
    """One runtime with one agent, which answers what it gets with the same.

    Made by `autogen`; its methods run in the loop that it is given.
    """

    def __init__(self, runner: asyncio.Runner, core: Any, text: str) -> None:
        self._runner = runner
        self._core = core
        self._note = Note(to="builder", summary="request test review", message=text)
        self._seen = 0
        self._wanted = 0
        self._all: asyncio.Future[None] | None = None
        self._runtime: Any = core.SingleThreadedAgentRuntime()
        runner.run(self._set_up())

    async def _set_up(self) -> None:
        core = self._core

        async def handle(agent: Any, message: Any, ctx: Any) -> Any:
            del agent, ctx
            self._seen += 1
            if self._all is not None and self._seen == self._wanted:
                self._all.set_result(None)
            return message

        handle.__annotations__ = {"message": Note, "ctx": core.MessageContext, "return": Note}

        def begin(agent: Any) -> None:
            core.RoutedAgent.__init__(agent, "echo")

        made: Any = type(
            "Echo",
            (core.RoutedAgent,),
            {
                "__init__": begin,
                "handle": core.message_handler(handle),
            },
        )
        await made.register(self._runtime, "echo", made)
        await self._runtime.add_subscription(core.TypeSubscription(topic_type="notes", agent_type="echo"))
        self._runtime.start()

    def publish(self, count: int) -> float:
        """Seconds for each message that is published and handled."""
        return self._runner.run(self._publish(count))

    async def _publish(self, count: int) -> float:
        topic = self._core.TopicId("notes", "default")
        self._seen, self._wanted = 0, count
        self._all = asyncio.get_running_loop().create_future()
        begun = perf_counter()
        for _ in range(count):
            await self._runtime.publish_message(self._note, topic)
        await self._all
        return (perf_counter() - begun) / count

    def send(self, count: int) -> float:
        """Seconds for each message with its answer, one at a time."""
        return self._runner.run(self._send(count))

    async def _send(self, count: int) -> float:
        agent = self._core.AgentId("echo", "default")
        self._all = None
        begun = perf_counter()
        for _ in range(count):
            await self._runtime.send_message(self._note, agent)
        return (perf_counter() - begun) / count

    async def stop(self) -> None:
        """Ends the runtime."""
        await self._runtime.stop()


@contextlib.contextmanager
def autogen(text: str) -> Generator[Autogen | None]:
    """Runs autogen-core's runtime in a loop of its own while the block runs; None where it is absent."""
    core = package("autogen_core")
    if core is None:
        yield None
        return
    with asyncio.Runner() as runner:
        made = Autogen(runner, core, text)
        try:
            yield made
        finally:
            runner.run(made.stop())


# ── NATS and Redis ───────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def jetstream(body: bytes, count: int, core: int | None) -> Generator[Case]:
    """A stream in a file, published to over a kept connection, one at a time; its server on this core."""
    program, nats = shutil.which("nats-server"), package("nats")
    if program is None or nats is None:
        yield peer(JETSTREAM, None, NO_JETSTREAM)
        return
    port = free_port()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pb-"))
        stack.enter_context(
            server([program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder], port, core)
        )
        runner = stack.enter_context(asyncio.Runner())
        client: Any = runner.run(nats.connect(f"nats://127.0.0.1:{port}"))
        stack.callback(lambda: runner.run(client.close()))
        stream: Any = client.jetstream()
        runner.run(stream.add_stream(name="bench", subjects=["bench.>"]))

        async def publish() -> float:
            begun = perf_counter()
            for _ in range(count):
                await stream.publish("bench.builder", body)
            return (perf_counter() - begun) / count

        yield peer(JETSTREAM, lambda: runner.run(publish()))


@contextlib.contextmanager
def redis_always(body: bytes, count: int, folder: str, core: int | None) -> Generator[Case]:
    """A stream whose every entry is synced before it is acknowledged; the server on this core."""
    program, redis = shutil.which("redis-server"), package("redis")
    if program is None or redis is None:
        yield peer(REDIS, None, NO_REDIS)
        return
    port = free_port()
    os.makedirs(folder, exist_ok=True)
    synced = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, *synced]
    with server(command, port, core):
        client: Any = redis.Redis(host="127.0.0.1", port=port)
        try:
            yield peer(REDIS, lambda: timed(lambda: client.xadd("bench", {"body": body}), count))
        finally:
            client.close()
