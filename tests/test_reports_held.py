"""Inputs on which programs of this field failed in public bug reports, about what is held and what comes back.

The number in a test's name is the report's; as in `tests/test_reports.py`, each is tried as a whole kind.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom import open_session
from postroom.core.envelope import unframe
from tests.desk import COMMAND, Desk, wait_until
from tests.screen import screen
from tests.simulated import MINUTE, Clock, clock_in_place, hears, held, quiet, says
from tests.strangers import Raw, enveloped
from tests.terminal import person
from tests.transports.ends import run

BYPASSING = ("--mode", "bypassPermissions")

TEXT = "the column is tenant_id"

HOLDER = str(Path(__file__).parent / "parties/holder.py")
"""A session that lives in a program."""


@pytest.fixture
def clock(home: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that stands still, in a private home."""
    return clock_in_place(monkeypatch)


@pytest.fixture
def desk(home: Path) -> Iterator[Desk]:
    """A private desk with alice, who asks for permission."""
    desk = Desk(home, os.environ)
    desk.open("alice")
    yield desk
    desk.leave()


def steps(desk: Desk, msg_id: str, where: str) -> list[str]:
    """What became of a message at one end; a notice may be quicker than the acknowledgement (11.2)."""
    rows = desk.ok("trace", msg_id)["steps"]
    return [row["state"] for row in rows if row["where"] == where and row["state"] != "queued"]


# ── held, and then ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.19", "03.20", "03.38", "03.41", "03.51", "03.52", "03.53")
@pytest.mark.parametrize("receiver", ["default", "bypassPermissions"])
@pytest.mark.parametrize("kind", ["interactive", "headless", "external"])
def test_report_46_nobody_answers_and_then_somebody_does(clock: Clock, receiver: str, kind: str) -> None:
    """Over the border between the classes, in both directions: the sender hears each step, the receiver's log has them.

    The first is left alone, the second approved, the third denied; the first does not come in with the second.
    """
    sender = "bypassPermissions" if receiver == "default" else "default"

    async def work() -> None:
        async with (
            open_session("bob", mode=receiver, kind=kind) as bob,
            open_session("alice", mode=sender) as alice,
        ):
            first = await says(alice, "bob", "one")
            await quiet(bob)
            assert [(one.kind, one.msg_id, one.at) for one in hears(alice)] == [("held", first, clock.now)]
            clock.forward(5 * MINUTE)
            bob.tick()
            await quiet(bob)
            assert [(one.kind, one.msg_id) for one in hears(alice)] == [("expired", first)]
            with bob.reading() as store:
                log = [(step.msg_id, step.state) for _, step in store.log(peer="alice")]
            assert {(first, "held"), (first, "expired")} <= set(log)

            second, third = await says(alice, "bob", "two"), await says(alice, "bob", "three")
            await quiet(bob)
            bob.approve(second)
            bob.deny(third)
            await quiet(bob)
            told = [(one.kind, one.msg_id) for one in hears(alice)]
            assert told == [
                ("held", second),
                ("held", third),
                ("delivered", second),
                ("denied", third),
            ]
            [message] = bob.drain()
            assert (message.msg_id, message.text) == (second, "two")
            assert (message.held, message.approved_by) == (True, "user")
            assert held(bob) == []

    run(work())


@contextlib.contextmanager
def there(desk: Desk, how: str) -> Generator[None]:
    """bob, who never asks, in one of the ways in which a session can be there."""
    opening = (COMMAND, "open", "--name", "bob", *BYPASSING)
    with contextlib.ExitStack() as stack:
        if how == "in a terminal":
            stack.enter_context(screen(*opening, env=desk.environ, cwd=desk.folder))
        elif how == "in the background":
            desk.open("bob", *BYPASSING, "--kind", "bg")
        else:
            program = (sys.executable, HOLDER, "bob", "0", "ours")
            process = stack.enter_context(
                subprocess.Popen(
                    program if how == "in a program" else (*opening, "--", "cat"),
                    env=desk.environ,
                    cwd=desk.folder,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            stack.callback(process.kill)
        wait_until(lambda: desk.run("--session", "bob", "status").code == 0)
        yield


@pytest.mark.rule("03.39", "03.41", "10.5")
@pytest.mark.parametrize(
    "how", ["in a terminal", "around a command", "in a program", "in the background"], ids=str
)
def test_report_46_there_is_always_a_place_to_approve(desk: Desk, how: str) -> None:
    """Whatever a session is, and whether or not it asks anybody: a terminal beside it lists, approves and denies.

    What has no reply path can be approved like the rest.
    """
    with there(desk, how):
        one = str(desk.send("alice", "bob", "one")["msg_id"])
        two = str(desk.send("alice", "bob", "two")["msg_id"])
        three = str(desk.ok("send", "bob", "from outside")["msg_id"])
        wait_until(lambda: steps(desk, two, "alice")[-1:] == ["held"])
        listed = desk.ok("--session", "bob", "held")["held"]
        assert [hold["msg_id"] for hold in listed] == [one, two, three]
        for msg_id, verb, state in (
            (one, "approve", "accepted"),
            (two, "deny", "denied"),
            (three, "approve", "accepted"),
        ):
            assert person(desk, "--session", "bob", verb, msg_id)["state"] == state
        wait_until(lambda: steps(desk, one, "alice") == ["held", "delivered"])
        wait_until(lambda: steps(desk, two, "alice") == ["held", "denied"])
        for msg_id in (one, three):
            assert "accepted" in steps(desk, msg_id, "bob")


# ── one's own words, come back ───────────────────────────────────────────────────────────────────


def posted(session: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Posts a frame to a session's inbox, from a process that is no session; returns the acknowledgement."""
    with Raw(session["socket"]) as line:
        return line.post("", **fields)


@pytest.mark.rule("03.7", "04.15", "11.7")
def test_report_11_ones_own_text_never_comes_back_as_from_oneself(desk: Desk) -> None:
    """A sends, B holds it; whatever B, or somebody for B, does to bring it back, it is an echo, or it is B's."""
    alice = next(iter(desk.opened.values()))
    bob = desk.open("bob", *BYPASSING)
    sent = str(desk.send("alice", "bob", TEXT)["msg_id"])
    address, ref = alice["peer_address"], alice["ref"]
    claimed = f' from="{address}" from-name="alice"'
    echoes = [
        {"from": address, "message": enveloped(TEXT, claimed)},  # with her own address
        {"from": address, "msg_id": sent, "message": enveloped(TEXT, claimed)},  # the very frame
        {"from": bob["peer_address"], "msg_id": sent, "message": enveloped(TEXT, "")},  # with her own id
        {"msg_id": sent, "message": {"role": "user", "content": TEXT}},  # as a bare text
    ]
    for echo in echoes:
        answer = posted(alice, **echo)
        assert (answer["status"], answer["reason"]) == ("dropped", "self-echo"), echo
    assert desk.take("alice") == []
    assert "dropped" in steps(desk, sent, "alice")

    # By the command, under her id: B hears why.
    error = desk.refused("--session", "bob", "send", "alice", TEXT, "--msg-id", sent)
    assert "the id of a message of its own" in error["message"]
    assert desk.refused("--session", "alice", "send", "alice", TEXT)["code"] == "cannot_message_self"
    assert desk.take("alice") == []

    # What only claims to be hers is a claim, also under the name that she had, and cannot be answered.
    desk.ok("--session", "alice", "rename", "anna")
    for name in ("alice", "anna", f"anna [{ref}]"):
        posted(alice, message=enveloped(TEXT + name, f' from-name="{name}"'))
    for message in desk.take("anna"):
        assert (message["from"]["verified"], message["from"]["address"]) == (False, None)

    # And what B writes is B's, whatever it quotes: also the block in which B's model saw it.
    person(desk, "--session", "bob", "approve", sent)
    seen = desk.run("--session", "bob", "wait").out
    assert f'from="alice [{ref}]"' in seen
    person(desk, "--session", "bob", "status", "--mode", "default")
    desk.ok("--session", "bob", "send", "anna", "-", stdin=seen)
    shown = desk.run("--session", "anna", "wait").out
    [block] = [block for block in unframe(shown) if block.name == "cross-session-message"]
    assert dict(block.attributes)["from"] == f"bob [{bob['ref']}]"
    assert TEXT in block.text
    assert desk.take("anna") == []


@pytest.mark.rule("03.7", "03.18", "11.4")
def test_report_11_an_echo_is_one_also_after_a_restart(desk: Desk) -> None:
    """Her socket is another one now: by the id it is still an echo; her old address is nobody's, and no way back."""
    alice = next(iter(desk.opened.values()))
    desk.open("bob", *BYPASSING)
    sent = str(desk.send("alice", "bob", TEXT)["msg_id"])
    desk.kill(alice)
    again = desk.open(None, "--resume", alice["session_id"])
    assert again["peer_address"] != alice["peer_address"]
    answer = posted(again, msg_id=sent, message=enveloped(TEXT, ""))
    assert (answer["status"], answer["reason"]) == ("dropped", "self-echo")
    answer = posted(
        again,
        **{"from": alice["peer_address"], "message": enveloped(TEXT, ' from-name="alice"')},
    )
    assert answer["status"] == "queued"
    [message] = desk.take("alice")
    assert (message["from"]["verified"], message["from"]["address"]) == (False, None)
