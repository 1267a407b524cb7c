"""`postroom doctor`: everything that silently makes messages not arrive, each with what mends it (10.16).

`examine` has each part looked at (`console.looks`) and judged (`console.checks`). A part that cannot be looked at is a
finding by itself and does not take the others with it. It works without any session, with a broken state folder and as
another user; it changes nothing, and every session that lives is asked for two seconds at most.

It never raises for what it finds, and shows no secret and no text of a message.

What is weak: it sees what this process sees, at this moment. Who lives in another container is not there, and what a
program does later is not known now.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from postroom import __version__
from postroom.console.checks import (
    clients,
    folders,
    machine,
    mail,
    neighbours,
    sessions,
    settings,
    surroundings,
)
from postroom.console.checks.finding import AREAS, SEVERITIES, Finding, claimed, counted, found, ordered
from postroom.console.looks import clients as look_clients
from postroom.console.looks import folders as look_folders
from postroom.console.looks import machine as look_machine
from postroom.console.looks import neighbours as look_neighbours
from postroom.console.looks import sessions as look_sessions
from postroom.console.looks import settings as look_settings
from postroom.console.looks import surroundings as look_surroundings
from postroom.present import one_line
from postroom.state.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_PYTHON = ".".join(map(str, sys.version_info[:3]))

Facts = TypeVar("Facts")
Checks = tuple["Callable[[Facts], Iterator[Finding]]", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What came of it.

    Attributes:
        findings: the worst first.
        seen: what was looked at, as parts of a sentence.
        place: from where.
    """

    findings: tuple[Finding, ...]
    seen: tuple[str, ...] = ()
    place: str = ""

    @property
    def code(self) -> int:
        """The exit code: 1 where something is an error (10.16)."""
        return int(any(finding.severity == "error" for finding in self.findings))


class _Doctor:
    """One examination under way."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def part(self, name: str, look: Callable[[], Facts], nothing: Facts, checks: Checks[Facts]) -> Facts:
        """Looks at one part and judges it; what fails is a finding, and the part counts as not seen."""
        try:
            facts = look()
        except Exception as error:
            self._failed(name, error)
            return nothing
        for check in checks:
            self.judge(name, lambda check=check: check(facts))
        return facts

    def judge(self, name: str, check: Callable[[], Iterable[Finding]]) -> None:
        """Adds what one check finds."""
        try:
            self.findings += check()
        except Exception as error:
            self._failed(name, error)

    def _failed(self, name: str, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or type(error).__name__
        self.findings.append(
            found(
                "check-failed",
                f"{name} could not be looked at: {claimed(str(reason))}.",
                "Run it again. If it stays so, this is a mistake in Postroom that is worth a report.",
            )
        )


def examine(environ: Mapping[str, str] | None = None, cwd: str | None = None) -> Examined:
    """Looks at everything. Never raises.

    Args:
        environ: the environment that decides the folders; this process's own by default.
        cwd: the folder whose settings count; this process's own by default.
    """
    environ = os.environ if environ is None else environ
    cwd = cwd or _cwd()
    doctor = _Doctor()
    state = look_folders.state_folder(environ)
    book = None if state is None else Roster(state)
    where = doctor.part("The machine", look_machine.look, machine.Machine(), machine.CHECKS)
    places = doctor.part(
        "The folders", lambda: look_folders.look(environ, book), folders.Folders(), folders.CHECKS
    )
    everybody = sessions.Sessions()
    if book is not None:
        everybody = doctor.part("The sessions", lambda: look_sessions.look(book), everybody, sessions.CHECKS)
    for check in mail.CHECKS:
        doctor.judge("The mail", lambda check=check: check(everybody.live))
    files = doctor.part(
        "The settings",
        lambda: look_settings.look(cwd, environ, [each.cwd for each in everybody.live]),
        settings.Settings(),
        settings.CHECKS,
    )
    paths = [file.path for file in files.files]
    doctor.judge("The sessions", lambda: sessions.problems(everybody, paths))
    doctor.part(
        "This shell",
        lambda: look_surroundings.look(environ, book),
        surroundings.Surroundings(),
        surroundings.CHECKS,
    )
    programs = doctor.part(
        "The clients",
        lambda: look_clients.look(environ, state, everybody.live),
        clients.Clients(),
        clients.CHECKS,
    )
    doctor.judge("The clients", lambda: clients.trust(programs, everybody.live))
    doctor.judge("The clients", lambda: clients.silent_hooks(programs, everybody.live))
    doctor.judge("The clients", lambda: clients.doors(programs, everybody.live))
    here = [one.name for one in programs.clients if one.here]
    named = files.here.publish_to if files.here is not None else ()
    theirs = doctor.part(
        "The neighbours",
        lambda: look_neighbours.look(environ, named, here, everybody.live),
        (),
        neighbours.CHECKS,
    )
    return Examined(
        findings=ordered(doctor.findings),
        seen=tuple(_seen(places, everybody, files, programs, theirs)),
        place=where.seen_from,
    )


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "/"  # it was removed


def _seen(
    places: folders.Folders,
    everybody: sessions.Sessions,
    files: settings.Settings,
    programs: clients.Clients,
    theirs: tuple[neighbours.Neighbour, ...],
) -> Iterator[str]:
    """What was looked at, for the line that says so."""
    kinds = {room.path: room.kind for room in places.rooms}
    for name, path in (("state folder", places.state_chosen), ("socket folder", places.sockets_chosen)):
        if path is not None:
            yield f"the {name} {claimed(path)}" + (f" ({kinds[path]})" if kinds.get(path) else "")
    answered = sum(each.status is not None for each in everybody.live)
    yield counted(len(everybody.live), "session") + (f" ({answered:,} answered)" if everybody.live else "")
    if everybody.folders:
        yield counted(everybody.folders, "session folder")
    yield counted(len(files.files), "settings file")
    yield counted(len(programs.clients), "client")
    for one in (one for one in theirs if one.there):
        yield f"{counted(one.sessions, 'session')} of {one.title}{' besides ours' if one.ours else ''}"
    yield "this shell"


# ── shown ────────────────────────────────────────────────────────────────────────────────────────


def document_of(examined: Examined) -> dict[str, object]:
    """What `doctor --json` answers (10.29)."""
    return {
        "findings": [
            {"id": each.id, "severity": each.severity, "what": each.what, "mend": each.mend}
            for each in examined.findings
        ]
    }


def text_of(examined: Examined) -> str:
    """What `doctor` prints: the findings by part, each with what mends it, and what was looked at."""
    lines: list[str] = []
    for area, heading in AREAS.items():
        here = [each for each in examined.findings if each.area == area]
        if here:
            lines += [heading, *(row for each in here for row in _rows(each)), ""]
    counts = [
        counted(number, severity)
        for severity in SEVERITIES
        if (number := sum(each.severity == severity for each in examined.findings))
    ]
    lines.append(
        f"{', '.join(counts)}." if counts else "All is well: nothing here keeps messages from arriving."
    )
    lines.append(one_line(f"Looked at: {'; '.join(examined.seen)}."))
    lines.append(one_line(f"Seen from {examined.place}, by Postroom {__version__} on Python {_PYTHON}."))
    return "\n".join(lines) + "\n"


def _rows(finding: Finding) -> tuple[str, str]:
    return (
        f"  {finding.severity:7}  {one_line(finding.what)}  [{finding.id}]",
        f"           → {one_line(finding.mend)}",
    )
