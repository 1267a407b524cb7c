"""What `setup` and `unsetup` would do to which file: decided here, written by `files`, shown by `shown` (09.17).

Setting up, for each piece of a program's row:
 1. our entry is there and right: it stays;
 2. an entry of ours is there, of another version or place: its command is brought up to date, the rest of it stays;
 3. somebody else's stands under our name: refused, with its place;
 4. none is there: it is put in behind what is.
Taking out: every entry that runs a Postroom goes, wherever it was moved to in its file; somebody else's stays.

What is ours is told by what it runs, so no record is needed. It never writes, and never touches what decides about
permissions.

How it fails: `Refused` for the first file that cannot be read or understood. Then nothing is written in any.

What is weak: a hook that was wrapped into another command line is taken for ours and put right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from postroom.console.setting_up import files, jsonc, splice, toml
from postroom.console.setting_up.files import Edit, File
from postroom.console.setting_up.pieces import (
    NAME,
    Hook,
    Hooks,
    Piece,
    Program,
    Publishing,
    Server,
    hook_word,
    is_server,
)
from postroom.console.setting_up.refused import Broken, Refused
from postroom.state.scopes import Senseless, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from postroom.console.setting_up.jsonc import Node
    from postroom.console.setting_up.splice import Path

PUBLISH = "publishTo"
"""The key of Postroom's settings that says which programs see its sessions (09.9)."""

ENFORCED = ("command", "args")
"""What an entry of ours must say; the rest is the user's to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be done.

    Attributes:
        edits: each file of the program with what it shall be; one that stays as it is has the same data.
        notes: sentences about what was found.
    """

    edits: tuple[Edit, ...]
    notes: tuple[str, ...]

    @property
    def changes(self) -> tuple[Edit, ...]:
        """The edits that change something."""
        return tuple(edit for edit in self.edits if edit.data != edit.file.data)


def setting_up(program: Program) -> Plan:
    """Plans to put everything in that a program's row has. Raises Refused."""
    drafts = _Drafts()
    for piece in program.pieces:
        drafts.change(drafts.chosen(piece), _putting_in(piece))
    notes = [
        f"{'.'.join(keys)} in {path} switches hooks off: until you change that, none runs."
        for path, keys, value in program.off
        if drafts.says(path, keys) is value
    ]
    return Plan(edits=drafts.edits(), notes=tuple(notes))


def taking_out(program: Program) -> Plan:
    """Plans to take everything out that is ours. Raises Refused."""
    drafts = _Drafts()
    notes: list[str] = []
    for piece in reversed(program.pieces):
        for path in piece.paths:
            drafts.change(path, _taking_out(piece, path, notes))
    return Plan(edits=drafts.edits(), notes=tuple(notes))


# ---------------------------------------------------------------------------------------- files as texts


class _Drafts:
    """The files of one program, read once, with what they shall be."""

    def __init__(self) -> None:
        self._files: dict[str, File] = {}
        self._texts: dict[str, str | None] = {}

    def _text(self, path: str) -> str | None:
        if path not in self._files:
            file = files.read(path)
            self._files[path] = file
            try:
                self._texts[path] = None if file.data is None else file.data.decode()
            except UnicodeDecodeError as error:
                before = error.object[: error.start].decode()
                raise _broken(path, Broken(*jsonc.place(before, len(before)), "it is not UTF-8")) from None
        return self._texts[path]

    def chosen(self, piece: Piece) -> str:
        """The file that a piece goes into: the first that is there, else the first."""
        return next((path for path in piece.paths if self._text(path) is not None), piece.paths[0])

    def change(self, path: str, make: Callable[[str | None], str | None]) -> None:
        """Has a file's text changed; what goes wrong there names the file."""
        text = self._text(path)
        try:
            after = make(text)
            if after is not None and after != text:
                _content(path, after)
        except Broken as error:
            raise _broken(path, error) from None
        except RecursionError:  # read, and too deep to be compared
            raise _broken(path, Broken(1, 1, toml.TOO_DEEP)) from None
        except splice.WrongKind as error:
            what = ".".join(map(str, error.keys)) or "what stands here"
            reason = f"{what} is no {error.needed}"
            raise _broken(path, Broken(*jsonc.place(text or "", error.at), reason)) from None
        self._texts[path] = after

    def says(self, path: str, keys: tuple[str, ...]) -> object:
        """What a file says under some keys; None where nothing."""
        text = self._text(path)
        here: Any = _content(path, text) if text else None
        for key in keys:
            here = cast("dict[str, Any]", here).get(key) if isinstance(here, dict) else None
        return here

    def edits(self) -> tuple[Edit, ...]:
        found: list[Edit] = []
        for path, file in self._files.items():
            text = self._texts[path]
            found.append(Edit(file=file, data=None if text is None else text.encode()))
        return tuple(found)


def _content(path: str, text: str) -> object:
    """What a text says. Raises Broken."""
    if path.endswith(".toml"):
        return toml.read(text)
    root = jsonc.parse(text)
    return root.value if root else None


def _broken(path: str, error: Broken) -> Refused:
    return Refused(
        f"{path}, line {error.line}, column {error.column}: {error.reason}. Nothing is changed, in any file.",
        "Mend that and run the command again.",
    )


def _stranger(at: tuple[int, int], keys: tuple[str, ...]) -> Broken:
    return Broken(*at, f"{'.'.join(keys)} is not Postroom's: take it away, or call it otherwise")


# ---------------------------------------------------------------------------------------- putting in


def _putting_in(piece: Piece) -> Callable[[str | None], str | None]:
    if isinstance(piece, Hooks):
        return lambda text: _with_hooks(text, piece)
    if isinstance(piece, Publishing):
        return lambda text: _with_publishing(text, piece)
    if piece.paths[0].endswith(".toml"):
        return lambda text: _with_table(text, piece)
    return lambda text: _with_server(text, piece)


def _with_server(text: str | None, piece: Server) -> str:
    if text is None:
        return splice.new_text(piece.keys, NAME, piece.entry)
    root = jsonc.parse(text)
    found = root.node(*piece.keys, NAME) if root else None
    if found is None:
        return splice.add(text, piece.keys, NAME, piece.entry)
    keys = (*piece.keys, NAME)
    if not is_server(found.value):
        raise _stranger(jsonc.place(text, found.start), keys)
    for name in ENFORCED:
        if name in piece.entry:
            text = _set(text, keys, name, piece.entry[name])
    return text


def _set(text: str, keys: Path, name: str, value: object) -> str:
    """Gives a member of an object this value, and leaves it alone where it has it."""
    node = _node(text, *keys, name)
    if node is None:
        return splice.add(text, cast("tuple[str, ...]", keys), name, value)
    return text if node.value == value else splice.replace(text, node, value)


def _node(text: str, *keys: str | int) -> Node | None:
    root = jsonc.parse(text)
    return root.node(*keys) if root else None


def _with_table(text: str | None, piece: Server) -> str:
    names = (*piece.keys, NAME)
    if text is None:
        return toml.new_text(names, piece.entry)
    content: Any = toml.read(text)
    for name in names:
        content = cast("dict[str, Any]", content).get(name) if isinstance(content, dict) else None
    if content is None:
        return toml.add(text, names, piece.entry)
    if not is_server(content):
        raise _stranger(jsonc.place(text, toml.where(text, names)), names)
    wrong = {name: piece.entry[name] for name in ENFORCED if content.get(name) != piece.entry[name]}
    return toml.update(text, names, wrong)


def _with_hooks(text: str | None, piece: Hooks) -> str:
    own = text is None or _node(text, "hooks") is None
    for hook in piece.hooks:
        if text is None:
            text = splice.new_text(("hooks", hook.event), None, piece.entry(hook))
            continue
        found = next(
            (path for path, at, word in _hooks(text, piece) if (at, word) == (hook.event, hook.word)), None
        )
        if found is None:
            text = splice.add(text, ("hooks", hook.event), None, piece.entry(hook))
        else:
            text = _renewed(text, found, piece, hook)
    for path in _strays(text or "", piece):
        text = splice.remove(text or "", path)
    text = text or ""
    if piece.version and own and _node(text, "version") is None:
        text = splice.add(text, (), "version", piece.version)
    return text


def _renewed(text: str, path: Path, piece: Hooks, hook: Hook) -> str:
    """A hook of ours, put right: its command, and nothing else of it."""
    entry = cast("Node", _node(text, *path))
    line = piece.command.hook(piece.client, hook.word)
    if entry.value["command"] == line and not entry.value.get("args"):
        return text
    if entry.value.get("args"):  # it was told word by word, and is told as a line now
        text = cast("str", splice.remove(text, (*path, "args")))
    return splice.replace(text, cast("Node", _node(text, *path, "command")), line)


def _strays(text: str, piece: Hooks) -> list[Path]:
    """Hooks of ours that this version does not know, or has twice; last first."""
    wanted = {(hook.event, hook.word) for hook in piece.hooks}
    found: list[Path] = []
    for path, event, word in _hooks(text, piece):
        if (event, word) not in wanted:
            found.append(_whole(text, path))
        wanted.discard((event, word))
    return found[::-1]


def _with_publishing(text: str | None, piece: Publishing) -> str:
    if text is None:
        return splice.new_text((PUBLISH,), None, piece.word)
    if text.removeprefix(jsonc.MARK).strip():
        _check_settings(text)
    node = _node(text, PUBLISH)
    if node is not None and node.kind == "array" and piece.word in node.value:
        return text
    return splice.add(text, (PUBLISH,), None, piece.word)


def _check_settings(text: str) -> None:
    """Postroom's own settings are read more strictly than other programs' files. Raises Broken."""
    jsonc.parse(text)
    try:
        parsed(text.encode())
    except Senseless as error:
        raise Broken(1, 1, str(error)) from None


# ---------------------------------------------------------------------------------------- taking out


def _taking_out(piece: Piece, path: str, notes: list[str]) -> Callable[[str | None], str | None]:
    if isinstance(piece, Hooks):
        return lambda text: text and _without_hooks(text, piece)
    if isinstance(piece, Publishing):
        return lambda text: text and _without_publishing(text, piece, path, notes)
    if path.endswith(".toml"):
        return lambda text: text and _without_table(text, piece, path, notes)
    return lambda text: text and _without_server(text, piece, path, notes)


def _left(path: str, at: tuple[int, int], keys: tuple[str, ...]) -> str:
    return f"{path}, line {at[0]}, column {at[1]}: {'.'.join(keys)} is not Postroom's, and stays."


def _without_server(text: str, piece: Server, path: str, notes: list[str]) -> str | None:
    keys = (*piece.keys, NAME)
    found = _node(text, *keys)
    if found is None:
        return text
    if not is_server(found.value):
        notes.append(_left(path, jsonc.place(text, found.start), keys))
        return text
    return splice.remove(text, keys)


def _without_table(text: str, piece: Server, path: str, notes: list[str]) -> str | None:
    names = (*piece.keys, NAME)
    content: Any = toml.read(text)
    for name in names:
        content = cast("dict[str, Any]", content).get(name) if isinstance(content, dict) else None
    if content is None:
        return text
    if not is_server(content):
        notes.append(_left(path, jsonc.place(text, toml.where(text, names)), names))
        return text
    return toml.remove(text, names)


def _without_hooks(text: str, piece: Hooks) -> str | None:
    companion = ("version", piece.version) if piece.version else None
    after: str | None = text
    while after and (found := list(_hooks(after, piece))):
        after = splice.remove(after, _whole(after, found[-1][0]), companion)
    return after


def _hooks(text: str, piece: Hooks) -> Iterator[tuple[Path, str, str]]:
    """Every hook of ours in a text, in order: the way to it, its event, and the word in its command."""
    root = jsonc.parse(text)
    events = root.node("hooks") if root else None
    for event in events.items if events else ():
        for at, group in enumerate(event.node.items):
            path: Path = ("hooks", event.key or "", at)
            inner = group.node.node("hooks") if piece.grouped else None
            if inner is None:
                if word := hook_word(group.node.value, piece.client):
                    yield path, event.key or "", word
                continue
            for place, one in enumerate(inner.items):
                if word := hook_word(one.node.value, piece.client):
                    yield (*path, "hooks", place), event.key or "", word


def _whole(text: str, path: Path) -> Path:
    """The way to what goes with a hook: its group, where it is alone in it."""
    if len(path) > 3 and len(cast("Node", _node(text, *path[:4])).items) == 1:
        return path[:3]
    return path


def _without_publishing(text: str, piece: Publishing, path: str, notes: list[str]) -> str | None:
    node = _node(text, PUBLISH)
    if node is None or node.kind != "array" or piece.word not in node.value:
        return text
    at = cast("list[object]", node.value).index(piece.word)
    start = node.items[at].start
    if "\n" not in text[len(text[:start].rstrip()) : start]:
        line, column = jsonc.place(text, start)
        notes.append(
            f"{path}, line {line}, column {column}: {PUBLISH} names {piece.word}, as you wrote it, and stays."
            f" Sessions show themselves there until you take it out."
        )
        return text
    return splice.remove(text, (PUBLISH, at))
