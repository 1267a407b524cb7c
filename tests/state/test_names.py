"""Whose name is whose: claims by live sessions, dead ones, renamed ones, many at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.core import address
from postroom.errors import StoreFailed
from postroom.state import files
from postroom.state.names import MAX_KEPT, Claim, Known, Names


class Town:
    """A state folder with sessions of which the test says whether they live."""

    def __init__(self, home: Path) -> None:
        self.state = home / "state"
        self.alive: set[str] = set()
        self.names = Names(str(self.state), self.alive.__contains__)

    def open(self, session_id: str) -> None:
        """A session's folder is made, and it lives."""
        files.private_folder(str(self.state / "sessions" / session_id))
        self.alive.add(session_id)

    def claim(self, name: str, session_id: str, *, chosen: bool = True, now: int = 1) -> str:
        """Opens the session and claims."""
        self.open(session_id)
        return self.names.claim(name, session_id, chosen=chosen, now=now)

    def holder(self, name: str) -> str | None:
        """Who holds a name."""
        claim = self.names.holder(name)
        return claim.session_id if claim else None


@pytest.fixture
def town(home: Path) -> Town:
    return Town(home)


@pytest.mark.rule("02.3")
def test_a_name_belongs_to_the_first_live_session_that_claims_it(town: Town) -> None:
    assert town.claim("Reviewer", "a") == "Reviewer"
    assert town.claim("Reviewer", "a") == "Reviewer"
    assert town.claim("reviewer", "b") == "reviewer-2"
    assert town.claim("re viewer", "c") == "re viewer"
    assert town.claim("REVIEWER", "d") == "REVIEWER-3"
    assert [town.holder(name) for name in ("reviewer", "reviewer_2", "Reviewer.3", "nobody")] == [
        "a",
        "b",
        "d",
        None,
    ]


@pytest.mark.rule("02.3")
def test_rival_V7_a_derived_name_gets_a_variant_too(town: Town) -> None:
    """Two sessions of one name never share it, and the newcomer is told which it got."""
    assert town.claim("myapp-3f", "a", chosen=False) == "myapp-3f"
    assert town.claim("myapp-3f", "b", chosen=False) == "myapp-3f-2"
    assert town.holder("myapp-3f") == "a"


@pytest.mark.rule("02.3")
def test_a_claim_is_one_small_file_that_begins_with_the_session_id(town: Town) -> None:
    town.claim("Über Prüfer", "a")
    (path,) = [path for path in (town.state / "names").iterdir() if path.name != ".lock"]
    assert path.name == address.claim_key("Über Prüfer")
    assert path.read_text() == "a\nprimary\nÜber Prüfer\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert town.names.holder("über-prüfer") == Claim(session_id="a", former=False, name="Über Prüfer")


@pytest.mark.rule("02.3")
@pytest.mark.parametrize(
    "name", ["../../../tmp/x", "/abs", "a/b", "a\0b", ".", "x" * 5000, "\u202eabc", "🙂", "a."]
)
def test_report_14_whatever_the_name_its_claim_lies_in_the_folder(town: Town, name: str) -> None:
    """Such names are refused before they come here (02.2); a claim could not leave its folder all the same."""
    town.claim("tame", "a")
    before = set(town.state.parent.rglob("*"))
    assert town.claim(name, "b") == name
    made = set(town.state.parent.rglob("*")) - before
    (claim,) = made - {town.state / "sessions" / "b", town.state / "sessions" / "b" / "names"}
    assert claim.parent == town.state / "names"
    assert len(claim.name) == 32
    assert set(claim.name) <= set("0123456789abcdef")


@pytest.mark.rule("02.3")
def test_a_name_of_a_dead_session_is_free(town: Town) -> None:
    town.claim("reviewer", "a")
    town.alive.discard("a")
    assert town.holder("reviewer") == "a"
    assert town.claim("reviewer", "b") == "reviewer"
    assert town.holder("reviewer") == "b"


@pytest.mark.rule("02.4")
def test_the_old_name_stays_an_alias_until_another_live_session_takes_it(town: Town) -> None:
    town.claim("app", "a")
    assert town.claim("auditor", "a", now=7) == "auditor"
    assert town.names.holder("app") == Claim(session_id="a", former=True, name="app")
    assert town.names.known("a") == Known(name="auditor", chosen="auditor", former=(("app", 7),))
    assert town.claim("app", "b") == "app"
    assert town.holder("app") == "b"
    assert town.claim("other", "b") == "other"
    assert town.holder("app") == "b"  # the latest who was called so


@pytest.mark.rule("02.4")
def test_a_name_taken_back_is_no_former_one_any_more(town: Town) -> None:
    town.claim("one", "a", now=1)
    town.claim("two", "a", now=2)
    assert town.claim("One", "a", now=3) == "One"
    assert town.names.known("a").former == (("two", 3),)
    assert town.names.holder("one") == Claim(session_id="a", former=False, name="One")


@pytest.mark.rule("02.3", "02.4")
def test_a_rename_follows_the_same_rule(town: Town) -> None:
    town.claim("one", "a")
    town.claim("two", "b")
    assert town.claim("one", "b") == "one-2"
    assert town.holder("two") == "b"


@pytest.mark.rule("02.4", "05.12")
def test_report_10_a_restarted_session_gets_its_chosen_name_and_its_aliases_back(town: Town) -> None:
    town.claim("dir-3f", "a", chosen=False)
    town.claim("reviewer", "a", now=5)
    town.alive.discard("a")
    known = Names(str(town.state), town.alive.__contains__).known("a")
    assert (known.name, known.chosen) == ("reviewer", "reviewer")
    assert town.claim(known.chosen, "a", now=9) == "reviewer"
    assert town.holder("dir-3f") == "a"
    assert town.names.known("a").former == (("dir-3f", 5),)


@pytest.mark.rule("02.4", "05.12")
def test_what_another_took_meanwhile_is_kept_by_it_and_comes_back_when_it_is_free(town: Town) -> None:
    town.claim("one", "a", now=1)
    town.claim("reviewer", "a", now=2)
    town.alive.discard("a")
    town.claim("reviewer", "b")
    town.claim("one", "c")
    assert town.claim("reviewer", "a", now=3) == "reviewer-2"
    assert town.holder("one") == "c"
    assert town.names.known("a").chosen == "reviewer"
    town.alive -= {"a", "b", "c"}
    assert town.claim(town.names.known("a").chosen, "a", now=4) == "reviewer"
    assert town.holder("reviewer-2") == "a"
    assert town.holder("one") == "a"


def test_a_derived_name_does_not_replace_what_was_chosen(town: Town) -> None:
    town.claim("reviewer", "a")
    town.claim("dir-3f", "a", chosen=False)
    assert town.names.known("a").chosen == "reviewer"


@pytest.mark.rule("11.10")
def test_a_session_that_is_renamed_for_ever_keeps_few_claims(town: Town) -> None:
    for number in range(MAX_KEPT + 10):
        town.claim(f"name-{number}", "a", now=number)
    assert len(os.listdir(town.state / "names")) == 1 + MAX_KEPT + 1  # its lock, the former ones, the name
    assert town.holder("name-0") is None
    assert town.holder(f"name-{MAX_KEPT}") == "a"
    assert len(town.names.known("a").former) == MAX_KEPT


@pytest.mark.rule("11.10")
def test_claims_of_sessions_whose_folder_is_gone_are_swept(town: Town) -> None:
    town.claim("one", "a")
    town.claim("two", "b")
    town.alive.clear()
    (town.state / "names" / ("0" * 32)).write_text("")
    (town.state / "names" / ("0" * 32)).chmod(0o600)
    (town.state / "names" / files.temporary_name()).write_text("left by a killed writer")
    (town.state / "sessions" / "a" / "names").unlink()
    (town.state / "sessions" / "a").rmdir()
    assert town.names.sweep() == 3
    assert (town.holder("one"), town.holder("two")) == (None, "b")
    assert town.names.sweep() == 0


def test_a_session_that_is_forgotten_gives_up_its_own_claims_alone(town: Town) -> None:
    town.claim("one", "a")
    town.claim("two", "a")
    town.claim("one", "b")
    town.names.release("a")
    assert (town.holder("one"), town.holder("two")) == ("b", None)
    town.names.release("nobody")


@pytest.mark.parametrize(
    "content",
    [b"", b"a", b"a\nprimary", b"a\nking\nx\n", b"\nprimary\nx\n", b"\xff\nprimary\nx\n", b"a" * 5000],
)
def test_a_claim_that_says_nothing_sensible_is_none(town: Town, content: bytes) -> None:
    town.claim("one", "a")
    path = town.state / "names" / address.claim_key("one")
    path.write_bytes(content)
    assert town.names.holder("one") is None
    assert town.claim("one", "b") == "one"


@pytest.mark.rule("11.11")
def test_a_claim_that_is_a_symlink_or_open_to_others_is_none(town: Town, home: Path) -> None:
    town.claim("one", "a")
    path = town.state / "names" / address.claim_key("one")
    path.chmod(0o644)
    assert town.names.holder("one") is None
    path.rename(home / "elsewhere")
    (home / "elsewhere").chmod(0o600)
    path.symlink_to(home / "elsewhere")
    assert town.names.holder("one") is None
    assert town.claim("one", "b") == "one"
    assert (home / "elsewhere").read_text() == "a\nprimary\none\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"name": 1, "chosen": null, "former": "x"}',
        b'{"former": [1, ["x"], ["x", "y"], {"name": 1}]}',
        b"[" * 50_000,
    ],
)
def test_a_memory_that_makes_no_sense_is_none(town: Town, content: bytes) -> None:
    town.claim("one", "a")
    (town.state / "sessions" / "a" / "names").write_bytes(content)
    assert town.names.known("a") == Known()
    assert town.claim("two", "a") == "two"


def test_the_name_lock_is_waited_for_and_then_it_is_said(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    town.claim("one", "a")
    lock = files.Lock(str(town.state / "names" / ".lock"))
    assert lock.acquire()
    monkeypatch.setattr("postroom.state.names.LOCK_SECONDS", 0)
    with pytest.raises(StoreFailed, match="locked by another process"):
        town.claim("two", "b")
    lock.release()
    assert town.claim("two", "b") == "two"


CLAIMANT = """
import sys
from postroom.state.roster import Roster
roster = Roster(sys.argv[1])
lock = roster.open_folder(sys.argv[2])
print(flush=True)
sys.stdin.readline()
print(roster.claim("Worker", sys.argv[2], chosen=True, now=1), flush=True)
sys.stdin.read()
"""


@pytest.mark.rule("02.3")
def test_many_processes_claim_one_name_at_once_and_exactly_one_gets_it(home: Path) -> None:
    count = 12
    files.private_folder(str(home / "state" / "sessions"))
    claimants = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMANT, str(home / "state"), f"s{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    try:
        for claimant in claimants:
            assert claimant.stdout is not None
            assert claimant.stdout.readline() == "\n"
        for claimant in claimants:
            assert claimant.stdin is not None
            claimant.stdin.write("\n")
            claimant.stdin.flush()
        got = [claimant.stdout.readline().strip() for claimant in claimants if claimant.stdout is not None]
    finally:
        for claimant in claimants:
            claimant.communicate()
    assert sorted(got) == sorted(["Worker", *(f"Worker-{number}" for number in range(2, count + 1))])
