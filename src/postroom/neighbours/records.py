"""The records in another program's folder, read once and again only where one changed.

It reads and remembers; what a record means is its caller's. A file that is a symlink, too large, another user's or
writable by others is skipped with the reason, and nothing is ever changed or removed here (05.10).

How it fails: a folder that cannot be read, or must not be trusted, is in `unchecked`; one that does not exist holds
nothing.

Weak: as `state.readings`, of whose rule for times this keeps the simpler half: a file that changed in the last two
seconds is read again at each look.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from postroom.errors import BadFrame, UnfitPath
from postroom.state import files

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

MAX_RECORD = 65_536
"""Bytes of a record: a hundred times a usual one, and nothing to read for long."""

MAX_FILES = 1024
"""Records that are read of one folder, those that changed last: more sessions run on no machine (11.10). What dead ones
left hides no live one, whose record changes with its turns."""

SETTLED_NS = 2_000_000_000
"""A file that is older than this cannot change again with the same time: some file systems keep whole seconds."""

TORN_NS = 1_000_000_000
"""A file that changed so lately and cannot be read may be half written: programs write theirs in place. What it said
before stands so long."""


def fields_of(data: bytes) -> dict[str, Any]:
    """The fields of the JSON object that a record is. Raises BadFrame for anything else."""
    try:
        raw: object = json.loads(data.decode())
    except (ValueError, RecursionError):
        raise BadFrame("not JSON") from None
    if not isinstance(raw, dict):
        raise BadFrame("not a JSON object")
    return cast("dict[str, Any]", raw)


class Entry(NamedTuple, Generic[T]):
    """One file of the folder.

    Attributes:
        name: of the file.
        value: what it says; None where it says nothing that counts.
        reason: why `value` is None; empty where it is not.
        unfit: a person can mend that: an owner, a mode, a kind of file.
    """

    name: str
    value: T | None
    reason: str = ""
    unfit: bool = False


class Records(Generic[T]):
    """The files of one folder whose names a rule takes.

    Args:
        folder: the folder; it need not exist.
        takes: whether a file's name is that of a record.
        parse: reads one, given its name and its bytes; BadFrame where it is none.

    Attributes:
        unchecked: (folder, reason) where the folder could not be read at the latest look.
    """

    def __init__(self, folder: str, takes: Callable[[str], bool], parse: Callable[[str, bytes], T]) -> None:
        self.folder = folder
        self.unchecked: tuple[tuple[str, str], ...] = ()
        self._takes = takes
        self._parse = parse
        self._known: dict[str, tuple[tuple[int, int, int, int], Entry[T]]] = {}
        self._good: dict[str, Entry[T]] = {}

    def mark(self) -> tuple[int, ...]:
        """A value that differs once a file came, went or was written: a stat for the folder and one for each record."""
        paths = (self.folder, *(f"{self.folder}/{name}" for name in self._good))
        return tuple(map(changed_at, paths))

    def look(self) -> list[Entry[T]]:
        """Every record, in the order of the names; those that have not changed cost a stat each."""
        self.unchecked = ()
        now = time.time_ns()
        try:
            files.check_folder(self.folder)
            names = sorted(filter(self._takes, os.listdir(self.folder)))
            if (count := len(names)) > MAX_FILES:
                names.sort(key=lambda name: -changed_at(f"{self.folder}/{name}"))
                names = sorted(names[:MAX_FILES])
                why = f"it has {count:,} records, and the newest {MAX_FILES:,} were read"
                self.unchecked = ((self.folder, why),)
        except UnfitPath as error:
            names = []
            if os.path.lexists(self.folder):
                at = "" if error.path == self.folder else f"{error.path}: "
                self.unchecked = ((self.folder, at + error.reason),)
        except OSError as error:
            names = []
            self.unchecked = ((self.folder, error.strerror or "cannot be read"),)
        fresh: dict[str, tuple[tuple[int, int, int, int], Entry[T]]] = {}
        entries: list[Entry[T]] = []
        for name in names:
            try:
                found = os.lstat(f"{self.folder}/{name}")
            except OSError:
                continue  # it went away while we looked
            mark = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            known = self._known.get(name)
            entry = known[1] if known is not None and known[0] == mark else self._read(name)
            if entry is None:
                continue
            age = now - max(mark[2:])
            if entry.value is None and not entry.unfit and age < TORN_NS:
                entry = self._good.get(name, entry)
            elif not entry.unfit and age > SETTLED_NS:
                fresh[name] = (mark, entry)
            entries.append(entry)
        self._known = fresh
        self._good = {entry.name: entry for entry in entries if entry.value is not None}
        return entries

    def _read(self, name: str) -> Entry[T] | None:
        try:
            data = files.read_private(f"{self.folder}/{name}", MAX_RECORD, readable=True)
            return Entry(name, self._parse(name, data))
        except FileNotFoundError:
            return None
        except UnfitPath as error:
            return Entry(name, None, error.reason, unfit=True)
        except BadFrame as error:
            return Entry(name, None, error.message)


def changed_at(path: str) -> int:
    """When a file was changed last, in nanoseconds; 0 where there is none."""
    try:
        return os.lstat(path).st_ctime_ns  # a write changes it, and a mode that was mended too
    except OSError:
        return 0
