"""A desk for the tests of `postroom doctor`: what it finds there is what a test has done to it, and nothing else.

Its home folder and its programs are its own, so that what is installed or runs on the machine does not come in. Whether
the machine itself is a container is asked once and left out.
"""

from __future__ import annotations

import contextlib
from functools import cache
from typing import TYPE_CHECKING, Any

from postroom.console.checks.finding import KINDS
from postroom.console.looks import machine
from tests.strangers import private_desk

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from tests.desk import Desk, Done

SPELLED = ("id", "severity", "what", "mend")
"""The keys of a finding (10.29)."""


@contextlib.contextmanager
def clinic() -> Generator[Desk]:
    """A private desk with a home of its own and no programs but those that a test puts into `bin`."""
    with private_desk() as desk:
        for name in ("home", "bin", "work"):
            (desk.folder / name).mkdir(mode=0o700)
        desk.environ = {
            **{name: desk.environ[name] for name in ("POSTROOM_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")},
            "HOME": str(desk.folder / "home"),
            "PATH": str(desk.folder / "bin"),
        }
        yield desk


@cache
def of_the_machine() -> frozenset[str]:
    """What is found of the machine itself, wherever one looks: that it is a container."""
    return frozenset({"container"} if machine.look().own else ())


def read(done: Done) -> list[dict[str, Any]]:
    """The findings of one run with --json, whose form and exit code are held here."""
    assert done.err == "", done
    findings: list[dict[str, Any]] = done.document["findings"]
    assert list(done.document) == ["findings"]
    for each in findings:
        assert tuple(each) == SPELLED
        assert all(isinstance(value, str) and value for value in each.values()), each
        assert each["severity"] == KINDS[each["id"]].severity
    assert done.code == int(any(each["severity"] == "error" for each in findings)), findings
    return [each for each in findings if each["id"] not in of_the_machine()]


def diagnosed(
    desk: Desk, *ids: str, environ: Mapping[str, str] | None = None, cwd: str | None = None
) -> list[dict[str, Any]]:
    """Runs `postroom doctor` at a desk: it finds exactly these, one each; returned in this order."""
    more = {"cwd": cwd} if cwd is not None else {}
    return sorted_by(read(desk.run("doctor", "--json", environ=environ, **more)), *ids)


def sorted_by(findings: list[dict[str, Any]], *ids: str) -> list[dict[str, Any]]:
    """The findings in the order of these ids, of which each must be there once and no other."""
    assert sorted(each["id"] for each in findings) == sorted(ids), findings
    return sorted(findings, key=lambda each: ids.index(each["id"]))
