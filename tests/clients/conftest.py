"""What the scenarios share: the clients that this run is about, a house, and agents in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients.__main__ import FOUND
from tests.clients.install import Found
from tests.clients.launch import AGENTS, Agent, House, house
from tests.clients.model import serving

Make = Callable[[str], Agent]
"""Makes an agent of a client, with a model of its own."""


def chosen() -> dict[str, Found]:
    """What this run is about: the client's name → what became of its installation."""
    file = os.environ.get(FOUND)
    assert file, "These scenarios run in a box, which `make test-clients` makes."
    return {name: Found(**each) for name, each in json.loads(Path(file).read_text()).items()}


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of a scenario."""
    config.addinivalue_line("markers", "needs(*clients): the clients that a scenario runs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out scenarios with a client that was left out by name; one that is missing stays, and fails."""
    about = set(chosen())
    left_out = [item for item in items if not _needs(item) <= about]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def _needs(item: pytest.Item) -> set[str]:
    return {str(name) for mark in item.iter_markers("needs") for name in mark.args}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to a failure what Postroom knew of the house: who was listed, and what its logs say."""
    report = yield
    made = getattr(item, "funcargs", {}).get("home_of_all")
    if report.failed and call.when == "call" and isinstance(made, House):
        report.sections.append(("the house", made.story()))
    return report


@pytest.fixture
def home_of_all() -> Generator[House]:
    """One person's machine."""
    with house() as made:
        yield made


@pytest.fixture
def agent(home_of_all: House) -> Generator[Make]:
    """Makes agents in that house. A client that could not be installed fails the scenario, with the reason."""
    found = chosen()
    with ExitStack() as stack:

        def make(name: str) -> Agent:
            if found[name].failed:
                pytest.fail(f"{name} could not be installed: {found[name].failed}")
            return AGENTS[name](home_of_all, stack.enter_context(serving()), found[name])

        yield make
