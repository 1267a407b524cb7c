"""The verbs of the control socket, as the agents and the observers inside a session may use them (06.4, 06.14).

Whoever shows the token of an agent or an observer is that one: `control` finds out who, and this answers. An agent sends,
lists, and reads its own list; nothing of the main conversation's is shown to it, and nothing that concerns the session
itself is done for it. An observer reports, over the verb `tool`, and hears of everything else that it cannot.

What an agent takes is leased for as long as the connection lives, as with every command that takes (11.1): a connection
that closes before its command has printed gives it back, to the front, marked.

How it fails: a refusal is an answer; what the session raises, `control` answers.

Weak: an agent's own loop in the program and a command in its name read one list: each message goes to one of them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from postroom import present
from postroom.agent import Agent
from postroom.arguments import call_of
from postroom.core.address import shown
from postroom.core.message import Message, Refusal
from postroom.core.times import iso
from postroom.tools import answer_call, barred

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from postroom.batch import Batch
    from postroom.call import Call
    from postroom.control import Control
    from postroom.core.message import Waiting
    from postroom.present import Document

SHELL = '[Postroom] In a shell, SendMessage is: postroom send "FROM" "TEXT" --in-reply-to MSG-ID\n'
"""Below what `wait` prints. No text can pass for this line: `scrub` marks its first word."""

KINDS = {"coordinator": "main", "agent": "agent", "observer": "observer", "system": "system"}
"""Who writes to an agent, as a document calls it."""


async def answer(control: Control, call: Call) -> None:
    """Answers any verb for the agent or the observer who asks."""
    speaker, verb = call.speaker, call.args.verb
    if verb == "tool":
        return await answer_call(control, call)
    found = VERBS.get(verb)
    if found is None:
        return call.refused(not_yours(verb))
    if isinstance(speaker, Agent):
        return await found(control, call, speaker)
    return call.refused(barred(TOOL_OF[verb], control.session.standing.settings.denied))


def not_yours(verb: str) -> Refusal:
    """What an agent hears of a verb that is the session's."""
    return Refusal(
        code="not_your_session",
        message=f"An agent inside this session asks, and `{verb}` is for the session itself.",
        hint="An agent has send, list, inbox and wait. Leave the rest to the program that runs you, or to the person.",
    )


# ── sending and listing ──────────────────────────────────────────────────────────────────────────


async def send(control: Control, call: Call, agent: Agent) -> None:
    """`send TO [TEXT]`, as this agent (10.2)."""
    del control
    args = call.args
    if args.wait_reply is not None:
        return call.refuse(
            "usage",
            "An agent inside a session has no --wait-reply: its answers come into its list, with all else.",
            "Send without it, then run `postroom wait`.",
        )
    text = call.text()
    if isinstance(text, Refusal):
        return call.refused(text)
    result = await agent.send_call(call_of(args, text), msg_id=args.msg_id)
    if isinstance(result, Refusal):
        return call.refused(result)
    unknown = result.status == "unknown"
    document = present.receipt_document(result)
    return call.answer(
        document, present.receipt_text(result), int(unknown), err="unknown\n" if unknown else ""
    )


async def list_(control: Control, call: Call, agent: Agent) -> None:
    """`list`, as this agent sees it (10.1)."""
    session = control.session
    me = f"You are {shown(agent.name, agent.ref)}, an agent inside {shown(session.name, session.ref)}.\n"
    await control.listed(call, agent, me)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


async def inbox(control: Control, call: Call, agent: Agent) -> None:
    """`inbox`, `inbox --take`, `inbox --follow`, of this agent's own list (10.3)."""
    del control
    if call.args.follow:
        while not call.ended and await agent.wait():
            if batch := agent.drain():
                await handed_over(call, batch, rendered(call, batch), more=True)
        if not call.ended:
            call.done()
    elif call.args.take:
        batch = agent.drain()
        await handed_over(call, batch, rendered(call, batch))
    else:
        entries = agent.peek()
        call.answer(list_document(entries), list_text(entries, taken=False))


async def wait(control: Control, call: Call, agent: Agent) -> None:
    """`wait [--timeout SECONDS]` for something in this agent's list (10.4)."""
    del control
    loop = asyncio.get_running_loop()
    timeout = call.args.timeout
    deadline = None if timeout is None else loop.time() + timeout
    while await agent.wait(None if deadline is None else max(0.0, deadline - loop.time())):
        if batch := agent.drain():
            # It wakes agents, so it says what the text is before it shows it (04.1).
            text = rendered(call, batch) if call.args.json else f"{batch.text}\n\n{SHELL}"
            return await handed_over(call, batch, text)
    nothing = "Nothing came.\n" if agent.state == "live" else f"Nothing came: {agent.name} is not live.\n"
    return call.answer(list_document(()), nothing, 3)


async def handed_over(call: Call, batch: Batch, out: str, *, more: bool = False) -> None:
    """Prints what was taken; what is not printed goes back to the front of the list (11.1)."""
    await call.hand_over(out, lambda printed: batch.confirm() if printed else batch.release(), more=more)


def rendered(call: Call, batch: Batch) -> str:
    """What was taken, as `inbox` prints it."""
    if call.args.json:
        return present.dumps(list_document(batch.entries))
    return list_text(batch.entries, taken=True)


# ── what it looks like ───────────────────────────────────────────────────────────────────────────


def letter_of(entry: Waiting | Message) -> Message:
    """A message to an agent as any other inbox would show it."""
    if isinstance(entry, Message):
        return entry
    text = entry.text
    if (task := entry.task) is not None:
        text = "\n".join(
            filter(None, (f"Run {task.run} of {task.name}: {task.status}.", task.result or text))
        )
    return Message(
        msg_id=entry.msg_id,
        text=text,
        origin=entry.origin,
        received_at=entry.at,
        summary=entry.summary,
        sent_at=iso(entry.at),
        in_reply_to=entry.in_reply_to,
        state="accepted",
        redelivered=entry.redelivered,
    )


def entry_document(entry: Waiting | Message) -> Document:
    """One message to an agent, with the keys of any other message (10.25)."""
    document = present.message_document(letter_of(entry))
    document["from"]["kind"] = KINDS.get(entry.origin.kind, "session")
    if isinstance(entry, Message):
        return document
    if entry.severity is not None:
        document["severity"] = entry.severity
    if (task := entry.task) is not None:
        document["task"] = {
            "id": task.task_id,
            "name": task.name,
            "status": task.status,
            "run": task.run,
            "at": iso(task.at),
            "result": task.result,
            "output_path": task.output_path,
            "worktree": task.worktree,
            "usage": dict(task.usage or {}),
        }
    return document


def list_document(entries: Sequence[Waiting | Message]) -> Document:
    """What `inbox` and `wait` answer an agent (10.25)."""
    return {"messages": [entry_document(entry) for entry in entries], "notices": []}


def list_text(entries: Sequence[Waiting | Message], *, taken: bool) -> str:
    """What `inbox` prints for an agent: no text of another's can pass for a line of ours."""
    if not entries:
        return "Nothing waits.\n"
    text = "\n".join(map(entry_text, entries))
    return text if taken else f"{text}\n{len(entries)} waiting; `postroom inbox --take` takes them.\n"


def entry_text(entry: Waiting | Message) -> str:
    """One message to an agent, as any other is printed; an observer's report with its severity."""
    head, _, rest = present.message_text(letter_of(entry)).partition("\n")
    severity = None if isinstance(entry, Message) else entry.severity
    return f"{head}{f' [{severity}]' if severity else ''}\n{rest}"


VERBS: Mapping[str, Callable[[Control, Call, Agent], Awaitable[None]]] = {
    "send": send,
    "list": list_,
    "peers": list_,
    "inbox": inbox,
    "wait": wait,
}
"""What an agent may ask for, beside the tools; an observer has the tool `report_observation` and none of these."""

TOOL_OF: Mapping[str, str] = {
    "send": "SendMessage",
    "list": "ListAgents",
    "peers": "ListAgents",
    "inbox": "ReadMessages",
    "wait": "ReadMessages",
}
"""The tool that each of these verbs stands for."""
