"""The part of a session's store that is about what is held, and about who is told what.

Holds and how they end; the senders that a person always accepts; the notices that are owed to others, and those
that the own loop has not read; the subscriptions to idle notices. All of it joins the open group, and keeps what
`state.keeping` promises. What ends something works on a full disk too, see `state.writer`.

A hold is a message whose row in `unread` says so, with the cause and the deadline beside it. Let in, it takes the
next number, so that it is handed out behind what was accepted before; its text is written anew for that, which a
full disk refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from postroom.core.holds import Hold
from postroom.core.message import Notice, Rule
from postroom.state import schema
from postroom.state.keeping import (
    NOT_READ,
    NOT_TOLD,
    NOTICES,
    OWED,
    RULES,
    SUBSCRIPTIONS,
    TOO_MANY_NOTICES,
    TOO_MANY_OWED,
    Owed,
    Subscription,
    ending,
    rule_id,
)
from postroom.state.schema import message_of
from postroom.state.store_files import PAGE
from postroom.state.writer import CHARACTERS_PER_PAGE, WRITE_PAGES, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.core.message import Message, State
    from postroom.core.settings import Cause

RELEASE_PAGES = 8
"""Pages that a hold takes which is let in, its text apart: three tables, one index and the journal."""


class Holds(Writer):
    """What is held, and who is told what. See `keeping.Store`."""

    # Holds

    def _message(self, row: int) -> Message:
        return message_of(self._row(schema.MESSAGE, (row,)))

    def holds(self) -> list[Hold]:
        """What is held, in order of arrival."""
        return [
            Hold(
                row=row,
                message=self._message(row),
                cause=cause,
                scope=scope,
                rung=rung,
                expires_at=expires_at,
            )
            for row, cause, scope, rung, expires_at in self._rows(schema.HOLDS)
        ]

    def _hold(self, row: int) -> tuple[str, str, str, int]:
        """(id, name or identity of the sender, priority, size) of what is held; ValueError where nothing is."""
        found: Any = self._row(schema.HOLD, (row,))
        if found is None:
            raise ValueError(f"there is no hold with the number {row}")
        return found

    def release_hold(self, row: int, at: int, *, approved_by: str | None = None, detail: str = "") -> Message:
        """Lets a held message in (03.41, 03.45). ValueError where there is none."""
        msg_id, peer, priority, size = self._hold(row)
        _encodable(approved_by, detail)
        new = self._letter + 1
        self._begin(at, RELEASE_PAGES + size // CHARACTERS_PER_PAGE)

        def work() -> None:
            self._do(schema.LET_IN_LETTER, (new, at, row))
            self._do(schema.LET_IN_MESSAGE, (new, approved_by, row))
            self._do(schema.LET_IN, (new, priority == "later", row))
            self._do_step(msg_id, "accepted", at, detail, peer)
            self._letter = new
            self._held -= 1
            self.unread += 1
            self.waiting_count += 1

        self._whole(work)
        return self._message(new)

    def end_hold(self, row: int, state: State, at: int, detail: str = "") -> None:
        """Ends a hold without letting it in (03.42). ValueError where there is none, or for another state."""
        state = ending(state)
        msg_id, peer, _, size = self._hold(row)
        _encodable(detail)

        def work() -> None:
            self._do(schema.DROP_UNREAD, (row,))
            self._do(schema.DROP_MESSAGE, (row,))
            self._do_step(msg_id, state, at, detail, peer)
            self._held -= 1

        # SQLite may write the pages of a removed text too, to erase them.
        self._ease(at, WRITE_PAGES + size // CHARACTERS_PER_PAGE, work)

    def change_hold(self, row: int, cause: Cause, scope: str, rung: str, expires_at: int | None) -> None:
        """Writes down why a message is held now, and until when (03.40, 03.43). ValueError where there is none."""
        self._hold(row)
        _encodable(cause, scope, rung)
        values = (cause, scope, rung, expires_at, row)
        self._ease(self._now, WRITE_PAGES, lambda: self._do(schema.CHANGE_HOLD, values))

    # Pairs that a person always accepts

    def rules(self) -> list[Rule]:
        """Whom a person always accepts, in the order in which that was decided (10.11)."""
        return [
            Rule(id=key, identity=identity, name=name, since=since)
            for key, identity, name, since in self._rows(schema.RULES)
        ]

    def add_rule(self, identity: str, name: str, at: int) -> Rule:
        """Always accepts a sender from now on (03.48). ValueError where there are too many."""
        there = self.rules()
        for rule in there:
            if rule.identity == identity:
                return rule
        if len(there) >= RULES:
            raise ValueError(f"there are {RULES} rules already")
        made = Rule(id=rule_id(identity, {rule.id for rule in there}), identity=identity, name=name, since=at)
        self._begin(at, WRITE_PAGES)
        self._do(schema.ADD_RULE, (made.id, identity, name, at))
        return made

    def drop_rule(self, rule_id: str) -> bool:
        """Revokes a rule; whether there was one."""
        if rule_id not in {rule.id for rule in self.rules()}:
            return False
        self._ease(self._now, WRITE_PAGES, lambda: self._do(schema.DROP_RULE, (rule_id,)))
        return True

    # Notices

    def owed(self) -> list[Owed]:
        """The notices that are still to be told, in the order in which they came to be owed."""
        return [
            Owed(row=row, about=about, address=address, process=process, line=line, at=at)
            for row, about, address, process, line, at in self._rows(schema.OWED)
        ]

    def owe(self, about: str, address: str, process: str, line: bytes, at: int) -> int:
        """Owes the sender of a message a notice until `paid`. Returns its number."""
        _encodable(about, address, process)
        number = self._number + 1

        def work() -> None:
            self._do(schema.ADD_OWED, (number, about, address, process, line, at))
            self._number = number
            surplus = self._rows(schema.SURPLUS_OWED, (OWED,))
            self._make_room(schema.DROP_OWED, surplus, NOT_TOLD, at, TOO_MANY_OWED)

        pages = WRITE_PAGES + len(line) // PAGE
        if self._only_ends:  # what is owed for an end is part of it
            self._ease(at, pages, work)
        else:
            self._begin(at, pages)
            self._whole(work)
        return number

    def paid(self, rows: Sequence[int]) -> None:
        """These notices are owed no more."""
        self._drop_each(schema.DROP_OWED, rows)

    def notices(self) -> list[tuple[int, Notice]]:
        """(number, notice) of what the loop has not read, in order."""
        return [
            (row, Notice(kind=kind, at=at, msg_id=msg_id, about=about, detail=detail))
            for row, kind, at, msg_id, about, detail in self._rows(schema.NOTICES)
        ]

    def add_notice(self, notice: Notice) -> int:
        """Keeps a notice until the loop has read it. Returns its number."""
        number = self._number + 1
        at = notice.at
        self._begin(at, WRITE_PAGES)
        self._do(schema.ADD_NOTICE, (number, notice.kind, at, notice.msg_id, notice.about, notice.detail))
        self._number = number
        surplus = self._rows(schema.SURPLUS_NOTICES, (NOTICES,))
        self._make_room(schema.DROP_NOTICE, surplus, NOT_READ, at, TOO_MANY_NOTICES)
        return number

    def drop_notices(self, rows: Sequence[int]) -> None:
        """The loop has read these."""
        self._drop_each(schema.DROP_NOTICE, rows)

    def _drop_each(self, drop: str, rows: Sequence[int]) -> None:
        if rows:
            values = [(row,) for row in rows]
            self._ease(self._now, WRITE_PAGES + len(rows) // 4, lambda: self._do_each(drop, values))

    def _make_room(
        self, drop: str, surplus: Sequence[tuple[int, str, str]], state: str, now: int, why: str
    ) -> None:
        """Removes the oldest notices where there are too many, and journals it (11.10)."""
        for row, msg_id, peer in surplus:
            self._do(drop, (row,))
            self._do_step(msg_id, state, now, why, peer)

    # Subscriptions to idle notices

    def subscriptions(self, mine: bool) -> list[Subscription]:
        """Whom this session wants to hear of, or who wants to hear of it, in order (05.31)."""
        return [
            Subscription(
                msg_id=msg_id,
                mine=mine,
                identity=identity,
                name=name,
                reply_path=reply_path,
                mode=mode,
                at=at,
            )
            for msg_id, identity, name, reply_path, mode, at in self._rows(schema.WATCHES, (mine,))
        ]

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
        """Remembers a subscription, or renews it."""
        self._begin(at, WRITE_PAGES)
        self._do(schema.ADD_WATCH, (msg_id, mine, identity, name, reply_path, mode, at))
        self._do(schema.DROP_WATCHES, (mine, mine, SUBSCRIPTIONS))

    def unsubscribe(self, msg_id: str, *, mine: bool, identity: str | None = None) -> bool:
        """Forgets the subscription of this id; whether there was one."""
        which = (mine, msg_id, identity)
        if not self._row(schema.HAS_WATCH, which)[0]:
            return False
        self._ease(self._now, WRITE_PAGES, lambda: self._do(schema.DROP_WATCH, which))
        return True


def _encodable(*texts: str | None) -> None:
    """Raises ValueError for half of a surrogate pair, which no file can hold, before anything is written."""
    for text in texts:
        if text is not None:
            text.encode()
