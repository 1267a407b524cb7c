"""What an agent's shell can do about what its session holds, typed in the terminal of the person who opened it (10.39).

alice never asks for permission, bob does, so what alice sends to bob is held (03.20). More of who may decide is in
`tests/test_holds_by_command.py`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.desk import COMMAND, Desk, wait_until
from tests.screen import Screen, screen
from tests.terminal import person

PROMPT = "an agent's shell> "


@pytest.fixture
def desk(home: Path) -> Iterator[Desk]:
    """A private desk with alice, who never asks."""
    desk = Desk(home, os.environ)
    desk.open("alice", "--mode", "bypassPermissions")
    yield desk
    desk.leave()


@contextlib.contextmanager
def shell(desk: Desk, *options: str) -> Generator[Screen]:
    """bob around a shell, in a terminal."""
    environ = {**desk.environ, "PS1": PROMPT, "PATH": f"{Path(COMMAND).parent}:{os.environ['PATH']}"}
    with screen(
        *(COMMAND, "open", "--name", "bob", *options, "--", "sh", "-i"), env=environ, cwd=desk.folder
    ) as bob:
        bob.shows(PROMPT)
        yield bob


def typed(bob: Screen, command: str) -> str:
    """Types a command and returns what it prints."""
    bob.type(f"{command}\n")
    return bob.shows(PROMPT).removesuffix(PROMPT)


def texts(desk: Desk) -> list[str]:
    """What bob holds."""
    return [hold["text"] for hold in desk.ok("--session", "bob", "held")["held"]]


@pytest.mark.rule("10.39", "05.26", "11.7", "03.42", "03.48")
def test_show_7_in_the_sessions_own_shell_nobody_decides_and_it_says_where(desk: Desk) -> None:
    """It has the person's terminal, the child's token in its environment and the client's token in a file."""
    with shell(desk) as bob:
        msg_id = desk.send("alice", "bob", "hello")["msg_id"]
        token = desk.folder / "state/sessions" / desk.ok("--session", "bob", "status")["session_id"]
        assert (token / "client.token").exists()
        for command in (
            f"postroom approve {msg_id}",
            f"postroom approve {msg_id[:8]} --always --note 'the user agreed'",
            f"postroom deny {msg_id}",
            f"postroom --session bob approve {msg_id}",
            f"setsid --wait postroom --session bob approve {msg_id}",
            f"env -u POSTROOM_SESSION -u POSTROOM_TOKEN postroom --session bob approve {msg_id}",
            f"(postroom approve {msg_id} </dev/null | cat)",
            f'{sys.executable} -c \'import pty; pty.spawn(["postroom", "approve", "{msg_id}"])\'',
        ):
            said = typed(bob, command)
            assert "needs_person" in said, (command, said)
            assert "a terminal that no session started" in said, command
            assert texts(desk) == ["hello"], command
        assert "hello" in typed(bob, "postroom held")
        assert person(desk, "--session", "bob", "approve", msg_id)["state"] == "accepted"


@pytest.mark.rule("03.43", "10.6", "03.16", "03.19")
def test_show_7_a_mode_that_the_shell_reports_lets_in_no_hold_and_judges_what_comes_next(desk: Desk) -> None:
    """Then a person reports it too, and the hold is judged again."""
    desk.open("cem")
    with shell(desk) as bob:
        desk.send("alice", "bob", "one")
        assert "bypassing" in typed(bob, "postroom status --mode bypassPermissions")
        assert texts(desk) == ["one"]
        desk.send("alice", "bob", "two")
        desk.send("cem", "bob", "three")
        wait_until(lambda: texts(desk) == ["one", "three"])
        assert [message["text"] for message in desk.take("bob")] == ["two"]
        # Back and forth changes nothing, and neither does what the client's token says from in here.
        typed(bob, "postroom status --mode default")
        typed(bob, "env -u POSTROOM_TOKEN postroom --session bob status --mode bypassPermissions")
        assert texts(desk) == ["one", "three"]
        person(desk, "--session", "bob", "status", "--mode", "bypassPermissions")
        assert texts(desk) == ["three"]
        assert [message["text"] for message in desk.take("bob")] == ["one"]
