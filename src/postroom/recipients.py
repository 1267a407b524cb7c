"""Whom a message goes to: what the names mean in one conversation, believed only of somebody who lives now.

It runs the pure `core.resolve` over what is known here: the directory's index, the pins of the conversation (02.17),
and the `from` values that were shown (02.8). An index tells who was there at the latest look, and a session that was
killed since stands in it still; so an answer is checked, and a refusal is given only after everything was looked at
again.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from postroom.core import contract, resolve, wire
from postroom.core.message import Refusal
from postroom.errors import StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroom.commits import Commits
    from postroom.core.message import Pin
    from postroom.core.resolve import Resolved
    from postroom.directory import Directory
    from postroom.state.keeping import Store

MAIN = "main"
"""The conversation of a session's main loop, under which its pins are kept (02.19)."""


class Recipients:
    """Whom the names mean in the main conversation of one session.

    Args:
        store: where the pins and the shown `from` values are kept.
        commits: is told where the store fails.
        directory: who can be addressed from here.
        caller: the id of the session.
        doubt: says why an address that a message gave must not be answered (03.18).
    """

    def __init__(
        self,
        store: Store,
        commits: Commits,
        directory: Directory,
        caller: str,
        doubt: Callable[[str], str],
    ) -> None:
        self._store = store
        self._commits = commits
        self._directory = directory
        self._caller = caller
        self._doubt = doubt
        try:
            self._pins = resolve.Pins(store.pins(MAIN))
        except StoreFailed:  # it was corrupt where opening does not look, and began anew: asked again (05.27)
            self._pins = resolve.Pins(store.pins(MAIN))

    def chosen(self, draft: contract.Draft, msg_id: str | None, own_name: str) -> Resolved | Refusal:
        """The second stage of 01.7: who is meant, and whether that one can be written to. Raises StoreFailed."""
        if msg_id is not None and not wire.is_id(msg_id):
            return contract.refusal(
                "invalid_record", problem="The message id is not one that Postroom gives out"
            )
        if draft.to.casefold() == MAIN:
            return contract.refusal("cannot_message_self", name=own_name)
        found = self.found(draft.to)
        if isinstance(found, Refusal):
            return found
        if found.candidate.identity == self._caller:
            return contract.refusal("cannot_message_self", name=found.candidate.name)
        if not found.candidate.address:
            return contract.refusal("peer_unavailable", name=found.candidate.name)
        return found

    def found(self, to: str) -> Resolved | Refusal:
        """Who is meant, among those that live at this instant (02.13). Raises StoreFailed."""
        received: dict[str, str] = {}
        if "[" in to or to.startswith("uds:"):
            with self._commits.using():
                known = self._store.known(to)
            if known is not None:
                received[to] = known[0]
            elif reason := self._doubt(to):
                return contract.refusal("unsafe_target", name="The sender of that message", reason=reason)
        return live_answer(
            lambda: resolve.resolve(
                to,
                self._directory.index(),
                received=received,
                pins=self._pins,
                ended=self._directory.ended,
                caller=self._caller,
            ),
            self._directory,
            self._caller,
        ) or contract.refusal("peer_unavailable", name=to)

    def pinned(self, to: str, found: Resolved, now: int) -> Pin | None:
        """Keeps what a name has meant in a send that went well; the pin, where there is one (02.17).

        Raises StoreFailed.
        """
        pin: Pin | None = None
        for form, pin in self._pins.made(to, found):
            self._store.pin(MAIN, form, pin, now)
        return pin

    def wrote_to(self, identity: str) -> bool:
        """Whether a name has come to mean that session here, so that it matters what it is called now (05.24)."""
        return any(pin.identity == identity for _, pin in self._pins.items())

    def forgotten(self) -> None:
        """The store has lost its open group: its pins are read again (05.27)."""
        with contextlib.suppress(StoreFailed):
            self._pins = resolve.Pins(self._store.pins(MAIN))


def live_answer(
    ask: Callable[[], Resolved | Refusal], directory: Directory, caller: str
) -> Resolved | Refusal | None:
    """Resolves until the answer is somebody who lives at this instant (02.13).

    Args:
        ask: resolves against the directory's index as it is then.
        directory: looks again, and knows who lives.
        caller: the asking session, which lives.

    Returns None where whoever answered was dead each time.
    """
    for fresh in (False, True, True):
        if fresh:
            directory.refresh()
        found = ask()
        if isinstance(found, Refusal):
            if fresh:
                return found
        elif found.candidate.identity == caller or directory.live(found.candidate.identity):
            return found
    return None
