"""A shared task list under real processes: fifty that claim at once, and writers that are killed at random points."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from postroom.core.taskfile import read_mark
from postroom.core.tasks import Created, Draft, mended
from postroom.state import files
from postroom.state.tasklist import TaskList

PARTY = Path(__file__).parent.parent / "parties" / "tasker.py"
CLAIMERS = 50
ROUNDS = int(os.environ.get("POSTROOM_TEST_ROUNDS", "6"))
"""Rounds of killing; `make soak` asks for thousands."""

STALE = 0.2
"""Seconds after which a killed process's directory lock is left over."""

KINDS = pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A private folder for task lists."""
    tmp_path.chmod(0o700)
    return str(tmp_path)


class Party:
    """One process on the list."""

    def __init__(self, folder: str, shared: bool, stale: float, name: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, str(PARTY), folder, "team", "shared" if shared else "own", str(stale), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def rest(self) -> list[list[str]]:
        """Whole lines that it said and nobody heard yet, after its end."""
        assert self.process.stdout is not None
        said = self.process.stdout.read()
        return [line.split() for line in said.split("\n")[:-1]]


@contextlib.contextmanager
def parties(count: int, folder: str, *, shared: bool, stale: float = 10.0) -> Generator[list[Party]]:
    """So many processes that are ready; none is left afterwards."""
    made = [Party(folder, shared, stale, f"member-{number}") for number in range(count)]
    try:
        for each in made:
            assert each.hear() == ["ready"]
        yield made
    finally:
        for each in made:
            each.process.kill()
            each.process.communicate()


@pytest.mark.rule("07.23")
@pytest.mark.parametrize(("shared", "claimers_count"), [(False, CLAIMERS), (True, 12)], ids=["own", "shared"])
def test_of_fifty_claimers_one_gets_each_task(folder: str, shared: bool, claimers_count: int) -> None:
    tasks = TaskList(folder, "team", shared=shared)
    count = 30
    for number in range(count):
        assert isinstance(tasks.create(Draft(subject=f"task {number}")), Created)
    with parties(claimers_count, folder, shared=shared) as claimers:
        for each in claimers:
            each.tell("claim 1")
        heard = {each.name: each.hear() for each in claimers}
        assert Counter(map(tuple, heard.values())) == {
            ("claimed", "1"): 1,
            ("already_claimed",): claimers_count - 1,
        }
        owners = {"1": next(name for name, said in heard.items() if said == ["claimed", "1"])}
        for each in claimers:
            each.tell("drain")
        for each in claimers:
            while (said := each.hear()) != ["none"]:
                assert said[0] == "claimed"
                assert said[1] not in owners
                owners[said[1]] = each.name
    there = tasks.read().tasks
    assert {each.id: each.owner for each in there.values()} == owners
    assert len(owners) == count
    assert {each.status for each in there.values()} == {"in_progress"}


@pytest.mark.soak
@pytest.mark.timeout(0 if ROUNDS > 100 else 60)
@pytest.mark.rule("07.23", "11.25")
@KINDS
def test_killed_at_any_instruction_no_id_comes_twice_and_what_was_done_stays(
    folder: str, shared: bool
) -> None:
    dice = random.Random(7)
    tasks = TaskList(folder, "team", shared=shared, stale_seconds=STALE)
    created: set[str] = set()
    deleting: set[str] = set()
    deleted: set[str] = set()
    completed: set[str] = set()
    owners: dict[str, str] = {}
    edges: set[tuple[str, str]] = set()
    for seed in range(ROUNDS):
        heard: list[tuple[str, list[str]]] = []
        with parties(3, folder, shared=shared, stale=STALE) as writers:
            for number, each in enumerate(writers):
                each.tell(f"work {3 * seed + number}")
            for each in writers:
                for _ in range(dice.randrange(1, 25)):
                    heard.append((each.name, each.hear()))
                each.process.send_signal(signal.SIGKILL)
                assert each.process.wait() == -signal.SIGKILL
            for each in writers:
                heard += [(each.name, line) for line in each.rest()]
        for name, (what, task_id, *others) in heard:
            match what:
                case "created":
                    assert task_id not in created
                    created.add(task_id)
                case "claimed":
                    assert task_id not in owners
                    owners[task_id] = name
                case "blocked":
                    edges |= {(other, task_id) for other in others}
                case _:
                    {"deleting": deleting, "deleted": deleted, "completed": completed}[what].add(task_id)
        # One more step, as the next process takes it, finds everything well and leaves nothing behind.
        made = tasks.create(Draft(subject="after"))
        assert isinstance(made, Created)
        assert made.task.id not in created
        created.add(made.task.id)
        board = tasks.read()
        there = board.tasks
        assert board.unreadable == {}
        assert mended(board) == ()
        assert created - deleting <= set(there)
        assert not deleted & set(there)
        assert all(there[each].owner == owner for each, owner in owners.items() if each in there)
        for one, other in edges:
            if one in there and other in there:
                assert one in there[other].blocked_by
                assert other in there[one].blocks
        assert all(there[each].status == "completed" for each in completed if each in there)
        mark = read_mark(Path(tasks.folder, ".highwatermark").read_bytes())
        assert mark is not None
        assert mark >= max(map(int, there))
        names = os.listdir(tasks.folder)
        assert not [name for name in names if files.is_temporary(name)]
    assert len(created) > ROUNDS
