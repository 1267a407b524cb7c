"""A store's SQLite file: opened, checked, brought up to date; and SQLite's errors as ours.

It knows nothing of what the tables hold. A file of a newer version is left alone; one that is no store of
ours is told as corrupt; an empty one becomes a new store, all of it or nothing.
"""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING

from postroom.errors import StoreFailed, StoreTooNew
from postroom.state import schema
from postroom.state.store_files import ARRIVAL_PAGES, LOG_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

OPENER_SECONDS = 5.0
"""How long an opener waits for whoever reads the store of the session before it ran."""

READER_SECONDS = 1.0
"""How long a reader waits where a session is just opening or closing its store."""

DOCTOR = "Run: postroom doctor"
OTHER = ("The message store failed.", DOCTOR)
FULL = ("The disk is full: the message store cannot be written.", "Free some space, then try again.")
BROKEN = ("The message store is corrupt.", DOCTOR)

SENTENCES: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_IOERR: ("The disk reported an error in the message store.", DOCTOR),
    sqlite3.SQLITE_READONLY: ("The message store is read-only and cannot be written.", DOCTOR),
    sqlite3.SQLITE_CANTOPEN: ("The message store cannot be opened.", DOCTOR),
    sqlite3.SQLITE_CORRUPT: BROKEN,
    sqlite3.SQLITE_NOTADB: BROKEN,
    sqlite3.SQLITE_BUSY: (
        "The message store is in use by another process.",
        "Ask the session that has it, or try again when that has ended.",
    ),
}
"""SQLite's primary result code → what is wrong, what to do next."""

CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
OUT_OF_ROOM = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})
"""A quota that is used up is told as an I/O error."""


def code_of(error: BaseException) -> int:
    """SQLite's primary result code of an error; 0 where it has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def failure(error: sqlite3.Error) -> StoreFailed:
    """The error to raise for one of SQLite's."""
    return StoreFailed(*SENTENCES.get(code_of(error), OTHER))


def size_of(path: str) -> int:
    """A file's size in bytes; 0 where there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def open_to_write(path: str, *, log: bool, corrupt: Callable[[], None]) -> sqlite3.Connection:
    """Opens a store's file for its session alone, and brings it to this version (05.27).

    Args:
        path: the file; it exists, and may be empty.
        log: with a write-ahead log, under SQLite's exclusive lock, so that there is no shared memory file
            that a full disk could break; else with a rollback journal.
        corrupt: called for a corrupt file while it is still open: a connection whose file was renamed leaves
            it alone at its end, where it would else copy the log into it and remove that.

    Every commit is synced. Raises sqlite3.Error, StoreTooNew.
    """
    connection = sqlite3.connect(path, timeout=OPENER_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        ask = connection.execute
        ask("PRAGMA locking_mode = EXCLUSIVE")
        ask("PRAGMA temp_store = MEMORY")
        version = _version_of(connection)
        if version == 0:
            ask("PRAGMA auto_vacuum = INCREMENTAL")
        (mode,) = ask(f"PRAGMA journal_mode = {'WAL' if log else 'PERSIST'}").fetchone()
        if log and mode != "wal":
            raise _told_as(sqlite3.SQLITE_CANTOPEN, f"journal mode {mode}")
        ask("PRAGMA synchronous = FULL")
        ask(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        ask(f"PRAGMA wal_autocheckpoint = {ARRIVAL_PAGES}")
        _migrate(connection, version)
        for probe in (schema.COUNT_UNREAD, schema.LAST_LETTER, schema.LAST_STEP):
            ask(probe).fetchone()
    except BaseException as error:
        try:
            if code_of(error) in CORRUPT:
                corrupt()
        finally:
            connection.close()
        raise
    return connection


def open_to_read(path: str) -> sqlite3.Connection:
    """Opens the store of an ended session; writes nothing to it.

    Raises sqlite3.Error, also where there is no store or a session has it open; StoreTooNew.
    """
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    try:
        return _tried(f"file:{quoted}?mode=ro")
    except sqlite3.Error as error:
        if code_of(error) != sqlite3.SQLITE_CANTOPEN or size_of(f"{path}-wal"):
            raise
    # A folder in which no index file can be made, and no log that would need one.
    return _tried(f"file:{quoted}?mode=ro&immutable=1")


def _tried(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=READER_SECONDS)
    try:
        if _version_of(connection) == 0:
            raise _told_as(sqlite3.SQLITE_CANTOPEN, "an empty file")
    except BaseException:
        connection.close()
        raise
    return connection


def _version_of(connection: sqlite3.Connection) -> int:
    """The version of an open store; 0 for an empty file.

    Raises StoreTooNew; sqlite3.DatabaseError, told as SQLITE_NOTADB, for what is no store of ours.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != schema.APPLICATION and (tables or version):
        raise _told_as(sqlite3.SQLITE_NOTADB, "not a message store")
    if version > schema.VERSION:
        raise StoreTooNew(
            f"The message store is of version {version}, and this Postroom knows {schema.VERSION}.",
            "Use the newer Postroom; the store was left alone.",
        )
    return version


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    if version == schema.VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    for step in schema.MIGRATIONS[version:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {schema.VERSION}")
    connection.execute("COMMIT")


def _told_as(code: int, what: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = code
    return error
