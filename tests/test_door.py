"""Who may speak on the control socket, and the two lines with which a command begins."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.door import (
    NO_TERMINAL,
    NOBODY_KNOWN,
    STARTED_BY_SESSION,
    Door,
    is_inside,
    refused_entry,
    refused_person,
    request_of,
    same,
    shown_token,
)
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


INSIDER = f"inside-{'7' * 32}"


@pytest.mark.rule("05.26", "06.14")
@pytest.mark.parametrize(
    ("token", "inside", "ancestry", "opened_by", "heard"),
    [
        # the token of an agent or observer of this session admits, as a child's does
        (INSIDER, True, (SHELL,), None, True),
        (INSIDER, True, (), None, True),
        (INSIDER, True, (ME,), None, True),
        (INSIDER, True, (OPENER,), "opener", True),
        (INSIDER, True, (OTHER,), None, False),
        (INSIDER, True, (SHELL, OTHER, ME), None, False),
        # one that is nobody's here admits nobody, not even an own child
        (INSIDER, False, (SHELL,), None, False),
        (INSIDER, False, (ME,), None, False),
        (INSIDER, False, (SHELL, MY_COMMAND), None, False),
        (INSIDER, False, (OPENER,), "opener", False),
        ("inside-", False, (ME,), None, False),
    ],
)
def test_who_is_inside_is_known_by_its_token_alone(
    token: str, inside: bool, ancestry: tuple[tuple[int, str], ...], opened_by: str | None, heard: bool
) -> None:
    pid, start = ancestry[0] if ancestry else (0, "")
    evidence = Evidence("uds", pid, start, ancestry)
    refusal = refused_entry(door(opened_by), MINE, token, evidence, inside=inside)
    assert (refusal is None) is heard
    free = refused_entry(door(opened_by), MINE, token, evidence, inside=inside, free=True)
    assert (free is None) is inside  # listing is free to whoever shows a token of this session


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


# ── a person ─────────────────────────────────────────────────────────────────────────────────────

TTY = 34_816
"""A device number, as field 7 of a stat has it."""


def why_no_person(evidence: Evidence, tty: int, opened_by: str | None = "opener") -> str:
    """Why a process is not taken for a person's; empty where it is."""
    refusal = refused_person(door(opened_by), evidence, tty, "Approving a held message")
    if refusal is None:
        return ""
    assert refusal.code == "needs_person"
    reason = refusal.message.removeprefix("Approving a held message needs a person, and ").removesuffix(".")
    assert f"Approving a held message needs a person, and {reason}." == refusal.message
    assert "a terminal that no session started" in refusal.hint
    return reason


@pytest.mark.rule("10.39", "05.26")
@pytest.mark.parametrize(
    ("ancestry", "tty", "why"),
    [
        # a terminal that no session started
        ((SHELL,), TTY, ""),
        ((SHELL, (11, "terminal"), (1, "init")), TTY, ""),
        # no terminal: cron, an agent's pipes, a detached session's child
        ((SHELL,), 0, NO_TERMINAL),
        # this session's own process or command, however near, with a terminal or without
        ((ME,), TTY, STARTED_BY_SESSION),
        ((SHELL, MY_COMMAND), TTY, STARTED_BY_SESSION),
        ((SHELL, MY_COMMAND), 0, STARTED_BY_SESSION),
        # any other session's
        ((OTHER,), TTY, STARTED_BY_SESSION),
        ((SHELL, OTHER), TTY, STARTED_BY_SESSION),
        ((SHELL, (11, "a"), (12, "b"), OTHER, (1, "init")), TTY, STARTED_BY_SESSION),
        # the session that opened this one is not excepted here
        ((SHELL, OPENER), TTY, STARTED_BY_SESSION),
        ((OPENER,), TTY, STARTED_BY_SESSION),
        ((SHELL, OPENER_TOO), TTY, STARTED_BY_SESSION),
        ((SHELL, TWO), TTY, STARTED_BY_SESSION),
        # nothing is known
        ((), TTY, NOBODY_KNOWN),
        ((), 0, NOBODY_KNOWN),
    ],
)
def test_who_is_a_person(ancestry: tuple[tuple[int, str], ...], tty: int, why: str) -> None:
    pid, start = ancestry[0] if ancestry else (0, "")
    assert why_no_person(Evidence("uds", pid, start, ancestry), tty) == why


@pytest.mark.rule("10.39")
@pytest.mark.parametrize(
    "evidence",
    [
        Evidence("uds"),
        Evidence("uds", 10),  # it had gone before it was looked at
        Evidence("uds", 10, "shell"),  # its ancestors could not be read
        Evidence("uds", 0, "", (SHELL,)),  # another pid namespace
        Evidence("uds", 10, "", (SHELL,)),
        Evidence("uds", 10, "shell", (), "client"),  # a token is no person
    ],
)
def test_who_is_not_known_is_no_person(evidence: Evidence) -> None:
    assert why_no_person(evidence, TTY) == NOBODY_KNOWN


@pytest.mark.rule("10.39")
def test_the_sessions_own_process_is_no_person_though_it_were_not_registered() -> None:
    """As while it opens, before its record is published."""
    unregistered = Door(
        client_token=CLIENT, child_token=CHILD, process=ME, registered=lambda pid, start: (), opened_by=None
    )
    for ancestry, refused in (((SHELL, ME), True), ((SHELL, (ME[0], "later")), False)):
        evidence = Evidence("uds", 10, "shell", ancestry)
        assert (refused_person(unregistered, evidence, TTY, "It") is not None) is refused


@pytest.mark.rule("10.39", "05.26")
@given(lines, st.booleans(), st.booleans(), st.sampled_from([0, 1, TTY]), st.sampled_from([None, "opener"]))
def test_a_person_is_known_has_a_terminal_and_no_session_above(
    ancestry: tuple[tuple[int, str], ...], pid: bool, start: bool, tty: int, opened_by: str | None
) -> None:
    """Said another way than the ladder; a token, and who opened the session, make no difference."""
    evidence = Evidence("uds", 10 if pid else 0, "shell" if start else "", ancestry)
    known = pid and start and bool(ancestry)
    free = not any(PEOPLE.get(each) for each in ancestry)
    assert (why_no_person(evidence, tty, opened_by) == "") is (known and free and tty != 0)


@pytest.mark.rule("05.25", "10.6")
@pytest.mark.parametrize(
    ("token", "ancestry", "inside"),
    [
        # by its process, whatever it shows
        ("", (ME,), True),
        ("", (SHELL, MY_COMMAND), True),
        (CLIENT, (SHELL, MY_COMMAND, OTHER), True),
        ("", (TWO,), True),
        # by the child's token, where it belongs to nobody
        (CHILD, (SHELL,), True),
        (CHILD, (), True),
        (CLIENT, (SHELL,), False),
        ("", (SHELL,), False),
        ("", (), False),
        # another session's, whatever it shows; the opener's too
        (CHILD, (SHELL, OTHER), False),
        (CHILD, (SHELL, OTHER, ME), False),
        (CHILD, (SHELL, OPENER), False),
        (CHILD, (OPENER, MY_COMMAND), False),
    ],
)
def test_who_speaks_from_inside(token: str, ancestry: tuple[tuple[int, str], ...], inside: bool) -> None:
    pid, start = ancestry[0] if ancestry else (0, "")
    assert is_inside(door(), MINE, token, Evidence("uds", pid, start, ancestry)) is inside


@pytest.mark.rule("05.25", "10.6", "10.39")
@given(tokens, lines, st.sampled_from([None, "opener"]))
def test_nobody_is_both_inside_by_process_and_a_person(
    token: str, ancestry: tuple[tuple[int, str], ...], opened_by: str | None
) -> None:
    pid, start = ancestry[0] if ancestry else (0, "")
    evidence = Evidence("uds", pid, start, ancestry)
    inside = is_inside(door(opened_by), MINE, token, evidence)
    owners = next((PEOPLE[each] for each in ancestry if PEOPLE.get(each)), ())
    assert inside is (MINE in owners if owners else token == CHILD)
    if inside and token != CHILD:
        assert why_no_person(evidence, TTY, opened_by) == STARTED_BY_SESSION


# ── the two lines ────────────────────────────────────────────────────────────────────────────────


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
