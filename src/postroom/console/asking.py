"""Asks the person in front of a session about what is held (chapter 03, Holds; 10.8).

One question at a time, the oldest first, on the terminal that `postroom open` runs in. Enter alone decides nothing:
the message stays held, and `postroom held` shows it. Whoever opened the session from inside another one is an agent's
shell and is not asked (10.39). Nor is anybody while the process is in the background of a shell, where it would be
stopped as soon as it touched the terminal's input, and senders are told so; what came meanwhile is asked about once it
is in front again and something more comes or goes.

Weak: it reads the terminal itself, so nothing else in that process may.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
from typing import TYPE_CHECKING

from postroom import verdicts
from postroom.core.holds import numbered
from postroom.core.message import Refusal
from postroom.errors import StoreFailed

if TYPE_CHECKING:
    from postroom.core.holds import Hold
    from postroom.session import Session

QUESTION = "Let it in? [y]es, [n]o, [a]lways from this sender, Enter leaves it held: "

ANSWERS = {"y": "yes", "yes": "yes", "n": "no", "no": "no", "a": "always", "always": "always"}
"""What may be typed, letter case apart. Nothing else is guessed at: a decision is not taken back."""

MOST_TYPED = 4096
"""Bytes that are read of one answer: a terminal's line."""


def can_ask(session: Session, *, as_json: bool) -> bool:
    """Whether a person can be asked here: a terminal, for people, that no session has started (10.39)."""
    return (
        not as_json
        and session.record.opened_by is None
        and sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stdout.isatty()
    )


def in_front() -> bool:
    """Whether this process is in the foreground of its terminal."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return True  # it is the terminal of another session, in which this process is nobody's background


class Asking:
    """Asks about one hold after the other.

    Args:
        session: whose holds.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._asked: set[int] = set()
        self._open = False

    async def run(self) -> None:
        """Asks until the session ends or its terminal does."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCONT, self._look)  # a shell sends it with `fg` and with `bg`
        try:
            await self._run()
        finally:
            loop.remove_signal_handler(signal.SIGCONT)
            self._session.askable = False

    def _look(self) -> None:
        self._session.askable = in_front()

    async def _run(self) -> None:
        session = self._session
        self._look()
        while not session.closed:
            hold = next((hold for hold in session.held() if hold.row not in self._asked), None)
            if hold is None or not in_front():
                await session.changed()
                continue
            self._asked.add(hold.row)
            answer = await self._answer(hold)
            while answer not in (None, "") and answer not in ANSWERS:
                self._say("That is none of the answers.")
                answer = await self._answer(hold, again=True)
            if answer is None:
                self._say("Nothing more is asked here; `postroom held` shows what waits.")
                return
            self._decide(hold, ANSWERS.get(answer, ""))

    def shown(self) -> None:
        """Something else was printed: a question that is open is asked again under it."""
        if self._open:
            sys.stdout.write(QUESTION)
            sys.stdout.flush()

    def _say(self, words: str) -> None:
        sys.stdout.write(words + "\n")
        sys.stdout.flush()

    async def _answer(self, hold: Hold, *, again: bool = False) -> str | None:
        """The line that the person types about a hold; empty when it has ended meanwhile, None at the input's end."""
        session, loop, fd = self._session, asyncio.get_running_loop(), sys.stdin.fileno()
        receiver = session.standing.permission_class
        if not again:
            sys.stdout.write(f"\n{verdicts.hold_text(hold, session.name, session.now(), receiver=receiver)}")
            sys.stdout.flush()
        with contextlib.suppress(termios.error):  # what was typed before the question is no answer to it
            termios.tcflush(fd, termios.TCIFLUSH)
        sys.stdout.write(QUESTION)
        sys.stdout.flush()
        typed: asyncio.Future[bytes] = loop.create_future()

        def read() -> None:
            line = b"" if in_front() else b"\n"  # what is typed to the shell in front is no answer
            with contextlib.suppress(OSError):
                line = line or os.read(fd, MOST_TYPED)
            if not typed.done():
                typed.set_result(line)

        loop.add_reader(fd, read)
        self._open = True
        try:
            while not typed.done():
                change = loop.create_task(session.changed())
                await asyncio.wait({typed, change}, return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
                if not typed.done() and all(hold.row != other.row for other in session.held()):
                    sys.stdout.write("\nIt has ended meanwhile.\n")
                    return ""
        finally:
            self._open = False
            loop.remove_reader(fd)
        line = typed.result().decode(errors="replace")
        return line.strip().casefold() if line else None

    def _decide(self, hold: Hold, answer: str) -> None:
        msg_id = numbered(hold)  # its sender's id may be another one's too
        always = answer == "always"
        if always and hold.message.origin.address is None:
            self._say("Its sender was not verified, so there is nobody to accept always. It is still held:")
            self._asked.discard(hold.row)
            return
        try:
            if answer == "no":
                said = self._session.deny(msg_id)
            elif answer:
                said = self._session.approve(msg_id, always=always)
            else:
                if any(hold.row == other.row for other in self._session.held()):
                    self._say("It stays held; `postroom held` shows it.")
                return
        except StoreFailed as error:
            self._say(f"{error.message} It is still held.")
            return
        if isinstance(said, Refusal):
            self._say(str(said))
            return
        rule = " From now on its sender is accepted; `postroom rules` shows that." if always else ""
        self._say(f"{said.state}: {said.msg_id}{rule and '.'}{rule}")
