"""`postroom team`: what a team is, what was left in its folders, and a session's part in it (07.21, 07.22, 07.24).

    team, team repair           need no session: they read the files, here or in a neighbour's folders
    team join, leave, claim     only ask the session that is meant, by the verbs `team-join`, `team-leave` and `task claim`
    team send --each            asks it to send one message to each of the other members, and reports each outcome

Which team is shown: the one that `--team` names, by its own name or by that of the session whose team it is; else the one of
the session that is meant; else the only one there is.

What it never does: write into a mailbox or a config itself, except what `console.team_mending` removes.

How it fails: `not_found` where there is no such team, `ambiguous` where several could be meant, `unfit_path` for folders and
configs that cannot be used, each with the next step.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

from postroom import ask, present
from postroom.console import cli, places, team_mending, team_view
from postroom.console.commands import session
from postroom.console.team_view import NoTeam
from postroom.core import contract
from postroom.core.address import ref_of, shown
from postroom.core.message import Refusal
from postroom.core.team import team_name
from postroom.errors import BadUsage, CallerError, InvalidName, NoSession, UnfitPath
from postroom.present import one_line
from postroom.state import processes
from postroom.state.places import needed_state_folder
from postroom.state.teams import belongings, files_of, places_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from postroom.arguments import Values
    from postroom.core.team import Member, Team
    from postroom.present import Document
    from postroom.state.teams import Places

_FOLDERS = frozenset({"team", "teams_dir", "tasks_dir"})

TAKES: dict[str | None, frozenset[str]] = {
    None: _FOLDERS,
    "repair": _FOLDERS,
    "join": frozenset({"team", "as_name"}),
    "leave": frozenset(),
    "send": frozenset({"team", "each", "text", "summary"}),
    "claim": frozenset({"text"}),
}
"""What each action takes, by `Argument.dest`; the rest is a usage error and never passed over."""

OPTIONS = {
    "team": "--team",
    "teams_dir": "--teams-dir",
    "tasks_dir": "--tasks-dir",
    "as_name": "--as",
    "each": "--each",
    "summary": "--summary",
    "text": "TEXT",
}

FIRST_STEP = "A team begins with its first member: `postroom team join --team NAME`, NAME of a session."


class SeveralTeams(CallerError):
    """Several teams could be meant."""

    code = "ambiguous"


def run(args: Values, argv: Sequence[str]) -> int:
    """Does what was asked, and returns the exit code."""
    del argv
    check_use(args)
    return ACTIONS[args.action](args)


def check_use(args: Values) -> None:
    """Raises BadUsage where something was given that this action does not take."""
    given = [name for name in OPTIONS if getattr(args, name) not in (None, False)]
    if args.stdin:
        given.append("text")
    for name in given:
        if name not in TAKES[args.action]:
            verb = f"postroom team {args.action}" if args.action else "postroom team"
            raise BadUsage(f"{verb} takes no {OPTIONS[name]}.", "See `postroom team --help`.")


# ── which team ───────────────────────────────────────────────────────────────────────────────────


def spots_of(args: Values) -> Places:
    """The folders of teams and tasks. Raises NoTeam for one that was named and is not there."""
    state = needed_state_folder(os.environ)[0]
    spots = places_of(state, args.teams_dir, args.tasks_dir)
    for option, folder in (("teams_dir", spots.teams), ("tasks_dir", spots.tasks)):
        if getattr(args, option) is not None and not os.path.isdir(folder):
            raise NoTeam(
                f"There is no folder {one_line(folder)}.",
                f"Give {OPTIONS[option]} the folder that holds all of them, such as ~/.claude/{os.path.basename(folder)}.",
            )
    return spots


def meant_team(args: Values, spots: Places) -> str:
    """The name of the team that is meant. Raises NoTeam, SeveralTeams, NoSession, InvalidName, UnfitPath."""
    if args.team is not None:
        return named_team(args.team, spots)
    session_id = places.roster().meant(places.named_session(args.session), processes.ancestry(os.getppid()))
    if session_id is not None:
        own = team_name(session_id)
        for one in belongings(spots, session_id):
            return one.team.name
        if files_of(spots, own).mark() is not None:
            return own  # it cannot be read, and whoever looks at it says why
        if not spots.shared:
            raise NoTeam(
                "The session is in no team, and nobody is in its own.", unreadable(spots) or FIRST_STEP
            )
    found = team_view.there(spots)
    if not found:
        raise NoTeam(f"There is no team in {one_line(spots.teams)}.", FIRST_STEP)
    if len(found) > 1:
        raise SeveralTeams(f"There are {len(found)} teams: {listed(found)}.", "Name one with --team.")
    return found[0]


def named_team(wanted: str, spots: Places) -> str:
    """The team of this name, else the one of the session of this name."""
    with contextlib.suppress(NoSession):
        session_id = places.roster().meant(wanted, ())
        if session_id is not None and files_of(spots, team_name(session_id)).mark() is not None:
            return team_name(session_id)
    files_of(spots, wanted)  # InvalidName
    return wanted


def unreadable(spots: Places) -> str:
    """What is said of teams whose members nobody can tell; empty where there are none."""
    found: list[str] = []
    for name in team_view.there(spots):
        try:
            files_of(spots, name).read()
        except (UnfitPath, InvalidName):
            found.append(name)
    if not found:
        return ""
    return f"Who is in {listed(found)} cannot be read: `postroom team --team NAME` says why."


def listed(names: list[str], most: int = 20) -> str:
    """Names in a sentence."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return one_line(", ".join(names[:most])) + more


@contextlib.contextmanager
def saying_which(spots: Places) -> Generator[None]:
    """Adds to an error of a team that is not there which ones are."""
    try:
        yield
    except NoTeam as error:
        if error.hint:
            raise
        found = team_view.there(spots)
        hint = f"There is: {listed(found)}." if found else FIRST_STEP
        raise NoTeam(error.message, hint) from None


# ── without a session ────────────────────────────────────────────────────────────────────────────


def show(args: Values) -> int:
    """`team`: members, inboxes, tasks (07.24)."""
    spots = spots_of(args)
    with saying_which(spots):
        seen = team_view.look(spots, meant_team(args, spots), int(time.time() * 1000))
    sys.stdout.write(present.dumps(team_view.document(seen)) if args.json else team_view.text(seen))
    return 0


def repair(args: Values) -> int:
    """`team repair`; 1 where something is still wrong."""
    spots = spots_of(args)
    with saying_which(spots):
        mended = team_mending.repair(spots, meant_team(args, spots))
    sys.stdout.write(present.dumps(team_mending.document(mended)) if args.json else team_mending.text(mended))
    if not mended.problems:
        return 0
    sys.stderr.write(f"{mended.code}\n")
    return 1


# ── by a session ─────────────────────────────────────────────────────────────────────────────────


def meant(args: Values) -> places.Meant:
    """The session that is to act. Raises NoSession."""
    found = places.meant_session(args.session)
    if found is None:
        raise places.none_meant(f"team {args.action}")
    return found


def hand_over(args: Values, verb: str, *words: str) -> int:
    """Asks the session that is meant, and prints what it answers."""
    more = ("--json",) if args.json else ()
    return session.asked(meant(args), args, [verb, *more, *words])


def join(args: Values) -> int:
    """`team join --team NAME [--as NAME]` (07.22)."""
    if args.team is None:
        raise BadUsage(
            "postroom team join: --team is missing.",
            "Name the team, or the session whose team it is: `postroom team join --team NAME`.",
        )
    called = () if args.as_name is None else (f"--as={args.as_name}",)
    return hand_over(args, "team-join", f"--team={args.team}", *called)


def leave(args: Values) -> int:
    """`team leave` (07.22)."""
    return hand_over(args, "team-leave")


def claim(args: Values) -> int:
    """`team claim [ID]`: the same as `task claim` (07.23)."""
    return hand_over(args, "task", "claim", *(() if args.text is None else ("--", args.text)))


def send(args: Values) -> int:
    """`team send --each TEXT`: one message to each of the other members (07.22); 1 unless all were written."""
    text = text_of(args)
    if isinstance(text, Refusal):
        return cli.refuse(text, as_json=args.json)
    spots = spots_of(args)
    who = meant(args)
    found = [one for one in belongings(spots, who.session_id) if args.team in (None, one.team.name)]
    if not found:
        named = "" if args.team is None else f" {one_line(args.team)}"
        raise NoTeam(
            f"The session is no member of a team{named}.",
            unreadable(spots) or "`postroom team join --team NAME` makes it one.",
        )
    team, own = found[0]
    others = [member for member in team.members if member.name != own.name]
    if not others:
        raise NoTeam(f"Nobody else is in the team {team.name}.", "`postroom team` shows who was.")
    results = [outcome(who, args, team, member, text) for member in others]
    return report(args, results)


def text_of(args: Values) -> str | Refusal:
    """What is to be said. Raises BadUsage."""
    if not args.each:
        raise BadUsage(
            "postroom team send: --each is missing.",
            "It sends one message to each member; to one of them it is `postroom send NAME TEXT`.",
        )
    if args.stdin:
        try:
            text = ask.standard_input(["send", "each", "-"])
        except UnicodeError:
            raise BadUsage("The text is not UTF-8.", "Convert it to UTF-8 and send it again.") from None
        except ask.Unread:
            raise BadUsage(
                "Standard input cannot be read.", "Give it a file or a pipe, or give the text itself."
            ) from None
        if isinstance(text, int) and (refusal := contract.too_large(text)) is not None:
            return refusal
        return str(text).removesuffix("\n")
    if args.text is None:
        raise BadUsage("postroom team send: TEXT is missing.", "Write the text, or `-` for standard input.")
    return str(args.text)


def outcome(who: places.Meant, args: Values, team: Team, member: Member, text: str) -> Document:
    """Has the session send to one member, and says what came of it."""
    # By its identity, so that nobody else of that name gets it; who lives in the session itself has another one there.
    to = member.name if member.in_process else shown(member.name, ref_of(team.identity(member)))
    summary = () if args.summary is None else (f"--summary={args.summary}",)
    try:
        answer = asked(who, ["send", "--json", *summary, "--", to, text])
    except ask.Unanswered:
        return {"to": member.name, "status": "unknown"}
    if "error" in answer:
        return {"to": member.name, "error": answer["error"]}
    return {"to": member.name, "status": answer["status"], "msg_id": answer["msg_id"]}


def asked(who: places.Meant, words: list[str]) -> Document:
    """What a session answers to one request, however long it takes. Raises Unanswered, BadUsage."""
    line = ask.dial(who.control_path)
    try:
        line.sendall(ask.compose(who.token, words, None))
        out, kind = b"", ""
        while kind != "done":
            kind, _, more, _ = ask.next_frame(line)
            line.settimeout(None)  # it was taken
            out += more
    except UnicodeError:
        raise BadUsage("An argument is not UTF-8.", "Convert it to UTF-8.") from None
    except OSError:
        raise ask.Unanswered from None
    finally:
        line.close()
    return present.loads(out.decode())


def report(args: Values, results: list[Document]) -> int:
    """Prints every outcome, and returns 1 unless all were written."""
    good = [one for one in results if one.get("status", "unknown") != "unknown"]
    status = "written" if len(good) == len(results) else "partial" if good else "failed"
    document = {"status": status, "results": results}
    sys.stdout.write(present.dumps(document) if args.json else report_text(status, results))
    if status == "written":
        return 0
    sys.stderr.write(f"{status}\n")
    return 1


def report_text(status: str, results: list[Document]) -> str:
    """The outcomes for a person, a line each."""
    lines = [f"{status}: {len(results)} to be sent, one to each member."]
    for one in results:
        error = one.get("error")
        said = (
            f"{one['status']}, id {one['msg_id']}"
            if "msg_id" in one
            else f"{error['code']}: {error['message']} {error['hint']}".rstrip()
            if error
            else "unknown: the session ended before it had answered"
        )
        lines.append(one_line(f"  {one['to']}: {said}"))
    return "\n".join(lines) + "\n"


ACTIONS: dict[str | None, Callable[[Values], int]] = {
    None: show,
    "repair": repair,
    "join": join,
    "leave": leave,
    "send": send,
    "claim": claim,
}
