"""Who is behind a connection: the origin of what arrives, by what the transport knows and not by the text (04.15).

The rungs, first that answers wins:

    1. The address that it gives is the inbox of a registered session, and that session's process is the one that
       connected: a verified peer, or an own child where this session has started that process (05.25).
    2. The process is this session's own or descends from it, or it showed the child token: an own child (05.25).
       It has no name and no address, whatever it writes. Where the session is process 1, the token alone counts.
    3. Everybody else is known by its process, bears a name that is only a claim, and cannot be answered.

Another session of this very process is a peer: nobody started it.

`Answerable` remembers whom a `from` that will be shown stands for, so that an answer reaches it (02.8).

Both keep what they found ready, within bounds, and look anew once the registry has changed.

Weak: two changes within one tick of the file system's clock look like one.
"""

from __future__ import annotations

from collections import OrderedDict
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


OWN_CHILD = "a process of this session"
"""How an own child is called: what it calls itself does not count."""

FIRST_PROCESS = 1
"""The pid of a session that is the first process of its container: there the child token is the evidence (05.25)."""

DOUBTED = 256
"""Addresses remembered that must not be answered; the oldest goes first (11.10)."""


class Origins:
    """Tells the origin of each frame.

    Args:
        directory: what knows which process a session is.
        process: (pid, start) of this session's own process.
    """

    def __init__(self, directory: Directory, process: tuple[int, str]) -> None:
        self._directory = directory
        self._process = process
        self._known: dict[tuple[object, ...], Origin] = {}
        self._doubted: OrderedDict[str, str] = OrderedDict()

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
        child = self._is_own_child(evidence, registered=session is not None)
        if said.address is not None and session is None and not child:
            self._doubt(said.address, evidence)
        return Origin(
            kind="own_child" if child else "peer",
            identity=session[0] if session else identity_of(evidence, child=child),
            verified=session is not None or child,
            name=session[1] if session else OWN_CHILD if child else said.name,
            # An address that is not the sender's own would carry answers to somebody else (03.18).
            address=said.address if session else None,
            transport=evidence.transport,
            stated_class=STATED.get(said.mode),
            reply_path=reply_path_of(said.address, evidence),
        )

    def _is_own_child(self, evidence: Evidence, *, registered: bool) -> bool:
        """Whether the process is or descends from this session's, or shows its child token (05.25)."""
        # The first process of a pid namespace adopts every orphan there: to descend from it says nothing.
        known = evidence.ancestry[:1] if self._process[0] == FIRST_PROCESS else evidence.ancestry
        return evidence.token == "child" or self._process in (known[1:] if registered else known)

    def _doubt(self, address: str, evidence: Evidence) -> None:
        """Remembers why an address must not be answered (03.18)."""
        self._doubted.pop(address, None)
        self._doubted[address] = self._directory.doubt(address, evidence.pid, evidence.start)
        if len(self._doubted) > DOUBTED:
            self._doubted.popitem(last=False)

    def doubt(self, address: str | None) -> str:
        """Why an address that a message gave must not be answered; empty for any other (03.18)."""
        return self._doubted.get(address, "") if address is not None else ""


def identity_of(evidence: Evidence, *, child: bool) -> str:
    """The key of a sender that is no session: its process; a child of another pid namespace has only its token."""
    return "child" if child and not evidence.pid else f"process:{evidence.pid}:{evidence.start}"


def reply_path_of(address: str | None, evidence: Evidence) -> str:
    """The way on which notices about a message go back: the process that sent it, and the address it gave (05.24).

    Returns "" where there is none: no address, or a process of which nothing is known.
    """
    if address is None or not (evidence.pid and evidence.start):
        return ""
    return f"{evidence.pid}:{evidence.start} {address}"


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
