"""An agent on the Claude SDK, joined as the example joins it, that is written to during its last request.

usage: late_claude.py EXAMPLES PORT

The scripted model serves in this process on that port. Prints what each request was told, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from postroom import Agents, Receipt, open_session


async def main(port: int) -> None:
    """One agent, which would end with its first answer."""
    import with_claude_agent_sdk as example
    from tests.clients.dialects import Item, Say, Step, Tool
    from tests.clients.model import Model

    loop = asyncio.get_running_loop()
    async with open_session("late") as session:
        agents = Agents(session)
        agent = await agents.start("worker")

        def late(items: Sequence[Item], tools: Sequence[Tool]) -> Step:
            if not tools:
                return Say(text="done")
            print(json.dumps([item.text for item in items if item.role == "user"]), flush=True)
            first = not any(item.role == "assistant" for item in items)
            if first:
                sending = asyncio.run_coroutine_threadsafe(
                    session.send("worker", "WAIT", summary="late"), loop
                )
                assert isinstance(sending.result(30), Receipt)
            return Say(text="answer 1" if first else "answer 2")

        server = Model(port, late).server
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = example.ClaudeAgentOptions(
            tools=[],
            mcp_servers={"postroom": example.tools_of(session, agent)},
            strict_mcp_config=True,
            setting_sources=[],
            hooks=example.steering(agent),
            max_turns=10,
        )
        async with agent.running():
            async for message in example.query(prompt="TASK", options=options):
                if isinstance(message, example.ResultMessage):
                    print(message.result)
        server.shutdown()


if __name__ == "__main__":
    sys.path[:0] = [sys.argv[1], str(Path(__file__).parents[3])]
    asyncio.run(main(int(sys.argv[2])))
