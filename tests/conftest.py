"""What many tests share: the marker for rule ids, the Hypothesis profile, a private home.

Nothing of postroom is imported here: a twin in tests/core must cover its module alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# On a person's machine each run looks at new examples; in CI the same ones, so that a failure there is
# about the change and not about luck. A deadline would judge time, which no test here does.
settings.register_profile("laptop", deadline=None)
settings.register_profile("machine", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("machine" if os.environ.get("CI") else "laptop")


def pytest_configure(config: pytest.Config) -> None:
    """Register the project's markers; an unknown one is an error."""
    # A runner that a shell started in the background ignores SIGINT, and so would all that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers", 'rule(*ids): the rules of the specification that the test shows, as "03.7"'
    )
    config.addinivalue_line(
        "markers", "soak: rounds of killing and resuming; short in `make test`, long in `make soak`"
    )


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short private folder that holds all that sessions leave on this machine, removed afterwards.

    Directly under /tmp, because the path of a Unix socket may have no more than 107 bytes. Nothing of the
    session that runs the tests is visible inside; POSTROOM_TEST_… are the tests' own.
    """
    folder = Path(tempfile.mkdtemp(prefix="pr-", dir="/tmp"))
    (folder / "run").mkdir(mode=0o700)
    for name in list(os.environ):
        if name.startswith("POSTROOM_") and not name.startswith("POSTROOM_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("POSTROOM_HOME", str(folder / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "run"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder / "claude"))  # no neighbour of whoever runs the tests
    monkeypatch.setenv("QWEN_HOME", str(folder / "qwen"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
