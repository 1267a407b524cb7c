"""Tables in memory with a group that can be taken back, and those of them that are not about messages.

`MemoryTables` is the lower half of `state.memory_store`: the open group and its undoing, the disk that a test makes
full, and who is told what: rules, owed notices, unread notices, subscriptions. The twin of `state.writer` and of a
part of `state.store_holds`; it keeps what `state.keeping` promises.

It writes nothing anywhere and never looks at a clock. It fails where `failing` says so, and only then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from postroom.core.message import Rule
from postroom.errors import StoreFailed
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
    rule_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroom.core.message import Message, Notice

Row = tuple[str, int, str, str, str]
"""(msg_id, at, state, detail, peer): one row of the journal."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class MemoryTables(ABC):
    """The open group, and what is not about messages. See `keeping.Store`.

    Attributes:
        failing: for tests: `full` makes what grows fail as on a full disk, `broken` makes every write fail.
        pending: whether a group is open, for `commit` to close.
    """

    def __init__(self) -> None:
        self.failing = ""
        self.pending = False
        self._journal: list[Row] = []
        self._pruned: int = 0
        self._rules: dict[str, tuple[int, Rule]] = {}
        self._owed: dict[int, Owed] = {}
        self._notices: dict[int, Notice] = {}
        self._watches: dict[tuple[bool, str, str], tuple[int, Subscription]] = {}
        self._numbers = 0
        self._given = 0
        # A message stands for its arrival: cheaper than a function.
        self._undo: list[Message | Callable[[], object]] = []
        self._growing = False
        self._marks = (0, 0)

    # Pairs that a person always accepts

    def rules(self) -> list[Rule]:
        """Whom a person always accepts, in the order in which that was decided (10.11)."""
        return [rule for _, rule in sorted(self._rules.values(), key=_number)]

    def add_rule(self, identity: str, name: str, at: int) -> Rule:
        """Always accepts a sender from now on (03.48). ValueError where there are too many."""
        there = self.rules()
        for rule in there:
            if rule.identity == identity:
                return rule
        if len(there) >= RULES:
            raise ValueError(f"there are {RULES} rules already")
        made = Rule(id=rule_id(identity, self._rules), identity=identity, name=name, since=at)
        self._set(self._rules, made.id, (self._next_number(), made))
        return made

    def drop_rule(self, rule_id: str) -> bool:
        """Revokes a rule; whether there was one."""
        return self._drop(self._rules, [rule_id])

    # Notices

    def owed(self) -> list[Owed]:
        """The notices that are still to be told, in the order in which they came to be owed."""
        return [self._owed[row] for row in sorted(self._owed)]

    def owe(self, about: str, address: str, process: str, line: bytes, at: int) -> int:
        """Owes the sender of a message a notice until `paid`. Returns its number."""
        self._begin(growing=not self.pending or self._growing)  # what is owed for an end is part of it
        self._given = row = self._given + 1
        owed = Owed(row=row, about=about, address=address, process=process, line=line, at=at)
        self._set(self._owed, row, owed, growing=False)
        for old in sorted(self._owed)[:-OWED]:
            self._journal.append((self._owed[old].about, at, NOT_TOLD, TOO_MANY_OWED, ""))
            self._drop(self._owed, [old])
        return row

    def paid(self, rows: Sequence[int]) -> None:
        """These notices are owed no more."""
        self._drop(self._owed, rows)

    def notices(self) -> list[tuple[int, Notice]]:
        """(number, notice) of what the loop has not read, in order."""
        return sorted(self._notices.items(), key=_number)

    def add_notice(self, notice: Notice) -> int:
        """Keeps a notice until the loop has read it. Returns its number."""
        self._begin()
        self._given = row = self._given + 1
        self._set(self._notices, row, notice)
        for old in sorted(self._notices)[:-NOTICES]:
            gone = self._notices[old]
            self._journal.append((gone.msg_id or "", notice.at, NOT_READ, TOO_MANY_NOTICES, gone.about or ""))
            self._drop(self._notices, [old])
        return row

    def drop_notices(self, rows: Sequence[int]) -> None:
        """The loop has read these."""
        self._drop(self._notices, rows)

    # Subscriptions to idle notices

    def subscriptions(self, mine: bool) -> list[Subscription]:
        """Whom this session wants to hear of, or who wants to hear of it, in order (05.31)."""
        made = sorted(self._watches.values(), key=_number)
        return [subscription for _, subscription in made if subscription.mine == mine]

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
        made = Subscription(
            msg_id=msg_id,
            mine=mine,
            identity=identity,
            name=name,
            reply_path=reply_path,
            mode=mode,
            at=at,
        )
        self._set(self._watches, (mine, msg_id, identity), (self._next_number(), made))
        for old in self.subscriptions(mine)[:-SUBSCRIPTIONS]:
            self._drop(self._watches, [(mine, old.msg_id, old.identity)])

    def unsubscribe(self, msg_id: str, *, mine: bool, identity: str | None = None) -> bool:
        """Forgets the subscription of this id; whether there was one."""
        return self._drop(
            self._watches,
            [key for key in self._watches if key[:2] == (mine, msg_id) and identity in (None, key[2])],
        )

    # The group

    def _begin(self, *, growing: bool = True) -> None:
        """Opens a group where none is; one in which anything grows needs a disk with room."""
        if not self.pending:
            self.pending = True
            self._growing = False
            self._marks = (self._pruned + len(self._journal), self._given)
        if growing:
            self._growing = True

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _set(self, table: dict[Key, Value], key: Key, value: Value | None, *, growing: bool = True) -> None:
        """Sets or, for None, removes one entry, in a way that can be taken back."""
        self._begin(growing=growing)
        before = table.get(key)
        put(table, key, value)
        self._undo.append(lambda: put(table, key, before))

    def _drop(self, table: dict[Key, Value], keys: Sequence[Key]) -> bool:
        """Removes what is there of these; whether anything was."""
        found = [key for key in keys if key in table]
        for key in found:
            self._set(table, key, None, growing=False)
        return bool(found)

    def _check(self, *, growing: bool) -> None:
        if self.failing == "broken" or (self.failing == "full" and growing):
            self._roll_back()
            raise StoreFailed("The message store cannot be written.", "Free some space, then try again.")

    def commit(self) -> None:
        """Closes the open group; nothing is durable here (05.27). Raises StoreFailed where `failing` says so."""
        if self.pending:
            if self.failing:
                self._check(growing=self._growing)
            self.pending = False
            self._undo.clear()

    def _commit_with(self, writes: bool) -> None:
        """Closes the open group, so that what follows is part of it: nothing more can fail."""
        if writes or self.pending:
            self._check(growing=self.pending and self._growing)
        self.pending = False
        self._undo.clear()

    def _roll_back(self) -> None:
        if not self.pending:
            return
        self.pending = False
        for entry in reversed(self._undo):
            if callable(entry):
                entry()
            else:
                self._forget_arrival(entry)
        self._undo.clear()
        end, self._given = self._marks
        del self._journal[end - self._pruned :]

    @abstractmethod
    def _forget_arrival(self, message: Message) -> None:
        """Takes back that a message came: the latest that did."""


def put(table: dict[Key, Value], key: Key, value: Value | None) -> None:
    """Sets one entry, or removes it for None."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _number(pair: tuple[int, object]) -> int:
    return pair[0]
