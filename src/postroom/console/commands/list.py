"""`postroom list`: who can be written to from here (10.1, 01.29)."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from postroom import present
from postroom.console import cli, places
from postroom.console.commands import session
from postroom.core.listing import listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.arguments import Values


def run(args: Values, argv: Sequence[str]) -> int:
    """Lists for the session that is meant, else for nobody in particular."""
    code = session.hand_over_if_possible(args, argv)
    if code is not None:
        return code
    if places.denies_listing():
        from postroom.core.refusals import refusal

        return cli.refuse(refusal("denied_by_settings", tool="ListAgents"), as_json=args.json)
    directory = places.directory()
    last = ""
    while True:
        found = directory.rows()
        answer = listing(
            found.rows,
            text=args.text,
            kind=args.kind,
            limit=args.limit,
            unchecked=found.unchecked,
            sign=directory.sign,
        )
        document = present.dumps(present.listing_document(answer))
        if not args.watch or document != last:
            text = (
                document
                if args.json
                else present.listing_text(
                    answer, int(time.time() * 1000), filtered=bool(args.text or args.kind)
                )
            )
            sys.stdout.write(text)
            sys.stdout.flush()
        if not args.watch:
            return 0
        last = document
        time.sleep(1.0)
