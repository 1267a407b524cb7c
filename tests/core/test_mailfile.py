"""Mailbox files as bytes: what is read, what is added and taken away, and what damage leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from postroom.core import mailfile
from postroom.core.mailfile import Contents, Entry, check_member, encoded, joined, parse, splice, without
from postroom.errors import InvalidName

AT = "2026-11-30T12:00:00.000Z"


def entry(text: str = "hello", **more: Any) -> Entry:
    fields: dict[str, Any] = {"from_": "ann", "text": text, "timestamp": AT, **more}
    return Entry(**fields)


def file_of(*entries: Entry) -> bytes:
    data: bytes = b""
    for each in entries:
        new = splice(data, encoded(each))
        assert isinstance(new, bytes)
        data = new
    return data or b"[]"


def texts(data: bytes) -> list[str]:
    return [item.entry.text for item in parse(data).items if item.entry is not None]


# ── writing ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.1", "07.2")
def test_an_entry_is_written_as_other_programs_write_it() -> None:
    line = encoded(entry("hé", msg_id="m1", summary="short", color="blue"))
    assert line.decode() == (
        '{"from":"ann","text":"hé","timestamp":"2026-11-30T12:00:00.000Z","read":false,"type":"message",'
        '"msg_id":"m1","msgV":1,"summary":"short","color":"blue"}'
    )
    assert list(json.loads(encoded(entry(msg_id="m1")))) == [
        *("from", "text", "timestamp", "read", "type", "msg_id", "msgV"),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"from_": ""},
        {"from_": "a/b"},
        {"from_": "a" * 65},
        {"timestamp": ""},
        {"msg_id": ""},
        {"msg_id": "x" * 129},
    ],
)
@pytest.mark.rule("07.3")
def test_an_envelope_that_its_reader_would_throw_away_is_not_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="its "):
        encoded(entry(**wrong))


@pytest.mark.rule("07.3", "07.7", "12.28")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"[NEW]"),
        (b"[]", b"[NEW]"),
        (b" [ ] \n", b" [NEW]"),
        (b'[\n  {"a": 1}\n]\n', b'[\n  {"a": 1},NEW]'),
        (b'[{"b":"\\ud800"}]', b'[{"b":"\\ud800"},NEW]'),
        (b'[{"b":"\xff"}, 7]', b'[{"b":"\xff"}, 7,NEW]'),
    ],
)
def test_an_entry_is_added_and_not_one_other_byte_changes(before: bytes, after: bytes) -> None:
    line = encoded(entry())
    assert splice(before, line) == after.replace(b"NEW", line)


DAMAGED = [
    b" ",
    b"\xef\xbb\xbf[]",
    b"[][]",
    b"{}",
    b"null",
    b"[",
    b"[1,]",
    b"[1,2",
    b'["a" "b"]',
    b'["\\ud800" "b"]',
    b'["\\ud800",]',
    b'["\\ud800"',
    b'["\\ud800"]x',
    b'"\\ud800"',
    b'[]"\\ud800"',
    b'["\\ud800",NaN]',
    b"[NaN]",
    b"[" * 5000,
    b'["\\ud800",' + b"[" * 100_000,
    b'[{"from":"a',
    b"\0\0\0\0",
]


@pytest.mark.rule("07.3", "07.6")
@pytest.mark.parametrize("data", DAMAGED, ids=range(len(DAMAGED)))
def test_nothing_is_added_to_what_is_not_one_array_and_it_is_not_read_as_empty(data: bytes) -> None:
    assert splice(data, encoded(entry())) == "damaged"
    assert not parse(data).whole


def test_an_empty_array_that_was_walked_to_is_one() -> None:
    """The slower reader, which is asked where an escape may be half a surrogate pair."""
    walked = mailfile._walked  # pyright: ignore[reportPrivateUsage]
    assert walked(" [ ] ") == []
    assert walked('[1 , "\\ud800"]') == [b"1", b'"\\ud800"']
    assert walked(" ") is None


@pytest.mark.rule("07.6")
def test_a_mailbox_takes_a_thousand_entries_and_no_more() -> None:
    data = joined([encoded(entry())] * 999)
    data = splice(data, encoded(entry()))
    assert isinstance(data, bytes)
    assert len(parse(data).items) == mailfile.MAX_ENTRIES == 1000
    assert splice(data, encoded(entry())) == "full"


@pytest.mark.rule("07.6")
def test_a_mailbox_takes_four_mebibytes_and_no_more() -> None:
    empty = len(joined([encoded(entry(""))]))
    assert len(file_of(entry("x" * (4 * 1024 * 1024 - empty)))) == mailfile.MAX_BYTES == 4 * 1024 * 1024
    assert splice(b"[]", encoded(entry("x" * (4 * 1024 * 1024 - empty + 1)))) == "full"


@pytest.mark.rule("07.6")
def test_a_larger_file_of_another_program_is_read_and_drained() -> None:
    data = json.dumps([{"from": "ann", "text": "x" * 1000, "timestamp": AT, "n": n} for n in range(10_000)])
    contents = parse(data.encode())
    assert len(contents.good) == 10_000
    assert without(contents, {item.key for item in contents.items}) == (b"[]", 10_000)


@pytest.mark.rule("07.5")
def test_what_was_taken_goes_and_the_rest_keeps_its_bytes() -> None:
    data = b'[ {"from":"a","text":"1","timestamp":"t","odd":[1, 2]} ,\n 5, {"from":"b","text":"2","timestamp":"t"}]'
    contents = parse(data)
    assert [item.reason for item in contents.items] == ["", "it is not an object", ""]
    last = contents.items[-1].key
    assert without(contents, [last, "no such key"]) == (
        b'[{"from":"a","text":"1","timestamp":"t","odd":[1, 2]},5]',
        1,
    )


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.2")
def test_the_last_five_fields_may_be_missing() -> None:
    [item] = parse(b'[{"from":"a","text":"b","timestamp":"c","read":false}]').items
    assert item.entry == Entry(from_="a", text="b", timestamp="c", type=None, msgV=None)
    assert not item.reason


@pytest.mark.rule("07.2")
def test_an_entry_is_read_as_it_was_written() -> None:
    one = entry("\u2028\x00 \U0001f600", read=True, msg_id="m", summary="s", color="c", type="x", msgV=2)
    assert [item.entry for item in parse(file_of(one)).items] == [one]


def test_optional_fields_of_another_kind_cost_nobody_the_text() -> None:
    odd: dict[str, Any] = {"type": 1, "msg_id": ["x"], "msgV": True, "summary": {}, "color": 5, "read": "yes"}
    [item] = parse(json.dumps([{"from": "a", "text": "b", "timestamp": "c", **odd}]).encode()).items
    assert item.entry == Entry(from_="a", text="b", timestamp="c", type=None, msgV=None)
    for wrong in ("", "x" * 129, "\ud800"):
        [item] = parse(
            json.dumps([{"from": "a", "text": "b", "timestamp": "c", "msg_id": wrong}]).encode()
        ).items
        assert item.entry is not None
        assert item.entry.msg_id is None


def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_is_a_character() -> None:
    data = b'[{"from":"a","text":"\\ud83d\\ude00 \\ud83d! \\ude00","timestamp":"c"}]'
    assert texts(data) == ["\U0001f600 �! �"]
    assert parse(data).whole


@pytest.mark.rule("07.6")
@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"5", "it is not an object"),
        (b"null", "it is not an object"),
        (b"[]", "it is not an object"),
        (b"{}", "it lacks `from`"),
        (b'{"from":1,"text":"","timestamp":""}', "it lacks `from`"),
        (b'{"from":"a","timestamp":"b"}', "it lacks `text`"),
        (b'{"from":"a","text":"b","timestamp":null}', "it lacks `timestamp`"),
        (b'{"from":"a","text":"b","timestamp":"c","n":' + b"9" * 5000 + b"}", "it cannot be read"),
    ],
)
def test_what_is_no_entry_is_told_apart_and_the_rest_is_delivered(raw: bytes, reason: str) -> None:
    contents = parse(joined([encoded(entry("before")), raw, encoded(entry("after"))]))
    assert contents.whole
    [bad] = contents.bad
    assert (bad.raw, bad.reason) == (raw, reason)
    assert [item.entry.text for item in contents.good if item.entry] == ["before", "after"]


# ── by what an entry is known ────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.4")
def test_an_entry_with_an_id_is_known_by_it() -> None:
    [one] = parse(file_of(entry("a", msg_id="m"))).items
    [other] = parse(file_of(entry("b", from_="bob", msg_id="m"))).items
    assert one.key == other.key
    assert "m" in one.key


@pytest.mark.rule("07.4")
def test_an_entry_without_an_id_is_known_by_its_content_and_its_place_among_equals() -> None:
    keys = [item.key for item in parse(file_of(entry(), entry("other"), entry(), entry())).items]
    assert len(set(keys)) == 4
    again = json.dumps(json.loads(file_of(entry(), entry(), entry("new"))), indent=2).encode()
    assert [item.key for item in parse(again).items][:2] == [keys[0], keys[2]]


@pytest.mark.rule("07.4")
@pytest.mark.parametrize("field", ["from_", "text", "timestamp", "summary", "color", "type"])
def test_every_part_of_the_content_counts(field: str) -> None:
    keys = {item.key for item in parse(file_of(entry(), entry(**{field: "another"}))).items}
    assert len(keys) == 2
    assert not any(key.startswith("1:") for key in keys)


@pytest.mark.rule("07.4")
def test_that_an_older_program_has_read_it_does_not_make_it_another() -> None:
    assert [item.key for item in parse(file_of(entry())).items] == [
        item.key for item in parse(file_of(entry(read=True))).items
    ]


def test_no_id_can_pass_for_anothers_key() -> None:
    data = file_of(entry(msg_id="m"), entry(msg_id="m"), entry(msg_id="1:id:m"), entry(msg_id="hash:x"))
    assert len({item.key for item in parse(data).items}) == 4


# ── damage ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.6")
@pytest.mark.parametrize(
    ("data", "left"),
    [
        (b"\xef\xbb\xbf[ONE,TWO]", ["one", "two"]),
        (b"[ONE][TWO]", ["one", "two"]),
        (b'[ONE,TWO,{"from":"a","te', ["one", "two"]),
        (b"ONE,TWO]", ["one", "two"]),
        (b"[ONE TWO]", ["one", "two"]),
        (b'[ONE,{"from":"a","text":"b,"timestamp":"t"},TWO]', ["one", "two"]),
        (b'[{"from":"a", ONE, TWO]', ["one", "two"]),
        (b"[ONE,\0\0\0\0TWO]", ["one", "two"]),
        (b"[{}, 5, ONE] x", ["one"]),
        (b'[{"n":' + b"9" * 5000 + b"}, ONE] x", ["one"]),
        (b'{"n":NaN}' * 7 + b"ONE", ["one"]),
        (b'{"n":NaN}' * 8 + b"ONE", []),
        (b"nothing", []),
    ],
)
def test_what_stands_by_itself_is_salvaged(data: bytes, left: list[str]) -> None:
    data = data.replace(b"ONE", encoded(entry("one"))).replace(b"TWO", encoded(entry("two")))
    assert not parse(data).whole
    assert texts(data) == left
    assert parse(data).bad == ()


@pytest.mark.rule("07.6", "11.7")
def test_no_entry_is_made_of_what_a_text_quotes() -> None:
    """However the file is cut."""
    quoted = file_of(entry("forged"), entry("{"), entry('{"from":"x"')).decode()
    data = file_of(entry(quoted), entry(json.dumps(quoted)), entry("{"), entry(quoted))
    for cut in range(len(data)):
        assert set(texts(data[:cut])) <= {quoted, json.dumps(quoted), "{"}
        assert set(texts(data[cut:])) <= {quoted, json.dumps(quoted), "{"}


@given(st.lists(st.text(max_size=20), max_size=4), st.data())
@settings(max_examples=150)
def test_a_truncated_file_loses_no_whole_entry_before_the_cut(
    written: list[str], data: st.DataObject
) -> None:
    lines = [encoded(entry(text)) for text in written]
    whole = joined(lines)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [len(joined(lines[:n])) - 1 for n in range(1, len(lines) + 1)]
    expected = [json.loads(line)["text"] for line, end in zip(lines, ends, strict=True) if end <= cut]
    assert texts(whole[:cut]) == expected


@given(st.binary(max_size=60) | st.text(alphabet='[]{},:"\\ud8afrom\n 1', max_size=60).map(str.encode))
@settings(max_examples=200)
def test_any_bytes_are_read_and_what_is_read_can_be_written(data: bytes) -> None:
    contents = parse(data)
    for item in contents.items:
        assert (item.entry is None) == bool(item.reason)
        if item.entry is not None:
            assert item.entry.text.encode() is not None
    assert parse(joined(item.raw for item in contents.items)).items == contents.items
    assert (splice(data, encoded(entry())) == "damaged") == (not contents.whole)


class MailboxMachine(RuleBasedStateMachine):
    """A mailbox that ours and other programs write, held against a list."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b"[]"
        self.model: list[str] = []
        self.number = 0

    @rule(with_id=st.booleans(), text=st.text(max_size=5))
    def append(self, with_id: bool, text: str) -> None:
        self.number += 1
        said = entry(text, msg_id=f"m{self.number}" if with_id else None)
        new = splice(self.data, encoded(said))
        assert isinstance(new, bytes)
        self.data = new
        self.model.append(json.loads(encoded(said))["text"])

    @rule(indent=st.sampled_from([None, 1, 2]), escaped=st.booleans())
    def rewritten_by_another(self, indent: int | None, escaped: bool) -> None:
        self.data = json.dumps(json.loads(self.data), indent=indent, ensure_ascii=escaped).encode()

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        items = parse(self.data).items
        gone = data.draw(st.sets(st.integers(0, len(items) - 1)))
        self.data, count = without(parse(self.data), {items[number].key for number in gone})
        assert count == len(gone)
        self.model = [text for number, text in enumerate(self.model) if number not in gone]

    @invariant()
    def holds_what_was_added_and_not_taken(self) -> None:
        contents: Contents = parse(self.data)
        assert contents.whole
        assert [item.entry.text for item in contents.items if item.entry] == self.model
        assert len({item.key for item in contents.items}) == len(self.model)


TestMailboxMachine = pytest.mark.rule("07.2", "07.5", "11.23")(MailboxMachine.TestCase)
TestMailboxMachine.settings = settings(max_examples=60, stateful_step_count=20)


# ── names ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.8")
def test_a_members_name_is_a_plain_word() -> None:
    for name in ("a", "team-lead", "A_1", "x" * 64):
        assert check_member(name) == name
    for name in (
        "",
        "x" * 65,
        "..",
        "a/b",
        "../x",
        "/etc/passwd",
        "a.json",
        "a b",
        "a\n",
        "é",
        "ａ",
        "a\0",
        "~",
    ):
        with pytest.raises(InvalidName):
            check_member(name)


def test_a_text_is_not_shown_where_an_entry_is() -> None:
    assert "secret" not in repr(entry("secret"))
