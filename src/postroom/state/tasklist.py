"""The files of a shared task list: read, made, changed, claimed and removed by many processes at once (07.23).

    <tasks>/<list>/<N>.json          one task, see `core.taskfile`
    <tasks>/<list>/.highwatermark    the last id that was given out
    <tasks>/<list>/.lock             the lock of the list

What it decides: in which order things are written, so that a kill between two of them does no harm. An id is marked as
given out before its file is made, and before a file is removed. A step is one write, of the task's own file; the other
side of an edge follows, and where it does not, the next step writes it (`core.tasks.mended`). A temporary file that
lies there while the list is locked is left over, and goes.

What it locks: our own programs take a `flock` on `.lock`, for every step. In another program's folder (`shared`) they
take that program's directory locks too: `.lock.lock` for the list, `<N>.json.lock` for the one task that is written.
Reading takes no lock: a file is there as it was or as it is. Another program may write in place, so there a file that
is no task and was written just now is looked at once more.

What it never does: overwrite or remove a file that it cannot read, give an id out twice, make a folder in another
program's place but the list's own, follow a symlink, remove a list. A damaged file whose task is deleted is moved aside.

How it fails: `StoreFailed` where a lock was not got or a file could not be written, and then nothing was changed;
`UnfitPath` for a folder or lock that must not be trusted; `InvalidName` for a list that no folder can hold. What a step
may not do is a `TaskRefusal`. One bad file costs that one task.

What is weak: another program that changes a task without its lock can lose its change to ours. Its locks are taken as
`proper-lockfile` names them; a `.lock` that is a directory is refused. Each step reads the whole list. It blocks: on an
event loop, call it in a thread.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, TypeVar

from postroom.core import tasks
from postroom.core.taskfile import (
    MAX_FILE,
    encode,
    is_task_id,
    last_id,
    list_folder,
    next_id,
    read_mark,
    read_task,
)
from postroom.core.tasks import DELETED, Board, Change, Claimed, Created, Draft, TaskRefusal, Updated
from postroom.errors import InvalidName, StoreFailed, UnfitPath
from postroom.state import files, locks
from postroom.state.locks import LockLost, NotLocked, held

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from postroom.core.taskfile import Task
    from postroom.state.locks import Held

__all__ = ["TaskList"]

LOCK_SECONDS = 20.0
"""How long a step waits for its locks, as a mailbox does (07.3)."""

TRIES = 5
"""How often a step starts over that lost a lock: another program takes it for left over once, and not each time."""

MENDED_AT_ONCE = 64
"""Files in which one step writes the other side of edges; what is left comes with the next steps, and with `repair`."""

MEND_SECONDS = 1.0
"""How long that waits for another program's lock of one task: nothing depends on it."""

MAX_READ = 10_000
"""Files of tasks that are read, of another program's list: ten times what ours may have (11.10)."""

MAX_MARK = 64
"""Bytes of a high-water mark."""

SECOND_LOOK_SECONDS = 0.1
"""After which a file is looked at again that another program may just be writing, as for a mailbox (07.6)."""

YOUNG_SECONDS = 2.0
"""How old a file may be to count as just being written."""

LOCK, MARK, ENDING, QUARANTINE = ".lock", ".highwatermark", ".json", ".quarantine"

_TASK_LOCK = ".tasks.lock"
"""The `flock` that goes with another program's lock of one task; who takes it holds the list's."""

_Answer = TypeVar("_Answer")


class TaskList:
    """One shared task list (07.23). Any thread may use it, and any number of processes the same list.

    Args:
        tasks_folder: absolute: `<state>/tasks`, or a neighbour's.
        list_id: the team's name, or what else the list is known by.
        shared: other programs write there: their locks are taken too, and files that others may read are accepted.
        seconds: how long a step waits for its locks.
        stale_seconds: how old another program's lock must be to count as left over.

    Raises InvalidName for a list id that is none.
    """

    def __init__(
        self,
        tasks_folder: str,
        list_id: str,
        *,
        shared: bool,
        seconds: float = LOCK_SECONDS,
        stale_seconds: float = locks.STALE_SECONDS,
    ) -> None:
        name = list_folder(list_id, shared=shared)
        if name is None:
            raise InvalidName(
                "That is not the id of a task list.",
                "Use 1 to 64 of A-Z, a-z, 0-9, '-' and '_': a team's name.",
            )
        self.folder = f"{tasks_folder}/{name}"
        self.shared = shared
        self._parent = tasks_folder
        self._seconds = seconds
        self._stale_seconds = stale_seconds

    def __repr__(self) -> str:
        return f"<TaskList {os.path.basename(self.folder)}{', shared' if self.shared else ''}>"

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def read(self) -> Board:
        """Reads the list; an empty one where there is no folder.

        Raises UnfitPath where the folder must not be trusted, StoreFailed where it cannot be listed.
        """
        return self._board() if self._is_there() else Board()

    def mark(self) -> object:
        """A value that differs once a task came, went or was written: one look at the folder, and one at each file."""
        try:
            with os.scandir(self.folder) as entries:
                found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
        except OSError:
            return None
        return frozenset(
            (name, each.st_ino, each.st_mtime_ns, each.st_ctime_ns)
            for name, each in found
            if name.endswith(ENDING)
        )

    # ── the steps ────────────────────────────────────────────────────────────────────────────────

    def create(self, draft: Draft, *, by: str | None = None) -> Created | TaskRefusal:
        """Makes a task, and the list's folder with the first one (07.23). Arguments as of `core.tasks.create`.

        Raises as described above; an id may then be left out.
        """
        self._make()

        def step(lock: Held) -> Created | TaskRefusal:
            board = self._board()
            task_id = self._next_id()
            answer = tasks.create(board, task_id, draft, by=by)
            if isinstance(answer, Created):
                self._write_mark(int(task_id), lock)
                self._write(answer.task, lock, new=True)
                self._mend(tasks.replaced(board, task_id, answer.task), lock)
            return answer

        return self._locked(step)

    def update(self, task_id: str, change: Change, *, by: str | None = None) -> Updated | TaskRefusal:
        """Changes or removes a task (07.23). Arguments as of `core.tasks.update`. Raises as described above."""

        def step(lock: Held) -> Updated | TaskRefusal:
            with self._task_locked(task_id) as task_lock:
                board = self._board()
                answer = tasks.update(board, task_id, change, by=by)
                if isinstance(answer, TaskRefusal):
                    return answer
                if answer.task is None:
                    self._remove(task_id, lock, task_lock, aside=answer.before is None)
                elif answer.task != answer.before:
                    self._write(answer.task, lock, task_lock)
            self._mend(tasks.replaced(board, task_id, answer.task), lock)
            return answer

        if not is_task_id(task_id) or not self._is_there():
            return tasks.update(Board(), task_id, change, by=by)
        return self._locked(step)

    def delete(self, task_id: str) -> Updated | TaskRefusal:
        """Removes a task: the status `deleted` (07.23). One whose file is damaged is moved aside."""
        return self.update(task_id, Change(status=DELETED))

    def claim(self, task_id: str, claimant: str, *, one_at_a_time: bool = True) -> Claimed | TaskRefusal:
        """Claims a task: of any number that try at the same time, one gets it (07.23).

        Arguments and refusals as of `core.tasks.claim`. Raises as described above.
        """
        if not is_task_id(task_id) or not self._is_there():
            return tasks.claim(Board(), task_id, claimant)
        return self._locked(lambda lock: self._claim(self._board(), task_id, claimant, one_at_a_time, lock))

    def claim_next(self, claimant: str, *, one_at_a_time: bool = True) -> Claimed | TaskRefusal | None:
        """Claims the oldest pending task without owner or open blocker (07.9).

        Returns None where there is none, and that costs no lock; a refusal where the claimant may not claim.
        """

        def step(lock: Held) -> Claimed | TaskRefusal | None:
            tried: set[str] = set()
            while task := tasks.next_claimable(board := self._board()):
                answer = self._claim(board, task.id, claimant, one_at_a_time, lock)
                # Another program took it in between: the next one, unless it seems to be free again and again.
                if isinstance(answer, Claimed) or answer.code in _OF_THE_CLAIMANT or task.id in tried:
                    return answer
                tried.add(task.id)
            return None

        return self._locked(step) if tasks.next_claimable(self.read()) else None

    def _claim(
        self, board: Board, task_id: str, claimant: str, one_at_a_time: bool, lock: Held
    ) -> Claimed | TaskRefusal:
        with self._task_locked(task_id) as task_lock:
            board = self._again(board, task_id)
            answer = tasks.claim(board, task_id, claimant, one_at_a_time=one_at_a_time)
            if isinstance(answer, Claimed) and answer.task != board.tasks[task_id]:
                self._write(answer.task, lock, task_lock)
        return answer

    def repair(self) -> tuple[str, ...]:
        """Mends what can be mended, and says what was found, a sentence each; none where all is well.

        Writes missing sides of edges and a lost high-water mark, and removes what killed writers left. Files that hold
        no task stay where they are: they are named.
        """

        def step(lock: Held) -> tuple[str, ...]:
            said: list[str] = []
            for name in self._names():
                if locks.is_aside(name):
                    gone = locks.remove_aside(f"{self.folder}/{name}")
                    said.append(
                        f"{name} is a lock that was moved aside; it {'was removed' if gone else 'stays'}."
                    )
                elif name.endswith(QUARANTINE):
                    said.append(f"{name} is a damaged task that was deleted.")
                elif name.endswith(ENDING) and not is_task_id(name.removesuffix(ENDING)):
                    said.append(f"{name} is no name of a task and is not read.")
            board = self._board()
            said += [f"{each}{ENDING} cannot be used: {why}." for each, why in board.unreadable.items()]
            if self._mark() is None:
                last = self._last_id()
                self._write_mark(last, lock)
                said.append(f"The high-water mark could not be read; ids go on after {last}.")
            one_sided = [task.id for task in tasks.mended(board)]
            left = self._mend(board, lock, most=MAX_READ)
            said += [
                f"Task {each} named its neighbours on one side alone; {'it still does' if each in left else 'mended'}."
                for each in one_sided
            ]
            return tuple(said)

        return self._locked(step) if self._is_there() else ()

    # ── locks ────────────────────────────────────────────────────────────────────────────────────

    def _locked(self, step: Callable[[Held], _Answer]) -> _Answer:
        """Takes one step under the list's lock, and starts over where that was lost before anything was changed."""
        for _ in range(TRIES):
            try:
                with self._held(LOCK, LOCK) as lock:
                    self._sweep()
                    return step(lock)
            except LockLost:
                continue
            except NotLocked as error:
                raise self._failed(f"could not be locked ({error.reason})") from error
        raise self._failed("lost its lock again and again")

    @contextlib.contextmanager
    def _task_locked(self, task_id: str, seconds: float | None = None) -> Generator[Held | None]:
        """The lock of one task, where other programs know one."""
        if not self.shared:
            yield None
            return
        with self._held(_TASK_LOCK, f"{task_id}{ENDING}", seconds) as lock:
            yield lock

    def _held(
        self, file: str, locked: str, seconds: float | None = None
    ) -> contextlib.AbstractContextManager[Held]:
        return held(
            f"{self.folder}/{file}",
            f"{self.folder}/{locked}.lock" if self.shared else None,
            seconds=self._seconds if seconds is None else seconds,
            stale_seconds=self._stale_seconds,
        )

    def _failed(self, what: str) -> StoreFailed:
        return StoreFailed(f"The task list {os.path.basename(self.folder)} {what}.", "Nothing was changed.")

    # ── files ────────────────────────────────────────────────────────────────────────────────────

    def _is_there(self) -> bool:
        """Whether the list's folder lies there; it is checked then."""
        if not os.path.lexists(self.folder):
            return False
        files.check_folder(self.folder, readable=self.shared)
        return True

    def _make(self) -> None:
        """Makes the list's folder where it is missing."""
        if self._is_there():
            return
        if not self.shared:
            files.private_folder(self.folder)
            return
        files.check_folder(self._parent, readable=True)
        try:
            os.mkdir(self.folder, 0o700)
        except FileExistsError:
            pass  # the other program made it in this instant
        except OSError as error:
            raise UnfitPath(self.folder, f"cannot be made ({error.strerror})") from error
        files.check_folder(self.folder, readable=True)

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self.folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._failed(f"could not be read ({error.strerror})") from error

    def _ids(self) -> list[str]:
        """The ids of all files that lie there as tasks, the oldest first."""
        names = (name.removesuffix(ENDING) for name in self._names() if name.endswith(ENDING))
        return sorted(filter(is_task_id, names), key=int)

    def _board(self) -> Board:
        ids = self._ids()
        found = {each: self._read(each) for each in ids[:MAX_READ]}
        if young := [each for each in found if isinstance(found[each], str) and self._is_young(each)]:
            time.sleep(SECOND_LOOK_SECONDS)
            found |= {each: self._read(each) for each in young}
        unread = dict.fromkeys(ids[MAX_READ:], f"the list has more than {MAX_READ:,} tasks")
        return Board(
            tasks={
                each: task for each, task in found.items() if task is not None and not isinstance(task, str)
            },
            unreadable={each: why for each, why in found.items() if isinstance(why, str)} | unread,
        )

    def _read(self, task_id: str) -> Task | str | None:
        """A task; or why its file is none; or None where it is gone."""
        try:
            data = files.read_private(self._path(task_id), MAX_FILE, readable=self.shared)
        except FileNotFoundError:
            return None
        except UnfitPath as error:
            return error.reason
        return read_task(data, task_id)

    def _is_young(self, task_id: str) -> bool:
        """Whether another program may just be writing it."""
        try:
            written = os.lstat(self._path(task_id)).st_mtime
        except OSError:
            return self.shared
        return self.shared and abs(time.time() - written) < YOUNG_SECONDS

    def _path(self, task_id: str) -> str:
        return f"{self.folder}/{task_id}{ENDING}"

    def _mark(self) -> int | None:
        """The high-water mark: 0 where there is none yet; None where it cannot be read."""
        try:
            return read_mark(files.read_private(f"{self.folder}/{MARK}", MAX_MARK, readable=self.shared))
        except FileNotFoundError:
            return 0
        except UnfitPath:
            return None

    def _next_id(self) -> str:
        task_id = next_id(self._mark(), self._ids())
        if task_id is None:
            raise self._failed("has used up its ids")
        return task_id

    def _last_id(self) -> int:
        return last_id(self._mark(), self._ids())

    def _write_mark(self, last: int, *held_locks: Held | None) -> None:
        files.write_atomic(f"{self.folder}/{MARK}", b"%d" % last, before=lambda: _check(held_locks))

    def _write(self, task: Task, *held_locks: Held | None, new: bool = False) -> None:
        path = self._path(task.id)

        def check() -> None:
            if new and os.path.lexists(path):
                raise LockLost(path)  # somebody makes tasks without the list's lock: the next id, then
            _check(held_locks)

        files.write_atomic(path, encode(task), before=check)

    def _remove(self, task_id: str, *held_locks: Held | None, aside: bool) -> None:
        """Removes a task's file, or moves it aside, after its id was marked as given out."""
        last = self._last_id()
        if self._mark() != last:
            self._write_mark(last, *held_locks)
        path = self._path(task_id)
        _check(held_locks)
        try:
            if aside:
                os.rename(path, _unused(f"{path}{QUARANTINE}"))
            else:
                os.unlink(path)
            fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise StoreFailed(f"{path} could not be removed ({error.strerror}).") from error

    def _again(self, board: Board, task_id: str) -> Board:
        """The board with one task as it is now, under its lock; where nobody else writes, it is as it was."""
        if not self.shared:
            return board
        now = self._read(task_id)
        if not isinstance(now, str):
            return tasks.replaced(board, task_id, now)
        board = tasks.replaced(board, task_id, None)
        return Board(tasks=board.tasks, unreadable={**board.unreadable, task_id: now})

    def _mend(self, board: Board, lock: Held, *, most: int | None = None) -> set[str]:
        """Writes what `mended` finds; returns the ids that were not written: an edge counts all the same."""
        found = tasks.mended(board)
        left = {task.id for task in found}
        for task in found[: most or MENDED_AT_ONCE]:
            try:
                with self._task_locked(task.id, min(self._seconds, MEND_SECONDS)) as task_lock:
                    fresh = tasks.mended(self._again(board, task.id)) if self.shared else (task,)
                    for each in fresh:
                        if each.id == task.id:
                            self._write(each, lock, task_lock)
                left.discard(task.id)
            except (StoreFailed, UnfitPath, LockLost, NotLocked):
                continue
        return left

    def _sweep(self) -> None:
        """Removes temporary files: who writes one holds the lock that we hold."""
        for name in filter(files.is_temporary, self._names()):
            with contextlib.suppress(OSError):
                os.unlink(f"{self.folder}/{name}")


_OF_THE_CLAIMANT = frozenset({"agent_busy", "invalid_task"})
"""Refusals that another task would meet as well."""


def _check(held_locks: tuple[Held | None, ...]) -> None:
    for lock in held_locks:
        if lock is not None:
            lock.check()


def _unused(path: str) -> str:
    """A path like this one where nothing lies."""
    return f"{path}-{os.urandom(4).hex()}" if os.path.lexists(path) else path
