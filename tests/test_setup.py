"""`postroom setup` and `unsetup`: on real files in a private home (09.17, 10.15).

The installed command is started once for each client, and on a terminal. The matrix runs the same command line inside
this process, where what is written down is tried once for all.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from shlex import split
from typing import Any
from unittest import mock

import pytest

from postroom import arguments
from postroom.clients import CLIENTS, load
from postroom.console import cli
from postroom.console.commands import setup
from postroom.console.setting_up import files, jsonc, plan, programs, shown
from postroom.console.setting_up.pieces import Command, Hooks, Program, Publishing, Server
from postroom.console.setting_up.refused import Refused
from postroom.core.keys import NEIGHBOURS
from tests.desk import COMMAND, Desk, Done
from tests.screen import screen

WITH_FILES = [name for name in CLIENTS if name != "generic"]
INSTALLED_SETUP = ("claude-code", "codex", "opencode", "cursor")
"""Those of which the installed command does the setting up, one of each kind of file; of the rest the taking out."""

VARIABLES = (
    *("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "QWEN_HOME", "XDG_CONFIG_HOME"),
    *("VSCODE_PORTABLE", "VSCODE_APPDATA"),
)


class Terminal(io.StringIO):
    """A stream that says that somebody sits in front of it."""

    def isatty(self) -> bool:
        return True


class Inside(Desk):
    """A desk whose commands run inside this process."""

    def run(
        self,
        *words: str,
        stdin: str | bytes | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> Done:
        """Runs one command line; where `stdin` is a text, somebody types it at a terminal."""
        kind = Terminal if isinstance(stdin, str) else io.StringIO
        out, err, keyboard = kind(), io.StringIO(), kind(stdin if isinstance(stdin, str) else "")
        with (
            mock.patch.dict(os.environ, {**self.environ, **(environ or {})}, clear=True),
            mock.patch.object(sys, "stdin", keyboard),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            contextlib.chdir(cwd or self.folder),
        ):
            try:
                code = cli.main(list(words))
            finally:
                gc.enable()  # a command of its own needs none
        return Done(code, out.getvalue(), err.getvalue())


@cache
def runs(python: str, script: str) -> bool:
    """What the trial of the command comes to, tried once."""
    return really_runs(python, script)


@cache
def server_lacks(python: str) -> tuple[str, ...]:
    """What the trial of the server comes to, tried once."""
    return really_lacks(python)


really_runs, really_lacks = setup.runs, setup.server_lacks


@pytest.fixture
def desk(home: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """A private place whose home folder is empty; no variable moves anything in it."""
    environ = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    (home / "me").mkdir()
    monkeypatch.setattr(setup, "runs", runs)
    monkeypatch.setattr(setup, "server_lacks", server_lacks)
    return Inside(home, {**environ, "HOME": str(home / "me")})


OURS = Command(python="/opt/a b/python", script="/opt/a b/postroom")


def row_of(desk: Inside, client: str, command: Command = OURS) -> Program:
    return programs.program(client, command, desk.environ)


def paths_of(row: Program) -> list[str]:
    """The files that a row is about, each once."""
    return list(dict.fromkeys(piece.paths[0] for piece in row.pieces))


def set_up(desk: Inside, client: str, command: Command = OURS) -> plan.Plan:
    made = plan.setting_up(row_of(desk, client, command))
    files.write(made.changes, client, desk.environ)
    return made


def take_out(desk: Inside, client: str, command: Command = OURS) -> plan.Plan:
    made = plan.taking_out(row_of(desk, client, command))
    files.write(made.changes, client, desk.environ)
    return made


def content(path: str) -> dict[str, Any]:
    text = Path(path).read_text(encoding="utf-8-sig")
    if path.endswith(".toml"):
        return tomllib.loads(text)
    root = jsonc.parse(text)
    assert root is not None
    return root.value


def all_is_in(row: Program) -> None:
    """Every piece of a row stands where it belongs, and starts what it should."""
    for piece in row.pieces:
        found = content(next(path for path in piece.paths if os.path.exists(path)))
        if isinstance(piece, Publishing):
            assert found["publishTo"].count(piece.word) == 1
        elif isinstance(piece, Server):
            for key in (*piece.keys, "postroom"):
                found = found[key]
            assert found == piece.entry
        else:
            for hook in piece.hooks:
                assert found["hooks"][hook.event].count(piece.entry(hook)) == 1
            ours = [piece.entry(hook) for hook in piece.hooks]
            others = any(one not in ours for each in found["hooks"].values() for one in each or [None])
            assert not piece.version or others or found["version"] == piece.version


# ── the table ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.17")
def test_there_is_one_list_of_clients(desk: Inside) -> None:
    assert tuple(CLIENTS) == arguments.CLIENTS
    assert [row_of(desk, client).name for client in CLIENTS] == list(CLIENTS)
    published = {
        piece.word
        for client in CLIENTS
        for piece in row_of(desk, client).pieces
        if isinstance(piece, Publishing)
    }
    assert published == set(NEIGHBOURS)


@pytest.mark.rule("09.17")
@pytest.mark.parametrize("client", CLIENTS)
def test_hooks_and_server_are_started_isolated_and_by_their_whole_path(desk: Inside, client: str) -> None:
    """So that nothing in a project's folder is imported; a path with a space is quoted for the shell."""
    for piece in row_of(desk, client).pieces:
        if isinstance(piece, Server):
            entry: Any = piece.entry
            words = [entry["command"], *entry["args"]] if "args" in entry else entry["command"]
            assert words == ["/opt/a b/python", "-I", "/opt/a b/postroom", "mcp", "--client", client]
        elif isinstance(piece, Hooks):
            for hook in piece.hooks:
                line = split(piece.command.hook(client, hook.word))
                assert line == ["/opt/a b/python", "-I", "/opt/a b/postroom", "hook", client, hook.word]


@pytest.mark.parametrize("client", CLIENTS)
def test_every_hook_that_is_set_up_is_one_that_is_answered(desk: Inside, client: str) -> None:
    pieces = [piece for piece in row_of(desk, client).pieces if isinstance(piece, Hooks)]
    assert {hook.word for piece in pieces for hook in piece.hooks} <= load(client).events.keys()
    assert bool(pieces) is bool(load(client).events)


@pytest.mark.rule("09.17")
def test_the_hook_that_waits_for_mail_holds_nothing_up(desk: Inside) -> None:
    """Without `async`, Claude Code without a terminal waits for it before its first turn, which then never comes."""
    settings = row_of(desk, "claude-code").pieces[1]
    assert isinstance(settings, Hooks)
    waking = [hook for hook in settings.hooks if hook.word == "wake"]
    assert [hook.event for hook in waking] == ["SessionStart", "Stop"]
    for hook in waking:
        assert (hook.more["async"], hook.more["asyncRewake"]) == (True, True)


@pytest.mark.rule("09.17")
@pytest.mark.parametrize("client", CLIENTS)
def test_no_permission_is_granted(desk: Inside, client: str) -> None:
    for _, text in shown.snippets(row_of(desk, client)):
        lowered = text.lower()
        assert not [word for word in ("permission", "allow", "approv", "trust", "bypass") if word in lowered]


PLACES: list[tuple[str, dict[str, str], list[str]]] = [
    ("claude-code", {}, ["~/.claude.json", "~/.claude/settings.json"]),
    ("claude-code", {"CLAUDE_CONFIG_DIR": "/x/c"}, ["/x/c/.claude.json", "/x/c/settings.json"]),
    ("codex", {}, ["~/.codex/config.toml", "~/.codex/hooks.json"]),
    ("codex", {"CODEX_HOME": "/x/c"}, ["/x/c/config.toml", "/x/c/hooks.json"]),
    ("gemini-cli", {}, ["~/.gemini/settings.json"]),
    ("gemini-cli", {"GEMINI_CLI_HOME": "/x"}, ["/x/.gemini/settings.json"]),
    ("qwen-code", {}, ["~/.qwen/settings.json"]),
    ("qwen-code", {"QWEN_HOME": "~/q"}, ["~/q/settings.json"]),
    ("opencode", {}, ["~/.config/opencode/opencode.json"]),
    ("opencode", {"XDG_CONFIG_HOME": "/x"}, ["/x/opencode/opencode.json"]),
    ("cursor", {}, ["~/.cursor/mcp.json", "~/.cursor/hooks.json"]),
    ("vscode", {}, ["~/.config/Code/User/mcp.json"]),
    ("vscode", {"XDG_CONFIG_HOME": "/x"}, ["/x/Code/User/mcp.json"]),
    ("vscode", {"VSCODE_PORTABLE": "/x"}, ["/x/user-data/User/mcp.json"]),
    ("vscode", {"VSCODE_APPDATA": "/x"}, ["/x/Code/User/mcp.json"]),
    ("generic", {}, []),
]


@pytest.mark.rule("09.17")
@pytest.mark.parametrize(("client", "moved", "expected"), PLACES)
def test_where_a_program_keeps_its_files(client: str, moved: dict[str, str], expected: list[str]) -> None:
    row = programs.program(client, OURS, {"HOME": "/home/me", **moved})
    found = [path for piece in row.pieces if not isinstance(piece, Publishing) for path in piece.paths[:1]]
    assert list(dict.fromkeys(found)) == [path.replace("~", "/home/me") for path in expected]


def test_the_older_place_of_claude_code_counts_where_it_alone_is_in_use(desk: Inside) -> None:
    me = Path(desk.environ["HOME"])
    (me / ".claude").mkdir()
    (me / ".claude/.config.json").write_text("{}")
    assert row_of(desk, "claude-code").pieces[0].paths == (str(me / ".claude/.config.json"),)
    (me / ".claude.json").write_text("{}")
    assert row_of(desk, "claude-code").pieces[0].paths == (str(me / ".claude.json"),)


@pytest.mark.parametrize("name", ["opencode.jsonc", "config.json"])
def test_of_several_names_the_file_that_is_there_is_edited(desk: Inside, name: str) -> None:
    folder = Path(row_of(desk, "opencode").pieces[0].paths[0]).parent
    folder.mkdir(parents=True)
    (folder / name).write_text("{} // mine\n")
    set_up(desk, "opencode")
    assert [file.name for file in folder.iterdir()] == [name]
    all_is_in(row_of(desk, "opencode"))
    take_out(desk, "opencode")
    assert (folder / name).read_text() == "{} // mine\n"


# ── the same bytes afterwards ────────────────────────────────────────────────────────────────────

MARK = b"\xef\xbb\xbf"

STARTS: dict[str, Callable[[str, str], bytes | None]] = {
    "absent": lambda servers, event: None,
    "empty": lambda servers, event: b"",
    "a line": lambda servers, event: b"\r\n",
    "braces": lambda servers, event: b"{}",
    "braces apart": lambda servers, event: b"{\n}\n",
    "minified": lambda servers, event: f'{{"z":[1,{{}}],"{servers}":{{"other":{{"command":"x"}}}}}}'.encode(),
    "tabs": lambda servers, event: b'{\n\t"z": {\n\t\t"y": []\n\t}\n}\n',
    "mark and CRLF": lambda servers, event: MARK + b'{\r\n    "z": "\xc3\xa9"\r\n}\r\n',
    "empty containers": lambda servers, event: (
        f'{{\n  "hooks": {{"{event}": [], "x": {{}}}},\n  "{servers}": {{ }}\n}}\n'.encode()
    ),
    "their hooks": lambda servers, event: (
        f'{{"version": 1, "hooks": {{\n "{event}": [\n  {{"hooks": [{{"command": "mine hook x y"}}], "command": "z"}}\n ]}}}}\n'.encode()
    ),
}

LOOSE: dict[str, Callable[[str, str], bytes | None]] = {
    "comments": lambda servers, event: (
        f'// top\n{{\n  "z": 1, // one\n  "{servers}": {{ // none\n    /* yet */\n  }},\n}} // end'.encode()
    ),
    "only a comment": lambda servers, event: b"/* nothing */ // yet",
    "trailing commas": lambda servers, event: (
        f'{{"hooks": {{"{event}": [{{"a": 1,}}, ], }}, "{servers}": {{"o": {{}}, }}, }}'.encode()
    ),
}

TOML = {
    "empty": b"",
    "a line": b"\r\n",
    "only a comment": b"# nothing",
    "no final line break": b"a = 1",
    "CRLF and mark": MARK + b"a = 1 # c\r\n\r\n[t]\r\nb = [\r\n 1, # ]\r\n]\r\n",
    "comments": b"# top\n\n[mcp_servers.other] # c\ncommand = 'x'\n\n\n# end\n\n",
    "strings": b"a = \"\"\"\n[mcp_servers.postroom]\n\"\"\"\nb = '''\n# '''\n[[c]]\n\n[[c]]\n",
}


def start_for(path: str, name: str, piece: Any) -> bytes | None:
    """The bytes that a file begins with, in a kind of beginning."""
    servers = (
        piece.keys[0]
        if isinstance(piece, Server)
        else "publishTo"
        if isinstance(piece, Publishing)
        else "mcpServers"
    )
    event = piece.hooks[-1].event if isinstance(piece, Hooks) else "Stop"
    if isinstance(piece, Publishing):
        strict = {"empty containers": b'{"publishTo": []}\n', "minified": b'{"publishTo":["x"],"a":1}'}
        return (
            strict[name]
            if name in strict
            else None
            if name in LOOSE or name == "their hooks"
            else STARTS[name]("a", "b")
        )
    if path.endswith(".toml"):
        return None if name == "absent" else TOML["empty" if name == "empty" else "comments"]
    return {**STARTS, **LOOSE}[name](servers, event)


def lay(desk: Inside, client: str, name: str) -> dict[str, bytes | None]:
    """Lays the files of a client; returns what is in each, None for one that is not there."""
    starts: dict[str, bytes | None] = {}
    for piece in reversed(row_of(desk, client).pieces):
        starts[piece.paths[0]] = start_for(piece.paths[0], name, piece)
    for path, data in starts.items():
        if data is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(data)
    return starts


def now(paths: Any) -> dict[str, bytes | None]:
    return {path: Path(path).read_bytes() if os.path.exists(path) else None for path in paths}


BEGINNINGS = [*STARTS, *LOOSE]


@pytest.mark.rule("09.17", "10.15")
@pytest.mark.parametrize("name", BEGINNINGS)
@pytest.mark.parametrize("client", WITH_FILES)
def test_unsetup_leaves_the_bytes_from_before_setup(desk: Inside, client: str, name: str) -> None:
    """Also without what Postroom remembers; and a second setup finds nothing to do."""
    starts = lay(desk, client, name)
    set_up(desk, client)
    all_is_in(row_of(desk, client))
    after = now(starts)
    assert all(after[path] != data for path, data in starts.items())
    assert set_up(desk, client).changes == ()
    assert now(starts) == after
    shutil.rmtree(desk.environ["POSTROOM_HOME"], ignore_errors=True)
    take_out(desk, client)
    assert now(starts) == starts
    assert take_out(desk, client).changes == ()


@pytest.mark.rule("09.17")
@pytest.mark.parametrize("name", TOML)
def test_unsetup_leaves_the_bytes_of_a_toml_file(desk: Inside, name: str) -> None:
    starts = lay(desk, "codex", "absent")
    config = row_of(desk, "codex").pieces[0].paths[0]
    Path(config).parent.mkdir()
    Path(config).write_bytes(TOML[name])
    starts[config] = TOML[name]
    set_up(desk, "codex")
    all_is_in(row_of(desk, "codex"))
    take_out(desk, "codex")
    assert now(starts) == starts


@pytest.mark.rule("09.17")
@pytest.mark.parametrize("client", WITH_FILES)
def test_the_installed_command_does_and_undoes_it(desk: Inside, client: str) -> None:
    """One half of it as a process of its own: what it writes, or takes out, is what the command line does in here."""
    installed = Desk(desk.folder, desk.environ)
    setting_up, taking_out = (installed, desk) if client in INSTALLED_SETUP else (desk, installed)
    starts = lay(desk, client, "comments")
    first = setting_up.ok("setup", client, "--yes")
    assert (first["client"], first["written"], first["notes"]) == (client, True, [])
    all_is_in(row_of(desk, client, Command(python=str(Path(COMMAND).with_name("python")), script=COMMAND)))
    second = desk.run("setup", client, "--yes")
    assert (second.code, second.err) == (0, "")
    assert "nothing to change" in second.out
    assert taking_out.ok("unsetup", client, "--yes")["written"] is True
    assert now(starts) == starts


@pytest.mark.rule("09.17")
@pytest.mark.parametrize("client", WITH_FILES)
def test_what_was_changed_in_between_stays(desk: Inside, client: str) -> None:
    starts = lay(desk, client, "tabs")
    set_up(desk, client)
    expected: dict[str, bytes | None] = {}
    for path, data in starts.items():
        file = Path(path)
        if path.endswith(".toml"):
            mine = b'\n[mine]\ncommand = "x"\n'
            file.write_bytes(b"first = 1\n" + file.read_bytes() + mine)
            expected[path] = b"first = 1\n" + (data or b"") + mine
        else:
            mine = b'{\n\t"mine": {"hooks": [1]},'
            file.write_bytes(file.read_bytes().replace(b"{", mine, 1))
            expected[path] = (data or b"").replace(b"{", mine, 1)
    take_out(desk, client)
    assert now(starts) == expected


@pytest.mark.rule("09.17")
def test_hooks_that_a_person_put_beside_ours_stay(desk: Inside) -> None:
    path = paths_of(row_of(desk, "claude-code"))[1]
    set_up(desk, "claude-code")
    settings = content(path)
    settings["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "mine"}]})
    settings["hooks"]["SessionStart"][0]["hooks"].insert(0, {"type": "command", "command": "mine too"})
    Path(path).write_text(json.dumps(settings))
    take_out(desk, "claude-code")
    assert content(path) == {
        "hooks": {
            "SessionStart": [{"hooks": [{"type": "command", "command": "mine too"}]}],
            "Stop": [{"hooks": [{"type": "command", "command": "mine"}]}],
        }
    }


@pytest.mark.parametrize("client", WITH_FILES)
def test_a_program_that_wrote_its_files_anew_loses_nothing_but_ours(desk: Inside, client: str) -> None:
    """Some programs save their configuration whole: then the bytes are theirs, and only what is ours goes."""
    for path, data in lay(desk, client, "tabs").items():
        assert data is not None, path
    before = {path: content(path) for path in paths_of(row_of(desk, client))}
    set_up(desk, client)
    for path in before:
        if path.endswith(".json"):
            Path(path).write_text(json.dumps(content(path), indent=2))
    take_out(desk, client)
    assert {path: content(path) for path in before} == before


# ── what is there already ────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.17")
@pytest.mark.parametrize("client", WITH_FILES)
def test_an_entry_of_another_version_is_put_right_and_the_rest_of_it_stays(desk: Inside, client: str) -> None:
    starts = lay(desk, client, "tabs")
    set_up(desk, client, Command(python="/old/python", script="/old/postroom"))
    server = row_of(desk, client).pieces[0]
    path = server.paths[0]
    text = Path(path).read_text()
    if path.endswith(".toml"):
        text = text.replace("tool_timeout_sec = 660", "tool_timeout_sec = 5")
    else:
        text = text.replace('"postroom": {', '"postroom": {"mine": true,')
    Path(path).write_text(text)
    set_up(desk, client)
    assert "/old/" not in "".join(Path(path).read_text() for path in starts)
    found: Any = content(path)
    for key in (*server.keys, "postroom"):  # pyright: ignore
        found = found[key]
    assert found.get("mine") or found["tool_timeout_sec"] == 5
    take_out(desk, client)
    assert now(starts) == starts


def test_a_hook_that_is_gone_comes_back_and_one_that_is_not_known_any_more_goes(desk: Inside) -> None:
    path = paths_of(row_of(desk, "gemini-cli"))[0]
    set_up(desk, "gemini-cli")
    text = Path(path).read_text().replace("gemini-cli AfterTool", "gemini-cli OfOldTimes")
    Path(path).write_text(text)
    set_up(desk, "gemini-cli")
    all_is_in(row_of(desk, "gemini-cli"))
    assert "OfOldTimes" not in Path(path).read_text()


def test_a_hook_that_was_told_word_by_word_is_known_and_put_right(desk: Inside) -> None:
    path = paths_of(row_of(desk, "claude-code"))[1]
    Path(path).parent.mkdir()
    old = {"type": "command", "command": "postroom", "args": ["hook", "claude-code", "Stop"], "timeout": 10}
    Path(path).write_text(json.dumps({"hooks": {"Stop": [{"hooks": [old]}]}}))
    set_up(desk, "claude-code")
    all_is_in(row_of(desk, "claude-code"))


STRANGERS = {
    ".toml": b'# mine\n[mcp_servers.postroom]\ncommand = "mail-sorter"\n',
    ".json": b'{\n  "KEYS": {\n    "postroom": {"command": "mail-sorter", "args": ["mcp"]}\n  }\n}\n',
}


@pytest.mark.rule("09.17")
@pytest.mark.parametrize("client", WITH_FILES)
def test_what_somebody_else_calls_so_is_left_alone_and_named(desk: Inside, client: str) -> None:
    server = row_of(desk, client).pieces[0]
    assert isinstance(server, Server)
    path = Path(server.paths[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    before = STRANGERS[path.suffix].replace(b"KEYS", server.keys[0].encode())
    path.write_bytes(before)
    error = desk.refused("setup", client, "--yes")
    assert error["code"] == "setup_refused"
    assert f"{path}, line {3 if path.suffix == '.json' else 2}, column " in error["message"]
    assert "is not Postroom's" in error["message"]
    left = desk.ok("unsetup", client, "--yes")
    assert left["written"] is False
    assert "is not Postroom's, and stays" in left["notes"][0]
    assert now(paths_of(row_of(desk, client))) == {
        one: before if one == str(path) else None for one in paths_of(row_of(desk, client))
    }


@pytest.mark.rule("09.17")
@pytest.mark.parametrize("client", WITH_FILES)
@pytest.mark.parametrize("verb", ["setup", "unsetup"])
def test_a_broken_file_is_named_with_its_place_and_no_file_is_written(
    desk: Inside, client: str, verb: str
) -> None:
    starts = lay(desk, client, "tabs")
    if verb == "unsetup":
        set_up(desk, client)
    for path in starts:
        whole = now(starts)
        Path(path).write_bytes((whole[path] or b"") + b"\n}")
        broken = now(starts)
        error = desk.refused(verb, client, "--yes")
        assert error["code"] == "setup_refused"
        assert f"{path}, line " in error["message"]
        assert "Nothing is changed, in any file." in error["message"]
        assert now(starts) == broken
        Path(path).write_bytes(whole[path] or b"")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{\n  "mcpServers": []\n}', "line 2, column 17: mcpServers is no object"),
        (b'{"hooks": {"Stop": {}}}', "line 1, column 20: hooks.Stop is no array"),
        (b"[]", "line 1, column 1: what stands here is no object"),
        (b'{\n"a": "\xff"}', "line 2, column 7: it is not UTF-8"),
    ],
)
def test_what_is_of_another_kind_is_named_with_its_place(desk: Inside, data: bytes, says: str) -> None:
    path = paths_of(row_of(desk, "qwen-code"))[0]
    Path(path).parent.mkdir()
    Path(path).write_bytes(data)
    with pytest.raises(Refused) as caught:
        plan.setting_up(row_of(desk, "qwen-code"))
    assert f"{path}, {says}" in caught.value.message


# ── publishing ───────────────────────────────────────────────────────────────────────────────────


def settings_of(desk: Inside, **keys: Any) -> Path:
    """Writes Postroom's own settings of this user; returns the file."""
    file = Path(desk.environ["HOME"]) / ".config/postroom/settings.json"
    file.parent.mkdir(parents=True, mode=0o700)
    file.write_text(json.dumps(keys))
    return file


@pytest.mark.rule("09.9", "09.13")
def test_setup_has_sessions_published_and_unsetup_ends_it(desk: Inside) -> None:
    file = settings_of(desk, dialogExpiry="10m")
    desk.ok("setup", "claude-code", "--yes")
    desk.ok("setup", "qwen-code", "--yes")
    assert json.loads(file.read_text()) == {"dialogExpiry": "10m", "publishTo": ["claude-code", "qwen-code"]}
    desk.ok("unsetup", "claude-code", "--yes")
    assert json.loads(file.read_text()) == {"dialogExpiry": "10m", "publishTo": ["qwen-code"]}
    desk.ok("unsetup", "qwen-code", "--yes")
    assert json.loads(file.read_text()) == {"dialogExpiry": "10m"}


def test_what_a_person_had_written_there_stays_and_is_said(desk: Inside) -> None:
    file = settings_of(desk, publishTo=["claude-code"])
    before = file.read_text()
    desk.ok("setup", "claude-code", "--yes")
    assert file.read_text() == before
    left = desk.ok("unsetup", "claude-code", "--yes")
    assert file.read_text() == before
    assert "publishTo names claude-code, as you wrote it, and stays" in left["notes"][0]


@pytest.mark.parametrize("text", ['{"a": 1} // mine', '{"a": 1, "a": 2}', '{"publishTo": "claude-code"}'])
def test_settings_that_sessions_would_not_read_are_not_edited(desk: Inside, text: str) -> None:
    file = settings_of(desk)
    file.write_text(text)
    assert str(file) in desk.refused("setup", "claude-code", "--yes")["message"]
    assert file.read_text() == text
    assert not os.path.exists(paths_of(row_of(desk, "claude-code"))[0])


# ── files ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.17")
def test_a_symlink_stays_one_and_its_target_is_edited(desk: Inside) -> None:
    path = Path(paths_of(row_of(desk, "gemini-cli"))[0])
    target = desk.folder / "dotfiles" / "gemini.json"
    target.parent.mkdir()
    path.parent.mkdir()
    target.write_text('{"z": 1}\n')
    target.chmod(0o640)
    path.symlink_to(target)
    set_up(desk, "gemini-cli")
    assert path.is_symlink()
    assert "postroom" in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [file.name for file in target.parent.iterdir()] == ["gemini.json"]
    take_out(desk, "gemini-cli")
    assert target.read_text() == '{"z": 1}\n'


def test_a_symlink_to_nothing_is_refused(desk: Inside) -> None:
    path = Path(paths_of(row_of(desk, "gemini-cli"))[0])
    path.parent.mkdir()
    path.symlink_to(desk.folder / "gone")
    assert "symlink to nothing" in desk.refused("setup", "gemini-cli", "--yes")["message"]


@pytest.mark.rule("09.17")
def test_a_read_only_file_is_refused_with_the_way_out(desk: Inside) -> None:
    starts = lay(desk, "codex", "minified")
    hooks = Path(paths_of(row_of(desk, "codex"))[1])
    hooks.chmod(0o400)
    error = desk.refused("setup", "codex", "--yes")
    assert error["message"] == f"{hooks} is read-only."
    assert error["hint"] == f"Run `chmod u+w {hooks}` first."
    assert now(starts) == starts


def test_a_file_of_another_user_is_refused(desk: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(desk, "gemini-cli", "braces")
    made = plan.setting_up(row_of(desk, "gemini-cli"))
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(Refused, match=f"belongs to uid {owner}, and this is uid {owner + 1}"):
        files.check(made.changes[0].file)


@pytest.mark.parametrize("kind", ["folder", "fifo", "blocked"])
def test_what_is_no_file_is_refused(desk: Inside, kind: str) -> None:
    path = Path(paths_of(row_of(desk, "gemini-cli"))[0])
    if kind == "blocked":
        path.parent.write_text("a file where the folder should be")
    else:
        path.parent.mkdir()
        path.mkdir() if kind == "folder" else os.mkfifo(path)
    assert desk.refused("setup", "gemini-cli", "--yes")["code"] == "setup_refused"


@pytest.mark.rule("09.17")
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_failure_at_any_file_leaves_all_as_they_were(
    desk: Inside, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    starts = lay(desk, "claude-code", "minified")
    starts[paths_of(row_of(desk, "claude-code"))[0]] = None
    Path(paths_of(row_of(desk, "claude-code"))[0]).unlink()
    made = plan.setting_up(row_of(desk, "claude-code"))
    replace, calls = os.replace, list[str]()

    def replaced(source: str, target: str) -> None:
        calls.append(target)
        if len(calls) == failing + 1:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", replaced)
    with pytest.raises(Refused, match=r"No space left on device.*Nothing is changed"):
        files.write(made.changes, "claude-code", desk.environ)
    assert now(starts) == starts
    for path in starts:
        left = [name for name in os.listdir(os.path.dirname(path)) if name.endswith(".tmp")]
        assert left == []


@pytest.mark.rule("09.17")
@pytest.mark.parametrize("how", ["written", "made", "gone", "linked"])
def test_a_file_that_changed_after_it_was_shown_is_not_written_over(desk: Inside, how: str) -> None:
    starts = lay(desk, "codex", "absent" if how == "made" else "minified")
    made = plan.setting_up(row_of(desk, "codex"))
    second = Path(paths_of(row_of(desk, "codex"))[1])
    second.parent.mkdir(exist_ok=True)
    if how in ("gone", "linked"):
        second.unlink()
    if how in ("written", "made"):
        second.write_text("theirs")
    if how == "linked":
        (second.parent / "elsewhere").write_bytes(starts[str(second)] or b"")
        second.symlink_to("elsewhere")
    changed = now(starts)
    with pytest.raises(Refused, match="was changed meanwhile"):
        files.write(made.changes, "codex", desk.environ)
    assert now(starts) == changed


@pytest.mark.rule("09.17")
def test_what_was_there_is_kept_for_this_user_alone(desk: Inside) -> None:
    starts = lay(desk, "codex", "minified")
    document = desk.ok("setup", "codex", "--yes")
    assert len(document["files"]) == 2
    for one in document["files"]:
        backup = Path(one["backup"])
        assert backup.parent == Path(desk.environ["POSTROOM_HOME"]) / "backups"
        assert backup.read_bytes() == starts[one["path"]]
        assert stat.S_IMODE(backup.stat().st_mode) == 0o600
        assert stat.S_IMODE(backup.parent.stat().st_mode) == 0o700


def test_backups_say_whose_file_they_were(desk: Inside) -> None:
    """Two of the files of one setup are called alike, and one of them is Postroom's own."""
    starts = lay(desk, "claude-code", "tabs")
    own, hooks, _ = starts
    assert os.path.basename(hooks) == os.path.basename(own)
    done = desk.run("setup", "claude-code", "--yes")
    kept = sorted(
        path.name.partition("-")[2] for path in Path(desk.environ["POSTROOM_HOME"], "backups").iterdir()
    )
    assert kept == ["claude-code-claude.json", "claude-code-settings.json", "postroom-settings.json"]
    assert f"\n{own} (Postroom's own settings) is changed; what was there is kept in " in done.out
    assert f"\n{hooks} is changed; what was there is kept in " in done.out


def test_without_a_folder_for_backups_nothing_is_written(desk: Inside) -> None:
    starts = lay(desk, "codex", "minified")
    Path(desk.environ["POSTROOM_HOME"]).write_text("no folder")
    assert "backup" in desk.refused("setup", "codex", "--yes")["message"]
    assert now(starts) == starts


# ── showing and asking ───────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.15", "10.37")
@pytest.mark.parametrize("verb", ["setup", "unsetup"])
def test_without_a_terminal_and_without_yes_it_is_shown_and_not_written(desk: Inside, verb: str) -> None:
    starts = lay(desk, "codex", "minified")
    if verb == "unsetup":
        set_up(desk, "codex")
    before = now(starts)
    done = desk.run(verb, "codex")
    assert done.code == 1
    assert done.err.startswith("needs_yes\n")
    assert f"postroom {verb} codex" in done.err
    assert "--yes" in done.err
    assert "[mcp_servers.postroom]" in done.out
    assert desk.refused(verb, "codex")["code"] == "needs_yes"
    assert now(starts) == before


@pytest.mark.rule("10.15", "09.17")
@pytest.mark.parametrize(("typed", "code"), [("y", 0), ("YES", 0), ("n", 1), ("", 1), ("sure", 1)])
def test_it_asks_and_only_a_yes_writes(desk: Inside, typed: str, code: int) -> None:
    starts = lay(desk, "gemini-cli", "tabs")
    done = desk.run("setup", "gemini-cli", stdin=f"{typed}\n")
    assert done.code == code
    assert done.out.index('+\t"mcpServers": {') < done.out.index("Write this?")
    assert (now(starts) == starts) is (code == 1)
    assert ("Nothing is changed." in done.out) is (code == 1)


@pytest.mark.rule("10.15", "09.17")
@pytest.mark.parametrize(("verb", "typed", "code"), [("setup", "y", 0), ("unsetup", "n", 1)])
def test_the_installed_command_asks_on_a_terminal(desk: Inside, verb: str, typed: str, code: int) -> None:
    starts = lay(desk, "gemini-cli", "tabs")
    if verb == "unsetup":
        set_up(desk, "gemini-cli")
    before = now(starts)
    with screen(COMMAND, verb, "gemini-cli", env=desk.environ, cwd=desk.folder) as terminal:
        asked = terminal.shows("Write this?")
        assert ("+" if verb == "setup" else "-") + '\t"mcpServers": {' in asked
        terminal.type(typed + "\n")
        assert terminal.ends() == code
    assert (now(starts) == before) is (code == 1)
    assert ("Nothing is changed." in terminal.text) is (code == 1)


@pytest.mark.rule("10.15")
@pytest.mark.parametrize("verb", ["setup", "unsetup"])
def test_a_dry_run_shows_the_change_and_writes_nothing(desk: Inside, verb: str) -> None:
    starts = lay(desk, "claude-code", "tabs")
    if verb == "unsetup":
        set_up(desk, "claude-code")
    before = now(starts)
    done = desk.run(verb, "claude-code", "--dry-run")
    assert (done.code, done.err) == (0, "")
    sign = "+" if verb == "setup" else "-"
    assert f'{sign}\t\t"postroom": {{' in done.out
    assert all(f"+++ {path}" in done.out for path in starts)
    assert done.out.endswith("\nNothing is written: that was a dry run.\n")
    document = desk.ok(verb, "claude-code", "--dry-run")
    assert (document["written"], {one["change"] for one in document["files"]}) == (False, {"edit"})
    assert "".join(f"\n{one['diff']}" for one in document["files"]) in done.out
    assert now(starts) == before
    assert verb == "unsetup" or not os.path.exists(Path(desk.environ["POSTROOM_HOME"]) / "backups")


@pytest.mark.rule("10.15")
def test_a_line_for_each_file_stands_before_the_changes(desk: Inside) -> None:
    own, hooks, server = lay(desk, "claude-code", "tabs")
    Path(hooks).unlink()
    lines = desk.run("setup", "claude-code", "--dry-run").out.splitlines()
    added = next(at for at, line in enumerate(lines) if line == f"+++ {hooks}")
    assert lines[0].startswith(f"changes {server}: the MCP server (lines: +")
    assert lines[1] == f"makes {hooks}: 9 hooks (lines: +{lines[added + 2 :].index('')} -0)"
    assert lines[2].startswith(
        f"changes {own}: Postroom's own settings, Claude Code in `publishTo` (lines: +"
    )
    assert lines[3:5] == ["", f"--- {server}"]
    set_up(desk, "claude-code")
    lines = desk.run("unsetup", "claude-code", "--dry-run").out.splitlines()
    assert {line.split()[0]: line.split()[1] for line in lines[:2]} == {
        "changes": f"{own}:",
        "removes": f"{hooks}:",
    }
    set_up(desk, "gemini-cli")
    [line, *_] = desk.run("unsetup", "gemini-cli", "--dry-run").out.splitlines()
    assert line.startswith(f"removes {paths_of(row_of(desk, 'gemini-cli'))[0]}: the MCP server and 6 hooks (")
    assert desk.run("setup", "gemini-cli", "--yes").code == 0
    assert (
        desk.run("setup", "gemini-cli", "--dry-run").out
        == "There is nothing to change: Postroom is set up in Gemini CLI.\n"
    )


@pytest.mark.rule("09.17")
@pytest.mark.parametrize("client", CLIENTS)
def test_print_shows_the_snippet_and_looks_at_no_file(desk: Inside, client: str) -> None:
    for path in paths_of(row_of(desk, client)) if client != "generic" else []:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("broken {")
    done = desk.run("setup", client, "--print")
    assert done.code == 0
    document = desk.ok("setup", client, "--print")
    assert (document["written"], document["files"]) == (False, [])
    for one in document["snippets"]:
        assert one["text"] in done.out
        text = one["text"]
        assert tomllib.loads(text) if (one["path"] or "").endswith(".toml") else json.loads(text)
    assert done.err == "".join(f"postroom: {line}\n" for line in document["next"])
    assert len(document["next"]) == (2 if client == "generic" else 3)
    assert "Nothing is written: put each of these" in document["next"][0] or client == "generic"


@pytest.mark.rule("09.17")
def test_a_program_that_is_not_known_gets_the_snippet_alone(desk: Inside) -> None:
    done = desk.run("setup", "generic")
    assert (done.code, json.loads(done.out)["mcpServers"]["postroom"]["args"][-1]) == (0, "generic")
    assert desk.refused("unsetup", "generic", "--yes")["code"] == "setup_refused"
    assert desk.refused("setup", "netscape", code=2)["code"] == "usage"


@pytest.mark.rule("09.17")
def test_codex_users_are_told_to_trust_the_hooks(desk: Inside) -> None:
    done = desk.run("setup", "codex", "--yes")
    assert "`/hooks`" in done.out
    assert "trust" in done.out
    assert "bypass" not in done.out


@pytest.mark.parametrize("client", CLIENTS)
def test_two_lines_say_what_to_do_next(desk: Inside, client: str) -> None:
    follow = row_of(desk, client).next
    assert all(line.endswith(".") and "\n" not in line for line in follow)
    assert tuple(desk.ok("setup", client, "--print")["next"][-2:]) == follow
    document = desk.ok("setup", client, "--yes")
    assert tuple(document["next"]) == follow


@pytest.mark.parametrize(
    ("client", "text", "says"),
    [
        ("claude-code", '{"disableAllHooks": true}', "disableAllHooks"),
        ("qwen-code", '{"disableAllHooks": true}', "disableAllHooks"),
        ("gemini-cli", '{"hooksConfig": {"enabled": false}}', "hooksConfig.enabled"),
        ("codex", "[features]\nhooks = false\n", "features.hooks"),
    ],
)
def test_it_is_said_where_hooks_are_switched_off(desk: Inside, client: str, text: str, says: str) -> None:
    path = Path(row_of(desk, client).off[0][0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    document = desk.ok("setup", client, "--yes")
    assert document["notes"][0].startswith(f"{says} in {path} switches hooks off")
    path.write_text("")
    assert plan.setting_up(row_of(desk, client)).notes == ()


@pytest.mark.rule("10.37")
@pytest.mark.parametrize("layout", ["indented", "minified", "toml"])
def test_what_is_shown_holds_no_secret_of_another_program(desk: Inside, layout: str) -> None:
    secret = "hunter2hunter2hunter2"
    client = "codex" if layout == "toml" else "claude-code"
    path = Path(paths_of(row_of(desk, client))[0])
    path.parent.mkdir(exist_ok=True)
    env = {"API_KEY": "short", "X_TOKEN": secret, "OTHER": secret}
    if layout == "toml":
        path.write_text(
            f'[mcp_servers.x]\ncommand = "x"\nenv = {{ API_KEY = "short", OTHER = "{secret}" }}\n'
        )
    else:
        path.write_text(
            json.dumps({"mcpServers": {"x": {"env": env}}}, indent=1 if layout == "indented" else None)
        )
    for verb in ("setup", "unsetup"):
        for words in ([verb, client, "--dry-run"], [verb, client, "--yes"]):
            done = desk.run(*words)
            assert done.code == 0
            assert "postroom" in done.out
            assert secret not in done.out
            assert "short" not in done.out


def test_a_command_that_does_not_run_isolated_is_not_written_down(desk: Inside) -> None:
    """Installed where an isolated Python does not look, every hook would fail in silence."""
    elsewhere = desk.folder / "bin"
    elsewhere.mkdir()
    (elsewhere / "python").symlink_to(Path(COMMAND).with_name("python").resolve())
    source = Path(programs.__file__).parents[3]
    (elsewhere / "postroom").write_text(
        "import postroom.__main__\nraise SystemExit(postroom.__main__.main())\n"
    )
    environ = {"PYTHONPATH": f"{source}:{Path(os.__file__).parent}"}
    done = subprocess.run(
        [elsewhere / "python", elsewhere / "postroom", "setup", "gemini-cli", "--yes"],
        env={**desk.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        cwd=desk.folder,
    )
    assert done.returncode == 1
    assert "does not run" in done.stderr
    assert not os.path.exists(paths_of(row_of(desk, "gemini-cli"))[0])


# ── the extra ────────────────────────────────────────────────────────────────────────────────────


def an_interpreter(folder: Path, script: str) -> str:
    """Something that is started like an interpreter with `-I -c PROGRAM`."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return str(python)


@pytest.mark.rule("09.17", "10.17")
def test_a_server_that_lacks_its_extra_is_said_and_set_up_all_the_same(
    desk: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = an_interpreter(
        desk.folder, f"exec {sys.executable} -I -c \"import sys; sys.modules['mcp'] = None; $3\""
    )
    [note] = really_lacks(without)
    assert note.startswith(
        f"The MCP server cannot start: the package mcp is not installed for {sys.executable}. Run `"
    )
    assert "install" in note
    assert "'mcp<3,>=2.3' 'websockets<18,>=16.1'`. Until then" in note
    monkeypatch.setattr(setup, "server_lacks", lambda python: (note,))  # pyright: ignore
    assert f"\npostroom: {note}\n" in "\n" + desk.run("setup", "gemini-cli", "--print").err
    assert desk.ok("setup", "gemini-cli", "--print")["notes"] == [note]
    assert f"\n{note}\n" in desk.run("setup", "gemini-cli", "--dry-run").out
    assert desk.ok("setup", "gemini-cli", "--yes")["notes"] == [note]
    all_is_in(row_of(desk, "gemini-cli", setup.this_command()))
    assert desk.run("setup", "gemini-cli", "--yes").out.endswith(f"\n{note}\n")
    assert desk.ok("unsetup", "gemini-cli", "--yes")["notes"] == []


def test_a_server_that_does_not_load_for_another_reason_is_said(desk: Inside) -> None:
    [note] = really_lacks(an_interpreter(desk.folder, "exit 3"))
    assert note.startswith("The MCP server cannot be loaded: `postroom mcp </dev/null` says why.")
    assert really_lacks(str(desk.folder / "nowhere")) == (note,)


@pytest.mark.rule("09.9")
def test_the_trial_loads_what_a_server_loads_later(desk: Inside) -> None:
    """So that it is compiled when an agent starts it, and is there at the agent's first turn."""
    program = (
        "import sys; from postroom.console.commands.mcp import trial; trial();"
        "print(*(name for name in sys.modules if name.startswith('postroom.')))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True, cwd=desk.folder
    )
    loaded = set(done.stdout.split())
    assert {"postroom.clients.mcp", "postroom.session", "postroom.control", "postroom.state.store"} <= loaded
    assert {"postroom.presence", "postroom.neighbourhood", "postroom.transports.uds.listener"} <= loaded
