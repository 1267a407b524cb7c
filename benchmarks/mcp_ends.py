"""The other servers of row 12: what a benchmark starts as a process of its own, over standard streams.

usage: python -P mcp_ends.py ROLE

    floor      the official SDK's low-level server with one empty tool, on its own streams
    fastmcp    peer: FastMCP with one empty tool

Neither does anything: the floor is what the protocol costs by itself. Both end with their input.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import Any


async def floor() -> None:
    """Serves one empty tool with the official SDK."""
    from mcp import types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    async def listed(context: Any, params: Any) -> types.ListToolsResult:
        del context, params
        return types.ListToolsResult(tools=[types.Tool(name="empty", input_schema={"type": "object"})])

    async def called(context: Any, params: Any) -> types.CallToolResult:
        del context, params
        return types.CallToolResult(content=[types.TextContent(type="text", text="Nothing waits.")])

    server: Server[Any] = Server("floor", on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


def fastmcp() -> None:
    """Serves one empty tool with FastMCP."""
    served: Any = import_module("fastmcp").FastMCP("peer")

    def empty() -> str:
        return "Nothing waits."

    served.tool(empty)
    served.run(transport="stdio", show_banner=False)


if __name__ == "__main__":
    if sys.argv[1] == "fastmcp":
        fastmcp()
    else:
        asyncio.run(floor())
