"""What real clients said to their hooks, as it was recorded, and what is read from it (09.12)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from postroom import hook, lineage
from postroom.clients import CLIENTS, load
from postroom.core.inbound import MODES as CLASSED
from postroom.state.record import CLIENT_FILE, MAX_ID, TALK_FILE, is_session_id
from tests.hooking import RECORDED, TALK, recorded

FILES = sorted(RECORDED.glob("*/*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda each: f"{each.parent.name}/{each.stem}")
def test_a_recording_says_what_it_is_and_names_nobody(file: Any) -> None:
    document = json.loads(file.read_text())
    assert set(document) == {"program", "version", "recorded", "how", "above", "variables", "input"}
    assert document["input"]["hook_event_name"] == file.stem.partition("-")[0]
    assert "/tmp/clients" not in file.read_text()


@pytest.mark.rule("09.12")
@pytest.mark.parametrize("file", FILES, ids=lambda each: f"{each.parent.name}/{each.stem}")
def test_every_recorded_input_is_read(file: Any) -> None:
    client = load(file.parent.name)
    report = client.read(json.loads(file.read_text())["input"])
    assert report.session_id == TALK
    assert report.cwd == "/home/ada/proj"
    assert bool(report.agent) == file.stem.endswith("-subagent")
    assert report.stop_active == file.stem.endswith("-active")


READ = [
    ("claude-code", "SessionStart", {"source": "startup", "mode": None}),
    ("claude-code", "UserPromptSubmit", {"mode": "default"}),
    ("claude-code", "Stop", {"words": "ok", "mode": "default"}),
    ("codex", "SessionStart", {"source": "startup", "mode": "bypassPermissions"}),
    ("codex", "Stop", {"words": "ok"}),
    ("gemini-cli", "SessionStart", {"source": "startup", "mode": None}),
    ("gemini-cli", "BeforeTool", {"delegates": True}),
    ("gemini-cli", "AfterTool", {"delegates": False}),
    ("gemini-cli", "AfterAgent", {"words": "ok"}),
    ("qwen-code", "SessionStart", {"source": "startup", "mode": "yolo", "title": ""}),
    ("qwen-code", "Notification-auth_success", {"waits": "", "title": ""}),
    ("qwen-code", "Stop", {"words": "ok"}),
]


@pytest.mark.rule("09.12")
@pytest.mark.parametrize(("client", "event", "said"), READ, ids=str)
def test_what_a_recorded_input_says(client: str, event: str, said: dict[str, object]) -> None:
    report = load(client).read(recorded(client, event))
    assert {name: getattr(report, name) for name in said} == said


@pytest.mark.parametrize("client", ["claude-code", "codex", "qwen-code"])
def test_the_events_of_one_turn_bear_one_id(client: str) -> None:
    """And those of a turn that a hook has kept going too."""
    read = load(client).read
    turns = {read(recorded(client, event)).turn for event in ("UserPromptSubmit", "Stop", "Stop-active")}
    assert len(turns) == 1
    assert "" not in turns


@pytest.mark.rule("09.12", "03.4")
@pytest.mark.parametrize(
    ("client", "word", "mode"),
    [
        ("qwen-code", "auto_edit", "acceptEdits"),
        ("qwen-code", "auto-edit", "acceptEdits"),
        ("qwen-code", "yolo", "yolo"),
        ("claude-code", "bypassPermissions", "bypassPermissions"),
        ("claude-code", "warp", "warp"),
        ("codex", "dontAsk", "dontAsk"),
    ],
)
def test_a_permission_mode_is_read_in_our_words(client: str, word: str, mode: str) -> None:
    assert load(client).read({"permission_mode": word}).mode == mode


@pytest.mark.rule("09.12")
def test_what_cursor_says_by_its_documentation() -> None:
    read = load("cursor").read
    said = {
        "conversation_id": "c-1",
        "generation_id": "g-1",
        "workspace_roots": ["/proj", "/other"],
        "hook_event_name": "stop",
        "status": "completed",
        "loop_count": 0,
    }
    report = read(said)
    assert (report.session_id, report.turn, report.cwd, report.stop_active) == ("c-1", "g-1", "/proj", False)
    assert read({**said, "loop_count": 3}).stop_active is False
    assert read({**said, "loop_count": 4}).stop_active is True
    assert read({**said, "status": "aborted"}).stop_active is True
    assert read({"workspace_roots": [7]}).cwd == ""


@pytest.mark.rule("09.12")
@pytest.mark.parametrize("client", list(CLIENTS))
def test_fields_of_any_kind_are_read_without_an_error(client: str) -> None:
    names = (
        *(
            "session_id",
            "permission_mode",
            "cwd",
            "session_title",
            "last_assistant_message",
            "prompt",
            "agent_id",
        ),
        *("workspace_roots", "loop_count", "status", "notification_type", "tool_name", "prompt_response"),
    )
    values: list[object] = [None, 7, [], {}, True, "", "\ud800"]
    for value in values:
        load(client).read(dict.fromkeys(names, value))


@pytest.mark.parametrize("client", list(CLIENTS))
def test_every_event_is_named_as_it_is_called(client: str) -> None:
    """And every client with hooks says when a turn ends, if it says when one begins."""
    events = load(client).events
    assert all(name == event.name for name, event in events.items())
    kinds = {event.kind for event in events.values()}
    assert ("turn-start" in kinds) == ("turn-end" in kinds)
    assert {event.name for event in events.values() if event.kind == "session-start"} <= set(hook.STARTERS)


@pytest.mark.rule("09.12", "03.1")
@pytest.mark.parametrize("client", list(CLIENTS))
def test_every_mode_in_a_table_is_one_that_has_a_class(client: str) -> None:
    assert set(load(client).modes.values()) <= set(CLASSED)


# ── the short way has the same tables ────────────────────────────────────────────────────────────


@pytest.mark.rule("09.11", "12.16")
def test_the_short_way_knows_the_clients_as_their_files_do() -> None:
    clients = [load(name) for name in CLIENTS]
    assert {client.name: client.programs for client in clients} == hook.PROGRAMS
    assert {
        client.name: client.pid_variable for client in clients if client.pid_variable
    } == hook.PID_VARIABLES
    assert tuple(client.name for client in clients if client.threads) == hook.THREADS
    assert set(hook.BETWEEN) == lineage.SHELLS | lineage.LAUNCHERS
    waking = {event.name for client in clients for event in client.events.values() if event.kind == "wake"}
    assert waking == {hook.WAKE}


def test_the_short_way_takes_for_an_id_what_may_name_a_file() -> None:
    assert (CLIENT_FILE, TALK_FILE) == ("client-", "talk-")
    longest = "a" * MAX_ID
    for text in (
        TALK,
        "a_b",
        longest,
        longest + "a",
        "../x",
        "a/b",
        "a b",
        "",
        "-a",
        "talk-1",
        "client-1",
        "é",
    ):
        found = hook.conversation_of(json.dumps({"session_id": text}))
        assert found == (text if is_session_id(text) else ""), text


def test_the_conversation_is_seen_in_the_json_whatever_else_it_holds() -> None:
    seen = hook.conversation_of
    assert seen('{"session_id":"a-1","tool_input":{"session_id":"b-2"}}') == "a-1"
    assert seen('{"tool_input":"\\"session_id\\": \\"b-2\\"", "session_id" : "a-1"}') in ("a-1", "")
    assert seen('{"conversation_id": "c-1"}') == "c-1"
    assert seen('{"session_id": 7}') == ""
    assert seen('{"session_id') == ""
    assert seen("") == ""
    assert seen(9_000_000) == ""
