"""A desktop notification for each new hold, where the setting asks for it and `notify-send` exists (03.23).

It says who waits and how that is looked at, and never shows a text: what a program is started with can be read by
other users. It decides nothing, and a desktop that does not answer costs a notification and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from typing import TYPE_CHECKING

from postroom.core.scrub import scrub
from postroom.present import acting_for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from postroom.core.holds import Hold
    from postroom.session import Session

PROGRAM = "notify-send"

ANSWER_SECONDS = 5.0
"""How long the program may take."""

MOST_AT_ONCE = 3
"""Notifications for the holds that came together; the rest is a number in one more."""

NAME_LENGTH = 64


@contextlib.asynccontextmanager
async def announced(session: Session) -> AsyncGenerator[None]:
    """Announces new holds while the block runs."""
    task = asyncio.get_running_loop().create_task(_announce(session))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _announce(session: Session) -> None:
    known = {hold.row for hold in session.held()}
    while not session.closed:
        now = session.held()
        new = [hold for hold in now if hold.row not in known]
        known = {hold.row for hold in now}
        if new and session.standing.settings.desktop_notices:
            for words in words_for(session.name, new):
                await notify(*words)
        else:  # what came while the desktop was slow is seen before anything is waited for
            await session.changed()


def words_for(name: str, new: list[Hold]) -> list[tuple[str, str]]:
    """(title, body) of what is shown for some new holds; never their text."""
    said = [
        (f"{name}: a message is held", f"From {sender_of(hold)}. To read and decide: {acting_for(name)} held")
        for hold in new[:MOST_AT_ONCE]
    ]
    more = len(new) - MOST_AT_ONCE
    if more > 0:
        held = "message is" if more == 1 else "messages are"
        said.append((f"{name}: {more} more {held} held", f"{acting_for(name)} held"))
    return said


def sender_of(hold: Hold) -> str:
    """The sender of a hold in one line; a name that was not verified is said to be claimed."""
    origin = hold.message.origin
    name = " ".join(scrub(origin.name or "a process without a name").split())[:NAME_LENGTH]
    return name if origin.verified or origin.name is None else f"{name} (claimed)"


async def notify(title: str, body: str) -> None:
    """Shows one notification; nothing happens where that is not possible."""
    program = shutil.which(PROGRAM)
    if program is None:
        return
    with contextlib.suppress(OSError, TimeoutError):
        process = await asyncio.create_subprocess_exec(
            program,
            "--app-name=postroom",
            "--",
            title,
            body,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            # Not `wait_for`, which may swallow a cancellation up to Python 3.11: the session's end would hang.
            async with asyncio.timeout(ANSWER_SECONDS):
                await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
