"""Two observers: one watches the main conversation, one watches a subagent. They report, and can do nothing else.

    python examples/observer.py

An observer is your code or a model of its own that looks at what somebody else does. Its reports arrive at the next
boundary of whom it watches, marked as an observer's: information, with no authority, and no way to answer. Nobody can
address an observer.

The observer of the subagent here is a rule in Python, `too_broad`. It could as well be a language model: give it
`postroom.core.report.OBSERVER_REPORT` as its only tool, and hand what it calls to `Observer.report_call`.
"""

from __future__ import annotations

import asyncio

from postroom import Agents, Refusal, open_session

COMMANDS = ["SELECT count(*) FROM orders", "DELETE FROM orders", "SELECT 1"]
"""What the subagent is about to run: in a real program a model decides that."""


def too_broad(command: str) -> bool:
    """Stands in for an observer's judgement."""
    return command.startswith("DELETE") and "WHERE" not in command


async def main() -> None:
    async with open_session("example-watched") as session:
        agents = Agents(session)
        worker = await agents.start("worker")
        over_main = agents.observe(name="budget")
        over_worker = agents.observe(worker, name="safety")

        async with worker.running() as run:
            ran: list[str] = []
            for command in COMMANDS:
                if too_broad(command):
                    over_worker.report(f"`{command}` has no WHERE and empties the table.", severity="warning")
                # The boundary: what was reported is in front of the worker before it acts.
                if warned := worker.drain():
                    print("── worker reads")
                    print(warned.text)
                    continue  # what a careful model would do
                ran.append(command)
            run.result = f"ran {len(ran)} of {len(COMMANDS)}"

        over_main.report("Half of the budget is used.", severity="info")
        batch = agents.main.drain()
        print("── main reads")
        print(batch.text)
        batch.confirm()

        # Nobody can write to an observer.
        sent = await session.send("safety", "Are you sure?", summary="question")
        assert isinstance(sent, Refusal), sent
        print(f"── to safety: {sent.code}")

        # And its owner can turn it off.
        over_worker.on = False
        off = over_worker.report("Still here.")
        assert isinstance(off, Refusal), off
        print(f"── safety is off: {off.code}")
        await agents.close()


asyncio.run(main())
