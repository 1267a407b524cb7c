"""The verbs of the control socket: a table of verb → what.

A command asks its session's own process: that process resolves, pins, sends and renders (10.21). What a
command writes and reads is described in `ask`, who is heard in `door`, and the verbs about what may come in, some of
which need a person, are in `counter`. What an agent or an observer inside the session may ask for is in `speaking`. A
peer's connection to the inbox never reaches these verbs: this is another socket.

That a request was taken is said at once, the answer comes in its own time. A lease lives as long as the
connection that took it (11.1): the command prints, says `ok`, and only then are the messages consumed; a
connection that closes before gives them back at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from postroom import counter, present
from postroom.arguments import HelpAsked, Values, call_of, moment, parse
from postroom.call import Call
from postroom.core import contract
from postroom.core.address import identity_hash, normal_form
from postroom.core.message import Lease, Receipt, Refusal
from postroom.door import is_free, refused_entry, request_of, shown_token
from postroom.errors import BadFrame, BadUsage, PostroomError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from postroom.agent import Agent
    from postroom.call import Connection
    from postroom.core.message import Message, Step
    from postroom.door import Door
    from postroom.session import Session
    from postroom.transport import Evidence

WATCH_SECONDS = 1.0
"""How often `--watch` and `log --follow` look again: no more than one wake-up a second (12.21)."""

AGENT_ANSWERS = "Its answer goes to this session's own loop, and is not waited for here.\n"
"""What `--wait-reply` comes to where an agent inside the session was written to (06.10)."""


@dataclass(slots=True)
class _Talk:
    """How far one connection has come."""

    token: str | None = None
    call: Call | None = None
    task: asyncio.Task[None] | None = None


class Control:
    """Serves the verbs of one session.

    Args:
        session: whose verbs.
        door: who may speak.
        finish: ends the session, its argument says whether it is forgotten too; called once `close` was
            answered. None: whoever opened the session decides when it ends, a command or a program.
        terminal: reads the controlling terminal of a connecting process (10.39).
    """

    def __init__(
        self,
        session: Session,
        door: Door,
        *,
        finish: Callable[[bool], None] | None,
        terminal: Callable[[Evidence], int] = counter.terminal_of,
    ) -> None:
        self.session = session
        self.door = door
        self.finish = finish
        self.terminal = terminal
        self._talks: dict[Connection, _Talk] = {}
        self._running: set[asyncio.Task[None]] = set()

    # ── connections ──────────────────────────────────────────────────────────────────────────────

    def opened(self, connection: Connection) -> None:
        """A connection was accepted."""
        self._talks[connection] = _Talk()

    def lines(self, connection: Connection, lines: Sequence[bytes]) -> None:
        """Takes whole lines: the token, the request, then what the command says about its printing."""
        talk = self._talks.get(connection)
        if talk is None:
            return
        for line in lines:
            if talk.call is not None:
                talk.call.heard(line)
            elif talk.token is None:
                talk.token = shown_token(line)
            else:
                connection.stay()
                talk.call = Call(connection, talk.token)
                talk.task = self.hear(talk.call, line)
                if talk.task is None:
                    connection.close()
                else:
                    talk.task.add_done_callback(lambda _: connection.close())

    def closed(self, connection: Connection) -> None:
        """The other end has gone: what it had leased goes back at once (11.1)."""
        talk = self._talks.pop(connection, None)
        if talk is not None and talk.task is not None:
            talk.task.cancel()

    def count(self, what: str) -> None:
        """A connection of the control socket was ended for a reason."""
        self.session.count(f"control-{what}")

    async def stop(self) -> None:
        """Ends every request under way; what they had leased goes back."""
        current = asyncio.current_task()
        running = [task for task in self._running if task is not current]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def hear(self, call: Call, line: bytes) -> asyncio.Task[None] | None:
        """Takes the request line of one connection; returns the task that answers it.

        Args:
            call: who asks, and the way back.
            line: the request, one JSON object.
        """
        call.args = Values(json=b'"--json"' in line)
        agents = self.session.inside
        call.speaker = agents.by_token(call.token) if agents is not None else None
        judge = partial(
            refused_entry,
            self.door,
            self.session.id,
            call.token,
            call.evidence,
            inside=call.speaker is not None,
        )
        refusal = judge()
        if refusal is not None and is_free(line):
            refusal = judge(free=True)
        if refusal is not None:
            call.refused(refusal)
            return None
        try:
            argv, call.stdin = request_of(line)
            call.args = parse(argv)
        except HelpAsked as asked:
            call.done(str(asked))
            return None
        except BadUsage as error:
            call.refuse(error.code, error.message, error.hint)
            return None
        except BadFrame:
            call.refuse(
                "usage",
                "The request is not one that this version understands.",
                "Use the same version on both sides.",
            )
            return None
        call.taken()
        task = asyncio.get_running_loop().create_task(self._run(call))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _run(self, call: Call) -> None:
        verb = VERBS.get(call.args.verb) if call.speaker is None else speaking
        try:
            if verb is None:
                call.refuse(
                    "usage", f"`{call.args.verb}` is not answered by a session.", "Run it without --session."
                )
            else:
                await verb(self, call)
        except PostroomError as error:
            call.refuse(error.code, error.message, error.hint)

    def keep(self, work: Coroutine[None, None, None]) -> None:
        """Does something beside the requests, until it or the session ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    # ── verbs ────────────────────────────────────────────────────────────────────────────────────

    async def send(self, call: Call) -> None:
        """`send TO [TEXT]` (10.2)."""
        args = call.args
        text = call.text()
        if isinstance(text, Refusal):
            return call.refused(text)
        since = self.session.now()
        result = await self.session.send_call(call_of(args, text), msg_id=args.msg_id)
        if isinstance(result, Refusal):
            return call.refused(result)
        document = present.receipt_document(result)
        code = 1 if result.status == "unknown" else 0
        here = min(
            result.waiting, self.session.store.waiting_count
        )  # what `inbox` shows; the rest is its loop's
        shown = present.receipt_text(replace(result, waiting=here), self.session.name)
        if args.wait_reply is None or code:
            return call.answer(document, shown, code, err=f"{result.status}\n" if code else "")
        if not args.json:
            call.part(shown)
        if result.to.kind == "agent":
            document["reply"] = None
            ended = result.result is not None  # its last words are in the receipt
            return call.answer(document, "" if ended else AGENT_ANSWERS, 0 if ended else 3)
        reply = await self.session.wait_for(replies(result, since), args.wait_reply)
        if reply is None:
            document["reply"] = None
            return call.answer(document, f"No answer within {args.wait_reply:g} seconds.\n", 3)
        # Another reader may have taken it: it is shown all the same. What another sender sent under this id stays.
        lease = self.session.take(only=reply.msg_id, limit=1)
        if any(message.origin.identity != reply.origin.identity for message in lease.messages):
            self.session.release(lease)
            lease = Lease("", ())
        reply = next(iter(lease.messages), reply)
        document["reply"] = present.message_document(reply)
        text = present.dumps(document) if args.json else present.message_text(reply)
        return await self._hand_over(call, lease, text)

    async def _hand_over(self, call: Call, lease: Lease, out: str, *, more: bool = False) -> None:
        """Prints a lease and confirms it; what is not printed goes back (11.1)."""
        session = self.session
        await call.hand_over(
            out, lambda printed: (session.confirm if printed else session.release)(lease), more=more
        )

    def _rendered(self, call: Call, lease: Lease) -> str:
        if call.args.json:
            return present.dumps(present.inbox_document(lease.messages, lease.notices))
        return present.inbox_text(lease.messages, lease.notices, taken=True)

    async def inbox(self, call: Call) -> None:
        """`inbox`, `inbox --take`, `inbox --follow` (10.3)."""
        if call.args.follow:
            while not call.ended and await self.session.wait():
                if lease := self.session.take():
                    await self._hand_over(call, lease, self._rendered(call, lease), more=True)
            if not call.ended:
                call.done()
        elif call.args.take:
            lease = self.session.take()
            await self._hand_over(call, lease, self._rendered(call, lease))
        else:
            messages, notices = self.session.peek(), self.session.peek_notices()
            call.answer(
                present.inbox_document(messages, notices),
                present.inbox_text(messages, notices, taken=False, name=self.session.name),
            )

    async def wait(self, call: Call) -> None:
        """`wait [--timeout SECONDS]` (10.4)."""
        loop = asyncio.get_running_loop()
        timeout = call.args.timeout
        deadline = None if timeout is None else loop.time() + timeout
        while await self.session.wait(None if deadline is None else max(0.0, deadline - loop.time())):
            if lease := self.session.take():
                # It wakes agents, so it says what the text is before it shows it (04.1).
                text = self._rendered(call, lease) if call.args.json else present.framed_text(lease)
                return await self._hand_over(call, lease, text)
        return call.answer(present.inbox_document(()), "Nothing came.\n", 3)

    async def status(self, call: Call) -> None:
        """`status`, `status --mode MODE` (10.6)."""
        if call.args.mode is not None and (refusal := counter.refused_mode(self, call)):
            return call.refused(refusal)
        document = present.status_document(self.session.status())
        return call.answer(document, present.status_text(document))

    async def rename(self, call: Call) -> None:
        """`rename NAME` (10.7)."""
        had = self.session.name
        has = self.session.rename(call.args.name)
        document = present.status_document(self.session.status())
        text = f"{had} is now {has}.\n"
        if normal_form(has) != normal_form(call.args.name):
            text += f"A live session has the name {call.args.name}.\n"
        call.answer(document, text)

    async def close(self, call: Call) -> None:
        """`close` (10.9)."""
        if self.finish is None:
            return call.refuse(
                "session_in_use",
                "This session ends with the command or the program that opened it.",
                "End that.",
            )
        ends = len(self.session.held())
        left = f" {ends} held and not decided; whoever sent it is told where that can be." if ends else ""
        call.answer(
            {"session_id": self.session.id, "expired": ends}, f"{self.session.name} has ended.{left}\n"
        )
        self.finish(call.args.forget)
        return None

    async def move(self, call: Call) -> None:
        """`move`: this session ends here and goes on in the process that asks (09.11)."""
        if self.finish is None:
            return call.refuse("session_in_use", "This session ends with what opened it.", "End that.")
        session = self.session
        session.moves = True
        call.answer({"session_id": session.id, "mode": session.standing.mode, "turn": session.turn}, "")
        self.finish(False)
        return None

    async def list(self, call: Call) -> None:
        """`list` (10.1)."""
        await self.listed(call, self.session)

    async def listed(self, call: Call, who: Session | Agent, head: str = "") -> None:
        """Answers `list` for the main conversation, or for an agent, whose own row is shown as `head`."""
        args = call.args
        if contract.is_denied("ListAgents", self.session.standing.settings.denied):
            return call.refused(contract.refusal("denied_by_settings", tool="ListAgents"))
        last: present.Document = {}
        while True:
            answer = who.listing(args.text, kind=args.kind, limit=args.limit)
            document = present.listing_document(answer)
            if document != last:
                shown = answer._replace(own=None) if head else answer
                text = present.listing_text(shown, self.session.now(), filtered=bool(args.text or args.kind))
                call.part(present.dumps(document) if args.json else head + text)
                last = document
            if not args.watch:
                return call.done()
            await asyncio.sleep(WATCH_SECONDS)

    async def trace(self, call: Call) -> None:
        """`trace MSG_ID`, this session's own side (10.12)."""
        args = call.args
        with self.session.reading() as store:
            steps = store.steps(args.msg_id)
        if not steps:
            return call.refused(contract.refusal("unknown_message", msg_id=args.msg_id))
        return call.done(present.trace_text(args.msg_id, steps, as_json=args.json, mermaid=args.mermaid))

    async def log(self, call: Call) -> None:
        """`log` (10.13)."""
        args = call.args
        now = self.session.now()
        since, until = moment(args.since, now), moment(args.until, now)

        def rows(after: int | None) -> list[tuple[int, Step]]:
            with self.session.reading() as store:
                return store.log(
                    text=args.text, peer=args.peer, since=since, until=until, after=after, limit=args.limit
                )

        def newest() -> int:
            with self.session.reading() as store:
                return next((number for number, _ in store.log(limit=1)), 0)

        seen, found = newest(), rows(None)
        if not args.follow:
            steps = [step for _, step in found]
            return call.done(present.log_text(steps, as_json=args.json), code=0 if steps else 3)
        while True:
            if found:
                call.part(present.log_text([step for _, step in found], as_json=args.json))
            await asyncio.sleep(WATCH_SECONDS)
            end, found = newest(), rows(seen)
            seen = found[-1][0] if len(found) == args.limit else end


def loaded_late(module: str, name: str, does: str) -> Callable[[Control, Call], Awaitable[None]]:
    """A verb that is kept in a module of its own, which a session loads once somebody uses it (12.30)."""

    async def verb(control: Control, call: Call) -> None:
        await getattr(import_module(module), name)(control, call)

    verb.__doc__ = does
    return verb


speaking = loaded_late(
    "postroom.speaking", "answer", "Any verb, asked by an agent or an observer inside the session."
)

VERBS: dict[str, Callable[[Control, Call], Awaitable[None]]] = {
    "send": Control.send,
    "inbox": Control.inbox,
    "wait": Control.wait,
    "held": counter.held,
    "approve": counter.approve,
    "deny": counter.deny,
    "explain": counter.explain,
    "rules": counter.rules,
    "status": Control.status,
    "rename": Control.rename,
    "close": Control.close,
    "move": Control.move,
    "list": Control.list,
    "peers": Control.list,
    "trace": Control.trace,
    "log": Control.log,
    "attend": loaded_late(
        "postroom.presence",
        "attend",
        "`attend CLIENT`: the client inside this session gets its doors (09.1).",
    ),
    "hook": loaded_late("postroom.clients.hooks", "answer", "`hook CLIENT EVENT` (09.12)."),
    "tool": loaded_late(
        "postroom.tools",
        "answer_call",
        "`tool NAME`, for an MCP server of a session that lives elsewhere (09.9).",
    ),
    "task": loaded_late(
        "postroom.task_tools",
        "answer_command",
        "`task ACTION`, the shared tasks of this session's team (07.23).",
    ),
    "team-join": loaded_late(
        "postroom.joining", "answer_join", "`team join`: this session becomes a member (07.22)."
    ),
    "team-leave": loaded_late(
        "postroom.joining", "answer_leave", "`team leave`: it is none any more (07.22)."
    ),
    "doors": loaded_late(
        "postroom.reach", "answer", "`doors`, what brings mail to this session's model (09.16)."
    ),
}
"""Every verb is for an own child or whoever shows this session's token (05.26); `approve`, `deny`, `rules --revoke` and,
from outside the session, `status --mode` need a person as well (10.39)."""


def replies(sent: Receipt, since: int) -> Callable[[Message], bool]:
    """Says of a message whether it ends `--wait-reply` (10.22).

    It must come from the one that was written to, and either answer that message, or answer none and have
    come since.
    """

    def ends(message: Message) -> bool:
        origin = message.origin
        return (
            origin.verified
            and identity_hash(origin.identity).startswith(sent.to.ref)
            and (
                message.in_reply_to == sent.msg_id
                or (message.in_reply_to is None and message.received_at >= since)
            )
        )

    return ends
