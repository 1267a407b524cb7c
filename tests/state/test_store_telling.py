"""What every store promises of rules, owed and unread notices, and subscriptions: one suite over both kinds."""

from __future__ import annotations

import pytest

from postroom.core.message import Notice
from postroom.errors import StoreFailed
from postroom.state.keeping import (
    NOTICES,
    OWED,
    RULES,
    SUBSCRIPTIONS,
    TOO_MANY_NOTICES,
    TOO_MANY_OWED,
    Owed,
    Subscription,
    rule_id,
)
from postroom.state.memory_store import MemoryStore
from tests.state.stores import (
    BEGINNINGS,
    ENDS,
    HELD,
    IDLE,
    NOW,
    Desk,
    ids,
    message,
    one_of_everything,
    subscribe,
)


def names(desk: Desk, *, mine: bool = False) -> list[tuple[str, str]]:
    return [(each.msg_id, each.identity) for each in desk.store.subscriptions(mine)]


# ── rules ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.48")
def test_a_rule_holds_until_it_is_revoked(desk: Desk) -> None:
    bob = desk.store.add_rule("bob-session", "bob", NOW)
    carol = desk.store.add_rule("carol-session", "carol", NOW + 1)
    assert (bob.identity, bob.name, bob.since) == ("bob-session", "bob", NOW)
    assert desk.store.add_rule("bob-session", "robert", NOW + 2) == bob
    desk.store.commit()
    desk.kill()
    assert desk.store.rules() == [bob, carol]
    assert desk.store.drop_rule(bob.id)
    assert not desk.store.drop_rule(bob.id)
    assert not desk.store.drop_rule("bob-session")
    desk.store.commit()
    desk.reopen()
    assert desk.store.rules() == [carol]
    assert desk.store.add_rule("bob-session", "bob", NOW).id == bob.id
    assert [rule.name for rule in desk.store.rules()] == ["carol", "bob"]


@pytest.mark.rule("11.10")
def test_a_rule_too_many_is_refused_and_none_goes_by_itself(desk: Desk) -> None:
    for number in range(RULES):
        desk.store.add_rule(f"s{number}", "s", NOW)
    with pytest.raises(ValueError, match="1000 rules"):
        desk.store.add_rule("one more", "s", NOW)
    assert desk.store.add_rule("s0", "s", NOW).identity == "s0"
    assert len({rule.id for rule in desk.store.rules()}) == RULES
    desk.store.drop_rule(desk.store.rules()[0].id)
    assert desk.store.add_rule("one more", "s", NOW) in desk.store.rules()


def test_the_id_of_a_rule_is_its_senders_own_and_longer_only_where_it_must_be() -> None:
    short = rule_id("bob-session", ())
    assert len(short) == 8
    assert rule_id("bob-session", {short})[:8] == short
    assert len(rule_id("bob-session", {short})) == 9
    assert rule_id("carol-session", ()) != short


# ── owed notices ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.49", "05.24")
@pytest.mark.parametrize("end", ["kill", "reopen"])
def test_what_is_owed_stays_owed_until_it_is_paid(desk: Desk, end: str) -> None:
    line = b'{"action":"peer_message_status"}\n\x00\xff'
    first = desk.store.owe("m1", "uds:/run/a.sock", "12:34", line, NOW)
    second = desk.store.owe("m2", "memory:b", "12:35", b"", NOW + 1)
    desk.store.commit()
    getattr(desk, end)()
    assert desk.store.owed() == [
        Owed(row=first, about="m1", address="uds:/run/a.sock", process="12:34", line=line, at=NOW),
        Owed(row=second, about="m2", address="memory:b", process="12:35", line=b"", at=NOW + 1),
    ]
    desk.store.paid([first, 99])
    desk.store.paid([])
    desk.store.commit()
    getattr(desk, end)()
    assert [each.row for each in desk.store.owed()] == [second]


def test_the_number_of_a_notice_is_not_given_out_again_while_the_session_runs(desk: Desk) -> None:
    """Else a notice that is reported as told twice would take another one with it."""
    first = desk.store.owe("m1", "uds:/a", "1:2", b"", NOW)
    desk.store.paid([first])
    second = desk.store.owe("m2", "uds:/a", "1:2", b"", NOW)
    desk.store.paid([first])
    third = desk.store.add_notice(HELD)
    assert first < second < third
    assert [each.row for each in desk.store.owed()] == [second]


@pytest.mark.rule("11.10")
def test_of_too_many_owed_notices_the_oldest_go_and_the_journal_says_so(desk: Desk) -> None:
    for number in range(OWED + 2):
        desk.store.owe(f"m{number}", "uds:/a", "1:2", b"x", NOW + number)
    desk.store.commit()
    desk.kill()
    assert [each.about for each in desk.store.owed()][:2] == ["m2", "m3"]
    assert len(desk.store.owed()) == OWED
    (step,) = desk.store.steps("m0")
    assert (step.state, step.detail, step.at) == ("not-told", TOO_MANY_OWED, NOW + OWED)
    assert desk.store.steps("m2") == []


# ── notices for the own loop ────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.49")
def test_notices_stay_until_they_were_read(desk: Desk) -> None:
    first, second = desk.store.add_notice(HELD), desk.store.add_notice(IDLE)
    desk.store.commit()
    desk.kill()
    assert desk.store.notices() == [(first, HELD), (second, IDLE)]
    desk.store.drop_notices([first])
    desk.store.drop_notices([])
    desk.store.commit()
    desk.kill()
    assert desk.store.notices() == [(second, IDLE)]
    third = desk.store.add_notice(HELD)
    assert desk.store.notices() == [(second, IDLE), (third, HELD)]


@pytest.mark.rule("11.10")
def test_of_too_many_notices_the_oldest_go_and_the_journal_says_so(desk: Desk) -> None:
    desk.store.add_notice(IDLE)
    for number in range(NOTICES + 1):
        desk.store.add_notice(Notice(kind="held", at=NOW, msg_id=f"m{number}", about="bob"))
    assert [notice.msg_id for _, notice in desk.store.notices()] == [
        f"m{each}" for each in range(1, NOTICES + 1)
    ]
    assert [(step.state, step.detail) for step in desk.store.steps("m0")] == [("not-read", TOO_MANY_NOTICES)]
    assert len(desk.store.steps("")) == 1
    assert [step.msg_id for _, step in desk.store.log(peer="bob")] == ["m0"]


# ── subscriptions ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.31")
def test_subscriptions_of_both_sides_survive_a_restart(desk: Desk) -> None:
    desk.store.subscribe("a", mine=True, identity="bob-session", name="bob", at=NOW)
    desk.store.subscribe(
        "a",
        mine=False,
        identity="carol-session",
        name="carol",
        reply_path="12:34 uds:/run/c.sock",
        mode="bypass",
        at=NOW + 1,
    )
    desk.store.commit()
    desk.kill()
    assert desk.store.subscriptions(mine=True) == [
        Subscription(msg_id="a", mine=True, identity="bob-session", name="bob", at=NOW)
    ]
    assert desk.store.subscriptions(mine=False) == [
        Subscription(
            msg_id="a",
            mine=False,
            identity="carol-session",
            name="carol",
            reply_path="12:34 uds:/run/c.sock",
            mode="bypass",
            at=NOW + 1,
        )
    ]
    assert desk.store.unsubscribe("a", mine=True)
    assert not desk.store.unsubscribe("a", mine=True)
    desk.store.commit()
    desk.kill()
    assert (names(desk, mine=True), names(desk)) == ([], [("a", "carol-session")])


@pytest.mark.rule("05.31")
def test_nobody_takes_the_place_of_another_session_with_its_id(desk: Desk) -> None:
    subscribe(desk.store, "a", "bob")
    subscribe(desk.store, "b", "bob")
    subscribe(desk.store, "a", "mallory")
    assert names(desk) == [("a", "bob"), ("b", "bob"), ("a", "mallory")]
    subscribe(desk.store, "a", "bob")
    assert names(desk) == [("b", "bob"), ("a", "mallory"), ("a", "bob")]
    assert not desk.store.unsubscribe("a", mine=False, identity="carol")
    assert desk.store.unsubscribe("a", mine=False, identity="mallory")
    assert names(desk) == [("b", "bob"), ("a", "bob")]
    subscribe(desk.store, "a", "mallory")
    assert desk.store.unsubscribe("a", mine=False)
    assert names(desk) == [("b", "bob")]


@pytest.mark.rule("11.10")
def test_subscriptions_are_bounded_on_each_side(desk: Desk) -> None:
    subscribe(desk.store, "kept", mine=True)
    for number in range(SUBSCRIPTIONS + 2):
        subscribe(desk.store, f"m{number}")
    assert len(names(desk)) == SUBSCRIPTIONS
    assert names(desk)[0] == ("m2", "s")
    assert names(desk, mine=True) == [("kept", "s")]


# ── groups ──────────────────────────────────────────────────────────────────────────────────────────


def seen(desk: Desk) -> tuple[object, ...]:
    store = desk.store
    return (store.rules(), store.owed(), store.notices(), names(desk), names(desk, mine=True), store.log())


def fill(desk: Desk) -> None:
    desk.store.add_rule("s", "s", NOW)
    desk.store.owe("m", "uds:/a", "1:2", b"x", NOW)
    desk.store.add_notice(HELD)
    for msg_id, identity in (("a", "s"), ("b", "t")):
        subscribe(desk.store, msg_id, identity)
    subscribe(desk.store, "a", "s", mine=True)


def change(desk: Desk) -> None:
    desk.store.drop_rule(rule_id("s", ()))
    desk.store.add_rule("other", "o", NOW)
    desk.store.paid([each.row for each in desk.store.owed()])
    desk.store.owe("n", "uds:/b", "1:3", b"y", NOW)
    desk.store.drop_notices([row for row, _ in desk.store.notices()])
    desk.store.add_notice(IDLE)
    subscribe(desk.store, "a")
    desk.store.unsubscribe("a", mine=True)


@pytest.mark.rule("05.27", "11.4")
def test_what_was_not_committed_is_gone_with_the_process(desk: Desk) -> None:
    fill(desk)
    desk.store.commit()
    before = seen(desk)
    change(desk)
    assert seen(desk) != before
    desk.kill()
    assert seen(desk) == before
    change(desk)
    desk.store.commit()
    after = seen(desk)
    desk.kill()
    assert seen(desk) == after


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("way", ["commit", "take", "prune"])
def test_a_failure_takes_everything_back(desk: Desk, way: str) -> None:
    fill(desk)
    desk.put(message("m"))
    before = seen(desk)
    with desk.broken(), pytest.raises(StoreFailed):  # noqa: PT012 - where it fails is the store's choice
        change(desk)
        if way == "commit":
            desk.store.commit()
        elif way == "take":
            desk.store.take("lease", NOW)
        else:
            desk.store.prune(NOW)
    assert seen(desk) == before
    change(desk)
    desk.store.commit()
    assert [each.about for each in desk.store.owed()] == ["n"]


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("what", ENDS)
def test_an_end_that_a_broken_disk_does_not_take_never_happened(desk: Desk, what: str) -> None:
    fill(desk)
    desk.hold(message("m"))
    before = (seen(desk), desk.store.holds())
    with desk.broken(), pytest.raises(StoreFailed):  # noqa: PT012
        ENDS[what](desk.store)
        desk.store.commit()
    assert (seen(desk), desk.store.holds()) == before
    ENDS[what](desk.store)
    desk.store.commit()
    desk.kill()
    assert (seen(desk), desk.store.holds()) != before


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("what", ENDS)
def test_in_memory_too_what_ends_something_works_on_a_full_disk(what: str) -> None:
    store = MemoryStore("desk")
    one_of_everything(store)
    store.failing = "full"
    ENDS[what](store)
    store.commit()
    assert not store.pending


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("what", BEGINNINGS)
def test_in_memory_too_what_begins_something_is_refused_on_a_full_disk(what: str) -> None:
    store = MemoryStore("desk")
    one_of_everything(store)
    store.failing = "full"
    before = (store.holds(), store.owed(), store.notices(), store.log())
    with pytest.raises(StoreFailed):  # noqa: PT012
        BEGINNINGS[what](store)
        store.commit()
    assert (store.holds(), store.owed(), store.notices(), store.log()) == before
    assert ids(store.take("lease", NOW)) == ["waits"]
