"""A sender for the tests of limits that keeps to no rule: no session, no name, no chain, ever new texts, nothing waited for.

usage: flood.py SOCKET COUNT

Prints one line, `ready`, and begins when it reads a line. Then it prints how often it was answered what, as one line of
JSON. It speaks the wire with the plain modules.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections import Counter

SECONDS = 30.0


def main(path: str, count: int) -> None:
    """Writes everything at once, then reads the answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(SECONDS)
        line.connect(path)
        print("ready", flush=True)
        sys.stdin.readline()
        frames = [
            {
                "msgV": 1,
                "msg_id": f"{os.getpid()}-{number}",
                "type": "user",
                "message": {"role": "user", "content": f"{os.getpid()} says {number}"},
                "ack": True,
            }
            for number in range(count)
        ]
        line.sendall(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))
        with line.makefile("r") as answers:
            said = [json.loads(answers.readline()) for _ in frames]
    print(json.dumps(Counter(answer.get("reason") or answer["status"] for answer in said)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
