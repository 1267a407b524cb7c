"""The whole command line: the table of commands, each in a module of its own that is loaded when it runs.

What a session answers comes here only when the short way (`ask`) could not hand it over: then this says why, or
acts without a session where that is possible.

Exit codes (10.37): 0 done, 1 refused or failed, 2 usage, 3 not found or out of time, 4 ambiguous, 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, NoReturn

from postroom import ask
from postroom.errors import BadUsage, PostroomError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.core.message import Refusal

MODULES = {
    "open": "open",
    "list": "list",
    "peers": "list",
    "send": "send",
    "team": "team",
    "trace": "trace",
    "log": "log",
    "close": "close",
    "setup": "setup",
    "unsetup": "setup",
    "demo": "demo",
    "doctor": "doctor",
    "attend": "attend",
    "hook": "hook",
    "mcp": "mcp",
}
"""Command → module of `console.commands`. A command that is absent needs a session (`session`)."""


def main(argv: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    gc.disable()  # what a short command loads is no garbage; `open`, which stays, turns it on again
    unheard = sys.stdout is None  # pyright: ignore[reportUnnecessaryComparison]
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, TextIOWrapper):  # as `ask` writes, whatever the locale
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    before_text = list(argv[: argv.index("--")]) if "--" in argv else list(argv)
    as_json = "--json" in before_text
    try:
        code = run(list(argv))
    except BrokenPipeError:
        code = 1
    except KeyboardInterrupt:
        code = 130
    except PostroomError as error:
        code = fail(error.code, error.message, error.hint, as_json=as_json)
    except OSError as error:
        code = fail("error", f"{error.strerror or 'It failed'}.", "", as_json=as_json)
    return code or int(unheard)


def run(argv: list[str]) -> int:
    """Runs one command line; what it raises becomes an exit code in `main`."""
    from postroom import arguments

    session, rest = ask.split_session(argv)
    words = [word for word in rest if word != "--json"]
    if not words or words[0] in ("--help", "-h", "help"):
        sys.stdout.write(arguments.overview())
        return 0 if words else 2
    if words[0] in ("--version", "-V"):
        from postroom import __version__

        sys.stdout.write(f"postroom {__version__}\n")
        return 0
    try:
        args = arguments.parse(rest)
    except arguments.HelpAsked as asked:
        sys.stdout.write(str(asked))
        return 0
    if session is not None and arguments.COMMANDS[args.verb].answered_by == "here":
        raise BadUsage(f"`{args.verb}` acts for no session.", "Leave out --session.")
    args.session = session
    if arguments.COMMANDS[args.verb].answered_by != "here" and os.environ.get("POSTROOM_TOKEN"):
        from postroom.console import places

        places.refuse_left_over(session)
    module = import_module(f"postroom.console.commands.{MODULES.get(args.verb, 'session')}")
    return int(module.run(args, rest))


def leave(code: int) -> NoReturn:
    """Ends the process with this exit code once everything printed has left, 1 where it could not (10.37).

    Nothing is left to be tidied away: taking every loaded module apart would cost a short command a fifth of
    its time (12.17).
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # pyright: ignore[reportUnnecessaryComparison]
                stream.flush()
        except BrokenPipeError:
            code = code or 1
        except (OSError, ValueError):
            if not code:
                ask.unwritten()
                code = 1
    os._exit(code)


def fail(code: str, message: str, hint: str, *, as_json: bool) -> int:
    """Says an error and returns its exit code (10.37)."""
    from postroom import present

    return say(present.said_error(code, message, hint, as_json=as_json), present.exit_code(code))


def refuse(refusal: Refusal, *, as_json: bool) -> int:
    """Says a refusal and returns its exit code (10.37)."""
    from postroom import present

    return say(present.refused(refusal, as_json=as_json), present.exit_code(refusal.code))


def say(said: tuple[str, str], code: int) -> int:
    """Writes what stdout and stderr get, and returns the exit code; 1 where nobody reads it."""
    try:
        sys.stdout.write(said[0])
        sys.stderr.write(said[1])
    except OSError:
        return 1
    return code
