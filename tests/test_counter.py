"""The verbs about what may come in, over a real control socket: who may look, who may decide, what is answered.

bob never asks for permission, so what comes from strangers, who state no class, and from alice, who asks, is held. The
tests are taken to run in a person's terminal, except where they say otherwise; `tests/test_holds_by_command.py` has the
terminals.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from postroom import Session
from postroom.counter import terminal_of
from postroom.state import processes
from postroom.transport import Evidence
from tests.room import states, texts
from tests.terminal import started_at_terminal
from tests.test_control import CHILD_TOKEN, Client, Desk, arrives, at_desk
from tests.test_session import sent
from tests.transports.ends import until

IDS = ("0197ab-one", "0197ab-two", "0198cd-three")


def at_counter(tmp_path: Path, work: Callable[[Desk], Awaitable[None]], **options: Any) -> None:
    """Runs a test's coroutine at a desk whose session never asks for permission."""

    async def whole(desk: Desk) -> None:
        desk.session.set_mode("bypassPermissions", by="client")
        await work(desk)

    at_desk(tmp_path, whole, **options)


def held(session: Session) -> list[str]:
    """The ids of what is held."""
    return [hold.message.msg_id for hold in session.held()]


async def from_alice(desk: Desk, alice: Session, text: str, msg_id: str) -> None:
    """alice sends to bob."""
    await sent(alice, "bob", text, msg_id=msg_id)


# ── looking ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.5", "10.26", "10.37")
def test_what_is_held_is_shown_and_nothing_being_held_is_no_failure(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        assert await desk.answer("held") == (0, "Nothing is held.\n", "")
        assert await desk.document("held") == {"held": []}
        arrives(desk, "one\x1b", IDS[0])
        [one] = (await desk.document("held"))["held"]
        assert (one["msg_id"], one["text"], one["cause"]) == (IDS[0], "one\x1b", "no-mode-asserted")
        assert one["since"] == "2026-11-30T10:15:02Z"
        assert one["expires_at"] == "2026-11-30T10:20:02Z"
        assert one["from"]["verified"] is False
        desk.room.now += 60_000
        code, out, _ = await desk.answer("held")
        assert code == 0
        assert "whose class is bypassing (mode bypassPermissions)" in out
        assert ", 4 min left\n" in out
        assert "    one\\x1b\n" in out
        assert f"postroom --session bob approve {IDS[0]}\n" in out

    at_counter(tmp_path, work)


@pytest.mark.rule("10.5")
def test_following_prints_what_comes_and_each_once(tmp_path: Path) -> None:
    """First what there is; an end of a hold prints nothing; it goes on until the other end goes."""

    async def work(desk: Desk) -> None:
        async def shown(client: Client) -> list[str]:
            kind, _, out, _ = await client.frame()
            assert kind == "part"
            return [one["msg_id"] for one in json.loads(out)["held"]]

        arrives(desk, "one", IDS[0])
        client = await desk.client()
        await client.ask("held", "--follow", "--json")
        await client.taken()
        assert await shown(client) == [IDS[0]]
        desk.session.deny(IDS[0])
        arrives(desk, "two", IDS[1])
        assert await shown(client) == [IDS[1]]
        arrives(desk, "three", IDS[2])
        assert await shown(client) == [IDS[2]]
        client.close()
        await until(lambda: not desk.control._running)  # pyright: ignore[reportPrivateUsage]
        assert held(desk.session) == [IDS[1], IDS[2]]

    at_counter(tmp_path, work)


@pytest.mark.rule("10.5", "10.9")
def test_following_ends_with_the_session(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        client = await desk.client()
        await client.ask("held", "--follow")
        await client.taken()
        assert (await client.frame())[2] == "Nothing is held.\n"
        await desk.session.close()
        assert await client.frame() == ("done", 0, "", "")
        await client.ended()

    at_counter(tmp_path, work)


@pytest.mark.rule("10.10", "10.29", "03.6")
def test_explaining_a_message_that_came(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        arrives(desk, "one", IDS[0])
        document = await desk.document("explain", IDS[0])
        assert {key: document[key] for key in ("outcome", "rung", "scope", "cause")} == {
            "outcome": "held",
            "rung": "default",
            "scope": "default",
            "cause": "no-mode-asserted",
        }
        code, out, _ = await desk.answer("explain", IDS[0])
        assert code == 0
        assert out.startswith(f"Message {IDS[0]} is held for a person (no-mode-asserted)")
        assert "when it came: held" in out
        assert (await desk.document("explain", "m-99", code=3))["error"]["code"] == "unknown_message"

    at_counter(tmp_path, work)


@pytest.mark.rule("10.10", "03.19")
def test_explaining_a_message_that_might_come(tmp_path: Path) -> None:
    """Each word that a sender can state, a named sender and none; a name that nobody has is not found."""

    async def work(desk: Desk) -> None:
        async with desk.room.open("alice"):
            for words, outcome, rung in (
                (["--mode", "bypassing"], "accepted", "class"),
                (["--mode", "prompting"], "held", "class"),
                (["--mode", "none"], "held", "default"),
                ([], "held", "default"),
                (["--from", "alice", "--mode", "bypassing"], "accepted", "class"),
            ):
                document = await desk.document("explain", *words)
                assert (document["outcome"], document["rung"], document["then"]) == (outcome, rung, None)
            _, out, _ = await desk.answer("explain", "--from", "alice", "--mode", "prompting")
            assert out.startswith("A message from alice that states prompting is held for a person")
            _, out, _ = await desk.answer("explain")
            assert out.startswith("A message from somebody without a name that states no class is held")
            assert (await desk.document("explain", "--from", "carol", code=3))["error"]["code"] == "not_found"
            error = (await desk.document("explain", "m-1", "--mode", "none", code=2))["error"]
            assert "without --from and --mode" in error["message"]

    at_counter(tmp_path, work)


# ── deciding ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.5", "10.29", "03.41", "10.25")
def test_an_approved_message_is_in_the_inbox_marked(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for number, msg_id in enumerate(IDS):
            arrives(desk, f"text {number}", msg_id)
        assert desk.session.peek() == []
        assert await desk.document("approve", IDS[1]) == {"msg_id": IDS[1], "state": "accepted"}
        [message] = (await desk.document("inbox", "--take"))["messages"]
        assert (message["msg_id"], message["text"], message["held"]) == (IDS[1], "text 1", True)
        assert held(desk.session) == [IDS[0], IDS[2]]
        code, out, err = await desk.answer("approve", IDS[2][:6])
        assert (code, err) == (0, "")
        assert out == (
            f"accepted: {IDS[2]}, from somebody without a name (not verified). It is in the inbox.\n"
        )

    at_counter(tmp_path, work)


@pytest.mark.rule("10.5", "10.29", "03.42", "03.53")
def test_a_denied_message_is_gone(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        arrives(desk, "one", IDS[0])
        assert await desk.document("deny", IDS[0], "--note", "not now") == {
            "msg_id": IDS[0],
            "state": "denied",
        }
        assert (held(desk.session), desk.session.peek()) == ([], [])
        assert states(desk.session, IDS[0])[-1] == "denied"

    at_counter(tmp_path, work)


@pytest.mark.rule("10.5", "10.37")
@pytest.mark.parametrize("verb", ["approve", "deny"])
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("0199", "No message 0199 is held here"),
        ("0197ab", "0197ab begins the ids of 2 held messages"),
        ("0198c", "0198c is too short to stand for a held message"),
        (IDS[0] + "x", f"No message {IDS[0]}x is held here"),
    ],
)
def test_an_id_that_stands_for_no_one_message_decides_nothing(
    tmp_path: Path, verb: str, asked: str, says: str
) -> None:
    async def work(desk: Desk) -> None:
        for msg_id in IDS:
            arrives(desk, f"text {msg_id}", msg_id)
        error = (await desk.document(verb, asked, code=3))["error"]
        assert error["code"] == "not_held"
        assert says in error["message"]
        assert held(desk.session) == list(IDS)
        assert (await desk.answer(verb, asked))[2].startswith("not_held\n")

    at_counter(tmp_path, work)


@pytest.mark.rule("10.11", "10.29", "03.48", "03.12")
def test_a_sender_is_accepted_always_until_that_is_revoked(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        async with desk.room.open("alice") as alice:
            assert await desk.document("rules") == {"rules": []}
            await from_alice(desk, alice, "one", IDS[0])
            code, out, _ = await desk.answer("approve", IDS[0], "--always")
            assert (code, "From now on its sender is accepted" in out) == (0, True)
            await from_alice(desk, alice, "two", IDS[1])
            assert texts(desk.session.peek()) == ["one", "two"]
            [rule] = (await desk.document("rules"))["rules"]
            assert rule["from"] == {"name": "alice", "ref": alice.ref, "identity": alice.id}
            assert rule["since"] == "2026-11-30T10:15:02Z"
            assert "alice [" in (await desk.answer("rules"))[1]
            error = (await desk.document("rules", "--revoke", "no-such", code=3))["error"]
            assert (error["code"], "no-such" in error["message"]) == ("unknown_rule", True)
            assert await desk.document("rules", "--revoke", rule["id"]) == {"rules": []}
            await from_alice(desk, alice, "three", IDS[2])
            assert held(desk.session) == [IDS[2]]
            assert (await desk.answer("rules"))[1] == "No sender is always accepted.\n"

    at_counter(tmp_path, work)


@pytest.mark.rule("03.12", "03.48")
def test_nobody_who_was_not_verified_is_accepted_always(tmp_path: Path) -> None:
    """The message stays held, and the way out is named."""

    async def work(desk: Desk) -> None:
        arrives(desk, "one", IDS[0])
        error = (await desk.document("approve", IDS[0], "--always", code=1))["error"]
        assert "without --always" in error["hint"]
        assert held(desk.session) == [IDS[0]]
        assert (await desk.document("rules"))["rules"] == []

    at_counter(tmp_path, work)


@pytest.mark.rule("10.9", "10.29", "03.46")
def test_close_says_how_many_holds_end_with_it(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for msg_id in IDS:
            arrives(desk, f"text {msg_id}", msg_id)
        assert (await desk.document("close"))["expired"] == 3
        assert "3 held and not decided" in (await desk.answer("close"))[1]

    at_counter(tmp_path, work)


# ── who may ──────────────────────────────────────────────────────────────────────────────────────

DECIDING = (
    ["approve", IDS[0]],
    ["approve", IDS[0], "--always"],
    ["deny", IDS[0]],
    ["rules", "--revoke", "1"],
    ["status", "--mode", "default"],
)
LOOKING = (["held"], ["explain", IDS[0]], ["explain"], ["rules"], ["status"])


async def decides_nothing(desk: Desk, **more: Any) -> None:
    """Whoever asks may look and may not decide; nothing has changed."""
    arrives(desk, "one", IDS[0])
    for words in LOOKING:
        assert (await desk.answer(*words, **more))[0] == 0, words
    for words in DECIDING:
        error = (await desk.document(*words, code=1, **more))["error"]
        assert error["code"] == "needs_person", words
        assert "a terminal that no session started" in error["hint"]
    code, out, err = await desk.answer(*DECIDING[0], **more)
    assert (code, out, err.splitlines()[0]) == (1, "", "needs_person")
    assert held(desk.session) == [IDS[0]]
    assert desk.session.status().mode == "bypassPermissions"


@pytest.mark.rule("10.39", "05.26")
def test_without_a_terminal_nothing_is_decided(tmp_path: Path) -> None:
    """As from cron, or from an agent's shell whose streams are pipes."""
    at_counter(tmp_path, decides_nothing, tty=0)


@pytest.mark.rule("10.39", "05.26")
def test_the_session_that_opened_this_one_may_look_and_not_decide(tmp_path: Path) -> None:
    """In a terminal too."""

    def registered(pid: int, start: str) -> tuple[str, ...]:
        return ("opener",) if pid == os.getpid() and start else ()

    at_counter(tmp_path, decides_nothing, registered=registered, opened_by="opener")


def the_command_of(desk: Desk) -> Callable[[int, str], tuple[str, ...]]:
    """Says of this process that it is the session's own command."""
    return lambda pid, start: (desk.session.id,) if pid == os.getpid() else ()


@pytest.mark.rule("10.39", "11.7")
def test_a_session_does_not_decide_about_its_own_holds(tmp_path: Path) -> None:
    """Its own child in a terminal, with every token there is."""

    async def work(desk: Desk) -> None:
        registered = the_command_of(desk)
        desk.control.door = type(desk.control.door)(
            client_token=desk.control.door.client_token,
            child_token=CHILD_TOKEN,
            process=(0, ""),
            registered=registered,
        )
        arrives(desk, "one", IDS[0])
        for words in (words for words in DECIDING if "--mode" not in words):
            assert (await desk.document(*words, code=1))["error"]["code"] == "needs_person", words
        assert held(desk.session) == [IDS[0]]

    at_counter(tmp_path, work)


@pytest.mark.rule("05.26", "11.3")
@pytest.mark.parametrize("words", [*DECIDING, *LOOKING], ids=" ".join)
def test_another_session_neither_looks_nor_decides(tmp_path: Path, words: list[str]) -> None:
    def registered(pid: int, start: str) -> tuple[str, ...]:
        return ("another",) if pid == os.getpid() and start else ()

    async def work(desk: Desk) -> None:
        arrives(desk, "one", IDS[0])
        assert (await desk.document(*words, code=1))["error"]["code"] == "not_your_session"
        assert held(desk.session) == [IDS[0]]

    at_counter(tmp_path, work, registered=registered)


@pytest.mark.rule("10.6", "03.43", "10.27")
def test_a_person_changes_the_mode_and_holds_are_judged_again(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        arrives(desk, "one", IDS[0])
        document = await desk.document("status", "--mode", "plan")
        assert (document["mode"], document["class"]) == ("plan", "prompting")
        assert (document["queued"], document["held"]) == (1, 0)
        assert texts(desk.session.peek()) == ["one"]

    at_counter(tmp_path, work)


@pytest.mark.rule("10.6", "03.43")
def test_what_a_child_reports_lets_in_no_hold(tmp_path: Path) -> None:
    """It judges what arrives from then on. The child's token says so, with a terminal and without."""

    async def work(desk: Desk) -> None:
        arrives(desk, "one", IDS[0])
        document = await desk.document("status", "--mode", "default", token=CHILD_TOKEN)
        assert (document["mode"], document["class"], document["held"]) == ("default", "prompting", 1)
        arrives(desk, "two", IDS[1])
        assert (held(desk.session), texts(desk.session.peek())) == ([IDS[0]], ["two"])

    for number, tty in enumerate((0, 34_816)):
        folder = tmp_path / str(number)
        folder.mkdir()
        at_counter(folder, work, tty=tty)


# ── the terminal of a process ────────────────────────────────────────────────────────────────────

SLEEPS = "import sys, time; print('here', flush=True); time.sleep(1000)"

ORPHANS = """
import os, subprocess, sys, time
middle = os.fork()
if middle == 0:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    print(child.pid, flush=True)
    os._exit(0)
os.waitpid(middle, 0)
print("gone", flush=True)
time.sleep(1000)
"""
"""A program that is started by a process that then ends, in the terminal of the one above that."""


def seen(pid: int) -> Evidence:
    """The evidence about a process that connects."""
    return Evidence("uds", pid, processes.start_of(pid) or "", processes.ancestry(pid))


def first_line_of(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


@contextlib.contextmanager
def started_without_terminal(*command: str) -> Generator[subprocess.Popen[bytes]]:
    """Starts a program that has none."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.rule("10.39")
def test_a_terminal_is_read_of_the_process_itself() -> None:
    """And of that one alone: a pid that was given away since has none."""
    with started_at_terminal(sys.executable, "-c", SLEEPS) as process:
        assert first_line_of(process) == "here"
        evidence = seen(process.pid)
        assert terminal_of(evidence) == processes.controlling_tty(process.pid) != 0
        assert terminal_of(Evidence("uds", process.pid, "1", evidence.ancestry)) == 0
        assert terminal_of(Evidence("uds", process.pid, "", evidence.ancestry)) == 0
    assert terminal_of(evidence) == 0
    assert terminal_of(Evidence("uds")) == 0


@pytest.mark.rule("10.39")
def test_a_process_in_a_session_of_its_own_has_no_terminal() -> None:
    with started_without_terminal(sys.executable, "-c", SLEEPS) as process:
        assert first_line_of(process) == "here"
        assert terminal_of(seen(process.pid)) == 0


@pytest.mark.rule("10.39")
def test_a_process_that_has_left_its_family_has_no_terminal_of_its_own() -> None:
    """The kernel still names one; nothing tells any more whether a session started it."""
    with started_at_terminal(sys.executable, "-c", ORPHANS) as process:
        orphan = int(first_line_of(process))
        try:
            assert first_line_of(process) == "gone"
            assert processes.controlling_tty(orphan) == processes.controlling_tty(process.pid) != 0
            assert process.pid not in [pid for pid, _ in processes.ancestry(orphan)]
            assert terminal_of(seen(orphan)) == 0
            assert terminal_of(seen(process.pid)) != 0
        finally:
            os.kill(orphan, 9)


@pytest.mark.rule("10.39")
def test_a_terminal_whose_head_lives_elsewhere_is_one_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a shell that was started into a container: the kernel calls a head that cannot be seen 0."""
    with started_at_terminal(sys.executable, "-c", SLEEPS) as process:
        assert first_line_of(process) == "here"
        evidence = seen(process.pid)

        def unseen(pid: int) -> int:
            return 0

        def gone(pid: int) -> int:
            raise ProcessLookupError

        monkeypatch.setattr(os, "getsid", unseen)
        assert terminal_of(evidence) != 0
        monkeypatch.setattr(os, "getsid", gone)
        assert terminal_of(evidence) == 0
