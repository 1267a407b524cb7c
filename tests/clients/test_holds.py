"""A message that waits for a person at a Claude Code which skips its permissions: Show 1 (d)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.conftest import Make
from tests.clients.launch import MENU, House
from tests.clients.model import say
from tests.desk import wait_until
from tests.terminal import at_terminal

pytestmark = pytest.mark.needs("claude-code")

SKIPS = "--dangerously-skip-permissions"


def heard(house: House, session: str, kind: str) -> dict[str, Any]:
    """Waits for a notice of this kind among those that wait for a session, and takes it."""
    found: list[dict[str, Any]] = []

    def came() -> bool:
        taken = house.desk.ok("--session", session, "inbox", "--take")["notices"]
        found.extend(notice for notice in taken if notice["kind"] == kind)
        return bool(found)

    wait_until(came)
    return found[0]


@pytest.mark.rule("09.13")
def test_a_hold_of_its_own_is_heard_and_its_denial_too(home_of_all: House, agent: Make) -> None:
    house = home_of_all
    house.desk.settings(publishTo=["claude-code"])
    house.desk.open("plain")
    claude = agent("claude-code")
    with claude.opened(SKIPS) as session:
        session.turn(say("HERE"), "HERE")
        sent = house.desk.send("plain", "claude-web", "MAIL-1", "--summary", "something new")
        assert sent["status"] == "written"
        assert heard(house, "plain", "held")["msg_id"] == sent["msg_id"]
        session.screen.shows("Held message")
        session.screen.press(
            "Enter", until=lambda: "Held message" not in session.screen.text, what="a decision"
        )
        assert heard(house, "plain", "denied")["msg_id"] == sent["msg_id"]
        house.traced("plain", sent["msg_id"], "written", "held", "denied")
        assert not any("MAIL-1" in asked.told for asked in claude.model.asked)


def test_a_hold_of_postrooms_is_heard_and_its_approval_too(home_of_all: House, agent: Make) -> None:
    house = home_of_all
    house.desk.open("plain")
    claude = agent("claude-code")
    house.setup("claude-code")
    with claude.opened(SKIPS) as session:
        session.settle()
        name = house.row("claude-code")["name"]
        sent = house.desk.send("plain", name, "MAIL-1", "--summary", "something new")
        assert heard(house, "plain", "held")["msg_id"] == sent["msg_id"]
        assert not any("MAIL-1" in asked.told for asked in claude.model.asked)
        done = at_terminal(house.desk, "--session", name, "approve", sent["msg_id"])
        assert done.code == 0, done
        claude.model.told("MAIL-1")
        assert heard(house, "plain", "delivered")["msg_id"] == sent["msg_id"]
        house.traced(name, sent["msg_id"], "held", "consumed")


@pytest.mark.rule("09.9")
def test_a_hold_asks_inside_the_client(home_of_all: House, agent: Make) -> None:
    """Whoever sits in front of it decides in the client's own form, which Postroom's server asks for."""
    house = home_of_all
    house.desk.open("plain")
    claude = agent("claude-code")
    house.setup("claude-code")
    with claude.opened(SKIPS) as session:
        screen = session.screen
        session.settle()
        name = house.row("claude-code")["name"]
        sent = house.desk.send("plain", name, "MAIL-1", "--summary", "something new")
        assert "MAIL-1" in screen.shows("requests your input")
        for key, effect in (
            ("Right", "❯ ◯ let it in"),
            ("Enter", "✔ Let this message in?: let it in"),
            ("Down", "❯ Accept"),
        ):
            screen.press(key, until=lambda effect=effect: effect in screen.text, what=effect, patience=MENU)
        screen.press("Enter", until=lambda: "your input" not in screen.text, what="a decision", patience=MENU)
        claude.model.told("MAIL-1")
        assert heard(house, "plain", "delivered")["msg_id"] == sent["msg_id"]
