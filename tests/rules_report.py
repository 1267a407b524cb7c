"""Which rules of the specification have a test, and which have none: `scripts/rules`.

A test names the rules that it shows: ``@pytest.mark.rule("03.7")``. The markers are read from the source,
nothing is imported or run. The specification lies beside the checkout, in ``../shared/spec``; a rule is
known by the id that its chapter prints, as ‹03.7›. What is weak: that a test carries an id says that its
author claims it, not that the test would fail without the rule.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SPECIFICATION = ROOT.parent / "shared" / "spec"

ID = re.compile(r"\d\d\.[1-9]\d?")
_PRINTED_ID = re.compile(rf"‹({ID.pattern})›")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One id on one test: the id as written, and the test as `tests/test_x.py::test_y`."""

    rule: str
    test: str


def claims_in(source: str, file: str) -> list[Claim]:
    """Read the rule markers of one file of tests: on functions, on classes, on parameters, in `pytestmark`.

    Raises ValueError for a marker that names no rule, or whose ids are anything but literal strings: a
    report that reads the source could not see those.
    """
    claims: list[Claim] = []

    def visit(node: ast.AST, test: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            test = f"{test}::{node.name}"
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.rule"):
            if not node.args or node.keywords:
                raise ValueError(f"{file}:{node.lineno}: a rule marker takes one id or more")
            for argument in node.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ValueError(f"{file}:{node.lineno}: a rule marker takes literal strings alone")
                claims.append(Claim(rule=argument.value, test=test))
        for child in ast.iter_child_nodes(node):
            visit(child, test)

    visit(ast.parse(source), file)
    return claims


def all_claims() -> list[Claim]:
    """The claims of every test in the repository, in the order of the files."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [claim for file in files for claim in claims_in(file.read_text(), str(file.relative_to(ROOT)))]


def chapters() -> dict[str, list[str]]:
    """The rules of each chapter, in their order: `{"03-inbound": ["03.1", …]}`; empty without the specification."""
    found: dict[str, list[str]] = {}
    for file in sorted(SPECIFICATION.glob("[0-9][0-9]-*.md")):
        printed = {match[1] for match in _PRINTED_ID.finditer(file.read_text())}
        own = {rule for rule in printed if file.name.startswith(rule[:2])}  # a chapter may quote another's
        found[file.stem] = sorted(own, key=lambda rule: int(rule.partition(".")[2]))
    return {chapter: rules for chapter, rules in found.items() if rules}


def report() -> str:
    """The report as text: a paragraph per chapter, the rules with their tests and those without one."""
    tests: dict[str, list[str]] = {}
    for claim in all_claims():
        tests.setdefault(claim.rule, []).append(claim.test)
    lines: list[str] = []
    for chapter, rules in chapters().items():
        shown = [rule for rule in rules if rule in tests]
        lines.append(f"{chapter}: {len(shown)} of {len(rules)} rules have a test")
        lines += [f"  {rule:<6} {', '.join(dict.fromkeys(tests[rule]))}" for rule in shown]
        if without := [rule for rule in rules if rule not in tests]:
            lines.append(f"  none:  {' '.join(without)}")
        lines.append("")
    return "\n".join(lines) or f"no specification at {SPECIFICATION}: nothing to report\n"


if __name__ == "__main__":
    sys.stdout.write(report())
