"""Every promise of a store is tested on both kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from postroom.state.keeping import Retention
from tests.state.stores import DESKS, Desk


@pytest.fixture(params=DESKS)
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[Retention | None], Desk]]:
    """Makes desks of one kind."""
    made: list[Desk] = []

    def one(retention: Retention | None = None) -> Desk:
        made.append(DESKS[request.param](retention))
        return made[-1]

    yield one
    for desk in made:
        desk.end()


@pytest.fixture
def desk(make: Callable[[Retention | None], Desk]) -> Desk:
    return make(None)
