"""The MCP server as others' programs see it: MCP Inspector's command line, and the protocol's conformance suite (09.10)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.desk import COMMAND, SECONDS, Desk
from tests.partners import INSTALL_SECONDS, partner
from tests.strangers import private_desk

pytestmark = pytest.mark.timeout(INSTALL_SECONDS + 120)

INSPECTOR = ("@modelcontextprotocol/inspector", "0.22.0")
CONFORMANCE = ("@modelcontextprotocol/conformance", "0.1.16")

APPLY = frozenset(
    {
        *("server-initialize", "ping", "tools-list"),
        *("server-sse-multiple-streams", "server-sse-polling", "dns-rebinding-protection"),
    }
)
"""Scenarios for what this server offers. The last three are about the SDK's HTTP, which only these tests use."""

NOT_OFFERED = {
    **dict.fromkeys(("logging-set-level", "tools-call-with-logging"), "logging"),
    "completion-complete": "completions",
    **dict.fromkeys(
        ("resources-list", "resources-read-text", "resources-read-binary", "resources-templates-read"),
        "resources",
    ),
    **dict.fromkeys(("resources-subscribe", "resources-unsubscribe"), "resources"),
    **dict.fromkeys(
        ("prompts-list", "prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource"),
        "prompts",
    ),
    "prompts-get-with-image": "prompts",
}
"""Scenario → what it is about, which this server does not offer and does not claim to: it answers -32601."""

OF_A_FIXTURE = frozenset(
    {
        *("tools-call-simple-text", "tools-call-image", "tools-call-audio", "tools-call-embedded-resource"),
        *("tools-call-mixed-content", "tools-call-error", "tools-call-with-progress", "tools-call-sampling"),
        *("tools-call-elicitation", "elicitation-sep1034-defaults", "elicitation-sep1330-enums"),
        "json-schema-2020-12",
    }
)
"""Scenarios that call a tool of the suite's own example server by its name. What they look at, as far as it is offered
here (errors, progress, elicitation), `test_mcp` looks at with the SDK's client."""


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A private place with bob open."""
    with private_desk() as desk:
        desk.open("bob")
        yield desk


def inspected(desk: Desk, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs MCP Inspector's command line once, against a server that it starts itself."""
    return subprocess.run(
        [*partner(*INSPECTOR).program("mcp-inspector"), "--cli", COMMAND, "mcp", *words],
        env=desk.environ,
        cwd=desk.folder,
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
        check=False,
    )


@pytest.mark.rule("09.10")
def test_mcp_inspector_lists_and_calls(desk: Desk) -> None:
    listed = inspected(desk, "--method", "tools/list")
    assert listed.returncode == 0, listed
    tools = json.loads(listed.stdout)["tools"]
    assert [tool["name"] for tool in tools] == ["send_message", "list_agents", "read_messages"]
    assert tools[1]["annotations"]["readOnlyHint"] is True

    words = ("to=bob", "message=hello from a stranger's client", "summary=a greeting", "in_reply_to=null")
    called = inspected(desk, "--method", "tools/call", "--tool-name", "send_message", "--tool-arg", *words)
    assert called.returncode == 0, called
    result = json.loads(called.stdout)
    assert result["structuredContent"]["status"] == "queued"
    (message,) = desk.take("bob")
    assert message["text"] == "hello from a stranger's client"
    assert message["msg_id"] == result["structuredContent"]["msg_id"]

    refused = inspected(
        desk,
        "--method",
        "tools/call",
        "--tool-name",
        "send_message",
        "--tool-arg",
        "to=*",
        "message=x",
        "summary=s",
    )
    assert json.loads(refused.stdout)["isError"] is True
    assert "broadcast_unsupported" in refused.stdout


@pytest.fixture(scope="module")
def checked(desk: Desk) -> dict[str, list[dict[str, Any]]]:
    """Scenario → its checks, after one run of the whole suite."""
    suite = partner(*CONFORMANCE).program("conformance")
    out = desk.folder / "conformance"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.parties.mcp_over_http"],
        env={**desk.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        cwd=desk.folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            subprocess.run(
                [*suite, "server", "--url", url, "--suite", "all", "-o", str(out)],
                cwd=desk.folder,
                capture_output=True,
                timeout=4 * SECONDS,
                check=False,
            )
        finally:
            server.terminate()
    return {
        NAMED.sub(r"\1", file.parent.name): json.loads(file.read_text()) for file in out.glob("*/checks.json")
    }


NAMED = re.compile(r"^server-(.+)-\d{4}-\d\d-\d\dT.*$")
"""A folder of the suite's results: the scenario and the time."""


def test_every_scenario_of_the_suite_is_known(checked: dict[str, list[dict[str, Any]]]) -> None:
    """A newer suite that has more is looked at by a person first."""
    assert set(checked) == APPLY | set(NOT_OFFERED) | OF_A_FIXTURE


@pytest.mark.rule("09.10")
@pytest.mark.parametrize("scenario", sorted(APPLY))
def test_what_applies_is_passed(checked: dict[str, list[dict[str, Any]]], scenario: str) -> None:
    checks = checked[scenario]
    assert checks
    assert [check for check in checks if check["status"] == "FAILURE"] == []


@pytest.mark.rule("09.10")
@pytest.mark.parametrize("scenario", sorted({*NOT_OFFERED, *OF_A_FIXTURE}))
def test_what_does_not_apply_fails_for_that_reason_alone(
    checked: dict[str, list[dict[str, Any]]], scenario: str
) -> None:
    """The server says that it has no such method, or no such tool."""
    says = [check["errorMessage"] for check in checked[scenario] if check["status"] == "FAILURE"]
    assert len(says) == 1
    wanted = ("-32601",) if scenario in NOT_OFFERED else ("Unknown tool: test_", "not found. Available tools")
    assert any(words in says[0] for words in wanted), says
