"""Whole sessions that write to each other in a ring, as agents do that answer whatever comes: for the tests of loops.

`Agent` and `ring` are of one process, over a `Room`; `parties` starts the programs of tests/parties side by side.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postroom import Message, Receipt, Refusal, Session
from postroom.core import wire
from postroom.core.loops import token_of
from tests.desk import SECONDS, Desk
from tests.room import Room
from tests.transports.ends import turns

PARTIES = Path(__file__).with_name("parties")


def token(session: Session) -> str:
    """The token of a session of a `Room` in hop chains."""
    return token_of(session.address or "", session.id.encode())


def word(result: Receipt | Refusal) -> str:
    """What came of a send, in one word."""
    return result.status if isinstance(result, Receipt) else result.code


async def sent(session: Session, to: str, text: str = "hello", *, in_reply_to: str | None = None) -> str:
    """Sends; returns what came of it, in one word."""
    return word(await session.send(to, text, summary="s", in_reply_to=in_reply_to))


@dataclass(eq=False)
class Agent:
    """A session whose loop writes to another one whenever something came.

    Attributes:
        to: whom it writes to.
        says: what it says to its n-th message.
        answers_first: names the first message that it got as what it answers, each time.
        got: the messages that it was handed.
        said: what came of each send.
        told: the kinds of the notices that it was handed.
    """

    session: Session
    to: str
    says: Callable[[int], str] = "status {}".format
    answers_first: bool = False
    got: list[Message] = field(default_factory=list[Message])
    said: list[str] = field(default_factory=list[str])
    told: list[str] = field(default_factory=list[str])

    async def turn(self) -> bool:
        """Takes what waits and answers each message; whether there was anything."""
        lease = self.session.take()
        self.told += [notice.kind for notice in lease.notices]
        for message in lease.messages:
            self.got.append(message)
            answered = self.got[0].msg_id if self.answers_first else None
            text = self.says(len(self.got))
            self.said.append(await sent(self.session, self.to, text, in_reply_to=answered))
        self.session.confirm(lease)
        return bool(lease)


async def until_rest(*agents: Agent, most: int = 500) -> None:
    """Gives each its turn, again and again, until nobody has anything left; fails where that never comes."""
    for _ in range(most):
        moved = [await agent.turn() for agent in agents]
        await turns(5)  # notices are on their way
        if not any(moved) and not any(agent.session.peek_notices() for agent in agents):
            return
    raise AssertionError("they never come to rest")


@contextlib.asynccontextmanager
async def ring(room: Room, *names: str, **options: Any) -> AsyncGenerator[list[Agent]]:
    """Agents of these names at the default limits, each of which writes to the next."""
    async with contextlib.AsyncExitStack() as stack:
        agents: list[Agent] = []
        for name, to in zip(names, (*names[1:], names[0]), strict=True):
            session = await stack.enter_async_context(room.open(name, limits=None, **options))
            agents.append(Agent(session, to))
        yield agents


def counts(agents: Sequence[Agent]) -> list[int]:
    """How many messages each was handed."""
    return [len(agent.got) for agent in agents]


def words(agents: Sequence[Agent]) -> Counter[str]:
    """What came of all that they sent, opening messages apart."""
    return Counter(word for agent in agents for word in agent.said)


@contextlib.contextmanager
def parties(desk: Desk, program: str, *calls: Sequence[str]) -> Generator[list[subprocess.Popen[str]]]:
    """Programs that run side by side and are ready; they are killed at the end."""
    running = [
        subprocess.Popen(
            [sys.executable, "-P", str(PARTIES / program), *words],
            env=desk.environ,
            cwd=desk.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for words in calls
    ]
    try:
        for one in running:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        yield running
    finally:
        for one in running:
            one.kill()
            one.communicate(timeout=SECONDS)


def chained(msg_id: str, chain: str, text: str = "") -> wire.UserFrame:
    """A frame whose envelope has this for its chain."""
    content = f'<cross-session-message hop-chain="{chain}">\n{text or msg_id} says\n</cross-session-message>'
    return wire.UserFrame(wire.Content(content), msg_id=msg_id, ack=True)


def made_up(count: int) -> list[str]:
    """So many tokens of sessions that do not exist."""
    return [f"{number:024x}" for number in range(count)]
