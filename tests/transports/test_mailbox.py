"""One mailbox: what is added, taken, moved aside and refused, and what of it other programs see."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from postroom.core import mailfile
from postroom.core.mailfile import Entry
from postroom.core.refusals import CODES
from postroom.errors import InvalidName, UnfitPath
from postroom.state import files, locks
from postroom.transports import mailbox as module
from postroom.transports.mailbox import Leftover, Mailbox, MailboxFull, MailboxWriteFailed

AT = "2026-11-30T12:00:00.000Z"
KINDS = pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])


@pytest.fixture
def inboxes(home: Path) -> Path:
    """The folder of the inboxes of a team; the team's own is there, and this one is not."""
    team = home / "teams" / "session-12345678"
    files.private_folder(str(team))
    return team / "inboxes"


@pytest.fixture
def box(inboxes: Path) -> Mailbox:
    return Mailbox(str(inboxes), "ann", shared=False)


def entry(text: str = "hello", **more: Any) -> Entry:
    fields: dict[str, Any] = {"from_": "bob", "text": text, "timestamp": AT, **more}
    return Entry(**fields)


def texts(box: Mailbox) -> list[str]:
    return [each.text for each in box.snapshot().entries]


def put(box: Mailbox, data: bytes) -> None:
    """What another program wrote there."""
    Path(box.folder).mkdir(mode=0o700, exist_ok=True)
    Path(box.path).touch(0o600)
    Path(box.path).write_bytes(data)


def beside(box: Mailbox) -> list[str]:
    return sorted(name for name in os.listdir(box.folder) if name != f"{box.name}.json")


# ── writing and reading ──────────────────────────────────────────────────────────────────────────


@KINDS
@pytest.mark.rule("07.1", "07.2", "07.3")
def test_an_entry_lies_in_the_file_as_other_programs_read_it(inboxes: Path, shared: bool) -> None:
    box = Mailbox(str(inboxes), "ann", shared=shared)
    box.append(entry("one", msg_id="m1", summary="s"))
    box.append(entry("two"))
    assert json.loads((inboxes / "ann.json").read_text()) == [
        {
            "from": "bob",
            "text": "one",
            "timestamp": AT,
            "read": False,
            "type": "message",
            "msg_id": "m1",
            "msgV": 1,
            "summary": "s",
        },
        {"from": "bob", "text": "two", "timestamp": AT, "read": False, "type": "message", "msgV": 1},
    ]
    assert box.snapshot().entries == (entry("one", msg_id="m1", summary="s"), entry("two"))
    assert beside(box) == [".ann.lock"]
    assert os.stat(box.path).st_mode & 0o777 == 0o600
    assert os.stat(inboxes).st_mode & 0o777 == 0o700


def test_a_mailbox_that_is_not_there_holds_nothing_and_is_not_made_by_looking(box: Mailbox) -> None:
    assert box.snapshot() == module.Snapshot()
    assert box.mark() is None
    assert not os.path.exists(box.folder)
    assert box.repair() == ()


@pytest.mark.rule("07.5")
def test_looking_takes_nothing_and_what_was_taken_is_gone_from_the_file(box: Mailbox) -> None:
    for text in ("one", "two", "three"):
        box.append(entry(text))
    before = Path(box.path).read_bytes()
    first = box.snapshot()
    assert Path(box.path).read_bytes() == before
    box.append(entry("four"))
    assert box.remove([first.items[0].key, first.items[2].key]) == 2
    assert texts(box) == ["two", "four"]
    assert box.remove([first.items[0].key]) == 0
    assert box.remove([]) == 0
    assert sorted(os.listdir(box.folder)) == [".ann.lock", "ann.json"], "an archive"


@pytest.mark.rule("07.5", "11.19")
def test_what_was_stored_and_not_yet_removed_when_its_reader_died_has_the_same_key_again(
    box: Mailbox,
) -> None:
    box.append(entry("with an id", msg_id="m"))
    box.append(entry("without"))
    box.append(entry("without"))
    keys = [item.key for item in box.snapshot().items]
    again = Mailbox(box.folder, "ann", shared=False)
    again.append(entry("later"))
    assert [item.key for item in again.snapshot().items][:3] == keys
    assert again.remove(keys) == 3
    assert texts(again) == ["later"]


@pytest.mark.rule("12.29")
def test_every_change_of_the_file_changes_its_mark(box: Mailbox) -> None:
    """Though its time is the same."""
    box.append(entry("1"))
    seen = {box.mark()}
    for text in ("2", "3"):
        box.append(entry(text))
        os.utime(box.path, (1, 1))
        mark = box.mark()
        assert mark not in seen
        seen.add(mark)
    assert box.snapshot().mark == box.mark()


@pytest.mark.rule("07.3")
def test_making_the_file_replaces_nothing_that_another_made_in_this_instant(
    box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def link(old: str, new: str) -> None:
        put(box, mailfile.joined([mailfile.encoded(entry("theirs"))]))
        real(old, new)

    monkeypatch.setattr(os, "link", link)
    box.append(entry("ours"))
    assert texts(box) == ["theirs", "ours"]
    assert beside(box) == [".ann.lock"]


@KINDS
@pytest.mark.rule("07.3")
def test_the_locks_are_held_while_it_is_written(
    inboxes: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """The flock always and first; the directory too where others write."""
    box = Mailbox(str(inboxes), "ann", shared=shared)
    box.append(entry())
    seen: list[tuple[bool, bool]] = []
    real = files.write_atomic

    def write(path: str, *rest: Any, **more: Any) -> None:
        seen.append((files.probe(box.file_lock), os.path.isdir(box.directory_lock)))
        real(path, *rest, **more)

    monkeypatch.setattr(files, "write_atomic", write)
    box.append(entry())
    box.remove([box.snapshot().items[0].key])
    assert seen == [(True, shared)] * 2
    assert not files.probe(box.file_lock)
    assert not os.path.lexists(box.directory_lock)


@pytest.mark.rule("07.3", "11.19")
def test_what_is_written_is_synced_before_it_is_renamed_and_the_folder_after(
    box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.append(entry("one"))
    synced: list[tuple[str, int]] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        synced.append(("temporary" if files.is_temporary(name) else name, len(texts(box))))
        real(fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        box.append(entry("two"))
        box.remove([box.snapshot().items[0].key])
    assert synced == [("temporary", 1), ("inboxes", 2), ("temporary", 2), ("inboxes", 1)]


@pytest.mark.rule("07.6")
def test_what_is_moved_aside_is_synced_there_before_it_is_gone_from_here(
    box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(box, b"[5]")
    synced: list[tuple[str, bytes]] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        synced.append(("temporary" if files.is_temporary(name) else name, Path(box.path).read_bytes()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    box.snapshot()
    assert synced == [("ann.json.quarantine", b"[5]"), ("temporary", b"[5]"), ("inboxes", b"[]")]


@pytest.mark.rule("07.3")
def test_a_lock_that_is_held_makes_a_writer_say_so_and_nothing_is_written(inboxes: Path) -> None:
    box = Mailbox(str(inboxes), "ann", shared=True, seconds=0.05)
    box.append(entry("one"))
    os.mkdir(box.directory_lock)
    with pytest.raises(MailboxWriteFailed, match="another program holds it"):
        box.append(entry("two"))
    with pytest.raises(MailboxWriteFailed):
        box.remove([box.snapshot().items[0].key])
    assert texts(box) == ["one"]
    assert beside(box) == [".ann.lock", "ann.json.lock"]


@pytest.mark.rule("07.3")
def test_our_own_writers_wait_twenty_seconds() -> None:
    assert module.LOCK_SECONDS == 20.0
    assert Mailbox("/none", "ann", shared=True)._seconds == 20.0  # pyright: ignore[reportPrivateUsage]


@KINDS
@pytest.mark.rule("07.3")
def test_what_changed_under_the_lock_is_read_again_before_it_is_written(
    inboxes: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """A program that ignores the lock writes between our reading and our rename; then its entry is not lost."""
    box = Mailbox(str(inboxes), "ann", shared=shared)
    box.append(entry("one"))
    real, meddled = os.fsync, [0]

    def fsync(fd: int) -> None:
        real(fd)
        if meddled[0] < 2:
            meddled[0] += 1
            data = mailfile.splice(
                Path(box.path).read_bytes(), mailfile.encoded(entry(f"theirs {meddled[0]}"))
            )
            assert isinstance(data, bytes)
            Path(box.path).write_bytes(data)

    monkeypatch.setattr(os, "fsync", fsync)
    box.append(entry("two"))
    assert texts(box) == ["one", "theirs 1", "theirs 2", "two"]
    assert beside(box) == [".ann.lock"]


@pytest.mark.rule("07.3")
def test_a_lock_that_was_broken_before_the_rename_is_taken_again(
    inboxes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program believed it left over, and holds it now: our writer waits for it and reads again."""
    box = Mailbox(str(inboxes), "ann", shared=True)
    box.append(entry("one"))
    real, broken = os.fsync, threading.Event()
    release: list[threading.Timer] = []

    def let_go() -> None:
        data = mailfile.splice(Path(box.path).read_bytes(), mailfile.encoded(entry("theirs")))
        assert isinstance(data, bytes)
        Path(f"{box.path}.new").write_bytes(data)
        os.chmod(f"{box.path}.new", 0o600)
        os.rename(f"{box.path}.new", box.path)
        os.rmdir(box.directory_lock)

    def fsync(fd: int) -> None:
        real(fd)
        if not broken.is_set():
            broken.set()
            os.rename(box.directory_lock, f"{box.directory_lock}.theirs")
            os.rmdir(f"{box.directory_lock}.theirs")
            os.mkdir(box.directory_lock)
            release.append(threading.Timer(0.05, let_go))
            release[0].start()

    monkeypatch.setattr(os, "fsync", fsync)
    box.append(entry("two"))
    release[0].join()
    assert texts(box) == ["one", "theirs", "two"]


def test_a_file_that_is_changed_without_end_is_given_up(
    box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.append(entry("one"))
    real = os.fsync

    def fsync(fd: int) -> None:
        real(fd)
        with open(box.path, "ab") as file:
            file.write(b" ")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(MailboxWriteFailed, match="again and again"):
        box.append(entry("two"))
    assert texts(box) == ["one"]


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.6")
def test_a_full_mailbox_takes_no_more_until_something_was_read(box: Mailbox) -> None:
    put(box, mailfile.joined([mailfile.encoded(entry(str(n))) for n in range(1000)]))
    with pytest.raises(MailboxFull):
        box.append(entry("one more"))
    assert len(box.snapshot().items) == 1000
    box.remove([box.snapshot().items[0].key])
    box.append(entry("one more"))
    assert texts(box)[-1] == "one more"


@pytest.mark.rule("07.6")
def test_entries_of_a_mebibyte_fill_it_after_three(box: Mailbox) -> None:
    for number in range(3):
        box.append(entry(str(number) + "x" * 1024 * 1024))
    with pytest.raises(MailboxFull):
        box.append(entry("x" * 1024 * 1024))
    assert [text[0] for text in texts(box)] == ["0", "1", "2"]
    box.append(entry("a small one"))


@pytest.mark.rule("07.6")
def test_ten_thousand_entries_of_another_program_are_read_and_drained(box: Mailbox) -> None:
    put(
        box,
        json.dumps([json.loads(mailfile.encoded(entry(str(n)))) for n in range(10_000)], indent=2).encode(),
    )
    with pytest.raises(MailboxFull):
        box.append(entry())
    found = box.snapshot()
    assert [each.text for each in found.entries] == [str(n) for n in range(10_000)]
    assert box.remove([item.key for item in found.items]) == 10_000
    assert Path(box.path).read_bytes() == b"[]"
    box.append(entry("again"))


def test_a_file_that_no_memory_holds_is_not_read(box: Mailbox) -> None:
    put(box, b"")
    os.truncate(box.path, module.MAX_READ + 1)
    with pytest.raises(UnfitPath, match="larger than"):
        box.snapshot()
    with pytest.raises(MailboxWriteFailed, match="larger than"):
        box.append(entry())


def test_every_failure_has_a_code_with_a_sentence() -> None:
    assert {MailboxFull.code, MailboxWriteFailed.code} <= set(CODES)
    assert MailboxWriteFailed("x").reason == "x"


# ── damage ───────────────────────────────────────────────────────────────────────────────────────


@KINDS
@pytest.mark.rule("07.6")
def test_what_is_no_entry_is_moved_aside_told_once_and_the_rest_is_delivered(
    inboxes: Path, shared: bool
) -> None:
    box = Mailbox(str(inboxes), "ann", shared=shared)
    good = mailfile.encoded(entry("good"))
    put(box, b"[5, " + good + b', {"from": "x"}]')
    found = box.snapshot()
    assert [each.text for each in found.entries] == ["good"]
    assert [(item.raw, item.reason) for item in found.quarantined] == [
        (b"5", "it is not an object"),
        (b'{"from": "x"}', "it lacks `text`"),
    ]
    assert Path(box.path).read_bytes() == b"[" + good + b"]"
    lines = [json.loads(line) for line in (inboxes / "ann.json.quarantine").read_text().splitlines()]
    assert [(line["bytes"], line["reason"]) for line in lines] == [
        ("5", "it is not an object"),
        ('{"from": "x"}', "it lacks `text`"),
    ]
    assert os.stat(inboxes / "ann.json.quarantine").st_mode & 0o777 == 0o600
    again = box.snapshot()
    assert (again.quarantined, again.problem) == ((), "")
    assert box.remove([item.key for item in found.items]) == 1
    put(box, b"[6]")
    assert len(box.snapshot().quarantined) == 1
    assert len((inboxes / "ann.json.quarantine").read_text().splitlines()) == 3


@KINDS
@pytest.mark.rule("07.6")
@pytest.mark.parametrize("damage", ["truncated", "bom", "two arrays", "zeros"])
def test_a_file_that_does_not_parse_is_copied_aside_and_salvaged(
    inboxes: Path, shared: bool, damage: str
) -> None:
    box = Mailbox(str(inboxes), "ann", shared=shared)
    one, two = mailfile.encoded(entry("one")), mailfile.encoded(entry("two"))
    data = {
        "truncated": b"[" + one + b"," + two + b"," + one[:-9],
        "bom": b"\xef\xbb\xbf[" + one + b"," + two + b"]",
        "two arrays": b"[" + one + b"][" + two + b"]",
        "zeros": b"[" + one + b"," + two + b"\0\0\0",
    }[damage]
    put(box, data)
    found = box.snapshot()
    assert [each.text for each in found.entries] == ["one", "two"]
    assert (inboxes / found.copy).read_bytes() == data
    assert found.copy.startswith("ann.json.damaged-")
    assert Path(box.path).read_bytes() == b"[" + one + b"," + two + b"]"
    assert box.snapshot().copy == ""
    assert box.remove([item.key for item in found.items]) == 2


@pytest.mark.rule("07.6")
def test_whoever_adds_to_a_damaged_file_loses_nothing_of_it(box: Mailbox) -> None:
    data = b"[" + mailfile.encoded(entry("one")) + b',{"from":"x'
    put(box, data)
    box.append(entry("two"))
    assert texts(box) == ["one", "two"]
    [copy] = [each for each in box.repair() if each.kind == "damaged"]
    assert Path(box.folder, copy.name).read_bytes() == data


@pytest.mark.rule("07.6")
def test_whoever_takes_from_a_damaged_file_loses_nothing_of_it(box: Mailbox) -> None:
    box.append(entry("one"))
    [item] = box.snapshot().items
    data = b"[" + item.raw + b',{"from":"x'
    put(box, data)
    assert box.remove([item.key]) == 1
    assert Path(box.path).read_bytes() == b"[]"
    [copy] = [each for each in box.repair() if each.kind == "damaged"]
    assert Path(box.folder, copy.name).read_bytes() == data


@KINDS
@pytest.mark.rule("07.6")
def test_a_file_of_no_bytes_is_looked_at_again_under_the_locks(
    inboxes: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """Its maker writes it while we wait; what it wrote is not lost."""
    box = Mailbox(str(inboxes), "ann", shared=shared)
    for work, expected in (
        (box.snapshot, ["theirs"]),
        (lambda: box.append(entry("ours")), ["theirs", "ours"]),
    ):
        put(box, b"")
        waited: list[float] = []

        def sleep(seconds: float, waited: list[float] = waited) -> None:
            assert files.probe(box.file_lock)
            waited.append(seconds)
            put(box, mailfile.joined([mailfile.encoded(entry("theirs"))]))

        with monkeypatch.context() as patched:
            patched.setattr(module.time, "sleep", sleep)
            work()
        assert waited == [0.1]
        assert texts(box) == expected


@pytest.mark.rule("07.6")
def test_a_file_of_no_bytes_that_stays_so_is_an_empty_one(box: Mailbox) -> None:
    put(box, b"")
    found = box.snapshot()
    assert (found.items, found.copy, found.quarantined) == ((), "", ())
    assert Path(box.path).read_bytes() == b"[]"
    put(box, b"")
    box.append(entry("one"))
    assert texts(box) == ["one"]
    assert beside(box) == [".ann.lock"]


def test_damage_that_cannot_be_moved_aside_is_told_once_and_the_rest_is_delivered(
    inboxes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Mailbox(str(inboxes), "ann", shared=True, seconds=0.05)
    good = mailfile.encoded(entry("good"))
    put(box, b"[5," + good + b"]")
    os.mkdir(box.directory_lock)
    found = box.snapshot()
    assert [each.text for each in found.entries] == ["good"]
    assert len(found.quarantined) == 1
    assert found.problem == "another program holds it"
    again = box.snapshot()
    assert (again.entries, again.quarantined) == (found.entries, ())
    os.rmdir(box.directory_lock)
    last = box.snapshot()
    assert (last.entries, last.quarantined, last.problem) == (found.entries, (), "")
    assert beside(box) == [".ann.lock", "ann.json.quarantine"]
    put(box, b"[5," + good)
    os.mkdir(box.directory_lock)
    told = [box.snapshot().copy for _ in range(2)]
    assert [bool(copy) for copy in told] == [True, False]


def test_what_is_kept_of_damage_is_bounded(box: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUARANTINE", 400)
    for number in range(module.MAX_COPIES + 3):
        put(box, b'[{"n":' + str(number).encode() + b"}")
        box.snapshot()
        put(box, b'[{"n":' + str(number).encode() + b"}]")
        assert len(box.snapshot().quarantined) == 1
    names = beside(box)
    assert len([name for name in names if "damaged" in name]) == module.MAX_COPIES
    assert {"ann.json.quarantine", "ann.json.quarantine.1"} <= set(names)
    assert os.path.getsize(f"{box.path}.quarantine") <= 400


# ── what must not be trusted ─────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.8")
@pytest.mark.parametrize("name", ["../ann", "/etc/passwd", "..", "", "a/b", "a.json", "ann\0", "é", "x" * 65])
def test_a_path_is_no_name(inboxes: Path, name: str) -> None:
    with pytest.raises(InvalidName):
        Mailbox(str(inboxes), name, shared=True)
    with pytest.raises(MailboxWriteFailed, match="no member's name"):
        Mailbox(str(inboxes), "ann", shared=True).append(entry(from_=name))
    assert not inboxes.exists()


@KINDS
@pytest.mark.rule("07.8", "11.11")
def test_a_symlink_is_neither_followed_nor_replaced(home: Path, inboxes: Path, shared: bool) -> None:
    elsewhere = home / "elsewhere.json"
    elsewhere.write_text("[]")
    elsewhere.chmod(0o600)
    inboxes.mkdir(mode=0o700)
    (inboxes / "ann.json").symlink_to(elsewhere)
    box = Mailbox(str(inboxes), "ann", shared=shared)
    with pytest.raises(UnfitPath, match="symlink"):
        box.snapshot()
    with pytest.raises(MailboxWriteFailed, match="symlink"):
        box.append(entry())
    assert elsewhere.read_text() == "[]"
    assert (inboxes / "ann.json").is_symlink()


@KINDS
@pytest.mark.rule("07.8", "11.11")
def test_a_folder_that_is_a_symlink_is_refused(home: Path, inboxes: Path, shared: bool) -> None:
    (home / "elsewhere").mkdir(mode=0o700)
    inboxes.symlink_to(home / "elsewhere")
    box = Mailbox(str(inboxes), "ann", shared=shared)
    with pytest.raises(UnfitPath, match="symlink"):
        box.snapshot()
    with pytest.raises(MailboxWriteFailed, match="symlink"):
        box.append(entry())
    assert os.listdir(home / "elsewhere") == []


@pytest.mark.rule("11.11")
def test_modes_are_strict_in_our_own_folder_and_bearable_in_anothers(inboxes: Path) -> None:
    """Other programs' files and folders may be looked at by others, and written by nobody else."""
    own, theirs = Mailbox(str(inboxes), "ann", shared=False), Mailbox(str(inboxes), "ann", shared=True)
    theirs.append(entry("one"))
    os.chmod(inboxes, 0o755)
    os.chmod(theirs.path, 0o644)
    theirs.append(entry("two"))
    os.chmod(theirs.path, 0o644)
    assert texts(theirs) == ["one", "two"]
    with pytest.raises(UnfitPath, match="others have access"):
        own.snapshot()
    with pytest.raises(MailboxWriteFailed, match="others have access"):
        own.append(entry())
    os.chmod(theirs.path, 0o666)
    with pytest.raises(UnfitPath, match="others have access"):
        theirs.snapshot()
    os.chmod(theirs.path, 0o600)
    os.chmod(inboxes, 0o777)
    with pytest.raises(UnfitPath, match="others may write"):
        theirs.snapshot()
    with pytest.raises(MailboxWriteFailed, match="others may write"):
        theirs.append(entry())


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_a_thing_that_is_no_file_waits_for_nobody(box: Mailbox, kind: str) -> None:
    Path(box.folder).mkdir(mode=0o700)
    (os.mkdir if kind == "folder" else os.mkfifo)(box.path, 0o700 if kind == "folder" else 0o600)
    with pytest.raises(UnfitPath):
        box.snapshot()
    with pytest.raises(MailboxWriteFailed):
        box.append(entry())


def test_a_quarantine_that_is_a_symlink_is_not_followed(home: Path, box: Mailbox) -> None:
    precious = home / "precious"
    precious.write_text("kept")
    put(box, b"[5]")
    os.symlink(precious, f"{box.path}.quarantine")
    found = box.snapshot()
    assert "symlink" in found.problem
    assert len(found.quarantined) == 1
    assert precious.read_text() == "kept"
    assert Path(box.path).read_bytes() == b"[5]"


def test_a_folder_in_the_place_of_the_teams_is_said(home: Path) -> None:
    (home / "file").write_text("")
    box = Mailbox(f"{home}/file/inboxes", "ann", shared=True)
    with pytest.raises(UnfitPath):
        box.snapshot()
    with pytest.raises(MailboxWriteFailed):
        box.append(entry())


@KINDS
def test_mail_to_a_team_that_is_gone_is_not_sent_and_makes_no_folder(inboxes: Path, shared: bool) -> None:
    """Before the first look, and after a mailbox was used."""
    box = Mailbox(str(inboxes), "ann", shared=shared)
    box.append(entry())
    for path in sorted(inboxes.parent.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    inboxes.parent.rmdir()
    for each in (box, Mailbox(str(inboxes), "ann", shared=shared)):
        with pytest.raises(MailboxWriteFailed, match=r"gone|does not exist"):
            each.append(entry())
        with pytest.raises(MailboxWriteFailed, match=r"gone|does not exist"):
            each.remove(["0:id:m"])
        assert each.snapshot() == module.Snapshot()
    assert not inboxes.parent.exists()


@KINDS
def test_a_folder_that_goes_while_it_is_written_to_is_said(
    inboxes: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    box = Mailbox(str(inboxes), "ann", shared=shared, seconds=1.0)
    box.append(entry())
    real = os.fsync

    def fsync(fd: int) -> None:
        real(fd)
        if inboxes.exists():
            inboxes.rename(inboxes.parent / "gone")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(MailboxWriteFailed, match="gone"):
        box.append(entry("lost?"))
    assert b"lost?" not in (inboxes.parent / "gone" / "ann.json").read_bytes()


# ── what is left over ────────────────────────────────────────────────────────────────────────────


def test_repairing_removes_what_killed_writers_left_and_keeps_what_could_not_be_delivered(
    inboxes: Path,
) -> None:
    box = Mailbox(str(inboxes), "ann", shared=True, stale_seconds=1.0)
    put(box, b"[5]")
    box.snapshot()
    put(box, b"[")
    copy = box.snapshot().copy
    os.mkdir(box.directory_lock)
    os.utime(box.directory_lock, (1, 1))
    os.mkdir(f"{box.directory_lock}.broken-00")
    (inboxes / f".postroom-{os.getpid()}-aa.tmp").write_text("mine")
    (inboxes / ".postroom-999999999-bb.tmp").write_text("dead")
    (inboxes / f".postroom-{os.getpid()}-cc.tmp").write_text("old")
    os.utime(inboxes / f".postroom-{os.getpid()}-cc.tmp", (1, 1))
    (inboxes / "ann.json.unknown").write_text("")
    (inboxes / "bob.json.quarantine").write_text("")
    found = {each.name: each for each in box.repair()}
    assert found == {
        ".postroom-999999999-bb.tmp": Leftover(
            kind="temporary", name=".postroom-999999999-bb.tmp", size=4, removed=True
        ),
        f".postroom-{os.getpid()}-cc.tmp": Leftover(
            kind="temporary", name=f".postroom-{os.getpid()}-cc.tmp", size=3, removed=True
        ),
        copy: Leftover(kind="damaged", name=copy, size=1, removed=False),
        "ann.json.lock": Leftover(kind="lock", name="ann.json.lock", size=0, removed=True),
        "ann.json.lock.broken-00": Leftover(
            kind="aside", name="ann.json.lock.broken-00", size=0, removed=True
        ),
        "ann.json.quarantine": Leftover(
            kind="quarantine",
            name="ann.json.quarantine",
            size=os.path.getsize(inboxes / "ann.json.quarantine"),
            removed=False,
        ),
    }
    assert sorted(os.listdir(inboxes)) == sorted(
        [
            ".ann.lock",
            f".postroom-{os.getpid()}-aa.tmp",
            "ann.json",
            "ann.json.quarantine",
            "ann.json.unknown",
            "bob.json.quarantine",
            copy,
        ]
    )


def test_repairing_leaves_a_lock_that_is_held(inboxes: Path) -> None:
    box = Mailbox(str(inboxes), "ann", shared=True)
    box.append(entry())
    with locks.held(box.file_lock, box.directory_lock, seconds=0):
        assert box.repair() == ()
        assert os.path.isdir(box.directory_lock)


def test_repairing_says_when_a_lock_cannot_be_broken(inboxes: Path) -> None:
    box = Mailbox(str(inboxes), "ann", shared=True, seconds=0.0)
    box.append(entry())
    os.mkdir(box.directory_lock)
    os.utime(box.directory_lock, (1, 1))
    with locks.held(box.file_lock, seconds=0):
        assert box.repair() == (Leftover(kind="lock", name="ann.json.lock", size=0, removed=False),)


# ── on an event loop ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("11.6", "11.19")
def test_entries_are_added_in_the_order_of_the_calls_and_the_loop_goes_on(box: Mailbox) -> None:
    async def work() -> None:
        await asyncio.gather(*(box.post(entry(str(number))) for number in range(20)))
        found = await box.look()
        assert [each.text for each in found.entries] == [str(number) for number in range(20)]
        assert await box.drop([item.key for item in found.items]) == 20
        with locks.held(box.file_lock, seconds=0):
            waiting = asyncio.create_task(box.post(entry("later")))
            for _ in range(3):
                await asyncio.sleep(0)
            assert not waiting.done()
        await waiting
        assert texts(box) == ["later"]
        box.close()
        box.close()
        await box.post(entry("after"))
        box.close()

    asyncio.run(work())


def test_what_a_mailbox_holds_is_not_in_its_repr(box: Mailbox) -> None:
    assert repr(box) == "<Mailbox ann>"
    assert repr(Mailbox(box.folder, "ann", shared=True)) == "<Mailbox ann shared>"
