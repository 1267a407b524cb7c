"""The table of programs: which files of each are edited, and what goes into them (09.17).

A row says where a program keeps the configuration of this user, with the variables that move it, and which pieces go
into which file: the entry of the MCP server, the hooks, and for a program with a messaging of its own a word in
Postroom's settings (09.9). Nothing in a row grants a permission.

Hooks stand behind those that are there already: Codex remembers which hooks it trusts by their place.

It reads nothing but the environment and whether a file is there.

What is weak: a configuration that a program is given on its command line, and that of an organisation or a project, is
left out. Cursor and VS Code are written from their documentation; the others were tried.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from postroom.console.setting_up.pieces import NAME, Command, Hook, Hooks, Program, Publishing, Server
from postroom.console.setting_up.refused import Refused
from postroom.state.scopes import config_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HOOK_SECONDS = 10
"""A hook gives up long before: this is for a machine that has come to a stand."""

WAKE_SECONDS = 86_400
"""How long the waking hook of Claude Code may wait for mail; the next turn starts another one."""

LAST_SECONDS = 3
"""The hook at the end of a session: a person is waiting for the prompt, and Codex allows no more."""

SERVER_START_SECONDS = 30
"""How long a program waits for our MCP server to answer: a loaded machine needs seconds."""

SERVER_CALL_SECONDS = 660
"""How long Codex waits for a tool: `read_messages` may wait ten minutes."""


def program(client: str, command: Command, environ: Mapping[str, str]) -> Program:
    """The row of a client (09.17).

    Args:
        client: its name in the one list of clients.
        command: how Postroom is started.
        environ: where its files lie, of this user.

    Raises Refused where no home folder is known.
    """
    return _ROWS[client](client, command, environ)


# ---------------------------------------------------------------------------------------- where


def _home(environ: Mapping[str, str]) -> str:
    home = environ.get("HOME") or os.path.expanduser("~")
    if not home.startswith("/"):
        raise Refused("No home folder is known for this user.", "Set HOME.")
    return home


def _folder(environ: Mapping[str, str], variable: str, default: str) -> str:
    """The folder that a variable names, else one below the home folder."""
    named = environ.get(variable, "")
    if named == "~" or named.startswith("~/"):
        named = _home(environ) + named[1:]
    return os.path.abspath(named) if named else os.path.join(_home(environ), default)


def _claude_state(environ: Mapping[str, str]) -> str:
    """The file in which Claude Code keeps the user's MCP servers: an older place counts where it alone is in use."""
    folder = _folder(environ, "CLAUDE_CONFIG_DIR", ".claude")
    beside = folder if environ.get("CLAUDE_CONFIG_DIR") else _home(environ)
    usual, older = os.path.join(beside, ".claude.json"), os.path.join(folder, ".config.json")
    return older if _filled(older) and not _filled(usual) else usual


def _filled(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def _settings(environ: Mapping[str, str]) -> tuple[str, ...]:
    folder = config_folder(environ)
    if folder is None:
        raise Refused("No home folder is known for this user.", "Set HOME.")
    return (os.path.join(folder, "settings.json"),)


def _code_folder(environ: Mapping[str, str]) -> str:
    """Where VS Code keeps what is this user's."""
    if portable := environ.get("VSCODE_PORTABLE"):
        return os.path.join(os.path.abspath(portable), "user-data")
    if moved := environ.get("VSCODE_APPDATA"):
        return os.path.join(os.path.abspath(moved), "Code")
    if sys.platform == "darwin":
        return os.path.join(_home(environ), "Library", "Application Support", "Code")
    return os.path.join(_folder(environ, "XDG_CONFIG_HOME", ".config"), "Code")


# ---------------------------------------------------------------------------------------- the rows


def _entry(command: Command, client: str, kind: str = "", **more: object) -> dict[str, object]:
    words = command.server(client)
    return {**({"type": kind} if kind else {}), "command": words[0], "args": words[1:], **more}


def _hook(event: str, word: str = "", matcher: str | None = None, **more: object) -> Hook:
    return Hook(event=event, word=word or event, matcher=matcher, more=more)


_CLAUDE_LIKE = (
    _hook("SessionStart", timeout=HOOK_SECONDS),
    _hook("UserPromptSubmit", timeout=HOOK_SECONDS),
    _hook("PostToolUse", matcher="*", timeout=HOOK_SECONDS),
    _hook("Stop", timeout=HOOK_SECONDS),
    _hook("SessionEnd", timeout=LAST_SECONDS),
)
"""The hooks of a program whose events are called as Claude Code's."""

_FAILURES = (
    _hook("PostToolUseFailure", matcher="*", timeout=HOOK_SECONDS),
    _hook("StopFailure", timeout=HOOK_SECONDS),
)
"""Where a tool, or a turn, that fails has an event of its own."""

_GEMINI_SUBAGENT = "invoke_agent"
"""The tool of Gemini CLI that runs a subagent, whose own tools have events like the main conversation's."""


def _claude_code(client: str, command: Command, environ: Mapping[str, str]) -> Program:
    settings = os.path.join(_folder(environ, "CLAUDE_CONFIG_DIR", ".claude"), "settings.json")
    # `async` too: without it, a run without a terminal waits for the hook before its first turn.
    more = {"async": True, "asyncRewake": True, "timeout": WAKE_SECONDS}
    waking = tuple(
        Hook(event=event, word="wake", matcher=None, more=more) for event in ("SessionStart", "Stop")
    )
    return Program(
        name=client,
        title="Claude Code",
        pieces=(
            Server(
                paths=(_claude_state(environ),),
                keys=("mcpServers",),
                entry=_entry(command, client, kind="stdio"),
            ),
            Hooks(
                paths=(settings,), client=client, command=command, hooks=(*_CLAUDE_LIKE, *_FAILURES, *waking)
            ),
            Publishing(paths=_settings(environ), word=client),
        ),
        next=(
            "Start Claude Code anew: in one that runs the hooks work at once, the tools do not. `/mcp` and `/hooks` there show what is loaded.",
            "Then ask it to list who it can write to; the first time it asks you whether it may use the tool.",
        ),
        off=((settings, ("disableAllHooks",), True),),
    )


def _codex(client: str, command: Command, environ: Mapping[str, str]) -> Program:
    folder = _folder(environ, "CODEX_HOME", ".codex")
    config = os.path.join(folder, "config.toml")
    entry = _entry(
        command, client, startup_timeout_sec=SERVER_START_SECONDS, tool_timeout_sec=SERVER_CALL_SECONDS
    )
    return Program(
        name=client,
        title="Codex",
        pieces=(
            Server(paths=(config,), keys=("mcp_servers",), entry=entry),
            Hooks(
                paths=(os.path.join(folder, "hooks.json"),),
                client=client,
                command=command,
                hooks=_CLAUDE_LIKE,
            ),
        ),
        next=(
            "Start `codex` and trust the hooks of Postroom, there or with `/hooks`: until you do, it silently runs none.",
            "Then ask it to list who it can write to: the MCP tools work without that trust.",
        ),
        off=((config, ("features", "hooks"), False), (config, ("features", "codex_hooks"), False)),
    )


def _gemini_cli(client: str, command: Command, environ: Mapping[str, str]) -> Program:
    settings = os.path.join(_folder(environ, "GEMINI_CLI_HOME", ""), ".gemini", "settings.json")
    lasts, last = HOOK_SECONDS * 1000, LAST_SECONDS * 1000
    hooks = (
        _hook("SessionStart", name=NAME, timeout=lasts),
        _hook("BeforeAgent", name=NAME, timeout=lasts),
        _hook("BeforeTool", matcher=_GEMINI_SUBAGENT, name=NAME, timeout=lasts),
        _hook("AfterTool", matcher="*", name=NAME, timeout=lasts),
        _hook("AfterAgent", name=NAME, timeout=lasts),
        _hook("SessionEnd", name=NAME, timeout=last),
    )
    return Program(
        name=client,
        title="Gemini CLI",
        pieces=(
            Server(paths=(settings,), keys=("mcpServers",), entry=_entry(command, client)),
            Hooks(paths=(settings,), client=client, command=command, hooks=hooks),
        ),
        next=(
            "Start `gemini` anew; `/mcp` and `/hooks` there show what is loaded.",
            "Then ask it to list who it can write to; it asks you whether it may use the tool.",
        ),
        off=((settings, ("hooksConfig", "enabled"), False),),
    )


def _qwen_code(client: str, command: Command, environ: Mapping[str, str]) -> Program:
    settings = os.path.join(_folder(environ, "QWEN_HOME", ".qwen"), "settings.json")
    return Program(
        name=client,
        title="Qwen Code",
        pieces=(
            Server(paths=(settings,), keys=("mcpServers",), entry=_entry(command, client)),
            Hooks(paths=(settings,), client=client, command=command, hooks=(*_CLAUDE_LIKE, *_FAILURES)),
            Publishing(paths=_settings(environ), word=client),
        ),
        next=(
            "Start `qwen` anew; `/mcp` and `/hooks` there show what is loaded.",
            "Then ask it to list who it can write to; it asks you whether it may use the tool.",
        ),
        off=((settings, ("disableAllHooks",), True),),
    )


def _opencode(client: str, command: Command, environ: Mapping[str, str]) -> Program:
    folder = os.path.join(_folder(environ, "XDG_CONFIG_HOME", ".config"), "opencode")
    entry = {
        "type": "local",
        "command": command.server(client),
        "enabled": True,
        "timeout": SERVER_START_SECONDS * 1000,
    }
    names = ("opencode.json", "opencode.jsonc", "config.json")
    return Program(
        name=client,
        title="opencode",
        pieces=(
            Server(paths=tuple(os.path.join(folder, name) for name in names), keys=("mcp",), entry=entry),
        ),
        next=(
            "Start `opencode --port N` (any free port): through its server, messages reach a session that is idle.",
            "Then ask it to list who it can write to; `opencode mcp list` shows whether the server is connected.",
        ),
    )


def _cursor(client: str, command: Command, environ: Mapping[str, str]) -> Program:
    folder = os.path.join(_home(environ), ".cursor")
    hooks = tuple(
        _hook(event) for event in ("sessionStart", "beforeSubmitPrompt", "postToolUse", "stop", "sessionEnd")
    )
    return Program(
        name=client,
        title="Cursor",
        pieces=(
            Server(
                paths=(os.path.join(folder, "mcp.json"),),
                keys=("mcpServers",),
                entry=_entry(command, client),
            ),
            Hooks(
                paths=(os.path.join(folder, "hooks.json"),),
                client=client,
                command=command,
                hooks=hooks,
                grouped=False,
                version=1,
            ),
        ),
        next=(
            "Start Cursor anew; its settings show the server under Tools & MCP, and the hooks under Hooks.",
            "Then ask the agent to list who it can write to; it asks you whether it may use the tool.",
        ),
    )


def _vscode(client: str, command: Command, environ: Mapping[str, str]) -> Program:
    path = os.path.join(_code_folder(environ), "User", "mcp.json")
    return Program(
        name=client,
        title="VS Code",
        pieces=(Server(paths=(path,), keys=("servers",), entry=_entry(command, client, kind="stdio")),),
        next=(
            "Run `MCP: List Servers` in VS Code, start `postroom`, and say that you trust it.",
            "Then ask the agent to list who it can write to; messages reach it with its next call of a Postroom tool.",
        ),
    )


def _generic(client: str, command: Command, environ: Mapping[str, str]) -> Program:
    del environ
    return Program(
        name=client,
        title="a program that runs MCP servers",
        pieces=(Server(paths=(), keys=("mcpServers",), entry=_entry(command, client)),),
        next=(
            "Put this where your program keeps its MCP servers; many call the list `mcpServers`, some otherwise.",
            "Then ask it to list who it can write to; messages reach it with its next call of a Postroom tool.",
        ),
    )


_ROWS: Mapping[str, Callable[[str, Command, Mapping[str, str]], Program]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "gemini-cli": _gemini_cli,
    "qwen-code": _qwen_code,
    "opencode": _opencode,
    "cursor": _cursor,
    "vscode": _vscode,
    "generic": _generic,
}
