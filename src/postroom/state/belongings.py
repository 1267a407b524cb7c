"""What lies beside a session's record: the key file, the file that leads from its client, its sockets (05.29).

It writes, reads and removes these, given the registry's folder, and decides whether one is left over. It
never touches a record, and removes a socket only where the path is one that we would have chosen, in a folder
that passes, and nobody listens.

How it fails: `StoreFailed` where something cannot be written. What cannot be read counts as absent, what
cannot be removed stays.

What is weak: a process that has bound its socket and does not listen yet looks like a dead one for that
instant; `Roster.free_stem` sweeps what a process of that pid left before that, so nobody comes to look.
"""

from __future__ import annotations

import json
import os
import time
from hashlib import sha256
from typing import TYPE_CHECKING, cast

from postroom.errors import UnfitPath
from postroom.state import files, processes
from postroom.state.places import leave_socket_folder
from postroom.state.record import CLIENT_FILE, TALK_FILE, is_session_id, pid_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroom.state.record import Record

MAX_SMALL = 65_536
"""Bytes of a key file or a client file; ours have 200, and 37 a session."""

TEMPORARY_SECONDS = 600
"""The age of a temporary file whose writer was surely killed: writing one takes milliseconds."""

CTL = ".ctl.sock"
"""The ending of a control socket; its beginning is the inbox's without `.sock` (05.26)."""


def unlink(path: str) -> None:
    """Removes a file if it can be removed."""
    try:
        os.unlink(path)
    except OSError:
        pass


# ── the key file ─────────────────────────────────────────────────────────────────────────────────


def key_name(pid: int, socket_path: str) -> str:
    """How the file with the peer token is called: `<pid>.<sha256 of the socket path as written>.key`."""
    return f"{pid}.{sha256(socket_path.encode()).hexdigest()}.key"


def write_key(sessions: str, pid: int, socket_path: str, token: str) -> None:
    """Writes the key file of a process of this pid namespace. Raises StoreFailed."""
    key = {
        "peerToken": token,
        "procStart": processes.start_of(pid) or "",
        "pidDomain": processes.pid_domain(),
    }
    files.write_atomic(os.path.join(sessions, key_name(pid, socket_path)), json.dumps(key).encode())


def read_key(path: str) -> dict[str, str]:
    """The texts in a key file; none where it cannot be read."""
    try:
        raw: object = json.loads(files.read_private(path, MAX_SMALL).decode())
    except (FileNotFoundError, UnfitPath, ValueError, RecursionError):
        return {}
    if not isinstance(raw, dict):
        return {}
    fields = cast("dict[str, object]", raw)
    return {key: value for key, value in fields.items() if isinstance(value, str)}


def peer_token(sessions: str, record: Record) -> str | None:
    """The token of a record's key file, where that is of the same process (05.20)."""
    if record.messaging_socket_path is None:
        return None
    key = read_key(os.path.join(sessions, key_name(record.pid, record.messaging_socket_path)))
    return key.get("peerToken") if key.get("procStart") == record.proc_start else None


def key_left_over(path: str, pid_domain: str) -> bool:
    """Whether the process that wrote a key file is provably gone."""
    pid = pid_of(os.path.basename(path).partition(".")[0])
    key = read_key(path)
    if pid is None or key.get("pidDomain") != pid_domain:
        return False
    return processes.alive(pid, key.get("procStart", "")) is False


# ── the client's file ────────────────────────────────────────────────────────────────────────────


def client_name(pid: int, start: str) -> str:
    """How the file that leads from a client to its sessions is called: `client-<pid>-<start>` (05.29)."""
    return f"{CLIENT_FILE}{pid}-" + "".join(each if each.isalnum() else "_" for each in start)


def client_of(record: Record) -> str | None:
    """The name of a record's client's file; None for a record without one."""
    return None if record.client_pid is None else client_name(record.client_pid, record.client_start or "")


def sessions_in(path: str) -> tuple[str, ...]:
    """The session ids in a client's file, the newest first; none where it cannot be read."""
    try:
        lines = files.read_private(path, MAX_SMALL).decode().split("\n")
    except (FileNotFoundError, UnfitPath, UnicodeDecodeError):
        return ()
    return tuple(line for line in lines if is_session_id(line))


def add_to_client(sessions: str, record: Record, lives: Callable[[str], bool]) -> None:
    """Writes a session into its client's file, before the others that live. Raises StoreFailed."""
    name = client_of(record)
    if name is None:
        return
    path = os.path.join(sessions, name)
    others = (other for other in sessions_in(path) if other != record.session_id and lives(other))
    _write_ids(path, (record.session_id, *others))


def drop_from_client(sessions: str, record: Record) -> None:
    """Takes a session out of its client's file; the last one takes the file with it. Raises StoreFailed."""
    name = client_of(record)
    if name is None:
        return
    path = os.path.join(sessions, name)
    there = sessions_in(path)
    rest = tuple(other for other in there if other != record.session_id)
    if not rest:
        unlink(path)
    elif rest != there:
        _write_ids(path, rest)


def _write_ids(path: str, ids: tuple[str, ...]) -> None:
    files.write_atomic(path, "".join(f"{each}\n" for each in ids).encode(), sync=False)


def talk_name(client: str, conversation: str) -> str | None:
    """How the file is called that leads from a client's conversation to its session (09.11).

    None for an id of a conversation that could be no file's name.
    """
    return f"{TALK_FILE}{client}-{conversation}" if is_session_id(conversation) else None


def talk_session(sessions: str, client: str, conversation: str) -> str | None:
    """The session of a client's conversation, as its presence wrote it down; None: none did."""
    name = talk_name(client, conversation)
    return next(iter(sessions_in(os.path.join(sessions, name))), None) if name else None


def write_talk(sessions: str, client: str, conversation: str, session_id: str) -> None:
    """Writes down which session a client's conversation is. Raises StoreFailed."""
    name = talk_name(client, conversation)
    if name is not None:
        _write_ids(os.path.join(sessions, name), (session_id,))


def drop_talk(sessions: str, client: str, conversation: str, session_id: str) -> None:
    """The session has ended, or has another conversation. What somebody else wrote there stays."""
    name = talk_name(client, conversation)
    if name is not None and talk_session(sessions, client, conversation) == session_id:
        unlink(os.path.join(sessions, name))


# ── what is left over ────────────────────────────────────────────────────────────────────────────


def left_over(path: str, pid_domain: str, listed: set[str], lives: Callable[[str], bool]) -> bool:
    """Says whether a file that no record accounts for was left by a process that is gone.

    Args:
        path: a key file, a client's file or a temporary file; anything else is left alone.
        pid_domain: ours: of another's processes nothing can be known.
        listed: the sessions that have a record, which names another client.
        lives: whether a session lives, published or about to be.
    """
    name = os.path.basename(path)
    if name.endswith(".key"):
        return key_left_over(path, pid_domain)
    if files.is_temporary(name):
        try:
            return os.lstat(path).st_mtime + TEMPORARY_SECONDS < time.time()
        except OSError:
            return False
    if name.startswith(TALK_FILE):
        return not any(map(lives, sessions_in(path)))
    if not name.startswith(CLIENT_FILE):
        return False
    return all(each in listed or not lives(each) for each in sessions_in(path))


# ── the sockets ──────────────────────────────────────────────────────────────────────────────────


def unreachable(record: Record, folders: dict[str, str]) -> str:
    """Says why the socket that a record names cannot be used from here; empty when it can, or there is none.

    Args:
        record: any record; the path in it is a claim.
        folders: what is known of folders that were checked in this look, folder → reason; grows.
    """
    path = record.messaging_socket_path
    if path is None:
        return ""
    folder = os.path.dirname(path)
    if folder not in folders:
        try:
            files.check_folder(folder)
            folders[folder] = ""
        except UnfitPath as error:
            folders[folder] = f"{error.path}: {error.reason}"
    if folders[folder]:
        return folders[folder]
    try:
        files.check_file(path, socket=True, folder=False)
    except FileNotFoundError:
        return f"{path}: nothing lies there"
    except UnfitPath as error:
        return f"{path}: {error.reason}"
    return ""


def remove_sockets(record: Record) -> None:
    """Removes the sockets of a dead session, and the folder that was made for them alone."""
    path = record.messaging_socket_path
    if path is None:
        return
    for each in (path, path.removesuffix(".sock") + CTL):
        if _is_stale(each, record.pid):
            unlink(each)
    leave_socket_folder(os.path.dirname(path))


def _is_stale(path: str, pid: int) -> bool:
    """Whether a path is a socket that a session of this pid made, and nobody listens at."""
    if pid_of(os.path.basename(path).removesuffix(".sock").removesuffix(".ctl")) != pid:
        return False
    try:
        files.check_file(path, socket=True)
    except (FileNotFoundError, UnfitPath):
        return False
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
