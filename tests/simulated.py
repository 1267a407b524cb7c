"""Real sessions of one process whose clock a test moves: folders, stores, sockets and records are those that ship.

Time stands still unless a test moves it, and what is due by it happens at `session.tick()`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from postroom import Receipt, Session
from tests.room import states
from tests.transports.ends import until

if TYPE_CHECKING:
    import pytest

    from postroom.core.message import Notice

MINUTE = 60
"""In seconds."""


class Clock:
    """The time of every session that is opened while it is in place; it begins with the true one."""

    def __init__(self) -> None:
        self.now = time.time_ns() // 1_000_000

    def __call__(self) -> int:
        return self.now

    def forward(self, seconds: float) -> None:
        """Moves on."""
        self.now += round(seconds * 1000)


def clock_in_place(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Puts a clock that stands still in the place of the wall clock."""
    clock = Clock()
    monkeypatch.setattr("postroom.opening.epoch_ms", clock)
    return clock


async def says(sender: Session, to: str, text: str = "hello", *, msg_id: str | None = None) -> str:
    """Sends; it must be acknowledged. Returns the id."""
    receipt = await sender.send(to, text, summary="a text", msg_id=msg_id)
    assert isinstance(receipt, Receipt), receipt
    assert receipt.status == "queued"
    return receipt.msg_id


async def quiet(*sessions: Session) -> None:
    """Waits until nothing is owed to anybody by these sessions: a notice is paid for when its reader has read it."""
    await until(lambda: not any(each.store.pending or each.store.owed() for each in sessions))


def hears(session: Session) -> list[Notice]:
    """The notices that wait for a session's loop, which are gone then; messages stay."""
    lease = session.take(limit=0)
    session.confirm(lease)
    return list(lease.notices)


def kinds(notices: Iterable[Notice]) -> list[str]:
    """The kinds of notices, in order."""
    return [notice.kind for notice in notices]


def held(session: Session) -> list[str]:
    """The ids of what a session holds, oldest first."""
    return [hold.message.msg_id for hold in session.held()]


def ends(session: Session, ids: Iterable[str]) -> list[str]:
    """What became of messages last, as a session's journal has it."""
    return [states(session, msg_id)[-1] for msg_id in ids]
