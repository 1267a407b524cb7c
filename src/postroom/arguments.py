"""The command line's grammar: what each command takes, parsed by whoever answers it.

A command that a session answers is parsed in that session's process (10.21), the others where they run; both
use this table, so a command means the same everywhere, under every version of Python. Parsing has no effects:
it returns the values, or raises BadUsage, or HelpAsked with the text to print.

Options and words may stand in any order. A word that begins with `-` is an option or a usage error that says
how to send it as text; it is never dropped and never guessed at (V10 of the rivals' list). Behind a bare `--`
every word is taken as it stands, `-` too. `--help` asks for help right behind the command and nowhere else, so that no
text is lost to it.

It stands on its own and not on argparse, which takes `send bob --summary x TEXT` for an error before Python
3.13 and costs a request more than the rest of it together. Every command loads it, so its records are named tuples,
which cost little to define (12.17).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from postroom.errors import BadUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MAX_WAIT_SECONDS = 31_536_000.0
"""A year: longer than any wait is meant, and short enough for every clock."""

SUMMARY_LENGTH = 200
"""A default summary is the first line, cut here (10.2)."""

NOTE_LENGTH = 300
"""A person's note is passed on up to so many characters (05.24), so a longer one is refused and not cut."""

MODES = (
    *("default", "manual", "acceptEdits", "auto", "dontAsk", "plan"),
    *("bypassPermissions", "never", "danger-full-access", "yolo"),
)
"""The permission modes of `core.inbound`, a test holds them together; first those that ask, then those that never do."""

CLASSES = ("bypassing", "prompting", "none")
"""What a supposed sender states of itself (10.10)."""

CLIENTS = (
    *("claude-code", "codex", "gemini-cli", "qwen-code"),
    *("opencode", "cursor", "vscode", "generic"),
)
"""The programs of `postroom.clients`, a test holds them together (09.17)."""

TEAM_ACTIONS = ("join", "leave", "send", "claim", "repair")
"""What `team` does beside showing one (10.14)."""

_MAX_QUOTED = 60
"""Characters of a word that an error repeats."""

_SPACED = ("TEXT", "NAME", "ID-or-SUBJECT")
"""Words of a command that may hold blanks, and are then written between quotes."""

_HELP_COLUMN = 28
"""Where the explanations of `--help` begin."""

_HELP_WIDTH = 100
"""Where they end: what an option may be goes on below."""


class HelpAsked(Exception):
    """`--help` was asked for; the text is the exception's argument."""


class Values(SimpleNamespace):
    """The values of one command line.

    Attributes:
        verb: the command's name.
        stdin: a `-` stood where the text is taken, which is then read from standard input (10.2).
        …: one for each argument, called as `Argument.dest` says.
    """


# ── values ───────────────────────────────────────────────────────────────────────────────────────


def seconds(text: str) -> float:
    """Reads a length of time in seconds, zero or more. ValueError for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MAX_WAIT_SECONDS:
        raise ValueError(f"{quoted(text)} is no number of seconds from 0 to {MAX_WAIT_SECONDS:.0f}")
    return value


def count(text: str) -> int:
    """Reads a whole number from 1 on. ValueError for anything else."""
    if not (text.isascii() and text.isdigit() and 0 < int(text[:12]) < 10**9):
        raise ValueError(f"{quoted(text)} is no whole number from 1 on")
    return int(text)


def note(text: str) -> str:
    """Reads a person's note (03.42). ValueError for one that would not be passed on whole."""
    if len(text) > NOTE_LENGTH:
        raise ValueError(f"it has {len(text):,} characters, and at most {NOTE_LENGTH} are passed on")
    return text


def descriptor(text: str) -> int:
    """Reads the number of a file descriptor. ValueError for anything else."""
    return count(text)


def ids(text: str) -> list[str]:
    """Reads ids between commas or blanks (07.23)."""
    return text.replace(",", " ").split()


def json_object(text: str) -> object:
    """Reads an object of JSON. ValueError for anything else."""
    import json

    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ValueError(f"{quoted(text)} is no JSON object")
    return cast("object", value)


def one_of(*words: str) -> Callable[[str], str]:
    """Returns what reads one of these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"{quoted(text)} is none of {', '.join(words)}")
        return text

    return read


def moment(text: str | None, now: int) -> int | None:
    """Reads `--since` and `--until`: an ISO time, UTC where it names no zone, or `10m`, `2h`, `3d` ago (10.13).

    Args:
        text: as it was written; None for nothing.
        now: epoch milliseconds.

    Returns epoch milliseconds. Raises BadUsage.
    """
    if text is None:
        return None
    from postroom.core import times

    try:
        return times.moment(text, now)
    except ValueError:
        raise BadUsage(
            f"{quoted(text)} is no time.", "Write 2026-11-30T10:15:02Z, or 10m, 2h, 3d for that long ago."
        ) from None


def call_of(args: Values, text: str | None) -> dict[str, object]:
    """The call of SendMessage that a `send` stands for (10.2).

    Args:
        args: of `send`.
        text: what to say, from the command line or from standard input; None for nothing.

    Raises BadUsage where an answer to nothing is waited for.
    """
    if text is None and args.notify_when_idle and args.wait_reply is not None:
        raise BadUsage(
            "postroom send: --wait-reply waits for the answer to a text, and there is none.",
            "Write the text, or leave out --wait-reply.",
        )
    call: dict[str, object] = {"to": args.to, "message": text, "in_reply_to": args.in_reply_to}
    call["summary"] = args.summary if args.summary is not None else first_line(text or "") or None
    if args.notify_when_idle:
        call["notify_when_idle"] = True
    return call


def first_line(text: str) -> str:
    """The default summary: the first line that is not blank, cut at 200 (10.2)."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:SUMMARY_LENGTH]


def quoted(word: str) -> str:
    """A word of the caller's inside a sentence: in quotes, printable, not endless."""
    return repr(word if len(word) <= _MAX_QUOTED else word[: _MAX_QUOTED - 1] + "…")


# ── the table ────────────────────────────────────────────────────────────────────────────────────


class Argument(NamedTuple):
    """One thing that a command takes.

    Attributes:
        says: what it is for, in one line.
        option: `--summary`; empty for a word without one.
        value: what its value is called; empty for a switch, which is on or off.
        reads: makes the value of its word; raises ValueError that says what is wrong.
        choices: the words that it may be; empty where it is not one of a few.
        default: its value where it is not given.
        required: a word, or an option, that must be there.
        dash: a `-` in its place means standard input.
        rest: it takes every word behind a bare `--`, and none before.
        shown: False for what people do not type.
    """

    says: str = ""
    option: str = ""
    value: str = ""
    reads: Callable[[str], object] = str
    choices: tuple[str, ...] = ()
    default: object = None
    required: bool = False
    dash: bool = False
    rest: bool = False
    shown: bool = True

    @property
    def dest(self) -> str:
        """The attribute of `Values` that holds it; what Python keeps for itself has a `_` behind it."""
        name = (self.option.lstrip("-") or self.value.removeprefix("-- ").lower()).replace("-", "_")
        return {"from": "from_", "as": "as_name"}.get(name, name)

    @property
    def form(self) -> str:
        """How it is written: `TO`, `--take`, `--limit N`."""
        return " ".join(filter(None, (self.option, self.value)))


class Command(NamedTuple):
    """One command of the command line.

    Attributes:
        does: one line for the listing.
        answered_by: `session` when the session that is meant answers it over its control socket, `here`
            when it runs in the caller's process, `both` when it runs here without a session.
        takes: its own arguments.
        shown: False for what people do not type.
    """

    does: str
    answered_by: str
    takes: tuple[Argument, ...] = ()
    shown: bool = True


def _word(value: str, says: str, *, required: bool = False) -> Argument:
    return Argument(value=value, says=says, required=required)


def _option(
    option: str, value: str, says: str, *, reads: Callable[[str], object] = str, default: object = None
) -> Argument:
    return Argument(option=option, value=value, says=says, reads=reads, default=default)


def _place(value: str, says: str, choices: tuple[str, ...]) -> Argument:
    return Argument(value=value, says=says, reads=one_of(*choices), choices=choices, required=True)


def _choice(
    option: str, value: str, says: str, choices: tuple[str, ...], *, default: object = None
) -> Argument:
    return Argument(
        option=option, value=value, says=says, reads=one_of(*choices), choices=choices, default=default
    )


def _switch(option: str, says: str) -> Argument:
    return Argument(option=option, says=says, default=False)


EVERYWHERE = (
    _switch("--json", "one JSON document on standard output"),
    _option("--session", "NAME-or-ID", "act for this session"),
)
"""What every command takes."""

_LIST = (
    _word("TEXT", "only rows whose name or place has this in it"),
    _choice("--kind", "KIND", "only rows of this kind", ("session", "agent", "teammate")),
    _option("--limit", "N", "at most so many rows (default 50)", reads=count, default=50),
    _switch("--watch", "print the list anew whenever it changes"),
)

_SETUP = (
    Argument(value="CLIENT", says="the program", reads=one_of(*CLIENTS), choices=CLIENTS, required=True),
    _switch("--dry-run", "show the change and write nothing"),
    _switch("--yes", "write without asking"),
)

COMMANDS: dict[str, Command] = {
    "open": Command(
        "open a session: around a command, in the foreground, or detached",
        "here",
        (
            _option("--name", "NAME", "its name (default: POSTROOM_NAME, else from the folder)"),
            _choice("--mode", "MODE", "the permission mode", MODES, default="default"),
            _choice("--kind", "KIND", "how it is attended", ("interactive", "headless", "bg", "external")),
            _switch("--detach", "in the background; prints the session once it is reachable"),
            _option("--resume", "NAME-or-ID", "come back as this session, with its mail"),
            _option("--settings", "JSON-or-file", "settings for this session alone"),
            Argument(option="--ready-fd", value="FD", reads=descriptor, shown=False),
            Argument(value="-- COMMAND", says="open the session around this command", default=(), rest=True),
        ),
    ),
    "attend": Command(
        "be a client's session until the client ends; its hooks start this",
        "here",
        (
            _word("CLIENT", "the client", required=True),
            _option("--client-pid", "PID", "its process", reads=count),
            _option("--client-start", "START", "when that started"),
            _option("--conversation", "ID", "the client's own id of the conversation"),
            Argument(option="--ready-fd", value="FD", reads=descriptor, shown=False),
        ),
        shown=False,
    ),
    "hook": Command(
        "what a client's hooks run: tells its session of an event, prints what waits for its model",
        "here",
        (
            _word("CLIENT", "the client", required=True),
            _word("EVENT", "the client's own name of it", required=True),
        ),
        shown=False,
    ),
    "list": Command("who can be written to from here", "both", _LIST),
    "peers": Command("the same as list", "both", _LIST, shown=False),
    "send": Command(
        "send a message to a session",
        "both",
        (
            _word("TO", "a name, `name [ref]`, or the `from` of a message", required=True),
            Argument(value="TEXT", says="what to say; `-` reads standard input", dash=True),
            _option("--summary", "SUMMARY", "a preview, at most 200 characters (default: the first line)"),
            _option("--in-reply-to", "MSG_ID", "the message that this one answers"),
            _option("--msg-id", "ID", "send again a message whose outcome was unknown"),
            _option("--wait-reply", "SECONDS", "wait for the answer and print it", reads=seconds),
            _switch("--notify-when-idle", "be told once when it is idle; TEXT may then be missing"),
        ),
    ),
    "inbox": Command(
        "the messages that wait for this session",
        "session",
        (
            _switch("--take", "take them: they count as read once printed"),
            _switch("--follow", "go on and print messages as they come (takes them)"),
        ),
    ),
    "wait": Command(
        "block until a message comes, then take and print it",
        "session",
        (_option("--timeout", "SECONDS", "give up after so long (exit code 3)", reads=seconds),),
    ),
    "held": Command(
        "the messages that wait for a person's decision",
        "session",
        (_switch("--follow", "go on and print messages as they are held"),),
    ),
    "approve": Command(
        "let a held message in; for a person",
        "session",
        (
            _word("ID", "the message's id, or a beginning of it that only one has", required=True),
            _switch("--always", "and accept every message of its sender from now on"),
            _option("--note", "TEXT", "a word to the session that gets the message", reads=note),
        ),
    ),
    "deny": Command(
        "drop a held message and tell its sender; for a person",
        "session",
        (
            _word("ID", "the message's id, or a beginning of it that only one has", required=True),
            _option("--note", "TEXT", "a word to its sender", reads=note),
        ),
    ),
    "explain": Command(
        "why a message is accepted, held or refused",
        "session",
        (
            _word("MSG_ID", "a message that came; without one, a message that might come"),
            _option("--from", "NAME", "suppose that it is from this session"),
            _choice("--mode", "CLASS", "suppose that its sender has this class, or mode", (*CLASSES, *MODES)),
        ),
    ),
    "rules": Command(
        "the senders that are always accepted",
        "session",
        (_option("--revoke", "ID", "accept this one no more by rule; for a person"),),
    ),
    "status": Command(
        "this session: name, address, class, queues, problems",
        "session",
        (_choice("--mode", "MODE", "change the permission mode, from inside or as a person", MODES),),
    ),
    "rename": Command(
        "give this session another name", "session", (_word("NAME", "the new name", required=True),)
    ),
    "trace": Command(
        "every step of one message, at sender and receiver",
        "both",
        (
            _word("MSG_ID", "the id that `send` printed", required=True),
            _switch("--mermaid", "a sequence diagram in place of the table"),
        ),
    ),
    "log": Command(
        "the journal of this session",
        "both",
        (
            _word("TEXT", "only steps of messages with this in them"),
            _option("--peer", "NAME", "only steps that concern this peer"),
            _option("--since", "TIME", "from then on: 2026-11-30T10:15:02Z, or 10m, 2h, 3d ago"),
            _option("--until", "TIME", "up to this time"),
            _option("--limit", "N", "the last so many (default 200)", reads=count, default=200),
            _switch("--follow", "go on and print steps as they come"),
        ),
    ),
    "task": Command(
        "the tasks that this session's team shares: create, update, list, get, claim",
        "session",
        (
            _place("ACTION", "what to do", ("create", "update", "list", "get", "claim")),
            _word("ID-or-SUBJECT", "the subject of a new task, else the id of one"),
            _option("--subject", "SUBJECT", "its new subject"),
            _option("--description", "TEXT", "what is to be done"),
            _option("--active-form", "TEXT", "the subject while it is being done"),
            _option("--owner", "NAME", "the member who has it, or in `list` whose tasks; '' for nobody"),
            _choice(
                "--status",
                "STATUS",
                "where it stands; `deleted` removes it",
                ("pending", "in_progress", "completed", "deleted"),
            ),
            _option("--blocks", "IDS", "tasks that wait for this one: 3,4", reads=ids),
            _option("--blocked-by", "IDS", "tasks that this one waits for: 1,2", reads=ids),
            _option("--metadata", "JSON", "an object, merged in by key", reads=json_object),
        ),
    ),
    "team": Command(
        "the members, inboxes and tasks of a team; join, leave, send, claim, repair",
        "both",
        (
            Argument(
                value="ACTION",
                says="without one the team is shown",
                reads=one_of(*TEAM_ACTIONS),
                choices=TEAM_ACTIONS,
            ),
            Argument(
                value="TEXT", says="of `send`; `-` reads standard input. Of `claim` a task's id", dash=True
            ),
            _option("--team", "NAME", "the team, or the session whose team it is"),
            _option("--as", "NAME", "what to be called there (default: the session's name)"),
            _switch("--each", "one message to each of the other members"),
            _option("--summary", "SUMMARY", "a preview, at most 200 characters (default: the first line)"),
            _option("--teams-dir", "FOLDER", "look at another program's teams"),
            _option("--tasks-dir", "FOLDER", "and at its tasks (default: beside its teams)"),
        ),
    ),
    "team-join": Command(
        "what `team join` asks a session",
        "session",
        (
            Argument(
                option="--team", value="NAME", says="the team, or the session whose team it is", required=True
            ),
            _option("--as", "NAME", "what to be called there"),
        ),
        shown=False,
    ),
    "team-leave": Command("what `team leave` asks a session", "session", shown=False),
    "close": Command(
        "end a detached session",
        "both",
        (_switch("--forget", "remove its folder too: unread mail and journal are gone"),),
    ),
    "move": Command(
        "end a detached session here, for the process that takes it over", "session", shown=False
    ),
    "mcp": Command(
        "serve the tools to the agent that starts this, over its standard streams",
        "here",
        (
            _option("--client", "CLIENT", "which client starts it (default: seen by its process)"),
            _option("--name", "NAME", "the session's name (default: the client's, else from the folder)"),
            _choice("--mode", "MODE", "the permission mode (default: the client's own)", MODES),
            _option("--settings", "JSON-or-file", "settings for this session alone"),
        ),
    ),
    "tool": Command(
        "one call of a tool, for the MCP server of a session that lives elsewhere",
        "session",
        (_word("NAME", "the tool's name over MCP", required=True),),
        shown=False,
    ),
    "doors": Command("by what ways a message comes to this session's agent", "session"),
    "doctor": Command("what keeps messages from arriving, and what mends it", "here"),
    "setup": Command(
        "put Postroom's MCP server and hooks into a coding agent's configuration",
        "here",
        (
            *_SETUP,
            _switch("--print", "print what would go into which file, and look at no file"),
        ),
    ),
    "unsetup": Command("take out again what setup put in", "here", _SETUP),
    "demo": Command("the main job on real processes, narrated", "here"),
}
"""Every command, in the order in which help lists them (chapter 10)."""


MEANT = {
    **dict.fromkeys(("read", "receive", "take", "peek"), "inbox"),
    **dict.fromkeys(("ls", "who"), "list"),
    **dict.fromkeys(("hold", "holds"), "held"),
    **dict.fromkeys(("accept", "allow", "release"), "approve"),
    **dict.fromkeys(("reject", "refuse", "dismiss"), "deny"),
    "why": "explain",
}
"""What people call a command that is called otherwise."""


# ── parsing ──────────────────────────────────────────────────────────────────────────────────────


def parse(argv: Sequence[str]) -> Values:
    """Parses one command line.

    Args:
        argv: the command and its arguments.

    Returns the values. Raises BadUsage, or HelpAsked for `--help` right behind the command.
    """
    verb = argv[0]
    command = COMMANDS.get(verb)
    if verb == "--session":
        raise BadUsage("--session needs a value.", "Write --session=NAME-or-ID before or after the command.")
    if verb[:1] == "-":
        raise BadUsage(f"There is no option {quoted(verb)} before a command.", near_option(verb))
    if command is None:
        raise BadUsage(f"There is no command {quoted(verb)}.", near_command(verb))
    if argv[1:2] in (["--help"], ["-h"]):
        raise HelpAsked(help_of(verb))
    takes = command.takes + EVERYWHERE
    values: dict[str, Any] = {"verb": verb, "stdin": False} | {one.dest: one.default for one in takes}
    options = {one.option: one for one in takes if one.option}
    places = [one for one in takes if not one.option]
    words = iter(argv[1:])
    for word in words:
        if word == "--":
            behind = list(words)
            if not behind and places and places[0].rest:
                raise _usage(
                    verb, "the command behind `--` is missing", f"Write postroom {verb} … -- COMMAND …"
                )
            _fill(verb, places, behind, values)
        elif is_option(word):
            name, given, text = word.partition("=")
            one = options.get(name)
            if one is None:
                raise _no_option(verb, name, takes)
            values[one.dest] = _value(verb, one, text if given else None, words, options)
        elif word == "-" and places and places[0].dash:
            del places[0]
            values["stdin"] = True
        elif places and places[0].rest:
            raise BadUsage(
                f"postroom {verb}: a command goes behind a bare `--`, and {quoted(word)} does not.",
                f"Write postroom {verb} … -- {word if word.isidentifier() else 'COMMAND'} …",
            )
        else:
            _fill(verb, places, [word], values)
    for one in places:
        if one.required:
            raise _usage(verb, f"{one.value} is missing")
    for one in options.values():
        if one.required and values[one.dest] is None:
            raise _usage(verb, f"{one.option} is missing", f"Write {one.option}={one.value}.")
    return Values(**values)


def is_option(word: str) -> bool:
    """Whether a word is meant as an option: it begins with `-` and has no white space before a `=`.

    `-` alone is a word, and so is what no option could be called, as `- first point`.
    """
    return word[:1] == "-" and word != "-" and not any(map(str.isspace, word.partition("=")[0]))


def _fill(verb: str, places: list[Argument], words: list[str], values: dict[str, Any]) -> None:
    """Gives words to the next places that take one; BadUsage where there are more words than places."""
    while words:
        if not places:
            raise _usage(verb, f"{quoted(words[0])} is one word too many", _fewer(verb))
        if places[0].rest:
            values[places[0].dest] = tuple(words)
            return
        one = places.pop(0)
        values[one.dest] = _read(verb, one, words.pop(0))


def _fewer(verb: str) -> str:
    """What is said of a word too many: how a text stays one word, else how many the command takes."""
    last = next((one.value for one in reversed(COMMANDS[verb].takes) if not one.option), "")
    if last in _SPACED:
        return "A text of several words goes between quotes."
    if not last:
        return f"`postroom {verb}` takes no word, only options: see `postroom {verb} --help`."
    return f"One {last} at a time: run `postroom {verb}` once for each."


def _value(
    verb: str, one: Argument, given: str | None, words: Iterator[str], options: dict[str, Argument]
) -> object:
    """The value of an option: behind its `=`, else the next word, unless that is an option itself."""
    if not one.value:
        if given is not None:
            raise _usage(verb, f"{one.option} takes no value")
        return True
    if given is None:
        given = next(words, None)
        if given is None or given == "--" or given.partition("=")[0] in options:
            raise _usage(verb, f"{one.option} needs a value", f"Write {one.option}={one.value}.")
    return _read(verb, one, given)


def _read(verb: str, one: Argument, word: str) -> object:
    try:
        return one.reads(word)
    except ValueError as error:
        near = _near_choice(word, one.choices)
        hint = f"Did you mean {near}? See `postroom {verb} --help`." if near else ""
        raise _usage(verb, f"{one.option or one.value}: {error}", hint) from None


def _near_choice(word: str, choices: tuple[str, ...]) -> str | None:
    """The one of a few words that was meant: by its beginning, as `claude`, else by its letters."""
    plain = "-".join(word.casefold().split())
    called = {choice.casefold(): choice for choice in choices}
    begun = [choice for lowered, choice in called.items() if plain and lowered.startswith(plain)]
    return begun[0] if len(begun) == 1 else called.get(_nearest(plain, list(called)) or "")


def _usage(verb: str, problem: str, hint: str = "") -> BadUsage:
    return BadUsage(f"postroom {verb}: {problem}.", hint or f"See `postroom {verb} --help`.")


def _no_option(verb: str, name: str, takes: Sequence[Argument]) -> BadUsage:
    """What is said of an option that there is not: a near one, and how such a text is sent."""
    hints: list[str] = []
    if name in ("--help", "-h"):
        hints.append(f"Help is `postroom {verb} --help`, with nothing between.")
    elif near := _nearest(name, [one.option for one in takes if one.option and one.shown]):
        hints.append(f"Did you mean {near}?")
    if last := next((one.value for one in reversed(takes) if not one.option), ""):
        text = last.removeprefix("-- ")
        hints.append(f"What begins with `-` and is no option goes behind `--`: postroom {verb} … -- {text}.")
    return _usage(verb, f"there is no option {quoted(name)}", " ".join(hints))


def near_option(word: str) -> str:
    """What to say about an option before the command that does not exist."""
    near = _nearest(word.partition("=")[0], ["--session", "--json", "--help", "--version"])
    return f"Did you mean {near}?" if near else "See `postroom --help`."


def near_command(word: str) -> str:
    """What to say about a command that does not exist."""
    near = MEANT.get(word) or _nearest(word, [name for name, command in COMMANDS.items() if command.shown])
    return f"Did you mean `{near}`?" if near else "See `postroom --help`."


def _nearest(word: str, known: list[str]) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, known, 1)), None)


# ── help ─────────────────────────────────────────────────────────────────────────────────────────


def overview() -> str:
    """The text of `postroom --help`."""
    rows = "\n".join(f"  {name:8} {command.does}" for name, command in COMMANDS.items() if command.shown)
    return (
        "usage: postroom [--session NAME-or-ID] [--json] COMMAND …\n\n"
        "Messages between agent sessions. A message is information, never authority.\n\n"
        f"{rows}\n\n"
        "`postroom COMMAND --help` tells more of each. Exit codes: 0 done, 1 refused or failed, 2 usage,\n"
        "3 not found or out of time, 4 ambiguous, 130 interrupted.\n"
    )


def help_of(verb: str) -> str:
    """The text of `postroom COMMAND --help`."""
    command = COMMANDS[verb]
    everywhere = EVERYWHERE if command.answered_by != "here" else EVERYWHERE[:1]
    takes = [one for one in command.takes + everywhere if one.shown]
    words = [one.form if one.required else f"[{one.form}]" for one in takes if not one.option]
    usage = " ".join(["usage: postroom", verb, "[OPTION]…", *words])
    rows = [row for one in takes for row in _explained(one)]
    does = command.does[0].upper() + command.does[1:]
    return "\n".join([usage, "", f"{does}.", "", *rows]) + "\n"


def _explained(one: Argument) -> list[str]:
    """The lines of one argument; the words that it may be are folded at the edge."""
    rows = [f"  {one.form:{_HELP_COLUMN - 4}}  {one.says}{':' if one.choices else ''}"]
    for choice in one.choices:
        word = choice if choice == one.choices[-1] else f"{choice},"
        if len(rows[-1]) + 1 + len(word) > _HELP_WIDTH:
            rows.append(" " * (_HELP_COLUMN - 1))
        rows[-1] += f" {word}"
    return rows
