"""What every transport promises: one suite over every row of the table in `postroom.transports`.

A rig per scheme makes the ends; everything else is the port. A transport that keeps a promise in another way
(a mailbox acknowledges by a file, not by a frame) says so in its rig's `traits`.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from postroom import transports
from postroom.core import wire
from postroom.core.wire import UserFrame
from postroom.errors import Unsupported
from postroom.transport import Channel, Outcome, Receiver, Transport
from postroom.transports.memory import Hub, MemoryChannel, MemoryTransport
from postroom.transports.uds import Connection, UdsTransport
from tests.transports.ends import Recorder, answered, line, run, silent, turns, until

TOKENS = {"a" * 32: "peer", "b" * 32: "child"}


class Rig(ABC):
    """Makes the ends of one transport, all in one place, and knows how its connections break."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[Transport] = []

    @abstractmethod
    def end(self, name: str, *, tokens: Mapping[str, str] | None = None) -> Transport:
        """An end of this name that does not serve yet."""

    @abstractmethod
    def address(self, name: str) -> str:
        """The address that an end of this name has, served or not."""

    @abstractmethod
    def pid(self) -> int:
        """The process that is behind each end."""

    @abstractmethod
    def cut(self, channel: Channel) -> None:
        """Breaks the connection on which a line came."""

    async def serving(self, name: str, receiver: Receiver) -> str:
        """Makes an end that serves; returns its address."""
        return await self.keep(self.end(name, tokens=TOKENS)).serve(receiver)

    def keep(self, end: Transport) -> Transport:
        """Sees to it that an end is closed when the test is over."""
        self.made.append(end)
        return end

    async def close(self) -> None:
        """Closes every end."""
        for end in self.made:
            await end.close()


class MemoryRig(Rig):
    """Ends at one hub."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.hub = Hub()

    def end(self, name: str, *, tokens: Mapping[str, str] | None = None) -> Transport:
        return self.keep(MemoryTransport(self.hub, name, tokens=tokens))

    def address(self, name: str) -> str:
        return f"memory:{name}"

    def pid(self) -> int:
        return 0

    def cut(self, channel: Channel) -> None:
        cast("MemoryChannel", channel).close()


class UdsRig(Rig):
    """Sockets in one private folder."""

    def end(self, name: str, *, tokens: Mapping[str, str] | None = None) -> Transport:
        return self.keep(UdsTransport(str(self.folder / f"{name}.sock"), tokens=tokens))

    def address(self, name: str) -> str:
        return f"uds:{self.folder}/{name}.sock"

    def pid(self) -> int:
        return os.getpid()

    def cut(self, channel: Channel) -> None:
        cast("Connection", channel).drop()


RIGS: dict[str, Callable[[Path], Rig]] = {"memory": MemoryRig, "uds": UdsRig}


@pytest.fixture(params=list(transports.SCHEMES))
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A rig for each row of the table; a row without one is an error of this file."""
    with tempfile.TemporaryDirectory(prefix="pr-", dir="/tmp") as folder:
        yield RIGS[request.param](Path(folder))


def check(rig: Rig, work: Coroutine[Any, Any, None]) -> None:
    """Runs a test and closes the rig within its loop."""

    async def closing() -> None:
        try:
            await work
        finally:
            await rig.close()

    run(closing())


async def ask(end: Transport, address: str, msg_id: str, content: str = "hello", **more: Any) -> Outcome:
    """Sends one message to a peer that acknowledges."""
    return await end.send(address, line(msg_id, content), msg_id=msg_id, acknowledged=True, **more)


# ── the table ────────────────────────────────────────────────────────────────────────────────────


def test_every_row_loads_and_has_a_rig() -> None:
    assert set(RIGS) == set(transports.SCHEMES)
    for scheme, module in transports.SCHEMES.items():
        assert transports.load(scheme).__name__ == module


def test_a_scheme_that_nothing_carries_is_said_so() -> None:
    with pytest.raises(Unsupported, match="pigeon"):
        transports.load("pigeon")


# ── being there ──────────────────────────────────────────────────────────────────────────────────


def test_serving_gives_the_address_and_again_the_same(rig: Rig) -> None:
    async def work() -> None:
        end = rig.end("bob", tokens=TOKENS)
        first, second = Recorder(), Recorder()
        address = await end.serve(first)
        assert address == rig.address("bob")
        assert address.startswith(f"{end.scheme}:")
        assert await end.serve(second) == address
        assert (await ask(rig.end("alice"), address, "m1")).ack == "queued"
        assert (first.ids, second.ids) == ([], ["m1"])

    check(rig, work())


def test_an_end_says_what_it_guarantees(rig: Rig) -> None:
    end = rig.end("bob")
    for promise in (end.ordered, end.durable, end.same_machine, end.may_open):
        assert isinstance(promise, bool)


@pytest.mark.rule("05.18")
def test_a_send_takes_five_seconds_at_most(rig: Rig) -> None:
    assert inspect.signature(rig.end("bob").send).parameters["seconds"].default == 5.0


def test_closing_twice_is_harmless_and_nobody_is_there_any_more(rig: Rig) -> None:
    async def work() -> None:
        bob, alice = rig.end("bob"), rig.end("alice")
        address = await bob.serve(Recorder())
        assert (await ask(alice, address, "m1")).ack == "queued"
        await bob.close()
        await bob.close()
        for acknowledged in (True, False):
            outcome = await alice.send(address, line("m2"), msg_id="m2", acknowledged=acknowledged)
            assert (outcome.status, outcome.code) == ("failed", "peer_unavailable")

    check(rig, work())


def test_an_end_that_closed_can_serve_again(rig: Rig) -> None:
    async def work() -> None:
        bob, alice, recorder = rig.end("bob"), rig.end("alice"), Recorder()
        await bob.serve(Recorder())
        await bob.close()
        address = await bob.serve(recorder)
        assert (await ask(alice, address, "m1")).ack == "queued"
        assert recorder.ids == ["m1"]

    check(rig, work())


def test_an_end_that_closed_carries_nothing(rig: Rig) -> None:
    async def work() -> None:
        recorder = Recorder()
        address = await rig.serving("bob", recorder)
        alice = rig.end("alice")
        await alice.close()
        outcome = await ask(alice, address, "m1")
        assert (outcome.status, outcome.code) == ("failed", "connection_failed")
        assert recorder.frames == []

    check(rig, work())


def test_nobody_at_an_address(rig: Rig) -> None:
    async def work() -> None:
        outcome = await ask(rig.end("alice"), rig.address("nobody"), "m1")
        assert (outcome.status, outcome.code) == ("failed", "peer_unavailable")

    check(rig, work())


# ── acknowledgements ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.22")
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("queued", ""),
        ("inbox_full", ""),
        ("dropped", "duplicate"),
        ("misaddressed", ""),
        ("store_failed", ""),
    ],
)
def test_an_acknowledgement_comes_back_as_it_was_given(rig: Rig, status: str, reason: str) -> None:
    async def work() -> None:
        recorder = Recorder(answered(status, reason))
        outcome = await ask(rig.end("alice"), await rig.serving("bob", recorder), "m1", "ünïcode ✓")
        assert outcome == Outcome(status="acknowledged", ack=status, reason=reason)
        assert recorder.texts == ["ünïcode ✓"]
        assert recorder.ids == ["m1"]

    check(rig, work())


@pytest.mark.rule("05.22")
def test_an_acknowledgement_may_come_later(rig: Rig) -> None:
    """As a store does that commits in the next step of the loop (05.27)."""

    async def work() -> None:
        def later(frame: UserFrame, channel: Channel) -> None:
            def commit() -> None:
                channel.answer(wire.encode_ack(frame.msg_id or "", "queued"))
                channel.flush()

            asyncio.get_running_loop().call_soon(commit)

        outcome = await ask(rig.end("alice"), await rig.serving("bob", Recorder(later)), "m1")
        assert outcome.ack == "queued"

    check(rig, work())


@pytest.mark.rule("11.6")
def test_lines_arrive_in_the_order_of_the_calls(rig: Rig) -> None:
    async def work() -> None:
        recorder = Recorder()
        address = await rig.serving("bob", recorder)
        alice = rig.end("alice")
        ids = [f"m{number}" for number in range(300)]
        outcomes = await asyncio.gather(*[ask(alice, address, msg_id) for msg_id in ids])
        assert recorder.ids == ids
        assert {outcome.ack for outcome in outcomes} == {"queued"}

    check(rig, work())


@pytest.mark.rule("11.6")
def test_lines_to_a_peer_that_does_not_acknowledge_arrive_in_order_too(rig: Rig) -> None:
    async def work() -> None:
        recorder = Recorder()
        address = await rig.serving("bob", recorder)
        alice = rig.end("alice")
        ids = [f"m{number}" for number in range(20)]
        outcomes = await asyncio.gather(
            *[
                # The first is large: the others would overtake it, did they not wait for their turn.
                alice.send(
                    address,
                    line(one, "x" * (900_000 if one == "m0" else 1), ack=False),
                    msg_id=one,
                    acknowledged=False,
                )
                for one in ids
            ]
        )
        assert recorder.ids == ids
        assert outcomes == [Outcome(status="written")] * 20

    check(rig, work())


def test_answers_find_their_lines_in_whatever_order_they_come(rig: Rig) -> None:
    async def work() -> None:
        waiting: list[tuple[UserFrame, Channel]] = []

        def collect(frame: UserFrame, channel: Channel) -> None:
            waiting.append((frame, channel))
            if len(waiting) == 5:
                for asked, back in reversed(waiting):
                    back.answer(wire.encode_ack(asked.msg_id or "", "dropped", asked.msg_id))
                    back.flush()

        address = await rig.serving("bob", Recorder(collect))
        alice = rig.end("alice")
        ids = [f"m{number}" for number in range(5)]
        outcomes = await asyncio.gather(*[ask(alice, address, msg_id) for msg_id in ids])
        assert [outcome.reason for outcome in outcomes] == ids

    check(rig, work())


def test_the_same_id_twice_at_once_has_two_answers(rig: Rig) -> None:
    async def work() -> None:
        recorder = Recorder()
        address = await rig.serving("bob", recorder)
        alice = rig.end("alice")
        outcomes = await asyncio.gather(ask(alice, address, "m1"), ask(alice, address, "m1"))
        assert [outcome.ack for outcome in outcomes] == ["queued", "queued"]
        assert recorder.ids == ["m1", "m1"]

    check(rig, work())


def test_answers_that_nobody_waits_for_are_ignored(rig: Rig) -> None:
    async def work() -> None:
        def babble(frame: UserFrame, channel: Channel) -> None:
            channel.answer(b"no frame\n")
            channel.answer(wire.encode_ack("another", "inbox_full"))
            channel.answer(line("m9"))
            channel.answer(wire.encode_ack(frame.msg_id or "", "queued"))
            channel.answer(wire.encode_ack(frame.msg_id or "", "store_failed"))

        address = await rig.serving("bob", Recorder(babble))
        alice = rig.end("alice")
        assert [(await ask(alice, address, one)).ack for one in ("m1", "m2")] == ["queued", "queued"]

    check(rig, work())


@pytest.mark.rule("05.23")
def test_a_peer_that_never_answers_leaves_unknown(rig: Rig) -> None:
    async def work() -> None:
        recorder = Recorder(silent)
        address = await rig.serving("bob", recorder)
        outcome = await ask(rig.end("alice"), address, "m1", seconds=0.02)
        assert (outcome.status, outcome.code) == ("unknown", "")
        assert recorder.ids == ["m1"]

    check(rig, work())


@pytest.mark.rule("05.23")
def test_after_an_ambiguous_failure_the_same_line_is_asked_again(rig: Rig) -> None:
    async def work() -> None:
        def once(frame: UserFrame, channel: Channel) -> None:
            if len(recorder.frames) == 1:
                rig.cut(channel)
            else:
                answered()(frame, channel)

        recorder = Recorder(once)
        address = await rig.serving("bob", recorder)
        assert (await ask(rig.end("alice"), address, "m1", "the same")).ack == "queued"
        assert (recorder.ids, recorder.texts) == (["m1", "m1"], ["the same", "the same"])

    check(rig, work())


@pytest.mark.rule("05.23")
def test_asked_again_once_and_then_unknown_never_failed(rig: Rig) -> None:
    async def work() -> None:
        recorder = Recorder(lambda frame, channel: rig.cut(channel))
        address = await rig.serving("bob", recorder)
        outcome = await ask(rig.end("alice"), address, "m1")
        assert (outcome.status, outcome.code) == ("unknown", "")
        assert recorder.ids == ["m1", "m1"]

    check(rig, work())


@pytest.mark.rule("05.23")
def test_a_peer_that_ends_before_answering_leaves_unknown(rig: Rig) -> None:
    async def work() -> None:
        recorder = Recorder(silent)
        bob = rig.end("bob")
        address = await bob.serve(recorder)
        sending = asyncio.ensure_future(ask(rig.end("alice"), address, "m1"))
        await until(lambda: recorder.frames)
        await bob.close()
        assert (await sending).status == "unknown"

    check(rig, work())


@pytest.mark.rule("05.23")
def test_an_end_that_closes_tells_whoever_waits_what_is_known(rig: Rig) -> None:
    async def work() -> None:
        recorder = Recorder(silent)
        address = await rig.serving("bob", recorder)
        alice = rig.end("alice")
        sending = asyncio.ensure_future(ask(alice, address, "m1"))
        await until(lambda: recorder.frames)
        await alice.close()
        assert (await sending).status == "unknown"

    check(rig, work())


def test_a_cancelled_send_leaves_the_others_alone(rig: Rig) -> None:
    async def work() -> None:
        recorder = Recorder(silent)
        address = await rig.serving("bob", recorder)
        alice = rig.end("alice")
        sending = asyncio.ensure_future(ask(alice, address, "m1"))
        await until(lambda: recorder.frames)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        recorder.does = answered()
        assert (await ask(alice, address, "m1")).ack == "queued"
        assert (await ask(alice, address, "m2")).ack == "queued"

    check(rig, work())


def test_an_answer_to_somebody_who_has_gone_does_nothing(rig: Rig) -> None:
    async def work() -> None:
        recorder = Recorder(silent)
        address = await rig.serving("bob", recorder)
        alice = rig.end("alice")
        await ask(alice, address, "m1", seconds=0.02)
        await alice.close()
        await turns()
        recorder.channels[0].answer(wire.encode_ack("m1", "queued"))
        recorder.channels[0].flush()
        assert (await ask(rig.end("carol"), address, "m2", seconds=0.02)).status == "unknown"

    check(rig, work())


# ── what is carried ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.22")
def test_to_a_peer_that_does_not_acknowledge_a_clean_close_is_written(rig: Rig) -> None:
    async def work() -> None:
        recorder = Recorder()
        address = await rig.serving("bob", recorder)
        outcome = await rig.end("alice").send(address, line("m1", ack=False), msg_id="m1", acknowledged=False)
        assert outcome == Outcome(status="written")
        assert recorder.ids == ["m1"]

    check(rig, work())


@pytest.mark.rule("05.24")
@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_control_frame_is_carried_and_answered_by_nobody(rig: Rig, acknowledged: bool) -> None:
    async def work() -> None:
        recorder = Recorder()
        address = await rig.serving("bob", recorder)
        frame = wire.ControlFrame(action="peer_message_status", status="held", orig_msg_id="m1")
        outcome = await rig.end("alice").send(
            address, wire.encode_control(frame), msg_id=None, acknowledged=acknowledged
        )
        assert outcome.status == "written"
        assert [(one.action, one.orig_msg_id) for one in recorder.controls] == [("peer_message_status", "m1")]

    check(rig, work())


@pytest.mark.parametrize("letter", ["x", "ü", "✓", "𝄞"])
def test_report_45_a_line_of_the_largest_size_arrives_whole(rig: Rig, letter: str) -> None:
    async def work() -> None:
        recorder = Recorder()
        address = await rig.serving("bob", recorder)
        content = letter * (wire.MAX_LINE - wire.code_points(line("m1", "")) + 1)
        whole = line("m1", content)
        assert wire.code_points(whole) == wire.MAX_LINE + 1  # the newline
        outcome = await rig.end("alice").send(address, whole, msg_id="m1", acknowledged=True)
        assert outcome.ack == "queued"
        assert recorder.texts == [content]

    check(rig, work())


@pytest.mark.rule("05.14")
def test_report_45_a_line_over_the_limit_is_never_cut_and_ends_its_connection(rig: Rig) -> None:
    async def work() -> None:
        recorder = Recorder()
        address = await rig.serving("bob", recorder)
        alice = rig.end("alice")
        outcome = await ask(alice, address, "m1", "x" * wire.MAX_LINE)
        assert outcome.status == "unknown"
        assert recorder.frames == []
        assert recorder.counts["too-long"] == 2  # asked, and asked again
        assert (await ask(alice, address, "m2")).ack == "queued"

    check(rig, work())


@pytest.mark.rule("05.21")
@pytest.mark.parametrize(
    ("bytes_sent", "counted"),
    [
        (b"no frame\n", "bad-frame"),
        (b'{"type":"user","message":{"content":7}}\n', "bad-frame"),
        (b'{"type":"dance"}\n', "unknown-type"),
        (b'{"type":"user","msgV":2,"message":{"role":"user","content":"x"}}\n', "too-new"),
        (wire.encode_ack("m1", "queued"), "stray-answer"),
    ],
)
def test_what_is_no_frame_for_an_inbox_is_counted(rig: Rig, bytes_sent: bytes, counted: str) -> None:
    async def work() -> None:
        recorder = Recorder()
        address = await rig.serving("bob", recorder)
        alice = rig.end("alice")
        await alice.send(address, bytes_sent, msg_id=None, acknowledged=True)
        assert recorder.counts == {counted: 1}
        assert (await ask(alice, address, "m2")).ack == "queued"
        assert recorder.ids == ["m2"]

    check(rig, work())


# ── evidence ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.20")
@pytest.mark.parametrize(
    ("token", "kind", "wrong"),
    [(None, None, 0), ("a" * 32, "peer", 0), ("b" * 32, "child", 0), ("é", None, 1)],
)
def test_a_token_is_evidence_and_a_wrong_one_is_counted(
    rig: Rig, token: str | None, kind: str | None, wrong: int
) -> None:
    async def work() -> None:
        recorder = Recorder()
        address = await rig.serving("bob", recorder)
        alice = rig.end("alice")
        for acknowledged, msg_id in itertools.product((True, False), ("m1", "m2")):
            sent = line(msg_id, ack=acknowledged)
            outcome = await alice.send(address, sent, msg_id=msg_id, acknowledged=acknowledged, token=token)
            assert outcome.status == ("acknowledged" if acknowledged else "written")
        assert [one.token for one in recorder.evidence] == [kind] * 4
        assert {one.transport for one in recorder.evidence} == {alice.scheme}
        assert bool(recorder.counts["wrong-token"]) == bool(wrong)

    check(rig, work())


@pytest.mark.rule("05.24")
@pytest.mark.parametrize("acknowledged", [True, False])
def test_another_process_than_the_expected_one_gets_nothing(rig: Rig, acknowledged: bool) -> None:
    async def work() -> None:
        recorder = Recorder()
        address = await rig.serving("bob", recorder)
        alice = rig.end("alice")
        for pid, start in ((1, ""), (rig.pid(), "1")):
            outcome = await alice.send(
                address, line("m1"), msg_id="m1", acknowledged=acknowledged, pid=pid, start=start
            )
            assert (outcome.status, outcome.code) == ("failed", "unsafe_target")
        assert recorder.frames == []
        outcome = await alice.send(
            address, line("m1", ack=acknowledged), msg_id="m1", acknowledged=acknowledged, pid=rig.pid()
        )
        assert outcome.status == ("acknowledged" if acknowledged else "written")

    check(rig, work())
