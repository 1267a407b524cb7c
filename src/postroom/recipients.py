"""Whom a message goes to: the answer of the resolution, believed only of somebody who lives at this instant.

An index tells who was there at the latest look. A session that was killed since stands in it still; so an answer is
checked, and a refusal is given only after everything was looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.core.message import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroom.core.resolve import Resolved
    from postroom.directory import Directory


def live_answer(
    ask: Callable[[], Resolved | Refusal], directory: Directory, caller: str
) -> Resolved | Refusal | None:
    """Resolves until the answer is somebody who lives at this instant (02.13).

    Args:
        ask: resolves against the directory's index as it is then.
        directory: looks again, and knows who lives.
        caller: the asking session, which lives.

    Returns None where whoever answered was dead each time.
    """
    for fresh in (False, True, True):
        if fresh:
            directory.refresh()
        found = ask()
        if isinstance(found, Refusal):
            if fresh:
                return found
        elif found.candidate.identity == caller or directory.live(found.candidate.identity):
            return found
    return None
