"""The doors of Codex: its app-server, and its queue by a server of one's own (09.3).

What the real ones of version 0.171.0 answered is under `recorded/codex`; the parties answer that.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from postroom.clients import load
from postroom.core.envelope import PREFACE
from postroom.doors import Rang, codex_app_server, codex_queue, codex_threads
from postroom.doors.codex_app_server import CONTEXT_BYTES, AppServerDoor, sentence, socket_of
from postroom.doors.codex_queue import QueueDoor, program_of
from postroom.doors.codex_threads import MAX_INPUT, home_of, is_open, thread_of, why_closed, windows
from postroom.lineage import kind_of
from postroom.state import processes
from tests.desk import wait_until
from tests.doorsteps import PARTIES, Here, here_of, recorded

TEXT = f'{PREFACE}\n\n<cross-session-message from="alice" msg-id="m-1">\nhello\n</cross-session-message>'


def recorded_thread() -> dict[str, Any]:
    """The thread of the recording."""
    for line in recorded("codex/app-server")["lines"]:
        result = line.get("came", {}).get("result", {})
        if "thread" in result:
            return result["thread"]
    raise AssertionError("the recording has no thread")


class Server:
    """A party that runs; see `parties/codex_server.py`."""

    def __init__(self, process: subprocess.Popen[str], home: Path) -> None:
        self.process = process
        self.home = home
        ready = self.line()
        self.pid: int = ready["pid"]
        self.socket: str = ready["socket"]
        self.threads: list[str] = ready["threads"]

    def line(self) -> dict[str, Any]:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def request(self, method: str) -> dict[str, Any]:
        """What it was asked by this method; what came before is passed over."""
        while True:
            line = self.line()
            if line.get("method") == method:
                return line.get("params", {})

    def here(self, **more: Any) -> Here:
        """This server as the client of a session."""
        values: dict[str, Any] = {
            "environ": {"CODEX_HOME": str(self.home)},
            "conversation": self.threads[0],
            "variables": {},
        }
        return here_of("codex", self.pid, **{**values, **more})


@contextlib.contextmanager
def server(home: Path, **like: Any) -> Generator[Server]:
    """An app-server, while the block runs."""
    codex = home / "codex"
    codex.mkdir(exist_ok=True)
    party = [sys.executable, str(PARTIES / "codex_server.py"), str(codex), json.dumps(like)]
    with subprocess.Popen(party, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process, codex)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)


def ring(here: Here, text: str = TEXT, ids: tuple[str, ...] = ("m-1",)) -> Rang:
    """Rings the door of the server once."""
    return asyncio.run(AppServerDoor(here).ring(text, ids, "prompting"))


def why_not(here: Here) -> str:
    """Whether the server's door is there."""
    return asyncio.run(AppServerDoor(here).ready())


def answers(value: object) -> Callable[[object], object]:
    """A function that has one answer."""

    def answer(what: object) -> object:
        del what
        return value

    return answer


# ── its windows ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.3")
def test_a_thread_whose_windows_have_closed_is_not_there_though_its_server_holds_it_still(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(home, windows=2) as codex:
        here = codex.here()
        assert windows(codex.pid) == 2
        assert why_not(here) == why_closed(here, codex.threads[0]) == ""
        assert codex.process.stdin is not None
        codex.process.stdin.write("close\n")
        codex.process.stdin.flush()
        while "closed" not in codex.line():
            pass
        wait_until(lambda: windows(codex.pid) == 0)
        assert is_open(here, codex.threads[0])
        monkeypatch.setattr(codex_queue, "program_of", answers("codex"))
        for door in (AppServerDoor(here), QueueDoor(here)):
            assert asyncio.run(door.ready()) == "no window shows it any more"


@pytest.mark.rule("09.3")
def test_of_a_process_that_listens_on_no_unix_socket_the_windows_are_not_known() -> None:
    assert windows(os.getpid()) is None
    assert windows(0) is None


@pytest.mark.parametrize(("count", "kind"), [(None, "interactive"), (2, "interactive"), (0, "headless")])
def test_a_server_without_a_window_has_nobody_in_front_of_it(
    monkeypatch: pytest.MonkeyPatch, count: int | None, kind: str
) -> None:
    monkeypatch.setattr(processes, "command_of", answers(("codex", "app-server")))
    monkeypatch.setattr(codex_threads, "windows", answers(count))
    assert kind_of(load("codex"), 1) == kind


# ── the app-server ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.3")
def test_a_turn_is_begun_with_the_text_as_untrusted_context_and_a_sentence_of_ours(home: Path) -> None:
    with server(home) as codex:
        assert why_not(codex.here()) == ""
        assert ring(codex.here()) == Rang("accepted", "as context")
        asked = codex.request("turn/start")
    real = next(
        line["sent"]["params"]
        for line in recorded("codex/app-server")["lines"]
        if line.get("sent", {}).get("method") == "turn/start"
    )
    assert asked.keys() == real.keys()
    assert asked["input"] == real["input"] == [{"type": "text", "text": sentence(1), "text_elements": []}]
    context = {"kind": "untrusted", "name": "postroom"}
    assert asked["additionalContext"] == {"postroom": {**context, "value": TEXT}}
    assert real["additionalContext"]["postroom"].items() >= context.items()


def test_the_sentence_says_how_many_and_has_no_word_of_a_peer() -> None:
    assert sentence(1).startswith("[Postroom] A message from other sessions")
    assert sentence(3).startswith("[Postroom] 3 messages from other sessions")


@pytest.mark.rule("09.3", "04.1")
@pytest.mark.parametrize(
    ("like", "text"),
    [
        ({}, TEXT + "x" * CONTEXT_BYTES),
        ({"agent": "codex-tui/0.170.9 (x)"}, TEXT),
        ({"agent": "other"}, TEXT),
    ],
)
def test_what_would_be_cut_or_may_not_be_known_there_goes_as_user_text_and_whole(
    home: Path, like: dict[str, str], text: str
) -> None:
    with server(home, **like) as codex:
        assert ring(codex.here(), text) == Rang("accepted", "as user text")
        asked = codex.request("turn/start")
    assert asked["input"] == [{"type": "text", "text": text, "text_elements": []}]
    assert "additionalContext" not in asked


def test_bytes_count_and_not_characters(home: Path) -> None:
    with server(home) as codex:
        assert ring(codex.here(), "é" * (CONTEXT_BYTES // 2)).detail == "as context"
        assert ring(codex.here(), "é" * (CONTEXT_BYTES // 2 + 1)).detail == "as user text"


def test_what_is_longer_than_codex_takes_is_not_handed_over(home: Path) -> None:
    with server(home) as codex:
        assert ring(codex.here(), "x" * (MAX_INPUT + 1)) == Rang("failed", "it is longer than Codex takes")


@pytest.mark.rule("09.16")
@pytest.mark.parametrize(
    ("turn", "rang"),
    [
        ("refused", Rang("failed", "thread not found: 01a22e07-ae65-7a32-babd-c87c77567cb0")),
        ("gone", Rang("unknown", "Silent")),
        ("silent", Rang("unknown", "no answer in time")),
    ],
)
def test_an_error_is_a_failure_and_silence_is_not_known(
    home: Path, turn: str, rang: Rang, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codex_app_server, "RING_SECONDS", 1.0 if turn == "silent" else 30.0)
    with server(home, turn=turn) as codex:
        assert ring(codex.here()) == rang


@pytest.mark.rule("09.3")
@pytest.mark.parametrize("fields", [{"ephemeral": True}, {"canAcceptDirectInput": False}])
def test_a_thread_that_makes_a_title_or_takes_no_input_is_not_rung(
    home: Path, fields: dict[str, object]
) -> None:
    thread = recorded_thread()["id"]
    with server(home, threads=[{"id": thread, **fields}]) as codex:
        assert ring(codex.here()) == Rang("failed", "none of its threads takes input")


OTHER = "01a22e07-0000-7000-8000-000000000002"
THIRD = "01a22e07-0000-7000-8000-000000000003"


@pytest.mark.parametrize(
    ("second", "rang"),
    [
        ({"ephemeral": True}, "accepted"),
        ({"cwd": "/elsewhere"}, "accepted"),
        ({"parentThreadId": THIRD}, "accepted"),
        ({}, "failed"),
    ],
)
def test_where_nobody_said_which_thread_it_is_the_only_one_of_this_folder(
    home: Path, second: dict[str, object], rang: str
) -> None:
    thread = recorded_thread()
    with server(home, threads=[{"id": thread["id"]}, {"id": OTHER, **second}]) as codex:
        here = codex.here(conversation="", cwd=thread["cwd"])
        assert ring(here).outcome == rang
        if rang == "accepted":
            assert codex.request("turn/start")["threadId"] == thread["id"]


@contextlib.contextmanager
def started_with(*words: str) -> Generator[int]:
    """A process with these words on its command line; yields its pid."""
    command = [sys.executable, "-c", "print(flush=True); input()", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.communicate("\n")


@pytest.mark.parametrize(
    "words", [("--remote", "unix:///x"), ("--remote=unix:///x",), ("--listen", "unix:///x")]
)
def test_a_server_is_found_where_the_command_line_says(words: tuple[str, ...]) -> None:
    with started_with("app", *words) as pid:
        assert socket_of(here_of("codex", pid)) == "/x"


@pytest.mark.parametrize("word", ["unix://", "unix://relative", "ws://127.0.0.1:1"])
def test_any_other_address_leaves_it_where_codex_has_it(home: Path, word: str) -> None:
    with started_with("--remote", word) as pid:
        here = here_of("codex", pid, environ={"CODEX_HOME": str(home)}, variables={})
        assert socket_of(here) == f"{home}/app-server-control/app-server-control.sock"


def test_without_a_server_or_a_thread_the_door_is_not_there(home: Path) -> None:
    with server(home) as codex:
        assert why_not(codex.here(conversation=OTHER)) == "its thread is not open in any process"
        nowhere = codex.here(environ={"CODEX_HOME": str(home / "none")}, conversation="")
        assert why_not(nowhere).startswith("no app-server of it answers")
    assert why_not(codex.here(conversation="")).startswith("no app-server of it answers")
    assert ring(codex.here()).outcome == "failed"


def test_what_listens_there_and_speaks_no_websocket_has_nothing_of_it(home: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(home / "plain.sock"))
        sock.listen()

        async def case() -> Rang:
            loop = asyncio.get_running_loop()

            def answer() -> None:
                connection, _ = sock.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

            answering = loop.run_in_executor(None, answer)
            door = AppServerDoor(Here(environ={"CODEX_HOME": str(home)}, variables={}))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(codex_app_server, "SOCKET", "plain.sock")
                rang = await door.ring(TEXT, ("m-1",), None)
            await answering
            return rang

        assert asyncio.run(case()).outcome == "failed"


def test_without_the_library_the_door_is_not_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        assert name == "websockets"

    monkeypatch.setattr(codex_app_server, "find_spec", nothing)
    assert "websockets" in why_not(Here())


@pytest.mark.rule("11.11")
def test_a_socket_of_another_user_is_not_spoken_to(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(home) as codex:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert "another user's" in why_not(codex.here())
        assert ring(codex.here()).outcome == "failed"


# ── the queue ────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def queue(home: Path, does: str = "accepted", thread: str = OTHER) -> Generator[tuple[Here, Path]]:
    """A client whose thread is open, with a `codex` on its path; yields it and what that program heard."""
    program = home / "bin/codex"
    program.parent.mkdir(exist_ok=True)
    party = PARTIES / "codex_program.py"
    program.write_text(
        f"#!{sys.executable}\nimport runpy\nrunpy.run_path({str(party)!r}, run_name='__main__')\n"
    )
    program.chmod(0o755)
    locks = home / "codex/thread-writer-locks"
    locks.mkdir(parents=True, exist_ok=True)
    heard = home / "heard"
    with open(locks / f"{thread}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environ = {
            "HOME": str(home),
            "PATH": str(program.parent),
            "CODEX_HOME": str(home / "codex"),
            "CODEX_HEARD": str(heard),
            "CODEX_DOES": does,
            "POSTROOM_TOKEN": "secret",
        }
        yield here_of("codex", os.getpid(), environ=environ, variables={}, conversation=thread), heard


def heard_by(file: Path) -> list[dict[str, Any]]:
    """What the program wrote down."""
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.rule("09.3", "11.11")
def test_the_queue_gets_the_text_on_a_pipe_and_never_on_a_command_line(home: Path) -> None:
    with queue(home) as (here, file):
        door = QueueDoor(here)
        assert asyncio.run(door.ready()) == ""
        assert asyncio.run(door.ring(TEXT, ("m-1", "m-2"), None)) == Rang("accepted")
        started, *lines = heard_by(file)
    assert started["argv"] == ["app-server"]
    assert "POSTROOM_TOKEN" not in started["environ"]
    assert started["environ"]["CODEX_HOME"] == str(home / "codex")
    asked = next(line["line"] for line in lines if line["line"].get("method") == "thread/queue/add")
    real = next(
        line["sent"]
        for line in recorded("codex/queue")["lines"]
        if line.get("sent", {}).get("method") == "thread/queue/add"
    )
    assert asked["params"].keys() == real["params"].keys()
    assert asked["params"]["threadId"] == OTHER
    assert asked["params"]["input"] == [{"type": "text", "text": TEXT, "text_elements": []}]
    with pytest.raises(ProcessLookupError):
        os.kill(started["pid"], 0)


@pytest.mark.rule("09.16")
@pytest.mark.parametrize(
    ("does", "outcome"), [("refused", "failed"), ("gone", "unknown"), ("silent", "unknown")]
)
def test_what_the_queue_does_not_say_is_not_known(
    home: Path, does: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codex_queue, "QUEUE_ENDING_SECONDS", 0.2)
    monkeypatch.setattr(codex_queue, "RING_SECONDS", 2.0 if does == "silent" else 30.0)
    with queue(home, does) as (here, file):
        rang = asyncio.run(QueueDoor(here).ring(TEXT, ("m-1",), None))
        pid = heard_by(file)[0]["pid"]
    assert rang.outcome == outcome
    if does == "refused":
        assert "no rollout found" in rang.detail
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_program_that_cannot_be_started_has_nothing_of_it(home: Path) -> None:
    with queue(home) as (here, _):
        (home / "bin/codex").write_text("#!/nonexistent\n")
        assert asyncio.run(QueueDoor(here).ring(TEXT, (), None)).outcome == "failed"
        assert asyncio.run(QueueDoor(here).ring("x" * (MAX_INPUT + 1), (), None)).outcome == "failed"


def test_a_thread_that_nobody_has_open_is_not_queued_for(home: Path) -> None:
    with queue(home) as (here, _):
        here.conversation = THIRD
        assert asyncio.run(QueueDoor(here).ready()) == "its thread is not open in any process"
        here.conversation = "nonsense"
        assert asyncio.run(QueueDoor(here).ready()) == ""  # the only one that is open
    assert asyncio.run(QueueDoor(here).ready()) == "it is not known which of its threads this is"
    here.environ = {"PATH": ""}
    assert asyncio.run(QueueDoor(here).ready()) == "the program `codex` is not found"


# ── what both share ──────────────────────────────────────────────────────────────────────────────


def test_a_thread_is_known_by_the_lock_of_its_process_or_of_another(home: Path) -> None:
    with server(home) as codex, server(home / "codex", threads=[{"id": OTHER}, {"id": THIRD}]) as two:
        assert thread_of(codex.here(conversation="")) == codex.threads[0]
        assert thread_of(two.here(conversation="")) == ""
        assert thread_of(two.here()) == OTHER
        here = codex.here(process=(os.getpid(), ""))  # a terminal program whose server has the thread open
        assert is_open(here, codex.threads[0])
        assert not is_open(here, OTHER)
    assert not is_open(codex.here(), codex.threads[0])
    assert thread_of(codex.here(conversation="")) == ""


@pytest.mark.parametrize(
    ("variables", "environ", "home"),
    [
        ({"CODEX_HOME": "/a"}, {"CODEX_HOME": "/b"}, "/a"),
        ({}, {"CODEX_HOME": "/b", "HOME": "/c"}, "/b"),
        ({"CODEX_HOME": "relative"}, {}, ""),
        ({"HOME": "/d"}, {"HOME": "/c"}, "/d/.codex"),
        ({}, {"HOME": "/c"}, "/c/.codex"),
        ({}, {}, ""),
    ],
)
def test_codex_has_its_things_where_its_own_process_was_told(
    variables: dict[str, str], environ: dict[str, str], home: str
) -> None:
    assert home_of(Here(environ=environ, variables=variables)) == home


def test_the_program_is_the_one_that_runs(home: Path) -> None:
    own = home / "codex-x86_64"
    own.symlink_to("/bin/sleep")
    import shutil

    shutil.copy("/bin/sleep", home / "codex")
    with subprocess.Popen([str(home / "codex"), "60"]) as process:
        try:
            assert program_of(here_of("codex", process.pid)) == str(home / "codex")
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("line", "raised"),
    [
        (b"no json", codex_threads.Silent),
        ("[" * 100_000, codex_threads.Silent),
        ('{"id":1,"error":{"code":1,"message":"a\\nb"}}', codex_threads.Refused),
        ('{"id":1,"error":"words"}', codex_threads.Refused),
        ('{"id":1}', codex_threads.Refused),
    ],
)
def test_what_is_no_answer_is_none(line: str | bytes, raised: type[Exception]) -> None:
    class Wire:
        async def send(self, line: str) -> None:
            del line

        async def receive(self) -> str | bytes:
            return line

    with pytest.raises(raised):
        asyncio.run(codex_threads.Asking(Wire(), "postroom", "0").ask("x", {}))


def test_an_answer_to_something_else_is_passed_over() -> None:
    lines = ["[]", '{"id":7,"result":{}}', '{"id":1,"method":"ask"}', '{"id":1,"result":[]}']

    class Wire:
        async def send(self, line: str) -> None:
            del line

        async def receive(self) -> str | bytes:
            return lines.pop(0)

    assert asyncio.run(codex_threads.Asking(Wire(), "postroom", "0").ask("x", {})) == {}
