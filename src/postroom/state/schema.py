"""The tables of a session's store, the statements over them, and rows as records.

Five tables are touched when a message is accepted, each at its end but for one index, so that a commit
writes few pages:

    letter   one row for every id that settled, in order of arrival; what a repeat is recognised by (11.5)
    message  what was said and by whom, while it is kept; bears its letter's number
    unread   the messages not yet consumed, in the order of handing out, and apart from them those that are held
             or refused, by `later`: 0 next, 1 later, 2 held, 3 refused. A narrow table, so that a lease, a
             confirmation or a new deadline writes one page whatever the size of the texts. A message that is
             kept and not here was consumed
    journal  every transition, numbered (11.1); no text, and no index: one id is found by reading it through
    sent · pin · shown   what was sent; what names meant; whom a `from` value meant
    rule · owed · notice · watch   whom a person always accepts; what senders are to be told; what the loop has
             not read; who wants to know of whom when it is idle

Letters and rows of the journal are numbered in order, and no number is given out twice: the newest of each is
never removed. A hold that is let in takes the next number, with its letter; so there are gaps.

The statements are constants, so that SQLite's compiled form of each is found again.
"""

from __future__ import annotations

import json
from typing import Any

from postroom.core.message import Message, Origin, State

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
    (
        "ALTER TABLE message ADD COLUMN reply_path TEXT NOT NULL DEFAULT ''",
        # Beside the lease and not beside the text: a hold whose deadline moves must not write its text anew.
        "ALTER TABLE unread ADD COLUMN cause TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE unread ADD COLUMN scope TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE unread ADD COLUMN rung TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE unread ADD COLUMN expires_at INTEGER",
        (
            "CREATE TABLE rule(row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, identity TEXT NOT NULL UNIQUE,"
            " name TEXT NOT NULL, since INTEGER NOT NULL)"
        ),
        (
            "CREATE TABLE owed(row INTEGER PRIMARY KEY, about TEXT NOT NULL, address TEXT NOT NULL,"
            " process TEXT NOT NULL, line BLOB NOT NULL, at INTEGER NOT NULL)"
        ),
        (
            "CREATE TABLE notice(row INTEGER PRIMARY KEY, kind TEXT NOT NULL, at INTEGER NOT NULL, msg_id TEXT,"
            " about TEXT, detail TEXT NOT NULL)"
        ),
        (
            "CREATE TABLE watch(row INTEGER PRIMARY KEY, msg_id TEXT NOT NULL, mine INTEGER NOT NULL,"
            " identity TEXT NOT NULL, name TEXT NOT NULL, reply_path TEXT NOT NULL, mode TEXT NOT NULL,"
            " at INTEGER NOT NULL, UNIQUE(mine, msg_id, identity))"
        ),
    ),
)
"""What leads from each version of the store to the next: row 0 makes an empty file one of version 1.

A row, once released, never changes; a new need is a new row."""

VERSION = len(MIGRATIONS)

HELD, REFUSED = 2, 3
"""What `unread.later` says of a message that does not wait; 0 and 1 are the tiers of those that do."""

# Reading

LAST_LETTER = "SELECT coalesce(max(row), 0) FROM letter"
LAST_STEP = "SELECT coalesce(max(row), 0) FROM journal"
LAST_NUMBER = (
    "SELECT max(coalesce((SELECT max(row) FROM owed), 0), coalesce((SELECT max(row) FROM notice), 0))"
)
COUNT_UNREAD = (
    "SELECT count(*), count(lease), (SELECT count(*) FROM unread WHERE later = 2) FROM unread WHERE later < 2"
)
SETTLED = "SELECT verdict, body FROM letter WHERE msg_id = ? AND sender = ?"
KNOWN_AS = "coalesce(CASE WHEN message.verified THEN message.name ELSE message.name || ' (claimed)' END, letter.sender)"
"""What the journal calls a sender, as `Origin.known_as` says it."""

LETTERS = "SELECT letter.row FROM letter JOIN message USING (row) WHERE letter.msg_id = ? ORDER BY letter.row"
CONSUMED = (
    f"SELECT letter.row, {KNOWN_AS} FROM letter JOIN message USING (row)"
    " WHERE letter.msg_id = ? AND letter.past = '' AND NOT EXISTS"
    " (SELECT 1 FROM unread WHERE later IN (0, 1, 2, 3) AND row = letter.row) ORDER BY letter.row"
)
PASSED = (
    "SELECT letter.row, message.priority = 'later' FROM letter JOIN message USING (row)"
    " WHERE letter.msg_id = ? AND letter.past = 'passed' ORDER BY letter.row"
)
WAITING = "SELECT row FROM unread WHERE lease IS NULL AND later <= ? ORDER BY later, row LIMIT ?"
WAITING_ONLY = (
    "SELECT row FROM unread JOIN letter USING (row) WHERE lease IS NULL AND later <= ? AND letter.msg_id = ?"
    " ORDER BY later, row LIMIT ?"
)
ABOUT = (
    f"SELECT letter.row, letter.msg_id, {KNOWN_AS} FROM letter JOIN message USING (row) WHERE letter.row = ?"
)
LEFT_LEASED = "SELECT row FROM unread WHERE later < 2 AND lease IS NOT NULL ORDER BY row"
MESSAGE = (
    "SELECT letter.msg_id, message.text, letter.sender, message.kind, message.verified, message.name,"
    " message.address, message.transport, message.stated_class, message.received_at, message.summary,"
    " message.sent_at, message.in_reply_to, message.priority, message.hop_chain, letter.again, message.held,"
    " message.approved_by, message.reply_path, unread.later, unread.lease, letter.past"
    " FROM message JOIN letter USING (row) LEFT JOIN unread"
    " ON unread.later IN (0, 1, 2, 3) AND unread.row = message.row WHERE message.row = ?"
)
HOLDS = "SELECT row, cause, scope, rung, expires_at FROM unread WHERE later = 2 ORDER BY row"
HOLD = (
    f"SELECT letter.msg_id, {KNOWN_AS}, message.priority, message.size FROM unread"
    " JOIN letter USING (row) JOIN message USING (row) WHERE unread.later = 2 AND unread.row = ?"
)
RULES = "SELECT id, identity, name, since FROM rule ORDER BY row"
OWED = "SELECT row, about, address, process, line, at FROM owed ORDER BY row"
NOTICES = "SELECT row, kind, at, msg_id, about, detail FROM notice ORDER BY row"
WATCHES = "SELECT msg_id, identity, name, reply_path, mode, at FROM watch WHERE mine = ? ORDER BY row"
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
ADD_MESSAGE = "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
ADD_UNREAD = "INSERT INTO unread(row, later, cause, scope, rung, expires_at) VALUES (?, ?, ?, ?, ?, ?)"
ADD_STEP = "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)"
ADD_TWO_STEPS = "INSERT INTO journal VALUES (?, ?, ?, 'received', '', ?), (?, ?, ?, ?, ?, ?)"
ADD_SENT = (
    "INSERT INTO sent(msg_id, to_identity, to_name, at, state) VALUES (?, ?, ?, ?, '') ON CONFLICT DO NOTHING"
)
SET_OUTCOME = "UPDATE sent SET state = ? WHERE msg_id = ?"
DROP_PIN = "DELETE FROM pin WHERE conversation = ? AND normal = ?"
ADD_PIN = "INSERT INTO pin(conversation, normal, name, identity, at) VALUES (?, ?, ?, ?, ?)"
SET_SHOWN = "INSERT OR REPLACE INTO shown VALUES (?, ?, ?, ?)"
SET_ANSWERED = "UPDATE letter SET past = 'answered' WHERE row = ?"
SET_PAST = "UPDATE letter SET past = ? WHERE row = ?"
SET_AGAIN = "UPDATE letter SET again = 1 WHERE row = ?"
LEASE = "UPDATE unread SET lease = ? WHERE later IN (0, 1) AND row = ?"
UNLEASE = "UPDATE unread SET lease = NULL WHERE later IN (0, 1) AND row = ?"
DROP_UNREAD = "DELETE FROM unread WHERE later IN (0, 1, 2, 3) AND row = ?"

# Holds, rules, notices, subscriptions

LET_IN_LETTER = "UPDATE letter SET row = ?, at = ?, verdict = 'accepted' WHERE row = ?"
LET_IN_MESSAGE = "UPDATE message SET row = ?, held = 1, approved_by = ? WHERE row = ?"
LET_IN = "UPDATE unread SET row = ?, later = ?, expires_at = NULL WHERE later = 2 AND row = ?"
CHANGE_HOLD = "UPDATE unread SET cause = ?, scope = ?, rung = ?, expires_at = ? WHERE later = 2 AND row = ?"
ADD_RULE = "INSERT INTO rule(id, identity, name, since) VALUES (?, ?, ?, ?)"
DROP_RULE = "DELETE FROM rule WHERE id = ?"
ADD_OWED = "INSERT INTO owed VALUES (?, ?, ?, ?, ?, ?)"
DROP_OWED = "DELETE FROM owed WHERE row = ?"
SURPLUS_OWED = "SELECT row, about, '' FROM owed ORDER BY row LIMIT max((SELECT count(*) FROM owed) - ?, 0)"
ADD_NOTICE = "INSERT INTO notice VALUES (?, ?, ?, ?, ?, ?)"
DROP_NOTICE = "DELETE FROM notice WHERE row = ?"
SURPLUS_NOTICES = (
    "SELECT row, coalesce(msg_id, ''), coalesce(about, '') FROM notice ORDER BY row"
    " LIMIT max((SELECT count(*) FROM notice) - ?, 0)"
)
ADD_WATCH = "INSERT OR REPLACE INTO watch(msg_id, mine, identity, name, reply_path, mode, at) VALUES (?, ?, ?, ?, ?, ?, ?)"
HAS_WATCH = "SELECT count(*) FROM watch WHERE mine = ? AND msg_id = ? AND identity = coalesce(?, identity)"
DROP_WATCH = "DELETE FROM watch WHERE mine = ? AND msg_id = ? AND identity = coalesce(?, identity)"
DROP_WATCHES = (
    "DELETE FROM watch WHERE mine = ? AND row <= (SELECT row FROM watch WHERE mine = ? ORDER BY row DESC"
    " LIMIT 1 OFFSET ?)"
)

# Retention

OLD_UNREAD = (
    f"SELECT unread.row, letter.msg_id, {KNOWN_AS} FROM unread"
    " JOIN letter USING (row) JOIN message USING (row)"
    " WHERE unread.later < 2 AND unread.lease IS NULL AND letter.at < ? ORDER BY unread.row LIMIT ?"
)
COUNT_REFUSED = "SELECT count(*) FROM unread WHERE later = 3"
OLDEST_REFUSED = (
    "SELECT unread.row, letter.at FROM unread JOIN letter USING (row) WHERE unread.later = 3"
    " ORDER BY unread.row LIMIT ?"
)
OLDEST_CONSUMED = (
    "SELECT message.row, letter.at, message.size FROM message JOIN letter USING (row) WHERE NOT EXISTS"
    " (SELECT 1 FROM unread WHERE later IN (0, 1, 2, 3) AND row = message.row) ORDER BY message.row LIMIT ?"
)
NEWEST_SURPLUS_LETTER = "SELECT coalesce((SELECT row FROM letter ORDER BY row DESC LIMIT 1 OFFSET ?), 0)"
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


STATES: dict[tuple[int | None, bool], State] = {
    (0, False): "accepted",
    (1, False): "accepted",
    (0, True): "leased",
    (1, True): "leased",
    (HELD, False): "held",
    (REFUSED, False): "refused",
}
"""(`unread.later`, whether it is leased) → the state of a message; one without a row there was consumed."""


def message_row(row: int, message: Message, *, refused: bool = False) -> tuple[object, ...]:
    """A message as the values of `ADD_MESSAGE`; what its letter says is left out. A refused one has no size."""
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
        0 if refused else len(text),
        message.summary,
        text,
        origin.reply_path,
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
            reply_path=values[18],
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
        state=STATES.get((values[19], values[20] is not None)) or values[21] or "consumed",
    )


def folded(text: str | None) -> str:
    """The form in which searched words are compared: letters in either case."""
    return (text or "").casefold()
