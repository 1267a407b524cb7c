"""Looks at the programs that run agents: installed, running, configured with Postroom; for `console.checks.clients`.

Where each keeps its configuration is the table of `console.setting_up`; it is read and never written. A process counts
where it is this user's and has the same home folder, and no process of the same client started it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, cast

from postroom import clients
from postroom.console.checks.clients import SWITCHES, Client, Clients, Command, Failures, Running
from postroom.console.setting_up import files as config_files
from postroom.console.setting_up import jsonc, toml
from postroom.console.setting_up.pieces import Command as Postroom
from postroom.console.setting_up.pieces import Hooks, Program, Server, hook_word, is_server
from postroom.console.setting_up.programs import program
from postroom.console.setting_up.refused import Broken, Refused
from postroom.core.times import stamped
from postroom.errors import UnfitPath
from postroom.state import files, processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from postroom.client import Client as Fact
    from postroom.console.checks.sessions import Live

_LATELY_MS = 24 * 3600 * 1000
"""Lines of a log that are younger are worth a word."""

_MOST_LOG = 2_097_152
"""Bytes of a log: it is set aside at half of that."""

_MOST_PROCESSES = 20_000

_LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) hook ([a-z-]*) (\S*): (.*)")
"""A line by which a hook says why it came to nothing. What else stands there is a program's own output, and not shown."""

_VERSION = re.compile(r"\d+\.\d+\.\d+")


def look(environ: Mapping[str, str], state: str | None, live: Sequence[Live]) -> Clients:
    """Gathers the facts. Never raises for what a file or a process holds.

    Args:
        environ: the environment that says where configuration lies, and where programs do.
        state: the state folder; None where there is none.
        live: the sessions that live.
    """
    names = [name for name in clients.CLIENTS if name != "generic"]
    facts = {name: clients.load(name) for name in names}
    running = _running(environ, list(facts.values()), live)
    seen = [one for name in names if (one := _client(facts[name], environ, running.get(name, ())))]
    logs = [(f"{state}/hooks.log", "")] if state else []
    logs += [(f"{state}/sessions/{one.id}/log", one.name) for one in live]
    return Clients(
        clients=tuple(one for one in seen if one.here or one.set_up or one.broken),
        sdk="" if importlib.util.find_spec("mcp") else "no module is called mcp",
        failures=tuple(each for path, name in logs if (each := _failures(path, name))),
    )


def _client(fact: Fact, environ: Mapping[str, str], running: tuple[Running, ...]) -> Client | None:
    try:
        row = program(fact.name, Postroom(python=sys.executable, script=own_script()), environ)
    except Refused:
        return None  # no home folder is known, and that is said of the folders
    installed = next(
        (
            path
            for name in fact.programs
            if "/" not in name and (path := shutil.which(name, path=environ.get("PATH", "")))
        ),
        "",
    )
    broken: list[tuple[str, str]] = []
    entries = list(_entries(row, broken))
    off = tuple(_off(row))
    hooks = tuple(dict.fromkeys(word for word, _, _ in entries if word))
    return Client(
        name=fact.name,
        title=fact.title,
        installed=installed,
        version=version_of(installed),
        running=running,
        server=any(not word for word, _, _ in entries),
        hooks=hooks,
        wanted=tuple(
            dict.fromkeys(
                hook.word for piece in row.pieces if isinstance(piece, Hooks) for hook in piece.hooks
            )
        ),
        commands=tuple(_command(word, file, words) for word, file, words in entries),
        broken=tuple(dict.fromkeys(broken)),
        off=off,
        switches=tuple(
            name for owner, name, _ in SWITCHES if owner == fact.name and _is_on(environ.get(name, ""))
        ),
    )


# ── configuration ────────────────────────────────────────────────────────────────────────────────


def _entries(row: Program, broken: list[tuple[str, str]]) -> Iterator[tuple[str, str, list[str]]]:
    """Our entries in a client's files: the word of a hook, or nothing for the server; the file; the command's words."""
    for piece in row.pieces:
        if not isinstance(piece, Server | Hooks):
            continue
        for path in piece.paths:
            content = _content(path, broken)
            if isinstance(piece, Server):
                entry: Any = content
                for key in (*piece.keys, "postroom"):
                    entry = cast("dict[str, Any]", entry).get(key) if isinstance(entry, dict) else None
                if entry is not None and is_server(entry):
                    yield "", path, _words(entry)
            else:
                for entry in _hook_entries(content):
                    if word := hook_word(entry, piece.client):
                        yield word, path, _words(entry)


def _content(path: str, broken: list[tuple[str, str]]) -> Any:
    """What a file of configuration says; nothing for one that is not there, or cannot be read, which is noted."""
    try:
        data = config_files.read(path).data
        if data is None:
            return {}
        text = data.decode("utf-8-sig")
        if path.endswith(".toml"):
            return toml.read(text)
        node = jsonc.parse(text)
        return {} if node is None else node.value
    except Refused as error:
        broken.append((path, error.message))
    except Broken as error:
        broken.append((path, str(error) or "it makes no sense"))
    except UnicodeDecodeError:
        broken.append((path, "it is not UTF-8"))
    return {}


def _hook_entries(content: Any) -> Iterator[Any]:
    """Every hook in a file, whoever's: in groups or by itself."""
    hooks: object = cast("dict[str, Any]", content).get("hooks") if isinstance(content, dict) else None
    lists = cast("dict[str, object]", hooks).values() if isinstance(hooks, dict) else ()
    for groups in lists:
        for group in cast("list[object]", groups) if isinstance(groups, list) else ():
            yield group
            inner: object = cast("dict[str, Any]", group).get("hooks") if isinstance(group, dict) else None
            yield from cast("list[object]", inner) if isinstance(inner, list) else ()


def _words(entry: Any) -> list[str]:
    """The words of an entry's command."""
    command: object = entry.get("command")
    args: object = entry.get("args")
    if isinstance(command, list):
        return [str(word) for word in cast("list[object]", command)]
    more = [str(word) for word in cast("list[object]", args)] if isinstance(args, list) else []
    try:
        return [*(shlex.split(str(command)) if not more and command else [str(command)]), *more]
    except ValueError:
        return [str(command), *more]


def _command(word: str, file: str, words: list[str]) -> Command:
    """How an entry starts Postroom: whether what it names is there, and whether it is this one."""
    what = f"the hook {word}" if word else "the MCP server"
    paths = [each for each in words if each.startswith("/")]
    gone = next((path for path in paths[:2] if not os.path.exists(path)), "")
    script = next((path for path in paths if os.path.basename(path) == "postroom"), "")
    if not paths and words:  # by its name alone: whichever PATH leads to
        script = shutil.which(words[0]) or ""
        gone = "" if script else words[0]
    other = script if script and os.path.realpath(script) != os.path.realpath(own_script()) else ""
    return Command(what=what, file=file, gone=gone, other=other, version=_postroom_version(other))


def own_script() -> str:
    """The command of this installation."""
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.executable or "")), "postroom")
    return beside if os.path.isfile(beside) else os.path.abspath(sys.argv[0])


def _postroom_version(script: str) -> str:
    """The version of another installation, by the name of its metadata's folder; empty where that is not found."""
    library = (
        os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(script))), "lib") if script else ""
    )
    try:
        found = [
            entry
            for python in os.listdir(library)
            for entry in os.listdir(os.path.join(library, python, "site-packages"))
            if entry.startswith("postroom-") and entry.endswith(".dist-info")
        ]
    except OSError:
        return ""
    return found[0].removeprefix("postroom-").removesuffix(".dist-info") if found else ""


def _off(row: Program) -> Iterator[tuple[str, str]]:
    """What switches the hooks of a client off."""
    for path, keys, value in row.off:
        here: Any = _content(path, [])
        for key in keys:
            here = cast("dict[str, Any]", here).get(key) if isinstance(here, dict) else None
        if here is value:
            yield path, f"{'.'.join(keys)} is {json.dumps(value)}"


# ── processes ────────────────────────────────────────────────────────────────────────────────────


def _running(
    environ: Mapping[str, str], facts: Sequence[Fact], live: Sequence[Live]
) -> dict[str, tuple[Running, ...]]:
    """The processes of each client that have this home folder, those apart that another one of it started."""
    words = {fact.name: tuple(program.encode() for program in fact.programs) for fact in facts}
    try:
        pids = sorted(int(name) for name in os.listdir(processes.PROC) if name.isdigit())[:_MOST_PROCESSES]
    except OSError:
        return {}
    own = os.geteuid()
    likely: list[tuple[int, Fact]] = []
    for pid in pids:
        if line := _told(pid, own):
            likely += [(pid, fact) for fact in facts if any(each in line for each in words[fact.name])]
    if not likely:
        return {}
    from postroom.presence import is_client  # it loads what opens sessions, of which a library may be missing

    found: dict[str, list[Running]] = {}
    home, uptime, ticks = environ.get("HOME", ""), _uptime(), os.sysconf("SC_CLK_TCK")
    for pid, fact in likely:
        process = processes.look(pid)
        if process is None or not is_client(fact, pid) or is_client(fact, process.parent):
            continue
        wanted = ("HOME", *(variable for owner, variable, _ in SWITCHES if owner == fact.name))
        theirs = processes.environment_of(pid, wanted)
        if theirs.get("HOME", "") != home:
            continue
        started = int(process.start) / ticks if process.start.isdecimal() else uptime
        found.setdefault(fact.name, []).append(
            Running(
                pid=pid,
                seconds=max(0.0, uptime - started),
                sessions=tuple(one.name for one in live if one.client == (pid, process.start)),
                switches=tuple(each for each in wanted[1:] if _is_on(theirs.get(each, ""))),
                version=version_of(processes.executable_of(pid)),
            )
        )
    return {name: tuple(each) for name, each in found.items()}


def _told(pid: int, uid: int) -> bytes:
    """The command line and the program of a process of this user; nothing for another's."""
    try:
        if os.stat(f"{processes.PROC}/{pid}").st_uid != uid:
            return b""
        with open(f"{processes.PROC}/{pid}/cmdline", "rb") as file:
            return file.read(65_536) + os.fsencode(processes.executable_of(pid))
    except OSError:
        return b""


def _uptime() -> float:
    """Seconds since the boot, by the clock that starts of processes are told in."""
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return 0.0


def _is_on(value: str) -> bool:
    """Whether a variable switches something on, as programs mostly read it."""
    return value.lower() not in ("", "0", "false", "no", "off")


def version_of(path: str) -> str:
    """The version of a program, by where it lies; empty where that does not tell.

    A folder or file on the way that is called by a version, or the `package.json` of the package that it lies in.
    """
    if not path:
        return ""
    real = os.path.realpath(path)
    for part in reversed(real.split("/")):
        if _VERSION.fullmatch(part):
            return part
    folder = os.path.dirname(real)
    for _ in range(3):
        try:
            with open(os.path.join(folder, "package.json"), "rb") as file:
                version: object = json.loads(file.read(1_048_576)).get("version")
            return version if isinstance(version, str) and _VERSION.match(version) else ""
        except (OSError, ValueError, AttributeError):
            folder = os.path.dirname(folder)
    return ""


# ── the log of hooks ─────────────────────────────────────────────────────────────────────────────


def _failures(path: str, session: str) -> Failures | None:
    """The hooks that failed lately by a log, if any did."""
    try:
        text = files.read_private(path, _MOST_LOG).decode(errors="replace")
    except (FileNotFoundError, UnfitPath):
        return None
    since = int(time.time() * 1000) - _LATELY_MS
    lines = (match for line in text.splitlines() if (match := _LINE.fullmatch(line)))
    found = [(stamped(match[1]), f"{match[2]} {match[3]}: {match[4]}") for match in lines]
    lately = [(at, why) for at, why in found if at > since]
    if not lately:
        return None
    at, why = lately[-1]
    return Failures(log=path, session=session, number=len(lately), last=at, why=why)
