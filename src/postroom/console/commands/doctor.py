"""`postroom doctor`: what silently makes messages not arrive, and what mends it (10.16)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from postroom import present
from postroom.console import doctor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.arguments import Values


def run(args: Values, argv: Sequence[str]) -> int:
    """Prints the findings; 1 where one of them is an error."""
    del argv
    examined = doctor.examine()
    if args.json:
        sys.stdout.write(present.dumps(doctor.document_of(examined)))
    else:
        sys.stdout.write(doctor.text_of(examined))
    return examined.code
