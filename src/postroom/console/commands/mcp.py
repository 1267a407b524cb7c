"""`postroom mcp`: serves the tools to the agent that starts it (09.9, 10.17).

What the protocol needs is an extra of the package; where it is not installed, that is what is said. `trial` is how `setup`
learns of it before an agent does.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from postroom.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroom.arguments import Values

LATER = (
    *("postroom.opening", "postroom.presence", "postroom.neighbourhood", "postroom.doors.ringing"),
    *("postroom.transports.uds.listener", "postroom.console.cli"),
)
"""What a server loads once it runs."""


def run(args: Values, argv: Sequence[str]) -> int:
    """Serves until the client ends it, and returns the exit code. Raises Unsupported without the extra."""
    del argv
    return _server()(args)


def _server() -> Callable[[Values], int]:
    """Loads the server. Raises Unsupported without the extra."""
    try:
        from postroom.clients import mcp
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "postroom":
            raise
        from postroom.console import extra

        raise Unsupported(extra.complaint(error), f"Run `{extra.install_command()}`.") from None
    return mcp.run


def trial() -> None:
    """Loads all that a server loads, and prints what keeps it from starting; nothing where nothing does.

    Python then keeps what it has compiled, so that the first start does not take seconds: an agent's first turn may begin
    without the tools of a server that is late.
    """
    try:
        _server()
        for module in LATER:
            import_module(module)
    except Unsupported as error:
        sys.stdout.write(f"{error.message} {error.hint}\n")
