"""The holds of one session: what waits for a person, a setting or a mode, and what becomes of it (chapter 03, Holds).

`core.holds` decides what a hold's deadline is, which go when there are too many, and which a change lets in; this
performs it: the store first, then the notices to the senders, all in one commit.

Only the session calls it. That a person decided is established before, on the control socket (10.39); no frame of a
peer leads here but a message that is to be held.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from postroom.core import holds, inbound, notices
from postroom.core.envelope import quoted_words
from postroom.core.message import Decided, Notice, Refusal
from postroom.core.refusals import not_held
from postroom.errors import StoreFailed
from postroom.state.keeping import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroom.commits import Commits
    from postroom.core.holds import Hold
    from postroom.core.inbound import Judgement
    from postroom.core.message import Message
    from postroom.standing import Standing
    from postroom.state.keeping import Store
    from postroom.telling import Telling


ALONE = "Approve this one alone."
"""What to do where no rule can be made."""


class Holding:
    """What is held in one session.

    Args:
        store: where it is kept.
        commits: is told where the store fails.
        standing: the mode, the settings, the pairs.
        telling: how senders hear of it.
        clock: returns epoch milliseconds.
        kind: how the session is attended, as its record says (03.39, 03.40).
        noticed: takes a notice for the session's own loop.
        let_in: called with each message that a hold ends by letting in.
        changed: called when a hold came or went.
    """

    def __init__(
        self,
        store: Store,
        commits: Commits,
        standing: Standing,
        telling: Telling,
        clock: Callable[[], int],
        *,
        kind: str,
        noticed: Callable[[Notice], None],
        let_in: Callable[[Message], None],
        changed: Callable[[], None],
    ) -> None:
        self.askable = False
        self.attached = False
        self._store = store
        self._commits = commits
        self._standing = standing
        self._telling = telling
        self._clock = clock
        self._kind = kind
        self._noticed = noticed
        self._heard_let_in = let_in
        self._changed = changed
        self.queue = holds.HoldQueue(store.holds(), expiry=standing.settings.dialog_expiry)
        self._inherited = frozenset(hold.row for hold in self.queue)
        self._earlier: frozenset[int] = self._inherited
        self._undone: str | None = None

    def __len__(self) -> int:
        return len(self.queue)

    def reload(self) -> None:
        """The open group of the store is gone: what it held is read again (05.27)."""
        try:
            self.queue = holds.HoldQueue(self._store.holds(), expiry=self._standing.settings.dialog_expiry)
        except StoreFailed:
            return
        self._changed()

    # ── coming ───────────────────────────────────────────────────────────────────────────────────

    def deadline(self, judgement: Judgement, since: int) -> int | None:
        """When a hold by this judgement ends by itself (03.38 to 03.40)."""
        assert judgement.cause
        return holds.deadline(
            judgement.cause,
            since,
            self._standing.settings.dialog_expiry,
            kind=self._kind,
            attached=self.attached,
        )

    def came(self, hold: Hold) -> None:
        """A message was stored as held: its sender is told, and the oldest goes where there are too many (03.37).

        Joins the open group. Raises StoreFailed.
        """
        now = self._clock()
        for evicted in self.queue.add(hold):
            self._end(evicted, "evicted", now)
        self._telling.owe(
            hold.message.msg_id,
            hold.message.origin.reply_path,
            holds.WHO_IS_TOLD["held"].sender,
            reason=notices.held_words(hold.cause, hold.expires_at, self.askable, now),
        )
        self._changed()

    # ── going ────────────────────────────────────────────────────────────────────────────────────

    def _end(self, hold: Hold, event: str, now: int, note: str = "") -> None:
        """A hold ends without being let in: gone here, told there. Joins the open group. Raises StoreFailed."""
        told = holds.WHO_IS_TOLD[event]
        self._telling.superseded(hold.message.msg_id)
        self._store.end_hold(hold.row, told.receiver, now, told.journal)
        self._telling.owe(
            hold.message.msg_id,
            hold.message.origin.reply_path,
            told.sender,
            reason=told.words,
            detail=told.detail,
            note=note,
        )

    def _let_in(self, hold: Hold, event: str, now: int, note: str = "") -> Message:
        """A hold ends by being let in. Joins the open group. Raises StoreFailed."""
        told = holds.WHO_IS_TOLD[event]
        self._telling.superseded(hold.message.msg_id)
        message = self._store.release_hold(
            hold.row, now, approved_by="user" if event == "approved" else None, detail=told.journal
        )
        self._telling.owe(
            hold.message.msg_id, hold.message.origin.reply_path, told.sender, reason=told.words, note=note
        )
        self._heard_let_in(message)
        return message

    def tick(self, now: int) -> None:
        """Ends the holds whose deadline has passed (03.38). Never raises."""
        if self._undone is not None:
            self.reload()
            self.rejudge(self._undone)
        due = self.queue.due(now)
        if due:
            with self._commits.noting():
                for hold in due:
                    self._end(hold, "expired", now)
                    self.queue.remove(hold.row)
                self._changed()

    def end_all(self, event: str, now: int) -> int:
        """Ends every hold for one reason; returns how many (03.44, 03.46). Never raises."""
        every = tuple(self.queue)
        with self._commits.noting():
            for hold in every:
                self._end(hold, event, now)
                self.queue.remove(hold.row)
        self._changed()
        return len(every)

    # ── deciding ─────────────────────────────────────────────────────────────────────────────────

    def chosen(self, msg_id: str) -> Hold | Refusal:
        """The hold that an id, or a prefix that only one has, stands for (10.5)."""
        found = self.queue.find(msg_id)
        if len(found) == 1:
            return found[0]
        return not_held(msg_id, [hold.message.msg_id for hold in self.queue])

    def approve(self, hold: Hold, *, always: bool, note: str | None) -> Decided | Refusal:
        """Lets one in because a person said so (03.41, 03.48). Raises StoreFailed: nothing has changed then."""
        origin = hold.message.origin
        now = self._clock()
        if always and origin.address is None:
            return Refusal(
                code="invalid_record",
                message="Its sender is no verified session, so there is nobody to accept always.",
                hint=ALONE,
            )
        if always and len(self._store.rules()) >= RULES:
            return Refusal(
                code="invalid_record",
                message=f"There are {RULES:,} rules already, and none goes by itself.",
                hint=ALONE,
            )
        with self._commits.at_once():
            if always:
                self._store.add_rule(origin.identity, origin.name or origin.identity, now)
            self._let_in(hold, "approved", now)
            if note:
                self._noticed(
                    Notice(
                        kind="approved",
                        at=now,
                        msg_id=hold.message.msg_id,
                        about=origin.name if origin.verified else None,
                        detail=f"The person adds: {quoted_words(note)}",
                    )
                )
            self.queue.remove(hold.row)
        if always:
            self._standing.accept_always(self._store.rules())
            self.rejudge("a person always accepts its sender")
        self._changed()
        return Decided(msg_id=hold.message.msg_id, state="accepted")

    def deny(self, hold: Hold, *, note: str | None) -> Decided:
        """Drops one because a person said so (03.42). Raises StoreFailed: nothing has changed then."""
        with self._commits.at_once():
            self._end(hold, "denied", self._clock(), note or "")
            self.queue.remove(hold.row)
        self._changed()
        return Decided(msg_id=hold.message.msg_id, state="denied")

    def _judged(self, hold: Hold) -> Judgement:
        """What the ladder says of a hold as things are now (03.43): by the mode that a person or the client reported.

        What that lets in must also pass by the mode that the session's children have reported since: else an
        agent that went over to a stricter class would see a hold let in by the first settings change.
        """
        origin, standing = hold.message.origin, self._standing
        ruled = standing.ruled(origin)
        judgement = inbound.decide(origin, ruled, standing.waiting)
        if judgement.outcome == "accepted":
            judgement = inbound.decide(origin, ruled, standing.arriving)
        if judgement.outcome == "accepted" and hold.row in self._inherited and not standing.vouched:
            # Whoever killed and resumed the session chose its mode and `--settings`: that decides about no hold.
            lasting = judgement.rung == "rule" or (judgement.rung == "setting" and judgement.scope != "flag")
            if not lasting:
                return replace(inbound.OTHER_CLASS, cause=hold.cause, scope=hold.scope, rung=hold.rung)
        return judgement

    def rejudge(self, why: str) -> None:
        """Runs the ladder again over every hold, oldest first (03.43 to 03.45). Never raises.

        Args:
            why: what has changed, for the notice to the session's own loop.

        Where the store fails nothing has changed; it is tried again.
        """
        now, expiry = self._clock(), self._standing.settings.dialog_expiry
        self._undone = None
        if not len(self.queue):
            self.queue = holds.HoldQueue(expiry=expiry)  # deadlines to come are made under this one
            return
        changes = self.queue.rejudge(self.judged_again, now, expiry, kind=self._kind, attached=self.attached)
        try:
            with self._commits.at_once():
                self._perform(changes, now, why)
        except StoreFailed:
            self._undone = why
        self._changed()

    def judged_again(self, hold: Hold) -> Judgement:
        """The ladder's answer for a hold, or that it is held as before.

        A hold of an earlier life of the session is judged by settings, rules and descent alone: which class this
        session had then is not known. And what `--settings` held stays held where that was only not given again.
        """
        judgement = self._judged(hold)
        by_class = judgement.rung in ("mode-unknown", "class", "default")
        set_before = hold.cause in holds.NEVER_EXPIRE and hold.scope != "flag"
        if hold.row in self._earlier and by_class and not set_before:
            return replace(inbound.OTHER_CLASS, cause=hold.cause, scope=hold.scope, rung=hold.rung)
        return judgement

    def mode_reported(self) -> None:
        """A person or the client has said which mode this session is in: that counts for every hold."""
        self._earlier = frozenset()

    def next_due(self) -> int | None:
        """When `tick` has something to do; None: never."""
        return 0 if self._undone is not None else self.queue.next_deadline()

    def _perform(self, changes: holds.Changes, now: int, why: str) -> None:
        """Writes down what judging again came to. Joins the open group. Raises StoreFailed."""
        for hold in changes.dropped:
            self._end(hold, "refused-since", now)
        for hold in changes.released:
            self._let_in(hold, "released", now)
        self._keep_changed(changes.changed)
        if changes.released:
            count = len(changes.released)
            self._noticed(
                Notice(
                    kind="released",
                    at=now,
                    detail=f"{count} held {'message was' if count == 1 else 'messages were'} let in: {why}.",
                )
            )

    def attach(self) -> None:
        """The client reports that a person has attached: standing deadlines run from now on (03.40)."""
        self.attached = True
        with self._commits.noting():
            self._keep_changed(self.queue.attached(self._clock(), self._standing.settings.dialog_expiry))
        self._changed()

    def _keep_changed(self, changed: Sequence[Hold]) -> None:
        for hold in changed:
            self._store.change_hold(hold.row, hold.cause, hold.scope, hold.rung, hold.expires_at)
