"""One session's record: what it says of itself to the others, and how that is written (05.29).

The format is the neighbours': JSON with their names for the fields and a few of ours, which others ignore.
Everything in a record is a claim: it decides what is shown, never what is allowed (05.9).

It reads and writes bytes and does nothing else: no file is touched, nobody is believed.

How it fails: `BadFrame` with the reason for bytes that are no record, whatever they are. An unknown field is
ignored; a field of the wrong type, of a wrong size or that no system could have written rejects the whole
record, because half a record would be somebody else.

What is weak: a name is kept as it was claimed, with any characters; whoever shows it cleans it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from postroom.errors import BadFrame

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal["interactive", "headless", "bg", "external"]
Status = Literal["idle", "busy", "waiting"]

SCHEMA = 1
"""The version of the format; a record with a higher one is left to those who understand it (05.11)."""

PROTOCOL = 1
"""The version of the wire that the inbox speaks; without it a neighbour does not write to us."""

FEATURES = frozenset({"notify_idle", "postroom_ack", "postroom_chain"})
"""What `peerFeatures` may announce: idle notices, acknowledgements, hop chains (05.29)."""

MAX_RECORD = 65_536
"""Bytes of a record: ten times the largest that we write, and nothing to read for long."""

MAX_TEXT = 4096
"""Characters of any text in it: a path of the system has no more."""

MAX_FORMER = 16
"""Former names that are published and keep answering: who wrote to an older one asks again (02.4)."""

MAX_FEATURES = 16
"""Features that are read, as neighbours do."""

MAX_ID = 80
"""Characters of a session id, as in the neighbours' envelopes."""

MAX_PID = 2**31 - 1
MAX_TIME = 2**53
"""The largest number that every reader of JSON keeps exact; as milliseconds, far away."""

CLIENT_FILE = "client-"
"""How the file begins that leads from a client to its session; no session id begins so."""

TALK_FILE = "talk-"
"""How the file begins that leads from a client's conversation to its session; no session id begins so."""

_ID = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def is_session_id(text: str) -> bool:
    """Whether a text may be a session's id: it names a folder, so nothing but letters, digits, `_` and `-`."""
    return (
        0 < len(text) <= MAX_ID
        and _ID.issuperset(text)
        and not text.startswith((CLIENT_FILE, TALK_FILE, "-"))
    )


def pid_of(stem: str) -> int | None:
    """The pid in the name of a record or socket without its ending: `<pid>` or `<pid>-<8 hex>` (05.3)."""
    number, hyphen, end = stem.partition("-")
    if hyphen and not (len(end) == 8 and set(end) <= set("0123456789abcdef")):
        return None
    if not (number.isascii() and number.isdigit() and len(number) <= 10) or number.startswith("0"):
        return None
    return int(number) if int(number) <= MAX_PID else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerName:
    """A name that this session had, and the time, in epoch milliseconds, until which it had it (02.4)."""

    name: str
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a session says of itself (05.29).

    Attributes:
        pid, proc_start: the process that accepts on the socket, and when it started.
        boot_id, pid_domain: the boot and the pid namespace in which these count; empty where not told.
        session_id: the identity (02.7).
        name: the address; `name_source` says where it came from; `former_names` are those before it.
        cwd: the working directory.
        started_at, updated_at, status_updated_at: epoch milliseconds.
        kind: how the session runs; `entrypoint` what runs it; `version` of that.
        peer_protocol, peer_features: what its inbox understands.
        messaging_socket_path: the inbox; None: listed, but not reachable.
        status: what it does.
        machine: where it runs, for people.
        opened_by: the session whose process opened it, if one did.
        confirms: what can be confirmed of a message to it: that its loop has read it (`consumed`), that its client took
            it (`accepted`, `written`), or nothing (09.16).
        wakes: a message wakes it while it is idle.
        client_pid, client_start: the process that started `postroom mcp`, or the command under `open`.
    """

    pid: int
    proc_start: str = ""
    boot_id: str = ""
    pid_domain: str = ""
    session_id: str
    name: str
    name_source: str | None = None
    former_names: tuple[FormerName, ...] = ()
    cwd: str = ""
    started_at: int = 0
    updated_at: int = 0
    kind: Kind = "external"
    entrypoint: str = "postroom"
    version: str = ""
    peer_protocol: int = PROTOCOL
    peer_features: tuple[str, ...] = ()
    messaging_socket_path: str | None = None
    status: Status = "idle"
    status_updated_at: int = 0
    machine: str = ""
    opened_by: str | None = None
    confirms: str = "consumed"
    wakes: bool = True
    client_pid: int | None = None
    client_start: str | None = None

    def __repr__(self) -> str:
        """One line: who, where, doing what."""
        return f"<Record {self.name!r} {self.session_id} pid {self.pid} {self.status}>"

    def renamed(self, name: str, now: int, source: str = "user") -> Record:
        """Returns the record under another name; the old one becomes a former name (02.4)."""
        if name == self.name:
            return self
        kept = tuple(former for former in self.former_names if former.name not in (name, self.name))
        former = (FormerName(name=self.name, until=now), *kept)[:MAX_FORMER]
        return replace(self, name=name, name_source=source, former_names=former, updated_at=now)

    def listening(self, path: str, features: tuple[str, ...], now: int) -> Record:
        """Returns the record of a session whose inbox listens at `path` and announces these features."""
        return replace(self, messaging_socket_path=path, peer_features=features, updated_at=now)

    def attached(self, pid: int, start: str) -> Record:
        """Returns the record with the process of its client."""
        return replace(self, client_pid=pid, client_start=start)

    def reached(self, confirms: str, wakes: bool, now: int) -> Record:
        """Returns the record with what is known of a message that comes to it (09.16)."""
        return replace(self, confirms=confirms, wakes=wakes, updated_at=now)

    def attended(self, kind: Kind, now: int) -> Record:
        """Returns the record with another way in which the session runs."""
        return replace(self, kind=kind, updated_at=now)

    def doing(self, status: Status, now: int) -> Record:
        """Returns the record with another status."""
        return replace(self, status=status, status_updated_at=now, updated_at=now)

    @property
    def stem(self) -> str:
        """How its file is called without `.json`: as its socket without `.sock`, where that fits its pid."""
        stem = os.path.basename(self.messaging_socket_path or "").removesuffix(".sock")
        return stem if pid_of(stem) == self.pid else str(self.pid)

    def to_json(self) -> bytes:
        """Writes it as one JSON object (05.29)."""
        written: dict[str, object] = {"schemaVersion": SCHEMA}
        for attribute, key, _, _ in _FIELDS:
            value = getattr(self, attribute)
            if value is not None:
                written[key] = value
        written["cwd"] = os.fsencode(self.cwd).decode("utf-8", "replace")
        written["formerNames"] = [
            {"name": former.name, "until": former.until} for former in self.former_names
        ]
        written["peerFeatures"] = list(self.peer_features)
        return json.dumps(written, ensure_ascii=False, separators=(",", ":")).encode()


def from_json(data: bytes) -> Record:
    """Reads a record.

    Args:
        data: the bytes of the file.

    Raises BadFrame with the reason: not UTF-8, not JSON, not an object, too new, or a field that is missing
    or not what it should be.
    """
    raw = _mapping(data)
    version = raw.get("schemaVersion", SCHEMA)
    if not _is_number(version, MAX_PID) or version > SCHEMA:
        raise BadFrame("written by a newer version")
    values: dict[str, Any] = {"peer_protocol": 0}  # who does not say that it speaks ours does not (05.29)
    for attribute, key, read, needed in _FIELDS:
        value = raw.get(key)
        if value is None:
            if needed:
                raise BadFrame(f"{key} is missing")
            continue
        try:
            values[attribute] = read(value)
        except (TypeError, ValueError):
            raise BadFrame(f"{key} is not what it should be") from None
    return Record(**values)


def _mapping(data: bytes) -> dict[str, Any]:
    """The JSON object in some bytes."""
    try:
        raw: object = json.loads(data.decode())
    except UnicodeDecodeError:
        raise BadFrame("not UTF-8") from None
    except (ValueError, RecursionError):
        raise BadFrame("not JSON") from None
    if not isinstance(raw, dict):
        raise BadFrame("not a JSON object")
    return cast("dict[str, Any]", raw)


# What each field may hold: the value, or TypeError or ValueError.


def _is_number(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT or "\0" in value:
        raise ValueError
    if not value.isascii():
        value.encode()  # half a surrogate pair is no text
    return value


def _id(value: object) -> str:
    if not is_session_id(_text(value)):
        raise ValueError
    return str(value)


def _name(value: object) -> str:
    if not _text(value):
        raise ValueError
    return str(value)


def _path(value: object) -> str:
    if not _text(value).startswith("/"):
        raise ValueError
    return str(value)


def _pid(value: object) -> int:
    if not _is_number(value, MAX_PID) or not value:
        raise ValueError
    return cast("int", value)


def _number(value: object) -> int:
    if not _is_number(value, MAX_TIME):
        raise ValueError
    return cast("int", value)


def _kind(value: object) -> str:
    return text if (text := _text(value)) in ("interactive", "headless", "bg") else "external"


def _status(value: object) -> str:
    return text if (text := _text(value)) in ("idle", "waiting") else "busy"


def _confirms(value: object) -> str:
    return text if (text := _text(value)) in ("consumed", "accepted", "written") else "nothing"


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _features(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(_text(word) for word in cast("list[object]", value)[:MAX_FEATURES])


def _former(value: object) -> tuple[FormerName, ...]:
    if not isinstance(value, list):
        raise TypeError
    found: list[FormerName] = []
    for entry in cast("list[object]", value)[:MAX_FORMER]:
        if not isinstance(entry, dict):
            raise TypeError
        former = cast("dict[str, object]", entry)
        found.append(FormerName(name=_name(former.get("name")), until=_number(former.get("until", 0))))
    return tuple(found)


_FIELDS: tuple[tuple[str, str, Callable[[object], object], bool], ...] = (
    ("pid", "pid", _pid, True),
    ("proc_start", "procStart", _text, False),
    ("boot_id", "bootId", _text, False),
    ("pid_domain", "pidDomain", _text, False),
    ("session_id", "sessionId", _id, True),
    ("name", "name", _name, True),
    ("name_source", "nameSource", _text, False),
    ("former_names", "formerNames", _former, False),
    ("cwd", "cwd", _text, False),
    ("started_at", "startedAt", _number, False),
    ("updated_at", "updatedAt", _number, False),
    ("kind", "kind", _kind, False),
    ("entrypoint", "entrypoint", _text, False),
    ("version", "version", _text, False),
    ("peer_protocol", "peerProtocol", _number, False),
    ("peer_features", "peerFeatures", _features, False),
    ("messaging_socket_path", "messagingSocketPath", _path, False),
    ("status", "status", _status, False),
    ("status_updated_at", "statusUpdatedAt", _number, False),
    ("machine", "machine", _text, False),
    ("opened_by", "openedBy", _id, False),
    ("confirms", "confirms", _confirms, False),
    ("wakes", "wakes", _truth, False),
    ("client_pid", "clientPid", _pid, False),
    ("client_start", "clientStart", _text, False),
)
"""The fields of 05.29 in the order in which they are written: our name, the name in the file, what it may hold,
and whether there is no record without it. Plain tuples: a listing reads a thousand records."""
