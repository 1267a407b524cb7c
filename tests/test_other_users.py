"""Another user of this machine, for real: a child under another uid tries everything, and gets nowhere (P8, Show 5).

The folders above the product's own are as open as a home folder is on many machines, so that what keeps others out is
what the product made. These tests need root, to become somebody else; CI runs as root.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.console import cli, host
from postroom.console.commands import list as list_command
from postroom.console.commands import open as open_command
from postroom.console.commands import send, trace
from postroom.console.commands import session as session_command
from tests.desk import SECONDS, Desk, wait_until
from tests.strangers import (
    OTHER_UID,
    Inside,
    Raw,
    Shot,
    as_user,
    command_here,
    control_path,
    needs_root,
    private_desk,
    snapshot,
    tried,
)

LOADED = (asyncio, cli, host, list_command, open_command, send, session_command, trace)
"""What a command needs is loaded before the child is forked: the interpreter may lie where it cannot go then."""

TEXT = "the column is tenant_id"

pytestmark = needs_root


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A desk in a folder that everybody may look into, with alice and bob open and a message unread."""
    with private_desk() as desk:
        desk.folder.chmod(0o755)
        (desk.folder / "run").chmod(0o755)
        desk.open("alice")
        desk.open("bob")
        desk.send("alice", "bob", TEXT)
        yield desk


def session(desk: Desk, name: str) -> dict[str, Any]:
    """What `open` said of a session."""
    return next(one for one in desk.opened.values() if one["name"] == name)


def connected(path: str) -> None:
    """Connects to a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(SECONDS)
        sock.connect(path)


def attempts(paths: list[str], stranger: str) -> dict[str, str]:
    """Everything that one can try to do with some paths: attempt → the name of its error, or `done`."""
    said: dict[str, str] = {}
    for path in paths:
        said[f"read {path}"] = tried(lambda path=path: os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        said[f"write {path}"] = tried(lambda path=path: os.open(path, os.O_RDWR | os.O_NONBLOCK))
        said[f"list {path}"] = tried(lambda path=path: os.listdir(path))
        said[f"make {path}"] = tried(lambda path=path: os.open(f"{path}/new", os.O_WRONLY | os.O_CREAT))
        said[f"link {path}"] = tried(lambda path=path: os.link(path, stranger))
        said[f"move {path}"] = tried(lambda path=path: os.rename(path, stranger))
        said[f"open {path}"] = tried(lambda path=path: os.chmod(path, 0o777))
        said[f"connect {path}"] = tried(lambda path=path: connected(path))
    return said


@pytest.mark.rule("11.11", "05.2", "05.3", "05.4", "05.5")
def test_nothing_of_ours_can_be_read_written_listed_or_connected_to(desk: Desk) -> None:
    """Every file, folder and socket, by its own path: each attempt is refused by the system."""
    places = (desk.folder / "state", desk.folder / "run/postroom")
    before = snapshot(*places)
    assert sum(path.endswith(".sock") for path in before) == 4
    said = as_user(OTHER_UID, lambda: attempts(sorted(before), f"/tmp/pr-stranger-{os.getpid()}"))
    assert len(said) == 8 * len(before)
    for folder in places:  # the kind is looked at before the right; what lies within is not even that
        assert said.pop(f"write {folder}") in ("EISDIR", "EACCES")
    assert {what: why for what, why in said.items() if why not in ("EACCES", "EPERM")} == {}
    assert untimed(snapshot(*places)) == untimed(before)


def untimed(shot: Shot) -> Shot:
    """The same without the times of the stores, whose own sessions may write in them at any moment."""
    return {
        path: (mode, owner, size, 0 if "/store.db" in path else changed, inode, target)
        for path, (mode, owner, size, changed, inode, target) in shot.items()
    }


def both(path: str) -> tuple[str, str]:
    """What becomes of reading a path and of connecting to it."""
    return tried(lambda: os.open(path, os.O_RDONLY)), tried(lambda: connected(path))


@pytest.mark.rule("11.11", "05.3", "05.4", "05.5")
def test_files_and_sockets_are_closed_by_themselves(desk: Desk) -> None:
    """Where somebody has opened our folders by mistake, their insides still keep others out."""
    folders = [
        path
        for place in (desk.folder / "state", desk.folder / "run/postroom")
        for path in (place, *place.rglob("*"))
        if path.is_dir()
    ]
    for folder in folders:
        folder.chmod(0o755)
    try:
        paths = sorted(str(path) for folder in folders for path in folder.iterdir() if not path.is_dir())
        said = as_user(OTHER_UID, lambda: {path: both(path) for path in paths})
    finally:
        for folder in folders:
            folder.chmod(0o700)
    assert len(paths) > 12
    for path, (opened, connects) in said.items():
        # A socket is never opened, and a file never connected to, whoever tries.
        assert opened in ("EACCES", "ENXIO"), path
        assert connects in ("EACCES", "ECONNREFUSED"), path
        assert "EACCES" in (opened, connects), path


@pytest.mark.rule("05.19", "11.11")
def test_even_through_open_doors_another_user_is_not_heard(desk: Desk) -> None:
    """With folder and sockets open to all: closed unread, on the inbox and on the control socket, and counted."""
    bob = session(desk, "bob")
    folder = Path(bob["socket"]).parent
    token = (desk.folder / "state/sessions" / bob["session_id"] / "client.token").read_text().split("\n")[0]
    doors = [Path(bob["socket"]), Path(control_path(bob))]

    def talk() -> list[str]:
        with Raw(str(doors[0])) as line:
            line.push(b'{"type":"user"}\n')
            heard = [line.rest().decode()]
        with Raw(str(doors[1])) as door:
            door.push(b'{"type":"auth","token":"%s"}\n{"argv":["inbox","--take"]}\n' % token.encode())
            return [*heard, door.rest().decode()]

    before = desk.ok("--session", "bob", "status")
    folder.chmod(0o755)
    for door in doors:
        door.chmod(0o666)
    try:
        assert as_user(OTHER_UID, talk) == ["", ""]
    finally:
        folder.chmod(0o700)
        for door in doors:
            door.chmod(0o600)
    after = desk.ok("--session", "bob", "status")
    assert after["queued"] == before["queued"] == 1
    assert after["counts"] == {**before["counts"], "foreign-user": 1, "control-foreign-user": 1}


@pytest.mark.rule("05.7", "11.11")
@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("send", "bob", "from a stranger"),
        ("trace", "some-id"),
        ("open", "--name", "mallory"),
        ("--session", "bob", "inbox", "--take"),
        ("--session", "bob", "send", "alice", "as bob"),
        ("--session", "bob", "status"),
    ],
    ids=" ".join,
)
def test_another_users_command_ends_with_the_reason_and_shows_nothing(
    desk: Desk, words: tuple[str, ...]
) -> None:
    """With POSTROOM_HOME pointing here: exit code 1, and not a name, a text or an id of ours."""
    environ = {key: value for key, value in desk.environ.items() if key.startswith(("POSTROOM_", "XDG_"))}
    code, out, err = as_user(OTHER_UID, lambda: command_here(environ, *words))
    assert (code, out, err.split("\n")[0]) == (1, "", "unfit_path")
    assert str(desk.folder / "state") in err
    assert "it belongs to uid 0" in err
    ours = ["alice", TEXT, *(one["session_id"] for one in desk.opened.values())]
    assert [word for word in ours if word in err] == []
    assert desk.ok("--session", "bob", "status")["queued"] == 1


@pytest.mark.rule("11.11")
def test_what_another_user_puts_in_a_shared_place_is_not_taken_for_ours(desk: Desk) -> None:
    """A stranger's socket in a folder of its own: nobody of ours writes to it, whatever a record says."""
    theirs = Path(f"/tmp/pr-theirs-{os.getpid()}")
    carol = desk.open("carol")
    record = desk.folder / "state/sessions" / f"{carol['pid']}.json"
    said = record.read_text()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(OTHER_UID)
            os.setuid(OTHER_UID)
            theirs.mkdir(mode=0o755)
            os.umask(0)
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.bind(str(theirs / Path(carol["socket"]).name))
            sock.listen()
            sock.settimeout(SECONDS)
            sock.accept()
        finally:
            os._exit(1)
    try:
        wait_until(lambda: (theirs / Path(carol["socket"]).name).exists())
        record.write_text(said.replace(carol["socket"], str(theirs / Path(carol["socket"]).name)))
        error = desk.refused("--session", "alice", "send", "carol", TEXT)
        assert error["code"] in ("peer_unavailable", "unsafe_target")
        [problem] = desk.ok("--session", "alice", "status")["problems"]
        assert f"{theirs}: it belongs to uid {OTHER_UID}" in problem
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), "somebody connected to the stranger"
    finally:
        record.write_text(said)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        for path in (*theirs.iterdir(), theirs):
            path.rmdir() if path.is_dir() else path.unlink()
    desk.ok("--session", "carol", "close")


# ── /tmp, where everybody may make folders ───────────────────────────────────────────────────────


def own_tmp(folder: Path) -> str:
    """Shell commands that give a mount namespace a /tmp of its own, with those parts of the old one that are needed."""
    fresh = folder / "tmp"
    needed = {folder, Path(sys.prefix), Path(sys.base_prefix), Path(sysconfig.get_path("stdlib")), Path.cwd()}
    needed |= {Path(cli.__file__).parents[2]}
    binds = [
        f"mkdir -p {fresh}/{path.relative_to('/tmp')}; mount --bind {path} {fresh}/{path.relative_to('/tmp')}"
        for path in sorted(needed)
        if path.is_relative_to("/tmp")
    ]
    return "\n".join(
        ["mount --make-rprivate /", f"mkdir -m 1777 {fresh}", *binds, f"mount --rbind {fresh} /tmp"]
    )


@pytest.fixture
def room() -> Iterator[Inside]:
    """A desk whose /tmp is its own, and that has no runtime folder."""
    with private_desk() as desk:
        environ = {key: value for key, value in desk.environ.items() if key != "XDG_RUNTIME_DIR"}
        room = Inside(desk.folder, environ, "--mount", setup=own_tmp(desk.folder))
        try:
            yield room
        finally:
            room.leave()


BASE = f"/tmp/postroom-{os.geteuid()}"
SQUATS = {
    "a folder": (f"mkdir -m 0700 {BASE}; chown {OTHER_UID} {BASE}", f"it belongs to uid {OTHER_UID}"),
    "an open folder": (
        f"mkdir {BASE}; chmod 0777 {BASE}; chown {OTHER_UID} {BASE}",
        f"it belongs to uid {OTHER_UID}",
    ),
    "a file": (f"touch {BASE}; chown {OTHER_UID} {BASE}", "not a folder"),
    "a symlink": (
        f"mkdir -m 0777 /tmp/trap; chown {OTHER_UID} /tmp/trap; ln -s /tmp/trap {BASE}; chown -h {OTHER_UID} {BASE}",
        "symlink",
    ),
    "a symlink of ours": (
        f"mkdir -m 0700 /tmp/trap; ln -s /tmp/trap {BASE}",
        "a symlink, which is not followed",
    ),
}
"""What another user made before us in the place of our folder: how, and words of the reason for passing it over."""


@pytest.mark.rule("05.8", "05.5", "05.6", "11.11")
@pytest.mark.parametrize("squat", SQUATS)
def test_a_fallback_folder_that_another_user_made_first_blocks_nobody(room: Inside, squat: str) -> None:
    """It is passed over, aloud, for a fresh one; sessions find each other there; it goes with them."""
    make, reason = SQUATS[squat]
    room.shell(make)
    for name in ("alice", "bob"):
        document = room.open(name)
        assert Path(document["socket"]).parent.name.startswith(f"postroom-{os.geteuid()}-")
        [problem] = document["problems"]
        assert f"{BASE} was passed over" in problem
        assert reason in problem
        assert room.ok("--session", name, "status")["problems"] == [problem]
    room.send("alice", "bob", TEXT)
    [got] = room.take("bob")
    room.send("bob", got["from"]["address"], "yes")
    assert [(message["text"], message["from"]["verified"]) for message in room.take("alice")] == [
        ("yes", True)
    ]
    assert room.shell(f"find {BASE} /tmp/trap -mindepth 1 2>/dev/null || true") == ""
    for name in ("alice", "bob"):
        room.ok("--session", name, "close")
    wait_until(lambda: not room.shell(f"find /tmp -maxdepth 1 -name 'postroom-{os.geteuid()}-*'"))
    room.opened.clear()


@pytest.mark.rule("05.5", "05.6")
def test_the_fallback_folder_is_ours_where_nobody_was_before(room: Inside) -> None:
    """The ordinary case: mode 0700, sockets 0600, and nothing to say about it."""
    document = room.open("alice")
    assert document["problems"] == []
    assert Path(document["socket"]).parent == Path(BASE)
    assert room.shell(f"stat -c %a {BASE} {BASE}/*").split() == ["700", "600", "600"]


@pytest.mark.rule("05.6", "05.29", "10.27")
def test_where_no_folder_is_fit_a_detached_session_says_so_at_its_start(room: Inside) -> None:
    """A /tmp in which everybody may remove everything: no inbox, with the reason, and the session runs."""
    room.shell("chmod 0777 /tmp")
    home = room.folder / "state"
    room.environ["POSTROOM_HOME"] = "/var/lib/pr-state"
    room.shell("mount -t tmpfs -o mode=0755 none /var/lib")
    assert not home.exists()
    document = room.open("mute")
    assert (document["peer_address"], document["socket"]) == (None, None)
    assert any("no inbox" in problem for problem in document["problems"])
    assert any("others may write in it (mode 0777)" in problem for problem in document["problems"])
    [row] = room.ok("list")["rows"]
    assert (row["name"], row["condition"]) == ("mute", "cannot receive messages")
    assert room.refused("send", "mute", TEXT)["code"] == "peer_unavailable"
    status = room.ok("--session", "mute", "status")
    assert status["peer_address"] is None
    assert any("others may write in it (mode 0777)" in problem for problem in status["problems"])
    assert "without an inbox" in room.refused("--session", "mute", "inbox")["message"]
    os.kill(document["pid"], 15)
    wait_until(lambda: room.ok("list")["rows"] == [])
