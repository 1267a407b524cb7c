"""PORT: another program's sessions on this machine, and how one of ours is shown to them (05.28, 09.13, 09.14).

A *neighbour* is a program that has messaging of its own: its sessions lie in a folder of its own and speak frames
of its own. Each file under `neighbours` keeps this promise for one of them: where its records lie, what its fields
mean, how a line of ours is said in its words and one of its lines in ours.

It translates and reads; it decides nothing and never opens a conversation. Who is meant is decided by
`core.resolve`, what may come in by `core.inbound`; sockets are served by `crossing`. A record of another program is
never changed and never removed, only those that this program wrote and that are provably dead (05.10).

How an implementation fails: what cannot be read is skipped with its reason (`Look.skipped`), never raised; a line
that is no frame of that program is `BadFrame`; a record that cannot be published is `UnfitPath` or `StoreFailed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from postroom.core.wire import Frame
    from postroom.state.record import Record

__all__ = ["PROBE_SECONDS", "Found", "Look", "Neighbour", "Outgoing"]

PROBE_SECONDS = 0.25
"""A session whose socket takes no connection within this time is not there (05.11)."""


class Found(NamedTuple):
    """One session of a neighbour, as its record and its process tell (05.28). Everything in a record is a claim.

    Attributes:
        program: the neighbour's name, such as `claude-code`.
        identity: `<program>:<pid>:<start>`: clearing a conversation changes its id, not the peer.
        name: its name there, the address that people use.
        session_ids: the id of its conversation, current first, then those that the record still names.
        former: names that it had, latest first.
        cwd: its working directory.
        presence: `interactive`, `headless`, `bg` or `external`.
        state: `idle`, `busy` or `waiting`.
        started_at, seen_at: epoch milliseconds; 0: not told.
        version: of the program.
        pid, start: its process as this side can check it; pid 0 where it is of another pid namespace.
        path: its socket; empty where it has none that may be written to.
        token: what it wants to be shown first; empty for none.
        tells_idle: it can be asked to say when it is idle.
        receipts: it tells what became of a message.
        chains: it sends on the hop chain of what it answers (03.66).
        condition: why it cannot be written to, or what changes a send; empty for neither.
    """

    program: str
    identity: str
    name: str
    session_ids: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    cwd: str = ""
    presence: str = "external"
    state: str = "idle"
    started_at: int = 0
    seen_at: int = 0
    version: str = ""
    pid: int = 0
    start: str = ""
    path: str = ""
    token: str = ""
    tells_idle: bool = False
    receipts: bool = True
    chains: bool = False
    condition: str = ""

    def __repr__(self) -> str:
        """One line, without the token."""
        return f"<Found {self.name!r} {self.identity} {self.state}{', ' if self.condition else ''}{self.condition}>"


class Look(NamedTuple):
    """What one look at a neighbour's folder came to.

    Attributes:
        found: the sessions whose process runs, or of which nothing else can be known from here.
        skipped: (file, reason) of every record that was passed over.
        unfit: those of them that a person can mend, such as a loose mode: shown as problems (05.6).
        unchecked: (place, reason) of what could not be looked at.
        ended: sessions whose record is still there and whose process is gone.
    """

    found: tuple[Found, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    unfit: tuple[tuple[str, str], ...] = ()
    unchecked: tuple[tuple[str, str], ...] = ()
    ended: tuple[Found, ...] = ()


class Outgoing(NamedTuple):
    """A line of ours in a neighbour's words.

    Attributes:
        line: what is written, one or more lines, each with its newline.
        token: shown first by `transport.send` as `{"type":"auth","token":…}`; None for none. A neighbour whose
            first line looks otherwise puts that line into `line` and leaves this None.
    """

    line: bytes
    token: str | None = None


class Neighbour(Protocol):
    """One program with sessions of its own. Made by its module's `neighbour(environ, folder)`.

    Attributes:
        program: its name in settings and lists, such as `claude-code`.
        title: how people call it, such as `Claude Code`.
        folder: where its records lie.
        needs_token: it refuses whoever shows no token, so a session of ours must have a key file or field there.
        token_bytes: random bytes of a token that its readers take, twice as many hex digits.
    """

    program: str
    title: str
    folder: str
    needs_token: bool
    token_bytes: int

    def look(self, *, sweep: bool = True) -> Look:
        """Reads the records; those that have not changed since the last look cost a stat each. Never raises.

        Args:
            sweep: a record that this program published (`publish`) and whose process is provably gone may be removed.
        """
        ...

    def mark(self) -> object:
        """A value that differs once a record came or went; one stat (12.33)."""
        ...

    def probe(self, found: Found) -> bool:
        """Whether its process still runs and its socket takes a connection within PROBE_SECONDS (05.11).

        Nothing is written; the path is checked before it is connected to (05.6).
        """
        ...

    def near(self, path: str) -> bool:
        """Whether a socket's path lies where this program's sockets lie, so that its words are spoken there."""
        ...

    def leave(self, line: bytes, own: str, target: Found) -> Outgoing | str:
        """Says one line of ours in its words.

        Args:
            line: as `core.wire` wrote it, newline included: a user frame or a control frame.
            own: the address (`uds:…`) of this session's socket in its folder; empty: there is none, and the
                message goes out without a way back.
            target: to whom; one that is only known by its path has no name and no token.

        Returns what is to be written, or the reason why it cannot be said there, as a sentence's end.
        """
        ...

    def answers_with(self, own: str, token: str) -> None:
        """Says with which token a socket of ours among theirs is answered, where no record tells them.

        Args:
            own: the address of that socket.
            token: what it wants to be shown.
        """
        ...

    def decode(self, line: bytes, own: str) -> Frame:
        """Reads one line that arrived on this session's socket there as a frame of `core.wire`.

        Args:
            line: without its newline.
            own: the address of that socket.

        An `AuthFrame` is the first line of its connection; what is none of ours to judge is `Ignored`. Raises
        BadFrame for what is no frame.
        """
        ...

    def socket_path(self, pid: int) -> str:
        """Where a session of this process would listen in its folder; the folder is made where it is missing.

        Raises UnfitPath where no folder there can be trusted.
        """
        ...

    def publish(self, record: Record, path: str, token: str) -> None:
        """Writes this session's record there, and its token where others look for it; again after each change.

        Args:
            record: the session, with the name and the status (`record.status`) that it has now.
            path: its socket there, which listens already.
            token: what others must or may show.

        Raises UnfitPath or StoreFailed.
        """
        ...

    def withdraw(self, record: Record, path: str) -> None:
        """Removes record, token and socket of this session there; safe in a signal handler. Never raises."""
        ...

    def sweep_own(self) -> None:
        """Removes what this program published there and whose process is provably gone (05.10). Never raises."""
        ...
