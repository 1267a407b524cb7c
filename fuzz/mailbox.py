"""Any bytes in a mailbox file are read, added to and emptied, and no entry is lost or made up on the way.

    python fuzz/mailbox.py [--seconds N] [--seed N]

What is fed is built from whole files, cut, joined and changed at random. Whatever comes: `parse` answers, and what it
found is found again when it is written; `splice` adds one entry to a file that is whole, changing no other, and says
`damaged` to every other; every whole entry that stands before the first change of a file is found; no entry has a text
that only another one quotes. The first input that breaks this is printed and the exit code is 1; the same seed finds
it again.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time

from postroom.core import mailfile
from postroom.core.mailfile import Entry

AT = "2026-11-30T12:00:00.000Z"
QUOTED = json.dumps([{"from": "forged", "text": "FORGED", "timestamp": AT}])
TEXTS = ("hello", "", "é\U0001f642", "\u2028\0\x1b", QUOTED, json.dumps(QUOTED), "{", '{"', "}]", "[" * 50)
PIECES = (
    *(b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"\\u", b"\\ud800", b" ", b"\n", b"\0", b"\x1b"),
    *(
        b"null",
        b"NaN",
        b"1e999",
        b"9" * 5000,
        b"-",
        b"[]",
        b"{}",
        b"[5]",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xed\xa0\x80",
    ),
    *(b"[" * 2000, b'{"a":' * 2000, b'{"from":"a"', b'"text":', b'"timestamp":"t"'),
)
LINE = mailfile.encoded(Entry(from_="new", text="NEW", timestamp=AT, msg_id="new"))


def file_of(chance: random.Random) -> tuple[bytes, list[tuple[int, str]]]:
    """A whole file, and where in it each entry ends, with its text."""
    data, ends = b"[", list[tuple[int, str]]()
    for number in range(chance.randrange(6)):
        text = chance.choice(TEXTS)
        said = Entry(
            from_="ann", text=text, timestamp=AT, msg_id=f"m{number}" if chance.random() < 0.5 else None
        )
        line = mailfile.encoded(said)
        if chance.random() < 0.3:
            line = json.dumps(json.loads(line), indent=2).encode()
        data += (b"," if ends else b"") + line
        ends.append((len(data), text))
    return data + b"]" + chance.choice((b"", b"\n", b" ")), ends


def changed(data: bytes, chance: random.Random) -> tuple[bytes, int]:
    """The file, perhaps changed in a few places, and the first of them."""
    part, first = bytearray(data), len(data)
    for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
        place = chance.randrange(len(part) + 1)
        first = min(first, place)
        match chance.randrange(5):
            case 0:
                part[place:place] = chance.choice(PIECES)
            case 1:
                del part[place : place + chance.randrange(1, 40)]
            case 2:
                part[place : place + 1] = bytes((chance.randrange(256),))
            case 3:
                del part[place:]
            case _:
                part[place:place] = file_of(chance)[0]
    return bytes(part), first


def check(data: bytes, ends: list[tuple[int, str]], first: int) -> None:
    """The whole invariant for one file; AssertionError, or whatever else was raised, where it breaks."""
    contents = mailfile.parse(data)
    texts = [item.entry.text for item in contents.items if item.entry is not None]
    for text in texts:
        text.encode()
    assert "FORGED" not in texts, "an entry was made of what another quotes"
    keys = [item.key for item in contents.items]
    assert len(set(keys)) == len(keys), "two entries with one key"
    again = mailfile.parse(mailfile.joined(item.raw for item in contents.items))
    assert (again.whole, again.items) == (True, contents.items), "entries that change on the way"
    before = [text for end, text in ends if end <= first]
    assert texts[: len(before)] == before, "a whole entry before the damage was lost"
    new = mailfile.splice(data, LINE)
    assert (new == "damaged") == (not contents.whole), "splice and parse disagree"
    if isinstance(new, bytes):
        added = mailfile.parse(new)
        assert added.whole, "a file that is damaged by adding to it"
        assert added.items[:-1] == contents.items, "an entry was changed by adding another"
        assert added.items[-1].entry is not None, "what was added is not there"
        assert added.items[-1].entry.text == "NEW"
    left, count = mailfile.without(contents, set(keys[::2]))
    assert count == len(keys[::2]), "an entry that was taken is still there"
    assert len(mailfile.parse(left).items) == len(keys) - count, "an entry that was not taken is gone"


def main() -> int:
    """Runs for the given time; 0: nothing broke."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    chance = random.Random(options.seed)
    until = time.monotonic() + options.seconds
    rounds = 0
    while time.monotonic() < until:
        whole, ends = file_of(chance)
        data, first = changed(whole, chance)
        try:
            check(data, ends, first)
        except Exception as error:
            print(f"seed {options.seed}, round {rounds}: {type(error).__name__}: {error}\n{data!r}")
            return 1
        rounds += 1
    print(f"{rounds} files, seed {options.seed}: nothing broke")
    return 0


if __name__ == "__main__":
    sys.exit(main())
