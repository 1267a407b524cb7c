"""The tables of a session's store, the statements over them, and rows as records.

Five tables are touched when a message is accepted, each at its end but for one index, so that a commit
writes few pages:

    letter   one row for every id that settled, in order of arrival; what a repeat is recognised by (11.5)
    message  what was said and by whom, while it is kept; bears its letter's number and never changes
    unread   the messages not yet consumed, in the order of handing out: a narrow table, so that a lease or a
             confirmation writes one page whatever the size of the texts; a message that is kept and not
             here was consumed
    journal  every transition, numbered (11.1); no text, and no index: one id is found by reading it through
    sent · pin · shown   what was sent; what names meant; whom a `from` value meant

Numbers are given out in order, without gaps, and never twice: the newest letter and the newest row of the
journal are never removed.

The statements are constants, so that SQLite's compiled form of each is found again.
"""

from __future__ import annotations

import json
from typing import Any

from postroom.core.message import Message, Origin

APPLICATION = 0x506F7374
"""`Post`: by this `file` and we know the file as ours."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        f"PRAGMA application_id = {APPLICATION}",
        (
            "CREATE TABLE letter(row INTEGER PRIMARY KEY, msg_id TEXT NOT NULL, sender TEXT NOT NULL,"
            " verdict TEXT NOT NULL, body TEXT NOT NULL, at INTEGER NOT NULL,"
            " again INTEGER NOT NULL DEFAULT 0, past TEXT NOT NULL DEFAULT '')"
        ),
        "CREATE UNIQUE INDEX letter_id ON letter(msg_id, sender)",
        (
            "CREATE TABLE message(row INTEGER PRIMARY KEY, kind TEXT NOT NULL, verified INTEGER NOT NULL,"
            " name TEXT, address TEXT, transport TEXT NOT NULL, stated_class TEXT, received_at INTEGER NOT NULL,"
            " sent_at TEXT, in_reply_to TEXT, priority TEXT NOT NULL, hop_chain TEXT, held INTEGER NOT NULL,"
            " approved_by TEXT, size INTEGER NOT NULL, summary TEXT, text TEXT NOT NULL)"
        ),
        (
            "CREATE TABLE unread(later INTEGER NOT NULL, row INTEGER NOT NULL, lease TEXT,"
            " PRIMARY KEY(later, row)) WITHOUT ROWID"
        ),
        (
            "CREATE TABLE journal(row INTEGER PRIMARY KEY, msg_id TEXT NOT NULL, at INTEGER NOT NULL,"
            " state TEXT NOT NULL, detail TEXT NOT NULL, peer TEXT NOT NULL)"
        ),
        (
            "CREATE TABLE sent(row INTEGER PRIMARY KEY, msg_id TEXT NOT NULL UNIQUE, to_identity TEXT NOT NULL,"
            " to_name TEXT NOT NULL, at INTEGER NOT NULL, state TEXT NOT NULL)"
        ),
        (
            "CREATE TABLE pin(row INTEGER PRIMARY KEY, conversation TEXT NOT NULL, normal TEXT NOT NULL,"
            " name TEXT NOT NULL, identity TEXT NOT NULL, at INTEGER NOT NULL, UNIQUE(conversation, normal))"
        ),
        (
            "CREATE TABLE shown(shown TEXT PRIMARY KEY, identity TEXT NOT NULL, address TEXT NOT NULL,"
            " at INTEGER NOT NULL) WITHOUT ROWID"
        ),
    ),
)
"""What leads from each version of the store to the next: row 0 makes an empty file one of version 1.

A row, once released, never changes; a new need is a new row."""

VERSION = len(MIGRATIONS)

# Reading

LAST_LETTER = "SELECT coalesce(max(row), 0) FROM letter"
LAST_STEP = "SELECT coalesce(max(row), 0) FROM journal"
COUNT_UNREAD = "SELECT count(*), count(lease) FROM unread"
SETTLED = "SELECT verdict, body FROM letter WHERE msg_id = ? AND sender = ?"
LETTERS = "SELECT letter.row FROM letter JOIN message USING (row) WHERE letter.msg_id = ? ORDER BY letter.row"
CONSUMED = (
    "SELECT letter.row, coalesce(message.name, letter.sender) FROM letter JOIN message USING (row)"
    " WHERE letter.msg_id = ? AND letter.past = '' AND NOT EXISTS (SELECT 1 FROM unread WHERE later IN (0, 1) AND row = letter.row)"
    " ORDER BY letter.row"
)
WAITING = "SELECT row FROM unread WHERE lease IS NULL AND later <= ? ORDER BY later, row LIMIT ?"
WAITING_ONLY = (
    "SELECT row FROM unread JOIN letter USING (row) WHERE lease IS NULL AND later <= ? AND letter.msg_id = ?"
    " ORDER BY later, row LIMIT ?"
)
ABOUT = (
    "SELECT letter.row, letter.msg_id, coalesce(message.name, letter.sender) FROM letter JOIN message USING (row)"
    " WHERE letter.row = ?"
)
LEFT_LEASED = "SELECT row FROM unread WHERE lease IS NOT NULL ORDER BY row"
MESSAGE = (
    "SELECT letter.msg_id, message.text, letter.sender, message.kind, message.verified, message.name,"
    " message.address, message.transport, message.stated_class, message.received_at, message.summary,"
    " message.sent_at, message.in_reply_to, message.priority, message.hop_chain, letter.again, message.held,"
    " message.approved_by, unread.row, unread.lease, letter.past"
    " FROM message JOIN letter USING (row) LEFT JOIN unread"
    " ON unread.later IN (0, 1) AND unread.row = message.row WHERE message.row = ?"
)
SENT_UNSETTLED = "SELECT msg_id FROM sent WHERE state = '' ORDER BY row"
SENT = "SELECT to_identity, to_name, at, state FROM sent WHERE msg_id = ?"
PINS = "SELECT normal, name, identity FROM pin WHERE conversation = ? ORDER BY row"
SHOWN = "SELECT identity, address, at FROM shown WHERE shown = ?"
STEPS = "SELECT row, msg_id, at, state, detail, peer FROM journal WHERE msg_id = ? ORDER BY row"

LOG = "SELECT row, msg_id, at, state, detail, peer FROM journal WHERE row > ? AND at BETWEEN ? AND ?"
LOG_PEER = (
    " AND (folded(peer) = folded(?) OR msg_id IN (SELECT msg_id FROM letter WHERE sender = ?)"
    " OR msg_id IN (SELECT msg_id FROM sent WHERE to_identity = ?))"
)
LOG_TEXT = (
    " AND (detail <> '' AND instr(folded(detail), folded(?)) OR msg_id IN (SELECT letter.msg_id FROM message"
    " JOIN letter USING (row) WHERE instr(folded(message.text), folded(?))"
    " OR instr(folded(message.summary), folded(?))))"
)

LOG_NEWEST = " ORDER BY row DESC LIMIT ?"
LOG_OLDEST = " ORDER BY row LIMIT ?"
EARLIEST, LATEST = -(2**63), 2**63 - 1
"""The times of a search without bounds: the whole range of SQLite's integers."""

# Writing

ADD_LETTER = "INSERT INTO letter(row, msg_id, sender, verdict, body, at) VALUES (?, ?, ?, ?, ?, ?)"
DROP_LETTER = "DELETE FROM letter WHERE row = ?"
ADD_MESSAGE = "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
ADD_UNREAD = "INSERT INTO unread(row, later) VALUES (?, ?)"
ADD_STEP = "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)"
ADD_TWO_STEPS = "INSERT INTO journal VALUES (?, ?, ?, 'received', '', ?), (?, ?, ?, 'accepted', '', ?)"
ADD_SENT = (
    "INSERT INTO sent(msg_id, to_identity, to_name, at, state) VALUES (?, ?, ?, ?, '') ON CONFLICT DO NOTHING"
)
SET_OUTCOME = "UPDATE sent SET state = ? WHERE msg_id = ?"
DROP_PIN = "DELETE FROM pin WHERE conversation = ? AND normal = ?"
ADD_PIN = "INSERT INTO pin(conversation, normal, name, identity, at) VALUES (?, ?, ?, ?, ?)"
SET_SHOWN = "INSERT OR REPLACE INTO shown VALUES (?, ?, ?, ?)"
SET_ANSWERED = "UPDATE letter SET past = 'answered' WHERE row = ?"
SET_AGAIN = "UPDATE letter SET again = 1 WHERE row = ?"
LEASE = "UPDATE unread SET lease = ? WHERE later IN (0, 1) AND row = ?"
UNLEASE = "UPDATE unread SET lease = NULL WHERE later IN (0, 1) AND row = ?"
DROP_UNREAD = "DELETE FROM unread WHERE later IN (0, 1) AND row = ?"

# Retention

OLD_UNREAD = (
    "SELECT unread.row, letter.msg_id, coalesce(message.name, letter.sender) FROM unread"
    " JOIN letter USING (row) JOIN message USING (row)"
    " WHERE unread.lease IS NULL AND letter.at < ? ORDER BY unread.row LIMIT ?"
)
OLDEST_CONSUMED = (
    "SELECT message.row, letter.at, message.size FROM message JOIN letter USING (row)"
    " WHERE NOT EXISTS (SELECT 1 FROM unread WHERE later IN (0, 1) AND row = message.row) ORDER BY message.row LIMIT ?"
)
DROP_MESSAGE = "DELETE FROM message WHERE row = ?"
DROP_LETTERS = (
    "DELETE FROM letter WHERE row IN (SELECT row FROM (SELECT row, at FROM letter WHERE row <= ?"
    " AND NOT EXISTS (SELECT 1 FROM message WHERE message.row = letter.row) ORDER BY row LIMIT ?)"
    " WHERE at < ? OR row <= ?)"
)
DROP_STEPS = (  # up to the first of the oldest rows that stays, whatever the clock said at the later ones
    "DELETE FROM journal WHERE row < ? AND row < coalesce((SELECT min(row) FROM journal"
    " WHERE row < (SELECT min(row) FROM journal) + ? AND at >= ? AND row > ?),"
    " (SELECT min(row) FROM journal) + ?)"
)
DROP_SENT = (
    "DELETE FROM sent WHERE row IN (SELECT row FROM sent WHERE row <= (SELECT max(row) FROM sent) - ?"
    " ORDER BY row LIMIT ?) AND at < ?"
)
COUNT_PINS = "SELECT count(*) FROM pin"
DROP_PINS = "DELETE FROM pin WHERE row IN (SELECT row FROM pin ORDER BY row LIMIT ?)"
COUNT_SHOWN = "SELECT count(*) FROM shown"
DROP_SHOWN = "DELETE FROM shown WHERE shown IN (SELECT shown FROM shown ORDER BY at, shown LIMIT ?)"


def message_row(row: int, message: Message) -> tuple[object, ...]:
    """A message as the values of `ADD_MESSAGE`; what its letter says is left out."""
    origin = message.origin
    text = message.text
    return (
        row,
        origin.kind,
        origin.verified,
        origin.name,
        origin.address,
        origin.transport,
        origin.stated_class,
        message.received_at,
        message.sent_at,
        message.in_reply_to,
        message.priority,
        json.dumps(message.hop_chain) if message.hop_chain else None,
        message.held,
        message.approved_by,
        len(text),
        message.summary,
        text,
    )


def message_of(values: tuple[Any, ...]) -> Message:
    """A row of `MESSAGE` as a message, in the state that the tables show."""
    return Message(
        msg_id=values[0],
        text=values[1],
        origin=Origin(
            identity=values[2],
            kind=values[3],
            verified=bool(values[4]),
            name=values[5],
            address=values[6],
            transport=values[7],
            stated_class=values[8],
        ),
        received_at=values[9],
        summary=values[10],
        sent_at=values[11],
        in_reply_to=values[12],
        priority=values[13],
        hop_chain=tuple(json.loads(values[14])) if values[14] else (),
        redelivered=bool(values[15]),
        held=bool(values[16]),
        approved_by=values[17],
        state=("leased" if values[19] is not None else "accepted")
        if values[18]
        else values[20] or "consumed",
    )


def folded(text: str | None) -> str:
    """The form in which searched words are compared: letters in either case."""
    return (text or "").casefold()
