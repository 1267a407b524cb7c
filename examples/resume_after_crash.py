"""A program is killed in the middle of its work; another one goes on with the same session, and so does the agent.

    python examples/resume_after_crash.py

It starts itself once more as a process of its own. That one registers an agent, writes down each turn of its work, and
is killed with SIGKILL. Then this process opens the same session: it is told once that the agent was killed. A message
to the agent starts it again, from its transcript, with the message as its new prompt.

`resume` is the one function that Postroom asks of you: it gets the agent and what was sent to it, starts the run, and
returns. Postroom never calls a model.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from postroom import Agent, Agents, Batch, Receipt, open_session

FILES = ["a.py", "b.py", "c.py", "d.py"]
"""What the agent has to index: one turn each."""


def index(agent: Agent, file: str) -> None:
    """One turn of the agent. A language model would have had it; what counts is that it is written down."""
    assert agent.transcript is not None
    agent.transcript.write({"role": "assistant", "content": f"indexed {file}"})


def turns_of(agent: Agent) -> Iterator[str]:
    """What the agent did in earlier runs, from its transcript: one JSON object a line."""
    assert agent.transcript is not None
    for line in Path(agent.transcript.path).read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:  # the process was killed while it wrote this one
            continue
        if record["type"] == "turn":
            yield record["turn"]["content"]


async def before() -> None:
    """The first process: works, and is killed after two of four turns."""
    async with open_session("example-crash") as session:
        agents = Agents(session)
        agent = await agents.start("indexer", agent_type="indexer")
        async with agent.running():
            for file in FILES[:2]:
                index(agent, file)
            print(json.dumps({"session": session.id, "agent": agent.id}), flush=True)
            await asyncio.Event().wait()  # the third turn never ends


async def after(session_id: str, agent_id: str) -> None:
    """The second process: goes on where the first one stopped."""
    runs = asyncio.TaskGroup()

    async def resume(agent: Agent, messages: Batch) -> None:
        runs.create_task(work(agent, agent.run, messages))

    async with open_session(resume=session_id) as session, runs:
        agents = Agents(session, resume=resume)
        told = agents.main.drain()
        print("── main is told, once")
        print(told.text)
        told.confirm()
        assert not agents.main.drain()

        sent = await session.send("indexer", "Go on, and leave c.py out.", summary="go on")
        assert isinstance(sent, Receipt), sent
        assert sent.status == "resumed"
        print(f"── to indexer: {sent.status}. {sent.note}")
        assert await agents.main.wait(timeout=20), "the resumed run never ended"
        done = agents.main.drain()
        print("── main is told, after the resume")
        print(done.text)
        done.confirm()
        agent = agents.get("indexer")
        assert agent is not None
        assert (agent.id, agent.run, agent.state) == (agent_id, 2, "completed")
        await agents.close()


async def work(agent: Agent, number: int, messages: Batch) -> None:
    """The resumed run: what it did before stands in its transcript, what it is to do now in the messages.

    With its number, a run that begins too late is not taken for the next one: it ends with AgentStopped.
    """
    async with agent.running(number) as run:
        done = list(turns_of(agent))
        print(f"── indexer remembers {done}, and reads")
        print(messages.text)
        left = [file for file in FILES if f"indexed {file}" not in done and file not in messages.text]
        for file in left:
            index(agent, file)
        run.result = f"indexed {', '.join(left)}"


def main() -> None:
    """Runs the first process, kills it, and is the second one."""
    command = [sys.executable, str(Path(__file__).resolve()), "before"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        line = first.stdout.readline()
        first.kill()
    if not line:
        sys.exit("The first process ended before it had done anything.")
    assert first.returncode == -signal.SIGKILL
    begun = json.loads(line)
    print(f"── killed {begun['agent']} in the middle")
    asyncio.run(after(begun["session"], begun["agent"]))


if sys.argv[1:] == ["before"]:
    asyncio.run(before())
else:
    main()
