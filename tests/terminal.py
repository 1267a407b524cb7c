"""A person's terminal for the tests: a command runs in a session of its own, at the head of a terminal that is there.

The kernel sees what it sees of a shell that a person opened: a controlling terminal, and no session of ours above. What
the command prints comes through pipes all the same, so that its two streams stay apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import termios
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from tests.desk import COMMAND, SECONDS, Desk, Done


def take_terminal() -> None:
    """Makes standard input the controlling terminal of the session that this process has just begun."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def started_at_terminal(
    *command: str, env: Mapping[str, str] | None = None, cwd: str | Path | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """Starts a program at the head of a new terminal; whoever leaves the block hangs up."""
    ours, theirs = os.openpty()
    try:
        process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=take_terminal,
            env=env,
            cwd=cwd,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()
    finally:
        os.close(theirs)
        os.close(ours)


def at_terminal(desk: Desk, *words: str, environ: Mapping[str, str] | None = None) -> Done:
    """Runs one command as a person types it in a terminal that no session started."""
    environment = {**desk.environ, **(environ or {})}
    with started_at_terminal(COMMAND, *words, env=environment, cwd=desk.folder) as process:
        out, err = process.communicate(timeout=SECONDS)
    return Done(process.returncode, out.decode(), err.decode())


def person(desk: Desk, *words: str, code: int = 0, **more: Any) -> dict[str, Any]:
    """The same with --json; it must end with this code. Returns the document."""
    done = at_terminal(desk, *words, "--json", **more)
    assert done.code == code, (words, done)
    return done.document
