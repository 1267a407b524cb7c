"""Where a client's session lives, as its MCP server sees it: in this process, or in another one (09.9, 11.1).

`Here` calls the tools; `Elsewhere` asks the process that holds the session, over its control socket, with the verb `tool`.
Both give an `Answered`, whose `settle` is to be told once whether the whole result was written: only then do the messages
that it carries count as read. In the other process they are leased for as long as the connection lives.

`guest_of` says whether a process is an agent, or an observer, inside such a session: by the token in its environment, which
the session's process is asked about (06.14).

How it fails: a process that does not answer is an answer too, `no_session`, or `unknown` where it had taken a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from postroom import ask, tools
from postroom.core import contract
from postroom.core.message import Refusal
from postroom.door import MAX_REQUEST
from postroom.errors import NoSession, PostroomError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from socket import socket

    from postroom.session import Session

__all__ = ["Answered", "Elsewhere", "Guest", "Here", "Place", "guest_of", "refused"]

CONFIRM_SECONDS = 5.0
"""How long the process of the session may take to hear that a result was written."""


class Answered:
    """What a call came to, and who is told whether it left.

    Attributes:
        text, document, failed: as in `tools.Answer`.
        settle: to be called once: whether the whole result was written.
        tasks: whether whoever asked has shared tasks now (07.23); None: it is not known.
    """

    def __init__(
        self,
        text: str,
        document: dict[str, Any] | None,
        failed: bool,
        settle: Callable[[bool], None] | None = None,
        tasks: bool | None = None,
    ) -> None:
        self.text = text
        self.document = document
        self.failed = failed
        self.settle = settle
        self.tasks = tasks


class Place(Protocol):
    """Where the session lives."""

    async def answer(
        self, tool: str, arguments: Mapping[str, object], *, msg_id: str | None, trace: str
    ) -> Answered:
        """Answers one call. Never raises for what a model wrote; cancelled, it holds nothing."""
        ...

    async def has_tasks(self) -> bool:
        """Whether whoever asks has shared tasks (07.23). It raises nothing."""
        ...

    async def close(self) -> None:
        """Waits until everything that was settled is settled there too."""
        ...


class Here:
    """The session lives in this process."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def answer(
        self, tool: str, arguments: Mapping[str, object], *, msg_id: str | None, trace: str
    ) -> Answered:
        """Answers one call; see `Place`."""
        session = self._session
        said = await tools.answer(session, tool, arguments, msg_id=msg_id, trace=trace)

        def settle(whole: bool) -> None:
            try:
                if whole:
                    session.confirm(said.lease)
                else:
                    session.release(said.lease)
            except PostroomError as error:  # it is handed out again, marked
                session.log(f"mcp: what was sent could not be written down: {error.code}")

        tasks = await self.has_tasks()
        return Answered(said.text, said.document, said.failed, settle if said.lease else None, tasks)

    async def has_tasks(self) -> bool:
        """Whether this session has shared tasks; see `Place`."""
        return tools.has_tasks(self._session, None)

    async def close(self) -> None:
        """Nothing is left to be told."""


class Elsewhere:
    """The session lives in another process: its control socket answers (05.26).

    Args:
        path, token: how that is reached.
    """

    def __init__(self, path: str, token: str) -> None:
        self._path = path
        self._token = token
        self._telling: set[asyncio.Task[None]] = set()

    async def answer(
        self, tool: str, arguments: Mapping[str, object], *, msg_id: str | None, trace: str
    ) -> Answered:
        """Answers one call; see `Place`."""
        asked = {"arguments": arguments, "msg_id": msg_id, "trace": trace}
        try:
            request = ask.compose(self._token, ["tool", tool], json.dumps(asked))
        except UnicodeError:
            return refused(contract.refusal("usage", problem="The name of the tool is no text"))
        if len(request) > MAX_REQUEST:
            return refused(contract.too_large(len(request)) or NOT_THERE)
        try:
            line = await asyncio.get_running_loop().run_in_executor(None, ask.dial, self._path)
        except (ask.Unanswered, OSError):
            return refused(NOT_THERE)
        line.setblocking(False)
        kept = False
        taken = False
        try:
            # That it took the call is said at once; a process that does not even say that hangs.
            async with asyncio.timeout(ask.ANSWER_SECONDS):
                # The C type beneath `socket.socket` has all that the loop uses of it.
                await asyncio.get_running_loop().sock_sendall(cast("socket", line), request)
                kind, out, err = await frame_of(line)
            taken = True
            while kind == "part":
                kind, out, err = await frame_of(line)
            answered = answered_of(out, err)
            if kind == "confirm":
                answered.settle = self._settling(line)
                kept = True
            return answered
        except TimeoutError:
            return refused(stuck(msg_id) if tool == "send_message" else NOT_THERE)
        except (EOFError, OSError):
            return refused(interrupted(msg_id) if taken and tool == "send_message" else NOT_THERE)
        finally:
            if not kept:
                line.close()

    async def has_tasks(self) -> bool:
        """Whether whoever asks has shared tasks; see `Place`. A process that does not answer has none."""
        with contextlib.suppress(ask.Unanswered, OSError, ValueError, KeyError, TypeError):
            loop = asyncio.get_running_loop()
            words = ["tool", tools.WHOAMI]
            said = await loop.run_in_executor(None, ask.answer_of, self._path, self._token, words)
            return json.loads(said)["tasks"] is True
        return False

    def _settling(self, line: Any) -> Callable[[bool], None]:
        def settle(whole: bool) -> None:
            if not whole:
                line.close()
                return
            task = asyncio.get_running_loop().create_task(self._confirm(line))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

        return settle

    async def _confirm(self, line: Any) -> None:
        """Says that the result was written, and waits until that was heard: a close before would take it back."""
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(CONFIRM_SECONDS):
                await asyncio.get_running_loop().sock_sendall(line, b"ok\n")
                await frame_of(line)
        line.close()

    async def close(self) -> None:
        """Waits until that process has heard what was written."""
        await asyncio.gather(*self._telling, return_exceptions=True)


class Guest(NamedTuple):
    """An agent or an observer inside a session that lives in another process.

    Attributes:
        kind: `agent` or `observer`.
        name: what it is called there.
        path, token: how that process is reached.
    """

    kind: str
    name: str
    path: str
    token: str

    def __repr__(self) -> str:
        return f"<Guest {self.name}, {self.kind}>"


def guest_of(environ: Mapping[str, str]) -> Guest | None:
    """Who this process is inside another's session, by the token in its environment; None: nobody, so it is a session.

    Args:
        environ: of this process, or of the client that started it.

    Raises NoSession where the token is such a one and nobody vouches for it: whoever was an agent is not made a session.
    """
    if not environ.get("POSTROOM_TOKEN", "").startswith(ask.INSIDE):
        return None
    found = ask.locate(None, {key.encode(): value.encode() for key, value in environ.items()})
    if found is not None:
        with contextlib.suppress(ask.Unanswered, OSError, ValueError, KeyError, TypeError):
            said = json.loads(ask.answer_of(*found, ["tool", tools.WHOAMI]))
            if said["kind"] in ("agent", "observer"):
                return Guest(said["kind"], str(said["name"]), *found)
    raise NoSession(
        "The token in the environment is that of an agent inside another program, and that program does not know it.",
        "Let that program start this agent again.",
    )


NOT_THERE = Refusal(
    code="no_session",
    message="The process that holds this session does not answer.",
    hint="Tell the user: start the MCP server again; `postroom doctor` says what is there.",
)


def interrupted(msg_id: str | None) -> Refusal:
    """What is known of a send whose session ended in between."""
    return Refusal(
        code="unknown",
        message="The session took the message and ended before it was known whether it left.",
        hint="Do not write it anew; `postroom log` shows what became of it.",
        msg_id=msg_id,
    )


def stuck(msg_id: str | None) -> Refusal:
    """What is known of a send where the session's process hangs: it may read the call once it goes on."""
    return Refusal(
        code="unknown",
        message="The process that holds this session does not answer; it may yet send the message.",
        hint="Do not write it anew. Tell the user: it hangs or was stopped, and `postroom log` shows what became of it.",
        msg_id=msg_id,
    )


def refused(refusal: Refusal) -> Answered:
    """A refusal that this process gives."""
    said = tools.refused(refusal)
    return Answered(said.text, said.document, said.failed)


async def frame_of(line: Any) -> tuple[str, bytes, bytes]:
    """One frame of an answer: its kind, its output, its errors. Raises EOFError, OSError."""
    loop = asyncio.get_running_loop()

    async def exactly(size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = await loop.sock_recv(line, size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    head = b""
    while not head.endswith(b"\n"):
        head += await exactly(1)
    kind, _, size, errors = head.split()
    out = await exactly(int(size))
    return kind.decode(), out, await exactly(int(errors))


def answered_of(out: bytes, err: bytes) -> Answered:
    """What `tools.answer_call` printed, or why it did not."""
    try:
        said = json.loads(out)
        return Answered(said["text"], said["document"], said["failed"], tasks=said.get("tasks"))
    except (ValueError, KeyError, TypeError):
        code, _, rest = err.decode(errors="replace").partition("\n")
        says = " ".join(rest.removeprefix("postroom: ").split()) or "The session did not answer the call."
        return refused(Refusal(code=code or "error", message=says))
