"""PORT: the ways into a client's model by which mail comes without being asked for; and their table (09.1 to 09.4).

A *door* is the client's own: its inbox, its queue, its server. Each file here opens one of them. It says whether it is
there (`ready`), rings it with a text that the caller has rendered, and says truthfully what came of that, never more
than the door itself confirms. `ringing` decides when which of them is rung and what becomes of the messages.

A door never takes a message, never renders one, never tries again and never tries another door. It never starts a
shell, and no text ever stands on a command line, where other users of the machine could read it (11.11).

How a door fails: `ready` says why it is not there. `ring` answers `failed` only where nothing was handed over, and
`unknown` where it may have been; it raises nothing for whatever the client does.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from postroom.client import Client
    from postroom.core.message import PermissionClass
    from postroom.session import Session

__all__ = ["DOORS", "Attended", "Door", "Outcome", "Rang", "load"]

Outcome = Literal["accepted", "written", "failed", "unknown"]

DOORS: Mapping[str, str] = MappingProxyType(
    {
        "native": "postroom.doors.native",
        "codex-app-server": "postroom.doors.codex_app_server",
        "codex-queue": "postroom.doors.codex_queue",
        "opencode-http": "postroom.doors.opencode_http",
    }
)
"""Name, as in a client's facts → the module that opens it."""


@dataclass(frozen=True, slots=True)
class Rang:
    """What came of one ring.

    Attributes:
        outcome: `accepted`: the client's own queue or server has it; `written`: its inbox was written to and took it;
            `failed`: it has nothing of it; `unknown`: the writing began and no answer came.
        detail: a few words for the trace, never message text.
    """

    outcome: Outcome
    detail: str = ""


class Attended(Protocol):
    """What a door needs to know of the client; `presence.Present` is one.

    Attributes:
        client: which client.
        process: (pid, start) of its process.
        environ: the environment that decides the folders.
        cwd: its working directory.
        conversation: its own id of its conversation; empty while it is not known.
    """

    client: Client
    process: tuple[int, str]
    environ: Mapping[str, str]
    cwd: str
    conversation: str

    @property
    def session(self) -> Session | None:
        """The session, where it lives in this process."""
        ...

    def variable(self, name: str) -> str:
        """A variable with which the client's process was started; empty for none. It may be a secret."""
        ...


class Door(Protocol):
    """One way into a client's model.

    Attributes:
        name: its key in `DOORS`.
        room: bytes of text that one ring should carry; a single message that is larger is rung for alone.
    """

    name: str
    room: int

    async def ready(self) -> str:
        """Whether it is there now: empty, or why it is not, as a sentence's end. Nothing is changed by asking."""
        ...

    async def ring(self, text: str, msg_ids: Sequence[str], stated: PermissionClass | None) -> Rang:
        """Hands over a text.

        Args:
            text: as the model is to see it; it says itself whom it comes from (04.1).
            msg_ids: the messages in it; empty where it holds notices alone.
            stated: the class that every sender of them states; None where they differ or state none.
        """
        ...

    async def close(self) -> None:
        """Lets go of what it holds; a second call does nothing."""
        ...


def load(name: str, here: Attended, dropped: Callable[[Sequence[str], str], None]) -> Door:
    """Makes a door of a client; its module is imported now.

    Args:
        name: a key of `DOORS`.
        here: the client.
        dropped: called with the ids of messages that the client says it has no more, and its word for why.
    """
    return cast("Door", import_module(DOORS[name]).door(here, dropped))
