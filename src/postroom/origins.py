"""Who is behind a connection: the origin of what arrives, by what the transport knows and not by the text (04.15).

A sender is verified when the address that it gives is the inbox of a session whose registered process is the one that
connected. Everybody else is known by that process, bears a name that is only a claim, and cannot be answered.
`Answerable` remembers whom a `from` that will be shown stands for, so that an answer reaches it (02.8).

Both keep what they found ready, within bounds, and look anew once the registry has changed.

Weak: two changes within one tick of the file system's clock look like one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.core.envelope import shown_from
from postroom.core.message import Origin

if TYPE_CHECKING:
    from postroom.core.message import PermissionClass
    from postroom.core.wire import Claims
    from postroom.directory import Directory
    from postroom.state.keeping import Store
    from postroom.transport import Evidence

REMEMBERED = 1024
"""Origins kept ready: they save one look at a record for each message, so they may be forgotten at any time."""

AGAIN_MS = 43_200_000
"""Twelve hours: after so long a sender that goes on writing is remembered anew, so that the store, which forgets
the oldest first, keeps it (11.10)."""

STATED: dict[str | None, PermissionClass] = {"bypass": "bypassing", "prompting": "prompting"}
"""The word in an envelope → the class that it states; any other word states nothing (03.5)."""


class Origins:
    """Tells the origin of each frame.

    Args:
        directory: what knows which process a session is.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._known: dict[tuple[object, ...], Origin] = {}

    def of(self, said: Claims, evidence: Evidence) -> Origin:
        """Who this comes from.

        Args:
            said: what the sender says of itself; a changed name is looked at anew.
            evidence: what the transport knows of the connecting process.
        """
        # The same process may have closed one session and opened another at the same address.
        key = (evidence, said.address, said.name, said.mode, said.address and self._directory.mark())
        origin = self._known.get(key)
        if origin is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            origin = self._known[key] = self._look(said, evidence)
        return origin

    def _look(self, said: Claims, evidence: Evidence) -> Origin:
        session = None
        if said.address is not None and evidence.pid:
            session = self._directory.verify(said.address, evidence.pid, evidence.start)
        return Origin(
            kind="peer",
            identity=session[0] if session else f"process:{evidence.pid}:{evidence.start}",
            verified=session is not None,
            name=session[1] if session else said.name,
            # An address that is not the sender's own would carry answers to somebody else (03.18).
            address=said.address if session else None,
            transport=evidence.transport,
            stated_class=STATED.get(said.mode),
        )


class Answerable:
    """Remembers whom the `from` values stand for that are shown here (02.8).

    Args:
        store: where that outlives the process.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._at: dict[tuple[str, str, str | None], int] = {}

    def remember(self, origin: Origin, now: int) -> None:
        """Remembers a sender that can be answered: by its name and ref, and by its address. Raises StoreFailed."""
        if not origin.verified or origin.address is None:
            return
        key = (origin.identity, origin.address, origin.name)
        at = self._at.get(key)
        if at is not None and now - at < AGAIN_MS:
            return
        value = shown_from(origin)
        if value is None:
            return
        self._store.remember(value, origin.identity, origin.address, now)
        self._store.remember(origin.address, origin.identity, origin.address, now)
        if len(self._at) >= REMEMBERED:
            self._at.clear()
        self._at[key] = now

    def clear(self) -> None:
        """Forgets what is kept ready: the store may not have kept it."""
        self._at.clear()
