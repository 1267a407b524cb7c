"""Looks at the programs that run agents: installed, running, configured with Postroom; for `console.checks.clients`.

Where each keeps its configuration is the table of `console.setting_up`; it is read and never written. What runs is looked
at by `looks.running`, what Codex trusts by `looks.trust`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from postroom import clients
from postroom.console import extra
from postroom.console.checks.clients import SWITCHES, Client, Clients, Command, Failures, Running
from postroom.console.looks import running, trust
from postroom.console.looks.programs import postroom_version, version_of
from postroom.console.setting_up import files as config_files
from postroom.console.setting_up import jsonc, toml
from postroom.console.setting_up.pieces import NAME, Hooks, Program, Server, hook_word, is_server
from postroom.console.setting_up.pieces import Command as Postroom
from postroom.console.setting_up.programs import program
from postroom.console.setting_up.refused import Broken, Refused
from postroom.core.times import stamped
from postroom.errors import UnfitPath
from postroom.state import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from postroom.client import Client as Fact
    from postroom.console.checks.sessions import Live

_LATELY_MS = 24 * 3600 * 1000
"""Lines of a log that are younger are worth a word."""

_MOST_LOG = 2_097_152
"""Bytes of a log: it is set aside at half of that."""

_LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) hook ([a-z-]*) (\S*): (.*)")
"""A line by which a hook says why it came to nothing. What else stands there is a program's own output, and not shown."""


def look(environ: Mapping[str, str], state: str | None, live: Sequence[Live]) -> Clients:
    """Gathers the facts. Never raises for what a file or a process holds.

    Args:
        environ: the environment that says where configuration lies, and where programs do.
        state: the state folder; None where there is none.
        live: the sessions that live.
    """
    names = [name for name in clients.CLIENTS if name != "generic"]
    facts = {name: clients.load(name) for name in names}
    runs = running.look(environ, list(facts.values()), live, f"{state}/sessions")
    seen = [one for name in names if (one := _client(facts[name], environ, runs.get(name, ())))]
    logs = [(f"{state}/hooks.log", "")] if state else []
    logs += [(f"{state}/sessions/{one.id}/log", one.name) for one in live]
    sdk = "" if find_spec(extra.EXTRA) else f"there is no package {extra.EXTRA} for {sys.executable}"
    return Clients(
        clients=tuple(one for one in seen if one.here or one.set_up or one.broken or one.taken),
        sdk=sdk,
        install=extra.install_command() if sdk or not find_spec("websockets") else "",
        failures=tuple(each for path, name in logs if (each := _failures(path, name))),
    )


def _client(fact: Fact, environ: Mapping[str, str], runs: tuple[Running, ...]) -> Client | None:
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
    taken: list[tuple[str, str]] = []
    entries = list(_entries(row, broken, taken))
    trusted = _trusted(row) if fact.name == "codex" else trust.Trust()
    off = tuple(_off(row))
    hooks = tuple(dict.fromkeys(word for word, _, _ in entries if word))
    return Client(
        name=fact.name,
        title=fact.title,
        installed=installed,
        version=version_of(installed),
        running=runs,
        server=any(not word for word, _, _ in entries),
        hooks=hooks,
        wanted=tuple(
            dict.fromkeys(
                hook.word for piece in row.pieces if isinstance(piece, Hooks) for hook in piece.hooks
            )
        ),
        commands=tuple(_command(word, file, words) for word, file, words in entries),
        broken=tuple(dict.fromkeys(broken)),
        taken=tuple(dict.fromkeys(taken)),
        off=off,
        untrusted=trusted.missing,
        changed=trusted.changed,
        disabled=trusted.off,
        variable=running.variable_of(fact.name) if fact.neighbour else "",
        switches=tuple(
            name for owner, name, _ in SWITCHES if owner == fact.name and running.is_on(environ.get(name, ""))
        ),
    )


# ── configuration ────────────────────────────────────────────────────────────────────────────────


def _entries(
    row: Program, broken: list[tuple[str, str]], taken: list[tuple[str, str]]
) -> Iterator[tuple[str, str, list[str]]]:
    """Our entries in a client's files: the word of a hook, or nothing for the server; the file; the command's words.

    Args:
        row: of the client.
        broken: gets (file, why) of what cannot be read.
        taken: gets (file, what) of what stands where ours would.
    """
    for piece in row.pieces:
        if not isinstance(piece, Server | Hooks):
            continue
        for path in piece.paths:
            content = _content(path, broken)
            if isinstance(piece, Server):
                entry, odd = _under(content, (*piece.keys, NAME))
                if entry is not None and is_server(entry):
                    yield "", path, _words(entry)
                elif entry is not None:
                    taken.append((path, f"{'.'.join((*piece.keys, NAME))} is not Postroom's"))
                elif odd:
                    taken.append((path, f"{odd} is no object"))
            else:
                taken.extend((path, what) for what in _misshapen(content))
                for entry in _hook_entries(content):
                    if word := hook_word(entry, piece.client):
                        yield word, path, _words(entry)


def _under(content: Any, keys: tuple[str, ...]) -> tuple[Any, str]:
    """What stands under some keys; else None, and what on the way can hold nothing, if anything cannot."""
    here = content
    for at, key in enumerate(keys):
        if not isinstance(here, dict):
            return None, ".".join(keys[:at]) or "what stands there"
        here = cast("dict[str, Any]", here).get(key)
        if here is None:
            return None, ""
    return here, ""


def _misshapen(content: Any) -> Iterator[str]:
    """What stands where hooks would, and can hold none."""
    hooks, odd = _under(content, ("hooks",))
    if odd or (hooks is not None and not isinstance(hooks, dict)):
        yield f"{odd or 'hooks'} is no object"
    elif hooks is not None:
        groups = cast("dict[str, object]", hooks).items()
        yield from (f"hooks.{event} is no array" for event, each in groups if not isinstance(each, list))


def _trusted(row: Program) -> trust.Trust:
    """What Codex trusts of our hooks."""
    config = next(_content(piece.paths[0], []) for piece in row.pieces if isinstance(piece, Server))
    path = next(piece.paths[0] for piece in row.pieces if isinstance(piece, Hooks))
    return trust.look(path, _content(path, []), config)


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
    return Command(what=what, file=file, gone=gone, other=other, version=postroom_version(other))


def own_script() -> str:
    """The command of this installation."""
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.executable or "")), "postroom")
    return beside if os.path.isfile(beside) else os.path.abspath(sys.argv[0])


def _off(row: Program) -> Iterator[tuple[str, str]]:
    """What switches the hooks of a client off."""
    for path, keys, value in row.off:
        here: Any = _content(path, [])
        for key in keys:
            here = cast("dict[str, Any]", here).get(key) if isinstance(here, dict) else None
        if here is value:
            yield path, f"{'.'.join(keys)} is {json.dumps(value)}"


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
