"""The metadata of agents: what is written, what is read back, and every other file that may lie in its place."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.core.message import TaskNotification
from postroom.core.runs import OWED_MAX, Life, is_agent_id
from postroom.core.transcript import Header
from postroom.errors import StoreFailed, UnfitPath
from postroom.state import files
from postroom.state.agent_files import (
    MAX_METADATA,
    MAX_USAGE,
    AgentFiles,
    MemoryAgentFiles,
    Unusable,
    from_json,
    to_json,
)
from postroom.state.transcripts import Transcript

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user, or mount a disk")

OTHER = 54321
LIFE = Life(
    id="a-1",
    name="worker",
    session_id="s-1",
    type="coder",
    former=("helper",),
    transcript="/home/me/größe/1.jsonl",
    background=False,
    state="failed",
    stopped_by_user=True,
    runs=3,
    started_at=1_000,
    ended_at=2_000,
    owed=(
        TaskNotification(
            task_id="a-1",
            name="worker",
            status="failed",
            run=3,
            at=2_000,
            output_path="/tmp/out",
            result="It did not work.",
            usage={"input_tokens": 3, "cost": 0.5},
            worktree="/tmp/tree",
        ),
        TaskNotification(task_id="a-1", name="worker", status="killed", run=2, at=1),
    ),
)
LEAST = {
    "v": 1,
    "id": "a-1",
    "name": "w",
    "session_id": "s-1",
    "state": "live",
    "stopped_by_user": False,
    "runs": 1,
}
OWED = {"task_id": "a-1", "name": "w", "status": "failed", "run": 1, "at": 0}


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A session's own folder."""
    folder = tmp_path / "s-1"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def kept(session: Path) -> AgentFiles:
    return AgentFiles(str(session / "agents"), "s-1")


def place(kept: AgentFiles, agent_id: str = "a-1") -> Path:
    """Where an agent's metadata lies; its folder is made."""
    folder = Path(kept.folder) / agent_id
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
    return folder / "agent.json"


def put(path: Path, data: bytes, mode: int = 0o600) -> None:
    path.write_bytes(data)
    path.chmod(mode)


def written(**changes: Any) -> bytes:
    """The least metadata with some fields changed; None leaves one out."""
    return json.dumps(
        {key: value for key, value in {**LEAST, **changes}.items() if value is not None}
    ).encode()


def reason(kept: AgentFiles, agent_id: str = "a-1") -> str:
    """Why an agent cannot be used: the same, alone and among all; a sentence without a path."""
    with pytest.raises(Unusable) as caught:
        kept.read(agent_id)
    said = caught.value.reason
    assert (kept.found() == ([], [])) or (agent_id, said) in kept.found()[1]
    assert said.startswith("i")
    assert not said.endswith(".")
    assert "/" not in said
    return said


def flaw(data: bytes) -> str:
    """What is wrong with some bytes."""
    with pytest.raises(Unusable) as caught:
        from_json(data)
    return caught.value.reason


# ── written and read back ────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.13")
def test_metadata_is_kept_below_the_sessions_folder_and_private(kept: AgentFiles, session: Path) -> None:
    assert kept.found() == ([], [])
    kept.write(LIFE)
    assert kept.read("a-1") == LIFE
    path = session / "agents" / "a-1" / "agent.json"
    assert path.stat().st_mode & 0o7777 == 0o600
    assert path.parent.stat().st_mode & 0o7777 == path.parent.parent.stat().st_mode & 0o7777 == 0o700
    assert json.loads(path.read_bytes()) == {
        "v": 1,
        "id": "a-1",
        "name": "worker",
        "session_id": "s-1",
        "type": "coder",
        "former": ["helper"],
        "transcript": "/home/me/größe/1.jsonl",
        "background": False,
        "state": "failed",
        "stopped_by_user": True,
        "runs": 3,
        "started_at": 1000,
        "ended_at": 2000,
        "owed": [
            {
                "task_id": "a-1",
                "name": "worker",
                "status": "failed",
                "run": 3,
                "at": 2000,
                "output_path": "/tmp/out",
                "result": "It did not work.",
                "usage": {"input_tokens": 3, "cost": 0.5},
                "worktree": "/tmp/tree",
            },
            {"task_id": "a-1", "name": "worker", "status": "killed", "run": 2, "at": 1},
        ],
    }
    assert os.listdir(path.parent) == ["agent.json"]
    kept.write(replace(LIFE, state="live", runs=4), sync=False)
    assert kept.read("a-1").runs == 4


@pytest.mark.rule("06.13")
def test_all_agents_are_found_the_oldest_first(kept: AgentFiles) -> None:
    lives = [
        Life(id=identity, name=identity, session_id="s-1", started_at=at)
        for identity, at in (("c", 1), ("a", 2), ("b", 2))
    ]
    for life in reversed(lives):
        kept.write(life)
    put(place(kept, "broken"), b"{")
    (Path(kept.folder) / ".hidden").mkdir()
    (Path(kept.folder) / "file").write_bytes(b"")
    assert kept.found() == (
        lives,
        [
            ("broken", "its metadata is not JSON"),
            ("", "No agent's folder, and passed over in this session's folder of agents: '.hidden', 'file'"),
        ],
    )


@pytest.mark.rule("06.13")
def test_what_is_no_agents_folder_is_nobody_and_is_said_in_one_sentence(kept: AgentFiles) -> None:
    """Whatever it is and is called; a folder with an agent's name, and a symlink in its place, may have been one."""
    kept.write(LIFE)
    folder = Path(kept.folder)
    for name in (".DS_Store", "client-1", "two\nlines", "a.b"):
        (folder / name).write_bytes(b"")
    (folder / ("n" * 90)).mkdir()
    os.mkfifo(folder / "talk-1")
    (folder / "empty").mkdir(mode=0o700)
    (folder / "link").symlink_to(folder / "a-1")
    beside = "No agent's folder, and passed over in this session's folder of agents: "
    lives, rest = kept.found()
    assert lives == [LIFE]
    assert rest == [
        ("empty", "its metadata is missing"),
        ("link", "its folder cannot be used: a symlink, which is not followed"),
        ("", f"{beside}'.DS_Store', 'a.b', 'client-1', '{'n' * 80}'…, 'talk-1' and 1 more"),
    ]
    assert "two" not in rest[-1][1]
    (folder / "a.b").unlink()
    assert "'two\\nlines'" in kept.found()[1][-1][1]


@pytest.mark.rule("06.13")
def test_an_agents_folder_that_goes_while_they_are_looked_through_is_missing(
    kept: AgentFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.write(LIFE)
    monkeypatch.setattr(os, "listdir", lambda _path: ["a-1", "gone"])  # pyright: ignore
    assert kept.found() == ([LIFE], [("gone", "its metadata is missing")])


@pytest.mark.parametrize("agent_id", ["", "..", "a/b", "a.b", "ä", "a" * 81, "a\0", "."])
def test_what_is_no_id_leads_nowhere(kept: AgentFiles, agent_id: str) -> None:
    put(place(kept), written())
    with pytest.raises(Unusable, match="its id is not an agent's"):
        kept.read(agent_id)
    with pytest.raises(ValueError, match="no agent of this session"):
        kept.write(replace(LIFE, id=agent_id))
    with pytest.raises(ValueError, match="no agent of this session"):
        kept.write(replace(LIFE, session_id="s-2"))
    assert os.listdir(kept.folder) == ["a-1"]


def test_a_session_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    kept = AgentFiles(str(tmp_path / "gone" / "agents"), "s-1")
    with pytest.raises(UnfitPath, match="does not exist"):
        kept.write(LIFE)
    assert not (tmp_path / "gone").exists()
    assert kept.found() == ([], [])
    assert reason(kept) == "its metadata is missing"


def test_a_file_that_says_the_least_is_enough_and_more_is_ignored() -> None:
    least = Life(id="a-1", name="w", session_id="s-1")
    assert from_json(written()) == least
    assert from_json(written(future={"deep": [1]}, owed=[{**OWED, "future": 1}])) == replace(
        least, owed=(TaskNotification(task_id="a-1", name="w", status="failed", run=1, at=0),)
    )


texts = st.text(max_size=30)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)
paths = st.none() | st.binary(max_size=20).map(lambda some: "/" + os.fsdecode(some.replace(b"\0", b"0")))
numbers = st.integers(0, 2**53)
usages = st.none() | st.dictionaries(names, numbers | st.floats(0, 1e9), max_size=5)
finishes = st.builds(
    TaskNotification,
    task_id=st.just("a-1"),
    name=names,
    status=st.sampled_from(["completed", "failed", "killed"]),
    run=st.integers(1, 2**53),
    at=numbers,
    output_path=paths,
    result=st.none() | names,
    usage=usages,
    worktree=paths,
)
lives = st.builds(
    Life,
    id=st.from_regex(r"[A-Za-z0-9_-]{1,80}", fullmatch=True),
    name=names,
    session_id=names,
    type=st.just("") | names,
    former=st.lists(names, max_size=5).map(tuple),
    transcript=paths,
    background=st.booleans(),
    state=st.sampled_from(["live", "completed", "failed", "killed"]),
    stopped_by_user=st.booleans(),
    runs=st.integers(1, 2**53),
    started_at=numbers,
    ended_at=st.none() | numbers,
    owed=st.lists(finishes, max_size=4).map(tuple),
)


@given(lives)
@settings(max_examples=150, deadline=None)
@pytest.mark.rule("06.13")
def test_every_life_is_read_back_as_it_was(life: Life) -> None:
    """Its paths too, where they are no UTF-8."""
    assert from_json(to_json(life)) == life


@given(texts, texts, st.dictionaries(texts, st.floats() | st.integers(), max_size=3))
@settings(max_examples=100, deadline=None)
def test_what_a_host_says_never_spoils_the_file(result: str, name: str, usage: dict[str, float]) -> None:
    """Half surrogate pairs, NULs, numbers that are none: what is said of them is lost, and not the agent."""
    owed = TaskNotification(task_id="a-1", name="w", status="failed", run=1, at=0, result=result, usage=usage)
    again = from_json(to_json(replace(LIFE, name=f"w{name}", type=name, owed=(owed,))))
    assert again.name.startswith("w")
    assert again.owed[0].result is not None
    assert len(again.owed[0].result) == len(result)


@pytest.mark.rule("06.11")
def test_what_is_owed_is_cut_before_it_is_too_much_to_be_read(kept: AgentFiles) -> None:
    def owing(count: int, text: str, **more: Any) -> Life:
        one = TaskNotification(task_id="a-1", name="w", status="completed", run=1, at=0, result=text, **more)
        return replace(LIFE, owed=tuple(replace(one, run=n + 1) for n in range(count)))

    for life, left in (
        (owing(100, "é" * 1_000), 1_000),
        (owing(1, "é" * 300_000), 100_001),
        (owing(100, "é" * 300_000), 1_001),
    ):
        kept.write(life)
        owed = kept.read("a-1").owed
        assert len(owed) == len(life.owed)
        assert {len(each.result or "") for each in owed} == {left}
        assert all((each.result or "").endswith("…") == (left % 10 == 1) for each in owed)
    assert [each.run for each in from_json(to_json(owing(OWED_MAX + 5, ""))).owed] == list(range(6, 106))
    heavy = owing(100, "é" * 9, worktree="/é" * 2000, output_path="/é" * 2000)
    data = to_json(heavy)
    assert len(data) <= MAX_METADATA
    owed = from_json(data).owed
    assert 10 < len(owed) < 100
    assert owed[-1].run == 100
    spent = {f"number {n}": n for n in range(MAX_USAGE + 5)}
    (one,) = from_json(to_json(owing(1, "", usage=spent))).owed
    assert one.usage == {f"number {n}": n for n in range(MAX_USAGE)}
    with pytest.raises(StoreFailed, match="too large"):
        to_json(replace(LIFE, transcript="/" + "x" * MAX_METADATA))


def test_what_is_long_is_cut_to_what_is_read() -> None:
    life = from_json(to_json(replace(LIFE, type="x" * 5000, former=("f",) * 20)))
    assert (len(life.type), len(life.former)) == (4096, 16)


# ── what must not be used ────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.26")
def test_metadata_that_is_missing_cannot_be_used(kept: AgentFiles) -> None:
    assert reason(kept) == "its metadata is missing"
    Path(kept.folder).mkdir(mode=0o700)
    assert reason(kept) == "its metadata is missing"
    place(kept)
    assert reason(kept) == "its metadata is missing"


@pytest.mark.rule("02.26")
def test_metadata_that_is_cut_off_anywhere_cannot_be_used(kept: AgentFiles) -> None:
    data = to_json(LIFE)
    path = place(kept)
    for end in range(len(data)):
        put(path, data[:end])
        assert reason(kept) == "its metadata is not JSON"
    put(path, data)
    assert kept.read("a-1") == LIFE


@pytest.mark.rule("02.26")
def test_another_agents_metadata_cannot_be_used(kept: AgentFiles) -> None:
    put(place(kept), written(id="a-2"))
    assert reason(kept) == "its metadata is another agent's"
    put(place(kept), written(session_id="s-2"))
    assert reason(kept) == "its metadata is of another session"
    assert kept.found() == ([], [("a-1", "its metadata is of another session")])


@pytest.mark.rule("02.26")
def test_metadata_of_a_newer_version_cannot_be_used(kept: AgentFiles) -> None:
    put(place(kept), written(v=2, state={"new": "form"}))
    assert reason(kept) == "its metadata is of a newer version (2; this one reads 1)"


@pytest.mark.rule("02.26")
@pytest.mark.parametrize("version", [None, "1", 0, -1, 1.0, True, [1], 10**300])
def test_metadata_without_a_version_cannot_be_used(version: object) -> None:
    assert flaw(written(v=version)) == "its metadata has no version"


@pytest.mark.rule("02.26")
@pytest.mark.parametrize(
    "sort", ["symlink", "fifo", "folder", "socket", "mode", "size", "loose folder", "link"]
)
def test_what_is_not_our_own_private_file_cannot_be_used(kept: AgentFiles, session: Path, sort: str) -> None:
    """A symlink to valid metadata too; none of them is waited for."""
    path = place(kept)
    real = session / "real"
    put(real, written())
    what, why = "metadata", "not a regular file"
    match sort:
        case "symlink":
            path.symlink_to(real)
            why = "a symlink, which is not followed"
        case "fifo":
            os.mkfifo(path, 0o600)
        case "folder":
            path.mkdir(mode=0o700)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
        case "mode":
            put(path, written(), 0o640)
            why = "others have access to it (mode 0640)"
        case "size":
            put(path, written())
            os.truncate(path, 2**40)
            why = f"larger than {MAX_METADATA} bytes"
        case "loose folder":
            put(path, written())
            path.parent.chmod(0o750)
            what, why = "folder", "others have access to it (mode 0750)"
        case _:
            put(path, written())
            path.parent.rename(session / "elsewhere")
            path.parent.symlink_to(session / "elsewhere")
            what, why = "folder", "a symlink, which is not followed"
    assert reason(kept) == f"its {what} cannot be used: {why}"


@as_root
@pytest.mark.rule("02.26")
def test_another_users_metadata_cannot_be_used(kept: AgentFiles) -> None:
    """Needs root."""
    path = place(kept)
    put(path, written())
    os.chown(path, OTHER, -1)
    assert reason(kept) == f"its metadata cannot be used: it belongs to uid {OTHER}"
    os.chown(path.parent, OTHER, -1)
    assert reason(kept) == f"its folder cannot be used: it belongs to uid {OTHER}"


@pytest.mark.rule("02.26")
@pytest.mark.parametrize("sort", ["symlink", "file", "loose"])
def test_where_the_agents_lie_is_checked_as_well(kept: AgentFiles, session: Path, sort: str) -> None:
    put(place(kept), written())
    match sort:
        case "symlink":
            Path(kept.folder).rename(session / "elsewhere")
            Path(kept.folder).symlink_to(session / "elsewhere")
            why = "a symlink, which is not followed"
        case "file":
            Path(kept.folder).rename(session / "elsewhere")
            Path(kept.folder).write_bytes(b"")
            why = "not a folder"
        case _:
            Path(kept.folder).chmod(0o755)
            why = "others have access to it (mode 0755)"
    assert kept.found() == ([], [("", f"The folder of this session's agents cannot be used: {why}")])
    with pytest.raises(Unusable, match="its folder cannot be used"):
        kept.read("a-1")
    with pytest.raises(UnfitPath):
        kept.write(LIFE)


def test_a_folder_that_cannot_be_listed_is_said(kept: AgentFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    put(place(kept), written())

    def broken(_path: str) -> list[str]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "listdir", broken)
    assert kept.found() == (
        [],
        [("", "The folder of this session's agents cannot be read: Input/output error")],
    )


@pytest.mark.rule("02.26")
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is not JSON"),
        (b"\0" * 100, "is not JSON"),
        (b"\xff", "is not UTF-8"),
        (written().decode().encode("utf-16"), "is not UTF-8"),
        (b"\xef\xbb\xbf" + written(), "is not JSON"),
        (written() + b"\0", "is not JSON"),
        (b'{"v":' + b"[" * 100_000, "is not JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "is not JSON"),
        (b'{"v": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b'{"v": 1, "runs": NaN}', "is not JSON"),
        (b'{"v": 1, "runs": Infinity}', "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
        (b'"v"', "is not a JSON object"),
    ],
)
def test_what_is_no_json_object_cannot_be_used(kept: AgentFiles, data: bytes, says: str) -> None:
    put(place(kept), data)
    assert reason(kept) == f"its metadata {says}"


@pytest.mark.rule("02.26", "02.24")
@pytest.mark.parametrize("field", ["id", "name", "session_id", "state", "stopped_by_user", "runs"])
def test_a_field_that_is_missing_spoils_the_whole(field: str) -> None:
    """`stopped_by_user` as well: what a user has stopped must not start again because a file has lost it."""
    assert flaw(written(**{field: None})) == f"its metadata lacks `{field}`"


WRONG_OWED: dict[str, list[object]] = {
    "task_id": [None, 1, "", "a/b"],
    "name": [None, 1, ""],
    "status": [None, "running", "done", 1, [], {}],
    "run": [None, 0, True, "1"],
    "at": [None, -1, 0.5],
    "output_path": [1, "\0", "\ud800"],
    "result": [1, "\0", "\ud800", ["text"]],
    "usage": [
        [],
        "none",
        {"n": "1"},
        {"n": True},
        {"n": [1]},
        {"n": 10**300},
        {"n": -(2**54)},
        {"\0": 1},
        {"\ud800": 1},
        {str(n): n for n in range(MAX_USAGE + 1)},
    ],
    "worktree": [1, "\0"],
}

WRONG: dict[str, list[object]] = {
    "id": [1, "", "..", "a/b", "a" * 81, "\ud800", ["a"], {}],
    "name": [1, "", "x" * 4097, "a\0", "\ud800", ["w"], True],
    "session_id": [1, "", "\0", ["s"]],
    "type": [1, "x" * 4097, "\0", "\ud800", [], False],
    "former": ["w", [1], [""], [["w"]], ["w"] * 17, {"w": 1}],
    "transcript": [1, "\0", "/" + "x" * 4096, "\ud800", [], True],
    "background": [0, 1, "true", [], {}],
    "state": ["", "LIVE", "running", 1, [], {}, ["live"], True],
    "stopped_by_user": [0, 1, "false", []],
    "runs": [0, -1, 1.0, "1", True, 2**53 + 1, 10**300, [1]],
    "started_at": [-1, 1.5, "0", False, 2**53 + 1, 1e300],
    "ended_at": [-1, 0.0, "now", True, 10**300],
    "owed": [
        {},
        "none",
        [1],
        [[]],
        [OWED] * (OWED_MAX + 1),
        *([{**OWED, key: value}] for key, values in WRONG_OWED.items() for value in values),
    ],
}


@pytest.mark.rule("02.26")
@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field, values in WRONG.items() for value in values],
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "…",
)
def test_a_field_that_is_not_what_it_should_be_spoils_the_whole(field: str, value: object) -> None:
    assert flaw(written(**{field: value})) == f"in its metadata `{field}` is not what it should be"


@given(
    st.binary(max_size=300)
    | st.dictionaries(
        st.sampled_from([*LEAST, *WRONG]),
        st.none() | st.booleans() | st.integers(0, 2) | texts | st.lists(texts, max_size=2),
    ).map(lambda some: json.dumps({**LEAST, **some}).encode())
)
@settings(max_examples=150, deadline=None)
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        life = from_json(data)
    except Unusable:
        return
    assert is_agent_id(life.id)
    assert from_json(to_json(life)) == life


# ── disks that are full, writers that are killed ─────────────────────────────────────────────────


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte, of our own."""
    where = tmp_path / "disk"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(where)], check=True)
    try:
        yield where
    finally:
        gc.collect()
        subprocess.run(["umount", "--lazy", str(where)], check=True)


@as_root
@pytest.mark.rule("06.13")
def test_on_a_full_disk_what_was_there_stays(small_disk: Path) -> None:
    """Needs root."""
    kept = AgentFiles(str(small_disk / "agents"), "s-1")
    kept.write(LIFE)
    stone = small_disk / "stone"
    with stone.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert os.statvfs(small_disk).f_bavail == 0
    with pytest.raises(StoreFailed, match="No space"):
        kept.write(replace(LIFE, runs=4))
    assert kept.read("a-1") == LIFE
    assert os.listdir(small_disk / "agents" / "a-1") == ["agent.json"]
    stone.unlink()
    kept.write(replace(LIFE, runs=4))
    assert kept.read("a-1").runs == 4


@pytest.mark.rule("06.13")
def test_a_writer_that_is_killed_before_the_new_file_is_there_leaves_the_old_one(kept: AgentFiles) -> None:
    """It is stopped in the instant between the temporary file and the rename, and killed there."""
    kept.write(LIFE)
    code = f"""
import os, signal
from dataclasses import replace
from postroom.state.agent_files import AgentFiles
os.rename = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
kept = AgentFiles({kept.folder!r}, "s-1")
kept.write(replace(kept.read("a-1"), runs=4))
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert kept.found() == ([LIFE], [])
    (left,) = (name for name in os.listdir(f"{kept.folder}/a-1") if name != "agent.json")
    assert files.is_temporary(left)
    kept.write(replace(LIFE, runs=5))
    assert kept.read("a-1").runs == 5


def test_what_a_symlink_points_to_is_never_written(kept: AgentFiles, session: Path) -> None:
    path = place(kept)
    put(session / "real", b"precious")
    path.symlink_to(session / "real")
    kept.write(LIFE)
    assert (session / "real").read_bytes() == b"precious"
    assert kept.read("a-1") == LIFE


def test_a_folder_in_its_place_is_said(kept: AgentFiles) -> None:
    place(kept).mkdir()
    with pytest.raises(StoreFailed, match="could not be written"):
        kept.write(LIFE)
    assert os.listdir(place(kept).parent) == ["agent.json"]


# ── transcripts ──────────────────────────────────────────────────────────────────────────────────


def useless(kept: AgentFiles | MemoryAgentFiles, life: Life) -> str:
    with pytest.raises(Unusable) as caught:
        kept.check_transcript(life)
    return caught.value.reason


@pytest.mark.rule("02.26", "02.23")
def test_the_transcript_must_be_the_agents_own(kept: AgentFiles, session: Path) -> None:
    path = kept.transcript_path("a-1")
    life = replace(LIFE, transcript=path)
    assert path == str(session / "agents" / "a-1" / "transcript.jsonl")
    kept.write(life)
    assert useless(kept, life) == "its transcript is missing"
    Transcript(path, header={"session": "s-1", "agent": "a-1"})
    assert kept.check_transcript(life).header == Header("s-1", "a-1")
    assert kept.check_transcript(replace(life, name="renamed")).lines == 1
    Path(path).chmod(0o640)
    assert useless(kept, life) == "its transcript cannot be used: others have access to it (mode 0640)"
    for header, says in (
        ({"session": "s-1", "agent": "a-2"}, "its transcript is another agent's"),
        ({"session": "s-1"}, "its transcript is another agent's"),
        ({"session": "s-2", "agent": "a-1"}, "its transcript is of another session"),
    ):
        Path(path).unlink()
        Transcript(path, header=header)
        assert useless(kept, life) == says
    assert useless(kept, replace(life, transcript=None)) == "it has no transcript"


def test_a_hosts_own_transcript_may_be_read_by_others(kept: AgentFiles, tmp_path: Path) -> None:
    memory = MemoryAgentFiles("s-1")
    path = tmp_path / "own.jsonl"
    life = replace(LIFE, transcript=str(path))
    put(path, b'{"role": "user"}\n', 0o644)
    assert kept.check_transcript(life).lines == memory.check_transcript(life).lines == 1
    put(path, b'{"role": "user"}\n', 0o666)
    assert "others have access" in useless(kept, life)
    assert "others have access" in useless(memory, life)
    path.unlink()
    assert useless(kept, life) == useless(memory, life) == "its transcript is missing"


# ── in memory ────────────────────────────────────────────────────────────────────────────────────


def test_in_memory_the_promise_is_the_same() -> None:
    kept = MemoryAgentFiles("s-1")
    assert kept.found() == ([], [])
    with pytest.raises(Unusable, match="its metadata is missing"):
        kept.read("a-1")
    kept.write(LIFE)
    kept.write(replace(LIFE, id="a-0", started_at=999), sync=False)
    assert kept.read("a-1") == LIFE
    assert [life.id for life in kept.found()[0]] == ["a-0", "a-1"]
    for wrong in (replace(LIFE, id="a/b"), replace(LIFE, session_id="s-2")):
        with pytest.raises(ValueError, match="no agent of this session"):
            kept.write(wrong)
    MemoryAgentFiles().write(replace(LIFE, session_id="any"))
    assert kept.transcript_path("a-1") == ""
    for nowhere in ("", None):
        assert kept.check_transcript(replace(LIFE, transcript=nowhere)).lines == 0
