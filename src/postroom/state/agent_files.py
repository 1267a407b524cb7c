"""What is kept of a session's agents: each one's metadata, and where its transcript lies (06.13).

    <session folder>/agents/<agent id>/agent.json          a `Life`, replaced as a whole at each step
    <session folder>/agents/<agent id>/transcript.jsonl    see `transcripts`

What it decides: whether these can be used. Metadata counts as a whole or not at all: a field that is missing or not what
it should be, another agent's or another session's file, a newer version, a wrong owner, mode or kind of file each make
it unusable, and the agent is then not resumed, and nobody gets its name in its place (02.26). Unknown fields are
ignored. What lies beside the agents and is none, a stray file or a folder that no id could name, is said and is nobody.

What it never does: follow a symlink inside the session's folder, wait for a FIFO, or judge what an agent may do.

How it fails: `Unusable` with a reason that a person or a model may see; `StoreFailed` and `UnfitPath` for what could not
be written: what was there stays. `found` never raises.

`MemoryAgentFiles` makes the same promise for a session that keeps nothing.

What is weak: the files are this user's, and any program of this user may rewrite them. What an owner has not been told
yet is kept with its text as far as MAX_METADATA goes; beyond that the texts are cut.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from typing import TYPE_CHECKING, Any, cast, get_args

from postroom.core.address import check_name
from postroom.core.message import RunStatus, TaskNotification
from postroom.core.runs import MAX_ID, OWED_MAX, AgentState, Life, is_agent_id
from postroom.core.transcript import Rebuilt
from postroom.errors import InvalidName, StoreFailed, UnfitPath
from postroom.state import files, transcripts
from postroom.state.transcripts import Unusable as Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["MAX_METADATA", "AgentFiles", "MemoryAgentFiles", "Unusable"]

VERSION = 1
"""The version of the format; a file with a higher one is left to those who understand it."""

MAX_METADATA = 1024 * 1024
"""Bytes of metadata: a hundred finishes with ten thousand characters each."""

MAX_SHORT = 4096
"""Characters of a name, a type or a path: a path of the system has no more."""

MAX_STRAYS = 5
"""Stray entries that are named; of the rest, how many."""

MAX_FORMER = 16
"""Former names that are kept, as a session's."""

MAX_USAGE = 50
"""Numbers in one `usage`."""

MAX_NUMBER = 2**53
"""The largest number that every reader of JSON keeps exact."""

CUTS = (100_000, 10_000, 1000, 100, 0)
"""Characters to which the texts of what is owed are cut until the metadata fits."""

METADATA, TRANSCRIPT = "agent.json", "transcript.jsonl"

_Table = tuple[tuple[str, "Callable[[object], object]", bool], ...]


# ── the files ────────────────────────────────────────────────────────────────────────────────────


class AgentFiles:
    """The agents' files of one session. Its process alone writes them.

    Args:
        folder: `<session folder>/agents`, absolute; made, 0700, when the first agent is written.
        session_id: whose agents they are.
    """

    def __init__(self, folder: str, session_id: str) -> None:
        self.folder = folder
        self.session_id = session_id

    def found(self) -> tuple[list[Life], list[tuple[str, str]]]:
        """Finds every agent that is written down.

        Returns those that can be used, the oldest first, and of the rest (agent id, reason). An empty id is no agent's:
        the reason is then a whole sentence, without its full stop, about what lies there. Never raises.
        """
        lives: list[Life] = []
        unusable: list[tuple[str, str]] = []
        try:
            self._check()
            names = sorted(os.listdir(self.folder))
        except FileNotFoundError:
            return lives, unusable
        except UnfitPath as error:
            return lives, [("", f"The folder of this session's agents cannot be used: {error.reason}")]
        except OSError as error:
            return lives, [("", f"The folder of this session's agents cannot be read: {error.strerror}")]
        strays: list[str] = []
        for name in names:
            if not self._may_be_one(name):
                strays.append(name)
                continue
            try:
                lives.append(self._read(name))
            except Unusable as error:
                unusable.append((name, error.reason))
        if strays:
            unusable.append(("", said_of(strays)))
        return sorted(lives, key=lambda life: (life.started_at, life.id)), unusable

    def read(self, agent_id: str) -> Life:
        """Reads one agent's metadata. Raises Unusable with the reason (02.26)."""
        try:
            self._check()
        except FileNotFoundError:
            raise Unusable("its metadata is missing") from None
        except UnfitPath as error:
            raise Unusable(f"its folder cannot be used: {error.reason}") from None
        return self._read(agent_id)

    def write(self, life: Life, *, sync: bool = True) -> None:
        """Writes an agent's metadata in the place of what was there (06.13).

        Args:
            life: of this session.
            sync: False where losing this step with the machine's power does no harm.

        Raises StoreFailed or UnfitPath where it cannot be written: then what was there stays. ValueError for a life
        that no file can hold: another session's, or an id that names no folder.
        """
        if life.session_id != self.session_id or not is_agent_id(life.id):
            raise ValueError("no agent of this session")
        folder = f"{self.folder}/{life.id}"
        # Step by step: a session that was removed meanwhile is not made again.
        files.private_folder(self.folder, parents=False)
        files.private_folder(folder, parents=False)
        files.write_atomic(f"{folder}/{METADATA}", to_json(life), sync=sync)

    def discard(self, agent_id: str) -> None:
        """Takes away the folder of an agent that could not begin; what has something in it stays. Never raises."""
        with contextlib.suppress(OSError):
            os.rmdir(f"{self.folder}/{agent_id}")

    def transcript_path(self, agent_id: str) -> str:
        """Where Postroom keeps an agent's transcript; nothing needs to lie there."""
        return f"{self.folder}/{agent_id}/{TRANSCRIPT}"

    def check_transcript(self, life: Life) -> Rebuilt:
        """Reads the transcript from which an agent is resumed: `life.transcript` (02.23).

        One that Postroom keeps must be private, and this agent's by its header where it has one. A host's own may be
        read by others, and is not known to be anybody's.

        Raises Unusable: as `transcripts.read`, or it is another agent's or session's. It may take seconds: not in an
        event loop.
        """
        return check_transcript(life, own=life.transcript == self.transcript_path(life.id))

    def name_of(self, agent_id: str) -> str:
        """What an agent was called whose metadata cannot be used, by the transcript that Postroom keeps of it (02.26).

        Empty where that does not say it, or is not this agent's.
        """
        header = transcripts.header_of(self.transcript_path(agent_id)) if is_agent_id(agent_id) else None
        if header is None or (header.agent, header.session_id) != (agent_id, self.session_id):
            return ""
        try:
            return check_name(header.name)
        except InvalidName:
            return ""

    def _check(self) -> None:
        if not os.path.lexists(self.folder):
            raise FileNotFoundError
        files.check_folder(self.folder)

    def _may_be_one(self, name: str) -> bool:
        """Whether what lies there can be an agent's folder; a symlink may stand in the place of one."""
        try:
            mode = os.lstat(f"{self.folder}/{name}").st_mode
        except OSError:
            mode = stat.S_IFDIR  # whether it can be used is said when it is read
        return is_agent_id(name) and (stat.S_ISDIR(mode) or stat.S_ISLNK(mode))

    def _read(self, agent_id: str) -> Life:
        """Reads one agent's metadata, in a folder of all agents that was checked."""
        if not is_agent_id(agent_id):
            raise Unusable("its id is not an agent's")
        folder = f"{self.folder}/{agent_id}"
        try:
            files.check_own_folder(folder)
            data = files.read_private(f"{folder}/{METADATA}", MAX_METADATA)
        except FileNotFoundError:
            raise Unusable("its metadata is missing") from None
        except UnfitPath as error:
            what = "folder" if error.path == folder else "metadata"
            raise Unusable(f"its {what} cannot be used: {error.reason}") from None
        life = from_json(data)
        if life.id != agent_id:
            raise Unusable("its metadata is another agent's")
        if life.session_id != self.session_id:
            raise Unusable("its metadata is of another session")
        return life


def said_of(strays: Sequence[str]) -> str:
    """A sentence, without its full stop, about what lies among the agents' folders and is none."""
    named = [repr(name) if len(name) <= MAX_ID else f"{name[:MAX_ID]!r}…" for name in strays[:MAX_STRAYS]]
    more = f" and {len(strays) - MAX_STRAYS} more" if len(strays) > MAX_STRAYS else ""
    return f"No agent's folder, and passed over in this session's folder of agents: {', '.join(named)}{more}"


class MemoryAgentFiles:
    """The same for a session that keeps nothing on disk.

    Args:
        session_id: whose agents they are; empty: any session's.
    """

    def __init__(self, session_id: str = "") -> None:
        self.session_id = session_id
        self._lives: dict[str, Life] = {}

    def found(self) -> tuple[list[Life], list[tuple[str, str]]]:
        """Every agent that was written, the oldest first; none is unusable."""
        return sorted(self._lives.values(), key=lambda life: (life.started_at, life.id)), []

    def read(self, agent_id: str) -> Life:
        """One agent. Raises Unusable where it was never written."""
        if agent_id not in self._lives:
            raise Unusable("its metadata is missing")
        return self._lives[agent_id]

    def write(self, life: Life, *, sync: bool = True) -> None:
        """Keeps an agent. ValueError as of the files."""
        del sync
        if self.session_id not in ("", life.session_id) or not is_agent_id(life.id):
            raise ValueError("no agent of this session")
        self._lives[life.id] = life

    def discard(self, agent_id: str) -> None:
        """Nothing: an agent that was not written is not here."""
        del agent_id

    def transcript_path(self, agent_id: str) -> str:
        """Empty: no transcript is kept, and a `Transcript` there keeps nothing."""
        del agent_id
        return ""

    def name_of(self, agent_id: str) -> str:
        """Empty: none is unusable."""
        del agent_id
        return ""

    def check_transcript(self, life: Life) -> Rebuilt:
        """Reads the transcript that the host gave, as of the files; nothing is missing where it gave none."""
        return check_transcript(life, own=False) if life.transcript else Rebuilt()


def check_transcript(life: Life, *, own: bool) -> Rebuilt:
    """Reads an agent's transcript, which must be this agent's; `own`: Postroom keeps it. Raises Unusable (02.26)."""
    if not life.transcript:
        raise Unusable("it has no transcript")
    rebuilt = transcripts.read(life.transcript, readable=not own)
    header = rebuilt.header
    if header is not None and header.agent != life.id:
        raise Unusable("its transcript is another agent's")
    if header is not None and header.session_id != life.session_id:
        raise Unusable("its transcript is of another session")
    return rebuilt


# ── the format ───────────────────────────────────────────────────────────────────────────────────


def to_json(life: Life) -> bytes:
    """Writes a life as one JSON object of MAX_METADATA bytes at most: what does not fit is cut, the oldest goes."""
    owed = life.owed[-OWED_MAX:]
    data = _encoded(life, owed, None)
    for cut in CUTS:
        if len(data) <= MAX_METADATA:
            return data
        data = _encoded(life, owed, cut)
    while owed and len(data) > MAX_METADATA:
        owed = owed[1 + len(owed) // 8 :]
        data = _encoded(life, owed, 0)
    if len(data) > MAX_METADATA:
        raise StoreFailed(f"The metadata of the agent {life.id} is too large to be kept.")
    return data


def _encoded(life: Life, owed: tuple[TaskNotification, ...], cut: int | None) -> bytes:
    written: dict[str, object] = {"v": VERSION}
    written |= {field: getattr(life, field) for field, _, _ in _LIFE}
    written["former"] = [_clean(name) for name in life.former[:MAX_FORMER]]
    written["owed"] = [_owed_fields(each, cut) for each in owed]
    for field in ("name", "type"):
        written[field] = _clean(getattr(life, field))[:MAX_SHORT]
    # Escaped to ASCII: so a path keeps bytes that are no UTF-8, as half surrogate pairs.
    return json.dumps(written, separators=(",", ":"), allow_nan=False).encode()


def _owed_fields(owed: TaskNotification, cut: int | None) -> dict[str, object]:
    written: dict[str, object] = {field: getattr(owed, field) for field, _, _ in _OWED}
    written["name"] = _clean(owed.name)
    if owed.result is not None:
        text = _clean(owed.result)
        written["result"] = text if cut is None or len(text) <= cut else f"{text[:cut]}…"
    if owed.usage is not None:
        numbers = [(key, value) for key, value in owed.usage.items() if _is_amount(value)]
        written["usage"] = {_clean(key)[:MAX_ID]: value for key, value in numbers[:MAX_USAGE]}
    return {field: value for field, value in written.items() if value is not None}


def _clean(text: str) -> str:
    """A text without NULs and half surrogate pairs, which `from_json` takes for damage."""
    return text.replace("\0", "�").encode("utf-8", "replace").decode()


def from_json(data: bytes) -> Life:
    """Reads a life. Raises Unusable with the reason for bytes that are none, whatever they are (02.26)."""
    try:
        raw: object = json.loads(data.decode(), parse_constant=_no_number)
    except UnicodeDecodeError:
        raise Unusable("its metadata is not UTF-8") from None
    except (ValueError, RecursionError):
        raise Unusable("its metadata is not JSON") from None
    if not isinstance(raw, dict):
        raise Unusable("its metadata is not a JSON object")
    fields = cast("dict[str, object]", raw)
    version = fields.get("v")
    if type(version) is not int or not 0 < version <= MAX_NUMBER:
        raise Unusable("its metadata has no version")
    if version > VERSION:
        raise Unusable(f"its metadata is of a newer version ({version}; this one reads {VERSION})")
    return Life(**_values(fields, _LIFE))


def _values(fields: Mapping[str, object], table: _Table) -> dict[str, Any]:
    """The fields of a table, each as it should be. Raises Unusable."""
    values: dict[str, Any] = {}
    for field, read, needed in table:
        value = fields.get(field)
        if value is None:
            if needed:
                raise Unusable(f"its metadata lacks `{field}`")
            continue
        try:
            values[field] = read(value)
        except (TypeError, ValueError):
            raise Unusable(f"in its metadata `{field}` is not what it should be") from None
    return values


# What each field may hold: the value, or TypeError or ValueError.


def _no_number(word: str) -> object:
    """`NaN` and `Infinity` are no JSON."""
    raise ValueError(word)


def _is_amount(value: object) -> bool:
    return type(value) in (int, float) and abs(cast("float", value)) <= MAX_NUMBER  # which NaN is not


def _long_text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError
    value.encode()  # half a surrogate pair is no text
    return value


def _text(value: object) -> str:
    if len(text := _long_text(value)) > MAX_SHORT:
        raise ValueError
    return text


def _name(value: object) -> str:
    if not (text := _text(value)):
        raise ValueError
    return text


def _id(value: object) -> str:
    if not is_agent_id(text := _text(value)):
        raise ValueError
    return text


def _path(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_SHORT or "\0" in value:
        raise ValueError
    os.fsencode(value)
    return value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise ValueError
    return value


def _run(value: object) -> int:
    if not (number := _number(value)):
        raise ValueError
    return number


def _state(value: object) -> AgentState:
    if value not in get_args(AgentState):
        raise ValueError
    return cast("AgentState", value)


def _ending(value: object) -> RunStatus:
    if value not in _ENDINGS:
        raise ValueError
    return cast("RunStatus", value)


_ENDINGS = frozenset(get_args(RunStatus)) - {"running"}


def _list(value: object, most: int) -> list[object]:
    if not isinstance(value, list) or len(cast("list[object]", value)) > most:
        raise TypeError
    return cast("list[object]", value)


def _former(value: object) -> tuple[str, ...]:
    return tuple(map(_name, _list(value, MAX_FORMER)))


def _usage(value: object) -> dict[str, int | float]:
    if not isinstance(value, dict) or len(cast("dict[str, object]", value)) > MAX_USAGE:
        raise TypeError
    usage = cast("dict[str, int | float]", value)
    if not all(_is_amount(each) for each in usage.values()):
        raise ValueError
    return {_long_text(key): each for key, each in usage.items()}


def _owed(value: object) -> tuple[TaskNotification, ...]:
    found: list[TaskNotification] = []
    for entry in _list(value, OWED_MAX):
        if not isinstance(entry, dict):
            raise TypeError
        try:
            found.append(TaskNotification(**_values(cast("dict[str, object]", entry), _OWED)))
        except Unusable:
            raise ValueError from None
    return tuple(found)


_OWED: _Table = (
    ("task_id", _id, True),
    ("name", _name, True),
    ("status", _ending, True),
    ("run", _run, True),
    ("at", _number, True),
    ("output_path", _path, False),
    ("result", _long_text, False),
    ("usage", _usage, False),
    ("worktree", _path, False),
)
"""The fields of a finish whose owner has not been told: the name, what it may hold, whether there is none without it."""

_LIFE: _Table = (
    ("id", _id, True),
    ("name", _name, True),
    ("session_id", _name, True),
    ("type", _text, False),
    ("former", _former, False),
    ("transcript", _path, False),
    ("background", _truth, False),
    ("state", _state, True),
    ("stopped_by_user", _truth, True),
    ("runs", _run, True),
    ("started_at", _number, False),
    ("ended_at", _number, False),
    ("owed", _owed, False),
)
"""The fields of `agent.json` in the order in which they are written. `stopped_by_user` is needed: a file that has lost it
must not restart what a user has stopped (02.24)."""
