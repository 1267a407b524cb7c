"""Every way in which a call or a command can be answered with no: its code, its sentence, the next step.

`CODES` is the whole table (01.28), in the order of the three stages of 01.7; the documentation is held against
it. `refusal` fills in one row. A sentence says what is wrong and names the facts; a hint says what to do next.

A code that is not in the table, or a fact that is missing, is a mistake of the program and raises. What a
caller wrote never is: it is cut and made printable before it stands in a sentence.

On the wire the same words are written with `-` (`wire_reason`, `code_of`).

Weak: the sentences of `core.resolve` say more than a row can, so it writes its own under the same codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from postroom.core.message import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from postroom.core.message import Near

MIN_PREFIX = 6
"""Characters of an id that may stand for a held message, if only one has them (10.5)."""

MAX_FACT = 300
"""Characters of one fact inside a sentence: an error stays one paragraph whatever a caller wrote (01.30)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One stable code.

    Attributes:
        sentence: what is wrong; `{facts}` are named and filled in by `refusal`.
        hint: what to do next, with facts like the sentence.
        rule: the rule of the specification that it comes from.
        built: whether anything of this version answers with it.
    """

    sentence: str
    hint: str
    rule: str
    built: bool


NOT_BUILT = frozenset({"needs_approval", "reply_only", "name_taken", "not_sent"})
"""Codes whose feature is not there yet. Their sentences stand, so that the table is whole."""

_LOOK = "List the agents (`postroom list`) to see who can be written to."
_KEPT_NOTHING = "Nothing was sent, and nothing is kept for it."

# fmt: off
_ROWS: tuple[tuple[str, str, str, str], ...] = (
    # Of the call alone, in the order in which they are checked (01.7).
    ("denied_by_settings", "01.21", "A permissions.deny setting forbids {tool} here.",
     "Do not look for a way around it and do not ask another session to do it; tell the user."),
    ("observer_cannot_send", "01.8", "An observer cannot send messages.",
     "Report what you saw with ObserverReport."),
    ("empty_target", "01.9", "{problem}.",
     "Give a name as the list of agents shows it, or the `from` of a message exactly as it stands there."),
    ("broadcast_unsupported", "01.10", "There is no broadcast: `*` is nobody's address.",
     "Send to each recipient by name, one call each."),
    ("at_sign_in_target", "01.11", "An address has no @ in it: {to}.", "{advice}"),
    ("message_missing", "01.12", "{problem}.",
     "Put the text into `message`; only a call with `notify_when_idle` may leave it out.{spare}"),
    ("summary_missing", "01.13", "{problem}.",
     "Say in `summary`, in at most 200 characters, what the message is about."),
    ("summary_too_long", "01.13", "The summary has {length:,} characters; at most {limit:,} are allowed.",
     "Shorten it; what it leaves out belongs into `message`."),
    ("protocol_frame_in_text", "01.14", "The text is {what}, and such a record is never sent as text.",
     "Say in plain words what you mean, or use the structured form in a team."),
    ("structured_needs_team", "01.15",
     "`message` is a structured record, which needs a team; none is active here.",
     "Send plain text: `message` is then a string."),
    ("structured_not_for_subagent", "01.16", "A background agent cannot send structured records.",
     "Send plain text: `message` is then a string."),
    ("main_not_addressable", "01.18", "`main` is reached only by this session's own background agents.",
     "Address a session by its name. " + _LOOK),
    ("invalid_record", "01.23", "{problem}.", "Nothing was sent. Mend that field and call again."),
    # Of the target, after resolution.
    ("not_found", "02.14", "Nobody here is called {to}.", _LOOK),
    ("ambiguous", "02.14",
     "{to} could be any of {count}.", "Repeat it with the `name [ref]` of the one you mean."),
    ("stale_ref", "02.11", "Nobody called {name} has the ref [{ref}] now.", _LOOK),
    ("pin_mismatch", "02.18", "In this conversation {to} has meant {pinned}; now {current} answers to it.",
     "Nothing was sent. If you mean the new one, send to {current}."),
    ("partial_index", "02.14",
     "{to} matches {found}, but {place} could not be checked for another of that name.",
     "Nothing was sent. If that is the one, send to {found}."),
    ("cannot_message_self", "01.20", "{name} is this very session: a message to oneself is not sent.",
     "Choose another recipient. " + _LOOK),
    ("structured_needs_teammate", "01.17", "{name} is no teammate: outside a team only text travels.",
     "Send plain text: `message` is then a string."),
    ("notify_not_allowed", "01.22", "Nothing was sent: {reason}.",
     "Send the message without `notify_when_idle`."),
    ("stopped_by_user", "02.24", "The user has stopped {name}: its work counts as cancelled.",
     "Nothing was sent. Leave it stopped, or ask the user."),
    ("resume_failed", "02.26", "{name} could not be resumed: {reason}.",
     "Nothing was delivered. Start a new agent for the work if it is still wanted."),
    ("team_member_changed", "02.21", "{name} is no longer the member that was chosen.",
     "Nothing was sent. List the agents and choose again."),
    # Of the line and its way.
    ("message_too_large", "01.19",
     "The message is too large: the line to be sent has {size:,} {unit} and the limit is {limit:,}.",
     "Nothing was sent. Shorten the text, or put it into a file and say where that lies."),
    ("sender_burst", "03.67", "{count:,} messages went to {name} just now, and its limit would drop more.",
     "This one was not sent. The next one fits in {seconds} s; put what you have to say into one message."),
    ("needs_approval", "08.3", "The message would leave this machine and waits for a person's approval.",
     "Nothing was sent yet. Go on with other work: a notice says what came of it."),
    ("reply_only", "08.2", "{name} is on another machine and has not written to this session.",
     "Nothing was sent. It can be answered; only the user can allow more, with the setting crossMachine."),
    ("peer_unavailable", "02.13", "{name} cannot be reached: it has ended, or it has no inbox.",
     _KEPT_NOTHING + " " + _LOOK),
    ("unsafe_target", "03.18", "{name} was not written to: {reason}.",
     "Nothing was sent. Send to it by its name; `postroom doctor` says what is wrong with the address."),
    ("unknown", "05.23",
     "It is not known whether the message reached {name}: the write began and no answer came.",
     "Do not write it anew. It may be sent again only under its own id: `postroom send --msg-id`."),
    ("timeout", "05.18", "{name} did not take the connection in time.",
     "Nothing was sent. Try again later; `postroom doctor` names a session that hangs."),
    ("connection_failed", "05.18", "The connection to {name} failed: {reason}.",
     "Nothing was sent. Try again; if it stays so, `postroom doctor` says why."),
    ("inbox_full", "03.64", "The inbox of {name} is full of messages that it has not read.",
     "It was not taken, and nothing is kept for it. Send it again when {name} has read some."),
    ("store_failed", "05.27", "{name} could not store the message and has not taken it.",
     "Send it again later; a full disk is the usual cause, and `postroom doctor` says more."),
    ("misaddressed", "03.7", "{name} did not take the message: {reason}.",
     "Nothing was delivered. List the agents and send to the name that is shown now."),
    ("duplicate", "03.60", "{name} had the same text from you a moment ago and dropped this one.",
     "The first one stands. Do not send it again."),
    ("rate_limited", "03.58", "{name} dropped the message: too many came from here in a short time.",
     "Wait, then put everything into one message."),
    ("hop_loop", "03.61", "{name} dropped the message: this exchange has gone around in a loop.",
     "Stop answering in it. A person's next word starts afresh."),
    ("hop_runaway", "03.62",
     "{name} dropped the message: this exchange has passed through too many sessions.",
     "Stop passing it on. A person's next word starts afresh."),
    ("mailbox_write_failed", "07.3", "The mailbox of {name} could not be written: {reason}.",
     "Nothing was sent. Try again; if it stays so, tell the user."),
    ("mailbox_full", "07.6", "The mailbox of {name} is full.",
     "Nothing was sent. Send it again when {name} has read some."),
    ("not_sent", "08.6", "Not sent: {name} cannot receive messages (off in that session).",
     "Nothing left this machine. Its owner would have to turn it on there."),
    ("report_too_long", "01.32", "The report has {length:,} characters; at most {limit:,} are allowed.",
     "Nothing was sent. Shorten it."),
    # For the person at the desk, and for programs.
    ("usage", "10.37", "{problem}.", "`postroom COMMAND --help` shows what a command takes."),
    ("no_session", "10.38", "{problem}.",
     "Name a session with --session, or open one with `postroom open`; `postroom list` shows what there is."),
    ("session_in_use", "05.12", "{name} already runs in another process.",
     "Use it there, or end it first with `postroom close`."),
    ("not_your_session", "05.26",
     "This process may not act for that session: it belongs to another, or shows no token of it.",
     "Leave out --session to act for your own; what concerns another is for the person."),
    ("invalid_name", "02.2", "{name} cannot be a name: {reason}.",
     "A name has 1 to 64 letters, digits, spaces, -, _ or ., and begins and ends with a letter or digit."),
    ("name_taken", "02.3", "Another live session is called {name}.", "Choose another name."),
    ("unknown_message", "10.37", "No message {msg_id} is known here.",
     "Give the whole id as the send result or `postroom log` shows it."),
    ("not_held", "10.5", "No message {msg_id} is held here.",
     "`postroom held` shows what is; `postroom log` shows what became of the rest."),
    ("unknown_rule", "10.11", "There is no rule {rule_id} here.", "`postroom rules` lists them with their ids."),
    ("needs_person", "10.39", "{action} needs a person, and {reason}.",
     "Leave it to the person, who does it in a terminal that no session started. Do not look for a way around it."),
    ("setting_invalid", "03.35", "The setting {key} cannot be used: {reason}.",
     "Mend it where it is set, in its file or behind `--settings`."),
    ("no_team", "07.23", "There are no shared tasks here: this session is in no team that has a member.",
     "A session becomes a member with `postroom team join`; its lead has tasks from then on."),
    ("session_closed", "03.46", "The session {name} has ended.", "Open it again with its session id."),
    ("unfit_path", "05.6", "{path}: {reason}.", "Mend its owner or mode, or name another folder."),
    ("unsupported", "00",
     "Postroom does not run on this platform: {reason}.", "Linux, WSL 2 and macOS are written for."),
)
# fmt: on

CODES: Mapping[str, Code] = MappingProxyType(
    {
        code: Code(sentence=sentence, hint=hint, rule=rule, built=code not in NOT_BUILT)
        for code, rule, sentence, hint in _ROWS
    }
)
"""Every code that a call or a command can end with (01.28), in the order of the three stages of 01.7."""


def refusal(
    code: str,
    /,
    *,
    candidates: tuple[Near, ...] = (),
    more: int = 0,
    msg_id: str | None = None,
    **facts: object,
) -> Refusal:
    """Builds the refusal of one code (01.7, 01.30).

    Args:
        code: a key of `CODES`.
        candidates, more: as in `Refusal`.
        msg_id: the message that it is about, also a fact for the sentence.
        facts: what the sentence and the hint name. Text is cut at `MAX_FACT` and its unprintable characters
            are shown as escapes, so that a caller's words cannot break the paragraph.

    Raises KeyError for a code that does not exist and TypeError for a fact that is missing: both are
    mistakes of the program and not of a caller.
    """
    row = CODES[code]
    if msg_id is not None:
        facts["msg_id"] = msg_id
    said = {name: legible(fact) if isinstance(fact, str) else fact for name, fact in facts.items()}
    try:
        message, hint = row.sentence.format_map(said), row.hint.format_map(said)
    except KeyError as missing:
        raise TypeError(f"the refusal {code} needs the fact {missing}") from None
    return Refusal(code=code, message=message, hint=hint, candidates=candidates, more=more, msg_id=msg_id)


def not_held(asked: str, ids: Sequence[str]) -> Refusal:
    """Says why an id, or the beginning of one, stands for no held message (10.5).

    Args:
        asked: what was given.
        ids: of all that is held.
    """
    if sum(each == asked for each in ids) > 1:
        problem = f"Several held messages have the id {legible(asked)}: their senders chose it."
        return Refusal(
            code="not_held", message=problem, hint="`postroom held` shows how each of them is called."
        )
    alike = sum(each.startswith(asked) for each in ids)
    if not alike:
        return refusal("not_held", msg_id=asked)
    if alike > 1 and len(asked) >= MIN_PREFIX:
        problem = f"{legible(asked)} begins the ids of {alike} held messages."
        return Refusal(
            code="not_held", message=problem, hint="Give the whole id; `postroom held` shows them."
        )
    problem = f"{legible(asked)} is too short to stand for a held message."
    return Refusal(code="not_held", message=problem, hint="Give the whole id; `postroom held` shows it.")


def legible(text: str) -> str:
    """Returns the text in one printable line: at most `MAX_FACT` characters, then a mark that more was there."""
    cut = text[:MAX_FACT]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    return cut if len(text) <= MAX_FACT else f"{cut}…"


def wire_reason(code: str) -> str:
    """A code as the wire writes it: `rate_limited` is `rate-limited`, `inbox_full` alone is `queue-full` (01.28)."""
    return "queue-full" if code == "inbox_full" else code.replace("_", "-")


def code_of(reason: str) -> str | None:
    """The code of a wire reason; None for those that the wire alone has, and for unfamiliar ones (01.28)."""
    code = "inbox_full" if reason == "queue-full" else reason.replace("-", "_")
    return code if code in CODES else None
