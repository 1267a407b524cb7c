"""Looks at every session's record, lock, sockets and store, and asks those that live, for `console.checks.sessions`.

Nothing is swept, opened or written: a lock is looked at for an instant, an inbox is connected to and left again, and
of a store only its first bytes are read.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from postroom import __version__
from postroom.console.checks.sessions import Left, Live, Sessions, Stored
from postroom.console.looks.answers import Answer, Question, ask_all
from postroom.console.looks.folders import answers
from postroom.console.looks.machine import namespace_of
from postroom.errors import BadFrame, UnfitPath
from postroom.state import files, processes, schema
from postroom.state.journal import FILE
from postroom.state.record import MAX_RECORD, from_json, pid_of
from postroom.state.store_files import check_companions
from postroom.state.tenure import read_client_token, read_tenure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from postroom.state.record import Record
    from postroom.state.roster import Roster, Scan

_NEW_SECONDS = 2.0
"""A session that took its lock so short a time ago may just be opening: its record comes last."""

_MOST_FOLDERS = 5000
"""Sessions whose stores are looked at: those of a month, even where tests open hundreds."""

_MOST_DESCRIPTORS = 100_000
"""Descriptors of processes that are looked through for who keeps a lock."""

_MAGIC = b"SQLite format 3\0"

_LISTED = "listed, but not reachable: "
"""How the roster begins the reason of a session that lives and whose socket cannot be used."""


def look(book: Roster) -> Sessions:
    """Gathers the facts. Never raises for what lies in a folder or answers on a socket."""
    scan = book.scan(sweep=False)
    live = tuple(_asked(book, scan))
    stores = list(_stores(book, {one.id for one in live}))
    return Sessions(
        version=__version__,
        store_version=schema.VERSION,
        live=live,
        left=tuple(_left(scan)),
        stale=_stale(book, scan),
        unlisted=tuple(_unlisted(book, scan)),
        kept=tuple(_kept(book)),
        stores=tuple(one for one in stores if one.unfit or one.unread or one.newer or one.aside),
        folders=len(stores),
    )


# ── records ──────────────────────────────────────────────────────────────────────────────────────


def _left(scan: Scan) -> Iterator[tuple[str, Left, str]]:
    """What the scan passed over, by what is the matter with it."""
    unfit = set(scan.unfit)
    for entry in scan.skipped:
        file, reason = entry
        if reason.startswith(_LISTED):
            continue
        kind: Left = "unfit" if entry in unfit else "unjudged"
        if reason == "written by a newer version":
            kind = "newer"
        elif reason.startswith("no lock of ours"):
            kind = "foreign"
        yield file, kind, reason


def _stale(book: Roster, scan: Scan) -> int:
    """How many records are provably dead: those that the scan neither lists nor passes over."""
    if scan.unchecked:
        return 0
    try:
        names = [name for name in os.listdir(book.sessions) if name.endswith(".json")]
    except OSError:
        return 0
    over = [reason for _, reason in scan.skipped if not reason.startswith(_LISTED)]
    return max(0, len(names) - len(scan.live) - len(over))


def _unlisted(book: Roster, scan: Scan) -> Iterator[tuple[str, str]]:
    """Sessions that hold their lock and have no record, those apart that are just opening."""
    if scan.unchecked:
        return  # nobody is, and that is said already
    listed = {record.session_id for record in scan.live}
    named = {pid_of(file.removesuffix(".json")) for file, kind, _ in _left(scan) if kind != "foreign"}
    for session_id in book.session_ids():
        if session_id in listed or not book.lives(session_id):
            continue
        lock = f"{book.folder(session_id)}/lock"
        tenure = read_tenure(lock)
        try:
            new = time.time() - os.lstat(lock).st_mtime < _NEW_SECONDS
        except OSError:
            continue
        if tenure is not None and tenure.pid not in named and not new:
            yield session_id, book.names.known(session_id).name or session_id


def _kept(book: Roster) -> Iterator[tuple[str, str, int, tuple[int, ...]]]:
    try:
        kept = book.kept_locks()
    except (OSError, UnfitPath):
        return
    for session_id, pid in kept:
        name = book.names.known(session_id).name or session_id
        yield session_id, name, pid, tuple(_who_has_open(f"{book.folder(session_id)}/lock"))


def _who_has_open(path: str) -> Iterator[int]:
    """The processes of this user that have a file open."""
    looked = 0
    real = os.path.realpath(path)
    try:
        pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    except OSError:
        return
    for pid in pids:
        try:
            numbers = os.listdir(f"/proc/{pid}/fd") if pid != os.getpid() else []
        except OSError:
            continue
        looked += len(numbers)
        if looked > _MOST_DESCRIPTORS:
            return
        for number in numbers:
            try:
                if os.readlink(f"/proc/{pid}/fd/{number}") == real:
                    yield pid
                    break
            except OSError:
                continue


# ── asking ───────────────────────────────────────────────────────────────────────────────────────


def _asked(book: Roster, scan: Scan) -> Iterator[Live]:
    """Every session that lives, with what it answered."""
    trouble = dict(_troubles(book, scan))
    tokens = {record.session_id: _token(book, record) for record in scan.live}
    questions: list[Question] = []
    where: dict[str, int] = {}
    for record in scan.live:
        token = tokens[record.session_id]
        if record.messaging_socket_path is not None and isinstance(token, tuple):
            where[record.session_id] = len(questions)
            questions.append(Question(path=token[1], token=token[0], argv=("doors", "--json")))
    answered = ask_all(questions)
    domain, mount = processes.pid_domain(), namespace_of("self", "mount")
    for record in scan.live:
        token = tokens[record.session_id]
        at = where.get(record.session_id)
        answer = answered[at] if at is not None else Answer()
        if answer.why and not book.is_live(record):
            continue  # it ended while it was asked
        theirs = namespace_of(record.pid, "mount") if record.pid_domain == domain else ""
        path = record.messaging_socket_path or ""
        yield Live(
            id=record.session_id,
            name=record.name,
            pid=record.pid,
            version=record.version,
            program=record.entrypoint,
            kind=record.kind,
            cwd=record.cwd,
            inbox=path,
            unreachable="" if path else trouble.get(record.session_id, ""),
            listens=not path or answers(path),
            mount=theirs if mount and theirs != mount else "",
            client=None if record.client_pid is None else (record.client_pid, record.client_start or ""),
            why=answer.why,
            code=answer.code,
            reason=answer.reason,
            token=token if isinstance(token, str) and path else "",
            status=answer.document,
        )


def _troubles(book: Roster, scan: Scan) -> Iterator[tuple[str, str]]:
    """(session id, why its socket cannot be used) of each that is listed all the same."""
    for file, reason in scan.skipped:
        if reason.startswith(_LISTED):
            try:
                record = from_json(files.read_private(f"{book.sessions}/{file}", MAX_RECORD))
            except (FileNotFoundError, UnfitPath, BadFrame):
                continue  # it went away meanwhile
            yield record.session_id, reason.removeprefix(_LISTED)


def _token(book: Roster, record: Record) -> tuple[str, str] | str:
    """The client token of a session and its control socket; a sentence where they cannot be had."""
    folder = book.folder(record.session_id)
    path = f"{folder}/client.token"
    try:
        files.check_own_folder(folder)
        files.check_file(path, folder=False)
    except FileNotFoundError:
        return f"{path} is gone"
    except UnfitPath as error:
        return f"{error.path}: {error.reason}"
    return read_client_token(folder) or f"{path} does not say where the session is reached"


# ── stores ───────────────────────────────────────────────────────────────────────────────────────


def _stores(book: Roster, live: set[str]) -> Iterator[Stored]:
    for session_id in book.session_ids()[:_MOST_FOLDERS]:
        folder = book.folder(session_id)
        unfit, unread, newer = _store(folder, live=session_id in live)
        yield Stored(
            id=session_id,
            name=book.names.known(session_id).name or session_id,
            path=f"{folder}/{FILE}",
            live=session_id in live,
            unfit=unfit,
            unread=unread,
            newer=newer,
            aside=tuple(_aside(folder)),
        )


def _aside(folder: str) -> Iterable[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return ()
    ended = ("-wal", "-journal")
    return sorted(name for name in names if name.startswith(f"{FILE}.corrupt-") and not name.endswith(ended))


def _store(folder: str, *, live: bool) -> tuple[str, str, int]:
    """Looks at a store from outside: (why it must not be trusted, why it cannot be read, its version if newer)."""
    path = f"{folder}/{FILE}"
    try:
        files.check_own_folder(folder)
        files.check_file(path, folder=False)
        check_companions(path)
        with open(path, "rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        return "", "it is gone, and the session writes to a file without a name" if live else "", 0
    except UnfitPath as error:
        return f"{error.path}: {error.reason}", "", 0
    except OSError as error:
        return "", error.strerror or "it cannot be read", 0
    if not head:
        return "", "", 0
    version, application = (int.from_bytes(head[at : at + 4], "big") for at in (60, 68))
    if not head.startswith(_MAGIC) or application not in (0, schema.APPLICATION):
        return "", "it is no message store", 0
    return "", "", version if version > schema.VERSION else 0
