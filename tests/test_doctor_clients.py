"""`postroom doctor` on clients and neighbours: each finding is provoked for real (10.16, 09.1 to 09.17, 05.28).

A client is a program of its name that sleeps, set up by `postroom setup`, with the session that its hooks would start.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.console.checks import clients
from postroom.console.checks.clients import Client, Running
from postroom.console.checks.finding import Finding
from postroom.console.checks.sessions import Live
from postroom.console.looks.programs import version_of
from tests.clinic import clinic, diagnosed, read
from tests.desk import COMMAND, SECONDS, Desk
from tests.patients import SLEEP, attended, attending, client, install, long_running, set_up, trust
from tests.strangers import Raw, snapshot


def say(desk: Desk, name: str, *words: str) -> None:
    """Tells a session what a hook of its client does: the client, the event, what stands on standard input."""
    session = next(row for row in desk.ok("list")["rows"] if row["name"] == name)
    folder = desk.folder / "state/sessions" / session["session_id"]
    token, path, _ = (folder / "client.token").read_text().split("\n")
    with Raw(path) as door:
        door.say({"type": "auth", "token": token}, {"argv": ["hook", *words[:2]], "stdin": words[2]})
        door.rest()


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A clinic."""
    with clinic() as desk:
        yield desk


# ── set up ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16", "09.17")
@pytest.mark.parametrize(
    ("name", "program"), [("codex", "codex"), ("claude-code", "claude"), ("gemini-cli", "gemini")]
)
def test_a_client_that_is_installed_and_not_set_up(desk: Desk, name: str, program: str) -> None:
    """A note, since nobody has to; what it says to do mends it."""
    path = install(desk, program)
    [finding] = diagnosed(desk, "client-not-set-up")
    assert f"({path}) and not set up" in finding["what"]
    assert f"`postroom setup {name}`" in finding["mend"]
    assert finding["severity"] == "note"
    set_up(desk, name)
    if name == "codex":
        trust(desk)
    before = snapshot(desk.folder / "home", desk.folder / "state")
    assert diagnosed(desk) == []
    assert snapshot(desk.folder / "home", desk.folder / "state") == before


@pytest.mark.rule("10.16", "09.17")
def test_a_client_that_is_set_up_in_part(desk: Desk) -> None:
    install(desk, "codex")
    set_up(desk, "codex")
    trust(desk)
    hooks = desk.folder / "home/.codex/hooks.json"
    content = json.loads(hooks.read_text())
    for event in ("Stop", "SessionEnd"):
        del content["hooks"][event]
    hooks.write_text(json.dumps(content))
    [finding] = diagnosed(desk, "client-half-set-up")
    assert "the hooks for Stop and SessionEnd are missing" in finding["what"]
    config = desk.folder / "home/.codex/config.toml"
    config.write_text("[hooks.state" + config.read_text().partition("[hooks.state")[2])
    [finding] = diagnosed(desk, "client-half-set-up")
    assert "the MCP server and the hooks for Stop and SessionEnd are missing" in finding["what"]
    set_up(desk, "codex")
    trust(desk)
    assert diagnosed(desk) == []
    config.write_text("[hooks.state" + config.read_text().partition("[hooks.state")[2])
    [finding] = diagnosed(desk, "client-half-set-up")
    assert "the MCP server is missing" in finding["what"]


@pytest.mark.rule("10.16")
@pytest.mark.parametrize(
    ("file", "text"),
    [("config.toml", "[mcp_servers"), ("hooks.json", '{"hooks": '), ("hooks.json", "\udcff")],
)
def test_a_configuration_that_cannot_be_read(desk: Desk, file: str, text: str) -> None:
    install(desk, "codex")
    path = desk.folder / "home/.codex" / file
    path.parent.mkdir()
    path.write_bytes(text.encode(errors="surrogateescape"))
    [finding] = diagnosed(desk, "client-config-unread")
    assert f"The configuration of Codex, {path}, cannot be read" in finding["what"]
    assert "postroom setup codex --dry-run" in finding["mend"]


@pytest.mark.rule("10.16", "09.17")
def test_a_client_that_is_set_up_with_a_path_that_is_gone(desk: Desk) -> None:
    """A virtual environment that was removed: nothing starts, and the client says nothing."""
    install(desk, "codex")
    set_up(desk, "codex")
    for file in ("config.toml", "hooks.json"):
        path = desk.folder / "home/.codex" / file
        path.write_text(path.read_text().replace(sys.executable, "/gone/venv/bin/python"))
    trust(desk)
    [finding] = diagnosed(desk, "client-command-gone")
    assert "Codex is set up with /gone/venv/bin/python, which is not there" in finding["what"]
    assert "`postroom setup codex`" in finding["mend"]
    set_up(desk, "codex")
    trust(desk)
    assert diagnosed(desk) == []


@pytest.mark.rule("10.16", "09.17")
def test_a_client_that_is_set_up_with_another_postroom(desk: Desk) -> None:
    """Of another installation, whose version stands in its metadata."""
    install(desk, "gemini")
    set_up(desk, "gemini-cli")
    other = desk.folder / "venv/bin/postroom"
    (desk.folder / "venv/lib/python3.11/site-packages/postroom-0.0.7.dist-info").mkdir(parents=True)
    other.parent.mkdir()
    other.write_text("")
    path = desk.folder / "home/.gemini/settings.json"
    path.write_text(path.read_text().replace(COMMAND, str(other)))
    [finding] = diagnosed(desk, "client-command-other")
    assert (
        f"Gemini CLI is set up with another Postroom than this one: {other} (version 0.0.7)"
        in finding["what"]
    )
    assert "If this one is meant" in finding["mend"]


@pytest.mark.rule("10.16", "09.10")
def test_the_library_of_the_mcp_server_is_missing(desk: Desk) -> None:
    install(desk, "codex")
    set_up(desk, "codex")
    program = (
        "import sys; sys.modules['mcp'] = None; sys.argv = ['postroom', 'doctor', '--json'];"
        "from postroom.__main__ import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=desk.environ,
        cwd=desk.folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    [finding] = [one for one in json.loads(done.stdout)["findings"] if one["id"] == "mcp-missing"]
    assert "Codex is set up to start the MCP server, and its library cannot be loaded" in finding["what"]
    assert f"`{sys.executable} -m pip install " in finding["mend"] or "uv pip install" in finding["mend"]
    assert sys.executable in finding["mend"]
    assert "websockets" in finding["mend"]


@pytest.mark.rule("10.16", "09.5")
def test_hooks_that_are_switched_off(desk: Desk) -> None:
    install(desk, "gemini")
    set_up(desk, "gemini-cli")
    path = desk.folder / "home/.gemini/settings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hooksConfig": {"enabled": False}}))
    [finding] = diagnosed(desk, "hooks-off")
    assert f"hooksConfig.enabled is false in {path}" in finding["what"]
    assert "MCP server alone" in finding["mend"]


@pytest.mark.rule("10.16", "09.17")
@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        (
            ".gemini/settings.json",
            '{"mcpServers": {"postroom": {"command": "x"}}}',
            "mcpServers.postroom is not",
        ),
        (".gemini/settings.json", '{"mcpServers": []}', "mcpServers is no object"),
        (".gemini/settings.json", '{"hooks": []}', "hooks is no object"),
        (".gemini/settings.json", '{"hooks": {"SessionStart": {}}}', "hooks.SessionStart is no array"),
        (".gemini/settings.json", "[]", "what stands there is no object"),
        (".codex/config.toml", "mcp_servers = 1\n", "mcp_servers is no object"),
    ],
)
def test_a_place_that_something_else_has_taken(desk: Desk, file: str, text: str, what: str) -> None:
    """`setup` refuses there, though the program itself is not found."""
    path = desk.folder / "home" / file
    path.parent.mkdir()
    path.write_text(text)
    name = "codex" if "codex" in file else "gemini-cli"
    taken = [one for one in read(desk.run("doctor", "--json")) if one["id"] == "client-entry-other"]
    assert any(f"{path}, of" in one["what"] and what in one["what"] for one in taken)
    assert all(f"then `postroom setup {name}`" in one["mend"] for one in taken)
    assert desk.run("setup", name, "--yes").code == 1


# ── clients that run ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16", "09.9", "09.11")
def test_a_client_that_runs_and_never_started_what_it_was_set_up_with(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read its configuration before that was written."""
    with client(desk, "codex") as process:
        assert [one["id"] for one in long_running(desk, monkeypatch)] == ["client-not-set-up"]
        set_up(desk, "codex")
        trust(desk)
        [finding] = long_running(desk, monkeypatch)
    assert finding["id"] == "client-without-session"
    assert f"Codex runs (process {process.pid}), is set up, and has no session" in finding["what"]
    assert "`/hooks` there shows" in finding["mend"]
    assert [one["id"] for one in long_running(desk, monkeypatch)] == []


@pytest.mark.rule("10.16", "09.11")
def test_a_client_with_another_home_is_another_desks(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that has just started is none that failed to."""
    with client(desk, "codex", HOME="/nowhere"):
        set_up(desk, "codex")
        trust(desk)
        assert long_running(desk, monkeypatch) == []
    monkeypatch.undo()
    with client(desk, "codex"):
        assert diagnosed(desk) == []


@pytest.mark.rule("10.16", "09.5", "09.12", "09.16")
def test_a_clients_session_whose_hooks_never_ran(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that comes is heard, whatever it tells; one that fails in its session is told by that session's log."""
    set_up(desk, "gemini-cli")
    with attended(desk, "gemini-cli", "gemini") as name:
        [never] = long_running(desk, monkeypatch)
        assert never["id"] == "hooks-never-ran"
        assert f"{name} is a session of Gemini CLI" in never["what"]
        assert "Start Gemini CLI anew" in never["mend"]
        say(desk, name, "gemini-cli", "SessionStart", json.dumps({"session_id": "t-1"}))
        assert long_running(desk, monkeypatch) == []
        assert desk.ok("--session", name, "doors")["turn"] == "unknown"
        say(desk, name, "gemini-cli", "AfterAgent", "no JSON, but hunter2")
        [failed] = long_running(desk, monkeypatch)
        assert failed["id"] == "hooks-failed"
        assert f"1 hook of {name} failed lately" in failed["what"]
        assert "gemini-cli AfterAgent: its input is no JSON object" in failed["what"]
        assert "hunter2" not in json.dumps(failed)


@pytest.mark.rule("10.16", "09.2", "09.16")
def test_a_session_that_nothing_wakes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its doors are asked in its own process: each with why it is not there, and what a person does to open it."""
    set_up(desk, "codex")
    trust(desk)
    with attended(desk, "codex", "codex") as name:
        doors = {door["name"]: door for door in desk.ok("--session", name, "doors")["doors"]}
        assert {"hooks", "codex-queue", "mcp", "wait"} <= set(doors)
        assert all(door["why"] for door in doors.values())
        assert (doors["wait"]["why"], doors["mcp"]["confirms"]) == ("nobody waits", "consumed")
        assert diagnosed(desk) == []  # it has only just started
        [shut] = long_running(desk, monkeypatch)
        assert shut["id"] == "door-shut"
        assert f"Nothing wakes {name} (Codex) when it is idle" in shut["what"]
        assert "codex-queue: " in shut["what"]
        assert "End Codex and start it anew in a terminal" in shut["mend"]
        assert " Or: Type something to it once" in shut["mend"]


@pytest.mark.rule("10.16", "09.4")
@pytest.mark.parametrize(
    ("why", "does"),
    [
        ("it does not listen on a port (start it with `--port`)", "start it as `opencode --port N`"),
        ("no session has been started in it", "Type something in opencode once"),
        ("it does not say in time whether it is there", "Run this again in a minute"),
        ("it wants a password that it was not started with", "OPENCODE_SERVER_PASSWORD"),
    ],
)
def test_what_opens_a_door_is_something_to_do(why: str, does: str) -> None:
    """And a client that is only just starting has no door that is shut."""
    door = {"name": "opencode-http", "wakes": True, "why": why, "needs": "It serves on a port."}
    session = Live(id="s", name="proj", program="opencode", client=(7, "1"), status={"doors": [door]})

    def found(seconds: float) -> list[Finding]:
        process = Running(pid=7, seconds=seconds, sessions=("proj",))
        seen = Client(name="opencode", title="opencode", running=(process,))
        return list(clients.doors(clients.Clients(clients=(seen,)), [session]))

    assert found(1.0) == []
    [finding] = found(clients.SETTLED_SECONDS + 1.0)
    assert finding.id == "door-shut"
    assert does in finding.mend
    assert "It serves on a port" not in finding.mend


@pytest.mark.rule("10.16", "09.12")
def test_hooks_that_failed_and_had_no_session_to_tell(desk: Desk) -> None:
    """The log says which and why; what a program printed there is not shown, and neither is what is long past."""
    desk.open("alice")
    log = desk.folder / "state/hooks.log"
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    log.touch(0o600)
    log.write_text(
        "2020-01-01T00:00:00Z hook codex Stop: it was long ago\n"
        f"Traceback: secret hunter2\n{now} hook codex Stop: the session ended before it had answered\n"
    )
    [finding] = diagnosed(desk, "hooks-failed")
    assert (
        finding["what"]
        == f"1 hook failed lately, the last at {now}: codex Stop: the session ended before it had answered."
    )
    assert str(log) in finding["mend"]
    assert desk.run("hook", "codex", "NoSuchEvent", stdin="{}").code == 0
    log.unlink()
    assert diagnosed(desk) == []


@pytest.mark.rule("10.16", "09.12")
def test_a_hook_that_fails_for_real_is_found(desk: Desk) -> None:
    """A client's first hook, which can open no session: the turn goes on, and only the log knows."""
    desk.open("alice")
    shell = desk.folder / "bin/codex"
    shutil.copy(os.path.realpath("/bin/sh"), shell)
    sessions = desk.folder / "state/sessions"
    sessions.chmod(0o755)
    done = subprocess.run(
        [shell, "-c", f"echo '{{}}' | {COMMAND} hook codex SessionStart; :"],
        env=desk.environ,
        cwd=desk.folder,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    sessions.chmod(0o700)
    shell.unlink()
    assert (done.returncode, done.stdout) == (0, b"")
    [finding] = diagnosed(desk, "hooks-failed")
    assert "1 hook failed lately, the last at " in finding["what"]
    assert "codex SessionStart: no session could be started for this client" in finding["what"]
    assert f"{desk.folder}/state/hooks.log has them all" in finding["mend"]


# ── variables ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16")
def test_variables_that_switch_off_a_clients_own_messaging(desk: Desk) -> None:
    """In this shell and in the environment of what runs; ours obeys none, so without that client there is no word."""
    off = {"DISABLE_TELEMETRY": "1", "CLAUDE_CODE_SIMPLE": "true", "DO_NOT_TRACK": "0"}
    assert diagnosed(desk, environ=off) == []
    for name in ("alice", "bob"):
        desk.open(name, environ={**off, "DO_NOT_TRACK": "1"})
    assert desk.ok("--session", "alice", "send", "bob", "all the same", environ=off)["status"] == "queued"
    with client(desk, "claude", DO_NOT_TRACK="1") as process:
        done = desk.run("doctor", "--json", environ=off)
        findings = [one for one in read(done) if one["id"] == "env-client-off"]
    said = sorted(one["what"] for one in findings)
    assert len(said) == 3
    assert said[0].startswith("CLAUDE_CODE_SIMPLE is set (this shell): it switches off the messaging")
    assert "versions before" not in said[0]
    assert said[1].startswith("DISABLE_TELEMETRY is set (this shell)")
    assert "in versions before 2.1.248" in said[1]
    assert said[2].startswith(f"DO_NOT_TRACK is set (process {process.pid})")
    assert all("Postroom obeys no such variable" in one for one in said)
    assert any("unset DISABLE_TELEMETRY" in one["mend"] for one in findings)


@pytest.mark.rule("10.16")
def test_a_version_that_obeys_them_no_more(desk: Desk) -> None:
    """Known by where the program lies, or by its package."""
    newer = desk.folder / "share/claude/versions/2.1.300"
    newer.parent.mkdir(parents=True)
    shutil.copy(SLEEP, newer)
    (desk.folder / "bin/claude").symlink_to(newer)
    environ = {"DISABLE_TELEMETRY": "1"}
    diagnosed(desk, "client-not-set-up", environ=environ)
    diagnosed(desk, "client-not-set-up", "env-client-off", environ={"CLAUDE_CODE_SIMPLE": "1"})
    package = desk.folder / "lib/node_modules/claude"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text('{"version": "2.1.197"}')
    (package / "bin/claude").touch(0o700)
    (desk.folder / "bin/claude").unlink()
    (desk.folder / "bin/claude").symlink_to(package / "bin/claude")
    assert version_of(str(desk.folder / "bin/claude")) == "2.1.197"
    diagnosed(desk, "client-not-set-up", "env-client-off", environ=environ)


# ── neighbours ───────────────────────────────────────────────────────────────────────────────────


def claude_record(desk: Desk, **fields: Any) -> Path:
    """A record as a session of Claude Code writes it, of this process, with a socket that nobody has bound yet."""
    sessions = desk.folder / "home/.claude/sessions"
    (desk.folder / "run/cc-socks").mkdir(mode=0o700, exist_ok=True)
    for folder in (sessions.parent, sessions):
        folder.mkdir(mode=0o700, exist_ok=True)
    path = sessions / f"{os.getpid()}.json"
    record = {
        "pid": os.getpid(),
        "sessionId": "0f0e0d0c-0000-4000-8000-000000000001",
        "name": "web",
        "cwd": "/x",
        "peerProtocol": 1,
        "kind": "interactive",
        "entrypoint": "cli",
        "messagingSocketPath": str(desk.folder / "run/cc-socks" / f"{os.getpid()}.sock"),
        **fields,
    }
    path.write_text(json.dumps({key: value for key, value in record.items() if value is not None}))
    path.chmod(0o600)
    return path


@contextlib.contextmanager
def listening(desk: Desk) -> Generator[socket.socket]:
    """The socket of that record, bound and listening."""
    (desk.folder / "run/cc-socks").mkdir(mode=0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as sock:
        path = desk.folder / "run/cc-socks" / f"{os.getpid()}.sock"
        sock.bind(str(path))
        path.chmod(0o600)
        sock.listen()
        yield sock
        path.unlink()


@pytest.mark.rule("10.16", "05.28", "09.13")
def test_neighbours_that_are_seen_and_cannot_answer(desk: Desk) -> None:
    """Nothing is wrong with them: a note that they are not shown the sessions here, until settings say so."""
    with listening(desk):
        claude_record(desk)
        [finding] = diagnosed(desk, "publish-not")
        assert "1 session of Claude Code runs here and cannot answer" in finding["what"]
        assert '"publishTo": ["claude-code"]' in finding["mend"]
        desk.settings(publishTo=["claude-code"])
        assert diagnosed(desk) == []
        assert "1 session of Claude Code; this shell" in desk.run("doctor").out


@pytest.mark.rule("10.16", "05.28")
def test_the_sessions_of_a_program_that_are_ours_are_not_counted_twice(desk: Desk) -> None:
    """One of Claude Code whose client has a session here: the line does not say that there is none."""
    set_up(desk, "claude-code")
    with client(desk, "claude") as process, attending(desk, "claude-code", process.pid):
        path = claude_record(desk, pid=process.pid, messagingSocketPath=None)
        path.rename(path.with_name(f"{process.pid}.json"))
        assert "no session of Claude Code besides ours; this shell" in desk.run("doctor").out


@pytest.mark.rule("10.16", "05.28")
def test_neighbours_records_that_are_passed_over(desk: Desk) -> None:
    desk.settings(publishTo=["claude-code"])
    path = claude_record(desk)
    path.chmod(0o666)
    [finding] = diagnosed(desk, "neighbour-skipped")
    assert f"{path.name}: others have access to it" in finding["what"]
    path.chmod(0o600)
    path.write_text("{}")
    os.utime(path, (1, 1))
    [finding] = diagnosed(desk, "neighbour-left-out")
    assert "1 record of Claude Code is left out: " in finding["what"]
    path.parent.chmod(0o777)
    [finding] = diagnosed(desk, "neighbour-unread")
    assert f"{path.parent}" in finding["what"]
    assert "others have access to it (mode 0777)" in finding["what"]


@pytest.mark.rule("10.16", "05.28")
def test_a_neighbour_whose_messaging_is_off_or_that_takes_no_connection(desk: Desk) -> None:
    desk.settings(publishTo=["claude-code"])
    claude_record(desk, messagingSocketPath=None)
    [finding] = diagnosed(desk, "neighbour-condition")
    assert (
        "web, a session of Claude Code, cannot be written to as it stands: cannot receive messages"
        in finding["what"]
    )
    with listening(desk) as sock:
        claude_record(desk)
        assert diagnosed(desk) == []
        sock.close()
        [finding] = diagnosed(desk, "neighbour-deaf")
        assert "web, of Claude Code, takes no connection" in finding["what"]


@pytest.mark.rule("10.16", "09.13")
def test_publishing_to_a_program_that_is_not_there(desk: Desk) -> None:
    desk.settings(publishTo=["qwen-code"])
    [finding] = diagnosed(desk, "publish-nobody")
    assert f"{desk.folder}/home/.qwen/sessions does not exist" in finding["what"]
    assert "qwen-code" in finding["what"]
    assert finding["severity"] == "note"
    assert (
        finding["mend"]
        == "Nothing, if Qwen Code is to come: start it once. If not: `postroom unsetup qwen-code`."
    )
