"""The index: what is found by what, and that a change changes no more than it must."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.core.address import identity_hash, mixed_script, normal_form, ref_of
from postroom.core.index import MAX_DISTANCE, NEAR_POOL, Candidate, Index, Unchecked, completion

BUSY = (Unchecked(place="realm home", reason="no server"),)

# Two identities whose hashes share their first six digits, found by search.
TWINS = ("i-826", "i-971")


def session(identity: str, name: str, **facts: object) -> Candidate:
    return replace(Candidate(identity=identity, name=name, ref=ref_of(identity)), **facts)  # type: ignore[arg-type]


def agent(identity: str, name: str, **facts: object) -> Candidate:
    return session(identity, name, kind="agent", near=True, **facts)


def ids(found: Iterable[Candidate]) -> list[str]:
    return sorted(one.identity for one in found)


# ── look-ups ─────────────────────────────────────────────────────────────────────────────────────


def test_a_candidate_is_found_by_everything_that_it_is() -> None:
    one = agent("a1", "Api Worker", former=("old.name",), type="Builder")
    index = Index([one])
    assert index.get("a1") is one
    assert index.named("api-worker") == (one,)
    assert index.formerly("old-name") == (one,)
    assert index.of_type("builder") == (one,)
    assert index.beginning("api") == (one,)
    assert index.with_ref(ref_of("a1", 9)) == (one,)
    assert index.ref(one) == ref_of("a1")
    assert (len(index), list(index)) == (1, [one])
    index.remove("a1")
    assert index.get("a1") is None
    assert index.named("api-worker") == index.formerly("old-name") == index.of_type("builder") == ()
    assert index.beginning("api") == index.with_ref(ref_of("a1")) == ()
    assert (len(index), list(index), dict(index.direct)) == (0, [], {})


def test_an_observer_is_had_by_its_identity_and_by_nothing_else() -> None:
    watcher = agent("o1", "watcher", observer=True, former=("w",), type="spy")
    index = Index([watcher])
    assert index.get("o1") is watcher
    assert list(index) == [watcher]
    assert (
        index.named("watcher") == index.formerly("w") == index.of_type("spy") == index.beginning("wat") == ()
    )
    assert index.with_ref(ref_of("o1")) == ()
    assert index.ref(watcher) == ref_of("o1")
    index.remove("o1")
    assert len(index) == 0


def test_a_name_of_separators_alone_is_nobodys_name() -> None:
    index = Index([session("s1", "-._")])
    assert index.named("") == index.beginning("") == ()
    assert ids(index.with_ref(ref_of("s1"))) == ["s1"]
    index.remove("s1")
    assert len(index) == 0


@pytest.mark.rule("02.7")
def test_a_ref_grows_where_six_digits_select_two() -> None:
    one, two = (session(identity, identity) for identity in TWINS)
    index = Index([one, two])
    assert ids(index.with_ref(ref_of(TWINS[0]))) == sorted(TWINS)
    for each in (one, two):
        assert len(index.ref(each)) > 6
        assert index.with_ref(index.ref(each)) == (each,)
    index.remove(TWINS[1])
    assert index.ref(one) == ref_of(TWINS[0])


def test_several_of_one_name_come_and_go_one_by_one() -> None:
    index = Index(session(f"s{number}", "api") for number in range(3))
    assert ids(index.named("api")) == ["s0", "s1", "s2"]
    for gone, left in (("s1", ["s0", "s2"]), ("s0", ["s2"]), ("s2", [])):
        index.remove(gone)
        assert ids(index.named("api")) == left


@pytest.mark.rule("02.12")
def test_those_that_begin_so_come_in_the_order_of_their_names() -> None:
    index = Index(session(name, name) for name in ["review", "rev", "reviewer", "rex", "zebra"])
    assert [one.name for one in index.beginning("rev")] == ["rev", "review", "reviewer"]
    assert [one.name for one in index.beginning("reviewe")] == ["reviewer"]
    assert [one.name for one in index.beginning("zeb")] == ["zebra"]
    assert index.beginning("zzz") == index.beginning("aaa") == ()
    index.add(session("zebra-2", "Zebra"))
    assert ids(index.beginning("zeb")) == ["zebra", "zebra-2"]


# ── one session, seen here and beyond ────────────────────────────────────────────────────────────


@pytest.mark.rule("02.14")
def test_a_session_seen_here_and_beyond_is_the_one_here() -> None:
    here = session("s1", "api")
    far = session("s1+key", "api", session="s1", local=False)
    for order in ([here, far], [far, here]):
        index = Index()
        for one in order:
            index.add(one)
        assert list(index) == [here]
        assert len(index) == 1
        assert index.get("s1") is index.get("s1+key") is here
        assert index.named("api") == (here,)
        assert index.with_ref(ref_of("s1+key")) == ()
        index.remove("s1", local=True)
        assert list(index) == [far]
        assert index.named("api") == index.with_ref(ref_of("s1+key")) == (far,)
        assert index.get("s1") is None


@pytest.mark.rule("02.14")
def test_the_same_identity_on_both_sides_is_one_candidate_too() -> None:
    here, far = session("s1", "api"), session("s1", "api-far", local=False)
    index = Index([far, here])
    assert list(index) == [here]
    assert index.named("api-far") == ()
    index.remove("s1", local=False)
    assert list(index) == [here]
    index.add(far)
    index.remove("s1")
    assert (len(index), index.named("api"), index.named("api-far")) == (0, (), ())


def test_one_beyond_that_turns_out_to_be_another_session_comes_and_goes() -> None:
    here = session("s1", "api")
    far = session("k", "api", session="s1", local=False)
    index = Index([here, far])
    other = replace(far, session="s2")
    index.add(other)
    assert ids(index) == ["k", "s1"]
    assert index.get("k") is other
    index.add(replace(far, where="again"))
    assert list(index) == [here]
    index.remove("s1")
    assert [one.where for one in index] == ["again"]


def test_one_beyond_stays_hidden_until_nobody_here_is_it() -> None:
    far = session("k", "far", session="s1", local=False)
    index = Index([session("z", "zebra")])
    for one in (far, session("k", "same id"), session("s1", "same session")):
        index.add(one)
    assert ids(index) == ["k", "s1", "z"]
    assert ids(index.beginning("zebra")) == ["z"]
    index.remove("k", local=True)
    index.remove("z")
    assert ids(index) == ["s1"]
    assert index.named("far") == ()
    index.remove("s1")
    assert list(index) == [far]


# ── finished answers ─────────────────────────────────────────────────────────────────────────────


def test_a_name_that_only_one_has_is_answered_at_once() -> None:
    one = session("s1", "Api Worker")
    index = Index([one])
    for name in ("Api Worker", "api-worker"):
        assert index.direct[name].candidate is one
        assert index.direct[name].form == "api-worker"
    assert index.direct["api-worker"].warnings == ()
    assert "API WORKER" not in index.direct


@pytest.mark.parametrize(
    "other",
    [
        session("s2", "API"),
        session("s2", "api", local=False),
        agent("API", "somebody"),
    ],
)
def test_a_name_to_which_another_might_answer_is_not(other: Candidate) -> None:
    index = Index([session("s1", "api")])
    index.add(other)
    assert "api" not in index.direct
    index.remove(other.identity)
    assert index.direct["api"].candidate.identity == "s1"


@pytest.mark.parametrize(
    "candidate",
    [
        session("s1", "api", own=True),
        session("s1", "api [3fa9c1]"),
        session("s1", "uds:/api"),
        session("s1", "Main"),
        session("s1", "p\u0430ypal"),
        session("s1", "сосо"),
    ],
)
def test_a_name_with_a_meaning_beside_it_is_never_answered_at_once(candidate: Candidate) -> None:
    assert dict(Index([candidate]).direct) == {}


@pytest.mark.parametrize(
    "candidate",
    [
        session("m", "main", near=True),
        agent("bob", "bob"),
        session("s1", "Éclair"),
        session("s1", "жук"),
    ],
)
def test_a_name_without_one_is(candidate: Candidate) -> None:
    assert Index([candidate]).direct[candidate.name].candidate is candidate


@pytest.mark.rule("02.14")
def test_nothing_is_answered_at_once_while_a_place_is_unchecked() -> None:
    index = Index([session("s1", "reviewer")], BUSY)
    assert index.unchecked == BUSY
    assert dict(index.direct) == {}
    assert index.completed("rev") is None
    index.unchecked = ()
    assert set(index.direct) == {"reviewer"}
    assert index.completed("rev") is not None
    index.unchecked = BUSY
    assert index.completed("rev") is None


@pytest.mark.rule("02.12")
def test_a_prefix_of_one_name_alone_is_completed() -> None:
    one = session("s1", "Reviewer-A")
    index = Index([one, session("s2", "zebra")])
    found = index.completed("rev")
    assert found is not None
    assert (found.candidate, found.form) == (one, "reviewer-a")
    assert found.warnings == (completion(one),)
    assert "Reviewer-A" in completion(one)
    assert index.completed("reviewer-a") is not None
    assert index.completed("zeb") is not None
    assert index.completed("rev") is found
    index.add(session("s1", "Reviewer-A", where="/elsewhere"))
    found = index.completed("rev")
    assert found is not None
    assert found.candidate.where == "/elsewhere"


@pytest.mark.rule("02.12")
@pytest.mark.parametrize(
    ("form", "others"),
    [
        ("re", []),
        ("rex", []),
        ("zzz", []),
        ("rev", [session("s2", "revenue")]),
        ("rev", [session("s2", "Reviewer")]),
        ("rev", [session("s2", "other", former=("Rev",))]),
        ("rev", [agent("REV", "other")]),
        ("mai", [session("s2", "Main")]),
        ("main", [session("s2", "mainframe")]),
    ],
)
def test_no_other_prefix_is(form: str, others: list[Candidate]) -> None:
    assert Index([session("s1", "reviewer"), *others]).completed(form) is None


# ── changes ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("12.5")
def test_one_change_rebuilds_nothing() -> None:
    index = Index(session(f"s{number}", f"name-{number}") for number in range(50))
    before = {name: index.direct[name] for name in index.direct}
    table = index.direct
    index.add(session("x", "extra"))
    index.add(session("s7", "name-7", where="/elsewhere"))
    index.add(session("s8", "name-eight"))
    index.remove("s9")
    assert index.direct is table
    kept = {f"name-{number}" for number in range(50)} - {"name-7", "name-8", "name-9"}
    assert all(index.direct[name] is before[name] for name in kept)
    assert set(index.direct) == kept | {"extra", "name-7", "name-eight"}


@pytest.mark.rule("02.4")
def test_a_renamed_candidate_is_replaced_and_keeps_its_identity() -> None:
    index = Index([session("s1", "old"), session("s2", "new")])
    index.add(session("s1", "fresh", former=("old",)))
    assert ids(index.formerly("old")) == ids(index.named("fresh")) == ["s1"]
    assert index.named("old") == ()
    assert len(index) == 2


def test_what_is_filed_again_or_not_there_changes_nothing() -> None:
    here, far = session("s1", "api"), session("s2", "api", local=False)
    index = Index([here, far])
    index.add(here)
    index.add(far)
    index.remove("nobody")
    index.remove("s1", local=False)
    index.remove("s2", local=True)
    assert ids(index.named("api")) == ["s1", "s2"]


NAMES = ["api", "API", "api-2", "apiary", "a1", "A1", "main", "-", "b [c]", "сосо", "coco"]
candidates = st.builds(
    Candidate,
    identity=st.sampled_from(["a1", "s1", "s2", "s3", *TWINS]),
    name=st.sampled_from(NAMES),
    ref=st.just(""),
    kind=st.sampled_from(["session", "agent"]),
    former=st.lists(st.sampled_from(NAMES), max_size=2).map(tuple),
    type=st.sampled_from(["", "", "api", "Builder"]),
    near=st.booleans(),
    observer=st.sampled_from([False, False, False, True]),
    own=st.sampled_from([False, False, False, True]),
    local=st.booleans(),
    session=st.sampled_from(["", "s1", "s2"]),
)
changes = candidates | st.tuples(st.sampled_from(["a1", "s1", "s2"]), st.sampled_from([None, True, False]))


class Plain:
    """The same index as two dictionaries and a walk over them for each question."""

    def __init__(self) -> None:
        self.here: dict[str, Candidate] = {}
        self.beyond: dict[str, Candidate] = {}

    def change(self, change: Candidate | tuple[str, bool | None]) -> None:
        if isinstance(change, Candidate):
            (self.here if change.local else self.beyond)[change.identity] = change
            return
        identity, local = change
        if local is not True:
            self.beyond.pop(identity, None)
        if local is not False:
            self.here.pop(identity, None)

    def all(self) -> list[Candidate]:
        far = [one for one in self.beyond.values() if not {one.session, one.identity} & set(self.here)]
        return [*self.here.values(), *far]

    def those(self, fits: Callable[[Candidate], bool]) -> list[str]:
        return ids(one for one in self.all() if not one.observer and fits(one))

    def answers_at_once(self, to: str) -> str | None:
        """Who alone can be meant by exactly this text, without a word of warning."""
        form = normal_form(to)
        found = [one for one in self.all() if not one.observer and normal_form(one.name) == form]
        inner = [one for one in self.all() if not one.observer and one.near]
        if len(found) != 1 or not form or any(sign in form for sign in "[:"):
            return None
        only = found[0]
        if to not in (form, only.name) or only.own or (form == "main" and not only.near):
            return None
        if any(normal_form(one.identity) == form and one is not only for one in inner):
            return None
        return None if mixed_script(only.name) or only.name == "сосо" else only.identity


@settings(max_examples=150)
@given(st.lists(changes, max_size=25))
def test_every_look_up_agrees_with_a_walk_over_all(
    steps: list[Candidate | tuple[str, bool | None]],
) -> None:
    index, plain = Index(), Plain()
    for step in steps:
        plain.change(step)
        if isinstance(step, Candidate):
            index.add(step)
        else:
            index.remove(step[0], local=step[1])
    for each in (index, Index([*plain.beyond.values(), *plain.here.values()])):
        assert sorted(each, key=repr) == sorted(plain.all(), key=repr)
        assert len(each) == len(plain.all())
        for name in NAMES:
            form = normal_form(name)
            named = plain.those(lambda one: bool(form) and normal_form(one.name) == form)  # noqa: B023
            begun = plain.those(lambda one: bool(form) and normal_form(one.name).startswith(form))  # noqa: B023
            former = plain.those(lambda one: form in [normal_form(old) for old in one.former])  # noqa: B023
            typed = plain.those(lambda one: bool(one.type) and normal_form(one.type) == form)  # noqa: B023
            assert ids(each.named(form)) == named
            assert ids(each.formerly(form)) == former
            assert ids(each.of_type(form)) == typed
            if form:
                assert ids(each.beginning(form)) == begun
            for to in {name, form}:
                ready = each.direct.get(to)
                assert (ready and ready.candidate.identity) == plain.answers_at_once(to)
            done = each.completed(form) if form else None
            if done is not None:
                assert begun == [done.candidate.identity]
                assert not former
        for one in plain.all():
            assert each.get(one.identity) is one
            if not one.observer:
                assert each.with_ref(each.ref(one)) == (one,)
                assert identity_hash(one.identity).startswith(each.ref(one))


# ── near names ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.14")
@pytest.mark.parametrize(
    ("typed", "names", "near"),
    [
        ("enginer", ["engineer", "designer", "api"], ["engineer"]),
        ("engnieer", ["engineer"], ["engineer"]),
        ("aip", ["api", "bob"], ["api"]),
        ("apx", ["api", "apu", "ape", "apo"], ["ape", "api", "apo"]),
        ("reviewer", ["reviewer-3", "revuewer", "reviewed-2", "rewuever"], ["revuewer", "reviewer-3"]),
        ("ap", ["api", "a"], []),
        ("build-server", ["built-servers", "b"], ["built-servers"]),
        ("build-server", ["bulid-sevrer-", "build-rev"], ["bulid-sevrer"]),
        ("abcdefghijkl", ["xbcxefgxijkx"], []),
        ("api", [], []),
    ],
)
def test_near_names_are_those_within_a_few_edits(typed: str, names: list[str], near: list[str]) -> None:
    assert Index(session(name, name) for name in names).near_names(typed) == near


def edits(one: str, other: str) -> int:
    """The same distance, by its definition."""
    if not one or not other:
        return len(one) + len(other)
    best = min(
        edits(one[1:], other) + 1,
        edits(one, other[1:]) + 1,
        edits(one[1:], other[1:]) + (one[0] != other[0]),
    )
    if one[:2] == other[1::-1] and len(one) > 1 and len(other) > 1:
        best = min(best, edits(one[2:], other[2:]) + 1)
    return best


@given(st.text(alphabet="abc", min_size=3, max_size=7), st.text(alphabet="abc", min_size=1, max_size=7))
def test_the_distance_is_the_smallest_number_of_edits(one: str, other: str) -> None:
    found = Index([session("s", other)]).near_names(one)
    assert bool(found) is (edits(one, other) <= min(MAX_DISTANCE, len(one) // 3))


def test_among_very_many_names_a_mistyped_one_is_found_by_its_beginning_or_one_edit() -> None:
    crowd = [session(f"s{number}", f"m{number:05}") for number in range(NEAR_POOL + 1)]
    index = Index([*crowd, session("e", "engineer-one")])
    assert index.near_names("engineer-oen-") == ["engineer-one"]
    for typed in ("xngineer-one", "ngineer-one", "negineer-one", "xengineer-one"):
        assert index.near_names(typed) == ["engineer-one"]
