"""Rows 4, 5 and 6: a message over a Unix socket into a session's inbox, and its acknowledgement back.

The client is blocking Python in every case, so that the difference is the server's. Ours decodes, judges by the
whole ladder, knows the connecting process for a session, keeps the message in the library's memory store and
acknowledges it; the floors take a line and answer.
"""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.ends import TOKEN
from benchmarks.harness import Goal, Group, floor, on_core, ours, peer
from benchmarks.inprocess import SUMMARY, TEXT
from benchmarks.processes import end, private_place
from postroom.core import envelope, wire
from postroom.core.address import uds_address
from postroom.opening import new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from benchmarks.harness import Bench, Pin
    from benchmarks.processes import End

WINDOW = 256
STREAMS = "asyncio.start_unix_server, answering"
GUARDED = "With the loop guard, its limits lifted."


# ── what is sent ─────────────────────────────────────────────────────────────────────────────────


def lines(count: int, address: str, text: str = TEXT) -> list[bytes]:
    """So many frames of one sender, each with an id of its own, as this version writes them."""
    content = envelope.wire_form(text, address=address, name="sender", mode="prompting")
    return [
        wire.encode_user(
            msg_id=new_id(),
            content=content,
            address=address,
            session_id="id-receiver",
            priority="next",
            acknowledge=True,
            summary=SUMMARY,
            sent_at="2026-11-30T10:15:30Z",
            in_reply_to=None,
            text=None,
        )
        for _ in range(count)
    ]


def connected(path: str) -> socket.socket:
    """A connection to a socket."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(path)
    return sock


def one_each(path: str, payloads: Sequence[bytes]) -> float:
    """Seconds for each payload over a connection of its own, until it is acknowledged and closed."""
    begun = perf_counter()
    for payload in payloads:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(path)
        sock.sendall(payload)
        sock.recv(65536)
        sock.close()
    return (perf_counter() - begun) / len(payloads)


def in_turn(sock: socket.socket, payloads: Sequence[bytes]) -> float:
    """Seconds for each payload over a kept connection, one at a time."""
    begun = perf_counter()
    for payload in payloads:
        sock.sendall(payload)
        answer = sock.recv(65536)
        while answer[-1:] != b"\n":
            answer += sock.recv(65536)
    return (perf_counter() - begun) / len(payloads)


def in_windows(sock: socket.socket, payloads: Sequence[bytes]) -> float:
    """Seconds for each payload over a kept connection, so many written before the answers are read."""
    begun = perf_counter()
    for first in range(0, len(payloads), WINDOW):
        window = payloads[first : first + WINDOW]
        sock.sendall(b"".join(window))
        left = len(window)
        while left:
            left -= sock.recv(262_144).count(b"\n")
    return (perf_counter() - begun) / len(payloads)


# ── a session's inbox ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Inbox:
    """A session's inbox in another process.

    Attributes:
        path: its socket.
        address: what the client states as its own.
    """

    path: str
    address: str
    end: End

    def receive(self, count: int, work: Callable[[Sequence[bytes]], float]) -> float:
        """Sends so many new frames by `work` and returns its figure; every one must have come in, verified."""
        payloads = lines(count, self.address)
        figure = work(payloads)
        came = self.end.ask("clear")
        if came != count:
            raise RuntimeError(f"{came} of {count} messages came in")
        return figure

    def receive_alone(self, count: int) -> float:
        """The same with a connection and a token for each."""
        auth = wire.encode_auth(TOKEN)
        return self.receive(
            count, lambda payloads: one_each(self.path, [auth + payload for payload in payloads])
        )


@contextlib.contextmanager
def inbox(kind: str, root: str, pin: Pin) -> Generator[Inbox]:
    """Runs a session with a store of this kind (`memory` or `sqlite`); this process is a session that it knows."""
    path, address = f"{root}/{os.urandom(4).hex()}.sock", uds_address(f"{root}/client.sock")
    folder = f"{root}/{os.urandom(4).hex()}"
    os.mkdir(folder, 0o700)
    with end("inbox", kind, path, folder, address, str(os.getpid()), core=pin.there) as other:
        yield Inbox(path, address, other)


# ── the rows ─────────────────────────────────────────────────────────────────────────────────────


def one_connection(bench: Bench) -> Generator[Group]:
    """Row 4: connect, show the token, send, wait for the acknowledgement, close."""
    for pin in bench.pins():
        yield from one_connection_on(pin, bench.count(150, least=10), bench.slices)


def one_connection_on(pin: Pin, count: int, slices: int) -> Generator[Group]:
    """Row 4 on these cores."""
    with private_place() as place:
        floor_path, streams_path = place.path("floor.sock"), place.path("streams.sock")
        with (
            inbox("memory", place.root, pin) as receiver,
            end("accepting", floor_path, core=pin.there),
            end("streams", streams_path, core=pin.there),
            on_core(pin.here),
        ):
            plain = [wire.encode_auth(TOKEN) + line for line in lines(count, receiver.address)]
            yield Group(
                title="token, message, acknowledgement",
                pin=pin.name,
                slices=slices,
                cases=(
                    floor("blocking Python on both ends", lambda: one_each(floor_path, plain)),
                    ours("a session's inbox, memory store", lambda: receiver.receive_alone(count)),
                    peer(STREAMS, lambda: one_each(streams_path, plain)),
                ),
                goals=(
                    Goal(limit=2, text="≤ 2 × blocking Python on both ends"),
                    Goal(limit=1 / 3, over=STREAMS, text="≤ 1/3 of asyncio.start_unix_server"),
                ),
                note=GUARDED,
            )


def kept_connection(bench: Bench) -> Generator[Group]:
    """Row 5: the same over one connection, one message at a time."""
    for pin in bench.pins():
        yield from kept_connection_on(pin, bench.count(300, least=10), bench.count(100), bench.slices)


def kept_connection_on(pin: Pin, count: int, published: int, slices: int) -> Generator[Group]:
    """Row 5 on these cores."""
    with (
        private_place() as place,
        inbox("memory", place.root, pin) as receiver,
        pair("echoing", pin) as echo,
        peers.jetstream(TEXT.encode(), published, pin.there) as jetstream,
        contextlib.closing(connected(receiver.path)) as sock,
        on_core(pin.here),
    ):
        plain = lines(count, receiver.address)
        yield Group(
            title="message, acknowledgement",
            pin=pin.name,
            slices=slices,
            cases=(
                floor("socket pair, echo, blocking Python on both ends", lambda: in_turn(echo, plain)),
                ours(
                    "a session's inbox, memory store",
                    lambda: receiver.receive(count, lambda payloads: in_turn(sock, payloads)),
                ),
                jetstream,
            ),
            goals=(
                Goal(limit=2.5, text="≤ 2.5 × socket pair echo"),
                Goal(
                    limit=1 / 6, over=peers.JETSTREAM, text="≤ 1/6 of JetStream publish and acknowledgement"
                ),
            ),
            note=GUARDED,
        )


def in_flight(bench: Bench) -> Generator[Group]:
    """Row 6: the same with 256 messages written before their answers are read."""
    for pin in bench.pins():
        yield from in_flight_on(pin, bench.count(4 * WINDOW, least=WINDOW), bench.slices)


def in_flight_on(pin: Pin, count: int, slices: int) -> Generator[Group]:
    """Row 6 on these cores."""
    with (
        private_place() as place,
        inbox("memory", place.root, pin) as receiver,
        pair("acking", pin) as acking,
        contextlib.closing(connected(receiver.path)) as sock,
        on_core(pin.here),
    ):
        plain = lines(count, receiver.address)
        yield Group(
            title="a message and its acknowledgement",
            pin=pin.name,
            slices=slices,
            cases=(
                floor("decode each, acknowledge each; blocking", lambda: in_windows(acking, plain)),
                ours(
                    "a session's inbox, memory store",
                    lambda: receiver.receive(count, lambda payloads: in_windows(sock, payloads)),
                ),
            ),
            goals=(Goal(limit=4, text="≤ 4 × decode and acknowledge"),),
            note=GUARDED,
        )


@contextlib.contextmanager
def pair(role: str, pin: Pin) -> Generator[socket.socket]:
    """One end of a socket pair whose other end a process of this role has."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.ExitStack() as stack:
        stack.enter_context(here)
        with there:
            stack.enter_context(end(role, str(there.fileno()), core=pin.there, fds=(there.fileno(),)))
        yield here
