"""Whatever stands in the settings files, what comes of them is a Settings, and no secret is in what is said of it.

    python fuzz/settings.py [--seconds N] [--seed N]

What is fed is built from whole files, cut, joined and changed at random, one for each of some scopes. Whatever comes,
`parsed` answers or raises `Senseless`; `read_layer` and `effective` raise nothing; what is said is printable and short;
no word of it was inside `nats` or `gateways`; and another project's file never makes anything laxer. The first input
that breaks this is printed and the exit code is 1; the same seed finds it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from postroom.core.keys import CHECKED_IN, SCOPES, STRICTNESS, Scope
from postroom.core.settings import Layer, Settings, broken_layer, effective, read_layer
from postroom.state.scopes import Senseless, parsed

SECRET = "s3cret"

SEEDS = (
    b'{"crossSessionInbound": "accept", "dialogExpiry": "never"}',
    b'{"crossSessionInbound": "hold", "limits": {"maxUnread": 20, "refillPerSecond": 0.25}}',
    b'{"crossSessionInbound": "refuse", "permissions": {"deny": ["SendMessage", "ListAgents"]}}',
    b'{"isolatePeerMachines": true, "crossMachine": "open", "publishTo": ["claude-code"]}',
    b'{"nats": {"url": ["nats://s3cret@h"], "token": "s3cret", "tls": {"key": "s3cret"}}}',
    b'{"gateways": [{"s3cret": "s3cret"}, null, [["s3cret"]]], "claimTasks": false}',
    b'{"refusalNotice": "tell", "readReceipts": true, "desktopNotices": false}\n',
)
PIECES = (
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b" ", b"\n", b"\\", b"\xef\xbb\xbf", b"\xff", b"\0", b"\\ud800"),
    *(b"null", b"true", b"1e999", b"-1", b"NaN", b"9" * 5000, b"[" * 3000, b'"x"', b'"limits"', b'"nats"'),
    *(b'"crossSessionInbound":', b'"accept"', b'"permissions":', b'"deny":', b"{},", b'"gateways":'),
)  # fmt: skip


def built(chance: random.Random) -> bytes:
    """One file, perhaps changed in a few places."""
    data = bytearray(chance.choice(SEEDS))
    for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[place:place] = chance.choice(PIECES)
            case 1:
                del data[place : place + chance.randrange(1, 9)]
            case 2:
                data[place : place + 1] = bytes((chance.randrange(256),))
            case _:
                other = chance.choice(SEEDS)
                data[place:place] = other[chance.randrange(len(other)) :]
    return bytes(data)


def layer_of(chance: random.Random, data: bytes, scopes: tuple[Scope, ...] = SCOPES) -> Layer:
    """What a session makes of one file."""
    scope = chance.choice(scopes)
    try:
        return read_layer(scope, f"/{scope}", parsed(data))
    except Senseless as error:
        reason = str(error)
    assert SECRET not in reason, "a secret in why it makes no sense"
    return broken_layer(scope, f"/{scope}", reason, None)


def strictness(found: Settings) -> int:
    """How strict what comes in is judged."""
    return STRICTNESS.index(found.inbound.value) if found.inbound else -1


def check(files: list[bytes], chance: random.Random) -> None:
    """The whole invariant for some files; AssertionError, or whatever else was raised, where it breaks."""
    layers = [layer_of(chance, data) for data in files]
    before = effective(layers)
    after = effective([*layers, layer_of(chance, files[0], CHECKED_IN)])
    assert strictness(after) >= strictness(before), "a checked-in file made what comes in laxer"
    assert after.isolate_peer_machines >= before.isolate_peer_machines, (
        "a checked-in file ended the isolation"
    )
    assert after.denied >= before.denied, "a checked-in file allowed a tool"
    for problem in after.problems:
        assert problem.isprintable(), "an unprintable sentence"
        assert len(problem) < 1000, "a long sentence"
    # A secret that a cut moved out of its place is none any more for anybody; in its place it is never shown.
    if not any(data.count(b"s3cret") and data not in SEEDS for data in files):
        assert SECRET not in repr(after) + "".join(after.problems), "a secret is shown"


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
        files = [built(chance) for _ in range(chance.randrange(1, 5))]
        try:
            check(files, chance)
        except Exception as error:
            print(f"seed {options.seed}, round {rounds}: {type(error).__name__}: {error}\n{files!r}")
            return 1
        rounds += 1
    print(f"{rounds} rounds, seed {options.seed}: nothing broke")
    return 0


if __name__ == "__main__":
    sys.exit(main())
