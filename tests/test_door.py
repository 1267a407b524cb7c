"""Who may speak on the control socket, and the two lines with which a command begins."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.door import Door, refused_entry, request_of, same, shown_token
from postroom.errors import BadFrame
from postroom.transport import Evidence

MINE = "mine"
CLIENT, CHILD = "c" * 32, "d" * 32

PEOPLE = {
    (10, "shell"): (),
    (20, "me"): (MINE,),
    (21, "my command"): (MINE,),
    (30, "opener"): ("opener",),
    (40, "other"): ("other",),
    (50, "two of them"): ("other", MINE),
    (60, "opener and other"): ("other", "opener"),
}
"""(pid, start) → the sessions whose process, or whose client, it is."""

SHELL, ME, MY_COMMAND, OPENER, OTHER, TWO, OPENER_TOO = PEOPLE


def door(opened_by: str | None = "opener") -> Door:
    """The door of the session `mine`, which runs in the process `me`."""
    return Door(
        client_token=CLIENT,
        child_token=CHILD,
        process=ME,
        registered=lambda pid, start: PEOPLE.get((pid, start), ()),
        opened_by=opened_by,
    )


def admitted(token: str, *ancestry: tuple[int, str], opened_by: str | None = "opener") -> bool:
    """Whether a process with these ancestors, nearest first, is heard."""
    pid, start = ancestry[0] if ancestry else (0, "")
    refusal = refused_entry(door(opened_by), MINE, token, Evidence("uds", pid, start, ancestry))
    assert refusal is None or refusal.code == "not_your_session"
    return refusal is None


@pytest.mark.rule("05.26")
@pytest.mark.parametrize(
    ("token", "ancestry", "opened_by", "heard"),
    [
        # a terminal: the token decides
        (CLIENT, (SHELL,), None, True),
        (CHILD, (SHELL,), None, True),
        ("", (SHELL,), None, False),
        (CLIENT[:-1], (SHELL,), None, False),
        (CLIENT + "x", (SHELL,), None, False),
        (CLIENT.upper(), (SHELL,), None, False),
        ("\ud800", (SHELL,), None, False),
        # no evidence, as in a container: the token decides
        (CHILD, (), None, True),
        ("", (), None, False),
        # an own child, by its process or its command, needs none
        ("", (ME,), None, True),
        ("", (SHELL, MY_COMMAND), None, True),
        ("wrong", (SHELL, MY_COMMAND, OTHER), None, True),
        # whoever belongs to another session is refused, whatever it shows
        (CLIENT, (OTHER,), None, False),
        (CLIENT, (SHELL, OTHER), None, False),
        (CHILD, (SHELL, OTHER, ME), None, False),
        (CLIENT, (OPENER,), None, False),
        # the session that opened this one may, with a token, and what is above that does not matter
        (CLIENT, (OPENER,), "opener", True),
        ("", (OPENER,), "opener", False),
        (CLIENT, (SHELL, OPENER, OTHER), "opener", True),
        ("", (OPENER, ME), "opener", False),
        (CLIENT, (OTHER, OPENER), "opener", False),
        # a process with several sessions
        ("", (TWO,), None, True),
        (CLIENT, (OPENER_TOO,), "opener", True),
        (CLIENT, (OPENER_TOO,), None, False),
    ],
)
def test_the_ladder(
    token: str, ancestry: tuple[tuple[int, str], ...], opened_by: str | None, heard: bool
) -> None:
    assert admitted(token, *ancestry, opened_by=opened_by) is heard


lines = st.lists(st.sampled_from([*PEOPLE, (99, "nobody")]), max_size=6).map(tuple)
tokens = st.sampled_from([CLIENT, CHILD, "", "wrong"])


@pytest.mark.rule("05.26")
@given(tokens, lines, st.sampled_from([None, "opener"]))
def test_the_nearest_session_decides(
    token: str, ancestry: tuple[tuple[int, str], ...], opened_by: str | None
) -> None:
    """Said another way than the ladder: whose a process is, then what that one may."""
    owners = next((PEOPLE[each] for each in ancestry if PEOPLE.get(each)), ())
    if MINE in owners:
        expected = True
    elif owners and opened_by not in owners:
        expected = False
    else:
        expected = token in (CLIENT, CHILD)
    assert admitted(token, *ancestry, opened_by=opened_by) is expected


@pytest.mark.rule("05.20", "05.26")
@pytest.mark.parametrize(
    ("line", "token"),
    [
        (b'{"type":"auth","token":"abc"}', "abc"),
        (b'{"token":"abc","type":"auth","more":1}', "abc"),
        (b'{"type":"auth","token":""}', ""),
        (b'{"type":"auth"}', ""),
        (b'{"type":"user","token":"abc"}', ""),
        (b'{"token":"abc"}', ""),
        (b'{"type":"auth","token":7}', ""),
        (b'{"type":"auth","token":null}', ""),
        (b'["auth","abc"]', ""),
        (b'"abc"', ""),
        (b"null", ""),
        (b"\xff\xfe", ""),
        (b"GET / HTTP/1.1", ""),
        (b"[" * 100_000, ""),
    ],
)
def test_the_first_line_shows_a_token_or_nothing(line: bytes, token: str) -> None:
    assert shown_token(line) == token


@given(st.binary(max_size=60))
def test_any_first_line_is_read(line: bytes) -> None:
    assert isinstance(shown_token(line), str)


@given(st.text(), st.text())
def test_secrets_are_compared_whole(one: str, other: str) -> None:
    assert same(one, one)
    assert same(one, other) is (one == other)


@pytest.mark.rule("10.21")
@pytest.mark.parametrize(
    ("argv", "stdin"),
    [(["status"], None), (["send", "bob", "-"], "hello\n"), (["send", "b", "-"], 9_000_000)],
)
def test_what_a_command_writes_is_understood(argv: list[str], stdin: str | int | None) -> None:
    assert request_of(json.dumps({"argv": argv, "stdin": stdin}).encode()) == (argv, stdin)


BAD = [
    *(b"", b"null", b"7", b"[]", b'"status"', b"{}", b"{", b"\xff", b"[" * 100_000),
    *(
        b'{"argv":["status"]}',
        b'{"stdin":null}',
        b'{"argv":[],"stdin":null}',
        b'{"argv":"status","stdin":null}',
    ),
    *(
        b'{"argv":[7],"stdin":null}',
        b'{"argv":["status",null],"stdin":null}',
        b'{"argv":{"0":"x"},"stdin":null}',
    ),
    *(
        b'{"argv":["status"],"stdin":[]}',
        b'{"argv":["status"],"stdin":true}',
        b'{"argv":["status"],"stdin":1.5}',
    ),
    *(b'{"argv":["status"],"stdin":5}', b'{"argv":["status"],"stdin":-1}', b'{"argv":["status"],"stdin":{}}'),
]


@pytest.mark.rule("11.14")
@pytest.mark.parametrize("line", BAD, ids=[repr(line[:40]) for line in BAD])
def test_what_no_command_writes_is_a_bad_frame(line: bytes) -> None:
    with pytest.raises(BadFrame):
        request_of(line)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=8))
def test_any_json_is_a_request_or_a_bad_frame(value: object) -> None:
    for request in (value, {"argv": value, "stdin": None}, {"argv": ["status"], "stdin": value}):
        try:
            argv, stdin = request_of(json.dumps(request).encode())
        except BadFrame:
            continue
        assert argv
        assert all(isinstance(word, str) for word in argv)
        assert stdin is None or isinstance(stdin, str | int)
