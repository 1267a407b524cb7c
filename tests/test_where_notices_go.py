"""Where notices go: to the process that sent the message, at the address that it gave, and nowhere else (05.24, 03.18).

The sessions run in processes of their own, and the test is the stranger that writes to them: a neighbour with a socket of
its own at best. It watches every place that somebody might be told at. What is forged is in `test_forged_notices`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.desk import SECONDS, Desk, wait_until
from tests.strangers import OTHER_UID, Raw, frame, needs_root, private_desk

HOLDS = '{"crossSessionInbound": "hold"}'
CLOCKED = Path(__file__).parent / "parties/clocked.py"


class Listening:
    """A socket of this process at which nobody accepts, so that whoever connected is still there to be seen."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.bind(str(path))
        self.sock.listen()
        self.sock.settimeout(SECONDS)

    def heard(self) -> list[bytes]:
        """What each of those who have connected so far has to say; it is listened to until they end."""
        said: list[bytes] = []
        self.sock.setblocking(False)
        while True:
            try:
                line, _ = self.sock.accept()
            except BlockingIOError:
                self.sock.settimeout(SECONDS)
                return said
            said.append(self.listen(line))

    def next(self) -> dict[str, Any]:
        """What the next one who connects has to say, one frame."""
        line, _ = self.sock.accept()
        return json.loads(self.listen(line))

    def listen(self, line: socket.socket) -> bytes:
        """Reads until the other end has finished, then closes as a neighbour does."""
        line.settimeout(SECONDS)
        data = b""
        with line:
            while more := line.recv(65536):
                data += more
        return data


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A desk with carol, who takes what comes, and bob, who holds it and owes each sender a word about that."""
    with private_desk() as desk:
        desk.open("carol")
        desk.open("bob", "--settings", HOLDS)
        yield desk


@pytest.fixture
def place(desk: Desk) -> Iterator[Path]:
    """A private folder, which is as fit for sockets as ours are."""
    place = desk.folder / uuid.uuid4().hex[:8]
    place.mkdir(mode=0o700)
    yield place
    place.chmod(0o700)


def opened(desk: Desk, name: str) -> dict[str, Any]:
    """What `open` said of a session."""
    return next(one for one in desk.opened.values() if one["name"] == name)


def steps(desk: Desk, session: str, msg_id: str) -> dict[str, str]:
    """A message's states in one session's journal, with what is said of each."""
    found = desk.ok("--session", session, "trace", msg_id)["steps"]
    return {step["state"]: step["detail"] for step in found}


Made = tuple[str, str, str, list[Listening]]
"""A path; why nobody is answered there; why nobody is told anything there; who would see it if somebody were."""


def a_symlink(desk: Desk, place: Path) -> Made:
    """It leads to the sender's own socket."""
    real = Listening(place / "real.sock")
    (place / "link.sock").symlink_to("real.sock")
    return f"{place}/link.sock", "it is a symbolic link", "it is no socket", [real]


def in_a_linked_folder(desk: Desk, place: Path) -> Made:
    """The folder of the sender's own socket, by another name."""
    real = Listening(place / "real.sock")
    (place / "again").symlink_to(".")
    return f"{place}/again/real.sock", "its folder is unfit", "its folder is unfit", [real]


def in_an_open_folder(desk: Desk, place: Path) -> Made:
    """Others may look into it."""
    real = Listening(place / "real.sock")
    place.chmod(0o755)
    return f"{place}/real.sock", "its folder is unfit", "its folder is unfit", [real]


def another_users(desk: Desk, place: Path) -> Made:
    """By its owner; it listens here all the same."""
    real = Listening(place / "real.sock")
    os.chown(place / "real.sock", OTHER_UID, -1)
    return f"{place}/real.sock", "it is another user's socket", "it is another user's socket", [real]


def a_plain_file(desk: Desk, place: Path) -> Made:
    """Nobody can listen there."""
    (place / "file.sock").touch(mode=0o600)
    return f"{place}/file.sock", "it is no socket", "it is no socket", []


def nothing_at_all(desk: Desk, place: Path) -> Made:
    """The sender has not made it."""
    return f"{place}/none.sock", "there is nothing at that address", "nobody listens there", []


def another_sessions(desk: Desk, place: Path) -> Made:
    """A session's that did not send this."""
    other = desk.open()
    why = "another process is registered there than the one that sent the message"
    return other["socket"], why, "another process listens there", []


def ones_own_by_another_name(desk: Desk, place: Path) -> Made:
    """The receiver's, written otherwise than it does itself."""
    path = opened(desk, "bob")["socket"].replace("/run/", "//run/")
    return path, "no session is registered there", "another process listens there", []


UNSAFE: dict[str, Callable[[Desk, Path], Made]] = {
    "a symlink": a_symlink,
    "a symlink above it": in_a_linked_folder,
    "a folder that is open": in_an_open_folder,
    "another user's": another_users,
    "a plain file": a_plain_file,
    "nothing": nothing_at_all,
    "another session's": another_sessions,
    "one's own, by another name": ones_own_by_another_name,
}


@pytest.mark.rule("03.18", "05.24")
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[needs_root] if kind == "another user's" else []) for kind in UNSAFE]
)
def test_a_from_that_must_not_be_answered_is_taken_one_way(desk: Desk, place: Path, kind: str) -> None:
    """The message is judged as usual; answering it is refused, the journal says why; nothing ever goes there."""
    before = set(desk.opened)
    path, unanswerable, untold, listening = UNSAFE[kind](desk, place)
    with contextlib.ExitStack() as stack:
        for one in listening:
            stack.callback(one.sock.close)
        taken_one_way(desk, f"uds:{path}", f"by {kind}", unanswerable)
        held_one_way(desk, f"uds:{path}", f"by {kind}", unanswerable, untold)
        assert [one.heard() for one in listening] == [[]] * len(listening)
    for other in set(desk.opened) - before:  # whoever was spoken for has heard nothing
        status = desk.ok("--session", other, "status")
        assert (status["counts"], status["queued"]) == ({}, 0)
        assert desk.ok("--session", other, "inbox", "--take")["notices"] == []
        desk.ok("--session", other, "close")


def taken_one_way(desk: Desk, address: str, text: str, unanswerable: str) -> None:
    """Writes to carol, who takes what comes, and tries to answer."""
    with Raw(opened(desk, "carol")["socket"]) as line:
        answer = line.post(text, **{"from": address})
        assert answer["status"] == "queued"
        line.say(frame(text, ack=False, **{"from": address}))  # a repeat, of which its sender would be told
        assert line.post(text, msg_id=answer["msg_id"], **{"from": address})["status"] == "queued"
    [got] = desk.take("carol")
    assert (got["text"], got["from"]["address"], got["from"]["verified"]) == (text, None, False)
    taken = steps(desk, "carol", answer["msg_id"])
    assert {"accepted", "consumed", "one-way"} <= set(taken)
    assert unanswerable in taken["one-way"]
    error = desk.refused("--session", "carol", "send", address, "an answer")
    assert (error["code"], unanswerable in error["message"]) == ("unsafe_target", True)


def held_one_way(desk: Desk, address: str, text: str, unanswerable: str, untold: str) -> None:
    """Writes to bob, who owes its sender a word about the hold, and waits until he has given that up."""
    with Raw(opened(desk, "bob")["socket"]) as line:
        msg_id = line.post(text, **{"from": address})["msg_id"]
    wait_until(lambda: "not-told" in steps(desk, "bob", msg_id))
    waits = steps(desk, "bob", msg_id)
    assert {"held", "one-way"} <= set(waits)
    assert unanswerable in waits["one-way"]
    assert untold in waits["not-told"]


@pytest.mark.rule("03.18")
def test_whom_somebody_else_has_spoken_for_is_answered_as_before(desk: Desk) -> None:
    """A stranger writes with alice's address; what alice herself then writes bears no doubt, and reaches her."""
    alice = desk.open("alice")
    with Raw(opened(desk, "carol")["socket"]) as line:
        forged = line.post("as alice", **{"from": alice["peer_address"]})["msg_id"]
    true = desk.send("alice", "carol", "it is me")["msg_id"]
    assert "one-way" in steps(desk, "carol", forged)
    assert "one-way" not in steps(desk, "carol", true)
    [_, got] = desk.take("carol")
    assert (got["from"]["name"], got["from"]["verified"]) == ("alice", True)
    for to in (got["from"]["address"], alice["peer_address"]):
        desk.send("carol", to, f"to you, {to}")
    assert len(desk.take("alice")) == 2
    desk.ok("--session", "alice", "close")


@pytest.mark.rule("03.7")
def test_an_echo_is_dropped_and_nobody_is_told(desk: Desk) -> None:
    """A frame with the receiver's own address goes no further, acknowledged or not."""
    bob = opened(desk, "bob")
    before = desk.ok("--session", "bob", "status")
    with Raw(bob["socket"]) as line:
        line.say(frame("quietly", ack=False, **{"from": bob["peer_address"]}))
        answer = line.post("aloud", **{"from": bob["peer_address"]})
    assert (answer["status"], answer["reason"]) == ("dropped", "self-echo")
    assert steps(desk, "bob", answer["msg_id"])["dropped"] == "self-echo"
    after = desk.ok("--session", "bob", "status")
    assert (after["held"], after["counts"]) == (before["held"], before["counts"])


# ── where something is told to ───────────────────────────────────────────────────────────────────


class Told:
    """dora, whose clock the test moves, and a neighbour that writes to her and is told at a socket of its own."""

    def __init__(self, desk: Desk, mine: Listening, address: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(CLOCKED), "dora"],
            env=desk.environ,
            cwd=desk.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.orders, self.answers = self.process.stdin, self.process.stdout
        self.dora = json.loads(self.answers.readline())
        self.line = Raw(self.dora["address"].removeprefix("uds:"))
        self.mine = mine
        self.address = address

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *error: object) -> None:
        self.line.sock.close()
        self.orders.close()
        self.answers.close()
        assert self.process.wait(SECONDS) == 0

    def move(self, seconds: float) -> None:
        """Moves dora's clock."""
        self.orders.write(f"{seconds}\n".encode())
        self.orders.flush()
        assert self.answers.readline() == b"moved\n"

    def say(self, text: str, count: int = 1) -> list[str]:
        """Says a text so many times, and asks for no acknowledgement; returns the ids."""
        frames = [frame(text, ack=None, **{"from": self.address}) for _ in range(count)]
        self.line.say(*frames)
        return [one["msg_id"] for one in frames]

    def ask(self, text: str) -> str:
        """Says a text and asks what came of it."""
        answer = self.line.post(text, **{"from": self.address})
        return answer.get("reason") or answer["status"]

    def told(self) -> tuple[str, list[str]]:
        """What the neighbour is told next: why, and of which messages."""
        word = self.mine.next()
        assert (word["type"], word["action"]) == ("control", "peer_message_status")
        assert (word["status"], word["from"]) == ("dropped", self.dora["address"])
        assert word["orig_msg_id"] == word["dropped_msg_ids"][0]
        return word["drop_reason"], word["dropped_msg_ids"]


@pytest.mark.rule("03.55", "05.24")
def test_a_neighbour_is_told_of_what_was_dropped_at_once_and_then_every_five_seconds(
    desk: Desk, place: Path
) -> None:
    """It has a socket and no record, and asks for no acknowledgement. Where it does ask, it is told there alone."""
    mine = Listening(place / "neighbour.sock")
    address = f"uds:{place}/neighbour.sock"
    with contextlib.closing(mine.sock), Told(desk, mine, address) as neighbour:
        [_, first, *others] = neighbour.say("hello", 6)
        assert neighbour.told() == ("duplicate", [first])
        assert neighbour.ask("another text") == "queued"
        assert neighbour.ask("another text") == "duplicate"
        neighbour.move(4.999)
        assert mine.heard() == []
        neighbour.move(0.001)
        assert neighbour.told() == ("duplicate", others)
        while (said := neighbour.ask(str(uuid.uuid4()))) == "queued":
            pass
        assert said == "rate-limited"
        too_many = [*neighbour.say("too many"), *neighbour.say("far too many")]
        neighbour.move(4.999)
        assert mine.heard() == []
        # A token has come back meanwhile: one more text passes, and comes once more.
        [_, again] = neighbour.say("one more", 2)
        neighbour.move(0.001)
        assert sorted([neighbour.told(), neighbour.told()]) == [
            ("duplicate", [again]),
            ("rate-limited", too_many),
        ]
        # What is still gathered at the end is told then.
        last = neighbour.say("one more", 3)
        assert neighbour.ask("a text behind it") in ("queued", "rate-limited")
        neighbour.orders.close()
        assert neighbour.told() == ("duplicate", last)
        assert mine.heard() == []


@pytest.mark.rule("05.24")
def test_what_is_read_and_who_is_renamed_is_told_to_the_process_that_wrote(desk: Desk) -> None:
    """And not to one that has come to its address since, which sees that somebody looks who is there, and no word."""
    reader = desk.open("reader", "--settings", '{"readReceipts": true}')
    writer, other = desk.open("writer"), desk.open("other")

    def hears(name: str) -> list[tuple[str, str | None, str | None]]:
        notices = desk.ok("--session", name, "inbox", "--take")["notices"]
        return [(notice["kind"], notice["msg_id"], notice["about"]) for notice in notices]

    told: list[tuple[str, str | None, str | None]] = []

    def until_told(*expected: tuple[str, str | None, str | None]) -> None:
        wait_until(lambda: told.extend(hears("writer")) or len(told) >= len(expected))
        assert told == list(expected)
        told.clear()

    first = desk.send("writer", "reader", "one")["msg_id"]
    assert hears("writer") == []
    assert [message["text"] for message in desk.take("reader")] == ["one"]
    until_told(("read", first, "reader"))
    desk.ok("--session", "reader", "rename", "lector")
    until_told(("renamed", None, "lector"))

    second = desk.send("writer", "lector", "two")["msg_id"]
    desk.kill(writer)
    del desk.opened[writer["session_id"]]
    os.unlink(writer["socket"])
    impostor = Listening(Path(writer["socket"]))
    with contextlib.closing(impostor.sock):
        assert [message["text"] for message in desk.take("lector")] == ["two"]
        wait_until(lambda: "not-told" in steps(desk, "lector", second))
        assert "another process listens there" in steps(desk, "lector", second)["not-told"]
        assert impostor.heard() == [b""]
        desk.ok("--session", "lector", "rename", "reader")
        wait_until(lambda: impostor.heard() == [b""])
    assert hears("other") == []
    for one in (reader, other):
        assert desk.ok("--session", one["session_id"], "status")["counts"] == {}
