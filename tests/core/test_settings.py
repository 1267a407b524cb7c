"""What is set: what one file says, who may say it, and what applies of all files together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.core.settings import (
    CAUSES,
    COMBINE,
    DEFAULTS,
    MAX_COMPLAINTS,
    Cause,
    InboundSetting,
    InboundValue,
    Layer,
    Limits,
    Scope,
    Settings,
    broken_layer,
    effective,
    read_layer,
)

SCOPES: tuple[Scope, ...] = get_args(Scope)
CHECKED_IN: tuple[Scope, ...] = ("project", "local")
SECRET = "s3cret"
KEYS = (
    *("crossSessionInbound", "dialogExpiry", "isolatePeerMachines", "crossMachine", "refusalNotice"),
    *("readReceipts", "publishTo", "desktopNotices", "claimTasks", "nats", "gateways", "limits"),
    *("permissions", "bucketCapacity", "maxUnread", "deny", "url", "token", "foo"),
)
WORDS = ("accept", "hold", "refuse", "never", "open", "tell", "claude-code", "SendMessage", "")

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-10, 6000)
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text(max_size=8)
)
contents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=6,
)
files = st.dictionaries(
    st.sampled_from(KEYS) | st.text(max_size=5),
    scalars | st.dictionaries(st.sampled_from(KEYS), scalars, max_size=3) | st.lists(scalars, max_size=3),
    max_size=6,
)


def layer(scope: Scope, content: object, *, source: str | None = None) -> Layer:
    """One file of a scope."""
    return read_layer(scope, source or f"/{scope}", content)


def broken(scope: Scope) -> Layer:
    """A file that could never be read."""
    return broken_layer(scope, f"/{scope}", "it is a folder", None)


def together(**said: object) -> Settings:
    """What applies of one file a scope."""
    return effective([layer(cast("Scope", scope), content) for scope, content in said.items()])


def inbound(value: object) -> dict[str, object]:
    """A file that sets what may come in."""
    return {"crossSessionInbound": value}


def setting(value: InboundValue, scope: Scope, cause: Cause | None = None) -> InboundSetting:
    """The setting that a scope makes, by its own cause where none is named."""
    return InboundSetting(value=value, scope=scope, cause=cause or CAUSES[scope])


# ── nothing set ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.23")
def test_where_nothing_is_set_the_defaults_apply() -> None:
    assert together(managed={}, user={}, project={}) == DEFAULTS == Settings()
    assert (DEFAULTS.inbound, DEFAULTS.dialog_expiry, DEFAULTS.cross_machine) == (None, 300_000, "reply-only")
    assert (DEFAULTS.refusal_notice, DEFAULTS.read_receipts, DEFAULTS.limits) == ("silent", False, Limits())
    assert not DEFAULTS.isolate_peer_machines
    assert not DEFAULTS.denied
    assert not DEFAULTS.problems


# ── what may come in ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.18", "03.29")
@pytest.mark.parametrize(
    ("scope", "cause"),
    [
        ("managed", "managed-setting"),
        ("flag", "explicit-setting"),
        ("user", "explicit-setting"),
        ("project", "repo-setting"),
        ("local", "repo-setting"),
    ],
)
@pytest.mark.parametrize("value", ["hold", "refuse"])
def test_a_setting_is_called_by_who_made_it(scope: Scope, cause: Cause, value: InboundValue) -> None:
    found = effective([layer(scope, inbound(value))])
    assert found.inbound == InboundSetting(value=value, scope=scope, cause=cause)
    assert found.set_by == {"crossSessionInbound": scope}


@pytest.mark.rule("03.29")
def test_the_first_trusted_scope_that_sets_it_decides() -> None:
    """However strict the later ones are."""
    assert together(flag=inbound("accept"), user=inbound("refuse")).inbound == setting("accept", "flag")
    assert together(managed=inbound("hold"), flag=inbound("refuse")).inbound == setting("hold", "managed")
    assert together(user=inbound("refuse"), managed=inbound("accept")).inbound == setting("accept", "managed")


@pytest.mark.rule("03.29")
@pytest.mark.parametrize("scope", CHECKED_IN)
def test_a_checked_in_file_makes_it_stricter_and_never_laxer(scope: Scope) -> None:
    def found(user: object, own: object) -> InboundSetting | None:
        return effective([layer("user", user), layer(scope, own)]).inbound

    assert found(inbound("accept"), inbound("refuse")) == setting("refuse", scope)
    assert found(inbound("accept"), inbound("hold")) == setting("hold", scope)
    assert found(inbound("refuse"), inbound("hold")) == setting("refuse", "user")
    assert found(inbound("hold"), inbound("accept")) == setting("hold", "user")
    assert found({}, inbound("hold")) == setting("hold", scope)
    assert found({}, inbound("accept")) is None


@pytest.mark.rule("03.29")
def test_of_two_that_are_as_strict_the_trusted_one_is_named() -> None:
    found = together(local=inbound("hold"), project=inbound("hold"), user=inbound("hold"))
    assert found.inbound == setting("hold", "user")
    assert together(local=inbound("hold"), project=inbound("hold")).inbound == setting("hold", "project")


@pytest.mark.rule("03.29")
@pytest.mark.parametrize("scope", CHECKED_IN)
def test_a_project_is_told_that_its_accept_does_nothing(scope: Scope) -> None:
    [said] = effective([layer(scope, inbound("accept"))]).problems
    assert said.startswith(f'/{scope}: crossSessionInbound "accept" does nothing in a project\'s file')
    assert "user settings" in said
    for content in (inbound("hold"), inbound("refuse")):
        assert effective([layer(scope, content)]).problems == ()
    assert effective([layer("user", inbound("accept"))]).problems == ()


@pytest.mark.rule("03.11", "03.32")
def test_an_invalid_value_holds_beside_accept_and_stays_refused_beside_refuse() -> None:
    wrong = inbound("acept")
    for scope in SCOPES:
        found = effective([layer(scope, wrong)])
        assert found.inbound == setting("hold", scope, "invalid-setting")
        assert '"acept", which is none of accept, hold, refuse' in found.problems[0]
    assert together(user=inbound("accept"), project=wrong).inbound == setting(
        "hold", "project", "invalid-setting"
    )
    assert together(user=inbound("refuse"), project=wrong).inbound == setting("refuse", "user")
    assert together(project=wrong, local=inbound("refuse")).inbound == setting("refuse", "local")
    assert together(managed=wrong, user=inbound("accept")).inbound == setting(
        "hold", "managed", "invalid-setting"
    )


@pytest.mark.rule("03.32")
def test_of_two_project_files_the_stricter_counts() -> None:
    """One in the working directory, one in the root of its repository."""
    here, root = (
        layer("project", inbound("hold"), source="/r/w"),
        layer("project", inbound("refuse"), source="/r"),
    )
    assert effective([here, root]).inbound == effective([root, here]).inbound == setting("refuse", "project")
    wrong = layer("project", inbound(1), source="/r")
    assert effective([wrong, here]).inbound == setting("hold", "project", "invalid-setting")


# ── files that cannot be read ────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.35")
@pytest.mark.parametrize("scope", SCOPES)
def test_a_file_that_never_was_good_holds_until_it_is_mended(scope: Scope) -> None:
    found = effective([broken(scope)])
    assert found.inbound == setting("hold", scope, "invalid-setting")
    assert found.problems == (f"/{scope}: it is a folder; until it is mended, what comes in is held.",)
    for other in SCOPES:
        accepting = effective([layer(other, inbound("accept")), broken(scope)])
        assert accepting.inbound == setting("hold", scope, "invalid-setting")
        refusing = effective([layer(other, inbound("refuse")), broken(scope)])
        assert refusing.inbound == setting("refuse", other)


@pytest.mark.rule("03.35")
def test_of_two_holds_the_trusted_one_is_named() -> None:
    assert effective([broken("project"), layer("user", inbound("hold"))]).inbound == setting("hold", "user")
    assert effective([layer("project", inbound("hold")), broken("user")]).inbound == setting(
        "hold", "user", "invalid-setting"
    )
    assert effective([layer("local", inbound("hold")), broken("project")]).inbound == setting("hold", "local")


@pytest.mark.rule("03.35")
def test_its_last_good_content_stays_in_force() -> None:
    good = layer("user", {**inbound("accept"), "dialogExpiry": "never", "foo": 1})
    now = broken_layer("user", "/user", "it is empty", good)
    assert (now.values, now.broken) == (good.values, False)
    assert now.problems == ("/user: it is empty; what it said before stays in force.", *good.problems)
    assert effective([now]).inbound == setting("accept", "user")
    assert effective([now]).dialog_expiry is None
    again = broken_layer("user", "/user", "it is empty", broken("user"))
    assert again.broken


@pytest.mark.rule("03.35")
@pytest.mark.parametrize("content", [[], [{}], 7, "accept", None, True])
def test_what_is_no_object_cannot_be_read(content: object) -> None:
    now = layer("managed", content)
    assert now.broken
    assert "and no object of settings; until it is mended" in now.problems[0]
    kept = read_layer("managed", "/managed", content, layer("managed", inbound("refuse")))
    assert not kept.broken
    assert effective([kept]).inbound == setting("refuse", "managed")


@pytest.mark.rule("03.30", "03.35")
def test_what_could_not_be_read_may_have_isolated() -> None:
    """Nothing leaves this machine unasked because a file is broken."""
    found = effective([layer("user", {"isolatePeerMachines": False}), broken("project")])
    assert (found.isolate_peer_machines, found.set_by["isolatePeerMachines"]) == (True, "project")


# ── the other ratchets ───────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.30")
@pytest.mark.parametrize("scope", SCOPES)
def test_isolation_in_any_scope_isolates(scope: Scope) -> None:
    others = [layer(other, {"isolatePeerMachines": False}) for other in SCOPES if other != scope]
    found = effective([*others, layer(scope, {"isolatePeerMachines": True})])
    assert (found.isolate_peer_machines, found.set_by) == (True, {"isolatePeerMachines": scope})
    off = effective(others)
    assert (off.isolate_peer_machines, off.set_by["isolatePeerMachines"]) == (False, others[0].scope)
    assert effective([*others, layer(scope, {"isolatePeerMachines": "no"})]).isolate_peer_machines


VALUES: list[tuple[str, object, str, object]] = [
    # what a file says; the field, and what is in it then
    ("dialogExpiry", "never", "dialog_expiry", None),
    ("dialogExpiry", "60s", "dialog_expiry", 60_000),
    ("refusalNotice", "tell", "refusal_notice", "tell"),
    ("readReceipts", True, "read_receipts", True),
    ("crossMachine", "open", "cross_machine", "open"),
    ("nats", {"url": "nats://h"}, "nats", {"url": "nats://h"}),
    ("gateways", ["https://h"], "gateways", ("https://h",)),
    ("publishTo", ["claude-code"], "publish_to", ("claude-code",)),
    ("desktopNotices", True, "desktop_notices", True),
    ("limits", {"maxUnread": 20}, "limits", Limits(max_unread=20)),
    ("limits", {"maxUnread": 5001}, "limits", Limits(max_unread=5000)),
    ("limits", {"refillPerSecond": 2}, "limits", Limits(refill_per_second=2.0)),
]


@pytest.mark.rule("03.31")
@pytest.mark.parametrize(("key", "value", "field", "applies"), VALUES)
def test_what_the_trusted_scopes_alone_may_set(key: str, value: Any, field: str, applies: Any) -> None:
    row = next(iter(f"{key}.{inner}" for inner in value)) if key == "limits" else key
    for scope in ("managed", "flag", "user"):
        found = effective([layer(scope, {key: value})])
        assert getattr(found, field) == applies
        assert found.set_by == {row: scope}
    for scope in CHECKED_IN:
        found = effective([layer(scope, {key: value})])
        assert getattr(found, field) == getattr(DEFAULTS, field)
        assert found.problems == (
            f"/{scope}: {key} does nothing in a project's file: only managed, flag, user settings decide it.",
        )
        assert not found.set_by


@pytest.mark.rule("03.31")
def test_the_first_trusted_scope_decides_each_key_by_itself() -> None:
    found = together(
        user={"dialogExpiry": "10m", "limits": {"maxUnread": 20, "bucketCapacity": 50}, "readReceipts": True},
        managed={"limits": {"maxUnread": 30}},
        flag={"dialogExpiry": "60s"},
    )
    assert found.dialog_expiry == 60_000
    assert found.limits == Limits(max_unread=30, bucket_capacity=50)
    assert found.set_by == {
        "dialogExpiry": "flag",
        "readReceipts": "user",
        "limits.maxUnread": "managed",
        "limits.bucketCapacity": "user",
    }


@pytest.mark.rule("03.31")
def test_a_value_that_cannot_be_used_does_not_open_the_way_to_a_laxer_one() -> None:
    found = together(
        managed={"crossMachine": "replyonly", "readReceipts": "no", "limits": "few"},
        user={"crossMachine": "open", "readReceipts": True, "limits": {"bucketCapacity": 500}},
    )
    assert (found.cross_machine, found.read_receipts, found.limits) == ("reply-only", False, Limits())
    assert 'limits is "few" and no object; what stands in it by default counts' in found.problems[3]


@pytest.mark.rule("03.33")
def test_what_any_scope_denies_is_denied() -> None:
    found = together(
        managed={"permissions": {"deny": ["SendMessage"]}},
        local={"permissions": {"deny": ["ListAgents", "send_message"]}},
        user={"permissions": {"deny": []}},
    )
    assert found.denied == {"SendMessage", "ListAgents", "send_message"}
    assert found.set_by == {"permissions.deny": "managed"}
    assert together(project={"permissions": ["SendMessage"]}).denied == frozenset()


@pytest.mark.rule("03.23")
@pytest.mark.parametrize(
    ("said", "claims", "by"),
    [
        ({"user": False}, False, "user"),
        ({"managed": True, "user": False}, True, "managed"),
        ({"user": True, "project": False}, False, "project"),
        ({"user": False, "local": True}, False, "user"),
        ({"project": True}, True, "project"),
        ({"project": True, "local": False}, False, "local"),
        ({"user": "yes"}, False, "user"),
    ],
)
def test_a_project_can_switch_off_that_tasks_are_claimed(
    said: dict[str, Any], claims: bool, by: Scope
) -> None:
    found = together(**{scope: {"claimTasks": value} for scope, value in said.items()})
    assert (found.claim_tasks, found.set_by["claimTasks"]) == (claims, by)


# ── sentences ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.35")
def test_an_unknown_key_is_named_once_with_the_nearest_known_one() -> None:
    content: dict[str, object] = {
        "crossSessionInbond": "refuse",
        "maxUnread": 3,
        "limits": {"maxUnred": 4},
        "permissions": {"alow": []},
        "permissions.deny": ["SendMessage"],
    }
    found = together(user=content)
    assert found.problems == (
        '/user: "crossSessionInbond" is no known key; the nearest is crossSessionInbound.',
        '/user: "maxUnread" is no known key; the nearest is maxUnread, in limits.',
        '/user: "limits.maxUnred" is no known key; the nearest is maxUnread, in limits.',
        '/user: "permissions.alow" is no known key; the nearest is deny, in permissions.',
        '/user: "permissions.deny" is no known key; the nearest is deny, in permissions.',
    )
    assert found == Settings(problems=found.problems)


@pytest.mark.rule("03.36")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("isolatePeerMachines", True),
        ("crossMachine", "open"),
        ("nats", {}),
        ("gateways", []),
    ],
)
def test_a_key_whose_feature_is_not_built_is_reported_as_that(key: str, value: object) -> None:
    [said] = together(user={key: value}).problems
    assert said == f"/user: {key} is read, but what it is for is not built in this version."


@pytest.mark.rule("03.36")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dialogExpiry", "5m"),
        ("refusalNotice", "tell"),
        ("publishTo", ["claude-code"]),
        ("permissions", {"deny": ["SendMessage"]}),
    ],
)
def test_of_a_key_that_works_nothing_is_said(key: str, value: object) -> None:
    assert together(user={key: value}).problems == ()


def test_the_files_are_named_in_the_order_of_their_scopes() -> None:
    said = [layer(scope, {"foo": 1}) for scope in reversed(SCOPES)]
    assert [problem.partition(":")[0] for problem in effective(said).problems] == [
        f"/{scope}" for scope in SCOPES
    ]


def test_a_sentence_is_said_once() -> None:
    twice = layer("user", {"foo": 1})
    assert len(effective([twice, twice]).problems) == 1


def test_a_file_of_nothing_but_mistakes_does_not_fill_a_page() -> None:
    many = {f"x{number}": 1 for number in range(100_000)}
    found = layer("user", {**many, "crossSessionInbound": 1})
    assert len(found.problems) == MAX_COMPLAINTS + 1
    assert "crossSessionInbound" in found.problems[0], "what is known comes first"
    assert found.problems[-1] == "/user: 99,991 more like these."
    wrong = {key: 0 for key in KEYS if key not in ("limits", "permissions", "maxUnread", "foo", "deny")}
    limits = dict.fromkeys(("bucketCapacity", "maxUnread", "totalCapacity"), "x")
    known = layer("user", {**wrong, "limits": limits})
    assert len(known.problems) == MAX_COMPLAINTS + 1


def test_a_source_stays_one_line() -> None:
    found = read_layer("user", "/a\nb" + "c" * 1000, {"foo": 1})
    assert found.problems[0].isprintable()
    assert len(found.problems[0]) < 500
    assert broken_layer("user", "/a\nb", "x\ny", None).problems[0].isprintable()


def test_what_cannot_be_used_is_told_apart() -> None:
    """A command line is refused for it; a limit out of its range and an unknown key are only named (03.25)."""
    fine = layer("flag", {"limits": {"maxUnread": 10**9}, "foo": 1, "nats": {"x": 1}, **inbound("hold")})
    assert (fine.unusable, len(fine.problems)) == ((), 4)
    wrong = layer("flag", {"readReceipts": 1, "foo": 1, "permissions": [], "limits": {"maxUnread": []}})
    assert [said.split()[1] for said in wrong.unusable] == ["readReceipts", "permissions", "limits.maxUnread"]
    assert set(wrong.unusable) < set(wrong.problems)


@pytest.mark.rule("11.29")
def test_no_record_shows_a_secret() -> None:
    secret = layer("user", {"nats": {"token": SECRET}, "gateways": [{"token": SECRET}]})
    found = effective([secret])
    assert found.nats == {"token": SECRET}
    assert SECRET not in repr(secret) + repr(found)


def test_every_way_of_combining_is_one_of_the_table() -> None:
    assert set(COMBINE) == {"first", "any", "union", "ratchet"}
    for combine in cast("list[Callable[..., tuple[Scope, object]]]", list(COMBINE.values())):
        value = frozenset({"SendMessage"}) if combine is COMBINE["union"] else True
        assert combine([("user", value)]) == ("user", value)


# ── properties ───────────────────────────────────────────────────────────────────────────────────

STRICT: dict[str | None, int] = {None: 0, "accept": 0, "hold": 1, "refuse": 2}

lasting = st.builds(broken, st.sampled_from(SCOPES)) | st.builds(layer, st.sampled_from(SCOPES), files)


def strictness(found: Settings) -> int:
    """How strict what may come in is; that nothing is set is stricter than nothing, and laxer than a hold."""
    return STRICT[found.inbound.value if found.inbound else None]


@pytest.mark.rule("03.29", "03.30")
@given(
    st.lists(lasting, max_size=4),
    st.sampled_from(CHECKED_IN),
    st.builds(inbound, scalars) | files,
    st.booleans(),
)
@settings(max_examples=200)
def test_a_checked_in_file_never_makes_anything_laxer(
    others: list[Layer], scope: Scope, content: object, never_read: bool
) -> None:
    more = broken(scope) if never_read else layer(scope, content)
    before, after = effective(others), effective([*others, more])
    assert strictness(after) >= strictness(before)
    assert after.inbound is not None or before.inbound is None
    if strictness(after) == strictness(before) and before.inbound and before.inbound.scope in SCOPES[:3]:
        assert after.inbound == before.inbound
    assert after.isolate_peer_machines >= before.isolate_peer_machines
    assert after.denied >= before.denied
    for name in ("dialog_expiry", "refusal_notice", "read_receipts", "cross_machine", "limits", "nats"):
        assert getattr(after, name) == getattr(before, name)
    for name in ("gateways", "publish_to", "desktop_notices"):
        assert getattr(after, name) == getattr(before, name)


@given(st.lists(lasting, max_size=4), st.randoms())
@settings(max_examples=100)
def test_the_order_in_which_scopes_are_read_does_not_matter(layers: list[Layer], chance: Any) -> None:
    one_each = list({one.scope: one for one in layers}.values())
    mixed = one_each.copy()
    chance.shuffle(mixed)
    assert effective(mixed) == effective(one_each)


@given(st.sampled_from(SCOPES), contents | files, st.booleans())
@settings(max_examples=200)
def test_no_content_raises(scope: Scope, content: object, known: bool) -> None:
    good = layer(scope, inbound("accept")) if known else None
    found = read_layer(scope, f"/{scope}", content, good)
    assert len(found.problems) <= MAX_COMPLAINTS + 1 + len(good.problems if good else ())
    assert all(said.isprintable() for said in found.problems)
    every = effective([found])
    assert set(every.set_by.values()) <= {scope}
    assert found.broken or every.inbound is None or every.inbound.scope == scope


@pytest.mark.rule("11.29")
@given(
    st.sampled_from(SCOPES),
    st.fixed_dictionaries(
        {},
        optional={
            "nats": st.dictionaries(st.sampled_from(["url", "token", "tls", "other", SECRET]), contents)
            | contents,
            "gateways": contents,
        },
    ),
)
@settings(max_examples=200)
def test_no_sentence_holds_a_secret(scope: Scope, content: dict[str, object]) -> None:
    marked = {key: mark(value) for key, value in content.items()}
    found = layer(scope, {**marked, "foo": 1, "limits": {"maxUnread": "x"}})
    for text in (*effective([found]).problems, *found.unusable, repr(found), repr(effective([found]))):
        assert SECRET not in text


def mark(value: object) -> object:
    """The value with each of its texts, keys too, made a secret."""
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {key if key in ("url", "token", "tls") else f"{SECRET}{key}": mark(one) for key, one in items}
    if isinstance(value, list):
        return [*map(mark, cast("list[object]", value))]
    return f"{SECRET}{value}" if isinstance(value, str) else value
