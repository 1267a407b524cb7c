"""From where the machine is looked at: a container sees other sessions than its host does (05.8, 05.25).

Findings from facts; nothing is looked at here. `console.looks.machine` gathers the facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.console.checks.finding import Finding, claimed, found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """From where one looks.

    Attributes:
        name: of the machine.
        namespaces: kind (`mount`, `pid`, `user`) → what names it, such as `mnt:[4026531841]`.
        own: those kinds of which it is known that the machine has another one beside this.
        proc: `/proc` shows the processes of this pid namespace.
    """

    name: str = ""
    namespaces: tuple[tuple[str, str], ...] = ()
    own: tuple[str, ...] = ()
    proc: bool = True

    @property
    def seen_from(self) -> str:
        """The machine, for the line that says what was looked at; `container` names its namespaces."""
        return claimed(self.name)


def container(facts: Machine) -> Iterator[Finding]:
    """This is a container, or another namespace: who lives outside is not seen (05.8)."""
    if facts.own:
        named = ", ".join(
            f"{kind} namespace {claimed(dict(facts.namespaces).get(kind, '?'))}" for kind in facts.own
        )
        yield found(
            "container",
            f"This is looked at from inside a container or the like: {named}. Sessions outside are listed only where"
            " they share the state and the socket folder, and are then not verified.",
            "Run both sides in the same container, or mount the same POSTROOM_HOME and XDG_RUNTIME_DIR into it.",
        )


def processes(facts: Machine) -> Iterator[Finding]:
    """Nothing can be known of processes, so nobody is verified (05.19, 05.25)."""
    if not facts.proc:
        yield found(
            "proc-hidden",
            "/proc is missing, or shows another pid namespace: no sender is verified, and of what a session started only"
            " what shows its token is known to be its own.",
            "Mount /proc for this pid namespace: `mount -t proc proc /proc`.",
        )


CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (container, processes)
