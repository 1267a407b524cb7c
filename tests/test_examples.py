"""The examples, run as a reader would run them: what they print is what really happened, and they end by themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT

EXAMPLES = ROOT / "examples"
SECONDS = 50

ON_SDKS = {"with_openai_agents_sdk.py", "with_claude_agent_sdk.py"}
"""Run by `make test-sdks`."""


def run(name: str, folder: Path) -> str:
    """Runs an example; it must succeed and complain of nothing. Returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


def parts(said: str) -> dict[str, str]:
    """What stands below each headline `── …`."""
    found = re.split(r"(?m)^── (.*)$", said)
    return dict(zip(found[1::2], found[2::2], strict=True))


def framed(text: str, sender: str, words: str) -> bool:
    """Whether a text has this message, as from this sender."""
    return (
        re.search(rf'<agent-message from="{sender}[^>]*>\n{re.escape(words)}\n</agent-message>', text)
        is not None
    )


@pytest.mark.rule("06.5", "06.7")
def test_steering_is_in_the_next_request_and_not_in_the_one_under_way(home: Path) -> None:
    said = run("steered_subagents.py", home)
    told = parts(said)
    for name, sender, words in (
        ("schema", "main", "It is called tenant_id now."),
        ("docs", "main", "Leave chapter 3 as it is."),
        ("checks", "schema", "tenant is gone; use tenant_id."),
    ):
        first, second = told[f"{name}, request 1"], told[f"{name}, request 2"]
        assert words not in first
        assert first.count("\n") == 2  # the task, and nothing else
        assert framed(second, sender, words)
        assert second.index("tool: three files") < second.index(words)  # behind the tool's result
        assert second.count("\nuser: ") == 1 + 1
        assert (
            said.index(f"── {name}, request 1")
            < said.index(f"── to {name}")
            < said.index(f"── {name}, request 2")
        )
    main = told["main, next request"]
    assert framed(main, "schema", "The old name is still in two views.")
    assert len(re.findall(r'<task-notification [^>]*status="completed"[^>]*run="1"', main)) == 3
    assert main.count("messages on the way: 1.") == 3


@pytest.mark.rule("06.13", "02.23")
def test_an_agent_goes_on_after_its_program_was_killed(home: Path) -> None:
    told = parts(run("resume_after_crash.py", home))
    (killed,) = [line for line in told if line.startswith("killed ")]
    agent = killed.split()[1]
    first, second = told["main is told, once"], told["main is told, after the resume"]
    assert re.findall(r'<task-notification task-id="([^"]+)"[^>]*status="(\w+)"[^>]*run="(\d)"', first) == [
        (agent, "killed", "1")
    ]
    assert re.findall(r'<task-notification task-id="([^"]+)"[^>]*status="(\w+)"[^>]*run="(\d)"', second) == [
        (agent, "completed", "2")
    ]
    (remembered,) = [text for line, text in told.items() if line.startswith("indexer remembers")]
    assert "indexer remembers ['indexed a.py', 'indexed b.py'], and reads" in told
    assert framed(remembered, "main", "Go on, and leave c.py out.")
    assert "indexed d.py" in second
    assert any(line.startswith("to indexer: resumed.") for line in told)


@pytest.mark.rule("06.14")
def test_observers_warn_and_can_do_nothing_else(home: Path) -> None:
    told = parts(run("observer.py", home))
    worker, main = told["worker reads"], told["main reads"]
    assert re.search(r'<observer-report [^>]*observer="safety[^>]*severity="warning"', worker)
    assert "has no WHERE and empties the table." in worker
    assert "Half of the budget" not in worker
    assert re.search(r'<observer-report [^>]*observer="budget[^>]*severity="info"', main)
    assert "has no WHERE" not in main
    assert "ran 2 of 3" in main
    assert "to safety: not_found" in told
    assert "safety is off: denied_by_settings" in told


def test_every_example_is_run_by_some_test_and_named_where_a_reader_looks() -> None:
    there = {file.name for file in EXAMPLES.glob("*.py")}
    run_here = set(re.findall(r'run\("(\w+\.py)"', Path(__file__).read_text()))
    assert there == run_here | ON_SDKS
    on_sdks = Path(__file__).with_name("sdks") / "test_examples.py"
    assert set(re.findall(r'"examples/(with_\w+\.py)"', on_sdks.read_text())) == ON_SDKS
    pages = "".join((ROOT / f"docs/{page}.md").read_text() for page in ("agents", "teams"))
    for name in there:
        assert f"(../examples/{name})" in pages


@pytest.mark.rule("07.22", "07.23", "07.18", "07.20")
def test_a_team_shares_its_tasks_and_is_sent_home(home: Path) -> None:
    said = run("team.py", home)
    done = re.findall(r"── (\w+) tells\nI have done #(\d)", said)
    assert sorted(number for _, number in done) == ["1", "2", "3", "4", "5"]
    assert {who for who, _ in done} <= {"schema", "tests", "docs"}
    assert done[0][1] == "1"  # the others wait for it
    at_the_end = parts(said)["at the end"].strip().splitlines()
    assert at_the_end[0] == "3 members have gone, with [0, 0, 0]"
    assert [line.split()[1] for line in at_the_end[1:]] == ["completed:"] * 5
