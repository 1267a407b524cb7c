"""`postroom setup CLIENT` and `unsetup CLIENT`: Postroom in another program's configuration, and out of it (09.17, 10.15).

Shows what would be changed, asks, writes all files or none, and says what to do next. `--dry-run` ends after the
showing, `--print` prints what would go into the files and looks at none, `--yes` does not ask. Without a terminal to ask
on and without `--yes` nothing is written.

It never touches what a program is permitted to do, and never trusts a hook for a person.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from postroom import present
from postroom.console import cli
from postroom.console.setting_up import files, plan, shown
from postroom.console.setting_up.pieces import Command, Program
from postroom.console.setting_up.programs import program
from postroom.console.setting_up.refused import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.arguments import Values
    from postroom.console.setting_up.files import Edit

QUESTION = "Write this? [y]es, [n]o: "

TRIAL_SECONDS = 30.0
"""How long the command may take to say its version: a loaded machine needs a second."""


def run(args: Values, argv: Sequence[str]) -> int:
    """Plans, shows, asks, writes; returns the exit code."""
    del argv
    try:
        row = program(args.client, this_command(), os.environ)
        if args.verb == "setup" and (args.print or not row.pieces[0].paths):
            return _print(row, as_json=args.json)
        return _change(args, row)
    except Refused as error:
        return cli.fail("setup_refused", error.message, error.hint, as_json=args.json)


def this_command() -> Command:
    """How this Postroom is started, tried out: another program will do so from any folder (09.17). Raises Refused."""
    python = os.path.abspath(sys.executable or "")
    beside = os.path.join(os.path.dirname(python), "postroom")
    script = beside if os.path.isfile(beside) else os.path.abspath(sys.argv[0])
    if os.path.basename(script) != "postroom":
        raise Refused(
            f"The command `postroom` does not lie beside {python}.",
            "Install Postroom with pip or pipx, and run the command that this makes.",
        )
    for path in (python, script):
        if not path.isprintable() or "$" in path or "`" in path:
            raise Refused(f"{path!r} has a character that other programs would take for something else.")
    if not _runs(python, script):
        raise Refused(
            f"`{python} -I {script}` does not run: Postroom is installed where an isolated Python does not look.",
            "Install it in a virtual environment, or with pipx.",
        )
    return Command(python=python, script=script)


def _runs(python: str, script: str) -> bool:
    """Whether the command says its version when it is started so."""
    try:
        done = subprocess.run(
            [python, "-I", script, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRIAL_SECONDS,
            check=False,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.startswith(b"postroom ")


def _print(row: Program, *, as_json: bool) -> int:
    if as_json:
        document = shown.document(row, [], [], written=False, notes=[], follow=row.next)
        sys.stdout.write(present.dumps(document))
        return 0
    for path, text in shown.snippets(row):
        sys.stdout.write((f"{path}:\n" if path else "") + text + ("\n" if path else ""))
    sys.stderr.write("".join(f"postroom: {line}\n" for line in row.next))
    return 0


def _change(args: Values, row: Program) -> int:
    setting_up = args.verb == "setup"
    if not row.pieces[0].paths:
        raise Refused(
            f"Where {row.title} keeps its configuration is not known here.",
            "Take out there what `postroom setup generic` printed.",
        )
    made = plan.setting_up(row) if setting_up else plan.taking_out(row)
    changes, follow = made.changes, row.next if setting_up else ()
    for edit in changes:
        files.check(edit.file)
    if not args.json:
        _show(row, made, setting_up=setting_up)
    backups: list[str | None] = [None] * len(changes)
    written = False
    if changes and not args.dry_run:
        if not args.yes:
            if args.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
                return cli.fail(
                    "needs_yes",
                    "Nothing is changed: there is nobody here who could be asked.",
                    f"Run `postroom {args.verb} {row.name}` in a terminal, or add --yes to have it written,"
                    " or --dry-run to see what would be.",
                    as_json=args.json,
                )
            if not _agreed():
                sys.stdout.write("Nothing is changed.\n")
                return 1
        backups = files.write(changes, row.name, os.environ)
        written = True
    if args.json:
        kept = dict(zip((edit.file.path for edit in changes), backups, strict=True))
        of_each = [kept.get(edit.file.path) for edit in made.edits]
        answer = shown.document(row, made.edits, of_each, written=written, notes=made.notes, follow=follow)
        sys.stdout.write(present.dumps(answer))
    elif written:
        sys.stdout.write(
            "".join(f"{_said(edit, kept)}\n" for edit, kept in zip(changes, backups, strict=True))
        )
        sys.stdout.write("".join(f"{line}\n" for line in follow))
    return 0


def _show(row: Program, made: plan.Plan, *, setting_up: bool) -> None:
    for edit in made.changes:
        sys.stdout.write(shown.diff(edit) + "\n")
    if not made.changes:
        state = "Postroom is set up in" if setting_up else "Nothing of Postroom's is in"
        sys.stdout.write(f"There is nothing to change: {state} {row.title}.\n")
    sys.stdout.write("".join(f"{note}\n" for note in made.notes))
    sys.stdout.flush()


def _said(edit: Edit, kept: str | None) -> str:
    word = {"create": "made", "edit": "changed", "remove": "removed"}[shown.change(edit)]
    return f"{edit.file.path} is {word}" + (f"; what was there is kept in {kept}." if kept else ".")


def _agreed() -> bool:
    sys.stdout.write(QUESTION)
    sys.stdout.flush()
    return sys.stdin.readline().strip().casefold() in ("y", "yes")
