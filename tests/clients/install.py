"""The clients of these tests, as their makers publish them: which packages, in which versions, and what to run.

Each is installed by its name from npm into `.cache/npm` of the checkout (`tests.partners`), about 2 GB for all of them.
`POSTROOM_CLIENTS=FOLDER` names a folder with installations to use instead: every `FOLDER/*/node_modules` and
`FOLDER/npm/*/node_modules` is looked at, and only the very version counts.

A client that cannot be installed is reported as failed, with the reason, and its tests fail. It is left out only by
naming the others (`--only`).
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.partners import PartnerMissing, node, partner

__all__ = ["PARTNERS", "Found", "Partner", "find", "install"]

MACHINE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
"""This machine, as npm packages with a program in them call it."""

MUSL = {"x64": "x86_64-unknown-linux-musl", "arm64": "aarch64-unknown-linux-musl"}.get(MACHINE, "")

PLACE = "POSTROOM_CLIENTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partner:
    """One client as it is published.

    Attributes:
        package: its name in npm.
        version: the one that these tests were written against.
        program: what to run, below `node_modules`.
        script: whether that is a script, which Node runs, and not a program of its own.
    """

    package: str
    version: str
    program: str
    script: bool = False


PARTNERS: Mapping[str, Partner] = {
    "claude-code": Partner(
        package="@anthropic-ai/claude-code",
        version="2.1.332",
        program=f"@anthropic-ai/claude-code-linux-{MACHINE}/claude",
    ),
    "codex": Partner(
        package="@openai/codex",
        version="0.171.0",
        program=f"@openai/codex-linux-{MACHINE}/vendor/{MUSL}/bin/codex",
    ),
    "gemini-cli": Partner(
        package="@google/gemini-cli",
        version="0.61.0",
        program="@google/gemini-cli/bundle/gemini.js",
        script=True,
    ),
    "qwen-code": Partner(
        package="@qwen-code/qwen-code",
        version="0.24.4",
        program="@qwen-code/qwen-code/cli.js",
        script=True,
    ),
    "opencode": Partner(
        package="opencode-ai",
        version="1.18.33",
        program=f"opencode-linux-{MACHINE}/bin/opencode",
    ),
}
"""Those of the project's clients that a machine without any account can run, by the project's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What became of one client: the command line that runs it, or why there is none."""

    command: tuple[str, ...] = ()
    failed: str = ""


def install(names: Iterable[str], say: Callable[[str], None] = print) -> dict[str, Found]:
    """Installs the clients with these names where they are missing; says what it does, and fails for none of them."""
    found: dict[str, Found] = {}
    for name in names:
        try:
            found[name] = find(PARTNERS[name])
            say(f"{name}: {PARTNERS[name].version}")
        except (PartnerMissing, OSError) as error:
            found[name] = Found(failed=str(error))
            say(f"{name}: FAILED: {error}")
    return found


def find(wanted: Partner) -> Found:
    """Finds one client, and installs it where it is missing. Raises PartnerMissing or OSError where it cannot."""
    place = os.environ.get(PLACE)
    folder = _given(wanted, Path(place)) if place else partner(wanted.package, wanted.version).folder
    program = folder / "node_modules" / wanted.program
    if not program.exists():
        raise PartnerMissing(f"{wanted.package} {wanted.version} has no {wanted.program} on this machine.")
    return Found(command=(str(node()), str(program)) if wanted.script else (str(program),))


def _given(wanted: Partner, place: Path) -> Path:
    """The folder of an installation that somebody made."""
    for folder in (*place.glob("*"), *place.glob("npm/*")):
        described = folder / "node_modules" / wanted.package / "package.json"
        if described.exists() and json.loads(described.read_text())["version"] == wanted.version:
            return folder
    raise PartnerMissing(f"{place} ({PLACE}) has no {wanted.package} {wanted.version}.")
