"""The programs that run agents: the table, name → module, each loaded on first use (09.17).

A module here fills in one `Client` and knows no other. `hooks` answers their hooks and `mcp` serves the tools, for all
of them.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from postroom.errors import BadUsage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroom.client import Client

__all__ = ["CLIENTS", "load"]

CLIENTS: Mapping[str, str] = MappingProxyType(
    {
        "claude-code": "postroom.clients.claude_code",
        "codex": "postroom.clients.codex",
        "gemini-cli": "postroom.clients.gemini_cli",
        "qwen-code": "postroom.clients.qwen_code",
        "opencode": "postroom.clients.opencode",
        "cursor": "postroom.clients.cursor",
        "vscode": "postroom.clients.vscode",
        "generic": "postroom.clients.generic",
    }
)
"""The one list of clients → the module of each."""


def load(name: str) -> Client:
    """Returns what is known of a client. Raises BadUsage for a name that is not in the list."""
    try:
        module = CLIENTS[name]
    except KeyError:
        raise BadUsage(f"There is no client {name!r}.", f"There are: {', '.join(CLIENTS)}.") from None
    return cast("Client", import_module(module).CLIENT)
