"""Kill the receiver again and again: what was acknowledged is handed out, once as new, in order (P1, P3).

A short form runs with the other tests; `make soak` runs a thousand rounds. A round: ten processes send at full
speed, the receiver is killed with SIGKILL at a random moment and resumed under its session id.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.desk import SECONDS

PARTIES = Path(__file__).with_name("parties")
SENDERS = 10
ROUNDS = int(os.environ.get("POSTROOM_TEST_ROUNDS", "12"))
SEED = int(os.environ.get("POSTROOM_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)

LONGEST_LIFE = 0.12
"""Seconds that the receiver lives at most after it can be reached: long enough to be killed at work."""


def start(program: str, *words: str) -> tuple[subprocess.Popen[str], str]:
    """Starts a party and waits for its first line; returns it and its session id."""
    process = subprocess.Popen(
        [sys.executable, "-P", str(PARTIES / program), *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"{program} {words} did not open its session"
    return process, line.split()[0]


def rows(path: Path) -> list[list[str]]:
    """The whole lines of a log; a last line that a kill cut short was never confirmed."""
    text = path.read_text() if path.exists() else ""
    return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]


def judge(handed: list[list[str]], acknowledged: dict[str, list[list[str]]]) -> None:
    """The three promises, over everything that happened so far."""
    seen = {row[0] for row in handed}
    for name, sent in acknowledged.items():
        lost = [row for row in sent if row[0] not in seen]
        assert not lost, f"{len(lost)} acknowledged messages of {name} were never handed out: {lost[:3]}"
    new = [row[0] for row in handed if row[1] == "0"]
    assert len(new) == len(set(new)), "a message was handed out twice as new"
    first: dict[str, int] = {}
    reached: dict[str, int] = {}
    for msg_id, _, name, number in handed:
        if msg_id not in first:
            first[msg_id] = int(number)
            assert int(number) > reached.get(name, 0), f"{name}: {number} came after {reached[name]}"
            reached[name] = int(number)


@pytest.mark.soak
@pytest.mark.timeout(0 if ROUNDS > 100 else 300)
@pytest.mark.rule("11.4", "11.5", "11.6", "11.25", "05.27")
def test_killed_receivers_lose_nothing_and_repeat_nothing(home: Path) -> None:
    """Show 4: rounds of SIGKILL; the seed is printed, so that a failing run can be repeated."""
    print(f"seed {SEED}, {ROUNDS} rounds")
    chance = random.Random(SEED)
    log, stop = home / "handed", home / "stop"
    sink, sink_id = start("sink.py", "-", str(log))
    sources = [start("source.py", f"s{n}", "sink", str(home / f"s{n}"), str(stop))[0] for n in range(SENDERS)]
    try:
        for _ in range(ROUNDS):
            end = chance.random() * LONGEST_LIFE
            try:
                sink.wait(end)
            except subprocess.TimeoutExpired:
                sink.send_signal(signal.SIGKILL)
            sink.wait(SECONDS)
            assert sink.returncode == -signal.SIGKILL, "the receiver ended by itself"
            assert sink.stdout is not None
            sink.stdout.close()
            assert all(source.poll() is None for source in sources)
            sink, _ = start("sink.py", sink_id, str(log))
        stop.touch()
        for source in sources:
            assert source.wait(SECONDS) == 0
        acknowledged = {f"s{n}": rows(home / f"s{n}") for n in range(SENDERS)}
        wanted = {row[0] for sent in acknowledged.values() for row in sent}
        end = time.monotonic() + SECONDS
        while not wanted <= {row[0] for row in rows(log)} and time.monotonic() < end:
            time.sleep(0.05)  # what is missing after this is lost, and the judge says so
        judge(rows(log), acknowledged)
        tries = sum(int(row[2]) - 1 for sent in acknowledged.values() for row in sent)
        again = sum(row[1] == "1" for row in rows(log))
        print(f"{len(wanted)} acknowledged, {tries} tried again, {again} handed out again and marked so")
        assert len(wanted) > ROUNDS, "too little was sent for the test to mean anything"
    finally:
        for process in (sink, *sources):
            process.kill()
            process.wait(SECONDS)
            if process.stdout is not None:
                process.stdout.close()
