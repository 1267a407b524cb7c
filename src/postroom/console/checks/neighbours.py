"""Whether programs with messaging of their own, and the sessions here, see each other (05.28, 09.13, 09.14).

Findings from facts; nothing is looked at here. `console.looks.neighbours` gathers the facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.console.checks.finding import Finding, claimed, counted, found, several

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """What was seen of one program.

    Attributes:
        program, title: its name in settings, and as people call it.
        folder: where its records lie; `there`: that folder exists.
        sessions: how many of its sessions were found that are no client of a session here; `ours`: how many are one.
        conditions: (name, why) of those that cannot be written to.
        deaf: names of those whose socket takes no connection.
        unfit: (file, reason) of records that a person can mend.
        unread: (place, reason) of what could not be looked at.
        left: records of ours there whose process is gone.
        published: `publishTo` names it here.
        installed: it is on this machine, though it may never have been started.
    """

    program: str
    title: str
    folder: str = ""
    there: bool = False
    sessions: int = 0
    ours: int = 0
    conditions: tuple[tuple[str, str], ...] = ()
    deaf: tuple[str, ...] = ()
    unfit: tuple[tuple[str, str], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    unread: tuple[tuple[str, str], ...] = ()
    published: bool = False
    installed: bool = False


def records(facts: tuple[Neighbour, ...]) -> Iterator[Finding]:
    """Records that were passed over, and folders that could not be looked at (05.10, 05.28)."""
    for each in facts:
        for place, reason in each.unread:
            yield found(
                "neighbour-unread",
                f"The sessions of {each.title} are not seen: {claimed(place)}: {claimed(reason)}.",
                "Mend its owner and mode (yours, 0700), as that program makes it.",
            )
        for file, reason in each.unfit:
            yield found(
                "neighbour-skipped",
                f"A session of {each.title} is passed over: {claimed(file)}: {claimed(reason)}.",
                "Mend that file's owner and mode, or start that session anew.",
            )
        if each.skipped:
            reasons = sorted({claimed(reason) for _, reason in each.skipped})
            yield found(
                "neighbour-left-out",
                f"{counted(len(each.skipped), 'record')} of {each.title} {'is' if len(each.skipped) == 1 else 'are'} left"
                f" out: {'; '.join(reasons[:_REASONS])}.",
                "Nothing, unless one of them is a session that should be there: then start it anew.",
            )
        for name, why in each.conditions:
            yield found(
                "neighbour-condition",
                f"{claimed(name)}, a session of {each.title}, cannot be written to as it stands: {claimed(why)}.",
                "Start that session anew with a version that has its messaging on.",
            )
        if each.deaf:
            yield found(
                "neighbour-deaf",
                f"{several(each.deaf)}, of {each.title}, {'takes' if len(each.deaf) == 1 else 'take'} no connection"
                " within a quarter of a second: what is sent there fails.",
                "Start it anew; if it is only busy, try again.",
            )


_REASONS = 3
"""Reasons that are named of many records."""


def publishing(facts: tuple[Neighbour, ...]) -> Iterator[Finding]:
    """`publishTo` names a program that is not here, or does not name one that is (09.13)."""
    for each in facts:
        if each.published and not each.there and not each.installed:
            yield found(
                "publish-nobody",
                f'"publishTo" names {each.program}, and {each.title} is not here: {claimed(each.folder) or "its folder"}'
                " does not exist.",
                f"Nothing, if {each.title} is to come: start it once. If not: `postroom unsetup {each.program}`.",
            )
        elif not each.published and each.sessions:
            yield found(
                "publish-not",
                f"{counted(each.sessions, 'session')} of {each.title} {'runs' if each.sessions == 1 else 'run'} here and"
                " cannot answer sessions of Postroom, which are not shown to it.",
                f'If they are to: `postroom setup {each.program}`, or "publishTo": ["{each.program}"] in your settings.',
            )


CHECKS: tuple[Callable[[tuple[Neighbour, ...]], Iterator[Finding]], ...] = (records, publishing)
