"""What the roster's tests share: sessions in processes of their own, and records that the test makes up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postroom.state import files, processes
from postroom.state.record import Record
from postroom.state.roster import Roster

LODGER = Path(__file__).with_name("lodger.py")


@dataclass
class Lodger:
    """A session in a process of its own; see lodger.py."""

    process: subprocess.Popen[str]
    pid: int = 0
    start: str = ""
    stem: str = ""
    name: str = ""
    path: str = ""

    def hear(self) -> Any:
        """The next thing that it says."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def tell(self, what: str) -> Any:
        """Has it do something and returns its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self.hear()

    def kill(self) -> None:
        """SIGKILL, and waited for."""
        self.process.kill()
        self.process.wait()


@dataclass
class House:
    """One state folder and the processes that live in it; `close` ends them all.

    Attributes:
        home: a private folder of the test.
        state: the state folder.
        roster: looks at it.
    """

    home: Path
    state: Path = field(init=False)
    roster: Roster = field(init=False)
    lodgers: list[Lodger] = field(default_factory=list[Lodger])
    children: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self.state = self.home / "state"
        files.private_folder(str(self.state / "sessions"))
        self.roster = Roster(str(self.state))

    @property
    def sessions(self) -> Path:
        """The registry's folder."""
        return self.state / "sessions"

    @property
    def sockets(self) -> Path:
        """A private folder for sockets."""
        folder = self.home / "run"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def start(self, session_id: str, before: tuple[str, ...] = (), **options: Any) -> Lodger:
        """Starts a session without waiting for it; `before` is put before its command line."""
        arguments = json.dumps({"id": session_id, **options})
        process = subprocess.Popen(
            [*before, sys.executable, str(LODGER), str(self.state), arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        lodger = Lodger(process)
        self.lodgers.append(lodger)
        return lodger

    def open(self, session_id: str, **options: Any) -> Lodger:
        """Starts a session and waits until it is there."""
        lodger = self.start(session_id, **options)
        for key, value in lodger.hear().items():
            setattr(lodger, key, value)
        return lodger

    def fork(self, lodger: Lodger) -> int:
        """Has a session fork a child that keeps its descriptors; returns the child's pid."""
        child: int = lodger.tell("fork")
        self.children.append(child)
        return child

    def names(self) -> list[str]:
        """The names of the live sessions."""
        return sorted(record.name for record in self.roster.scan().live)

    def files(self) -> set[str]:
        """The names of all files in the registry, folders and its lock apart."""
        return {entry.name for entry in self.sessions.iterdir() if entry.is_file()} - {".lock"}

    def put(self, record: Record, name: str | None = None) -> Path:
        """Writes a record that the test made up."""
        path = self.sessions / (name or f"{record.pid}.json")
        files.write_atomic(str(path), record.to_json(), sync=False)
        return path

    def close(self) -> None:
        """Ends every process."""
        for child in self.children:
            os.kill(child, signal.SIGKILL)
        for lodger in self.lodgers:
            lodger.kill()
            for pipe in (lodger.process.stdin, lodger.process.stdout, lodger.process.stderr):
                assert pipe is not None
                pipe.close()


def here(session_id: str, pid: int | None = None, **fields: Any) -> Record:
    """A record of this boot and pid namespace; by default of this process."""
    pid = os.getpid() if pid is None else pid
    facts: dict[str, Any] = {
        "proc_start": processes.start_of(pid) or "1",
        "boot_id": processes.boot_id(),
        "pid_domain": processes.pid_domain(),
        "name": session_id,
    }
    return Record(pid=pid, session_id=session_id, **{**facts, **fields})


def dead_pid() -> int:
    """The pid of a process that has just ended."""
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    child.wait()
    return child.pid
