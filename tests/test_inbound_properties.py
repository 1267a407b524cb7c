"""A whole session under any sequence of frames, decisions, settings, modes and restarts, beside a small model.

What is shown: no sequence of frames changes an origin, a setting, a mode, a rule, a name or a hold, nor what this session
knows of its own messages, unless its receiver says so. Who sent something is whom the connection says. An id of one
sender has at most one effect, through restarts. What is delivered is bounded by the buckets, what waits unread by its cap.
And what happened is what the table of chapter 03 says, for the class that was claimed.

The session, its store and the transport are those that ship; time stands still unless a rule moves it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from postroom import Decided, Lease, Message, Receipt, Session
from postroom.core import envelope, notices
from postroom.core.inbound import WITHIN
from postroom.core.loops import token_of
from postroom.core.settings import InboundValue
from postroom.standing import Reporter
from postroom.transport import Evidence
from postroom.transports.memory import MemoryChannel
from tests.inbound_model import (
    ACTORS,
    CHILDREN,
    CLAIMED,
    CLASSES,
    CONTROLS,
    LIMITS,
    LINES,
    PEERS,
    STRANGERS,
    USERS,
    Bucket,
    Control,
    Key,
    User,
    key_of,
    known_of,
    setting_of,
)
from tests.room import Room
from tests.state.stores import MemoryDesk, SqliteDesk
from tests.transports.ends import turns

Value = TypeVar("Value")


class Inbound(RuleBasedStateMachine):
    desk_of: type[MemoryDesk | SqliteDesk] = MemoryDesk

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[object] = []
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda _, context: self.wrong.append(context))
        self.room = Room()
        self.desk = self.desk_of()
        self.peers: dict[str, Session] = {}
        self.around = contextlib.AsyncExitStack()
        self.bob: Session
        # The model.
        self.mode = self.confirmed = "default"
        self.setting: InboundValue | None = None
        self.always: set[str] = set()
        self.settled: dict[Key, tuple[str, str]] = {}
        self.waiting: set[Key] = set()
        self.leased: dict[str, tuple[Lease, set[Key]]] = {}
        self.holds: set[Key] = set()
        self.gone: set[Key] = set()
        self.origins: dict[Key, tuple[str, bool, str | None]] = {}
        self.kinds: dict[Key, str] = {}
        self.stated: dict[Key, str | None] = {}
        self.beyond: set[Key] = set()
        self.buckets: dict[str, Bucket] = {}
        self.total = Bucket(LIMITS.total_capacity, self.room.now)
        self.outcomes: dict[str, str] = {}

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        async def work() -> None:
            for name in PEERS:
                self.peers[name] = await self.around.enter_async_context(
                    self.room.open(name, mode="never" if name == "carol" else "default")
                )
            await self._open()

        self.run(work())
        self.bob_sends("b-1")

    async def _open(self) -> None:
        self.inside = contextlib.AsyncExitStack()
        self.bob = await self.inside.enter_async_context(
            self.room.open(
                "bob",
                store=self.desk.store,
                session_id="bob",
                limits=None,
                mode=self.mode,
                settings=setting_of(self.setting),
            )
        )
        self.confirmed = self.mode
        self.leased.clear()
        self.buckets.clear()
        self.total = Bucket(LIMITS.total_capacity, self.room.now)

    def teardown(self) -> None:
        async def work() -> None:
            if self.peers:
                await self.inside.aclose()
                await self.around.aclose()

        self.run(work())
        self.loop.close()
        self.desk.end()
        assert self.wrong == []

    # ── who is who ───────────────────────────────────────────────────────────────────────────────

    def evidence(self, actor: str) -> Evidence:
        """What bob's transport knows of this actor's connection."""
        own = (self.bob.record.pid, self.bob.record.proc_start)
        match actor:
            case "alice" | "carol":
                return self.room.evidence_of(self.peers[actor])
            case "alice-token":
                return replace(self.room.evidence_of(self.peers["alice"]), token="child")
            case "opened":
                seen = self.room.evidence_of(self.peers[actor])
                return replace(seen, ancestry=((seen.pid, seen.start), own))
            case "child":
                return Evidence("memory", 5001, "a", ((5001, "a"), (5000, "b"), own))
            case _:
                return STRANGERS[actor]

    def address(self, actor: str, given: str | None) -> str | None:
        """An address as a frame of this actor may give it."""
        sessions = {**self.peers, "bob": self.bob}
        who = actor.removesuffix("-token") if given == "own" else given
        return sessions[who].address if who in sessions else who

    def sender(self, actor: str, given: str | None) -> tuple[str, bool, str | None]:
        """The identity of a sender, whether it is verified, and where it can be answered, by its connection."""
        session = actor.removesuffix("-token")
        if session in self.peers and given == self.peers[session].address:
            return self.peers[session].id, True, given
        seen = self.evidence(actor)
        identity = "child" if actor == "token" else f"process:{seen.pid}:{seen.start}"
        return identity, actor in CHILDREN, None

    def verdict(self, key: Key, mode: str) -> str:
        """What the table of chapter 03 says of a message."""
        _, verified, _ = self.origins[key]
        receiver, stated = CLASSES[mode], self.stated[key]
        if self.setting is not None:
            return {"accept": "accepted", "hold": "held", "refuse": "refused"}[self.setting]
        if verified and key[0] in self.always:
            return "accepted"
        if self.kinds[key] == "own_child":
            return "accepted"
        if key in self.beyond or receiver == "unknown":
            return "held"
        if stated is None:
            return "accepted" if receiver == "prompting" else "held"
        return "accepted" if stated == receiver else "held"

    # ── frames ───────────────────────────────────────────────────────────────────────────────────

    def write(self, actor: str, *lines: bytes) -> list[tuple[str, str, str | None]]:
        """Writes lines on a connection of this actor; returns what was acknowledged. Nothing else may come of it."""
        before, holds = known_of(self.bob), {key_of(hold.message) for hold in self.bob.held()}
        answers: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def work() -> None:
            end = self.room.hub.ends[self.bob.address or ""]
            end.take(b"".join(line + b"\n" for line in lines), MemoryChannel(self.evidence(actor), answers))
            await turns()

        self.run(work())
        assert known_of(self.bob) == before
        assert holds <= {key_of(hold.message) for hold in self.bob.held()}
        said: list[tuple[str, str, str | None]] = []
        while not answers.empty():
            answer = json.loads(answers.get_nowait() or b"{}")
            said.append((answer["msg_id"], answer["status"], answer.get("reason")))
        return said

    @rule(many=st.lists(USERS, min_size=1, max_size=4))
    def user_frames(self, many: list[User]) -> None:
        for said in many:
            self.user_frame(said)

    @rule(actor=st.sampled_from(ACTORS), many=st.lists(USERS, min_size=5, max_size=12))
    def burst(self, actor: str, many: list[User]) -> None:
        for said in many:
            self.user_frame(replace(said, actor=actor, chain=[]))

    def user_frame(self, said: User) -> None:
        """Writes one, and looks at what came of it."""
        actor, msg_id, attested = said.actor, said.msg_id, said.form == "envelope"
        tokens = tuple(self.own_token() if hop == "own" else hop for hop in said.chain)
        content = said.body
        if said.form != "bare":
            content = envelope.wire_form(
                said.body, address=None, name=said.name, mode=said.mode, hop_chain=tokens
            )
        if said.form == "spoilt":
            content = content.replace("<cross-session-message", '<cross-session-message verified="yes"', 1)
        address = self.address(said.actor, said.given)
        frame = {
            **said.invented,
            "type": "user",
            "msg_id": msg_id,
            "from": address,
            "session_id": said.to,
            "ack": said.ack,
            "priority": "later" if said.later else "next",
            "message": {"role": "user", "content": content},
        }
        key = (self.sender(actor, address)[0], msg_id or "")
        settled = self.bob.store.settled(*key) if msg_id else None
        unread = self.bob.store.unread
        here = self.seen()
        answers = self.write(actor, json.dumps(frame).encode())
        new = {each: message for each, message in self.seen().items() if each not in here}
        # What an acknowledgement may say, and to whom.
        assert len(answers) <= (said.ack and msg_id is not None)
        if said.ack and msg_id and said.body.strip():
            assert [answer[0] for answer in answers] == [msg_id]
            assert answers[0][1] in ("queued", "inbox_full", "dropped", "misaddressed")
        now = self.bob.store.settled(*key) if msg_id else None
        if settled is not None:  # decided before, perhaps before a restart
            assert (now, new) == (settled, {})
            return
        if msg_id and answers:
            assert (answers[0][1] == "queued") == (now is not None)
        if now is None and not new:
            return
        # It had an effect, and just one; who sent it is whom the connection says.
        assert len(new) <= 1
        for each in new:
            assert each[0] == key[0]
            assert msg_id in (None, each[1])
            key = each
        self.origins[key] = self.sender(actor, address)
        self.kinds[key] = "own_child" if actor in CHILDREN else "peer"
        self.stated[key] = CLAIMED[said.mode] if attested else None
        if self.evidence(actor).transport not in WITHIN and not self.origins[key][1]:
            self.beyond.add(key)
        outcome = now.outcome if now is not None else new[key].state
        assert outcome == self.verdict(key, self.mode)
        assert msg_id not in self.outcomes
        assert address != self.bob.address
        assert said.to in (None, "bob")
        self.effect(key, outcome, "" if msg_id is None else (now.body if now else ""))
        if outcome == "accepted":
            assert unread < LIMITS.max_unread
        if new:
            self.compare(key, new[key], said.name if attested else None)
            assert new[key].text == (envelope.escape_body(said.body) if attested else content)
        if attested:
            assert len(tokens) <= LIMITS.max_chain_length
            assert tokens.count(self.own_token()) <= LIMITS.max_self_hops

    def own_token(self) -> str:
        return token_of(self.bob.address or "", b"bob")

    def seen(self) -> dict[Key, Message]:
        """What waits and what is held."""
        messages = [*self.bob.peek(), *(hold.message for hold in self.bob.held())]
        assert len({key_of(message) for message in messages}) == len(messages)
        return {key_of(message): message for message in messages}

    def effect(self, key: Key, outcome: str, body: str) -> None:
        """A message was accepted, held or refused."""
        assert key not in self.settled
        self.settled[key] = (outcome, body)
        now = self.room.now
        bucket = self.buckets.setdefault(key[0], Bucket(LIMITS.bucket_capacity, now))
        bucket.spend(LIMITS.bucket_capacity, LIMITS.refill_per_second, now)
        self.total.spend(LIMITS.total_capacity, LIMITS.total_refill_per_second, now)
        if outcome == "accepted":
            self.waiting.add(key)
        elif outcome == "held":
            self.holds.add(key)

    def compare(self, key: Key, message: Message, name: str | None) -> None:
        """The origin of a message is what its connection says."""
        identity, verified, address = self.origins[key]
        origin = message.origin
        assert (origin.identity, origin.verified, origin.address) == (identity, verified, address)
        assert origin.kind == self.kinds[key]
        assert origin.stated_class == self.stated[key]
        if address is not None:
            assert origin.name == next(one.name for one in self.peers.values() if one.id == identity)
        elif not verified:
            assert origin.name == name
        else:
            assert origin.name == "a process of this session"

    @rule(many=st.lists(CONTROLS, min_size=1, max_size=6))
    def control_frames(self, many: list[Control]) -> None:
        for said in many:
            self.control_frame(said)

    def control_frame(self, said: Control) -> None:
        address = self.address(said.actor, said.given)
        frame = {
            **said.invented,
            "type": "control",
            "action": said.action,
            "msg_id": "c-1",
            "from": address,
            "orig_msg_id": said.about,
            "status": said.status,
            "dropped_msg_ids": said.more or None,
            "state": said.state,
            "reason": said.words,
            "name": "bob-3",
            "mode": "never",
            "from_mode": "bypass",
        }
        here, told = self.seen(), len(self.bob.peek_notices())
        assert self.write(said.actor, json.dumps(frame).encode()) == []
        assert self.seen() == here
        _, _, where = self.sender(said.actor, address)
        if where != self.peers["alice"].address:  # bob has written to alice alone
            assert self.bob_sent() == self.outcomes
        if where is None:
            assert len(self.bob.peek_notices()) == told
        for msg_id, known in self.bob_sent().items():
            assert known in (self.outcomes[msg_id], *notices.SENDER_STEPS.get(self.outcomes[msg_id], ()))
            self.outcomes[msg_id] = known

    def bob_sent(self) -> dict[str, str]:
        """What bob knows of the messages that it sent."""
        found = {msg_id: self.bob.store.sent(msg_id) for msg_id in ("b-1", "b-2")}
        return {msg_id: sent.state for msg_id, sent in found.items() if sent is not None}

    @rule(actor=st.sampled_from(ACTORS), line=LINES)
    def other_line(self, actor: str, line: bytes) -> None:
        here = self.seen()
        assert self.write(actor, line.replace(b"\n", b" ")) == []
        assert self.seen() == here
        assert self.bob_sent() == self.outcomes

    @rule(
        text=st.sampled_from(["hello", "status", "hello again"]),
        to_answer=st.sampled_from([None, "m-1", "x"]),
    )
    def alice_sends(self, text: str, to_answer: str | None) -> None:
        """By the library, as a session does."""
        before, unread = known_of(self.bob), self.bob.store.unread

        async def work() -> str | None:
            result = await self.peers["alice"].send("bob", text, summary="s", in_reply_to=to_answer)
            await turns()
            return result.msg_id if isinstance(result, Receipt) else None

        msg_id = self.run(work())
        assert known_of(self.bob) == before
        if msg_id is None:
            return
        alice = self.peers["alice"]
        key = (alice.id, msg_id)
        settled = self.bob.store.settled(*key)
        assert settled is not None
        self.origins[key] = (alice.id, True, alice.address)
        self.kinds[key] = "peer"
        self.stated[key] = "prompting"
        assert settled.outcome == self.verdict(key, self.mode)
        self.effect(key, settled.outcome, settled.body)
        assert settled.outcome != "accepted" or unread < LIMITS.max_unread

    # ── decisions ────────────────────────────────────────────────────────────────────────────────

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), approve=st.booleans(), always=st.booleans(), note=st.sampled_from([None, "go on"]))
    def decide(self, data: st.DataObject, approve: bool, always: bool, note: str | None) -> None:
        msg_id = data.draw(st.sampled_from(sorted(key[1] for key in self.holds)))
        past = self.past()

        async def work() -> object:
            bob = self.bob
            result = bob.approve(msg_id, always=always, note=note) if approve else bob.deny(msg_id, note=note)
            await turns()
            return result

        result = self.run(work())
        self.end(past)
        meant = [key for key in self.holds if key[1] == msg_id]
        if not isinstance(result, Decided):
            # Of two senders' messages with one id none is meant; nobody accepts for ever whom nobody knows.
            assert len(meant) != 1 or (approve and always and self.origins[meant[0]][2] is None)
            return
        assert (result.msg_id, len(meant)) == (msg_id, 1)
        if approve:
            self.release(meant[0])
        else:
            self.end(set(meant))
        if approve and always:
            self.always.add(meant[0][0])
            self.rejudge()

    @precondition(lambda self: self.always)
    @rule()
    def revoke(self) -> None:
        async def work() -> None:
            [first, *_] = self.bob.rules()
            self.bob.revoke(first.id)
            self.always.discard(first.identity)

        self.run(work())

    def past(self) -> set[Key]:
        """The holds whose time is over."""
        now = self.room.now
        return {key_of(hold.message) for hold in self.bob.held() if (hold.expires_at or now + 1) <= now}

    def end(self, keys: set[Key]) -> None:
        """These holds have ended."""
        self.holds -= keys
        self.gone |= keys

    def release(self, key: Key) -> None:
        """This hold was let in, and so its id is settled as accepted."""
        self.holds.discard(key)
        self.waiting.add(key)
        self.settled[key] = ("accepted", self.settled[key][1])

    def rejudge(self, keys: set[Key] | None = None) -> None:
        """The ladder is run over holds again: let in is what passes by the mode that was reported, and by a person's."""
        for key in sorted(self.holds if keys is None else keys):
            verdicts = {self.verdict(key, self.confirmed), self.verdict(key, self.mode)}
            if verdicts == {"accepted"}:
                self.release(key)
            elif verdicts == {"refused"}:
                self.end({key})

    @rule(mode=st.sampled_from(sorted(CLASSES)), by=st.sampled_from(["child", "person", "client"]))
    def set_mode(self, mode: str, by: Reporter) -> None:
        async def work() -> None:
            self.bob.set_mode(mode, by=by)
            await turns()

        self.run(work())
        self.mode = mode
        if by != "child":
            self.confirmed = mode
            self.rejudge()

    @rule(value=st.sampled_from([None, "accept", "hold", "refuse"]))
    def apply(self, value: InboundValue | None) -> None:
        async def work() -> None:
            self.bob.apply(setting_of(value))
            await turns()

        self.run(work())
        self.setting = value
        self.rejudge()

    @rule(seconds=st.sampled_from([1, 2, 10, 31, 299, 301]))
    def pass_time(self, seconds: int) -> None:
        self.room.now += seconds * 1000
        past = self.past()

        async def work() -> None:
            self.bob.tick()
            await turns()

        self.run(work())
        self.end(past)

    # ── the session's own loop ───────────────────────────────────────────────────────────────────

    @rule(limit=st.none() | st.integers(1, 2), later=st.booleans())
    def take(self, limit: int | None, later: bool) -> None:
        async def work() -> Lease:
            return self.bob.take(limit=limit, later=later)

        lease = self.run(work())
        keys = {key_of(message) for message in lease.messages}
        assert len(keys) == len(lease.messages)
        assert keys <= self.waiting
        for message in lease.messages:
            key, origin = key_of(message), message.origin
            assert (origin.identity, origin.verified, origin.address) == self.origins[key]
            assert origin.kind == self.kinds[key]
        self.waiting -= keys
        if lease:
            self.leased[lease.id] = (lease, keys)

    @precondition(lambda self: self.leased)
    @rule(confirm=st.booleans())
    def give(self, confirm: bool) -> None:
        lease, keys = self.leased.pop(next(iter(self.leased)))

        async def work() -> None:
            (self.bob.confirm if confirm else self.bob.release)(lease)
            await turns()

        self.run(work())
        (self.gone if confirm else self.waiting).update(keys)

    @rule(msg_id=st.sampled_from(["b-1", "b-2"]))
    def bob_sends(self, msg_id: str) -> None:
        async def work() -> object:
            result = await self.bob.send("alice", f"to alice {self.room.now}", summary="s", msg_id=msg_id)
            await turns()
            self.peers["alice"].drain()
            return result

        self.run(work())
        self.outcomes = self.bob_sent()

    @rule(
        how=st.sampled_from(["kill", "kill", "close"]),
        value=st.sampled_from(["same", "same", None, "accept", "hold", "refuse"]),
    )
    def restart(self, how: str, value: str | None) -> None:
        """The session is interrupted or ends, and comes back: what is settled stays so, and so do holds and mail."""
        past = self.past()
        by_setting = {key_of(hold.message) for hold in self.bob.held() if hold.cause == "explicit-setting"}
        self.waiting |= {key for _, keys in self.leased.values() for key in keys}
        self.leased.clear()
        if value != "same":
            self.setting = cast("InboundValue | None", value)

        async def work() -> None:
            if how == "kill":
                self.desk.kill()
                self.bob.leave()
                await self.bob.close()
                self.room.hub.ends.pop(self.bob.address or "", None)
            await self.inside.aclose()
            if how == "close":
                self.desk.reopen()
            await self._open()
            await turns()

        self.run(work())
        self.end(set(self.holds) if how == "close" else past)
        # What the default rules said stays as it was; what a setting said, or says now, is judged anew.
        self.rejudge(self.holds & by_setting if self.setting is None else None)
        self.outcomes = self.bob_sent()

    # ── what always holds ────────────────────────────────────────────────────────────────────────

    @precondition(lambda self: bool(self.peers))
    @invariant()
    def what_waits_and_what_is_held_is_what_the_model_says(self) -> None:
        waiting = Counter(key_of(message) for message in self.bob.peek())
        assert waiting == Counter(self.waiting)
        assert Counter(key_of(hold.message) for hold in self.bob.held()) == Counter(self.holds)
        assert {rule.identity for rule in self.bob.rules()} == self.always
        assert (self.bob.standing.mode, self.bob.name) == (self.mode, "bob")
        assert self.bob.standing.settings == setting_of(self.setting)

    @precondition(lambda self: bool(self.peers))
    @invariant()
    def what_was_decided_stays_decided(self) -> None:
        for key, (outcome, body) in self.settled.items():
            found = self.bob.store.settled(*key)
            assert found is not None
            assert (found.outcome, body or found.body) == (outcome, found.body)


class InboundOnDisk(Inbound):
    desk_of = SqliteDesk


shows = pytest.mark.rule("11.7", "11.9", "03.8", "03.18", "03.64", "11.5", "04.15")

TestInbound = shows(Inbound.TestCase)
TestInbound.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

TestInboundOnDisk = shows(InboundOnDisk.TestCase)
TestInboundOnDisk.settings = settings(max_examples=12, stateful_step_count=30, deadline=None)
