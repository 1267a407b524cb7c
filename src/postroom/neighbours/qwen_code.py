"""Qwen Code as a neighbour: its records, and one of ours among them, by its published protocol (05.28, 09.14).

Each of its sessions leaves a record in `$QWEN_HOME/sessions`, schema version 1: `<pid>.json`, or `<pid>-<8 hex>.json`
where one process has several sessions, which then share one socket. It names the socket and the token that must be
shown there. `qwen_frames` has what is said on the socket.

Which of its records count, first rung that answers wins:
    1. the file is fit, is a record of a known version, and is named by its pid; else it is skipped;
    2. it is one that Postroom published: no neighbour, and swept where its process is provably gone;
    3. it is of this pid namespace and this boot; else nothing can be known of it here, and it is skipped;
    4. pid and start belong to no process that runs: it has ended;
    5. without a socket, or without a token for it, it is listed and cannot be written to.

It never changes or removes a record that Postroom did not write. A field of the wrong shape is as if it were not
there, as the protocol has it; without pid, id or name there is no session.

What is weak: a record without the start of its process is believed as long as any process has that pid, as the
protocol has it. Former names and ids are those that this process saw change. A sender is told from the other sessions
of its process only by what it says of itself.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from postroom.core.address import uds_address
from postroom.errors import BadFrame, UnfitPath
from postroom.neighbour import PROBE_SECONDS, Found, Look, Outgoing
from postroom.neighbours.records import Records, fields_of
from postroom.state import files, processes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroom.core.wire import Frame
    from postroom.state.record import Record

__all__ = ["QwenCode", "neighbour"]

PROGRAM: Final = "qwen-code"
TITLE: Final = "Qwen Code"

SCHEMA: Final = 1
"""The version of a record; a higher one is skipped and never removed."""

PUBLISHER: Final = "publishedBy"
"""A field of ours in a record that Postroom wrote there, which others ignore; by it we know our own again."""

OURS: Final = "postroom"

MAX_TEXT: Final = 4096
"""Characters of any text in a record: a path of the system has no more."""

MAX_SESSION_ID: Final = 128
"""Characters of a session id; a UUID has 36."""

MAX_TIME: Final = 2**53
"""The largest number of milliseconds that every reader of JSON keeps exact."""

MAX_SEEN: Final = 16
"""Former names, and former ids, that are remembered of one session (11.10)."""

MAX_PATH: Final = 103
"""Bytes of a socket's path there; a longer candidate is passed over."""

SOCKETS: Final = "qwen-socks"
"""The folder of its sockets; in a folder that others share too, a random end makes it nobody else's."""

TMP: Final = "/tmp"
"""Where sockets lie when there is no other folder."""

PRESENCES: Final = {"tui": "interactive", "headless": "headless", "serve": "bg", "external": "external"}
"""Its `kind` → ours; a kind that is unknown is shown as external."""

NO_TOKEN: Final = "cannot receive messages: its inbox wants no token, as that of an old version"
NO_RECORD: Final = "no record of a session that runs names that socket"

_FILE = re.compile(r"([1-9][0-9]{0,9})(?:-[0-9a-f]{8})?\.json").fullmatch
_HIDDEN = re.compile(rf"{SOCKETS}-[0-9a-f]{{16}}").fullmatch
_KIND = re.compile(r"[a-z0-9-]{1,16}").fullmatch
_TOKEN = re.compile(r"[0-9A-Fa-f]{64}").fullmatch
_TICKS = re.compile(r"[0-9]{1,20}").fullmatch
_SESSION_ID = re.compile(r"[!-~]+").fullmatch


def neighbour(environ: Mapping[str, str], folder: str) -> QwenCode:
    """The sessions of Qwen Code, by their folder of records; see `postroom.neighbours.load`."""
    return QwenCode(environ, folder)


class Claims(NamedTuple):
    """What one record says, checked for its form and for nothing else.

    Attributes:
        pid: the process that wrote it.
        boot, ticks: of that process's start; both empty where it is not told.
        namespace: the inode of its pid namespace; None: not told.
        ours: Postroom wrote it.
        path, token: its inbox; each empty where there is none.
    """

    pid: int
    boot: str
    ticks: str
    namespace: int | None
    ours: bool
    session_id: str
    name: str
    cwd: str
    started_at: int
    version: str
    kind: str
    path: str
    token: str

    def __repr__(self) -> str:
        return f"<Claims {self.name!r} {self.session_id} pid {self.pid}>"


class QwenCode:
    """A `postroom.neighbour.Neighbour`.

    Args:
        environ: says where sockets lie.
        folder: where its records lie.
    """

    program = PROGRAM
    title = TITLE
    needs_token = True
    token_bytes = 32

    def __init__(self, environ: Mapping[str, str], folder: str) -> None:
        self.folder = folder
        self._environ = environ
        self._records: Records[Claims] = Records(folder, is_record, parse)
        self._namespace = own_namespace()
        self._boot = processes.boot_id()
        self._here: dict[str, Found] = {}
        self._seen: dict[
            str, tuple[list[str], list[str]]
        ] = {}  # identity → its names and its ids, latest first
        self._published: dict[str, str] = {}  # session id → the file of its record
        self._own_tokens: dict[str, str] = {}  # address of a socket of ours there → its token
        self._hidden = f"{SOCKETS}-{secrets.token_hex(8)}"

    def __repr__(self) -> str:
        return f"<QwenCode {self.folder}>"

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def mark(self) -> object:
        """See the port."""
        return self._records.mark()

    def look(self, *, sweep: bool = True) -> Look:
        """See the port; sockets are not looked at."""
        ended: list[Found] = []
        skipped: list[tuple[str, str]] = []
        unfit: list[tuple[str, str]] = []
        here: dict[str, Found] = {}
        for entry in self._records.look():
            claims = entry.value
            if claims is None:
                skipped.append((entry.name, entry.reason))
                if entry.unfit:
                    unfit.append((entry.name, entry.reason))
            elif claims.ours:
                if sweep and self._is_dead(claims):
                    self._sweep(entry.name, claims)
                skipped.append((entry.name, "Postroom published it"))
            elif reason := self._elsewhere(claims):
                skipped.append((entry.name, reason))
            elif processes.alive(claims.pid, claims.ticks) is False:
                skipped.append((entry.name, "its process has ended"))
                ended.append(self._found(entry.name, claims))
            else:
                one = self._found(entry.name, claims)
                here[one.identity] = one
        self._here = here
        self._seen = {identity: seen for identity, seen in self._seen.items() if identity in here}
        return Look(tuple(here.values()), tuple(skipped), tuple(unfit), self._records.unchecked, tuple(ended))

    def _elsewhere(self, claims: Claims) -> str:
        """Why nothing can be known of its process from here; empty where it can."""
        if claims.namespace != self._namespace:
            return "of another pid namespace"
        if claims.boot and claims.boot != self._boot:
            return "of another boot, or another machine"
        return ""

    def _is_dead(self, claims: Claims) -> bool:
        """Whether a record proves that its process is gone: of this namespace and boot, and no such process."""
        told = bool(claims.ticks) and not self._elsewhere(claims)
        return told and processes.alive(claims.pid, claims.ticks) is False

    def _found(self, file: str, claims: Claims) -> Found:
        start = claims.ticks or processes.start_of(claims.pid) or ""
        # Of a process with several sessions each has a record; the end of the file's name never changes.
        identity = f"{PROGRAM}:{file.removesuffix('.json')}:{start}"
        names, session_ids = self._seen.setdefault(identity, ([], []))
        note(names, claims.name)
        note(session_ids, claims.session_id)
        usable = bool(claims.path and claims.token)
        return Found(
            program=PROGRAM,
            identity=identity,
            name=claims.name,
            session_ids=tuple(session_ids),
            former=tuple(names[1:]),
            cwd=claims.cwd,
            presence=PRESENCES.get(claims.kind, "external"),
            state="",  # its records do not tell
            started_at=claims.started_at,
            seen_at=claims.started_at,
            version=claims.version,
            pid=claims.pid,
            start=start,
            path=claims.path if usable else "",
            token=claims.token if usable else "",
            condition="" if usable else NO_TOKEN if claims.path else "cannot receive messages",
        )

    def probe(self, found: Found) -> bool:
        """See the port."""
        if not found.path or processes.alive(found.pid, found.start) is False:
            return False
        try:
            files.check_file(found.path, socket=True)
        except (OSError, UnfitPath):
            return False
        return answers(found.path)

    def near(self, path: str) -> bool:
        """See the port: in a folder of its sockets, or named by a record."""
        folder = os.path.basename(os.path.dirname(path))
        return in_sockets(folder) or any(one.path == path for one in self._here.values())

    # ── lines ────────────────────────────────────────────────────────────────────────────────────

    def leave(self, line: bytes, own: str, target: Found) -> Outgoing | str:
        """See the port. The record is read again: clearing a conversation gives a session another id.

        Sessions that share a socket are told apart by the one that the line is for.
        """
        from postroom.neighbours import qwen_frames

        self.look()
        meant = qwen_frames.meant(line)
        one = self._here.get(meant) or self._here.get(target.identity)
        if one is None and target.path:  # it is known by its socket alone
            one = next((each for each in self._here.values() if each.path == target.path), None)
        if one is None:
            return NO_RECORD
        if not one.path:
            return f"it {one.condition}"
        if target.path and one.path != target.path:
            return "it has another socket now"
        said = qwen_frames.say(
            line,
            own=own,
            reply_token=self._own_tokens.get(own, ""),
            session_id=one.session_ids[0],
            token=one.token,
        )
        return said if isinstance(said, str) else Outgoing(said)

    def answers_with(self, own: str, token: str) -> None:
        """See the port: a message states with it how it is answered."""
        self._own_tokens[own] = token

    def decode(self, line: bytes, own: str) -> Frame:
        """See the port."""
        from postroom.neighbours import qwen_frames

        del own
        return qwen_frames.decode(line)

    # ── being one of them ────────────────────────────────────────────────────────────────────────

    def socket_path(self, pid: int) -> str:
        """See the port: in the runtime folder, else in a folder of its own in `$TMPDIR`, else in /tmp."""
        tried: list[str] = []
        bases = ((self._environ.get("XDG_RUNTIME_DIR"), SOCKETS), (self._environ.get("TMPDIR"), self._hidden))
        for base, name in (*bases, (TMP, self._hidden)):
            if not base or not os.path.isabs(base):
                continue
            folder = os.path.normpath(f"{base}/{name}")
            try:
                path = free_path(folder, pid)
                files.private_folder(folder, parents=False)
                return path
            except UnfitPath as error:
                tried.append(f"{error.path}: {error.reason}")
        raise UnfitPath(
            f"the folder of {TITLE}'s sockets",
            f"none can be trusted ({'; '.join(tried)})",
            "Set XDG_RUNTIME_DIR to a folder of yours with mode 0700.",
        )

    def publish(self, record: Record, path: str, token: str) -> None:
        """See the port. ValueError for a token that is not 64 hex digits: its readers would not see it."""
        if not _TOKEN(token):
            raise ValueError("a token there has 64 hex digits")
        files.private_folder(self.folder)
        name = self._published.get(record.session_id) or self._free_name(record)
        told = bool(self._boot and record.proc_start and self._namespace)
        written = {
            "schemaVersion": SCHEMA,
            "pid": record.pid,
            "procStart": f"{self._boot}:{record.proc_start}" if told else None,
            "pidNs": self._namespace,
            "sessionId": record.session_id,
            "cwd": os.fsencode(record.cwd).decode("utf-8", "replace"),
            "name": record.name,
            "startedAt": record.started_at,
            "qwenVersion": f"{OURS}-{record.version}",
            "kind": "external",
            "ipcPath": path,
            "ipcToken": token,
            PUBLISHER: OURS,
        }
        # Losing it with the machine's power does no harm: then its process is gone as well.
        files.write_atomic(f"{self.folder}/{name}", json.dumps(written).encode(), sync=False)
        self._published[record.session_id] = name
        self._own_tokens[uds_address(path)] = token

    def _free_name(self, record: Record) -> str:
        """The file for a record that is not there yet: `<pid>.json`, unless somebody who may live has it (05.10)."""
        name = f"{record.pid}.json"
        try:
            there = self._at(name)
        except FileNotFoundError:
            return name
        again = there is not None and there.ours and there.session_id == record.session_id
        if there is not None and (again or self._is_dead(there)):
            return name
        return f"{record.pid}-{secrets.token_hex(4)}.json"

    def _at(self, name: str) -> Claims | None:
        """The record in a file as it is at this instant; None for what is none. FileNotFoundError without a file."""
        try:
            return parse(name, files.read_private(f"{self.folder}/{name}", MAX_TEXT * 16, readable=True))
        except (BadFrame, UnfitPath):
            return None

    def withdraw(self, record: Record, path: str) -> None:
        """See the port."""
        name = self._published.pop(record.session_id, f"{record.pid}.json")
        with suppress(OSError):
            there = self._at(name)
            if there is not None and there.ours and there.session_id == record.session_id:
                os.unlink(f"{self.folder}/{name}")
        with suppress(OSError):
            os.unlink(path)
        leave_folder(path)

    def sweep_own(self) -> None:
        """See the port: `look` does it."""
        self.look()

    def _sweep(self, name: str, claims: Claims) -> None:
        """Removes what a session of ours left there whose process is provably gone."""
        with suppress(OSError):
            os.unlink(f"{self.folder}/{name}")
        # The path is a claim: nothing is removed but a socket named by that pid at which nobody listens.
        folder, named = os.path.split(claims.path)
        if not in_sockets(os.path.basename(folder)) or pid_of_socket(named) != claims.pid:
            return
        with suppress(OSError, UnfitPath):
            files.check_file(claims.path, socket=True)
            if not answers(claims.path):
                os.unlink(claims.path)
                leave_folder(claims.path)


# ── one record ───────────────────────────────────────────────────────────────────────────────────


def is_record(name: str) -> bool:
    """Whether a file is named as a record: a pid without leading zeros, alone or with eight hex digits."""
    return _FILE(name) is not None


def parse(name: str, data: bytes) -> Claims:
    """Reads one record.

    Args:
        name: of its file, which begins with its pid.
        data: its bytes.

    Raises BadFrame with the reason for anything that is no record, or one of a later version.
    """
    fields = fields_of(data)
    version = number(fields.get("schemaVersion"))
    if version is None:
        raise BadFrame("schemaVersion is missing")
    if version > SCHEMA:
        raise BadFrame("written by a newer version")
    named, pid = _FILE(name), fields.get("pid")
    if type(pid) is not int or named is None or pid != int(named[1]):
        raise BadFrame("the name of the file does not fit its pid")
    session_id = text(fields.get("sessionId"), MAX_SESSION_ID)
    if not _SESSION_ID(session_id):
        raise BadFrame("sessionId is missing, or not what it should be")
    called = text(fields.get("name"))
    if not called.strip():
        raise BadFrame("name is missing, or not what it should be")
    namespace = fields.get("pidNs")
    boot, _, ticks = text(fields.get("procStart")).rpartition(":")
    if fields.get("procStart") is not None and not (boot and _TICKS(ticks)):
        raise BadFrame("procStart is not what it should be")
    kind, token = text(fields.get("kind")), text(fields.get("ipcToken"))
    return Claims(
        pid=pid,
        boot=boot,
        ticks=ticks,
        namespace=namespace if type(namespace) is int else None,
        ours=fields.get(PUBLISHER) == OURS,
        session_id=session_id,
        name=called,
        cwd=text(fields.get("cwd")),
        started_at=int(number(fields.get("startedAt")) or 0),
        version=text(fields.get("qwenVersion")),
        kind=kind if _KIND(kind) else "tui",  # a version before the field had sessions at a terminal alone
        path=fit_path(text(fields.get("ipcPath"))),
        token=token if _TOKEN(token) else "",
    )


def text(value: object, limit: int = MAX_TEXT) -> str:
    """A text that a record may hold; empty for anything else."""
    if not isinstance(value, str) or len(value) > limit or "\0" in value:
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:
        return ""  # half a surrogate pair
    return value


def number(value: object) -> float | None:
    """A number that a record may hold; None for anything else, NaN among it."""
    fit = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_TIME
    return cast("float", value) if fit else None


def fit_path(path: str) -> str:
    """A path that a socket of this system may have, and an address of ours can hold; else empty."""
    try:
        uds_address(path)
    except UnfitPath:
        return ""
    return path if len(os.fsencode(path)) <= MAX_PATH else ""


def note(seen: list[str], now: str) -> None:
    """Puts what a record says now before what it said earlier."""
    if now in seen:
        seen.remove(now)
    seen.insert(0, now)
    del seen[MAX_SEEN + 1 :]


def own_namespace() -> int | None:
    """The inode of our pid namespace, as its records name it; None where the system has none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None


# ── sockets ──────────────────────────────────────────────────────────────────────────────────────


def in_sockets(folder: str) -> bool:
    """Whether a folder is called like one of its sockets."""
    return folder == SOCKETS or _HIDDEN(folder) is not None


def pid_of_socket(name: str) -> int:
    """The pid in the name of a socket; 0 where there is none."""
    number, _, _ = name.removesuffix(".sock").partition("-")
    return int(number) if number.isascii() and number.isdigit() and len(number) <= 10 else 0


def free_path(folder: str, pid: int) -> str:
    """A path for a socket of a process in a folder. Raises UnfitPath where it would be too long."""
    path = f"{folder}/{pid}.sock"
    if is_taken(path):  # by the same pid, in another pid namespace
        path = f"{folder}/{pid}-{secrets.token_hex(4)}.sock"
    size = len(os.fsencode(path))
    if size > MAX_PATH:
        raise UnfitPath(
            folder, f"a socket in it would have a path of {size} bytes, and {MAX_PATH} is the limit"
        )
    return path


def is_taken(path: str) -> bool:
    """Whether a path is somebody's: one listens there, or what lies there is no socket of ours."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid() or answers(path)


def answers(path: str) -> bool:
    """Whether somebody listens there; a full backlog is somebody who is busy. Nothing is written."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


def leave_folder(path: str) -> None:
    """Removes the folder of a socket that was made for it alone; any other stays."""
    folder = os.path.dirname(path)
    if _HIDDEN(os.path.basename(folder)):
        with suppress(OSError):
            os.rmdir(folder)
