"""Our writers and another program's on one mailbox: Node, with the lock library that such programs use (07.1, 07.3)."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postroom.core.mailfile import Entry
from postroom.state import files, locks
from postroom.transports.mailbox import Mailbox, MailboxWriteFailed
from tests.partners import INSTALL_SECONDS, partner
from tests.transports.mailboxes import Program, Programs, ids

pytestmark = pytest.mark.timeout(INSTALL_SECONDS + 60)

LIBRARY = ("proper-lockfile", "4.1.2")
SCRIPT = Path(__file__).parent.parent / "partners_js" / "mailbox_writer.mjs"
AT = "2026-11-30T12:00:00.000Z"

Foreign = Callable[[str, int | str], Program]


@pytest.fixture
def inboxes(home: Path) -> Path:
    team = home / "claude" / "teams" / "session-12345678"
    files.private_folder(str(team))
    return team / "inboxes"


@pytest.fixture
def programs(inboxes: Path) -> Iterator[Programs]:
    made = Programs(inboxes, shared=True)
    yield made
    made.close()


@pytest.fixture
def foreign(inboxes: Path, programs: Programs) -> Foreign:
    """Starts one of the other programs; see tests/partners_js/mailbox_writer.mjs."""
    command = partner(*LIBRARY).script(SCRIPT)

    def start(who: str, count: int | str) -> Program:
        return programs.run([*command, str(inboxes / "ann.json"), who, str(count)])

    return start


@pytest.fixture
def box(inboxes: Path) -> Mailbox:
    made = Mailbox(str(inboxes), "ann", shared=True)
    made.append(Entry(from_="me", text="first", timestamp=AT, msg_id="first"))
    return made


@pytest.mark.rule("07.1", "07.3", "11.12", "11.26")
def test_ours_and_theirs_write_side_by_side_and_nothing_is_lost(
    box: Mailbox, programs: Programs, foreign: Foreign
) -> None:
    theirs = [foreign(f"their{number}", 20) for number in range(3)]
    ours = [programs.writer(f"our{number}", 20) for number in range(3)]
    written = [msg_id for each in (*theirs, *ours) for msg_id in ids(each.finished())]
    assert len(written) == 120
    there = Counter(each.msg_id for each in box.snapshot().entries)
    assert there == Counter(["first", *written])
    assert not os.path.lexists(box.directory_lock)


@pytest.mark.rule("07.1", "07.5", "11.12")
@pytest.mark.parametrize("ours_read", [False, True], ids=["theirs read", "ours read"])
def test_what_ours_write_theirs_take_out_and_the_other_way_round(
    box: Mailbox, programs: Programs, foreign: Foreign, ours_read: bool
) -> None:
    write, read = (foreign, programs.writer) if ours_read else (programs.writer, foreign)
    reader, writer = read("reader", "drain"), write("writer", 40)
    written = ids(writer.finished())
    reader.wait_for(1 + len(written))
    assert sorted(reader.kill()) == sorted(["first", *written])


@pytest.mark.rule("07.3")
def test_a_lock_that_theirs_hold_and_renew_is_respected_and_a_killed_ones_is_broken(
    inboxes: Path, box: Mailbox, foreign: Foreign
) -> None:
    holder = foreign("holder", "hold")
    holder.wait_for(2)
    inode = os.lstat(box.directory_lock).st_ino
    impatient = Mailbox(str(inboxes), "ann", shared=True, seconds=3.0, stale_seconds=2.0)
    with pytest.raises(MailboxWriteFailed, match="another program holds it"):
        impatient.append(Entry(from_="me", text="too early", timestamp=AT))
    assert os.lstat(box.directory_lock).st_ino == inode
    holder.kill()
    patient = Mailbox(str(inboxes), "ann", shared=True, stale_seconds=2.0)
    patient.append(Entry(from_="me", text="second", timestamp=AT))
    assert [each.text for each in box.snapshot().entries] == ["first", "second"]
    assert not os.path.lexists(box.directory_lock)


@pytest.mark.rule("07.3")
def test_theirs_that_was_stopped_finds_out_that_ours_broke_its_lock(
    inboxes: Path, box: Mailbox, foreign: Foreign
) -> None:
    holder = foreign("holder", "hold")
    holder.wait_for(2)
    holder.process.send_signal(signal.SIGSTOP)
    Mailbox(str(inboxes), "ann", shared=True, stale_seconds=2.0).append(
        Entry(from_="me", text="second", timestamp=AT)
    )
    holder.process.send_signal(signal.SIGCONT)
    assert holder.process.stdin is not None
    holder.process.stdin.close()
    holder.wait_for(3)
    assert holder.lines[-1] == "compromised"
    assert [each.text for each in box.snapshot().entries] == ["first", "second"]


@pytest.mark.rule("07.3")
def test_theirs_wait_for_a_lock_that_ours_hold(box: Mailbox, foreign: Foreign) -> None:
    with locks.held(box.file_lock, box.directory_lock, seconds=0) as lock:
        holder = foreign("holder", "hold")
        holder.wait_for(1)
        writer = foreign("theirs", 1)
        lock.check()
        assert holder.lines == ["asking"]
    assert holder.process.stdin is not None
    holder.process.stdin.close()
    assert holder.finished() == ["asking", "held", "left"]
    assert ids(writer.finished()) == ["theirs-0"]
    assert [each.msg_id for each in box.snapshot().entries] == ["first", "theirs-0"]
