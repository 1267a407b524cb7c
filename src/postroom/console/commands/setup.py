"""`postroom setup CLIENT` and `unsetup CLIENT`: Postroom in another program's configuration, and out of it (09.17, 10.15).

Shows what would be changed, asks, writes all files or none, and says what to do next. `--dry-run` ends after the
showing, `--print` prints what would go into the files and looks at none, `--yes` does not ask. Without a terminal to ask
on and without `--yes` nothing is written.

What is written down is tried first: a command that does not run is refused, and a server that lacks its extra is said.

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
"""How long each trial may take: a loaded machine needs seconds, and so does a server that was never compiled."""

UNWRITTEN = "Nothing is written: that was a dry run."

PASTE = "Nothing is written: put each of these into its file, beside what is there."


def run(args: Values, argv: Sequence[str]) -> int:
    """Plans, shows, asks, writes; returns the exit code."""
    del argv
    try:
        command = this_command()
        row = program(args.client, command, os.environ)
        lacking = server_lacks(command.python) if args.verb == "setup" else ()
        if args.verb == "setup" and (args.print or not row.pieces[0].paths):
            return _print(row, lacking, as_json=args.json)
        return _change(args, row, lacking)
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
    if not runs(python, script):
        raise Refused(
            f"`{python} -I {script}` does not run: Postroom is installed where an isolated Python does not look.",
            "Install it in a virtual environment, or with pipx.",
        )
    return Command(python=python, script=script)


def runs(python: str, script: str) -> bool:
    """Whether the command says its version when it is started so."""
    done = _tried([python, "-I", script, "--version"])
    return done is not None and done.startswith(b"postroom ")


def server_lacks(python: str) -> tuple[str, ...]:
    """What keeps the MCP server from starting, as sentences for a note; none where it would start (09.9).

    Everything that it needs is loaded once, which leaves it compiled for its first start.
    """
    done = _tried([python, "-I", "-c", "from postroom.console.commands.mcp import trial; trial()"])
    if done is None:
        return ("The MCP server cannot be loaded: `postroom mcp </dev/null` says why.",)
    said = done.decode(errors="replace").strip()
    return (f"{said} Until then the agent has no tools of Postroom's.",) if said else ()


def _tried(words: list[str]) -> bytes | None:
    """What a command prints; None where it fails or takes too long."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRIAL_SECONDS,
            check=False,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _print(row: Program, lacking: tuple[str, ...], *, as_json: bool) -> int:
    follow = (PASTE, *row.next) if row.pieces[0].paths else row.next
    if as_json:
        document = shown.document(row, [], [], written=False, notes=lacking, follow=follow)
        sys.stdout.write(present.dumps(document))
        return 0
    for path, text in shown.snippets(row):
        sys.stdout.write((f"{path}:\n" if path else "") + text + ("\n" if path else ""))
    sys.stdout.flush()  # before what stands on the other stream
    sys.stderr.write("".join(f"postroom: {line}\n" for line in (*lacking, *follow)))
    return 0


def _change(args: Values, row: Program, lacking: tuple[str, ...]) -> int:
    setting_up = args.verb == "setup"
    if not row.pieces[0].paths:
        raise Refused(
            f"Where {row.title} keeps its configuration is not known here.",
            "Take out there what `postroom setup generic` printed.",
        )
    made = plan.setting_up(row) if setting_up else plan.taking_out(row)
    changes, follow = made.changes, row.next if setting_up else ()
    notes = (*made.notes, *lacking)
    for edit in changes:
        files.check(edit.file)
    if not args.json:
        _show(row, made, notes, setting_up=setting_up)
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
        backups = files.write(changes, row.name, os.environ, own=row.own)
        written = True
    if args.json:
        kept = dict(zip((edit.file.path for edit in changes), backups, strict=True))
        of_each = [kept.get(edit.file.path) for edit in made.edits]
        answer = shown.document(row, made.edits, of_each, written=written, notes=notes, follow=follow)
        sys.stdout.write(present.dumps(answer))
    elif written:
        sys.stdout.write(
            "".join(f"{_said(edit, kept, row.own)}\n" for edit, kept in zip(changes, backups, strict=True))
        )
        sys.stdout.write("".join(f"{line}\n" for line in follow))
    elif changes:
        sys.stdout.write(f"{UNWRITTEN}\n")
    return 0


def _show(row: Program, made: plan.Plan, notes: Sequence[str], *, setting_up: bool) -> None:
    """First what is changed where, in a line for each file, then the changes themselves."""
    sys.stdout.write("".join(f"{shown.summary(row, edit)}\n" for edit in made.changes))
    for edit in made.changes:
        sys.stdout.write("\n" + shown.diff(edit))
    if made.changes:
        sys.stdout.write("\n")
    else:
        state = "Postroom is set up in" if setting_up else "Nothing of Postroom's is in"
        sys.stdout.write(f"There is nothing to change: {state} {row.title}.\n")
    sys.stdout.write("".join(f"{note}\n" for note in notes))
    sys.stdout.flush()


def _said(edit: Edit, kept: str | None, own: Sequence[str]) -> str:
    path = edit.file.path
    whose = f"{path} (Postroom's own settings)" if path in own else path
    word = {"create": "made", "edit": "changed", "remove": "removed"}[shown.change(edit)]
    return f"{whose} is {word}" + (f"; what was there is kept in {kept}." if kept else ".")


def _agreed() -> bool:
    sys.stdout.write(QUESTION)
    sys.stdout.flush()
    return sys.stdin.readline().strip().casefold() in ("y", "yes")
