"""Puts a table at the end of a TOML text, and takes it out again so that what is left is the text from before.

The table goes behind everything else, with a blank line before it; where the text did not end with a line break, it
does not afterwards. That tells what there was before. Whether a text is TOML, and what it says, is for `tomllib` to
say, before and after; here only the spans of headers and pairs are looked for, in what has passed.

It never writes anything anew. What it cannot do safely it refuses with `Broken`: a table that is written in another
way, as `postroom = {…}` below another header.

What is weak: comments on lines of their own between the pairs of the table go with it.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from postroom.console.setting_up.jsonc import MARK, place
from postroom.console.setting_up.refused import Broken
from postroom.console.setting_up.splice import break_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SKIP = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*)*")
_PIECE = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\r\n]|\\.)*"'
    r"|'[^'\r\n]*'"
    r"|\#[^\r\n]*"
    r"|.",
    re.DOTALL,
)
TOO_DEEP = "it lies too deep in itself"
"""Said of what no interpreter can hold."""

_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One `name = value`: its name, and where its value begins and ends."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table with a header.

    Attributes:
        names: the path in its header.
        start: where the header begins.
        end: behind its last pair, or its header.
        pairs: what stands in it.
    """

    names: tuple[str, ...]
    start: int
    end: int
    pairs: tuple[Pair, ...]


def read(text: str) -> dict[str, Any]:
    """What a text says. Raises Broken."""
    try:
        return tomllib.loads(text.removeprefix(MARK))
    except tomllib.TOMLDecodeError as error:
        found = _PLACE.search(str(error))
        line, column = (int(found[1]), int(found[2])) if found else place(text, len(text))
        raise Broken(line, column, _PLACE.sub("", str(error)).strip().lower()) from None
    except RecursionError:
        raise Broken(1, 1, TOO_DEEP) from None


def new_text(names: Sequence[str], pairs: Mapping[str, object]) -> str:
    """The text of a new file with one table in it."""
    return _rendered(names, pairs, "\n") + "\n"


def add(text: str, names: Sequence[str], pairs: Mapping[str, object]) -> str:
    """Puts a table at the end of a text in which it is not. Raises Broken where it cannot be there."""
    line_break = break_of(text)
    written = _rendered(names, pairs, line_break)
    ended = text.endswith(("\n", "\r\n"))
    if ended:
        after = text + line_break + written + line_break
    else:
        after = text + (line_break * 2 if text else "") + written
    outer, inner = read(text), dict(pairs)
    table: object = outer
    for name in names[:-1]:
        table = cast("dict[str, object]", table).setdefault(name, {})
        if not isinstance(table, dict):
            line, column = place(text, max(0, text.find(name)))
            raise Broken(line, column, f"{name} is no table")
    cast("dict[str, object]", table)[names[-1]] = inner
    try:
        fits = read(after) == outer
    except Broken:
        fits = False
    if not fits:
        line, column = place(text, len(text))
        raise Broken(line, column, f"a table [{'.'.join(names)}] cannot be put behind what is there")
    return after


def update(text: str, names: tuple[str, ...], pairs: Mapping[str, object]) -> str:
    """Changes values in a table, and adds the pairs that it lacks; the rest of it stays."""
    for name, value in pairs.items():
        table = _table(text, names)
        found = next((pair for pair in table.pairs if pair.name == name), None)
        if found is None:
            written = f"{break_of(text)}{name} = {_value(value)}"
            text = text[: table.end] + written + text[table.end :]
        else:
            text = text[: found.start] + _value(value) + text[found.end :]
    return text


def remove(text: str, names: tuple[str, ...]) -> str | None:
    """Takes a table out, and all tables below it. Returns the new text; None where it was all of a new file."""
    ended = True
    for table in reversed([one for one in tables(text) if one.names[: len(names)] == names]):
        start = text.rfind("\n", 0, table.start) + 1
        if start == 0 and text.startswith(MARK):
            start = len(MARK)
        end = text.find("\n", table.end)
        ended = end >= 0
        before, after = text[:start], text[end + 1 :] if ended else ""
        before = _less_one_break(before, only_blank=True)
        text = (before if ended else _less_one_break(before)) + after
    if names[-1] in _below(read(text), names[:-1]):
        _table(text, names)  # which says that it is written in another way
    return text if text or not ended else None


def where(text: str, names: tuple[str, ...]) -> int:
    """Where a table's header begins; the end of the text where it has none of its own."""
    return next((one.start for one in tables(text) if one.names == names), len(text))


def tables(text: str) -> list[Table]:
    """The tables with a header, in order; the text has passed `read`."""
    found: list[Table] = []
    header: tuple[int, int, tuple[str, ...]] | None = None
    pairs: list[Pair] = []

    def close() -> None:
        if header is not None:
            end = pairs[-1].end if pairs else header[1]
            found.append(Table(names=header[2], start=header[0], end=end, pairs=tuple(pairs)))

    at = len(MARK) if text.startswith(MARK) else 0
    while (at := cast("re.Match[str]", _SKIP.match(text, at)).end()) < len(text):
        if text[at] == "[":
            close()
            end = _until(text, at, "\r\n")
            pairs = []
            header = (at, end, _names(text[at:end].strip("[] \t")))
        else:
            equals = _until(text, at, "=")
            value = cast("re.Match[str]", re.compile(r"=[ \t]*").match(text, equals)).end()
            end = _until(text, value, "\r\n")
            name = ".".join(_names(text[at:equals].strip()))
            pairs.append(Pair(name=name, start=value, end=end))
        at = end
    close()
    return found


def _until(text: str, at: int, stops: str) -> int:
    """Where one of these characters stands, outside of strings, comments and brackets; less the blanks before it."""
    depth, last = 0, at
    for piece in _pieces(text, at):
        sign = piece[0]
        if depth == 0 and sign in stops:
            return last if stops != "=" else piece.start()
        if sign[0] == "#" and depth == 0:
            return last
        depth += (sign in "[{") - (sign in "]}")
        if not sign.isspace():
            last = piece.end()
    return last


def _pieces(text: str, at: int) -> Iterator[re.Match[str]]:
    return _PIECE.finditer(text, at)


def _names(written: str) -> tuple[str, ...]:
    """The path that a dotted name writes, quoted or not."""
    found: list[str] = []
    here: Any = tomllib.loads(f"{written} = 0")
    while isinstance(here, dict):
        name, here = next(iter(cast("dict[str, Any]", here).items()))
        found.append(name)
    return tuple(found)


def _table(text: str, names: tuple[str, ...]) -> Table:
    """The table with this header. Raises Broken where it is written in another way."""
    found = next((one for one in tables(text) if one.names == names), None)
    if found is None:
        at = text.find(names[-1])
        line, column = place(text, at if at >= 0 else len(text))
        raise Broken(
            line, column, f"{'.'.join(names)} is not written as a table [{'.'.join(names)}] of its own"
        )
    return found


def _below(content: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    here: Any = content
    for name in names:
        here = cast("dict[str, Any]", here).get(name) if isinstance(here, dict) else None
    return cast("dict[str, Any]", here) if isinstance(here, dict) else {}


def _less_one_break(text: str, *, only_blank: bool = False) -> str:
    """A text without the line break at its end; if `only_blank`, only one that ends a line with nothing on it."""
    for line_break in ("\r\n", "\n"):
        if text.endswith(line_break):
            shorter = text[: -len(line_break)]
            return shorter if not only_blank or shorter.endswith("\n") else text
    return text


def _rendered(names: Sequence[str], pairs: Mapping[str, object], line_break: str) -> str:
    lines = [f"[{'.'.join(names)}]", *(f"{name} = {_value(value)}" for name, value in pairs.items())]
    return line_break.join(lines)


def _value(value: object) -> str:
    """A text, a number, or a list of texts, as TOML writes it: as JSON does, DEL apart."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
