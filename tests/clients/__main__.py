"""`make test-clients`: installs the clients and runs the scenarios of this folder on them, in a box without a network.

    python -m tests.clients [--only NAME,…] [arguments of pytest…]

A client that cannot be installed counts as failed. With --only the others are left out, and so is every scenario that
needs one of them. Other arguments go to pytest: a file, `-k WORDS`, `-x`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.clients.box import enter
from tests.clients.install import PARTNERS, install

HERE = Path(__file__).parent
CHECKOUT = HERE.parent.parent
FOUND = "POSTROOM_TEST_CLIENTS"
"""The variable with the file in which the scenarios read what was installed."""

SECONDS = 240
"""The bound on one scenario: five programs start in it, and Codex looks at its queue every ten seconds."""


def main() -> int:
    """Installs, then runs; returns pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("--only", default="", help="names, with commas between them; the rest is left out")
    chosen, rest = parser.parse_known_args()
    names = [name for name in chosen.only.split(",") if name] or list(PARTNERS)
    if unknown := [name for name in names if name not in PARTNERS]:
        parser.error(f"there is no {', '.join(unknown)}; there are: {', '.join(PARTNERS)}")
    found = install(names)
    with tempfile.NamedTemporaryFile("w", suffix=".json", dir="/var/tmp") as file:
        json.dump({name: asdict(each) for name, each in found.items()}, file)
        file.flush()
        os.chmod(file.name, 0o644)
        shown = [CHECKOUT, *(Path(command) for each in found.values() for command in each.command)]
        folders = sorted({path if path.is_dir() else _outermost(path) for path in shown})
        return enter(_pytest(rest), _environ(file.name), folders)


def _outermost(program: Path) -> Path:
    """The folder of an installation: the one above the outermost `node_modules`."""
    parts = program.parts
    return Path(*parts[: parts.index("node_modules")]) if "node_modules" in parts else program.parent


def _pytest(rest: list[str]) -> list[str]:
    """The command line of the run: this folder, unless a file of it is named."""
    where = [] if any(Path(word.partition("::")[0]).exists() for word in rest) else [str(HERE)]
    plain = ["-p", "no:cacheprovider", f"--timeout={SECONDS}"]
    return [sys.executable, "-m", "pytest", *plain, *where, *rest]


def _environ(found: str) -> dict[str, str]:
    """What the scenarios see: nothing of whoever runs them."""
    kept = {name: os.environ[name] for name in ("CI", "LANG") if name in os.environ}
    plain = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "TERM": "xterm-256color"}
    return {"LANG": "C.UTF-8", **kept, **plain, FOUND: found}


if __name__ == "__main__":
    sys.exit(main())
