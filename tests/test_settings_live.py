"""Settings files that are edited, broken and mended while sessions run under them: real processes, real files.

alice, who asks for permission, sends. Each receiver has a settings file of its own, and nobody tells it that the file
has changed. Which files count as broken is shown file by file in tests/state; here it is what comes of that.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.desk import COMMAND, SECONDS, Desk, wait_until
from tests.looking import looked
from tests.strangers import OTHER_UID, Raw, needs_root, private_desk

BYPASSING = ("--mode", "bypassPermissions")
KEPT = "what it said before stays in force"
HELD_UNTIL = "until it is mended, what comes in is held"


@pytest.fixture(autouse=True, scope="module")
def own_files() -> Iterator[None]:
    """Whatever is written here is this user's alone, whatever the shell that runs the tests has set."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A private desk with alice open."""
    with private_desk() as desk:
        desk.open("alice")
        yield desk


def write(path: Path, content: object, *, mode: int = 0o600, uid: int | None = None) -> None:
    """Writes a settings file as an editor does: beside it, then over it; as JSON where it is no text."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name("edited")
    beside.write_text(content if isinstance(content, str) else json.dumps(content))
    beside.chmod(mode)
    if uid is not None:
        os.chown(beside, uid, uid)
    if path.is_dir():
        path.rmdir()
    beside.replace(path)


@dataclass
class Receiver:
    """A session that runs in the background, and its user's settings file, which is missing at first.

    Attributes:
        opened, sender: what `open` said of it, and of alice.
        heard: what alice was told of its messages, in order.
    """

    desk: Desk
    name: str
    file: Path
    sender: dict[str, Any]
    opened: dict[str, Any] = field(default_factory=dict[str, Any])
    heard: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def ok(self, *words: str) -> dict[str, Any]:
        """What a command says of it."""
        return looked(self.desk, self.opened, *words)

    def status(self) -> dict[str, Any]:
        """Its status."""
        return self.ok("status")

    def inbound(self) -> tuple[str | None, str]:
        """What applies, and who decided it."""
        said = self.status()["inbound"]
        return said["value"], said["scope"]

    def held(self) -> list[dict[str, Any]]:
        """What it holds, oldest first."""
        return list(self.ok("held")["held"])

    def waits(self) -> list[str]:
        """The texts in its inbox; nothing is taken."""
        return [one["text"] for one in self.ok("inbox")["messages"]]

    def take(self) -> list[str]:
        """Takes what waits."""
        return [one["text"] for one in self.ok("inbox", "--take")["messages"]]

    def send(self, text: str) -> str:
        """alice sends it something; that is acknowledged like anything else. Returns the id."""
        said = looked(self.desk, self.sender, "send", self.name, text)
        assert said["status"] == "queued"
        return str(said["msg_id"])

    def told(self, kind: str, msg_id: str) -> dict[str, Any]:
        """Waits until alice has a notice of this kind about a message."""

        def found() -> list[dict[str, Any]]:
            return [one for one in self.heard if (one["kind"], one["msg_id"]) == (kind, msg_id)]

        def come() -> bool:
            said = looked(self.desk, self.sender, "inbox", "--take")["notices"]
            self.heard.extend(one for one in said if one["about"] == self.name)
            return found() != []

        wait_until(come)
        return found()[0]

    def becomes(self, value: str | None, scope: str) -> None:
        """Waits until that applies."""
        wait_until(lambda: self.inbound() == (value, scope))

    def says(self, problem: str) -> None:
        """Waits until its status names a problem."""
        wait_until(lambda: problem in str(self.status()["problems"]))


def receiver(desk: Desk, name: str, *words: str, content: object = None, cwd: Path | None = None) -> Receiver:
    """Opens a receiver; `content`: what its user's file says from the start."""
    base = desk.folder / f"config of {name}"
    alice = next(iter(desk.opened.values()))
    one = Receiver(desk, name, base / "postroom/settings.json", alice)
    if content is not None:
        write(one.file, content)
    one.opened = desk.open(name, *words, environ={"XDG_CONFIG_HOME": str(base)}, cwd=cwd)
    return one


# ── what waits is judged again ───────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.36", "03.45", "03.52", "03.26", "03.11", "11.28")
def test_what_is_held_is_let_in_when_the_user_accepts(desk: Desk) -> None:
    """In order of arrival, marked as held; each sender that can be told is told, and the receiver's own loop."""
    bold = receiver(desk, "bold", *BYPASSING)
    first = bold.send("one")
    assert desk.ok("send", "bold", "two")["status"] == "queued"
    last = bold.send("three")
    assert [(one["text"], one["cause"]) for one in bold.held()] == [
        ("one", "mode-mismatch"),
        ("two", "no-mode-asserted"),
        ("three", "mode-mismatch"),
    ]
    write(bold.file, {"crossSessionInbound": "accept"})
    bold.told("delivered", last)
    assert [(one["kind"], one["msg_id"]) for one in bold.heard] == [
        ("held", first),
        ("held", last),
        ("delivered", first),
        ("delivered", last),
    ]
    assert (bold.held(), bold.inbound()) == ([], ("accept", "user"))
    taken = bold.ok("inbox", "--take")
    assert [(one["text"], one["held"]) for one in taken["messages"]] == [
        ("one", True),
        ("two", True),
        ("three", True),
    ]
    assert [(one["kind"], one["detail"]) for one in taken["notices"]] == [
        ("released", "3 held messages were let in: the settings have changed.")
    ]
    bold.send("four")
    assert (bold.take(), bold.held()) == (["four"], [])
    # Gone again, it lets nothing in any more.
    bold.file.unlink()
    bold.becomes(None, "default")
    bold.send("five")
    assert ([one["cause"] for one in bold.held()], bold.waits()) == (["mode-mismatch"], [])


@pytest.mark.rule("03.36", "03.44", "03.10", "03.54", "03.38", "10.30", "11.28")
def test_what_is_held_is_dropped_when_the_user_refuses(desk: Desk) -> None:
    """Everybody is told `denied`; what comes from then on is acknowledged as ever and never heard of again."""
    bob = receiver(desk, "bob", content={"crossSessionInbound": "hold"})
    ids = [bob.send(text) for text in ("one", "two", "three")]
    assert [(one["msg_id"], one["cause"], one["expires_at"]) for one in bob.held()] == [
        (msg_id, "explicit-setting", None) for msg_id in ids
    ]
    write(bob.file, {"crossSessionInbound": "refuse"})
    bob.told("denied", ids[-1])
    assert [(one["kind"], one["msg_id"]) for one in bob.heard] == [
        (kind, msg_id) for kind in ("held", "denied") for msg_id in ids
    ]
    status = bob.status()
    assert (status["held"], status["queued"], status["off"]) == (0, 0, ["receive"])
    refused = bob.send("four")
    assert (bob.held(), bob.waits()) == ([], [])
    assert bob.ok("explain", refused)["outcome"] == "refused"
    # Where its user wants that told it is told, of what comes from then on.
    write(bob.file, {"crossSessionInbound": "refuse", "refusalNotice": "tell"})
    wait_until(lambda: bob.told("refused", bob.send(f"told {len(bob.heard)}"))["kind"] == "refused")
    # And what was refused or denied stays so when everything is let in.
    write(bob.file, {"crossSessionInbound": "accept"})
    bob.becomes("accept", "user")
    bob.send("last")
    assert (bob.take(), bob.held()) == (["last"], [])
    assert desk.ok("--session", "bob", "close")["expired"] == 0
    assert refused not in {one["msg_id"] for one in bob.heard}


@pytest.mark.rule("03.36", "03.38", "03.31")
def test_other_settings_apply_at_once_too(desk: Desk) -> None:
    """The deadlines of what is held, receipts for what is read, and how much is taken in."""
    bob = receiver(desk, "bert", *BYPASSING)
    sent = bob.send("one")

    def ends() -> datetime | None:
        [held] = bob.held()
        return None if held["expires_at"] is None else datetime.fromisoformat(held["expires_at"])

    before = ends()
    assert before is not None
    write(bob.file, {"dialogExpiry": "never"})
    wait_until(lambda: ends() is None)
    write(bob.file, {"dialogExpiry": "10m"})
    wait_until(lambda: ends() is not None)
    after = ends()
    assert after is not None
    assert after - before >= timedelta(minutes=5)
    write(
        bob.file,
        {
            "crossSessionInbound": "accept",
            "readReceipts": True,
            "limits": {"maxUnread": 2, "bucketCapacity": 9000},
        },
    )
    bob.told("delivered", sent)
    assert bob.take() == ["one"]
    bob.told("read", sent)
    said = [problem.partition(": ")[2] for problem in bob.status()["problems"]]
    assert said == [
        "limits.maxUnread is 2, outside 10 to 5,000; 10 counts.",
        "limits.bucketCapacity is 9,000, outside 5 to 500; 500 counts.",
    ]
    with Raw(bob.opened["socket"]) as raw:
        answers = [raw.post(f"number {number}")["status"] for number in range(11)]
        assert answers == ["queued"] * 10 + ["inbox_full"]
        assert len(bob.take()) == 10
        limits = {"bucketCapacity": 5, "refillPerSecond": 0.05}
        write(bob.file, {"crossSessionInbound": "accept", "limits": limits})
        wait_until(lambda: bob.status()["problems"] == [])
        answers = [raw.post(f"once more {number}").get("reason") for number in range(8)]
    assert answers[-2:] == ["rate-limited", "rate-limited"]


def back(bob: Receiver) -> None:
    """Brings a session back that was killed, in the same mode and under the same files."""
    environ = {"XDG_CONFIG_HOME": str(bob.file.parent.parent)}
    bob.opened = bob.desk.open(None, "--resume", bob.opened["session_id"], *BYPASSING, environ=environ)


@pytest.mark.rule("03.47", "03.36", "03.44", "03.45")
@pytest.mark.parametrize(("value", "kind"), [("accept", "delivered"), ("refuse", "denied")])
def test_what_was_edited_while_nobody_ran_applies_to_what_is_held_since_before(
    desk: Desk, value: str, kind: str
) -> None:
    bob = receiver(desk, f"killed-{value}", *BYPASSING)
    sent = bob.send("one")
    desk.kill(bob.opened)
    write(bob.file, {"crossSessionInbound": value})
    back(bob)
    bob.told(kind, sent)
    assert (bob.held(), bob.take()) == ([], ["one"] if value == "accept" else [])


@pytest.mark.rule("03.47", "03.35", "03.36", "03.38")
@pytest.mark.parametrize(
    ("how", "content"), [("hold", '{"crossSessionInbound": "hold"}'), ("broken", "{")], ids=["hold", "broken"]
)
def test_what_a_setting_held_that_was_removed_while_nobody_ran_is_judged_by_the_classes(
    desk: Desk, how: str, content: str
) -> None:
    """It does not wait for ever for a setting that is gone, nor for the mending of a file that was mended."""
    bob = receiver(desk, f"killed-under-{how}", *BYPASSING)
    write(bob.file, content)
    bob.becomes("hold", "user")
    bob.send("one")
    assert [one["expires_at"] for one in bob.held()] == [None]
    desk.kill(bob.opened)
    write(bob.file, {})
    back(bob)
    [held] = bob.held()
    assert (held["cause"], held["expires_at"] is not None) == ("mode-mismatch", True)
    assert bob.ok("explain", held["msg_id"])["cause"] == "mode-mismatch"


# ── files that break, and values that are wrong ──────────────────────────────────────────────────

BREAKS: dict[str, str] = {
    # how the file is broken; what its name stands beside in `status`
    "half a file": "it is no JSON",
    "a list": "it holds a list and no object of settings",
    "more than a mebibyte": "it is larger than 1,048,576 bytes",
    "others may write": "others may write to it (mode 0666)",
    "a folder": "it is a folder",
    "another user's": f"it belongs to uid {OTHER_UID}",
}


def break_it(path: Path, how: str) -> None:
    """Breaks a file in one of these ways; what it would say, if it were heeded, is `refuse`."""
    refuse = '{"crossSessionInbound": "refuse"}'
    texts = {
        "half a file": refuse[:-2],
        "a list": f"[{refuse}]",
        "more than a mebibyte": refuse + " " * 1_048_576,
    }
    if how == "a folder":
        path.unlink(missing_ok=True)
        path.mkdir(parents=True)
        return
    write(
        path,
        texts.get(how, refuse),
        mode=0o666 if how == "others may write" else 0o600,
        uid=OTHER_UID if how == "another user's" else None,
    )


@pytest.fixture(scope="module")
def kept(desk: Desk) -> Receiver:
    """A session that never asks, whose user accepts all the same."""
    return receiver(desk, "kept", *BYPASSING, content={"crossSessionInbound": "accept"})


@pytest.fixture
def accepting(kept: Receiver) -> Receiver:
    """The same once more, whatever a test has left of it."""
    write(kept.file, {"crossSessionInbound": "accept"})
    wait_until(lambda: kept.status()["problems"] == [])
    return kept


HOW = [pytest.param(how, marks=needs_root if how == "another user's" else ()) for how in BREAKS]


@pytest.mark.rule("03.35", "03.34", "03.36", "11.28")
@pytest.mark.parametrize("how", HOW)
def test_a_file_that_breaks_is_named_and_what_it_said_goes_on(
    desk: Desk, accepting: Receiver, how: str
) -> None:
    bob = accepting
    break_it(bob.file, how)
    bob.says(f"{bob.file}: {BREAKS[how]}")
    [problem] = bob.status()["problems"]
    assert problem.endswith(f"; {KEPT}.")
    assert bob.inbound() == ("accept", "user")
    bob.send(how)
    assert (bob.take(), bob.held()) == ([how], [])
    write(bob.file, {"crossSessionInbound": "accept"})
    wait_until(lambda: bob.status()["problems"] == [])


@pytest.mark.rule("03.35", "03.11", "03.18", "03.36", "03.45", "10.27")
@pytest.mark.parametrize("how", ["half a file", "others may write"])
def test_a_session_that_starts_on_a_broken_file_holds_until_it_is_mended(desk: Desk, how: str) -> None:
    """Everything, also what the classes would let in; without a deadline, and its sender hears why."""
    file = desk.folder / f"config of start-{how.replace(' ', '-')}/postroom/settings.json"
    break_it(file, how)
    bob = receiver(desk, f"start-{how.replace(' ', '-')}")
    assert bob.opened["inbound"] == {"value": "hold", "scope": "user"}
    [problem] = bob.opened["problems"]
    assert problem.startswith(f"{bob.file}: {BREAKS[how]}")
    assert problem.endswith(f"; {HELD_UNTIL}.")
    sent = bob.send("one")
    [held] = bob.held()
    assert (held["cause"], held["expires_at"]) == ("invalid-setting", None)
    assert "until it is mended everything is held" in bob.told("held", sent)["detail"]
    said = bob.ok("explain", sent)
    assert (said["rung"], said["scope"], said["cause"]) == ("setting", "user", "invalid-setting")
    # Still broken, in another way: it holds on.
    write(bob.file, "[]")
    bob.says("it holds a list")
    assert (bob.inbound(), len(bob.held())) == (("hold", "user"), 1)
    write(bob.file, {})
    bob.told("delivered", sent)
    assert (bob.inbound(), bob.status()["problems"], bob.take()) == ((None, "default"), [], ["one"])


@pytest.mark.rule("03.34", "03.36")
def test_the_users_own_file_may_be_a_symlink_and_is_watched_behind_it(desk: Desk) -> None:
    """What it leads to is edited, and the link is turned to another file."""
    one, other = desk.folder / "dotfiles/one.json", desk.folder / "dotfiles/other.json"
    write(one, {"crossSessionInbound": "accept"})
    write(other, {"crossSessionInbound": "hold"})
    file = desk.folder / "config of linked/postroom/settings.json"
    file.parent.mkdir(parents=True)
    file.symlink_to(one)
    bob = receiver(desk, "linked")
    assert (bob.inbound(), bob.status()["problems"]) == (("accept", "user"), [])
    write(one, {"crossSessionInbound": "refuse"})
    bob.becomes("refuse", "user")
    link = file.with_name("link")
    link.symlink_to(other)
    link.replace(file)
    bob.becomes("hold", "user")
    one.chmod(0o666)  # nobody heeds it any more
    other.chmod(0o666)
    bob.says("others may write to it (mode 0666)")
    assert len(bob.status()["problems"]) == 1


@pytest.mark.rule("03.11", "03.35", "03.36", "10.27", "03.18")
@pytest.mark.parametrize("value", ["acept", None, ["accept"]])
def test_a_value_that_is_none_holds_and_is_shown(desk: Desk, accepting: Receiver, value: object) -> None:
    """The file can be read, so nothing of what it said before stays in force."""
    bob = accepting
    write(bob.file, {"crossSessionInbound": value})
    bob.becomes("hold", "user")
    [problem] = bob.status()["problems"]
    assert problem.startswith(f"{bob.file}: crossSessionInbound is ")
    assert problem.endswith(", which is none of accept, hold, refuse; it counts as hold.")
    sent = bob.send(f"while it says {value}")
    [held] = bob.held()
    assert (held["cause"], held["expires_at"]) == ("invalid-setting", None)
    assert problem in bob.desk.run("--session", bob.name, "status").out
    write(bob.file, {"crossSessionInbound": "accept"})
    bob.told("delivered", sent)
    assert (bob.take(), bob.status()["problems"]) == ([f"while it says {value}"], [])


@pytest.mark.rule("03.35", "03.36")
def test_unknown_keys_are_named_with_the_nearest_known_one(desk: Desk, accepting: Receiver) -> None:
    """Once each, and what stands beside them counts; so does a key of which nothing is built yet."""
    bob = accepting
    write(
        bob.file,
        {
            "crossSessionInbound": "accept",
            "crossSessionInbond": "refuse",
            "dialogueExpiry": "60s",
            "limits": {"maxUnred": 10},
            "nats": {"url": "nats://secret@host"},
        },
    )
    bob.says("no known key")
    said = [problem.removeprefix(f"{bob.file}: ") for problem in bob.status()["problems"]]
    assert said[0] == "nats is read, but what it is for is not built in this version."
    for problem, key, nearest in zip(
        said[1:],
        ("crossSessionInbond", "dialogueExpiry", "limits.maxUnred"),
        ("crossSessionInbound", "dialogExpiry", "maxUnread"),
        strict=True,
    ):
        assert problem.startswith(f'"{key}" is no known key; the nearest is ')
        assert nearest in problem.partition("nearest is ")[2]
    assert bob.inbound() == ("accept", "user")


@pytest.mark.rule("03.29", "03.27", "03.28", "03.32", "03.35", "03.36")
def test_a_project_makes_it_stricter_and_an_accept_there_does_nothing(desk: Desk) -> None:
    root = desk.folder / "project"
    (root / ".git").mkdir(parents=True)
    (root / "src").mkdir()
    project, local = root / ".postroom/settings.json", root / ".postroom/settings.local.json"
    write(project, {"crossSessionInbound": "accept", "dialogExpiry": "never"})
    bob = receiver(desk, "inside", *BYPASSING, cwd=root / "src")
    assert bob.inbound() == (None, "default")
    accept, expiry = (one for one in bob.status()["problems"] if one.startswith(f"{project}: "))
    assert accept.startswith(f'{project}: crossSessionInbound "accept" does nothing in a project\'s file')
    assert "set it in your user settings" in accept
    assert expiry.startswith(f"{project}: dialogExpiry does nothing in a project's file")
    bob.send("one")
    [held] = bob.held()
    assert (held["cause"], held["expires_at"] is not None) == ("mode-mismatch", True)
    write(bob.file, {"crossSessionInbound": "accept"})
    wait_until(lambda: bob.take() == ["one"])
    # The user accepts; the project holds, and what lies beside it, which is not checked in, refuses.
    write(project, {"crossSessionInbound": "hold"})
    bob.becomes("hold", "project")
    sent = bob.send("two")
    assert [one["cause"] for one in bob.held()] == ["repo-setting"]
    write(local, {"crossSessionInbound": "refuse"})
    bob.told("denied", sent)
    assert bob.inbound() == ("refuse", "local")
    # A file of the project that breaks goes on saying what it said.
    write(local, "{")
    bob.says(f"{local}: it is no JSON")
    assert bob.inbound() == ("refuse", "local")
    local.unlink()
    bob.becomes("hold", "project")


# ── tools that are denied ────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.33", "01.21", "01.33", "10.30", "03.36")
@pytest.mark.parametrize("spelling", ["SendMessage", "send_message"])
def test_a_denied_tool_stops_send(desk: Desk, spelling: str) -> None:
    """The person's own command line too; what comes in still comes. Refusing as well is the full shutdown."""
    bob = receiver(desk, f"denied-{spelling}")
    assert bob.status()["off"] == []
    desk.send(bob.name, "alice", "before")
    write(bob.file, {"permissions": {"deny": ["ListAgents", spelling]}})
    wait_until(lambda: bob.status()["off"] == ["send"])
    for words in (("alice", "now"), ("alice", "--notify-when-idle"), ("nobody", "now")):
        error = desk.refused("--session", bob.name, "send", *words)
        assert error["code"] == "denied_by_settings"
        assert "SendMessage" in error["message"]
    bob.send("hello")
    assert bob.take() == ["hello"]
    assert "send: turned off by settings" in desk.run("--session", bob.name, "status").out
    write(bob.file, {"permissions": {"deny": [spelling]}, "crossSessionInbound": "refuse"})
    wait_until(lambda: bob.status()["off"] == ["send", "receive"])
    write(bob.file, {"permissions": {"deny": ["ListAgents"]}})
    wait_until(lambda: bob.status()["off"] == [])
    desk.send(bob.name, "alice", "after")
    texts = [one["text"] for one in desk.take("alice") if one["from"]["name"] == bob.name]
    assert texts == ["before", "after"]


@pytest.mark.rule("01.21", "03.33", "10.38")
@pytest.mark.parametrize(("where", "spelling"), [("user", "SendMessage"), ("project", "send_message")])
def test_a_denied_tool_stops_send_without_a_session(desk: Desk, where: str, spelling: str) -> None:
    """Whether or not a session would be opened for the answer; nothing is left of it."""
    base = desk.folder / f"outside-{where}-{spelling}"
    project = base / "work"
    project.mkdir(parents=True)
    file = {"user": base / "postroom/settings.json", "project": project / ".postroom/settings.local.json"}
    options: dict[str, Any] = {"environ": {"XDG_CONFIG_HOME": str(base)}, "cwd": project}
    assert desk.ok("send", "alice", f"allowed {where} {spelling}", **options)["status"] == "queued"
    write(file[where], {"permissions": {"deny": [spelling]}})
    for more in ((), ("--wait-reply", "0")):
        error = desk.refused("send", "alice", "forbidden", *more, **options)
        assert error["code"] == "denied_by_settings"
    assert "forbidden" not in str(desk.ok("--session", "alice", "inbox")["messages"])


@pytest.mark.rule("10.38")
def test_who_sends_from_a_folder_that_is_gone_sends_all_the_same(desk: Desk) -> None:
    """No project is looked for there, and the user's own file still counts."""
    base = desk.folder / "gone"
    environ = {**desk.environ, "XDG_CONFIG_HOME": str(base)}
    script = 'mkdir "$1"; cd "$1"; rmdir "$1"; exec "$2" send alice "$3"'
    words = ("sh", "-ec", script, "sh", str(desk.folder / "removed"), COMMAND, "from nowhere")
    for content, code in (({}, 0), ({"permissions": {"deny": ["SendMessage"]}}, 1)):
        write(base / "postroom/settings.json", content)
        done = subprocess.run(words, env=environ, capture_output=True, timeout=SECONDS, check=False)
        assert done.returncode == code, done
    assert done.stderr.startswith(b"denied_by_settings\n")


# ── what the command line gives ──────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.25", "03.36", "03.29")
def test_a_file_that_the_command_line_names_is_watched(desk: Desk) -> None:
    """What it says beats the user's own; once the session runs, a mistake in it ends nothing."""
    given = desk.folder / "given.json"
    write(given, {"crossSessionInbound": "hold"})
    bob = receiver(desk, "flagged", "--settings", "given.json", content={"crossSessionInbound": "refuse"})
    assert bob.opened["inbound"] == {"value": "hold", "scope": "flag"}
    sent = bob.send("one")
    write(given, {"crossSessionInbound": "maybe"})
    bob.says("which is none of accept, hold, refuse")
    assert (bob.inbound(), [one["cause"] for one in bob.held()]) == (("hold", "flag"), ["invalid-setting"])
    write(given, {"crossSessionInbound": "accept"})
    bob.told("delivered", sent)
    assert bob.take() == ["one"]
