"""Holds from the command line, on real processes: what a person does in a terminal, and what an agent's shell cannot.

bob never asks for permission, alice does, so what alice sends to bob is held (03.19).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.desk import COMMAND, SECONDS, Desk, wait_until
from tests.terminal import at_terminal, person, started_at_terminal

BYPASSING = ("--mode", "bypassPermissions")


@pytest.fixture
def desk(home: Path) -> Iterator[Desk]:
    """A private desk with alice and bob open."""
    desk = Desk(home, os.environ)
    desk.open("alice")
    desk.open("bob", *BYPASSING)
    yield desk
    desk.leave()


def held(desk: Desk, session: str = "bob") -> list[dict[str, Any]]:
    """What a session holds."""
    return list(desk.ok("--session", session, "held")["held"])


def hold_one(desk: Desk, text: str = "hello", session: str = "bob") -> str:
    """alice sends something that is held; returns its id."""
    msg_id = str(desk.send("alice", session, text)["msg_id"])
    wait_until(lambda: any(one["msg_id"] == msg_id for one in held(desk, session)))
    return msg_id


# ── a person ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.5", "10.26", "10.29", "03.41", "10.39")
def test_a_person_approves_in_a_terminal(desk: Desk) -> None:
    msg_id = hold_one(desk, "The column is tenant_id.")
    [one] = held(desk)
    assert (one["text"], one["cause"]) == ("The column is tenant_id.", "mode-mismatch")
    assert (one["from"]["name"], one["from"]["verified"], one["from"]["class"]) == (
        "alice",
        True,
        "prompting",
    )
    assert desk.take("bob") == []
    text = desk.run("--session", "bob", "held").out
    assert f"postroom --session bob approve {msg_id}" in text
    assert person(desk, "--session", "bob", "approve", msg_id) == {"msg_id": msg_id, "state": "accepted"}
    [message] = desk.take("bob")
    assert (message["msg_id"], message["held"]) == (msg_id, True)
    assert held(desk) == []
    states = [step["state"] for step in desk.ok("trace", msg_id)["steps"]]
    assert states.index("held") < states.index("accepted") < states.index("consumed")


@pytest.mark.rule("10.38", "10.5")
def test_without_a_session_it_is_said_where_something_is_held(desk: Desk) -> None:
    assert "holds" not in desk.refused("held")["hint"]
    hold_one(desk)
    for words in (["held"], ["approve", "0197ab"], ["deny", "0197ab"]):
        assert desk.refused(*words)["hint"].startswith("Now bob holds 1. ")
    assert "holds" not in desk.refused("inbox")["hint"]


@pytest.mark.rule("10.5", "03.42", "03.53")
def test_a_person_denies_and_the_sender_is_told_with_the_note(desk: Desk) -> None:
    msg_id = hold_one(desk)
    assert person(desk, "--session", "bob", "deny", msg_id, "--note", "ask me on Monday")["state"] == "denied"
    assert desk.take("bob") == []
    told: list[dict[str, Any]] = []

    def denied() -> bool:
        told.extend(desk.ok("--session", "alice", "inbox", "--take")["notices"])
        return any(notice["kind"] == "denied" for notice in told)

    wait_until(denied)
    [notice] = [notice for notice in told if notice["kind"] == "denied"]
    assert (notice["msg_id"], notice["about"]) == (msg_id, "bob")
    assert "ask me on Monday" in notice["detail"]


@pytest.mark.rule("10.11", "03.48")
def test_a_person_accepts_a_sender_always_and_ends_that_again(desk: Desk) -> None:
    msg_id = hold_one(desk)
    assert person(desk, "--session", "bob", "approve", msg_id[:13], "--always")["msg_id"] == msg_id
    desk.send("alice", "bob", "again")
    assert [message["text"] for message in desk.take("bob")] == ["hello", "again"]
    [rule] = desk.ok("--session", "bob", "rules")["rules"]
    assert rule["from"]["name"] == "alice"
    assert desk.refused("--session", "bob", "rules", "--revoke", rule["id"])["code"] == "needs_person"
    assert person(desk, "--session", "bob", "rules", "--revoke", rule["id"]) == {"rules": []}
    hold_one(desk, "and again")
    done = at_terminal(desk, "--session", "bob", "rules", "--revoke", rule["id"])
    assert (done.code, done.err.splitlines()[0]) == (3, "unknown_rule")


@pytest.mark.rule("10.6", "03.43", "10.27")
def test_a_person_changes_the_mode(desk: Desk) -> None:
    """And what was held is let in. Without a terminal it is refused."""
    hold_one(desk)
    error = desk.refused("--session", "bob", "status", "--mode", "plan")
    assert (error["code"], held(desk) != []) == ("needs_person", True)
    document = person(desk, "--session", "bob", "status", "--mode", "plan")
    assert (document["mode"], document["class"], document["held"]) == ("plan", "prompting", 0)
    assert [message["text"] for message in desk.take("bob")] == ["hello"]


@pytest.mark.rule("10.37", "10.5")
def test_exit_codes_of_ids_that_stand_for_nothing(desk: Desk) -> None:
    hold_one(desk)
    for verb in ("approve", "deny"):
        done = at_terminal(desk, "--session", "bob", verb, "no-such-id")
        assert (done.code, done.out, done.err.splitlines()[0]) == (3, "", "not_held")
    assert desk.refused("--session", "bob", "explain", "no-such-id", code=3)["code"] == "unknown_message"
    assert len(held(desk)) == 1


# ── an agent's shell ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.39", "05.26")
def test_without_a_terminal_nobody_decides(desk: Desk) -> None:
    """The client token of the session does not help."""
    msg_id = hold_one(desk)
    for verb in ("approve", "deny"):
        error = desk.refused("--session", "bob", verb, msg_id)
        assert error["code"] == "needs_person"
        assert "a terminal that no session started" in error["hint"]
    assert len(held(desk)) == 1


INSIDE = f"""
import json, os, subprocess, sys
def run(*words):
    done = subprocess.run([{COMMAND!r}, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return [done.returncode, json.loads(done.stdout)]
following = subprocess.Popen([{COMMAND!r}, "held", "--follow", "--json"], stdout=subprocess.PIPE)
found = []
while not found:
    found = json.loads(following.stdout.readline())["held"]
following.kill()
said = []
for words in json.loads(sys.argv[1]):
    said.append(run(*[word.replace("ID", found[0]["msg_id"]) for word in words]))
print(json.dumps([os.isatty(0), said, run("held")[1]["held"]]), flush=True)
"""
"""What an agent's shell tries once something is held in its own session."""


def tried_inside(desk: Desk, *tried: list[str]) -> tuple[list[tuple[int, dict[str, Any]]], list[Any]]:
    """Opens carol, who never asks, in a terminal, around a shell that tries commands on what alice sends there.

    Returns the exit code and the document of each command, and what is held at last.
    """
    around = ("--name", "carol", *BYPASSING, "--", sys.executable, "-c", INSIDE, json.dumps(tried))
    with started_at_terminal(COMMAND, "open", *around, env=desk.environ, cwd=desk.folder) as process:
        wait_until(lambda: desk.run("--session", "alice", "send", "carol", "hello").code == 0)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    terminal, said, left = json.loads(out.splitlines()[-1])
    assert terminal
    return [(code, document) for code, document in said], left


@pytest.mark.rule("10.39", "11.7", "05.26", "03.43")
def test_an_agents_shell_looks_at_its_own_holds_and_decides_nothing(desk: Desk) -> None:
    """In the person's own terminal, with the child's token in its environment, and with the client's by name."""
    deciding = [
        ["approve", "ID"],
        ["approve", "ID", "--always"],
        ["deny", "ID"],
        ["rules", "--revoke", "1"],
        ["--session", "carol", "approve", "ID"],
    ]
    looking = [["held"], ["explain", "ID"], ["rules"], ["status", "--mode", "default"]]
    said, left = tried_inside(desk, *deciding, *looking)
    for code, document in said[: len(deciding)]:
        assert (code, document["error"]["code"]) == (1, "needs_person")
    shown, explained, rules, status = said[len(deciding) :]
    assert [code for code, _ in said[len(deciding) :]] == [0, 0, 0, 0]
    assert [one["text"] for one in shown[1]["held"]] == ["hello"]
    assert (explained[1]["outcome"], explained[1]["cause"]) == ("held", "mode-mismatch")
    assert rules[1] == {"rules": []}
    # From inside, the mode judges what comes from then on; what waits for a person goes on waiting.
    assert (status[1]["mode"], status[1]["class"], status[1]["held"]) == ("default", "prompting", 1)
    assert [one["text"] for one in left] == ["hello"]


@pytest.mark.rule("05.26", "11.3", "10.39")
def test_an_agents_shell_neither_sees_nor_decides_what_another_session_holds(desk: Desk) -> None:
    msg_id = hold_one(desk, "not for carol")
    tried = [["--session", "bob", *words] for words in (["held"], ["approve", msg_id], ["explain", msg_id])]
    said, _ = tried_inside(desk, *tried)
    for code, document in said:
        assert (code, document["error"]["code"]) == (1, "not_your_session")
        assert "not for carol" not in json.dumps(document)
    assert len(held(desk)) == 1


OPENS = f"""
import json, subprocess, sys
def run(*words):
    done = subprocess.run([{COMMAND!r}, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return [done.returncode, json.loads(done.stdout)]
run("open", "--name", "dave", "--detach", "--mode", "bypassPermissions")
sent = run("send", "dave", "hello")[1]["msg_id"]
said = [run("--session", "dave", *words) for words in (["held"], ["approve", sent], ["deny", sent], ["status", "--mode", "plan"])]
said.append(run("--session", "dave", "close"))
print(json.dumps(said), flush=True)
"""


@pytest.mark.rule("05.26", "10.39")
def test_what_a_session_opened_is_not_its_to_decide_about(desk: Desk) -> None:
    """It may look, and end it; approve, deny and the mode are a person's."""
    around = ("--name", "carol", "--", sys.executable, "-c", OPENS)
    with started_at_terminal(COMMAND, "open", *around, env=desk.environ, cwd=desk.folder) as process:
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    shown, *decided, closed = json.loads(out.splitlines()[-1])
    assert (shown[0], [one["text"] for one in shown[1]["held"]]) == (0, ["hello"])
    assert [(code, document["error"]["code"]) for code, document in decided] == [(1, "needs_person")] * 3
    assert closed[1]["expired"] == 1


LEAVES = f"""
import os, subprocess, sys
reading, writing = os.pipe()
if os.fork() == 0:
    middle = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == middle:
        pass
    bare = {{key: value for key, value in os.environ.items() if key not in ("POSTROOM_SESSION", "POSTROOM_TOKEN", "POSTROOM_SOCKET")}}
    done = subprocess.run(
        [{COMMAND!r}, "--session", "bob", "approve", sys.argv[1], "--json"], env=bare, stdout=subprocess.PIPE
    )
    os.write(writing, done.stdout)
    os._exit(0)
os.close(writing)
os.wait()
with os.fdopen(reading, "rb") as pipe:
    print(pipe.read().decode(), flush=True)
"""
"""A shell that starts the command so that it descends from nobody, with nothing of its session in the environment."""


@pytest.mark.rule("10.39")
def test_who_leaves_its_family_to_look_like_a_person_is_none(desk: Desk) -> None:
    """It has the terminal still, and the one at the head of that is none of its ancestors any more."""
    msg_id = hold_one(desk)
    around = ("--name", "carol", "--", sys.executable, "-c", LEAVES, msg_id)
    with started_at_terminal(COMMAND, "open", *around, env=desk.environ, cwd=desk.folder) as process:
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    assert json.loads(out)["error"]["code"] == "needs_person"
    assert len(held(desk)) == 1


# ── around it ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.5")
def test_following_goes_on_until_it_is_ended(desk: Desk) -> None:
    following = desk.start("--session", "bob", "held", "--follow", "--json")
    assert following.stdout is not None
    assert json.loads(following.stdout.readline()) == {"held": []}
    for text in ("one", "two"):
        msg_id = desk.send("alice", "bob", text)["msg_id"]
        assert [one["msg_id"] for one in json.loads(following.stdout.readline())["held"]] == [msg_id]
    following.kill()
    following.communicate(timeout=SECONDS)
    assert len(held(desk)) == 2


@pytest.mark.rule("10.38", "10.37")
@pytest.mark.parametrize(
    "words", [["held"], ["approve", "0197ab"], ["deny", "0197ab"], ["explain"], ["rules"]], ids=" ".join
)
def test_a_session_that_has_ended_is_said_to_have_ended(desk: Desk, words: list[str]) -> None:
    desk.ok("--session", "bob", "close")
    for error in (
        desk.refused("--session", "bob", *words),
        person(desk, "--session", "bob", *words, code=1)["error"],
    ):
        assert error["code"] == "no_session"
        assert "not running. It ended at" in error["message"]
    assert desk.refused(*words)["code"] == "no_session"


@pytest.mark.rule("10.8", "03.1", "03.2", "03.3", "10.27")
@pytest.mark.parametrize(
    ("mode", "permission_class"),
    [
        ("default", "prompting"),
        ("manual", "prompting"),
        ("acceptEdits", "prompting"),
        ("auto", "prompting"),
        ("dontAsk", "prompting"),
        ("plan", "prompting"),
        ("bypassPermissions", "bypassing"),
        ("never", "bypassing"),
        ("danger-full-access", "bypassing"),
        ("yolo", "bypassing"),
    ],
)
def test_a_session_opens_in_a_mode(home: Path, mode: str, permission_class: str) -> None:
    desk = Desk(home, os.environ)
    try:
        document = desk.open("erin", "--mode", mode)
        assert (document["mode"], document["class"]) == (mode, permission_class)
        assert desk.ok("--session", "erin", "status")["class"] == permission_class
    finally:
        desk.leave()


@pytest.mark.rule("10.8", "03.25", "03.38", "10.26", "10.27")
def test_settings_come_with_the_command(desk: Desk, home: Path) -> None:
    """As JSON and as a file; what they hold never ends by itself."""
    (home / "hold.json").write_text('{"crossSessionInbound": "hold"}')
    (home / "hold.json").chmod(0o600)
    for name, given in (("frank", '{"crossSessionInbound": "hold"}'), ("grace", "hold.json")):
        assert desk.open(name, "--settings", given)["inbound"] == {"value": "hold", "scope": "flag"}
        hold_one(desk, session=name)
        [one] = held(desk, name)
        assert (one["cause"], one["expires_at"]) == ("explicit-setting", None)
        assert "no deadline" in desk.run("--session", name, "held").out
    for given in ('{"crossSessionInbound": "maybe"}', "{", "no-such-file.json"):
        assert desk.refused("open", "--detach", "--settings", given)["code"] == "setting_invalid"


@pytest.mark.rule("01.6", "10.2")
def test_asking_to_be_told_when_a_session_is_idle(desk: Desk) -> None:
    """With a text and without one; an outsider has nobody who could be told."""
    document = desk.ok("--session", "alice", "send", "bob", "--notify-when-idle")
    assert (document["status"], document["warnings"]) == ("written", [])
    assert desk.send("alice", "bob", "hello", "--notify-when-idle")["status"] == "queued"
    error = desk.refused("send", "bob", "hello", "--notify-when-idle")
    assert error["code"] == "notify_not_allowed"
    assert "--notify-when-idle" in error["hint"]
    error = desk.refused("send", "bob", "hello", "--notify-when-idle", "--wait-reply", "1")
    assert error["code"] == "notify_not_allowed"
    assert len(held(desk)) == 1


@pytest.mark.rule("10.37", "11.7")
def test_an_id_that_is_a_trap_for_a_shell_is_shown_so_that_it_springs_nothing(desk: Desk, home: Path) -> None:
    """A sender chooses the id; the line that a person copies is run by a shell as it stands."""
    trap = "$(touch${IFS}sprung);touch`echo`sprung"
    desk.send("alice", "bob", "hello", "--msg-id", trap)
    wait_until(lambda: held(desk) != [])
    [line] = [line for line in desk.run("--session", "bob", "held").out.splitlines() if " approve " in line]
    with started_at_terminal(
        "sh",
        "-c",
        line,
        env={**desk.environ, "PATH": f"{Path(COMMAND).parent}:{os.environ['PATH']}"},
        cwd=home,
    ) as process:
        out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert out.startswith(b"accepted: ")
    assert not (home / "sprung").exists()
    assert [message["msg_id"] for message in desk.take("bob")] == [trap]
