"""An opencode that serves: a process of its own that listens on a port and answers as the recorded one did.

usage: opencode_server.py [JSON]

Its password is in OPENCODE_SERVER_PASSWORD, as opencode's. JSON says what it is like; what it leaves out is as recorded:

    sessions    [{"id", …}]: fields that differ from the recorded session, which was used just now; one by default
    async       "accepted", "absent" (an older version: its page), "missing" (404 without JSON), "silent" (it has the
                text and says nothing), "deaf" (it has not and says nothing), "error"
    message     "accepted", "slow" (it answers when the turn is over, which is never)
    careless    true: it lists every session, whatever it is asked
    answers     false: it speaks, but not as opencode does
    host        where it listens

It prints {"pid", "port"} once it listens, then each prompt. It ends with its standard input.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

RECORDED = json.loads((Path(__file__).parents[1] / "recorded/opencode/http.json").read_text())["exchanges"]
LIKE: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
PASSWORD = os.environ.get("OPENCODE_SERVER_PASSWORD", "")
SAYING = threading.Lock()
ENDING = threading.Event()


def recorded(beginning: str, status: int) -> dict[str, Any]:
    """The first recorded exchange of this kind."""
    return next(each for each in RECORDED if each["ask"].startswith(beginning) and each["status"] == status)


SESSION = recorded("POST /session", 200)["answer"] | {"time": {"updated": time.time() * 1000}}
SESSIONS = {each["id"]: {**SESSION, **each} for each in LIKE.get("sessions", [{"id": SESSION["id"]}])}
MESSAGES: dict[str, list[dict[str, Any]]] = {}
PAGE = next(each for each in RECORDED if each["type"] == "text/html")
NO_SESSION = recorded("GET /session/ses_none", 404)


def say(document: object) -> None:
    """Prints one line."""
    with SAYING:
        print(json.dumps(document), flush=True)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Says nothing on the standard error."""

    def reply(self, status: int, content: object = None, kind: str = "application/json") -> None:
        """Answers."""
        data = (
            b""
            if content is None
            else (json.dumps(content) if kind.endswith("json") else str(content)).encode()
        )
        self.send_response(status)
        if content is not None:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def admitted(self) -> bool:
        """Whether the password was shown, where there is one; answers where it was not."""
        wanted = f"Basic {base64.b64encode(os.fsencode(f'opencode:{PASSWORD}')).decode()}"
        if PASSWORD and self.headers.get("Authorization") != wanted:
            self.reply(401)
            return False
        return True

    def do_GET(self) -> None:
        """Lists sessions, one of them, or its messages."""
        if not self.admitted():
            return
        asked = urlsplit(self.path)
        query = parse_qs(asked.query)
        _, kind, *rest = asked.path.split("/")
        if not LIKE.get("answers", True) or kind != "session":
            self.reply(200, PAGE["answer"], "text/html")
        elif not rest:
            found = list(SESSIONS.values())
            if LIKE.get("careless"):
                query = {}
            if "directory" in query:
                found = [each for each in found if each["directory"] == query["directory"][0]]
            if "roots" in query:
                found = [each for each in found if "parentID" not in each]
            self.reply(200, found)
        elif rest[0] not in SESSIONS:
            self.reply(404, NO_SESSION["answer"])
        elif rest[1:] == ["message"]:
            self.reply(200, MESSAGES.get(rest[0], []))
        else:
            self.reply(200, SESSIONS[rest[0]])

    def do_POST(self) -> None:
        """Takes a prompt."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.admitted():
            self.prompted(body)

    def prompted(self, body: dict[str, Any]) -> None:
        """Answers a prompt as it is told to."""
        _, _, session, way = self.path.split("/")
        does = LIKE.get({"prompt_async": "async", "message": "message"}[way], "accepted")
        if does == "absent":
            self.reply(200, PAGE["answer"], "text/html")
        elif does == "missing":
            self.reply(404, "not found", "text/plain")
        elif does == "error":
            self.reply(400, {"name": "BadRequest", "data": {}})
        elif session not in SESSIONS:
            self.reply(404, NO_SESSION["answer"])
        else:
            if does != "deaf":
                MESSAGES.setdefault(session, []).append({"info": {"role": "user"}, "parts": body["parts"]})
                say({"session": session, "way": way, "body": body})
            if does in ("silent", "deaf", "slow"):
                ENDING.wait(60)
            elif way == "prompt_async":
                self.reply(204)
            else:
                self.reply(200, {"info": {"role": "assistant"}, "parts": []})


class Server(ThreadingHTTPServer):
    """Listens on this machine."""

    daemon_threads = True
    address_family = socket.AF_INET6 if ":" in LIKE.get("host", "") else socket.AF_INET


def main() -> None:
    """Serves until its input ends."""
    server = Server((LIKE.get("host", "127.0.0.1"), 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say({"pid": os.getpid(), "port": server.server_port})
    sys.stdin.read()
    ENDING.set()
    server.shutdown()


if __name__ == "__main__":
    main()
