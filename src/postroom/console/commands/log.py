"""`postroom log` for a session that has ended: its journal, read only (10.13)."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from postroom import present
from postroom.arguments import moment
from postroom.console import places
from postroom.console.commands import session
from postroom.errors import NoSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.arguments import Values


def run(args: Values, argv: Sequence[str]) -> int:
    """Asks the session, or reads the store of one that has ended; 3 where nothing was found."""
    try:
        code = session.hand_over(args, argv)
    except NoSession:
        ended = places.ended_session(args.session)
        if ended is None:
            raise
        now = int(time.time() * 1000)
        with places.reader(ended) as store:
            rows = store.log(
                text=args.text,
                peer=args.peer,
                since=moment(args.since, now),
                until=moment(args.until, now),
                limit=args.limit,
            )
        sys.stdout.write(present.log_text([step for _, step in rows], as_json=args.json))
        return 0 if rows else 3
    if code is None:
        raise places.none_meant("log")
    return code
