"""A model that does what it is told: the service that every client asks in these tests, on this machine alone.

It needs no file of answers. The conversation itself says what it does, in any text that is not the model's own:

    %%call SERVER/TOOL {"its": "arguments"}%%    call that tool of an MCP server
    %%call TOOL {"its": "arguments"}%%           call a tool of the client's own
    %%say TEXT%%                                 then say this, and end the turn ("done" otherwise)

The newest text that has directives rules. As many calls of tools as stand behind it, so many of its own are done.
Arguments may hold directives for somebody else: a message can tell the agent that reads it what to do. So a message
that reached no model does nothing, whichever way it came.

What a request said is kept, for a test to wait for and to assert on (`Model.asked`). A request that offers no tools
asks for something beside the conversation, such as a title: it gets a text, and no directive is obeyed.

By hand: `python -m tests.clients.model PORT` serves, and prints a line for each request.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from tests.clients.dialects import DIALECTS, Body, Call, Dialect, Item, Reply, Say, Step, Tool

__all__ = ["MODEL", "SECONDS", "Asked", "Decides", "Model", "call", "decide", "directives", "say", "serving"]

MODEL = "scripted"
"""What the clients take for the model's name."""

SECONDS = 60.0
"""The bound on a wait for a request: a loaded machine needs seconds; Codex looks at its queue every ten."""

OPENING = re.compile(r"%%(call|say)\s+")
TOOL = re.compile(r"(\S+?)\s*(?=\{|%%)")


def call(tool: str, **arguments: Any) -> str:
    """The directive that calls a tool: `SERVER/TOOL`, or one of the client's own."""
    return f"%%call {tool} {json.dumps(arguments)}%%"


def say(text: str) -> str:
    """The directive that ends a turn with a text."""
    return f"%%say {text}%%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request: what it told the model, and what the model did.

    Attributes:
        number: from 1, in the order of arrival.
        items: all that it was told, oldest first.
        tools: what it was offered.
        step: what it did.
    """

    number: int
    items: tuple[Item, ...]
    tools: tuple[Tool, ...]
    step: Step

    @property
    def told(self) -> str:
        """All that anybody but the model said."""
        return "\n".join(item.text for item in self.items if item.role not in ("assistant", "call"))

    def where(self, words: str) -> Item:
        """The first thing that it was told in which these words stand; fails where none does."""
        for item in self.items:
            if item.role not in ("assistant", "call") and words in item.text:
                return item
        raise AssertionError(f"request {self.number} was not told {words!r}:\n{self.told[-2000:]}")


def directives(text: str) -> list[tuple[str, Body] | str]:
    """The directives of a text in order: (tool, arguments) for a call, the text for what is said.

    What stands in the arguments of a call is not looked into. A call whose arguments are no JSON is none.
    """
    found: list[tuple[str, Body] | str] = []
    at = 0
    while opening := OPENING.search(text, at):
        at = opening.end()
        if opening[1] == "say":
            words, mark, _ = text[at:].partition("%%")
            if mark:
                found.append(words.strip())
                at += len(words) + 2
            continue
        if tool := TOOL.match(text, at):
            arguments, at = _arguments(text, tool.end())
            if arguments is not None:
                found.append((tool[1], arguments))
    return found


def _arguments(text: str, at: int) -> tuple[Body | None, int]:
    """The JSON object at a place, empty where none stands there; and where the directive ends."""
    arguments: Body = {}
    if text[at : at + 1] == "{":
        try:
            arguments, at = cast("tuple[Body, int]", json.JSONDecoder(strict=False).raw_decode(text, at))
        except ValueError:
            return None, at
    return (arguments, at + 2) if text[at : at + 2] == "%%" else (None, at)


def decide(items: Sequence[Item], tools: Sequence[Tool]) -> Step:
    """What the model does next."""
    told = [
        (place, directives(item.text))
        for place, item in enumerate(items)
        if item.role not in ("assistant", "call")
    ]
    ruling = next(((place, steps) for place, steps in reversed(told) if steps), None)
    if ruling is None or not tools:
        return Say(text="done")
    place, steps = ruling
    calls = [step for step in steps if isinstance(step, tuple)]
    done = sum(item.role == "call" for item in items[place + 1 :])
    if done < len(calls):
        name, arguments = calls[done]
        return Call(tool=offered(name, tools), arguments=arguments)
    said = [step for step in steps if isinstance(step, str)]
    return Say(text=said[-1] if said else "done")


def offered(name: str, tools: Sequence[Tool]) -> Tool:
    """A tool under the name that this client has for it.

    Args:
        name: `SERVER/TOOL`, or the plain name of a tool of the client's own.
        tools: those that the request offers. A client may keep tools back until they are asked for: such a one is
            called by its full name all the same.
    """
    server, slash, tool = name.partition("/")
    if not slash:
        return next((each for each in tools if each.name == name), Tool(name=name))
    full = re.compile(rf"(mcp_+)?{re.escape(server)}_+{re.escape(tool)}")
    for each in tools:
        if full.fullmatch(f"{each.space}__{each.name}" if each.space else each.name):
            return each
    return Tool(name=f"mcp__{server}__{tool}")


Decides = Callable[[Sequence[Item], Sequence[Tool]], Step]
"""What the model does next, from what a request says and which tools it offers."""


class Model:
    """A service that runs, and what it was asked so far.

    Args:
        port: where it listens, on this machine alone; 0 for any free one.
        decides: what it does next; by default what the directives say.
    """

    def __init__(self, port: int = 0, decides: Decides = decide) -> None:
        self._decides = decides
        self.asked: list[Asked] = []
        self._came = threading.Condition()
        self.on_asked: Callable[[Asked], None] = lambda asked: None
        model = self

        class Handler(_Handler):
            answer = staticmethod(model.answer)

        self.server = _Server(("127.0.0.1", port), Handler)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server.server_address[1])

    def answer(self, path: str, body: Body) -> Reply | None:
        """Answers one request and keeps it; None where nobody here knows the path."""
        for dialect in DIALECTS:
            if dialect.path().search(path):
                return self._answer(dialect, path, body)
        if path.endswith(("/count_tokens", ":countTokens")):
            return Reply(whole={"input_tokens": 9, "totalTokens": 9})
        if path.endswith("/models"):
            row = {"id": MODEL, "object": "model", "created": 1, "owned_by": "tests"}
            return Reply(whole={"object": "list", "data": [row], "models": []})
        return None

    def _answer(self, dialect: Dialect, path: str, body: Body) -> Reply:
        items, tools = dialect.read(body)
        step = self._decides(items, tools)
        with self._came:
            asked = Asked(number=len(self.asked) + 1, items=tuple(items), tools=tuple(tools), step=step)
            self.asked.append(asked)
            self._came.notify_all()
        self.on_asked(asked)
        return dialect.speak(step, body, path)

    def told(self, words: str, *, after: int = 0, seconds: float = SECONDS) -> Asked:
        """Waits for a request of the conversation that was told these words; fails after the bound.

        Args:
            words: they may stand anywhere but in what the model itself said.
            after: only requests with a higher number count.
            seconds: the bound.
        """
        return self.wait(
            lambda asked: asked.number > after and bool(asked.tools) and words in asked.told,
            seconds,
            f"it was never told {words!r}",
        )

    def said(self, words: str, *, seconds: float = SECONDS) -> Asked:
        """Waits for the request that the model answered with a text that has these words."""
        return self.wait(
            lambda asked: isinstance(asked.step, Say) and words in asked.step.text,
            seconds,
            f"it never said {words!r}",
        )

    def wait(self, holds: Callable[[Asked], bool], seconds: float, why: str) -> Asked:
        """Waits for the first request of which something holds."""
        end = time.monotonic() + seconds
        looked = 0
        with self._came:
            while True:
                for asked in self.asked[looked:]:
                    if holds(asked):
                        return asked
                looked = len(self.asked)
                left = end - time.monotonic()
                if left <= 0 or not self._came.wait(left):
                    last = self.asked[-1].told[-1500:] if self.asked else "it was not asked at all"
                    raise AssertionError(f"{why} in {looked} requests; the last one ended with:\n{last}")

    @property
    def count(self) -> int:
        """How many requests there were so far."""
        return len(self.asked)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up in the middle of an answer is no news; anything else is."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    answer: Callable[[str, Body], Reply | None]

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: what matters is kept."""

    def do_HEAD(self) -> None:
        self._whole({}, 200)

    def do_GET(self) -> None:
        self._reply({})

    def do_POST(self) -> None:
        self._reply(self._body())

    def _body(self) -> Body:
        length = self.headers.get("Content-Length")
        raw = self.rfile.read(int(length)) if length else b"".join(self._chunks())
        if self.headers.get("Content-Encoding") == "gzip":
            raw = gzip.decompress(raw)
        try:
            body: object = json.loads(raw)
        except ValueError:
            return {}
        return cast("Body", body) if isinstance(body, dict) else {}

    def _chunks(self) -> Generator[bytes]:
        while self.headers.get("Transfer-Encoding") == "chunked":
            size = int(self.rfile.readline().partition(b";")[0], 16)
            data = self.rfile.read(size)
            self.rfile.readline()
            if not size:
                return
            yield data

    def _reply(self, body: Body) -> None:
        reply = self.answer(self.path.partition("?")[0], body)
        if reply is None:
            self._whole({"error": {"type": "not_found", "message": "not here"}}, 404)
        elif reply.whole is not None:
            self._whole(reply.whole, 200)
        else:
            self._stream(reply)

    def _whole(self, document: Body, code: int) -> None:
        raw = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def _stream(self, reply: Reply) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in reply.events:
            name = f"event: {event['type']}\n" if reply.named else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        if reply.end:
            self.wfile.write(f"data: {reply.end}\n\n".encode())


@contextmanager
def serving(decides: Decides = decide) -> Generator[Model]:
    """A model that serves for as long as the block runs; see `Model`."""
    model = Model(decides=decides)
    thread = threading.Thread(target=model.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        model.server.shutdown()
        model.server.server_close()
        thread.join(SECONDS)


def main(port: int) -> None:
    """Serves on a port until it is interrupted, for whoever tries something by hand."""
    model = Model(port)
    model.on_asked = lambda asked: print(asked.number, asked.step, asked.items[-1].text[-200:], flush=True)
    model.server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
