"""Looks from where this process sees the machine, for `console.checks.machine`."""

from __future__ import annotations

import os

from postroom.console.checks.machine import Machine
from postroom.state import processes

_FIRST = {"pid": "pid:[4026531836]", "user": "user:[4026531837]"}
"""What Linux calls the namespaces that a machine begins with."""

_FIRST_MOUNTS = 0xF0000010
"""That of mounts has no fixed number before Linux 6.18, but is one of the first that a boot gives out."""

_KINDS = {"mount": "mnt", "pid": "pid", "user": "user"}


def look() -> Machine:
    """Gathers the facts. Never raises."""
    here = {kind: namespace_of("self", kind) for kind in _KINDS}
    own = [kind for kind, first in _FIRST.items() if here[kind] and here[kind] != first]
    if own or not _is_first(here["mount"]):  # a container with pids of its own has mounts of its own
        own.insert(0, "mount")
    try:
        proc = os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        proc = False
    return Machine(
        name=processes.machine(),
        namespaces=tuple((kind, name) for kind, name in here.items() if name),
        own=tuple(own),
        proc=proc or (not os.path.isdir("/proc") and os.uname().sysname == "Darwin"),
    )


def _is_first(mounts: str) -> bool:
    """Whether a mount namespace is the one that the machine began with, or none is told."""
    first = namespace_of("1", "mount")  # which only root may read, and not everywhere
    number = mounts.partition("[")[2].rstrip("]")
    return mounts == first or not number.isdecimal() or (not first and int(number) < _FIRST_MOUNTS)


def namespace_of(process: int | str, kind: str) -> str:
    """What names a namespace of a process; empty where it is not told.

    Args:
        process: its pid, or `self`.
        kind: `mount`, `pid` or `user`.
    """
    try:
        return os.readlink(f"/proc/{process}/ns/{_KINDS[kind]}")
    except OSError:
        return ""
