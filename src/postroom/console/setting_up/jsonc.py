"""Where everything stands in a JSON text: a tree of spans, for edits that leave every other byte alone.

Read is JSON with comments (`//`, `/* */`), trailing commas and a byte order mark, which is what the programs that it is
for read between them. Each value knows where it begins and ends, and each member where the comma behind it is. Values
are kept as they would be read; of a key that is there twice the last one counts.

It never writes, and never repairs: what is no such text is `Broken`, with line and column. Single quotes, keys without
quotes and other liberties are broken too.

What is weak: it holds the whole tree in memory, some fifty bytes for each byte of text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

from postroom.console.setting_up.refused import Broken

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "\ufeff"
"""A byte order mark, as it reads."""

DEEPEST = 200
"""How deep values may lie in each other: far more than a configuration needs, far less than Python's stack."""

_BLANK = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD = re.compile(r"-?\d[\d.eE+-]*|true|false|null")
_LINE_COMMENT = re.compile(r"//[^\r\n]*")
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_SPACES = re.compile(r"[ \t]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One value.

    Attributes:
        kind: what it is.
        start: where it begins.
        end: behind its last character.
        value: what it reads as, with all that is in it.
        items: what an object or array holds, in order.
    """

    kind: Literal["object", "array", "plain"]
    start: int
    end: int
    value: Any
    items: tuple[Item, ...] = ()

    def item(self, key: str | int) -> Item | None:
        """What stands under a key, or at an index; None where nothing does."""
        if isinstance(key, int):
            return self.items[key] if self.kind == "array" and 0 <= key < len(self.items) else None
        return next((one for one in reversed(self.items) if one.key == key), None)

    def node(self, *keys: str | int) -> Node | None:
        """The value at the end of a path; None where there is none."""
        here: Node = self
        for key in keys:
            item = here.item(key)
            if item is None:
                return None
            here = item.node
        return here


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One member of an object, or one element of an array.

    Attributes:
        key: the member's name; None for an element.
        start: where it begins, with its name.
        node: its value.
        comma: where the comma behind it stands; -1 where there is none.
    """

    key: str | None
    start: int
    node: Node
    comma: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """One comment: where it begins, where it ends, and whether it goes on to the end of its line."""

    start: int
    end: int
    to_end_of_line: bool


def parse(text: str) -> Node | None:
    """Reads a text whole.

    Args:
        text: all of it, with the byte order mark that it may have.

    Returns its value; None where there is none, only white space and comments. Raises Broken.
    """
    return _Reader(text).whole()


def comments(text: str, at: int) -> Iterator[Comment]:
    """The comments that stand from a position on, before anything else that is no white space."""
    while True:
        at = cast("re.Match[str]", _BLANK.match(text, at)).end()
        found = _LINE_COMMENT.match(text, at) or _BLOCK_COMMENT.match(text, at)
        if found is None:
            return
        yield Comment(start=found.start(), end=found.end(), to_end_of_line=found[0].startswith("//"))
        at = found.end()


def behind_comments(text: str, at: int) -> int:
    """The end of the comments that begin on the same line right behind a position; that position where none does."""
    here = at
    for comment in comments(text, at):
        if cast("re.Match[str]", _SPACES.match(text, here)).end() != comment.start:
            break
        here = comment.end
    return here


def place(text: str, at: int) -> tuple[int, int]:
    """The line and the column of a position, both from 1 on; a byte order mark takes no column."""
    before = text[:at].replace("\r\n", "\n").replace("\r", "\n")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return line, column - (line == 1 and text.startswith(MARK) and at > 0)


class _Reader:
    """Goes through a text once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith(MARK) else 0

    def whole(self) -> Node | None:
        self._skip()
        if self._at == len(self._text):
            return None
        node = self._value(0)
        self._skip()
        if self._at < len(self._text):
            self._fail("something stands behind the value")
        return node

    def _fail(self, reason: str, at: int | None = None) -> NoReturn:
        line, column = place(self._text, self._at if at is None else at)
        raise Broken(line, column, reason)

    def _skip(self) -> None:
        for comment in comments(self._text, self._at):
            self._at = comment.end
        self._at = cast("re.Match[str]", _BLANK.match(self._text, self._at)).end()
        if self._text.startswith("/*", self._at):
            self._fail("a comment does not end")

    def _value(self, depth: int) -> Node:
        if depth > DEEPEST:
            self._fail("it lies too deep in itself")
        sign = self._text[self._at : self._at + 1]
        if sign == "{":
            return self._many(depth, "object", "}")
        if sign == "[":
            return self._many(depth, "array", "]")
        if sign == '"':
            start = self._at
            return Node(kind="plain", start=start, value=self._string(), end=self._at)
        found = _WORD.match(self._text, self._at)
        if found is None:
            self._fail("the text ends too early" if not sign else "no value begins here")
        try:
            value = json.loads(found[0])
        except ValueError:
            self._fail("this is no number")
        self._at = found.end()
        return Node(kind="plain", start=found.start(), end=found.end(), value=value)

    def _string(self) -> str:
        found = _STRING.match(self._text, self._at)
        if found is None:
            self._fail("a string does not end on its line, or holds a control character")
        try:
            value: str = json.loads(found[0])
        except ValueError:
            self._fail("a string holds an escape that there is not")
        self._at = found.end()
        return value

    def _many(self, depth: int, kind: Literal["object", "array"], close: str) -> Node:
        start = self._at
        self._at += 1
        items: list[Item] = []
        while True:
            self._skip()
            if self._text.startswith(close, self._at):
                break
            if self._at == len(self._text):
                self._fail(f"the {kind} that begins here does not end", start)
            if items and items[-1].comma < 0:
                self._fail("a comma is missing")
            items.append(self._item(depth, kind))
        self._at += 1
        if kind == "object":
            value: Any = {cast("str", one.key): one.node.value for one in items}
        else:
            value = [one.node.value for one in items]
        return Node(kind=kind, start=start, end=self._at, value=value, items=tuple(items))

    def _item(self, depth: int, kind: Literal["object", "array"]) -> Item:
        start, key = self._at, None
        if kind == "object":
            if not self._text.startswith('"', self._at):
                self._fail("a name in double quotes is missing")
            key = self._string()
            self._skip()
            if not self._text.startswith(":", self._at):
                self._fail("a colon is missing")
            self._at += 1
            self._skip()
        node = self._value(depth + 1)
        self._skip()
        comma = self._at if self._text.startswith(",", self._at) else -1
        self._at += comma >= 0
        return Item(key=key, start=start, node=node, comma=comma)
