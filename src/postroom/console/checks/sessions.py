"""Whether every session is listed, answers, and has a store that works (05.3, 05.11, 05.20, 05.26, 05.27).

Findings from facts; nothing is looked at here. `console.looks.sessions` gathers the facts.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from postroom.console.checks.finding import Finding, claimed, counted, found, several
from postroom.core.keys import line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Why = Literal["", "silent", "deaf", "unfit", "ended", "late"]
"""Why a session did not answer; empty where it did."""

Left = Literal["unfit", "newer", "foreign", "unjudged"]
"""What is the matter with a record that is not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A session that lives.

    Attributes:
        id, name, pid, version, program, kind, cwd: as its record says.
        inbox: the path of its socket; empty: it has none.
        unreachable: why that socket cannot be used from here; empty: it can.
        listens: somebody takes connections there.
        mount: its mount namespace, where that is known to be another than this one.
        client: (pid, start) of the process that runs its agent, if one does.
        why, code, reason: why it could not be asked, as in `looks.answers.Answer`.
        token: why the token that commands show cannot be had; empty: it can.
        status: what it answered to `doors`; None where it did not.
    """

    id: str
    name: str
    pid: int = 0
    version: str = ""
    program: str = "postroom"
    kind: str = ""
    cwd: str = ""
    inbox: str = ""
    unreachable: str = ""
    listens: bool = True
    mount: str = ""
    client: tuple[int, str] | None = None
    why: Why = ""
    code: str = ""
    reason: str = ""
    token: str = ""
    status: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def called(self) -> str:
        """Its name in a sentence."""
        return claimed(self.name)

    @property
    def named(self) -> str:
        """What stands behind `--session` in a command."""
        return self.name if self.name.replace("-", "").replace("_", "").isalnum() else self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A session's folder, living or not.

    Attributes:
        id, name: of the session.
        path: its store.
        live: whether it lives.
        unfit: why its files must not be trusted.
        unread: why the store cannot be read.
        newer: the store's version, where that is newer than ours; else 0.
        aside: names of corrupt stores that were set aside.
    """

    id: str
    name: str
    path: str
    live: bool = False
    unfit: str = ""
    unread: str = ""
    newer: int = 0
    aside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """What was seen of all sessions.

    Attributes:
        version: of this command; `store_version`: the newest store that it knows.
        live: those that live.
        left: (file, what is the matter, reason) of records that are not listed.
        stale: how many records of sessions that were killed are still there.
        unlisted: those that live and have no record.
        kept: (id, name, pid that is gone, pids that keep the lock) of locks that forked children keep.
        stores: the folders in which something is the matter.
        folders: how many folders were looked at.
    """

    version: str = ""
    store_version: int = 0
    live: tuple[Live, ...] = ()
    left: tuple[tuple[str, Left, str], ...] = ()
    stale: int = 0
    unlisted: tuple[tuple[str, str], ...] = ()
    kept: tuple[tuple[str, str, int, tuple[int, ...]], ...] = ()
    stores: tuple[Stored, ...] = ()
    folders: int = 0


_REOPEN = (
    "End its process ({pid}) with SIGTERM, then bring it back with its mail: `postroom open --resume {id}`."
)


def _reopen(session: Live) -> str:
    return _REOPEN.format(pid=session.pid, id=session.id)


_KILLED = ("sessions that were killed are", "a session that was killed is")
"""Of several, of one."""


def records(facts: Sessions) -> Iterator[Finding]:
    """Records that are not listed, and why (05.10, 05.11, 05.29)."""
    rows: dict[Left, tuple[str, str, str]] = {
        "unfit": (
            "record-unfit",
            "The record {file} is passed over: {reason}. If its session lives, nobody finds it.",
            "Mend its owner and mode (yours, 0600), or remove it and open its session again with --resume.",
        ),
        "newer": (
            "record-newer",
            "The record {file} is passed over: {reason}. Its session is not seen from here.",
            "Use the newer Postroom for this command too.",
        ),
        "foreign": (
            "record-foreign",
            "The record {file} is passed over: {reason}.",
            "If no program of yours writes there, remove the file.",
        ),
        "unjudged": (
            "record-unjudged",
            "The record {file} is passed over: {reason}.",
            "If its session has ended, `postroom open --resume ID` brings it back; ID stands in the record.",
        ),
    }
    for file, what, reason in facts.left:
        kind, sentence, mend = rows[what]
        yield found(kind, sentence.format(file=claimed(file), reason=claimed(reason)), mend)
    if facts.stale:
        yield found(
            "record-stale",
            f"{counted(facts.stale, 'record')} of {_KILLED[facts.stale == 1]} still there.",
            "The next `postroom list` removes them; `postroom open --resume ID` brings such a session back.",
        )
    for session_id, name in facts.unlisted:
        yield found(
            "session-unlisted",
            f"{claimed(name)} runs and its record is gone: nobody finds it.",
            f"End its process with SIGTERM, then bring it back with its mail: `postroom open --resume {session_id}`.",
        )


def inboxes(facts: Sessions) -> Iterator[Finding]:
    """Sessions that are listed and take no messages (05.6, 05.11; a record whose socket was never bound)."""
    for each in facts.live:
        if not each.inbox and not each.unreachable:
            yield found(
                "session-no-inbox",
                f"{each.called} is listed and has no inbox: it takes no messages.",
                f"See which folder for sockets is in the way, above or in its `status`. {_reopen(each)}",
            )
        elif each.unreachable:
            yield found(
                "session-unreachable",
                f"{each.called} is listed and its socket cannot be used: {claimed(each.unreachable)}.",
                _reopen(each),
            )
        elif not each.listens:
            yield found(
                "session-deaf",
                f"{each.called} lives and nobody takes connections at its inbox, {claimed(each.inbox)}.",
                _reopen(each),
            )


def answers(facts: Sessions) -> Iterator[Finding]:
    """Sessions that do not answer on their control socket (05.26)."""
    kept_out: list[str] = []
    for each in facts.live:
        if not each.inbox or each.unreachable:
            continue
        if each.token:
            yield found(
                "session-unasked",
                f"No command reaches {each.called}: {claimed(each.token)}.",
                f"Mend that file's owner and mode (yours, 0600). Else: {_reopen(each)}",
            )
        elif each.why in ("silent", "ended"):
            how = (
                "takes connections and does not answer"
                if each.why == "silent"
                else "closes without an answer"
            )
            yield found(
                "session-silent",
                f"{each.called} (process {each.pid}) {how}: it hangs or was stopped, and what is sent to it times out.",
                f"Let it go on (`kill -CONT {each.pid}`). Else end it with SIGKILL, then: `postroom open --resume"
                f" {each.id}`.",
            )
        elif each.why == "deaf" and each.listens:
            yield found(
                "session-deaf",
                f"{each.called} lives and nobody takes commands for it"
                f"{f' ({claimed(each.reason)})' if each.reason else ''}: it can be written to, and not asked.",
                _reopen(each),
            )
        elif each.why == "unfit":
            yield found(
                "session-unreachable",
                f"The control socket of {each.called} cannot be used: {claimed(each.reason)}.",
                _reopen(each),
            )
        elif each.code == "not_your_session":
            kept_out.append(each.name)
    if kept_out:
        yield found(
            "session-not-yours",
            f"{several(kept_out)} {'was' if len(kept_out) == 1 else 'were'} seen from outside only: this command runs"
            " inside another session, or its process cannot be told from one that does.",
            "Run it in a terminal of your own to look into them too.",
        )


def versions(facts: Sessions) -> Iterator[Finding]:
    """Sessions of several versions (05.11)."""
    others: dict[str, list[str]] = defaultdict(list)
    for each in facts.live:
        if each.version != facts.version:
            others[each.version].append(each.name)
    for version, names in sorted(others.items()):
        yield found(
            "session-version",
            f"{several(names)} {'runs' if len(names) == 1 else 'run'} Postroom {claimed(version) or 'of an unknown version'},"
            f" and this command is {facts.version}.",
            "Close them and open them again with --resume, so that all are of one version.",
        )


def places(facts: Sessions) -> Iterator[Finding]:
    """Sessions in another mount namespace, which may see other files under the same paths (05.8)."""
    for each in facts.live:
        if each.mount:
            yield found(
                "session-elsewhere",
                f"{each.called} runs in another mount namespace ({claimed(each.mount)}): paths may mean other files there.",
                "Open it outside of that namespace, or run this command inside it.",
            )


def locks(facts: Sessions) -> Iterator[Finding]:
    """Locks that a forked child keeps after its session has died (05.11)."""
    for session_id, name, pid, children in facts.kept:
        by = (
            f"process {several([str(child) for child in children])}" if children else "a child that it forked"
        )
        yield found(
            "lock-kept",
            f"{claimed(name)} is dead (its process, {pid}, is gone), and {by} still keeps its lock.",
            f"It does not stop `postroom open --resume {session_id}`."
            + (f" To be rid of it: `kill {' '.join(map(str, children))}`." if children else ""),
        )


def stores(facts: Sessions) -> Iterator[Finding]:
    """Stores that cannot be used, or were set aside (05.27)."""
    for each in facts.stores:
        name = claimed(each.name)
        if each.unfit:
            yield found(
                "store-unfit",
                f"The store of {name} must not be trusted: {claimed(each.unfit)}. The session cannot open.",
                "Mend its owner and mode: yours, 0600 (0700 for the folder), no symlink.",
            )
        if each.unread:
            yield found(
                "store-unread",
                f"The store of {name}, {claimed(each.path)}, cannot be read: {claimed(each.unread)}.",
                "Open the session again with --resume: what is corrupt is then set aside, and a new store begun."
                if not each.live
                else "Close the session at once and open it again with --resume: what it takes now may be lost.",
            )
        if each.newer:
            yield found(
                "store-newer",
                f"The store of {name} is of version {each.newer}, and this Postroom knows {facts.store_version}: it is"
                " left alone, and cannot be opened here.",
                "Use the newer Postroom.",
            )
        if each.aside:
            yield found(
                "store-set-aside",
                f"The store of {name} was corrupt and was set aside as {several(each.aside)}: unread messages may be in it.",
                "Look into it with `sqlite3 FILE .recover`, or remove it once it is of no use.",
            )


_KNOWN_PROBLEMS = (
    ("was passed over:", "folders or records, said above"),
    ("no inbox:", "session-no-inbox"),
    ("was set aside as", "store-set-aside"),
    ("The disk is full:", "disk-full"),
    ("lies on a network file system", "network-store"),
    ("never asks for permission and nobody can be asked here", "nobody-asked"),
)
"""Words of a session's problems → the finding that says the same, with its mend."""

_SOURCE = 300
"""Characters of a path in a sentence of `core.settings`."""

_TROUBLES: Mapping[str, str] = {
    "store-failed": "its store could not be written",
    "no-descriptor": "its process had no descriptors left to accept with",
    "too-many": "more than 64 connections were there at once",
    "foreign-user": "another user tried to connect",
}
"""Words of a session's counts that mean lost or refused messages → what happened."""


def problems(facts: Sessions, files: Sequence[str] = ()) -> Iterator[Finding]:
    """What sessions themselves say is wrong, as far as no other finding says it (10.27).

    Args:
        facts: the sessions.
        files: the settings files about which other findings say everything.
    """
    told = tuple(f"{line(file, _SOURCE)}: " for file in files)
    said: dict[str, list[str]] = defaultdict(list)
    for each in facts.live:
        for problem in (each.status or {}).get("problems", ()):
            if not problem.startswith(told) and not any(words in problem for words, _ in _KNOWN_PROBLEMS):
                said[problem].append(each.name)
    for problem, names in said.items():
        yield found(
            "session-problem",
            f"{several(names)} {'says' if len(names) == 1 else 'say'}: {claimed(problem)}",
            "Mend what the sentence names; the session sees it by itself, or when it is opened again with --resume.",
        )
    for each in facts.live:
        counts = (each.status or {}).get("counts", {})
        told = [f"{what} ({counts[word]:,} times)" for word, what in _TROUBLES.items() if counts.get(word)]
        if told:
            yield found(
                "session-trouble",
                f"Since {each.called} was opened: {'; '.join(told)}. What was refused then, its senders were told.",
                f"`postroom --session {each.named} log` shows what happened around it.",
            )


CHECKS: tuple[Callable[[Sessions], Iterator[Finding]], ...] = (
    records,
    inboxes,
    answers,
    versions,
    places,
    locks,
    stores,
)
