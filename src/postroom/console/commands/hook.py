"""`postroom hook CLIENT EVENT`, where it did not come the short way: options stood before it (09.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom import hook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.arguments import Values


def run(args: Values, argv: Sequence[str]) -> int:
    """Runs one hook and returns its exit code: never one that fails a turn."""
    del argv
    return hook.main(["hook", args.client, args.event])
