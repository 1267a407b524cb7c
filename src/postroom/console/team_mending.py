"""`postroom team repair`: what killed writers left in a team's folders, and what could not be delivered (07.22, 07.23).

What it removes: locks that are left over, and temporary files whose writers are gone. What it writes: what
`TaskList.repair` mends. What it lists and leaves for a person: quarantined mail, copies of damaged files, damaged tasks.

What it never does: write over a config that cannot be read, touch the folder of another team, take mail, or break a
lock that somebody holds.

How it fails: `UnfitPath` for a folder that must not be used; everything else is a sentence among the problems, and the
rest is mended all the same.
"""

from __future__ import annotations

import os
import re
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postroom.console.team_view import NoTeam
from postroom.errors import PostroomError, UnfitPath
from postroom.present import one_line
from postroom.state import files, locks
from postroom.state.locks import NotLocked
from postroom.state.team_files import DIRECTORY_LOCK, FILE_LOCK, OtherTeam
from postroom.state.teams import files_of, tasks_of
from postroom.transports.mailbox import Mailbox

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroom.present import Document
    from postroom.state.teams import Places

__all__ = ["Mended", "document", "repair", "text"]

_LOCK_SECONDS = 20.0
"""How long one lock is waited for, as for every writer of ours (07.3)."""

_MAIL = re.compile(r"([A-Za-z0-9_-]{1,64})\.json(?:\..*)?", re.DOTALL)
_TASK_LOCK = re.compile(r"(?:[0-9]+\.json|\.lock)\.lock")


@dataclass(slots=True, kw_only=True)
class Mended:
    """What `repair` found.

    Attributes:
        team: its name.
        removed: paths that are gone.
        kept: (path, kind, bytes) of what a person may want to look at.
        tasks: what was found of the tasks, a sentence each.
        problems: what is still wrong, a sentence each.
        code: of the first of them; empty where there is none.
    """

    team: str
    removed: list[str] = field(default_factory=list[str])
    kept: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    tasks: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])
    code: str = ""

    def wrong(self, sentence: str, code: str) -> None:
        """Adds a problem."""
        self.problems.append(sentence)
        self.code = self.code or code


def repair(places: Places, name: str) -> Mended:
    """Mends one team (07.22).

    Args:
        places: where teams and tasks lie.
        name: of the team, in full.

    Raises InvalidName, NoTeam, and UnfitPath for a folder that must not be used or is another team's.
    """
    found = files_of(places, name)
    mended = Mended(team=name)
    try:
        there = found.read() is not None
    except OtherTeam:
        raise
    except UnfitPath as error:
        there = found.mark() is not None  # the folder is fit, or there would be no mark to ask for
        if not there or error.path != found.path:
            raise
        mended.wrong(f"{error.message} {error.hint}".rstrip(), error.code)
    listed = tasks_of(places, name)
    if not there and not os.path.lexists(listed.folder):
        raise NoTeam(f"There is no team {one_line(name)}, and no list of tasks of that name.")
    if there:
        _locks(mended, found.folder, f"{found.folder}/{FILE_LOCK}", re.compile(re.escape(DIRECTORY_LOCK)))
        _mail(mended, found.inboxes, shared=places.shared)
    try:
        mended.tasks += listed.repair()
        _locks(mended, listed.folder, f"{listed.folder}/.lock", _TASK_LOCK)
    except PostroomError as error:
        mended.wrong(error.message, error.code)
    return mended


def _mail(mended: Mended, folder: str, *, shared: bool) -> None:
    """Every mailbox, and what is left of one."""
    try:
        files.check_own_folder(folder, readable=shared)
    except FileNotFoundError:
        return
    except UnfitPath as error:
        mended.wrong(error.message, error.code)
        return
    names = {match[1] for match in map(_MAIL.fullmatch, _names(folder)) if match}
    for name in sorted(names) or ["team-lead"]:
        for one in Mailbox(folder, name, shared=shared).repair():
            path = f"{folder}/{one.name}"
            if one.removed:
                mended.removed.append(path)
            elif one.kind in ("quarantine", "damaged"):
                mended.kept.append((path, one.kind, one.size))
            else:
                mended.wrong(f"{path} could not be removed.", "store_failed")


def _locks(mended: Mended, folder: str, file_lock: str, called: re.Pattern[str]) -> None:
    """Directory locks in one folder that are left over: each is broken by taking it once."""
    for name in _names(folder):
        path = f"{folder}/{name}"
        if locks.is_aside(name):
            if locks.remove_aside(path):
                mended.removed.append(path)
        elif called.fullmatch(name) and _is_old(path):
            try:
                with locks.held(file_lock, path, seconds=_LOCK_SECONDS):
                    pass
            except (NotLocked, UnfitPath) as error:
                mended.wrong(f"{path} could not be removed: {error.reason}.", "store_failed")
            else:
                mended.removed.append(path)


def _names(folder: str) -> Iterator[str]:
    try:
        yield from sorted(os.listdir(folder))
    except OSError:
        return


def _is_old(path: str) -> bool:
    """Whether it is a directory lock that nobody has renewed for so long that it is left over."""
    try:
        state = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(state.st_mode) and time.time() - state.st_mtime > locks.STALE_SECONDS


def document(mended: Mended) -> Document:
    """What `team repair --json` prints."""
    return {
        "team": mended.team,
        "removed": mended.removed,
        "kept": [{"path": path, "kind": kind, "bytes": size} for path, kind, size in mended.kept],
        "tasks": mended.tasks,
        "problems": mended.problems,
    }


_KINDS = {
    "quarantine": "entries that could not be used, one a line",
    "damaged": "a copy of a file that did not parse",
}


def text(mended: Mended) -> str:
    """What `team repair` prints."""
    lines = [f"removed: {path}" for path in mended.removed]
    lines += [f"kept: {path} ({size:,} bytes): {_KINDS[kind]}" for path, kind, size in mended.kept]
    lines += [f"tasks: {each}" for each in mended.tasks]
    lines += [f"problem: {each}" for each in mended.problems]
    if not lines:
        lines.append(f"Nothing was left over in {mended.team}.")
    return "".join(f"{one_line(line)}\n" for line in lines)
