"""Rows 3 and 3b: resolving a name, without a socket and without a disk."""

from __future__ import annotations

import gc
import random
import unicodedata
from bisect import bisect_left, insort
from functools import lru_cache, partial
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.harness import Goal, Group, beside, floor, ours, timed_over
from postroom import Refusal
from postroom.core import resolve
from postroom.core.address import ref_of
from postroom.core.index import Candidate, Index

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from benchmarks.harness import Bench

MANY = 100_000
FEW = 100
PROBES = 1_000

WORDS = "research build test review deploy plan docs front back data".split()
TEXT = "Please review the failing authentication tests in tests/auth. " * 4
SUMMARY = "request test review"


# ── the names ────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=4)
def names(count: int) -> tuple[str, ...]:
    """So many names, no two alike, in no order."""
    chance = random.Random(7)
    made = [f"{chance.choice(WORDS)}-{number:06d}-{chance.choice(WORDS)}" for number in range(count)]
    chance.shuffle(made)
    return tuple(made)


@lru_cache(maxsize=4)
def index(count: int) -> Index:
    """The shipped index of so many names. Python's collector leaves it alone: a round shall not wait for that."""
    made = Index(candidates(names(count)))
    gc.collect()
    gc.freeze()
    return made


def candidates(named: Sequence[str]) -> list[Candidate]:
    """A session for each name."""
    return [
        Candidate(
            identity=identity, name=name, ref=ref_of(identity), address=f"memory:{name}", pid=1000 + number
        )
        for number, name in enumerate(named)
        for identity in [f"00000000-0000-4000-8000-{number:012d}"]
    ]


def probes(count: int) -> list[str]:
    """Names that are asked for, spread over all of them."""
    return random.Random(11).choices(names(count), k=PROBES)


def other_spelling(name: str) -> str:
    """The same name as somebody else may write it."""
    return name.replace("-", "_").title()


def beginning(name: str) -> str:
    """The part of a name that is still nobody else's."""
    return name.rpartition("-")[0]


# ── rows 3 and 3b ────────────────────────────────────────────────────────────────────────────────


def bare_form(name: str) -> str:
    """The least that makes two spellings of a name one."""
    if name.isascii():
        return name.lower().replace("_", "-").replace(".", "-").replace(" ", "-")
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "-".join(plain.replace("_", " ").replace(".", " ").replace("-", " ").split())


class Bare:
    """Three tables over the same names, with no more code than a look-up."""

    def __init__(self, count: int) -> None:
        self.exact = {name: name for name in names(count)}
        self.by_form = {bare_form(name): name for name in self.exact}
        self.forms = sorted(self.by_form)

    def by_spelling(self, name: str) -> str | None:
        """Whoever has this name in some spelling."""
        return self.by_form.get(bare_form(name))

    def by_beginning(self, form: str) -> str | None:
        """The only one whose name begins so."""
        forms = self.forms
        at = bisect_left(forms, form)
        if at == len(forms) or not forms[at].startswith(form):
            return None
        if at + 1 < len(forms) and forms[at + 1].startswith(form):
            return None
        return self.by_form[forms[at]]


def pinned() -> resolve.Pins:
    """The pins of somebody who has written to a few others already."""
    pins = resolve.Pins()
    for candidate in candidates(["pinned-one", "pinned-two", "pinned-three"]):
        pins.made(candidate.name, resolve.Resolved(candidate, form=candidate.name))
    return pins


def resolved_over(among: Index, asked: Sequence[str], times: int) -> float:
    """Seconds for each target through the shipped ladder, called as a session calls it, with pins and a caller."""
    one, pins, received = resolve.resolve, pinned(), dict[str, str]()
    if any(isinstance(one(to, among, pins=pins, caller="sender"), Refusal) for to in asked):
        raise RuntimeError("a name was refused")
    begun = perf_counter()
    for _ in range(times):
        for to in asked:
            one(to, among, received=received, pins=pins, ended=nobody, caller="sender")
    return (perf_counter() - begun) / (times * len(asked))


def nobody(key: str) -> None:
    """No session has ended."""
    del key


def resolving(bench: Bench) -> Generator[Group]:
    """One look-up among 100,000 names, each of three ways against the least that finds it."""
    many, times = names_of(bench), bench.count(10)
    bare, exact, among = Bare(many), probes(many), index(many)
    for title, asked, least, work, limit in (
        ("exact name", exact, "dict", bare.exact.get, 5),
        (
            "another spelling",
            [other_spelling(name) for name in exact],
            "normalise and dict",
            bare.by_spelling,
            3,
        ),
        ("a unique prefix", [beginning(name) for name in exact], "bisect", bare.by_beginning, 3),
    ):
        yield Group(
            title=f"{title}, among {many:,}",
            slices=bench.slices,
            cases=(
                floor(least, partial(timed_over, work, asked, times)),
                ours("resolve", partial(resolved_over, among, asked, times)),
            ),
            goals=(Goal(limit=limit, text=f"≤ {limit} × {least}"),),
        )


def growing(bench: Bench) -> Generator[Group]:
    """The same among 100,000 as among 100, and what one change of the roster costs."""
    many, times = names_of(bench), bench.count(10)
    few = min(FEW, many)
    ways: tuple[tuple[str, Callable[[str], str]], ...] = (
        ("exact name", str),
        ("another spelling", other_spelling),
        ("a unique prefix", beginning),
    )
    for title, spelled in ways:
        asked_few, asked_many = [[spelled(name) for name in probes(count)] for count in (few, many)]
        yield Group(
            title=title,
            slices=bench.slices,
            cases=(
                floor(f"resolve among {few:,}", partial(resolved_over, index(few), asked_few, times)),
                ours(f"resolve among {many:,}", partial(resolved_over, index(many), asked_many, times)),
            ),
            goals=(Goal(limit=2, text=f"among {many:,} ≤ 2 × among {few:,}"),),
        )
    yield changing(many, bench.count(2_000))


def names_of(bench: Bench) -> int:
    """How many names there are; fewer where nothing but running matters."""
    return int(bench.choose(full=MANY, quick=MANY, smoke=MANY / 100))


def changing(many: int, count: int) -> Group:
    """One session comes and goes."""
    added = [f"new-{number:06d}" for number in range(count)]
    new = [
        Candidate(identity=f"new-{number}", name=name, ref="000000", address=f"memory:{name}")
        for number, name in enumerate(added)
    ]
    bare, among = Bare(many), index(many)
    tenth = candidates(names(many)[: many // 10])

    def least() -> float:
        begun = perf_counter()
        for name in added:
            bare.exact[name] = bare.by_form[name] = name
            insort(bare.forms, name)
        for name in added:
            del bare.exact[name], bare.by_form[name]
            del bare.forms[bisect_left(bare.forms, name)]
        return (perf_counter() - begun) / (2 * count)

    def change() -> float:
        begun = perf_counter()
        for candidate in new:
            among.add(candidate)
        for candidate in new:
            among.remove(candidate.identity)
        return (perf_counter() - begun) / (2 * count)

    def rebuild() -> float:
        begun = perf_counter()
        Index(tenth)
        return perf_counter() - begun

    rebuilt = "making a tenth of the index anew"
    return Group(
        title=f"one change among {many:,}",
        cases=(
            floor("two dicts and a sorted list", least),
            ours("Index.add or Index.remove", change),
            beside(rebuilt, rebuild),
        ),
        goals=(Goal(limit=1 / 100, over=rebuilt, text="no rebuild: ≤ 1/100 of one"),),
    )
