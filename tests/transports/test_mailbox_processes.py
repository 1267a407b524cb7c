"""Real processes on one mailbox: nothing is lost among many writers, readers and kills, and nothing is seen half."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.core.mailfile import Entry, parse
from postroom.state import files
from postroom.transports.mailbox import Mailbox, MailboxWriteFailed
from tests.desk import wait_until
from tests.transports.mailboxes import Programs, ids

AT = "2026-11-30T12:00:00.000Z"
STALE = 0.5
KINDS = pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])


@pytest.fixture
def inboxes(home: Path) -> Path:
    team = home / "teams" / "session-12345678"
    files.private_folder(str(team))
    return team / "inboxes"


@pytest.fixture
def programs(inboxes: Path, request: pytest.FixtureRequest) -> Iterator[Programs]:
    shared = request.node.callspec.params.get("shared", False) if hasattr(request.node, "callspec") else False
    made = Programs(inboxes, shared=shared, stale=STALE)
    yield made
    made.close()


class Looker:
    """Reads the file again and again without a lock, as other programs do, until it is told to stop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn: list[bytes] = []
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.is_set():
            try:
                data = self.path.read_bytes()
            except FileNotFoundError:
                continue
            self.looks += 1
            if not parse(data).whole:
                self.torn.append(data)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


@KINDS
@pytest.mark.rule("07.3", "07.7", "11.12", "11.26")
def test_eight_writers_and_two_readers_lose_nothing(inboxes: Path, programs: Programs, shared: bool) -> None:
    """Each acknowledged entry comes out, those of one writer in their order; no lockless look sees half a file."""
    box = Mailbox(str(inboxes), "ann", shared=shared, stale_seconds=STALE)
    looker = Looker(inboxes / "ann.json")
    try:
        writers = [programs.writer(f"w{number}", 25) for number in range(8)]
        readers = [programs.writer("reader", "drain") for _ in range(2)]
        written = [ids(writer.finished()) for writer in writers]
        wait_until(lambda: box.snapshot().items == ())
        came = [line for reader in readers for line in reader.kill()]
    finally:
        looker.end()
    assert all(len(each) == 25 for each in written)
    # Two readers may both see one entry before it is gone: twice told is what ids are for, never told is a loss.
    assert set(came) == {msg_id for each in written for msg_id in each}
    for reader in readers:
        for each in written:
            mine = [msg_id for msg_id in reader.lines if msg_id in each]
            assert mine == sorted(mine, key=lambda msg_id: int(msg_id.split("-")[1]))
    assert looker.looks > 0
    assert looker.torn == []
    assert not [name for name in os.listdir(inboxes) if name not in ("ann.json", ".ann.lock")]


SENDS = int(os.environ.get("POSTROOM_TEST_SENDS", "40"))
"""Of each of the eight in the next test; 2,000 takes minutes."""


@KINDS
@pytest.mark.rule("07.3", "07.5", "07.6", "11.12", "11.25")
def test_show_1_of_eight_writers_a_reader_and_a_killer_nothing_acknowledged_is_lost_or_doubled(
    inboxes: Path, programs: Programs, shared: bool
) -> None:
    """Who is killed is followed by another process, until each of eight places has sent its number."""
    box = Mailbox(str(inboxes), "ann", shared=shared, stale_seconds=STALE)
    chance = random.Random(11)
    looker = Looker(inboxes / "ann.json")
    acknowledged: list[str] = []
    killed = 0
    try:
        reader = programs.writer("reader", "drain")
        left = dict.fromkeys(range(8), SENDS)
        at_work = {place: programs.writer(f"w{place}-0-", SENDS) for place in left}
        while at_work:
            place = chance.choice(sorted(at_work))
            writer = at_work[place]
            if killed < 12 and left[place] > 2:
                writer.wait_for(chance.randrange(1, min(left[place], 10)))
                sent = ids(writer.kill())
                killed += 1
            else:
                sent = ids(writer.finished())
            acknowledged += sent
            left[place] -= len(sent)
            if left[place] > 0:
                at_work[place] = programs.writer(f"w{place}-{killed}-", left[place])
            else:
                del at_work[place]
        wait_until(lambda: box.snapshot().items == ())
        came = Counter(reader.kill())
    finally:
        looker.end()
    assert killed == 12
    assert len(acknowledged) == len(set(acknowledged)) >= 8 * SENDS
    assert all(came[msg_id] == 1 for msg_id in acknowledged)
    assert looker.torn == []


@KINDS
@pytest.mark.rule("07.3", "11.12", "11.19", "11.25")
def test_writers_that_are_killed_lose_no_acknowledged_entry_and_wedge_nobody(
    inboxes: Path, programs: Programs, shared: bool
) -> None:
    """SIGKILL at any moment, again and again, while others write; the file parses after each."""
    box = Mailbox(str(inboxes), "ann", shared=shared, stale_seconds=STALE)
    chance = random.Random(7)
    steady = [programs.writer(f"steady{number}", 40) for number in range(2)]
    acknowledged: list[str] = []
    for number in range(12):
        victim = programs.writer(f"victim{number}", 1000)
        victim.wait_for(chance.randrange(1, 6))
        acknowledged += ids(victim.kill())
        found = box.snapshot()
        assert (found.copy, found.quarantined, found.problem) == ("", (), "")
    for writer in steady:
        acknowledged += ids(writer.finished())
    there = Counter(each.msg_id for each in box.snapshot().entries)
    assert set(acknowledged) <= set(there)
    assert max(there.values()) == 1
    box.append(Entry(from_="me", text="still goes", timestamp=AT))
    assert box.snapshot().entries[-1].text == "still goes"


@pytest.mark.parametrize("shared", [True], ids=["shared"])
@pytest.mark.rule("07.3")
def test_a_lock_whose_holder_was_killed_wedges_the_mailbox_for_its_time_and_no_longer(
    inboxes: Path, programs: Programs, shared: bool
) -> None:
    """Killed while it held both locks: forced by stopping it there first."""
    box = Mailbox(str(inboxes), "ann", shared=shared, stale_seconds=STALE)
    box.append(Entry(from_="me", text="first", timestamp=AT))
    victim = programs.writer("victim", 1000)
    victim.wait_for(1)
    for _ in range(10_000):
        victim.process.send_signal(signal.SIGSTOP)
        os.waitpid(victim.process.pid, os.WUNTRACED)
        if os.path.isdir(box.directory_lock):
            break
        victim.process.send_signal(signal.SIGCONT)
    assert os.path.isdir(box.directory_lock)
    written = ids(victim.kill())
    assert os.path.isdir(box.directory_lock)
    box.append(Entry(from_="me", text="last", timestamp=AT))
    found = [each.msg_id for each in box.snapshot().entries]
    assert set(written) <= set(found)
    assert not os.path.lexists(box.directory_lock)


@pytest.mark.parametrize("shared", [True], ids=["shared"])
@pytest.mark.rule("07.3")
def test_a_writer_that_was_stopped_in_the_middle_starts_over_and_overwrites_nobody(
    inboxes: Path, programs: Programs, shared: bool
) -> None:
    """A foreign program broke its lock meanwhile and wrote: the writer that comes back finds out before its rename."""
    box = Mailbox(str(inboxes), "ann", shared=shared, stale_seconds=STALE)
    box.append(Entry(from_="me", text="first", timestamp=AT))
    writer = programs.writer("stopped", 1000)
    writer.wait_for(1)
    for _ in range(10_000):
        writer.process.send_signal(signal.SIGSTOP)
        os.waitpid(writer.process.pid, os.WUNTRACED)
        if os.path.isdir(box.directory_lock):
            break
        writer.process.send_signal(signal.SIGCONT)
    assert os.path.isdir(box.directory_lock)
    # What another program does with a lock that has grown old: it is not bound by our flock.
    os.rmdir(box.directory_lock)
    os.mkdir(box.directory_lock)
    entries = [*json.loads(Path(box.path).read_bytes()), {"from": "x", "text": "foreign", "timestamp": AT}]
    Path(f"{box.path}.foreign").write_text(json.dumps(entries))
    os.chmod(f"{box.path}.foreign", 0o600)
    os.rename(f"{box.path}.foreign", box.path)
    os.rmdir(box.directory_lock)
    before = len(writer.lines)
    writer.process.send_signal(signal.SIGCONT)
    writer.wait_for(before + 3)
    written = ids(writer.kill())
    there = Counter(each.msg_id or each.text for each in box.snapshot().entries)
    assert there["foreign"] == 1
    assert set(written) <= set(there)
    assert max(there.values()) == 1


@KINDS
@pytest.mark.rule("07.3")
def test_a_stopped_holder_costs_the_others_their_deadline_and_nothing_else(
    inboxes: Path, programs: Programs, shared: bool
) -> None:
    box = Mailbox(str(inboxes), "ann", shared=shared, seconds=0.3, stale_seconds=STALE)
    holder = programs.writer("holder", 1000)
    holder.wait_for(1)
    for _ in range(10_000):
        holder.process.send_signal(signal.SIGSTOP)
        os.waitpid(holder.process.pid, os.WUNTRACED)
        if files.probe(box.file_lock):
            break
        holder.process.send_signal(signal.SIGCONT)
    before = Path(box.path).read_bytes()
    with pytest.raises(MailboxWriteFailed, match="another process holds it"):
        box.append(Entry(from_="me", text="not now", timestamp=AT))
    assert Path(box.path).read_bytes() == before
    assert parse(before).whole
    assert len(box.snapshot().entries) >= 1, "a reader waits for no writer"
    holder.process.send_signal(signal.SIGCONT)
    holder.wait_for(len(holder.lines) + 2)
    written = ids(holder.kill())
    assert set(written) <= {each.msg_id for each in box.snapshot().entries}
