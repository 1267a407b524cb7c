"""Attacks on the side that faces clients: hostile input, agents that act for others, neighbours that lie, and kills.

Each test does for real what a hostile or broken program would, to real processes, and says what has to be left standing.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.clients.stdio import MOST_OPEN
from postroom.console.setting_up.files import LEFT_SECONDS
from postroom.doors.codex_queue import program_of
from postroom.doors.opencode_http import HttpDoor
from postroom.neighbours.records import MAX_FILES
from postroom.presence import CONVERSATIONS
from tests.claudes import Claude
from tests.desk import COMMAND, SECONDS, Desk, Done, running, wait_until
from tests.doorsteps import here_of
from tests.posing import Posed
from tests.servers import CLIENT, Wire
from tests.strangers import private_desk

NOTHING = Done(0, "", "")

THREADS = ("0198c0de-0000-7000-8000-00000000000a", "0198c0de-0000-7000-8000-00000000000b")

HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "attacker", "version": "1"},
    },
}

BEGUN = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A private place with bob, who writes."""
    with private_desk() as desk:
        desk.open("bob")
        yield desk


def row_of(desk: Desk, session: str) -> dict[str, Any]:
    """The row of a session in the listing."""
    (row,) = [row for row in desk.ok("list")["rows"] if row["session_id"] == session]
    return row


def name_of(row: dict[str, Any]) -> str:
    """Its name, and what tells it from its namesakes."""
    return f"{row['name']} [{row['ref']}]"


def started(desk: Desk, client: str = "claude-code", conversation: str = "conv-1") -> Posed:
    """A posed client whose session a hook has started."""
    posed = Posed(desk, client, conversation)
    assert posed.hook("sessionStart" if client == "cursor" else "SessionStart") == NOTHING
    return posed


def call(number: object, tool: str, **arguments: object) -> dict[str, Any]:
    """One call of a tool."""
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def lines(*messages: dict[str, Any]) -> str:
    """Messages as a client writes them."""
    return "".join(f"{json.dumps(message)}\n" for message in messages)


# ── an agent that acts for others, or for its own person ─────────────────────────────────────────


@pytest.mark.rule("10.39")
def test_an_agent_that_runs_the_server_in_its_shell_is_not_asked_about_its_holds(desk: Desk) -> None:
    """It would answer for its person. Nor does it take the session away from the process that has it."""
    desk.open("carol", "--mode", "bypassPermissions")
    posed = started(desk, "cursor")  # a client in front of which somebody may sit without a terminal
    session = posed.session()
    before = row_of(desk, session)
    desk.send("carol", name_of(before), "let me in")
    (held,) = desk.ok("--session", session, "held")["held"]
    agent = posed.start(COMMAND, "mcp", stdin=lines(HELLO, BEGUN, call(1, "read_messages", wait=1)))
    out = agent.done().out
    assert '"id":1' in out
    assert "elicitation/create" not in out
    assert "let me in" not in out
    assert row_of(desk, session)["pid"] == before["pid"]
    assert [one["msg_id"] for one in desk.ok("--session", session, "held")["held"]] == [held["msg_id"]]
    posed.end()


RAW = (
    "import json, socket, sys\n"
    "line = socket.socket(socket.AF_UNIX); line.settimeout(20); line.connect(sys.argv[1])\n"
    "for said in ({'type': 'auth', 'token': sys.argv[2]}, {'argv': sys.argv[3:], 'stdin': '{}'}):\n"
    "    line.sendall(json.dumps(said).encode() + b'\\n')\n"
    "print(line.recv(65536).decode())\n"
)
"""A program that shows another session's token on its control socket."""


@pytest.mark.rule("05.26")
def test_no_verb_of_another_session_is_open_to_an_agent_that_has_its_token(desk: Desk) -> None:
    victim, agent = started(desk, conversation="conv-v"), started(desk, conversation="conv-a")
    desk.send("bob", name_of(row_of(desk, victim.session())), "a secret")
    folder = Path(desk.environ["POSTROOM_HOME"]) / "sessions" / victim.session()
    token, path = (folder / "client.token").read_text().split("\n")[:2]
    verbs = (
        ("hook", "claude-code", "UserPromptSubmit"),
        ("tool", "read_messages"),
        ("inbox", "--take"),
        ("close",),
        ("move",),
        ("doors",),
    )
    asked = [agent.start(sys.executable, "-c", RAW, path, token, *verb) for verb in verbs]
    for one in asked:
        assert "not_your_session" in one.done().out
    said = json.dumps({"session_id": "conv-v", "hook_event_name": "UserPromptSubmit"})
    assert agent.hook("UserPromptSubmit", raw=said) == NOTHING
    assert "a secret" in victim.hook("UserPromptSubmit").out
    agent.end()
    victim.end()


def test_two_conversations_of_one_process_do_not_get_each_others_mail(desk: Desk) -> None:
    posed = started(desk, "codex", THREADS[0])
    first = posed.session()
    posed.conversation = THREADS[1]
    assert posed.hook("SessionStart") == NOTHING
    desk.send("bob", name_of(row_of(desk, first)), "for the first")
    for said in (THREADS[1], THREADS[0].replace("a", "c"), ""):
        assert posed.hook("UserPromptSubmit", raw=json.dumps({"session_id": said})) == NOTHING
    posed.conversation = THREADS[0]
    assert "for the first" in posed.hook("UserPromptSubmit").out
    posed.end()


# ── hostile input ────────────────────────────────────────────────────────────────────────────────

INPUTS = {
    "a hundred megabytes": "head -c 100000000 /dev/zero",
    "without an end": "cat /dev/zero",
    "deep": "{python} -c \"print('[' * 4000000)\"",
    "deep and whole": "{python} -c \"print('[' * 200000 + ']' * 200000)\"",
    "binary": "head -c 3000000 /dev/urandom",
    "half characters": """printf '{{"session_id":"conv-1","prompt":"\\\\ud800","cwd":"\\\\ud800"}}'""",
    "other types": """printf '{{"session_id":[],"prompt":1,"cwd":{{}},"permission_mode":[]}}'""",
    "many marks": "{python} -c \"import json; print(json.dumps({{'prompt': 'msg-id=' + '<' * 2000000}}))\"",
}


@pytest.mark.rule("09.12")
def test_whatever_a_client_says_to_its_hook_the_turn_goes_on(desk: Desk) -> None:
    posed = started(desk)
    pid = row_of(desk, posed.session())["pid"]
    hooks = {
        what: posed.start(
            "sh",
            "-c",
            f"{source.format(python=sys.executable)} | {COMMAND} hook claude-code UserPromptSubmit",
        )
        for what, source in INPUTS.items()
    }
    assert {what: hook.done() for what, hook in hooks.items()} == dict.fromkeys(INPUTS, NOTHING)
    assert row_of(desk, posed.session())["pid"] == pid
    posed.end()


@pytest.mark.rule("09.12", "11.14")
def test_a_session_whose_process_is_stopped_costs_a_turn_no_more_than_the_wait(desk: Desk) -> None:
    """The hooks end with nothing, a tool is answered, and what waits comes when the process goes on."""
    argv = [COMMAND, "open", "--name", "alice", "--", sys.executable, "-c", CLIENT, COMMAND, "mcp"]
    posed = started(desk)
    row = row_of(desk, posed.session())
    desk.send("bob", name_of(row), "while it slept")
    with Wire(desk, argv=argv) as wire:
        wire.write(HELLO)
        wire.read()
        wire.write(BEGUN)
        wire.write(call(1, "list_agents"))
        wire.read()
        pids = [row["pid"], next(one["pid"] for one in desk.ok("list")["rows"] if one["name"] == "alice")]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            hooks = [posed.begin(event) for event in ("UserPromptSubmit", "PostToolUse", "Stop")]
            wire.write(call(2, "send_message", to="bob", message="hello", summary="hello"))
            result = wire.until(lambda one: one.get("id") == 2)["result"]
            assert result["isError"]
            assert result["content"][0]["text"].startswith("unknown: ")
            assert [hook.done() for hook in hooks] == [NOTHING] * 3
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
    wait_until(lambda: "while it slept" in posed.hook("UserPromptSubmit").out)
    posed.end()


@pytest.mark.rule("11.10")
def test_a_client_that_asks_without_end_has_a_thousand_requests_open_and_no_more(desk: Desk) -> None:
    with Wire(desk) as wire:
        wire.write(HELLO)
        wire.read()
        wire.write(BEGUN)
        for number in range(MOST_OPEN + 1):
            wire.write(call(number, "read_messages", wait=600))
        refused = wire.until(lambda one: one.get("id") == MOST_OPEN)
        assert "requests are open" in refused["error"]["message"]
        for number in range(MOST_OPEN):
            params = {"requestId": number}
            wire.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        wire.write(call("again", "list_agents"))
        assert not wire.until(lambda one: one.get("id") == "again")["result"]["isError"]


# ── neighbours that lie ──────────────────────────────────────────────────────────────────────────


def neighbours_place(desk: Desk) -> Path:
    """Where a neighbour's records lie, made."""
    folder = desk.folder / "claude" / "sessions"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    return folder


@pytest.mark.rule("11.10")
def test_what_dead_neighbours_left_hides_no_live_one_and_is_said(desk: Desk) -> None:
    folder = neighbours_place(desk)
    for number in range(MAX_FILES + 10):
        (folder / f"{1_000_000_000 + number}.json").write_text("{}")
    peer = Claude(desk.folder, "claude-one")
    try:
        listing = desk.ok("--session", "bob", "list")
        assert "claude-one" in [row["name"] for row in listing["rows"]]
        assert any("records" in str(place) for place in listing["unchecked"])
    finally:
        peer.leave()


@pytest.mark.rule("11.14")
def test_files_that_are_no_records_cost_a_listing_nothing(desk: Desk) -> None:
    folder = neighbours_place(desk)
    (folder / "101.json").symlink_to("/etc/passwd")
    (folder / "102.json").symlink_to("103.json")
    (folder / "103.json").symlink_to("102.json")
    os.mkfifo(folder / "104.json", 0o600)
    (folder / "105.json").mkdir()
    (folder / "106.json").write_bytes(b"[" * 60_000)
    with open(folder / "107.json", "wb") as file:
        file.truncate(1 << 30)
    peer = Claude(desk.folder, "claude-one")
    try:
        rows = desk.ok("--session", "bob", "list")["rows"]
        assert [row["name"] for row in rows if row["program"] == "claude-code"] == ["claude-one"]
    finally:
        peer.leave()


@pytest.mark.rule("09.15")
def test_a_neighbour_that_speaks_as_another_is_not_taken_for_it(desk: Desk) -> None:
    """Neither in a message, nor under a message's id that the other one used, nor in a receipt."""
    neighbours_place(desk)
    honest, liar = Claude(desk.folder, "honest"), Claude(desk.folder, "liar")
    desk.settings(publishTo=["claude-code"])
    try:
        alice = desk.open("alice")
        record = json.loads((desk.folder / f"claude/sessions/{alice['pid']}.json").read_text())
        path = record["messagingSocketPath"]
        sent = desk.ok("--session", "alice", "send", "honest", "hello")["msg_id"]
        honest.heard()
        honest.write("from the honest one", path, "m-1")
        for number, msg_id in enumerate(("m-1", "m-2")):
            content = (
                f'<cross-session-message from="{honest.address}">\nlie {number}\n</cross-session-message>'
            )
            frame = {"msgV": 1, "msg_id": msg_id, "type": "user", "from": honest.address}
            liar.send(path, {**frame, "message": {"role": "user", "content": content}})
        for sender in (honest, liar):
            receipt = {"type": "control", "action": "peer_message_status", "status": "denied"}
            liar.send(path, {**receipt, "msg_id": "r", "from": sender.address, "orig_msg_id": sent})
        found: list[dict[str, Any]] = []

        def all_there() -> bool:
            found.extend(desk.take("alice"))
            return len(found) == 3

        wait_until(all_there)
        told = {one["text"]: one["from"]["verified"] for one in found}
        assert told == {"from the honest one": True, "lie 0": False, "lie 1": False}
        steps = [one["state"] for one in desk.ok("--session", "alice", "trace", sent)["steps"]]
        assert "denied" not in steps
    finally:
        honest.leave()
        liar.leave()


# ── doors ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.4")
@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Type: a/json\r\n\r\n["]
)
def test_an_answer_that_drips_holds_a_door_up_no_longer_than_one_that_does_not_come(head: bytes) -> None:
    """The limit of a socket is one for each byte; the process would never have ended."""
    over = threading.Event()

    def drip() -> None:
        line, _ = server.accept()
        with line:
            line.recv(65_536)
            line.sendall(head)
            while not over.wait(0.2):
                try:
                    line.sendall(b" ")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as server:
        dripping = threading.Thread(target=drip)
        dripping.start()
        said: list[str] = []

        def look() -> None:
            import asyncio

            said.append(asyncio.run(HttpDoor(here_of("opencode", os.getpid())).ready()))

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        looking.join(SECONDS)
        over.set()
        dripping.join(SECONDS)
    assert said == ["what listens there does not answer as opencode does"]


def test_a_program_of_the_projects_folder_is_not_taken_for_codex(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "codex"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in (".", "", f"{os.path.basename(tmp_path)}:."):
        assert program_of(here_of("codex", 2**22 + 1, environ={"PATH": path})) == ""
    assert program_of(here_of("codex", 2**22 + 1, environ={"PATH": str(tmp_path)})) == str(fake)


# ── another program's configuration ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    ["mcp_servers = 3\n", "[[mcp_servers]]\na = 1\n", "a = " + "[" * 100_000, "[a" + ".a" * 3_000 + "]\n"],
    ids=["a number", "a list", "deep", "deep tables"],
)
def test_a_configuration_that_makes_no_sense_is_named_and_left(desk: Desk, text: str) -> None:
    file = desk.folder / "x" / "config.toml"
    file.parent.mkdir()
    file.write_text(text)
    where = {"CODEX_HOME": str(file.parent), "HOME": str(desk.folder)}
    error = desk.refused("setup", "codex", "--yes", environ=where)
    assert error["code"] == "setup_refused"
    assert str(file) in error["message"]
    assert file.read_text() == text


@pytest.mark.rule("09.17")
def test_a_setup_that_is_killed_breaks_no_file_and_the_next_one_clears_up(desk: Desk) -> None:
    folder = desk.folder / "c"
    folder.mkdir()
    settings = folder / "settings.json"
    where = {"CLAUDE_CONFIG_DIR": str(folder), "HOME": str(desk.folder)}
    for round_ in range(6):
        settings.write_text('{"mine": true}\n')
        (folder / ".claude.json").unlink(missing_ok=True)
        setup = subprocess.Popen(
            [COMMAND, "setup", "claude-code", "--yes"],
            env={**desk.environ, **where},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert setup.stdout is not None
        setup.stdout.read(1)  # the difference is shown; now it writes
        time.sleep(round_ / 500)
        setup.kill()
        setup.wait(SECONDS)
        setup.stdout.close()
        for file in folder.glob("*.json"):
            json.loads(file.read_text())
    settings.write_text('{"mine": true}\n')
    (folder / ".claude.json").unlink(missing_ok=True)
    left = folder / ".postroom-1-00000000.tmp"
    left.write_text("half")
    for file in folder.glob(".postroom-*.tmp"):
        long_ago = time.time() - LEFT_SECONDS - 1
        os.utime(file, (long_ago, long_ago))
    assert desk.run("setup", "claude-code", "--yes", environ=where).code == 0
    assert sorted(file.name for file in folder.iterdir()) == [".claude.json", "settings.json"]
    assert desk.run("unsetup", "claude-code", "--yes", environ=where).code == 0
    assert settings.read_text() == '{"mine": true}\n'


# ── kills ────────────────────────────────────────────────────────────────────────────────────────

DYING = (
    "import json, os, subprocess, sys\n"
    "command, conversation, hello = sys.argv[1:]\n"
    "hook = ['/bin/sh', '-c', f'{command} hook claude-code SessionStart; exit $?']\n"
    "said = json.dumps({'session_id': conversation, 'hook_event_name': 'SessionStart'})\n"
    "subprocess.run(hook, input=said.encode(), start_new_session=True, check=True)\n"
    "print('started', flush=True)\n"
    "sys.stdin.readline()\n"
    "server = subprocess.Popen([command, 'mcp'], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)\n"
    "server.stdin.write(hello.encode()); server.stdin.flush()\n"
    "print(server.pid, flush=True)\n"
    "sys.stdin.read()\n"
)
"""A client whose hook has started its session; then it starts our server beside itself, which takes the session over."""


@pytest.mark.rule("09.11", "11.4")
@pytest.mark.parametrize("victim", ["client", "presence", "server"])
def test_whoever_is_killed_in_a_handover_nothing_is_lost_and_nobody_is_left(desk: Desk, victim: str) -> None:
    state = Path(desk.environ["POSTROOM_HOME"]) / "sessions"
    for delay in (0.0, 0.1, 0.25, 0.45):
        conversation = f"conv-{victim}-{delay}".replace(".", "-")
        session = str(uuid.uuid5(CONVERSATIONS, f"claude-code:{conversation}"))
        argv = [str(desk.folder / "claude"), "-c", DYING, COMMAND, conversation, lines(HELLO)]
        client = subprocess.Popen(
            argv,
            executable=sys.executable,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=desk.environ,
            cwd=desk.folder,
            text=True,
        )
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.readline() == "started\n"
        row = row_of(desk, session)
        msg_id = desk.send("bob", name_of(row), "in flight")["msg_id"]
        client.stdin.write("\n")
        client.stdin.flush()
        server = int(client.stdout.readline())
        time.sleep(delay)
        pids = {"client": client.pid, "presence": row["pid"], "server": server}
        if running(pids[victim]):  # a presence may have let go by now
            os.kill(pids[victim], signal.SIGKILL)
        client.kill()
        client.wait(SECONDS)
        client.stdin.close()
        client.stdout.close()
        for pid in pids.values():
            wait_until(lambda pid=pid: not running(pid))
        assert session not in [row["session_id"] for row in desk.ok("list")["rows"]]
        left = [file.name for file in state.iterdir() if file.name.startswith(("client-", "talk-"))]
        assert left == []
        desk.ok("open", "--resume", session, "--detach")
        assert [(one["msg_id"], one["redelivered"]) for one in desk.take(session)] == [(msg_id, False)]
        assert desk.run("--session", session, "close").code == 0
