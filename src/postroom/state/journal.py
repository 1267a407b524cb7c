"""Reads the journal in a session's store.

`Journal` is what the session's own store and a `Reader` have in common; `Reader` opens the store of an ended
session read-only, for `trace` and `log` (10.12, 10.13). It writes nothing and repairs nothing: a store that
cannot be read is an error that says why.
"""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any

from postroom.errors import StoreFailed
from postroom.state import schema
from postroom.state.database import failure, open_to_read
from postroom.state.files import check_file
from postroom.state.keeping import step_of
from postroom.state.schema import folded
from postroom.state.store_files import check_companions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroom.core.message import Step

FILE = "store.db"
"""The store's name in its session's folder (05.4)."""


class Journal:
    """The part of an open store that shows the journal.

    Attributes:
        session_name: the name that its rows bear (`Step.where`); may be set anew.
    """

    def __init__(self, connection: sqlite3.Connection, session_name: str) -> None:
        self.session_name = session_name
        self._use(connection)

    def _use(self, connection: sqlite3.Connection) -> None:
        """Reads from this connection from now on."""
        connection.create_function("folded", 1, folded, deterministic=True)
        self._connection = connection
        self._cursors: list[sqlite3.Cursor] = [connection.cursor()]
        self._read: Callable[..., sqlite3.Cursor] = self._cursors[0].execute

    def steps(self, msg_id: str) -> list[Step]:
        """The journal's rows about one id, oldest first (10.12). Raises StoreFailed."""
        return [step_of(self.session_name, *row[1:]) for row in self._rows(schema.STEPS, (msg_id,))]

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
        """Searches the journal, as `keeping.Store.log` says (10.13). Raises StoreFailed."""
        sql = schema.LOG
        values: list[object] = [
            -1 if after is None else after,
            schema.EARLIEST if since is None else since,
            schema.LATEST if until is None else until,
        ]
        if peer:
            sql += schema.LOG_PEER
            values += [peer] * 3
        if text:
            sql += schema.LOG_TEXT
            values += [text] * 3
        sql += schema.LOG_NEWEST if after is None else schema.LOG_OLDEST
        rows = self._rows(sql, (*values, max(limit, 0)))
        if after is None:
            rows.reverse()
        return [(row[0], step_of(self.session_name, *row[1:])) for row in rows]

    def close(self) -> None:
        """Lets go of the file. Never raises; may be repeated.

        The cursors first: one whose statement failed would keep the file open, and locked.
        """
        for part in (*self._cursors, self._connection):
            try:
                part.close()
            except sqlite3.Error:
                pass

    def _rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Every row of a statement."""
        try:
            return self._read(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _row(self, sql: str, values: Sequence[object] = ()) -> Any:
        """The only row that a statement can have, or None."""
        try:
            return self._read(sql, values).fetchone()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> StoreFailed:
        """What an error of SQLite's means for what is open here; returns what is to be raised."""
        return failure(error)


class Reader(Journal):
    """The journal of an ended session, opened read-only (10.12). One that still runs is asked itself.

    Beside the store of a session that was killed, SQLite may leave an index file; nothing else is written. On a
    network file system the store of a session that was killed cannot be read before it was opened again.
    """

    @classmethod
    def open(cls, folder: str, *, session_name: str | None = None) -> Reader:
        """Opens the store in a session's folder.

        Args:
            folder: the session's own folder.
            session_name: what `Step.where` says; by default the folder's name, which is the session's id.

        Raises StoreFailed where there is none, or its session runs; StoreTooNew; UnfitPath for what must not be
        trusted.
        """
        path = os.path.join(folder, FILE)
        try:
            check_file(path)
            check_companions(path)
            connection = open_to_read(path)
        except FileNotFoundError as error:
            raise StoreFailed(
                "That session has no message store.", "It may never have opened wholly."
            ) from error
        except sqlite3.Error as error:
            raise failure(error) from error
        return cls(connection, session_name or os.path.basename(os.path.normpath(folder)))
