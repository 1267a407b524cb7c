"""A full disk under a shared task list: what is told to have failed has changed nothing, and all goes on when there is room."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from postroom.core.tasks import Change, Claimed, Created, Draft, Updated, open_blockers
from postroom.errors import StoreFailed
from postroom.state import files
from postroom.state.tasklist import TaskList
from tests.strangers import needs_root

pytestmark = needs_root


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    where = tmp_path / "disk"
    where.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(where)], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


@contextlib.contextmanager
def full(disk: Path, *, but: int = 0) -> Generator[None]:
    """The disk has no room left while the block runs, but for so many bytes."""
    filler = disk / "filler"
    fd = os.open(filler, os.O_WRONLY | os.O_CREAT)
    try:
        with contextlib.suppress(OSError):
            while True:
                os.write(fd, b"x" * 4096)
        os.ftruncate(fd, os.fstat(fd).st_size - but)
        yield
    finally:
        os.close(fd)
        filler.unlink()


@pytest.mark.rule("07.23", "11.28")
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_on_a_full_disk_nothing_is_half_done(disk: Path, shared: bool) -> None:
    tasks = TaskList(str(disk), "team", shared=shared)
    for number in range(4):
        edge = ("1",) if number == 1 else ()
        # The first one is larger than what the removal of another makes room for.
        made = tasks.create(Draft(subject="s", description="d" * 9000 * (not number), add_blocks=edge))
        assert isinstance(made, Created)
    assert isinstance(tasks.claim("3", "bob"), Claimed)
    before = tasks.read()
    with full(disk):
        with pytest.raises(StoreFailed, match="No space left"):
            tasks.create(Draft(subject="s"))
        with pytest.raises(StoreFailed, match="No space left"):
            tasks.claim_next("ann")
        with pytest.raises(StoreFailed, match="No space left"):
            tasks.update("3", Change(status="completed"))
        assert tasks.read() == before
        # What makes room is possible, and unblocks; the other side of the edge stays for later.
        answer = tasks.delete("2")
        assert isinstance(answer, Updated)
        assert answer.unblocked == ("1",)
        assert open_blockers(tasks.read())["1"] == ()
        assert tasks.read().tasks["1"].blocked_by == ("2",)
        assert not [name for name in os.listdir(tasks.folder) if files.is_temporary(name)]
    assert isinstance(tasks.claim("1", "ann"), Claimed)
    made = tasks.create(Draft(subject="s"))
    assert isinstance(made, Created)
    assert int(made.task.id) >= 5
    assert tasks.read().tasks["1"].blocked_by == ()


@pytest.mark.rule("07.23", "11.28")
def test_where_the_first_of_two_files_fits_the_second_is_missing_and_its_id_is_left_out(disk: Path) -> None:
    tasks = TaskList(str(disk), "team", shared=False)
    assert isinstance(tasks.create(Draft(subject="s")), Created)
    with full(disk, but=4096), pytest.raises(StoreFailed):
        tasks.create(Draft(subject="s", description="d" * 20_000))
    assert list(tasks.read().tasks) == ["1"]
    made = tasks.create(Draft(subject="s"))
    assert isinstance(made, Created)
    assert made.task.id == "3"
