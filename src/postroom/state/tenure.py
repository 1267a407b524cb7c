"""Who is a session right now: its lock, what the lock says, and the client's token beside it.

A session lives while a process holds the lock in its folder (05.11). The lock file says which process took
it last, on which boot and in which pid namespace, and, once the session has ended, when. So a record can be
recognised as older than the lock's holder, and a lock that only a forked child still has can be told from one
that is held by the session.

What it decides: whether a session may be taken (`take_session_lock`). It never judges a record.

How it fails: `SessionInUse` while the session lives; `UnfitPath`, `StoreFailed` from `files`. A lock file that
says nothing sensible says nothing.

What is weak: between taking a lock and writing into it the file still names the holder before. Any program of
this user can read the client's token; it keeps other users out and agents honest, and stops no malware (05.26).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from postroom.errors import SessionInUse, StoreFailed, UnfitPath
from postroom.state import files, processes

MAX_TENURE = 4096
"""Bytes of a lock file, a token file: ours have at most 300."""

GUARD_SECONDS = 1.0
"""How long a resumer waits for the registry's lock to replace a lock that a child keeps."""

_SIGNS = ("lock", "log", "store.db", "store.db-wal")
"""The files of a session's folder that its process writes while it lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """What a lock file says.

    Attributes:
        pid, start: the process that took the lock last; `start` is empty where it was not known.
        boot_id, pid_domain: where these count.
        ended_at: when the session ended, epoch milliseconds; None while it runs, or where nobody noted it.
    """

    pid: int
    start: str
    boot_id: str
    pid_domain: str
    ended_at: int | None = None

    def to_bytes(self) -> bytes:
        """Writes it, one value a line."""
        ended = "" if self.ended_at is None else str(self.ended_at)
        return f"{self.pid}\n{self.start}\n{self.boot_id}\n{self.pid_domain}\n{ended}\n".encode()

    def holder_gone(self, boot_id: str, pid_domain: str) -> bool:
        """Whether the process that took the lock is provably gone: what is still locked a forked child keeps."""
        return (self.boot_id, self.pid_domain) == (boot_id, pid_domain) and (
            processes.alive(self.pid, self.start) is False
        )


def parse_tenure(data: bytes) -> Tenure | None:
    """Reads what a lock file says; None for anything else."""
    try:
        pid, start, boot_id, pid_domain, ended, _ = data.decode().split("\n")
        return Tenure(
            pid=int(pid),
            start=start,
            boot_id=boot_id,
            pid_domain=pid_domain,
            ended_at=int(ended) if ended else None,
        )
    except ValueError:
        return None


def read_tenure(path: str) -> Tenure | None:
    """Reads what the lock file at `path` says; None where it says nothing, or is not there."""
    try:
        return parse_tenure(files.read_private(path, MAX_TENURE))
    except (FileNotFoundError, UnfitPath):
        return None


def take_session_lock(folder: str, seconds: float = files.OPENER_SECONDS) -> files.Lock:
    """Takes the lock of a session: from now on it lives in this process (05.11, 05.12).

    A lock that only a forked child of a process that is gone still has does not stop it: a new lock file takes
    the place of that one.

    Args:
        folder: the session's own folder, below the registry; it was made and checked before.
        seconds: how long to try: a lister may hold the lock for an instant.

    Returns the lock, held. Raises SessionInUse while the session lives elsewhere, UnfitPath, StoreFailed.
    """
    pid = os.getpid()
    tenure = Tenure(
        pid=pid,
        start=processes.start_of(pid) or "",
        boot_id=processes.boot_id(),
        pid_domain=processes.pid_domain(),
    )
    lock = files.Lock(os.path.join(folder, "lock"))
    if lock.acquire(seconds):
        lock.write(tenure.to_bytes())
    else:
        _replace(lock, tenure)
    return lock


def _replace(lock: files.Lock, tenure: Tenure) -> None:
    """Takes a lock that somebody holds, if its holder is gone. One resumer at a time, under the registry's lock."""
    folder = os.path.dirname(lock.path)
    guard = files.Lock(os.path.join(os.path.dirname(folder), ".lock"))
    try:
        guarded = guard.acquire(GUARD_SECONDS)
        if guarded and lock.acquire(0):
            lock.write(tenure.to_bytes())
            return
        there = read_tenure(lock.path)
        if guarded and there is not None and there.holder_gone(tenure.boot_id, tenure.pid_domain):
            lock.replace(tenure.to_bytes())
            return
    finally:
        guard.release()
    raise SessionInUse(
        f"The session {os.path.basename(folder)} runs in another process.",
        "Close it there first, or open another one.",
    )


def last_sign(folder: str) -> int:
    """Returns when a session's process last wrote into its folder, epoch milliseconds; 0 where nothing tells."""
    latest = 0
    for name in _SIGNS:
        try:
            latest = max(latest, os.lstat(os.path.join(folder, name)).st_mtime_ns)
        except OSError:
            continue
    return latest // 1_000_000


def note_end(folder: str, published: int) -> None:
    """Writes into a killed session's lock when it ended, as far as its files tell (02.13).

    Nothing happens while somebody has the lock, or where it cannot be written: when it ended is then read off
    the files each time.

    Args:
        folder: the session's own folder.
        published: when it last published its record, epoch milliseconds.
    """
    lock = files.Lock(os.path.join(folder, "lock"))
    try:
        if lock.acquire(0):
            tenure = read_tenure(lock.path)
            if tenure is not None and tenure.ended_at is None:
                lock.write(replace(tenure, ended_at=max(last_sign(folder), published)).to_bytes())
    except (OSError, UnfitPath, StoreFailed):
        pass
    finally:
        lock.release()


def write_client_token(folder: str, token: str, control_path: str) -> None:
    """Writes `client.token`: the token and, on a second line, the control socket that knows it (05.26).

    So a command needs one read to reach a session. Raises StoreFailed.
    """
    files.write_atomic(os.path.join(folder, "client.token"), f"{token}\n{control_path}\n".encode())


def read_client_token(folder: str) -> tuple[str, str] | None:
    """Reads `client.token`: (token, path of the control socket); None where there is none to be had."""
    try:
        lines = files.read_private(os.path.join(folder, "client.token"), MAX_TENURE).decode().split("\n")
    except (FileNotFoundError, UnfitPath, UnicodeDecodeError):
        return None
    return (lines[0], lines[1]) if len(lines) == 3 and lines[0] and lines[1] else None


def write_opener(folder: str, opener: str) -> None:
    """Writes down whose process opened a session: that one may deal with what it leaves (05.26). Raises StoreFailed.

    Args:
        folder: the session's own folder.
        opener: the id of the session whose process opened it.
    """
    files.write_atomic(os.path.join(folder, "opener"), opener.encode())


def read_opener(folder: str) -> str | None:
    """The id of the session whose process opened this one; None where none did, or nothing tells."""
    try:
        return files.read_private(os.path.join(folder, "opener"), MAX_TENURE).decode() or None
    except (FileNotFoundError, UnfitPath, UnicodeDecodeError):
        return None
