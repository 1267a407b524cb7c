"""Who can be addressed from here, the sessions of other programs among them; a `postroom.directory.Directory`.

It puts what the neighbours' folders tell beside our own roster: candidates, rows, evidence about a connection. A
program whose folder is not there is never loaded (12.17). It also shows this session to the programs that `crossing`
has opened a socket for: their record follows ours with each `publish`, and goes with it (05.28).

ONE SESSION IS LISTED ONCE. A neighbour's session whose process is the process, or the client, of a live session of
ours is that session: what it is called there becomes one more name that answers here.

A neighbour's session is known by program, pid and start, and its conversation's ids answer for it too: clearing a
conversation changes the id, not the peer.

It decides nothing about names, and never writes into a neighbour's folder but for this session.

How it fails: what cannot be read there is an unchecked place or a problem; what cannot be published is a problem.
Nothing raises for what another program left.

Weak: a session there that was renamed within one tick of the file system's clock is known by its old name until
somebody is looked for and not found.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from postroom import neighbours
from postroom.core.address import normal_form, ref_of, uds_address, uds_path
from postroom.core.listing import Row
from postroom.directory import Rows
from postroom.errors import PostroomError
from postroom.neighbour import Found, Look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from postroom.core.index import Candidate, Index, Resolved, Unchecked
    from postroom.directory import Directory
    from postroom.neighbour import Neighbour
    from postroom.state.record import Record

__all__ = ["Neighbourhood", "Post"]

MAX_PROBLEMS = 10
"""Records that were passed over and are named one by one (11.10)."""

REMEMBERED = 256
"""Sessions of neighbours that were here and have ended, of which that is still said; the oldest goes first (11.10)."""

ONE_WAY = (
    "This session has no socket where {title} looks, so {name} cannot answer it and says nothing of what becomes of "
    'the message: `"publishTo": ["{program}"]` in your settings mends it.'
)


class Post(NamedTuple):
    """This session's place among a neighbour's: a socket that listens, and the token that its key file tells."""

    neighbour: Neighbour
    path: str
    token: str


class Neighbourhood:
    """The sessions of this user, ours and the neighbours'.

    Args:
        inner: ours.
        environ: says where the neighbours' folders are.
        registered: the ids of our live sessions whose process, or whose client, is (pid, start).
        own: the record of the session that looks, as it is before it is published; None for an outsider.
    """

    def __init__(
        self,
        inner: Directory,
        environ: Mapping[str, str],
        registered: Callable[[int, str], Sequence[str]],
        *,
        own: Record | None = None,
    ) -> None:
        self._inner = inner
        self._environ = environ
        self._registered = registered
        self.own = own
        """This session's record as it was published last, or will be first; None for an outsider."""
        self._published = False
        self._loaded: dict[str, Neighbour] = {}
        folders = {program: neighbours.folder_of(program, environ) for program in neighbours.NEIGHBOURS}
        self._absent = {program: folder for program, folder in folders.items() if folder}
        self._looks: dict[str, Look] = {}
        self._all: list[tuple[Neighbour, Found]] = []
        self._at: dict[str, tuple[Neighbour, Found]] = {}
        self._ours: dict[str, str] = {}  # a neighbour's identity → the session of ours that it is
        self._filed: dict[str, Found] = {}
        # Ours that are called otherwise elsewhere: as their own record says, and as they are filed.
        self._aliased: dict[str, tuple[Candidate | None, Candidate | None]] = {}
        self._places: tuple[Unchecked, ...] = ()
        self._ended: dict[str, tuple[str, int]] = {}
        self._synced: object = None
        self._posts: dict[str, Post] = {}
        self._failed: dict[str, str] = {}
        self.said: dict[str, str] = {}
        """Program → why this session is not shown there; `crossing` writes it."""

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    def neighbour(self, program: str) -> Neighbour:
        """The neighbour of this name, loaded if it was not."""
        found = self._loaded.get(program)
        if found is None:
            found = self._loaded[program] = neighbours.load(program, self._environ)
            self._absent.pop(program, None)
        return found

    def _around(self) -> bool:
        """Loads the neighbours whose folder has come to be; whether there is any."""
        for program in [one for one, folder in self._absent.items() if os.access(folder, os.F_OK)]:
            self.neighbour(program)
        return bool(self._loaded)

    def _look(self) -> None:
        """Looks at every neighbour's folder."""
        self._looks = {program: one.look() for program, one in self._loaded.items()}
        self._all = [
            (self._loaded[program], found)
            for program, look in self._looks.items()
            for found in look.found
            if not self._among_ours(found.path)
        ]
        self._at = {found.path: (neighbour, found) for neighbour, found in self._all if found.path}
        self._ours = {}
        for _, found in self._all:
            if found.pid and (session_id := self._same(found)):
                self._ours[found.identity] = session_id
        for look in self._looks.values():
            for found in look.ended:
                self._gone(found)

    def _among_ours(self, path: str) -> bool:
        """Whether a socket lies where ours lie: no neighbour's does, whatever its record claims (05.9)."""
        own = self.own.messaging_socket_path if self.own is not None else None
        return own is not None and os.path.dirname(path) == os.path.dirname(own)

    def _same(self, found: Found) -> str:
        """The session of ours that this one is: it lives in its process, or is attached to it; empty for none."""
        ids = self._registered(found.pid, found.start)
        return next((one for one in ids if one in found.session_ids), ids[0] if ids else "")

    def _gone(self, found: Found) -> None:
        """Remembers one that has ended, by whatever it was addressed."""
        for key in (found.identity, normal_form(found.name)):
            self._ended.pop(key, None)
            self._ended[key] = (found.name, found.seen_at or found.started_at)
        while len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def _others(self) -> Iterator[tuple[Neighbour, Found]]:
        """The neighbours' sessions that are none of ours."""
        return (each for each in self._all if each[1].identity not in self._ours)

    def index(self) -> Index:
        """See the port."""
        index = self._inner.index()
        if self._around() and self._synced != (now := self.mark()):
            self._look()
            self._file(index)
            self._synced = now
        elif self._places and self._places[0] not in index.unchecked:
            self._say_unchecked(index)  # ours were looked at again, and said anew
        return index

    def own_index(self) -> Index:
        """See the port."""
        self._inner.own_index()
        return self.index()

    def known(self) -> Mapping[str, Resolved]:
        """See the port."""
        return self._inner.known()

    def refresh(self) -> None:
        """See the port."""
        self._inner.refresh()
        self._synced = None
        self.index()

    def _file(self, index: Index) -> None:
        """Files the neighbours' sessions beside ours, and what ours are called there as names of ours."""
        there = {found.identity: found for _, found in self._others()}
        for identity in [gone for gone in self._filed if gone not in there]:
            gone = self._filed.pop(identity)
            index.remove(identity, local=True)
            if identity not in self._ours:
                self._gone(gone)
        for neighbour, found in self._others():
            if self._filed.get(found.identity) != found or self._synced is None:
                self._filed[found.identity] = found
                index.add(self._candidate(neighbour, found))
        names: dict[str, tuple[str, ...]] = {}
        for _, found in self._all:
            if session_id := self._ours.get(found.identity):
                names[session_id] = (*names.get(session_id, ()), found.name)
        for session_id in {*names, *self._aliased}:
            self._alias(index, session_id, names.get(session_id, ()))
        self._say_unchecked(index)

    def _alias(self, index: Index, session_id: str, names: tuple[str, ...]) -> None:
        """Has a session of ours answer to what it is called elsewhere."""
        now = index.get(session_id)
        base, filed = self._aliased.pop(session_id, (now, now))
        if now is not filed:
            base = now  # it was filed anew since, as its own record says
        if base is None or now is None:
            return
        more = tuple(name for name in names if name not in (base.name, *base.former))
        if more or base is not now:
            wanted = replace(base, former=(*base.former, *more))
            index.add(wanted)
            self._aliased[session_id] = (base, wanted)

    def _say_unchecked(self, index: Index) -> None:
        """Adds the places that could not be looked at to those of ours."""
        from postroom.core.index import Unchecked

        ours = tuple(place for place in index.unchecked if place not in self._places)
        self._places = tuple(Unchecked(place=place, reason=why) for place, why in self._unchecked())
        if index.unchecked != (*ours, *self._places):
            index.unchecked = (*ours, *self._places)

    def _unchecked(self) -> list[tuple[str, str]]:
        return [place for look in self._looks.values() for place in look.unchecked]

    def _candidate(self, neighbour: Neighbour, found: Found) -> Candidate:
        from postroom.core.index import Candidate

        reachable = bool(found.path) and not found.condition
        one_way = ""
        if self.own is not None and found.program not in self._posts:
            one_way = ONE_WAY.format(title=neighbour.title, name=found.name, program=found.program)
        return Candidate(
            identity=found.identity,
            name=found.name,
            ref=ref_of(found.identity),
            # The ids of its conversations answer like names that it had (05.28).
            former=(*found.former, *found.session_ids),
            where=found.cwd,
            address=uds_address(found.path) if reachable else "",
            pid=found.pid,
            start=found.start,
            chains=found.chains,
            tells_idle=found.tells_idle,
            program=found.program,
            confirms="written",
            condition=found.condition,
            receipts=found.receipts,
            one_way=one_way,
        )

    # ── who is there ─────────────────────────────────────────────────────────────────────────────

    def rows(self) -> Rows:
        """See the port; a neighbour's session is asked whether it lives with one connect (05.11)."""
        rows, unchecked = self._inner.rows()
        if not self._around():
            return Rows(rows, unchecked)
        self._look()
        names: dict[str, tuple[str, ...]] = {}
        others: list[Row] = []
        for neighbour, found in self._all:
            session_id = self._ours.get(found.identity)
            if session_id is not None:
                names[session_id] = (*names.get(session_id, ()), found.name)
            elif neighbour.probe(found):
                others.append(row_of(found))
        ours = [
            row._replace(aliases=aliases_of(row, names[row.identity])) if row.identity in names else row
            for row in rows
        ]
        places = dict.fromkeys((*unchecked, *self._unchecked()))
        return Rows([*ours, *others], list(places))

    def live(self, identity: str) -> bool:
        """See the port."""
        found = self._filed.get(identity)
        if found is None:
            return self._inner.live(identity)
        return self._loaded[found.program].probe(found)

    def mark(self) -> object:
        """See the port."""
        if not self._loaded:
            return self._inner.mark()
        return (self._inner.mark(), *(one.mark() for one in self._loaded.values()))

    def sign(self, identity: str) -> int:
        """See the port."""
        found = next((one for _, one in self._all if one.identity == identity), None)
        return self._inner.sign(identity) if found is None else found.seen_at

    def ended(self, who: str) -> tuple[str, int] | None:
        """See the port."""
        return self._inner.ended(who) or self._ended.get(who) or self._ended.get(normal_form(who))

    def problems(self) -> tuple[str, ...]:
        """See the port; also why this session is not shown to a neighbour that it should be shown to."""
        said = list(self._inner.problems())
        if self._around():
            self._look()
            unfit = [
                f"The record {name} of {self._loaded[program].title} was passed over: {reason}."
                for program, look in self._looks.items()
                for name, reason in look.unfit
            ]
            said += [f"{place} could not be read: {reason}." for place, reason in self._unchecked()]
            unfit += [
                f"{found.name} of {neighbour.title} runs, and nobody listens at its socket."
                for neighbour, found in self._others()
                if not neighbour.probe(found)
            ]
            said += unfit[:MAX_PROBLEMS]
            if len(unfit) > MAX_PROBLEMS:
                said.append(f"{len(unfit) - MAX_PROBLEMS} more sessions of neighbours cannot be written to.")
        return (*said, *self.said.values(), *self._failed.values())

    # ── who is behind an address ─────────────────────────────────────────────────────────────────

    def at(self, address: str) -> tuple[Neighbour, Found] | None:
        """Whose words are spoken at an address, and who is there as far as that is known; None: ours.

        A socket that lies where a neighbour's lie is spoken to in its words, whoever listens there (05.28).
        """
        if not self._loaded:
            return None
        path = uds_path(address)
        if path is None:
            return None
        known = self._at.get(path)
        if known is not None:
            return known
        for program, one in self._loaded.items():
            if one.near(path):
                return one, Found(program=program, identity="", name="", path=path)
        return None

    def verify(self, address: str, pid: int, start: str) -> tuple[str, str] | None:
        """See the port: ours first, then the neighbours' by the process that their record names (04.15, 09.15)."""
        ours = self._inner.verify(address, pid, start)
        if ours is not None or not pid or not self._around():
            return ours
        path = uds_path(address)
        if path is None:
            return None
        if path not in self._at:
            self._synced = None
        self.index()
        _, found = self._at.get(path, (None, None))
        if found is None or not found.pid or (found.pid, found.start) != (pid, start):
            return None
        session_id = self._ours.get(found.identity)
        if session_id is None:
            return found.identity, found.name
        known = self.index().get(session_id)
        return session_id, found.name if known is None else known.name

    def doubt(self, address: str, pid: int, start: str) -> str:
        """See the port."""
        if uds_path(address) in self._at:
            return "another process is registered there than the one that sent the message"
        return self._inner.doubt(address, pid, start)

    def acknowledges(self, address: str) -> bool:
        """See the port: no neighbour understands what only ours say."""
        return self.at(address) is None and self._inner.acknowledges(address)

    def sends_chains(self, identity: str) -> bool:
        """See the port."""
        found = self._filed.get(identity)
        return self._inner.sends_chains(identity) if found is None else found.chains

    # ── being somebody ───────────────────────────────────────────────────────────────────────────

    def claim(self, name: str, now: int, *, chosen: bool = True) -> str:
        """See the port."""
        return self._inner.claim(name, now, chosen=chosen)

    def publish(self, record: Record) -> None:
        """See the port; the neighbours to which this session is shown hear of it too."""
        self._inner.publish(record)
        self.own, self._published = record, True
        for program in self._posts:
            self._show(program)

    def _show(self, program: str) -> None:
        post = self._posts[program]
        assert self.own is not None
        try:
            post.neighbour.publish(self.own, post.path, post.token)
            self._failed.pop(program, None)
        except PostroomError as error:
            self._failed[program] = f"This session is not shown to {post.neighbour.title}: {error}"

    def appear(self, program: str, post: Post) -> None:
        """Shows this session to a neighbour, now and at each `publish`; its socket listens already (05.28)."""
        self._posts[program] = post
        self._synced = None
        if self._published:
            self._show(program)

    def vanish(self, program: str) -> None:
        """Shows it there no longer: record, token and socket go. Nothing happens where it was not shown."""
        post = self._posts.pop(program, None)
        self._failed.pop(program, None)
        self._synced = None
        if post is not None and self.own is not None:
            post.neighbour.withdraw(self.own, post.path)

    def leave(self, now: int) -> None:
        """See the port; also where neighbours look. Safe in a signal handler."""
        for program in list(self._posts):
            self.vanish(program)
        self._inner.leave(now)


def aliases_of(row: Row, names: Sequence[str]) -> tuple[str, ...]:
    """The names that a session of ours answers to, with what it is called elsewhere."""
    return (*row.aliases, *(name for name in names if name not in (row.name, *row.aliases)))


def row_of(found: Found) -> Row:
    """One row of a listing (01.29)."""
    return Row(
        identity=found.identity,
        name=found.name,
        aliases=found.former,
        state=found.state,
        presence=found.presence,
        cwd=found.cwd,
        program=found.program,
        machine=os.uname().nodename,
        pid=found.pid,
        seen_at=found.seen_at,
        condition=found.condition,
        confirms="written",
    )
