"""`postroom mcp`: serves the tools to the agent that starts it (09.9, 10.17).

What the protocol needs is an extra of the package; where it is not installed, that is what is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.arguments import Values


def run(args: Values, argv: Sequence[str]) -> int:
    """Serves until the client ends it, and returns the exit code. Raises Unsupported without the extra."""
    del argv
    try:
        from postroom.clients import mcp
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "postroom":
            raise
        raise Unsupported(
            f"The package {missing.name} is not installed, which the MCP server needs.",
            "Install it with Postroom: pip install 'postroom[mcp]'.",
        ) from None
    return mcp.run(args)
