"""The pages about the agents inside a program, held against the code: nothing that a host uses is missing or stale."""

from __future__ import annotations

import re
from inspect import getsource, signature
from typing import Any, get_args

import pytest

import postroom
from postroom.core.report import MAX_REPORT, SEVERITIES
from postroom.core.runs import AgentState
from postroom.lifecycle import EVENT_SECONDS, VETOABLE
from postroom.resuming import ALLOW_SECONDS, RESUME_SECONDS
from tests.pages import agree, page_of, spans, table_rows

PAGE = "docs/agents-reference.md"

INNER: dict[str, str] = {
    "Agents": "apply context by_token came closed deliver dropped environment finish give_back can_take gone_by guard hand is_over keep keep_anyhow kept log mind progress record_send report resume rows "
    "session start_seconds started tell ask token_for transcript_of voice_of chain_token main_target background",
    "Agent": "cancel_run chain_token ended_future flight guard guard_again has_guard has_turn host life may_write_to_main pending recorded resting ring run_ended "
    "takes took turns unwritten voice",
    "Observer": "host origin",
    "MainLoop": "close nudge put",
    "Batch": "",
}
"""What the parts call of each other: no host has a use for it."""


def names_of(span: str) -> str:
    """What a row's code span is about: `await start(name, …)` → start."""
    found = re.search(r"(\w+)(?:\(|$| as )", span.removeprefix("async with ").removeprefix("await "))
    assert found, span
    return found[1]


def public(kind: type[Any]) -> set[str]:
    """Public names of a class, those that its constructor sets among them."""
    made = set(re.findall(r"self\.([a-z]\w*)\b[^=\n]*=[^=]", getsource(kind.__init__)))
    return {name for name in {*dir(kind), *made} if not name.startswith("_")}


@pytest.mark.parametrize("name", INNER)
def test_everything_that_a_host_uses_has_its_row(name: str) -> None:
    kind: type[Any] = getattr(postroom, name)
    rows = table_rows(page_of(PAGE).sections, f"of `{name.lower()}`")
    inner = set(INNER[name].split())
    assert inner <= public(kind), f"gone from the code: {inner - public(kind)}"
    agree({names_of(span) for span in rows}, public(kind) - inner)


@pytest.mark.parametrize("name", ["Agents", "Agent", "Observer", "MainLoop"])
def test_a_method_is_shown_with_its_arguments(name: str) -> None:
    kind: type[Any] = getattr(postroom, name)
    for span in table_rows(page_of(PAGE).sections, f"of `{name.lower()}`"):
        if "(" in span:
            shown = set(re.findall(r"\w+", span.partition("(")[2]))
            taken = set(signature(getattr(kind, names_of(span))).parameters) - {"self"}
            assert shown - {"as", "run"} == taken, span


def test_every_argument_of_agents_has_its_row() -> None:
    rows = table_rows(page_of(PAGE).sections, "argument of `agents`")
    agree(rows, set(signature(postroom.Agents).parameters))


def test_every_hook_has_its_row_and_says_whether_it_may_veto() -> None:
    rows = table_rows([page_of(PAGE).section("Hooks")], "hook")
    agree(rows, set(signature(postroom.Hooks).parameters))
    assert {hook for hook, row in rows.items() if "Veto" in row["when"]} == VETOABLE


def test_numbers_and_words_are_the_codes() -> None:
    reference, page = page_of(PAGE).prose, page_of("docs/agents.md").prose
    assert f"at most {MAX_REPORT:,} characters" in reference
    assert f"{RESUME_SECONDS:g} seconds where nothing else is said" in reference
    assert f"over {ALLOW_SECONDS:g} seconds" in reference
    assert f"It has {RESUME_SECONDS:g} seconds" in page
    assert EVENT_SECONDS == 5
    assert "after five seconds" in page
    assert set(SEVERITIES) <= set(spans(reference))
    assert set(get_args(AgentState)) <= set(spans(page)) | {"live"}


def test_the_loop_that_is_shown_is_short() -> None:
    """From a loop to subagents that can be steered: as many lines of code as the page says that it takes."""
    (program,) = [
        fence.text
        for fence in page_of("docs/agents.md").fences
        if fence.text.rstrip().endswith("asyncio.run(main())")
    ]
    lines = [line for line in program.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(lines) <= 23  # twenty, and what stands for the model and starts the program
