"""The table for people and the document for programs."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.harness import ITSELF

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.harness import Bench, Figures, Measured, Unit, Verdict

PINNED = {
    "same": "both ends on one core",
    "split": "the ends on two cores; ratios are judged on one",
    "free": "not pinned",
    "": "",
}


def shown(value: float, unit: Unit) -> str:
    """A figure as people read it."""
    if unit == "B":
        return f"{value / 1_048_576:.1f} MiB" if value >= 1_048_576 else f"{value:,.0f} B"
    if unit == "/s":
        return f"{value:.2f} /s"
    if unit == "tasks":
        return f"{value:g}"
    for size, word in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= size:
            return f"{value / size:.2f} {word}"
    return f"{value * 1e9:.0f} ns"


def heading(row: str, title: str, measured: Measured) -> str:
    """The line above one group."""
    where = PINNED[measured.group.pin]
    return f"\nrow {row} · {title}: {measured.group.title}{f' [{where}]' if where else ''}"


def table(measured: Measured) -> Iterator[str]:
    """The lines of one group: every case, then every goal."""
    floor = measured.group.named("", "floor")
    for each in measured.figures:
        yield case_line(each, measured.ratio(each.case.name, floor.name) if floor else None, measured)
    for verdict in measured.verdicts:
        yield f"  {'goal':6} {goal_line(verdict, measured.group.unit)}"
    if measured.group.note:
        yield f"  {'note':6} {measured.group.note}"


def case_line(each: Figures, ratio: float | None, measured: Measured) -> str:
    """One case: its median, how often the floor that is, and its least and most."""
    unit = measured.group.unit
    width = max(len(case.name) for case in measured.group.cases)
    head = f"  {each.case.kind:6} {each.case.name:{width}}"
    if not each.values:
        return f"{head} {each.missing or 'not measured'}"
    times = f"{ratio:8.2f} ×" if ratio is not None else f"{'':10}"
    return (
        f"{head} {shown(each.median, unit):>12} {times}   "
        f"({shown(min(each.values), unit)} to {shown(max(each.values), unit)})"
    )


def goal_line(verdict: Verdict, unit: Unit) -> str:
    """One goal and what was found."""
    if verdict.ratio is None:
        return f"{verdict.goal.text}: nothing to judge by"
    found = shown(verdict.ratio, unit) if verdict.goal.over == ITSELF else f"{verdict.ratio:.2f} ×"
    said = {True: "reached", False: "MISSED", None: "not judged here"}[verdict.reached]
    return f"{verdict.goal.text}: {found}, {said}"


def summary(rows: Sequence[tuple[str, str, Measured]]) -> Iterator[str]:
    """Every goal that was judged, those that were missed first."""
    judged = [
        (row, measured, verdict)
        for row, _, measured in rows
        for verdict in measured.verdicts
        if verdict.reached is not None
    ]
    missed = [each for each in judged if not each[2].reached]
    yield f"\n{len(judged) - len(missed)} of {len(judged)} goals reached"
    for row, measured, verdict in missed:
        yield f"  missed: row {row}, {measured.group.title}: {goal_line(verdict, measured.group.unit)}"


# ── the document ─────────────────────────────────────────────────────────────────────────────────


def machine() -> dict[str, Any]:
    """What the figures were measured on, in general terms."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "sqlite": sqlite3.sqlite_version,
    }


def document(
    bench: Bench, rows: Sequence[tuple[str, str, Measured]], failed: dict[str, str]
) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "machine": machine(),
        "mode": bench.mode,
        "rows": [group_document(row, title, measured) for row, title, measured in rows],
        "failed": failed,
    }


def group_document(row: str, title: str, measured: Measured) -> dict[str, Any]:
    """One group."""
    group = measured.group
    floor = group.named("", "floor")
    return {
        "row": row,
        "title": title,
        "group": group.title,
        "pin": group.pin or None,
        "unit": group.unit,
        "note": group.note,
        "cases": [
            {
                "kind": each.case.kind,
                "name": each.case.name,
                "missing": each.missing or None,
                "median": each.median if each.values else None,
                "rounds": each.values,
                "ratio": measured.ratio(each.case.name, floor.name) if floor else None,
            }
            for each in measured.figures
        ],
        "goals": [
            {
                "goal": verdict.goal.text,
                "of": verdict.of,
                "over": verdict.over,
                "limit": verdict.goal.limit,
                "ratio": verdict.ratio,
                "reached": verdict.reached,
            }
            for verdict in measured.verdicts
        ],
    }
