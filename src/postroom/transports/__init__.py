"""Ways of carrying lines: the table, scheme → module, each loaded on first use.

The scheme is the word before the colon of an address (`uds:/run/…`). A module here knows the core and the
port `postroom.transport`, and no other transport.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from postroom.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

__all__ = ["SCHEMES", "load"]

SCHEMES: Mapping[str, str] = MappingProxyType(
    {
        "memory": "postroom.transports.memory",
        "uds": "postroom.transports.uds",
    }
)
"""Scheme → the module that carries it."""


def load(scheme: str) -> ModuleType:
    """Imports the module that carries this scheme's addresses.

    Args:
        scheme: a key of `SCHEMES`.

    Returns the module. Raises Unsupported for a scheme that nothing here carries.
    """
    try:
        module = SCHEMES[scheme]
    except KeyError:
        known = ", ".join(SCHEMES)
        raise Unsupported(f"Nothing here carries {scheme!r} addresses.", f"There are: {known}.") from None
    return import_module(module)
