"""The store in a file: what is accepted, held or refused, seen from below; stores of an older version."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom.core.inbound import Verdict
from postroom.core.message import Message, Notice, Pin
from postroom.errors import StoreFailed
from postroom.state import schema
from postroom.state.keeping import Retention, Sent
from postroom.state.store import Reader, SqliteStore
from tests.state.stores import (
    ALICE,
    BOB,
    NOW,
    content,
    ids,
    listing,
    message,
    opened,
    states,
    subscribe,
)

VERDICTS: tuple[Verdict, ...] = ("accepted", "held", "refused")

VALUE = re.compile(r"'(?:[^']|'')*'|\bNULL\b|\b\d+\b")
"""A value as SQLite writes it into the statement that it reports."""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A session's own folder."""
    made = tmp_path / "session"
    made.mkdir(mode=0o700)
    return str(made)


def connection_of(store: SqliteStore) -> sqlite3.Connection:
    return vars(store)["_connection"]


def traced(store: SqliteStore, work: Callable[[], object]) -> list[str]:
    """The statements that SQLite runs meanwhile, without their values."""
    seen: list[str] = []
    connection_of(store).set_trace_callback(seen.append)
    try:
        work()
    finally:
        connection_of(store).set_trace_callback(None)
    return [VALUE.sub("?", statement) for statement in seen]


def arrive(store: SqliteStore, verdict: Verdict, name: str) -> None:
    """One arrival with each verdict, as a session does it: looked up, taken in, committed."""
    came = message(name, text="a" * 64 if verdict == "refused" else "b" * 64)
    store.was_sent(name)
    store.settled(came.origin.identity, name)
    store.add(
        came,
        body="hash",
        verdict=verdict,
        cause="mode-mismatch" if verdict == "held" else "",
        scope="default",
        rung="class",
        expires_at=NOW if verdict == "held" else None,
        detail="" if verdict == "accepted" else "why",
    )
    store.commit()


@pytest.mark.rule("03.10")
@pytest.mark.parametrize("log", ["ext4", "nfs4"])
def test_accepted_held_and_refused_run_the_same_statements_in_the_same_order(folder: str, log: str) -> None:
    with closing(opened(folder, kind=log)) as store:
        arrive(store, "accepted", "first")  # before it, the log is brought to its start
        for number in range(3):
            accepted, held, refused = (
                traced(store, lambda each=each, number=number: arrive(store, each, f"{each} {number}"))
                for each in VERDICTS
            )
            assert accepted == held == refused
            assert accepted.count("COMMIT") == 1
            # what an id, a repeat and a verdict cost, and not one statement more
            assert [statement.split(" ")[0] for statement in accepted] == [
                *("SELECT", "SELECT", "BEGIN", "INSERT", "INSERT", "INSERT", "INSERT", "COMMIT"),
            ]


@pytest.mark.rule("03.10")
def test_a_group_of_each_runs_the_same_statements_too(folder: str) -> None:
    """Arrivals of one step share a commit, and then as well."""
    with closing(opened(folder)) as store:

        def group(verdict: Verdict) -> None:
            for number in range(3):
                store.add(message(f"{verdict} {number}"), body="", verdict=verdict, detail="why")
            store.commit()

        arrive(store, "accepted", "first")
        assert traced(store, lambda: group("accepted")) == traced(store, lambda: group("refused"))
        assert traced(store, lambda: group("held"))[-1] == "COMMIT"


@pytest.mark.rule("03.10")
def test_each_verdict_writes_as_many_pages(folder: str) -> None:
    """Where the texts are of a length: a commit's time is its sync and its pages."""
    with closing(opened(folder)) as store:
        for each in VERDICTS:
            arrive(store, each, f"{each} first")
        pages: list[int] = []
        for each in VERDICTS:
            store.prune(NOW)
            arrive(store, each, f"{each} second")
            _, written, _ = connection_of(store).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            pages.append(written)
        assert max(pages) == min(pages) > 0


@pytest.mark.rule("03.10")
def test_of_what_was_refused_there_is_neither_text_nor_size(folder: str) -> None:
    with closing(opened(folder)) as store:
        store.add(message("m", text="0f" * 32), body="0f" * 32, verdict="refused")
        store.commit()
        assert store._row("SELECT size FROM message") == (0,)  # pyright: ignore[reportPrivateUsage]
        assert store.find("m")[0].text == "0f" * 32


@pytest.mark.rule("05.27")
def test_a_new_deadline_writes_little_whatever_the_size_of_the_text(folder: str) -> None:
    with closing(opened(folder)) as store:
        row = store.add(message("m", text="x" * 1_000_000), body="", verdict="held")
        store.commit()
        store.prune(NOW)
        log = Path(folder, "store.db-wal")
        before = log.read_bytes()
        store.change_hold(row, "repo-setting", "project", "setting", None)
        store.commit()
        after = log.read_bytes()
        changed = sum(before[at : at + 4096] != after[at : at + 4096] for at in range(0, len(after), 4096))
        assert 0 < changed <= 3


def test_half_a_surrogate_is_refused_and_leaves_the_group_as_it_was(folder: str) -> None:
    half: Any = "\ud800"
    with closing(opened(folder)) as store:
        (row,) = [store.add(message("h"), body="", verdict="held")]
        attempts: list[Callable[[], object]] = [
            lambda: store.add(message("a"), body="", detail=half),
            lambda: store.add(message("b"), body="", verdict="held", cause=half),
            lambda: store.release_hold(row, NOW, detail=half),
            lambda: store.release_hold(row, NOW, approved_by=half),
            lambda: store.end_hold(row, "denied", NOW, half),
            lambda: store.change_hold(row, half, "default", "class", None),
            lambda: store.add_rule("s", half, NOW),
            lambda: store.owe(half, "uds:/a", "1:2", b"", NOW),
            lambda: store.add_notice(Notice(kind="held", at=NOW, detail=half)),
            lambda: subscribe(store, half),
        ]
        for attempt in attempts:
            with pytest.raises(ValueError, match="surrogates"):
                attempt()
            assert store.pending
        store.add(message("a"), body="")
        store.add(message("b"), body="", verdict="held")
        store.commit()
        assert ids(store.waiting()) == ["a"]
        assert [hold.message.msg_id for hold in store.holds()] == ["h", "b"]
        assert (store.rules(), store.owed(), store.notices(), store.subscriptions(False)) == ([], [], [], [])
        assert states(store.steps("h")) == ["received", "held"]


@pytest.mark.rule("11.4", "05.27")
@pytest.mark.parametrize("after", [schema.LET_IN_LETTER, schema.DROP_UNREAD])
def test_an_interrupt_in_the_middle_of_an_end_takes_it_back(folder: str, after: str) -> None:
    with closing(opened(folder)) as store:
        row = store.add(message("h"), body="", verdict="held")
        store.commit()
        write = store._write  # pyright: ignore[reportPrivateUsage]

        def interrupted(sql: str, *values: object) -> object:
            done = write(sql, *values)
            if sql == after:
                raise KeyboardInterrupt
            return done

        store._write = interrupted  # type: ignore[assignment, method-assign]  # pyright: ignore
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            if after == schema.DROP_UNREAD:
                store.end_hold(row, "denied", NOW)
            else:
                store.release_hold(row, NOW)
        store._write = write  # pyright: ignore[reportPrivateUsage]
        assert not store.pending
        assert [hold.row for hold in store.holds()] == [row]
        assert store.waiting_count == 0
        store.release_hold(row, NOW)
        store.commit()
        assert ids(store.waiting()) == ["h"]


def test_the_ballast_stays_where_a_hold_waits(folder: str) -> None:
    """What ends a hold when its session comes back must find room then."""
    store = opened(folder)
    row = store.add(message("h"), body="", verdict="held")
    store.commit()
    store.close()
    assert "store.ballast" in listing(folder)
    store = opened(folder)
    store.end_hold(row, "expired", NOW)
    store.commit()
    store.close()
    assert set(listing(folder)) == {"store.db"}


# ── stores of an older version ──────────────────────────────────────────────────────────────────────


FULL = Message(
    msg_id="full",
    text="the text — 日本語",
    origin=replace(ALICE, transport="http", stated_class="bypassing"),
    received_at=NOW,
    summary="summary",
    sent_at="2026-11-30T10:15:02Z",
    in_reply_to="earlier",
    priority="later",
    hop_chain=("aa", "bb"),
    redelivered=True,
)


def version_1(folder: str) -> None:
    """A store as version 1 left it, with mail in every state that it knew; its rows written out by hand."""
    path = Path(folder, "store.db")
    path.touch(mode=0o600)
    letters = [
        (1, "read", ALICE.identity, "accepted", "h", NOW, 0, ""),
        (2, "answered", ALICE.identity, "accepted", "h", NOW, 0, "answered"),
        (3, "full", ALICE.identity, "accepted", "h", NOW, 1, ""),
        (4, "next", BOB.identity, "accepted", "h", NOW, 0, ""),
        (5, "leased", BOB.identity, "accepted", "h", NOW, 0, ""),
    ]
    plain = (NOW, None, None, "next", None, 0, None, 1, None, "x")
    of_alice = ("peer", 1, "alice", "uds:/run/alice.sock", "uds", None)
    of_bob = ("peer", 0, None, None, "uds", None)
    late = ("peer", 1, "alice", "uds:/run/alice.sock", "http", "bypassing", NOW, FULL.sent_at, "earlier")
    messages: list[tuple[Any, ...]] = [
        (1, *of_alice, *plain),
        (2, *of_alice, *plain),
        (3, *late, "later", '["aa", "bb"]', 0, None, len(FULL.text), "summary", FULL.text),
        (4, *of_bob, *plain),
        (5, *of_bob, *plain),
    ]
    with closing(sqlite3.connect(path)) as old:
        old.execute("PRAGMA auto_vacuum = INCREMENTAL")
        for statement in schema.MIGRATIONS[0]:
            old.execute(statement)
        old.executemany("INSERT INTO letter VALUES (?, ?, ?, ?, ?, ?, ?, ?)", letters)
        old.executemany(f"INSERT INTO message VALUES ({', '.join('?' * 17)})", messages)
        old.executemany("INSERT INTO unread VALUES (?, ?, ?)", [(1, 3, None), (0, 4, None), (0, 5, "gone")])
        old.executemany(
            "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)",
            [(row, name, NOW, "received", "", "alice") for row, (_, name, *_) in enumerate(letters, start=1)],
        )
        old.execute("INSERT INTO sent VALUES (1, 'out', 'bob-session', 'bob', ?, 'queued')", (NOW,))
        old.execute("INSERT INTO pin VALUES (1, 'main', 'bob', 'Bob', 'bob-session', ?)", (NOW,))
        old.execute("INSERT INTO shown VALUES ('bob [aaaaaa]', 'bob-session', 'uds:/b', ?)", (NOW,))
        old.execute("PRAGMA user_version = 1")
        old.commit()


@pytest.mark.rule("05.27", "11.4")
def test_a_store_of_version_1_is_brought_up_to_date_with_all_that_is_in_it(folder: str) -> None:
    version_1(folder)
    for again in (False, True):
        with closing(opened(folder)) as store:
            assert store.problems == []
            assert connection_of(store).execute("PRAGMA user_version").fetchone() == (2,)
            assert ids(store.waiting()) == ["next", "leased", "full"]
            assert [each.redelivered for each in store.waiting()] == [False, True, True]
            assert store.waiting()[2] == replace(FULL, state="accepted")
            assert (store.unread, store.waiting_count) == (3, 3)
            assert [store.find(name)[0].state for name in ("read", "answered")] == ["consumed", "answered"]
            assert all(store.settled(ALICE.identity, name) for name in ("read", "answered", "full"))
            assert store.sent("out") == Sent(to_identity="bob-session", to_name="bob", at=NOW, state="queued")
            assert store.pins("main") == [("bob", Pin(name="Bob", identity="bob-session"))]
            assert store.known("bob [aaaaaa]") == ("bob-session", "uds:/b")
            assert len(store.log()) == 6  # and the lease that was given back
            assert store.holds() == []
            if again:
                store.release_hold(store.add(message("h"), body="", verdict="held"), NOW)
                assert ids(store.take("lease", NOW)) == ["next", "leased", "h", "full"]


@pytest.mark.rule("05.27")
def test_an_update_that_was_cut_off_leaves_the_older_store(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    version_1(folder)
    with monkeypatch.context() as patch:
        patch.setattr(
            schema,
            "MIGRATIONS",
            (schema.MIGRATIONS[0], (*schema.MIGRATIONS[1], "CREATE TABLE letter(twice)")),
        )
        with pytest.raises(StoreFailed):
            opened(folder)
    with closing(sqlite3.connect(Path(folder, "store.db"))) as old:
        assert old.execute("PRAGMA user_version").fetchone() == (1,)
        assert old.execute("SELECT count(*) FROM sqlite_master WHERE name = 'owed'").fetchone() == (0,)
    with closing(opened(folder)) as store:
        assert store.unread == 3


@pytest.mark.rule("10.12")
def test_the_journal_of_an_older_store_can_be_read_without_bringing_it_up_to_date(folder: str) -> None:
    version_1(folder)
    before = content(folder)["store.db"]
    with closing(Reader.open(folder)) as reader:
        assert states(reader.steps("next")) == ["received"]
        assert [step.msg_id for _, step in reader.log(text="日本語")] == ["full"]
    assert content(folder)["store.db"] == before


def test_a_released_row_of_the_migrations_never_changes() -> None:
    """What it makes is what stores in the world have: a new need is a new row."""
    with closing(sqlite3.connect(":memory:")) as made:
        for statement in schema.MIGRATIONS[0]:
            made.execute(statement)
        tables = made.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL ORDER BY name").fetchall()
    assert [re.sub(r"\(.*", "", sql) for (sql,) in tables] == [
        "CREATE TABLE journal",
        "CREATE TABLE letter",
        "CREATE UNIQUE INDEX letter_id ON letter",
        "CREATE TABLE message",
        "CREATE TABLE pin",
        "CREATE TABLE sent",
        "CREATE TABLE shown",
        "CREATE TABLE unread",
    ]
    columns = {sql.partition("(")[0].split()[-1]: len(sql.split(",")) for (sql,) in tables}
    assert columns["message"] == 17
    assert columns["unread"] == 5
    assert len(schema.MIGRATIONS) == schema.VERSION == 2
    assert Retention().refused_count > 0
