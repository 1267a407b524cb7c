"""Claude Code as a neighbour: its records, which of them count, and what is said to it and heard from it (05.28, 09.13).

What real sessions of version 2.1.332 wrote is under `recorded/claude_code`; the parties are held against that.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import BadFrame, UnfitPath, Unsupported
from postroom.neighbour import Look
from postroom.neighbours import claude_code, claude_record, folder_of, load, records, there
from postroom.neighbours.claude_code import ClaudeCode
from postroom.state import processes
from postroom.state.record import FormerName, Record
from tests.claudes import claude, recorded
from tests.strangers import needs_root


@pytest.fixture
def near(home: Path) -> ClaudeCode:
    """Claude Code, with its folder in the private home."""
    return claude_code.neighbour(os.environ, str(home / "claude/sessions"))


def mine(name: str = "bob", **more: Any) -> Record:
    """The record of a session of ours in this process."""
    pid = os.getpid()
    values: dict[str, Any] = {
        "pid": pid,
        "proc_start": processes.start_of(pid) or "",
        "pid_domain": processes.pid_domain(),
        "session_id": "3700395e-bfd6-464b-945a-e4aa0ed5dfc8",
        "name": name,
        "cwd": "/srv",
        "started_at": 1000,
        "version": "0.1",
    }
    return Record(**{**values, **more})


@contextlib.contextmanager
def registered(near: ClaudeCode, pid: int, /, **fields: object) -> Generator[Path]:
    """A record as it was recorded, of a process that runs, with other values where given; None leaves one out."""
    folder = Path(near.folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    sockets = folder.parent.parent / "run/cc-socks"
    sockets.mkdir(exist_ok=True, mode=0o700)
    path = str(sockets / f"{pid}.sock")
    record = recorded("record")["record"] | {
        "pid": pid,
        "procStart": processes.start_of(pid),
        "pidDomain": processes.pid_domain(),
        "messagingSocketPath": path,
    }
    record |= fields
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        os.chmod(path, 0o600)
        listening.listen()
        file = folder / f"{pid}.json"
        file.write_text(json.dumps({key: value for key, value in record.items() if value is not None}))
        yield file
    for left in (file, Path(path)):
        left.unlink(missing_ok=True)


def reason_of(look: Look) -> str:
    """Why the one record that is there was passed over."""
    assert look.found == ()
    [(_, reason)] = look.skipped
    return reason


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.28")
def test_a_real_record_is_read(near: ClaudeCode) -> None:
    """Every field that a real session wrote has its place."""
    raw = recorded("record")["record"]
    with registered(near, os.getpid()):
        [found] = near.look().found
    assert found.name == "real-uno"
    assert found.former == ("real-one",)
    assert found.session_ids == (raw["sessionId"],)
    assert (found.cwd, found.presence, found.state) == (raw["cwd"], "interactive", "idle")
    assert (found.version, found.started_at, found.tells_idle) == ("2.1.332", raw["startedAt"], True)
    assert (found.pid, found.start) == (os.getpid(), processes.start_of(os.getpid()))
    assert found.identity == f"claude-code:{found.pid}:{found.start}"
    assert found.token == ""


@pytest.mark.rule("05.28")
def test_the_party_of_the_tests_is_like_a_real_one(home: Path) -> None:
    real = recorded("record")
    with claude(home) as party:
        assert party.record.keys() == real["record"].keys() - {"formerNames"}
        assert {key: type(value) for key, value in party.record.items()} == {
            key: type(real["record"][key]) for key in party.record
        }
        [key] = (home / "claude/sessions").glob("*.key")
        assert json.loads(key.read_text()).keys() == real["key"].keys()
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert party.record["pidDomain"] == processes.pid_domain()


@pytest.mark.rule("05.28")
def test_a_session_of_claude_code_is_found_with_its_token(home: Path, near: ClaudeCode) -> None:
    with claude(home, "real") as party:
        [found] = near.look().found
        assert (found.name, found.path, found.token, found.identity) == (
            "real",
            party.path,
            party.token,
            party.identity,
        )
        assert party.token not in repr(found)
        assert near.probe(found)
        # It is written in place, again and again: what is half written does not hide it, what is new is seen.
        mark = near.mark()
        party.rewrite(name="renamed", status="busy", formerNames=[{"name": "real", "until": 5}])
        assert near.mark() != mark
        [again] = near.look().found
        assert (again.name, again.state, again.former) == ("renamed", "busy", ("real",))
    assert near.look() == Look()
    assert not near.probe(found)


@pytest.mark.rule("05.28")
def test_a_cleared_conversation_is_the_same_peer(home: Path, near: ClaudeCode) -> None:
    with claude(home, "real") as party:
        [before] = near.look().found
        party.rewrite(
            sessionId="another-id",
            formerNames=[{"name": "old", "until": 5, "sessionId": before.session_ids[0]}],
        )
        [after] = near.look().found
    assert after.identity == before.identity
    assert after.session_ids == ("another-id", before.session_ids[0])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"pid": 4_000_000}, "the name of the file does not fit its pid"),
        ({"pid": "7"}, "pid is not what it should be"),
        ({"sessionId": None}, "sessionId is missing"),
        ({"name": ""}, "name is not what it should be"),
        ({"messagingSocketPath": "uds:/x.sock"}, "messagingSocketPath is not what it should be"),
        ({"messagingSocketPath": "/a/../b.sock"}, "messagingSocketPath is not what it should be"),
        ({"messagingSocketPath": f"/{'a' * 103}"}, "messagingSocketPath is not what it should be"),
        ({"messagingSocketPath": "/nowhere/7.sock"}, "its socket must not be used: /nowhere: does not exist"),
        ({"peerProtocol": 2}, "it speaks a later protocol"),
        ({"procStart": "1"}, "its process has ended"),
        ({"spare": True}, "it is spare or parked"),
        ({"parkedJobId": "j"}, "it is spare or parked"),
    ],
    ids=str,
)
@pytest.mark.rule("05.10", "05.28")
def test_a_record_that_does_not_count_is_skipped_and_stays(
    near: ClaudeCode, fields: dict[str, object], reason: str
) -> None:
    with registered(near, os.getpid(), **fields) as file:
        assert reason_of(near.look()) == reason
        assert file.exists()


@pytest.mark.rule("05.28")
def test_who_takes_nothing_is_there_and_says_so(near: ClaudeCode) -> None:
    """Messaging is off in that session, or it speaks no protocol: it is listed, and cannot be written to."""
    for fields in ({"messagingSocketPath": None}, {"peerProtocol": None}):
        with registered(near, os.getpid(), **fields):
            [found] = near.look().found
            assert found.condition == "cannot receive messages"
            assert near.probe(found)


def another_kind(file: Path) -> None:
    file.unlink()
    file.mkdir()


def a_link(file: Path) -> None:
    file.rename(file.with_suffix(".elsewhere"))
    file.symlink_to(file.with_suffix(".elsewhere"))


def a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def huge(file: Path) -> None:
    file.write_text(json.dumps({"pid": os.getpid(), "cwd": "x" * 70_000}))


def no_json(file: Path) -> None:
    file.write_text('{"pid":')


def a_list(file: Path) -> None:
    file.write_text("[1]")


def deep(file: Path) -> None:
    file.write_text("[" * 60_000)


def loose(file: Path) -> None:
    file.chmod(0o666)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (another_kind, "not a regular file"),
        (a_link, "a symlink, which is not followed"),
        (a_pipe, "not a regular file"),
        (huge, "larger than 65536 bytes"),
        (no_json, "not JSON"),
        (a_list, "not a JSON object"),
        (deep, "not JSON"),
        (loose, "others have access to it (mode 0666)"),
    ],
)
@pytest.mark.rule("05.6", "05.10")
def test_a_hostile_file_is_skipped_and_stays(
    near: ClaudeCode, spoil: Callable[[Path], None], reason: str
) -> None:
    with registered(near, os.getpid()) as file:
        spoil(file)
        assert reason_of(near.look()) == reason
        assert os.path.lexists(file)
        if file.is_dir():
            file.rmdir()


@needs_root
@pytest.mark.rule("05.6", "05.10")
def test_another_users_record_or_socket_counts_for_nothing(near: ClaudeCode) -> None:
    with registered(near, os.getpid()) as file:
        os.chown(file, 65534, 65534)
        assert "uid 65534" in reason_of(near.look())
    with registered(near, os.getpid()) as file:
        path = json.loads(file.read_text())["messagingSocketPath"]
        os.chown(path, 65534, 65534)
        assert reason_of(near.look()) == f"its socket must not be used: {path}: it belongs to uid 65534"
        assert os.path.lexists(path)


@pytest.mark.rule("05.6")
def test_a_socket_in_an_unfit_folder_is_not_used(near: ClaudeCode) -> None:
    with registered(near, os.getpid()) as file:
        folder = Path(json.loads(file.read_text())["messagingSocketPath"]).parent
        [found] = near.look().found
        folder.chmod(0o777)
        look = near.look()
        assert "others have access to it" in reason_of(look)
        assert look.unfit == look.skipped
        assert not near.probe(found)
        folder.chmod(0o700)


@pytest.mark.rule("05.6")
def test_an_unfit_folder_of_records_is_said_to_be_unchecked(near: ClaudeCode) -> None:
    with registered(near, os.getpid()):
        os.chmod(near.folder, 0o755)
        look = near.look()
        assert look.found == ()
        [(place, reason)] = look.unchecked
        assert (place, "others have access" in reason) == (near.folder, True)
        os.chmod(near.folder, 0o700)


@pytest.mark.rule("05.10", "05.28")
def test_a_dead_session_is_told_from_a_live_one_and_left_alone(home: Path, near: ClaudeCode) -> None:
    with claude(home, "gone") as party:
        party.kill()
        look = near.look()
        assert [found.name for found in look.ended] == ["gone"]
        assert (look.found, look.unfit) == ((), ())
        assert party.file.exists()
        assert os.path.lexists(party.path)


@pytest.mark.rule("05.11")
def test_a_record_of_another_pid_namespace_is_judged_by_its_socket(near: ClaudeCode) -> None:
    with registered(near, 4_000_001, pidDomain="linux:x:pid:[1]", procStart="77"):
        [found] = near.look().found
        assert (found.pid, found.start) == (0, "")
        assert near.probe(found)
    assert not near.probe(found)


@pytest.mark.parametrize(
    "key", ["no json", "[]", '{"peerToken": 7}', '{"peerToken": "a b\\n"}', '{"peerToken": ""}']
)
def test_a_key_file_that_is_none_gives_no_token(home: Path, near: ClaudeCode, key: str) -> None:
    with claude(home) as party:
        [file] = (home / "claude/sessions").glob("*.key")
        party.rewrite(status="busy")
        file.write_text(key)
        [found] = near.look().found
        assert found.token == ""


@pytest.mark.rule("05.28")
def test_a_record_seen_while_it_is_written_does_not_hide_its_session(
    home: Path, near: ClaudeCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That program writes its record in place, so that a reader may see half of it."""
    monkeypatch.setattr(records, "TORN_NS", 10**15)
    with claude(home, "real") as party:
        [found] = near.look().found
        whole = party.file.read_bytes()
        party.file.write_bytes(whole[:50])
        assert near.look().found == (found,)
        monkeypatch.setattr(records, "TORN_NS", 0)
        assert reason_of(near.look()) == "not JSON"
        party.file.write_bytes(whole)
        assert near.look().found == (found,)


@given(st.binary(max_size=300))
def test_no_bytes_make_reading_fail(data: bytes) -> None:
    with contextlib.suppress(BadFrame):
        claude_record.parse("7.json", data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(recorded("record")["record"])), JSON, max_size=6))
def test_no_fields_make_reading_fail_and_what_is_read_can_be_shown(fields: dict[str, object]) -> None:
    raw = recorded("record")["record"] | {"pid": 1975} | fields
    try:
        found = claude_record.parse("1975.json", json.dumps(raw).encode()).found
    except BadFrame:
        return
    assert found.name.strip()
    assert found.name.encode()
    assert len(found.name) <= 200
    assert found.path == "" or (found.path.startswith("/") and len(os.fsencode(found.path)) <= 103)
    assert found.state in ("idle", "busy", "waiting")
    assert found.presence in ("interactive", "bg", "external")
    assert all(
        isinstance(each, str) for each in (*found.former, *found.session_ids, found.cwd, found.version)
    )


# ── being one of them ────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.13", "05.28")
def test_a_record_of_ours_has_what_a_real_one_has(home: Path, near: ClaudeCode) -> None:
    path = near.socket_path(os.getpid())
    assert path == str(home / f"run/cc-socks/{os.getpid()}.sock")
    record = mine(former_names=(FormerName(name="old", until=9),), status="busy", name_source="user")
    near.publish(record, path, "t" * 32)
    raw = json.loads((home / f"claude/sessions/{os.getpid()}.json").read_text())
    real = recorded("record")["record"]
    assert real.keys() - raw.keys() == {"asksForConvertedSkills"}
    assert {key: type(raw[key]) for key in real.keys() & raw.keys()} == {
        key: type(real[key]) for key in real.keys() & raw.keys()
    }
    assert (raw["name"], raw["status"], raw["peerProtocol"], raw["peerFeatures"]) == (
        "bob",
        "busy",
        1,
        ["notify_idle"],
    )
    assert raw["formerNames"] == [{"name": "old", "until": 9}]
    [key] = (home / "claude/sessions").glob("*.key")
    assert json.loads(key.read_text()).keys() == recorded("record")["key"].keys()
    assert {stat.S_IMODE(one.stat().st_mode) for one in key.parent.iterdir()} == {0o600}
    # To itself it is no neighbour, and leaving takes everything.
    Path(path).touch()
    assert near.look().found == ()
    near.withdraw(record, path)
    assert list(key.parent.iterdir()) == []
    assert not os.path.lexists(path)


def test_the_sockets_lie_where_those_of_its_sessions_lie(home: Path) -> None:
    near = claude_code.neighbour({"XDG_RUNTIME_DIR": str(home / "other")}, str(home / "claude/sessions"))
    (home / "other").mkdir(mode=0o700)
    assert near.socket_path(7) == str(home / "other/cc-socks/7.sock")
    with claude(home) as party:
        assert near.socket_path(7) == str(Path(party.path).parent / "7.sock")
        assert near.near(party.path)
        # A name that a live socket has is not taken.
        assert near.socket_path(party.pid).startswith(f"{Path(party.path).parent}/{party.pid}-")


def test_a_folder_that_must_not_be_trusted_is_passed_over(home: Path, near: ClaudeCode) -> None:
    (home / "run/cc-socks").mkdir(mode=0o777)
    (home / "run/cc-socks").chmod(0o777)
    assert near.socket_path(7) == f"/tmp/cc-socks-{os.geteuid()}/7.sock"
    long = claude_code.neighbour({"XDG_RUNTIME_DIR": f"{home}/{'x' * 90}"}, near.folder)
    assert long.socket_path(7) == f"/tmp/cc-socks-{os.geteuid()}/7.sock"


@pytest.mark.rule("05.10")
def test_what_ours_left_is_swept_and_nothing_else(home: Path, near: ClaudeCode) -> None:
    """A killed session of ours leaves record, key and socket; a record that only names somebody's socket takes none."""
    for number, path in (
        (4_000_002, str(home / "run/cc-socks/4000002.sock")),
        (4_000_003, str(home / "run/cc-socks/precious.sock")),
    ):
        (home / "run/cc-socks").mkdir(mode=0o700, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(path)
            os.chmod(path, 0o600)
        near.publish(mine(pid=number, proc_start="77"), path, "t" * 32)
    with claude(home) as party:
        near.sweep_own()
        assert [found.name for found in near.look().found] == ["claude-one"]
        assert {one.name.partition(".")[0] for one in (home / "claude/sessions").iterdir()} == {
            str(party.pid)
        }
        assert os.path.lexists(party.path)
    assert sorted(one.name for one in (home / "run/cc-socks").iterdir()) == ["precious.sock"]


@pytest.mark.rule("05.10", "05.28")
def test_a_live_record_of_somebody_else_is_not_replaced(home: Path, near: ClaudeCode) -> None:
    with registered(near, os.getpid()) as file:
        before = file.read_bytes()
        with pytest.raises(UnfitPath, match="registered there"):
            near.publish(mine(), str(home / "run/cc-socks/x.sock"), "t" * 32)
        near.withdraw(mine(), str(home / "run/cc-socks/x.sock"))
        assert file.read_bytes() == before


def test_more_records_than_any_machine_has_are_not_read(
    near: ClaudeCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_FILES", 1)
    with registered(near, os.getpid()):
        for number in (1, 2):
            (Path(near.folder) / f"99999{number}.json").write_text("{}")
        (Path(near.folder) / "007.json").write_text("{}")
        (Path(near.folder) / "notes.json").write_text("{}")
        look = near.look()
        assert len(look.found) + len(look.skipped) == 1


def test_a_program_that_nobody_knows_is_said_to_be_unknown() -> None:
    with pytest.raises(Unsupported, match="Nothing here knows"):
        load("mystery", {})


def test_a_folder_says_whether_the_program_is_here(home: Path) -> None:
    assert there(os.environ) == []
    assert folder_of("claude-code", {"HOME": "/h"}) == "/h/.claude/sessions"
    assert folder_of("claude-code", {"HOME": "/h", "CLAUDE_CONFIG_DIR": "/c"}) == "/c/sessions"
    assert folder_of("claude-code", {"CLAUDE_CONFIG_DIR": "c"}) == folder_of("claude-code", {}) == ""
    with claude(home):
        assert there(os.environ) == ["claude-code"]
        found = load("claude-code", os.environ).look().found
        assert [one.name for one in found] == ["claude-one"]
