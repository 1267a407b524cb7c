"""What is known of the process at the other end, and remembered for its next connection.

The kernel says its pid and user; one read of its stat says when it started, which tells it from a later
process of the same pid; its ancestors are walked once a process and remembered (05.19, 12.33). A process that
comes again and again is watched through a descriptor: while that shows it alive, its pid cannot have been
given away, and its stat need not be read at all.

It reads nothing that the process wrote. It fails to less evidence, never to wrong evidence: a process that
has gone leaves its pid alone, one in another pid namespace nothing.

Weak: between a connect and the first look at it, a pid may have been given to another process.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from postroom.state import processes
from postroom.transport import Evidence

if TYPE_CHECKING:
    from _socket import socket as BareSocket

__all__ = ["Witness", "peer_of"]

REMEMBERED = 500
"""Processes whose ancestry is remembered; the least recently seen goes first (05.19)."""

WATCHED = 64
"""Of these so many are watched, a descriptor each: as many as may be connected at once (05.16)."""

NOBODY = Evidence("uds")
"""No evidence: the process is in another pid namespace (05.19)."""


if sys.platform == "linux":
    _CREDENTIALS = struct.Struct("3i")

    def peer_of(sock: BareSocket) -> tuple[int, int]:
        """Returns (pid, uid) of the process at the other end, from the kernel; pid 0: another namespace."""
        pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pid, uid

else:  # macOS: written for, not tested (00)
    _SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2

    def peer_of(sock: BareSocket) -> tuple[int, int]:
        """Returns (pid, uid) of the process at the other end, from the kernel."""
        _, uid = struct.unpack("2I", sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)[:8])
        return sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID), uid


class Known:
    """One process that has been seen."""

    __slots__ = ("evidence", "shown", "watch")

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.shown: dict[str, Evidence] = {}
        self.watch: Watch | None = None


class Watch:
    """A descriptor of one process, which becomes readable when that process ends."""

    __slots__ = ("_fd", "_poll")

    def __init__(self, pid: int) -> None:
        self._fd = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def alive(self) -> bool:
        """Whether the process still runs, so that its pid is still its own."""
        return not self._poll.poll(0)

    def close(self) -> None:
        """Gives the descriptor back."""
        os.close(self._fd)


class Witness:
    """Says what is known of processes, and remembers it."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, Known] = OrderedDict()
        self._watched: OrderedDict[int, Known] = OrderedDict()

    def about(self, pid: int) -> Evidence:
        """The evidence about a process that has just connected.

        Args:
            pid: as the kernel gave it; 0 for a process in another namespace.
        """
        known = self._known.get(pid)
        if known is not None:
            watch = known.watch
            if watch is not None:
                if watch.alive():
                    self._known.move_to_end(pid)
                    return known.evidence
                self._unwatch(pid, known)
        elif pid <= 0:
            return NOBODY
        start = processes.start_of(pid)
        if not start:
            return Evidence("uds", pid)  # gone already (05.25)
        if known is not None and known.evidence.start == start:
            self._known.move_to_end(pid)
            self._watch(pid, known)
            return known.evidence
        evidence = Evidence("uds", pid, start, processes.ancestry(pid))
        self._known[pid] = Known(evidence)
        self._known.move_to_end(pid)
        if len(self._known) > REMEMBERED:
            oldest, forgotten = self._known.popitem(last=False)
            self._unwatch(oldest, forgotten)
        return evidence

    def with_token(self, evidence: Evidence, kind: str) -> Evidence:
        """The same evidence with the kind of token that was shown (05.20); made once a process."""
        known = self._known.get(evidence.pid)
        if known is None or known.evidence is not evidence:
            return replace(evidence, token=kind)
        shown = known.shown.get(kind)
        if shown is None:
            shown = known.shown[kind] = replace(evidence, token=kind)
        return shown

    def _watch(self, pid: int, known: Known) -> None:
        """Watches a process that came a second time, where the system can."""
        try:
            watch = Watch(pid)
        except (AttributeError, OSError):
            return
        # The descriptor was there before this look at the pid, so both are about one process.
        if processes.start_of(pid) != known.evidence.start or not watch.alive():
            watch.close()
            return
        known.watch = watch
        self._watched[pid] = known
        if len(self._watched) > WATCHED:
            self._unwatch(*next(iter(self._watched.items())))

    def _unwatch(self, pid: int, known: Known) -> None:
        if known.watch is not None:
            known.watch.close()
            known.watch = None
            del self._watched[pid]

    def close(self) -> None:
        """Gives every descriptor back and forgets everything."""
        for pid, known in list(self._watched.items()):
            self._unwatch(pid, known)
        self._known.clear()
