"""Files that must not be trusted, on real sessions: each is refused or skipped with a reason, and nothing else suffers.

Every file that a session makes takes every form in turn: a symlink, another user's, open to others, a FIFO, cut short,
empty, of a newer version, a folder in its place. What lies there is never followed, never changed where it is not
ours to replace, and nobody waits for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.core.address import claim_key
from tests.desk import ROOMY, SECONDS, Desk, running, wait_until
from tests.strangers import OTHER_UID, control_path, needs_root, private_desk

PARTIES = Path(__file__).with_name("parties")
TEXT = "the column is tenant_id"

REASONS = {
    "symlink": "a symlink, which is not followed",
    "foreign": f"it belongs to uid {OTHER_UID}",
    "0666": r"(access to|write in) it \(mode 0666\)",
    "0777": r"(access to|write in) it \(mode 0777\)",
    "0750": r"others have access to it \(mode 0750\)",
    "fifo": "not a (regular file|socket|folder)",
    "folder": "not a (regular file|socket)|a folder where a file should be",
    "file": "not a (socket|folder)",
    "missing": "nothing lies there|does not exist",
}
"""Form → the words of the reason that is given for it, where the file has none of its own; patterns."""

CONTENT: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda _: b"",
    "garbage": lambda data: b"\xff" * len(data),
    "file": lambda _: b"",
    "newer": lambda data: json.dumps({**json.loads(data), "schemaVersion": 99}).encode(),
}
"""Form → what a regular file then holds, made from what it held."""


def forms(*names: str) -> list[Any]:
    """Parameters for a test; a form that only root can make says so."""
    return [pytest.param(name, marks=needs_root) if name == "foreign" else name for name in names]


@contextlib.contextmanager
def planted(
    desk: Desk, form: str, path: Path, target: Path | None = None, *, ours_to_replace: bool = False
) -> Generator[None]:
    """Gives what lies at a path a form in which it must not be trusted, for as long as the block runs.

    Args:
        desk: whose path it is.
        form: `foreign` and the modes change what lies there; any other puts something in its place.
        path: a file, a socket or a folder.
        target: what a symlink leads to; by default what lay there before.
        ours_to_replace: the product may put something new in its place. Otherwise it must still lie there
            afterwards, as it was.
    """
    before = path.lstat() if os.path.lexists(path) else None
    aside = desk.folder / "aside"
    in_place = form == "foreign" or form.startswith("0")
    if in_place and ours_to_replace:
        os.link(path, aside)
    if form == "foreign":
        os.chown(path, OTHER_UID, OTHER_UID)
    elif in_place:
        path.chmod(int(form, 8))
    else:
        if before is not None:
            path.rename(aside)
        put(form, path, target or aside, aside)
    there = path.lstat() if os.path.lexists(path) else None
    try:
        yield
        if there is not None and not ours_to_replace:
            after = path.lstat()
            assert (after.st_ino, after.st_mode, after.st_uid) == (there.st_ino, there.st_mode, there.st_uid)
            assert after.st_mtime_ns == there.st_mtime_ns or stat.S_ISDIR(there.st_mode)
    finally:
        if not in_place:
            remove(path)
        if os.path.lexists(aside):
            aside.rename(path)
        if in_place and before is not None:
            os.chown(path, before.st_uid, before.st_gid)
            path.chmod(stat.S_IMODE(before.st_mode))


def put(form: str, path: Path, target: Path, aside: Path) -> None:
    """Puts something at a path; `missing` is nothing."""
    if form == "symlink":
        path.symlink_to(target)
    elif form == "fifo":
        os.mkfifo(path, 0o600)
    elif form == "folder":
        path.mkdir(0o700)
    elif form in CONTENT:
        path.touch(0o600)
        path.write_bytes(CONTENT[form](aside.read_bytes() if aside.is_file() else b""))
    else:
        assert form == "missing"


def remove(path: Path) -> None:
    """Removes whatever lies at a path."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)


def said(form: str, text: str, **own: str) -> None:
    """Fails unless a text gives the reason for a form."""
    assert re.search(own.get(form, REASONS.get(form, "no such reason")), text), (form, text)


def names(document: dict[str, Any]) -> set[str]:
    """Who a listing shows."""
    return {row["name"] for row in document["rows"]}


def problems(desk: Desk) -> list[str]:
    """What alice's `status` says is amiss."""
    return list(desk.ok("--session", "alice", "status")["problems"])


def sessions(desk: Desk) -> Path:
    """The registry."""
    return desk.folder / "state/sessions"


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A desk with alice, who looks, and bob, whose files are spoilt and mended."""
    with private_desk() as desk:
        desk.settings(limits=ROOMY)
        desk.open("alice")
        desk.open("bob")
        yield desk


@pytest.fixture
def bob(desk: Desk) -> Iterator[dict[str, Any]]:
    """Bob; afterwards he is whole again: nothing is amiss in alice's eyes, and what she sends him arrives."""
    bob = next(one for one in desk.opened.values() if one["name"] == "bob")
    yield bob
    assert running(bob["pid"])
    assert problems(desk) == []
    desk.send("alice", "bob", TEXT)
    assert [message["text"] for message in desk.take("bob")] == [TEXT]


# ── the files of a session that runs ─────────────────────────────────────────────────────────────


@pytest.mark.rule("05.6", "05.11", "11.11", "11.28")
@pytest.mark.parametrize(
    "form", forms("symlink", "foreign", "0666", "0777", "fifo", "truncated", "empty", "folder", "newer")
)
def test_a_record_is_skipped_and_said(desk: Desk, bob: dict[str, Any], form: str) -> None:
    """It is not listed, its session cannot be written to by that name, `status` says why, and it stays."""
    record = sessions(desk) / f"{bob['pid']}.json"
    with planted(desk, form, record):
        assert names(desk.ok("list")) == {"alice"}
        [problem] = problems(desk)
        assert names(desk.ok("--session", "alice", "list")) == set()
        assert record.name in problem
        said(form, problem, newer="a newer version", truncated="not JSON", empty="not JSON")
        assert desk.refused("--session", "alice", "send", "bob", TEXT, code=3)["code"] == "not_found"
        assert desk.ok("--session", "bob", "status")["queued"] == 0


@pytest.mark.rule("05.6", "05.29", "05.24", "11.11")
@pytest.mark.parametrize("form", forms("symlink", "foreign", "0666", "fifo", "file", "folder", "missing"))
def test_a_socket_makes_its_session_unreachable(desk: Desk, bob: dict[str, Any], form: str) -> None:
    """It is listed as one that cannot receive, a send is refused, and a symlink to another inbox is not followed."""
    alice = next(one for one in desk.opened.values() if one["name"] == "alice")
    inbox = Path(bob["socket"])
    with planted(desk, form, inbox, Path(alice["socket"])):
        [problem] = problems(desk)
        assert f"{bob['pid']}.json" in problem
        said(form, problem)
        [row] = desk.ok("--session", "alice", "list")["rows"]
        assert (row["name"], row["condition"]) == ("bob", "cannot receive messages")
        error = desk.refused("--session", "alice", "send", "bob", TEXT)
        assert error["code"] in ("peer_unavailable", "unsafe_target")
        assert desk.refused("send", "bob", TEXT)["code"] in ("peer_unavailable", "unsafe_target")
        assert [desk.ok("--session", name, "status")["queued"] for name in ("alice", "bob")] == [0, 0]


@pytest.mark.rule("05.6", "05.26", "11.11")
@pytest.mark.parametrize("form", forms("symlink", "foreign", "0666", "fifo", "folder", "missing"))
def test_a_control_socket_is_refused_with_its_reason(desk: Desk, bob: dict[str, Any], form: str) -> None:
    """No command goes over it, not to another session either; messages still arrive."""
    alice = next(one for one in desk.opened.values() if one["name"] == "alice")
    door = Path(control_path(bob))
    with planted(desk, form, door, Path(control_path(alice))):
        error = desk.refused("--session", "bob", "inbox", "--take")
        if form == "missing":
            assert (error["code"], "cannot be asked" in error["message"]) == ("no_session", True)
        else:
            assert error["code"] == "unfit_path"
            said(form, error["message"])
        desk.send("alice", "bob", TEXT)
    assert [message["text"] for message in desk.take("bob")] == [TEXT]


@pytest.mark.rule("05.6", "05.26", "11.11")
@pytest.mark.parametrize("form", forms("symlink", "foreign", "0666", "fifo", "truncated", "folder"))
def test_a_client_token_is_refused_with_its_reason(desk: Desk, bob: dict[str, Any], form: str) -> None:
    """No command goes by it, the session lives on and receives."""
    token = sessions(desk) / bob["session_id"] / "client.token"
    with planted(desk, form, token):
        for named in ("bob", bob["session_id"]):
            error = desk.refused("--session", named, "status")
            assert error["code"] == "unfit_path"
            assert str(token) in error["message"]
            said(form, error["message"], truncated="does not say", empty="does not say")
        desk.send("alice", "bob", TEXT)
    assert [message["text"] for message in desk.take("bob")] == [TEXT]


@pytest.mark.rule("05.11", "05.6", "11.11")
@pytest.mark.parametrize("form", forms("symlink", "foreign", "0666", "fifo", "folder"))
def test_a_lock_that_cannot_be_trusted_proves_nothing(desk: Desk, bob: dict[str, Any], form: str) -> None:
    """Neither life nor death: the session is not listed, never swept, and nobody says that it has ended."""
    record = sessions(desk) / f"{bob['pid']}.json"
    with planted(desk, form, sessions(desk) / bob["session_id"] / "lock"):
        assert names(desk.ok("list")) == {"alice"}
        [problem] = problems(desk)
        assert record.name in problem
        said(form, problem)
        assert desk.refused("--session", "alice", "send", "bob", TEXT, code=3)["code"] == "not_found"
        error = desk.refused("send", "bob", TEXT, code=3)
        assert (error["code"], "ended" in error["message"]) == ("not_found", False)
        assert desk.refused("open", "--resume", bob["session_id"])["code"] == "unfit_path"
        assert record.exists()
    assert names(desk.ok("list")) == {"alice", "bob"}


@pytest.mark.rule("05.11")
@pytest.mark.parametrize("left", [0, 5])
def test_a_lock_that_was_emptied_is_still_held(desk: Desk, bob: dict[str, Any], left: int) -> None:
    """The lock counts and not what is written in it."""
    lock = sessions(desk) / bob["session_id"] / "lock"
    said = lock.read_bytes()
    os.truncate(lock, left)
    try:
        assert names(desk.ok("list")) == {"alice", "bob"}
        assert desk.refused("open", "--resume", bob["session_id"])["code"] == "session_in_use"
    finally:
        lock.write_bytes(said)


@pytest.mark.rule("05.6", "05.11", "11.11")
@pytest.mark.parametrize("form", forms("symlink", "foreign", "0777", "fifo", "file"))
def test_a_sessions_folder_is_skipped_and_said(desk: Desk, bob: dict[str, Any], form: str) -> None:
    """Its session is neither listed nor swept nor commanded, while it goes on."""
    record = sessions(desk) / f"{bob['pid']}.json"
    with planted(desk, form, sessions(desk) / bob["session_id"]):
        assert names(desk.ok("list")) == {"alice"}
        [problem] = problems(desk)
        assert record.name in problem
        said(form, problem)
        assert desk.refused("--session", "bob", "status")["code"] in ("unfit_path", "no_session")
        assert desk.refused("open", "--resume", bob["session_id"])["code"] in (
            "unfit_path",
            "no_session",
        )
        assert record.exists()


@pytest.mark.rule("05.20", "11.11")
@pytest.mark.parametrize("form", ["symlink", "fifo", "truncated", "folder"])
def test_a_key_file_is_nobodys_hurt(desk: Desk, bob: dict[str, Any], form: str) -> None:
    """Whatever lies in its place: nobody waits for it or follows it, and messages need no key on this machine."""
    [key] = sessions(desk).glob(f"{bob['pid']}.*.key")
    with planted(desk, form, key):
        assert names(desk.ok("list")) == {"alice", "bob"}
        desk.send("alice", "bob", TEXT)
    assert [message["text"] for message in desk.take("bob")] == [TEXT]


@pytest.mark.rule("05.11")
@pytest.mark.parametrize("form", ["symlink", "fifo", "folder"])
def test_a_key_file_that_a_dead_process_left_is_removed_only_when_it_can_be_read(
    desk: Desk, bob: dict[str, Any], form: str
) -> None:
    """A sweep that comes by removes what was provably left behind, and nothing that merely looks so."""
    [key] = sessions(desk).glob(f"{bob['pid']}.*.key")
    dead = key.with_name("2147483646." + "0" * 64 + ".key")
    dead.touch(0o600)
    dead.write_bytes(key.read_bytes())
    with planted(desk, form, dead):
        assert names(desk.ok("list")) == {"alice", "bob"}
    assert names(desk.ok("list")) == {"alice", "bob"}
    assert not dead.exists()


@pytest.mark.rule("02.3", "05.6", "11.11")
@pytest.mark.parametrize("form", forms("symlink", "foreign", "fifo", "truncated", "folder"))
def test_a_claim_of_a_name_is_refused_or_made_anew(desk: Desk, bob: dict[str, Any], form: str) -> None:
    """`--session NAME` says that it cannot go by it; a newcomer's claim replaces it and never writes through it."""
    claim = desk.folder / "state/names" / claim_key("bob")
    canary = desk.folder / "canary"
    canary.write_text(f"{bob['session_id']}\nprimary\nbob\n")
    canary.chmod(0o600)
    with planted(desk, form, claim, canary, ours_to_replace=True):
        error = desk.refused("--session", "bob", "status")
        assert (error["code"], str(claim) in error["message"]) == ("unfit_path", True)
        assert desk.ok("--session", bob["session_id"], "status")["name"] == "bob"
        desk.send("alice", "bob", TEXT)
        if form == "folder":
            assert "Is a directory" in desk.refused("open", "--name", "bob")["message"]
        else:
            second = desk.open("bob")
            assert second["name"] == "bob"
            assert stat.S_ISREG(claim.lstat().st_mode)
            desk.ok("--session", second["session_id"], "close")
            wait_until(lambda: not running(second["pid"]))
    assert canary.read_text() == f"{bob['session_id']}\nprimary\nbob\n"
    assert [message["text"] for message in desk.take("bob")] == [TEXT]


@pytest.mark.rule("05.6", "05.11")
@pytest.mark.parametrize(
    ("place", "form"),
    [("sessions", "symlink"), ("sessions", "folder"), ("names", "symlink"), ("names", "fifo")],
)
def test_a_common_lock_stops_those_who_need_it_and_nobody_else(
    desk: Desk, bob: dict[str, Any], place: str, form: str
) -> None:
    """Nobody can open a session, with the reason; those that are there go on."""
    del bob
    with planted(desk, form, desk.folder / "state" / place / ".lock"):
        error = desk.refused("open", "--name", "carol")
        assert error["code"] == "unfit_path"
        assert f"{place}/.lock" in error["message"]
        assert names(desk.ok("list")) == {"alice", "bob"}


# ── the files of a session that has ended ────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def killed(desk: Desk) -> dict[str, Any]:
    """Dora, who was killed with a message unread."""
    dora = desk.open("dora")
    desk.send("alice", "dora", TEXT)
    desk.kill(dora)
    desk.ok("list")  # sweeps her record
    return dora


@pytest.fixture
def dora(desk: Desk, killed: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Dora; afterwards her folder is as it was."""
    folder, kept = sessions(desk) / killed["session_id"], desk.folder / "kept"
    shutil.copytree(folder, kept)
    yield killed
    session = desk.opened[killed["session_id"]]
    if running(session["pid"]):
        os.kill(session["pid"], signal.SIGKILL)
        wait_until(lambda: not running(session["pid"]))
        desk.ok("list")
    shutil.rmtree(folder)
    kept.rename(folder)


def resumed(desk: Desk, session: dict[str, Any]) -> dict[str, Any]:
    """Opens a session again."""
    return desk.open(None, "--resume", session["session_id"])


@pytest.mark.rule("05.4", "05.6", "05.27", "11.11", "11.28")
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("store.db", "symlink"),
        pytest.param("store.db", "foreign", marks=needs_root),
        ("store.db", "0666"),
        ("store.db", "fifo"),
        ("store.db", "folder"),
        ("store.db-wal", "symlink"),
        pytest.param("store.db-wal", "foreign", marks=needs_root),
        ("store.db-wal", "fifo"),
        ("store.ballast", "symlink"),
        ("store.ballast", "folder"),
    ],
)
def test_a_store_is_refused_with_its_reason(desk: Desk, dora: dict[str, Any], name: str, form: str) -> None:
    """Neither a resume nor a reader opens it, whatever part of it is unfit, and nobody waits for it."""
    path = sessions(desk) / dora["session_id"] / name
    with planted(desk, form, path):
        for words in (
            ("open", "--resume", dora["session_id"]),
            ("--session", dora["session_id"], "log"),
        ):
            error = desk.refused(*words)
            assert error["code"] == "unfit_path"
            assert str(path) in error["message"]
            said(form, error["message"])
    resumed(desk, dora)
    assert [message["text"] for message in desk.take("dora")] == [TEXT]


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("form", ["truncated", "garbage"])
def test_a_corrupt_store_is_set_aside_and_the_session_goes_on(
    desk: Desk, dora: dict[str, Any], form: str
) -> None:
    """A new one is begun, `status` says where the old one is, and the next message arrives."""
    folder = sessions(desk) / dora["session_id"]
    with planted(desk, form, folder / "store.db", ours_to_replace=True):
        spoilt = (folder / "store.db").read_bytes()
        document = resumed(desk, dora)
        [problem] = document["problems"]
        [aside] = [path for path in folder.glob("store.db.corrupt-*") if not path.name.endswith("-wal")]
        assert aside.name in problem
        assert len(aside.read_bytes()) >= len(spoilt) > 0
        assert desk.ok("--session", "dora", "status")["problems"] == [problem]
        desk.send("alice", "dora", "after")
        assert [message["text"] for message in desk.take("dora")] == ["after"]
        desk.kill(document)


@pytest.mark.rule("05.27")
def test_a_store_of_a_newer_version_is_left_alone(desk: Desk, dora: dict[str, Any]) -> None:
    """Neither a resume nor a reader touches it; both say which version it is."""
    store = sessions(desk) / dora["session_id"] / "store.db"
    with contextlib.closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = store.read_bytes()
    for words in (
        ("open", "--resume", dora["session_id"]),
        ("--session", dora["session_id"], "log"),
    ):
        error = desk.refused(*words)
        assert (error["code"], "version 99" in error["message"]) == ("store_failed", True)
    assert store.read_bytes() == before


@pytest.mark.rule("05.6", "05.11", "05.12")
@pytest.mark.parametrize("form", forms("symlink", "foreign", "0666", "fifo", "folder"))
def test_a_lock_stops_a_resume_with_its_reason(desk: Desk, dora: dict[str, Any], form: str) -> None:
    """Who cannot trust the lock cannot become that session."""
    lock = sessions(desk) / dora["session_id"] / "lock"
    with planted(desk, form, lock):
        error = desk.refused("open", "--resume", dora["session_id"])
        assert error["code"] == "unfit_path"
        assert str(lock) in error["message"]
        said(form, error["message"])


@pytest.mark.rule("05.26", "11.11")
@pytest.mark.parametrize("form", ["symlink", "fifo", "0666", "folder"])
def test_an_old_client_token_is_replaced_and_never_written_through(
    desk: Desk, dora: dict[str, Any], form: str
) -> None:
    """A resume makes a new one; only a folder in its place stops it, with the reason."""
    token = sessions(desk) / dora["session_id"] / "client.token"
    canary = desk.folder / "canary"
    canary.write_text("untouched")
    with planted(desk, form, token, canary, ours_to_replace=True):
        if form == "folder":
            error = desk.refused("open", "--resume", dora["session_id"])
            assert (error["code"], str(token) in error["message"]) == ("store_failed", True)
        else:
            document = resumed(desk, dora)
            assert stat.S_IMODE(token.lstat().st_mode) == 0o600
            assert stat.S_ISREG(token.lstat().st_mode)
            assert [message["text"] for message in desk.take("dora")] == [TEXT]
            desk.kill(document)
    assert canary.read_text() == "untouched"


@pytest.mark.rule("05.4", "05.6", "11.11")
@pytest.mark.parametrize("form", ["symlink", "0666", "fifo", "folder"])
def test_a_session_without_a_fit_log_opens_and_says_so(desk: Desk, dora: dict[str, Any], form: str) -> None:
    """It runs, keeps no log, follows nothing and waits for nobody."""
    log = sessions(desk) / dora["session_id"] / "log"
    canary = desk.folder / "canary"
    canary.write_text("untouched")
    with planted(desk, form, log, canary):
        document = resumed(desk, dora)
        [problem] = document["problems"]
        assert str(log) in problem
        said(form, problem)
        assert [message["text"] for message in desk.take("dora")] == [TEXT]
        desk.kill(document)
    assert canary.read_text() == "untouched"


# ── folders ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.2", "05.6", "05.7", "11.11")
@pytest.mark.parametrize("form", forms("symlink", "foreign", "0750", "file"))
def test_an_unfit_postroom_home_ends_every_command_with_1(desk: Desk, bob: dict[str, Any], form: str) -> None:
    """It is never passed over; the reason is said by commands that a session would have answered too."""
    del bob
    home = desk.folder / "state"
    with planted(desk, form, home):
        for words in (("open",), ("list",), ("--session", "alice", "send", "bob", TEXT)):
            error = desk.refused(*words)
            assert error["code"] == "unfit_path"
            assert str(home) in error["message"]
            said(form, error["message"])


@pytest.mark.rule("05.2", "05.6", "05.7")
def test_no_command_goes_by_an_open_postroom_home(desk: Desk, bob: dict[str, Any]) -> None:
    """Each one ends with 1 and the reason, and does nothing."""
    del bob
    with planted(desk, "0777", desk.folder / "state"):
        for words in (
            ("status",),
            ("inbox", "--take"),
            ("wait", "--timeout", "0"),
            ("rename", "carol"),
            ("send", "bob", TEXT),
            ("trace", "some-id"),
            ("log",),
            ("close",),
        ):
            assert desk.refused("--session", "bob", *words)["code"] == "unfit_path", words


@pytest.mark.rule("05.6", "05.7")
def test_what_can_be_no_folder_of_ours_is_refused(desk: Desk) -> None:
    """A relative path, a device, a place where nothing can be made, a way back up, a name that is too long."""
    for home in ("state", "/dev/null", "/proc/nowhere", "/tmp/pr-x/../pr-y", "/" + "x" * 300):
        assert desk.refused("list", environ={"POSTROOM_HOME": home})["code"] == "unfit_path", home
    assert desk.refused("open", environ={"POSTROOM_HOME": "state"})["code"] == "unfit_path"


@pytest.mark.rule("05.6", "05.7")
def test_a_folder_above_that_others_may_write_in_makes_it_unfit(desk: Desk, bob: dict[str, Any]) -> None:
    """Who can write there can put another folder in its place."""
    del bob
    with planted(desk, "0777", desk.folder):
        for words in (("open",), ("list",)):
            error = desk.refused(*words)
            assert (error["code"], "others may write in it" in error["message"]) == ("unfit_path", True)


@pytest.mark.rule("05.6", "02.14", "10.24")
@pytest.mark.parametrize("form", ["symlink", "0777"])
def test_a_registry_that_is_unfit_is_a_place_that_could_not_be_checked(
    desk: Desk, bob: dict[str, Any], form: str
) -> None:
    """`list` names it in `unchecked`, `status` among the problems; nobody opens a session through it."""
    del bob
    registry = sessions(desk)
    before = sorted(registry.iterdir())
    with planted(desk, form, registry):
        document = desk.ok("list")
        assert document["rows"] == []
        assert [one["place"] for one in document["unchecked"]] == [str(registry)]
        said(form, document["unchecked"][0]["reason"])
        error = desk.refused("open", "--name", "carol")
        assert (error["code"], str(registry) in error["message"]) == ("unfit_path", True)
    assert sorted(registry.iterdir()) == before


@pytest.mark.rule("05.6", "05.24", "11.11")
@pytest.mark.parametrize("form", forms("0777", "foreign", "symlink"))
def test_a_socket_folder_that_becomes_unfit_is_said_until_it_is_mended(
    desk: Desk, bob: dict[str, Any], form: str
) -> None:
    """Nobody is written to in it; once it is mended, those who had looked before see that at once."""
    folder = Path(bob["socket"]).parent
    with planted(desk, form, folder):
        said(form, " ".join(problems(desk)))
        [row] = desk.ok("--session", "alice", "list")["rows"]
        assert row["condition"] == "cannot receive messages"
        assert desk.refused("--session", "alice", "send", "bob", TEXT)["code"] == "peer_unavailable"


# ── where sockets lie ────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def opened(desk: Desk, name: str, environ: dict[str, str]) -> Generator[dict[str, Any]]:
    """A session with its own runtime folder, closed afterwards, so that nothing stays outside this desk."""
    document = desk.open(name, environ=environ)
    try:
        yield document
    finally:
        desk.ok("--session", document["session_id"], "close")
        wait_until(lambda: not running(document["pid"]))
        assert not os.path.lexists(document["socket"])


@pytest.mark.rule("05.5", "05.6", "05.7")
@pytest.mark.parametrize("form", forms("0777", "foreign", "symlink", "missing", "long"))
def test_a_runtime_folder_that_is_unfit_is_passed_over_aloud(
    desk: Desk, bob: dict[str, Any], form: str
) -> None:
    """The fallback is used, `status` says what was passed over and why, and others reach the session there."""
    runtime = desk.folder / ("r" * 120 if form == "long" else "runtime")
    runtime.mkdir(mode=0o700)
    name = f"carol {form}"
    with contextlib.ExitStack() as stack:
        stack.callback(remove, runtime)
        if form == "symlink":  # of a folder above it is its target that counts
            (desk.folder / "loose").mkdir()
            (desk.folder / "loose").chmod(0o777)
            stack.callback(remove, desk.folder / "loose")
            stack.enter_context(planted(desk, "symlink", runtime, desk.folder / "loose"))
        elif form != "long":
            stack.enter_context(planted(desk, form, runtime))
        document = stack.enter_context(opened(desk, name, {"XDG_RUNTIME_DIR": str(runtime)}))
        assert Path(document["socket"]).parent.parent == Path("/tmp")
        assert Path(document["socket"]).parent.name.startswith(f"postroom-{os.geteuid()}")
        [problem] = desk.ok("--session", name, "status")["problems"]
        assert f"{runtime}/postroom was passed over" in problem
        said(form, problem, symlink="others may write in it", long="103 is the limit")
        desk.send("bob", name, TEXT)
        [got] = desk.take(name)
        desk.send(name, got["from"]["address"], "yes")
        assert [message["text"] for message in desk.take("bob")] == ["yes"]


@pytest.mark.rule("05.6", "05.29", "01.31")
def test_without_any_folder_for_sockets_a_session_runs_without_inbox_and_says_so(
    desk: Desk, bob: dict[str, Any]
) -> None:
    """It is listed as one that cannot receive, it sends one-way, and commands say why they do not reach it."""
    del bob
    loose = desk.folder / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    environ = {**desk.environ, "XDG_RUNTIME_DIR": str(loose)}
    with subprocess.Popen(
        [sys.executable, "-P", str(PARTIES / "mute.py"), "mute", str(loose)],
        env=environ,
        cwd=desk.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as mute:
        assert mute.stdin is not None
        assert mute.stdout is not None
        status = json.loads(mute.stdout.readline())
        assert status["address"] is None
        assert "no inbox" in " ".join(status["problems"])
        assert f"{loose}/postroom was passed over: {loose}: others may write in it" in " ".join(
            status["problems"]
        )
        rows = {row["name"]: row["condition"] for row in desk.ok("list")["rows"]}
        assert rows == {"alice": "", "bob": "", "mute": "cannot receive messages"}
        assert desk.refused("--session", "alice", "send", "mute", TEXT)["code"] == "peer_unavailable"
        said_later = desk.ok("--session", "mute", "status", environ=environ)
        assert said_later["peer_address"] is None
        assert f"{loose}: others may write in it" in " ".join(said_later["problems"])
        error = desk.refused("--session", "mute", "inbox", environ=environ)
        assert (error["code"], "without an inbox" in error["message"]) == ("no_session", True)
        assert f"{loose}: others may write in it" in error["message"]
        mute.stdin.write("bob\n")
        assert any("answer" in warning for warning in json.loads(mute.stdout.readline()))
        mute.stdin.close()
        assert mute.wait(SECONDS) == 0
    remove(loose)
    [got] = desk.take("bob")
    assert (got["text"], got["from"]["address"], got["from"]["verified"]) == ("one way", None, False)
