"""Looks at sessions as the command does, without a process for each look: for tests that look again and again.

What a command prints with `--json` is what the session's process answers on its control socket; this asks that socket
with the client's token, as the command does, and reads the same bytes.
"""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

from tests.desk import SECONDS
from tests.strangers import as_line, control_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.desk import Desk


def looked(desk: Desk, session: Mapping[str, Any], *words: str) -> dict[str, Any]:
    """The document that a command prints for a session; it must end with exit code 0.

    Args:
        desk: where the session was opened.
        session: what `open --detach` or `status` said of it, with `socket` in it.
        words: the command and its arguments, without `--json`. What it takes counts as printed.
    """
    token = (desk.folder / "state/sessions" / session["session_id"] / "client.token").read_text().split()[0]
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(SECONDS)
        sock.connect(control_path(session))
        sock.sendall(as_line({"type": "auth", "token": token}))
        sock.sendall(as_line({"argv": [*words, "--json"], "stdin": None}))
        said = b""
        with sock.makefile("rb") as answers:
            while True:
                kind, code, out, err = answers.readline().split()
                said += answers.read(int(out))
                error = answers.read(int(err))
                if kind == b"confirm":
                    sock.sendall(b"ok\n")
                elif kind == b"done":
                    assert int(code) == 0, (words, said, error)
                    return json.loads(said)
