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

from postroom.console import doctor
from postroom.console.looks.clients import version_of
from tests.clinic import clinic, diagnosed, read
from tests.desk import COMMAND, SECONDS, Desk, running, wait_until
from tests.strangers import Raw, snapshot

SLEEP = shutil.which("sleep") or "/bin/sleep"


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A clinic."""
    with clinic() as desk:
        yield desk


def install(desk: Desk, program: str) -> Path:
    """Puts a program into the desk's PATH."""
    path = desk.folder / "bin" / program
    path.parent.mkdir(exist_ok=True)
    shutil.copy(SLEEP, path)
    return path


@contextlib.contextmanager
def client(desk: Desk, program: str, **variables: str) -> Generator[subprocess.Popen[bytes]]:
    """A client that runs."""
    process = subprocess.Popen(
        [install(desk, program), "1000"], env={**desk.environ, **variables}, cwd=desk.folder
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(SECONDS)


@contextlib.contextmanager
def attended(desk: Desk, name: str, program: str) -> Generator[str]:
    """A client that runs, with the session that its first hook starts; yields the session's name."""
    with client(desk, program) as process:
        start = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        words = ("attend", name, "--client-pid", str(process.pid), "--client-start", start)
        with desk.start(*words) as presence:
            found: list[str] = []

            def there() -> bool:
                rows = desk.ok("list")["rows"]
                found[:] = [row["name"] for row in rows if row["program"] == name]
                return bool(found)

            try:
                wait_until(there)
                yield found[0]
            finally:
                process.kill()
                process.wait(SECONDS)
                presence.communicate(timeout=SECONDS)
                wait_until(lambda: not running(presence.pid))


def set_up(desk: Desk, name: str) -> None:
    """Runs `postroom setup`."""
    done = desk.run("setup", name, "--yes", "--json")
    assert done.code == 0, done


def long_running(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The findings where a client that has just started counts as one that has run for long."""
    monkeypatch.setattr("postroom.console.checks.clients.SETTLED_SECONDS", -1)
    examined = doctor.examine(desk.environ, str(desk.folder))
    found: Any = doctor.document_of(examined)["findings"]
    return [one for one in found if one["id"] != "container"]


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
    before = snapshot(desk.folder / "home", desk.folder / "state")
    assert diagnosed(desk) == []
    assert snapshot(desk.folder / "home", desk.folder / "state") == before


@pytest.mark.rule("10.16", "09.17")
def test_a_client_that_is_set_up_in_part(desk: Desk) -> None:
    install(desk, "codex")
    set_up(desk, "codex")
    hooks = desk.folder / "home/.codex/hooks.json"
    content = json.loads(hooks.read_text())
    for event in ("Stop", "SessionEnd"):
        del content["hooks"][event]
    hooks.write_text(json.dumps(content))
    [finding] = diagnosed(desk, "client-half-set-up")
    assert "the hooks for Stop and SessionEnd are missing" in finding["what"]
    (desk.folder / "home/.codex/config.toml").write_text("")
    [finding] = diagnosed(desk, "client-half-set-up")
    assert "the MCP server and the hooks for Stop and SessionEnd are missing" in finding["what"]
    set_up(desk, "codex")
    assert diagnosed(desk) == []
    (desk.folder / "home/.codex/config.toml").write_text("")
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
    [finding] = diagnosed(desk, "client-command-gone")
    assert "Codex is set up with /gone/venv/bin/python, which is not there" in finding["what"]
    assert "`postroom setup codex`" in finding["mend"]
    set_up(desk, "codex")
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
    assert "pip install mcp" in finding["mend"]


@pytest.mark.rule("10.16", "09.5")
def test_hooks_that_are_switched_off(desk: Desk) -> None:
    install(desk, "gemini")
    set_up(desk, "gemini-cli")
    path = desk.folder / "home/.gemini/settings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hooksConfig": {"enabled": False}}))
    [finding] = diagnosed(desk, "hooks-off")
    assert f"hooksConfig.enabled is false in {path}" in finding["what"]
    assert "MCP server alone" in finding["mend"]


# ── clients that run ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16", "09.9", "09.11")
def test_a_client_that_runs_and_never_started_what_it_was_set_up_with(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codex does not run hooks that nobody has trusted, and says nothing about it."""
    with client(desk, "codex") as process:
        assert [one["id"] for one in long_running(desk, monkeypatch)] == ["client-not-set-up"]
        set_up(desk, "codex")
        [finding] = long_running(desk, monkeypatch)
    assert finding["id"] == "client-without-session"
    assert f"Codex runs (process {process.pid}), is set up, and has no session" in finding["what"]
    assert "whether the hooks of Postroom are trusted" in finding["mend"]
    assert [one["id"] for one in long_running(desk, monkeypatch)] == []


@pytest.mark.rule("10.16", "09.11")
def test_a_client_with_another_home_is_another_desks(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that has just started is none that failed to."""
    with client(desk, "codex", HOME="/nowhere"):
        set_up(desk, "codex")
        assert long_running(desk, monkeypatch) == []
    monkeypatch.undo()
    with client(desk, "codex"):
        assert diagnosed(desk) == []


@pytest.mark.rule("10.16", "09.5", "09.12", "09.16")
def test_a_clients_session_whose_hooks_never_ran_and_that_nothing_wakes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its doors are asked in its own process, each with the reason why it is not there; a hook that comes is seen."""
    set_up(desk, "codex")
    with attended(desk, "codex", "codex") as name:
        doors = {door["name"]: door for door in desk.ok("--session", name, "doors")["doors"]}
        assert {"hooks", "codex-queue", "mcp", "wait"} <= set(doors)
        assert all(door["why"] for door in doors.values())
        assert (doors["wait"]["why"], doors["mcp"]["confirms"]) == ("nobody waits", "consumed")
        findings = {one["id"]: one for one in long_running(desk, monkeypatch)}
        assert set(findings) == {"hooks-never-ran", "door-shut"}
        never, shut = findings["hooks-never-ran"], findings["door-shut"]
        assert f"{name} is a session of Codex" in never["what"]
        assert "trusted" in never["mend"]
        assert f"Nothing wakes {name} (Codex) when it is idle" in shut["what"]
        assert "codex-queue: " in shut["what"]
        assert "One of these opens one: " in shut["mend"]
        # A turn that a hook tells of: it runs.
        session = next(row for row in desk.ok("list")["rows"] if row["name"] == name)
        token, path, _ = (
            (desk.folder / "state/sessions" / session["session_id"] / "client.token").read_text().split("\n")
        )
        payload = {"session_id": "t-1", "hook_event_name": "UserPromptSubmit", "prompt": "x"}
        with Raw(path) as door:
            door.say(
                {"type": "auth", "token": token},
                {"argv": ["hook", "codex", "UserPromptSubmit"], "stdin": json.dumps(payload)},
            )
            door.rest()
        assert desk.ok("--session", name, "doors")["turn"] == "busy"
        assert [one["id"] for one in long_running(desk, monkeypatch)] == ["door-shut"]
        # One that fails in its session is told by that session's log.
        with Raw(path) as door:
            door.say(
                {"type": "auth", "token": token},
                {"argv": ["hook", "codex", "Stop"], "stdin": "no JSON, but hunter2"},
            )
            door.rest()
        failed = {one["id"]: one for one in long_running(desk, monkeypatch)}["hooks-failed"]
        assert f"1 hook of {name} failed lately" in failed["what"]
        assert "codex Stop: its input is no JSON object" in failed["what"]
        assert "hunter2" not in json.dumps(failed)


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
