"""`postroom close`: ends a detached session; `--forget` also removes what one that has ended left (10.9)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from postroom import present
from postroom.console import places
from postroom.console.commands import session
from postroom.errors import NoSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.arguments import Values


def run(args: Values, argv: Sequence[str]) -> int:
    """Asks the session to end and waits until it has, or forgets one that had ended before."""
    try:
        meant = places.meant_session(args.session)
        if meant is None:
            raise places.none_meant("close")
        code = session.asked(meant, args, argv)
    except NoSession:
        ended = places.ended_session(args.session)
        if ended is None or not args.forget:
            raise
        places.roster().forget(ended)
        document = {"session_id": ended, "expired": 0}
        sys.stdout.write(present.dumps(document) if args.json else f"{ended} is forgotten.\n")
        return 0
    if code == 0 and not places.until_ended(meant.session_id):
        sys.stderr.write("postroom: it is still ending.\n")
        return 1
    return code
