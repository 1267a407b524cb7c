"""`postroom open`: a session around a command, in the foreground, or detached (10.8).

Around a command: the command gets this session's identity in its environment and none of another's; the
session ends with it, and the exit code is the command's. In the foreground it prints what arrives, which counts
as taking it. Detached it runs in the background until `postroom close`.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from postroom import present
from postroom.errors import BadUsage, NoSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.arguments import Values


def run(args: Values, argv: Sequence[str]) -> int:
    """Opens the session in the way that was asked for and returns the exit code."""
    if args.detach and args.command:
        raise BadUsage(
            "`--detach` opens a session of its own, without a command.", "Leave out one of the two."
        )
    if args.resume and args.name:
        raise BadUsage(
            "`--resume` brings the session's own name back.", "Rename it afterwards: `postroom rename NAME`."
        )
    if args.detach and args.ready_fd is None:
        return detach(args, argv)
    # What a session is made of is loaded by the process that becomes one, not by the one that starts it.
    import asyncio
    import gc

    from postroom.console import host

    gc.enable()
    return asyncio.run(host.serve(args))


READY_SECONDS = 30.0
"""How long `--detach` waits for the session to be reachable; a loaded machine needs seconds, not this."""


def detach(args: Values, argv: Sequence[str]) -> int:
    """Starts the session in the background and prints it once it is reachable."""
    read_end, write_end = os.pipe()
    options = [word for word in argv[1:] if word != "--json"]
    with os.fdopen(read_end, "rb", buffering=0) as ready:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "postroom", "open", *options, "--ready-fd", str(write_end)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[write_end],
        )
        os.close(write_end)
        said = until_closed(ready.fileno(), READY_SECONDS)
    if not said:
        child.kill()
        raise NoSession(
            "The session could not be reached.", "What it said of that, if anything, stands above."
        )
    document = present.loads(said)
    if "error" in document:
        error = document["error"]
        if args.json:
            sys.stdout.write(said)
        below = "" if args.json else present.error_text(error["message"], error["hint"])
        sys.stderr.write(f"{error['code']}\n{below}")
        return present.exit_code(error["code"])
    sys.stdout.write(said if args.json else present.opened_text(document))
    sys.stdout.flush()
    if args.json:
        for problem in document["problems"]:
            sys.stderr.write(f"postroom: {problem}\n")
    sys.stderr.write(mode_not_kept(args))
    return 0


def mode_not_kept(args: Values) -> str:
    """What is said after a resume without a mode: which mode a session was in is not kept; empty for any other."""
    if not args.resume or args.mode != "default":
        return ""
    return "postroom: its mode is default now: a mode is not kept, so give --mode where it had another\n"


def until_closed(fd: int, seconds: float) -> str:
    """What comes from a descriptor until its other end is closed; nothing where that takes too long."""
    end = time.monotonic() + seconds
    said = b""
    while (left := end - time.monotonic()) > 0 and select.select([fd], [], [], left)[0]:
        chunk = os.read(fd, 65536)
        if not chunk:
            return said.decode()
        said += chunk
    return ""
