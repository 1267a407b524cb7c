"""The store in memory: the twin of `state.store`, for programs, tests and measuring.

It keeps what `state.keeping` promises, durability apart: a message is gone with its process, and `commit`
only closes the group. Everything else is the same, the rolling back too, and one suite of tests runs over
both. So that a crash can be simulated, `reopened` gives what a store would hold that was killed in this
instant and opened again, and `full` makes the disk full.

Accepting a message makes one small object and a few entries in dictionaries: about a microsecond. What is kept
under an id is found by that id.

What is weak: the journal is a list, which `steps` and `log` read through; words are searched for in every
text that is kept.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Literal, cast

from postroom.core.holds import Hold
from postroom.core.inbound import Settled
from postroom.state.keeping import (
    GIVEN_BACK,
    IN_MEMORY,
    LEFT_BEHIND,
    SHOWN_AGAIN,
    STEPS_PER_BATCH,
    TOO_OLD,
    UNTOLD,
    Retention,
    Sent,
    ending,
    refused_worn,
    step_of,
    worn,
)
from postroom.state.memory_tables import MemoryTables, Row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroom.core.inbound import Verdict
    from postroom.core.message import Message, Pin, State, Step
    from postroom.core.settings import Cause

    Letter = tuple[Verdict, str, int, int]
    """(verdict, body, at, row): one settled id."""

TABLES = (
    *("_letters", "_next", "_later", "_leased", "_past", "_held", "_refused", "_of_id"),
    *("_journal", "_sent", "_pins", "_shown", "_rules", "_owed", "_notices", "_watches"),
)
"""Everything that would be in the file."""


class MemoryStore(MemoryTables):
    """What one session remembers, in memory. See `keeping.Store`.

    Args:
        session_name: the name that its journal rows bear when they are read (`Step.where`).
        retention: how long and how much is kept.
    """

    durable = False

    def __init__(self, session_name: str = "", *, retention: Retention = IN_MEMORY) -> None:
        super().__init__()
        self.session_name = session_name
        self._retention = retention
        self._letters: dict[tuple[str, str], Letter] = {}
        self._letter = 0
        # A kept message lies in exactly one of these, by its letter's row.
        self._next: dict[int, Message] = {}
        self._later: dict[int, Message] = {}
        self._leased: dict[int, tuple[str, Message]] = {}
        self._past: dict[int, Message] = {}
        self._held: dict[int, Hold] = {}
        self._refused: dict[int, Message] = {}
        self._of_id: dict[str, int | tuple[int, ...]] = {}
        self._sent: dict[str, tuple[int, Sent]] = {}
        self._pins: dict[tuple[str, str], tuple[int, Pin]] = {}
        self._shown: dict[str, tuple[str, str, int]] = {}

    # Reading

    @property
    def unread(self) -> int:
        """Messages accepted and not yet consumed, leased ones included (03.64)."""
        return len(self._next) + len(self._later) + len(self._leased)

    @property
    def waiting_count(self) -> int:
        """Messages that a `take` could hand out now."""
        return len(self._next) + len(self._later)

    @property
    def problems(self) -> list[str]:
        """Sentences for `status`: none, as nothing is kept."""
        return []

    def settled(self, sender: str, msg_id: str) -> Settled | None:
        """What this sender's id was settled as, the open group included (03.8)."""
        letter = self._letters.get((sender, msg_id))
        return None if letter is None else Settled(letter[0], letter[1])

    def was_sent(self, msg_id: str) -> bool:
        """Whether this session sent a message under this id (03.7)."""
        return msg_id in self._sent

    def sent(self, msg_id: str) -> Sent | None:
        """The message that this session sent under this id."""
        found = self._sent.get(msg_id)
        return None if found is None else found[1]

    def waiting(self, limit: int | None = None) -> list[Message]:
        """The messages that wait, in the order in which they will be handed out (10.3)."""
        return [message for _, message in self._choice(limit=limit)]

    def find(self, msg_id: str) -> list[Message]:
        """Every message under this id that is still kept, oldest first."""
        return [self._message(row) for row in sorted(self._rows_of_id(msg_id))]

    def holds(self) -> list[Hold]:
        """What is held, in order of arrival."""
        return [self._held[row] for row in sorted(self._held)]

    def steps(self, msg_id: str) -> list[Step]:
        """The journal's rows about one id, oldest first (10.12)."""
        return [self._step(row) for row in self._journal if row[0] == msg_id]

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
        """Searches the journal, as `keeping.Store.log` says (10.13)."""
        of_peer = self._ids_of(peer) if peer else frozenset[str]()
        with_text = self._ids_with(text) if text else frozenset[str]()

        def wanted(row: Row) -> bool:
            return (
                (since is None or row[1] >= since)
                and (until is None or row[1] <= until)
                and (not peer or row[4].casefold() == peer.casefold() or row[0] in of_peer)
                and (not text or text.casefold() in row[3].casefold() or row[0] in with_text)
            )

        start = 0 if after is None else max(0, after - self._pruned)
        numbers: Iterable[int] = range(start, len(self._journal))
        found = islice(
            (at for at in (reversed(numbers) if after is None else numbers) if wanted(self._journal[at])),
            max(limit, 0),
        )
        return [(self._pruned + at + 1, self._step(self._journal[at])) for at in sorted(found)]

    def pins(self, conversation: str) -> list[tuple[str, Pin]]:
        """The pins of one conversation, in the order in which they were made (02.17)."""
        made = sorted(
            (number, normal, pin) for (of, normal), (number, pin) in self._pins.items() if of == conversation
        )
        return [(normal, pin) for _, normal, pin in made]

    def known(self, shown: str) -> tuple[str, str] | None:
        """Whom a `from` value that was shown here meant (02.8)."""
        found = self._shown.get(shown)
        return None if found is None else found[:2]

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
        """Takes a message in (03.10, 11.1). ValueError where this sender's id is settled already (11.5)."""
        origin = message.origin
        msg_id, sender, at = message.msg_id, origin.identity, message.received_at
        key = (sender, msg_id)
        if key in self._letters:
            raise ValueError(f"{msg_id} of {sender} is settled already")
        if not self.pending:
            self._begin()
        self._growing = True
        if message.state != verdict:
            message = replace(message, state=verdict)
        self._letter = row = self._letter + 1
        self._letters[key] = (verdict, body, at, row)
        if verdict == "accepted":
            (self._later if message.priority == "later" else self._next)[row] = message
        elif verdict == "held":
            self._held[row] = Hold(
                row=row,
                message=message,
                cause=cast("Cause", cause),  # whoever holds gives one; a store keeps what it is given
                scope=scope,
                rung=rung,
                expires_at=expires_at,
            )
        else:
            self._refused[row] = message
        if self._of_id.setdefault(msg_id, row) is not row:
            self._of_id[msg_id] = (*self._rows_of_id(msg_id), row)
        peer = origin.known_as
        self._journal += ((msg_id, at, "received", "", peer), (msg_id, at, verdict, detail, peer))
        self._undo.append(message)
        return row

    def _forget_arrival(self, message: Message) -> None:
        row = self._letters.pop((message.origin.identity, message.msg_id))[3]
        self._remove(row, message)
        self._letter = row - 1

    def release_hold(self, row: int, at: int, *, approved_by: str | None = None, detail: str = "") -> Message:
        """Lets a held message in (03.41, 03.45). ValueError where there is none."""
        hold = self._hold(row)
        self._begin()
        key = (hold.message.origin.identity, hold.message.msg_id)
        self._letter = new = self._letter + 1
        message = replace(hold.message, state="accepted", held=True, approved_by=approved_by)
        letter = self._letters.pop(key)
        self._letters[key] = ("accepted", letter[1], at, new)
        self._remove(row, message)
        self._tier(message)[new] = message
        self._find_by_id(new, message)
        self._journal.append((message.msg_id, at, "accepted", detail, message.origin.known_as))

        def undo() -> None:
            self._remove(new, message)
            self._held[row] = hold
            self._find_by_id(row, message)
            self._letters[key] = letter
            self._letters = dict(sorted(self._letters.items(), key=lambda pair: pair[1][3]))
            self._letter = new - 1

        self._undo.append(undo)
        return message

    def end_hold(self, row: int, state: State, at: int, detail: str = "") -> None:
        """Ends a hold without letting it in (03.42). ValueError where there is none, or for another state."""
        state = ending(state)
        hold = self._hold(row)
        message = hold.message
        self._begin(growing=False)
        self._remove(row, message)
        self._journal.append((message.msg_id, at, state, detail, message.origin.known_as))

        def undo() -> None:
            self._held[row] = hold
            self._find_by_id(row, message)

        self._undo.append(undo)

    def change_hold(self, row: int, cause: Cause, scope: str, rung: str, expires_at: int | None) -> None:
        """Writes down why a message is held now, and until when (03.40, 03.43). ValueError where there is none."""
        changed = replace(self._hold(row), cause=cause, scope=scope, rung=rung, expires_at=expires_at)
        self._set(self._held, row, changed, growing=False)

    def _hold(self, row: int) -> Hold:
        if row not in self._held:
            raise ValueError(f"there is no hold with the number {row}")
        return self._held[row]

    def note(self, msg_id: str, state: str, at: int, detail: str = "", peer: str = "") -> None:
        """Writes one row of the journal (11.1)."""
        self._begin()
        self._journal.append((msg_id, at, state, detail, peer))

    def pin(self, conversation: str, normal: str, pin: Pin, at: int) -> None:
        """Makes or moves a pin (02.17, 02.18)."""
        key = (conversation, normal)
        known = self._pins.get(key)
        if known is None or known[1] != pin:
            self._set(self._pins, key, (self._next_number(), pin))

    def forget_pin(self, conversation: str, normal: str) -> None:
        """Removes a pin, if there is one."""
        self._set(self._pins, (conversation, normal), None)

    def remember(self, shown: str, identity: str, address: str, at: int) -> None:
        """Records whom a `from` value means that is shown here (02.8)."""
        found = self._shown.get(shown)
        if not found or found[:2] != (identity, address) or at - found[2] >= SHOWN_AGAIN:
            self._set(self._shown, shown, (identity, address, at))

    def sending(self, msg_id: str, to_identity: str, to_name: str, at: int) -> None:
        """Records that a message is about to leave (05.23)."""
        if msg_id not in self._sent:
            last = next(reversed(self._sent.values()))[0] if self._sent else 0
            sent = Sent(to_identity=to_identity, to_name=to_name, at=at)
            self._set(self._sent, msg_id, (last + 1, sent))

    def outcome(self, msg_id: str, state: str, at: int, detail: str = "") -> None:
        """Records and journals what became of a sent message (11.2)."""
        number, sent = self._sent.get(msg_id, (0, None))
        self.note(msg_id, state, at, detail, "" if sent is None else sent.to_name)
        if sent is not None:
            self._set(self._sent, msg_id, (number, replace(sent, state=state)))

    def answered(self, msg_id: str, at: int) -> bool:
        """Marks what was consumed under this id as answered (11.1)."""
        consumed = [
            row
            for row in sorted(self._rows_of_id(msg_id))
            if row in self._past and self._past[row].state == "consumed"
        ]
        for row in consumed:
            message = self._past[row]
            self.note(msg_id, "answered", at, peer=message.origin.known_as)
            self._set(self._past, row, message.moved("answered"))
        return bool(consumed)

    def take(
        self, lease: str, now: int, *, later: bool = True, limit: int | None = None, only: str | None = None
    ) -> list[Message]:
        """Hands out what waits, under a lease (11.1)."""
        chosen = self._choice(later=later, limit=limit, only=only)
        self._commit_with(bool(chosen))
        taken: list[Message] = []
        for row, message in chosen:
            self._tier(message).pop(row)
            leased = replace(message, state="leased")
            self._leased[row] = (lease, leased)
            self._journal.append((message.msg_id, now, "leased", "", message.origin.known_as))
            taken.append(leased)
        return taken

    def confirm(self, lease: str, now: int, *, door: str = "") -> list[str]:
        """The loop, or a door of its client, has what this lease handed out (11.1, 09.1)."""
        rows = self._rows_of(lease)
        self._commit_with(bool(rows))
        for row in rows:
            message = self._leased.pop(row)[1].moved("passed" if door else "consumed")
            self._past[row] = message
            self._journal.append((message.msg_id, now, message.state, door, message.origin.known_as))
        return [self._past[row].msg_id for row in rows]

    def release(self, lease: str, now: int) -> list[str]:
        """Gives back what this lease handed out (11.1)."""
        rows = self._rows_of(lease)
        self._commit_with(bool(rows))
        return self._give_back(rows, now, GIVEN_BACK)

    def move_passed(self, msg_id: str, state: State, at: int, detail: str = "") -> list[Message]:
        """Writes down what became of what was passed on under this id (09.1, 11.1)."""
        passed = [
            (row, self._past[row], self._past[row].moved(state))
            for row in sorted(self._rows_of_id(msg_id))
            if row in self._past and self._past[row].state == "passed"
        ]
        self._commit_with(bool(passed))
        for row, _, moved in passed:
            self._journal.append((msg_id, at, state, detail, moved.origin.known_as))
            if state == "consumed":
                self._past[row] = moved
            elif state == "denied":
                self._remove(row, moved)
            else:
                del self._past[row]
                self._wait_again(row, moved)
        self._put_in_order()
        return [message for _, message, _ in passed]

    def prune(self, now: int) -> list[Message]:
        """Removes what is no longer kept; bounded work (05.27, 03.46)."""
        self._commit_with(True)
        keep = self._retention
        waiting = [pair for tier in (self._next, self._later) for pair in tier.items()]
        old = sorted(
            ((row, message) for row, message in waiting if self._since(message) < now - keep.unread_age),
            key=lambda pair: pair[0],
        )[: keep.batch]
        for row, message in old:
            self._remove(row, message)
            self._journal.append((message.msg_id, now, "removed", TOO_OLD, message.origin.known_as))
        refused = [
            (row, self._refused[row].received_at)
            for row in sorted(self._refused)[: keep.batch * STEPS_PER_BATCH]
        ]
        for row in refused_worn(refused, len(self._refused), keep, now):
            self._remove(row, self._refused[row])
        consumed = (
            (row, self._since(self._past[row]), len(self._past[row].text))
            for row in sorted(self._past)[: keep.batch]
        )
        heavy = sum(len(message.text) for _, message in self._kept()) > keep.file_bytes
        for row in worn(consumed, keep, newest=self._letter, now=now, heavy=heavy):
            self._remove(row, self._past[row])
        self._prune_letters(now)
        self._prune_journal(now)
        newest = max((number for number, _ in self._sent.values()), default=0)
        surplus = (key for key, (number, _) in self._sent.items() if number <= newest - keep.settled_count)
        for key in [*islice(surplus, keep.batch)]:
            if self._sent[key][1].at < now - keep.settled_age:
                del self._sent[key]
        pins = sorted(self._pins, key=lambda key: self._pins[key][0])
        for key in pins[: max(0, min(len(pins) - keep.pins, keep.batch))]:
            del self._pins[key]
        shown = sorted(self._shown, key=lambda value: (self._shown[value][2], value))
        for value in shown[: max(0, min(len(shown) - keep.shown, keep.batch))]:
            del self._shown[value]
        return [replace(message, state="removed") for _, message in old]

    def close(self) -> None:
        """Forgets what is open; every write fails from now on."""
        self._roll_back()
        self.failing = "broken"

    def reopened(self, now: int) -> MemoryStore:
        """What a store would hold that was killed in this instant and opened again (11.4). This one is closed."""
        self._roll_back()
        self.failing = "broken"
        again = MemoryStore(self.session_name, retention=self._retention)
        for name in TABLES:
            setattr(again, name, getattr(self, name).copy())
        again._letter, again._pruned, again._numbers = self._letter, self._pruned, self._numbers
        again._given = max((0, *again._owed, *again._notices))
        again._give_back(sorted(again._leased), now, LEFT_BEHIND)
        for msg_id, (_, sent) in list(again._sent.items()):
            if not sent.state:
                again.outcome(msg_id, "unknown", now, UNTOLD)
        again.commit()
        return again

    # Inside

    def _kept(self) -> Iterable[tuple[int, Message]]:
        yield from self._next.items()
        yield from self._later.items()
        yield from self._past.items()
        yield from self._refused.items()
        yield from ((row, message) for row, (_, message) in self._leased.items())
        yield from ((row, hold.message) for row, hold in self._held.items())

    def _message(self, row: int) -> Message:
        """A message that is kept, by its letter's row."""
        for table in (self._past, self._next, self._later, self._refused):
            if row in table:
                return table[row]
        return self._held[row].message if row in self._held else self._leased[row][1]

    def _since(self, message: Message) -> int:
        """Since when a message counts as kept: its arrival, or its release from a hold."""
        return self._letters[message.origin.identity, message.msg_id][2]

    def _tier(self, message: Message) -> dict[int, Message]:
        return self._later if message.priority == "later" else self._next

    def _rows_of_id(self, msg_id: str) -> tuple[int, ...]:
        """Where the kept messages of an id lie: nearly always one, which is not worth a tuple."""
        found = self._of_id.get(msg_id, ())
        return (found,) if isinstance(found, int) else found

    def _find_by_id(self, row: int, message: Message) -> None:
        """Has a kept message found by its id."""
        self._of_id[message.msg_id] = (*self._rows_of_id(message.msg_id), row)

    def _remove(self, row: int, message: Message) -> None:
        """Keeps a message no more, wherever it lies."""
        for table in (self._next, self._later, self._past, self._held, self._refused):
            if table.pop(row, None) is not None:
                break
        left = tuple(each for each in self._rows_of_id(message.msg_id) if each != row)
        if left:
            self._of_id[message.msg_id] = left
        else:
            del self._of_id[message.msg_id]

    def _choice(
        self, *, later: bool = True, limit: int | None = None, only: str | None = None
    ) -> list[tuple[int, Message]]:
        """What a `take` would hand out, by row: each tier lies in order of arrival."""
        tiers = (self._next, self._later) if later else (self._next,)
        chosen = (pair for tier in tiers for pair in tier.items() if only is None or pair[1].msg_id == only)
        return [*islice(chosen, None if limit is None else max(limit, 0))]

    def _rows_of(self, lease: str) -> list[int]:
        return sorted(row for row, (of, _) in self._leased.items() if of == lease)

    def _give_back(self, rows: list[int], now: int, why: str) -> list[str]:
        ids: list[str] = []
        for row in rows:
            message = self._leased.pop(row)[1]
            self._wait_again(row, message)
            self._journal.append((message.msg_id, now, "accepted", why, message.origin.known_as))
            ids.append(message.msg_id)
        if ids:
            self._put_in_order()
        return ids

    def _wait_again(self, row: int, message: Message) -> None:
        """What was handed out waits again; `_put_in_order` follows."""
        self._tier(message)[row] = replace(message, state="accepted", redelivered=True)

    def _put_in_order(self) -> None:
        """Puts each of those that wait back in its old place."""
        self._next = dict(sorted(self._next.items()))
        self._later = dict(sorted(self._later.items()))

    def _step(self, row: Row) -> Step:
        msg_id, at, state, detail, peer = row
        return step_of(self.session_name, msg_id, at, state, detail, peer)

    def _ids_of(self, peer: str) -> frozenset[str]:
        received = {msg_id for sender, msg_id in self._letters if sender == peer}
        return frozenset(
            received | {key for key, (_, sent) in self._sent.items() if sent.to_identity == peer}
        )

    def _ids_with(self, text: str) -> frozenset[str]:
        wanted = text.casefold()
        return frozenset(
            message.msg_id
            for _, message in self._kept()
            if wanted in message.text.casefold() or wanted in (message.summary or "").casefold()
        )

    def _prune_letters(self, now: int) -> None:
        keep = self._retention
        kept = {row for row, _ in self._kept()}
        surplus = (
            (key, letter)
            for key, letter in islice(self._letters.items(), max(0, len(self._letters) - keep.settled_count))
            if letter[3] not in kept
        )
        for key, (_, _, at, row) in [*islice(surplus, keep.batch)]:
            if at < now - keep.settled_age or row <= self._letter - keep.settled_most:
                del self._letters[key]

    def _prune_journal(self, now: int) -> None:
        """Removes from the front what is too old or too much; the newest row stays."""
        keep = self._retention
        surplus = len(self._journal) - keep.journal_count
        end = min(len(self._journal) - 1, keep.batch * STEPS_PER_BATCH)
        gone = 0
        while gone < end and (gone < surplus or self._journal[gone][1] < now - keep.journal_age):
            gone += 1
        del self._journal[: max(gone, 0)]
        self._pruned += max(gone, 0)
