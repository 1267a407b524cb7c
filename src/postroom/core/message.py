"""The records that every layer speaks: Message, Origin, Receipt, TaskNotification, Notice, Refusal.

They hold values and nothing else: no I/O, no clock. A `repr` is one honest status line: it names ids,
states and sizes and never shows the text of a message.

Times are integers, milliseconds since the epoch, and come in as arguments. A state of a message is one of
`RECEIVER_STATES` or `SENDER_STATES`; which may follow which is the table `TRANSITIONS` (11.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol

from postroom.core.times import iso as iso

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Decided",
    "Explanation",
    "Lease",
    "Message",
    "Near",
    "Notice",
    "Origin",
    "Party",
    "Pin",
    "Receipt",
    "Refusal",
    "Rule",
    "RunStatus",
    "Status",
    "Step",
    "TaskNotification",
]

OriginKind = Literal[
    "user", "coordinator", "peer", "agent", "teammate", "lead", "observer", "own_child", "system"
]
PermissionClass = Literal["bypassing", "prompting"]
Priority = Literal["now", "next", "later"]
PartyKind = Literal["session", "agent", "teammate"]
ReceiptStatus = Literal["queued", "written", "accepted", "resumed", "unknown"]
RunStatus = Literal["running", "completed", "failed", "killed"]
State = Literal[
    "received",
    "accepted",
    "held",
    "refused",
    "duplicate",
    "throttled",
    "full",
    "denied",
    "expired",
    "evicted",
    "leased",
    "consumed",
    "passed",
    "answered",
    "removed",
    "queued",
    "written",
    "resumed",
    "unknown",
    "failed",
]

TRANSITIONS: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        "received": frozenset({"accepted", "held", "refused", "duplicate", "throttled", "full"}),
        "held": frozenset({"accepted", "denied", "expired", "evicted"}),
        "accepted": frozenset({"leased", "removed"}),
        # A lease that is given back makes the message accepted again, marked redelivered.
        "leased": frozenset({"consumed", "accepted", "passed"}),
        # What a client's own inbox or queue took is out of reach here; it may say later what became of it.
        "passed": frozenset({"consumed", "accepted", "denied"}),
        "consumed": frozenset({"answered"}),
    }
)
"""Receiver side: from a state to those that may follow it (11.1). A state that is absent here is final.

Two are additions to chapter 11's figure: `removed`, unread mail that retention took (03.46), and `passed`, what a door
took that cannot say more than that it has it (09.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who a queued item comes from, as the receiver established it, never as the text says (04.15).

    Attributes:
        kind: what sort of sender.
        identity: the key by which this sender is known here. A verified peer: its session id. Anybody
            else: `process:<pid>:<start>`, the connecting process; ids settle per identity (03.8).
        verified: True only where the receiver checked it against the connection's credentials.
        name: the sender's name; a claim while `verified` is False. None: it gave none.
        address: where an answer goes (`uds:/…/123.sock`); None: it cannot be answered.
        transport: the scheme that carried it, such as `uds`.
        stated_class: the permission class that the sender states, a claim (03.5).
        reply_path: `<pid>:<start> <address>`: the connecting process as it is seen here and the address that it
            gave, for the check before a notice is sent (05.24). Empty: no notice can be sent.
        one_way: somebody inside this session whom the receiver cannot answer: shown by name, with no `from`.
    """

    kind: OriginKind
    identity: str
    verified: bool = False
    name: str | None = None
    address: str | None = None
    transport: str = "uds"
    stated_class: PermissionClass | None = None
    reply_path: str = field(default="", repr=False)
    one_way: bool = False

    @property
    def known_as(self) -> str:
        """The sender in a journal: its name, said to be claimed where nothing vouches for it; else its identity."""
        if self.name is None:
            return self.identity
        return self.name if self.verified else f"{self.name} (claimed)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message in an inbox.

    Attributes:
        msg_id: the sender's id of it.
        text: what the sender wrote, exactly; scrubbed only when it is shown to a model (04.7).
        origin: who it comes from.
        received_at: epoch milliseconds, the receiver's clock.
        summary: a preview for people, at most 200 code points.
        sent_at: the sender's own time, a claim, as it came.
        in_reply_to: the id of the message that this one answers.
        priority: `next` or `later`; a peer's `now` reads as `next` (05.21).
        hop_chain: tokens of the sessions that this thread of messages passed through (03.66).
        state: where it stands, see `TRANSITIONS`.
        redelivered: True when it was handed out before and came back.
        held: True when a person or a settings change released it from a hold.
        approved_by: `user` when a person released it.
    """

    msg_id: str
    text: str = field(repr=False)
    origin: Origin
    received_at: int
    summary: str | None = field(default=None, repr=False)
    sent_at: str | None = None
    in_reply_to: str | None = None
    priority: Priority = "next"
    hop_chain: tuple[str, ...] = field(default=(), repr=False)
    state: State = "received"
    redelivered: bool = False
    held: bool = False
    approved_by: str | None = None

    def moved(self, state: State) -> Message:
        """Returns this message in another state; ValueError for a step that `TRANSITIONS` lacks."""
        if state not in TRANSITIONS.get(self.state, frozenset()):
            raise ValueError(f"a message that is {self.state} cannot become {state}")
        return replace(self, state=state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """Somebody who can be written to, as a result names them (01.31)."""

    name: str
    ref: str
    kind: PartyKind = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What a name meant in a conversation: normal form → identity (02.17)."""

    name: str
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What is known after a send: never `delivered`, never `read` (01.31).

    Attributes:
        status: `queued` (its inbox acknowledged), `written`, `accepted`, `resumed`, or `unknown` (the
            write began and no answer came).
        msg_id: the id under which the message travels, and may be sent again.
        to: whom it went to.
        note: one sentence that says what this status does and does not mean.
        pin: the pin that this send made or confirmed.
        waiting: how many messages wait for the sender itself.
        warnings: sentences about this send (one way, confusable name, a place not checked, …).
        result: the final text of the run that this send resumed, where background work is off (06.12); None
            for every other send.
    """

    status: ReceiptStatus
    msg_id: str
    to: Party
    note: str
    pin: Pin | None = None
    waiting: int = 0
    warnings: tuple[str, ...] = ()
    result: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNotification:
    """What the owner of an agent learns about one run of it: its progress, or how it ended (06.11).

    Attributes:
        task_id: the agent's id; the same one may finish again after a resume.
        name: what the agent is called.
        status: `running` for progress; `completed`, `failed` or `killed` for a finish.
        run: which run of this task, from 1; each finish has its own.
        at: epoch milliseconds.
        output_path: where the output of the run lies; None where it has none.
        result: the final text, or what the progress says.
        usage: what the run used, by the host's own words, such as `input_tokens`.
        worktree: the working tree that the run left behind; None where it left none.
    """

    task_id: str
    name: str
    status: RunStatus
    run: int
    at: int
    output_path: str | None = None
    result: str | None = field(default=None, repr=False)
    usage: Mapping[str, int | float] | None = None
    worktree: str | None = None


class Waiting(Protocol):
    """PORT: an item of a queue of this process, as its block is made of it; an `Entry` of `core.queues` is one (06.4).

    Attributes:
        msg_id, origin, in_reply_to, summary, redelivered: as in `Message`.
        text: what the sender wrote.
        at: epoch milliseconds when it was sent; 0: not known.
        task: what is told of a run; None for a message.
        severity: an observer's.
    """

    @property
    def msg_id(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def origin(self) -> Origin: ...
    @property
    def at(self) -> int: ...
    @property
    def summary(self) -> str | None: ...
    @property
    def in_reply_to(self) -> str | None: ...
    @property
    def task(self) -> TaskNotification | None: ...
    @property
    def severity(self) -> str | None: ...
    @property
    def redelivered(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A candidate that an error names: `name [ref]` with what tells it apart (01.30)."""

    name: str
    ref: str
    kind: PartyKind = "session"
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A call that was answered with no (01.7). A value, not an exception.

    Attributes:
        code: stable, from the table of chapter 01 or 10.
        message: one sentence: what was wrong.
        hint: one sentence: what to do next.
        candidates: at most three, best first.
        more: how many further candidates there were.
        msg_id: set where a message id was already given out.
    """

    code: str
    message: str
    hint: str = ""
    candidates: tuple[Near, ...] = ()
    more: int = 0
    msg_id: str | None = None

    def __str__(self) -> str:
        """The one paragraph that a model or a person reads (01.30)."""
        return f"{self.message} {self.hint}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What a person's decision about a held message came to (10.29).

    Attributes:
        msg_id: the message, whole.
        state: `accepted` or `denied`.
    """

    msg_id: str
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Which rung of the ladder decides about a message, and which scope of settings stands behind it (03.6, 10.10).

    Attributes:
        outcome: `accepted`, `held`, `refused`, or what else the ladder answers.
        rung: the word of the rung that answers, such as `class`.
        scope: the scope of settings that decides; `default` where none is set.
        cause: why it is held, in one word such as `mode-mismatch`; empty where it is not.
        then: what was decided when the message came, as the journal has it; empty for a supposed one.
        state: where the message stands now, as the journal has it; empty for a supposed one.
    """

    outcome: str
    rung: str
    scope: str
    cause: str
    then: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A pair that a person always accepts: this session and one sender, until it is revoked (03.12, 03.48).

    Attributes:
        id: by which it is revoked; the same sender has the same one again.
        identity: whose messages are accepted; it counts for a verified sender only.
        name: what the sender was called when the rule was made.
        since: epoch milliseconds.
    """

    id: str
    identity: str
    name: str
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A message from the system itself to a sender (03.49): about one of its messages, or an idle session.

    Attributes:
        kind: `held`, `delivered`, `denied`, `expired`, `dropped`, `renamed`, `idle`, …
        at: epoch milliseconds.
        msg_id: the message that it is about, if it is about one.
        about: the name of the session that it is about.
        detail: a sentence.
    """

    kind: str
    at: int
    msg_id: str | None = None
    about: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """What one `take` handed over.

    Attributes:
        id: what `confirm` and `release` name it by; empty when it holds no message.
        messages: in the order in which they are to be read.
        notices: what the system says about this session's own messages.
    """

    id: str
    messages: tuple[Message, ...]
    notices: tuple[Notice, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.messages or self.notices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a session knows of itself (10.27, 10.30).

    Attributes:
        name, ref, session_id: who it is.
        program: what runs it: a client's name, or `postroom`.
        peer_address: where it accepts messages; None while it has no inbox, `problems` says why.
        permission_class: derived from the mode (chapter 03).
        mode: the permission mode.
        inbound: the effective inbound setting, None for none.
        inbound_scope: which scope set it.
        queued: messages that wait to be taken.
        held: messages that wait for a person.
        off: which halves a shutdown of messaging has turned off: `send`, `receive` (10.30).
        problems: sentences for the person.
        counts: what was ignored or failed since the start, by kind.
    """

    name: str
    ref: str
    session_id: str
    peer_address: str | None
    permission_class: str = "prompting"
    mode: str = "default"
    inbound: str | None = None
    inbound_scope: str = "default"
    queued: int = 0
    held: int = 0
    off: tuple[str, ...] = ()
    program: str = "postroom"
    problems: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One row of a session's journal: a message came into a state, when, and why (11.1).

    Attributes:
        msg_id: which message.
        at: epoch milliseconds.
        where: the name of the session in whose journal it stands.
        state: the state that it came into.
        detail: the reason or the counterpart, in words; never message text.
    """

    msg_id: str
    at: int
    where: str
    state: str
    detail: str = ""
