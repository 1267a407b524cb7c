"""A request of an agent's loop that is under way is never changed: what arrives is in the next one (06.5, 06.7).

Each loop keeps what it has sent to its model, as bytes and as a copy. Whatever is sent, given back, or tried on a batch
meanwhile, the kept request stays as it was, to the byte.
"""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom import Agent, Agents, Batch, Gathering, Receipt, open_in_memory
from postroom.core.settings import Limits
from tests.stepping import Stepping


class Requests:
    """The requests of one loop, and what they were when they left."""

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []
        self.left: list[tuple[list[dict[str, Any]], list[dict[str, Any]], bytes]] = []

    def begin(self, batch: Batch) -> list[dict[str, Any]]:
        """One request, of all that was said before and of the batch: its input is handed over here."""
        self.history += [{"role": "user", "id": one.id, "content": one.text} for one in batch]
        request = list(self.history)
        self.left.append((request, copy.deepcopy(request), json.dumps(request).encode()))
        return request

    def unchanged(self) -> bool:
        return all(
            request == kept and json.dumps(request).encode() == data for request, kept, data in self.left
        )


def stepped(main: Any, picks: list[int]) -> None:
    loop = Stepping()
    try:
        loop.finish(main(), picks)
        assert not loop.complaints
        assert not loop.left()
    finally:
        loop.close()


@pytest.mark.rule("06.4", "06.5", "06.7")
@given(picks=st.lists(st.integers(0, 5), max_size=30), sends=st.lists(st.integers(0, 2), max_size=12))
@settings(max_examples=80)
def test_show_3_a_send_while_a_request_is_under_way_changes_nothing_of_it(
    picks: list[int], sends: list[int]
) -> None:
    async def main() -> None:
        async with open_in_memory("lead", Gathering(), limits=Limits.unbounded()) as session:
            agents = Agents(session)
            worker, other = await agents.start("worker"), await agents.start("other")
            requests, seen, accepted = Requests(), list[str](), list[str]()

            async def loop(agent: Agent) -> None:
                async with agent.running() as run:
                    for _ in range(8):
                        batch = agent.drain()
                        before = [(one.id, one.text) for one in batch]
                        seen.extend(entry.text for entry in batch.entries)
                        requests.begin(batch)
                        for _ in range(3):  # the request, and a call of a tool
                            await asyncio.sleep(0)
                            assert requests.unchanged()
                            assert [(one.id, one.text) for one in batch] == before
                    run.result = "done"

            async def send(n: int, how: int) -> None:
                voice = (session, other, session)[how]
                answer = await voice.send("worker", f"message {n}", summary="s")
                if isinstance(answer, Receipt):  # else the loop has ended by then
                    accepted.append(f"message {n}")

            working = asyncio.ensure_future(loop(worker))
            await asyncio.sleep(0)
            if worker.state == "live":
                sending: list[asyncio.Future[None]] = []
                for n, how in enumerate(sends):
                    sending.append(asyncio.ensure_future(send(n, how)))
                    await asyncio.sleep(0)
                for one in sending:
                    await one
            await working
            assert requests.unchanged()
            shown = [turn["content"] for turn in requests.history]
            assert len(shown) == len(seen)
            assert set(seen) <= set(accepted)
            assert all(text in content for text, content in zip(seen, shown, strict=True))
            assert len({turn["id"] for turn in requests.history}) == len(shown), (
                "each attachment has an id of its own"
            )

    stepped(main, picks)


@pytest.mark.rule("06.6", "06.7")
def test_nothing_that_is_tried_on_a_batch_reaches_what_is_under_way_or_what_waits() -> None:
    async def main() -> None:
        async with open_in_memory("lead", Gathering()) as session:
            agents = Agents(session)
            worker = await agents.start("worker")
            await session.send("worker", "one", summary="s")
            peeked = worker.peek()
            batch = worker.drain()
            requests = Requests()
            request = requests.begin(batch)
            data = json.dumps(request).encode()
            for harm in (
                lambda: batch.entries.__setitem__(0, None),  # type: ignore[attr-defined]
                lambda: setattr(batch.entries[0], "text", "two"),
                lambda: setattr(batch.attachments[0], "text", "two"),
                lambda: setattr(batch.entries[0].origin, "name", "somebody"),
                lambda: setattr(batch, "more", 1),
                lambda: setattr(peeked[0], "text", "two"),
            ):
                with pytest.raises((AttributeError, TypeError)):
                    harm()
            batch.texts.append("slipped in")
            batch.texts[0] = "two"
            await session.send("worker", "late", summary="s")
            assert json.dumps(request).encode() == data
            assert len(batch.texts) == 1
            assert batch.text == batch.texts[0] == request[0]["content"]
            assert "late" not in batch.text
            assert [entry.text for entry in batch.entries] == ["one"]
            batch.release()  # a request that failed: it comes again, and the old one is what it was
            batch.release()
            assert [entry.text for entry in worker.peek()] == ["one", "late"]
            again = worker.drain()
            assert json.dumps(request).encode() == data
            assert again.attachments[0].id != batch.attachments[0].id
            await worker.finish()

    stepped(main, [])


@pytest.mark.rule("06.7", "06.13")
def test_what_a_resume_was_given_stays_what_it_was_when_more_joins() -> None:
    async def main() -> None:
        async with open_in_memory("lead", Gathering()) as session:
            given_: list[tuple[Batch, bytes]] = []
            told = asyncio.Event()

            async def resume(agent: Agent, messages: Any) -> None:
                given_.append((messages, messages.text.encode()))
                await told.wait()

            agents = Agents(session, resume=resume)
            worker = await agents.start("worker")
            await worker.finish()
            first = asyncio.ensure_future(session.send("worker", "one", summary="s"))
            while not given_:
                await asyncio.sleep(0)
            second = asyncio.ensure_future(session.send("worker", "two", summary="s"))
            await asyncio.sleep(1)
            told.set()
            assert isinstance(await first, Receipt)
            assert isinstance(await second, Receipt)
            messages, data = given_[0]
            assert messages.text.encode() == data
            assert [entry.text for entry in messages.entries] == ["one"]
            messages.release()  # the host has no use for it yet: the run drains it
            assert [(entry.text, entry.redelivered) for entry in worker.drain().entries] == [
                ("one", True),
                ("two", False),
            ]
            messages.release()
            assert not worker.drain()
            await worker.finish()

    stepped(main, [])


@pytest.mark.rule("06.2", "06.7")
def test_the_main_loops_request_is_left_alone_too() -> None:
    async def main() -> None:
        gathering = Gathering()
        async with open_in_memory("lead", gathering) as session, open_in_memory("peer", gathering) as peer:
            agents = Agents(session)
            worker = await agents.start("worker")
            agents.main.prompt("/do it")
            await peer.send("lead", "from afar", summary="s")
            batch = agents.main.drain()
            requests = Requests()
            requests.begin(batch)
            agents.main.prompt("at once", priority="now")
            await worker.send("main", "from inside", summary="s")
            await peer.send("lead", "once more", summary="s")
            worker.progress("half way")
            await worker.finish(result="done")
            assert requests.unchanged()
            assert len(batch) == len(requests.history) == 2
            assert requests.history[0]["content"] == "/do it"
            batch.confirm()
            after = agents.main.drain(idle=True)
            assert after.entries[0].text == "at once"
            assert requests.unchanged()

    stepped(main, [])
