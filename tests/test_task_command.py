"""`postroom task`, and the task tools over MCP, on real processes (07.23, 09.9)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from mcp import types

from postroom.clients import mcp
from postroom.core import frame_text
from postroom.core.frames import TaskAssignment
from postroom.tools import TASK_TOOLS
from tests.desk import COMMAND, ROOMY, SECONDS, Desk, wait_until
from tests.mates import Mates
from tests.servers import Wire, command, document, said, through
from tests.strangers import private_desk
from tests.test_mcp import MOST_CHARACTERS


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A private place with a lead whose member is called schema, and bob, who has no team."""
    with private_desk() as desk:
        desk.settings(limits=ROOMY)
        desk.open("bob")
        teamed(desk, "lead")
        yield desk


def teamed(desk: Desk, name: str) -> Mates:
    """Opens a session that leads a team, with one member."""
    mates = Mates(desk, desk.open(name)["session_id"])
    mates.add("schema")
    wait_until(lambda: desk.run("--session", name, "task", "list").code == 0)
    return mates


def task(desk: Desk, *words: str, name: str = "lead") -> dict[str, Any]:
    """What a command of the lead answers."""
    return desk.ok("--session", name, "task", *words)


# ── by command ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.23", "10.37")
def test_the_life_of_a_task_by_command(desk: Desk) -> None:
    mates = teamed(desk, "lifelong")

    def run(*words: str) -> str:
        done = desk.run("--session", "lifelong", "task", *words)
        assert (done.code, done.err) == (0, "")
        return done.out

    assert run("list") == "There are no tasks.\n"
    assert run("create", "Plan it") == "Task 1 was made.\n1 · pending · Plan it\n"
    made = task(
        *(desk, "create", "Rename it", "--description", "All\nof it.", "--owner", "schema"),
        *("--blocked-by", "1", "--active-form", "Renaming it", "--metadata", '{"pr": 7}'),
        name="lifelong",
    )
    assert made["task"] == {
        "id": "2",
        "subject": "Rename it",
        "description": "All\nof it.",
        "activeForm": "Renaming it",
        "owner": "schema",
        "status": "pending",
        "blocks": [],
        "blockedBy": ["1"],
        "metadata": {"pr": 7},
        "waitsFor": ["1"],
    }
    assert (made["assigned"], made["unblocked"], made["warnings"]) == ("schema", [], [])
    (entry,) = mates.entries("schema")
    frame = frame_text.parse(entry.text)
    assert isinstance(frame, TaskAssignment)
    assert (frame.task_id, frame.assigned_by) == ("2", "team-lead")
    assert run("claim") == "Task 1 is yours.\n1 · in_progress · owner team-lead · Plan it\nblocks 2\n"
    assert "Nothing blocks 2 any more." in run("update", "1", "--status", "completed")
    assert run("list", "--status", "pending").splitlines() == ["2 · pending · owner schema · Rename it"]
    assert run("list", "--owner", "nobody") == "No task is like that.\n"
    assert run("get", "#2").splitlines()[-3:] == ["description:", "    All", "    of it."]
    assert task(desk, "get", "2", name="lifelong")["task"]["metadata"] == {"pr": 7}
    assert run("update", "2", "--status", "deleted") == "Task 2 was deleted.\n"
    listed = task(desk, "list", name="lifelong")
    assert [one["id"] for one in listed["tasks"]] == ["1"]
    assert (listed["unreadable"], listed["left_out"]) == ([], 0)


@pytest.mark.rule("07.23", "10.37")
def test_what_is_not_found_ends_with_three(desk: Desk) -> None:
    for words in (("get", "999"), ("update", "999", "--status", "completed"), ("claim", "999")):
        assert desk.refused("--session", "lead", "task", *words, code=3)["code"] == "task_not_found"
    for one in task(desk, "list")["tasks"]:
        task(desk, "update", one["id"], "--status", "completed")
    done = desk.run("--session", "lead", "task", "claim", "--json")
    assert (done.code, done.document["task"], done.err) == (3, None, "")


@pytest.mark.rule("07.23")
def test_a_refusal_is_a_code_and_two_sentences(desk: Desk) -> None:
    error = desk.refused("--session", "lead", "task", "create", "x", "--owner", "nobody")
    assert error["code"] == "invalid_task"
    assert error["message"].endswith("members are team-lead, schema.")
    assert desk.refused("--session", "bob", "task", "list")["code"] == "no_team"
    assert desk.refused("task", "list")["code"] == "no_session"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("create",), "the subject is missing"),
        (("get",), "the id of the task is missing"),
        (("update", "--status", "completed"), "the id of the task is missing"),
        (("list", "3"), "takes no word"),
        (("list", "--subject", "x"), "takes no --subject"),
        (("create", "x", "--status", "pending"), "takes no --status"),
        (("claim", "3", "--owner", "schema"), "takes no --owner"),
        (("get", "3", "--active-form", "x"), "takes no --active-form"),
    ],
)
@pytest.mark.rule("10.37")
def test_what_an_action_does_not_take_is_a_usage_error(desk: Desk, words: tuple[str, ...], says: str) -> None:
    error = desk.refused("--session", "lead", "task", *words, code=2)
    assert error["code"] == "usage"
    assert says in error["message"]


@pytest.mark.rule("01.21")
def test_a_denied_tool_is_a_denied_command(desk: Desk) -> None:
    denied = json.dumps({"permissions": {"deny": ["TaskCreate", "task_list"]}})
    desk.open("barred", "--settings", denied)
    for words in (("create", "x"), ("list",)):
        assert desk.refused("--session", "barred", "task", *words)["code"] == "denied_by_settings"
    assert desk.refused("--session", "barred", "task", "get", "1")["code"] == "no_team"


@pytest.mark.rule("07.23", "11.6")
def test_files_that_fail_are_named_to_a_person(desk: Desk) -> None:
    mates = teamed(desk, "unfit")
    task(desk, "create", "one", name="unfit")
    folder = desk.folder / "state" / "tasks" / mates.files.team
    folder.chmod(0o777)
    error = desk.refused("--session", "unfit", "task", "list")
    assert error["code"] == "unfit_path"
    assert str(folder) in error["message"]
    folder.chmod(0o700)
    assert len(task(desk, "list", name="unfit")["tasks"]) == 1


@pytest.mark.rule("07.22", "07.23")
def test_the_tasks_outlive_the_session_and_its_team(desk: Desk) -> None:
    mates = teamed(desk, "passing")
    task(desk, "create", "one", name="passing")
    desk.ok("--session", "passing", "close")
    opened = desk.ok("open", "--detach", "--resume", mates.id)
    assert opened["session_id"] == mates.id
    assert desk.refused("--session", mates.id, "task", "list")["code"] == "no_team"
    mates.add("schema")
    wait_until(lambda: desk.run("--session", mates.id, "task", "list").code == 0)
    assert [one["subject"] for one in task(desk, "list", name=mates.id)["tasks"]] == ["one"]
    desk.ok("--session", mates.id, "close")


# ── over MCP ─────────────────────────────────────────────────────────────────────────────────────

PLAIN = {"send_message", "list_agents", "read_messages"}
ALL = PLAIN | set(TASK_TOOLS)


def bounded(work: Callable[[], Awaitable[None]]) -> None:
    """Runs one test's work, bounded."""

    async def all_of_it() -> None:
        async with asyncio.timeout(2 * SECONDS):
            await work()

    asyncio.run(all_of_it())


@pytest.mark.rule("09.9")
def test_all_definitions_with_those_of_a_team_are_short() -> None:
    listed = mcp.definitions(tasks=True)
    assert {tool.name for tool in listed.tools} == ALL
    raw = listed.model_dump(by_alias=True, mode="json", exclude_none=True)
    assert len(json.dumps(raw, separators=(",", ":"), ensure_ascii=False)) <= MOST_CHARACTERS
    hints = {tool.name: tool.annotations for tool in listed.tools}
    for name in ("task_list", "task_get"):
        assert (hint := hints[name]) is not None
        assert hint.read_only_hint is True
    for name in ("task_create", "task_claim"):
        assert (hint := hints[name]) is not None
        assert (hint.read_only_hint, hint.destructive_hint) == (None, False)
    assert (hint := hints["task_update"]) is not None
    assert hint.destructive_hint is None  # it may delete: whoever asks a person about that does


@pytest.mark.rule("07.23", "09.9")
def test_a_client_hears_of_the_tools_of_a_team_and_uses_them(desk: Desk) -> None:
    """A member comes while the client is idle, and goes again."""

    async def work() -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()

        async def hear(message: Any) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                await heard.put("changed")

        async with through(desk, "--name", "teamster", message_handler=hear) as client:
            answer = client.initialize_result
            assert answer is not None
            assert answer.capabilities.tools is not None
            assert answer.capabilities.tools.list_changed is True
            assert {tool.name for tool in (await client.list_tools()).tools} == PLAIN
            early = await client.call_tool("task_list", {})
            assert early.is_error
            assert said(early).startswith("no_team: ")
            rows = (await asyncio.to_thread(desk.ok, "list", "teamster"))["rows"]
            mates = Mates(desk, rows[0]["session_id"])
            await asyncio.to_thread(mates.add, "schema")
            await heard.get()
            assert {tool.name for tool in (await client.list_tools()).tools} == ALL

            made = await client.call_tool("task_create", {"subject": "Rename it", "owner": "schema"})
            assert not made.is_error
            assert document(made)["assigned"] == "schema"
            assert len(mates.entries("schema")) == 1
            claimed = await client.call_tool("task_claim", {"taskId": "1"})
            assert claimed.is_error
            assert said(claimed).startswith("already_claimed: ")
            await asyncio.to_thread(mates.remove, "schema")
            await heard.get()
            assert {tool.name for tool in (await client.list_tools()).tools} == PLAIN
            assert heard.empty()

    bounded(work)


@pytest.mark.rule("07.23", "09.9", "11.1")
def test_a_server_that_attaches_has_the_tasks_of_that_session(desk: Desk) -> None:
    """The session lives in another process: a change is heard with a call."""
    argv = [COMMAND, "open", "--name", "attached", "--", *command()]

    def names(wire: Wire) -> set[str]:
        return {tool["name"] for tool in wire.ask("tools/list")["result"]["tools"]}

    def changed(wire: Wire) -> list[str]:
        found = [
            one["method"] for one in wire.passed if one.get("method") == "notifications/tools/list_changed"
        ]
        wire.passed.clear()
        return found

    with Wire(desk, argv=argv) as wire:
        wire.greet()
        [row] = desk.ok("list", "attached")["rows"]
        mates = Mates(desk, row["session_id"])
        assert wire.text("list_agents").startswith("This session is attached [")
        assert names(wire) == PLAIN
        mates.add("schema")
        wait_until(lambda: desk.run("--session", "attached", "task", "list").code == 0)
        assert changed(wire) == []
        assert wire.text("task_list") == "There are no tasks."
        assert changed(wire) == ["notifications/tools/list_changed"]
        assert names(wire) == ALL
        assert wire.text("task_create", {"subject": "one"}).startswith("Task 1 was made.")
        assert [one["id"] for one in task(desk, "list", name="attached")["tasks"]] == ["1"]
        assert changed(wire) == []
        wire.close()
