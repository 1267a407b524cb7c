"""PORT: who can be addressed from here, and what a connection proves about one of them.

`state.directory` keeps this promise with the files of this machine, `state.memory_directory` for the sessions of one
process. It knows names only as claims and decides nothing about them: `core.resolve` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from postroom.core.listing import Row
    from postroom.core.resolve import Index, Resolved
    from postroom.state.record import Record

__all__ = ["Directory", "Rows"]


class Rows(NamedTuple):
    """What a listing is made of: everybody who lives, and (place, reason) of what could not be looked at."""

    rows: Sequence[Row]
    unchecked: Sequence[tuple[str, str]]


class Directory(Protocol):
    """Who can be addressed from here."""

    def index(self) -> Index:
        """The candidates as they are now; costs no directory scan when nothing changed (02.16)."""
        ...

    def own_index(self) -> Index:
        """The same candidates in an index of this session's own, into which it may put its agents (02.14)."""
        ...

    def known(self) -> Mapping[str, Resolved]:
        """The finished answers of the latest look (`Index.direct`), without another one."""
        ...

    def live(self, identity: str) -> bool:
        """Whether that session is live at this instant (05.11)."""
        ...

    def refresh(self) -> None:
        """Looks at everything again: somebody who was listed turned out to be dead."""
        ...

    def problems(self) -> tuple[str, ...]:
        """A sentence for each record that was passed over for a reason that a person can mend (05.6)."""
        ...

    def mark(self) -> object:
        """A value that differs once somebody came, went or was renamed; costs next to nothing (12.33)."""
        ...

    def verify(self, address: str, pid: int, start: str) -> tuple[str, str] | None:
        """The session (id, name) whose registered process is (pid, start) and whose inbox is `address`."""
        ...

    def doubt(self, address: str, pid: int, start: str) -> str:
        """Why `verify` finds nobody, in words for the journal and for whoever wants to answer (03.18)."""
        ...

    def acknowledges(self, address: str) -> bool:
        """Whether the session at `address` understands what only ours say (05.24).

        False where a live one is there that does not announce `postroom_ack`; of nobody it is not known.
        """
        ...

    def sends_chains(self, identity: str) -> bool:
        """Whether that session announces that it sends on the chain of what it answers (03.66)."""
        ...

    def ended(self, who: str) -> tuple[str, int] | None:
        """The name of a session of this name or id that has ended, and when, while its folder is there (02.13)."""
        ...

    def claim(self, name: str, now: int, *, chosen: bool = True) -> str:
        """Claims a name for this session; returns it, or the variant that was free (02.3).

        `chosen` says that a person asked for it; one that only follows the client is not kept against the client's next.
        """
        ...

    def publish(self, record: Record) -> None:
        """Publishes this session's record anew."""
        ...

    def leave(self, now: int) -> None:
        """Removes this session's record and lets go of its lock."""
        ...

    def rows(self) -> Rows:
        """Everybody who lives at this instant, for a listing (01.29)."""
        ...

    def sign(self, identity: str) -> int:
        """When that session last gave a sign of life beyond its record, epoch milliseconds; 0: not known."""
        ...
