"""`postroom mcp`: the tools over the Model Context Protocol, for the client that starts this process (09.9, 09.10).

While it runs it is the client's presence: it opens the session, or attaches to the one that is there (`presence`), and
serves the tools on its standard streams. The protocol is the official SDK's, the streams are `stdio`, what a call comes to is
`tools`, here or in the process that holds the session (`lodging`).

A MESSAGE that a result carries counts as read once the whole result was written; it waits again, marked, where the client
had gone, or had taken its request back (11.1).

AGAIN. A client that lost a result may make its call again. What it sends for one use of a tool has one id, made from
the client's own id of that use, or else from the request's id on this connection and from the arguments, so its effect is
one (11.5). A request with another id is another message: a model may say the same thing twice.

AN AGENT inside a program's session, or an observer, is known by the token in its environment: then this is no session. Its
tools are asked of that program's process, and it speaks as itself (06.14).

WHO the session is comes from the client's process, its environment and what it puts beside a call (`_meta`), never from
a tool's arguments.

THE TASKS of a team are offered while there is one that has a member. A client that was shown another list is told so, by
`tools/list_changed`: with a call, and where the session lives here, within a second.

A TRACE that a call belongs to (`traceparent`, `tracestate`) is written into the journal beside the message that the call
sent, and goes back in the result's `_meta`; what the server asks the client carries it by the SDK. Peers do not see it.

It ends when the client closes its end, at a signal, and when standard output breaks.

Weak: where the session lives in another process, nobody is asked inside the client about a hold: an answer over that
process's socket could come from any program that the agent starts. Nor does a server ask that is in a session of
processes of its own, as a shell of the agent is: some clients that no table here knows start their servers so. A client
that begins without a handshake cannot be asked either, nor told that the list of tools has changed; and where the session
lives in another process, that is noticed with the next call.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import sys
import uuid
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

import anyio
from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server

from postroom import __version__, clients, present, tools
from postroom.clients.asking import SCHEMA, AskingInside, Replied
from postroom.clients.lodging import Elsewhere, Guest, Here, guest_of, refused
from postroom.clients.stdio import Incoming, Outgoing, claimed
from postroom.core import contract
from postroom.core.message import Refusal
from postroom.core.report import OBSERVER_REPORT
from postroom.errors import NoSession

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping

    from mcp.server.context import ServerRequestContext
    from mcp.server.session import ServerSession

    from postroom.arguments import Values
    from postroom.client import Client
    from postroom.clients.lodging import Place
    from postroom.presence import Present
    from postroom.session import Session

    Context = ServerRequestContext[Any, Any]

__all__ = ["Serving", "definitions", "run", "server_of"]

CHANGES = NotificationOptions(tools_changed=True)
"""What the server says that it tells of by itself."""

PROGRESS_SECONDS = 10.0
"""How often a call that waits says so: clients that give up on a silent call wait longer than this."""

USES = uuid.UUID("7b0f3f53-6d0d-4c1e-9d9e-3f4d6a1f2c11")
"""The namespace of the ids of messages that a client's calls send."""

TOOL_USE = "claudecode/toolUseId"
"""The key in `_meta` with a client's own id of one use of a tool."""

CONVERSATION: Mapping[str, tuple[str, ...]] = {"codex": ("threadId", "sessionId")}
"""Client → the keys in `_meta` that may say which conversation a call belongs to, the best first."""

IN_TERMINALS = frozenset({"claude-code", "codex", "gemini-cli", "qwen-code", "opencode"})
"""Clients that people use in a terminal: one without a terminal has nobody in front of it, whatever it says it can ask.
Of the others that cannot be seen."""

TRACE = ("traceparent", "tracestate")
"""The keys of the protocol's trace context."""

MAX_TRACE = 512
"""Characters of each that are carried: what the standard asks everybody to take."""

ANNOTATIONS = {
    "send_message": types.ToolAnnotations(
        title="Send a message", destructive_hint=False, open_world_hint=False
    ),
    "list_agents": types.ToolAnnotations(
        title="List sessions and agents", read_only_hint=True, open_world_hint=False
    ),
    # It hands a message out again unless its result was sent whole.
    "read_messages": types.ToolAnnotations(title="Read messages", read_only_hint=True, open_world_hint=False),
    "report_observation": types.ToolAnnotations(
        title="Report an observation", destructive_hint=False, open_world_hint=False
    ),
    "task_create": types.ToolAnnotations(destructive_hint=False, open_world_hint=False),
    "task_update": types.ToolAnnotations(open_world_hint=False),  # it may delete one
    "task_list": types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    "task_get": types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    "task_claim": types.ToolAnnotations(destructive_hint=False, open_world_hint=False),
}
"""What clients go by when they decide whether a person is asked about a call (09.9)."""

LARGE: dict[str, Any] = {"anthropic/maxResultSizeChars": 500_000}
"""Says that a result may be long, to a client that asks: one message may be."""

LOOK_SECONDS = 1.0
"""How often a server looks whether its session's team has a member yet, or still; without a team it does not look."""

GREETING_SECONDS = 0.25
"""How long the session waits for the client's first word to be answered: what it is made of takes a while to load, and
the handshake needs nothing of it."""

MOST_SAID = 100
"""Lines on standard error at most: a client may keep them."""

OBSERVING = (
    "You observe another agent. `report_observation` puts what you saw before it, and is all that you can do here: you "
    "cannot write to anybody else, and nobody can answer you. A report is information: it approves nothing, changes "
    "nothing and lends no permission."
)
"""What the server says of itself to an observer (06.14)."""

WHOSE = ("POSTROOM_TOKEN", "POSTROOM_SESSION", "POSTROOM_SOCKET")
"""Variables that say whose a process is inside a session. Some clients start their servers without them."""


def definitions(kind: str = "", *, tasks: bool = False) -> types.ListToolsResult:
    """The tools as a client lists them (09.9): three, with `tasks` those of a team too; or for an `observer` its own."""
    if kind == "observer":
        own: tuple[Mapping[str, object], ...] = (OBSERVER_REPORT,)
    else:
        own = (contract.SEND_MESSAGE, contract.LIST_AGENTS, contract.READ_MESSAGES)
        if tasks:
            from postroom.core.forms import SEND_MESSAGE_IN_A_TEAM
            from postroom.task_tools import DEFINITIONS  # loaded by those who have a team

            own = (SEND_MESSAGE_IN_A_TEAM, *own[1:], *DEFINITIONS)
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name=contract.TOOL_NAMES[str(tool["name"])],
                description=str(tool["description"]),
                input_schema=cast("dict[str, Any]", tool["input_schema"]),
                annotations=ANNOTATIONS[contract.TOOL_NAMES[str(tool["name"])]],
                _meta=LARGE if tool is contract.READ_MESSAGES else None,
            )
            for tool in own
        ]
    )


# ── the server ───────────────────────────────────────────────────────────────────────────────────


class Serving:
    """Answers one client. Calls wait until it is said where the session lives (`lodge`); the handshake does not.

    Args:
        outgoing: knows what has left; None: another transport, which does not say, so a result counts as sent.
        kind: `agent` or `observer` inside another process's session; empty: a session; None: `is_for` says it later.
    """

    def __init__(self, outgoing: Outgoing | None = None, kind: str | None = "") -> None:
        self.progress_seconds = PROGRESS_SECONDS
        self.on_greeted: Callable[[], None] = lambda: None
        self._lodged: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        self._kind: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._outgoing = outgoing
        self._here: Present | None = None
        self._connection = uuid.uuid4().hex
        self._waiting: set[anyio.CancelScope] = set()
        self._asking: asyncio.Task[None] | None = None
        self._greeted = False
        self._listed = False  # with the tasks of a team
        self._client: ServerSession | None = None
        self._looking: asyncio.Task[None] | None = None
        if kind is not None:
            self.is_for(kind)

    def is_for(self, kind: str) -> None:
        """Says whose the tools are: `agent`, `observer`, or empty for a session."""
        self._kind.set_result(kind)

    def lodge(self, place: Place, here: Present | None = None) -> None:
        """Says where the session lives.

        Args:
            place: there.
            here: the presence, which learns what the client says beside its calls; None: nobody does.
        """
        self._here = here
        self._lodged.set_result(place)
        if here is not None and here.session is not None:
            here.session.on_team(self._look)
            self._look()

    async def list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Answers `tools/list`. It waits for no session: one that is not there yet has no team."""
        del context, params
        kind = await asyncio.shield(self._kind)
        self._listed = self._lodged.done() and await self._lodged.result().has_tasks()
        return definitions(kind, tasks=self._listed)

    def _look(self) -> None:
        """The session takes a place in a team, or gives one up: from now on it is looked whether it has a member."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        """Tells the client when there are other tools, as long as the session has a place in a team."""
        session = None if self._here is None else self._here.session
        while session is not None and not session.closed:
            await self._compare(tools.has_tasks(session, None))
            if not session.seated:
                break
            await asyncio.sleep(LOOK_SECONDS)

    async def _compare(self, tasks: bool | None) -> None:
        """Tells the client, once, that there are other tools than it was shown."""
        if tasks is None or tasks == self._listed or self._client is None:
            return
        self._listed = tasks
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._client.send_tool_list_changed()

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Answers `tools/call`. A tool that there is not is an error of the protocol, everything else a result."""
        if params.name not in tools.TOOLS:
            raise types_error(types.INVALID_PARAMS, f"Unknown tool: {contract.legible(params.name)}")
        meta = meta_of(context)
        arguments = params.arguments or {}
        trace = {key: value for key in TRACE if (value := text_of(meta.get(key))) and len(value) <= MAX_TRACE}
        with self._held_up(params.name, arguments) as scope:
            async with self._telling(context, meta, arguments):
                place = await asyncio.shield(self._lodged)
                self._greet()
                self._learn(meta)
                answered = await place.answer(
                    params.name,
                    arguments,
                    msg_id=self._msg_id(context, params.name, arguments, meta),
                    trace=" ".join(trace.values()),
                )
        if scope.cancelled_caught:
            answered = refused(CLOSING)
        await self._compare(answered.tasks)
        if answered.settle is not None:
            if self._outgoing is not None and context.request_id is not None:
                self._outgoing.carries(context.request_id, answered.settle)
            else:
                answered.settle(True)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=sayable(answered.text))],
            structured_content=answered.document,
            is_error=answered.failed,
            _meta=cast("dict[str, Any]", trace) or None,
        )

    async def initialized(self, context: Context, params: types.NotificationParams) -> None:
        """The handshake is over: where the client can ask its person, held messages are asked about from now on."""
        del params
        await asyncio.shield(self._lodged)
        self._client = context.session
        self._look()
        session = self._attended()
        if session is not None and self._asking is None and takes_forms(context.session.client_capabilities):

            async def question(text: str) -> Replied:
                result = await context.session.elicit_form(text, SCHEMA)
                filled = result.content or {} if result.action == "accept" else {}
                return Replied(decision=text_of(filled.get("decision")), note=text_of(filled.get("note")))

            session.askable = True
            self._asking = asyncio.get_running_loop().create_task(AskingInside(session, question).run())
        self._greet()

    def _attended(self) -> Session | None:
        """The session of this process, where somebody may sit in front of its client."""
        from postroom.lineage import beside

        session = None if self._here is None else self._here.session
        if session is None or self._here is None or not beside(self._here.process[0]):
            return None
        somebody = session.record.kind == "interactive" or self._here.client.name not in IN_TERMINALS
        return session if somebody else None

    def client_closed(self) -> None:
        """The client has closed its end: nobody waits for messages any more."""
        for scope in self._waiting:
            scope.cancel()

    async def close(self) -> None:
        """Asks nobody any more, and tells nothing."""
        for task in (self._asking, self._looking):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _greet(self) -> None:
        if not self._greeted:
            self._greeted = True
            self.on_greeted()

    def _learn(self, meta: Mapping[str, object]) -> None:
        """Tells the presence which conversation this is, where the client says so beside its call.

        A call also shows that there is a turn: with it a door may have come that was not there.
        """
        if self._here is not None:
            session = self._here.session
            if session is not None and not session.record.wakes:
                session.reported()
            keys = CONVERSATION.get(self._here.client.name, ())
            conversation = next(filter(None, (text_of(meta.get(key)) for key in keys)), "")
            if conversation and conversation != self._here.conversation:
                self._here.learned(conversation)

    def _msg_id(
        self, context: Context, tool: str, arguments: Mapping[str, object], meta: Mapping[str, object]
    ) -> str | None:
        """The id of the message that a call sends, the same when the call is made again (11.5)."""
        if tool != "send_message":
            return None
        given = {key: value for key, value in arguments.items() if value is not None}
        body = sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()
        use = text_of(meta.get(TOOL_USE))
        call = use or f"{self._connection} {context.request_id!r} {meta.get('progressToken')!r}"
        return str(uuid.uuid5(USES, f"{call} {body}"))

    @contextlib.contextmanager
    def _held_up(self, tool: str, arguments: Mapping[str, object]) -> Generator[anyio.CancelScope]:
        """A call that may wait for messages ends once the client has closed its end; any other goes on."""
        with anyio.CancelScope() as scope:
            if tool == "read_messages" and arguments.get("wait"):
                self._waiting.add(scope)
            try:
                yield scope
            finally:
                self._waiting.discard(scope)

    @contextlib.asynccontextmanager
    async def _telling(
        self, context: Context, meta: Mapping[str, object], arguments: Mapping[str, object]
    ) -> AsyncGenerator[None]:
        """Says every so often that a call still waits, to a client that wants to know."""
        seconds = tools.number_of(arguments.get("wait"))
        if not seconds or meta.get("progressToken") is None:
            yield
            return
        total = min(seconds, contract.MAX_READ_WAIT)

        async def tell() -> None:
            loop = asyncio.get_running_loop()
            began = loop.time()
            while (done := loop.time() - began) < total:
                await context.session.report_progress(round(done, 1), total, "waiting for messages")
                await asyncio.sleep(self.progress_seconds)

        telling = asyncio.get_running_loop().create_task(tell())
        try:
            yield
        finally:
            telling.cancel()


CLOSING = Refusal(code="session_closed", message="The client has closed its end.")


def types_error(code: int, message: str) -> Exception:
    """An error of the protocol."""
    from mcp.shared.exceptions import MCPError

    return MCPError(code=code, message=message)


def meta_of(context: Context) -> Mapping[str, object]:
    """What a client put beside its call, as it came."""
    meta = (context.params or {}).get("_meta")
    return cast("dict[str, object]", meta) if isinstance(meta, dict) else {}


def text_of(value: object) -> str:
    """A text, or nothing."""
    return value if isinstance(value, str) else ""


def sayable(text: str) -> str:
    """A text that can be written as UTF-8: half a character that a neighbour sent is shown as an escape."""
    return text.encode(errors="backslashreplace").decode()


def takes_forms(capabilities: types.ClientCapabilities | None) -> bool:
    """Whether a client can put a form before its person: it says so, or says nothing of what it can put there."""
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def server_of(serving: Serving, instructions: str = contract.INSTRUCTIONS) -> Server[Any]:
    """The SDK's server with our tools."""
    server: Server[Any] = Server(
        "postroom",
        version=__version__,
        title="Postroom",
        instructions=instructions,
        on_list_tools=serving.list_tools,
        on_call_tool=serving.call_tool,
    )
    server.add_notification_handler(
        "notifications/initialized", types.NotificationParams, serving.initialized
    )
    return server


# ── the process ──────────────────────────────────────────────────────────────────────────────────


class Said(logging.Handler):
    """What the SDK logs: lines in the session's log, without anything that a message said."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line: what was wrong, and the kind of error."""
        kind = record.exc_info[0] if record.exc_info else None
        self._log(f"{record.name}: {record.msg}" + (f" ({kind.__name__})" if kind else ""))


def to_stderr() -> Callable[[str], None]:
    """Writes lines to standard error, so many at most."""
    left = MOST_SAID

    def say(line: str) -> None:
        nonlocal left
        if left > 0:
            left -= 1
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"postroom: {present.one_line(line)}\n")
                sys.stderr.flush()

    return say


def run(args: Values) -> int:
    """Serves until the client closes its end, and returns the exit code: 0, or 128 + n for a signal."""
    gc.enable()
    return asyncio.run(serve(args))


async def serve(args: Values) -> int:
    """Runs until the client closes its end, or a signal comes. Raises what `presence.present` raises."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[int] = loop.create_future()
    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(one, lambda number=one: told.done() or told.set_result(128 + number))
    serving = loop.create_task(attend(args))
    await asyncio.wait({serving, told}, return_when=asyncio.FIRST_COMPLETED)
    if told.done():
        serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    return told.result() if told.done() else 0


async def attend(args: Values) -> None:
    """Serves the tools, opens the session or attaches to it, and ends both when the client closes its end."""
    loop = asyncio.get_running_loop()
    reading, writing = claimed()
    say = to_stderr()
    guest = await loop.run_in_executor(None, guest_of, os.environ) if WHOSE[0] in os.environ else None
    outgoing = Outgoing(writing)
    serving = Serving(outgoing, None if guest is None else guest.kind)
    incoming = Incoming(reading, outgoing, serving.client_closed)
    observes = guest is not None and guest.kind == "observer"
    server = server_of(serving, OBSERVING if observes else contract.INSTRUCTIONS)
    async with contextlib.AsyncExitStack() as stack:
        running = loop.create_task(
            server.run(incoming, outgoing, server.create_initialization_options(CHANGES))
        )
        stack.push_async_callback(ended, running)
        await outgoing.begun(GREETING_SECONDS)
        here: Present | None = None
        if guest is None:
            guest = await loop.run_in_executor(None, guest_of, kept_back(args))
            serving.is_for("" if guest is None else guest.kind)
        if guest is None:
            here = await stack.enter_async_context(present_of(args))
        session = None if here is None else here.session
        place: Place = Here(session) if session is not None else elsewhere(guest or here)
        handler = Said(say if session is None else session.log)
        logging.getLogger().addHandler(handler)
        stack.callback(logging.getLogger().removeHandler, handler)
        stack.push_async_callback(place.close)
        stack.push_async_callback(outgoing.aclose)
        stack.push_async_callback(serving.close)
        stack.push_async_callback(ended, running)
        serving.on_greeted = lambda: greet(session, guest, say)
        serving.lodge(place, here)
        await running


def elsewhere(there: Guest | Present | None) -> Elsewhere:
    """The process in which the session lives."""
    if isinstance(there, Guest):
        return Elsewhere(there.path, there.token)
    assert there is not None, "it is an agent of a session, or has one"
    return Elsewhere(there.control_path, there.token)


def kept_back(args: Values) -> dict[str, str]:
    """What the client's process was started with and has not handed on, of what says whose it is inside a session."""
    from postroom.lineage import BORROWED
    from postroom.state import processes

    found = None if any(name in os.environ for name in WHOSE) else client_of(args)
    if found is None:
        return {}
    given = {name: value for name in BORROWED if (value := os.environ.get(name)) is not None}
    return {**processes.environment_of(found[1][0], (*WHOSE, *BORROWED)), **given}


def client_of(args: Values) -> tuple[Client, tuple[int, str]] | None:
    """The client that started this process, and the (pid, start) of its process; None where that is not seen."""
    from postroom.lineage import client_process, recognised
    from postroom.state import processes

    line = processes.ancestry(os.getpid())
    client = clients.load(args.client) if args.client else recognised(os.environ, line)
    process = client_process(client, os.environ, line)
    return None if process is None else (client, process)


def present_of(args: Values) -> contextlib.AbstractAsyncContextManager[Present]:
    """The presence of the client that started this process. Raises NoSession, BadUsage."""
    from postroom.presence import present

    found = client_of(args)
    if found is None:
        raise NoSession(
            "Nothing is known of the process that started this.", "An MCP client starts it, by itself."
        )
    client, process = found
    return present(
        client, process, environ=os.environ, name=args.name, mode=args.mode, settings=args.settings
    )


async def ended(running: asyncio.Task[None]) -> None:
    """Ends the server, if it has not ended."""
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def greet(session: Session | None, guest: Guest | None, say: Callable[[str], None]) -> None:
    """Says once, for the person who looks into the client's log, who this session is and what it lacks (10.8)."""
    if guest is not None:
        return say(f"this is the {guest.kind} {guest.name} inside another program's session")
    if session is None:
        return say("attached to the session that is there")
    status = session.status()
    say(f"this session is {status.name} [{status.ref}], id {status.session_id}")
    for problem in status.problems:
        say(problem)
    return None
