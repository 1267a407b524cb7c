"""Whose session a hook is for: the short way finds what `presence` finds, in real families of processes (09.11)."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.desk import Desk
from tests.posing import Posed
from tests.strangers import private_desk

WHICH = str(Path(__file__).parent / "parties" / "which.py")

INSIDE = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
"""A program that runs one command as its child."""

SHELL = ["/bin/sh", "-c", '"$0" "$@"; exit $?']


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A private place."""
    with private_desk() as desk:
        yield desk


@pytest.fixture(scope="module")
def outer(desk: Desk) -> Iterator[Posed]:
    """A posed Claude Code that has a session."""
    posed = Posed(desk, conversation="conv-outer")
    posed.hook("SessionStart", source="startup")
    yield posed
    posed.end()


@pytest.fixture(scope="module")
def codex(desk: Desk) -> Iterator[Posed]:
    """A posed Codex that has a session."""
    posed = Posed(desk, "codex", conversation="conv-codex")
    posed.hook("SessionStart", source="startup")
    yield posed
    posed.end()


def which(posed: Posed, client: str, conversation: str, *around: list[str], **environ: str) -> dict[str, Any]:
    """What both ways say about a process that a posed client starts through these words; they must say the same."""
    argv = [*(word for words in around for word in words), sys.executable, WHICH, client, conversation]
    done = posed.start(*argv, shell=False, environ=environ).done()
    assert done.code == 0, done
    found = json.loads(done.out)
    assert found["session"][0] == found["session"][1], found
    assert found["process"][0] == found["process"][1], found
    return {name: answers[0] for name, answers in found.items()}


def called(name: str) -> list[str]:
    """A program called so, that runs what follows as its child."""
    program = shlex.join([sys.executable, "-I", "-c", INSIDE])
    return ["/bin/bash", "-c", f'exec -a {name} {program} "$0" "$@"']


@pytest.mark.rule("09.11")
def test_right_below_the_client(outer: Posed) -> None:
    found = which(outer, "claude-code", "")
    assert found["session"] == outer.session()
    assert found["process"][0] == outer.pid
    assert which(outer, "claude-code", "conv-outer")["session"] == outer.session()
    assert which(outer, "claude-code", "conv-after-clear")["session"] == outer.session()


@pytest.mark.rule("09.11")
@pytest.mark.parametrize(
    "between",
    [["/usr/bin/env"], ["timeout", "30"], SHELL, ["setsid", "-w"], ["nohup"]],
    ids=lambda each: each[0],
)
def test_through_what_only_stands_between(outer: Posed, between: list[str]) -> None:
    assert which(outer, "claude-code", "", between, SHELL)["session"] == outer.session()


@pytest.mark.rule("09.11", "10.38")
@pytest.mark.parametrize(
    ("name", "client"),
    [
        ("/opt/codex", "codex"),
        ("/opt/claude", "claude-code"),
        ("/opt/gemini", "gemini-cli"),
        ("/opt/anything", "codex"),
    ],
)
def test_never_past_another_program(outer: Posed, name: str, client: str) -> None:
    """Nor past another process of the same client, above its shell: what was inherited does not count."""
    found = which(outer, client, "", SHELL, called(name), SHELL, POSTROOM_SESSION=outer.session())
    assert found["session"] is None
    assert found["process"][0] != outer.pid
    assert which(outer, client, "conv-of-its-own", SHELL, called(name))["session"] is None


@pytest.mark.rule("09.11")
def test_past_the_clients_own_launcher(desk: Desk) -> None:
    """A script that starts the program itself, as Node's packages do: the session may be known by either."""
    posed = Posed(desk, "gemini-cli", conversation="conv-launched")
    posed.hook("SessionStart", source="startup")
    found = which(posed, "gemini-cli", "", called("/opt/gemini"), SHELL)
    assert found["session"] == posed.session()
    posed.end()


@pytest.mark.rule("09.11", "10.8")
@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_a_session_that_a_person_opened_around_a_shell_is_its_clients(desk: Desk, shell: str) -> None:
    """The client that is started in it, through its launcher or not; and nobody that this one runs in turn."""
    argv = [sys.executable, WHICH, "qwen-code", ""]
    inner = [[*called("/opt/qwen"), *SHELL], [*called("/opt/qwen"), *called("/opt/qwen"), *SHELL]]
    nested = [*called("/opt/qwen"), *SHELL, *called("/opt/qwen"), *SHELL]
    script = "; ".join(shlex.join([*words, *argv]) for words in (*inner, nested))
    done = desk.run("open", "--name", f"around-{shell}", "--", f"/bin/{shell}", "-c", f"{script}; :")
    assert done.code == 0, done
    direct, launched, nested_in = (json.loads(line)["session"] for line in done.out.splitlines())
    assert direct[0] is not None
    assert direct == launched == [direct[0], direct[0]]
    assert nested_in == [None, None]


@pytest.mark.rule("09.11")
def test_a_variable_of_the_client_names_its_process(outer: Posed) -> None:
    wrapper = called("/opt/wrapper")
    assert which(outer, "claude-code", "", wrapper)["process"][0] != outer.pid
    found = which(outer, "claude-code", "", wrapper, CLAUDE_PID=str(outer.pid))
    assert found["process"][0] == outer.pid
    assert which(outer, "claude-code", "", CLAUDE_PID="999999999")["process"][0] == outer.pid


@pytest.mark.rule("09.11")
def test_a_client_with_several_conversations_keeps_them_apart(codex: Posed) -> None:
    assert which(codex, "codex", "conv-codex")["session"] == codex.session()
    assert which(codex, "codex", "conv-other-thread")["session"] is None
    assert which(codex, "codex", "")["session"] == codex.session()


@pytest.mark.rule("09.11")
def test_a_client_without_a_session_has_none(desk: Desk) -> None:
    posed = Posed(desk, "qwen-code", conversation="conv-none")
    start = Path(f"/proc/{posed.pid}/stat").read_text().rpartition(")")[2].split()[19]
    assert which(posed, "qwen-code", "conv-none") == {"session": None, "process": [posed.pid, start]}
    posed.kill()
