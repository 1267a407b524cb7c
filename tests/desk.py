"""A person's desk for the tests: a private place, the installed command, and sessions that really run.

Every command is a process of its own, started as a person's shell would start it, outside any session. Whatever was
opened is closed, or killed, at the end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMAND = str(Path(sys.executable).with_name("postroom"))
"""The command as it was installed beside the interpreter that runs the tests."""

SECONDS = 30.0
"""The bound on every wait: a loaded machine needs seconds, a broken program would wait for ever."""


ROOMY = {
    "bucketCapacity": 500,
    "refillPerSecond": 50,
    "totalCapacity": 5000,
    "totalRefillPerSecond": 500,
    "repeatSeconds": 0,
}
"""Limits for a desk on which a test sends far more, and more of the same, than people do (03.58 to 03.60)."""


@dataclass(frozen=True)
class Done:
    """One finished command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What `--json` printed."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The error inside the document."""
        return self.document["error"]


class Desk:
    """Runs commands and opens sessions in one private place."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.environ = dict(environ)
        self.opened: dict[str, dict[str, Any]] = {}

    def settings(self, **keys: Any) -> Path:
        """Writes the user's settings anew; sessions that run see it at once. Returns the file."""
        folder = Path(self.environ["XDG_CONFIG_HOME"]) / "postroom"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file, fresh = folder / "settings.json", folder / "settings.json.new"
        fresh.write_text(json.dumps(keys))
        fresh.chmod(0o600)
        fresh.rename(file)
        return file

    def run(
        self,
        *words: str,
        stdin: str | bytes | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> Done:
        """Runs one command to its end."""
        text = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [COMMAND, *words],
            env={**self.environ, **(environ or {})},
            cwd=cwd or self.folder,
            input=text if text is not None else b"",
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *words: str, **more: Any) -> dict[str, Any]:
        """Runs one command with --json; it must succeed. Returns its document."""
        done = self.run(*words, "--json", **more)
        assert done.code == 0, (words, done)
        return done.document

    def refused(self, *words: str, code: int = 1, **more: Any) -> dict[str, Any]:
        """Runs one command with --json; it must be refused with this exit code. Returns the error."""
        done = self.run(*words, "--json", **more)
        assert done.code == code, (words, done)
        assert done.err.split() == [done.error["code"]]
        return done.error

    def start(self, *words: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Starts one command and does not wait for it."""
        return subprocess.Popen(
            [COMMAND, *words],
            env={**self.environ, **(environ or {})},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def open(self, name: str | None = None, *more: str, **options: Any) -> dict[str, Any]:
        """Opens a detached session and returns its document."""
        named = ("--name", name) if name else ()
        document = self.ok("open", *named, "--detach", *more, **options)
        self.opened[document["session_id"]] = document
        return document

    def kill(self, session: Mapping[str, Any]) -> None:
        """SIGKILL to a session's process, and waits until it is gone."""
        os.kill(session["pid"], signal.SIGKILL)
        wait_until(lambda: not running(session["pid"]))

    def take(self, session: str) -> list[dict[str, Any]]:
        """What a session's inbox hands out."""
        return list(self.ok("--session", session, "inbox", "--take")["messages"])

    def send(self, session: str, to: str, text: str, *more: str) -> dict[str, Any]:
        """Sends from one session to another; must be queued."""
        return self.ok("--session", session, "send", to, text, *more)

    def leave(self) -> None:
        """Ends whatever is still open."""
        for session in self.opened.values():
            if running(session["pid"]):
                os.kill(session["pid"], signal.SIGKILL)


def running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def wait_until(holds: Any, seconds: float = SECONDS) -> None:
    """Waits until a condition holds; fails after the bound."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.005)
