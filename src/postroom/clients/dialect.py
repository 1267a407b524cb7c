"""What the hooks of several clients have in common: how they take a text, and how their input is read (09.12).

Claude Code's way of speaking has been taken up by others, each with words of its own: their files say which of these
they use. Nothing here raises for whatever a client sends: what is not a text is no text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["context", "decision", "in_field", "said", "waits_for"]

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
