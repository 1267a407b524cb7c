"""Times as they are written: to text and back, and what a person may write for one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.core.times import MAX_AGO_DIGITS, iso, moment, stamp, stamped

NOW = 1_796_033_702_123
"""2026-11-30T10:15:02.123Z."""

LAST = 253_402_300_799_999
"""The last millisecond of the year 9999."""

FIRST = -62_135_596_800_000
"""The first one of the year 1."""


@pytest.mark.rule("04.1")
@given(st.integers(FIRST, LAST))
def test_iso_is_what_the_calendar_says(at: int) -> None:
    seconds = at // 1000
    days, second = divmod(seconds, 86_400)
    day = datetime.fromordinal(datetime(1970, 1, 1).toordinal() + days)
    written = f"{day.year:04d}-{day:%m-%d}T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"
    assert iso(at) == written


@pytest.mark.parametrize("year", [1, 4, 100, 400, 1900, 1970, 1999, 2000, 2024, 2026, 2100, 2400, 9999])
@pytest.mark.parametrize(("month", "day"), [(1, 1), (2, 28), (2, 29), (3, 1), (7, 31), (8, 1), (12, 31)])
def test_iso_at_the_edges_of_months_and_years(year: int, month: int, day: int) -> None:
    try:
        date = datetime(year, month, day, 23, 59, 59, tzinfo=UTC)
    except ValueError:
        assert (month, day) == (2, 29)
        return
    at = (date.toordinal() - 719_163) * 86_400_000 + 86_399_000
    assert iso(at) == f"{year:04d}-{month:02d}-{day:02d}T23:59:59Z"


@pytest.mark.rule("10.28")
@given(st.integers(FIRST, LAST))
def test_a_stamp_reads_back_to_the_same_millisecond(at: int) -> None:
    assert stamped(stamp(at)) == at
    assert stamped(iso(at)) == at - at % 1000


def test_a_stamp_has_milliseconds() -> None:
    assert stamp(NOW) == "2026-11-30T10:15:02.123Z"
    assert stamp(NOW - 123) == "2026-11-30T10:15:02.000Z"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-30T10:15:02.123Z", NOW),
        ("2026-11-30T10:15:02.123999Z", NOW),
        ("2026-11-30T10:15:02.123", NOW),
        ("2026-11-30T11:15:02.123+01:00", NOW),
        ("2026-11-30 10:15:02Z", NOW - 123),
        ("2026-11-30", NOW - 123 - 36_902_000),
        ("0s", NOW),
        ("10m", NOW - 600_000),
        ("2h", NOW - 7_200_000),
        ("3d", NOW - 259_200_000),
        ("999999999s", NOW - 999_999_999_000),
    ],
)
@pytest.mark.rule("10.13")
def test_what_a_person_may_write(text: str, at: int) -> None:
    assert moment(text, NOW) == at


@pytest.mark.parametrize(
    "text",
    [
        *("", "m", "-1m", "1.5h", "10", "10w", "now", "yesterday", "٣d", "1_0m", " 10m", "10 m", "10m "),
        *("2026-13-01", "2026-11-30T25:00:00Z", "9" * (MAX_AGO_DIGITS + 1) + "s", "2026-11-30T10:15:02Zzz"),
    ],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        moment(text, NOW)


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    try:
        assert isinstance(moment(text, NOW), int)
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("0001-01-01T00:00:00+14:00", FIRST - 50_400_000),
        ("9999-12-31T23:59:59.999-14:00", LAST + 50_400_000),
    ],
)
def test_times_at_the_end_of_the_calendar(text: str, at: int) -> None:
    assert stamped(text) == at
