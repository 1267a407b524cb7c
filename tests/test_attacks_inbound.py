"""Attacks on what may come in, on real processes: what is held stays held until a person says otherwise.

An agent is a shell that runs inside a session, with no terminal but what it makes. Each test says what it tries; what no
program of the same user can be kept from is in `SECURITY.md`, and is not tried here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom import Limits
from postroom.commits import TIDY_TURNED_AWAY
from postroom.core.message import Message
from tests.desk import COMMAND, SECONDS, Desk, wait_until
from tests.room import DurableStore, Line, Room, frame_of
from tests.screen import Screen, screen
from tests.strangers import needs_root, private_desk
from tests.terminal import person

BYPASSING = ("--mode", "bypassPermissions")

ACCEPT = '{"crossSessionInbound": "accept"}'

HOLD = '{"crossSessionInbound": "hold"}'

KILLS = "kill -9 $PPID; while [ -r /proc/$PPID/exe ]; do :; done"
"""Kills the session around this shell and waits until it is gone; a zombie has no `exe` any more."""


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A private desk with alice open; the commands are found on its path."""
    with private_desk() as desk:
        desk.environ["PATH"] = f"{Path(COMMAND).parent}:{desk.environ['PATH']}"
        desk.open("alice")
        yield desk


def held(desk: Desk, session: str) -> list[str]:
    """The ids of what a session holds."""
    return [one["msg_id"] for one in desk.ok("--session", session, "held")["held"]]


def hold_one(desk: Desk, session: str) -> str:
    """alice sends something that is held; returns its id."""
    msg_id = str(desk.send("alice", session, "not for you yet")["msg_id"])
    wait_until(lambda: msg_id in held(desk, session))
    return msg_id


def waiting(desk: Desk, session: str) -> list[str]:
    """The ids of what waits in a session's inbox."""
    return [one["msg_id"] for one in desk.ok("--session", session, "inbox")["messages"]]


@contextlib.contextmanager
def agent(desk: Desk, name: str, script: str, *options: str) -> Generator[Callable[[], str]]:
    """A session around a shell, which waits until what is yielded is called; that returns what the shell printed."""
    process = subprocess.Popen(
        [COMMAND, "open", "--name", name, *options, "--", "sh", "-c", f"echo ready; read go; {script}"],
        env=desk.environ,
        cwd=desk.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    with process:
        try:
            while (line := process.stdout.readline()) != "ready\n":
                assert line, "the session did not open"
            yield lambda: process.communicate("go\n", timeout=SECONDS)[0]
        finally:
            process.kill()


def resumed(desk: Desk, name: str) -> dict[str, Any]:
    """The row of a session that an agent has brought back; it is ended with the desk."""
    [row] = [row for row in desk.ok("list")["rows"] if row["name"] == name]
    desk.opened[row["session_id"]] = row
    return row


# ── a session that its own agent kills and brings back ───────────────────────────────────────────


@pytest.mark.rule("10.39", "05.26")
@pytest.mark.parametrize(
    ("opened", "brought_back"),
    [
        (BYPASSING, (*BYPASSING, "--settings", ACCEPT)),
        (("--settings", HOLD), ()),
        (("--settings", HOLD), ("--settings", "{}")),
        (BYPASSING, ()),
    ],
    ids=["with-accept", "without-its-hold", "with-other-settings", "in-another-mode"],
)
def test_an_agent_lets_nothing_in_by_killing_and_resuming_its_session(
    desk: Desk, opened: tuple[str, ...], brought_back: tuple[str, ...]
) -> None:
    """Neither at once nor at the next change of the settings, which an agent can bring about in its project."""
    resumes = " ".join(f"'{word}'" for word in brought_back)
    script = f"{KILLS}; postroom open --resume $POSTROOM_SESSION --detach {resumes}"
    with agent(desk, "bob", script, *opened) as goes:
        msg_id = hold_one(desk, "bob")
        assert "is open" in goes()
    resumed(desk, "bob")
    assert (held(desk, "bob"), waiting(desk, "bob")) == ([msg_id], [])
    project = desk.folder / ".postroom"
    project.mkdir(mode=0o700)
    (project / "settings.json").write_text('{"permissions": {"deny": ["ListAgents"]}}')
    wait_until(lambda: desk.run("--session", "bob", "list").code != 0)  # it applies
    assert (held(desk, "bob"), waiting(desk, "bob")) == ([msg_id], [])
    assert person(desk, "--session", "bob", "approve", msg_id)["state"] == "accepted"
    assert waiting(desk, "bob") == [msg_id]


@pytest.mark.rule("10.39", "05.26")
def test_who_opened_a_session_lets_nothing_in_by_bringing_it_back(desk: Desk) -> None:
    """It may do everything but approve, deny and settings."""
    script = f"""
        postroom open --name bob --detach --mode bypassPermissions >/dev/null 2>&1; echo opened; read on
        kill -9 $on; while [ -r /proc/$on/exe ]; do :; done
        postroom open --resume bob --detach --mode bypassPermissions --settings '{ACCEPT}'"""
    process = subprocess.Popen(
        [COMMAND, "open", "--name", "opener", "--", "sh", "-c", script],
        env=desk.environ,
        cwd=desk.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        try:
            assert process.stdout.readline() == "opened\n"
            bob = resumed(desk, "bob")
            msg_id = hold_one(desk, "bob")
            said, _ = process.communicate(f"{bob['pid']}\n", timeout=SECONDS)
        finally:
            process.kill()
    assert "is open" in said
    resumed(desk, "bob")
    assert (held(desk, "bob"), waiting(desk, "bob")) == ([msg_id], [])


@pytest.mark.rule("03.45", "03.47")
def test_a_person_who_resumes_a_session_lets_in_what_the_settings_let_in(desk: Desk) -> None:
    bob = desk.open("bob", *BYPASSING)
    msg_id = hold_one(desk, "bob")
    desk.kill(bob)
    document = person(
        desk, "open", "--resume", bob["session_id"], "--detach", *BYPASSING, "--settings", ACCEPT
    )
    desk.opened[bob["session_id"]] = document
    assert (held(desk, "bob"), waiting(desk, "bob")) == ([], [msg_id])


@pytest.mark.rule("03.45")
def test_the_persons_own_settings_let_in_what_a_program_brought_back(desk: Desk) -> None:
    """What nobody's terminal resumed, as a service does, goes by the files and the person all the same."""
    bob = desk.open("bob", *BYPASSING)
    msg_id = hold_one(desk, "bob")
    desk.kill(bob)
    desk.open(None, "--resume", bob["session_id"], *BYPASSING)
    assert held(desk, "bob") == [msg_id]
    desk.settings(crossSessionInbound="accept")
    wait_until(lambda: waiting(desk, "bob") == [msg_id])


# ── in a container ───────────────────────────────────────────────────────────────────────────────

SHELLS = {
    # As `docker run -it IMAGE bash`: the shell is the first process, and the head of the terminal's session.
    "first": ("setsid", "-c", "bash", "--norc", "--noediting", "-i"),
    # As a sandbox with a pid namespace of its own, inside a person's terminal: the head cannot be seen.
    "elsewhere": ("bash", "--norc", "--noediting", "-i"),
}

LEAVES = (
    "(postroom --session bob approve $ID >said 2>&1; echo done >>said) & exit",
    "set -m; (postroom --session bob approve $ID >said 2>&1; echo done >>said) & exit",
)
"""What a shell does that leaves a command behind: in its own process group, and in another."""


def types(shown: Screen, command: str, at: int) -> str:
    """Types one command to a shell and returns what it printed."""
    shown.type(f"{command}; echo do''ne-{at}\n")
    return shown.shows(f"done-{at}\n")


@needs_root
@pytest.mark.rule("10.39")
@pytest.mark.parametrize("head", SHELLS)
def test_what_an_agent_leaves_behind_in_a_container_is_no_person(desk: Desk, head: str) -> None:
    """There the first process adopts it, which is the person's shell: it looks like that shell's own command."""
    command = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *SHELLS[head])
    finds = 'postroom --session bob held --json | grep -o \'"msg_id": *"[^"]*\' | grep -o \'[^"]*$\''
    with screen(*command, env={**desk.environ, "PS1": "", "TERM": "dumb"}, cwd=desk.folder) as shown:
        types(shown, f"stty -echo; export POSTROOM_HOME={desk.folder}/inside", 0)
        types(shown, "postroom open --name eve --detach", 1)
        types(shown, "postroom open --name bob --detach --mode bypassPermissions", 1)
        for number, script in enumerate(LEAVES, 2):
            types(shown, f"postroom --session eve send bob 'number {number}'; export ID=$({finds})", number)
            (desk.folder / "leaves").write_text(script)
            around = "sh leaves; until grep -qs done said; do :; done; cat said; rm said"
            said = types(shown, f"postroom open -- sh -c '{around}'", 10 + number)
            assert "needs_person" in said, said
            said = types(shown, "postroom --session bob approve $ID", 20 + number)
            assert "accepted: " in said, said
        types(shown, "for N in eve bob; do postroom --session $N close; done", 3)


# ── settings files that are none ─────────────────────────────────────────────────────────────────

FORMS: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "folder": os.mkdir,
    "loop": lambda path: path.symlink_to(path),
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "deep": lambda path: path.write_text("[" * 500_000),
    "number": lambda path: path.write_text('{"crossSessionInbound": ' + "9" * 900_000 + "}"),
}


@pytest.mark.rule("03.34", "03.35")
def test_nothing_that_takes_the_place_of_a_settings_file_lets_a_hold_out(desk: Desk) -> None:
    file = desk.settings(crossSessionInbound="hold")
    desk.open("bob")
    msg_id = hold_one(desk, "bob")
    for put in FORMS.values():
        file.unlink()
        put(file)
        wait_until(lambda: any(str(file) in one for one in desk.ok("--session", "bob", "status")["problems"]))
        assert (held(desk, "bob"), waiting(desk, "bob")) == ([msg_id], [])
        if file.is_dir():
            file.rmdir()
            file.touch()
    file.unlink()
    desk.settings(crossSessionInbound="accept")
    wait_until(lambda: waiting(desk, "bob") == [msg_id])


# ── a flood of what is turned away ───────────────────────────────────────────────────────────────


class Tidied(DurableStore):
    """A store that says when retention runs."""

    def __init__(self) -> None:
        super().__init__()
        self.tidied = asyncio.Event()
        self.pieces = 0

    def prune(self, now: int) -> list[Message]:
        self.pieces += 1
        self.tidied.set()
        return super().prune(now)


@pytest.mark.rule("11.10")
@pytest.mark.parametrize("times", [1, 3])
def test_a_flood_of_repeats_does_not_outgrow_what_retention_removes(times: int) -> None:
    """Each leaves rows in the journal, and no bucket bounds how many are turned away: with one piece a minute the file
    grew by five megabytes a second."""

    async def flooded() -> int:
        store = Tidied()
        async with Room().open("bob", store=store, limits=Limits()) as bob:
            line = Line()
            for number in range(times * TIDY_TURNED_AWAY + 1):  # the first is let in
                bob.arrive(frame_of("the same", f"m-{number}"), line)
            await asyncio.wait_for(store.tidied.wait(), SECONDS)
        return store.pieces

    assert asyncio.run(flooded()) == 1 + times
