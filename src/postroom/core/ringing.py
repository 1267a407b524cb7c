"""By which way what waits is brought to a client's model: a ladder over one look at the session (09.1).

A *door* reaches the model without being asked: the client's own inbox, queue or server. Somebody who waits, and the
client's hooks, come to the mail by themselves and can say that the model has it, which a door cannot: they come first.

It decides, and rings nothing: time, the session's state and the doors that a client has are arguments. It does not
know which door works at the moment; it answers with those that are worth a try, best first.

How it fails: it does not; where nothing fits, the mail waits and can be read (09.6).

Weak: a client that reports the beginning of a turn and dies in it without a word is taken for busy, until the mail
has waited for PATIENCE_MS.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "BEGUN",
    "FIRST_REST_MS",
    "LONGEST_REST_MS",
    "MOST_RINGS",
    "PATIENCE_MS",
    "WAITER_MS",
    "Advice",
    "Scene",
    "Way",
    "advise",
    "fits",
    "in_doubt",
    "portion",
    "rest_ms",
]

PATIENCE_MS = 120_000
"""How long mail waits for the hooks of a running turn. A turn that was broken off ends without a word in some clients,
and a tool may run for an hour; a door then brings it, and says less about it."""

WAITER_MS = 1_000
"""After so long it is looked again whether somebody who waits has taken what came: within one step, as a rule."""

FIRST_REST_MS = 1_000
LONGEST_REST_MS = 300_000
"""How long a door that failed is left alone: twice as long each time, at most five minutes (12.21)."""

MOST_RINGS = 3
"""A client that drops a message so often has it no more: it is then read by whoever asks for it."""

BEGUN = "begun"
"""The journal's word for a ring whose end is not written down yet; where it stays the last word, nobody knows it."""

Turn = Literal["idle", "busy", "unknown"]


class Way(Protocol):
    """What the ladder asks of a door; `client.DoorFact` is one."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def wakes(self) -> bool:
        """Whether it reaches an idle session."""
        ...

    @property
    def during_turn(self) -> Literal["yes", "after", "no"]:
        """Whether what it brings in a turn is read in it, after it, or not at all."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One look at a session.

    Attributes:
        waiting: messages and notices that a door may bring.
        waited_ms: how long the oldest of them has waited.
        waiters: how many readers wait for something to come, right now.
        turn: what the client reported last; `unknown` where it reports nothing.
        hooks: the client reports its turns by hooks, which take mail.
        ways: the doors that this client has, best first.
        resting: door → when it may be tried again, for those that failed.
        now: epoch milliseconds.
    """

    waiting: int
    waited_ms: int = 0
    waiters: int = 0
    turn: Turn = "unknown"
    hooks: bool = False
    ways: Sequence[Way] = ()
    resting: Mapping[str, int] = field(default_factory=dict[str, int])
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What is best done now.

    Attributes:
        rung: the word of the rung that answered.
        ways: the doors to try, best first; none: it is left to somebody else.
        again: when to look again, epoch milliseconds; None: when something changes.
    """

    rung: Literal["nothing", "waiter", "hook", "no-door", "resting", "ring"]
    ways: tuple[str, ...] = ()
    again: int | None = None


def _nothing(scene: Scene) -> Advice | None:
    return None if scene.waiting else Advice(rung="nothing")


def _waiter(scene: Scene) -> Advice | None:
    return Advice(rung="waiter", again=scene.now + WAITER_MS) if scene.waiters else None


def _hook(scene: Scene) -> Advice | None:
    if scene.turn == "busy" and scene.hooks and scene.waited_ms < PATIENCE_MS:
        return Advice(rung="hook", again=scene.now + PATIENCE_MS - scene.waited_ms)
    return None


def _no_door(scene: Scene) -> Advice | None:
    return None if any(fits(way, scene.turn) for way in scene.ways) else Advice(rung="no-door")


def _resting(scene: Scene) -> Advice | None:
    ends = [scene.resting.get(way.name, scene.now) for way in scene.ways if fits(way, scene.turn)]
    return Advice(rung="resting", again=min(ends)) if min(ends) > scene.now else None


def _ring(scene: Scene) -> Advice | None:
    return Advice(
        rung="ring",
        ways=tuple(
            way.name
            for way in scene.ways
            if fits(way, scene.turn) and scene.resting.get(way.name, scene.now) <= scene.now
        ),
    )


LADDER: tuple[Callable[[Scene], Advice | None], ...] = (_nothing, _waiter, _hook, _no_door, _resting, _ring)


def advise(scene: Scene) -> Advice:
    """Says by which way what waits is brought (09.1). The first rung that answers wins:

    1. nothing waits → nothing is done, and nothing looks again.
    2. somebody waits for mail → it is theirs.
    3. a turn runs, hooks report it, and the mail is not too old → it is the next hook's.
    4. no door fits: none wakes an idle session, or none brings anything in a turn → it waits to be asked for.
    5. each door that fits has failed and rests → it waits for the first of them.
    6. the doors that fit and do not rest, best first.

    A session of which no turn was ever reported may be in one or not: a door has to fit both.
    """
    return next(advice for rung in LADDER if (advice := rung(scene)) is not None)


def fits(way: Way, turn: Turn) -> bool:
    """Whether a door may reach the model in this state of its turn."""
    if turn == "idle":
        return way.wakes
    return way.during_turn != "no" and (turn == "busy" or way.wakes)


def rest_ms(failures: int) -> int:
    """How long a door is left alone after so many failures in a row, one or more, in milliseconds."""
    return min(FIRST_REST_MS << min(failures - 1, 30), LONGEST_REST_MS)


def portion(sizes: Iterable[int], room: int, most: int) -> int:
    """How many messages one ring carries: those in front that fit together, and always the first.

    Args:
        sizes: the size of each, in their order.
        room: what fits into one ring, in the same unit; a single message that is larger goes alone.
        most: at most so many.
    """
    count = total = 0
    for size in sizes:
        total += size
        if count and (total > room or count >= most):
            break
        count += 1
    return count


def in_doubt(rings: Sequence[str]) -> bool:
    """Whether a message may have gone through a door of which nothing more is known: it is not rung for again (09.16).

    Args:
        rings: what the journal has of its rings, each `<door>: <outcome>, <detail>`, oldest first.
    """
    words = [ring.partition(": ")[2].partition(",")[0] for ring in rings]
    return "unknown" in words or words[-1:] == [BEGUN]
