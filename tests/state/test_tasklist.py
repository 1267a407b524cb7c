"""The files of a shared task list: what is written and in which order, what is damaged, and other programs' locks."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom.core import tasks as rules
from postroom.core.taskfile import MARK_LOST, MAX_FILE, Task, encode
from postroom.core.tasks import Board, Change, Claimed, Created, Draft, TaskRefusal, Updated
from postroom.errors import InvalidName, StoreFailed, UnfitPath
from postroom.state import files, locks, tasklist
from postroom.state.locks import Held, LockLost, held
from postroom.state.tasklist import TaskList
from tests.desk import wait_until
from tests.strangers import OTHER_UID, needs_root

KINDS = pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A private folder for task lists."""
    tmp_path.chmod(0o700)
    return tmp_path


def opened(folder: Path, *, shared: bool = False, **wanted: Any) -> TaskList:
    return TaskList(str(folder), "team", shared=shared, **wanted)


def made(tasks: TaskList, subject: str = "s", **fields: Any) -> Task:
    answer = tasks.create(Draft(subject=subject, **fields))
    assert isinstance(answer, Created), answer
    return answer.task


def refused(answer: object, code: str) -> TaskRefusal:
    assert isinstance(answer, TaskRefusal), answer
    assert answer.code == code
    return answer


def there(tasks: TaskList) -> list[str]:
    return sorted(os.listdir(tasks.folder))


def raw(tasks: TaskList, task_id: str) -> dict[str, Any]:
    return json.loads(Path(tasks.folder, f"{task_id}.json").read_bytes())


def put(tasks: TaskList, name: str, data: bytes, mode: int = 0o600) -> Path:
    file = Path(tasks.folder, name)
    file.write_bytes(data)
    file.chmod(mode)
    return file


# ── the steps ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.23")
@KINDS
def test_a_list_is_made_with_its_first_task(folder: Path, shared: bool) -> None:
    tasks = opened(folder, shared=shared)
    assert tasks.read() == Board()
    assert (tasks.claim_next("ann"), tasks.repair(), tasks.mark()) == (None, (), None)
    refused(tasks.claim("1", "ann"), "task_not_found")
    refused(tasks.update("1", Change(subject="s")), "task_not_found")
    assert os.listdir(folder) == []
    first = made(tasks)
    assert (first.id, tasks.read()) == ("1", Board(tasks={"1": first}))
    assert set(there(tasks)) == {".highwatermark", ".lock", "1.json"}
    assert {Path(tasks.folder, name).stat().st_mode & 0o777 for name in there(tasks)} == {0o600}
    assert Path(tasks.folder).stat().st_mode & 0o777 == 0o700
    assert Path(tasks.folder, ".highwatermark").read_text() == "1"
    assert repr(tasks) == f"<TaskList team{', shared' if shared else ''}>"


@pytest.mark.rule("07.23")
@KINDS
def test_edges_stand_in_both_files_and_go_with_the_task(folder: Path, shared: bool) -> None:
    tasks = opened(folder, shared=shared)
    one, two = made(tasks), made(tasks)
    three = made(tasks, add_blocked_by=(one.id,), add_blocks=(two.id,))
    assert (raw(tasks, "1")["blocks"], raw(tasks, "2")["blockedBy"]) == (["3"], ["3"])
    answer = tasks.update("2", Change(add_blocked_by=("1",), owner="bob"), by="lead")
    assert isinstance(answer, Updated)
    assert answer.assigned == "bob"
    assert raw(tasks, "1")["blocks"] == ["3", "2"]
    refused(tasks.update("1", Change(add_blocked_by=("2",))), "task_cycle")
    assert isinstance(tasks.delete(three.id), Updated)
    assert (raw(tasks, "1")["blocks"], raw(tasks, "2")["blockedBy"]) == (["2"], ["1"])
    assert "3.json" not in there(tasks)


@pytest.mark.rule("07.23", "07.9")
@KINDS
def test_tasks_are_claimed_in_their_order_as_they_become_free(folder: Path, shared: bool) -> None:
    tasks = opened(folder, shared=shared)
    for number in range(11):
        made(tasks, add_blocked_by=("1",) if number == 1 else ())
    first = tasks.claim_next("ann")
    assert isinstance(first, Claimed)
    assert (first.task.id, raw(tasks, "1")["owner"], raw(tasks, "1")["status"]) == ("1", "ann", "in_progress")
    refused(tasks.claim("2", "bob"), "blocked")
    refused(tasks.claim("1", "bob"), "already_claimed")
    assert refused(tasks.claim_next("ann"), "agent_busy").others == ("1",)
    assert refused(tasks.claim("3", "ann"), "agent_busy").others == ("1",)
    assert tasks.claim("1", "ann") == first
    answer = tasks.update("1", Change(status="completed"))
    assert isinstance(answer, Updated)
    assert answer.unblocked == ("2",)
    refused(tasks.claim("1", "ann"), "already_resolved")
    taken = [tasks.claim_next("ann", one_at_a_time=False) for _ in range(10)]
    assert [each.task.id for each in taken if isinstance(each, Claimed)] == [str(n) for n in range(2, 12)]
    assert tasks.claim_next("ann") is None
    refused(tasks.claim_next("a b") if made(tasks) else None, "invalid_task")


@pytest.mark.rule("07.23")
@KINDS
def test_ids_are_never_used_again(folder: Path, shared: bool) -> None:
    tasks = opened(folder, shared=shared)
    for _ in range(3):
        made(tasks)
    for each in ("3", "1", "2"):
        assert isinstance(tasks.delete(each), Updated)
    assert tasks.read() == Board()
    assert made(opened(folder, shared=shared)).id == "4"


@pytest.mark.rule("07.23")
def test_before_a_neighbours_task_is_removed_its_id_is_marked(folder: Path) -> None:
    """Such a list may have no mark yet: its highest file says what was given out."""
    tasks = opened(folder, shared=True)
    Path(tasks.folder).mkdir(mode=0o755)
    put(tasks, "5.json", encode(Task(id="5", subject="s")), 0o644)
    assert isinstance(tasks.delete("5"), Updated)
    assert made(tasks).id == "6"


@pytest.mark.rule("07.23")
@KINDS
def test_what_changes_nothing_writes_nothing(folder: Path, shared: bool) -> None:
    tasks = opened(folder, shared=shared)
    made(tasks)
    before, outside = tasks.mark(), folder.stat().st_mtime_ns
    assert isinstance(tasks.update("1", Change(subject="s")), Updated)
    refused(tasks.update("1", Change(subject="")), "invalid_task")
    refused(tasks.create(Draft(subject="")), "invalid_task")
    refused(tasks.update("../1", Change(subject="t")), "task_not_found")
    refused(tasks.claim("../1", "ann"), "task_not_found")
    refused(tasks.delete("2"), "task_not_found")
    assert (tasks.mark(), folder.stat().st_mtime_ns) == (before, outside)
    assert Path(tasks.folder, ".highwatermark").read_text() == "1"
    assert isinstance(tasks.update("1", Change(subject="t")), Updated)
    assert tasks.mark() != before


@pytest.mark.rule("07.23")
def test_what_is_not_ours_in_a_file_stays(folder: Path) -> None:
    tasks = opened(folder)
    made(tasks)
    put(tasks, "1.json", json.dumps({**raw(tasks, "1"), "priority": {"x": 1}}).encode())
    assert isinstance(tasks.claim("1", "ann"), Claimed)
    assert (raw(tasks, "1")["priority"], raw(tasks, "1")["owner"]) == ({"x": 1}, "ann")


@pytest.mark.rule("07.23")
def test_threads_of_one_process_share_a_list(folder: Path) -> None:
    tasks = opened(folder)
    ids: list[str] = []
    threads = [threading.Thread(target=lambda: ids.append(made(tasks).id)) for _ in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(map(int, ids)) == list(range(1, 17))


@pytest.mark.rule("07.8")
@pytest.mark.parametrize("list_id", ["", "..", "a/b", "a b", "x" * 65])
def test_a_list_id_that_is_no_name_is_refused(folder: Path, list_id: str) -> None:
    with pytest.raises(InvalidName):
        TaskList(str(folder), list_id, shared=False)


# ── kills between two writes ─────────────────────────────────────────────────────────────────────


class Killed(BaseException):
    """Stands for the end of the process."""


def killed_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """So many files are written, then the process ends."""
    left = writes
    write = files.write_atomic

    def counting(*args: Any, **wanted: Any) -> None:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        write(*args, **wanted)

    monkeypatch.setattr(files, "write_atomic", counting)


@pytest.mark.rule("07.23")
def test_killed_between_mark_and_file_an_id_is_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = opened(folder)
    made(tasks)
    with monkeypatch.context() as patch:
        killed_after(patch, 1)
        with pytest.raises(Killed):
            made(tasks)
    assert list(tasks.read().tasks) == ["1"]
    assert made(tasks).id == "3"


@pytest.mark.rule("07.23")
def test_killed_between_two_sides_the_edge_holds_and_is_mended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = opened(folder)
    made(tasks)
    made(tasks)
    with monkeypatch.context() as patch:
        killed_after(patch, 1)
        with pytest.raises(Killed):
            tasks.update("2", Change(add_blocks=("1",)))
    assert raw(tasks, "1")["blockedBy"] == []
    refused(tasks.claim("1", "ann"), "blocked")
    refused(tasks.update("2", Change(add_blocked_by=("1",))), "task_cycle")
    assert tasks.repair() == ("Task 1 named its neighbours on one side alone; mended.",)
    assert raw(tasks, "1")["blockedBy"] == ["2"]
    assert tasks.repair() == ()


@pytest.mark.rule("07.23")
def test_a_killed_writers_temporary_file_goes_with_the_next_step(folder: Path) -> None:
    tasks = opened(folder)
    made(tasks)
    put(tasks, files.temporary_name(), b'{"half')
    assert list(tasks.read().tasks) == ["1"]
    made(tasks)
    assert not any(files.is_temporary(name) for name in there(tasks))


@pytest.mark.rule("07.23", "11.10")
def test_one_step_mends_so_much_and_the_next_ones_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasklist, "MENDED_AT_ONCE", 2)
    tasks = opened(folder)
    ids = tuple(made(tasks).id for _ in range(7))
    hub = made(tasks, add_blocks=ids)
    assert [raw(tasks, each)["blockedBy"] for each in ids].count([hub.id]) == 2
    assert set(rules.open_blockers(tasks.read()).values()) == {(), (hub.id,)}
    made(tasks)
    assert [raw(tasks, each)["blockedBy"] for each in ids].count([hub.id]) == 4
    assert len(tasks.repair()) == 3
    assert rules.mended(tasks.read()) == ()


# ── damage ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.23")
@KINDS
@pytest.mark.parametrize("data", [b"", b'{"id": "2"', b"\xff", b"[]", b"x" * (MAX_FILE + 1)])
def test_a_damaged_task_costs_itself_alone(folder: Path, shared: bool, data: bytes) -> None:
    tasks = opened(folder, shared=shared)
    for number in range(3):
        made(tasks, add_blocked_by=("2",) if number == 2 else ())
    file = put(tasks, "2.json", data)
    os.utime(file, (1, 1))
    board = tasks.read()
    assert (list(board.tasks), list(board.unreadable)) == (["1", "3"], ["2"])
    refused(tasks.update("2", Change(subject="t")), "task_damaged")
    refused(tasks.claim("2", "ann"), "task_damaged")
    refused(tasks.claim("3", "ann"), "blocked")
    assert tasks.repair() == (f"2.json cannot be used: {board.unreadable['2']}.",)
    assert isinstance(tasks.claim("1", "ann"), Claimed)
    assert file.read_bytes() == data
    assert made(tasks).id == "4"
    answer = tasks.delete("2")
    assert isinstance(answer, Updated)
    assert (answer.before, answer.unblocked) == (None, ("3",))
    assert Path(tasks.folder, "2.json.quarantine").read_bytes() == data
    assert isinstance(tasks.claim("3", "bob"), Claimed)
    assert raw(tasks, "3")["blockedBy"] == []
    assert tasks.repair() == ("2.json.quarantine is a damaged task that was deleted.",)


@pytest.mark.rule("07.23")
def test_nothing_that_was_moved_aside_is_overwritten(folder: Path) -> None:
    tasks = opened(folder)
    made(tasks)
    put(tasks, "1.json", b"new")
    put(tasks, "1.json.quarantine", b"old")
    assert isinstance(tasks.delete("1"), Updated)
    aside = [name for name in there(tasks) if "quarantine" in name]
    assert {Path(tasks.folder, name).read_bytes() for name in aside} == {b"old", b"new"}


def link(file: Path) -> None:
    file.symlink_to(file.parent.parent / "elsewhere")


def loose(file: Path) -> None:
    file.write_bytes(encode(Task(id="2", subject="s")))
    file.chmod(0o622)


def others(file: Path) -> None:
    file.write_bytes(encode(Task(id="2", subject="s")))
    os.chown(file, OTHER_UID, OTHER_UID)


@pytest.mark.rule("07.23", "11.11", "11.28")
@KINDS
@pytest.mark.parametrize(
    ("lay", "reason"),
    [
        (link, "symlink"),
        (os.mkfifo, "not a regular file"),
        (os.mkdir, "not a regular file"),
        (loose, "others have access"),
        pytest.param(others, "it belongs to uid", marks=needs_root),
    ],
)
def test_what_is_no_file_of_ours_is_no_task(
    folder: Path, shared: bool, lay: Callable[[Path], None], reason: str
) -> None:
    tasks = opened(folder, shared=shared)
    elsewhere = folder / "elsewhere"
    elsewhere.write_bytes(encode(Task(id="2", subject="s")))
    elsewhere.chmod(0o600)
    made(tasks)
    lay(Path(tasks.folder, "2.json"))
    assert reason in tasks.read().unreadable["2"]
    refused(tasks.claim("2", "ann"), "task_damaged")
    assert made(tasks).id == "3"
    assert isinstance(tasks.delete("2"), Updated)
    assert tasks.read().unreadable == {}
    assert elsewhere.exists()


@pytest.mark.rule("07.23")
@pytest.mark.parametrize("data", [b"", b"x", b"-4", b"1" * 100])
def test_with_a_lost_mark_ids_jump(folder: Path, data: bytes) -> None:
    tasks = opened(folder)
    for _ in range(5):
        made(tasks)
    assert isinstance(tasks.delete("5"), Updated)
    put(tasks, ".highwatermark", data)
    assert made(tasks).id == str(4 + MARK_LOST + 1)
    put(tasks, ".highwatermark", data)
    last = 4 + 2 * MARK_LOST + 1
    assert tasks.repair() == (f"The high-water mark could not be read; ids go on after {last}.",)
    assert made(tasks).id == str(last + 1)


@pytest.mark.rule("07.23")
def test_a_mark_that_cannot_be_read_is_written_before_a_task_goes(folder: Path) -> None:
    tasks = opened(folder)
    made(tasks)
    put(tasks, ".highwatermark", b"x")
    assert isinstance(tasks.delete("1"), Updated)
    assert made(tasks).id == str(1 + MARK_LOST + 1)


def test_numbers_that_have_come_to_their_end_stop_what_is_new_and_nothing_else(folder: Path) -> None:
    tasks = opened(folder)
    made(tasks)
    last = "9" * 15
    put(tasks, f"{last}.json", encode(Task(id=last, subject="s")))
    with pytest.raises(StoreFailed, match="used up its ids"):
        made(tasks)
    assert isinstance(tasks.claim(last, "ann"), Claimed)
    assert isinstance(tasks.delete(last), Updated)
    with pytest.raises(StoreFailed, match="used up its ids"):
        made(tasks)


@pytest.mark.rule("07.23")
def test_names_that_are_no_tasks_are_told_and_left(folder: Path) -> None:
    tasks = opened(folder)
    made(tasks)
    for name in ("01.json", "x.json", "2.txt"):
        put(tasks, name, encode(Task(id="1", subject="s")))
    os.mkdir(f"{tasks.folder}/9.json.lock.broken-00aa")
    put(tasks, "x.lock.broken-1", b"")
    os.makedirs(f"{tasks.folder}/y.lock.broken-1/z")
    assert list(tasks.read().tasks) == ["1"]
    assert set(tasks.repair()) == {
        "01.json is no name of a task and is not read.",
        "x.json is no name of a task and is not read.",
        "9.json.lock.broken-00aa is a lock that was moved aside; it was removed.",
        "x.lock.broken-1 is a lock that was moved aside; it was removed.",
        "y.lock.broken-1 is a lock that was moved aside; it stays.",
    }
    assert {"01.json", "x.json", "2.txt", "y.lock.broken-1"} < set(there(tasks))


@pytest.mark.rule("11.10")
def test_of_a_list_without_end_the_oldest_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasklist, "MAX_READ", 3)
    tasks = opened(folder)
    for _ in range(5):
        made(tasks)
    board = tasks.read()
    assert (list(board.tasks), list(board.unreadable)) == (["1", "2", "3"], ["4", "5"])
    assert made(tasks).id == "6"


@pytest.mark.rule("07.23", "11.11")
@KINDS
def test_a_folder_that_must_not_be_trusted_is_refused(folder: Path, shared: bool) -> None:
    tasks = opened(folder, shared=shared)
    made(tasks)
    Path(tasks.folder).chmod(0o770)
    for step in steps(tasks):
        with pytest.raises(UnfitPath):
            step()
    Path(tasks.folder).chmod(0o700)
    os.rename(tasks.folder, folder / "elsewhere")
    os.symlink(folder / "elsewhere", tasks.folder)
    for step in steps(tasks):
        with pytest.raises(UnfitPath):
            step()
    assert list(TaskList(str(folder), "elsewhere", shared=shared).read().tasks) == ["1"]


def steps(tasks: TaskList) -> list[Callable[[], object]]:
    return [
        tasks.read,
        lambda: tasks.create(Draft(subject="s")),
        lambda: tasks.claim("1", "ann"),
        lambda: tasks.claim_next("ann"),
        lambda: tasks.update("1", Change(status="completed")),
        lambda: tasks.delete("1"),
        tasks.repair,
    ]


@pytest.mark.rule("07.23", "11.11")
@KINDS
def test_a_lock_that_is_a_symlink_is_not_followed(folder: Path, shared: bool) -> None:
    tasks = opened(folder, shared=shared)
    made(tasks)
    target = folder / "target"
    Path(tasks.folder, ".lock").unlink()
    Path(tasks.folder, ".lock").symlink_to(target)
    with pytest.raises(UnfitPath):
        made(tasks)
    assert not target.exists()
    assert list(tasks.read().tasks) == ["1"]


@pytest.mark.rule("07.23")
@KINDS
def test_a_folder_that_vanishes_is_told(folder: Path, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the first look and the lock, and between the lock and the file; it is not made again."""
    tasks = opened(folder, shared=shared)
    made(tasks)
    check_folder = files.check_folder

    def vanishing(path: str, *, readable: bool = False) -> None:
        check_folder(path, readable=readable)
        os.rename(path, folder / "aside")

    with monkeypatch.context() as patch:
        patch.setattr(files, "check_folder", vanishing)
        for step in steps(tasks)[1:3]:
            with pytest.raises(StoreFailed, match="its folder is gone"):
                step()
            os.rename(folder / "aside", tasks.folder)
    write = files.write_atomic

    def too_late(*args: Any, **wanted: Any) -> None:
        if os.path.exists(tasks.folder):
            os.rename(tasks.folder, folder / "aside")
        write(*args, **wanted)

    monkeypatch.setattr(files, "write_atomic", too_late)
    with pytest.raises(StoreFailed):
        made(tasks)
    assert os.listdir(folder) == ["aside"]
    assert list(TaskList(str(folder), "aside", shared=shared).read().tasks) == ["1"]


# ── a neighbour's folder ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def neighbours(folder: Path) -> TaskList:
    """A list in another program's folder, as that program makes it: others may look into it."""
    folder.chmod(0o755)
    tasks = opened(folder, shared=True, seconds=0.2, stale_seconds=5.0)
    Path(tasks.folder).mkdir(mode=0o755)
    put(tasks, ".lock", b"", 0o644)
    put(tasks, "1.json", neighbours_task("1"), 0o644)
    put(tasks, "2.json", neighbours_task("2", blockedBy=["1"]), 0o644)
    return tasks


def neighbours_task(task_id: str, **fields: object) -> bytes:
    """A task as that program writes it."""
    task: dict[str, object] = {
        "id": task_id,
        "subject": "s",
        "description": "d",
        "status": "pending",
        "blocks": [],
        "blockedBy": [],
    }
    return json.dumps({**task, **fields}, indent=2).encode()


@pytest.mark.rule("07.21", "07.23")
def test_a_neighbours_list_is_read_and_worked_on(neighbours: TaskList) -> None:
    answer = neighbours.claim_next("ann")
    assert isinstance(answer, Claimed)
    assert answer.task.id == "1"
    assert raw(neighbours, "1")["owner"] == "ann"
    assert made(neighbours).id == "3"
    assert not [name for name in there(neighbours) if os.path.isdir(f"{neighbours.folder}/{name}")]


@pytest.mark.rule("07.21", "07.23")
def test_a_list_is_made_in_a_neighbours_folder_and_that_folder_is_not(folder: Path) -> None:
    folder.chmod(0o755)
    assert made(opened(folder, shared=True)).id == "1"
    missing = TaskList(f"{folder}/missing", "team", shared=True)
    with pytest.raises(UnfitPath):
        made(missing)
    assert not (folder / "missing").exists()
    assert TaskList(f"{folder}/missing/too", "team", shared=False).read() == Board()
    assert made(TaskList(f"{folder}/missing/too", "team", shared=False)).id == "1"


@pytest.mark.rule("11.11")
def test_our_own_list_is_closed_to_others(neighbours: TaskList, folder: Path) -> None:
    with pytest.raises(UnfitPath):
        opened(folder).read()
    Path(neighbours.folder).chmod(0o700)
    assert set(opened(folder).read().unreadable) == {"1", "2"}
    assert set(neighbours.read().tasks) == {"1", "2"}


@pytest.mark.rule("07.23", "07.3")
@pytest.mark.parametrize("locked", [".lock.lock", "1.json.lock"])
def test_a_neighbours_lock_is_waited_for(neighbours: TaskList, locked: str) -> None:
    """Each of the two: nothing is written while it is there, and all is when it is gone."""
    lock = f"{neighbours.folder}/{locked}"
    os.mkdir(lock)
    for step in (
        lambda: neighbours.update("1", Change(subject="t")),
        lambda: neighbours.claim("1", "ann"),
        lambda: neighbours.claim_next("ann"),
        lambda: neighbours.delete("1"),
    ):
        with pytest.raises(StoreFailed, match="another program holds it"):
            step()
    assert raw(neighbours, "1") == json.loads(neighbours_task("1"))
    patient = TaskList(os.path.dirname(neighbours.folder), "team", shared=True)
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(patient.claim("1", "ann")))
    thread.start()
    if locked == "1.json.lock":
        wait_until(lambda: os.path.isdir(f"{neighbours.folder}/.lock.lock"))
    put(neighbours, "1.json", neighbours_task("1", owner="bob"), 0o644)
    os.rmdir(lock)
    thread.join()
    refused(done[0], "already_claimed")
    assert raw(neighbours, "1")["owner"] == "bob"


@pytest.mark.rule("07.23", "07.3")
def test_a_neighbours_lock_that_is_left_over_is_broken(neighbours: TaskList) -> None:
    for name in (".lock.lock", "1.json.lock"):
        os.mkdir(f"{neighbours.folder}/{name}")
        os.utime(f"{neighbours.folder}/{name}", (1, 1))
    assert isinstance(neighbours.claim("1", "ann"), Claimed)


@pytest.mark.rule("07.23")
def test_making_a_task_waits_for_the_lock_of_the_list_alone(neighbours: TaskList) -> None:
    os.mkdir(f"{neighbours.folder}/1.json.lock")
    assert made(neighbours).id == "3"
    # The other side of an edge is left to a later step; it counts already.
    four = made(neighbours, add_blocks=("1",))
    assert raw(neighbours, "1")["blockedBy"] == []
    assert rules.open_blockers(neighbours.read())["1"] == (four.id,)
    assert neighbours.repair() == ("Task 1 named its neighbours on one side alone; it still does.",)
    os.rmdir(f"{neighbours.folder}/1.json.lock")
    made(neighbours)
    assert raw(neighbours, "1")["blockedBy"] == [four.id]
    os.mkdir(f"{neighbours.folder}/.lock.lock")
    with pytest.raises(StoreFailed):
        made(neighbours)


@pytest.mark.rule("07.9", "07.23")
def test_a_task_that_a_neighbour_takes_in_between_is_left_to_it(
    neighbours: TaskList, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(neighbours, "3.json", neighbours_task("3"), 0o644)
    seen = 0
    choose = rules.next_claimable

    def taken_at_once(board: Board) -> Task | None:
        nonlocal seen
        seen += 1
        chosen = choose(board)
        if seen == 2:  # under the list's lock, before the task's
            put(neighbours, "1.json", neighbours_task("1", owner="bob"), 0o644)
        return chosen

    monkeypatch.setattr(rules, "next_claimable", taken_at_once)
    answer = neighbours.claim_next("ann")
    assert isinstance(answer, Claimed)
    assert answer.task.id == "3"
    assert raw(neighbours, "1")["owner"] == "bob"


@pytest.mark.rule("07.9", "07.23")
def test_a_task_that_seems_free_again_and_again_is_not_tried_for_ever(
    neighbours: TaskList, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = Task(id="1", subject="s")
    put(neighbours, "1.json", neighbours_task("1", owner="bob"), 0o644)
    monkeypatch.setattr(rules, "next_claimable", lambda _board: stuck)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    refused(neighbours.claim_next("ann"), "already_claimed")


@pytest.mark.rule("07.23")
def test_a_file_that_a_neighbour_is_just_writing_is_looked_at_again(
    neighbours: TaskList, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(neighbours, "1.json", b"", 0o644)
    waited: list[float] = []

    def written_meanwhile(seconds: float) -> None:
        waited.append(seconds)
        put(neighbours, "1.json", neighbours_task("1", owner="bob"), 0o644)

    monkeypatch.setattr(tasklist.time, "sleep", written_meanwhile)
    assert neighbours.read().tasks["1"].owner == "bob"
    assert waited == [tasklist.SECOND_LOOK_SECONDS]
    # One that has been so for long is not waited for, and neither is one that goes in between.
    os.utime(put(neighbours, "1.json", b"", 0o644), (1, 1))
    assert neighbours.read().unreadable == {"1": "it is empty"}
    assert len(waited) == 1


@pytest.mark.rule("07.23")
def test_an_own_file_is_never_half_written_and_not_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = opened(folder)
    made(tasks)
    put(tasks, "1.json", b"")
    monkeypatch.setattr(tasklist.time, "sleep", lambda _: pytest.fail("it waited"))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert tasks.read().unreadable == {"1": "it is empty"}


# ── locks that are lost ──────────────────────────────────────────────────────────────────────────


def losing(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The locks of so many looks are lost."""
    check = Held.check
    left = times

    def lost(self: Held) -> None:
        nonlocal left
        if left:
            left -= 1
            raise LockLost(self.file_lock)
        check(self)

    monkeypatch.setattr(Held, "check", lost)


@pytest.mark.rule("07.23")
@KINDS
def test_a_step_whose_lock_is_lost_starts_over(
    folder: Path, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = opened(folder, shared=shared)
    with monkeypatch.context() as patch:
        losing(patch, 2)
        assert made(tasks).id == "1"
    with monkeypatch.context() as patch:
        losing(patch, 2)
        assert isinstance(tasks.claim_next("ann"), Claimed)
    with monkeypatch.context() as patch:
        losing(patch, 2)
        answer = tasks.update("1", Change(status="completed", owner="bob"), by="lead")
        assert isinstance(answer, Updated)
        assert (answer.assigned, raw(tasks, "1")["owner"]) == ("bob", "bob")
    with monkeypatch.context() as patch:
        losing(patch, 2)
        assert isinstance(tasks.delete("1"), Updated)


@pytest.mark.rule("07.23")
@KINDS
def test_a_lock_that_is_lost_each_time_changes_nothing(
    folder: Path, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = opened(folder, shared=shared)
    made(tasks)
    before = {name: Path(tasks.folder, name).read_bytes() for name in there(tasks)}
    losing(monkeypatch, 10**6)
    for step in steps(tasks)[1:-1]:
        with pytest.raises(StoreFailed, match="again and again"):
            step()
    after = {name: Path(tasks.folder, name).read_bytes() for name in there(tasks) if name != ".tasks.lock"}
    assert after == before


@pytest.mark.rule("07.23")
def test_a_lock_that_is_lost_after_the_step_leaves_the_other_side_to_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step counts, is answered once, and is not done again."""
    tasks = opened(folder)
    made(tasks)
    made(tasks)
    with monkeypatch.context() as patch:
        looks = iter([None])
        check = Held.check

        def lost(self: Held) -> None:
            if next(looks, "over") == "over":
                raise LockLost(self.file_lock)
            check(self)

        patch.setattr(Held, "check", lost)
        assert isinstance(tasks.update("1", Change(add_blocks=("2",))), Updated)
    assert (raw(tasks, "1")["blocks"], raw(tasks, "2")["blockedBy"]) == (["2"], [])
    made(tasks)
    assert raw(tasks, "2")["blockedBy"] == ["1"]


@pytest.mark.rule("07.23")
def test_a_file_that_somebody_makes_without_the_lock_is_not_overwritten(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = opened(folder, shared=True)
    made(tasks)
    check = Held.check
    looks = 0

    def meanwhile(self: Held) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:  # the mark is about to be written
            put(tasks, "2.json", neighbours_task("2", subject="another's"))
        check(self)

    monkeypatch.setattr(Held, "check", meanwhile)
    assert made(tasks).id == "3"
    assert raw(tasks, "2")["subject"] == "another's"


@pytest.mark.rule("07.23")
@KINDS
def test_a_lock_that_another_process_keeps_is_told(folder: Path, shared: bool) -> None:
    tasks = opened(folder, shared=shared, seconds=0.0)
    made(tasks)
    with held(f"{tasks.folder}/.lock", seconds=0.0):
        for step in steps(tasks)[1:]:
            with pytest.raises(StoreFailed, match="another process holds it"):
                step()
        assert list(tasks.read().tasks) == ["1"]
    assert locks.STALE_SECONDS == 10.0
