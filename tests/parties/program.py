"""A stand-in for a program that runs an agent: a process of its own that starts others below it when it is told to.

    program.py        with the program's name as its argv[0]

Standard input has one JSON object a line: {"argv": […], "stdin": "…", "shell": true, "environ": {…}, "cwd": "…"}. It
runs that as its own child, with a shell in between where asked, and answers with one line: {"code", "out", "err"}. With
"stay" the process is left running, and the answer is {"pid"}.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import Any


def main() -> None:
    """Does what each line says, until standard input ends; whatever stays ends by itself."""
    staying: list[subprocess.Popen[bytes]] = []
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        argv: list[str] = order["argv"]
        if order.get("shell"):
            argv = ["/bin/sh", "-c", f"{shlex.join(argv)}; exit $?"]
        environ: dict[str, str] = {**os.environ, **order.get("environ", {})}
        cwd: str | None = order.get("cwd")
        if order.get("stay"):
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environ,
                cwd=cwd,
            )
            staying.append(child)
            print(json.dumps({"pid": child.pid}), flush=True)
            continue
        done = subprocess.run(
            argv,
            input=order.get("stdin", "").encode(),
            capture_output=True,
            timeout=60,
            check=False,
            env=environ,
            cwd=cwd,
        )
        answer = {"code": done.returncode, "out": done.stdout.decode(), "err": done.stderr.decode()}
        print(json.dumps(answer), flush=True)


main()
