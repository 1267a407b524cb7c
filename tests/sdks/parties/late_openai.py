"""An agent on the OpenAI SDK, joined as the example joins it: it lists, and is written to during its last request.

usage: late_openai.py EXAMPLES

Prints what each request was told, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from postroom import Agents, Receipt, open_session


async def main() -> None:
    """One agent, which would end with its second answer."""
    import with_openai_agents_sdk as example

    async with open_session("late") as session:
        agents = Agents(session)
        agent = await agents.start("worker")

        class Model(example.ScriptedModel):
            async def get_response(self, *given: Any, **more: Any) -> Any:
                self.requests += 1
                print(json.dumps(more.get("input", given[1] if len(given) > 1 else "")), flush=True)
                if self.requests == 1:
                    return self._call("ListAgents", {})
                if self.requests == 2:
                    assert isinstance(await session.send("worker", "WAIT", summary="late"), Receipt)
                return self._say(f"answer {self.requests}")

        sdk_agent: Any = example.SdkAgent(
            name="worker", model=Model(), tools=example.tools_of(session, agent)
        )
        async with agent.running():
            print(await example.run_steered(agent, sdk_agent, "TASK"))


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    asyncio.run(main())
