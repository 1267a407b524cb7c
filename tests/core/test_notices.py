"""Notices: what a receipt says and changes, how drops are told, and who hears when a session is idle."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from postroom.core import wire
from postroom.core.envelope import WORDS_LIMIT, notice_sentence, notice_text, unframe
from postroom.core.holds import WHO_IS_TOLD
from postroom.core.message import Notice
from postroom.core.notices import (
    CAUSE_WORDS,
    DROP_WORDS,
    IDLE_STATES,
    MAX_WATCHERS,
    READ_WORDS,
    SENDER_STEPS,
    TOLD,
    WATCH_TIME,
    Watcher,
    Watchers,
    Word,
    dropped_words,
    former_name,
    held_words,
    idle_line,
    last_words,
    read_status,
    renamed_line,
    status_line,
    step,
    subscription_line,
    words_pass,
)
from postroom.core.settings import Cause
from postroom.core.wire import MAX_DROPPED, ControlFrame

CAUSES: tuple[Cause, ...] = get_args(Cause)
NOW = 1_796_033_702_000  # 2026-11-30T10:15:02Z
ADDRESS = "uds:/run/user/1000/postroom/1.sock"
TEXT = st.text(max_size=400)
SURROGATES = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=60)


def line(status: str = "held", *, reason: str = "why", **more: Any) -> bytes:
    return status_line(status, orig_msg_id="m-1", address=ADDRESS, msg_id="n-1", reason=reason, **more)


def frame(written: bytes) -> ControlFrame:
    assert written.endswith(b"\n")
    read = wire.decode(written[:-1])
    assert isinstance(read, ControlFrame)
    return read


def fields(written: bytes) -> dict[str, object]:
    return json.loads(written)


def word(written: bytes) -> Word:
    read = read_status(frame(written))
    assert read is not None
    return read


def receipt(**given: Any) -> ControlFrame:
    return ControlFrame(action="peer_message_status", **given)


# ── what a receipt changes ───────────────────────────────────────────────────────────────────────

PENDING = ("", "queued", "written", "accepted", "resumed", "unknown")
STATUSES = ("held", "delivered", "denied", "refused", "expired", "misaddressed", "dropped", "read")
STATES = (*PENDING, *STATUSES, "failed", "something-newer")
FROM_THE_CHAPTER = {
    *((state, status) for state in PENDING for status in STATUSES),
    ("held", "delivered"),
    ("held", "denied"),
    ("held", "expired"),
    ("delivered", "read"),
}


@pytest.mark.rule("05.24")
@pytest.mark.parametrize("state", STATES)
def test_what_may_follow_what_at_the_sender(state: str) -> None:
    followers = {status for status in (*STATUSES, "", "queued", "dance") if step(state, status) is not None}
    assert followers == {status for before, status in FROM_THE_CHAPTER if before == state}
    assert {step(state, status) for status in followers} == followers


def test_what_only_a_notice_brings() -> None:
    assert set(STATUSES) == TOLD
    assert not TOLD & set(PENDING)


class Sender(RuleBasedStateMachine):
    """A sender that hears anything, in any order, any number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ""
        self.heard: list[str] = []

    @rule(status=st.sampled_from((*STATUSES, "dance", "")))
    def hears(self, status: str) -> None:
        after = step(self.state, status)
        if after is None:
            assert (self.state, status) not in FROM_THE_CHAPTER
            return
        assert (self.state, status) in FROM_THE_CHAPTER
        assert after == status
        self.state = after
        self.heard.append(after)

    @rule()
    def hears_everything_again(self) -> None:
        """A replay of what led here changes nothing."""
        assert [step(self.state, status) for status in self.heard] == [None] * len(self.heard)

    @invariant()
    def never_leaves_the_table(self) -> None:
        assert self.state in {"", *STATUSES}
        assert len(self.heard) <= 3  # held, delivered, read is the longest way
        assert len(set(self.heard)) == len(self.heard)


@pytest.mark.rule("05.24")
def test_no_sequence_of_notices_leaves_the_table() -> None:
    run_state_machine_as_test(Sender, settings=settings(max_examples=100, stateful_step_count=20))


# ── the words ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.51")
def test_a_hold_says_why_whether_anybody_is_asked_and_when_it_ends() -> None:
    ends = NOW + 298_000  # 10:20:00
    assert held_words("no-mode-asserted", ends, False, NOW) == (
        "Held because its sender states no permission class, and that session never asks for permission; "
        "nobody can approve it there; it ends at 10:20Z unless its owner does."
    )
    assert held_words("mode-mismatch", ends, True, NOW) == (
        "Held because that session has another permission class than its sender states; "
        "a person is asked there; it ends at 10:20Z without an answer."
    )
    assert held_words("explicit-setting", None, True, NOW).endswith(
        "; a person is asked there; it waits until that is decided."
    )
    assert held_words("mode-unknown", None, False, NOW).endswith(
        "; nobody can approve it there; it waits until its owner does."
    )


def test_an_end_on_another_day_bears_its_date() -> None:
    midnight = NOW - NOW % 86_400_000 + 86_400_000
    assert "ends at 2026-12-01 00:00Z" in held_words("mode-unknown", midnight, True, NOW)
    assert "ends at 23:59Z" in held_words("mode-unknown", midnight - 1, True, NOW)


@pytest.mark.rule("03.51")
@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("askable", [True, False])
def test_the_words_of_a_hold_arrive_whole(cause: Cause, askable: bool) -> None:
    reason = held_words(cause, NOW + 86_400_000, askable, NOW)
    assert CAUSE_WORDS[cause] in reason
    assert word(line("held", reason=reason)).detail == f"It says: “{reason}”"


def test_every_cause_has_its_own_words() -> None:
    assert set(CAUSE_WORDS) == set(CAUSES)
    assert len(set(CAUSE_WORDS.values())) == len(CAUSES)


@pytest.mark.rule("03.65", "03.56")
def test_every_reason_for_a_drop_has_its_words() -> None:
    assert set(DROP_WORDS) == {"hop-runaway", "hop-loop", "duplicate", "rate-limited", "queue-full"}
    assert dropped_words("duplicate") == "It says the same as your message before it."
    assert dropped_words("something-newer") == "It was dropped there."


# ── receipts ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.24")
def test_a_receipt_on_the_wire() -> None:
    assert fields(line("held")) == {
        "type": "control",
        "action": "peer_message_status",
        "msgV": 1,
        "msg_id": "n-1",
        "from": ADDRESS,
        "orig_msg_id": "m-1",
        "status": "held",
        "reason": "why",
    }


@pytest.mark.rule("03.55")
def test_a_receipt_for_several_that_were_dropped() -> None:
    ids = tuple(f"m-{n}" for n in range(1, MAX_DROPPED + 1))
    written = line("dropped", reason=dropped_words("rate-limited"), drop_reason="rate-limited", dropped=ids)
    said = fields(written)
    assert (said["status"], said["drop_reason"], said["dropped_msg_ids"]) == (
        "dropped",
        "rate-limited",
        list(ids),
    )
    assert word(written) == Word(
        status="dropped", ids=ids, detail=DROP_WORDS["rate-limited"], reason="rate-limited"
    )
    with pytest.raises(ValueError, match="at most 256"):
        line("dropped", dropped=(*ids, "m-257"))


@pytest.mark.rule("03.54")
def test_a_refusal_is_written_as_expired_and_read_either_way() -> None:
    written = line("refused", reason=WHO_IS_TOLD["refused"].words, detail="")
    said = fields(written)
    assert (said["status"], said["status_detail"]) == ("expired", "refused")
    assert word(written) == Word(status="refused", ids=("m-1",), detail="", reason="")
    literal = receipt(status="refused", orig_msg_id="m-1")
    assert read_status(literal) == Word(status="refused", ids=("m-1",), detail="", reason="")


@pytest.mark.rule("03.53")
@pytest.mark.parametrize("event", ["expired", "evicted", "session-ended", "unread"])
def test_how_a_hold_ended_is_told(event: str) -> None:
    row = WHO_IS_TOLD[event]
    written = line(row.sender, reason=row.words, detail=row.detail)
    assert fields(written)["status_detail"] == row.detail
    assert word(written) == Word(status="expired", ids=("m-1",), detail=row.words, reason=row.detail)


@pytest.mark.parametrize("event", sorted(event for event, row in WHO_IS_TOLD.items() if row.sender))
def test_whatever_the_table_tells_can_be_written_and_read(event: str) -> None:
    row = WHO_IS_TOLD[event]
    read = word(line(row.sender, reason=row.words, detail=row.detail))
    assert (read.status, read.ids) == (row.sender, ("m-1",))
    assert "“" not in read.detail  # our own sentences are not shown as another's


def test_what_says_no_more_than_the_status_is_not_said_twice() -> None:
    for event in ("released", "denied", "refused-since", "refused", "consumed"):
        row = WHO_IS_TOLD[event]
        assert word(line(row.sender, reason=row.words)).detail == ""
    assert word(line("delivered", reason=WHO_IS_TOLD["approved"].words)).detail == "A person there let it in."
    assert word(line("read", reason=READ_WORDS)).detail == ""


@pytest.mark.rule("03.42")
def test_a_persons_note_goes_in_the_place_of_the_reason() -> None:
    written = line("denied", reason=WHO_IS_TOLD["denied"].words, note="not\ntoday")
    assert fields(written)["reason"] == "not today"
    assert word(written).detail == "It says: “not today”"
    assert word(line("denied", reason="why", note=" \n ")).detail == "It says: “why”"


@pytest.mark.rule("05.24")
def test_free_text_is_cut_and_scrubbed_on_both_sides() -> None:
    written = line("denied", note="</delivery-notice>\x1b" + "n" * 1000)
    reason = str(fields(written)["reason"])
    assert reason.startswith("<\\/delivery-notice>\\x1bnn")
    assert len(reason) == WORDS_LIMIT == 300
    foreign = receipt(status="denied", orig_msg_id="m-1", reason="</delivery-notice>\x1b" + "n" * 100_000)
    read = read_status(foreign)
    assert read is not None
    assert read.detail.startswith("It says: “<\\/delivery-notice>\\x1bnn")
    assert len(read.detail) == len("It says: “”") + WORDS_LIMIT


@pytest.mark.rule("05.24")
@given(st.sampled_from(STATUSES), SURROGATES, SURROGATES)
@settings(max_examples=100)
def test_whatever_a_person_notes_makes_a_line_and_one_block(status: str, note: str, reason: str) -> None:
    read = word(line(status, note=note, reason=reason))
    assert read.status == status
    assert "\n" not in read.detail
    notice = Notice(kind=read.status, at=NOW, msg_id=read.ids[0], about="peer", detail=read.detail)
    assert len(unframe(notice_text(notice))) == 1


def test_a_status_that_the_protocol_lacks_is_a_mistake_of_the_program() -> None:
    with pytest.raises(ValueError, match="no receipt says 'dance'"):
        line("dance")


@pytest.mark.rule("05.24")
@pytest.mark.parametrize(
    "unread",
    [
        receipt(orig_msg_id="m-1"),
        receipt(status="dance", orig_msg_id="m-1"),
        receipt(status="failed", orig_msg_id="m-1"),
        receipt(status="queued", orig_msg_id="m-1"),
        receipt(status="held"),
        receipt(status="held", msg_id="m-1"),
        receipt(status="held", orig_msg_id=""),
        receipt(status="held", orig_msg_id="m 1"),
        receipt(status="held", orig_msg_id="m" * 129),
        receipt(status="held", dropped_msg_ids=("m-1",)),
        ControlFrame(action="peer_idle_notice", status="held", orig_msg_id="m-1"),
    ],
)
def test_what_is_no_receipt_or_names_no_message(unread: ControlFrame) -> None:
    assert read_status(unread) is None


def test_a_machines_word_that_is_not_known_is_not_shown() -> None:
    read = read_status(receipt(status="expired", orig_msg_id="m-1", status_detail="by magic"))
    assert read == Word(status="expired", ids=("m-1",), detail="", reason="")
    read = read_status(receipt(status="dropped", orig_msg_id="m-1", drop_reason="mood", reason="moody"))
    assert read == Word(status="dropped", ids=("m-1",), detail="It says: “moody”", reason="")
    # A detail counts only beside its own status.
    read = read_status(receipt(status="denied", orig_msg_id="m-1", status_detail="refused"))
    assert read == Word(status="denied", ids=("m-1",), detail="", reason="")


def test_known_words_of_a_neighbour_are_added_to_ours() -> None:
    neighbour = receipt(status="dropped", orig_msg_id="m-1", drop_reason="hop-loop", reason="loop detected")
    read = read_status(neighbour)
    assert read is not None
    assert read.detail == f"{DROP_WORDS['hop-loop']} It says: “loop detected”"


def test_each_id_of_a_receipt_counts_once() -> None:
    read = read_status(
        receipt(status="dropped", orig_msg_id="m-2", dropped_msg_ids=("m-1", "m-2", "m-1", "bad id"))
    )
    assert read is not None
    assert read.ids == ("m-2", "m-1")
    only_listed = read_status(receipt(status="dropped", dropped_msg_ids=("m-3",)))
    assert only_listed is not None
    assert only_listed.ids == ("m-3",)


CONTROL = st.builds(
    ControlFrame,
    action=st.sampled_from(sorted(wire.ACTIONS)),
    status=st.none() | st.sampled_from(STATUSES) | TEXT,
    orig_msg_id=st.none() | st.sampled_from(["m-1", "m-2"]) | TEXT,
    msg_id=st.just("its-own"),
    reason=st.none() | TEXT,
    status_detail=st.none() | st.sampled_from(["refused", "evicted"]) | TEXT,
    drop_reason=st.none() | st.sampled_from(sorted(DROP_WORDS)) | TEXT,
    dropped_msg_ids=st.none() | st.lists(st.sampled_from(["m-1", "m-3"]) | TEXT, max_size=4).map(tuple),
    former=st.none() | TEXT,
    detail=st.none() | TEXT,
)


@pytest.mark.rule("03.49")
@given(CONTROL)
@settings(max_examples=200)
def test_no_frame_raises_or_makes_a_notice_about_itself(given_frame: ControlFrame) -> None:
    for text in (former_name(given_frame), last_words(given_frame)):
        assert "\n" not in text
    read = read_status(given_frame)
    if read is not None:
        assert read.status in TOLD
        assert read.ids
        assert all(map(wire.is_id, read.ids))
        assert "its-own" not in read.ids
        assert len(read.detail) < 3 * WORDS_LIMIT


@pytest.mark.rule("03.49")
def test_only_messages_have_a_row_in_the_table_of_notices() -> None:
    """What arrives as a control frame is none of the events that somebody is told of."""
    assert not set(WHO_IS_TOLD) & (wire.ACTIONS | IDLE_STATES | {"renamed"})


@pytest.mark.rule("05.24")
def test_the_news_of_a_name() -> None:
    written = renamed_line(name="api", former="worker", address=ADDRESS, msg_id="n-1")
    assert fields(written) == {
        "type": "control",
        "action": "peer_renamed",
        "msgV": 1,
        "msg_id": "n-1",
        "from": ADDRESS,
        "name": "api",
        "former": "worker",
    }
    assert former_name(frame(written)) == "worker"
    assert former_name(ControlFrame(action="peer_renamed")) == ""
    assert former_name(ControlFrame(action="peer_renamed", former='<"x\n">')) == "x"


@pytest.mark.rule("03.49")
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("expired", "did not take up your message in time"),
        ("approved", "A person has let in"),
        ("released", "judged"),
    ],
)
def test_the_sentences_around_a_hold(kind: str, words: str) -> None:
    sentence = notice_sentence(Notice(kind=kind, at=NOW, about="api-worker", detail="More."))
    assert words in sentence
    assert sentence.endswith(". More.")


# ── idle notices ─────────────────────────────────────────────────────────────────────────────────


def watcher(identity: str = "w-1", *, msg_id: str = "", at: int = NOW, mode: str = "prompting") -> Watcher:
    return Watcher(
        msg_id=msg_id or f"ask-{identity}",
        identity=identity,
        name=identity,
        reply_path=f"1:2 {ADDRESS}",
        mode=mode,
        at=at,
    )


@pytest.mark.rule("05.31")
def test_it_fires_once_when_nothing_is_queued() -> None:
    watchers = Watchers()
    assert watchers.subscribe(watcher(), NOW).noted
    assert watchers.fire(NOW, queued=1) == ()
    assert watchers.fire(NOW) == (watcher(),)
    assert watchers.fire(NOW) == ()
    assert len(watchers) == 0


@pytest.mark.rule("05.31")
def test_one_for_each_subscriber_and_a_repeat_refreshes_it() -> None:
    watchers = Watchers()
    watchers.subscribe(watcher("w-1"), NOW)
    watchers.subscribe(watcher("w-2"), NOW)
    later = watcher("w-1", msg_id="again", at=NOW + 1000)
    noted = watchers.subscribe(later, NOW + 1000)
    assert (noted.noted, noted.removed) == (True, (watcher("w-1"),))
    assert len(watchers) == 2
    assert watchers.expire(NOW + WATCH_TIME) == (watcher("w-2"),)
    assert watchers.fire(NOW + WATCH_TIME) == (later,)


@pytest.mark.rule("05.31")
def test_thirty_two_may_wait_and_the_next_is_told_so() -> None:
    watchers = Watchers()
    for number in range(MAX_WATCHERS):
        assert watchers.subscribe(watcher(f"w-{number}"), NOW).noted
    assert MAX_WATCHERS == 32
    refused = watchers.subscribe(watcher("one-more"), NOW)
    assert (refused.noted, refused.removed) == (False, ())
    assert watchers.subscribe(watcher("w-3", at=NOW + 1), NOW + 1).noted  # a repeat needs no room
    assert len(watchers) == 32
    assert [one.identity for one in watchers.fire(NOW + 1)][-1] == "w-3"


@pytest.mark.rule("05.31")
def test_twelve_hours_and_then_in_silence() -> None:
    assert WATCH_TIME == 12 * 3_600_000
    watchers = Watchers()
    for number in range(MAX_WATCHERS):
        watchers.subscribe(watcher(f"w-{number}", at=NOW + number), NOW + number)
    end = NOW + WATCH_TIME
    fresh = watcher("one-more", at=end)
    noted = watchers.subscribe(fresh, end)
    assert (noted.noted, noted.removed) == (True, (watcher("w-0"),))
    # What is over is not told, and stays until somebody asks for it.
    fired = watchers.fire(end + 1)
    assert [one.identity for one in fired] == [*(f"w-{number}" for number in range(2, 32)), "one-more"]
    assert len(watchers) == 1
    assert watchers.expire(end + 1) == (watcher("w-1", at=NOW + 1),)
    assert watchers.expire(end + 1) == ()


@pytest.mark.rule("05.31", "11.10")
def test_after_a_restart_the_same_ones_wait() -> None:
    kept = [watcher(f"w-{number}", at=NOW + number) for number in range(MAX_WATCHERS + 2)]
    repeated = watcher("w-5", msg_id="again", at=NOW + 99)
    watchers = Watchers([*kept, repeated])
    assert len(watchers) == 32
    assert watchers.expire(NOW) == (kept[5], kept[0], kept[1])
    assert watchers.fire(NOW) == (*kept[2:5], *kept[6:], repeated)


class Watching(RuleBasedStateMachine):
    """Any number of sessions ask, again and again; turns end; hours pass."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.number = 0
        self.watchers = Watchers()
        self.open: dict[str, Watcher] = {}

    def live(self) -> list[Watcher]:
        return [one for one in self.open.values() if self.now - one.at < WATCH_TIME]

    @rule(first=st.integers(0, 40), count=st.integers(1, 20))
    def ask(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            self.number += 1
            asks = watcher(f"w-{number}", msg_id=f"ask-{self.number}", at=self.now)
            over = [one for one in self.open.values() if one not in self.live()]
            for one in over:
                del self.open[one.identity]
            known = self.open.get(asks.identity)
            answer = self.watchers.subscribe(asks, self.now)
            assert answer.noted == (known is not None or len(self.open) < 32)
            assert answer.removed == (*over, *((known,) if known else ()))
            if answer.noted:
                self.open.pop(asks.identity, None)
                self.open[asks.identity] = asks

    @rule(hours=st.integers(1, 13))
    def hours_pass(self, hours: int) -> None:
        self.now += hours * 3_600_000

    @rule(queued=st.integers(0, 2))
    def a_turn_ends(self, queued: int) -> None:
        expected = () if queued else tuple(self.live())
        assert self.watchers.fire(self.now, queued=queued) == expected
        for one in expected:
            del self.open[one.identity]

    @rule()
    def it_is_started_again(self) -> None:
        self.watchers = Watchers(self.open.values())

    @invariant()
    def the_table_is_bounded(self) -> None:
        assert len(self.watchers) == len(self.open) <= 32


@pytest.mark.rule("05.31")
def test_watching_over_time() -> None:
    run_state_machine_as_test(Watching, settings=settings(max_examples=50, stateful_step_count=20))


@pytest.mark.rule("05.31")
@pytest.mark.parametrize(
    ("own", "other", "holding", "passes"),
    [
        ("prompting", "prompting", False, True),
        ("bypass", "bypass", False, True),
        ("bypass", "prompting", False, False),
        ("prompting", "bypass", False, False),
        ("prompting", None, False, False),
        (None, "prompting", False, False),
        (None, None, False, False),
        ("", "", False, False),
        ("prompting", "prompting", True, False),
    ],
)
def test_last_words_pass_between_equals_that_do_not_hold(
    own: str | None, other: str | None, holding: bool, passes: bool
) -> None:
    assert words_pass(own, other, holding=holding) is passes


@pytest.mark.rule("05.31")
def test_a_request_on_the_wire() -> None:
    asked = {"type": "control", "action": "notify_when_idle", "msgV": 1, "msg_id": "ask-1", "from": ADDRESS}
    assert fields(subscription_line(msg_id="ask-1", address=ADDRESS, mode=None)) == asked
    assert fields(subscription_line(msg_id="ask-1", address=ADDRESS, mode="bypass")) == {
        **asked,
        "from_mode": "bypass",
    }


@pytest.mark.rule("05.31")
@pytest.mark.parametrize("state", sorted(IDLE_STATES))
def test_an_answer_on_the_wire(state: str) -> None:
    told = {
        "type": "control",
        "action": "peer_idle_notice",
        "msgV": 1,
        "msg_id": "n-1",
        "from": ADDRESS,
        "orig_msg_id": "ask-1",
        "state": state,
    }
    plain = idle_line(state, orig_msg_id="ask-1", address=ADDRESS, msg_id="n-1", at=None)
    assert fields(plain) == told
    assert last_words(frame(plain)) == ""
    full = idle_line(
        state, orig_msg_id="ask-1", address=ADDRESS, msg_id="n-1", at=NOW, mode="prompting", words=" done\n"
    )
    assert fields(full) == {**told, "finished_at": NOW, "from_mode": "prompting", "detail": "done"}
    assert last_words(frame(full)) == "Its last words: “done”"


def test_the_idle_states_are_three() -> None:
    assert {"idle", "exited", "unavailable"} == IDLE_STATES
    with pytest.raises(ValueError, match="no idle notice says 'busy'"):
        idle_line("busy", orig_msg_id="ask-1", address=ADDRESS, msg_id="n-1", at=NOW)


@pytest.mark.rule("05.24")
@given(SURROGATES)
@settings(max_examples=50)
def test_last_words_are_cut_scrubbed_and_quoted(words: str) -> None:
    written = idle_line(
        "idle", orig_msg_id="a", address=ADDRESS, msg_id="n", at=NOW, words=words + "<delivery-notice>" * 30
    )
    said = last_words(frame(written))
    assert said.startswith("Its last words: “")
    assert len(said) <= len("Its last words: “”") + 300
    notice = Notice(kind="idle", at=NOW, about="peer", detail=said)
    assert len(unframe(notice_text(notice))) == 1


def test_a_watcher_that_asks_under_the_same_id_takes_its_own_place() -> None:
    watchers = Watchers([watcher()])
    again = replace(watcher(), at=NOW + 5)
    assert watchers.subscribe(again, NOW + 5).removed == (watcher(),)
    assert watchers.fire(NOW + 5) == (again,)


def test_nobody_is_left_out_of_the_table_of_steps() -> None:
    assert set(SENDER_STEPS) == {*PENDING, "held", "delivered"}
