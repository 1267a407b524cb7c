"""docs/clients.md, held against what the clients' files say and against what `make test-clients` runs."""

from __future__ import annotations

import pytest

from postroom.clients import CLIENTS, load
from tests.clients.install import PARTNERS
from tests.pages import Section, agree, is_sentence, page_of, spans

PAGE = page_of("docs/clients.md")
DOORS = ["door", "wakes it when idle", "during a turn", "confirms", "when it is there"]


def sections() -> dict[str, Section]:
    """Each client → its section: a heading such as ``## Claude Code, `claude-code` ``."""
    return {spans(each.title)[0]: each for each in PAGE.sections if each.level == 2 and spans(each.title)}


def test_every_client_has_its_section() -> None:
    agree(sections(), CLIENTS)


@pytest.mark.parametrize("name", CLIENTS)
def test_a_section_says_what_the_clients_file_says(name: str) -> None:
    client, section = load(name), sections()[name]
    assert section.title.lower() == f"{client.title}, `{name}`".lower()
    (table,) = section.tables
    assert table.header == DOORS
    assert table.rows == [
        [f"`{door.name}`", "yes" if door.wakes else "no", door.during_turn, f"`{door.confirms}`", door.needs]
        for door in client.doors
    ]
    assert all(is_sentence(row[-1]) for row in table.rows)


@pytest.mark.parametrize("name", CLIENTS)
def test_it_takes_two_commands_to_set_up(name: str) -> None:
    mine = [fence.text for fence in PAGE.fences if f"postroom setup {name}\n" in fence.text]
    assert len(mine) == 1
    assert len(mine[0].splitlines()) == 2
    assert "Limits:" in sections()[name].text


def test_the_versions_are_those_that_are_run() -> None:
    (table,) = (section for section in PAGE.sections if section.level == 1)
    rows = {row[0]: row[1] for row in table.tables[0].rows}
    for name in CLIENTS:
        title = load(name).title
        if name in PARTNERS:
            assert rows[title] == PARTNERS[name].version
        elif title in rows:
            assert rows[title] == "not run here"


def test_what_wakes_is_said_as_the_doors_have_it() -> None:
    (table,) = (section for section in PAGE.sections if section.level == 1)
    for row in table.tables[0].rows:
        for name in CLIENTS:
            client = load(name)
            if client.title == row[0]:
                wakes = any(door.wakes for door in client.doors if door.name != "wait")
                assert row[2].partition(",")[0] == ("yes" if wakes else "no"), name
