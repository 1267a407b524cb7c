"""Our sessions and the neighbours' together: who is listed once, who is meant, who is behind an address (05.28)."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from postroom.core.message import Receipt, Refusal
from postroom.core.resolve import Resolved, resolve
from postroom.neighbourhood import Neighbourhood
from postroom.opening import opened_session
from postroom.state.directory import Directory
from postroom.state.roster import Roster
from tests.claudes import claude, settings_for
from tests.desk import COMMAND, Desk
from tests.test_imports import HEAVY, look_at, roots
from tests.transports.ends import run


def looking(home: Path) -> Neighbourhood:
    """What somebody without a session sees."""
    roster = Roster(str(home / "state"))
    return Neighbourhood(Directory(roster), os.environ, roster.sessions_at)


@pytest.fixture
def around(home: Path) -> Neighbourhood:
    """The same, where no session of ours is open yet."""
    (home / "state").mkdir(mode=0o700)
    return looking(home)


def meant(around: Neighbourhood, to: str) -> Resolved:
    """Whom a name means; somebody."""
    found = resolve(to, around.index(), ended=around.ended)
    assert isinstance(found, Resolved), found
    return found


@pytest.mark.rule("05.28", "09.13")
def test_a_session_of_claude_code_is_a_candidate_like_any_other(home: Path, around: Neighbourhood) -> None:
    """By its name, a former one, a prefix, its ref, its conversation's id."""
    with claude(home, "worker-one") as party:
        party.rewrite(formerNames=[{"name": "older", "until": 5}])
        candidate = meant(around, "worker-one").candidate
        assert (candidate.identity, candidate.address) == (party.identity, party.address)
        assert (candidate.pid, candidate.start) == (party.pid, party.record["procStart"])
        assert (candidate.program, candidate.acknowledges, candidate.tells_idle) == (
            "claude-code",
            False,
            True,
        )
        for to in ("Older", "work", f"worker-one [{candidate.ref}]", party.record["sessionId"]):
            assert meant(around, to).candidate is candidate
        assert around.live(candidate.identity)
        party.rewrite(name="worker-two")
        assert meant(around, "worker-two").candidate.identity == party.identity
        [row] = around.rows().rows
        assert (row.name, row.program, row.identity) == ("worker-two", "claude-code", party.identity)
        assert (row.pid, row.presence, row.confirms) == (party.pid, "interactive", "written")


@pytest.mark.rule("02.13")
def test_one_that_has_ended_is_said_to_have_ended(home: Path, around: Neighbourhood) -> None:
    with claude(home, "worker-one") as party:
        assert meant(around, "worker-one").candidate.identity == party.identity
        record = party.record
    refused = resolve("Worker-One", around.index(), ended=around.ended)
    assert isinstance(refused, Refusal)
    assert "worker-one has ended" in str(refused)
    assert not around.live(party.identity)
    assert around.ended(party.identity) == ("worker-one", record["updatedAt"])
    assert around.rows().rows == []


@pytest.mark.rule("02.13")
def test_one_that_was_killed_is_neither_listed_nor_live(home: Path, around: Neighbourhood) -> None:
    with claude(home, "worker-one") as party:
        assert len(around.rows().rows) == 1
        around.index()
        party.kill()
        assert not around.live(party.identity)
        assert around.rows().rows == []
        around.refresh()
        assert isinstance(resolve("worker-one", around.index()), Refusal)
        # Its record is still there, for whoever looks the first time too.
        fresh = looking(home)
        fresh.index()
        assert fresh.ended("Worker-One") == ("worker-one", party.record["updatedAt"])


@pytest.mark.rule("05.11")
def test_report_22_whose_socket_nobody_answers_is_not_listed(home: Path, around: Neighbourhood) -> None:
    """Every address that is listed takes a connection; why one is not listed is said to its owner (report 19)."""
    with claude(home, "worker-one") as party:
        around.index()
        os.unlink(party.path)
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.bind(party.path)
            os.chmod(party.path, 0o600)
            assert around.rows().rows == []
            assert not around.live(party.identity)
            assert "worker-one of Claude Code runs, and nobody listens at its socket." in around.problems()
        os.unlink(party.path)
        assert around.rows().rows == []
        assert any(f"{party.pid}.json" in one and "not there" in one for one in around.problems())


def test_a_folder_that_cannot_be_trusted_is_a_place_that_was_not_checked(
    home: Path, around: Neighbourhood
) -> None:
    with claude(home, "worker-one"):
        (home / "claude/sessions").chmod(0o755)
        assert [one.place for one in around.index().unchecked] == [str(home / "claude/sessions")]
        around.refresh()
        assert len(around.index().unchecked) == 1
        assert [place for place, _ in around.rows().unchecked] == [str(home / "claude/sessions")]
        assert any("could not be read" in one for one in around.problems())
        (home / "claude/sessions").chmod(0o700)
        around.refresh()
        assert around.index().unchecked == ()


@pytest.mark.rule("09.15", "04.15")
def test_who_is_behind_an_address_is_told_by_the_process(home: Path, around: Neighbourhood) -> None:
    with claude(home, "worker-one") as party:
        start = party.record["procStart"]
        assert around.verify(party.address, party.pid, start) == (party.identity, "worker-one")
        own = os.getpid()
        for address, pid, when in (
            (party.address, own, start),
            (party.address, party.pid, "1"),
            (f"uds:{home}/run/cc-socks/1.sock", party.pid, start),
            ("nonsense", party.pid, start),
            (party.address, 0, start),
        ):
            assert around.verify(address, pid, when) is None
        assert around.doubt(party.address, own, "1").startswith("another process is registered there")
        assert around.doubt(f"uds:{home}/run/cc-socks/1.sock", own, "1") == "there is nothing at that address"
        assert not around.acknowledges(party.address)
        around.index()
        assert around.sends_chains(party.identity)
        assert around.sign(party.identity) == party.record["updatedAt"]
        for nobodys in ("-x", "talk-1", "client-1", "..", "a-session-that-never-was"):
            assert around.sign(nobodys) == 0


def test_a_change_there_is_a_change_of_the_mark(home: Path, around: Neighbourhood) -> None:
    alone = around.mark()
    with claude(home, "worker-one") as party:
        around.index()
        here = around.mark()
        assert here != alone
        assert around.mark() == here
        party.rewrite(name="worker-two")
        assert around.mark() != here


# ── one session, listed once ─────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.28")
def test_the_client_of_a_session_of_ours_is_that_session(home: Path) -> None:
    """Its name there is one more name of ours; what comes from its process comes from that session."""

    async def work() -> None:
        async with opened_session("ours") as opened:
            with claude(home, "theirs") as party:
                seen = looking(home)
                assert sorted(row.name for row in seen.rows().rows) == ["ours", "theirs"]
                assert meant(seen, "theirs").candidate.identity == party.identity
                opened.attach(party.pid)
                [row] = seen.rows().rows
                assert (row.name, row.aliases, row.program) == ("ours", ("theirs",), "postroom")
                candidate = meant(seen, "theirs").candidate
                assert candidate.identity == opened.session.id
                assert candidate.address == opened.session.address
                verified = seen.verify(party.address, party.pid, party.record["procStart"])
                assert verified == (opened.session.id, "ours")
                # It is called otherwise there: the old name goes, the new one answers.
                party.rewrite(name="theirs-now")
                assert meant(seen, "theirs-now").candidate.identity == opened.session.id
                assert [row.aliases for row in seen.rows().rows] == [("theirs-now",)]
                opened.session.rename("ours-now")
                assert meant(seen, "theirs-now").candidate.name == "ours-now"
            assert meant(seen, "ours-now").candidate.former == ("ours",)
            assert isinstance(resolve("theirs-now", seen.index()), Refusal)

    asyncio.run(work())


@pytest.mark.rule("05.28")
def test_what_we_publish_there_is_not_listed_a_second_time(home: Path) -> None:
    settings_for(home, "claude-code")

    async def work() -> None:
        async with opened_session("ours") as opened:
            assert (home / f"claude/sessions/{os.getpid()}.json").exists()
            [row] = looking(home).rows().rows
            assert (row.identity, row.aliases) == (opened.session.id, ())

    asyncio.run(work())


# ── through the command ──────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.28")
def test_the_list_says_whose_a_row_is(home: Path) -> None:
    desk = Desk(home, os.environ)
    with claude(home, "worker-one"):
        assert "worker-one" in desk.run("list").out
        [row] = desk.ok("list")["rows"]
        assert (row["name"], row["program"]) == ("worker-one", "claude-code")


@pytest.mark.rule("12.17")
def test_who_has_no_neighbour_loads_none_and_who_has_one_little(home: Path) -> None:
    """The folder alone tells; a list with neighbours is still a quick command."""
    assert look_at([COMMAND, "list"]).code == 0
    alone = look_at([COMMAND, "list"]).modules
    assert {one for one in alone if one.startswith(("postroom.neighbour", "postroom.crossing"))} == {
        "postroom.neighbours"
    }
    with claude(home, "worker-one"):
        seen = look_at([COMMAND, "list"])
        assert "worker-one" in seen.out
        assert {"postroom.neighbourhood", "postroom.neighbours.claude_record"} <= seen.modules
        assert not any("qwen" in one for one in seen.modules)
        assert roots(seen.modules) & HEAVY == set()


@pytest.mark.rule("01.31", "09.2", "05.22")
def test_a_message_without_a_way_back_says_so_and_how_to_mend_it(home: Path) -> None:
    async def work() -> None:
        with claude(home, "worker-one") as party:
            async with opened_session("ours") as opened:
                receipt = await opened.session.send("worker-one", "hello", summary="a greeting")
                assert isinstance(receipt, Receipt)
                assert receipt.status == "written"
                [warning] = receipt.warnings
                assert '`"publishTo": ["claude-code"]`' in warning
                token, frame = party.heard()
                assert (token, "from" in frame) == (party.token, False)
                refused = await opened.session.send("worker-one", notify_when_idle=True)
                assert isinstance(refused, Refusal)
                assert "publishTo" in refused.message

    run(work())


@pytest.mark.rule("10.38")
def test_an_outsider_sends_there_too(home: Path) -> None:
    desk = Desk(home, os.environ)
    with claude(home, "worker-one") as party:
        sent = desk.ok("send", "worker-one", "hello from a script")
        assert sent["status"] == "written"
        assert not any("publishTo" in one for one in sent["warnings"])
        token, frame = party.heard()
        assert token == party.token
        assert frame["message"]["content"] == (
            "<cross-session-message>\nhello from a script\n</cross-session-message>"
        )
