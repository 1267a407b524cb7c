"""Lines between Postroom and Qwen Code: what one side says, in the words of the other (09.14).

Its published protocol, frame version 1:

    ours                                     theirs
    user frame with its envelope             user frame with bare text; name and class are fields of the frame
    peer_message_status                      delivery_status; the status words are the same
    read, peer_renamed, idle notices         nothing: they cannot be said there
    hop chain, summary, in_reply_to          nothing: they are left out
    first line `{"type":"auth",…}`           the same with its version, and never without

Pure: a line and what is known come in as arguments. It believes no claim and judges no message; a text that comes is
put into the envelope that the rest of Postroom reads, in the escaping that no text can forge.

How it fails: `decode` raises BadFrame for what is no frame, without repeating what the line holds, and returns Ignored
for a later version or a type that is unknown. What cannot be said there is a reason, a sentence's end.

What is weak: a frame without `toSessionId` is taken, as one of its sessions takes it: the token is what it had to know.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, cast

from postroom.core import envelope, wire
from postroom.core.address import uds_address, uds_path
from postroom.core.wire import AuthFrame, Content, ControlFrame, UserFrame
from postroom.errors import BadFrame, UnfitPath

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from postroom.core.wire import Frame

__all__ = ["MAX_LINE_UNITS", "decode", "say"]

VERSION: Final = 1
"""The version of a frame; a higher one is ignored."""

MAX_LINE_UNITS: Final = 1_048_575
"""UTF-16 code units of a line, newline apart: over 1 MiB its inbox drops the connection."""

MAX_WORD: Final = 64
"""Characters of a machine's word, as `core.wire` keeps of an action."""

MAX_TEXT: Final = 4096
"""Characters of a path, a name or an id; whoever shows one cuts it shorter."""

STATUSES: Final = frozenset(("held", "delivered", "denied", "refused", "expired", "misaddressed", "dropped"))
"""The words of `delivery_status`, which ours have too and mean the same by; `read` is ours alone."""

DROP_REASONS: Final = frozenset(("rate-limited", "duplicate", "queue-full"))
"""Why something is dropped there; for another reason of ours only the sentence is passed on."""

MODES: Final = frozenset(("bypass", "prompting"))
"""Classes that a sender may state (03.5)."""

NO_WORD: Final = "Qwen Code has no word for it"
TOO_LONG: Final = "it would be longer than the 1 MiB that Qwen Code takes in a line"
BAD_ID: Final = "its id has a form that Qwen Code does not take"

_MSG_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}").fullmatch


# ── out ──────────────────────────────────────────────────────────────────────────────────────────


def say(line: bytes, *, own: str, reply_token: str, session_id: str, token: str) -> bytes | str:
    """Says one line of ours there, behind the line that shows its token.

    Args:
        line: a user frame or a control frame as `core.wire` wrote it, newline included.
        own: the address of our socket there; empty: there is none, and nobody can answer.
        reply_token: what our socket there wants to be shown.
        session_id: the conversation that is meant.
        token: what its inbox wants to be shown.

    Returns both lines, or why it cannot be said.
    """
    frame = wire.decode(line.rstrip(b"\n"))
    said: dict[str, object] | str = NO_WORD
    if isinstance(frame, UserFrame):
        said = _message(frame, own, reply_token, session_id)
    elif isinstance(frame, ControlFrame):
        said = _receipt(frame, own)
    if isinstance(said, str):
        return said
    text = _dumped(said)
    if len(text.encode("utf-16-le")) // 2 > MAX_LINE_UNITS:
        return TOO_LONG
    auth = _dumped({"msgV": VERSION, "type": "auth", "token": token})
    return f"{auth}\n{text}\n".encode()


def meant(line: bytes) -> str:
    """The identity of the session that a message of ours is for; empty for any other line."""
    frame = wire.decode(line.rstrip(b"\n"))
    return (frame.session_id or "") if isinstance(frame, UserFrame) else ""


def _dumped(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _message(frame: UserFrame, own: str, reply_token: str, session_id: str) -> dict[str, object] | str:
    """A message: the text that its author wrote; what the envelope says of the sender goes into the frame."""
    if not is_msg_id(frame.msg_id):
        return BAD_ID
    claimed = wire.claims(frame)
    said: dict[str, object] = {"msgV": VERSION, "msgId": frame.msg_id, "type": "user"}
    path = uds_path(own)
    if path is not None:
        said |= {"from": path, "replyToken": reply_token}
    if claimed.name is not None:
        said["fromName"] = claimed.name
    if claimed.mode is not None:
        said["fromMode"] = claimed.mode
    message = {"role": "user", "content": claimed.text}
    return said | {"toSessionId": session_id, "priority": "next", "message": message}


def _receipt(frame: ControlFrame, own: str) -> dict[str, object] | str:
    """A receipt; any other notice has no word there."""
    status = "refused" if frame.status_detail == "refused" else frame.status
    if frame.action != "peer_message_status" or status not in STATUSES:
        return NO_WORD
    if not is_msg_id(frame.orig_msg_id) or not is_msg_id(frame.msg_id):
        return BAD_ID
    said: dict[str, object] = {"msgV": VERSION, "msgId": frame.msg_id, "type": "control"}
    said |= {"action": "delivery_status", "status": status, "origMsgId": frame.orig_msg_id}
    if (path := uds_path(own)) is not None:
        said["from"] = path
    if frame.reason:
        said["reason"] = frame.reason
    if status == "dropped":
        if frame.drop_reason in DROP_REASONS:
            said["dropReason"] = frame.drop_reason
        more = [each for each in frame.dropped_msg_ids or () if each != frame.orig_msg_id]
        if more:
            said["droppedMsgIds"] = [each for each in more if is_msg_id(each)]
    return said


# ── in ───────────────────────────────────────────────────────────────────────────────────────────


def decode(line: bytes) -> Frame:
    """Reads one line of theirs, without its newline, as a frame of ours. Raises BadFrame."""
    try:
        raw: object = json.loads(line.decode())
    except UnicodeDecodeError:
        raise BadFrame("The line is not UTF-8.") from None
    except (ValueError, RecursionError):
        raise BadFrame("The line is not JSON.") from None
    if not isinstance(raw, dict):
        raise BadFrame("The line is no object.")
    fields = cast("dict[str, Any]", raw)
    version = fields.get("msgV")
    if isinstance(version, bool) or not isinstance(version, int | float):
        raise BadFrame("The frame has no version.")
    if version > VERSION:
        return wire.TOO_NEW
    kind = fields.get("type")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    return read(fields) if read is not None else wire.UNKNOWN_TYPE


def is_msg_id(value: object) -> bool:
    """Whether it takes this as the id of a message. `all`, however it is written, is none."""
    return isinstance(value, str) and bool(_MSG_ID(value)) and value.replace("-", "").lower() != "all"


def _text(value: object, limit: int = MAX_TEXT) -> str | None:
    """A text that has a UTF-8 form and is not too long; None for anything else."""
    if not isinstance(value, str) or len(value) > limit:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None  # half a surrogate pair
    return value


def _address(path: object) -> str | None:
    """The address of a socket that a frame names; None for what cannot be one."""
    try:
        return uds_address(path) if isinstance(path, str) and path else None
    except UnfitPath:
        return None


def _auth(fields: dict[str, Any]) -> Frame:
    token = _text(fields.get("token"))
    if token is None:
        raise BadFrame("The token is no text.")
    return AuthFrame(token)


def _user(fields: dict[str, Any]) -> Frame:
    msg_id, message, meant = fields.get("msgId"), fields.get("message"), fields.get("toSessionId")
    if not is_msg_id(msg_id):
        raise BadFrame("The message has no id, or one of the wrong form.")
    said = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
    text = _text(said.get("content"), wire.MAX_LINE)
    if text is None or said.get("role") != "user":
        raise BadFrame("The message has no text.")
    if not text.strip():
        raise BadFrame("The message is blank.")
    if meant is not None and _text(meant) is None:
        raise BadFrame("The session that is meant has no id that can be one.")
    address, mode = _address(fields.get("from")), fields.get("fromMode")
    content = envelope.wire_form(
        text,
        address=address,
        name=_text(fields.get("fromName")),
        mode=mode if isinstance(mode, str) and mode in MODES else None,
    )
    return UserFrame(
        message=Content(content),
        msgV=VERSION,
        msg_id=cast("str", msg_id),
        priority="next",
        from_=address,
        session_id=meant,
        text=text if envelope.escape_body(text) != text else None,
    )


def _control(fields: dict[str, Any]) -> Frame:
    """A receipt; one of any other kind has an action that nobody here knows."""
    action = _text(fields.get("action"), MAX_WORD)
    if action is None:
        raise BadFrame("The control frame has no action.")
    if action != "delivery_status":
        return ControlFrame(action=f"qwen:{action}"[:MAX_WORD])
    about, status = fields.get("origMsgId"), _text(fields.get("status"), MAX_WORD)
    if not is_msg_id(about) or status is None:
        raise BadFrame("The receipt names no message, or no status.")
    msg_id, more = fields.get("msgId"), fields.get("droppedMsgIds")
    ids = cast("list[object]", more)[: wire.MAX_DROPPED] if isinstance(more, list) else []
    return ControlFrame(
        action="peer_message_status",
        msgV=VERSION,
        msg_id=cast("str", msg_id) if is_msg_id(msg_id) else None,
        from_=_address(fields.get("from")),
        orig_msg_id=cast("str", about),
        status=status if status in STATUSES else "",  # a later word; `read` is none of its
        reason=_text(fields.get("reason"), wire.MAX_LINE),
        drop_reason=_text(fields.get("dropReason"), MAX_WORD) if status == "dropped" else None,
        dropped_msg_ids=tuple(cast("str", each) for each in ids if is_msg_id(each)) or None,
    )


_READERS: Final[dict[str, Callable[[dict[str, Any]], Frame]]] = {
    "auth": _auth,
    "user": _user,
    "control": _control,
}
