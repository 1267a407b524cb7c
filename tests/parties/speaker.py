"""Writes frames by hand onto sockets, as it is told to: run by a session, it is that session's own child.

usage: speaker.py

Prints one line first, what it finds in its environment of the session that started it. Each line that it reads is
`{"path", "frame"}`; it writes the frame to that socket and prints the line that comes back. Ends with its standard input.
"""

from __future__ import annotations

import json
import os
import socket
import sys

SECONDS = 30.0


def main() -> None:
    """Says what it knows, then what it is told to say."""
    known = {key: os.environ.get(f"POSTROOM_{key.upper()}") for key in ("session", "socket", "token")}
    print(json.dumps(known), flush=True)
    while line := sys.stdin.readline():
        told = json.loads(line)
        print(answered(told["path"], told["frame"]), end="", flush=True)


def answered(path: str, frame: object) -> str:
    """Writes one frame on a connection of its own; returns the line that comes back."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(SECONDS)
        sock.connect(path)
        sock.sendall(json.dumps(frame).encode() + b"\n")
        with sock.makefile() as answers:
            return answers.readline()


if __name__ == "__main__":
    main()
