"""Says which session, and which process of a client, this process belongs to: by the short way and by the whole one.

usage: python which.py CLIENT CONVERSATION
"""

from __future__ import annotations

import json
import os
import sys

from postroom import hook
from postroom.clients import load
from postroom.lineage import client_process, find
from postroom.state import processes
from postroom.state.roster import Roster


def main() -> None:
    """Prints one line."""
    name, conversation = sys.argv[1:3]
    state = os.environ["POSTROOM_HOME"]
    line = processes.ancestry(os.getpid())
    environ = {os.fsencode(key): os.fsencode(value) for key, value in os.environ.items()}
    process = hook.client_process(name, environ)
    print(
        json.dumps(
            {
                "session": [
                    hook.session_of(state, name, conversation, hook.upwards(), environ),
                    find(Roster(state), load(name), line, conversation),
                ],
                "process": [
                    [process.pid, process.start] if process else None,
                    client_process(load(name), os.environ, line),
                ],
            }
        )
    )


if __name__ == "__main__":
    main()
