"""The index: everybody who can be addressed from here, filed so that one name costs one look-up.

What it decides: which of two sightings of one session counts (the one on this machine), which names have a
finished answer, which names are near a mistyped one. Who is meant in the end is `resolve`'s decision.

What it never does: look anything up on the machine. Whoever knows the roster adds, replaces and removes; a change
costs a few look-ups and one insertion into a sorted list, and nothing is ever rebuilt (12.5).

How it fails: it does not. Names in it are claims from elsewhere and may be any text.

What is weak: among more than `NEAR_POOL` names, near names are looked for where the beginning is right or one
letter is wrong, not everywhere.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from postroom.core.address import (
    MAIN,
    MAX_NAME,
    MIN_REF,
    clean_line,
    identity_hash,
    look_alike,
    mixed_script,
    normal_form,
    shortest_refs,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from postroom.core.message import PartyKind

MIN_PREFIX = 3
"""Characters of a normal form that may stand for a longer name: fewer would match by accident (02.12)."""

NEAR_POOL = 2000
"""Names that are compared letter by letter to find near ones: a refusal must not cost a second."""

MAX_DISTANCE = 3
"""Edits up to which a name is near, and never more than a third of its length."""

MAX_NEAR = 3
"""Near names that are offered (02.14)."""

_LAST = "\U0010ffff"  # sorts after every character that goes on a name
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Somebody who can be addressed from here; one entry of the roster (02.7).

    Attributes:
        identity: the key that never changes: a session id, an agent id, or team and member id.
        name: what it is called now; a claim.
        ref: the first digits of the identity's hash, as lists show it.
        kind: `session`, `agent` or `teammate`.
        former: names that it had and that still answer (02.4).
        where: its working directory, or its machine when that is another one.
        type: an agent's type; a hint, never an address.
        near: inside this session: its agents, its teammates, its main conversation.
        observer: a watcher; nobody can address it (06.14).
        own: the caller itself.
        address: where it is reached; never shown.
        pid: its process; 0 when that is not known.
        start: that process's start; empty when that is not known.
        acknowledges: it announces `postroom_ack` (05.22).
        chains: it announces `postroom_chain`: it sends on the chain of what it answers (03.66).
        tells_idle: it announces `notify_idle`: it can be asked to say when it is idle (05.31).
        program: which program it belongs to.
        confirms: what can be confirmed of a message to it, once it was accepted (09.16).
        wakes: a message wakes it while it is idle.
        condition: what changes a send to it, such as `offline`.
        receipts: its own program tells what became of a message, though it does not acknowledge.
        one_way: a sentence that says why it cannot answer this session; empty where it can.
        local: on this machine.
        live: running; a stopped agent keeps its name, but a live one goes before it (02.9).
        session: for one seen beyond this machine, its session id, where the identity is more than that (08.7).
    """

    identity: str
    name: str
    ref: str
    kind: PartyKind = "session"
    former: tuple[str, ...] = ()
    where: str = ""
    type: str = ""
    near: bool = False
    observer: bool = False
    own: bool = False
    address: str = ""
    pid: int = 0
    start: str = ""
    acknowledges: bool = False
    chains: bool = False
    tells_idle: bool = False
    program: str = "postroom"
    confirms: str = "consumed"
    wakes: bool = True
    condition: str = ""
    receipts: bool = False
    one_way: str = ""
    local: bool = True
    live: bool = True
    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    """A place whose candidates are not known: a folder of records, a realm, a gateway (02.14).

    Attributes:
        place: what people call it.
        reason: why it could not be checked.
    """

    place: str
    reason: str


class Resolved(NamedTuple):
    """The one candidate that a target means.

    Attributes:
        candidate: who it is.
        warnings: sentences for the sender: a prefix taken, a namesake beyond, a place not checked, …
        renames_pin: the target was explicit (`name [ref]`), so that it moves the pin of its name (02.18).
        form: the normal form of the candidate's full name, which is pinned too (02.12).
    """

    candidate: Candidate
    warnings: tuple[str, ...] = ()
    renames_pin: bool = False
    form: str = ""


def completion(candidate: Candidate) -> str:
    """What the sender is told when a prefix was taken: the full name (02.12)."""
    return f"Taken as {clean_line(candidate.name, MAX_NAME)}, whose name begins so."


# One key mostly leads to one candidate, which stands there bare; several stand in a dictionary by identity.
_Table = dict[str, "Candidate | dict[str, Candidate]"]


def _put(table: _Table, key: str, candidate: Candidate) -> None:
    """Files a candidate under a key, in place of an earlier one of the same identity."""
    there = table.get(key)
    if isinstance(there, dict):
        there[candidate.identity] = candidate
    elif there is None or there.identity == candidate.identity:
        table[key] = candidate
    else:
        table[key] = {there.identity: there, candidate.identity: candidate}


def _drop(table: _Table, key: str, candidate: Candidate) -> None:
    """Takes this very candidate out; one that has replaced it stays."""
    there = table.get(key)
    if there is candidate:
        del table[key]
    elif isinstance(there, dict) and there.get(candidate.identity) is candidate:
        del there[candidate.identity]
        if len(there) == 1:
            table[key] = next(iter(there.values()))


def _under(table: _Table, key: str) -> tuple[Candidate, ...]:
    """Everybody who is filed under a key."""
    there = table.get(key)
    if there is None:
        return ()
    return tuple(there.values()) if isinstance(there, dict) else (there,)


def _sessions(far: Candidate) -> set[str]:
    """The ids by which one seen beyond may also be here."""
    return {far.identity, far.session or far.identity}


class Index:
    """The candidates and the places that could not be checked (02.7, 02.14).

    A session seen here and beyond is one candidate, the one here; when it ends here, the one beyond stands.
    An observer can be had by its identity and by nothing else.
    """

    def __init__(self, candidates: Iterable[Candidate] = (), unchecked: tuple[Unchecked, ...] = ()) -> None:
        """Files all of `candidates`, sorting once; the same as adding each."""
        self._here: dict[str, Candidate] = {}
        self._beyond: dict[str, Candidate] = {}
        self._hidden: set[str] = set()  # identities beyond whose session is here
        self._sides: _Table = {}  # session id → the same session as seen beyond
        self._names: _Table = {}  # normal form → who is called so
        self._former: _Table = {}  # normal form → who was called so
        self._types: _Table = {}  # normal form of a type → agents of it
        self._ids: _Table = {}  # normal form of an inner id → whose it is
        self._refs: _Table = {}  # first digits of the hash → who has them
        self._forms: list[str] = []  # the keys of _names, sorted
        self._ready: dict[str, Resolved] = {}
        self._completions: dict[str, Resolved] = {}  # full normal form → the answer to a prefix of it
        self._unchecked: tuple[Unchecked, ...] = ()
        self.direct: Mapping[str, Resolved] = self._ready
        """Names, as shown and in normal form, to which nobody else can answer: the finished answer (12.4)."""
        self._sorting = False
        for candidate in candidates:
            self.add(candidate)
        self._sorting = True
        self._forms = sorted(self._names)
        self.unchecked = unchecked

    # ── changes ──────────────────────────────────────────────────────────────────────────────────

    @property
    def unchecked(self) -> tuple[Unchecked, ...]:
        """The places that could not be checked; may be set."""
        return self._unchecked

    @unchecked.setter
    def unchecked(self, places: tuple[Unchecked, ...]) -> None:
        self._unchecked = places
        self._completions.clear()
        # While a place is unchecked no name is beyond doubt: every answer carries a warning.
        self.direct = {} if places else self._ready

    def add(self, candidate: Candidate) -> None:
        """Files a candidate, in place of the one of the same identity that was seen on the same side."""
        if candidate.local:
            self._add_here(candidate)
        else:
            self._add_beyond(candidate)

    def _add_here(self, candidate: Candidate) -> None:
        old = self._here.get(candidate.identity)
        if old is candidate:
            return
        self._here[candidate.identity] = candidate
        # The new one first: where both have a name, its table never runs empty in between.
        self._link(candidate)
        if old is not None:
            self._unlink(old)
            return
        for far in _under(self._sides, candidate.identity):
            if far.identity not in self._hidden:
                self._hidden.add(far.identity)
                self._unlink(far)

    def _add_beyond(self, candidate: Candidate) -> None:
        identity = candidate.identity
        old = self._beyond.get(identity)
        if old is candidate:
            return
        was_linked = old is not None and identity not in self._hidden
        self._beyond[identity] = candidate
        for session in _sessions(candidate):
            _put(self._sides, session, candidate)
        if any(session in self._here for session in _sessions(candidate)):
            self._hidden.add(identity)
        else:
            self._hidden.discard(identity)
            self._link(candidate)
        if old is not None:
            for session in _sessions(old):
                _drop(self._sides, session, old)
            if was_linked:
                self._unlink(old)

    def remove(self, identity: str, *, local: bool | None = None) -> None:
        """Takes a candidate out; one that is not there is no error.

        Args:
            identity: whose.
            local: True: as seen on this machine, False: as seen beyond it, None: both.
        """
        far = None if local else self._beyond.pop(identity, None)
        if far is not None:
            for session in _sessions(far):
                _drop(self._sides, session, far)
            if identity not in self._hidden:
                self._unlink(far)
            self._hidden.discard(identity)
        here = None if local is False else self._here.pop(identity, None)
        if here is not None:
            self._unlink(here)
            for other in _under(self._sides, identity):
                if not any(session in self._here for session in _sessions(other)):
                    self._hidden.discard(other.identity)
                    self._link(other)

    def _link(self, candidate: Candidate) -> None:
        """Makes a candidate findable."""
        if candidate.observer:
            return
        form = normal_form(candidate.name)
        if form:
            known = form in self._names
            _put(self._names, form, candidate)
            if self._sorting and not known:
                insort(self._forms, form)
            self._refresh(form)
        for table, key in self._other_keys(candidate):
            _put(table, key, candidate)
            if table is self._ids:
                self._refresh(key)

    def _unlink(self, candidate: Candidate) -> None:
        """Undoes `_link`, where no newer one of the same identity has taken the place."""
        if candidate.observer:
            return
        form = normal_form(candidate.name)
        if form:
            _drop(self._names, form, candidate)
            if self._sorting and form not in self._names:
                del self._forms[bisect_left(self._forms, form)]
            self._refresh(form)
        for table, key in self._other_keys(candidate):
            _drop(table, key, candidate)
            if table is self._ids:
                self._refresh(key)

    def _other_keys(self, candidate: Candidate) -> Iterator[tuple[_Table, str]]:
        """Where a candidate is filed besides its name."""
        yield self._refs, identity_hash(candidate.identity)[:MIN_REF]
        for name in candidate.former:
            yield self._former, normal_form(name)
        if candidate.type:
            yield self._types, normal_form(candidate.type)
        if candidate.near:
            yield self._ids, normal_form(candidate.identity)

    def _refresh(self, form: str) -> None:
        """Decides anew whether a normal form has a finished answer."""
        stale = self._ready.pop(form, None)
        if stale is not None:
            self._ready.pop(stale.candidate.name, None)
            self._completions.pop(form, None)
        only = self._names.get(form)
        if isinstance(only, Candidate) and self._is_plain(only, form):
            self._ready[form] = self._ready[only.name] = Resolved(only, form=form)

    def _is_plain(self, only: Candidate, form: str) -> bool:
        """Nothing but this one name can matter for such a target: no id, no syntax, no likeness, no own."""
        return not (
            only.own
            or "[" in form
            or ":" in form
            or (form == MAIN and not only.near)
            or any(inner is not only for inner in _under(self._ids, form))
            or (not form.isascii() and (mixed_script(only.name) or look_alike(only.name) is not None))
        )

    # ── look-ups ─────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return len(self._here) + len(self._beyond) - len(self._hidden)

    def __iter__(self) -> Iterator[Candidate]:
        """Every candidate once, those here first; observers too."""
        far = (candidate for identity, candidate in self._beyond.items() if identity not in self._hidden)
        return chain(self._here.values(), far)

    def get(self, identity: str) -> Candidate | None:
        """The candidate of an identity; for one seen beyond whose session is here, the one here (02.14)."""
        here = self._here.get(identity)
        if here is not None:
            return here
        far = self._beyond.get(identity)
        return None if far is None else self._here.get(far.session, far)

    def named(self, form: str) -> tuple[Candidate, ...]:
        """Those whose name has this normal form."""
        return _under(self._names, form)

    def formerly(self, form: str) -> tuple[Candidate, ...]:
        """Those that had a name of this normal form (02.4)."""
        return _under(self._former, form)

    def beginning(self, form: str) -> tuple[Candidate, ...]:
        """Those whose normal form begins with this one, in the order of their names."""
        forms = self._forms
        at = bisect_left(forms, form)
        if at == len(forms) or not forms[at].startswith(form):
            return ()
        if at + 1 == len(forms) or not forms[at + 1].startswith(form):
            return _under(self._names, forms[at])
        end = bisect_left(forms, form + _LAST, at)
        return tuple(candidate for name in forms[at:end] for candidate in _under(self._names, name))

    def completed(self, form: str) -> Resolved | None:
        """The finished answer of the only name that begins so; None where anything else may answer (12.4)."""
        forms = self._forms
        at, end = bisect_left(forms, form), len(forms)
        if at == end or not forms[at].startswith(form):
            return None
        if at + 1 < end and forms[at + 1].startswith(form):
            return None
        if len(form) < MIN_PREFIX or form == MAIN or form in self._former or form in self._ids:
            return None
        full = forms[at]
        return self._completions.get(full) or self._complete(full)

    def _complete(self, full: str) -> Resolved | None:
        """Makes that answer, and keeps it for as long as the one of the full name stands."""
        ready = self.direct.get(full)
        if ready is None:
            return None
        made = self._completions[full] = ready._replace(warnings=(completion(ready.candidate),))
        return made

    def of_type(self, form: str) -> tuple[Candidate, ...]:
        """Those whose type has this normal form: a hint only."""
        return _under(self._types, form)

    def with_ref(self, ref: str) -> tuple[Candidate, ...]:
        """Those whose hash starts with these hex digits, six or more (02.14)."""
        filed = _under(self._refs, ref[:MIN_REF])
        return tuple(one for one in filed if identity_hash(one.identity).startswith(ref))

    def ref(self, candidate: Candidate) -> str:
        """The shortest ref that selects this candidate and nobody else in the index (02.7)."""
        filed = _under(self._refs, identity_hash(candidate.identity)[:MIN_REF])
        return shortest_refs([candidate.identity, *(one.identity for one in filed)])[candidate.identity]

    def near_names(self, form: str) -> list[str]:
        """Up to three normal forms that a mistyped one may have meant, nearest first (02.14)."""
        limit = min(MAX_DISTANCE, len(form) // 3)
        letters = set(form)
        # An edit takes away one letter at most: most names fail that already, without being measured.
        possible = (other for other in self._pool(form) if len(letters.difference(other)) <= limit)
        measured = ((_distance(form, other, limit), other) for other in possible)
        return [other for _, other in nsmallest(MAX_NEAR, (pair for pair in measured if pair[0] <= limit))]

    def _pool(self, form: str) -> Iterable[str]:
        """The names worth measuring: all, or those around it in the order and those at one edit."""
        forms = self._forms
        if len(forms) <= NEAR_POOL:
            return forms
        at = bisect_left(forms, form)
        around = forms[max(0, at - NEAR_POOL // 2) : at + NEAR_POOL // 2]
        return {*around, *(edited for edited in _edits(form) if edited in self._names)}


def _edits(form: str) -> Iterator[str]:
    """Every form at one edit: a letter less, two swapped, one replaced, one more."""
    for at in range(len(form) + 1):
        head, tail = form[:at], form[at:]
        yield head + tail[1:]
        yield head + tail[1:2] + tail[:1] + tail[2:]
        for letter in _LETTERS:
            yield head + letter + tail[1:]
            yield head + letter + tail


def _distance(one: str, other: str, limit: int) -> int:
    """Letters to add, drop, replace or swap with a neighbour; a number above `limit` when it is more."""
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    earlier: list[int] = []
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        earlier, before, row = before, row, [i]
        for j, facing in enumerate(other, 1):
            best = min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != facing))
            if i > 1 and j > 1 and letter == other[j - 2] and facing == one[i - 2]:
                best = min(best, earlier[j - 2] + 1)
            row.append(best)
        if min(row) > limit:
            return limit + 1
    return row[-1]
