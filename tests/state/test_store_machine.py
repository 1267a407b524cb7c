"""Both stores and a plain model, side by side, through whatever order of calls, failures and kills is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from postroom.core.message import Message, Pin
from postroom.errors import StoreFailed
from postroom.state.keeping import Retention, Store
from tests.state.stores import ALICE, BOB, DAY, NOW, MemoryDesk, SqliteDesk, ids

Answer = TypeVar("Answer")

IDS = st.sampled_from(["m1", "m2", "m3", "m4", "m5", "m6"])
ORIGINS = st.sampled_from([ALICE, BOB])
LEASES = st.sampled_from(["x", "y"])
NAMES = st.sampled_from(["bob", "carol", "dave"])
LIMITS = st.one_of(st.none(), st.integers(0, 3))

SMALL = Retention(
    consumed_age=3 * DAY,
    consumed_count=4,
    unread_age=6 * DAY,
    settled_age=2 * DAY,
    settled_count=5,
    settled_most=9,
    journal_age=4 * DAY,
    journal_count=30,
    pins=3,
    shown=2,
    batch=3,
)


@dataclass(frozen=True, slots=True)
class Unread:
    """What the model knows of one message that was not consumed yet."""

    number: int
    message: Message
    lease: str | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """The unread messages by arrival, and which ever were confirmed."""

    unread: tuple[Unread, ...] = ()
    confirmed: frozenset[int] = frozenset()
    arrived: int = 0

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
    )
    def add(self, msg_id: str, origin: object, text: str, is_later: bool, hops: list[str]) -> None:
        assert origin in (ALICE, BOB)
        came = Message(
            msg_id=msg_id,
            text=text,
            origin=ALICE if origin == ALICE else BOB,
            received_at=self.now,
            priority="later" if is_later else "next",
            hop_chain=tuple(hops),
        )
        kept = any(
            each.message.msg_id == msg_id and each.message.origin == came.origin for each in self.model.unread
        )
        try:
            self.both(lambda store: store.add(came, body=text))
        except ValueError:
            return
        assert not kept
        number = self.model.arrived + 1
        self.model = replace(
            self.model,
            arrived=number,
            unread=(*self.model.unread, Unread(number, replace(came, state="accepted"))),
        )

    @rule(msg_id=IDS, verdict=st.sampled_from(["held", "refused"]))
    def settle(self, msg_id: str, verdict: Literal["held", "refused"]) -> None:
        try:
            self.both(lambda store: store.settle(BOB.identity, msg_id, verdict, "hash", self.now))
        except ValueError:
            return
        self.model = replace(self.model, arrived=self.model.arrived + 1)

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
        old = [each for each in self.model.unread if each.message.received_at < self.now - SMALL.unread_age]
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
            with desk.broken():
                desk.store.note("m1", "full", self.now)
                with pytest.raises(StoreFailed):
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


TestStores = pytest.mark.rule("11.4", "11.5", "11.1", "05.27")(Stores.TestCase)
TestStores.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
