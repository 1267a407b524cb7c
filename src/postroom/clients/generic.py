"""Any program that speaks MCP and of which nothing else is known (chapter 09)."""

from __future__ import annotations

from postroom.client import MCP, WAIT, Client

CLIENT = Client(
    name="generic",
    title="any MCP client",
    programs=(),
    doors=(
        MCP,
        WAIT,
    ),
)
