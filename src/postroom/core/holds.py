"""What is held: the queue of messages that wait for a decision, when each ends by itself, and who is told what.

`HoldQueue` keeps the holds of one session in the order in which they came. `deadline` says when one ends by itself.
`WHO_IS_TOLD` is the law of notices: for everything that can become of a message, what its sender is told, in which
words, and what is seen here. The table in the documentation is made from it (`told_table`).

A hold ends in one of six ways: a person lets it in or denies it, a setting or a mode that changes lets it in or refuses
it, its deadline passes, it has to make room for newer ones, or its session ends. Being killed ends none: the store has
them all, with their deadlines (03.47).

THE DEADLINE OF A HOLD, first line that applies:
 1. held by a setting, valid or not: none (03.38);
 2. `dialogExpiry` is `never`: none;
 3. a session of kind `bg` that nobody has attached to: none so far. At the attach a full period begins (03.40);
 4. else: one period after it came, whoever is there to be asked (03.39).
A deadline that runs goes on running, also where the cause changes to another that expires. Where `dialogExpiry`
itself changes, it moves as if the new period had applied from its beginning.

It performs nothing: it neither stores nor tells nor delivers, has no clock, and asks nobody. What it hands back is to be
done by its caller, the store first.

How it fails: `add` raises ValueError for a row that is held already, since a hold must not be there twice. Whatever
`rejudge` is given to decide with may raise; then the queue is as it was.

What is weak: a queue that was not told under which `dialogExpiry` its deadlines were made cannot move them when that
changes for the first time. And `due` hands out what has expired only when it is asked: a hold may be let in after its
deadline if nobody looked in between.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from postroom.core.refusals import MIN_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from postroom.core.inbound import Judgement
    from postroom.core.message import Message, State
    from postroom.core.settings import Cause

CAPACITY: Final = 100
"""Holds of one session, apart from what waits to be read; past it the oldest goes (03.37)."""


NEVER_EXPIRE: Final[frozenset[Cause]] = frozenset(
    ("explicit-setting", "managed-setting", "repo-setting", "invalid-setting")
)
"""Causes that a setting made: such a hold waits until somebody decides (03.18, 03.38)."""

STANDING_KIND: Final = "bg"
"""The kind of session in which deadlines stand still until a person attaches (03.40)."""

UNSAID: Final = 0
"""In the place of a period of `dialogExpiry` that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One message that is held.

    Attributes:
        row: the store's number of it; numbers grow in the order of arrival.
        message: what is held.
        cause: why (03.18).
        scope: the scope of the setting that decided; `default` where none did.
        rung: the rung of the ladder that decided.
        expires_at: epoch milliseconds at which it ends by itself; None: never, or not so far.
    """

    row: int
    message: Message
    cause: Cause
    scope: str
    rung: str
    expires_at: int | None


# ── who is told what ─────────────────────────────────────────────────────────────────────────────

Only = Literal["", "unacknowledged", "refusalNotice", "readReceipts"]

ONLY: Final[Mapping[Only, str]] = MappingProxyType(
    {
        "": "",
        "unacknowledged": "only where no acknowledgement was asked for: else that says it",
        "refusalNotice": "only where `refusalNotice` is `tell`",
        "readReceipts": "only where `readReceipts` is on, and a session of ours",
    }
)
"""On what it depends that a notice is sent: its word in `Told.only` → a phrase for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What becomes known when something becomes of a message: one row of `WHO_IS_TOLD`.

    Attributes:
        happens: what happens, as a phrase.
        sender: the status of the notice to the sender, in the words of 05.24; empty: it is told nothing beyond
            the acknowledgement. `refused` is written differently on the wire, see `notices.status_line`.
        detail: the `status_detail` beside it; empty: none.
        words: the `reason` beside it. Empty where the row cannot know it: the words of a hold name its cause
            and its end, those of a drop what the loop guard found.
        only: on what it depends that the notice is sent at all, a key of `ONLY`.
        receiver: the state in which the message is here afterwards.
        journal: what the journal here says of it, where that may say more than the sender learns; else empty.
        here: what is seen here, as a phrase.
        rule: where the specification has it.
    """

    happens: str
    sender: str = ""
    detail: str = ""
    words: str = ""
    only: Only = ""
    receiver: State
    journal: str = ""
    here: str
    rule: str


_DECLINED: Final = "It was declined there."
_GONE: Final = "gone, in the journal"

WHO_IS_TOLD: Final[Mapping[str, Told]] = MappingProxyType(
    {
        "accepted": Told(
            happens="accepted on arrival",
            receiver="accepted",
            here="queued",
            rule="03.50",
        ),
        "repeated": Told(
            happens="the same id again from the same sender",
            receiver="duplicate",
            here="nothing happens twice; in the journal",
            rule="03.8",
        ),
        "held": Told(
            happens="held",
            sender="held",
            receiver="held",
            here="a person is asked, with sender, classes and a preview",
            rule="03.51",
        ),
        "approved": Told(
            happens="held, then let in by a person",
            sender="delivered",
            words="A person there let it in.",
            receiver="accepted",
            journal="a person let it in",
            here="queued; it says that it was held and who approved it",
            rule="03.41",
        ),
        "released": Told(
            happens="held, then let in because a setting or the mode changed",
            sender="delivered",
            words="It was let in there.",
            receiver="accepted",
            journal="let in by a change of settings, mode or rules",
            here="queued, in order of arrival; a notice says so",
            rule="03.52",
        ),
        "denied": Told(
            happens="held, then denied or dismissed by a person",
            sender="denied",
            words=_DECLINED,
            receiver="denied",
            journal="a person denied it",
            here=_GONE,
            rule="03.53",
        ),
        # The same words as for a person's no: a refusal that is not told must not show here either (11.3).
        "refused-since": Told(
            happens="held, then `crossSessionInbound` became `refuse`",
            sender="denied",
            words=_DECLINED,
            receiver="denied",
            journal="a setting refuses what comes in now",
            here=_GONE,
            rule="03.44",
        ),
        "expired": Told(
            happens="held past its deadline",
            sender="expired",
            detail="deadline",
            words="Nobody there decided about it before its deadline.",
            receiver="expired",
            journal="nobody decided before the deadline",
            here=_GONE,
            rule="03.38",
        ),
        "evicted": Told(
            happens=f"held as the oldest, when more than {CAPACITY} are held",
            sender="expired",
            detail="evicted",
            words="Too many messages were held there, and the oldest one made room.",
            receiver="evicted",
            journal="too many were held: the oldest made room",
            here=_GONE,
            rule="03.37",
        ),
        "session-ended": Told(
            happens="held when the session ends",
            sender="expired",
            detail="session-ended",
            words="That session ended before anybody decided about it.",
            receiver="expired",
            journal="the session ended before anybody decided",
            here=_GONE,
            rule="03.46",
        ),
        "interrupted": Told(
            happens="held when the session is killed or the power fails",
            receiver="held",
            here="after a resume still held, with its old deadline; if that is past, `expired` then",
            rule="03.47",
        ),
        "unread": Told(
            happens="accepted, and removed because nobody read it for too long",
            sender="expired",
            detail="unread",
            words="It was in the inbox there, but nobody read it for as long as mail is kept.",
            receiver="removed",
            journal="unread for too long",
            here=_GONE,
            rule="03.46",
        ),
        "consumed": Told(
            happens="read by the session's loop",
            sender="read",
            words="It was taken from the inbox there.",
            only="readReceipts",
            receiver="consumed",
            here="read",
            rule="11.3",
        ),
        "refused": Told(
            happens="refused on arrival",
            sender="refused",
            words="That session takes no messages from other sessions.",
            only="refusalNotice",
            receiver="refused",
            here="nothing; counted in the journal",
            rule="03.54",
        ),
        "dropped": Told(
            happens="dropped by the loop guard",
            sender="dropped",
            only="unacknowledged",
            receiver="throttled",
            here="nothing; in the journal, with the reason",
            rule="03.55",
        ),
        "full": Told(
            happens="no room in the inbox",
            sender="dropped",
            only="unacknowledged",
            receiver="full",
            here="nothing; in the journal",
            rule="03.56",
        ),
    }
)
"""What happens to a message → who is told what (03.41 to 03.56).

A sender is told only along a reply path that passes the checks of 05.24. A notice is no message and has no row: it is
never judged, held or answered, so none can be about another (03.49)."""

TOLD_HEAD: Final = ("what happens", "the sender is told", "in these words", "here", "rule")
"""The head of `told_table`."""


def told_table() -> list[tuple[str, str, str, str, str]]:
    """Returns `WHO_IS_TOLD` as rows of plain text under `TOLD_HEAD`, for the documentation."""
    return [(row.happens, _notice_of(row), row.words, row.here, row.rule) for row in WHO_IS_TOLD.values()]


def _notice_of(row: Told) -> str:
    """What the second column says."""
    if not row.sender:
        return "nothing"
    detail = f" ({row.detail})" if row.detail else ""
    return f"`{row.sender}`{detail}{', ' if row.only else ''}{ONLY[row.only]}"


# ── the queue ────────────────────────────────────────────────────────────────────────────────────


def deadline(cause: Cause, since: int, expiry: int | None, *, kind: str, attached: bool) -> int | None:
    """When a hold ends by itself (03.38 to 03.40).

    Args:
        cause: why it is held.
        since: epoch milliseconds at which its period begins: when it came, or when somebody attached.
        expiry: milliseconds of `dialogExpiry`; None: never.
        kind: the kind of the session, as its record says.
        attached: whether the client has reported that a person is attached.

    Returns epoch milliseconds, or None where nothing ends it.
    """
    if cause in NEVER_EXPIRE or expiry is None or (kind == STANDING_KIND and not attached):
        return None
    return since + expiry


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What judging the holds again came to. Each in order of arrival.

    Attributes:
        released: no longer held: to be let in.
        dropped: no longer held: refused now.
        changed: still held, with another cause, scope, rung or deadline than before.
    """

    released: tuple[Hold, ...]
    dropped: tuple[Hold, ...]
    changed: tuple[Hold, ...]


class HoldQueue:
    """The holds of one session, in order of arrival.

    Args:
        holds: those that the store has, in any order; more than the capacity are kept until `add` is called.
        expiry: milliseconds of the `dialogExpiry` that applies now, None for never; `UNSAID`: it is learned
            with the first `rejudge` or `attached`, and what runs by then is not moved.
        capacity: holds at most.
    """

    __slots__ = ("_capacity", "_expiry", "_holds")

    def __init__(
        self, holds: Iterable[Hold] = (), *, expiry: int | None = UNSAID, capacity: int = CAPACITY
    ) -> None:
        self._holds = sorted(holds, key=_row)
        self._expiry = expiry
        self._capacity = capacity

    def __len__(self) -> int:
        return len(self._holds)

    def __iter__(self) -> Iterator[Hold]:
        """Every hold, oldest first, as they are when the iteration begins."""
        return iter(tuple(self._holds))

    def add(self, hold: Hold) -> tuple[Hold, ...]:
        """Takes one in; returns those that had to make room, the oldest first (03.37).

        Raises ValueError where its row is held already.
        """
        if any(held.row == hold.row for held in self._holds):
            raise ValueError(f"row {hold.row} is held already")
        insort(self._holds, hold, key=_row)
        surplus = max(0, len(self._holds) - self._capacity)
        evicted = tuple(self._holds[:surplus])
        del self._holds[:surplus]
        return evicted

    def remove(self, row: int) -> Hold | None:
        """Takes one out; returns it, or None where it is not held: it cannot be let in or denied twice."""
        found = next((hold for hold in self._holds if hold.row == row), None)
        if found is not None:
            self._holds.remove(found)
        return found

    def find(self, prefix: str) -> list[Hold]:
        """The holds that an id stands for: those of this very id, else those whose id begins so (10.5).

        Args:
            prefix: an id, or its first `MIN_PREFIX` characters or more. Senders choose their ids, so two may have
                sent the same one: then `ID#ROW` says which.

        Returns them oldest first; more than one where it does not say which is meant.
        """
        exact = [hold for hold in self._holds if prefix in (hold.message.msg_id, numbered(hold))]
        if exact or len(prefix) < MIN_PREFIX:
            return exact
        return [hold for hold in self._holds if hold.message.msg_id.startswith(prefix)]

    def due(self, now: int) -> tuple[Hold, ...]:
        """The holds whose deadline has come, oldest first; they stay until they are removed (03.38)."""
        return tuple(hold for hold in self._holds if hold.expires_at is not None and hold.expires_at <= now)

    def next_deadline(self) -> int | None:
        """When the next hold ends by itself; None: none does."""
        return min((hold.expires_at for hold in self._holds if hold.expires_at is not None), default=None)

    def rejudge(
        self,
        decide: Callable[[Hold], Judgement],
        now: int,
        expiry: int | None,
        *,
        kind: str,
        attached: bool,
    ) -> Changes:
        """Runs the ladder again over every hold, oldest first (03.43 to 03.45).

        What is accepted or refused now is taken out of the queue; what stays held has its new cause and deadline.
        Neither the cap on unread mail nor the loop guard is asked.

        Args:
            decide: judges one hold by what applies now, such as `inbound.decide`.
            now: epoch milliseconds.
            expiry, kind, attached: as for `deadline`.

        Raises what `decide` raises; then nothing has changed.
        """
        released: list[Hold] = []
        dropped: list[Hold] = []
        changed: list[Hold] = []
        kept: list[Hold] = []
        for hold in self._holds:
            judgement = decide(hold)
            if judgement.outcome == "accepted":
                released.append(hold)
            elif judgement.outcome == "refused":
                dropped.append(hold)
            else:
                cause = judgement.cause or hold.cause
                fresh = deadline(cause, now, expiry, kind=kind, attached=attached)
                again = replace(
                    hold,
                    cause=cause,
                    scope=judgement.scope,
                    rung=judgement.rung,
                    expires_at=self._moved(hold, cause, now, expiry, fresh),
                )
                kept.append(again)
                if again != hold:
                    changed.append(again)
        self._holds = kept
        self._expiry = expiry
        return Changes(released=tuple(released), dropped=tuple(dropped), changed=tuple(changed))

    def attached(self, now: int, expiry: int | None) -> tuple[Hold, ...]:
        """A person has attached to a `bg` session: what stood still runs from now on, for a full period (03.40).

        Args:
            now: epoch milliseconds.
            expiry: milliseconds of `dialogExpiry`; None: never.

        Returns the holds that have a deadline now and had none. One that runs already is not begun anew.
        """
        changed: list[Hold] = []
        for at, hold in enumerate(self._holds):
            fresh = deadline(hold.cause, now, expiry, kind=STANDING_KIND, attached=True)
            if hold.expires_at is None and fresh is not None:
                self._holds[at] = replace(hold, expires_at=fresh)
                changed.append(self._holds[at])
        self._expiry = expiry if self._expiry == UNSAID else self._expiry
        return tuple(changed)

    def _moved(self, hold: Hold, cause: Cause, now: int, expiry: int | None, fresh: int | None) -> int | None:
        """The deadline of a hold that goes on; `fresh` is the one that a period from now on would give it."""
        if hold.expires_at is None:
            return fresh
        if cause in NEVER_EXPIRE:
            return None
        if hold.expires_at <= now:
            return hold.expires_at  # it is over: a longer period comes too late (03.47)
        if expiry is None:
            return None
        # It runs, so there was a period; where nobody has said which, it goes on as it is.
        return hold.expires_at + (expiry - self._expiry if self._expiry else 0)


def numbered(hold: Hold) -> str:
    """The id of a held message with the store's number: what tells it from one of another sender with the same id."""
    return f"{hold.message.msg_id}#{hold.row}"


def _row(hold: Hold) -> int:
    return hold.row
