"""Is it a loop: buckets, repeats and hop chains (03.57–03.68).

`Guard` judges what arrives. The first line that applies answers (03.65):

 1. its chain is longer than `max_chain_length` → `hop-runaway`
 2. this session's own token is in the chain more often than `max_self_hops` → `hop-loop`
 3. it repeats the previous message of its sender within `repeat_seconds` → `duplicate`
 4. the sender's bucket, or that of all senders together, holds no token → `rate-limited`
 5. else it passes, and both buckets give one token; never only one of the two.

`Turns` says which chain a message that leaves carries, and which chain a message without one goes on with.
`Pace` keeps the sender inside the bucket that its receiver will hold it to. Nothing here stores, tells or
waits; a caller has one instance of each and calls it from one thread.

THE COUNT. Every message carries the chain of its cause and the sender's own token, a fresh one its own token
alone. So the n-th delivery along a chain carries n tokens, the 28th is the last, and a session is returned
to at most ten times: whoever began the chain gets ten messages of it, anybody else one and ten returns. Two
sessions alone come to rest after 21 deliveries, three or more after at most 28.

FAN-OUT. A session that passes one message on to several begins several branches, and the 28 hold along each
of them, not for all together. Rest still comes by itself: a message has exactly one cause, its chain is one
longer than its cause's, so no message has more than 27 before it. The sum of all branches is bounded by the
buckets alone.

TIME is an argument, in epoch milliseconds. What counts here is the sum of its forward steps: a clock that is
set back refills nothing and takes nothing, and time runs on from there. A clock that leaps ahead refills.

MEMORY. `max_tracked_senders` senders are known, and as many targets; the least recently heard goes. If it
comes back its bucket is full: while more senders than that write at once, only the bucket of all holds a
single one. Chains written are kept for 256 peers.

WEAK. Where no client reports turns, a turn is guessed from what is taken. An agent that works for longer than
60 s before it answers, or that looks for mail once more in between and finds none, then answers with a fresh
chain, and such a loop is held by the buckets alone. A client that reports turns (`began`, `ended`) mends
this, and so does an answer that names the message it answers, since a caller then knows the cause. Who reports
a beginning must see to the end, also when the client dies.
A sender that strips chains, or that answers under ever new texts, is likewise held by its bucket alone.
"""

from __future__ import annotations

import hmac
import re
import unicodedata
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from postroom.core.settings import Limits

Reason = Literal["hop-runaway", "hop-loop", "duplicate", "rate-limited"]
"""Why the guard drops a message, in the wire's words."""

# ── what two texts are compared by ───────────────────────────────────────────────────────────────

_NO_MATTER: Final = frozenset("Pc Pd Ps Pe Pi Pf Po Zs Zl Zp Cc Cf".split())
"""Unicode's punctuation and white space, and what is invisible: none of it makes a text different (03.60).

Signs such as `<`, `+` or an emoji are not punctuation: `x < 3` and `x > 3` are two texts."""

_ASCII_NO_MATTER: Final = bytes(code for code in range(0x80) if unicodedata.category(chr(code)) in _NO_MATTER)

_BEYOND: Final = (range(0x80, 0x20000), range(0xE0000, 0xE0080))
"""Where Unicode has such characters beyond ASCII: in two planes, and the invisible tags of a third."""


def repeat_of(text: str) -> str:
    """What two texts are compared by: a hash of the text without its white space and punctuation (03.60).

    A text of nothing else is hashed as it is, so that `?` is no repeat of `!`. Never raises. A megabyte takes
    a millisecond; where it is not ASCII, fifty and more.
    """
    written = text.encode("utf-8", "surrogatepass")
    bare = written.translate(None, _ASCII_NO_MATTER)
    if not text.isascii():
        left = bare.decode("utf-8", "surrogatepass")
        bare = _no_matter_beyond()("", left).encode("utf-8", "surrogatepass")
    return sha256(bare or written).hexdigest()


@cache
def _no_matter_beyond() -> Callable[[str, str], str]:
    """Replaces what does not matter beyond ASCII. Made for the first text that needs it: it takes 15 ms.

    The pattern lists what is kept, not what is removed: most characters of a text are found in it at once.
    """
    kept: list[str] = []
    start = 0
    for plane in _BEYOND:
        for code in plane:
            if unicodedata.category(chr(code)) in _NO_MATTER:
                if code > start:
                    kept.append(f"{chr(start)}-{chr(code - 1)}")
                start = code + 1
    kept.append(f"{chr(start)}-\U0010ffff")
    return re.compile(f"[^{''.join(kept)}]+").sub


# ── buckets ──────────────────────────────────────────────────────────────────────────────────────

_TOKEN: Final = 10**9
"""One token, in the unit in which buckets count: whole numbers, so that no rounding gives one away."""

_LIFTED: Final = 10**9
"""Tokens, and tokens in a second, that no sender can use up: higher limits count as this, and stay small numbers."""


class _Forward:
    """A clock that never goes back: it adds up the forward steps of one that may."""

    __slots__ = ("_read", "_time")

    def __init__(self) -> None:
        self._read = self._time = 0

    def at(self, now: int) -> int:
        if now > self._read:
            self._time += now - self._read
        self._read = now
        return self._time


class _Size(NamedTuple):
    """How much a bucket holds, and what it gains in each millisecond."""

    capacity: int
    gain: int


def _size(capacity: int, refill_per_second: float) -> _Size:
    return _Size(
        min(capacity, _LIFTED) * _TOKEN,
        int(min(refill_per_second, _LIFTED) * (_TOKEN // 1000)),
    )


class _Bucket:
    """Tokens that come back with time. It is full when it is made."""

    __slots__ = ("level", "time")

    def __init__(self, size: _Size, time: int) -> None:
        self.level = size.capacity
        self.time = time

    def fill(self, size: _Size, time: int) -> int:
        """Adds what came back until `time`; returns what is in it."""
        level = self.level + (time - self.time) * size.gain
        if level > size.capacity:
            level = size.capacity
        self.level = level
        self.time = time
        return level


class _Sender(_Bucket):
    """What is known of one sender: its bucket, its previous message, what was dropped."""

    __slots__ = ("dropped", "kept", "repeat")

    def __init__(self, size: _Size, time: int) -> None:
        super().__init__(size, time)
        self.repeat: str | None = None
        self.kept = 0
        self.dropped: dict[Reason, int] = {}


class _Target(_Bucket):
    """What is known of one target: the mirror of the bucket there, and what was sent since it was full."""

    __slots__ = ("sent",)

    def __init__(self, size: _Size, time: int) -> None:
        super().__init__(size, time)
        self.sent = 0


_Held = TypeVar("_Held", bound=_Bucket)


class _Buckets(Generic[_Held]):
    """One bucket for each of those that were heard of last."""

    __slots__ = ("_kind", "_most", "size", "table")

    def __init__(self, kind: type[_Held]) -> None:
        self._kind = kind
        self._most = 0
        self.size = _Size(0, 0)
        self.table: OrderedDict[str, _Held] = OrderedDict()

    def of(self, key: str, time: int) -> _Held:
        """The bucket of this key, made if there is none; the least recently heard goes for it (03.63)."""
        held = self.table.get(key)
        if held is not None:
            self.table.move_to_end(key)
            return held
        if len(self.table) >= self._most:
            self.table.popitem(last=False)
        held = self.table[key] = self._kind(self.size, time)
        return held

    def resize(self, limits: Limits, time: int) -> None:
        """Applies other limits: what came back so far counts by the old ones; what is over the new runs off."""
        for held in self.table.values():
            held.fill(self.size, time)
        self.size = _size(limits.bucket_capacity, limits.refill_per_second)
        self._most = max(limits.max_tracked_senders, 1)
        while len(self.table) > self._most:
            self.table.popitem(last=False)


# ── what arrives ─────────────────────────────────────────────────────────────────────────────────


class Throttled(NamedTuple):
    """What the guard dropped of one sender, for people (03.55).

    Attributes:
        sender: its key.
        dropped: reason → how many, since the sender is known.
    """

    sender: str
    dropped: Mapping[Reason, int]


class Guard:
    """The loop guard of one session (03.57). Counts the same whatever the settings say of inbound (03.9).

    Args:
        limits: the bounds; `limits` may be set anew at any time. Counts stay, and no bucket is over the new ones.
    """

    __slots__ = ("_clock", "_limits", "_repeat_ms", "_senders", "_time", "_total", "_total_size")

    def __init__(self, limits: Limits) -> None:
        self._clock = _Forward()
        self._time = 0
        self._senders = _Buckets(_Sender)
        self._total_size = _size(limits.total_capacity, limits.total_refill_per_second)
        self._total = _Bucket(self._total_size, 0)
        self.limits = limits

    @property
    def limits(self) -> Limits:
        """The bounds that apply."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._senders.resize(limits, self._time)
        self._total.fill(self._total_size, self._time)
        self._total_size = _size(limits.total_capacity, limits.total_refill_per_second)
        self._repeat_ms = limits.repeat_seconds * 1000
        self._limits = limits

    def judge(
        self, key: str, repeat: str, chain: Sequence[str], own: str, now: int, *, keep: bool = False
    ) -> Reason | None:
        """Judges one message by the order above, and takes its tokens when it passes (03.65).

        Args:
            key: the sender: its verified identity, else its process; never a name (03.57).
            repeat: `repeat_of` its text.
            chain: its hop chain, oldest first, or the one that it goes on with (`Turns.continued`).
            own: this session's own token; empty while it has none.
            now: epoch milliseconds.
            keep: where it passes it is its sender's previous message at once, as by `kept`.

        Returns None when it passes, else why it is dropped.
        """
        time = self._time = self._clock.at(now)
        sender = self._senders.of(key, time)
        gone = self.around(chain, own) if chain else None
        if gone is not None:
            reason: Reason = gone
        elif repeat == sender.repeat and time - sender.kept < self._repeat_ms:
            reason = "duplicate"
        else:
            total = self._total
            if sender.fill(self._senders.size, time) >= _TOKEN <= total.fill(self._total_size, time):
                sender.level -= _TOKEN
                total.level -= _TOKEN
                if keep:
                    sender.repeat, sender.kept = repeat, time
                return None
            reason = "rate-limited"
        sender.dropped[reason] = sender.dropped.get(reason, 0) + 1
        return reason

    def around(self, chain: Sequence[str], own: str) -> Reason | None:
        """Judges a chain alone: too long, or too often through here (03.61, 03.62). Counts nothing.

        Args:
            chain, own: as in `judge`.
        """
        if len(chain) > self._limits.max_chain_length:
            return "hop-runaway"
        return "hop-loop" if chain.count(own) > self._limits.max_self_hops else None

    def kept(self, key: str, repeat: str, now: int) -> None:
        """Says that a message was accepted, held or refused: it is its sender's previous one (03.60).

        One that found a full inbox, or that was lost, is not said of: it may be sent again at once (03.8).
        """
        self._time = self._clock.at(now)
        sender = self._senders.of(key, self._time)
        sender.repeat, sender.kept = repeat, self._time

    def forget_repeats(self) -> None:
        """Forgets everybody's previous message: the store lost some, and those may come again (03.8)."""
        for sender in self._senders.table.values():
            sender.repeat = None

    def throttled(self) -> tuple[Throttled, ...]:
        """What was dropped of the senders that are known, the one heard last at the end (03.55)."""
        return tuple(
            Throttled(key, dict(sender.dropped))
            for key, sender in self._senders.table.items()
            if sender.dropped
        )


# ── what leaves ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Why a message is not sent: its target would drop it.

    Attributes:
        count: messages that went there just now, at least.
        seconds: until the next one fits.
    """

    count: int
    seconds: int


class Pace:
    """The sender's mirror of its receivers' buckets (03.67). What another limit of theirs drops it cannot know.

    Args:
        limits: the bounds that the receivers are taken to have: one's own. May be set anew at any time.
    """

    __slots__ = ("_clock", "_limits", "_targets", "_time")

    def __init__(self, limits: Limits) -> None:
        self._clock = _Forward()
        self._time = 0
        self._targets = _Buckets(_Target)
        self.limits = limits

    @property
    def limits(self) -> Limits:
        """The bounds that apply."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._targets.resize(limits, self._time)
        self._limits = limits

    def spend(self, target: str, now: int) -> Burst | None:
        """Takes the token for one message (03.67).

        Args:
            target: the identity that it goes to.
            now: epoch milliseconds.

        Returns None when it may go, else the `sender_burst` that it would be.
        """
        time = self._time = self._clock.at(now)
        size = self._targets.size
        known = self._targets.of(target, time)
        level = known.fill(size, time)
        if level < _TOKEN:
            lacking = -((level - size.capacity) // _TOKEN)
            return Burst(
                count=min(known.sent, lacking), seconds=-((level - _TOKEN) // max(size.gain * 1000, 1))
            )
        known.sent = known.sent + 1 if level < size.capacity else 1
        known.level = level - _TOKEN
        return None

    def give_back(self, target: str) -> None:
        """Puts one token back: the message was held (03.67). A target that is not known has all of its own."""
        known = self._targets.table.get(target)
        if known is not None:
            known.level += _TOKEN  # what is over the capacity runs off when it is filled next


# ── hop chains ───────────────────────────────────────────────────────────────────────────────────

TOKEN_DIGITS = 24


def token_of(address: str, key: bytes) -> str:
    """This session's own token in a hop chain (03.66).

    Args:
        address: the session's address, `uds:…`.
        key: random bytes, made when the session starts; 32 of them.

    Returns 24 hex digits, from which nobody without the key can tell the address.
    """
    return hmac.digest(key, address.encode(), "sha256").hex()[:TOKEN_DIGITS]


TURN_MS = 60_000
"""A turn that nobody reports lasts no longer after what was taken (03.66)."""

CONTINUED_MS = 600_000
"""For so long after a message to it, what comes from a peer without chains goes on with that chain (03.66)."""

MAX_WRITTEN = 256
"""Peers whose chains are kept: as many as senders are by default (03.63). The one written to longest ago goes."""


class Turns:
    """Which chain a message of this session carries (03.66). A caller appends its own token to it.

    A turn opens with a take that returned something, and ends with the next take that returned nothing, or 60 s
    after the last that returned something. Where the client reports turns, one that it began ends when it says so
    and not before; what was taken just before it, for which perhaps it began, belongs to it.
    """

    __slots__ = ("_chain", "_clock", "_reported", "_taken", "_written")

    def __init__(self) -> None:
        self._clock = _Forward()
        self._chain: tuple[str, ...] = ()
        self._taken = 0
        self._reported = False
        self._written: OrderedDict[str, tuple[tuple[str, ...], int]] = OrderedDict()

    def took(self, chains: Sequence[tuple[str, ...]], now: int) -> None:
        """A take returned something.

        Args:
            chains: the chains of the peers' messages in it, in the order in which they are read; for one without
                a chain the empty one, or the one that it goes on with. No entry for what no peer caused.
            now: epoch milliseconds.
        """
        time = self._end_if_over(now)
        if chains:
            self._chain = chains[-1]
        self._taken = time

    def took_nothing(self) -> None:
        """A take returned nothing: a turn that nobody reported is over."""
        if not self._reported:
            self._chain = ()

    def began(self, now: int) -> None:
        """The client says that a turn begins. One of which it reported no end is over."""
        if self._reported:
            self._chain = ()
        self._end_if_over(now)
        self._reported = True

    def ended(self) -> None:
        """The client says that the turn is over, or has gone without saying so."""
        self._reported = False
        self._chain = ()

    def chain(self, now: int) -> tuple[str, ...]:
        """The chain of the latest peer's message in this turn; empty where there is none, or no turn."""
        self._end_if_over(now)
        return self._chain

    def wrote(self, identity: str, chain: tuple[str, ...], now: int) -> None:
        """A message went to this peer with this chain, this session's own token included."""
        written = self._written
        written[identity] = chain, self._clock.at(now)
        written.move_to_end(identity)
        if len(written) > MAX_WRITTEN:
            written.popitem(last=False)

    def continued(self, identity: str, now: int) -> tuple[str, ...]:
        """The chain that a message without one goes on with, from a peer that does not announce chains.

        Returns what was written to it last within ten minutes; empty where nothing was.
        """
        time = self._clock.at(now)
        chain, since = self._written.get(identity, ((), time))
        return chain if time - since < CONTINUED_MS else ()

    def _end_if_over(self, now: int) -> int:
        """Ends a turn that nobody reported and whose time has run out; returns the time."""
        time = self._clock.at(now)
        if not self._reported and time - self._taken >= TURN_MS:
            self._chain = ()
        return time
