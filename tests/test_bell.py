"""Waiting for a change and giving it up at the same moment: neither may swallow the other."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from postroom import desktop
from postroom.commits import Bell, deadline_in
from tests.transports.ends import run, turns, until


@pytest.mark.parametrize("seconds", [None, 30.0])
def test_who_is_called_off_as_the_bell_rings_is_called_off(seconds: float | None) -> None:
    """Else a task that is ended at a session's end would go on and be waited for for ever."""

    async def work() -> None:
        bell = Bell()
        waiting = asyncio.create_task(bell.heard(deadline_in(seconds)))
        await turns()
        bell.ring()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(work())


def test_a_bell_that_does_not_ring_in_time_was_not_heard() -> None:
    async def work() -> None:
        bell = Bell()
        assert not await bell.heard(deadline_in(0.0))
        waiting = asyncio.create_task(bell.heard(deadline_in(30.0)))
        await turns()
        bell.ring()
        assert await waiting
        bell.ring()  # nobody waits any more

    run(work())


def test_a_notification_that_is_called_off_leaves_no_process(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ends while the desktop does not answer."""
    pid = home / "pid"
    program = home / "notify-send"
    program.write_text(f"#!/bin/sh\necho $$ > {pid}.new\nmv {pid}.new {pid}\nread line < {home / 'gate'}\n")
    os.mkfifo(home / "gate")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")

    async def work() -> None:
        notifying = asyncio.create_task(desktop.notify("title", "body"))
        await until(pid.exists)
        notifying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await notifying
        assert not Path(f"/proc/{pid.read_text().strip()}").exists()

    run(work())
