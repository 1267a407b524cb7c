"""What a transcript says: its lines written, and the pins of its conversation read back (02.17).

A transcript is lines of JSON. Some are ours, with `"postroom": 1`, the time and a type:

    header          whose conversation it is: `session`, `agent` (none: the main one), `name`, `agent_type`
    turn            what the host wrote, unchanged, under `turn`
    sent            a send: `to` as it was typed, and the `result` of chapter 01, or the `error`
    agent_started   an agent's run has begun: `id`, `name`, `agent_type`, `run`
    agent_stopped   and ended: `id`, `run`, `status`
    …               any other event; it is kept for people and programs, and nothing is read out of it

Any other line is the host's own. `Rebuilding` takes line after line and says in the end what was found. A pin counts
where the structure of the file says that it is the result of a send:

1. a `sent` line;
2. a line that is itself a result;
3. what answers a call of SendMessage: an object that carries the id of such a call in this file, or names the tool
   itself. The answer may be JSON as text, as a model saw it; `to` is then what the call had, else the pin's name.

It never looks for pins in any other text: a message of another session, a web page or a file that a tool has read may
look like a result, and would make a name mean whoever wrote it.

Pure: bytes and times come in. How it fails: never by an exception. What is not JSON, not UTF-8, too long, nested too
deep or of the wrong shape is skipped and counted; a newer version is said in `Rebuilt.newer`.

What is weak: whoever may write the file may pin what they like. Of one message the first result counts, and what lies
more than MAX_PINS sends back is forgotten. An answer that neither names the tool nor its call is not seen.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast, get_args

from postroom.core.contract import TOOL_NAMES
from postroom.core.message import Pin, ReceiptStatus, Refusal
from postroom.core.times import stamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from postroom.core.message import Receipt

__all__ = [
    "MAX_TURN",
    "VERSION",
    "AgentSeen",
    "Header",
    "Rebuilding",
    "Rebuilt",
    "line",
    "rebuild",
    "sent_facts",
]

VERSION: Final = 1
"""The version of our lines; one with a higher one is left to those who understand it."""

MAX_TURN: Final = 8 * 1024 * 1024
"""Bytes of a line: eight times the largest message with everything escaped; a longer one holds a picture or worse."""

MAX_PINS: Final = 100_000
"""Sends that are remembered, and agents: more than a conversation has, and some 30 MB at most."""

MAX_CALLS: Final = 10_000
"""Calls that may wait for their answers at one time."""

MAX_LEVELS: Final = 32
"""Levels of a line that are looked into: a host's own frames have less than ten."""

MAX_ENCODED: Final = 2
"""How often JSON may lie as text within JSON: a protocol's frame that was logged as text, with an answer as text."""

MAX_SHORT: Final = 1024
"""Characters of a name, an identity or a target: the longest that is valid has far less."""

_STATUSES: Final = frozenset(get_args(ReceiptStatus))
_BOM: Final = b"\xef\xbb\xbf"
_SENDING: Final = frozenset(("SendMessage", TOOL_NAMES["SendMessage"]))
_SIGNS: Final = tuple(word.encode() for word in ("pin", *sorted(_SENDING)))
"""A line with none of these in it has no call and no result."""

_ARGUMENTS: Final = ("input", "arguments", "args")
_INNER: Final = ("function", "params")
"""Where a call's name and arguments lie, when not in the object that has its id."""

_ANSWERED: Final = ("tool_use_id", "tool_call_id", "call_id")
_RESULTS: Final = ("content", "output", "result", "response", "structuredContent", "text")
"""Where an answer says which call it answers, and what. In JSON-RPC the first is `id`."""

_STRANGE: Final = frozenset((*_ARGUMENTS, "structuredContent", "structured_content", "toolUseResult"))
"""Where a model or some tool has its own structure: it may be what a peer asked for. The rest is the host's."""

_Fields = dict[str, object]
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Header(NamedTuple):
    """Whose conversation a transcript holds; `agent` is empty for a session's main conversation (02.19)."""

    session_id: str
    agent: str = ""
    name: str = ""
    type: str = ""


class AgentSeen(NamedTuple):
    """The last that a transcript says of an agent: its state, as a word of `AgentState`, and in which run."""

    id: str
    name: str
    type: str
    state: str
    run: int


class Rebuilt(NamedTuple):
    """What a transcript holds.

    Attributes:
        pins: each send that pinned, in order: `to` as it was typed, and the pin; for `Pins.restore` (02.17).
        agents: what each agent has become, by its id.
        header: the first one; None: the file is a host's own, or has lost its beginning.
        lines: those that could be read.
        skipped: those that could not.
        newer: the version of lines that are too new to be read; 0: there are none.
    """

    pins: tuple[tuple[str, Pin], ...] = ()
    agents: Mapping[str, AgentSeen] = MappingProxyType({})
    header: Header | None = None
    lines: int = 0
    skipped: int = 0
    newer: int = 0


# ── writing ──────────────────────────────────────────────────────────────────────────────────────


def line(kind: str, facts: Mapping[str, object], at: int) -> bytes:
    """Writes one line of ours, its newline included.

    Args:
        kind: its type.
        facts: what it says; what is no JSON in it is written as text. Its keys give way to our three.
        at: epoch milliseconds.

    Raises ValueError for what no JSON can say: a value that holds itself, a number that is none; RecursionError for
    what is nested too deep.
    """
    whole = {"postroom": VERSION, "at": stamp(at), "type": kind}
    whole |= {key: value for key, value in facts.items() if key not in whole}
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False)
    # Half a surrogate pair becomes `\udc80`, which is just how JSON escapes it.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def sent_facts(to: str, answer: Receipt | Refusal) -> dict[str, object]:
    """What a `sent` line says: the target as it was typed, and the result or the error; not the message (01.31)."""
    if isinstance(answer, Refusal):
        error = {"code": answer.code, "message": answer.message, "hint": answer.hint}
        return {"to": to, "error": error}
    result: dict[str, object] = {
        "status": answer.status,
        "msg_id": answer.msg_id,
        "to": {"name": answer.to.name, "ref": answer.to.ref, "kind": answer.to.kind},
    }
    if answer.pin is not None:
        result["pin"] = {"name": answer.pin.name, "identity": answer.pin.identity}
    return {"to": to, "result": result}


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


def rebuild(lines: Iterable[bytes]) -> Rebuilt:
    """Reads a transcript that is at hand in lines, with or without their newlines."""
    rebuilding = Rebuilding()
    for each in lines:
        rebuilding.feed(each)
    return rebuilding.rebuilt()


class Rebuilding:
    """Reads a transcript line by line, in their order (02.17)."""

    __slots__ = ("_agents", "_calls", "_header", "_lines", "_newer", "_pins", "_skipped")

    def __init__(self) -> None:
        self._pins: dict[str, tuple[str, Pin]] = {}
        self._agents: dict[str, AgentSeen] = {}
        self._calls: dict[str | int, str] = {}
        self._header: Header | None = None
        self._lines = 0
        self._skipped = 0
        self._newer = 0

    def skip(self) -> None:
        """Counts a line that its reader did not hand over: it is too long."""
        self._skipped += 1

    def feed(self, line: bytes) -> None:
        """Takes the next line, whatever it holds; a blank one is none."""
        if not (self._lines or self._skipped):
            line = line.removeprefix(_BOM)  # which some editors put at the beginning of a file
        if not line or line.isspace():
            return
        fields = _parsed(line) if len(line) <= MAX_TURN else None
        if isinstance(fields, dict) and self._read(cast("_Fields", fields), line):
            self._lines += 1
        else:
            self._skipped += 1

    def rebuilt(self) -> Rebuilt:
        """What was found so far."""
        return Rebuilt(
            tuple(self._pins.values()),
            dict(self._agents),
            self._header,
            self._lines,
            self._skipped,
            self._newer,
        )

    def _read(self, fields: _Fields, line: bytes) -> bool:
        """Takes what a line says; False where it is one of ours, and broken or too new."""
        if "postroom" not in fields:
            if self._may_tell(line) and not self._take(fields, ""):
                self._look(fields, 0)
            return True
        version, kind = fields["postroom"], fields.get("type")
        if type(version) is not int or version < VERSION or not isinstance(kind, str):
            return False
        if version > VERSION:
            self._newer = max(self._newer, version)
            return False
        return self._ours(kind, fields, line)

    def _may_tell(self, line: bytes) -> bool:
        """Whether a line may hold a call or an answer; most of a transcript is passed over so."""
        return bool(self._calls) or any(sign in line for sign in _SIGNS)

    def _ours(self, kind: str, fields: _Fields, line: bytes) -> bool:
        """Takes a line of our own writing; False where it is broken."""
        match kind:
            case "header":
                header = _header(fields)
                self._header = self._header or header
                return header is not None
            case "agent_started" | "agent_stopped":
                return self._agent(fields, "live" if kind == "agent_started" else _text(fields.get("status")))
            case "sent":
                to, result = _text(fields.get("to")), fields.get("result")
                if isinstance(result, dict):
                    self._take(cast("_Fields", result), to or "")
                return bool(to)
            case "turn":
                if self._may_tell(line):
                    self._look(fields.get("turn"), 0)
                return True
            case _:
                return True

    def _agent(self, fields: _Fields, state: str | None) -> bool:
        identity, run = _text(fields.get("id")), fields.get("run")
        if identity is None or state is None or type(run) is not int:
            return False
        before = self._agents.get(identity, AgentSeen(identity, "", "", "", 0))
        name = _text(fields.get("name")) or before.name
        sort = _text(fields.get("agent_type")) or before.type
        _put(self._agents, identity, AgentSeen(identity, name, sort, state, run), MAX_PINS)
        return True

    # ── calls and their answers ──────────────────────────────────────────────────────────────────

    def _look(self, value: object, depth: int) -> None:
        """Looks through a host's own words for calls of SendMessage, and what answers them."""
        if depth > MAX_LEVELS:
            return
        if isinstance(value, list):
            for each in cast("list[object]", value):
                self._look(each, depth + 1)
        if not isinstance(value, dict):
            return
        fields = cast("_Fields", value)
        named, to = _call(fields)
        if to is not None and not any(key in fields for key in _RESULTS):
            calls = [_id(fields[key]) for key in (*_ANSWERED, "id") if key in fields]
            if calls and calls[0] is not None:
                _put(self._calls, calls[0], to, MAX_CALLS)
            return
        rpc = "jsonrpc" in fields and "result" in fields
        about = next((key for key in _ANSWERED if key in fields), "id" if rpc else "")
        call = _id(fields.get(about))
        if call in self._calls:
            to, named = self._calls.pop(call), True
        if named:
            self._harvest({key: fields[key] for key in _RESULTS if key in fields}, to or "", 0, MAX_ENCODED)
        elif about in ("", "id"):  # else it answers a call of another tool
            for key, each in fields.items():
                if key not in _STRANGE:
                    self._look(each, depth + 1)

    def _harvest(self, value: object, to: str, depth: int, encoded: int) -> None:
        """Takes the result out of an answer."""
        if depth > MAX_LEVELS:
            return
        if isinstance(value, str):
            if encoded and value.lstrip()[:1] in ("{", "["):
                self._harvest(_parsed(value), to, depth + 1, encoded - 1)
        elif isinstance(value, list):
            for each in cast("list[object]", value):
                self._harvest(each, to, depth + 1, encoded)
        elif isinstance(value, dict) and not self._take(cast("_Fields", value), to):
            for key in _RESULTS:
                self._harvest(cast("_Fields", value).get(key), to, depth + 1, encoded)

    def _take(self, result: _Fields, to: str) -> bool:
        """Takes the pin of a result; False where this is no result of a send that pinned (01.31)."""
        status, msg_id, pin = result.get("status"), _text(result.get("msg_id")), _pin(result.get("pin"))
        if not isinstance(status, str) or status not in _STATUSES or msg_id is None or pin is None:
            return False
        if msg_id not in self._pins:
            _put(self._pins, msg_id, (to or pin.name, pin), MAX_PINS)
        return True


def _put(there: dict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    """Puts one more into a table that holds so many; the oldest goes."""
    there[key] = value
    if len(there) > most:
        del there[next(iter(there))]


def _parsed(text: bytes | str) -> object:
    """The value that some JSON holds; None where it is none."""
    try:
        return json.loads(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str | None:
    """A text that may be a name, an identity or a target; None for anything else."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_SHORT or "\0" in value:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def _id(value: object) -> str | int | None:
    """What may be the id of a call."""
    return value if type(value) is int else _text(value)


def _pin(value: object) -> Pin | None:
    if not isinstance(value, dict):
        return None
    fields = cast("_Fields", value)
    name, identity = _text(fields.get("name")), _text(fields.get("identity"))
    return Pin(name=name, identity=identity) if name and identity else None


def _header(fields: _Fields) -> Header | None:
    session, agent = _text(fields.get("session")), fields.get("agent", "")
    if session is None or (agent != "" and _text(agent) is None):
        return None
    return Header(
        session,
        _text(agent) or "",
        _text(fields.get("name")) or "",
        _text(fields.get("agent_type")) or "",
    )


def _call(fields: _Fields) -> tuple[bool, str | None]:
    """Whether an object names SendMessage, and the target in its arguments; None where it has none."""
    named, to = False, None
    for place in (fields, *(fields.get(key) for key in _INNER)):
        if not isinstance(place, dict):
            continue
        inner = cast("_Fields", place)
        name = inner.get("name", inner.get("tool"))
        if isinstance(name, str) and _bare(name) in _SENDING:
            named = True
            to = next(filter(None, (_target(inner.get(key)) for key in _ARGUMENTS)), to)
    return named, to


def _bare(name: str) -> str:
    """A tool's name without its server's: `mcp__postroom__send_message` and `postroom.send_message` mean one."""
    return name.rpartition("__")[2].rpartition(".")[2]


def _target(arguments: object) -> str | None:
    """The `to` of a call's arguments, which may be JSON as text."""
    found = _parsed(arguments) if isinstance(arguments, str) else arguments
    return _text(cast("_Fields", found).get("to")) if isinstance(found, dict) else None
