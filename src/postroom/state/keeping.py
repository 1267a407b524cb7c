"""PORT: what a session's store promises, and how long it keeps what.

A store remembers for one session: the messages in its inbox with their state, the holds, the ids that were
settled, the pins, whom a `from` meant, what was sent, whom a person always accepts, the notices that it owes to
others and those that its own loop has not read, who wants to know when it is idle, and the journal, in which
every transition of a message is one row (11.1). `state.store.SqliteStore` keeps that in a file; `state.memory_store.MemoryStore` in memory, and ships,
so that programs and tests run without a disk. One suite of tests holds both to what stands here.

ARRIVALS. What is accepted, held or refused is taken in by the same work in the same order, and differs in values
only (03.10). What is held or refused is not unread and is never handed out. A hold ends by `release_hold`, which
makes it the newest of what waits, or by `end_hold`, after which its text is gone. A refused message is kept for a
while without its text; its caller gives a hash in the text's place.

GROUPS. What writes joins the open group; `commit` makes the group durable as one whole, and only then may
anything of it be acknowledged (05.27). `take`, `confirm`, `release` and `prune` commit by themselves,
together with what is open. A reader sees the open group.

FAILURE. Any method may raise `StoreFailed`. Then everything since the last commit is rolled back and
forgotten, the counters too: whoever waits for an acknowledgement out of that group is told `store_failed`.
The store stays usable, and the next call tries the disk again.

ON A FULL DISK what makes the store grow fails: whatever comes in, a hold that is let in, a new rule. What ends
something works as a lease does: a hold that is denied or expires, a notice that was told or read, a rule or a
subscription that goes. What is owed for such an end may be in the same group, after it.

A message is handed out under a lease. It is consumed when the lease is confirmed; it goes back to its place,
marked `redelivered`, when the lease is released, or when the store is opened again after the session ended
without either (11.4). A message whose lease was confirmed never comes back.

What a store never does: decide, look at a clock, or let anybody share it: one caller at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, Protocol

from postroom.core.message import TRANSITIONS, Step

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from postroom.core.holds import Hold
    from postroom.core.inbound import Settled, Verdict
    from postroom.core.message import Message, Notice, Pin, Rule, State
    from postroom.core.settings import Cause

DAY = 86_400_000
"""In milliseconds, like every time here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long and how much is kept (05.27, 11.10). Ages are in milliseconds.

    A consumed message is removed when it is older than `consumed_age`, or not among the newest
    `consumed_count` that ever came, or when the file holds more than `file_bytes`: the oldest first. An
    unread one goes by `unread_age` alone (03.46). A settled id is kept for `settled_age` and as long as it is
    among the newest `settled_count` (03.8); `settled_most` bounds a flood: it is more than the loop guard's
    total bucket lets through in seven days at its default (03.59). A sent id is kept like a settled one.

    A hold stays until it ends; there are never many (03.37). A refused message, of which there is no text, goes
    when it is older than `refused_age` or not among the newest `refused_count`: until then `explain` can say why
    it was refused.

    `batch` bounds the work of one `prune`: rows of each table, a few times as many of the journal.
    """

    consumed_age: int = 30 * DAY
    consumed_count: int = 10_000
    unread_age: int = 30 * DAY
    refused_age: int = 7 * DAY
    refused_count: int = 1_000
    settled_age: int = 7 * DAY
    settled_count: int = 10_000
    settled_most: int = 2_500_000
    journal_age: int = 30 * DAY
    journal_count: int = 100_000
    pins: int = 10_000
    shown: int = 10_000
    file_bytes: int = 256 * 1024 * 1024
    batch: int = 200

    def __post_init__(self) -> None:
        """The newest row of a table gives the next one its number, so it always stays."""
        if min(self.settled_count, self.journal_count, self.pins, self.shown, self.batch) < 1:
            raise ValueError("at least one settled id, journal row, pin and shown name is kept")


IN_MEMORY = Retention(consumed_count=1_000, journal_count=10_000)
"""For a store in memory: what a program reads again is what is recent (11.10)."""

BATCH_CHARACTERS = 4_000_000
"""Text that one `prune` removes at most, after the first message: about four of the longest (01.19)."""

STEPS_PER_BATCH = 8
"""Rows of the journal that one `prune` removes, for each row of another table: a message has that many. So many
refused messages go too: they are as small."""

RULES = 1_000
"""Pairs that a person always accepts, at most (11.10): each was made by hand."""

OWED = 1_000
"""Notices owed to senders at most; the oldest goes (11.10): ten for each hold that there can be."""

NOTICES = 256
"""Notices that a loop has not read, at most; the oldest goes (11.10): more than a model reads at once."""

SUBSCRIPTIONS = 1_000
"""Subscriptions on each side at most; the oldest goes. Who may subscribe is decided elsewhere, with a far lower
bound (05.31): this one only keeps a mistake there from filling the disk (11.10)."""

GIVEN_BACK = "given back"
LEFT_BEHIND = "given back: the session ended before it was confirmed"
TOO_OLD = "unread for too long"
UNTOLD = "the session ended before an answer came"
TOO_MANY_OWED = "its sender was not told: too many notices were owed"
TOO_MANY_NOTICES = "a notice was not read in time: too many waited"
"""Why, in the words of the journal."""

NOT_TOLD = "not-told"
NOT_READ = "not-read"
"""The journal's words for a notice that went because of its bound."""

SHOWN_AGAIN = DAY
"""A `from` value that is remembered as it was is written anew after this time: not at every message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One message that this session sent, as far as it is known.

    Attributes:
        to_identity: whom it went to.
        to_name: the name under which it went.
        at: when it was sent, epoch milliseconds.
        state: the last outcome or notice, in the words of chapter 11; empty while there is none.
    """

    to_identity: str
    to_name: str
    at: int
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """One notice that is still to be told to the sender of a message (03.49).

    Attributes:
        row: the store's number, in the order in which they came to be owed; never given out twice.
        about: the id of the message.
        address: where it goes.
        process: `<pid>:<start>` of the process that must be behind that address (05.24).
        line: what is sent, as it goes over the wire.
        at: since when, epoch milliseconds.
    """

    row: int
    about: str
    address: str
    process: str
    line: bytes = field(repr=False)
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Somebody wants to know when a session is idle (05.31).

    Attributes:
        msg_id: the id of the request, which its answer names.
        mine: this session wants to know it of another; else another wants to know it of this one.
        identity, name: the other session.
        reply_path: where an answer goes, as in `Origin.reply_path`; empty for one's own.
        mode: the class that the subscriber stated; empty: none.
        at: epoch milliseconds.
    """

    msg_id: str
    mine: bool
    identity: str
    name: str
    reply_path: str = field(default="", repr=False)
    mode: str = ""
    at: int


class Store(Protocol):
    """What one session remembers. Times are epoch milliseconds.

    Attributes:
        session_name: the name that its journal rows bear when they are read (`Step.where`).
        durable: a commit survives the process; where it does not, there is nothing to wait for.
    """

    session_name: str
    durable: bool

    # Reading

    def settled(self, sender: str, msg_id: str) -> Settled | None:
        """What this sender's id was settled as, the open group included; None: it is new (03.8)."""
        ...

    def was_sent(self, msg_id: str) -> bool:
        """Whether this session sent a message under this id (03.7)."""
        ...

    def sent(self, msg_id: str) -> Sent | None:
        """The message that this session sent under this id, and its last known outcome."""
        ...

    @property
    def unread(self) -> int:
        """Messages accepted and not yet consumed, leased ones included: what the cap counts (03.64)."""
        ...

    @property
    def waiting_count(self) -> int:
        """Messages that a `take` could hand out now."""
        ...

    @property
    def pending(self) -> bool:
        """Whether a group is open, for `commit` to close."""
        ...

    @property
    def problems(self) -> list[str]:
        """Sentences for `status` and `doctor`: what is wrong with this store, and what was done about it."""
        ...

    def waiting(self, limit: int | None = None) -> list[Message]:
        """The messages that wait, in the order in which they will be handed out; takes nothing (10.3)."""
        ...

    def find(self, msg_id: str) -> list[Message]:
        """Every message under this id that is still kept, of any sender, in any state, oldest first.

        Held and refused ones too; of a refused one the text is what its caller gave in its place.
        """
        ...

    def holds(self) -> list[Hold]:
        """What is held, in order of arrival."""
        ...

    def rules(self) -> list[Rule]:
        """Whom a person always accepts, in the order in which that was decided (10.11)."""
        ...

    def owed(self) -> list[Owed]:
        """The notices that are still to be told, in the order in which they came to be owed."""
        ...

    def notices(self) -> list[tuple[int, Notice]]:
        """(number, notice) of what the loop has not read, in order."""
        ...

    def subscriptions(self, mine: bool) -> list[Subscription]:
        """Whom this session wants to hear of, or who wants to hear of it, in order (05.31)."""
        ...

    def steps(self, msg_id: str) -> list[Step]:
        """The journal's rows about one id, oldest first (10.12)."""
        ...

    def log(
        self,
        *,
        text: str | None = None,
        peer: str | None = None,
        since: int | None = None,
        until: int | None = None,
        after: int | None = None,
        limit: int = 200,
    ) -> list[tuple[int, Step]]:
        """Searches the journal (10.13).

        Args:
            text: words in a detail, or in the text or summary of the message while that is kept; letters
                match in either case. Empty or None: any.
            peer: the counterpart's name as it was shown, or its identity; letters of a name match in either
                case. Empty or None: any.
            since: not before this time.
            until: not after this time.
            after: only rows with a higher number, the oldest first: how a reader follows the journal.
                None: the newest rows.
            limit: rows at most.

        Returns (row number, step), oldest first.
        """
        ...

    def pins(self, conversation: str) -> list[tuple[str, Pin]]:
        """(normal form, pin) of one conversation, in the order in which they were made (02.17)."""
        ...

    def known(self, shown: str) -> tuple[str, str] | None:
        """Whom a `from` value that was shown here meant: (identity, its address then); None: unknown (02.8)."""
        ...

    # Writing: joins the open group

    def add(
        self,
        message: Message,
        *,
        body: str,
        verdict: Verdict = "accepted",
        cause: Cause | Literal[""] = "",
        scope: str = "",
        rung: str = "",
        expires_at: int | None = None,
        detail: str = "",
    ) -> int:
        """Takes a message in, accepted, held or refused: its id is settled, `received` and the verdict are journaled.

        Args:
            message: as it came; its own `state` does not matter. Of a refused one, what may be kept: a hash in
                place of the text, no summary (03.10).
            body: a hash of the text, with which a repeat is compared.
            verdict: what was decided.
            cause, scope, rung: of a hold: why, and what decided; see `core.holds.Hold`.
            expires_at: of a hold: when it ends by itself; None: never.
            detail: words for the verdict's row of the journal; never message text.

        Returns the number that it was given, higher than every one before.

        Raises ValueError where this sender's id is settled already: nothing happens twice (11.5). The open
        group is as it was before.
        """
        ...

    def release_hold(self, row: int, at: int, *, approved_by: str | None = None, detail: str = "") -> Message:
        """Lets a held message in: it waits behind everything that waits in its tier, and is unread (03.41, 03.45).

        Args:
            row: the hold's number. The message gets the next one: a released hold comes when it is released.
            at: the time, from which it counts as kept.
            approved_by: `user` where a person decided it.
            detail: words for the journal.

        Returns the message as it waits, marked as held before; from now on its id counts as accepted.
        ValueError where there is no such hold.
        """
        ...

    def end_hold(self, row: int, state: State, at: int, detail: str = "") -> None:
        """Ends a hold without letting it in: its text is gone, its id stays settled as held (03.42).

        Args:
            row: the hold's number.
            state: `denied`, `expired` or `evicted`.
            at: the time.
            detail: words for the journal.

        ValueError where there is no such hold, or for another state (11.1).
        """
        ...

    def change_hold(self, row: int, cause: Cause, scope: str, rung: str, expires_at: int | None) -> None:
        """Writes down why a message is held now, and until when (03.40, 03.43). ValueError as for `end_hold`."""
        ...

    def add_rule(self, identity: str, name: str, at: int) -> Rule:
        """Always accepts a sender from now on (03.48). One that is accepted already keeps its rule as it is.

        Returns the rule. ValueError where there are `RULES` of them: none goes by itself, since nobody would know.
        """
        ...

    def drop_rule(self, rule_id: str) -> bool:
        """Revokes a rule; whether there was one."""
        ...

    def owe(self, about: str, address: str, process: str, line: bytes, at: int) -> int:
        """Owes the sender of a message a notice until `paid`; see `Owed` for the arguments.

        Returns its number. Beyond `OWED` the oldest goes, and the journal says so.
        """
        ...

    def paid(self, rows: Sequence[int]) -> None:
        """These notices are owed no more: they were told, or cannot be told. An unknown number changes nothing."""
        ...

    def add_notice(self, notice: Notice) -> int:
        """Keeps a notice until the loop has read it. Beyond `NOTICES` the oldest goes, and the journal says so.

        Returns its number.
        """
        ...

    def drop_notices(self, rows: Sequence[int]) -> None:
        """The loop has read these. An unknown number changes nothing."""
        ...

    def subscribe(
        self,
        msg_id: str,
        *,
        mine: bool,
        identity: str,
        name: str,
        at: int,
        reply_path: str = "",
        mode: str = "",
    ) -> None:
        """Remembers a subscription; see `Subscription`. The same id of the same session is renewed, and comes last."""
        ...

    def unsubscribe(self, msg_id: str, *, mine: bool, identity: str | None = None) -> bool:
        """Forgets the subscription of this id, of this session alone or of any; whether there was one."""
        ...

    def note(self, msg_id: str, state: str, at: int, detail: str = "", peer: str = "") -> None:
        """Writes one row of the journal: reasons and counterparts in words, never message text (11.1)."""
        ...

    def pin(self, conversation: str, normal: str, pin: Pin, at: int) -> None:
        """Makes or moves a pin; a moved one becomes the newest (02.17, 02.18)."""
        ...

    def forget_pin(self, conversation: str, normal: str) -> None:
        """Removes a pin, if there is one."""
        ...

    def remember(self, shown: str, identity: str, address: str, at: int) -> None:
        """Records whom a `from` value means that is shown here (02.8). Cheap where nothing is new."""
        ...

    def sending(self, msg_id: str, to_identity: str, to_name: str, at: int) -> None:
        """Records that a message is about to leave. A repeat under the same id changes nothing (05.23)."""
        ...

    def outcome(self, msg_id: str, state: str, at: int, detail: str = "") -> None:
        """Records and journals what became of a sent message (11.2)."""
        ...

    def answered(self, msg_id: str, at: int) -> bool:
        """Marks what was consumed under this id as answered, and journals it (11.1).

        Returns whether there was such a message; one in any other state stays as it is.
        """
        ...

    def commit(self) -> None:
        """Makes the open group durable, synced; nothing happens without one. Raises StoreFailed (05.27)."""
        ...

    # Each of these commits by itself, together with what is open

    def take(
        self, lease: str, now: int, *, later: bool = True, limit: int | None = None, only: str | None = None
    ) -> list[Message]:
        """Hands out what waits, under a lease (11.1): `next` before `later`, and each in order of arrival.

        Args:
            lease: the id by which it is confirmed or released.
            now: the time.
            later: whether messages of priority `later` are wanted too.
            limit: messages at most.
            only: nothing but what came under this id.

        Returns them as leased; a message is handed to one taker only. Nothing waits → an empty list and
        nothing is written.
        """
        ...

    def confirm(self, lease: str, now: int, *, door: str = "") -> list[str]:
        """The loop has what this lease handed out: consumed. Returns the ids; an unknown lease has none.

        Args:
            lease: from `take`.
            now: the time.
            door: which of its client's doors has it instead: passed on, which is all that such a door says (09.1).
        """
        ...

    def release(self, lease: str, now: int) -> list[str]:
        """Gives back what this lease handed out, marked redelivered. Returns the ids."""
        ...

    def move_passed(self, msg_id: str, state: State, at: int, detail: str = "") -> list[Message]:
        """Writes down what became of what was passed on under this id (09.1, 11.1).

        Args:
            msg_id: whose; messages of several senders may have it.
            state: `consumed`: the loop has it; `accepted`: it waits again, marked redelivered; `denied`: it is gone.
            at: the time.
            detail: words for the journal.

        Returns the messages, as they were passed on; none where nothing was passed on under this id.
        """
        ...

    def prune(self, now: int) -> list[Message]:
        """Removes what `Retention` no longer keeps: a bounded amount of work, to be done at rest (05.27).

        Returns the unread messages that it removed, for their senders to be told (03.46); each is journaled
        as `removed`. Holds stay, and what is refused goes without a word.
        """
        ...

    def close(self) -> None:
        """Forgets the open group and lets go of everything. Never raises; may be repeated.

        It commits nothing: it may run in a signal handler, between two writes of one message (11.4).
        """
        ...


def step_of(where: str, msg_id: str, at: int, state: str, detail: str, peer: str) -> Step:
    """A row of a journal as a record; one that came from somebody and gives no reason names them."""
    if state == "received" and peer and not detail:
        detail = f"from {peer}"
    return Step(msg_id=msg_id, at=at, where=where, state=state, detail=detail)


def worn(
    consumed: Iterable[tuple[int, int, int]], keep: Retention, *, newest: int, now: int, heavy: bool
) -> list[int]:
    """Which consumed messages are no longer kept; a bounded amount of text (05.27).

    Args:
        consumed: (row, when it was received, characters) of at most `keep.batch` messages, the oldest first.
        keep: the bounds.
        newest: the row of the newest message that ever came.
        now: the time.
        heavy: whether the store holds more than `keep.file_bytes`.
    """
    rows: list[int] = []
    characters = 0
    for row, at, size in consumed:
        kept = not heavy and at >= now - keep.consumed_age and row > newest - keep.consumed_count
        if kept or (rows and characters + size > BATCH_CHARACTERS):
            break
        rows.append(row)
        characters += size
    return rows


def refused_worn(oldest: Sequence[tuple[int, int]], count: int, keep: Retention, now: int) -> list[int]:
    """Which refused messages are no longer kept.

    Args:
        oldest: (row, when it was received) of the oldest of them.
        count: how many there are.
        keep: the bounds.
        now: the time.
    """
    surplus = count - keep.refused_count
    return [row for place, (row, at) in enumerate(oldest) if place < surplus or at < now - keep.refused_age]


def rule_id(identity: str, taken: Container[str]) -> str:
    """The id of the rule for a sender: from its identity, so that an id does not come to mean somebody else.

    Eight hex digits, more only where those are taken.
    """
    digest = sha256(identity.encode()).hexdigest()
    return next(digest[:length] for length in range(8, len(digest) + 1) if digest[:length] not in taken)


def ending(state: State) -> State:
    """Returns a state in which a hold may end without being let in; ValueError for any other (11.1)."""
    if state == "accepted" or state not in TRANSITIONS["held"]:
        raise ValueError(f"a held message cannot become {state}")
    return state
