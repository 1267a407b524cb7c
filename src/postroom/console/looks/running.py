"""Looks at the processes of the programs that run agents, for `console.checks.clients`.

A process counts where it is this user's and has the same home folder. Those of one client that started each other
directly are one client: a launcher and what it launched, a window and the background server that it began. A server
that holds the conversations of several windows counts for each window with the same configuration, and is itself no
client that somebody waits for.

What is weak: which window of a shared server has which session cannot be told, so one that has none is not seen
beside one that has some.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.console.checks.clients import SWITCHES, Running
from postroom.console.looks.programs import version_of
from postroom.state import belongings, processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from postroom.client import Client as Fact
    from postroom.console.checks.sessions import Live

_MOST_PROCESSES = 20_000

_FOLDERS: Mapping[str, tuple[str, str]] = {
    "claude-code": ("CLAUDE_CONFIG_DIR", ".claude"),
    "codex": ("CODEX_HOME", ".codex"),
    "gemini-cli": ("GEMINI_CLI_HOME", ""),
    "qwen-code": ("QWEN_HOME", ".qwen"),
}
"""Client → the variable that moves all that is its own, and where that lies below the home folder without it."""

_SERVER = "app-server"
"""The word of a command line that makes a process a server for windows, in a client with threads."""

_KEEPER = "daemon"
"""What stands behind that word where the process only looks after such a server, and runs no agent."""

_STEPS = 32
"""Parents of one client in a row: no launcher launches so often, and a loop of pids that were used again ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One process of a client: when it started, whose child it is, what it was started with."""

    pid: int
    start: str
    parent: int
    server: bool
    folder: str
    variables: Mapping[str, str]


def folder_of(client: str, environ: Mapping[str, str]) -> str:
    """Where a client keeps what is its own; empty where no variable moves that, or no home folder is known."""
    variable, below = _FOLDERS.get(client, ("", ""))
    home = environ.get("HOME", "")
    named = environ.get(variable, "") if variable else ""
    if not variable or not (named or home):
        return ""
    return os.path.realpath(named or os.path.join(home, below))


def variable_of(client: str) -> str:
    """The variable that moves a client's folder; empty where none does."""
    return _FOLDERS.get(client, ("", ""))[0]


def look(
    environ: Mapping[str, str], facts: Sequence[Fact], live: Sequence[Live], sessions: str
) -> dict[str, tuple[Running, ...]]:
    """The clients that run, by name. Never raises for what a process holds.

    Args:
        environ: its home folder is the one that counts, and its folders are ours.
        facts: the clients.
        live: the sessions that live.
        sessions: the folder of the records, which tells whose conversation is which session.
    """
    likely = list(_likely(facts))
    if not likely:
        return {}
    from postroom.lineage import is_client

    found: dict[str, tuple[Running, ...]] = {}
    for fact in facts:
        mine = [pid for pid, one in likely if one is fact and is_client(fact, pid)]
        seen = {
            one.pid: one for pid in mine if (one := _seen(fact, pid, environ.get("HOME", ""))) is not None
        }
        if seen:
            found[fact.name] = tuple(_clients(fact, seen, environ, live, sessions))
    return found


def _likely(facts: Sequence[Fact]) -> Iterable[tuple[int, Fact]]:
    """Processes of this user in whose command line or program a client is named."""
    words = [(fact, tuple(os.fsencode(program) for program in fact.programs)) for fact in facts]
    try:
        pids = sorted(int(name) for name in os.listdir(processes.PROC) if name.isdigit())[:_MOST_PROCESSES]
    except OSError:
        return
    own = os.geteuid()
    for pid in pids:
        if told := _told(pid, own):
            yield from ((pid, fact) for fact, names in words if any(name in told for name in names))


def _told(pid: int, uid: int) -> bytes:
    """The command line and the program of a process of this user; nothing for another's."""
    try:
        if os.stat(f"{processes.PROC}/{pid}").st_uid != uid:
            return b""
        with open(f"{processes.PROC}/{pid}/cmdline", "rb") as file:
            return file.read(65_536) + os.fsencode(processes.executable_of(pid))
    except OSError:
        return b""


def _seen(fact: Fact, pid: int, home: str) -> _Seen | None:
    """One process of a client; None where it has another home folder, runs no agent, or has gone."""
    process = processes.look(pid)
    command = processes.command_of(pid)
    behind = command[command.index(_SERVER) + 1 :] if fact.threads and _SERVER in command else None
    if process is None or process.state in processes.GONE or (behind and behind[0] == _KEEPER):
        return None
    switches = [name for owner, name, _ in SWITCHES if owner == fact.name]
    variables = processes.environment_of(pid, ("HOME", variable_of(fact.name), *switches))
    if variables.get("HOME", "") != home:
        return None
    return _Seen(
        pid=pid,
        start=process.start,
        parent=process.parent,
        server=behind is not None,
        folder=folder_of(fact.name, variables),
        variables=variables,
    )


def _clients(
    fact: Fact, seen: Mapping[int, _Seen], environ: Mapping[str, str], live: Sequence[Live], sessions: str
) -> Iterable[Running]:
    """The processes of one client, put together."""
    families: dict[int, list[_Seen]] = {}
    for one in seen.values():
        families.setdefault(_first(one, seen), []).append(one)
    servers = [one for one in seen.values() if one.server]
    ours = folder_of(fact.name, environ)
    uptime, ticks = _uptime(), os.sysconf("SC_CLK_TCK")
    begun = _begun(fact, seen, sessions)
    for pid, family in families.items():
        first = seen[pid]
        shared = [one for one in servers if one.folder == first.folder]
        holders = {(one.pid, one.start) for one in (*family, *shared)}
        theirs = [one for one in live if one.client in holders]
        started = int(first.start) / ticks if first.start.isdecimal() else uptime
        yield Running(
            pid=pid,
            seconds=max(0.0, uptime - started),
            sessions=tuple(one.name for one in theirs),
            quiet=tuple(one.name for one in theirs if fact.threads and one.id not in begun),
            background=first.server,
            elsewhere=first.folder if first.folder != ours else "",
            switches=tuple(
                name
                for owner, name, _ in SWITCHES
                if owner == fact.name and is_on(first.variables.get(name, ""))
            ),
            version=version_of(processes.executable_of(pid)),
        )


def _first(one: _Seen, seen: Mapping[int, _Seen]) -> int:
    """The process of the same client with which it began."""
    for _ in range(_STEPS):
        if one.parent not in seen:
            break
        one = seen[one.parent]
    return one.pid


def _begun(fact: Fact, seen: Iterable[int], sessions: str) -> set[str]:
    """The sessions whose thread has had a turn: its process holds the file open into which it writes turns down."""
    if not fact.threads:
        return set()
    files = (os.path.basename(path) for pid in seen for path in processes.open_files(pid))
    threads = {name.removesuffix(".jsonl")[-_THREAD:] for name in files if name.startswith("rollout-")}
    found = (belongings.talk_session(sessions, fact.name, thread) for thread in threads)
    return {session for session in found if session is not None}


_THREAD = 36
"""Characters of the id of a thread, which ends the name of that file."""


def _uptime() -> float:
    """Seconds since the boot, by the clock that starts of processes are told in."""
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return 0.0


def is_on(value: str) -> bool:
    """Whether a variable switches something on, as programs mostly read it."""
    return value.lower() not in ("", "0", "false", "no", "off")
