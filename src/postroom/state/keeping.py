"""PORT: what a session's store promises, and how long it keeps what.

A store remembers for one session: the messages in its inbox with their state, the ids that were settled, the
pins, whom a `from` meant, what was sent, and the journal, in which every transition of a message is one row
(11.1). `state.store.SqliteStore` keeps that in a file; `state.memory_store.MemoryStore` in memory, and ships,
so that programs and tests run without a disk. One suite of tests holds both to what stands here.

GROUPS. What writes joins the open group; `commit` makes the group durable as one whole, and only then may
anything of it be acknowledged (05.27). `take`, `confirm`, `release` and `prune` commit by themselves,
together with what is open. A reader sees the open group.

FAILURE. Any method may raise `StoreFailed`. Then everything since the last commit is rolled back and
forgotten, the counters too: whoever waits for an acknowledgement out of that group is told `store_failed`.
The store stays usable, and the next call tries the disk again.

A message is handed out under a lease. It is consumed when the lease is confirmed; it goes back to its place,
marked `redelivered`, when the lease is released, or when the store is opened again after the session ended
without either (11.4). A message whose lease was confirmed never comes back.

What a store never does: decide, look at a clock, or let anybody share it: one caller at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from postroom.core.message import Step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroom.core.inbox import Settled, Verdict
    from postroom.core.message import Message, Pin

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

    `batch` bounds the work of one `prune`: rows of each table, a few times as many of the journal.
    """

    consumed_age: int = 30 * DAY
    consumed_count: int = 10_000
    unread_age: int = 30 * DAY
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
"""Rows of the journal that one `prune` removes, for each row of another table: a message has that many."""

GIVEN_BACK = "given back"
LEFT_BEHIND = "given back: the session ended before it was confirmed"
TOO_OLD = "unread for too long"
UNTOLD = "the session ended before an answer came"
"""Why, in the words of the journal."""

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
        """Every message under this id that is still kept, of any sender, in any state, oldest first."""
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

    def add(self, message: Message, *, body: str) -> None:
        """Takes a message in as accepted: it waits, its id is settled, `received` and `accepted` are journaled.

        Args:
            message: as it came; its own `state` does not matter.
            body: a hash of the text, with which a repeat is compared.

        Raises ValueError where this sender's id is settled already: nothing happens twice (11.5). The open
        group is as it was before.
        """
        ...

    def settle(self, sender: str, msg_id: str, verdict: Verdict, body: str, at: int) -> None:
        """Settles an id without taking a message in (03.8). ValueError as for `add`."""
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

    def confirm(self, lease: str, now: int) -> list[str]:
        """The loop has what this lease handed out: consumed. Returns the ids; an unknown lease has none."""
        ...

    def release(self, lease: str, now: int) -> list[str]:
        """Gives back what this lease handed out, marked redelivered. Returns the ids."""
        ...

    def prune(self, now: int) -> list[Message]:
        """Removes what `Retention` no longer keeps: a bounded amount of work, to be done at rest (05.27).

        Returns the unread messages that it removed, for their senders to be told (03.46); each is journaled
        as `removed`.
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
