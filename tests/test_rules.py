"""The rule markers name rules that exist, and the report reads them all."""

from __future__ import annotations

import pytest

from tests.rules_report import ID, all_claims, chapters, claims_in, report

EVERY_PLACE = """
import pytest
pytestmark = pytest.mark.rule("01.1")

@pytest.mark.rule("02.5", "02.12")
def test_function(): ...

@pytest.mark.rule("03.7")
class TestClass:
    @pytest.mark.rule("04.1")
    async def test_method(self): ...

@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.rule("05.2"))])
def test_parameter(n): ...
"""


def test_every_marker_names_a_rule_of_the_specification() -> None:
    """Where the specification is not beside the checkout, the form of each id is still held."""
    known = {rule for rules in chapters().values() for rule in rules}
    claims = all_claims()
    assert claims, "no test carries a rule's id"
    assert [claim for claim in claims if not ID.fullmatch(claim.rule)] == []
    assert [claim for claim in claims if known and claim.rule not in known] == []


def test_a_marker_is_read_wherever_pytest_takes_one() -> None:
    assert {(claim.rule, claim.test) for claim in claims_in(EVERY_PLACE, "t.py")} == {
        ("01.1", "t.py"),
        ("02.5", "t.py::test_function"),
        ("02.12", "t.py::test_function"),
        ("03.7", "t.py::TestClass"),
        ("04.1", "t.py::TestClass::test_method"),
        ("05.2", "t.py::test_parameter"),
    }


@pytest.mark.parametrize("marker", ["rule()", "rule(SOME)", "rule(3.7)", 'rule("03.7", why="x")'])
def test_a_marker_that_the_report_could_not_read_is_an_error(marker: str) -> None:
    with pytest.raises(ValueError, match=r"t\.py:1: a rule marker takes"):
        claims_in(f"pytestmark = pytest.mark.{marker}", "t.py")


@pytest.mark.parametrize("text", ["3.7", "03.0", "03.07", "03.7a", "P12", "03.100"])
def test_what_is_no_id(text: str) -> None:
    assert not ID.fullmatch(text)


def test_the_report_counts_every_rule_once() -> None:
    if not chapters():
        assert "nothing to report" in report()
    paragraphs = {text.partition(":")[0].strip(): text for text in report().split("\n\n")}
    for chapter, rules in chapters().items():
        assert sorted(filter(ID.fullmatch, paragraphs[chapter].split())) == sorted(rules)
