"""How a row is measured: cases in rotating order, round by round, and ratios within each round.

A row yields groups while what it needs is running; a group is a list of cases that do the same work and the
goals among them. Every round runs every case once, each time beginning with the next one, so that a slow spell
of the machine hits all of them alike. Where the work is short a round is several slices, and a case's figure is
the median of them, so that whoever else runs on the machine disturbs few of them. A ratio is the median of the
per-round ratios, never the ratio of two medians.

It decides nothing about the project, and asserts nothing: it says of a goal whether it is reached.

How it fails: a peer that raises becomes a case that could not be measured; a floor or ours that raises ends its
row.

What is weak: a figure is as good as the machine is quiet. Ratios hold better than times.
"""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

Kind = Literal["floor", "ours", "peer", "beside"]
"""`beside` is shown for the reader and judged nowhere."""

Mode = Literal["full", "quick", "smoke"]

Unit = Literal["s", "B", "/s", "tasks"]
"""Seconds for each operation, bytes, times a second, or how many tasks the event loop got for each operation."""

ROUNDS: dict[Mode, int] = {"full": 7, "quick": 5, "smoke": 1}
"""Odd, so that a median is one of the rounds; five at least where a figure is to be believed."""

SLICES: dict[Mode, int] = {"full": 9, "quick": 5, "smoke": 1}
"""Of a round, where the work is short enough for a neighbour to fall into a part of it."""

SHARE: dict[Mode, int] = {"full": 1, "quick": 2, "smoke": 50}
"""By what the number of operations in a slice is divided."""

ITSELF = "itself"
"""In the place of the case that a goal compares with: the figure itself is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way of doing the work of a group.

    Attributes:
        kind: floor, ours, peer, or beside.
        name: what people read.
        run: does it once and returns the figure, for one operation; None: it is not installed.
        missing: why it cannot run here.
    """

    kind: Kind
    name: str
    run: Callable[[], float] | None
    missing: str = ""


def floor(name: str, run: Callable[[], float]) -> Case:
    """The least code that does the same work."""
    return Case(kind="floor", name=name, run=run)


def ours(name: str, run: Callable[[], float]) -> Case:
    """The code that ships."""
    return Case(kind="ours", name=name, run=run)


def beside(name: str, run: Callable[[], float]) -> Case:
    """Something that helps to read the others."""
    return Case(kind="beside", name=name, run=run)


def peer(name: str, run: Callable[[], float] | None, absent: str = "") -> Case:
    """Another program that does the same; where there is none to run, the words that say so."""
    return Case(kind="peer", name=name, run=run, missing="" if run else absent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What one case may cost, as a multiple of another.

    Attributes:
        limit: the highest ratio that reaches it; with `ITSELF` the highest figure.
        over: the case that it is a multiple of; empty: the group's floor.
        of: the case that is judged; empty: the group's first of ours.
        text: the goal in words.
    """

    limit: float
    text: str
    over: str = ""
    of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases that do the same work, to be measured in the same rounds.

    Attributes:
        title: what they do.
        cases: at least one floor and one of ours.
        goals: what is wanted.
        pin: `same` (both ends on one core), `split` (on two: shown, not judged), or empty.
        unit: what the figures are.
        rounds: how many; None: as many as the mode says.
        slices: how often each case runs in a round; the median counts.
        warm: whether each case runs once before the first round, uncounted.
        note: a sentence that belongs to the figures.
    """

    title: str
    cases: Sequence[Case]
    goals: Sequence[Goal] = ()
    pin: str = ""
    unit: Unit = "s"
    rounds: int | None = None
    slices: int = 1
    warm: bool = True
    note: str = ""

    def named(self, name: str, kind: Kind) -> Case | None:
        """The case of this name; without one the first of a kind."""
        wanted = (case for case in self.cases if (case.name == name if name else case.kind == kind))
        return next(wanted, None)


@dataclass(slots=True)
class Figures:
    """What one case gave, a figure a round; none where it could not run."""

    case: Case
    values: list[float] = field(default_factory=list[float])
    missing: str = ""

    @property
    def median(self) -> float:
        """The middle of the rounds."""
        return statistics.median(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A goal and what was found. `ratio` and `reached` are None where there is nothing to judge by."""

    goal: Goal
    of: str
    over: str
    ratio: float | None
    reached: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One group, measured."""

    group: Group
    figures: Sequence[Figures]
    verdicts: Sequence[Verdict]

    def figures_of(self, name: str) -> Figures | None:
        """What the case of this name gave."""
        return next((each for each in self.figures if each.case.name == name), None)

    def ratio(self, of: str, over: str) -> float | None:
        """How many times `over` the case `of` costs; None where one of them could not run."""
        return ratio_of(self.figures_of(of), self.figures_of(over))


def ratio_of(of: Figures | None, over: Figures | None) -> float | None:
    """The median of the per-round ratios; None without figures, or over nothing."""
    if of is None or over is None or not of.values or not over.values:
        return None
    pairs = [(one, other) for one, other in zip(of.values, over.values, strict=False) if other > 0]
    return statistics.median(one / other for one, other in pairs) if pairs else None


def rotated(cases: Sequence[Figures], turn: int) -> list[Figures]:
    """The cases in the order of one round."""
    start = turn % len(cases) if cases else 0
    return [*cases[start:], *cases[:start]]


def measure(group: Group, rounds: int) -> Measured:
    """Runs one group and judges its goals.

    Args:
        group: what to run.
        rounds: how often, unless the group says so itself.
    """
    figures = [Figures(case, missing=case.missing) for case in group.cases]
    if group.warm:
        for each in figures:
            ran(each)
    for turn in range(group.rounds or rounds):
        gc.collect()
        parts: dict[str, list[float]] = {each.case.name: [] for each in figures}
        for part in range(group.slices):
            for each in rotated(figures, turn + part):
                value = ran(each)
                if value is not None:
                    parts[each.case.name].append(value)
        for each in figures:
            if parts[each.case.name] and not each.missing:
                each.values.append(statistics.median(parts[each.case.name]))
    verdicts = [judged(goal, group, figures) for goal in group.goals]
    return Measured(group=group, figures=figures, verdicts=verdicts)


def ran(each: Figures) -> float | None:
    """Runs a case once. A peer that fails is missing from then on; anything else that fails is raised."""
    if each.case.run is None or each.missing:
        return None
    try:
        return each.case.run()
    except Exception as error:
        if each.case.kind != "peer":
            raise
        each.missing = f"could not be measured: {error!r}"[:200]
        each.values.clear()
        return None


def judged(goal: Goal, group: Group, figures: Sequence[Figures]) -> Verdict:
    """Judges one goal. What is split over two cores is shown and judged nowhere (12.31)."""
    found = {each.case.name: each for each in figures}
    of = group.named(goal.of, "ours")
    over = None if goal.over == ITSELF else group.named(goal.over, "floor")
    ratio: float | None = None
    if of is not None and found[of.name].values:
        if goal.over == ITSELF:
            ratio = found[of.name].median
        elif over is not None:
            ratio = ratio_of(found[of.name], found[over.name])
    return Verdict(
        goal=goal,
        of=of.name if of is not None else goal.of,
        over=goal.over if over is None else over.name,
        ratio=ratio,
        reached=None if ratio is None or group.pin == "split" else ratio <= goal.limit,
    )


# ── how much, and where ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Pin:
    """Which cores the two ends of a group run on.

    Attributes:
        name: `same` or `split`.
        here: this process's core; None: anywhere.
        there: the other end's.
    """

    name: str
    here: int | None
    there: int | None


@dataclass(frozen=True, slots=True)
class Bench:
    """How thoroughly everything is measured."""

    mode: Mode = "full"

    @property
    def rounds(self) -> int:
        """Rounds of a group that does not say otherwise."""
        return ROUNDS[self.mode]

    @property
    def slices(self) -> int:
        """Slices of a round, where the work is short."""
        return SLICES[self.mode]

    def count(self, full: int, *, least: int = 1) -> int:
        """Operations in a slice, given those of a thorough one."""
        return max(least, full // SHARE[self.mode])

    def choose(self, *, full: float, quick: float, smoke: float) -> float:
        """A number that is not divided evenly."""
        return {"full": full, "quick": quick, "smoke": smoke}[self.mode]

    def pins(self) -> list[Pin]:
        """Both ends on one core, and on two where there are two."""
        if not hasattr(os, "sched_getaffinity"):
            return [Pin("same", None, None)]
        cores = sorted(os.sched_getaffinity(0))
        pins = [Pin("same", cores[0], cores[0])]
        if len(cores) > 1 and self.mode != "smoke":
            pins.append(Pin("split", cores[0], cores[1]))
        return pins


@contextlib.contextmanager
def on_core(core: int | None) -> Generator[None]:
    """Runs the block, and the processes that it starts, on one core; None leaves it alone."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def timed(work: Callable[[], object], times: int) -> float:
    """Seconds for each of `times` calls."""
    begun = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - begun) / times


def timed_over(work: Callable[[str], object], values: Sequence[str], times: int) -> float:
    """Seconds for each call of `work` with one value, all of them `times` over."""
    begun = time.perf_counter()
    for _ in range(times):
        for value in values:
            work(value)
    return (time.perf_counter() - begun) / (times * len(values))


def measured(groups: Iterable[Group], rounds: int) -> Iterator[Measured]:
    """Measures a row's groups one after the other, while what they need is running."""
    for group in groups:
        yield measure(group, rounds)
