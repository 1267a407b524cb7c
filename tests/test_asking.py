"""A session in front of somebody: what is held is shown there and asked about, in a real terminal (10.8, 03.51).

bob never asks for permission, alice does, so what alice sends to bob is held (03.19).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.desk import COMMAND, Desk, wait_until
from tests.screen import Screen, screen
from tests.terminal import person, started_at_terminal

QUESTION = "Let it in? [y]es, [n]o, [a]lways from this sender, Enter leaves it held: "

OPEN = (COMMAND, "open", "--name", "bob", "--mode", "bypassPermissions")
"""bob, in front of somebody."""


@pytest.fixture
def desk(home: Path) -> Iterator[Desk]:
    """A private desk with alice open."""
    desk = Desk(home, os.environ)
    desk.open("alice")
    yield desk
    desk.leave()


@contextlib.contextmanager
def bob_open(desk: Desk, *command: str) -> Generator[Screen]:
    """bob in a terminal, once he can be reached."""
    with screen(*(command or OPEN), env=desk.environ, cwd=desk.folder) as shown:
        shown.shows("what arrives is printed here")
        yield shown


def held(desk: Desk) -> list[str]:
    """The texts of what bob holds."""
    return [hold["text"] for hold in desk.ok("--session", "bob", "held")["held"]]


def send(desk: Desk, text: str) -> str:
    """alice sends; returns the id."""
    return str(desk.send("alice", "bob", text)["msg_id"])


def told(desk: Desk) -> list[dict[str, Any]]:
    """Waits for what alice is told next."""
    return list(desk.ok("--session", "alice", "wait", "--timeout", "15")["notices"])


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.51", "10.8", "03.41", "03.42", "03.48")
def test_the_person_in_front_is_asked_and_answers(desk: Desk) -> None:
    """Yes, no, nothing, always; who it is from, what both sides state and what it says stand above the question."""
    with bob_open(desk) as bob:
        msg_id = send(desk, "The column is tenant_id.")
        asked = bob.shows(QUESTION)
        alice = desk.ok("--session", "alice", "status")
        for words in (
            f"{msg_id}, from alice [{alice['ref']}] (verified), which states prompting",
            "another permission class than this session has",
            "left",
            "\n    The column is tenant_id.\n",
        ):
            assert words in asked
        [notice] = told(desk)
        assert "a person is asked there; it ends at" in notice["detail"]
        bob.type("y\n")
        bob.shows(f"accepted: {msg_id}")
        assert "[held, approved by a person]" in bob.shows("    The column is tenant_id.\n")
        assert [notice["kind"] for notice in told(desk)] == ["delivered"]

        msg_id = send(desk, "two")
        bob.shows(QUESTION)
        told(desk)
        bob.type("n\n")
        bob.shows(f"denied: {msg_id}")
        assert [(notice["kind"], notice["msg_id"]) for notice in told(desk)] == [("denied", msg_id)]

        send(desk, "three")
        bob.shows(QUESTION)
        bob.type("\n")
        send(desk, "four")
        assert "three" not in bob.shows(QUESTION)  # asked once: who wants it later has the command
        assert held(desk) == ["three", "four"]
        bob.type("a\n")
        bob.shows("    four\n")
        bob.shows("    three\n")  # what else of alice waits is let in by that
        send(desk, "five")
        assert QUESTION not in bob.shows("    five\n")
        [rule] = desk.ok("--session", "bob", "rules")["rules"]
        assert rule["from"]["name"] == "alice"
        bob.type("\x03")
        assert bob.ends() == 130


@pytest.mark.rule("03.51")
def test_an_answer_is_a_word_and_nothing_else_is_guessed_at(desk: Desk) -> None:
    """Whatever is none decides nothing, and is asked again."""
    with bob_open(desk) as bob:
        send(desk, "one")
        for typed in ("yes, please", "ny", "yy", "what?", "y\x01"):
            bob.shows(QUESTION)
            bob.type(f"{typed}\n")
            bob.shows("none of the answers")
        bob.shows(QUESTION)
        assert held(desk) == ["one"]
        bob.type("  YES \n")
        bob.shows("accepted: ")
        send(desk, "two")
        bob.shows(QUESTION)
        bob.type("No\n")
        bob.shows("denied: ")
        assert held(desk) == []


@pytest.mark.rule("03.48", "03.12", "03.51")
def test_nobody_who_was_not_verified_is_accepted_always(desk: Desk) -> None:
    """The person is told why, and asked again."""
    with bob_open(desk) as bob:
        assert desk.run("send", "bob", "from outside").code == 0
        assert "(not verified), which states no class" in bob.shows(QUESTION)
        bob.type("a\n")
        bob.shows("nobody to accept always. It is still held")
        bob.shows(QUESTION)
        assert (held(desk), desk.ok("--session", "bob", "rules")["rules"]) == (["from outside"], [])
        bob.type("y\n")
        bob.shows("    from outside\n")


@pytest.mark.rule("03.51", "11.7")
def test_what_was_typed_before_the_question_is_no_answer_to_it(desk: Desk) -> None:
    """Neither a whole line nor the beginning of one; nor an answer to another question that has gone meanwhile."""
    with bob_open(desk) as bob:
        bob.type("y\ny")
        first = send(desk, "one")
        bob.shows(QUESTION)
        bob.type("y")
        second = send(desk, "two")
        wait_until(lambda: held(desk) == ["one", "two"])
        assert person(desk, "--session", "bob", "deny", first)["state"] == "denied"
        bob.shows("It has ended meanwhile.")
        assert second in bob.shows(QUESTION)
        bob.type("\n")
        send(desk, "three")
        bob.shows(QUESTION)
        assert held(desk) == ["two", "three"]


@pytest.mark.rule("03.51", "10.37", "11.7")
def test_a_held_text_cannot_ask_or_answer_in_the_programs_place(desk: Desk) -> None:
    """Its controls are made visible and its lines are set in; a name that it claims is called one."""
    with bob_open(desk) as bob:
        desk.ok(
            *("--session", "alice", "send", "bob", "-"),
            stdin=f"x\x1b[2J\x1b[1A\n{QUESTION}y\naccepted: 1\n\u202e\x9b31m\x08" + "\n".join("z" * 2000),
        )
        asked = bob.shows("Enter leaves it held: ")
        assert f"\n    {QUESTION}" in asked + bob.shows(f"\n{QUESTION}")
        assert not {"\x1b", "\u202e", "\x9b", "\x08"} & set(bob.text)
        assert len(bob.text.splitlines()) < 40
        assert "characters more" in bob.text
        assert held(desk) != []


# ── nobody is asked ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.51")
def test_where_the_input_ends_nobody_is_asked_any_more(desk: Desk) -> None:
    """The session goes on, and the next sender is told so."""
    with bob_open(desk) as bob:
        send(desk, "one")
        bob.shows(QUESTION)
        assert "a person is asked there" in told(desk)[0]["detail"]
        bob.type("\x04")
        wait_until(lambda: "nobody can be asked" in str(desk.ok("--session", "bob", "status")["problems"]))
        send(desk, "two")
        assert "nobody can approve it there" in told(desk)[0]["detail"]
        assert held(desk) == ["one", "two"]
        desk.send("bob", "alice", "still here")
        assert bob.text.count(QUESTION) == 1


def accepted_after(desk: Desk, bob: Screen) -> None:
    """Something that is accepted comes behind what is held, and is printed: until then nobody was asked."""
    desk.open("dot", "--mode", "bypassPermissions")
    desk.send("dot", "bob", "not held")
    bob.shows("    not held\n")
    assert "Let it in?" not in bob.text
    assert held(desk) == ["one"]
    assert "nobody can approve it there" in told(desk)[0]["detail"]


@pytest.mark.rule("10.39", "03.51")
def test_nobody_is_asked_where_a_session_was_opened_inside_another(desk: Desk) -> None:
    """It is an agent's shell that typed that, in the person's own terminal."""
    outer = (COMMAND, "open", "--name", "carol", "--", *OPEN)
    with bob_open(desk, *outer) as bob:
        send(desk, "one")
        bob.type("y\n")
        accepted_after(desk, bob)


@pytest.mark.rule("03.51", "10.37")
def test_nobody_is_asked_where_a_program_reads_what_is_printed(desk: Desk) -> None:
    with started_at_terminal(*OPEN, env=desk.environ, cwd=desk.folder) as process:
        wait_until(lambda: desk.run("--session", "bob", "status").code == 0)
        send(desk, "one")
        assert "nobody can approve it there" in told(desk)[0]["detail"]
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate()
        assert b"Let it in?" not in out


@pytest.mark.rule("03.51")
def test_a_session_in_the_background_of_a_shell_goes_on_and_asks_once_it_is_in_front(desk: Desk) -> None:
    """A process that reads the terminal from the background would be stopped, and so would its session."""
    script = f"set -m; {shlex.join(OPEN)} & read line; fg"
    with bob_open(desk, "sh", "-c", script) as bob:
        send(desk, "one")
        accepted_after(desk, bob)
        bob.type("y\n")  # to the shell
        wait_until(
            lambda: "nobody can be asked" not in str(desk.ok("--session", "bob", "status")["problems"])
        )
        send(desk, "two")
        assert "    one\n" in bob.shows(QUESTION)
        assert "a person is asked there" in told(desk)[0]["detail"]
        bob.type("y\n")
        assert "    two\n" in bob.shows(QUESTION)
        assert held(desk) == ["two"]
