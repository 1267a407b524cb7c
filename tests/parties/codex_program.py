"""The program `codex`, as far as its queue is asked: `codex app-server` on its standard streams.

It writes its arguments, its environment and every line that it is given into the file that `CODEX_HEARD` names, one
JSON document a line, and answers as the recorded one did. `CODEX_DOES` says what happens to `thread/queue/add`:
`accepted`, `refused`, `silent` (and it stays when its input ends), `gone`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "recorded/codex/queue.json"


def main() -> None:
    """Answers until its input ends."""
    does = os.environ.get("CODEX_DOES", "accepted")
    lines = json.loads(RECORDED.read_text())["lines"]
    asked = {line["sent"]["id"]: line["sent"]["method"] for line in lines if "id" in line.get("sent", {})}
    answers: dict[str, dict[str, Any]] = {}
    for line in lines:
        if "id" in line.get("came", {}):
            came = line["came"]
            answers.setdefault(asked[came["id"]] + (" refused" if "error" in came else ""), came)
    with open(os.environ["CODEX_HEARD"], "a") as heard:

        def hear(**what: object) -> None:
            heard.write(json.dumps(what) + "\n")
            heard.flush()

        hear(argv=sys.argv[1:], environ=dict(os.environ), cwd=os.getcwd(), pid=os.getpid())
        for line in sys.stdin:
            request = json.loads(line)
            hear(line=request)
            if "id" not in request:
                continue
            print('{"method":"configWarning","params":{}}', flush=True)
            method = request["method"]
            if method == "thread/queue/add" and does != "accepted":
                if does == "silent":
                    signal.pause()
                if does == "gone":
                    return
                method += " refused"
            print(json.dumps({**answers[method], "id": request["id"]}), flush=True)


if __name__ == "__main__":
    main()
