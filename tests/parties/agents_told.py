"""A program that hosts agents and does what it is told, for the crash tests.

usage: agents_told.py SESSION-ID-or-- [NAME]   (`-` opens a new session of that name)

Prints `{"id", "pid"}` once it can be reached. Each line that it reads is one order, and it answers each with a line:

    {"do": "start", "name"}                          → {"id", "name", "run"}
    {"do": "finish", "name", "status", "result"}     → {"well"}
    {"do": "stop", "name"}                           → {}
    {"do": "send", "name", "text"}                   → {"status"} or {"status": the code of the refusal}
    {"do": "agents"}                                 → {"agents": {name: [id, state, run, stopped by the user]}}
    {"do": "drain", "confirm", "wait"}               → {"tasks": [[id, name, status, run, result]], "texts": [[text, redelivered]]}
    {"do": "release"}                                → {}: gives back what was drained last
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from postroom import Agent, Agents, Batch, Receipt, open_session
from postroom.core.queues import Entry


class Host:
    """The agents, and the batch that was drained last."""

    def __init__(self, agents: Agents) -> None:
        self.agents = agents
        self.batch = Batch()

    async def do(self, order: dict[str, Any]) -> dict[str, Any]:
        agents, what = self.agents, order["do"]
        if what == "start":
            made = await agents.start(order["name"])
            return {"id": made.id, "name": made.name, "run": made.run}
        if what == "send":
            answer = await agents.session.send(order["name"], order["text"], summary="s")
            return {"status": answer.status if isinstance(answer, Receipt) else answer.code}
        if what == "agents":
            found = [agents.get(row.identity) for row in agents.rows()]
            return {
                "agents": {
                    one.name: [one.id, one.state, one.run, one.life.stopped_by_user] for one in found if one
                }
            }
        if what == "drain":
            return await self.drain(order)
        if what == "release":
            self.batch.release()
            return {}
        agent = agents.get(order["name"])
        assert agent is not None
        if what == "stop":
            await agents.stop(agent)
            return {}
        return {"well": await agent.finish(order["status"], result=order.get("result"))}

    async def drain(self, order: dict[str, Any]) -> dict[str, Any]:
        if order.get("wait"):
            await self.agents.main.wait(20)
        batch = self.batch = self.agents.main.drain(idle=True)
        tasks: list[list[object]] = []
        texts: list[list[object]] = []
        for one in batch.entries:
            task = one.task if isinstance(one, Entry) else None
            if task is None:
                texts.append([one.text, one.redelivered])
            else:
                tasks.append([task.task_id, task.name, task.status, task.run, task.result])
        if order["confirm"]:
            batch.confirm()
        return {"tasks": tasks, "texts": texts}


async def resume(agent: Agent, messages: object) -> None:
    """The run goes on by orders."""


async def main(session_id: str, name: str) -> None:
    again = None if session_id == "-" else session_id
    async with open_session(None if again else name, resume=again, handle_signals=False) as session:
        host = Host(Agents(session, resume=resume))
        print(json.dumps({"id": session.id, "pid": os.getpid()}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await host.do(json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "lead"))
