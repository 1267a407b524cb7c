"""Qwen Code: how its sessions are recognised, its permission modes, its hooks, its doors (chapter 09)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

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
        "auto": "auto",
        "yolo": "yolo",
    }
)


CLIENT = Client(
    name="qwen-code",
    title="Qwen Code",
    programs=("qwen", "@qwen-code/qwen-code"),
    session_variables=("QWEN_CODE_SESSION_ID",),
    modes=MODES,
    mode_flags=MappingProxyType({"--approval-mode=": "", "--yolo": "yolo", "-y": "yolo"}),
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
