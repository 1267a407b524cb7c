"""The examples of the documentation can be run, and its links lead somewhere.

Command lines are parsed with the project's own grammar. The first steps of the README and of first-steps.md, and
every whole Python program, are run for real, each in a private home.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from postroom import arguments, ask
from tests.desk import running, wait_until
from tests.pages import PAGES, ROOT, Fence, Page, page_of, spans
from tests.terminal import started_at_terminal

LINES = 200
"""A page that is read, and not looked up in, is no longer than this."""

LOOKED_UP = {"docs/commands.md", "docs/json.md", "docs/errors.md", "docs/clients.md"}

# ── examples ─────────────────────────────────────────────────────────────────────────────────────

LATER = frozenset("gateway device nats console top".split())
"""Commands that pages name as coming later."""


def typed_lines(fence: Fence) -> Iterator[str]:
    """The lines of a fence that a person would type."""
    lines = fence.text.replace("\\\n", " ").splitlines()
    for line in lines:
        if fence.language == "sh":
            yield line
        elif line.startswith("$ "):
            yield line[2:]


def commands_in(line: str) -> Iterator[list[str]]:
    """The commands of a shell line, as words, without redirections and assignments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if set(word) <= set(";|&"):
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)
            if words:
                yield words
            words = []
        elif set(word) <= set("<>"):
            skip = True
        elif skip:
            skip = False
        else:
            words.append(word)


@pytest.mark.parametrize("name", PAGES)
def test_every_command_line_is_one_that_the_command_takes(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for fence in page_of(name).fences:
        for line in typed_lines(fence):
            for words in commands_in(line):
                if words[0] == "make":
                    targets = [word for word in words[1:] if "=" not in word]
                    assert all(re.search(rf"(?m)^{re.escape(target)}:", makefile) for target in targets), line
                if words[0].rpartition("/")[2] == "postroom" and words[1:] not in (["--help"], ["--version"]):
                    _, rest = ask.split_session(words[1:])
                    try:
                        arguments.parse(rest)
                    except arguments.HelpAsked:
                        pass


@pytest.mark.parametrize("name", PAGES)
def test_a_command_that_is_named_exists_or_is_said_to_come(name: str) -> None:
    assert LATER.isdisjoint(arguments.COMMANDS)
    page = page_of(name)
    named = {found[1] for span in spans(page.prose) if (found := re.match(r"postroom ([a-z]+)", span))}
    assert named <= arguments.COMMANDS.keys() | LATER
    if named & LATER:
        assert re.search(r"not yet|not built|come later|comes later|come with|comes with", page.prose)


def test_the_readme_has_the_two_commands() -> None:
    lines = [line for fence in page_of("README.md").fences for line in typed_lines(fence)]
    words = [words for line in lines for words in commands_in(line)]
    assert ["make", "demo"] in words
    assert ["make", "test"] in words


@pytest.mark.parametrize("name", PAGES)
def test_python_examples_are_python_and_their_names_exist(name: str) -> None:
    for fence in page_of(name).fences:
        if fence.language != "python":
            continue
        compile(fence.text, f"{name}:{fence.line}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(ast.parse(fence.text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("postroom"):
                module = import_module(node.module or "")
                assert all(hasattr(module, alias.name) for alias in node.names), f"{name}:{fence.line}"


PROGRAMS = [
    (name, fence.line, fence.text)
    for name in PAGES
    for fence in page_of(name).fences
    if fence.language == "python" and fence.text.rstrip().endswith("asyncio.run(main())")
]
"""Whole programs, as against fragments."""


def test_there_are_whole_programs() -> None:
    assert {name for name, _, _ in PROGRAMS} >= {"README.md", "docs/library.md"}


@pytest.mark.parametrize(("name", "line", "program"), PROGRAMS, ids=lambda value: str(value)[:40])
def test_a_whole_program_runs(name: str, line: int, program: str, home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{name}:{line}"


# ── first steps, walked ──────────────────────────────────────────────────────────────────────────

_NOISE = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID"),
    (r"\[[0-9a-f]{6,64}\]", "[REF]"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r" +", " "),
)


def settled(text: str) -> str:
    """An output without what differs from one run to the next."""
    for pattern, word in _NOISE:
        text = re.sub(pattern, word, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def prints(expected: str, said: str) -> bool:
    """Whether an output is what a page says; `…` stands for anything, and lines of one instant may change places."""

    def like(one: str, other: str) -> bool:
        return bool(re.fullmatch(".*".join(map(re.escape, one.split("…"))), other, re.DOTALL))

    if like(expected, said):
        return True
    wanted, lines = expected.split("\n"), said.split("\n")
    return len(wanted) == len(lines) and all(
        any(like(one, line) for line in lines) and "TIME" in said for one in wanted
    )


def walk(name: str) -> Iterator[tuple[str, str]]:
    """Each command of a page's console fences, in their order, and what the page says it prints."""
    for fence in page_of(name).fences:
        if fence.language == "console":
            for step in re.split(r"(?m)^\$ ", fence.text)[1:]:
                command, _, printed = step.partition("\n")
                yield command, printed


@pytest.mark.parametrize("name", ["README.md", "docs/first-steps.md"])
def test_the_first_steps_can_be_walked(name: str, home: Path) -> None:
    """Every command, typed in a terminal, ends as the page says, in its order; MSG_ID is the id that was printed last."""
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PWD": str(home)}
    steps = list(walk(name))
    assert len(steps) > 5
    known = {"MSG_ID": "", "SESSION_ID": ""}
    pids: set[int] = set()
    try:
        for command, printed in steps:
            line = command
            for word, value in known.items():
                line = line.replace(word, value)
            with started_at_terminal("bash", "-c", f"exec 2>&1\n{line}", env=environ, cwd=home) as shell:
                out = shell.communicate(timeout=50)[0].decode()
            said = settled(out)
            if ids := re.findall(r"\bid ([0-9a-f-]{36})", out):
                known["MSG_ID"] = ids[-1]
            if ids := re.findall(r"\bsession +([0-9a-f-]{36})", out):
                known["SESSION_ID"] = ids[-1]
            pids |= {
                int(file.name.partition(".")[0]) for file in (home / "state/sessions").glob("[0-9]*.json")
            }
            assert prints(settled(printed), said), f"{name}: {command}\n{said}"
        wait_until(lambda: not any(map(running, pids)))  # the page closes what it opened
    finally:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


# ── the pages themselves ─────────────────────────────────────────────────────────────────────────


def slugs(page: Page) -> set[str]:
    """What the headings of a page can be linked by."""
    titles = (re.sub(r"[^\w\- ]", "", section.title.lower()) for section in page.sections)
    return {title.replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", PAGES)
def test_every_relative_link_leads_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page_of(name).prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), f"{name} links to {target}"
        if anchor:
            assert anchor in slugs(page_of(str(file.resolve().relative_to(ROOT)))), (
                f"{name} links to {target}"
            )


def test_the_map_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)#\s]+)\)", page_of("docs/index.md").prose))
    assert {Path(name).name for name in PAGES if name.startswith("docs/")} - {"index.md"} <= linked


@pytest.mark.parametrize("name", [name for name in PAGES if name not in LOOKED_UP])
def test_a_page_is_not_too_long(name: str) -> None:
    assert len((ROOT / name).read_text().splitlines()) <= LINES
