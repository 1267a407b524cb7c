"""Where each scope's settings file lies, whether it can be trusted, and the JSON in it (03.24 to 03.28, 03.34).

WHERE. `/etc/postroom/settings.json` (managed); what `--settings` names (flag); `$XDG_CONFIG_HOME/postroom/settings.json`,
else the same below `~/.config` (user); `.postroom/settings.json` (project) and `.postroom/settings.local.json`
(local), in the working directory and in the root of its repository.

WHAT IS READ. A regular file of at most 1 MiB that belongs to us or to root and that others cannot write. A group may
write it that nobody else is in, as many systems make one for each user. The managed file may be no symlink, the others
may. No folder above the managed and the user's file may be one in which others can write, sticky ones apart.

What another user put into a folder that anybody may write to, such as /tmp, is none of the project's: it is left
alone, and does not count as unreadable. Else anybody could stop what comes in to a session that works there (11.11).

It never waits for a FIFO, opens a device, writes, or says what is to become of a file that cannot be read.

What is weak: access control lists are seen only as far as the kernel shows them in the mode.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from postroom.core.keys import OBJECTS, ROWS, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroom.core.keys import Scope

MANAGED = "/etc/postroom/settings.json"

SETTINGS_BYTES = 1_048_576
"""A larger file counts as unreadable (03.34)."""

REPOSITORY_MARKS = (".git", ".hg", ".jj")
"""What lies in the root of a repository."""

_REASONS = {
    errno.ELOOP: "it is a symlink, which is not followed here, or leads to itself",
    errno.EACCES: "this user may not open it",
    errno.EPERM: "this user may not open it",
    errno.ENAMETOOLONG: "the path is too long",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file.

    Attributes:
        scope: whose it is.
        path: where it lies.
        follow: it may be a symlink.
        guarded: the folders above it are judged too.
        shared: it may lie in a folder that anybody can write to.
    """

    scope: Scope
    path: str
    follow: bool = True
    guarded: bool = False
    shared: bool = False


class Found(NamedTuple):
    """What lies at a source.

    Attributes:
        what: nothing; a file's bytes; something that cannot be read; something that is not ours to heed.
        data: the bytes.
        reason: why it is not read, in a few words.
    """

    what: Literal["nothing", "bytes", "unreadable", "foreign"]
    data: bytes = b""
    reason: str = ""


# ---------------------------------------------------------------------------------------- where


def config_folder(environ: Mapping[str, str]) -> str | None:
    """The folder of this user's own settings (03.26); None where no home folder is known. It need not be there."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if base.startswith("/"):  # the standard has a relative one ignored
        return os.path.join(base, "postroom")
    home = environ.get("HOME") or _home()
    return os.path.join(home, ".config", "postroom") if home.startswith("/") else None


def _home() -> str:
    """The home folder that the user database names; empty where it knows none."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def repository_root(folder: str) -> str | None:
    """The root of the repository in which a folder lies, or which it is (03.27)."""
    here = os.path.realpath(folder)
    while True:
        if any(os.path.lexists(os.path.join(here, mark)) for mark in REPOSITORY_MARKS):
            return here
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above


def sources_of(cwd: str, environ: Mapping[str, str], managed: str, flag: str | None) -> list[Source]:
    """Lists all the files, in the order of the scopes; the working directory's before its repository's.

    Args:
        cwd: the working directory, absolute.
        environ: the environment that says where the user's file lies.
        managed: the path of the managed file.
        flag: the path that `--settings` named, absolute; None for none.
    """
    sources = [Source(scope="managed", path=managed, follow=False, guarded=True)]
    if flag is not None:
        sources.append(Source(scope="flag", path=flag))
    if folder := config_folder(environ):
        sources.append(Source(scope="user", path=os.path.join(folder, "settings.json"), guarded=True))
    root = repository_root(cwd)
    folders = [cwd] if root in (None, os.path.realpath(cwd)) else [cwd, root]
    names: tuple[tuple[Scope, str], ...] = (("project", "settings.json"), ("local", "settings.local.json"))
    for scope, name in names:
        sources += [
            Source(scope=scope, path=os.path.join(folder, ".postroom", name), shared=True)
            for folder in folders
        ]
    return sources


# ---------------------------------------------------------------------------------------- reading


def find(source: Source) -> Found:
    """Reads one file where it can be trusted (03.34). It never waits and never raises."""
    path = source.path
    try:
        if source.shared and (reason := _foreign(path)):
            return Found("foreign", reason=reason)
        # Before it is opened: opening a device does things.
        found = os.stat(path, follow_symlinks=source.follow)
        reason = _unfit(found)
        if source.guarded:
            reason = reason or _unguarded(path)
        return Found("unreadable", reason=reason) if reason else _read(source)
    except (FileNotFoundError, NotADirectoryError):
        for entry in (path, os.path.dirname(path)):
            if os.path.islink(entry) and not os.path.exists(entry):
                return Found("unreadable", reason=f"{entry} is a symlink to nothing")
        return Found("nothing")
    except OSError as error:
        reason = _REASONS.get(error.errno or 0) or error.strerror or "it cannot be read"
        return Found("unreadable", reason=reason)
    except ValueError:
        return Found("unreadable", reason="it is no path of this system")


def _read(source: Source) -> Found:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    fd = os.open(source.path, flags if source.follow else flags | os.O_NOFOLLOW)
    try:
        if reason := _unfit(os.fstat(fd)):
            return Found("unreadable", reason=reason)
        data = b""
        while len(data) <= SETTINGS_BYTES and (more := os.read(fd, SETTINGS_BYTES + 1 - len(data))):
            data += more
    finally:
        os.close(fd)
    if len(data) > SETTINGS_BYTES:
        return Found("unreadable", reason=_TOO_LARGE)
    return Found("bytes", data=data)


_TOO_LARGE = f"it is larger than {SETTINGS_BYTES:,} bytes"


def _unfit(found: os.stat_result) -> str:
    """Why a file is not read: the first that applies; empty where it may be."""
    rungs = (
        (stat.S_ISLNK(found.st_mode), _REASONS[errno.ELOOP]),
        (stat.S_ISDIR(found.st_mode), "it is a folder"),
        (not stat.S_ISREG(found.st_mode), "it is not a regular file"),
        (found.st_uid not in _owners(), f"it belongs to uid {found.st_uid}"),
        (_is_open(found), f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})"),
        (found.st_size > SETTINGS_BYTES, _TOO_LARGE),
    )
    return next((reason for applies, reason in rungs if applies), "")


def _unguarded(path: str) -> str:
    """Why the folders above a file let somebody else put another in its place; empty where they do not."""
    folder = os.path.dirname(os.path.realpath(path))
    while True:
        found = os.stat(folder)
        if found.st_uid not in _owners():
            return f"the folder {folder} belongs to uid {found.st_uid}"
        if _is_open(found) and not found.st_mode & stat.S_ISVTX:
            return f"others may write in the folder {folder} (mode {stat.S_IMODE(found.st_mode):04o})"
        if folder == "/":
            return ""
        folder = os.path.dirname(folder)


def _foreign(path: str) -> str:
    """Why a project's file is none of the project's: another user put it, or its folder, where anybody may."""
    for entry in (os.path.dirname(path), path):
        owner = os.lstat(entry).st_uid
        if owner not in _owners() and _is_open(os.stat(os.path.dirname(entry))):
            return f"uid {owner} has put {entry} into a folder that others may write to"
    return ""


def _owners() -> tuple[int, int]:
    return 0, os.geteuid()


def _is_open(found: os.stat_result) -> bool:
    """Whether others may write to it; a group that nobody else is in is not others."""
    mode = found.st_mode
    return bool(mode & stat.S_IWOTH) or bool(mode & stat.S_IWGRP and not _is_own_group(found.st_gid))


def _is_own_group(gid: int) -> bool:
    """Whether a group is this user's alone, as many systems make one for each user: of the same name, with nobody else."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return (user.pw_gid, user.pw_name) == (gid, group.gr_name) and set(group.gr_mem) <= {user.pw_name}


# ---------------------------------------------------------------------------------------- parsing


class Senseless(Exception):
    """Why bytes are no JSON, in a few words."""


def parsed(data: bytes) -> dict[str, object]:
    """Reads a JSON object, as strictly as a file deserves that decides what comes in: no key twice, no NaN.

    Raises Senseless, whose words show nothing of what the bytes hold but known keys.
    """
    try:
        content: object = json.loads(
            data.decode("utf-8-sig"), object_pairs_hook=_pairs, parse_constant=_no_constant
        )
        if isinstance(content, dict):
            return cast("dict[str, object]", content)
        reason = f"it holds {shown(content)} and no object of settings"
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except json.JSONDecodeError as error:
        reason = f"it is no JSON: {error.msg}, line {error.lineno}, column {error.colno}"
    except RecursionError:
        reason = "it lies too deep in itself"
    except ValueError:
        reason = "it is no JSON: a number that is none"
    raise Senseless(reason if data.strip() else "it is empty")


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    taken = dict(pairs)
    if len(taken) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next((name for name in KNOWN if names.count(name) > 1), "")
        raise Senseless(f"it has the same key twice{f', {twice}' if twice else ''}")
    return taken


KNOWN = sorted({*OBJECTS, *(name.rpartition(".")[2] for name in ROWS)})
"""Keys whose names are no secret."""


def _no_constant(word: str) -> object:
    raise ValueError(word)
