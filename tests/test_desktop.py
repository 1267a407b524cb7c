"""Desktop notifications about what is held, with a program in the place of `notify-send` that writes down its arguments."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom import Session, open_session
from tests.desk import Desk, wait_until
from tests.simulated import held, says
from tests.strangers import Raw, enveloped
from tests.transports.ends import run, until

ON = '{"desktopNotices": true}'


def notifier(home: Path, monkeypatch: pytest.MonkeyPatch, after: str = "") -> Callable[[], list[list[str]]]:
    """Puts the program first on PATH; returns what reads how often it was called and with which arguments.

    Args:
        after: what it does then, in the language of the shell.
    """
    folder, log = home / "bin", home / "notified"
    folder.mkdir()
    program = folder / "notify-send"
    # One write a call, so that calls cannot be mixed.
    program.write_text(f"#!/bin/sh\nprintf '%s\\036' \"$@\" '' >> {log}\n{after}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def calls() -> list[list[str]]:
        """The arguments of each call so far."""
        calls: list[list[str]] = []
        call: list[str] = []
        for word in (log.read_text() if log.exists() else "").split("\036")[:-1]:
            call.append(word)
            if not word:
                calls.append(call[:-1])
                call = []
        return calls

    return calls


@pytest.mark.rule("03.23", "11.29")
def test_a_hold_is_announced_without_a_word_of_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits, and how that is looked at: arguments can be read by every user of the machine."""
    calls = notifier(home, monkeypatch)
    desk = Desk(home, os.environ)
    try:
        desk.open("alice")
        desk.open("bob", "--mode", "bypassPermissions", "--settings", ON)
        desk.send("alice", "bob", "the secret text", "--summary", "the secret summary")
        wait_until(lambda: len(calls()) == 1)
        [[app, dashes, title, body]] = calls()
        assert (app, dashes, title) == ("--app-name=postroom", "--", "bob: a message is held")
        assert body == "From alice. To read and decide: postroom --session bob held"
        assert "secret" not in json.dumps(calls())
    finally:
        desk.leave()


async def one_held(bob: Session, alice: Session, count: int = 1) -> None:
    """alice sends so many that bob holds."""
    for _ in range(count):
        await says(alice, "bob", f"secret {len(held(bob))}")


@pytest.mark.rule("03.23", "03.31", "03.36")
def test_nobody_is_notified_unless_a_person_wants_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by default, nor because a project's file says so; from the moment on at which the setting applies."""
    calls = notifier(home, monkeypatch)
    project = home / "project"
    (project / ".postroom").mkdir(parents=True)
    (project / ".postroom/settings.json").write_text(ON)

    async def work() -> None:
        async with (
            open_session("bob", mode="yolo", cwd=str(project)) as bob,
            open_session("alice") as alice,
            open_session("cem", settings=ON) as cem,
        ):
            await one_held(bob, alice, 2)
            bob.apply(cem.standing.settings)
            await until(lambda: bob.standing.settings.desktop_notices)
            await one_held(bob, alice)
            await until(lambda: len(calls()) >= 1)
            assert len(calls()) == 1

    run(work())


@pytest.mark.rule("03.23", "11.10")
def test_many_at_once_are_a_few_and_a_number(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what comes while the desktop is slow is announced when it has answered."""
    gate = home / "gate"
    os.mkfifo(gate)
    calls = notifier(home, monkeypatch, f"read line < {gate}")

    async def work() -> None:
        async with (
            open_session("bob", mode="yolo", settings=ON) as bob,
            open_session("alice") as alice,
        ):
            await one_held(bob, alice)
            await until(lambda: len(calls()) == 1)
            await one_held(bob, alice, 5)
            fd = os.open(gate, os.O_RDWR)
            try:
                for number in range(2, 6):
                    os.write(fd, b"go on\n")
                    await until(lambda number=number: len(calls()) == number)
                os.write(fd, b"go on\n")
            finally:
                os.close(fd)
            *ones, rest = [words[2:] for words in calls()]
            assert {tuple(one) for one in ones} == {
                ("bob: a message is held", "From alice. To read and decide: postroom --session bob held")
            }
            assert rest == ["bob: 2 more messages are held", "postroom --session bob held"]

    run(work())


CLAIMS = {
    "alice": "alice (claimed)",
    "--help": "--help (claimed)",
    "x\x1b[2J\u202e<b>y</b>": "a process without a name",
    "z" * 64: f"{'z' * 64} (claimed)",
    "z" * 300: "a process without a name",
    "": "a process without a name",
}
"""What a process calls itself → how it is called."""


@pytest.mark.rule("03.23", "11.7", "04.15")
def test_a_claimed_name_is_called_one_and_cannot_break_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = notifier(home, monkeypatch)
    desk = Desk(home, os.environ)
    try:
        bob = desk.open("bob", "--mode", "bypassPermissions", "--settings", ON)
        for number, (name, shown) in enumerate(CLAIMS.items(), 1):
            with Raw(bob["socket"]) as line:
                line.post("", message=enveloped(f"hello {number}", f' from-name="{name}"'))
            wait_until(lambda number=number: len(calls()) == number)
            words = calls()[-1]
            assert words[1:3] == ["--", "bob: a message is held"]
            assert words[3:] == [f"From {shown}. To read and decide: postroom --session bob held"]
    finally:
        desk.leave()


@pytest.mark.rule("03.23")
def test_a_desktop_without_the_program_costs_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home / "nothing"))

    async def work() -> None:
        async with (
            open_session("bob", mode="yolo", settings=ON) as bob,
            open_session("alice") as alice,
        ):
            await one_held(bob, alice, 3)
            assert bob.approve(bob.held()[0].message.msg_id)
            assert len(bob.held()) == 2

    run(work())
