"""Facts about processes: who started when, whose child it is, on which boot and in which pid namespace.

A process is known by its pid and its start together, because pids are used again. On Linux the facts come
from `/proc`, one read each; on macOS from `ps` (written for, not tested).

It decides nothing and remembers nothing but whether `/proc` can be used. It never signals a process; asking
whether one exists (`kill` with signal 0) does nothing to it.

How it fails: what cannot be known is None, 0 or an empty text, never an exception. Without `/proc`, or with
one that shows another pid namespace than ours, nothing is known of any process but whether it exists.

What is weak: two processes of one pid that started in the same clock tick (10 ms) look alike. A process that
leaves its family (its parent exits, and init adopts it) has no ancestors to show any more.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROC = "/proc"
"""Where Linux shows its processes."""

MACHINE_ID = "/etc/machine-id"
"""Names the installation; part of the pid domain, as neighbours write it."""

ANCESTORS = 32
"""Steps up from a process that are looked at: a shell in an editor in a terminal is about ten (05.25)."""

STAT_BYTES = 4096
"""More than any stat line has (about 350 bytes; the kernel cuts the command's name at 64)."""

FIELDS = 20
"""Fields of a stat line after the command's name that are needed: the last is the start, field 22 of all."""

GONE = ("Z", "X", "x")
"""States of a process that runs no more: its descriptors and locks are released, its parent has not looked."""

_MACOS = sys.platform == "darwin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process as it was when it was looked at.

    Attributes:
        parent: its parent's pid; 0 where it has none in our pid namespace.
        start: when it started: clock ticks since the boot on Linux, a date in UTC on macOS.
        tty: device number of its controlling terminal; 0 for none.
        state: the kernel's letter for what it does.
        foreground: the process group in front at that terminal; -1 for none, 0 where it cannot be seen.
    """

    parent: int
    start: str
    tty: int
    state: str
    foreground: int = 0


def parse_stat(line: bytes) -> Process | None:
    """Reads a line of `/proc/<pid>/stat`; None for anything else.

    The command's name stands in parentheses and may hold any byte, spaces and parentheses among them: what
    counts begins after the last closing one.
    """
    fields = line[line.rfind(b")") + 1 :].split(None, FIELDS)
    try:
        state, parent, tty, start = fields[0], int(fields[1]), int(fields[4]), fields[19]
        foreground = int(fields[5])
    except (IndexError, ValueError):
        return None
    if not (start.isdigit() and state.isalpha()):
        return None
    return Process(parent=parent, start=start.decode(), tty=tty, state=state.decode(), foreground=foreground)


def parse_ps(line: str) -> Process | None:
    """Reads what `ps -o ppid=,state=,tty=,lstart=` prints for one process on macOS; None for anything else."""
    fields = line.split(None, 3)
    if len(fields) < 4 or not fields[0].isdecimal():
        return None
    parent, state, terminal, start = fields
    try:
        tty = 0 if terminal.startswith("?") else os.stat(f"/dev/{terminal}").st_rdev
    except (OSError, ValueError):
        tty = 0
    return Process(parent=int(parent), start=start.strip(), tty=tty, state=state[0])


_proc_looked_at: tuple[str, int, bool] = ("", 0, False)


def _proc_is_ours() -> bool:
    """Whether `/proc` is there and shows the pid namespace that this process lives in.

    A container may show the host's: then every number there means another process.
    """
    global _proc_looked_at
    folder, pid, ours = _proc_looked_at
    if folder != PROC or pid != os.getpid():
        try:
            ours = os.readlink(f"{PROC}/self") == str(os.getpid())
        except OSError:
            ours = False
        _proc_looked_at = (PROC, os.getpid(), ours)
    return ours


def _read(path: str) -> bytes:
    """The beginning of a small file that the kernel makes; empty where there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, STAT_BYTES)
    except OSError:
        return b""  # the process ended between the two calls
    finally:
        os.close(fd)


def _printed_by(*command: str) -> str:
    """What a command of macOS prints; empty where it failed."""
    import subprocess

    environment = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def look(pid: int) -> Process | None:
    """Looks at one process: one read of its stat.

    Args:
        pid: its number; 0 or less is nobody (another pid namespace, 05.19).

    Returns None when it is gone or cannot be looked at. A zombie is still there; its `state` tells.
    """
    if pid <= 0:
        return None
    if _MACOS:
        return parse_ps(_printed_by("ps", "-o", "ppid=,state=,tty=,lstart=", "-p", str(pid)))
    return parse_stat(_read(f"{PROC}/{pid}/stat")) if _proc_is_ours() else None


def start_of(pid: int) -> str | None:
    """Returns when a process started (field 22 of its stat, 05.29), or None when it is gone or hidden."""
    process = look(pid)
    return process.start if process else None


def began_at(start: str) -> float | None:
    """When a process of this boot began, by the clock: epoch seconds; None where its start cannot be told as a time.

    Args:
        start: as `start_of` returns it.
    """
    if not start.isdigit() or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    since_boot = int(start) / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot


def parent_of(pid: int) -> tuple[int, str] | None:
    """Returns (pid, start) of a process's parent; None when either is gone, or there is none here."""
    line = ancestry(pid, 1)
    return line[1] if len(line) > 1 else None


def controlling_tty(pid: int) -> int:
    """Returns the device number of a process's controlling terminal (field 7); 0 for none or unknown (10.39)."""
    process = look(pid)
    return process.tty if process else 0


def exists(pid: int) -> bool:
    """Says whether any process has this pid; cheaper than a look, and blind to pids that were used again."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # another user's
    return True


def alive(pid: int, start: str) -> bool | None:
    """Says whether this very process still runs (05.11).

    Args:
        pid: its number in our pid namespace.
        start: when it started, as `start_of` gives it; empty where that was not known.

    Returns True or False; None where a process of that pid exists and nothing tells whether it is this one.
    A zombie does not run.
    """
    process = look(pid)
    if process is None:
        return None if exists(pid) else False
    if process.state in GONE:
        return False
    return process.start == start if start else None


def _upwards(pid: int, steps: int) -> Iterator[tuple[int, str]]:
    """A process and its ancestors, each as it is come to."""
    process = look(pid)
    youngest = ""
    while process is not None:
        # A parent never started after its child: a later start is a pid that was used again on the way.
        if youngest and not _MACOS and int(process.start) > int(youngest):
            return
        yield pid, process.start
        if not steps:
            return
        steps -= 1
        pid, youngest = process.parent, process.start
        process = look(pid)


def ancestry(pid: int, limit: int = ANCESTORS) -> tuple[tuple[int, str], ...]:
    """Returns (pid, start) of a process and of at most `limit` ancestors, nearest first (05.25).

    Empty when the process itself is gone, hidden, or pid 0; shorter when the line breaks off.
    """
    return tuple(_upwards(pid, limit))


def descends_from(pid: int, ancestor: int, start: str, limit: int = ANCESTORS) -> bool:
    """Says whether a process is (ancestor, start) or descends from it within `limit` steps (05.25).

    False too where nothing can be known; then a token has to be the evidence.
    """
    return any(step == (ancestor, start) for step in _upwards(pid, limit))


def name_of(pid: int) -> str:
    """Returns what the kernel calls a process's program, at most 15 bytes of it; empty where it cannot be seen."""
    return _read(f"{PROC}/{pid}/comm").decode(errors="replace").rstrip("\n") if _seen(pid) else ""


def executable_of(pid: int) -> str:
    """Returns the path of the program that a process runs; empty where it cannot be seen."""
    try:
        return os.readlink(f"{PROC}/{pid}/exe") if _seen(pid) else ""
    except OSError:
        return ""


def command_of(pid: int) -> tuple[str, ...]:
    """Returns the words of a process's command line, of its first MiB; empty where it cannot be seen."""
    words = _read_all(pid, "cmdline").split(b"\0")
    return tuple(os.fsdecode(word) for word in (words[:-1] if words and not words[-1] else words))


def environment_of(pid: int, names: Iterable[str]) -> dict[str, str]:
    """Returns those variables of these names with which a process of this user was started.

    It may have changed its own since, which nobody else sees.
    """
    wanted = {os.fsencode(name): name for name in names}
    found: dict[str, str] = {}
    for entry in _read_all(pid, "environ").split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name in wanted:
            found[wanted[name]] = os.fsdecode(value)
    return found


def everybody() -> list[int]:
    """The pids of all processes that can be seen; none where `/proc` cannot be used."""
    if not _seen(1):
        return []
    try:
        return [int(name) for name in os.listdir(PROC) if name.isdigit()]
    except OSError:
        return []


def open_files(pid: int) -> list[str]:
    """Returns the paths of what a process of this user holds open; sockets and pipes have names like `socket:[1]`."""
    if not _seen(pid):
        return []
    folder = f"{PROC}/{pid}/fd"
    found: list[str] = []
    try:
        numbers = os.listdir(folder)
    except OSError:
        return found
    for number in sorted(numbers, key=int):
        try:
            found.append(os.readlink(f"{folder}/{number}"))
        except OSError:
            continue  # it was closed meanwhile
    return found


def _seen(pid: int) -> bool:
    return pid > 0 and not _MACOS and _proc_is_ours()


MOST_TOLD = 1_048_576
"""Bytes of a command line or an environment that are read; the kernel lets both be larger, and nobody needs that."""


def _read_all(pid: int, what: str) -> bytes:
    if not _seen(pid):
        return b""
    try:
        with open(f"{PROC}/{pid}/{what}", "rb") as file:
            return file.read(MOST_TOLD)
    except OSError:
        return b""


def boot_id() -> str:
    """Returns what names this boot of the kernel; empty where it is not told."""
    if _MACOS:
        return _printed_by("sysctl", "-n", "kern.bootsessionuuid").lower()
    return _text(_read(f"{PROC}/sys/kernel/random/boot_id"))


def pid_domain() -> str:
    """Returns what names the pid namespace: pids compare only where this is equal (05.29).

    `linux:<machine id>:pid:[<inode>]`, `darwin`; without a machine id the boot's id without hyphens.
    """
    if _MACOS:
        return "darwin"
    machine_id = _text(_read(MACHINE_ID)) or boot_id().replace("-", "")
    try:
        namespace = os.readlink(f"{PROC}/self/ns/pid")
    except OSError:
        namespace = "pid:unknown"
    return f"linux:{machine_id}:{namespace}"


def machine() -> str:
    """Returns the name of this machine, for people."""
    return os.uname().nodename


def _text(data: bytes) -> str:
    return data.decode("ascii", "replace").strip()
