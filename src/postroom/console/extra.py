"""The extra `mcp` of this package: why the MCP server cannot be loaded, and the command that mends it (09.9, 10.17).

The requirements are those of the installed package, so that the command fits however it was installed: nothing is
fetched under the name of Postroom. It installs nothing.

What is weak: of an interpreter that may install nothing, as the system's own, only that interpreter says so.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from shlex import join

EXTRA = "mcp"
"""What the extra is called, and the package that it is about."""

BARE = ("mcp", "websockets")
"""What is named where the package has no record of its installation."""


def requirements() -> list[str]:
    """What the extra needs, each as an installer reads it: `mcp<3,>=2.3`."""
    from importlib import metadata  # only in a failure: it is slow

    try:
        every = metadata.requires("postroom") or []
    except metadata.PackageNotFoundError:
        every = []
    found = [
        one.partition(";")[0].strip()
        for one in every
        if one.partition(";")[2].replace('"', "'").replace(" ", "") == f"extra=='{EXTRA}'"
    ]
    return found or list(BARE)


def install_command() -> str:
    """The command, for a shell, that installs the extra for this interpreter; `uv` where that has no `pip`."""
    pip = [sys.executable, "-m", "pip", "install"]
    if find_spec("pip") is None:
        pip = ["uv", "pip", "install", "--python", sys.executable]
    return join([*pip, *requirements()])


def complaint(error: ImportError) -> str:
    """What is wrong with the extra, as a sentence, where the server could not be imported."""
    package = (error.name or EXTRA).partition(".")[0]
    if find_spec(EXTRA) is None:  # whatever of it was missed first
        package = EXTRA
    if find_spec(package) is None:
        what = f"the package {package} is not installed"
    else:
        what = f"the package {package} is not of a version that fits"
    return f"The MCP server cannot start: {what} for {sys.executable}."
