"""`postroom doctor` on what is let in, held or waits: each finding is provoked for real (10.16, 09.16, 03.10 to 03.21)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clinic import clinic, diagnosed
from tests.desk import Desk

CLOCKED = Path(__file__).parent / "parties/clocked.py"
TEXT = "the column is tenant_id"


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A clinic."""
    with clinic() as desk:
        yield desk


def settings(**keys: object) -> str:
    """Settings for one session alone."""
    return json.dumps(keys)


@pytest.mark.rule("10.16", "03.10")
def test_a_session_that_refuses(desk: Desk) -> None:
    desk.open("alice", "--settings", settings(crossSessionInbound="refuse"))
    [finding] = diagnosed(desk, "inbound-refuse")
    assert "alice refuses everything that is sent to it" in finding["what"]
    assert "a flag setting says so" in finding["what"]
    assert "crossSessionInbound" in finding["mend"]


@pytest.mark.rule("10.16", "03.11", "03.35")
def test_a_session_that_holds_by_a_setting_of_its_own(desk: Desk) -> None:
    """And what it holds then waits for a person."""
    desk.open("alice", "--settings", settings(crossSessionInbound="hold"))
    desk.open("bob")
    desk.send("bob", "alice", TEXT)
    setting, held = diagnosed(desk, "inbound-hold", "held")
    assert (
        "alice holds everything that is sent to it until a person decides: a flag setting" in setting["what"]
    )
    assert held["what"] == "1 message is held for alice and waits for a person."
    assert "postroom --session alice held" in held["mend"]


@pytest.mark.rule("10.16", "03.33", "10.30")
def test_a_session_that_may_not_send(desk: Desk) -> None:
    desk.open("alice", "--settings", settings(permissions={"deny": ["SendMessage"]}))
    [finding] = diagnosed(desk, "messaging-off")
    assert finding["what"] == "alice cannot send messages: settings have turned that off."
    assert "permissions.deny" in finding["mend"]


@pytest.mark.rule("10.16", "10.8")
def test_a_session_that_never_asks_and_in_front_of_which_nobody_sits(desk: Desk) -> None:
    """The trap of unattended workers: what sessions send that do ask is held there and ends unread."""
    desk.open("alice", "--mode", "bypassPermissions")
    [finding] = diagnosed(desk, "nobody-asked")
    assert "alice never asks for permission and nobody can be asked" in finding["what"]
    assert '"crossSessionInbound": "accept"' in finding["mend"]
    desk.settings(crossSessionInbound="accept")
    assert diagnosed(desk) == []


@pytest.mark.rule("10.16", "03.16", "03.19", "03.20")
def test_sessions_of_both_classes_hold_each_others_messages(desk: Desk) -> None:
    desk.open("alice", "--mode", "bypassPermissions")
    desk.open("bob")
    desk.open("carol", "--settings", settings(crossSessionInbound="accept"))
    _, finding = diagnosed(desk, "nobody-asked", "classes-differ")
    assert "alice (bypassing) holds what bob and carol send" in finding["what"]
    assert "bob (prompting) holds what alice sends" in finding["what"]
    assert "carol (prompting)" not in finding["what"]
    assert "--always" in finding["mend"]
    desk.send("alice", "bob", TEXT)
    assert desk.ok("--session", "bob", "held")["held"][0]["cause"] == "mode-mismatch"


@pytest.mark.rule("10.16", "03.15", "03.21")
def test_a_session_whose_mode_is_not_known(desk: Desk) -> None:
    """As where a client reports a mode that its file does not list; here a program does."""
    program = (
        "import asyncio\n"
        "from postroom import open_session\n"
        "async def main():\n"
        "    async with open_session('alice', mode='turbo') as session:\n"
        "        print('up', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env=desk.environ, cwd=desk.folder, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        try:
            [finding] = diagnosed(desk, "mode-unknown")
        finally:
            process.kill()
    assert "The permission mode of alice (turbo) is not known: it holds everything." in finding["what"]
    assert "postroom --session alice status --mode MODE" in finding["mend"]


@pytest.mark.rule("10.16", "03.64")
def test_an_inbox_that_is_full(desk: Desk) -> None:
    limits = {"maxUnread": 10, "repeatSeconds": 0}
    desk.open("alice", "--settings", settings(limits=limits))
    desk.open("bob")
    for number in range(10):
        desk.send("bob", "alice", f"number {number}")
    [finding] = diagnosed(desk, "inbox-full")
    assert "The inbox of alice is full (10 unread, and 10 is its limit)" in finding["what"]
    assert "inbox --take" in finding["mend"]
    assert desk.refused("--session", "bob", "send", "alice", "one more")["code"] == "inbox_full"
    desk.take("alice")
    assert diagnosed(desk) == []


@pytest.mark.rule("10.16", "09.16")
def test_mail_that_has_waited_longer_than_ten_minutes(desk: Desk) -> None:
    """By the session's own clock, which a test moves: not at ten minutes, and after."""
    with subprocess.Popen(
        [sys.executable, str(CLOCKED), "alice"],
        env=desk.environ,
        cwd=desk.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()

        def later(seconds: int) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{seconds}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline() == b"moved\n"

        try:
            assert desk.ok("send", "alice", TEXT)["status"] == "queued"
            later(600)
            assert diagnosed(desk) == []
            later(61)
            [finding] = diagnosed(desk, "mail-waiting")
            desk.take("alice")
            assert diagnosed(desk) == []
        finally:
            process.stdin.close()
    assert "Mail for alice has waited for 11 minutes (1 message unread)" in finding["what"]
    assert "behind a door that nobody answers" in finding["what"]
    assert "postroom --session alice inbox --take" in finding["mend"]
    assert TEXT not in json.dumps(finding)


@pytest.mark.rule("09.16")
def test_what_a_session_says_of_its_doors_takes_nothing_and_sweeps_nothing(desk: Desk) -> None:
    """The verb that is asked: no message leaves, no dead record goes, and no text is shown."""
    desk.open("alice")
    bob = desk.open("bob")
    desk.send("bob", "alice", TEXT)
    desk.kill(bob)
    for _ in range(2):
        document = desk.ok("--session", "alice", "doors")
        assert (document["name"], document["unread"], document["most"], document["doors"]) == (
            "alice",
            1,
            50,
            [],
        )
        assert document["oldest"] is not None
        assert TEXT not in json.dumps(document)
    assert (desk.folder / "state/sessions" / f"{bob['pid']}.json").exists()
    said = desk.run("--session", "alice", "doors").out
    assert said.startswith("Whoever opened this session takes its mail.\n1 unread, the oldest since ")
    assert [one["text"] for one in desk.take("alice")] == [TEXT]
    assert desk.run("--session", "alice", "doors").out.endswith("\n0 unread.\n")
