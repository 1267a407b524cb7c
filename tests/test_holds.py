"""What is held, from end to end: shown, let in or left alone, evicted, judged again, over restarts (chapter 03, Holds).

Where time matters the sessions live in this process, with real stores and sockets, and their clock stands still; a
crash needs a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom import Refusal, Session, open_session
from postroom.standing import Reporter
from tests.desk import SECONDS, Desk
from tests.room import states, texts
from tests.simulated import MINUTE, Clock, clock_in_place, ends, hears, held, kinds, quiet, says
from tests.terminal import person
from tests.transports.ends import run, until

HOLDER = Path(__file__).parent / "parties/holder.py"
"""The program that holds."""


@pytest.fixture
def clock(home: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that stands still, in a private home."""
    return clock_in_place(monkeypatch)


@pytest.fixture
def desk(home: Path) -> Iterator[Desk]:
    """A private desk with alice open, who never asks for permission."""
    desk = Desk(home, os.environ)
    desk.open("alice", "--mode", "bypassPermissions")
    yield desk
    desk.leave()


def notices(desk: Desk, session: str, *kinds: str) -> list[dict[str, Any]]:
    """Waits until a session was told just these, in this order."""
    told: list[dict[str, Any]] = []
    while len(told) < len(kinds):
        document = desk.ok("--session", session, "wait", "--timeout", str(SECONDS))
        assert document["messages"] == []
        told += document["notices"]
    assert [notice["kind"] for notice in told] == list(kinds), told
    return told


def holds_of(desk: Desk, session: str) -> list[dict[str, Any]]:
    """What a session holds."""
    return list(desk.ok("--session", session, "held")["held"])


# ── one that waits ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.20", "03.41", "03.51", "03.52", "10.4")
def test_show_3_a_hold_is_told_and_a_person_lets_it_in(desk: Desk) -> None:
    """The model that receives it sees that it was held and that a person saw it; the sender hears both."""
    desk.open("bob")
    msg_id = desk.send("alice", "bob", "The column is tenant_id.")["msg_id"]
    [told] = notices(desk, "alice", "held")
    assert (told["msg_id"], told["about"]) == (msg_id, "bob")
    assert "another permission class" in told["detail"]
    assert "nobody can approve it there; it ends at" in told["detail"]
    person(desk, "--session", "bob", "approve", msg_id)
    shown = desk.run("--session", "bob", "wait").out
    [tag] = [line for line in shown.splitlines() if line.startswith("<cross-session-message")]
    assert 'held="yes" approved-by="user"' in tag
    assert f'msg-id="{msg_id}"' in tag
    [let_in] = notices(desk, "alice", "delivered")
    assert let_in["msg_id"] == msg_id
    assert "A person there let it in." in let_in["detail"]


@pytest.mark.rule("03.38", "03.51", "03.53")
@pytest.mark.parametrize(("setting", "seconds"), [("60s", 60), ("5m", 300), ("10m", 600), (None, 300)])
def test_show_3_what_is_left_alone_expires_at_both_ends(
    clock: Clock, setting: str | None, seconds: int
) -> None:
    """The sender hears `held` without any time passing, and `expired` when the time has passed, not a moment before."""
    settings = f'{{"dialogExpiry": "{setting}"}}' if setting else None

    async def work() -> None:
        async with (
            open_session("bob", settings=settings) as bob,
            open_session("alice", mode="bypassPermissions") as alice,
        ):
            msg_id = await says(alice, "bob")
            await quiet(bob)
            assert kinds(hears(alice)) == ["held"]
            assert [hold.expires_at for hold in bob.held()] == [clock.now + seconds * 1000]
            clock.forward(seconds - 0.001)
            bob.tick()
            await quiet(bob)
            assert (held(bob), hears(alice)) == ([msg_id], [])
            clock.forward(0.001)
            bob.tick()
            await quiet(bob)
            [expired] = hears(alice)
            assert (expired.kind, expired.msg_id, expired.at) == ("expired", msg_id, clock.now)
            assert "before its deadline" in expired.detail
            assert (held(bob), bob.peek()) == ([], [])
            assert states(bob, msg_id)[-2:] == ["held", "expired"]
            assert states(alice, msg_id)[-2:] == ["held", "expired"]
            # What is over is over, also where it is decided after all, or sent again under its id.
            assert isinstance(bob.approve(msg_id), Refusal)
            await says(alice, "bob", msg_id=msg_id)
            assert (held(bob), bob.peek(), states(bob, msg_id)[-1]) == ([], [], "duplicate")

    run(work())


@pytest.mark.rule("03.38")
def test_nobody_decides_about_what_is_past_its_deadline(clock: Clock) -> None:
    """Also where the timer has not looked yet: the person is told, and so is the sender."""

    async def work() -> None:
        async with open_session("bob") as bob, open_session("alice", mode="bypassPermissions") as alice:
            ids = [await says(alice, "bob", text) for text in ("one", "two")]
            await quiet(bob)
            clock.forward(5 * MINUTE)
            for decide, msg_id in zip((bob.approve, bob.deny), ids, strict=True):
                refusal = decide(msg_id)
                assert isinstance(refusal, Refusal)
                assert refusal.code == "not_held"
            await quiet(bob)
            assert kinds(hears(alice)) == ["held", "held", "expired", "expired"]
            assert bob.peek() == []

    run(work())


@pytest.mark.rule("03.38")
def test_what_never_expires_does_not(clock: Clock) -> None:
    """By the setting of the deadline, and by a setting that holds, a valid one or not."""

    async def work() -> None:
        given = ('{"dialogExpiry": "never"}', '{"crossSessionInbound": "hold", "dialogExpiry": "60s"}')
        for settings in given:
            async with (
                open_session("bob", settings=settings) as bob,
                open_session("alice", mode="bypassPermissions") as alice,
            ):
                msg_id = await says(alice, "bob")
                clock.forward(365 * 24 * 60 * MINUTE)
                bob.tick()
                await quiet(bob)
                assert held(bob) == [msg_id]
                [told] = hears(alice)
                assert "it waits until its owner does" in told.detail

    run(work())


# ── a restart in between ─────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def holder(
    desk: Desk, *, late: int = 0, signals: str = "ours"
) -> Generator[tuple[subprocess.Popen[str], str]]:
    """Runs the program that holds, as bob; yields it and its session id."""
    words = [sys.executable, str(HOLDER), "bob", str(late), signals]
    with subprocess.Popen(
        words, env=desk.environ, cwd=desk.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.rule("03.47", "11.4")
def test_show_3_a_killed_receiver_comes_back_with_its_hold_and_the_old_deadline(desk: Desk) -> None:
    """Also where it comes back with another period. Being killed is told to nobody."""
    bob = desk.open("bob", "--settings", '{"dialogExpiry": "60s"}')
    msg_id = desk.send("alice", "bob", "hello")["msg_id"]
    [before] = holds_of(desk, "bob")
    notices(desk, "alice", "held")
    desk.kill(bob)
    desk.open(None, "--resume", bob["session_id"], "--settings", '{"dialogExpiry": "10m"}')
    assert holds_of(desk, "bob") == [before]
    person(desk, "--session", "bob", "approve", msg_id)
    notices(desk, "alice", "delivered")
    [message] = desk.take("bob")
    assert (message["msg_id"], message["held"], message["redelivered"]) == (msg_id, True, False)


@pytest.mark.rule("03.47", "03.53")
def test_show_3_a_deadline_that_passed_meanwhile_is_told_at_the_resume(home: Path) -> None:
    desk = Desk(home, os.environ)
    try:
        desk.open("alice")
        with holder(desk, late=1000) as (process, session_id):
            msg_id = desk.send("alice", "bob", "hello")["msg_id"]
            notices(desk, "alice", "held")
            process.kill()
            process.wait()
        desk.open(None, "--resume", session_id, "--mode", "bypassPermissions")
        [expired] = notices(desk, "alice", "expired")
        assert (expired["msg_id"], "before its deadline" in expired["detail"]) == (msg_id, True)
        assert (holds_of(desk, "bob"), desk.take("bob")) == ([], [])
    finally:
        desk.leave()


@pytest.mark.rule("03.47", "03.52", "11.4")
def test_show_3_what_was_decided_before_a_crash_is_told_after_the_resume(home: Path) -> None:
    """The person had approved; the receiver died before a word of it had left."""
    desk = Desk(home, os.environ)
    try:
        desk.open("alice")
        with holder(desk) as (process, session_id):
            msg_id = desk.send("alice", "bob", "hello")["msg_id"]
            notices(desk, "alice", "held")
            out, _ = process.communicate("approve\n", timeout=SECONDS)
            assert (out.strip(), process.returncode) == (msg_id, -9)
        assert desk.ok("--session", "alice", "inbox")["notices"] == []
        desk.open(None, "--resume", session_id, "--mode", "bypassPermissions")
        [let_in] = notices(desk, "alice", "delivered")
        assert let_in["msg_id"] == msg_id
        [message] = desk.take("bob")
        assert (message["msg_id"], message["held"]) == (msg_id, True)
    finally:
        desk.leave()


# ── a hundred, and one more ──────────────────────────────────────────────────────────────────────

MODES = {
    "ann": "default",
    "ben": "bypassPermissions",
    "cem": "default",
    "dot": "bypassPermissions",
    "eve": "?",
}
"""Five senders and their modes. eve's is no known one, so she states no class (03.5)."""


class Crowd:
    """bob, whose mode is not known, so that he holds everything, and five who write to him in turn.

    Attributes:
        ids: sender → the ids of what it sent, in order.
        order: (sender, id) of everything, in order of arrival.
    """

    def __init__(self, bob: Session, senders: dict[str, Session], clock: Clock) -> None:
        self.bob = bob
        self.senders = senders
        self.ids: dict[str, list[str]] = {name: [] for name in senders}
        self.order: list[tuple[str, str]] = []
        self._clock = clock

    async def send(self, count: int) -> None:
        """Sends so many messages, one sender after the other."""
        names = list(self.senders)
        for number in range(len(self.order), len(self.order) + count):
            name = names[number % len(names)]
            msg_id = await says(self.senders[name], "bob", str(number))
            self.ids[name].append(msg_id)
            self.order.append((name, msg_id))
        await quiet(self.bob)

    def hear(self) -> dict[str, list[tuple[str, str | None]]]:
        """Sender → (kind, id) of what each was told since. A minute passes, so that nobody is told too much at once."""
        told = {
            name: [(notice.kind, notice.msg_id) for notice in hears(session)]
            for name, session in self.senders.items()
        }
        self._clock.forward(MINUTE)
        return told

    def about(self, kind: str, *modes: str) -> dict[str, list[tuple[str, str]]]:
        """Sender → (kind, id) for all that it sent, as `hear` gives it; only of senders in these modes, if any."""
        return {
            name: [(kind, one) for one in ids if not modes or MODES[name] in modes]
            for name, ids in self.ids.items()
        }


@contextlib.asynccontextmanager
async def crowd(clock: Clock, *, settings: str = '{"dialogExpiry": "never"}') -> AsyncGenerator[Crowd]:
    """Opens everybody."""
    async with contextlib.AsyncExitStack() as stack:
        bob = await stack.enter_async_context(open_session("bob", mode="?", settings=settings))
        senders = {
            name: await stack.enter_async_context(open_session(name, mode=mode))
            for name, mode in MODES.items()
        }
        yield Crowd(bob, senders, clock)


@pytest.mark.rule("03.37", "03.53", "03.21")
def test_show_4_the_hundred_and_first_hold_takes_the_place_of_the_oldest(clock: Clock) -> None:
    """Its sender is told `expired` and why, nobody else anything; none of it counts as unread."""

    async def work() -> None:
        async with crowd(clock) as everybody:
            bob = everybody.bob
            await everybody.send(100)
            assert everybody.hear() == everybody.about("held")
            assert held(bob) == [msg_id for _, msg_id in everybody.order]
            assert {hold.cause for hold in bob.held()} == {"mode-unknown"}
            await everybody.send(1)
            (oldest, gone), (newest, last) = everybody.order[0], everybody.order[100]
            assert oldest == newest == "ann"
            # The one that went is told before the one that took its place.
            assert everybody.senders["ann"].peek_notices()[0].detail.startswith("Too many messages were held")
            told = everybody.hear()
            assert told.pop("ann") == [("expired", gone), ("held", last)]
            assert set(map(tuple, told.values())) == {()}
            assert held(bob) == [msg_id for _, msg_id in everybody.order[1:]]
            assert states(bob, gone)[-2:] == ["held", "evicted"]
            assert states(everybody.senders["ann"], gone)[-2:] == ["held", "expired"]
            status = bob.status()
            assert (status.held, status.queued) == (100, 0)

    run(work())


@pytest.mark.rule("03.43", "03.52", "03.16", "03.17")
@pytest.mark.parametrize("by", ["person", "client"])
def test_show_4_a_class_change_lets_in_just_what_is_acceptable(clock: Clock, by: Reporter) -> None:
    """In the order of arrival, with one notice; nothing by what a child reports."""

    async def work() -> None:
        async with crowd(clock) as everybody:
            bob = everybody.bob
            await everybody.send(25)
            everybody.hear()
            bypassing = [msg_id for name, msg_id in everybody.order if MODES[name] == "bypassPermissions"]
            others = [msg_id for name, msg_id in everybody.order if MODES[name] != "bypassPermissions"]

            for mode in ("bypassPermissions", "default"):
                bob.set_mode(mode, by="child")
                bob.apply(bob.standing.settings)  # nor does a change of settings that is about something else
                await quiet(bob)
                assert held(bob) == [msg_id for _, msg_id in everybody.order]
                assert (bob.peek(), hears(bob)) == ([], [])
            assert set(map(tuple, everybody.hear().values())) == {()}

            bob.set_mode("bypassPermissions", by=by)
            await quiet(bob)
            assert [message.msg_id for message in bob.peek()] == bypassing
            assert {(message.held, message.approved_by) for message in bob.peek()} == {(True, None)}
            assert held(bob) == others
            [notice] = hears(bob)
            assert (notice.kind, notice.detail) == (
                "released",
                "10 held messages were let in: the mode is bypassPermissions now.",
            )
            assert everybody.hear() == everybody.about("delivered", "bypassPermissions")
            causes = {hold.message.origin.name: hold.cause for hold in bob.held()}
            assert causes == {"ann": "mode-mismatch", "cem": "mode-mismatch", "eve": "no-mode-asserted"}

            bob.set_mode("default", by=by)
            await quiet(bob)
            assert kinds(hears(bob)) == ["released"]
            assert [message.msg_id for message in bob.drain()] == [*bypassing, *others]
            assert everybody.hear() == everybody.about("delivered", "default", "?")

    run(work())


@pytest.mark.rule("03.43")
def test_a_hold_is_not_let_in_by_a_class_that_the_session_has_left(clock: Clock) -> None:
    """bob asks, by what a person said, and has gone over to never asking, by what his own child said: what asks is held.

    Neither another pair that is accepted, nor a change of settings that is about something else, lets it in.
    """

    async def work() -> None:
        async with open_session("bob") as bob, open_session("ann") as ann, open_session("cem") as cem:
            bob.set_mode("bypassPermissions", by="child")
            first, second = await says(ann, "bob"), await says(cem, "bob")
            bob.approve(first, always=True)
            assert held(bob) == [second]
            bob.apply(bob.standing.settings)
            assert held(bob) == [second]
            explanation = bob.explain(second)
            assert not isinstance(explanation, Refusal)
            assert (explanation.outcome, explanation.cause) == ("held", "mode-mismatch")
            bob.set_mode("default", by="child")
            assert held(bob) == [second]
            bob.set_mode("default", by="person")
            assert texts(bob.drain()) == ["hello", "hello"]

    run(work())


# ── settings ─────────────────────────────────────────────────────────────────────────────────────


async def user_setting(home: Path, text: str, *sessions: Session) -> None:
    """A person writes the settings file; waits until it applies."""
    path = home / "config/postroom/settings.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    before = [session.standing.settings for session in sessions]
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(0o600)
    fresh.rename(path)
    await until(
        lambda: all(session.standing.settings != old for session, old in zip(sessions, before, strict=True))
    )


@pytest.mark.rule("03.44", "03.36", "03.53", "03.10")
def test_show_4_when_a_setting_refuses_all_holds_are_dropped_and_all_senders_told(
    clock: Clock, home: Path
) -> None:
    """What comes then is refused, and looks like any other to its sender."""

    async def work() -> None:
        async with crowd(clock) as everybody:
            bob = everybody.bob
            await everybody.send(100)
            everybody.hear()
            await user_setting(home, '{"crossSessionInbound": "refuse"}', bob)
            await quiet(bob)
            assert (held(bob), bob.peek()) == ([], [])
            assert everybody.hear() == everybody.about("denied")
            assert set(ends(bob, [msg_id for _, msg_id in everybody.order])) == {"denied"}
            later = await says(everybody.senders["ann"], "bob", "later")
            await quiet(bob)
            assert (held(bob), bob.peek(), ends(bob, [later])) == ([], [], ["refused"])
            assert set(map(tuple, everybody.hear().values())) == {()}
            assert hears(bob) == []

    run(work())


@pytest.mark.rule("03.45", "03.36", "03.52")
def test_show_4_when_a_setting_accepts_all_holds_are_let_in_in_order(clock: Clock, home: Path) -> None:
    """More than may wait unread, the cap on which is for what arrives; and behind what was accepted before."""

    async def work() -> None:
        async with crowd(clock) as everybody:
            bob = everybody.bob
            bob.set_mode("default", by="client")
            first = await says(everybody.senders["ann"], "bob", "accepted before")
            bob.set_mode("?", by="client")
            await everybody.send(100)
            everybody.hear()
            await user_setting(home, '{"crossSessionInbound": "accept"}', bob)
            await quiet(bob)
            assert held(bob) == []
            everyone = [first, *(msg_id for _, msg_id in everybody.order)]
            assert [message.msg_id for message in bob.peek()] == everyone
            assert everybody.hear() == everybody.about("delivered")
            [notice] = hears(bob)
            assert notice.detail == "100 held messages were let in: the settings have changed."

    run(work())


@pytest.mark.rule("03.36", "03.38", "03.43")
def test_a_setting_that_holds_stops_the_clock_and_a_changed_period_moves_it(clock: Clock, home: Path) -> None:
    async def work() -> None:
        async with open_session("bob") as bob, open_session("alice", mode="bypassPermissions") as alice:
            await says(alice, "bob")
            begun = clock.now
            clock.forward(30)
            for setting, expires_at in (
                ('{"dialogExpiry": "10m"}', begun + 600_000),
                ('{"dialogExpiry": "60s"}', begun + 60_000),
                ('{"dialogExpiry": "60s", "crossSessionInbound": "hold"}', None),
                ('{"dialogExpiry": "60s"}', clock.now + 60_000),
                ('{"dialogExpiry": "never"}', None),
            ):
                await user_setting(home, setting, bob)
                assert [hold.expires_at for hold in bob.held()] == [expires_at], setting
            assert kinds(hears(alice)) == ["held"]

    run(work())
