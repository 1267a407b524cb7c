"""A mailbox on a disk without room, or that may not be written: nothing is written by halves, and reading goes on."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from postroom.core import mailfile
from postroom.core.mailfile import Entry
from postroom.transports.mailbox import Mailbox, MailboxWriteFailed
from tests.strangers import needs_root

pytestmark = needs_root

AT = "2026-11-30T12:00:00.000Z"
KINDS = pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own, with a team's folder on it."""
    where = tmp_path / "disk"
    where.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(where)], check=True)
    try:
        (where / "team").mkdir(mode=0o700)
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


@contextlib.contextmanager
def full(disk: Path) -> Generator[None]:
    """The disk has no room left while the block runs."""
    fd = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
    try:
        with contextlib.suppress(OSError):
            while True:
                os.write(fd, b"x" * 4096)
        yield
    finally:
        os.close(fd)
        (disk / "filler").unlink()


@contextlib.contextmanager
def read_only(disk: Path) -> Generator[None]:
    """Nothing can be written there while the block runs."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)


def entry(text: str) -> Entry:
    return Entry(from_="bob", text=text, timestamp=AT)


def texts(box: Mailbox) -> list[str]:
    return [each.text for each in box.snapshot().entries]


@KINDS
@pytest.mark.rule("07.3", "11.28")
def test_a_full_disk_fails_the_writer_and_keeps_what_is_there(disk: Path, shared: bool) -> None:
    box = Mailbox(f"{disk}/team/inboxes", "ann", shared=shared)
    box.append(entry("one"))
    keys = [item.key for item in box.snapshot().items]
    before = Path(box.path).read_bytes()
    with full(disk):
        with pytest.raises(MailboxWriteFailed, match="No space left") as error:
            box.append(entry("two" * 2000))
        assert str(disk) not in error.value.reason
        with pytest.raises(MailboxWriteFailed):
            box.append(entry("two"))
        assert Path(box.path).read_bytes() == before
        assert texts(box) == ["one"]
    assert sorted(os.listdir(box.folder)) == [".ann.lock", "ann.json"], "something was left behind"
    box.append(entry("three"))
    assert box.remove(keys) == 1
    assert texts(box) == ["three"]


@KINDS
@pytest.mark.rule("07.3", "11.28")
def test_the_first_entry_on_a_full_disk_makes_no_half_a_mailbox(disk: Path, shared: bool) -> None:
    box = Mailbox(f"{disk}/team/inboxes", "ann", shared=shared)
    with full(disk), pytest.raises(MailboxWriteFailed, match="No space left"):
        box.append(entry("one"))
    assert texts(box) == []
    box.append(entry("two"))
    assert texts(box) == ["two"]


@KINDS
@pytest.mark.rule("07.6", "11.28")
def test_damage_on_a_full_disk_is_told_once_and_keeps_nobody_from_the_rest(disk: Path, shared: bool) -> None:
    box = Mailbox(f"{disk}/team/inboxes", "ann", shared=shared)
    box.append(entry("one"))
    data = b"[5," + mailfile.encoded(entry("good" * 2000)) + b',{"from"'
    Path(box.path).write_bytes(data)
    with full(disk):
        found = box.snapshot()
        assert [each.text for each in found.entries] == ["good" * 2000]
        assert found.copy
        assert "No space left" in found.problem
        again = box.snapshot()
        assert (again.copy, again.entries) == ("", found.entries)
        assert Path(box.path).read_bytes() == data
        with pytest.raises(MailboxWriteFailed):
            box.remove([found.items[0].key])
    assert box.snapshot().problem == ""
    assert Path(box.folder, found.copy).read_bytes() == data


@KINDS
@pytest.mark.rule("07.3", "11.28")
def test_a_folder_that_may_not_be_written_is_said_and_still_read(disk: Path, shared: bool) -> None:
    box = Mailbox(f"{disk}/team/inboxes", "ann", shared=shared)
    box.append(entry("one"))
    with read_only(disk):
        with pytest.raises(MailboxWriteFailed, match=r"[Rr]ead-only"):
            box.append(entry("two"))
        assert texts(box) == ["one"]
    box.append(entry("three"))
    assert texts(box) == ["one", "three"]


@pytest.mark.rule("11.11")
def test_what_belongs_to_another_user_is_refused(disk: Path) -> None:
    for shared in (False, True):
        box = Mailbox(f"{disk}/team/inboxes", "ann", shared=shared)
        box.append(entry("one"))
        for path in (box.path, box.file_lock, box.folder):
            os.chown(path, 65534, 65534)
            with pytest.raises(MailboxWriteFailed, match="belongs to uid 65534"):
                box.append(entry("two"))
            os.chown(path, 0, 0)
        assert texts(box)[-1] == "one"
