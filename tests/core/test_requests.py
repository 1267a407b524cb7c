"""What is open between a lead and its members: opened once, answered once; and how a member goes."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from postroom.core.requests import (
    GONE_WITHIN,
    LIMITS,
    MAX_SETTLED,
    TRANSITIONS,
    Departure,
    DepartureState,
    Kind,
    Request,
    Requests,
    departed,
    forgotten,
    opened,
    overdue,
    settled,
)

KINDS: tuple[Kind, ...] = get_args(Kind)
STATES: tuple[DepartureState, ...] = get_args(DepartureState)
MEMBERS = ("ada", "bob")
NEW = Departure(member="ada", request_id="s1", since=1_000)


def one(request_id: str = "1", kind: Kind = "permission", member: str = "ada") -> Request:
    return Request(kind=kind, id=request_id, member=member)


def begun(requests: Requests, *more: Request) -> Requests:
    for request in more:
        after = opened(requests, request)
        assert isinstance(after, Requests)
        requests = after
    return requests


@pytest.mark.rule("07.13", "07.18")
def test_a_request_is_open_once_and_answered_once() -> None:
    request = one()
    after = begun(Requests(), request)
    assert after.find("permission", "ada", "1") == request
    assert opened(after, request) == "known-request"
    over = settled(after, request)
    assert over.find("permission", "ada", "1") is None
    assert opened(over, request) == "known-request"


@pytest.mark.rule("07.13")
def test_an_id_is_of_one_sort_and_one_member() -> None:
    requests = begun(Requests(), one(), one(kind="plan"), one(member="bob"))
    assert requests.find("sandbox", "ada", "1") is None
    assert requests.of("permission", "ada") == (one(),)
    left = settled(requests, one())
    assert left.open == (one(kind="plan"), one(member="bob"))


@pytest.mark.rule("07.19")
def test_a_plan_that_was_changed_takes_the_place_of_the_one_before() -> None:
    requests = begun(Requests(), one("p1", "plan"), one("p2", "plan"), one("p1", "plan", "bob"))
    assert requests.of("plan", "ada") == (one("p2", "plan"),)
    assert requests.of("plan", "bob") == (one("p1", "plan", "bob"),)
    assert opened(requests, one("p1", "plan")) == "known-request"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_beyond_the_limit_is_dropped_or_pushes_the_oldest_out(kind: Kind) -> None:
    most, oldest_goes = LIMITS[kind]
    full = begun(Requests(), *(one(str(number), kind) for number in range(most)))
    after = opened(full, one("more", kind))
    if oldest_goes:
        assert isinstance(after, Requests)
        assert [each.id for each in after.open] == [*map(str, range(1, most)), "more"]
    else:
        assert after == "too-many-open"
    assert isinstance(opened(full, one("more", kind, "bob")), Requests)


def test_so_many_answered_ids_are_remembered_and_no_others_are_lost_for_them() -> None:
    requests = settled(begun(Requests(), one("x", member="bob")), one("x", member="bob"))
    for number in range(MAX_SETTLED + 1):
        requests = settled(begun(requests, one(str(number))), one(str(number)))
    assert isinstance(opened(requests, one("0")), Requests)
    assert opened(requests, one("1")) == "known-request"
    assert opened(requests, one("x", member="bob")) == "known-request"
    assert len(requests.settled) == MAX_SETTLED + 1


@pytest.mark.rule("07.22")
def test_the_next_of_a_name_has_no_requests_of_the_one_before() -> None:
    requests = settled(begun(Requests(), one("1"), one("2"), one("2", member="bob")), one("1"))
    requests = settled(begun(requests, one("1", member="bob")), one("1", member="bob"))
    after = forgotten(requests, "ada")
    assert after.open == (one("2", member="bob"),)
    assert after.settled == (("permission", "bob", "1"),)


class Opening(RuleBasedStateMachine):
    """Held against a plain model: what is open, and what was ever settled."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = Requests()
        self.open: list[Request] = []
        self.used: set[tuple[Kind, str, str]] = set()

    @rule(kind=st.sampled_from(KINDS), member=st.sampled_from(MEMBERS), number=st.integers(0, 12))
    def opens(self, kind: Kind, member: str, number: int) -> None:
        request = one(str(number), kind, member)
        after = opened(self.requests, request)
        alike = [each for each in self.open if (each.kind, each.member) == (kind, member)]
        if request in self.open or (kind, member, str(number)) in self.used:
            assert after == "known-request"
            return
        assert isinstance(after, Requests)
        self.requests = after
        if len(alike) == LIMITS[kind][0]:
            self.open.remove(alike[0])
            self.used.add((kind, member, alike[0].id))
        self.open.append(request)

    @rule(kind=st.sampled_from(KINDS), member=st.sampled_from(MEMBERS), number=st.integers(0, 12))
    def answers(self, kind: Kind, member: str, number: int) -> None:
        found = self.requests.find(kind, member, str(number))
        assert (found is not None) == (one(str(number), kind, member) in self.open)
        if found is not None:
            self.requests = settled(self.requests, found)
            self.open.remove(found)
            self.used.add((kind, member, found.id))

    @rule(member=st.sampled_from(MEMBERS))
    def goes(self, member: str) -> None:
        self.requests = forgotten(self.requests, member)
        self.open = [each for each in self.open if each.member != member]
        self.used = {each for each in self.used if each[1] != member}

    @invariant()
    def is_as_the_model_has_it(self) -> None:
        assert list(self.requests.open) == self.open
        assert set(self.requests.settled) == self.used


@pytest.mark.rule("07.13")
def test_requests_are_as_a_plain_model_has_them() -> None:
    run_state_machine_as_test(
        Opening, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )


# ── departures ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.18")
@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("state", STATES)
def test_a_departure_takes_each_step_of_its_table_and_no_other(
    before: DepartureState, state: DepartureState
) -> None:
    departure = replace(NEW, state=before)
    allowed = {
        *(("asked", "approved"), ("asked", "rejected"), ("asked", "gone")),
        *(("approved", "gone"), ("approved", "ended")),
    }
    after = departed(departure, state, 2_000)
    assert after == (replace(departure, state=state, since=2_000) if (before, state) in allowed else None)
    assert set(TRANSITIONS) == set(STATES)


@pytest.mark.rule("07.18")
@pytest.mark.parametrize("state", STATES)
def test_report_47_only_a_member_that_approved_and_stays_is_ended_by_the_lead(state: DepartureState) -> None:
    departure = replace(NEW, state=state)
    assert not overdue(departure, 1_000 + GONE_WITHIN - 1)
    assert overdue(departure, 1_000 + GONE_WITHIN) is (state == "approved")


class Leaving(RuleBasedStateMachine):
    """Whatever is tried: answered at most once, and nothing follows an end."""

    def __init__(self) -> None:
        super().__init__()
        self.departure = NEW
        self.path: list[DepartureState] = ["asked"]

    @rule(state=st.sampled_from(STATES), at=st.integers(0, 10_000))
    def steps(self, state: DepartureState, at: int) -> None:
        after = departed(self.departure, state, at)
        if after is not None:
            self.departure = after
            self.path.append(state)

    @invariant()
    def is_answered_once(self) -> None:
        assert sum(each in ("approved", "rejected") for each in self.path) <= 1
        assert len(self.path) <= 3
        assert "ended" not in self.path or self.path == ["asked", "approved", "ended"]


@pytest.mark.rule("07.18")
def test_a_departure_is_answered_once_whatever_is_tried() -> None:
    run_state_machine_as_test(
        Leaving, settings=settings(max_examples=40, stateful_step_count=12, deadline=None)
    )
