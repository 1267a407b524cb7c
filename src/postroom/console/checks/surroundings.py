"""What in this shell makes a command act for another session than is meant, or another Postroom run (10.38).

Findings from facts; nothing is looked at here. `console.looks.surroundings` gathers the facts. The value of no variable
is shown but those of POSTROOM_SESSION, POSTROOM_NAME and POSTROOM_SOCKET, which are no secrets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.console.checks.finding import Finding, claimed, found
from postroom.core.keys import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PREFIX = "POSTROOM_"

VARIABLES = (*("POSTROOM_HOME", "POSTROOM_NAME", "POSTROOM_SESSION", "POSTROOM_SOCKET", "POSTROOM_TOKEN"),)
"""The variables of ours that mean something."""

OWN_TESTS = f"{PREFIX}TEST_"
"""How the variables begin by which the project's tests are told what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What this shell has.

    Attributes:
        variables: the names of all variables that begin with POSTROOM_.
        session: what POSTROOM_SESSION says; empty: nothing.
        stands: what that is: a session that lives, one that has ended, or nobody.
        session_name: its name, where it is known.
        inside: the name of the session in which this shell runs, if it runs in one; `same`: that is the one.
        token: POSTROOM_TOKEN is set.
        socket: what POSTROOM_SOCKET says, where nothing lies there.
        name: what POSTROOM_NAME says.
        missing: (library, why) of what Postroom needs and cannot load.
        command: the `postroom` that the shell finds, where that is of another installation; `own`: this one.
    """

    variables: tuple[str, ...] = ()
    session: str = ""
    stands: str = ""
    session_name: str = ""
    inside: str = ""
    same: bool = False
    token: bool = False
    socket: str = ""
    name: str = ""
    missing: tuple[tuple[str, str], ...] = ()
    command: str = ""
    own: str = ""


_UNSET = "unset POSTROOM_SESSION POSTROOM_SOCKET POSTROOM_TOKEN"


def session(facts: Surroundings) -> Iterator[Finding]:
    """POSTROOM_SESSION and its like, left over from another session (10.38, 05.26)."""
    if facts.stands == "unknown":
        yield found(
            "env-session-unknown",
            f'POSTROOM_SESSION is "{claimed(facts.session)}", and no session of that name or id is known here: every'
            " command that acts for a session fails.",
            f"`{_UNSET}`; or set POSTROOM_HOME as it was where that session was opened.",
        )
    elif facts.stands == "ended":
        yield found(
            "env-session-ended",
            f"POSTROOM_SESSION names {claimed(facts.session_name)}, which has ended: commands that act for a session fail.",
            f"`{_UNSET}`; or bring it back: `postroom open --resume {claimed(facts.session)}`.",
        )
    elif facts.stands == "live" and facts.inside and not facts.same:
        yield found(
            "env-session-leftover",
            f"POSTROOM_SESSION names {claimed(facts.session_name)}, and this shell runs in {claimed(facts.inside)}:"
            " commands for the first are refused (not_your_session).",
            f"`{_UNSET}`.",
        )
    elif facts.stands == "live" and facts.token and not facts.inside:
        yield found(
            "env-session-leftover",
            f"POSTROOM_SESSION and POSTROOM_TOKEN are left over from {claimed(facts.session_name)}, in which this shell"
            " does not run: commands here act for it, and take its mail.",
            f"`{_UNSET}`.",
        )
    if facts.socket and facts.stands in ("", "live"):
        yield found(
            "env-socket-gone",
            f'POSTROOM_SOCKET is "{claimed(facts.socket)}", and nothing lies there: it is left over from a session that has'
            " ended or was opened again.",
            f"`{_UNSET}`.",
        )


def variables(facts: Surroundings) -> Iterator[Finding]:
    """Other variables of ours that do something, or nothing, and may not be meant."""
    if facts.name:
        yield found(
            "env-name",
            f'POSTROOM_NAME is "{claimed(facts.name)}": every session that is opened here wants that name, and the second'
            " gets a variant of it.",
            "`unset POSTROOM_NAME`, and give names with `postroom open --name`.",
        )
    for name in facts.variables:
        if name not in VARIABLES and not name.startswith(OWN_TESTS):
            yield found(
                "env-unknown",
                f"{claimed(name)} is set and means nothing to Postroom; the nearest that does is"
                f" {_nearest(name)}.",
                f"`unset {claimed(name)}`, or correct its name.",
            )


def _nearest(name: str) -> str:
    ends = [known.removeprefix(PREFIX) for known in VARIABLES]
    return f"{PREFIX}{nearest(name.removeprefix('POSTROOM_'), ends)}"


def installation(facts: Surroundings) -> Iterator[Finding]:
    """Another Postroom is found by the shell, or this one lacks a part."""
    for library, why in facts.missing:
        yield found(
            "dependency-missing",
            f"The library {library} cannot be loaded ({claimed(why)}): nothing can be sent or received.",
            f"Install it beside this Postroom: `{claimed(facts.own)} -m pip install {library}`.",
        )
    if facts.command:
        yield found(
            "postroom-other",
            f"The shell finds another Postroom than this one first: {claimed(facts.command)}. This one belongs to"
            f" {claimed(facts.own)}.",
            "Remove one of them, or put the one that is meant first into PATH.",
        )


CHECKS: tuple[Callable[[Surroundings], Iterator[Finding]], ...] = (session, variables, installation)
