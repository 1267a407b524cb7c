"""The public names: what the package offers is what its modules declare, no more and no less."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import postroom

PACKAGE = Path(postroom.__file__).parent
OFFERED: dict[str, tuple[str, ...]] = vars(postroom)["_OFFERED"]
NAMES: list[str] = vars(postroom)["__all__"]


@pytest.mark.parametrize("module", OFFERED)
def test_a_module_of_the_table_offers_all_that_it_declares(module: str) -> None:
    """A module offers its whole `__all__` or nothing, so there is one place that decides."""
    declared: list[str] = vars(import_module(module))["__all__"]
    assert sorted(OFFERED[module]) == sorted(declared)


def test_no_name_is_offered_twice() -> None:
    names = [name for names in OFFERED.values() for name in names]
    assert sorted(set(names)) == sorted(names)
    assert names == NAMES


def test_type_checkers_see_the_same_modules() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    starred = [node.module for node in imports if [alias.name for alias in node.names] == ["*"]]
    assert starred == sorted(OFFERED)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_is_the_modules_own(name: str) -> None:
    (home,) = [module for module, names in OFFERED.items() if name in names]
    assert getattr(postroom, name) is getattr(import_module(home), name)
    assert name in dir(postroom)


def test_an_unknown_name_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Postbox'"):
        getattr(postroom, "Postbox")  # noqa: B009
