"""Who is idle wakes by a message alone, by the doors that its client has: Show 1 (c)."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Make
from tests.clients.launch import House
from tests.clients.model import say


def door(name: str, words: tuple[str, ...], *steps: str) -> object:
    """A client, how it is started, and the steps of the journal that say by which door the message came."""
    return pytest.param(name, words, steps, marks=pytest.mark.needs(name), id=f"{name} {steps[0]}")


WAKING = [
    door("claude-code", (), "consumed"),
    door("codex", (), "rang codex-app-server: accepted", "passed codex-app-server"),
    door("codex", ("--no-daemon",), "rang codex-queue: accepted", "passed codex-queue"),
    door("qwen-code", (), "rang native: written", "passed native"),
    door("opencode", (), "rang opencode-http: accepted", "passed opencode-http"),
]


@pytest.mark.parametrize(("name", "words", "steps"), WAKING)
@pytest.mark.rule("09.3", "09.4", "09.16")
def test_an_idle_client_wakes_by_itself(
    name: str, words: tuple[str, ...], steps: tuple[str, ...], home_of_all: House, agent: Make
) -> None:
    house = home_of_all
    house.desk.open("plain")
    made = agent(name)
    house.setup(name)
    with made.opened(*words) as session:
        session.settle()
        session.screen.wait(lambda: house.row(name)["state"] == "idle", "an idle session")
        row = house.row(name)
        assert row["wakes"] is True
        sent = house.desk.send("plain", row["name"], f"MAIL-1 {say('WOKEN')}", "--summary", "something new")
        woken = made.model.told("MAIL-1")
        made.model.said("WOKEN")
        assert [item for item in woken.items if "MAIL-1" in item.text] == [woken.where("MAIL-1")]
        assert "[Postroom]" in woken.told
        house.traced(row["name"], sent["msg_id"], "received from plain", "accepted", *steps)


@pytest.mark.needs("gemini-cli")
@pytest.mark.rule("09.16")
def test_gemini_cli_is_said_to_have_no_such_door(home_of_all: House, agent: Make) -> None:
    house = home_of_all
    house.desk.open("plain")
    made = agent("gemini-cli")
    house.setup("gemini-cli")
    with made.opened() as session:
        session.settle()
        row = house.row("gemini-cli")
        assert row["wakes"] is False
        assert "reads at its next turn" in house.desk.run("list").out
        sent = house.desk.send("plain", row["name"], "MAIL-1", "--summary", "something new")
        assert "Nothing wakes it" in sent["note"]
        session.turn(say("NEXT"), "NEXT")
        assert "MAIL-1" in made.model.said("NEXT").told
        house.traced(row["name"], sent["msg_id"], "consumed")
