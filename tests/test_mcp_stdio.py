"""The two streams under the MCP server by themselves: what is told of an answer, and what ends them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import anyio
import pytest
from mcp import types
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from postroom.clients import stdio
from postroom.clients.stdio import MOST_LINES, Incoming, Outgoing
from tests.desk import SECONDS


class Ends:
    """Both streams, and the client's ends of them."""

    def __init__(self) -> None:
        reads, self.into = os.pipe()
        self.out_of, writes = os.pipe()
        self._ours = (reads, writes)
        self.ended: list[str] = []
        self.settled: list[bool] = []
        self.outgoing = Outgoing(writes)
        self.incoming = Incoming(reads, self.outgoing, lambda: self.ended.append("ended"))

    def close(self) -> None:
        self.incoming.end()
        for fd in {*self._ours, self.into, self.out_of}:
            os.close(fd)

    async def request(self, number: int) -> SessionMessage:
        """A request that came in."""
        os.write(self.into, b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % number)
        message = await self.incoming.receive()
        assert isinstance(message, SessionMessage)
        return message

    async def answer(self, number: int, **result: object) -> None:
        """Answers a request."""
        await self.outgoing.send(
            SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=number, result=dict(result)))
        )


def run(work: Callable[[Ends], Awaitable[None]]) -> None:
    """Runs work with both streams."""

    async def bounded() -> None:
        ends = Ends()
        try:
            async with asyncio.timeout(SECONDS):
                await work(ends)
        finally:
            ends.close()

    asyncio.run(bounded())


@pytest.mark.rule("11.1")
def test_what_an_answer_carries_is_settled_when_it_has_left() -> None:
    async def work(ends: Ends) -> None:
        await ends.request(1)
        ends.outgoing.carries(1, ends.settled.append)
        assert ends.settled == []
        await ends.answer(1)
        assert ends.settled == [True]
        assert os.read(ends.out_of, 100) == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'

    run(work)


@pytest.mark.rule("11.1")
def test_an_error_in_its_place_gives_back_what_it_carried() -> None:
    async def work(ends: Ends) -> None:
        await ends.request(1)
        ends.outgoing.carries(1, ends.settled.append)
        error = types.JSONRPCError(jsonrpc="2.0", id=1, error=types.ErrorData(code=-32603, message="no"))
        await ends.outgoing.send(SessionMessage(error))
        assert ends.settled == [False]

    run(work)


@pytest.mark.rule("11.1")
def test_a_line_that_is_no_message_under_the_id_of_an_open_request_settles_nothing() -> None:
    async def work(ends: Ends) -> None:
        await ends.request(1)
        ends.outgoing.carries(1, ends.settled.append)
        os.write(ends.into, b'{"jsonrpc":"2.0","id":1,"method":7}\n')
        await ends.request(2)
        assert ends.settled == []
        await ends.answer(1)
        assert ends.settled == [True]

    run(work)


@pytest.mark.rule("11.1")
def test_a_request_that_ends_without_an_answer_gives_back_what_it_carried() -> None:
    """The SDK's dispatcher says so: a client that takes its request back in the very moment when it is answered."""

    async def work(ends: Ends) -> None:
        message = await ends.request(1)
        ends.outgoing.carries(1, ends.settled.append)
        assert isinstance(message.metadata, ServerMessageMetadata)
        assert message.metadata.on_request_unanswered is not None
        await message.metadata.on_request_unanswered()
        assert ends.settled == [False]

    run(work)


@pytest.mark.rule("11.1")
def test_half_a_line_is_no_answer_and_nothing_follows_it() -> None:
    async def work(ends: Ends) -> None:
        await ends.request(1)
        ends.outgoing.carries(1, ends.settled.append)
        answering = asyncio.create_task(ends.answer(1, text="x" * 1_000_000))
        for _ in range(3):  # it has filled the pipe, and waits for the client
            await asyncio.sleep(0)
        assert not answering.done()
        assert os.read(ends.out_of, 100).startswith(b'{"jsonrpc":"2.0","id":1,"result":{"text":"xxx')
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        assert ends.settled == [False]
        assert ends.ended == ["ended"]
        with pytest.raises(anyio.BrokenResourceError):
            await ends.answer(2)

    run(work)


@pytest.mark.rule("11.1")
def test_a_client_that_has_gone_gives_back_what_was_for_it() -> None:
    async def work(ends: Ends) -> None:
        await ends.request(1)
        ends.outgoing.carries(1, ends.settled.append)
        ends.outgoing.carries(2, ends.settled.append)
        os.close(ends.out_of)
        ends.out_of = ends.into
        with pytest.raises(anyio.BrokenResourceError):
            await ends.answer(1)
        assert ends.settled == [False]
        await ends.outgoing.aclose()
        assert ends.settled == [False, False]
        with pytest.raises(anyio.EndOfStream):
            await ends.incoming.receive()
        await ends.outgoing.refuse(None, -32700, "nobody hears this")

    run(work)


def test_the_end_waits_for_answers_that_are_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(ends: Ends) -> None:
        await ends.request(1)
        os.close(ends.into)
        ends.into = ends.out_of
        ending = asyncio.create_task(ends.incoming.receive())
        while not ends.ended:
            await asyncio.sleep(0)
        assert not ending.done()
        await ends.answer(1)
        with pytest.raises(anyio.EndOfStream):
            await ending

    run(work)


def test_the_end_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "GRACE_SECONDS", 0.001)

    async def work(ends: Ends) -> None:
        await ends.request(1)
        os.close(ends.into)
        ends.into = ends.out_of
        with pytest.raises(anyio.EndOfStream):
            await ends.incoming.receive()

    run(work)


@pytest.mark.rule("11.7")
def test_lines_that_nobody_takes_are_left_in_the_pipe() -> None:
    async def work(ends: Ends) -> None:
        ends.incoming.start()
        line = b'{"jsonrpc":"2.0","method":"notifications/x","params":{"n":"%s"}}\n'
        os.set_blocking(ends.into, False)
        written = 0
        stuck = 0
        while stuck < 50:  # until neither the pipe nor the stream takes any more
            try:
                os.write(ends.into, line % (b"%06d" % written).ljust(3_000, b"."))
                written += 1
                stuck = 0
            except BlockingIOError:
                stuck += 1
            await asyncio.sleep(0)
        assert written < 2 * MOST_LINES + 40
        os.set_blocking(ends.into, True)
        for number in range(written):
            message = await ends.incoming.receive()
            assert isinstance(message, SessionMessage)
            assert isinstance(message.message, types.JSONRPCNotification)
            assert (message.message.params or {})["n"].startswith(f"{number:06}")

    run(work)
