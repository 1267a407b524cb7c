"""The roster: which sessions there are on this machine, who lives, and what is left of those that ended.

Each session publishes one file, `sessions/<pid>.json`, and holds the lock in its own folder,
`sessions/<session id>/lock`, for as long as it lives (05.3, 05.4). Nobody is in the middle: whoever wants to
know reads the folder and tries the locks.

What it decides, for each record, is one of three (05.11): *live*; *dead*, where that can be proved, and then
it is swept; or *unknown*, which is reported with its reason, never listed and never swept. The ladder is in
`Roster.judge`. A lock tells more than a process does: the kernel lets go of it however its holder ends.

What it never does: print, believe a record in anything but what is shown (05.9), or remove another program's
record (05.10).

How it fails: `NoSession` for an id that is none, `SessionInUse` for a session that lives, `UnfitPath` and
`StoreFailed` from `files`. A listing never fails: a folder that cannot be read is in `Scan.unchecked`, a
record in `Scan.skipped`.

Two locks: the registry's (`sessions/.lock`) is held while a record is published or swept, so that a fresh
record of the same name survives a sweep; a session's own while it lives. Every wait for one is bounded.

What is weak: records of another boot or pid namespace stay until their session is opened again or its folder
goes, because nothing here can prove them dead.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from postroom.errors import NoSession, SessionInUse, StoreFailed, UnfitPath
from postroom.state import belongings, files, processes
from postroom.state.names import Names
from postroom.state.readings import Readings, mark_of
from postroom.state.record import Record, is_session_id, pid_of
from postroom.state.tenure import last_sign, note_end, read_tenure, take_session_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Judgement = Literal["live", "dead", "unknown"]

KEPT_MS = 30 * 24 * 3600 * 1000
"""How long the folder of an ended session is kept, in milliseconds (05.7)."""

REGISTRY_SECONDS = 5.0
"""How long a session waits to publish; others hold the lock for milliseconds, a sweep for some ten of them."""

SWEEP_SECONDS = 0.25
"""How long a lister waits to sweep: if somebody else has the lock, it is the next lister's turn."""

BATCH = 128
"""Records swept in one hold of the lock, so that nobody who wants to publish waits for thousands."""

GONE = ".gone"
"""The ending of a folder that is being removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What one look at the roster found.

    Attributes:
        live: the sessions that live, in the order of their files. One whose socket cannot be used from here
            has no `messaging_socket_path`, and `skipped` says why (05.29).
        skipped: (file, reason) of each record that is not listed, or listed without its socket.
        unfit: those of them that are for a person to mend: unreadable, or in the way of a wrong owner, mode or
            kind of file. What merely cannot be judged from here is none.
        unchecked: (place, reason) where the whole folder could not be read (02.14).
        swept: how many dead records were removed.
    """

    live: tuple[Record, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    unfit: tuple[tuple[str, str], ...] = ()
    unchecked: tuple[tuple[str, str], ...] = ()
    swept: int = 0


UNFIT = ("its lock is unfit: ", "its folder is unfit: ")
"""How the reason begins where a session's lock or folder must not be trusted, and so proves nothing."""

_LIVE: tuple[Judgement, str] = ("live", "")

_plain_stems_given: set[tuple[str, int]] = set()
"""(registry, pid) for which this process has given out `<pid>` without more, published yet or not."""


class Roster:
    """The sessions below one state folder. It belongs to one thread.

    Args:
        state: the state folder, from `places.state_folder`. Nothing is made before a session opens.

    Attributes:
        sessions: the registry's folder.
        names: whose name is whose.
    """

    def __init__(self, state: str) -> None:
        self.sessions = os.path.join(state, "sessions")
        self.names = Names(state, self.lives)
        self._boot = processes.boot_id()
        self._domain = processes.pid_domain()
        self._readings = Readings(self.sessions)
        self._scanned = -1
        self._published: dict[str, tuple[str, str]] = {}  # session id → (stem, file name)

    def _path(self, name: str) -> str:
        return f"{self.sessions}/{name}"

    # ── a session's own folder ───────────────────────────────────────────────────────────────────

    def folder(self, session_id: str) -> str:
        """Returns the path of a session's own folder (05.4). Raises NoSession for what can be no id."""
        if not is_session_id(session_id):
            raise NoSession("That is no session id.", "`postroom list --json` shows them.")
        return self._path(session_id)

    def has_folder(self, session_id: str) -> bool:
        """Says whether a session of this id runs or ran here, and its folder is still kept."""
        return is_session_id(session_id) and os.path.isdir(self._path(session_id))

    def open_folder(self, session_id: str) -> files.Lock:
        """Makes a session's folder where it is new, and takes its lock: from now on it lives here (05.12).

        Raises NoSession, UnfitPath, StoreFailed; SessionInUse while it lives in another process.
        """
        folder = self.folder(session_id)
        files.private_folder(self.sessions)  # itself, too: above another one a symlink would be followed
        files.private_folder(folder)
        return take_session_lock(folder)

    def lives(self, session_id: str, *, doubtful: bool = False) -> bool:
        """Says whether a session lives: its lock is held, and not by a mere child of a process gone (05.11).

        `doubtful` is the answer where its lock is unfit, which proves neither.
        """
        lock = self._path(f"{session_id}/lock")
        try:
            held = files.probe(lock)
        except FileNotFoundError:
            return False
        except UnfitPath:
            return doubtful
        tenure = read_tenure(lock) if held else None
        return held and not (tenure is not None and tenure.holder_gone(self._boot, self._domain))

    def kept_locks(self) -> tuple[tuple[str, int], ...]:
        """Returns (session id, pid of the process that is gone) of each lock that a forked child keeps (05.11)."""
        found: list[tuple[str, int]] = []
        for session_id in self.session_ids():
            lock = self._path(f"{session_id}/lock")
            tenure = read_tenure(lock)
            if tenure is not None and not self.lives(session_id) and files.probe(lock):
                found.append((session_id, tenure.pid))
        return tuple(found)

    def session_ids(self) -> list[str]:
        """The ids of all sessions whose folder, with a lock of ours, is there."""
        names = sorted(os.listdir(self.sessions)) if os.path.isdir(self.sessions) else []
        return [
            each for each in names if self.has_folder(each) and os.path.lexists(self._path(f"{each}/lock"))
        ]

    def claim(self, name: str, session_id: str, *, chosen: bool, now: int) -> str:
        """Claims a valid name for a session that lives; see `Names.claim` (02.3, 02.4)."""
        return self.names.claim(name, session_id, chosen=chosen, now=now)

    def holder(self, name: str) -> str | None:
        """Returns the id of the session that holds a name, in one read; it may have ended (02.3)."""
        claim = self.names.holder(name)
        return claim.session_id if claim is not None else None

    def aliases(self, record: Record) -> tuple[str, ...]:
        """Returns the former names of a record that still lead to it: no other session took them (02.4)."""
        names = (former.name for former in record.former_names)
        return tuple(name for name in names if self.holder(name) == record.session_id)

    # ── publishing ───────────────────────────────────────────────────────────────────────────────

    def _locked(self) -> files.Lock:
        """The registry's lock, held. Raises StoreFailed."""
        lock = files.Lock(self._path(".lock"))
        try:
            if lock.acquire(REGISTRY_SECONDS):
                return lock
        except FileNotFoundError:
            raise StoreFailed(f"The registry of sessions, {self.sessions}, is gone.") from None
        raise StoreFailed("The registry of sessions stays locked by another process.", "Try again.")

    def free_stem(self, pid: int) -> str:
        """Returns how the record and the sockets of one more session of a process are called, without ending.

        `<pid>`, or `<pid>-<8 hex>` where that is another session's: of this process, or of a pid namespace
        that shares the folder (05.3, 05.10). What a dead process of this pid left is swept first, so that no
        lister comes to sweep it when the new socket is there already. Raises StoreFailed.
        """
        lock = self._locked()
        try:
            for name in os.listdir(self.sessions):
                stem, dot, ending = name.rpartition(".")
                if dot and ending == "json" and pid_of(stem) == pid:
                    record = self._readings.record_now(name)
                    if record is not None and self.judge(record)[0] == "dead":
                        self._clear(name, record)
            if os.path.lexists(self._path(f"{pid}.json")) or (self.sessions, pid) in _plain_stems_given:
                return f"{pid}-{os.urandom(4).hex()}"
            _plain_stems_given.add((self.sessions, pid))
            return str(pid)
        finally:
            lock.release()

    def write_key(self, stem: str, socket_path: str, token: str) -> None:
        """Writes the file with the peer token, before the socket listens (05.20, 05.29). Raises StoreFailed.

        Args:
            stem: from `free_stem`.
            socket_path: where the inbox will listen, exactly as the record will say it.
            token: 32 hex digits.
        """
        belongings.write_key(self.sessions, pid_of(stem) or os.getpid(), socket_path, token)

    def peer_token(self, record: Record) -> str | None:
        """Returns the token by which a session's inbox knows an ordinary peer; None where it has none (05.20)."""
        return belongings.peer_token(self.sessions, record)

    def publish(self, record: Record) -> str:
        """Publishes a session's record, or its newer state; the first time after its socket listens (05.11).

        A record under the same name that is somebody else's and not dead stays; ours lies beside it (05.10).

        Returns the path of the file. Raises StoreFailed.
        """
        lock = self._locked()
        try:
            stem, before = self._published.get(record.session_id, ("", ""))
            name = before if stem == record.stem else self._free_name(record)
            belongings.add_to_client(self.sessions, record, self.lives)
            files.write_atomic(self._path(name), record.to_json())
            if before and before != name:
                belongings.unlink(self._path(before))
        finally:
            lock.release()
        self._published[record.session_id] = (record.stem, name)
        return self._path(name)

    def _free_name(self, record: Record) -> str:
        """The name under which a record may be written for the first time."""
        name = f"{record.stem}.json"
        if not os.path.lexists(self._path(name)):
            return name
        there = self._readings.record_now(name)
        if there is not None:
            if _same_session(there, record):
                return name
            if self.judge(there)[0] == "dead":
                self._clear(name, there)
                return name
        return f"{record.pid}-{os.urandom(4).hex()}.json"

    def remove(self, record: Record) -> None:
        """Removes a session's record and what lies beside it (05.29). Harmless when it is gone already.

        Without the registry's lock where that stays taken: a signal may have come while we held it.
        """
        name = self._published.pop(record.session_id, ("", f"{record.stem}.json"))[1]
        if record.stem == str(record.pid):
            _plain_stems_given.discard((self.sessions, record.pid))
        lock = files.Lock(self._path(".lock"))
        try:
            lock.acquire(SWEEP_SECONDS)
            there = self._readings.record_now(name)
            if there is not None and _same_session(there, record):
                self._clear(name, there, own=True)
        except (OSError, UnfitPath):
            pass  # the folder is gone, and the record with it
        finally:
            lock.release()

    def leave(self, record: Record, lock: files.Lock, now: int) -> None:
        """Ends a session: its record goes, its lock says when it ended and is let go of (02.13).

        Args:
            record: what it published.
            lock: from `open_folder`.
            now: epoch milliseconds.
        """
        self.remove(record)
        tenure = read_tenure(lock.path)
        try:
            if tenure is not None and lock.held:
                lock.write(replace(tenure, ended_at=now).to_bytes())
        except StoreFailed:
            pass  # when it ended is then read off its files
        finally:
            lock.release()

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    def changed(self) -> bool:
        """Says whether the folder may have changed since the latest `scan`: one stat, no directory read (02.16)."""
        return self._readings.looks != self._scanned or self._readings.changed()

    def scan(self, *, sweep: bool = True) -> Scan:
        """Looks who is there: every record is judged now; files that did not change are not read again.

        Args:
            sweep: also remove what is provably dead (05.11).
        """
        self._readings.look()
        self._scanned = self._readings.looks
        live: list[Record] = []
        skipped: list[tuple[str, str]] = []
        unfit: list[tuple[str, str]] = []
        dead: list[str] = []
        for name, seen in self._readings.by_name.items():
            record = seen.record
            if record is None:
                unfit.append((name, seen.reason))
                continue
            judgement, reason = self.judge(record, closely=seen.fresh)
            seen.fresh = False
            if judgement == "live" and seen.unreachable:
                if record.pid_domain == self._domain:
                    unfit.append((name, f"listed, but not reachable: {seen.unreachable}"))
                    self._readings.doubt(name)
                    record = replace(record, messaging_socket_path=None)
                else:  # a container that shares this folder and not the other one (05.8)
                    judgement, reason = "unknown", f"its socket is not seen from here: {seen.unreachable}"
            if judgement == "live":
                live.append(record)
            elif judgement == "dead":
                dead.append(name)
            else:
                (unfit if reason.startswith(UNFIT) else skipped).append((name, reason))
        swept = self._sweep(dead) if sweep and (dead or self._readings.unaccounted) else 0
        return Scan(
            live=tuple(live),
            skipped=(*unfit, *skipped),
            unfit=tuple(unfit),
            unchecked=self._readings.unchecked,
            swept=swept,
        )

    def look_anew(self) -> None:
        """Has everything read and judged closely at the next look, whether it seems to have changed or not."""
        self._readings = Readings(self.sessions)

    def is_live(self, record: Record) -> bool:
        """Says whether the session of a record lives at this instant; nothing is read but its lock and stat."""
        return self.judge(record)[0] == "live"

    def judge(self, record: Record, *, closely: bool = True) -> tuple[Judgement, str]:
        """Judges one record (05.11); returns the judgement and, unless it is live, why.

        The rungs, first that answers wins:
            1. no lock of ours lies in the session's folder: unknown, another program's record.
            2. this boot and pid namespace: dead when the lock is free, or held while the process is gone (a
               forked child keeps it); else live.
            3. the lock names another process as its latest holder: dead, because this one has lost it.
            4. another boot: unknown.
            5. another pid namespace: live when the lock is held; else unknown.

        Args:
            closely: also look at the session's folder, and compare the process's start. Without, only whether a
                process has its pid: that misses a pid that was used again while a forked child keeps the lock,
                at a tenth of the cost.
        """
        lock = f"{self.sessions}/{record.session_id}/lock"
        try:
            held = files.probe(lock)
            if closely:
                files.check_own_folder(lock[:-5])
        except FileNotFoundError:
            return "unknown", "no lock of ours belongs to it: another program's record"
        except UnfitPath as error:
            return "unknown", f"{UNFIT[error.path != lock]}{error.reason}"
        if record.boot_id == self._boot and record.pid_domain == self._domain:
            if not held:
                return "dead", "its lock is free"
            if closely:
                gone = processes.alive(record.pid, record.proc_start) is False
            else:
                gone = not processes.exists(record.pid)
            return (
                ("dead", f"a child of process {record.pid}, which is gone, keeps its lock") if gone else _LIVE
            )
        tenure = read_tenure(lock)
        if tenure is not None and (tenure.pid, tenure.start, tenure.boot_id, tenure.pid_domain) != (
            record.pid,
            record.proc_start,
            record.boot_id,
            record.pid_domain,
        ):
            return "dead", "its session was opened again since"
        if record.boot_id != self._boot:
            return "unknown", "written on another boot or machine, of which nothing can be proved"
        if not held:
            return "unknown", "written in another pid namespace, of which nothing can be proved"
        return _LIVE

    # ── finding ──────────────────────────────────────────────────────────────────────────────────

    def by_socket(self, path: str) -> Record | None:
        """Returns the live session whose inbox is at `path`: one read where its file is called like it."""
        stem = os.path.basename(path).removesuffix(".sock")
        record = self._readings.record_now(f"{stem}.json") if pid_of(stem) is not None else None
        if record is None or record.messaging_socket_path != path:
            self._readings.look()
            found = (each for each in self._readings.records() if each.messaging_socket_path == path)
            record = next(found, None)
        return record if record is not None and self.is_live(record) else None

    def sessions_at(self, pid: int, start: str) -> tuple[str, ...]:
        """Returns the ids of the live sessions whose process, or whose client, is (pid, start) (05.26)."""
        if pid <= 0 or not start:
            return ()
        self._readings.look()
        here = (each for each in self._readings.records() if (each.pid, each.proc_start) == (pid, start))
        found = [each.session_id for each in here if self.is_live(each)]
        return tuple(dict.fromkeys((*found, *self.client_sessions(pid, start))))

    def client_sessions(self, pid: int, start: str) -> tuple[str, ...]:
        """Returns the ids of the live sessions whose client is (pid, start), the newest first (05.29)."""
        listed = belongings.sessions_in(self._path(belongings.client_name(pid, start)))
        return tuple(each for each in listed if self.lives(each))

    def meant(self, given: str | None, line: Iterable[tuple[int, str]]) -> str | None:
        """Returns the id of the session that a command means, live or ended (10.38).

        Args:
            given: a name or an id, from `--session` or else `POSTROOM_SESSION`; None or empty for neither.
            line: (pid, start) of the caller and its ancestors, nearest first.

        Returns None where no session is meant. Raises NoSession for one that is given and unknown, and where
        the nearest process has several; UnfitPath for a name whose claim must not be trusted.
        """
        if given:
            found = self._find(given)
            if found is None:
                self.names.claimed(given)  # which says so, where a claim is there that nobody can go by
                raise NoSession("No session of that name or id is known.", "`postroom list` shows them.")
            return found
        for pid, start in line:
            here = self.sessions_at(pid, start)
            if len(here) > 1:
                raise NoSession(f"Process {pid} has {len(here)} sessions.", "Say which one with --session.")
            if here:
                return here[0]
        return None

    def _find(self, who: str) -> str | None:
        """The id of a session by its id or its name, while its folder is there."""
        if self.has_folder(who):
            return who
        claim = self.names.holder(who)
        return claim.session_id if claim is not None and self.has_folder(claim.session_id) else None

    # ── sweeping ─────────────────────────────────────────────────────────────────────────────────

    def _sweep(self, dead: Sequence[str]) -> int:
        """Removes records that were judged dead, and what killed processes left beside the records.

        Under the lock each is judged once more: a file that changed meanwhile is somebody else's (05.11).
        """
        swept = 0
        lock = files.Lock(self._path(".lock"))
        try:
            for first in range(0, len(dead), BATCH):
                if not lock.acquire(SWEEP_SECONDS):
                    return swept
                swept += sum(self._sweep_record(name) for name in dead[first : first + BATCH])
                lock.release()
            if swept:
                self._readings.look()  # what only the dead accounted for
            if any(self._left_over(name) for name in self._readings.unaccounted) and lock.acquire(
                SWEEP_SECONDS
            ):
                self._readings.look()  # under the lock nobody is half published
                for name in self._readings.unaccounted:
                    if self._left_over(name):
                        belongings.unlink(self._path(name))
        except (OSError, UnfitPath):
            pass  # a folder that cannot be written is listed all the same
        finally:
            lock.release()
        return swept

    def _sweep_record(self, name: str) -> bool:
        """Removes one dead record, if its file is still the one that was judged."""
        seen = self._readings.by_name[name]
        record = seen.record
        try:
            if record is None or mark_of(os.lstat(self._path(name))) != seen.mark:
                return False
        except FileNotFoundError:
            return False
        if self.judge(record)[0] != "dead":
            return False
        note_end(self._path(record.session_id), seen.mark[2] // 1_000_000)
        self._clear(name, record)
        return True

    def _clear(self, name: str, record: Record, *, own: bool = False) -> None:
        """Removes a record and what lies beside it: key, stale sockets, its line in its client's file.

        That line stays while the session lives on in another process: it may well have the same client.
        """
        belongings.unlink(self._path(name))
        if record.messaging_socket_path is not None:
            belongings.unlink(self._path(belongings.key_name(record.pid, record.messaging_socket_path)))
            belongings.remove_sockets(record)
        if record.client_pid is not None and (own or not self.lives(record.session_id)):
            try:
                belongings.drop_from_client(self.sessions, record)
            except StoreFailed:
                pass  # the id in it leads to nobody, and the next sweep takes the file

    def _left_over(self, name: str) -> bool:
        """Whether a file that no record accounts for was left by a process that is gone."""
        listed = {record.session_id for record in self._readings.records()}
        return belongings.left_over(self._path(name), self._domain, listed, self.lives)

    # ── those that ended ─────────────────────────────────────────────────────────────────────────

    def ended(self, who: str) -> tuple[str, int] | None:
        """Says of a session that ended, killed or not, what it was called and when that was (02.13).

        Args:
            who: its name, a former one, or its id.

        Returns (name, epoch milliseconds); None for one that lives, and once its folder is gone.
        """
        session_id = self._find(who)
        if session_id is None or self.lives(session_id, doubtful=True):
            return None
        return self.names.known(session_id).name or session_id, self._ended_at(session_id)

    def _ended_at(self, session_id: str) -> int:
        folder = self._path(session_id)
        tenure = read_tenure(f"{folder}/lock")
        return tenure.ended_at if tenure is not None and tenure.ended_at is not None else last_sign(folder)

    def forget(self, session_id: str) -> None:
        """Removes an ended session for good: folder, names, records (05.7).

        Raises NoSession where there is none of this id, SessionInUse while it lives, StoreFailed.
        """
        if not self.has_folder(session_id):
            raise NoSession("There is no session of that id.", "`postroom list --json` shows them.")
        lock = take_session_lock(self._path(session_id))
        try:
            self.names.release(session_id)
            self._readings.look()
            registry = self._locked()
            try:
                for name in self._readings.by_name:
                    record = self._readings.record_now(name)
                    if record is not None and record.session_id == session_id:
                        self._clear(name, record, own=True)
                gone = self._path(f".{session_id}-{os.urandom(4).hex()}{GONE}")
                os.rename(self._path(session_id), gone)
            finally:
                registry.release()
        except OSError as error:
            raise StoreFailed(f"The session {session_id} could not be removed ({error.strerror}).") from error
        finally:
            lock.release()
        _remove_tree(gone)

    def expire(self, now: int) -> tuple[str, ...]:
        """Removes what is left of sessions that ended more than 30 days ago; returns their ids (05.7).

        Args:
            now: epoch milliseconds.
        """
        forgotten: list[str] = []
        for session_id in self.session_ids():
            if not self.lives(session_id) and self._ended_at(session_id) + KEPT_MS < now:
                try:
                    self.forget(session_id)
                except (NoSession, SessionInUse, StoreFailed, UnfitPath):
                    continue  # somebody opened or removed it in this instant; else the next time
                forgotten.append(session_id)
        if os.path.isdir(self.sessions):
            for name in os.listdir(self.sessions):
                if name.endswith(GONE):
                    _remove_tree(self._path(name))
            self.names.sweep()
        return tuple(forgotten)


def _same_session(there: Record, record: Record) -> bool:
    return there.session_id == record.session_id and there.pid == record.pid


def _remove_tree(path: str) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)
