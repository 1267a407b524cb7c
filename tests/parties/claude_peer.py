"""A session of another program, as Claude Code 2.1.332 makes one: a record, a key, a socket, and its frames.

usage: claude_peer.py CONFIG RUNTIME NAME [--no-key] [--mute]

CONFIG is the program's folder (its `sessions` are made in it), RUNTIME that of its sockets (`cc-socks` in it). It says
on standard output, one JSON object a line: first `ready` with its pid, path, token and session id, then each `line`
that arrives, word for word, with the number of its connection, and what became of what it `sent`. It is told on
standard input: `{"do": "send", "path", "token", "lines"}` writes lines as that program does (a connection of its own, a
first line with the token, a moment, half-closed), `{"do": "record", "set"}` writes its record anew, and
`{"do": "key", "remove"}` takes its key away. It ends with its standard input and removes what it made; it is nobody's child; `--mute` reads
what arrives and never closes; with `--no-key` there is no key file.

What real ones wrote is under `recorded/claude_code`; the tests hold this party's record and key against it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import sys
import threading
import time
import uuid
from typing import Any

LINGER = 0.15
SECONDS = 5.0

_SAYING = threading.Lock()


def say(**event: object) -> None:
    """Prints one event; several threads may."""
    with _SAYING:
        print(json.dumps(event), flush=True)


def start_of_this() -> str:
    """Field 22 of this process's stat."""
    with open("/proc/self/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19].decode()


def domain_of_this() -> str:
    """The pid domain, as that program writes it."""
    try:
        with open("/etc/machine-id") as file:
            machine = file.read().strip()
    except FileNotFoundError:
        machine = ""
    if not machine:
        with open("/proc/sys/kernel/random/boot_id") as file:
            machine = file.read().strip().replace("-", "")
    return f"linux:{machine}:{os.readlink('/proc/self/ns/pid')}"


class Peer:
    """The session."""

    def __init__(self, config: str, runtime: str, name: str, *, key: bool, mute: bool) -> None:
        self.mute = mute
        self.pid = os.getpid()
        self.sessions = os.path.join(config, "sessions")
        sockets = os.path.join(runtime, "cc-socks")
        for folder in (self.sessions, sockets):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        self.path = os.path.join(sockets, f"{self.pid}.sock")
        self.token = secrets.token_hex(16) if key else ""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.path)
        os.chmod(self.path, 0o600)
        self.socket.listen(16)
        now = int(time.time() * 1000)
        self.record: dict[str, Any] = {
            "pid": self.pid,
            "sessionId": str(uuid.uuid4()),
            "cwd": os.getcwd(),
            "startedAt": now,
            "procStart": start_of_this(),
            "version": "2.1.332",
            "peerProtocol": 1,
            "peerFeatures": ["notify_idle", "reply_across_default_dirs", "artifact_yield"],
            "kind": "interactive",
            "entrypoint": "cli",
            "pidDomain": domain_of_this(),
            "asksForConvertedSkills": None,
            "messagingSocketPath": self.path,
            "name": name,
            "nameSource": "user",
            "nameSince": now,
            "status": "idle",
            "updatedAt": now,
            "statusUpdatedAt": now,
        }
        self.record_file = f"{self.sessions}/{self.pid}.json"
        digest = hashlib.sha256(self.path.encode()).hexdigest()
        self.key_file = f"{self.sessions}/{self.pid}.{digest}.key"
        if key:
            self.write_key()
        self.write_record()
        self.connections = 0

    def write_key(self) -> None:
        """Publishes the token."""
        fields = ("procStart", "pidDomain")
        found = {"peerToken": self.token, **{field: self.record[field] for field in fields}}
        with open(os.open(self.key_file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            json.dump(found, file, separators=(",", ":"))

    def write_record(self) -> None:
        """Publishes the record: a new file in the place of the old one."""
        fresh = f"{self.record_file}.{secrets.token_hex(4)}.tmp"
        with open(os.open(fresh, os.O_CREAT | os.O_WRONLY, 0o644), "w") as file:
            json.dump(self.record, file, separators=(",", ":"))
        os.rename(fresh, self.record_file)

    def listen(self) -> None:
        """Takes connections until the process ends."""
        while True:
            connection, _ = self.socket.accept()
            self.connections += 1
            threading.Thread(target=self.read, args=(connection, self.connections), daemon=True).start()

    def read(self, connection: socket.socket, number: int) -> None:
        """Reads one connection to its end, answers nothing, and closes."""
        connection.settimeout(6 * SECONDS)
        held = b""
        try:
            while data := connection.recv(65536):
                held += data
        except OSError:
            pass
        for line in held.splitlines():
            say(event="line", connection=number, raw=line.decode("utf-8", "backslashreplace"))
        say(event="end", connection=number)
        if not self.mute:
            connection.close()

    def send(self, told: dict[str, Any]) -> None:
        """Writes lines as that program does."""
        lines = list(told["lines"])
        if told.get("token"):
            lines.insert(0, {"type": "auth", "token": told["token"]})
        data = "".join(
            (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)) + "\n" for line in lines
        )
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(SECONDS)
            try:
                sock.connect(told["path"])
                sock.sendall(data.encode())
                time.sleep(LINGER)
                sock.shutdown(socket.SHUT_WR)
                back = sock.recv(4096)
                say(event="sent", closed=not back, back=back.decode("utf-8", "backslashreplace"))
            except OSError as error:
                say(event="sent", closed=False, error=str(error))

    def leave(self) -> None:
        """Removes what it made."""
        for path in (self.record_file, self.key_file, self.path):
            if os.path.lexists(path):
                os.unlink(path)


def leave_the_family() -> None:
    """Goes on as nobody's child, so that no session takes this for its own (05.25)."""
    parent = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == parent:
        time.sleep(0.001)


def main() -> None:
    """Registers, says so, and does what it is told."""
    leave_the_family()
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    peer = Peer(*words, key="--no-key" not in sys.argv, mute="--mute" in sys.argv)
    threading.Thread(target=peer.listen, daemon=True).start()
    say(event="ready", pid=peer.pid, path=peer.path, token=peer.token, record=peer.record)
    while line := sys.stdin.readline():
        told = json.loads(line)
        match told["do"]:
            case "send":
                peer.send(told)
            case "record":
                peer.record |= told["set"]
                peer.write_record()
                say(event="written")
            case "key":
                os.unlink(peer.key_file)
                say(event="written")
            case other:
                say(event="unknown", what=other)
    peer.leave()


if __name__ == "__main__":
    main()
