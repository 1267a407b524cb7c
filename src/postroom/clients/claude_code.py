"""Claude Code: how its sessions are recognised, its permission modes, its hooks, its doors (chapter 09)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from postroom.client import MCP, WAIT, Client, DoorFact, Event
from postroom.clients.dialect import context, decision, named, reader

if TYPE_CHECKING:
    from collections.abc import Mapping

EVENTS = named(
    Event(name="SessionStart", kind="session-start", render=context("SessionStart")),
    Event(name="UserPromptSubmit", kind="turn-start", render=context("UserPromptSubmit")),
    Event(name="PostToolUse", kind="tool", render=context("PostToolUse")),
    Event(name="PostToolUseFailure", kind="tool", render=context("PostToolUseFailure")),
    Event(name="PostToolBatch", kind="tool", render=context("PostToolBatch")),
    Event(name="Stop", kind="turn-end", render=decision("block")),
    Event(name="StopFailure", kind="turn-end"),
    Event(name="Notification", kind="other"),
    Event(name="SessionEnd", kind="session-end"),
    Event(name="wake", kind="wake", render=str),
)
"""What its hooks say. A turn that a person interrupts is reported by none of them: only a minute later comes the
notification that it waits for its user. `wake` is no event of its own but our background hook (09.12)."""

MODES: Mapping[str, str] = MappingProxyType(
    {
        word: word
        for word in ("default", "manual", "acceptEdits", "auto", "dontAsk", "plan", "bypassPermissions")
    }
)


CLIENT = Client(
    name="claude-code",
    title="Claude Code",
    programs=("claude", "claude.exe", "@anthropic-ai/claude-code"),
    pid_variable="CLAUDE_PID",
    session_variables=("CLAUDE_CODE_SESSION_ID",),
    modes=MODES,
    mode_flags=MappingProxyType(
        {"--permission-mode=": "", "--dangerously-skip-permissions": "bypassPermissions"}
    ),
    events=EVENTS,
    read=reader(MODES, turn="prompt_id"),
    doors=(
        DoorFact(
            name="hooks",
            wakes=True,
            during_turn="yes",
            confirms="consumed",
            needs="Its hooks are set up; the waking hook reaches an idle session.",
        ),
        DoorFact(
            name="native",
            wakes=True,
            during_turn="yes",
            confirms="written",
            needs="Version 2.1.224 or newer, with its own messaging on.",
        ),
        MCP,
        WAIT,
    ),
    neighbour="claude-code",
)
