"""PORT: what is known of a program that runs an agent, and what its doors can truthfully confirm (chapter 09).

A client's file in `clients` fills in one `Client`: how its process and its session are recognised, which permission
modes it has, what its hooks say and take, and which doors reach its model. It decides nothing and opens nothing: the
presence of a session, the ringer of its doors and the verbs of its hooks read it.

A word that a client uses for a permission mode and that its table lacks is passed on as it stands, so that the
session's class becomes unknown and not something that nobody said (03.4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["HOOKS", "MCP", "WAIT", "Client", "Confirms", "DoorFact", "Event", "Report", "reach"]

EventKind = Literal["session-start", "turn-start", "tool", "turn-end", "session-end", "wake", "other"]
"""What an event of a client's hooks means to a session."""

Confirms = Literal["consumed", "accepted", "written", "nothing"]
"""What a door can say: the client's loop has it; its own queue took it; its inbox was written to; nothing (09.1)."""

STRENGTH: tuple[Confirms, ...] = ("consumed", "accepted", "written", "nothing")
"""From the strongest to the weakest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one call of a hook says about its session (09.12).

    Attributes:
        session_id: the client's own id of the conversation; empty where it is not told.
        mode: the permission mode in the words of `core.inbound`, or the client's own where it has no other; None: not told.
        cwd: the working directory.
        title: the client's own name of the session.
        stop_active: the turn goes on already because a hook asked for it: it is not asked again.
        words: the last words of the turn.
        prompt: what begins the turn.
        agent: the id of a subagent whose event this is; the main conversation's mail is not for it.
        source: why a session starts: `startup`, `resume`, `clear`, `compact`.
        turn: the client's own id of the turn; empty where it is not told. The same id is the same turn, going on.
        waits: for whom the client says that it waits: `user`, for its next words; `permission`, for a decision of theirs;
            empty: not told.
        delegates: the tool of this event runs a subagent whose own events bear no mark of it.
    """

    session_id: str = ""
    mode: str | None = None
    cwd: str = ""
    title: str = ""
    stop_active: bool = False
    words: str = field(default="", repr=False)
    prompt: str = field(default="", repr=False)
    agent: str = ""
    source: str = ""
    turn: str = ""
    waits: Literal["", "user", "permission"] = ""
    delegates: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a client's hooks.

    Attributes:
        name: the client's word for it.
        kind: what it means to a session.
        render: text for the model → what the hook prints; None where the event takes no text.
    """

    name: str
    kind: EventKind
    render: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorFact:
    """One way into a client's model, and what it can truthfully confirm (09.2 to 09.8).

    Attributes:
        name: a key of `doors.DOORS`, or `hooks`, `mcp`, `wait`, which the client itself comes to.
        wakes: whether it reaches an idle session.
        during_turn: whether what it brings is read during a turn, after it, or not at all.
        confirms: what is known once it was used.
        needs: when it is there, in one sentence.
    """

    name: str
    wakes: bool
    during_turn: Literal["yes", "after", "no"]
    confirms: Confirms
    needs: str


HOOKS = DoorFact(
    name="hooks",
    wakes=False,
    during_turn="yes",
    confirms="consumed",
    needs="Its hooks are set up.",
)
"""What a program with hooks has, where none of them wakes it and nobody has to trust them (09.5)."""

MCP = DoorFact(
    name="mcp",
    wakes=False,
    during_turn="yes",
    confirms="consumed",
    needs="The agent calls a tool of Postroom.",
)
WAIT = DoorFact(
    name="wait",
    wakes=True,
    during_turn="no",
    confirms="consumed",
    needs="The agent runs `postroom wait`, or calls read_messages with a wait.",
)
"""The doors that every client with tools has (09.6, 09.7)."""


def _says_nothing(payload: Mapping[str, object]) -> Report:
    del payload
    return Report()


def _unknown(pid: int) -> str:
    del pid
    return ""


def _not_told(command: tuple[str, ...], environ: Mapping[str, str], cwd: str) -> str:
    del command, environ, cwd
    return ""


def reach(doors: Iterable[DoorFact]) -> tuple[Confirms, bool]:
    """What is known of a message that comes by these doors (09.16).

    Returns the strongest word that any of them can say, of those that come to the model by themselves, and whether any
    reaches an idle session.
    """
    by_themselves = [door for door in doors if door.name != WAIT.name]
    said = {door.confirms for door in by_themselves}
    wakes = any(door.wakes for door in by_themselves)
    for word in STRENGTH:
        if word in said:
            return word, wakes
    return "nothing", wakes


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """What is known of one program that runs agents.

    Attributes:
        name: as in `postroom setup NAME`; `title` is how people call it.
        programs: by which its process is recognised: the name of its executable, or a part of the path of its script.
        pid_variable: the variable with the pid of its process, if it sets one.
        session_variables: variables with its own session id.
        modes: its word for a permission mode → the mode of `core.inbound`.
        mode_flags: a word of its command line → the mode; a key that ends in `=` or a blank takes its value through
            `modes`.
        starts_in: command line, environment and folder → the mode that it starts in where no flag says one; empty: not
            told.
        events: the client's event name → what it means.
        read: the JSON object that a hook is given → what it says.
        doors: the best first.
        conversation: the pid of its process → the id of the conversation that has just begun there; empty: not known.
        threads: one of its processes may hold several conversations, each a session.
        neighbour: as which neighbour its sessions speak by themselves; empty: as none.
    """

    name: str
    title: str
    programs: tuple[str, ...] = ()
    pid_variable: str = ""
    session_variables: tuple[str, ...] = ()
    modes: Mapping[str, str] = field(default_factory=dict[str, str])
    mode_flags: Mapping[str, str] = field(default_factory=dict[str, str])
    starts_in: Callable[[tuple[str, ...], Mapping[str, str], str], str] = _not_told
    events: Mapping[str, Event] = field(default_factory=dict[str, Event])
    read: Callable[[Mapping[str, object]], Report] = _says_nothing
    doors: tuple[DoorFact, ...] = ()
    conversation: Callable[[int], str] = _unknown
    threads: bool = False
    neighbour: str = ""

    @property
    def confirms(self) -> Confirms:
        """The strongest word that any of its doors can say, of those that come to the model by themselves (09.16)."""
        return reach(self.doors)[0]

    @property
    def wakes(self) -> bool:
        """Whether any door reaches an idle session."""
        return reach(self.doors)[1]

    def mode_of(self, word: str) -> str:
        """Its word for a permission mode, as a mode of `core.inbound`; one that is not listed stays as it is."""
        return self.modes.get(word, word)

    def mode_in(self, command: tuple[str, ...]) -> str | None:
        """The mode that a command line asks for (09.12); None where it asks for none.

        Args:
            command: the words of the client process's command line. Behind a bare `--` nothing is an option.
        """
        words = command[1 : command.index("--")] if "--" in command else command[1:]
        found: str | None = None
        for place, word in enumerate(words):
            option, equals, value = word.partition("=")
            if equals and f"{option}=" in self.mode_flags:
                found = self.mode_of(value)
            elif f"{word}=" in self.mode_flags and place + 1 < len(words):
                found = self.mode_of(words[place + 1])
            elif word in self.mode_flags:
                found = self.mode_flags[word]
        return found
