"""A program that hosts agents, as a test drives it: `parties/agent_host.py` as a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.desk import COMMAND, SECONDS, Desk, Done

if TYPE_CHECKING:
    from collections.abc import Generator

PROGRAM = str(Path(__file__).with_name("parties") / "agent_host.py")
ROOT = str(Path(__file__).parent.parent)


class Hosting:
    """A running host.

    Args:
        desk: where it runs.
        name: its session's.
        more: further words of its command line.
    """

    def __init__(self, desk: Desk, name: str, *more: str) -> None:
        self.desk = desk
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, PROGRAM, name, *more],
            env={**desk.environ, "PYTHONPATH": ROOT},
            cwd=desk.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._answers: dict[int, dict[str, Any]] = {}
        self._number = 0
        self._lock = threading.Condition()
        self._reading = False
        where = json.loads(self._line())
        self.id: str = where["id"]
        self.ref: str = where["ref"]
        self.folder = Path(where["folder"])

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the host has ended"
        return line

    def order(self, do: str, **more: Any) -> int:
        """Tells it to do something, and does not wait; returns the number of the order."""
        assert self.process.stdin is not None
        with self._lock:
            self._number += 1
            number = self._number
            self.process.stdin.write(json.dumps({"number": number, "do": do, **more}).encode() + b"\n")
            self.process.stdin.flush()
        return number

    def answered(self, number: int) -> Any:
        """What came of an order; several threads may wait, each for its own."""
        while True:
            with self._lock:
                while number not in self._answers and self._reading:
                    assert self._lock.wait(2 * SECONDS), "the host does not answer"
                if number in self._answers:
                    answer = self._answers.pop(number)
                    assert "wrong" not in answer, answer
                    return answer["is"]
                self._reading = True
            answer = json.loads(self._line())
            with self._lock:
                self._answers[answer["number"]] = answer
                self._reading = False
                self._lock.notify_all()

    def tell(self, do: str, **more: Any) -> Any:
        """Tells it to do something, and returns what came of it."""
        return self.answered(self.order(do, **more))

    def start(self, name: str, **more: Any) -> dict[str, Any]:
        """A new agent: its id, name, ref and environment."""
        return dict(self.tell("start", name=name, **more))

    def below(self, *words: str, who: str | None = None, **environ: str) -> Done:
        """Runs the installed command below the host's process, as the agent or observer that is named."""
        done = self.tell("run", argv=[COMMAND, *words], environ=environ, **({"as": who} if who else {}))
        return Done(done["code"], done["out"], done["err"])

    def connect(self, key: str, who: str | None = None) -> dict[str, Any]:
        """Connects the SDK's client to an MCP server below the host's process; `call` speaks to it."""
        return dict(self.tell("connect", key=key, argv=[COMMAND, "mcp"], **({"as": who} if who else {})))

    def call(self, key: str, tool: str, **arguments: Any) -> dict[str, Any]:
        """One call of a tool: its text, its document, whether it failed."""
        return dict(self.tell("call", key=key, tool=tool, arguments=arguments))

    def agent_folder(self, identity: str) -> Path:
        """Where an agent's metadata and transcript lie."""
        return self.folder / "agents" / identity

    def kill(self) -> None:
        """SIGKILL to it."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(SECONDS)

    def end(self) -> None:
        """Lets it end by itself."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            self.process.stdout.close()


@contextmanager
def hosting(desk: Desk, name: str, *more: str) -> Generator[Hosting]:
    """A host that runs while the block does."""
    host = Hosting(desk, name, *more)
    try:
        yield host
    finally:
        host.end()
