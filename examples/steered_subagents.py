"""Three subagents that are steered while they work: a plain asyncio loop.

    python examples/steered_subagents.py

A subagent is a loop of requests to a model. Before each request it drains what was sent to it in the meantime: that is
the boundary. What is sent while a request is under way is in the next request, and never in this one.

`ScriptedModel` stands in for a language model, so that this runs anywhere and always in the same way. It prints every
request that it gets. Put your own call in its place.
"""

from __future__ import annotations

import asyncio
import sys

from postroom import Agent, Agents, Receipt, Refusal, open_session

TASKS = {
    "schema": "Rename the column tenant.",
    "docs": "Bring the handbook up to date.",
    "checks": "Mend the failing checks.",
}

Conversation = list[dict[str, str]]
"""Messages as most model services take them: `role` and `content`."""


class ScriptedModel:
    """Stands in for a language model: asks for one tool, then says what it did. It is no part of Postroom.

    Its first answer to each subagent takes until `steered` is set: a real one takes seconds, in which people and other
    agents go on talking.
    """

    def __init__(self) -> None:
        self.thinking: set[str] = set()
        self.all_think = asyncio.Event()
        self.steered = asyncio.Event()

    async def answer(self, who: str, request: int, conversation: Conversation) -> dict[str, str]:
        print(f"── {who}, request {request}")
        for message in conversation:
            print(f"{message['role']}: {message['content']}")
        if request == 1:
            self.thinking.add(who)
            if self.thinking == set(TASKS):
                self.all_think.set()
            await self.steered.wait()
            return {"role": "assistant", "content": "I look at the files.", "tool": "read_files"}
        steered = [each["content"] for each in conversation[1:] if each["role"] == "user"]
        return {"role": "assistant", "content": f"{who} is done; messages on the way: {len(steered)}."}


async def work(agent: Agent, task: str, model: ScriptedModel) -> None:
    """One subagent: your loop, with `running` around it and a `drain` before each request."""
    conversation: Conversation = [{"role": "user", "content": task}]
    request = 0
    async with agent.running() as run:
        while True:
            conversation += [{"role": "user", "content": text} for text in agent.drain().texts]
            request += 1
            answer = await model.answer(agent.name, request, list(conversation))
            conversation.append(answer)
            if "tool" in answer:
                conversation.append({"role": "tool", "content": "three files"})
            elif not agent.waiting:  # what came during the last request is still read
                run.result = answer["content"]
                return


def queued(sent: Receipt | Refusal) -> None:
    """A refusal is an answer and no exception: here it ends the example."""
    if isinstance(sent, Refusal):
        sys.exit(f"{sent.code}: {sent}")
    print(f"── to {sent.to.name}: {sent.status}. {sent.note}")


async def main() -> None:
    async with open_session("example-lead") as session:
        agents = Agents(session)
        model = ScriptedModel()
        async with asyncio.TaskGroup() as group:
            for name, task in TASKS.items():
                agent = await agents.start(name)
                group.create_task(work(agent, task, model))
            await model.all_think.wait()  # three requests are under way

            queued(await session.send("schema", "It is called tenant_id now.", summary="new name"))
            queued(await session.send("docs", "Leave chapter 3 as it is.", summary="chapter 3"))
            schema = agents.get("schema")
            assert schema is not None
            queued(await schema.send("checks", "tenant is gone; use tenant_id.", summary="new name"))
            queued(await schema.send("main", "The old name is still in two views.", summary="two views"))
            model.steered.set()

        # The main conversation at its own boundary: what its agents wrote, and how each of their runs ended.
        batch = agents.main.drain()
        print("── main, next request")
        print(batch.text)
        batch.confirm()
        await agents.close()


asyncio.run(main())
