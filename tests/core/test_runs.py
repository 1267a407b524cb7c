"""The life of an agent: each run ends once, and its owner is owed each end until it is told."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from postroom.core.message import RunStatus, TaskNotification
from postroom.core.runs import (
    OWED_MAX,
    TRANSITIONS,
    AgentState,
    Life,
    crashed,
    finished,
    is_agent_id,
    progress,
    restarted,
    resumed,
    stopped,
    told,
)

STATES: tuple[AgentState, ...] = get_args(AgentState)
ENDS: tuple[RunStatus, ...] = ("completed", "failed", "killed")
NEW = Life(id="a1", name="worker", session_id="s1", started_at=10)


def ended(status: RunStatus = "completed", life: Life = NEW) -> Life:
    over = finished(life, life.runs, status, 20)
    assert over is not None
    return over


def again(life: Life, at: int = 30) -> Life:
    next_run = resumed(life, at)
    assert next_run is not None
    return next_run


def test_a_run_ends_and_a_resume_begins_the_next_and_nothing_else() -> None:
    assert set(TRANSITIONS) == set(STATES)
    assert TRANSITIONS["live"] == set(ENDS)
    assert all(TRANSITIONS[state] == {"live"} for state in STATES if state != "live")


def test_a_new_agent_is_in_its_first_run_and_its_owner_is_to_be_told() -> None:
    new = Life(id="a1", name="worker", session_id="s1")
    assert (new.state, new.runs, new.background, new.stopped_by_user) == ("live", 1, True, False)
    assert (new.started_at, new.ended_at, new.owed) == (0, None, ())


def test_a_life_is_never_changed_by_a_step() -> None:
    with pytest.raises(FrozenInstanceError):
        NEW.runs = 2  # pyright: ignore[reportAttributeAccessIssue]


# ── ids ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.13")
@pytest.mark.parametrize("identity", ["a", "A-z_09", "x" * 80])
def test_what_can_name_a_folder_can_be_an_id(identity: str) -> None:
    assert is_agent_id(identity)


@pytest.mark.rule("06.13")
@pytest.mark.parametrize("identity", ["", "x" * 81, ".", "..", "a/b", "a b", "a.b", "é", "٣", "a\n", "a\0"])
def test_what_cannot_name_a_folder_is_no_id(identity: str) -> None:
    assert not is_agent_id(identity)


# ── one step ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.11")
@pytest.mark.parametrize("status", ENDS)
def test_an_end_says_everything_and_is_owed(status: RunStatus) -> None:
    life = finished(
        NEW, 1, status, 20, result="text", usage={"tokens": 3}, output_path="/out", worktree="/tree"
    )
    assert life is not None
    assert (life.state, life.ended_at, life.runs, life.started_at) == (status, 20, 1, 10)
    assert life.owed == (
        TaskNotification(
            task_id="a1",
            name="worker",
            status=status,
            run=1,
            at=20,
            result="text",
            usage={"tokens": 3},
            output_path="/out",
            worktree="/tree",
        ),
    )


@pytest.mark.rule("06.11")
def test_an_end_that_its_owner_waits_for_is_owed_to_nobody() -> None:
    life = finished(NEW, 1, "completed", 20, notify=False)
    assert life is not None
    assert life.state == "completed"
    assert life.owed == ()


@pytest.mark.rule("06.11")
@pytest.mark.parametrize("status", ENDS)
@pytest.mark.parametrize("before", ENDS)
def test_a_run_ends_once(before: RunStatus, status: RunStatus) -> None:
    assert finished(ended(before), 1, status, 40) is None


@pytest.mark.rule("06.11")
def test_an_older_run_and_one_that_never_was_cannot_end() -> None:
    second = again(ended())
    assert finished(second, 1, "completed", 40) is None
    assert finished(second, 3, "completed", 40) is None
    assert finished(second, 2, "completed", 40) is not None


def test_running_is_no_end() -> None:
    assert finished(NEW, 1, "running", 20) is None


@pytest.mark.rule("06.11")
def test_each_finish_of_a_task_has_its_own_run_number() -> None:
    life = ended("failed", again(ended()))
    assert [(one.task_id, one.run, one.status) for one in life.owed] == [
        ("a1", 1, "completed"),
        ("a1", 2, "failed"),
    ]


@pytest.mark.rule("02.23")
@pytest.mark.parametrize("status", ENDS)
def test_whatever_has_ended_can_be_resumed(status: RunStatus) -> None:
    life = again(ended(status))
    assert (life.state, life.runs, life.started_at, life.ended_at) == ("live", 2, 30, None)
    assert [one.run for one in life.owed] == [1]


def test_what_is_live_is_not_resumed() -> None:
    assert resumed(NEW, 30) is None


@pytest.mark.rule("02.24")
def test_the_users_stop_kills_the_run_and_nothing_restarts_it() -> None:
    life = stopped(NEW, 20, by_user=True)
    assert (life.state, life.stopped_by_user, life.ended_at) == ("killed", True, 20)
    assert [one.status for one in life.owed] == ["killed"]
    assert resumed(life, 30) is None


@pytest.mark.rule("02.24")
def test_the_users_stop_of_what_has_ended_changes_nothing_else() -> None:
    life = ended()
    assert stopped(life, 40, by_user=True) == replace(life, stopped_by_user=True)


def test_a_stop_by_somebody_else_leaves_it_resumable() -> None:
    life = stopped(NEW, 20, by_user=False)
    assert (life.state, life.stopped_by_user) == ("killed", False)
    assert resumed(life, 30) is not None
    assert stopped(life, 40, by_user=False) == life


@pytest.mark.rule("02.24")
def test_a_stop_by_somebody_else_does_not_lift_the_users() -> None:
    assert stopped(stopped(NEW, 20, by_user=True), 30, by_user=False).stopped_by_user


def test_a_stop_that_nobody_is_to_hear_of_is_not_owed() -> None:
    assert stopped(NEW, 20, by_user=True, notify=False).owed == ()


@pytest.mark.rule("06.13")
def test_the_owner_lifts_the_users_stop_and_begins_no_run_by_that() -> None:
    before = stopped(NEW, 20, by_user=True)
    life = restarted(before)
    assert life == replace(before, stopped_by_user=False)
    assert again(life).runs == 2


@pytest.mark.rule("06.11")
def test_a_run_whose_process_has_gone_was_killed() -> None:
    life = crashed(NEW, 50)
    assert life is not None
    assert (life.state, life.ended_at) == ("killed", 50)
    assert [(one.status, one.run, one.at) for one in life.owed] == [("killed", 1, 50)]
    quiet = crashed(NEW, 50, notify=False)
    assert quiet is not None
    assert quiet.owed == ()


@pytest.mark.parametrize("status", ENDS)
def test_what_had_ended_before_its_process_went_stays_so(status: RunStatus) -> None:
    assert crashed(ended(status), 50) is None


@pytest.mark.rule("06.11")
def test_telling_one_end_leaves_the_others_owed() -> None:
    life = ended(life=again(ended()))
    assert [one.run for one in told(life, 1).owed] == [2]
    assert told(life, 3) == life
    assert told(told(life, 2), 1).owed == ()


@pytest.mark.rule("11.10")
def test_what_is_owed_is_bounded_and_the_oldest_goes() -> None:
    life = ended()
    for _ in range(OWED_MAX):
        life = ended(life=again(life))
    assert [one.run for one in life.owed] == list(range(2, 102))


@pytest.mark.rule("06.11")
@given(st.text(), st.integers(0, 2**53))
def test_progress_is_the_same_record_with_the_status_running(text: str, at: int) -> None:
    life = again(ended())
    assert progress(life, text, at) == TaskNotification(
        task_id="a1", name="worker", status="running", run=2, at=at, result=text
    )


# ── whatever happens ─────────────────────────────────────────────────────────────────────────────


class Agent(RuleBasedStateMachine):
    """A life under any steps in any order, beside a list of how each run ended."""

    def __init__(self) -> None:
        super().__init__()
        self.life = NEW
        self.now = NEW.started_at
        self.ends: dict[int, RunStatus] = {}
        self.owed: list[int] = []
        self.flag = False

    def _step(self, life: Life) -> None:
        before, after = self.life.state, life.state
        assert after == before or after in TRANSITIONS[before]
        self.life = life

    def _ended(self, status: RunStatus, notify: bool) -> None:
        run = self.life.runs
        self.ends[run] = status
        if notify:
            self.owed = [*self.owed, run][-OWED_MAX:]

    @rule(back=st.integers(-1, 2), status=st.sampled_from((*ENDS, "running")), notify=st.booleans())
    def finish(self, back: int, status: RunStatus, notify: bool) -> None:
        self.now += 1
        run = self.life.runs - back
        life = finished(self.life, run, status, self.now, notify=notify)
        assert (life is not None) is (back == 0 and run not in self.ends and status != "running")
        if life is not None:
            self._ended(status, notify)
            self._step(life)
            assert life.ended_at == self.now

    @rule()
    def resume(self) -> None:
        self.now += 1
        life = resumed(self.life, self.now)
        assert (life is not None) is (self.life.runs in self.ends and not self.flag)
        if life is not None:
            assert life.runs == self.life.runs + 1
            self._step(life)

    @rule(by_user=st.booleans(), notify=st.booleans())
    def stop(self, by_user: bool, notify: bool) -> None:
        self.now += 1
        if self.life.runs not in self.ends:
            self._ended("killed", notify)
        self.flag = self.flag or by_user
        self._step(stopped(self.life, self.now, by_user=by_user, notify=notify))

    @rule()
    def restart(self) -> None:
        self.flag = False
        self._step(restarted(self.life))

    @rule(notify=st.booleans())
    def crash(self, notify: bool) -> None:
        self.now += 1
        life = crashed(self.life, self.now, notify=notify)
        assert (life is None) is (self.life.runs in self.ends)
        if life is not None:
            self._ended("killed", notify)
            self._step(life)

    @rule(back=st.integers(-1, 3))
    def tell(self, back: int) -> None:
        run = self.life.runs - back
        self.owed = [one for one in self.owed if one != run]
        self._step(told(self.life, run))

    @invariant()
    def it_says_how_it_stands(self) -> None:
        life = self.life
        assert life.state == self.ends.get(life.runs, "live")
        assert (life.ended_at is None) is (life.state == "live")
        assert life.stopped_by_user is self.flag
        assert not (life.state == "live" and life.stopped_by_user)
        assert [(one.run, one.status) for one in life.owed] == [(run, self.ends[run]) for run in self.owed]
        assert (
            replace(life, state="live", stopped_by_user=False, runs=1, ended_at=None, owed=(), started_at=10)
            == NEW
        )


@pytest.mark.rule("06.11", "02.24")
def test_whatever_happens_each_run_ends_once_and_is_told_once() -> None:
    run_state_machine_as_test(Agent, settings=settings(max_examples=150, stateful_step_count=30))  # pyright: ignore[reportUnknownMemberType]
