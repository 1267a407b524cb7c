"""A process that writes to a mailbox, or empties it, until it is told enough or is killed.

usage: mailbox_writer.py FOLDER NAME own|shared WHO COUNT STALE_SECONDS

Appends COUNT entries with the ids `WHO-0`, `WHO-1`, …, as the member WHO; prints each id when its `append` has returned,
then `done`. An append that fails is printed as `failed: REASON`, and tried again under the same id.

With COUNT `drain` it takes entries away instead, and prints the id of each before it does.
"""

from __future__ import annotations

import sys

from postroom.core.mailfile import Entry
from postroom.transports.mailbox import Mailbox, MailboxFull, MailboxWriteFailed

AT = "2026-11-30T12:00:00.000Z"


def main(folder: str, name: str, kind: str, who: str, count: str, stale_seconds: str) -> None:
    """Writes, or empties."""
    mailbox = Mailbox(folder, name, shared=kind == "shared", stale_seconds=float(stale_seconds))
    if count == "drain":
        while True:
            items = mailbox.snapshot().items
            for item in items:
                assert item.entry is not None
                print(item.entry.msg_id, flush=True)
            mailbox.remove([item.key for item in items])
    number = 0
    while number < int(count):
        msg_id = f"{who}-{number}"
        try:
            mailbox.append(Entry(from_=who, text="x" * 200, timestamp=AT, msg_id=msg_id))
        except (MailboxFull, MailboxWriteFailed) as error:
            print(f"failed: {error!r}", flush=True)
            continue
        print(msg_id, flush=True)
        number += 1
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
