"""Who shows a message: hooks, tools and commands race for one inbox, and each message is shown by exactly one (11.1).

The cases that are named after a report are failing inputs of other programs of this field, in their whole kind.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.core.envelope import unframe
from tests.desk import COMMAND, Desk, Done, running, wait_until
from tests.hooking import Hooked, carried, hooked
from tests.posing import Posed
from tests.room import texts
from tests.strangers import private_desk
from tests.test_control import Client as Connection
from tests.test_hooks_command import name_of, steps, write
from tests.transports.ends import until

ROUNDS = 1_000
"""Of the race inside one process."""

REAL_ROUNDS = 30
"""Of the race between real processes."""


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A private place with bob, who writes."""
    with private_desk() as desk:
        desk.settings(
            bucketCapacity=500,
            refillPerSecond=50,
            totalCapacity=5000,
            totalRefillPerSecond=500,
            repeatSeconds=0,
        )
        desk.open("bob")
        yield desk


def shown_in(text: str) -> list[str]:
    """The ids of the messages that a model is shown in a text."""
    blocks = unframe(text)
    return [dict(each.attributes)["msg-id"] for each in blocks if each.name == "cross-session-message"]


def shown_by(done: Done) -> list[str]:
    """The ids of the messages in what a command or hook printed."""
    assert done.code == 0, done
    if not done.out:
        return []
    document: Any = json.loads(done.out)
    if "messages" in document:
        return [each["msg_id"] for each in document["messages"]]
    inner = document.get("hookSpecificOutput", document)
    return shown_in(inner.get("additionalContext") or inner.get("reason") or inner.get("text"))


@pytest.mark.rule("11.1", "09.5", "09.6")
def test_two_hooks_and_a_tool_race_a_thousand_times_and_one_shows_each(tmp_path: Path) -> None:
    """Over the control socket, and for the session's own loop; some end before they have printed."""
    dice = random.Random(33)

    async def ask(at: Hooked, connection: Connection, *argv: str, stdin: str) -> list[str]:
        """One of them; what it printed and said so counts."""
        await connection.ask(*argv, stdin=stdin)
        text = ""
        try:
            while True:
                kind, _, out, _ = await connection.frame()
                if kind == "confirm":
                    if dice.random() < 0.1:
                        connection.close()  # ended in the middle
                        return []
                    text = out
                    await connection.say(b"ok\n")
                if kind == "done":
                    break
        finally:
            connection.close()
        if not text:
            return []
        if argv[0] == "tool":
            return shown_in(json.loads(text)["text"])
        return shown_in(carried(at.client, argv[2], text))

    async def work(at: Hooked) -> None:
        seen: Counter[str] = Counter()
        sent: list[str] = []
        for number in range(ROUNDS):
            if dice.random() < 0.7:
                sent.append(at.mail(f"message {number}"))
            asked = [
                ("hook", "claude-code", "PostToolUse", at.said("PostToolUse")),
                ("hook", "claude-code", "Stop", at.said("Stop")),
                ("tool", "read_messages", "{}"),
            ]
            dice.shuffle(asked)
            running_now = [
                asyncio.ensure_future(ask(at, await at.desk.client(), *each[:-1], stdin=each[-1]))
                for each in asked
            ]
            if dice.random() < 0.2:
                lease = at.session.take()
                at.session.confirm(lease)
                seen.update(message.msg_id for message in lease.messages)
            for ids in await asyncio.gather(*running_now):
                seen.update(ids)
            at.desk.clients.clear()
        await until(lambda: not at.session._activity.leases)  # pyright: ignore[reportPrivateUsage]
        seen.update(message.msg_id for message in at.session.take().messages)
        assert seen == Counter(sent)
        assert len(sent) > ROUNDS / 2

    hooked(tmp_path, work)


@pytest.mark.rule("11.1")
def test_report_33_a_manual_read_and_a_stop_hook_race_on_one_inbox(desk: Desk) -> None:
    """Real processes, started at once: what is shown is shown by exactly one, and nothing is gone."""
    posed = Posed(desk, conversation="conv-race")
    posed.hook("SessionStart", source="startup")
    session = posed.session()
    seen: Counter[str] = Counter()
    sent: list[str] = []
    for number in range(REAL_ROUNDS):
        sent.append(write(desk, posed, f"message {number}"))
        racing = [
            posed.start(COMMAND, "inbox", "--take", "--json"),
            posed.begin("Stop", stop_hook_active=False),
            posed.begin("PostToolUse"),
        ]
        for each in racing:
            seen.update(shown_by(each.done()))
    seen.update(each["msg_id"] for each in desk.take(session))
    assert seen == Counter(sent)
    posed.end()


@pytest.mark.rule("11.1")
@pytest.mark.parametrize("reader", ["PostToolUse", "Stop", "inbox"])
def test_report_33_what_was_claimed_and_not_shown_can_be_read_again(desk: Desk, reader: str) -> None:
    """The one that was faster is killed with the mail in its hands."""
    posed = Posed(desk, conversation=f"conv-claimed-{reader}")
    posed.hook("SessionStart", source="startup")
    session = posed.session()
    msg_id = write(desk, posed, "claimed")
    (row,) = [row for row in desk.ok("list")["rows"] if row["session_id"] == session]
    command = (
        [COMMAND, "inbox", "--take", "--json"]
        if reader == "inbox"
        else [COMMAND, "hook", "claude-code", reader]
    )
    os.kill(row["pid"], signal.SIGSTOP)  # it cannot answer yet, so the reader is in the middle
    claiming = posed.start(*command, stdin=posed.event(reader), shell=False)
    os.kill(claiming.pid, signal.SIGKILL)
    os.kill(row["pid"], signal.SIGCONT)
    assert claiming.done().code == -signal.SIGKILL
    wait_until(
        lambda: [each["msg_id"] for each in desk.ok("--session", session, "inbox")["messages"]] == [msg_id]
    )
    assert shown_by(posed.hook("PostToolUse")) == [msg_id]
    posed.end()


@pytest.mark.rule("11.1", "11.4", "05.12")
@pytest.mark.parametrize("event", ["SessionStart", "UserPromptSubmit", "PostToolUse", "Stop"])
def test_report_35_what_was_read_is_not_read_again_after_a_restart(desk: Desk, event: str) -> None:
    """By the client's end, by the session's crash, and by both."""
    conversation = f"conv-restart-{event}"
    posed = Posed(desk, conversation=conversation)
    posed.hook("SessionStart", source="startup")
    session = posed.session()
    msg_id = write(desk, posed, f"act on this once, at {event}")
    assert shown_by(posed.hook(event)) == [msg_id]
    posed.end()
    posed = Posed(desk, conversation=conversation)
    assert posed.hook("SessionStart", source="resume") == Done(0, "", "")
    assert posed.session() == session
    (row,) = [row for row in desk.ok("list")["rows"] if row["session_id"] == session]
    os.kill(row["pid"], signal.SIGKILL)
    wait_until(lambda: not running(row["pid"]))
    assert posed.hook("SessionStart", source="resume") == Done(0, "", "")
    for each in ("UserPromptSubmit", "PostToolUse", "Stop"):
        assert shown_by(posed.hook(each)) == []
    assert steps(desk, msg_id, session)[-2:] == ["leased", "consumed"]
    posed.end()


@pytest.mark.rule("11.1", "11.2")
def test_report_25_what_comes_in_the_middle_of_a_turn_is_queued_and_not_read(desk: Desk) -> None:
    """Until an event of the turn has carried it: for the sender, for whoever looks, and in the journal."""
    posed = Posed(desk, conversation="conv-midturn")
    posed.hook("SessionStart", source="startup")
    session = posed.session()
    posed.hook("UserPromptSubmit", prompt="a long job")
    result = desk.send("bob", name_of(desk, session), "in the middle")
    assert result["status"] == "queued"
    assert "Not read yet" in result["note"]
    (waiting,) = desk.ok("--session", session, "inbox")["messages"]
    assert (waiting["msg_id"], waiting["state"]) == (result["msg_id"], "accepted")
    assert "consumed" not in steps(desk, result["msg_id"], session)
    assert shown_by(posed.hook("PostToolUse")) == [result["msg_id"]]
    assert steps(desk, result["msg_id"], session)[-1] == "consumed"
    posed.end()


@pytest.mark.rule("11.1", "11.4", "09.12")
def test_report_26_a_message_seen_while_busy_survives_a_crash_and_comes_once(desk: Desk) -> None:
    """A reader has it in its hands, and then the session's process is killed."""
    posed = Posed(desk, conversation="conv-crash")
    posed.hook("SessionStart", source="startup")
    session = posed.session()
    posed.hook("UserPromptSubmit", prompt="a long job")
    msg_id = write(desk, posed, "seen while busy")
    state = Path(desk.environ["POSTROOM_HOME"]) / "sessions" / session
    token, path = (state / "client.token").read_text().split("\n")[:2]

    async def hold() -> None:
        """Takes the hook's answer and never says that it was printed."""
        reader, writer = await asyncio.open_unix_connection(path)
        request = {"argv": ["hook", "claude-code", "PostToolUse"], "stdin": posed.event("PostToolUse")}
        writer.write(json.dumps({"type": "auth", "token": token}).encode() + b"\n")
        writer.write(json.dumps(request).encode() + b"\n")
        await reader.readuntil(b"confirm")
        (row,) = [row for row in desk.ok("list")["rows"] if row["session_id"] == session]
        os.kill(row["pid"], signal.SIGKILL)
        writer.close()

    asyncio.run(asyncio.wait_for(hold(), 30))
    found = posed.said("SessionStart", source="resume")["hookSpecificOutput"]["additionalContext"]
    assert shown_in(found) == [msg_id]
    assert 'redelivered="yes"' in found
    assert shown_by(posed.hook("PostToolUse")) == []
    assert steps(desk, msg_id, session).count("consumed") == 1
    posed.end()


@pytest.mark.rule("11.1", "09.12", "10.3")
def test_report_28_what_a_client_did_not_take_can_still_be_fetched(desk: Desk) -> None:
    """A hook whose output nobody reads has delivered nothing; looking takes nothing, fetching takes it once."""
    posed = Posed(desk, conversation="conv-ignored")
    posed.hook("SessionStart", source="startup")
    session = posed.session()
    msg_id = write(desk, posed, "pushed and ignored")
    assert posed.start(
        COMMAND, "hook", "claude-code", "PostToolUse", stdin=posed.event("PostToolUse"), closed=True
    ).done() == Done(0, "", "")
    wait_until(lambda: steps(desk, msg_id, session)[-1] == "accepted")
    for _ in range(2):
        assert [each["msg_id"] for each in desk.ok("--session", session, "inbox")["messages"]] == [msg_id]
    assert [each["msg_id"] for each in desk.take(session)] == [msg_id]
    assert desk.take(session) == []
    posed.end()


def test_report_28_a_hook_that_only_looks_takes_nothing(tmp_path: Path) -> None:
    """Events that carry no text leave what waits where it is."""

    async def work(at: Hooked) -> None:
        at.mail("hello")
        for event in ("Notification", "SessionEnd", "StopFailure"):
            assert await at.hook(event) == ""
        assert await at.hook("Stop", stop_hook_active=True) == ""
        assert texts(at.session.peek()) == ["hello"]

    hooked(tmp_path, work)
