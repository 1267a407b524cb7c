"""Where the `postroom` command begins: the short way for commands that a session answers, else the whole one.

Loads nothing before it must: a command that its session's own process answers costs little more than the
interpreter's start (12.15, 12.16).
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Runs the command line of this process (chapter 10). Ends the process, or returns its exit code."""
    if sys.platform == "win32":
        sys.stderr.write(
            "unsupported\npostroom: Postroom does not run on native Windows.\n  Use it inside WSL 2.\n"
        )
        return 1
    if sys.argv[1:2] == ["hook"] and sys.argv[2:3] not in (["--help"], ["-h"]):
        from postroom import hook

        os._exit(hook.main(sys.argv[1:]))
    from postroom import ask

    code = ask.main(sys.argv[1:])
    if code is not None:
        # Everything is written already; taking the interpreter apart would cost a sixth of the command (12.15).
        os._exit(code)
    from postroom.console import cli

    return cli.leave(cli.main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
