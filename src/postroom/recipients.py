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
from postroom.core.address import normal_form
from postroom.core.message import Refusal
from postroom.errors import StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from postroom.commits import Commits
    from postroom.core.message import Pin
    from postroom.core.resolve import Resolved
    from postroom.directory import Directory
    from postroom.state.keeping import Store

MAIN = "main"
"""The conversation of a session's main loop, under which its pins are kept (02.19)."""


class Recipients:
    """Whom the names mean in one conversation of a session.

    Args:
        store: where the pins and the shown `from` values are kept.
        commits: is told where the store fails.
        directory: who can be addressed from here.
        caller: the id of the session, or of the agent whose conversation it is.
        doubt: says why an address that a message gave must not be answered (03.18).
        conversation: under what its pins are kept; an agent's id.
        main: of an agent's conversation: the session's main one, where this agent may write to it (06.8).
        session: of an agent's conversation: the id of its session.
        keeps: whether its pins are kept in the store; those of a script's agent end with it (06.16).
    """

    def __init__(
        self,
        store: Store,
        commits: Commits,
        directory: Directory,
        caller: str,
        doubt: Callable[[str], str],
        conversation: str = MAIN,
        main: Resolved | None = None,
        session: str = "",
        *,
        keeps: bool = True,
    ) -> None:
        self._conversation = conversation
        self.main = main
        self._keeps = keeps
        self._session = session
        self._store = store
        self._commits = commits
        self._directory = directory
        self._caller = caller
        self._doubt = doubt
        if not keeps:
            self._pins = resolve.Pins()
            return
        try:
            self._pins = resolve.Pins(store.pins(conversation))
        except StoreFailed:  # it was corrupt where opening does not look, and began anew: asked again (05.27)
            self._pins = resolve.Pins(store.pins(conversation))

    def chosen(self, draft: contract.Draft, msg_id: str | None, own_name: str) -> Resolved | Refusal:
        """The second stage of 01.7: who is meant, and whether that one can be written to. Raises StoreFailed."""
        if msg_id is not None and not wire.is_id(msg_id):
            return contract.refusal(
                "invalid_record", problem="The message id is not one that Postroom gives out"
            )
        to = draft.to
        found = self._near(to)
        if found is None:
            if to.casefold() == MAIN:
                return self._to_main(own_name)
            found = self.found(to)
            if isinstance(found, Refusal):
                return found
        target = found.candidate
        if target.identity == self._caller:
            return contract.refusal("cannot_message_self", name=target.name)
        if target.identity == self._session:
            return self._to_main(own_name)
        if not (target.address or target.near):
            return contract.refusal("peer_unavailable", name=target.name)
        return found

    def _to_main(self, own_name: str) -> Resolved | Refusal:
        """The session's main conversation: from itself, from an agent that may, from one that may not (01.18)."""
        if not self._session:
            return contract.refusal("cannot_message_self", name=own_name)
        return self.main or contract.refusal("main_not_addressable")

    def _near(self, to: str) -> Resolved | None:
        """The agent of this session that nobody else can be meant by, without looking around; None: look (02.15)."""
        ready = self._directory.known().get(to)
        if ready is None or not ready.candidate.near or ready.candidate.identity == self._caller:
            return None
        pin = self._pins.by_form.get(ready.form)
        return ready if pin is None or pin.identity == ready.candidate.identity else None

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
            if self._keeps:
                self._store.pin(self._conversation, form, pin, now)
        return pin

    def pin_of(self, to: str, found: Resolved) -> Pin | None:
        """The pin that this answer confirms, where nothing about it is new: the name, as it was typed, has it."""
        pin = self._pins.by_form.get(found.form)
        if pin is None or pin.identity != found.candidate.identity:
            return None
        return pin if to == found.candidate.name or normal_form(to) == found.form else None

    def restore(self, pins: Iterable[tuple[str, Pin]]) -> None:
        """Repeats the pins of a transcript, in their order (02.17)."""
        for to, pin in pins:
            self._pins.restore(to, pin)

    def keep(self, now: int) -> None:
        """Writes all pins down, as after a restore that the conversation is to go on from. Raises StoreFailed."""
        for form, pin in self._pins.items():
            self._store.pin(self._conversation, form, pin, now)

    def wrote_to(self, identity: str) -> bool:
        """Whether a name has come to mean that session here, so that it matters what it is called now (05.24)."""
        return any(pin.identity == identity for _, pin in self._pins.items())

    def forgotten(self) -> None:
        """The store has lost its open group: its pins are read again (05.27)."""
        if not self._keeps:
            return
        with contextlib.suppress(StoreFailed):
            self._pins = resolve.Pins(self._store.pins(self._conversation))


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
        elif (
            found.candidate.near
            or found.candidate.identity == caller
            or directory.live(found.candidate.identity)
        ):
            return found
    return None
