"""Clients that are posed for a test: a process that is taken for a coding agent, and the hooks that it runs."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.desk import COMMAND, SECONDS, Desk, Done, running, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTY = Path(__file__).parent / "parties" / "posed.py"

ARGV0 = {
    "claude-code": "claude",
    "codex": "codex",
    "gemini-cli": "gemini",
    "qwen-code": "qwen",
    "cursor": "cursor-agent",
}
"""As what each client's program is called."""


class Running:
    """One hook under way."""

    def __init__(self) -> None:
        self.pid = 0
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()

    def heard(self, document: dict[str, Any]) -> None:
        """A line about this hook."""
        self._answers.put(document)

    def started(self) -> int:
        """Waits until it runs; returns its pid."""
        self.pid = self._answers.get(timeout=SECONDS)["started"]
        return self.pid

    def done(self) -> Done:
        """Waits for its end."""
        document = self._answers.get(timeout=SECONDS)
        return Done(document["code"], document["out"], document["err"])

    @property
    def ended(self) -> bool:
        """Whether it has come to an end by now."""
        return not self._answers.empty()


class Posed:
    """A process that is taken for a client.

    Args:
        desk: where it runs.
        client: which client it poses as.
        conversation: its own id of its conversation.
        environ: more of its environment.
    """

    def __init__(
        self, desk: Desk, client: str = "claude-code", conversation: str = "conv-1", **environ: str
    ) -> None:
        self.desk = desk
        self.client = client
        self.conversation = conversation
        self._process = subprocess.Popen(
            [str(desk.folder / ARGV0[client]), "-I", str(PARTY)],
            executable=sys.executable,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**desk.environ, **environ},
            cwd=desk.folder,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._running: dict[int, Running] = {}
        assert self._process.stdout is not None
        self._lines = self._process.stdout
        assert json.loads(self._lines.readline())["pid"] == self.pid
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        for line in self._lines:
            document = json.loads(line)
            self._running[document["id"]].heard(document)

    def start(
        self,
        *argv: str,
        stdin: str = "",
        shell: bool = True,
        closed: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> Running:
        """Has it start one command."""
        number = len(self._running)
        self._running[number] = hook = Running()
        assert self._process.stdin is not None
        call = {"id": number, "argv": argv, "stdin": stdin, "shell": shell, "closed": closed}
        self._process.stdin.write(json.dumps({**call, "environ": dict(environ or {})}) + "\n")
        self._process.stdin.flush()
        hook.started()
        return hook

    def event(self, event: str, *, client: str | None = None, **fields: Any) -> str:
        """What it says to its hook for an event."""
        return json.dumps(
            {
                "session_id": self.conversation,
                "cwd": str(self.desk.folder),
                "hook_event_name": event,
                **fields,
            }
        )

    def begin(self, event: str, *, raw: str | None = None, closed: bool = False, **fields: Any) -> Running:
        """Has it run its hook for an event, and does not wait for the end."""
        stdin = self.event(event, **fields) if raw is None else raw
        return self.start(COMMAND, "hook", self.client, event, stdin=stdin, closed=closed)

    def hook(self, event: str, *, raw: str | None = None, closed: bool = False, **fields: Any) -> Done:
        """Has it run its hook for an event, to the end."""
        return self.begin(event, raw=raw, closed=closed, **fields).done()

    def said(self, event: str, **fields: Any) -> dict[str, Any]:
        """What the hook for an event printed, which must be one JSON object."""
        done = self.hook(event, **fields)
        assert (done.code, done.err) == (0, ""), done
        return json.loads(done.out)

    def session(self) -> str:
        """The id of its session, as the roster has it."""
        for file in (Path(self.desk.environ["POSTROOM_HOME"]) / "sessions").glob(f"client-{self.pid}-*"):
            if listed := file.read_text().split():
                return listed[0]
        raise AssertionError("it has no session")

    def kill(self) -> None:
        """Ends it at once; what it had started goes on."""
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self._process.wait(SECONDS)
        self._listening.join(SECONDS)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._lines.close()

    def end(self) -> None:
        """Ends it, and waits until what attended it has ended."""
        self.kill()
        sessions = Path(self.desk.environ["POSTROOM_HOME"]) / "sessions"
        wait_until(lambda: not any(_attends(pid) for pid in self._attending(sessions)))

    def _attending(self, sessions: Path) -> list[int]:
        found: list[int] = []
        for file in sessions.glob("[0-9]*.json"):
            try:
                record = json.loads(file.read_text())
            except (OSError, ValueError):
                continue
            if record.get("clientPid") == self.pid:
                found.append(record["pid"])
        return found


def _attends(pid: int) -> bool:
    return running(pid)
