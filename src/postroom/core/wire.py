"""Frames: what one line of the inbox socket says, and how a line is cut from a stream.

`LineReader` cuts lines within the limit of 05.14; `decode` turns a line into one of five values: `UserFrame`,
`AuthFrame`, `ControlFrame`, `AckFrame`, or `Ignored` for what a neighbour or a later version may send and
this one does not know. `claims` puts together what the sender of a user frame says of itself and its message;
`encode_…` write lines. The same frames are the bodies of HTTP events and of NATS messages (08.26).

It never checks a claim, keeps no frame, and knows neither sockets nor sessions. A field that is null is a
field that is absent. Unknown fields are ignored; of a field that is given twice the last counts.

How it fails: a line is `BadFrame` where it is not UTF-8, not JSON, not an object, nested too deep, without a
type, or where a field that is known here has the wrong type or no room for its value; its error never repeats
what the line holds. `LineReader` raises `LineTooLong`, at once and from then on always. Nothing else is
raised for whatever bytes come.

What is weak: a fragment that never ends is bounded in size here and in time by the transport.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct
from msgspec.json import Decoder, Encoder

from postroom.core.address import MAX_ADDRESS, UDS, uds_path
from postroom.core.envelope import escape_body, parse_wire
from postroom.errors import BadFrame, LineTooLong

__all__ = [
    "MAX_LINE",
    "MAX_SENT",
    "AckFrame",
    "AuthFrame",
    "Claims",
    "Content",
    "ControlFrame",
    "Frame",
    "Ignored",
    "LineReader",
    "UserFrame",
    "claims",
    "code_points",
    "decode",
    "encode_ack",
    "encode_auth",
    "encode_control",
    "encode_user",
    "is_id",
    "reply_path",
]

MAX_LINE: Final = 1_048_576
"""Characters of a line, its newline not counted; a longer one ends the connection (05.14)."""

MAX_SENT: Final = 1_000_000
"""Characters of a line that we send: less than a neighbour takes, so that none of ours ends there (01.19)."""

MEMORY: Final = "memory:"
"""How the address of a session begins that only this process can reach (`transports.memory`)."""

MAX_ID: Final = 128
"""Characters of a message id. A uuid has 36; other programs have other ids, and each is kept and shown."""

MAX_SUMMARY: Final = 200
"""Characters of a summary (01.3); a longer one is cut, being a preview of the text."""

MAX_SENT_AT: Final = 64
"""Characters of a sender's own time; a longer one is no time."""

MAX_ACTION: Final = 64
"""Characters of a control frame's action; longer ones are cut, because what is unknown is counted by name."""

MAX_DROPPED: Final = 256
"""Ids in one receipt (03.55)."""

ACTIONS: Final = frozenset(
    ("peer_message_status", "notify_when_idle", "peer_idle_notice", "peer_renamed", "rename")
)
"""The control frames that this version knows (05.24)."""

_Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID)]

# ── frames ───────────────────────────────────────────────────────────────────────────────────────


class Content(Struct, frozen=True, gc=False):
    """The `message` of a user frame: `content` is an envelope or bare text, never empty, never a list."""

    content: Annotated[str, Meta(min_length=1)]
    role: object = "user"

    def __repr__(self) -> str:
        return f"<Content of {len(self.content)} characters>"


class UserFrame(
    Struct, frozen=True, gc=False, tag_field="type", tag="user", rename={"from_": "from"}, omit_defaults=True
):
    """A message (05.30). `claims` reads it; every field is the sender's word.

    Attributes:
        message: the envelope or bare text.
        msgV: the version; absent is 1.
        msg_id: up to 128 visible ASCII characters.
        priority: `later`, or anything else, which reads as `next` (05.21).
        from_: the sender's address, not checked yet.
        session_id: the session that is meant, a guard.
        ack: the sender waits for an acknowledgement on this connection (05.22).
        summary, sent_at, in_reply_to, text: our additions.
    """

    message: Content
    msgV: int | None = None
    msg_id: _Id | None = None
    priority: object = None
    from_: str | None = None
    session_id: str | None = None
    ack: bool | None = None
    summary: str | None = None
    sent_at: str | None = None
    in_reply_to: str | None = None
    text: str | None = None

    def __repr__(self) -> str:
        return f"<UserFrame {self.msg_id} of {len(self.message.content)} characters>"


class AuthFrame(Struct, frozen=True, gc=False, tag_field="type", tag="auth"):
    """The first line of a connection: one of the session's tokens (05.20)."""

    token: str

    def __repr__(self) -> str:
        return "<AuthFrame>"


class ControlFrame(
    Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    tag_field="type",
    tag="control",
    rename={"from_": "from"},
    omit_defaults=True,
):
    """A receipt, a subscription or a piece of news; answered by nobody (05.24).

    Attributes:
        action: one of `ACTIONS`, or a word that this version does not know; then the rest may be missing.
        from_: the address of who sends it, not checked.
        orig_msg_id: the message or subscription that it is about.
        status, reason, status_detail, drop_reason, dropped_msg_ids: of `peer_message_status`.
        from_mode, session_id: of `notify_when_idle`.
        state, finished_at, detail: of `peer_idle_notice`; `finished_at` in epoch milliseconds.
        name, former: the new and the old name, of `peer_renamed` and `rename`.
    """

    action: Annotated[str, Meta(max_length=MAX_ACTION)]
    msgV: int | None = None
    msg_id: _Id | None = None
    from_: str | None = None
    orig_msg_id: str | None = None
    status: str | None = None
    reason: str | None = None
    status_detail: str | None = None
    drop_reason: str | None = None
    dropped_msg_ids: Annotated[tuple[_Id, ...], Meta(max_length=MAX_DROPPED)] | None = None
    from_mode: str | None = None
    session_id: str | None = None
    state: str | None = None
    finished_at: int | float | None = None
    detail: str | None = None
    name: str | None = None
    former: str | None = None

    def __repr__(self) -> str:
        return f"<ControlFrame {self.action!r} {self.status or self.state or ''} {self.orig_msg_id}>"


class AckFrame(Struct, frozen=True, gc=False, tag_field="type", tag="ack", omit_defaults=True):
    """The answer to a user frame that asked for one (05.22).

    Attributes:
        msg_id: the message.
        status: `queued`, `inbox_full`, `dropped`, `misaddressed` or `store_failed`.
        reason: why, in the wire's words.
    """

    msg_id: _Id
    status: str
    reason: str | None = None


class Ignored(Struct, frozen=True, gc=False):
    """A line that is none of ours to judge; `what` is the word under which it is counted (05.21)."""

    what: str


Frame = UserFrame | AuthFrame | ControlFrame | AckFrame | Ignored

UNKNOWN_TYPE: Final = Ignored("unknown-type")
TOO_NEW: Final = Ignored("too-new")


class _Head(Struct, gc=False):
    """As much of an object as says what it would be; whatever the types are."""

    type: object = None
    msgV: object = None
    action: object = None


# ── reading ──────────────────────────────────────────────────────────────────────────────────────

_decode = Decoder(UserFrame | AuthFrame | ControlFrame | AckFrame).decode
_decode_head = Decoder(_Head).decode
_TYPES: Final = frozenset(("user", "auth", "control", "ack"))
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_CLOSE: Final = "\n</cross-session-message>"
# Where the last character of a body stands; without one there, or with white space, a closer look is needed.
_LAST: Final = slice(-len(_CLOSE) - 1, -len(_CLOSE))


def decode(line: bytes) -> Frame:
    """Reads one line (05.21, 05.30).

    Args:
        line: without its newline; white space around the object is allowed, a byte order mark is not.

    Returns the frame, or `Ignored`: `unknown-type`, or `too-new` for a `msgV` above 1.

    Raises:
        BadFrame: the line is no frame; see the head of this module.
    """
    try:
        if not line.isascii():
            line.decode()  # fields that are skipped are not looked at below
        frame = _decode(line)
    except _UNREADABLE as error:
        return _second_look(line, error)
    if isinstance(frame, UserFrame):
        if frame.msgV is not None and frame.msgV > 1:
            return TOO_NEW
        if frame.msg_id is not None and not is_id(frame.msg_id):
            raise BadFrame("The message id is not of visible ASCII characters.")
        content = frame.message.content
        last = content[_LAST]
        if (last.isspace() or last == ">" or not last) and _is_blank(content):
            raise BadFrame("The message is blank.")
    elif isinstance(frame, ControlFrame) and frame.msgV is not None and frame.msgV > 1:
        return TOO_NEW
    return frame


def _second_look(line: bytes, error: Exception) -> Frame:
    """What a line that is no frame of this version is: another's, a later one, or bad."""
    head = None
    if isinstance(error, msgspec.ValidationError):  # it is JSON, only not as we know it
        try:
            head = _decode_head(line)
        except _UNREADABLE as worse:
            error = worse
    if head is not None and isinstance(head.type, str):
        if head.type not in _TYPES:
            return UNKNOWN_TYPE
        if isinstance(head.msgV, int | float) and head.msgV > 1:
            return TOO_NEW
        if head.type == "control" and isinstance(head.action, str) and head.action not in ACTIONS:
            return ControlFrame(action=head.action[:MAX_ACTION])
    if isinstance(error, UnicodeDecodeError):
        raise BadFrame("The line is not UTF-8.") from None
    if isinstance(error, RecursionError):
        raise BadFrame("The line is nested too deep.") from None
    if not isinstance(error, msgspec.ValidationError):
        raise BadFrame("The line is not JSON.") from None
    # Of what msgspec says only the place is passed on: the rest may quote what the line holds.
    place = str(error).rpartition(" - at ")[2] if " - at " in str(error) else "the object itself"
    raise BadFrame(f"A field is missing, or not as it has to be, at {place}.") from None


def is_id(text: str) -> bool:
    """Whether a text can be the id of a message: 1 to 128 visible ASCII characters."""
    return 0 < len(text) <= MAX_ID and text.isascii() and text.isprintable() and " " not in text


def _is_blank(content: str) -> bool:
    """Whether there is nothing but white space in a content, or between the tags of an envelope."""
    if not content.endswith(_CLOSE):
        return content.isspace()
    # No attribute holds a `>`, so the first one ends the opening tag, if there is one.
    body = content[content.find(">") + 1 : -len(_CLOSE)]
    return (not body or body.isspace()) and content.startswith("<cross-session-message")


# ── what a sender says ───────────────────────────────────────────────────────────────────────────


class Claims(Struct, frozen=True, gc=False):
    """What the sender of a user frame says, from envelope and frame together; nothing here is checked.

    Attributes:
        text: what its author wrote: the frame's `text` where that counts, else the body as it came.
        attested: the content was a canonical envelope; else it is bare text, and `name`, `mode`, `session`,
            `hop_chain` and `plugin` are empty (05.21).
        name: the sender's name.
        mode: `bypass`, `prompting`, or None for no class stated (03.5).
        hop_chain: tokens of the sessions that this thread passed through (03.66).
        session: the sender's session id.
        plugin: a plugin's name.
        address: where an answer would go; None: nowhere.
        address_reason: why the address that was given is none; empty when it is one or none was given.
        summary: at most 200 characters.
        sent_at: the sender's own time, as it came.
        in_reply_to: the id that it answers.
        later: it has the priority `later`; else it is `next` (05.21).
        text_ignored: there was a `text` that did not count (05.30).
    """

    text: str
    attested: bool
    name: str | None
    mode: str | None
    hop_chain: tuple[str, ...]
    session: str | None
    plugin: str | None
    address: str | None
    address_reason: str
    summary: str | None
    sent_at: str | None
    in_reply_to: str | None
    later: bool
    text_ignored: bool

    def __repr__(self) -> str:
        return f"<Claims of {self.name!r}, {len(self.text)} characters>"


@lru_cache(maxsize=1024)  # a sender has one address and many messages
def _reply_path(given: str) -> tuple[str | None, str]:
    if given.startswith(MEMORY) and is_id(given):
        return given, ""
    if not given.startswith(UDS):
        return None, f"its address does not begin with {UDS}"
    if uds_path(given) is None:
        return None, "its address holds no plain absolute path"
    return given, ""


def reply_path(given: str | None) -> tuple[str | None, str]:
    """Judges the shape of a `from`: the address or None, and the reason why a given one is none (05.30).

    `uds:` and an absolute path, what is outside `[A-Za-z0-9:_/.-]` as %XX, 300 characters at most. Whether a
    session of ours listens there is not asked here.
    """
    if not given:
        return None, ""
    if len(given) > MAX_ADDRESS:
        return None, f"its address has more than {MAX_ADDRESS} characters"
    return _reply_path(given)


def claims(frame: UserFrame) -> Claims:
    """Puts together what the sender says of itself and its message (04.15, 05.30).

    The frame's `from` is where an answer goes, the envelope's only where the frame has none. The frame's `text`
    counts where its canonical escaping gives exactly the body; else it is ignored, and said to be.
    """
    address, session, hop_chain, name, mode, plugin, text, attested = parse_wire(frame.message.content)
    text_ignored = False
    if frame.text is not None:
        if escape_body(frame.text) == text:
            text = frame.text
        else:
            text_ignored = True
    address, address_reason = reply_path(frame.from_ or address)
    summary, sent_at, in_reply_to = frame.summary, frame.sent_at, frame.in_reply_to
    if summary is not None and len(summary) > MAX_SUMMARY:
        summary = summary[: MAX_SUMMARY - 1] + "…"
    if sent_at is not None and len(sent_at) > MAX_SENT_AT:
        sent_at = None
    if in_reply_to is not None and not is_id(in_reply_to):
        in_reply_to = None
    return Claims(
        text,
        attested,
        name,
        mode,
        hop_chain,
        session,
        plugin,
        address,
        address_reason,
        summary,
        sent_at,
        in_reply_to,
        frame.priority == "later",
        text_ignored,
    )


# ── writing ──────────────────────────────────────────────────────────────────────────────────────

_encode = Encoder().encode


def encode_user(
    *,
    msg_id: str,
    content: str,
    address: str | None = None,
    session_id: str | None = None,
    priority: str = "next",
    acknowledge: bool = False,
    summary: str | None = None,
    sent_at: str | None = None,
    in_reply_to: str | None = None,
    text: str | None = None,
) -> bytes:
    """Writes a user frame as one line, its newline included, non-ASCII unescaped (05.30).

    Args:
        msg_id: the message's id, up to 128 visible ASCII characters.
        content: the envelope that `envelope.wire_form` made.
        address: this session's own `uds:` address, for `from`; None: one-way.
        session_id: the target's session id, as a guard; None: no guard.
        priority: `next` or `later`.
        acknowledge: ask for an acknowledgement; only of peers that announce `postroom_ack` (05.22).
        summary, sent_at, in_reply_to: our additions; None leaves the field out.
        text: the text, where the envelope's escaping changed it; else None.

    Raises UnicodeEncodeError, a ValueError, where a text holds a lone surrogate: no line can carry one.
    """
    frame = UserFrame(
        Content(content),
        1,
        msg_id,
        priority,
        address,
        session_id,
        acknowledge or None,
        summary,
        sent_at,
        in_reply_to,
        text,
    )
    return _encode(frame) + b"\n"


def encode_ack(msg_id: str, status: str, reason: str | None = None) -> bytes:
    """Writes an acknowledgement as one line; an empty reason is left out (05.22)."""
    return _encode(AckFrame(msg_id, status, reason or None)) + b"\n"


def encode_auth(token: str) -> bytes:
    """Writes the first line of a connection (05.20)."""
    return _encode(AuthFrame(token)) + b"\n"


def encode_control(frame: ControlFrame) -> bytes:
    """Writes a control frame as one line; `msgV` is 1 where the frame has none (05.24)."""
    return _encode(frame if frame.msgV else msgspec.structs.replace(frame, msgV=1)) + b"\n"


def readdressed(line: bytes, address: str | None) -> bytes:
    """A control line as this session would write it today: with the address that it has now (05.24).

    Args:
        line: as `encode_control` wrote it, in an earlier life of the session perhaps; any other stays as it is.
        address: this session's own.
    """
    try:
        frame = decode(line)
    except BadFrame:
        return line
    if not isinstance(frame, ControlFrame) or frame.from_ == address:
        return line
    return encode_control(msgspec.structs.replace(frame, from_=address))


# ── lines ────────────────────────────────────────────────────────────────────────────────────────

_CONTINUATIONS: Final = bytes(range(0x80, 0xC0))


def code_points(line: bytes) -> int:
    """The characters of a line of UTF-8: its bytes without those that continue a character (05.14)."""
    return len(line) if line.isascii() else len(line.translate(None, _CONTINUATIONS))


class LineReader:
    """Cuts a stream of bytes into lines, within the limit of 05.14.

    A line's end may be `\\n` or `\\r\\n`: the `\\r` stays and is white space to `decode`. Holds at most one
    unfinished line, and never more of it than the limit.

    Args:
        limit: characters of a line; the control socket's is larger.
    """

    __slots__ = ("_limit", "_pending", "_points", "too_long")

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._pending = bytearray()
        self._points = 0
        self.too_long = False
        """A line passed the limit: what came before it was handed out, nothing more will be."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Takes what was read and returns the lines that are complete now, without newline or blank ones.

        Raises:
            LineTooLong: a line, complete or not, has more characters than the limit. Whole lines before it
                in the same chunk are returned first; then `too_long` is set and the next call raises.
        """
        end = chunk.find(b"\n")
        if end == len(chunk) - 1 and 0 <= end <= self._limit and not self._pending and not self.too_long:
            line = chunk[:end]
            return [line] if line and not line.isspace() else []
        self._check([])
        lines: list[bytes] = []
        start = 0
        while end >= 0:
            if self._pending or end - start > self._limit:
                if not self._fits(chunk, start, end):
                    return self._check(lines)
                line = bytes(self._pending) + chunk[start:end]
                self._pending.clear()
                self._points = 0
            else:
                line = chunk[start:end]
            if line and not line.isspace():
                lines.append(line)
            start = end + 1
            end = chunk.find(b"\n", start)
        if start < len(chunk):
            if not self._fits(chunk, start, len(chunk)):
                return self._check(lines)
            self._pending += chunk[start:]
        return lines

    def rest(self) -> bytes:
        """Returns what came after the last newline, at the end of the stream; empty if it is blank.

        Raises:
            LineTooLong: as `feed`.
        """
        self._check([])
        rest = bytes(self._pending)
        self._pending.clear()
        self._points = 0
        return b"" if rest.isspace() else rest

    def _fits(self, chunk: bytes, start: int, end: int) -> bool:
        """Whether the pending bytes and this part are within the limit; if not, drops them for good."""
        size = len(self._pending) + end - start
        if size <= 4 * self._limit:  # UTF-8 has at most four bytes a character
            self._points += code_points(chunk[start:end])
            if self._points <= self._limit:
                return True
        self.too_long = True
        self._pending = bytearray()
        return False

    def _check(self, lines: list[bytes]) -> list[bytes]:
        """Returns whole lines, if there are any; else raises when a line was too long."""
        if self.too_long and not lines:
            raise LineTooLong(f"A line has more than {self._limit:,} characters.")
        return lines
