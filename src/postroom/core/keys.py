"""The keys of a settings file: which there are, who may set each, and how one value is read (03.23).

`ROWS` is the whole table. A row's `read` takes one value, of whatever type, and returns what counts and what is wrong
with it. What cannot be used counts as the strict side of its key, which mostly is its default, so that a mistake never
opens anything; a limit out of its range counts as the nearest end.

It never raises, combines scopes or knows of files: `core.settings` does the first two, `state.config` the last.

No complaint holds anything that stands inside `nats` or `gateways`, the name of a key there included: there are
secrets in them.

What is weak: a tool's name in `permissions.deny` is not compared with the tools that exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Scope = Literal["managed", "flag", "user", "project", "local"]
"""Who says it (03.24 to 03.28)."""

InboundValue = Literal["accept", "hold", "refuse"]

SCOPES: tuple[Scope, ...] = ("managed", "flag", "user", "project", "local")
"""In the order in which they are asked."""

TRUSTED: tuple[Scope, ...] = ("managed", "flag", "user")
"""Those that a person wrote for this machine; the others come with a checkout."""

CHECKED_IN: tuple[Scope, ...] = ("project", "local")

STRICTNESS: tuple[InboundValue, ...] = ("accept", "hold", "refuse")
"""From lax to strict (03.29)."""

EXPIRIES: Mapping[str, int | None] = MappingProxyType(
    {"60s": 60_000, "5m": 300_000, "10m": 600_000, "never": None}
)
"""`dialogExpiry` → milliseconds."""

NEIGHBOURS = ("claude-code", "qwen-code")
"""What `publishTo` may name (chapter 09)."""

NOT_BUILT = frozenset({"isolatePeerMachines", "crossMachine", "nats", "gateways"})
"""Keys that are read and checked and whose feature is not there yet (03.36)."""

_QUOTED = 60
"""Characters of a value or key that a sentence quotes."""

MAX_DEPTH = 16
"""How deep lists and objects in `nats` and `gateways` may lie in each other; two are usual."""

UNBOUNDED = 2**63 - 1
"""In the place of a limit that is lifted: more than a store can count."""


# ---------------------------------------------------------------------------------------- limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of chapter 03: of a session's inbox, and of its loop guard.

    Attributes:
        bucket_capacity: messages that one sender may send at once (03.58).
        refill_per_second: how many more it may send in each second after.
        total_capacity: the same for all senders together (03.59).
        total_refill_per_second: the same for all senders together.
        repeat_seconds: how long the same text again from the same sender is a repeat; 0: never (03.60).
        max_self_hops: how often this session's own token may stand in a chain (03.61).
        max_chain_length: tokens in a chain, at most (03.62).
        max_tracked_senders: senders that are remembered; the least recently used goes (03.63).
        max_unread: messages accepted and not yet read, at most (03.64). Held ones are counted elsewhere.
    """

    bucket_capacity: int = 30
    refill_per_second: float = 0.5
    total_capacity: int = 120
    total_refill_per_second: float = 4.0
    repeat_seconds: float = 30.0
    max_self_hops: int = 10
    max_chain_length: int = 28
    max_tracked_senders: int = 256
    max_unread: int = 50

    @classmethod
    def unbounded(cls) -> Limits:
        """Limits that never apply: for a program that measures; no settings file can ask for them (12.23).

        Senders are still forgotten beyond the largest number that a file may set: that bounds memory, and
        keeps no message out.
        """
        return cls(
            bucket_capacity=UNBOUNDED,
            refill_per_second=float(UNBOUNDED),
            total_capacity=UNBOUNDED,
            total_refill_per_second=float(UNBOUNDED),
            repeat_seconds=0.0,
            max_self_hops=UNBOUNDED,
            max_chain_length=UNBOUNDED,
            max_tracked_senders=RANGES["maxTrackedSenders"][2],
            max_unread=UNBOUNDED,
        )


RANGES: Mapping[str, tuple[str, float, int]] = MappingProxyType(
    {
        "bucketCapacity": ("bucket_capacity", 5, 500),
        "refillPerSecond": ("refill_per_second", 0.05, 50),
        "totalCapacity": ("total_capacity", 30, 5_000),
        "totalRefillPerSecond": ("total_refill_per_second", 0.5, 500),
        "repeatSeconds": ("repeat_seconds", 0, 600),
        "maxSelfHops": ("max_self_hops", 3, 28),
        "maxChainLength": ("max_chain_length", 8, 31),
        "maxTrackedSenders": ("max_tracked_senders", 16, 100_000),
        "maxUnread": ("max_unread", 10, 5_000),
    }
)
"""A key in `limits` → the attribute of `Limits`, the lowest and the highest value (03.58 to 03.64)."""


# ---------------------------------------------------------------------------------------- words


def line(text: str, most: int) -> str:
    """Returns the text as part of one printable line, cut at `most` characters."""
    cut = text[:most]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    return cut if len(text) <= most else f"{cut}…"


def shown(value: object) -> str:
    """Returns a value as a sentence names it: short, whatever it is. For no value that may be a secret."""
    if isinstance(value, str):
        return f'"{line(value, _QUOTED)}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:,}" if -1e15 < value < 1e15 else "a number out of all bounds"
    kinds: tuple[tuple[type, str], ...] = ((dict, "an object"), (list, "a list"), (tuple, "a list"))
    return next((word for kind, word in kinds if isinstance(value, kind)), "null")


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns the one of the known keys whose last part is most like the word, however little (03.35)."""
    from difflib import get_close_matches

    spelled = {name.rpartition(".")[2].lower(): name for name in known}
    return spelled[get_close_matches(word[:_QUOTED].lower(), list(spelled), n=1, cutoff=0)[0]]


# ---------------------------------------------------------------------------------------- reading one value


class Read(NamedTuple):
    """What one value is read as.

    Attributes:
        value: what counts.
        complaints: what is wrong with the one that was written, each to be read after the key's name.
        usable: whether what was written counts, be it in part or as the nearest end.
    """

    value: object
    complaints: tuple[str, ...] = ()
    usable: bool = True


def _instead(value: object, complaint: str) -> Read:
    """What counts in the place of a value that cannot be used."""
    return Read(value, (complaint,), usable=False)


INVALID: Final = "invalid"
"""What an inbound setting is read as that is none of the three words."""


def _inbound(value: object) -> Read:
    if value in STRICTNESS:
        return Read(value)
    return _instead(
        INVALID, f"is {shown(value)}, which is none of {', '.join(STRICTNESS)}; it counts as hold"
    )


def _expiry(value: object) -> Read:
    if isinstance(value, str) and value in EXPIRIES:
        return Read(EXPIRIES[value])
    return _instead(EXPIRIES["5m"], f"is {shown(value)}, which is none of {', '.join(EXPIRIES)}; 5m counts")


def _choice(*words: str) -> Callable[[object], Read]:
    """One of some words, of which the first is the strict one."""

    def read(value: object) -> Read:
        if value in words:
            return Read(value)
        return _instead(
            words[0], f"is {shown(value)}, which is none of {', '.join(words)}; {words[0]} counts"
        )

    return read


def _switch(strict: bool) -> Callable[[object], Read]:
    """True or false; anything else counts as the strict one of the two."""

    def read(value: object) -> Read:
        if isinstance(value, bool):
            return Read(value)
        return _instead(strict, f"is {shown(value)}, which is neither true nor false; {shown(strict)} counts")

    return read


def _limit(key: str) -> Callable[[object], Read]:
    """A number within its range; one that lies outside counts as the nearest end (03.23)."""
    attribute, lowest, highest = RANGES[key]
    default: float = getattr(Limits(), attribute)
    kind = type(default)

    def read(value: object) -> Read:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            return _instead(default, f"is {shown(value)}, which is no number; {default:g} counts")
        if not lowest <= value <= highest:
            end = kind(lowest if value < lowest else highest)
            return Read(end, (f"is {shown(value)}, outside {lowest:,g} to {highest:,}; {end:,g} counts",))
        if kind(value) != value:
            return _instead(default, f"is {shown(value)}, which is no whole number; {default:g} counts")
        return Read(kind(value))

    return read


TOOLS: Final = frozenset(
    {
        *("SendMessage", "ListAgents", "ObserverReport", "ReadMessages"),
        *("send_message", "list_agents", "report_observation", "read_messages"),
        *("TaskCreate", "TaskUpdate", "TaskList", "TaskGet", "TaskClaim"),
        *("task_create", "task_update", "task_list", "task_get", "task_claim"),
    }
)
"""What `permissions.deny` may name, in either spelling (01.33)."""


def _denied(value: object) -> Read:
    """A list of names; a single name is meant as denied too, so it is."""
    if isinstance(value, str):
        return _instead(
            frozenset((value,)), f"is {shown(value)} and no list; it counts as a list of that name"
        )
    if not _is_list(value):
        return _instead(
            frozenset[str](), f"is {shown(value)} and no list of tool names; nothing is denied by it"
        )
    items = _inside(value)
    names = frozenset(item for item in items if isinstance(item, str))
    odd = [item for item in items if not isinstance(item, str)]
    if odd:
        return _instead(names, f"holds {shown(odd[0])}, which is no tool name; the rest counts")
    unknown = sorted(names - TOOLS)
    return Read(
        names,
        tuple(
            f"names {shown(name)}, which is no tool of Postroom and so denies nothing; the nearest is"
            f" {nearest(name, TOOLS)}"
            for name in unknown[:1]
        ),
    )


def _neighbours(value: object) -> Read:
    known = ", ".join(NEIGHBOURS)
    if not _is_list(value):
        return _instead((), f"is {shown(value)} and no list of {known}; it counts as empty")
    names = _inside(value)
    taken = tuple(name for name in NEIGHBOURS if name in names)
    odd = [item for item in names if item not in NEIGHBOURS]
    if odd:
        return _instead(taken, f"names {shown(odd[0])}, which is none of {known}; the rest counts")
    return Read(taken)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_url(value: object) -> bool:
    """One address, or several."""
    return _is_text(value) or (_is_list(value) and all(map(_is_text, _inside(value))))


_NATS: Mapping[str, tuple[Callable[[object], bool], str]] = MappingProxyType(
    {
        "url": (_is_url, "text or a list of texts"),
        "credentials": (_is_text, "the path of a file"),
        "token": (_is_text, "text"),
        "tls": (lambda value: isinstance(value, dict), "an object"),
        "realm": (_is_text, "text"),
    }
)
"""What `nats` may hold → whether a value can be used, and what it must be."""


def _nats(value: object) -> Read:
    """All or nothing: half of an address and a credential would not be what was meant."""
    if not isinstance(value, dict):
        return _instead(None, f"must be an object with {', '.join(_NATS)}; it is left out")
    given = cast("dict[object, object]", value)
    wrong = [
        f"holds a {key} that is not {what}; all of it is left out"
        for key, (fits, what) in _NATS.items()
        if key in given and not fits(given[key])
    ]
    if not _is_shallow(given):
        wrong.append("lies too deep in itself; all of it is left out")
    strange = [key for key in given if key not in _NATS][:1]
    said = [
        *wrong,
        *(f"holds a key that is not known; the nearest is {nearest(str(key), _NATS)}" for key in strange),
    ]
    kept = None if wrong else _frozen({key: given[key] for key in _NATS if key in given})
    return Read(kept, tuple(said), usable=not wrong)


def _gateways(value: object) -> Read:
    """A list or an object; what may stand in it is chapter 08's."""
    if (isinstance(value, dict) or _is_list(value)) and _is_shallow(cast("object", value)):
        return Read(_frozen(cast("object", value)))
    return _instead(None, "must be a list or an object, and no deep one; it is left out")


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _inside(value: object) -> Sequence[object]:
    """What a list or an object holds; nothing for any other value."""
    if isinstance(value, dict):
        return tuple(cast("dict[str, object]", value).values())
    return tuple(cast("list[object]", value)) if _is_list(value) else ()


def _is_shallow(value: object, depth: int = MAX_DEPTH) -> bool:
    """Whether its lists and objects lie no deeper than `depth` in each other."""
    inside = _inside(value)
    return not inside or (depth > 0 and all(_is_shallow(item, depth - 1) for item in inside))


def _frozen(value: object) -> object:
    """The same value with its lists and objects made unchangeable."""
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return MappingProxyType({key: _frozen(item) for key, item in items})
    return tuple(map(_frozen, _inside(value))) if _is_list(value) else value


# ---------------------------------------------------------------------------------------- the table

How = Literal["inbound", "first", "any", "union", "ratchet"]
"""How the layers of one key combine: see `core.settings`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One key.

    Attributes:
        rule: where the specification says who decides it.
        attribute: where it stands in `Settings`, or in `Limits`.
        who: the scopes that may set it; in another it does nothing, and a sentence says so.
        how: how the layers combine.
        read: takes one value; returns what counts, and what is wrong.
    """

    rule: str
    attribute: str
    who: tuple[Scope, ...]
    how: How
    read: Callable[[object], Read]


INBOUND, ISOLATION = "crossSessionInbound", "isolatePeerMachines"

OBJECTS = ("limits", "permissions")
"""The keys whose keys have rows of their own."""

# fmt: off
_ROWS: tuple[tuple[str, str, str, tuple[Scope, ...], How, Callable[[object], Read]], ...] = (
    (INBOUND,            "03.29", "inbound",               SCOPES,  "inbound", _inbound),
    (ISOLATION,          "03.30", "isolate_peer_machines", SCOPES,  "any",     _switch(True)),
    ("dialogExpiry",     "03.31", "dialog_expiry",         TRUSTED, "first",   _expiry),
    ("refusalNotice",    "03.31", "refusal_notice",        TRUSTED, "first",   _choice("silent", "tell")),
    ("readReceipts",     "03.31", "read_receipts",         TRUSTED, "first",   _switch(False)),
    ("crossMachine",     "03.31", "cross_machine",         TRUSTED, "first",   _choice("reply-only", "open")),
    ("nats",             "03.31", "nats",                  TRUSTED, "first",   _nats),
    ("gateways",         "03.31", "gateways",              TRUSTED, "first",   _gateways),
    ("publishTo",        "03.31", "publish_to",            TRUSTED, "first",   _neighbours),
    ("desktopNotices",   "03.31", "desktop_notices",       TRUSTED, "first",   _switch(False)),
    ("claimTasks",       "03.23", "claim_tasks",           SCOPES,  "ratchet", _switch(False)),
    ("permissions.deny", "03.33", "denied",                SCOPES,  "union",   _denied),
    *((f"limits.{key}",  "03.31", RANGES[key][0],          TRUSTED, "first",   _limit(key)) for key in RANGES),
)
# fmt: on

ROWS: Mapping[str, Row] = MappingProxyType(
    {
        name: Row(rule=rule, attribute=attribute, who=who, how=how, read=read)
        for name, rule, attribute, who, how, read in _ROWS
    }
)
"""Every key as it is written in a file; one that lies in an object has the object's name and a dot before it."""
