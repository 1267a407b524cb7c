"""The verbs of the control socket, spoken by hand over a real one.

Whoever connects here writes and reads bytes as `ask` does; `tests/test_ask.py` has the command itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom import Receipt, Session
from postroom import control as control_module
from postroom.control import VERBS, Control, replies
from postroom.core.address import ref_of
from postroom.core.message import Message, Origin, Party
from postroom.door import Door
from postroom.transports.uds.listener import Listener
from tests.room import NOW, DurableStore, Line, Room, frame_of, states, texts
from tests.test_session import sent
from tests.transports.ends import run, turns, until

TOKEN, CHILD_TOKEN = "f" * 32, "e" * 32

TTY = 34_816
"""The device number of a terminal that the tests are taken to run in; 0 would be none."""


class Client:
    """The other end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.loop = asyncio.get_running_loop()
        self._buffer = b""

    async def say(self, *lines: object) -> None:
        """Writes lines: bytes as they are, anything else as JSON."""
        data = b"".join(
            line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines
        )
        await self.loop.sock_sendall(self.sock, data)

    async def ask(self, *argv: str, stdin: str | int | None = None, token: str = TOKEN) -> None:
        """Writes a whole request."""
        await self.say({"type": "auth", "token": token}, {"argv": list(argv), "stdin": stdin})

    async def _more(self) -> None:
        data = await self.loop.sock_recv(self.sock, 65536)
        if not data:
            raise EOFError
        self._buffer += data

    async def frame(self) -> tuple[str, int, str, str]:
        """Reads one frame: (kind, exit code, for stdout, for stderr). EOFError at the end."""
        while b"\n" not in self._buffer:
            await self._more()
        head, _, rest = self._buffer.partition(b"\n")
        kind, code, out, err = head.split()
        self._buffer = rest
        while len(self._buffer) < int(out) + int(err):
            await self._more()
        said, self._buffer = self._buffer[: int(out) + int(err)], self._buffer[int(out) + int(err) :]
        return kind.decode(), int(code), said[: int(out)].decode(), said[int(out) :].decode()

    async def taken(self) -> None:
        """Reads the frame that says the request was taken."""
        assert await self.frame() == ("part", 0, "", "")

    async def answer(
        self, *argv: str, stdin: str | int | None = None, token: str = TOKEN
    ) -> tuple[int, str, str]:
        """Asks, confirms what is to be confirmed, and returns (exit code, stdout, stderr)."""
        await self.ask(*argv, stdin=stdin, token=token)
        out = err = ""
        while True:
            kind, code, more, wrong = await self.frame()
            out, err = out + more, err + wrong
            if kind == "confirm":
                await self.say(b"ok\n")
            if kind == "done":
                await self.ended()
                return code, out, err

    async def ended(self) -> None:
        """The other end closes the connection, and says no more."""
        with pytest.raises(EOFError):
            await self.frame()

    def close(self) -> None:
        self.sock.close()


class Desk:
    """A session with its control socket, and whoever speaks on it."""

    def __init__(self, room: Room, session: Session, control: Control, path: str) -> None:
        self.room = room
        self.session = session
        self.control = control
        self.finished: list[bool] = []
        self.clients: list[Client] = []
        self._path = path

    async def client(self) -> Client:
        """Connects."""
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, self._path)
        self.clients.append(Client(sock))
        return self.clients[-1]

    async def answer(self, *argv: str, **more: Any) -> tuple[int, str, str]:
        """One command and what it prints."""
        client = await self.client()
        return await client.answer(*argv, **more)

    async def document(self, *argv: str, code: int = 0, **more: Any) -> dict[str, Any]:
        """One command with --json, which must end with this code."""
        got, out, err = await self.answer(*argv, "--json", **more)
        assert got == code, (out, err)
        return json.loads(out)


def nobody(pid: int, start: str) -> tuple[str, ...]:
    """Whose process that is: no session's."""
    return ()


@contextlib.asynccontextmanager
async def served(folder: Path, **options: Any) -> AsyncGenerator[Desk]:
    """bob, with his control socket in this folder; alice is in the room too."""
    folder.chmod(0o700)
    room = Room()
    path = str(folder / "1.ctl.sock")
    registered: Callable[[int, str], tuple[str, ...]] = options.pop("registered", nobody)
    closable = options.pop("closable", True)
    limit = options.pop("line_limit", 1_000_000)
    opened_by: str | None = options.pop("opened_by", None)
    tty: int = options.pop("tty", TTY)
    async with room.open("bob", **options) as bob:
        desk: Desk
        door = Door(
            client_token=TOKEN,
            child_token=CHILD_TOKEN,
            process=(0, ""),
            registered=registered,
            opened_by=opened_by,
        )
        control = Control(
            bob,
            door,
            finish=(lambda forget: desk.finished.append(forget)) if closable else None,
            terminal=lambda evidence: tty if evidence.pid == os.getpid() else 0,
        )
        desk = Desk(room, bob, control, path)
        listener = Listener(path, control, line_limit=limit)
        listener.start()
        try:
            yield desk
        finally:
            await control.stop()
            listener.close()
            for client in desk.clients:
                client.close()


def at_desk(tmp_path: Path, work: Callable[[Desk], Awaitable[None]], **options: Any) -> None:
    """Runs a test's coroutine at a served desk."""

    async def whole() -> None:
        async with served(tmp_path, **options) as desk:
            await work(desk)

    run(whole())


def arrives(desk: Desk, text: str, msg_id: str) -> None:
    """Puts a message into bob's inbox."""
    desk.session.arrive(frame_of(text, msg_id), Line())


# ── the lines ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.21")
def test_a_request_is_taken_at_once_answered_and_the_connection_closed(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        client = await desk.client()
        await client.ask("status", "--json")
        await client.taken()
        kind, code, out, err = await client.frame()
        assert (kind, code, err) == ("done", 0, "")
        assert json.loads(out)["name"] == "bob"
        await client.ended()

    at_desk(tmp_path, work)


@pytest.mark.rule("10.21")
def test_a_request_may_come_in_any_pieces(tmp_path: Path) -> None:
    """Byte by byte, with blank lines in between."""

    async def work(desk: Desk) -> None:
        client = await desk.client()
        for byte in b'\n{"type":"auth","token":"%s"}\n\n{"argv":["status"],"stdin":null}\n' % TOKEN.encode():
            await client.say(bytes([byte]))
        await client.taken()
        assert (await client.frame())[:2] == ("done", 0)

    at_desk(tmp_path, work)


@pytest.mark.rule("05.26", "05.20", "10.37")
@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "f"])
def test_a_wrong_token_is_refused_and_closes(tmp_path: Path, token: str) -> None:
    """In words, and as a document; nothing is done."""

    async def work(desk: Desk) -> None:
        arrives(desk, "secret", "m-1")
        code, out, err = await desk.answer("inbox", "--take", token=token)
        assert (code, out) == (1, "")
        assert err.splitlines()[0] == "not_your_session"
        assert "secret" not in err
        code, out, err = await desk.answer("inbox", "--take", "--json", token=token)
        assert (code, err) == (1, "not_your_session\n")
        assert json.loads(out)["error"]["code"] == "not_your_session"
        assert texts(desk.session.peek()) == ["secret"]

    at_desk(tmp_path, work)


@pytest.mark.rule("05.26")
def test_the_childs_token_admits_too(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        assert (await desk.answer("status", token=CHILD_TOKEN))[0] == 0

    at_desk(tmp_path, work)


@pytest.mark.rule("05.26")
def test_a_process_of_another_session_is_refused_with_the_right_token(tmp_path: Path) -> None:
    """Known by the evidence of the connection, which nobody can write."""

    def registered(pid: int, start: str) -> tuple[str, ...]:
        return ("another",) if pid == os.getpid() and start else ()

    async def work(desk: Desk) -> None:
        assert (await desk.answer("status"))[2].startswith("not_your_session\n")

    at_desk(tmp_path, work, registered=registered)


@pytest.mark.rule("11.14", "10.37")
@pytest.mark.parametrize(
    "line",
    [
        *(b"not json\n", b"{}\n", b'{"argv":[],"stdin":null}\n', b'{"argv":["status"]}\n'),
        *(b'{"argv":["status"],"stdin":{}}\n', b"\xff\xfe\n", b"[" * 5000 + b"\n"),
        b'{"argv":["send","bob","-"],"stdin":5}\n',
    ],
)
def test_a_malformed_request_costs_its_own_connection(tmp_path: Path, line: bytes) -> None:
    async def work(desk: Desk) -> None:
        client = await desk.client()
        await client.say({"type": "auth", "token": TOKEN}, line)
        kind, code, _, err = await client.frame()
        assert (kind, code) == ("done", 2)
        assert err.startswith("usage\n")
        await client.ended()
        assert (await desk.answer("status"))[0] == 0

    at_desk(tmp_path, work)


@pytest.mark.rule("11.14", "11.10")
def test_a_request_without_end_is_cut_off(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        client = await desk.client()
        await client.say({"type": "auth", "token": TOKEN}, b"x" * 2001)
        await client.ended()
        assert desk.session.counts == {"control-too-long": 1}
        assert (await desk.answer("status"))[0] == 0

    at_desk(tmp_path, work, line_limit=2000)


@pytest.mark.rule("11.14")
def test_one_connection_has_one_request(tmp_path: Path) -> None:
    """What follows is a word about printing, which this command does not need; it is answered once."""

    async def work(desk: Desk) -> None:
        client = await desk.client()
        await client.ask("status")
        await client.say({"argv": ["rename", "robert"], "stdin": None}, b"ok\n")
        await client.taken()
        assert (await client.frame())[0] == "done"
        await client.ended()
        assert desk.session.name == "bob"

    at_desk(tmp_path, work)


@pytest.mark.rule("11.14")
def test_a_connection_that_says_nothing_or_goes_away_disturbs_nobody(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        silent, half = await desk.client(), await desk.client()
        await half.say(b'{"type":"auth"')
        half.close()
        gone = await desk.client()
        await gone.say({"type": "auth", "token": TOKEN})
        gone.close()
        assert (await desk.answer("status"))[0] == 0
        silent.close()

    at_desk(tmp_path, work)


@pytest.mark.rule("11.14")
@pytest.mark.parametrize(
    "argv", [["\ud800"], ["status", "\udcff"], ["send", "b\ud800b", "x"], ["send", "bob", "\ud800"]]
)
def test_what_has_no_utf8_form_is_answered_all_the_same(tmp_path: Path, argv: list[str]) -> None:
    """Half a surrogate pair, as JSON can write it and no output can carry it."""

    async def work(desk: Desk) -> None:
        client = await desk.client()
        await client.say({"type": "auth", "token": "\ud800"}, b"{}\n")
        assert (await client.frame())[3].startswith("not_your_session")
        code, _, err = await desk.answer(*argv)
        assert code in (1, 2, 3)
        assert err

    at_desk(tmp_path, work)


@pytest.mark.rule("10.37")
def test_help_and_usage(tmp_path: Path) -> None:
    """`--help` right behind the command; a mistake ends with 2, its code and how to do it."""

    async def work(desk: Desk) -> None:
        code, out, err = await desk.answer("send", "--help")
        assert (code, err) == (0, "")
        assert out.startswith("usage: postroom send")
        code, out, err = await desk.answer("send", "bob", "--frobnicate")
        assert (code, out) == (2, "")
        assert err.startswith("usage\npostroom: ")
        assert (await desk.document("sned", code=2))["error"]["hint"] == "Did you mean `send`?"
        assert (await desk.document("demo", code=2))["error"]["code"] == "usage"

    at_desk(tmp_path, work)


@pytest.mark.rule("10.37", "05.27")
def test_what_a_verb_raises_is_its_answer(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        arrives(desk, "one", "m-1")
        store: Any = desk.session.store
        store.failing = "broken"
        assert (await desk.document("inbox", "--take", code=1))["error"]["code"] == "store_failed"
        store.failing = ""
        assert (await desk.document("rename", "a/b", code=1))["error"]["code"] == "invalid_name"
        assert texts(desk.session.peek()) == ["one"]

    at_desk(tmp_path, work)


# ── taking ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("11.1", "10.25")
def test_messages_are_consumed_once_they_are_printed(tmp_path: Path) -> None:
    """Sent, not yet confirmed: leased. Confirmed: consumed. Then the answer ends."""

    async def work(desk: Desk) -> None:
        arrives(desk, "one", "m-1")
        client = await desk.client()
        await client.ask("inbox", "--take", "--json")
        await client.taken()
        kind, _, out, _ = await client.frame()
        assert kind == "confirm"
        assert [message["text"] for message in json.loads(out)["messages"]] == ["one"]
        await turns()
        assert states(desk.session, "m-1")[-1] == "leased"
        await client.say(b"ok\n")
        assert (await client.frame())[:2] == ("done", 0)
        assert states(desk.session, "m-1")[-1] == "consumed"
        await client.ended()

    at_desk(tmp_path, work)


@pytest.mark.rule("11.1", "11.4")
def test_a_close_without_a_word_gives_everything_back_at_once(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        arrives(desk, "one", "m-1")
        client = await desk.client()
        await client.ask("inbox", "--take")
        await client.taken()
        assert (await client.frame())[0] == "confirm"
        client.close()
        await until(desk.session.peek)
        [again] = desk.session.peek()
        assert (again.text, again.redelivered) == ("one", True)

    at_desk(tmp_path, work)


@pytest.mark.rule("11.1")
@pytest.mark.parametrize("word", [b"no\n", b"OK\n", b'"ok"\n'])
def test_any_other_word_gives_everything_back(tmp_path: Path, word: bytes) -> None:
    """The command then ends with 1: it did not print what it took."""

    async def work(desk: Desk) -> None:
        arrives(desk, "one", "m-1")
        client = await desk.client()
        await client.ask("inbox", "--take")
        await client.taken()
        await client.frame()
        await client.say(word)
        assert (await client.frame())[:2] == ("done", 1)
        assert [message.redelivered for message in desk.session.peek()] == [True]

    at_desk(tmp_path, work)


@pytest.mark.rule("11.1")
def test_a_word_that_comes_before_the_messages_does_not_count(tmp_path: Path) -> None:
    """Nobody has printed what has not been sent."""

    async def work(desk: Desk) -> None:
        arrives(desk, "one", "m-1")
        client = await desk.client()
        await client.ask("inbox", "--take")
        await client.say(b"ok\n")
        await client.taken()
        assert (await client.frame())[0] == "confirm"
        await turns()
        assert states(desk.session, "m-1")[-1] == "leased"
        await client.say(b"ok\n", b"no\n")
        assert (await client.frame())[:2] == ("done", 0)
        assert states(desk.session, "m-1")[-1] == "consumed"

    at_desk(tmp_path, work)


@pytest.mark.rule("11.1")
def test_what_one_holds_another_does_not_get(tmp_path: Path) -> None:
    """Two take at the same time: the message is handed to one; when that goes, the other one has it."""

    async def work(desk: Desk) -> None:
        arrives(desk, "one", "m-1")
        first = await desk.client()
        await first.ask("inbox", "--take")
        await first.taken()
        await first.frame()
        assert (await desk.document("inbox", "--take"))["messages"] == []
        second = await desk.client()
        await second.ask("wait", "--json")
        await second.taken()
        first.close()
        _, _, out, _ = await second.frame()
        assert [message["redelivered"] for message in json.loads(out)["messages"]] == [True]

    at_desk(tmp_path, work)


@pytest.mark.rule("10.3", "10.37")
def test_looking_takes_nothing_and_an_empty_inbox_is_no_failure(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        assert await desk.answer("inbox") == (0, "Nothing waits.\n", "")
        assert await desk.document("inbox", "--take") == {"messages": [], "notices": []}
        arrives(desk, "one", "m-1")
        for _ in range(2):
            assert [m["text"] for m in (await desk.document("inbox"))["messages"]] == ["one"]
        code, out, _ = await desk.answer("inbox")
        assert code == 0
        assert "postroom --session bob inbox --take" in out

    at_desk(tmp_path, work)


@pytest.mark.rule("10.3", "11.1")
def test_following_prints_messages_as_they_come(tmp_path: Path) -> None:
    """Each is consumed once it was printed; the one that was not goes back when the command ends."""

    async def work(desk: Desk) -> None:
        client = await desk.client()
        await client.ask("inbox", "--follow", "--json")
        await client.taken()
        for number in range(3):
            arrives(desk, f"text {number}", f"m-{number}")
            kind, _, out, _ = await client.frame()
            assert kind == "confirm"
            assert [message["text"] for message in json.loads(out)["messages"]] == [f"text {number}"]
            if number < 2:
                await client.say(b"ok\n")
        client.close()
        await until(desk.session.peek)
        assert [message.text for message in desk.session.peek()] == ["text 2"]
        assert states(desk.session, "m-1")[-1] == "consumed"

    at_desk(tmp_path, work)


@pytest.mark.rule("10.3", "11.1")
def test_following_stops_where_the_printing_stops(tmp_path: Path) -> None:
    """What was not printed is not offered again and again to the one who cannot."""

    async def work(desk: Desk) -> None:
        arrives(desk, "one", "m-1")
        client = await desk.client()
        await client.ask("inbox", "--follow")
        await client.taken()
        await client.frame()
        await client.say(b"no\n")
        assert (await client.frame())[:2] == ("done", 1)
        await client.ended()
        assert states(desk.session, "m-1").count("leased") == 1

    at_desk(tmp_path, work)


@pytest.mark.rule("10.4", "10.37")
def test_waiting_takes_what_comes_and_ends_with_3_when_nothing_does(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        assert await desk.document("wait", "--timeout", "0", code=3) == {"messages": [], "notices": []}
        assert await desk.answer("wait", "--timeout", "0") == (3, "Nothing came.\n", "")
        waiting = asyncio.create_task(desk.document("wait", "--timeout", "30"))
        await turns()
        arrives(desk, "one", "m-1")
        assert [message["text"] for message in (await waiting)["messages"]] == ["one"]
        assert states(desk.session, "m-1")[-1] == "consumed"

    at_desk(tmp_path, work)


@pytest.mark.rule("10.4", "11.1", "11.10")
def test_a_command_that_goes_away_waits_no_longer(tmp_path: Path) -> None:
    """What comes after it was for somebody else, and is not marked as handed out."""

    async def work(desk: Desk) -> None:
        client = await desk.client()
        await client.ask("wait")
        await client.taken()
        client.close()
        await until(lambda: not desk.control._running)  # pyright: ignore[reportPrivateUsage]
        arrives(desk, "one", "m-1")
        await turns()
        assert states(desk.session, "m-1") == ["received", "accepted"]
        assert [message.redelivered for message in desk.session.peek()] == [False]

    at_desk(tmp_path, work)


@pytest.mark.rule("11.1", "10.9")
def test_the_end_of_the_session_ends_every_request(tmp_path: Path) -> None:
    """Whoever waits is let go without an answer; what was leased waits again."""

    async def work(desk: Desk) -> None:
        arrives(desk, "one", "m-1")
        holding, waiting = await desk.client(), await desk.client()
        await holding.ask("inbox", "--take")
        await holding.taken()
        await holding.frame()
        await waiting.ask("wait")
        await waiting.taken()
        await desk.control.stop()
        await holding.ended()
        await waiting.ended()
        assert [message.redelivered for message in desk.session.peek()] == [True]

    at_desk(tmp_path, work)


@pytest.mark.rule("11.1")
def test_the_control_socket_closes_without_waiting_for_those_who_listen(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        client = await desk.client()
        await client.ask("inbox", "--follow")
        await client.taken()
        await desk.session.close()
        assert (await client.frame())[:2] == ("done", 0)
        assert (await desk.document("inbox", code=1))["error"]["code"] == "session_closed"

    at_desk(tmp_path, work)


# ── sending ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.2", "10.23", "01.31")
def test_sending(tmp_path: Path) -> None:
    """The result as a document and in words; the default summary; the text byte for byte."""

    async def work(desk: Desk) -> None:
        async with desk.room.open("alice") as alice:
            document = await desk.document("send", "alice", "first line\n\n  rest", "--in-reply-to", "m-7")
            assert document["status"] == "queued"
            assert document["to"]["name"] == "alice"
            assert "m-7" in document["warnings"][0]
            code, out, err = await desk.answer("send", "alice", "x", "--summary", "given", "--msg-id", "m-9")
            assert (code, err) == (0, "")
            assert out.startswith("queued: ")
            assert "id m-9, to alice [" in out
            first, second = alice.drain()
            assert (first.summary, first.text, first.in_reply_to) == (
                "first line",
                "first line\n\n  rest",
                "m-7",
            )
            assert (second.summary, second.msg_id) == ("given", "m-9")

    at_desk(tmp_path, work)


@pytest.mark.rule("10.2")
@pytest.mark.parametrize(
    ("stdin", "text"),
    [("hello\n", "hello"), ("hello\n\n", "hello\n"), (" \thello", " \thello"), ("a\r\n", "a\r"), ("-", "-")],
)
def test_standard_input_is_the_text_but_for_one_final_newline(tmp_path: Path, stdin: str, text: str) -> None:
    async def work(desk: Desk) -> None:
        async with desk.room.open("alice") as alice:
            await desk.document("send", "alice", "-", "--summary", "s", stdin=stdin)
            assert texts(alice.drain()) == [text]

    at_desk(tmp_path, work)


@pytest.mark.rule("01.19", "01.12", "10.2")
def test_a_standard_input_that_is_too_large_or_empty(tmp_path: Path) -> None:
    """One that was not even handed over is refused with its size; an empty one is no message."""

    async def work(desk: Desk) -> None:
        async with desk.room.open("alice") as alice:
            error = (await desk.document("send", "alice", "-", stdin=20_000_000, code=1))["error"]
            assert (error["code"], "20,000,000" in error["message"]) == ("message_too_large", True)
            for stdin in ("", "\n", None):
                error = (await desk.document("send", "alice", "-", stdin=stdin, code=1))["error"]
                assert error["code"] == "message_missing"
            assert alice.peek() == []

    at_desk(tmp_path, work)


@pytest.mark.rule("10.2")
def test_a_dash_behind_the_bare_dashes_is_a_text(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        async with desk.room.open("alice") as alice:
            assert (await desk.answer("send", "alice", "--", "-"))[0] == 0
            assert texts(alice.drain()) == ["-"]

    at_desk(tmp_path, work)


@pytest.mark.rule("10.23", "10.37", "01.30")
@pytest.mark.parametrize(
    ("to", "code", "ends"),
    [("nobody", "not_found", 3), ("api", "ambiguous", 4), ("*", "broadcast_unsupported", 1)],
)
def test_a_refusal_names_candidates_and_ends_with_its_code(
    tmp_path: Path, to: str, code: str, ends: int
) -> None:
    async def work(desk: Desk) -> None:
        async with desk.room.open("api-worker"), desk.room.open("api-writer"):
            error = (await desk.document("send", to, "x", code=ends))["error"]
            assert error["code"] == code
            names = [near["name"] for near in error["candidates"]]
            assert names == (["api-worker", "api-writer"] if code == "ambiguous" else [])
            got, out, err = await desk.answer("send", to, "x")
            assert (got, out, err.splitlines()[0]) == (ends, "", code)
            assert err.count("api-w") >= len(names)

    at_desk(tmp_path, work)


@pytest.mark.rule("10.22", "11.1")
def test_waiting_for_a_reply(tmp_path: Path) -> None:
    """The answer is printed and consumed; what else came stays."""

    async def work(desk: Desk) -> None:
        async with desk.room.open("alice") as alice:
            asking = asyncio.create_task(desk.document("send", "alice", "ready?", "--wait-reply", "30"))
            await until(alice.peek)
            [question] = alice.drain()
            await sent(alice, "bob", "to another question", in_reply_to="m-0")
            await sent(alice, "bob", "yes", in_reply_to=question.msg_id)
            document = await asking
            assert (document["status"], document["reply"]["text"]) == ("queued", "yes")
            assert texts(desk.session.peek()) == ["to another question"]

    at_desk(tmp_path, work)


@pytest.mark.rule("10.22", "10.37")
def test_waiting_for_a_reply_in_words_and_in_vain(tmp_path: Path) -> None:
    """The receipt is printed before the waiting; out of time is 3, with a null in the document."""

    async def work(desk: Desk) -> None:
        async with desk.room.open("alice"):
            client = await desk.client()
            await client.ask("send", "alice", "ready?", "--wait-reply", "0")
            await client.taken()
            kind, _, out, _ = await client.frame()
            assert (kind, out.startswith("queued: ")) == ("part", True)
            assert await client.frame() == ("done", 3, "No answer within 0 seconds.\n", "")
            document = await desk.document("send", "alice", "again?", "--wait-reply", "0", code=3)
            assert (document["status"], document["reply"]) == ("queued", None)

    at_desk(tmp_path, work)


@pytest.mark.rule("10.22")
def test_a_reply_that_another_reader_took_is_shown_all_the_same(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        async with desk.room.open("alice") as alice:
            asking = asyncio.create_task(desk.document("send", "alice", "ready?", "--wait-reply", "30"))
            await until(alice.peek)
            await turns()
            reply = frame_of("yes", "m-1", address=alice.address, name="alice")
            desk.session.arrive(reply, desk.room.line_from(alice))
            assert texts(desk.session.drain()) == ["yes"]  # in the step in which it came
            assert (await asking)["reply"]["text"] == "yes"
            assert desk.session.peek() == []

    at_desk(tmp_path, work)


@pytest.mark.rule("10.22", "03.8")
def test_what_another_sent_under_the_id_of_the_reply_is_not_lost(tmp_path: Path) -> None:
    """Ids are each sender's own: the reply is shown, the other message stays."""

    async def work(desk: Desk) -> None:
        async with desk.room.open("alice") as alice:
            arrives(desk, "from a stranger", "same-id")
            asking = asyncio.create_task(desk.document("send", "alice", "ready?", "--wait-reply", "30"))
            await until(alice.peek)
            await sent(alice, "bob", "yes", msg_id="same-id")
            assert (await asking)["reply"]["text"] == "yes"
            assert texts(desk.session.peek()) == ["from a stranger", "yes"]

    at_desk(tmp_path, work)


@pytest.mark.rule("10.22", "11.1")
def test_a_reply_that_cannot_be_printed_goes_back(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        async with desk.room.open("alice") as alice:
            client = await desk.client()
            await client.ask("send", "alice", "ready?", "--wait-reply", "30", "--json")
            await client.taken()
            await until(alice.peek)
            await sent(alice, "bob", "yes")
            assert (await client.frame())[0] == "confirm"
            client.close()
            await until(desk.session.peek)
            assert [message.redelivered for message in desk.session.peek()] == [True]

    at_desk(tmp_path, work)


@pytest.mark.rule("05.23", "01.31")
def test_an_unknown_outcome_ends_with_1_and_waits_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(desk: Desk) -> None:
        async with desk.room.open("alice"):
            monkeypatch.setattr(desk.room.hub, "carry", lambda target, line, channel: channel.close())  # pyright: ignore
            document = await desk.document("send", "alice", "x", "--wait-reply", "30", code=1)
            assert document["status"] == "unknown"
            assert "reply" not in document

    at_desk(tmp_path, work)


SENT = Receipt(status="queued", msg_id="m-1", to=Party(name="bob", ref=ref_of("bob-id")), note="n")


@pytest.mark.rule("10.22")
@given(
    st.sampled_from(["bob-id", "other-id"]),
    st.booleans(),
    st.sampled_from([None, "m-1", "m-2"]),
    st.integers(-2, 2),
)
def test_which_message_is_the_reply(identity: str, verified: bool, answers: str | None, later: int) -> None:
    """From that identity, verified; naming the message, or naming none and not older than it."""
    origin = Origin(kind="peer", identity=identity, verified=verified, name="bob")
    message = Message(msg_id="r", text="t", origin=origin, received_at=NOW + later, in_reply_to=answers)
    expected = identity == "bob-id" and verified and (answers == "m-1" or (answers is None and later >= 0))
    assert replies(SENT, NOW)(message) is expected


# ── the other verbs ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.6", "10.27", "10.30")
def test_status(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        arrives(desk, "one", "m-1")
        document = await desk.document("status")
        assert (document["name"], document["queued"], document["held"], document["off"]) == ("bob", 1, 0, [])
        assert document["inbound"] == {"value": None, "scope": "default"}
        code, out, _ = await desk.answer("status")
        assert code == 0
        assert f"bob [{desk.session.ref}]" in out

    at_desk(tmp_path, work)


@pytest.mark.rule("10.7", "02.3", "10.29")
def test_rename(tmp_path: Path) -> None:
    """The new name; a variant is said, and a name in another form of writing is none."""

    async def work(desk: Desk) -> None:
        async with desk.room.open("alice"):
            assert await desk.answer("rename", "robert") == (0, "bob is now robert.\n", "")
            assert await desk.answer("rename", "ｒｏｂ") == (0, "robert is now rob.\n", "")
            code, out, _ = await desk.answer("rename", "alice")
            assert (code, out) == (0, "rob is now alice-2.\nA live session has the name alice.\n")
            assert (await desk.document("rename", "bob"))["name"] == "bob"

    at_desk(tmp_path, work)


@pytest.mark.rule("10.9", "10.29")
@pytest.mark.parametrize("forget", [False, True])
def test_close_answers_and_then_ends_the_session(tmp_path: Path, forget: bool) -> None:
    async def work(desk: Desk) -> None:
        document = await desk.document("close", *(["--forget"] if forget else []))
        assert document == {"session_id": desk.session.id, "expired": 0}
        assert desk.finished == [forget]
        assert (await desk.answer("close"))[1] == "bob has ended.\n"

    at_desk(tmp_path, work)


@pytest.mark.rule("10.9")
def test_close_does_not_end_what_a_command_or_a_program_holds(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        assert (await desk.document("close", code=1))["error"]["code"] == "session_in_use"
        assert desk.finished == []

    at_desk(tmp_path, work, closable=False)


@pytest.mark.rule("10.1", "10.24", "01.29")
def test_list(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        async with desk.room.open("alice"), desk.room.open("carol"):
            document = await desk.document("list")
            assert document["self"]["name"] == "bob"
            assert [row["name"] for row in document["rows"]] == ["alice", "carol"]
            document = await desk.document("list", "CAR", "--kind", "session", "--limit", "1")
            assert [row["name"] for row in document["rows"]] == ["carol"]
            assert (await desk.document("peers", "--limit", "1"))["left_out"] == 1
            code, out, _ = await desk.answer("list")
            assert code == 0
            assert out.startswith("This session is bob [")

    at_desk(tmp_path, work)


@pytest.mark.rule("10.1")
def test_watching_prints_the_list_when_it_changed_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "WATCH_SECONDS", 0)

    async def work(desk: Desk) -> None:
        looks: list[int] = []
        rows = desk.session.directory.rows

        def looked() -> Any:
            looks.append(1)
            return rows()

        monkeypatch.setattr(desk.session.directory, "rows", looked)
        client = await desk.client()
        await client.ask("list", "--watch", "--json")
        await client.taken()
        assert json.loads((await client.frame())[2])["rows"] == []
        await until(lambda: len(looks) > 5)
        async with desk.room.open("alice"):
            kind, _, out, _ = await client.frame()
            assert (kind, [row["name"] for row in json.loads(out)["rows"]]) == ("part", ["alice"])
        assert json.loads((await client.frame())[2])["rows"] == []
        client.close()
        await until(lambda: not desk.control._running)  # pyright: ignore[reportPrivateUsage]

    at_desk(tmp_path, work)


@pytest.mark.rule("10.12", "10.28", "10.37")
def test_trace(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        arrives(desk, "one", "m-1")
        document = await desk.document("trace", "m-1")
        assert [step["state"] for step in document["steps"]] == ["received", "accepted"]
        assert document["steps"][0]["at"] == "2026-11-30T10:15:02.123Z"
        assert (await desk.answer("trace", "m-1", "--mermaid"))[1].startswith("sequenceDiagram\n")
        assert "accepted" in (await desk.answer("trace", "m-1"))[1]
        assert (await desk.document("trace", "m-2", code=3))["error"]["code"] == "unknown_message"

    at_desk(tmp_path, work)


@pytest.mark.rule("10.13", "10.37")
def test_log(tmp_path: Path) -> None:
    """By text, peer, time and number; nothing found is 3."""

    async def work(desk: Desk) -> None:
        arrives(desk, "the column is tenant_id", "m-1")
        desk.room.now += 60_000
        arrives(desk, "something else", "m-2")

        async def ids(*argv: str, code: int = 0) -> list[str]:
            rows = (await desk.document("log", *argv, code=code))["rows"]
            return list(dict.fromkeys(row["msg_id"] for row in rows))

        assert await ids() == ["m-1", "m-2"]
        assert await ids("tenant_id") == ["m-1"]
        assert await ids("--since", "10s") == ["m-2"]
        assert await ids("--until", "10s") == ["m-1"]
        assert await ids("--limit", "1") == ["m-2"]
        assert await ids("--peer", "process:4000:stranger") == ["m-1", "m-2"]
        assert await ids("--peer", "nobody", code=3) == []
        assert await desk.answer("log", "no such words") == (3, "Nothing found.\n", "")
        assert (await desk.document("log", "--since", "yesterday", code=2))["error"]["code"] == "usage"
        assert "tenant_id" not in (await desk.answer("log"))[1]

    at_desk(tmp_path, work)


@pytest.mark.rule("10.13")
def test_following_the_log_prints_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First what there is, then each step once; also where the search found nothing at first."""
    monkeypatch.setattr(control_module, "WATCH_SECONDS", 0)

    async def work(desk: Desk) -> None:
        async def next_ids(client: Client) -> list[str]:
            return [row["msg_id"] for row in json.loads((await client.frame())[2])["rows"]]

        arrives(desk, "old", "m-0")
        desk.room.now += 60_000
        everything, recent, few = [await desk.client() for _ in range(3)]
        await everything.ask("log", "--follow", "--json")
        await recent.ask("log", "--since", "10s", "--follow", "--json")
        await few.ask("log", "wanted", "--limit", "1", "--follow", "--json")
        for client in (everything, recent, few):
            await client.taken()
        assert await next_ids(everything) == ["m-0", "m-0"]
        await turns(100)
        arrives(desk, "wanted", "m-1")
        arrives(desk, "else", "m-2")
        assert await next_ids(everything) == ["m-1", "m-1", "m-2", "m-2"]
        assert await next_ids(recent) == ["m-1", "m-1", "m-2", "m-2"]
        assert [await next_ids(few), await next_ids(few)] == [["m-1"], ["m-1"]]
        arrives(desk, "wanted too", "m-3")
        assert [await next_ids(few), await next_ids(few)] == [["m-3"], ["m-3"]]

    at_desk(tmp_path, work)


def test_every_verb_is_served_and_documented() -> None:
    assert {name for name in VERBS if not VERBS[name].__doc__} == set()


@pytest.mark.rule("05.27", "11.1")
def test_over_a_store_that_commits_in_its_own_time(tmp_path: Path) -> None:
    """Taken in the step of the arrival: committed, acknowledged, handed out."""
    store = DurableStore()

    async def work(desk: Desk) -> None:
        line = Line(log=store.events)
        desk.session.arrive(frame_of("one", "m-1"), line)
        document = await desk.document("inbox", "--take")
        assert [message["text"] for message in document["messages"]] == ["one"]
        assert line.statuses == ["queued"]

    at_desk(tmp_path, work, store=store)
