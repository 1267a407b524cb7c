"""`postroom doctor` on folders, disks and the machine: each finding is provoked for real (10.16, 05.5 to 05.8, 05.27).

Those that need a mount or another user need root; CI runs as root.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.console import doctor
from postroom.state.files import Lock
from tests.clinic import clinic, diagnosed, of_the_machine, read, sorted_by
from tests.desk import COMMAND, SECONDS, Desk, Done
from tests.strangers import OTHER_UID, Inside, needs_root, needs_user_namespaces
from tests.test_other_users import SQUATS, own_tmp

BASE = f"/tmp/postroom-{os.geteuid()}"


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A clinic."""
    with clinic() as desk:
        yield desk


@contextlib.contextmanager
def inside(desk: Desk, *kinds: str, setup: str = ":") -> Generator[Inside]:
    """The same desk in namespaces of its own, with the programs that make them."""
    environ = {**desk.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    room = Inside(desk.folder, environ, *kinds, setup=setup)
    try:
        yield room
    finally:
        room.leave()


GIVEN_FALLBACK = """\
import sys

from postroom.console import cli
from postroom.state import places

places.TMP = sys.argv[1]
cli.leave(cli.main(["doctor", "--json"]))
"""
"""The doctor with another folder in the place of /tmp, where other sessions of this user may live."""


def diagnosed_apart(desk: Desk, finding: str, **environ: str) -> tuple[dict[str, Any], str]:
    """Runs the doctor where nobody else uses the fallback folder; returns what alone it finds, and that folder's path."""
    apart = desk.folder / "tmp"
    apart.mkdir(mode=0o700)
    done = subprocess.run(
        [sys.executable, "-c", GIVEN_FALLBACK, str(apart)],
        env={**desk.environ, **environ},
        cwd=desk.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    [found] = sorted_by(read(Done(done.returncode, done.stdout, done.stderr)), finding)
    return found, f"{apart}/postroom-{os.geteuid()}"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ── the state folder ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16", "05.6", "05.7")
@pytest.mark.parametrize("how", ["open", "link", "file", "relative", "below"])
def test_a_state_folder_that_cannot_be_trusted(desk: Desk, how: str) -> None:
    """Named with its reason, and with the command that mends it; nothing else can be known then."""
    state, more = desk.folder / "state", dict[str, str]()
    state.mkdir(mode=0o700)
    reason, mend = "", "set POSTROOM_HOME to a folder of your own"
    match how:
        case "open":
            state.chmod(0o755)
            reason, mend = "others have access to it (mode 0755)", f"chmod 700 {state}"
        case "link":
            state.rename(desk.folder / "real")
            state.symlink_to(desk.folder / "real")
            reason = "a symlink, which is not followed"
        case "file":
            state.rmdir()
            state.write_text("")
            reason = "not a folder"
        case "relative":
            more = {"POSTROOM_HOME": "state"}
            reason = "not an absolute path"
        case _:
            desk.folder.chmod(0o777)
            reason, mend = f"{desk.folder}: others may write in it", f"chmod go-w {desk.folder}"
    [finding, *others] = read(desk.run("doctor", "--json", environ=more))
    assert finding["id"] == "state-unfit"
    assert "POSTROOM_HOME names cannot be used" in finding["what"]
    assert reason in finding["what"]
    assert mend in finding["mend"]
    assert {each["id"] for each in others} <= {"sockets-skipped"}  # what lies above is above both
    if how == "open":
        state.chmod(0o700)
        assert diagnosed(desk) == []


@pytest.mark.rule("10.16", "05.2")
def test_the_first_state_folder_is_passed_over_for_the_second(desk: Desk) -> None:
    loose = desk.folder / "loose"
    (loose / "postroom").mkdir(parents=True)
    (loose / "postroom").chmod(0o750)
    environ = {"POSTROOM_HOME": "", "XDG_STATE_HOME": str(loose)}
    [finding] = diagnosed(desk, "state-skipped", environ=environ)
    assert f"{loose}/postroom is passed over: others have access to it (mode 0750)" in finding["what"]
    assert f"{desk.folder}/home/.local/state/postroom is used" in finding["what"]
    assert finding["mend"].startswith(f"Run `chmod 700 {loose}/postroom`")


@pytest.mark.rule("10.16", "05.2")
def test_no_state_folder_at_all(desk: Desk) -> None:
    home = desk.folder / "home"
    home.chmod(0o777)
    [finding] = diagnosed(desk, "state-unfit", environ={"POSTROOM_HOME": ""})
    assert finding["what"].startswith("No state folder can be used: ")
    assert f"{home}: others may write in it" in finding["what"]


@pytest.mark.rule("10.16", "05.8")
def test_sessions_below_another_state_folder(desk: Desk) -> None:
    """One shell has POSTROOM_HOME, the other has not: neither sees the other, and nothing else says so."""
    other = desk.open("alice", environ={"POSTROOM_HOME": ""})
    desk.open("bob")
    with_home = sorted_by(read(desk.run("doctor", "--json")), "state-elsewhere")
    assert "alice lives below" in with_home[0]["what"]
    assert f"{desk.folder}/home/.local/state/postroom" in with_home[0]["what"]
    assert "the same POSTROOM_HOME, or none" in with_home[0]["mend"]
    # The other way round no variable tells: her socket does, which lies beside his.
    [finding] = diagnosed(desk, "state-elsewhere", environ={"POSTROOM_HOME": ""})
    assert f"its state folder is {desk.folder}/state" in finding["what"]
    assert f"{desk.folder}/run/postroom/{other['pid']}" not in finding["what"]


# ── the sockets' folder ──────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16", "05.6")
def test_a_runtime_folder_that_is_open_to_all(desk: Desk) -> None:
    """As WSLg has one: mode 0777, so the fallback is used."""
    run = desk.folder / "run"
    run.chmod(0o777)
    finding, fallback = diagnosed_apart(desk, "sockets-skipped")
    assert f"{run}/postroom is passed over: {run}: others may write in it (mode 0777)" in finding["what"]
    assert f"{fallback} is used" in finding["what"]
    assert f"chmod go-w {run}" in finding["mend"]
    run.chmod(0o700)
    assert diagnosed(desk) == []


@pytest.mark.rule("10.16", "05.6")
def test_a_runtime_folder_that_is_not_there(desk: Desk) -> None:
    gone = desk.folder / "gone"
    finding, fallback = diagnosed_apart(desk, "sockets-skipped", XDG_RUNTIME_DIR=str(gone))
    assert f"{gone}: does not exist" in finding["what"]
    assert f"{fallback} is used" in finding["what"]


@pytest.mark.rule("10.16", "05.7")
def test_a_runtime_folder_whose_sockets_would_have_too_long_a_path(desk: Desk) -> None:
    deep = desk.folder / ("d" * 90)
    deep.mkdir(mode=0o700)
    finding, fallback = diagnosed_apart(desk, "sockets-long", XDG_RUNTIME_DIR=str(deep))
    assert "and 103 is the limit" in finding["what"]
    assert f"{fallback} is used" in finding["what"]
    assert "shorter path" in finding["mend"]


@needs_root
@pytest.mark.rule("10.16", "05.8")
@pytest.mark.parametrize("squat", SQUATS)
def test_a_fallback_folder_that_another_user_made_first(desk: Desk, squat: str) -> None:
    make, reason = SQUATS[squat]
    del desk.environ["XDG_RUNTIME_DIR"]
    with inside(desk, "--mount", setup=own_tmp(desk.folder)) as room:
        room.shell(make)
        findings = read(room.run("doctor", "--json"))
        [finding] = [each for each in findings if each["id"] != "container"]
    assert finding["id"] == "sockets-taken"
    assert f"{BASE}, is passed over" in finding["what"]
    assert reason in finding["what"]
    assert f"rm -r {BASE}" in finding["mend"]


@needs_root
@pytest.mark.rule("10.16", "05.6", "05.29")
def test_no_folder_for_sockets_and_a_session_without_an_inbox(desk: Desk) -> None:
    """The session runs and is listed, and nothing reaches it: said of the folder, and of the session."""
    del desk.environ["XDG_RUNTIME_DIR"]
    with inside(desk, "--mount", setup=own_tmp(desk.folder)) as room:
        room.shell("chmod 0777 /tmp; mount -t tmpfs -o mode=0755 none /var/lib; mkdir -m 0700 /var/lib/home")
        room.environ |= {"POSTROOM_HOME": "/var/lib/home/state", "HOME": "/var/lib/home"}
        opened = room.open("mute")
        folder, session, _ = sorted_by(
            room.run("doctor", "--json").document["findings"],
            *("sockets-unfit", "session-no-inbox", "container"),
        )
        assert "others may write in it (mode 0777)" in folder["what"]
        assert "has no inbox" in folder["what"]
        assert "chmod go-w /tmp" in folder["mend"]
        assert "mute is listed and has no inbox" in session["what"]
        assert f"postroom open --resume {opened['session_id']}" in session["mend"]
        assert room.run("doctor").code == 1


# ── the registry ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16", "05.6", "02.14")
def test_a_registry_that_cannot_be_read(desk: Desk) -> None:
    desk.open("alice")
    sessions = desk.folder / "state/sessions"
    sessions.chmod(0o755)
    [finding] = diagnosed(desk, "registry-unread")
    assert f"The registry {sessions} cannot be read: others have access to it" in finding["what"]
    sessions.chmod(0o700)
    assert diagnosed(desk) == []


@pytest.mark.rule("10.16")
@pytest.mark.parametrize("which", ["sessions", "names"])
def test_a_registrys_lock_that_somebody_keeps(desk: Desk, which: str) -> None:
    desk.open("alice")
    path = desk.folder / "state" / which / ".lock"
    lock = Lock(str(path))
    assert lock.acquire()
    try:
        [finding] = diagnosed(desk, "registry-locked")
        assert f"{path} is kept by process {os.getpid()}" in finding["what"]
    finally:
        lock.release()
    assert diagnosed(desk) == []
    path.chmod(0o644)
    [finding] = diagnosed(desk, "registry-locked")
    assert "others have access to it (mode 0644)" in finding["what"]


@pytest.mark.rule("10.16", "09.11")
def test_a_clients_session_that_somebody_is_opening_for_ever(desk: Desk) -> None:
    desk.open("alice")
    path = desk.folder / "state/sessions/.claim-4711"
    lock = Lock(str(path))
    assert lock.acquire()
    try:
        assert diagnosed(desk) == []  # it has just begun
        os.utime(path, (1, 1))
        [finding] = diagnosed(desk, "claim-kept")
        assert f"{path}, is kept by process {os.getpid()}" in finding["what"]
        assert "End that process" in finding["mend"]
    finally:
        lock.release()
    assert diagnosed(desk) == []


@pytest.mark.rule("10.16", "02.3")
def test_a_claim_of_a_name_that_nobody_can_go_by(desk: Desk) -> None:
    desk.open("alice")
    [claim] = [path for path in (desk.folder / "state/names").iterdir() if path.name != ".lock"]
    claim.chmod(0o666)
    [finding] = diagnosed(desk, "name-unfit")
    assert f"{claim}, cannot be used: others have access to it" in finding["what"]
    claim.chmod(0o600)
    claim.write_text("nonsense")
    [finding] = diagnosed(desk, "name-unfit")
    assert "does not say whose name that is" in finding["what"]
    assert "postroom rename NAME" in finding["mend"]


# ── disks ────────────────────────────────────────────────────────────────────────────────────────


def disk(desk: Desk, options: str) -> str:
    """Shell commands that put a file system of memory under the desk's state folder."""
    state = desk.environ["POSTROOM_HOME"]
    return (
        f"mount --make-rprivate /; mkdir -m 0700 {state}; mount -t tmpfs -o mode=0700,{options} none {state}"
    )


def of_the_disk(room: Inside) -> dict[str, Any]:
    """The only finding beside the one that this is another mount namespace."""
    findings = room.run("doctor", "--json").document["findings"]
    [finding] = [each for each in findings if each["id"] != "container"]
    return finding


@needs_root
@pytest.mark.rule("10.16", "05.27")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("size=6m", "bytes left, and a session needs 8,388,608 to open"),
        ("nr_inodes=6", "room for 5 more files"),
    ],
)
def test_a_full_disk(desk: Desk, options: str, says: str) -> None:
    with inside(desk, "--mount", setup=disk(desk, options)) as room:
        finding = of_the_disk(room)
        assert (finding["id"], finding["severity"]) == ("disk-full", "error")
        assert says in finding["what"]
        room.shell(f"mount -o remount,size=64m,nr_inodes=1000 {room.environ['POSTROOM_HOME']}")
        assert {each["id"] for each in room.run("doctor", "--json").document["findings"]} == {"container"}


@needs_root
@pytest.mark.rule("10.16", "05.27")
def test_a_disk_that_filled_up_under_a_session_that_runs(desk: Desk) -> None:
    """Filled for real, to the last block: the session refuses what comes, and it is said of the disk, once."""
    with inside(desk, "--mount", setup=disk(desk, "size=16m")) as room:
        room.open("alice")
        room.shell(f"dd if=/dev/zero of={room.environ['POSTROOM_HOME']}/filler bs=4096 2>/dev/null || true")
        finding = of_the_disk(room)
        assert finding["id"] == "disk-full"
        assert " 0 bytes left" in finding["what"]
        assert finding["mend"] == "Free some space on it."


@needs_root
@pytest.mark.rule("10.16", "05.27")
def test_a_disk_that_is_read_only(desk: Desk) -> None:
    with inside(desk, "--mount", setup=disk(desk, "size=64m")) as room:
        room.shell(f"mount -o remount,ro {room.environ['POSTROOM_HOME']}")
        finding = of_the_disk(room)
        assert (finding["id"], finding["severity"]) == ("disk-read-only", "error")


@pytest.mark.rule("10.16", "05.27")
def test_a_network_file_system(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The type of the file system alone is made up: none of a network can be had in a test."""

    def network(folder: str) -> str:
        assert folder
        return "nfs4"

    monkeypatch.setattr("postroom.console.looks.folders.file_system_of", network)
    findings = doctor.examine(desk.environ, str(desk.folder)).findings
    [finding] = [each for each in findings if each.id != "container"]
    assert (finding.id, finding.severity) == ("network-store", "note")
    assert "network file system (nfs4)" in finding.what
    assert "rollback" in finding.what


# ── the machine ──────────────────────────────────────────────────────────────────────────────────


@needs_root
@pytest.mark.rule("10.16", "05.8")
@pytest.mark.parametrize(("kind", "named"), [("--mount", "mnt"), ("--pid", "pid")])
def test_a_container_is_named_by_its_namespaces(desk: Desk, kind: str, named: str) -> None:
    with inside(desk, kind) as room:
        done = room.run("doctor", "--json")
        [finding] = done.document["findings"]
        here = room.shell(f"readlink /proc/self/ns/{named}").strip()
        assert (finding["id"], finding["severity"], done.code) == ("container", "note", 0)
        assert here in finding["what"]
        assert here not in room.run("doctor").out.splitlines()[-1]
        if not of_the_machine():
            assert here != os.readlink(f"/proc/self/ns/{named}")
    assert diagnosed(desk) == []


@needs_root
@pytest.mark.rule("10.16", "05.8")
def test_a_session_in_another_mount_namespace_is_named(desk: Desk) -> None:
    """It is listed, it answers, and under the same path it sees another file: its folder may be another one."""
    with inside(desk, "--mount") as room:
        room.open("alice")
        [finding] = diagnosed(desk, "session-elsewhere")
        assert "alice runs in another mount namespace (mnt:[" in finding["what"]
        room.ok("--session", "alice", "close")
    assert diagnosed(desk) == []


@needs_root
@pytest.mark.rule("10.16", "05.19", "05.25")
def test_a_proc_that_shows_other_processes(desk: Desk) -> None:
    """A pid namespace over the host's /proc: nobody can be verified there."""
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", COMMAND, "doctor", "--json"],
        env={**desk.environ, "PATH": "/usr/bin:/bin"},
        cwd=desk.folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    finding, container = sorted_by(json.loads(done.stdout)["findings"], "proc-hidden", "container")
    assert "no sender is verified" in finding["what"]
    assert "mount -t proc" in finding["mend"]
    assert "pid namespace" in container["what"]


@needs_user_namespaces
@pytest.mark.rule("10.16", "05.6")
def test_report_21_a_user_namespace_that_maps_nobody_is_said(desk: Desk) -> None:
    """Where all strangers look like us nothing can be trusted: said with the reason, and it does not raise."""
    desk.folder.chmod(0o755)
    done = subprocess.run(
        ["unshare", "--user", COMMAND, "doctor"],
        env={**desk.environ, "PATH": "/usr/bin:/bin"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "[state-unfit]" in done.stdout
    assert "this user namespace maps no uid for us" in done.stdout
    assert "[container]" in done.stdout
    assert "user namespace user:[" in done.stdout


@needs_root
@pytest.mark.rule("10.16", "05.6")
def test_report_21_a_runtime_folder_below_somebody_whom_the_namespace_does_not_map(desk: Desk) -> None:
    """Passed over with the reason, the fallback named, and the session that was opened so is well."""
    above = desk.folder / "theirs"
    runtime = above / "run"
    runtime.mkdir(parents=True, mode=0o700)
    above.chmod(0o755)
    os.chown(above, OTHER_UID - 1, 0)
    desk.environ["XDG_RUNTIME_DIR"] = str(runtime)
    with contextlib.ExitStack() as ending:
        ending.callback(os.chown, above, 0, 0)
        room = ending.enter_context(inside(desk, "--mount", setup=own_tmp(desk.folder)))
        room.prefix = (*room.prefix, "unshare", "--user", "--map-root-user")

        def mapped(*words: str) -> dict[str, Any]:
            done = room.run(*words, "--json")
            assert done.code == 0, done
            return done.document

        opened = mapped("open", "--name", "alice", "--detach")
        ending.callback(os.kill, opened["pid"], 9)
        finding, container = sorted_by(mapped("doctor")["findings"], "sockets-skipped", "container")
        assert f"{runtime}/postroom is passed over: {above}: it belongs to uid {OTHER_UID}" in finding["what"]
        assert "whom this user namespace does not map" in finding["what"]
        assert "/tmp/postroom-0 is used" in finding["what"]
        assert "user namespace" in container["what"]
