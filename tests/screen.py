"""A terminal with somebody in front of it: a command runs in it, a test reads what it shows and types.

The command stands at the head of a session of its own, whose controlling terminal this is, as a person's shell does.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Generator, Mapping
from pathlib import Path

from tests.desk import SECONDS
from tests.terminal import take_terminal


class Screen:
    """What a command has shown so far, and its keyboard.

    Attributes:
        process: the command.
        text: all that it has shown, with what was typed, as a terminal echoes it; lines end with a plain newline.
    """

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process = process
        self.text = ""
        self._fd = fd
        self._seen = 0

    def type(self, keys: str) -> None:
        """Types; the terminal has it when this returns."""
        os.write(self._fd, keys.encode())

    def shows(self, words: str) -> str:
        """Waits until these words appear behind what was waited for before; returns everything since, with them."""
        end = time.monotonic() + SECONDS
        while words not in self.text[self._seen :]:
            left = end - time.monotonic()
            assert left > 0, f"{words!r} is not shown:\n{self.text[self._seen :]}"
            assert self._read(left), f"it ended without {words!r}:\n{self.text[self._seen :]}"
        since = self.text[self._seen :]
        shown = since[: since.index(words) + len(words)]
        self._seen += len(shown)
        return shown

    def ends(self) -> int:
        """Waits until the command has ended; returns its exit code."""
        end = time.monotonic() + SECONDS
        while self._read(max(0.0, end - time.monotonic())):
            assert time.monotonic() < end, f"it goes on:\n{self.text[self._seen :]}"
        return self.process.wait(SECONDS)

    def _read(self, seconds: float) -> bool:
        """Takes in what has been shown; False when nobody can write there any more."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return True
        data = b""
        with contextlib.suppress(OSError):  # the last one who could write has gone
            data = os.read(self._fd, 65536)
        self.text += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


@contextlib.contextmanager
def screen(*command: str, env: Mapping[str, str], cwd: str | Path) -> Generator[Screen]:
    """Runs a command in a terminal; it is killed at the end of the block."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=take_terminal,
        env=env,
        cwd=cwd,
    )
    os.close(theirs)
    try:
        with process:
            try:
                yield Screen(process, ours)
            finally:
                process.kill()
    finally:
        os.close(ours)
