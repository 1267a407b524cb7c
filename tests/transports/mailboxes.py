"""What the tests of mailboxes share: programs that write to one, and a reader that nobody holds up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

WRITER = Path(__file__).parent.parent / "parties" / "mailbox_writer.py"

SECONDS = float(os.environ.get("POSTROOM_TEST_SECONDS", "50"))
"""More than anything here takes."""


@dataclass
class Program:
    """A program that writes to a mailbox, in a process of its own; its lines are read as they come.

    Attributes:
        lines: what it has printed.
    """

    command: list[str]
    lines: list[str] = field(default_factory=list[str])
    process: subprocess.Popen[str] = field(init=False)
    reader: threading.Thread = field(init=False)
    more: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.more:
                self.lines.append(line.strip())
                self.more.notify_all()
        with self.more:
            self.more.notify_all()

    def wait_for(self, count: int) -> None:
        """Waits until it has printed so many lines."""
        with self.more:
            assert self.more.wait_for(lambda: len(self.lines) >= count, SECONDS), self.lines[-3:]

    def finished(self) -> list[str]:
        """Waits for its end; all that it has printed."""
        self.reader.join(SECONDS)
        assert self.process.wait(SECONDS) == 0, self.lines[-3:]
        return self.lines

    def kill(self) -> list[str]:
        """SIGKILL; all that it has printed."""
        self.process.kill()
        self.process.wait()
        self.reader.join(SECONDS)
        return self.lines

    def close(self) -> None:
        """Ends it, whatever it does."""
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Programs:
    """The programs of one test; `close` ends them all."""

    def __init__(self, folder: Path, name: str = "ann", *, shared: bool = False, stale: float = 10.0) -> None:
        self.folder, self.name = folder, name
        self.words = ["shared" if shared else "own"]
        self.stale = stale
        self.all: list[Program] = []

    def run(self, command: list[str]) -> Program:
        """Starts any program."""
        self.all.append(Program(command))
        return self.all[-1]

    def writer(self, who: str, count: int | str) -> Program:
        """Starts one of ours; see tests/parties/mailbox_writer.py."""
        words = [str(self.folder), self.name, *self.words, who, str(count), str(self.stale)]
        return self.run([sys.executable, str(WRITER), *words])

    def close(self) -> None:
        """Ends them."""
        for each in self.all:
            each.close()


def ids(lines: list[str]) -> list[str]:
    """The ids among what a program printed."""
    return [line for line in lines if line != "done" and not line.startswith("failed")]
