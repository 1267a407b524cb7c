"""Stand-ins for the programs that run agents, for tests of what hangs on who started whom."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from postroom.state import processes
from tests.desk import COMMAND, Desk

PROGRAM = str(Path(__file__).with_name("parties") / "program.py")


class Program:
    """A running stand-in; what it runs are its children.

    Args:
        name: what it is called, such as `codex`.
        environ: its environment.
        cwd: its working directory.
        wrapped: run below another process of the same name, as a launcher does.
    """

    def __init__(self, name: str, environ: Mapping[str, str], cwd: Path, *, wrapped: bool = False) -> None:
        argv = [name, PROGRAM]
        if wrapped:
            starts = "import os, subprocess, sys; sys.exit(subprocess.call([os.environ['AS'], *sys.argv[1:]], executable=sys.executable))"
            argv = [name, "-c", starts, PROGRAM]
        self.process = subprocess.Popen(
            argv,
            executable=sys.executable,
            env={**environ, "AS": name},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        done = self.run("sh", "-c", "echo $PPID", postroom=False)  # also: it is up, its variables can be seen
        pid = int(done["out"])
        self.pid = pid
        self.start = processes.start_of(pid) or ""

    def tell(self, **order: Any) -> dict[str, Any]:
        """Has it do something; see `parties/program.py`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def run(self, *argv: str, postroom: bool = True, **more: Any) -> dict[str, Any]:
        """Runs one command below it to its end; the installed `postroom` unless said otherwise."""
        return self.tell(argv=[*((COMMAND,) if postroom else ()), *argv], **more)

    def kill(self) -> None:
        """SIGKILL to it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        self.process.kill()

    def end(self) -> None:
        """Lets it end by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def program(name: str, desk: Desk, *, wrapped: bool = False, **environ: str) -> Generator[Program]:
    """A stand-in that runs while the block does."""
    made = Program(name, {**desk.environ, **environ}, desk.folder, wrapped=wrapped)
    try:
        yield made
    finally:
        made.kill()
        made.process.wait()
        for stream in (made.process.stdin, made.process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
