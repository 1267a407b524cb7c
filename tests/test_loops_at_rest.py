"""Loops between whole sessions come to rest by their chain, whoever takes part (chapter 03, Loop guard).

In process the clock stands still, so every count is exact, and no token ever comes back that could hide a loop. The last
part runs on real processes, whose loops are small programs. What buckets hold is in `test_loop_limits`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom import Receipt, Session
from tests.desk import Desk, wait_until
from tests.rings import Agent, chained, counts, made_up, parties, ring, sent, token, until_rest, words
from tests.room import Line, Room, frame_of
from tests.strangers import private_desk
from tests.transports.ends import run, turns

CHAIN, SELF, BUCKET = 28, 10, 30
"""The limits that stand in chapter 03."""

TURN_MS, CONTINUED_MS = 60_000, 600_000
"""How long a turn lasts that nobody reports, and how long an answer without a chain continues one (03.66)."""

CHAINS_ALONE = ("postroom_chain",)
"""What a session announces that carries chains and confirms nothing: others send to it as to a neighbour."""


# ── at rest by their chain ───────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.68", "11.9", "03.62", "03.66", "03.55")
def test_three_that_pass_everything_on_come_to_rest() -> None:
    """After 28 deliveries, nine or ten each; the last sender hears it in its acknowledgement, and nobody gets a notice."""

    async def work() -> None:
        async with ring(Room(), "a", "b", "c") as agents:
            assert await sent(agents[0].session, "b") == "queued"
            await until_rest(*agents)
            assert counts(agents) == [9, 10, 9]
            assert sum(counts(agents)) == CHAIN
            assert words(agents) == {"queued": CHAIN - 1, "hop_runaway": 1}
            assert [agent.told for agent in agents] == [[], [], []]
            assert [agent.session.counts for agent in agents] == [{}, {}, {}]  # nor was one ignored
            # Each message says where it has been, its sender last.
            tokens = [token(agent.session) for agent in agents]
            assert agents[1].got[-1].hop_chain == tuple(tokens * 9 + tokens[:1])

    run(work())


@pytest.mark.rule("03.68", "03.55", "03.49")
def test_where_nobody_asks_for_an_acknowledgement_the_last_sender_gets_one_notice() -> None:
    """The same three as neighbours see each other: 28 deliveries, one `dropped` notice, and no answer to that."""

    async def work() -> None:
        async with ring(Room(), "a", "b", "c", features=CHAINS_ALONE) as agents:
            assert await sent(agents[0].session, "b") == "written"
            await until_rest(*agents)
            assert counts(agents) == [9, 10, 9]
            assert words(agents) == {"written": CHAIN}
            assert [agent.told for agent in agents] == [[], ["dropped"], []]
            assert [agent.session.counts for agent in agents] == [{}, {}, {}]

    run(work())


@pytest.mark.rule("03.68", "11.9", "03.61", "03.65")
def test_two_that_acknowledge_for_ever_come_to_rest() -> None:
    """A session is returned to ten times, and then hears that it goes around in a loop."""

    async def work() -> None:
        async with ring(Room(), "a", "b") as agents:
            for agent in agents:
                agent.says = "acknowledged {}".format
            assert await sent(agents[0].session, "b") == "queued"
            await until_rest(*agents)
            assert counts(agents) == [SELF, SELF + 1]
            assert words(agents) == {"queued": 2 * SELF, "hop_loop": 1}
            assert [agent.told for agent in agents] == [[], []]

    run(work())


@pytest.mark.rule("03.68", "03.55")
def test_two_neighbours_that_acknowledge_for_ever_get_one_notice() -> None:
    async def work() -> None:
        async with ring(Room(), "a", "b", features=CHAINS_ALONE) as agents:
            assert await sent(agents[0].session, "b") == "written"
            await until_rest(*agents)
            assert counts(agents) == [SELF, SELF + 1]
            assert [agent.told for agent in agents] == [[], ["dropped"]]

    run(work())


@pytest.mark.rule("03.68", "11.9")
@settings(max_examples=25)
@given(data=st.data())
def test_whatever_way_a_chain_takes_it_comes_to_rest(data: st.DataObject) -> None:
    """Two to twelve sessions, each of which writes to any other, another one each time: the bound is the same."""
    count = data.draw(st.integers(2, 12), label="sessions")
    first = data.draw(st.integers(0, count - 1), label="first")

    async def work() -> None:
        async with ring(Room(), *(f"s{number}" for number in range(count))) as agents:

            def choose(agent: Agent) -> None:
                others = [one.session.name for one in agents if one is not agent]
                agent.to = data.draw(st.sampled_from(others))

            for agent in agents:
                choose(agent)
            assert await sent(agents[first].session, agents[first].to) == "queued"
            for _ in range(CHAIN + 1):
                for agent in agents:
                    if agent.session.peek():
                        choose(agent)
                        await agent.turn()
            for agent in agents:
                assert not await agent.turn()
            assert sum(counts(agents)) <= CHAIN
            assert max(counts(agents)) <= SELF + 1  # one more than it is returned to, where another began
            assert len(agents[first].got) <= SELF
            assert len(words(agents) - Counter(queued=CHAIN)) == 1

    run(work())


@pytest.mark.rule("03.66")
def test_an_input_that_no_peer_caused_starts_afresh() -> None:
    """A loop at rest stays at rest for what it caused; what a person says begins a new chain."""

    async def work() -> None:
        async with ring(Room(), "a", "b") as agents:
            for round_ in range(2):
                assert await sent(agents[0].session, "b", f"the user asks {round_}") == "queued"
                await until_rest(*agents)
                assert sum(counts(agents)) == (round_ + 1) * (2 * SELF + 1)

    run(work())


# ── which chain a message carries ────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.66")
def test_an_answer_carries_the_chain_of_what_it_answers() -> None:
    """And what answers nothing that of the latest input of the turn; after the turn, none but its own token."""

    async def work() -> None:
        room = Room()
        async with room.open("a") as a, room.open("x") as x, room.open("y") as y:
            first = await x.send("a", "from x", summary="s")
            assert isinstance(first, Receipt)
            await y.send("a", "from y", summary="s")
            a.confirm(a.take())
            assert await sent(a, "x", "answers", in_reply_to=first.msg_id) == "queued"
            assert await sent(a, "x", "says") == "queued"
            assert not a.take()
            assert await sent(a, "x", "asks") == "queued"
            # Long after the turn has ended, what an answer answers is still known.
            room.now += 10 * TURN_MS
            assert await sent(a, "x", "answers late", in_reply_to=first.msg_id) == "queued"
            found = {message.text: message.hop_chain for message in x.drain()}
            assert found == {
                "answers": (token(x), token(a)),
                "says": (token(y), token(a)),
                "asks": (token(a),),
                "answers late": (token(x), token(a)),
            }

    run(work())


@pytest.mark.rule("03.66")
def test_a_turn_that_nobody_reports_lasts_a_minute_and_one_that_is_reported_until_its_end() -> None:
    async def work() -> None:
        room = Room()
        async with room.open("a") as a, room.open("x") as x:
            for reported in (False, True):
                await sent(x, "a", f"hello {reported}")
                a.confirm(a.take())
                if reported:
                    a.began_turn()
                    assert not a.take()
                room.now += TURN_MS - 1
                await sent(a, "x", "one")
                room.now += 1
                await sent(a, "x", "two")
                a.ended_turn()
                await sent(a, "x", "three")
                chains = [message.hop_chain for message in x.drain()]
                own, both = (token(a),), (token(x), token(a))
                assert chains == [both, both if reported else own, own]
                assert not x.take()

    run(work())


@pytest.mark.rule("03.66", "03.68")
def test_who_goes_on_answering_the_first_message_comes_to_rest_all_the_same() -> None:
    """Each answer names the message that began the thread; what it is caused by is the latest input."""

    async def work() -> None:
        async with ring(Room(), "a", "b") as agents:
            for agent in agents:
                agent.answers_first = True
            assert await sent(agents[0].session, "b") == "queued"
            await until_rest(*agents)
            assert counts(agents) == [SELF, SELF + 1]
            assert words(agents)["hop_loop"] == 1

    run(work())


async def answered_by_hand(room: Room, agent: Agent, peer: Session, number: int) -> str:
    """What bob says to an answer that a peer writes by hand, without a chain; then gives bob its turn."""
    line = room.line_from(peer)
    agent.session.arrive(frame_of(f"answer {number}", f"m-{number}", address=peer.address), line)
    await turns(5)
    await agent.turn()
    return line.answers[0][2] or line.answers[0][1]


@pytest.mark.rule("03.66", "03.61")
def test_a_peer_that_knows_no_chains_continues_the_one_that_it_was_written_with() -> None:
    """A loop with it comes to rest as any other does; ten minutes after it was last written to it starts afresh."""

    async def work() -> None:
        room = Room()
        async with (
            room.open("bob", limits=None) as bob,
            room.open("nan", features=("postroom_ack",), limits=None) as nan,
        ):
            agent = Agent(bob, "nan")
            assert await sent(bob, "nan", "the user asks") == "queued"
            said = [await answered_by_hand(room, agent, nan, number) for number in range(SELF + 1)]
            assert said == ["queued"] * SELF + ["hop-loop"]
            assert [message.hop_chain for message in agent.got] == [
                (token(bob),) * (number + 1) for number in range(SELF)
            ]
            room.now += CONTINUED_MS - 1
            assert await answered_by_hand(room, agent, nan, 100) == "hop-loop"
            room.now += 1
            assert await answered_by_hand(room, agent, nan, 101) == "queued"
            assert agent.got[-1].hop_chain == ()

    run(work())


@pytest.mark.rule("03.66", "03.58", "03.68")
def test_a_peer_that_announces_chains_and_sends_none_states_a_fresh_input() -> None:
    """One that lies about it is held by its bucket, and no sooner."""

    async def work() -> None:
        room = Room()
        async with room.open("bob", limits=None) as bob, room.open("liar", limits=None) as liar:
            agent = Agent(bob, "liar")
            said: list[str] = []
            for number in range(BUCKET + 5):
                said.append(await answered_by_hand(room, agent, liar, number))
                liar.drain()
            assert said == ["queued"] * BUCKET + ["rate-limited"] * 5
            assert {message.hop_chain for message in agent.got} == {()}

    run(work())


# ── chains that no session of ours made ──────────────────────────────────────────────────────────


MALFORMED = {
    "empty": "",
    "blank": " ",
    "short": "0" * 23,
    "long": "0" * 25,
    "capitals": "A" * 24,
    "no-hex": "g" * 24,
    "trailing": f"{'0' * 24},",
    "leading": f",{'0' * 24}",
    "spaced": f"{'0' * 24}, {'1' * 24}",
    "33": ",".join(made_up(33)),
    "1000": ",".join(made_up(1000)),
    "digits": "٠" * 24,
    "newline": f"{'0' * 24}\n",
}


@pytest.mark.rule("03.62", "03.61", "03.65")
def test_chains_that_are_made_up_count_as_they_stand() -> None:
    """28 tokens pass and 29 do not; this session's own among them ten times and not eleven; too long goes first."""

    async def work() -> None:
        async with Room().open("bob", limits=None) as bob:
            own = token(bob)
            chains = [
                (made_up(CHAIN), "queued"),
                (made_up(CHAIN + 1), "hop-runaway"),
                (made_up(32), "hop-runaway"),
                ([own] * SELF + made_up(CHAIN - SELF), "queued"),
                ([own] * (SELF + 1), "hop-loop"),
                ([*made_up(9), own] * 2, "queued"),
                ([own] * (CHAIN + 1), "hop-runaway"),
                (["0" * 24] * CHAIN, "queued"),
            ]
            for number, (chain, expected) in enumerate(chains):
                line = Line()
                bob.arrive(chained(f"m-{number}", ",".join(chain)), line)
                status, reason = line.answers[0][1:]
                assert (reason or status) == expected, (number, chain)
            assert [len(message.hop_chain) for message in bob.drain()] == [CHAIN, CHAIN, 20, CHAIN]

    run(work())


@pytest.mark.rule("03.66", "04.1", "11.7")
@pytest.mark.parametrize("chain", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_chain_makes_the_text_an_opaque_one(chain: str) -> None:
    """What is no canonical envelope has no chain, no name and no class, and its text is the whole of it."""

    async def work() -> None:
        async with Room().open("bob", limits=None) as bob:
            frame, line = chained("m-1", chain), Line()
            bob.arrive(frame, line)
            assert line.statuses == ["queued"]
            [message] = bob.drain()
            assert (message.hop_chain, message.text) == ((), frame.message.content)
            assert (message.origin.name, message.origin.stated_class) == (None, None)

    run(work())


@pytest.mark.rule("03.68", "03.58", "11.9")
def test_no_chain_buys_a_message_more() -> None:
    """Short ones, long ones, malformed ones and none, from one process: its bucket counts them all."""

    async def work() -> None:
        async with Room().open("bob", limits=None) as bob:
            chains = [None, ",".join(made_up(3)), ",".join(made_up(31)), *MALFORMED.values()]
            line = Line()
            for number in range(20 * len(chains)):
                chain, msg_id = chains[number % len(chains)], f"m-{number}"
                bob.arrive(frame_of(msg_id, msg_id) if chain is None else chained(msg_id, chain), line)
                bob.drain()
            assert line.statuses.count("queued") == BUCKET

    run(work())


# ── report 49 ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.60")
@pytest.mark.parametrize("answer", ["acknowledged", "👍", "?", "OK."])
def test_report_49_acknowledgements_without_content_are_damped(answer: str) -> None:
    """Two that say the same to everything: each is heard once, and hears in its acknowledgement that it repeats itself."""

    async def work() -> None:
        async with ring(Room(), "a", "b") as agents:
            for agent in agents:
                agent.says = lambda _: answer
            assert await sent(agents[0].session, "b", "status, please") == "queued"
            await until_rest(*agents)
            assert counts(agents) == [1, 2]
            assert words(agents) == {"queued": 2, "duplicate": 1}

    run(work())


@pytest.mark.rule("01.20", "03.7")
def test_report_49_a_message_to_oneself_is_not_sent() -> None:
    """Ten times by its name, its former name, its ref and its address; and by hand as its own frame: none arrives."""

    async def work() -> None:
        room = Room()
        async with room.open("a", limits=None) as a:
            a.rename("b")
            for number, to in enumerate(["b", "a", f"b [{a.ref}]", "B", a.address or ""] * 2):
                assert await sent(a, to, f"note to self {number}") in ("cannot_message_self", "not_found"), to
            assert await sent(a, "b", "again") == "cannot_message_self"
            line = room.line_from(a)
            a.arrive(frame_of("note to self", "m-1", address=a.address), line)
            assert line.answers == [("m-1", "dropped", "self-echo")]
            assert a.peek() == []
            assert a.peek_notices() == ()

    run(work())


# ── real processes ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A desk of one's own."""
    with private_desk() as desk:
        yield desk


@pytest.mark.rule("03.68", "11.9")
@pytest.mark.parametrize(
    ("names", "end", "deliveries", "most"),
    [("abc", "hop_runaway", CHAIN, 10), ("ab", "hop_loop", 2 * SELF + 1, SELF + 1)],
    ids=["three", "two"],
)
def test_report_49_loops_of_real_processes_come_to_rest(
    desk: Desk, names: str, end: str, deliveries: int, most: int
) -> None:
    """A person says one word, and a ring of programs passes it on for ever: the chain ends it, and one of them is told."""
    logs = {name: desk.folder / f"{name}.log" for name in names}
    following = dict(zip(names, names[1:] + names[0], strict=True))
    calls = [(name, following[name], str(logs[name])) for name in names]
    with parties(desk, "passing.py", *calls):
        assert desk.ok("send", "a", "status, please")["status"] == "queued"
        for log in logs.values():
            wait_until(log.exists)
        wait_until(lambda: any(f"said {end}" in log.read_text() for log in logs.values()))
        said = {name: Counter(log.read_text().splitlines()) for name, log in logs.items()}
    said["a"]["got"] -= 1  # the person's word, which bears no chain
    assert sum(each["got"] for each in said.values()) == deliveries
    assert max(each["got"] for each in said.values()) <= most
    heard = sum(said.values(), Counter[str]()) - Counter(got=deliveries)
    assert heard == {"said queued": deliveries, f"said {end}": 1}
