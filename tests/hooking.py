"""What the tests of hooks share: a client's session at a served desk, and hooks spoken by hand over its socket."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from postroom.client import Client
from postroom.clients import load
from tests.room import Line, frame_of, states
from tests.test_control import Client as Connection
from tests.test_control import Desk, served
from tests.transports.ends import run

RECORDED = Path(__file__).parent / "recorded" / "hooks"

TALK = "00000000-0000-4000-8000-000000000001"
"""The client's own id of its conversation, in what was recorded and here."""


def recorded(client: str, event: str) -> dict[str, Any]:
    """What a real client said to its hook."""
    return json.loads((RECORDED / client / f"{event}.json").read_text())["input"]


class Hooked:
    """A session whose client runs hooks."""

    def __init__(self, desk: Desk, client: Client) -> None:
        self.desk = desk
        self.session = desk.session
        self.client = client
        self.log: list[str] = []
        desk.session.write_log = self.log.append
        self._count = 0

    def mail(self, text: str, *, sender: str | None = None, **more: Any) -> str:
        """A message comes; returns its id."""
        self._count += 1
        msg_id = f"mail-{self._count}"
        self.session.arrive(frame_of(text, msg_id, name=sender, **more), Line())
        return msg_id

    def said(self, event: str, **fields: Any) -> str:
        """What the client says for an event."""
        return json.dumps({"session_id": TALK, "hook_event_name": event, **fields})

    async def begin(self, event: str, stdin: str | int | None = None, **fields: Any) -> Connection:
        """A hook asks; returns its connection once the request was taken."""
        connection = await self.desk.client()
        said = self.said(event, **fields) if stdin is None else stdin
        await connection.ask("hook", self.client.name, event, stdin=said)
        await connection.taken()
        return connection

    async def hook(self, event: str, stdin: str | int | None = None, **fields: Any) -> str:
        """A hook to its end, which prints and confirms what it is given; returns what it printed."""
        said = self.said(event, **fields) if stdin is None else stdin
        code, out, err = await self.desk.answer("hook", self.client.name, event, stdin=said)
        assert (code, err) == (0, ""), (code, out, err)
        return out

    async def given(self, event: str, **fields: Any) -> str:
        """The text that a hook hands to the model; empty for none. Anything else in its output fails."""
        out = await self.hook(event, **fields)
        return carried(self.client, event, out) if out else ""

    def states(self, msg_id: str) -> list[str]:
        """The states that a message has been in."""
        return states(self.session, msg_id)


def carried(client: Client, event: str, out: str) -> str:
    """The text in what a hook of this event prints, which must be exactly what the client takes."""
    document: Mapping[str, Any] = json.loads(out)
    match document:
        case {"hookSpecificOutput": {"hookEventName": name, "additionalContext": str(text)}} if name == event:
            pass
        case {"decision": "block" | "deny", "reason": str(text)}:
            pass
        case {"additional_context": str(text)} | {"followup_message": str(text)}:
            pass
        case _:
            raise AssertionError(out)
    assert text, "nothing is never rendered"
    render = client.events[event].render
    assert render is not None
    assert out == render(text)
    return text


def hooked(
    folder: Path, work: Callable[[Hooked], Awaitable[None]], client: str = "claude-code", **options: Any
) -> None:
    """Runs a test's coroutine with a session whose client is this."""

    async def whole() -> None:
        async with served(folder, **options) as desk:
            await work(Hooked(desk, load(client)))

    run(whole())
