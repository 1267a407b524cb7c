"""What results look like: as documents for `--json`, and as lines for people.

Documents are plain dictionaries with the keys of chapter 10; `docs/json.md` lists them and a test holds the two
together. Text that came from a peer is printed with its controls and bidirectional overrides made visible
(10.37), and set in, so that none of its lines can pass for one of ours. Nothing here reads or decides anything.

The envelope is loaded by the functions that need it: an error or a list is printed without it (12.17). What is held,
and why, is shown by `verdicts`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from postroom.core.address import ref_of, shown
from postroom.core.listing import row_text
from postroom.core.scrub import visible
from postroom.core.times import iso, stamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from postroom.core.listing import Listing, Row
    from postroom.core.message import Lease, Message, Near, Notice, Origin, Receipt, Refusal, Status, Step

Document = dict[str, Any]

SPOKEN = {
    "message_missing": (
        "There is no text.",
        "Write it behind the name: postroom send TO TEXT, or `-` for standard input.",
    ),
    "summary_missing": (
        "There is no summary.",
        "Give one with --summary; without it the text's first line is taken.",
    ),
    "empty_target": (
        "The name of the recipient is empty.",
        "Write postroom send TO TEXT; `postroom list` shows names.",
    ),
}
"""What the command line says in place of the tool's words, where these name fields that no command has."""

TERMS = (
    ("`message`", "the text"),
    ("`summary`", "`--summary`"),
    ("in_reply_to", "--in-reply-to"),
    ("notify_when_idle", "--notify-when-idle"),
)
"""A field of the tool → what the command line calls it, in sentences that are written for both."""

EXIT_CODES = {
    "not_found": 3,
    "unknown_message": 3,
    "not_held": 3,
    "unknown_rule": 3,
    "task_not_found": 3,
    "ambiguous": 4,
    "usage": 2,
}
"""Exit code by error code (10.37); every other code is 1."""


def exit_code(code: str) -> int:
    """The exit code that goes with an error code."""
    return EXIT_CODES.get(code, 1)


def dumps(document: Document) -> str:
    """One document as one line of JSON, with its newline."""
    return json.dumps(document, ensure_ascii=False) + "\n"


# ── documents ────────────────────────────────────────────────────────────────────────────────────


def receipt_document(receipt: Receipt) -> Document:
    """The result of a send (01.31)."""
    document: Document = {
        "status": receipt.status,
        "msg_id": receipt.msg_id,
        "to": {"name": receipt.to.name, "ref": receipt.to.ref, "kind": receipt.to.kind},
        "note": receipt.note,
        "waiting": receipt.waiting,
        "warnings": [spoken(warning) for warning in receipt.warnings],
    }
    if receipt.pin is not None:
        document["pin"] = {"name": receipt.pin.name, "identity": receipt.pin.identity}
    if receipt.result is not None:
        document["result"] = receipt.result
    return document


def error_document(
    code: str, message: str, hint: str, near: Sequence[Near] = (), msg_id: str | None = None
) -> Document:
    """An error (10.23)."""
    error: Document = {
        "code": code,
        "message": message,
        "hint": hint,
        "candidates": [
            {"name": one.name, "ref": one.ref, "kind": one.kind, "where": one.where} for one in near
        ],
    }
    if msg_id is not None:
        error["msg_id"] = msg_id
    return {"error": error}


def origin_document(origin: Origin) -> Document:
    """Who a message is from (10.25); `address` is what an answer is sent to, null where there is none."""
    from postroom.core.envelope import shown_from

    return {
        "address": shown_from(origin),
        "name": origin.name,
        "ref": ref_of(origin.identity) if origin.verified else None,
        "kind": "session",
        "verified": origin.verified,
        "class": origin.stated_class,
    }


def message_document(message: Message) -> Document:
    """One message of an inbox (10.25)."""
    return {
        "msg_id": message.msg_id,
        "from": origin_document(message.origin),
        "summary": message.summary,
        "text": message.text,
        "in_reply_to": message.in_reply_to,
        "sent_at": message.sent_at,
        "received_at": iso(message.received_at),
        "state": message.state,
        "redelivered": message.redelivered,
        "held": message.held,
        "approved_by": message.approved_by,
    }


def notice_document(notice: Notice) -> Document:
    """One notice of an inbox."""
    return {
        "kind": notice.kind,
        "at": iso(notice.at),
        "msg_id": notice.msg_id,
        "about": notice.about,
        "detail": notice.detail,
    }


def inbox_document(messages: Iterable[Message], notices: Iterable[Notice] = ()) -> Document:
    """What `inbox` and `wait` answer (10.25)."""
    return {
        "messages": [message_document(message) for message in messages],
        "notices": [notice_document(notice) for notice in notices],
    }


def status_document(status: Status) -> Document:
    """What `status`, `rename` and `open --detach` answer (10.27, 10.30)."""
    return {
        "name": status.name,
        "ref": status.ref,
        "session_id": status.session_id,
        "program": status.program,
        "peer_address": status.peer_address,
        "class": status.permission_class,
        "mode": status.mode,
        "inbound": {"value": status.inbound, "scope": status.inbound_scope},
        "queued": status.queued,
        "held": status.held,
        "off": list(status.off),
        "counts": status.counts,
        "problems": list(status.problems),
    }


def row_document(row: Row) -> Document:
    """One row of `list` (10.24)."""
    document: Document = {
        "name": row.name,
        "aliases": list(row.aliases),
        "ref": row.ref,
        "kind": row.kind,
        "presence": row.presence,
        "state": row.state,
        "cwd": row.cwd,
        "program": row.program,
        "machine": row.machine,
        "pid": row.pid,
        "session_id": row.identity,
        "seen_at": iso(row.seen_at),
        "condition": row.condition,
        "confirms": row.confirms,
        "wakes": row.wakes,
        "warnings": list(row.warnings),
    }
    if row.type:
        document["type"] = row.type
    return document


def listing_document(answer: Listing) -> Document:
    """What `list` answers (10.24)."""
    return {
        "self": row_document(answer.own) if answer.own else None,
        "rows": [row_document(row) for row in answer.rows],
        "unchecked": [{"place": place, "reason": reason} for place, reason in answer.unchecked],
        "left_out": answer.left_out,
    }


def step_document(step: Step) -> Document:
    """One step of a trace (10.28)."""
    return {"at": stamp(step.at), "where": step.where, "state": step.state, "detail": step.detail}


def loads(text: str) -> Document:
    """Reads a document that another process of this program wrote."""
    return dict(json.loads(text))


def opened_document(status: Status, pid: int, socket: str | None) -> Document:
    """What `open --detach` answers: the status, with `pid` and `socket` (10.29)."""
    return {**status_document(status), "pid": pid, "socket": socket}


# ── for people ───────────────────────────────────────────────────────────────────────────────────


_SEPARATORS = {0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Some programs begin a new line at these two, most do not: so they are shown."""


def indented(text: str) -> str:
    """A peer's text, made visible and set in, so that none of its lines can pass for one of ours."""
    return "\n".join(f"    {line}" for line in visible(text).translate(_SEPARATORS).split("\n"))


def one_line(text: str) -> str:
    """A peer's short text on one line."""
    return visible(text).translate(_SEPARATORS).replace("\n", "\\n").replace("\t", " ")


def receipt_text(receipt: Receipt, name: str = "") -> str:
    """What `send` prints; `name` is the sending session's, for the next step."""
    lines = [
        f"{receipt.status}: {receipt.note}",
        one_line(f"id {receipt.msg_id}, to {shown(receipt.to.name, receipt.to.ref)}"),
    ]
    lines += [one_line(f"warning: {spoken(warning)}") for warning in receipt.warnings]
    if receipt.result is not None:
        lines += ["result:", indented(receipt.result)] if receipt.result else ["result: empty"]
    if receipt.waiting:
        lines.append(f"{receipt.waiting} waiting for you: `{acting_for(name)} inbox`.")
    return "\n".join(lines) + "\n"


def error_text(message: str, hint: str, near: Sequence[Near] = (), more: int = 0) -> str:
    """What stderr shows of an error, below its code."""
    lines = [f"postroom: {message}"]
    lines += [one_line(f"  {shown(one.name, one.ref)}  {one.kind}  {one.where}").rstrip() for one in near]
    if more:
        lines.append(f"  and {more} more")
    if hint:
        lines.append(f"  {hint}")
    return "\n".join(lines) + "\n"


def said_error(
    code: str,
    message: str,
    hint: str,
    near: Sequence[Near] = (),
    more: int = 0,
    msg_id: str | None = None,
    *,
    as_json: bool,
) -> tuple[str, str]:
    """What stdout and stderr get of an error (10.37).

    Its code stands alone on the first line of stderr; the document goes to stdout, or the sentences follow.
    """
    if as_json:
        return dumps(error_document(code, message, hint, near, msg_id)), f"{code}\n"
    return "", f"{code}\n{error_text(message, hint, near, more)}"


def refused(refusal: Refusal, *, as_json: bool) -> tuple[str, str]:
    """The same for a refusal, in the command line's own words where the tool's would name its fields."""
    message, hint = SPOKEN.get(refusal.code) or (spoken(refusal.message), spoken(refusal.hint))
    return said_error(
        *(refusal.code, message, hint, refusal.candidates, refusal.more, refusal.msg_id), as_json=as_json
    )


def spoken(sentence: str) -> str:
    """A sentence in the command line's words where it names fields of the tool."""
    for field, word in TERMS:
        sentence = sentence.replace(field, word)
    return sentence


def message_text(message: Message) -> str:
    """One message for a person."""
    from postroom.core.envelope import shown_from

    origin = message.origin
    who = shown_from(origin) or (origin.name if origin.verified else None)  # an own child has no address
    if who is None:  # what the name is stands before it: a name may go on as this line does
        who = f"somebody who claims to be {origin.name}" if origin.name else "somebody without a name"
    let_in = "held, approved by a person" if message.approved_by else "held, let in later"
    marks = [word for word, on in (("again", message.redelivered), (let_in, message.held)) if on]
    reply = f", answers {message.in_reply_to}" if message.in_reply_to else ""
    head = f"from {who}, {iso(message.received_at)}, id {message.msg_id}{reply}{''.join(f' [{m}]' for m in marks)}"
    return f"{one_line(head)}\n{indented(message.text)}\n"


def notice_text(notice: Notice) -> str:
    """One notice for a person."""
    from postroom.core.envelope import notice_sentence

    about = f", about {notice.msg_id}" if notice.msg_id else ""
    return one_line(f"notice ({notice.kind}{about}): {notice_sentence(notice)}") + "\n"


def acting_for(name: str) -> str:
    """The command line's first words for a session: they work from every terminal."""
    if not name:
        return "postroom"
    return f'postroom --session "{name}"' if " " in name else f"postroom --session {name}"


def inbox_text(
    messages: Sequence[Message], notices: Sequence[Notice] = (), *, taken: bool, name: str = ""
) -> str:
    """What `inbox` prints; `name` is the session's, for the next step."""
    if not messages and not notices:
        return "Nothing waits.\n"
    text = "".join(map(notice_text, notices)) + "\n".join(map(message_text, messages))
    if messages and not taken:
        text += f"\n{len(messages)} waiting; `{acting_for(name)} inbox --take` takes them.\n"
    return text


def framed_text(lease: Lease) -> str:
    """What `wait` prints: notices and messages as a model sees them, the messages under the preface (04.1)."""
    from postroom.core import envelope

    text = "".join(f"{envelope.notice_text(notice)}\n" for notice in lease.notices)
    if not lease.messages:
        return text
    # `scrub` marks the first word in a text, so that no text can pass for this line either.
    shell = '[Postroom] In a shell, SendMessage is: postroom send "FROM" "TEXT" --in-reply-to MSG-ID\n'
    return f"{text}{envelope.frame(lease.messages)}\n\n{shell}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in aligned columns, two spaces between them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows
    )


def steps_text(steps: Sequence[Step]) -> str:
    """A trace as a table, in order of time."""
    return table([(stamp(s.at), one_line(s.where), s.state, one_line(s.detail)) for s in steps])


def steps_mermaid(steps: Sequence[Step]) -> str:
    """A trace as a Mermaid sequence diagram: one lane a session, one note a step."""
    lanes = {where: f"S{number}" for number, where in enumerate(dict.fromkeys(step.where for step in steps))}
    lines = ["sequenceDiagram"]
    lines += [f"    participant {lane} as {_mermaid(where)}" for where, lane in lanes.items()]
    sent = next((s for s in steps if s.state in ("queued", "written", "unknown")), None)
    got = next((s for s in steps if s.state == "received"), None)
    if sent is not None and got is not None and sent.where != got.where:
        lines.append(f"    {lanes[sent.where]}->>{lanes[got.where]}: {_mermaid(sent.msg_id)}")
    lines += [
        f"    Note over {lanes[s.where]}: {_mermaid(f'{stamp(s.at)[11:]} {s.state} {s.detail}'.rstrip())}"
        for s in steps
    ]
    return "\n".join(lines) + "\n"


def _mermaid(text: str) -> str:
    return "".join(c if c.isalnum() or c in " .,:-_[]()/+" else f"#{ord(c)};" for c in text)


def status_text(document: Document) -> str:
    """What `status` prints."""
    inbound = document["inbound"]
    rows = [
        ("name", shown(document["name"], document["ref"])),
        ("session", document["session_id"]),
        ("program", one_line(document["program"])),
        ("peer address", document["peer_address"] or "unavailable"),
        ("class", f"{document['class']} (mode {document['mode']})"),
        ("inbound", f"{inbound['value'] or 'by class'} (set by {inbound['scope']})"),
        ("waiting", str(document["queued"])),
        (
            "held",
            str(document["held"])
            + (f"; `{acting_for(document['name'])} held` shows them" if document["held"] else ""),
        ),
    ]
    rows += [("off", f"{half}: turned off by settings") for half in document["off"]]
    rows += [("ignored", f"{what} {count}") for what, count in sorted(document["counts"].items())]
    rows += [("problem", one_line(problem)) for problem in document["problems"]]
    return table(rows)


def opened_text(document: Document) -> str:
    """What `open --detach` prints."""
    lines = [f"{shown(document['name'], document['ref'])} is open, id {document['session_id']}."]
    lines += [f"problem: {one_line(problem)}" for problem in document["problems"]]
    first = acting_for(document["name"])
    lines.append(f"Take its mail with `{first} inbox --take`; end it with `{first} close`.")
    return "\n".join(lines) + "\n"


def listing_text(answer: Listing, now: int, *, filtered: bool = False) -> str:
    """What `list` prints: the caller's own name first (01.29). `filtered`: only some rows were asked for."""
    lines = [f"This session is {shown(answer.own.name, answer.own.ref)}."] if answer.own else []
    lines += [one_line(row_text(row, now)) for row in answer.rows]
    if not answer.rows and filtered:
        lines.append("Nobody here is like that; `postroom list` shows everybody.")
    elif not answer.rows:
        lines.append("Nobody else is here. Another terminal: `postroom open --name bob`.")
    if answer.left_out:
        lines.append(
            f"{len(answer.rows)} of {len(answer.rows) + answer.left_out} shown; `--limit` shows more."
        )
    lines += [one_line(f"Could not be checked: {place} ({reason}).") for place, reason in answer.unchecked]
    return "\n".join(lines) + "\n"


def trace_text(
    msg_id: str,
    steps: Sequence[Step],
    *,
    as_json: bool,
    mermaid: bool,
    unchecked: Sequence[tuple[str, str]] = (),
) -> str:
    """What `trace` prints (10.12); `unchecked` are sessions that could not be asked, with the reason."""
    if as_json:
        return dumps(
            {
                "msg_id": msg_id,
                "steps": [step_document(step) for step in steps],
                "unchecked": [{"place": place, "reason": reason} for place, reason in unchecked],
            }
        )
    return steps_mermaid(steps) if mermaid else steps_text(steps)


def log_text(steps: Sequence[Step], *, as_json: bool) -> str:
    """What `log` prints (10.13)."""
    if as_json:
        return dumps({"rows": [{"msg_id": step.msg_id, **step_document(step)} for step in steps]})
    rows = [(stamp(s.at), s.msg_id, s.state, one_line(s.detail)) for s in steps]
    return table(rows) if rows else "Nothing found.\n"
