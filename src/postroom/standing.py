"""How a session stands towards what arrives: its mode, the settings that apply, the pairs that a person accepts.

From these it keeps ready what `core.inbound` judges by. It reads no file and decides nothing about a message.

Two modes are kept. What the session's own children report judges what arrives from then on; holds are judged again
only by what a person or the client itself reported (03.43), so that no command of an agent lets in what waits for a
person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from postroom.core import inbound
from postroom.core.settings import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroom.core.inbound import Policy, ReceiverClass
    from postroom.core.message import Origin, Rule
    from postroom.core.settings import Limits, Settings

Reporter = Literal["child", "person", "client"]
"""Who says what mode the session is in."""

DEFAULT_MODE = "default"
"""Without `--mode` (10.8)."""

STATED = {"bypassing": "bypass", "prompting": "prompting"}
"""A class as an envelope states it; an unknown one is not stated (03.5)."""

UNASKED = (
    "This session never asks for permission and nobody can be asked here, so it will hold what sessions send that do"
    ' ask. If they are to reach it, set "crossSessionInbound": "accept" in your own settings.'
)
"""What a bypassing session without a surface says at its start (10.8)."""


class Standing:
    """What a session's judgements rest on.

    Args:
        mode: the permission mode at the start.
        settings: those that apply at the start.
        limits: the bounds, in place of the settings' own; for a program that measures (12.23).
        interactive: whether somebody sits in front of the session (03.2).
        vouched: whether the mode and `--settings` are a person's word, or nothing waits that they could let in; else
            they let in nothing that an earlier life of the session holds, until a person or the client reports a
            mode (05.26, 10.39).
    """

    def __init__(
        self,
        mode: str = DEFAULT_MODE,
        settings: Settings = DEFAULTS,
        limits: Limits | None = None,
        *,
        interactive: bool = False,
        vouched: bool = True,
    ) -> None:
        self.mode = mode
        self.vouched = vouched
        self.settings = settings
        self.arriving: Policy
        self.waiting: Policy
        self._confirmed = mode
        self._bypass_available = False
        self._limits = limits
        self._interactive = interactive
        self._accepted: frozenset[str] = frozenset()
        self._keep()

    def _keep(self) -> None:
        """Keeps ready what the ladder is given: for what arrives, and for what waits already."""
        most, now = self.limits.max_unread, self.permission_class
        self.arriving = inbound.Policy(now, self.settings.inbound, most)
        confirmed = "unknown" if now == "unknown" else self._class_of(self._confirmed)
        self.waiting = inbound.Policy(confirmed, self.settings.inbound, most)

    def _class_of(self, mode: str) -> ReceiverClass:
        return inbound.class_of(mode, interactive=self._interactive, bypass_available=self._bypass_available)

    @property
    def limits(self) -> Limits:
        """The bounds that apply now."""
        return self._limits or self.settings.limits

    @property
    def permission_class(self) -> ReceiverClass:
        """The class of the mode as it was last reported, by whomever."""
        return self._class_of(self.mode)

    @property
    def stated(self) -> str | None:
        """The word that this session's envelopes state (03.5)."""
        return STATED.get(self.permission_class)

    @property
    def refuses(self) -> bool:
        """Whether nothing is let in."""
        return self.settings.inbound is not None and self.settings.inbound.value == "refuse"

    @property
    def holds(self) -> bool:
        """Whether a setting holds what arrives."""
        return self.settings.inbound is not None and self.settings.inbound.value == "hold"

    def report(self, mode: str, by: Reporter, *, bypass_available: bool = False) -> bool:
        """Takes a mode; returns whether the holds are to be judged again (03.43).

        Args:
            mode: the mode.
            by: who says so.
            bypass_available: the person can leave `plan` for a mode that never asks (03.2).
        """
        self.mode = mode
        self._bypass_available = bypass_available
        trusted = by in ("person", "client")
        if trusted:
            self._confirmed = mode
            self.vouched = True
        self._keep()
        return trusted or self.permission_class == "unknown"

    def apply(self, settings: Settings) -> None:
        """Takes the settings that apply from now on (03.36)."""
        self.settings = settings
        self._keep()

    def accept_always(self, rules: Iterable[Rule]) -> None:
        """Takes the pairs that a person always accepts (03.48)."""
        self._accepted = frozenset(rule.identity for rule in rules)

    def ruled(self, origin: Origin) -> bool:
        """Whether a person always accepts this sender; of a verified one only (03.12)."""
        return origin.verified and origin.identity in self._accepted

    def problems(self, *, surface: bool) -> tuple[str, ...]:
        """What the person should know of it.

        Args:
            surface: whether somebody can be asked in front of this session.
        """
        unasked = self.permission_class == "bypassing" and not surface and self.settings.inbound is None
        return (*((UNASKED,) if unasked else ()), *self.settings.problems)
