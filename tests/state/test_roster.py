"""The roster with real files and real processes that are killed, forked, resumed and renamed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import NoSession, SessionInUse, StoreFailed
from postroom.state import belongings, files, processes, readings, roster
from postroom.state.readings import settled
from postroom.state.record import FormerName, Record, from_json
from postroom.state.roster import KEPT_MS, Roster
from postroom.state.tenure import read_tenure
from tests.state.lodging import House, dead_pid, here

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user, or make namespaces")

OTHER = 54321
ELSEWHERE = "linux:elsewhere:pid:[1]"


@pytest.fixture
def house(home: Path) -> Iterator[House]:
    house = House(home)
    yield house
    house.close()


def reasons(house: House) -> dict[str, str]:
    """What is not listed, and why."""
    return dict(house.roster.scan().skipped)


def bury(house: House, session_id: str, **fields: Any) -> Record:
    """A session that ended without tidying up: its folder, a free lock, its record."""
    lock = house.roster.open_folder(session_id)
    lock.release()
    record = here(session_id, **fields)
    house.put(record)
    return record


def hold_as(house: House, record: Record) -> files.Lock:
    """Holds a session's lock and lets it say that the process of this record does."""
    lock = house.roster.open_folder(record.session_id)
    tenure = read_tenure(lock.path)
    assert tenure is not None
    said = replace(tenure, pid=record.pid, start=record.proc_start)
    lock.write(replace(said, boot_id=record.boot_id, pid_domain=record.pid_domain).to_bytes())
    return lock


# ── publishing and leaving ───────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.3", "05.4", "05.29")
def test_a_session_is_listed_with_its_files_private(house: House) -> None:
    lodger = house.open("abc", name="reviewer", sockets=str(house.sockets), client=[os.getpid(), "77"])
    (record,) = house.roster.scan().live
    assert (record.pid, record.proc_start, record.session_id) == (lodger.pid, lodger.start, "abc")
    assert record.name == "reviewer"
    path = f"{house.sockets}/{lodger.pid}.sock"
    assert record.messaging_socket_path == path
    key = f"{lodger.pid}.{sha256(path.encode()).hexdigest()}.key"
    assert house.files() == {f"{lodger.pid}.json", key, f"client-{os.getpid()}-77"}
    assert json.loads((house.sessions / key).read_text()) == {
        "peerToken": "0" * 32,
        "procStart": lodger.start,
        "pidDomain": processes.pid_domain(),
    }
    for name in house.files():
        assert stat.S_IMODE((house.sessions / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((house.sessions / "abc").stat().st_mode) == 0o700
    assert "0" * 32 not in (house.sessions / f"{lodger.pid}.json").read_text()
    assert house.roster.peer_token(record) == "0" * 32
    assert house.roster.peer_token(replace(record, proc_start="1")) is None
    assert house.roster.peer_token(replace(record, messaging_socket_path=None)) is None


@pytest.mark.rule("05.29", "02.13")
def test_a_session_that_leaves_takes_everything_with_it_but_its_folder(house: House) -> None:
    lodger = house.open("abc", name="reviewer", sockets=str(house.sockets), client=[os.getpid(), "77"])
    assert house.roster.ended("reviewer") is None
    assert lodger.tell("leave") == "left"
    assert house.files() == set()
    assert house.names() == []
    assert house.roster.has_folder("abc")
    assert not house.roster.lives("abc")
    assert house.roster.ended("reviewer") == house.roster.ended("abc") == ("reviewer", 12345)


@pytest.mark.rule("05.29")
def test_leaving_twice_or_after_somebody_else_took_the_place_harms_nobody(house: House) -> None:
    lock = house.roster.open_folder("abc")
    record = here("abc")
    path = house.roster.publish(record)
    house.put(here("other"))
    house.roster.remove(record)
    assert from_json(Path(path).read_bytes()).session_id == "other"
    house.roster.leave(record, lock, 1)
    house.roster.leave(record, lock, 2)
    assert house.roster.ended("abc") == ("abc", 1)
    shutil.rmtree(house.state)
    house.roster.remove(record)


@pytest.mark.rule("05.29")
def test_a_session_can_leave_while_it_holds_the_registrys_lock(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal handler does that came in the middle of publishing."""
    lock = house.roster.open_folder("abc")
    record = here("abc")
    house.roster.publish(record)
    registry = files.Lock(f"{house.sessions}/.lock")
    assert registry.acquire()
    monkeypatch.setattr(roster, "SWEEP_SECONDS", 0)
    house.roster.leave(record, lock, 1)
    registry.release()
    assert house.files() == set()


@pytest.mark.rule("05.29")
def test_a_newer_state_is_published_in_the_same_file(house: House) -> None:
    lock = house.roster.open_folder("abc")
    record = here("abc")
    path = house.roster.publish(record)
    assert house.roster.publish(record.doing("busy", 5)) == path
    assert [each.status for each in house.roster.scan().live] == ["busy"]
    lock.release()


@pytest.mark.rule("05.3", "05.5")
def test_a_record_moves_with_its_socket(house: House) -> None:
    lock = house.roster.open_folder("abc")
    house.roster.publish(here("abc"))
    moved = here("abc").listening(f"{house.sockets}/{os.getpid()}-0a1b2c3d.sock", (), 1)
    house.roster.publish(moved)
    assert house.files() == {f"{os.getpid()}-0a1b2c3d.json"}
    lock.release()


@pytest.mark.rule("05.3")
def test_several_sessions_of_one_process_have_a_file_each(house: House) -> None:
    pid = os.getpid()
    locks = [house.roster.open_folder(session_id) for session_id in ("a", "b", "c")]
    stems = [house.roster.free_stem(pid) for _ in locks]
    assert stems[0] == str(pid)
    assert all(len(stem) == len(f"{pid}-01234567") for stem in stems[1:])
    assert len(set(stems)) == 3
    records = [
        here(session_id).listening(f"{house.sockets}/{stem}.sock", (), 1)
        for session_id, stem in zip(("a", "b", "c"), stems, strict=True)
    ]
    for record in records:
        house.roster.publish(record)
    assert house.files() == {f"{stem}.json" for stem in stems}
    assert house.roster.sessions_at(pid, records[0].proc_start) == tuple(
        record.session_id for record in sorted(records, key=lambda record: f"{record.stem}.json")
    )
    house.roster.leave(records[1], locks[1], 1)
    assert house.names() == ["a", "c"]
    assert house.roster.free_stem(pid) != str(pid)
    house.roster.leave(records[0], locks[0], 1)
    assert house.roster.free_stem(pid) == str(pid)
    house.roster.leave(records[2], locks[2], 1)
    house.roster.remove(here("nobody"))


@pytest.mark.rule("05.10")
def test_a_live_foreign_record_of_our_pid_is_not_replaced(house: House) -> None:
    """Two pid namespaces over one folder: the pid is taken by a session that we cannot see."""
    foreign = replace(here("foreign"), pid_domain=ELSEWHERE, proc_start="9")
    held = hold_as(house, foreign)
    house.put(foreign)
    lock = house.roster.open_folder("ours")
    assert house.roster.free_stem(os.getpid()) != str(os.getpid())
    path = house.roster.publish(here("ours"))
    assert Path(path).name != f"{os.getpid()}.json"
    assert from_json((house.sessions / f"{os.getpid()}.json").read_bytes()) == foreign
    assert house.names() == ["foreign", "ours"]
    held.release()
    assert house.names() == ["ours"]
    assert from_json((house.sessions / f"{os.getpid()}.json").read_bytes()) == foreign
    lock.release()


@pytest.mark.rule("05.10")
def test_a_record_that_cannot_be_read_is_not_replaced_either(house: House) -> None:
    (house.sessions / f"{os.getpid()}.json").write_text("half a rec")
    lock = house.roster.open_folder("ours")
    path = house.roster.publish(here("ours"))
    assert Path(path).name != f"{os.getpid()}.json"
    assert (house.sessions / f"{os.getpid()}.json").read_text() == "half a rec"
    lock.release()


@pytest.mark.rule("05.11")
def test_what_a_dead_process_of_our_pid_left_is_swept_before_we_listen(house: House) -> None:
    record = bury(house, "old", proc_start="1").listening(f"{house.sockets}/{os.getpid()}.sock", (), 1)
    house.put(record)
    house.roster.write_key(record.stem, f"{house.sockets}/{os.getpid()}.sock", "1" * 32)
    assert house.roster.free_stem(os.getpid()) == str(os.getpid())
    assert house.files() == set()
    house.roster.remove(here("nobody"))  # gives the stem back


@pytest.mark.rule("05.11")
def test_a_dead_record_of_our_pid_is_replaced(house: House) -> None:
    bury(house, "old", proc_start="1")
    lock = house.roster.open_folder("new")
    assert house.roster.publish(here("new")) == f"{house.sessions}/{os.getpid()}.json"
    assert house.names() == ["new"]
    lock.release()


def test_a_registry_that_stays_locked_is_said(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = files.Lock(f"{house.sessions}/.lock")
    assert registry.acquire()
    monkeypatch.setattr(roster, "REGISTRY_SECONDS", 0)
    with pytest.raises(StoreFailed, match="locked by another process"):
        house.roster.publish(here("abc"))
    registry.release()
    shutil.rmtree(house.sessions)
    with pytest.raises(StoreFailed, match="is gone"):
        house.roster.publish(here("abc"))


@pytest.mark.parametrize("session_id", ["", "..", "a/b", "../x", "client-1-2", "x" * 81, "a\0"])
def test_what_can_be_no_id_has_no_folder(house: House, session_id: str) -> None:
    with pytest.raises(NoSession):
        house.roster.open_folder(session_id)
    assert not house.roster.has_folder(session_id)


# ── the dead ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.11", "02.13")
def test_report_16_a_killed_session_is_dead_at_once_and_swept_by_whoever_lists(house: House) -> None:
    lodger = house.open("abc", name="reviewer", sockets=str(house.sockets), client=[os.getpid(), "77"])
    other = house.open("def")
    (record,) = (each for each in house.roster.scan().live if each.session_id == "abc")
    assert house.roster.is_live(record)
    before = time.time_ns() // 1_000_000
    lodger.kill()
    assert not house.roster.is_live(record)
    ended = house.roster.ended("reviewer")
    assert ended is not None  # nobody has swept yet
    scan = house.roster.scan()
    assert [each.session_id for each in scan.live] == ["def"]
    assert scan.swept == 1
    assert house.files() == {f"{other.pid}.json"}
    assert os.listdir(house.sockets) == []
    swept = house.roster.ended("reviewer")
    assert swept is not None
    assert swept[0] == "reviewer"
    assert before - 60_000 < ended[1] <= swept[1] <= time.time_ns() // 1_000_000
    assert house.roster.scan().swept == 0


@pytest.mark.rule("05.11")
def test_a_zombie_is_dead(house: House) -> None:
    """Killed, and its parent has not looked: pid and start are still there."""
    lodger = house.open("abc")
    lodger.process.kill()
    os.waitid(os.P_PID, lodger.pid, os.WEXITED | os.WNOWAIT)
    assert processes.start_of(lodger.pid) == lodger.start
    assert house.names() == []


@pytest.mark.rule("05.11")
def test_report_18_a_pid_that_was_used_again_makes_no_ghost(house: House) -> None:
    """The record's pid is a living process's, which is another one; the session restarts within the second."""
    bury(house, "abc", proc_start="1")
    assert house.roster.scan(sweep=False).live == ()
    lodger = house.open("abc", name="again")
    assert house.names() == ["again"]
    lodger.kill()
    lodger = house.open("abc", name="again")
    assert house.names() == ["again"]
    assert house.files() == {f"{lodger.pid}.json"}


@pytest.mark.rule("05.11")
def test_a_lock_that_a_forked_child_keeps_is_no_life(house: House) -> None:
    lodger = house.open("abc", name="reviewer")
    child = house.fork(lodger)
    assert house.names() == ["reviewer"]
    assert house.roster.kept_locks() == ()
    lodger.kill()
    assert files.probe(f"{house.sessions}/abc/lock")
    assert not house.roster.lives("abc")
    assert house.roster.kept_locks() == (("abc", lodger.pid),)
    assert house.roster.scan().swept == 1
    ended = house.roster.ended("reviewer")
    assert ended is not None
    again = house.open("abc", name="reviewer")
    assert again.name == "reviewer"
    assert house.names() == ["reviewer"]
    assert processes.exists(child)
    assert house.roster.kept_locks() == ()


@pytest.mark.rule("05.11")
def test_a_kept_lock_and_a_pid_that_was_used_again_deceive_no_close_look(house: House) -> None:
    lodger = house.open("abc", publish=False)
    record = here("abc", proc_start="1")  # of a pid that lives, another process
    house.put(record)
    assert house.roster.judge(record)[0] == "dead"
    assert not house.roster.is_live(record)
    assert house.roster.judge(record, closely=False)[0] == "live"  # what a quick look cannot see
    assert house.roster.scan(sweep=False).live == ()
    assert lodger.process.poll() is None


@pytest.mark.rule("05.11")
def test_a_fresh_record_of_the_same_name_survives_a_sweep(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is published after the old one was judged and before the sweeper has the lock."""
    old = bury(house, "old", proc_start="1")
    lock = house.roster.open_folder("new")
    real = files.Lock.acquire
    published: list[str] = []

    def acquire(self: files.Lock, seconds: float = 0.25) -> bool:
        if not published:
            published.append("once")
            published.append(Roster(str(house.state)).publish(here("new")))
        return real(self, seconds)

    monkeypatch.setattr(files.Lock, "acquire", acquire)
    scan = house.roster.scan()
    assert (scan.live, scan.swept) == ((), 0)
    assert published == ["once", f"{house.sessions}/{old.pid}.json"]
    assert house.names() == ["new"]
    lock.release()


@pytest.mark.rule("05.11")
def test_a_session_that_came_back_in_the_same_file_survives_a_sweep(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock was free when it was judged and is held when it is judged again."""
    lock = files.Lock(f"{house.sessions}/abc/lock")
    bury(house, "abc")
    real = files.Lock.acquire

    def acquire(self: files.Lock, seconds: float = 0.25) -> bool:
        if not lock.held:
            assert real(lock, 0)
        return real(self, seconds)

    monkeypatch.setattr(files.Lock, "acquire", acquire)
    assert house.roster.scan().swept == 0
    assert len(house.roster.scan().live) == 1
    lock.release()


@pytest.mark.rule("05.11")
def test_a_sweep_leaves_its_turn_to_who_has_the_lock(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    bury(house, "abc", proc_start="1")
    registry = files.Lock(f"{house.sessions}/.lock")
    assert registry.acquire()
    monkeypatch.setattr(roster, "SWEEP_SECONDS", 0)
    scan = house.roster.scan()
    assert (scan.live, scan.swept) == ((), 0)
    registry.release()
    assert house.roster.scan().swept == 1


def test_a_listing_may_leave_the_dead_where_they_are(house: House) -> None:
    bury(house, "abc", proc_start="1")
    assert house.roster.scan(sweep=False).swept == 0
    assert house.files() == {f"{os.getpid()}.json"}


@pytest.mark.rule("05.11", "11.11")
def test_a_sweep_removes_no_file_that_a_record_merely_names(house: House) -> None:
    """A record is a claim: the path in it may be anything."""
    precious = house.home / "precious"
    precious.write_text("x")
    pid = dead_pid()
    listening = house.sockets / f"{pid}.sock"
    foreign_name = house.sockets / "other.sock"
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        one.bind(str(listening))
        one.listen()
        two.bind(str(foreign_name))
        for path in (listening, foreign_name):
            path.chmod(0o600)
        plain = house.sockets / f"{pid}.ctl.sock"
        plain.write_text("no socket")
        for number, path in enumerate(
            (precious, listening, foreign_name, house.home / "none" / f"{pid}.sock")
        ):
            house.roster.open_folder(f"s{number}").release()
            record = here(f"s{number}", pid, messaging_socket_path=str(path))
            house.put(record, f"{pid}-0000000{number}.json")
        assert house.roster.scan().swept == 4
        assert all(path.exists() for path in (precious, listening, foreign_name, plain))
    stale = here("s0", pid, messaging_socket_path=str(listening))
    house.put(stale)
    assert house.roster.scan().swept == 1
    assert not listening.exists()


@pytest.mark.rule("05.11")
def test_a_sweep_leaves_a_socket_whose_listener_is_too_busy_to_answer(house: House) -> None:
    """A process that got the pid since is there already, and its queue of connections is full."""
    pid = dead_pid()
    path = house.sockets / f"{pid}.sock"
    house.roster.open_folder("abc").release()
    house.put(here("abc", pid, messaging_socket_path=str(path)))
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        path.chmod(0o600)
        busy.listen(0)
        waiting.connect(str(path))
        assert house.roster.scan().swept == 1
        assert path.exists()


@pytest.mark.rule("05.8")
def test_a_socket_folder_that_was_made_for_one_session_goes_with_it(house: House) -> None:
    folder = house.home / f"postroom-{os.geteuid()}-0a1b2c3d"
    folder.mkdir(mode=0o700)
    lodger = house.open("abc", sockets=str(folder))
    lodger.kill()
    assert house.roster.scan().swept == 1
    assert not folder.exists()


# ── those of whom nothing can be proved ──────────────────────────────────────────────────────────


@pytest.mark.rule("05.11")
@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"pid_domain": ELSEWHERE}, "another pid namespace"), ({"boot_id": "earlier"}, "another boot")],
)
def test_a_record_of_another_namespace_or_boot_with_a_free_lock_is_never_swept(
    house: House, fields: dict[str, str], reason: str
) -> None:
    record = replace(here("abc", dead_pid()), **fields)
    hold_as(house, record).release()
    path = house.put(record)
    scan = house.roster.scan()
    assert (scan.live, scan.swept) == ((), 0)
    assert reason in reasons(house)[path.name]
    assert path.exists()


@pytest.mark.rule("05.8", "05.11")
def test_a_session_of_another_namespace_is_live_while_its_lock_is_held(house: House) -> None:
    lodger = house.open("abc", domain=ELSEWHERE, sockets=str(house.sockets))
    assert house.names() == ["abc"]
    os.rename(house.sockets / f"{lodger.pid}.sock", house.home / "away")
    assert Roster(str(house.state)).scan().live == ()  # nor one whose socket folder is not ours
    assert "not seen from here" in dict(Roster(str(house.state)).scan().skipped)[f"{lodger.pid}.json"]
    os.rename(house.home / "away", house.sockets / f"{lodger.pid}.sock")
    lodger.kill()
    scan = Roster(str(house.state)).scan()
    assert (scan.live, scan.swept) == ((), 0)
    assert Path(lodger.path).exists()


@pytest.mark.rule("05.8", "05.11")
def test_a_session_on_another_machine_over_a_shared_folder_is_not_listed(house: House) -> None:
    lodger = house.open("abc", boot="other-machine")
    assert "another boot or machine" in reasons(house)[f"{lodger.pid}.json"]
    assert Path(lodger.path).exists()


@as_root
@pytest.mark.rule("05.10", "05.11")
def test_a_real_container_over_the_same_folders(house: House) -> None:
    """Needs root and the right to make a pid namespace. Its pid 1 is not ours; its lock is."""
    if subprocess.run(("unshare", "--pid", "--fork", "true"), capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody make a pid namespace")
    lodger = house.start(
        "abc", ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"), sockets=str(house.sockets)
    )
    for key, value in lodger.hear().items():
        setattr(lodger, key, value)
    assert lodger.pid < 10
    (record,) = house.roster.scan().live
    assert record.pid == lodger.pid
    assert record.pid_domain != processes.pid_domain()
    assert house.roster.is_live(record)
    assert processes.start_of(record.pid) != record.proc_start
    assert lodger.process.stdin is not None
    lodger.process.stdin.close()
    lodger.process.wait()
    assert not house.roster.is_live(record)
    assert house.roster.scan().swept == 0
    house.open("abc")  # resumed outside: now the old record is provably of the past
    scan = house.roster.scan()
    assert [each.pid_domain for each in scan.live] == [processes.pid_domain()]
    assert not Path(lodger.path).exists()


@pytest.mark.rule("05.11")
@pytest.mark.parametrize("fields", [{"pid_domain": ELSEWHERE}, {"boot_id": "earlier"}])
def test_once_its_session_was_opened_again_any_old_record_is_dead(
    house: House, fields: dict[str, str]
) -> None:
    """Also after a reboot: the lock says that another process has had it since."""
    pid = dead_pid()
    path = house.put(replace(here("abc", pid, proc_start="5"), **fields))
    lodger = house.open("abc")
    scan = house.roster.scan()
    assert [record.pid for record in scan.live] == [lodger.pid]
    assert scan.swept == 1
    assert not path.exists()
    path = house.put(replace(here("abc", pid, proc_start="5"), **fields))
    lodger.kill()
    assert house.roster.scan().swept == 2
    assert not path.exists()


@pytest.mark.rule("05.10")
def test_another_programs_record_is_neither_listed_nor_swept(house: House) -> None:
    theirs = {
        "pid": dead_pid(),
        "sessionId": "0b0e7e9e-1d0c-4f6e-9d55-000000000001",
        "name": "claude",
        "cwd": "/",
        "procStart": "1",
        "peerProtocol": 1,
        "kind": "interactive",
    }
    path = house.sessions / f"{theirs['pid']}.json"
    files.write_atomic(str(path), json.dumps(theirs).encode())
    scan = house.roster.scan()
    assert (scan.live, scan.swept, scan.unfit) == ((), 0, ())
    assert "another program" in dict(scan.skipped)[path.name]
    assert "another program" in reasons(house)[path.name]
    (house.sessions / str(theirs["sessionId"])).mkdir(mode=0o700)
    assert "another program" in reasons(house)[path.name]
    assert path.exists()


@pytest.mark.rule("05.11", "11.11")
def test_what_cannot_be_trusted_or_read_is_skipped_with_its_reason_and_stays(house: House) -> None:
    pid = dead_pid()
    house.roster.open_folder("abc").release()
    record = here("abc", pid)
    whole = record.to_json()

    def put(name: str, data: bytes, mode: int = 0o600) -> None:
        (house.sessions / name).write_bytes(data)
        (house.sessions / name).chmod(mode)

    put(f"{pid}-00000000.json", whole, 0o644)
    put(f"{pid}-00000001.json", whole[:-9])
    put(f"{pid}-00000002.json", whole.replace(b'"schemaVersion":1', b'"schemaVersion":2'))
    put(f"{pid + 1}.json", whole)
    put("x.json", whole)
    put(f"0{pid}.json", whole)
    put(f"{pid}-00000003.json", b"x" * 70_000)
    put("elsewhere", whole)
    (house.sessions / f"{pid}-00000004.json").symlink_to("elsewhere")
    os.mkfifo(house.sessions / f"{pid}-00000005.json", 0o600)
    (house.sessions / f"{pid}-00000006.json").mkdir()
    before = house.files()
    scan = house.roster.scan()
    assert (scan.live, scan.swept, scan.unchecked) == ((), 0, ())
    assert house.files() == before
    expected = {
        f"{pid}-00000000.json": "others have access",
        f"{pid}-00000001.json": "not JSON",
        f"{pid}-00000002.json": "newer version",
        f"{pid + 1}.json": "does not fit its pid",
        "x.json": "does not fit its pid",
        f"0{pid}.json": "does not fit its pid",
        f"{pid}-00000003.json": "larger than",
        f"{pid}-00000004.json": "symlink",
        f"{pid}-00000005.json": "not a regular file",
        f"{pid}-00000006.json": "not a regular file",
    }
    skipped = dict(scan.skipped)
    assert set(skipped) == set(expected)
    assert [name for name, reason in expected.items() if reason not in skipped[name]] == []


@as_root
@pytest.mark.rule("05.11", "11.11")
def test_another_users_record_is_skipped_and_stays(house: House) -> None:
    """Needs root."""
    record = bury(house, "abc", pid=dead_pid())
    path = house.sessions / f"{record.pid}.json"
    os.chown(path, OTHER, -1)
    scan = house.roster.scan()
    assert (scan.live, scan.swept) == ((), 0)
    assert f"uid {OTHER}" in dict(scan.skipped)[path.name]
    assert path.exists()


@pytest.mark.rule("05.11", "11.11")
def test_a_lock_that_cannot_be_trusted_proves_nothing(house: House) -> None:
    record = bury(house, "abc", pid=dead_pid())
    lock = house.sessions / "abc" / "lock"
    lock.rename(house.home / "lock")
    lock.symlink_to(house.home / "lock")
    assert "is unfit" in reasons(house)[f"{record.pid}.json"]
    assert not house.roster.lives("abc")


# ── reachable or not ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.29")
def test_a_session_without_an_inbox_is_listed(house: House) -> None:
    house.open("abc")
    (record,) = house.roster.scan().live
    assert record.messaging_socket_path is None


@pytest.mark.rule("05.6", "05.29", "11.11")
@pytest.mark.parametrize("how", ["gone", "file", "link", "loose", "folder", "relative"])
def test_report_22_an_address_that_cannot_be_used_is_not_listed(house: House, how: str) -> None:
    """The session is, and it is said why nobody can write to it."""
    lodger = house.open("abc", sockets=str(house.sockets))
    path = house.sockets / f"{lodger.pid}.sock"
    if how == "gone":
        path.unlink()
    elif how == "file":
        path.unlink()
        path.write_text("")
    elif how == "link":
        path.rename(house.sockets / "real.sock")
        path.symlink_to("real.sock")
    elif how == "loose":
        path.chmod(0o666)
    elif how == "folder":
        house.sockets.chmod(0o755)
    else:
        record = from_json(Path(lodger.path).read_bytes())
        house.put(replace(record, messaging_socket_path=f"{house.sockets}/../run/{lodger.pid}.sock"))
    scan = house.roster.scan()
    (record,) = scan.live
    assert record.session_id == "abc"
    assert record.messaging_socket_path is None
    assert "listed, but not reachable" in dict(scan.skipped)[f"{lodger.pid}.json"]


@pytest.mark.rule("05.29")
def test_report_22_every_listed_address_leads_back_to_its_record(house: House) -> None:
    lodgers = [house.open(f"s{number}", sockets=str(house.sockets)) for number in range(3)]
    live = house.roster.scan().live
    assert len(live) == 3
    for record in live:
        assert record.messaging_socket_path is not None
        assert house.roster.by_socket(record.messaging_socket_path) == record
    assert house.roster.by_socket(f"{house.sockets}/1.sock") is None
    assert house.roster.by_socket("/etc/passwd") is None
    lodgers[0].kill()
    assert house.roster.by_socket(f"{house.sockets}/{lodgers[0].pid}.sock") is None


def test_a_socket_whose_record_has_another_name_is_found(house: House) -> None:
    """The record lies beside a foreign one of its pid."""
    lock = house.roster.open_folder("abc")
    record = here("abc").listening(f"{house.sockets}/{os.getpid()}.sock", (), 1)
    house.put(record, f"{os.getpid()}-0a1b2c3d.json")
    assert house.roster.by_socket(f"{house.sockets}/{os.getpid()}.sock") == record
    lock.release()


# ── not reading twice ────────────────────────────────────────────────────────────────────────────


class Counted:
    """Counts how often the folder is listed and a file is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.listed = 0
        self.read: list[str] = []
        scandir, read_private = os.scandir, files.read_private

        def listing(path: str) -> Any:
            self.listed += 1
            return scandir(path)

        def reading(path: str, limit: int, **options: Any) -> bytes:
            if path.endswith(".json"):
                self.read.append(os.path.basename(path))
            return read_private(path, limit, **options)

        monkeypatch.setattr(readings.os, "scandir", listing)
        monkeypatch.setattr(files, "read_private", reading)

    def take(self) -> tuple[int, int]:
        """(listings, files read) since the last time."""
        found = (self.listed, len(self.read))
        self.listed, self.read = 0, []
        return found


def look_later(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    """Lets the roster believe that it looks so much later than now."""
    at = time.time_ns() + seconds * 1_000_000_000
    monkeypatch.setattr(readings.time, "time_ns", lambda: at)


@pytest.mark.rule("02.16", "12.29")
def test_nothing_is_listed_or_read_again_while_nothing_changed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.open("abc")
    lodger = house.open("def")
    counted = Counted(monkeypatch)
    look_later(monkeypatch, 10)
    assert house.roster.changed()
    assert house.names() == ["abc", "def"]
    assert counted.take() == (1, 2)
    assert not house.roster.changed()
    assert house.names() == ["abc", "def"]
    assert house.roster.sessions_at(lodger.pid, lodger.start) == ("def",)
    assert counted.take() == (0, 0)
    lodger.tell("rename ghi")
    assert house.roster.changed()
    assert house.names() == ["abc", "ghi"]
    assert counted.take() == (1, 1)  # the one that changed
    lodger.kill()
    assert not house.roster.changed()
    assert house.names() == ["abc"]  # the locks are asked all the same
    assert counted.take()[1] == 0


@pytest.mark.rule("12.29")
def test_a_look_within_a_tick_of_a_change_is_not_relied_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another change in the same tick would leave the folder and the file with the same times and sizes."""
    house.open("abc")
    counted = Counted(monkeypatch)
    now = (house.sessions).stat().st_mtime_ns
    monkeypatch.setattr(readings.time, "time_ns", lambda: now)
    assert house.names() == ["abc"]
    assert house.roster.changed()
    assert house.names() == ["abc"]
    assert counted.take() == (2, 2)
    look_later(monkeypatch, 10)
    assert house.names() == ["abc"]
    assert house.names() == ["abc"]
    assert counted.take() == (1, 1)


@pytest.mark.rule("12.29")
@pytest.mark.parametrize(
    ("mtime", "ctime", "looked", "counts"),
    [
        (7_000_000_001, 7_000_000_001, 7_050_000_001, True),
        (7_000_000_001, 7_000_000_001, 7_050_000_000, False),
        (7_000_000_001, 7_040_000_001, 7_050_000_001, False),
        (7_000_000_000, 7_000_000_000, 8_999_999_999, False),
        (7_000_000_000, 7_000_000_000, 9_000_000_000, True),
        (9_000_000_001, 9_000_000_001, 7_000_000_000, False),
    ],
)
def test_when_times_can_be_relied_on(mtime: int, ctime: int, looked: int, counts: bool) -> None:
    class Found:
        st_mtime_ns = mtime
        st_ctime_ns = ctime

    found: Any = Found()
    assert settled(found, looked) is counts


@pytest.mark.rule("12.29")
def test_a_record_of_the_same_size_and_time_is_known_to_be_another(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody restores the modification time: the inode and its own time still tell."""
    lock = house.roster.open_folder("abc")
    path = Path(house.roster.publish(here("abc", name="one")))
    look_later(monkeypatch, 10)
    assert house.names() == ["one"]
    before = path.stat()
    house.put(here("abc", name="two"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert house.names() == ["two"]
    lock.release()


@pytest.mark.rule("05.11")
def test_a_record_that_goes_away_while_the_folder_is_read_is_not_there(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.open("abc")
    gone = house.put(here("def", dead_pid()))
    real = files.read_private

    def reading(path: str, limit: int, **options: Any) -> bytes:
        if path == str(gone):
            gone.unlink()
        return real(path, limit, **options)

    monkeypatch.setattr(files, "read_private", reading)
    assert house.names() == ["abc"]
    assert house.roster.scan().skipped == ()


def test_a_folder_that_is_not_there_yet_holds_nobody(home: Path) -> None:
    book = Roster(str(home / "state"))
    scan = book.scan()
    assert (scan.live, scan.skipped, scan.unchecked) == ((), (), ())
    assert book.changed()
    assert book.session_ids() == []
    assert book.expire(1) == ()
    assert book.ended("nobody") is None
    assert not (home / "state").exists()


@pytest.mark.rule("05.6", "02.14", "11.11")
@pytest.mark.parametrize("how", ["loose", "link", "file"])
def test_a_registry_that_cannot_be_trusted_is_an_unchecked_place(house: House, how: str) -> None:
    house.open("abc")
    if how == "loose":
        house.sessions.chmod(0o770)
    else:
        house.sessions.rename(house.home / "moved")
        if how == "link":
            house.sessions.symlink_to(house.home / "moved")
        else:
            house.sessions.write_text("")
    scan = house.roster.scan()
    assert scan.live == ()
    ((place, reason),) = scan.unchecked
    assert place == str(house.sessions)
    assert reason
    if how == "loose":
        house.sessions.chmod(0o700)
        assert house.names() == ["abc"]
        assert house.roster.scan().unchecked == ()


@as_root
@pytest.mark.rule("11.11")
def test_rival_V18_another_user_reads_posts_and_lists_nothing(house: House) -> None:
    """Needs root, to be another user. The home folder is open to everybody, as on many machines."""
    lodger = house.open("abc", sockets=str(house.sockets))
    house.home.chmod(0o755)
    code = f"""
import os, socket
from postroom.state.roster import Roster
os.setgid({OTHER}); os.setuid({OTHER})
def refused(what):
    try: what()
    except PermissionError: return True
assert os.listdir("{house.home}")
assert refused(lambda: os.listdir("{house.state}"))
assert refused(lambda: os.listdir("{house.sessions}"))
assert refused(lambda: open("{lodger.path}"))
assert refused(lambda: open("{house.sessions}/abc/lock"))
assert refused(lambda: socket.socket(socket.AF_UNIX).connect("{house.sockets}/{lodger.pid}.sock"))
assert refused(lambda: socket.socket(socket.AF_UNIX).connect("{house.sockets}/{lodger.pid}.ctl.sock"))
assert refused(lambda: open("{house.sessions}/1.json", "w"))
scan = Roster("{house.state}").scan()
assert not scan.live and scan.unchecked, scan
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


# ── finding ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.26", "10.38")
def test_the_sessions_of_a_process_are_those_it_runs_and_those_it_is_the_client_of(house: House) -> None:
    me = processes.start_of(os.getpid()) or ""
    lodger = house.open("abc", client=[os.getpid(), me])
    other = house.open("def")
    assert house.roster.sessions_at(lodger.pid, lodger.start) == ("abc",)
    assert house.roster.sessions_at(os.getpid(), me) == ("abc",)
    assert house.roster.sessions_at(lodger.pid, other.start + "0") == ()
    assert house.roster.sessions_at(0, "") == ()
    lodger.kill()
    assert house.roster.sessions_at(lodger.pid, lodger.start) == ()
    assert house.roster.sessions_at(os.getpid(), me) == ()


@pytest.mark.rule("05.29")
def test_the_file_of_a_client_with_several_sessions_names_the_newest_first(house: House) -> None:
    one = house.open("one", client=[4711, "77"])
    two = house.open("two", client=[4711, "77"])
    path = house.sessions / "client-4711-77"
    assert path.read_text() == "two\none\n"
    assert house.roster.client_sessions(4711, "77") == ("two", "one")
    two.tell("leave")
    assert path.read_text() == "one\n"
    house.open("three", client=[4711, "77"])
    one.kill()
    assert house.roster.client_sessions(4711, "77") == ("three",)
    house.roster.scan()
    assert path.read_text() == "three\n"


@pytest.mark.rule("05.29", "05.12")
def test_a_resumed_session_of_the_same_client_stays_its_session(house: House) -> None:
    """Its old record is swept while it lives on in another process: the client's file is the new one's too."""
    house.open("abc", client=[4711, "77"]).kill()
    again = house.open("abc", client=[4711, "77"])
    assert house.roster.scan().swept == 1
    assert (house.sessions / "client-4711-77").read_text() == "abc\n"
    assert house.files() == {f"{again.pid}.json", "client-4711-77"}


def test_the_file_of_an_earlier_client_goes(house: House) -> None:
    house.open("abc", client=[4711, "77"]).kill()
    house.open("abc", client=[4712, "78"])
    house.roster.scan()
    assert house.roster.client_sessions(4711, "77") == ()
    assert not (house.sessions / "client-4711-77").exists()


def test_a_start_that_is_a_date_makes_a_plain_name() -> None:
    """As macOS writes it."""
    assert belongings.client_name(7, "Thu Sep 24 00:30:39 2026") == "client-7-Thu_Sep_24_00_30_39_2026"
    assert "/" not in belongings.client_name(7, "../../x")


@pytest.mark.rule("10.38")
def test_which_session_is_meant(house: House) -> None:
    me = processes.start_of(os.getpid()) or ""
    outer = house.open("outer", name="Outer", client=[os.getpid(), me])
    inner = house.open("inner")
    line = ((999_999, "1"), (inner.pid, inner.start), (os.getpid(), me))
    meant = house.roster.meant
    assert meant("outer", line) == "outer"
    assert meant("OUTER", ()) == "outer"
    assert meant(None, line) == "inner"
    assert meant("", line) == "inner"
    assert meant(None, line[2:]) == "outer"
    assert meant(None, ((999_999, "1"),)) is None
    for unknown in ("nobody", "../outer", "out"):
        with pytest.raises(NoSession):
            meant(unknown, line)
    house.open("third", client=[os.getpid(), me])
    with pytest.raises(NoSession, match="2 sessions"):
        meant(None, line[2:])
    outer.kill()
    assert meant(None, line[2:]) == "third"
    assert meant("Outer", ()) == "outer"  # ended, and known by its name


@pytest.mark.rule("02.3", "02.4")
def test_former_names_lead_to_a_session_until_another_takes_them(house: House) -> None:
    lodger = house.open("abc", name="app")
    assert lodger.tell("rename auditor") == "auditor"
    (record,) = house.roster.scan().live
    assert record.former_names == (FormerName(name="app", until=3),)
    assert house.roster.aliases(record) == ("app",)
    assert house.roster.holder("APP") == "abc"
    assert house.open("def", name="app").name == "app"
    assert house.roster.aliases(record) == ()
    assert house.roster.holder("app") == "def"
    assert house.roster.holder("nobody") is None


@pytest.mark.rule("02.4")
def test_report_8_a_session_has_one_name_and_every_earlier_one_leads_to_it(house: House) -> None:
    lodger = house.open("abc", name="app")
    lodger.tell("rename reviewer")
    lodger.tell("rename auditor")
    (record,) = house.roster.scan().live
    assert record.name == "auditor"
    assert house.roster.aliases(record) == ("reviewer", "app")
    assert [house.roster.holder(name) for name in ("app", "reviewer", "auditor")] == ["abc"] * 3


@pytest.mark.rule("02.3")
def test_report_6_an_address_is_never_another_session_of_the_same_derived_name(house: House) -> None:
    first = house.open("a", name="app-3f", sockets=str(house.sockets))
    second = house.open("c", name="app-3f", sockets=str(house.sockets))
    assert second.name == "app-3f-2"
    path = f"{house.sockets}/{first.pid}.sock"
    record = house.roster.by_socket(path)
    assert record is not None
    assert (record.session_id, record.name) == ("a", "app-3f")
    first.kill()
    assert house.roster.by_socket(path) is None
    assert house.names() == ["app-3f-2"]


@pytest.mark.rule("10.38")
def test_rival_V6_asking_for_a_name_that_nobody_has_stores_nothing(house: House) -> None:
    house.open("abc", name="reviewer")
    before = set(house.home.rglob("*"))
    for name in ("reviewr", "../../x", "../sessions/abc", "REVIEWERS", ""):
        assert house.roster.holder(name) is None
        assert house.roster.ended(name) is None
        if name:
            with pytest.raises(NoSession):
                house.roster.meant(name, ())
    assert house.roster.holder("REVIEWER") == "abc"
    assert set(house.home.rglob("*")) == before


@pytest.mark.rule("05.12", "02.4")
def test_report_10_a_killed_session_comes_back_under_its_id_with_its_name_and_aliases(house: House) -> None:
    lodger = house.open("abc", name="app")
    lodger.tell("rename reviewer")
    lodger.kill()
    again = house.open("abc", name=house.roster.names.known("abc").chosen)
    assert again.name == "reviewer"
    assert house.roster.holder("app") == "abc"
    assert house.names() == ["reviewer"]


# ── what killed processes leave beside the records ───────────────────────────────────────────────


@pytest.mark.rule("05.11", "11.10")
def test_files_that_no_record_accounts_for_are_swept_once_their_process_is_gone(house: House) -> None:
    pid = dead_pid()
    house.open("abc", client=[4711, "77"], sockets=str(house.sockets))
    living = house.files()
    keys = {
        f"{pid}.{'0' * 64}.key": {"peerToken": "x", "procStart": "1", "pidDomain": processes.pid_domain()},
        f"{pid}.{'1' * 64}.key": {"peerToken": "x", "procStart": "1", "pidDomain": ELSEWHERE},
        f"{os.getppid()}.{'2' * 64}.key": {
            "peerToken": "x",
            "procStart": processes.start_of(os.getppid()),
            "pidDomain": processes.pid_domain(),
        },
        f"{pid}.{'3' * 64}.key": ["no key"],
        f"x.{'4' * 64}.key": {"pidDomain": processes.pid_domain()},
    }
    for name, key in keys.items():
        files.write_atomic(f"{house.sessions}/{name}", json.dumps(key).encode())
    files.write_atomic(f"{house.sessions}/client-1-1", b"nobody\n")
    old, young = files.temporary_name(), files.temporary_name()
    for name in (old, young, "other.tmp"):
        files.write_atomic(f"{house.sessions}/{name}", b"")
    os.utime(house.sessions / old, (1, 1))
    os.utime(house.sessions / "other.tmp", (1, 1))
    house.roster.scan()
    assert house.files() == {*living, *list(keys)[1:], young, "other.tmp"}


@pytest.mark.rule("05.20")
def test_the_key_of_a_session_that_is_about_to_publish_stays(house: House) -> None:
    house.roster.write_key(str(os.getpid()), "/x/y.sock", "1" * 32)
    house.roster.scan()
    assert len(house.files()) == 1


def test_a_client_file_of_a_session_that_is_about_to_publish_stays(house: House) -> None:
    lock = house.roster.open_folder("abc")
    files.write_atomic(f"{house.sessions}/client-1-1", b"abc\n")
    house.roster.scan()
    assert house.files() == {"client-1-1"}
    lock.release()
    house.roster.scan()
    assert house.files() == set()


@pytest.mark.parametrize("content", [b"", b"\xff\n", b"../x\n", b"x" * 70_000])
def test_a_client_file_that_makes_no_sense_leads_to_nobody(house: House, content: bytes) -> None:
    files.write_atomic(f"{house.sessions}/client-1-1", content)
    assert house.roster.client_sessions(1, "1") == ()


# ── those that ended ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.13")
def test_an_ended_session_is_known_by_each_of_its_names_while_its_folder_is_there(house: House) -> None:
    lodger = house.open("abc", name="app")
    lodger.tell("rename auditor")
    lodger.tell("leave")
    assert house.roster.ended("app") == house.roster.ended("auditor") == ("auditor", 12345)
    assert house.roster.ended("nobody") is None
    assert house.roster.ended("../abc") is None
    house.roster.forget("abc")
    assert house.roster.ended("abc") is None
    assert house.roster.ended("auditor") is None


@pytest.mark.rule("02.13")
def test_a_session_that_was_killed_and_opened_again_has_not_ended(house: House) -> None:
    house.open("abc").kill()
    assert house.roster.ended("abc") is not None
    again = house.open("abc")
    assert house.roster.ended("abc") is None
    again.tell("leave")
    assert house.roster.ended("abc") == ("abc", 12345)


@pytest.mark.rule("05.7")
def test_forgetting_takes_folder_names_and_records(house: House) -> None:
    lodger = house.open("abc", name="reviewer", sockets=str(house.sockets))
    with pytest.raises(SessionInUse):
        house.roster.forget("abc")
    assert house.names() == ["reviewer"]
    lodger.kill()
    house.roster.forget("abc")
    assert house.files() == set()
    assert os.listdir(house.sessions) == [".lock"]
    assert os.listdir(house.state / "names") == [".lock"]
    for session_id in ("abc", "..", "nobody"):
        with pytest.raises(NoSession):
            house.roster.forget(session_id)


@pytest.mark.rule("05.7")
@pytest.mark.parametrize("how", ["forgotten", "expired"])
def test_with_a_session_its_agents_go_and_nothing_that_a_symlink_points_to(house: House, how: str) -> None:
    bury(house, "abc", proc_start="1")
    precious = house.home / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    agents = house.sessions / "abc" / "agents"
    for agent_id in ("a-1", "a-2"):
        folder = agents / agent_id
        folder.mkdir(parents=True, mode=0o700)
        for name in ("agent.json", "transcript.jsonl", files.temporary_name()):
            (folder / name).write_text("{}")
        (folder / "link").symlink_to(precious / "file")
        (folder / "folder").symlink_to(precious)
        os.mkfifo(folder / "fifo")
    (agents / "a-3").symlink_to(precious)
    if how == "forgotten":
        house.roster.forget("abc")
    else:
        assert house.roster.expire(2**50) == ("abc",)
    assert os.listdir(house.sessions) == [".lock"]
    assert (precious / "file").read_text() == "kept"


@pytest.mark.rule("05.7")
def test_a_session_whose_folder_cannot_go_is_said(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    bury(house, "abc", proc_start="1")

    def full(*_args: object, **_kw: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(roster.os, "rename", full)
        with pytest.raises(StoreFailed, match="could not be removed"):
            house.roster.forget("abc")
    assert not house.roster.lives("abc")
    house.roster.forget("abc")


@pytest.mark.rule("05.7")
def test_the_folder_of_an_ended_session_is_kept_for_30_days(house: House) -> None:
    house.open("live")
    house.open("left", name="reviewer").tell("leave")
    killed = house.open("killed")
    killed.kill()
    house.roster.scan()
    ended = house.roster.ended("killed")
    assert ended is not None
    (house.sessions / ".left-0a1b2c3d.gone").mkdir()  # a removal that was itself killed
    (house.sessions / "foreign").mkdir()
    assert house.roster.expire(12345 + KEPT_MS) == ()
    assert not (house.sessions / ".left-0a1b2c3d.gone").exists()
    assert house.roster.expire(12346 + KEPT_MS) == ("left",)
    assert house.roster.holder("reviewer") is None
    assert house.roster.expire(ended[1] + KEPT_MS) == ()
    assert house.roster.expire(ended[1] + 1 + KEPT_MS) == ("killed",)
    assert house.names() == ["live"]
    assert sorted(each.name for each in house.sessions.iterdir() if each.is_dir()) == ["foreign", "live"]


def test_a_session_that_is_opened_in_the_instant_it_expires_stays(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.roster.open_folder("abc").release()
    real = Roster.forget

    def forget(self: Roster, session_id: str) -> None:
        lodger = house.open(session_id)
        assert lodger.pid
        real(self, session_id)

    monkeypatch.setattr(Roster, "forget", forget)
    assert house.roster.expire(2**50) == ()
    assert house.names() == ["abc"]


# ── many at once ─────────────────────────────────────────────────────────────────────────────────


def test_listing_while_others_come_and_die(house: House) -> None:
    """What is live the whole time is in every list; at the end exactly the living are left, without a trace."""
    stayers = [house.open(f"stay-{number}", sockets=str(house.sockets)) for number in range(3)]
    staying = {f"stay-{number}" for number in range(3)}
    for number in range(6):
        comer = house.start(f"come-{number}", sockets=str(house.sockets), client=[4711, str(number)])
        while True:
            scan = house.roster.scan()
            names = {record.name for record in scan.live}
            assert staying <= names
            assert not scan.unchecked
            if f"come-{number}" in names:
                break
            assert comer.process.poll() is None
        if number % 3 == 0:
            comer.kill()
            assert f"come-{number}" not in {record.name for record in house.roster.scan().live}
        else:
            comer.process.send_signal(signal.SIGKILL)
    for lodger in house.lodgers[len(stayers) :]:
        lodger.process.wait()
    assert set(house.names()) == staying
    house.roster.scan()
    keys = {
        f"{each.pid}.{sha256(f'{house.sockets}/{each.pid}.sock'.encode()).hexdigest()}.key"
        for each in stayers
    }
    assert house.files() == {*(f"{each.pid}.json" for each in stayers), *keys}
    assert sorted(os.listdir(house.sockets)) == sorted(
        f"{each.pid}{ending}" for each in stayers for ending in (".sock", ".ctl.sock")
    )


SCANNER = """
import sys
from postroom.state.roster import Roster
roster = Roster(sys.argv[1])
print(flush=True)
sys.stdin.readline()
swept = 0
for _ in range(10):
    scan = roster.scan()
    assert not scan.unchecked and not scan.skipped, scan
    assert [record.name for record in scan.live] == ["stay"], scan
    swept += scan.swept
print(swept, flush=True)
"""


@pytest.mark.rule("05.11", "05.13")
def test_many_listers_sweep_each_dead_record_once(house: House) -> None:
    house.open("stay")
    pid = dead_pid()
    for number in range(150):
        house.roster.open_folder(f"dead-{number}").release()
        house.put(here(f"dead-{number}", pid), f"{pid}-{number:08x}.json")
    scanners = [
        subprocess.Popen(
            [sys.executable, "-c", SCANNER, str(house.state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for scanner in scanners:
        assert scanner.stdout is not None
        assert scanner.stdout.readline() == "\n"
    for scanner in scanners:
        assert scanner.stdin is not None
        scanner.stdin.write("\n")
        scanner.stdin.flush()
    said = [scanner.communicate()[0] for scanner in scanners]
    house.roster.scan()
    assert sum(int(each) for each in said) <= 150
    assert house.names() == ["stay"]
    assert len(house.files()) == 1


@pytest.mark.rule("05.13")
def test_a_second_listing_of_many_reads_nothing_and_asks_each_lock_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of a listing is that of asking the living; the stale are met once."""
    pid = dead_pid()
    lock = house.roster.open_folder("live")
    for number in range(50):
        house.put(here("live", name=f"n{number}"), f"{os.getpid()}-{number:08x}.json")
    for number in range(100):
        house.roster.open_folder(f"dead-{number}").release()
        house.put(here(f"dead-{number}", pid), f"{pid}-{number:08x}.json")
    assert house.roster.scan().swept == 100
    look_later(monkeypatch, 10)
    house.roster.scan()
    counted = Counted(monkeypatch)
    probed: list[str] = []
    probe = files.probe

    def probing(path: str) -> bool:
        probed.append(path)
        return probe(path)

    def unlooked(pid: int) -> None:
        raise AssertionError(f"looked at {pid}")

    monkeypatch.setattr(files, "probe", probing)
    monkeypatch.setattr(processes, "look", unlooked)
    assert len(house.roster.scan().live) == 50
    assert counted.take() == (0, 0)
    assert len(probed) == 50
    lock.release()
