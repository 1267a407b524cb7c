"""Who can be addressed from here: the roster's records as candidates, and what a connection proves about one.

It turns what the roster found into an index and keeps the two together, change by change. It decides nothing
about names (`core.resolve`) or lives (`roster`), and shows a record only as what it is: a claim (05.9).

How it fails: a folder that cannot be read becomes an unchecked place of the index; nothing raises for what
another program left there.

Weak: between two looks a killed session still stands in the index; whoever acts on an answer asks `live` first.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from postroom.core.address import ref_of, uds_address, uds_path
from postroom.core.listing import Row
from postroom.directory import Rows
from postroom.errors import UnfitPath
from postroom.state import files, processes
from postroom.state.record import is_session_id
from postroom.state.tenure import last_sign

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroom.core.index import Candidate, Index, Resolved
    from postroom.state.files import Lock
    from postroom.state.record import Record
    from postroom.state.roster import Roster, Scan


MAX_PROBLEMS = 10
"""Records that were passed over and are named one by one; the rest is a number (11.10)."""


class Directory:
    """The sessions of one state folder, as one of them, or an outsider, sees them.

    Args:
        roster: where they are found.
        own: the record of the session that looks; None for an outsider.
        lock: that session's own lock, let go of at `leave`.
    """

    def __init__(self, roster: Roster, own: Record | None = None, lock: Lock | None = None) -> None:
        self.roster = roster
        self._own = own
        self._lock = lock
        self._index: Index | None = None
        self._filed: dict[str, tuple[Record, tuple[str, ...]]] = {}
        self._unfit: tuple[tuple[str, str], ...] = ()
        self._domain = processes.pid_domain()

    def index(self) -> Index:
        """The candidates as of the latest look; looks again where the folder changed since (02.16)."""
        index = self._index
        if index is None or self.roster.changed():
            return self._look()
        return index

    def own_index(self) -> Index:
        """The same one: nobody else looks into it."""
        return self.index()

    def known(self) -> Mapping[str, Resolved]:
        """The finished answers of the latest look."""
        return {} if self._index is None else self._index.direct

    def refresh(self) -> None:
        """Looks at every record and its lock again, sweeps the dead, and files what changed."""
        self._look()

    def _look(self) -> Index:
        # Loaded for whoever addresses somebody: a mere listing does without (12.17).
        from postroom.core.index import Index, Unchecked

        if self._index is None:
            self._index = Index()
        scan = self.roster.scan()
        self._file(self._index, scan)
        places = tuple(Unchecked(place=place, reason=reason) for place, reason in scan.unchecked)
        if places != self._index.unchecked:
            self._index.unchecked = places
        return self._index

    def _file(self, index: Index, scan: Scan) -> None:
        # Another session may have taken a former name: the record that bears it stays as it is.
        there = {record.session_id: (record, self.roster.aliases(record)) for record in scan.live}
        for session_id in [gone for gone in self._filed if gone not in there]:
            del self._filed[session_id]
            index.remove(session_id, local=True)
        for session_id, now in there.items():
            if self._filed.get(session_id) != now:
                self._filed[session_id] = now
                index.add(self._candidate(*now))
        self._unfit = scan.unfit

    def _candidate(self, record: Record, aliases: tuple[str, ...]) -> Candidate:
        from postroom.core.index import Candidate

        path = record.messaging_socket_path
        pid = self._pid(record)
        return Candidate(
            identity=record.session_id,
            name=record.name,
            ref=ref_of(record.session_id),
            former=aliases,
            where=record.cwd,
            address=uds_address(path) if path else "",
            pid=pid,
            start=record.proc_start if pid else "",
            acknowledges="postroom_ack" in record.peer_features,
            chains="postroom_chain" in record.peer_features,
            tells_idle="notify_idle" in record.peer_features,
            program=record.entrypoint,
            confirms=record.confirms,
            wakes=record.wakes,
            condition="" if path else "cannot receive messages",
        )

    def _pid(self, record: Record) -> int:
        """The record's process as seen from here; 0 in another pid namespace, where it proves nothing (05.19)."""
        return record.pid if record.pid_domain == self._domain else 0

    def problems(self) -> tuple[str, ...]:
        """A sentence for each folder or record that is passed over for a reason that a person can mend (05.6)."""
        self.roster.look_anew()
        said = [f"{one.place} could not be read: {one.reason}." for one in self._look().unchecked]
        said += [
            f"The record {name} was passed over: {reason}." for name, reason in self._unfit[:MAX_PROBLEMS]
        ]
        if len(self._unfit) > MAX_PROBLEMS:
            said.append(f"{len(self._unfit) - MAX_PROBLEMS} more records were passed over.")
        return tuple(said)

    def live(self, identity: str) -> bool:
        """Whether that session is live at this instant (05.11)."""
        filed = self._filed.get(identity)
        return filed is not None and self.roster.is_live(filed[0])

    def mark(self) -> object:
        """A value that differs once somebody came, went or was renamed: one stat (12.33)."""
        try:
            return os.stat(self.roster.sessions).st_mtime_ns
        except OSError:
            return None

    def verify(self, address: str, pid: int, start: str) -> tuple[str, str] | None:
        """The session (id, name) whose registered process is (pid, start) and whose inbox is `address` (04.15).

        The socket's path comes from the sender; it is compared with a record of ours and never opened.
        """
        path = uds_path(address)
        record = self.roster.by_socket(path) if path is not None else None
        if record is None or (self._pid(record), record.proc_start) != (pid, start):
            return None
        return record.session_id, record.name

    def doubt(self, address: str, pid: int, start: str) -> str:
        """Why `verify` finds nobody (03.18). The path is looked at, never followed or opened."""
        path = uds_path(address)
        if path is None:
            return "it is not the address of a socket"
        record = self.roster.by_socket(path)
        if record is not None:
            return "another process is registered there than the one that sent the message"
        try:
            found = os.lstat(path)
        except OSError:
            return "there is nothing at that address"
        if stat.S_ISLNK(found.st_mode):
            return "it is a symbolic link"
        if not stat.S_ISSOCK(found.st_mode):
            return "it is no socket"
        if found.st_uid != os.geteuid():
            return "it is another user's socket"
        try:
            files.check_folder(os.path.dirname(path))
        except UnfitPath as error:
            return f"its folder is unfit: {error.reason}"
        return "no session is registered there"

    def acknowledges(self, address: str) -> bool:
        """Whether the session at `address` understands what only ours say; of nobody it is not known (05.24)."""
        path = uds_path(address)
        record = self.roster.by_socket(path) if path is not None else None
        return record is None or "postroom_ack" in record.peer_features

    def sends_chains(self, identity: str) -> bool:
        """Whether that session announces `postroom_chain`, as of the latest look (03.66)."""
        if self._index is None:
            self._look()
        filed = self._filed.get(identity)
        return filed is not None and "postroom_chain" in filed[0].peer_features

    def ended(self, who: str) -> tuple[str, int] | None:
        """The name of a session of this name or id that has ended, and when, while its folder is there (02.13)."""
        return self.roster.ended(who)

    def claim(self, name: str, now: int, *, chosen: bool = True) -> str:
        """Claims a name; returns it, or the variant that was free (02.3)."""
        assert self._own is not None
        return self.roster.claim(name, self._own.session_id, chosen=chosen, now=now)

    def publish(self, record: Record) -> None:
        """Publishes this session's record anew."""
        self.roster.publish(record)
        self._own = record

    def leave(self, now: int) -> None:
        """Removes this session's record and lets go of its lock."""
        if self._own is not None and self._lock is not None:
            self.roster.leave(self._own, self._lock, now)

    def sign(self, identity: str) -> int:
        """When that session's process last wrote into its folder, epoch milliseconds; 0 of what can be no session."""
        return last_sign(self.roster.folder(identity)) if is_session_id(identity) else 0

    def rows(self) -> Rows:
        """Everybody who lives at this instant, for a listing (01.29)."""
        if self._index is None:
            scan = self.roster.scan()
            found = [(record, self.roster.aliases(record)) for record in scan.live]
            return Rows([row_of(*each) for each in found], scan.unchecked)
        places = self._look().unchecked
        return Rows(
            [row_of(*each) for each in self._filed.values()],
            [(one.place, one.reason) for one in places],
        )


def row_of(record: Record, aliases: tuple[str, ...]) -> Row:
    """One row of a listing, from what a session says of itself (01.29)."""
    reachable = record.messaging_socket_path is not None
    return Row(
        identity=record.session_id,
        name=record.name,
        aliases=aliases,
        state=record.status,
        presence=record.kind,
        cwd=record.cwd,
        program=record.entrypoint,
        machine=record.machine or os.uname().nodename,
        pid=record.pid,
        seen_at=record.updated_at,
        condition="" if reachable else "cannot receive messages",
        confirms=record.confirms,
        wakes=record.wakes,
    )
