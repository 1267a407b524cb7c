"""What the tests of hostile and foreign parties share: a desk for a whole module, raw connections, other users.

A raw connection speaks the wire with the plain `json` and `socket` modules, so that it can say what no program of ours
would. Another user is a forked child that has given up its rights; it runs what it is handed and answers in JSON.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import traceback
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.desk import COMMAND, SECONDS, Desk, Done, running, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

OTHER_UID = 65534
"""Another user of this machine; `nobody` on most."""

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can become another user, or make namespaces"
)
"""CI runs as root; a person's own run says that it left these out."""


def _may_unshare() -> bool:
    """Whether this user may make user namespaces; some systems leave that to root."""
    try:
        return subprocess.run(["unshare", "--user", "true"], stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


needs_user_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 and not _may_unshare(), reason="this system lets root alone make user namespaces"
)


# ── a place for a module ─────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def private_desk() -> Generator[Desk]:
    """A desk in a private place, for as long as the block runs; whatever it opened has ended afterwards.

    The place lies directly under /tmp, because the path of a Unix socket is short.
    """
    folder = Path(tempfile.mkdtemp(prefix="pr-", dir="/tmp"))
    (folder / "run").mkdir(mode=0o700)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}
    environ |= {
        "POSTROOM_HOME": str(folder / "state"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "CLAUDE_CONFIG_DIR": str(folder / "claude"),
        "QWEN_HOME": str(folder / "qwen"),
    }
    desk = Desk(folder, environ)
    try:
        yield desk
    finally:
        desk.leave()
        for session in desk.opened.values():
            wait_until(lambda pid=session["pid"]: not running(pid))
        shutil.rmtree(folder, ignore_errors=True)


# ── what lies there ──────────────────────────────────────────────────────────────────────────────

Shot = dict[str, tuple[object, ...]]


def snapshot(*places: Path, skip: Path | None = None) -> Shot:
    """What lies below some places: path → what it is, its owner, mode and size, its last change, and its inode.

    Args:
        places: files or folders; one that is missing is left out.
        skip: a folder that is not looked into, nor at.
    """
    shot: Shot = {}
    for place in places:
        for folder, folders, names in os.walk(place):
            if skip is not None:
                folders[:] = [name for name in folders if Path(folder, name) != skip]
            for name in (*folders, *names):
                _look(Path(folder, name), shot)
        if os.path.lexists(place):
            _look(place, shot)
    return shot


def _look(path: Path, shot: Shot) -> None:
    found = path.lstat()
    target = os.readlink(path) if stat.S_ISLNK(found.st_mode) else ""
    shot[str(path)] = (found.st_mode, found.st_uid, found.st_size, found.st_mtime_ns, found.st_ino, target)


# ── raw connections ──────────────────────────────────────────────────────────────────────────────


class Raw:
    """A connection to a Unix socket that says whatever it is told to."""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(path)
        self._heard = b""

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *error: object) -> None:
        self.sock.close()

    def say(self, *lines: object) -> None:
        """Writes lines; what is no bytes is written as JSON."""
        self.sock.sendall(b"".join(as_line(line) for line in lines))

    def half(self, data: bytes) -> None:
        """Writes bytes without a newline."""
        self.sock.sendall(data)

    def push(self, data: bytes) -> None:
        """Writes bytes that the other end may not want to the last."""
        with contextlib.suppress(ConnectionError):
            self.sock.sendall(data)

    def hear(self) -> dict[str, Any]:
        """The next line that the other end says; the connection must not have ended."""
        while b"\n" not in self._heard:
            data = self.sock.recv(65536)
            assert data, f"the connection ended after {self._heard!r}"
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def rest(self) -> bytes:
        """Everything that the other end says until it ends the connection, by whatever means."""
        with contextlib.suppress(ConnectionError):
            while data := self.sock.recv(65536):
                self._heard += data
        return self._heard

    def flood(self, piece: bytes, most: int) -> int:
        """Writes a piece again and again until the other end has had enough; returns how many bytes went out."""
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < most:
                sent += self.sock.send(piece)
        return sent

    def post(self, text: str, **fields: Any) -> dict[str, Any]:
        """Sends one message and returns the acknowledgement."""
        self.say(frame(text, **fields))
        return self.hear()


def as_line(line: object) -> bytes:
    """One line with its newline; what is no bytes is written as JSON."""
    return (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n"


def frame(text: str, **fields: Any) -> dict[str, Any]:
    """A user frame with a bare text that asks to be acknowledged; any field can be given or replaced."""
    return {
        "msgV": 1,
        "msg_id": str(uuid.uuid4()),
        "type": "user",
        "message": {"role": "user", "content": text},
        "ack": True,
        **fields,
    }


def enveloped(text: str, attributes: str) -> dict[str, Any]:
    """The `message` of a frame in a canonical envelope with these attributes."""
    content = f"<cross-session-message{attributes}>\n{text}\n</cross-session-message>"
    return {"role": "user", "content": content}


def control_path(session: Mapping[str, Any]) -> str:
    """The control socket of a session that was opened at a desk."""
    return session["socket"].removesuffix(".sock") + ".ctl.sock"


# ── other users ──────────────────────────────────────────────────────────────────────────────────


def as_user(uid: int, work: Callable[[], Any]) -> Any:
    """Runs something in a child that has become another user, and returns what it returned, by way of JSON.

    The child is forked and not executed, because the interpreter may lie where that user cannot go; what it needs
    must be imported before. Needs root.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            said = {"value": work()}
        except BaseException:
            said = {"error": traceback.format_exc()}
        try:
            with os.fdopen(writing, "w") as pipe:
                json.dump(said, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            data = b""
            while select.select([pipe], [], [], SECONDS)[0] and (more := os.read(pipe.fileno(), 65536)):
                data += more
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    answer = json.loads(data)
    assert "error" not in answer, answer["error"]
    return answer["value"]


def tried(work: Callable[[], object]) -> str:
    """What became of something that should not work: the name of its error, or `done`."""
    try:
        result = work()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, repr(error))
    if isinstance(result, int) and result > 2:
        os.close(result)
    return "done"


def command_here(environ: Mapping[str, str], *words: str) -> tuple[int, str, str]:
    """Runs a command in a child that is forked and not executed: (exit code, stdout, stderr)."""
    from postroom.__main__ import main

    folder = Path(tempfile.mkdtemp(prefix="pr-", dir="/tmp"))
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.chdir(folder)
            for name in [name for name in os.environ if name.startswith(("POSTROOM_", "XDG_"))]:
                del os.environ[name]
            os.environ.update(environ)
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT, 0o600), number)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            sys.argv = ["postroom", *words]
            code = main()
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said = code, (folder / "out").read_text(), (folder / "err").read_text()
    shutil.rmtree(folder)
    return said


# ── namespaces ───────────────────────────────────────────────────────────────────────────────────


class Inside(Desk):
    """A desk in namespaces of its own, which share some files with another desk or with none.

    With a pid namespace, its sessions end with the first process in it, and are never signalled by their pids, which
    count inside alone.

    Args:
        folder: as of a desk.
        environ: as of a desk.
        kinds: what `unshare` makes: `--net`, `--pid`, `--mount`.
        setup: shell commands that prepare the place before anything else runs in it.

    Attributes:
        first: the first process in it, as seen from outside.
        filter: runs in each new process before it becomes a command; what it sets stays in force.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str], *kinds: str, setup: str = ":") -> None:
        super().__init__(folder, environ)
        forking = ["--fork", "--kill-child", "--mount-proc"] if "--pid" in kinds else []
        self._holder = subprocess.Popen(
            ["unshare", *kinds, *forking, "sh", "-ec", f"{setup}\necho ready\nexec sleep 1000000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"ready\n":
            assert self._holder.stderr is not None
            raise AssertionError(self._holder.stderr.read().decode())
        self._own_pids = bool(forking)
        self.first = self._holder.pid
        if forking:
            [child] = Path(f"/proc/{self.first}/task/{self.first}/children").read_text().split()
            self.first = int(child)
            kinds = (*kinds, "--mount")  # with a /proc of its own
        self.prefix = ("nsenter", f"--target={self.first}", *kinds)
        self.filter: Callable[[], None] | None = None

    def start(self, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        """Starts one command inside and does not wait for it."""
        return self.program(COMMAND, *words, **more)

    def program(self, *words: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Starts any program inside."""
        return subprocess.Popen(
            [*self.prefix, *words],
            env={**self.environ, **(environ or {})},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=self.filter,
        )

    def run(self, *words: str, **more: Any) -> Done:
        """Runs one command inside to its end."""
        with self.start(*words, **more) as process:
            try:
                out, err = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Done(process.returncode, out.decode(), err.decode())

    def shell(self, script: str) -> str:
        """Runs shell commands inside; they must succeed."""
        with self.program("sh", "-ec", script) as process:
            out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, err
        return out.decode()

    def leave(self) -> None:
        """Ends everything inside."""
        if not self._own_pids:
            super().leave()
        self._holder.kill()
        self._holder.communicate(timeout=SECONDS)
