"""A session of ours and real Claude Codes in one team, with either of them as its lead (07.1).

The teams lie where Claude Code has its own, so that both programs write the same files. Its sessions start with teams
switched on, by the variable that it documents. What was seen of its version stands in docs/clients.md.

What is weak: our session takes the lead's place in that folder by hand, as `joining` does in its own.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from postroom import Message, Receipt, open_session
from postroom import Session as Ours
from postroom.core.address import LEAD
from postroom.core.team import Member, Team, founded, joined, team_name
from postroom.joining import join
from postroom.state.teams import Places, files_of, places_of, tasks_of
from postroom.teaming import Teaming
from tests.clients.conftest import Make
from tests.clients.dialects import Item
from tests.clients.launch import House, Session
from tests.clients.model import call, say

SWITCH = "CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS"

SECONDS = 60.0
"""The bound on a wait: each program looks once a second, and a member that approved has ten to be gone."""

BETWEEN = 0.1
"""Between two looks."""

REQUEST_ID = re.compile(r'"requestId":"([^"]*)"')

PLAN = re.compile(r"/\S+/plans/[\w-]+\.md")
"""The file into which it wants a plan, which it names."""

ASKED = {"type": "shutdown_request", "reason": "ENOUGH-1"}

pytestmark = pytest.mark.needs("claude-code")


@dataclass
class Crew:
    """A session of Claude Code on its terminal, one of ours, and the place of ours in their team."""

    session: Session
    ours: Ours
    seat: Teaming
    read: list[Message] = field(default_factory=list[Message])

    async def turn(self, said: str, *steps: str) -> str:
        """Has it take a turn with these directives; returns all that its model was told until it said so."""
        return (await asyncio.to_thread(self.session.turn, "".join(steps) + say(said), said)).told

    async def told(self, words: str) -> Item:
        """Waits until its model was told these words, or that of a teammate inside it; returns what it was told."""
        return (await asyncio.to_thread(self.session.model.told, words)).where(words)

    async def got(self, words: str) -> Message:
        """Waits until our session has read a message with these words."""

        def found() -> bool:
            self.read += self.ours.drain()
            return any(words in message.text for message in self.read)

        await until(found, f"a message with {words!r} in {[message.text for message in self.read]}")
        return next(message for message in self.read if words in message.text)

    async def send(self, to: str, text: str) -> None:
        """Our session writes to a teammate."""
        sent = await self.ours.send(to, text, summary="from ours")
        assert isinstance(sent, Receipt), sent
        assert (sent.status, sent.to.kind) == ("written", "teammate")

    async def spawn(self, name: str) -> None:
        """It starts a teammate of its own, inside itself, whose first turn ends."""
        work = {"description": "works", "subagent_type": "general-purpose", "run_in_background": True}
        done = f"{name}-WORKED"
        await self.turn(f"{name}-STARTED", call("Agent", name=name, prompt=say(done), **work))
        await asyncio.to_thread(self.session.model.said, done)

    def config(self) -> dict[str, Any]:
        """The team's config as it is on disk."""
        return json.loads(Path(self.seat.files.path).read_text())

    def entry(self, name: str) -> dict[str, Any] | None:
        """A member's entry there; None where it has none."""
        return next((one for one in self.config()["members"] if one["name"] == name), None)

    def waiting(self, name: str) -> list[dict[str, Any]]:
        """What lies in somebody's mailbox."""
        file = Path(self.seat.mailbox_of(name).path)
        return json.loads(file.read_text()) if file.exists() else []


async def until(holds: Callable[[], bool], what: str) -> None:
    """Looks again and again until something holds; fails after the bound."""
    end = asyncio.get_running_loop().time() + SECONDS
    while not holds():
        assert asyncio.get_running_loop().time() < end, f"not seen: {what}"
        await asyncio.sleep(BETWEEN)


def runs(word: str) -> bool:
    """Whether a program runs with this word on its command line."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            if word.encode() in place.read_bytes().split(b"\0"):
                return True
    return False


def switched_on(house: House) -> Places:
    """Switches teams on for whatever Claude Code starts in a house; returns where they lie."""
    house.environ[SWITCH] = "1"
    teams = house.folder / ".claude" / "teams"
    teams.mkdir(mode=0o700, parents=True)
    return places_of(str(house.folder / ".local/state/postroom"), str(teams))


@asynccontextmanager
async def its_lead(house: House, agent: Make) -> AsyncGenerator[Crew]:
    """A session of Claude Code is the lead; ours has joined its team as `schema`."""
    places = switched_on(house)
    made = agent("claude-code")
    with ExitStack() as stack:
        session = await asyncio.to_thread(stack.enter_context, made.opened())
        await asyncio.to_thread(session.turn, say("HERE"), "HERE")
        (folder,) = Path(places.teams).iterdir()
        async with open_session("ours", environ=house.environ, handle_signals=False) as ours:
            seat = await join(ours, places, folder.name, "schema")
            yield Crew(session, ours, seat)


@asynccontextmanager
async def our_lead(house: House, agent: Make, *words: str) -> AsyncGenerator[Crew]:
    """Our session is the lead; a Claude Code is its teammate `worker`, in a pane of its own, as its lead would start it.

    `words` are more of its command line.
    """
    places = switched_on(house)
    made = agent("claude-code")
    async with open_session("ours", environ=house.environ, handle_signals=False) as ours:
        team, now = team_name(ours.id), ours.now()
        files = files_of(places, team, ours.id)
        worker = Member(
            name="worker", type="general-purpose", pane="%0", backend="tmux", cwd=str(made.project)
        )

        def begun(present: Team | None) -> Team:
            assert present is None
            return joined(founded(team, now, lead_session_id=ours.id), worker, now).team

        await asyncio.to_thread(files.change, begun)
        seat = Teaming(ours, files, tasks_of(places, team), LEAD)
        ours.seat(seat)
        await seat.look()
        seat.begin()
        who = ("--agent-id", f"worker@{team}", "--agent-name", "worker", "--team-name", team)
        more = ("--agent-color", "blue", "--parent-session-id", ours.id, "--agent-type", "general-purpose")
        with ExitStack() as stack:
            opened = made.opened(*(words or ("--permission-mode", "default")), *who, *more)
            yield Crew(await asyncio.to_thread(stack.enter_context, opened), ours, seat)


@pytest.mark.rule("07.1", "07.2", "07.5", "07.22")
def test_its_lead_takes_a_member_from_outside(home_of_all: House, agent: Make) -> None:
    async def work() -> None:
        async with its_lead(home_of_all, agent) as crew:
            listed = await crew.turn("LISTED", call("ListAgents"))
            assert "Teammates (1):" in listed
            assert re.search(r"\bschema \[[0-9a-f]+\]", listed)
            sent = await crew.turn("SENT", call("SendMessage", to="schema", summary="s", message="MAIL-1"))
            assert "Message sent to schema's inbox" in sent
            mail = await crew.got("MAIL-1")
            assert (mail.text, mail.origin.kind, mail.origin.name) == ("MAIL-1", "lead", "team-lead")
            assert not mail.origin.verified
            await until(lambda: crew.waiting("schema") == [], "an empty mailbox")

    asyncio.run(work())


@pytest.mark.rule("07.1", "07.2", "07.3", "07.5", "07.12")
def test_its_lead_and_its_teammate_exchange_mail_with_a_member_from_outside(
    home_of_all: House, agent: Make
) -> None:
    async def work() -> None:
        async with its_lead(home_of_all, agent) as crew:
            ours = crew.entry("schema")
            await crew.send("team-lead", f"MAIL-1 {say('HEARD-1')}")
            await crew.turn("ALONE")
            assert len(crew.waiting("team-lead")) == 1, (
                "it looks into its mailbox without a teammate of its own"
            )
            await crew.spawn("worker")
            shown = await crew.told("MAIL-1")
            assert shown.role == "user"
            assert '<teammate-message teammate_id="schema" summary="from ours">\nMAIL-1' in shown.text
            await asyncio.to_thread(crew.session.model.said, "HEARD-1")
            await crew.send("team-lead", f"MAIL-2 {say('HEARD-2')}")
            await crew.told("MAIL-2")
            await asyncio.to_thread(crew.session.model.said, "HEARD-2")
            assert crew.entry("schema") == ours, "it wrote the config, and our entry is another one now"
            assert crew.seat.members == {"schema", "worker"}
            back = call("SendMessage", to="schema", summary="s", message="MAIL-4")
            await crew.send("worker", f"MAIL-3 {back} {say('HEARD-3')}")
            shown = await crew.told("MAIL-3")
            assert '<teammate-message teammate_id="schema" summary="from ours">' in shown.text
            mail = await crew.got("MAIL-4")
            assert (mail.text, mail.origin.kind, mail.origin.name) == ("MAIL-4", "teammate", "worker")

    asyncio.run(work())


@pytest.mark.rule("07.1", "07.12", "07.18", "07.22")
def test_a_member_from_outside_goes_when_its_lead_asks(home_of_all: House, agent: Make) -> None:
    async def work() -> None:
        async with its_lead(home_of_all, agent) as crew:
            await crew.spawn("worker")
            sent = await crew.turn("ASKED", call("SendMessage", to="schema", message=ASKED))
            assert "Shutdown request sent to schema" in sent
            asked = await crew.got("Please shut down.")
            assert "ENOUGH-1" in asked.text
            request_id = crew.seat.departures["schema"].request_id
            assert json.dumps(request_id) in asked.text
            answer = {"type": "shutdown_response", "request_id": request_id, "approve": True}
            receipt = await crew.ours.send_call({"to": "team-lead", "message": answer})
            assert isinstance(receipt, Receipt), receipt
            shown = await crew.told("shutdown_approved")
            assert 'teammate_id="schema"' in shown.text
            await until(lambda: crew.entry("schema") is None and crew.seat.over, "a team without us")
            await until(lambda: crew.ours.team is None, "a session in no team")
            await crew.spawn("other")
            await until(lambda: crew.entry("other") is not None, "another teammate")
            (gone,) = crew.config()["postroom"]["left"]
            assert (gone["name"], gone["why"]) == ("schema", "shutdown")

    asyncio.run(work())


@pytest.mark.rule("07.1", "07.2", "07.12", "07.18", "07.20", "07.22")
def test_its_session_is_a_teammate_of_ours_and_answers_a_request_to_shut_down(
    home_of_all: House, agent: Make
) -> None:
    async def work() -> None:
        async with our_lead(home_of_all, agent) as crew:
            back = call("SendMessage", to="team-lead", summary="s", message="MAIL-2")
            await crew.send("worker", f"MAIL-1 {back} {say('HEARD-1')}")
            shown = await crew.told("MAIL-1")
            assert shown.text.startswith('<teammate-message teammate_id="team-lead" summary="from ours">')
            mail = await crew.got("MAIL-2")
            assert (mail.text, mail.origin.kind, mail.origin.name) == ("MAIL-2", "teammate", "worker")
            idle = await crew.got("My turn has ended and I am idle.")
            assert idle.origin.name == "worker"

            async def answered(why: str, **answer: object) -> None:
                """Asks, and has it answer with the id that its model was shown."""
                asked = {"to": "worker", "message": {"type": "shutdown_request", "reason": why}}
                receipt = await crew.ours.send_call(asked)
                assert isinstance(receipt, Receipt), receipt
                shown = REQUEST_ID.search((await crew.told(why)).text)
                assert shown is not None
                assert shown[1] == crew.seat.departures["worker"].request_id
                record = {"type": "shutdown_response", "request_id": shown[1], **answer}
                await crew.send(
                    "worker", call("SendMessage", to="team-lead", message=record) + say(f"DID-{why}")
                )

            await answered("ENOUGH-1", approve=False, reason="NOT-YET")
            refusal = await crew.got("I have not agreed to shut down.")
            assert "NOT-YET" in refusal.text
            assert crew.seat.departures == {}
            assert crew.entry("worker") is not None

            agent_id = f"worker@{crew.seat.files.team}"
            assert runs(agent_id)
            await answered("ENOUGH-2", approve=True)
            await crew.got("I have agreed to shut down.")
            await until(lambda: not runs(agent_id), "the end of its session")
            await until(lambda: crew.entry("worker") is None, "a team without it")
            (gone,) = crew.config()["postroom"]["left"]
            assert (gone["name"], gone["why"]) == ("worker", "shutdown")

    asyncio.run(work())


@pytest.mark.rule("07.1", "07.12", "07.19")
def test_its_session_plans_and_our_lead_approves(home_of_all: House, agent: Make) -> None:
    async def work() -> None:
        planning = ("--permission-mode", "plan", "--plan-mode-required")
        async with our_lead(home_of_all, agent, *planning) as crew:
            loaded = call("ToolSearch", query="select:ExitPlanMode")
            await crew.send("worker", f"MAIL-1 {loaded} {say('LOADED')}")
            asked = await asyncio.to_thread(crew.session.model.said, "LOADED")
            place = PLAN.search(asked.told)
            assert place is not None, asked.told
            written = call("Write", file_path=place[0], content="# PLAN-1")
            await crew.send("worker", f"MAIL-2 {written} {call('ExitPlanMode')} {say('PLANNED')}")
            plan = await crew.got("Please look at my plan.")
            assert plan.text.endswith("# PLAN-1")
            (request,) = crew.seat.requests.open
            assert json.dumps(request.id) in plan.text
            yes: dict[str, object] = {"request_id": request.id, "approve": True, "feedback": "GO-ON"}
            record = {"type": "plan_approval_response", **yes}
            receipt = await crew.ours.send_call({"to": "worker", "message": record})
            assert isinstance(receipt, Receipt), receipt
            assert "[Plan Approved] GO-ON" in (await crew.told("GO-ON")).text
            screen = crew.session.screen
            await until(lambda: "manual mode on" in screen.text, f"its default mode on {screen.name}")

    asyncio.run(work())
