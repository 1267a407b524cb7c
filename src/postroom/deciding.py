"""Deciding: what a person, a client or a setting says about what is held, and why something is so.

That it is a person who decides is established by whoever calls this (10.39): the control socket, or the terminal in
front of the session. No frame of a peer leads here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.commits import deadline_in
from postroom.core import contract, inbound
from postroom.core.message import Decided, Explanation, Origin, Refusal, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroom.commits import Bell, Commits
    from postroom.core import loops
    from postroom.core.holds import Hold
    from postroom.core.inbound import Judgement
    from postroom.core.message import PermissionClass
    from postroom.core.settings import Settings
    from postroom.holding import Holding
    from postroom.recipients import Recipients
    from postroom.sending import Sending
    from postroom.standing import Reporter, Standing
    from postroom.state.keeping import Store

DECIDED = frozenset({"accepted", "held", "refused", "duplicate", "throttled", "full", "dropped"})
"""States of the journal that say what was decided when a message came (03.6)."""


TURNED_AWAY = {"throttled": "loop-guard", "duplicate": "loop-guard", "full": "cap", "dropped": "shape"}
"""State of what never came in → the rung that turned it away. Nothing but the journal is left of it, so it is not
judged again."""


class Deciding:
    """The part of a session that a person speaks to; see `Session`."""

    if TYPE_CHECKING:
        store: Store
        standing: Standing
        _clock: Callable[[], int]
        _hold_bell: Bell
        _closed: bool
        _commits: Commits
        _guard: loops.Guard
        _holding: Holding
        _recipients: Recipients
        _sending: Sending

        def _check_open(self) -> None: ...

    @property
    def askable(self) -> bool:
        """Whether somebody in front of this session is asked about what is held (03.51)."""
        return self._holding.askable

    @askable.setter
    def askable(self, askable: bool) -> None:
        self._holding.askable = askable

    def held(self) -> tuple[Hold, ...]:
        """What waits for a person, a setting or a mode, oldest first (10.5)."""
        return tuple(self._holding.queue)

    async def changed(self, timeout: float | None = None) -> bool:
        """Waits until a hold comes or goes; False when the time ran out or the session ended."""
        if self._closed:
            return False
        return await self._hold_bell.heard(deadline_in(timeout)) and not self._closed

    def approve(self, msg_id: str, *, always: bool = False, note: str | None = None) -> Decided | Refusal:
        """Lets in one message that is held; for a person's decision alone (03.41, 03.48, 10.39).

        Args:
            msg_id: its id, or a prefix of six characters or more that no other held message has.
            always: accept whatever its sender sends from now on, below an explicit setting.
            note: the person's words, for the model that receives it.

        Returns what became of it, or the refusal `not_held`. Raises StoreFailed: then it is still held.
        """
        self._check_open()
        self._holding.tick(self._clock())
        hold = self._holding.chosen(msg_id)
        return hold if isinstance(hold, Refusal) else self._holding.approve(hold, always=always, note=note)

    def deny(self, msg_id: str, *, note: str | None = None) -> Decided | Refusal:
        """Drops one message that is held, and tells its sender; for a person's decision alone (03.42).

        Args:
            msg_id: as for `approve`.
            note: the person's words, for the sender.

        Returns what became of it, or the refusal `not_held`. Raises StoreFailed: then it is still held.
        """
        self._check_open()
        self._holding.tick(self._clock())
        hold = self._holding.chosen(msg_id)
        return hold if isinstance(hold, Refusal) else self._holding.deny(hold, note=note)

    def rules(self) -> list[Rule]:
        """The pairs that a person always accepts (10.11)."""
        self._check_open()
        with self._commits.using():
            return self.store.rules()

    def revoke(self, rule_id: str) -> Rule | Refusal:
        """Removes such a pair; for a person's decision alone. Returns it, or a refusal. Raises StoreFailed."""
        rule = next((rule for rule in self.rules() if rule.id == rule_id), None)
        if rule is None:
            return contract.refusal("unknown_rule", rule_id=rule_id)
        with self._commits.at_once():
            self.store.drop_rule(rule_id)
        self.standing.accept_always(self.rules())
        return rule

    def set_mode(self, mode: str, *, by: Reporter, bypass_available: bool = False) -> None:
        """Takes the permission mode that this session is in now (03.43).

        Args:
            mode: the mode; what is no known one makes the class unknown, and everything is held.
            by: who says so. What the session's own children report judges what arrives from then on; a
                person or the client itself has the holds judged again too.
            bypass_available: whether the person can leave `plan` for a mode that never asks (03.2).
        """
        self._check_open()
        if self.standing.report(mode, by, bypass_available=bypass_available):
            if by != "child":
                self._holding.mode_reported()
            self._holding.rejudge(f"the mode is {mode} now")

    def apply(self, settings: Settings) -> None:
        """Takes the settings that apply from now on, and judges the holds again (03.36, 03.44, 03.45)."""
        if self._closed:
            return
        self.standing.apply(settings)
        self._guard.limits = self.standing.limits
        self._sending.apply()
        self._holding.rejudge("the settings have changed")

    def attached(self) -> None:
        """The client reports that a person has attached: deadlines that stood still run from now on (03.40)."""
        self._check_open()
        self._holding.attach()

    def explain(self, msg_id: str) -> Explanation | Refusal:
        """Which rung and which scope decide about a message that came, as things are now (03.6, 10.10)."""
        self._check_open()
        hold = next((hold for hold in self.held() if hold.message.msg_id == msg_id), None)
        with self._commits.using():
            found = [hold.message] if hold is not None else self.store.find(msg_id)
            steps = self.store.steps(msg_id)
        decided = next((step for step in steps if step.state in DECIDED), None)
        then = "" if decided is None else ": ".join(filter(None, (decided.state, decided.detail)))
        state = steps[-1].state if steps else ""
        if hold is not None:
            return explained(self._holding.judged_again(hold), then, state)
        if found:
            origin = found[-1].origin
            judgement = inbound.decide(origin, self.standing.ruled(origin), self.standing.arriving)
            return explained(judgement, then, state)
        if decided is None:
            return contract.refusal("unknown_message", msg_id=msg_id)
        # Nothing but the journal is left of what was turned away or has ended: it is not judged again.
        rung = TURNED_AWAY.get(decided.state, "")
        if decided.state == "duplicate" and decided.detail != "duplicate":
            rung = "settled"
        return Explanation(outcome=state, rung=rung, scope="default", cause="", then=then, state=state)

    def explain_supposed(
        self, from_: str | None = None, stated: PermissionClass | None = None
    ) -> Explanation | Refusal:
        """The same for a message that nobody has sent (10.10).

        Args:
            from_: the name of its sender; None: somebody without a session.
            stated: the class that it would state; None: none.
        """
        self._check_open()
        identity, verified = "nobody", False
        if from_ is not None:
            found = self._recipients.found(from_)
            if isinstance(found, Refusal):
                return found
            identity, verified = found.candidate.identity, True
        origin = Origin(kind="peer", identity=identity, verified=verified, stated_class=stated)
        return explained(inbound.decide(origin, self.standing.ruled(origin), self.standing.arriving))


def explained(judgement: Judgement, then: str = "", state: str = "") -> Explanation:
    """A judgement as an explanation."""
    return Explanation(
        outcome=judgement.outcome,
        rung=judgement.rung,
        scope=judgement.scope,
        cause=judgement.cause,
        then=then,
        state=state,
    )
