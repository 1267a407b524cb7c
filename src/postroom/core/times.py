"""Times as they are written: epoch milliseconds to text and back.

Pure: it reads no clock. Everything here is UTC, and a text that names no zone is taken for UTC. Writing one loads
nothing, because every list is printed with it (12.17).

How it fails: `moment` and `stamped` raise ValueError for what is no time.
"""

from __future__ import annotations

_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

MAX_AGO_DIGITS = 9
"""Digits of `3d` and its like: thirty years of seconds, and far more of the others."""


_MARCH_0000 = 719_468
"""Days from the first of March of the year 0 to the epoch. Years that begin in March end in their leap day."""


def iso(at: int) -> str:
    """Renders epoch milliseconds as `2026-11-30T10:15:02Z`, whole seconds in UTC (04.1).

    Args:
        at: any time from the year 1 on; a year has four digits at least.
    """
    days, second = divmod(at // 1000, 86_400)
    era, day = divmod(days + _MARCH_0000, 146_097)  # the calendar repeats itself after 400 years
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (
        5 * day + 2
    ) // 153  # March is 0; the months from there on have 31, 30, 31, 30, 31 days, repeated
    day -= (153 * month + 2) // 5
    month += 3 if month < 10 else -9
    year += era * 400 + (month < 3)
    return (
        f"{year:04d}-{month:02d}-{day + 1:02d}"
        f"T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"
    )


def stamp(at: int) -> str:
    """Renders epoch milliseconds as `2026-11-30T10:15:02.123Z`: a trace needs more than seconds (10.28)."""
    return f"{iso(at)[:-1]}.{at % 1000:03d}Z"


def stamped(text: str) -> int:
    """The epoch milliseconds of an ISO time, what is finer cut off. ValueError for anything else."""
    from datetime import UTC, datetime, timedelta

    at = datetime.fromisoformat(text)
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(milliseconds=1)


def moment(text: str, now: int) -> int:
    """Reads what a person writes for a time: an ISO time, or `10m`, `2h`, `3d` for that long ago (10.13).

    Args:
        text: as it was written.
        now: epoch milliseconds.

    Returns epoch milliseconds. ValueError for anything else.
    """
    digits, unit = text[:-1], _UNITS.get(text[-1:])
    if unit and digits.isascii() and digits.isdigit() and len(digits) <= MAX_AGO_DIGITS:
        return now - int(digits) * unit
    return stamped(text)
