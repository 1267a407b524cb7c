"""A finding of `postroom doctor`: what keeps messages from arriving, and what mends it (10.16).

`KINDS` is the whole list: id → how bad it is and what it belongs to. The ids are stable, and docs/doctor.md has a row
for each. A check makes findings with `found`, which takes how bad it is from the table, so that one id always means
the same.

It decides nothing else, reads nothing and never raises. No finding holds a secret or the text of a message; words that
come from a record, a file name or the environment are claims and are cut and cleaned by `claimed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from postroom.core.keys import line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Severity = Literal["error", "warning", "note"]
"""Something does not arrive; something may not arrive, or not as meant; worth knowing, and nothing is wrong."""

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""The worst first."""

AREAS: Mapping[str, str] = MappingProxyType(
    {
        "folders": "Folders",
        "machine": "This machine",
        "sessions": "Sessions",
        "mail": "What waits, and what is let in",
        "settings": "Settings",
        "surroundings": "This shell",
        "clients": "Clients",
        "neighbours": "Programs with messaging of their own",
        "doctor": "What could not be looked at",
    }
)
"""The parts of the answer, in their order → their headings."""


class Kind(NamedTuple):
    """What one id means: how bad it is, and the part that it belongs to."""

    severity: Severity
    area: str


def _kinds(area: str, **severities: str) -> dict[str, Kind]:
    """The ids of one part: severity → ids, separated by blanks."""
    return {
        name: Kind(severity, area) for severity in SEVERITIES for name in severities.get(severity, "").split()
    }


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        **_kinds(
            "folders",
            error="state-unfit sockets-unfit registry-unread registry-locked disk-full disk-read-only",
            warning="state-skipped state-elsewhere sockets-skipped sockets-long sockets-taken name-unfit"
            " claim-kept",
            note="network-store",
        ),
        **_kinds("machine", warning="proc-hidden", note="container"),
        **_kinds(
            "sessions",
            error="record-unfit session-unlisted session-no-inbox session-unreachable session-silent session-deaf"
            " session-unasked store-unfit store-unread",
            warning="record-newer session-version session-elsewhere lock-kept store-newer store-set-aside"
            " session-problem",
            note="record-stale record-foreign record-unjudged session-not-yours session-trouble",
        ),
        **_kinds(
            "mail",
            error="inbox-full",
            warning="messaging-off inbound-refuse inbound-hold nobody-asked mode-unknown classes-differ held"
            " mail-waiting",
        ),
        **_kinds(
            "settings",
            error="settings-unread",
            warning="settings-invalid settings-accept-ignored settings-left-alone settings-clamped tool-denied"
            " settings-inbound",
            note="settings-other",
        ),
        **_kinds(
            "surroundings",
            error="env-session-unknown dependency-missing",
            warning="env-session-ended env-session-leftover env-socket-gone postroom-other",
            note="env-name env-unknown",
        ),
        **_kinds(
            "clients",
            error="client-command-gone client-config-unread mcp-missing",
            warning="client-half-set-up client-command-other client-without-session client-elsewhere client-entry-other"
            " hooks-off hooks-untrusted hooks-never-ran hooks-failed door-shut env-client-off",
            note="client-not-set-up",
        ),
        **_kinds(
            "neighbours",
            warning="neighbour-unread neighbour-skipped neighbour-deaf",
            note="neighbour-left-out neighbour-condition publish-not publish-nobody",
        ),
        **_kinds("doctor", warning="check-failed"),
    }
)
"""Every id. What leads to each, and what mends it, is in docs/doctor.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found (10.29).

    Attributes:
        id: one of `KINDS`; stable.
        severity: how bad it is.
        what: what is wrong, in one sentence or two.
        mend: the command or the step that mends it.
    """

    id: str
    severity: Severity
    what: str
    mend: str

    @property
    def area(self) -> str:
        """The part of the answer that it belongs to."""
        return KINDS[self.id].area


def found(kind: str, what: str, mend: str) -> Finding:
    """Makes a finding of one of the `KINDS`."""
    return Finding(id=kind, severity=KINDS[kind].severity, what=what, mend=mend)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings by how bad they are, then by the part they belong to, then as they were found; none twice."""
    places = {area: place for place, area in enumerate(AREAS)}
    return tuple(
        sorted(
            dict.fromkeys(findings),
            key=lambda finding: (SEVERITIES.index(finding.severity), places[finding.area]),
        )
    )


_CLAIM = 200
"""Characters of a claim in a sentence: a path or a name has fewer, a hostile one would fill the page."""

_NAMED = 3
"""How many of a long list are named; the rest is a number."""


def claimed(text: str) -> str:
    """A claim as part of one printable line."""
    return line(text, _CLAIM)


def several(names: Sequence[str]) -> str:
    """Some names in a sentence: at most three, and how many more."""
    shown = [claimed(name) for name in names[:_NAMED]]
    if len(names) > _NAMED:
        return f"{', '.join(shown)} and {len(names) - _NAMED:,} more"
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun: `no session`, `1 session`, `3 sessions`."""
    return f"no {one}" if not number else f"{number:,} {one if number == 1 else many or f'{one}s'}"
