"""Idle notices: who wants to know when this session is idle, and what this one wants to know of others (05.31).

A session is idle when nothing waits for it, nothing that it took is still in its loop's hands, and its turn has ended:
because its client says so, because it asks for more and there is nothing, or a minute after it took something last. A
session whose loop never took anything is idle from the start.

`core.notices.Watchers` bounds the subscriptions; they are kept in the store, so that a restart does not break the
promise. A session that refuses what comes in answers a subscription at once, as an idle one would and without a word:
its silence would tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.core import notices
from postroom.core.loops import TURN_MS
from postroom.core.message import Notice
from postroom.origins import reply_path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroom.core.notices import Watcher
    from postroom.core.wire import ControlFrame
    from postroom.hearing import Noticeboard
    from postroom.standing import Standing
    from postroom.state.keeping import Store
    from postroom.telling import Telling
    from postroom.transport import Channel


MAX_ASKED = 32
"""Sessions that this one waits for at once; the oldest wait is given up (11.10)."""


class Activity:
    """What this session is doing, as far as its inbox can tell.

    Attributes:
        leases: leases that are neither confirmed nor released.
        waiters: who waits for something to come, and so has nothing else to do.
        inside: how much waits for the loop outside its inbox, in a program that drives it (06.3).
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self.leases: set[str] = set()
        self.waiters = 0
        self.inside: Callable[[], int] = int
        self.words = ""
        self._clock = clock
        self._since: int | None = None
        self._reported = False

    def took(self) -> None:
        """The loop was handed something: its turn has begun, or goes on."""
        self._since = self._clock()

    def took_nothing(self) -> None:
        """The loop asked for more and there was nothing: its turn has ended."""
        if not self._reported:
            self._since = None

    def began(self) -> None:
        """The client reports that a turn has begun."""
        self._reported = True
        self._since = self._clock()

    def ended(self, words: str) -> None:
        """The client reports that the turn has ended, with these last words."""
        self._reported = True
        self._since = None
        self.words = words

    @property
    def turn(self) -> str:
        """`busy` or `idle`, as the client reported it; `unknown` where none reports turns."""
        return "unknown" if not self._reported else "idle" if self._since is None else "busy"

    def resting(self, now: int) -> bool:
        """Whether the loop is in no turn."""
        if self.leases or self.inside():
            return False
        if self._since is None or self._reported:
            return self._since is None
        return bool(self.waiters) or now - self._since >= TURN_MS

    def next_due(self) -> int | None:
        """When a turn that nobody reports ends by itself; None: no such turn is open."""
        return None if self._since is None or self._reported or self.leases else self._since + TURN_MS


class Idling:
    """Both sides of the idle notices of one session.

    Args:
        store, clock, ids: as for the session.
        standing: the class and the setting on which the last words depend.
        telling: carries the notices.
        board: gets the answers to what this session asked.
        activity: what it does.
        count: counts what is ignored.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], int],
        ids: Callable[[], str],
        standing: Standing,
        telling: Telling,
        board: Noticeboard,
        activity: Activity,
        count: Callable[[str], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._standing = standing
        self._telling = telling
        self._board = board
        self._activity = activity
        self._count = count
        self._watchers = notices.Watchers(store.subscriptions(mine=False))

    @property
    def watched(self) -> bool:
        """Whether somebody wants to know."""
        return len(self._watchers) > 0

    def resting(self, now: int) -> bool:
        """Whether this session is idle: no turn, and nothing waits for it."""
        return not self._store.waiting_count and self._activity.resting(now)

    def reload(self) -> None:
        """The open group of the store is gone: what is kept is read again."""
        self._watchers = notices.Watchers(self._store.subscriptions(mine=False))

    # ── watched ──────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, frame: ControlFrame, who: tuple[str, str], channel: Channel) -> None:
        """Somebody wants to know when this session is idle. Joins the open group. Raises StoreFailed."""
        path = reply_path_of(frame.from_, channel.evidence)
        if not frame.msg_id or not path:
            self._count("control-incomplete")
            return
        now = self._clock()
        watcher = notices.Watcher(
            msg_id=frame.msg_id,
            identity=who[0],
            name=who[1],
            reply_path=path,
            mode=frame.from_mode or "",
            at=now,
        )
        if self._standing.refuses:
            self._say(watcher, "idle", now)
            return
        known = self._watchers.subscribe(watcher, now)
        for gone in known.removed:
            self._store.unsubscribe(gone.msg_id, mine=False, identity=gone.identity)
        if not known.noted:
            self._say(watcher, "unavailable", now)
            return
        self._store.subscribe(
            watcher.msg_id,
            mine=False,
            identity=watcher.identity,
            name=watcher.name,
            reply_path=path,
            mode=watcher.mode,
            at=now,
        )
        self.tick(now)

    def tick(self, now: int, state: str = "idle") -> None:
        """Tells whoever wants to know, if this session is idle now or ends. Joins the open group. Raises StoreFailed."""
        if self.watched and (state == "exited" or self.resting(now)):
            for gone in self._watchers.expire(now):
                self._store.unsubscribe(gone.msg_id, mine=False, identity=gone.identity)
            for watcher in self._watchers.fire(now):
                self._store.unsubscribe(watcher.msg_id, mine=False, identity=watcher.identity)
                self._say(watcher, state, now)

    def _say(self, watcher: Watcher, state: str, now: int) -> None:
        standing = self._standing
        talks = notices.words_pass(standing.stated, watcher.mode, holding=standing.refuses or standing.holds)
        line = notices.idle_line(
            state,
            orig_msg_id=watcher.msg_id,
            address=self._telling.address,
            msg_id=self._ids(),
            at=now,
            mode=standing.stated,  # without words too: that it is missing would tell that nothing is let in (03.10)
            words=self._activity.words if talks else "",
        )
        self._telling.owe_line(watcher.msg_id, watcher.reply_path, line)

    def next_due(self) -> int | None:
        """When a look is worth while; None: nobody wants to know."""
        return self._activity.next_due() if self.watched else None

    # ── watching ─────────────────────────────────────────────────────────────────────────────────

    def asked(self, msg_id: str, identity: str, name: str) -> None:
        """Remembers that this session has asked. Joins the open group. Raises StoreFailed."""
        now = self._clock()
        asked = self._store.subscriptions(mine=True)
        kept = [one for one in asked if one.identity != identity and now - one.at < notices.WATCH_TIME]
        for one in asked:
            if one not in kept[1 - MAX_ASKED :]:
                self._store.unsubscribe(one.msg_id, mine=True)
        self._store.subscribe(msg_id, mine=True, identity=identity, name=name, at=now)

    def heard(self, frame: ControlFrame, who: tuple[str, str], channel: Channel) -> None:
        """An answer to what this session asked. Joins the open group. Raises StoreFailed."""
        del channel
        asked = next(
            (
                one
                for one in self._store.subscriptions(mine=True)
                if one.msg_id == frame.orig_msg_id and one.identity == who[0]
            ),
            None,
        )
        if asked is None or frame.state not in notices.IDLE_STATES:
            self._count("control-foreign")
            return
        standing = self._standing
        talks = notices.words_pass(standing.stated, frame.from_mode, holding=standing.holds)
        self._store.unsubscribe(asked.msg_id, mine=True)
        self._board.put(
            Notice(
                kind=frame.state,
                at=self._clock(),
                msg_id=asked.msg_id,
                about=who[1],
                detail=notices.last_words(frame) if talks else "",
            )
        )
