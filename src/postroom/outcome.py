"""What a run came to, as its host says it: checked before anything is written down or told (06.11).

What a host puts there often comes from a library of its own: a `Path`, an object with numbers, a message in parts. What is
plainly meant is taken (a path that is no text yet); what is no text, path or number is refused with what to give instead,
so that nothing is kept that a later life of the session could not read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple, cast, get_args

from postroom.core.message import RunStatus
from postroom.errors import BadUsage

__all__ = ["NOTHING", "Outcome", "ending", "outcome", "path_text"]

MAX_AMOUNT = 2**53
"""The largest number in `usage`: what every reader of JSON keeps exact."""

MAX_PATH_LENGTH = 4096
"""Characters of a path: what the system takes, and what `agent.json` keeps."""

ENDINGS = tuple(status for status in get_args(RunStatus) if status != "running")


class Outcome(NamedTuple):
    """What a run leaves behind.

    Attributes:
        result: the final text.
        usage: what it used: name → amount.
        output_path: where its output lies.
        worktree: the working tree that it leaves behind.
    """

    result: str | None = None
    usage: Mapping[str, int | float] | None = None
    output_path: str | None = None
    worktree: str | None = None

    def __repr__(self) -> str:
        length = "no text" if self.result is None else f"{len(self.result)} characters"
        return f"<Outcome with {length}>"


NOTHING = Outcome()


def outcome(
    result: object = None, usage: object = None, output_path: object = None, worktree: object = None
) -> Outcome:
    """Checks what a host says of a run's end.

    Args:
        result: a text, or None.
        usage: a mapping from names to numbers, or None; what is None in it is left out.
        output_path, worktree: a text, bytes or `os.PathLike`, or None.

    Raises BadUsage for anything else.
    """
    if result is not None and not isinstance(result, str):
        raise BadUsage(
            f"The result of a run is a text, and this is {_what(result)}.", "Give its text, or leave it out."
        )
    return Outcome(
        result, _amounts(usage), path_text("output_path", output_path), path_text("worktree", worktree)
    )


def ending(status: object) -> RunStatus:
    """Checks how a run is said to have ended. Raises BadUsage."""
    if status == "running":
        raise BadUsage("A run does not end by running.", "Use `progress` for that.")
    if status not in ENDINGS:
        raise BadUsage(f"A run cannot end as {status!r}.", f"It ends as {', '.join(ENDINGS)}.")
    return cast("RunStatus", status)


def path_text(what: str, path: object) -> str | None:
    """A path as text. Raises BadUsage for what is none; `what` is what it is called."""
    if path is None:
        return None
    try:
        text = os.fsdecode(cast("str", path))
    except Exception:  # it is the host's object that says what path it is
        raise BadUsage(f"`{what}` is a path, and this is {_what(path)}.", "Give a text or a Path.") from None
    if not text or "\0" in text or len(text) > MAX_PATH_LENGTH or not _encodes(text):
        raise BadUsage(
            f"`{what}` is no path: it is empty, longer than {MAX_PATH_LENGTH} characters, or has in it what no path has.",
            "Give the path of a file.",
        )
    return text


def _encodes(path: str) -> bool:
    """Whether a file can be called so: half a surrogate pair is no name, unless it stands for a byte that is no UTF-8."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _amounts(usage: object) -> Mapping[str, int | float] | None:
    if usage is None:
        return None
    if not isinstance(usage, Mapping):
        raise BadUsage(
            f"`usage` is a mapping from names to numbers, and this is {_what(usage)}.",
            'Give such as {"input_tokens": 12}.',
        )
    amounts: dict[str, int | float] = {}
    for name, amount in cast("Mapping[object, object]", usage).items():
        if amount is None:
            continue
        number = type(amount) in (int, float) and -MAX_AMOUNT <= cast("float", amount) <= MAX_AMOUNT
        if not isinstance(name, str) or not number:  # NaN is no number either
            raise BadUsage(
                "`usage` is a mapping from names to numbers, and there is something else in it.",
                'Give such as {"input_tokens": 12}.',
            )
        amounts[name] = cast("int | float", amount)
    return amounts


def _what(value: object) -> str:
    return f"of the type {type(value).__name__}"
