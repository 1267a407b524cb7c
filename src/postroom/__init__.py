"""Postroom: agent sessions on one machine send each other messages.

This module is the list of the public names, the version, and nothing else. A name is loaded from its module
when it is first used, so ``import postroom`` costs next to nothing: the command that every hook runs depends on
that.

A module in the table below offers its whole ``__all__``, and no other module offers anything. To add a name:
into its module's ``__all__``, then into the table; for the first name of a module also the line for type
checkers. ``tests/test_exports.py`` holds the three together.
"""

from __future__ import annotations

__version__ = "0.1.0"

# Type checkers take it for true. From `typing` it would load `re` and more into every command (12.16).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from postroom.agent import *
    from postroom.agents import *
    from postroom.batch import *
    from postroom.core.message import *
    from postroom.core.settings import *
    from postroom.errors import *
    from postroom.lifecycle import *
    from postroom.mainline import *
    from postroom.opening import *
    from postroom.session import *
    from postroom.transport import *

_OFFERED = {
    # what is said: the records that every layer speaks
    "postroom.core.message": (
        "Decided",
        "Explanation",
        "Lease",
        "Message",
        "Near",
        "Notice",
        "Origin",
        "Party",
        "Pin",
        "Receipt",
        "Refusal",
        "Rule",
        "RunStatus",
        "Status",
        "Step",
        "TaskNotification",
    ),
    # who takes part
    "postroom.opening": ("open_session", "open_in_memory", "Gathering"),
    "postroom.session": ("Session",),
    # the agents inside a session, for programs that run their own loops
    "postroom.agents": ("Agents",),
    "postroom.agent": ("Agent", "Observer", "Run"),
    "postroom.mainline": ("MainLoop",),
    "postroom.batch": ("Attachment", "Batch"),
    "postroom.lifecycle": ("Hooks", "LifecycleEvent"),
    # what bounds it
    "postroom.core.settings": ("Limits",),
    # what carries it
    "postroom.transport": ("Channel", "Evidence", "Outcome", "Receiver", "Transport"),
    # what can go wrong: broken callers, broken wires
    "postroom.errors": (
        *("PostroomError", "CallerError", "WireError", "StoreError"),
        *(
            "AgentStopped",
            "BadFrame",
            "BadUsage",
            "InvalidName",
            "LineTooLong",
            "NoSession",
            "NotYourSession",
        ),
        *("SessionClosed", "SessionInUse", "SettingInvalid", "StoreFailed", "StoreTooNew"),
        *("UnfitPath", "Unsupported", "Veto"),
    ),
}
_HOME = {name: module for module, names in _OFFERED.items() for name in names}

if not TYPE_CHECKING:  # hidden from type checkers, so that they report a misspelt name
    __all__ = list(_HOME)

    def __getattr__(name: str) -> object:
        """Load a public name on its first use; afterwards it is an ordinary attribute."""
        module = _HOME.get(name)
        if module is None:
            raise AttributeError(f"module 'postroom' has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(module), name)
        return value


def __dir__() -> list[str]:
    """The public names, loaded or not, beside the module's own attributes."""
    return sorted({*globals(), *_HOME})
