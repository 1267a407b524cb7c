"""Transcripts on a real disk: written, torn, lost on a full disk, and every other file that may lie in their place."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from postroom.core.message import Party, Pin, Receipt, Refusal
from postroom.core.transcript import MAX_TURN, AgentSeen, Header, Rebuilt
from postroom.state import transcripts
from postroom.state.transcripts import MAX_TRANSCRIPT, Transcript, Unusable, read

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user, or mount a disk")

OTHER = 54321
HEADER = {"session": "s-1", "agent": "a-1", "name": "worker", "agent_type": "coder"}
PIN = Pin(name="api-worker", identity="0b0e")
SENT = Receipt(status="queued", msg_id="m-1", to=Party(name="api-worker", ref="3fa9c1"), note="", pin=PIN)
GOOD = b'{"role": "user"}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a transcript may lie, in a private folder."""
    tmp_path.chmod(0o700)
    return tmp_path / "transcript.jsonl"


def opened(path: Path, said: list[str] | None = None) -> Transcript:
    return Transcript(
        str(path),
        header=HEADER,
        problem=(lambda _: None) if said is None else said.append,
        clock=lambda: 1_000,
    )


def put(path: Path, data: bytes, mode: int = 0o600) -> None:
    path.write_bytes(data)
    path.chmod(mode)


def values(path: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in path.read_bytes().splitlines()]


def types(path: Path) -> list[str]:
    return [each["type"] for each in values(path)]


def reason(path: Path | str, *, readable: bool = False) -> str:
    with pytest.raises(Unusable) as caught:
        read(str(path), readable=readable)
    said = caught.value.reason
    assert said.startswith("its transcript ")
    assert not said.endswith(".")
    assert "/tmp" not in said
    assert str(caught.value) == said
    return said


# ── writing ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.17")
def test_a_new_transcript_begins_with_whose_it_is_and_is_private(path: Path) -> None:
    kept = opened(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert values(path) == [{"postroom": 1, "at": "1970-01-01T00:00:01.000Z", "type": "header", **HEADER}]
    kept.write({"role": "user", "content": "größe", "type": "message"})
    kept.sent("api", SENT)
    kept.sent("api", Refusal(code="not_found", message="Nobody.", hint=""))
    kept.event("agent_started", id="a-1", name="worker", agent_type="coder", run=1)
    kept.event("agent_stopped", id="a-1", run=1, status="completed")
    assert types(path) == ["header", "turn", "sent", "sent", "agent_started", "agent_stopped"]
    assert values(path)[1]["turn"] == {"role": "user", "content": "größe", "type": "message"}
    assert read(str(path)) == Rebuilt(
        pins=(("api", PIN),),
        agents={"a-1": AgentSeen("a-1", "worker", "coder", "completed", 1)},
        header=Header("s-1", "a-1", "worker", "coder"),
        lines=6,
    )


def test_a_transcript_that_is_there_is_gone_on_with(path: Path) -> None:
    opened(path).write({"n": 1})
    opened(path).write({"n": 2})
    assert types(path) == ["header", "turn", "turn"]


@pytest.mark.rule("02.17")
def test_after_a_torn_line_the_next_one_stands_alone(path: Path) -> None:
    """Torn at every byte: what a killed writer leaves costs that one line."""
    first = opened(path)
    first.sent("api", SENT)
    whole = path.read_bytes()
    start = whole.index(b"\n") + 1
    for end in range(start, len(whole)):
        put(path, whole[:end])
        opened(path).write({"n": 1})
        found = read(str(path))
        assert (found.header is not None, found.skipped) == (True, int(start < end < len(whole) - 1))
        assert found.lines == 2 + (end == len(whole) - 1)


def test_a_line_that_is_torn_while_its_writer_lives_is_healed_too(path: Path) -> None:
    kept = opened(path)
    with path.open("ab") as other:
        other.write(b'{"half')
    kept.write({"n": 1})
    assert (read(str(path)).lines, read(str(path)).skipped) == (2, 1)


def test_a_killed_writer_leaves_whole_lines(path: Path) -> None:
    code = (
        "import itertools\nfrom postroom.state.transcripts import Transcript\n"
        f"kept = Transcript({str(path)!r}, header={HEADER!r})\nprint(flush=True)\n"
        "for n in itertools.count(): kept.write({'n': n, 'text': 'x' * 5000})\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        while path.stat().st_size < 100_000:
            assert writer.poll() is None
        writer.send_signal(signal.SIGKILL)
    found = read(str(path))
    assert found.header == Header(*HEADER.values())
    assert found.skipped <= 1
    assert found.lines > 10


def test_several_threads_write_whole_lines(path: Path) -> None:
    kept = opened(path)

    def write(number: int) -> None:
        kept.write({"n": number})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(200)))
    assert sorted(each["turn"]["n"] for each in values(path)[1:]) == list(range(200))


def test_nothing_is_kept_without_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    kept = Transcript("", header=HEADER, problem=said.append)
    kept.write({"role": "user"})
    kept.sent("api", SENT)
    assert (said, kept.lost, list(tmp_path.iterdir())) == ([], 0, [])


def test_the_machines_clock_is_the_default(path: Path) -> None:
    Transcript(str(path), header={"session": "s"})
    assert values(path)[0]["at"] > "2025"


def test_what_no_json_can_say_is_the_hosts_mistake(path: Path) -> None:
    kept = opened(path)
    with pytest.raises(ValueError, match="JSON compliant"):
        kept.write({"n": float("nan")})
    kept.write({"text": "\ud800"})
    assert types(path) == ["header", "turn"]
    assert kept.lost == 0


def test_a_line_that_would_not_be_read_is_named_and_left_out(path: Path) -> None:
    kept = opened(path)
    kept.write({"picture": "x" * MAX_TURN})
    line = values(path)[1]
    assert (line["type"], line["was"]) == ("too-long", "turn")
    assert line["bytes"] > MAX_TURN
    assert read(str(path)).skipped == 0


def test_a_transcript_never_grows_beyond_what_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "MAX_TRANSCRIPT", 1024 * 1024)
    said: list[str] = []
    kept = opened(path, said)
    while not kept.lost:
        kept.write({"text": "x" * 100_000})
    assert path.stat().st_size <= 1024 * 1024
    assert said == ["Lines of the transcript of the agent a-1 are lost: it has 1 MiB already."]
    assert read(str(path)).lines > 5


@pytest.mark.parametrize("what", ["folder gone", "symlink", "fifo", "folder", "group"])
def test_where_it_must_not_be_written_it_is_said_once(path: Path, what: str) -> None:
    elsewhere = path.with_name("elsewhere")
    put(elsewhere, b"")
    says = {
        "folder gone": "its folder is gone",
        "symlink": "a symlink, which is not followed",
        "fifo": "not a regular file",
        "folder": "a folder where a file should be",
        "group": "others have access to it (mode 0640)",
    }
    match what:
        case "folder gone":
            path = path.parent / "none" / path.name
        case "symlink":
            path.symlink_to(elsewhere)
        case "fifo":
            os.mkfifo(path, 0o600)
        case "folder":
            path.mkdir(mode=0o700)
        case _:
            put(path, b"", 0o640)
    said: list[str] = []
    kept = opened(path, said)
    kept.write({"n": 1})
    assert said == [f"Lines of the transcript of the agent a-1 are lost: {says[what]}."]
    assert kept.lost == 1
    assert elsewhere.read_bytes() == b""


def test_nobody_needs_to_be_told(path: Path) -> None:
    kept = Transcript(str(path.parent / "none" / "x"), header={"session": "s"})
    kept.write({"n": 1})
    assert kept.lost == 1


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
def test_on_a_full_disk_it_is_said_once_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    """Needs root. The line that was torn, and those that were lost, are seen in the file afterwards."""
    path, said = small_disk / "transcript.jsonl", list[str]()
    kept = Transcript(str(path), header={"session": "s"}, problem=said.append)
    kept.write({"n": 1})
    stone = small_disk / "stone"
    stone.write_bytes(bytes(900_000))
    for n in range(3):
        kept.write({"n": n, "text": "x" * 200_000})
    assert (kept.lost, said) == (
        3,
        ["Lines of the transcript of the main conversation are lost: No space left on device."],
    )
    stone.unlink()
    kept.write({"n": 2})
    kept.write({"n": 3})
    *_, torn, lost, two, three = path.read_bytes().splitlines()
    assert torn.startswith(b'{"postroom":1,')
    assert (json.loads(lost)["type"], json.loads(lost)["lines"]) == ("lost", 3)
    assert [json.loads(each)["turn"]["n"] for each in (two, three)] == [2, 3]
    assert (read(str(path)).lines, read(str(path)).skipped) == (5, 1)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.26")
def test_a_transcript_that_cannot_be_trusted_is_not_read(path: Path) -> None:
    """Each by its reason, which names no path; none of them is waited for."""
    real, link = path.with_name("real"), path.with_name("link")
    put(real, GOOD)
    link.symlink_to(real)
    fifo, folder, device = path.with_name("fifo"), path.with_name("folder"), Path("/dev/zero")
    os.mkfifo(fifo, 0o600)
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path.with_name("sock")))
        assert reason(path.with_name("sock")) == "its transcript cannot be used: not a regular file"
    assert reason(path) == "its transcript is missing"
    assert reason(real / "x") == "its transcript cannot be used: not a folder"
    assert reason(link) == "its transcript cannot be used: a symlink, which is not followed"
    assert reason(fifo) == "its transcript cannot be used: not a regular file"
    assert reason(folder) == "its transcript cannot be used: not a regular file"
    assert reason(device) == "its transcript cannot be used: not a regular file"
    assert reason("transcript.jsonl") == "its transcript cannot be used: not an absolute path"
    assert reason("/tmp/\0") == "its transcript cannot be used: not a path of this system"
    assert reason("/tmp/\ud800") == "its transcript cannot be used: not a path of this system"


@pytest.mark.rule("02.26")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o620, 0o602])
def test_a_transcript_that_is_open_to_others_is_not_read(path: Path, mode: int) -> None:
    put(path, GOOD, mode)
    assert reason(path) == f"its transcript cannot be used: others have access to it (mode {mode:04o})"


def test_a_hosts_own_may_be_read_by_others_and_written_by_nobody_else(path: Path) -> None:
    for mode in (0o644, 0o640, 0o600):
        put(path, GOOD, mode)
        assert read(str(path), readable=True).lines == 1
    for mode in (0o664, 0o646):
        put(path, GOOD, mode)
        assert "others have access" in reason(path, readable=True)


@as_root
@pytest.mark.rule("02.26")
def test_another_users_transcript_is_not_read(path: Path) -> None:
    """Needs root."""
    put(path, GOOD, 0o644)
    os.chown(path, OTHER, -1)
    assert reason(path, readable=True) == f"its transcript cannot be used: it belongs to uid {OTHER}"


@pytest.mark.rule("02.26")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n \n",
        b"\0" * 5000,
        b"\xff\xfe{\0}\0",
        b"not json",
        b'{"a": 1',
        b"[" * 100_000,
        b'{"n": ' + b"9" * 5000 + b"}",
        b"[1]\n2\n",
        b"\xef\xbb\xbf",
    ],
    ids=["empty", "blank", "nul", "utf-16", "text", "torn", "deep", "number", "no object", "mark"],
)
def test_a_transcript_without_one_good_line_is_not_used(path: Path, data: bytes) -> None:
    put(path, data)
    assert reason(path) == "its transcript holds no line that can be read"


@pytest.mark.rule("02.26")
def test_a_transcript_of_a_newer_version_is_not_used(path: Path) -> None:
    put(path, GOOD + b'{"postroom": 7, "type": "header"}\n')
    assert reason(path) == "its transcript is of a newer version (7; this one reads 1)"


@pytest.mark.rule("02.26")
def test_a_transcript_that_is_too_large_is_not_read(path: Path) -> None:
    put(path, GOOD)
    os.truncate(path, MAX_TRANSCRIPT + 1)
    assert reason(path) == "its transcript cannot be used: larger than 256 MiB"


def test_one_that_grows_while_it_is_read_is_read_so_far(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its lines are the same however they lie in what is read at once."""
    monkeypatch.setattr(transcripts, "MAX_TRANSCRIPT", 10 * len(GOOD))
    monkeypatch.setattr(transcripts, "CHUNK", 5)
    put(path, GOOD * 3)
    real = os.read

    def growing(fd: int, count: int) -> bytes:
        with path.open("ab") as file:
            file.write(GOOD)
        return real(fd, count)

    monkeypatch.setattr(os, "read", growing)
    assert read(str(path)).lines == 10


def test_a_line_that_is_too_long_is_passed_over_and_never_held(path: Path) -> None:
    """A line of three times as much as is held, one that just is too long, and one at the end."""
    put(path, GOOD)
    with path.open("ab") as file:
        for size in (3 * MAX_TURN, MAX_TURN, None):
            file.write(b'{"a":"')
            file.write(b"x" * (size or 2 * MAX_TURN))
            file.write(b'"}\n' + GOOD if size else b"")
    found = read(str(path))
    assert (found.lines, found.skipped) == (3, 3)


def test_a_last_line_without_its_end_counts_where_it_is_whole(path: Path) -> None:
    put(path, GOOD + GOOD.strip())
    assert read(str(path)) == Rebuilt(lines=2)


def test_a_disk_that_cannot_be_read_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(path, GOOD)

    def broken(_fd: int, _count: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "read", broken)
    assert reason(path) == "its transcript cannot be read: Input/output error"
