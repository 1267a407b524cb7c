"""What ListAgents shows: everybody in a fixed order, filtered, cut aloud."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.core.address import normal_form, shown
from postroom.core.listing import DEFAULT_ROWS, Listing, Row, age, listing, row_text
from postroom.core.message import PartyKind

NOW = 1_796_033_702_123
SECOND = 1000

KINDS: tuple[PartyKind, ...] = ("agent", "teammate", "session")

rows = st.lists(
    st.builds(
        Row,
        identity=st.integers(0, 10**6).map(str),
        name=st.sampled_from(["api", "Api", "api-worker", "bob", "zed", "борис", "ас", "Ωmega"]),
        kind=st.sampled_from(KINDS),
        aliases=st.lists(st.sampled_from(["old", "api-old"]), max_size=2).map(tuple),
        cwd=st.sampled_from(["", "/src/api", "/home/me"]),
        local=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda row: row.identity,
)


def place(row: Row) -> tuple[int, bool]:
    """Where a row's group stands: agents, teammates, sessions here, sessions beyond (01.29)."""
    return KINDS.index(row.kind), not row.local


@pytest.mark.rule("01.29")
@given(rows, st.integers(0, 14))
def test_everybody_is_shown_once_or_counted(found: list[Row], limit: int) -> None:
    """Whatever the limit: nobody is left out in silence, and nobody is shown twice."""
    answer = listing(found, limit=limit)
    assert len(answer.rows) == min(limit, len(found))
    assert len(answer.rows) + answer.left_out == len(found)
    identities = [row.identity for row in answer.rows]
    assert len(set(identities)) == len(identities)
    assert set(identities) <= {row.identity for row in found}
    assert answer.own is None


@pytest.mark.rule("01.29")
@given(rows)
def test_the_order_is_agents_teammates_here_beyond_and_by_name_within(found: list[Row]) -> None:
    answer = listing(found)
    assert [place(row) for row in answer.rows] == sorted(map(place, found))
    for one, other in zip(answer.rows, answer.rows[1:], strict=False):
        if place(one) == place(other):
            assert (normal_form(one.name), one.ref) <= (normal_form(other.name), other.ref)


@pytest.mark.rule("01.29")
@given(rows, st.randoms(use_true_random=False), st.integers(0, 14))
def test_the_order_of_finding_does_not_matter(found: list[Row], chance: random.Random, limit: int) -> None:
    mixed = list(found)
    chance.shuffle(mixed)
    assert listing(mixed, limit=limit) == listing(found, limit=limit)


@pytest.mark.rule("01.29")
@given(
    rows,
    st.sampled_from([None, *KINDS]),
    st.sampled_from([None, "", "API", "old", "/src", "борИС", "nobody"]),
)
def test_a_filter_keeps_what_has_the_text_and_the_kind(
    found: list[Row], kind: PartyKind | None, text: str | None
) -> None:
    kept = {row.identity for row in listing(found, text=text, kind=kind).rows}
    for row in found:
        words = [row.name, *row.aliases, row.cwd]
        has = not text or any(text.casefold() in word.casefold() for word in words)
        assert (row.identity in kept) == (has and kind in (None, row.kind))


@pytest.mark.rule("01.29")
@given(rows, st.integers(0, 11), st.sampled_from([None, "nobody"]))
def test_the_callers_own_row_stands_apart(found: list[Row], which: int, text: str | None) -> None:
    """It is there whatever is filtered or cut, and nowhere among the others."""
    if which >= len(found):
        return
    own = found[which].identity
    answer = listing(found, own=own, text=text, limit=0)
    assert answer.own is not None
    assert answer.own.identity == own
    assert own not in {row.identity for row in listing(found, own=own).rows}
    assert answer.left_out == (0 if text else len(found) - 1)


def test_an_unknown_caller_has_no_row() -> None:
    assert listing([Row(identity="a", name="a")], own="somebody else").own is None


@pytest.mark.rule("01.29")
def test_fifty_rows_unless_more_are_asked_for() -> None:
    crowd = [Row(identity=str(number), name=f"n{number:03d}") for number in range(60)]
    answer = listing(crowd)
    assert (len(answer.rows), answer.left_out) == (50, 10)
    assert DEFAULT_ROWS == 50


@pytest.mark.rule("01.29")
def test_what_could_not_be_checked_is_passed_on() -> None:
    assert listing([], unchecked=[("/there", "not ours")]) == Listing(
        own=None, rows=(), unchecked=(("/there", "not ours"),), left_out=0
    )


@pytest.mark.rule("02.7", "01.29")
@given(rows)
def test_every_row_has_a_ref_that_no_other_one_has(found: list[Row]) -> None:
    refs = [row.ref for row in listing(found).rows]
    assert len(set(refs)) == len(refs)
    assert all(len(ref) >= 6 for ref in refs)


@pytest.mark.rule("02.7")
def test_a_ref_grows_where_six_digits_are_shared() -> None:
    """Found by counting: the hashes of these two identities begin alike."""
    found = [Row(identity="4163", name="a"), Row(identity="8864", name="b"), Row(identity="x", name="c")]
    lengths = {row.name: len(row.ref) for row in listing(found).rows}
    assert lengths["c"] == 6
    assert lengths["a"] == lengths["b"] > 6


@pytest.mark.rule("02.6", "01.29")
def test_a_name_that_deceives_the_eye_bears_a_warning() -> None:
    """Cyrillic beside its Latin namesake, and a name of mixed scripts; not the Latin one, nor one alone."""
    cyrillic, mixed = "асе", "аce"
    answer = listing(
        [
            Row(identity="1", name="ace"),
            Row(identity="2", name=cyrillic),
            Row(identity="3", name=mixed),
            Row(identity="4", name="борис"),
        ]
    )
    warned = {row.identity: row.warnings for row in answer.rows}
    assert warned["1"] == ()
    assert "another script" in warned["2"][0]
    assert "different scripts" in warned["3"][0]
    assert warned["4"] == ()
    assert listing([Row(identity="2", name=cyrillic)]).rows[0].warnings == ()


# ── words ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("01.29")
def test_a_row_says_what_is_known_and_nothing_else() -> None:
    assert row_text(Row(identity="i", name="api", ref="3fa9c1"), NOW) == "api [3fa9c1] · session · idle"
    whole = Row(
        identity="i",
        name="api",
        ref="3fa9c1",
        aliases=("old", "older"),
        state="busy",
        presence="headless",
        cwd="/src",
        program="claude-code",
        seen_at=NOW - 90 * SECOND,
        condition="offline",
        wakes=False,
        warnings=("It looks like another.",),
    )
    assert row_text(whole, NOW) == (
        f"{shown('api', '3fa9c1')} · was old, older · headless · busy · /src · claude-code · active 1m ago"
        " · reads at its next turn · offline · It looks like another."
    )


@pytest.mark.rule("01.29")
def test_an_agent_says_of_what_type_it_is() -> None:
    agent = Row(identity="a", name="worker", kind="agent", ref="3fa9c1", state="busy", type="coder")
    assert row_text(agent, NOW) == "worker [3fa9c1] · agent · busy · type coder"
    assert row_text(agent._replace(type=""), NOW) == "worker [3fa9c1] · agent · busy"
    assert listing([agent]).rows[0].type == "coder"


@pytest.mark.rule("09.16")
@pytest.mark.parametrize(
    ("confirms", "says"),
    [
        ("accepted", " · says that it took a message, not that it read it"),
        ("written", " · never says that it read a message"),
        ("nothing", " · says nothing of a message"),
        ("consumed", ""),
    ],
)
def test_a_row_says_what_can_be_confirmed(confirms: str, says: str) -> None:
    row = Row(identity="i", name="api", ref="3fa9c1", confirms=confirms)
    assert row_text(row, NOW) == f"api [3fa9c1] · session · idle{says}"


@pytest.mark.parametrize(
    ("milliseconds", "written"),
    [
        *((-5, "0s"), (0, "0s"), (8_999, "8s"), (59_999, "59s"), (60_000, "1m"), (3_599_999, "59m")),
        *((3_600_000, "1h"), (86_399_999, "23h"), (86_400_000, "1d"), (200 * 86_400_000, "200d")),
    ],
)
def test_an_age_has_one_unit(milliseconds: int, written: str) -> None:
    assert age(milliseconds) == written


@pytest.mark.rule("01.29", "12.20")
def test_a_later_sign_of_life_counts_and_is_asked_for_only_what_is_shown() -> None:
    found = [Row(identity=f"id-{number}", name=f"n{number}", seen_at=NOW) for number in range(9)]
    asked: list[str] = []

    def sign(identity: str) -> int:
        asked.append(identity)
        return NOW + SECOND if identity == "id-0" else NOW - SECOND

    answer = listing(found, own="id-8", limit=2, sign=sign)
    assert sorted(asked) == ["id-0", "id-1", "id-8"]
    assert [row.seen_at for row in answer.rows] == [NOW + SECOND, NOW]


@pytest.mark.rule("01.29")
def test_no_agent_is_asked_for_a_sign_of_life() -> None:
    """Its id is its host's own word, and may be none of a session."""
    found = [
        Row(identity="-x", name="worker", kind="agent", seen_at=NOW),
        Row(identity="talk-1", name="me", kind="agent"),
        Row(identity="id-1", name="a session"),
    ]
    asked: list[str] = []

    def sign(identity: str) -> int:
        asked.append(identity)
        return NOW + SECOND

    answer = listing(found, own="talk-1", sign=sign)
    assert asked == ["id-1"]
    assert [(row.identity, row.seen_at) for row in answer.rows] == [("-x", NOW), ("id-1", NOW + SECOND)]
    assert answer.own is not None
    assert answer.own.seen_at == 0
