"""The store in a file on a disk that is full, broken or read-only."""

from __future__ import annotations

import gc
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from postroom.errors import StoreFailed
from postroom.state.database import failure
from postroom.state.files import descriptors_below
from postroom.state.store import Reader, SqliteStore
from postroom.state.store_files import (
    ARRIVAL_PAGES,
    BALLAST_BYTES,
    LOG_BYTES,
)
from tests.state.stores import (
    BEGINNINGS,
    ENDS,
    NOW,
    content,
    filled,
    ids,
    listing,
    message,
    no_writing,
    one_of_everything,
    opened,
    states,
)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A session's own folder."""
    made = tmp_path / "session"
    made.mkdir(mode=0o700)
    return str(made)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 12 MiB, of our own."""
    where = tmp_path / "disk"
    where.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=12m,mode=0700", "tmpfs", str(where)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a full disk needs root, to mount a small one: {done.stderr.strip()}")
    try:
        yield where
    finally:
        gc.collect()
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def fill(disk: Path) -> Path:
    """Takes the last byte of a disk."""
    stone = disk / "stone"
    with stone.open("ab", buffering=0) as file:
        for size in (65_536, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
    assert os.statvfs(disk).f_bavail == 0
    return stone


def everything(store: SqliteStore) -> tuple[object, ...]:
    """What a store shows, the messages that wait for a lease apart."""
    shown = (store.holds(), store.rules(), store.owed(), store.notices(), store.subscriptions(mine=True))
    return (*shown, store.steps("held"), store.unread, store.waiting_count)


def session_on(disk: Path) -> str:
    folder = disk / "session"
    folder.mkdir(mode=0o700)
    return str(folder)


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("kind", ["tmpfs", "nfs4"])
@pytest.mark.parametrize("size", [500, 30_000])
def test_a_full_disk_refuses_arrivals_and_still_hands_out_what_it_has(
    small_disk: Path, size: int, kind: str
) -> None:
    folder = session_on(small_disk)
    store = opened(folder, kind=kind)
    for number in range(50):
        store.add(message(f"before {number}", text="x" * size), body="")
        store.commit()
    stone = fill(small_disk)
    accepted = 0
    with pytest.raises(StoreFailed, match="disk is full"):  # noqa: PT012
        for accepted in range(10_000):
            store.add(message(f"full {accepted}", text="x" * size), body="")
            store.commit()
    assert store.unread == 50 + accepted
    assert store.settled("alice-session", f"full {accepted}") is None
    # one by one, the dearest way there is
    for number in range(50 + accepted):
        if number == 40 and kind == "tmpfs":
            assert "store.ballast" in listing(folder)  # the log's own reserve was enough up to here
        lease = f"lease {number}"
        (taken,) = store.take(lease, NOW, limit=1)
        assert store.confirm(lease, NOW) == [taken.msg_id]
    assert (store.unread, store.waiting_count) == (0, 0)
    with pytest.raises(StoreFailed, match="disk is full"):  # noqa: PT012
        store.add(message("no", text="x" * 4_000_000), body="")
        store.commit()
    stone.unlink()
    store.add(message("space again"), body="")
    store.commit()
    store.close()
    with closing(opened(folder, kind=kind)) as again:
        assert ids(again.waiting()) == ["space again"]
        assert len(again.log(limit=100_000)) == 2 * 2 * (50 + accepted) + 2


@pytest.mark.rule("05.27")
def test_a_disk_without_room_for_the_reserve_says_so_until_it_has(small_disk: Path) -> None:
    folder = session_on(small_disk)
    opened(folder).close()
    stone = fill(small_disk)
    with stone.open("r+b") as file:
        file.truncate(stone.stat().st_size - 200_000)
    with closing(opened(folder)) as store:
        assert any("disk is full" in problem for problem in store.problems)
        with pytest.raises(StoreFailed, match="disk is full"):
            store.add(message("m"), body="")
        stone.unlink()
        store.add(message("m"), body="")
        store.commit()
        assert not any("disk is full" in problem for problem in store.problems)


@pytest.mark.rule("05.27")
def test_a_group_that_would_live_on_the_reserve_needs_room_beside_it(small_disk: Path) -> None:
    store = filled(session_on(small_disk), "a")
    stone = fill(small_disk)
    with stone.open("r+b") as file:
        file.truncate(stone.stat().st_size - 2_000_000)
    for name in ("big", "big again"):
        store.add(message(name, text="x" * 1_500_000), body="")
        with pytest.raises(StoreFailed, match="disk is full"):
            store.commit()
    assert os.statvfs(small_disk).f_bavail * 4096 >= 1_900_000
    store.add(message("small"), body="")
    store.commit()
    assert ids(store.take("lease", NOW)) == ["a", "small"]
    store.close()


@pytest.mark.rule("05.27")
def test_a_group_that_only_comes_at_a_bad_moment_passes_the_second_time(small_disk: Path) -> None:
    store = filled(session_on(small_disk), "a")
    for number in range(58):
        store.add(message(f"m{number}"), body="")
        store.commit()
    stone = fill(small_disk)
    with stone.open("r+b") as file:
        file.truncate(stone.stat().st_size - 2_000_000)
    store.add(message("big", text="x" * 90_000), body="")
    with pytest.raises(StoreFailed, match="disk is full"):
        store.commit()
    store.add(message("big", text="x" * 90_000), body="")
    store.commit()
    assert len(store.take("lease", NOW)) == 60
    store.close()


@pytest.mark.rule("05.27", "11.4")
def test_a_full_disk_keeps_nobody_from_opening_after_a_kill(small_disk: Path) -> None:
    folder = session_on(small_disk)
    child = os.fork()
    if child == 0:
        store = filled(folder, "a", "b")
        store.take("lost", NOW, limit=1)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    fill(small_disk)
    with closing(opened(folder)) as store:
        assert [(each.msg_id, each.redelivered) for each in store.take("lease", NOW)] == [
            ("a", True),
            ("b", False),
        ]
        assert store.confirm("lease", NOW) == ["a", "b"]


def filled_up(store: SqliteStore, disk: Path) -> None:
    """Takes the last byte of the disk and uses up the room that arrivals have in the log."""
    fill(disk)
    with pytest.raises(StoreFailed, match="disk is full"):  # noqa: PT012
        for number in range(10_000):
            store.add(message(f"full {number}"), body="")
            store.commit()


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("kind", ["tmpfs", "nfs4"])
@pytest.mark.parametrize("what", ENDS)
def test_on_a_full_disk_what_ends_something_works(small_disk: Path, what: str, kind: str) -> None:
    folder = session_on(small_disk)
    store = opened(folder, kind=kind)
    one_of_everything(store, size=30_000)
    filled_up(store, small_disk)
    before = everything(store)
    ENDS[what](store)
    store.commit()
    after = everything(store)
    assert after != before
    store.close()
    with closing(opened(folder, kind=kind)) as again:
        assert everything(again) == after


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("what", BEGINNINGS)
def test_on_a_full_disk_what_begins_something_is_refused_and_changes_nothing(
    small_disk: Path, what: str
) -> None:
    store = opened(session_on(small_disk))
    one_of_everything(store, size=30_000)
    filled_up(store, small_disk)
    before = everything(store)
    with pytest.raises(StoreFailed, match="disk is full"):  # noqa: PT012
        BEGINNINGS[what](store)
        store.commit()
    assert everything(store) == before
    assert store.settled("alice-session", "new") is None
    assert store.take("lease", NOW)[0].msg_id == "waits"
    store.close()


@pytest.mark.rule("05.27", "03.44")
@pytest.mark.parametrize("together", [1, 10, 100])
def test_on_a_full_disk_a_hundred_holds_can_be_denied_and_told(small_disk: Path, together: int) -> None:
    """One by one until the log's own reserve is used up, or all at once because a setting refuses now."""
    folder = session_on(small_disk)
    store = opened(folder)
    for number in range(100):
        store.add(message(f"h{number}", text="x" * 6_000), body="", verdict="held")
        store.commit()
    store.add(message("waits"), body="")
    store.commit()
    filled_up(store, small_disk)
    unread = store.unread
    holds = store.holds()
    for first in range(0, 100, together):
        for hold in holds[first : first + together]:
            store.end_hold(hold.row, "denied", NOW, "refused from now on")
            store.owe(hold.message.msg_id, "uds:/run/alice.sock", "12:34", b"x" * 300, NOW)
        store.commit()
    if together == 1:
        assert "store.ballast" not in listing(folder)
    for owed in store.owed():
        store.paid([owed.row])
        store.commit()
    assert (store.holds(), store.owed()) == ([], [])
    assert store.unread == unread
    assert len(store.take("lease", NOW)) == unread
    assert len(store.confirm("lease", NOW)) == unread
    store.close()
    with closing(opened(folder)) as again:
        assert (again.holds(), again.owed(), again.waiting()) == ([], [], [])
        assert states(again.steps("h99")) == ["received", "held", "denied"]


@pytest.mark.rule("05.27")
def test_long_texts_that_are_erased_on_a_full_disk_find_room_before_the_commit(small_disk: Path) -> None:
    """Their pages do not fit in memory, so that SQLite writes them while the group is still open."""
    store = opened(session_on(small_disk))
    for number in range(95):
        store.add(message(f"h{number}", text="x" * 50_000), body="", verdict="held")
        store.commit()
    filled_up(store, small_disk)
    for hold in store.holds():
        store.end_hold(hold.row, "expired", NOW)
    store.commit()
    assert store.holds() == []
    store.close()


@pytest.mark.rule("05.27")
def test_what_joins_a_group_of_ends_is_taken_in_as_soon_as_the_reserve_can_be_whole_again(
    small_disk: Path,
) -> None:
    folder = session_on(small_disk)
    store = opened(folder)
    one_of_everything(store)
    stone = fill(small_disk)
    (hold,) = store.holds()
    with no_writing(), pytest.raises(StoreFailed):  # noqa: PT012 - gives the reserve up, in vain
        store.change_hold(hold.row, "mode-unknown", "default", "class", None)
        store.commit()
    fill(small_disk)
    with pytest.raises(StoreFailed, match="disk is full"):  # noqa: PT012
        store.change_hold(hold.row, "mode-unknown", "default", "class", None)
        store.add(message("no"), body="")
    assert store.holds() == [hold]
    stone.unlink()
    store.change_hold(hold.row, "mode-unknown", "default", "class", None)
    store.add(message("yes"), body="")
    store.commit()
    assert store.holds()[0].expires_at is None
    assert ids(store.waiting()) == ["waits", "yes"]
    assert "store.ballast" in listing(folder)
    store.close()


@pytest.mark.rule("05.27")
def test_a_lease_in_a_group_of_ends_fails_whole_or_not_at_all(small_disk: Path) -> None:
    """What is written a second time are ends; a lease that only joined them must not be left out of it."""
    store = opened(session_on(small_disk))
    for number in range(200):
        store.add(message(f"h{number}"), body="", verdict="held")
    store.add(message("waits"), body="")
    store.commit()
    filled_up(store, small_disk)
    rows = [hold.row for hold in store.holds()]
    failed = 0
    for row in rows:
        store.end_hold(row, "denied", NOW)
        try:
            taken = store.take(f"lease {row}", NOW, limit=1)
        except StoreFailed:
            failed += 1
            store.end_hold(row, "denied", NOW)
            store.commit()
            taken = store.take(f"lease {row}", NOW, limit=1)
        assert store.release(f"lease {row}", NOW) == [taken[0].msg_id]
    assert failed == 1  # the reserve was given up then, and the second try has it
    assert store.holds() == []
    store.close()


@pytest.mark.rule("05.27")
def test_a_full_disk_keeps_nobody_from_bringing_a_store_up_to_date(small_disk: Path) -> None:
    folder = session_on(small_disk)
    filled(folder, "a").close()
    with closing(sqlite3.connect(Path(folder, "store.db"))) as older:
        for table in ("rule", "owed", "notice", "watch"):
            older.execute(f"DROP TABLE {table}")
        older.execute("ALTER TABLE message DROP COLUMN reply_path")
        for column in ("cause", "scope", "rung", "expires_at"):
            older.execute(f"ALTER TABLE unread DROP COLUMN {column}")
        older.execute("PRAGMA user_version = 1")
        older.execute("PRAGMA journal_mode = DELETE")
    fill(small_disk)
    with closing(opened(folder)) as store:
        assert ids(store.take("lease", NOW)) == ["a"]
        assert store.confirm("lease", NOW) == ["a"]


@pytest.mark.rule("05.27")
def test_one_group_may_be_larger_than_the_log(folder: str) -> None:
    with closing(opened(folder)) as store:
        for number in range(8):
            store.add(message(f"m{number}", text="x" * 1_000_000), body="")
        store.commit()
        store.prune(NOW)
        assert len(store.take("lease", NOW)) == 8
        assert listing(folder)["store.db-wal"] == LOG_BYTES


@pytest.mark.rule("05.27")
def test_the_log_has_its_size_from_the_start_and_keeps_it(folder: str) -> None:
    with closing(filled(folder, "m")) as store:
        assert listing(folder)["store.db-wal"] == LOG_BYTES
        assert listing(folder)["store.ballast"] == BALLAST_BYTES
        assert Path(folder, "store.db-wal").stat().st_blocks * 512 >= LOG_BYTES
        assert Path(folder, "store.ballast").stat().st_blocks * 512 >= BALLAST_BYTES
        for number in range(ARRIVAL_PAGES):
            store.note(f"n{number}", "full", NOW)
            store.commit()
        assert listing(folder)["store.db-wal"] == LOG_BYTES


def test_the_ballast_stays_only_where_unread_mail_waits(folder: str) -> None:
    filled(folder, "m").close()
    assert set(listing(folder)) == {"store.db", "store.ballast"}
    store = opened(folder)
    store.take("lease", NOW)
    store.confirm("lease", NOW)
    store.close()
    assert set(listing(folder)) == {"store.db"}


@pytest.mark.rule("05.27")
@pytest.mark.parametrize(("kind", "mode"), [("ext4", "wal"), ("nfs4", "persist")])
def test_every_commit_is_synced(folder: str, kind: str, mode: str) -> None:
    """A kill does not show it, only a power cut would: so SQLite is asked what it does."""
    with closing(opened(folder, kind=kind)) as store:
        connection: sqlite3.Connection = vars(store)["_connection"]
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)


def test_no_file_of_the_store_is_open_to_others(folder: str) -> None:
    with closing(filled(folder, "m")):
        assert {file.stat().st_mode & 0o777 for file in Path(folder).iterdir()} == {0o600}
        assert not Path(folder, "store.db-shm").exists()


@pytest.mark.rule("05.27")
def test_an_error_of_the_disk_is_told_and_forgiven(folder: str) -> None:
    with closing(filled(folder, "a")) as store:
        with no_writing(), pytest.raises(StoreFailed, match="reported an error") as failed:  # noqa: PT012
            store.add(message("b"), body="")
            store.commit()
        assert failed.value.code == "store_failed"
        assert failed.value.hint
        store.add(message("b"), body="")
        store.commit()
        assert ids(store.waiting()) == ["a", "b"]


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("what", ["a message", "a notice", "a row"])
def test_an_error_in_the_middle_of_a_group_ends_the_whole_group(folder: str, what: str) -> None:
    """What does not fit in memory is written before the commit."""
    with closing(filled(folder, "a")) as store:
        long = "x" * 3_000_000
        with no_writing(), pytest.raises(StoreFailed):  # noqa: PT012
            store.add(message("b"), body="")
            for number in range(4):
                if what == "a message":
                    store.add(message(f"c{number}", text=long), body="")
                elif what == "a notice":
                    store.owe("a", "uds:/a", "1:2", long.encode(), NOW)
                else:
                    store.note(f"c{number}", "full", NOW, long)
        assert not store.pending
        assert (store.unread, ids(store.waiting())) == (1, ["a"])
        store.add(message("b"), body="")
        store.commit()
        assert states(store.steps("b")) == ["received", "accepted"]


@pytest.mark.rule("05.27", "11.4")
def test_an_opening_that_cannot_write_fails_and_leaves_all_as_it_was(folder: str) -> None:
    store = filled(folder, "a")
    store.take("lease", NOW)
    store.close()
    with no_writing(), pytest.raises(StoreFailed):
        opened(folder)
    assert descriptors_below(folder) == []
    with closing(opened(folder)) as store:
        assert [(each.msg_id, each.redelivered) for each in store.waiting()] == [("a", True)]


@pytest.mark.rule("05.27")
def test_closing_never_raises(folder: str) -> None:
    store = filled(folder, "a")
    store.add(message("b"), body="")
    with no_writing():
        store.close()
    with closing(opened(folder)) as store:
        assert ids(store.waiting()) == ["a"]


@pytest.mark.rule("05.27")
def test_where_a_corrupt_file_cannot_be_replaced_every_call_fails(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(folder, *(f"m{number}" for number in range(400)), text="x" * 900).close()
    store = opened(folder)
    path = Path(folder, "store.db")
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))

    def refuse(path: str, now: int) -> str:
        raise PermissionError(f"{path} at {now}")

    monkeypatch.setattr("postroom.state.writer.set_aside", refuse)
    for _ in range(2):
        with pytest.raises(StoreFailed):
            store.waiting()
        with pytest.raises(StoreFailed):
            store.add(message("new"), body="")
    store.close()


def test_after_a_failure_closing_lets_go_of_the_file(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.state.database.OPENER_SECONDS", 0.0)
    store = filled(folder, "m")
    store.add(message("n"), body="")
    with no_writing(), pytest.raises(StoreFailed):
        store.commit()
    store.close()
    assert descriptors_below(folder) == []
    with closing(opened(folder)) as again:
        assert ids(again.waiting()) == ["m"]


@pytest.mark.rule("05.27")
@pytest.mark.parametrize(
    ("code", "says"),
    [
        (sqlite3.SQLITE_FULL, "full"),
        (sqlite3.SQLITE_IOERR_FSYNC, "reported an error"),
        (sqlite3.SQLITE_READONLY_DIRECTORY, "read-only"),
        (sqlite3.SQLITE_CANTOPEN_ISDIR, "cannot be opened"),
        (sqlite3.SQLITE_BUSY, "in use"),
        (sqlite3.SQLITE_NOMEM, "failed"),
    ],
)
def test_every_error_of_sqlite_says_what_is_wrong_and_what_to_do(code: int, says: str) -> None:
    error = sqlite3.OperationalError("?")
    error.sqlite_errorcode = code
    assert says in failure(error).message
    assert failure(error).hint


@pytest.mark.rule("05.27")
def test_a_folder_that_cannot_be_written_fails_at_the_opening(small_disk: Path) -> None:
    folder = session_on(small_disk)
    filled(folder, "a").close()
    empty = small_disk / "empty"
    empty.mkdir(mode=0o700)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    before = content(folder)
    for where in (folder, str(empty)):
        with pytest.raises(StoreFailed) as failed:
            opened(where)
        assert failed.value.hint
    with closing(Reader.open(folder)) as reader:
        assert states(reader.steps("a")) == ["received", "accepted"]
    assert content(folder) == before
