"""One request on the control socket, under way: what was asked, by whom, and the way back.

What a command writes and reads is described in `ask`; this is the other end. It decides nothing and knows no session:
`control` takes requests, and the verbs answer them through `Call`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from postroom import present
from postroom.arguments import Values
from postroom.core import contract
from postroom.core.message import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroom.agent import Agent, Observer
    from postroom.transport import Evidence


class Connection(Protocol):
    """What a listener gives for one connection of the control socket."""

    @property
    def evidence(self) -> Evidence:
        """What is known of the other end."""
        ...

    def write(self, data: bytes) -> None:
        """Queues bytes, in order."""
        ...

    def flush(self) -> None:
        """Sends what is queued."""
        ...

    def stay(self) -> None:
        """It may stay until either side ends it."""
        ...

    def close(self) -> None:
        """Closes once everything written has been sent."""
        ...


class Call:
    """One request under way: what was asked, and the way back.

    Attributes:
        evidence: what is known of the process that asks.
        token: what it showed; empty for nothing.
        speaker: the agent or the observer inside the session whose token that is; None: the main conversation speaks.
        args: the values of its command line.
        stdin: what came on its standard input; a number is the size of what was too large.
        ended: the last frame was sent.
    """

    def __init__(self, connection: Connection, token: str = "") -> None:
        self.evidence = connection.evidence
        self.token = token
        self.speaker: Agent | Observer | None = None
        self.args = Values(json=False)
        self.stdin: str | int | None = None
        self.ended = False
        self._connection = connection
        self._confirmed: asyncio.Future[bool] | None = None

    def text(self) -> str | Refusal | None:
        """What a `send` says, from its command line or from standard input; None for nothing (10.2)."""
        if not self.args.stdin:
            return self.args.text
        if isinstance(self.stdin, int):
            too_large = contract.too_large(self.stdin)
            assert too_large is not None
            return too_large
        return (self.stdin or "").removesuffix("\n")

    def part(self, out: str = "", err: str = "", *, kind: str = "part", code: int = 0) -> None:
        """Sends one frame of the answer."""
        out_bytes, err_bytes = out.encode(errors="backslashreplace"), err.encode(errors="backslashreplace")
        head = b"%s %d %d %d\n" % (kind.encode(), code, len(out_bytes), len(err_bytes))
        self._connection.write(head + out_bytes + err_bytes)
        self._connection.flush()

    def done(self, out: str = "", err: str = "", code: int = 0) -> None:
        """Sends the last frame."""
        self.ended = True
        self.part(out, err, kind="done", code=code)

    def taken(self) -> None:
        """Says that the request was taken: the command then waits for the answer, however long that takes."""
        self.part()

    async def printed(self, out: str) -> bool:
        """Sends output and waits until the command says that it has been printed; False for any other word."""
        self._confirmed = asyncio.get_running_loop().create_future()
        self.part(out, kind="confirm")
        return await self._confirmed

    async def hand_over(self, out: str, settle: Callable[[bool], None], *, more: bool = False) -> None:
        """Prints what was taken, and has it count as taken only then (11.1).

        Args:
            out: as it is printed.
            settle: told once whether it was printed.
            more: the answer goes on; else this was the last of it.
        """
        printed = False
        try:
            printed = await self.printed(out)
        finally:
            if not printed:
                settle(False)
        if printed:
            settle(True)
        if not (printed and more):
            self.done(code=0 if printed else 1)

    def heard(self, line: bytes) -> None:
        """Takes a line that the command sent after its request."""
        if self._confirmed is not None and not self._confirmed.done():
            self._confirmed.set_result(line == b"ok")

    def answer(self, document: present.Document, text: str, code: int = 0, *, err: str = "") -> None:
        """The last frame: the document with `--json`, else the text; `err` is what stderr shows."""
        self.done(present.dumps(document) if self.args.json else text, err, code)

    def refuse(self, code: str, message: str, hint: str) -> None:
        """The last frame of an error: its code on stderr, and the document or the sentence (10.37)."""
        self.refused(Refusal(code=code, message=message, hint=hint))

    def refused(self, refusal: Refusal) -> None:
        """The same for a refusal, with its candidates."""
        self.done(*present.refused(refusal, as_json=self.args.json), present.exit_code(refusal.code))
