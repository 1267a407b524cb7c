"""The short way of the command line: what it finds, what it hands over, and what it says when that fails.

Where two pieces of the project say the same in two ways, because `ask` may import nothing of ours, they are held
together here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom import ask, present
from postroom.core import address
from postroom.state import places, processes
from postroom.state.record import Record
from postroom.state.tenure import write_client_token
from tests.room import states
from tests.strangers import OTHER_UID, needs_root
from tests.test_control import Desk, arrives, at_desk
from tests.transports.ends import until

NAMES = st.one_of(
    st.text(max_size=12),
    st.text(st.sampled_from("aZ -_.\t\n·ıİßẞſΣςͅée\u0301ﬀＡ１　\u00a0\u2028\x1c\x85\u200bК"), max_size=12),
)


# ── the same in two ways ─────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("02.5")
@given(NAMES)
def test_names_are_folded_as_the_core_folds_them(name: str) -> None:
    assert ask.normal_form(name) == address.normal_form(name)


@pytest.mark.rule("02.5")
def test_every_single_character_is_folded_as_the_core_folds_it() -> None:
    """Each of them, between two letters and alone."""
    for code in (*range(0xD800), *range(0xE000, 0x30000)):
        if unicodedata.category(chr(code)) != "Lo":  # letters without case are folded to themselves
            for name in (chr(code), f"A{chr(code)}b"):
                assert ask.normal_form(name) == address.normal_form(name), hex(code)


@pytest.mark.rule("02.3")
@given(name=NAMES.filter(lambda name: address.normal_form(name) != ""))
def test_the_holder_of_a_name_is_looked_up_where_the_claim_lies(name: str) -> None:
    wanted = f"/state/names/{address.claim_key(name)}"
    read: list[str] = []

    def slurp(path: str, *, private: bool = False) -> str:
        assert private
        read.append(path)
        return "some-id\nprimary\nname\n"

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ask, "slurp", slurp)
        assert ask.holder("/state", name) == "some-id"
    assert read == [wanted]


@given(st.binary(max_size=200))
def test_the_hash_is_the_hash(data: bytes) -> None:
    from hashlib import sha256

    assert ask.sha256_of(data) == sha256(data).hexdigest()


@pytest.mark.rule("05.2")
@pytest.mark.parametrize(
    "names", [("POSTROOM_HOME", "XDG_STATE_HOME", "HOME"), ("XDG_STATE_HOME", "HOME"), ("HOME",)]
)
@pytest.mark.parametrize("empty", [(), ("POSTROOM_HOME",), ("POSTROOM_HOME", "XDG_STATE_HOME")])
def test_the_state_lies_where_it_lies(tmp_path: Path, names: tuple[str, ...], empty: tuple[str, ...]) -> None:
    """The same folder as `state.places` finds, an empty variable counting as none."""
    tmp_path.chmod(0o700)
    environ = {name: str(tmp_path / f"a{number}/") for number, name in enumerate(names)}
    for name in environ:
        Path(environ[name]).mkdir(mode=0o700)
    environ |= dict.fromkeys(empty, "")
    if not any(environ.values()):
        return
    found = ask.state_folder({key.encode(): value.encode() for key, value in environ.items()})
    assert found is not None
    assert os.path.normpath(found) == places.state_folder(environ).path


def test_without_any_of_them_the_whole_command_line_decides() -> None:
    assert ask.state_folder({}) is None


@pytest.mark.rule("10.38")
@given(
    st.builds(
        Record,
        pid=st.integers(1, 10**6),
        session_id=st.uuids().map(str),
        name=st.sampled_from(["bob", "procStart", '"procStart":', "\\", '":"']),
        proc_start=st.integers(1, 10**9).map(str),
        started_at=st.integers(0, 10**12),
        updated_at=st.integers(0, 10**12),
        cwd=st.one_of(st.text(max_size=9), st.sampled_from(["sessionId", '"sessionId": "x"'])),
    )
)
def test_a_value_of_a_record_is_the_one_that_was_written(record: Record) -> None:
    """Whatever else stands in it."""
    text = record.to_json().decode()
    assert ask.value_of(text, "procStart") == record.proc_start
    assert ask.value_of(text, "sessionId") == record.session_id
    assert ask.value_of(text, "noSuchKey") is None


@pytest.mark.parametrize(
    "text", ["", "{", '{"procStart"', '{"procStart":', '{"procStart":7}', '{"procStart": "7']
)
def test_a_record_that_says_nothing_has_no_value(text: str) -> None:
    assert ask.value_of(text, "procStart") is None


# ── which words are what ─────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.38", "10.37")
@pytest.mark.parametrize(
    ("line", "session", "rest"),
    [
        ("", None, ""),
        ("status", None, "status"),
        ("--session bob status", "bob", "status"),
        ("status --session bob", "bob", "status"),
        ("--session=bob status --json", "bob", "status --json"),
        ("--json status", None, "status --json"),
        ("--json --session bob status", "bob", "status --json"),
        ("--session bob --json send x y", "bob", "send --json x y"),
        ("send x y --json", None, "send x y --json"),
        ("--session a status --session b", "b", "status"),
        ("--session= status", "", "status"),
        ("--session '' status", "", "status"),
        ("status --session", None, "status --session"),
        ("send x -- --session bob --json", None, "send x -- --session bob --json"),
        ("--session bob send x -- --session=y", "bob", "send x -- --session=y"),
        ("-- status", None, "-- status"),
        ("--json", None, "--json"),
        ("--sessions bob status", None, "--sessions bob status"),
        ("--session 'my app [3fa9c1]' status", "my app [3fa9c1]", "status"),
    ],
)
def test_the_session_is_taken_out_of_the_words(line: str, session: str | None, rest: str) -> None:
    assert ask.split_session(shlex.split(line)) == (session, shlex.split(rest))


PLAIN_WORDS = st.lists(st.sampled_from(["send", "b", "-", "", "--summary", "session"]), max_size=4)
GIVEN = st.lists(st.sampled_from([("--session", "a"), ("--session", "b c"), ("--session=d",)]), max_size=2)


@pytest.mark.rule("10.38")
@given(
    PLAIN_WORDS,
    GIVEN,
    GIVEN,
    st.integers(0, 2),
    st.sampled_from([[], ["--"], ["--", "--session", "x", "--json"]]),
)
def test_no_other_word_is_touched(
    words: list[str],
    before: list[tuple[str, ...]],
    behind: list[tuple[str, ...]],
    documents: int,
    text: list[str],
) -> None:
    """The last name counts, `--json` before the command comes behind it, all else stays as and where it is."""
    argv = [*(part for each in before for part in each), *["--json"] * documents, *words]
    argv += [*(part for each in behind for part in each), *text]
    session, rest = ask.split_session(argv)
    names = [each[-1].removeprefix("--session=") for each in (*before, *behind)]
    assert session == (names[-1] if names else None)
    words = words + text
    assert rest == [*words[:1], *["--json"] * documents, *words[1:]]


# ── whose session ────────────────────────────────────────────────────────────────────────────────

FIRST, SECOND = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with two sessions; `bob` is the first one's name."""
    folder = tmp_path / "state"
    for session_id in (FIRST, SECOND):
        (folder / "sessions" / session_id).mkdir(parents=True, mode=0o700)
        write_client_token(str(folder / "sessions" / session_id), f"token of {session_id}", f"/{session_id}")
    for each in (tmp_path, folder, folder / "sessions"):
        each.chmod(0o700)
    (folder / "names").mkdir(mode=0o700)
    put(folder / "names" / address.claim_key("Bob the 2nd"), f"{FIRST}\nprimary\nBob the 2nd\n")
    return folder


def put(path: Path, text: str) -> None:
    """Writes a private file."""
    path.write_text(text)
    path.chmod(0o600)


def located(session: str | None, **environ: str) -> str | None:
    """Whose control socket is found."""
    found = ask.locate(session, {key.encode(): value.encode() for key, value in environ.items()})
    if found is None:
        return None
    assert found[1] in (f"token of {found[0][1:]}", "child")
    return found[0].removeprefix("/")


@pytest.mark.rule("10.38", "02.3", "05.26")
def test_a_session_is_meant_by_its_id_or_its_name(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--session` before POSTROOM_SESSION before an ancestor; an unknown one is for the whole command line to say."""
    monkeypatch.setattr(ask, "of_ancestor", lambda _: SECOND)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    home = {"POSTROOM_HOME": str(state)}
    assert located(FIRST, **home) == FIRST
    assert located("bob_the 2ND", **home) == FIRST
    assert located(SECOND, **home, POSTROOM_SESSION=FIRST) == SECOND
    assert located(None, **home, POSTROOM_SESSION="Bob the 2nd") == FIRST
    assert located(None, **home, POSTROOM_SESSION="") == SECOND
    assert located(None, **home) == SECOND
    assert located("nobody", **home) is None
    assert located("", **home, POSTROOM_SESSION=FIRST) is None
    assert located(f"../sessions/{FIRST}", **home) is None
    assert located(".", **home) is None
    assert located(FIRST) is None


@pytest.mark.rule("10.38", "05.26")
def test_a_socket_and_a_token_in_the_environment_are_enough(tmp_path: Path, state: Path) -> None:
    """They count where no session is named; without the socket there, or without a token, they are nothing."""
    put(tmp_path / "7.sock", "")
    there, gone = str(tmp_path / "7.sock"), str(tmp_path / "8.sock")
    assert located(None, POSTROOM_SOCKET=there, POSTROOM_TOKEN="child") == f"{tmp_path}/7.ctl.sock"[1:]
    assert located(None, POSTROOM_SOCKET=there) is None
    assert located(None, POSTROOM_SOCKET=gone, POSTROOM_TOKEN="child") is None
    assert located(None, POSTROOM_SOCKET=str(tmp_path), POSTROOM_TOKEN="child") is None
    assert located(FIRST, POSTROOM_SOCKET=there, POSTROOM_TOKEN="child", POSTROOM_HOME=str(state)) == FIRST


@pytest.mark.rule("10.38", "05.26", "06.14")
def test_whoever_is_inside_a_session_shows_its_own_token_and_no_other(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever session is meant: the client token that lies there would make the main conversation of it."""
    monkeypatch.setattr(ask, "of_ancestor", lambda _: SECOND)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    put(tmp_path / "7.sock", "")
    token, there = "inside-7", (f"{tmp_path}/7.ctl.sock", "inside-7")

    def found(session: str | None, **environ: str) -> tuple[str, str] | None:
        environ |= {"POSTROOM_TOKEN": token}
        return ask.locate(session, {key.encode(): value.encode() for key, value in environ.items()})

    home, sock = {"POSTROOM_HOME": str(state)}, {"POSTROOM_SOCKET": str(tmp_path / "7.sock")}
    assert found(FIRST, **home) == found(FIRST, **home, **sock) == (f"/{FIRST}", token)
    assert found("bob the 2nd", **home) == (f"/{FIRST}", token)
    assert found(None, **home, POSTROOM_SESSION=FIRST) == (f"/{FIRST}", token)
    assert found(None, **home, **sock, POSTROOM_SESSION=SECOND) == (f"/{SECOND}", token)
    assert found(None, **home) == (f"/{SECOND}", token)
    assert found(None, **home, **sock) == there
    # What lies in the folder cannot be seen, or is not known there: the socket is enough, unless a session is named.
    for environ in (
        sock,
        {**home, **sock, "POSTROOM_SESSION": "nobody"},
        {**sock, "POSTROOM_SESSION": FIRST},
    ):
        assert found(None, **environ) == there
    assert found("nobody", **home, **sock) is None
    assert found(None, **home, POSTROOM_SESSION="nobody", POSTROOM_SOCKET=f"{tmp_path}/8.sock") is None


@pytest.mark.rule("05.6", "05.26", "11.11")
@pytest.mark.parametrize("place", ["", "sessions", f"sessions/{FIRST}", f"sessions/{FIRST}/client.token"])
def test_a_token_in_an_open_place_is_not_used(state: Path, place: str) -> None:
    """The whole command line then says what is wrong with it."""
    assert located(FIRST, POSTROOM_HOME=str(state)) == FIRST
    (state / place).chmod(0o750 if (state / place).is_dir() else 0o640)
    assert located(FIRST, POSTROOM_HOME=str(state)) is None


@pytest.mark.rule("10.38")
def test_the_nearest_ancestor_with_a_session_is_meant(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the file of a client, by the record of a process; a later process of the same pid is another."""
    sessions = state / "sessions"
    parent, start = os.getppid(), processes.start_of(os.getppid())
    own, own_start = os.getpid(), processes.start_of(os.getpid())
    monkeypatch.setattr(ask.posix, "getppid", lambda: own)  # the caller is a child of this process
    assert ask.of_ancestor(str(state)) is None
    put(sessions / f"client-{parent}-{start}", SECOND)
    assert ask.of_ancestor(str(state)) == SECOND
    record = Record(
        pid=own, session_id=FIRST, name="bob", proc_start=str(own_start), started_at=0, updated_at=0
    )
    put(sessions / f"{own}.json", record.to_json().decode())
    assert ask.of_ancestor(str(state)) == FIRST
    put(sessions / f"{own}-0a1b2c3d.json", record.to_json().decode())
    assert ask.of_ancestor(str(state)) is None  # which of the two is not guessed
    (sessions / f"{own}-0a1b2c3d.json").unlink()
    put(sessions / f"{own}.json", record.to_json().decode().replace(str(own_start), "1"))
    assert ask.of_ancestor(str(state)) == SECOND
    put(sessions / f"client-{own}-{own_start}", FIRST)
    assert ask.of_ancestor(str(state)) == FIRST


def test_a_line_of_ancestors_ends(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first process, at one that has gone, after so many."""
    monkeypatch.setattr(ask.posix, "getppid", lambda: 1)
    assert ask.of_ancestor(str(state)) is None
    monkeypatch.setattr(ask.posix, "getppid", lambda: 2**22 + 1)
    assert ask.of_ancestor(str(state)) is None
    reads: list[str] = []

    def circle(path: str, *, private: bool = False) -> str:
        reads.append(path)
        return "7 (x) y) S 7 " + " ".join(map(str, range(3, 25))) if path.endswith("/stat") else ""

    monkeypatch.setattr(ask, "slurp", circle)
    assert ask.of_ancestor(str(state)) is None
    assert sum(path.endswith("/stat") for path in reads) == ask.ANCESTORS


# ── the exchange ─────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def scripted(*answers: bytes, wait_for: bytes = b"\n", hang: bool = False) -> Generator[Any]:
    """One end of a connection; at the other a thread reads a request, then writes each answer and reads between."""
    mine, other = socket.socketpair(socket.AF_UNIX)
    mine.settimeout(ask.ANSWER_SECONDS)
    heard: list[bytes] = []
    done = threading.Event()

    def serve() -> None:
        with other:
            data = b""
            while data.count(b"\n") < 2:
                more = other.recv(65536)
                if not more:
                    return
                data += more
            heard.append(data)
            for answer in answers:
                other.sendall(answer)
                if answer.startswith(b"confirm"):
                    heard.append(other.recv(64))
            if hang:
                done.wait(30)

    thread = threading.Thread(target=serve)
    thread.start()
    line = ask.sockets.socket(mine.family, mine.type, 0, mine.detach())
    line.settimeout(ask.ANSWER_SECONDS)
    line_and_heard = (line, heard)
    try:
        yield line_and_heard
    finally:
        done.set()
        line.close()
        thread.join(30)
        assert not thread.is_alive()


TAKEN = b"part 0 0 0\n"


@pytest.mark.rule("10.21", "10.37", "11.1")
def test_what_the_session_answers_is_printed_byte_for_byte(capfd: pytest.CaptureFixture[str]) -> None:
    """Parts as they come, stdout and stderr apart; a word after what was to be confirmed; the exit code."""
    answers = (TAKEN, b"part 0 3 5\nousterr\n", b"confirm 0 6 0\n\xc3\xa4\nxy\n", b"done 4 0 1\n!")
    with scripted(*answers) as (line, heard):
        assert ask.hand_over(line, 'to"ken', ["wait", "a\nb", "ä"]) == 4
    first, second = heard[0].splitlines()
    assert json.loads(first) == {"type": "auth", "token": 'to"ken'}
    assert json.loads(second) == {"argv": ["wait", "a\nb", "ä"], "stdin": None}
    assert heard[1] == b"ok\n"
    assert capfd.readouterr() == ("ousä\nxy\n", "terr\n!")


@pytest.mark.rule("10.37", "10.23")
@pytest.mark.parametrize(
    ("answers", "argv", "code"),
    [
        ((), ["send", "bob", "x"], "no_session"),
        ((), ["status"], "no_session"),
        ((TAKEN,), ["status"], "no_session"),
        ((TAKEN, b"part 0 9 0\nhalf"), ["inbox"], "no_session"),
        ((TAKEN,), ["send", "bob", "x"], "unknown"),
    ],
)
def test_a_session_that_goes_away_is_said(
    capfd: pytest.CaptureFixture[str], answers: tuple[bytes, ...], argv: list[str], code: str
) -> None:
    """In words, and as a document: the same as the whole command line writes. A send that was taken may have left."""
    with scripted(*answers) as (line, _):
        assert ask.hand_over(line, "t", argv) == 1
    out, err = capfd.readouterr()
    first, sentence, hint = err.splitlines()
    assert (first, sentence[:10], hint[:2]) == (code, "postroom: ", "  ")
    with scripted(*answers) as (line, _):
        assert ask.hand_over(line, "t", [*argv, "--json"]) == 1
    out, err = capfd.readouterr()
    assert err == f"{code}\n"
    assert out.endswith(present.said_error(code, sentence[10:], hint[2:], as_json=True)[0])


@pytest.mark.rule("05.26", "06.14")
@pytest.mark.parametrize(
    ("answers", "argv", "code"),
    [
        ((), ["send", "bob", "x"], "not_your_session"),
        ((TAKEN,), ["wait"], "not_your_session"),
        ((TAKEN,), ["send", "bob", "x"], "unknown"),
        (None, ["wait"], "timeout"),
    ],
)
def test_an_agent_whose_program_goes_away_is_not_told_to_bring_it_back(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answers: tuple[bytes, ...] | None,
    argv: list[str],
    code: str,
) -> None:
    monkeypatch.setattr(ask, "ANSWER_SECONDS", 0.05 if answers is None else 30.0)
    with scripted(*(answers or ()), hang=answers is None) as (line, _):
        assert ask.hand_over(line, "inside-7", argv) == 1
    first, sentence, hint = capfd.readouterr().err.splitlines()
    assert (first, sentence[:10]) == (code, "postroom: ")
    assert "--resume" not in hint
    assert "postroom" not in hint
    assert (ask.PROGRAM_ENDED in hint) == (code != "timeout")


@pytest.mark.rule("10.37", "11.14")
def test_a_session_that_hangs_is_not_waited_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not even say that it took the request."""
    monkeypatch.setattr(ask, "ANSWER_SECONDS", 0.05)
    with scripted(hang=True) as (line, _):
        assert ask.hand_over(line, "t", ["wait"]) == 1
    assert capfd.readouterr().err.startswith("timeout\npostroom: ")


@pytest.mark.rule("10.21")
def test_one_that_took_the_request_is_waited_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is off once the request was taken: the socket would raise otherwise."""
    monkeypatch.setattr(ask, "ANSWER_SECONDS", 30.0)
    with scripted(TAKEN, b"done 0 0 0\n") as (line, _):
        assert line.gettimeout() == 30.0
        assert ask.converse(line, ask.compose("t", ["wait"], None)) == 0
        assert line.gettimeout() is None


def test_an_early_refusal_of_a_long_request_is_read(capfd: pytest.CaptureFixture[str]) -> None:
    """The other end answers and closes before it has read everything."""
    mine, other = socket.socketpair(socket.AF_UNIX)
    other.sendall(b"done 1 0 5\nnope\n")
    other.shutdown(socket.SHUT_RD)
    line = ask.sockets.socket(mine.family, mine.type, 0, mine.detach())
    assert ask.hand_over(line, "t", ["send", "b", "x" * 100_000]) == 1
    other.close()
    assert capfd.readouterr().err == "nope\n"


def test_asking_for_an_answer_alone() -> None:
    """`trace` over every session: what it prints is returned."""
    with (
        scripted(TAKEN, b"part 0 3 0\nabc", b"done 3 1 2\ndxx") as (line, heard),
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setattr(ask, "dial", lambda _: line)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        assert ask.answer_of("/x", "t", ["trace", "m"]) == b"abcd"
        assert b'"argv":["trace","m"]' in heard[0]
    with scripted(TAKEN) as (line, _), pytest.MonkeyPatch.context() as patched:
        patched.setattr(ask, "dial", lambda _: line)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        with pytest.raises(ask.Unanswered):
            ask.answer_of("/x", "t", ["trace", "m"])


# ── standard input ───────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def standing(data: bytes | None) -> Generator[None]:
    """Puts a pipe with this in the place of standard input; None closes it."""
    saved = os.dup(0)
    writer = None
    try:
        if data is None:
            os.close(0)
        else:
            read_end, write_end = os.pipe()
            os.dup2(read_end, 0)
            os.close(read_end)

            def feed() -> None:
                with os.fdopen(write_end, "wb") as pipe:
                    pipe.write(data)

            writer = threading.Thread(target=feed)
            writer.start()
        yield
    finally:
        os.dup2(saved, 0)
        os.close(saved)
        if writer is not None:
            writer.join(30)


SEND = ["send", "bob", "-"]


@pytest.mark.rule("10.2", "01.19")
@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b"", ""),
        (b"hello\n", "hello\n"),
        ("ä€😀\r\n".encode(), "ä€😀\r\n"),
        (b"\x00", "\x00"),
        (b"x" * 100, "x" * 100),
        (b"x" * 101, 101),
        ("ä".encode() * 51, 51),
        (b"x" * 3_000_000, 3_000_000),
    ],
)
def test_standard_input_is_read_whole_or_counted(
    monkeypatch: pytest.MonkeyPatch, data: bytes, read: str | int
) -> None:
    """Up to the limit its text; beyond, how many characters it has, without keeping them."""
    monkeypatch.setattr(ask, "MAX_STDIN", 100)
    with standing(data):
        assert ask.standard_input(SEND) == read


@pytest.mark.rule("01.19")
def test_any_message_that_may_be_sent_fits() -> None:
    assert ask.MAX_STDIN >= 4 * 1_000_000


def test_nothing_is_read_that_is_not_asked_for() -> None:
    with standing(b"left alone"):
        assert ask.standard_input(["send", "bob", "x"]) is None
        assert os.read(0, 100) == b"left alone"


@pytest.mark.rule("10.37")
@pytest.mark.parametrize(
    ("data", "argv"),
    [(b"\xff", SEND), (b"ok\xc3", SEND), (b"", ["send", "bob", "\udcff"]), (b"", ["send", "b\udc80b", "x"])],
)
def test_what_is_not_utf8_is_a_usage_error(
    capfd: pytest.CaptureFixture[str], data: bytes, argv: list[str]
) -> None:
    """From standard input, and from the arguments, in which Python hides such bytes as half surrogates."""
    with standing(data), scripted() as (line, heard):
        assert ask.hand_over(line, "t", argv) == 2
        assert heard == []
    assert capfd.readouterr().err.startswith("usage\npostroom: The text is not UTF-8.\n")


@pytest.mark.rule("10.37")
def test_a_standard_input_that_cannot_be_read_is_a_usage_error(capfd: pytest.CaptureFixture[str]) -> None:
    with standing(None), scripted() as (line, _):
        assert ask.hand_over(line, "t", [*SEND, "--json"]) == 2
    out, err = capfd.readouterr()
    assert err == "usage\n"
    assert json.loads(out)["error"]["message"] == "Standard input cannot be read."


# ── who is at the other end ──────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def listening(path: Path, uid: int | None = None) -> Generator[None]:
    """Listens at a path of ours, in a child that has become another user if one is given."""
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    path.chmod(0o600)
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if uid is not None:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            sock.listen(8)  # whoever listens is the peer that the kernel names
            os.write(tell, b"x")
            signal.pause()
        finally:
            os._exit(0)
    try:
        os.read(ready, 1)
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        sock.close()
        os.close(ready)
        os.close(tell)


@pytest.mark.rule("05.6", "11.11")
def test_a_socket_of_ours_is_dialled(tmp_path: Path) -> None:
    with listening(tmp_path / "x"):
        ask.dial(str(tmp_path / "x")).close()
    with pytest.raises(ask.Unanswered):
        ask.dial(str(tmp_path / "x"))  # nobody listens
    with pytest.raises(ask.Unanswered):
        ask.dial(str(tmp_path / "y"))  # nothing lies there


@pytest.mark.rule("05.6", "11.11", "11.29")
@needs_root
def test_another_users_process_is_not_spoken_to(tmp_path: Path) -> None:
    """The file is ours and the folder is ours, but the one who listens is not."""
    with listening(tmp_path / "x", OTHER_UID), pytest.raises(ask.Unanswered):
        ask.dial(str(tmp_path / "x"))


@pytest.mark.rule("05.6", "11.11")
@pytest.mark.parametrize("form", ["loose", "symlink", "file", pytest.param("foreign", marks=needs_root)])
def test_a_socket_that_must_not_be_trusted_is_not_dialled(tmp_path: Path, form: str) -> None:
    path = tmp_path / "x"
    with listening(path):
        if form == "loose":
            path.chmod(0o660)
        elif form == "foreign":
            os.chown(path, OTHER_UID, OTHER_UID)
        elif form == "symlink":
            (tmp_path / "link").symlink_to(path)
            path = tmp_path / "link"
        else:
            path = tmp_path / "file"
            put(path, "")
        with pytest.raises(ask.Unanswered):
            ask.dial(str(path))


# ── the command itself ───────────────────────────────────────────────────────────────────────────

PLAIN = "import sys; from postroom import ask; code = ask.main(sys.argv[1:]); sys.exit(99 if code is None else code)"

WITHOUT_C = "import sys; sys.modules.update(dict.fromkeys(('_json', '_sha256', '_sha2'))); " + PLAIN
"""As on an interpreter that lacks what lies beneath `json` and `hashlib`."""


async def command(desk: Desk, *argv: str, program: str = PLAIN, **more: Any) -> asyncio.subprocess.Process:
    """Starts a command that means bob, by his socket and his child's token."""
    sock = Path(desk._path.replace(".ctl.sock", ".sock"))  # pyright: ignore[reportPrivateUsage]
    put(sock, "")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("POSTROOM_")}
    options: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", program, *argv),
        env={**kept, "POSTROOM_SOCKET": str(sock), "POSTROOM_TOKEN": "e" * 32},
        **(options | more),
    )


@pytest.mark.rule("10.21", "12.16")
@pytest.mark.parametrize("program", [PLAIN, WITHOUT_C], ids=["C modules", "without them"])
def test_a_command_with_and_without_the_modules_beneath(tmp_path: Path, program: str) -> None:
    """The whole way: socket, request, answer, exit code; and the claim of a name."""

    async def work(desk: Desk) -> None:
        async with desk.room.open("alice") as alice:
            process = await command(desk, "send", "alice", 'ä "x"', "--json", program=program)
            out, err = await process.communicate()
            assert (process.returncode, err) == (0, b"")
            assert json.loads(out)["status"] == "queued"
            assert [message.text for message in alice.drain()] == ['ä "x"']

    at_desk(tmp_path, work)


def test_without_the_modules_beneath_a_name_is_found_too(state: Path) -> None:
    program = WITHOUT_C.replace("code = ask.main(sys.argv[1:])", "print(ask.holder(*sys.argv[1:])); code = 0")
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(state), "BOB the 2nd"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout == f"{FIRST}\n"


@pytest.mark.rule("11.1", "11.4", "10.37")
def test_a_reader_that_has_gone_gives_everything_back(tmp_path: Path) -> None:
    """`postroom inbox --take | true`: the write fails, the exit code is 1, and the message waits, marked."""

    async def work(desk: Desk) -> None:
        arrives(desk, "one", "m-1")
        read_end, write_end = os.pipe()
        os.close(read_end)
        process = await command(desk, "inbox", "--take", stdout=write_end)
        os.close(write_end)
        _, err = await process.communicate()
        assert (process.returncode, err) == (1, b"")
        await until(desk.session.peek)
        assert [message.redelivered for message in desk.session.peek()] == [True]
        assert "consumed" not in states(desk.session, "m-1")

    at_desk(tmp_path, work)


@pytest.mark.rule("10.37", "10.4")
def test_an_interrupt_ends_the_waiting_with_130(tmp_path: Path) -> None:
    """Nothing is printed, nothing is taken, and the session notices that nobody waits any more."""

    async def work(desk: Desk) -> None:
        process = await command(desk, "wait")
        await until(lambda: desk.control._running)  # pyright: ignore[reportPrivateUsage]
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        assert (process.returncode, out, err) == (130, b"", b"")
        await until(lambda: not desk.control._running)  # pyright: ignore[reportPrivateUsage]
        arrives(desk, "one", "m-1")
        assert [message.redelivered for message in desk.session.peek()] == [False]

    at_desk(tmp_path, work)


@pytest.mark.rule("11.1", "11.4")
def test_a_command_that_is_killed_gives_everything_back(tmp_path: Path) -> None:
    """SIGKILL while it waits; the message that then comes was not handed to it."""

    async def work(desk: Desk) -> None:
        process = await command(desk, "inbox", "--follow")
        await until(lambda: desk.control._running)  # pyright: ignore[reportPrivateUsage]
        process.kill()
        await process.communicate()
        await until(lambda: not desk.control._running)  # pyright: ignore[reportPrivateUsage]
        arrives(desk, "one", "m-1")
        assert states(desk.session, "m-1") == ["received", "accepted"]

    at_desk(tmp_path, work)


@pytest.mark.rule("10.37")
def test_a_command_in_a_folder_that_has_gone(tmp_path: Path) -> None:
    """Where the caller stands does not matter."""

    async def work(desk: Desk) -> None:
        gone = tmp_path / "gone"
        gone.mkdir()
        program = f"import os; os.rmdir({str(gone)!r}); " + PLAIN
        process = await command(desk, "status", program=program, cwd=gone)
        out, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert b"bob" in out

    at_desk(tmp_path, work)


@pytest.mark.rule("10.21", "10.38")
@pytest.mark.parametrize(
    "argv",
    [[], ["--help"], ["open"], ["demo"], ["close"], ["nonsense"], ["--session", "x"], ["send", "--help"]],
)
def test_everything_else_is_left_to_the_whole_command_line(
    argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other commands, and any command where no session is meant."""
    monkeypatch.setattr(ask.posix, "environ", {b"POSTROOM_HOME": b"/nonexistent"})
    assert ask.main(argv) is None


@pytest.mark.rule("10.38")
def test_what_cannot_be_reached_is_left_to_the_whole_command_line(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens any more; a value in the environment that is no UTF-8."""
    monkeypatch.setattr(ask.posix, "environ", {b"POSTROOM_HOME": str(state).encode()})
    assert ask.main(["--session", FIRST, "status"]) is None
    monkeypatch.setattr(ask.posix, "environ", {b"POSTROOM_HOME": b"/\xff"})
    assert ask.main(["--session", FIRST, "status"]) is None
