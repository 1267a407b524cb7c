"""The SDKs on which agents are built, as their makers publish them, in an environment of their own.

Each is installed by its name into `.cache/sdks` of the checkout, which git never sees, beside this checkout itself. What
is not there in these very versions is made anew. Python's own `venv` and `pip` do it, with whatever registry the user's
configuration names.

What cannot be installed is reported as failed, with what pip said. It is left out only by naming the other one.

Weak: what an SDK itself depends on is not pinned, only the SDK is.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["CHECKOUT", "PLACE", "SDKS", "NotInstalled", "install"]

CHECKOUT = Path(__file__).parents[2]
PLACE = CHECKOUT / ".cache" / "sdks"

SDKS: Mapping[str, str] = {
    "openai-agents": "openai-agents==0.24.0",
    "claude-agent-sdk": "claude-agent-sdk==0.2.189",
}
"""What the examples were written against. The second brings the Claude Code that it runs, 400 MB."""

INSTALL_SECONDS = 900

SHOWN = 1500
"""Characters of what pip said that a failure repeats: its last words say what is wrong."""


class NotInstalled(Exception):
    """An SDK is not there, and its example has failed; says why."""


def install(name: str) -> Path:
    """Installs one SDK and this checkout, unless both are there; returns the Python that has them.

    Raises NotInstalled, with what pip said.
    """
    place = PLACE / name
    python, mark = place / "bin" / "python", place / "installed"
    wanted = f"{SDKS[name]} {sys.version.split()[0]} {CHECKOUT}"
    PLACE.mkdir(parents=True, exist_ok=True)
    (PLACE.parent / ".gitignore").write_text("*\n")
    with (PLACE / f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (mark.exists() and mark.read_text() == wanted and python.exists()):
            _run([sys.executable, "-m", "venv", "--clear", str(place)])
            pip = [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-input",
                "--disable-pip-version-check",
            ]
            _run([*pip, SDKS[name], "--editable", f"{CHECKOUT}[mcp]"])
            mark.write_text(wanted)
    return python


def _run(command: Iterable[str]) -> None:
    try:
        done = subprocess.run(
            list(command),
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"It took longer than {INSTALL_SECONDS} seconds.") from None
    if done.returncode:
        raise NotInstalled((done.stderr or done.stdout)[-SHOWN:])
