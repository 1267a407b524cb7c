"""A session that answers as none should: its client's turn is not failed, and nothing half is printed (09.12)."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.desk import SECONDS, Done
from tests.posing import Posed
from tests.strangers import private_desk

TOKEN = "0123456789abcdef0123456789abcdef"
SESSION = "broken-session"


class Stub:
    """In a session's place: reads the request, says these bytes, and closes."""

    def __init__(self, path: str, says: bytes) -> None:
        self.heard = b""
        self._says = says
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        os.chmod(path, 0o600)
        self._listener.listen(4)
        self._listener.settimeout(SECONDS)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(SECONDS)
            while self.heard.count(b"\n") < 2 and (more := connection.recv(65536)):
                self.heard += more
            connection.sendall(self._says)
            connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                while more := connection.recv(65536):
                    self.heard += more

    def close(self) -> None:
        """Waits for its end."""
        self._thread.join(SECONDS)
        self._listener.close()


def private(path: Path, text: str) -> None:
    """Writes a file that is this user's alone."""
    path.write_text(text)
    path.chmod(0o600)


@contextlib.contextmanager
def broken(says: bytes) -> Generator[tuple[Posed, Stub, Path]]:
    """A posed client, what stands in its session's place, and the log of that."""
    with private_desk() as desk:
        posed = Posed(desk)
        start = Path(f"/proc/{posed.pid}/stat").read_text().rpartition(")")[2].split()[19]
        sessions = Path(desk.environ["POSTROOM_HOME"]) / "sessions"
        folder = sessions / SESSION
        folder.mkdir(parents=True, mode=0o700)
        for each in (sessions.parent, sessions):
            each.chmod(0o700)
        path = str(desk.folder / "b.sock")
        private(sessions / f"client-{posed.pid}-{start}", f"{SESSION}\n")
        private(folder / "client.token", f"{TOKEN}\n{path}\n")
        stub = Stub(path, says)
        try:
            yield posed, stub, folder / "log"
        finally:
            posed.kill()
            stub.close()


ANSWERS = {
    "nothing": (b"", ""),
    "taken, then nothing": (b"part 0 0 0\n", ""),
    "half a head": (b"part 0 0 0\nconfi", ""),
    "half a text": (b"part 0 0 0\nconfirm 0 100 0\n" + b"x" * 50, ""),
    "no frame": (b"hello there\n", ""),
    "no number": (b"part 0 0 0\nconfirm 0 many 0\n", ""),
    "a text without an end": (b"part 0 0 0\nconfirm 0 99999999999999 0\nx", ""),
    "another kind": (b"part 0 0 0\nsurprise 0 3 0\nabcdone 7 0 0\n", ""),
    "bytes that are no text": (b"\xff\xfe\n\x00", ""),
    "another exit code": (b"part 0 0 0\ndone 2 0 0\n", ""),
    "output that is not to be confirmed": (b"part 0 3 0\nabcdone 0 3 0\nabc", ""),
    "an error": (b"part 0 0 0\ndone 1 0 30\nnot_your_session\npostroom: no\n", ""),
    "an answer without an end": (b"part 0 0 0\nconfirm 0 2 0\n{}", "{}"),
}


@pytest.mark.rule("09.12")
@pytest.mark.parametrize("what", list(ANSWERS))
def test_whatever_the_session_answers_the_turn_goes_on(what: str) -> None:
    says, printed = ANSWERS[what]
    with broken(says) as (posed, _, log):
        assert posed.hook("PostToolUse") == Done(0, printed, "")
        quiet = ("another exit code", "output that is not to be confirmed", "another kind")
        assert (log.exists() and log.read_text() != "") == (what not in quiet)


@pytest.mark.rule("09.12")
def test_why_a_session_refused_is_logged() -> None:
    with broken(b"part 0 0 0\ndone 1 0 30\nnot_your_session\npostroom: no\n") as (posed, _, log):
        posed.hook("PostToolUse")
        assert log.read_text().endswith("hook claude-code PostToolUse: not_your_session\n")
        assert TOKEN not in log.read_text()


@pytest.mark.rule("11.1", "09.12")
def test_only_what_was_printed_is_confirmed() -> None:
    with broken(b"part 0 0 0\nconfirm 0 2 0\n{}done 0 0 0\n") as (posed, stub, _):
        assert posed.hook("PostToolUse") == Done(0, "{}", "")
        stub.close()
        assert stub.heard.endswith(b"\nok\n")
    with broken(b"part 0 0 0\nconfirm 0 2 0\n{}") as (posed, stub, _):
        assert posed.hook("PostToolUse", closed=True) == Done(0, "", "")
        stub.close()
        assert not stub.heard.endswith(b"ok\n")


@pytest.mark.rule("09.12")
def test_mail_that_was_shown_wakes_even_where_the_session_ends_in_that_moment() -> None:
    with broken(b"part 0 0 0\nconfirm 0 5 0\nhello") as (posed, _, _):
        assert posed.hook("wake") == Done(2, "", "hello")
    with broken(b"part 0 0 0\ndone 0 0 0\n") as (posed, _, _):
        assert posed.hook("wake") == Done(0, "", "")
