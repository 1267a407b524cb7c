"""Puts a value into a JSON text, and takes it out again so that what is left is the text from before, to the byte.

Nothing is ever written anew: an edit puts in a few characters, or cuts some out. What was there before is known from
the text alone, without a record: it is told by how many line breaks stand in front of the first value of an object or
array. That is the table.

| line breaks | what there was before | what taking out the last value leaves |
|---|---|---|
| 0, 1 | nothing: the object or array was made for the value | nothing: it goes with it, and a file that is all ours too |
| 2 | an empty one, `{}` | `{}` |
| 3 | an empty one with white space in it | that white space |
| 4 or more (a whole text) | a text without a value | that text |

A value goes behind the last one, and behind the comments on that one's line; the comma that this takes goes again with
it. A trailing comma stays one.

What is weak: a program that writes the text anew takes the marks away. Then an object or array that had been empty
before goes with what was put into it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

from postroom.console.setting_up.jsonc import MARK, Item, Node, behind_comments, comments, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

Path = tuple["str | int", ...]
"""Keys and indices, from the outermost value to one in it."""

_MADE, _WAS_EMPTY, _WAS_BLANK, _WAS_NOTHING = 1, 2, 3, 4
"""Line breaks before the first value: see the table."""

_UNIT = "  "
"""How far a line is set in where the text does not show it."""


class WrongKind(Exception):
    """Something stands in the way: no object, or no array, where one is needed.

    Attributes:
        at: where it begins.
        keys: the path to it.
        needed: what it should be.
    """

    def __init__(self, at: int, keys: Path, needed: str) -> None:
        super().__init__(f"{'.'.join(map(str, keys))} is no {needed}")
        self.at = at
        self.keys = keys
        self.needed = needed


# ---------------------------------------------------------------------------------------- putting in


def new_text(path: Sequence[str], key: str | None, value: object) -> str:
    """The text of a new file with one value in it; `path`, `key` and `value` are those of `add`."""
    return _rendered(_nested(path, key, value), "", _UNIT, "\n") + "\n"


def add(text: str, path: Sequence[str], key: str | None, value: object) -> str:
    """Puts a value into a text.

    Args:
        text: the whole text; it parses.
        path: the names of the objects to go through; missing ones are made. The last is an array if `key` is None.
        key: the name to put it under; it is not there yet. None: at the end of the array.
        value: what to put in. A list of plain values is written on one line, a tuple on several.

    Returns the new text. Raises WrongKind.
    """
    root = parse(text)
    line_break = break_of(text)
    if root is None:
        at = len(MARK) if text.startswith(MARK) else 0
        inside = _rendered(_nested(path, key, value), "", _UNIT, line_break)
        return text[:at] + "{" + line_break * (_WAS_NOTHING - 1) + inside[1:] + text[at:]
    _check(root, (), "object" if path or key is not None else "array")
    here, done = root, 0
    while done < len(path) and (found := here.item(path[done])):
        here, done = found.node, done + 1
        _check(here, tuple(path[:done]), "array" if done == len(path) and key is None else "object")
    rest = path[done:]
    name = rest[0] if rest else key
    inner = _nested(rest[1:], key, value) if rest else value
    unit = _unit(text, root)
    indent = _indent(text, here, unit)
    entry = _rendered(inner, indent, unit, line_break)
    return _put(text, here, (f"{_quoted(name)}: " if name is not None else "") + entry, indent, line_break)


def replace(text: str, node: Node, value: object) -> str:
    """Puts another value in a value's place."""
    root = parse(text)
    unit = _unit(text, root) if root else _UNIT
    written = _rendered(value, _margin(text, node.start), unit, break_of(text))
    return text[: node.start] + written + text[node.end :]


def break_of(text: str) -> str:
    """How the lines of a text end, as its first line shows."""
    found = re.search(r"\r?\n", text)
    return found[0] if found else "\n"


def _check(node: Node, keys: Path, needed: str) -> None:
    if node.kind != needed:
        raise WrongKind(node.start, keys, needed)


def _nested(path: Sequence[str], key: str | None, value: object) -> object:
    """What has to be made: objects in each other, around an array or a member."""
    inner: object = (value,) if key is None else {key: value}
    for name in reversed(path):
        inner = {name: inner}
    return inner


def _put(text: str, here: Node, entry: str, indent: str, line_break: str) -> str:
    """Puts an entry behind what an object or array holds."""
    if here.items:
        last = here.items[-1]
        if last.comma < 0:
            text = text[: last.node.end] + "," + text[last.node.end :]
            at, behind = behind_comments(text, last.node.end + 1), ""
        else:
            at, behind = behind_comments(text, last.comma + 1), ","
        return f"{text[:at]}{line_break}{indent}{entry}{behind}{text[at:]}"
    start, end = here.start + 1, here.end - 1
    between = text[start:end]
    if between.strip():
        at = behind_comments(text, start)
        return f"{text[:at]}{line_break}{indent}{entry}{text[at:]}"
    breaks = line_break * (_WAS_BLANK if between else _WAS_EMPTY)
    behind = "" if between else line_break + _margin(text, here.start)
    return f"{text[:start]}{breaks}{indent}{entry}{behind}{text[start:]}"


def _unit(text: str, root: Node) -> str:
    """How far the members of the outermost value are set in."""
    first = root.items[0].start if root.items else 0
    return _own_line(text, first) or _UNIT


def _own_line(text: str, at: int) -> str | None:
    """The white space before a position, where nothing else stands before it on its line."""
    before = text[max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1 : at]
    return before if at and not before.strip(" \t") else None


def _margin(text: str, at: int) -> str:
    """The white space at the beginning of the line that a position is on."""
    line = text[max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indent(text: str, here: Node, unit: str) -> str:
    """How far a new value in an object or array is set in."""
    found = _own_line(text, here.items[0].start) if here.items else None
    return found if found is not None else _margin(text, here.start) + unit


def _rendered(value: object, indent: str, unit: str, line_break: str) -> str:
    inner = indent + unit
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        lines = [
            f"{inner}{_quoted(key)}: {_rendered(one, inner, unit, line_break)}"
            for key, one in members.items()
        ]
        brackets = "{}"
    elif isinstance(value, tuple):
        elements = cast("tuple[object, ...]", value)
        lines = [inner + _rendered(one, inner, unit, line_break) for one in elements]
        brackets = "[]"
    elif isinstance(value, list):
        elements = cast("list[object]", value)
        if any(isinstance(one, dict | list | tuple) for one in elements):
            return _rendered(tuple(elements), indent, unit, line_break)
        return "[" + ", ".join(map(_quoted, elements)) + "]"
    else:
        return _quoted(value)
    if not lines:
        return brackets
    body = f",{line_break}".join(lines)
    return f"{brackets[0]}{line_break}{body}{line_break}{indent}{brackets[1]}"


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------------------------------- taking out


def remove(text: str, path: Path, companion: tuple[str, Any] | None = None) -> str | None:
    """Takes a value out of a text, and with it the objects and arrays that were made for it.

    Args:
        text: the whole text; it parses, and has a value there.
        path: the way to the value.
        companion: a member of the outermost object that was put in behind this one's, and goes with it.

    Returns the new text; None where nothing is left that was there before.
    """
    root = cast("Node", parse(text))
    above = [cast("Node", root.node(*path[:depth])) for depth in range(len(path))]
    depth = len(path) - 1
    while depth > 0 and _made_for(text, above[depth]):
        depth -= 1
    item = cast("Item", above[depth].item(path[depth]))
    if depth == 0:
        if companion is not None and _follows(root, item, companion):
            without = cast("str", remove(text, (companion[0],)))
            return remove(without, path)
        if len(root.items) == 1 and not _remarks(text, root):
            return _without_all(text, root)
    return _cut(text, above[depth], item)


def _made_for(text: str, here: Node) -> bool:
    """Whether an object or array was made for the one value that it holds: see the table."""
    return len(here.items) == 1 and not _remarks(text, here) and _breaks(text, here) <= _MADE


def _breaks(text: str, here: Node) -> int:
    return text.count("\n", here.start, here.items[0].start)


def _remarks(text: str, here: Node) -> bool:
    """Whether there are comments around the one value of an object or array."""
    (item,) = here.items
    after = text[item.node.end : here.end - 1].replace(",", "", item.comma >= 0)
    return bool(text[here.start + 1 : item.start].strip() or after.strip())


def _follows(root: Node, item: Item, companion: tuple[str, Any]) -> bool:
    last = root.items[-1]
    return len(root.items) > 1 and root.items[-2] == item and (last.key, last.node.value) == companion


def _without_all(text: str, root: Node) -> str | None:
    """What is left of a text once the one value in its outermost object or array is gone: see the table."""
    breaks = _breaks(text, root)
    before, after = text[: root.start], text[root.end :]
    if breaks >= _WAS_NOTHING:
        return before + after
    if breaks <= _MADE and not (before.removeprefix(MARK) + after).strip():
        return None
    (item,) = root.items
    end = item.comma + 1 if item.comma >= 0 else item.node.end
    between = text[end : root.end - 1] if breaks == _WAS_BLANK else ""
    return text[: root.start + 1] + between + text[root.end - 1 :]


def _cut(text: str, here: Node, item: Item) -> str:
    """Cuts one value out of an object or array, with the white space before it and the one comma that it took."""
    at = here.items.index(item)
    before = here.items[at - 1] if at else None
    from_ = here.start + 1 if before is None else max(before.node.end, before.comma + 1)
    start, to_end_of_line = from_, False
    for comment in comments(text, from_):
        if comment.start > item.start:
            break
        start, to_end_of_line = comment.end, comment.to_end_of_line
    parts = [(start, item.node.end)]
    if item.comma >= 0:
        parts.append((item.comma, item.comma + 1))
    elif before is not None:
        parts.append((before.comma, before.comma + 1))
    if len(here.items) == 1 and not _remarks(text, here) and _breaks(text, here) == _WAS_EMPTY:
        parts = [(here.start + 1, here.end - 1)]
    if to_end_of_line and text[parts[-1][1] if item.comma >= 0 else item.node.end :][:1] not in ("\r", "\n"):
        parts[0] = (
            start + len(break_of(text[start:])),
            item.node.end,
        )  # what follows is no part of the comment
    for first, last in sorted(parts, reverse=True):
        text = text[:first] + text[last:]
    return text
