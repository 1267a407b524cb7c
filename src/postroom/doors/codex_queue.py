"""The door of a Codex without a server: its own queue of what a thread is to read next (09.3).

`codex queue` takes the text on its command line alone, where every user of the machine can read it. The same queue is
reached by a `codex app-server` of one's own, over its standard input: it is started, asked to queue, and ended; that
takes a tenth of a second. The thread's process looks at the queue about every ten seconds while it is idle, and after
a turn. The text comes as the user's own input there, so it stands under the preface (04.1).

The program is the very one that the client runs; it gets no shell, and no variable of a session.

How it fails: a thread that no process has open is not ready, since its queue would keep the text for ever; nor is one
whose windows have closed, since its turn would run unseen; nor one that has had no turn yet, which Codex does not know by
then. Until the request is written everything is `failed`; then an error is `failed` and silence `unknown`.

Weak: a person can pause the queue, or delete from it, and nobody tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from postroom import __version__
from postroom.doors import Rang
from postroom.doors.codex_threads import (
    MAX_ANSWER,
    MAX_INPUT,
    NO_ANSWER,
    Asking,
    Refused,
    Silent,
    home_of,
    thread_of,
    why_closed,
)
from postroom.state import processes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from postroom.core.message import PermissionClass
    from postroom.doors import Attended

__all__ = ["QueueDoor", "door", "program_of"]

RING_SECONDS = 15.0
"""Start the program, ask, be answered: a hundred times what it takes on an idle machine."""

QUEUE_ENDING_SECONDS = 2.0
"""How long the program may take to end once its input has ended; then it is killed."""

ROOM_BYTES = 131_072
"""Text of one item: what a model reads at once. Codex takes eight times as much."""


def program_of(here: Attended) -> str:
    """The Codex that the client runs, else the one on the PATH; empty: none is found."""
    running = processes.executable_of(here.process[0])
    if os.path.basename(running).startswith("codex") and os.access(running, os.X_OK):
        return running
    places = (here.variable("PATH") or here.environ.get("PATH", "")).split(os.pathsep)
    path = os.pathsep.join(
        place for place in places if os.path.isabs(place)
    )  # never what lies in the project
    return shutil.which("codex", path=path) or ""


def door(here: Attended, dropped: Callable[[Sequence[str], str], None]) -> QueueDoor:
    """Makes this door."""
    del dropped
    return QueueDoor(here)


class _Pipes:
    """A `codex_threads.Wire` over the standard streams of a program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._stdout = process.stdout

    async def send(self, line: str) -> None:
        self._stdin.write(line.encode() + b"\n")
        await self._stdin.drain()

    async def receive(self) -> str | bytes:
        try:
            line = await self._stdout.readline()
        except ValueError as error:  # longer than any answer
            raise Silent("too long an answer") from error
        if not line:
            raise Silent("the program ended")
        return line


class QueueDoor:
    """A `postroom.doors.Door`; see this module."""

    name = "codex-queue"
    room = ROOM_BYTES

    def __init__(self, here: Attended) -> None:
        self._here = here

    async def ready(self) -> str:
        """See the port: nothing is started."""
        if not program_of(self._here):
            return "the program `codex` is not found"
        thread = thread_of(self._here)
        if not thread:
            return "it is not known which of its threads this is"
        return why_closed(self._here, thread)

    async def ring(self, text: str, msg_ids: Sequence[str], stated: PermissionClass | None) -> Rang:
        """See the port."""
        del stated
        if len(text) > MAX_INPUT:
            return Rang("failed", "it is longer than Codex takes")
        began = False
        try:
            async with asyncio.timeout(RING_SECONDS), self._server() as wire:
                asking = Asking(wire, "postroom", __version__)
                await asking.hello()
                request: dict[str, object] = {
                    "threadId": thread_of(self._here),
                    "clientUserMessageId": msg_ids[0] if msg_ids else "notice",
                    "input": [{"type": "text", "text": text, "text_elements": []}],
                }
                began = True
                await asking.ask("thread/queue/add", request)
        except Refused as error:
            return Rang("failed", str(error))
        except NO_ANSWER as error:
            detail = "no answer in time" if isinstance(error, TimeoutError) else str(error)[:80]
            return Rang("unknown" if began else "failed", detail)
        return Rang("accepted")

    @asynccontextmanager
    async def _server(self) -> AsyncGenerator[_Pipes]:
        """A server of one's own, for one question. Raises OSError where the program cannot be started."""
        environ = {
            name: value for name, value in self._here.environ.items() if not name.startswith("POSTROOM_")
        }
        process = await asyncio.create_subprocess_exec(
            program_of(self._here),
            "app-server",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**environ, "CODEX_HOME": home_of(self._here)},
            cwd="/",
            limit=MAX_ANSWER,
        )
        try:
            yield _Pipes(process)
        finally:
            await _ended(process)

    async def close(self) -> None:
        """See the port: nothing is held between rings."""


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Has a program end: its input ends, and after a while it is killed."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(QUEUE_ENDING_SECONDS):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
