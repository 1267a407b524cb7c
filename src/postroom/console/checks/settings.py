"""What is wrong in the settings files of each scope, and what they keep from arriving (03.23 to 03.36).

Findings from facts; nothing is looked at here. `console.looks.settings` gathers the facts. No sentence holds a value
of `nats` or `gateways`: those of `core.settings` do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.console.checks.finding import Finding, claimed, found, several

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One settings file.

    Attributes:
        scope: whose it is.
        path: where it lies.
        unread: why it cannot be read or parsed; empty: it can.
        left_alone: why it is not heeded: another user put it there.
        unusable: sentences about values that cannot be used.
        said: the other sentences about it.
    """

    scope: str
    path: str
    unread: str = ""
    left_alone: str = ""
    unusable: tuple[str, ...] = ()
    said: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What applies to a session that is opened in one folder.

    Attributes:
        cwd: the folder.
        inbound: the effective inbound setting; None for none. `scope` decided it.
        denied: the tools that are denied.
        publish_to: the neighbours to whom it is shown.
    """

    cwd: str
    inbound: str | None = None
    scope: str = "default"
    denied: tuple[str, ...] = ()
    publish_to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All files that apply here or to a session that lives, each once, and what applies here."""

    files: tuple[File, ...] = ()
    here: Place | None = None


def files(facts: Settings) -> Iterator[Finding]:
    """Files that cannot be read, and values in them that do not do what was meant (03.23, 03.29, 03.34, 03.35)."""
    for file in facts.files:
        mend = f"Mend {claimed(file.path)}; sessions that run see it at once."
        if file.unread:
            yield found(
                "settings-unread",
                f"The {file.scope} settings, {claimed(file.path)}, cannot be read: {claimed(file.unread)}. A session"
                " that read it before goes on with what it said then; one that is opened now holds everything that comes"
                " in.",
                mend,
            )
        if file.left_alone:
            yield found(
                "settings-left-alone",
                f"The {file.scope} settings, {claimed(file.path)}, are left alone: {claimed(file.left_alone)}.",
                "Remove that file, or make it your own in a folder that others may not write to.",
            )
        for sentence in file.unusable:
            yield found("settings-invalid", sentence, mend)
        for sentence in file.said:
            if '"accept" does nothing' in sentence:
                yield found(
                    "settings-accept-ignored",
                    sentence,
                    'Write "crossSessionInbound": "accept" into your user settings, or give it with --settings.',
                )
            elif ", outside " in sentence:
                yield found("settings-clamped", sentence, mend)
            else:
                yield found("settings-other", sentence, mend)


def here(facts: Settings) -> Iterator[Finding]:
    """What the settings do to a session that is opened here (03.10, 03.11, 03.33)."""
    place = facts.here
    if place is None:
        return
    broken = any(file.unread and file.scope == place.scope for file in facts.files)
    if place.inbound in ("hold", "refuse") and not broken:  # else that is said of the file
        yield found(
            "settings-inbound",
            f"A session that is opened in {claimed(place.cwd)} {place.inbound}s everything that comes in: the"
            f" {claimed(place.scope)} settings decide it.",
            'Change "crossSessionInbound" there if that is not meant.',
        )
    if place.denied:
        yield found(
            "tool-denied",
            f"Settings deny {several(place.denied)} to a session that is opened in {claimed(place.cwd)}, and to your own"
            " commands there.",
            "Take it out of permissions.deny if that is not meant.",
        )


CHECKS: tuple[Callable[[Settings], Iterator[Finding]], ...] = (files, here)
