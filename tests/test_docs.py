"""The documentation, held against the code: nothing in it is missing or stale.

What the code has (commands and options, keys of JSON documents, codes, environment variables, limits, public
names, states) is taken from the code, and each must be a heading, or a row of a table, of the page that is its
place, with a sentence behind it. What a page has and the code has not is as wrong.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, cast, get_args

import pytest

import postroom
from postroom import arguments, boards, client, errors, present, reach, speaking, verdicts
from postroom.console import doctor, team_mending, team_view
from postroom.console.checks import finding
from postroom.console.setting_up import files as setup_files
from postroom.console.setting_up import pieces, programs, shown
from postroom.core import holds, inbound, notices
from postroom.core.holds import Hold
from postroom.core.listing import Listing, Row
from postroom.core.message import (
    Decided,
    Explanation,
    Message,
    Near,
    Notice,
    Origin,
    Party,
    Pin,
    Receipt,
    Rule,
    State,
    Step,
    TaskNotification,
)
from postroom.core.queues import Entry
from postroom.core.refusals import CODES
from postroom.core.settings import Limits
from postroom.core.taskfile import Task
from postroom.core.tasks import REFUSALS, Board
from postroom.core.team import Team
from postroom.session import Session, Status
from postroom.state import keeping
from postroom.state.keeping import DAY, Retention
from tests.pages import Section, agree, is_sentence, page_of, spans, table_rows

PACKAGE = Path(postroom.__file__).parent

# ── what the source says ─────────────────────────────────────────────────────────────────────────

SOURCES = {
    ".".join(
        part for part in file.relative_to(PACKAGE).with_suffix("").parts if part != "__init__"
    ): ast.parse(file.read_text())
    for file in sorted(PACKAGE.rglob("*.py"))
}
"""Module, without `postroom.` → its source."""


def texts(tree: ast.Module) -> Iterator[str]:
    """Every text in a module's code; those that stand alone, as docstrings do, are left out."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in alone:
            if isinstance(node.value, str):
                yield node.value
            elif isinstance(node.value, bytes):
                yield node.value.decode("latin-1")


# ── commands and options ─────────────────────────────────────────────────────────────────────────


def command_sections() -> dict[str, Section]:
    """Each command → its section of commands.md: a heading such as ``## `postroom list`, `postroom peers` ``."""
    found: dict[str, Section] = {}
    for section in page_of("docs/commands.md").sections:
        for span in spans(section.title):
            if section.level == 2 and span.startswith("postroom "):
                found[span.removeprefix("postroom ")] = section
    return found


def arguments_of(command: str) -> dict[str, arguments.Argument]:
    """What a command takes, as its row begins (`TEXT`, `--take`, `--limit N`); hidden arguments are left out."""
    takes = arguments.COMMANDS[command].takes + arguments.EVERYWHERE
    return {one.form: one for one in takes if one.shown}


EVERYWHERE = {"--json", "--session NAME-or-ID"}
"""Every command takes these; they are documented once."""


def test_every_command_has_its_section() -> None:
    sections = command_sections()
    agree(sections, arguments.COMMANDS)
    for command, section in sections.items():
        assert is_sentence(section.text.strip().split("\n\n")[0]), f"{command} has no sentence behind it"


@pytest.mark.parametrize("command", arguments.COMMANDS)
def test_every_option_has_its_row(command: str) -> None:
    actions = arguments_of(command)
    assert actions.keys() >= EVERYWHERE
    rows = table_rows([command_sections()[command]], "argument")
    agree(rows, actions.keys() - EVERYWHERE)
    for name, row in rows.items():
        meaning, action = row["meaning"], actions[name]
        for choice in action.choices:
            assert f"`{choice}`" in meaning, f"{command} {name} takes {choice} too"
        if action.default not in (None, False, ()):
            assert str(action.default) in meaning, f"{command} {name} has the default {action.default}"


def test_the_options_of_every_command_have_their_rows() -> None:
    rows = table_rows([page_of("docs/commands.md").section("Every command")], "argument")
    own = {text for text in texts(SOURCES["console.cli"]) if re.fullmatch(r"--[a-z-]+", text)}
    agree(rows, EVERYWHERE | own - {"--json", "--session"})


def test_every_exit_code_has_its_row() -> None:
    rows = table_rows(page_of("docs/commands.md").sections, "exit code")
    agree(rows, {"0", "1", "130", *map(str, present.EXIT_CODES.values())})


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────

PEER = Origin(
    kind="peer", identity="id-1", verified=True, name="api", address="uds:/x.sock", stated_class="prompting"
)
STRANGER = Origin(kind="peer", identity="process:1:2")
MESSAGES = (
    Message(
        msg_id="m",
        text="t",
        origin=PEER,
        received_at=0,
        summary="s",
        sent_at="…",
        in_reply_to="n",
        held=True,
        approved_by="user",
    ),
    Message(msg_id="m", text="t", origin=STRANGER, received_at=0),
)
TOLD = TaskNotification(
    task_id="t",
    name="a",
    status="completed",
    run=1,
    at=0,
    output_path="/o",
    result="r",
    usage={"input_tokens": 3},
)
ENTRIES = (
    Entry("m", "t", Origin(kind="observer", identity="o", verified=True, name="o"), severity="info"),
    Entry("m", "", Origin(kind="agent", identity="t", verified=True, name="a"), task=TOLD),
    Entry(
        "m",
        "",
        Origin(kind="agent", identity="t", verified=True, name="a"),
        task=replace(TOLD, output_path=None, worktree="/w", result=None),
    ),
)
NOTICES = (Notice(kind="held", at=0, msg_id="m", about="api", detail="d"), Notice(kind="idle", at=0))
PARTY = Party(name="api", ref="3fa9c1", kind="session")
RECEIPTS = (
    Receipt(
        status="queued", msg_id="m", to=PARTY, note="n", pin=Pin(name="api", identity="id-1"), warnings=("w",)
    ),
    Receipt(status="unknown", msg_id="m", to=PARTY, note="n", warnings=("w",)),
    Receipt(status="resumed", msg_id="m", to=PARTY, note="n", warnings=("w",), result="r"),
)
STATUSES = (
    Status(
        name="a",
        ref="3fa9c1",
        session_id="i",
        peer_address="uds:/x",
        inbound="hold",
        off=("send",),
        problems=("p",),
        counts={"c": 1},
    ),
    Status(name="a", ref="3fa9c1", session_id="i", peer_address=None, problems=("p",), counts={"c": 1}),
)
ROW = Row(identity="i", name="a", aliases=("b",), warnings=("w",), type="t")
LISTINGS = (
    Listing(own=ROW, rows=(ROW,), unchecked=(("p", "r"),)),
    Listing(own=None, rows=(ROW,), unchecked=(("p", "r"),)),
)
HELD = tuple(
    Hold(row=1, message=message, cause="mode-mismatch", scope="default", rung="class", expires_at=expires_at)
    for message, expires_at in zip(MESSAGES, (0, None), strict=True)
)
EXPLANATIONS = (
    Explanation(
        outcome="held", rung="class", scope="default", cause="mode-mismatch", then="held", state="held"
    ),
    Explanation(outcome="accepted", rung="class", scope="default", cause=""),
)
RULES = (Rule(id="1", identity="id-1", name="api", since=0),)
STEPS = (Step(msg_id="m", at=0, where="a", state="queued", detail="d"),)
COMMAND = pieces.Command(python="/python", script="/postroom")
PROGRAMS = tuple(programs.program(name, COMMAND, {"HOME": "/"}) for name in ("cursor", "generic"))
EDITS = (
    setup_files.Edit(file=setup_files.File(path="/f", target="/f", data=None, found=None), data=b"{}\n"),
)


def with_reply(reply: Any) -> Any:
    """What `send --wait-reply` answers."""
    return {**present.receipt_document(RECEIPTS[0]), "reply": reply}


MESSAGE = present.message_document(MESSAGES[0])
NOTICE = present.notice_document(NOTICES[0])
TASK = boards.task_document(Task(id="1", subject="s"))
BOARD = Board(tasks={"1": Task(id="1", subject="s")}, unreadable={"2": "it is empty"})
TEAM = team_view.Seen(
    team=Team(name="t", created_at=1),
    folder="/t",
    members=(team_view.Place(name="a", state="left", joined_at=1, at=2, active=False),),
    inboxes=(
        team_view.Inbox(
            name="a", member=True, oldest="o", sender="s", age=1, kept=(team_view.Kept(name="q", size=1),)
        ),
    ),
    board=BOARD,
)
EMPTY_TEAM = replace(
    TEAM,
    team=Team(name="t"),
    members=(team_view.Place(name="a", state="lead", joined_at=0),),
    inboxes=(team_view.Inbox(name="a", member=True, kept=TEAM.inboxes[0].kept),),
)
ROW_DOCUMENT = present.row_document(ROW)

DOCUMENTS: dict[str, list[Any]] = {
    "`send`": [*map(present.receipt_document, RECEIPTS), with_reply(MESSAGE), with_reply(None)],
    "An error": [
        present.error_document("ambiguous", "m", "h", [Near(name="a", ref="3fa9c1")]),
        present.error_document("unknown", "m", "h", [Near(name="a", ref="3fa9c1")], "m"),
    ],
    "A message": [
        *(present.message_document(message) for message in MESSAGES),
        *(speaking.entry_document(entry) for entry in ENTRIES),
    ],
    "A notice": [present.notice_document(notice) for notice in NOTICES],
    "`inbox` and `wait`": [present.inbox_document(MESSAGES[:1], NOTICES[:1])],
    "`held`": [verdicts.held_document([hold]) for hold in HELD],
    "`approve` and `deny`": [verdicts.decided_document(Decided(msg_id="m", state="denied"))],
    "`explain`": [verdicts.explanation_document(explanation) for explanation in EXPLANATIONS],
    "`rules`": [verdicts.rules_document(RULES)],
    "`status` and `rename`": [present.status_document(status) for status in STATUSES],
    "`open --detach`": [
        present.opened_document(status, 1, socket)
        for status, socket in zip(STATUSES, ("/x", None), strict=True)
    ],
    "A row": [ROW_DOCUMENT],
    "`list`": [present.listing_document(answer) for answer in LISTINGS],
    "`trace`": [
        json.loads(
            present.trace_text("m", STEPS, as_json=True, mermaid=False, unchecked=(("bob", "it hangs"),))
        )
    ],
    "`log`": [json.loads(present.log_text(STEPS, as_json=True))],
    "A task": [
        TASK,
        boards.task_document(
            Task(
                id="2", subject="s", active_form="a", owner="o", blocks=("3",), blocked_by=("1",), metadata={}
            ),
            ("1",),
        ),
    ],
    "`task create`, `task update`, `task claim` and `task get`": [
        boards.step_document(TASK, assigned="o", unblocked=("3",), warnings=("w",)),
        boards.step_document(None),
    ],
    "`task list`": [boards.board_document(BOARD, tuple(BOARD.tasks.values()))],
    "`team`": [team_view.document(TEAM), team_view.document(EMPTY_TEAM)],
    "`team repair`": [
        team_mending.document(team_mending.Mended(team="t", kept=[("/t/a.json.quarantine", "quarantine", 1)]))
    ],
    "`team send`": [
        {
            "status": "partial",
            "results": [
                {"to": "a", "status": "written", "msg_id": "m", **present.error_document("c", "m", "h")}
            ],
        }
    ],
    "`team join`": [{"team": "t", "name": "n"}],
    "`team leave`": [{"team": "t"}],
    "`close`": [{"session_id": "i", "expired": 0}],
    "`move`": [{"session_id": "i", "mode": "default", "turn": "unknown"}],
    "`doctor`": [doctor.document_of(doctor.Examined(findings=(finding.found("held", "w", "m"),)))],
    "`doors`": [
        {
            **present.status_document(status),
            "client": "c",
            "turn": "idle",
            "waiters": 0,
            "unread": 0,
            "most": 1,
            "oldest": oldest,
            "waited": 0,
            "doors": [reach.door_document(client.MCP, "")],
        }
        for status, oldest in zip(STATUSES, ("…", None), strict=True)
    ],
    "`setup` and `unsetup`": [
        shown.document(program, EDITS, backups, written=True, notes=(), follow=program.next)
        for program, backups in zip(PROGRAMS, (["/b"], [None]), strict=True)
    ],
}
"""Section of json.md → documents of that kind, as the code makes them; together they show every key and type.

`close` is made where it is answered and not in `present`: see the test of such documents.
"""

WHOLE = {"message": MESSAGE, "notice": NOTICE, "row": ROW_DOCUMENT, "task": TASK}
"""Parts that have a section of their own: elsewhere their name is the type."""

WORDS: dict[type, str] = {str: "string", bool: "boolean", int: "number"}

OPEN = {"counts": "object of number", "usage": "object of number", "metadata": "object"}
"""Objects whose keys are not fixed, and the words for their type."""


def types_of(value: Any) -> set[str]:
    """The words for the type of a value that has no keys of its own."""
    for name, whole in WHOLE.items():
        if value == whole:
            return {name}
    if value == []:
        return {"array of string"}  # nothing fills it yet
    if isinstance(value, list):
        return {f"array of {word}" for one in cast("list[Any]", value) for word in types_of(one)}
    return {"null"} if value is None else {WORDS[type(value)]}


def shape(document: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Every key of a document, as `to.name` or `rows[].msg_id`, with its type."""
    for key, value in document.items():
        path = before + key
        first: Any = next(iter(cast("list[Any]", value)), None) if isinstance(value, list) else None
        if key in OPEN and value is not None:
            yield path, OPEN[key]
        elif isinstance(value, dict) and value not in WHOLE.values():
            yield from shape(cast("dict[str, Any]", value), f"{path}.")
        elif isinstance(first, dict) and first not in WHOLE.values():
            yield from shape(cast("dict[str, Any]", first), f"{path}[].")
        else:
            yield from ((path, word) for word in types_of(value))


def keys_of(title: str) -> dict[str, set[str]]:
    """Every key of one kind of document → the types that it has."""
    found: dict[str, set[str]] = {}
    for document in DOCUMENTS[title]:
        for path, word in shape(document):
            found.setdefault(path, set()).add(word)
    return found


@pytest.mark.rule("10.29")
@pytest.mark.parametrize("title", DOCUMENTS)
def test_every_key_has_its_row(title: str) -> None:
    rows = table_rows([page_of("docs/json.md").section(title)], "key")
    keys = keys_of(title)
    agree(rows, keys)
    documented = {key: set(row["type"].split(" or ")) for key, row in rows.items()}
    assert documented == keys


def test_no_document_is_described_that_does_not_exist() -> None:
    described = [
        s.title for s in page_of("docs/json.md").sections if any(t.header[0] == "key" for t in s.tables)
    ]
    agree(described, DOCUMENTS)


def test_every_kind_of_notice_is_named() -> None:
    made = {
        ast.literal_eval(keyword.value)
        for tree in SOURCES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Notice"
        for keyword in node.keywords
        if keyword.arg == "kind" and isinstance(keyword.value, ast.Constant)
    }
    assert made
    row = table_rows([page_of("docs/json.md").section("A notice")], "key")["kind"]
    agree(spans(row["meaning"]), made | notices.TOLD | notices.IDLE_STATES)


def test_every_cause_of_a_hold_has_its_row() -> None:
    agree(table_rows([page_of("docs/json.md").section("Causes")], "cause"), verdicts.CAUSES)


def test_documents_that_are_made_outside_present_are_described() -> None:
    """Found by their shape: a dictionary of fixed keys that is answered, dumped, or called a document."""
    known = [set(documents[0]) for documents in DOCUMENTS.values()]
    keys = {key for title in DOCUMENTS for key in keys_of(title)}
    seen = 0
    for module, tree in SOURCES.items():
        if module in (
            "present",
            "clients.dialect",
            "core.frames",
        ):  # the others have other programs' own documents
            continue
        for node in ast.walk(tree):
            made: list[ast.expr] = []
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith((".answer", "dumps")):
                made = node.args
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "document":
                made = [node.value]
            elif isinstance(node, ast.Assign) and (
                added := re.fullmatch(r"document\['(\w+)'\]", ast.unparse(node.targets[0]))
            ):
                assert added[1] in keys or any(added[1] == key.partition(".")[0] for key in keys)
            for one in made:
                if isinstance(one, ast.Dict):
                    assert {ast.literal_eval(key) for key in one.keys if key is not None} in known, (
                        ast.unparse(one)
                    )
                    seen += 1
    assert seen > 0


def counted_words() -> Iterator[str]:
    """The words under which something is counted, and connections are ended; those made at run time as `control-…`."""
    for module, tree in SOURCES.items():
        if not module.startswith(("transports", "session", "hearing", "idling", "control", "core.wire")):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or len(node.args) != 1:
                continue
            if ast.unparse(node.func).rpartition(".")[2].lstrip("_") not in ("count", "drop", "Ignored"):
                continue
            what = node.args[0]
            for word in (what.body, what.orelse) if isinstance(what, ast.IfExp) else (what,):
                if isinstance(word, ast.JoinedStr) and isinstance(word.values[0], ast.Constant):
                    yield f"{word.values[0].value}…"
                elif isinstance(word, ast.Constant) and isinstance(word.value, str) and word.value:
                    yield word.value


def test_every_word_that_is_counted_has_its_row() -> None:
    agree(table_rows([page_of("docs/json.md").section("Counts")], "word"), counted_words())


# ── codes ────────────────────────────────────────────────────────────────────────────────────────


def raised_codes() -> set[str]:
    """The codes of every exception."""
    every = [getattr(errors, name) for name in errors.__all__]
    return {error.code for error in every}


def answered_codes() -> Iterator[str]:
    """Codes that a module writes out where it refuses."""
    for tree in SOURCES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = ast.unparse(node.func).rpartition(".")[2]
                if name in ("refuse", "refusal", "fail", "error_document") and isinstance(
                    node.args[0].value, str
                ):
                    yield node.args[0].value


def test_every_code_has_its_row() -> None:
    rows = table_rows(page_of("docs/errors.md").sections, "code")
    agree(rows, {*CODES, *REFUSALS, *raised_codes(), *answered_codes()})
    for code, row in rows.items():
        assert is_sentence(row["what is wrong"]), f"{code} does not say what is wrong"
        assert row["exit"] == str(present.exit_code(code)), f"{code} has another exit code"
        built = code not in CODES or CODES[code].built
        assert ("*not yet*" in row["code"]) is not built, f"{code} is marked as if it were otherwise"


# ── environment and limits ───────────────────────────────────────────────────────────────────────


def test_every_environment_variable_has_its_row() -> None:
    real = {
        name
        for tree in SOURCES.values()
        for text in texts(tree)
        for name in re.findall(r"(?:POSTROOM|XDG)_[A-Z_]*[A-Z]", text)
    }
    rows = table_rows(page_of("docs/settings.md").sections, "variable")
    agree(rows, real | {"HOME"})


INNER = {
    "MAX_AMOUNT": "the largest number that every reader of JSON keeps exact",
    "UNBOUNDED": "stands for no limit",
    "HASH_DIGITS": "the length of a SHA-256",
    "MAX_RAW_NAME": "follows from MAX_NAME",
    "DERIVED_STEM": "follows from MAX_NAME",
    "SUMMARY_LENGTH": "is MAX_SUMMARY",
    "NOTE_LENGTH": "is WORDS_LIMIT",
    "NAME_WRITTEN": "is MAX_NAME",
    "NAME_READ": "a neighbour's grammar",
    "CHAIN_LIMIT": "a neighbour's grammar",
    "TOKEN_DIGITS": "a neighbour's grammar",
    **dict.fromkeys(("MAX_LINE_UNITS", "MAX_SEEN", "MAX_SESSION_ID", "MAX_WORD"), "Qwen Code's grammar"),
    "MAX_ACTION": "of a word that is counted under its name",
    "MAX_DROPPED": "is MAX_IDS",
    "NAME_LENGTH": "is MAX_NAME",
    "PATH_BYTES": "is CONTROL_PATH_LIMIT",
    "LAST_ID": "follows from MAX_DIGITS",
    "OTHERS": "mode bits",
    **dict.fromkeys(("DAY", "MINUTE"), "a unit"),
    "UNSAID": "stands for no period",
    "FIRST_PROCESS": "the kernel's",
    "SUBSCRIPTIONS": "MAX_WATCHERS and MAX_ASKED come first",
    "APPLICATION": "a mark in a file",
    **dict.fromkeys(("VERSION", "SCHEMA", "PROTOCOL"), "a version"),
    **dict.fromkeys(("MAX_PID", "MAX_TIME", "MAX_FEATURES"), "what a neighbour's record can hold"),
    **dict.fromkeys(
        ("MAX_CLAIM", "MAX_MARK", "MAX_MEMORY", "MAX_SMALL", "MAX_TENURE"), "of a small file of our own"
    ),
    **dict.fromkeys(
        ("TICK_NS", "WHOLE_SECONDS_NS", "SETTLED_NS", "TORN_NS"), "the tick of a file system's clock"
    ),
    "STAT_BYTES": "of a line that the kernel makes",
    **dict.fromkeys(("APPEND", "CHUNK"), "how a file is read and written"),
    **dict.fromkeys(("LOGGED", "LOGGED_AGAIN"), "how often a line of the log is written"),
    **dict.fromkeys(
        ("MAX_USAGE", "MAX_NUMBER", "MAX_ENCODED", "MAX_SHORT", "MAX_LEVELS"),
        "what a file of our own can hold",
    ),
    "FIELDS": "of a line that the kernel makes",
    **dict.fromkeys(("SHOWN_AGAIN", "AGAIN_MS"), "how often a row is written anew"),
    **dict.fromkeys(("SO_PEERCRED", "AT_ONCE", "LISTENS"), "the kernel's"),
    "BATCH": "work in one step",
    **dict.fromkeys(("WOKEN", "MOVED"), "an exit code"),
    "NEAR_POOL": "work in one step",
    **dict.fromkeys(
        ("MAKE_TRIES", "FRESH_TRIES", "TRIES", "LINKS"), "how often something is tried inside one step"
    ),
    **dict.fromkeys(
        "PAGE FRAME FIRST_PAGES MESSAGE_PAGES CHARACTERS_PER_PAGE WRITE_PAGES BIG_PAGES RELEASE_PAGES".split(),
        "pages of SQLite's",
    ),
    **dict.fromkeys(
        ("ARRIVAL_PAGES", "VACUUM_PAGES", "STEPS_PER_BATCH", "BATCH_CHARACTERS"), "work in one step"
    ),
    **dict.fromkeys(("READ_BYTES", "WRITE_BYTES", "ACCEPTS"), "work in one step"),
    **dict.fromkeys(
        ("BUSY_SECONDS", "PAUSE_SECONDS", "FOLDER_SECONDS", "STEP_SECONDS"),
        "a pause inside one step",
    ),
    **dict.fromkeys(
        ("STRAY_ANSWERS", "CONNECTIONS_A_LINE", "MAX_FIELDS_NAMED", "MAX_AGO_DIGITS", "MOST_TYPED", "NAMED"),
        "inside one module",
    ),
    **dict.fromkeys(("REMEMBERED", "WATCHED"), "how much is kept ready; forgetting costs a look"),
    "DOUBTED": "how much is kept ready; forgetting costs a row of the journal",
}
"""Numbers of the code that nobody outside can come up against, each with the reason. Every other one is documented."""


def named_numbers() -> dict[str, set[float]]:
    """Every public named number of the code → its values; fields of the records of limits are among them."""
    found: dict[str, set[float]] = {}
    for module, tree in SOURCES.items():
        for node in tree.body:
            target = (
                node.targets[0]
                if isinstance(node, ast.Assign)
                else node.target
                if isinstance(node, ast.AnnAssign)
                else None
            )
            if isinstance(target, ast.Name) and target.id.isupper() and not target.id.startswith("_"):
                value = vars(import_module(f"postroom.{module}" if module else "postroom"))[target.id]
                if isinstance(value, int | float) and not isinstance(value, bool):
                    found.setdefault(target.id, set()).add(value)
    for record in (Limits(), Retention()):
        for one in fields(record):
            found[f"{type(record).__name__}.{one.name}"] = {getattr(record, one.name)}
    return found


def shows(text: str, value: float) -> bool:
    """Whether a cell names the number; an age in milliseconds may be given in days."""
    ways = [f"{value:,.12g}"] + ([f"{value // DAY:g} days"] if value >= DAY and value % DAY == 0 else [])
    return any(re.search(rf"(?<![\d.,]){re.escape(way)}(?![\d]|[.,]\d)", text) for way in ways)


def test_every_limit_has_its_row() -> None:
    numbers = named_numbers()
    pages = [page_of(f"docs/{name}.md") for name in ("limits", "limits-clients", "limits-teams")]
    rows = table_rows([section for page in pages for section in page.sections], "limit")
    assert INNER.keys() <= numbers.keys(), f"gone from the code: {INNER.keys() - numbers.keys()}"
    agree(rows, numbers.keys() - INNER.keys())
    for name, row in rows.items():
        for value in numbers[name]:
            assert shows(row["value"], value), f"{name} is {value:,}"


def test_the_clean_up_is_said_to_run_where_it_does() -> None:
    """What bounds the files of a machine holds only if something calls it (11.10)."""
    called = {
        node.func.attr
        for module, tree in SOURCES.items()
        if not module.startswith("transports")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    runs = {"prune", "expire"} <= called
    for name in ("docs/limits.md", "docs/guarantees.md", "docs/how-a-message-travels.md"):
        said = re.search(r"[Nn]othing runs (this clean-up|it)", page_of(name).prose) is None
        assert said is runs, f"{name} says otherwise"


# ── names and states ─────────────────────────────────────────────────────────────────────────────


HOSTS = {
    *(
        "apply",
        "arrive",
        "begin",
        # for the agents inside it, and what they are steered by
        *("chain_token", "host", "journal", "listing_for", "new_id", "on_mail", "on_team", "pinned"),
        *("recipients_for", "send_as", "unhost", "took_chains", "waits_inside"),
        *("answered", "cause", "turn_chain", "seat", "sending_to", "take_in", "turn_over", "went"),
        *(
            "called",
            "denied_behind",
            "doing",
            "heard",
            "log",
            "noted",
            "pass_on",
            "reached",
            "reported",
            "sat_before",
            "rang",
            "seen",
            "stirs",
            "take_back",
            "tell",
        ),
        "control",
        "count",
        "found",
        "leave",
        "now",
        "send_call",
        "serve",
        "wait_for",
    ),
}
"""Methods of a session for transports and for hosts, which a program that opens one has no use for."""


def test_every_public_name_has_its_row() -> None:
    rows = table_rows(page_of("docs/names.md").sections, "name")
    agree(rows, vars(postroom)["__all__"])


def test_every_argument_and_method_has_its_row() -> None:
    page = page_of("docs/library.md")
    taken = table_rows(page.sections, "argument of `open_session`")
    agree(taken, signature(postroom.open_session).parameters)
    called = {re.sub(r"^.*?(\w+)(\(.*)$", r"\1", name) for name in table_rows(page.sections, "method")}
    public = {name for name in dir(Session) if callable(getattr(Session, name)) and not name.startswith("_")}
    assert public >= HOSTS
    agree(called, public - HOSTS)


def judgements(value: object) -> Iterator[inbound.Judgement]:
    """Every answer of the ladder in a value of its module: it is one, or a table of them."""
    if isinstance(value, inbound.Judgement):
        yield value
    elif isinstance(value, Mapping):
        for one in cast("Mapping[object, object]", value).values():
            yield from judgements(one)


def journaled() -> Iterator[str]:
    """The words that stand in a journal, the states of a message apart, whoever writes them there.

    What the ladder answers to what is not kept; what becomes of a message here, and what its sender is told of that;
    what is written by the way.
    """
    yield from (one.journal for value in vars(inbound).values() for one in judgements(value) if one.journal)
    yield from (row.receiver for row in holds.WHO_IS_TOLD.values())
    yield from notices.TOLD
    yield from (keeping.NOT_TOLD, keeping.NOT_READ)
    for module in ("session", "telling", "attending", "tools"):
        for node in ast.walk(SOURCES[module]):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).endswith((".note", ".noted"))
                and isinstance(node.args[1], ast.Constant)
            ):
                yield str(node.args[1].value)


def test_every_state_has_its_row() -> None:
    rows = table_rows(page_of("docs/how-a-message-travels.md").sections, "state")
    agree(rows, {*get_args(State), *journaled()})


def test_the_tree_names_every_module() -> None:
    """In CONTRIBUTING.md: each module at the top, of the core and of the state; nothing there is gone."""
    (tree,) = page_of("CONTRIBUTING.md").section("The tree").tables
    named = {
        span.removesuffix(".py").rstrip("/") for row in tree.rows for cell in row for span in spans(cell)
    }
    real = {module.rpartition(".")[2] for module in SOURCES if module.startswith(("core.", "state."))}
    real |= {module for module in SOURCES if "." not in module} - {"", "__main__"}
    folders = {"uds", "memory", "host", "asking"}
    agree(named - folders, real)
