"""Cursor: how its sessions are recognised, its hooks, its doors (chapter 09). Written from its documentation; not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from postroom.client import HOOKS, MCP, WAIT, Client, Event, Report
from postroom.clients.dialect import in_field, named, said

if TYPE_CHECKING:
    from collections.abc import Mapping

EVENTS = named(
    Event(name="sessionStart", kind="session-start", render=in_field("additional_context")),
    Event(name="beforeSubmitPrompt", kind="turn-start"),
    Event(name="postToolUse", kind="tool", render=in_field("additional_context")),
    Event(name="stop", kind="turn-end", render=in_field("followup_message")),
    Event(name="sessionEnd", kind="session-end"),
)
"""What its hooks say. `beforeSubmitPrompt` can take no text, and what `stop` gives is submitted as a person's words."""

LOOPS = 4
"""How often `stop` may already have been answered in a row: Cursor takes five by default, and drops what is one more."""


def read(payload: Mapping[str, object]) -> Report:
    """What the JSON of a hook says. A turn that a person has stopped, or that failed, is not made to go on."""
    loops = payload.get("loop_count")
    roots = payload.get("workspace_roots")
    first = cast("list[object]", roots)[:1] if isinstance(roots, list) else []
    return Report(
        session_id=said(payload, "conversation_id", "session_id"),
        cwd=said(payload, "cwd") or next((root for root in first if isinstance(root, str)), ""),
        stop_active=said(payload, "status") in ("aborted", "error")
        or (isinstance(loops, int) and loops >= LOOPS),
        prompt=said(payload, "prompt"),
        turn=said(payload, "generation_id"),
    )


CLIENT = Client(
    name="cursor",
    title="Cursor",
    programs=("cursor", "cursor-agent", "Cursor"),
    events=EVENTS,
    read=read,
    doors=(
        HOOKS,
        MCP,
        WAIT,
    ),
)
