"""May it come in: judges one arriving frame, by a ladder of which the first rung that answers wins (03.6).

`judge` is a pure function from what the frame says and what is known here to a `Judgement`: what becomes of
the frame, what its sender is told at once, and which rung and which scope decided. It stores nothing and tells
nobody; the session does both, the store first. `decide` is rungs 4 to 11 alone: holds are judged again with it,
and `postroom explain` asks it. `class_of` derives a session's permission class from its mode (03.1 to 03.4).

THE LADDER. The numbers are those of chapter 03; the word after each is what `Judgement.rung` calls it, and
`RUNGS` has a sentence for each word.

 1. `shape`: the frame bears this session's own address, or an id that this session sent → dropped, `self-echo`.
    It is addressed to another session id → dropped, `misaddressed` (03.7). What cannot be read at all never
    becomes an arrival: the wire layer drops it.
 2. `settled`: this sender's id was decided on before → the same acknowledgement again, and nothing happens
    twice; with another body it is journaled as `id-reuse` (03.8).
 3. `loop-guard`: the guard objects → dropped with its reason (03.9). It is asked here and nowhere else, once,
    and before any setting is looked at: it counts the same whatever the settings say.
 4. `refuse`: the setting refuses → refused, acknowledged as if it had been accepted (03.10).
 5. `setting`: the setting accepts or holds → that (03.11).
 6. `rule`: a person always accepts this identity, and the identity is verified → accept (03.12).
 7. `own-child`: this session's own child → accept (03.13). That kind is the receiver's finding and never a
    claim (04.15), so it needs no second proof.
 8. `unverified`: from beyond this machine without a valid signature → hold (03.14).
 9. `mode-unknown`: this session's class is unknown → hold (03.15).
10. `class`: the sender states a class: equal → accept; different → hold (03.16).
11. `default`: it states none: a prompting session accepts, a bypassing one holds (03.17).
 `cap`: what would be accepted finds as many unread messages as the limit allows → `inbox_full`. It settles
    nothing: the same id may be tried again (03.64). What is held or refused never meets it (03.10, 03.37).

The cap stands below the settled ids, so a repeat is answered by a full inbox as it was before; it stands below
the guard as well, so a message that finds no room has spent its sender's token. What was settled is looked up
by the sender's identity and the id together: the same id from somebody else is new.

What a sender states of its class is a claim. It is read on rung 10 alone, below everything that a person has
decided, so it can never lift a refusal or a hold that a setting asks for (03.5).

Every answer is made once: a constant, or for a setting the one that its value, scope and cause have. Judging a
frame makes no object.

Weak: that a refusal looks like an acceptance holds for the answer only; that it takes the same time is the
store's part. A rung that is not reached says nothing, so `explain` names one reason where several would do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from postroom.core.message import Origin, PermissionClass
    from postroom.core.settings import Cause, InboundSetting, InboundValue, Scope

Verdict = Literal["accepted", "held", "refused"]
"""What settles an id (03.8)."""

Outcome = Literal["accepted", "held", "refused", "duplicate", "throttled", "full", "dropped"]
"""What becomes of a frame: `dropped` is no message for this session at all, the others are states (11.1)."""

ReceiverClass = Literal["bypassing", "prompting", "unknown"]
"""The permission class of a session, as it judges what arrives with it."""

Rung = Literal[
    "shape",
    "settled",
    "loop-guard",
    "refuse",
    "setting",
    "rule",
    "own-child",
    "unverified",
    "mode-unknown",
    "class",
    "default",
    "cap",
]

MODES: Mapping[str, PermissionClass] = MappingProxyType(
    {
        "bypassPermissions": "bypassing",  # Claude Code's word, and Postroom's own
        "never": "bypassing",  # Codex: its approval policy
        "danger-full-access": "bypassing",  # Codex: no sandbox, so nothing is left to ask about
        "yolo": "bypassing",  # Gemini CLI, Qwen Code
        "default": "prompting",
        "manual": "prompting",
        "acceptEdits": "prompting",
        "auto": "prompting",
        "dontAsk": "prompting",  # it refuses what it would have to ask for
        "plan": "prompting",  # and see `class_of`
    }
)
"""Permission mode → class (03.1, 03.3). A client with other words for these translates them in its own file."""

RUNGS: Mapping[Rung, str] = MappingProxyType(
    {
        "shape": "It bears this session's own address or the id of a message of its own, or it is meant for"
        " another session: such a frame is dropped.",
        "settled": "This sender's message with this id was decided on before: that decision stands, and nothing"
        " happens twice.",
        "loop-guard": "The loop guard drops it: its chain of messages is too long or passed through here too often,"
        " it repeats the sender's previous message, or messages come too fast.",
        "refuse": "`crossSessionInbound` is `refuse`: nothing comes in, and the sender is not told unless"
        " `refusalNotice` is `tell`.",
        "setting": "`crossSessionInbound` is `accept` or `hold`, or it cannot be read, which holds: it decides before"
        " anything that the sender says.",
        "rule": "A person always accepts this sender, whose identity is verified (`postroom rules`).",
        "own-child": "It comes from a process that this session started: that is accepted.",
        "unverified": "It comes from beyond this machine without a valid signature: it is held for a person.",
        "mode-unknown": "This session's permission mode is not known: everything is held for a person.",
        "class": "The sender states a permission class: the same as this session's is accepted, another is held.",
        "default": "The sender states no permission class: a session that asks before it acts accepts that, one that"
        " never asks holds it.",
        "cap": "As many messages wait unread as `maxUnread` allows: the sender is told, and may try again.",
    }
)
"""The word of a rung → one sentence for people, in the order of the ladder; what `postroom explain` prints (03.6)."""

WITHIN = frozenset({"uds", "memory", "mailbox"})
"""Schemes of the transports that never leave this machine. Whatever else carried a message counts as from beyond
it, so that a transport which is forgotten here holds too much and not too little (03.14)."""


class Arrival(NamedTuple):
    """What one frame says, as far as judging it goes. A tuple, because one is made for each frame.

    Attributes:
        msg_id: the sender's id of it, or one made here for a frame without.
        body: a hash of its text.
        own_address: whether its `from` is this session's own address.
        own_message: whether its id is that of a message that this session sent.
        addressed: the session id that it is meant for; None: it does not say.
    """

    msg_id: str
    body: str
    own_address: bool = False
    own_message: bool = False
    addressed: str | None = None


class Settled(NamedTuple):
    """What was decided before on an id of the same sender.

    Attributes:
        outcome: the verdict that stands.
        body: the hash of the text on which it was decided.
    """

    outcome: Verdict
    body: str


class Facts(NamedTuple):
    """What is known here at this instant.

    Attributes:
        session_id: this session's.
        settled: what this very sender's id was settled as; None: it is new.
        unread: messages accepted and not yet read; held ones are counted elsewhere.
    """

    session_id: str
    settled: Settled | None
    unread: int


class Policy(NamedTuple):
    """What this session goes by at this instant: made anew when its mode or a setting changes.

    Attributes:
        receiver: this session's class, from `class_of`.
        setting: the effective `crossSessionInbound`; None: nothing is set.
        max_unread: messages accepted and not yet read, at most (03.64).
    """

    receiver: ReceiverClass
    setting: InboundSetting | None
    max_unread: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What becomes of one frame.

    Attributes:
        outcome: `accepted`, `held`, `refused`; `duplicate` (settled before, or the guard's), `throttled`,
            `full`, or `dropped` (no message for this session).
        ack: what the acknowledgement says, where one was asked for (05.22).
        reason: its reason, in the wire's words; empty where the status says all.
        rung: which rung decided; `RUNGS` says it in a sentence.
        scope: the scope of the setting that decided; `default` where none did.
        cause: why it is held (03.18); empty for any other outcome.
        settles: whether the id is settled by it (03.8).
        journal: the state that the journal gets a row for; empty for what the store takes in (accepted, held,
            refused), which writes the row itself.
        detail: the words in that row: the cause or the rung, and the scope that decided. Never message text.
    """

    outcome: Outcome
    ack: Literal["queued", "inbox_full", "dropped", "misaddressed"]
    reason: str = ""
    rung: Rung
    scope: str = "default"
    cause: Cause | Literal[""] = ""
    settles: bool = False
    journal: str = ""
    detail: str = ""


def _taken(
    outcome: Verdict, rung: Rung, scope: str = "default", cause: Cause | Literal[""] = ""
) -> Judgement:
    """A verdict. Its acknowledgement is the same for all three: neither a hold nor a refusal shows in it (05.22)."""
    words = cause or rung
    return Judgement(
        outcome=outcome,
        ack="queued",
        rung=rung,
        scope=scope,
        cause=cause,
        settles=True,
        detail=words if scope == "default" else f"{words} ({scope})",
    )


SELF_ECHO = Judgement(
    outcome="dropped", ack="dropped", reason="self-echo", rung="shape", journal="dropped", detail="self-echo"
)
MISADDRESSED = Judgement(
    outcome="dropped", ack="misaddressed", rung="shape", journal="dropped", detail="misaddressed"
)
FULL = Judgement(
    outcome="full", ack="inbox_full", reason="queue-full", rung="cap", journal="full", detail="inbox_full"
)

REPEATS: Mapping[tuple[Verdict, bool], Judgement] = MappingProxyType(
    {
        # Whatever the verdict was, its acknowledgement was `queued`: a refusal must not show (03.10).
        (verdict, same): Judgement(
            outcome="duplicate",
            ack="queued",
            rung="settled",
            journal="duplicate",
            detail=f"{verdict} before" if same else f"id-reuse: another text was {verdict} under this id",
        )
        for verdict in ("accepted", "held", "refused")
        for same in (True, False)
    }
)
"""Verdict that stands, whether the body is the same → the answer to a repeat."""

OBJECTIONS: Mapping[str, Judgement] = MappingProxyType(
    {
        reason: Judgement(
            outcome="duplicate" if reason == "duplicate" else "throttled",
            ack="dropped",
            reason=reason,
            rung="loop-guard",
            journal="duplicate" if reason == "duplicate" else "throttled",
            detail=reason,
        )
        for reason in ("hop-runaway", "hop-loop", "duplicate", "rate-limited")
    }
)
"""What the loop guard may object, in the wire's words (03.65) → the answer. It settles nothing (03.8)."""

RULED = _taken("accepted", "rule")
OWN_CHILD = _taken("accepted", "own-child")
UNVERIFIED = _taken("held", "unverified", cause="unverified-sender")
MODE_UNKNOWN = _taken("held", "mode-unknown", cause="mode-unknown")
SAME_CLASS = _taken("accepted", "class")
OTHER_CLASS = _taken("held", "class", cause="mode-mismatch")
ACCEPTED = _taken("accepted", "default")
NO_CLASS = _taken("held", "default", cause="no-mode-asserted")

BY_CLASS: Mapping[ReceiverClass, Mapping[str | None, Judgement]] = MappingProxyType(
    {
        "bypassing": MappingProxyType({"bypassing": SAME_CLASS, "prompting": OTHER_CLASS, None: NO_CLASS}),
        "prompting": MappingProxyType({"bypassing": OTHER_CLASS, "prompting": SAME_CLASS, None: ACCEPTED}),
        "unknown": MappingProxyType({None: MODE_UNKNOWN}),
    }
)
"""Rungs 9 to 11: this session's class → the class that the sender states → the answer (03.19 to 03.21).

A word that a row does not have counts as nothing stated, None (03.5)."""


def class_of(mode: str, *, interactive: bool = False, bypass_available: bool = False) -> ReceiverClass:
    """Derives the class of a session from its permission mode (03.1 to 03.4).

    Args:
        mode: the mode, as its client reports it; letter case counts.
        interactive: whether a person sits at the session.
        bypass_available: whether that person can leave `plan` for a mode that never asks.

    Returns `unknown` for a mode that `MODES` does not have.
    """
    if mode == "plan" and interactive and bypass_available:
        return "bypassing"
    return MODES.get(mode, "unknown")


def judge(
    arrival: Arrival,
    facts: Facts,
    origin: Origin,
    ruled: bool,
    policy: Policy,
    guard: Callable[[], str | None],
) -> Judgement:
    """Judges one frame by the whole ladder above (03.6). Changes nothing itself.

    Args:
        arrival: what the frame says.
        facts: what is known here.
        origin: who it comes from.
        ruled: whether a rule of a person names this identity.
        policy: what this session goes by.
        guard: the loop guard's verdict on this frame: a key of `OBJECTIONS`, or None. It is called once, and
            only where rungs 1 and 2 do not answer, because asking it spends the sender's token.

    Returns an answer that is kept: the same object for the same case. Raises what `guard` raises, and KeyError
    for a reason that `OBJECTIONS` lacks.
    """
    if arrival.own_address or arrival.own_message:
        return SELF_ECHO
    if arrival.addressed is not None and arrival.addressed != facts.session_id:
        return MISADDRESSED
    settled = facts.settled
    if settled is not None:
        return REPEATS[settled.outcome, settled.body == arrival.body]
    objection = guard()
    if objection is not None:
        return OBJECTIONS[objection]
    judgement = decide(origin, ruled, policy)
    if facts.unread >= policy.max_unread and judgement.outcome == "accepted":
        return FULL
    return judgement


def decide(origin: Origin, ruled: bool, policy: Policy) -> Judgement:
    """Rungs 4 to 11 alone: what a person has decided, and the default rule. Changes nothing and never raises.

    What re-judges a hold (03.43), or explains a message that nobody sent (10.10), asks this: neither counts
    against a sender, and no cap applies.

    Args:
        origin: who the message comes from.
        ruled: whether a rule of a person names this identity; it counts for a verified one only (03.12).
        policy: what this session goes by.

    Returns an acceptance, a hold or a refusal.
    """
    setting = policy.setting
    if setting is not None:
        return _by_setting(setting.value, setting.scope, setting.cause)
    if ruled and origin.verified:
        return RULED
    if origin.kind == "own_child":
        return OWN_CHILD
    if not origin.verified and origin.transport not in WITHIN:
        return UNVERIFIED
    row = BY_CLASS[policy.receiver]
    return row.get(origin.stated_class) or row[None]


@cache
def _by_setting(value: InboundValue, scope: Scope, cause: Cause) -> Judgement:
    """The answer of rungs 4 and 5. Kept for each of the few settings that there can be."""
    if value == "refuse":
        return _taken("refused", "refuse", scope)
    if value == "accept":
        return _taken("accepted", "setting", scope)
    return _taken("held", "setting", scope, cause)
