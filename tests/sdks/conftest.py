"""What the scenarios share: the SDKs that this run is about, and a person's home for them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.sdks.__main__ import FOUND, SECONDS
from tests.sdks.install import CHECKOUT

Example = Callable[..., str]
"""Runs a program of the checkout with an SDK, and returns what it printed."""


def found() -> dict[str, tuple[str, str]]:
    """What this run is about: the SDK's name → its Python, or why there is none."""
    said = os.environ.get(FOUND)
    assert said, "These scenarios run in a box, which `make test-sdks` makes."
    return {name: (python, why) for name, (python, why) in json.loads(said).items()}


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of a scenario."""
    config.addinivalue_line("markers", "needs(sdk): the SDK that a scenario runs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out scenarios of an SDK that was left out by name; one that is missing stays, and fails."""
    about = set(found())
    left_out = [item for item in items if not _needs(item) <= about]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def _needs(item: pytest.Item) -> set[str]:
    return {str(name) for mark in item.iter_markers("needs") for name in mark.args}


@pytest.fixture
def example() -> Generator[Example]:
    """Runs examples in one private home, below /tmp because the path of a socket is short."""
    home = Path(tempfile.mkdtemp(prefix="s", dir="/tmp"))
    (home / "run").mkdir(mode=0o700)

    def run(sdk: str, name: str, *words: str, **variables: Any) -> str:
        python, why = found()[sdk]
        if not python:
            pytest.fail(f"{sdk} could not be installed: {why}")
        done = subprocess.run(
            [python, str(CHECKOUT / name), *words],
            cwd=home,
            env={
                "PATH": f"{Path(python).parent}:/usr/local/bin:/usr/bin:/bin",
                "HOME": str(home),
                "LANG": "C.UTF-8",
                "POSTROOM_HOME": str(home / "state"),
                "XDG_RUNTIME_DIR": str(home / "run"),
                "XDG_CONFIG_HOME": str(home / "config"),
                **variables,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS / 2,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    try:
        yield run
    finally:
        shutil.rmtree(home, ignore_errors=True)
