"""Looks at the records of programs with messaging of their own, for `console.checks.neighbours`.

Nothing is swept or published; each session's socket is connected to and left again, as that program's own listing does.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from postroom import neighbours
from postroom.console.checks.neighbours import Neighbour

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from postroom.console.checks.sessions import Live

_ORDINARY = ("Postroom published it", "its process has ended")
"""Reasons for passing a record over that are no reason for a word."""

_MOST_PROBED = 50
"""Sockets that are tried, each for a quarter of a second at most."""


def look(
    environ: Mapping[str, str], publish_to: Sequence[str], installed: Sequence[str], live: Sequence[Live]
) -> tuple[Neighbour, ...]:
    """Gathers the facts. Never raises for what another program left.

    Args:
        environ: says where the programs' folders are.
        publish_to: what the settings here name.
        installed: the clients that are on this machine.
        live: our sessions that live: whose client one of theirs is, is no neighbour.
    """
    return tuple(_seen(environ, publish_to, installed, live))


def _seen(
    environ: Mapping[str, str], publish_to: Sequence[str], installed: Sequence[str], live: Sequence[Live]
) -> Iterator[Neighbour]:
    there = neighbours.there(environ)
    ours = {one.client for one in live}
    for program in neighbours.NEIGHBOURS:
        published = program in publish_to
        if program not in there and not published:
            continue
        neighbour = neighbours.load(program, environ)
        folder = neighbours.folder_of(program, environ)
        if program not in there:
            yield Neighbour(
                program=program,
                title=neighbour.title,
                folder=folder,
                published=True,
                installed=program in installed,
            )
            continue
        seen = neighbour.look(sweep=False)
        theirs = [one for one in seen.found if (one.pid, one.start) not in ours]
        reachable = [one for one in theirs if one.path and not one.condition][:_MOST_PROBED]
        unfit = set(seen.unfit)
        yield Neighbour(
            program=program,
            title=neighbour.title,
            folder=folder,
            there=os.path.isdir(folder),
            sessions=len(theirs),
            ours=len(seen.found) - len(theirs),
            conditions=tuple((one.name, one.condition) for one in theirs if one.condition),
            deaf=tuple(one.name for one in reachable if not neighbour.probe(one)),
            unfit=seen.unfit,
            skipped=tuple(one for one in seen.skipped if one not in unfit and one[1] not in _ORDINARY),
            unread=seen.unchecked,
            published=published,
        )
