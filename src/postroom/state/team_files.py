"""The folder of one team: its `config.json`, read, changed and removed beside programs that do the same (07.21, 07.22).

    <teams>/<team>/config.json           the members; replaced as a whole at each change
    <teams>/<team>/.config.lock          whose turn it is among ours
    <teams>/<team>/config.json.lock      a directory: whose turn it is among all programs; where the folder is shared
    <teams>/<team>/inboxes/              what `transports.mailbox` writes

What it decides: whether the folder and the file can be used: no symlinks, this user's, closed to others (05.6); where
other programs write too, others may look into it. And whether they are this team's: the name in the config is the
team's, and the session in it the lead's, where that is known (07.8).

What it never does: write over a config that it cannot read, that is another team's, or that changed since it was read:
then it is read anew and the change made anew, a few times. It touches no tasks, and follows no symlink.

How it fails: `Damaged`, `OtherTeam` and other `UnfitPath` with the reason; `NotLocked` where the turn did not come;
`StoreFailed` where it could not be written: then what was there stays. A team that is not there is None.

What is weak: a program that takes no locks may write in the moment between the last look and the rename. Everything here
blocks its thread: on an event loop, call it in another.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

from postroom.core.team import check_team_name, folder_of
from postroom.core.teamfile import Unreadable, encode, parse
from postroom.errors import StoreFailed, UnfitPath
from postroom.state import files
from postroom.state.locks import LockLost, NotLocked, held

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from postroom.core.team import Team
    from postroom.state.locks import Held

__all__ = ["Damaged", "LockLost", "NotLocked", "OtherTeam", "TeamFiles"]

MAX_CONFIG = 16 * 1024 * 1024
"""Bytes of a config: two hundred members with prompts of 80,000 characters each."""

LOCK_SECONDS = 20.0
"""How long a change waits for its turn, as a mailbox's writer does (07.3)."""

TRIES = 5
"""How often a change begins anew because the config, the folder or a lock was another one in the end."""

LOOK_AGAIN_SECONDS = 0.1
"""After this a config that cannot be read is read once more: some programs write theirs in place."""

CONFIG, INBOXES = "config.json", "inboxes"
FILE_LOCK, DIRECTORY_LOCK = ".config.lock", "config.json.lock"

PRIVATE, READABLE = 0o600, 0o644
"""The mode of a config that we make, and the most that one keeps which another program made."""

Mark = tuple[int, int, int, int, int]


class Damaged(UnfitPath):
    """A config that cannot be read: it is left as it is, for a person to mend or to move aside (07.22)."""


class OtherTeam(UnfitPath):
    """The folder has the config of another team (07.8)."""


class _Again(Exception):
    """Something was another one in the end; nothing was written."""


class TeamFiles:
    """The folder of one team. It remembers nothing, so any thread may use it.

    Args:
        teams_folder: the folder of all teams, absolute.
        team: the team's name, in full.
        shared: other programs write there too: their lock is taken besides ours, and others may look into it.
        lead_session_id: whose team it must be; empty: anybody's.
        seconds: how long a change waits for its turn.

    Raises InvalidName for a name that can be no team's.

    Attributes:
        folder: the team's.
        path: of its config: what a watcher watches.
        inboxes: the folder of its inboxes.
    """

    def __init__(
        self,
        teams_folder: str,
        team: str,
        *,
        shared: bool,
        lead_session_id: str = "",
        seconds: float = LOCK_SECONDS,
    ) -> None:
        self.teams_folder = teams_folder
        self.team = check_team_name(team)
        self.shared = shared
        self.lead_session_id = lead_session_id
        self.seconds = seconds
        self.folder = f"{teams_folder}/{folder_of(team)}"
        self.path = f"{self.folder}/{CONFIG}"
        self.inboxes = f"{self.folder}/{INBOXES}"

    def mark(self) -> Mark | None:
        """A value that differs once the config was written; None where there is none. It raises nothing."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return None
        return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def read(self) -> Team | None:
        """Reads the team; None where there is none (07.22). It takes no lock.

        Raises UnfitPath: Damaged, OtherTeam, or a folder or a file that must not be trusted.
        """
        found = self._read() if self._is_there() else None
        return None if found is None else found[0]

    def change(self, step: Callable[[Team | None], Team | None]) -> Team | None:
        """Changes the team in its turn (07.22).

        Args:
            step: given the team as it is, or None where there is none, answers the team as it shall be; None: it stays
                as it is. It may be asked several times, each time anew, and must do nothing else.

        Returns the team as it is now; None where there is none. A folder is made for a team that there was not.

        Raises as `read`, NotLocked, StoreFailed, and what `step` raises: then nothing was written.
        """
        for _ in range(TRIES):
            try:
                if not self._is_there():
                    if step(None) is None:
                        return None
                    self._make()
                with self._turn() as lock:
                    return self._changed(step, lock)
            except (LockLost, _Again, FileNotFoundError):
                continue
            except (NotLocked, StoreFailed):
                if os.path.lexists(self.folder):
                    raise
        raise StoreFailed(f"{self.path} changes as often as it is read; nothing was written.")

    def remove(self) -> bool:
        """Removes the team's folder, at a clean end of its lead; False where there is no team (07.22).

        It goes by one rename, so that nobody sees half of it, and is then taken apart. Whatever could not be taken
        apart is tried again the next time.

        Raises as `change`: a config that is damaged or another team's is not removed.
        """
        for _ in range(TRIES):
            if not self._is_there():
                return False
            try:
                with self._turn() as lock:
                    if self._read() is None:
                        return False
                    lock.check()
                    self._move_aside()
            except LockLost:
                continue
            except (NotLocked, StoreFailed):
                if os.path.lexists(self.folder):
                    raise
                return False
            self._take_apart()
            return True
        raise StoreFailed(f"The lock of {self.path} is lost as often as it is taken; nothing was removed.")

    # ── the folder ───────────────────────────────────────────────────────────────────────────────

    def _is_there(self) -> bool:
        """Whether the team's folder is there; it is fit then. Raises UnfitPath."""
        if not os.path.lexists(self.teams_folder):
            return False
        files.check_folder(self.teams_folder, readable=self.shared)
        try:
            files.check_own_folder(self.folder, readable=self.shared)
        except FileNotFoundError:
            return False
        return True

    def _make(self) -> None:
        """Makes the team's folder, which is not there. Raises UnfitPath."""
        if not os.path.lexists(self.teams_folder):
            files.private_folder(self.teams_folder, parents=False)
        try:
            os.mkdir(self.folder, 0o700)
        except FileExistsError:
            pass  # another process made it in this instant; it is checked before it is used
        except OSError as error:
            raise UnfitPath(self.folder, f"cannot be made ({error.strerror})") from error
        files.check_own_folder(self.folder, readable=self.shared)

    def _turn(self) -> AbstractContextManager[Held]:
        directory = f"{self.folder}/{DIRECTORY_LOCK}" if self.shared else None
        return held(f"{self.folder}/{FILE_LOCK}", directory, seconds=self.seconds)

    def _move_aside(self) -> None:
        try:
            os.rename(self.folder, f"{self.teams_folder}/{files.temporary_name()}")
        except OSError as error:
            raise StoreFailed(f"{self.folder} could not be removed ({error.strerror}).") from error

    def _take_apart(self) -> None:
        try:
            names = os.listdir(self.teams_folder)
        except OSError:
            return
        for name in filter(files.is_temporary, names):
            shutil.rmtree(f"{self.teams_folder}/{name}", ignore_errors=True)

    # ── the config ───────────────────────────────────────────────────────────────────────────────

    def _read(self) -> tuple[Team, Mark | None] | None:
        """The team and the mark of its config; None where there is none. The folder was checked."""
        try:
            mark, found = self._parsed()
            if isinstance(found, Unreadable):
                time.sleep(LOOK_AGAIN_SECONDS)
                mark, found = self._parsed()
        except FileNotFoundError:
            return None
        if isinstance(found, Unreadable):
            raise Damaged(self.path, found.reason, "Nothing was changed. Mend it, or move it aside.")
        if found.name != self.team:
            raise OtherTeam(self.path, "it is another team's, whose folder has the same name")
        if self.lead_session_id and found.lead_session_id not in ("", self.lead_session_id):
            raise OtherTeam(self.path, "it is the team of another session")
        return found, mark

    def _parsed(self) -> tuple[Mark | None, Team | Unreadable]:
        mark = self.mark()  # before: what is written from here on differs from it
        return mark, parse(files.read_private(self.path, MAX_CONFIG, readable=self.shared))

    def _changed(self, step: Callable[[Team | None], Team | None], lock: Held) -> Team | None:
        """One try of a change, in our turn."""
        team, mark = self._read() or (None, None)
        after = step(team)
        if after is None:
            return team
        if after.name != self.team:
            raise ValueError("a step answers the same team")
        data = encode(after)
        if team is not None and data == encode(team):
            return team

        def last_look() -> None:
            lock.check()
            if self.mark() != mark:
                raise _Again

        if len(data) > MAX_CONFIG:
            raise StoreFailed(f"{self.path} would have more than {MAX_CONFIG} bytes; nothing was written.")
        mode = PRIVATE if mark is None else mark[0] & READABLE | PRIVATE
        files.write_atomic(self.path, data, mode=mode, before=last_look)
        return after
