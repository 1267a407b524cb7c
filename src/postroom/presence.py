"""The presence of a client's session: which process the client is, who claims its session, who comes second (09.9, 09.11).

While an agent's program runs, one process of ours is its session: the MCP server that it started, or, where it starts
none, a detached process that its first hook started and that ends with it. Whoever comes first opens the session, under
a lock that is the client process's; who comes second attaches to what is there. An MCP server that comes second takes
the session over from a detached process: it has better doors. One that the agent runs in a shell only attaches, and asks
nobody about a hold: whoever answers there may be the agent (`lineage.beside`).

Who the client is comes from the environment and the ancestors of the process that asks, never from a tool's arguments
(09.9). A conversation whose id is known is the same session each time it is opened (05.12).

How it fails: `SessionInUse` where another process has the session and cannot be reached; what `opening` raises. A client
whose process cannot be looked at has a session without anything that its process would tell.

Weak: while a session is handed over, for the moment of a start, it cannot be reached; nothing that it had accepted is
lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from postroom import ask
from postroom.clients import load
from postroom.core import contract
from postroom.core.address import check_name
from postroom.errors import InvalidName, PostroomError, SessionInUse
from postroom.lineage import beside, borrowed, find, is_window, kind_of, serves_windows, until_gone
from postroom.opening import Opened, opened_session
from postroom.standing import DEFAULT_MODE
from postroom.state import belongings, files, places, processes
from postroom.state.roster import Roster
from postroom.state.tenure import read_client_token

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from postroom.call import Call
    from postroom.client import Client
    from postroom.control import Control
    from postroom.neighbour import Neighbour
    from postroom.session import Session

CONVERSATIONS = uuid.UUID("0c5e4a0e-5a0b-4b5e-9d0c-8a1f6f0b9c11")
"""The namespace in which a client's conversation has the id of its session."""

CLAIM_SECONDS = 15.0
"""How long the second waits while the first opens the session: a start takes a fraction of this."""

CLOSED_SECONDS = 30.0
"""How often it is looked whether a conversation is still open, where nobody says when it ends."""

WINDOW_SECONDS = 1.0
"""After a window has ended, the server that it was connected to needs a moment to see that."""

HANDOVER_SECONDS = 5.0
"""How long it waits for a detached process to let go of its session."""


class Present:
    """A client's session as this process sees it.

    Attributes:
        client, process: the client, and the (pid, start) of its process.
        environ: the environment that decides the folders.
        cwd: the client's working directory.
        conversation: the client's own id of its conversation; empty while it is not known.
        opened: the session, where it was opened here for this client.
        moved: the mode and the turn that the process before this one had been told.
        around: the session, where `postroom open` has opened it here around the client's command.
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
        self.around: Session | None = None
        self.moved: tuple[str, str] = ("", "")
        self.control_path = ""
        self.token = ""
        self._roster = roster
        self._neighbour: Neighbour | None = None
        self._watched: dict[int, int] = {}  # window → its pidfd

    @property
    def session(self) -> Session | None:
        """The session, where it lives in this process."""
        return self.around if self.opened is None else self.opened.session

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

    def look(self) -> None:
        """Shows others whether somebody sits in front of the client still; is told when a window of it ends."""
        if self.session is not None:
            self.session.sat_before(kind_of(self.client, self.process[0]))
            if serves_windows(self.client, self.process[0]):
                for pid in processes.everybody():
                    if pid not in self._watched and is_window(self.client, pid):
                        self._watch(pid)

    def _watch(self, pid: int) -> None:
        with contextlib.suppress(AttributeError, OSError):
            self._watched[pid] = os.pidfd_open(pid)
            asyncio.get_running_loop().add_reader(self._watched[pid], self._window_ended, pid)

    def _window_ended(self, pid: int) -> None:
        self._unwatch(pid)
        if self.session is not None and not self.session.closed:
            asyncio.get_running_loop().call_later(WINDOW_SECONDS, self.session.reported)

    def _unwatch(self, pid: int) -> None:
        fd = self._watched.pop(pid)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)

    def stop_watching(self) -> None:
        """Watches no window any more."""
        for pid in tuple(self._watched):
            self._unwatch(pid)

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
                    mode=mode or here.moved[0] or starting_mode(here) or DEFAULT_MODE,
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
            here.opened.session.hooked = resume is not None  # a hook had started what was taken over
            if here.moved[1] == "busy":
                here.opened.session.began_turn()
            stack.callback(here.forget_conversation)
            if conversation:
                belongings.write_talk(roster.sessions, client.name, conversation, here.opened.session.id)
            here.opened.session.called(here.native_name())
        finally:
            _given_up(claim)
        await stack.enter_async_context(_ringing(here, serving=not detached))
        yield here


def starting_mode(here: Present) -> str:
    """The mode that the client started in, as its command line and its settings say; empty: not known (09.12)."""
    command = processes.command_of(here.process[0])
    return here.client.mode_in(command) or here.client.starts_in(command, here.environ, here.cwd)


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
    if not detached and beside(here.process[0]) and await _let_go(here, path):
        here.token = ""
        deadline = asyncio.get_running_loop().time() + HANDOVER_SECONDS
        while roster.lives(found) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        return found
    here.control_path = path
    await _asked(path, here.token, ["attend", here.client.name, *_called(here)])
    return None


def _called(here: Present) -> list[str]:
    """The client's process, and its conversation where that is known, as options of `attend`."""
    pid, start = here.process
    known = ["--conversation", here.conversation] if here.conversation else []
    return ["--client-pid", str(pid), "--client-start", start, *known]


async def attend(control: Control, call: Call) -> None:
    """Answers `attend CLIENT`, asked by what attaches: a session around a command learns which client that is (09.1).

    Its doors are rung from now on, and it is listed as what it is. Only a process of that client may say so.
    """
    session = control.session
    process = (call.args.client_pid or 0, call.args.client_start or "")
    if process not in call.evidence.ancestry:
        return call.refused(contract.refusal("not_your_session"))
    if (
        session.attendant is None and session.inside is None
    ):  # a program that hosts agents has a loop of its own
        client = load(call.args.client)
        environ = borrowed(os.environ, process[0])
        state, _ = places.needed_state_folder(environ)
        here = Present(
            client, process, environ, session.record.cwd, call.args.conversation or "", Roster(state)
        )
        here.around = session
        session.attendant = here
        session.record = replace(
            session.record, entrypoint=client.name, confirms=client.confirms, wakes=client.wakes
        )
        session.directory.publish(session.record)
        if session.standing.mode == DEFAULT_MODE and (mode := starting_mode(here)):
            session.set_mode(mode, by="child")
        session.called(here.native_name())
        control.keep(_until_left(here))
    return call.done()


async def _until_left(here: Present) -> None:
    """Rings the client's doors until its process has ended."""
    async with _ringing(here, serving=True):
        await until_gone(*here.process)


async def _let_go(here: Present, path: str) -> bool:
    """Asks a detached presence to let go of its session; False where the session is another program's.

    What hooks had reported to it goes on to count (09.12).
    """
    try:
        document = json.loads(await _asked(path, here.token, ["move", "--json"]))
        here.moved = (document["mode"], document["turn"])
    except (ValueError, KeyError, TypeError):
        return False
    return True


async def _asked(path: str, token: str, argv: list[str]) -> bytes:
    """What a session answers to a command; nothing where it does not answer."""

    def asked() -> bytes:
        try:
            return ask.answer_of(path, token, argv)
        except (ask.Unanswered, OSError):
            return b""

    return await asyncio.get_running_loop().run_in_executor(None, asked)


@contextlib.asynccontextmanager
async def _ringing(here: Present, *, serving: bool) -> AsyncGenerator[None]:
    """Rings the client's doors while the block runs (09.1)."""
    from postroom.doors.ringing import Ringer

    ringer = Ringer(here, serving=serving, looked=here.look)
    ringing = asyncio.get_running_loop().create_task(ringer.run())
    try:
        yield
    finally:
        ringing.cancel()
        await asyncio.gather(ringing, return_exceptions=True)
        here.stop_watching()


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
