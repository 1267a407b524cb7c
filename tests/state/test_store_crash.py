"""Holds, rules, notices and subscriptions through kills: the twin in memory says what must be there afterwards."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from postroom.core.message import Notice
from postroom.state.keeping import Retention, Store
from postroom.state.memory_store import MemoryStore
from tests.state.stores import BOB, NOW, later, message, opened

ROUNDS = int(os.environ.get("POSTROOM_TEST_ROUNDS", "12"))
"""Kills of a writing process; `make soak` asks for thousands."""

Dice = random.Random


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A session's own folder."""
    made = tmp_path / "session"
    made.mkdir(mode=0o700)
    return str(made)


def arrive(store: Store, dice: Dice, name: str) -> None:
    came = message(name, text="x" * dice.choice([1, 500, 20_000]))
    store.add(
        later(came) if dice.random() < 0.3 else came,
        body=name,
        verdict=dice.choice(["accepted", "held", "held", "held", "refused"]),
        cause="mode-mismatch",
        scope="default",
        rung="class",
        expires_at=dice.choice([None, NOW]),
        detail="why",
    )


def release(store: Store, dice: Dice, name: str) -> None:
    if holds := store.holds():
        hold = dice.choice(holds)
        store.release_hold(hold.row, NOW, approved_by=dice.choice([None, "user"]), detail=name)
        store.owe(hold.message.msg_id, "uds:/a", "1:2", b"delivered", NOW)


def end(store: Store, dice: Dice, name: str) -> None:
    if holds := store.holds():
        hold = dice.choice(holds)
        store.end_hold(hold.row, dice.choice(["denied", "expired", "evicted"]), NOW, name)
        store.owe(hold.message.msg_id, "uds:/a", "1:2", b"ended", NOW)


def change(store: Store, dice: Dice, name: str) -> None:
    if holds := store.holds():
        store.change_hold(dice.choice(holds).row, "repo-setting", "project", name, dice.choice([None, NOW]))


def rule(store: Store, dice: Dice, name: str) -> None:
    if dice.random() < 0.5 and (rules := store.rules()):
        store.drop_rule(dice.choice(rules).id)
    else:
        store.add_rule(dice.choice("abcd"), name, NOW)


def notice(store: Store, dice: Dice, name: str) -> None:
    if dice.random() < 0.5:
        store.add_notice(Notice(kind="held", at=NOW, msg_id=name))
    else:
        store.drop_notices([row for row, _ in store.notices()[:2]])


def pay(store: Store, dice: Dice, name: str) -> None:
    del name
    store.paid([owed.row for owed in store.owed() if dice.random() < 0.5])


def watch(store: Store, dice: Dice, name: str) -> None:
    mine = dice.random() < 0.5
    there = store.subscriptions(mine)
    if there and dice.random() < 0.5:
        store.unsubscribe(dice.choice(there).msg_id, mine=mine)
    else:
        store.subscribe(name, mine=mine, identity=BOB.identity, name="bob", at=NOW)


GROUPED: tuple[Callable[[Store, Dice, str], None], ...] = (
    *(arrive, arrive, release, end, change),
    *(rule, notice, pay, watch),
)


def write(store: Store, dice: Dice, name: str, committed: Callable[[], None]) -> None:
    """One group, whole or not there; or what commits by itself, step by step."""
    if dice.random() < 0.2:
        taken = store.take(name, NOW, limit=3)
        committed()
        getattr(store, dice.choice(["confirm", "release"]))(name, NOW)
        committed()
        for each in taken[:1]:
            store.answered(each.msg_id, NOW)
        store.commit()
    else:
        for place in range(dice.randint(1, 4)):
            dice.choice(GROUPED)(store, dice, f"{name}-{place}")
        store.commit()
    committed()


def write_until_killed(folder: str, report: int, seed: int) -> None:
    """Writes group after group, and one byte for each that is committed."""
    store, dice = opened(folder), random.Random(seed)
    number = 0
    while True:
        number += 1
        write(store, dice, f"{seed}-{number}", lambda: void(os.write(report, b".")))


def void(_: object) -> None:
    """Throws a value away."""


def shown(store: Store) -> tuple[object, ...]:
    """All that can be seen of a store; of what is long past the newest."""
    told = (
        store.rules(),
        store.owed(),
        store.notices(),
        store.subscriptions(True),
        store.subscriptions(False),
    )
    log = store.log(limit=1_000)
    names = sorted({step.msg_id for _, step in log[-300:]})
    kept = [store.find(name) for name in names]
    settled = [store.settled("alice-session", name) for name in names]
    return (store.holds(), store.waiting(), store.unread, *told, log, kept, settled)


class Enough(Exception):
    """The model has come to where the killed process was."""


def after(model: MemoryStore, seed: int, commits: int) -> MemoryStore:
    """What a store holds in which a process wrote so much before it was killed; the model itself stays."""
    done = 0
    copy = model.reopened(NOW)
    model.failing = ""

    def count() -> None:
        nonlocal done
        done += 1
        if done == commits:
            raise Enough

    dice = random.Random(seed)
    number = 0
    try:
        while commits:
            number += 1
            write(copy, dice, f"{seed}-{number}", count)
    except Enough:
        pass
    return copy.reopened(NOW)


@pytest.mark.soak
@pytest.mark.timeout(0 if ROUNDS > 100 else 60)
@pytest.mark.rule("11.4", "11.25", "03.47", "05.27")
def test_killed_at_any_instruction_no_hold_rule_or_notice_is_lost_or_half_there(folder: str) -> None:
    model = MemoryStore("desk", retention=Retention())
    dice = random.Random(3)
    for seed in range(ROUNDS):
        hear, report = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(hear)
                write_until_killed(folder, report, seed)
            finally:
                os._exit(1)
        os.close(report)
        enough = dice.randrange(1, 60)
        heard = b""
        while len(heard) < enough and (more := os.read(hear, 1)):
            heard += more
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        while more := os.read(hear, 65_536):
            heard += more
        os.close(hear)
        with closing(opened(folder)) as store:
            found = shown(store)
            assert store.problems == []
        # What was said to be committed is there, and of what came next all or nothing.
        allowed = [after(model, seed, len(heard)), after(model, seed, len(heard) + 1)]
        (model, *_) = [each for each in allowed if shown(each) == found]
