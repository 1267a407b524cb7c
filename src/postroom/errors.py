"""Every exception that Postroom raises.

    PostroomError                 anything from Postroom; carries `code`, `hint`
    ├── CallerError               you asked for something that cannot be
    │   ├── InvalidName           the name breaks a rule of names (02.2)
    │   ├── NoSession             no session is meant, or none of that name
    │   ├── SessionInUse          that session already runs in another process
    │   ├── NotYourSession        the caller belongs to another session (05.26)
    │   ├── SessionClosed         this session has ended
    │   ├── AgentStopped          no run of that agent is under way (06.13)
    │   ├── Veto                  a hook of the host does not allow it (06.15)
    │   ├── SettingInvalid        settings that were handed over cannot be used (03.25)
    │   └── BadUsage              a command line that cannot be understood
    ├── WireError                 the other side sent bytes that are no message
    │   ├── LineTooLong           over the line limit (05.14)
    │   └── BadFrame              not UTF-8, not JSON, or of the wrong shape
    ├── StoreError                this machine could not remember
    │   ├── StoreFailed           full disk or I/O error; nothing was acknowledged (05.27)
    │   └── StoreTooNew           the store was written by a newer version
    ├── UnfitPath                 a folder or file that must not be trusted (05.6)
    └── Unsupported               this platform cannot run Postroom

They are for broken callers and broken wires. A message that is held, refused or ambiguous is no
error but an answer: `postroom.core.message.Refusal` and its neighbours.

The text of each error says what is wrong; `hint` says what to do next. Neither ever holds a token or
another session's message text.
"""

from __future__ import annotations

__all__ = [
    "AgentStopped",
    "BadFrame",
    "BadUsage",
    "CallerError",
    "InvalidName",
    "LineTooLong",
    "NoSession",
    "NotYourSession",
    "PostroomError",
    "SessionClosed",
    "SessionInUse",
    "SettingInvalid",
    "StoreError",
    "StoreFailed",
    "StoreTooNew",
    "UnfitPath",
    "Unsupported",
    "Veto",
    "WireError",
]


class PostroomError(Exception):
    """Anything that Postroom raises.

    Attributes:
        code: the stable code of chapter 01 or 10, for machines.
        message: one sentence that says what is wrong.
        hint: one sentence that says what to do next; may be empty.
    """

    code = "error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


class CallerError(PostroomError):
    """You asked for something that cannot be."""


class InvalidName(CallerError):
    """The name breaks a rule of names (02.2)."""

    code = "invalid_name"


class NoSession(CallerError):
    """No session is meant, or there is none of that name or id (10.38)."""

    code = "no_session"


class SessionInUse(CallerError):
    """That session already runs in another process (05.12)."""

    code = "session_in_use"


class NotYourSession(CallerError):
    """The calling process belongs to another session, or shows no token of this one (05.26)."""

    code = "not_your_session"


class SessionClosed(CallerError):
    """This session object has been closed."""

    code = "session_closed"


class AgentStopped(CallerError):
    """No run of that agent is under way: a resume that came too late, or an owner's mistake (06.13)."""

    code = "usage"


class Veto(CallerError):
    """Raised by a host's `task_created` or `task_completed` hook: this shall not happen (06.15).

    Attributes:
        reason: why, for whoever wanted it; may be empty.
    """

    code = "usage"

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "A hook of the host does not allow it.")
        self.reason = reason


class SettingInvalid(CallerError):
    """Settings that were handed over with a command cannot be read, or hold a value that cannot be used (03.25).

    A mistake in a file that merely lies there raises nothing: it is a sentence among the problems (03.35).
    """

    code = "setting_invalid"


class BadUsage(CallerError):
    """A command line that cannot be understood (exit code 2)."""

    code = "usage"


class WireError(PostroomError):
    """The other side sent bytes that are no message."""

    code = "bad_frame"


class LineTooLong(WireError):
    """A line over the limit of 05.14; the connection ends."""


class BadFrame(WireError):
    """Not UTF-8, not JSON, or of the wrong shape."""


class StoreError(PostroomError):
    """This machine could not remember."""

    code = "store_failed"


class StoreFailed(StoreError):
    """A full disk or an I/O error: nothing was acknowledged (05.27)."""


class StoreTooNew(StoreError):
    """The store was written by a newer version of Postroom and is left alone."""


class UnfitPath(PostroomError):
    """A folder or file that must not be trusted: wrong owner, loose mode, a symlink (05.6).

    Attributes:
        path: the path that failed.
        reason: why, in a few words.
    """

    code = "unfit_path"

    def __init__(self, path: str, reason: str, hint: str = "") -> None:
        super().__init__(f"{path}: {reason}.", hint)
        self.path = path
        self.reason = reason


class Unsupported(PostroomError):
    """This platform cannot run Postroom."""

    code = "unsupported"
