"""Notices that are forged, and notices that would go astray (05.24, 03.49).

What says something about a message counts only where the process behind it is the session that the message went to.
Everything else changes nothing: not the journal, not the notices, not the pace.

The sessions are of one process, and their clock stands still: the process that they share can speak for every one of
them, and a program elsewhere for none. Where notices go, and where they never do, is in `test_where_notices_go`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from postroom import Limits, Receipt, Refusal, Session, open_session
from postroom.core.drops import MAX_A_MINUTE
from tests.room import states
from tests.simulated import MINUTE, Clock, clock_in_place, hears, kinds, quiet, says
from tests.strangers import as_line
from tests.transports.ends import run, turns, until

HOLDS = '{"crossSessionInbound": "hold"}'

STATUSES = ("held", "delivered", "denied", "refused", "expired", "misaddressed", "dropped", "read")
"""Every word that a receipt may say."""

Frame = dict[str, Any]


@pytest.fixture
def clock(home: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that stands still, in a private home."""
    return clock_in_place(monkeypatch)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the sessions to whose inboxes somebody has connected, in order."""
    opened: list[str] = []

    def note(inbox: Any, connection: object) -> None:
        del connection
        opened.append(inbox.receiver.name)

    monkeypatch.setattr("postroom.transports.uds.Inbox.opened", note)
    return opened


def control(action: str, by: Session | str | None, **fields: Any) -> Frame:
    """A control frame that names somebody as its sender."""
    address = by.address if isinstance(by, Session) else by
    return {
        "type": "control",
        "action": action,
        "msgV": 1,
        "msg_id": str(uuid.uuid4()),
        **({"from": address} if address is not None else {}),
        **fields,
    }


def receipt(by: Session | str | None, status: str, about: str | None, **fields: Any) -> Frame:
    """A receipt about a message that names somebody as its sender."""
    return control("peer_message_status", by, status=status, orig_msg_id=about, **fields)


def path_of(session: Session) -> str:
    """Where a session's inbox is."""
    assert session.address is not None
    return session.address.removeprefix("uds:")


async def here(session: Session, *frames: Frame) -> None:
    """Writes to an inbox from the process of all these sessions, until everything was read; nothing comes back."""
    reader, writer = await asyncio.open_unix_connection(path_of(session))
    writer.write(b"".join(map(as_line, frames)))
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


ELSEWHERE = """
import socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect(sys.argv[1])
    line.sendall(sys.stdin.buffer.read())
    line.shutdown(socket.SHUT_WR)
    assert line.recv(1) == b""
"""


async def elsewhere(session: Session, *frames: Frame) -> None:
    """The same from another process, which is no session."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-S", "-c", ELSEWHERE, path_of(session), stdin=PIPE
    )
    await process.communicate(b"".join(map(as_line, frames)))
    assert process.returncode == 0


def known(session: Session) -> dict[str, object]:
    """What a session knows, and what it is about to say: all that a notice might change, its counts apart."""
    with session.reading() as store:
        journal = store.log(limit=10_000)
        return {
            "journal": journal,
            "sent": {step.msg_id: store.sent(step.msg_id) for _, step in journal},
            "owed": store.owed(),
            "asked": store.subscriptions(mine=True),
            "watched by": store.subscriptions(mine=False),
            "notices": session.peek_notices(),
            "inbox": session.peek(),
            "name": session.name,
        }


@pytest.mark.rule("05.24", "03.49")
def test_a_forged_notice_changes_nothing_and_is_answered_by_nobody(
    clock: Clock, connections: list[str]
) -> None:
    """Each is counted. alice has a message held by bob and one that dora has accepted; carol has nothing of hers."""

    async def work() -> None:
        async with (
            open_session("alice") as alice,
            open_session("bob", settings=HOLDS) as bob,
            open_session("carol") as carol,
            open_session("dora") as dora,
        ):
            to_bob, to_dora = await says(alice, "bob"), await says(alice, "dora")
            await says(alice, "bob", "idle?")
            bob.began_turn()
            asked = await alice.send("bob", notify_when_idle=True)
            assert isinstance(asked, Receipt)
            await quiet(alice, bob)
            assert kinds(hears(alice)) == ["held", "held"]
            never = str(uuid.uuid4())
            nobody = f"uds:{Path(path_of(alice)).parent}/nobody.sock"
            forgeries: dict[str, tuple[Any, list[Frame], str]] = {
                "about a message that never was": (here, [receipt(carol, "held", never)], "control-foreign"),
                "by a session that has nothing to do with it": (
                    here,
                    [receipt(carol, status, about) for about in (to_bob, to_dora) for status in STATUSES],
                    "control-foreign",
                ),
                "several at once, of others": (
                    here,
                    [receipt(carol, "dropped", to_dora, dropped_msg_ids=[to_bob, to_dora, never])],
                    "control-foreign 3",
                ),
                "by the wrong one of the two": (here, [receipt(bob, "denied", to_dora)], "control-foreign"),
                "in the name of bob, by another process": (
                    elsewhere,
                    [receipt(bob, status, to_bob) for status in STATUSES],
                    "control-forged",
                ),
                "in the name of nobody": (here, [receipt(nobody, "denied", to_bob)], "control-forged"),
                "in one's own name": (here, [receipt(alice, "denied", to_bob)], "control-forged"),
                "without a name": (here, [receipt(None, "denied", to_bob)], "control-forged"),
                "said before": (here, [receipt(bob, "held", to_bob)] * 3, "control-repeat"),
                "out of order": (
                    here,
                    [receipt(bob, status, to_bob) for status in ("dropped", "misaddressed", "read")],
                    "control-repeat",
                ),
                "a word that is none": (
                    here,
                    [receipt(bob, word, to_bob) for word in ("accepted", "approved", "")],
                    "control-unknown-status",
                ),
                "about no message": (here, [receipt(bob, "denied", None)], "control-unknown-status"),
                "idle, and nobody asked": (
                    here,
                    [
                        control(
                            "peer_idle_notice", bob, orig_msg_id=to_bob, state="idle", detail="do as I say"
                        )
                    ],
                    "control-foreign",
                ),
                "idle, by another than was asked": (
                    here,
                    [control("peer_idle_notice", carol, orig_msg_id=asked.msg_id, state="idle")],
                    "control-foreign",
                ),
                "idle, by another process": (
                    elsewhere,
                    [control("peer_idle_notice", bob, orig_msg_id=asked.msg_id, state="idle")],
                    "control-forged",
                ),
                "neither idle nor ended": (
                    here,
                    [control("peer_idle_notice", bob, orig_msg_id=asked.msg_id, state="dead")],
                    "control-foreign",
                ),
                "renamed, by one that never wrote here": (
                    here,
                    [control("peer_renamed", carol, name="bob", former="dora")],
                    "control-foreign",
                ),
                "a request to be renamed": (
                    elsewhere,
                    [control("rename", bob, name="mallory")],
                    "control-rename",
                ),
                "the same by a session": (here, [control("rename", dora, name="mallory")], "control-rename"),
                "a wish to hear when alice is idle, in bob's name": (
                    elsewhere,
                    [control("notify_when_idle", bob)],
                    "control-forged",
                ),
                "the same in her own name": (here, [control("notify_when_idle", alice)], "control-forged"),
                "what is none of ours": (here, [control("obey", bob)], "control-unknown"),
            }
            before, others = known(alice), [known(bob), known(dora)]
            connections.clear()
            for what, (write, frames, counted) in forgeries.items():
                word, _, number = counted.partition(" ")
                counts = dict(alice.counts)
                counts[word] = counts.get(word, 0) + int(number or len(frames))
                clock.forward(MINUTE)  # so that none of them is one too many
                await write(alice, *frames)
                assert alice.counts == counts, what
                assert known(alice) == before, what
            # Nobody was told anything: whatever alice had begun to say stands before this message of hers.
            assert connections == ["alice"] * len(forgeries)
            await says(alice, "carol", "after all that")
            await turns()
            assert connections == [*["alice"] * len(forgeries), "carol"]
            assert [known(bob), known(dora)] == others
            assert [(hears(each), each.counts) for each in (bob, carol, dora)] == [([], {})] * 3
            # What is true is heard all the same.
            bob.ended_turn()
            await until(alice.peek_notices)
            await here(alice, control("peer_idle_notice", bob, orig_msg_id=asked.msg_id, state="idle"))
            await here(alice, receipt(bob, "delivered", to_bob), receipt(dora, "held", to_dora))
            assert kinds(hears(alice)) == ["idle", "delivered", "held"]
            assert [states(alice, msg_id)[-1] for msg_id in (to_bob, to_dora)] == ["delivered", "held"]

    run(work())


@pytest.mark.rule("05.24")
def test_forty_notices_of_one_sender_are_heard_in_a_minute(clock: Clock) -> None:
    """The rest is dropped and counted, and says nothing. What is forged takes nothing from whom it is forged of."""
    most = MAX_A_MINUTE

    async def work() -> None:
        async with (
            open_session("alice", limits=Limits.unbounded()) as alice,
            open_session("bob", limits=Limits.unbounded()) as bob,
            open_session("carol") as carol,
        ):
            ids = [await says(alice, "bob", f"number {number}") for number in range(most + 3)]
            await elsewhere(alice, *(receipt(bob, "denied", msg_id) for msg_id in ids))
            await here(alice, *(receipt(carol, "denied", msg_id) for msg_id in ids))
            assert alice.counts == {
                "control-forged": most + 3,
                "control-foreign": most,
                "control-too-many": 3,
            }
            assert hears(alice) == []
            await here(alice, *(receipt(bob, "denied", msg_id) for msg_id in ids))
            assert alice.counts["control-too-many"] == 6
            assert [states(alice, msg_id) for msg_id in ids] == [["queued", "denied"]] * most + [
                ["queued"]
            ] * 3
            assert [notice.msg_id for notice in hears(alice)] == ids[:most]
            after = known(alice)
            clock.forward(MINUTE - 0.001)
            await here(alice, receipt(bob, "denied", ids[-1]))
            assert (known(alice), alice.counts["control-too-many"]) == (after, 7)
            clock.forward(0.001)
            await here(alice, *(receipt(bob, "denied", msg_id) for msg_id in ids[-3:]))
            assert [notice.msg_id for notice in hears(alice)] == ids[-3:]

    run(work())


@pytest.mark.rule("03.67", "05.24")
def test_only_a_true_hold_gives_the_pace_a_token_back(clock: Clock) -> None:
    """A sender that has used up what its target takes sends one more for each message that is really held there."""

    async def work() -> None:
        async with (
            open_session("alice") as alice,
            open_session("bob", limits=Limits.unbounded()) as bob,
            open_session("carol") as carol,
        ):

            async def fits() -> bool:
                result = await alice.send("bob", str(uuid.uuid4()), summary="a number")
                assert not isinstance(result, Refusal) or result.code == "sender_burst"
                return not isinstance(result, Refusal)

            ids = [await says(alice, "bob", f"number {number}") for number in range(30)]
            await elsewhere(alice, *(receipt(bob, "held", msg_id) for msg_id in ids))
            await here(alice, *(receipt(carol, "held", msg_id) for msg_id in ids))
            await here(alice, *(receipt(bob, "held", str(uuid.uuid4())) for _ in range(10)))
            await here(alice, receipt(bob, "denied", ids[0]), receipt(bob, "held", ids[0]))
            assert not await fits()
            await here(alice, *[receipt(bob, "held", ids[1])] * 5)
            assert [await fits() for _ in range(3)] == [True, False, False]

    run(work())


@pytest.mark.rule("05.31")
def test_the_id_of_somebody_elses_subscription_ends_only_ones_own(clock: Clock) -> None:
    """carol has found out under which id bob waits to hear that alice is idle, and asks under the same."""

    async def work() -> None:
        async with open_session("alice") as alice, open_session("bob") as bob, open_session("carol") as carol:
            alice.began_turn()
            asked = await bob.send("alice", notify_when_idle=True)
            assert isinstance(asked, Receipt)
            again = control("notify_when_idle", carol)
            await here(alice, {**again, "msg_id": asked.msg_id}, again)
            with alice.reading() as store:
                kept = [(one.name, one.msg_id) for one in store.subscriptions(mine=False)]
            assert kept == [("bob", asked.msg_id), ("carol", again["msg_id"])]
            alice.ended_turn()
            await until(bob.peek_notices)
            await quiet(alice)
            assert (kinds(hears(bob)), carol.counts) == (["idle"], {"control-foreign": 1})

    run(work())


@pytest.mark.rule("05.24")
def test_what_only_ours_understand_is_told_to_no_other(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that does not announce that it acknowledges is not told what was read, nor of a new name."""

    async def work() -> None:
        async with (
            open_session("reader", settings='{"readReceipts": true}') as reader,
            contextlib.AsyncExitStack() as stack,
        ):
            with monkeypatch.context() as older:
                older.setattr("postroom.opening.FEATURES", ("notify_idle",))
                other = await stack.enter_async_context(open_session("other"))
            ours = await stack.enter_async_context(open_session("ours"))
            for writer in (other, ours):
                await says(writer, "reader", f"by {writer.name}")
            reader.drain()
            reader.rename("lector")
            await quiet(reader)
            await until(lambda: len(ours.peek_notices()) == 2)
            assert sorted(kinds(hears(ours))) == ["read", "renamed"]
            assert (hears(other), other.counts) == ([], {})

    run(work())
