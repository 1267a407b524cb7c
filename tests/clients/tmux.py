"""Programs that draw on a terminal, with somebody at the keyboard: each in a window of a tmux that is the test's own.

tmux answers what such programs ask a terminal, and holds what they drew as lines of text. Everything here that waits
looks again and again until something holds, and fails after a bound with what was on the screen.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Window", "window"]

SECONDS = 60.0
"""The bound on a wait for a screen: the programs take seconds to start on a loaded machine."""

BETWEEN = 0.1
"""Between two looks."""

PATIENCE = 1.5
"""How long a key has to have shown an effect before it is pressed again: a program that takes fast typing for a paste
takes an Enter in it for a new line."""


class Window:
    """One program on a terminal of its own."""

    def __init__(self, tmux: Sequence[str], name: str) -> None:
        self.name = name
        self._tmux = tmux
        self._last = ""

    @property
    def text(self) -> str:
        """What is on the screen now; what was there last, once the window is closed."""
        if shown := self._run("capture-pane", "-p", "-t", self.name):
            self._last = shown
        return self._last

    def _run(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=False)
        return done.stdout

    def keys(self, *names: str) -> None:
        """Presses keys by tmux's names: `Enter`, `Escape`, `Down`, `C-c`."""
        self._run("send-keys", "-t", self.name, *names)

    def shows(self, words: str, seconds: float = SECONDS) -> str:
        """Waits until these words are on the screen; returns the screen."""
        self.wait(lambda: words in self.text, f"shows {words!r}", seconds)
        return self.text

    def wait(self, holds: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
        """Waits until something holds; fails with the screen after the bound."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"{self.name}: not seen: {what}\n{self.text}"
            time.sleep(BETWEEN)

    def press(self, *names: str, until: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
        """Presses keys, again where they had no effect for so many seconds, until something holds."""
        end = time.monotonic() + SECONDS
        while not until():
            assert time.monotonic() < end, (
                f"{self.name}: {' '.join(names)} did not bring about: {what}\n{self.text}"
            )
            self.keys(*names)
            again = time.monotonic() + patience
            while time.monotonic() < again and not until():
                time.sleep(BETWEEN)

    def submit(self, text: str, until: Callable[[], bool]) -> None:
        """Types a line and presses Enter until it was taken."""
        self._run("send-keys", "-t", self.name, "-l", text)
        self.press("Enter", until=until, what=f"{text!r} was taken")

    def end(self) -> None:
        """Hangs up."""
        self._last = self.text
        self._run("kill-session", "-t", self.name)


@contextmanager
def window(
    name: str, command: Sequence[str], *, folder: Path, environ: Mapping[str, str], place: Path
) -> Generator[Window]:
    """Runs a program on a terminal for as long as the block runs.

    Args:
        name: the window's, for what a failure shows.
        command: the program; tmux itself is given the same few variables.
        folder: where it runs.
        environ: all the variables that it has.
        place: a folder for tmux's own socket.
    """
    tmux = ["env", "-i", *(f"{key}={value}" for key, value in environ.items())]
    tmux += ["tmux", "-S", str(place / f"{name}.tmux"), "-f", "/dev/null"]
    subprocess.run(
        [*tmux, "new-session", "-d", "-s", name, "-x", "160", "-y", "50", "-c", str(folder), *command],
        check=True,
    )
    opened = Window(tmux, name)
    try:
        yield opened
    finally:
        opened.end()
