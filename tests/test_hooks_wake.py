"""The background hook that wakes an idle client: one waits, shows mail once, and ends with its client (09.12)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom import hook
from postroom.clients.hooks import MAX_INJECTED, MOVED, WOKEN
from postroom.core.envelope import PREFACE, unframe
from postroom.core.portion import units
from tests.desk import COMMAND, Desk, Done, running, wait_until
from tests.hooking import Hooked, hooked
from tests.posing import Posed
from tests.strangers import private_desk
from tests.test_control import Client as Connection
from tests.test_hooks_command import write
from tests.transports.ends import turns, until


async def woken(connection: Connection) -> str:
    """Reads what a waker is given and confirms it; it must end so that its client wakes. Returns the text."""
    kind, _, out, err = await connection.frame()
    assert (kind, err) == ("confirm", "")
    await connection.say(b"ok\n")
    assert await connection.frame() == ("done", WOKEN, "", "")
    await connection.ended()
    return out


def test_both_ends_mean_the_same_exit_code() -> None:
    assert (WOKEN, MOVED) == (hook.WOKEN, hook.MOVED)
    assert WOKEN == 2


@pytest.mark.rule("09.12", "11.1")
def test_it_waits_until_there_is_mail_and_confirms_it_once_shown(tmp_path: Path) -> None:
    async def work(at: Hooked) -> None:
        waker = await at.begin("wake")
        await until(lambda: at.session.waiters)
        assert at.session.waiters == 1
        msg_id = at.mail("wake up", sender="api")
        kind, _, out, _ = await waker.frame()
        assert (kind, out.startswith(PREFACE)) == ("confirm", True)
        assert at.states(msg_id)[-1] == "leased"
        await waker.say(b"ok\n")
        assert await waker.frame() == ("done", WOKEN, "", "")
        assert at.states(msg_id)[-1] == "consumed"
        assert at.session.waiters == 0

    hooked(tmp_path, work)


@pytest.mark.rule("09.12")
@pytest.mark.parametrize("stdin", ["", "{", "{}"])
def test_it_needs_nothing_to_be_said(tmp_path: Path, stdin: str) -> None:
    async def work(at: Hooked) -> None:
        at.mail("hello")
        assert "hello" in await woken(await at.begin("wake", stdin))
        assert at.log == []

    hooked(tmp_path, work)


@pytest.mark.rule("09.12")
def test_a_newer_one_takes_the_older_ones_place(tmp_path: Path) -> None:
    """The older ends without having woken anybody, and the mail is the newer one's."""

    async def work(at: Hooked) -> None:
        older = await at.begin("wake")
        await until(lambda: at.session.waiters)
        newer = await at.begin("wake")
        assert await older.frame() == ("done", 0, "", "")
        await older.ended()
        at.mail("for one of you")
        assert "for one of you" in await woken(newer)
        assert at.session.peek() == []

    hooked(tmp_path, work)


@pytest.mark.rule("09.12", "11.1")
def test_one_that_is_being_given_mail_is_not_disturbed(tmp_path: Path) -> None:
    async def work(at: Hooked) -> None:
        older = await at.begin("wake")
        at.mail("the first")
        kind, _, out, _ = await older.frame()
        assert (kind, "the first" in out) == ("confirm", True)
        newer = await at.begin("wake")
        await until(lambda: at.session.waiters)
        await older.say(b"ok\n")
        assert await older.frame() == ("done", WOKEN, "", "")
        at.mail("the second")
        assert "the second" in await woken(newer)

    hooked(tmp_path, work)


@pytest.mark.rule("11.1")
def test_what_it_did_not_show_goes_to_the_next(tmp_path: Path) -> None:
    async def work(at: Hooked) -> None:
        first = await at.begin("wake")
        at.mail("hello")
        assert (await first.frame())[0] == "confirm"
        first.close()
        second = await at.begin("wake")
        assert 'redelivered="yes"' in await woken(second)

    hooked(tmp_path, work)


@pytest.mark.rule("09.12")
def test_mail_that_is_too_long_wakes_once_and_not_again_and_again(tmp_path: Path) -> None:
    async def work(at: Hooked) -> None:
        long = at.mail("x" * 20_000, sender="api")
        text = await woken(await at.begin("wake"))
        assert units(text) <= MAX_INJECTED
        assert [block.name for block in unframe(text)] == ["delivery-notice"]
        waker = await at.begin("wake")
        await until(lambda: at.session.waiters)
        await at.hook("Stop", stop_hook_active=True)
        await turns()
        assert at.session.waiters == 1
        assert at.states(long)[-1] == "accepted"
        at.mail("a short one", sender="api")
        await turns()
        assert at.session.waiters == 1  # of the same sender: it waits behind the long one
        lease = at.session.take(limit=1)
        at.session.confirm(lease)
        at.session.release(at.session.take(limit=1))
        assert "a short one" in await woken(waker)

    hooked(tmp_path, work)


@pytest.mark.rule("09.12")
def test_it_ends_with_the_session(tmp_path: Path) -> None:
    async def work(at: Hooked) -> None:
        waker = await at.begin("wake")
        await until(lambda: at.session.waiters)
        await at.session.close()
        assert await waker.frame() == ("done", MOVED, "", "")

    hooked(tmp_path, work)


@pytest.mark.rule("09.12")
def test_a_hook_of_the_turn_that_is_faster_leaves_it_waiting(tmp_path: Path) -> None:
    """Whoever is first shows it; the other has nothing to show."""

    async def work(at: Hooked) -> None:
        waker = await at.begin("wake")
        await until(lambda: at.session.waiters)
        at.mail("one")
        other = await at.hook("PostToolUse")
        if "one" in other:
            assert at.session.waiters == 1
            at.mail("two")
        assert ("one" in other) != ("one" in await woken(waker))

    hooked(tmp_path, work)


# ── the command ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A private place with bob, who writes."""
    with private_desk() as desk:
        desk.open("bob")
        yield desk


@pytest.mark.rule("09.11", "09.12")
def test_it_starts_the_session_waits_shows_mail_on_stderr_and_ends_with_2(desk: Desk) -> None:
    posed = Posed(desk, conversation="conv-wake")
    waker = posed.begin("wake")
    assert posed.hook("SessionStart", source="startup") == Done(0, "", "")
    write(desk, posed, "wake up")
    done = waker.done()
    assert (done.code, done.out) == (WOKEN, "")
    assert done.err.startswith(PREFACE)
    assert "wake up" in done.err
    assert desk.ok("--session", posed.session(), "inbox")["messages"] == []
    again = posed.begin("wake")
    newest = posed.begin("wake")
    ended = [again, newest]
    wait_until(lambda: any(each.ended for each in ended))
    (first,) = [each for each in ended if each.ended]
    assert first.done() == Done(0, "", "")
    (last,) = [each for each in ended if each is not first]
    write(desk, posed, "once more")
    assert last.done().code == WOKEN
    posed.end()


@pytest.mark.rule("09.12")
def test_it_ends_with_its_client(desk: Desk) -> None:
    posed = Posed(desk, conversation="conv-client")
    posed.hook("SessionStart", source="startup")
    waker = posed.start(COMMAND, "hook", "claude-code", "wake", stdin="{}", shell=False)
    wait_until(lambda: _connected(waker.pid))
    posed.kill()
    wait_until(lambda: not running(waker.pid))


SHORTENED = (
    "import sys; from postroom import hook; hook.AGAIN_SECONDS, hook.PAUSE_SECONDS = 0.3, 0.01; "
    "sys.exit(hook.main(['hook', 'claude-code', 'wake']))"
)
"""The command with less patience, so that a test is quick."""


def row_of(desk: Desk, posed: Posed) -> dict[str, Any]:
    """The row of a posed client's session."""
    (row,) = [row for row in desk.ok("list")["rows"] if row["session_id"] == posed.session()]
    return row


@pytest.mark.rule("09.12")
def test_it_ends_when_the_session_does_not_come_back(desk: Desk) -> None:
    posed = Posed(desk, conversation="conv-session")
    posed.hook("SessionStart", source="startup")
    waker = posed.start(sys.executable, "-c", SHORTENED, stdin="{}", shell=False)
    wait_until(lambda: _connected(waker.pid))
    os.kill(row_of(desk, posed)["pid"], signal.SIGKILL)
    assert waker.done() == Done(0, "", "")
    posed.kill()


@pytest.mark.rule("09.11", "09.12")
def test_it_goes_on_where_another_process_takes_the_session_over(desk: Desk) -> None:
    """As an MCP server does that comes up after the first hook."""
    posed = Posed(desk, conversation="conv-moved")
    posed.hook("SessionStart", source="startup")
    before = row_of(desk, posed)
    waker = posed.start(COMMAND, "hook", "claude-code", "wake", stdin=posed.event("Stop"), shell=False)
    wait_until(lambda: _connected(waker.pid))
    desk.ok("--session", before["session_id"], "close")
    posed.hook("SessionStart", source="resume")
    after = row_of(desk, posed)
    assert (after["session_id"], after["pid"] != before["pid"]) == (before["session_id"], True)
    write(desk, posed, "in its new place")
    done = waker.done()
    assert (done.code, done.out, "in its new place" in done.err) == (WOKEN, "", True)
    posed.end()


def _connected(pid: int) -> bool:
    """Whether a process holds a socket: a waker has reached its session."""
    try:
        return any(os.readlink(each).startswith("socket:") for each in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False  # one was closed meanwhile
