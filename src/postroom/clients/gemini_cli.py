"""Gemini CLI: how its sessions are recognised, its permission modes, its hooks, its doors (chapter 09)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from postroom.client import HOOKS, MCP, WAIT, Client, Event, Report
from postroom.clients.dialect import context, decision, named, said

if TYPE_CHECKING:
    from collections.abc import Mapping

EVENTS = named(
    Event(name="SessionStart", kind="session-start", render=context("SessionStart")),
    Event(name="BeforeAgent", kind="turn-start", render=context("BeforeAgent")),
    Event(name="BeforeTool", kind="other"),
    Event(name="AfterTool", kind="tool", render=context("AfterTool")),
    Event(name="AfterAgent", kind="turn-end", render=decision("deny")),
    Event(name="SessionEnd", kind="session-end"),
)
"""What its hooks say. The reason of `AfterAgent` becomes a prompt, for which `BeforeAgent` comes again."""

SUBAGENT = "invoke_agent"
"""The tool that runs a subagent. The events of that one's own tools look like the main conversation's, so `BeforeTool`
is wanted for this tool: only between it and its `AfterTool` can they be told apart."""

MODES: Mapping[str, str] = MappingProxyType(
    {
        "default": "default",
        "auto_edit": "acceptEdits",
        "autoEdit": "acceptEdits",
        "plan": "plan",
        "yolo": "yolo",
    }
)


def read(payload: Mapping[str, object]) -> Report:
    """What the JSON of a hook says. It tells no permission mode: that is read off the command line."""
    return Report(
        session_id=said(payload, "session_id"),
        cwd=said(payload, "cwd"),
        stop_active=bool(payload.get("stop_hook_active")),
        words=said(payload, "prompt_response"),
        prompt=said(payload, "prompt"),
        source=said(payload, "source"),
        delegates=said(payload, "tool_name") == SUBAGENT,
    )


CLIENT = Client(
    name="gemini-cli",
    title="Gemini CLI",
    programs=("gemini", "@google/gemini-cli"),
    modes=MODES,
    mode_flags=MappingProxyType({"--approval-mode=": "", "--yolo": "yolo", "-y": "yolo"}),
    events=EVENTS,
    read=read,
    doors=(
        HOOKS,
        MCP,
        WAIT,
    ),
)
