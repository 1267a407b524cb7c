"""Inputs on which programs of this field failed in public bug reports, each on real sessions, each as a whole kind.

The number in a test's name is the report's. What is right is the table of the reports; where the specification is more
exact, that.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom import InvalidName, open_session
from postroom.core.address import claim_key
from postroom.core.contract import MAX_SENT
from tests.desk import COMMAND, ROOMY, SECONDS, Desk, running, wait_until
from tests.strangers import (
    OTHER_UID,
    Raw,
    control_path,
    needs_root,
    needs_user_namespaces,
    private_desk,
    snapshot,
)

TEXT = "the column is tenant_id"


@pytest.fixture(scope="module")
def common() -> Iterator[Desk]:
    """A desk with alice and bob, for tests that leave them as they were."""
    with private_desk() as desk:
        desk.settings(limits=ROOMY)
        desk.open("alice")
        desk.open("bob")
        yield desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A desk of one's own, with nobody there."""
    with private_desk() as desk:
        desk.settings(limits=ROOMY)
        yield desk


def sessions(desk: Desk) -> Path:
    """The registry."""
    return desk.folder / "state/sessions"


def record_of(desk: Desk, session: dict[str, Any]) -> Path:
    """A session's record."""
    return sessions(desk) / f"{session['pid']}.json"


def rewritten(path: Path, **fields: Any) -> None:
    """Gives a record other values, as another program could."""
    fresh = path.with_suffix(".new")
    fresh.touch(0o600)
    fresh.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    fresh.rename(path)


def names(desk: Desk) -> list[str]:
    """Who is listed."""
    return [row["name"] for row in desk.ok("list")["rows"]]


def texts(desk: Desk, session: str) -> list[str]:
    """The texts that a session is handed."""
    return [message["text"] for message in desk.take(session)]


# ── names and addresses ──────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.1", "02.3", "02.8", "02.18", "02.13")
def test_report_06_an_answer_never_reaches_a_namesake(desk: Desk) -> None:
    """A and C have the same folder, and in turn the same name: what B answers with what it received reaches A, or nobody."""
    a, c = desk.open(), desk.open()
    desk.open("b")
    assert a["name"] != c["name"]
    assert {re.sub(r"-[0-9a-f]{2}$", "", one["name"]) for one in (a, c)} == {desk.folder.name.strip("-_.")}
    sent = desk.send(a["name"], "b", "from A")
    [got] = desk.take("b")
    address, plain = got["from"]["address"], got["from"]["name"]
    assert desk.send("b", plain, "by its name")["to"]["ref"] == a["ref"]

    # C bears A's name, as after a race: the address still means A, and the plain name means A by its pin.
    rewritten(record_of(desk, c), name=a["name"])
    desk.send("b", address, "one", "--in-reply-to", sent["msg_id"])
    assert desk.send("b", plain, "two")["warnings"]
    assert desk.refused("send", plain, "three", code=4)["code"] == "ambiguous"

    # A is renamed and C takes the name: the address goes along with A, the plain name is refused.
    rewritten(record_of(desk, c), name=c["name"])
    desk.ok("--session", a["session_id"], "rename", "elsewhere")
    assert desk.ok("--session", c["session_id"], "rename", plain)["name"] == plain
    assert desk.send("b", address, "four")["to"]["name"] == "elsewhere"
    assert desk.refused("--session", "b", "send", plain, "five")["code"] == "pin_mismatch"

    # A has ended: nobody gets it. A comes back: A gets it.
    desk.kill(desk.opened[a["session_id"]])
    error = desk.refused("--session", "b", "send", address, "six", code=3)
    assert (error["code"], "ended" in error["message"]) == ("not_found", True)
    desk.open(None, "--resume", a["session_id"])
    desk.send("b", address, "seven")
    assert texts(desk, a["session_id"]) == ["by its name", "one", "two", "four", "seven"]
    assert texts(desk, c["session_id"]) == []


NAMES = [
    "two words",
    "Ünïcödé",
    "e\u0301clair",
    "日本語",
    "हिन्दी",
    "a.b-c_d e",
    "a..b",
    "names",
    "𠀀" * 64,
]
"""Names that are unusual and valid."""


@pytest.mark.rule("02.2", "02.5", "02.8", "02.11", "10.24", "10.25")
def test_report_07_and_22_whatever_is_shown_is_accepted(desk: Desk) -> None:
    """For each name: what a list shows, and what a message shows, reaches that session and no other."""
    hub = desk.open("hub")
    opened: dict[str, str] = {}
    for name in NAMES:
        session = desk.open(name)
        opened[session["session_id"]] = session["name"]
    # Two whose refs begin alike: each is shown with as many digits as it takes.
    for session_id in twins():
        (sessions(desk) / session_id).mkdir(mode=0o700)
        opened[session_id] = desk.open(None, "--resume", session_id)["name"]
    rows = [row for row in desk.ok("list")["rows"] if row["name"] != "hub"]
    assert {row["session_id"]: row["name"] for row in rows} == opened
    assert sorted(len(row["ref"]) > 6 for row in rows) == [False] * len(NAMES) + [True, True]
    listed = desk.run("list").out
    for row in rows:
        shown = f"{row['name']} [{row['ref']}]"
        assert shown in listed
        for to in (row["name"], shown, f"[{row['ref']}]"):
            assert desk.send("hub", to, to)["to"]["name"] == row["name"]
        desk.send(row["session_id"], "hub", "who am I?")
        [got] = desk.take("hub")
        assert got["from"]["name"] == row["name"]
        desk.send("hub", got["from"]["address"], got["from"]["address"])
        took = desk.take(row["session_id"])
        assert [one["text"] for one in took] == [
            row["name"],
            shown,
            f"[{row['ref']}]",
            got["from"]["address"],
        ]
        assert {one["from"]["address"] for one in took} == {f"hub [{hub['ref']}]"}
    ref = rows[[len(row["ref"]) > 6 for row in rows].index(True)]["ref"][:6]
    assert desk.refused("--session", "hub", "send", f"[{ref}]", TEXT, code=4)["code"] == "ambiguous"


def twins() -> tuple[str, str]:
    """Two session ids whose hashes begin with the same six digits."""
    seen: dict[str, str] = {}
    number = 0
    while True:
        session_id = str(uuid.uuid5(uuid.NAMESPACE_OID, str(number)))
        ref = hashlib.sha256(session_id.encode()).hexdigest()[:6]
        if ref in seen:
            return seen[ref], session_id
        seen[ref] = session_id
        number += 1


def test_report_07_the_from_in_words_is_accepted_too(common: Desk) -> None:
    """What `inbox` prints for a person before the first comma can be typed as it stands."""
    common.send("alice", "bob", TEXT)
    printed = common.run("--session", "bob", "inbox", "--take").out
    shown = printed.removeprefix("from ").split(",")[0]
    common.send("bob", shown, "yes")
    assert texts(common, "alice") == ["yes"]


@pytest.mark.rule("02.4", "02.12", "10.7", "10.24")
def test_report_08_one_session_under_three_names_is_one_session(desk: Desk) -> None:
    """Renamed twice: one row, its former names beside it, each of the three reaches it, and a pin holds all along."""
    desk.open("alice")
    bob = desk.open("bob")
    desk.send("alice", "bob", "first")
    for name in ("builder", "robert"):
        assert desk.ok("--session", bob["session_id"], "rename", name)["name"] == name
        desk.send("alice", "bob", f"as {name}")
    [row] = desk.ok("--session", "alice", "list")["rows"]
    assert (row["name"], sorted(row["aliases"]), row["session_id"]) == (
        "robert",
        ["bob", "builder"],
        bob["session_id"],
    )
    assert "robert [" in (shown := desk.run("list").out)
    assert "was builder, bob" in shown
    for name in ("robert", "builder", "bob", "BOB", "Robert"):
        sent = desk.ok("send", name, f"to {name}")
        assert sent["to"]["name"] == "robert"
        assert desk.ok("--session", name, "status")["session_id"] == bob["session_id"]
    assert len(texts(desk, "bob")) == 8
    desk.kill(bob)
    again = desk.open(None, "--resume", bob["session_id"])
    assert again["name"] == "robert"
    assert desk.ok("send", "builder", TEXT)["to"]["name"] == "robert"
    desk.open("builder")
    assert desk.ok("send", "builder", TEXT)["to"]["name"] == "builder"


@pytest.mark.rule("02.1", "02.3", "05.12")
def test_report_10_a_chosen_name_comes_back(desk: Desk) -> None:
    """After a kill and after a close, from another folder, whatever the environment says; a derived one comes back too."""
    bob = desk.open()
    derived = bob["name"]
    elsewhere = desk.folder / "elsewhere"
    elsewhere.mkdir()

    def restarted(how: str) -> str:
        session = desk.opened[bob["session_id"]]
        if how == "kill":
            desk.kill(session)
        else:
            desk.ok("--session", session["session_id"], "close")
            wait_until(lambda: not running(session["pid"]))
        return desk.open(
            None, "--resume", bob["session_id"], cwd=elsewhere, environ={"POSTROOM_NAME": "mallory"}
        )["name"]

    assert [restarted(how) for how in ("kill", "close")] == [derived, derived]
    desk.ok("--session", bob["session_id"], "rename", "builder")
    assert [restarted(how) for how in ("kill", "close")] == ["builder", "builder"]
    # It asked for a name that somebody else had: it comes back under that one once it is free.
    other = desk.open("reviewer")
    assert desk.ok("--session", bob["session_id"], "rename", "reviewer")["name"] == "reviewer-2"
    assert restarted("kill") == "reviewer-2"
    desk.kill(other)
    assert restarted("kill") == "reviewer"


BAD_NAMES = [
    "../../../tmp/x",
    "/abs",
    "a/b",
    "..",
    ".",
    "...",
    "name.",
    ".name",
    "-name",
    " ",
    "",
    "a\\b",
    "a:b",
    "a\nb",
    "a\tb",
    "a\rb",
    "a\x1b[2Jb",
    "a\x7fb",
    "\u202eevil",
    "a\u200bb",
    "a\u2066b\u2069",
    "\ufeffbob",
    "👩‍💻",
    "🙂",
    "\u0301a",
    "a" * 65,
    "a" * 5000,
    "ﷺ" * 10,
    "a*",
    "a@b",
    "a[3fa9c1]",
    "<b>",
    "a'b",
    'a"b',
    "$(touch pwned)",
    "`touch pwned`",
    "x; touch pwned",
    "main",
    "ＭＡＩＮ",
    "Team-Lead",
    "team_lead",
    "user",
    "system",
    "postroom",
]
"""Names that break a rule. Those with a NUL cannot be an argument; they come over the socket and from the library."""


@pytest.mark.rule("02.1", "02.2", "02.14", "05.3", "05.4", "10.7")
def test_report_14_a_bad_name_is_refused_everywhere_and_touches_nothing(common: Desk) -> None:
    """Through `rename` and as the target of a send, all of them: no file outside the state folder is made or changed."""
    state = common.folder / "state"
    outside = snapshot(common.folder, Path("/tmp/x"), Path("/abs"), skip=state)
    inside = set(snapshot(state))
    for name in BAD_NAMES:
        error = refused_rename(common, name)
        assert error["code"] == "invalid_name", name
        assert error["hint"]
        done = common.run("--session", "alice", "send", "--json", "--", name, TEXT)
        assert done.code in (1, 3), (name, done)
        assert done.error["code"] in (
            "not_found",
            "stale_ref",
            "empty_target",
            "at_sign_in_target",
            "cannot_message_self",
        ), name
    assert common.ok("--session", "alice", "status")["name"] == "alice"
    assert texts(common, "bob") == []
    assert snapshot(common.folder, Path("/tmp/x"), Path("/abs"), skip=state) == outside
    assert set(snapshot(state)) == inside


def refused_rename(desk: Desk, name: str) -> dict[str, Any]:
    """The error of a rename."""
    done = desk.run("--session", "alice", "rename", "--json", "--", name)
    assert done.code == 1, (name, done)
    return done.error


@pytest.mark.rule("02.1", "02.2", "05.3", "05.4", "10.8")
def test_report_14_a_bad_name_opens_no_session(common: Desk) -> None:
    """Through `--name`, POSTROOM_NAME and the library: refused with the rule, and no folder stays behind."""
    state = common.folder / "state"
    outside = snapshot(common.folder, skip=state)
    inside = set(snapshot(state))
    for name in ("../../../tmp/x", "/abs", "\u202eevil", "main", ""):
        error = common.refused("open", f"--name={name}")
        assert error["code"] == "invalid_name", name
    for name in ("../../../tmp/x", "a\nb", "🙂"):
        assert common.refused("open", environ={"POSTROOM_NAME": name})["code"] == "invalid_name"

    async def opened(name: str, **environ: str) -> None:
        async with open_session(name or None, environ={**common.environ, **environ}):
            raise AssertionError(f"{name!r} was taken")

    for name in [name for name in BAD_NAMES if name] + ["a\0b", "\ud800"]:
        with pytest.raises(InvalidName):
            asyncio.run(opened(name))
        with pytest.raises(InvalidName):
            asyncio.run(opened("", POSTROOM_NAME=name))
    assert snapshot(common.folder, skip=state) == outside
    assert {path for path in set(snapshot(state)) - inside if not path.endswith(".lock")} == set()


@pytest.mark.rule("10.38", "11.14")
def test_report_14_a_path_in_any_other_place_of_a_command_is_none(common: Desk) -> None:
    """As a session, an id, a message id, a NUL over the socket: each is an answer, and nothing outside is touched."""
    outside = snapshot(common.folder, skip=common.folder / "state")
    for path in ("../../../tmp/x", "/etc", ".", "..", "../sessions", "client-1-1"):
        assert common.refused("--session", path, "status")["code"] == "no_session"
        assert common.refused("status", environ={"POSTROOM_SESSION": path})["code"] == "no_session"
        assert common.refused("open", "--resume", path)["code"] == "no_session"
        assert common.refused("--session", "bob", "trace", path, code=3)["code"] == "unknown_message"
        assert common.run("--session", "bob", "log", path, "--json").code == 3
        error = common.refused("--session", "alice", "send", "bob", TEXT, "--msg-id", f"{path} x")
        assert error["code"] == "invalid_record"
    alice = next(one for one in common.opened.values() if one["name"] == "alice")
    token = (sessions(common) / alice["session_id"] / "client.token").read_text().split("\n")[0]
    for argv in (["rename", "a\0b"], ["send", "a\0b", TEXT], ["send", "\ud800", TEXT]):
        with Raw(control_path(alice)) as door:
            door.say({"type": "auth", "token": token}, {"argv": [*argv, "--json"], "stdin": None, "cwd": "/"})
            assert re.search(rb"invalid_name|not_found|invalid_record|usage", door.rest()), argv
    assert common.ok("--session", "alice", "status")["name"] == "alice"
    assert snapshot(common.folder, skip=common.folder / "state") == outside


FOLDERS = [
    b"a\nb",
    b"\xff\xfe",
    "\u202eevil".encode(),
    "🙂".encode(),
    b"main",
    b"...",
    b"x" * 200,
    "ﷺ".encode() * 20,
]
"""Names of working directories of which a name must be made."""


@pytest.mark.rule("02.1", "02.2", "02.5", "02.3", "05.3", "05.4")
def test_report_14_a_folder_of_any_name_gives_a_valid_name(desk: Desk) -> None:
    """The name is derived, valid, and its address; commands work from within that folder too."""
    claims: set[str] = set()
    for folder in FOLDERS:
        place = os.fsdecode(os.fsencode(desk.folder) + b"/" + folder)
        os.mkdir(place, 0o700)
        session = desk.open(cwd=place)
        assert 4 <= len(session["name"]) <= 64, folder
        # Two ids may begin alike: the second one's name is then a variant.
        assert re.search(rf"-{session['session_id'][:2]}(-\d+)?$", session["name"])
        assert desk.ok("send", session["name"], TEXT, cwd=place)["to"]["ref"] == session["ref"]
        assert texts(desk, session["name"]) == [TEXT]
        claims.add(claim_key(session["name"]))
    assert {path.name for path in (desk.folder / "state/names").iterdir()} == {".lock", *claims}


def test_report_14_commands_work_where_the_folder_is_gone_or_is_no_text(common: Desk) -> None:
    """A working directory that was removed, or whose name is not UTF-8, is no reason for a command to fail."""
    strange = os.fsencode(common.folder) + b"/\xff"
    os.mkdir(strange)
    done = common.run("--session", "alice", "send", "bob", TEXT, cwd=os.fsdecode(strange))
    assert done.code == 0, done
    os.rmdir(strange)
    gone = common.folder / "gone"
    for words in (("--session", "alice", "send", "bob", TEXT), ("send", "bob", TEXT), ("list",)):
        gone.mkdir()
        script = 'rmdir "$1"; shift; exec "$@"'
        with subprocess.Popen(
            ["sh", "-c", script, "sh", str(gone), COMMAND, *words],
            cwd=gone,
            env=common.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            _, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, err
    assert texts(common, "bob") == [TEXT] * 3


# ── who lives ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.11", "02.13", "02.20", "05.29")
def test_report_16_a_dead_peer_is_not_listed_and_nothing_is_said_to_have_reached_it(desk: Desk) -> None:
    """Killed without a word: the next look removes what it left, a send says that it has ended and keeps nothing."""
    desk.open("alice")
    bob = desk.open("bob")
    desk.send("alice", "bob", "read me")
    desk.kill(bob)
    for words in (("--session", "alice", "send", "bob", TEXT), ("send", "bob", TEXT)):
        error = desk.refused(*words, code=3)
        assert error["code"] == "not_found"
        assert re.search(r"bob (has )?ended.* \d{4}-\d\d-\d\dT", error["message"])
        assert "status" not in error
        shown = desk.run(*words)
        assert (shown.code, shown.out) == (3, "")
        assert not re.search("queued|delivered|sent to", shown.err)
    assert names(desk) == ["alice"]
    left = [path.name for path in (*sessions(desk).iterdir(), *Path(bob["socket"]).parent.iterdir())]
    assert [name for name in left if name.startswith(str(bob["pid"]))] == []
    desk.open(None, "--resume", bob["session_id"])
    assert texts(desk, "bob") == ["read me"]


@pytest.mark.rule("05.11", "05.12")
def test_report_18_a_pid_that_was_given_away_is_not_the_session(desk: Desk) -> None:
    """The record of a dead session whose pid is now another program's: a ghost, with the lock free and with it held."""
    desk.open("alice")
    bob = desk.open("bob")
    desk.send("alice", "bob", "read me", "--summary", "kept")
    lock = sessions(desk) / bob["session_id"] / "lock"
    record = record_of(desk, bob).read_text()
    desk.kill(bob)
    again: dict[str, Any] = {}
    with subprocess.Popen(["sleep", "1000000"]) as sleep:
        try:
            for held in (False, True):
                ghost = sessions(desk) / f"{sleep.pid}.json"
                ghost.touch(0o600)
                ghost.write_text(json.dumps({**json.loads(record), "pid": sleep.pid}))
                with lock.open("r+") as kept:
                    if held:  # as by a child that the session had forked
                        fcntl.flock(kept, fcntl.LOCK_EX)
                        tenure = lock.read_text().split("\n")
                        assert tenure[0] == str(bob["pid"])
                    assert names(desk) == ["alice"]
                    assert not ghost.exists()
                    assert (
                        desk.refused("--session", "alice", "send", "bob", TEXT, code=3)["code"] == "not_found"
                    )
                    if held:
                        again = desk.open(None, "--resume", bob["session_id"])
            assert running(sleep.pid)
        finally:
            sleep.kill()
    # A restart within a moment keeps identity, name, summary and queue, and the pins of others.
    assert (again["session_id"], again["name"], again["ref"]) == (bob["session_id"], "bob", bob["ref"])
    desk.send("alice", "bob", "and me")
    assert [(one["text"], one["summary"]) for one in desk.take("bob")] == [
        ("read me", "kept"),
        ("and me", "and me"),
    ]


@pytest.mark.rule("05.11")
@pytest.mark.parametrize("field", ["bootId", "pidDomain"])
def test_report_18_another_boot_or_namespace_is_neither_live_nor_swept(desk: Desk, field: str) -> None:
    """A record of a dead session that says it is from elsewhere proves nothing: not listed, not removed."""
    desk.open("alice")
    bob = desk.open("bob")
    record = record_of(desk, bob)
    said = record.read_text()
    desk.kill(bob)
    record.touch(0o600)
    record.write_text(json.dumps({**json.loads(said), field: "elsewhere"}))
    lock = sessions(desk) / bob["session_id"] / "lock"
    tenure = lock.read_text().split("\n")
    tenure[{"bootId": 2, "pidDomain": 3}[field]] = "elsewhere"
    lock.write_text("\n".join(tenure))
    for _ in range(2):
        assert names(desk) == ["alice"]
        assert record.exists()
    desk.open(None, "--resume", bob["session_id"])
    assert names(desk) == ["alice", "bob"]
    assert record_of(desk, desk.opened[bob["session_id"]]).exists()
    assert not record.exists()


@pytest.mark.rule("05.6")
@needs_root
def test_report_21_a_folder_under_somebody_whom_the_namespace_does_not_map(desk: Desk) -> None:
    """In a user namespace, a runtime folder below a stranger's: passed over aloud, and the fallback carries the mail."""
    above = desk.folder / "theirs"
    runtime = above / "run"
    runtime.mkdir(parents=True, mode=0o700)
    runtime.chmod(0o700)
    above.chmod(0o755)
    os.chown(above, OTHER_UID - 1, 0)
    environ = {**desk.environ, "XDG_RUNTIME_DIR": str(runtime)}

    def mapped(*words: str) -> dict[str, Any]:
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", COMMAND, *words, "--json"],
            env=environ,
            cwd=desk.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    opened = [mapped("open", "--name", name, "--detach") for name in ("alice", "bob")]
    try:
        for session in opened:
            [problem] = session["problems"]
            assert f"{runtime}/postroom was passed over: {above}: it belongs to uid {OTHER_UID}" in problem
            assert "whom this user namespace does not map" in problem
            assert session["peer_address"].startswith("uds:/tmp/postroom-0")
            assert mapped("--session", session["name"], "status")["problems"] == [problem]
        assert mapped("--session", "alice", "send", "bob", TEXT)["status"] == "queued"
        [got] = mapped("--session", "bob", "inbox", "--take")["messages"]
        assert (got["text"], got["from"]["verified"]) == (TEXT, True)
    finally:
        for session in opened:
            mapped("--session", session["name"], "close")
        os.chown(above, 0, 0)
    wait_until(lambda: not any(running(session["pid"]) for session in opened))


@needs_user_namespaces
@pytest.mark.rule("05.6", "05.7")
def test_report_21_a_namespace_that_maps_nobody_says_so(desk: Desk) -> None:
    """Where all strangers look like us nothing can be told to be ours: every command ends with 1 and the reason."""
    without_home = {key: value for key, value in desk.environ.items() if key != "POSTROOM_HOME"}
    for environ in (desk.environ, {**without_home, "XDG_STATE_HOME": str(desk.folder / "xdg")}):
        for words in (("open", "--name", "alice"), ("list",), ("send", "bob", TEXT)):
            done = subprocess.run(
                ["unshare", "--user", COMMAND, *words, "--json"],
                env=environ,
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
            assert done.returncode == 1, done
            error = json.loads(done.stdout)["error"]
            assert error["code"] == "unfit_path"
            assert "user namespace" in error["message"]


# ── what was sent, and what becomes of it ────────────────────────────────────────────────────────


@pytest.mark.rule("11.1", "11.4", "10.3", "10.25")
def test_report_26_what_was_only_seen_is_still_there_after_a_crash(desk: Desk) -> None:
    """Looked at, or taken by a reader that never confirmed: after the crash it waits, marked where it was handed out."""
    desk.open("alice")
    bob = desk.open("bob")
    desk.send("alice", "bob", "looked at")
    assert [one["text"] for one in desk.ok("--session", "bob", "inbox")["messages"]] == ["looked at"]
    desk.kill(bob)
    bob = desk.open(None, "--resume", bob["session_id"])
    [got] = desk.ok("--session", "bob", "inbox")["messages"]
    assert (got["state"], got["redelivered"]) == ("accepted", False)

    # A reader is handed it and says nothing; then the session is killed with the message under that lease.
    token = (sessions(desk) / bob["session_id"] / "client.token").read_text().split("\n")[0]
    with Raw(control_path(bob)) as door:
        door.say(
            {"type": "auth", "token": token},
            {"argv": ["inbox", "--take", "--json"], "stdin": None, "cwd": "/"},
        )
        wait_until(lambda: desk.ok("--session", "bob", "status")["queued"] == 0)
        desk.kill(bob)
    bob = desk.open(None, "--resume", bob["session_id"])
    [got] = desk.take("bob")
    assert (got["text"], got["redelivered"]) == ("looked at", True)
    desk.kill(bob)
    desk.open(None, "--resume", bob["session_id"])
    assert desk.take("bob") == []


@pytest.mark.rule("03.8", "11.5", "11.1", "10.28")
def test_report_30_one_id_is_one_message(desk: Desk) -> None:
    """Sent four times, across a consumption and a restart of the receiver: handed out once, the repeats counted."""
    alice, bob = desk.open("alice"), desk.open("bob")
    del alice
    sent = desk.send("alice", "bob", TEXT)["msg_id"]
    again = ("--session", "alice", "send", "bob", TEXT, "--msg-id", sent)
    assert desk.ok(*again)["status"] == "queued"
    assert texts(desk, "bob") == [TEXT]
    assert desk.ok(*again)["status"] == "queued"
    desk.kill(bob)
    desk.open(None, "--resume", bob["session_id"])
    assert desk.ok(*again)["status"] == "queued"
    other = desk.ok("--session", "alice", "send", "bob", "another text", "--msg-id", sent)
    assert other["status"] == "queued"
    assert texts(desk, "bob") == []
    steps = [step for step in desk.ok("trace", sent)["steps"] if step["where"] == "bob"]
    assert [step["state"] for step in steps].count("consumed") == 1
    repeats = [step["detail"] for step in steps if step["state"] == "duplicate"]
    assert len(repeats) == 4
    assert ["id-reuse" in detail for detail in repeats] == [False, False, False, True]
    # The same id from somebody else is a new message.
    desk.open("carol")
    assert desk.ok("--session", "carol", "send", "bob", "mine", "--msg-id", sent)["status"] == "queued"
    assert texts(desk, "bob") == ["mine"]


@pytest.mark.rule("05.18", "05.23", "11.5", "01.31", "11.2")
def test_report_38_a_receiver_that_does_not_answer_leaves_the_outcome_unknown(desk: Desk) -> None:
    """Stopped in the middle: `unknown` with the id and exit code 1, small or large; sent again it is one message."""
    for name in ("alice", "carol"):
        desk.open(name)
    bob = desk.open("bob")
    large = "x" * 900_000
    os.kill(bob["pid"], signal.SIGSTOP)
    try:
        small = desk.start("--session", "alice", "send", "bob", TEXT, "--json")
        words = desk.start("--session", "alice", "send", "bob", "in words")
        big = desk.run("--session", "carol", "send", "bob", "-", "--json", stdin=large)
        out_small, err_small = small.communicate(timeout=SECONDS)
        out_words, _ = words.communicate(timeout=SECONDS)
    finally:
        os.kill(bob["pid"], signal.SIGCONT)
    assert (small.returncode, words.returncode, big.code) == (1, 1, 1)
    assert b"unknown" in out_words
    assert not re.search(rb"failed|delivered", out_words + err_small)
    for sender, text, document in (("alice", TEXT, json.loads(out_small)), ("carol", large, big.document)):
        assert document["status"] == "unknown"
        assert "--msg-id" in document["note"]
        again = desk.ok("--session", sender, "send", "bob", "-", "--msg-id", document["msg_id"], stdin=text)
        assert (again["status"], again["msg_id"]) == ("queued", document["msg_id"])
    got = texts(desk, "bob")
    assert sorted(text for text in got if text != "in words") == sorted([TEXT, large])
    states = [step["state"] for step in desk.ok("--session", "alice", "log")["rows"]]
    assert states.count("unknown") == 2


# ── size ─────────────────────────────────────────────────────────────────────────────────────────


def size_said(error: dict[str, Any]) -> int:
    """The size that a refusal names; it names the limit too, in the words that every way uses."""
    found = re.fullmatch(
        r"The message is too large: the line to be sent has ([\d,]+) characters and the limit is 1,000,000\.",
        error["message"],
    )
    assert found, error
    assert error["code"] == "message_too_large"
    return int(found[1].replace(",", ""))


CHARACTERS = {
    "ascii": "a",
    "two bytes": "é",
    "four bytes": "𠀀",
    "quotes": '"',
    "newlines": "\n",
    "tags": "<",
}


@pytest.mark.rule("01.19", "05.14", "10.2")
@pytest.mark.parametrize("kind", CHARACTERS)
def test_report_45_the_limit_is_exact_and_nothing_is_cut(common: Desk, kind: str) -> None:
    """One less, the limit itself, one more, with wide and with escaped characters at the edge: whole, whole, refused."""
    character = CHARACTERS[kind]
    written = len(json.dumps(character, ensure_ascii=False)) - 2
    tail = "." if character == "\n" else ""  # one final newline is the file's and not the text's
    send = ("--session", "alice", "send", "bob", "-", "--summary", "size")
    over = size_said(common.refused(*send, stdin="." + character * 1_000_000 + tail))
    room = MAX_SENT - (over - 1_000_000 * written)
    for extra, fits in ((-1, True), (0, True), (1, False)):
        text = "." * (1 + room % written + extra) + character * (room // written) + tail
        if fits:
            assert common.ok(*send, stdin=text)["status"] == "queued"
            assert texts(common, "bob") == [text]
        else:
            assert size_said(common.refused(*send, stdin=text)) == MAX_SENT + 1
            assert texts(common, "bob") == []


@pytest.mark.rule("01.19", "10.2", "05.30")
def test_report_45_sizes_at_which_others_cut(common: Desk) -> None:
    """6.7 KB, 32 KiB and as much as an argument can hold, by argument and by standard input: byte for byte."""
    for size in (6_700, 32_768, 32_769, 131_000):
        text = ("ab\U00020000é" * size).encode()[:size].decode(errors="ignore")
        common.send("alice", "bob", text)
        assert common.ok("--session", "alice", "send", "bob", "-", stdin=text)["status"] == "queued"
        assert texts(common, "bob") == [text, text]


@pytest.mark.rule("01.19", "05.14", "10.2", "11.10")
def test_report_45_ten_megabytes_are_refused_before_they_are_sent(common: Desk) -> None:
    """By a session's command and by an outsider's, with the same words; bytes that are no text are a usage error."""
    ten = "x" * 10_000_000
    for words in (("--session", "alice", "send", "bob", "-"), ("send", "bob", "-")):
        assert size_said(common.refused(*words, stdin=ten)) >= 10_000_000
        assert common.refused(*words, stdin=b"\xff" * 100, code=2)["code"] == "usage"
        assert common.refused(*words, stdin=b"\xff" * 10_000_000)["code"] == "message_too_large"
    bob = next(one for one in common.opened.values() if one["name"] == "bob")
    with Raw(bob["socket"]) as line:
        line.push(b'{"type":"user","message":{"role":"user","content":"' + ten.encode() + b'"}}\n')
        assert line.rest() == b""
    with Raw(bob["socket"]) as line:
        assert line.post("served")["status"] == "queued"
    assert texts(common, "bob") == ["served"]
