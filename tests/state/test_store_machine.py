"""Both stores and a plain model, side by side, through whatever order of calls, failures and kills is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from postroom.core.holds import Hold
from postroom.core.inbound import Verdict
from postroom.core.message import Message, Notice, Pin, State
from postroom.errors import StoreFailed
from postroom.state.keeping import Retention, Store
from tests.state.stores import ALICE, BOB, DAY, NOW, MemoryDesk, SqliteDesk, ids

Answer = TypeVar("Answer")

IDS = st.sampled_from(["m1", "m2", "m3", "m4", "m5", "m6"])
ORIGINS = st.sampled_from([ALICE, BOB])
LEASES = st.sampled_from(["x", "y"])
NAMES = st.sampled_from(["bob", "carol", "dave"])
LIMITS = st.one_of(st.none(), st.integers(0, 3))
WHICH = st.integers(0, 3)
"""Which of several, counted round."""

VERDICTS: st.SearchStrategy[Verdict] = st.sampled_from(["accepted", "accepted", "held", "refused"])
ENDS: st.SearchStrategy[State] = st.sampled_from(["denied", "expired", "evicted"])

SMALL = Retention(
    consumed_age=3 * DAY,
    consumed_count=4,
    unread_age=6 * DAY,
    settled_age=2 * DAY,
    settled_count=5,
    settled_most=9,
    journal_age=4 * DAY,
    journal_count=30,
    refused_age=2 * DAY,
    refused_count=2,
    pins=3,
    shown=2,
    batch=3,
)


@dataclass(frozen=True, slots=True)
class Unread:
    """What the model knows of one message that was not consumed yet."""

    number: int
    message: Message
    since: int
    lease: str | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """The unread messages by number, what is held, which ever were confirmed, which ids were told what.

    `arrived` is the last number that was given out.
    """

    unread: tuple[Unread, ...] = ()
    held: tuple[Hold, ...] = ()
    confirmed: frozenset[int] = frozenset()
    arrived: int = 0
    rules: tuple[str, ...] = ()
    owed: tuple[int, ...] = ()
    notices: tuple[int, ...] = ()
    watches: tuple[tuple[bool, str, str], ...] = ()

    def waiting(self, *, later: bool = True, only: str | None = None) -> list[Unread]:
        tiers: list[Literal["next", "later"]] = ["next", "later"] if later else ["next"]
        return [
            each
            for tier in tiers
            for each in self.unread
            if each.lease is None and each.message.priority == tier and only in (None, each.message.msg_id)
        ]

    def changed(self, numbers: set[int], **changes: str | bool | None) -> Model:
        changed = tuple(
            replace(each, **changes) if each.number in numbers else each  # pyright: ignore[reportArgumentType]
            for each in self.unread
        )
        return replace(self, unread=changed)

    def without(self, numbers: set[int]) -> Model:
        return replace(self, unread=tuple(each for each in self.unread if each.number not in numbers))

    def given_back(self, leases: set[str | None]) -> Model:
        numbers = {each.number for each in self.unread if each.lease in leases}
        return self.changed(numbers, lease=None, again=True)


class Stores(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.desks = (MemoryDesk(SMALL), SqliteDesk(SMALL))
        self.now = NOW
        self.model = self.committed = Model()
        self.names = 0

    def teardown(self) -> None:
        for desk in self.desks:
            desk.end()

    def both(self, ask: Callable[[Store], Answer]) -> Answer:
        """Asks both stores, which must answer alike, an error included."""
        answers: list[Answer] = []
        refusals: list[ValueError] = []
        for desk in self.desks:
            try:
                answers.append(ask(desk.store))
            except ValueError as error:
                refusals.append(error)
        if refusals:
            assert not answers
            raise refusals[0]
        assert answers[0] == answers[1]
        return answers[0]

    @rule(
        msg_id=IDS,
        origin=ORIGINS,
        text=st.text(max_size=8),
        is_later=st.booleans(),
        hops=st.lists(st.text(max_size=3), max_size=2),
        verdict=VERDICTS,
        days=st.one_of(st.none(), st.integers(0, 3)),
    )
    def add(
        self,
        msg_id: str,
        origin: object,
        text: str,
        is_later: bool,
        hops: list[str],
        verdict: Verdict,
        days: int | None,
    ) -> None:
        assert origin in (ALICE, BOB)
        came = Message(
            msg_id=msg_id,
            text=text,
            origin=ALICE if origin == ALICE else BOB,
            received_at=self.now,
            priority="later" if is_later else "next",
            hop_chain=tuple(hops),
        )
        expires_at = None if days is None else self.now + days * DAY
        there = [each.message for each in self.model.unread] + [hold.message for hold in self.model.held]
        kept = any(each.msg_id == msg_id and each.origin == came.origin for each in there)
        try:
            number = self.both(
                lambda store: store.add(
                    came,
                    body=text,
                    verdict=verdict,
                    cause="mode-mismatch",
                    scope="default",
                    rung="class",
                    expires_at=expires_at,
                    detail="why",
                )
            )
        except ValueError:
            return
        assert not kept
        assert number == self.model.arrived + 1
        self.model = replace(self.model, arrived=number)
        came = replace(came, state=verdict)
        if verdict == "accepted":
            self.model = replace(
                self.model, unread=(*self.model.unread, Unread(number, came, came.received_at))
            )
        elif verdict == "held":
            hold = Hold(
                row=number,
                message=came,
                cause="mode-mismatch",
                scope="default",
                rung="class",
                expires_at=expires_at,
            )
            self.model = replace(self.model, held=(*self.model.held, hold))

    def _chosen(self, which: int) -> Hold:
        return self.model.held[which % len(self.model.held)]

    def _left(self, gone: Hold) -> tuple[Hold, ...]:
        return tuple(hold for hold in self.model.held if hold != gone)

    @precondition(lambda self: bool(self.model.held))
    @rule(which=WHICH, approved_by=st.sampled_from([None, "user"]))
    def release_hold(self, which: int, approved_by: str | None) -> None:
        hold = self._chosen(which)
        released = self.both(
            lambda store: store.release_hold(hold.row, self.now, approved_by=approved_by, detail="let in")
        )
        assert released == replace(hold.message, state="accepted", held=True, approved_by=approved_by)
        number = self.model.arrived + 1
        unread = (*self.model.unread, Unread(number, released, self.now))
        self.model = replace(self.model, arrived=number, unread=unread, held=self._left(hold))

    @precondition(lambda self: bool(self.model.held))
    @rule(which=WHICH, state=ENDS)
    def end_hold(self, which: int, state: State) -> None:
        hold = self._chosen(which)
        self.both(lambda store: store.end_hold(hold.row, state, self.now, "in words"))
        self.model = replace(self.model, held=self._left(hold))

    @precondition(lambda self: bool(self.model.held))
    @rule(which=WHICH, days=st.one_of(st.none(), st.integers(0, 3)))
    def change_hold(self, which: int, days: int | None) -> None:
        hold = self._chosen(which)
        until = None if days is None else self.now + days * DAY
        self.both(lambda store: store.change_hold(hold.row, "repo-setting", "project", "setting", until))
        changed = replace(hold, cause="repo-setting", scope="project", rung="setting", expires_at=until)
        held = tuple(changed if each == hold else each for each in self.model.held)
        self.model = replace(self.model, held=held)

    @rule(row=st.integers(-1, 40), state=ENDS)
    def touch_no_hold(self, row: int, state: State) -> None:
        if row in {hold.row for hold in self.model.held}:
            return
        touches: list[Callable[[Store], object]] = [
            lambda store: store.release_hold(row, self.now),
            lambda store: store.end_hold(row, state, self.now),
            lambda store: store.change_hold(row, "mode-unknown", "default", "mode-unknown", None),
        ]
        for touch in touches:
            with pytest.raises(ValueError, match="no hold"):
                self.both(touch)

    @rule(name=NAMES)
    def add_rule(self, name: str) -> None:
        made = self.both(lambda store: store.add_rule(f"{name}-id", name, self.now))
        if made.id not in self.model.rules:
            self.model = replace(self.model, rules=(*self.model.rules, made.id))

    @precondition(lambda self: bool(self.model.rules))
    @rule(which=WHICH)
    def drop_rule(self, which: int) -> None:
        gone = self.model.rules[which % len(self.model.rules)]
        assert self.both(lambda store: store.drop_rule(gone))
        self.model = replace(self.model, rules=tuple(each for each in self.model.rules if each != gone))

    @rule(msg_id=IDS, line=st.binary(max_size=4))
    def owe(self, msg_id: str, line: bytes) -> None:
        row = self.both(lambda store: store.owe(msg_id, "uds:/a", "1:2", line, self.now))
        self.model = replace(self.model, owed=(*self.model.owed, row))

    @rule(msg_id=st.one_of(st.none(), IDS), about=st.one_of(st.none(), NAMES))
    def add_notice(self, msg_id: str | None, about: str | None) -> None:
        notice = Notice(kind="held", at=self.now, msg_id=msg_id, about=about)
        row = self.both(lambda store: store.add_notice(notice))
        self.model = replace(self.model, notices=(*self.model.notices, row))

    @rule(rows=st.sets(st.integers(1, 12), max_size=4))
    def paid_and_read(self, rows: set[int]) -> None:
        self.both(lambda store: store.paid(sorted(rows)))
        self.both(lambda store: store.drop_notices(sorted(rows)))
        self.model = replace(
            self.model,
            owed=tuple(row for row in self.model.owed if row not in rows),
            notices=tuple(row for row in self.model.notices if row not in rows),
        )

    @rule(msg_id=IDS, mine=st.booleans(), name=NAMES)
    def subscribe(self, msg_id: str, mine: bool, name: str) -> None:
        self.both(
            lambda store: store.subscribe(msg_id, mine=mine, identity=f"{name}-id", name=name, at=self.now)
        )
        key = (mine, msg_id, f"{name}-id")
        self.model = replace(self.model, watches=(*(each for each in self.model.watches if each != key), key))

    @rule(msg_id=IDS, mine=st.booleans(), name=st.one_of(st.none(), NAMES))
    def unsubscribe(self, msg_id: str, mine: bool, name: str | None) -> None:
        identity = None if name is None else f"{name}-id"
        gone = [
            each for each in self.model.watches if each[:2] == (mine, msg_id) and identity in (None, each[2])
        ]
        assert self.both(lambda store: store.unsubscribe(msg_id, mine=mine, identity=identity)) == bool(gone)
        self.model = replace(
            self.model, watches=tuple(each for each in self.model.watches if each not in gone)
        )

    @rule(msg_id=IDS, detail=st.sampled_from(["", "words", "WORDS and more"]))
    def note(self, msg_id: str, detail: str) -> None:
        self.both(lambda store: store.note(msg_id, "full", self.now, detail, "alice"))

    @rule(conversation=st.sampled_from(["main", "agent"]), normal=NAMES, identity=st.sampled_from("ij"))
    def pin(self, conversation: str, normal: str, identity: str) -> None:
        made = Pin(name=normal.title(), identity=identity)
        self.both(lambda store: store.pin(conversation, normal, made, self.now))

    @rule(conversation=st.sampled_from(["main", "agent"]), normal=NAMES)
    def forget_pin(self, conversation: str, normal: str) -> None:
        self.both(lambda store: store.forget_pin(conversation, normal))

    @rule(shown=NAMES, identity=st.sampled_from("ij"))
    def remember(self, shown: str, identity: str) -> None:
        self.both(lambda store: store.remember(shown, identity, f"uds:/{identity}", self.now))

    @rule(msg_id=IDS, name=NAMES)
    def sending(self, msg_id: str, name: str) -> None:
        self.both(lambda store: store.sending(msg_id, f"{name}-id", name, self.now))

    @rule(msg_id=IDS, state=st.sampled_from(["queued", "unknown"]))
    def outcome(self, msg_id: str, state: str) -> None:
        self.both(lambda store: store.outcome(msg_id, state, self.now))

    @rule(msg_id=IDS)
    def answered(self, msg_id: str) -> None:
        self.both(lambda store: store.answered(msg_id, self.now))

    @rule()
    def commit(self) -> None:
        self.both(lambda store: store.commit())
        self.committed = self.model
        assert not any(desk.store.pending for desk in self.desks)

    @rule(lease=LEASES, is_later=st.booleans(), limit=LIMITS, only=st.one_of(st.none(), IDS))
    def take(self, lease: str, is_later: bool, limit: int | None, only: str | None) -> None:
        taken = self.both(lambda store: store.take(lease, self.now, later=is_later, limit=limit, only=only))
        expected = self.model.waiting(later=is_later, only=only)[:limit]
        assert taken == [replace(each.message, state="leased", redelivered=each.again) for each in expected]
        self.model = self.model.changed({each.number for each in expected}, lease=lease)
        self.committed = self.model

    @rule(lease=LEASES)
    def confirm(self, lease: str) -> None:
        leased = [each for each in self.model.unread if each.lease == lease]
        assert self.both(lambda store: store.confirm(lease, self.now)) == [
            each.message.msg_id for each in leased
        ]
        numbers = {each.number for each in leased}
        self.model = replace(self.model.without(numbers), confirmed=self.model.confirmed | numbers)
        self.committed = self.model

    @rule(lease=LEASES)
    def release(self, lease: str) -> None:
        leased = [each.message.msg_id for each in self.model.unread if each.lease == lease]
        assert self.both(lambda store: store.release(lease, self.now)) == leased
        self.model = self.model.given_back({lease})
        self.committed = self.model

    @rule()
    def prune(self) -> None:
        removed = self.both(lambda store: store.prune(self.now))
        old = [each for each in self.model.unread if each.since < self.now - SMALL.unread_age]
        expected = [each for each in old if each.lease is None][: SMALL.batch]
        assert ids(removed) == [each.message.msg_id for each in expected]
        self.model = self.committed = self.model.without({each.number for each in expected})

    @rule(days=st.integers(1, 3))
    def wait(self, days: int) -> None:
        self.now += days * DAY

    @rule(how=st.sampled_from(["kill", "reopen"]))
    def end(self, how: str) -> None:
        for desk in self.desks:
            getattr(desk, how)()
        # The desks open at their own time, so only what the time says may differ afterwards.
        survived = self.committed  # closing commits nothing either
        leases = {each.lease for each in survived.unread} - {None}
        self.model = self.committed = survived.given_back(leases)

    @precondition(lambda self: any(desk.store.pending for desk in self.desks))
    @rule(take=st.booleans())
    def fail(self, take: bool) -> None:
        for desk in self.desks:
            with desk.broken(), pytest.raises(StoreFailed):  # noqa: PT012 - where it fails is its choice
                desk.store.note("m1", "full", self.now)
                desk.store.take("x", self.now) if take else desk.store.commit()
        self.model = self.committed

    @invariant()
    def what_waits_is_what_the_model_says(self) -> None:
        expected = [replace(each.message, redelivered=each.again) for each in self.model.waiting()]
        assert self.both(lambda store: store.waiting()) == expected
        assert self.both(lambda store: store.waiting(2)) == expected[:2]
        assert self.both(lambda store: store.waiting_count) == len(expected)
        assert self.both(lambda store: store.unread) == len(self.model.unread)

    @invariant()
    def what_is_held_and_told_is_what_the_model_says(self) -> None:
        assert self.both(lambda store: store.holds()) == [*self.model.held]
        assert [rule.id for rule in self.both(lambda store: store.rules())] == [*self.model.rules]
        assert [owed.row for owed in self.both(lambda store: store.owed())] == [*self.model.owed]
        assert [row for row, _ in self.both(lambda store: store.notices())] == [*self.model.notices]
        for mine in (True, False):
            watches = self.both(lambda store, mine=mine: store.subscriptions(mine))
            expected = [each for each in self.model.watches if each[0] == mine]
            assert [(each.mine, each.msg_id, each.identity) for each in watches] == expected

    @invariant()
    def a_hold_is_settled_and_kept_and_no_hold_is_unread(self) -> None:
        assert {hold.row for hold in self.model.held}.isdisjoint(each.number for each in self.model.unread)
        for hold in self.model.held:
            origin, msg_id = hold.message.origin, hold.message.msg_id
            found = self.both(lambda store, who=origin.identity, what=msg_id: store.settled(who, what))
            assert found is not None
            assert found.outcome == "held"
            assert hold.message in self.both(lambda store, what=msg_id: store.find(what))

    @invariant()
    def an_unread_message_is_settled_and_no_confirmed_one_is_unread(self) -> None:
        assert self.model.confirmed.isdisjoint(each.number for each in self.model.unread)
        for each in self.model.unread:
            found = self.both(
                lambda store, each=each: store.settled(each.message.origin.identity, each.message.msg_id)
            )
            assert found is not None
            assert found.outcome == "accepted"

    @invariant()
    def the_twins_agree_on_everything(self) -> None:
        log = self.both(lambda store: store.log())
        assert [row for row, _ in log] == sorted({row for row, _ in log})
        self.both(lambda store: store.log(text="words", limit=5))
        self.both(lambda store: store.log(peer="ALICE", after=3, until=self.now))
        for msg_id in ("m1", "m2", "m3", "m4", "m5", "m6"):
            self.both(lambda store, msg_id=msg_id: store.find(msg_id))
            self.both(lambda store, msg_id=msg_id: store.steps(msg_id))
            self.both(lambda store, msg_id=msg_id: store.sent(msg_id))
            for origin in (ALICE, BOB):
                self.both(lambda store, msg_id=msg_id, origin=origin: store.settled(origin.identity, msg_id))
        for name in ("bob", "carol", "dave"):
            self.both(lambda store, name=name: store.known(name))
        assert len(self.both(lambda store: store.pins("main"))) <= 3
        self.both(lambda store: store.pins("agent"))


TestStores = pytest.mark.rule("11.4", "11.5", "11.1", "05.27", "03.47")(Stores.TestCase)
TestStores.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
