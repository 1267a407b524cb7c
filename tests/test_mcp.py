"""The MCP server on real processes, as the official SDK's own client sees it (09.9, 09.10)."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest
from mcp import Client, StdioServerParameters, types
from mcp.client.stdio import stdio_client

from postroom.clients import asking, mcp
from postroom.clients.asking import DROP, LET_IN
from postroom.core import contract
from postroom.core.envelope import unframe
from postroom.state import belongings
from tests.desk import COMMAND, ROOMY, SECONDS, Desk, wait_until
from tests.doorsteps import Here
from tests.room import Room
from tests.servers import command, document, said, through
from tests.strangers import private_desk

if TYPE_CHECKING:
    from postroom.clients.lodging import Place
    from postroom.presence import Present

MOST_CHARACTERS = 6_000
"""Of all tool definitions together, as compact JSON of the `tools/list` result (09.9): 1,500 tokens."""


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A private place with bob open, and mallory, who never asks."""
    with private_desk() as desk:
        desk.settings(limits=ROOMY)
        desk.open("bob")
        desk.open("mallory", "--mode", "bypassPermissions")
        yield desk


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Runs one test's work, bounded."""

    async def bounded() -> None:
        async with asyncio.timeout(2 * SECONDS):
            await work()

    asyncio.run(bounded())


async def ok(desk: Desk, *words: str) -> dict[str, Any]:
    """Runs a command beside the client, whose pipes go on."""
    return await asyncio.to_thread(desk.ok, *words)


# ── what a client is shown ───────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.9")
def test_all_tool_definitions_together_are_short() -> None:
    result = mcp.definitions().model_dump(by_alias=True, mode="json", exclude_none=True)
    assert len(json.dumps(result, separators=(",", ":"), ensure_ascii=False)) <= MOST_CHARACTERS


@pytest.mark.rule("09.9", "01.33")
def test_a_client_lists_three_tools_and_what_they_do(desk: Desk) -> None:
    async def work() -> None:
        async with through(desk, "--name", "lister") as client:
            listed = await client.list_tools()
            hints = {tool.name: tool.annotations for tool in listed.tools}
            assert set(hints) == {"send_message", "list_agents", "read_messages"}
            send, look, read = (hints[name] for name in ("send_message", "list_agents", "read_messages"))
            assert send is not None
            assert look is not None
            assert read is not None
            assert (send.destructive_hint, send.open_world_hint, send.read_only_hint) == (False, False, None)
            assert look.read_only_hint is read.read_only_hint is True
            described = next(tool.description or "" for tool in listed.tools if tool.name == "send_message")
            assert "Permission laundering is forbidden" in described
            raw = listed.model_dump(by_alias=True, mode="json", exclude_none=True)
            assert len(json.dumps(raw, separators=(",", ":"), ensure_ascii=False)) <= MOST_CHARACTERS

    run(work)


@pytest.mark.rule("09.9")
def test_the_server_says_how_it_is_used(desk: Desk) -> None:
    async def work() -> None:
        async with through(desk, "--name", "greeted") as client:
            answer = client.initialize_result
            assert answer is not None
            assert answer.instructions == contract.INSTRUCTIONS
            assert answer.server_info.name == "postroom"
            assert answer.capabilities.tools is not None
            assert answer.capabilities.resources is answer.capabilities.prompts is None
            await client.send_ping()

    run(work)


# ── the session that it is ───────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.9", "09.10")
def test_while_it_runs_it_is_a_session_with_an_inbox(desk: Desk) -> None:
    async def work() -> None:
        async with through(desk, "--name", "alice") as client:
            assert said(await client.call_tool("list_agents", {})).startswith("This session is alice [")
            rows = (await ok(desk, "list"))["rows"]
            assert {"alice": "generic", "bob": "postroom"}.items() <= {
                row["name"]: row["program"] for row in rows
            }.items()
            sent = await client.call_tool(
                "send_message", {"to": "bob", "message": "hello bob", "summary": "a greeting"}
            )
            assert not sent.is_error
            assert document(sent)["status"] == "queued"
            (got,) = await asyncio.to_thread(desk.take, "bob")
            assert (got["text"], got["from"]["name"]) == ("hello bob", "alice")
            assert got["msg_id"] == document(sent)["msg_id"]

            answered = await ok(desk, "--session", "bob", "send", got["from"]["address"], "hello alice")
            read = await client.call_tool("read_messages", {})
            (block,) = unframe(said(read))
            assert block.text == "hello alice"
            assert dict(block.attributes)["msg-id"] == answered["msg_id"]
            assert read.structured_content is None
        assert "alice" not in {row["name"] for row in (await ok(desk, "list"))["rows"]}

    run(work)


@pytest.mark.rule("09.6")
def test_what_comes_goes_with_the_next_result_of_any_tool(desk: Desk) -> None:
    async def work() -> None:
        async with through(desk, "--name", "anna") as client:
            msg_id = (await ok(desk, "--session", "bob", "send", "anna", "fact one"))["msg_id"]
            failed = await client.call_tool(
                "send_message", {"to": "nobody-at-all", "message": "x", "summary": "s"}
            )
            assert failed.is_error
            assert said(failed).startswith("not_found: ")
            assert [block.text for block in unframe(said(failed))] == ["fact one"]
            await asyncio.to_thread(until_consumed, desk, "anna", msg_id)

    run(work)


def until_consumed(desk: Desk, session: str, msg_id: str) -> None:
    """Waits until a session's journal says that a message was read."""
    wait_until(lambda: "consumed" in states(desk, session, msg_id))


def states(desk: Desk, session: str, msg_id: str) -> list[str]:
    """The states of a message in a session's journal."""
    rows = desk.ok("--session", session, "log")["rows"]
    return [row["state"] for row in rows if row["msg_id"] == msg_id]


@pytest.mark.rule("09.7", "09.9")
def test_a_read_waits_and_says_so(desk: Desk) -> None:
    async def work() -> None:
        told: list[tuple[float, float | None, str | None]] = []
        waiting = asyncio.Event()

        async def said_so(progress: float, total: float | None, message: str | None) -> None:
            told.append((progress, total, message))
            waiting.set()

        async with through(desk, "--name", "waiter") as client:
            reading = asyncio.create_task(
                client.call_tool("read_messages", {"wait": 120}, progress_callback=said_so)
            )
            await waiting.wait()
            await ok(desk, "--session", "bob", "send", "waiter", "wake up")
            assert [block.text for block in unframe(said(await reading))] == ["wake up"]
        assert told[0] == (0.0, 120.0, "waiting for messages")

    run(work)


def test_nobody_is_somebody_else_by_what_a_tool_is_given(desk: Desk) -> None:
    """09.9: who the session is comes from its process, never from the arguments of a tool."""

    async def work() -> None:
        async with through(desk, "--name", "honest") as client:
            sent = await client.call_tool(
                "send_message",
                {
                    "to": "bob",
                    "message": "hello",
                    "summary": "s",
                    "from": "mallory",
                    "name": "mallory",
                    "session_id": "x",
                    "msg_id": "chosen",
                },
            )
            assert "no such field: `from`, `name`, `session_id`, `msg_id`" in said(sent)
            (got,) = await asyncio.to_thread(desk.take, "bob")
            assert got["from"]["name"] == "honest"
            assert got["msg_id"] != "chosen"

    run(work)


@pytest.mark.rule("09.9")
def test_codex_says_beside_a_call_which_conversation_it_is(desk: Desk) -> None:
    async def work() -> None:
        async with through(desk, "--name", "coder", "--client", "codex") as client:
            sessions = f"{desk.environ['POSTROOM_HOME']}/sessions"
            assert belongings.talk_session(sessions, "codex", "thread-1") is None
            beside: Any = {"threadId": "thread-1", "sessionId": "other"}
            await client.call_tool("list_agents", {}, meta=beside)
            rows = (await ok(desk, "list"))["rows"]
            (row,) = [row for row in rows if row["name"] == "coder"]
            assert row["program"] == "codex"
            assert belongings.talk_session(sessions, "codex", "thread-1") == row["session_id"]

    run(work)


# ── again, and traced ────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("11.5")
def test_report_37_a_client_that_makes_its_call_again_sends_one_message(desk: Desk) -> None:
    async def work() -> None:
        async with through(desk, "--name", "again") as client:
            call = {"to": "bob", "message": "do it once", "summary": "s"}
            use: Any = {"claudecode/toolUseId": "toolu_0123"}
            another: Any = {"claudecode/toolUseId": "toolu_0124"}
            results = [
                await client.call_tool("send_message", call, meta=use),
                await client.call_tool("send_message", {**call, "in_reply_to": None}, meta=use),
                await client.call_tool("send_message", call, meta=another),
                await client.call_tool("send_message", call),
            ]
            ids = [document(result)["msg_id"] for result in results]
            assert ids[0] == ids[1]
            assert len(set(ids)) == 3
            got = await asyncio.to_thread(desk.take, "bob")
            assert [message["msg_id"] for message in got] == ids[1:]

    run(work)


@pytest.mark.rule("09.9")
def test_the_trace_of_a_call_comes_back_and_stands_in_the_journal(desk: Desk) -> None:
    async def work() -> None:
        trace: Any = {
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "tracestate": "vendor=one",
        }
        async with through(desk, "--name", "traced") as client:
            sent = await client.call_tool(
                "send_message", {"to": "bob", "message": "traced", "summary": "s"}, meta=trace
            )
            assert {key: (sent.meta or {}).get(key) for key in trace} == trace
            msg_id = document(sent)["msg_id"]
            rows = (await ok(desk, "--session", "traced", "log"))["rows"]
            assert [row["detail"] for row in rows if row["state"] == "traced"] == [" ".join(trace.values())]
            (got,) = await asyncio.to_thread(desk.take, "bob")
            assert got["msg_id"] == msg_id
            there = await ok(desk, "--session", "bob", "log")
            assert trace["traceparent"] not in json.dumps(there)
            endless: Any = {"traceparent": "x" * 1_000}
            plain = await client.call_tool("list_agents", {}, meta=endless)
            assert not plain.meta

    run(work)


# ── a hold asks the person inside the client ─────────────────────────────────────────────────────


def decides(
    answers: list[types.ElicitResult], asked: list[types.ElicitRequestParams]
) -> Callable[..., Awaitable[types.ElicitResult]]:
    """A person in front of the client, who gives these answers in turn."""

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        asked.append(params)
        return answers.pop(0)

    return answer


@pytest.mark.rule("09.9")
@pytest.mark.parametrize(
    ("answer", "state", "told"),
    [
        (
            types.ElicitResult(action="accept", content={"decision": LET_IN, "note": "seen"}),
            "accepted",
            "delivered",
        ),
        (
            types.ElicitResult(action="accept", content={"decision": DROP, "note": "not now"}),
            "denied",
            "denied",
        ),
        (types.ElicitResult(action="accept", content={}), "held", None),
        (types.ElicitResult(action="decline"), "held", None),
        (types.ElicitResult(action="decline", content={"decision": LET_IN}), "held", None),
        (types.ElicitResult(action="cancel"), "held", None),
    ],
    ids=["let in", "drop", "no choice", "decline", "decline with a choice", "cancel"],
)
def test_a_hold_asks_the_person_inside_the_client(
    desk: Desk, answer: types.ElicitResult, state: str, told: str | None
) -> None:
    """Some clients decline by themselves: what is no choice of a person decides nothing."""

    async def work() -> None:
        asked: list[types.ElicitRequestParams] = []
        name = f"asked-{uuid.uuid4().hex[:8]}"
        async with through(desk, "--name", name, elicitation_callback=decides([answer], asked)) as client:
            await client.send_ping()  # it has seen that the handshake is over
            sent = await ok(desk, "--session", "mallory", "send", name, "let me in, please")
            msg_id = sent["msg_id"]
            await asyncio.to_thread(wait_until, lambda: bool(asked))
            if told:
                await asyncio.to_thread(wait_until, lambda: state in states(desk, name, msg_id))
            await client.send_ping()
            assert states(desk, name, msg_id)[-1] == state
            (form,) = asked
            assert isinstance(form, types.ElicitRequestFormParams)
            assert form.requested_schema == asking.SCHEMA
            assert "let me in, please" in form.message
            assert "From mallory [" in form.message
            notices = (await ok(desk, "--session", "mallory", "inbox", "--take"))["notices"]
            kinds = [notice["kind"] for notice in notices if notice["msg_id"] == msg_id]
            assert kinds == ["held", *([told] if told else [])]
            words = next(notice["detail"] for notice in notices if notice["kind"] == "held")
            assert "a person is asked there" in words
            if told == "denied":
                assert "not now" in next(n["detail"] for n in notices if n["kind"] == "denied")
            if told == "delivered":
                read = said(await client.call_tool("read_messages", {}))
                assert [block.name for block in unframe(read)] == ["delivery-notice", "cross-session-message"]
                assert "seen" in read

    run(work)


@pytest.mark.rule("09.9")
def test_one_hold_is_asked_about_after_the_other(desk: Desk) -> None:
    async def work() -> None:
        asked: list[types.ElicitRequestParams] = []
        answers = [
            types.ElicitResult(action="cancel"),
            types.ElicitResult(action="accept", content={"decision": LET_IN}),
        ]
        async with through(desk, "--name", "twice", elicitation_callback=decides(answers, asked)) as client:
            for text in ("first", "second"):
                await ok(desk, "--session", "mallory", "send", "twice", text)
            await asyncio.to_thread(wait_until, lambda: len(asked) == 2)
            read = await client.call_tool("read_messages", {"wait": SECONDS})
            assert [block.text for block in unframe(said(read)) if block.name != "delivery-notice"] == [
                "second"
            ]
            assert len((await ok(desk, "--session", "twice", "held"))["held"]) == 1

    run(work)


@pytest.mark.rule("09.9")
def test_a_client_that_cannot_ask_is_not_asked(desk: Desk) -> None:
    async def work() -> None:
        async with through(desk, "--name", "mute") as client:
            await ok(desk, "--session", "mallory", "send", "mute", "let me in")
            await client.send_ping()
            held = (await ok(desk, "--session", "mute", "held"))["held"]
            assert len(held) == 1
            notices = (await ok(desk, "--session", "mallory", "inbox", "--take"))["notices"]
            assert "nobody can approve it there" in notices[-1]["detail"]

    run(work)


@pytest.mark.rule("09.9")
def test_a_client_for_the_terminal_that_has_none_is_not_asked(desk: Desk) -> None:
    """Nobody sits in front of it, whatever it says that it can ask; Codex answers for a person then."""

    async def work() -> None:
        asked: list[types.ElicitRequestParams] = []
        async with through(
            desk, "--name", "headless", "--client", "codex", elicitation_callback=decides([], asked)
        ) as client:
            await ok(desk, "--session", "mallory", "send", "headless", "let me in")
            await client.send_ping()
            assert not asked
            notices = (await ok(desk, "--session", "mallory", "inbox", "--take"))["notices"]
            assert "nobody can approve it there" in notices[-1]["detail"]

    run(work)


# ── where the session lives elsewhere ────────────────────────────────────────────────────────────


@pytest.mark.rule("09.9", "11.1")
def test_inside_open_it_attaches_to_that_session(desk: Desk) -> None:
    async def work() -> None:
        argv = [COMMAND, "open", "--name", "carol", "--", *command("--name", "ignored")]
        async with through(desk, argv=argv) as client:
            assert said(await client.call_tool("list_agents", {})).startswith("This session is carol [")
            names = {row["name"] for row in (await ok(desk, "list"))["rows"]}
            assert "carol" in names
            assert "ignored" not in names
            sent = await client.call_tool(
                "send_message", {"to": "bob", "message": "from inside", "summary": "s"}
            )
            assert document(sent)["status"] == "queued"
            (got,) = await asyncio.to_thread(desk.take, "bob")
            assert (got["text"], got["from"]["name"]) == ("from inside", "carol")

            answered = await ok(desk, "--session", "bob", "send", "carol", "back to you")
            read = await client.call_tool("read_messages", {"wait": SECONDS})
            assert [block.text for block in unframe(said(read))] == ["back to you"]
            await asyncio.to_thread(until_consumed, desk, "carol", answered["msg_id"])

            waiting = asyncio.create_task(client.call_tool("read_messages", {"wait": SECONDS}))
            await ok(desk, "--session", "bob", "send", "carol", "and again")
            assert [block.text for block in unframe(said(await waiting))] == ["and again"]
            wrong = await client.call_tool("send_message", {"to": "*", "message": "x", "summary": "s"})
            assert wrong.is_error
            assert said(wrong).startswith("broadcast_unsupported: ")
            large = await client.call_tool(
                "send_message", {"to": "bob", "message": "x" * 1_100_000, "summary": "s"}
            )
            assert said(large).startswith("message_too_large: ")

    run(work)


@pytest.mark.rule("09.9")
def test_a_second_server_of_one_client_attaches_to_the_first_one_s_session(desk: Desk) -> None:
    both = (
        "import subprocess, sys\n"
        "command = sys.argv[1:]\n"
        "first = subprocess.Popen([*command, '--name', 'first'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        'first.stdin.write(b\'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n\')\n'
        "first.stdin.flush()\n"
        "first.stdout.readline()\n"
        "code = subprocess.call([*command, '--name', 'second'])\n"
        "first.stdin.close()\n"
        "first.stdout.close()\n"
        "first.wait()\n"
        "sys.exit(code)\n"
    )

    async def work() -> None:
        async with through(desk, argv=[sys.executable, "-c", both, COMMAND, "mcp"]) as client:
            assert said(await client.call_tool("list_agents", {})).startswith("This session is first [")
            assert "second" not in {row["name"] for row in (await ok(desk, "list"))["rows"]}

    run(work)


def test_a_session_whose_process_has_gone_is_said_to_be_gone(desk: Desk) -> None:
    """The server that was attached to it answers all the same."""

    async def work() -> None:
        argv = [COMMAND, "open", "--name", "dora", "--", sys.executable, "-c", ORPHAN, COMMAND, "mcp"]
        async with through(desk, argv=argv) as client:
            assert said(await client.call_tool("list_agents", {})).startswith("This session is dora [")
            (row,) = [row for row in (await ok(desk, "list"))["rows"] if row["name"] == "dora"]
            await asyncio.to_thread(desk.kill, row)
            gone = await client.call_tool("send_message", {"to": "bob", "message": "x", "summary": "s"})
            assert gone.is_error
            assert said(gone).startswith("no_session: ")

    run(work)


ORPHAN = "import subprocess, sys\nsys.exit(subprocess.call(sys.argv[1:]))\n"


# ── versions ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.10")
def test_the_sdk_s_client_that_begins_with_a_probe_is_served(desk: Desk) -> None:
    """It asks first whether it can do without a handshake, is told no, and shakes hands."""

    async def work() -> None:
        program, *arguments = command("--name", "prober")
        parameters = StdioServerParameters(command=program, args=arguments, env=desk.environ, cwd=desk.folder)
        async with Client(stdio_client(parameters)) as client:
            listed = await client.list_tools()
            assert len(listed.tools) == 3
            assert said(await client.call_tool("list_agents", {})).startswith("This session is prober [")

    run(work)


@pytest.mark.rule("09.16")
def test_a_call_has_the_doors_looked_at_again_as_long_as_none_of_them_wakes() -> None:
    """Of a program without hooks it is the only sign of a turn."""

    async def work() -> None:
        room = Room()
        async with room.open("bob") as bob:
            serving = mcp.Serving()
            serving.lodge(cast("Place", None), cast("Present", Here(bob)))
            learn = serving._learn  # pyright: ignore[reportPrivateUsage]
            learn({})
            assert bob.reports == 0
            bob.reached("consumed", False)
            learn({})
            assert bob.reports == 1

    run(work)
