"""Peers that do what no program of ours would, against a session that really runs: each costs its own connection.

Whatever was done to it, the session serves the next one, and `status` counts what it met.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.door import MAX_REQUEST
from tests.desk import COMMAND, ROOMY, Desk
from tests.strangers import Raw, as_line, control_path, enveloped, frame, private_desk

TEXT = "the column is tenant_id"
CONNECTIONS = 64
"""What a session keeps open at once (05.16)."""
MAX_LINE = 1_048_576
"""Characters of a line (05.14)."""


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A desk with bob, who is attacked, his friend alice, and carol, of whom he has never heard."""
    with private_desk() as desk:
        desk.settings(limits=ROOMY)
        for name in ("alice", "bob", "carol"):
            desk.open(name)
        yield desk


def session(desk: Desk, name: str) -> dict[str, Any]:
    """What `open` said of a session."""
    return next(one for one in desk.opened.values() if one["name"] == name)


class Bob:
    """The session that is attacked, as the attacker sees it, and what its person sees."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.document = session(desk, "bob")
        self.before = self.counts()

    def line(self) -> Raw:
        """A connection to the inbox."""
        return Raw(self.document["socket"])

    def door(self) -> Raw:
        """A connection to the control socket."""
        return Raw(control_path(self.document))

    def counts(self) -> dict[str, int]:
        """What `status` has counted so far."""
        return dict(self.desk.ok("--session", "bob", "status")["counts"])

    def counted(self) -> dict[str, int]:
        """What `status` has counted since the test began."""
        now = self.counts()
        return {
            word: now[word] - self.before.get(word, 0)
            for word in now
            if now[word] != self.before.get(word, 0)
        }

    def take(self) -> list[dict[str, Any]]:
        """What its person is handed."""
        return self.desk.take("bob")

    def texts(self) -> list[str]:
        """The texts of it."""
        return [message["text"] for message in self.take()]


@pytest.fixture
def bob(desk: Desk) -> Iterator[Bob]:
    """Bob; afterwards he still serves: raw peers and sessions alike."""
    bob = Bob(desk)
    yield bob
    with bob.line() as line:
        assert line.post("a bystander")["status"] == "queued"
    desk.send("alice", "bob", "a friend")
    assert bob.texts()[-2:] == ["a bystander", "a friend"]
    assert desk.ok("--session", "bob", "status")["name"] == "bob"


# ── what is no frame ─────────────────────────────────────────────────────────────────────────────

LINES: dict[str, tuple[bytes | dict[str, Any], str]] = {
    "not UTF-8": (b'{"type":"user","message":{"content":"\xff\xfe"}}', "bad-frame"),
    "not JSON": (b"GET / HTTP/1.1", "bad-frame"),
    "half of JSON": (b'{"type":"user","message":{"con', "bad-frame"),
    "two objects": (b"{}{}", "bad-frame"),
    "a list": (b"[1,2,3]", "bad-frame"),
    "a number": (b"1e999999", "bad-frame"),
    "null": (b"null", "bad-frame"),
    "a byte order mark": (b"\xef\xbb\xbf" + as_line(frame(TEXT)).strip(), "bad-frame"),
    "a NUL": (b"\x00", "bad-frame"),
    "nested deep in a list": (b"[" * 100_000, "bad-frame"),
    "nested deep in an object": (b'{"type":"user","message":' * 20_000, "bad-frame"),
    "nested deep in a field that is skipped": (
        b'{"type":"user","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        "bad-frame",
    ),
    "an empty object": ({}, "bad-frame"),
    "a type that is no text": ({"type": 1}, "bad-frame"),
    "no message": ({"type": "user", "msg_id": "m1"}, "bad-frame"),
    "a message that is a text": (frame(TEXT, message="hello"), "bad-frame"),
    "a message that is a list": (frame(TEXT, message=[TEXT]), "bad-frame"),
    "a content that is an object": (
        frame(TEXT, message={"role": "user", "content": {"text": TEXT}}),
        "bad-frame",
    ),
    "a content that is blank": (frame(" \n\t"), "bad-frame"),
    "a message id that is a number": (frame(TEXT, msg_id=1), "bad-frame"),
    "a message id that is empty": (frame(TEXT, msg_id=""), "bad-frame"),
    "a message id of two words": (frame(TEXT, msg_id="m 1"), "bad-frame"),
    "a message id that is too long": (frame(TEXT, msg_id="m" * 1000), "bad-frame"),
    "a summary that is a list": (frame(TEXT, summary=["s"]), "bad-frame"),
    "an ack that is a text": (frame(TEXT, ack="yes"), "bad-frame"),
    "half of a surrogate pair": (
        b'{"type":"user","message":{"role":"user","content":"\\ud800"}}',
        "bad-frame",
    ),
    "a type of another program": ({"type": "permission_response", "approve": True}, "unknown-type"),
    "a newer version": (frame(TEXT, msgV=2), "too-new"),
    "an answer to nothing": ({"type": "ack", "msg_id": "m1", "status": "queued"}, "stray-answer"),
    "a control frame of no known action": ({"type": "control", "action": "reboot"}, "control-unknown"),
    "a request to be renamed": ({"type": "control", "action": "rename", "name": "mallory"}, "control-rename"),
    "a verb of the control socket": ({"argv": ["rename", "mallory"], "stdin": None, "cwd": "/"}, "bad-frame"),
    "a verb in a typed line": ({"type": "argv", "argv": ["close"]}, "unknown-type"),
}


@pytest.mark.rule("05.14", "05.17", "05.21", "05.24", "05.26", "11.14")
def test_a_line_that_is_no_frame_is_counted_and_the_connection_goes_on(bob: Bob) -> None:
    """Each kind of bad line, on one connection, with a good message behind each: only the good ones arrive."""
    expected: dict[str, int] = {}
    with bob.line() as line:
        for what, (bad, word) in LINES.items():
            line.say(bad)
            assert line.post(what)["status"] == "queued", what
            expected[word] = expected.get(word, 0) + 1
    assert bob.counted() == expected
    assert bob.texts() == list(LINES)
    assert bob.desk.ok("--session", "bob", "status")["name"] == "bob"


@pytest.mark.rule("05.17", "11.14")
def test_bad_lines_in_one_piece_with_good_ones(bob: Bob) -> None:
    """However lines are packed, each is judged by itself, and the answers come in order."""
    good = [frame(str(number), msg_id=f"packed-{number}") for number in range(3)]
    with bob.line() as line:
        line.say(good[0], b"junk", b"", b"\r", good[1], b'{"type":', good[2])
        assert [line.hear()["msg_id"] for _ in good] == [one["msg_id"] for one in good]
    assert bob.counted() == {"bad-frame": 2}
    assert bob.texts() == ["0", "1", "2"]


# ── what is too long ─────────────────────────────────────────────────────────────────────────────


def line_of(size: int, character: str) -> bytes:
    """A good frame whose line has so many characters, with its newline."""
    bare = frame("", msg_id=f"long-{size}-{ord(character)}")
    bare["message"]["content"] = ""
    text = character * (size - len(json.dumps(bare, ensure_ascii=False)))
    bare["message"]["content"] = text
    return json.dumps(bare, ensure_ascii=False).encode() + b"\n"


@pytest.mark.rule("05.14", "11.10", "11.14")
@pytest.mark.parametrize("character", ["a", "\U00020000"])
def test_a_line_of_the_limit_arrives_and_one_more_character_ends_the_connection(
    bob: Bob, character: str
) -> None:
    """The limit is in characters; a message that came before on the same connection stays."""
    with bob.line() as line:
        line.half(line_of(MAX_LINE, character))
        assert line.hear()["status"] == "queued"
    with bob.line() as line:
        assert line.post("before")["status"] == "queued"
        line.push(line_of(MAX_LINE + 1, character))
        assert line.rest() == b""
    assert bob.counted() == {"too-long": 1}
    texts = bob.texts()
    assert [len(text) > 1_000_000 for text in texts] == [True, False]
    assert set(texts[0]) == {character}


@pytest.mark.rule("05.14", "11.10", "11.14")
def test_a_line_that_never_ends_is_cut_off_early(bob: Bob) -> None:
    """Nobody buffers what can be no line: the peer is stopped little beyond the limit."""
    with bob.line() as line:
        sent = line.flood(b"x" * 65_536, 200 * MAX_LINE)
    assert sent < 4 * MAX_LINE
    with bob.line() as line:
        line.push(b"x" * (10 * MAX_LINE) + b"\n")
        assert line.rest() == b""
    assert bob.counted() == {"too-long": 2}


# ── floods ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.16", "05.19", "11.10", "11.14")
def test_300_connections_that_say_nothing_shut_nobody_out(bob: Bob) -> None:
    """The oldest idle ones make room; the newcomer is served while they are there."""
    lines = [bob.line() for _ in range(300)]
    try:
        with bob.line() as line:
            assert line.post("through the crowd")["status"] == "queued"
        bob.desk.send("alice", "bob", "and from alice")
        assert bob.counted()["too-many"] >= 300 - CONNECTIONS
    finally:
        for line in lines:
            line.sock.close()
    assert bob.texts() == ["through the crowd", "and from alice"]


@pytest.mark.rule("05.16", "11.14")
def test_connections_in_the_middle_of_a_line_are_not_idle(bob: Bob) -> None:
    """Where all are in the middle of a line, it is the newcomer that is closed; each of them still gets its turn."""
    frames = [as_line(frame(str(number))) for number in range(10)]
    lines = [bob.line() for _ in range(CONNECTIONS)]
    try:
        for number, line in enumerate(lines):
            line.half(frames[number][:20] if number < 10 else b'{"type":')
        for _ in range(2):
            bob.counts()  # a round trip: what was written before has been read
        with bob.line() as late:
            late.push(as_line(frame("too late")))
            assert late.rest() == b""
        for number, line in enumerate(lines[:10]):
            line.half(frames[number][20:])
            assert line.hear()["status"] == "queued"
    finally:
        for line in lines:
            line.sock.close()
    assert bob.counted()["too-many"] >= 1
    assert bob.texts() == [str(number) for number in range(10)]


@pytest.mark.rule("03.64", "05.22", "11.10")
def test_a_flood_of_messages_is_refused_at_the_cap_with_an_answer_to_each(bob: Bob) -> None:
    """300 messages in one piece: 50 are taken, in order, and every other is told that the inbox is full."""
    frames = [frame(str(number), msg_id=f"flood-{number}") for number in range(300)]
    with bob.line() as line:
        line.say(*frames)
        answers = [line.hear() for _ in frames]
    assert [answer["msg_id"] for answer in answers] == [one["msg_id"] for one in frames]
    assert [answer["status"] for answer in answers] == ["queued"] * 50 + ["inbox_full"] * 250
    assert bob.desk.refused("--session", "alice", "send", "bob", TEXT)["code"] == "inbox_full"
    assert bob.texts() == [str(number) for number in range(50)]


# ── abrupt ends ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("11.14", "05.30")
def test_half_a_line_and_then_nothing(bob: Bob) -> None:
    """What was cut short is no message; a whole object without its newline is one."""
    with bob.line() as line:
        line.half(as_line(frame("cut short"))[:-20])
    with bob.line() as line:
        line.half(as_line(frame("without a newline"))[:-1])
    bob.counts()
    assert bob.texts() == ["without a newline"]
    assert bob.counted() == {"bad-frame": 1}


@pytest.mark.rule("11.14", "11.4")
@pytest.mark.parametrize("whole", [False, True])
def test_a_peer_that_is_killed_in_the_middle(bob: Bob, whole: bool) -> None:
    """Killed in the middle of a line it has sent nothing; killed before it heard the answer it has sent one message."""
    data = as_line(frame(TEXT))
    pid = os.fork()
    if pid == 0:
        try:
            Raw(bob.document["socket"]).half(data if whole else data[: len(data) // 2])
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert bob.counted() == ({} if whole else {"bad-frame": 1})
    assert bob.texts() == ([TEXT] if whole else [])


# ── who somebody claims to be ────────────────────────────────────────────────────────────────────


@pytest.mark.rule("04.11", "04.15", "05.19", "05.9", "03.18", "11.7")
@pytest.mark.parametrize("envelope", [True, False])
def test_another_sessions_address_verifies_nobody(bob: Bob, envelope: bool) -> None:
    """The name is shown as claimed, there is nothing to answer to, and carol never hears of it."""
    address = session(bob.desk, "carol")["peer_address"]
    attributes = f' from="{address}" from-name="carol" from-mode="prompting"'
    message = enveloped(TEXT, attributes) if envelope else {"role": "user", "content": TEXT}
    with bob.line() as line:
        line.say({**frame(""), "message": message, "from": address})
        assert line.hear()["status"] == "queued"
    shown = bob.desk.run("--session", "bob", "inbox").out
    assert ("from somebody who claims to be carol," if envelope else "from somebody without a name,") in shown
    [got] = bob.take()
    assert got["text"] == TEXT
    assert got["from"] == {
        "address": None,
        "name": "carol" if envelope else None,
        "ref": None,
        "kind": "session",
        "verified": False,
        "class": "prompting" if envelope else None,
    }
    assert bob.desk.refused("--session", "bob", "send", address, "answer")["code"] == "unsafe_target"
    assert bob.desk.take("carol") == []


@pytest.mark.rule("03.18", "05.24", "05.30")
@pytest.mark.parametrize(
    "address",
    [
        "uds:/etc/passwd",
        "uds:relative.sock",
        "uds:/tmp/../tmp/x.sock",
        "http://127.0.0.1:80/",
        "uds:/" + "a" * 400,
        "",
    ],
)
def test_an_address_that_is_none_is_taken_one_way(bob: Bob, address: str) -> None:
    """The message is judged as usual and cannot be answered; the path is never opened."""
    with bob.line() as line:
        line.say({**frame(TEXT), "from": address})
        assert line.hear()["status"] == "queued"
    [got] = bob.take()
    assert (got["text"], got["from"]["address"], got["from"]["verified"]) == (TEXT, None, False)


@pytest.mark.rule("03.7", "05.22")
def test_what_is_meant_for_somebody_else_or_comes_from_oneself_is_dropped(bob: Bob) -> None:
    """Another session id, the session's own address, the id of a message of its own: each with its reason."""
    sent = bob.desk.send("bob", "alice", "mine")["msg_id"]
    with bob.line() as line:
        assert line.post(TEXT, session_id="11111111-2222-4333-8444-555555555555")["status"] == "misaddressed"
        for own in ({"from": bob.document["peer_address"]}, {"msg_id": sent}):
            answer = line.post(TEXT, **own)
            assert (answer["status"], answer["reason"]) == ("dropped", "self-echo")
        assert line.post(TEXT, session_id=bob.document["session_id"])["status"] == "queued"
    assert bob.texts() == [TEXT]
    assert [message["text"] for message in bob.desk.take("alice")] == ["mine"]


# ── tokens and the control socket ────────────────────────────────────────────────────────────────


def token(desk: Desk, name: str, kind: str) -> str:
    """A token of a session, as any program of this user can read it."""
    one = session(desk, name)
    registry = desk.folder / "state/sessions"
    if kind == "client":
        return (registry / one["session_id"] / "client.token").read_text().split("\n")[0]
    [key] = registry.glob(f"{one['pid']}.*.key")
    return json.loads(key.read_text())["peerToken"]


@pytest.mark.rule("05.20")
def test_a_wrong_token_on_the_inbox_is_counted_and_is_no_evidence(bob: Bob) -> None:
    """The connection goes on as one without; the right one is not counted."""
    wrong = ["0" * 32, "", token(bob.desk, "alice", "peer"), token(bob.desk, "bob", "client"), "\u20ac" * 9]
    for one in wrong:
        with bob.line() as line:
            line.say({"type": "auth", "token": one})
            assert line.post("came with a wrong token")["status"] == "queued"
    with bob.line() as line:
        line.say({"type": "auth", "token": token(bob.desk, "bob", "peer")})
        assert line.post("came with the right one")["status"] == "queued"
    assert bob.counted() == {"wrong-token": len(wrong)}
    got = bob.take()
    assert len(got) == len(wrong) + 1
    assert {message["from"]["verified"] for message in got} == {False}


VERBS = [
    ["send", "alice", TEXT],
    ["inbox", "--take"],
    ["wait", "--timeout", "0"],
    ["status"],
    ["rename", "mallory"],
    ["list"],
    ["trace", "m1"],
    ["log"],
    ["close", "--forget"],
]


def answered(door: Raw, first: Any, request: Any) -> tuple[int, str]:
    """What the control socket answers to a first line and a request: the exit code, and all that it has printed."""
    door.say(first, request)
    heard, said = door.rest(), b""
    while True:
        head, _, heard = heard.partition(b"\n")
        kind, code, out, err = head.split()
        size = int(out) + int(err)
        said, heard = said + heard[:size], heard[size:]
        if kind == b"done":
            assert heard == b""
            return int(code), said.decode()


@pytest.mark.rule("05.20", "05.26", "11.14")
@pytest.mark.parametrize("argv", VERBS, ids=[words[0] for words in VERBS])
def test_no_verb_of_the_control_socket_without_the_right_token(bob: Bob, argv: list[str]) -> None:
    """Whatever stands in the first line, a peer's token too: refused, and the connection is closed."""
    bob.desk.send("alice", "bob", TEXT)
    peers = token(bob.desk, "bob", "peer")
    firsts: list[Any] = [
        {"type": "auth", "token": "0" * 32},
        {"type": "auth", "token": peers},
        {"type": "auth", "token": token(bob.desk, "alice", "client")},
        {"type": "auth", "token": None},
        {"type": "auth"},
        {"token": token(bob.desk, "bob", "client")},
        ["auth", token(bob.desk, "bob", "client")],
        b"\xff",
        b"[" * 100_000,
    ]
    for first in firsts:
        with bob.door() as door:
            code, said = answered(door, first, {"argv": [*argv, "--json"], "stdin": None, "cwd": "/"})
        assert (code, "not_your_session" in said) == (1, True)
        assert TEXT not in said
        assert peers not in said
    assert bob.texts() == [TEXT]
    assert bob.desk.take("alice") == []


@pytest.mark.rule("05.26", "11.14")
def test_what_is_no_request_costs_its_own_connection(bob: Bob) -> None:
    """With the right token: junk, wrong shapes, unknown verbs and options are a usage error each."""
    auth = {"type": "auth", "token": token(bob.desk, "bob", "client")}
    requests: list[Any] = [
        b"junk",
        b"\xff",
        b"[" * 100_000,
        [],
        {},
        {"argv": []},
        {"argv": "status", "stdin": None},
        {"argv": [1, 2], "stdin": None, "cwd": "/"},
        {"argv": ["status", "--frobnicate"], "stdin": None, "cwd": "/"},
        {"argv": ["frobnicate"], "stdin": None, "cwd": "/"},
        {"argv": ["open", "--detach"], "stdin": None, "cwd": "/"},
        {"argv": ["demo"], "stdin": None, "cwd": "/"},
        {"argv": ["send", "alice", "-"], "stdin": {"text": TEXT}, "cwd": "/"},
        frame(TEXT),
    ]
    for request in requests:
        with bob.door() as door:
            code, said = answered(door, auth, request)
        assert (code, "usage" in said) == (2, True), (request, said)
    assert bob.texts() == []
    assert bob.desk.take("alice") == []


@pytest.mark.rule("05.14", "05.16", "05.26", "11.10", "11.14")
def test_floods_of_the_control_socket_are_counted_apart(bob: Bob) -> None:
    """A line without end and a crowd that says nothing: commands are answered all the while."""
    with bob.door() as door:
        assert door.flood(b"x" * 1_048_576, 4 * MAX_REQUEST) < 2 * MAX_REQUEST
    lines = [bob.door() for _ in range(100)]
    try:
        counted = bob.counted()
        assert counted["control-too-long"] == 1
        assert counted["control-too-many"] >= 100 - CONNECTIONS
    finally:
        for line in lines:
            line.sock.close()
    assert set(counted) == {"control-too-long", "control-too-many"}


@pytest.mark.rule("05.26", "11.3")
def test_a_process_of_another_session_is_refused_whatever_it_shows(bob: Bob, tmp_path: Path) -> None:
    """From under dave, bob's own client token opens nothing of his; what dave opened himself he may command."""
    bob.desk.send("alice", "bob", TEXT)
    script = tmp_path / "inside.sh"
    commands = [" ".join(f"'{word}'" for word in words) for words in VERBS if words[0] != "list"]
    script.write_text(
        "\n".join(
            [
                *(f"'{COMMAND}' --session bob {words} --json 2>&1; echo exit $?" for words in commands),
                f"'{COMMAND}' --session bob list --json >list.json; echo list $?",
                f"'{COMMAND}' list --json >own.json; echo own $?",
                f"'{COMMAND}' open --name dora --detach --json >dora.json; echo open $?",
                f"'{COMMAND}' --session dora status --json >status.json; echo status $?",
                f"'{COMMAND}' --session dora close; echo close $?",
            ]
        )
    )
    done = bob.desk.run("open", "--name", "dave", "--", "sh", str(script), cwd=tmp_path)
    said = done.out.split("\n")
    assert said.count("exit 1") == len(commands), done
    assert done.out.count('"not_your_session"') == len(commands)
    assert TEXT not in done.out
    assert {"list 0", "own 0", "open 0", "status 0", "close 0"} <= set(said), done
    names = {row["name"] for row in json.loads((tmp_path / "own.json").read_text())["rows"]}
    assert names == {"alice", "bob", "carol"}
    assert json.loads((tmp_path / "status.json").read_text())["name"] == "dora"
    assert bob.texts() == [TEXT]


@pytest.mark.rule("11.29", "05.20")
def test_no_secret_is_printed_or_stands_in_arguments(bob: Bob) -> None:
    """Tokens lie in files of mode 0600 and nowhere else: no output, no log, no command line shows one."""
    secrets = [token(bob.desk, "bob", kind) for kind in ("peer", "client")]
    with bob.line() as line:
        line.say({"type": "auth", "token": secrets[0]})
        line.post(TEXT)
    said = [
        bob.desk.run("--session", "bob", *words).out
        for words in (
            ("status",),
            ("status", "--json"),
            ("log",),
            ("list", "--json"),
            ("inbox", "--take", "--json"),
        )
    ]
    folder = bob.desk.folder / "state/sessions" / bob.document["session_id"]
    said.append((folder / "log").read_text())
    said.append(Path(f"/proc/{bob.document['pid']}/cmdline").read_text())
    assert [secret for secret in secrets if any(secret in text for text in said)] == []
