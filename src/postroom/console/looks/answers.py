"""Asks every live session a few things at once over their control sockets, and waits for none longer than two seconds.

One connection a question. Whatever a session does, hangs, lies or dies, the others are asked all the same, and the
whole takes `ASK_SECONDS` for each `_AT_ONCE` of them, up to `_ALL_SECONDS`. It takes nothing and changes nothing: only
verbs that show are asked.

How it fails: an `Answer` says why there is none; nothing is raised.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from postroom import ask
from postroom.errors import UnfitPath
from postroom.state import files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from postroom.console.checks.sessions import Why

ASK_SECONDS = 2.0
"""How long one session may take: it answers in milliseconds, and one that hangs must not hide the rest."""

_ALL_SECONDS = 20.0
"""How long all of them may take: a person waits."""

_AT_ONCE = 200
"""Connections at once: under the number of descriptors that a process has."""

_MOST_BYTES = 4_194_304
"""Bytes of one answer; a status has some kilobytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One thing to ask: where, with what token, and what."""

    path: str
    token: str = field(repr=False)
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of it.

    Attributes:
        document: what was answered; None where nothing was, or nothing that is a JSON object.
        why: empty where there is a document; else `silent` (connected and no answer in time), `deaf` (nobody
            listens), `unfit` (the socket must not be used), `ended` (closed without an answer), `late` (too many
            others hang).
        code: of the error that was answered in its place, such as `not_your_session`.
        reason: for `unfit`: what is wrong with it.
    """

    document: dict[str, Any] | None = None
    why: Why = ""
    code: str = ""
    reason: str = ""


def ask_all(questions: Sequence[Question]) -> list[Answer]:
    """Asks all of them; returns the answers in the same order."""
    end = time.monotonic() + _ALL_SECONDS
    found: list[Answer] = []
    for first in range(0, len(questions), _AT_ONCE):
        batch = questions[first : first + _AT_ONCE]
        if time.monotonic() > end:
            found += [Answer(why="late") for _ in batch]
        else:
            found += _ask_some(batch)
    return found


@dataclass(slots=True, eq=False)
class _Talk:
    """One question under way."""

    place: int
    line: socket.socket
    rest: bytes
    heard: bytearray = field(default_factory=bytearray)
    answer: Answer | None = None


def _ask_some(questions: Sequence[Question]) -> list[Answer]:
    answers: list[Answer] = [Answer(why="silent") for _ in questions]
    with selectors.DefaultSelector() as selector:
        talks: list[_Talk] = []
        for place, question in enumerate(questions):
            talk = _begun(place, question)
            if isinstance(talk, Answer):
                answers[place] = talk
            else:
                talks.append(talk)
                selector.register(talk.line, selectors.EVENT_READ | selectors.EVENT_WRITE, talk)
        end = time.monotonic() + ASK_SECONDS
        open_talks = len(talks)
        while open_talks and (left := end - time.monotonic()) > 0:
            for key, events in selector.select(left):
                talk = cast("_Talk", key.data)
                _step(talk, events)
                if talk.answer is not None:
                    answers[talk.place] = talk.answer
                    selector.unregister(talk.line)
                    open_talks -= 1
                elif not talk.rest:
                    selector.modify(talk.line, selectors.EVENT_READ, talk)
        for talk in talks:
            talk.line.close()
    return answers


def _begun(place: int, question: Question) -> _Talk | Answer:
    """Connects, or says why not."""
    try:
        files.check_file(question.path, socket=True)
    except FileNotFoundError:
        return Answer(why="deaf", reason="nothing lies there")
    except UnfitPath as error:
        return Answer(why="unfit", reason=error.reason)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.setblocking(False)
        line.connect(question.path)
        if ask.SO_PEERCRED:
            peer = line.getsockopt(socket.SOL_SOCKET, ask.SO_PEERCRED, 12)
            if int.from_bytes(peer[4:8], sys.byteorder) != os.geteuid():
                line.close()
                return Answer(why="unfit", reason="another user listens there")
        return _Talk(place, line, ask.compose(question.token, list(question.argv), None))
    except BlockingIOError:
        line.close()
        return Answer(why="silent")  # so many wait there already that no more fit
    except (OSError, UnicodeError) as error:
        line.close()
        return Answer(why="deaf", reason=getattr(error, "strerror", "") or "")


def _step(talk: _Talk, events: int) -> None:
    """Writes or reads what can be written or read now; sets the answer where it is whole."""
    try:
        if events & selectors.EVENT_WRITE and talk.rest:
            talk.rest = talk.rest[talk.line.send(talk.rest) :]
        if events & selectors.EVENT_READ:
            data = talk.line.recv(65536)
            talk.heard += data
            talk.answer = _whole(bytes(talk.heard), ended=not data)
    except BlockingIOError:
        pass
    except OSError:
        talk.answer = _whole(bytes(talk.heard), ended=True)


def _whole(heard: bytes, *, ended: bool) -> Answer | None:
    """The answer in what was heard, once its last frame is there; frames as `ask` describes them."""
    out = b""
    for kind, body in _frames(heard):
        out += body
        if kind == b"done":
            return _answer(out)
    if ended or len(heard) > _MOST_BYTES:
        return Answer(why="ended")
    return None


def _frames(heard: bytes) -> Iterable[tuple[bytes, bytes]]:
    """The whole frames: (kind, what stdout gets)."""
    while b"\n" in heard:
        head, _, heard = heard.partition(b"\n")
        words = head.split()
        if len(words) != 4 or not (words[2].isdigit() and words[3].isdigit()):
            return
        size, errors = int(words[2]), int(words[3])
        if len(heard) < size + errors:
            return
        yield words[0], heard[:size]
        heard = heard[size + errors :]


def _answer(out: bytes) -> Answer:
    try:
        document: object = json.loads(out)
    except (ValueError, RecursionError):
        return Answer(why="ended")
    if not isinstance(document, dict):
        return Answer(why="ended")
    fields = cast("dict[str, Any]", document)
    error = fields.get("error")
    if isinstance(error, dict):
        return Answer(code=str(cast("dict[str, Any]", error).get("code", "error")))
    return Answer(document=fields)
