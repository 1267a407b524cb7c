"""The command as a person has it: installed by pip into a fresh environment, which is made once and kept.

It lies in `benchmarks/.cache`, which no version control sees, and is brought up to date when the source changed.
An editable installation, with the tools of a developer beside it, starts more slowly and would be measured in
its place; that is done only where no environment can be made, and said.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Bench

ROOT = Path(__file__).parent.parent
CACHE = Path(__file__).with_name(".cache")


@dataclass(frozen=True, slots=True)
class Installed:
    """One installation.

    Attributes:
        python: its interpreter.
        postroom: its command.
        note: which one it is, where that is not the fresh one.
    """

    python: str
    postroom: str
    note: str = ""


def installed(bench: Bench) -> Installed:
    """The command in a fresh environment; the one of this environment where that must do.

    Args:
        bench: to see that all of it runs, this environment's command is enough.
    """
    if bench.mode == "smoke":
        return here("The command of this environment, not of a fresh one.")
    try:
        return fresh()
    except (OSError, subprocess.CalledProcessError) as error:
        return here(f"No fresh environment could be made, so this one's command was measured: {error}")


def here(note: str) -> Installed:
    """The command beside the interpreter that runs this."""
    command = Path(sys.executable).with_name("postroom")
    if not command.exists():
        raise RuntimeError(f"there is no {command}: install the package beside {sys.executable}")
    return Installed(sys.executable, str(command), note)


def fresh() -> Installed:
    """Makes the environment, or brings it up to date. Raises CalledProcessError, OSError."""
    folder = CACHE / "venv"
    python, mark = folder / "bin" / "python", folder / ".installed"
    wanted = fingerprint()
    if not python.exists():
        print(f"making {folder.relative_to(ROOT)}", flush=True)
        quiet([sys.executable, "-m", "venv", str(folder)])
        mark.unlink(missing_ok=True)
    if not mark.exists() or mark.read_text() != wanted:
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        again = ["--force-reinstall", "--no-deps"] if mark.exists() else []
        quiet([*pip, *again, str(ROOT)])
        mark.write_text(wanted)
    return Installed(str(python), str(folder / "bin" / "postroom"))


def quiet(command: Sequence[str]) -> None:
    """Runs a command whose output interests nobody unless it fails."""
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def fingerprint() -> str:
    """What is installed, by its content."""
    digest = hashlib.sha256(sys.version.encode())
    for path in (ROOT / "pyproject.toml", ROOT / "launcher" / "postroom", *sorted(ROOT.glob("src/**/*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()
