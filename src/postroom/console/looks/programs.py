"""Which version a program or another Postroom is of, by where it lies, for `console.checks.clients`.

No program is run for it. What does not tell its version by its place or its package has none here.
"""

from __future__ import annotations

import json
import os
import re

_VERSION = re.compile(r"\d+\.\d+\.\d+")


def version_of(path: str) -> str:
    """The version of a program, by where it lies; empty where that does not tell.

    A folder or file on the way that is called by a version, or the `package.json` of the package that it lies in.
    """
    if not path:
        return ""
    real = os.path.realpath(path)
    for part in reversed(real.split("/")):
        if _VERSION.fullmatch(part):
            return part
    folder = os.path.dirname(real)
    for _ in range(3):
        try:
            with open(os.path.join(folder, "package.json"), "rb") as file:
                version: object = json.loads(file.read(1_048_576)).get("version")
            return version if isinstance(version, str) and _VERSION.match(version) else ""
        except (OSError, ValueError, AttributeError):
            folder = os.path.dirname(folder)
    return ""


def postroom_version(script: str) -> str:
    """The version of another installation, by the name of its metadata's folder; empty where that is not found."""
    library = (
        os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(script))), "lib") if script else ""
    )
    try:
        found = [
            entry
            for python in os.listdir(library)
            for entry in os.listdir(os.path.join(library, python, "site-packages"))
            if entry.startswith("postroom-") and entry.endswith(".dist-info")
        ]
    except OSError:
        return ""
    return found[0].removeprefix("postroom-").removesuffix(".dist-info") if found else ""
