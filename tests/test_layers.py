"""Who may import whom: the table of the design, held against every import in the package.

Every import counts: at the top of a module, inside a function, under TYPE_CHECKING, through
`import_module` with a literal name. Only a table of names read at run time (the registries in
`transports/__init__.py`, `console/cli.py` and the package's own) is out of sight here.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import postroom

PACKAGE = Path(postroom.__file__).parent

GROUND = ("errors", "state.files", "state.processes")

FOLDERS = ("core", "state", "console", "console.commands", "console.checks", "console.looks")
"""Folders that hold nothing but a sentence: what is imported from one is a module in it."""

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # The first row that fits a module counts. `x.*` means every module of the folder x, and not x itself.
    "errors": (),
    "ask": (),
    "hook": ("ask",),
    "core.*": ("errors", "core.*"),  # and only downward: RANKS
    "arguments": ("core.*", "errors"),
    "present": ("core.*", "errors"),
    "transport": ("core.*", "errors"),
    "client": ("core.*", "errors"),
    "state.files": ("errors",),
    "state.processes": ("errors",),
    "directory": ("core.*", "errors", "state.record"),
    "state.directory": ("core.*", "errors", "state.*", "directory"),
    "state.memory_directory": ("core.*", "errors", "state.*", "directory"),
    "state.*": ("core.*", "errors", "state.*"),  # and only downward: RANKS
    "neighbour": ("core.*", "errors", "state.record"),
    "neighbours": ("neighbour", "errors", "neighbours.*"),
    "neighbours.records": GROUND,  # what a neighbour's file may share with another's
    "neighbours.qwen_code": (
        *("neighbour", "core.*", *GROUND, "state.record", "neighbours.records", "neighbours.qwen_frames"),
    ),
    "neighbours.claude_record": ("neighbour", "errors", "state.record", "neighbours.records"),
    "neighbours.claude_code": (
        *("neighbour", "core.*", *GROUND, "state.record", "neighbours.records", "neighbours.claude_record"),
    ),
    "neighbours.*": ("neighbour", "core.*", *GROUND, "state.record"),
    "neighbourhood": ("core.*", "errors", "directory", "neighbour", "neighbours", "state.record"),
    "crossing": (
        *("core.*", "errors", "neighbour", "neighbourhood", "transport", "transports", "transports.uds"),
    ),
    "transports": ("transport", "core.*", "errors", "transports.*"),
    "transports.uds": ("transport", "core.*", *GROUND, "transports.uds.*"),  # one transport in several files
    "transports.uds.*": ("transport", "core.*", *GROUND, "transports.uds.*"),
    "transports.mailbox": ("core.*", *GROUND, "state.locks"),
    "transports.*": ("transport", "core.*", *GROUND),
    "recipients": ("core.*", "errors", "directory", "commits", "state.keeping"),
    "origins": ("core.*", "directory", "transport", "state.keeping"),
    "commits": ("core.*", "errors", "transport", "state.keeping"),
    "voice": ("agent", "core.*", "recipients"),
    "hosting": (
        "core.*",
        "errors",
        "commits",
        "directory",
        "origins",
        "recipients",
        "sending",
        "teaming",
        "voice",
        "state.keeping",
    ),
    # The agents inside a session (chapter 06).
    "calling": (),
    "outcome": ("core.*", "errors"),
    "batch": ("core.*",),
    "mainline": ("batch", "calling", "commits", "core.*", "errors", "session"),
    "agent": (
        *("agents", "batch", "commits", "core.*", "errors", "outcome", "resuming", "voice"),
        "state.transcripts",
    ),
    "resuming": (
        *("agent", "agents", "batch", "calling", "core.*", "errors", "lifecycle", "state.agent_files"),
    ),
    "lifecycle": ("calling", "core.*", "errors"),
    "delivering": ("agent", "core.*", "lifecycle", "mainline", "resuming", "sending", "session", "voice"),
    "scripting": ("agent", "calling", "core.*", "errors", "outcome"),
    "announcing": (
        *("agent", "core.*", "delivering", "errors", "lifecycle", "mainline", "session"),
        "state.agent_files",
    ),
    "remembering": (
        *("agent", "ask", "core.*", "errors", "session", "state.agent_files", "state.transcripts"),
    ),
    "agents": (
        *("agent", "announcing", "ask", "batch", "core.*", "delivering", "errors", "lifecycle", "mainline"),
        *("outcome", "remembering", "resuming", "scripting", "session", "voice", "state.agent_files"),
    ),
    # A session's place in a team (chapter 07).
    "mailing": (
        *("core.*", "errors", "session", "voice", "state.locks", "state.team_files"),
        "transports.mailbox",
    ),
    "teaming": (
        *("core.*", "errors", "mailing", "session", "voice", "state.locks", "state.tasklist"),
        *("state.team_files", "transports.mailbox"),
    ),
    "joining": (
        *("call", "control", "core.*", "errors", "session", "teaming"),
        *("state.locks", "state.team_files", "state.teams"),
    ),
    "enlisting": ("agent", "agents", "core.*", "errors", "joining", "teaming"),
    # The parts of a session, each of which one of its concerns is left to.
    "alarm": (),
    "standing": ("core.*",),
    "telling": ("core.*", "commits", "directory", "transport", "state.keeping"),
    "hearing": ("core.*", "errors", "commits", "directory", "transport", "state.keeping"),
    "holding": ("core.*", "errors", "commits", "standing", "telling", "state.keeping"),
    "idling": (*("core.*", "hearing", "origins", "standing", "telling", "transport", "state.keeping"),),
    "sending": ("core.*", "commits", "idling", "standing", "transport", "voice", "state.keeping"),
    "taking": (
        *("core.*", "errors", "commits", "hearing", "idling", "sending", "standing", "telling"),
        "state.keeping",
    ),
    "attending": (
        *("core.*", "errors", "commits", "hearing", "idling", "telling", "directory"),
        "state.keeping",
        "state.record",
    ),
    "deciding": (*("core.*", "commits", "holding", "recipients", "sending", "standing", "state.keeping"),),
    "session": (
        *("core.*", "state.*", "errors", "directory", "origins", "commits", "recipients"),
        *("alarm", "standing", "telling", "hearing", "holding", "idling", "sending", "taking", "deciding"),
        *("attending", "hosting", "voice"),
        *("transport", "client", "transports", "neighbours"),
    ),
    "desktop": ("core.*", "present", "session"),
    "door": ("ask", "core.*", "errors", "transport"),
    "verdicts": ("present", "core.*"),
    "call": ("agent", "core.*", "arguments", "present", "transport"),
    "counter": (
        *("session", "door", "call", "core.*", "errors", "present", "verdicts", "transport"),
        "state.processes",
    ),
    "control": (
        *("session", "door", "call", "counter", "core.*", "errors", "arguments", "present", "transport"),
        *("agent", "state.processes", "state.roster"),
    ),
    "tools": (
        *("agent", "batch", "call", "control", "core.*", "errors", "present", "session", "task_tools"),
        "task_steps",
    ),
    "boards": ("core.*", "present"),
    "task_steps": ("agent", "boards", "core.*", "errors", "present", "session", "teaming", "state.locks"),
    "task_tools": (
        *("agent", "arguments", "call", "control", "core.*", "errors", "session", "task_steps", "tools"),
    ),
    "speaking": ("agent", "arguments", "batch", "call", "control", "core.*", "present", "tools"),
    "opening": (
        *(
            "joining",
            "session",
            "standing",
            "desktop",
            "control",
            "counter",
            "door",
            "ask",
            "core.*",
            "state.*",
            "errors",
            "neighbourhood",
            "crossing",
        ),
        "transport",
        *("transports", "transports.*"),
    ),
    "doors": ("client", "core.*", "session"),
    "doors.codex_threads": ("doors", "state.processes"),
    "doors.codex_app_server": ("core.*", "doors", "doors.codex_threads", "state.processes"),
    "doors.codex_queue": ("core.*", "doors", "doors.codex_threads", "state.processes"),
    "doors.opencode_http": ("core.*", "doors", "state.processes"),
    "doors.native": (
        *("core.*", "errors", "doors", "neighbour", "neighbours", "crossing"),
        *("transport", "transports", "transports.uds"),
    ),
    "doors.ringing": ("client", "core.*", "errors", "doors", "session"),
    "lineage": ("client", "clients", "doors.*", "core.*", "state.*"),
    "presence": (
        *("ask", "opening", "session", "standing", "call", "control", "lineage", "client", "clients"),
        *("neighbour", "neighbours", "doors.*", "core.*", "errors", "state.*"),
    ),
    "clients": ("clients.*", "client", "errors"),
    "clients.dialect": ("client",),
    "clients.hooks": ("clients", "call", "client", "control", "core.*", "errors", "session"),
    "clients.stdio": (),
    "clients.asking": ("arguments", "core.*", "errors", "present", "session", "verdicts"),
    "clients.lodging": ("ask", "core.*", "door", "errors", "session", "tools"),
    "clients.mcp": (
        *("arguments", "clients", "clients.asking", "clients.lodging", "clients.stdio", "core.*", "errors"),
        *("client", "lineage", "presence", "present", "session", "state.processes", "task_tools", "tools"),
    ),
    "clients.*": (
        *("session", "control", "call", "ask", "client", "clients", "core.*", "errors", "clients.hooks"),
        *("present", "presence", "tools", "arguments", "state.processes", "clients.dialect"),
    ),
    "reach": (*("call", "client", "clients", "control", "core.*", "doors", "present", "session"),),
    "console.checks.*": ("core.*", "console.checks.*"),  # functions of facts alone
    "console.*": ("*",),  # another console module's insides apart, as everywhere: no private names
    "__main__": ("ask", "hook", "errors", "console.*"),
    **dict.fromkeys(FOLDERS, ()),
}

RANKS: dict[str, tuple[tuple[str, ...], ...]] = {
    "core": (
        ("times",),
        ("message", "address", "scrub", "keys"),
        ("frames", "requests", "settings", "envelope", "refusals", "index", "taskfile"),
        ("inbound",),
        (
            "wire",
            "contract",
            "resolve",
            "loops",
            "queues",
            "holds",
            "drops",
            "tasks",
            "listing",
            "portion",
            "ringing",
            "runs",
            "mailfile",
            "team",
            "roles",
        ),
        ("route", "inbox", "letter", "notices", "report", "transcript", "teamfile", "frame_text", "forms"),
    ),
    "state": (
        ("files", "processes", "record", "schema", "keeping"),
        (
            *("places", "tenure", "names", "store_files", "memory_tables", "watch", "scopes", "transcripts"),
            "locks",
        ),
        ("belongings", "database", "config", "memory_store", "agent_files", "tasklist", "team_files"),
        ("teams", "readings", "journal"),
        ("writer",),
        ("store_holds",),
        ("roster", "store"),
        ("directory",),
        ("memory_directory",),
    ),
}
"""Core and state, from the ground up: a module imports only from the rows above its own."""

RANK = {
    f"{folder}.{name}": rank
    for folder, rows in RANKS.items()
    for rank, names in enumerate(rows)
    for name in names
}

PURE = frozenset(
    "__future__ base64 bisect collections dataclasses datetime difflib enum functools hashlib heapq hmac itertools json math"
    " operator re string threading types typing unicodedata".split()
)
"""All of the standard library that the core may use: no I/O, clock, randomness or logging comes with it.

`threading` is here for the lock of the queues, to which any thread may append.

`datetime` is here for writing times that were given; its clocks are CLOCKS.
"""

CLOCKS = ("datetime.now", "datetime.today", "datetime.utcnow", "date.today")

STANDARD = sys.stdlib_module_names | {"_sha2"}
"""The standard library, with what versions newer than the running one have."""

THIRD_PARTY: dict[str, tuple[str, ...]] = {
    "core.wire": ("msgspec",),
    "core.mailfile": ("msgspec",),
    "transports.nats": ("nats",),
    "doors.codex_app_server": ("websockets",),
    "clients.mcp": ("mcp", "anyio"),
    "clients.stdio": ("mcp", "anyio"),
}

STREAMS = frozenset(
    "open_connection open_unix_connection start_server start_unix_server"
    " StreamReader StreamReaderProtocol StreamWriter".split()
)
"""asyncio's streams cost five times the listener on the event loop (12.24): they appear nowhere."""


def module_of(file: Path) -> str:
    """`core.message` for core/message.py, `core` for core/__init__.py, nothing for the package itself."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(tree: ast.Module, module: str, is_folder: bool) -> Iterator[tuple[str, str]]:
    """Each import as (whole module name, name taken from it or nothing)."""
    here = ["postroom", *filter(None, module.split("."))]
    if not is_folder:
        here.pop()
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((alias.name, "") for alias in node.names)
            case ast.ImportFrom():
                start = here[: len(here) + 1 - node.level] if node.level else []
                source = ".".join([*start, *filter(None, [node.module])])
                yield from ((source, alias.name) for alias in node.names)
            case ast.Call(args=[ast.Constant(value=str(name)), *_]):
                if ast.unparse(node.func) in {"import_module", "importlib.import_module", "__import__"}:
                    yield name, ""
            case _:
                pass


def row_for(module: str) -> tuple[str, ...] | None:
    """What the table lets a module import; None for a module that it does not know."""
    if module.startswith(("core.", "state.")) and module not in RANK:
        return None
    return next((may for row, may in MAY_IMPORT.items() if fnmatchcase(module, row)), None)


def of_one_folder(module: str, target: str) -> bool:
    """Whether both have a place in the ranks of the same folder."""
    return module in RANK and target in RANK and module.partition(".")[0] == target.partition(".")[0]


def complaints(module: str, source: str, modules: set[str], *, is_folder: bool = False) -> list[str]:
    """What a module's source does against the table, as sentences; `modules` are all that exist."""
    tree = ast.parse(source)
    may = row_for(module)
    if may is None:
        return [
            f"{module} is not in the table: give it a row in MAY_IMPORT (a core module: a place in RANKS)"
        ]
    said: list[str] = []
    for origin, name in imports(tree, module, is_folder):
        top, _, rest = origin.partition(".")
        if (origin, name) == ("postroom", "__version__"):
            continue
        if top != "postroom":
            if top in STANDARD:
                if module.startswith("core.") and top not in PURE:
                    said.append(f"{module} imports {origin}, which is not in PURE")
            elif top not in THIRD_PARTY.get(module, ()):
                said.append(f"{module} imports {origin}: only {THIRD_PARTY} may use another's library")
            continue
        target = ".".join(filter(None, (rest, name)))
        if target not in modules and rest not in FOLDERS:
            target = rest
            if name.startswith("_"):
                said.append(f"{module} takes {name} out of {target}, which is private there")
        if not target:
            said.append(f"{module} imports {name} from the package itself and not from its module")
        elif not any(fnmatchcase(target, row) for row in may):
            said.append(f"{module} imports {target}; it may import {', '.join(may) or 'nothing of ours'}")
        elif of_one_folder(module, target) and RANK[target] >= RANK[module]:
            said.append(f"{module} imports {target}, which does not lie below it in RANKS")
    for node in ast.walk(tree):
        name = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "name", None)
        if isinstance(node, ast.Attribute | ast.Name | ast.alias) and name in STREAMS:
            said.append(f"{module} uses {name}: no streams, the listener stands on the event loop (12.24)")
        if (
            module.startswith("core.")
            and isinstance(node, ast.Attribute)
            and ast.unparse(node).endswith(CLOCKS)
        ):
            said.append(f"{module} asks a clock, {ast.unparse(node)}: in the core, time is an argument")
    return said


FILES = {module_of(file): file for file in sorted(PACKAGE.rglob("*.py"))}


@pytest.mark.parametrize("module", [module for module in FILES if module])
def test_a_module_imports_only_what_the_table_lets_it(module: str) -> None:
    file = FILES[module]
    said = complaints(module, file.read_text(), set(FILES), is_folder=file.name == "__init__.py")
    assert said == []


def test_the_package_itself_imports_nothing_when_it_is_loaded() -> None:
    """Its imports are for type checkers, or inside the function that loads a name."""
    body = ast.parse(FILES[""].read_text()).body
    loaded = [node.module for node in body if isinstance(node, ast.ImportFrom)]
    assert loaded == ["__future__"]
    assert not any(isinstance(node, ast.Import) for node in body)


EXISTING = {
    *(
        "errors",
        "ask",
        "session",
        "client",
        "core",
        "core.message",
        "core.address",
        "core.envelope",
        "core.wire",
    ),
    *("core.inbound", "core.resolve", "state", "state.files", "state.store", "transports", "transports.uds"),
    *("transports.memory", "console", "console.cli", "console.doctor"),
}


@pytest.mark.parametrize(
    ("module", "source", "says"),
    [
        ("mystery", "", "mystery is not in the table"),
        ("core.mystery", "", "core.mystery is not in the table"),
        ("ask", "import postroom.errors", "ask imports errors"),
        ("ask", "def f():\n    from .core.message import Message", "ask imports core.message"),
        ("core.message", "import os.path", "core.message imports os.path"),
        ("core.message", "if TYPE_CHECKING:\n    import asyncio", "core.message imports asyncio"),
        ("core.message", "import datetime\ndatetime.datetime.now()", "core.message asks a clock"),
        ("core.resolve", "from postroom.session import Session", "core.resolve imports session"),
        ("core.message", "from postroom.core.address import x", "does not lie below it"),
        ("core.envelope", "from postroom.core import wire", "does not lie below it"),
        ("core.resolve", "from . import inbox", "does not lie below it"),
        ("core.resolve", "import msgspec", "core.resolve imports msgspec"),
        ("session", "import msgspec", "session imports msgspec"),
        ("session", "from postroom.transports import uds", "session imports transports.uds"),
        ("session", "import_module('postroom.transports.uds')", "session imports transports.uds"),
        (
            "transports.uds",
            "from postroom.transports.memory import Hub",
            "transports.uds imports transports.memory",
        ),
        ("transports.uds", "from postroom.state import store", "transports.uds imports state.store"),
        ("transports.uds", "import asyncio\nasyncio.start_unix_server", "no streams"),
        ("transports.uds", "from asyncio import StreamReader as R", "no streams"),
        ("state.files", "from postroom.core.message import Message", "state.files imports core.message"),
        ("console.cli", "from postroom.console.doctor import _look", "private there"),
        ("console.cli", "from postroom import Session", "from the package itself"),
        ("console.cli", "import rich", "console.cli imports rich"),
    ],
)
def test_the_table_has_teeth(module: str, source: str, says: str) -> None:
    said = complaints(module, source, EXISTING)
    assert len(said) == 1
    assert says in said[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("core.wire", "import msgspec\nfrom postroom.core import message\nfrom .envelope import Frame"),
        ("core.letter", "from dataclasses import dataclass\nfrom postroom.core.resolve import Resolved"),
        (
            "session",
            "from postroom import transports\nfrom postroom.state.store import Store\nimport asyncio",
        ),
        ("transports.uds", "import socket\nfrom postroom.errors import WireError"),
        ("console.cli", "from postroom.session import Session\nfrom postroom.console import doctor"),
    ],
)
def test_the_table_lets_pass(module: str, source: str) -> None:
    assert complaints(module, source, EXISTING) == []
