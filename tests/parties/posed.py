"""A program that stands for a coding agent: it runs hooks as its own children, as it is told to.

usage: python posed.py, under an `argv[0]` by which a client is recognised

Each line on standard input is one call: {"id", "argv", "stdin" (text, or null for none that can be read), "shell",
"environ", "closed" (standard output that nobody reads)}. Each is run at once, beside those that still run, and answered
with a line {"id", "code", "out", "err", "pid"}. It ends with its input, and what it runs goes on.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from typing import Any

SAYING = threading.Lock()


def say(document: dict[str, Any]) -> None:
    """Prints one line."""
    with SAYING:
        print(json.dumps(document), flush=True)


def run(call: dict[str, Any]) -> None:
    """Runs one call to its end."""
    argv = ["/bin/sh", "-c", f"{shlex.join(call['argv'])}; exit $?"] if call["shell"] else call["argv"]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **call["environ"]},
        start_new_session=True,
    )
    say({"id": call["id"], "started": process.pid})
    if call.get("closed") and process.stdout is not None:
        process.stdout.close()
        process.stdout = None
    stdin = call["stdin"].encode("utf-8", "surrogateescape")
    out, err = process.communicate(stdin)
    say(
        {
            "id": call["id"],
            "code": process.returncode,
            "out": (out or b"").decode(errors="backslashreplace"),
            "err": err.decode(errors="backslashreplace"),
        }
    )


def main() -> None:
    """Runs what it is told until nobody tells it any more."""
    say({"pid": os.getpid()})
    for line in sys.stdin:
        threading.Thread(target=run, args=(json.loads(line),), daemon=True).start()
    os._exit(0)


if __name__ == "__main__":
    main()
