"""A team: a lead and three members, each a process of its own, that share tasks.

    python examples/team.py

The lead makes the tasks. Each member takes up the oldest that nobody has and that waits for nothing, does it, and takes up
the next; when there is nothing left it tells its lead that it is idle. Then the lead asks each of them to shut down, and each
agrees and goes. Everything that one reads of another came through a mailbox on disk.

A plain loop stands in for each agent, so that this runs anywhere and always comes to the same end.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import Process

from postroom import Message, Receipt, Session, open_session
from postroom.core.tasks import Change, Claimed, Created, Draft
from postroom.joining import join
from postroom.state.teams import places_of
from postroom.teaming import Teaming

MEMBERS = ("schema", "tests", "docs")
TASKS = ("Rename the column.", "Mend the views.", "Run the tests.", "Write the changelog.", "Tell the users.")


def state_of(session: Session) -> str:
    """The state folder in which a session lives, and its team beside it."""
    assert session.folder is not None
    return session.folder.rpartition("/sessions/")[0]


async def letters(session: Session) -> list[Message]:
    """What waits for a session, as soon as anything does."""
    await session.wait(30)
    return session.drain()


# ── a member ─────────────────────────────────────────────────────────────────────────────────────


async def one_task(seat: Teaming) -> bool:
    """Takes up a task and does it; False where there is none left."""
    claimed = await asyncio.to_thread(seat.tasks.claim_next, seat.name)
    if not isinstance(claimed, Claimed):
        return False
    task = claimed.task
    await seat.mail("team-lead", f"I have done #{task.id}: {task.subject}", summary=f"task {task.id}")
    await asyncio.to_thread(seat.tasks.update, task.id, Change(status="completed"), by=seat.name)
    return True


async def member(name: str, team: str) -> None:
    """One member: works until nothing is left, and goes when its lead asks it to."""
    async with open_session(f"member-{name}") as session:
        seat = await join(session, places_of(state_of(session)), team, name)
        session.began_turn()
        while await one_task(seat):
            pass
        session.ended_turn("nothing is left to do")  # its lead hears that it is idle
        while session.team is not None:
            for letter in await letters(session):
                asked = seat.requests.of("shutdown", name)
                if letter.origin.kind == "lead" and asked:
                    answer = {"type": "shutdown_response", "request_id": asked[-1].id, "approve": True}
                    await session.send_call({"to": "team-lead", "message": answer})
            if seat.requests.of("shutdown", name) == () and seat.departures:
                await seat.look()  # it has agreed, and goes


# ── the lead ─────────────────────────────────────────────────────────────────────────────────────


async def started(name: str, team: str) -> Process:
    """Starts a member as a process of its own."""
    return await asyncio.create_subprocess_exec(sys.executable, __file__, name, team)


async def lead() -> None:
    """Makes the tasks, hears of them, and sends everybody home."""
    async with open_session("example-lead") as session:
        from postroom.core.team import team_name
        from postroom.state.teams import tasks_of

        team = team_name(session.id)
        tasks = tasks_of(places_of(state_of(session)), team)
        before: tuple[str, ...] = ()
        for subject in TASKS:  # each waits for the one before it
            made = await asyncio.to_thread(tasks.create, Draft(subject=subject, add_blocked_by=before))
            assert isinstance(made, Created), made
            before = (made.task.id,) if subject == TASKS[0] else before
        processes = [await started(name, team) for name in MEMBERS]

        done: set[str] = set()
        idle: set[str] = set()
        while len(done) < len(TASKS) or len(idle) < len(MEMBERS):
            for letter in await letters(session):
                who = letter.origin.name or "?"
                if letter.text.startswith("I have done"):
                    print(f"── {who} tells\n{letter.text}")
                    done.add(letter.text.split()[3])
                else:
                    idle.add(who)
        for name in MEMBERS:
            receipt = await session.send_call({"to": name, "message": {"type": "shutdown_request"}})
            assert isinstance(receipt, Receipt), receipt
        gone: set[str] = set()
        while len(gone) < len(MEMBERS):
            gone |= {
                str(letter.origin.name) for letter in await letters(session) if "shut down" in letter.text
            }
        codes = [await process.wait() for process in processes]
        board = await asyncio.to_thread(tasks.read)
        print("── at the end")
        print(f"{len(gone)} members have gone, with {codes}")
        for task in sorted(board.tasks.values(), key=lambda one: int(one.id)):
            print(f"#{task.id} {task.status}: {task.subject}")


asyncio.run(member(*sys.argv[1:]) if sys.argv[1:] else lead())
