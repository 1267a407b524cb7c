"""Who may speak on a session's control socket, who is a person, and the two lines with which a command begins.

Only what shows a token of this session, or is its own child, is heard; a process that belongs to another session
is refused, whatever it shows (05.26). An agent or an observer inside the session has a token of its own, and whoever
shows it is that one and nobody else (06.14). What needs a person is refused, token or not, to a process that any session
started and to one without a terminal (10.39). It decides and reads; it answers nobody (`control` does).

How it fails: a first line that shows no token admits nobody by itself; a request that `ask` would not write is
BadFrame. Nothing else is raised for whatever bytes come. Where nothing is known of a process it is no person.

Weak: any program of this user can read the client token, and can make itself a terminal and leave its family. So
this stops an agent that runs the command in its shell, and not a hostile program. An agent's process that lays its own token
aside, and runs below the session's process, is taken for the main conversation's. Where one process of a client holds
several conversations, as Codex's does, their commands look alike: the agent of one can read another's inbox.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hmac import compare_digest
from typing import TYPE_CHECKING, TypeGuard, cast

from postroom.ask import INSIDE
from postroom.core import contract
from postroom.errors import BadFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from postroom.core.message import Refusal
    from postroom.transport import Evidence

MAX_REQUEST = 33_554_432
"""Characters of one request: what `ask` hands over of standard input, each as an escape of six, and the arguments."""


@dataclass(frozen=True, slots=True)
class Door:
    """What decides who may speak on the control socket.

    Attributes:
        client_token: lies in the session's folder, for this user's own commands.
        child_token: exported to what the session started, as POSTROOM_TOKEN.
        process: (pid, start) of the session's own process.
        registered: the ids of the sessions whose process, or whose client, is (pid, start).
        opened_by: the session whose process opened this one; it may do all but approve, deny and settings.
    """

    client_token: str
    child_token: str
    process: tuple[int, str]
    registered: Callable[[int, str], Sequence[str]]
    opened_by: str | None = None


LEFT_OVER = (
    "It shows the token of an agent that nobody here knows: the program that ran this agent has ended, or is another."
    " Let that program start the agent anew, and leave out --session."
)
"""The next step of what shows an agent's or observer's token that is none of this session's (06.14)."""

FREE = frozenset({"list", "peers"})
"""Verbs for which it does not matter whom a process belongs to: listing is free (05.26)."""


def refused_entry(
    door: Door, session_id: str, token: str, evidence: Evidence, *, free: bool = False, inside: bool = False
) -> Refusal | None:
    """Judges whether a connection may use the verbs (05.26); None admits it.

    The rungs, first that answers wins:
        1. the token of an agent or observer that is none of this session's refuses, whoever shows it: a process that
           was an agent's is not taken for the main conversation's.
        2. the nearest ancestor that is a registered session, or its client, is whom the process belongs to:
           this session admits, any other but the one that opened this session refuses, unless the verb is `free`.
        3. one of this session's tokens admits, an agent's or observer's too.
        4. everything else is refused.

    Args:
        door, session_id: of the session that is asked.
        token: what it showed.
        evidence: what the kernel says of the other end.
        free: the verb is free.
        inside: the token is that of an agent or an observer of this session.
    """
    if token.startswith(INSIDE) and not inside:
        return replace(contract.refusal("not_your_session"), hint=LEFT_OVER)
    for pid, start in evidence.ancestry:
        sessions = door.registered(pid, start)
        if (pid, start) == door.process or session_id in sessions:
            return None
        if sessions:
            if door.opened_by not in sessions and not free:
                return contract.refusal("not_your_session")
            break
    if inside or (token and (same(token, door.client_token) or same(token, door.child_token))):
        return None
    return contract.refusal("not_your_session")


NOBODY_KNOWN = "nothing is known of the process that asks: it runs in another pid namespace, or has ended"
STARTED_BY_SESSION = "this process was started by a session"
NO_TERMINAL = "this process has no terminal"
"""Why a process is not taken for a person's (10.39); each goes on a sentence."""


def refused_person(door: Door, evidence: Evidence, tty: int, action: str) -> Refusal | None:
    """Judges whether a connection is a person's, where one is needed (10.39, 05.26); None takes it for one.

    The rungs, first that answers wins:
        1. nothing is known of the process → refused.
        2. it is, or descends from, the process or the client of any session, this one and the one that opened it
           included → refused.
        3. it has no controlling terminal → refused.
        4. it is a person's.

    Args:
        door: of the session that is asked.
        evidence: what the kernel says of the other end.
        tty: the device number of its controlling terminal, as this process read it; 0 for none.
        action: what was asked for, as a sentence begins: `Approving a held message`.
    """
    if not (evidence.pid and evidence.start and evidence.ancestry):
        reason = NOBODY_KNOWN
    elif any(each == door.process or door.registered(*each) for each in evidence.ancestry):
        reason = STARTED_BY_SESSION
    elif not tty:
        reason = NO_TERMINAL
    else:
        return None
    return contract.refusal("needs_person", action=action, reason=reason)


def is_inside(door: Door, session_id: str, token: str, evidence: Evidence) -> bool:
    """Whether a connection comes from inside the session: its own child, or whoever shows the child token (05.25).

    The nearest ancestor that is a session, or its client, is whom a process belongs to; only one that belongs to
    none is known by its token.
    """
    for pid, start in evidence.ancestry:
        sessions = door.registered(pid, start)
        if (pid, start) == door.process or session_id in sessions:
            return True
        if sessions:
            return False
    return bool(token) and same(token, door.child_token)


def refused_remains(
    registered: Callable[[int, str], Sequence[str]],
    ancestry: Iterable[tuple[int, str]],
    session_id: str,
    opener: str | None,
) -> Refusal | None:
    """Judges whether a process may deal with what a session left that has ended (05.26, 11.3); None admits it.

    The nearest ancestor that is a session, or its client, is whom the process belongs to. A process that belongs to
    none is a person's.

    Args:
        registered: as in `Door`.
        ancestry: (pid, start) of the process's ancestors, nearest first.
        session_id: the session that has ended.
        opener: the session whose process opened that one; it is excepted.
    """
    for pid, start in ancestry:
        owners = registered(pid, start)
        if owners:
            mine = session_id in owners or opener in owners
            return None if mine else contract.refusal("not_your_session")
    return None


def shown_token(line: bytes) -> str:
    """The token of a first line; empty for anything that is not one, which admits nobody."""
    try:
        first = json.loads(line)
        token = first["token"] if first["type"] == "auth" else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return token if isinstance(token, str) else ""


def request_of(line: bytes) -> tuple[list[str], str | int | None]:
    """Reads a request line: the command with its arguments, and what came on standard input.

    The latter is a text, the size of one that was too large to be handed over, or None. Raises BadFrame for
    anything that `ask` does not write.
    """
    try:
        match json.loads(line):
            case {"argv": [str(), *_] as words, "stdin": stdin}:
                argv = [word for word in cast("list[object]", words) if isinstance(word, str)]
                if len(argv) == len(words) and (stdin is None or isinstance(stdin, str) or _is_size(stdin)):
                    return argv, stdin
            case _:
                pass
    except (ValueError, RecursionError):
        pass
    raise BadFrame("The request is not understood.")


def is_free(line: bytes) -> bool:
    """Whether a request line asks for one of the FREE verbs."""
    try:
        return request_of(line)[0][0] in FREE
    except BadFrame:
        return False


def _is_size(stdin: object) -> TypeGuard[int]:
    """Whether it is the size of a text that was too large to be handed over."""
    return isinstance(stdin, int) and contract.too_large(stdin) is not None


def same(one: str, other: str) -> bool:
    """Compares two secrets in a time that does not depend on where they differ."""
    return compare_digest(one.encode(errors="replace"), other.encode(errors="replace"))
