"""The records of one folder, read once and again only where something changed.

What it decides: whether a file or a folder can still be what it was when it was read (12.29, 02.16). It
never judges a session, removes anything, or lists what it could not read as if it were not there.

How it fails: a record that is no record is kept with the reason; a folder that cannot be read is in
`unchecked`; a folder that does not exist holds nothing.

What is weak: on a network file system times come from the server's clock; where that is behind ours, a
change within its tick can be overlooked until the next one.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from postroom.errors import BadFrame, UnfitPath
from postroom.state import belongings, files
from postroom.state.record import CLIENT_FILE, MAX_RECORD, TALK_FILE, Record, from_json, pid_of

TICK_NS = 50_000_000
"""The longest tick of a clock that gives fractions of a second, several times over: Linux ticks in 1 to 10 ms."""

WHOLE_SECONDS_NS = 2_000_000_000
"""The tick of a file system that keeps whole seconds, or every second one."""

Mark = tuple[int, int, int, int]
"""By what a file or folder is known again: inode, size, and the times of its content and of its inode. The
time of the content alone would not do (12.29)."""


@dataclass(slots=True)
class Reading:
    """One record's file as it was read.

    Attributes:
        mark: which file it was.
        settled: no later change can have left the mark as it is, so the file need not be read again.
        record: what it said; None where it could not be read, and `reason` says why.
        unreachable: why the socket that it names cannot be used from here; empty when it can.
        fresh: not judged closely yet.
        doubted: an owner, a mode or a kind of file was wrong. That may be mended without a trace in the times
            that are looked at here, so it is read again at each look.
    """

    mark: Mark
    settled: bool
    record: Record | None = None
    reason: str = ""
    unreachable: str = ""
    fresh: bool = True
    doubted: bool = False


def mark_of(found: os.stat_result) -> Mark:
    """By what a file with this stat is known again."""
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def settled(found: os.stat_result, looked_ns: int) -> bool:
    """Says whether a file or folder can be known again by its times (12.29).

    The clock of a file system ticks: two changes within one tick leave the same time, and what was read
    between them would pass for what came after. So a look counts only when it began safely later than the
    latest change; until then the next look reads again.

    Args:
        found: its stat, taken after `looked_ns`.
        looked_ns: when the look began, nanoseconds.
    """
    changed = max(found.st_mtime_ns, found.st_ctime_ns)
    tick = TICK_NS if found.st_mtime_ns % 1_000_000_000 else WHOLE_SECONDS_NS
    return changed + tick <= looked_ns


class Readings:
    """What was read in one folder of records. It belongs to one thread.

    Args:
        folder: the folder; it need not exist yet.

    Attributes:
        by_name: file name → reading, of every `*.json`, in the order of the names.
        unaccounted: key files, client files, conversations' files and temporary files that belong to no record that
            is there.
        unchecked: (place, reason) where the folder could not be read.
        looks: how often the folder was read: whoever keeps what it saw knows by it whether somebody saw more.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.by_name: dict[str, Reading] = {}
        self.unaccounted: tuple[str, ...] = ()
        self.unchecked: tuple[tuple[str, str], ...] = ()
        self.looks = 0
        self._known: Mark | None = None

    def changed(self) -> bool:
        """Says whether the folder may have changed since the latest look: one stat, no directory read (02.16)."""
        try:
            return mark_of(os.stat(self.folder)) != self._known
        except OSError:
            return True

    def records(self) -> list[Record]:
        """Every record that could be read, judged or not."""
        return [each.record for each in self.by_name.values() if each.record is not None]

    def look(self) -> None:
        """Reads the folder where it changed, and in it the files that changed."""
        now = time.time_ns()
        try:
            found = os.stat(self.folder)
            if mark_of(found) == self._known:
                return
            files.check_folder(self.folder)
            self._list(now)
        except FileNotFoundError:
            self._saw_nothing()
        except UnfitPath as error:
            self._saw_nothing((self.folder, error.reason))
        except OSError as error:
            self._saw_nothing((self.folder, error.strerror or "cannot be read"))
        else:
            self.unchecked = ()
            sure = settled(found, now) and not any(each.doubted for each in self.by_name.values())
            self._known = mark_of(found) if sure else None

    def doubt(self, name: str) -> None:
        """Has a file, and what it names, looked at again at the next look."""
        self.by_name[name].doubted = True
        self._known = None

    def _saw_nothing(self, *unchecked: tuple[str, str]) -> None:
        self.looks += 1
        self.by_name, self.unaccounted, self.unchecked, self._known = {}, (), unchecked, None

    def _list(self, now: int) -> None:
        """Lists the folder; a file is read again where it is not known for sure."""
        self.looks += 1
        by_name: dict[str, Reading] = {}
        others: list[str] = []
        checked: dict[str, str] = {}
        with os.scandir(self.folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
        for entry in ordered:
            name = entry.name
            if not name.endswith(".json"):
                if name.endswith((".key", ".tmp")) or name.startswith((CLIENT_FILE, TALK_FILE)):
                    others.append(name)
                continue
            try:
                found = entry.stat(follow_symlinks=False)
                known = self.by_name.get(name)
                if known is None or not known.settled or known.doubted or known.mark != mark_of(found):
                    known = self._read(name, found, now, checked)
                by_name[name] = known
            except FileNotFoundError:
                continue  # it went away while we looked
        self.by_name = by_name
        self.unaccounted = _unaccounted(others, by_name) if others else ()

    def _read(self, name: str, found: os.stat_result, now: int, checked: dict[str, str]) -> Reading:
        """Reads one file. FileNotFoundError when it went away meanwhile."""
        reading = Reading(mark_of(found), settled(found, now))
        try:
            reading.record = self._parsed(name)
            reading.unreachable = belongings.unreachable(reading.record, checked)
        except UnfitPath as error:
            reading.reason = error.reason
            reading.doubted = True
        except BadFrame as error:
            reading.reason = error.message
        return reading

    def _parsed(self, name: str) -> Record:
        record = from_json(files.read_private(f"{self.folder}/{name}", MAX_RECORD))
        if pid_of(name.removesuffix(".json")) != record.pid:
            raise BadFrame("the name of the file does not fit its pid")
        return record

    def record_now(self, name: str) -> Record | None:
        """The record in a file as it is now; None where there is none to be had."""
        try:
            return self._parsed(name)
        except (FileNotFoundError, UnfitPath, BadFrame):
            return None


def _unaccounted(names: list[str], by_name: dict[str, Reading]) -> tuple[str, ...]:
    """Those files beside the records that none of them accounts for.

    Which session a conversation's file leads to stands in the file alone. A client's session has one at most, so they are
    looked into only where there are more of them than such sessions.
    """
    attended = sum(1 for each in by_name.values() if each.record and each.record.client_pid is not None)
    if sum(name.startswith(TALK_FILE) for name in names) <= attended:
        names = [name for name in names if not name.startswith(TALK_FILE)]
    pids = {pid_of(name.removesuffix(".json")) for name in by_name}
    clients = {belongings.client_of(each.record) for each in by_name.values() if each.record is not None}
    return tuple(
        name
        for name in names
        if name not in clients and not (name.endswith(".key") and pid_of(name.partition(".")[0]) in pids)
    )
