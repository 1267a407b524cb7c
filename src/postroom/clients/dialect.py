"""What the hooks of several clients have in common: how they take a text, and how their input is read (09.12).

Claude Code's way of speaking has been taken up by others, each with words of its own: their files say which of these
they use. Nothing here raises for whatever a client sends: what is not a text is no text.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from postroom.client import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from postroom.client import Event

__all__ = ["context", "decision", "in_field", "named", "reader", "said", "waits_for"]

WAITS: Mapping[str, Literal["user", "permission"]] = {
    "idle_prompt": "user",
    "permission_prompt": "permission",
}
"""What a notification is about → for whom the client waits."""


def context(event: str) -> Callable[[str], str]:
    """Returns what hands a text to the model beside the event of this name, without a new turn."""

    def render(text: str) -> str:
        return json.dumps({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}})

    return render


def decision(word: str) -> Callable[[str], str]:
    """Returns what keeps a turn from ending, with a text as the reason: that is what the model reads next.

    Args:
        word: the client's word for it.
    """

    def render(text: str) -> str:
        return json.dumps({"decision": word, "reason": text})

    return render


def in_field(name: str) -> Callable[[str], str]:
    """Returns what hands a text over in a field of its own."""

    def render(text: str) -> str:
        return json.dumps({name: text})

    return render


def named(*events: Event) -> Mapping[str, Event]:
    """A client's events by the client's names for them."""
    return MappingProxyType({event.name: event for event in events})


def reader(modes: Mapping[str, str], *, turn: str) -> Callable[[Mapping[str, object]], Report]:
    """Returns what reads the JSON of a hook that has Claude Code's fields.

    Events of a subagent bear its id, under the session id of the main conversation.

    Args:
        modes: the client's word for a permission mode → ours.
        turn: the client's name for the id of a turn.
    """

    def read(payload: Mapping[str, object]) -> Report:
        mode = said(payload, "permission_mode")
        return Report(
            session_id=said(payload, "session_id"),
            mode=modes.get(mode, mode) or None,
            cwd=said(payload, "cwd"),
            title=said(payload, "session_title"),
            stop_active=bool(payload.get("stop_hook_active")),
            words=said(payload, "last_assistant_message"),
            prompt=said(payload, "prompt"),
            agent=said(payload, "agent_id"),
            source=said(payload, "source"),
            turn=said(payload, turn),
            waits=waits_for(payload),
        )

    return read


def said(payload: Mapping[str, object], *keys: str) -> str:
    """The first of these fields that is a text and not empty; empty where there is none."""
    for key in keys:
        value = payload.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def waits_for(payload: Mapping[str, object]) -> Literal["", "user", "permission"]:
    """For whom a notification says that the client waits."""
    return WAITS.get(said(payload, "notification_type"), "")
