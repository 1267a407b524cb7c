"""The other end: what a benchmark starts as a process of its own.

usage: python -P ends.py ROLE ARGUMENT…

It runs under whichever interpreter has postroom installed, so it imports nothing of this package. Each role
prints one JSON line once it is ready, answers words on standard input with a line each if it is no blocking one,
and ends with that input: also where whoever started it was killed.

    accepting PATH             floor: accepts, reads two lines, answers, closes; blocking
    echoing FD                 floor: sends back what comes on a socket pair; blocking
    acking FD                  floor: decodes and acknowledges each line on a socket pair; blocking
    noting PATH                floor: accepts, reads a line, says when it had it; blocking
    streams PATH               peer: asyncio's stream server, answering each connection's lines
    inbox KIND PATH FOLDER A P a session's inbox over a `memory` or `sqlite` store; A, P: its peer's address and pid
    host NAME [report]         a session of the library without limits; with `report` it says when it had a message
    stub PATH                  stands for a session: answers every command with nothing, at once
    crowd STATE RUN COUNT      publishes so many live sessions and holds their locks
    idle                       floor: a session's imports and an event loop, at rest
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

TOKEN = "0123456789abcdef0123456789abcdef"
BLOCKING = ("accepting", "echoing", "acking", "noting", "stub")
"""Roles that read nothing but their socket."""

STUB_CODE = 77
"""The exit code by which a command shows that the stub answered it, and nobody else."""

ACK = b'{"type":"ack","msg_id":"00000000-0000-4000-8000-000000000000","status":"queued"}\n'


def say(**document: Any) -> None:
    """Prints one line."""
    print(json.dumps(document), flush=True)


def listening(path: str) -> socket.socket:
    """A listening socket, and the line that says so."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(path)
    os.chmod(path, 0o600)
    sock.listen(512)
    say(path=path)
    return sock


# ── floors ───────────────────────────────────────────────────────────────────────────────────────


def accepting(path: str) -> None:
    """The least that can take a message on a connection of its own and acknowledge it."""
    listener = listening(path)
    while True:
        connection, _ = listener.accept()
        data = connection.recv(65536)
        while data.count(b"\n") < 2 and (more := connection.recv(65536)):
            data += more
        connection.sendall(ACK)
        connection.close()


def echoing(fd: str) -> None:
    """The least that can answer on a kept connection."""
    sock = socket.socket(fileno=int(fd))
    say(fd=fd)
    while data := sock.recv(65536):
        sock.sendall(data)


def acking(fd: str) -> None:
    """The least that can decode and acknowledge what keeps coming."""
    import msgspec

    content = msgspec.defstruct("content", [("content", str)])
    frame = msgspec.defstruct("frame", [("msg_id", str), ("message", content)])
    decode: Any = msgspec.json.Decoder(frame).decode
    sock = socket.socket(fileno=int(fd))
    say(fd=fd)
    rest = b""
    while data := sock.recv(65536):
        *lines, rest = (rest + data).split(b"\n")
        answers = [
            b'{"type":"ack","msg_id":"%s","status":"queued"}\n' % decode(line).msg_id.encode()
            for line in lines
        ]
        if answers:
            sock.sendall(b"".join(answers))


def noting(path: str) -> None:
    """The least that can receive a line and know when."""
    listener = listening(path)
    while True:
        connection, _ = listener.accept()
        if connection.recv(65536):
            say(at=time.monotonic_ns())
        connection.sendall(ACK)
        connection.close()


def idle() -> None:
    """A bare interpreter that has loaded what a session loads, and waits."""
    for name in ("console.cli", "console.commands.open", "transports.uds"):
        import_module(f"postroom.{name}")

    async def wait() -> None:
        say(pid=os.getpid())
        await told({})

    asyncio.run(wait())


# ── peers ────────────────────────────────────────────────────────────────────────────────────────


def streams(path: str) -> None:
    """The server that asyncio offers, answering what it reads."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await reader.readline()
        writer.write(ACK)
        await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_unix_server(serve, path, backlog=512)
        say(path=path)
        await told({})
        server.close()

    asyncio.run(run())


# ── ours ─────────────────────────────────────────────────────────────────────────────────────────


async def told(words: dict[str, Callable[[], object]]) -> None:
    """Answers each word that comes on standard input, until it ends; a word that fails ends this process."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def hear() -> None:
        try:
            data = os.read(0, 4096)
            for word in data.decode().split():
                say(said=words[word]())
        except Exception as error:
            ended.set_exception(error)
        else:
            if not data:
                ended.set_result(None)

    ended.get_loop().add_reader(0, hear)
    try:
        await ended
    finally:
        ended.get_loop().remove_reader(0)


def inbox(kind: str, path: str, folder: str, peer_address: str, peer_pid: str) -> None:
    """A session by its parts, so that its store can be chosen; its one peer is known to it."""
    from postroom import Limits, Session
    from postroom.core.address import uds_address
    from postroom.opening import epoch_ms, new_id
    from postroom.standing import Standing
    from postroom.state import processes
    from postroom.state.memory_directory import Gathering, MemoryDirectory
    from postroom.state.memory_store import MemoryStore
    from postroom.state.record import Record
    from postroom.state.store import SqliteStore
    from postroom.transports.uds import UdsTransport

    def record(pid: int, name: str, address: str) -> Record:
        start = processes.start_of(pid) or ""
        return Record(
            pid=pid, proc_start=start, session_id=f"id-{name}", name=name, messaging_socket_path=address
        )

    async def run() -> None:
        own = record(os.getpid(), "receiver", uds_address(path))
        sender = record(int(peer_pid), "sender", peer_address)
        gathering = Gathering()
        gathering.claim(sender.name, sender.session_id)
        gathering.join(sender, peer_address)
        session = Session(
            record=own,
            clock=epoch_ms,
            ids=new_id,
            store=MemoryStore() if kind == "memory" else SqliteStore.open(folder, now=epoch_ms()),
            directory=MemoryDirectory(gathering, own, uds_address(path)),
            transport=UdsTransport(path, tokens={TOKEN: "peer"}),
            standing=Standing(limits=Limits.unbounded()),
        )
        await session.serve()

        def clear() -> int:
            """Every round begins with an empty inbox; returns how many came in the one before."""
            came = session.store.waiting_count
            unverified = sum(not message.origin.verified for message in session.store.waiting(1))
            session.drain()
            for _ in range(came // 100):
                session.store.prune(epoch_ms())
            return -1 if unverified else came

        say(path=path)
        await told({"clear": clear})
        await session.close()

    asyncio.run(run())


def host(name: str, report: str = "") -> None:
    """A session as a program of ours opens it, without limits."""
    from postroom import Limits
    from postroom.opening import opened_session

    async def run() -> None:
        async with opened_session(name, limits=Limits.unbounded()) as opened:
            session = opened.session

            async def watch() -> None:
                while await session.wait():
                    say(at=time.monotonic_ns())
                    session.drain()

            watching = asyncio.create_task(watch()) if report else None
            say(id=session.id, environment=dict(opened.environment), socket=opened.socket_path)
            await told({"clear": lambda: len(session.drain())})
            if watching is not None:
                watching.cancel()

    asyncio.run(run())


def stub(path: str) -> None:
    """In a session's place: what a command costs when the session costs nothing."""
    with open(f"{path}.sock", "w"):
        pass  # a command looks whether its inbox is there
    listener = listening(f"{path}.ctl.sock")
    while True:
        connection, _ = listener.accept()
        data = connection.recv(65536)
        while data.count(b"\n") < 2 and (more := connection.recv(65536)):
            data += more
        connection.sendall(b"done %d 0 0\n" % STUB_CODE)
        connection.close()


def crowd(state: str, run: str, count: str) -> None:
    """Many sessions of one process: folders, locks that are held, sockets, records. Nothing is synced."""
    from postroom import __version__
    from postroom.opening import FEATURES, epoch_ms
    from postroom.state import processes
    from postroom.state.record import Record
    from postroom.state.roster import Roster

    roster = Roster(state)
    pid, start = os.getpid(), processes.start_of(os.getpid()) or ""
    boot, domain, machine = processes.boot_id(), processes.pid_domain(), processes.machine()
    kept: list[Any] = []
    for number in range(int(count)):
        session_id, stem = f"00000000-0000-4000-8000-{number:012d}", f"{pid}-{number:08x}"
        kept.append(roster.open_folder(session_id))
        now = epoch_ms()
        path = f"{run}/{stem}.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.bind(path)
        os.chmod(path, 0o600)
        record = Record(
            pid=pid,
            proc_start=start,
            boot_id=boot,
            pid_domain=domain,
            session_id=session_id,
            name=f"worker-{number:06d}",
            cwd=f"/home/somebody/projects/part-{number % 40:03d}",
            started_at=now,
            updated_at=now,
            status_updated_at=now,
            kind="headless",
            version=__version__,
            machine=machine,
            peer_features=FEATURES,
            messaging_socket_path=path,
        )
        with open(os.open(f"{roster.sessions}/{stem}.json", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(record.to_json())
    say(pid=pid)
    sys.stdin.read()


def end_with_input() -> None:
    """Lets the kernel end this process with its standard input, although nothing here reads that."""
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)  # SIGIO, which ends it


if __name__ == "__main__":
    if sys.argv[1] in BLOCKING:
        end_with_input()
    {
        each.__name__: each
        for each in (accepting, echoing, acking, noting, streams, inbox, host, stub, crowd, idle)
    }[sys.argv[1]](*sys.argv[2:])
