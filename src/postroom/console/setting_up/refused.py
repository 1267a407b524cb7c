"""Why a program's configuration is left as it is: the two ways in which an edit can fail."""

from __future__ import annotations


class Broken(Exception):
    """A text that is not what it should be.

    Attributes:
        line: where, from 1 on.
        column: where in the line, from 1 on.
        reason: why, in a few words.
    """

    def __init__(self, line: int, column: int, reason: str) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.line = line
        self.column = column
        self.reason = reason


class Refused(Exception):
    """Nothing is written, in no file.

    Attributes:
        message: a sentence that says what stands in the way, with the file and the place in it.
        hint: a sentence that says what to do next.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
