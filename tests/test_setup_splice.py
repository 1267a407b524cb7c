"""Edits of JSON and TOML texts that leave every other byte alone, on texts that somebody's editor may have made."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.console.setting_up import jsonc, splice, toml
from postroom.console.setting_up.refused import Broken

EXAMPLES = settings(max_examples=100)

# ── texts ────────────────────────────────────────────────────────────────────────────────────────

NAMES = st.sampled_from(["a", "b", "mcpServers", "hooks", "Stop", "é", 'q"q', "\\", "//", "/* x */"])
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    | st.text(max_size=5)
    | st.sampled_from(["{", "// no", "]"])
)
BREAKS = st.sampled_from(["\n", "\r\n"])


@st.composite
def gaps(draw: st.DrawFn, line_break: str) -> str:
    """White space and comments, as they may stand between any two signs."""
    pieces = [
        "",
        " ",
        "\t",
        line_break,
        "/* c */",
        f"/*{line_break}*/",
        f"// c{line_break}",
        f"//{line_break}",
    ]
    return "".join(draw(st.lists(st.sampled_from(pieces), max_size=3)))


@st.composite
def texts(draw: st.DrawFn, line_break: str, value: Any) -> str:
    """A text of this value with comments, white space and trailing commas in it."""
    gap = gaps(line_break)
    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=draw(st.booleans()))
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    made: list[str] = []
    pairs: list[tuple[str | None, Any]] = (
        list(value.items()) if isinstance(value, dict) else [(None, one) for one in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    )
    for name, one in pairs:
        head = "" if name is None else json.dumps(name) + draw(gap) + ":" + draw(gap)
        made.append(draw(gap) + head + draw(texts(line_break, one)) + draw(gap))
    text = ",".join(made)
    if made and draw(st.booleans()):
        text += "," + draw(gap)
    return opening + (text or draw(gap)) + closing


@st.composite
def whole_texts(draw: st.DrawFn) -> tuple[str, Any]:
    """A whole text and its value; at times one with no value at all."""
    line_break = draw(BREAKS)
    mark = draw(st.sampled_from(["", jsonc.MARK]))
    before, after = draw(gaps(line_break)), draw(gaps(line_break))
    if draw(st.integers(0, 9)) == 0:
        return mark + before + after, None
    inner = st.recursive(
        PLAIN, lambda one: st.lists(one, max_size=3) | st.dictionaries(NAMES, one, max_size=3), max_leaves=8
    )
    lists = st.dictionaries(NAMES, st.lists(inner, max_size=2), max_size=3)
    value: dict[str, Any] = draw(st.dictionaries(NAMES, inner, max_size=4))
    if draw(st.booleans()):
        value["hooks"] = draw(lists)
    if draw(st.booleans()):
        value["mcpServers"] = draw(st.dictionaries(NAMES, inner, max_size=3))
    return mark + before + draw(texts(line_break, value)) + after, value


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────


def fits(value: Any) -> bool:
    """Whether an entry, and hooks for two events, can be put into a value."""
    if not isinstance(value.get("mcpServers", {}), dict) or not isinstance(value.get("hooks", {}), dict):
        return False
    return all(isinstance(value.get("hooks", {}).get(name, []), list) for name in ("Stop", "Start"))


SERVER = {"command": "/a b/python", "args": ["-I", "/a b/postroom"]}
GROUP = {"matcher": "*", "hooks": [{"type": "command", "command": "x"}]}


@EXAMPLES
@given(whole_texts())
def test_a_text_reads_as_what_it_was_made_of(made: tuple[str, Any]) -> None:
    text, value = made
    root = jsonc.parse(text)
    assert (root.value if root else None) == value


@pytest.mark.rule("09.17")
@EXAMPLES
@given(whole_texts())
def test_what_is_put_in_is_there_and_taking_it_out_leaves_the_same_bytes(made: tuple[str, Any]) -> None:
    text, value = made
    expected: dict[str, Any] = json.loads(json.dumps(value or {}))
    try:
        one = splice.add(text, ("mcpServers",), "postroom", SERVER)
        two = splice.add(one, ("hooks", "Stop"), None, GROUP)
        three = splice.add(two, ("hooks", "Start"), None, GROUP)
    except splice.WrongKind:
        assert not fits(expected)
        return
    expected.setdefault("mcpServers", {})["postroom"] = SERVER
    expected.setdefault("hooks", {}).setdefault("Stop", []).append(GROUP)
    expected["hooks"].setdefault("Start", []).append(GROUP)
    root = jsonc.parse(three)
    assert root is not None
    assert root.value == expected
    for name, before in (("Start", two), ("Stop", one)):
        last = len(expected["hooks"][name]) - 1
        assert splice.remove(three if name == "Start" else two, ("hooks", name, last)) == before
    assert splice.remove(one, ("mcpServers", "postroom")) == text


@EXAMPLES
@given(whole_texts(), NAMES)
def test_what_stands_around_an_entry_outlives_it(made: tuple[str, Any], name: str) -> None:
    """Whatever was put in later, beside ours, is still there when ours is gone."""
    text, value = made
    if value is not None and not isinstance(value.get("mcpServers", {}), dict):
        return
    ours = splice.add(text, ("mcpServers",), "postroom", SERVER)
    after = splice.add(ours, ("mcpServers",), f"later {name}", 1)
    left = splice.remove(after, ("mcpServers", "postroom"))
    assert left is not None
    root = jsonc.parse(left)
    expected = dict(value or {})
    expected["mcpServers"] = {**expected.get("mcpServers", {}), f"later {name}": 1}
    assert root is not None
    assert root.value == expected


def test_a_file_that_was_made_for_it_goes_with_it() -> None:
    text = splice.new_text(("mcpServers",), "postroom", SERVER)
    assert json.loads(text) == {"mcpServers": {"postroom": SERVER}}
    more = splice.add(text, ("hooks", "Stop"), None, GROUP)
    assert splice.remove(more, ("hooks", "Stop", 0)) == text
    assert splice.remove(text, ("mcpServers", "postroom")) is None


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{"a": 1', 1, 1),
        ('{\n  "a": 1\n  "b": 2\n}', 3, 3),
        ("{\r\n  'a': 1\r\n}", 2, 3),
        ('{"a": tru}', 1, 7),
        ('{"a": 01}', 1, 7),
        ('{"a": "x\ny"}', 1, 7),
        ('{"a": "\\q"}', 1, 7),
        ('{"a"; 1}', 1, 5),
        ("{} {}", 1, 4),
        ('{"a": /* 1}', 1, 7),
        ("{,}", 1, 2),
        ("\ufeff{,}", 1, 2),
        ("[" * 300, 1, 202),
        ('{"a":', 1, 6),
    ],
)
def test_a_broken_text_is_told_with_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(Broken) as caught:
        jsonc.parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_an_entry_on_the_line_of_a_comment_takes_none_of_what_follows() -> None:
    text = '{"a": 1, // one\n"postroom": 2, "c": 3}'
    assert splice.remove(text, ("postroom",)) == '{"a": 1, // one\n "c": 3}'


# ── TOML ─────────────────────────────────────────────────────────────────────────────────────────

TABLE = ("mcp_servers", "postroom")
PAIRS: dict[str, object] = {"command": "/a b/python", "args": ["-I", 'q"\\é'], "tool_timeout_sec": 660}
STATEMENTS = [
    *("# a comment", "", "  ", 'model = "x" # why', "n = 1_000", "d = 2026-11-30", "on = true"),
    *(
        "list = [\n  1, # ]\n  2,\n]",
        'text = """\n[mcp_servers.postroom]\ncommand = 1\n"""',
        "raw = '''\n# [x]\n'''",
    ),
    *('inline = { a = "}", b = [1] }', '"quoted = key" = "#"', "a.b.c = 1", "'x' = \"]\""),
]
HEADERS = [
    "[t]",
    "[ mcp_servers . other ] # c",
    "[[many]]",
    '["quoted ] name"]',
    "[projects.'/a/b']",
    "[mcp_servers]",
]


@st.composite
def toml_texts(draw: st.DrawFn) -> str:
    """A TOML text: each statement once in each table."""
    lines: list[str] = []
    for header in ["", *draw(st.lists(st.sampled_from(HEADERS), unique=True, max_size=4))]:
        lines += [header] if header else []
        lines += draw(st.lists(st.sampled_from(STATEMENTS), unique=True, max_size=4))
    line_break = draw(BREAKS)
    text = "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n\n", "  "]))
    return draw(st.sampled_from(["", jsonc.MARK])) + text.replace("\n", line_break)


@pytest.mark.rule("09.17")
@EXAMPLES
@given(toml_texts())
def test_a_table_comes_and_goes(text: str) -> None:
    before = toml.read(text)
    after = toml.add(text, TABLE, PAIRS)
    content = tomllib.loads(after.removeprefix(jsonc.MARK))
    assert content["mcp_servers"].pop("postroom") == PAIRS
    assert before == content or {**before, "mcp_servers": {}} == content
    assert toml.remove(after, TABLE) == text


@EXAMPLES
@given(
    toml_texts(),
    st.sampled_from(["\n[zz]\nx = 1\n", "\n\n# mine\n[zz]\n", "\n[mcp_servers.postroom.tools.a]\nb = 1\n"]),
)
def test_what_was_put_behind_a_table_stays_and_what_hangs_on_it_goes(text: str, more: str) -> None:
    after = toml.add(text, TABLE, PAIRS) + more
    left = toml.remove(after, TABLE)
    assert left is not None or not text  # the line break behind an empty file's table is not ours any more
    left = left or ""
    before = toml.read(text)
    expected = before if "postroom" in more else {**before, "zz": toml.read(more)["zz"]}
    found = toml.read(left)
    assert found == expected or found == {**expected, "mcp_servers": {}}
    assert "# mine" not in more or "# mine" in left


@EXAMPLES
@given(toml_texts())
def test_a_table_of_another_version_is_put_right(text: str) -> None:
    old = toml.add(text, TABLE, {"command": "/old/python", "enabled": False})
    new = toml.update(old, TABLE, {"command": "/new", "args": ["x"]})
    assert toml.read(new)["mcp_servers"]["postroom"] == {"command": "/new", "args": ["x"], "enabled": False}
    assert toml.remove(new, TABLE) == text


def test_a_new_file_of_one_table_goes_with_it() -> None:
    assert toml.remove(toml.new_text(TABLE, PAIRS), TABLE) is None


@pytest.mark.parametrize("text", ["mcp_servers = {}\n", "mcp_servers = { x = { command = 'y' } }"])
def test_a_table_that_cannot_stand_behind_what_is_there_is_refused(text: str) -> None:
    with pytest.raises(Broken):
        toml.add(text, TABLE, PAIRS)


def test_a_table_that_is_written_in_another_way_is_refused_with_its_place() -> None:
    text = 'a = 1\nmcp_servers = { postroom = { command = "postroom", args = ["mcp"] } }\n'
    for edit in (lambda: toml.remove(text, TABLE), lambda: toml.update(text, TABLE, {"command": "x"})):
        with pytest.raises(Broken) as caught:
            edit()
        assert caught.value.line == 2


@pytest.mark.parametrize(("text", "line"), [("a = 1\nb = \n", 2), ("[x\n", 1), ('a = """', 1)])
def test_a_broken_toml_text_is_told_with_its_place(text: str, line: int) -> None:
    with pytest.raises(Broken) as caught:
        toml.read(text)
    assert caught.value.line == line


def test_a_comment_stays_on_the_line_of_what_it_is_about() -> None:
    text = '{\n  "a": 1 // about a\n}\n'
    assert splice.add(text, (), "postroom", 2) == '{\n  "a": 1, // about a\n  "postroom": 2\n}\n'
