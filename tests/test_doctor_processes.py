"""`postroom doctor` on clients that are several processes, and on hooks that Codex does not trust (10.16, 09.5, 09.11).

The processes are copies of the shell under a client's name, which start each other as that client does: a launcher and
what it launched, a window with the background server that it began, and what looks after that server.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from postroom.console.checks import clients
from postroom.console.checks.clients import Client, Clients, Running
from postroom.console.checks.sessions import Live
from postroom.console.looks import trust as look_trust
from tests.clinic import clinic, diagnosed
from tests.desk import SECONDS, Desk, running, wait_until
from tests.patients import attending, client, install, long_running, set_up, trust

THREAD = "0199a3b4-0000-7000-8000-0123456789ab"

SERVER = "app-server --listen unix:// --managed-daemon"

KEEPER = "app-server daemon pid-update-loop"

TRUSTED = Path(__file__).parent / "recorded" / "codex-hooks"


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A clinic."""
    with clinic() as desk:
        yield desk


@contextlib.contextmanager
def tree(desk: Desk, program: str, *inner: str, **variables: str) -> Generator[list[int]]:
    """A client that starts others of its name; yields the pids, its own first.

    Args:
        desk: where.
        program: what all of them are called.
        inner: for each that it starts, the words of its command line, and what it holds open behind `4<`.
        variables: more of their environment.
    """
    path = desk.folder / "bin" / program
    path.unlink(missing_ok=True)
    shutil.copy(os.path.realpath("/bin/sh"), path)
    starts = "".join(f'"$0" -c "echo \\$\\$; read x" {words} <&3 3<&- & ' for words in inner)
    process = subprocess.Popen(
        [path, "-c", f"exec 3<&0; {starts} echo $$; read x", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**desk.environ, **variables},
        cwd=desk.folder,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        told = [int(process.stdout.readline()) for _ in (path, *inner)]
        yield [process.pid, *_in_order(told, process.pid, inner)]
    finally:
        process.stdin.close()  # whatever reads from it ends
        process.wait(SECONDS)
        process.stdout.read()
        process.stdout.close()


def _in_order(told: list[int], own: int, inner: tuple[str, ...]) -> list[int]:
    """The pids of what was started, as it was asked for: they say theirs in any order."""
    rest = [pid for pid in told if pid != own]
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in rest}
    ordered: list[int] = []
    for words in inner:
        wanted = [word for word in words.partition(" 4<")[0].split() if word]
        pid = next(pid for pid in rest if pid not in ordered and lines[pid][3 : 3 + len(wanted)] == wanted)
        ordered.append(pid)
    return ordered


def ready(desk: Desk, name: str, program: str) -> None:
    """Sets a client up, hooks and all."""
    install(desk, program)
    set_up(desk, name)
    if name == "codex":
        trust(desk)


# ── processes ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16", "09.11")
@pytest.mark.parametrize(("name", "program"), [("gemini-cli", "gemini"), ("qwen-code", "qwen")])
def test_a_client_that_launches_itself_once_more_is_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str, program: str
) -> None:
    """The session is the inner process's, and the outer is no client that has none; without one, one is missing."""
    ready(desk, name, program)
    with tree(desk, program, "again") as (outer, inner):
        found = {one["id"]: one["what"] for one in long_running(desk, monkeypatch)}
        assert f"(process {outer})" in found["client-without-session"]
        assert str(inner) not in found["client-without-session"]
        with attending(desk, name, inner):
            found = {one["id"]: one["what"] for one in long_running(desk, monkeypatch)}
            assert "client-without-session" not in found
            assert "hooks-never-ran" in found  # it is seen whose session that is


@pytest.mark.rule("10.16", "09.11")
def test_a_window_has_the_sessions_of_its_background_server(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second window of the same server, and what looks after that server, are no clients without a session."""
    ready(desk, "codex", "codex")
    with tree(desk, "codex", SERVER, KEEPER) as (window, server, _), tree(desk, "codex") as (second,):
        [alone] = long_running(desk, monkeypatch)
        assert alone["id"] == "client-without-session"
        assert f"(process {min(window, second)} and {max(window, second)})" in alone["what"]
        with attending(desk, "codex", server):
            assert [one["id"] for one in long_running(desk, monkeypatch)] == ["door-shut"]
    with (
        tree(desk, "codex", SERVER, CODEX_HOME=str(desk.folder / "other")) as (_, server),
        attending(desk, "codex", server),
        tree(desk, "codex") as (third,),
    ):
        found = {one["id"]: one["what"] for one in long_running(desk, monkeypatch)}
        assert f"(process {third})" in found["client-without-session"]


@pytest.mark.rule("10.16", "09.11")
def test_a_server_without_windows_is_no_client_without_a_session(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays when the last window is closed; what looks after it was never one."""
    ready(desk, "codex", "codex")
    path = desk.folder / "bin" / "codex"
    for words in (SERVER, KEEPER):
        with tree(desk, "codex", words) as (_, server):
            window = int(Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(window, 9)
            wait_until(lambda pid=window: not running(pid))
            assert path.exists()
            assert long_running(desk, monkeypatch) == []


@pytest.mark.rule("10.16", "09.5")
def test_a_thread_without_a_turn_has_heard_no_hook_yet(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Codex runs its first hook in its first turn; from then on the file of that thread is open."""
    ready(desk, "codex", "codex")
    rollout = desk.folder / f"rollout-2026-01-01T00-00-00-{THREAD}.jsonl"
    rollout.touch()
    for held, expected in (("", []), (f"4<{rollout}", ["hooks-never-ran"])):
        with (
            tree(desk, "codex", f"{SERVER} {held}") as (_, server),
            attending(desk, "codex", server, "--conversation", THREAD),
        ):
            ids = [one["id"] for one in long_running(desk, monkeypatch)]
            assert ids == [*expected, "door-shut"]


@pytest.mark.rule("10.16", "05.28", "09.13")
@pytest.mark.parametrize(
    ("name", "program", "variable"),
    [("claude-code", "claude", "CLAUDE_CONFIG_DIR"), ("qwen-code", "qwen", "QWEN_HOME")],
)
def test_a_program_whose_sessions_are_kept_elsewhere(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str, program: str, variable: str
) -> None:
    """Its configuration is another one too, so what is set up here says nothing about it."""
    ready(desk, name, program)
    other = desk.folder / "other"
    with client(desk, program, **{variable: str(other)}) as process:
        [finding] = long_running(desk, monkeypatch)
        assert finding["id"] == "client-elsewhere"
        assert f"runs with another {variable} than this shell (process {process.pid})" in finding["what"]
        assert f"its sessions in {other}" in finding["what"]
        assert f"Set {variable} to the same" in finding["mend"]
    same = {"claude-code": ".claude", "qwen-code": ".qwen"}[name]
    with client(desk, program, **{variable: str(desk.folder / "home" / same)}):
        assert [one["id"] for one in long_running(desk, monkeypatch)] == ["client-without-session"]


# ── trust ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16", "09.5")
def test_hooks_that_nobody_has_trusted_are_named(desk: Desk) -> None:
    """Codex says nothing about them: all, then one, then one that was changed, then one that was switched off."""
    install(desk, "codex")
    set_up(desk, "codex")
    [finding] = diagnosed(desk, "hooks-untrusted")
    assert (
        "the hooks of Postroom for SessionStart, UserPromptSubmit, PostToolUse and 2 more" in finding["what"]
    )
    assert "nobody has trusted them" in finding["what"]
    assert "type `/hooks` there" in finding["mend"]
    trust(desk)
    assert diagnosed(desk) == []
    config, hooks = (desk.folder / "home/.codex" / file for file in ("config.toml", "hooks.json"))
    whole = config.read_text()
    config.write_text(whole.replace("hooks.json:stop:0:0", "hooks.json:stop:1:0"))
    [finding] = diagnosed(desk, "hooks-untrusted")
    assert "the hook of Postroom for Stop, and says nothing: nobody has trusted it" in finding["what"]
    config.write_text(whole)
    content = json.loads(hooks.read_text())
    content["hooks"]["Stop"][0]["hooks"][0]["timeout"] = 11
    hooks.write_text(json.dumps(content))
    [finding] = diagnosed(desk, "hooks-untrusted")
    assert "for Stop, and says nothing: it changed after somebody trusted it" in finding["what"]
    trust(desk)
    head, _, tail = config.read_text().partition(':stop:0:0"]\n')
    config.write_text(f'{head}:stop:0:0"]\nenabled = false\n{tail}')
    [finding] = diagnosed(desk, "hooks-untrusted")
    assert "for Stop, and says nothing: it was switched off there" in finding["what"]
    content["hooks"].clear()
    hooks.write_text(json.dumps(content))
    diagnosed(desk, "client-half-set-up")


@pytest.mark.rule("10.16", "09.5")
def test_a_hook_that_was_heard_is_trusted_however_that_is_written_down() -> None:
    """Another version of Codex may tell what it trusts otherwise: then its hashes say nothing."""
    process = Running(pid=1, seconds=1000.0, sessions=("proj",))
    seen = Client(name="codex", title="Codex", running=(process,), hooks=("Stop",), changed=("Stop",))

    def found(why: str) -> list[str]:
        session = Live(
            id="s", name="proj", program="codex", status={"doors": [{"name": "hooks", "why": why}]}
        )
        facts = Clients(clients=(seen,))
        return [one.id for check in (clients.trust, clients.silent_hooks) for one in check(facts, [session])]

    assert found("") == []
    assert found("no hook of it has come yet") == ["hooks-untrusted"]


@pytest.mark.rule("09.5")
def test_the_hash_is_the_one_that_codex_writes() -> None:
    """As version 0.171.0 wrote them down for these hooks, when a person trusted all of them."""
    hooks = json.loads((TRUSTED / "hooks.json").read_text())
    trusted = json.loads((TRUSTED / "trusted.json").read_text())
    config = {
        "hooks": {"state": {f"/x/hooks.json:{at}": {"trusted_hash": each} for at, each in trusted.items()}}
    }
    assert look_trust.look("/x/hooks.json", hooks, config) == look_trust.Trust()
    assert len(trusted) == 5
    config["hooks"]["state"]["/x/hooks.json:stop:0:0"]["trusted_hash"] = trusted["session_start:0:0"]
    assert look_trust.look("/x/hooks.json", hooks, config).changed == ("Stop",)


@pytest.mark.parametrize(
    "config", [None, [], {"hooks": 1}, {"hooks": {"state": []}}, {"hooks": {"state": {"": 1, "a:b": None}}}]
)
def test_what_makes_no_sense_trusts_nothing(config: object) -> None:
    hooks = json.loads((TRUSTED / "hooks.json").read_text())
    assert len(look_trust.look("/x/hooks.json", hooks, config).missing) == 5
    for text in ("null", "[]", '{"hooks": []}', '{"hooks": {"Stop": [1, {"hooks": [null, {}]}]}}'):
        assert look_trust.look("/x/hooks.json", json.loads(text), config) == look_trust.Trust()
