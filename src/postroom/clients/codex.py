"""Codex: how its sessions are recognised, its permission modes, its hooks, its doors (chapter 09)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from postroom.client import MCP, WAIT, Client, DoorFact, Event
from postroom.clients.dialect import context, decision, named, reader
from postroom.state.processes import open_files

if TYPE_CHECKING:
    from collections.abc import Mapping

EVENTS = named(
    Event(name="SessionStart", kind="session-start", render=context("SessionStart")),
    Event(name="UserPromptSubmit", kind="turn-start", render=context("UserPromptSubmit")),
    Event(name="PostToolUse", kind="tool", render=context("PostToolUse")),
    Event(name="Stop", kind="turn-end", render=decision("block")),
    Event(name="SessionEnd", kind="session-end"),
)
"""What its hooks say: Claude Code's names and JSON. `SessionStart` comes with the first turn."""

MODES: Mapping[str, str] = MappingProxyType(
    {
        "untrusted": "default",
        "on-failure": "default",
        "on-request": "default",
        "granular": "default",
        "never": "never",
        "read-only": "default",
        "workspace-write": "default",
        "danger-full-access": "danger-full-access",
        **{word: word for word in ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions")},
    }
)

LOCKS = "/thread-writer-locks/"
"""Where a thread's lock lies below Codex's own folder: held open by the process that writes the thread."""


def newest_thread(pid: int) -> str:
    """The thread that a Codex process began last: the ids of threads begin with their time."""
    locks = (path.partition(LOCKS)[2] for path in open_files(pid))
    return max((name.removesuffix(".lock") for name in locks if name.endswith(".lock")), default="")


CLIENT = Client(
    name="codex",
    title="Codex",
    programs=("codex", "@openai/codex"),
    session_variables=("CODEX_THREAD_ID",),
    conversation=newest_thread,
    threads=True,
    modes=MODES,
    mode_flags=MappingProxyType(
        {
            "--ask-for-approval=": "",
            "-a=": "",
            "--dangerously-bypass-approvals-and-sandbox": "danger-full-access",
            "--yolo": "danger-full-access",
        }
    ),
    events=EVENTS,
    read=reader(MODES, turn="turn_id"),
    doors=(
        DoorFact(
            name="hooks",
            wakes=False,
            during_turn="yes",
            confirms="consumed",
            needs="Its hooks are set up, and a person has trusted them.",
        ),
        DoorFact(
            name="codex-app-server",
            wakes=True,
            during_turn="yes",
            confirms="accepted",
            needs="Codex runs with its background server, as 0.171 does by itself, or attached to one by `--remote`.",
        ),
        DoorFact(
            name="codex-queue",
            wakes=True,
            during_turn="after",
            confirms="accepted",
            needs="Its thread is open and has had a turn. An idle one looks at its queue about every ten seconds.",
        ),
        MCP,
        WAIT,
    ),
)
