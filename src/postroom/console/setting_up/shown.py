"""What `setup` and `unsetup` print: diffs, snippets, and the document of `--json` (10.15, 10.37).

A diff shows what is changed, with a line around it for the eye. What stands there besides is another program's, and may
hold keys and tokens: values that look like one are shown as `…`, and long lines are cut. The files themselves are
written from their own bytes, not from what is shown.
"""

from __future__ import annotations

import re
from difflib import unified_diff
from typing import TYPE_CHECKING, Any

from postroom.console.setting_up import splice, toml
from postroom.console.setting_up.pieces import NAME, Hooks, Program, Publishing
from postroom.core.scrub import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.console.setting_up.files import Edit

_CONTEXT = 1
"""Lines around a change that are shown."""

_SHOWN = 400
"""Characters of a line that are shown; minified files have but one."""

_NAMED = re.compile(
    r'(?i)((?:key|token|secret|passw|auth|credential|cookie|bearer)[\w.-]*["\']?\s*[:=]\s*)("(?:[^"\\]|\\.)*"|\'[^\']*\'|[^\s,}"\']+)'
)
_ADDRESS = re.compile(r"(://[^\s/@:\"']*:)[^\s/@\"']+(?=@)")
_LONG = re.compile(r"(?<![\w./-])(?=[\w+=~.-]*\d)[\w+=~.-]{16,}(?![\w./-])")


def change(edit: Edit) -> str:
    """What an edit does to its file, in one word: `none`, `create`, `edit` or `remove`."""
    if edit.data == edit.file.data:
        return "none"
    return "create" if edit.file.data is None else "remove" if edit.data is None else "edit"


def summary(program: Program, edit: Edit) -> str:
    """What would become of one file, in a line: what it is about, and how many lines come and go."""
    about: list[str] = []
    for piece in program.pieces:
        if edit.file.path in piece.paths:
            if isinstance(piece, Hooks):
                about.append(f"{len(piece.hooks)} hooks")
            elif isinstance(piece, Publishing):
                about.append(f"Postroom's own settings, {program.title} in `publishTo`")
            else:
                about.append("the MCP server")
    word = {"none": "leaves", "create": "makes", "edit": "changes", "remove": "removes"}[change(edit)]
    rows = diff(edit).splitlines()[2:]
    more, fewer = (sum(row.startswith(sign) for row in rows) for sign in "+-")
    return visible(f"{word} {edit.file.path}: {' and '.join(about)} (lines: +{more} -{fewer})")


def diff(edit: Edit) -> str:
    """The change of one file as a unified diff; empty where there is none."""
    before, after = _lines(edit.file.data), _lines(edit.data)
    names = ("/dev/null" if edit.file.data is None else edit.file.path, edit.file.path)
    rows = unified_diff(
        before, after, names[0], names[1] if edit.data is not None else "/dev/null", n=_CONTEXT, lineterm=""
    )
    shown: list[str] = []
    for at, row in enumerate(rows):
        lines = (row if at < 2 else veiled(row)).rstrip("\r").split("\n")
        shown += map(visible, lines)
    return "".join(f"{row}\n" for row in shown)


def _lines(data: bytes | None) -> list[str]:
    lines = (data or b"").decode().split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
    return lines if lines[-1] else lines[:-1]


def veiled(line: str) -> str:
    """A line without what looks like a secret, and not too long."""
    line = _NAMED.sub(r'\1"…"', line)
    line = _ADDRESS.sub(r"\1…", line)
    line = _LONG.sub("…", line)
    half = _SHOWN // 2
    return line if len(line) <= _SHOWN else f"{line[:half]} … {line[-half:]}"


def snippets(program: Program) -> list[tuple[str | None, str]]:
    """What goes into each file, as (path, text); the path is None where the file is not known."""
    found: dict[str | None, str] = {}
    for piece in program.pieces:
        path = piece.paths[0] if piece.paths else None
        before = found.get(path)
        if isinstance(piece, Hooks):
            for hook in piece.hooks:
                before = _more(before, ("hooks", hook.event), None, piece.entry(hook))
            if piece.version:
                before = _more(before, (), "version", piece.version)
        elif isinstance(piece, Publishing):
            before = _more(before, ("publishTo",), None, piece.word)
        elif path is not None and path.endswith(".toml"):
            before = toml.new_text((*piece.keys, NAME), piece.entry)
        else:
            before = _more(before, piece.keys, NAME, piece.entry)
        found[path] = before or ""
    return list(found.items())


def _more(text: str | None, path: Sequence[str], key: str | None, value: object) -> str:
    return splice.new_text(path, key, value) if text is None else splice.add(text, path, key, value)


def document(
    program: Program,
    edits: Sequence[Edit],
    backups: Sequence[str | None],
    *,
    written: bool,
    notes: Sequence[str],
    follow: Sequence[str],
) -> dict[str, Any]:
    """The document of `setup` and `unsetup` (10.37)."""
    return {
        "client": program.name,
        "written": written,
        "files": [
            {"path": edit.file.path, "change": change(edit), "diff": diff(edit), "backup": backup}
            for edit, backup in zip(edits, backups, strict=True)
        ],
        "snippets": [{"path": path, "text": text} for path, text in snippets(program)],
        "notes": list(notes),
        "next": list(follow),
    }
