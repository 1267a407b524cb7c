"""Whether the programs that run agents are set up, start what they were set up with, and can be reached (chapter 09).

Findings from facts; nothing is looked at here. `console.looks.clients` gathers the facts. Of a variable of another
process only the name is shown.

What is weak: a client that is started with a configuration on its command line, or a project's own, is not seen to be
set up. Which version is installed is told by where its files lie, so some say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.console.checks.finding import Finding, claimed, counted, found, several
from postroom.core.times import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from postroom.console.checks.sessions import Live

SETTLED_SECONDS = 60
"""A client that has run so long has started its servers, and its first turn mostly has ended."""

SWITCHES: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("claude-code", "CLAUDE_CODE_SIMPLE", ()),
    ("claude-code", "DISABLE_TELEMETRY", (2, 1, 248)),
    ("claude-code", "DO_NOT_TRACK", (2, 1, 248)),
    ("claude-code", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", (2, 1, 248)),
    ("claude-code", "DISABLE_GROWTHBOOK", (2, 1, 248)),
)
"""Client, variable that switches its own messaging off, and the first version in which it does not; none: in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How one entry of a client's configuration starts Postroom.

    Attributes:
        what: `the MCP server`, or `the hook EVENT`.
        file: where it stands.
        gone: the path in it that leads nowhere; empty: they are there.
        other: the Postroom that it starts, where that is another than this; `version` of it, where that is known.
    """

    what: str
    file: str
    gone: str = ""
    other: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A process of a client.

    Attributes:
        pid: its pid.
        seconds: how long it has run.
        sessions: names of the live sessions whose client it is.
        switches: which of the `SWITCHES` it was started with.
        version: of it, where that is known.
    """

    pid: int
    seconds: float = 0.0
    sessions: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """What was seen of one client.

    Attributes:
        name, title: as in the one list of clients.
        installed: where its program lies; empty: not found.
        version: of that, where it is known.
        running: its processes.
        server: its configuration starts our MCP server.
        hooks: the events for which it runs our hooks; `wanted`: those for which `setup` installs them.
        commands: how each of these starts Postroom.
        broken: (file, why) of configuration that cannot be read.
        off: (file, key) of what switches hooks off.
        switches: which of the `SWITCHES` stand in this shell.
    """

    name: str
    title: str
    installed: str = ""
    version: str = ""
    running: tuple[Running, ...] = ()
    server: bool = False
    hooks: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    broken: tuple[tuple[str, str], ...] = ()
    off: tuple[tuple[str, str], ...] = ()
    switches: tuple[str, ...] = ()

    @property
    def here(self) -> bool:
        """Whether it is on this machine."""
        return bool(self.installed or self.running)

    @property
    def set_up(self) -> bool:
        """Whether anything of ours stands in its configuration."""
        return self.server or bool(self.hooks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Hooks that failed lately.

    Attributes:
        log: the file that says so.
        session: whose it is; empty: of hooks that found no session.
        number: how many.
        last: when the last did, epoch milliseconds; `why` and which.
    """

    log: str
    session: str = ""
    number: int = 0
    last: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """What was seen of all of them.

    Attributes:
        clients: each that is here or set up.
        sdk: why the MCP server cannot be started, where it cannot: its library.
        failures: of hooks, by the log in which they stand.
    """

    clients: tuple[Client, ...] = ()
    sdk: str = ""
    failures: tuple[Failures, ...] = ()


def set_up(facts: Clients) -> Iterator[Finding]:
    """Clients that are here and not set up, or half (09.17)."""
    for each in facts.clients:
        for file, why in each.broken:
            yield found(
                "client-config-unread",
                f"The configuration of {each.title}, {claimed(file)}, cannot be read: {claimed(why)}.",
                f"Mend that file, then `postroom setup {each.name} --dry-run` shows what is missing.",
            )
        if each.here and not each.set_up and not each.broken:
            yield found(
                "client-not-set-up",
                f"{each.title} is installed{f' ({claimed(each.installed)})' if each.installed else ' or runs here'} and"
                " not set up: its sessions are none of Postroom's.",
                f"`postroom setup {each.name}`, if they are to be.",
            )
        missing = [word for word in each.wanted if word not in each.hooks]
        if each.set_up and (missing or not each.server):
            lacks = "the MCP server" if not each.server else f"the hooks for {several(missing)}"
            if missing and not each.server:
                lacks = f"the MCP server and the hooks for {several(missing)}"
            yield found(
                "client-half-set-up",
                f"{each.title} is set up in part: {lacks} {'is' if lacks == 'the MCP server' else 'are'} missing.",
                f"`postroom setup {each.name}` adds what is missing.",
            )
        for file, key in each.off:
            if each.hooks:
                yield found(
                    "hooks-off",
                    f"Hooks are switched off in {each.title}: {claimed(key)} in {claimed(file)}. None of ours runs.",
                    "Change that, or rely on the MCP server alone.",
                )


def commands(facts: Clients) -> Iterator[Finding]:
    """Configuration that starts a Postroom which is gone, or another one (09.17)."""
    for each in facts.clients:
        gone = sorted({one.gone for one in each.commands if one.gone})
        others = sorted({(one.other, one.version) for one in each.commands if one.other and not one.gone})
        for path in gone:
            yield found(
                "client-command-gone",
                f"{each.title} is set up with {claimed(path)}, which is not there: neither server nor hooks start.",
                f"`postroom setup {each.name}` writes the present path.",
            )
        for path, version in others:
            yield found(
                "client-command-other",
                f"{each.title} is set up with another Postroom than this one: {claimed(path)}"
                f"{f' (version {claimed(version)})' if version else ''}.",
                f"If this one is meant: `postroom setup {each.name}`.",
            )
        if facts.sdk and each.server and not gone and not others:
            yield found(
                "mcp-missing",
                f"{each.title} is set up to start the MCP server, and its library cannot be loaded: {claimed(facts.sdk)}.",
                "Install it beside this Postroom: `pip install mcp`.",
            )


def sessions(facts: Clients) -> Iterator[Finding]:
    """Clients that run, are set up, and have no session: what was set up never started (09.9, 09.11)."""
    for each in facts.clients:
        alone = [one.pid for one in each.running if not one.sessions and one.seconds > SETTLED_SECONDS]
        if alone and each.set_up:
            yield found(
                "client-without-session",
                f"{each.title} runs (process {several([str(pid) for pid in alone])}), is set up, and has no session: it"
                " has started neither our server nor a hook.",
                _START.get(
                    each.name, f"Start {each.title} anew: it read its configuration before that was written."
                ),
            )


_START = {
    "codex": "Start Codex anew; in it, `/hooks` shows whether the hooks of Postroom are trusted: until they are, it runs"
    " none of them and says nothing about it.",
    "claude-code": "Start Claude Code anew; `/mcp` and `/hooks` there show what is loaded.",
    "vscode": "Run `MCP: List Servers` in VS Code, start `postroom`, and say that you trust it.",
}
"""Client → how it comes to start what it was set up with."""


def silent_hooks(facts: Clients, live: Sequence[Live]) -> Iterator[Finding]:
    """Sessions whose client runs our hooks by its configuration, and none has told of a turn (09.5, 09.12)."""
    for each in facts.clients:
        running = {one.pid: one for one in each.running}
        for session in live:
            if session.program != each.name or session.status is None or session.client is None:
                continue
            process = running.get(session.client[0])
            ran = session.status.get("turn") != "unknown"
            if each.hooks and not ran and process is not None and process.seconds > SETTLED_SECONDS:
                yield found(
                    "hooks-never-ran",
                    f"{session.called} is a session of {each.title}, which is set up to run our hooks, and none has told"
                    " of a turn: it has had none yet, or does not run them.",
                    _START.get(
                        each.name, f"Start {each.title} anew, and look whether its hooks are switched on."
                    ),
                )


def doors(facts: Clients, live: Sequence[Live]) -> Iterator[Finding]:
    """Sessions of clients whose every door that wakes an idle agent is shut (09.2 to 09.8, 09.16)."""
    titles = {each.name: each.title for each in facts.clients}
    for session in live:
        ways = [
            door
            for door in (session.status or {}).get("doors", ())
            if door.get("wakes") and door.get("name") != "wait"
        ]
        if ways and all(door.get("why") for door in ways):
            shut = "; ".join(f"{door['name']}: {claimed(str(door['why']))}" for door in ways)
            yield found(
                "door-shut",
                f"Nothing wakes {session.called} ({titles.get(session.program, claimed(session.program))}) when it is"
                f" idle: {shut}. Mail waits until it does something.",
                f"One of these opens one: {'; '.join(claimed(str(door.get('needs'))) for door in ways)}",
            )


def log(facts: Clients) -> Iterator[Finding]:
    """Hooks that failed, with a session or without (09.12)."""
    for each in facts.failures:
        of = f" of {claimed(each.session)}" if each.session else ""
        yield found(
            "hooks-failed",
            f"{counted(each.number, 'hook')}{of} failed lately, the last at {iso(each.last)}: {claimed(each.why)}.",
            f"{claimed(each.log)} has them all"
            + ("." if each.session else "; remove it once that is mended."),
        )


def switches(facts: Clients) -> Iterator[Finding]:
    """Variables that switch off a client's own messaging; ours obeys none (10.16)."""
    for each in facts.clients:
        for program, variable, until in SWITCHES:
            if program != each.name:
                continue
            places = [
                f"process {one.pid}"
                for one in each.running
                if variable in one.switches and _off(one.version, until)
            ]
            if variable in each.switches and each.here and _off(each.version, until):
                places.insert(0, "this shell")
            if places:
                older = f" in versions before {'.'.join(map(str, until))}" if until else ""
                yield found(
                    "env-client-off",
                    f"{variable} is set ({several(places)}): it switches off the messaging that {each.title} has of its"
                    f" own{older}, and says nothing. Postroom obeys no such variable.",
                    f"`unset {variable}` and start {each.title} anew"
                    + (f", or use {'.'.join(map(str, until))} or newer." if until else "."),
                )


def _off(version: str, until: tuple[int, ...]) -> bool:
    """Whether a version still has the switch; one that is not known may."""
    parts = version.split(".")
    if not until or not all(part.isdecimal() for part in parts):
        return True
    return tuple(map(int, parts)) < until


CHECKS: tuple[Callable[[Clients], Iterator[Finding]], ...] = (set_up, commands, sessions, log, switches)
