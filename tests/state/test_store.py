"""What every store promises: one suite over the store in a file and its twin in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from postroom.core.inbound import Settled
from postroom.core.message import TRANSITIONS, Message, Origin, Pin, Step
from postroom.errors import StoreFailed
from postroom.state.keeping import SHOWN_AGAIN, UNTOLD, Retention, Sent
from postroom.state.memory_store import MemoryStore
from tests.state.stores import ALICE, BOB, DAY, NOW, Desk, ids, later, message, states

FULL_MESSAGE = Message(
    msg_id="0b6e…?%\n",
    text="first line\nsecond\0line — 日本語 \U0001f4ee",
    origin=Origin(
        kind="own_child",
        identity="process:1:2",
        verified=True,
        name="",
        address="uds:/run/%20x.sock",
        transport="http",
        stated_class="bypassing",
        reply_path="12:3456 uds:/run/%20x.sock",
    ),
    received_at=NOW,
    summary="what it is about",
    sent_at="2026-11-30T10:15:02Z",
    in_reply_to="an earlier one",
    priority="later",
    hop_chain=("aa b", 'c"d', ""),
    held=True,
    approved_by="user",
)


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("came", [FULL_MESSAGE, message("plain"), message("empty", text="", origin=BOB)])
def test_a_message_comes_out_as_it_went_in(desk: Desk, came: Message) -> None:
    desk.put(came)
    desk.reopen()
    assert desk.store.waiting() == [replace(came, state="accepted")]
    assert desk.store.find(came.msg_id) == desk.store.waiting()
    assert desk.store.take("lease", NOW) == [replace(came, state="leased")]


@pytest.mark.rule("11.1")
def test_the_journal_has_a_row_for_every_transition(desk: Desk) -> None:
    desk.put(message("m"))
    desk.store.take("one", NOW + 1)
    desk.store.release("one", NOW + 2)
    desk.store.take("two", NOW + 3)
    desk.store.confirm("two", NOW + 4)
    assert desk.store.answered("m", NOW + 5)
    desk.store.commit()
    desk.kill()
    steps = desk.store.steps("m")
    assert states(steps) == ["received", "accepted", "leased", "accepted", "leased", "consumed", "answered"]
    assert [step.at - NOW for step in steps] == [0, 0, 1, 2, 3, 4, 5]
    for before, after in zip(states(steps), states(steps)[1:], strict=False):
        assert after in dict(TRANSITIONS)[before]  # pyright: ignore[reportArgumentType]
    assert steps[0] == Step(msg_id="m", at=NOW, where="desk", state="received", detail="from alice")
    assert steps[3].detail == "given back"


def test_journal_rows_bear_the_name_that_the_session_has_now(desk: Desk) -> None:
    desk.put(message("m"))
    desk.store.session_name = "renamed"
    assert {step.where for step in desk.store.steps("m")} == {"renamed"}


@pytest.mark.rule("11.1")
def test_answered_follows_consumed_and_nothing_else(desk: Desk) -> None:
    desk.put(message("m"))
    assert not desk.store.answered("m", NOW)
    desk.store.take("lease", NOW)
    assert not desk.store.answered("m", NOW)
    desk.store.confirm("lease", NOW)
    assert desk.store.find("m")[0].state == "consumed"
    assert desk.store.answered("m", NOW)
    assert not desk.store.answered("m", NOW)
    assert not desk.store.answered("never seen", NOW)
    desk.store.commit()
    assert desk.store.find("m")[0].state == "answered"
    assert states(desk.store.steps("m"))[-2:] == ["consumed", "answered"]


# ── settled ids: nothing twice ──────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.8", "11.5")
@pytest.mark.parametrize("committed", [True, False])
def test_an_id_settles_for_its_sender_alone(desk: Desk, committed: bool) -> None:
    desk.store.add(message("m"), body="hash")
    if committed:
        desk.store.commit()
        desk.kill()
    assert desk.store.settled("alice-session", "m") == Settled("accepted", "hash")
    assert desk.store.settled(BOB.identity, "m") is None
    assert desk.store.settled("alice-session", "other") is None
    desk.store.add(message("m", text="from somebody else", origin=BOB), body="other hash")
    assert [each.origin.identity for each in desk.store.find("m")] == ["alice-session", BOB.identity]


@pytest.mark.rule("03.8", "11.5")
def test_a_settled_id_is_never_taken_in_again(desk: Desk) -> None:
    desk.store.add(message("other"), body="")
    desk.store.add(message("m"), body="hash")
    for again in (message("m"), message("m", text="another text")):
        with pytest.raises(ValueError, match="settled already"):
            desk.store.add(again, body="hash")
        with pytest.raises(ValueError, match="settled already"):
            desk.store.add(again, body="hash", verdict="refused")
    desk.store.commit()
    desk.kill()
    assert ids(desk.store.waiting()) == ["other", "m"]
    assert desk.store.unread == 2
    assert states(desk.store.steps("m")) == ["received", "accepted"]


@pytest.mark.rule("11.5")
def test_report_30_four_deliveries_of_one_id_have_one_effect(desk: Desk) -> None:
    for _ in range(4):
        if desk.store.settled("alice-session", "report") is None:
            desk.store.add(message("report"), body="hash")
        else:
            desk.store.note("report", "duplicate", NOW, "accepted before", "alice")
    desk.store.commit()
    assert ids(desk.store.take("lease", NOW)) == ["report"]
    assert states(desk.store.steps("report"))[:5] == ["received", "accepted", *["duplicate"] * 3]


@pytest.mark.rule("11.5", "11.4")
@pytest.mark.parametrize("case", ["report_31", "report_37", "rival_V16"])
def test_report_31_37_rival_V16_a_retry_after_a_lost_answer_is_known(desk: Desk, case: str) -> None:
    """The receiver stored it and died, or its answer was lost: the sender asks again with the same id."""
    desk.put(message(case))
    desk.kill()
    assert desk.store.settled("alice-session", case) == Settled("accepted", "hash of the column is tenant_id")
    with pytest.raises(ValueError, match="settled already"):
        desk.store.add(message(case), body="")
    assert ids(desk.store.waiting()) == [case]


# ── groups ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("11.4", "05.27")
def test_what_was_not_committed_is_gone_with_the_process_and_what_was_is_not(desk: Desk) -> None:
    desk.put(message("kept"))
    desk.store.add(message("lost"), body="")
    desk.store.note("noted", "full", NOW)
    desk.store.pin("main", "bob", Pin(name="bob", identity="b"), NOW)
    desk.store.sending("sent", "b", "bob", NOW)
    desk.store.remember("bob [aaaaaa]", "b", "uds:/b", NOW)
    assert desk.store.pending
    assert ids(desk.store.waiting()) == ["kept", "lost"]
    desk.kill()
    assert not desk.store.pending
    assert ids(desk.store.waiting()) == ["kept"]
    assert (desk.store.unread, desk.store.waiting_count) == (1, 1)
    assert desk.store.settled("alice-session", "lost") is None
    assert desk.store.steps("noted") == []
    assert desk.store.pins("main") == []
    assert not desk.store.was_sent("sent")
    assert desk.store.known("bob [aaaaaa]") is None
    desk.put(message("lost"))
    assert ids(desk.store.waiting()) == ["kept", "lost"]


@pytest.mark.rule("05.27")
def test_a_commit_closes_the_group_and_without_one_does_nothing(desk: Desk) -> None:
    desk.store.commit()
    assert not desk.store.pending
    desk.put(message("m"))
    assert not desk.store.pending
    before = desk.store.log()
    desk.store.commit()
    assert desk.store.log() == before


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("way", ["take", "confirm", "release", "prune"])
def test_what_is_open_is_committed_together_with_a_lease(desk: Desk, way: str) -> None:
    desk.put(message("leased"))
    desk.store.take("lease", NOW)
    desk.store.add(message("open"), body="")
    if way == "take":
        desk.store.take("another", NOW)
    elif way == "prune":
        desk.store.prune(NOW)
    else:
        getattr(desk.store, way)("lease", NOW)
    assert not desk.store.pending
    desk.kill()
    assert "open" in ids(desk.store.waiting())


def test_closing_forgets_what_is_open_and_may_be_repeated(desk: Desk) -> None:
    desk.put(message("m"))
    desk.store.add(message("open"), body="")
    desk.store.close()
    desk.store.close()
    with pytest.raises(StoreFailed):
        desk.put(message("late"))
    desk.reopen()
    assert ids(desk.store.waiting()) == ["m"]


@pytest.mark.rule("05.27")
@pytest.mark.parametrize("way", ["commit", "take", "confirm", "release", "prune"])
def test_a_failure_forgets_everything_since_the_last_commit(desk: Desk, way: str) -> None:
    desk.put(message("a"), message("b"))
    desk.store.take("lease", NOW, limit=1)
    desk.store.pin("main", "bob", Pin(name="bob", identity="old"), NOW)
    desk.store.sending("sent", "b", "bob", NOW)
    desk.store.remember("bob [aaaaaa]", "b", "uds:/old", NOW)
    desk.store.commit()
    before = (desk.store.log(), desk.store.waiting(), desk.store.unread, desk.store.waiting_count)
    with desk.broken(), pytest.raises(StoreFailed):  # noqa: PT012 - where it fails is the store's choice
        desk.store.add(message("c"), body="")
        desk.store.add(message("d"), body="", verdict="refused")
        desk.store.note("e", "full", NOW)
        desk.store.pin("main", "bob", Pin(name="bob", identity="new"), NOW)
        desk.store.forget_pin("main", "bob")
        desk.store.outcome("sent", "queued", NOW)
        desk.store.remember("bob [aaaaaa]", "b", "uds:/new", NOW)
        if way == "commit":
            desk.store.commit()
        elif way == "prune":
            desk.store.prune(NOW)
        else:
            getattr(desk.store, way)("lease", NOW)
    assert not desk.store.pending
    assert (desk.store.log(), desk.store.waiting(), desk.store.unread, desk.store.waiting_count) == before
    assert desk.store.settled("alice-session", "c") is None
    assert desk.store.settled("alice-session", "d") is None
    assert desk.store.pins("main") == [("bob", Pin(name="bob", identity="old"))]
    assert desk.store.sent("sent") == Sent(to_identity="b", to_name="bob", at=NOW)
    assert desk.store.known("bob [aaaaaa]") == ("b", "uds:/old")
    desk.put(message("c"))
    assert desk.store.confirm("lease", NOW) == ["a"]
    desk.kill()
    assert ids(desk.store.waiting()) == ["b", "c"]
    assert [row for row, _ in desk.store.log()] == [*range(1, 10)]
    assert [(step.state, step.detail) for step in desk.store.steps("sent")] == [("unknown", UNTOLD)]


@pytest.mark.rule("11.2")
def test_what_was_being_sent_when_the_session_ended_becomes_unknown(desk: Desk) -> None:
    desk.store.sending("flying", "b", "bob", NOW)
    desk.store.sending("landed", "b", "bob", NOW)
    desk.store.outcome("landed", "queued", NOW)
    desk.store.commit()
    desk.kill()
    assert [step.state for step in desk.store.steps("flying")] == ["unknown"]
    assert [step.state for step in desk.store.steps("landed")] == ["queued"]
    desk.reopen()
    assert [step.state for step in desk.store.steps("flying")] == ["unknown"]


@pytest.mark.rule("05.27")
def test_where_nothing_can_be_written_the_inbox_still_shows(desk: Desk) -> None:
    desk.put(message("m"))
    with desk.broken():
        assert ids(desk.store.waiting()) == ["m"]
        with pytest.raises(StoreFailed):
            desk.store.take("lease", NOW)
        assert ids(desk.store.waiting()) == ["m"]
        assert (desk.store.unread, desk.store.waiting_count) == (1, 1)
    assert ids(desk.store.take("lease", NOW)) == ["m"]
    with desk.broken(), pytest.raises(StoreFailed):
        desk.store.confirm("lease", NOW)
    with desk.broken(), pytest.raises(StoreFailed):
        desk.store.release("lease", NOW)
    assert desk.store.confirm("lease", NOW) == ["m"]


@pytest.mark.rule("05.27")
def test_in_memory_a_full_disk_can_be_tried_too() -> None:
    store = MemoryStore("desk")
    store.add(message("a"), body="")
    store.commit()
    store.failing = "full"
    store.add(message("b"), body="")
    with pytest.raises(StoreFailed):
        store.commit()
    assert ids(store.take("lease", NOW)) == ["a"]
    assert store.confirm("lease", NOW) == ["a"]
    store.add(message("b"), body="")
    with pytest.raises(StoreFailed):
        store.take("lease", NOW)
    store.failing = ""
    store.add(message("b"), body="")
    store.commit()
    assert ids(store.waiting()) == ["b"]
    assert store.problems == []


# ── handing out ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("11.6", "11.1")
def test_next_is_handed_out_before_later_and_each_in_order_of_arrival(desk: Desk) -> None:
    desk.put(later(message("l1")), message("n1"), later(message("l2")), message("n2"), message("n3"))
    assert ids(desk.store.waiting()) == ["n1", "n2", "n3", "l1", "l2"]
    assert ids(desk.store.waiting(limit=4)) == ["n1", "n2", "n3", "l1"]
    assert ids(desk.store.waiting(limit=0)) == []
    assert ids(desk.store.take("a", NOW, limit=1)) == ["n1"]
    assert ids(desk.store.take("b", NOW, later=False)) == ["n2", "n3"]
    assert desk.store.take("c", NOW, later=False) == []
    assert ids(desk.store.take("d", NOW)) == ["l1", "l2"]
    assert desk.store.take("e", NOW) == []


def test_one_message_can_be_taken_by_its_id(desk: Desk) -> None:
    desk.put(message("a"), message("b"), message("b", origin=BOB), message("c"))
    assert ids(desk.store.take("lease", NOW, only="b")) == ["b", "b"]
    assert desk.store.take("lease", NOW, only="b") == []
    assert desk.store.take("lease", NOW, only="unknown") == []
    assert ids(desk.store.waiting()) == ["a", "c"]
    assert desk.store.confirm("lease", NOW) == ["b", "b"]


@pytest.mark.rule("03.64")
def test_what_is_counted_is_what_is_there(desk: Desk) -> None:
    desk.put(message("a"), message("b"), later(message("c")))
    assert (desk.store.unread, desk.store.waiting_count) == (3, 3)
    desk.store.take("lease", NOW, limit=2)
    assert (desk.store.unread, desk.store.waiting_count) == (3, 1)
    desk.store.confirm("lease", NOW)
    assert (desk.store.unread, desk.store.waiting_count) == (1, 1)
    desk.store.take("lease", NOW)
    desk.store.release("lease", NOW)
    assert (desk.store.unread, desk.store.waiting_count) == (1, 1)
    desk.kill()
    assert (desk.store.unread, desk.store.waiting_count) == (1, 1)


@pytest.mark.rule("11.1")
def test_report_33_two_takers_never_have_the_same_message(desk: Desk) -> None:
    """A manual read and a stop hook at once: one has it, and it can be given back."""
    desk.put(message("m"))
    by_hand = desk.store.take("by hand", NOW)
    by_hook = desk.store.take("by hook", NOW)
    assert (ids(by_hand), ids(by_hook)) == (["m"], [])
    assert desk.store.confirm("by hook", NOW) == []
    assert desk.store.release("by hand", NOW) == ["m"]
    assert [each.redelivered for each in desk.store.take("by hook", NOW)] == [True]


@pytest.mark.rule("11.1", "11.4")
def test_rival_V3_what_a_dead_reader_had_comes_back_in_its_place_and_marked(desk: Desk) -> None:
    desk.put(message("a"), message("b"), message("c"))
    desk.store.take("dead", NOW, limit=2)
    assert desk.store.release("dead", NOW) == ["a", "b"]
    assert desk.store.release("dead", NOW) == []
    assert [(each.msg_id, each.redelivered) for each in desk.store.waiting()] == [
        ("a", True),
        ("b", True),
        ("c", False),
    ]
    assert [each.redelivered for each in desk.store.take("next", NOW)] == [True, True, False]
    desk.store.confirm("next", NOW)
    assert [desk.store.find(msg_id)[0].redelivered for msg_id in "abc"] == [True, True, False]


@pytest.mark.rule("11.4")
@pytest.mark.parametrize("end", ["kill", "reopen"])
def test_report_26_rival_V1_unread_mail_survives_the_end_of_its_session(desk: Desk, end: str) -> None:
    desk.put(message("waits"), message("leased"))
    desk.store.take("lost lease", NOW, only="leased")
    getattr(desk, end)()
    assert [(each.msg_id, each.state, each.redelivered) for each in desk.store.waiting()] == [
        ("waits", "accepted", False),
        ("leased", "accepted", True),
    ]
    assert desk.store.confirm("lost lease", NOW) == []
    assert desk.store.steps("leased")[-1].detail.startswith("given back: the session ended")
    assert ids(desk.store.take("lease", NOW)) == ["waits", "leased"]


@pytest.mark.rule("11.4")
def test_report_35_what_was_confirmed_never_comes_back(desk: Desk) -> None:
    desk.put(message("read"), message("unread"))
    desk.store.take("lease", NOW, limit=1)
    assert desk.store.confirm("lease", NOW) == ["read"]
    desk.kill()
    desk.reopen()
    assert ids(desk.store.take("again", NOW)) == ["unread"]
    assert desk.store.find("read")[0].state == "consumed"


def test_a_lease_may_be_used_for_several_takes(desk: Desk) -> None:
    desk.put(message("a"), message("b"))
    desk.store.take("lease", NOW, limit=1)
    desk.store.take("lease", NOW, limit=1)
    assert desk.store.confirm("lease", NOW) == ["a", "b"]
    assert desk.store.confirm("lease", NOW) == []


# ── what was sent, pins, from values ────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.7", "11.2")
def test_what_was_sent_is_known_with_its_outcome(desk: Desk) -> None:
    desk.store.sending("m", "bob-session", "bob", NOW)
    assert desk.store.was_sent("m")
    assert not desk.store.was_sent("other")
    assert desk.store.sent("other") is None
    desk.store.outcome("m", "unknown", NOW + 1, "no answer")
    desk.store.sending("m", "bob-session", "bob", NOW + 2)
    desk.store.outcome("m", "queued", NOW + 3)
    desk.store.outcome("stranger", "queued", NOW + 3)
    desk.store.commit()
    desk.kill()
    assert desk.store.sent("m") == Sent(to_identity="bob-session", to_name="bob", at=NOW, state="queued")
    assert [(step.state, step.detail) for step in desk.store.steps("m")] == [
        ("unknown", "no answer"),
        ("queued", ""),
    ]
    assert not desk.store.was_sent("stranger")


@pytest.mark.rule("02.17", "02.18")
def test_pins_belong_to_a_conversation_and_keep_their_order(desk: Desk) -> None:
    old, new = Pin(name="Bob", identity="b1"), Pin(name="Bob", identity="b2")
    other = Pin(name="carol", identity="c")
    desk.store.pin("main", "bob", old, NOW)
    desk.store.pin("main", "carol", other, NOW)
    desk.store.pin("agent-1", "bob", new, NOW)
    desk.store.pin("main", "bob", old, NOW)
    desk.store.commit()
    desk.kill()
    assert desk.store.pins("main") == [("bob", old), ("carol", other)]
    assert desk.store.pins("agent-1") == [("bob", new)]
    assert desk.store.pins("agent-2") == []
    desk.store.pin("main", "bob", new, NOW)
    assert desk.store.pins("main") == [("carol", other), ("bob", new)]
    desk.store.forget_pin("main", "carol")
    desk.store.forget_pin("main", "nobody")
    desk.store.commit()
    desk.reopen()
    assert desk.store.pins("main") == [("bob", new)]


@pytest.mark.rule("02.8")
def test_a_from_value_means_whom_it_meant_when_it_was_shown(desk: Desk) -> None:
    desk.store.remember("bob [aaaaaa]", "b1", "uds:/b1", NOW)
    desk.store.commit()
    desk.kill()
    assert desk.store.known("bob [aaaaaa]") == ("b1", "uds:/b1")
    assert desk.store.known("bob [aaaaab]") is None
    assert desk.store.known("Bob [aaaaaa]") is None
    desk.store.remember("bob [aaaaaa]", "b1", "uds:/moved", NOW)
    assert desk.store.known("bob [aaaaaa]") == ("b1", "uds:/moved")


def test_remembering_what_is_known_writes_only_once_a_day(desk: Desk) -> None:
    desk.store.remember("bob [aaaaaa]", "b1", "uds:/b1", NOW)
    desk.store.commit()
    desk.store.remember("bob [aaaaaa]", "b1", "uds:/b1", NOW + SHOWN_AGAIN - 1)
    assert not desk.store.pending
    desk.store.remember("bob [aaaaaa]", "b1", "uds:/b1", NOW + SHOWN_AGAIN)
    assert desk.store.pending


# ── the journal ─────────────────────────────────────────────────────────────────────────────────────


def logged(desk: Desk, **wanted: str | int) -> list[tuple[int, str, str]]:
    return [(row, step.msg_id, step.state) for row, step in desk.store.log(**wanted)]  # pyright: ignore[reportArgumentType]


@pytest.mark.rule("10.13")
def test_the_log_is_searched_by_text_peer_and_time(desk: Desk) -> None:
    desk.put(
        message("a", text="Straße und Fluss"), replace(message("b", origin=BOB, at=NOW + 5), summary="FLUSS")
    )
    desk.store.note("c", "full", NOW + 9, "no Fluss here", "Älice")
    desk.store.sending("d", "bob-session", "bob", NOW)
    desk.store.outcome("d", "queued", NOW + 12)
    desk.store.commit()
    every = [(1, "a", "received"), (2, "a", "accepted"), (3, "b", "received"), (4, "b", "accepted")]
    every += [(5, "c", "full"), (6, "d", "queued")]
    assert logged(desk) == logged(desk, text="", peer="") == every
    assert logged(desk, text="strasse") == every[:2]
    assert logged(desk, text="fluss") == every[:5]
    assert logged(desk, text="%") == []
    assert logged(desk, peer="ALICE") == every[:2]
    assert logged(desk, peer="älice") == [every[4]]
    assert logged(desk, peer="alice-session") == every[:2]
    assert logged(desk, peer=BOB.identity) == every[2:4]
    assert logged(desk, peer="bob-session") == [every[5]]
    assert logged(desk, peer="bob") == [every[5]]
    assert logged(desk, peer="alice", text="FLUSS") == every[:2]
    assert logged(desk, since=NOW + 5, until=NOW + 9) == every[2:5]


@pytest.mark.rule("10.13")
def test_the_log_shows_the_newest_or_follows(desk: Desk) -> None:
    for number in range(1, 8):
        desk.store.note(f"m{number}", "full", NOW)
    assert [row for row, _ in desk.store.log(limit=3)] == [5, 6, 7]
    assert [row for row, _ in desk.store.log(after=2, limit=3)] == [3, 4, 5]
    assert [row for row, _ in desk.store.log(after=0)] == [1, 2, 3, 4, 5, 6, 7]
    assert desk.store.log(after=7) == []
    assert desk.store.log(limit=0) == []


@pytest.mark.rule("11.1")
def test_the_journal_holds_no_text(desk: Desk) -> None:
    desk.put(replace(message("m", text="SECRET words"), summary="SECRET summary"))
    desk.store.take("lease", NOW)
    desk.store.confirm("lease", NOW)
    assert "SECRET" not in repr(desk.store.steps("m"))
    assert "SECRET" not in repr(desk.store.log())


# ── retention ───────────────────────────────────────────────────────────────────────────────────────


def consumed(desk: Desk, *messages: Message) -> None:
    desk.put(*messages)
    desk.store.take("c", NOW)
    desk.store.confirm("c", NOW)


@pytest.mark.rule("05.27", "11.10")
def test_consumed_messages_go_by_age(make: Callable[[Retention | None], Desk]) -> None:
    desk = make(Retention(consumed_age=30 * DAY))
    consumed(desk, message("old", at=NOW - 30 * DAY - 1), message("young", at=NOW - 30 * DAY))
    desk.put(message("unread", at=NOW - 30 * DAY))
    assert desk.store.prune(NOW) == []
    assert [ids(desk.store.find(msg_id)) for msg_id in ("old", "young", "unread")] == [
        [],
        ["young"],
        ["unread"],
    ]
    assert desk.store.settled("alice-session", "old") is not None


@pytest.mark.rule("05.27", "11.10")
def test_consumed_messages_go_by_count_and_unread_ones_stay(make: Callable[[Retention | None], Desk]) -> None:
    desk = make(Retention(consumed_count=2))
    desk.put(later(message("unread")))
    desk.put(*(message(f"m{number}") for number in range(4)))
    desk.store.take("lease", NOW, later=False)
    desk.store.confirm("lease", NOW)
    desk.store.prune(NOW)
    assert [len(desk.store.find(msg_id)) for msg_id in ("unread", "m0", "m1", "m2", "m3")] == [1, 0, 0, 1, 1]


@pytest.mark.rule("11.10")
def test_texts_are_bounded_together(make: Callable[[Retention | None], Desk]) -> None:
    desk = make(Retention(file_bytes=600_000, batch=1))
    consumed(desk, *(message(f"m{number}", text="x" * 200_000) for number in range(4)))
    for _ in range(6):
        desk.store.prune(NOW)
    assert [len(desk.store.find(f"m{number}")) for number in range(4)][:1] == [0]
    assert desk.store.find("m3")


@pytest.mark.rule("03.46")
def test_unread_mail_goes_only_when_it_is_very_old_and_is_told(
    make: Callable[[Retention | None], Desk],
) -> None:
    desk = make(Retention(unread_age=30 * DAY, journal_age=NOW))
    desk.put(message("old", at=NOW - 30 * DAY - 1), message("young"), later(message("old too", at=0)))
    desk.put(message("leased", at=0))
    desk.store.take("lease", NOW, only="leased")
    removed = desk.store.prune(NOW)
    assert [(each.msg_id, each.state, each.origin) for each in removed] == [
        ("old", "removed", ALICE),
        ("old too", "removed", ALICE),
    ]
    assert states(desk.store.steps("old")) == ["received", "accepted", "removed"]
    assert desk.store.steps("old")[-1].detail == "unread for too long"
    desk.kill()
    assert ids(desk.store.waiting()) == ["young", "leased"]
    assert (desk.store.unread, desk.store.waiting_count) == (2, 2)
    assert desk.store.settled("alice-session", "old") is not None


@pytest.mark.rule("05.27")
def test_settled_ids_are_kept_for_a_time_and_at_least_so_many(
    make: Callable[[Retention | None], Desk],
) -> None:
    desk = make(Retention(settled_count=3, settled_age=7 * DAY, refused_count=0))
    ages = {"old 1": 8, "young": 7, "old 2": 8, "old 3": 8, "old 4": 8, "old 5": 8}
    for name, age in ages.items():
        desk.store.add(message(name, at=NOW - age * DAY), body="", verdict="refused")
    desk.store.prune(NOW)
    assert [name for name in ages if desk.store.settled("alice-session", name)] == [
        "young",
        "old 3",
        "old 4",
        "old 5",
    ]


@pytest.mark.rule("11.10")
def test_settled_ids_are_bounded_whatever_their_age(make: Callable[[Retention | None], Desk]) -> None:
    desk = make(Retention(settled_count=1, settled_most=2, refused_count=0))
    for number in range(4):
        desk.store.add(message(f"m{number}"), body="", verdict="refused")
    desk.store.prune(NOW)
    assert [number for number in range(4) if desk.store.settled("alice-session", f"m{number}")] == [2, 3]


@pytest.mark.rule("03.8")
def test_an_id_stays_settled_while_its_message_is_kept(make: Callable[[Retention | None], Desk]) -> None:
    desk = make(Retention(settled_count=1, settled_age=0))
    desk.put(message("unread", at=NOW - 8 * DAY))
    consumed(desk, *(later(message(f"m{number}")) for number in range(3)))
    desk.store.release("none", NOW)
    desk.store.prune(NOW)
    assert desk.store.settled("alice-session", "unread") is not None
    assert desk.store.settled("alice-session", "m0") is not None


@pytest.mark.rule("05.27", "11.10")
@pytest.mark.parametrize(
    ("keep", "left"), [(Retention(journal_count=3), [8, 9, 10]), (Retention(), [6, 7, 8, 9, 10])]
)
def test_the_journal_goes_by_count_and_age(
    make: Callable[[Retention | None], Desk], keep: Retention, left: list[int]
) -> None:
    desk = make(keep)
    for number in range(10):
        desk.store.note("m", "full", NOW - 30 * DAY - (1 if number < 5 else 0))
    desk.store.prune(NOW)
    assert [row for row, _ in desk.store.log()] == left
    assert [row for row, _ in desk.store.log(after=8)] == [9, 10]
    desk.kill()
    desk.store.note("m", "full", NOW)
    assert [row for row, _ in desk.store.log(limit=1)] == [11]


def test_numbers_are_never_given_twice(make: Callable[[Retention | None], Desk]) -> None:
    desk = make(Retention(settled_count=1, settled_age=-DAY, journal_age=-DAY, consumed_count=0))
    consumed(desk, message("a"), message("b"))
    desk.store.prune(NOW)
    desk.reopen()
    assert desk.store.settled("alice-session", "a") is None
    desk.put(message("c"))
    assert ids(desk.store.find("c")) == ["c"]
    assert desk.store.find("a") == []
    assert desk.store.log(limit=1)[0][0] > 6


@pytest.mark.rule("11.10")
def test_one_pruning_does_a_bounded_amount(make: Callable[[Retention | None], Desk]) -> None:
    desk = make(Retention(batch=2, consumed_count=0, settled_count=1, settled_most=1, journal_count=1))
    consumed(desk, *(message(f"m{number}") for number in range(6)))
    kept = [6]
    for _ in range(4):
        desk.store.prune(NOW)
        kept.append(sum(len(desk.store.find(f"m{number}")) for number in range(6)))
    assert kept == [6, 4, 2, 0, 0]
    assert [number for number in range(6) if desk.store.settled("alice-session", f"m{number}")] == [5]
    assert len(desk.store.log()) == 1


@pytest.mark.rule("11.10")
def test_pins_from_values_and_sent_ids_are_bounded(make: Callable[[Retention | None], Desk]) -> None:
    desk = make(Retention(pins=2, shown=2, settled_count=2))
    for number in range(4):
        desk.store.pin("main", f"n{number}", Pin(name="n", identity="i"), NOW)
        desk.store.remember(f"n{number}", "i", "", NOW + number)
        desk.store.sending(f"m{number}", "i", "n", NOW - (8 * DAY if number != 1 else 0))
    desk.store.prune(NOW)
    assert [normal for normal, _ in desk.store.pins("main")] == ["n2", "n3"]
    assert [number for number in range(4) if desk.store.known(f"n{number}")] == [2, 3]
    assert [number for number in range(4) if desk.store.was_sent(f"m{number}")] == [1, 2, 3]


def test_a_retention_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Retention(journal_count=0)
