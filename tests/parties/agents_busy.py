"""A program whose agents start, end, write to each other and are resumed without a pause, until it is killed.

usage: agents_busy.py SESSION-ID-or-- LOG ROUNDS   (0: for ever)

Prints one line, `ID PID`, once it can be reached. Each line of LOG is written with one call, when it is so:

    found NAME ID STATE RUN      what an earlier life left, each time that it starts
    began ID RUN                 a run is written down as under way
    ended ID RUN STATUS          `finish` has returned
    told ID RUN STATUS           drained, and not confirmed yet
    knows ID RUN                 confirmed
    life                         it has started
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from postroom import Agent, Agents, Limits, open_session
from postroom.core.queues import Entry

NAMES = ("ada", "bob", "cyd")


async def main(session_id: str, log: str, rounds: int) -> None:
    """Works; SIGKILL is how it ends, or the number of its rounds."""
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    again = None if session_id == "-" else session_id
    chance = random.Random()

    def note(*words: object) -> None:
        os.write(fd, (" ".join(map(str, words)) + "\n").encode())

    def tell() -> None:
        batch = agents.main.drain(idle=True)
        tasks = [one.task for one in batch.entries if isinstance(one, Entry) and one.task is not None]
        for task in tasks:
            note("told", task.task_id, task.run, task.status)
        if not rounds and chance.random() < 0.3:
            batch.release()
            return
        batch.confirm()
        for task in tasks:
            note("knows", task.task_id, task.run)

    async def resume(agent: Agent, messages: object) -> None:
        note("began", agent.id, agent.run)

    async with open_session(
        None if again else "lead", resume=again, limits=Limits.unbounded(), handle_signals=False
    ) as session:
        agents = Agents(session, resume=resume)
        note("life")
        for row in agents.rows():
            agent = agents.get(row.identity)
            note(
                "found",
                row.name,
                row.identity,
                *(("unusable", 0) if agent is None else (agent.state, agent.run)),
            )
        print(session.id, os.getpid(), flush=True)
        tell()
        for name in NAMES:
            if agents.get(name) is None:
                made = await agents.start(name)
                note("began", made.id, 1)
        number = 0
        while not rounds or number < rounds:
            number += 1
            agent = agents.get(chance.choice(NAMES))
            assert agent is not None
            if agent.state != "live":
                await session.send(agent.name, f"round {number}", summary="s")
            else:
                run, status = agent.run, chance.choice(("completed", "failed", "killed"))
                await agent.finish(status, result="x" * chance.randrange(2000))
                note("ended", agent.id, run, status)
            if chance.random() < 0.4:
                tell()
        for name in NAMES if rounds else ():
            agent = agents.get(name)
            if agent is not None and agent.state == "live":
                run = agent.run
                await agent.finish("completed")
                note("ended", agent.id, run, "completed")
        tell()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
