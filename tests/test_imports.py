"""What is loaded when: the package costs nothing to import, the fast commands load nothing slow.

Each look happens in a fresh process, and for a command on the command as pip installed it, launcher and all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("postroom")

FORBIDDEN = frozenset(
    "re enum json socket asyncio argparse typing dataclasses pathlib logging subprocess uuid"
    " msgspec sqlite3 mcp nats".split()
)
"""What `hook` and `send` never load (12.16): each costs more than everything else that they do."""

FAST: list[tuple[str, ...]] = []
"""The command lines that must start fast. To be filled with `hook` and `send` when they exist."""


def loaded_by(argv: list[str]) -> set[str]:
    """Run a command to its end and return every module that its process imported, whatever its exit code."""
    environment = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines} - {"imported package"}


def test_the_look_sees_what_is_loaded() -> None:
    seen = loaded_by([sys.executable, "-c", "import json"])
    assert {"json", "re", "enum"} <= seen
    assert "socket" not in seen


def test_importing_the_package_loads_nothing_slow() -> None:
    seen = loaded_by([sys.executable, "-c", "import postroom"])
    assert "postroom" in seen
    assert {name for name in seen if name.startswith("postroom.")} == set()
    assert {name for name in seen if name.partition(".")[0] in FORBIDDEN} == set()


@pytest.mark.rule("12.16")
@pytest.mark.parametrize("arguments", FAST)
def test_a_fast_command_loads_nothing_slow(arguments: tuple[str, ...], home: Path) -> None:
    seen = loaded_by([str(COMMAND), *arguments])
    assert "postroom.__main__" in seen
    assert {name for name in seen if name.partition(".")[0] in FORBIDDEN} == set()
