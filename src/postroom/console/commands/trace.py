"""`postroom trace`: every step of one message, from every session of this user that knows it (10.12)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from postroom import present
from postroom.console import cli, places
from postroom.console.commands import session
from postroom.core import contract

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.arguments import Values


def run(args: Values, argv: Sequence[str]) -> int:
    """Prints the steps in order of time; 3 where no session knows the id."""
    code = session.hand_over(args, argv)
    if code is not None:
        return code
    steps, unchecked = places.steps_everywhere(args.msg_id)
    for place, reason in unchecked:
        sys.stderr.write(f"postroom: {place} could not be looked at: {reason}\n")
    if not steps:
        return cli.refuse(contract.refusal("unknown_message", msg_id=args.msg_id), as_json=args.json)
    sys.stdout.write(
        present.trace_text(args.msg_id, steps, as_json=args.json, mermaid=args.mermaid, unchecked=unchecked)
    )
    return 0
