"""A program that hosts agents inside its session, and does with them what it is told.

usage: agent_host.py NAME [--resume ID] [--foreground-agents] [--settings JSON]

Prints one line, `{"id", "ref", "folder", "socket"}`, once it can be reached. Each line that it reads is one order,
`{"number", "do", …}`; each is a task of its own, and is answered with one line: `{"number", "is": …}`, or
`{"number", "wrong": …}` where it raised. `ORDERS` has what it can do. It ends with its standard input.

Its `resume` records what it is handed, and by that the run has started; with `--foreground-agents` the run also ends at
once, with the words `I read N characters.`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from postroom import Agent, Agents, Batch, Observer, open_session
from postroom.core.queues import Entry

Order = dict[str, Any]


class Host:
    """The program.

    Args:
        agents: of its session.
    """

    def __init__(self) -> None:
        self.agents: Agents
        self.observers: dict[str, Observer] = {}
        self.resumed: list[dict[str, Any]] = []
        self.refuses: set[str] = set()
        self.ends = False
        self.calls: dict[str, asyncio.Queue[tuple[str, Any, asyncio.Future[Any]]]] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    async def resume(self, agent: Agent, messages: Batch) -> None:
        """Starts a run, as far as anybody sees."""
        if agent.name in self.refuses:
            raise RuntimeError("no")
        texts = [entry.text for entry in messages.entries]
        self.resumed.append({"name": agent.name, "id": agent.id, "run": agent.run, "texts": texts})
        if self.ends:
            self.keep(self.end(agent, sum(map(len, texts))))

    async def end(self, agent: Agent, size: int) -> None:
        """Ends the run that was just started."""
        await agent.finish("completed", result=f"I read {size} characters.")

    def keep(self, work: Any) -> None:
        """Does something beside the orders."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def agent(self, order: Order) -> Agent:
        """The agent that an order names."""
        found = self.agents.get(order["agent"])
        assert found is not None, order
        return found

    def environment(self, who: str | None) -> dict[str, str]:
        """What a process of somebody in here gets; of the main conversation where nobody is named."""
        if who is None:
            return dict(self.agents.session.identity)
        if who in self.observers:
            return self.observers[who].environment()
        found = self.agents.get(who)
        assert found is not None, who
        return found.environment()

    # ── orders ───────────────────────────────────────────────────────────────────────────────────

    async def start(self, order: Order) -> Any:
        """Registers an agent."""
        agent = await self.agents.start(
            order["name"],
            agent_type=order.get("type", ""),
            agent_id=order.get("id"),
            background=order.get("background", True),
            owner=self.agents.get(order.get("owner", "")),
        )
        return {"id": agent.id, "name": agent.name, "ref": agent.ref, "environ": agent.environment()}

    async def finish(self, order: Order) -> Any:
        """Ends a run."""
        return await self.agent(order).finish(order["status"], result=order.get("result"))

    async def stop(self, order: Order) -> Any:
        """The user stops an agent."""
        await self.agents.stop(self.agent(order))

    async def evict(self, order: Order) -> Any:
        """Lets go of a stopped agent."""
        self.agents.evict(self.agent(order))

    async def refuse(self, order: Order) -> Any:
        """Has the next resumes of an agent fail."""
        self.refuses.add(order["agent"])

    async def observe(self, order: Order) -> Any:
        """Makes an observer."""
        watched = None if order.get("agent") is None else self.agent(order)
        observer = self.observers[order["name"]] = self.agents.observe(watched, name=order["name"])
        return {"name": observer.name, "id": observer.id, "environ": observer.environment()}

    async def report(self, order: Order) -> Any:
        """An observer reports."""
        answer = self.observers[order["name"]].report(order["text"], order["severity"])
        return getattr(answer, "status", None) or getattr(answer, "code", None)

    async def switch(self, order: Order) -> Any:
        """Turns an observer's reports on or off."""
        self.observers[order["name"]].on = order["on"]

    async def drain(self, order: Order) -> Any:
        """What a loop drains: an agent's, or the main one's."""
        batch = self.agents.main.drain(idle=True) if order.get("agent") is None else self.agent(order).drain()
        batch.confirm()
        return {
            "texts": batch.texts,
            "entries": [
                {
                    "text": entry.text,
                    "from": entry.origin.name,
                    "kind": entry.origin.kind,
                    "severity": entry.severity if isinstance(entry, Entry) else None,
                    "msg_id": entry.msg_id,
                    "redelivered": entry.redelivered,
                }
                for entry in batch.entries
            ],
        }

    async def waiting(self, order: Order) -> Any:
        """How many messages wait for an agent."""
        return self.agent(order).waiting

    async def environ(self, order: Order) -> Any:
        """The environment of an agent or an observer."""
        return self.environment(order["who"])

    async def rests(self, order: Order) -> Any:
        """Returns once somebody waits for an agent's next message."""
        while not self.agent(order).resting:
            await asyncio.sleep(0.005)

    async def state(self, order: Order) -> Any:
        """An agent's state, and the number of its run."""
        agent = self.agent(order)
        return {"state": agent.state, "run": agent.run}

    async def send(self, order: Order) -> Any:
        """Sends as the main conversation, or as an agent, without a process in between."""
        sender = self.agents.session if order.get("agent") is None else self.agent(order)
        raw = {"to": order["to"], "message": order["text"], "summary": "s"}
        answer = await sender.send_call(raw)
        return getattr(answer, "status", None) or getattr(answer, "code", None)

    async def history(self, order: Order) -> Any:
        """What `resume` was handed so far, for one agent."""
        return [one for one in self.resumed if one["name"] == order["agent"]]

    async def run(self, order: Order) -> Any:
        """Runs a command below this process, as whoever is named."""
        process = await asyncio.create_subprocess_exec(
            *order["argv"],
            env={**os.environ, **self.environment(order.get("as")), **order.get("environ", {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return {"code": process.returncode, "out": out.decode(), "err": err.decode()}

    async def connect(self, order: Order) -> Any:
        """Starts an MCP server below this process, as whoever is named, and speaks to it by the SDK's client."""
        queue = self.calls[order["key"]] = asyncio.Queue()
        greeted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.keep(self.speak(order, queue, greeted))
        return await greeted

    async def speak(self, order: Order, queue: asyncio.Queue[Any], greeted: asyncio.Future[Any]) -> None:
        """Holds one client open, and makes the calls that it is handed."""
        program, *words = order["argv"]
        parameters = StdioServerParameters(
            command=program, args=words, env={**os.environ, **self.environment(order.get("as"))}
        )
        with open(os.devnull, "w") as nowhere:
            async with (
                stdio_client(parameters, errlog=nowhere) as (reads, writes),
                ClientSession(reads, writes) as client,
            ):
                begun = await client.initialize()
                names = [tool.name for tool in (await client.list_tools()).tools]
                greeted.set_result({"tools": names, "instructions": begun.instructions})
                while True:
                    tool, arguments, answered = await queue.get()
                    result = await client.call_tool(tool, arguments)
                    answered.set_result(
                        {
                            "text": "".join(getattr(block, "text", "") for block in result.content),
                            "document": result.structured_content,
                            "failed": result.is_error,
                        }
                    )

    async def call(self, order: Order) -> Any:
        """One call of a tool."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.calls[order["key"]].put_nowait((order["tool"], order["arguments"], answered))
        return await answered

    ORDERS: ClassVar[dict[str, Callable[[Host, Order], Awaitable[Any]]]] = {
        "start": start,
        "finish": finish,
        "stop": stop,
        "evict": evict,
        "refuse": refuse,
        "observe": observe,
        "report": report,
        "switch": switch,
        "drain": drain,
        "waiting": waiting,
        "environ": environ,
        "rests": rests,
        "state": state,
        "send": send,
        "history": history,
        "run": run,
        "connect": connect,
        "call": call,
    }

    async def obey(self, order: Order) -> None:
        """Does what one line says, and answers it."""
        answer: dict[str, Any] = {"number": order["number"]}
        try:
            answer["is"] = await self.ORDERS[order["do"]](self, order)
        except Exception as error:
            answer["wrong"] = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)


async def main() -> None:
    """Opens, says where it is, and does what it is told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--resume")
    parser.add_argument("--settings")
    parser.add_argument("--foreground-agents", action="store_true")
    args = parser.parse_args()
    host = Host()
    host.ends = args.foreground_agents
    async with open_session(
        None if args.resume else args.name, resume=args.resume, settings=args.settings
    ) as session:
        host.agents = Agents(session, resume=host.resume, background=not args.foreground_agents)
        where = {"id": session.id, "ref": session.ref, "folder": session.folder, "socket": session.address}
        print(json.dumps(where), flush=True)
        reader = asyncio.StreamReader(limit=8_000_000)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            host.keep(host.obey(json.loads(line)))
        for task in tuple(host.tasks):
            task.cancel()
        await asyncio.gather(*host.tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
