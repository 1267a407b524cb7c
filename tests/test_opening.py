"""How a session is put together: in which order, and which token is worth what."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from postroom.arguments import Values
from postroom.console.commands import demo
from postroom.core import wire
from postroom.opening import opened_session
from postroom.session import Session
from postroom.transport import Channel
from postroom.transports import uds
from tests.desk import SECONDS


@pytest.mark.rule("05.11", "05.20")
def test_the_key_is_there_before_the_inbox_listens_and_the_record_after(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody connects before it can be judged; whoever is listed can be reached."""
    seen: list[tuple[bool, bool]] = []
    start = uds.Listener.start

    def noting(self: uds.Listener) -> None:
        if not self.path.endswith(".ctl.sock"):
            sessions = home / "state/sessions"
            seen.append((any(sessions.glob("*.key")), any(sessions.glob("*.json"))))
        start(self)

    monkeypatch.setattr(uds.Listener, "start", noting)

    async def work() -> None:
        async with opened_session("bob"):
            pass

    asyncio.run(work())
    assert seen == [(True, False)]


@pytest.mark.rule("05.20")
def test_each_token_is_evidence_of_its_own_kind(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the session's own children show is the child's token, what lies in the key file an ordinary peer's."""
    kinds: list[str | None] = []
    came: asyncio.Event

    def noting(self: Session, frame: wire.UserFrame, channel: Channel) -> None:
        kinds.append(channel.evidence.token)
        came.set()

    monkeypatch.setattr(Session, "arrive", noting)

    async def work() -> None:
        nonlocal came
        async with opened_session("bob") as opened:
            assert opened.socket_path is not None
            [key] = (home / "state/sessions").glob("*.key")
            for token in (opened.environment["POSTROOM_TOKEN"], json.loads(key.read_text())["peerToken"]):
                came = asyncio.Event()
                with socket.socket(socket.AF_UNIX) as line:
                    line.connect(opened.socket_path)
                    line.sendall(wire.encode_auth(token) + wire.encode_user(msg_id="m", content="hello"))
                    await asyncio.wait_for(came.wait(), SECONDS)

    asyncio.run(work())
    assert kinds == ["child", "peer"]


@pytest.mark.rule("10.20")
def test_the_demo_ends_non_zero_when_something_did_not_arrive(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever did not hold is said, and the exit code tells."""

    def story(stage: object, opened: list[str]) -> None:
        del stage, opened
        demo.check("the message is queued", False)

    monkeypatch.setattr(demo, "story", story)
    assert demo.run(Values(), ()) == 1
    assert "the message is queued" in capsys.readouterr().out
