"""The store in a file: kills, files that are not what they should be, forks, readers."""

from __future__ import annotations

import gc
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from postroom.core.message import TRANSITIONS
from postroom.errors import StoreFailed, StoreTooNew, UnfitPath
from postroom.state import schema
from postroom.state.files import descriptors_below
from postroom.state.store import Reader, SqliteStore
from postroom.state.store_files import (
    CORRUPT_KEPT,
    LOG_BYTES,
    file_system_of,
    is_network,
)
from tests.state.stores import (
    ALICE,
    DAY,
    NOW,
    content,
    filled,
    ids,
    later,
    listing,
    message,
    opened,
    states,
)

ROUNDS = int(os.environ.get("POSTROOM_TEST_ROUNDS", "12"))
"""Kills of a writing process; `make soak` asks for thousands."""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A session's own folder."""
    made = tmp_path / "session"
    made.mkdir(mode=0o700)
    return str(made)


# ── killed ──────────────────────────────────────────────────────────────────────────────────────────


def write_until_killed(folder: str, report: int, seed: int) -> None:
    """Takes in, hands out, confirms and gives back, and says before and after each what it does."""
    dice = random.Random(seed)
    store = opened(folder)
    leases: list[str] = []
    number = 0

    def say(*words: str) -> None:
        os.write(report, (" ".join(words) + "\n").encode())

    while True:
        number += 1
        kind = dice.choice(["add", "add", "group", "take", "confirm", "release", "prune"])
        name = f"{seed}-{number}"
        if kind in {"add", "group"}:
            names = [f"{name}-{place}" for place in range(1 if kind == "add" else 5)]
            say("try", "add", *names)
            for each in names:
                store.add(message(each, text="x" * dice.choice([1, 500, 20_000])), body=each)
            store.commit()
            say("did", "add", *names)
        elif kind == "take":
            say("try", "take")
            say("did", "take", *ids(store.take(name, NOW, limit=20)))
            leases.append(name)
        elif kind == "prune":
            store.prune(NOW)
        elif leases:
            lease = leases.pop()
            say("try", kind)
            say("did", kind, *getattr(store, kind)(lease, NOW))


class Witness:
    """What the reports of killed writers allow a store to hold."""

    def __init__(self) -> None:
        self.added: list[str] = []
        self.maybe_added: set[str] = set()
        self.taken: set[str] = set()
        self.gone: set[str] = set()

    def hear(self, lines: list[str]) -> tuple[bool, bool]:
        """Learns from one writer's reports; says whether its last take or confirmation was cut off."""
        self.maybe_added.clear()
        open_kind = ""
        for line in lines:
            word, kind, *names = line.split()
            open_kind = kind if word == "try" else ""
            if kind == "add":
                if word == "try":
                    self.maybe_added = set(names)
                else:
                    self.added += names
                    self.maybe_added.clear()
            elif word == "did" and kind == "take":
                self.taken.update(names)
            elif word == "did" and kind == "confirm":
                self.gone.update(names)
        return open_kind == "take", open_kind == "confirm"

    def judge(self, store: SqliteStore, *, cut_take: bool, cut_confirm: bool) -> None:
        """Nothing acknowledged is lost, nothing confirmed is back, nothing that was handed out comes as new."""
        waiting = {each.msg_id: each for each in store.waiting()}
        missing = self.taken - waiting.keys() - self.gone
        consumed = {name for name in missing if store.find(name)[0].state == "consumed"}
        assert self.gone.isdisjoint(waiting)
        lost = {*self.added} - waiting.keys() - self.gone - (consumed if cut_confirm else set())
        assert lost == set()
        came = [name for name in waiting if name not in self.added]
        assert set(came) in (set(), self.maybe_added)  # a group is whole or not there
        self.added += sorted(self.maybe_added & waiting.keys(), key=lambda name: int(name.split("-")[2]))
        order = [name for name in self.added if name in waiting]
        assert [*waiting] == order
        again = {name for name, each in waiting.items() if each.redelivered}
        assert (self.taken & waiting.keys()) <= again
        assert cut_take or again <= self.taken
        self.taken |= again
        self.gone |= consumed
        assert (store.unread, store.waiting_count) == (len(waiting), len(waiting))
        for name in self.added[-40:]:
            assert store.settled("alice-session", name) is not None
            steps = states(store.steps(name))
            assert steps[0] == "received"
            for before, after in pairwise(steps):
                assert after in dict(TRANSITIONS)[before]  # pyright: ignore[reportArgumentType]


@pytest.mark.soak
@pytest.mark.timeout(0 if ROUNDS > 100 else 60)
@pytest.mark.rule("11.4", "11.6", "11.25")
def test_killed_at_any_instruction_it_loses_nothing_and_repeats_nothing_as_new(folder: str) -> None:
    witness = Witness()
    dice = random.Random(11)
    for seed in range(ROUNDS):
        hear, report = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(hear)
                write_until_killed(folder, report, seed)
            finally:
                os._exit(1)
        os.close(report)
        heard = b""
        enough = dice.randrange(1, 120)
        while heard.count(b"\n") < enough and (more := os.read(hear, 4096)):
            heard += more
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        while more := os.read(hear, 65_536):
            heard += more
        os.close(hear)
        cut_take, cut_confirm = witness.hear(heard.decode().splitlines())
        with closing(opened(folder)) as store:
            witness.judge(store, cut_take=cut_take, cut_confirm=cut_confirm)
            assert store.problems == []


# ── files that are not what they should be ──────────────────────────────────────────────────────────


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda _: b"no database at all, but long enough to look at" * 100,
    "truncated": lambda whole: whole[:5000],
    "overwritten": lambda whole: whole[:4096] + b"\xff" * 4096 * 20,
    "zeroed": lambda _: bytes(8192),
}


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_corrupt_file_is_set_aside_and_a_new_one_begun(folder: str, damage: str) -> None:
    filled(folder, "lost").close()
    path = Path(folder, "store.db")
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    damaged = content(folder)["store.db"]
    with closing(opened(folder)) as store:
        (problem,) = store.problems
        (name,) = re.findall(r"set aside as (store\.db\.corrupt-\d{8}T\d{6});", problem)
        assert content(folder)[name] == damaged
        assert store.waiting() == []
        store.add(message("new"), body="")
        store.commit()
    with closing(opened(folder)) as store:
        assert store.problems == []
        assert ids(store.waiting()) == ["new"]


@pytest.mark.rule("05.27")
def test_the_log_of_a_corrupt_file_goes_with_it(folder: str) -> None:
    child = os.fork()
    if child == 0:
        store = filled(folder, "a")
        store.prune(NOW)
        store.add(message("in the log"), body="")
        store.commit()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    Path(folder, "store.db").write_bytes(b"garbage" * 10_000)
    log = content(folder)["store.db-wal"]
    with closing(opened(folder)) as store:
        (problem,) = store.problems
        (aside,) = [name for name in listing(folder) if "corrupt" in name and not name.endswith("-wal")]
        assert aside in problem
        assert content(folder)[f"{aside}-wal"] == log
        assert store.waiting() == []


@pytest.mark.rule("05.27")
def test_somebody_elses_database_is_set_aside_whole(folder: str) -> None:
    path = Path(folder, "store.db")
    path.touch(mode=0o600)
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE letter(x)")
        other.commit()
    with closing(opened(folder)) as store:
        assert len(store.problems) == 1
    (aside,) = [name for name in listing(folder) if "corrupt" in name]
    with closing(sqlite3.connect(Path(folder, aside))) as other:
        assert other.execute("SELECT count(*) FROM letter").fetchone() == (0,)


@pytest.mark.rule("05.27", "11.10")
def test_sets_of_corrupt_files_are_bounded_and_never_overwrite_each_other(folder: str) -> None:
    for number in range(CORRUPT_KEPT + 2):
        Path(folder, "store.db").write_bytes(b"garbage %d" % number * 1000)
        Path(folder, "store.db").chmod(0o600)
        opened(folder).close()
    kept = {Path(folder, name).read_bytes()[:9] for name in listing(folder) if "corrupt" in name}
    assert kept == {b"garbage %d" % number for number in range(2, CORRUPT_KEPT + 2)}


@pytest.mark.rule("05.27")
def test_a_corruption_found_in_use_is_told_and_the_session_goes_on(folder: str) -> None:
    filled(folder, *(f"m{number}" for number in range(400)), text="x" * 900).close()
    with closing(opened(folder)) as store:
        path = Path(folder, "store.db")
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (path.stat().st_size - 4096))
        with pytest.raises(StoreFailed, match="corrupt"):
            store.waiting()
        assert any("set aside as store.db.corrupt-" in problem for problem in store.problems)
        assert (store.unread, store.waiting_count, store.waiting()) == (0, 0, [])
        store.add(message("new"), body="")
        store.commit()
        assert ids(store.take("lease", NOW)) == ["new"]


@pytest.mark.rule("05.27")
def test_a_corruption_deeper_than_the_opening_looks_is_found_by_it_all_the_same(folder: str) -> None:
    store = filled(folder, *(f"m{number}" for number in range(40)), text="x" * 900)
    store.take("lease", NOW)
    store.close()
    path = Path(folder, "store.db")
    whole = path.read_bytes()
    pages = [whole[at : at + 4096] for at in range(0, len(whole), 4096)]
    path.write_bytes(b"".join(b"\xff" * 4096 if b"x" * 900 in page else page for page in pages))
    with closing(opened(folder)) as store:
        assert len(store.problems) == 1
        assert (store.unread, store.waiting()) == (0, [])
        store.add(message("new"), body="")
        store.commit()
        assert ids(store.waiting()) == ["new"]


@pytest.mark.rule("05.27")
def test_a_newer_store_is_left_alone(folder: str) -> None:
    filled(folder, "m").close()
    with closing(sqlite3.connect(Path(folder, "store.db"))) as newer:
        newer.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    before = content(folder)["store.db"]
    for way in (opened, Reader.open):
        with pytest.raises(StoreTooNew) as refused:
            way(folder)
        assert f"version {schema.VERSION + 1}" in str(refused.value)
    assert content(folder)["store.db"] == before
    assert [name for name in listing(folder) if "corrupt" in name] == []


def test_an_opening_that_was_cut_off_is_begun_again(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store is made whole or not at all: half a schema is never found."""
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", ((*schema.MIGRATIONS[0], "CREATE TABLE letter(twice)"),))
        with pytest.raises(StoreFailed):
            opened(folder)
    with closing(filled(folder, "m")) as store:
        assert store.problems == []
        assert ids(store.waiting()) == ["m"]


@pytest.mark.rule("11.11")
def test_a_file_that_must_not_be_trusted_is_refused_and_not_followed(folder: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.db"
    elsewhere.touch(mode=0o600)
    path = Path(folder, "store.db")
    path.symlink_to(elsewhere)
    with pytest.raises(UnfitPath):
        opened(folder)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(UnfitPath):
        opened(folder)
    path.unlink()
    path.touch()
    path.chmod(0o644)
    with pytest.raises(UnfitPath):
        opened(folder)
    assert elsewhere.stat().st_size == 0


def test_where_there_is_no_folder_the_store_fails(folder: str) -> None:
    with pytest.raises((StoreFailed, UnfitPath)):
        opened(f"{folder}/missing")


def test_half_a_surrogate_is_refused_and_leaves_the_group_as_it_was(folder: str) -> None:
    with closing(opened(folder)) as store:
        store.add(message("a"), body="")
        for broken in (message("\ud800"), message("b", text="\ud800")):
            with pytest.raises(ValueError, match="surrogates"):
                store.add(broken, body="")
        store.add(message("b"), body="")
        store.commit()
        assert ids(store.waiting()) == ["a", "b"]


# ── network file systems ────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("kind", ["nfs4", "9p", "fuse.sshfs"])
def test_on_a_network_file_system_there_is_a_rollback_journal_and_a_sentence(folder: str, kind: str) -> None:
    filled(folder, "before").close()
    with closing(opened(folder, kind=kind)) as store:
        (problem,) = store.problems
        assert f"network file system ({kind})" in problem
        store.add(message("m"), body="")
        store.commit()
        assert "store.db-wal" not in listing(folder)
        assert "store.db-journal" in listing(folder)
        assert ids(store.take("lease", NOW)) == ["before", "m"]
    with closing(opened(folder)) as store:
        assert store.problems == []
        assert ids(store.waiting()) == ["before", "m"]
        assert "store.db-wal" in listing(folder)


@pytest.mark.rule("05.27", "11.4")
def test_with_a_rollback_journal_a_kill_loses_nothing_either(folder: str) -> None:
    child = os.fork()
    if child == 0:
        store = opened(folder, kind="nfs")
        store.add(message("m"), body="")
        store.commit()
        store.add(message("not acknowledged"), body="")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with closing(opened(folder, kind="nfs")) as store:
        assert ids(store.waiting()) == ["m"]


def test_the_kind_of_a_file_system_is_the_kernels_word(tmp_path: Path) -> None:
    done = subprocess.run(["stat", "-f", "-c", "%T", "/proc"], capture_output=True, text=True, check=True)
    assert file_system_of("/proc") == done.stdout.strip() == "proc"
    assert file_system_of(str(tmp_path)) != ""
    assert file_system_of(str(tmp_path / "missing")) == ""
    assert [
        kind for kind in ("proc", "ext4", "fuseblk", "fuse", "fuse.sshfs", "cifs", "") if is_network(kind)
    ] == [
        "fuse",
        "fuse.sshfs",
        "cifs",
    ]


# ── one writer, forks, readers ──────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.27")
def test_a_second_process_cannot_open_it(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.state.database.OPENER_SECONDS", 0.0)
    monkeypatch.setattr("postroom.state.database.READER_SECONDS", 0.0)
    ready, there = os.pipe()
    child = os.fork()
    if child == 0:
        filled(folder, "m")
        os.write(there, b"!")
        signal.pause()
    try:
        assert os.read(ready, 1) == b"!"
        for way in (opened, Reader.open):
            with pytest.raises(StoreFailed, match="in use by another process"):
                way(folder)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(there)
    opened(folder).close()


@pytest.mark.rule("05.11", "11.4")
@pytest.mark.parametrize("log_is_copied", [True, False])
def test_a_forked_child_has_no_part_in_the_store(folder: str, log_is_copied: bool) -> None:
    """Nor does its end harm the parent: it closes a copy of the connection, which must not remove the log."""
    store = filled(folder, "m")
    store.take("lease", NOW)
    store.confirm("lease", NOW)
    if log_is_copied:
        store.prune(NOW)
    child = os.fork()
    if child == 0:
        verdict = 1
        try:
            assert descriptors_below(folder) == []
            for use in (store.waiting, store.commit, lambda: store.add(message("child"), body="")):
                try:
                    use()
                    assert use == store.commit
                except StoreFailed:
                    pass
            store.close()
            del store, use
            gc.collect()
            verdict = 0
        finally:
            os._exit(verdict)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert {"store.db", "store.db-wal", "store.ballast"} <= set(listing(folder))
    assert len(descriptors_below(folder)) == 2
    store.add(message("after"), body="")
    store.commit()
    copy = f"{folder}-copy"
    shutil.copytree(folder, copy)
    os.chmod(copy, 0o700)
    with closing(opened(copy)) as killed:
        assert ids(killed.waiting()) == ["after"]
    store.close()


@pytest.mark.rule("05.11")
def test_a_child_that_ends_like_a_program_leaves_the_log_alone(folder: str) -> None:
    """The interpreter of the child destroys every object at its end."""
    program = f"""
import os, sys
from postroom.state.store import SqliteStore
from postroom.core.message import Message, Origin
store = SqliteStore.open({folder!r}, now=0)
store.add(Message(msg_id="m", text="", origin=Origin(kind="peer", identity="s"), received_at=0), body="")
store.commit()
store.prune(0)
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
store.add(Message(msg_id="n", text="", origin=Origin(kind="peer", identity="s"), received_at=0), body="")
store.commit()
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with closing(opened(folder)) as store:
        assert ids(store.waiting()) == ["m", "n"]


@pytest.mark.rule("10.12", "10.13")
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_the_journal_of_an_ended_session_can_be_read(folder: str, end: str) -> None:
    child = os.fork()
    if child == 0:
        store = filled(folder, "a", "b", text="words")
        store.take("lease", NOW, limit=1)
        if end == "closed":
            store.close()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    before = content(folder)["store.db"]
    with closing(Reader.open(folder)) as reader, closing(Reader.open(folder, session_name="desk")) as named:
        assert states(reader.steps("a")) == ["received", "accepted", "leased"]
        assert {step.where for _, step in reader.log()} == {"session"}
        assert {step.where for _, step in named.log(text="WORDS", peer="Alice")} == {"desk"}
    assert content(folder)["store.db"] == before
    with closing(opened(folder)) as store:
        assert [(each.msg_id, each.redelivered) for each in store.waiting()] == [("a", True), ("b", False)]


def test_a_reader_finds_no_store_where_there_is_none(folder: str) -> None:
    with pytest.raises(StoreFailed):
        Reader.open(folder)
    Path(folder, "store.db").touch(mode=0o600)
    with pytest.raises(StoreFailed):
        Reader.open(folder)
    Path(folder, "store.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(StoreFailed, match="corrupt"):
        Reader.open(folder)
    assert set(listing(folder)) == {"store.db"}


@pytest.mark.rule("05.27")
def test_space_goes_back_to_the_disk_bit_by_bit(folder: str) -> None:
    store = filled(folder, *(f"m{number}" for number in range(60)), text="x" * 40_000)
    store.take("lease", NOW)
    store.confirm("lease", NOW)
    sizes: list[int] = []
    for _ in range(12):
        store.prune(NOW + 31 * DAY)
        sizes.append(listing(folder)["store.db"])
    assert sizes[-1] < sizes[0]
    assert sizes == sorted(sizes, reverse=True)
    store.close()


def test_a_lease_writes_little_whatever_the_size_of_the_texts(folder: str) -> None:
    """So that it fits on a full disk: the text is not written again."""
    with closing(opened(folder)) as store:
        store.add(message("m", text="x" * 1_000_000), body="")
        store.commit()
        store.prune(NOW)
        log = Path(folder, "store.db-wal")
        before = log.read_bytes()
        store.take("lease", NOW)
        store.confirm("lease", NOW)
        after = log.read_bytes()
        changed = [
            page
            for page in range(0, LOG_BYTES, 4096)
            if before[page : page + 4096] != after[page : page + 4096]
        ]
        assert 0 < len(changed) <= 10


def test_the_order_of_priorities_survives_a_kill(folder: str) -> None:
    child = os.fork()
    if child == 0:
        store = opened(folder)
        store.add(later(message("l")), body="")
        store.add(message("n"), body="")
        store.commit()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with closing(opened(folder)) as store:
        assert ids(store.waiting()) == ["n", "l"]
        assert store.waiting()[0].origin == ALICE


@pytest.mark.rule("11.4", "05.27")
def test_an_interrupt_between_two_writes_of_a_message_leaves_nothing_of_it(home: Path) -> None:
    """Half a message must neither be committed nor settle its id: the sender was told nothing."""
    folder = str(home)
    store = opened(folder)
    write = store._write  # pyright: ignore[reportPrivateUsage]

    def interrupted(sql: str, *values: object) -> object:
        done = write(sql, *values)
        if sql == schema.ADD_LETTER:
            raise KeyboardInterrupt
        return done

    store._write = interrupted  # type: ignore[assignment, method-assign]  # pyright: ignore
    with pytest.raises(KeyboardInterrupt):
        store.add(message("m"), body="")
    store._write = write  # pyright: ignore[reportPrivateUsage]
    assert not store.pending
    store.commit()
    assert store.settled("alice-session", "m") is None
    store.add(message("m"), body="")
    store.commit()
    store.close()
    again = opened(folder)
    assert [one.msg_id for one in again.waiting()] == ["m"]
    again.close()
