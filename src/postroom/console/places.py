"""Where a command finds sessions: the state folder, which session is meant, live ones to ask, ended ones to read.

For commands that the short way (`ask`) did not settle. It reads and asks; it changes nothing but what `list` sweeps.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from postroom import ask
from postroom.core.address import ref_of
from postroom.core.times import iso, stamped
from postroom.errors import NoSession, NotYourSession, PostroomError, UnfitPath
from postroom.state import files, places, processes
from postroom.state.roster import Roster
from postroom.state.tenure import read_client_token, read_opener

if TYPE_CHECKING:
    from collections.abc import Generator

    from postroom.core.message import Step
    from postroom.directory import Directory
    from postroom.state.journal import Reader


ENDING_SECONDS = 5.0
"""How long `close` waits for the session to be gone; that takes a commit and a few files."""

_ENDING_PAUSE = 0.01
"""Between two looks at it."""


@dataclass(frozen=True, slots=True)
class Meant:
    """A session that a command acts for, and how it is asked."""

    session_id: str
    control_path: str
    token: str


DECIDING = frozenset({"held", "approve", "deny"})
"""Commands about what is held, for which it is said where something is."""

ORDER = {state: place for place, state in enumerate(("received", "accepted", "queued", "unknown", "leased"))}
"""What comes first where two sessions have a step in the same millisecond."""


def roster() -> Roster:
    """The roster of this user's state folder. Raises UnfitPath where there is none that can be trusted."""
    return Roster(places.needed_state_folder(os.environ)[0])


def directory() -> Directory:
    """Who can be written to, seen by nobody in particular; neighbours cost nothing where there are none (12.17)."""
    from postroom import neighbours
    from postroom.state.directory import Directory

    book = roster()
    found = Directory(book)
    if not neighbours.there(os.environ):
        return found
    from postroom.neighbourhood import Neighbourhood

    return Neighbourhood(found, os.environ, book.sessions_at)


def meant_session(named: str | None) -> Meant | None:
    """Which session is meant (10.38): the one named, else POSTROOM_SESSION, else an ancestor's.

    An agent inside a session shows its own token, whichever session is meant: any other refuses it.

    Returns None when none is. Raises NoSession for one that is named and not there.
    """
    book = roster()
    wanted = named_session(named)
    session_id = book.meant(wanted, processes.ancestry(os.getppid()))
    if session_id is None:
        return None
    if not book.lives(session_id, doubtful=True):
        raise not_running(session_id, wanted)
    token, control_path = credentials(book.folder(session_id), session_id, wanted)
    own = os.environ.get("POSTROOM_TOKEN", "")
    return Meant(session_id, control_path, own if own.startswith(ask.INSIDE) else token)


def refuse_left_over(named: str | None) -> None:
    """Refuses whoever shows the token of an agent or observer, and means nobody who could know it (05.26).

    Where its program has ended, such a process is nobody: it does not become an outsider, nor is it told how to take that
    program's session over. A token that is none of an agent's is not judged here, nor is one that a session can be asked of.

    Args:
        named: what `--session` named, if it did.

    Raises NotYourSession.
    """
    if not os.environ.get("POSTROOM_TOKEN", "").startswith(ask.INSIDE):
        return
    environ = {os.fsencode(key): os.fsencode(value) for key, value in os.environ.items()}
    if answers(named, environ):
        return
    # Not by its ancestors: another session's program may have started this one's.
    bare = {key: environ[key] for key in (b"POSTROOM_SOCKET", b"POSTROOM_TOKEN") if key in environ}
    if answers(None, bare) or (b"POSTROOM_SESSION" in environ and answers(None, environ)):
        raise NotYourSession("An agent acts for no session but its own program's.", "Leave out --session.")
    raise NotYourSession("The agent's token that this process shows is nobody's any more.", ask.PROGRAM_ENDED)


def answers(named: str | None, environ: dict[bytes, bytes]) -> bool:
    """Whether the session that is meant lets itself be connected to."""
    with contextlib.suppress(ask.Unanswered, UnicodeError):
        if (found := ask.locate(named, environ)) is not None:
            ask.dial(found[0]).close()
            return True
    return False


def named_session(given: str | None) -> str | None:
    """The name or id that `--session` or else POSTROOM_SESSION gives; NoSession for an empty `--session`."""
    if given == "":
        raise NoSession("`--session` names no session.", "`postroom list` shows who is there.")
    return given or os.environ.get("POSTROOM_SESSION")


def credentials(folder: str, session_id: str, named: str | None) -> tuple[str, str]:
    """The token and the control socket of a session that runs.

    Raises UnfitPath with the reason where one of the files must not be trusted, NoSession where it has none.
    """
    token = os.path.join(folder, "client.token")
    try:
        files.check_file(token)
        found = read_client_token(folder)
        if found is None:
            raise UnfitPath(token, "it does not say where the session is reached", "Open the session anew.")
        files.check_file(found[1], socket=True)
    except FileNotFoundError:
        raise unreachable(session_id, named) from None
    return found


def unreachable(session_id: str, named: str | None) -> NoSession:
    """What is said of a session that runs and has no control socket: no command reaches it (05.6)."""
    skipped = "; ".join(f"{path}: {reason}" for path, reason in places.socket_folder(os.environ).skipped)
    why = f" What stands in the way of sockets: {skipped}." if skipped else ""
    return NoSession(
        f"The session {named or session_id} is just ending, or runs without an inbox: it cannot be asked.{why}",
        "If it goes on, mend that, end its process with SIGTERM, and open it again with --resume.",
    )


def not_running(session_id: str, named: str | None) -> NoSession:
    """What is said of a session that is known and does not run."""
    ended = roster().ended(session_id)
    when = f" It ended at {iso(ended[1])}." if ended else ""
    return NoSession(
        f"The session {named or session_id} is not running.{when}",
        f"Bring it back with its mail: `postroom open --resume {session_id} --detach`.",
    )


def until_ended(session_id: str) -> bool:
    """Waits until a session that was told to end has let go of everything; False where it has not in time."""
    book = roster()
    end = time.monotonic() + ENDING_SECONDS
    while book.lives(session_id):
        if time.monotonic() > end:
            return False
        time.sleep(_ENDING_PAUSE)
    return True


def none_meant(verb: str) -> NoSession:
    """What is said when a command needs a session and none is meant."""
    return NoSession(
        f"`{verb}` acts for a session, and none is meant here.",
        (held_where() if verb in DECIDING else "")
        + "Name one with --session, or run it inside `postroom open -- COMMAND`. `postroom list` shows who is there.",
    )


def held_where() -> str:
    """Which of the sessions that run hold how much, as a sentence; empty where none does.

    Those that do not answer are left out.
    """
    book = roster()
    found: list[str] = []
    for record in book.scan().live:
        with contextlib.suppress(ask.Unanswered, PostroomError, ValueError, KeyError):
            known = read_client_token(book.folder(record.session_id))
            if known is not None:
                status = json.loads(ask.answer_of(known[1], known[0], ["status", "--json"]))
                if status["held"]:
                    found.append(f"{record.name} holds {status['held']}")
    return f"Now {', '.join(sorted(found))}. " if found else ""


def ended_session(named: str | None) -> str | None:
    """The id of a session that is named, is known and has ended."""
    wanted = named_session(named)
    book = roster()
    session_id = book.meant(wanted, ()) if wanted else None
    if session_id is None or book.lives(session_id):
        return None
    opener = read_opener(book.folder(session_id))
    from postroom.door import refused_remains

    if refusal := refused_remains(book.sessions_at, processes.ancestry(os.getppid()), session_id, opener):
        raise NotYourSession(refusal.message, refusal.hint)
    return session_id


def status_of_unreachable(named: str | None) -> dict[str, Any] | None:
    """What the record says of a session that runs without sockets, for `status` (05.6); None for any other."""
    book = roster()
    session_id = book.meant(named_session(named), processes.ancestry(os.getppid()))
    record = next((each for each in book.scan().live if each.session_id == session_id), None)
    if session_id is None or record is None or record.messaging_socket_path is not None:
        return None
    skipped = places.socket_folder(os.environ).skipped
    problems = (
        "This session has no inbox: no folder for its socket can be trusted.",
        *(f"{path} was passed over: {reason}." for path, reason in skipped),
    )
    from postroom import present
    from postroom.core.message import Status

    status = Status(
        name=record.name,
        ref=ref_of(session_id),
        session_id=session_id,
        program=record.entrypoint,
        peer_address=None,
        problems=problems,
    )
    return present.status_document(status)


def steps_everywhere(msg_id: str) -> tuple[list[Step], list[tuple[str, str]]]:
    """The steps that any session of this user has of a message: live ones are asked, ended ones read (10.12).

    Returns the steps in order of time, and (session, reason) of those that could not be looked at.
    """
    book = roster()
    found: list[Step] = []
    unchecked: list[tuple[str, str]] = []
    for session_id in book.session_ids():
        lives = book.lives(session_id)
        try:
            found += steps_asked(book, session_id, msg_id) if lives else steps_read(session_id, msg_id)
        except ask.Unanswered:
            unchecked.append((book.names.known(session_id).name or session_id, "it does not answer"))
        except PostroomError as error:
            if lives or os.path.exists(os.path.join(book.folder(session_id), "store.db")):
                unchecked.append((book.names.known(session_id).name or session_id, error.message))
    return sorted(found, key=lambda step: (step.at, ORDER.get(step.state, len(ORDER)))), unchecked


def steps_asked(book: Roster, session_id: str, msg_id: str) -> list[Step]:
    """Asks a live session over its control socket."""
    credentials = read_client_token(book.folder(session_id))
    if credentials is None:
        return []
    out = ask.answer_of(credentials[1], credentials[0], ["trace", msg_id, "--json"])
    from postroom.core.message import Step

    document = json.loads(out)
    return [
        Step(
            msg_id=msg_id,
            at=stamped(step["at"]),
            where=step["where"],
            state=step["state"],
            detail=step["detail"],
        )
        for step in document.get("steps", [])
    ]


def steps_read(session_id: str, msg_id: str) -> list[Step]:
    """Reads the store of a session that has ended."""
    with reader(session_id) as journal:
        return journal.steps(msg_id)


def denies_listing() -> bool:
    """Whether a setting denies ListAgents here, to a person's own command line too (01.21, 03.33)."""
    from postroom.state import scopes

    try:
        folder = os.getcwd()
    except OSError:
        folder = "/"
    sources = scopes.sources_of(folder, os.environ, scopes.MANAGED, None)
    if not any(os.path.lexists(source.path) for source in sources):
        return False
    from postroom.core.contract import is_denied
    from postroom.state.config import Config

    return is_denied("ListAgents", Config(cwd=folder, environ=os.environ).settings.denied)


@contextlib.contextmanager
def reader(session_id: str) -> Generator[Reader]:
    """Opens the store of a session that has ended, read-only."""
    from postroom.state.journal import Reader

    book = roster()
    journal = Reader.open(book.folder(session_id), session_name=book.names.known(session_id).name or None)
    try:
        yield journal
    finally:
        journal.close()
