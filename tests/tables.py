"""The tables of the documentation that are made from the source: `scripts/tables` prints them.

Each is printed as it stands in its page, so that it can be put there; `test_docs_inbound` holds the two equal. Nothing
is written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from postroom.core.holds import TOLD_HEAD, told_table
from postroom.core.inbound import RUNGS


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, without spaces to align it, so that one row can change alone."""
    lines = [" | ".join(head), "|".join("---" for _ in head), *(" | ".join(row) for row in rows)]
    return "".join(f"|{line}|\n" if line.startswith("---") else f"| {line} |\n" for line in lines)


def ladder() -> str:
    """The rungs of the ladder, first to last, as `explain` words them (03.6)."""
    return table(("rung", "what it says"), [(f"`{word}`", says) for word, says in RUNGS.items()])


def told() -> str:
    """Who is told what; where the specification has a row is left out, since a reader of the page has no use for it."""
    return table(TOLD_HEAD[:-1], [row[:-1] for row in told_table()])


if __name__ == "__main__":
    sys.stdout.write(f"docs/what-may-come-in.md, The ladder:\n\n{ladder()}\n")
    sys.stdout.write(f"docs/what-may-come-in.md, Who is told what:\n\n{told()}")
