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
