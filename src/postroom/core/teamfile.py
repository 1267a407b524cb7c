"""How a team is written down: `config.json`, as other programs write it too (07.22).

What it decides: whether bytes are the config of a team, and what each entry in it says. Every key, entry and value
that it does not know, and every one that a step did not change, is written back as it came.

Two things have no place in that format and stand under the key `postroom`: in a member `{"evictedAt": ms}`, and in the
team `{"left": [{"name", "joinedAt", "at", "why"}, …]}`. Where another program drops them, an evicted member looks like
one that runs, and of one that left only its absence is known.

What it never does: trust an entry. One whose name no file may have, or that is reserved, or that an earlier one has, is
kept in its place, told of, and never a member.

How it fails: `Unreadable` is the answer to bytes that are no config; nothing is raised for whatever bytes come.

What is weak: of a key that is given twice in one object the last counts, and the other is not written back. A number
keeps its value and not its spelling.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

from postroom.core.address import LEAD, MAX_NAME, RESERVED, normal_form
from postroom.core.team import MAX_LEFT, Departure, Member, Strange, Team, Why, is_member_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_DEPTH = 64
"""Lists and objects inside one another: far more than any config has, and no risk to whoever walks through them."""

MAX_TIME = 2**53
"""The largest time in milliseconds: what every reader of JSON keeps exact."""

OURS = "postroom"
"""The key under which stands what the format of other programs has no place for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Bytes that are no config.

    Attributes:
        reason: why, as in `UnfitPath`.
    """

    reason: str


# ── fields ───────────────────────────────────────────────────────────────────────────────────────
# What a value may be: the value, or ValueError. One that is not so counts as missing, and stays in the file.


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _time(value: object) -> int:
    if type(value) not in (int, float) or not 0 <= (time := cast("float", value)) <= MAX_TIME:
        raise ValueError
    return int(time)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(map(_text, cast("list[object]", value)))


class _Field(NamedTuple):
    """A row of the format: our word, the file's, what it may hold, what it is without, and whether it is never left
    out."""

    ours: str
    key: str
    read: Callable[[object], Any]
    without: Any
    always: bool = False

    def of(self, raw: Mapping[str, Any]) -> Any:
        """What an object says; a value that is not what it should be says nothing."""
        try:
            return self.read(raw.get(self.key))
        except ValueError:
            return self.without


_MEMBER_FIELDS = (
    _Field("agent_id", "agentId", _text, "", True),
    _Field("name", "name", _text, "", True),
    _Field("type", "agentType", _text, ""),
    _Field("model", "model", _text, ""),
    _Field("prompt", "prompt", _text, ""),
    _Field("color", "color", _text, ""),
    _Field("plan_mode_required", "planModeRequired", _truth, False),
    _Field("joined_at", "joinedAt", _time, 0, True),
    _Field("pane", "tmuxPaneId", _text, "", True),
    _Field("cwd", "cwd", _text, "", True),
    _Field("worktree", "worktreePath", _text, ""),
    _Field("subscriptions", "subscriptions", _texts, (), True),
    _Field("backend", "backendType", _text, ""),
    _Field("active", "isActive", _truth, None),
    _Field("mode", "mode", _text, ""),
    _Field("session_id", "sessionId", _text, ""),
)
"""The fields of a member, in the order in which a new one is written."""

_TEAM_FIELDS = (
    _Field("name", "name", _text, "", True),
    _Field("description", "description", _text, ""),
    _Field("created_at", "createdAt", _time, 0, True),
    _Field("lead_agent_id", "leadAgentId", _text, "", True),
    _Field("lead_session_id", "leadSessionId", _text, "", True),
)
"""The fields of a team besides its members, in order. What a lead allowed its members is none of ours, and stays."""

_GONE_FIELDS = (
    _Field("name", "name", _text, "", True),
    _Field("joined_at", "joinedAt", _time, 0, True),
    _Field("at", "at", _time, 0, True),
)

_EVICTED = _Field("evicted_at", "evictedAt", _time, None)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


def parse(data: bytes) -> Team | Unreadable:
    """Reads a config (07.22).

    It must be a JSON object with a name and a list of members. A field that is not what it should be counts as missing;
    a member without a usable name is `Strange`. Everything is kept for `encode`.

    Args:
        data: the whole file.
    """
    try:
        raw: object = json.loads(data.decode(), parse_constant=_no_number, parse_float=_finite)
    except UnicodeDecodeError:
        return Unreadable(reason="it is not UTF-8")
    except RecursionError:
        return Unreadable(reason="it is nested too deep")
    except ValueError:
        return Unreadable(reason="it is not JSON" if data.strip() else "it is empty")
    if not isinstance(raw, dict):
        return Unreadable(reason="it is not a JSON object")
    fields = cast("dict[str, Any]", raw)
    if _too_deep(fields):
        return Unreadable(reason="it is nested too deep")
    said = {row.ours: row.of(fields) for row in _TEAM_FIELDS}
    if not said["name"]:
        return Unreadable(reason="it has no name of a team")
    members: object = fields.get("members")
    if not isinstance(members, list):
        return Unreadable(reason="it has no list of members")
    entries: list[Member | Strange] = []
    names: set[str] = set()
    for each in cast("list[object]", members):
        entries.append(entry := _entry(each, names))
        names.add(entry.name if isinstance(entry, Member) else "")
    return Team(**said, entries=tuple(entries), left=_departures(fields), raw=fields)


def _entry(raw: object, names: set[str]) -> Member | Strange:
    """One entry of the list; `names`: of the members before it."""
    if not isinstance(raw, dict):
        return Strange(reason="is not an object", raw=raw)
    raw = cast("dict[str, Any]", raw)
    said = {row.ours: row.of(raw) for row in _MEMBER_FIELDS}
    name: str = said["name"]
    rungs = (
        (not is_member_name(name), "has a name that no member can have"),
        (name != LEAD and normal_form(name) in RESERVED, f"has the name {name}, which is reserved"),
        (name in names, f"has the name {name}, as an earlier one has"),
    )
    for broken, reason in rungs:
        if broken:
            return Strange(reason=reason, name=name[: MAX_NAME + 1], raw=raw)
    return Member(**said, evicted_at=_EVICTED.of(_ours(raw)), raw=raw)


def _ours(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in an object under our key."""
    ours: object = raw.get(OURS)
    return cast("dict[str, Any]", ours) if isinstance(ours, dict) else {}


def _departures(raw: Mapping[str, Any]) -> tuple[Departure, ...]:
    """Who went; what is no departure is passed over."""
    listed: object = _ours(raw).get("left")
    found: list[Departure] = []
    for each in cast("list[object]", listed) if isinstance(listed, list) else ():
        if isinstance(each, dict):
            gone = cast("dict[str, Any]", each)
            said = {row.ours: row.of(gone) for row in _GONE_FIELDS}
            if is_member_name(said["name"]):
                why = gone.get("why")
                found.append(Departure(**said, why=cast("Why", why) if why in get_args(Why) else "left"))
    return tuple(found[-MAX_LEFT:])


def _no_number(word: str) -> object:
    """`NaN` and `Infinity` are no JSON."""
    raise ValueError(word)


def _finite(text: str) -> float:
    """A number that is too large would become infinite, which could not be written back."""
    if not isfinite(number := float(text)):
        raise ValueError(text)
    return number


def _too_deep(raw: dict[str, Any]) -> bool:
    level: list[object] = [raw]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for each in level:
            if isinstance(each, dict):
                below += cast("dict[str, object]", each).values()
            elif isinstance(each, list):
                below += cast("list[object]", each)
        if not below:
            return False
        level = below
    return True


# ── writing ──────────────────────────────────────────────────────────────────────────────────────


def encode(team: Team) -> bytes:
    """Writes a config, which `parse` reads as the same team (07.22).

    Only what differs from what came is written anew. For people it is indented, as other programs do.
    """
    out = _written(team.raw, team, _TEAM_FIELDS)
    out["members"] = [_encoded(entry) for entry in team.entries]
    if team.left != _departures(team.raw):
        listed = [
            {"name": gone.name, "joinedAt": gone.joined_at, "at": gone.at, "why": gone.why}
            for gone in team.left
        ]
        out[OURS] = {**_ours(team.raw), "left": listed}
    text = json.dumps(out, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can write as an escape alone
        return json.dumps(out, indent=2, allow_nan=False).encode() + b"\n"


def _encoded(entry: Member | Strange) -> object:
    if isinstance(entry, Strange):
        return entry.raw
    out = _written(entry.raw, entry, _MEMBER_FIELDS)
    ours = _ours(entry.raw)
    if entry.evicted_at != _EVICTED.of(ours):
        ours = {key: value for key, value in ours.items() if key != _EVICTED.key}
        if entry.evicted_at is not None:
            ours[_EVICTED.key] = entry.evicted_at
        out.pop(OURS, None)
        if ours:
            out[OURS] = ours
    return out


def _written(raw: Mapping[str, Any], record: Team | Member, fields: tuple[_Field, ...]) -> dict[str, Any]:
    """An object as it came, with those fields in it anew that the record says otherwise."""
    out = dict(raw)
    for row in fields:
        value: Any = getattr(record, row.ours)
        if value == row.of(raw) and (row.key in raw or not row.always):
            continue
        if value == row.without and not row.always:
            out.pop(row.key, None)
        else:
            out[row.key] = list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
    return out
