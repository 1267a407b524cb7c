"""The processes that a row needs: other ends, servers of peers, commands; and a private place for all of them.

Everything that is started here is ended here, by its own handle, when the block that started it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import on_core

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

ENDS = str(Path(__file__).with_name("ends.py"))

IN_MEMORY = "/dev/shm"
"""Where Linux keeps files in memory."""

SECONDS = 60.0
"""The bound on every wait: a loaded machine needs seconds, a broken program would wait for ever."""


@dataclass(frozen=True, slots=True)
class Place:
    """A private place: nothing of this user's sessions is seen from it, and it is gone afterwards.

    Attributes:
        root: where everything lies but the sessions' sockets; short, because other sockets lie in it.
        runtime: where those lie: in memory where the system has such a folder, as a runtime folder is.
        environ: the environment that leads there.
    """

    root: str
    runtime: str
    environ: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def state(self) -> str:
        """The state folder."""
        return f"{self.root}/state"

    @property
    def run(self) -> str:
        """The folder for sockets."""
        return f"{self.runtime}/postroom"

    def path(self, name: str) -> str:
        """A path for one file."""
        return f"{self.root}/{name}"


@contextlib.contextmanager
def private_place() -> Generator[Place]:
    """Makes a place in the folder for temporary files, and removes it."""
    root = tempfile.mkdtemp(prefix="pb-")
    runtime = tempfile.mkdtemp(prefix="pb-", dir=IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else root)
    try:
        for path in (f"{root}/home", f"{root}/state", f"{runtime}/postroom"):
            os.mkdir(path, 0o700)
        environ = {
            "HOME": f"{root}/home",
            "LANG": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "POSTROOM_HOME": f"{root}/state",
            "XDG_RUNTIME_DIR": runtime,
        }
        for kept in ("PYTHONPATH", "PYTHONPYCACHEPREFIX"):
            if kept in os.environ:
                environ[kept] = os.environ[kept]
        yield Place(root, runtime, environ)
    finally:
        shutil.rmtree(runtime, ignore_errors=True)
        shutil.rmtree(root, ignore_errors=True)


class End:
    """One other end that is running.

    Attributes:
        ready: what it said when it was.
        pid: its process.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        assert process.stdout is not None
        self._out = process.stdout
        self._more = select.poll()
        self._more.register(self._out, select.POLLIN)
        self.pid = process.pid
        self.ready = self.heard()

    def heard(self) -> dict[str, Any]:
        """The next line that it says. RuntimeError where it ended, or says nothing for long."""
        if not self._more.poll(SECONDS * 1000):
            raise RuntimeError(f"{self._process.args} says nothing")
        line = self._out.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with {self._process.wait(SECONDS)}")
        return json.loads(line)

    def ask(self, word: str) -> Any:
        """Says a word and returns the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        return self.heard()["said"]


@contextlib.contextmanager
def end(
    role: str,
    *arguments: str,
    core: int | None = None,
    python: str = sys.executable,
    environ: Mapping[str, str] | None = None,
    fds: Sequence[int] = (),
) -> Generator[End]:
    """Runs one role of `ends.py` while the block runs.

    Args:
        role: what it is.
        arguments: the role's own.
        core: where it runs; None: anywhere.
        python: the interpreter; postroom is installed beside it.
        environ: its environment; by default this process's.
        fds: descriptors that it gets.
    """
    with on_core(core):
        process = subprocess.Popen(
            [python, "-P", ENDS, role, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            pass_fds=fds,
            bufsize=0,  # so that what was said is not in a buffer where no poll sees it
        )
    with process:
        try:
            yield End(process)
        finally:
            if process.stdin is not None:
                process.stdin.close()
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Waits for the end of a process, and does not wait for ever."""
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(SECONDS)


@contextlib.contextmanager
def server(command: Sequence[str], port: int, core: int | None) -> Generator[None]:
    """Runs a peer's server while the block runs, from the moment when it accepts."""
    with on_core(core):
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    try:
        until = time.monotonic() + SECONDS
        while True:
            with socket.socket() as sock:
                if sock.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{command[0]} does not accept")
            time.sleep(0.01)
        yield
    finally:
        process.terminate()
        stop(process)


def free_port() -> int:
    """A port of the loopback that nobody listens at now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def spawned(
    argv: Sequence[str], environ: Mapping[str, str], errors: str, code: int = 0, stdin: str = os.devnull
) -> float:
    """Seconds from the start of a command to its end. RuntimeError where it ended with another code.

    Args:
        argv: the command, by its path.
        environ: its environment.
        errors: a file for what it says on stderr.
        code: with what it should end.
        stdin: a file that it reads.
    """
    begun = time.perf_counter()
    pid = started(argv, environ, errors, stdin)
    _, status = os.waitpid(pid, 0)
    seconds = time.perf_counter() - begun
    ended(argv, status, errors, code)
    return seconds


def ended(argv: Sequence[str], status: int, errors: str, code: int = 0) -> None:
    """Raises RuntimeError where a command ended with another code than it should."""
    found = os.waitstatus_to_exitcode(status)
    if found != code:
        said = Path(errors).read_text(errors="replace")[-500:]
        raise RuntimeError(f"{' '.join(argv)} ended with {found}: {said}")


def started(argv: Sequence[str], environ: Mapping[str, str], errors: str, stdin: str = os.devnull) -> int:
    """Starts a command with this file to read, by default nothing, and nobody to read it; returns its pid."""
    null, out = os.O_RDONLY, os.O_WRONLY
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    return os.posix_spawn(
        argv[0],
        list(argv),
        dict(environ),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, stdin, null, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, out, 0),
            (os.POSIX_SPAWN_OPEN, 2, errors, flags, 0o600),
        ],
    )
