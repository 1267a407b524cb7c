"""The door of opencode: the HTTP server that it runs on a port of this machine (09.4).

`opencode serve` has one, and the terminal program with `--port`. Where it listens is read from the process itself: the
sockets that it holds, and the kernel's table of those that listen. Its password, if it was given one, comes from the
environment with which it was started, is shown to that port alone, and is never written anywhere.

`POST /session/ID/prompt_async` has the session take a turn, or read the text in the running one after its current tool
call. A version without it is asked by `/session/ID/message`, which answers when the turn is over; what was handed over
is then found in the session. The text comes as the user's own input there, so it stands under the preface (04.1).

How it fails: an address that has no meaning there is answered by opencode with its web page and 200, so only the
answer that belongs to a request counts. What was written and not answered is looked for in the session; if it is not
there either, the outcome is `unknown`.

Which session is meant is known where a hook or a call said so. Else it is the newest of this folder that is no
subagent's and that was used since the process started: an older one is on the disk, and on no screen. Until then the door
is not there.

Weak: two opencodes in one folder share their sessions, so that what is used in one counts as used in the other.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import os
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

from postroom.doors import Rang
from postroom.state import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from postroom.core.message import PermissionClass
    from postroom.doors import Attended

__all__ = ["Answer", "HttpDoor", "door", "listening", "parse_table"]

RING_SECONDS = 5.0
"""Connect and be answered, for each request (05.18)."""

BLOCKING_SECONDS = 1.0
"""How long an answer to `/message` is waited for: it comes when the turn is over, and is not needed."""

MAX_ANSWER = 33_554_432
"""Bytes of an answer that are read: a list of sessions, or the last messages of one."""

RECENT = 20
"""Messages of a session among which one that was handed over is looked for."""

ROOM_BYTES = 131_072
"""Text of one prompt: what a model reads at once."""

LISTENS = "0A"
"""The kernel's word for a socket that listens."""

HERE = {"0100007F": "127.0.0.1", "00000000": "127.0.0.1"} | dict.fromkeys(
    ("0" * 32, "00000000000000000000000001000000"), "::1"
)
"""Addresses of `/proc/net/tcp` and `tcp6` at which a process can be reached from this machine, and how."""


NO_TURN = "no session in it has had a turn yet"
"""Said of an opencode that has just started."""


class Unreached(OSError):
    """Nobody answered the connection: nothing was written."""


class ReadTimeout(Exception):
    """A request was written, and no answer came in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered: its status, and its JSON where it is that (else None)."""

    status: int
    content: object = None


def parse_table(table: str) -> Iterable[tuple[str, str, int]]:
    """Reads `/proc/<pid>/net/tcp` or `tcp6`: (inode, host, port) of the sockets that listen on this machine."""
    for row in table.splitlines()[1:]:
        fields = row.split()
        if len(fields) < 10 or fields[3] != LISTENS:
            continue
        address, _, port = fields[1].partition(":")
        if address in HERE:
            yield fields[9], HERE[address], int(port, 16)


def listening(pid: int) -> list[tuple[str, int]]:
    """The (host, port) at which a process listens and can be reached from this machine."""
    inodes = {name[8:-1] for name in processes.open_files(pid) if name.startswith("socket:[")}
    found: list[tuple[str, int]] = []
    for table in ("tcp", "tcp6"):
        try:
            with open(f"{processes.PROC}/{pid}/net/{table}", encoding="ascii", errors="replace") as file:
                rows = file.read()
        except OSError:
            continue
        found += [(host, port) for inode, host, port in parse_table(rows) if inode in inodes]
    return found


def door(here: Attended, dropped: Callable[[Sequence[str], str], None]) -> HttpDoor:
    """Makes this door."""
    del dropped
    return HttpDoor(here)


class HttpDoor:
    """A `postroom.doors.Door`; see this module."""

    name = "opencode-http"
    room = ROOM_BYTES

    def __init__(self, here: Attended) -> None:
        self._here = here

    async def ready(self) -> str:
        """See the port: asks for the list of sessions."""
        return await asyncio.to_thread(self._why_not)

    async def ring(self, text: str, msg_ids: Sequence[str], stated: PermissionClass | None) -> Rang:
        """See the port."""
        del stated, msg_ids
        return await asyncio.to_thread(self._ring, text)

    async def close(self) -> None:
        """See the port: nothing is held between rings."""

    # ── in a thread of its own ───────────────────────────────────────────────────────────────────

    def _why_not(self) -> str:
        place = self._place()
        if isinstance(place, str):
            return place
        return "" if self._session(place) else NO_TURN

    def _place(self) -> tuple[str, int] | str:
        """Where it answers as opencode does; else why not."""
        places = listening(self._here.process[0])
        if not places:
            return "it does not listen on a port (start it with `--port`)"
        for place in places:
            try:
                answer = self._ask(place, "GET", "/session")
            except (OSError, ReadTimeout, http.client.HTTPException):
                continue
            if answer.status == 401:
                return "it wants a password that it was not started with"
            if answer.status == 200 and isinstance(answer.content, list):
                return place
        return "what listens there does not answer as opencode does"

    def _session(self, place: tuple[str, int]) -> str:
        """The id of the session that is meant; empty for none."""
        known = self._here.conversation
        if known:
            answer = self._ask(place, "GET", f"/session/{quote(known, safe='')}")
            return known if answer.status == 200 and isinstance(answer.content, dict) else ""
        query = urlencode({"directory": self._here.cwd, "roots": "true"})
        answer = self._ask(place, "GET", f"/session?{query}")
        listed = answer.content if answer.status == 200 else None
        sessions = [
            cast("dict[str, Any]", each)
            for each in (cast("list[object]", listed) if isinstance(listed, list) else ())
            if isinstance(each, dict)
        ]
        began = (processes.began_at(self._here.process[1]) or 0.0) * 1000
        fit = [
            (_updated(each), session)
            for each in sessions
            if not each.get("parentID")
            and each.get("directory") == self._here.cwd
            and isinstance(session := each.get("id"), str)
            and _updated(each) >= began
        ]
        return max(fit)[1] if fit else ""

    def _ring(self, text: str) -> Rang:
        try:
            place = self._place()
            if isinstance(place, str):
                return Rang("failed", place)
            session = self._session(place)
        except (OSError, ReadTimeout, http.client.HTTPException) as error:
            return Rang("failed", type(error).__name__)
        if not session:
            return Rang("failed", NO_TURN)
        path = f"/session/{quote(session, safe='')}"
        part = {"parts": [{"type": "text", "text": text}]}
        for way, body, seconds in (
            ("prompt_async", part, RING_SECONDS),
            ("message", {**part, "noReply": False}, BLOCKING_SECONDS),
        ):
            rang = self._handed(place, path, way, body, seconds)
            if rang is not None:
                return rang
        return Rang("failed", "this version takes no prompts")

    def _handed(
        self, place: tuple[str, int], path: str, way: str, body: dict[str, Any], seconds: float
    ) -> Rang | None:
        """Hands a text over in one way; None where the server does not know that way."""
        try:
            answer = self._ask(place, "POST", f"{path}/{way}", body, seconds)
        except Unreached as error:
            return Rang("failed", str(error))
        except (OSError, ReadTimeout, http.client.HTTPException) as error:
            if self._holds(place, path, body["parts"][0]["text"]):
                return Rang("accepted", "found in the session")
            return Rang(
                "unknown", "no answer in time" if isinstance(error, ReadTimeout) else type(error).__name__
            )
        content = answer.content
        found = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
        if answer.status == 204 or (way == "message" and answer.status == 200 and found):
            return Rang("accepted", "" if way == "prompt_async" else f"by {way}")
        unknown = answer.status in (404, 405) and found.get("name") != "NotFoundError"
        if unknown or (answer.status == 200 and not found):
            return None  # no such way: the page that it shows for every other address, or an error without a name
        return Rang("failed", f"it answered {answer.status}")

    def _holds(self, place: tuple[str, int], path: str, text: str) -> bool:
        """Whether the session has this very text among its last messages."""
        try:
            answer = self._ask(place, "GET", f"{path}/message?limit={RECENT}")
        except (OSError, ReadTimeout, http.client.HTTPException):
            return False
        return json.dumps(text) in json.dumps(answer.content)

    def _ask(
        self,
        place: tuple[str, int],
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        seconds: float = RING_SECONDS,
    ) -> Answer:
        """One request on a connection of its own. Raises OSError, HTTPException, and ReadTimeout once it was written."""
        connection = http.client.HTTPConnection(*place, timeout=seconds)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise Unreached(type(error).__name__) from error
            headers = {"Accept": "application/json", **self._password()}
            data = None
            if body is not None:
                data = json.dumps(body).encode()
                headers["Content-Type"] = "application/json"
            connection.request(method, path, body=data, headers=headers)
            # The socket's own limit is one for each byte: an answer that drips would never end.
            over = threading.Event()
            timer = threading.Timer(seconds, _cut, (connection.sock, over))
            timer.daemon = True
            timer.start()
            try:
                response = connection.getresponse()
                content = response.read(MAX_ANSWER)
            except (OSError, http.client.HTTPException) as error:
                if over.is_set() or isinstance(error, TimeoutError):
                    raise ReadTimeout from None
                raise
            finally:
                timer.cancel()
            if over.is_set():
                raise ReadTimeout
        finally:
            connection.close()
        kind = response.headers.get("Content-Type", "")
        try:
            return Answer(response.status, json.loads(content) if "json" in kind else None)
        except (ValueError, RecursionError):
            return Answer(response.status)

    def _password(self) -> dict[str, str]:
        password = self._here.variable("OPENCODE_SERVER_PASSWORD")
        if not password:
            return {}
        user = self._here.variable("OPENCODE_SERVER_USERNAME") or "opencode"
        # As the bytes with which it was started, whatever they are.
        return {"Authorization": f"Basic {base64.b64encode(os.fsencode(f'{user}:{password}')).decode()}"}


def _cut(sock: socket.socket, over: threading.Event) -> None:
    """Ends a connection whose time is up, whoever reads from it."""
    over.set()
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _updated(session: dict[str, Any]) -> float:
    times = session.get("time")
    at = cast("dict[str, Any]", times).get("updated") if isinstance(times, dict) else None
    return float(at) if isinstance(at, int | float) else 0.0
