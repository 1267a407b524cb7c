"""Running an agent for a script, which gets its final text and is the only one that does (06.16).

The part of `agents` behind `Session.run_agent`. Such an agent is kept nowhere and found by nobody. It runs in a task of its own:
to stop it, or to end the session, ends that task, and the script hears `AgentStopped`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from postroom.calling import awaited
from postroom.errors import AgentStopped, BadUsage
from postroom.outcome import outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from postroom.agent import Agent, Observer


class Scripting:
    """The part of `Agents` that runs agents for scripts; see there."""

    if TYPE_CHECKING:
        _run: Callable[[Agent, str], Awaitable[str]] | None
        _scripts: set[asyncio.Task[str]]

        async def _start(
            self,
            name: str | None,
            agent_type: str,
            agent_id: str | None,
            background: bool,
            transcript: str | None,
            owner: Agent | None,
            *,
            workflow: bool,
        ) -> Agent: ...

        def _forget_token(self, who: Agent | Observer) -> None: ...

    async def run(self, prompt: str, *, name: str | None = None, agent_type: str = "") -> str:
        """Runs an agent for a script; see `Session.run_agent` (06.16)."""
        if self._run is None:
            raise BadUsage("This session was given no way to run an agent.", "Give `run` to `Agents`.")
        agent = await self._start(name, agent_type, None, False, None, None, workflow=True)
        try:
            return await self._work(agent, prompt)
        finally:
            self._forget_token(agent)

    async def _work(self, agent: Agent, prompt: str) -> str:
        """A script's agent runs in a task of its own: to stop it ends that, and not the script."""
        assert self._run is not None
        run_it = self._run

        async def work() -> str:
            async with agent.running() as run:
                run.result = outcome(await awaited(run_it(agent, prompt))).result
                if run.result is None:
                    raise BadUsage("The host's `run` returned no text.", "Return the agent's final text.")
            return run.result

        task = asyncio.get_running_loop().create_task(work())
        self._scripts.add(task)
        task.add_done_callback(self._scripts.discard)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        if task.cancelled():
            raise AgentStopped(
                f"{agent.name} was stopped before it was done.", "Run it again if it is wanted."
            )
        return task.result()
