"""What holds, decisions, explanations and rules look like: as documents for `--json`, and as lines for people.

It goes on where `present` ends, by the same rules: what came from a peer is made visible, and set in or kept on its
line (10.37). A held text is shown to whoever decides about it and is delivered to nobody by that. Nothing here reads or
decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom import present
from postroom.core.address import ref_of, shown
from postroom.core.holds import numbered
from postroom.core.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from postroom.core.holds import Hold
    from postroom.core.message import Decided, Explanation, Origin, Rule, Status

# ── documents ────────────────────────────────────────────────────────────────────────────────────


HELD_CHARACTERS = 8_000_000
"""Of text in one answer about what is held: eight of the longest messages. A hundred of them would be more than a
command is handed at once (11.10)."""


def held_document(holds: Sequence[Hold]) -> present.Document:
    """What `held` answers (10.26). Where all texts together are too much, each is cut, and `cut` says by how much."""
    most = HELD_CHARACTERS
    if sum(len(hold.message.text) for hold in holds) > most:
        most //= len(holds)
    return {
        "held": [
            {
                "msg_id": hold.message.msg_id,
                "call": call,
                "from": present.origin_document(hold.message.origin),
                "cause": hold.cause,
                "text": hold.message.text[:most],
                "cut": max(0, len(hold.message.text) - most),
                "since": iso(hold.message.received_at),
                "expires_at": None if hold.expires_at is None else iso(hold.expires_at),
            }
            for hold, call in zip(holds, called(holds), strict=True)
        ]
    }


def decided_document(decided: Decided) -> present.Document:
    """What `approve` and `deny` answer (10.29)."""
    return {"msg_id": decided.msg_id, "state": decided.state}


def explanation_document(explanation: Explanation) -> present.Document:
    """What `explain` answers (10.29), and what was decided when the message came."""
    return {
        "outcome": explanation.outcome,
        "rung": explanation.rung,
        "scope": explanation.scope,
        "cause": explanation.cause or None,
        "then": explanation.then or None,
        "state": explanation.state or None,
    }


def rules_document(rules: Iterable[Rule]) -> present.Document:
    """What `rules` answers (10.29)."""
    return {
        "rules": [
            {
                "id": rule.id,
                "from": {"name": rule.name, "ref": ref_of(rule.identity), "identity": rule.identity},
                "since": iso(rule.since),
            }
            for rule in rules
        ]
    }


# ── for people ─────────────────────────────────────────────────────────────────────────────────────


CAUSES = {
    "explicit-setting": "a setting holds what comes in",
    "managed-setting": "the settings that are managed for this machine hold what comes in",
    "repo-setting": "a settings file of the project holds what comes in",
    "invalid-setting": "a setting cannot be used, so what comes in is held until it is mended",
    "mode-unknown": "the permission mode of this session is not known",
    "mode-mismatch": "its sender states another permission class than this session has",
    "no-mode-asserted": "its sender states no permission class, and this session never asks for permission",
    "unverified-sender": "it comes from beyond this machine without a valid signature",
}
"""Why a message is held (03.18), for the person who decides."""

OUTCOMES = {
    "accepted": "is accepted",
    "held": "is held for a person",
    "refused": "is refused",
    "duplicate": "is a repeat, and nothing happens twice",
    "throttled": "is dropped by the loop guard",
    "full": "finds the inbox full",
    "dropped": "is dropped",
}
"""What becomes of a message (03.6), behind its name."""

_PREVIEW_LENGTH = 600
_PREVIEW_LINES = 10
"""How much of a held text is shown: enough to decide by as a rule, and a long one does not hide the others."""


def sender_text(origin: Origin) -> str:
    """Who a held message is from, how sure that is, and what it states; what a name is stands before it."""
    return f"{named_sender(origin)}, which states {origin.stated_class or 'no class'}"


def named_sender(origin: Origin) -> str:
    """Who a held message is from, and how sure that is."""
    from postroom.core.envelope import shown_from

    who = shown_from(origin)
    if who is None and origin.verified:
        who = shown(origin.name or "a session", ref_of(origin.identity))
    if who is None:
        who = f"somebody who claims to be {origin.name}" if origin.name else "somebody without a name"
    sure = "verified" if origin.verified else "not verified"
    return f"{who} ({sure})"


def left_text(milliseconds: int | None) -> str:
    """How long a hold lasts, for a person."""
    if milliseconds is None:
        return "no deadline"
    seconds = max(0, milliseconds) // 1000
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [
        f"{number} {unit}" for number, unit in ((hours, "h"), (minutes, "min"), (seconds, "s")) if number
    ]
    return f"{' '.join(parts[:2]) or '0 s'} left"


def preview(text: str) -> tuple[str, int]:
    """The beginning of a text, made visible and set in, and how many of its characters that leaves out."""
    lines = text[:_PREVIEW_LENGTH].split("\n")[:_PREVIEW_LINES]
    begins = "\n".join(lines)
    return present.indented(begins), len(text) - len(begins)


def deciding(verb: str, msg_id: str, name: str) -> str:
    """The command that decides about a held message; the id is its sender's word, so a shell is told to take it as it is."""
    from shlex import quote

    return f"{present.acting_for(name)} {verb} {'-- ' if msg_id[:1] == '-' else ''}{quote(msg_id)}"


def called(holds: Sequence[Hold]) -> list[str]:
    """What `approve` and `deny` are given for each of some holds: its id, with its number where several have that id."""
    ids = [hold.message.msg_id for hold in holds]
    return [
        numbered(hold) if ids.count(msg_id) > 1 else msg_id for hold, msg_id in zip(holds, ids, strict=True)
    ]


def hold_text(hold: Hold, name: str, now: int, *, receiver: str = "", call: str = "") -> str:
    """One held message for the person who decides: sender, classes, cause, time left, preview, what to type (10.5).

    Args:
        hold: the message and why it is held.
        name: the session's, for the commands.
        now: epoch milliseconds.
        receiver: the session's own class, where it does not stand above.
        call: what the commands are given for it, where that is not its id.
    """
    message = hold.message
    begins, more = preview(message.text)
    own = f"; this session is {receiver}" if receiver else ""
    left = left_text(None if hold.expires_at is None else hold.expires_at - now)
    lines = [
        present.one_line(f"{message.msg_id}, from {sender_text(message.origin)}{own}"),
        f"  held because {CAUSES[hold.cause]} ({hold.cause}, decided by {hold.scope})",
        f"  since {iso(message.received_at)}, {left}",
        begins,
    ]
    if more:
        lines.append(
            f"  … and {more:,} characters more: `{present.acting_for(name)} held --json` has all of it"
        )
    call = call or message.msg_id
    lines += [f"  {deciding('approve', call, name)}", f"  {deciding('deny', call, name)}"]
    return "\n".join(lines) + "\n"


def held_text(holds: Sequence[Hold], status: Status, now: int) -> str:
    """What `held` prints (10.5): each with its sender, the class of both sides, the cause, the time left, a preview."""
    if not holds:
        return "Nothing is held.\n"
    head = (
        f"{len(holds)} held by {shown(status.name, status.ref)}, whose class is {status.permission_class} (mode"
        f" {present.one_line(status.mode)}). A person decides; until then nothing of it is delivered.\n"
    )
    return head + "".join(
        f"\n{hold_text(hold, status.name, now, call=call)}"
        for hold, call in zip(holds, called(holds), strict=True)
    )


def decided_text(decided: Decided, hold: Hold | None, *, always: bool, more: int = 0, above: str = "") -> str:
    """What `approve` and `deny` print.

    Args:
        decided: what was decided.
        hold: what was decided about, where that is known.
        always: its sender is always accepted from now on.
        more: how many more of it were let in by that.
        above: the setting that decides before such a rule; empty: none.
    """
    of = f", from {sender_text(hold.message.origin).partition(', which')[0]}" if hold else ""
    if decided.state == "denied":
        told = hold is not None and hold.message.origin.reply_path
        end = f"It is dropped, and its sender {'is told' if told else 'cannot be told'}."
    else:
        end = "It is in the inbox."
    text = f"{decided.state}: {decided.msg_id}{of}. {end}"
    if always:
        text += f" {more} more from it came in with it." if more else ""
        text += " From now on its sender is accepted; `rules` shows that and how to end it."
        text += f" But crossSessionInbound is {above}, which is asked first." if above else ""
    return present.one_line(text) + "\n"


def explanation_text(subject: str, explanation: Explanation) -> str:
    """What `explain` prints: what becomes of it, which rung and scope decide, why (10.10).

    Args:
        subject: the message, as a sentence begins.
        explanation: the session's.
    """
    from postroom.core.inbound import RUNGS

    outcome = OUTCOMES.get(explanation.outcome, explanation.outcome)
    why = f" ({explanation.cause})" if explanation.cause else ""
    rung = next((sentence for word, sentence in RUNGS.items() if word == explanation.rung), "")
    decides = f"  decided by the rung `{explanation.rung}`, scope {explanation.scope}. {rung}".rstrip()
    if explanation.state in ("", "held"):
        lines = [f"{subject} {outcome}{why}, as things are now.", decides]
        if explanation.then:
            lines.append(f"  when it came: {explanation.then}")
    else:
        lines = [f"{subject} is {explanation.state}.", f"  when it came: {explanation.then}"]
        if explanation.rung:
            lines += [f"One like it {outcome}{why}, as things are now.", decides]
    return "\n".join(map(present.one_line, lines)) + "\n"


def rules_text(rules: Sequence[Rule], name: str, *, alone: bool = True) -> str:
    """What `rules` prints; `alone`: nothing was changed before."""
    if not rules:
        return f"No sender is {'always' if alone else 'now always'} accepted.\n"
    rows = [
        (rule.id, present.one_line(shown(rule.name, ref_of(rule.identity))), f"since {iso(rule.since)}")
        for rule in rules
    ]
    return present.table(rows) + f"Always accepted; `{present.acting_for(name)} rules --revoke ID` ends it.\n"


def revoked_text(rule: Rule) -> str:
    """What `rules --revoke` prints first."""
    return (
        present.one_line(f"{shown(rule.name, ref_of(rule.identity))} is no longer accepted by rule.") + "\n"
    )
