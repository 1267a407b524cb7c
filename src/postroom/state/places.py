"""Where the state and the sockets of this user lie.

What it decides: the first candidate that passes the check of `files` (05.2, 05.5, 05.8). It makes the folder
where it is missing. What it never does: print, or choose a folder that the person named and that is unfit by
passing it over: `POSTROOM_HOME` counts or fails.

How it fails: a candidate that does not pass is left out and returned with its reason; when none passes the
path is None, and the session runs without an inbox and says so (05.6).

What is weak: two sessions that see different environments find different folders, and so not each other.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.errors import UnfitPath
from postroom.state import files

if TYPE_CHECKING:
    from collections.abc import Mapping

TMP = "/tmp"
"""Where sockets lie when there is no runtime folder (05.5): on every machine, and cleared at a boot."""

FRESH_TRIES = 3
"""Random names tried for a folder that must be new: two clashes in 2^32 do not happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which folder was found, and which were not taken.

    Attributes:
        path: the folder; None when no candidate passed.
        skipped: (path, reason) of each candidate that was passed over, in order (05.6).
    """

    path: str | None
    skipped: tuple[tuple[str, str], ...] = ()


def state_folder(environ: Mapping[str, str]) -> Place:
    """Finds the state folder and makes it where it is missing (05.2).

    `$POSTROOM_HOME`; else `$XDG_STATE_HOME/postroom`, else `~/.local/state/postroom`, the first that passes.

    Raises UnfitPath where `POSTROOM_HOME` is given and unfit: it is never skipped (05.7).
    """
    given = environ.get("POSTROOM_HOME")
    if given:
        files.private_folder(given)
        return Place(path=os.path.normpath(given))
    skipped: list[tuple[str, str]] = []
    for candidate in state_candidates(environ):
        if _passes(candidate, skipped, parents=True):
            return Place(path=os.path.normpath(candidate), skipped=tuple(skipped))
    if not (environ.get("HOME") or _home()):
        skipped.append(("~", "no home folder is known for this user"))
    return Place(path=None, skipped=tuple(skipped))


def state_candidates(environ: Mapping[str, str]) -> list[str]:
    """The state folders that are tried where `POSTROOM_HOME` names none, in order (05.2); none is made or looked at."""
    candidates: list[str] = []
    if base := environ.get("XDG_STATE_HOME"):
        candidates.append(os.path.join(base, "postroom"))
    if home := environ.get("HOME") or _home():
        candidates.append(os.path.join(home, ".local/state/postroom"))
    return candidates


def needed_state_folder(environ: Mapping[str, str]) -> tuple[str, Place]:
    """Finds the state folder, for whoever cannot do without: its path, and what was passed over.

    Raises UnfitPath, which names every candidate and its reason, where none passes (05.6).
    """
    place = state_folder(environ)
    if place.path is None:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in place.skipped)
        raise UnfitPath(
            "the state folder", f"none can be trusted ({reasons})", "Set POSTROOM_HOME to one that can."
        )
    return place.path, place


def socket_folder(environ: Mapping[str, str], pid: int | None = None) -> Place:
    """Finds the folder for sockets and makes it where it is missing (05.5).

    `$XDG_RUNTIME_DIR/postroom`, else `/tmp/postroom-<uid>`; where that exists and does not pass (another user
    made it first), `/tmp/postroom-<uid>-<8 hex>`, made new (05.8). A folder in which the path of this
    process's control socket would have over 103 bytes is passed over (05.7).

    Args:
        environ: the environment.
        pid: the process that will listen; by default this one.

    Returns the folder, or None with the reasons: the session then runs without an inbox.
    """
    pid = pid or os.getpid()
    skipped: list[tuple[str, str]] = []
    candidates = socket_candidates(environ)
    base = candidates[-1]
    for candidate in candidates:
        if _passes(candidate, skipped, parents=False, pid=pid):
            return Place(path=os.path.normpath(candidate), skipped=tuple(skipped))
    if os.path.lexists(base):
        for _ in range(FRESH_TRIES):
            fresh = f"{base}-{os.urandom(4).hex()}"
            if not os.path.lexists(fresh) and _passes(fresh, skipped, parents=False, pid=pid):
                return Place(path=fresh, skipped=tuple(skipped))
    return Place(path=None, skipped=tuple(skipped))


def socket_candidates(environ: Mapping[str, str]) -> list[str]:
    """The folders for sockets that are tried, in order, the fallback last (05.5); none is made or looked at."""
    base = f"{TMP}/postroom-{os.geteuid()}"
    runtime = environ.get("XDG_RUNTIME_DIR")
    return [os.path.join(runtime, "postroom"), base] if runtime else [base]


def leave_socket_folder(path: str) -> None:
    """Removes a socket folder that `socket_folder` made new, once it is empty; any other stays (05.8)."""
    start, _, end = os.path.basename(path).rpartition("-")
    if start == f"postroom-{os.geteuid()}" and len(end) == 8:
        try:
            os.rmdir(path)
        except OSError:
            pass


def _passes(candidate: str, skipped: list[tuple[str, str]], *, parents: bool, pid: int = 0) -> bool:
    """Makes and checks one candidate; where it does not pass, `skipped` says why."""
    try:
        if pid:
            check_length(candidate, pid)
        files.private_folder(candidate, parents=parents)
    except UnfitPath as error:
        at = "" if error.path == os.path.normpath(candidate) else f"{error.path}: "
        skipped.append((candidate, at + error.reason))
        return False
    return True


def check_length(folder: str, pid: int) -> None:
    """Checks the longest path that a session of this process would need in a folder (05.7). Raises UnfitPath."""
    size = len(os.fsencode(f"{folder}/{pid}-{'0' * 8}.ctl.sock"))
    if size > files.CONTROL_PATH_LIMIT:
        raise UnfitPath(
            folder,
            f"a control socket in it would have a path of {size} bytes, and {files.CONTROL_PATH_LIMIT} is the limit",
        )


def _home() -> str:
    """The home folder that the user database names; empty where it knows none."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""
