"""A process that works on a shared task list, for tests that start many and kill some.

usage: tasker.py TASKS_FOLDER LIST own|shared STALE_SECONDS NAME

Says `ready`, then obeys lines: `claim ID` (answers `claimed ID` or the refusal's code), `drain` (claims the next one until
there is none, answers `claimed ID` for each and `none`), `work SEED` (random steps until it is killed, each of which is
said when it is done; a deletion before, too).
"""

from __future__ import annotations

import random
import sys

from postroom.core.tasks import Change, Claimed, Created, Draft, TaskRefusal, Updated
from postroom.state.tasklist import TaskList


def say(*words: str) -> None:
    print(*words, flush=True)


def told(answer: Claimed | TaskRefusal | None) -> None:
    match answer:
        case Claimed():
            say("claimed", answer.task.id)
        case TaskRefusal():
            say(answer.code)
        case None:
            say("none")


def work(tasks: TaskList, name: str, seed: int) -> None:
    dice = random.Random(seed)
    while True:
        there = list(tasks.read().tasks)
        some = tuple(dice.sample(there, min(len(there), dice.randrange(3))))
        match dice.choice("mmcedddn") if there else "m":
            case "m":
                made = tasks.create(Draft(subject=f"{name} {seed}", description="x" * dice.randrange(5000)))
                if isinstance(made, Created):
                    say("created", made.task.id)
            case "c":
                taken = tasks.claim_next(name, one_at_a_time=False)
                if isinstance(taken, Claimed):
                    say("claimed", taken.task.id)
            case "e":
                target = dice.choice(there)
                if isinstance(tasks.update(target, Change(add_blocked_by=some)), Updated):
                    say("blocked", target, *some)
            case "d" if len(there) > 8:
                target = dice.choice(there)
                say("deleting", target)
                tasks.delete(target)
                say("deleted", target)
            case _:
                target = dice.choice(there)
                if isinstance(tasks.update(target, Change(status="completed")), Updated):
                    say("completed", target)


def main(folder: str, list_id: str, kind: str, stale_seconds: str, name: str) -> None:
    """Obeys."""
    tasks = TaskList(folder, list_id, shared=kind == "shared", stale_seconds=float(stale_seconds))
    say("ready")
    for line in sys.stdin:
        match line.split():
            case ["claim", task_id]:
                told(tasks.claim(task_id, name))
            case ["drain"]:
                while answer := tasks.claim_next(name, one_at_a_time=False):
                    told(answer)
                say("none")
            case ["work", seed]:
                work(tasks, name, int(seed))
            case _:
                raise SystemExit(f"not understood: {line}")


if __name__ == "__main__":
    main(*sys.argv[1:])
