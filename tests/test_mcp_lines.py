"""The MCP server by single lines: what a client sends that is half, wrong, late or taken back, and what is lost then.

A message that a result carries was read once the whole result was written to the client's pipe; it waits again, marked,
where that did not happen (09.9, 11.1).
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.clients.asking import SCHEMA
from postroom.clients.mcp import MOST_SAID
from postroom.clients.stdio import MAX_CLIENT_LINE
from postroom.core.envelope import unframe
from tests.desk import COMMAND, ROOMY, SECONDS, Desk, running, wait_until
from tests.servers import CLIENT, Wire, command
from tests.strangers import private_desk

LONG = "long text " * 30_000
"""More than any pipe holds: a client that reads nothing never gets all of it."""


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A private place with bob open."""
    with private_desk() as desk:
        desk.settings(limits=ROOMY)
        desk.open("bob")
        yield desk


def states(desk: Desk, session: str, msg_id: str) -> list[str]:
    """The states of a message in a session's journal."""
    rows = desk.ok("--session", session, "log")["rows"]
    return [row["state"] for row in rows if row["msg_id"] == msg_id]


def post(desk: Desk, to: str, text: str) -> str:
    """Sends a long text from bob; returns its id."""
    return str(desk.ok("--session", "bob", "send", to, "-", "--summary", "long", stdin=text)["msg_id"])


def names(desk: Desk) -> set[str]:
    """Who lives."""
    return {row["name"] for row in desk.ok("list")["rows"]}


def texts(answer: str) -> list[str]:
    """The messages in a result."""
    return [block.text for block in unframe(answer)]


# ── versions and probes ──────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.10")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_every_version_with_a_handshake_is_spoken(desk: Desk, version: str) -> None:
    with Wire(desk) as wire:
        assert wire.greet(version)["protocolVersion"] == version
        assert len(wire.ask("tools/list")["result"]["tools"]) == 3
        assert wire.text("read_messages") == "Nothing waits."


@pytest.mark.rule("09.10")
def test_a_version_that_nobody_knows_is_answered_with_one_that_is(desk: Desk) -> None:
    with Wire(desk) as wire:
        assert wire.greet("2099-01-01")["protocolVersion"] == "2025-11-25"


ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.mark.rule("09.10")
def test_a_client_without_a_handshake_is_served(desk: Desk) -> None:
    """What the SDK offers beyond the handshake: each request says for itself which version it speaks."""
    with Wire(desk, "--name", "modern") as wire:
        listed = wire.ask("tools/list", {"_meta": ENVELOPE})["result"]
        assert len(listed["tools"]) == 3
        called = wire.ask(
            "tools/call", {"name": "list_agents", "arguments": {}, "_meta": {**ENVELOPE, "progressToken": 1}}
        )["result"]
        assert called["content"][0]["text"].startswith("This session is modern [")


@pytest.mark.rule("09.10")
@pytest.mark.parametrize("params", [{"_meta": ENVELOPE}, {}, None], ids=["enveloped", "bare", "without"])
def test_a_probe_is_answered_at_once_and_the_handshake_works_after_it(
    desk: Desk, params: dict[str, Any] | None
) -> None:
    with Wire(desk) as wire:
        assert wire.ask("server/discover", params)["error"]["code"] == -32601
        assert wire.greet()["serverInfo"]["name"] == "postroom"
        assert wire.text("read_messages") == "Nothing waits."


@pytest.mark.rule("09.10")
def test_what_the_server_does_not_know_is_said_at_once(desk: Desk) -> None:
    with Wire(desk) as wire:
        assert wire.ask("no/such/method")["error"]["code"] == -32601
        wire.greet()
        assert wire.ask("resources/list")["error"]["code"] == -32601
        assert wire.ask("prompts/list")["error"]["code"] == -32601
        unknown = wire.answer(wire.calling("no_such_tool"))["error"]
        assert (unknown["code"], unknown["message"]) == (-32602, "Unknown tool: no_such_tool")
        assert wire.ask("tools/call", {"arguments": {}})["error"]["code"] == -32602
        wire.notify("notifications/no-such-thing")
        assert wire.ask("ping")["result"] == {}


NO_MESSAGES: list[tuple[bytes, int | str | None, int]] = [
    (b"this is no JSON", None, -32700),
    (b'{"jsonrpc": "2.0", "id": 7, "method"', None, -32700),
    (b"\xff\xfe", None, -32700),
    (b"[" * 100_000, None, -32700),
    (b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}', 7, -32600),
    (b'{"id": "seven", "method": 12}', "seven", -32600),
    (b'{"jsonrpc": "2.0", "id": null, "method": 12}', None, -32600),
    (b'[{"jsonrpc": "2.0", "id": 7, "method": "ping"}]', None, -32600),
    (b'"text"', None, -32600),
    (b"x" * (MAX_CLIENT_LINE + 1), None, -32600),
]


@pytest.mark.rule("09.10")
def test_what_is_no_message_is_answered_and_costs_nothing_else(desk: Desk) -> None:
    with Wire(desk) as wire:
        for line, request_id, code in NO_MESSAGES:
            wire.write(line + b"\n")
            answer = wire.read()
            assert (answer["id"], answer["error"]["code"]) == (request_id, code), line[:80]
        wire.write(b"\n  \n")
        wire.greet()
        assert wire.ask("ping")["result"] == {}


def test_a_line_may_come_in_pieces_and_two_may_come_at_once(desk: Desk) -> None:
    with Wire(desk) as wire:
        wire.greet()
        for byte in b'{"jsonrpc":"2.0","id":901,"method":"pi':
            wire.write(bytes([byte]))
        wire.write(b'ng"}\n{"jsonrpc":"2.0","id":902,"method":"ping"}\n{"jsonrpc":"2.0","id"')
        assert wire.answer(901)["result"] == wire.answer(902)["result"] == {}
        wire.write(b':903,"method":"ping"}\n')
        assert wire.answer(903)["result"] == {}


def test_a_client_that_writes_much_and_reads_little_is_answered_all_of_it(desk: Desk) -> None:
    """More lines than wait at once, and more answers than its pipe holds."""
    with Wire(desk) as wire:
        wire.greet()
        ids = [wire.request("tools/list") for _ in range(150)]
        for each in ids:
            assert len(wire.answer(each)["result"]["tools"]) == 3


# ── read, or not ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.6", "09.9", "11.1")
def test_a_result_that_was_written_whole_is_read(desk: Desk) -> None:
    with Wire(desk, "--name", "reader") as wire:
        wire.greet()
        msg_id = post(desk, "reader", LONG)
        asked = wire.calling("read_messages")
        wait_until(lambda: states(desk, "reader", msg_id)[-1] == "leased")
        assert texts(wire.answer(asked)["result"]["content"][0]["text"]) == [LONG]
        wait_until(lambda: states(desk, "reader", msg_id)[-1] == "consumed")


@pytest.mark.rule("09.9", "11.1")
def test_a_result_that_the_client_did_not_take_waits_again(desk: Desk) -> None:
    with Wire(desk, "--name", "deaf") as wire:
        wire.greet()
        msg_id = post(desk, "deaf", LONG)
        wire.calling("read_messages")
        wait_until(lambda: states(desk, "deaf", msg_id)[-1] == "leased")
        wire.end()
    desk.open(None, "--resume", "deaf")
    (message,) = desk.take("deaf")
    assert (message["msg_id"], message["redelivered"], message["text"]) == (msg_id, True, LONG)


@pytest.mark.rule("11.1", "11.4")
def test_report_35_a_server_that_is_killed_loses_nothing_and_repeats_nothing(desk: Desk) -> None:
    with Wire(desk, "--name", "killed") as wire:
        wire.greet()
        read = desk.send("bob", "killed", "first")["msg_id"]
        assert texts(wire.text("read_messages")) == ["first"]
        wait_until(lambda: states(desk, "killed", read)[-1] == "consumed")
        kept = post(desk, "killed", LONG)
        wire.calling("read_messages")
        wait_until(lambda: states(desk, "killed", kept)[-1] == "leased")
        (row,) = [row for row in desk.ok("list")["rows"] if row["name"] == "killed"]
        desk.kill(row)
    desk.open(None, "--resume", "killed")
    (message,) = desk.take("killed")
    assert (message["msg_id"], message["redelivered"]) == (kept, True)


@pytest.mark.rule("09.9", "11.1")
def test_a_read_that_is_taken_back_takes_nothing(desk: Desk) -> None:
    with Wire(desk, "--name", "fickle") as wire:
        wire.greet()
        asked = wire.calling("read_messages", {"wait": 300}, meta={"progressToken": 1})
        wire.until(lambda message: message.get("method") == "notifications/progress")
        wire.notify("notifications/cancelled", {"requestId": asked})
        assert wire.ask("ping")["result"] == {}
        desk.send("bob", "fickle", "still here")
        (block,) = unframe(wire.text("list_agents"))
        assert block.text == "still here"
        assert "redelivered" not in dict(block.attributes)
        assert not [message for message in wire.passed if message.get("id") == asked]


@pytest.mark.rule("11.5")
def test_report_37_a_request_that_is_made_again_on_one_connection_sends_one_message(desk: Desk) -> None:
    with Wire(desk, "--name", "repeats") as wire:
        wire.greet()
        call = {"to": "bob", "message": "once", "summary": "s"}
        first = wire.call("send_message", call, number=50, meta={"progressToken": "p"})
        again = wire.call("send_message", call, number=50, meta={"progressToken": "p"})
        other = wire.call("send_message", call, number=51, meta={"progressToken": "p"})
        ids = [each["structuredContent"]["msg_id"] for each in (first, again, other)]
        assert ids[0] == ids[1] != ids[2]
        assert [message["msg_id"] for message in desk.take("bob")] == ids[1:]


def test_both_answers_to_one_id_settle_what_they_carry(desk: Desk) -> None:
    """A client that gives two requests one id, before either is answered."""
    with Wire(desk, "--name", "twins") as wire:
        wire.greet()
        sent = [post(desk, "twins", LONG + end) for end in "ab"]
        for _ in range(2):
            wire.calling("read_messages", number=70)
        got = [texts(wire.answer(70)["result"]["content"][0]["text"])[0][-1] for _ in range(2)]
        assert got == ["a", "b"]
        for msg_id in sent:
            wait_until(lambda msg_id=msg_id: states(desk, "twins", msg_id)[-1] == "consumed")


# ── the end ──────────────────────────────────────────────────────────────────────────────────────


def left_behind(desk: Desk, pid: int) -> list[str]:
    """What a session's process left that only a live one has: its record, its sockets, its keys."""
    folders = (Path(desk.environ["POSTROOM_HOME"]) / "sessions", desk.folder / "run" / "postroom")
    return [file.name for folder in folders for file in folder.glob(f"*{pid}*")]


def server_pid(desk: Desk, name: str) -> int:
    """The process of a session."""
    (row,) = [row for row in desk.ok("list")["rows"] if row["name"] == name]
    return int(row["pid"])


@pytest.mark.rule("09.9")
@pytest.mark.parametrize("waiting", [False, True], ids=["idle", "with a read that waits"])
def test_it_ends_when_the_client_closes_its_end(desk: Desk, waiting: bool) -> None:
    name = f"closing-{waiting}"
    with Wire(desk, "--name", name) as wire:
        wire.greet()
        if waiting:
            wire.calling("read_messages", {"wait": 600}, meta={"progressToken": 1})
            wire.until(lambda message: message.get("method") == "notifications/progress")
        pid = server_pid(desk, name)
        wire.close()
        assert wire.ended() == 0
        assert left_behind(desk, pid) == []
        assert name not in names(desk)


@pytest.mark.rule("05.29")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_and_leaves_nothing_behind(desk: Desk, number: signal.Signals) -> None:
    name = f"told-{number.name}"
    with Wire(desk, "--name", name) as wire:
        wire.greet()
        msg_id = post(desk, name, LONG)
        wire.calling("read_messages")
        wait_until(lambda: states(desk, name, msg_id)[-1] == "leased")
        pid = server_pid(desk, name)
        wire.process.send_signal(number)
        assert wire.ended() == 128 + number
        assert left_behind(desk, pid) == []
        assert "Traceback" not in wire.end()
    desk.open(None, "--resume", name)
    assert [message["msg_id"] for message in desk.take(name)] == [msg_id]


def test_it_ends_when_nobody_reads_what_it_writes(desk: Desk) -> None:
    with Wire(desk, "--name", "unread") as wire:
        wire.greet()
        pid = server_pid(desk, "unread")
        assert wire.process.stdout is not None
        wire.process.stdout.close()
        wire.request("ping")
        assert wire.ended() == 0
        assert not running(pid)


def test_what_was_asked_before_the_client_closed_its_end_is_answered(desk: Desk) -> None:
    """As in a pipe of a shell: the requests stand in a file, or come from a command that has ended."""
    lines = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        b'"capabilities":{},"clientInfo":{"name":"file","version":"1"}}}\n'
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"send_message","arguments":'
        b'{"to":"bob","message":"from a file","summary":"s"}}}'  # and no newline behind the last
    )
    file = desk.folder / "requests"
    file.write_bytes(lines)
    for piped in (False, True):
        with file.open("rb") as reads:
            done = subprocess.run(
                command("--name", f"file-{piped}"),
                stdin=None if piped else reads,
                input=lines if piped else None,
                capture_output=True,
                env=desk.environ,
                cwd=desk.folder,
                timeout=SECONDS,
                check=False,
            )
        assert done.returncode == 0, done
        answers = [line for line in done.stdout.splitlines() if line]
        assert len(answers) == 2
        assert b'"status":"queued"' in answers[1]
    assert len(desk.take("bob")) == 2


# ── the pipe is the protocol's alone ─────────────────────────────────────────────────────────────

STRAY = (
    "import os, subprocess, sys\n"
    "from postroom.clients.stdio import claimed\n"
    "reading, writing = claimed()\n"
    "print('a stray print', flush=True)\n"
    "subprocess.run(['echo', 'a stray child'])\n"
    "subprocess.run(['cat'])\n"
    "os.write(1, b'a stray write\\n')\n"
    "os.write(writing, os.read(reading, 100))\n"
)


@pytest.mark.parametrize("closed", [False, True], ids=["with standard error", "without"])
def test_a_stray_print_breaks_no_line_and_a_child_takes_none(closed: bool) -> None:
    argv = [sys.executable, "-c", ("import os\nos.close(2)\n" if closed else "") + STRAY]
    done = subprocess.run(argv, input=b"a line\n", capture_output=True, timeout=SECONDS, check=False)
    assert done.stdout == b"a line\n"
    assert done.returncode == 0
    if not closed:
        assert done.stderr == b"a stray print\na stray child\na stray write\n"


def test_standard_error_says_who_it_is_and_no_more(desk: Desk) -> None:
    with Wire(desk, "--name", "quiet") as wire:
        wire.greet()
        for _ in range(MOST_SAID + 5):
            wire.write(b"not JSON\n")
            assert wire.read()["error"]["code"] == -32700
        said = wire.end()
    (line,) = said.splitlines()
    assert line.startswith("postroom: this session is quiet [")


@pytest.mark.rule("10.8")
def test_what_a_bypassing_session_lacks_is_said_at_the_start(desk: Desk) -> None:
    with Wire(desk, "--name", "bold", "--mode", "bypassPermissions") as wire:
        wire.greet()
        assert wire.ask("ping")["result"] == {}
        said = wire.end()
    assert "crossSessionInbound" in said


@pytest.mark.rule("10.8")
def test_a_bypassing_session_whose_client_can_ask_lacks_nothing(desk: Desk) -> None:
    with Wire(desk, "--mode", "bypassPermissions", capabilities={"elicitation": {}}) as wire:
        wire.greet()
        assert wire.ask("ping")["result"] == {}
        assert "crossSessionInbound" not in wire.end()


def test_settings_that_cannot_be_used_end_it_before_it_begins(desk: Desk) -> None:
    with Wire(desk, "--settings", '{"crossSessionInbound": "perhaps"}') as wire:
        assert wire.ended() == 1
        assert wire.end().startswith("setting_invalid\n")


@pytest.mark.rule("10.17")
@pytest.mark.parametrize(("gone", "named"), [("mcp", "mcp"), ("anyio", "anyio"), ("mcp anyio", "mcp")])
def test_without_the_extra_it_says_what_to_install(desk: Desk, gone: str, named: str) -> None:
    """Which package, for which interpreter, and the command: whatever of it is missed first. The rest works without it."""
    missing = (
        "import sys\n"
        f"for name in {gone.split()}: sys.modules[name] = None\n"
        "from postroom.console import cli\n"
        "sys.exit(cli.main(['mcp']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", missing], env=desk.environ, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 1
    says = f"The MCP server cannot start: the package {named} is not installed for {sys.executable}."
    assert done.stderr.startswith(f"unsupported\npostroom: {says}")
    assert "install 'mcp<3,>=2.3' 'websockets<18,>=16.1'`" in done.stderr


# ── a question is taken back ─────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.9")
def test_a_question_is_taken_back_when_its_hold_has_ended(desk: Desk) -> None:
    with Wire(desk, "--name", "settled", capabilities={"elicitation": {"form": {}}}) as wire:
        wire.greet()
        assert wire.ask("ping")["result"] == {}
        desk.open("reckless", "--mode", "bypassPermissions")
        msg_id = desk.send("reckless", "settled", "let me in")["msg_id"]
        question = wire.until(lambda message: message.get("method") == "elicitation/create")
        assert question["params"]["requestedSchema"] == SCHEMA
        desk.settings(limits=ROOMY, crossSessionInbound="accept")
        taken = wire.until(lambda message: message.get("method") == "notifications/cancelled")
        assert taken["params"]["requestId"] == question["id"]
        desk.settings(limits=ROOMY)
        late = {"action": "accept", "content": {"decision": "drop it"}}
        wire.write({"jsonrpc": "2.0", "id": question["id"], "result": late})
        assert "let me in" in wire.text("read_messages", {"wait": SECONDS})
        wait_until(lambda: states(desk, "settled", msg_id)[-1] == "consumed")


@pytest.mark.rule("09.9")
@pytest.mark.parametrize(
    ("capabilities", "asks"),
    [({"elicitation": {}}, True), ({"elicitation": {"url": {}}}, False), ({}, False)],
    ids=["any", "pages alone", "none"],
)
def test_only_a_client_that_shows_forms_is_asked(
    desk: Desk, capabilities: dict[str, Any], asks: bool
) -> None:
    name = f"forms-{asks}-{len(capabilities)}"
    with Wire(desk, "--name", name, capabilities=capabilities) as wire:
        wire.greet()
        assert wire.ask("ping")["result"] == {}
        outcome = desk.ok("--session", name, "explain", "--mode", "bypassing")
        assert outcome["outcome"] == "held"
        desk.open(f"stranger-{name}", "--mode", "bypassPermissions")
        msg_id = desk.send(f"stranger-{name}", name, "let me in")["msg_id"]
        if asks:
            question = wire.until(lambda message: message.get("method") == "elicitation/create")
            error = {"code": -32600, "message": "not today"}
            wire.write({"jsonrpc": "2.0", "id": question["id"], "error": error})
        assert wire.ask("ping")["result"] == {}
        assert not [message for message in wire.passed if message.get("method") == "elicitation/create"]
        assert states(desk, name, msg_id)[-1] == "held"


# ── where the session lives elsewhere ────────────────────────────────────────────────────────────


def inside(name: str) -> list[str]:
    """A client inside `postroom open`, whose server attaches to that session."""
    return [COMMAND, "open", "--name", name, "--", sys.executable, "-c", CLIENT, COMMAND, "mcp"]


@pytest.mark.rule("09.9", "11.1")
def test_attached_a_result_that_was_not_taken_waits_again(desk: Desk) -> None:
    with Wire(desk, argv=inside("outer")) as wire:
        wire.greet()
        msg_id = post(desk, "outer", LONG)
        asked = wire.calling("read_messages")
        wait_until(lambda: states(desk, "outer", msg_id)[-1] == "leased")
        assert texts(wire.answer(asked)["result"]["content"][0]["text"]) == [LONG]
        wait_until(lambda: states(desk, "outer", msg_id)[-1] == "consumed")

        lost = post(desk, "outer", LONG + "!")
        wire.calling("read_messages")
        wait_until(lambda: states(desk, "outer", lost)[-1] == "leased")
        wire.end()
    desk.open(None, "--resume", "outer")
    (message,) = desk.take("outer")
    assert (message["msg_id"], message["redelivered"]) == (lost, True)


@pytest.mark.rule("09.9", "11.1")
def test_attached_a_read_that_is_taken_back_takes_nothing(desk: Desk) -> None:
    with Wire(desk, argv=inside("other")) as wire:
        wire.greet()
        asked = wire.calling("read_messages", {"wait": 300}, meta={"progressToken": 1})
        wire.until(lambda message: message.get("method") == "notifications/progress")
        wire.notify("notifications/cancelled", {"requestId": asked})
        assert wire.ask("ping")["result"] == {}
        msg_id = desk.send("bob", "other", "still here")["msg_id"]
        assert texts(wire.text("list_agents")) == ["still here"]
        wait_until(lambda: states(desk, "other", msg_id)[-1] == "consumed")
