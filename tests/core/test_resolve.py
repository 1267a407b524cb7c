"""Who is meant: every rung, every refusal, and the pins of a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from postroom.core.address import identity_hash, normal_form, ref_of, shown, split_ref
from postroom.core.message import Pin, Refusal
from postroom.core.resolve import Candidate, Ended, Index, Pins, Resolved, Unchecked, resolve

BUSY = (Unchecked(place="realm home", reason="no server"),)

# Two identities whose hashes share their first six digits, found by search.
TWINS = ("i-826", "i-971")


def session(identity: str, name: str, **facts: object) -> Candidate:
    return replace(Candidate(identity=identity, name=name, ref=ref_of(identity)), **facts)  # type: ignore[arg-type]


def agent(identity: str, name: str, **facts: object) -> Candidate:
    return session(identity, name, **{"kind": "agent", "near": True, **facts})


def teammate(identity: str, name: str, **facts: object) -> Candidate:
    return agent(identity, name, kind="teammate", **facts)


def far(identity: str, name: str, **facts: object) -> Candidate:
    return session(identity, name, local=False, where="box2", **facts)


def taken(answer: Resolved | Refusal) -> Resolved:
    assert isinstance(answer, Resolved), answer
    return answer


def refused(answer: Resolved | Refusal, code: str) -> Refusal:
    assert isinstance(answer, Refusal), answer
    assert answer.code == code
    return answer


def who(answer: Resolved | Refusal) -> str:
    return taken(answer).candidate.identity


def named(answer: Refusal) -> list[str]:
    return [near.name for near in answer.candidates]


def pins_of(**meant: str) -> Pins:
    return Pins((form, Pin(name=form, identity=identity)) for form, identity in meant.items())


# ── rung 0: what an envelope showed ──────────────────────────────────────────────────────────────

UDS = "uds:/run/user/1000/claude/77.sock"


@pytest.mark.rule("02.8")
def test_a_from_value_means_the_identity_of_its_message_and_nobody_else() -> None:
    a = session("a", "renamed", address="uds:/new/place.sock")
    index = Index([a, session("c", "api")])
    value = shown("api", ref_of("a"))
    answer = taken(resolve(value, index, received={value: "a"}))
    assert answer.candidate is a  # its address of today, not one of then
    assert answer.renames_pin
    assert answer.warnings == ("api is now called renamed.",)


@pytest.mark.rule("02.8")
def test_a_neighbours_address_means_whoever_wrote_from_it() -> None:
    one = session("pid:7", "claude", address="uds:/tmp/cc-socks/new.sock")
    answer = taken(resolve(f" {UDS} ", Index([one]), received={UDS: "pid:7"}))
    assert answer == Resolved(one)
    assert Pins().made(UDS, answer) == ()


@pytest.mark.rule("02.8")
def test_an_address_that_came_with_no_message_is_nobodys() -> None:
    index = Index([session("s", "claude", address=UDS)])
    answer = refused(resolve(UDS, index), "not_found")
    assert "no message that was received here" in answer.message
    assert "/run" not in str(answer)


@pytest.mark.rule("02.8")
def test_a_from_value_that_was_not_received_here_goes_down_the_ladder() -> None:
    index = Index([session("a", "api")])
    assert who(resolve(shown("api", ref_of("a")), index, received={"other [3fa9c1]": "b"})) == "a"
    # A name that merely begins like an address is a name.
    odd = Index([session("a", "uds:x")])
    assert who(resolve(shown("uds:x", ref_of("a")), odd)) == "a"


@pytest.mark.rule("02.8", "02.13")
def test_report_6_a_reply_reaches_the_sender_or_fails_aloud() -> None:
    """Two sessions share a folder and a name; the reply goes to the one that wrote, never to the other."""
    a, c = session("a", "app-3f", where="/srv/app"), session("c", "app-3f", where="/srv/app")
    value = shown("app-3f", ref_of("a"))
    received = {value: "a"}
    assert who(resolve(value, Index([a, c]), received=received)) == "a"
    gone = refused(resolve(value, Index([c]), received=received, ended=lambda key: None), "not_found")
    assert "cannot be found any more" in gone.message
    when = refused(
        resolve(
            value, Index([c]), received=received, ended=lambda key: Ended("app-3f", 0) if key == "a" else None
        ),
        "not_found",
    )
    assert "app-3f has ended; its last sign of life was at 1970-01-01T00:00:00Z." in when.message
    assert refused(resolve("app-3f", Index([a, c])), "ambiguous").more == 0


@pytest.mark.rule("02.8")
@pytest.mark.parametrize("value", [UDS, "claude [3fa9c1]", "bridge:session_01"])
def test_report_7_a_from_value_of_any_namespace_is_accepted(value: str) -> None:
    index = Index([session("n", "claude"), session("other", "bridge:session_01")])
    for pins in (None, pins_of(claude="elsewhere")):
        assert who(resolve(value, index, received={value: "n"}, pins=pins)) == "n"


def test_an_observer_gets_no_answer_to_its_report() -> None:
    index = Index([agent("o", "watcher", observer=True)])
    value = shown("watcher", ref_of("o"))
    refused(resolve(value, index, received={value: "o"}), "not_found")
    refused(resolve("watcher", index), "not_found")
    refused(resolve("o", index), "not_found")
    refused(resolve(value, index), "stale_ref")


def test_a_plain_name_that_was_received_as_a_from_value_means_its_sender() -> None:
    index = Index([session("a", "api"), session("b", "other")])
    assert who(resolve("api", index, received={"api": "b"})) == "b"


# ── rungs 1 and 2: this session alone ────────────────────────────────────────────────────────────


@pytest.mark.rule("02.9")
def test_main_is_this_sessions_main_conversation() -> None:
    main = session("me", "main", near=True)
    assert who(resolve("main", Index([main, session("s", "Main")]), caller="a1")) == "me"
    assert who(resolve("main", Index([main]), caller="a1")) == "me"
    for to in ("main", "MAIN"):
        answer = refused(resolve(to, Index([session("s", "Main"), session("t", "mainframe")])), "not_found")
        assert "no main conversation" in answer.message
    taken_name = session("s", "Main")
    assert who(resolve(shown("Main", ref_of("s")), Index([taken_name]))) == "s"


@pytest.mark.rule("02.9")
def test_a_raw_agent_id_goes_before_every_name() -> None:
    index = Index([agent("a1", "bob"), agent("x", "a1"), session("s", "A1")])
    answer = taken(resolve("a1", index))
    assert answer.candidate.identity == "a1"
    assert Pins().made("a1", answer) == ()  # an id says nothing about a name
    assert who(resolve("A1", index)) == "x"  # and is compared exactly
    # Only agents are written to by their id.
    refused(resolve("s", Index([session("s", "api")])), "not_found")
    refused(resolve("t/1", Index([teammate("t/1", "ann")])), "not_found")
    refused(resolve("x", Index([session("x", "ann", kind="agent")])), "not_found")


@pytest.mark.rule("02.9")
def test_the_exact_name_of_a_live_agent_goes_before_a_teammates_and_a_stopped_agents() -> None:
    everybody = [
        agent("live", "bob"),
        agent("stopped", "bob", live=False),
        teammate("mate", "bob"),
        agent("upper", "Bob"),
    ]
    assert who(resolve("bob", Index(everybody))) == "live"
    assert who(resolve("bob", Index(everybody[1:]))) == "mate"
    assert who(resolve("Bob", Index(everybody))) == "upper"
    refused(resolve("bob", Index([everybody[1], everybody[3]])), "ambiguous")
    refused(resolve("BOB", Index(everybody)), "ambiguous")


@pytest.mark.rule("02.9", "02.10")
def test_report_5_a_stopped_agent_is_the_same_by_name_and_by_id() -> None:
    index = Index([agent("a-7f", "builder", live=False), session("s", "other")])
    assert who(resolve("builder", index)) == who(resolve("a-7f", index)) == "a-7f"


@pytest.mark.rule("02.10")
def test_the_normal_form_inside_this_session_is_enough_if_one_has_it() -> None:
    index = Index([agent("a", "Api Worker"), session("s", "api-worker")])
    assert who(resolve("api_worker", index)) == "a"
    two = Index([agent("a", "Api Worker"), teammate("t", "api.worker"), session("s", "api-worker")])
    answer = refused(resolve("api_worker", two), "ambiguous")
    assert named(answer) == ["Api Worker", "api.worker", "api-worker"]


@pytest.mark.rule("02.15")
def test_a_namesake_beyond_is_named_in_a_warning() -> None:
    index = Index([agent("a", "bob"), session("s", "Bob", where="/srv/x")])
    answer = taken(resolve("bob", index))
    assert answer.candidate.identity == "a"
    assert answer.warnings == (
        f"bob inside this session is taken; Bob [{ref_of('s')}] (session, /srv/x) has that name too.",
    )
    assert taken(resolve("bob", Index([agent("a", "bob")]))).warnings == ()
    assert taken(resolve("bob", Index([agent("a", "bob"), session("me", "bob", own=True)]))).warnings == ()
    assert taken(resolve("bob", Index([agent("a", "bob"), agent("z", "bob", live=False)]))).warnings == ()


@pytest.mark.rule("02.14", "02.15")
def test_inside_this_session_an_unchecked_place_does_not_matter() -> None:
    for to in ("bob", "a-1"):
        answer = taken(resolve(to, Index([agent("a-1", "bob")], BUSY)))
        assert answer.warnings == ()


# ── rung 3: name [ref] ───────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.11")
def test_a_ref_selects_among_namesakes() -> None:
    index = Index([session("a", "api"), session("b", "API"), far("c", "api")])
    for identity in "abc":
        for to in (shown("api", ref_of(identity)), f"Api [{ref_of(identity, 12).upper()}]"):
            answer = taken(resolve(to, index))
            assert answer.candidate.identity == identity
            assert answer.renames_pin
            assert answer.warnings == ()


@pytest.mark.rule("02.11")
def test_a_ref_whose_holder_is_called_otherwise_is_stale() -> None:
    index = Index([session("a", "worker", where="/srv/w"), session("b", "api")])
    answer = refused(resolve(shown("api", ref_of("a")), index), "stale_ref")
    assert f"now belongs to worker [{ref_of('a')}], which is not called api" in answer.message
    assert f"api [{ref_of('b')}]" in answer.hint
    assert named(answer) == ["worker", "api"]
    assert answer.more == 0


@pytest.mark.rule("02.11")
def test_a_ref_that_nobody_has_is_stale() -> None:
    alone = refused(resolve("api [0000000]", Index([session("a", "worker")])), "stale_ref")
    assert alone.message == "Nobody has the ref [0000000] now."
    assert alone.candidates == ()
    assert alone.hint
    ended = refused(resolve("api [000000]", Index(), ended=lambda key: Ended(key, 1_000)), "stale_ref")
    assert (
        ended.message
        == "Nobody has the ref [000000] now. api has ended; its last sign of life was at 1970-01-01T00:00:01Z."
    )
    crowd = Index(session(str(number), "api") for number in range(5))
    many = refused(resolve("api [000000]", crowd), "stale_ref")
    assert (len(many.candidates), many.more) == (3, 2)


@pytest.mark.rule("02.11", "02.4")
def test_a_former_name_with_its_ref_still_selects() -> None:
    index = Index([session("a", "fresh", former=("old",)), session("b", "old")])
    answer = taken(resolve(shown("Old", ref_of("a")), index))
    assert answer.candidate.identity == "a"
    assert answer.warnings == ("Old is now called fresh.",)


@pytest.mark.rule("02.14")
def test_a_bare_ref_means_whoever_has_it() -> None:
    index = Index([session("a", "api")])
    answer = taken(resolve(f"[{ref_of('a')}]", index))
    assert answer.candidate.identity == "a"
    assert answer.warnings == ()
    assert [form for form, _ in Pins().made(f"[{ref_of('a')}]", answer)] == ["api"]


@pytest.mark.rule("02.14")
def test_a_short_ref_that_two_have_is_ambiguous_and_longer_ones_are_offered() -> None:
    index = Index(session(identity, "api") for identity in TWINS)
    answer = refused(resolve(shown("api", ref_of(TWINS[0])), index), "ambiguous")
    assert len(answer.candidates) == 2
    for near in answer.candidates:
        assert len(near.ref) > 6
        assert identity_hash(who(resolve(shown(near.name, near.ref), index))).startswith(near.ref)


@pytest.mark.rule("02.14")
def test_a_ref_needs_six_digits() -> None:
    index = Index([session("a", "api")])
    refused(resolve(f"api [{ref_of('a')[:5]}]", index), "not_found")


@pytest.mark.rule("02.14")
def test_a_ref_never_meets_an_unchecked_place() -> None:
    index = Index([session("a", "api", former=("old",)), far("b", "far")], BUSY)
    assert taken(resolve(shown("api", ref_of("a")), index)).warnings == ()
    assert taken(resolve(shown("far", ref_of("b")), index)).warnings == ()
    value = shown("far", ref_of("b"))
    assert taken(resolve(value, index, received={value: "b"})).warnings == ()


def test_a_ref_of_the_caller_answers_the_caller_where_nobody_else_has_it() -> None:
    own, other = (session(identity, "api", own=identity == TWINS[0]) for identity in TWINS)
    to = shown("api", ref_of(TWINS[0]))
    assert who(resolve(to, Index([own]))) == TWINS[0]
    assert who(resolve(to, Index([own, other]))) == TWINS[1]


# ── rung 4: everybody ────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.12")
def test_a_name_goes_before_a_former_name_and_that_before_a_prefix() -> None:
    exact, old, longer = session("n", "rev"), session("f", "now", former=("Rev",)), session("p", "reviewer")
    assert who(resolve("REV", Index([exact, old, longer]))) == "n"
    by_former = taken(resolve("REV", Index([old, longer])))
    assert by_former.candidate.identity == "f"
    assert by_former.warnings == ("REV is now called now.",)
    by_prefix = taken(resolve("REV", Index([longer])))
    assert by_prefix.candidate.identity == "p"
    assert by_prefix.warnings == ("Taken as reviewer, whose name begins so.",)


@pytest.mark.rule("02.12")
def test_a_prefix_has_three_characters_or_more() -> None:
    index = Index([session("p", "reviewer"), session("q", "9a8")])
    assert who(resolve("r-e-v", Index([session("p", "r-e-view")]))) == "p"
    assert who(resolve("rev", index)) == "p"
    refused(resolve("re", index), "not_found")
    refused(resolve("9a", index), "not_found")


@pytest.mark.rule("02.12", "02.14")
def test_a_prefix_of_several_is_ambiguous() -> None:
    index = Index(session(f"s{number}", f"worker-{number}") for number in range(5))
    answer = refused(resolve("work", index), "ambiguous")
    assert answer.message == "5 candidates answer to 'work'."
    assert named(answer) == ["worker-0", "worker-1", "worker-2"]
    assert answer.more == 2
    assert "and 2 more" in answer.hint


@pytest.mark.rule("02.12", "02.17")
def test_a_prefix_is_pinned_under_the_full_name_too() -> None:
    pins = Pins()
    index = Index([session("p", "reviewer-A")])
    made = pins.made("Rev", taken(resolve("Rev", index, pins=pins)))
    pin = Pin(name="reviewer-A", identity="p")
    assert made == pins.items() == (("rev", pin), ("reviewer-a", pin))


@pytest.mark.rule("02.14")
def test_rival_V7_two_of_one_name_are_refused_with_refs_best_match_first() -> None:
    index = Index(
        [
            far("d", "api"),
            session("a", "api", live=False),
            session("c", "API", where="/srv/c"),
            session("b", "api", where="/srv/b\n\x1b[2J"),
        ]
    )
    answer = refused(resolve("api", index), "ambiguous")
    assert [near.ref for near in answer.candidates] == [ref_of(identity) for identity in "bad"]
    assert answer.more == 1
    assert f"api [{ref_of('b')}] (session, /srv/b ?[2J)" in answer.hint
    assert f"api [{ref_of('d')}] (session, box2)" in answer.hint
    for near in answer.candidates:
        assert ref_of(who(resolve(shown(near.name, near.ref), index))) == near.ref


@pytest.mark.rule("02.14")
def test_what_could_not_be_checked_is_named_by_every_refusal_of_a_name() -> None:
    index = Index([session("a", "api"), session("b", "api")], BUSY)
    assert "Could not check realm home (no server)." in refused(resolve("api", index), "ambiguous").message
    assert "Could not check realm home (no server)." in refused(resolve("zzz", index), "not_found").message


@pytest.mark.rule("01.20")
def test_the_caller_counts_only_when_nobody_else_matches() -> None:
    own = session("me", "rev", own=True, former=("was",))
    assert who(resolve("rev", Index([own]))) == "me"
    assert who(resolve("was", Index([own]))) == "me"
    assert who(resolve("rev", Index([own, session("s", "Rev")]))) == "s"
    assert who(resolve("rev", Index([own, session("s", "reviewer")]))) == "s"
    assert who(resolve("was", Index([own, session("s", "wasp")]))) == "s"
    assert who(resolve("rev", Index([session("o", "revenue", own=True), session("s", "review")]))) == "s"


@pytest.mark.rule("01.20")
def test_an_agent_that_calls_is_not_the_one_it_means() -> None:
    index = Index([agent("a1", "bob"), session("s", "Bob"), agent("a2", "reviewer")])
    assert who(resolve("bob", index)) == "a1"
    assert who(resolve("bob", index, caller="a1")) == "s"
    assert who(resolve("reviewer", index, caller="a2")) == "a2"
    assert who(resolve("rev", index, caller="a2")) == "a2"
    twice = Index([session("s", "bob", own=True), agent("a1", "bob")])
    assert who(resolve("bob", twice, caller="a1")) == "a1"
    alone = Index([agent("a1", "bob"), session("s", "bobby")])
    for to in ("bob", "Bob", "BOB"):
        assert who(resolve(to, alone, caller="a1")) == "s"
        assert who(resolve(to, alone, caller="s")) == "a1"
    assert (
        who(resolve("boB", Index([agent("a1", "bobby"), agent("a2", "bob", former=("x",))]), caller="a2"))
        == "a1"
    )
    other_word = Index([agent("a1", "bobby"), session("s", "zed", former=("bobb",))])
    assert who(resolve("bobb", other_word, caller="a1")) == "s"


# ── places that could not be checked ─────────────────────────────────────────────────────────────


@pytest.mark.rule("02.14")
def test_an_exact_name_on_this_machine_is_taken_with_a_warning() -> None:
    answer = taken(resolve("API", Index([session("a", "api")], BUSY)))
    assert answer.candidate.identity == "a"
    assert answer.warnings == (
        "Could not check realm home (no server); somebody there may have the same name.",
    )


@pytest.mark.rule("02.14")
@pytest.mark.parametrize(
    ("to", "candidate"),
    [
        ("api", far("a", "api")),
        ("old", session("a", "api", former=("old",))),
        ("apia", session("a", "apiary")),
    ],
)
def test_any_other_match_of_a_name_alone_is_to_be_repeated_with_its_ref(
    to: str, candidate: Candidate
) -> None:
    index = Index([candidate], (*BUSY, Unchecked(place="gateway", reason="timed out")))
    answer = refused(resolve(to, index), "partial_index")
    assert "realm home (no server), gateway (timed out)" in answer.message
    assert f"repeat with {shown(candidate.name, ref_of('a'))}" in answer.hint
    assert named(answer) == [candidate.name]
    pinned = taken(resolve(to, index, pins=Pins([(normal_form(to), Pin(name="x", identity="a"))])))
    assert "Could not check" in pinned.warnings[0]
    by_full_name = Pins([(normal_form(candidate.name), Pin(name="x", identity="a"))])
    assert who(resolve(to, index, pins=by_full_name)) == "a"
    refused(resolve(to, index, pins=pins_of(other="a")), "partial_index")


# ── nobody ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.14")
def test_report_1_a_mistyped_name_is_not_found_and_near_ones_are_offered() -> None:
    index = Index([session("a", "engineer"), session("b", "designer")])
    answer = refused(resolve("enginer", index), "not_found")
    assert answer.message == "Nobody answers to 'enginer'."
    assert answer.hint == f"Did you mean engineer [{ref_of('a')}]?"
    assert named(answer) == ["engineer"]


@pytest.mark.rule("02.14")
def test_near_names_come_nearest_first_and_three_at_most() -> None:
    names = ["reviewer-b", "reviewer", "revuewer", "reviewers", "zebra"]
    index = Index(session(name, name) for name in names)
    answer = refused(resolve("Revewer", index), "not_found")
    assert named(answer) == ["reviewer", "revuewer", "reviewers"]
    assert answer.more == 0


@pytest.mark.rule("02.14")
def test_report_2_a_type_is_a_hint_and_never_a_name() -> None:
    index = Index([agent("a", "alice", type="x-theorist"), agent("b", "bob", type="y-theorist")])
    answer = refused(resolve("y-theorist", index, caller="a"), "not_found")
    assert "did you mean bob (type y-theorist)?" in answer.hint
    assert [(near.name, near.kind, near.where) for near in answer.candidates] == [
        ("bob", "agent", "type y-theorist")
    ]
    crowd = Index(agent(f"a{number}", f"n{number}", type="Builder") for number in range(5))
    many = refused(resolve("builder", crowd), "not_found")
    assert (len(many.candidates), many.more) == (3, 2)
    assert "n0 (type Builder) or n1 (type Builder) or n2 (type Builder)" in many.hint


@pytest.mark.rule("02.14")
@pytest.mark.parametrize(
    ("to", "rule_named"),
    [
        ("../../x", "holds none of"),
        ("nobody", ""),
        ("😀", "U+1F600"),
        ("a\x1bb", "control"),
        ("team-lead", ""),
        ("---", "starts with"),
    ],
)
def test_rival_V6_an_unknown_name_is_an_error_and_stores_nothing(to: str, rule_named: str) -> None:
    index, pins = Index([session("s", "api")]), Pins()
    answer = refused(resolve(to, index, pins=pins), "not_found")
    rule_said, _, hint = answer.hint.rpartition(
        "List the agents (`postroom list`) to see who can be written to."
    )
    assert hint == ""
    assert rule_named in rule_said
    assert bool(rule_named) is bool(rule_said)
    assert "../" not in str(answer)
    assert str(answer).isprintable()
    assert (len(index), len(pins)) == (1, 0)


@pytest.mark.rule("02.5", "02.12")
def test_rival_V6_the_other_case_is_the_same_name() -> None:
    assert who(resolve("API", Index([session("s", "api")]))) == "s"


@pytest.mark.rule("02.13")
def test_a_session_that_ended_is_not_found_and_the_sentence_says_when() -> None:
    answer = refused(resolve("api", Index(), ended=lambda key: Ended("api", 1_764_497_702_000)), "not_found")
    assert (
        answer.message
        == "Nobody answers to 'api'. api has ended; its last sign of life was at 2025-11-30T10:15:02Z."
    )


# ── one identity, several names ──────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.4")
def test_report_8_a_session_answers_to_its_name_and_to_its_former_ones() -> None:
    index = Index([session("s", "canonical", former=("first", "Second One"))])
    for to in ("canonical", "first", "second_one", shown("first", ref_of("s"))):
        assert who(resolve(to, index)) == "s"
    assert taken(resolve("first", index)).warnings == ("first is now called canonical.",)
    index.add(session("t", "first"))
    assert who(resolve("first", index)) == "t"  # until another takes it


@pytest.mark.rule("02.6")
def test_a_name_that_deceives_the_eye_is_taken_with_a_warning() -> None:
    index = Index([session("c", "сосо"), session("l", "coco"), session("m", "p\u0430ypal")])
    assert "only looks like coco" in taken(resolve("сосо", index)).warnings[0]
    assert taken(resolve("coco", index)).warnings == ()
    assert "different scripts" in taken(resolve("p\u0430ypal", index)).warnings[0]
    assert "only looks like coco" in taken(resolve(shown("сосо", ref_of("c")), index)).warnings[0]
    assert "only looks like coco" in taken(resolve(UDS, index, received={UDS: "c"})).warnings[0]
    inner = Index([agent("a", "сосо"), agent("b", "coco")])
    assert "only looks like coco" in taken(resolve("a", inner)).warnings[0]
    index.remove("l")
    assert taken(resolve("сосо", index)).warnings == ()


@pytest.mark.rule("02.14")
def test_a_session_seen_here_and_beyond_is_answered_as_the_one_here() -> None:
    index = Index([session("s1", "api"), far("s1+key", "api", session="s1")])
    pins = Pins([("api", Pin(name="api", identity="s1+key"))])
    for answer in (resolve("api", index), resolve("api", index, pins=pins)):
        assert who(answer) == "s1"
    assert who(resolve(UDS, index, received={UDS: "s1+key"})) == "s1"


# ── pins ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.17")
def test_a_plain_send_pins_the_name_to_the_identity() -> None:
    pins = Pins()
    index = Index([session("a", "Api Worker"), agent("b", "bob")])
    for to, form, identity in (("api_worker", "api-worker", "a"), ("bob", "bob", "b")):
        answer = taken(resolve(to, index, pins=pins))
        pin = Pin(name=answer.candidate.name, identity=identity)
        assert pins.made(to, answer) == ((form, pin),)
        assert pins.judge(form) == pin
        assert resolve(to, index, pins=pins) == answer
    assert len(pins) == 2
    assert pins.judge("nobody", "bob") == Pin(name="bob", identity="b")
    assert pins.judge("nobody") is None
    assert Pins(pins.items()).items() == pins.items()


@pytest.mark.rule("02.17")
def test_a_teammate_is_pinned_only_where_it_was_selected_by_its_ref() -> None:
    pins = pins_of(ann="s")
    index = Index([teammate("t", "ann"), session("s", "ann")])
    assert Pins().made("ann", taken(resolve("ann", index))) == ()
    to = shown("ann", ref_of("t"))
    pins.made(to, taken(resolve(to, index, pins=pins)))
    assert who(resolve("ann", index, pins=pins)) == "t"


@pytest.mark.rule("02.18")
def test_a_pinned_name_that_comes_to_another_identity_is_refused() -> None:
    pins = pins_of(api="a")
    index = Index([session("b", "api", where="/srv/b"), session("a", "api-old", where="/srv/a")])
    answer = refused(resolve("API", index, pins=pins), "pin_mismatch")
    old, new = shown("api-old", ref_of("a")), shown("api", ref_of("b"))
    assert answer.message == (
        f"In this conversation 'API' meant {old}; now {new} (session, /srv/b) answers to it."
    )
    assert answer.hint == f"Write to {new} if the new one is meant, and for the one meant before {old}."
    assert named(answer) == ["api", "api-old"]
    explicit = taken(resolve(new, index, pins=pins))
    assert explicit.candidate.identity == "b"
    assert pins.items() == pins_of(api="a").items()  # only a send that succeeded moves it
    assert pins.made(new, explicit) == (("api", Pin(name="api", identity="b")),)
    assert who(resolve("API", index, pins=pins)) == "b"


@pytest.mark.rule("02.18")
@pytest.mark.parametrize(
    ("to", "candidates"),
    [
        ("api", [agent("b", "api"), session("a", "api")]),  # an agent of that name was started here
        ("api", [session("b", "api-2")]),  # the prefix now means somebody else
        ("api", [session("b", "other", former=("api",))]),
        ("ap-i", [session("b", "ap-i-x")]),
    ],
)
def test_every_way_of_coming_to_another_identity_counts(to: str, candidates: Sequence[Candidate]) -> None:
    pins = Pins([(normal_form(to), Pin(name=to, identity="a"))])
    refused(resolve(to, Index(candidates), pins=pins), "pin_mismatch")
    assert who(resolve(to, Index(candidates))) == "b"


@pytest.mark.rule("02.18")
def test_a_prefix_is_held_against_the_pin_of_the_full_name() -> None:
    index = Index([session("b", "reviewer"), session("a", "elsewhere")])
    refused(resolve("rev", index, pins=pins_of(reviewer="a")), "pin_mismatch")
    assert who(resolve("rev", index, pins=pins_of(rev="b", reviewer="a"))) == "b"
    pins = pins_of(rev="b", reviewer="a")
    pins.made("rev", taken(resolve("rev", index, pins=pins)))
    assert pins.judge("reviewer") == Pin(name="reviewer", identity="a")  # a plain send moves no pin


@pytest.mark.rule("02.19")
def test_the_pinned_one_of_several_is_taken_and_the_others_are_named() -> None:
    index = Index(
        [session("a", "api", where="/srv/a"), session("b", "api", where="/srv/b"), session("c", "api-x")]
    )
    answer = taken(resolve("api", index, pins=pins_of(api="b")))
    assert answer.candidate.identity == "b"
    assert answer.warnings == (
        f"'api' is taken as before in this conversation; it could also be api [{ref_of('a')}] (session, /srv/a).",
    )
    refused(resolve("api", index, pins=pins_of(api="z")), "ambiguous")
    refused(resolve("api", index, pins=Pins()), "ambiguous")  # another conversation has no pins
    assert (
        who(resolve("apix", Index([session("a", "apix-1"), session("b", "apix-2")]), pins=pins_of(apix="b")))
        == "b"
    )


@pytest.mark.rule("02.20")
def test_a_pin_whose_target_has_ended_blocks_only_when_somebody_else_answers() -> None:
    pins = pins_of(api="gone")
    nobody = refused(resolve("api", Index([session("z", "zebra")]), pins=pins), "not_found")
    assert nobody.message == "Nobody answers to 'api'. api, whom it meant here, has ended."
    when = refused(
        resolve("api", Index(), pins=pins, ended=lambda key: Ended("api", 0) if key == "gone" else None),
        "not_found",
    )
    assert (
        when.message
        == "Nobody answers to 'api'. api has ended; its last sign of life was at 1970-01-01T00:00:00Z."
    )
    index = Index([session("b", "api")])
    for ended, sentence in (
        (None, "The one meant before has ended."),
        (Ended("api", 0), "api has ended"),
    ):
        answer = refused(resolve("api", index, pins=pins, ended=lambda key: ended), "pin_mismatch")  # noqa: B023
        assert f"meant {shown('api', ref_of('gone'))};" in answer.message
        assert sentence in answer.message
        assert answer.hint == f"Write to {shown('api', ref_of('b'))} if the new one is meant."
        assert named(answer) == ["api"]


def test_a_pin_to_one_that_became_an_observer_is_as_good_as_ended() -> None:
    watcher = agent("o", "watcher", observer=True)
    refused(resolve("watch", Index([watcher]), pins=pins_of(watch="o")), "not_found")
    answer = refused(
        resolve("watch", Index([watcher, session("s", "watch")]), pins=pins_of(watch="o")), "pin_mismatch"
    )
    assert named(answer) == ["watch"]


@pytest.mark.rule("02.4", "02.17")
def test_a_pin_outlives_a_renaming() -> None:
    pins = pins_of(old="a")
    for former in (("old",), ()):
        answer = taken(resolve("old", Index([session("a", "fresh", former=former)]), pins=pins))
        assert answer.candidate.identity == "a"
        assert answer.warnings == ("old is now called fresh.",)


@pytest.mark.rule("02.17")
def test_a_send_confirms_its_pin_and_brings_it_up_to_date() -> None:
    pins = pins_of(old="a", api="s1+key")
    renamed = Index([session("a", "fresh", former=("old",))])
    pin = Pin(name="fresh", identity="a")
    for _ in range(2):
        assert pins.made("old", taken(resolve("old", renamed, pins=pins))) == (("old", pin), ("fresh", pin))
    both = Index([session("s1", "api"), far("s1+key", "api", session="s1")])
    assert pins.made("api", taken(resolve("api", both, pins=pins))) == (
        ("api", Pin(name="api", identity="s1")),
    )
    # A session whose name is its id was addressed by its name.
    assert len(Pins().made("s", Resolved(session("s", "s")))) == 1


@pytest.mark.rule("02.17")
def test_pins_come_back_from_a_transcript_in_its_order() -> None:
    live = Pins()
    index = Index(
        [
            session("a", "api"),
            session("b", "api"),
            session("r", "reviewer"),
            session("n", "new", former=("old",)),
        ]
    )
    transcript: list[tuple[str, Pin]] = []
    for to in (
        shown("api", ref_of("a")),
        "api",
        shown("api", ref_of("b")),
        "rev",
        "Old",
        f"[{ref_of('a')}]",
        "api",
    ):
        answer = taken(resolve(to, index, pins=live))
        for _, pin in live.made(to, answer)[-1:]:
            transcript.append((to, pin))
    again = Pins()
    for to, pin in transcript:
        again.restore(to, pin)
    assert again.items() == live.items()
    assert {form: pin.identity for form, pin in again.items()} == {
        "api": "a",
        "rev": "r",
        "reviewer": "r",
        "old": "n",
        "new": "n",
    }


class Conversation(RuleBasedStateMachine):
    """Sends in one conversation while sessions come, go, rename and take each other's names."""

    names = st.sampled_from(["api", "API", "api-2", "worker", "work"])
    identities = st.sampled_from(["a", "b", "c"])

    def __init__(self) -> None:
        super().__init__()
        self.index = Index()
        self.pins = Pins()
        self.meant: dict[str, str] = {}
        self.transcript: list[tuple[str, Pin]] = []

    @rule(identity=identities, name=names)
    def open_or_rename(self, identity: str, name: str) -> None:
        before = self.index.get(identity)
        former = () if before is None else tuple({*before.former, before.name} - {name})
        self.index.add(session(identity, name, former=former))

    @rule(identity=identities)
    def end(self, identity: str) -> None:
        self.index.remove(identity)

    @rule(to=names)
    def write(self, to: str) -> None:
        answer = resolve(to, self.index, pins=self.pins)
        form = normal_form(to)
        pinned = self.meant.get(form)
        if isinstance(answer, Refusal):
            if answer.code == "pin_mismatch":
                assert answer.candidates[0].ref not in (pinned and ref_of(pinned), "")
            else:
                assert pinned is None or self.index.get(pinned) is None or answer.code == "ambiguous"
            return
        identity = answer.candidate.identity
        assert pinned in (None, identity)  # a pinned name never comes to anybody else
        full = normal_form(answer.candidate.name)
        if pinned is None:
            assert self.meant.get(full) in (None, identity)
        self.sent(to, answer)

    @rule(identity=identities)
    def write_explicitly(self, identity: str) -> None:
        candidate = self.index.get(identity)
        if candidate is None:
            return
        to = shown(candidate.name, self.index.ref(candidate))
        answer = taken(resolve(to, self.index, pins=self.pins))
        assert answer.candidate is candidate  # whatever is pinned
        self.sent(to, answer)

    def sent(self, to: str, answer: Resolved) -> None:
        made = self.pins.made(to, answer)
        self.meant[normal_form((split_ref(to) or (to, ""))[0])] = answer.candidate.identity
        self.meant.setdefault(normal_form(answer.candidate.name), answer.candidate.identity)
        if made:
            self.transcript.append((to, made[-1][1]))

    @invariant()
    def pins_are_what_was_meant(self) -> None:
        assert {form: pin.identity for form, pin in self.pins.items()} == self.meant

    @invariant()
    def the_transcript_gives_the_same_pins(self) -> None:
        again = Pins()
        for to, pin in self.transcript:
            again.restore(to, pin)
        assert {form: pin.identity for form, pin in again.items()} == self.meant


TestConversation = pytest.mark.rule("02.17", "02.18")(Conversation.TestCase)
TestConversation.settings = settings(max_examples=60, stateful_step_count=25)


# ── against a slow and obvious model ─────────────────────────────────────────────────────────────

NAMES = ["api", "API", "api-2", "apiary", "a1", "A1", "main", "-", "b [c]", "сосо", "coco"]
roster = st.lists(
    st.builds(
        Candidate,
        identity=st.sampled_from(["a1", "s1", "s2", "s3", *TWINS]),
        name=st.sampled_from(NAMES),
        ref=st.just(""),
        kind=st.sampled_from(["session", "agent", "teammate"]),
        former=st.lists(st.sampled_from(NAMES), max_size=1).map(tuple),
        where=st.sampled_from(["", "/srv/a"]),
        near=st.booleans(),
        observer=st.sampled_from([False, False, False, True]),
        own=st.sampled_from([False, False, False, True]),
        address=st.just("uds:/run/secret.sock"),
        local=st.sampled_from([True, True, False]),
        live=st.booleans(),
    ),
    max_size=7,
)
targets = st.sampled_from(
    [
        *(*NAMES, "ap", "apia", " Api ", "apo", "s1", "---", "uds:/run/secret.sock"),
        *(
            shown(name, ref_of(identity))
            for name in ("api", "", "b [c]")
            for identity in ("a1", "s1", TWINS[0])
        ),
    ]
)
identities = st.sampled_from(["a1", "s1", "s2", TWINS[1], "gone"])


def expected(
    to: str,
    everybody: Iterable[Candidate],
    *,
    unchecked: bool,
    received: dict[str, str],
    pins: dict[str, str],
    caller: str,
) -> tuple[str, str]:
    """What chapter 02 says, read from top to bottom: ("resolved", identity) or ("refused", code)."""
    known = {one.identity: one for one in everybody}
    all_of_them = [one for one in known.values() if not one.observer]
    to = to.strip()
    form, split = normal_form(to), split_ref(to)

    def called(name: str, one: Candidate) -> bool:
        return bool(name) and normal_form(one.name) == name

    def foreign(found: Iterable[Candidate]) -> list[Candidate]:
        return [one for one in found if not one.own and one.identity != caller]

    def judged(found: Sequence[Candidate], *, inside: bool, exact: bool) -> tuple[str, str]:
        pin = pins.get(form)
        if len(found) > 1:
            meant = [one for one in found if one.identity == pin]
            if not meant:
                return ("refused", "ambiguous")
            found = meant
        else:
            pin = pin or pins.get(normal_form(found[0].name))
        if pin is not None and pin != found[0].identity:
            return ("refused", "pin_mismatch")
        if unchecked and not inside and pin is None and not (exact and found[0].local):
            return ("refused", "partial_index")
        return ("resolved", found[0].identity)

    if to in received:
        one = known.get(received[to])
        return ("refused", "not_found") if one is None or one.observer else ("resolved", one.identity)
    if to.startswith("uds:") and split is None:
        return ("refused", "not_found")
    near = [one for one in all_of_them if one.near and called(form, one)]
    if form == "main":
        return judged(near, inside=True, exact=True) if near else ("refused", "not_found")
    if any(one.identity == to and one.near and one.kind == "agent" for one in all_of_them):
        return ("resolved", to)
    near = foreign(near)
    for found in (
        [one for one in near if one.kind != "teammate" and one.live and one.name == to],
        [one for one in near if one.kind == "teammate" and one.name == to],
        near,
    ):
        if len(found) == 1:
            return judged(found, inside=True, exact=True)
    if split is not None:
        holding = [one for one in all_of_them if identity_hash(one.identity).startswith(split[1])]
        name = normal_form(split[0])
        if split[0]:
            holding = [
                one for one in holding if name in [normal_form(each) for each in (one.name, *one.former)]
            ]
        holding = foreign(holding) or holding
        if len(holding) == 1:
            return ("resolved", holding[0].identity)
        return ("refused", "ambiguous" if holding else "stale_ref")
    own: list[Candidate] = []
    for exact, found in (
        (True, [one for one in all_of_them if called(form, one)]),
        (False, [one for one in all_of_them if form in [normal_form(old) for old in one.former]]),
        (
            False,
            [one for one in all_of_them if len(form) >= 3 and normal_form(one.name).startswith(form)],
        ),
    ):
        if foreign(found):
            return judged(foreign(found), inside=False, exact=exact)
        own = own or found
    pinned = known.get(pins.get(form, ""))
    if pinned is not None and not pinned.observer:
        return judged([pinned], inside=False, exact=False)
    return ("resolved", min(one.identity for one in own)) if own else ("refused", "not_found")


@pytest.mark.rule("02.8", "02.9", "02.10", "02.11", "02.12", "02.14", "02.18", "02.19", "01.20")
@settings(max_examples=200)
@given(
    roster,
    st.lists(st.sampled_from(["a1", "s1", "s2"]), max_size=2),
    targets,
    st.booleans(),
    st.dictionaries(targets, identities, max_size=2),
    st.dictionaries(st.sampled_from(["api", "a1", "apia", "ap", "сосо"]), identities, max_size=3),
    st.sampled_from(["", "", "a1", "s1"]),
)
def test_the_answer_is_what_the_chapter_says(
    added: list[Candidate],
    removed: list[str],
    to: str,
    unchecked: bool,
    received: dict[str, str],
    meant: dict[str, str],
    caller: str,
) -> None:
    index = Index(unchecked=BUSY if unchecked else ())
    for one in added:
        index.add(one)
    for identity in removed:
        index.remove(identity)
    received = {value.strip(): identity for value, identity in received.items()}
    pins = Pins((form, Pin(name=form, identity=identity)) for form, identity in meant.items())
    answer = resolve(to, index, received=received, pins=pins, caller=caller)
    if isinstance(answer, Resolved):
        said = ("resolved", answer.candidate.identity)
    else:
        said = ("refused", answer.code)
    assert said == expected(to, index, unchecked=unchecked, received=received, pins=meant, caller=caller)
    assert resolve(to, Index(index, index.unchecked), received=received, pins=pins, caller=caller) == answer
    if isinstance(answer, Refusal):
        assert_readable(answer, index)
    else:
        assert all(warning.isprintable() and "/run" not in warning for warning in answer.warnings)


def assert_readable(answer: Refusal, index: Index) -> None:
    """One paragraph without a path; every candidate is selected by what is shown of it."""
    assert answer.message
    assert answer.hint
    assert str(answer).isprintable()
    assert "/run" not in str(answer)
    assert "secret" not in repr(answer)
    assert len(answer.candidates) <= 3
    assert answer.more >= 0
    for near in answer.candidates:
        found = taken(resolve(shown(near.name, near.ref), index))
        assert identity_hash(found.candidate.identity).startswith(near.ref)


@pytest.mark.rule("02.11", "02.14")
@given(st.dictionaries(st.text(max_size=6), st.text(max_size=8), max_size=6))
def test_report_22_every_name_with_its_ref_comes_back_to_its_candidate(everybody: dict[str, str]) -> None:
    """Names of neighbours are any text; what a list shows of them must route all the same."""
    index = Index(session(identity, name) for identity, name in everybody.items())
    for one in index:
        assert resolve(shown(one.name, index.ref(one)), index) == Resolved(
            one, taken(resolve(f"[{index.ref(one)}]", index)).warnings, True, normal_form(one.name)
        )


@pytest.mark.rule("01.30")
@given(
    st.text(max_size=200),
    st.lists(st.tuples(st.text(max_size=80), st.text(max_size=200)), max_size=4),
    st.booleans(),
)
def test_no_text_of_anybody_can_break_the_paragraph(
    to: str, claims: list[tuple[str, str]], unchecked: bool
) -> None:
    places = (Unchecked(place=to, reason=to),) if unchecked else ()
    index = Index(
        [session(str(number), name, where=where) for number, (name, where) in enumerate(claims)], places
    )
    for target in (to, *(name for name, _ in claims), "api [3fa9c1]"):
        answer = resolve(target, index, pins=Pins([(normal_form(target), Pin(name=to, identity="gone"))]))
        if isinstance(answer, Refusal):
            assert str(answer).isprintable()
            assert len(str(answer)) < 2000
        else:
            assert all(warning.isprintable() for warning in answer.warnings)
