"""`postroom attend`: the presence of a client that runs no MCP server of ours, in a process of its own (09.11).

A client's session-start hook starts it in the background. It is the session until the client's process ends, until an
MCP server of the client takes the session over, or until a signal. It prints nothing; what goes wrong is in the log.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from typing import TYPE_CHECKING

from postroom.errors import BadUsage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.arguments import Values


def run(args: Values, argv: Sequence[str]) -> int:
    """Attends a client until it ends, and returns the exit code."""
    del argv
    if args.client_pid is None or args.client_start is None:
        raise BadUsage(
            "postroom attend: which process the client is was not said.",
            "Its hooks start this; `postroom setup CLIENT` installs them.",
        )
    gc.enable()
    return asyncio.run(attend(args))


async def attend(args: Values) -> int:
    """Opens the client's session, says that it is there, and waits for the end."""
    from postroom import clients
    from postroom.console import host
    from postroom.lineage import until_gone
    from postroom.presence import present, until_closed

    client = clients.load(args.client)
    process = (args.client_pid, args.client_start)
    ready = host.announcer(args.ready_fd) if args.ready_fd is not None else None
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(one, told.set)
    async with present(
        client, process, environ=os.environ, conversation=args.conversation or "", detached=True
    ) as here:
        if here.opened is not None and (problem := host.keep_log(here.opened.log_path)):
            here.opened.session.found(problem)
        if ready is not None:
            ready("ready\n")
        if here.opened is None:
            return 0  # somebody else is this client's session
        ends = [
            loop.create_task(until_gone(*process)),
            loop.create_task(until_closed(here)),
            loop.create_task(here.opened.closing.wait()),
            loop.create_task(told.wait()),
        ]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
    return 0
