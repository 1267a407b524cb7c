"""The page about teams says of each frame what the table of roles says, and names the tools that there are."""

from __future__ import annotations

import re

import pytest

from postroom.core.contract import TOOL_NAMES
from postroom.core.roles import ROWS
from tests.pages import agree, page_of, table_rows

PAGE = page_of("docs/teams.md")


@pytest.mark.rule("07.12")
def test_every_frame_has_its_row_with_its_roles() -> None:
    rows = table_rows(PAGE.sections, "frame")
    agree(rows, ROWS.keys())
    for kind, row in ROWS.items():
        for column, roles in (("from", row.senders), ("to", row.receivers)):
            assert set(rows[kind][column].split(", ")) == (set(roles) or {"nobody"}), kind
        comes = rows[kind]["what comes of it"]
        assert comes.startswith("Shown") == row.show, kind
        assert comes.startswith("For the program") == (row.act and not row.show), kind
        assert (comes == "Always dropped.") == (not row.senders), kind


@pytest.mark.rule("07.23")
def test_the_tools_for_tasks_are_all_named() -> None:
    named = set(re.findall(r"`(task_\w+)`", PAGE.section("Shared tasks").text))
    assert named == {name for name in TOOL_NAMES.values() if name.startswith("task_")}
