"""The model that the scenarios of real clients are scripted by, and what becomes of a client that is not there."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.clients import __main__ as run
from tests.clients.dialects import Body, Call, Item, Say, Tool
from tests.clients.install import PARTNERS, PLACE, install
from tests.clients.model import Model, call, decide, directives, offered, say, serving

SEND = call("postroom/send_message", to="b", message=f"{call('postroom/list_agents')} {say('ANSWERED')}")
TOOLS = [Tool(name="mcp__postroom__send_message"), Tool(name="Bash")]


def user(text: str) -> Item:
    return Item(role="user", text=text)


def test_what_a_message_says_is_not_the_senders_script() -> None:
    (only,) = directives(SEND)
    assert isinstance(only, tuple)
    assert only[0] == "postroom/send_message"
    assert directives(only[1]["message"]) == [("postroom/list_agents", {}), "ANSWERED"]


@pytest.mark.parametrize("text", ["%%call x {no json}%%", "%%call x {} and no end", "%%say no end", "%%"])
def test_what_is_no_directive_is_none(text: str) -> None:
    assert directives(text) == []


def test_one_call_after_the_other_then_the_words() -> None:
    items = [user(f"{SEND} {call('Bash', command='ls')} {say('READY')}")]
    first = decide(items, TOOLS)
    assert isinstance(first, Call)
    assert first.tool == TOOLS[0]
    items += [Item(role="call", text="…"), Item(role="result", text="queued")]
    second = decide(items, TOOLS)
    assert second == Call(tool=TOOLS[1], arguments={"command": "ls"})
    items += [Item(role="call", text="…"), Item(role="result", text="listed")]
    assert decide(items, TOOLS) == Say(text="READY")


def test_the_newest_text_rules_and_the_models_own_never() -> None:
    items = [user(say("OLD")), Item(role="assistant", text=say("MINE")), Item(role="system", text=say("NEW"))]
    assert decide(items, TOOLS) == Say(text="NEW")


def test_without_tools_nothing_is_obeyed() -> None:
    assert decide([user(SEND)], []) == Say(text="done")


@pytest.mark.parametrize(
    "tool",
    [
        Tool(name="mcp__postroom__send_message"),
        Tool(name="mcp_postroom_send_message"),
        Tool(name="postroom_send_message"),
        Tool(name="send_message", space="mcp__postroom"),
    ],
)
def test_a_tool_has_each_clients_name_for_it(tool: Tool) -> None:
    others = [Tool(name="send_message"), Tool(name="mcp__other__send_message")]
    assert offered("postroom/send_message", [*others, tool]) == tool
    assert offered("postroom/send_message", others) == Tool(name="mcp__postroom__send_message")


TOLD = "which column is it"

ASKED: dict[str, tuple[str, Body]] = {
    "messages": (
        "/v1/messages",
        {"messages": [{"role": "user", "content": TOLD}], "tools": [{"name": "Bash"}]},
    ),
    "responses": (
        "/v1/responses",
        {
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": TOLD}]}],
            "tools": [{"type": "function", "name": "Bash"}],
        },
    ),
    "completions": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": [{"type": "text", "text": TOLD}]}],
            "tools": [{"type": "function", "function": {"name": "Bash"}}],
        },
    ),
    "generate": (
        "/v1beta/models/scripted:generateContent",
        {
            "contents": [{"role": "user", "parts": [{"text": TOLD}]}],
            "tools": [{"functionDeclarations": [{"name": "Bash"}]}],
        },
    ),
}


def post(model: Model, path: str, body: Body) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{model.port}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize("name", ASKED)
def test_every_dialect_is_read_into_the_same(name: str) -> None:
    path, body = ASKED[name]
    with serving() as model:
        answer = post(model, path, body)
        asked = model.told(TOLD)
    assert asked.items == (user(TOLD),)
    assert asked.tools == (Tool(name="Bash"),)
    assert '"done"' in json.dumps(answer)


def test_a_wait_that_is_not_met_says_what_there_was() -> None:
    with serving() as model:
        post(model, *ASKED["messages"])
        with pytest.raises(AssertionError, match=TOLD):
            model.told("never said", seconds=0)


def test_a_client_that_is_not_there_is_reported_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLACE, str(tmp_path))
    said: list[str] = []
    found = install(["codex"], said.append)
    assert found["codex"].command == ()
    assert "codex" in found["codex"].failed
    assert "FAILED" in said[0]


def test_a_client_of_another_version_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = PARTNERS["gemini-cli"]
    package = tmp_path / "npm" / "gemini" / "node_modules" / wanted.package
    (package / "bundle").mkdir(parents=True)
    (package / "bundle" / "gemini.js").touch()
    monkeypatch.setenv(PLACE, str(tmp_path))
    described = package / "package.json"
    said: list[str] = []
    described.write_text(json.dumps({"version": "0.0.1"}))
    assert install(["gemini-cli"], said.append)["gemini-cli"].failed
    described.write_text(json.dumps({"version": wanted.version}))
    assert install(["gemini-cli"], said.append)["gemini-cli"].command[-1] == str(
        package / "bundle" / "gemini.js"
    )


def test_a_name_that_there_is_not_is_a_mistake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tests.clients", "--only", "claude"])
    with pytest.raises(SystemExit):
        run.main()
    assert "claude-code" in capsys.readouterr().err
