"""A subagent on the OpenAI Agents SDK that is steered between its tool calls, and writes to others by itself.

    pip install openai-agents
    python examples/with_openai_agents_sdk.py

Two places join the two libraries:

- `call_model_input_filter` runs before each request to the model: that is the boundary. What was sent to the agent goes
  into the request there, and stays in its place in every later one.
- SendMessage and ListAgents are tools like any other. Their descriptions and schemas are Postroom's, because the rules
  of authority stand in them.

`ScriptedModel` stands in for a language model and implements the SDK's own interface; it prints what each request adds.
Leave it out, and the SDK asks the model that it is configured for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent as SdkAgent
from agents import FunctionTool, Model, ModelResponse, RunConfig, Runner, Tool, Usage, function_tool
from agents.items import TResponseInputItem, TResponseStreamEvent
from agents.run_config import CallModelData, ModelInputData
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from postroom import Agent, Agents, Receipt, Session, open_session
from postroom.core.contract import LIST_AGENTS, SEND_MESSAGE
from postroom.tools import answer


def steering(agent: Agent) -> RunConfig:
    """The boundary. The SDK keeps its own list of items; this puts what was drained back into its place each time."""
    taken: list[tuple[int, TResponseInputItem]] = []

    def boundary(data: CallModelData[Any]) -> ModelInputData:
        items = list(data.model_data.input)
        taken.extend((len(items), {"role": "user", "content": text}) for text in agent.drain().texts)
        for moved, (place, item) in enumerate(taken):
            items.insert(place + moved, item)
        return ModelInputData(input=items, instructions=data.model_data.instructions)

    return RunConfig(call_model_input_filter=boundary, tracing_disabled=True)


async def run_steered(agent: Agent, sdk_agent: SdkAgent, task: str) -> str:
    """The agent's loop is the SDK's; it goes on while something came during its last request."""
    config = steering(agent)
    given: str | list[TResponseInputItem] = task
    while True:
        ended = await Runner.run(sdk_agent, given, run_config=config)
        if not agent.waiting:
            return str(ended.final_output)
        given = ended.to_input_list()


def tools_of(session: Session, agent: Agent) -> list[Tool]:
    """SendMessage and ListAgents, as this agent."""

    def tool(described: Any, name: str) -> FunctionTool:
        async def invoke(_: ToolContext[Any], arguments: str) -> str:
            said = await answer(session, name, json.loads(arguments or "{}"), speaker=agent, piggyback=False)
            return said.text

        return FunctionTool(
            name=described["name"],
            description=described["description"],
            params_json_schema=described["input_schema"],
            on_invoke_tool=invoke,
            strict_json_schema=False,
        )

    return [tool(SEND_MESSAGE, "send_message"), tool(LIST_AGENTS, "list_agents")]


class ScriptedModel(Model):
    """Stands in for a language model: surveys the tables, says what it was told to main, and ends."""

    def __init__(self) -> None:
        self.requests = 0

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002 - the SDK calls it so
        *args: Any,
        **more: Any,
    ) -> ModelResponse:
        self.requests += 1
        print(f"── request {self.requests}")
        steered = False
        for item in [{"role": "user", "content": input}] if isinstance(input, str) else input:
            shown: Any = item.get("content") or item.get("output") or f"calls {item.get('name')}"
            print(f"{item.get('role') or item.get('type')}: {shown}")
            steered = steered or "tenant_id" in str(shown)
        if self.requests == 1:
            return self._call("survey_tables", {})
        if self.requests == 2:
            text = "Will use tenant_id." if steered else "Nobody steered me."
            return self._call("SendMessage", {"to": "main", "summary": "name", "message": text})
        return self._say("Renamed it to tenant_id." if steered else "Renamed nothing.")

    def _call(self, name: str, arguments: dict[str, str]) -> ModelResponse:
        call = ResponseFunctionToolCall(
            type="function_call", call_id=f"call_{self.requests}", name=name, arguments=json.dumps(arguments)
        )
        return ModelResponse(output=[call], usage=Usage(requests=1), response_id=None)

    def _say(self, text: str) -> ModelResponse:
        said = ResponseOutputText(type="output_text", text=text, annotations=[])
        message = ResponseOutputMessage(
            type="message", id=f"msg_{self.requests}", role="assistant", status="completed", content=[said]
        )
        return ModelResponse(output=[message], usage=Usage(requests=1), response_id=None)

    def stream_response(self, *args: Any, **more: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError("This example does not stream.")


async def main() -> None:
    surveying, surveyed = asyncio.Event(), asyncio.Event()

    @function_tool
    async def survey_tables() -> str:
        """Looks at every table. Takes its time."""
        surveying.set()
        await surveyed.wait()
        return "The column is called tenant in 14 tables."

    async def work(session: Session, agent: Agent) -> None:
        sdk_agent = SdkAgent(
            name=agent.name,
            instructions="You rename columns.",
            model=ScriptedModel(),
            tools=[survey_tables, *tools_of(session, agent)],
        )
        async with agent.running() as run:
            run.result = await run_steered(agent, sdk_agent, "Rename the column tenant.")

    async with open_session("example-openai") as session, asyncio.TaskGroup() as group:
        agents = Agents(session)
        agent = await agents.start("schema")
        group.create_task(work(session, agent))
        await surveying.wait()  # a tool call is under way; the next boundary is behind it
        sent = await session.send("schema", "Call it tenant_id.", summary="new name")
        assert isinstance(sent, Receipt), sent
        print(f"── to schema: {sent.status}. {sent.note}")
        surveyed.set()

        told: list[str] = []
        while not any("task-notification" in text for text in told):
            assert await agents.main.wait(timeout=20), "the agent never ended"
            batch = agents.main.drain()
            told += batch.texts
            batch.confirm()
        print("── main reads")
        print("\n".join(told))
        assert "Renamed it to tenant_id." in told[-1]
        await agents.close()


if __name__ == "__main__":
    asyncio.run(main())
