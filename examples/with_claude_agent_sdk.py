"""A subagent on the Claude Agent SDK that is steered between its tool calls, and writes to others by itself.

    pip install claude-agent-sdk
    python examples/with_claude_agent_sdk.py

The SDK runs Claude Code, which comes with it, and needs what that needs: an account, or ANTHROPIC_API_KEY.

Three places join the two libraries:

- a hook behind every tool call (`PostToolUse`) is the boundary: what was sent to the agent goes into the next request;
- a hook at the end of the turn (`Stop`) is the last one: what came during the last request is still read;
- SendMessage and ListAgents are tools of an MCP server in this process. Their descriptions and schemas are Postroom's,
  because the rules of authority stand in them.
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookContext,
    HookInput,
    HookJSONOutput,
    HookMatcher,
    McpSdkServerConfig,
    ResultMessage,
    SdkMcpTool,
    create_sdk_mcp_server,
    query,
    tool,
)

from postroom import Agent, Agents, Receipt, Session, open_session
from postroom.core.contract import LIST_AGENTS, SEND_MESSAGE
from postroom.tools import answer

TASK = "Survey the tables with survey_tables, and rename the column tenant as you were told to. Tell main the name."


def steering(agent: Agent) -> dict[Any, list[HookMatcher]]:
    """The boundaries of the agent's loop."""

    async def behind_a_tool(given: HookInput, _id: str | None, _context: HookContext) -> HookJSONOutput:
        batch = agent.drain()
        if not batch:
            return {}
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": batch.text}}

    async def at_the_end(given: HookInput, _id: str | None, _context: HookContext) -> HookJSONOutput:
        batch = agent.drain()
        return {"decision": "block", "reason": batch.text} if batch else {}

    return {
        "PostToolUse": [HookMatcher(hooks=[behind_a_tool])],
        "Stop": [HookMatcher(hooks=[at_the_end])],
    }


def tools_of(session: Session, agent: Agent) -> McpSdkServerConfig:
    """SendMessage and ListAgents, as this agent."""

    def made(described: Any, name: str) -> SdkMcpTool[Any]:
        @tool(name, described["description"], described["input_schema"])
        async def invoke(arguments: dict[str, Any]) -> dict[str, Any]:
            said = await answer(session, name, arguments, speaker=agent, piggyback=False)
            return {"content": [{"type": "text", "text": said.text}], "is_error": said.failed}

        return invoke

    tools = [made(SEND_MESSAGE, "send_message"), made(LIST_AGENTS, "list_agents")]
    return create_sdk_mcp_server("postroom", tools=tools)


async def main() -> None:
    surveying, surveyed = asyncio.Event(), asyncio.Event()

    @tool("survey_tables", "Looks at every table. Takes its time.", {})
    async def survey_tables(_: dict[str, Any]) -> dict[str, Any]:
        surveying.set()
        await surveyed.wait()
        return {"content": [{"type": "text", "text": "The column is called tenant in 14 tables."}]}

    async def work(session: Session, agent: Agent, folder: str) -> None:
        options = ClaudeAgentOptions(
            cwd=folder,
            tools=[],  # none of Claude Code's own
            mcp_servers={
                "postroom": tools_of(session, agent),
                "tables": create_sdk_mcp_server("tables", tools=[survey_tables]),
            },
            strict_mcp_config=True,
            setting_sources=[],  # nothing of whoever runs this
            allowed_tools=["mcp__postroom", "mcp__tables"],
            hooks=steering(agent),
            max_turns=10,
        )
        async with agent.running() as run:
            async for message in query(prompt=TASK, options=options):
                if isinstance(message, ResultMessage):
                    run.result = message.result
                    run.usage = {"turns": message.num_turns}

    with tempfile.TemporaryDirectory() as folder:
        async with open_session("example-claude") as session, asyncio.TaskGroup() as group:
            agents = Agents(session)
            agent = await agents.start("schema")
            group.create_task(work(session, agent, folder))
            await surveying.wait()  # a tool call is under way; the next boundary is behind it
            sent = await session.send("schema", "Call it tenant_id.", summary="new name")
            assert isinstance(sent, Receipt), sent
            print(f"── to schema: {sent.status}. {sent.note}")
            surveyed.set()

            told: list[str] = []
            while not any("task-notification" in text for text in told):
                assert await agents.main.wait(timeout=120), "the agent never ended"
                batch = agents.main.drain()
                told += batch.texts
                batch.confirm()
            print("── main reads")
            print("\n".join(told))
            assert any("tenant_id" in text for text in told)
            await agents.close()


if __name__ == "__main__":
    asyncio.run(main())
