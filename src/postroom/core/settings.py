"""What is set: the scopes, what one file of a scope says, and what applies of all together (03.29 to 03.36).

A *layer* is what one file says: `read_layer` checks it, key by key, with the rows of `core.keys`. `effective` makes
one `Settings` of all layers; how those of one key combine is the table `COMBINE`, and for the inbound setting this
ladder.

HOW `crossSessionInbound` COMBINES (03.29, 03.32). The candidates, in this order:
 1. the first of managed, flag, user that sets it; a value that is none of the three words counts as `hold`;
 2. a managed, flag or user file that could never be read: `hold`, since it may have said so (03.35);
 3. what the project's and the local files set, where it is more than `accept`;
 4. a project's or local file that could never be read: `hold`.
The strictest wins, and the first among equals. So a checked-in file can make it stricter and never laxer.

It never reads a file, watches or warns. It raises nothing, whatever a file holds: what is wrong becomes a sentence in
`problems`, none of which holds a secret. Neither does the `repr` of a record.

What is weak: a file that could never be read may also have denied tools or shortened a limit; only what comes in,
and what leaves this machine, is held back on that account.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

from postroom.core.keys import (
    CHECKED_IN,
    INBOUND,
    INVALID,
    ISOLATION,
    NOT_BUILT,
    OBJECTS,
    RANGES,
    ROWS,
    SCOPES,
    STRICTNESS,
    TRUSTED,
    How,
    InboundValue,
    Limits,
    Row,
    Scope,
    line,
    nearest,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Limits"]

Cause = Literal[
    "explicit-setting",
    "managed-setting",
    "repo-setting",
    "invalid-setting",
    "mode-unknown",
    "mode-mismatch",
    "no-mode-asserted",
    "unverified-sender",
]
"""Why a message is held (03.18); the first four come from settings and never expire."""

CAUSES: Mapping[Scope, Cause] = MappingProxyType(
    {
        "managed": "managed-setting",
        "flag": "explicit-setting",
        "user": "explicit-setting",
        "project": "repo-setting",
        "local": "repo-setting",
    }
)
"""What a hold is called that a scope's setting made."""

MAX_COMPLAINTS = 10
"""Sentences about one file; the rest is a number. A file of nothing but mistakes must not fill a page."""

_SOURCE = 300
"""Characters of a path, or of a reason, in a sentence."""


# ---------------------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundSetting:
    """The inbound setting that applies.

    Attributes:
        value: what it says.
        scope: who decided it.
        cause: what a hold by it is called.
    """

    value: InboundValue
    scope: Scope
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What one file says, checked. Project and local may have two each: working directory and repository root.

    Attributes:
        scope: whose it is.
        source: the path, or what stands for it in a sentence.
        values: a key of `ROWS` → its value; what this scope may not set is left out.
        problems: sentences about it.
        unusable: those of them that are about a value that cannot be used; a limit out of its range can.
        broken: it cannot be read, and never could: nobody knows what it says (03.35).
    """

    scope: Scope
    source: str
    values: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    problems: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()
    broken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What applies, of all scopes together.

    Attributes:
        inbound: what decides about everything that comes in; None: nothing is set, the classes decide.
        dialog_expiry: milliseconds until a hold by a default rule ends; None: never.
        isolate_peer_machines: a person is asked before anything leaves this machine.
        cross_machine: whether conversations with sessions elsewhere may be begun here.
        refusal_notice: whether a sender learns that it is refused.
        read_receipts: whether a sender learns that its message was taken.
        limits: the bounds of the inbox and the loop guard.
        denied: tool names that are denied, as they were written.
        publish_to: neighbours in whose registry this session is published.
        desktop_notices: whether a hold is announced on the desktop.
        claim_tasks: whether an idle teammate claims a task by itself.
        nats, gateways: how other machines are reached; with secrets in them.
        set_by: each key that is set → the scope that decided it; the limits one by one, as `limits.maxUnread`.
        problems: sentences for `status` and `doctor`, the files in the order of their scopes.
    """

    inbound: InboundSetting | None = None
    dialog_expiry: int | None = 300_000
    isolate_peer_machines: bool = False
    cross_machine: Literal["reply-only", "open"] = "reply-only"
    refusal_notice: Literal["silent", "tell"] = "silent"
    read_receipts: bool = False
    limits: Limits = field(default_factory=Limits)
    denied: frozenset[str] = frozenset()
    publish_to: tuple[str, ...] = ()
    desktop_notices: bool = False
    claim_tasks: bool = True
    nats: Mapping[str, object] | None = field(default=None, repr=False)
    gateways: tuple[object, ...] | Mapping[str, object] | None = field(default=None, repr=False)
    set_by: Mapping[str, Scope] = field(default_factory=dict[str, Scope])
    problems: tuple[str, ...] = ()


# ---------------------------------------------------------------------------------------- layers


class _Reading:
    """Reads the keys of one file into values and complaints."""

    def __init__(self, scope: Scope) -> None:
        self.scope: Scope = scope
        self.values: dict[str, object] = {}
        self.unusable: list[str] = []
        self.said: list[str] = []
        self.strange: list[str] = []

    def take(self, key: str, value: object) -> None:
        """Takes one key of the file."""
        if "." in key:  # ours alone: what lies in an object is written in that object
            self.strange.append(key)
            return
        if key not in OBJECTS:
            self._take(key, value)
            return
        rows = [name for name in ROWS if name.startswith(f"{key}.")]
        if not self._may(key, ROWS[rows[0]]):
            return
        if isinstance(value, dict):
            for inner, one in cast("dict[object, object]", value).items():
                self._take(f"{key}.{inner}", one)
            return
        said = f"{key} is {shown(value)} and no object; what stands in it by default counts"
        self.said.append(said)
        self.unusable.append(said)
        self.values |= {name: ROWS[name].read(None).value for name in rows}

    def _take(self, name: str, value: object) -> None:
        row = ROWS.get(name)
        if row is None:
            self.strange.append(name)
        elif self._may(name, row):
            read = row.read(value)
            self.values[name] = read.value
            said = [f"{name} {complaint}" for complaint in read.complaints]
            self.said += said
            self.unusable += [] if read.usable else said
            self._comment(name, value)

    def _may(self, name: str, row: Row) -> bool:
        if self.scope in row.who:
            return True
        self.said.append(
            f"{name} does nothing in a project's file: only {', '.join(row.who)} settings decide it"
        )
        return False

    def _comment(self, name: str, value: object) -> None:
        """Says what is worth saying of a value that is right."""
        if name == INBOUND and value == "accept" and self.scope in CHECKED_IN:
            self.said.append(
                f'{name} "accept" does nothing in a project\'s file, which can only make it stricter: '
                "set it in your user settings"
            )
        if name in NOT_BUILT:
            self.said.append(f"{name} is read, but what it is for is not built in this version")

    def complaints(self) -> list[str]:
        """At most `MAX_COMPLAINTS`, those about known keys first, and the number of the rest."""
        said = self.said[:MAX_COMPLAINTS]
        said += [
            f"{shown(name)} is no known key; the nearest is {_nearest_key(name)}"
            for name in self.strange[: MAX_COMPLAINTS - len(said)]
        ]
        left = len(self.said) + len(self.strange) - len(said)
        return said + ([f"{left:,} more like these"] if left else [])


def _nearest_key(name: str) -> str:
    """The known key that is most like this one; of those in the same object, where it stands in one."""
    place, _, inner = name.partition(".")
    if place in OBJECTS:
        found = nearest(inner, [row for row in ROWS if row.startswith(f"{place}.")])
    else:
        found = nearest(name, (*OBJECTS, *ROWS))
    place, _, inner = found.partition(".")
    return f"{inner}, in {place}" if inner else place


def read_layer(scope: Scope, source: str, content: object, last_good: Layer | None = None) -> Layer:
    """Reads what one file says (03.23, 03.36).

    Args:
        scope: whose file it is.
        source: its path, or what stands for it in a sentence.
        content: the parsed JSON, of whatever type.
        last_good: what this function made of the file before; it stays where the content is no object (03.35).

    Returns the layer. A value that cannot be used counts as the strict side of its key, and is named; a limit
    out of its range counts as the nearest end; an unknown key is named with the nearest known one. It never raises.
    """
    if not isinstance(content, dict):
        return broken_layer(scope, source, f"it holds {shown(content)} and no object of settings", last_good)
    reading = _Reading(scope)
    for key, value in cast("dict[object, object]", content).items():
        reading.take(str(key), value)
    named = line(source, _SOURCE)
    return Layer(
        scope=scope,
        source=source,
        values=MappingProxyType(reading.values),
        problems=tuple(f"{named}: {said}." for said in reading.complaints()),
        unusable=tuple(f"{named}: {said}." for said in reading.unusable[:MAX_COMPLAINTS]),
    )


def broken_layer(scope: Scope, source: str, reason: str, last_good: Layer | None) -> Layer:
    """What a file counts as that cannot be read or parsed (03.35).

    Args:
        scope, source: as in `read_layer`.
        reason: why not, in a few words.
        last_good: what `read_layer` made of it when that was possible; None: never.

    Returns its last good content, which stays in force, or a layer that says nothing and is `broken`.
    """
    known = last_good if last_good is not None and not last_good.broken else None
    then = "what it said before stays in force" if known else "until it is mended, what comes in is held"
    problem = f"{line(source, _SOURCE)}: {line(reason, _SOURCE)}; {then}."
    if known is None:
        return Layer(scope=scope, source=source, problems=(problem,), broken=True)
    return replace(known, problems=(problem, *known.problems))


# ---------------------------------------------------------------------------------------- all together

Holders = list[tuple[Scope, object]]
"""Who sets a key, in the order of the scopes, and to what; never empty."""


def _first(holders: Holders) -> tuple[Scope, object]:
    return holders[0]


def _any(holders: Holders) -> tuple[Scope, object]:
    return next((holder for holder in holders if holder[1]), holders[0])


def _union(holders: Holders) -> tuple[Scope, object]:
    names = [cast("frozenset[str]", value) for _, value in holders]
    return holders[0][0], frozenset[str]().union(*names)


def _ratchet(holders: Holders) -> tuple[Scope, object]:
    """The first trusted one, unless a checked-in one switches it off, which is the strict side."""
    trusted = [holder for holder in holders if holder[0] in TRUSTED][:1]
    checked_in = [holder for holder in holders if holder[0] in CHECKED_IN]
    return min(trusted + checked_in, key=lambda holder: bool(holder[1]))


COMBINE: Mapping[How, Callable[[Holders], tuple[Scope, object]]] = MappingProxyType(
    {"first": _first, "any": _any, "union": _union, "ratchet": _ratchet}
)
"""How the layers of a key combine: from who sets it, to who decides it and what applies."""


def effective(layers: Sequence[Layer]) -> Settings:
    """Combines the layers of all scopes (03.29 to 03.33).

    Args:
        layers: in any order; of two of one scope that say the same, the first counts.
    """
    ordered = [layer for scope in SCOPES for layer in layers if layer.scope == scope]
    found: dict[str, Any] = {}
    set_by: dict[str, Scope] = {}
    for name, row in ROWS.items():
        holders: Holders = [(layer.scope, layer.values[name]) for layer in ordered if name in layer.values]
        if name == ISOLATION:
            holders += _isolating(ordered)
        if holders and row.how in COMBINE:
            set_by[name], found[row.attribute] = COMBINE[row.how](holders)
    inbound = _inbound(ordered)
    if inbound is not None:
        set_by[INBOUND] = inbound.scope
    limits = {name: found.pop(name) for name, _, _ in RANGES.values() if name in found}
    return Settings(
        inbound=inbound,
        limits=Limits(**limits),
        set_by=MappingProxyType(set_by),
        problems=tuple(dict.fromkeys(problem for layer in ordered for problem in layer.problems)),
        **found,
    )


def _isolating(ordered: Sequence[Layer]) -> Holders:
    """The files that could never be read: each may have said it."""
    return [(layer.scope, True) for layer in ordered if layer.broken]


def _inbound(ordered: Sequence[Layer]) -> InboundSetting | None:
    """The setting that wins: the ladder at the head of this module."""

    def said(scopes: tuple[Scope, ...]) -> list[InboundSetting]:
        return [_setting(layer) for layer in ordered if layer.scope in scopes and INBOUND in layer.values]

    def unread(scopes: tuple[Scope, ...]) -> list[InboundSetting]:
        return [_invalid(layer.scope) for layer in ordered if layer.scope in scopes and layer.broken]

    candidates = [
        *said(TRUSTED)[:1],
        *unread(TRUSTED),
        *(setting for setting in said(CHECKED_IN) if setting.value != "accept"),
        *unread(CHECKED_IN),
    ]
    return max(candidates, key=lambda setting: STRICTNESS.index(setting.value), default=None)


def _setting(layer: Layer) -> InboundSetting:
    value = cast("InboundValue | Literal['invalid']", layer.values[INBOUND])
    if value == INVALID:
        return _invalid(layer.scope)
    return InboundSetting(value=value, scope=layer.scope, cause=CAUSES[layer.scope])


def _invalid(scope: Scope) -> InboundSetting:
    return InboundSetting(value="hold", scope=scope, cause="invalid-setting")


DEFAULTS = effective(())
"""What applies where nothing is set."""
