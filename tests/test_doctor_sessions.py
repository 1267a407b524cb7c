"""`postroom doctor` on sessions, their records, locks, sockets and stores: each finding is provoked for real (10.16)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom import __version__
from postroom.state import schema
from postroom.state.tenure import read_tenure
from tests.clinic import clinic, diagnosed
from tests.desk import SECONDS, Desk, running, wait_until
from tests.strangers import OTHER_UID, control_path, needs_root

PARTIES = Path(__file__).parent / "parties"


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A clinic."""
    with clinic() as desk:
        yield desk


def folder(desk: Desk, session: dict[str, Any] | None = None) -> Path:
    """The registry, or a session's own folder."""
    registry = desk.folder / "state/sessions"
    return registry / session["session_id"] if session else registry


def record(desk: Desk, session: dict[str, Any]) -> Path:
    """A session's record."""
    return folder(desk) / f"{session['pid']}.json"


def rewrite(path: Path, **fields: Any) -> str:
    """Writes a record anew with other fields; returns what was there."""
    said = path.read_text()
    path.write_text(json.dumps({**json.loads(said), **fields}))
    return said


# ── records ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16", "05.29")
@pytest.mark.parametrize("how", ["mode", "link", "garbage", "owner"])
def test_a_record_that_cannot_be_read_hides_its_session(desk: Desk, how: str) -> None:
    alice = desk.open("alice")
    path = record(desk, alice)
    said = path.read_text()
    reason = {
        "mode": "others have access to it (mode 0666)",
        "link": "a symlink, which is not followed",
        "garbage": "not JSON",
        "owner": f"it belongs to uid {OTHER_UID}",
    }[how]
    match how:
        case "mode":
            path.chmod(0o666)
        case "link":
            path.rename(desk.folder / "away")
            path.symlink_to(desk.folder / "away")
        case "owner":
            if os.geteuid() != 0:
                pytest.skip("only root can give a file away")
            os.chown(path, OTHER_UID, 0)
        case _:
            path.write_text("{")
    [finding] = diagnosed(desk, "record-unfit")
    assert f"The record {alice['pid']}.json is passed over: {reason}" in finding["what"]
    assert "yours, 0600" in finding["mend"]
    path.unlink()
    path.write_text(said)
    path.chmod(0o600)
    assert diagnosed(desk) == []


@pytest.mark.rule("10.16", "05.11")
def test_a_record_of_a_newer_version_and_another_programs(desk: Desk) -> None:
    alice, bob = desk.open("alice"), desk.open("bob")
    rewrite(record(desk, alice), schemaVersion=2)
    rewrite(record(desk, bob), sessionId="somebody-elses")
    os.utime(folder(desk, bob) / "lock", (1, 1))
    newer, foreign, unlisted = diagnosed(desk, "record-newer", "record-foreign", "session-unlisted")
    assert f"{alice['pid']}.json is passed over: written by a newer version" in newer["what"]
    assert "newer Postroom" in newer["mend"]
    assert "another program's record" in foreign["what"]
    assert foreign["severity"] == "note"
    assert unlisted["what"].startswith("bob runs and its record is gone")


@pytest.mark.rule("10.16", "05.11")
@pytest.mark.parametrize("field", ["bootId", "pidDomain"])
def test_a_record_from_elsewhere_that_cannot_be_judged(desk: Desk, field: str) -> None:
    bob = desk.open("bob")
    said = record(desk, bob).read_text()
    desk.kill(bob)
    record(desk, bob).write_text(json.dumps({**json.loads(said), field: "elsewhere"}))
    lock = folder(desk, bob) / "lock"
    tenure = lock.read_text().split("\n")
    tenure[{"bootId": 2, "pidDomain": 3}[field]] = "elsewhere"
    lock.write_text("\n".join(tenure))
    [finding] = diagnosed(desk, "record-unjudged")
    assert "nothing can be proved" in finding["what"]
    assert "--resume ID" in finding["mend"]


@pytest.mark.rule("10.16", "05.11")
def test_a_record_of_a_session_that_was_killed(desk: Desk) -> None:
    alice, bob = desk.open("alice"), desk.open("bob")
    desk.kill(alice)
    [finding] = diagnosed(desk, "record-stale")
    assert finding["what"] == "1 record of a session that was killed is still there."
    desk.kill(bob)
    for _ in range(2):
        [finding] = diagnosed(desk, "record-stale")
        assert finding["what"] == "2 records of sessions that were killed are still there."
    desk.ok("list")
    assert diagnosed(desk) == []


@pytest.mark.rule("10.16")
def test_a_session_whose_record_is_gone(desk: Desk) -> None:
    """It runs, and nobody finds it."""
    alice = desk.open("alice")
    record(desk, alice).unlink()
    os.utime(folder(desk, alice) / "lock", (1, 1))
    [finding] = diagnosed(desk, "session-unlisted")
    assert finding["what"] == "alice runs and its record is gone: nobody finds it."
    assert f"postroom open --resume {alice['session_id']}" in finding["mend"]
    os.kill(alice["pid"], signal.SIGTERM)
    wait_until(lambda: not running(alice["pid"]))
    desk.open(None, "--resume", alice["session_id"])
    assert diagnosed(desk) == []


# ── a record without a socket ────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16", "05.6", "05.11")
@pytest.mark.parametrize("kind", ["absent", "gone", "file", "link", "loose", "refused", "folder"])
def test_report_19_a_record_whose_socket_is_not_bound(desk: Desk, kind: str) -> None:
    """Whatever lies in the socket's place, or nothing: listed as not messageable, its owner is told, doctor says it."""
    alice = desk.open("alice")
    path, loose = Path(alice["socket"]), desk.folder / "loose"
    match kind:
        case "absent":
            rewrite(record(desk, alice), messagingSocketPath=None)
        case "gone":
            path.unlink()
        case "file":
            path.unlink()
            path.touch(0o600)
        case "link":
            path.rename(desk.folder / "run/real.sock")
            path.symlink_to(desk.folder / "run/real.sock")
        case "loose":
            path.chmod(0o666)
        case "refused":
            path.unlink()
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(path))
            path.chmod(0o600)
        case _:
            loose.mkdir(mode=0o777)
            loose.chmod(0o777)
            rewrite(record(desk, alice), messagingSocketPath=str(loose / path.name))
    desk.open("bob")
    ids = {"absent": "session-no-inbox", "refused": "session-deaf"}
    [finding] = diagnosed(desk, ids.get(kind, "session-unreachable"))
    assert finding["severity"] == "error"
    assert finding["what"].startswith("alice ")
    assert f"postroom open --resume {alice['session_id']}" in finding["mend"]
    error = desk.refused("--session", "bob", "send", "alice", "hello")
    assert error["code"] in ("peer_unavailable", "unsafe_target", "connection_failed")
    if kind not in ("refused",):
        [row] = [row for row in desk.ok("list")["rows"] if row["name"] == "alice"]
        assert row["condition"] == "cannot receive messages"
    if kind not in ("absent", "refused"):  # whoever asks it is told why
        assert any("not reachable" in one for one in desk.ok("--session", "bob", "status")["problems"])
    # What the finding says to do mends it.
    os.kill(alice["pid"], signal.SIGTERM)
    wait_until(lambda: not running(alice["pid"]))
    desk.open(None, "--resume", alice["session_id"])
    assert diagnosed(desk) == []
    desk.send("bob", "alice", "hello")


@pytest.mark.rule("10.16", "05.11")
def test_a_session_that_hangs(desk: Desk) -> None:
    """The hint of `timeout` leads here."""
    alice = desk.open("alice")
    os.kill(alice["pid"], signal.SIGSTOP)
    try:
        [finding] = diagnosed(desk, "session-silent")
        assert f"alice (process {alice['pid']}) takes connections and does not answer" in finding["what"]
        assert f"kill -CONT {alice['pid']}" in finding["mend"]
    finally:
        os.kill(alice["pid"], signal.SIGCONT)
    assert diagnosed(desk) == []


@pytest.mark.rule("10.16", "05.26")
@pytest.mark.parametrize(
    ("answer", "says"), [(b"", "closes without"), (b"part 0 5 0\nhello", "does not"), (b"{}\n", "")]
)
def test_a_control_socket_that_answers_nonsense(desk: Desk, answer: bytes, says: str) -> None:
    """Another program of this user sits in its place: it is waited for no longer than two seconds, and not believed."""
    alice = desk.open("alice")
    path = Path(control_path(alice))
    path.unlink()
    program = (
        "import socket,sys,os\n"
        "s=socket.socket(socket.AF_UNIX);s.bind(sys.argv[1]);os.chmod(sys.argv[1],0o600);s.listen()\n"
        "print('up',flush=True)\n"
        "kept=[]\n"
        "while True:\n"
        "    c,_=s.accept();c.recv(100000);c.sendall(sys.argv[2].encode());kept.append(c)\n"
        "    if not sys.argv[2] or sys.argv[2][0]=='{': c.close()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path), answer.decode()], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        try:
            [finding] = diagnosed(desk, "session-silent")
        finally:
            process.kill()
    assert says in finding["what"]
    [finding] = diagnosed(desk, "session-deaf")
    assert "nobody takes commands for it" in finding["what"]
    assert "it can be written to, and not asked" in finding["what"]


@pytest.mark.rule("10.16", "05.26")
@pytest.mark.parametrize("how", ["loose", "gone", "garbage", "socket"])
def test_a_session_that_no_command_reaches(desk: Desk, how: str) -> None:
    alice = desk.open("alice")
    token, says, finding_id = folder(desk, alice) / "client.token", "", "session-unasked"
    match how:
        case "loose":
            token.chmod(0o644)
            says = f"{token}: others have access to it (mode 0644)"
        case "gone":
            token.unlink()
            says = f"{token} is gone"
        case "garbage":
            token.write_text("nothing")
            says = "does not say where the session is reached"
        case _:
            Path(control_path(alice)).chmod(0o777)
            says, finding_id = "others have access to it (mode 0777)", "session-unreachable"
    [finding] = diagnosed(desk, finding_id)
    assert says in finding["what"]
    assert alice["session_id"] in finding["mend"]


@pytest.mark.rule("10.16", "05.26")
def test_from_inside_a_session_others_are_seen_from_outside_only(desk: Desk) -> None:
    """Whoever belongs to a session may look into no other: said, and no failure."""
    desk.open("alice")
    out = desk.folder / "out"
    script = desk.folder / "bin/ask"
    script.write_text(f"#!/bin/sh\n{Path(sys.executable).with_name('postroom')} doctor --json > {out}\n")
    script.chmod(0o700)
    done = desk.run("open", "--name", "bob", "--", str(script))
    assert done.code == 0
    [finding] = [one for one in json.loads(out.read_text())["findings"] if one["id"] != "container"]
    assert (finding["id"], finding["severity"]) == ("session-not-yours", "note")
    assert finding["what"].startswith("alice was seen from outside only")
    assert "terminal of your own" in finding["mend"]


# ── versions and locks ───────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16")
def test_sessions_of_several_versions(desk: Desk) -> None:
    alice, bob = desk.open("alice"), desk.open("bob")
    desk.open("carol")
    rewrite(record(desk, alice), version="0.0.9")
    rewrite(record(desk, bob), version="0.0.9")
    [finding] = diagnosed(desk, "session-version")
    assert finding["what"] == f"alice and bob run Postroom 0.0.9, and this command is {__version__}."
    assert "--resume" in finding["mend"]


@pytest.mark.rule("10.16", "05.11")
def test_a_lock_that_a_forked_child_keeps(desk: Desk) -> None:
    """The parent is killed, the child goes on: named with both pids, and a resume is not stopped."""
    with subprocess.Popen(
        [sys.executable, str(PARTIES / "keeper.py"), "alice"],
        env=desk.environ,
        cwd=desk.folder,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        process.kill()
        process.wait(SECONDS)
    try:
        stale, kept = diagnosed(desk, "record-stale", "lock-kept")
        assert f"alice is dead (its process, {process.pid}, is gone)" in kept["what"]
        assert f"process {said['child']} still keeps its lock" in kept["what"]
        assert f"postroom open --resume {said['id']}" in kept["mend"]
        assert f"kill {said['child']}" in kept["mend"]
        assert stale["severity"] == "note"
        desk.open(None, "--resume", said["id"])
        assert diagnosed(desk) == []
    finally:
        os.kill(said["child"], signal.SIGKILL)


# ── stores ───────────────────────────────────────────────────────────────────────────────────────


def ended(desk: Desk, name: str) -> dict[str, Any]:
    """A session that was opened and closed."""
    session = desk.open(name)
    desk.ok("--session", name, "close")
    return session


@pytest.mark.rule("10.16", "05.27")
def test_a_store_of_a_newer_version(desk: Desk) -> None:
    alice = ended(desk, "alice")
    with sqlite3.connect(folder(desk, alice) / "store.db") as store:
        store.execute(f"PRAGMA user_version = {schema.VERSION + 5}")
    store.close()
    [finding] = diagnosed(desk, "store-newer")
    assert f"of version {schema.VERSION + 5}, and this Postroom knows {schema.VERSION}" in finding["what"]
    assert "was left alone" in desk.refused("open", "--resume", alice["session_id"], "--detach")["hint"]


@pytest.mark.rule("10.16", "05.27")
def test_a_store_that_is_corrupt_and_then_set_aside(desk: Desk) -> None:
    alice = ended(desk, "alice")
    store = folder(desk, alice) / "store.db"
    store.write_bytes(b"no database at all" * 100)
    [finding] = diagnosed(desk, "store-unread")
    assert f"{store}, cannot be read: it is no message store" in finding["what"]
    assert "--resume" in finding["mend"]
    again = desk.open(None, "--resume", alice["session_id"])
    assert any("set aside" in problem for problem in again["problems"])
    [finding] = diagnosed(desk, "store-set-aside")
    [aside] = folder(desk, alice).glob("store.db.corrupt-*")
    assert aside.name in finding["what"]
    aside.unlink()
    desk.ok("--session", "alice", "close")
    assert diagnosed(desk) == []


@pytest.mark.rule("10.16", "05.27")
def test_a_store_of_another_program(desk: Desk) -> None:
    alice = ended(desk, "alice")
    store = folder(desk, alice) / "store.db"
    store.unlink()
    with sqlite3.connect(store) as other:
        other.execute("PRAGMA application_id = 7")
        other.execute("CREATE TABLE t(x)")
    other.close()
    store.chmod(0o600)
    [finding] = diagnosed(desk, "store-unread")
    assert "it is no message store" in finding["what"]


@pytest.mark.rule("10.16", "05.27")
def test_a_store_that_was_taken_from_under_its_session(desk: Desk) -> None:
    alice = desk.open("alice")
    (folder(desk, alice) / "store.db").unlink()
    [finding] = diagnosed(desk, "store-unread")
    assert "it is gone, and the session writes to a file without a name" in finding["what"]
    assert "Close the session at once" in finding["mend"]


@pytest.mark.rule("10.16", "05.6", "05.27")
@pytest.mark.parametrize("which", ["store.db", "store.db-wal", "folder"])
def test_a_store_that_must_not_be_trusted(desk: Desk, which: str) -> None:
    """The same that a resume would refuse."""
    alice = ended(desk, "alice")
    path = folder(desk, alice) if which == "folder" else folder(desk, alice) / which
    if which == "store.db-wal":
        path.touch()
    path.chmod(0o755 if which == "folder" else 0o644)
    [finding] = diagnosed(desk, "store-unfit")
    assert f"{path}: others have access to it" in finding["what"]
    assert desk.refused("open", "--resume", alice["session_id"], "--detach")["code"] == "unfit_path"
    path.chmod(0o700 if which == "folder" else 0o600)
    if which == "store.db-wal":
        path.unlink()
    assert diagnosed(desk) == []


@needs_root
@pytest.mark.rule("10.16", "05.6")
def test_a_store_that_is_anothers(desk: Desk) -> None:
    alice = ended(desk, "alice")
    os.chown(folder(desk, alice) / "store.db", OTHER_UID, 0)
    [finding] = diagnosed(desk, "store-unfit")
    assert f"it belongs to uid {OTHER_UID}" in finding["what"]


# ── what a session says itself ───────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16", "10.27")
def test_what_a_session_says_is_wrong_with_it(desk: Desk) -> None:
    """Another one has its name: no file tells that, the session does."""
    desk.open("alice")
    again = desk.open("alice")
    [finding] = diagnosed(desk, "session-problem")
    assert again["name"] in finding["what"]
    assert "A live session has the name alice" in finding["what"]


@needs_root
@pytest.mark.rule("10.16", "05.19")
def test_what_a_session_has_counted(desk: Desk) -> None:
    """Another user's connections, which are closed unread."""
    alice = desk.open("alice")
    path = Path(alice["socket"])
    for place in (desk.folder, path.parent.parent, path.parent):
        place.chmod(0o755)
    path.chmod(0o666)
    program = "import os,socket,sys;os.setuid(65534);s=socket.socket(socket.AF_UNIX);s.connect(sys.argv[1]);s.recv(1)"
    try:
        subprocess.run(
            [shutil.which("python3") or sys.executable, "-S", "-c", program, str(path)],
            check=True,
            timeout=SECONDS,
        )
    finally:
        for place in (path.parent.parent, path.parent):
            place.chmod(0o700)
        path.chmod(0o600)
    [finding] = diagnosed(desk, "session-trouble")
    assert finding["what"].startswith("Since alice was opened: another user tried to connect (1 times)")
    assert "postroom --session alice log" in finding["mend"]


def test_the_tenure_of_a_lock_is_what_is_read(desk: Desk) -> None:
    """What the tests here rewrite is what the product reads."""
    alice = desk.open("alice")
    tenure = read_tenure(str(folder(desk, alice) / "lock"))
    assert tenure is not None
    assert tenure.pid == alice["pid"]
