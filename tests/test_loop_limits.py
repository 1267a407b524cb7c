"""Whatever a sender does, its bucket holds it, and the bucket of all holds all (chapter 03, Loop guard).

In process the clock stands still, so every count is exact. The last part runs on real processes. Loops that end by their
chain are in `test_loops_at_rest`.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from postroom import Limits, Refusal, Session
from postroom.core.settings import DEFAULTS, Settings, effective, read_layer
from postroom.transport import Evidence
from tests.desk import Desk, wait_until
from tests.rings import Agent, chained, counts, made_up, parties, ring, sent, token, until_rest, words
from tests.room import Line, Room, frame_of, texts
from tests.strangers import Raw, private_desk
from tests.transports.ends import run, turns

BUCKET, TOTAL = 30, 120
"""The limits that stand in chapter 03."""


# ── buckets ──────────────────────────────────────────────────────────────────────────────────────


def flood(bob: Session, line: Line, count: int, tag: str) -> int:
    """Writes so many messages that strip their chain and vary their text; returns how many were delivered."""
    before = line.statuses.count("queued")
    for number in range(count):
        # A name, an address and a class in each: the key is the process, whatever stands in the text.
        named = f"{tag}{number}"
        bob.arrive(frame_of(f"{tag} {number}", f"{tag}-{number}", name=named, address=f"uds:/{named}"), line)
    bob.drain()
    return line.statuses.count("queued") - before


@pytest.mark.rule("03.58", "03.57", "03.68", "11.9")
def test_a_sender_that_strips_chains_and_varies_its_text_is_held_to_its_bucket() -> None:
    """Thirty at once and one more each two seconds, under whatever names and addresses it writes."""

    async def work() -> None:
        room = Room()
        async with room.open("bob", limits=None) as bob:
            line = Line()
            assert flood(bob, line, 200, "a") == BUCKET
            assert {reason for _, status, reason in line.answers if status == "dropped"} == {"rate-limited"}
            room.now += 10_000
            assert flood(bob, line, 200, "b") == 5
            room.now += 3_600_000
            assert flood(bob, line, 200, "c") == BUCKET

    run(work())


@pytest.mark.rule("03.59", "03.68", "11.9")
def test_all_senders_together_are_held_to_the_total() -> None:
    """However many processes write: 120 at once and four more each second, none of them over its own bucket."""

    async def work() -> None:
        room = Room()
        async with room.open("bob", limits=None) as bob:
            lines = [Line(Evidence("memory", 5000 + number, "s")) for number in range(12)]
            got = [flood(bob, line, 40, "a") for line in lines]
            assert (sum(got), max(got)) == (TOTAL, BUCKET)
            room.now += 5_000
            assert sum(flood(bob, line, 40, "b") for line in lines) == 20

    run(work())


@pytest.mark.rule("03.59", "03.68")
def test_more_senders_than_are_tracked_are_held_to_the_total() -> None:
    """A thousand processes, each of which is forgotten before it writes again: the bucket of all holds them."""

    async def work() -> None:
        room = Room()
        limits = replace(Limits(), max_tracked_senders=16)
        async with room.open("bob", settings=replace(DEFAULTS, limits=limits), limits=None) as bob:
            got = 0
            for round_ in range(5):
                for number in range(200):
                    got += flood(bob, Line(Evidence("memory", 5000 + number, "s")), 1, f"{round_}-{number}")
            assert got == TOTAL

    run(work())


@pytest.mark.rule("03.60", "03.65")
def test_a_repeat_is_dropped_whatever_its_white_space_and_punctuation() -> None:
    """For thirty seconds, of the same sender alone, and only beside the message right before it."""

    async def work() -> None:
        room = Room()
        async with room.open("bob", limits=None) as bob:
            line, other = Line(), Line(Evidence("memory", 4001, "other"))
            said = [
                "Acknowledged.",
                "acknowledged",
                "Acknowledged",
                " Acknowledged !\n",
                "\u2026Acknowledged",
            ]
            for number, text in enumerate(said):
                bob.arrive(frame_of(text, f"m-{number}"), line)
            assert line.statuses == ["queued", "queued", "queued", "dropped", "dropped"]
            assert line.answers[-1][2] == "duplicate"
            bob.arrive(frame_of("Acknowledged", "m-0"), other)
            assert other.statuses == ["queued"]
            room.now += 30_000
            bob.arrive(frame_of("Acknowledged", "m-9"), line)
            assert line.statuses[-1] == "queued"

    run(work())


# ── the sender's side ────────────────────────────────────────────────────────────────────────────


def limited(**changes: int) -> Settings:
    """The settings with these limits."""
    return replace(DEFAULTS, limits=replace(Limits(), **changes))


@pytest.mark.rule("03.67")
def test_a_sender_refuses_its_own_burst() -> None:
    """The thirty-first is not sent: how many went there, when the next one fits, and what to do. Another target is free."""

    async def work() -> None:
        room = Room()
        async with (
            room.open("a", limits=None) as a,
            room.open("bob", limits=None) as bob,
            room.open("carol", limits=None) as carol,
        ):
            for number in range(BUCKET):
                assert await sent(a, "bob", f"message {number}") == "queued"
            refusal = await a.send("bob", "one more", summary="s")
            assert isinstance(refusal, Refusal)
            assert refusal.code == "sender_burst"
            assert (
                refusal.message == f"{BUCKET} messages went to bob just now, and its limit would drop more."
            )
            assert "fits in 2 s" in refusal.hint
            assert "into one message" in refusal.hint
            assert len(bob.peek()) == BUCKET
            assert [step.state for step in bob.store.steps("one more")] == []
            assert await sent(a, "carol", "another target") == "queued"
            assert texts(carol.drain()) == ["another target"]
            room.now += 1_500
            refusal = await a.send("bob", "one more", summary="s")
            assert isinstance(refusal, Refusal)
            assert "fits in 1 s" in refusal.hint
            room.now += 500
            assert await sent(a, "bob", "one more") == "queued"
            assert await sent(a, "bob", "and another") == "sender_burst"

    run(work())


@pytest.mark.rule("03.67", "05.24")
def test_a_message_that_is_held_gives_its_token_back() -> None:
    """Five tokens: five that are held and five more, while five that are accepted are all."""

    async def work() -> None:
        room = Room()
        async with (
            room.open("a", settings=limited(bucket_capacity=5), limits=None) as a,
            room.open("bob", limits=None, mode="bypassPermissions") as bob,
            room.open("carol", limits=None) as carol,
        ):
            for to, more in (("bob", "queued"), ("carol", "sender_burst")):
                for round_ in ("first", "second"):
                    said = {await sent(a, to, f"{round_} {number}") for number in range(5)}
                    await turns(50)
                    assert said == {"queued" if round_ == "first" else more}, to
            assert (len(bob.held()), len(carol.peek())) == (10, 5)
            assert [notice.kind for notice in a.take().notices] == ["held"] * 10

    run(work())


# ── limits from the settings ─────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.36", "03.58", "03.61", "03.64", "03.67")
def test_limits_from_the_settings_apply_at_once() -> None:
    """To what arrives and to what leaves, lower and higher, with what was spent already."""

    async def work() -> None:
        room = Room()
        async with room.open("a", limits=None) as a, room.open("bob", limits=None) as bob:
            line = Line()
            assert flood(bob, line, 10, "a") == 10
            bob.apply(limited(bucket_capacity=5))
            assert flood(bob, line, 10, "b") == 5
            bob.apply(limited(bucket_capacity=500, total_capacity=5_000, max_unread=10))
            room.now += 10_000
            assert flood(bob, line, 10, "c") == 5  # what it has gained since; more is room, not tokens
            bob.apply(limited(max_unread=10))
            others = Line(Evidence("memory", 4001, "other"))
            assert flood(bob, others, 12, "d") == 10
            bob.apply(limited(max_unread=12))
            assert flood(bob, others, 14, "e") == 12
            bob.apply(limited(max_self_hops=3))
            bob.arrive(chained("m-1", ",".join([token(bob)] * 4)), line)
            assert line.answers[-1][2] == "hop-loop"
            bob.apply(limited(max_chain_length=8, bucket_capacity=500))
            bob.arrive(chained("m-2", ",".join(made_up(9))), line)
            assert line.answers[-1][2] == "hop-runaway"
            bob.apply(DEFAULTS)
            for number in range(6):
                await sent(a, "bob", f"message {number}")
            a.apply(limited(bucket_capacity=5))
            said = [await sent(a, "bob", f"more {number}") for number in range(6)]
            assert said == ["queued"] * 5 + ["sender_burst"]

    run(work())


@pytest.mark.rule("03.23", "03.62", "03.68")
def test_a_loop_ends_where_the_settings_say_and_never_beyond_the_range() -> None:
    """A limit of eight ends it after eight; one of a million counts as 31, the most that an envelope can say."""

    async def work() -> None:
        for wished, most in ((8, 8), (10**6, 31)):
            values = {"maxChainLength": wished, "maxSelfHops": 28}
            layer = read_layer("user", "settings.json", {"limits": values})
            async with ring(Room(), "a", "b", "c", settings=effective([layer])) as agents:
                assert await sent(agents[0].session, "b") == "queued"
                await until_rest(*agents)
                assert sum(counts(agents)) == most
                assert words(agents)["hop_runaway"] == 1

    run(work())


# ── report 49 ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.58")
def test_report_49_eleven_lawful_reports_of_a_coordinator_pass() -> None:
    """It hears of eleven workers and reports each to its lead, and hands out and collects eleven tasks: nothing is dropped."""

    async def work() -> None:
        room = Room()
        async with contextlib.AsyncExitStack() as stack:
            lead = await stack.enter_async_context(room.open("lead", limits=None))
            coordinator = await stack.enter_async_context(room.open("coordinator", limits=None))
            workers = [
                Agent(await stack.enter_async_context(room.open(f"w{number}", limits=None)), "coordinator")
                for number in range(11)
            ]
            assert await sent(lead, "coordinator", "begin") == "queued"
            coordinator.drain()
            for worker in workers:
                assert await sent(coordinator, worker.session.name, "your task") == "queued"
                await worker.turn()
            reports = coordinator.take()
            assert len(reports.messages) == 11
            for number, report in enumerate(reports.messages):
                answered = report.msg_id if number % 2 else None
                assert await sent(coordinator, "lead", f"report {number}", in_reply_to=answered) == "queued"
            assert texts(lead.drain()) == [f"report {number}" for number in range(11)]
            assert {worker.said[0] for worker in workers} == {"queued"}

    run(work())


@pytest.mark.rule("03.67")
@pytest.mark.parametrize(("capacity", "passed"), [(5, 5), (10, 10), (11, 11)])
def test_report_49_the_lawful_case_passes_under_a_budget_that_allows_it(capacity: int, passed: int) -> None:
    """Where the budget is set lower, the coordinator is told when to go on, and nothing is lost without a word."""

    async def work() -> None:
        room, budget = Room(), limited(bucket_capacity=capacity)
        async with (
            room.open("coordinator", settings=budget, limits=None) as coordinator,
            room.open("lead", settings=budget, limits=None) as lead,
        ):
            said = [await sent(coordinator, "lead", f"report {number}") for number in range(11)]
            assert said == ["queued"] * passed + ["sender_burst"] * (11 - passed)
            for number in range(passed, 11):
                room.now += 2_000
                assert await sent(coordinator, "lead", f"report {number}") == "queued"
            assert texts(lead.drain()) == [f"report {number}" for number in range(11)]

    run(work())


# ── real processes ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A desk of one's own."""
    with private_desk() as desk:
        yield desk


@pytest.mark.rule("03.58", "03.59", "03.68", "11.9")
def test_report_49_real_processes_that_keep_to_no_rule_are_held_to_their_buckets(desk: Desk) -> None:
    """Six of them, forty messages each, at once: no more than the limits let in, and each is told which were not."""
    desk.settings(limits={"maxUnread": 500, "refillPerSecond": 0.05, "totalRefillPerSecond": 0.5})
    began = time.monotonic()
    bob = desk.open("bob")
    with parties(desk, "flood.py", *([(bob["socket"], "40")] * 6)) as running:
        for one in running:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        heard: list[dict[str, int]] = []
        for one in running:
            assert one.stdout is not None
            heard.append(json.loads(one.stdout.readline()))
    seconds = time.monotonic() - began  # for what has come back meanwhile
    queued = [each.get("queued", 0) for each in heard]
    assert TOTAL <= sum(queued) <= TOTAL + 0.5 * seconds
    assert max(queued) <= BUCKET + 0.05 * seconds
    assert all(sum(each.values()) == 40 for each in heard)
    assert {word for each in heard for word in each} == {"queued", "rate-limited"}
    assert len(desk.take("bob")) == sum(queued)


@pytest.mark.rule("03.36", "03.64", "03.26")
def test_a_limit_in_the_users_file_applies_while_the_session_runs(desk: Desk) -> None:
    """Ten unread are the most; the file says eleven, and the eleventh is taken, with no command and no restart."""
    limits = {"bucketCapacity": 500, "refillPerSecond": 50, "totalCapacity": 5000}
    desk.settings(limits={**limits, "maxUnread": 10})
    bob = desk.open("bob")
    with Raw(bob["socket"]) as line:
        for number in range(10):
            assert line.post(f"message {number}")["status"] == "queued"
        assert line.post("one more", msg_id="m-11")["status"] == "inbox_full"
        desk.settings(limits={**limits, "maxUnread": 11})
        wait_until(lambda: line.post("one more", msg_id="m-11")["status"] == "queued")
        assert line.post("another", msg_id="m-12")["status"] == "inbox_full"
