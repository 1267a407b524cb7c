"""`make test-sdks`: installs the SDKs, checks the types of the examples that are built on them, and runs those in a box
without a network.

    python -m tests.sdks [--only NAME,…] [arguments of pytest…]

An SDK that cannot be installed counts as failed. With --only the others are left out.

Returns pytest's exit code, or 1 where the types are wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.clients.box import enter
from tests.sdks.install import CHECKOUT, PLACE, SDKS, NotInstalled, install

HERE = Path(__file__).parent
FOUND = "POSTROOM_TEST_SDKS"
"""The variable that says what was installed: name → its Python, or why there is none."""

SECONDS = 240
"""The bound on one example: it ends in seconds, and a loaded machine needs more."""


CHECKED = {
    "openai-agents": ("examples/with_openai_agents_sdk.py", "tests/sdks/parties/late_openai.py"),
    "claude-agent-sdk": ("examples/with_claude_agent_sdk.py", "tests/sdks/parties/late_claude.py"),
}
"""Programs that import an SDK: their types are checked beside it, and nowhere else."""


def main() -> int:
    """Installs, then checks and runs."""
    parser = argparse.ArgumentParser(prog="python -m tests.sdks", description=__doc__)
    parser.add_argument("--only", default="", help="names, with commas between them; the rest is left out")
    chosen, rest = parser.parse_known_args()
    names = [name for name in chosen.only.split(",") if name] or list(SDKS)
    if unknown := [name for name in names if name not in SDKS]:
        parser.error(f"there is no {', '.join(unknown)}; there are: {', '.join(SDKS)}")
    found: dict[str, tuple[str, str]] = {}
    checked = True
    for name in names:
        try:
            python = install(name)
            print(SDKS[name], flush=True)
            checked = types_are_right(name, python) and checked
            found[name] = (str(python), "")
        except (NotInstalled, OSError) as error:
            found[name] = ("", str(error))
            print(f"{name}: FAILED: {error}")
    plain = ["-p", "no:cacheprovider", f"--timeout={SECONDS}", "--confcutdir", str(HERE)]
    environ = {
        **{name: os.environ[name] for name in ("CI", "LANG") if name in os.environ},
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        FOUND: json.dumps(found),
    }
    ran = enter([sys.executable, "-m", "pytest", *plain, str(HERE), *rest], environ, [CHECKOUT])
    return ran or int(not checked)


def types_are_right(name: str, python: Path) -> bool:
    """Whether pyright, strict, has nothing to say of the programs that use an SDK; shows what it says."""
    settings = PLACE / f"{name}.json"
    wanted = {
        "include": [os.path.relpath(CHECKOUT / file, PLACE) for file in CHECKED[name]],
        "extraPaths": [os.path.relpath(CHECKOUT / folder, PLACE) for folder in ("examples", "")],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
    }
    settings.write_text(json.dumps(wanted))
    command = [sys.executable, "-m", "pyright", "-p", str(settings), "--pythonpath", str(python)]
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
