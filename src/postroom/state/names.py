"""Whose name is whose: claims of names, one small file each, made under one lock (02.3, 02.4).

What it decides: whether a newcomer gets the name that it asks for, or a variant. A claim lies in
`names/<first 32 hex of the SHA-256 of the normal form>` and its first line is the session's id, so who holds
a name is one read. The second line says whether it is the session's `primary` name or a `former` one, the
third is the name as it is shown. Beside that, each session's own folder remembers in `names` what it was
called, what it had asked for, and its former names, so that a restart brings them back.

What it never does: look at records, judge a name's characters (`address.check_name`), or keep a name for a
session that is not there: a claim counts while its session lives, and a former name only until another live
session claims it.

How it fails: `StoreFailed` where the lock stays taken or a file cannot be written. A claim file that says
nothing sensible counts as none.

What is weak: a power cut may lose a claim that was made a moment before. Every session is gone then too.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from postroom.core import address
from postroom.errors import StoreFailed, UnfitPath
from postroom.state import files
from postroom.state.record import is_session_id

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_CLAIM = 4096
"""Bytes of a claim; ours have at most 400."""

MAX_MEMORY = 65_536
"""Bytes of what a session's folder remembers of its names: at most 18 of them."""

MAX_KEPT = 16
"""Former names of one session that keep answering; the oldest is given up, so that claims stay few (11.10)."""

LOCK_SECONDS = 5.0
"""How long a claim waits for others; each takes a few milliseconds."""

_STANDINGS = ("primary", "former")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who holds a name.

    Attributes:
        session_id: the session.
        former: it was called so before and is called otherwise now.
        name: as it is shown.
    """

    session_id: str
    former: bool
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a session was called, as its folder remembers it.

    Attributes:
        name: its latest name.
        chosen: what was asked for, by a person or a client; empty when the name was derived.
        former: (name, until) of earlier names, newest first, epoch milliseconds.
    """

    name: str = ""
    chosen: str = ""
    former: tuple[tuple[str, int], ...] = ()


class Names:
    """The claims of one state folder.

    Args:
        state: the state folder; it was made and checked before.
        lives: says whether a session is running (its lock is held).
    """

    def __init__(self, state: str, lives: Callable[[str], bool]) -> None:
        self._folder = os.path.join(state, "names")
        self._sessions = os.path.join(state, "sessions")
        self._lives = lives

    def claim(self, name: str, session_id: str, *, chosen: bool, now: int) -> str:
        """Claims a name for a session that holds its lock, and makes its name until now a former one.

        Args:
            name: a valid name.
            session_id: who wants it; its folder is there.
            chosen: somebody asked for this name; False for a derived one (02.1).
            now: epoch milliseconds.

        Returns the name, or the first variant that no other live session holds (02.3). Its former names are
        claimed again as far as no other live session has them (02.4). Raises StoreFailed.
        """
        lock = self._locked()
        try:
            known = self.known(session_id)
            got = name
            if self._taken(name, session_id):
                got = address.variant(name, lambda form: self._taken(form, session_id))
            former = _followed(known, got, now)
            self._write(got, Claim(session_id=session_id, former=False, name=got))
            for old, _ in former[:MAX_KEPT]:
                self._keep_former(old, session_id)
            for old, _ in former[MAX_KEPT:]:
                self._drop(old, session_id)
            remembered = Known(name=got, chosen=name if chosen else known.chosen, former=former[:MAX_KEPT])
            self._remember(session_id, remembered)
        finally:
            lock.release()
        return got

    def _locked(self) -> files.Lock:
        """The lock under which claims change, held."""
        files.private_folder(self._folder)
        lock = files.Lock(os.path.join(self._folder, ".lock"))
        if not lock.acquire(LOCK_SECONDS):
            raise StoreFailed("The names of this machine stay locked by another process.", "Try again.")
        return lock

    def _taken(self, name: str, session_id: str) -> bool:
        """Whether another live session is called so; who was called so before does not keep it (02.4)."""
        claim = self.holder(name)
        return (
            claim is not None
            and not claim.former
            and claim.session_id != session_id
            and self._lives(claim.session_id)
        )

    def _keep_former(self, name: str, session_id: str) -> None:
        """Claims a former name where it would otherwise lead to nobody."""
        claim = self.holder(name)
        if claim is None or claim.session_id == session_id or not self._lives(claim.session_id):
            self._write(name, Claim(session_id=session_id, former=True, name=name))

    def holder(self, name: str) -> Claim | None:
        """Returns whose name this is, in one read (02.3); whether that session lives is not looked at."""
        try:
            return self.claimed(name)
        except (OSError, UnfitPath):
            return None

    def claimed(self, name: str) -> Claim | None:
        """The same for whoever can go by nothing else. Raises UnfitPath for a claim that counts as none."""
        path = self._path(name)
        try:
            lines = files.read_private(path, MAX_CLAIM).decode("utf-8", "replace").split("\n")
        except FileNotFoundError:
            return None
        if len(lines) < 3 or not is_session_id(lines[0]) or lines[1] not in _STANDINGS:
            raise UnfitPath(path, "it does not say whose name that is", "Name the session by its id.")
        return Claim(session_id=lines[0], former=lines[1] == "former", name=lines[2])

    def release(self, session_id: str) -> None:
        """Gives up every name of a session, for good: its folder is about to go. Raises StoreFailed."""
        known = self.known(session_id)
        lock = self._locked()
        try:
            for name in (known.name, *(name for name, _ in known.former)):
                self._drop(name, session_id)
        finally:
            lock.release()

    def _drop(self, name: str, session_id: str) -> None:
        claim = self.holder(name)
        if claim is not None and claim.session_id == session_id:
            os.unlink(self._path(name))

    def sweep(self) -> int:
        """Removes the claims of sessions whose folder is gone; returns how many (11.10). Raises StoreFailed."""
        swept = 0
        lock = self._locked()
        try:
            for entry in os.listdir(self._folder):
                path = os.path.join(self._folder, entry)
                if files.is_temporary(entry) or (entry != ".lock" and not self._has_folder(path)):
                    os.unlink(path)
                    swept += 1
        finally:
            lock.release()
        return swept

    def _has_folder(self, path: str) -> bool:
        """Whether the session that a claim file names still has its folder; True for what is no claim."""
        try:
            owner = files.read_private(path, MAX_CLAIM).split(b"\n")[0].decode()
        except (OSError, UnfitPath, UnicodeDecodeError):
            return True
        return bool(owner) and os.path.isdir(os.path.join(self._sessions, owner))

    def known(self, session_id: str) -> Known:
        """Returns what a session was called, as its folder remembers it; nothing for an unknown one."""
        try:
            raw: object = json.loads(files.read_private(self._memory(session_id), MAX_MEMORY).decode())
        except (OSError, UnfitPath, ValueError, RecursionError):
            return Known()
        return _known(raw)

    def _remember(self, session_id: str, known: Known) -> None:
        raw = {"name": known.name, "chosen": known.chosen, "former": [list(entry) for entry in known.former]}
        files.write_atomic(self._memory(session_id), json.dumps(raw).encode())

    def _write(self, name: str, claim: Claim) -> None:
        standing = _STANDINGS[claim.former]
        data = f"{claim.session_id}\n{standing}\n{claim.name}\n".encode()
        files.write_atomic(self._path(name), data, sync=False)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, address.claim_key(name))

    def _memory(self, session_id: str) -> str:
        return os.path.join(self._sessions, session_id, "names")


def _followed(known: Known, name: str, now: int) -> tuple[tuple[str, int], ...]:
    """The former names once a session is called `name`, newest first."""
    form = address.normal_form(name)
    before = known.former
    if known.name:
        before = ((known.name, now), *before)
    kept: dict[str, tuple[str, int]] = {}
    for entry in before:
        old = address.normal_form(entry[0])
        if old != form:
            kept.setdefault(old, entry)
    return tuple(kept.values())


def _known(raw: object) -> Known:
    """Reads what a folder remembers, piece by piece; what makes no sense is left out."""
    if not isinstance(raw, dict):
        return Known()
    fields = cast("dict[str, object]", raw)
    texts = {key: value for key, value in fields.items() if isinstance(value, str)}
    former: list[tuple[str, int]] = []
    entries = fields.get("former")
    for entry in cast("list[object]", entries) if isinstance(entries, list) else []:
        match entry:
            case [str(name), int(until)]:
                former.append((name, until))
            case _:
                continue
    return Known(name=texts.get("name", ""), chosen=texts.get("chosen", ""), former=tuple(former[:MAX_KEPT]))
