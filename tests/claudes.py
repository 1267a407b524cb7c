"""What the tests of Claude Code as a neighbour share: what real sessions of it wrote, and a party that is like one."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.desk import SECONDS, running, wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

RECORDED = Path(__file__).parent / "recorded" / "claude_code"
PARTY = Path(__file__).parent / "parties" / "claude_peer.py"


def recorded(name: str) -> dict[str, Any]:
    """One recording: `lines` as they came over a socket, or the `record` and the `key` as files."""
    return json.loads((RECORDED / f"{name}.json").read_text())


def frame_of(name: str) -> dict[str, Any]:
    """The frame of a recording; its first line is the token's."""
    auth, frame = (json.loads(line) for line in recorded(name)["lines"])
    assert auth.keys() == {"type", "token"}
    return frame


def settings_for(home: Path, *programs: str, **more: object) -> None:
    """Writes the user's settings with `publishTo` and others: a new file in the place of the old one."""
    folder = home / "config/postroom"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = folder / "settings.json.new"
    fresh.write_text(json.dumps({"publishTo": list(programs), **more}))
    fresh.chmod(0o600)
    fresh.rename(folder / "settings.json")


class Claude:
    """A party that is registered like a session of Claude Code; see `parties/claude_peer.py`."""

    def __init__(self, home: Path, name: str, *more: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PARTY), str(home / "claude"), str(home / "run"), name, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._kept: list[dict[str, Any]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        ready = self.wait("ready")
        self.pid: int = ready["pid"]
        self.path: str = ready["path"]
        self.token: str = ready["token"]
        self.record: dict[str, Any] = ready["record"]
        self.address = f"uds:{self.path}"
        self.identity = f"claude-code:{self.pid}:{self.record['procStart']}"
        self.file = home / f"claude/sessions/{self.pid}.json"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._events.put(json.loads(line))

    def wait(self, event: str) -> dict[str, Any]:
        """The next event of this kind; what came before it is kept."""
        for kept in self._kept:
            if kept["event"] == event:
                self._kept.remove(kept)
                return kept
        while True:
            came = self._events.get(timeout=SECONDS)
            if came["event"] == event:
                return came
            self._kept.append(came)

    def tell(self, **told: Any) -> None:
        """Tells the party to do something."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()

    def heard(self) -> tuple[str | None, dict[str, Any]]:
        """The next frame that arrived, and the token that stood before it on its connection."""
        line = self.wait("line")
        first = json.loads(line["raw"])
        if first["type"] != "auth":
            return None, first
        second = self.wait("line")
        assert second["connection"] == line["connection"]
        return first["token"], json.loads(second["raw"])

    def send(self, path: str, *lines: object, token: str = "") -> dict[str, Any]:
        """Writes lines to a socket; what became of it."""
        self.tell(do="send", path=path, token=token, lines=lines)
        return self.wait("sent")

    def write(
        self, text: str, path: str, msg_id: str, *, token: str = "", **attributes: str
    ) -> dict[str, Any]:
        """Sends one message, as that program does; `attributes` are those of the envelope, `_` for `-`."""
        given = {"from": self.address, **{key.replace("_", "-"): value for key, value in attributes.items()}}
        shown = "".join(
            f' {key}="{given[key]}"'
            for key in ("from", "hop-chain", "from-name", "from-mode")
            if key in given
        )
        content = f"<cross-session-message{shown}>\n{text}\n</cross-session-message>"
        frame = {
            "msgV": 1,
            "msg_id": msg_id,
            "type": "user",
            "message": {"role": "user", "content": content},
            "priority": "next",
            "from": self.address,
        }
        return self.send(path, frame, token=token)

    def rewrite(self, **fields: object) -> None:
        """Writes its record anew with other values."""
        self.tell(do="record", set=fields)
        self.wait("written")

    def leave(self) -> None:
        """Ends it; it takes its record with it."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self._reading.join(SECONDS)
        wait_until(lambda: not running(self.pid))
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.wait(SECONDS)

    def kill(self) -> None:
        """Kills it; its record stays."""
        os.kill(self.pid, signal.SIGKILL)
        self.leave()


@contextlib.contextmanager
def claude(home: Path, name: str = "claude-one", *more: str) -> Generator[Claude]:
    """Such a party, for as long as the block runs."""
    party = Claude(home, name, *more)
    try:
        yield party
    finally:
        party.leave()
