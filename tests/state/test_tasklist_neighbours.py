"""A shared task list with a program on it that nobody here wrote the locks of: `proper-lockfile`, under Node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from postroom.core.tasks import Claimed, Created, Draft, mended
from postroom.state.tasklist import TaskList
from tests.partners import partner

HERE = Path(__file__).parent.parent
LIBRARY = ("proper-lockfile", "4.1.2")
EACH = 25
"""Tasks that each Node makes; ours make as many together."""


def started(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ends(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


@pytest.mark.rule("07.1", "07.21", "07.23")
def test_tasks_that_both_programs_make_and_claim_are_claimed_once(tmp_path: Path) -> None:
    library = partner(*LIBRARY)
    tmp_path.chmod(0o755)
    tasks = TaskList(str(tmp_path), "team", shared=True)
    made = tasks.create(Draft(subject="first"))
    assert isinstance(made, Created)
    script = library.script(HERE / "partners_js" / "task_claimer.mjs")
    ours = [sys.executable, str(HERE / "parties" / "tasker.py"), str(tmp_path), "team", "shared", "10"]
    processes = {who: started([*script, tasks.folder, who, str(EACH)]) for who in ("node-1", "node-2")}
    processes |= {who: started([*ours, who]) for who in ("our-1", "our-2", "our-3")}
    created = {"1"}
    owners: dict[str, str] = {}
    try:
        for process in processes.values():
            assert ends(process)[1].readline() == "ready\n"
        for process in processes.values():
            ends(process)[0].write("drain\n")
            ends(process)[0].flush()
        for number in range(EACH):
            made = tasks.create(Draft(subject=f"ours {number}"))
            assert isinstance(made, Created)
            assert made.task.id not in created
            created.add(made.task.id)
        for who, process in processes.items():
            while (line := ends(process)[1].readline()) != "none\n":
                what, task_id = line.split()
                if what == "created":
                    assert task_id not in created
                    created.add(task_id)
                else:
                    assert what == "claimed"
                    assert task_id not in owners
                    owners[task_id] = who
        while answer := tasks.claim_next("last", one_at_a_time=False):
            assert isinstance(answer, Claimed)
            owners[answer.task.id] = "last"
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    board = tasks.read()
    assert board.unreadable == {}
    assert len(created) == 1 + 3 * EACH
    assert set(board.tasks) == created == set(owners)
    assert {each.id: each.owner for each in board.tasks.values()} == owners
    assert mended(board) == ()
