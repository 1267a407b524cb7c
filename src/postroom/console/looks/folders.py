"""Looks at the folders of this user, their locks and their file systems, for `console.checks.folders`.

Nothing is made, swept or kept locked: a lock is looked at as a lister does, shared and for an instant.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

from postroom.console.checks.folders import Candidate, Folders, Room
from postroom.errors import UnfitPath
from postroom.state import files, places, processes
from postroom.state.record import is_session_id, pid_of
from postroom.state.roster import Roster
from postroom.state.store_files import file_system_of, is_network
from postroom.state.tenure import read_tenure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LOCK_SECONDS = 0.5
"""How long a registry's lock must be kept to be worth a word: others have it for milliseconds."""

_CLAIM_SECONDS = 15.0
"""How long whoever comes second waits for the first: one that is kept longer hangs."""

_PAUSE = 0.02
"""Between two looks at a lock."""

_CLAIM_BYTES = 4096
_MOST = 1000
"""Names and sockets that are looked at: more would take seconds."""

_CTL = ".ctl.sock"


def look(environ: Mapping[str, str], book: Roster | None) -> Folders:
    """Gathers the facts. Never raises for what lies in a folder.

    Args:
        environ: the environment that decides the folders.
        book: the roster of the folder that `state_chosen` names; None where there is none.
    """
    given = environ.get("POSTROOM_HOME")
    state = tuple(_state(path) for path in ([given] if given else places.state_candidates(environ)))
    sockets = tuple(_socket(path) for path in places.socket_candidates(environ))
    chosen = next((one.path for one in state if not one.reason), None)
    socket_folder = next((one.path for one in sockets if not one.reason), None)
    fallback = sockets[-1]
    fresh = fallback.there and not _judged(f"{fallback.path}-{'0' * 8}").reason
    return Folders(
        given=bool(given),
        state=state,
        state_chosen=chosen,
        sockets=sockets,
        sockets_chosen=socket_folder,
        sockets_fresh=socket_folder is None and fresh,
        rooms=tuple(_rooms(chosen, socket_folder)),
        unread=() if book is None else tuple(_unread(book)),
        locked=() if chosen is None else tuple(_locked(chosen)),
        claims=() if chosen is None else tuple(_claims(f"{chosen}/sessions")),
        names=() if chosen is None else tuple(_names(f"{chosen}/names")),
        elsewhere=tuple(_elsewhere(environ, chosen)) if chosen is not None else (),
        strays=() if not (book and chosen and socket_folder) else tuple(_strays(socket_folder, chosen, book)),
    )


def state_folder(environ: Mapping[str, str]) -> str | None:
    """The state folder that counts, as `places.state_folder` chooses it, without making it; None where none does."""
    given = environ.get("POSTROOM_HOME")
    candidates = [given] if given else places.state_candidates(environ)
    return next((os.path.normpath(path) for path in candidates if not _state(path).reason), None)


def _state(path: str) -> Candidate:
    return _judged(path)


def _socket(path: str) -> Candidate:
    try:
        places.check_length(path, os.getpid())
    except UnfitPath as error:
        return Candidate(path=path, reason=error.reason, there=os.path.lexists(path), long=True)
    return _judged(path, parents=False)


def _judged(path: str, *, parents: bool = True) -> Candidate:
    """Checks a folder as whoever opens a session does; one that is not there passes where it could be made."""
    there = os.path.lexists(path)
    try:
        files.check_folder(path)
    except UnfitPath as error:
        if error.reason == "does not exist":
            reason = _unmade(path, error.path, parents=parents)
            return Candidate(path=path, reason=reason, there=there)
        at = "" if error.path == os.path.normpath(path) else f"{error.path}: "
        return Candidate(path=path, reason=at + error.reason, hint=error.hint, there=there)
    return Candidate(path=path, there=True)


def _unmade(path: str, missing: str, *, parents: bool) -> str:
    """Why a folder that is not there could not be made; empty where it could."""
    if not parents and missing != os.path.normpath(path):
        return f"{missing}: does not exist"
    above = os.path.dirname(missing)
    return "" if os.access(above, os.W_OK | os.X_OK) else f"it cannot be made in {above}"


def _rooms(*folders: str | None) -> Iterator[Room]:
    seen: set[int] = set()
    for place, folder in enumerate(folders):
        path = folder
        while path and not os.path.lexists(path):
            path = os.path.dirname(path)
        if not path:
            continue
        try:
            device, room = os.stat(path).st_dev, os.statvfs(path)
        except OSError:
            continue
        if device in seen:
            continue
        seen.add(device)
        kind = file_system_of(path)
        yield Room(
            path=folder or path,
            kind=kind,
            network=place == 0 and is_network(kind),
            read_only=bool(room.f_flag & os.ST_RDONLY),
            # A socket takes no room but its inode's.
            free_bytes=room.f_bavail * room.f_frsize if place == 0 else None,
            free_files=room.f_favail if room.f_files else None,
        )


def _unread(book: Roster) -> Iterator[tuple[str, str]]:
    if os.path.lexists(book.sessions):
        yield from book.scan(sweep=False).unchecked


def _locked(state: str) -> Iterator[tuple[str, str]]:
    """The registry's locks that stay taken, or that can be no locks."""
    waiting = {f"{state}/{name}/.lock" for name in ("sessions", "names")}
    end = time.monotonic() + _LOCK_SECONDS
    while waiting:
        for path in sorted(waiting):
            try:
                if files.probe(path):
                    continue
            except FileNotFoundError:
                pass
            except UnfitPath as error:
                yield path, f"nobody can take it: {error.reason}"
            waiting.discard(path)
        if waiting and time.monotonic() > end:
            break
        if waiting:
            time.sleep(_PAUSE)
    for path in sorted(waiting):
        yield path, holder_of(path)


def holder_of(path: str) -> str:
    """Which living process took the lock on a file, as the kernel lists it: `process 4711`; empty: not known."""
    try:
        found = os.stat(path)
        with open("/proc/locks", encoding="ascii", errors="replace") as locks:
            lines = locks.read().splitlines()
    except OSError:
        return ""
    end = f":{found.st_ino}"
    for line in lines:
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(end) and words[4].isdecimal():
            pid = int(words[4])
            if processes.exists(pid):
                return f"process {pid}"
    return ""


def _claims(sessions: str) -> Iterator[tuple[str, str]]:
    """Claims of a client's session that somebody has kept for longer than an opening takes."""
    try:
        entries = sorted(name for name in os.listdir(sessions) if name.startswith(".claim-"))[:_MOST]
    except OSError:
        return
    for name in entries:
        path = f"{sessions}/{name}"
        try:
            if time.time() - os.lstat(path).st_mtime > _CLAIM_SECONDS and files.probe(path):
                yield path, holder_of(path)
        except (OSError, UnfitPath):
            continue


def _names(folder: str) -> Iterator[tuple[str, str]]:
    """Claims of names that must not be trusted, or that say nothing."""
    try:
        entries = sorted(os.listdir(folder))[:_MOST]
    except OSError:
        return
    for entry in entries:
        if entry == ".lock" or files.is_temporary(entry):
            continue
        path = f"{folder}/{entry}"
        try:
            lines = files.read_private(path, _CLAIM_BYTES).decode("utf-8", "replace").split("\n")
        except FileNotFoundError:
            continue
        except UnfitPath as error:
            yield path, error.reason
            continue
        if len(lines) < 3 or not is_session_id(lines[0]):
            yield path, "it does not say whose name that is"


def _elsewhere(environ: Mapping[str, str], chosen: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Other state folders of this user, below which sessions live."""
    here = os.path.realpath(chosen)
    for path in places.state_candidates(environ):
        if os.path.realpath(path) == here or not os.path.lexists(path):
            continue
        try:
            files.check_folder(path)
        except UnfitPath:
            continue
        if names := tuple(record.name for record in Roster(path).scan(sweep=False).live):
            yield path, names


def _strays(folder: str, state: str, book: Roster) -> Iterator[tuple[str, str]]:
    """Control sockets of living processes in the folder for sockets that no record here accounts for."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_CTL))[:_MOST]
    except OSError:
        return
    known = {record.messaging_socket_path for record in book.scan(sweep=False).live}
    tenures = (read_tenure(f"{book.folder(each)}/lock") for each in book.session_ids())
    ours = {tenure.pid for tenure in tenures if tenure is not None}
    for name in names:
        stem = name.removesuffix(_CTL)
        pid = pid_of(stem)
        if pid is None or pid in ours or f"{folder}/{stem}.sock" in known or not processes.exists(pid):
            continue
        where = _state_of(pid)
        if os.path.realpath(where) != os.path.realpath(state) and answers(f"{folder}/{name}"):
            yield f"{folder}/{stem}.sock", where


def answers(path: str) -> bool:
    """Whether somebody listens at a socket of ours: it is connected to, and nothing is written."""
    try:
        files.check_file(path, socket=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.setblocking(False)
            line.connect(path)
    except BlockingIOError:
        return True  # so many wait already
    except (OSError, UnfitPath):
        return False
    return True


def _state_of(pid: int) -> str:
    """The state folder that a process's environment names; empty where that is this one, or not to be seen."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = [pair.partition(b"=") for pair in file.read(262_144).split(b"\0")]
    except OSError:
        return ""
    environ = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs if name}
    return state_folder(environ) or ""
