"""The presence of a client's session: which process the client is, who claims its session, who comes second (09.9, 09.11).

While an agent's program runs, one process of ours is its session: the MCP server that it started, or, where it starts
none, a detached process that its first hook started and that ends with it. Whoever comes first opens the session, under
a lock that is the client process's; who comes second attaches to what is there. An MCP server that comes second takes
the session over from a detached process: it has better doors.

Who the client is comes from the environment and the ancestors of the process that asks, never from a tool's arguments
(09.9). A conversation whose id is known is the same session each time it is opened (05.12).

How it fails: `SessionInUse` where another process has the session and cannot be reached; what `opening` raises. A client whose process cannot be
looked at has a session without anything that its process would tell.

Weak: while a session is handed over, for the moment of a start, it cannot be reached; nothing that it had accepted is
lost. A client that hides its environment hides its folders too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from typing import TYPE_CHECKING

from postroom import ask
from postroom.clients import CLIENTS, load
from postroom.core.address import check_name
from postroom.errors import InvalidName, PostroomError, SessionInUse
from postroom.opening import Opened, opened_session
from postroom.standing import DEFAULT_MODE
from postroom.state import belongings, files, places, processes
from postroom.state.roster import Roster
from postroom.state.tenure import read_client_token

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from postroom.client import Client
    from postroom.neighbour import Neighbour
    from postroom.session import Session
    from postroom.state.record import Kind

CONVERSATIONS = uuid.UUID("0c5e4a0e-5a0b-4b5e-9d0c-8a1f6f0b9c11")
"""The namespace in which a client's conversation has the id of its session."""

SHELLS = frozenset("sh bash dash ash zsh ksh mksh fish busybox tcsh csh env timeout setsid nohup".split())
"""What stands between a client and what it starts, by the name of the program."""

LAUNCHERS = frozenset("uv uvx npx npm pipx".split())
"""What a person may have put between a client and `postroom mcp`."""

BORROWED = (
    *("POSTROOM_HOME", "POSTROOM_NAME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "HOME"),
    *("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_TMPDIR", "CODEX_HOME", "QWEN_HOME"),
)
"""Variables that decide where things lie, taken from the client's process where this one was started without them."""

CLAIM_SECONDS = 15.0
"""How long the second waits while the first opens the session: a start takes a fraction of this."""

CLOSED_SECONDS = 30.0
"""How often it is looked whether a conversation is still open, where nobody says when it ends."""

HANDOVER_SECONDS = 5.0
"""How long it waits for a detached process to let go of its session."""


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


class Present:
    """A client's session as this process sees it.

    Attributes:
        client, process: the client, and the (pid, start) of its process.
        environ: the environment that decides the folders.
        cwd: the client's working directory.
        conversation: the client's own id of its conversation; empty while it is not known.
        opened: the session, where it lives in this process.
        control_path, token: how its verbs are reached, where it lives in another.
    """

    def __init__(
        self,
        client: Client,
        process: tuple[int, str],
        environ: Mapping[str, str],
        cwd: str,
        conversation: str,
        roster: Roster,
    ) -> None:
        self.client = client
        self.process = process
        self.environ = environ
        self.cwd = cwd
        self.conversation = conversation
        self.opened: Opened | None = None
        self.control_path = ""
        self.token = ""
        self._roster = roster
        self._neighbour: Neighbour | None = None

    @property
    def session(self) -> Session | None:
        """The session, where it lives in this process."""
        return None if self.opened is None else self.opened.session

    def variable(self, name: str) -> str:
        """A variable with which the client's process was started; empty for none. It may be a secret."""
        return processes.environment_of(self.process[0], (name,)).get(name, "")

    def learned(self, conversation: str, cwd: str = "", title: str = "") -> None:
        """A hook or a call says which conversation this is, where it works and what the client calls it (09.9)."""
        session = self.session
        if session is None:
            return
        if cwd:
            self.cwd = cwd
        if conversation and conversation != self.conversation:
            try:
                belongings.write_talk(self._roster.sessions, self.client.name, conversation, session.id)
            except (OSError, PostroomError) as error:
                session.log(f"the conversation {conversation} could not be written down: {error}")
            self.forget_conversation()
            self.conversation = conversation
        session.called(title or self.native_name())

    def forget_conversation(self) -> None:
        """The conversation is this session's no more."""
        if self.conversation and self.session is not None:
            with contextlib.suppress(OSError, PostroomError):
                belongings.drop_talk(
                    self._roster.sessions, self.client.name, self.conversation, self.session.id
                )

    def native_name(self) -> str:
        """What the client itself calls this session, where it publishes that (09.9); empty else."""
        if not self.client.neighbour:
            return ""
        from postroom import neighbours

        if self._neighbour is None:
            self._neighbour = neighbours.load(self.client.neighbour, self.environ)
        there = self._neighbour.look().found
        return next((found.name for found in there if (found.pid, found.start) == self.process), "")


def session_id_of(client: Client, conversation: str) -> str:
    """The id of the session that a client's conversation is (05.12)."""
    return str(uuid.uuid5(CONVERSATIONS, f"{client.name}:{conversation}"))


def kind_of(client: Client, pid: int) -> Kind:
    """Whether somebody sits in front of a client: its standard input is a terminal.

    A process that holds the conversations of several windows has none; they do.
    """
    if client.threads and "app-server" in processes.command_of(pid):
        return "interactive"
    try:
        stdin = os.readlink(f"{processes.PROC}/{pid}/fd/0")
    except OSError:
        return "headless"
    return "interactive" if stdin.startswith(("/dev/pts/", "/dev/tty")) else "headless"


@contextlib.asynccontextmanager
async def present(
    client: Client,
    process: tuple[int, str],
    *,
    environ: Mapping[str, str],
    cwd: str | None = None,
    conversation: str = "",
    name: str | None = None,
    mode: str | None = None,
    settings: str | None = None,
    detached: bool = False,
) -> AsyncGenerator[Present]:
    """Opens the session of a client's process, or attaches to what is there, while the block runs (09.9, 09.11).

    Args:
        client: which client.
        process: (pid, start) of its process.
        environ: of this process; what it lacks is taken from the client's.
        cwd: the client's working directory; this process's own by default.
        conversation: the client's own id of it, where it is known.
        name, mode, settings: as for `open_session`; without a mode what the client's command line asks for.
        detached: this is the process that a hook started: it ends at `close`, and never takes over.

    Yields Present. Raises what `open_session` raises, and SessionInUse where nothing came of the waiting.
    """
    environ = borrowed(environ, process[0])
    state, _ = places.needed_state_folder(environ)
    roster = Roster(state)
    conversation = (
        conversation
        or next(filter(None, map(environ.get, client.session_variables)), "")
        or client.conversation(process[0])
    )
    here = Present(client, process, environ, cwd or os.getcwd(), conversation, roster)
    claim = files.Lock(f"{roster.sessions}/.claim-{process[0]}")
    async with contextlib.AsyncExitStack() as stack:
        files.private_folder(roster.sessions)
        await _acquired(claim)
        try:
            resume = await _taken_over(here, roster, detached=detached)
            if here.control_path:
                _given_up(claim)
                yield here
                return
            given, session_id = _identity(client, conversation, roster, resume)
            here.opened = await stack.enter_async_context(
                opened_session(
                    name,
                    suggested=wished_name(here),
                    kind=kind_of(client, process[0]),
                    mode=mode or client.mode_in(processes.command_of(process[0])) or DEFAULT_MODE,
                    settings=settings,
                    resume=resume or given,
                    cwd=here.cwd,
                    environ=environ,
                    closable=detached,
                    handle_signals=False,
                    session_id=session_id,
                    program=client.name,
                    client=process,
                    confirms=client.confirms,
                    wakes=client.wakes,
                )
            )
            here.opened.session.attendant = here
            stack.callback(here.forget_conversation)
            if conversation:
                belongings.write_talk(roster.sessions, client.name, conversation, here.opened.session.id)
            here.opened.session.called(here.native_name())
        finally:
            _given_up(claim)
        await stack.enter_async_context(_ringing(here))
        yield here


def wished_name(here: Present) -> str | None:
    """The name that the client has for its session, if it may be one here."""
    name = here.native_name()
    try:
        return check_name(name) if name else None
    except InvalidName:
        return None


def _identity(
    client: Client, conversation: str, roster: Roster, resume: str | None
) -> tuple[str | None, str | None]:
    """(session to resume, id of a new one) for a conversation; a new id where the conversation's lives elsewhere."""
    if resume or not conversation:
        return None, None
    wanted = session_id_of(client, conversation)
    if roster.lives(wanted, doubtful=True):
        return None, None
    return (wanted, None) if roster.has_folder(wanted) else (None, wanted)


async def _acquired(claim: files.Lock) -> None:
    """Waits for the claim of a client's process without stopping the loop."""
    deadline = asyncio.get_running_loop().time() + CLAIM_SECONDS
    while not claim.acquire(0):
        if asyncio.get_running_loop().time() > deadline:
            raise SessionInUse(
                "Another process is opening this client's session and does not come to an end.",
                "`postroom doctor` shows what there is.",
            )
        await asyncio.sleep(0.02)


def _given_up(claim: files.Lock) -> None:
    """Lets the next one claim; the file goes first, and whoever waits for it makes a new one."""
    if claim.held:
        belongings.unlink(claim.path)
    claim.release()


async def _taken_over(here: Present, roster: Roster, *, detached: bool) -> str | None:
    """Attaches `here` to the session that is there, or has it handed over; returns the id to resume."""
    line = processes.ancestry(os.getpid())
    found = find(roster, here.client, line, here.conversation)
    if found is None and not (here.client.threads and here.conversation):
        found = next(iter(roster.client_sessions(*here.process)), None)
    if found is None:
        return None
    token = read_client_token(roster.folder(found))
    if token is None:
        raise SessionInUse(
            "This client's session has no inbox, so nothing can be attached to it.",
            "`postroom doctor` says why it has none.",
        )
    here.token, path = token
    if not detached and await _closed(path, here.token):
        here.token = ""
        deadline = asyncio.get_running_loop().time() + HANDOVER_SECONDS
        while roster.lives(found) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        return found
    here.control_path = path
    return None


async def _closed(path: str, token: str) -> bool:
    """Asks a detached presence to end; False where the session is another program's."""

    def close() -> bool:
        try:
            return b'"session_id"' in ask.answer_of(path, token, ["close", "--json"])
        except (ask.Unanswered, OSError):
            return False

    return await asyncio.get_running_loop().run_in_executor(None, close)


@contextlib.asynccontextmanager
async def _ringing(here: Present) -> AsyncGenerator[None]:
    """Rings the client's doors while the block runs (09.1)."""
    from postroom.doors.ringing import Ringer

    ringing = asyncio.get_running_loop().create_task(Ringer(here).run())
    try:
        yield
    finally:
        ringing.cancel()
        await asyncio.gather(ringing, return_exceptions=True)


async def until_closed(here: Present) -> None:
    """Waits until the client has closed the conversation; for ever, unless its process may outlive that.

    One that was never seen open is not seen to close.
    """
    from postroom.doors.codex_threads import is_open  # the only client whose process holds several

    was_open = ""
    while True:
        if here.client.threads and here.conversation:
            if is_open(here, here.conversation):
                was_open = here.conversation
            elif was_open == here.conversation:
                return
        await asyncio.sleep(CLOSED_SECONDS)


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
