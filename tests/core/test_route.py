"""How a message goes to whom it is meant for: one answer for each state, the earlier rung before the later."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from postroom.core.message import Refusal
from postroom.core.route import (
    JOIN,
    MAIN,
    NO_RESUME,
    PENDING,
    RESUME,
    TRANSPORT,
    Deliver,
    Join,
    Recipient,
    Resume,
    route,
)
from postroom.core.runs import AgentState

STATES: tuple[AgentState, ...] = get_args(AgentState)
ENDED: tuple[AgentState, ...] = tuple(state for state in STATES if state != "live")


def agent(
    state: AgentState = "completed",
    *,
    stopped: bool = False,
    resuming: bool = False,
    can_resume: bool = True,
    flaw: str = "",
) -> Recipient:
    return Recipient("agent", "worker", state, stopped, resuming, can_resume, flaw)


def refused(recipient: Recipient) -> Refusal:
    answer = route(recipient)
    assert isinstance(answer, Refusal)
    return answer


def test_another_session_is_reached_by_a_transport() -> None:
    answer = route(Recipient("session"))
    assert answer is TRANSPORT
    assert answer == Deliver("transport")


@pytest.mark.rule("06.8")
def test_the_main_conversation_is_reached_by_its_queue() -> None:
    answer = route(Recipient("main"))
    assert answer is MAIN
    assert answer == Deliver("main")


@pytest.mark.rule("02.22")
def test_a_live_agent_is_reached_by_its_pending_list() -> None:
    answer = route(agent("live"))
    assert answer is PENDING
    assert answer == Deliver("pending")


@pytest.mark.rule("02.22")
def test_a_live_agent_needs_neither_a_transcript_nor_anybody_who_resumes() -> None:
    assert route(agent("live", can_resume=False, flaw="its transcript is missing")) is PENDING


@pytest.mark.rule("02.23")
@pytest.mark.parametrize("state", ENDED)
def test_an_agent_that_has_ended_is_resumed(state: AgentState) -> None:
    answer = route(agent(state))
    assert answer is RESUME
    assert isinstance(answer, Resume)


@pytest.mark.rule("02.24")
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("resuming", [False, True])
def test_what_the_user_stopped_stays_so_even_while_it_is_being_resumed(
    state: AgentState, resuming: bool
) -> None:
    said = refused(agent(state, stopped=True, resuming=resuming))
    assert said.code == "stopped_by_user"
    assert "worker" in said.message


@pytest.mark.rule("02.27")
@pytest.mark.parametrize("state", STATES)
def test_a_send_joins_the_resume_that_is_under_way(state: AgentState) -> None:
    answer = route(agent(state, resuming=True))
    assert answer is JOIN
    assert isinstance(answer, Join)


@pytest.mark.rule("02.26")
@pytest.mark.parametrize("state", ENDED)
def test_an_unfit_transcript_or_metadata_is_refused_with_the_reason(state: AgentState) -> None:
    said = refused(agent(state, flaw="its transcript is missing"))
    assert said.code == "resume_failed"
    assert "worker" in said.message
    assert "its transcript is missing" in said.message


@pytest.mark.parametrize("flaw", ["", "its transcript is missing"])
def test_where_nobody_can_resume_it_that_is_the_reason(flaw: str) -> None:
    said = refused(agent(can_resume=False, flaw=flaw))
    assert said.code == "resume_failed"
    assert NO_RESUME in said.message
    assert "transcript" not in said.message


def test_of_whom_nothing_else_is_known_is_alive_and_well() -> None:
    assert route(Recipient("agent")) is PENDING
    assert route(Recipient("agent", state="failed")) is RESUME


def test_every_agent_gets_the_answer_of_the_first_rung_that_applies() -> None:
    """The ladder of the module's docstring as a table, over all that an agent can be."""
    seen: set[str] = set()
    for state, stopped, resuming, can_resume, flaw in product(
        STATES, (True, False), (True, False), (True, False), ("", "it is gone")
    ):
        answer = route(agent(state, stopped=stopped, resuming=resuming, can_resume=can_resume, flaw=flaw))
        shown = answer.code if isinstance(answer, Refusal) else type(answer).__name__
        rungs = (
            (stopped, "stopped_by_user"),
            (resuming, "Join"),
            (state == "live", "Deliver"),
            (not can_resume or bool(flaw), "resume_failed"),
            (True, "Resume"),
        )
        assert shown == next(name for applies, name in rungs if applies)
        seen.add(shown)
    assert len(seen) == 5
