"""Who a client's session is: claimed once, attached to by whoever comes second, gone with the client (09.9, 09.11).

The clients are stand-ins of that name; `postroom attend` is the process that a hook starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from postroom import lineage, presence
from postroom.clients import load
from postroom.opening import Opened
from postroom.state import processes
from postroom.state.roster import Roster
from tests.desk import COMMAND, SECONDS, Desk, running, wait_until
from tests.doorsteps import until
from tests.programs import Program, program
from tests.room import Room
from tests.strangers import private_desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A private place."""
    with private_desk() as made:
        yield made


def attended(desk: Desk, client: str, of: Program, *more: str) -> subprocess.Popen[bytes]:
    """Starts a client's presence, as a hook would, and waits until it says that it is there."""
    read_end, write_end = os.pipe()
    child = subprocess.Popen(
        [
            COMMAND,
            "attend",
            client,
            f"--client-pid={of.pid}",
            f"--client-start={of.start}",
            *more,
            f"--ready-fd={write_end}",
        ],
        env=desk.environ,
        cwd=desk.folder,
        pass_fds=[write_end],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(write_end)
    with os.fdopen(read_end) as ready:
        assert ready.read() == "ready\n", child.communicate(timeout=SECONDS)
    return child


def ended(child: subprocess.Popen[bytes]) -> int:
    """Waits for a process and returns its exit code; it must have printed nothing."""
    out, err = child.communicate(timeout=SECONDS)
    assert (out, err) == (b"", b"")
    return child.returncode


def rows(desk: Desk) -> list[dict[str, object]]:
    """Who is listed."""
    return list(desk.ok("list")["rows"])


@pytest.mark.rule("09.11")
def test_a_presence_is_the_clients_session_and_ends_with_the_clients_process(desk: Desk) -> None:
    with program("codex", desk) as codex:
        child = attended(desk, "codex", codex)
        [row] = rows(desk)
        assert (row["program"], row["confirms"], row["wakes"], row["pid"]) == (
            "codex",
            "consumed",
            True,
            child.pid,
        )
        assert (row["presence"], row["cwd"]) == ("headless", str(desk.folder))
        inside = codex.run("status", "--json")
        assert json.loads(inside["out"])["session_id"] == row["session_id"]
        codex.kill()
        assert ended(child) == 0
        assert rows(desk) == []
        sessions = Path(desk.environ["POSTROOM_HOME"]) / "sessions"
        assert {path.name for path in sessions.iterdir()} <= {".lock", row["session_id"]}


@pytest.mark.rule("09.11")
def test_of_several_that_come_at_once_one_is_the_session(desk: Desk) -> None:
    with program("gemini", desk) as gemini:
        words = [
            COMMAND,
            "attend",
            "gemini-cli",
            f"--client-pid={gemini.pid}",
            f"--client-start={gemini.start}",
        ]
        children = [
            subprocess.Popen(words, env=desk.environ, cwd=desk.folder, stdin=subprocess.DEVNULL)
            for _ in range(5)
        ]
        wait_until(lambda: sum(child.poll() is None for child in children) == 1 and len(rows(desk)) == 1)
        left = [child for child in children if child.poll() is None]
        assert [child.returncode for child in children if child not in left] == [0, 0, 0, 0]
        assert rows(desk)[0]["pid"] == left[0].pid
        gemini.kill()
        assert left[0].wait(SECONDS) == 0


@pytest.mark.rule("09.11", "05.12")
def test_a_conversation_that_is_taken_up_again_is_the_same_session_with_its_mail(desk: Desk) -> None:
    desk.open("alice")
    seen: list[tuple[object, object]] = []
    for text in ("first", "second"):
        with program("qwen", desk) as qwen:
            child = attended(desk, "qwen-code", qwen, "--conversation=0b0e7e9e-1d0c-4f6e-9d55-1")
            row = next(row for row in rows(desk) if row["program"] == "qwen-code")
            seen.append((row["session_id"], row["name"]))
            desk.send("alice", str(row["name"]), text)
            if text == "second":
                assert [
                    each["text"] for each in json.loads(qwen.run("inbox", "--json")["out"])["messages"]
                ] == [
                    "first",
                    "second",
                ]
            qwen.kill()
            assert ended(child) == 0
    assert seen[0] == seen[1]


@pytest.mark.rule("09.11")
def test_one_process_with_two_conversations_has_two_sessions(desk: Desk) -> None:
    """Codex keeps the threads of all its windows in one process."""
    with program("codex", desk) as codex:
        one = attended(desk, "codex", codex, "--conversation=one")
        two = attended(desk, "codex", codex, "--conversation=two")
        again = attended(desk, "codex", codex, "--conversation=two")
        assert ended(again) == 0
        assert len(rows(desk)) == 2
        error = json.loads(codex.run("status", "--json")["out"])["error"]
        assert error["code"] == "no_session"
        codex.kill()
        assert (ended(one), ended(two)) == (0, 0)


@pytest.mark.rule("09.11")
@pytest.mark.parametrize("wrapped", [False, True])
def test_inside_open_the_session_that_is_there_is_attached_to(desk: Desk, wrapped: bool) -> None:
    """`postroom open -- CLIENT`, the client below a shell of a launcher's."""
    ready = desk.folder / "ready"
    script = desk.folder / "codex"
    script.write_text(f"#!/bin/sh\necho $$ > {ready}\nread line\n")
    script.chmod(0o755)
    command = ["/bin/sh", "-c", f"{script}; true"] if wrapped else [str(script)]
    outer = subprocess.Popen(
        [COMMAND, "open", "--name", "outer", "--", *command],
        env=desk.environ,
        cwd=desk.folder,
        stdin=subprocess.PIPE,
    )
    try:
        wait_until(ready.exists)
        wait_until(lambda: len(rows(desk)) == 1)
        roster = Roster(str(Path(desk.environ["POSTROOM_HOME"])))
        pid = int(ready.read_text())
        line = ((os.getpid(), "me"), *processes.ancestry(pid))
        found = lineage.find(roster, load("codex"), line)
        assert found == rows(desk)[0]["session_id"]
    finally:
        outer.communicate(b"\n", timeout=SECONDS)


@pytest.mark.rule("09.1", "09.9")
def test_a_session_around_a_clients_command_becomes_the_clients(desk: Desk) -> None:
    """Whoever attaches says which client it is: from then on its doors are rung, and it is listed as what it is."""
    done = desk.folder / "done"
    script = desk.folder / "gemini"
    process = "--client-pid $$ --client-start $(cut -d' ' -f22 /proc/$$/stat)"
    script.write_text(f"#!/bin/sh\n{COMMAND} attend gemini-cli {process}; echo $? > {done}\nread line\n")
    script.chmod(0o755)
    with subprocess.Popen(
        [COMMAND, "open", "--name", "outer", "--", str(script), "--yolo"],
        env=desk.environ,
        cwd=desk.folder,
        stdin=subprocess.PIPE,
    ) as outer:
        wait_until(lambda: done.exists() and bool(done.read_text()))
        assert done.read_text() == "0\n"
        [row] = rows(desk)
        assert (row["name"], row["program"], row["wakes"]) == ("outer", "gemini-cli", False)
        assert desk.ok("--session", "outer", "status")["mode"] == "yolo"
        stranger = desk.run("--session", "outer", "attend", "codex", "--client-pid=1", "--client-start=1")
        assert stranger.code == 2
        outer.communicate(b"\n", timeout=SECONDS)


@pytest.mark.rule("09.11")
def test_a_client_that_another_ones_agent_started_is_not_in_its_session(desk: Desk) -> None:
    with program("claude", desk) as claude:
        child = attended(desk, "claude-code", claude)
        mine = rows(desk)[0]["session_id"]
        roster = Roster(str(Path(desk.environ["POSTROOM_HOME"])))
        nested = claude.tell(argv=["/bin/sh", "-c", "exec sleep 60"], stay=True)["pid"]
        wait_until(lambda: processes.name_of(nested) == "sleep")
        inner = ((os.getpid(), "me"), (nested, processes.start_of(nested) or ""), (claude.pid, claude.start))
        # Nothing but a shell lies between a hook of its own and the client; a program of another name does here.
        assert lineage.find(roster, load("codex"), inner) is None
        own = ((os.getpid(), "me"), (claude.pid, claude.start))
        assert lineage.find(roster, load("claude-code"), own) == mine
        claude.kill()
        assert ended(child) == 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(nested, 9)


@pytest.mark.rule("09.11")
def test_a_killed_presence_leaves_the_client_free_to_be_claimed_again(desk: Desk) -> None:
    with program("codex", desk) as codex:
        child = attended(desk, "codex", codex, "--conversation=one")
        before = rows(desk)[0]["session_id"]
        child.kill()
        child.communicate()
        again = attended(desk, "codex", codex, "--conversation=one")
        assert [row["session_id"] for row in rows(desk)] == [before]
        codex.kill()
        assert ended(again) == 0


@pytest.mark.rule("09.9", "09.11")
def test_a_detached_presence_hands_its_session_over_with_its_mail(desk: Desk) -> None:
    """To the process that an MCP server is: it opens the session itself."""
    desk.open("alice")
    with program("codex", desk) as codex:
        child = attended(desk, "codex", codex, "--conversation=one")
        row = next(row for row in rows(desk) if row["program"] == "codex")
        msg_id = desk.send("alice", str(row["name"]), "kept")["msg_id"]
        prompt = {"session_id": "one", "permission_mode": "bypassPermissions", "prompt": "go on"}
        codex.run("hook", "codex", "UserPromptSubmit", stdin=json.dumps(prompt))

        async def take_over() -> None:
            async with presence.present(
                load("codex"),
                (codex.pid, codex.start),
                environ=desk.environ,
                cwd=str(desk.folder),
                conversation="one",
            ) as here:
                assert here.session is not None
                assert (here.session.id, here.session.name) == (row["session_id"], row["name"])
                assert (here.session.standing.mode, here.session.turn) == ("bypassPermissions", "busy")
                with here.session.reading() as store:
                    [message] = store.find(msg_id)
                assert (message.text, message.state) == ("kept", "consumed")
                assert await asyncio.get_running_loop().run_in_executor(None, ended, child) == 0
                # And whoever comes now attaches.
                second = await asyncio.get_running_loop().run_in_executor(
                    None, attended, desk, "codex", codex, "--conversation=one"
                )
                assert await asyncio.get_running_loop().run_in_executor(None, ended, second) == 0

        asyncio.run(take_over())


@pytest.mark.rule("09.9")
@pytest.mark.parametrize(
    ("client", "words", "mode"),
    [
        ("claude-code", ("--dangerously-skip-permissions",), "bypassPermissions"),
        ("claude-code", ("--permission-mode", "plan"), "plan"),
        ("claude-code", ("--permission-mode=acceptEdits", "x"), "acceptEdits"),
        ("claude-code", ("--permission-mode", "sudo"), "sudo"),
        ("claude-code", ("-p", "--", "--dangerously-skip-permissions"), None),
        ("claude-code", ("--permission-mode",), None),
        ("codex", ("-a", "never"), "never"),
        ("codex", ("--yolo",), "danger-full-access"),
        ("gemini-cli", ("--approval-mode=yolo",), "yolo"),
        ("gemini-cli", ("-y",), "yolo"),
        ("qwen-code", ("--approval-mode", "auto-edit"), "acceptEdits"),
        ("generic", ("--yolo",), None),
    ],
)
def test_the_mode_that_a_command_line_asks_for(client: str, words: tuple[str, ...], mode: str | None) -> None:
    assert load(client).mode_in(("program", *words)) == mode


@pytest.mark.rule("09.9")
def test_a_client_is_recognised_by_its_variables_or_its_program_and_else_is_any(desk: Desk) -> None:
    with program("gemini", desk) as gemini, program("unheard-of", desk) as other:
        below = ((os.getpid(), "me"), (gemini.pid, gemini.start))
        assert lineage.recognised({}, below).name == "gemini-cli"
        assert lineage.recognised({"QWEN_CODE_SESSION_ID": "x"}, below).name == "qwen-code"
        assert lineage.recognised({}, ((os.getpid(), "me"), (other.pid, other.start))).name == "generic"
        assert lineage.client_process(load("gemini-cli"), {}, below) == (gemini.pid, gemini.start)
        assert lineage.client_process(load("claude-code"), {"CLAUDE_PID": str(gemini.pid)}, below) == below[1]
        assert lineage.client_process(load("claude-code"), {"CLAUDE_PID": "1"}, below) == below[1]
        assert lineage.client_process(load("generic"), {}, ((os.getpid(), "me"),)) is None


@pytest.mark.rule("09.9")
def test_what_a_client_hides_from_its_servers_is_read_off_its_own_process(desk: Desk) -> None:
    """Codex starts them without the variables that say where things lie."""
    with program("codex", desk, CODEX_HOME="/there") as codex:
        found = lineage.borrowed({"HOME": "/mine"}, codex.pid)
        assert found["HOME"] == "/mine"
        assert found["POSTROOM_HOME"] == desk.environ["POSTROOM_HOME"]
        assert found["CODEX_HOME"] == "/there"
        assert set(found) <= set(lineage.BORROWED)


def test_attend_says_what_it_misses(desk: Desk) -> None:
    assert desk.run("attend", "codex").code == 2
    assert desk.run("attend", "nobody", "--client-pid=1", "--client-start=1").code == 2


def test_a_client_that_has_gone_already_leaves_nothing(desk: Desk) -> None:
    with program("codex", desk) as codex:
        codex.kill()
        codex.process.wait()
        wait_until(lambda: not running(codex.pid))
        child = attended(desk, "codex", codex)
        assert ended(child) == 0
        assert rows(desk) == []


@pytest.mark.rule("09.9", "12.21")
def test_the_end_of_a_window_is_heard_of_without_looking_again_and_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a client whose windows are processes of their own, and whose conversations live on in a server."""
    monkeypatch.setattr(presence, "WINDOW_SECONDS", 0.0)
    kinds = ["interactive"]

    def kind_of(*of: object) -> str:
        del of
        return kinds[-1]

    def serves(*of: object) -> bool:
        return bool(of)

    monkeypatch.setattr(presence, "kind_of", kind_of)
    monkeypatch.setattr(presence, "serves_windows", serves)

    async def work(pid: int, kill: Callable[[], None]) -> None:
        room = Room()
        async with room.open("bob") as bob:
            roster = Roster(str(desk.folder))
            here = presence.Present(load("codex"), (0, ""), {}, "/", "", roster)
            here.look()  # nothing lives here yet
            here.opened = cast("Opened", SimpleNamespace(session=bob))
            monkeypatch.setattr(processes, "everybody", lambda: [pid, os.getpid()])
            here.look()
            here.look()
            assert bob.record.kind == "interactive"
            before = bob.reports
            kinds.append("headless")
            kill()
            await until(lambda: bob.reports == before + 1)
            here.look()
            assert bob.record.kind == "headless"
            here.stop_watching()

    with program("codex", desk) as window, program("codex", desk) as other:
        asyncio.run(work(window.pid, window.kill))
        assert other.process.poll() is None
