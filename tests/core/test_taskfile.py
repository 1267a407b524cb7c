"""How a task is written down: what comes back is what was meant, and nothing else passes for a task."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.core.taskfile import (
    LAST_ID,
    MARK_LOST,
    MAX_DEPTH,
    MAX_NAME,
    STATUSES,
    Task,
    encode,
    is_shallow,
    is_task_id,
    last_id,
    list_folder,
    next_id,
    read_mark,
    read_task,
)

FULL = Task(
    id="7",
    subject="Fix the größe",
    description="All of it.\nNow.",
    active_form="Fixing",
    owner="bob",
    status="in_progress",
    blocks=("8", "9"),
    blocked_by=("3",),
    metadata={"pr": 12, "x": {"y": [1.5, None]}},
    extra={"createdAt": 5, "active_form": "not ours"},
)
LEAST = {"id": "7", "subject": "s", "status": "pending"}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
TEXT = st.text(max_size=20)
TASKS = st.builds(
    Task,
    id=st.integers(1, LAST_ID).map(str),
    subject=TEXT,
    description=TEXT,
    active_form=st.none() | st.text(min_size=1, max_size=5),
    owner=st.none() | st.text(min_size=1, max_size=5),
    status=st.sampled_from(STATUSES),
    blocks=st.lists(TEXT, unique=True, max_size=3).map(tuple),
    blocked_by=st.lists(TEXT, unique=True, max_size=3).map(tuple),
    metadata=st.none() | st.dictionaries(TEXT, JSON, max_size=3),
    extra=st.dictionaries(TEXT, JSON, max_size=3).filter(lambda extra: not extra.keys() & WRITTEN),
)
WRITTEN = frozenset(json.loads(encode(FULL)))


def written(**fields: object) -> bytes:
    return json.dumps({**LEAST, **fields}).encode()


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


# ── there and back ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.23")
def test_a_task_is_written_with_the_names_of_the_other_programs() -> None:
    data = encode(FULL)
    assert json.loads(data) == {
        "id": "7",
        "subject": "Fix the größe",
        "description": "All of it.\nNow.",
        "activeForm": "Fixing",
        "owner": "bob",
        "status": "in_progress",
        "blocks": ["8", "9"],
        "blockedBy": ["3"],
        "metadata": {"pr": 12, "x": {"y": [1.5, None]}},
        "createdAt": 5,
        "active_form": "not ours",
    }
    assert "größe".encode() in data
    assert read_task(data, "7") == FULL


@pytest.mark.rule("07.23")
def test_what_has_no_value_is_left_out() -> None:
    plain = Task(id="7", subject="s")
    assert list(json.loads(encode(plain))) == [
        "id",
        "subject",
        "description",
        "status",
        "blocks",
        "blockedBy",
    ]
    assert read_task(encode(plain), "7") == plain


def test_an_unknown_field_never_stands_in_for_one_of_ours() -> None:
    assert json.loads(encode(Task(id="7", subject="s", extra={"id": "8", "more": 1})))["id"] == "7"


def test_metadata_may_be_a_mapping_that_does_not_change() -> None:
    task = Task(id="7", subject="s", metadata=MappingProxyType({"a": 1}))
    assert json.loads(encode(task))["metadata"] == {"a": 1}


@given(TASKS)
@settings(max_examples=100, deadline=None)
def test_every_task_comes_back(task: Task) -> None:
    assert read_task(encode(task), task.id) == task


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=150, deadline=None)
def test_whatever_lies_there_is_a_task_or_a_reason(data: bytes) -> None:
    assert isinstance(read_task(data, "7"), str)


@given(st.dictionaries(st.sampled_from(sorted(WRITTEN)), JSON, max_size=5))
@settings(max_examples=150, deadline=None)
def test_whatever_the_fields_hold_what_is_read_can_be_written_and_read_again(fields: dict[str, Any]) -> None:
    found = read_task(written(**fields), "7")
    if isinstance(found, Task):
        assert read_task(encode(found), "7") == found


# ── damage ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.23")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"\xff{}", "it is not UTF-8"),
        (b"\xef\xbb\xbf" + written(), "it is not JSON"),
        (written()[:-1], "it is not JSON"),
        (written() * 2, "it is not JSON"),
        (b'{"id": "7", "subject": "s", "status": "pending", "x": NaN}', "it is not JSON"),
        (b'{"id": "7", "subject": "s", "status": "pending", "x": 1e999}', "it is not JSON"),
        (b"[" * 200_000, "it is nested too deep"),
        (written(x=nested(MAX_DEPTH)), "it is nested too deep"),
        (b"[]", "it is not a JSON object"),
        (b'"7"', "it is not a JSON object"),
        (written(id="8"), "it is another task's"),
        (written(id=7), "`id` is not what it should be"),
        (written(id=None), "`id` is missing"),
        (written(subject=None), "`subject` is missing"),
        (written(subject=["s"]), "`subject` is not what it should be"),
        (written(description=5), "`description` is not what it should be"),
        (written(activeForm={}), "`activeForm` is not what it should be"),
        (written(owner=True), "`owner` is not what it should be"),
        (written(status=None), "`status` is missing"),
        (written(status="deleted"), "`status` is not what it should be"),
        (written(status=["pending"]), "`status` is not what it should be"),
        (written(blocks="8"), "`blocks` is not what it should be"),
        (written(blockedBy=["8", 9]), "`blockedBy` is not what it should be"),
        (written(metadata=[]), "`metadata` is not what it should be"),
    ],
)
def test_what_is_no_task_is_told_with_the_reason(data: bytes, reason: str) -> None:
    assert read_task(data, "7") == reason


@pytest.mark.rule("07.23")
def test_a_neighbours_file_may_lack_what_it_need_not_have() -> None:
    data = written(owner="", activeForm="", blocks=["9", "9", "later"], x=nested(MAX_DEPTH - 1))
    assert read_task(data, "7") == Task(
        id="7", subject="s", blocks=("9", "later"), extra={"x": nested(MAX_DEPTH - 1)}
    )


def test_half_a_character_of_another_program_is_written_as_it_came() -> None:
    data = b'{"id": "7", "subject": "\\ud83d", "status": "pending", "note": "\xc3\xb6"}'
    task = read_task(data, "7")
    assert isinstance(task, Task)
    assert b"\\ud83d" in encode(task)
    assert read_task(encode(task), "7") == task


def test_levels_are_counted_in_lists_and_objects() -> None:
    assert is_shallow("x", 0)
    assert not is_shallow([], 0)
    assert is_shallow({"a": [1]}, 2)
    assert not is_shallow({"a": [()]}, 2)
    assert is_shallow(MappingProxyType({"a": ()}), 2)
    assert not is_shallow([MappingProxyType({"a": 1})], 1)


# ── ids and names ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.23")
@pytest.mark.parametrize("text", ["1", "10", "9" * 15])
def test_ids(text: str) -> None:
    assert is_task_id(text)


@pytest.mark.rule("07.23")
@pytest.mark.parametrize(
    "text", ["", "0", "01", "9" * 16, "-1", "1.0", "1e3", " 1", "1\n", "１", "..", "a", "1/2"]
)
def test_no_ids(text: str) -> None:
    assert not is_task_id(text)


@pytest.mark.rule("07.23")
def test_an_id_comes_after_the_mark_and_after_all_files() -> None:
    assert next_id(0, []) == "1"
    assert next_id(0, ["2", "10", "9"]) == "11"
    assert next_id(12, ["2"]) == "13"
    assert (last_id(0, []), last_id(12, ["2"]), last_id(0, ["2"])) == (0, 12, 2)


@pytest.mark.rule("07.23")
def test_where_the_mark_is_lost_ids_jump() -> None:
    """Deleted tasks may have had the numbers above the files that are left."""
    assert last_id(None, ["7"]) == 7 + MARK_LOST
    assert next_id(None, ["7"]) == str(8 + MARK_LOST)


def test_numbers_come_to_an_end_and_are_not_begun_again() -> None:
    assert next_id(LAST_ID - 1, []) == str(LAST_ID)
    assert next_id(0, [str(LAST_ID)]) is None
    assert last_id(None, [str(LAST_ID - 5)]) == LAST_ID


@pytest.mark.rule("07.23")
@pytest.mark.parametrize(
    ("data", "mark"),
    [
        (b"0", 0),
        (b"12", 12),
        (b"12\n", 12),
        (b"", None),
        (b"-1", None),
        (b"x", None),
        (b"012", None),
        (b"\xff", None),
        (b"9" * 16, None),
    ],
)
def test_a_mark_is_a_number_or_lost(data: bytes, mark: int | None) -> None:
    assert read_mark(data) == mark


@pytest.mark.rule("07.8")
def test_a_list_of_ours_has_a_folder_of_its_own_and_a_neighbours_has_the_neighbours() -> None:
    assert list_folder("session-0b0e_A", shared=False) == "session-0b0e_A"
    assert list_folder("My list.", shared=True) == "My-list-"
    assert list_folder("x" * MAX_NAME, shared=False) == "x" * MAX_NAME
    for refused in ("", "My list", "..", "a/b", "ö", "x" * (MAX_NAME + 1)):
        assert list_folder(refused, shared=False) is None
    assert list_folder("..", shared=True) == "--"
    assert list_folder("a/b", shared=True) == "a-b"
    assert list_folder("", shared=True) is None
