"""The command as it was installed: what it says without a session, and to whom it says it when nobody listens."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom import __version__, arguments
from tests.desk import COMMAND, SECONDS, Desk, Done, running
from tests.strangers import private_desk


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A private place with bob open."""
    with private_desk() as desk:
        desk.open("bob")
        yield desk


def shell(desk: Desk, line: str, **more: str) -> Done:
    """Runs a line of a shell in which `postroom` is the command."""
    environ = {**desk.environ, "PATH": f"{Path(COMMAND).parent}:{os.environ['PATH']}", **more}
    done = subprocess.run(
        ["bash", "-c", line], env=environ, cwd=desk.folder, capture_output=True, timeout=SECONDS, check=False
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.rule("10.37")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        *(("", 2), ("--json", 2), ("--help", 0), ("-h", 0), ("help", 0), ("--help list", 0)),
        ("--session bob --help", 0),
    ],
)
def test_help_is_printed_and_only_asking_for_it_is_a_success(desk: Desk, line: str, code: int) -> None:
    done = desk.run(*line.split())
    assert (done.code, done.out, done.err) == (code, arguments.overview(), "")


def test_the_version(desk: Desk) -> None:
    for word in ("--version", "-V"):
        assert desk.run(word) == Done(0, f"postroom {__version__}\n", "")


@pytest.mark.rule("10.37", "10.23")
@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["frobnicate"], 2, "usage"),
        (["send"], 2, "usage"),
        (["status", "extra"], 2, "usage"),
        (["inbox"], 1, "no_session"),
        (["wait", "--timeout", "0"], 1, "no_session"),
        (["status"], 1, "no_session"),
        (["rename", "x"], 1, "no_session"),
        (["log"], 1, "no_session"),
        (["close"], 1, "no_session"),
        (["--session", "nobody", "status"], 1, "no_session"),
        (["--session", "", "status"], 1, "no_session"),
        (["trace", "no-such-id"], 3, "unknown_message"),
        (["send", "nobody", "x"], 3, "not_found"),
        (["open", "--resume", "no-such-id", "--detach"], 1, "no_session"),
    ],
    ids=lambda value: None,
)
def test_a_mistake_has_its_code_alone_on_the_first_line_of_stderr(
    desk: Desk, words: list[str], code: int, error: str
) -> None:
    """In words with a sentence and a way out; with --json as a document, and stderr holds the code alone."""
    done = desk.run(*words)
    assert (done.code, done.out) == (code, "")
    first, sentence, *hints = done.err.splitlines()
    assert (first, sentence[:10]) == (error, "postroom: ")
    assert hints
    assert hints[-1].startswith("  ")
    document = desk.run(*words, "--json")
    assert (document.code, document.err) == (code, f"{error}\n")
    said: dict[str, Any] = document.error
    assert (said["code"], said["message"], said["hint"]) == (error, sentence[10:], hints[-1][2:])


@pytest.mark.rule("10.38")
def test_an_empty_session_is_nobody_and_not_whoever_stands_in_the_environment(desk: Desk) -> None:
    """`--session "$NAME"` with nothing in it."""
    for words in (["--session", "", "status"], ["status", "--session="]):
        done = desk.run(*words, environ={"POSTROOM_SESSION": "bob"})
        assert (done.code, done.err.split()[0]) == (1, "no_session")
    assert desk.run("status", environ={"POSTROOM_SESSION": "bob"}).code == 0


@pytest.mark.rule("10.37")
@pytest.mark.parametrize(
    "words", ["list", "list --json", "--help", "--session bob status", "--session bob list"]
)
@pytest.mark.parametrize("where", [">&-", ">/dev/full", "| true", ">/dev/full 2>&-"])
def test_what_cannot_be_printed_ends_with_1_and_without_a_traceback(
    desk: Desk, words: str, where: str
) -> None:
    """A closed stdout, a full disk, a reader that has gone: the same for a session's answer and for one made here."""
    done = shell(desk, f"postroom {words} {where}; exit ${{PIPESTATUS[0]}}")
    assert done.code == 1 or (where == "| true" and done.code == 0)  # who was faster
    assert "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.rule("10.37")
def test_a_reader_that_has_gone_for_sure(desk: Desk) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as gone:
        for words in (["list"], ["--session", "bob", "status"]):
            done = subprocess.run(
                [COMMAND, *words],
                env=desk.environ,
                stdout=gone,
                stderr=subprocess.PIPE,
                timeout=SECONDS,
                check=False,
            )
            assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.rule("10.37")
def test_closed_standard_streams_are_not_mixed_up_with_what_is_opened(desk: Desk) -> None:
    """Nothing is read as standard input or written as output that is a socket or a file of the command's own."""
    assert shell(desk, "postroom --session bob send bob - <&-").err.startswith(
        "usage\npostroom: Standard input"
    )
    assert shell(desk, "postroom send bob - <&-").err.startswith("usage\npostroom: Standard input")
    assert shell(desk, "postroom frobnicate >&-").code == 2
    assert shell(desk, "postroom frobnicate 2>&-").code == 2
    assert shell(desk, "postroom list 2>&-").code == 0
    assert shell(desk, "postroom --session bob status <&- >&- 2>&-").code == 1
    assert json.loads(shell(desk, "postroom --session bob status --json <&- 2>&-").out)["counts"] == {}


@pytest.mark.rule("10.37")
def test_output_is_utf8_whatever_the_locale(desk: Desk) -> None:
    """As a session's answer is: bytes that `ask` passes on."""
    for locale in ("C", "POSIX", "en_US.ISO-8859-1"):
        plain = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        assert shell(desk, "postroom --help", **plain).out == arguments.overview()
        assert shell(desk, "postroom list", **plain).out.startswith("bob [")


@pytest.mark.rule("10.9", "05.12")
def test_close_returns_when_the_session_has_gone(desk: Desk) -> None:
    """So that whoever closes may resume at once: its lock is free, its record and sockets are removed."""
    opened = desk.open("carol")
    desk.ok("--session", "carol", "close")
    left = [
        path.name
        for folder in ("state/sessions", "run/postroom")
        for path in (desk.folder / folder).iterdir()
    ]
    assert not [name for name in left if name.partition(".")[0] == str(opened["pid"])]
    again = desk.open(None, "--resume", opened["session_id"])
    assert again["name"] == "carol"
    assert desk.ok("--session", "carol", "close", "--forget")["session_id"] == opened["session_id"]
    assert desk.refused("open", "--resume", opened["session_id"], "--detach")["code"] == "no_session"


@pytest.mark.rule("10.9")
def test_what_has_ended_can_be_forgotten_and_not_closed(desk: Desk) -> None:
    opened = desk.open("dora")
    desk.kill(opened)
    assert desk.refused("--session", "dora", "close")["code"] == "no_session"
    assert desk.ok("--session", "dora", "close", "--forget") == {
        "session_id": opened["session_id"],
        "expired": 0,
    }
    assert desk.refused("--session", "dora", "close", "--forget")["code"] == "no_session"
    assert not running(opened["pid"])


@pytest.mark.rule("10.9")
def test_a_programs_session_is_not_closed_from_outside(desk: Desk) -> None:
    """`postroom close` ends what `postroom open` keeps; a program decides by itself, and nothing else is claimed."""
    program = """
import asyncio, sys
from postroom import open_session

async def main():
    async with open_session("edith") as session:
        print(session.id, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(session.closed)

asyncio.run(main())
"""
    interpreter = str(Path(COMMAND).with_name("python"))
    with subprocess.Popen(
        [interpreter, "-c", program],
        env=desk.environ,
        cwd=desk.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        session_id = process.stdout.readline().strip()
        assert desk.refused("--session", session_id, "close")["code"] == "session_in_use"
        assert desk.ok("--session", "edith", "status")["session_id"] == session_id
        out, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (0, "False\n")
