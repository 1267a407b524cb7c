"""A full disk under a session that hosts agents: what has ended has ended, and nothing is claimed of what is not kept."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from postroom import Agents, StoreFailed, open_session
from postroom.core.queues import Entry
from tests.crew import Starter, refused, sent
from tests.strangers import needs_root

pytestmark = needs_root


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    where = tmp_path / "disk"
    where.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs", str(where)], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


@contextlib.contextmanager
def full(disk: Path) -> Generator[None]:
    """The disk has no room left while the block runs."""
    filler = disk / "filler"
    fd = os.open(filler, os.O_WRONLY | os.O_CREAT)
    try:
        with contextlib.suppress(OSError):
            while True:
                os.write(fd, b"x" * 4096)
        yield
    finally:
        os.close(fd)
        filler.unlink()


@pytest.mark.rule("06.13", "02.24", "02.26", "11.4")
def test_a_full_disk_stops_no_stop_and_starts_nothing(disk: Path) -> None:
    """An end counts though it cannot be written; a start and a resume do not; the model is shown no path."""

    async def work() -> None:
        (disk / "run").mkdir(mode=0o700)
        environ = {"HOME": str(disk), "XDG_STATE_HOME": f"{disk}/state", "XDG_RUNTIME_DIR": f"{disk}/run"}
        async with open_session("lead", environ=environ, handle_signals=False) as session:
            resume = Starter()
            agents = Agents(session, resume=resume)
            done, busy, idle = [await agents.start(name) for name in ("done", "busy", "idle")]
            await done.finish()
            with full(disk):
                with pytest.raises(StoreFailed):
                    await agents.start("another")
                assert agents.get("another") is None
                assert await busy.finish(result="the end" * 1000)
                refusal = refused(await session.send("done", "go on", summary="s"), "resume_failed")
                assert str(disk) not in str(refusal)
                assert "written" in refusal.message
                assert (done.state, done.run, done.waiting) == ("completed", 1, 0)
                with pytest.raises(StoreFailed):
                    await agents.stop(idle)
                refused(await session.send("idle", "go on", summary="s"), "stopped_by_user")
            ends = [
                (entry.task.name, entry.task.status)
                for entry in agents.main.drain().entries
                if isinstance(entry, Entry) and entry.task is not None
            ]
            assert ends == [("done", "completed"), ("busy", "completed"), ("idle", "killed")]
            sent(await session.send("done", "go on now", summary="s"), "resumed")
            assert (await agents.start("another")).name == "another"

    asyncio.run(work())
