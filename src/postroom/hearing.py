"""What this session hears of its own messages: the control frames that arrive, and the notices that come of them.

The rungs for a receipt, first that answers wins:

    1. Its `from` is the inbox of a registered session whose process is the one that connected; else it is forged.
    2. It names a message that this session sent to that very session, or, to say that it is for somebody else, to
       that address; else it is about somebody else's.
    3. What it says may follow what was known of that message (05.24); else it is a repeat.
    4. No more than forty a minute are heard of one sender.

What passes is journaled, kept, and handed to the loop with the next take; everything else is counted and changes
nothing. Nobody answers a notice, so there is no notice about a notice (03.49).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.core import notices, wire
from postroom.core.message import Notice
from postroom.errors import StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from postroom.commits import Commits
    from postroom.core.wire import ControlFrame
    from postroom.directory import Directory
    from postroom.state.keeping import Store
    from postroom.transport import Channel

NAMED = 3
"""Ids that one notice names; the rest is a number."""


class Noticeboard:
    """The notices that wait for this session's loop, kept until it has read them.

    Args:
        store: where they are kept.
        commits: is told where the store fails.
    """

    def __init__(self, store: Store, commits: Commits) -> None:
        self._store = store
        self._commits = commits
        self._waiting: list[tuple[int, Notice]] = list(store.notices())
        self._leased: dict[str, list[tuple[int, Notice]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, notice: Notice) -> None:
        """Keeps one for the loop; joins the open group. Raises StoreFailed."""
        self._store.add_notice(notice)
        self._read()

    def _read(self) -> None:
        leased = {row for rows in self._leased.values() for row, _ in rows}
        self._waiting = [each for each in self._store.notices() if each[0] not in leased]

    def reload(self) -> None:
        """The open group of the store is gone: what is kept is read again."""
        try:
            self._read()
        except StoreFailed:
            return

    def peek(self) -> tuple[Notice, ...]:
        """What waits; nothing is taken."""
        return tuple(notice for _, notice in self._waiting)

    def take(self, lease: str, most: int | None = None) -> tuple[Notice, ...]:
        """Hands over what waits, or the first so many of it, under a lease."""
        most = len(self._waiting) if most is None else most
        taken, self._waiting = self._waiting[:most], self._waiting[most:]
        if taken:
            self._leased.setdefault(lease, []).extend(taken)
        return tuple(notice for _, notice in taken)

    def confirm(self, lease: str) -> None:
        """The loop has read them: they go."""
        read = self._leased.pop(lease, None)
        if read:
            with self._commits.noting():
                self._store.drop_notices([row for row, _ in read])

    def release(self, lease: str) -> bool:
        """They wait again, before what came since; whether there were any."""
        back = self._leased.pop(lease, [])
        self._waiting[:0] = back
        return bool(back)


class Hearing:
    """Takes the control frames of a session's inbox.

    Args:
        store, commits: as for the session.
        directory: knows which process is which session.
        clock: returns epoch milliseconds.
        board: gets what is to be read.
        count: counts what is ignored.
        given_back: gets the identity of a receiver that holds a message of ours (03.67).
        idle: takes subscriptions and their answers.
        wrote_to: whether this session wrote to one of that identity, by its name.
        went_to: the address to which a message went; None: not known any more.
    """

    def __init__(
        self,
        store: Store,
        commits: Commits,
        directory: Directory,
        clock: Callable[[], int],
        board: Noticeboard,
        count: Callable[[str], None],
        given_back: Callable[[str], None],
        idle: dict[str, Callable[[ControlFrame, tuple[str, str], Channel], None]],
        wrote_to: Callable[[str], bool],
        went_to: Callable[[str], str | None],
    ) -> None:
        self._store = store
        self._commits = commits
        self._directory = directory
        self._clock = clock
        self._board = board
        self._count = count
        self._given_back = given_back
        self._wrote_to = wrote_to
        self._went_to = went_to
        self._heard = notices.Heard()
        self._acts = {"peer_message_status": self._status, "peer_renamed": self._renamed, **idle}

    def control(self, frame: ControlFrame, channel: Channel) -> None:
        """Takes one control frame (05.24). Never raises for what it says."""
        act = self._acts.get(frame.action)
        if act is None:  # `rename` needs the control socket
            self._count(f"control-{frame.action}" if frame.action in wire.ACTIONS else "control-unknown")
            return
        evidence = channel.evidence
        address, _ = wire.reply_path(frame.from_)
        who = (
            self._directory.verify(address, evidence.pid, evidence.start)
            if address is not None and evidence.pid
            else None
        )
        if who is None:
            self._count("control-forged")
        elif not self._heard.hear(who[0], self._clock()):
            self._count("control-too-many")
        else:
            with self._commits.noting():
                act(frame, who, channel)

    def _status(self, frame: ControlFrame, who: tuple[str, str], channel: Channel) -> None:
        del channel
        word = notices.read_status(frame)
        if word is None:
            self._count("control-unknown-status")
            return
        now = self._clock()
        told: list[str] = []
        for msg_id in word.ids:
            sent = self._store.sent(msg_id)
            # Who says that it is somebody else is not the one that was meant, but is where the message went.
            strays = word.status == "misaddressed" and self._went_to(msg_id) == frame.from_
            if sent is None or not (sent.to_identity == who[0] or strays):
                self._count("control-foreign")
                continue
            state = notices.step(sent.state, word.status)
            if state is None:
                self._count("control-repeat")
                continue
            self._store.outcome(msg_id, state, now, word.detail)
            if state == "delivered" and sent.state != "held" and self._of_another_program(frame):
                continue  # such a program says so of each message that it takes: no news for the loop (09.14)
            told.append(msg_id)
            if state == "held":
                self._given_back(who[0])
        if told:
            self._board.put(
                Notice(
                    kind=word.status,
                    at=now,
                    msg_id=told[0],
                    about=who[1],
                    detail=" ".join(filter(None, (word.detail, also(told[1:])))),
                )
            )

    def _of_another_program(self, frame: ControlFrame) -> bool:
        """Whether a receipt came from a program that does not speak as ours do."""
        return frame.from_ is not None and not self._directory.acknowledges(frame.from_)

    def _renamed(self, frame: ControlFrame, who: tuple[str, str], channel: Channel) -> None:
        """A session that wrote here, or was written to, has another name; its record, not the frame, says which."""
        del channel
        if not self._wrote_to(who[0]) and (frame.from_ is None or self._store.known(frame.from_) is None):
            self._count("control-foreign")
            return
        former = notices.former_name(frame)
        self._board.put(
            Notice(
                kind="renamed",
                at=self._clock(),
                about=who[1],
                detail=f"It was called {former} before." if former else "",
            )
        )


def also(ids: Iterable[str]) -> str:
    """Names the further messages that one notice is about."""
    more = list(ids)
    if not more:
        return ""
    named = ", ".join(more[:NAMED])
    rest = f" and {len(more) - NAMED} more" if len(more) > NAMED else ""
    return f"The same goes for {named}{rest}."
