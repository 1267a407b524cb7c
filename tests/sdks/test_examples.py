"""The examples on SDKs that nobody here wrote: what was sent while a tool ran is in the next request, and only there."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.clients.dialects import Call, Item, Say, Step, Tool
from tests.clients.model import serving
from tests.sdks.conftest import Example
from tests.sdks.install import CHECKOUT

STEERING = "Call it tenant_id."
FRAMED = re.compile(r'<agent-message from="main"[^>]*>\s*Call it tenant_id\.\s*</agent-message>')


@pytest.mark.needs("openai-agents")
def test_an_agent_of_the_openai_sdk_is_steered_between_its_tool_calls(example: Example) -> None:
    said = example("openai-agents", "examples/with_openai_agents_sdk.py")
    requests = re.split(r"(?m)^── request \d$", said)
    assert len(requests) == 4, said
    first, second, third = requests[1:]
    assert STEERING not in first.partition("── to schema")[0]
    assert "tenant in 14 tables" in second.partition("<agent-message")[0]
    assert FRAMED.search(second)
    assert third.count(STEERING) == 1
    assert third.index(STEERING) < third.index("calls SendMessage")  # it stays where it came
    assert FRAMED.search(third)
    told = said.partition("── main reads")[2]
    assert re.search(r'<agent-message from="schema[^>]*>\s*Will use tenant_id\.', told)
    assert re.search(r'<task-notification [^>]*status="completed"[^>]*run="1"', told)
    assert "Renamed it to tenant_id." in told


@pytest.mark.needs("openai-agents")
def test_what_comes_during_the_last_request_of_the_openai_sdk_is_read(example: Example) -> None:
    said = example("openai-agents", "tests/sdks/parties/late_openai.py", str(CHECKOUT / "examples"))
    first, second, third, answer = said.splitlines()
    assert "WAIT" not in first + second
    assert "worker [" in second  # ListAgents begins with who asks
    assert re.search(r'<agent-message from=\\"main\\"', third)
    assert third.index("answer 2") < third.index("WAIT")
    assert answer == "answer 3"


def service(port: int) -> dict[str, str]:
    """The variables with which Claude Code asks a model on this machine, and nobody else."""
    return {
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
        "ANTHROPIC_API_KEY": "sk-no-key-is-needed-here-0000000",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    }


def renames(items: Sequence[Item], tools: Sequence[Tool]) -> Step:
    """The model behind Claude Code: surveys the tables, says what it was told to main, and ends."""
    done = sum(item.role == "call" for item in items)
    steered = any(STEERING in item.text for item in items if item.role not in ("assistant", "call"))
    if not tools:  # a title, or the like
        return Say(text="done")
    if done == 0:
        return Call(tool=Tool(name="mcp__tables__survey_tables"), arguments={})
    if done == 1:
        text = "Will use tenant_id." if steered else "Nobody steered me."
        return Call(
            tool=Tool(name="mcp__postroom__send_message"),
            arguments={"to": "main", "summary": "name", "message": text},
        )
    return Say(text="Renamed it to tenant_id." if steered else "Renamed nothing.")


@pytest.mark.needs("claude-agent-sdk")
def test_an_agent_of_the_claude_sdk_is_steered_between_its_tool_calls(example: Example) -> None:
    with serving(renames) as model:
        said = example(
            "claude-agent-sdk",
            "examples/with_claude_agent_sdk.py",
            **service(model.port),
        )
    asked = [one for one in model.asked if one.tools]
    assert len(asked) == 3, [one.step for one in asked]
    first, second, third = asked
    assert STEERING not in first.told
    assert "tenant in 14 tables" in second.told
    assert FRAMED.search(second.told)
    assert third.told.count(STEERING) == 1
    assert "queued" in third.told  # what SendMessage answered the model
    told = said.partition("── main reads")[2]
    assert re.search(r'<agent-message from="schema[^>]*>\s*Will use tenant_id\.', told)
    assert re.search(r'<task-notification [^>]*status="completed"[^>]*run="1"', told)
    assert "Renamed it to tenant_id." in told


@pytest.mark.needs("claude-agent-sdk")
def test_what_comes_during_the_last_request_of_the_claude_sdk_is_read(example: Example) -> None:
    port = 8931  # nobody else is on the box's loopback
    said = example(
        "claude-agent-sdk",
        "tests/sdks/parties/late_claude.py",
        str(CHECKOUT / "examples"),
        str(port),
        **service(port),
    )
    first, second, answer = said.splitlines()
    assert "WAIT" not in first
    assert re.search(r'<agent-message from=\\"main\\"', second)
    assert answer == "answer 2"
