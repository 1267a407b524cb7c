"""The directory's twin in memory: who can be addressed among the sessions of one process.

For programs that are tested without files and sockets, and for the simulation. A `Gathering` is what a state folder
is to the others: everybody who joined it and has not left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.core.address import normal_form, ref_of, variant
from postroom.core.resolve import Candidate, Index
from postroom.directory import Rows
from postroom.state.directory import row_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroom.core.resolve import Resolved
    from postroom.state.record import Record

__all__ = ["Gathering", "MemoryDirectory"]


class Gathering:
    """The sessions of one process that can find each other.

    Attributes:
        index: the candidates; a change files one entry and rebuilds nothing (12.5).
        records: what each session says of itself, by session id.
        hub: what carries their messages; whoever opens the first session puts it there.
        ended: (name, when) of those that left, by session id and by the normal form of their name.
        changes: how often somebody came, went or was renamed.
        copies: the indexes of sessions that put agents of their own into them; each follows every change.
    """

    def __init__(self) -> None:
        self.index = Index()
        self.copies: list[Index] = []
        self.hub: object = None
        self.records: dict[str, Record] = {}
        self.ended: dict[str, tuple[str, int]] = {}
        self.changes = 0
        self._addresses: dict[str, str] = {}
        self._holders: dict[str, str] = {}
        self._primary: dict[str, str] = {}

    def claim(self, name: str, session_id: str) -> str:
        """Claims a name; returns it, or the first variant that nobody here is called (02.3).

        A former name is its session's until another one claims it (02.4).
        """

        def taken(form: str) -> bool:
            holder = self._holders.get(form, session_id)
            return holder != session_id and self._primary[holder] == form

        got = variant(name, taken) if taken(normal_form(name)) else name
        form = normal_form(got)
        before = self._holders.get(form, session_id)
        self._holders[form] = session_id
        self._primary[session_id] = form
        if before != session_id:
            self._file(self.records[before])
        return got

    def aliases(self, record: Record) -> tuple[str, ...]:
        """The former names of a record that still lead to it (02.4)."""
        names = (former.name for former in record.former_names)
        return tuple(name for name in names if self._holders.get(normal_form(name)) == record.session_id)

    def join(self, record: Record, address: str) -> None:
        """Files a session, or what it says of itself now."""
        self.records[record.session_id] = record
        self._addresses[record.session_id] = address
        self._file(record)

    def _file(self, record: Record) -> None:
        self.changes += 1
        candidate = Candidate(
            identity=record.session_id,
            name=record.name,
            ref=ref_of(record.session_id),
            former=self.aliases(record),
            where=record.cwd,
            address=self._addresses[record.session_id],
            pid=record.pid,
            start=record.proc_start,
            acknowledges="postroom_ack" in record.peer_features,
            chains="postroom_chain" in record.peer_features,
            tells_idle="notify_idle" in record.peer_features,
        )
        for index in (self.index, *self.copies):
            index.add(candidate)

    def leave(self, session_id: str, now: int) -> None:
        """Takes a session out; its names are free."""
        record = self.records.pop(session_id, None)
        if record is not None:
            self.changes += 1
            for index in (self.index, *self.copies):
                index.remove(session_id)
            self.ended[session_id] = self.ended[normal_form(record.name)] = (record.name, now)
            self._holders = {form: holder for form, holder in self._holders.items() if holder != session_id}
            del self._primary[session_id], self._addresses[session_id]


class MemoryDirectory:
    """A gathering as one of its sessions sees it.

    Args:
        gathering: where it is.
        own: its record.
        address: where its transport accepts.
    """

    def __init__(self, gathering: Gathering, own: Record, address: str) -> None:
        self._gathering = gathering
        self._own = own
        self._address = address
        self._inner: Index | None = None

    def index(self) -> Index:
        """The candidates as they are now."""
        return self._gathering.index if self._inner is None else self._inner

    def own_index(self) -> Index:
        """A copy that follows what happens here from now on."""
        if self._inner is None:
            self._inner = Index(self._gathering.index)
            self._gathering.copies.append(self._inner)
        return self._inner

    def known(self) -> Mapping[str, Resolved]:
        """The finished answers."""
        return self.index().direct

    def refresh(self) -> None:
        """Nothing to look at: a gathering knows when somebody leaves."""

    def mark(self) -> object:
        """A value that differs once somebody came, went or was renamed."""
        return self._gathering.changes

    def problems(self) -> tuple[str, ...]:
        """None: nothing lies in files here."""
        return ()

    def live(self, identity: str) -> bool:
        """Whether that session has not left."""
        return identity in self._gathering.records

    def verify(self, address: str, pid: int, start: str) -> tuple[str, str] | None:
        """The session (id, name) at an address, where (pid, start) is its process."""
        for record in self._gathering.records.values():
            if (record.messaging_socket_path, record.pid, record.proc_start) == (address, pid, start):
                return record.session_id, record.name
        return None

    def doubt(self, address: str, pid: int, start: str) -> str:
        """Why `verify` finds nobody (03.18)."""
        del address, pid, start
        return "no session that is registered sends from there"

    def acknowledges(self, address: str) -> bool:
        """Whether the session at `address` understands what only ours say; of nobody it is not known (05.24)."""
        return all(
            "postroom_ack" in record.peer_features
            for record in self._gathering.records.values()
            if record.messaging_socket_path == address
        )

    def sends_chains(self, identity: str) -> bool:
        """Whether that session announces `postroom_chain` (03.66)."""
        record = self._gathering.records.get(identity)
        return record is not None and "postroom_chain" in record.peer_features

    def ended(self, who: str) -> tuple[str, int] | None:
        """The name of a session that left, and when (02.13)."""
        ended = self._gathering.ended
        return ended.get(who) or ended.get(normal_form(who))

    def claim(self, name: str, now: int, *, chosen: bool = True) -> str:
        """Claims a name for this session (02.3)."""
        del now, chosen
        return self._gathering.claim(name, self._own.session_id)

    def publish(self, record: Record) -> None:
        """Files what this session says of itself now."""
        self._own = record
        self._gathering.join(record, self._address)

    def leave(self, now: int) -> None:
        """Takes this session out."""
        self._gathering.leave(self._own.session_id, now)
        self._gathering.copies = [one for one in self._gathering.copies if one is not self._inner]

    def rows(self) -> Rows:
        """Everybody who is here."""
        return Rows(
            [row_of(record, self._gathering.aliases(record)) for record in self._gathering.records.values()],
            (),
        )

    def sign(self, identity: str) -> int:
        """Not known beyond what a record says: 0."""
        del identity
        return 0
