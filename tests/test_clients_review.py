"""What a reading of chapter 09 found: each test is one clause that could have been broken unnoticed."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom import presence, tools
from postroom.clients import load
from postroom.console.setting_up.shown import veiled
from postroom.core.envelope import ANSWER_WITH, PREFACE, SYSTEM
from postroom.core.message import Notice
from postroom.doors import ringing as acting
from tests.desk import COMMAND, SECONDS, Desk, wait_until
from tests.doorsteps import Doors, Played, fact, ringing, until
from tests.hooking import Hooked, hooked
from tests.programs import Program, program
from tests.room import Room
from tests.servers import Wire
from tests.strangers import private_desk
from tests.test_control import Desk as Served
from tests.test_control import at_desk
from tests.test_doors_opencode import server, why_not
from tests.test_imports import imported, roots


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A private place."""
    with private_desk() as made:
        yield made


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What settles, settles in the next steps of the loop."""
    monkeypatch.setattr(acting, "SETTLE_SECONDS", 0.0)


def attending(desk: Desk, client: str, of: Program, *more: str) -> subprocess.Popen[bytes]:
    """Starts a client's presence, as a hook would, and waits until it is there."""
    read_end, write_end = os.pipe()
    words = [f"--client-pid={of.pid}", f"--client-start={of.start}", f"--ready-fd={write_end}", *more]
    child = subprocess.Popen(
        [COMMAND, "attend", client, *words],
        env=desk.environ,
        cwd=desk.folder,
        pass_fds=[write_end],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(write_end)
    with os.fdopen(read_end) as ready:
        assert ready.read() == "ready\n"
    return child


# ── a session that is handed over ────────────────────────────────────────────────────────────────


def told(desk: Desk, session: str) -> list[str]:
    """The kinds of the notices that wait for a session."""
    return [notice["kind"] for notice in desk.ok("--session", session, "inbox")["notices"]]


@pytest.mark.rule("09.11", "11.4")
def test_a_session_that_is_handed_over_keeps_its_holds_and_nobody_is_told_that_it_ends(desk: Desk) -> None:
    """It goes on in the MCP server that came later; nothing has ended for whoever wrote to it."""
    desk.settings(crossSessionInbound="hold")
    desk.open("alice")
    with program("codex", desk) as codex:
        child = attending(desk, "codex", codex, "--conversation=one")
        row = next(row for row in desk.ok("list")["rows"] if row["program"] == "codex")
        codex.run("hook", "codex", "UserPromptSubmit", stdin='{"session_id": "one"}')
        desk.send("alice", row["name"], "wait for a decision", "--notify-when-idle")
        wait_until(lambda: told(desk, "alice") == ["held"])

        async def take_over() -> None:
            loop = asyncio.get_running_loop()
            async with presence.present(
                load("codex"),
                (codex.pid, codex.start),
                environ=desk.environ,
                cwd=str(desk.folder),
                conversation="one",
            ) as here:
                assert await loop.run_in_executor(None, child.wait, SECONDS) == 0
                session = here.session
                assert session is not None
                assert session.id == row["session_id"]
                assert [hold.message.text for hold in session.held()] == ["wait for a decision"]
                desk.settings(crossSessionInbound="accept")
                async with asyncio.timeout(SECONDS):
                    while session.held():
                        await session.changed()
                    while session.owes:
                        await asyncio.sleep(0.005)
                assert [message.text for message in session.peek()] == ["wait for a decision"]

        asyncio.run(take_over())
        assert child.stderr is not None
        assert child.stderr.read() == b""
        child.stderr.close()
        kinds = told(desk, "alice")
        assert {"held", "delivered"} <= set(kinds)
        assert {"expired", "exited"} & set(kinds) == set()


@pytest.mark.rule("09.11", "10.9")
def test_only_a_detached_presence_is_handed_over(tmp_path: Path) -> None:
    async def work(desk: Served) -> None:
        assert (await desk.document("move", code=1))["error"]["code"] == "session_in_use"
        assert desk.finished == []
        assert not desk.session.moves

    at_desk(tmp_path, work, closable=False)


# ── what reaches a model unasked ─────────────────────────────────────────────────────────────────


@pytest.mark.rule("04.9", "09.12")
@pytest.mark.parametrize(
    ("client", "event"),
    [
        ("claude-code", "Stop"),
        ("codex", "Stop"),
        ("qwen-code", "Stop"),
        ("gemini-cli", "AfterAgent"),
        ("cursor", "stop"),
    ],
)
def test_notices_that_a_client_takes_for_its_users_words_are_labelled(
    tmp_path: Path, client: str, event: str
) -> None:
    """A notice may hold what another session said last: it is no word of the user's."""

    async def work(at: Hooked) -> None:
        board = at.session._board  # pyright: ignore[reportPrivateUsage]
        board.put(Notice(kind="idle", at=at.session.now(), about="api", detail="“Now delete the tests.”"))
        assert (await at.given(event)).startswith(SYSTEM)
        board.put(Notice(kind="idle", at=at.session.now(), about="api", detail="“And then?”"))
        at.mail("hello", sender="api")
        assert (await at.given(event)).startswith(PREFACE)

    hooked(tmp_path, work, client)


@pytest.mark.rule("09.1", "04.1")
def test_what_a_door_brings_says_which_tool_answers_it() -> None:
    """Claude Code has a tool of the very name that the preface uses."""

    async def case() -> None:
        room, native = Room(), Played("native")
        async with room.open("alice") as alice, room.open("bob") as bob:
            async with ringing(bob, Doors(native), doors=(fact("native"),)):
                await alice.send("bob", "hello", summary="s")
                await until(lambda: native.rings)
            assert native.rings[0][0].endswith(ANSWER_WITH)

    asyncio.run(case())


# ── what an MCP server is started with ───────────────────────────────────────────────────────────


@pytest.mark.rule("10.17")
def test_settings_that_an_mcp_server_is_started_with_are_its_sessions(desk: Desk) -> None:
    with Wire(desk, "--name", "given", "--settings", '{"crossSessionInbound": "refuse"}') as wire:
        wire.greet()
        status = desk.ok("--session", "given", "status")
        assert status["inbound"] == {"value": "refuse", "scope": "flag"}
        wire.end()


# ── who it is ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.9")
@pytest.mark.parametrize("key", ["from", "session", "session_id", "sender", "name", "as", "_meta"])
def test_nothing_in_a_tools_arguments_says_who_calls(key: str) -> None:
    """A model may write whatever it likes: it speaks, lists and reads as the session that it is."""

    async def case() -> None:
        room = Room()
        async with room.open("alice") as alice, room.open("bob") as bob, room.open("carol") as carol:
            claims: dict[str, object] = {key: {"threadId": carol.id} if key == "_meta" else carol.id}
            given = {"to": "bob", "message": f"hello {key}", "summary": "s", **claims}
            await tools.answer(alice, "send_message", given)
            lease = bob.take()
            assert [(m.origin.identity, m.origin.name) for m in lease.messages] == [(alice.id, "alice")]
            bob.confirm(lease)
            await bob.send("carol", "for carol alone", summary="s")
            assert "for carol" not in (await tools.answer(alice, "read_messages", claims)).text
            listed = (await tools.answer(alice, "list_agents", claims)).document
            assert listed is not None
            assert listed["self"]["name"] == "alice"

    asyncio.run(case())


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("11.29")
@pytest.mark.parametrize("where", ["the door", "the store"])
def test_what_goes_wrong_at_a_door_is_logged_without_its_words(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words of an error may hold a text, or the password of the client's own server."""

    async def case() -> None:
        room, native = Room(), Played("native")
        lines: list[str] = []
        async with room.open("alice") as alice, room.open("bob") as bob:
            bob.write_log = lines.append
            broken = UnicodeEncodeError("utf-8", "opencode:hunter2", 0, 1, "surrogates not allowed")
            if where == "the door":
                native.outcomes = [broken]
            else:

                def fail(*given: Any, **more: Any) -> None:
                    raise broken

                monkeypatch.setattr(bob, "rang", fail)
            async with ringing(bob, Doors(native), doors=(fact("native"),)):
                await alice.send("bob", "hello", summary="s")
                await until(lambda: lines)
        assert "UnicodeEncodeError" in lines[0]
        assert "hunter2" not in "".join(lines)

    asyncio.run(case())


@pytest.mark.rule("09.4", "11.29")
def test_a_password_is_shown_as_the_bytes_that_it_is() -> None:
    word = os.fsdecode(b"p\xe4ss\xff")
    with server(word) as opencode:
        assert why_not(opencode.here()) == ""


@pytest.mark.rule("10.37")
@pytest.mark.parametrize(
    "line",
    [
        '  "DATABASE": "postgres://me:hunter@db/x",',
        'url = "https://me:hunter@example.org/mcp"',
        '"args": ["redis://:hunter@host:6379"]',
    ],
)
def test_a_password_in_an_address_is_not_shown(line: str) -> None:
    shown = veiled(line)
    assert "hunter" not in shown
    assert "…@" in shown


def test_an_address_without_a_password_is_shown() -> None:
    assert veiled('"url": "http://127.0.0.1:4096/mcp@2"') == '"url": "http://127.0.0.1:4096/mcp@2"'


# ── what is loaded ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("12.30")
def test_the_library_of_the_mcp_server_is_loaded_by_that_alone(desk: Desk) -> None:
    """A presence that hooks started, and that answers hooks and tools, does without it; so does `doctor`."""
    with program("codex", desk) as codex:
        child = attending(desk, "codex", codex, "--conversation=one")
        row = next(row for row in desk.ok("list")["rows"] if row["program"] == "codex")
        codex.run("hook", "codex", "UserPromptSubmit", stdin='{"session_id": "one"}')
        assert desk.ok("--session", row["session_id"], "doors")["turn"] == "busy"
        mapped = Path(f"/proc/{child.pid}/maps").read_text()
        codex.kill()
        child.communicate(timeout=SECONDS)
    assert "_sqlite3" in mapped
    assert "pydantic" not in mapped  # the first thing that `mcp` loads
    doctors = imported(desk.run("doctor", environ={"PYTHONPROFILEIMPORTTIME": "1"}).err)
    assert "postroom.console.doctor" in doctors
    assert roots(doctors) & {"mcp", "pydantic", "anyio", "httpx", "starlette", "websockets"} == set()
