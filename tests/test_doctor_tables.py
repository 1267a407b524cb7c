"""The findings of `postroom doctor`: each is documented, provoked by a test, and made by a function of facts alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom
from postroom.console.checks.finding import AREAS, KINDS, SEVERITIES, claimed, several
from tests.pages import agree, page_of, spans, table_rows
from tests.test_layers import PURE

SOURCE = Path(postroom.__file__).parent
CHECKS = sorted((SOURCE / "console/checks").glob("*.py"))
TESTS = sorted(Path(__file__).parent.glob("test_doctor_*.py"))


def texts(file: Path) -> Iterator[str]:
    """Every text in a file."""
    yield from (
        node.value
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@pytest.mark.rule("10.16")
def test_every_finding_has_its_row_and_every_row_its_finding() -> None:
    """Under the heading of its part, with how bad it is, and a mend that is a sentence."""
    page = page_of("docs/doctor.md")
    rows = table_rows(page.sections, "finding")
    agree(rows, KINDS)
    for name, row in rows.items():
        assert row["severity"] == KINDS[name].severity, name
        assert len(row["what is wrong"].split()) > 3, name
    for area, heading in AREAS.items():
        agree(
            table_rows([page.section(heading)], "finding"),
            {name for name in KINDS if KINDS[name].area == area},
        )


@pytest.mark.rule("10.16")
def test_every_finding_is_made_somewhere_and_none_is_made_up() -> None:
    made = {
        node.args[0].value
        for file in [*CHECKS, SOURCE / "console/doctor.py"]
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "found"
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    }
    in_tables = {text for text in texts(SOURCE / "console/checks/sessions.py") if text.startswith("record-")}
    agree(made | in_tables, KINDS)


@pytest.mark.rule("10.16")
def test_every_finding_is_provoked_by_a_test() -> None:
    """By its id, in a test that runs the command or the examination."""
    named = {text for file in TESTS if file != Path(__file__) for text in texts(file)}
    named |= set(texts(Path(__file__).with_name("test_doctor.py")))
    assert set(KINDS) - named == set()


def test_the_ids_are_words_with_hyphens_and_the_parts_are_known() -> None:
    for name, kind in KINDS.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
        assert kind.severity in SEVERITIES
        assert kind.area in AREAS
    assert {kind.area for kind in KINDS.values()} == set(AREAS)


@pytest.mark.parametrize("file", CHECKS, ids=lambda file: file.stem)
def test_checks_are_functions_of_facts_alone(file: Path) -> None:
    """As the core is: no file, no clock, no process, no randomness comes in."""
    for node in ast.walk(ast.parse(file.read_text())):
        names = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        for name in names:
            allowed = name.startswith(("postroom.core.", "postroom.console.checks."))
            assert allowed or name.partition(".")[0] in PURE, f"{file.name} imports {name}"


def test_the_hints_that_send_a_person_to_the_doctor_lead_to_a_finding() -> None:
    """Each sentence of the code that names the command, and the finding that it leads to."""
    leads = {
        "what is wrong with the address": "session-unreachable",
        "names a session that hangs": "session-silent",
        "if it stays so, `postroom doctor` says why": "session-deaf",
        "a full disk is the usual cause": "disk-full",
        "Run: postroom doctor": "store-unread",
        "`postroom doctor` says why it has none": "session-no-inbox",
        "`postroom doctor` shows what there is": "claim-kept",
        "`postroom doctor` says what is there": "session-silent",
    }
    assert set(leads.values()) <= set(KINDS)
    own = re.compile(r"console/(checks|looks|commands)/|console/doctor")
    said = [
        (file, text)
        for file in sorted(SOURCE.rglob("*.py"))
        for text in texts(file)
        if "postroom doctor" in text and not own.search(str(file)) and "\n" not in text
    ]
    unknown = [(file.name, text) for file, text in said if not any(words in text for words in leads)]
    assert unknown == []
    for words in leads:
        assert any(words in text for _, text in said), words


def test_the_page_names_no_command_that_is_not_there() -> None:
    text = "\n".join(section.text for section in page_of("docs/doctor.md").sections)
    assert all(span.split()[1] == "doctor" for span in spans(text) if span.startswith("postroom "))


def test_words_of_others_are_cut_and_cleaned() -> None:
    assert claimed("a\x1b[31m\nb") == "a\\x1b[31m\\nb"
    assert len(claimed("x" * 5000)) == 201
    assert several([]) == ""
    assert several(["a"]) == "a"
    assert several(["a", "b", "c"]) == "a, b and c"
    assert several(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
