"""`postroom doctor` as a whole: a healthy desk, the form of its answer, and what it never does (10.16, 10.29, 10.37)."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from postroom.console import cli, doctor
from postroom.console.checks.finding import AREAS, KINDS, SEVERITIES, Finding, found, ordered
from postroom.console.commands import doctor as doctor_command
from tests.clinic import clinic, diagnosed, of_the_machine, read
from tests.desk import Desk
from tests.strangers import OTHER_UID, as_user, command_here, needs_root, snapshot

LOADED = (cli, doctor, doctor_command)
"""What the command needs is loaded before a child is forked that becomes another user."""

TEXT = "the column is tenant_id"


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A clinic."""
    with clinic() as desk:
        yield desk


@pytest.mark.rule("10.16")
def test_a_healthy_desk_gives_none_and_says_what_was_looked_at(desk: Desk) -> None:
    """Two sessions that write to each other, one that was closed, settings that are right."""
    desk.settings(crossSessionInbound="accept", dialogExpiry="10m")
    for name in ("alice", "bob", "carol"):
        desk.open(name)
    desk.send("alice", "bob", TEXT)
    desk.ok("--session", "carol", "close")
    assert diagnosed(desk) == []
    done = desk.run("doctor")
    assert done.code == 0
    if not of_the_machine():
        first, looked, place = done.out.splitlines()
        assert first == "All is well: nothing here keeps messages from arriving."
        assert looked.startswith(f"Looked at: the state folder {desk.folder}/state")
        assert "2 sessions (2 answered); 3 session folders; 1 settings file" in looked
        assert place.startswith(f"Seen from {os.uname().nodename}, by Postroom ")


@pytest.mark.rule("10.16")
def test_it_works_where_there_is_nothing_yet_and_makes_nothing(desk: Desk) -> None:
    before = snapshot(desk.folder)
    assert diagnosed(desk) == []
    assert snapshot(desk.folder) == before
    assert not (desk.folder / "state").exists()


@pytest.mark.rule("10.16", "05.11")
def test_it_changes_nothing(desk: Desk) -> None:
    """Not a file, not a time, not an inode: a dead record is not swept, no mail is taken, a store is not opened."""
    desk.open("alice")
    bob, carol = desk.open("bob"), desk.open("carol")
    desk.send("alice", "bob", TEXT)
    desk.send("alice", "carol", TEXT)
    desk.kill(carol)
    places = (desk.folder / "state", desk.folder / "run", desk.folder / "home")
    before = snapshot(*places)
    diagnosed(desk, "record-stale")
    assert snapshot(*places) == before
    assert (desk.folder / "state/sessions" / f"{carol['pid']}.json").exists()
    assert [one["text"] for one in desk.take("bob")] == [TEXT]
    assert bob["pid"] != carol["pid"]


@pytest.mark.rule("10.37", "10.16")
def test_no_secret_and_no_text_is_shown(desk: Desk) -> None:
    """With mail, a hold, settings that hold secrets and mistakes, and every kind of token at hand."""
    desk.settings(
        nats={"url": "nats://u:hunter2@host", "token": "hunter3", "tls": 5, "pasword": "hunter4"},
        gateways=7,
        crossSessionInbound="holdd",
    )
    alice = desk.open("alice")
    bob = desk.open("bob")
    desk.send("alice", "bob", TEXT)
    folder = desk.folder / "state/sessions"
    secrets = [
        (folder / one["session_id"] / "client.token").read_text().split("\n")[0] for one in (alice, bob)
    ]
    secrets += [json.loads(key.read_text())["peerToken"] for key in folder.glob("*.key")]
    assert len(secrets) == 4
    leftover = {"POSTROOM_TOKEN": "hunter5", "POSTROOM_SESSION": "alice", "POSTROOM_HOMEE": "hunter6"}
    for words in (("doctor",), ("doctor", "--json")):
        done = desk.run(*words, environ=leftover)
        said = done.out + done.err
        assert "holdd" in said
        assert [word for word in (*secrets, TEXT, "tenant_id") if word in said] == []
        assert re.findall(r"hunter\d|pasword", said) == []


@pytest.mark.rule("10.16")
def test_the_words_of_others_are_escaped_in_what_is_printed(desk: Desk) -> None:
    """A file name with a line break and a colour in it is part of its line."""
    sessions = desk.folder / "state/sessions"
    desk.open("alice")
    (sessions / "7\x1b[31m\nerror  all is lost.json").write_text("{}")
    [finding] = diagnosed(desk, "record-unfit")
    assert "\x1b" not in finding["what"]
    done = desk.run("doctor")
    assert done.code == 1
    assert "\x1b" not in done.out
    assert not [line for line in done.out.splitlines() if line.startswith("error  all")]


@pytest.mark.rule("10.16")
def test_the_answer_is_grouped_counted_and_ends_with_what_mends_it(desk: Desk) -> None:
    alice = desk.open("alice")
    desk.open("bob")
    desk.kill(alice)
    desk.settings(crossSessionInbound="hold")
    done = desk.run("doctor", environ={"POSTROOM_SESSION": "nobody"})
    assert done.code == 1
    lines = done.out.splitlines()
    headings = [line for line in lines if line in AREAS.values()]
    assert headings == [AREAS[area] for area in ("sessions", "mail", "settings", "surroundings")]
    if not of_the_machine():
        assert "1 error, 2 warnings, 1 note." in lines
    for place, line in enumerate(lines):
        if match := re.fullmatch(r"  (error|warning|note) +(.+)  \[([a-z-]+)\]", line):
            assert match[1] == KINDS[match[3]].severity
            assert re.match(r" +→ .", lines[place + 1])


@pytest.mark.rule("10.16", "10.29")
def test_the_worst_comes_first() -> None:
    made = [found(name, name, "m") for name in sorted(KINDS)]
    got = ordered([*made, *made])
    assert len(got) == len(KINDS)
    places = [(SEVERITIES.index(each.severity), list(AREAS).index(each.area)) for each in got]
    assert places == sorted(places)


@pytest.mark.rule("10.37")
def test_it_acts_for_no_session_and_takes_no_words(desk: Desk) -> None:
    assert desk.refused("--session", "bob", "doctor", code=2)["code"] == "usage"
    assert desk.refused("doctor", "now", code=2)["code"] == "usage"


@needs_root
@pytest.mark.rule("10.16", "05.7")
def test_as_another_user_it_says_so_and_shows_nothing_of_ours(desk: Desk) -> None:
    desk.folder.chmod(0o755)
    alice = desk.open("alice")
    environ = {name: desk.environ[name] for name in ("POSTROOM_HOME", "XDG_RUNTIME_DIR", "HOME")}
    code, out, err = as_user(OTHER_UID, lambda: command_here(environ, "doctor", "--json"))
    assert (code, err) == (1, "")
    findings = json.loads(out)["findings"]
    assert findings[0]["id"] == "state-unfit"
    assert f"{desk.folder}/state: it belongs to uid 0" in findings[0]["what"]
    assert "alice" not in out
    assert alice["session_id"] not in out


@pytest.mark.rule("10.16")
def test_sessions_that_hang_cost_two_seconds_together(desk: Desk) -> None:
    """All of them are asked at once: eight that were stopped take no longer than one, and the ninth still answers."""
    stopped = [desk.open(f"s{number}") for number in range(8)]
    desk.open("alice")
    for one in stopped:
        os.kill(one["pid"], signal.SIGSTOP)
    try:
        began = time.monotonic()
        done = desk.run("doctor", "--json")
        took = time.monotonic() - began
    finally:
        for one in stopped:
            os.kill(one["pid"], signal.SIGCONT)
    found_ids = [each["id"] for each in read(done)]
    assert found_ids == ["session-silent"] * 8
    assert took < 8 * 2.0, "they were asked one after the other"


@pytest.mark.rule("10.16")
def test_a_part_that_cannot_be_looked_at_takes_no_other_with_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails in a way that nobody thought of is a finding, and everything else is still found."""
    alice = desk.open("alice")
    desk.kill(alice)

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("postroom.console.looks.settings.find", fail)
    monkeypatch.setattr("postroom.console.looks.machine.namespace_of", fail)
    environ = {**desk.environ, "POSTROOM_NAME": "x"}
    examined = doctor.examine(environ, str(desk.folder))
    ids = [each.id for each in examined.findings]
    assert ids == ["check-failed", "check-failed", "record-stale", "env-name"]
    said = [each.what for each in examined.findings if each.id == "check-failed"]
    assert said == [
        f"{part} could not be looked at: Input/output error." for part in ("The machine", "The settings")
    ]
    assert examined.code == 0
    assert "Seen from , by" in doctor.text_of(examined)


def test_a_check_that_fails_is_a_finding_too(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    def fail(_: Any) -> Iterator[Finding]:
        yield from ()
        raise ValueError("hunter2")

    monkeypatch.setattr("postroom.console.checks.machine.CHECKS", (fail,))
    [finding] = doctor.examine(desk.environ, str(desk.folder)).findings
    assert (finding.id, "hunter2" in finding.what, "ValueError" in finding.what) == (
        "check-failed",
        False,
        True,
    )
