"""An open store, for whoever writes it: its file, its one open group, its reserve, and how it fails.

It knows nothing of messages; `state.store_holds` and `state.store` stand on it. A group is one transaction.
`_begin` opens it, `commit` makes it durable, and any error of SQLite rolls it back whole, in the file and in what
is counted here.

ENDS. What ends something must work on a full disk (05.27): `_relieved` is for what commits by itself, `_ease` for
what joins a group. A group of ends alone that finds no room is written a second time, with the reserve, which
`state.store_files` keeps; so what `_ease` is given must come out the same twice.

How it fails: `StoreFailed`, after the rollback. A corrupt file, found at the opening or later, is set aside under
a dated name and a new one begun.
"""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from postroom.errors import PostroomError, StoreFailed
from postroom.state import schema
from postroom.state.database import (
    CORRUPT,
    DOCTOR,
    FULL,
    OUT_OF_ROOM,
    code_of,
    failure,
    open_to_write,
)
from postroom.state.files import close_in_children, descriptors_below, keep_in_children
from postroom.state.journal import FILE, Journal
from postroom.state.store_files import PAGE, Room, keep_for_ever, own_file, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Part = tuple[int, int, Callable[[], object]]
    """(time, pages that it may take, what it writes): one end in a group of ends."""

Answer = TypeVar("Answer")

CHARACTERS_PER_PAGE = 1000
"""Of text, at four bytes each."""

WRITE_PAGES = 3
"""Pages that any write but that of a message may take."""


class Writer(Journal):
    """The part of a session's store that holds its file.

    Args:
        folder: the session's own folder.
        session_name: the name that the journal's rows bear.
        now: epoch milliseconds.
        log: with a write-ahead log, else with a rollback journal.

    Attributes:
        pending: whether a group is open, for `commit` to close.
        unread: messages accepted and not yet consumed, leased ones included (03.64).
        waiting_count: messages that a `take` could hand out now.
    """

    def __init__(self, folder: str, session_name: str, now: int, *, log: bool) -> None:
        self._path = os.path.join(folder, FILE)
        self._log = log
        self._now = now
        self._problems: list[str] = []
        self._descriptors = lambda: descriptors_below(folder)
        self._room = Room(self._path, log=log)
        self.pending = False
        self._full = False
        self._cramped = False  # the log could not be copied back before the open group
        self._left = False
        self._replaced = False
        self.unread: int = 0
        self.waiting_count: int = 0
        self._held: int = 0
        self._letter: int = 0
        self._step: int = 0
        self._number: int = 0
        self._marks = (0, 0, 0, 0, 0, 0)
        self._parts: tuple[Part, ...] | None = None
        super().__init__(self._connect(), session_name)
        try:
            self._attach()
        except StoreFailed:
            if not self._replaced:  # else it was corrupt, only deeper than the opening looks
                self.close()
                raise

    @property
    def problems(self) -> list[str]:
        """Sentences for `status` and `doctor`."""
        if self._room.whole:
            return list(self._problems)
        return [
            *self._problems,
            "The disk is full: arriving messages are refused until there is space again.",
        ]

    def commit(self) -> None:
        """Makes the open group durable, synced (05.27)."""
        if not self.pending:
            return
        if not self._room.commits():
            raise self._no_room()
        parts = self._parts
        try:
            self._write("COMMIT")
        except sqlite3.Error as error:
            failed = self._failed(error)
            if not parts or not self._spare():
                raise failed from error
            self._write_parts(parts)
            self.commit()
        self.pending = False

    def close(self) -> None:
        """Forgets the open group and lets go of the file.

        It never commits: it may run in a signal handler, between two writes of one message, and what was not
        committed was not acknowledged. The ballast stays only where something waits for the session: unread mail,
        or a hold.
        """
        if self.pending:
            self._roll_back()
        if not self.unread and not self._held and not self._left:
            self._room.release()
        keep_in_children(self._descriptors)
        _OPEN.discard(self)
        super().close()

    def leave_to_parent(self) -> None:
        """In a forked child: the parent's store is out of reach from now on, and not closed at the end (05.11)."""
        self._left = True
        for part in (self._connection, *self._cursors):
            keep_for_ever(part)
        gone = sqlite3.connect(":memory:")
        gone.close()
        self._connection, self._cursors = gone, []
        self._read = self._write = self._write_each = gone.execute
        self.pending = False

    # The file

    def _connect(self) -> sqlite3.Connection:
        """Opens the file, whatever state it is in; one that is corrupt makes room for a new one.

        Raises StoreFailed, StoreTooNew, UnfitPath.
        """
        try:
            own_file(self._path)
            try:
                return open_to_write(self._path, log=self._log, corrupt=self._set_aside)
            except sqlite3.Error as error:
                if code_of(error) not in CORRUPT and not self._gives_room(error):
                    raise
            own_file(self._path)
            return open_to_write(self._path, log=self._log, corrupt=self._set_aside)
        except sqlite3.Error as error:
            raise failure(error) from error
        except OSError as error:
            raise StoreFailed(f"The message store cannot be opened: {error.strerror}.", DOCTOR) from error

    def _gives_room(self, error: sqlite3.Error) -> bool:
        """Whether an opening that found the disk full, as it brought the store up to date, may be tried again."""
        return code_of(error) in OUT_OF_ROOM and self._room.release()

    def _attach(self) -> None:
        """Counts what the open file holds, and sees to what an ended session has left in it."""
        writer = self._connection.cursor()
        self._cursors.append(writer)
        self._write: Callable[..., sqlite3.Cursor] = writer.execute
        self._write_each: Callable[..., sqlite3.Cursor] = writer.executemany
        close_in_children(self._descriptors)
        _OPEN.add(self)
        (self._letter,) = self._row(schema.LAST_LETTER)
        (self._step,) = self._row(schema.LAST_STEP)
        (self._number,) = self._row(schema.LAST_NUMBER)
        self.unread, leased, self._held = self._row(schema.COUNT_UNREAD)
        self.waiting_count = self.unread - leased
        self._recover()
        self._room.restore()

    def _recover(self) -> None:
        """Sees to what an ended session has left. Raises StoreFailed."""

    def _set_aside(self) -> None:
        """Makes room for a new file and says so. Raises OSError."""
        name = set_aside(self._path, self._now)
        self._problems.append(
            f"The message store was corrupt and was set aside as {name}; a new one was begun."
            " Unread messages may be in it."
        )

    def _copy_back(self) -> bool:
        """Copies the log into the database, so that it is used from its start again. False: the disk is full."""
        if not self._log:
            return True
        try:
            self._write("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            if code_of(error) in CORRUPT:
                raise self._failed(error) from error
            self._cramped = True
            return False
        self._room.emptied()
        return True

    def _weight(self) -> int:
        """Bytes of the file that are in use."""
        return (self._row("PRAGMA page_count")[0] - self._row("PRAGMA freelist_count")[0]) * PAGE

    # The group

    def _begin(self, now: int, pages: int, *, growing: bool = True) -> None:
        """Opens a group where none is, and counts the pages of the log that this write may take.

        A write that makes the store grow needs a whole reserve behind it; a lease does not.
        """
        self._now = now
        if not self.pending:
            self._cramped = False
            if not self._room.opens(growing=growing, copy_back=self._copy_back):
                raise self._no_room()
            self._do("BEGIN IMMEDIATE")
            self.pending = True
            self._marks = (
                *(self._letter, self._step, self._number),
                *(self.unread, self.waiting_count, self._held),
            )
        elif growing and self._parts is not None and not self._roomy:
            raise self._no_room()  # it was opened for ends, which have the reserve to themselves
        self._parts = None
        self._room.takes(pages, growing=growing)

    def _do(self, sql: str, values: Sequence[object] = ()) -> None:
        try:
            self._write(sql, values)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _do_each(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        try:
            self._write_each(sql, rows)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _do_step(self, msg_id: str, state: str, now: int, detail: str, peer: str) -> None:
        """One row of the journal, in the group that is open."""
        self._do(schema.ADD_STEP, (self._step + 1, msg_id, now, state, detail, peer))
        self._step += 1

    def _journal(self, about: Sequence[Sequence[Any]], state: str, now: int, detail: str = "") -> None:
        """One row for each of (id, name or identity of the sender, …), the first name that is one."""
        first = self._step + 1
        rows = [
            (first + place, msg_id, now, state, detail, next(name for name in names if name is not None))
            for place, (msg_id, *names) in enumerate(about)
        ]
        self._do_each(schema.ADD_STEP, rows)
        self._step += len(rows)

    def _whole(self, work: Callable[[], object]) -> None:
        """Several writes of which none may stay alone: an interrupt between them ends the group."""
        try:
            work()
        except BaseException:
            self._roll_back()
            raise

    # Full disks

    def _relieved(self, work: Callable[[], Answer]) -> Answer:
        """Does what must work on a full disk too: the reserve is given up for it, once."""
        alone = not self.pending
        try:
            return work()
        except StoreFailed:
            if not (self._full and self._room.release() and alone):
                raise
        return work()

    @property
    def _roomy(self) -> bool:
        """Whether what makes the store grow may join a group that was opened without asking for it."""
        return not self._cramped and (self._room.whole or self._room.restore())

    @property
    def _only_ends(self) -> bool:
        """Whether a group is open that holds nothing but ends."""
        return self.pending and self._parts is not None

    def _ease(self, now: int, pages: int, work: Callable[[], object]) -> None:
        """Writes an end. Joins the open group.

        Args:
            now: the time.
            pages: that it may take.
            work: writes it; it may be asked to do so twice, the second time with everything as it was before.
        """
        before = self._parts if self.pending else ()
        parts = ((now, pages, work),) if before is None else (*before, (now, pages, work))
        try:
            self._write_parts(parts[-1:])
        except StoreFailed:
            if before is None or not self._spare():
                raise
            self._write_parts(parts)
        self._parts = None if before is None else parts  # None: something in this group makes the store grow

    def _write_parts(self, parts: tuple[Part, ...]) -> None:
        for now, pages, work in parts:
            self._begin(now, pages, growing=False)
            self._whole(work)

    def _spare(self) -> bool:
        """After a failure: gives up the reserve where the disk was full. False: there is no use in trying again."""
        if not self._full or not self._room.release():
            return False
        self._copy_back()
        return True

    def _no_room(self) -> StoreFailed:
        """Rolls back for a disk that has no room for arrivals. Returns what is to be raised."""
        self._roll_back()
        return StoreFailed(*FULL)

    # Failures

    def _failed(self, error: sqlite3.Error) -> StoreFailed:
        """Rolls back; after a corruption begins a new file. Returns what is to be raised (05.27)."""
        code = code_of(error)
        self._full = code in OUT_OF_ROOM
        self._roll_back()
        if code in CORRUPT:
            try:
                self._set_aside()
                super().close()
                self._use(self._connect())
                self._attach()
                self._replaced = True
            except (OSError, PostroomError):
                super().close()  # every further call fails
            return StoreFailed("The message store was corrupt and was set aside.", DOCTOR)
        return failure(error)

    def _roll_back(self) -> None:
        """Forgets the open group, in the file and in what is counted here."""
        if not self.pending:
            return
        self.pending = False
        try:
            self._write("ROLLBACK")
        except sqlite3.Error:
            pass  # SQLite had rolled back by itself
        self._letter, self._step, self._number, self.unread, self.waiting_count, self._held = self._marks
        self._room.rolled_back()


_OPEN: WeakSet[Writer] = WeakSet()
"""The stores of this process, for its forked children to leave."""


def _leave_all() -> None:
    for store in list(_OPEN):
        store.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all)
