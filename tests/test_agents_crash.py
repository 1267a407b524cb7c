"""Show 5: a process that hosts agents is killed, and its next life knows what was under way (06.3, 06.13).

Real processes and SIGKILL: between finishes, between a drain and its confirmation, and at random moments of a host that
never pauses.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from postroom import Receipt, open_session

PARTIES = Path(__file__).with_name("parties")
SECONDS = 30
ROUNDS = int(os.environ.get("POSTROOM_TEST_ROUNDS", "20"))
SEED = int(os.environ.get("POSTROOM_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)

LONGEST_LIFE = 0.2
"""Seconds that the busy host lives at most once its agents are there."""


class Host:
    """A running `agents_told.py`."""

    def __init__(self, session_id: str = "-") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(PARTIES / "agents_told.py"), session_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.id = self.answer()["id"]

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the host has ended"
        return json.loads(line)

    def do(self, what: str, **more: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def drain(self, *, confirm: bool = True, wait: bool = False) -> dict[str, Any]:
        return self.do("drain", confirm=confirm, wait=wait)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def crash(self) -> Host:
        """SIGKILL; returns the next life."""
        self.close()
        return Host(self.id)


@contextlib.contextmanager
def told() -> Generator[list[Host]]:
    """A list whose last host is the living one."""
    hosts = [Host()]
    try:
        yield hosts
    finally:
        for host in hosts:
            host.close()


@pytest.mark.rule("06.3", "06.11", "06.13", "02.26")
def test_show_5_a_restart_tells_what_was_killed_once_and_what_was_not_drained_again(home: Path) -> None:
    with told() as hosts:
        host = hosts[-1]
        ids = {
            name: host.do("start", name=name)["id"]
            for name in ("known", "drained", "undrained", "working", "idle")
        }
        for name in ("known", "idle"):
            host.do("finish", name=name, status="completed", result=f"{name} is done")
        assert [task[1] for task in host.drain()["tasks"]] == ["known", "idle"]
        host.do("finish", name="drained", status="failed", result="it broke")
        assert [task[1] for task in host.drain(confirm=False)["tasks"]] == ["drained"]
        host.do("finish", name="undrained", status="completed", result="done")

        hosts.append(host := host.crash())
        expected = [
            [ids["drained"], "drained", "failed", 1, "it broke"],
            [ids["undrained"], "undrained", "completed", 1, "done"],
            [ids["working"], "working", "killed", 1, None],
        ]
        assert sorted(host.drain(confirm=False)["tasks"]) == sorted(expected)
        assert host.do("agents")["agents"] == {
            "known": [ids["known"], "completed", 1, False],
            "drained": [ids["drained"], "failed", 1, False],
            "undrained": [ids["undrained"], "completed", 1, False],
            "working": [ids["working"], "killed", 1, False],
            "idle": [ids["idle"], "completed", 1, False],
        }

        hosts.append(host := host.crash())  # nothing was confirmed: the same again, and no second `killed`
        assert sorted(host.drain()["tasks"]) == sorted(expected)

        hosts.append(host := host.crash())
        assert host.drain()["tasks"] == []
        assert host.do("send", name="working", text="go on")["status"] == "resumed"
        assert host.do("agents")["agents"]["working"] == [ids["working"], "live", 2, False]

        hosts.append(host := host.crash())
        assert host.drain()["tasks"] == [[ids["working"], "working", "killed", 2, None]]


@pytest.mark.rule("02.24", "06.13")
def test_what_a_user_has_stopped_stays_so_over_a_crash(home: Path) -> None:
    with told() as hosts:
        host = hosts[-1]
        made = host.do("start", name="worker")
        host.do("stop", name="worker")
        hosts.append(host := host.crash())
        assert host.do("agents")["agents"] == {"worker": [made["id"], "killed", 1, True]}
        assert host.do("send", name="worker", text="x")["status"] == "stopped_by_user"
        assert [task[2:4] for task in host.drain()["tasks"]] == [["killed", 1]]


@pytest.mark.rule("06.3", "11.6")
def test_peer_mail_in_the_main_queue_comes_again_marked_after_a_crash(home: Path) -> None:
    """What was handed out and not confirmed is marked; what was never handed out is not; what was confirmed is gone."""

    async def send(*texts: str) -> None:
        async with open_session("peer", handle_signals=False) as peer:
            for text in texts:
                assert isinstance(await peer.send("lead", text, summary="s"), Receipt)

    with told() as hosts:
        host = hosts[-1]
        asyncio.run(send("known"))
        assert host.drain(wait=True)["texts"] == [["known", False]]
        asyncio.run(send("handed out", "too"))
        assert host.drain(wait=True, confirm=False)["texts"] == [["handed out", False], ["too", False]]
        asyncio.run(send("never seen"))

        hosts.append(host := host.crash())
        assert host.drain(wait=True, confirm=False)["texts"] == [
            ["handed out", True],
            ["too", True],
            ["never seen", False],
        ]
        host.do("release")
        assert [redelivered for _, redelivered in host.drain()["texts"]] == [True, True, True]
        hosts.append(host := host.crash())
        assert host.drain()["texts"] == []


# ── at random moments ────────────────────────────────────────────────────────────────────────────


def busy(session_id: str, log: Path, rounds: int = 0) -> tuple[subprocess.Popen[str], str]:
    """Starts a host that never pauses; returns it and its session's id."""
    process = subprocess.Popen(
        [sys.executable, "-P", str(PARTIES / "agents_busy.py"), session_id, str(log), str(rounds)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the host did not open its session"
    return process, line.split()[0]


def judge(lines: list[list[str]]) -> Counter[str]:
    """What has to hold of all lives together; returns how often each status was told."""
    names: dict[str, str] = {}
    began: set[tuple[str, str]] = set()
    runs: dict[str, int] = {}
    status: dict[tuple[str, str], str] = {}
    known: set[tuple[str, str]] = set()
    told: set[tuple[str, str]] = set()
    for what, *words in lines:
        if what == "life":
            continue
        if what == "found":
            name, identity, state, run = words
            assert state != "unusable", f"{name} cannot be read after a crash"
            assert state != "live", f"{name} is live, and nobody runs it"
            assert names.setdefault(name, identity) == identity, f"{name} has become another one"
            assert int(run) >= runs.get(identity, 0), f"{name} has gone back to run {run}"
        elif what == "began":
            identity, run = words
            assert int(run) > runs.get(identity, 0), f"run {run} of {identity} began twice"
            runs[identity] = int(run)
            began.add((identity, run))
        elif what == "ended":
            key = words[0], words[1]
            assert status.setdefault(key, words[2]) == words[2]
        elif what == "told":
            key = words[0], words[1]
            assert key not in known, f"{key} is told again though it was confirmed"
            assert status.setdefault(key, words[2]) == words[2], (
                f"{key} ended as {status[key]} and as {words[2]}"
            )
            told.add(key)
        else:
            known.add((words[0], words[1]))
    # Whoever was killed right after it had confirmed has not written that down; it was told.
    assert began <= told, f"never told of: {began - told}"
    return Counter(status.values())


@pytest.mark.soak
@pytest.mark.timeout(0 if ROUNDS > 100 else 300)
@pytest.mark.rule("06.11", "06.13", "02.26")
def test_killed_at_any_moment_each_run_is_told_of_and_every_agent_stays_who_it_is(home: Path) -> None:
    print(f"seed {SEED}, {ROUNDS} rounds")
    chance = random.Random(SEED)
    log = home / "log"
    process, session_id = busy("-", log)
    try:
        for _ in range(ROUNDS):
            try:
                process.wait(chance.random() * LONGEST_LIFE)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
            process.wait(SECONDS)
            assert process.returncode == -signal.SIGKILL, "the host ended by itself"
            assert process.stdout is not None
            process.stdout.close()
            process, _ = busy(session_id, log)
        process.kill()
        process.wait(SECONDS)
        assert process.stdout is not None
        process.stdout.close()
        process, _ = busy(session_id, log, rounds=5)
        assert process.wait(SECONDS) == 0
        text = log.read_text()
        counted = judge([line.split() for line in text.splitlines()])
        print(dict(counted))
        assert counted["completed"] > ROUNDS, "too little happened for the test to mean anything"
    finally:
        process.kill()
        process.wait(SECONDS)
        if process.stdout is not None:
            process.stdout.close()
