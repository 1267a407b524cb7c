"""Whether the folders of this user can be trusted, written to, and are the ones that the others use (05.2 to 05.8).

Findings from facts; nothing is looked at here. `console.looks.folders` gathers the facts.

What is weak: sessions that keep their state in a folder that no variable of this shell names are known only by a
socket in the folder that is used from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.console.checks.finding import Finding, claimed, counted, found, several

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NEEDED_BYTES = 8 * 1024 * 1024
"""Free bytes that a session needs to open: its store's log and reserve are made at full size, 5 MiB together (05.27)."""

NEEDED_FILES = 16
"""Free inodes that a session needs to open: its folder, its files, its record and its sockets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One folder that may be chosen.

    Attributes:
        path: where it lies.
        reason: why it is not taken; empty: it passes, or could be made.
        hint: what would mend that, where the check knows.
        there: something lies at that path.
        long: a control socket's path in it would be too long.
    """

    path: str
    reason: str = ""
    hint: str = ""
    there: bool = False
    long: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The file system under a folder.

    Attributes:
        path: the folder.
        kind: its type, such as `ext4`; empty: not known.
        network: another machine may write there.
        read_only: nothing can be written.
        free_bytes, free_files: what is left; None: not told.
    """

    path: str
    kind: str = ""
    network: bool = False
    read_only: bool = False
    free_bytes: int | None = None
    free_files: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """What was seen of the folders.

    Attributes:
        given: POSTROOM_HOME names the state folder.
        state, sockets: the candidates, in their order.
        state_chosen, sockets_chosen: the one that counts; None: none does.
        sockets_fresh: none of the candidates passes, but a new folder beside the fallback can be made.
        rooms: the file systems under them, each once.
        unread: (place, reason) where the registry could not be read.
        locked: (lock, who) of the registry's locks that somebody keeps; `who` is empty where it is not known.
        claims: (file, who) of claims of a client's session that stay taken.
        names: (file, reason) of claims of names that nobody can go by.
        elsewhere: (state folder, names of the sessions that live below it) of folders that are not looked at.
        strays: (socket, what is known of its state folder) of sockets of living processes without a record here.
    """

    given: bool = False
    state: tuple[Candidate, ...] = ()
    state_chosen: str | None = None
    sockets: tuple[Candidate, ...] = ()
    sockets_chosen: str | None = None
    sockets_fresh: bool = False
    rooms: tuple[Room, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()
    locked: tuple[tuple[str, str], ...] = ()
    claims: tuple[tuple[str, str], ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    elsewhere: tuple[tuple[str, tuple[str, ...]], ...] = ()
    strays: tuple[tuple[str, str], ...] = ()


def _refused(candidates: tuple[Candidate, ...]) -> str:
    return "; ".join(f"{claimed(one.path)}: {claimed(one.reason)}" for one in candidates if one.reason)


def _hint(candidates: tuple[Candidate, ...], otherwise: str) -> str:
    return next((one.hint for one in candidates if one.hint), otherwise)


def state(facts: Folders) -> Iterator[Finding]:
    """No state folder can be used, or the first choice was passed over (05.2, 05.6, 05.7)."""
    if facts.state_chosen is None:
        if facts.given:
            what = f"The state folder that POSTROOM_HOME names cannot be used: {_refused(facts.state)}. Every command ends with it."
        else:
            reasons = _refused(facts.state) or "no home folder is known for this user"
            what = f"No state folder can be used: {reasons}. Every command ends with it."
        yield found(
            "state-unfit",
            what,
            _hint(facts.state, "Mend that, or set POSTROOM_HOME to a folder of your own."),
        )
        return
    for one in facts.state:
        if one.path == facts.state_chosen:
            return
        yield found(
            "state-skipped",
            f"The state folder {claimed(one.path)} is passed over: {claimed(one.reason)}. From here"
            f" {claimed(facts.state_chosen)} is used, and sessions that use another one are not seen.",
            one.hint or "Mend that, or set POSTROOM_HOME everywhere to the same folder.",
        )


def sockets(facts: Folders) -> Iterator[Finding]:
    """Sessions that are opened here have no inbox, or its socket lies elsewhere than usual (05.5 to 05.8)."""
    if facts.sockets_chosen is None and not facts.sockets_fresh:
        yield found(
            "sockets-unfit",
            f"No folder for sockets can be used: {_refused(facts.sockets)}. A session that is opened here has no inbox.",
            _hint(facts.sockets, "Mend that, or set XDG_RUNTIME_DIR to a folder of your own with mode 0700."),
        )
        return
    instead = facts.sockets_chosen or "a new folder beside it"
    for place, one in enumerate(facts.sockets):
        if one.path == facts.sockets_chosen:
            return
        if one.long:
            yield found(
                "sockets-long",
                f"Sockets do not go into {claimed(one.path)}: {claimed(one.reason)}. {claimed(instead)} is used.",
                "Nothing is lost by it. If it is not meant, set XDG_RUNTIME_DIR to a shorter path.",
            )
        elif (place and place + 1 == len(facts.sockets) and one.there) or len(facts.sockets) == 1:
            yield found(
                "sockets-taken",
                f"The fallback folder for sockets, {claimed(one.path)}, is passed over: {claimed(one.reason)}."
                " Sessions make a new one beside it.",
                one.hint or f"Have its owner or root remove it: `rm -r {claimed(one.path)}`.",
            )
        else:
            yield found(
                "sockets-skipped",
                f"The folder for sockets {claimed(one.path)} is passed over: {claimed(one.reason)}."
                f" {claimed(instead)} is used.",
                one.hint or "Mend that, or set XDG_RUNTIME_DIR to a folder of your own with mode 0700.",
            )


def registry(facts: Folders) -> Iterator[Finding]:
    """The registry cannot be read, stays locked, or a name leads to nobody (02.3, 02.14)."""
    for place, reason in facts.unread:
        yield found(
            "registry-unread",
            f"The registry {claimed(place)} cannot be read: {claimed(reason)}. Nobody is found.",
            "Mend its owner and mode: yours, 0700, no symlink.",
        )
    for lock, who in facts.locked:
        yield found(
            "registry-locked",
            f"The lock {claimed(lock)} is kept{f' by {who}' if who else ' by some process'}: no session can open, rename or end.",
            "If that process hangs, end it; a lock is let go of however its process ends.",
        )
    for claim, who in facts.claims:
        yield found(
            "claim-kept",
            f"The claim of a client's session, {claimed(claim)}, is kept{f' by {who}' if who else ' by some process'}: that"
            " process is opening the session and does not come to an end, and nobody else can.",
            "End that process, then start the client's MCP server or the client anew.",
        )
    for name, reason in facts.names:
        yield found(
            "name-unfit",
            f"The claim of a name, {claimed(name)}, cannot be used: {claimed(reason)}. Its session is not found by that name.",
            "Remove that file and rename the session once: `postroom rename NAME`.",
        )


def rooms(facts: Folders) -> Iterator[Finding]:
    """The disk is full or read-only, or another machine's (05.27)."""
    for room in facts.rooms:
        if room.read_only:
            yield found(
                "disk-read-only",
                f"{claimed(room.path)} lies on a file system that is mounted read-only: nothing can be stored.",
                "Mount it so that it can be written, or set POSTROOM_HOME to another folder.",
            )
        elif room.free_bytes is not None and room.free_bytes < NEEDED_BYTES:
            yield found(
                "disk-full",
                f"The file system of {claimed(room.path)} has {room.free_bytes:,} bytes left, and a session needs"
                f" {NEEDED_BYTES:,} to open: arriving messages are refused.",
                "Free some space on it.",
            )
        elif room.free_files is not None and room.free_files < NEEDED_FILES:
            yield found(
                "disk-full",
                f"The file system of {claimed(room.path)} has room for {counted(room.free_files, 'more file')}:"
                " a session cannot open.",
                "Remove some files on it.",
            )
        if room.network:
            yield found(
                "network-store",
                f"{claimed(room.path)} lies on a network file system ({claimed(room.kind)}): stores use a rollback"
                " journal, which is slower, and are as safe as its locks and syncs are.",
                "Set POSTROOM_HOME to a folder on a disk of this machine.",
            )


def others(facts: Folders) -> Iterator[Finding]:
    """Sessions live that cannot be seen from here, because they keep their records elsewhere (05.8)."""
    for path, names in facts.elsewhere:
        yield found(
            "state-elsewhere",
            f"{several(names)} live{'s' if len(names) == 1 else ''} below {claimed(path)}, which is not looked at:"
            f" from here {claimed(facts.state_chosen or 'no folder')} counts. They and the sessions here do not see"
            " each other.",
            "Give all of them the same POSTROOM_HOME, or none.",
        )
    told = {path for path, _ in facts.elsewhere}
    for path, where in facts.strays:
        if where in told:
            continue
        yield found(
            "state-elsewhere",
            f"A session listens at {claimed(path)} and has no record here"
            f"{f': its state folder is {claimed(where)}' if where else ''}. It and the sessions here do not see each other.",
            "Give all of them the same POSTROOM_HOME, or none.",
        )


CHECKS: tuple[Callable[[Folders], Iterator[Finding]], ...] = (state, sockets, registry, rooms, others)
