"""The keys of a settings file: what each takes, what counts in the place of what it does not take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroom.core.keys import (
    CHECKED_IN,
    MAX_DEPTH,
    NOT_BUILT,
    OBJECTS,
    RANGES,
    ROWS,
    SCOPES,
    TRUSTED,
    UNBOUNDED,
    Limits,
    line,
    nearest,
    shown,
)

SECRET = "s3cret"

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
contents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=9) | st.sampled_from(sorted(ROWS)), inner, max_size=4)
    ),
    max_leaves=12,
)


def deep(levels: int) -> list[Any]:
    """Lists in each other."""
    value: list[Any] = [SECRET]
    for _ in range(levels - 1):
        value = [value]
    return value


def thawed(value: object) -> object:
    """The same with plain lists and objects."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return {key: thawed(item) for key, item in items}
    return [*map(thawed, cast("tuple[object, ...]", value))] if isinstance(value, tuple) else value


# ── the table ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.23")
def test_every_key_of_the_specification_is_there() -> None:
    plain = {name for name in ROWS if "." not in name}
    assert plain == {
        *("crossSessionInbound", "dialogExpiry", "isolatePeerMachines", "crossMachine", "refusalNotice"),
        *("readReceipts", "publishTo", "desktopNotices", "claimTasks", "nats", "gateways"),
    }
    assert {name for name in ROWS if "." in name} == {
        "permissions.deny",
        *(f"limits.{key}" for key in RANGES),
    }
    assert {name.partition(".")[0] for name in ROWS if "." in name} == set(OBJECTS)
    assert ROWS.keys() >= NOT_BUILT


@pytest.mark.rule("03.31")
def test_a_checked_in_file_decides_nothing_but_what_it_may() -> None:
    free = {name for name, row in ROWS.items() if row.who == SCOPES}
    assert free == {"crossSessionInbound", "isolatePeerMachines", "claimTasks", "permissions.deny"}
    assert all(row.who == TRUSTED for name, row in ROWS.items() if name not in free)
    assert (*TRUSTED, *CHECKED_IN) == SCOPES


# ── limits ───────────────────────────────────────────────────────────────────────────────────────

LIMITS = {
    # key: (default, lowest, highest), as chapter 03 prints them
    "bucketCapacity": (30, 5, 500),
    "refillPerSecond": (0.5, 0.05, 50),
    "totalCapacity": (120, 30, 5000),
    "totalRefillPerSecond": (4, 0.5, 500),
    "repeatSeconds": (30, 0, 600),
    "maxSelfHops": (10, 3, 28),
    "maxChainLength": (28, 8, 31),
    "maxTrackedSenders": (256, 16, 100_000),
    "maxUnread": (50, 10, 5000),
}


@pytest.mark.rule("03.58", "03.59", "03.60", "03.61", "03.62", "03.63", "03.64")
def test_the_limits_are_those_of_the_chapter() -> None:
    assert {
        key: (getattr(Limits(), name), lowest, highest) for key, (name, lowest, highest) in RANGES.items()
    } == LIMITS
    assert {one.name for one in fields(Limits)} == {name for name, _, _ in RANGES.values()}


@pytest.mark.rule("03.23")
@pytest.mark.parametrize("key", LIMITS)
def test_a_limit_is_clamped_to_the_nearest_end(key: str) -> None:
    default, lowest, highest = LIMITS[key]
    read = ROWS[f"limits.{key}"].read
    for inside in (lowest, default, highest):
        assert (read(inside).value, read(inside).complaints, read(inside).usable) == (inside, (), True)
    for outside, end in ((lowest - 0.01, lowest), (-1e308, lowest), (highest + 1, highest), (1e999, highest)):
        got = read(outside)
        assert (got.value, got.usable) == (end, True)
        assert f"outside {lowest:,g} to {highest:,}" in got.complaints[0]
        assert f"{end:,} counts" in got.complaints[0]
    huge = read(10**5000)  # more digits than Python turns into text
    assert (huge.value, huge.usable) == (highest, True)


@pytest.mark.rule("03.23")
@pytest.mark.parametrize("key", LIMITS)
@pytest.mark.parametrize("value", [None, True, False, "30", [30], {"a": 30}, float("nan")])
def test_what_is_no_number_counts_as_the_default(key: str, value: object) -> None:
    got = ROWS[f"limits.{key}"].read(value)
    assert (got.value, got.usable) == (LIMITS[key][0], False)
    assert f"no number; {LIMITS[key][0]:g} counts" in got.complaints[0]


def test_a_limit_that_counts_things_is_a_whole_number() -> None:
    assert ROWS["limits.maxUnread"].read(20.0).value == 20
    assert isinstance(ROWS["limits.maxUnread"].read(20.0).value, int)
    assert isinstance(ROWS["limits.refillPerSecond"].read(1).value, float)
    assert ROWS["limits.refillPerSecond"].read(0.25).value == 0.25
    half = ROWS["limits.maxUnread"].read(20.5)
    assert (half.value, half.usable) == (50, False)
    assert half.complaints == ("is 20.5, which is no whole number; 50 counts",)


@pytest.mark.rule("12.23")
def test_the_library_can_lift_what_no_file_can() -> None:
    lifted = Limits.unbounded()
    for name, _, highest in RANGES.values():
        if name not in ("repeat_seconds", "max_tracked_senders"):
            assert getattr(lifted, name) >= UNBOUNDED > highest
    assert lifted.repeat_seconds == 0, "nothing is a repeat"
    assert lifted.max_tracked_senders == 100_000, "that bounds memory and keeps no message out"


# ── one value ────────────────────────────────────────────────────────────────────────────────────

TAKEN: list[tuple[str, Any, Any]] = [
    *[("crossSessionInbound", word, word) for word in ("accept", "hold", "refuse")],
    *[
        ("dialogExpiry", word, ms)
        for word, ms in {"60s": 60_000, "5m": 300_000, "10m": 600_000, "never": None}.items()
    ],
    *[
        (name, value, value)
        for name in ("isolatePeerMachines", "readReceipts", "desktopNotices", "claimTasks")
        for value in (True, False)
    ],
    *[("crossMachine", word, word) for word in ("reply-only", "open")],
    *[("refusalNotice", word, word) for word in ("silent", "tell")],
    ("permissions.deny", ["SendMessage", "ListAgents", "SendMessage"], {"SendMessage", "ListAgents"}),
    ("permissions.deny", [], set[str]()),
    ("publishTo", ["qwen-code", "claude-code", "qwen-code"], ("claude-code", "qwen-code")),
    ("publishTo", [], ()),
    ("nats", {}, {}),
    ("nats", {"url": "nats://h", "credentials": "/f", "token": "t", "tls": {"ca": "/c"}, "realm": "r"}, ...),
    ("nats", {"url": ["nats://a", "nats://b"]}, ...),
    ("gateways", [{"url": "https://h", "token": "t"}, None], ...),
    ("gateways", {"h": {"url": "https://h"}}, ...),
    ("gateways", [], ...),
    ("gateways", deep(MAX_DEPTH), ...),
]


@pytest.mark.rule("03.23")
@pytest.mark.parametrize(("name", "written", "counts"), TAKEN)
def test_what_a_key_takes(name: str, written: Any, counts: Any) -> None:
    got = ROWS[name].read(written)
    assert (got.complaints, got.usable) == ((), True)
    assert got.value == counts if counts is not ... else thawed(got.value) == written


WRONG: list[tuple[str, Any, Any, str]] = [
    # key, what was written, what counts, what is said
    ("crossSessionInbound", "acept", "invalid", '"acept", which is none of accept, hold, refuse; it counts as hold'),
    ("crossSessionInbound", "Accept", "invalid", "counts as hold"),
    ("crossSessionInbound", None, "invalid", "is null"),
    ("crossSessionInbound", ["accept"], "invalid", "is a list"),
    ("crossSessionInbound", {"accept": 1}, "invalid", "is an object"),
    ("crossSessionInbound", True, "invalid", "is true"),
    ("dialogExpiry", "7m", 300_000, "none of 60s, 5m, 10m, never; 5m counts"),
    ("dialogExpiry", 300, 300_000, "is 300,"),
    ("dialogExpiry", ["never"], 300_000, "is a list"),
    ("isolatePeerMachines", "false", True, 'is "false", which is neither true nor false; true counts'),
    ("readReceipts", 1, False, "false counts"),
    ("desktopNotices", None, False, "false counts"),
    ("claimTasks", "off", False, "false counts"),
    ("crossMachine", "Open", "reply-only", "none of reply-only, open; reply-only counts"),
    ("refusalNotice", True, "silent", "is true, which is none of silent, tell; silent counts"),
    ("permissions.deny", "SendMessage", {"SendMessage"}, "no list; it counts as a list of that name"),
    ("permissions.deny", {"SendMessage": True}, set[str](), "nothing is denied by it"),
    ("permissions.deny", ["SendMessage", 7, None], {"SendMessage"}, "holds 7, which is no tool name"),
    ("publishTo", "claude-code", (), "no list of claude-code, qwen-code; it counts as empty"),
    ("publishTo", ["claude-code", "codex"], ("claude-code",), 'names "codex", which is none of'),
    ("publishTo", [None], (), "names null"),
    ("nats", f"nats://u:{SECRET}@h", None, "must be an object with url, credentials, token, tls, realm"),
    ("nats", {"url": [SECRET, 4]}, None, "holds a url that is not text or a list of texts; all of it is left out"),
    ("nats", {"url": "", "token": SECRET}, None, "holds a url"),
    ("nats", {"token": [SECRET]}, None, "holds a token that is not text"),
    ("nats", {"tls": SECRET}, None, "holds a tls that is not an object"),
    ("nats", {"tls": {"a": deep(MAX_DEPTH)}}, None, "lies too deep"),
    ("gateways", f"https://u:{SECRET}@h", None, "must be a list or an object"),
    ("gateways", deep(MAX_DEPTH + 1), None, "no deep one"),
    ("gateways", None, None, "left out"),
]  # fmt: skip


@pytest.mark.rule("03.23")
@pytest.mark.parametrize(("name", "written", "counts", "said"), WRONG)
def test_what_cannot_be_used_counts_as_the_strict_side(
    name: str, written: Any, counts: Any, said: str
) -> None:
    got = ROWS[name].read(written)
    assert got.value == counts
    assert not got.usable
    assert len(got.complaints) == 1
    assert said in got.complaints[0]
    assert SECRET not in got.complaints[0]


def test_a_strange_key_beside_the_servers_address_costs_nothing() -> None:
    got = ROWS["nats"].read({"url": "nats://h", SECRET: 1, "tokn": SECRET})
    assert (got.usable, got.value) == (True, {"url": "nats://h"})
    [said] = got.complaints
    assert said.startswith("holds a key that is not known; the nearest is ")
    assert ROWS["nats"].read({"tokn": SECRET}).complaints[0].endswith("the nearest is token")


def test_what_was_read_cannot_be_changed_afterwards() -> None:
    written = {"url": ["a"], "tls": {"ca": "c"}}
    kept: Any = ROWS["nats"].read(written).value
    written["url"] = ["b"]
    assert kept["url"] == ("a",)
    with pytest.raises(TypeError):
        kept["tls"]["ca"] = "d"


@given(st.sampled_from(sorted(ROWS)), contents)
@settings(max_examples=200)
def test_no_value_raises_and_none_is_laxer_than_the_default(name: str, value: object) -> None:
    row = ROWS[name]
    got = row.read(value)
    assert got.usable or got.complaints
    assert all(said.isprintable() and len(said) < 400 for said in got.complaints)
    if not got.usable and name not in ("permissions.deny", "publishTo"):
        strict = {"crossSessionInbound": "invalid", "isolatePeerMachines": True, "claimTasks": False}
        assert got.value == strict.get(name, row.read(None).value)


@given(st.sampled_from(["nats", "gateways"]), contents)
@settings(max_examples=100)
def test_no_complaint_shows_what_stands_in_a_secret_place(name: str, value: object) -> None:
    marked = mark(value)
    for said in ROWS[name].read(marked).complaints:
        assert SECRET not in said


def mark(value: object) -> object:
    """The value with each of its texts, keys too, made a secret."""
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {f"{SECRET}{key}": mark(item) for key, item in items}
    if isinstance(value, list):
        return [*map(mark, cast("list[object]", value))]
    return f"{SECRET}{value}" if isinstance(value, str) else value


# ── words ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("a", '"a"'),
        ("a\nb\u202e\ud800", r'"a\nb\u202e\ud800"'),
        ("x" * 61, f'"{"x" * 60}…"'),
        (True, "true"),
        (None, "null"),
        (1_000_000, "1,000,000"),
        (0.5, "0.5"),
        (1e300, "a number out of all bounds"),
        (float("nan"), "a number out of all bounds"),
        ({}, "an object"),
        ([], "a list"),
        ((), "a list"),
    ],
)
def test_a_value_is_named_shortly(value: object, words: str) -> None:
    assert shown(value) == words


@given(st.text(max_size=100), st.integers(1, 50))
def test_a_line_is_one_printable_line(text: str, most: int) -> None:
    assert line(text, most).isprintable()
    assert len(line(text, most)) <= 10 * most + 1


@pytest.mark.rule("03.35")
@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("crossSessionInbond", "crossSessionInbound"),
        ("crosssessioninbound", "crossSessionInbound"),
        ("maxUnred", "limits.maxUnread"),
        ("limits.maxUnred", "limits.maxUnread"),
        ("denny", "permissions.deny"),
        ("permission", "permissions"),
        ("limit", "limits"),
    ],
)
def test_the_nearest_known_key_is_found(word: str, meant: str) -> None:
    assert nearest(word, (*OBJECTS, *ROWS)) == meant


@given(st.text(max_size=80))
@example("")
@example("x" * 100_000)
def test_there_is_always_a_nearest_one(word: str) -> None:
    assert nearest(word, ROWS) in ROWS


def test_json_is_what_is_read() -> None:
    """What a file of every default holds is taken without a word."""
    limits = {key: getattr(Limits(), name) for key, (name, _, _) in RANGES.items()}
    for key, value in json.loads(json.dumps(limits)).items():
        assert ROWS[f"limits.{key}"].read(value).complaints == ()
    assert replace(Limits(), **{RANGES[key][0]: value for key, value in limits.items()}) == Limits()
