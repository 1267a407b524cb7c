"""A session of another program, as Qwen Code 0.24.4 makes one: a record with its token in it, and an inbox.

usage: qwen_inbox.py CONFIG RUNTIME

CONFIG is the program's folder (`sessions` is made in it), RUNTIME that of its sockets. It prints {"pid"}, then each
line that arrives. It is told on standard input to write: {"path", "lines"}. It ends with its standard input.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import threading
import time
import uuid


def say(**event: object) -> None:
    """Prints one line."""
    print(json.dumps(event), flush=True)


def listen(inbox: socket.socket) -> None:
    """Reads each connection to its end, and closes it."""
    while True:
        connection, _ = inbox.accept()
        held = b""
        while data := connection.recv(65536):
            held += data
        connection.close()
        for line in held.splitlines():
            say(line=json.loads(line))


def main(config: str, runtime: str) -> None:
    """Registers, says so, and writes what it is told."""
    pid = os.getpid()
    for folder in (f"{config}/sessions", f"{runtime}/qwen-socks"):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    path = f"{runtime}/qwen-socks/{pid}.sock"
    inbox = socket.socket(socket.AF_UNIX)
    inbox.bind(path)
    os.chmod(path, 0o600)
    inbox.listen(8)
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    with open("/proc/self/stat", "rb") as file:
        ticks = file.read().rpartition(b")")[2].split()[19].decode()
    record = {
        "schemaVersion": 1,
        "pid": pid,
        "procStart": f"{boot}:{ticks}",
        "pidNs": int(os.readlink("/proc/self/ns/pid")[5:-1]),
        "sessionId": str(uuid.uuid4()),
        "cwd": os.getcwd(),
        "name": "agent",
        "startedAt": int(time.time() * 1000),
        "qwenVersion": "0.24.4",
        "kind": "tui",
        "ipcPath": path,
        "ipcToken": secrets.token_hex(32),
    }
    with open(os.open(f"{config}/sessions/{pid}.json", os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        json.dump(record, file)
    threading.Thread(target=listen, args=(inbox,), daemon=True).start()
    say(pid=pid, record=record)
    for told in map(json.loads, sys.stdin):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(told["path"])
            sock.sendall("".join(f"{json.dumps(line)}\n" for line in told["lines"]).encode())
            time.sleep(0.15)  # the other side looks at this process meanwhile
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
