"""The server's end of a client's two pipes: lines in, lines out, and which answer has left whole (09.9, 11.1).

The official SDK serves a pair of streams; these are two that know more than its own. `Outgoing` writes one line at a time
and says of each answer whether every byte of it was taken, so that the messages in it count as read then and not before.
`Incoming` bounds what it holds, answers what is no message, and ends the server once the client has closed its end.

`claimed` takes standard input and output away from everything else in the process: what is printed by mistake goes to
standard error, and breaks no line of the protocol.

How it fails: a client that has gone is `BrokenResourceError` for whoever writes, and the end of the stream for whoever
reads. A line that cannot be read is answered with an error, without an id where none can be found in it.

Weak: that a line was taken says that it is in the client's pipe; a client that is killed before it reads it has lost it.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import select
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING, Self, cast

import anyio
from mcp import types
from mcp.shared.message import ServerMessageMetadata, SessionMessage

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    RequestId = int | str
    Settle = Callable[[bool], None]

__all__ = ["MAX_CLIENT_LINE", "Incoming", "Outgoing", "claimed"]

MAX_CLIENT_LINE = 16_777_216
"""Bytes of one line: the longest text of a message, each character of it written as two escapes (01.19)."""

MOST_LINES = 64
"""Lines that wait to be read at most; then the client waits."""

MOST_OPEN = 1_000
"""Requests that are answered at once; another one is refused, and not read while that cannot be written (11.10)."""

READ_BYTES = 65_536
"""What is read at once: the size of a pipe."""

WRITE_BYTES = 4_096
"""What is written at once: a pipe or a socket that can be written to takes so much without blocking."""

GRACE_SECONDS = 5.0
"""How long answers may still leave once the client has closed its end, which may be that end alone: what a send takes."""

DISCOVER = "server/discover"
"""The probe of clients that can do without a handshake. It is answered as by a server that has none of that: within a
handshake the server may ask something of its own accord, and that is how a person is asked about a hold (09.9). A
client that begins without a handshake and without a probe is served all the same."""


def claimed() -> tuple[int, int]:
    """Takes the process's standard input and output; returns the two descriptors that are theirs from now on."""
    reading, writing = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1))
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # standard error is closed
        os.dup2(nothing, 1)
    os.close(nothing)
    return reading, writing


class _Stream:
    """What the SDK's streams have besides: they are closed, and may be used with `async with`."""

    async def aclose(self) -> None:
        """Nothing more is taken or given."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class Outgoing(_Stream):
    """What the client reads: one line at a time, whole.

    Args:
        fd: where it is written.
    """

    def __init__(self, fd: int) -> None:
        self.on_broken: Callable[[], None] = lambda: None
        self._fd = fd
        self._alone = asyncio.Lock()
        self._ready = select.poll()
        self._ready.register(fd, select.POLLOUT)
        self._broken = False
        self._begun = asyncio.Event()
        self._open: Counter[RequestId] = Counter()
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._carrying: dict[RequestId, deque[Settle]] = {}

    # ── what an answer carries ───────────────────────────────────────────────────────────────────

    def carries(self, request: RequestId, settle: Settle) -> None:
        """The answer to this request carries something: `settle` is told once whether it left whole."""
        self._carrying.setdefault(request, deque()).append(settle)

    def asked(self, request: RequestId) -> None:
        """A request came in."""
        self._open[request] += 1
        self._none_open.clear()

    @property
    def busy(self) -> bool:
        """Whether as many requests are open as are answered at once."""
        return self._open.total() >= MOST_OPEN

    async def unanswered(self, request: RequestId) -> None:
        """A request ended without an answer: the client took it back."""
        self._settled(request, False)

    async def begun(self, seconds: float) -> None:
        """Waits until the first line has left, so long at most."""
        try:
            async with asyncio.timeout(seconds):
                await self._begun.wait()
        except TimeoutError:
            pass

    async def answered(self, seconds: float) -> None:
        """Waits until every request is answered, so long at most."""
        try:
            async with asyncio.timeout(seconds):
                await self._none_open.wait()
        except TimeoutError:
            pass

    def _settled(self, request: RequestId, whole: bool) -> None:
        if self._open[request] > 1:
            self._open[request] -= 1
        else:
            del self._open[request]
        if not self._open:
            self._none_open.set()
        waiting = self._carrying.get(request)
        if waiting:
            settle = waiting.popleft()
            if not waiting:
                del self._carrying[request]
            settle(whole)

    async def aclose(self) -> None:
        """Nothing more is written: what has not left did not."""
        self._broken = True
        for request in list(self._carrying):
            while request in self._carrying:
                self._settled(request, False)

    # ── lines ────────────────────────────────────────────────────────────────────────────────────

    async def send(self, item: SessionMessage) -> None:
        """Writes one message. Raises BrokenResourceError where the client has gone."""
        message = item.message
        whole = False
        try:
            await self._line(message)
            whole = True
        finally:
            if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and message.id is not None:
                self._settled(message.id, whole and isinstance(message, types.JSONRPCResponse))

    async def _line(self, message: types.JSONRPCMessage) -> None:
        line = message.model_dump_json(by_alias=True, exclude_unset=True)
        async with self._alone:
            await self._write(f"{line}\n".encode())
        self._begun.set()

    async def refuse(self, request: RequestId | None, code: int, says: str) -> None:
        """Answers what never reaches the server with an error; a request of the same id that did stays open."""
        error = types.ErrorData(code=code, message=says)
        try:
            await self._line(types.JSONRPCError(jsonrpc="2.0", id=request, error=error))
        except anyio.BrokenResourceError:
            pass  # nobody is left who would read it

    async def _write(self, line: bytes) -> None:
        if self._broken:
            raise anyio.BrokenResourceError
        left = memoryview(line)
        try:
            while left:
                if not self._ready.poll(0):
                    await self._writable()
                left = left[os.write(self._fd, left[:WRITE_BYTES]) :]
        except BaseException as error:  # half a line may be out, and nothing can follow it
            self._broken = True
            self.on_broken()
            if isinstance(error, OSError):
                raise anyio.BrokenResourceError from None
            raise

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_writer(self._fd, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_writer(self._fd)


class Incoming(_Stream):
    """What the client writes, message by message.

    Args:
        fd: where it is read.
        outgoing: where what is no message is answered.
        ended: called once the client has closed its end; answers may still be on their way.
    """

    def __init__(self, fd: int, outgoing: Outgoing, ended: Callable[[], None] = lambda: None) -> None:
        self._fd = fd
        self._outgoing = outgoing
        self._on_end = ended
        self._lines: deque[bytes | None] = deque()  # None: one that was too long
        self._begun = bytearray()
        self._too_long = False
        self._ended = False
        self._watched = False
        self._file = False
        self._wake: asyncio.Future[None] | None = None
        outgoing.on_broken = self.end

    def start(self) -> None:
        """Begins to read."""
        try:
            asyncio.get_running_loop().add_reader(self._fd, self._read)
            self._watched = True
        except PermissionError:  # a file, which can be read at any time and is never waited for
            self._file = True

    def end(self) -> None:
        """Nothing more comes."""
        if self._watched:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._watched = False
        if not self._ended:
            self._ended = True
            self._on_end()
        self._woken()

    async def aclose(self) -> None:
        """Nothing more is read."""
        self.end()

    def _woken(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *whole, rest = data.split(b"\n")
        for part in whole:
            too_long = self._too_long or len(self._begun) + len(part) > MAX_CLIENT_LINE
            self._lines.append(None if too_long else bytes(self._begun + part))
            self._begun.clear()
            self._too_long = False
        if len(self._begun) + len(rest) > MAX_CLIENT_LINE:
            self._begun.clear()
            self._too_long = True
        elif not self._too_long:
            self._begun += rest
        if not data:
            if self._begun:  # the last line may lack its end
                self._lines.append(bytes(self._begun))
                self._begun.clear()
            self.end()
        elif self._watched and len(self._lines) >= MOST_LINES:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._watched = False
        self._woken()

    async def _line(self) -> bytes | None:
        while not self._lines:
            if self._ended:
                await self._outgoing.answered(GRACE_SECONDS)
                raise anyio.EndOfStream
            if self._file:
                self._read()
                continue
            if not self._watched:
                self.start()
                continue
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        return self._lines.popleft()

    async def receive(self) -> SessionMessage | Exception:
        """The next message. Raises EndOfStream once the client has closed its end."""
        while True:
            line = await self._line()
            if line is None:
                says = f"The line has more than {MAX_CLIENT_LINE:,} bytes; nothing of it was read."
                await self._outgoing.refuse(None, types.INVALID_REQUEST, says)
                continue
            if not line.strip():
                continue
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                await self._outgoing.refuse(*flaw_of(line))
                continue
            if not isinstance(message, types.JSONRPCRequest):
                return SessionMessage(message)
            if message.method == DISCOVER:
                await self._outgoing.refuse(message.id, types.METHOD_NOT_FOUND, "Method not found")
                continue
            if self._outgoing.busy:
                says = f"{MOST_OPEN:,} requests are open: wait for an answer, or take some back."
                await self._outgoing.refuse(message.id, types.INTERNAL_ERROR, says)
                continue
            self._outgoing.asked(message.id)
            unanswered = partial(self._outgoing.unanswered, message.id)
            return SessionMessage(message, ServerMessageMetadata(on_request_unanswered=unanswered))

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


def flaw_of(line: bytes) -> tuple[RequestId | None, int, str]:
    """What is answered to a line that is no message: the id, if it has one, the code, the words."""
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None, types.PARSE_ERROR, "The line is no JSON."
    request = cast("dict[str, object]", found).get("id") if isinstance(found, dict) else None
    named = isinstance(request, int | str) and not isinstance(request, bool)
    return (
        cast("RequestId", request) if named else None,
        types.INVALID_REQUEST,
        "The line is no message of JSON-RPC.",
    )
