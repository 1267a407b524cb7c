"""The process that a session lives in, for `postroom open`: in the background, in the foreground, around a command.

It keeps the session until a signal, `postroom close` or the command's end, and leaves nothing behind but what is
meant to be kept (10.8, 05.29).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from postroom import present
from postroom.console.asking import Asking, can_ask
from postroom.console.commands.open import mode_not_kept
from postroom.errors import BadUsage, PostroomError, UnfitPath
from postroom.opening import MAX_LOG, Opened, opened_session
from postroom.state import files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from postroom.arguments import Values

OTHERS_IDENTITY = (
    "POSTROOM_SESSION",
    "POSTROOM_SOCKET",
    "POSTROOM_TOKEN",
    "POSTROOM_NAME",
    "CLAUDECODE",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_PID",
)
"""What tells a program that it runs inside another session; a new session is not that one (facts B11)."""


async def serve(args: Values) -> int:
    """Runs the session in this process until it is told to end."""
    ready: Callable[[str], None] | None = announcer(args.ready_fd) if args.ready_fd is not None else None
    # From the first moment: a session that is told to end while it is opened ends as soon as it is open.
    told = told_by_signals(leave_ignored=bool(args.command))
    try:
        async with opened_session(
            args.name,
            kind=args.kind or default_kind(args),
            mode=args.mode,
            settings=args.settings,
            resume=args.resume,
            closable=not args.command,
            handle_signals=False,
        ) as opened:
            if ready is not None:
                if problem := keep_log(opened.log_path):
                    opened.session.found(problem)
                ready(
                    present.dumps(
                        present.opened_document(opened.session.status(), os.getpid(), opened.socket_path)
                    )
                )
                return await told_to_end(opened, told)
            opened.session.askable = not args.command and can_ask(opened.session, as_json=args.json)
            warn(opened)
            sys.stderr.write(mode_not_kept(args))
            if args.command:
                return told.result() if told.done() else await around(opened, args.command, told)
            sys.stderr.write("postroom: what arrives is printed here; Ctrl-C or `postroom close` ends it\n")
            sys.stderr.flush()
            return await foreground(opened, told, as_json=args.json)
    except PostroomError as error:
        if ready is None:
            raise
        ready(present.dumps(present.error_document(error.code, error.message, error.hint)))
        return 1


def default_kind(args: Values) -> str:
    """Whether somebody can be asked: not of a detached session, nor without a terminal (03.39)."""
    return "interactive" if not args.detach and sys.stdin is not None and sys.stdin.isatty() else "headless"


def announcer(fd: int) -> Callable[[str], None]:
    """Returns what writes one document to the waiting opener, and lets go of it."""

    def announce(document: str) -> None:
        with contextlib.suppress(OSError), os.fdopen(fd, "w") as opener:
            opener.write(document)

    return announce


def keep_log(path: str) -> str:
    """Sends what this process writes to stderr into the session's log; one old log is kept (05.4).

    Returns why there is no log, if that is so: what is written then goes nowhere. Empty where there is one.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    problem = ""
    try:
        with contextlib.suppress(FileNotFoundError):
            files.check_file(path, folder=False)
            if os.stat(path).st_size > MAX_LOG:
                os.replace(path, f"{path}.1")
        fd = os.open(path, flags, 0o600)
    except (OSError, UnfitPath) as error:
        problem = f"This session keeps no log: {error}"
        fd = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(fd, 2)
    os.close(fd)
    return problem


def warn(opened: Opened) -> None:
    """Says what the person should know, on stderr."""
    status = opened.session.status()
    sys.stderr.write(f"postroom: this session is {status.name} [{status.ref}], id {status.session_id}\n")
    for problem in status.problems:
        sys.stderr.write(f"postroom: {problem}\n")
    sys.stderr.flush()


def told_by_signals(*, leave_ignored: bool) -> asyncio.Future[int]:
    """Is done once SIGTERM, SIGINT or SIGHUP has come, with 128 + its number (10.8).

    Args:
        leave_ignored: what is ignored here (`nohup`) stays so, for a command that inherits it.
    """
    loop = asyncio.get_running_loop()
    told: asyncio.Future[int] = loop.create_future()

    def tell(number: int) -> None:
        if not told.done():
            told.set_result(number)

    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if not (leave_ignored and signal.getsignal(one) == signal.SIG_IGN):
            loop.add_signal_handler(one, tell, 128 + one)
    return told


async def told_to_end(opened: Opened, told: asyncio.Future[int]) -> int:
    """Waits until a signal or `postroom close` ends the session: 0 for close, else what `told` says."""
    closing = asyncio.get_running_loop().create_task(opened.closing.wait())
    done, _ = await asyncio.wait({told, closing}, return_when=asyncio.FIRST_COMPLETED)
    closing.cancel()
    return told.result() if told in done else 0


async def foreground(opened: Opened, told: asyncio.Future[int], *, as_json: bool) -> int:
    """Prints what arrives, until it is told to end; printed is taken (10.8). Asks about what is held, where it can."""
    session = opened.session
    end = asyncio.get_running_loop().create_task(told_to_end(opened, told))

    async def show() -> None:
        while await session.wait():
            lease = session.take()
            try:
                if as_json:
                    sys.stdout.write(present.dumps(present.inbox_document(lease.messages, lease.notices)))
                else:
                    sys.stdout.write(present.inbox_text(lease.messages, lease.notices, taken=True))
                sys.stdout.flush()
            except OSError:
                session.release(lease)
                raise
            session.confirm(lease)
            if asks is not None:
                asks.shown()

    loop = asyncio.get_running_loop()
    asks = Asking(session) if session.askable else None
    showing = loop.create_task(show())
    asking = loop.create_task(asks.run()) if asks is not None else None
    await asyncio.wait({end, showing}, return_when=asyncio.FIRST_COMPLETED)
    if asking is not None:
        asking.cancel()
    if end.done():
        showing.cancel()
        code = end.result()
        return 130 if code == 128 + signal.SIGINT else code
    end.cancel()
    return 1 if showing.exception() else 0


def environment_for(command_environ: Mapping[str, str], identity: Mapping[str, str]) -> dict[str, str]:
    """The environment of the wrapped command: this session's identity and nobody else's."""
    kept = {key: value for key, value in command_environ.items() if key not in OTHERS_IDENTITY}
    return {**kept, **identity}


async def around(opened: Opened, command: Sequence[str], told: asyncio.Future[int]) -> int:
    """Runs the command inside the session and returns its exit code, 128 + n for a signal (10.8)."""
    loop = asyncio.get_running_loop()
    # Before the command runs, as it may be signalled in the instant of its start; a handler runs only while
    # something is awaited, so the command is there then. The terminal sends SIGINT to the command too, and what it
    # does about it is the command's affair.
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(one) != signal.SIG_IGN:
            loop.add_signal_handler(
                one, lambda number=one: number != signal.SIGINT and process.send_signal(number)
            )
    try:
        process = subprocess.Popen(command, env=environment_for(os.environ, opened.environment))
    except OSError as error:
        raise BadUsage(f"{command[0]}: {error.strerror}.", "Check the command behind `--`.") from None
    opened.attach(process.pid)
    told.add_done_callback(lambda _: process.send_signal(told.result() - 128))  # it came just before
    code = await exit_of(process)
    return 128 - code if code < 0 else code


async def exit_of(process: subprocess.Popen[bytes]) -> int:
    """Waits for a child without a thread where the kernel can say so, and returns its code."""
    loop = asyncio.get_running_loop()
    if not hasattr(os, "pidfd_open"):
        return await loop.run_in_executor(None, process.wait)
    gone = loop.create_future()
    fd = os.pidfd_open(process.pid)
    try:
        loop.add_reader(fd, lambda: gone.done() or gone.set_result(None))
        await gone
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    return process.wait()
