"""The door of opencode: its HTTP server, found by the process that listens (09.4).

What the real one of version 1.18.33 answered is under `recorded/opencode`; the party answers that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from typing import Any

import pytest

from postroom.core.envelope import PREFACE
from postroom.doors import Rang, opencode_http
from postroom.doors.opencode_http import NO_TURN, Answer, HttpDoor, listening, parse_table
from tests.doorsteps import PARTIES, Here, here_of, recorded

TEXT = f'{PREFACE}\n\n<cross-session-message from="alice" msg-id="m-1">\nhällo\n</cross-session-message>'
SESSION: dict[str, Any] = next(
    each["answer"]
    for each in recorded("opencode/http")["exchanges"]
    if each["ask"] == "POST /session" and each["status"] == 200
)
FOLDER: str = SESSION["directory"]


class Server:
    """A party that runs; see `parties/opencode_server.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        ready = self.line()
        self.pid: int = ready["pid"]
        self.port: int = ready["port"]

    def line(self) -> dict[str, Any]:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def here(self, **more: Any) -> Here:
        """This server as the client of a session."""
        return here_of("opencode", self.pid, **{"cwd": FOLDER, "environ": {}, **more})


@contextlib.contextmanager
def server(password: str = "", **like: Any) -> Generator[Server]:
    """An opencode that serves, while the block runs."""
    environ = {**os.environ, "OPENCODE_SERVER_PASSWORD": password} if password else dict(os.environ)
    party = [sys.executable, str(PARTIES / "opencode_server.py"), json.dumps(like)]
    with subprocess.Popen(
        party, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    ) as process:
        try:
            yield Server(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)


def ring(here: Here, text: str = TEXT) -> Rang:
    """Rings the door once."""
    return asyncio.run(HttpDoor(here).ring(text, ("m-1",), None))


def why_not(here: Here) -> str:
    """Whether the door is there."""
    return asyncio.run(HttpDoor(here).ready())


@pytest.mark.rule("09.4")
def test_the_session_of_the_folder_gets_the_text_as_a_prompt() -> None:
    with server() as opencode:
        assert listening(opencode.pid) == [("127.0.0.1", opencode.port)]
        assert why_not(opencode.here()) == ""
        assert ring(opencode.here()) == Rang("accepted")
        heard = opencode.line()
    real = next(
        each for each in recorded("opencode/http")["exchanges"] if each["ask"].endswith("/prompt_async")
    )
    assert heard["session"] == SESSION["id"]
    assert heard["way"] == "prompt_async"
    assert heard["body"] == {"parts": [{"type": "text", "text": TEXT}]}
    assert heard["body"].keys() == real["body"].keys()


@pytest.mark.rule("09.4", "11.29")
def test_its_password_is_read_from_the_process_and_shown_to_it_alone() -> None:
    with server("secret-word") as opencode:
        assert why_not(opencode.here()) == ""
        assert ring(opencode.here()) == Rang("accepted")
        without = opencode.here(variables={})
        assert why_not(without) == "it wants a password that it was not started with"
        assert ring(without).outcome == "failed"
        assert "secret-word" not in repr(HttpDoor(opencode.here()).__dict__)


@pytest.mark.rule("09.4")
@pytest.mark.parametrize("careless", [False, True])
def test_of_several_sessions_the_newest_of_this_folder_is_meant_that_is_no_subagents(careless: bool) -> None:
    later = time.time() * 1000 + 60_000
    sessions = [
        {"id": "ses_old", "time": {"updated": later + 1}},
        {"id": "ses_new", "time": {"updated": later + 3}},
        {"id": "ses_child", "time": {"updated": later + 9}, "parentID": "ses_new"},
        {"id": "ses_other", "time": {"updated": later + 8}, "directory": "/elsewhere"},
        {"id": "ses_timeless", "time": None},
    ]
    with server(sessions=sessions, careless=careless) as opencode:
        assert ring(opencode.here()) == Rang("accepted")
        assert opencode.line()["session"] == "ses_new"
        assert ring(opencode.here(conversation="ses_old")) == Rang("accepted")
        assert opencode.line()["session"] == "ses_old"
        assert why_not(opencode.here(conversation="ses_gone")) == NO_TURN
        assert ring(opencode.here(cwd="/nowhere")) == Rang("failed", NO_TURN)


@pytest.mark.rule("09.4")
def test_a_session_that_was_last_used_before_it_started_is_on_no_screen_and_gets_nothing() -> None:
    before = time.time() * 1000 - 60_000
    with server(sessions=[{"id": "ses_old", "time": {"updated": before}}]) as opencode:
        assert why_not(opencode.here()) == NO_TURN
        assert ring(opencode.here()) == Rang("failed", NO_TURN)
        # Unless it is known to be the one.
        assert ring(opencode.here(conversation="ses_old")) == Rang("accepted")


@pytest.mark.rule("09.4")
@pytest.mark.parametrize("absent", ["absent", "missing"])
def test_a_version_without_prompt_async_is_asked_in_the_older_way(absent: str) -> None:
    with server(**{"async": absent}) as opencode:
        assert ring(opencode.here()) == Rang("accepted", "by message")
        heard = opencode.line()
    assert heard["way"] == "message"
    assert heard["body"] == {"parts": [{"type": "text", "text": TEXT}], "noReply": False}


def test_the_older_way_answers_late_and_the_text_is_found_in_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opencode_http, "BLOCKING_SECONDS", 0.2)
    with server(**{"async": "absent", "message": "slow"}) as opencode:
        assert ring(opencode.here()) == Rang("accepted", "found in the session")


@pytest.mark.rule("09.16")
@pytest.mark.parametrize(
    ("does", "rang"),
    [
        ("silent", Rang("accepted", "found in the session")),
        ("deaf", Rang("unknown", "no answer in time")),
        ("error", Rang("failed", "it answered 400")),
    ],
)
def test_what_is_written_and_not_answered_is_looked_for(
    does: str, rang: Rang, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencode_http, "RING_SECONDS", 0.5 if does != "error" else 5.0)
    with server(**{"async": does}) as opencode:
        assert ring(opencode.here()) == rang


def test_neither_way_known_is_said() -> None:
    with server(**{"async": "absent", "message": "absent"}) as opencode:
        assert ring(opencode.here()) == Rang("failed", "this version takes no prompts")


def test_a_process_that_listens_nowhere_or_speaks_otherwise_is_not_there() -> None:
    assert why_not(here_of("opencode", 2**22 + 1)) == "it does not listen on a port (start it with `--port`)"
    with server(answers=False) as opencode:
        assert why_not(opencode.here()) == "what listens there does not answer as opencode does"
        assert ring(opencode.here()).outcome == "failed"


def test_what_has_gone_between_the_look_and_the_ring_has_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with server() as opencode:
        here = opencode.here()
        place = ("127.0.0.1", opencode.port)

    def there(pid: int) -> list[tuple[str, int]]:
        assert pid == here.process[0]
        return [place]

    monkeypatch.setattr(opencode_http, "listening", there)
    assert ring(here) == Rang("failed", "what listens there does not answer as opencode does")
    seen = Answer(200, [])

    def answers(door: HttpDoor, place: tuple[str, int], method: str, *more: Any) -> Answer:
        return seen if method == "GET" else asked(door, place, method, *more)

    asked = HttpDoor._ask  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(HttpDoor, "_ask", answers)
    seen = Answer(200, [{**SESSION, "time": {"updated": time.time() * 1000}}])
    assert ring(here) == Rang("failed", "ConnectionRefusedError")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_it_is_found_wherever_on_this_machine_it_listens(host: str) -> None:
    with server(host=host) as opencode:
        ((found, port),) = listening(opencode.pid)
        assert found == ("::1" if ":" in host else "127.0.0.1")
        assert port == opencode.port
        assert ring(opencode.here()) == Rang("accepted")


def test_only_what_listens_here_is_read_from_the_table() -> None:
    head = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    )
    row = "   0: {} 00000000:0000 {} 00000000:00000000 00:00000000 00000000     0        0 {} 1 0 100 0 0 10 0\n"
    rows = [
        row.format("0100007F:2294", "0A", 7),
        row.format("0100007F:2295", "01", 8),
        row.format("0101A8C0:2296", "0A", 9),
        "nonsense\n",
    ]
    assert list(parse_table(head + "".join(rows))) == [("7", "127.0.0.1", 0x2294)]
    assert list(parse_table("")) == []
