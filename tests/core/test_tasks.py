"""Shared tasks: each answer of each verb, edges that hold with one side alone, and no way into a circle."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from postroom.core.taskfile import MAX_DEPTH, MAX_FILE, STATUSES, Task, TaskStatus
from postroom.core.tasks import (
    MAX_DESCRIPTION,
    MAX_METADATA,
    MAX_SUBJECT,
    MAX_TASKS,
    REFUSALS,
    Board,
    Change,
    Claimed,
    Created,
    Draft,
    TaskRefusal,
    Updated,
    change_of,
    claim,
    create,
    draft_of,
    mended,
    next_claimable,
    open_blockers,
    replaced,
    update,
)


def board(*tasks: Task, unreadable: tuple[str, ...] = ()) -> Board:
    return Board(
        tasks={task.id: task for task in tasks}, unreadable=dict.fromkeys(unreadable, "it is not JSON")
    )


def task(
    number: int,
    *,
    status: TaskStatus = "pending",
    owner: str | None = None,
    blocks: tuple[str, ...] = (),
    blocked_by: tuple[str, ...] = (),
    metadata: dict[str, Any] | None = None,
) -> Task:
    return Task(
        id=str(number),
        subject=f"task {number}",
        status=status,
        owner=owner,
        blocks=blocks,
        blocked_by=blocked_by,
        metadata=metadata,
    )


def refused(answer: object, code: str) -> TaskRefusal:
    assert isinstance(answer, TaskRefusal), answer
    assert answer.code == code
    assert answer.message.endswith(".")
    assert answer.hint == REFUSALS[code][1]
    return answer


def updated(answer: object) -> Updated:
    assert isinstance(answer, Updated), answer
    return answer


def created(answer: object) -> Created:
    assert isinstance(answer, Created), answer
    return answer


# ── claiming ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.23")
def test_a_free_task_is_claimed_and_in_progress() -> None:
    answer = claim(board(task(1)), "1", "ann")
    assert answer == Claimed(task=task(1, owner="ann", status="in_progress"))


@pytest.mark.rule("07.23")
def test_ones_own_task_is_claimed_again_with_the_same_answer() -> None:
    mine = task(1, owner="ann", status="in_progress")
    assert claim(board(mine), "1", "ann") == Claimed(task=mine)
    given = task(1, owner="ann@session-1")
    assert claim(board(given), "1", "ann") == Claimed(
        task=task(1, owner="ann@session-1", status="in_progress")
    )


@pytest.mark.rule("07.23")
def test_no_such_task() -> None:
    assert "task 5." in refused(claim(board(task(1)), "5", "ann"), "task_not_found").message
    assert '"../x"' in refused(claim(board(), "../x", "ann"), "task_not_found").message


@pytest.mark.rule("07.23")
@pytest.mark.parametrize("status", STATUSES)
def test_anothers_task(status: TaskStatus) -> None:
    answer = refused(claim(board(task(1, owner="bob", status=status)), "1", "ann"), "already_claimed")
    assert '"bob"' in answer.message
    refused(claim(board(task(1, owner="annie")), "1", "ann"), "already_claimed")


@pytest.mark.rule("07.23")
@pytest.mark.parametrize("owner", [None, "ann"])
def test_a_completed_task(owner: str | None) -> None:
    refused(claim(board(task(1, owner=owner, status="completed")), "1", "ann"), "already_resolved")


@pytest.mark.rule("07.23")
def test_a_blocked_task_whichever_side_says_so() -> None:
    for first, second in (
        (task(1, blocks=("2",)), task(2)),
        (task(1), task(2, blocked_by=("1",))),
        (task(1, blocks=("2",), status="in_progress"), task(2, blocked_by=("1",))),
    ):
        answer = refused(claim(board(first, second), "2", "ann"), "blocked")
        assert answer.others == ("1",)
        assert "waits for 1." in answer.message
        assert isinstance(claim(board(replace(first, status="completed"), second), "2", "ann"), Claimed)
        assert isinstance(claim(board(second), "2", "ann"), Claimed)


@pytest.mark.rule("07.23")
def test_what_cannot_be_read_blocks_and_cannot_be_claimed() -> None:
    there = board(task(2, blocked_by=("1",)), unreadable=("1",))
    assert refused(claim(there, "2", "ann"), "blocked").others == ("1",)
    assert "it is not JSON" in refused(claim(there, "1", "ann"), "task_damaged").message


@pytest.mark.rule("07.23")
def test_who_is_at_work_is_busy_unless_that_does_not_count() -> None:
    there = board(
        task(1),
        task(2, owner="ann@team", status="in_progress"),
        task(3, owner="ann"),
        task(4, owner="ann", status="completed"),
        task(5, owner="bob", status="in_progress"),
        task(6, status="in_progress"),
    )
    assert refused(claim(there, "1", "ann"), "agent_busy").others == ("2",)
    assert isinstance(claim(there, "1", "ann", one_at_a_time=False), Claimed)
    assert isinstance(claim(there, "1", "carl"), Claimed)
    assert claim(there, "2", "ann") == Claimed(task=there.tasks["2"])


@pytest.mark.rule("07.23")
def test_the_first_rung_that_applies_answers() -> None:
    busy = task(9, owner="ann", status="in_progress")
    last = task(1, owner="bob", status="completed", blocked_by=("8",))
    there = board(last, task(8), busy)
    refused(claim(there, "1", "ann"), "already_claimed")
    there = board(replace(last, owner=None), task(8), busy)
    refused(claim(there, "1", "ann"), "already_resolved")
    there = board(replace(last, owner=None, status="pending"), task(8), busy)
    refused(claim(there, "1", "ann"), "blocked")
    refused(claim(replaced(there, "8", None), "1", "ann"), "agent_busy")


@pytest.mark.rule("07.8")
@pytest.mark.parametrize("name", ["", "a b", "ö", "x" * 65, "ann@team"])
def test_who_claims_has_a_members_name(name: str) -> None:
    assert refused(claim(board(task(1)), "1", name), "invalid_task").message.startswith("`owner` is not")


# ── the next one ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.9")
def test_the_oldest_that_is_pending_and_free() -> None:
    there = board(
        task(10),
        task(9),
        task(1, status="completed"),
        task(2, status="in_progress"),
        task(3, owner="bob"),
        task(4, blocked_by=("3",)),
        task(5, blocked_by=("1",)),
    )
    assert next_claimable(there) == there.tasks["5"]
    assert next_claimable(replaced(there, "5", None)) == there.tasks["9"]
    assert next_claimable(board(task(3, owner="bob"), unreadable=("1",))) is None


# ── edges ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.23")
def test_open_blockers_are_named_the_oldest_first() -> None:
    there = board(
        task(1, blocks=("5",)),
        task(2, status="completed", blocks=("5",)),
        task(5, blocked_by=("10", "9", "77", "x")),
        task(9),
        unreadable=("10",),
    )
    assert open_blockers(there) == {"1": (), "2": (), "5": ("1", "9", "10"), "9": (), "10": ()}


@pytest.mark.rule("07.23")
def test_edges_are_written_on_both_sides() -> None:
    there = board(task(1, blocks=("3",)), task(2), task(3, blocked_by=("2",)))
    assert (
        mended(there)
        == (
            task(1, blocks=("3",)),
            task(2, blocks=("3",)),
            task(3, blocked_by=("2", "1")),
        )[1:]
    )
    assert mended(after_mending(there)) == ()


@pytest.mark.rule("07.23")
def test_an_edge_to_what_is_gone_goes_and_other_words_stay() -> None:
    there = board(task(1, blocks=("7", "8"), blocked_by=("6", "later")), unreadable=("8",))
    assert mended(there) == (task(1, blocks=("8",), blocked_by=("later",)),)


@pytest.mark.rule("11.10")
def test_a_file_that_has_no_room_for_the_other_side_stays_as_it_is() -> None:
    large = Task(id="2", subject="s", extra={"x": "x" * MAX_FILE})
    there = board(task(1, blocks=("2",)), large)
    assert mended(there) == ()
    assert open_blockers(there)["2"] == ("1",)


def after_mending(there: Board) -> Board:
    for each in mended(there):
        there = replaced(there, each.id, each)
    return there


@pytest.mark.rule("07.23")
@pytest.mark.parametrize(
    ("change", "way"),
    [
        (Change(add_blocks=("1",)), ("1", "1")),
        (Change(add_blocked_by=("1",)), ("1", "1")),
        (Change(add_blocked_by=("2",)), ("1", "2", "1")),
        (Change(add_blocked_by=("3",)), ("1", "3", "2", "1")),
        (Change(add_blocks=("4",), add_blocked_by=("4",)), ("4", "1", "4")),
    ],
)
def test_no_edge_closes_a_circle(change: Change, way: tuple[str, ...]) -> None:
    there = board(task(1, blocks=("2",)), task(2), task(3, blocked_by=("2", "4")), task(4))
    answer = refused(update(there, "1", change), "task_cycle")
    assert answer.others == way
    assert " → ".join(way) in answer.message


@pytest.mark.rule("07.23")
def test_a_long_way_around_is_named_in_part() -> None:
    chain = [task(number, blocked_by=(str(number - 1),)) for number in range(2, 21)]
    answer = refused(update(board(task(1), *chain), "1", Change(add_blocked_by=("20",))), "task_cycle")
    assert len(answer.others) == 21
    assert answer.message.endswith(" → 12 and 11 more.")


@pytest.mark.rule("07.23")
def test_a_circle_that_another_program_made_stops_nothing_else() -> None:
    there = board(task(1, blocked_by=("2",)), task(2, blocked_by=("1",)), task(3), task(4))
    assert next_claimable(there) == task(3)
    assert updated(update(there, "3", Change(add_blocked_by=("1", "4")))).task == task(
        3, blocked_by=("1", "4")
    )


@pytest.mark.rule("07.23")
def test_an_edge_to_no_task_is_refused() -> None:
    there = board(task(1), unreadable=("3",))
    refused(update(there, "1", Change(add_blocks=("2",))), "task_not_found")
    refused(update(there, "1", Change(add_blocked_by=("x",))), "task_not_found")
    refused(create(there, "4", Draft(subject="s", add_blocks=("2",))), "task_not_found")
    assert updated(update(there, "1", Change(add_blocked_by=("3",)))).task == task(1, blocked_by=("3",))


# ── making ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.23")
def test_a_task_is_made_pending_and_its_owner_is_owed_the_news() -> None:
    draft = Draft(
        subject="s",
        description="d",
        active_form="doing",
        owner="bob",
        metadata={"a": 1},
        add_blocks=("1", "1"),
        add_blocked_by=("2",),
    )
    answer = created(create(board(task(1), task(2)), "3", draft, by="lead"))
    assert answer.task == Task(
        id="3",
        subject="s",
        description="d",
        active_form="doing",
        owner="bob",
        status="pending",
        blocks=("1",),
        blocked_by=("2",),
        metadata={"a": 1},
    )
    assert answer.assigned == "bob"
    assert created(create(board(), "1", draft_with(owner="bob"), by="bob")).assigned is None
    plain = created(create(board(), "1", draft_with(owner="", active_form="")))
    assert (plain.task.owner, plain.task.active_form, plain.assigned) == (None, None, None)
    refused(create(board(task(1), task(2)), "3", replace(draft, add_blocked_by=("1",))), "task_cycle")


def draft_with(**fields: Any) -> Draft:
    given: dict[str, Any] = {"subject": "s", **fields}
    return Draft(**given)


@pytest.mark.rule("11.10", "07.23")
def test_a_list_is_full_at_its_limit() -> None:
    there = board(*(task(number) for number in range(1, MAX_TASKS)))
    assert isinstance(create(there, str(MAX_TASKS), Draft(subject="s")), Created)
    more = board(*there.tasks.values(), unreadable=(str(MAX_TASKS),))
    refused(create(more, str(MAX_TASKS + 1), Draft(subject="s")), "tasks_full")
    assert isinstance(update(more, "1", Change(status="completed")), Updated)


@pytest.mark.rule("11.10")
def test_what_fits_by_its_parts_and_not_as_a_whole_is_refused() -> None:
    holes: dict[str, Any] = {"": [[]] * 16_000}
    for _ in range(MAX_DEPTH - 4):
        holes = {"": holes}
    draft = draft_with(metadata=holes, description="\1" * MAX_DESCRIPTION)
    assert "bytes" in refused(create(board(), "1", draft), "invalid_task").message
    large = Task(id="1", subject="s", extra={"x": "x" * (MAX_FILE - 200)})
    refused(update(board(large), "1", Change(description="d" * 200)), "invalid_task")
    refused(claim(board(large), "1", "a" * 64), "invalid_task")


# ── changing ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.23")
def test_what_is_not_given_stays() -> None:
    before = replace(task(1, owner="bob", metadata={"a": 1}), active_form="doing", extra={"x": 1})
    assert updated(update(board(before), "1", Change())) == Updated(before=before, task=before)
    answer = updated(update(board(before), "1", Change(subject="t", description="e", status="in_progress")))
    assert answer.task == replace(before, subject="t", description="e", status="in_progress")
    answer = updated(update(board(before), "1", Change(active_form="", owner="")))
    assert answer.task == replace(before, active_form=None, owner=None)
    assert updated(update(board(before), "1", Change(active_form="at it"))).task == replace(
        before, active_form="at it"
    )


@pytest.mark.rule("07.23")
def test_metadata_is_merged_and_nothing_takes_a_key_away() -> None:
    before = task(1, metadata={"a": 1, "b": 2})
    answer = updated(update(board(before), "1", Change(metadata={"b": None, "c": 3})))
    assert answer.task == task(1, metadata={"a": 1, "c": 3})
    assert updated(update(board(task(1)), "1", Change(metadata={"a": 1}))).task == task(1, metadata={"a": 1})
    half = {"a": "x" * (MAX_METADATA // 2)}
    there = board(task(1, metadata=half))
    refused(update(there, "1", Change(metadata={"b": half["a"]})), "invalid_task")


@pytest.mark.rule("07.23")
@pytest.mark.parametrize("before", STATUSES)
@pytest.mark.parametrize("after", STATUSES)
def test_any_status_may_follow_any_other(before: TaskStatus, after: TaskStatus) -> None:
    answer = updated(update(board(task(1, status=before)), "1", Change(status=after)))
    assert answer.task == task(1, status=after)


@pytest.mark.rule("07.23")
def test_a_new_owner_is_owed_the_news_and_nobody_else() -> None:
    there = board(task(1, owner="bob"))
    assert updated(update(there, "1", Change(owner="ann"), by="lead")).assigned == "ann"
    assert updated(update(there, "1", Change(owner="ann"), by="ann")).assigned is None
    assert updated(update(there, "1", Change(owner="bob"), by="lead")).assigned is None
    assert updated(update(there, "1", Change(owner=""), by="lead")).assigned is None
    assert updated(update(there, "1", Change(subject="t"), by="lead")).assigned is None


@pytest.mark.rule("07.23")
def test_completing_one_unblocks_those_that_wait_for_nothing_else() -> None:
    there = board(
        task(1, blocks=("2", "3", "4", "11")),
        task(2),
        task(3, blocked_by=("9",)),
        task(4, status="in_progress"),
        task(5),
        task(9),
        task(11),
    )
    assert updated(update(there, "1", Change(status="completed"))).unblocked == ("2", "11")
    assert updated(update(there, "1", Change(status="deleted"))).unblocked == ("2", "11")
    assert updated(update(there, "1", Change(status="in_progress"))).unblocked == ()
    again = board(task(1, status="completed", blocks=("2",)), task(2))
    reopened = updated(update(again, "1", Change(status="pending"))).task
    refused(claim(replaced(again, "1", reopened), "2", "ann"), "blocked")


@pytest.mark.rule("07.23")
def test_what_is_deleted_is_gone_and_blocks_no_more() -> None:
    there = board(task(1, blocks=("2",)), task(2, blocked_by=("1", "3")), unreadable=("3",))
    answer = updated(update(there, "1", Change(status="deleted", subject="")))
    assert (answer.before, answer.task, answer.unblocked) == (there.tasks["1"], None, ())
    rest = replaced(there, "1", None)
    answer = updated(update(rest, "3", Change(status="deleted")))
    assert (answer.before, answer.task, answer.unblocked) == (None, None, ("2",))
    assert mended(replaced(rest, "3", None)) == (task(2),)
    refused(update(there, "7", Change(status="deleted")), "task_not_found")
    refused(update(there, "3", Change(subject="s")), "task_damaged")


# ── what callers say ─────────────────────────────────────────────────────────────────────────────

CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


def nested(levels: int) -> list[Any]:
    return [nested(levels - 1)] if levels else []


BAD: list[tuple[str, object, str]] = [
    ("subject", 5, "`subject` is not text"),
    ("subject", " \n", "`subject` is blank"),
    ("subject", "x" * (MAX_SUBJECT + 1), "`subject` has 501 characters; at most 500 are allowed"),
    ("subject", "\ud800", "`subject` holds half of a surrogate pair, which is no text"),
    ("description", {}, "`description` is not text"),
    ("description", "x" * (MAX_DESCRIPTION + 1), "`description` has 50,001"),
    ("activeForm", True, "`activeForm` is not text"),
    ("owner", "a b", "`owner` is not a member's name"),
    ("owner", 7, "`owner` is not a member's name"),
    ("metadata", [], "`metadata` is not an object"),
    ("metadata", {"a": nested(MAX_DEPTH)}, "`metadata` has more than 31 levels"),
    ("metadata", {"a": CIRCLE}, "`metadata` has more than 31 levels"),
    ("metadata", {"a": float("nan")}, "`metadata` holds something that is not JSON"),
    ("metadata", {"a": b"x"}, "`metadata` holds something that is not JSON"),
    ("metadata", {"a": "x" * MAX_METADATA}, "`metadata` has 50,008 characters"),
    ("addBlocks", "1", "`addBlocks` is not a list of task ids"),
    ("addBlocks", [1], "`addBlocks` is not a list of task ids"),
    ("addBlockedBy", ["1"] * (MAX_TASKS + 1), "`addBlockedBy` has 1,001 ids"),
    ("add_blocks", ["1"], 'There is no field "add_blocks"'),
    ("active_form", "x", 'There is no field "active_form"'),
    ("assignee", "x", 'There is no field "assignee"'),
    ("", "x", 'There is no field ""'),
]


@pytest.mark.rule("07.23")
@pytest.mark.parametrize(("field", "value", "said"), BAD)
def test_a_field_that_is_not_what_it_should_be_is_named(field: str, value: object, said: str) -> None:
    made = refused(draft_of({"subject": "s", field: value}), "invalid_task")
    changed = refused(change_of({"taskId": "1", field: value}), "invalid_task")
    assert made.message.startswith(said)
    assert changed.message.startswith(said)


@pytest.mark.rule("07.23")
def test_calls_are_read_with_the_names_of_the_other_programs() -> None:
    raw: dict[str, object] = {
        "subject": "s",
        "description": "d",
        "activeForm": "doing",
        "owner": None,
        "metadata": {"a": None},
        "addBlocks": ["1"],
        "addBlockedBy": [],
    }
    assert draft_of(raw) == Draft(
        subject="s", description="d", active_form="doing", metadata={"a": None}, add_blocks=("1",)
    )
    assert change_of({**raw, "taskId": "4", "status": "deleted", "owner": ""}) == (
        "4",
        Change(
            subject="s",
            description="d",
            active_form="doing",
            owner="",
            status="deleted",
            metadata={"a": None},
            add_blocks=("1",),
        ),
    )


@pytest.mark.rule("07.23")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (draft_of({}), "`subject` is missing."),
        (draft_of({"subject": None}), "`subject` is missing."),
        (draft_of({"subject": "s", "status": "pending"}), 'There is no field "status".'),
        (draft_of({"subject": "s", "taskId": "4"}), 'There is no field "taskId".'),
        (change_of({"status": "completed"}), "`taskId` is missing."),
        (change_of({"taskId": 4}), "`taskId` is not text."),
        (
            change_of({"taskId": "4", "status": "done"}),
            "`status` is not one of pending, in_progress, completed and deleted.",
        ),
        (
            change_of({"taskId": "4", "status": ["done"]}),
            "`status` is not one of pending, in_progress, completed and deleted.",
        ),
    ],
)
def test_what_a_call_must_have(answer: object, said: str) -> None:
    assert refused(answer, "invalid_task").message == said


@pytest.mark.rule("07.23")
def test_what_is_handed_over_as_a_record_is_checked_as_well() -> None:
    there = board(task(1))
    said = refused(create(there, "2", draft_with(subject="")), "invalid_task").message
    assert said == "`subject` is blank."
    said = refused(update(there, "1", Change(active_form="x" * 501)), "invalid_task").message
    assert said.startswith("`activeForm` has 501")
    wrong: Any = "done"
    refused(update(there, "1", Change(status=wrong)), "invalid_task")
    assert created(create(there, "2", draft_with(metadata=MappingProxyType({"a": 1})))).task.metadata == {
        "a": 1
    }


def test_every_refusal_has_its_sentence() -> None:
    codes = {"task_not_found", "already_claimed", "already_resolved", "blocked", "agent_busy"}
    assert codes < set(REFUSALS)
    assert get_args(TaskStatus) == STATUSES


# ── all of it together ───────────────────────────────────────────────────────────────────────────


class Lists(RuleBasedStateMachine):
    """A list under any steps, some of whose second writes never happen."""

    def __init__(self) -> None:
        super().__init__()
        self.board = Board()
        self.last = 0
        self.edges: set[tuple[str, str]] = set()

    number = st.integers(1, 8).map(str)

    def step(self, task_id: str, now: Task | None, killed: bool) -> None:
        self.board = replaced(self.board, task_id, now)
        if not killed:
            self.board = after_mending(self.board)
            assert mended(self.board) == ()

    @rule(blocks=st.sets(number, max_size=2), waits=st.sets(number, max_size=2), killed=st.booleans())
    def make(self, blocks: set[str], waits: set[str], killed: bool) -> None:
        self.last += 1
        draft = draft_with(add_blocks=tuple(blocks), add_blocked_by=tuple(waits))
        answer = create(self.board, str(self.last), draft)
        if isinstance(answer, Created):
            self.edges |= {(answer.task.id, other) for other in blocks}
            self.edges |= {(other, answer.task.id) for other in waits}
            self.step(answer.task.id, answer.task, killed)

    @rule(
        task_id=number,
        blocks=st.sets(number, max_size=1),
        status=st.sampled_from([None, *STATUSES]),
        killed=st.booleans(),
    )
    def change(self, task_id: str, blocks: set[str], status: TaskStatus | None, killed: bool) -> None:
        waiting = open_blockers(self.board)
        answer = update(self.board, task_id, Change(add_blocks=tuple(blocks), status=status))
        if isinstance(answer, Updated):
            self.edges |= {(task_id, other) for other in blocks}
            self.step(task_id, answer.task, killed)
            now = open_blockers(self.board)
            assert all(waiting[each] and not now[each] for each in answer.unblocked)

    @rule(task_id=number, killed=st.booleans())
    def delete(self, task_id: str, killed: bool) -> None:
        answer = update(self.board, task_id, Change(status="deleted"))
        if isinstance(answer, Updated):
            self.edges = {edge for edge in self.edges if task_id not in edge}
            self.step(task_id, None, killed)

    @rule(who=st.sampled_from(["ann", "bob"]))
    def take(self, who: str) -> None:
        free = next_claimable(self.board)
        if free is not None:
            answer = claim(self.board, free.id, who, one_at_a_time=False)
            assert isinstance(answer, Claimed)
            self.step(free.id, answer.task, killed=True)

    @invariant()
    def an_edge_counts_from_its_first_write_until_an_end_of_it_goes(self) -> None:
        tasks = self.board.tasks
        meant = {
            each: tuple(
                sorted(
                    (one for one, other in self.edges if other == each and tasks[one].status != "completed"),
                    key=int,
                )
            )
            for each in tasks
        }
        assert open_blockers(self.board) == meant

    @invariant()
    def nothing_waits_for_itself(self) -> None:
        left = set(self.board.tasks)
        while free := {each for each in left if not any((one, each) in self.edges for one in left)}:
            left -= free
        assert not left


@pytest.mark.rule("07.23")
def test_whatever_is_done_and_wherever_it_is_killed_edges_hold_and_no_circle_comes() -> None:
    run_state_machine_as_test(
        Lists, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )
