"""Who is stopped, evicted or broken: each row of chapter 02's table, on sessions with their files on disk (Show 1).

A restart of the process is an end of the session and a second opening of it; where it was killed, the files that the end
has changed are put back as they were.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import pytest

from postroom import Agent, Agents, BadUsage, Receipt, RunStatus, Session, open_session
from postroom.core.address import shown
from postroom.core.queues import Entry
from postroom.state.agent_files import MAX_METADATA
from postroom.state.transcripts import MAX_TRANSCRIPT
from tests.crew import HostOptions, Starter, both, names, refused, sent, words
from tests.transports.ends import run, turns, until

ENDS: tuple[RunStatus, ...] = ("completed", "failed", "killed")


@dataclass(eq=False)
class Host:
    """A session on disk that hosts agents, which may be closed and opened again."""

    home: Path
    starter: Starter
    session_id: str | None = None

    @contextlib.asynccontextmanager
    async def open(self, **options: Unpack[HostOptions]) -> AsyncGenerator[tuple[Session, Agents]]:
        """Opens it for the first time, or again."""
        options.setdefault("resume", self.starter)
        name = None if self.session_id else "lead"
        async with open_session(name, cwd=str(self.home), resume=self.session_id) as session:
            self.session_id = session.id
            yield session, Agents(session, **options)

    def folder(self, agent_id: str) -> Path:
        """Where an agent's files lie."""
        return self.home / f"state/sessions/{self.session_id}/agents/{agent_id}"

    def life(self, agent_id: str) -> dict[str, Any]:
        """What its metadata says."""
        return json.loads((self.folder(agent_id) / "agent.json").read_text())


@pytest.fixture
def host(home: Path) -> Host:
    """A host that nobody has opened."""
    return Host(home, Starter())


def session_folder(home: Path) -> Path:
    """The one session's folder."""
    [agents] = home.glob("state/sessions/*/agents")
    return agents.parent


# ── live, and stopped by itself ──────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.22", "06.4")
def test_a_live_agent_has_it_in_its_list(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (session, agents):
            worker = await agents.start("worker")
            assert "not on disk" in sent(await session.send("worker", "x", summary="s")).note
            assert words(worker.drain()) == ["x"]
            assert host.starter.calls == []

    run(work())


@pytest.mark.rule("02.23", "06.13")
@pytest.mark.parametrize("status", ENDS)
@pytest.mark.parametrize("evicted", [False, True], ids=["kept", "evicted"])
def test_one_that_ended_is_resumed_with_the_message_as_its_prompt(
    host: Host, status: RunStatus, evicted: bool
) -> None:
    async def work() -> None:
        async with host.open() as (session, agents):
            worker = await agents.start("worker", agent_type="coder")
            await worker.finish(status)
            life = host.life(worker.id)
            assert (life["state"], life["runs"], life["name"], life["type"]) == (status, 1, "worker", "coder")
            if evicted:
                agents.evict(worker)
            receipt = sent(await session.send("worker", "go on", summary="s"), "resumed")
            assert (receipt.to.name, receipt.to.ref, receipt.to.kind) == ("worker", worker.ref, "agent")
            assert receipt.pin is not None
            assert receipt.pin.identity == worker.id
            assert host.starter.calls == [(worker.id, 2, ["go on"])]
            again = agents.get("worker")
            assert isinstance(again, Agent)
            assert again is worker  # who holds the object holds the agent: there is never a second one
            assert (again.id, again.type, again.state, again.run) == (worker.id, "coder", "live", 2)
            assert (host.life(worker.id)["state"], host.life(worker.id)["runs"]) == ("live", 2)
            assert names(agents.rows()) == ["worker"]
            sent(await session.send("worker", "and on", summary="s"))
            assert words(again.drain()) == ["and on"]

    run(work())


@pytest.mark.rule("02.9", "02.23")
def test_report_5_by_name_and_then_by_id_the_same_one_is_resumed_once_each(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (session, agents):
            worker = await agents.start("worker")
            await worker.finish()
            sent(await session.send("worker", "by name", summary="s"), "resumed")
            sent(await session.send(worker.id, "while it runs", summary="s"))
            worker.drain()
            await worker.finish()
            sent(await session.send(worker.id, "by id", summary="s"), "resumed")
            assert host.starter.calls == [(worker.id, 2, ["by name"]), (worker.id, 3, ["by id"])]
            await worker.finish()
            answers = await both(
                session.send("worker", "both, by name", summary="s"),
                session.send(worker.id, "both, by id", summary="s"),
                session.send(shown("worker", worker.ref), "both, by ref", summary="s"),
            )
            assert [sent(each, "resumed").to.ref for each in answers] == [worker.ref] * 3
            assert host.starter.texts[2:] == ["both, by name", "both, by id", "both, by ref"]
            assert (len(host.starter.calls), worker.run) == (3, 4)
            assert names(agents.rows()) == ["worker"]

    run(work())


@pytest.mark.rule("02.23", "06.13")
def test_after_a_restart_of_the_process_it_is_the_same_agent(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (_, agents):
            worker = await agents.start("worker", agent_type="coder")
            await worker.finish(result="first")
            agents.main.drain().confirm()
        async with host.open() as (session, agents):
            assert not agents.main.drain(), "told once"
            assert (await agents.start("worker")).name == "worker-2"
            sent(await session.send("worker", "go on", summary="s"), "resumed")
            assert host.starter.calls == [(worker.id, 2, ["go on"])]
            again = agents.get("worker")
            assert again is not None
            assert (again.id, again.type, again.run) == (worker.id, "coder", 2)

    run(work())


@pytest.mark.rule("06.13", "06.11", "02.23")
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_what_an_ended_process_left_live_was_killed_and_is_told_once(host: Host, killed: bool) -> None:
    async def work() -> None:
        async with host.open() as (_, agents):
            worker, sync = await agents.start("worker"), await agents.start("sync", background=False)
            as_it_was = (host.folder(worker.id) / "agent.json").read_bytes()
            assert host.life(worker.id)["state"] == "live"
        assert host.life(sync.id)["state"] == "killed"
        if killed:
            (host.folder(worker.id) / "agent.json").write_bytes(as_it_was)
        async with host.open() as (_, agents):
            batch = agents.main.drain()
            [entry] = batch.entries
            assert isinstance(entry, Entry)
            assert entry.task is not None
            assert (entry.task.task_id, entry.task.status, entry.task.run) == (worker.id, "killed", 1)
            assert host.life(worker.id)["state"] == "killed"
        async with host.open() as (session, agents):
            batch = agents.main.drain()
            assert len(batch) == 1, "it was not confirmed"
            batch.confirm()
            sent(await session.send("worker", "go on", summary="s"), "resumed")
        async with host.open() as (_, agents):
            told = [
                each.task and each.task.run for each in agents.main.drain().entries if isinstance(each, Entry)
            ]
            assert told == [2], "the first is told no more, and the second run was killed too"

    run(work())


@pytest.mark.rule("06.3", "11.1")
def test_after_a_restart_the_main_queue_is_filled_from_the_store(host: Host) -> None:
    async def work() -> None:
        async with open_session("peer", cwd=str(host.home)) as peer:
            async with host.open() as (_, agents):
                worker = await agents.start("worker")
                await worker.send("main", "not durable", summary="s")
                await peer.send("lead", "handed out", summary="s")
                assert sorted(words(agents.main.drain())) == ["handed out", "not durable"]
                await peer.send("lead", "never read", summary="s")
            woken: list[int] = []
            async with host.open(wake=lambda: woken.append(1)) as (_, agents):
                assert agents.main.waiting == 3, "two messages, and that the worker was killed"
                batch = agents.main.rest()
                assert sorted(words(batch)) == ["", "handed out", "never read"]
                marked = {each.text: each.redelivered for each in batch.entries}
                assert marked["handed out"] is True
                batch.confirm()
                assert not agents.main.rest()
                assert woken == []

    run(work())


@pytest.mark.rule("02.26")
def test_a_host_that_can_resume_nobody_says_so(host: Host) -> None:
    async def work() -> None:
        async with host.open(resume=None) as (session, agents):
            worker = await agents.start("worker")
            await worker.finish()
            no = refused(await session.send("worker", "x", summary="s"), "resume_failed")
            assert "no way to resume it" in no.message
            assert (worker.state, worker.waiting) == ("completed", 0)

    run(work())


# ── stopped by the user ──────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.24", "06.13")
def test_what_the_user_stopped_stays_so_for_everybody_until_it_is_restarted(host: Host) -> None:
    """By name, id and ref, by main and by an agent, evicted, and after restarts of the process (Show 4)."""

    async def work() -> None:
        async with host.open() as (session, agents):
            worker, other = await agents.start("worker"), await agents.start("other")
            sent(await session.send("worker", "was never read", summary="s"))
            await agents.stop(worker)
            assert (worker.state, worker.waiting, host.life(worker.id)["stopped_by_user"]) == (
                "killed",
                0,
                True,
            )
            for send in (session.send, other.send):
                for to in ("worker", worker.id, shown("worker", worker.ref)):
                    no = refused(await send(to, "x", summary="s"), "stopped_by_user")
                    assert no.message.startswith("The user has stopped worker")
            agents.evict(worker)
            refused(await other.send("worker", "x", summary="s"), "stopped_by_user")
            assert (await agents.start("worker")).name == "worker-2"
        for _ in range(2):
            async with host.open() as (session, agents):
                refused(await session.send("worker", "x", summary="s"), "stopped_by_user")
                other = await agents.start("other")
                refused(await other.send(worker.id, "x", summary="s"), "stopped_by_user")
        assert host.starter.calls == []
        async with host.open() as (_, agents):
            stopped = agents.get("worker")
            assert stopped is not None
            assert stopped.id == worker.id
            agents.restart(stopped)
            assert stopped.state == "killed", "nothing runs until it is written to"
        async with host.open() as (session, _):
            sent(await session.send("worker", "go on", summary="s"), "resumed")
            assert host.starter.calls == [(worker.id, 2, ["go on"])]

    run(work())


@pytest.mark.rule("02.24")
def test_one_that_has_ended_by_itself_can_be_stopped_by_the_user_too(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (session, agents):
            worker = await agents.start("worker")
            await worker.finish(result="done")
            agents.main.drain().confirm()
            await agents.stop(worker)
            assert worker.state == "completed"
            refused(await session.send("worker", "x", summary="s"), "stopped_by_user")
            assert not agents.main.drain(), "no second end of that run"
            agents.evict(worker)
            refused(await session.send("worker", "x", summary="s"), "stopped_by_user")
            agents.restart(worker)  # by the handle that the host has kept
            sent(await session.send("worker", "x", summary="s"), "resumed")

    run(work())


@pytest.mark.rule("02.24", "02.23")
def test_what_its_program_stopped_is_resumed_by_the_next_message(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (session, agents):
            worker = await agents.start("worker")
            await agents.stop(worker, by_user=False)
            sent(await session.send("worker", "go on", summary="s"), "resumed")

    run(work())


@pytest.mark.rule("02.24", "02.27")
def test_a_stop_while_it_is_being_resumed_ends_the_resume_and_is_named(host: Host) -> None:
    async def work() -> None:
        called = asyncio.Event()

        async def resume(agent: Agent, messages: object) -> None:
            del agent, messages
            called.set()
            await asyncio.Event().wait()

        async with host.open(resume=resume) as (session, agents):
            worker = await agents.start("worker")
            await worker.finish()
            sends = [asyncio.create_task(session.send("worker", f"{n}", summary="s")) for n in range(3)]
            await called.wait()
            await agents.stop(worker)
            for each in sends:
                refused(await each, "stopped_by_user")
            refused(await session.send("worker", "x", summary="s"), "stopped_by_user")
            assert (worker.state, worker.waiting, worker.flight) == ("completed", 0, None)
            assert host.life(worker.id)["stopped_by_user"] is True

    run(work())


@pytest.mark.rule("02.25")
def test_a_live_agent_is_not_evicted(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (session, agents):
            worker = await agents.start("worker")
            with pytest.raises(BadUsage):
                agents.evict(worker)
            sent(await session.send("worker", "x", summary="s"))
            assert worker.waiting == 1

    run(work())


# ── what cannot be used ──────────────────────────────────────────────────────────────────────────


def edited(path: Path, **changes: object) -> None:
    """Writes metadata anew with changes; None takes a field out."""
    fields = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in fields.items() if value is not None}))


def instead(path: Path, made: Callable[[Path], object]) -> None:
    """Puts something else where a file was."""
    path.unlink()
    made(path)


def linked(path: Path) -> None:
    """Moves a file and leaves a symlink to it."""
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def with_header(path: Path, **changes: object) -> None:
    """Rewrites the first line of a transcript."""
    first, _, rest = path.read_text().partition("\n")
    path.write_text(json.dumps(json.loads(first) | changes) + "\n" + rest)


def huge(path: Path, size: int) -> None:
    """Makes a file as large, in holes."""
    os.truncate(path, size)


TRANSCRIPTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "its transcript is missing"),
    "empty": (lambda path: huge(path, 0), "holds no line that can be read"),
    "truncated": (lambda path: huge(path, 20), "holds no line that can be read"),
    "garbage": (lambda path: path.write_bytes(b"\xff\x00\n{]\n"), "holds no line that can be read"),
    "newer": (lambda path: with_header(path, postroom=2), "of a newer version (2"),
    "a symlink": (linked, "its transcript cannot be used"),
    "a folder": (lambda path: instead(path, Path.mkdir), "its transcript cannot be used"),
    "a pipe": (lambda path: instead(path, os.mkfifo), "its transcript cannot be used"),
    "open to others": (lambda path: path.chmod(0o644), "its transcript cannot be used"),
    "another agent's": (
        lambda path: with_header(path, agent="somebody"),
        "its transcript is another agent's",
    ),
    "another session's": (
        lambda path: with_header(path, session="else"),
        "its transcript is of another session",
    ),
    "huge": (lambda path: huge(path, MAX_TRANSCRIPT + 1), "larger than 256 MiB"),
}

METADATA: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "its metadata is missing"),
    "its folder missing": (lambda path: shutil.rmtree(path.parent), "its metadata is missing"),
    "empty": (lambda path: huge(path, 0), "its metadata is not JSON"),
    "truncated": (lambda path: huge(path, 40), "its metadata is not JSON"),
    "no UTF-8": (lambda path: path.write_bytes(b'{"v": 1, "name": "\xff"}'), "its metadata is not UTF-8"),
    "newer": (lambda path: edited(path, v=2), "its metadata is of a newer version (2"),
    "without a version": (lambda path: edited(path, v=None), "its metadata has no version"),
    "without a name": (lambda path: edited(path, name=None), "its metadata lacks `name`"),
    "with a wrong state": (lambda path: edited(path, state="asleep"), "`state` is not what it should be"),
    "a symlink": (linked, "its metadata cannot be used"),
    "a pipe": (lambda path: instead(path, os.mkfifo), "its metadata cannot be used"),
    "open to others": (lambda path: path.chmod(0o664), "its metadata cannot be used"),
    "another agent's": (lambda path: edited(path, id="somebody"), "its metadata is another agent's"),
    "another session's": (lambda path: edited(path, session_id="else"), "its metadata is of another session"),
    "huge": (lambda path: huge(path, MAX_METADATA + 1), "its metadata cannot be used"),
}

KEPT = {what: row[0] for what, row in METADATA.items() if what != "its folder missing"}
"""What breaks the metadata alone."""

FLAWS = [
    *(pytest.param("transcript.jsonl", *row, id=f"transcript {what}") for what, row in TRANSCRIPTS.items()),
    *(pytest.param("agent.json", *row, id=f"metadata {what}") for what, row in METADATA.items()),
]


@pytest.mark.rule("02.26", "06.13", "01.30")
@pytest.mark.parametrize("evicted", [False, True], ids=["kept", "evicted"])
@pytest.mark.parametrize(("file", "breaks", "reason"), FLAWS)
def test_what_cannot_be_used_is_not_resumed_and_nobody_gets_its_name(
    host: Host, file: str, breaks: Callable[[Path], object], reason: str, evicted: bool
) -> None:
    async def work() -> None:
        async with host.open() as (session, agents):
            worker, other = await agents.start("worker"), await agents.start("other")
            await worker.finish()
            if evicted:
                agents.evict(worker)
            folder = host.folder(worker.id)
            shutil.copytree(folder, host.home / "kept")
            breaks(folder / file)
            before = names(agents.rows())
            for send in (session.send, other.send):
                for to in ("worker", worker.id, shown("worker", worker.ref)):
                    no = refused(await send(to, "x", summary="s"), "resume_failed")
                    assert no.message.startswith("worker could not be resumed: ")
                    assert reason in no.message
                    assert str(host.home) not in str(no)
            assert host.starter.calls == []
            assert names(agents.rows()) == before
            assert (await agents.start("worker")).name == "worker-2"
            refused(await session.send("worker", "x", summary="s"), "resume_failed")
            # Mended, it is the same agent, and the words that failed are no repeat.
            shutil.rmtree(folder, ignore_errors=True)
            (host.home / "kept").rename(folder)
            sent(await session.send("worker", "x", summary="s"), "resumed")
            assert host.starter.calls == [(worker.id, 2, ["x"])]

    run(work())


@pytest.mark.rule("02.26", "06.13")
@pytest.mark.parametrize(("file", "breaks", "reason"), FLAWS)
def test_after_a_restart_of_the_process_it_is_not_resumed_either(
    host: Host, file: str, breaks: Callable[[Path], object], reason: str
) -> None:
    """Its name is known from the conversation that wrote to it, and its id to whoever was told it."""

    async def work() -> None:
        async with host.open() as (session, agents):
            worker = await agents.start("worker")
            sent(await session.send("worker", "x", summary="s"))
            worker.drain()
            await worker.finish()
            agents.main.drain().confirm()
        breaks(host.folder(worker.id) / file)
        async with host.open() as (session, agents):
            gone = reason == "its metadata is missing" and not host.folder(worker.id).exists()
            code = "not_found" if gone else "resume_failed"
            for to in (worker.id, "worker"):
                no = refused(await session.send(to, "y", summary="s"), code)
                assert gone or reason in no.message
            if file == "agent.json" and not gone:
                assert any(worker.ref in each and reason in each for each in session.problems)
            assert host.starter.calls == []
            await turns()

    run(work())


@pytest.mark.rule("02.26")
@pytest.mark.parametrize("breaks", KEPT.values(), ids=list(KEPT))
def test_its_name_stays_its_own_after_a_restart_though_nobody_wrote_to_it(
    host: Host, breaks: Callable[[Path], object]
) -> None:
    """Its metadata is lost, and with it the name: the transcript has it too."""

    async def work() -> None:
        async with host.open() as (_, agents):
            worker = await agents.start("worker")
            await worker.finish()
        breaks(host.folder(worker.id) / "agent.json")
        async with host.open() as (session, agents):
            no = refused(await session.send("worker", "x", summary="s"), "resume_failed")
            assert no.message.startswith("worker could not be resumed: ")
            assert any(shown("worker", worker.ref) in each for each in session.problems)
            other = await agents.start("worker")
            assert other.name == "worker-2"
            refused(await other.send("worker", "x", summary="s"), "resume_failed")
            assert other.waiting == 0

    run(work())


@pytest.mark.rule("02.26")
def test_a_hosts_own_transcript_is_checked_as_well(host: Host) -> None:
    async def work() -> None:
        own = host.home / "conversation.jsonl"
        async with host.open() as (session, agents):
            worker = await agents.start("worker", transcript=str(own))
            assert worker.transcript is None
            await worker.finish()
            no = refused(await session.send("worker", "x", summary="s"), "resume_failed")
            assert "its transcript is missing" in no.message
            own.write_text('{"role": "user", "content": "hello"}\n')
            own.chmod(0o644)
            sent(await session.send("worker", "x", summary="s"), "resumed")
        async with host.open(transcripts=False) as (session, agents):
            bare = await agents.start("bare")
            await bare.finish()
            no = refused(await session.send("bare", "x", summary="s"), "resume_failed")
            assert "it has no transcript" in no.message

    run(work())


@pytest.mark.rule("06.13", "02.26")
def test_a_flawed_agent_keeps_no_other_from_being_used(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (_, agents):
            broken, whole = await agents.start("broken"), await agents.start("whole")
            await broken.finish()
            await whole.finish()
        (host.folder(broken.id) / "agent.json").write_text("{")
        (host.folder(whole.id).parent / "stray file").write_text("x")
        async with host.open() as (session, agents):
            sent(await session.send("whole", "x", summary="s"), "resumed")
            fresh = await agents.start("fresh")
            sent(await session.send("fresh", "x", summary="s"))
            assert fresh.waiting == 1
            with pytest.raises(BadUsage):
                await agents.start("again", agent_id=broken.id)

    run(work())


@pytest.mark.rule("02.26", "02.23", "06.13")
def test_one_that_was_killed_and_is_mended_later_is_resumed_and_not_taken_for_live(host: Host) -> None:
    """Its metadata could not be used when the session came back, and says that it runs: it does not."""

    async def work() -> None:
        async with host.open() as (_, agents):
            worker = await agents.start("worker")
            as_it_was = (host.folder(worker.id) / "agent.json").read_bytes()
        (host.folder(worker.id) / "agent.json").write_bytes(b"{")
        async with host.open() as (session, agents):
            refused(await session.send("worker", "x", summary="s"), "resume_failed")
            (host.folder(worker.id) / "agent.json").write_bytes(as_it_was)
            assert len(agents) == 0
            sent(await session.send("worker", "go on", summary="s"), "resumed")
            assert host.starter.calls == [(worker.id, 2, ["go on"])]

    run(work())


@pytest.mark.rule("06.13")
def test_what_is_kept_of_an_agent_is_this_users_alone(host: Host) -> None:
    async def work() -> None:
        async with host.open() as (session, agents):
            worker = await agents.start("worker")
            await worker.send("main", "x", summary="s")
            await until(lambda: (host.folder(worker.id) / "transcript.jsonl").exists())
            folder = host.folder(worker.id)
            assert {each.name for each in folder.iterdir()} == {"agent.json", "transcript.jsonl"}
            for each in (folder.parent, folder, *folder.iterdir()):
                assert each.stat().st_mode & 0o077 == 0
            life = host.life(worker.id)
            assert {
                "id": worker.id,
                "name": "worker",
                "type": "",
                "session_id": session.id,
                "transcript": str(folder / "transcript.jsonl"),
                "state": "live",
                "stopped_by_user": False,
                "runs": 1,
            }.items() <= life.items()
            assert folder.parent.parent == session_folder(host.home)
            assert isinstance(sent(await session.send("worker", "y", summary="s")), Receipt)

    run(work())
