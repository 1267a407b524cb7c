"""Claude Code as a neighbour: its records, its keys, its frames, and a record of ours among them (05.28, 09.13).

Each of its sessions leaves `<pid>.json` and `<pid>.<hash of its socket's path>.key` in `$CLAUDE_CONFIG_DIR/sessions`,
and listens at a socket in a folder called `cc-socks`. Its frames are those that ours grew out of, so a line is said
there without our additions and under the address of our socket in that folder; the receipts that it knows are six.

Which of its records count, first rung that answers wins (facts B1.4):
    1. the file is fit, is a record, is named by its pid, and speaks protocol 1; else it is skipped;
    2. it is one that Postroom published: no neighbour, and swept where its process is provably gone;
    3. it is a spare or parked session: skipped;
    4. pid and start, where they count here, belong to no process that runs: it has ended;
    5. its socket is a socket of ours in a fit folder; else it is skipped.
A record of another pid namespace is judged by its socket alone, as that program judges it.

It never changes or removes a record that Postroom did not write.

Weak: what it knows was observed of 2.1.332 and before. A file that comes with a message (`file_attachments`) is not
fetched.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from postroom.errors import BadFrame, UnfitPath
from postroom.neighbour import Found, Look, Outgoing
from postroom.neighbours.claude_record import (
    MAX_NAME,
    MAX_PATH,
    MAX_TEXT,
    PROGRAM,
    Claimed,
    dumps,
    is_record,
    parse,
    published,
)
from postroom.neighbours.records import MAX_RECORD, Records
from postroom.state import files, processes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroom.core.wire import ControlFrame, Frame, UserFrame
    from postroom.state.record import Record

__all__ = ["MAX_SENT", "ClaudeCode", "neighbour"]

TITLE = "Claude Code"

MAX_SENT = 1_048_576
"""Characters of token line and message together that one of its sessions takes (facts C6)."""

SOCKETS = "cc-socks"
"""How the folder of its sockets is called."""

TRIES = 3
"""Names tried for a socket whose usual name a live one has (facts B2)."""

KNOWN_STATUS = frozenset({"held", "delivered", "denied", "expired", "dropped"})
"""Receipts that it renders; `refused` travels as `expired` (facts B6)."""

ACTIONS = frozenset({"peer_message_status", "notify_when_idle", "peer_idle_notice"})

NO_WAY_BACK = "this session has no socket there for the answer; publishTo in your settings makes one"
NO_WORD = f"{TITLE} has no word for it"
TOO_LONG = f"it would have more than the {MAX_SENT:,} characters that {TITLE} takes"


def neighbour(environ: Mapping[str, str], folder: str) -> ClaudeCode:
    """The sessions of Claude Code, by their folder of records; see `postroom.neighbours.load`."""
    return ClaudeCode(environ, folder)


class ClaudeCode:
    """A `postroom.neighbour.Neighbour`.

    Args:
        environ: says where its sockets lie.
        folder: where its records lie.
    """

    program = PROGRAM
    title = TITLE
    needs_token = False
    token_bytes = 16

    def __init__(self, environ: Mapping[str, str], folder: str) -> None:
        self.folder = folder
        self._environ = environ
        self._records: Records[Claimed] = Records(folder, is_record, parse)
        self._domain = processes.pid_domain()
        self._socket_folders: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<ClaudeCode {self.folder}>"

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def mark(self) -> object:
        """See the port."""
        return self._records.mark()

    def look(self, *, sweep: bool = True) -> Look:
        """See the port; sockets are looked at, and not connected to."""
        found: list[Found] = []
        ended: list[Found] = []
        skipped: list[tuple[str, str]] = []
        unfit: list[tuple[str, str]] = []
        folders: dict[str, int] = {}
        for entry in self._records.look():
            record = entry.value
            if record is None:
                skipped.append((entry.name, entry.reason))
                if entry.unfit:
                    unfit.append((entry.name, entry.reason))
                continue
            runs = self._runs(record)
            if record.ours:
                if sweep and runs is False:
                    self._sweep(entry.name, record)
                skipped.append((entry.name, "Postroom published it"))
            elif record.unlisted:
                skipped.append((entry.name, record.unlisted))
            elif runs is False:
                skipped.append((entry.name, "its process has ended"))
                ended.append(record.found)
            elif record.found.path and (reason := unfit_socket(record.found.path)):
                skipped.append((entry.name, reason))
                unfit.append((entry.name, reason))
            else:
                found.append(self._seen(record))
                if record.found.path:
                    folder = os.path.dirname(record.found.path)
                    folders[folder] = max(folders.get(folder, 0), record.found.started_at)
        self._socket_folders = folders
        return Look(tuple(found), tuple(skipped), tuple(unfit), self._records.unchecked, tuple(ended))

    def _runs(self, record: Claimed) -> bool | None:
        """Whether its process runs; None where that cannot be known from here."""
        if record.domain and record.domain != self._domain:
            return None
        return processes.alive(record.pid, record.start) if record.start else processes.exists(record.pid)

    def _seen(self, record: Claimed) -> Found:
        """The session with its process as it is checked from here, and its token."""
        here = not record.domain or record.domain == self._domain
        start = record.start or (here and processes.start_of(record.pid)) or ""
        return record.found._replace(
            identity=f"{PROGRAM}:{record.pid}:{start}",
            pid=record.pid if here and start else 0,
            start=start if here else "",
            token=self._token(record.pid, record.found.path) if record.found.path else "",
        )

    def _token(self, pid: int, path: str) -> str:
        """The token in a session's key file; empty where there is none that may be trusted."""
        try:
            raw = json.loads(files.read_private(self._key_file(pid, path), MAX_TEXT))
            token = raw["peerToken"]
        except (OSError, UnfitPath, ValueError, KeyError, TypeError, RecursionError):
            return ""
        fit = (
            isinstance(token, str) and 0 < len(token) <= MAX_NAME and token.isascii() and token.isprintable()
        )
        return token if fit else ""

    def _key_file(self, pid: int, path: str) -> str:
        # Of the path as it stands in the record: it is not resolved first (facts B4).
        return f"{self.folder}/{pid}.{hashlib.sha256(os.fsencode(path)).hexdigest()}.key"

    def probe(self, found: Found) -> bool:
        """See the port."""
        if found.pid and found.start and processes.alive(found.pid, found.start) is False:
            return False
        if not found.path:
            return True  # it runs, and says itself that it takes nothing
        return not unfit_socket(found.path) and answers(found.path)

    def near(self, path: str) -> bool:
        """See the port."""
        # By the folder's name alone: a record could claim any folder.
        return os.path.basename(os.path.dirname(path)) in (SOCKETS, f"{SOCKETS}-{os.geteuid()}")

    # ── lines ────────────────────────────────────────────────────────────────────────────────────

    def leave(self, line: bytes, own: str, target: Found) -> Outgoing | str:
        """See the port."""
        from postroom.core import wire

        frame = wire.decode(line.rstrip(b"\n"))
        if isinstance(frame, wire.UserFrame):
            said = user_line(frame, own)
        elif isinstance(frame, wire.ControlFrame):
            if frame.action not in ACTIONS:
                return NO_WORD
            if not own:
                return NO_WAY_BACK
            if frame.action == "peer_message_status" and frame.status not in KNOWN_STATUS:
                return NO_WORD
            said = control_line(frame, own)
        else:
            return NO_WORD
        shown = len(wire.encode_auth(target.token)) if target.token else 0
        return TOO_LONG if shown + wire.code_points(said) > MAX_SENT else Outgoing(said, target.token or None)

    def answers_with(self, own: str, token: str) -> None:
        """See the port: no token is asked for on its way back (facts B4)."""

    def decode(self, line: bytes, own: str) -> Frame:
        """See the port: its frames are read as ours are."""
        from postroom.core import wire

        del own
        return wire.decode(line)

    # ── being one of them ────────────────────────────────────────────────────────────────────────

    def socket_path(self, pid: int) -> str:
        """See the port (facts B2): beside the sockets of its sessions that run, else where its rule puts them."""
        tried: list[str] = []
        for folder in self._candidates():
            try:
                path = free_path(folder, pid)
                files.private_folder(folder, parents=False)
                return path
            except UnfitPath as error:
                tried.append(f"{error.path}: {error.reason}")
        raise UnfitPath(f"the folder of {TITLE}'s sockets", f"none can be trusted ({'; '.join(tried)})")

    def _candidates(self) -> list[str]:
        base = self._environ.get("XDG_RUNTIME_DIR") or self._environ.get("CLAUDE_CODE_TMPDIR") or "/tmp"
        rule = os.path.join(base, SOCKETS)
        self.look()
        live = sorted(self._socket_folders, key=lambda folder: -self._socket_folders[folder])
        first = [rule] if rule in live else live[:1]
        return list(dict.fromkeys((*first, rule, f"/tmp/{SOCKETS}-{os.geteuid()}")))

    def publish(self, record: Record, path: str, token: str) -> None:
        """See the port: the key first, so that who finds the record can show it."""
        files.private_folder(self.folder)
        file = f"{self.folder}/{record.pid}.json"
        self._check_free(file, record)
        proof = {"peerToken": token, "procStart": record.proc_start, "pidDomain": record.pid_domain}
        files.write_atomic(self._key_file(record.pid, path), dumps(proof), sync=False)
        # Losing it with the machine's power does no harm: then its process is gone as well.
        files.write_atomic(file, dumps(published(record, path)), sync=False)

    def _check_free(self, file: str, record: Record) -> None:
        """Refuses to replace the record of anybody else who may live; UnfitPath says so (05.10)."""
        try:
            there = parse(os.path.basename(file), files.read_private(file, MAX_RECORD, readable=True))
        except FileNotFoundError:
            return
        except BadFrame:
            raise UnfitPath(file, "something that is no record lies there", "Remove it.") from None
        if (there.pid, there.start) == (record.pid, record.proc_start) and there.ours:
            return
        if self._runs(there) is not False:
            raise UnfitPath(file, "a session of another program is registered there")

    def withdraw(self, record: Record, path: str) -> None:
        """See the port."""
        file = f"{self.folder}/{record.pid}.json"
        with suppress(OSError, UnfitPath, BadFrame):
            there = parse(os.path.basename(file), files.read_private(file, MAX_RECORD, readable=True))
            if there.ours and (there.pid, there.start) == (record.pid, record.proc_start):
                os.unlink(file)
        for left in (self._key_file(record.pid, path), path):
            with suppress(OSError):
                os.unlink(left)

    def sweep_own(self) -> None:
        """See the port: `look` does it."""
        self.look()

    def _sweep(self, name: str, record: Claimed) -> None:
        """Removes what a session of ours left there whose process is provably gone."""
        path = record.found.path
        with suppress(OSError):
            os.unlink(f"{self.folder}/{name}")
        with suppress(OSError):
            os.unlink(self._key_file(record.pid, path))
        # The path is a claim: nothing is removed but a socket named by that pid at which nobody listens.
        named = os.path.basename(path).removesuffix(".sock").partition("-")[0] == str(record.pid)
        if named and self.near(path) and not unfit_socket(path) and not answers(path):
            with suppress(OSError):
                os.unlink(path)


# ── lines and sockets ────────────────────────────────────────────────────────────────────────────


def user_line(frame: UserFrame, own: str) -> bytes:
    """A message of ours in its canonical form: the envelope under our address there, no field of ours (facts B5)."""
    from postroom.core import envelope, wire

    said = envelope.parse_wire(frame.message.content)
    content = frame.message.content
    if said.attested:
        content = envelope.wire_form(
            frame.text if frame.text is not None else said.body,
            address=own or None,
            hop_chain=said.hop_chain,
            name=said.name,
            mode=said.mode,
        )
    # No guard: it would name the conversation as it was, and a changed one drops the message unsaid (facts B5).
    return wire.encode_user(
        msg_id=frame.msg_id or "",
        content=content,
        address=own or None,
        priority="later" if frame.priority == "later" else "next",
    )


def control_line(frame: ControlFrame, own: str) -> bytes:
    """A receipt, a subscription or an idle notice of ours, from our address there (facts B6)."""
    from postroom.core import wire

    return wire.encode_control(
        wire.ControlFrame(
            action=frame.action,
            msg_id=frame.msg_id,
            from_=own,
            orig_msg_id=frame.orig_msg_id,
            status=frame.status,
            reason=frame.reason,
            status_detail=frame.status_detail,
            drop_reason=frame.drop_reason,
            dropped_msg_ids=frame.dropped_msg_ids,
            from_mode=frame.from_mode,
            state=frame.state,
            finished_at=frame.finished_at,
            detail=frame.detail,
        )
    )


def unfit_socket(path: str) -> str:
    """Why a socket must not be connected to (05.6); empty where it may."""
    try:
        files.check_file(path, socket=True)
    except FileNotFoundError:
        return "its socket is not there"
    except UnfitPath as error:
        return f"its socket must not be used: {error.path}: {error.reason}"
    return ""


def answers(path: str) -> bool:
    """Whether somebody listens at a socket: a connect that does not wait; a full backlog is a listener too."""
    # The module beneath `socket`: a list of who is there is a process of its own (12.17).
    import _socket

    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        return sock.connect_ex(path) in (0, errno.EAGAIN, errno.EBUSY, errno.EINPROGRESS)
    finally:
        sock.close()


def free_path(folder: str, pid: int) -> str:
    """The name of a socket in a folder at which no other one lives; UnfitPath where its path would be too long."""
    stem = str(pid)
    for _ in range(TRIES):
        path = f"{folder}/{stem}.sock"
        if len(os.fsencode(path)) > MAX_PATH:
            raise UnfitPath(folder, f"a socket in it would have a path of more than {MAX_PATH} bytes")
        try:
            taken = stat.S_ISSOCK(os.lstat(path).st_mode) and answers(path)
        except OSError:
            taken = False
        if not taken:
            return path
        stem = f"{pid}-{os.urandom(4).hex()}"
    raise UnfitPath(folder, "live sockets have the names that this process may use")
