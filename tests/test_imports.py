"""What is loaded when: the package costs nothing to import, the fast commands load nothing slow.

Each look happens in a fresh process, and for a command on the command as pip installed it, launcher and all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.desk import Desk
from tests.posing import Posed
from tests.strangers import private_desk

COMMAND = Path(sys.executable).with_name("postroom")

FORBIDDEN = frozenset(
    "re enum json socket asyncio argparse typing dataclasses pathlib logging subprocess uuid"
    " msgspec sqlite3 mcp nats".split()
)
"""What `hook` and `send` never load (12.16): each costs more than everything else that they do."""

BENEATH = frozenset("_socket _json _sha256 _sha2 unicodedata".split())
"""The C modules that they stand on in place of those."""

FAST = [
    ("--session", "alice", "send", "bob", "hello"),
    ("send", "bob", "hello again"),
    ("--session", "alice", "held"),
    ("--session", "alice", "inbox"),
    ("--session", "alice", "inbox", "--take", "--json"),
    ("--session", "alice", "wait", "--timeout", "0"),
    ("--session", "alice", "status"),
    ("--session", "alice", "list"),
    ("list", "--json"),
]
"""The command lines that must start fast: a live session answers them. `hook` is beside them: a client runs it.

Those without `--session` run with what a command inside alice finds in its environment.
"""

HEAVY = frozenset("asyncio msgspec sqlite3 subprocess argparse socket logging uuid pathlib shutil".split())
"""What the other quick commands do without (12.17)."""

OUR_HEAVY = frozenset(
    "session control opening transport core.wire core.envelope core.contract core.resolve core.index core.message"
    " state.store state.database transports".split()
)
"""The same of ours: what a session is made of."""


@dataclass(frozen=True)
class Looked:
    """One process that has run."""

    code: int
    out: str
    modules: frozenset[str]


def look_at(argv: list[str], environment: Mapping[str, str] | None = None) -> Looked:
    """Runs a command to its end: its exit code, what it printed, every module that its process imported."""
    done = subprocess.run(
        argv,
        env={**(os.environ if environment is None else environment), "PYTHONPROFILEIMPORTTIME": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return Looked(done.returncode, done.stdout, imported(done.stderr))


def imported(profile: str) -> frozenset[str]:
    """The modules that a process imported, from what PYTHONPROFILEIMPORTTIME had it write."""
    lines = [line for line in profile.splitlines() if line.startswith("import time:")]
    return frozenset({line.rpartition("|")[2].strip() for line in lines} - {"imported package"})


def roots(modules: frozenset[str]) -> set[str]:
    """The packages to which modules belong."""
    return {name.partition(".")[0] for name in modules}


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A private place with alice and bob open."""
    with private_desk() as desk:
        desk.open("alice")
        desk.open("bob")
        yield desk


@pytest.fixture(scope="module")
def bare() -> frozenset[str]:
    """What the interpreter loads in any case."""
    return look_at([sys.executable, "-c", "pass"]).modules


def test_the_look_sees_what_is_loaded() -> None:
    seen = look_at([sys.executable, "-c", "import json; print(7); raise SystemExit(3)"])
    assert (seen.code, seen.out) == (3, "7\n")
    assert {"json", "re", "enum"} <= seen.modules
    assert "socket" not in seen.modules


def test_importing_the_package_loads_nothing_slow() -> None:
    seen = look_at([sys.executable, "-c", "import postroom"]).modules
    assert "postroom" in seen
    assert {name for name in seen if name.startswith("postroom.")} == set()
    assert roots(seen) & FORBIDDEN == set()


@pytest.mark.rule("12.16")
@pytest.mark.parametrize("arguments", FAST, ids=" ".join)
def test_a_fast_command_loads_nothing_slow(
    arguments: tuple[str, ...], desk: Desk, bare: frozenset[str]
) -> None:
    """It does its work, with two modules of ours and the C modules beneath the slow ones."""
    environment = dict(desk.environ)
    if "--session" not in arguments:
        alice = next(one for one in desk.opened.values() if one["name"] == "alice")
        environment["POSTROOM_SESSION"] = alice["session_id"]
    seen = look_at([str(COMMAND), *arguments], environment)
    assert seen.code == (3 if "wait" in arguments else 0), seen
    assert seen.out
    assert roots(seen.modules) & FORBIDDEN == set()
    ours = {"postroom", "postroom.__main__", "postroom.ask"}
    assert ours <= seen.modules
    assert seen.modules - bare - ours - BENEATH - {"__future__"} == set()


HOOKS = {
    "nothing waits": ("claude-code", "PostToolUse"),
    "mail waits": ("claude-code", "PostToolUse"),
    "the turn ends": ("claude-code", "Stop"),
    "an event that is not known": ("claude-code", "Earthquake"),
    "another client": ("codex", "PostToolUse"),
}
"""What a client's hooks run into: it must cost no more in any case (12.15)."""


@pytest.mark.rule("12.16")
@pytest.mark.parametrize("case", list(HOOKS))
def test_a_hook_loads_nothing_slow(case: str, desk: Desk, bare: frozenset[str]) -> None:
    """As a client runs it, with its session in another process: one module more than the other fast commands."""
    client, event = HOOKS[case]
    posed = Posed(desk, conversation="conv-imports")
    try:
        posed.hook("SessionStart", source="startup")
        if case == "mail waits":
            (row,) = [row for row in desk.ok("list")["rows"] if row["session_id"] == posed.session()]
            desk.send(next(iter(desk.opened)), f"{row['name']} [{row['ref']}]", "hello")
        profiled = {"PYTHONPROFILEIMPORTTIME": "1"}
        done = posed.start(
            str(COMMAND), "hook", client, event, stdin=posed.event(event), environ=profiled
        ).done()
    finally:
        posed.end()
    assert done.code == 0, done
    assert ("hello" in done.out) == (case == "mail waits")
    modules = imported(done.err)
    assert roots(modules) & FORBIDDEN == set()
    ours = {"postroom", "postroom.__main__", "postroom.ask", "postroom.hook"}
    assert ours <= modules
    assert modules - bare - ours - BENEATH - {"__future__"} == set()


@pytest.mark.parametrize(
    ("arguments", "code", "never"),
    [
        (("list",), 0, HEAVY),
        (("list", "--json"), 0, HEAVY),
        (("--help",), 0, HEAVY | {"dataclasses", "json", "hashlib"}),
        (("send", "--help"), 0, HEAVY | {"dataclasses", "json", "hashlib"}),
        (("--version",), 0, HEAVY | {"dataclasses", "json", "hashlib"}),
        (("frobnicate",), 2, HEAVY | {"dataclasses"}),
        (("inbox",), 1, HEAVY),
    ],
    ids=["list", "list --json", "--help", "send --help", "--version", "no command", "inbox"],
)
def test_a_quick_command_without_a_session_loads_little(
    arguments: tuple[str, ...], code: int, never: frozenset[str], desk: Desk
) -> None:
    """It costs a few times the interpreter's start: nothing of what a session is made of comes with it (12.17)."""
    seen = look_at([str(COMMAND), *arguments], desk.environ)
    assert seen.code == code, seen
    assert "postroom.console.cli" in seen.modules
    assert roots(seen.modules) & never == set()
    assert {name for name in seen.modules if name.removeprefix("postroom.") in OUR_HEAVY} == set()
    if arguments[0] == "list":
        assert "bob" in seen.out
