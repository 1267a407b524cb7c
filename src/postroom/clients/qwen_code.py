"""Qwen Code: how its sessions are recognised, its permission modes, its hooks, its doors (chapter 09)."""

from __future__ import annotations

import json
import os
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from postroom.client import HOOKS, MCP, WAIT, Client, DoorFact, Event
from postroom.clients.dialect import context, decision, named, reader

if TYPE_CHECKING:
    from collections.abc import Mapping

EVENTS = named(
    Event(name="SessionStart", kind="session-start", render=context("SessionStart")),
    Event(name="UserPromptSubmit", kind="turn-start", render=context("UserPromptSubmit")),
    Event(name="PostToolUse", kind="tool", render=context("PostToolUse")),
    Event(name="PostToolUseFailure", kind="tool", render=context("PostToolUseFailure")),
    Event(name="Stop", kind="turn-end", render=decision("block")),
    Event(name="StopFailure", kind="turn-end"),
    Event(name="Notification", kind="other"),
    Event(name="SessionEnd", kind="session-end"),
)
"""What its hooks say: Claude Code's names and JSON. `UserPromptSubmit` also comes within a turn, after each tool call
and for the reason of a `Stop`, all under the same `prompt_id`."""

MODES: Mapping[str, str] = MappingProxyType(
    {
        "plan": "plan",
        "default": "default",
        "auto-edit": "acceptEdits",
        "auto_edit": "acceptEdits",
        "autoedit": "acceptEdits",
        "auto": "auto",
        "yolo": "yolo",
    }
)

STARTS_IN = "auto"
"""Its mode where neither its command line nor its settings name one (0.24)."""

SYSTEM = "/etc/qwen-code"
"""The folder of the settings of the whole machine."""

MAX_SETTINGS = 1_048_576
"""Bytes of a settings file that are read."""

_PIECE = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def starts_in(command: tuple[str, ...], environ: Mapping[str, str], cwd: str) -> str:
    """The mode that it starts in where no flag names one: its settings', the strongest first, else its own default.

    With `--bare` or `--safe-mode` it asks, and reads no settings. A folder that it does not trust makes it ask too, which
    is not looked at: a word that is too strong holds more.
    """
    if not {"--bare", "--safe-mode"}.isdisjoint(command[1:]):
        return "default"
    home = environ.get("QWEN_HOME") or os.path.join(environ.get("HOME", ""), ".qwen")
    system = environ.get("QWEN_CODE_SYSTEM_SETTINGS_PATH") or f"{SYSTEM}/settings.json"
    defaults = environ.get("QWEN_CODE_SYSTEM_DEFAULTS_PATH") or f"{SYSTEM}/system-defaults.json"
    for path in (system, f"{cwd}/.qwen/settings.json", f"{home}/settings.json", defaults):
        if os.path.isabs(path) and (word := _approval_mode(path)):
            return MODES.get(word, word)
    return STARTS_IN


def _approval_mode(path: str) -> str:
    """`tools.approvalMode` of a settings file, which may have comments; empty where it has none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_SETTINGS)
        bare = _PIECE.sub(lambda piece: piece[0] if piece[0].startswith('"') else "", text)
        word = cast("dict[str, Any]", json.loads(bare))["tools"]["approvalMode"]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return ""
    return word.strip().lower() if isinstance(word, str) else ""


CLIENT = Client(
    name="qwen-code",
    title="Qwen Code",
    programs=("qwen", "@qwen-code/qwen-code"),
    session_variables=("QWEN_CODE_SESSION_ID",),
    modes=MODES,
    mode_flags=MappingProxyType({"--approval-mode=": "", "--yolo": "yolo", "-y": "yolo"}),
    starts_in=starts_in,
    events=EVENTS,
    read=reader(MODES, turn="prompt_id"),
    doors=(
        HOOKS,
        DoorFact(
            name="native",
            wakes=True,
            during_turn="after",
            confirms="written",
            needs="Version 0.24 or newer, with its own messaging on.",
        ),
        MCP,
        WAIT,
    ),
    neighbour="qwen-code",
)
