"""Puts a session together from its real parts: folders, lock, store, sockets, tokens, record, control socket.

The order is the guarantee. First the lock, so that one process is this session; then the store, so that its mail is
there; then the key file, then the socket, so that nobody connects before it can be judged; the record last, so that
whoever is listed can be reached (05.11, 05.20). Ending takes the same way back.

It decides nothing: the session does, and this hands it what it needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import threading
import time
import uuid
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from postroom import __version__, transports
from postroom.control import Control
from postroom.core.address import check_name, derive_name
from postroom.core.settings import DEFAULTS
from postroom.core.times import iso
from postroom.counter import terminal_of
from postroom.crossing import Crossing
from postroom.desktop import announced
from postroom.door import MAX_REQUEST, Door, refused_remains
from postroom.errors import NotYourSession, PostroomError, UnfitPath
from postroom.neighbourhood import Neighbourhood
from postroom.session import Session
from postroom.standing import DEFAULT_MODE, Standing
from postroom.state import files, places, processes
from postroom.state.config import Config
from postroom.state.directory import Directory
from postroom.state.memory_directory import Gathering, MemoryDirectory
from postroom.state.memory_store import MemoryStore
from postroom.state.record import FormerName, Record
from postroom.state.roster import Roster
from postroom.state.store import SqliteStore
from postroom.state.tenure import read_opener, write_client_token, write_opener
from postroom.transport import Evidence

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping

    from postroom.core.message import Receipt, Refusal
    from postroom.core.settings import Limits, Settings
    from postroom.state.record import Kind

__all__ = ["Gathering", "open_in_memory", "open_session"]

FEATURES = ("notify_idle", "postroom_ack", "postroom_chain")
"""What this version announces: it says when it is idle (05.31), acknowledges (05.22), and sends chains on (03.66)."""


TEAM_SECONDS = 1.0
"""How often a session looks whether there are teams here: the most that one at rest may wake up (12.21)."""

MAX_LOG = 1_048_576
"""Bytes of a session's log; what is longer becomes the old one (05.4)."""


def epoch_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """A new message id: a UUID that begins with the time (version 7), so that a store files it at its end (12.9)."""
    number = time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10))
    digits = f"{number & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


@dataclass(slots=True, eq=False)
class Opened:
    """A session in this process, with what its host needs.

    Attributes:
        session: the session.
        socket_path: its inbox socket; None where it has no inbox.
        log_path: where a session without a terminal writes what goes wrong.
        control_path, client_token: how its own client's programs reach its verbs, where they can.
        environment: what a command that runs inside the session gets in its environment.
        closing: set once `postroom close` was answered.
    """

    session: Session
    socket_path: str | None
    log_path: str
    environment: Mapping[str, str]
    control_path: str | None = None
    client_token: str = field(default="", repr=False)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    forget: bool = False

    def attach(self, pid: int) -> None:
        """Says which process is the session's client: the command that runs around it (05.29)."""
        start = processes.start_of(pid)
        if start is not None:
            record = self.session.record
            self.session.record = record.attached(pid, start)
            self.session.directory.publish(self.session.record)


@contextlib.asynccontextmanager
async def open_session(
    name: str | None = None,
    *,
    kind: str = "headless",
    mode: str = DEFAULT_MODE,
    settings: str | Mapping[str, object] | None = None,
    resume: str | None = None,
    limits: Limits | None = None,
    cwd: str | None = None,
    environ: Mapping[str, str] | None = None,
    handle_signals: bool = True,
) -> AsyncGenerator[Session]:
    """Opens a session in this process, for as long as the block runs.

    Args:
        name: its name; without one `POSTROOM_NAME`, else the folder's name decides (02.1).
        kind: `interactive`, `headless`, `bg` or `external`: whether somebody can be asked (chapter 03).
        mode: the permission mode, from which the class follows (03.1 to 03.4).
        settings: settings for this session alone: as a mapping, as JSON, or as the path of a file (03.25).
        resume: the id or the name of a session that ended or was killed: it comes back with its name and mail
            (05.12).
        limits: the bounds of chapter 03, in place of those in the settings; `Limits.unbounded()` lifts them.
        cwd: the working directory that others see; the process's own by default.
        environ: the environment that decides the folders; the process's own by default.
        handle_signals: also clean up at SIGTERM, unless the program has a handler of its own.

    Yields the Session. Raises InvalidName, NoSession (unknown `resume`), SessionInUse, SettingInvalid (`settings`
    that cannot be used), UnfitPath (a state folder that must not be trusted), StoreError.

        async with open_session("alice") as session:
            await session.send("bob", "The column is tenant_id.", summary="schema")
            async for message in session.messages():
                print(message.origin.name, message.text)
    """
    async with opened_session(
        name,
        kind=kind,
        mode=mode,
        settings=settings if settings is None or isinstance(settings, str) else json.dumps(settings),
        resume=resume,
        limits=limits,
        cwd=cwd,
        environ=environ,
        handle_signals=handle_signals,
    ) as opened:
        yield opened.session


@contextlib.asynccontextmanager
async def opened_session(
    name: str | None = None,
    *,
    kind: str = "headless",
    mode: str = DEFAULT_MODE,
    settings: str | None = None,
    resume: str | None = None,
    limits: Limits | None = None,
    cwd: str | None = None,
    environ: Mapping[str, str] | None = None,
    closable: bool = False,
    handle_signals: bool = True,
    suggested: str | None = None,
    session_id: str | None = None,
    program: str = "postroom",
    client: tuple[int, str] | None = None,
    confirms: str = "consumed",
    wakes: bool = True,
) -> AsyncGenerator[Opened]:
    """The same for a host: yields Opened, with the socket's path, the environment for a command and `closing`.

    Args beyond those of `open_session`:
        closable: the host waits for `closing`.
        suggested: a name for a new session that nobody named, in place of one from its folder.
        session_id: the id of a new session, which has no folder yet.
        program: what runs the agent, for listings (05.29).
        client: (pid, start) of the process that runs the agent.
        confirms, wakes: what can be confirmed of a message to it, and whether one wakes it (09.16).

    `closable` says that the host waits for `closing`, so that `postroom close` ends the session; otherwise that
    is refused, because the command or the program decides that uses it (10.9).
    """
    environ = os.environ if environ is None else environ
    async with contextlib.AsyncExitStack() as stack:
        state, place = places.needed_state_folder(environ)
        roster = Roster(state)
        if resume is not None:
            resume = roster.meant(resume, ())
        asked = name if name is not None else environ.get("POSTROOM_NAME") or None
        if resume is None and asked is not None:
            check_name(asked)  # before anything is made: a refused name leaves nothing behind
        cwd = cwd or os.getcwd()
        config = Config(cwd=cwd, environ=environ, flag=settings)
        session_id = resume or session_id or str(uuid.uuid4())
        if resume is not None:
            opener = read_opener(roster.folder(resume))
            line = processes.ancestry(os.getppid())
            if refusal := refused_remains(roster.sessions_at, line, resume, opener):
                raise NotYourSession(refusal.message, refusal.hint)
        lock = roster.open_folder(session_id)
        stack.callback(lock.release)
        folder = roster.folder(session_id)
        now = epoch_ms()
        record = replace(
            _record(roster, session_id, kind, cwd, environ, now),
            entrypoint=program,
            confirms=confirms,
            wakes=wakes,
        )
        if client is not None:
            record = record.attached(*client)
        if resume is None and record.opened_by is not None:
            write_opener(folder, record.opened_by)
        record, problem = _named(
            roster, record, name, resumed=resume is not None, environ=environ, now=now, suggested=suggested
        )
        problems = [problem] if problem else []
        store = SqliteStore.open(folder, session_name=record.name, now=now)
        stack.callback(store.close)
        sockets = places.socket_folder(environ)
        problems += [
            f"{path} was passed over: {reason}." for path, reason in (*place.skipped, *sockets.skipped)
        ]
        tokens = {kind: secrets.token_hex(16) for kind in ("peer", "child", "client")}
        stem = roster.free_stem(os.getpid())
        socket_path = f"{sockets.path}/{stem}.sock" if sockets.path is not None else None
        uds: Any = transports.load("uds")
        directory = Neighbourhood(Directory(roster, record, lock), environ, roster.sessions_at, own=record)
        crossing = Crossing(
            uds.UdsTransport(socket_path, tokens={tokens["peer"]: "peer", tokens["child"]: "child"}),
            directory,
        )
        crossing.publish_to(config.settings.publish_to)
        session = Session(
            record=record,
            clock=epoch_ms,
            ids=new_id,
            store=store,
            directory=directory,
            transport=crossing,
            standing=Standing(
                mode,
                config.settings,
                limits,
                interactive=kind == "interactive",
                vouched=resume is None or _is_person(roster),
            ),
            key=secrets.token_bytes(32),
            problems=problems,
        )
        stack.push_async_callback(session.close)
        stack.callback(config.stop)
        config.watch(partial(_apply, session, crossing, config))
        opened = Opened(
            session, socket_path, f"{folder}/log", _identity(session_id, socket_path, tokens["child"])
        )
        session.write_log = partial(append_log, opened.log_path)
        session.folder, session.identity = folder, opened.environment
        if socket_path is None:
            session.found("This session has no inbox: no folder for its socket can be trusted.")
            session.begin()
        else:
            roster.write_key(stem, socket_path, tokens["peer"])
            await stack.enter_async_context(_controlled(opened, roster, tokens, closable=closable))
            opened.control_path, opened.client_token = control_path_of(socket_path), tokens["client"]
            await session.serve()
            session.record = session.record.listening(socket_path, FEATURES, epoch_ms())
        session.directory.publish(session.record)
        with contextlib.suppress(PostroomError, OSError):
            roster.expire(epoch_ms())
        await stack.enter_async_context(announced(session))
        await stack.enter_async_context(_in_teams(session, state))
        if handle_signals:
            stack.enter_context(_left_at_sigterm(session, socket_path))
        yield opened
    if opened.forget:
        roster.forget(session_id)


@contextlib.asynccontextmanager
async def _in_teams(session: Session, state: str) -> AsyncGenerator[None]:
    """Around a session that may be in a team (07.21). Where nobody here ever was in one, nothing of teams is loaded."""

    async def attending() -> None:
        while not os.path.isdir(f"{state}/teams"):
            await asyncio.sleep(TEAM_SECONDS)
        try:
            await import_module("postroom.joining").attend(session, state)
        except Exception as error:  # the session goes on without a team
            session.found(f"This session can take part in no team: {type(error).__name__}.")

    task = asyncio.get_running_loop().create_task(attending())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _apply(session: Session, crossing: Crossing, config: Config) -> None:
    """The settings have changed: what applies from now on, and to whom the session is shown (03.36, 09.13)."""
    session.apply(config.settings)
    crossing.publish_to(config.settings.publish_to)


def _is_person(roster: Roster) -> bool:
    """Whether a person opens this session, by the measure of the counter: a terminal, and no session above (10.39).

    A detached session has no terminal; then that of the command counts which started it, and waits until it is open.
    """
    line = processes.ancestry(os.getpid())
    if any(roster.sessions_at(pid, start) for pid, start in line):
        return False
    return any(
        terminal_of(Evidence("uds", pid, start, line[steps:])) for steps, (pid, start) in enumerate(line[:2])
    )


def _record(
    roster: Roster, session_id: str, kind: str, cwd: str, environ: Mapping[str, str], now: int
) -> Record:
    """What the session says of itself before it has a name and listens (05.29)."""
    pid = os.getpid()
    openers = [
        other for pid, start in processes.ancestry(os.getppid()) for other in roster.sessions_at(pid, start)
    ]
    return Record(
        pid=pid,
        proc_start=processes.start_of(pid) or "",
        boot_id=processes.boot_id(),
        pid_domain=processes.pid_domain(),
        session_id=session_id,
        name=session_id,
        cwd=cwd,
        started_at=now,
        updated_at=now,
        status_updated_at=now,
        kind=cast("Kind", kind),
        version=__version__,
        machine=processes.machine(),
        opened_by=openers[0] if openers else None,
    )


def _named(
    roster: Roster,
    record: Record,
    given: str | None,
    *,
    resumed: bool,
    environ: Mapping[str, str],
    now: int,
    suggested: str | None = None,
) -> tuple[Record, str | None]:
    """Gives the session its name (02.1, 02.3, 02.4).

    Returns the record, and what to tell the person where another session has the name that was wanted.
    """
    known = roster.names.known(record.session_id)
    asked = given if given is not None else known.chosen if resumed else environ.get("POSTROOM_NAME", "")
    chosen = given is not None or bool(asked)
    wished = asked or (known.name if resumed else "")
    wanted = (
        check_name(wished)
        if wished or chosen
        else suggested or derive_name(os.path.basename(record.cwd), record.session_id)
    )
    name = roster.claim(wanted, record.session_id, chosen=chosen, now=now)
    former = tuple(
        FormerName(name=old, until=until) for old, until in roster.names.known(record.session_id).former
    )
    record = replace(record, name=name, name_source="user" if chosen else "derived", former_names=former)
    if name == wanted:
        return record, None
    return record, f"A live session has the name {wanted}, so this one is called {name}."


@contextlib.asynccontextmanager
async def _controlled(
    opened: Opened, roster: Roster, tokens: Mapping[str, str], *, closable: bool
) -> AsyncGenerator[None]:
    """Serves the control socket while the block runs (05.26)."""
    session = opened.session
    assert opened.socket_path is not None
    path = control_path_of(opened.socket_path)

    def finish(forget: bool) -> None:
        opened.forget = forget
        opened.closing.set()

    door = Door(
        client_token=tokens["client"],
        child_token=tokens["child"],
        process=(session.record.pid, session.record.proc_start),
        registered=roster.sessions_at,
        opened_by=session.record.opened_by,
    )
    control = Control(session, door, finish=finish if closable else None)
    uds: Any = transports.load("uds")
    listener = uds.Listener(path, control, line_limit=MAX_REQUEST)
    listener.start()
    write_client_token(roster.folder(session.id), tokens["client"], path)
    try:
        yield
    finally:
        await control.stop()
        listener.close()


@contextlib.contextmanager
def _left_at_sigterm(session: Session, socket_path: str | None) -> Generator[None]:
    """Ends the session at SIGTERM, where the program has no handler of its own (05.29, 03.46).

    The first signal ends it as `close` does, once the event loop comes to it: whoever waits for a decision is told.
    A second one leaves at once, with the record and the sockets removed and nobody told.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    ):
        yield
        return
    loop = asyncio.get_running_loop()
    ending: list[asyncio.Task[None]] = []

    def die() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    async def close() -> None:
        await session.close()
        remove()
        die()

    def remove() -> None:
        for path in (socket_path, control_path_of(socket_path)) if socket_path else ():
            with contextlib.suppress(OSError):
                os.unlink(path)

    def leave(number: int, frame: object) -> None:
        del number, frame
        if not ending and not loop.is_closed() and session.owes:
            ending.append(loop.create_task(close()))
            loop.call_soon_threadsafe(lambda: None)  # wakes the loop, which may be waiting
            return
        remove()
        session.leave()
        die()

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) == leave:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def control_path_of(socket_path: str) -> str:
    """The path of the control socket that goes with an inbox socket (05.26)."""
    return socket_path.removesuffix(".sock") + ".ctl.sock"


def append_log(path: str, line: str) -> None:
    """Adds one line to a session's log, of which one old one is kept (05.4). A log that cannot be written is left."""
    stamped = f"{iso(epoch_ms())} {' '.join(line.split())}\n".encode(errors="replace")
    try:
        with contextlib.suppress(FileNotFoundError):
            files.check_file(path, folder=False)
            if os.stat(path).st_size > MAX_LOG:
                os.replace(path, f"{path}.1")
        fd = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
        )
        try:
            os.write(fd, stamped)
        finally:
            os.close(fd)
    except (OSError, UnfitPath):
        pass


def _identity(session_id: str, socket_path: str | None, token: str) -> dict[str, str]:
    """What a command that runs inside a session finds in its environment (10.8)."""
    identity = {"POSTROOM_SESSION": session_id, "POSTROOM_TOKEN": token}
    return {**identity, "POSTROOM_SOCKET": socket_path} if socket_path else identity


async def send_as_outsider(
    call: dict[str, object], *, msg_id: str | None = None, environ: Mapping[str, str] | None = None
) -> Receipt | Refusal:
    """Sends one message without a session: nobody can answer it (10.38).

    Args:
        call: the input of SendMessage (chapter 01).
        msg_id: to send again what may have arrived; an outsider is known by its process alone, so a second
            process is another sender (11.5).
        environ: the environment that decides the folders.
    """
    environ = os.environ if environ is None else environ
    state, _ = places.needed_state_folder(environ)
    try:
        cwd = os.getcwd()
    except FileNotFoundError:  # it was removed, and sending needs none
        cwd = "/"
    uds: Any = transports.load("uds")
    now = epoch_ms()
    roster = Roster(state)
    directory = Neighbourhood(Directory(roster), environ, roster.sessions_at)
    session = Session(
        record=Record(
            pid=os.getpid(), session_id="outsider", name="outsider", started_at=now, updated_at=now
        ),
        clock=epoch_ms,
        ids=new_id,
        store=MemoryStore(),
        directory=directory,
        transport=Crossing(uds.UdsTransport(None), directory),
        standing=Standing(settings=Config(cwd=cwd, environ=environ).settings),  # what they deny (01.21)
        outsider=True,
    )
    try:
        return await session.send_call(call, msg_id=msg_id)
    finally:
        await session.close()


@contextlib.asynccontextmanager
async def open_in_memory(
    name: str,
    gathering: Gathering,
    *,
    limits: Limits | None = None,
    mode: str = DEFAULT_MODE,
    settings: Settings = DEFAULTS,
    clock: Callable[[], int] = epoch_ms,
    ids: Callable[[], str] = new_id,
) -> AsyncGenerator[Session]:
    """Opens a session that only this process can reach: for tests of programs, without a file or a socket.

    Everything but the parts is the same: names, pins, refusals, leases. Nothing outlives the process.

    Args:
        name: its name, or the base of a variant where another one here has it (02.3).
        gathering: who finds whom.
        limits: the bounds of chapter 03, in place of those in the settings.
        mode: the permission mode, from which the class follows (03.1 to 03.4).
        settings: those that apply; `session.apply` changes them.
        clock: returns epoch milliseconds.
        ids: returns a new id each time; the session's own is the first.

    Yields the Session. Raises InvalidName.

        here = Gathering()
        async with open_in_memory("alice", here) as alice, open_in_memory("bob", here) as bob:
            await alice.send("bob", "hello", summary="a greeting")
            assert [message.text for message in bob.drain()] == ["hello"]
    """
    memory: Any = transports.load("memory")
    now, session_id = clock(), ids()
    pid = os.getpid()
    start = processes.start_of(pid) or ""
    record = Record(
        pid=pid,
        proc_start=start,
        session_id=session_id,
        name=gathering.claim(check_name(name), session_id),
        started_at=now,
        updated_at=now,
        peer_features=FEATURES,
    )
    if gathering.hub is None:
        gathering.hub = memory.Hub()
    transport = memory.MemoryTransport(gathering.hub, session_id, evidence=Evidence("memory", pid, start))
    session = Session(
        record=replace(record, messaging_socket_path=transport.address),
        clock=clock,
        ids=ids,
        store=MemoryStore(record.name),
        directory=MemoryDirectory(gathering, record, transport.address),
        transport=transport,
        standing=Standing(mode, settings, limits),
        key=secrets.token_bytes(32),
    )
    await session.serve()
    session.directory.publish(session.record)
    try:
        yield session
    finally:
        await session.close()
