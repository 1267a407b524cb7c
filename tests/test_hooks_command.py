"""The command that a client runs, as it is installed: real hooks of a posed client, real sessions (09.11, 09.12)."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.core.envelope import PREFACE, unframe
from postroom.hook import MAX_LOG
from postroom.state import processes
from tests.desk import COMMAND, SECONDS, Desk, Done, running, wait_until
from tests.posing import ARGV0, PARTY, Posed
from tests.strangers import private_desk


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A private place with bob, who writes."""
    with private_desk() as desk:
        desk.open("bob")
        yield desk


@pytest.fixture
def claude(desk: Desk, request: pytest.FixtureRequest) -> Iterator[Posed]:
    """A posed Claude Code whose session has started."""
    posed = Posed(desk, conversation=f"conv-of-{abs(hash(request.node.name))}")
    try:
        assert posed.hook("SessionStart", source="startup") == NOTHING
        yield posed
    finally:
        posed.end()


NOTHING = Done(0, "", "")


def name_of(desk: Desk, session: str) -> str:
    """The name of a session, and what tells it from its namesakes."""
    (row,) = [row for row in desk.ok("list")["rows"] if row["session_id"] == session]
    return f"{row['name']} [{row['ref']}]"


def write(desk: Desk, posed: Posed, text: str) -> str:
    """bob writes to a posed client's session; returns the message's id."""
    return str(desk.send("bob", name_of(desk, posed.session()), text)["msg_id"])


def steps(desk: Desk, msg_id: str, session: str) -> list[str]:
    """The states that a message has been in, at its receiver."""
    found = desk.ok("--session", session, "trace", msg_id)["steps"]
    return [step["state"] for step in found if step["state"] != "rang"]


def log_of(desk: Desk, session: str | None = None) -> str:
    """What is in a session's log, or in that of all hooks."""
    state = Path(desk.environ["POSTROOM_HOME"])
    file = state / "hooks.log" if session is None else state / "sessions" / session / "log"
    return file.read_text() if file.exists() else ""


# ── a session starts ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.11")
def test_the_first_event_starts_the_session_and_the_clients_end_ends_it(desk: Desk) -> None:
    posed = Posed(desk, conversation="conv-first")
    assert posed.hook("PostToolUse") == NOTHING
    with pytest.raises(AssertionError, match="no session"):
        posed.session()
    assert posed.hook("SessionStart", source="startup") == NOTHING
    session = posed.session()
    (row,) = [row for row in desk.ok("list")["rows"] if row["session_id"] == session]
    assert (row["program"], row["confirms"]) == ("claude-code", "consumed")
    assert posed.hook("SessionStart", source="clear") == NOTHING
    assert posed.session() == session
    posed.kill()
    wait_until(lambda: not running(row["pid"]))
    wait_until(lambda: session not in [each["session_id"] for each in desk.ok("list")["rows"]])


@pytest.mark.rule("09.11", "05.12")
def test_a_conversation_that_is_opened_again_is_the_same_session_with_its_mail(desk: Desk) -> None:
    first = Posed(desk, conversation="conv-again")
    first.hook("SessionStart", source="startup")
    session = first.session()
    msg_id = write(desk, first, "for later")
    first.end()
    second = Posed(desk, conversation="conv-again")
    said = second.said("SessionStart", source="resume")
    assert second.session() == session
    assert msg_id in said["hookSpecificOutput"]["additionalContext"]
    second.end()


@pytest.mark.rule("09.11")
def test_hooks_that_come_at_once_start_one_session(desk: Desk) -> None:
    """Both claim, one opens, the other finds it."""
    posed = Posed(desk, conversation="conv-at-once")
    hooks = [posed.begin("SessionStart", source="startup") for _ in range(4)]
    assert [hook.done() for hook in hooks] == [NOTHING] * 4
    sessions = [
        row
        for row in desk.ok("list")["rows"]
        if row["program"] == "claude-code" and row["cwd"] == str(desk.folder)
    ]
    mine = [row for row in sessions if row["session_id"] == posed.session()]
    assert len(mine) == 1
    file = next((Path(desk.environ["POSTROOM_HOME"]) / "sessions").glob(f"client-{posed.pid}-*"))
    assert file.read_text().split() == [posed.session()]
    posed.end()


@pytest.mark.rule("09.11")
@pytest.mark.parametrize(
    ("client", "event"),
    [
        ("codex", "SessionStart"),
        ("gemini-cli", "SessionStart"),
        ("qwen-code", "SessionStart"),
        ("cursor", "sessionStart"),
    ],
)
def test_every_client_with_hooks_starts_its_session(desk: Desk, client: str, event: str) -> None:
    posed = Posed(desk, client, conversation=f"conv-{client}")
    assert posed.hook(event, source="startup") == NOTHING
    assert [row["program"] for row in desk.ok("list")["rows"] if row["session_id"] == posed.session()] == [
        client
    ]
    posed.end()


# ── mail ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.5", "09.12", "11.1")
def test_a_whole_turn_with_mail(desk: Desk, claude: Posed) -> None:
    session = claude.session()
    assert claude.hook("UserPromptSubmit", prompt="do it", permission_mode="acceptEdits") == NOTHING
    assert desk.ok("--session", session, "status")["mode"] == "acceptEdits"
    first = write(desk, claude, "a word in between")
    text = claude.said("PostToolUse", tool_name="Bash")["hookSpecificOutput"]["additionalContext"]
    assert text.startswith(PREFACE)
    assert [block.text for block in unframe(text)] == ["a word in between"]
    assert steps(desk, first, session)[-2:] == ["leased", "consumed"]
    second = write(desk, claude, "before you go")
    said = claude.said("Stop", stop_hook_active=False)
    assert (said["decision"], second in said["reason"]) == ("block", True)
    third = write(desk, claude, "and one more")
    assert claude.hook("Stop", stop_hook_active=True) == NOTHING
    assert steps(desk, third, session)[-1] == "accepted"
    assert third in claude.said("UserPromptSubmit", prompt="next")["hookSpecificOutput"]["additionalContext"]


@pytest.mark.rule("11.1", "09.12")
@pytest.mark.parametrize("how", ["closed", "full"])
def test_what_could_not_be_printed_waits_again(desk: Desk, claude: Posed, how: str) -> None:
    """Nobody reads it, or the disk is full."""
    session = claude.session()
    msg_id = write(desk, claude, "do not lose me")
    stdin = claude.event("PostToolUse")
    if how == "closed":
        done = claude.start(COMMAND, "hook", "claude-code", "PostToolUse", stdin=stdin, closed=True).done()
    else:
        command = f"exec {shlex.join([COMMAND, 'hook', 'claude-code', 'PostToolUse'])} > /dev/full"
        done = claude.start("/bin/sh", "-c", command, stdin=stdin).done()
    assert done == NOTHING
    wait_until(lambda: steps(desk, msg_id, session)[-1] == "accepted")
    assert 'redelivered="yes"' in claude.said("PostToolUse")["hookSpecificOutput"]["additionalContext"]
    assert "could not be handed on" in log_of(desk, session)
    assert "do not lose me" not in log_of(desk, session)


# ── whose mail ───────────────────────────────────────────────────────────────────────────────────

INSIDE = (
    "import subprocess, sys; "
    "done = subprocess.run(sys.argv[1:], input=sys.stdin.read(), text=True, capture_output=True); "
    "print(done.returncode, repr(done.stdout), repr(done.stderr))"
)
"""A program that runs one command as its child."""


def under(name: str, *argv: str) -> list[str]:
    """A command line that runs a command as the child of a program called so."""
    inner = shlex.join([sys.executable, "-I", "-c", INSIDE, *argv])
    return ["/bin/bash", "-c", f"exec -a /opt/{name} {inner}"]


@pytest.mark.rule("09.11", "10.38")
@pytest.mark.parametrize("client", ["codex", "claude-code", "gemini-cli"])
def test_an_agent_inside_another_gets_none_of_its_mail(desk: Desk, claude: Posed, client: str) -> None:
    """Though it has inherited the variables of the outer one's session."""
    session = claude.session()
    write(desk, claude, "for the outer one")
    event = "AfterTool" if client == "gemini-cli" else "PostToolUse"
    inside = under(ARGV0[client], COMMAND, "hook", client, event)
    stdin = json.dumps({"session_id": "conv-inside", "hook_event_name": event})
    done = claude.start(*inside, stdin=stdin, environ={"POSTROOM_SESSION": session}).done()
    assert done == Done(0, "0 '' ''\n", "")
    assert [each["text"] for each in desk.ok("--session", session, "inbox")["messages"]] == [
        "for the outer one"
    ]
    assert "for the outer one" in claude.said("PostToolUse")["hookSpecificOutput"]["additionalContext"]


@pytest.mark.rule("09.11")
def test_an_agent_inside_another_has_a_session_of_its_own(desk: Desk, claude: Posed) -> None:
    """Started by its own hook, under the outer one's shell; each gets its own mail."""
    outer = claude.session()
    stdin = json.dumps({"session_id": "conv-inner", "hook_event_name": "SessionStart", "source": "startup"})
    script = (
        f"{shlex.join([COMMAND, 'hook', 'codex', 'SessionStart'])}; {shlex.join([COMMAND, 'list', '--json'])}"
    )
    done = claude.start(
        *under("codex", "/bin/sh", "-c", script), stdin=stdin, environ={"POSTROOM_SESSION": outer}
    ).done()
    assert done.code == 0
    code, _, rest = done.out.partition(" ")
    assert (code, "codex" in rest) == ("0", True)


@pytest.mark.rule("09.11")
@pytest.mark.parametrize("shape", ["direct", "shell", "nested shells", "launcher"])
def test_what_stands_between_a_client_and_its_hook_changes_nothing(
    desk: Desk, claude: Posed, shape: str
) -> None:
    write(desk, claude, "here I am")
    hook = [COMMAND, "hook", "claude-code", "PostToolUse"]
    argv = {
        "direct": hook,
        "shell": hook,
        "nested shells": ["/bin/bash", "-c", f"/bin/sh -c {shlex.quote(shlex.join(hook) + '; :')}; :"],
        "launcher": ["/usr/bin/env", "timeout", "30", *hook],
    }[shape]
    done = claude.start(*argv, stdin=claude.event("PostToolUse"), shell=shape == "shell").done()
    assert "here I am" in json.loads(done.out)["hookSpecificOutput"]["additionalContext"]


# ── it never fails a turn ────────────────────────────────────────────────────────────────────────

WRONG = {
    "empty": ("PostToolUse", ""),
    "no JSON": ("PostToolUse", "{"),
    "no text": ("PostToolUse", "\udcff\udcfe\x00"),
    "huge": ("PostToolUse", '{"session_id":"t","tool_response":"' + "x" * 6_000_000 + '"}'),
    "unheard": ("Earthquake", "{}"),
    "no event": ("", "{}"),
    "an option": ("--json", "{}"),
}


@pytest.mark.rule("09.12")
@pytest.mark.parametrize("what", list(WRONG))
def test_whatever_is_wrong_with_the_call_ends_well_and_is_logged(
    desk: Desk, claude: Posed, what: str
) -> None:
    event, stdin = WRONG[what]
    session = claude.session()
    msg_id = write(desk, claude, "kept")
    argv = [COMMAND, "hook", "claude-code", *([event] if event else [])]
    assert claude.start(*argv, stdin=stdin).done() == NOTHING
    assert steps(desk, msg_id, session)[-1] == "accepted"
    assert log_of(desk, session) != ""


@pytest.mark.rule("09.12")
@pytest.mark.parametrize(
    "argv", [["hook"], ["hook", "nobody"], ["hook", "nobody", "Stop"], ["hook", "-x", "--y", "z", "w"]]
)
def test_a_client_that_is_not_known_ends_well(desk: Desk, claude: Posed, argv: list[str]) -> None:
    assert claude.start(COMMAND, *argv, stdin="{}").done() == NOTHING


@pytest.mark.rule("09.12")
@pytest.mark.parametrize(
    ("redirection", "printed"), [("<&-", True), (">&-", False), ("2>&-", True), ("<&- >&- 2>&-", False)]
)
def test_streams_that_are_closed_end_well(desk: Desk, claude: Posed, redirection: str, printed: bool) -> None:
    """What would be printed into nothing waits again."""
    msg_id = write(desk, claude, "hello")
    command = f"{shlex.join([COMMAND, 'hook', 'claude-code', 'PostToolUse'])} {redirection}"
    done = claude.start("/bin/sh", "-c", command, stdin=claude.event("PostToolUse")).done()
    assert done.code == 0
    assert (done.out != "") == (printed and "<&-" not in redirection)
    state = steps(desk, msg_id, claude.session())[-1]
    assert state == ("consumed" if done.out else "accepted")


@pytest.mark.rule("09.12")
@pytest.mark.parametrize("event", ["PostToolUse", "SessionStart"])
@pytest.mark.parametrize("place", ["none", "missing", "loose", "file", "read-only"])
def test_a_state_folder_that_is_none_ends_well(desk: Desk, tmp_path: Path, event: str, place: str) -> None:
    folder = tmp_path / "state"
    if place == "loose":
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
    elif place == "file":
        folder.write_text("")
    elif place == "read-only":
        folder = Path("/proc/postroom")
    away = dict.fromkeys(("POSTROOM_HOME", "XDG_STATE_HOME", "HOME"), "") if place == "none" else {}
    posed = Posed(desk, conversation="conv-nowhere", **({"POSTROOM_HOME": str(folder)} | away))
    try:
        assert posed.hook(event) == NOTHING
    finally:
        posed.kill()
    if place == "loose":
        assert list(folder.iterdir()) == []


@pytest.mark.rule("09.12")
@pytest.mark.parametrize(
    ("event", "said"), [("SessionStart", {"source": "resume"}), ("UserPromptSubmit", {"prompt": "go on"})]
)
def test_a_session_that_was_killed_ends_well_and_comes_back(
    desk: Desk, event: str, said: dict[str, str]
) -> None:
    """With the next start, or the next turn: mail must not wait for somebody to start the client anew."""
    posed = Posed(desk, conversation=f"conv-killed-{event}")
    posed.hook("SessionStart", source="startup")
    session = posed.session()
    write(desk, posed, "through a crash")
    (row,) = [row for row in desk.ok("list")["rows"] if row["session_id"] == session]
    os.kill(row["pid"], signal.SIGKILL)
    wait_until(lambda: not running(row["pid"]))
    assert posed.hook("PostToolUse") == NOTHING
    assert "this client has no session" in log_of(desk, session)
    text = posed.said(event, **said)["hookSpecificOutput"]["additionalContext"]
    assert "through a crash" in text
    assert posed.session() == session
    posed.end()


@pytest.mark.rule("09.12")
def test_a_session_that_hangs_costs_a_bounded_time(desk: Desk, claude: Posed) -> None:
    """It is stopped; the hook gives up. What bounds it is shortened here, so that the test is quick."""
    session = claude.session()
    (row,) = [row for row in desk.ok("list")["rows"] if row["session_id"] == session]
    program = (
        "import sys; from postroom import hook; hook.TURN_SECONDS = 0.3; "
        "sys.exit(hook.main(['hook', 'claude-code', 'PostToolUse']))"
    )
    os.kill(row["pid"], signal.SIGSTOP)
    try:
        command = ["/bin/bash", "-c", f"exec {shlex.join([sys.executable, '-c', program])}"]
        assert claude.start(*command, stdin=claude.event("PostToolUse")).done() == NOTHING
    finally:
        os.kill(row["pid"], signal.SIGCONT)
    assert "does not answer in time" in log_of(desk, session)


@pytest.mark.rule("09.12", "05.4", "11.10")
def test_the_log_is_private_bounded_and_never_followed(desk: Desk, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    posed = Posed(desk, conversation="conv-log", POSTROOM_HOME=str(state))
    try:
        secret = posed.event("PostToolUse", prompt="secret words", tool_response="more of them")
        assert posed.hook("PostToolUse", raw=secret) == NOTHING
        log = state / "hooks.log"
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        assert log.read_text().endswith("Z hook claude-code PostToolUse: this client has no session\n")
        said = log.read_text()
        assert (
            posed.hook("SessionEnd", reason="other") == NOTHING
        )  # the server that was the session ends first
        assert log.read_text() == said
        log.write_bytes(b"x" * (MAX_LOG + 1))
        posed.hook("PostToolUse")
        assert (state / "hooks.log.1").stat().st_size > MAX_LOG
        assert log.read_text().count("\n") == 1
        log.unlink()
        log.symlink_to(tmp_path / "elsewhere")
        assert posed.hook("PostToolUse") == NOTHING
        assert not (tmp_path / "elsewhere").exists()
        log.unlink()
        os.mkfifo(log)
        assert posed.hook("PostToolUse") == NOTHING
    finally:
        posed.kill()


@pytest.mark.rule("09.12")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stdin=st.binary(max_size=200)
    | st.text(max_size=50).map(lambda text: json.dumps({"prompt": text}).encode())
)
def test_any_bytes_on_standard_input_end_well(desk: Desk, claude: Posed, stdin: bytes) -> None:
    """With nothing printed, or one JSON object."""
    done = claude.hook("UserPromptSubmit", raw=stdin.decode("utf-8", "surrogateescape"))
    assert (done.code, done.err) == (0, "")
    document: Any = json.loads(done.out) if done.out else {}
    assert isinstance(document, dict)


def test_help_is_for_people() -> None:
    """And the one thing that a person may ask of it."""
    with private_desk() as desk:
        done = desk.run("hook", "--help")
        assert done.code == 0
        assert "CLIENT" in done.out
        assert desk.run("--json", "hook", "claude-code", "Stop") == NOTHING


assert PARTY.exists()


def claim_of(desk: Desk, posed: Posed) -> Path:
    """What whoever opens the session of a client makes for that time."""
    file = Path(desk.environ["POSTROOM_HOME"]) / "sessions" / f".claim-{posed.pid}"
    file.touch(0o600)
    return file


@pytest.mark.rule("09.11", "09.12")
def test_an_event_waits_for_a_session_that_is_just_being_opened(desk: Desk) -> None:
    """As while an MCP server takes it over: the event's mode and turn would be lost otherwise."""
    codex = Posed(desk, "codex", conversation="opening")
    try:
        claim_of(desk, codex)
        hook = codex.begin("UserPromptSubmit")
        start = processes.start_of(codex.pid) or ""
        who = ("--client-pid", str(codex.pid), "--client-start", start, "--conversation", "opening")
        with desk.start("attend", "codex", *who) as attending:
            assert hook.done() == NOTHING
            (row,) = [row for row in desk.ok("list")["rows"] if row["pid"] == attending.pid]
            assert "no session" not in log_of(desk, row["session_id"])
            assert log_of(desk).count("UserPromptSubmit: this client has no session") == 0
            codex.kill()
            attending.communicate(timeout=SECONDS)
    finally:
        codex.kill()


@pytest.mark.rule("09.12")
def test_an_old_claim_of_a_killed_process_costs_no_hook_its_time(desk: Desk) -> None:
    codex = Posed(desk, "codex", conversation="stale")
    try:
        os.utime(claim_of(desk, codex), (1, 1))
        assert codex.hook("PostToolUse") == NOTHING
        assert "PostToolUse: this client has no session" in log_of(desk)
    finally:
        codex.end()
