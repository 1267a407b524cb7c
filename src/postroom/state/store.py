"""The session's store in a file: SQLite, written by the session's process alone.

It keeps what `state.keeping` promises in `store.db` in the session's own folder. Acknowledged means
committed and synced: a write-ahead log with `synchronous=FULL`, held under SQLite's exclusive lock, so that
no shared memory file exists that a full disk could break (05.27). Where the folder lies on a network file
system a rollback journal takes the log's place, and `problems` says so.

What is accepted, held or refused is written by the same statements in the same order (03.10). Here are messages,
leases, pins, what was sent, and retention; `state.store_holds` has holds and notices, `state.writer` the file.

How it fails. Every error of SQLite becomes `StoreFailed` after a rollback, and what is counted here is put
back to what the file says. A full disk refuses arrivals and lets what was accepted be handed out and
confirmed: `state.store_files` has the reserve that this takes. A corrupt file, found at the opening or
later, is set aside under a dated name and a new one begun; the unread mail in it is then for a person to
look at. A store of a newer version is left alone: `StoreTooNew`.

After a crash: what was committed is there; what was leased waits again, marked as redelivered; what was
confirmed stays away (11.4). A commit that failed may still be found after a crash that follows at once, if
the disk took the bytes and reported an error: the sender was told `store_failed` and may send again, which
is then a repeat.

What is weak: the disk's word is taken for a sync; a search for words reads every text that is kept; `steps`
reads the whole journal, some ten milliseconds at its limit. A long text that is refused writes fewer pages than
one that is accepted, since it is not kept.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Literal

from postroom.core.inbound import Settled
from postroom.core.message import Pin
from postroom.errors import StoreFailed
from postroom.state import schema
from postroom.state.journal import Reader as Reader
from postroom.state.keeping import (
    GIVEN_BACK,
    LEFT_BEHIND,
    SHOWN_AGAIN,
    STEPS_PER_BATCH,
    TOO_OLD,
    UNTOLD,
    Retention,
    Sent,
    refused_worn,
    worn,
)
from postroom.state.keeping import Store as Store
from postroom.state.schema import message_row
from postroom.state.store_files import file_system_of, is_network
from postroom.state.store_holds import Holds
from postroom.state.writer import CHARACTERS_PER_PAGE, WRITE_PAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroom.core.inbound import Verdict
    from postroom.core.message import Message, State
    from postroom.core.settings import Cause

FIRST_PAGES = 8
MESSAGE_PAGES = 4
"""Pages of the log that the first message of a group may take, its text apart (five tables, one index, a split
now and then), and each further one, which shares most of them."""

TIERS: dict[Verdict, int] = {"held": schema.HELD, "refused": schema.REFUSED}
"""Where a message lies that does not wait; what is accepted waits in the tier of its priority."""

VACUUM_PAGES = 64
"""Free pages that one `prune` gives back to the disk; and only where four times as many are free."""


class SqliteStore(Holds):
    """What one session remembers, in its own folder; made by `SqliteStore.open`. See `keeping.Store`."""

    durable = True

    def __init__(self, folder: str, session_name: str, now: int, retention: Retention, log: bool) -> None:
        self._retention = retention
        self._leases: dict[str, list[int]] = {}
        super().__init__(folder, session_name, now, log=log)

    @classmethod
    def open(
        cls,
        folder: str,
        *,
        now: int,
        session_name: str = "",
        retention: Retention | None = None,
        file_system: Callable[[str], str] = file_system_of,
    ) -> SqliteStore:
        """Opens a session's store, or begins one (05.27).

        Args:
            folder: the session's own folder; it exists and was checked.
            now: epoch milliseconds.
            session_name: what `Step.where` says; set it anew when the session is named or renamed.
            retention: how long and how much is kept.
            file_system: tells the type of the file system that a folder lies on.

        What was leased when the session ended waits again, marked as redelivered (11.4).

        Raises StoreFailed where it cannot be read and written, StoreTooNew, and UnfitPath for a file that
        must not be trusted.
        """
        kind = file_system(folder)
        store = cls(folder, session_name, now, retention or Retention(), not is_network(kind))
        if not store._log:
            store._problems.append(
                f"The message store lies on a network file system ({kind}): it uses a rollback journal, which is"
                " slower, and is as safe as that file system's locks and syncs are."
            )
        return store

    # Reading

    def settled(self, sender: str, msg_id: str) -> Settled | None:
        """What this sender's id was settled as, the open group included (03.8)."""
        found = self._row(schema.SETTLED, (msg_id, sender))
        return found and Settled(*found)

    def was_sent(self, msg_id: str) -> bool:
        """Whether this session sent a message under this id (03.7)."""
        return self._row(schema.SENT, (msg_id,)) is not None

    def sent(self, msg_id: str) -> Sent | None:
        """The message that this session sent under this id."""
        found = self._row(schema.SENT, (msg_id,))
        return found and Sent(to_identity=found[0], to_name=found[1], at=found[2], state=found[3])

    def waiting(self, limit: int | None = None) -> list[Message]:
        """The messages that wait, in the order in which they will be handed out (10.3)."""
        rows = self._rows(schema.WAITING, (1, -1 if limit is None else max(limit, 0)))
        return [self._message(row) for (row,) in rows]

    def find(self, msg_id: str) -> list[Message]:
        """Every message under this id that is still kept, oldest first."""
        return [self._message(row) for (row,) in self._rows(schema.LETTERS, (msg_id,))]

    def pins(self, conversation: str) -> list[tuple[str, Pin]]:
        """The pins of one conversation, in the order in which they were made (02.17)."""
        rows = self._rows(schema.PINS, (conversation,))
        return [(normal, Pin(name=name, identity=identity)) for normal, name, identity in rows]

    def known(self, shown: str) -> tuple[str, str] | None:
        """Whom a `from` value that was shown here meant (02.8)."""
        found = self._row(schema.SHOWN, (shown,))
        return found and (found[0], found[1])

    # Writing

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
        """Takes a message in, the same way whatever the verdict (03.10, 11.1).

        ValueError where this sender's id is settled already (11.5).
        """
        origin = message.origin
        msg_id, sender, at = message.msg_id, origin.identity, message.received_at
        peer = origin.known_as
        tier = TIERS.get(verdict, message.priority == "later")
        row, step = self._letter + 1, self._step + 1
        pages = MESSAGE_PAGES if self.pending else FIRST_PAGES
        self._begin(at, pages + len(message.text) // CHARACTERS_PER_PAGE)
        write = self._write
        try:
            write(schema.ADD_LETTER, (row, msg_id, sender, verdict, body, at))
            write(schema.ADD_MESSAGE, message_row(row, message, refused=verdict == "refused"))
            write(schema.ADD_UNREAD, (row, tier, cause, scope, rung, expires_at))
            write(
                schema.ADD_TWO_STEPS,
                (step, msg_id, at, peer, step + 1, msg_id, at, verdict, detail, peer),
            )
        except sqlite3.IntegrityError:  # the letter, the first of them, and nothing was written
            raise ValueError(f"{msg_id} of {sender} is settled already") from None
        except UnicodeEncodeError:  # half of a surrogate pair, which no file can hold
            for drop in (schema.DROP_LETTER, schema.DROP_MESSAGE, schema.DROP_UNREAD):
                self._do(drop, (row,))
            raise
        except sqlite3.Error as error:
            raise self._failed(error) from error
        except BaseException:  # an interrupt between two of these: half a message must not be committed
            self._roll_back()
            raise
        self._letter = row
        self._step = step + 1
        if verdict == "accepted":
            self.unread += 1
            self.waiting_count += 1
        elif verdict == "held":
            self._held += 1
        return row

    def note(self, msg_id: str, state: str, at: int, detail: str = "", peer: str = "") -> None:
        """Writes one row of the journal (11.1)."""
        self._begin(at, WRITE_PAGES)
        self._do_step(msg_id, state, at, detail, peer)

    def pin(self, conversation: str, normal: str, pin: Pin, at: int) -> None:
        """Makes or moves a pin (02.17, 02.18)."""
        if (normal, pin) in self.pins(conversation):
            return
        self._begin(at, WRITE_PAGES)
        self._do(schema.DROP_PIN, (conversation, normal))
        self._do(schema.ADD_PIN, (conversation, normal, pin.name, pin.identity, at))

    def forget_pin(self, conversation: str, normal: str) -> None:
        """Removes a pin, if there is one."""
        self._begin(self._now, WRITE_PAGES)
        self._do(schema.DROP_PIN, (conversation, normal))

    def remember(self, shown: str, identity: str, address: str, at: int) -> None:
        """Records whom a `from` value means that is shown here (02.8)."""
        found = self._row(schema.SHOWN, (shown,))
        if found and found[:2] == (identity, address) and at - found[2] < SHOWN_AGAIN:
            return
        self._begin(at, WRITE_PAGES)
        self._do(schema.SET_SHOWN, (shown, identity, address, at))

    def sending(self, msg_id: str, to_identity: str, to_name: str, at: int) -> None:
        """Records that a message is about to leave (05.23)."""
        self._begin(at, WRITE_PAGES)
        self._do(schema.ADD_SENT, (msg_id, to_identity, to_name, at))

    def outcome(self, msg_id: str, state: str, at: int, detail: str = "") -> None:
        """Records and journals what became of a sent message (11.2)."""
        sent = self.sent(msg_id)
        self.note(msg_id, state, at, detail, "" if sent is None else sent.to_name)
        self._do(schema.SET_OUTCOME, (state, msg_id))

    def answered(self, msg_id: str, at: int) -> bool:
        """Marks what was consumed under this id as answered (11.1)."""
        rows = self._rows(schema.CONSUMED, (msg_id,))
        for row, peer in rows:
            self.note(msg_id, "answered", at, peer=peer)
            self._do(schema.SET_ANSWERED, (row,))
        return bool(rows)

    def take(
        self, lease: str, now: int, *, later: bool = True, limit: int | None = None, only: str | None = None
    ) -> list[Message]:
        """Hands out what waits, under a lease (11.1)."""
        most = -1 if limit is None else max(limit, 0)

        def work() -> list[Message]:
            if only is None:
                rows = self._rows(schema.WAITING, (later, most))
            else:
                rows = self._rows(schema.WAITING_ONLY, (later, only, most))
            taken: list[Message] = []
            if rows:
                self._begin(now, WRITE_PAGES + len(rows) // 16, growing=False)
                self._do_each(schema.LEASE, [(lease, row) for (row,) in rows])
                taken = [self._message(row) for (row,) in rows]
                self._journal(
                    [(message.msg_id, message.origin.name, message.origin.identity) for message in taken],
                    "leased",
                    now,
                )
            self.waiting_count -= len(rows)
            self.commit()
            if rows:
                self._leases.setdefault(lease, []).extend(row for (row,) in rows)
            return taken

        return self._relieved(work)

    def confirm(self, lease: str, now: int, *, door: str = "") -> list[str]:
        """The loop, or a door of its client, has what this lease handed out (11.1, 09.1)."""

        def work() -> list[str]:
            rows = self._about(self._leases.get(lease, ()))
            if rows:
                self._begin(now, WRITE_PAGES + len(rows) // 16, growing=False)
                self._do_each(schema.DROP_UNREAD, [row[:1] for row in rows])
                if door:
                    self._do_each(schema.SET_PAST, [("passed", row[0]) for row in rows])
                self._journal([row[1:] for row in rows], "passed" if door else "consumed", now, door)
                self.unread -= len(rows)
            self.commit()
            self._leases.pop(lease, None)
            return [row[1] for row in rows]

        return self._relieved(work)

    def release(self, lease: str, now: int) -> list[str]:
        """Gives back what this lease handed out (11.1)."""
        ids = self._relieved(lambda: self._give_back(self._leases.get(lease, ()), now, GIVEN_BACK))
        self._leases.pop(lease, None)
        return ids

    def move_passed(self, msg_id: str, state: State, at: int, detail: str = "") -> list[Message]:
        """Writes down what became of what was passed on under this id (09.1, 11.1)."""

        def work() -> list[Message]:
            rows = self._rows(schema.PASSED, (msg_id,))
            passed = [self._message(row) for row, _ in rows]
            for message, (row, later) in zip(passed, rows, strict=True):
                message.moved(state)  # ValueError for a step that is none
                self._begin(at, WRITE_PAGES, growing=False)
                self._do_step(msg_id, state, at, detail, message.origin.known_as)
                self._do(schema.SET_PAST, (state if state == "denied" else "", row))
                if state == "accepted":
                    self._do(schema.ADD_UNREAD, (row, later, "", "", "", None))
                    self._do(schema.SET_AGAIN, (row,))
                    self.unread += 1
                    self.waiting_count += 1
                elif state == "denied":
                    self._do(schema.DROP_MESSAGE, (row,))
            self.commit()
            return passed

        return self._relieved(work)

    def prune(self, now: int) -> list[Message]:
        """Removes what is no longer kept; bounded work (05.27, 03.46)."""
        keep = self._retention
        self._begin(now, 0, growing=False)
        old = self._rows(schema.OLD_UNREAD, (now - keep.unread_age, keep.batch))
        removed = [self._message(row[0]).moved("removed") for row in old]
        self._do_each(schema.DROP_UNREAD, [row[:1] for row in old])
        self._do_each(schema.DROP_MESSAGE, [row[:1] for row in old])
        self._journal([row[1:] for row in old], "removed", now, TOO_OLD)
        self.unread -= len(old)
        self.waiting_count -= len(old)
        last, steps = self._letter, keep.batch * STEPS_PER_BATCH
        (count,) = self._row(schema.COUNT_REFUSED)
        refused: Any = self._rows(schema.OLDEST_REFUSED, (steps,))
        out = [(row,) for row in refused_worn(refused, count, keep, now)]
        self._do_each(schema.DROP_UNREAD, out)
        self._do_each(schema.DROP_MESSAGE, out)
        heavy = self._weight() > keep.file_bytes
        consumed: Any = self._rows(schema.OLDEST_CONSUMED, (keep.batch,))
        gone = worn(consumed, keep, newest=last, now=now, heavy=heavy)
        self._do_each(schema.DROP_MESSAGE, [(row,) for row in gone])
        (beyond,) = self._row(schema.NEWEST_SURPLUS_LETTER, (keep.settled_count,))
        self._do(
            schema.DROP_LETTERS,
            (beyond, keep.batch, now - keep.settled_age, last - keep.settled_most),
        )
        self._do(
            schema.DROP_STEPS,
            (
                *(self._step, steps, now - keep.journal_age),
                *(self._step if heavy and not gone else self._step - keep.journal_count, steps),
            ),
        )
        self._do(schema.DROP_SENT, (keep.settled_count, keep.batch, now - keep.settled_age))
        for count, most, drop in (
            (schema.COUNT_PINS, keep.pins, schema.DROP_PINS),
            (schema.COUNT_SHOWN, keep.shown, schema.DROP_SHOWN),
        ):
            surplus = self._row(count)[0] - most
            if surplus > 0:
                self._do(drop, (min(surplus, keep.batch),))
        self.commit()
        if self._row("PRAGMA freelist_count")[0] > 4 * VACUUM_PAGES:
            self._rows(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
        self._copy_back()
        return removed

    # What an ended session left

    def _recover(self) -> None:
        """Lets what was leased wait again, and says what became of what was being sent."""
        self._leases.clear()
        left = [row for (row,) in self._rows(schema.LEFT_LEASED)]
        self._relieved(lambda: self._give_back(left, self._now, LEFT_BEHIND))
        self._settle_sent()

    def _settle_sent(self) -> None:
        """What was being sent when the session ended may have arrived: nobody knows, and that is said (11.2)."""
        left = self._rows(schema.SENT_UNSETTLED)
        if left:
            try:
                for (msg_id,) in left:
                    self.outcome(msg_id, "unknown", self._now, UNTOLD)
                self.commit()
            except StoreFailed:
                pass  # a full disk: the next opening says it

    def _about(self, rows: Sequence[int]) -> list[tuple[int, str, str]]:
        """(row, id, name or identity of the sender) of messages, in order of arrival."""
        return [self._row(schema.ABOUT, (row,)) for row in sorted(rows)]

    def _give_back(self, leased: Sequence[int], now: int, why: str) -> list[str]:
        """Lets leased messages wait again, in their old places, and commits."""
        rows = self._about(leased)
        if rows:
            self._begin(now, WRITE_PAGES + len(rows) // 8, growing=False)
            self._do_each(schema.UNLEASE, [row[:1] for row in rows])
            self._do_each(schema.SET_AGAIN, [row[:1] for row in rows])
            self._journal([row[1:] for row in rows], "accepted", now, why)
            self.waiting_count += len(rows)
        self.commit()
        return [row[1] for row in rows]
