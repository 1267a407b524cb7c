"""Clients at a clinic: installed, set up, running, with the session that their hooks would start; what trusts their hooks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from postroom.console import doctor
from postroom.console.looks.trust import digest_of
from tests.desk import SECONDS, Desk, running, wait_until

SLEEP = shutil.which("sleep") or "/bin/sleep"


def install(desk: Desk, program: str) -> Path:
    """Puts a program into the desk's PATH."""
    path = desk.folder / "bin" / program
    path.parent.mkdir(exist_ok=True)
    shutil.copy(SLEEP, path)
    return path


@contextlib.contextmanager
def client(desk: Desk, program: str, **variables: str) -> Generator[subprocess.Popen[bytes]]:
    """A client that runs."""
    process = subprocess.Popen(
        [install(desk, program), "1000"], env={**desk.environ, **variables}, cwd=desk.folder
    )
    try:
        # In the instant of its start a process has no variables yet that can be seen.
        wait_until(lambda: bool(Path(f"/proc/{process.pid}/environ").read_bytes()))
        yield process
    finally:
        process.kill()
        process.wait(SECONDS)


@contextlib.contextmanager
def attended(desk: Desk, name: str, program: str) -> Generator[str]:
    """A client that runs, with the session that its first hook starts; yields the session's name."""
    with client(desk, program) as process, attending(desk, name, process.pid) as session:
        yield session


@contextlib.contextmanager
def attending(desk: Desk, name: str, pid: int, *more: str) -> Generator[str]:
    """The session of a client's process, which is killed at the end; yields the session's name."""
    start = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    words = ("attend", name, "--client-pid", str(pid), "--client-start", start, *more)
    before = {row["session_id"] for row in desk.ok("list")["rows"]}
    with desk.start(*words) as presence:
        found: list[str] = []

        def there() -> bool:
            rows = desk.ok("list")["rows"]
            found[:] = [
                row["name"] for row in rows if row["program"] == name and row["session_id"] not in before
            ]
            return bool(found)

        try:
            wait_until(there)
            yield found[0]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            presence.communicate(timeout=SECONDS)
            wait_until(lambda: not running(presence.pid))


def set_up(desk: Desk, name: str) -> None:
    """Runs `postroom setup`."""
    done = desk.run("setup", name, "--yes", "--json")
    assert done.code == 0, done


def trust(desk: Desk) -> None:
    """Trusts every hook of Codex that is there, as a person does under `/hooks`."""
    path = desk.folder / "home/.codex/hooks.json"
    config = desk.folder / "home/.codex/config.toml"
    kept = re.sub(
        r"\n?\[hooks\.state\.[^\n]*\n(enabled[^\n]*\n)?trusted_hash[^\n]*\n", "", config.read_text()
    )
    for event, groups in json.loads(path.read_text())["hooks"].items():
        called = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", event).lower()
        for at, group in enumerate(groups):
            for place, entry in enumerate(group["hooks"]):
                key = json.dumps(f"{path}:{called}:{at}:{place}")
                kept += f'\n[hooks.state.{key}]\ntrusted_hash = "{digest_of(called, group, entry)}"\n'
    config.write_text(kept)


def long_running(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The findings where a client that has just started counts as one that has run for long."""
    monkeypatch.setattr("postroom.console.checks.clients.SETTLED_SECONDS", -1)
    examined = doctor.examine(desk.environ, str(desk.folder))
    found: Any = doctor.document_of(examined)["findings"]
    return [one for one in found if one["id"] != "container"]
