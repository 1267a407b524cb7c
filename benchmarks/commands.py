"""Rows 11, 11c and 13: commands, from the start of their process to its end or to what they bring about.

The command is the one that pip installs into a fresh environment (`installed`), and its floor is that
environment's bare interpreter. A whole `send` is more than the hand-over that row 11 is about: its session resolves
the name, writes the message to another session's inbox, which commits it to its disk and acknowledges it, and renders
the answer; both are shown.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from benchmarks.ends import STUB_CODE, TOKEN
from benchmarks.harness import Goal, Group, Pin, beside, floor, on_core, ours, peer
from benchmarks.inprocess import TEXT
from benchmarks.installed import installed
from benchmarks.processes import SECONDS, end, ended, private_place, spawned, started
from benchmarks.sockets import GUARDED, inbox

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from benchmarks.harness import Bench, Case
    from benchmarks.installed import Installed
    from benchmarks.processes import End, Place
    from benchmarks.sockets import Inbox

CONNECTED = "03"
"""The state of a connected socket in `/proc/net/unix`."""

BARE = "python -I -c pass"
HANDED_OVER = "postroom send, handed over: a stub in its session's place answers at once"
WHOLE = "postroom send, whole: resolved, delivered, synced, acknowledged"
HANDED_OVER_AND_SOCKET = "a send that is only handed over, and a message over a socket (rows 11 and 4)"

SEND = "import sys,_socket as s;c=s.socket(1,1);c.connect(sys.argv[1]);c.sendall(sys.argv[2].encode()+b'\\n');c.recv(99)"
"""The least command that sends: one line over the C module, and waits for an answer. (1, 1) is a stream over AF_UNIX."""


class Desk:
    """Where commands are run: their environment and their command.

    Args:
        place: a private place.
        command: the installation.
    """

    def __init__(self, place: Place, command: Installed) -> None:
        self.place = place
        self.command = command
        self.errors = place.path("errors")

    def bare(self) -> float:
        """Seconds of the interpreter alone."""
        argv = [self.command.python, "-I", "-c", "pass"]
        return spawned(argv, self.place.environ, self.errors)

    def postroom(self, *words: str, identity: Mapping[str, str] | None = None, code: int = 0) -> float:
        """Seconds of one command, run for the session of this identity, if any; it must end with this code."""
        argv, environ = [self.command.postroom, *words], {**self.place.environ, **(identity or {})}
        return spawned(argv, environ, self.errors, code)

    def host(self, name: str, *more: str, core: int | None) -> contextlib.AbstractContextManager[End]:
        """Runs a session of the library without limits."""
        return end("host", name, *more, core=core, python=self.command.python, environ=self.place.environ)


@contextlib.contextmanager
def desk(command: Installed) -> Generator[Desk]:
    """A desk in a place of its own."""
    with private_place() as place:
        yield Desk(place, command)


def core_or_free(bench: Bench) -> list[Pin]:
    """Commands are measured with everything on one core, and as they are run."""
    return [bench.pins()[0], Pin("free", None, None)]


# ── rows 11 and 11c ──────────────────────────────────────────────────────────────────────────────


def handed_over(bench: Bench) -> Generator[Group]:
    """Row 11: `postroom send` and `postroom hook`, which a session's own process answers."""
    command = installed(bench)
    for pin in core_or_free(bench):
        yield from handed_over_on(bench, command, pin)
        yield from hooked_on(bench, command, pin)


def handed_over_on(bench: Bench, command: Installed, pin: Pin) -> Generator[Group]:
    """Row 11 on this core."""
    with (
        desk(command) as at,
        at.host("alice", core=pin.there) as alice,
        at.host("bob", core=pin.there) as bob,
        end("stub", at.place.path("stub"), core=pin.there),
        on_core(pin.here),
    ):

        def send(*words: str, by: Mapping[str, str]) -> float:
            bob.ask("clear")
            return at.postroom(*words, "send", "bob", TEXT, identity=by)

        yield Group(
            title="start to end of `postroom send`",
            pin=pin.name,
            slices=bench.slices,
            cases=(
                floor(BARE, at.bare),
                ours(HANDED_OVER, lambda: handed_to_stub(at)),
                ours(WHOLE, lambda: send(by=alice.ready["environment"])),
                beside("the same, with --session NAME", lambda: send("--session", "alice", by={})),
            ),
            goals=(
                Goal(limit=1.3, of=HANDED_OVER, text=f"handed over ≤ 1.3 × {BARE}"),
                Goal(limit=1.3, of=WHOLE, text=f"whole ≤ 1.3 × {BARE}"),
            ),
            note=command.note,
        )


def hooked_on(bench: Bench, command: Installed, pin: Pin) -> Generator[Group]:
    """Row 11 for hooks, on this core: this process is the client that runs them."""
    with (
        desk(command) as at,
        at.host("alice", core=pin.there) as alice,
        end("stub", at.place.path("stub"), core=pin.there),
        on_core(pin.here),
    ):
        said = at.place.path("said.json")
        Path(said).write_text(
            json.dumps({"session_id": "a-1", "hook_event_name": "PostToolUse", **TOOL_CALL})
        )
        client = Path(at.place.environ["POSTROOM_HOME"]) / "sessions" / f"client-{os.getpid()}-{own_start()}"
        stub = client.parent / STUB_SESSION
        stub.mkdir(mode=0o700)
        private(stub / "client.token", f"{TOKEN}\n{at.place.path('stub.ctl.sock')}\n")

        def hook(session: str, times: int = 1) -> float:
            private(client, f"{session}\n")
            argv = [at.command.postroom, "hook", "claude-code", "PostToolUse"]
            seconds = sum(spawned(argv, at.place.environ, at.errors, stdin=said) for _ in range(times))
            # A hook ends with 0 whatever happens: that it reached its session shows in what was not logged.
            for log in (client.parent.parent / "hooks.log", client.parent / session / "log"):
                if log.exists() and log.stat().st_size:
                    raise RuntimeError(f"{' '.join(argv)} said: {log.read_text()[-300:]}")
            return seconds

        session: str = alice.ready["id"]
        yield Group(
            title="start to end of `postroom hook`",
            pin=pin.name,
            slices=bench.slices,
            cases=(
                floor(BARE, at.bare),
                ours(HOOK_HANDED_OVER, lambda: hook(STUB_SESSION)),
                ours(HOOK_WHOLE, lambda: hook(session)),
            ),
            goals=(
                Goal(limit=1.3, of=HOOK_HANDED_OVER, text=f"handed over ≤ 1.3 × {BARE}"),
                Goal(limit=1.3, of=HOOK_WHOLE, text=f"whole ≤ 1.3 × {BARE}"),
            ),
            note=command.note,
        )
        many = int(bench.choose(full=50, quick=10, smoke=2))
        yield Group(
            title=f"the hooks of one turn with {many} tool calls, one after the other",
            pin=pin.name,
            cases=(
                floor(f"{many} × {BARE}", lambda: sum(at.bare() for _ in range(many))),
                ours(f"{many} × postroom hook, whole", lambda: hook(session, many)),
            ),
            goals=(Goal(limit=1.3, text="≤ 1.3 × as many bare interpreters"),),
            note=command.note,
        )


STUB_SESSION = "stub-session"
"""The id under which the stub is a session."""

HOOK_HANDED_OVER = "postroom hook, handed over: a stub in its session's place answers at once"
HOOK_WHOLE = "postroom hook, whole: its session reads what the client says, and nothing waits"

TOOL_CALL = {
    "transcript_path": "/home/ada/.claude/projects/-home-ada-proj/a-1.jsonl",
    "cwd": "/home/ada/proj",
    "permission_mode": "default",
    "tool_name": "Read",
    "tool_input": {"file_path": "/home/ada/proj/main.py"},
    "tool_response": {"file": {"content": "x = 1\n" * 700}},
}
"""What a client says of a tool call that has read a file of four kilobytes."""


def own_start() -> str:
    """When this process started."""
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


def private(path: Path, text: str) -> None:
    """Writes a file that is this user's alone."""
    path.write_text(text)
    path.chmod(0o600)


def handed_to_stub(at: Desk) -> float:
    """Seconds of a `send` whose session costs nothing: a stub answers for it."""
    identity = {"POSTROOM_SOCKET": at.place.path("stub.sock"), "POSTROOM_TOKEN": TOKEN}
    return at.postroom("send", "bob", TEXT, identity=identity, code=STUB_CODE)


def others(bench: Bench) -> Generator[Group]:
    """Row 11c: the commands that people wait for."""
    command = installed(bench)
    for pin in core_or_free(bench):
        yield from others_on(bench, command, pin)


def others_on(bench: Bench, command: Installed, pin: Pin) -> Generator[Group]:
    """Row 11c on this core."""
    with (
        desk(command) as at,
        at.host("alice", core=pin.there) as alice,
        at.host("bob", core=pin.there),
        on_core(pin.here),
    ):
        identity: dict[str, str] = alice.ready["environment"]
        cases = (
            ours("postroom list, inside a session", lambda: at.postroom("list", identity=identity)),
            ours("postroom list, outside any", lambda: at.postroom("list")),
            ours("postroom inbox", lambda: at.postroom("inbox", identity=identity)),
            ours("postroom --help", lambda: at.postroom("--help")),
        )
        yield Group(
            title="start to end",
            pin=pin.name,
            slices=bench.slices,
            cases=(floor(BARE, at.bare), *cases),
            goals=[Goal(limit=3.5, of=each.name, text=f"{each.name} ≤ 3.5 × {BARE}") for each in cases],
            note=command.note,
        )


# ── row 13 ───────────────────────────────────────────────────────────────────────────────────────


def end_to_end(bench: Bench) -> Generator[Group]:
    """Row 13: from the start of `send` in one process until another one has the message."""
    command = installed(bench)
    for pin in core_or_free(bench):
        yield from end_to_end_on(bench, command, pin)


def end_to_end_on(bench: Bench, command: Installed, pin: Pin) -> Generator[Group]:
    """Row 13 on this core."""
    with (
        desk(command) as at,
        at.host("alice", core=pin.there) as alice,
        at.host("bob", "report", core=pin.there) as bob,
        at.host("carol", core=pin.there) as carol,
        end("noting", at.place.path("floor.sock"), core=pin.there) as noting,
        end("stub", at.place.path("stub"), core=pin.there),
        inbox("memory", at.place.root, pin) as receiver,
        on_core(pin.here),
    ):
        identity: dict[str, str] = alice.ready["environment"]
        least = floor(
            "a bare interpreter that writes a line, until a blocking one has it", floor_send(at, noting)
        )
        reference = beside(HANDED_OVER_AND_SOCKET, handed_over_and_socket(bench, at, receiver))
        for title, name, run in (
            ("until a receiver in a process has it", "postroom send", until_received(at, identity, bob)),
            ("until `wait` prints it", "postroom send, postroom wait", until_printed(at, identity, carol)),
        ):
            yield Group(
                title=title,
                pin=pin.name,
                slices=bench.slices,
                cases=(least, ours(name, run), reference, neighbour()),
                goals=(Goal(limit=1.3, over=reference.name, text="≤ 1.3 × (row 11 + row 4)"),),
                note=" ".join([GUARDED, command.note]).strip(),
            )


def neighbour() -> Case:
    """The native tool of the field, which this does not drive."""
    there = shutil.which("hcom") is not None
    return peer("hcom", None, "installed, but not driven from here" if there else "not installed: hcom")


def timed_send(
    at: Desk, argv: Sequence[str], environ: Mapping[str, str], arrived: Callable[[], int]
) -> float:
    """Seconds from the start of a command until `arrived` says when (nanoseconds of the monotonic clock)."""
    begun = time.monotonic_ns()
    pid = started(argv, environ, at.errors)
    took = (arrived() - begun) / 1e9
    _, status = os.waitpid(pid, 0)
    ended(argv, status, at.errors)
    return took


def floor_send(at: Desk, noting: End) -> Callable[[], float]:
    """The floor of row 13."""
    argv = [at.command.python, "-I", "-c", SEND, at.place.path("floor.sock"), TEXT]
    return lambda: timed_send(at, argv, at.place.environ, lambda: noting.heard()["at"])


def handed_over_and_socket(bench: Bench, at: Desk, receiver: Inbox) -> Callable[[], float]:
    """Row 11's hand-over alone, and a message of row 4."""
    count = bench.count(50, least=2)
    return lambda: handed_to_stub(at) + receiver.receive_alone(count)


def until_received(at: Desk, identity: Mapping[str, str], bob: End) -> Callable[[], float]:
    """Until a session that waits in its own process has the message in its hands."""
    argv, environ = [at.command.postroom, "send", "bob", TEXT], {**at.place.environ, **identity}
    return lambda: timed_send(at, argv, environ, lambda: bob.heard()["at"])


def until_printed(at: Desk, identity: Mapping[str, str], carol: End) -> Callable[[], float]:
    """Until `postroom wait`, which waits already, has printed the message."""
    argv, environ = [at.command.postroom, "send", "carol", TEXT], {**at.place.environ, **identity}
    waiting = {**at.place.environ, **carol.ready["environment"]}

    control = carol.ready["socket"].removesuffix(".sock") + ".ctl.sock"

    def once() -> float:
        with subprocess.Popen(
            [at.command.postroom, "wait"], env=waiting, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            out = process.stdout
            try:
                wait_for_caller(control)
                return timed_send(at, argv, environ, lambda: printed(out))
            except BaseException:
                process.kill()
                raise

    return once


def wait_for_caller(path: str) -> None:
    """Waits until a command is connected to a session's control socket (Linux shows it)."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        for line in Path("/proc/net/unix").read_text().splitlines():
            if line.endswith(path) and line.split()[5] == CONNECTED:
                return
    raise RuntimeError("`postroom wait` does not come to wait")


def printed(out: IO[bytes]) -> int:
    """When `wait` has printed the message, in nanoseconds of the monotonic clock."""
    data = b""
    while TEXT.strip().encode() not in data:
        more = os.read(out.fileno(), 65536)
        if not more:
            raise RuntimeError("`postroom wait` did not print the message")
        data += more
    return time.monotonic_ns()
