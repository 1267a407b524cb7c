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

TOKEN = "f" * 32


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
    async with room.open("bob", **options) as bob:
        desk: Desk
        door = Door(client_token=TOKEN, child_token="e" * 32, process=(0, ""), registered=registered)
        control = Control(
            bob, door, finish=(lambda forget: desk.finished.append(forget)) if closable else None
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


@pytest.mark.rule("10.21", "11.14")
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
        assert (await desk.answer("status", token="e" * 32))[0] == 0

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
