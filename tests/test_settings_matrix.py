"""Which scope decides what may come in: every value in every scope against every value in every other.

The tables are typed in from the chapter on inbound messages, cell by cell, and use nothing of postroom. Each cell says
what applies and who decided it: `A` accept, `H` hold, `R` refuse, `I` held because the value is invalid, and the first
letter of the scope; `--`: nothing is set. Rows are the first scope's value, columns the second's.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SCOPES = ("managed", "flag", "user", "project", "local")

WRITTEN = {"accept": "accept", "hold": "hold", "refuse": "refuse", "invalid": "acept", "absent": None}
"""The word for a value → what is written in the file."""

TABLES = {
    # Trusted order: managed, flag, user: the first that sets it (03.29). An invalid value holds (03.11).
    ("managed", "flag"): """
                 accept  hold    refuse  invalid absent
        accept   Am      Am      Am      Am      Am
        hold     Hm      Hm      Hm      Hm      Hm
        refuse   Rm      Rm      Rm      Rm      Rm
        invalid  Im      Im      Im      Im      Im
        absent   Af      Hf      Rf      If      --
    """,
    ("managed", "user"): """
                 accept  hold    refuse  invalid absent
        accept   Am      Am      Am      Am      Am
        hold     Hm      Hm      Hm      Hm      Hm
        refuse   Rm      Rm      Rm      Rm      Rm
        invalid  Im      Im      Im      Im      Im
        absent   Au      Hu      Ru      Iu      --
    """,
    ("flag", "user"): """
                 accept  hold    refuse  invalid absent
        accept   Af      Af      Af      Af      Af
        hold     Hf      Hf      Hf      Hf      Hf
        refuse   Rf      Rf      Rf      Rf      Rf
        invalid  If      If      If      If      If
        absent   Au      Hu      Ru      Iu      --
    """,
    # Project and local may only make it stricter, also where no trusted scope set anything; an accept there does
    # nothing (03.29). An invalid project value beside a trusted accept holds; beside a refuse it stays refused (03.32).
    ("managed", "project"): """
                 accept  hold    refuse  invalid absent
        accept   Am      Hp      Rp      Ip      Am
        hold     Hm      Hm      Rp      Hm      Hm
        refuse   Rm      Rm      Rm      Rm      Rm
        invalid  Im      Im      Rp      Im      Im
        absent   --      Hp      Rp      Ip      --
    """,
    ("managed", "local"): """
                 accept  hold    refuse  invalid absent
        accept   Am      Hl      Rl      Il      Am
        hold     Hm      Hm      Rl      Hm      Hm
        refuse   Rm      Rm      Rm      Rm      Rm
        invalid  Im      Im      Rl      Im      Im
        absent   --      Hl      Rl      Il      --
    """,
    ("flag", "project"): """
                 accept  hold    refuse  invalid absent
        accept   Af      Hp      Rp      Ip      Af
        hold     Hf      Hf      Rp      Hf      Hf
        refuse   Rf      Rf      Rf      Rf      Rf
        invalid  If      If      Rp      If      If
        absent   --      Hp      Rp      Ip      --
    """,
    ("flag", "local"): """
                 accept  hold    refuse  invalid absent
        accept   Af      Hl      Rl      Il      Af
        hold     Hf      Hf      Rl      Hf      Hf
        refuse   Rf      Rf      Rf      Rf      Rf
        invalid  If      If      Rl      If      If
        absent   --      Hl      Rl      Il      --
    """,
    ("user", "project"): """
                 accept  hold    refuse  invalid absent
        accept   Au      Hp      Rp      Ip      Au
        hold     Hu      Hu      Rp      Hu      Hu
        refuse   Ru      Ru      Ru      Ru      Ru
        invalid  Iu      Iu      Rp      Iu      Iu
        absent   --      Hp      Rp      Ip      --
    """,
    ("user", "local"): """
                 accept  hold    refuse  invalid absent
        accept   Au      Hl      Rl      Il      Au
        hold     Hu      Hu      Rl      Hu      Hu
        refuse   Ru      Ru      Ru      Ru      Ru
        invalid  Iu      Iu      Rl      Iu      Iu
        absent   --      Hl      Rl      Il      --
    """,
    # Both are read, the stricter counts (03.32).
    ("project", "local"): """
                 accept  hold    refuse  invalid absent
        accept   --      Hl      Rl      Il      --
        hold     Hp      Hp      Rl      Hp      Hp
        refuse   Rp      Rp      Rp      Rp      Rp
        invalid  Ip      Ip      Rl      Ip      Ip
        absent   --      Hl      Rl      Il      --
    """,
}

MEANING = {"A": "accept", "H": "hold", "R": "refuse", "I": "hold"}

CAUSES = {
    # Causes of a hold (03.18): who set it decides what it is called; one word for all that are invalid.
    "m": "managed-setting",
    "f": "explicit-setting",
    "u": "explicit-setting",
    "p": "repo-setting",
    "l": "repo-setting",
}


class Case(NamedTuple):
    """One cell: what is written in which scope, and what applies then."""

    first: str
    value: str
    second: str
    other: str
    expected: tuple[str, str, str] | None


def cases() -> Iterator[Case]:
    """Every cell of every table."""
    for (first, second), table in TABLES.items():
        head, *rows = (line.split() for line in table.strip().splitlines())
        for value, *cells in rows:
            for other, cell in zip(head, cells, strict=True):
                yield Case(first, value, second, other, expected(cell))


def expected(cell: str) -> tuple[str, str, str] | None:
    """What a cell says: the value, the scope that decided it, and what a hold by it is called."""
    if cell == "--":
        return None
    [scope] = (scope for scope in SCOPES if scope[0] == cell[1])
    return MEANING[cell[0]], scope, "invalid-setting" if cell[0] == "I" else CAUSES[cell[1]]


CASES = list(cases())


def test_every_value_in_every_scope_meets_every_value_in_every_other() -> None:
    met = {frozenset(((case.first, case.value), (case.second, case.other))) for case in CASES}
    every = [(scope, value) for scope in SCOPES for value in WRITTEN]
    assert met == {frozenset(two) for two in itertools.combinations(every, 2) if two[0][0] != two[1][0]}
    assert len(CASES) == len(met) == 250


def content(value: str) -> dict[str, str]:
    """What stands in the file."""
    written = WRITTEN[value]
    return {} if written is None else {"crossSessionInbound": written}


@pytest.mark.rule("03.11", "03.18", "03.29", "03.32")
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case[:4]))
def test_what_applies(case: Case) -> None:
    assert of_layers({case.first: case.value, case.second: case.other}) == case.expected
    assert of_layers({case.second: case.other, case.first: case.value}) == case.expected


@pytest.mark.rule("03.24", "03.25", "03.26", "03.27", "03.28", "03.29", "03.32")
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case[:4]))
def test_what_applies_where_it_stands_in_files(case: Case, home: Path) -> None:
    said = {case.first: case.value, case.second: case.other}
    if said.get("flag") == "invalid":
        assert refused_at_once(home, said)
    else:
        assert of_files(home, said) == case.expected


# ── what is compared with the tables ─────────────────────────────────────────────────────────────


def of_layers(said: dict[str, str]) -> tuple[str, str, str] | None:
    """What postroom makes of some scopes' contents."""
    from postroom.core.settings import SCOPES as KNOWN
    from postroom.core.settings import effective, read_layer

    layers = [
        read_layer(scope, f"/{scope}", content(said[scope]))
        for scope in sorted(KNOWN, key=[*said, *KNOWN].index)
        if scope in said
    ]
    found = effective(layers).inbound
    return None if found is None else (found.value, found.scope, found.cause)


def of_files(home: Path, said: dict[str, str]) -> tuple[str, str, str] | None:
    """What postroom makes of real files, in the places of their scopes."""
    from postroom.state.config import Config

    files = {
        "managed": home / "etc" / "settings.json",
        "user": home / "config" / "postroom" / "settings.json",
        "project": home / "work" / ".postroom" / "settings.json",
        "local": home / "work" / ".postroom" / "settings.local.json",
    }
    for scope, path in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if scope in said:
            path.write_text(json.dumps(content(said[scope])))
    config = Config(
        cwd=str(home / "work"),
        environ={"XDG_CONFIG_HOME": str(home / "config")},
        flag=json.dumps(content(said["flag"])) if "flag" in said else None,
        managed=str(files["managed"]),
    )
    found = config.settings.inbound
    return None if found is None else (found.value, found.scope, found.cause)


def refused_at_once(home: Path, said: dict[str, str]) -> bool:
    """Whether settings that are handed over invalid are not taken at all."""
    from postroom.errors import SettingInvalid

    with pytest.raises(SettingInvalid, match="crossSessionInbound"):
        of_files(home, said)
    return True
