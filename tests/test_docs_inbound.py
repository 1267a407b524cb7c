"""The pages about what may come in, held against the code: the rule, the ladder, the settings, the notices, the limits.

Two tables are made from the code (`scripts/tables`) and must stand in the page as they are made. The others are
written by hand, and must say what the code has: nothing is missing, nothing stale, no value is another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import cast

import pytest

from postroom import arguments
from postroom.core import holds, inbound, keys, notices, settings
from postroom.core.message import Origin
from postroom.core.refusals import CODES
from postroom.state import scopes
from tests import tables
from tests.pages import ROOT, Section, Table, agree, page_of, spans, table_rows

PAGE = "docs/what-may-come-in.md"
LOOPS = "docs/loops.md"


def section(title: str, name: str = PAGE) -> Section:
    """One section of a page."""
    return page_of(name).section(title)


def table_of(title: str, head: str, name: str = PAGE) -> Table:
    """The table of a section whose first column is called so."""
    (found,) = [table for table in section(title, name).tables if table.header[0] == head]
    return found


# ── what is made ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("made", [tables.ladder, tables.told])
def test_a_table_that_is_made_stands_in_the_page_as_it_is_made(made: Callable[[], str]) -> None:
    """`scripts/tables` prints them anew."""
    assert f"\n\n{made()}\n" in (ROOT / PAGE).read_text()


def test_the_made_tables_are_the_whole_of_what_the_code_has() -> None:
    """The one has every rung, in the order of the ladder; the other everything that can become of a message."""
    rungs = [spans(row[0]) for row in table_of("The ladder", "rung").rows]
    assert rungs == [[rung] for rung in inbound.RUNGS]
    happens = [row[0] for row in table_of("Who is told what", "what happens").rows]
    assert happens == [told.happens for told in holds.WHO_IS_TOLD.values()]


# ── the default rule ─────────────────────────────────────────────────────────────────────────────

OTHER = "any other"
"""Any mode that no row names."""


def test_every_mode_has_its_class() -> None:
    rows = table_of("By default", "mode").rows
    documented = {mode: spans(row[1])[0] for row in rows for mode in spans(row[0]) or [OTHER]}
    assert documented == {**inbound.MODES, OTHER: inbound.class_of("no such mode")}
    choices = next(one.choices for one in arguments.COMMANDS["open"].takes if one.option == "--mode")
    assert set(choices) == set(inbound.MODES)


def test_the_default_rule_is_the_one_that_decides() -> None:
    """Every cell: what `decide` says of a verified peer, and of an own child, where no setting and no rule is."""
    table = table_of("By default", "this session")
    stated = [next(iter(spans(head)), None) for head in table.header[1:]]
    assert stated == ["bypassing", "prompting", None]
    seen: set[str] = set()
    for row in table.rows:
        own = spans(row[0])
        seen |= set(own)
        for receiver in own or ["bypassing", "prompting", "unknown"]:
            policy = inbound.Policy(cast("inbound.ReceiverClass", receiver), None, 50)
            for says, cell in zip(stated, row[1:], strict=True):
                origin = Origin(
                    kind="peer" if own else "own_child",
                    identity="id",
                    verified=True,
                    stated_class=says,  # pyright: ignore[reportArgumentType]
                )
                assert inbound.decide(origin, False, policy).outcome == cell, (receiver, says)
    assert seen == set(inbound.BY_CLASS)


# ── settings ─────────────────────────────────────────────────────────────────────────────────────

WHO: Mapping[tuple[keys.Scope, ...], str] = {keys.SCOPES: "all", keys.TRUSTED: "managed, flag, user"}

PLACES: Mapping[keys.Scope, str] = {
    "managed": scopes.MANAGED,
    "flag": "open --settings",
    "user": "$XDG_CONFIG_HOME/postroom/settings.json",
    "project": ".postroom/settings.json",
    "local": ".postroom/settings.local.json",
}


def test_every_scope_has_its_row_and_its_place() -> None:
    rows = table_rows([section("Settings")], "scope")
    assert tuple(rows) == keys.SCOPES
    for scope, place in PLACES.items():
        assert place in spans(rows[scope]["file"])
    environ = {"XDG_CONFIG_HOME": "/config", "HOME": "/home/user"}
    found = [source.path for source in scopes.sources_of("/nowhere", environ, scopes.MANAGED, None)]
    asked = [
        place.replace("$XDG_CONFIG_HOME", "/config") for scope, place in PLACES.items() if scope != "flag"
    ]
    assert found == [place if place.startswith("/") else f"/nowhere/{place}" for place in asked]


def words_for(key: str) -> list[str]:
    """What a key takes, as the page has it: its words, or true and false; empty where it takes something else."""
    (complaint, *_) = keys.ROWS[key].read("no such value").complaints
    if "neither true nor false" in complaint:
        return ["true", "false"]
    if words := re.search(r"none of (.+?); ", complaint):
        return words[1].split(", ")
    return []


def default_of(key: str) -> str:
    """The default of a key, as a settings file has it."""
    value = getattr(settings.Settings(), keys.ROWS[key].attribute)
    if key == "dialogExpiry":
        return next(word for word, milliseconds in keys.EXPIRIES.items() if milliseconds == value)
    if key == keys.INBOUND:
        return {None: "not set"}[value]
    return keys.shown(value).strip('"') if value or isinstance(value, bool) else "none"


def test_every_key_has_its_row() -> None:
    """With all its values, its default, who may set it, and whether it has an effect yet."""
    rows = table_rows([section("Settings")], "key")
    agree(rows, [key for key in keys.ROWS if not key.startswith("limits.")])
    for key, row in rows.items():
        known = words_for(key)
        if known:
            assert spans(row["values"]) == known, key
        assert row["default"].strip("`") == default_of(key), key
        assert row["who may set it"] == WHO[keys.ROWS[key].who], key
        assert ("*not yet*" in row["key"]) is (key in keys.NOT_BUILT), key
    assert spans(rows["publishTo"]["values"]) == list(keys.NEIGHBOURS)


def test_every_limit_has_its_row_with_its_range() -> None:
    rows = table_rows([section("The limits", LOOPS)], "limit key")
    agree(rows, keys.RANGES)
    for key, (attribute, lowest, highest) in keys.RANGES.items():
        assert rows[key]["default"] == f"{getattr(keys.Limits(), attribute):g}", key
        assert rows[key]["range"] == f"{lowest:,g} to {highest:,}", key
        assert keys.ROWS[f"limits.{key}"].who == keys.TRUSTED


@pytest.mark.parametrize("name", [PAGE, LOOPS, "docs/settings.md", "docs/first-steps.md", "README.md"])
def test_the_settings_that_a_page_shows_can_be_used(name: str) -> None:
    """Each is read as a user's file would be, and nothing is wrong with it."""
    shown = [span for span in spans(page_of(name).prose) if span.startswith('{"')]
    for text in shown:
        content = scopes.parsed(text.encode())
        assert settings.read_layer("user", "the page", content).problems == (), text
    assert shown or name not in (PAGE, LOOPS)


def test_the_shutdown_shuts_both_halves() -> None:
    (text,) = [
        span
        for span in spans(section("Settings").text.replace("\n", " "))
        if "ListAgents" in span and "{" in span
    ]
    layer = settings.read_layer("user", "the page", json.loads(text))
    applies = settings.effective([layer])
    assert applies.inbound is not None
    assert applies.inbound.value == "refuse"
    assert applies.denied == {"SendMessage", "ListAgents"}


# ── loops, and numbers in sentences ──────────────────────────────────────────────────────────────


def test_every_reason_of_the_guard_has_its_row_and_its_code() -> None:
    table = table_of("Loops and bursts", "reason", LOOPS)
    rows = {spans(row[0])[0]: spans(row[2])[0] for row in table.rows}
    assert list(rows) == list(inbound.OBJECTIONS)
    assert [code for code in rows.values() if code not in CODES] == []
    assert rows == {reason: reason.replace("-", "_") for reason in inbound.OBJECTIONS}


SAID = [
    (PAGE, f"At most {holds.CAPACITY} are held"),
    (PAGE, f"within {notices.WATCH_TIME // (60 * notices.MINUTE)} hours"),
    (PAGE, f"At most {notices.MAX_WATCHERS} wait for one session"),
    (PAGE, f"at most {scopes.SETTINGS_BYTES // 1_048_576} MiB"),
    (LOOPS, f"stop after {keys.Limits().max_chain_length} deliveries"),
    (LOOPS, f"Two alone stop after {2 * keys.Limits().max_self_hops + 1},"),
]


@pytest.mark.parametrize(("name", "words"), SAID, ids=lambda value: str(value)[:30])
def test_a_number_in_a_sentence_is_the_codes(name: str, words: str) -> None:
    assert words in " ".join(page_of(name).prose.split())
