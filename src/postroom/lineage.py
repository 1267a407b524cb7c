"""Whose process is whose: which program runs the agent that started this process, and which session is its (09.9, 09.11).

It reads what the kernel tells of processes, their commands, and what they were started with; it opens nothing and decides
nothing but who is meant. A session further up than the client is another client's.

Weak: a client that hides its environment hides its folders too. Programs are recognised by their names.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from postroom.clients import CLIENTS, load
from postroom.state import belongings, processes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from postroom.client import Client
    from postroom.state.record import Kind
    from postroom.state.roster import Roster

SHELLS = frozenset("sh bash dash ash zsh ksh mksh fish busybox tcsh csh env timeout setsid nohup".split())
"""What stands between a client and what it starts, by the name of the program."""

LAUNCHERS = frozenset("uv uvx npx npm pipx".split())
"""What a person may have put between a client and `postroom mcp`."""

SERVER = "app-server"
"""The word in the command line of a Codex that serves windows."""

BORROWED = (
    *("POSTROOM_HOME", "POSTROOM_NAME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "HOME"),
    *("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_TMPDIR", "CODEX_HOME", "QWEN_HOME"),
)
"""Variables that decide where things lie, taken from the client's process where this one was started without them."""


def is_client(client: Client, pid: int) -> bool:
    """Whether a process runs this client: by its executable, or by the script that its interpreter runs."""
    words = processes.command_of(pid)
    named = {os.path.basename(processes.executable_of(pid)), os.path.basename(words[0]) if words else ""}
    if not named.isdisjoint(client.programs):
        return True
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    return any(
        f"/{program}/" in script or os.path.basename(script).partition(".")[0] == program
        for program in client.programs
    )


def beside(pid: int) -> bool:
    """Whether this process was started as a server is: in the client's own session of processes, not in one of its own.

    Every client that was looked at keeps its servers beside itself, and gives each command of its agent, and each hook,
    a session of processes that cannot be left for this one again (10.39).
    """
    try:
        return os.getsid(0) == os.getsid(pid)
    except OSError:
        return False


def between(pid: int) -> bool:
    """Whether a process only stands between a client and what it starts: a shell, a launcher."""
    name = processes.name_of(pid)
    return name in SHELLS or name in LAUNCHERS


def client_process(
    client: Client, environ: Mapping[str, str], line: Sequence[tuple[int, str]]
) -> tuple[int, str] | None:
    """The process of the client that started this one; None where there is none.

    The rungs, first that answers wins:
        1. the ancestor that the client's own variable names.
        2. the nearest ancestor that runs the client's program.
        3. the nearest ancestor that is no shell and no launcher.

    Args:
        client: which client is meant.
        environ: of this process.
        line: (pid, start) of this process and its ancestors, nearest first.
    """
    above = line[1:]
    named = environ.get(client.pid_variable, "") if client.pid_variable else ""
    for pid, start in above:
        if str(pid) == named:
            return pid, start
    for pid, start in above:
        if is_client(client, pid):
            return pid, start
        if not between(pid):
            break
    return next(((pid, start) for pid, start in above if not between(pid)), None)


def recognised(environ: Mapping[str, str], line: Sequence[tuple[int, str]]) -> Client:
    """The client that started this process, where nobody said which: by its variables, else by its program."""
    clients = [load(name) for name in CLIENTS]
    for client in clients:
        if any(environ.get(name) for name in client.session_variables):
            return client
    for pid, _ in line[1:]:
        for client in clients:
            if is_client(client, pid):
                return client
        if not between(pid):
            break
    return load("generic")


def borrowed(environ: Mapping[str, str], pid: int) -> dict[str, str]:
    """The environment, with what decides where things lie taken from the client's process where it is missing here."""
    missing = [name for name in BORROWED if name not in environ]
    return {**processes.environment_of(pid, missing), **environ}


def find(
    roster: Roster, client: Client, line: Sequence[tuple[int, str]], conversation: str = ""
) -> str | None:
    """The live session of the client that started this process; None where it has none yet.

    A session further up is another client's: a program that an agent started does not read that agent's mail, even
    where it has inherited `POSTROOM_SESSION`. Above the client's own process only its own launcher, and a shell in which a
    person has opened a session, may have one; the same client above a shell is an agent that runs this one.

    Args:
        roster: who lives.
        client: which client is meant.
        line: (pid, start) of this process and its ancestors, nearest first.
        conversation: the client's own id of the conversation; empty: not known.
    """
    talk = belongings.talk_session(roster.sessions, client.name, conversation) if conversation else None
    if talk is not None and not roster.lives(talk):
        talk = None
    inside = False  # below the client's own process
    shelled = False  # which runs in a shell
    for pid, start in line[1:]:
        own = is_client(client, pid)
        if inside and (shelled if own else not between(pid)):
            break
        here = roster.sessions_at(pid, start)
        if here:
            # A conversation that is open in two processes is a session in each.
            return talk if talk in here else None if conversation and client.threads else here[0]
        if between(pid):
            shelled = inside
        elif not (own or inside) and client.programs:
            break
        else:
            inside = True
    return talk


def serves_windows(client: Client, pid: int) -> bool:
    """Whether a process holds the conversations of several windows, which are processes of their own."""
    return client.threads and SERVER in processes.command_of(pid)


def is_window(client: Client, pid: int) -> bool:
    """Whether a process may be a window of such a client: it runs its program, and is no server."""
    return SERVER not in processes.command_of(pid) and is_client(client, pid)


def kind_of(client: Client, pid: int) -> Kind:
    """Whether somebody sits in front of a client: its standard input is a terminal.

    A process that holds the conversations of several windows has none; they do, as long as one is open.
    """
    if serves_windows(client, pid):
        from postroom.doors.codex_threads import windows  # the only client whose process holds several

        return "headless" if windows(pid) == 0 else "interactive"
    try:
        stdin = os.readlink(f"{processes.PROC}/{pid}/fd/0")
    except OSError:
        return "headless"
    return "interactive" if stdin.startswith(("/dev/pts/", "/dev/tty")) else "headless"


async def until_gone(pid: int, start: str) -> None:
    """Waits until a process has ended: without looking again and again where the kernel can say so (12.21)."""
    loop = asyncio.get_running_loop()
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        while processes.alive(pid, start) is not False:
            await asyncio.sleep(1.0)
        return
    gone: asyncio.Future[None] = loop.create_future()
    try:
        if processes.start_of(pid) != start:
            return
        loop.add_reader(fd, lambda: gone.done() or gone.set_result(None))
        await gone
    finally:
        loop.remove_reader(fd)
        os.close(fd)
