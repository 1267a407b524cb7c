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
        sessions: names of the live sessions whose client it is; `quiet`: those of them that had no turn yet, where
            that can be seen.
        background: it is a server for windows, which nobody sits in front of.
        elsewhere: the folder of its configuration, where that is another than ours.
        switches: which of the `SWITCHES` it was started with.
        version: of it, where that is known.
    """

    pid: int
    seconds: float = 0.0
    sessions: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
    background: bool = False
    elsewhere: str = ""
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
        taken: (file, what) of what stands where ours would, so that `setup` refuses.
        off: (file, key) of what switches hooks off.
        untrusted: events whose hook of ours nobody has trusted; `changed`: that are not what somebody trusted;
            `disabled`: that were switched off by themselves. A client that asks for no trust has none of these.
        variable: the one that moves the records of a client with messaging of its own.
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
    taken: tuple[tuple[str, str], ...] = ()
    off: tuple[tuple[str, str], ...] = ()
    untrusted: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    variable: str = ""
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
        sdk: why the MCP server cannot be started, where it cannot: its library; `install`: the command
            that installs it.
        failures: of hooks, by the log in which they stand.
    """

    clients: tuple[Client, ...] = ()
    sdk: str = ""
    install: str = ""
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
        for file, what in each.taken:
            yield found(
                "client-entry-other",
                f"{claimed(file)}, of {each.title}, has no room for Postroom: {claimed(what)}. It starts nothing of ours from"
                " there, and `setup` refuses.",
                f"Take that away, or call it otherwise; then `postroom setup {each.name}`.",
            )
        if each.here and not each.set_up and not each.broken and not each.taken:
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
                f"`{claimed(facts.install)}`, then start {each.title} anew.",
            )


def sessions(facts: Clients) -> Iterator[Finding]:
    """Clients that run, are set up, and have no session: what was set up never started (09.9, 09.11)."""
    for each in facts.clients:
        alone = [
            one.pid
            for one in each.running
            if not (one.sessions or one.background or one.elsewhere) and one.seconds > SETTLED_SECONDS
        ]
        if alone and each.set_up:
            yield found(
                "client-without-session",
                f"{each.title} runs (process {several([str(pid) for pid in alone])}), is set up, and has no session: it"
                " has started neither our server nor a hook.",
                _START.get(
                    each.name, f"Start {each.title} anew: it read its configuration before that was written."
                ),
            )


def elsewhere(facts: Clients) -> Iterator[Finding]:
    """Clients with messaging of their own whose records lie in another folder than is looked into here (05.28, 09.13)."""
    for each in facts.clients:
        for folder in sorted({one.elsewhere for one in each.running if each.variable and one.elsewhere}):
            pids = [str(one.pid) for one in each.running if one.elsewhere == folder]
            yield found(
                "client-elsewhere",
                f"{each.title} runs with another {each.variable} than this shell (process {several(pids)}): it keeps"
                f" its configuration and its sessions in {claimed(folder)}. Whoever looks from here does not see them, and"
                " is not shown to them.",
                f"Set {each.variable} to the same for everything that you start, or nowhere; then `postroom setup"
                f" {each.name}` there.",
            )


def trust(facts: Clients, live: Sequence[Live]) -> Iterator[Finding]:
    """Hooks of ours that their client does not run, and says nothing about (09.5)."""
    for each in facts.clients:
        heard = any(one.program == each.name and _heard(one) for one in live)
        # One that was heard is trusted, however its client writes that down.
        changed = () if heard else each.changed
        rows = (
            (each.untrusted, "nobody has trusted {them}"),
            (changed, "{they} changed after somebody trusted {them}"),
            (each.disabled, "{they} {were} switched off there"),
        )
        for words, why in rows:
            if words:
                is_one = len(words) == 1
                said = why.format(
                    them="it" if is_one else "them",
                    they="it" if is_one else "they",
                    were="was" if is_one else "were",
                )
                yield found(
                    "hooks-untrusted",
                    f"{each.title} does not run the {'hook' if is_one else 'hooks'} of Postroom for {several(words)}, and"
                    f" says nothing: {said}.",
                    f"Start {each.title}, type `/hooks` there, look at {'it' if is_one else 'them'} and trust"
                    f" {'it' if is_one else 'them'}.",
                )


def _heard(session: Live) -> bool:
    """Whether a session has heard a hook of its client."""
    ways = (session.status or {}).get("doors", ())
    return any(door.get("name") == "hooks" and not door.get("why") for door in ways)


_START = {
    "codex": "Start Codex anew; `/hooks` there shows what it makes of the hooks of Postroom.",
    "claude-code": "Start Claude Code anew; `/mcp` and `/hooks` there show what is loaded.",
    "vscode": "Run `MCP: List Servers` in VS Code, start `postroom`, and say that you trust it.",
}
"""Client → how it comes to start what it was set up with."""


def silent_hooks(facts: Clients, live: Sequence[Live]) -> Iterator[Finding]:
    """Sessions whose client runs our hooks by its configuration, and none has come (09.5, 09.12)."""
    for each in facts.clients:
        if not each.hooks or each.off or each.untrusted or (each.changed and not any(map(_heard, live))):
            continue  # there are none, or it is said why they do not run
        for session in live:
            if session.program != each.name or session.status is None or _heard(session):
                continue
            process = _process(each, session)
            if process is None or process.seconds <= SETTLED_SECONDS or session.name in process.quiet:
                continue
            if not process.elsewhere:
                yield found(
                    "hooks-never-ran",
                    f"{session.called} is a session of {each.title}, which is set up to run our hooks, and has heard none"
                    " of them.",
                    _START.get(
                        each.name, f"Start {each.title} anew, and look whether its hooks are switched on."
                    ),
                )


def _process(client: Client, session: Live) -> Running | None:
    """The process of a client whose session this is; None where it is not seen."""
    return next((one for one in client.running if session.name in one.sessions), None)


def doors(facts: Clients, live: Sequence[Live]) -> Iterator[Finding]:
    """Sessions of clients whose every door that wakes an idle agent is shut (09.2 to 09.8, 09.16)."""
    clients = {each.name: each for each in facts.clients}
    for session in live:
        client = clients.get(session.program)
        process = None if client is None else _process(client, session)
        if process is not None and process.seconds <= SETTLED_SECONDS:
            continue  # it is starting
        ways = [
            door
            for door in (session.status or {}).get("doors", ())
            if door.get("wakes") and door.get("name") != "wait"
        ]
        if ways and all(door.get("why") for door in ways):
            shut = "; ".join(f"{door['name']}: {claimed(str(door['why']))}" for door in ways)
            called = claimed(session.program) if client is None else client.title
            opens = dict.fromkeys(
                _opens(door["name"], str(door["why"]), session.program, facts.install) for door in ways
            )
            yield found(
                "door-shut",
                f"Nothing wakes {session.called} ({called}) when it is idle: {shut}. Mail waits until it does something.",
                " Or: ".join(opens),
            )


_OPENS: tuple[tuple[str, str, str], ...] = (
    ("", "in time", "Run this again in a minute: it may have been starting."),
    ("hooks", "", "Run `postroom setup {client}`, and start the program anew."),
    (
        "native",
        "",
        "Start the program anew, of a version that has a messaging of its own, with that switched on.",
    ),
    ("codex-app-server", "websockets", "Run `{install}`, and start Codex anew."),
    (
        "codex-app-server",
        "",
        "End Codex and start it anew in a terminal: from 0.171 on it has a server of its own.",
    ),
    ("codex-queue", "not found", "Put the program `codex` into PATH, and start it from there."),
    ("codex-queue", "", "Type something to it once: its thread is open from its first turn on."),
    ("opencode-http", "no session", "Type something in opencode once: its session begins with that."),
    ("opencode-http", "turn", "Type something in opencode once: its session begins with that."),
    ("opencode-http", "password", "Start opencode with OPENCODE_SERVER_PASSWORD in its own environment."),
    ("opencode-http", "", "End opencode and start it as `opencode --port N`, with N any free port."),
)
"""A door, a word of why it is shut, and what opens it; the first that fits counts."""


def _opens(door: str, why: str, client: str, install: str) -> str:
    """What a person does to open a door."""
    for name, word, mend in _OPENS:
        if name in ("", door) and word in why:
            return mend.format(client=client, install=install)
    return "Let the agent run `postroom wait`."


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


CHECKS: tuple[Callable[[Clients], Iterator[Finding]], ...] = (
    set_up,
    commands,
    sessions,
    elsewhere,
    log,
    switches,
)
