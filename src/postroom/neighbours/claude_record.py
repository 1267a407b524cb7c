"""A record of one of Claude Code's sessions: what it says, and how one of ours is written like it (facts B1.1).

It reads and writes values and touches no file. Everything in a record is a claim (05.9).

How it fails: BadFrame with the reason for what is no record, or speaks a later protocol. A field that is only shown and
is not what it should be counts as missing: half of what another program writes may change.

Weak: the fields were observed of version 2.1.332.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, TypeVar, cast

from postroom.errors import BadFrame
from postroom.neighbour import Found
from postroom.neighbours.records import fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from postroom.state.record import Record

T = TypeVar("T")

__all__ = ["Claimed", "dumps", "is_record", "parse", "published"]

PROGRAM = "claude-code"

PROTOCOL = 1
"""The version of its wire that is known here; a record of a later one is left alone."""

FEATURES = ("notify_idle",)
"""What a record of ours announces: that it says when it is idle."""

PUBLISHER = "publishedBy"
"""A field of ours in a record that Postroom wrote there; by it we know our own again."""

OURS = "postroom"

MAX_PATH = 103
"""Bytes of a socket's path there (facts B2)."""

MAX_TEXT = 4096
MAX_NAME = 200
"""Characters of a name in a record (facts B9)."""

MAX_FORMER = 16
MAX_TIME = 2**53

STATUSES = {"idle": "idle", "busy": "busy", "shell": "busy", "waiting": "waiting"}
PRESENCES = {"interactive": "interactive", "bg": "bg", "daemon": "bg", "daemon-worker": "bg"}


class Claimed:
    """What one record says, checked for its form and for nothing else.

    Attributes:
        found: as others may see it; its pid is not filled in, since it was not looked at.
        pid, start, domain: the process that it claims, and the pid namespace in which these count.
        ours: Postroom wrote it.
        unlisted: why it is no session to be written to though it is a record; empty where it is one.
    """

    __slots__ = ("domain", "found", "ours", "pid", "start", "unlisted")

    def __init__(self, found: Found, *, pid: int, start: str, domain: str, ours: bool, unlisted: str) -> None:
        self.found = found
        self.pid = pid
        self.start = start
        self.domain = domain
        self.ours = ours
        self.unlisted = unlisted


def is_record(name: str) -> bool:
    """Whether a file is named as a record: a pid without leading zeros."""
    number = name.removesuffix(".json")
    return number != name and number.isascii() and number.isdigit() and number[0] != "0" and len(number) <= 10


def parse(name: str, data: bytes) -> Claimed:
    """Reads one record.

    Args:
        name: of its file, which must be its pid.
        data: its bytes.

    Raises BadFrame with the reason for anything that is no record, or one of a later protocol.
    """
    fields = fields_of(data)
    pid = needed(fields, "pid", a_pid)
    if name != f"{pid}.json":
        raise BadFrame("the name of the file does not fit its pid")
    protocol = claimed(fields, "peerProtocol", a_number, 0)
    if protocol > PROTOCOL:
        raise BadFrame("it speaks a later protocol")
    # Absent where messaging is off in that session: it is there, and cannot be written to.
    off = fields.get("messagingSocketPath") is None
    path = "" if off else needed(fields, "messagingSocketPath", a_path)
    session_id = needed(fields, "sessionId", an_id)
    start = claimed(fields, "procStart", a_text, "")
    former = claimed(fields, "formerNames", former_names, ())
    features = claimed(fields, "peerFeatures", words, ())
    started_at = claimed(fields, "startedAt", a_number, 0)
    found = Found(
        program=PROGRAM,
        identity=f"{PROGRAM}:{pid}:{start}",
        name=needed(fields, "name", a_name),
        session_ids=tuple(dict.fromkeys((session_id, *(each for _, each in former if each)))),
        former=tuple(dict.fromkeys(each for each, _ in former)),
        cwd=claimed(fields, "cwd", a_text, ""),
        presence=PRESENCES.get(claimed(fields, "kind", a_text, ""), "external"),
        state=STATUSES.get(claimed(fields, "status", a_text, "idle"), "busy"),
        started_at=started_at,
        seen_at=max(
            claimed(fields, "updatedAt", a_number, 0), claimed(fields, "statusUpdatedAt", a_number, 0)
        ),
        version=claimed(fields, "version", a_text, ""),
        path=path,
        tells_idle="notify_idle" in features,
        chains=True,  # seen of 2.1.332: it adds its token to the chain of what it answers
        condition="cannot receive messages" if off or protocol != PROTOCOL else "",
    )
    spare = fields.get("spare") is True or bool(fields.get("parkedJobId"))
    return Claimed(
        found,
        pid=pid,
        start=start,
        domain=claimed(fields, "pidDomain", a_text, ""),
        ours=fields.get(PUBLISHER) == OURS,
        unlisted="it is spare or parked" if spare else "",
    )


def needed(fields: Mapping[str, Any], key: str, read: Callable[[object], T | None]) -> T:
    """A field without which there is no record; BadFrame where it is missing or of another kind."""
    value = read(fields.get(key))
    if value is None:
        raise BadFrame(f"{key} is missing" if fields.get(key) is None else f"{key} is not what it should be")
    return value


def claimed(fields: Mapping[str, Any], key: str, read: Callable[[object], T | None], default: T) -> T:
    """A field that is only shown, or whose absence is ordinary: what is no value counts as none."""
    value = read(fields.get(key))
    return default if value is None else value


def a_text(value: object) -> str | None:
    """A text that a file system or a line could hold."""
    if not isinstance(value, str) or len(value) > MAX_TEXT or "\0" in value:
        return None
    return value if value.isascii() or value.isprintable() or encodes(value) else None


def encodes(text: str) -> bool:
    """Whether it is a text at all: half a surrogate pair is none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def a_name(value: object) -> str | None:
    """A name, cut as that program cuts it."""
    text = a_text(value)
    return text[:MAX_NAME] if text and text.strip() else None


def an_id(value: object) -> str | None:
    """A session's id: what an envelope has room for."""
    fit = isinstance(value, str) and 0 < len(value) <= 80 and value.isascii() and value.isprintable()
    return value if fit and isinstance(value, str) else None


def a_path(value: object) -> str | None:
    """A socket's path as one of its sessions may have it: absolute, plain, short enough for a socket."""
    text = a_text(value)
    if not text or not text.startswith("/") or ".." in text.split("/") or len(os.fsencode(text)) > MAX_PATH:
        return None
    return text


def a_number(value: object) -> int | None:
    """A count or a time; what is a fraction of a millisecond is left off."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_TIME:
        return None
    return int(value)


def a_pid(value: object) -> int | None:
    """A process's number."""
    return value if type(value) is int and 0 < value < 2**31 else None


def words(value: object) -> tuple[str, ...] | None:
    """A list of short words; those that are none are left out."""
    if not isinstance(value, list):
        return None
    return tuple(each for each in cast("list[object]", value)[:MAX_FORMER] if isinstance(each, str))


def former_names(value: object) -> tuple[tuple[str, str], ...] | None:
    """(name, session id or nothing) of each former name that can be read, in the order given."""
    if not isinstance(value, list):
        return None
    found: list[tuple[str, str]] = []
    for entry in cast("list[object]", value)[:MAX_FORMER]:
        if isinstance(entry, dict):
            fields = cast("dict[str, object]", entry)
            name = a_name(fields.get("name"))
            if name is not None:
                found.append((name, an_id(fields.get("sessionId")) or ""))
    return tuple(found)


def published(record: Record, path: str) -> dict[str, object]:
    """The record of a session of ours as one of Claude Code's own would write it (facts B1.1)."""
    return {
        "pid": record.pid,
        "sessionId": record.session_id,
        "cwd": os.fsencode(record.cwd).decode("utf-8", "replace"),
        "startedAt": record.started_at,
        "procStart": record.proc_start,
        "version": f"{OURS}-{record.version}",
        "peerProtocol": PROTOCOL,
        "peerFeatures": list(FEATURES),
        # `bg` would be a job that the program itself manages, so nothing of ours is.
        "kind": "interactive",
        "entrypoint": record.entrypoint,
        "pidDomain": record.pid_domain,
        "messagingSocketPath": path,
        "name": record.name,
        "nameSource": "user" if record.name_source == "user" else "derived",
        "nameSince": max((each.until for each in record.former_names), default=record.started_at),
        "formerNames": [{"name": each.name, "until": each.until} for each in record.former_names],
        "status": record.status,
        "statusUpdatedAt": record.status_updated_at,
        "updatedAt": record.updated_at,
        PUBLISHER: OURS,
    }


def dumps(value: object) -> bytes:
    """One JSON object, as that program writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
