"""The extra `mcp`: what is said where it cannot be loaded, and the command that mends it (10.17)."""

from __future__ import annotations

import sys
from importlib import metadata

import pytest

from postroom.console import extra


def found(*names: str) -> object:
    """Stands for the look whether a package is there."""
    return lambda name: object() if name in names else None  # pyright: ignore


@pytest.mark.rule("10.17")
def test_the_command_is_for_this_interpreter_and_names_what_the_package_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extra, "find_spec", found("pip"))
    wanted = "'mcp<3,>=2.3' 'websockets<18,>=16.1'"
    assert extra.install_command() == f"{sys.executable} -m pip install {wanted}"
    monkeypatch.setattr(extra, "find_spec", found())
    assert extra.install_command() == f"uv pip install --python {sys.executable} {wanted}"


def test_without_a_record_of_the_installation_the_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", unknown)
    assert extra.requirements() == ["mcp", "websockets"]


@pytest.mark.rule("10.17")
@pytest.mark.parametrize(
    ("there", "error", "says"),
    [
        ((), ModuleNotFoundError(name="anyio"), "the package mcp is not installed"),
        (("mcp",), ModuleNotFoundError(name="anyio._core"), "the package anyio is not installed"),
        (("mcp",), ModuleNotFoundError(name="mcp.server.context"), "the package mcp is not of a version"),
        (
            ("mcp",),
            ImportError("cannot import name 'types'", name="mcp"),
            "the package mcp is not of a version",
        ),
        (("mcp",), ImportError("odd"), "the package mcp is not of a version"),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], error: ImportError, says: str
) -> None:
    monkeypatch.setattr(extra, "find_spec", found(*there))
    sentence = extra.complaint(error)
    assert sentence.startswith(f"The MCP server cannot start: {says}")
    assert sentence.endswith(f" for {sys.executable}.")
