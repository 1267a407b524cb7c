"""Notices: what sessions tell each other about messages and about being idle, as lines and as words (05.24, 05.31).

Receipts: `status_line` writes one, `read_status` reads one, the table `SENDER_STEPS` says what it changes at the
sender. How many leave, and how many are heard, is bounded by `core.drops`, whose names are here too. Idle notices:
`Watchers` keeps who asked for one, `idle_line` writes it.

NO NOTICE ABOUT A NOTICE exists, by construction: what is read here becomes a `Word`, a value from which no line is
made, and a `Word` names only messages; a frame's own id is never looked at (03.49).

WORDS. A sentence that this module wrote is known again when it is read and shown as it is. Any other text is another
session's and shown as its words: scrubbed, in quotes, on one line, at most 300 characters (05.24). A machine's word
that is not known is not shown.

It never sends, stores or looks at a clock, and it checks no sender: that a frame comes from whom it names, and is about
a message that was sent there, is established before anything here is asked.

How it fails: no frame raises anything. `status_line` and `idle_line` raise ValueError for a word that the protocol does
not have, for too many ids, and for an id or address with a lone surrogate: mistakes of the program.

What is weak: whoever can write to the inbox as that session can also write its sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from postroom.core.drops import MAX_A_MINUTE as MAX_A_MINUTE
from postroom.core.drops import MAX_IDS, MINUTE
from postroom.core.drops import Batch as Batch
from postroom.core.drops import Drops as Drops
from postroom.core.drops import Heard as Heard
from postroom.core.envelope import WORDS_LIMIT, clean_name, quoted_words
from postroom.core.holds import WHO_IS_TOLD
from postroom.core.times import iso
from postroom.core.wire import ControlFrame, encode_control, is_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from postroom.core.settings import Cause

# ── what a receipt changes ───────────────────────────────────────────────────────────────────────

_FROM_PENDING: Final = frozenset(
    ("held", "delivered", "denied", "refused", "expired", "misaddressed", "dropped", "read")
)

SENDER_STEPS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        # Pending: what a send came to, or nothing yet; a notice may be quicker than the acknowledgement (11.2).
        **dict.fromkeys(("", "queued", "written", "accepted", "resumed", "unknown"), _FROM_PENDING),
        "held": frozenset(("delivered", "denied", "expired")),
        "delivered": frozenset(("read",)),
    }
)
"""What a sender knows of its message → the statuses that say more (05.24). A state that is absent is final."""

TOLD: Final = _FROM_PENDING
"""The states that only a notice brings: they say more than any acknowledgement."""


def step(state: str, status: str) -> str | None:
    """What a sender knows of its message, known as `state`, after a receipt of this `status` (05.24).

    Returns the new state, or None: a repeat, or out of order, and nothing changes.
    """
    return status if status in SENDER_STEPS.get(state, ()) else None


# ── the words ────────────────────────────────────────────────────────────────────────────────────

DROP_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "rate-limited": "Too many messages came from you in a short time: wait, then put everything into one.",
        "duplicate": "It says the same as your message before it.",
        "hop-loop": "This exchange has gone around in a loop: stop answering in it.",
        "hop-runaway": "This exchange has passed through too many sessions: stop passing it on.",
        "queue-full": "The inbox there is full of unread messages: send it again later.",
    }
)
"""Why something was dropped, in the wire's words (03.65, 03.56) → a sentence for its sender."""

READ_WORDS: Final = WHO_IS_TOLD["consumed"].words
"""The `reason` of a read receipt."""

CAUSE_WORDS: Final[Mapping[Cause, str]] = MappingProxyType(
    {
        "explicit-setting": "that session is set to hold what other sessions send",
        "managed-setting": "the settings managed for that machine hold what sessions send to each other",
        "repo-setting": "the settings of that session's project hold what other sessions send",
        "invalid-setting": "a setting of that session cannot be used, and until it is mended everything is held",
        "mode-unknown": "the permission mode of that session is not known",
        "mode-mismatch": "that session has another permission class than its sender states",
        "no-mode-asserted": "its sender states no permission class, and that session never asks for permission",
        "unverified-sender": "it comes from beyond that machine without a valid signature",
    }
)
"""Why a message is held (03.18), for its sender."""


def held_words(cause: Cause, expires_at: int | None, askable: bool, now: int) -> str:
    """The `reason` of a `held` receipt: why, whether anybody can be asked there, and when it ends (03.51).

    Args:
        cause: why it is held.
        expires_at: epoch milliseconds at which it ends by itself; None: not so far.
        askable: whether somebody in front of that session is asked.
        now: epoch milliseconds; the date stands there when the end is on another day.

    Returns `Held because …; nobody can approve it there; it ends at 10:20Z unless its owner does.` and the like.
    """
    if expires_at is None:
        end = "it waits until that is decided" if askable else "it waits until its owner does"
    else:
        at = iso(expires_at)
        day = "" if at[:10] == iso(now)[:10] else f"{at[:10]} "
        end = f"it ends at {day}{at[11:16]}Z {'without an answer' if askable else 'unless its owner does'}"
    asked = "a person is asked there" if askable else "nobody can approve it there"
    return f"Held because {CAUSE_WORDS[cause]}; {asked}; {end}."


def dropped_words(reason: str) -> str:
    """The `reason` of a `dropped` receipt; a word that `DROP_WORDS` lacks has no sentence of its own."""
    return DROP_WORDS.get(reason, "It was dropped there.")


_DETAIL_WORDS: Final = {
    **{(row.sender, row.detail): row.words for row in WHO_IS_TOLD.values() if row.detail},
    **{("dropped", reason): words for reason, words in DROP_WORDS.items()},
}
"""(status, machine's word) → our sentence: what may end a message, as far as it is known here."""

_NO_MORE: Final = frozenset(
    WHO_IS_TOLD[event].words for event in ("released", "denied", "refused", "consumed")
)
"""Sentences of ours that say no more than their status does."""

_OURS: Final = frozenset((*_DETAIL_WORDS.values(), WHO_IS_TOLD["approved"].words))
"""Sentences of ours that say more."""

_READ_AT_MOST: Final = 10 * WORDS_LIMIT
"""Characters of a foreign text that are looked at: blanks among them are taken together before it is cut."""


def _foreign(text: str | None) -> str:
    """Another session's own words in quotes; empty where there are none."""
    begins = (text or "")[:_READ_AT_MOST]
    return quoted_words(begins) if begins.strip() else ""


def _plain(text: str) -> str | None:
    """A text as a line may carry it: scrubbed, on one line, cut; None for one without words."""
    return _foreign(text)[1:-1] or None  # without the quotes


# ── receipts ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What a receipt says.

    Attributes:
        status: one of `TOLD`.
        ids: the messages that it is about, at least one; more only for `dropped`.
        detail: sentences for whoever reads the notice; may be empty.
        reason: the machine's word for why, such as `evicted` or `rate-limited`, if it is a known one; else empty.
    """

    status: str
    ids: tuple[str, ...]
    detail: str
    reason: str


def status_line(
    status: str,
    *,
    orig_msg_id: str,
    address: str | None,
    msg_id: str,
    reason: str,
    detail: str = "",
    note: str = "",
    drop_reason: str = "",
    dropped: tuple[str, ...] = (),
) -> bytes:
    """Writes a receipt as one line (05.24).

    Args:
        status: one of `TOLD`. `refused` is written as `expired` with the detail `refused`, which older readers
            understand (03.54).
        orig_msg_id: the message that it is about; of several that were dropped, the first.
        address: this session's own `uds:` address.
        msg_id: a new id for the frame itself.
        reason: a sentence.
        detail: the machine's word beside the status, from `WHO_IS_TOLD`.
        note: what a person added (03.42); it stands in the place of `reason`. Cut at 300 characters.
        drop_reason, dropped: for `dropped`: a key of `DROP_WORDS`, and all the ids, at most `MAX_IDS`.

    Raises ValueError for another status or more ids.
    """
    if status not in TOLD:
        raise ValueError(f"no receipt says {status!r}")
    if len(dropped) > MAX_IDS:
        raise ValueError(f"a receipt names at most {MAX_IDS} ids")
    refused = status == "refused"
    return encode_control(
        ControlFrame(
            action="peer_message_status",
            msg_id=msg_id,
            from_=address,
            orig_msg_id=orig_msg_id,
            status="expired" if refused else status,
            reason=_plain(note) or _plain(reason),
            status_detail="refused" if refused else detail or None,
            drop_reason=drop_reason or None,
            dropped_msg_ids=dropped or None,
        )
    )


def read_status(frame: ControlFrame) -> Word | None:
    """Reads a receipt (05.24). Whether its sender may say so, and whether it is news, is not asked here.

    Returns None for what is no receipt, for a status that is not known, and where no message is named.
    """
    status = frame.status or ""
    if frame.action != "peer_message_status" or status not in TOLD:
        return None
    named = (frame.orig_msg_id or "", *((frame.dropped_msg_ids or ()) if status == "dropped" else ()))
    ids = tuple(dict.fromkeys(filter(is_id, named)))
    if not ids:
        return None
    if status == "expired" and frame.status_detail == "refused":
        status = "refused"
    machine = (frame.drop_reason if status == "dropped" else frame.status_detail) or ""
    ours = _DETAIL_WORDS.get((status, machine), "")
    return Word(
        status=status,
        ids=ids,
        detail=" ".join(filter(None, dict.fromkeys((ours, _said(frame.reason))))),
        reason=machine if ours else "",
    )


def _said(reason: str | None) -> str:
    """What the reason of a receipt adds for its reader: our own sentence as it is, anybody else's as its words."""
    if reason in _NO_MORE:
        return ""
    if reason in _OURS:
        return reason
    words = _foreign(reason)
    return f"It says: {words}" if words else ""


def renamed_line(*, name: str, former: str, address: str | None, msg_id: str) -> bytes:
    """Writes the news of a new name as one line; for sessions of ours alone (05.24)."""
    return encode_control(
        ControlFrame(action="peer_renamed", msg_id=msg_id, from_=address, name=name, former=former)
    )


def former_name(frame: ControlFrame) -> str:
    """The name that a renamed session says it had, fit to be shown; empty where it says none."""
    return clean_name(frame.former) or ""


# ── idle notices ─────────────────────────────────────────────────────────────────────────────────

IDLE_STATES: Final = frozenset(("idle", "exited", "unavailable"))
"""What an idle notice says: the turn has ended with nothing queued, the session has ended, or it cannot tell."""

MAX_WATCHERS: Final = 32
"""Sessions that may wait for one to be idle; the next is told `unavailable` (05.31)."""

WATCH_TIME: Final = 12 * 60 * MINUTE
"""How long a subscription lasts, in milliseconds (05.31)."""


class Watching(Protocol):
    """What `Watchers` takes of a subscription that was kept; a `Watcher` is one."""

    @property
    def msg_id(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def reply_path(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def at(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """A session that wants to know when this one is idle.

    Attributes:
        msg_id: the id of its request, which the answer names.
        identity, name: who it is.
        reply_path: where the answer goes, as in `Origin.reply_path`.
        mode: the class that it stated, `bypass` or `prompting`; empty: none.
        at: epoch milliseconds.
    """

    msg_id: str
    identity: str
    name: str
    reply_path: str
    mode: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """What became of a request.

    Attributes:
        noted: it is kept; else the table is full and its sender is to be told `unavailable`.
        removed: the earlier one of the same session, and those whose time is over: to be forgotten in silence,
            before this one is kept, since a repeat may come under the same id.
    """

    noted: bool
    removed: tuple[Watcher, ...]


class Watchers:
    """Who wants to know when this session is idle: each once, 32 at most, for 12 hours (05.31).

    Args:
        kept: those of before a restart, oldest first; of two of one session the later counts, of too many the
            latest.
    """

    __slots__ = ("_by_identity", "_gone")

    def __init__(self, kept: Iterable[Watching] = ()) -> None:
        self._by_identity: dict[str, Watcher] = {}
        self._gone: list[Watcher] = []
        for one in kept:
            self._replace(
                Watcher(
                    msg_id=one.msg_id,
                    identity=one.identity,
                    name=one.name,
                    reply_path=one.reply_path,
                    mode=one.mode,
                    at=one.at,
                )
            )
        for identity in list(self._by_identity)[:-MAX_WATCHERS]:
            self._gone.append(self._by_identity.pop(identity))

    def __len__(self) -> int:
        return len(self._by_identity)

    def _replace(self, watcher: Watcher) -> None:
        earlier = self._by_identity.pop(watcher.identity, None)
        if earlier is not None:
            self._gone.append(earlier)
        self._by_identity[watcher.identity] = watcher

    def subscribe(self, watcher: Watcher, now: int) -> Noted:
        """Takes a request; one of a session that has one already takes its place and lasts 12 hours anew."""
        removed = self.expire(now)
        if watcher.identity not in self._by_identity and len(self._by_identity) >= MAX_WATCHERS:
            return Noted(noted=False, removed=removed)
        self._replace(watcher)
        return Noted(noted=True, removed=(*removed, *self._drain_gone()))

    def fire(self, now: int, *, queued: int = 0) -> tuple[Watcher, ...]:
        """The turn has ended, or the session ends: takes out those that are to be told, in order, once.

        Nobody is told while messages are `queued`; at the end of the session that is 0. Those whose time is over
        are not among them; `expire` hands them out.
        """
        if queued:
            return ()
        fired = tuple(one for one in self._by_identity.values() if now - one.at < WATCH_TIME)
        for one in fired:
            del self._by_identity[one.identity]
        return fired

    def expire(self, now: int) -> tuple[Watcher, ...]:
        """Takes out those whose 12 hours are over, or that others replaced: to be forgotten in silence."""
        over = [one for one in self._by_identity.values() if now - one.at >= WATCH_TIME]
        for one in over:
            del self._by_identity[one.identity]
        return (*over, *self._drain_gone())

    def _drain_gone(self) -> tuple[Watcher, ...]:
        gone, self._gone = tuple(self._gone), []
        return gone


def words_pass(own: str | None, other: str | None, *, holding: bool) -> bool:
    """Whether a session's last words may go with an idle notice: each side asks this for itself (05.31).

    Args:
        own, other: the class that this session and the other one state, `bypass` or `prompting`; None or empty:
            none. Two that state nothing are not known to be of one class.
        holding: whether this session holds, or refuses, what arrives.
    """
    return bool(own) and own == other and not holding


def subscription_line(*, msg_id: str, address: str, mode: str | None) -> bytes:
    """Writes a request to be told when a session is idle; the answer names its id. Otherwise as `idle_line` (05.31)."""
    return encode_control(
        ControlFrame(action="notify_when_idle", msg_id=msg_id, from_=address, from_mode=mode or None)
    )


def idle_line(
    state: str,
    *,
    orig_msg_id: str,
    address: str | None,
    msg_id: str,
    at: int | None,
    mode: str | None = None,
    words: str = "",
) -> bytes:
    """Writes an idle notice as one line (05.31).

    Args:
        state: one of `IDLE_STATES`.
        orig_msg_id: the id of the request.
        address, msg_id: as for `status_line`.
        at: when the turn or the session ended, epoch milliseconds; None: it is not said.
        mode: the class that this session states; None: none.
        words: its last words, where `words_pass` allows them; cut at 300 characters.

    Raises ValueError for another state.
    """
    if state not in IDLE_STATES:
        raise ValueError(f"no idle notice says {state!r}")
    return encode_control(
        ControlFrame(
            action="peer_idle_notice",
            msg_id=msg_id,
            from_=address,
            from_mode=mode or None,
            orig_msg_id=orig_msg_id,
            state=state,
            finished_at=at,
            detail=_plain(words),
        )
    )


def last_words(frame: ControlFrame) -> str:
    """The last words in an idle notice, as that session's words; empty where there are none (05.24)."""
    words = _foreign(frame.detail)
    return f"Its last words: {words}" if words else ""
