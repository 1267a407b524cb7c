"""What the transport in memory adds to the port: a hub that may lose and repeat, and users that are apart."""

from __future__ import annotations

from postroom.transport import Evidence, Outcome
from postroom.transports.memory import Hub, MemoryChannel, MemoryTransport
from tests.transports.ends import Recorder, line, run


class Moody(Hub):
    """Loses the first line and repeats the second."""

    def __init__(self) -> None:
        super().__init__()
        self.carried = 0

    def carry(self, target: MemoryTransport, line: bytes, channel: MemoryChannel) -> None:
        """Brings a line, or does not."""
        self.carried += 1
        if self.carried == 1:
            channel.close()
            return
        for _ in range(self.carried):
            super().carry(target, line, channel)


def test_a_hub_may_lose_and_repeat() -> None:
    async def work() -> None:
        hub, recorder = Moody(), Recorder()
        bob, alice = MemoryTransport(hub, "bob"), MemoryTransport(hub, "alice")
        address = await bob.serve(recorder)
        outcome = await alice.send(address, line("m1"), msg_id="m1", acknowledged=True)
        assert outcome == Outcome(status="acknowledged", ack="queued")
        assert recorder.ids == ["m1", "m1"]

    run(work())


def test_a_line_that_comes_after_the_end_breaks_off() -> None:
    class Late(Hub):
        def carry(self, target: MemoryTransport, line: bytes, channel: MemoryChannel) -> None:
            target.take(line, channel)

    async def work() -> None:
        hub = Late()
        bob, alice = MemoryTransport(hub, "bob"), MemoryTransport(hub, "alice")
        hub.ends[bob.address] = bob  # named, and nobody receives
        outcome = await alice.send(bob.address, line("m1"), msg_id="m1", acknowledged=True, token="x")
        assert outcome.status == "unknown"

    run(work())


def test_ends_of_different_users_never_meet() -> None:
    async def work() -> None:
        hub, recorder = Hub(), Recorder()
        bob, alice = MemoryTransport(hub, "bob", user=1), MemoryTransport(hub, "alice", user=2)
        address = await bob.serve(recorder)
        outcome = await alice.send(address, line("m1"), msg_id="m1", acknowledged=True)
        assert (outcome.status, outcome.code) == ("failed", "unsafe_target")
        assert recorder.frames == []

    run(work())


def test_evidence_is_what_the_end_was_made_with() -> None:
    async def work() -> None:
        hub, recorder = Hub(), Recorder()
        known = Evidence("memory", 7, "100", ((7, "100"), (1, "1")))
        bob, alice = (
            MemoryTransport(hub, "bob", tokens={"t": "child"}),
            MemoryTransport(hub, "alice", evidence=known),
        )
        address = await bob.serve(recorder)
        await alice.send(address, line("m1"), msg_id="m1", acknowledged=True)
        await alice.send(address, line("m1"), msg_id="m1", acknowledged=True, token="t")
        assert recorder.evidence == [known, Evidence("memory", 7, "100", ((7, "100"), (1, "1")), "child")]
        assert await bob.send(alice.address, line("m2"), msg_id="m2", acknowledged=True) == Outcome(
            status="failed", code="peer_unavailable", detail="nobody listens there"
        )

    run(work())


def test_what_an_end_says_of_itself() -> None:
    async def work() -> None:
        end = MemoryTransport(Hub(), "bob")
        assert repr(end) == "<MemoryTransport memory:bob not serving>"
        await end.serve(Recorder())
        assert repr(end) == "<MemoryTransport memory:bob serving>"
        await end.close()
        assert repr(end) == "<MemoryTransport memory:bob closed>"

    run(work())
