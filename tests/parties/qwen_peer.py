"""The other side in tests of Qwen Code's protocol: its published SDK under Node, driven from here.

`partners_js/qwen_peer.mjs` is what runs; each method asks it one thing and waits, within a bound, for the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.desk import SECONDS, running, wait_until
from tests.partners import partner

if TYPE_CHECKING:
    from collections.abc import Generator

SDK = ("@qwen-code/sdk", "0.1.14")
"""The package that is talked to, and which one."""

SCRIPT = Path(__file__).parent.parent / "partners_js" / "qwen_peer.mjs"


class QwenPeer:
    """One endpoint of the SDK.

    Attributes:
        session_id, path, record: what it published.
        messages, receipts: what it heard, in order.
    """

    def __init__(self, home: Path, name: str, *, refuse: bool = False) -> None:
        command = [*partner(*SDK).script(SCRIPT), name, *(["refuse"] if refuse else [])]
        environ = {
            "HOME": str(home),
            "QWEN_HOME": str(home / "qwen"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "PATH": os.defpath,
        }
        self.name = name
        self.messages: list[dict[str, Any]] = []
        self.receipts: list[dict[str, Any]] = []
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._asked = 0
        # Behind a shell that ends at once: a child of the test's own process would be its session's own child (05.25).
        self._process = subprocess.Popen(
            ["sh", "-c", 'exec 3<&0; "$@" <&3 3<&- &', "sh", *command],
            env=environ,
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._process.wait()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        ready = self._next()
        self.pid: int = ready["pid"]
        self.session_id: str = ready["sessionId"]
        self.path: str = ready["path"]
        self.record = Path(ready["record"])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            heard = {"message": self.messages, "receipt": self.receipts}.get(said.get("event", ""))
            if heard is not None:
                heard.append(said)
            else:
                self._answers.put(said)
        self._answers.put(None)

    def _next(self) -> dict[str, Any]:
        said = self._answers.get(timeout=SECONDS)
        assert said is not None, "the SDK's endpoint has ended"
        return said

    def ask(self, do: str, **call: Any) -> Any:
        """Has it do one thing; an error of its is an AssertionError."""
        assert self._process.stdin is not None
        self._asked += 1
        self._process.stdin.write(json.dumps({"id": self._asked, "do": do, **call}) + "\n")
        self._process.stdin.flush()
        said = self._next()
        assert said["id"] == self._asked
        assert "error" not in said, said
        return said["result"]

    def names(self) -> list[str]:
        """Whom it lists."""
        return sorted(row["name"] for row in self.ask("list"))

    def send(self, to: str, content: str, **more: Any) -> str:
        """Sends to a name; it must be written. Returns the message's id."""
        sent = self.ask("send", to=to, content=content, **more)
        assert sent["kind"] == "sent", sent
        return sent["msgId"]

    def message(self) -> dict[str, Any]:
        """Waits for one more message and returns it."""
        wait_until(lambda: self.messages)
        return self.messages.pop(0)

    def receipt(self, msg_id: str, status: str) -> dict[str, Any]:
        """Waits until a receipt of this status came for a message."""
        wait_until(lambda: self._of(msg_id, status))
        return self._of(msg_id, status)[0]

    def _of(self, msg_id: str, status: str) -> list[dict[str, Any]]:
        return [one for one in self.receipts if (one["msgId"], one["status"]) == (msg_id, status)]

    def end(self) -> None:
        """Has it close its endpoint and end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            wait_until(lambda: not running(self.pid))
        finally:
            self.kill()
            self._reader.join(SECONDS)
            self._process.stdout.close()

    def kill(self) -> None:
        """Kills it, with its record and socket left where they are."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: not running(self.pid))


@contextlib.contextmanager
def qwen_peer(home: Path, name: str, *, refuse: bool = False) -> Generator[QwenPeer]:
    """An endpoint for as long as the block runs."""
    peer = QwenPeer(home, name, refuse=refuse)
    try:
        yield peer
    finally:
        peer.end()
