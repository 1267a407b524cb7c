"""A session that refuses looks like one that accepts and reads at once: by results, notices and listing, and from an
agent's shell; and it does the same work until the same point (03.10, 11.3, 05.22).

The work is recorded: every statement that SQLite runs for a session, without its values, every commit, the turns of the
event loop until an answer can be read, and whether one can be read at each of these points. The time that something
takes is measured by the benchmarks and not here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from postroom import Receipt, Refusal, Session, open_session, present
from tests.desk import COMMAND, SECONDS, Desk, wait_until
from tests.room import states, texts
from tests.simulated import Clock, clock_in_place, hears, kinds, quiet, says
from tests.strangers import Raw, as_line, enveloped, frame
from tests.transports.ends import Peer, run, turns, until

REFUSES = '{"crossSessionInbound": "refuse"}'
TELLS = '{"crossSessionInbound": "refuse", "refusalNotice": "tell"}'
HOLDS = '{"crossSessionInbound": "hold"}'


@pytest.fixture
def clock(home: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that stands still, in a private home."""
    return clock_in_place(monkeypatch)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Every control frame that comes to a session of this process: the session's name and the frame."""
    frames: list[tuple[str, Any]] = []
    control = Session.control

    def note(session: Session, frame: Any, channel: Any) -> None:
        frames.append((session.name, {key: getattr(frame, key) for key in frame.__struct_fields__}))
        control(session, frame, channel)

    monkeypatch.setattr(Session, "control", note)
    return frames


def alike(session: Session, results: object) -> str:
    """What came of something, as a text in which nothing says whose it is, under which ids, or when."""
    text = json.dumps(results)
    for of_its_own, word in ((session.id, "ID"), (session.ref, "REF"), (session.address, "ADDRESS")):
        text = text.replace(str(of_its_own), word)
    return UNLIKE.sub("…", text.replace(session.name, "NAME"))


UNLIKE = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+Z?|\b\d{13}\b"
)
"""Ids of messages and times."""


# ── the same work ────────────────────────────────────────────────────────────────────────────────

VALUES = re.compile(r"x?'(?:[^']|'')*'|\bNULL\b|-?\b\d+\b", re.IGNORECASE)
"""What stands in a statement as SQLite traces it, in the place of its parameters."""


def readable(peer: Peer) -> bool:
    """Whether something can be read from a connection at this instant."""
    return bool(select.select([peer.sock], [], [], 0)[0])


@dataclass
class Work:
    """What a session did for one piece of input.

    Attributes:
        events: statements without values, and `committed` once a commit has returned; with ` (answered)` behind it
            where the sender can read an answer at that point.
        turns: of the event loop until the sender could read something, or until it saw the end.
        answers: all that came back, decoded.
    """

    events: list[str]
    turns: int
    answers: list[Any]


class Recorder:
    """Watches the store of a session. The process that writes to it counts as of another family than the session's."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.events: list[str] = []
        self.peer: Peer | None = None
        store = session.store
        commit = store.commit
        vars(store)["_connection"].set_trace_callback(self.traced)

        def committing() -> None:
            pending = store.pending
            commit()
            if pending:
                self.note("committed")

        vars(store)["commit"] = committing
        vars(vars(session)["_origins"])["_process"] = (0, "")

    def traced(self, sql: str) -> None:
        """SQLite begins to run a statement."""
        self.note(VALUES.sub("?", sql))

    def note(self, what: str) -> None:
        """Writes one event down."""
        answered = self.peer is not None and readable(self.peer)
        self.events.append(f"{what} (answered)" if answered else what)

    async def take(self, data: bytes) -> Work:
        """Writes to the session, ends the writing, and waits until everything is done."""
        assert self.session.address is not None
        self.events.clear()
        self.peer = peer = Peer(self.session.address.removeprefix("uds:"))
        passed = 0
        with contextlib.closing(peer.sock):
            peer.write(data).finish()
            while not readable(peer):
                await asyncio.sleep(0)
                passed += 1
            answers = await peer.ended()
            await until(lambda: not self.session.store.pending)
            self.peer = None
        return Work(list(self.events), passed, [json.loads(each) for each in answers.splitlines()])


def numbered(count: int, text: str, **fields: Any) -> list[dict[str, Any]]:
    """Frames with as many texts."""
    return [frame(f"{text} {number}", **fields) for number in range(count)]


def arrivals(alice: str) -> Iterator[tuple[str, Sequence[object]]]:
    """What a session may be written, and what it is, in this order: later pieces find what earlier ones have left."""
    known = frame(
        "The column is tenant_id.", **{"from": alice}, summary="schema", sent_at="2026-11-30T10:15:02Z"
    )
    named = {
        **frame(""),
        "message": enveloped("and so is the index", ' from-name="bob" from-mode="prompting"'),
    }
    yield "the first of a registered session", [known]
    yield "its id again", [known]
    yield "its id with another text", [{**known, "message": {"role": "user", "content": "something else"}}]
    yield "its text again", [{**known, "msg_id": str(uuid.uuid4())}]
    yield "its text again, and nothing asked", [{**known, "msg_id": str(uuid.uuid4()), "ack": None}]
    yield "an answer", [frame("yes", **{"from": alice}, in_reply_to=known["msg_id"])]
    yield "one of somebody without a session", [frame("hello")]
    yield "one that says who and what it is", [named]
    yield "one that cannot be answered", [frame("no way back", **{"from": "uds:/tmp/nobody.sock"})]
    yield "one for later", [frame("for later", priority="later")]
    yield "a long one", [frame("long " * 4000, summary="long")]
    yield "several at once", numbered(5, "one of several")
    yield "a good one between bad ones", [b"{", frame("good"), b"[]", {"type": "none"}, frame("new", msgV=2)]
    yield "one without an id", [frame("without an id", msg_id=None)]
    yield "one that asks for nothing", [frame("quietly", ack=None)]
    yield "one for another session", [frame("astray", session_id=str(uuid.uuid4()))]
    yield "what no session acts on", [{"type": "control", "action": "rename", "name": "no"}]
    yield "thirty-one at once", numbered(31, "one of a flood", **{"from": alice})
    yield "one too many", [frame("too much", **{"from": alice})]


@contextlib.asynccontextmanager
async def pair(**more: Any) -> AsyncGenerator[tuple[Session, Session, Session]]:
    """alice, and the two whom she is to take for alike: the first accepts, the second refuses."""
    async with (
        open_session("alice") as alice,
        open_session("willing", **more) as willing,
        open_session("refusing", settings=REFUSES, **more) as refusing,
    ):
        yield alice, willing, refusing


@pytest.mark.rule("03.10", "05.22", "11.3", "03.9", "03.8")
def test_both_run_the_same_statements_commit_as_often_and_answer_at_the_same_point(
    clock: Clock, heard: list[tuple[str, Any]]
) -> None:
    """And with the same words. Whatever is answered after a write is answered after its commit."""

    async def work() -> None:
        async with pair() as (alice, willing, refusing):
            recorders = [Recorder(willing), Recorder(refusing)]
            assert alice.address is not None
            seen: dict[str, Work] = {}
            for what, lines in arrivals(alice.address):
                data = b"".join(map(as_line, lines))
                yes, no = [await recorder.take(data) for recorder in recorders]
                assert yes == no, what
                seen[what] = yes
            first = seen["the first of a registered session"]
            assert first.answers[0]["status"] == "queued"
            assert first.events.count("committed") == 1
            assert sum(event.startswith("INSERT") for event in first.events) >= 5
            for what, done in seen.items():
                if "committed" in done.events:
                    point = done.events.index("committed")
                    assert not any("(answered)" in event for event in done.events[: point + 1]), what
                assert done.events.count("COMMIT") == done.events.count("committed") <= 1, what
            said = [answer.get("reason") or answer["status"] for answer in seen["thirty-one at once"].answers]
            assert said[-1] == "rate-limited"
            assert said.count("queued") == 31 - said.count("rate-limited") > 20
            assert [seen[f"its {each}"].answers[0]["status"] for each in ("id again", "text again")] == [
                "queued",
                "dropped",
            ]
            # The one who was spoken for is told of the same drops, in the same frames.
            await quiet(willing, refusing)
            await until(lambda: len(heard) >= 2)
            await turns()
            assert alice.counts == {"control-foreign": 2}, "she has sent none of it herself"
            told = [
                [frame for _, frame in heard if frame["from_"] == each.address]
                for each in (willing, refusing)
            ]
            assert alike(willing, told[0]) == alike(refusing, told[1])
            assert [frame["drop_reason"] for frame in told[0]] == ["duplicate"]
            # It was not in vain: one has it all, the other has nothing, and no text of it.
            assert len(willing.peek()) > 40
            assert refusing.peek() == []
            with refusing.reading() as store:
                refused = [step for _, step in store.log(limit=1000) if step.state == "refused"]
                assert len(refused) == len(willing.peek())
                kept = [message.text for step in refused for message in store.find(step.msg_id)]
            assert {len(text) for text in kept} == {64}
            assert set(kept).isdisjoint(texts(willing.peek()))
            assert willing.counts == refusing.counts != {}

    run(work())


@pytest.mark.rule("05.22")
def test_what_is_held_is_acknowledged_after_the_same_work_too(clock: Clock) -> None:
    """Where nobody can be told of it; else it owes a notice besides."""

    async def work() -> None:
        async with pair() as (_, willing, refusing), open_session("holding", settings=HOLDS) as holding:
            data = as_line(frame("hello"))
            yes, no, maybe = [await Recorder(each).take(data) for each in (willing, refusing, holding)]
            assert yes == no == maybe
            assert "committed" in maybe.events
            assert len(holding.held()) == 1

    run(work())


# ── nothing that a sender sees ───────────────────────────────────────────────────────────────────


def said(result: Receipt | Refusal) -> dict[str, Any]:
    """A result as the document that a command prints."""
    if isinstance(result, Receipt):
        return present.receipt_document(result)
    return present.error_document(result.code, result.message, result.hint, result.candidates, result.msg_id)


@contextlib.asynccontextmanager
async def reading(session: Session) -> AsyncGenerator[list[str]]:
    """A loop that reads at once whatever comes, while the block runs; what it has read."""
    read: list[str] = []

    async def read_on() -> None:
        async for message in session.messages():
            read.append(message.text)

    task = asyncio.create_task(read_on())
    try:
        yield read
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.rule("03.10", "03.9", "03.67", "11.3", "03.54")
def test_neither_results_nor_frames_of_quick_sends_tell_anything(
    clock: Clock, heard: list[tuple[str, Any]]
) -> None:
    """Thirty-one in one instant, the same text again, an id again, at a session that reads at once and at one that refuses."""

    async def work() -> None:
        async with pair() as (alice, willing, refusing), reading(willing) as read:
            found: list[str] = []
            for session in (willing, refusing):
                sends = [alice.send(session.name, "hello", summary="again") for _ in range(2)]
                results = [await each for each in sends]
                first = results[0]
                assert isinstance(first, Receipt)
                for text in ("hello", "something else"):
                    results.append(await alice.send(session.name, text, summary="again", msg_id=first.msg_id))
                for number in range(31):
                    results.append(await alice.send(session.name, f"number {number}", summary="a number"))
                found.append(alike(session, [said(result) for result in results]))
                codes = [each.code if isinstance(each, Refusal) else each.status for each in results]
                assert codes[:4] == ["queued", "duplicate", "queued", "queued"]
                assert codes[4:].count("sender_burst") >= 1
            assert found[0] == found[1]
            await until(lambda: len(read) == 1 + codes[4:].count("queued"))
            await quiet(alice, willing, refusing)
            await turns()
            assert (hears(alice), heard, alice.counts) == ([], [], {})
            rows = {row.identity: present.row_document(row) for row in alice.listing().rows}
            mine, theirs = (alike(each, rows[each.id]) for each in (willing, refusing))
            assert mine == theirs
            assert refusing.peek() == []

    run(work())


@pytest.mark.rule("05.31", "03.10")
def test_a_subscription_is_answered_as_by_an_idle_session(clock: Clock, heard: list[tuple[str, Any]]) -> None:
    """At once, with a message and without, and by the same frame, field by field."""

    async def work() -> None:
        async with pair() as (alice, willing, refusing), reading(willing):
            found: list[str] = []
            for session in (willing, refusing):
                results: list[Receipt | Refusal] = []
                for text in (None, "hello", None):
                    summary = "a text" if text else None
                    results.append(
                        await alice.send(session.name, text, summary=summary, notify_when_idle=True)
                    )
                    await until(alice.peek_notices)
                    [notice] = hears(alice)
                    assert (notice.kind, notice.about) == ("idle", session.name)
                frames = [frame for name, frame in heard if name == "alice"]
                assert len(frames) == 3
                found.append(alike(session, [[said(result) for result in results], frames]))
                heard.clear()
                await quiet(session)
                with session.reading() as store:
                    assert store.subscriptions(mine=False) == []
            assert found[0] == found[1]
            assert alice.counts == {}

    run(work())


@pytest.mark.rule("03.54", "03.10")
def test_where_the_person_wants_it_the_sender_is_told(clock: Clock, heard: list[tuple[str, Any]]) -> None:
    """By a notice after the same acknowledgement; older readers take it for an end by time."""

    async def work() -> None:
        async with pair() as (alice, willing, _), open_session("telling", settings=TELLS) as telling:
            results = [await alice.send(each.name, "hello", summary="a text") for each in (willing, telling)]
            mine, theirs = (
                alike(each, said(result)) for each, result in zip((willing, telling), results, strict=True)
            )
            assert mine == theirs
            await until(alice.peek_notices)
            [notice] = hears(alice)
            assert (notice.kind, notice.about) == ("refused", "telling")
            [(name, frame)] = heard
            assert (name, frame["status"], frame["status_detail"]) == ("alice", "expired", "refused")
            msg_id = await says(alice, "telling", "once more")
            await until(alice.peek_notices)
            assert (kinds(hears(alice)), states(alice, msg_id)) == (["refused"], ["queued", "refused"])

    run(work())


# ── real processes ───────────────────────────────────────────────────────────────────────────────

SHELL = f"""
import json, subprocess, sys
def tell(*words):
    done = subprocess.run([{COMMAND!r}, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return [done.returncode, json.loads(done.stdout), done.stderr]
said = {{}}
for name in sys.argv[1:]:
    first = tell("send", name, "The column is tenant_id.", "--summary", "schema")
    msg_id = first[1]["msg_id"]
    said[name] = [
        first,
        tell("send", name, "The column is tenant_id.", "--msg-id", msg_id),
        tell("send", name, "The column is tenant_id."),
        tell("send", name, "--notify-when-idle"),
        tell("wait", "--timeout", "{SECONDS}"),
        tell("inbox", "--take"),
        tell("trace", msg_id),
        *(tell("--session", name, *words) for words in (["trace", msg_id], ["explain", msg_id], ["status"])),
    ]
said["list"] = tell("list")
print(json.dumps(said))
"""
"""An agent's shell, which tries each of the sessions that it is given in the same way and prints what it saw."""


@pytest.fixture
def desk(home: Path) -> Iterator[Desk]:
    """A private desk."""
    desk = Desk(home, os.environ)
    yield desk
    desk.leave()


@pytest.mark.rule("03.10", "11.3", "10.12", "05.26", "05.31")
def test_show_2_an_agents_shell_cannot_tell_one_from_the_other(desk: Desk) -> None:
    """Real sessions, one of which reads what comes at once and the other refuses it; the person sees which is which."""
    willing, refusing = desk.open("willing"), desk.open("refusing", "--settings", REFUSES)
    with subprocess.Popen(
        [COMMAND, "--session", "willing", "inbox", "--follow", "--json"],
        env=desk.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as loop:
        done = desk.run("open", "--name", "alice", "--", sys.executable, "-c", SHELL, "willing", "refusing")
        assert done.code == 0, done.err
        found = json.loads(done.out)
        assert loop.stdout is not None
        [read] = json.loads(loop.stdout.readline())["messages"]
        loop.kill()
    rows = {row["session_id"]: row for row in found["list"][1]["rows"]}
    seen = [
        blank([found[each["name"]], {**rows[each["session_id"]], "pid": 0}], each)
        for each in (willing, refusing)
    ]
    assert seen[0] == seen[1]
    sent, again, repeat, asked, waited, more, traced, *others = found["refusing"]
    assert [each[0] for each in found["refusing"]] == [0, 0, 1, 0, 0, 0, 0, 1, 1, 1]
    assert (sent[1]["status"], again[1]["status"], asked[1]["status"]) == ("queued", "queued", "written")
    assert repeat[1]["error"]["code"] == "duplicate"
    assert [notice["kind"] for notice in waited[1]["notices"]] == ["idle"]
    assert more[1] == {"messages": [], "notices": []}
    assert {step["where"] for step in traced[1]["steps"]} == {"alice"}
    assert [each[1]["error"]["code"] for each in others] == ["not_your_session"] * 3

    assert read["text"] == "The column is tenant_id."
    assert desk.take("refusing") == []
    of_person = desk.ok("--session", "refusing", "trace", sent[1]["msg_id"])["steps"]
    assert "refused" in {step["state"] for step in of_person}


def blank(document: object, session: Mapping[str, Any]) -> str:
    """A document as a text in which nothing says whose it is, under which ids, or when."""
    text = json.dumps(document)
    for key, word in (("session_id", "ID"), ("ref", "REF"), ("name", "NAME")):
        text = text.replace(session[key], word)
    return UNLIKE.sub("…", text)


def traceable() -> bool:
    """Whether this system lets one process watch another's system calls."""
    if shutil.which("strace") is None:
        return False
    done = subprocess.run(
        ["strace", "-qq", "-o", "/dev/null", "true"], stderr=subprocess.DEVNULL, check=False
    )
    return done.returncode == 0


@contextlib.contextmanager
def syncs_of(session: Mapping[str, Any], log: Path) -> Generator[Path]:
    """Writes down every sync that a session's process asks the system for, while the block runs."""
    calls = "--trace=fsync,fdatasync,sync_file_range,sync,syncfs,msync"
    with subprocess.Popen(
        ["strace", "-f", calls, "-o", str(log), "-p", str(session["pid"])],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as strace:
        assert strace.stderr is not None
        try:
            assert "attached" in strace.stderr.readline()
            yield log
        finally:
            strace.terminate()


@pytest.mark.rule("03.10", "05.27")
@pytest.mark.skipif(not traceable(), reason="strace is not here, or may not watch: commits are counted above")
def test_the_system_is_asked_to_sync_as_often(desk: Desk, home: Path) -> None:
    """Once for each message that comes alone, and for each repeat of an id, of both sessions alike."""
    both = [desk.open("willing"), desk.open("refusing", "--settings", REFUSES)]
    counts: list[list[str]] = []
    for session in both:
        with Raw(session["socket"]) as line, contextlib.ExitStack() as stack:
            line.post("the first one, after which the log is begun anew")
            log = stack.enter_context(syncs_of(session, home / session["name"]))
            for number in range(5):
                msg_id = line.post(f"number {number}")["msg_id"]
                assert line.post("again", msg_id=msg_id)["status"] == "queued"
            wait_until(lambda log=log: len(log.read_text().splitlines()) >= 10)
        counts.append(
            [entry.split(maxsplit=1)[1].partition("(")[0] for entry in log.read_text().splitlines()]
        )
    assert counts[0] == counts[1] == ["fdatasync"] * 10
