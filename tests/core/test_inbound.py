"""What may come in: the classes, which rung answers, and that an id is decided on once for each sender."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import product
from typing import Literal, NamedTuple, cast, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from postroom.core.inbound import (
    ACCEPTED,
    BY_CLASS,
    FULL,
    MISADDRESSED,
    MODE_UNKNOWN,
    MODES,
    NO_CLASS,
    OBJECTIONS,
    OTHER_CLASS,
    OWN_CHILD,
    REPEATS,
    RULED,
    RUNGS,
    SAME_CLASS,
    SELF_ECHO,
    UNVERIFIED,
    WITHIN,
    Arrival,
    Facts,
    Judgement,
    Outcome,
    Policy,
    ReceiverClass,
    Rung,
    Settled,
    Verdict,
    class_of,
    decide,
    judge,
)
from postroom.core.message import TRANSITIONS, Origin, PermissionClass
from postroom.core.settings import Cause, InboundSetting, InboundValue, Limits, Scope

HERE = "5f0e7a31-session"
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
LADDER: tuple[Rung, ...] = get_args(Rung)
RECEIVERS: tuple[ReceiverClass, ...] = get_args(ReceiverClass)
SCOPES: tuple[Scope, ...] = get_args(Scope)
VALUES: tuple[InboundValue, ...] = get_args(InboundValue)
EXPLICIT: tuple[Cause, ...] = ("explicit-setting", "managed-setting", "repo-setting", "invalid-setting")

NEW = Arrival(msg_id="m-1", body="b1")
QUIET = Facts(session_id=HERE, settled=None, unread=0)
PEER = Origin(kind="peer", identity="3fa9c1-session", verified=True)
OUTSIDER = Origin(kind="peer", identity="process:77:1200")
CHILD = Origin(kind="own_child", identity="process:78:1300")
AFAR = Origin(kind="peer", identity="token:9", transport="http")
ASKS = Policy(receiver="prompting", setting=None, max_unread=50)

ANSWERS: tuple[Judgement, ...] = (
    *(SELF_ECHO, MISADDRESSED, *REPEATS.values(), *OBJECTIONS.values()),
    *(RULED, OWN_CHILD, UNVERIFIED, MODE_UNKNOWN, SAME_CLASS, OTHER_CLASS, ACCEPTED, NO_CLASS, FULL),
)
"""Every answer but those of a setting."""


def setting(value: InboundValue, scope: Scope = "user", cause: Cause = "explicit-setting") -> InboundSetting:
    return InboundSetting(value=value, scope=scope, cause=cause)


def stating(word: str | None, origin: Origin = PEER) -> Origin:
    """The origin with a class stated; a word that is no class could come out of an older store."""
    return replace(origin, stated_class=cast("PermissionClass | None", word))


def under(value: InboundValue) -> Policy:
    """The policy of a session with this setting and nothing else."""
    return ASKS._replace(setting=setting(value))


class Guard:
    """A loop guard that always says the same, and counts how often it is asked."""

    def __init__(self, objection: str | None = None) -> None:
        self.objection = objection
        self.asked = 0

    def __call__(self) -> str | None:
        self.asked += 1
        return self.objection


class Case(NamedTuple):
    """Everything that `judge` is given."""

    arrival: Arrival = NEW
    facts: Facts = QUIET
    origin: Origin = PEER
    ruled: bool = False
    policy: Policy = ASKS
    objection: str | None = None

    def judged(self, guard: Guard | None = None) -> Judgement:
        asked = Guard(self.objection) if guard is None else guard
        return judge(self.arrival, self.facts, self.origin, self.ruled, self.policy, asked)

    def decided(self) -> Judgement:
        return decide(self.origin, self.ruled, self.policy)


arrivals = st.builds(
    Arrival,
    msg_id=st.sampled_from(["m-1", "m-2"]),
    body=st.sampled_from(["b1", "b2"]),
    own_address=st.sampled_from([False, False, False, True]),
    own_message=st.sampled_from([False, False, False, True]),
    addressed=st.sampled_from([None, HERE, None, "another"]),
)
settled = st.none() | st.builds(
    Settled, outcome=st.sampled_from(VERDICTS), body=st.sampled_from(["b1", "b2"])
)
facts = st.builds(Facts, session_id=st.just(HERE), settled=settled, unread=st.integers(0, 60))
stated = st.sampled_from([None, "bypassing", "prompting", "trusted"])
origins = st.builds(
    stating,
    stated,
    st.builds(
        Origin,
        kind=st.sampled_from(["peer", "own_child", "coordinator"]),
        identity=st.sampled_from(["3fa9c1-session", "process:77:1200"]),
        verified=st.booleans(),
        transport=st.sampled_from(["uds", "memory", "http", "nats"]),
    ),
)
chosen = st.builds(
    InboundSetting,
    value=st.sampled_from(VALUES),
    scope=st.sampled_from(SCOPES),
    cause=st.sampled_from(EXPLICIT),
)
policies = st.builds(
    Policy, receiver=st.sampled_from(RECEIVERS), setting=st.none() | chosen, max_unread=st.integers(10, 60)
)
objections = st.none() | st.sampled_from(sorted(OBJECTIONS))
cases = st.builds(Case, arrivals, facts, origins, st.booleans(), policies, objections)


# ── classes ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.1")
@pytest.mark.parametrize("mode", ["bypassPermissions", "never", "danger-full-access", "yolo"])
def test_a_mode_that_never_asks_is_bypassing(mode: str) -> None:
    assert {
        class_of(mode, interactive=interactive, bypass_available=available)
        for interactive, available in product((True, False), repeat=2)
    } == {"bypassing"}


@pytest.mark.rule("03.2")
def test_plan_is_bypassing_where_a_person_can_leave_it_for_that() -> None:
    assert class_of("plan", interactive=True, bypass_available=True) == "bypassing"


@pytest.mark.rule("03.3")
@pytest.mark.parametrize("mode", ["default", "manual", "acceptEdits", "auto", "dontAsk", "plan"])
def test_a_mode_that_asks_is_prompting(mode: str) -> None:
    assert class_of(mode) == "prompting"
    assert class_of(mode, interactive=True) == "prompting"
    assert class_of(mode, bypass_available=True) == "prompting"
    both = class_of(mode, interactive=True, bypass_available=True)
    assert both == ("bypassing" if mode == "plan" else "prompting")


@pytest.mark.rule("03.4")
@pytest.mark.parametrize("mode", ["", "unknown", "Default", "bypasspermissions", "plan ", "auto_edit", "new"])
def test_any_other_mode_is_unknown(mode: str) -> None:
    assert class_of(mode, interactive=True, bypass_available=True) == "unknown"


def test_the_table_of_modes_is_the_one_that_these_tests_show() -> None:
    assert len(MODES) == 10


# ── the default rule, cell by cell ───────────────────────────────────────────────────────────────

NOTHING = (None, "trusted", "bypass", "Prompting", "")
"""What counts as nothing stated: nothing, and every word that is not a class (03.5)."""


@pytest.mark.rule("03.16", "03.17", "03.19")
def test_a_bypassing_session_accepts_its_like_and_holds_the_others() -> None:
    asked = ASKS._replace(receiver="bypassing")
    assert decide(stating("bypassing"), False, asked) is SAME_CLASS
    assert decide(stating("prompting"), False, asked) is OTHER_CLASS
    assert {decide(stating(word), False, asked) for word in NOTHING} == {NO_CLASS}


@pytest.mark.rule("03.16", "03.17", "03.20")
def test_a_prompting_session_holds_what_a_bypassing_one_sends() -> None:
    assert decide(stating("bypassing"), False, ASKS) is OTHER_CLASS
    assert decide(stating("prompting"), False, ASKS) is SAME_CLASS
    assert {decide(stating(word), False, ASKS) for word in NOTHING} == {ACCEPTED}


@pytest.mark.rule("03.15", "03.21")
@pytest.mark.parametrize("word", ["bypassing", "prompting", *NOTHING])
def test_a_session_of_unknown_class_holds_everything(word: str | None) -> None:
    assert decide(stating(word), False, ASKS._replace(receiver="unknown")) is MODE_UNKNOWN


@pytest.mark.rule("03.13", "03.22")
@pytest.mark.parametrize("receiver", RECEIVERS)
@pytest.mark.parametrize("word", ["bypassing", "prompting", *NOTHING])
def test_an_own_child_is_accepted_by_every_class(receiver: ReceiverClass, word: str | None) -> None:
    assert decide(stating(word, CHILD), False, ASKS._replace(receiver=receiver)) is OWN_CHILD


@pytest.mark.parametrize(
    ("answer", "outcome", "rung", "cause"),
    [
        (SAME_CLASS, "accepted", "class", ""),
        (OTHER_CLASS, "held", "class", "mode-mismatch"),
        (ACCEPTED, "accepted", "default", ""),
        (NO_CLASS, "held", "default", "no-mode-asserted"),
        (MODE_UNKNOWN, "held", "mode-unknown", "mode-unknown"),
        (OWN_CHILD, "accepted", "own-child", ""),
        (RULED, "accepted", "rule", ""),
        (UNVERIFIED, "held", "unverified", "unverified-sender"),
    ],
)
def test_an_answer_says_what_comes_of_it_and_which_rung_gave_it(
    answer: Judgement, outcome: str, rung: str, cause: str
) -> None:
    assert (answer.outcome, answer.rung, answer.cause, answer.scope) == (outcome, rung, cause, "default")
    assert (answer.ack, answer.reason, answer.settles, answer.journal) == ("queued", "", True, "")
    assert answer.detail == (cause or rung)


@pytest.mark.rule("03.5")
@given(origins, st.booleans(), policies)
def test_a_word_that_is_no_class_is_nothing_stated(origin: Origin, ruled: bool, policy: Policy) -> None:
    assert decide(stating("trusted", origin), ruled, policy) is decide(stating(None, origin), ruled, policy)


# ── rungs 1 to 3 ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.7")
@pytest.mark.parametrize(
    "arrival",
    [NEW._replace(own_address=True), NEW._replace(own_message=True)],
    ids=["own address", "an id that this session sent"],
)
def test_report_11_what_comes_from_oneself_is_dropped(arrival: Arrival) -> None:
    judgement = Case(arrival).judged()
    assert (judgement.outcome, judgement.ack, judgement.reason) == ("dropped", "dropped", "self-echo")
    assert (judgement.journal, judgement.detail) == ("dropped", "self-echo")


@pytest.mark.rule("03.7")
def test_what_is_meant_for_another_session_is_misaddressed() -> None:
    judgement = Case(NEW._replace(addressed="another")).judged()
    assert (judgement.outcome, judgement.ack) == ("dropped", "misaddressed")
    assert Case(NEW._replace(addressed=HERE)).judged() is ACCEPTED
    assert Case(NEW._replace(addressed="")).judged() is MISADDRESSED


@pytest.mark.rule("03.8")
@pytest.mark.parametrize("verdict", VERDICTS)
def test_report_37_a_settled_id_is_acknowledged_as_before(verdict: Verdict) -> None:
    known = QUIET._replace(settled=Settled(outcome=verdict, body="b1"))
    judgement = Case(NEW, known).judged()
    assert (judgement.outcome, judgement.ack, judgement.reason) == ("duplicate", "queued", "")
    assert not judgement.settles
    assert judgement.detail == f"{verdict} before"


@pytest.mark.rule("03.8")
@pytest.mark.parametrize("verdict", VERDICTS)
def test_another_body_under_a_settled_id_is_journaled(verdict: Verdict) -> None:
    known = QUIET._replace(settled=Settled(outcome=verdict, body="b2"))
    judgement = Case(NEW, known).judged()
    assert (judgement.outcome, judgement.ack) == ("duplicate", "queued")
    assert judgement.detail.startswith("id-reuse")
    assert verdict in judgement.detail


@pytest.mark.rule("03.10")
def test_a_repeat_of_a_refused_message_shows_no_more_than_any_repeat() -> None:
    for same in (True, False):
        assert (
            len({(REPEATS[v, same].outcome, REPEATS[v, same].ack, REPEATS[v, same].reason) for v in VERDICTS})
            == 1
        )


def test_the_table_of_repeats_is_whole() -> None:
    assert set(REPEATS) == set(product(VERDICTS, (True, False)))


@pytest.mark.rule("03.9")
@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("hop-runaway", "throttled"),
        ("hop-loop", "throttled"),
        ("duplicate", "duplicate"),
        ("rate-limited", "throttled"),
    ],
)
def test_what_the_guard_objects_to_is_dropped_with_its_reason(reason: str, outcome: str) -> None:
    judgement = Case(objection=reason).judged()
    assert (judgement.outcome, judgement.ack, judgement.reason) == (outcome, "dropped", reason)
    assert (judgement.rung, judgement.scope) == ("loop-guard", "default")
    assert (judgement.journal, judgement.detail) == (outcome, reason)
    assert len(OBJECTIONS) == 4


def test_an_objection_that_the_wire_has_no_word_for_is_a_mistake_of_the_program() -> None:
    with pytest.raises(KeyError, match="mood"):
        Case(objection="mood").judged()


@pytest.mark.rule("03.8", "03.56")
def test_what_is_dropped_settles_nothing() -> None:
    """The same id may be tried again, and is then judged as new."""
    unsettled = (SELF_ECHO, MISADDRESSED, FULL, *OBJECTIONS.values())
    assert not any(answer.settles for answer in unsettled)


# ── rungs 4 to 8 ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.10")
@pytest.mark.parametrize("scope", SCOPES)
def test_a_setting_refuses(scope: Scope) -> None:
    judgement = Case(policy=ASKS._replace(setting=setting("refuse", scope))).judged()
    assert (judgement.outcome, judgement.rung, judgement.scope) == ("refused", "refuse", scope)
    assert (judgement.cause, judgement.detail) == ("", f"refuse ({scope})")


@pytest.mark.rule("03.10")
def test_a_refusal_is_acknowledged_exactly_as_an_acceptance() -> None:
    refused = Case(policy=ASKS._replace(setting=setting("refuse"))).judged()
    for accepted in (ACCEPTED, SAME_CLASS, RULED, OWN_CHILD, decide(PEER, False, under("accept"))):
        for field in ("ack", "reason", "settles", "journal"):
            assert getattr(refused, field) == getattr(accepted, field)


@pytest.mark.rule("03.11")
@pytest.mark.parametrize("scope", SCOPES)
def test_a_setting_accepts(scope: Scope) -> None:
    policy = Policy(receiver="unknown", setting=setting("accept", scope), max_unread=50)
    judgement = decide(AFAR, False, policy)
    assert (judgement.outcome, judgement.rung, judgement.scope) == ("accepted", "setting", scope)
    assert (judgement.cause, judgement.detail) == ("", f"setting ({scope})")


@pytest.mark.rule("03.11", "03.18")
@pytest.mark.parametrize("cause", EXPLICIT)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_setting_holds_and_says_why(scope: Scope, cause: Cause) -> None:
    judgement = decide(CHILD, True, ASKS._replace(setting=setting("hold", scope, cause)))
    assert (judgement.outcome, judgement.rung, judgement.scope) == ("held", "setting", scope)
    assert (judgement.cause, judgement.detail) == (cause, f"{cause} ({scope})")
    assert (judgement.ack, judgement.reason, judgement.settles) == ("queued", "", True)


@pytest.mark.rule("03.12")
@pytest.mark.parametrize("receiver", RECEIVERS)
def test_a_rule_of_a_person_accepts_a_verified_sender(receiver: ReceiverClass) -> None:
    policy = ASKS._replace(receiver=receiver)
    assert decide(stating("bypassing"), True, policy) is RULED
    assert decide(replace(AFAR, verified=True), True, policy) is RULED


@pytest.mark.rule("03.12")
@given(origins, policies)
def test_a_rule_never_matches_an_unverified_sender(origin: Origin, policy: Policy) -> None:
    claimed = replace(origin, verified=False)
    assert decide(claimed, True, policy) is decide(claimed, False, policy)


@pytest.mark.rule("03.14")
@pytest.mark.parametrize("transport", ["http", "nats", "", "carrier-pigeon"])
def test_what_comes_from_beyond_without_a_signature_is_held(transport: str) -> None:
    for word in ("bypassing", "prompting", None):
        unsigned = replace(stating(word), transport=transport, verified=False)
        assert decide(unsigned, False, ASKS) is UNVERIFIED
        assert decide(replace(unsigned, verified=True), False, ASKS) is not UNVERIFIED


@pytest.mark.parametrize("transport", sorted(WITHIN))
def test_what_never_left_this_machine_needs_no_signature(transport: str) -> None:
    assert decide(replace(OUTSIDER, transport=transport), False, ASKS) is ACCEPTED


@pytest.mark.rule("03.18")
def test_every_cause_of_a_hold_can_come_about() -> None:
    by_setting = [decide(PEER, False, ASKS._replace(setting=setting("hold", cause=c))) for c in EXPLICIT]
    held = {answer.cause for answer in (*ANSWERS, *by_setting) if answer.outcome == "held"}
    assert held == {
        *("explicit-setting", "managed-setting", "repo-setting", "invalid-setting"),
        *("mode-unknown", "mode-mismatch", "no-mode-asserted", "unverified-sender"),
    }
    assert held == set(get_args(Cause))
    assert not any(answer.cause for answer in ANSWERS if answer.outcome != "held")


@pytest.mark.rule("03.50")
def test_an_ordinary_message_is_accepted_and_its_sender_told_no_more() -> None:
    judgement = Case(origin=stating("prompting")).judged()
    assert (judgement.outcome, judgement.ack, judgement.reason) == ("accepted", "queued", "")
    assert judgement.settles
    assert not judgement.journal


# ── the cap ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.64")
@pytest.mark.parametrize(("unread", "full"), [(0, False), (49, False), (50, True), (51, True)])
def test_the_fifty_first_unread_message_finds_a_full_inbox(unread: int, full: bool) -> None:
    assert (Case(facts=QUIET._replace(unread=unread)).judged() is FULL) == full


@pytest.mark.rule("03.64")
def test_the_limit_is_a_setting() -> None:
    few = ASKS._replace(max_unread=10)
    assert Case(facts=QUIET._replace(unread=9), policy=few).judged() is ACCEPTED
    assert Case(facts=QUIET._replace(unread=10), policy=few).judged() is FULL


@pytest.mark.rule("12.23")
def test_a_limit_that_is_lifted_is_never_reached() -> None:
    lifted = ASKS._replace(max_unread=Limits.unbounded().max_unread)
    assert Case(facts=QUIET._replace(unread=sys.maxsize - 1), policy=lifted).judged() is ACCEPTED


@pytest.mark.rule("03.56")
def test_a_full_inbox_says_so() -> None:
    assert (FULL.outcome, FULL.ack, FULL.reason) == ("full", "inbox_full", "queue-full")
    assert (FULL.rung, FULL.journal) == ("cap", "full")


@pytest.mark.rule("03.10", "03.64")
@given(cases)
def test_only_what_would_be_accepted_can_find_it_full(case: Case) -> None:
    room = case._replace(facts=case.facts._replace(unread=0)).judged()
    full = case._replace(facts=case.facts._replace(unread=case.policy.max_unread)).judged()
    assert full is (FULL if room.outcome == "accepted" else room)


# ── the ladder ───────────────────────────────────────────────────────────────────────────────────

Change = Callable[[Case], Case]

MAKES: dict[Rung, Change] = {
    # For each rung what makes it answer, and touches nothing that another looks at, where that can be.
    "shape": lambda case: case._replace(arrival=case.arrival._replace(own_address=True)),
    "settled": lambda case: case._replace(facts=case.facts._replace(settled=Settled("held", "b1"))),
    "loop-guard": lambda case: case._replace(objection="hop-loop"),
    "refuse": lambda case: case._replace(policy=case.policy._replace(setting=setting("refuse"))),
    "setting": lambda case: case._replace(policy=case.policy._replace(setting=setting("hold"))),
    "rule": lambda case: case._replace(ruled=True, origin=replace(case.origin, verified=True)),
    "own-child": lambda case: case._replace(origin=replace(case.origin, kind="own_child")),
    "unverified": lambda case: case._replace(origin=replace(case.origin, verified=False, transport="http")),
    "mode-unknown": lambda case: case._replace(policy=case.policy._replace(receiver="unknown")),
    "class": lambda case: case._replace(origin=stating("prompting", case.origin)),
    "default": lambda case: case._replace(origin=stating(None, case.origin)),
    "cap": lambda case: case._replace(facts=case.facts._replace(unread=50)),
}

EITHER: set[tuple[Rung, Rung]] = {("refuse", "setting"), ("rule", "unverified"), ("class", "default")}
"""Rungs of which one alone can apply: a setting has one value, a sender is verified or not, states a class or not."""

ACCEPT: tuple[Rung, ...] = ("rule", "own-child", "class", "default")
"""Rungs that accept, in the cases above. The cap stands below all; where one of these answers, it is the cap's turn."""


def test_every_rung_can_be_made_to_answer() -> None:
    assert tuple(MAKES) == LADDER
    for rung, makes in MAKES.items():
        assert makes(Case()).judged().rung == rung


@pytest.mark.rule("03.6")
@pytest.mark.parametrize(
    ("higher", "lower"),
    [
        (higher, lower)
        for place, higher in enumerate(LADDER)
        for lower in LADDER[place + 1 :]
        if (higher, lower) not in EITHER
    ],
)
def test_of_two_rungs_the_higher_answers(higher: Rung, lower: Rung) -> None:
    """Both apply. The lower one is made to answer first, so it would, were it asked."""
    case = MAKES[lower](Case())
    assert case.judged().rung == lower
    judgement = MAKES[higher](case).judged()
    assert judgement.rung == ("cap" if lower == "cap" and higher in ACCEPT else higher)


@pytest.mark.rule("03.48", "03.12")
def test_a_rule_ranks_just_below_an_explicit_setting() -> None:
    ruled = MAKES["rule"](Case())
    for value, outcome in (("refuse", "refused"), ("hold", "held"), ("accept", "accepted")):
        judgement = decide(ruled.origin, True, under(cast("InboundValue", value)))
        assert (judgement.outcome, judgement.rung != "rule") == (outcome, True)
    assert decide(replace(ruled.origin, kind="own_child"), True, ASKS) is RULED


def applying(case: Case) -> list[str]:
    """Every rung that would answer, were it asked alone: in the order of the ladder, written down anew."""
    arrival, known, origin, policy = case.arrival, case.facts, case.origin, case.policy
    value = None if policy.setting is None else policy.setting.value
    words = ("bypassing", "prompting")
    shape = arrival.own_address or arrival.own_message or arrival.addressed not in (None, HERE)
    return [
        name
        for name, applies in (
            ("shape", shape),
            ("settled", known.settled is not None),
            ("loop-guard", case.objection is not None),
            ("refuse", value == "refuse"),
            ("setting", value in ("accept", "hold")),
            ("rule", case.ruled and origin.verified),
            ("own-child", origin.kind == "own_child"),
            ("unverified", origin.transport in ("http", "nats") and not origin.verified),
            ("mode-unknown", policy.receiver == "unknown"),
            ("class", origin.stated_class in words),
            ("default", True),
        )
        if applies
    ]


@pytest.mark.rule("03.6")
@settings(max_examples=200)
@given(cases)
def test_the_first_rung_that_applies_answers_and_says_that_it_did(case: Case) -> None:
    judgement = case.judged()
    first = applying(case)[0]
    if judgement is FULL:
        assert case.facts.unread >= case.policy.max_unread
        assert case.decided().outcome == "accepted"
        assert case.decided().rung == first
    else:
        assert judgement.rung == first
    by_setting = judgement.rung in ("refuse", "setting") and case.policy.setting
    assert judgement.scope == (by_setting.scope if by_setting else "default")


@pytest.mark.rule("03.6")
@settings(max_examples=200)
@given(cases)
def test_what_explain_asks_is_what_judges(case: Case) -> None:
    """Below rung 3 both are one; the cap alone is about this instant and not about this sender."""
    judgement = case.judged()
    if judgement.rung not in ("shape", "settled", "loop-guard", "cap"):
        assert case.decided() is judgement
    assert case.decided().outcome in VERDICTS


# ── what a claim cannot do, and what the guard is asked ──────────────────────────────────────────


@pytest.mark.rule("03.5")
@given(cases, stated, stated)
def test_a_stated_class_never_lifts_what_a_person_decided(case: Case, one: str, other: str) -> None:
    """A setting, a rule: nothing that the sender says about itself changes what they answer."""
    answers = {
        case._replace(origin=stating(word, case.origin)).judged() for word in (one, other, None, "bypassing")
    }
    if case.policy.setting is not None or (case.ruled and case.origin.verified):
        assert len(answers) == 1
    if case.policy.setting is not None and case.policy.setting.value != "accept":
        assert not any(answer.outcome in ("accepted", "full") for answer in answers)


@pytest.mark.rule("03.9")
@given(cases)
def test_the_guard_is_asked_once_and_only_where_nothing_answered_before(case: Case) -> None:
    guard = Guard(case.objection)
    judgement = case.judged(guard)
    assert guard.asked == (0 if judgement.rung in ("shape", "settled") else 1)


@pytest.mark.rule("03.9")
@given(cases, policies, origins, st.booleans())
def test_the_guard_is_asked_and_answered_alike_under_every_setting(
    case: Case, policy: Policy, origin: Origin, ruled: bool
) -> None:
    otherwise = case._replace(policy=policy, origin=origin, ruled=ruled)
    one, other = Guard(case.objection), Guard(case.objection)
    judgements = (case.judged(one), otherwise.judged(other))
    assert one.asked == other.asked
    if case.objection is not None:
        assert judgements[0] is judgements[1]


def test_what_the_guard_raises_is_not_hidden() -> None:
    def broken() -> str | None:
        raise RuntimeError("the guard is broken")

    with pytest.raises(RuntimeError, match="the guard is broken"):
        judge(NEW, QUIET, PEER, False, under("accept"), broken)


# ── words, rows, objects ─────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.6")
def test_every_rung_has_a_sentence_that_a_person_can_look_up() -> None:
    assert tuple(RUNGS) == LADDER
    for sentence in RUNGS.values():
        assert sentence[0].isupper() or sentence.startswith("`crossSessionInbound`")
        assert sentence.endswith(".")
    assert len(set(RUNGS.values())) == len(RUNGS)


@pytest.mark.rule("11.1")
def test_every_answer_leaves_a_row() -> None:
    """What the store takes in it journals itself; the words in the row come from here either way."""
    by_setting = [decide(PEER, False, under(value)) for value in VALUES]
    for answer in (*ANSWERS, *by_setting):
        assert bool(answer.journal) == (answer.outcome not in VERDICTS)
        assert answer.detail
        if answer.outcome != "dropped":
            assert answer.outcome in TRANSITIONS["received"]
        if answer.journal:
            assert answer.journal == answer.outcome
    assert {answer.outcome for answer in (*ANSWERS, *by_setting)} == set(get_args(Outcome))


@given(cases)
def test_judging_makes_no_object(case: Case) -> None:
    judgement = case.judged()
    assert case.judged() is judgement
    if judgement.rung not in ("refuse", "setting"):
        assert any(judgement is answer for answer in ANSWERS)


def test_two_sessions_with_the_same_setting_share_its_answer() -> None:
    assert decide(PEER, False, under("hold")) is decide(OUTSIDER, True, under("hold"))
    scopes = {decide(PEER, False, ASKS._replace(setting=setting("hold", scope))) for scope in SCOPES}
    assert len(scopes) == len(SCOPES)


def test_the_table_of_classes_is_whole() -> None:
    assert set(BY_CLASS) == set(RECEIVERS)
    assert all(None in row for row in BY_CLASS.values())


def test_no_answer_can_be_changed() -> None:
    for field in fields(ACCEPTED):
        with pytest.raises(AttributeError):
            setattr(ACCEPTED, field.name, "other")


# ── what is sent again ───────────────────────────────────────────────────────────────────────────


def test_the_same_id_from_another_sender_is_new() -> None:
    """The record is looked up by sender and id; another's is not a fact of this arrival."""
    records = {("a", "m-1"): Settled(outcome="accepted", body="b1")}
    answers = [
        Case(facts=QUIET._replace(settled=records.get((sender, "m-1")))).judged().outcome
        for sender in ("a", "b")
    ]
    assert answers == ["duplicate", "accepted"]


@pytest.mark.rule("03.8")
def test_rival_V16_a_retry_after_a_lost_answer_does_not_double() -> None:
    """The receiver died between the store and the answer: the store still knows the id."""
    first = Case().judged()
    assert first.settles
    guard = Guard("duplicate")  # the body is its sender's previous one, and the inbox has filled up meanwhile
    known = Facts(session_id=HERE, settled=Settled(outcome="accepted", body="b1"), unread=50)
    again = Case(facts=known).judged(guard)
    assert (again.outcome, again.ack) == ("duplicate", first.ack)
    assert guard.asked == 0


class Inbox:
    """A session round `judge`: what its store would keep, and a guard that knows repeats and bursts."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.rules: set[str] = set()
        self.settled: dict[tuple[str, str], Settled] = {}
        self.taken: list[tuple[str, str, Verdict]] = []
        self.unread = 0
        self.previous: dict[str, str] = {}
        self.tokens = 12
        self.asked = 0

    def arrive(self, origin: Origin, msg_id: str, body: str) -> Judgement:
        sender = origin.identity

        def guard() -> str | None:
            self.asked += 1
            if self.previous.get(sender) == body:
                return "duplicate"
            if self.tokens == 0:
                return "rate-limited"
            self.tokens -= 1
            return None

        judgement = judge(
            Arrival(msg_id=msg_id, body=body),
            Facts(session_id=HERE, settled=self.settled.get((sender, msg_id)), unread=self.unread),
            origin,
            sender in self.rules,
            self.policy,
            guard,
        )
        if judgement.settles:
            verdict = cast("Verdict", judgement.outcome)
            self.settled[sender, msg_id] = Settled(outcome=verdict, body=body)
            self.taken.append((sender, msg_id, verdict))
            self.previous[sender] = body
            self.unread += verdict == "accepted"
        return judgement


SENDERS: dict[str, Origin] = {
    "peer": PEER,
    "outsider": OUTSIDER,
    "child": CHILD,
    "afar": AFAR,
    "signed": replace(AFAR, identity="9a7c-session", verified=True),
}


class Exchange(RuleBasedStateMachine):
    """Senders that try again, reuse ids and state what suits them; a person who changes settings, rules and
    modes. Beside it the same traffic reaches two sessions more: one refuses, one accepts and reads at once.

    What must hold: a pair of sender and id is decided on at most once; nobody who is refused, held or unread too
    long is delivered by trying again; and what the refusing session answers is what the reading one answers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inbox = Inbox(ASKS)
        self.refusing = Inbox(under("refuse"))
        self.reading = Inbox(under("accept"))

    @initialize(cap=st.integers(1, 3), receiver=st.sampled_from(RECEIVERS))
    def open(self, cap: int, receiver: ReceiverClass) -> None:
        self.inbox.policy = Policy(receiver=receiver, setting=None, max_unread=cap)

    @rule(value=st.none() | chosen)
    def set(self, value: InboundSetting | None) -> None:
        self.inbox.policy = self.inbox.policy._replace(setting=value)

    @rule(receiver=st.sampled_from(RECEIVERS))
    def change_mode(self, receiver: ReceiverClass) -> None:
        self.inbox.policy = self.inbox.policy._replace(receiver=receiver)

    @rule(name=st.sampled_from(sorted(SENDERS)), always=st.booleans())
    def approve_always(self, name: str, always: bool) -> None:
        change = self.inbox.rules.add if always else self.inbox.rules.discard
        change(SENDERS[name].identity)

    @rule()
    def read(self) -> None:
        self.inbox.unread = 0

    @rule()
    def time_passes(self) -> None:
        for one in (self.inbox, self.refusing, self.reading):
            one.tokens = 12
            one.previous.clear()

    @rule(
        name=st.sampled_from(sorted(SENDERS)),
        word=stated,
        number=st.integers(0, 5),
        body=st.sampled_from(["b1", "b2", "b3"]),
    )
    def arrive(self, name: str, word: str | None, number: int, body: str) -> None:
        origin, msg_id = stating(word, SENDERS[name]), f"m-{number}"
        key = (origin.identity, msg_id)
        before, unread, asked = self.inbox.settled.get(key), self.inbox.unread, self.inbox.asked
        judgement = self.inbox.arrive(origin, msg_id, body)
        if before is not None:
            assert (judgement.outcome, judgement.ack) == ("duplicate", "queued")
            assert ("id-reuse" in judgement.detail) == (before.body != body)
            assert self.inbox.asked == asked
        else:
            assert self.inbox.asked == asked + 1
            self.judged_anew(judgement, origin, unread)
        refused, accepted = (one.arrive(origin, msg_id, body) for one in (self.refusing, self.reading))
        self.reading.unread = 0
        assert (refused.ack, refused.reason, refused.settles) == (
            accepted.ack,
            accepted.reason,
            accepted.settles,
        )
        assert self.refusing.asked == self.reading.asked

    def judged_anew(self, judgement: Judgement, origin: Origin, unread: int) -> None:
        """What may come of a message that was not decided on before."""
        policy = self.inbox.policy
        value: Literal["accept", "hold", "refuse"] | None = policy.setting and policy.setting.value
        if judgement.rung == "loop-guard":
            assert judgement.ack == "dropped"
        elif value == "refuse":
            assert (judgement.outcome, judgement.ack) == ("refused", "queued")
        elif value == "hold":
            assert (judgement.outcome, judgement.ack) == ("held", "queued")
        else:
            assert judgement.outcome in ("accepted", "held", "full")
        if judgement.outcome == "accepted":
            assert unread < policy.max_unread
            if value is None and origin.transport == "http" and not origin.verified:
                pytest.fail("an unsigned message from beyond this machine came in by default")

    @invariant()
    def an_id_is_decided_on_once_for_each_sender(self) -> None:
        for one in (self.inbox, self.refusing, self.reading):
            keys = [(sender, msg_id) for sender, msg_id, _ in one.taken]
            assert len(keys) == len(set(keys))

    @invariant()
    def the_refusing_session_has_taken_in_nothing_but_knows_as_much(self) -> None:
        assert {verdict for *_, verdict in self.refusing.taken} <= {"refused"}
        assert [key for *key, _ in self.refusing.taken] == [key for *key, _ in self.reading.taken]

    @invariant()
    def the_unread_stay_within_the_limit(self) -> None:
        assert self.inbox.unread <= self.inbox.policy.max_unread


@pytest.mark.rule("03.8", "03.10", "11.5")
def test_whatever_is_sent_again_has_one_effect_and_a_refusal_does_not_show() -> None:
    run_state_machine_as_test(Exchange, settings=settings(max_examples=100, stateful_step_count=40))  # pyright: ignore[reportUnknownMemberType]
