"""Every client runs here as it is, against its scripted model: without that, no scenario says anything."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Make
from tests.clients.gate import TOOL
from tests.clients.install import PARTNERS
from tests.clients.launch import House
from tests.clients.model import call, say

EACH = [pytest.param(name, marks=pytest.mark.needs(name)) for name in PARTNERS]


@pytest.mark.parametrize("name", EACH)
def test_runs_without_a_terminal(name: str, home_of_all: House, agent: Make) -> None:
    home_of_all.gate.close()
    made = agent(name)
    printed = made.run(f"{call(TOOL)} {say('ALL-DONE')}")
    assert "ALL-DONE" in printed
    assert "there is no gate" in made.model.said("ALL-DONE").told


@pytest.mark.parametrize("name", EACH)
def test_runs_on_a_terminal(name: str, home_of_all: House, agent: Make) -> None:
    made = agent(name)
    with made.opened() as session:
        session.prompt(f"{call(TOOL)} {say('ALL-DONE')}")
        with home_of_all.gate.reached():
            pass
        assert "passed" in made.model.said("ALL-DONE").told
        session.screen.shows("ALL-DONE")
