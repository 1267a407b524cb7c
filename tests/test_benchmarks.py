"""The benchmarks measure what they say they measure. No figure is judged here: a machine under tests is no scale."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import inside, report, rest
from benchmarks.__main__ import ROWS, main
from benchmarks.harness import (
    ITSELF,
    Bench,
    Case,
    Figures,
    Goal,
    Group,
    Measured,
    beside,
    floor,
    measure,
    on_core,
    ours,
    peer,
    rotated,
)

ROOT = Path(__file__).parents[1]

WANTED = "1 2 3 3b 4 5 6 7 8 8b 8c 11 11c 12 13 14 15 16".split()
"""The rows of chapter 12 whose paths are built."""


def given(*values: float) -> Any:
    """A case's work: hands out these figures, a figure a round."""
    return iter(values).__next__


def group(*cases: Case, goals: tuple[Goal, ...] = (), pin: str = "") -> Group:
    """A group that is run without warming up."""
    return Group(title="work", cases=cases, goals=goals, pin=pin, warm=False)


def figures(measured: Measured, name: str) -> Figures:
    """What one case gave."""
    found = measured.figures_of(name)
    assert found is not None
    return found


# ── how it is measured ───────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("12.31")
def test_each_round_runs_every_case_once_and_begins_with_the_next() -> None:
    ran: list[str] = []

    def noting(name: str) -> Any:
        return lambda: ran.append(name) or 1.0

    measure(group(floor("a", noting("a")), ours("b", noting("b")), beside("c", noting("c"))), 4)
    assert "".join(ran) == "abcbcacababc"
    assert rotated([], 3) == []


@pytest.mark.rule("12.31")
def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    """Over the medians it would be 4 / 10; the machine was slow in the first round, for both alike."""
    measured = measure(group(floor("f", given(100, 10, 1)), ours("o", given(300, 4, 3))), 3)
    assert measured.ratio("o", "f") == 3
    assert figures(measured, "o").median == 4


@pytest.mark.rule("12.31")
def test_a_round_of_slices_counts_their_median() -> None:
    """A neighbour that takes the processor for one slice does not show."""
    sliced = Group(
        title="work",
        cases=(floor("f", given(1, 90, 1, 2, 2, 2)), ours("o", given(4, 4, 80, 6, 6, 6))),
        slices=3,
        warm=False,
    )
    measured = measure(sliced, 2)
    assert figures(measured, "f").values == [1, 2]
    assert figures(measured, "o").values == [4, 6]


def test_what_warms_up_is_not_counted() -> None:
    measured = measure(Group(title="work", cases=(floor("f", given(9, 1, 1)), ours("o", given(9, 2, 2)))), 2)
    assert figures(measured, "f").values == [1, 1]
    assert figures(measured, "o").values == [2, 2]


@pytest.mark.rule("12.31")
def test_a_peer_that_is_not_installed_or_fails_is_a_case_that_says_so() -> None:
    def failing() -> float:
        raise OSError("gone")

    goal = Goal(limit=1, over="absent", text="faster than absent")
    absent, broken = peer("absent", None, "not installed: absent"), peer("broken", failing)
    measured = measure(group(floor("f", given(1)), ours("o", given(2)), absent, broken, goals=(goal,)), 1)
    assert figures(measured, "absent").missing == "not installed: absent"
    assert "gone" in figures(measured, "broken").missing
    assert figures(measured, "o").values == [2]
    assert (measured.verdicts[0].ratio, measured.verdicts[0].reached) == (None, None)
    text = "\n".join(report.table(measured))
    assert "not installed: absent" in text
    assert "faster than absent: nothing to judge by" in text


def test_a_peer_that_is_there_is_measured() -> None:
    measured = measure(group(floor("f", given(1)), ours("o", given(2)), peer("p", given(3), "absent")), 1)
    assert figures(measured, "p").values == [3]
    assert measured.ratio("p", "f") == 3


@pytest.mark.parametrize("broken", [floor, ours, beside])
def test_a_floor_or_ours_that_fails_ends_the_row(broken: Any) -> None:
    def failing() -> float:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        measure(group(broken("x", failing)), 1)


@pytest.mark.parametrize(
    ("goal", "ratio", "reached"),
    [
        (Goal(limit=2, text=""), 2, True),
        (Goal(limit=1.9, text=""), 2, False),
        (Goal(limit=0.5, over="p", text=""), 0.5, True),
        (Goal(limit=0.4, over="p", text=""), 0.5, False),
        (Goal(limit=4, of="o2", text=""), 3, True),
        (Goal(limit=0.5, of="o", over="o2", text=""), 2 / 3, False),
        (Goal(limit=4, over=ITSELF, text=""), 4, True),
        (Goal(limit=3, over=ITSELF, text=""), 4, False),
    ],
)
def test_a_goal_is_judged_over_the_case_that_it_names(goal: Goal, ratio: float, reached: bool) -> None:
    cases = (floor("f", given(2)), ours("o", given(4)), ours("o2", given(6)), peer("p", given(8)))
    verdict = measure(group(*cases, goals=(goal,)), 1).verdicts[0]
    assert verdict.ratio == pytest.approx(ratio)
    assert verdict.reached is reached


@pytest.mark.rule("12.31")
def test_two_cores_are_shown_and_not_judged() -> None:
    goals = (Goal(limit=1, text="as fast"),)
    measured = measure(group(floor("f", given(1)), ours("o", given(5)), goals=goals, pin="split"), 1)
    assert (measured.verdicts[0].ratio, measured.verdicts[0].reached) == (5, None)
    assert "0 of 0 goals" in next(report.summary([("4", "socket", measured)]))


def test_over_nothing_there_is_no_ratio() -> None:
    measured = measure(group(floor("f", given(0)), ours("o", given(0)), goals=(Goal(limit=1, text=""),)), 1)
    assert measured.ratio("o", "f") is None
    assert measured.verdicts[0].reached is None


@pytest.mark.rule("12.31")
def test_figures_to_believe_come_from_five_rounds_or_more() -> None:
    assert Bench("full").rounds >= 5
    assert Bench("quick").rounds >= 5


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins no process")
def test_a_process_that_is_started_on_a_core_stays_there_and_this_one_does_not() -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    with on_core(core):
        look = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
        done = subprocess.run(look, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(core)]
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="row 15 reads what Linux counts")
def test_the_kernel_is_asked_for_what_a_process_ran_and_how_often_it_woke() -> None:
    """A process that works and sleeps fifty times, against what was counted before it began."""
    busy = "import time; input()\nfor _ in range(50): sum(range(20_000)); time.sleep(0.001)\nprint(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = rest.look(process.pid)
        process.stdin.write(b"\n")
        process.stdout.readline()
        after = rest.look(process.pid)
        process.stdin.write(b"\n")
    assert after.wakes - before.wakes >= 50
    assert after.cpu > before.cpu
    assert after.resident > 0


def test_the_tasks_of_a_piece_of_work_are_counted() -> None:
    async def nothing() -> None:
        pass

    async def work() -> None:
        await asyncio.gather(nothing(), nothing(), nothing())

    async def both() -> tuple[float, float]:
        return await inside.tasks_made(work, 2), await inside.tasks_made(nothing, 2)

    assert asyncio.run(both()) == (1.5, 0)


# ── what is said ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2.5, "s", "2.50 s"),
        (0.0025, "s", "2.50 ms"),
        (2.5e-6, "s", "2.50 µs"),
        (25e-9, "s", "25 ns"),
        (1584.4, "B", "1,584 B"),
        (3 * 1_048_576, "B", "3.0 MiB"),
        (0.25, "/s", "0.25 /s"),
        (0.0, "tasks", "0"),
        (1.5, "tasks", "1.5"),
    ],
)
def test_a_figure_is_written_for_people(value: float, unit: Any, text: str) -> None:
    assert report.shown(value, unit) == text


def test_the_summary_begins_with_the_count_and_names_what_was_missed() -> None:
    goals = (Goal(limit=2, text="≤ 2 × f"), Goal(limit=9, text="≤ 9 × f"))
    measured = measure(group(floor("f", given(1)), ours("o", given(5)), goals=goals), 1)
    lines = list(report.summary([("4", "socket", measured)]))
    assert lines[0].strip() == "1 of 2 goals reached"
    assert lines[1:] == ["  missed: row 4, work: ≤ 2 × f: 5.00 ×, MISSED"]


def test_the_document_has_every_figure() -> None:
    goals = (Goal(limit=2, text="≤ 2 × f"),)
    cases = (floor("f", given(1, 1)), ours("o", given(5, 5)), peer("p", None, "not installed"))
    document = report.document(
        Bench("quick"), [("4", "socket", measure(group(*cases, goals=goals), 2))], {"5": "x"}
    )
    assert json.loads(json.dumps(document)) == document
    (row,) = document["rows"]
    assert [case["rounds"] for case in row["cases"]] == [[1, 1], [5, 5], []]
    assert [case["ratio"] for case in row["cases"]] == [1, 5, None]
    assert row["cases"][2]["missing"] == "not installed"
    assert row["goals"] == [
        {"goal": "≤ 2 × f", "of": "o", "over": "f", "limit": 2, "ratio": 5, "reached": False}
    ]
    assert document["failed"] == {"5": "x"}


def test_a_row_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["3c"])
    assert ended.value.code == 2
    assert "no such row: 3c" in capsys.readouterr().err


def test_a_row_that_cannot_be_measured_is_said_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(bench: Bench) -> Any:
        raise OSError("no such machine")
        yield

    def whole(bench: Bench) -> Any:
        yield group(floor("f", given(1)), ours("o", given(5)), goals=(Goal(limit=2, text="≤ 2 × f"),))

    monkeypatch.setattr("benchmarks.__main__.ROWS", {"1": ("broken", broken), "2": ("whole", whole)})
    written = tmp_path / "figures.json"
    assert main(["--smoke", "--json", str(written)]) == 1
    out = capsys.readouterr().out
    assert "no such machine" in out
    assert "0 of 1 goals reached" in out
    document = json.loads(written.read_text())
    assert [row["row"] for row in document["rows"]] == ["2"]
    assert list(document["failed"]) == ["1"]
    assert main(["--smoke", "2"]) == 0, "a goal that is missed is no failure"


# ── every row ────────────────────────────────────────────────────────────────────────────────────


def test_every_row_is_there() -> None:
    assert list(ROWS) == WANTED


@pytest.mark.rule("12.31")
@pytest.mark.timeout(180)
def test_every_row_runs_and_yields_floor_and_ours(tmp_path: Path) -> None:
    """One round of very few, as a process of its own: rows pin this process, and start many others."""
    written = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--smoke", "--json", str(written)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    rows: list[dict[str, Any]] = json.loads(written.read_text())["rows"]
    assert list(dict.fromkeys(row["row"] for row in rows)) == WANTED
    for row in rows:
        kinds = [case["kind"] for case in row["cases"]]
        assert kinds.count("floor") == 1, row["group"]
        assert "ours" in kinds, row["group"]
        for case in row["cases"]:
            # At rest nothing at all is the best figure there can be, and so is no task for a message.
            nothing = row["unit"] == "tasks" or (row["row"] == "15" and row["unit"] != "B")
            at_least = 0 if nothing else 1e-9
            assert case["kind"] == "peer" or case["median"] >= at_least, (row["group"], case)
            assert case["median"] is not None or case["missing"], (row["group"], case)
