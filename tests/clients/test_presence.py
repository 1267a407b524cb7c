"""A client that was set up is a session: `postroom list` has it, and its tools reach the others."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Make
from tests.clients.gate import TOOL
from tests.clients.install import PARTNERS
from tests.clients.launch import House
from tests.clients.model import call, say

EACH = [pytest.param(name, marks=pytest.mark.needs(name)) for name in PARTNERS]


@pytest.mark.parametrize("name", EACH)
def test_lists_and_is_listed(name: str, home_of_all: House, agent: Make) -> None:
    other = home_of_all.desk.open("plain")
    made = agent(name)
    home_of_all.setup(name)
    with made.opened() as session:
        session.settle()
        session.turn(f"{call('postroom/list_agents')} {say('LISTED')}", "LISTED")
        assert other["ref"] in made.model.said("LISTED").told
        assert home_of_all.row(name)["cwd"] == str(made.project)


@pytest.mark.needs("codex")
@pytest.mark.rule("09.9")
def test_each_window_of_codex_is_a_session_of_its_own(home_of_all: House, agent: Make) -> None:
    """They share one server in the background, whose children their MCP servers and hooks are."""
    house = home_of_all
    house.desk.open("plain")
    codex = agent("codex")
    house.setup("codex")
    with codex.opened() as first:
        first.settle()
        one = house.row("codex")["name"]
        with codex.opened() as second:
            second.settle()
            two = next(row["name"] for row in house.rows("codex") if row["name"] != one)
            for name, mark in ((one, "FOR-THE-FIRST"), (two, "FOR-THE-SECOND")):
                house.desk.send("plain", name, mark, "--summary", "for one window")
                codex.model.told(mark)
            first.turn(say("FIRST-AGAIN"), "FIRST-AGAIN")
            second.turn(say("SECOND-AGAIN"), "SECOND-AGAIN")
            told = codex.model.said("FIRST-AGAIN").told
            assert "FOR-THE-FIRST" in told
            assert "FOR-THE-SECOND" not in told
            assert "FOR-THE-FIRST" not in codex.model.said("SECOND-AGAIN").told


@pytest.mark.needs("gemini-cli")
@pytest.mark.rule("09.12")
@pytest.mark.needs("claude-code")
def test_a_claude_code_keeps_its_mail_over_a_clear_and_a_rename(home_of_all: House, agent: Make) -> None:
    house = home_of_all
    house.desk.open("plain")
    claude = agent("claude-code")
    house.setup("claude-code")
    with claude.opened() as session:
        session.settle()
        before = house.row("claude-code")
        records = house.folder / ".claude/sessions"
        session.command(
            "/rename api-work",
            until=lambda: any('"api-work"' in file.read_text() for file in records.glob("*.json")),
        )
        session.turn(say("RENAMED"), "RENAMED")
        session.screen.wait(lambda: house.row("claude-code")["name"] == "api-work", "the other name")
        session.command("/clear", until=lambda: "RENAMED" not in session.screen.text)
        session.turn(say("CLEARED"), "CLEARED")
        after = house.row("claude-code")
        assert (after["name"], after["session_id"]) == ("api-work", before["session_id"])
        house.desk.send("plain", "api-work", "MAIL-1", "--summary", "something new")
        claude.model.told("MAIL-1")


@pytest.mark.rule("09.6")
def test_mail_that_a_tools_result_carries_is_read(home_of_all: House, agent: Make) -> None:
    """Where no hook is set up, and no other door takes it before: the model is shown what counts as read."""
    house = home_of_all
    house.desk.open("plain")
    made = agent("gemini-cli")
    house.setup("gemini-cli")
    house.drop(".gemini/settings.json", "hooks")
    with made.opened() as session:
        session.settle()
        name = house.row("gemini-cli")["name"]
        session.prompt(f"{call(TOOL)} {call('postroom/list_agents')} {say('LISTED')}")
        with house.gate.reached():
            sent = house.desk.send("plain", name, "MAIL-1", "--summary", "something new")
        assert made.model.said("LISTED").where("MAIL-1").role == "result"
        house.traced(name, sent["msg_id"], "received from plain", "consumed")
