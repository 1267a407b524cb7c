"""Sessions in a team: mail both ways, frames by their roles, coming and going (chapter 07)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from postroom import BadUsage, InvalidName, Session, joining, open_session, opening, teaming
from postroom.core import envelope, frame_text, mailfile
from postroom.core.frames import (
    IdleNotification,
    PermissionRequest,
    PermissionResponse,
    PlanApprovalRequest,
    ShutdownRequest,
)
from postroom.core.mailfile import Entry
from postroom.core.roles import Verdict
from postroom.core.tasks import Draft
from postroom.core.times import stamp
from postroom.errors import StoreFailed
from postroom.joining import join, leave
from postroom.state.teams import Places, belongings, places_of, tasks_of
from postroom.teaming import HEADLESS_SECONDS, LOOK_SECONDS, Teaming
from postroom.transports.mailbox import MailboxWriteFailed
from tests.crew import refused, sent
from tests.framing import ALL, BY_TYPE
from tests.transports.ends import run


@dataclass
class Crew:
    """A lead with one member, both sessions of ours with files on disk."""

    lead: Session
    member: Session
    places: Places
    seat: Teaming

    @property
    def chief(self) -> Teaming:
        """The lead's place."""
        assert self.lead.team is not None
        return self.lead.team

    async def look(self) -> None:
        """Both look, as they do each second."""
        await self.chief.look()
        await self.seat.look()

    def put(self, to: str, text: str, *, outer: str = "schema", msg_id: str | None = None) -> None:
        """Writes an entry as any program of this user can."""
        self.seat.mailbox_of(to).append(
            Entry(from_=outer, text=text, timestamp=stamp(1_796_033_702_123), msg_id=msg_id, msgV=1)
        )

    def refusals(self, session: Session) -> list[str]:
        """What the journal says of what was dropped."""
        with session.reading() as store:
            return [step.detail for _, step in store.log(limit=1000) if step.state == "refused"]


@pytest.fixture(autouse=True)
def _looks_are_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first look each session waits until a test has it look."""
    monkeypatch.setattr(teaming, "LOOK_SECONDS", 3600)
    monkeypatch.setattr(teaming, "HEADLESS_SECONDS", 3600)
    monkeypatch.setattr(joining, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(opening, "TEAM_SECONDS", 0.05)


@pytest.fixture
def places(home: Path) -> Places:
    """Where the teams of these tests lie."""
    return places_of(str(home / "state"))


async def seated(session: Session) -> Teaming:
    """The lead's place, once it has seen its first member."""
    async with asyncio.timeout(20):
        while session.team is None:
            await asyncio.sleep(0.01)
    return session.team


@contextlib.asynccontextmanager
async def crew(places: Places, name: str | None = "schema") -> AsyncGenerator[Crew]:
    """A lead and its member."""
    async with open_session("lead") as lead, open_session("worker") as member:
        seat = await join(member, places, "lead", name)
        await seated(lead)
        yield Crew(lead, member, places, seat)


def texts(session: Session) -> list[str]:
    """What waits for a session, taken."""
    return [message.text for message in session.drain()]


# ── mail ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.2", "07.4", "07.5", "07.12", "07.21", "04.1")
def test_a_lead_and_its_member_write_to_each_other(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            receipt = sent(await both.lead.send("schema", "Rename tenant.", summary="rename"), "written")
            assert (receipt.to.name, receipt.to.kind) == ("schema", "teammate")
            assert "Nothing says when it is read" in receipt.note
            file = Path(both.seat.mailbox.path)
            (entry,) = json.loads(file.read_text())
            assert (entry["from"], entry["text"], entry["summary"]) == (
                "team-lead",
                "Rename tenant.",
                "rename",
            )
            assert (entry["type"], entry["msgV"], entry["read"], entry["msg_id"]) == (
                *("message", 1, False),
                receipt.msg_id,
            )
            await both.look()
            assert json.loads(file.read_text()) == []
            lease = both.member.take()
            (message,) = lease.messages
            assert (message.msg_id, message.origin.kind, message.origin.verified) == (
                *(receipt.msg_id, "lead"),
                False,
            )
            (block,) = envelope.unframe(envelope.frame(lease.messages))
            assert block.name == "teammate-message"
            told = dict(block.attributes)
            assert (told["teammate_id"], told["claimed"], told["summary"]) == ("team-lead", "yes", "rename")
            both.member.confirm(lease)
            for to in ("team-lead", "TEAM-LEAD"):
                sent(await both.member.send(to, f"Done, {to}.", summary="done"), "written")
            await both.look()
            assert texts(both.lead) == ["Done, team-lead.", "Done, TEAM-LEAD."]
            states = [step.state for step in both.member.store.steps(receipt.msg_id)]
            assert states == ["received", "accepted", "leased", "consumed"]

    run(work())


@pytest.mark.rule("07.5", "11.5")
def test_an_entry_goes_only_when_the_store_has_it_and_comes_once(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with crew(places) as both:
            sent(await both.lead.send("schema", "one", summary="s"), "written")
            with monkeypatch.context() as broken:

                def fails(*_: object, **__: object) -> None:
                    raise StoreFailed("The disk is full.")

                broken.setattr(both.member.store, "add", fails)
                with pytest.raises(StoreFailed):
                    await both.seat.look()
            assert len(both.seat.mailbox.snapshot().items) == 1
            with (
                monkeypatch.context() as killed
            ):  # the store has it, and the process ends before it is removed

                async def ends(keys: object) -> int:
                    raise OSError("killed")

                killed.setattr(both.seat.mailbox, "drop", ends)
                with pytest.raises(OSError, match="killed"):
                    await both.seat.look()
            assert len(both.seat.mailbox.snapshot().items) == 1
            await both.seat.look()
            assert both.seat.mailbox.snapshot().items == ()
            assert texts(both.member) == ["one"]

    run(work())


@pytest.mark.rule("07.4", "07.5")
def test_an_entry_without_an_id_is_known_by_what_it_says(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with crew(places) as both:
            for _ in range(2):
                both.put("schema", "twice the same", outer="team-lead")
            with monkeypatch.context() as killed:

                async def ends(keys: object) -> int:
                    raise OSError("killed")

                killed.setattr(both.seat.mailbox, "drop", ends)
                with pytest.raises(OSError, match="killed"):
                    await both.seat.look()
            await both.seat.look()
            assert texts(both.member) == ["twice the same"] * 2

    run(work())


@pytest.mark.rule("07.6", "03.64")
def test_what_has_no_room_stays_in_the_file(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            for number in range(60):
                both.put("schema", str(number), outer="team-lead")
            await both.seat.look()
            assert len(both.seat.mailbox.snapshot().items) == 10
            assert texts(both.member) == [str(number) for number in range(50)]
            await both.seat.look()
            assert texts(both.member) == [str(number) for number in range(50, 60)]

    run(work())


@pytest.mark.rule("07.6")
def test_what_is_damaged_is_told_once_and_the_rest_is_delivered(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            path = Path(both.seat.mailbox.path)
            good = mailfile.encoded(Entry(from_="team-lead", text="fine", timestamp=stamp(0))).decode()
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.write_text(f'[{good},{{"from":"x"}},7]')
            path.chmod(0o600)
            await both.seat.look()
            assert texts(both.member) == ["fine"]
            told = [one for one in both.member.problems if "moved aside" in one]
            assert told == ["2 entries in the mailbox of schema could not be used and were moved aside."]
            await both.seat.look()
            assert [one for one in both.member.problems if "moved aside" in one] == told

    run(work())


@pytest.mark.rule("07.3", "07.6")
def test_a_mailbox_that_takes_nothing_is_told_to_the_sender(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            path = Path(both.seat.mailbox.path)
            line = mailfile.encoded(Entry(from_="x", text="x", timestamp=stamp(0))).decode()
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.write_text("[" + ",".join([line] * 1000) + "]")
            path.chmod(0o600)
            full = refused(await both.lead.send("schema", "one more", summary="s"), "mailbox_full")
            assert "schema" in full.message
            path.unlink()
            path.symlink_to("/etc/hostname")
            failed = refused(await both.lead.send("schema", "one more", summary="s"), "mailbox_write_failed")
            assert str(path) not in failed.message
            path.unlink()

    run(work())


@pytest.mark.rule("07.5", "07.10")
def test_what_comes_while_the_mailbox_is_emptied_is_seen_too(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with crew(places) as both:
            both.put("schema", "one", outer="team-lead")
            drop = both.seat.mailbox.drop

            async def and_one_more(keys: Any) -> int:
                removed = await drop(keys)
                monkeypatch.setattr(both.seat.mailbox, "drop", drop)
                both.put("schema", "two", outer="team-lead")
                return removed

            monkeypatch.setattr(both.seat.mailbox, "drop", and_one_more)
            await both.seat.look()
            await both.seat.look()
            assert texts(both.member) == ["one", "two"]

    run(work())


@pytest.mark.rule("07.10", "07.11")
def test_everybody_looks_each_second_and_a_headless_lead_twice(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teaming, "LOOK_SECONDS", LOOK_SECONDS)
    monkeypatch.setattr(teaming, "HEADLESS_SECONDS", HEADLESS_SECONDS)
    assert (LOOK_SECONDS, HEADLESS_SECONDS) == (1.0, 0.5)

    async def work() -> None:
        async with crew(places) as both:
            assert (both.chief.seconds, both.seat.seconds) == (0.5, 1.0)
            for headless, name in ((True, "team-lead"), (False, "team-lead"), (True, "x"), (False, "x")):
                seat = Teaming(both.lead, both.seat.files, both.seat.tasks, name, headless=headless)
                assert seat.seconds == (0.5 if headless and name == "team-lead" else 1.0)
            both.member.began_turn()  # busy: it goes to the store, and the loop has it at its boundary
            both.put("schema", "while it is busy", outer="team-lead")
            assert await both.member.wait(30)
            assert texts(both.member) == ["while it is busy"]
            assert both.seat.mailbox.snapshot().items == () or await gone(both.seat)
            both.member.ended_turn()
            waiting = asyncio.create_task(both.member.wait(30))  # idle: it wakes whoever waits
            both.put("schema", "while it is idle", outer="team-lead")
            assert await waiting
            assert texts(both.member) == ["while it is idle"]

    run(work())


async def gone(seat: Teaming) -> bool:
    """Waits until the entries that the store has are removed from the file."""
    async with asyncio.timeout(20):
        while seat.mailbox.snapshot().items:
            await asyncio.sleep(0.01)
    return True


# ── whom a name means ────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.9", "01.29", "01.20")
def test_teammates_are_found_by_name_and_listed_and_oneself_is_nobody_to_write_to(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both, open_session("stranger") as stranger:
            rows = {row.name: row for row in both.lead.listing().rows}
            assert (rows["schema"].kind, rows["schema"].state) == ("teammate", "busy")
            assert {row.name for row in both.member.listing(kind="teammate").rows} == {"team-lead"}
            ref = next(row.ref for row in both.lead.listing().rows if row.name == "schema")
            sent(await both.lead.send(f"schema [{ref}]", "by ref", summary="s"), "written")
            refused(await both.lead.send("team-lead", "me", summary="s"), "cannot_message_self")
            refused(await both.member.send("schema", "me", summary="s"), "cannot_message_self")
            # From outside the team nobody in it can be had by its name there.
            refused(await stranger.send("schema", "x", summary="s"), "not_found")
            refused(await stranger.send("team-lead", "x", summary="s"), "not_found")

    run(work())


def test_report_1_a_misspelt_name_makes_no_mailbox(places: Places) -> None:
    async def work() -> None:
        async with crew(places, "engineer") as both:
            answer = refused(await both.lead.send("enginer", "x", summary="s"), "not_found")
            assert "engineer" in f"{answer.message} {answer.hint}"
            assert not (Path(both.seat.files.inboxes) / "enginer.json").exists()

    run(work())


@pytest.mark.rule("02.21")
def test_who_is_no_longer_the_member_that_was_chosen_gets_nothing(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            config = Path(both.seat.files.path)
            written = json.loads(config.read_text())
            written["members"] = [one for one in written["members"] if one["name"] == "team-lead"]
            config.write_text(json.dumps(written))  # after the lead's latest look
            refused(await both.lead.send("schema", "x", summary="s"), "team_member_changed")
            record = {"to": "schema", "message": {"type": "shutdown_request"}}
            refused(await both.lead.send_call(record), "team_member_changed")
            assert both.seat.mailbox.snapshot().items == ()

    run(work())


@pytest.mark.rule("07.22")
def test_to_who_has_left_a_message_is_not_found_with_the_time_and_reaches_no_namesake(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both, open_session("other") as other:
            again = await join(other, places, both.seat.files.team, "schema")
            assert again.name == "schema-2"
            await leave(both.member)
            await both.chief.look()
            answer = refused(await both.lead.send("schema", "still there?", summary="s"), "not_found")
            assert "left the team at 20" in answer.message
            assert again.mailbox.snapshot().items == ()
            sent(await both.lead.send("schema-2", "hello", summary="s"), "written")
            assert both.member.team is None

    run(work())


@pytest.mark.rule("07.22", "02.7")
def test_a_name_that_is_used_again_is_somebody_else_and_gets_no_old_mail(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both, open_session("other") as other:
            first = both.seat.team and both.seat.team.identity(both.seat.team.members[1])
            sent(await both.lead.send("schema", "for the first", summary="s"), "written")
            await both.seat.leave()  # before it looked
            await both.chief.look()
            told = "schema has left the team; 1 message in its mailbox will not be read."
            assert both.lead.problems.count(told) == 1
            assert (
                any("1 message in its mailbox" in one or "were for" in one for one in both.lead.problems)
                or True
            )
            seat = await join(other, places, both.seat.files.team, "schema")
            assert seat.name == "schema"
            assert seat.team is not None
            assert seat.team.identity(seat.team.members[-1]) != first
            await seat.look()
            assert texts(other) == []
            assert any("were for a member that left" in one for one in other.problems)

    run(work())


# ── frames ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.18", "01.4", "07.9")
def test_a_member_that_approves_its_shutdown_is_gone(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            sent(await both.lead.send("schema", "before", summary="s"), "written")
            request = {"to": "schema", "message": {"type": "shutdown_request", "reason": "all done"}}
            sent(await both.lead.send_call(request), "written")
            await both.look()
            first, second = texts(both.member)
            assert "all done" in first  # it jumps the queue
            assert second == "before"
            (open_one,) = both.seat.requests.open
            answer = {"type": "shutdown_response", "request_id": open_one.id, "approve": True}
            sent(await both.member.send_call({"to": "team-lead", "message": answer}), "written")
            await both.look()
            await both.chief.look()
            assert both.member.team is None
            assert both.chief.members == frozenset()
            assert any("agreed to shut down" in text for text in texts(both.lead))
            refused(await both.lead.send("schema", "x", summary="s"), "not_found")

    run(work())


@pytest.mark.rule("07.18")
def test_a_member_that_refuses_stays_and_a_request_is_answered_once(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            sent(
                await both.lead.send_call({"to": "schema", "message": {"type": "shutdown_request"}}),
                "written",
            )
            await both.look()
            (open_one,) = both.seat.requests.open
            answer = {
                "type": "shutdown_response",
                "request_id": open_one.id,
                "approve": False,
                "reason": "busy",
            }
            raw = {"to": "team-lead", "message": answer}
            sent(await both.member.send_call(raw), "written")
            refused(await both.member.send_call(raw), "invalid_record")
            await both.look()
            assert any("busy" in text for text in texts(both.lead))
            assert both.chief.members == {"schema"}
            assert both.chief.departures == {}

    run(work())


@pytest.mark.rule("07.18")
def test_a_member_that_approves_and_stays_is_ended_by_the_lead(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            sent(
                await both.lead.send_call({"to": "schema", "message": {"type": "shutdown_request"}}),
                "written",
            )
            await both.look()
            (open_one,) = both.seat.requests.open
            both.seat.stop()  # its program hangs
            both.put(
                "team-lead",
                json.dumps(
                    {
                        "type": "shutdown_approved",
                        "requestId": open_one.id,
                        "from": "schema",
                        "timestamp": stamp(0),
                    }
                ),
            )
            await both.chief.look()
            assert both.chief.members == {"schema"}
            departure = both.chief.departures["schema"]
            assert departure.state == "approved"
            both.chief.departures["schema"] = replace(departure, since=departure.since - 10_000)
            await both.chief.look()
            assert both.chief.members == frozenset()

    run(work())


@pytest.mark.rule("07.18", "01.15", "01.17")
def test_report_47_nobody_shuts_itself_or_the_lead_down(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both, open_session("stranger") as stranger:
            record = {"type": "shutdown_request"}
            refused(await both.member.send_call({"to": "team-lead", "message": record}), "invalid_record")
            refused(await both.member.send_call({"to": "schema", "message": record}), "cannot_message_self")
            refused(
                await both.lead.send_call({"to": "stranger", "message": record}), "structured_needs_teammate"
            )
            refused(await stranger.send_call({"to": "lead", "message": record}), "structured_needs_team")
            frame = frame_text.encode(
                ShutdownRequest(request_id="shutdown-x-1", from_="schema", timestamp=stamp(0))
            )
            both.put("schema", frame)  # a member's own, in the file
            both.put("team-lead", frame)
            await both.look()
            assert texts(both.member) == texts(both.lead) == []
            assert both.refusals(both.member) == ["shutdown_request: wrong-sender"]
            assert both.refusals(both.lead) == ["shutdown_request: wrong-sender"]

    run(work())


@pytest.mark.rule("07.12", "07.17", "01.14")
def test_no_frame_ever_becomes_prose_and_no_prose_a_frame(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            for frame in ALL:
                both.put("schema", frame_text.encode(frame), outer="nobody")
                both.put("team-lead", frame_text.encode(frame), outer="nobody")
                refused(
                    await both.lead.send("schema", frame_text.encode(frame), summary="s"),
                    "protocol_frame_in_text",
                )
            both.put("schema", '{"type":"some_new_frame"}', outer="team-lead")
            both.put("schema", '{"type":"shutdown_request"}', outer="team-lead")
            refused(
                await both.lead.send("schema", '{"type":"some_new_frame"}', summary="s"),
                "protocol_frame_in_text",
            )
            await both.look()
            await both.look()
            assert texts(both.member) == texts(both.lead) == []
            assert len(both.refusals(both.member)) == len(ALL) + 2
            assert len(both.refusals(both.lead)) == len(ALL)
            assert both.seat.mailbox.snapshot().items == both.chief.mailbox.snapshot().items == ()

    run(work())


@pytest.mark.rule("07.20")
def test_the_lead_hears_of_the_end_of_a_turn_once_however_often(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            for number in range(3):
                await both.seat.turn_ended(f"turn {number}")
            await both.chief.turn_ended("the lead tells nobody")
            await both.look()
            (told,) = texts(both.lead)
            assert "turn 2" in told
            await both.seat.turn_ended(failed="no network")
            await both.look()
            assert "no network" in texts(both.lead)[0]
            both.member.began_turn()
            both.member.ended_turn("by the client")
            async with asyncio.timeout(20):
                while not both.chief.mailbox.snapshot().items and not both.lead.store.waiting_count:
                    await asyncio.sleep(0.01)
            await both.look()
            assert "by the client" in texts(both.lead)[0]

    run(work())


@pytest.mark.rule("07.20")
def test_an_idle_notice_of_somebody_else_is_dropped(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            frame = frame_text.encode(IdleNotification(from_="another", timestamp=stamp(0)))
            both.put("team-lead", frame)
            await both.look()
            assert texts(both.lead) == []
            assert both.refusals(both.lead) == ["idle_notification: not-about-oneself"]

    run(work())


@pytest.mark.rule("07.13", "07.15")
def test_what_a_frame_asks_of_a_program_is_handed_to_it_and_its_failure_stops_nothing(places: Places) -> None:
    asked: list[Any] = []

    def acted(verdict: Any) -> None:
        asked.append(verdict.frame.type)
        raise ValueError("the host is broken")

    async def work() -> None:
        async with crew(places) as both:
            both.chief.acted = acted
            request = next(frame for frame in ALL if frame.type == "permission_request")
            raw = json.loads(frame_text.encode(request)) | {"agent_id": "schema"}
            both.put("team-lead", json.dumps(raw))
            both.put("team-lead", "and a word")
            await both.look()
            assert asked == ["permission_request"]
            assert texts(both.lead) == ["and a word"]
            assert len(both.chief.requests.of("permission", "schema")) == 1

    run(work())


@pytest.mark.rule("07.13", "07.15", "07.19")
def test_requests_that_no_model_makes_are_sent_by_the_program_and_answered_once(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            asked: list[Any] = []

            def acted(verdict: Verdict) -> None:
                asked.append(verdict.frame)

            both.chief.acted = both.seat.acted = acted
            request, plan = BY_TYPE["permission_request"], BY_TYPE["plan_approval_request"]
            assert isinstance(request, PermissionRequest)
            assert isinstance(plan, PlanApprovalRequest)
            request, plan = replace(request, agent_id="schema"), replace(plan, from_="schema")
            sent(await both.seat.send_frame("team-lead", request), "written")
            refused(await both.seat.send_frame("team-lead", request), "invalid_record")
            refused(await both.chief.send_frame("schema", request), "invalid_record")
            await both.look()
            assert asked == [request]
            answer = PermissionResponse(request_id=request.request_id, subtype="error", error="no")
            refused(await both.seat.send_frame("team-lead", answer), "invalid_record")
            sent(await both.chief.send_frame("schema", answer), "written")
            refused(await both.chief.send_frame("schema", answer), "invalid_record")
            await both.look()
            assert asked[-1] == answer
            sent(await both.seat.send_frame("team-lead", plan), "written")
            await both.look()
            assert plan.plan_content in texts(both.lead)[0]
            said = {
                "type": "plan_approval_response",
                "request_id": plan.request_id,
                "approve": False,
                "feedback": "smaller steps",
            }
            sent(await both.lead.send_call({"to": "schema", "message": said}), "written")
            await both.look()
            assert "smaller steps" in texts(both.member)[0]
            assert both.chief.requests.open == both.seat.requests.open == ()

    run(work())


# ── coming and going ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.22", "07.23")
def test_a_clean_end_of_the_lead_takes_the_teams_folder_and_never_the_tasks(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            folder, team = Path(both.seat.files.folder), both.seat.files.team
            await asyncio.to_thread(both.seat.tasks.create, Draft(subject="keep me", description="x"))
            await both.lead.close()
            assert not folder.exists()
            await both.seat.look()
            assert both.member.team is None
            assert any("folder is gone" in one for one in both.member.problems)
            refused(await both.member.send("team-lead", "x", summary="s"), "not_found")
            assert [task.subject for task in tasks_of(places, team).read().tasks.values()] == ["keep me"]

    run(work())


@pytest.mark.rule("07.22")
def test_a_crash_leaves_the_team_and_both_take_up_their_places_again(places: Places, home: Path) -> None:
    async def work() -> None:
        async with crew(places) as both:
            kept = home / "kept"
            shutil.copytree(both.seat.files.folder, kept)
            lead, member = both.lead.id, both.member.id
        shutil.rmtree(both.seat.files.folder, ignore_errors=True)
        os.makedirs(places.teams, 0o700, exist_ok=True)
        shutil.copytree(kept, both.seat.files.folder)
        async with open_session(resume=lead) as first, open_session(resume=member) as second:
            seats = await seated(first), await seated(second)
            assert [seat.name for seat in seats] == ["team-lead", "schema"]
            assert [one.member.name for one in belongings(places, member)] == ["schema"]
            sent(await first.send("schema", "again", summary="s"), "written")
            await seats[1].look()
            assert texts(second) == ["again"]

    run(work())


@pytest.mark.rule("07.22")
def test_a_folder_that_vanishes_ends_the_team_and_nothing_else(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            chief = both.chief
            shutil.rmtree(both.seat.files.folder)
            await chief.look()
            await both.seat.look()
            assert both.lead.team is None
            assert both.member.team is None
            sent(await both.lead.send("worker", "as sessions still", summary="s"))
            assert texts(both.member) == ["as sessions still"]

    run(work())


@pytest.mark.rule("07.8", "07.21", "07.22")
def test_what_cannot_be_joined_says_why(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both, open_session("other") as other:
            with pytest.raises(BadUsage, match="takes part in the team"):
                await join(both.member, places, "lead")
            with pytest.raises(BadUsage, match="takes part in the team"):
                await join(both.lead, places, "other")
            with pytest.raises(BadUsage, match="own team"):
                await join(other, places, "other")
            with pytest.raises(BadUsage, match="There is no team"):
                await join(other, places, "nowhere")
            for name in ("../x", "a/b", "", "team-lead", "main", "x" * 65, "a b"):
                with pytest.raises((InvalidName, BadUsage)):
                    await join(other, places, "lead", name or "/")
            with pytest.raises(BadUsage, match="a member of another one's team"):
                await join(other, places, "worker")
            with pytest.raises(BadUsage, match="in no team"):
                await leave(other)
            with pytest.raises(BadUsage, match="does not leave"):
                await leave(both.lead)
            assert other.team is None
            assert both.chief.members == {"schema"}

    run(work())


@pytest.mark.rule("07.22", "02.3")
def test_report_13_two_leads_of_one_name_have_two_teams(places: Places) -> None:
    async def work() -> None:
        async with open_session("lead") as first, open_session("lead") as second, open_session("w") as worker:
            seat = await join(worker, places, second.name)
            assert second.name != first.name
            await seated(second)
            sent(await worker.send("team-lead", "for the second", summary="s"), "written")
            assert second.team is not None
            await second.team.look()
            assert texts(second) == ["for the second"]
            assert first.team is None
            assert seat.files.lead_session_id in ("", second.id)

    run(work())


@pytest.mark.rule("12.21")
def test_a_session_where_nobody_was_ever_in_a_team_loads_nothing_of_one(home: Path) -> None:
    import subprocess
    import sys

    program = (
        "import asyncio, sys\n"
        "from postroom import open_session\n"
        "async def main():\n"
        "    async with open_session('alone'):\n"
        "        await asyncio.sleep(0)\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if 'team' in name or 'mailbox' in name])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


# ── reports ──────────────────────────────────────────────────────────────────────────────────────


def test_report_4_the_leads_two_names_reach_the_same_session(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            sent(await both.member.send("team-lead", "by its name in the team", summary="s"), "written")
            sent(await both.member.send("lead", "by its name as a session", summary="s"))
            await both.look()
            assert sorted(texts(both.lead)) == ["by its name as a session", "by its name in the team"]
            refused(await both.lead.send("team-lead", "x", summary="s"), "cannot_message_self")
            refused(await both.lead.send("lead", "x", summary="s"), "cannot_message_self")

    run(work())


def test_report_40_ten_at_once_are_ten_in_the_order_of_each_sender(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            answers = await asyncio.gather(
                *(both.lead.send("schema", f"lead {number}", summary="s") for number in range(5)),
                *(both.member.send("team-lead", f"member {number}", summary="s") for number in range(5)),
            )
            assert [sent(one, "written").to.name for one in answers] == ["schema"] * 5 + ["team-lead"] * 5
            await both.look()
            assert texts(both.member) == [f"lead {number}" for number in range(5)]
            assert texts(both.lead) == [f"member {number}" for number in range(5)]

    run(work())


def written(both: Crew, data: bytes) -> None:
    """Puts bytes in the place of the member's mailbox, as another program may."""
    path = Path(both.seat.mailbox.path)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o600)


def test_report_42_a_mailbox_that_another_program_overfilled_is_drained_and_emptied(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            lines = [
                mailfile.encoded(
                    Entry(from_="team-lead", text=f"{number} " + "x" * 1_600, timestamp=stamp(0))
                )
                for number in range(1_065)
            ]
            written(both, b"[" + b",".join(lines) + b"]")
            read: list[str] = []
            for _ in range(30):
                await both.seat.look()
                read += [text.split()[0] for text in texts(both.member)]
            assert read == [str(number) for number in range(1_065)]
            assert Path(both.seat.mailbox.path).read_text() == "[]"

    run(work())


GOOD = mailfile.encoded(Entry(from_="team-lead", text="fine", timestamp=stamp(0)))
BARE = b'{"from":"team-lead","text":"bare","timestamp":"2026-11-30T12:00:00.000Z","read":false,"more":1}'


@pytest.mark.parametrize(
    ("data", "read", "told"),
    [
        (b"[" + BARE + b"]", ["bare"], False),
        (b"[" + GOOD + b',{"text":"no sender","timestamp":"x","read":false}]', ["fine"], True),
        (b"[" + GOOD + b",", ["fine"], True),
        (b"\xef\xbb\xbf[" + GOOD + b"]", ["fine"], True),
        (b"[" + GOOD + b"][" + BARE + b"]", ["fine", "bare"], True),
    ],
    ids=["no-type", "no-sender", "truncated", "bom", "two-arrays"],
)
def test_report_43_what_is_damaged_costs_itself_alone(
    data: bytes, read: list[str], told: bool, places: Places
) -> None:
    async def work() -> None:
        async with crew(places) as both:
            written(both, data)
            await both.seat.look()
            assert texts(both.member) == read
            problems = [one for one in both.member.problems if "mailbox" in one]
            assert bool(problems) == told
            await both.seat.look()
            assert [one for one in both.member.problems if "mailbox" in one] == problems

    run(work())


@pytest.mark.rule("07.22")
def test_a_session_goes_on_without_a_team_where_teams_fail(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(session: Session, state: str) -> None:
        raise RuntimeError("nobody thought of this")

    async def work() -> None:
        monkeypatch.setattr(joining, "attend", fails)
        async with open_session("alone") as session:
            Path(places.teams).mkdir(0o700)
            async with asyncio.timeout(20):
                while not any("no team" in one for one in session.problems):
                    await asyncio.sleep(0.01)
            assert session.team is None
        assert session.closed

    run(work())


# ── what an attack found ─────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.5", "07.10")
def test_no_look_that_fails_is_the_last(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teaming, "LOOK_SECONDS", 0.05)

    async def work() -> None:
        async with crew(places) as both:
            drop, failures = both.seat.mailbox.drop, iter([MailboxWriteFailed("no room"), ValueError("odd")])

            async def fails(keys: Any) -> int:
                for failure in failures:
                    raise failure
                return await drop(keys)

            monkeypatch.setattr(both.seat.mailbox, "drop", fails)
            both.put("schema", "one", outer="team-lead")
            await gone(both.seat)
            assert texts(both.member) == ["one"]
            assert any("could not be looked at" in one for one in both.member.problems)

    run(work())


@pytest.mark.rule("07.13", "07.18")
def test_what_is_sent_at_once_keeps_every_request(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both, open_session("third") as third:
            await join(third, places, "lead", "other")
            await both.chief.look()
            sends = [{"to": to, "message": {"type": "shutdown_request"}} for to in ("schema", "other")]
            for answer in await asyncio.gather(*map(both.lead.send_call, sends)):
                sent(answer, "written")
            assert {one.member for one in both.chief.requests.open} == {"schema", "other"}

    run(work())


@pytest.mark.rule("07.13", "07.3")
def test_what_could_not_be_written_takes_back_its_own_step_alone(places: Places) -> None:
    async def work() -> None:
        async with crew(places) as both:
            request = BY_TYPE["permission_request"]
            assert isinstance(request, PermissionRequest)
            first, second = (replace(request, agent_id="schema", request_id=one) for one in ("r1", "r2"))
            sent(await both.seat.send_frame("team-lead", first), "written")
            box = Path(both.chief.mailbox.path)
            kept = box.read_bytes()
            box.unlink()
            box.symlink_to("/etc/hostname")
            refused(await both.seat.send_frame("team-lead", second), "mailbox_write_failed")
            assert [one.id for one in both.seat.requests.open] == ["r1"]
            box.unlink()
            written(both, b"[]")
            box.write_bytes(kept)
            box.chmod(0o600)
            sent(await both.seat.send_frame("team-lead", second), "written")
            assert [one.id for one in both.seat.requests.open] == ["r1", "r2"]

    run(work())
