"""Pages of the documentation, taken apart, for the tests that hold them against the code.

Pages are Markdown of a narrow kind: headings with `#`, tables with a `|` at both ends, fences of three backticks. A
`console` fence holds commands behind `$` and what they print, where `…` stands for anything; an `sh` fence holds
commands alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]


@dataclass
class Table:
    """A table: its header in lower case, and its rows, as cells."""

    header: list[str]
    rows: list[list[str]] = field(default_factory=list[list[str]])


@dataclass
class Section:
    """What stands under one heading, up to the next of any level."""

    level: int
    title: str
    text: str = ""
    tables: list[Table] = field(default_factory=list[Table])


@dataclass
class Fence:
    """A fenced block."""

    language: str
    line: int
    text: str = ""


@dataclass
class Page:
    """A page, taken apart."""

    name: str
    sections: list[Section]
    fences: list[Fence]
    prose: str

    def section(self, title: str) -> Section:
        """The section with this title; there must be exactly one."""
        found = [section for section in self.sections if section.title == title]
        assert len(found) == 1, f"{self.name} needs one section called {title}"
        return found[0]


def cells_of(line: str) -> list[str]:
    """The cells of one line of a table."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]


def page_of(name: str) -> Page:
    """Reads a page."""
    sections = [Section(0, "")]
    fences: list[Fence] = []
    prose: list[str] = []
    fence: Fence | None = None
    for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
        here = sections[-1]
        if fence is not None:
            if line.strip() == "```":
                fence = None
            else:
                fence.text += line + "\n"
        elif line.startswith("```"):
            fence = Fence(line[3:].strip(), number)
            fences.append(fence)
        elif heading := re.fullmatch(r"(#+) (.+)", line):
            sections.append(Section(len(heading[1]), heading[2].strip()))
        elif line.startswith("|"):
            if not here.tables or prose[-1:] != ["|"]:
                here.tables.append(Table([cell.lower() for cell in cells_of(line)]))
            elif not re.fullmatch(r"[|:\- ]+", line):
                here.tables[-1].rows.append(cells_of(line))
            prose.append("|")
            continue
        else:
            here.text += line + "\n"
        prose.append(line if fence is None else "")
    assert fence is None, f"{name}: a fence does not end"
    text = re.sub(r"(?ms)^```.*?^```$", "", (ROOT / name).read_text())
    return Page(name, sections, fences, text)


def spans(text: str) -> list[str]:
    """The code spans of a text."""
    return re.findall(r"`([^`]+)`", text)


def is_sentence(text: str) -> bool:
    """Whether a text says something: two words at least, and an end."""
    return len(text.split()) >= 2 and text.rstrip().rstrip(")*").endswith((".", ":"))


def table_rows(where: Iterable[Section], column: str) -> dict[str, dict[str, str]]:
    """The rows of all tables whose first column is called so.

    Returns each name that a row begins with → the row's cells by column. Every row must begin with one code span
    or more and end with a sentence; no name may come twice.
    """
    found: dict[str, dict[str, str]] = {}
    for section in where:
        for table in section.tables:
            if table.header[0] != column:
                continue
            for row in table.rows:
                assert len(row) == len(table.header), f"{section.title}: {row[0]} has another number of cells"
                names = spans(row[0])
                assert names, f"{section.title}: the row {row[0]} begins with no code span"
                assert is_sentence(row[-1]), f"{section.title}: {row[0]} has no sentence behind it"
                for name in names:
                    assert name not in found, f"{section.title}: {name} is there twice"
                    found[name] = dict(zip(table.header, row, strict=True))
    return found


def agree(documented: Iterable[str], real: Iterable[str]) -> None:
    """What a page lists is what the code has: nothing is missing, nothing is stale."""
    documented, real = set(documented), set(real)
    assert documented == real, f"missing: {sorted(real - documented)}, stale: {sorted(documented - real)}"
