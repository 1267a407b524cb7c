"""Agents inside the lead's process that are members of its team: cadence, mail, tasks, coming back (07.9, 02.25)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from postroom import (
    Agent,
    Agents,
    BadUsage,
    InvalidName,
    Session,
    enlisting,
    joining,
    open_session,
    opening,
    teaming,
)
from postroom.core import frame_text
from postroom.core.frames import ShutdownRequest
from postroom.core.mailfile import Entry
from postroom.core.tasks import Draft
from postroom.core.times import stamp
from postroom.enlisting import Enlisted, enlist
from postroom.joining import join
from postroom.state.teams import Places, places_of
from tests.crew import Starter, refused, sent, words
from tests.transports.ends import run, until


@pytest.fixture(autouse=True)
def _looks_are_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first look each place waits until a test has it look."""
    for module, name, seconds in (
        (teaming, "LOOK_SECONDS", 3600),
        (teaming, "HEADLESS_SECONDS", 3600),
        (enlisting, "TURN_SECONDS", 3600),
        (joining, "WAIT_SECONDS", 0.05),
        (opening, "TEAM_SECONDS", 0.05),
    ):
        monkeypatch.setattr(module, name, seconds)


@dataclass
class Crew:
    """A lead that hosts one agent, which is its teammate."""

    session: Session
    agents: Agents
    agent: Agent
    seat: Enlisted
    starter: Starter
    waiting: asyncio.Task[bool] | None = None

    async def rest(self) -> None:
        """The agent's loop has nothing to do."""
        if self.waiting is None or self.waiting.done():
            self.waiting = asyncio.create_task(self.agent.wait())
            await asyncio.sleep(0)

    def mail(self, text: str, *, outer: str = "team-lead") -> None:
        """Writes into its mailbox, as any program of this user can."""
        self.seat.mailbox.append(Entry(from_=outer, text=text, timestamp=stamp(0)))

    def left(self) -> list[str]:
        """What lies in its mailbox."""
        return [entry.text for entry in self.seat.mailbox.snapshot().entries]


@contextlib.asynccontextmanager
async def crew(resume: str | None = None) -> AsyncGenerator[Crew]:
    """One such."""
    starter = Starter()
    async with open_session(None if resume else "lead", resume=resume) as session:
        agents = Agents(session, resume=starter)
        agent = agents.get("worker") or await agents.start("worker", agent_type="coder")
        both = Crew(session, agents, agent, await enlist(agents, agent), starter)
        try:
            yield both
        finally:
            if both.waiting is not None:
                both.waiting.cancel()
                await asyncio.gather(both.waiting, return_exceptions=True)


def texts(session: Session) -> list[str]:
    """What waits for a session, taken."""
    return [message.text for message in session.drain()]


@pytest.mark.rule("07.9", "07.5")
def test_mail_comes_while_the_loop_waits_and_stays_on_disk_until_it_is_drained(home: Path) -> None:
    async def work() -> None:
        async with crew() as both:
            both.mail("first")
            await both.seat.look()
            assert both.agent.waiting == 0  # it is at work
            await both.rest()
            await both.seat.look()
            assert [entry.text for entry in both.agent.peek()] == ["first"]
            assert both.left() == ["first"]
            await both.seat.look()
            assert len(both.agent.peek()) == 1
            batch = both.agent.drain()
            assert (batch.entries[0].origin.kind, batch.entries[0].origin.verified) == ("lead", False)
            await both.seat.look()
            assert both.left() == []

    run(work())


@pytest.mark.rule("07.9")
def test_what_its_list_holds_comes_first_then_a_shutdown_then_mail_then_a_task(home: Path) -> None:
    async def work() -> None:
        async with crew() as both:
            await asyncio.to_thread(both.seat.tasks.create, Draft(subject="paint", description="blue"))
            both.mail("older mail")
            frame = ShutdownRequest(request_id="shutdown-worker-1", from_="team-lead", timestamp=stamp(0))
            both.mail(frame_text.encode(frame))
            sent(await both.session.send("worker", "by its lead's own hand", summary="s"))
            await both.rest()
            await both.seat.look()
            assert words(both.agent.drain()) == ["by its lead's own hand"]
            await both.rest()
            await both.seat.look()
            shutdown, mail = words(both.agent.drain())
            assert "shut down" in shutdown
            assert mail == "older mail"
            await both.rest()
            await both.seat.look()
            (task,) = words(both.agent.drain())
            assert "#1: paint" in task
            assert "blue" in task
            assert both.seat.tasks.read().tasks["1"].owner == "worker"
            await both.rest()
            await both.seat.look()
            assert both.agent.waiting == 0

    run(work())


@pytest.mark.rule("07.9", "07.23")
def test_no_task_is_taken_by_one_that_is_at_work_stopped_or_told_not_to(home: Path) -> None:
    async def work() -> None:
        async with crew() as both:
            await asyncio.to_thread(both.seat.tasks.create, Draft(subject="paint", description="x"))
            await both.seat.look()
            standing = both.session.standing
            standing.apply(replace(standing.settings, claim_tasks=False))
            await both.rest()
            await both.seat.look()
            standing.apply(replace(standing.settings, claim_tasks=True))
            await both.agents.stop(both.agent)
            await both.seat.look()
            assert both.seat.tasks.read().tasks["1"].owner is None
            assert both.agent.waiting == 0

    run(work())


@pytest.mark.rule("07.20", "07.2")
def test_it_writes_under_its_own_name_and_its_lead_hears_when_it_is_idle(home: Path) -> None:
    async def work() -> None:
        async with crew() as both:
            chief = both.session.team
            assert chief is not None
            sent(await both.agent.send("team-lead", "a question", summary="s"), "written")
            sent(await both.session.send("worker", "an answer", summary="s"))
            both.agent.drain()
            await both.rest()
            await both.seat.look()
            await chief.look()
            lease = both.session.take()
            question, idle = lease.messages
            assert (question.text, question.origin.kind, question.origin.name) == (
                "a question",
                "teammate",
                "worker",
            )
            assert "idle" in idle.text
            both.session.confirm(lease)
            await both.seat.look()
            await chief.look()
            assert texts(both.session) == []  # one turn, told once

    run(work())


@pytest.mark.rule("07.18", "01.16", "01.4")
def test_it_is_asked_to_shut_down_answers_and_is_gone(home: Path) -> None:
    async def work() -> None:
        async with crew() as both:
            chief = both.session.team
            assert chief is not None
            request = {"to": "worker", "message": {"type": "shutdown_request"}}
            assert sent(await both.session.send_call(request), "written").to.kind == "teammate"
            await both.rest()
            await both.seat.look()
            both.agent.drain()
            (open_one,) = both.seat.requests.open
            answer = {"type": "shutdown_response", "request_id": open_one.id, "approve": True}
            raw = {"to": "team-lead", "message": answer}
            other = await both.agents.start("other")  # no teammate: an ordinary agent sends no record
            refused(await other.send_call(raw), "structured_not_for_subagent")
            sent(await both.agent.send_call(raw), "written")
            await both.seat.look()
            await chief.look()
            assert chief.members == frozenset()
            assert both.agent.state == "killed"
            assert any("agreed" in text for text in texts(both.session))

    run(work())


@pytest.mark.rule("02.25", "02.23", "07.22")
def test_mail_to_one_whose_run_has_ended_is_the_prompt_of_its_next(home: Path) -> None:
    async def work() -> None:
        async with crew() as both:
            await both.agent.finish()
            both.agents.evict(both.agent)
            both.mail("go on")
            await both.seat.look()
            await until(lambda: bool(both.starter.calls) and both.agent.flight is None)
            assert both.starter.calls == [(both.agent.id, 2, ["go on"])]
            await both.seat.look()
            assert both.left() == []
            await both.agents.stop(both.agent)
            both.mail("not any more")
            await both.seat.look()
            assert both.left() == ["not any more"]  # it waits for its owner's word
            assert both.agent.waiting == 0

    run(work())


@pytest.mark.rule("02.25", "07.22", "02.7")
def test_after_a_crash_it_is_the_same_member_and_old_frames_are_thrown_away(home: Path) -> None:
    async def work() -> None:
        async with crew() as both:
            team = both.seat.team
            member = team.member("worker") if team else None
            assert team is not None
            assert member is not None
            identity, lead = team.identity(member), both.session.id
            both.mail("still to be read")
            frame = ShutdownRequest(request_id="shutdown-worker-1", from_="team-lead", timestamp=stamp(0))
            both.mail(frame_text.encode(frame))
            kept = home / "kept"
            shutil.copytree(both.seat.files.folder, kept)
        shutil.copytree(kept, both.seat.files.folder, dirs_exist_ok=True)
        async with crew(lead) as again:
            team = again.seat.team
            member = team.member("worker") if team else None
            assert team is not None
            assert member is not None
            assert (team.identity(member), member.evicted_at) == (identity, None)
            assert again.left() in (["still to be read"], [])
            with again.session.reading() as store:
                assert [s.detail for _, s in store.log(limit=50) if s.state == "refused"] == [
                    "frame: of an earlier life"
                ]
            await again.seat.look()
            await until(lambda: again.starter.texts == ["still to be read"])

    run(work())


@pytest.mark.rule("02.9", "01.29")
def test_it_is_found_as_the_agent_that_it_is(home: Path) -> None:
    async def work() -> None:
        async with crew() as both:
            assert [(row.name, row.kind) for row in both.session.listing().rows] == [("worker", "agent")]
            assert sent(await both.session.send("worker", "at once", summary="s")).to.kind == "agent"
            assert both.agent.waiting == 1

    run(work())


@pytest.mark.rule("07.8", "07.22")
def test_what_cannot_be_enlisted_says_why(home: Path) -> None:
    async def work() -> None:
        async with crew() as both, open_session("other") as other:
            with pytest.raises(BadUsage, match="already"):
                await enlist(both.agents, both.agent)
            odd = await both.agents.start("with a space")
            with pytest.raises(InvalidName):
                await enlist(both.agents, odd)
            places: Places = places_of(str(home / "state"))
            await join(other, places, "lead")
            agents = Agents(other)
            with pytest.raises(BadUsage, match="another one's"):
                await enlist(agents, await agents.start("mine"))
            config: Any = json.loads(Path(both.seat.files.path).read_text())
            assert [one["name"] for one in config["members"]] == ["team-lead", "worker", "other"]

    run(work())
