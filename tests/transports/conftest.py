"""Places and processes for the tests of the transports."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transports.ends import Sleepers


@pytest.fixture
def folder() -> Iterator[Path]:
    """A private folder with a short path: a socket's may have no more than 103 bytes."""
    with tempfile.TemporaryDirectory(prefix="pr-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def sleeping() -> Iterator[Sleepers]:
    """Starts children; those that are left at the end are killed."""
    made = Sleepers()
    yield made
    for pid in list(made.pids):
        made.kill(pid)
