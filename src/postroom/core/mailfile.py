"""A teammate's mailbox file as bytes: one JSON array of entries that other programs write too (07.2).

It decides what a file holds (`parse`), what it is with one entry more (`splice`) or without some (`without`), and by
what an entry is known again (`Item.key`). Neither way of writing puts the other entries into words anew: their bytes
are kept as their writers wrote them, unknown fields too.

It never reads or writes a file, and believes no entry: any program of this user can write one, so `from_` is a claim
(07.4). What an entry's text means is for `frames`.

How it fails: bytes never raise. An entry that is none is an item with a `reason`. A file that does not parse is
`whole = False`, and its items are what could be salvaged: each object in it that stands by itself, in their order;
nothing that is quoted inside a text is taken for an entry, because a quote inside a text is written `\\"`. `splice`
answers `full` or `damaged`. `encoded` raises ValueError for an entry that no file should hold.

What is weak: an entry without an id that is in everything like one that was taken before, its time of a thousandth of
a second included, is known by the same key. Bytes that are no UTF-8 are shown as `�`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from postroom.errors import InvalidName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    Buffer = bytes | msgspec.Raw

__all__ = [
    "MAX_BYTES",
    "MAX_ENTRIES",
    "Contents",
    "Entry",
    "Item",
    "check_member",
    "encoded",
    "joined",
    "parse",
    "splice",
    "without",
]

MAX_ENTRIES = 1000
"""Entries at which a mailbox takes no more (07.6): each append writes the whole file anew."""

MAX_BYTES = 4 * 1024 * 1024
"""Bytes at which it takes no more (07.6)."""

MAX_ID = 128
"""Characters of a message id, as on the wire; a longer one is none."""

_TOO_DEEP = 8
"""Objects that are nested too deep, or that no reader can hold, before what follows them is not searched any more:
each costs as much as everything behind it."""

_MEMBER = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_SPACE = " \t\n\r"
_NOTHING = b"[]"

Why = Literal["full", "damaged"]


def check_member(name: str) -> str:
    """Returns a member's name (07.8). Raises InvalidName for one that could share a file, or is a path."""
    if not _MEMBER.fullmatch(name):
        raise InvalidName(
            "That cannot be the name of a team's member.",
            "It has 1 to 64 of the characters A-Z, a-z, 0-9, _ and -.",
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry (07.2).

    Attributes:
        from_: the name of the member who is said to have written it.
        text: prose, or a frame as JSON.
        timestamp: when, as its writer put it: ISO 8601 in UTC.
        read: an older program has taken it and left it there.
        type, msg_id, msgV, summary, color: what older programs leave out.
    """

    from_: str
    text: str
    timestamp: str
    read: bool = False
    type: str | None = "message"
    msg_id: str | None = None
    msgV: int | None = 1
    summary: str | None = None
    color: str | None = None

    def __repr__(self) -> str:
        return f"<Entry {self.msg_id} from {self.from_!r}, {len(self.text)} characters>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One place in the array.

    Attributes:
        raw: its bytes as they stand there.
        key: by what it is known: its id, or the hash of its content; and how many of the same stand before it (07.4).
        entry: what it says; None where it is no entry.
        reason: why it is none, in a few words.
    """

    raw: bytes
    key: str
    entry: Entry | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a file holds.

    Attributes:
        items: in their order, with those that are no entries.
        whole: the file is one JSON array; False: `items` is what could be salvaged.
    """

    items: tuple[Item, ...] = ()
    whole: bool = True

    @property
    def bad(self) -> tuple[Item, ...]:
        """What is no entry."""
        return tuple(item for item in self.items if item.entry is None)

    @property
    def good(self) -> tuple[Item, ...]:
        """What is one."""
        return tuple(item for item in self.items if item.entry is not None)


# ── writing ──────────────────────────────────────────────────────────────────────────────────────


def encoded(entry: Entry) -> bytes:
    """Writes one entry as compact JSON, its fields in the order of other programs (07.2).

    Raises ValueError for one whose `from` is no member's name, or whose id or time is none: nothing is written that its
    reader would throw away.
    """
    if not _MEMBER.fullmatch(entry.from_):
        raise ValueError("its sender has no member's name")
    if not entry.timestamp or (entry.msg_id is not None and not 0 < len(entry.msg_id) <= MAX_ID):
        raise ValueError("its time or its id is none")
    return _encode(
        _Written(
            from_=entry.from_,
            text=_clean(entry.text),
            timestamp=_clean(entry.timestamp),
            read=entry.read,
            type=_text(entry.type),
            msg_id=_text(entry.msg_id),
            msgV=entry.msgV,
            summary=_text(entry.summary),
            color=_text(entry.color),
        )
    )


class _Written(msgspec.Struct, omit_defaults=True, rename={"from_": "from"}):
    """An entry as it is written: its fields in this order, without those that are None."""

    from_: str
    text: str
    timestamp: str
    read: bool
    type: str | None = None
    msg_id: str | None = None
    msgV: int | None = None
    summary: str | None = None
    color: str | None = None


_encode = msgspec.json.Encoder().encode


def splice(data: bytes, line: bytes) -> bytes | Why:
    """Adds one entry at the end (07.3, 07.6).

    Args:
        data: the file; nothing counts as an empty array.
        line: the entry, as `encoded` writes it.

    Returns the new file: the old bytes, a comma, the entry. `full` where that would pass a bound, `damaged` where the
    old bytes are not one array. What the entries in it are is not looked at.
    """
    data = data or _NOTHING
    pieces = _pieces(data)
    if pieces is None:
        return "damaged"
    end = data.rindex(b"]")
    while data[end - 1 : end].isspace():
        end -= 1
    comma = b"," if pieces else b""
    if len(pieces) >= MAX_ENTRIES or end + len(comma) + len(line) + 1 > MAX_BYTES:
        return "full"
    # Copied once and no more: where a mailbox is nearly full, a copy costs as much as all the rest.
    return b"".join((memoryview(data)[:end], comma, line, b"]"))


def joined(pieces: Iterable[bytes]) -> bytes:
    """An array of entries whose bytes are kept."""
    return b"[" + b",".join(pieces) + b"]"


def without(contents: Contents, keys: Collection[str]) -> tuple[bytes, int]:
    """Takes entries away (07.5).

    Args:
        keys: which; those that are not there are passed over.

    Returns the new file, and how many are gone from it.
    """
    left = [item.raw for item in contents.items if item.key not in keys]
    return joined(left), len(contents.items) - len(left)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


def parse(data: bytes) -> Contents:
    """Reads a file, whatever its bytes are (07.6). A file of no bytes holds nothing."""
    pieces = _pieces(data or _NOTHING)
    whole = pieces is not None
    seen: Counter[str] = Counter()
    items: list[Item] = []
    for piece in _salvaged(data.decode("utf-8", "replace")) if pieces is None else pieces:
        raw = bytes(piece)
        entry = _entry(raw)
        known = (
            f"id:{entry.msg_id}"
            if isinstance(entry, Entry) and entry.msg_id
            else f"hash:{_digest(entry, raw)}"
        )
        key = f"{seen[known]}:{known}"
        seen[known] += 1
        if isinstance(entry, Entry):
            items.append(Item(raw=raw, key=key, entry=entry))
        elif whole:  # what was salvaged is any object, and the file itself is kept aside
            items.append(Item(raw=raw, key=key, reason=entry))
    return Contents(items=tuple(items), whole=whole)


def _digest(entry: Entry | str, raw: bytes) -> str:
    """The hash of what an entry says, however its bytes are put; of something else its bytes."""
    if isinstance(entry, str):
        return sha256(raw).hexdigest()[:32]
    said = (entry.from_, entry.text, entry.timestamp, entry.type, entry.summary, entry.color)
    return sha256(json.dumps(said).encode()).hexdigest()[:32]


_array = msgspec.json.Decoder(list[msgspec.Raw])


def _pieces(data: bytes) -> Sequence[Buffer] | None:
    """The elements of the array, as their bytes; None where it is not one array."""
    try:
        return _array.decode(data)
    except msgspec.ValidationError:
        return None  # JSON, and no array
    except (msgspec.DecodeError, RecursionError):
        pass  # or half a surrogate pair, which other programs write and the standard allows
    if b"\\u" not in data:
        return None
    return _walked(data.decode("utf-8", "replace"))


def _no_number(word: str) -> object:
    """`NaN` and `Infinity` are no JSON."""
    raise ValueError(word)


_any = json.JSONDecoder(parse_constant=_no_number)


def _after(text: str, at: int) -> int:
    """The place of the next character that is no white space."""
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _walked(text: str) -> list[bytes] | None:
    """The same as `_pieces`, slower, and by a reader that takes half surrogate pairs."""
    pieces: list[bytes] = []
    at = _after(text, 0)
    if text[at : at + 1] != "[":
        return None
    at = _after(text, at + 1)
    mark = "," if text[at : at + 1] != "]" else "]"
    while mark == ",":
        try:
            _, end = _any.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        pieces.append(text[at:end].encode("utf-8", "replace"))
        at = _after(text, end)
        mark = text[at : at + 1]
        at = _after(text, at + 1) if mark == "," else at
    return pieces if mark == "]" and _after(text, at + 1) == len(text) else None


def _salvaged(text: str) -> list[bytes]:
    """The objects in a text that is no array: from each `{` that begins one, and after an error from where it lies."""
    found: list[bytes] = []
    too_deep = 0
    at = text.find("{")
    while at >= 0 and too_deep < _TOO_DEEP:
        try:
            _, end = _any.raw_decode(text, at)
        except json.JSONDecodeError as error:
            end = max(error.pos, at + 1)
        except (ValueError, RecursionError):
            end = at + 1
            too_deep += 1
        else:
            found.append(text[at:end].encode("utf-8", "replace"))
        at = text.find("{", end)
    return found


def _entry(raw: bytes) -> Entry | str:
    """Reads one entry; or says why it is none."""
    try:
        value: object = _any.decode(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return "it cannot be read"
    if not isinstance(value, dict):
        return "it is not an object"
    fields = cast("dict[str, Any]", value)
    for name in ("from", "text", "timestamp"):
        if not isinstance(fields.get(name), str):
            return f"it lacks `{name}`"
    return Entry(
        from_=_clean(fields["from"]),
        text=_clean(fields["text"]),
        timestamp=_clean(fields["timestamp"]),
        read=fields.get("read") is True,
        **{name: take(fields.get(name)) for name, take in _OPTIONAL},
    )


def _clean(text: str) -> str:
    """A text without half surrogate pairs, which nothing here could keep."""
    return text if text.isascii() else _HALF_PAIR.sub("�", text)


def _text(value: object) -> str | None:
    return _clean(value) if isinstance(value, str) else None


def _id(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= MAX_ID and value == _clean(value) else None


def _version(value: object) -> int | None:
    return value if type(value) is int else None


_OPTIONAL: tuple[tuple[str, Callable[[object], Any]], ...] = (
    ("type", _text),
    ("msg_id", _id),
    ("msgV", _version),
    ("summary", _text),
    ("color", _text),
)
"""What may be missing: a value of another kind counts as missing, too, so that it costs nobody the text."""
