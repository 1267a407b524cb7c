"""The files of other programs: read with care, written all or none, each as a whole.

A symlink is followed: what it points to is edited, and the link stays. Whoever owned a file owns it afterwards, with the
same mode. What was there is kept first, beside the sessions (`backups` in the state folder, 0600).

How it fails: `Refused`, and no file is other than before. If a later one cannot be written, those that were are put
back. A file that is not what it was when it was read is not written over.

What is weak: between the last look at a file and its replacement lies an instant in which another program may write it.
A hard link is not kept, nor are extended attributes.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.console.setting_up.refused import Refused
from postroom.errors import PostroomError
from postroom.state import files as state_files
from postroom.state import places

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_CONFIG = 16_777_216
"""Bytes of a file that is read: programs keep histories in them, of some megabytes."""

LEFT_SECONDS = 600
"""The age of a temporary file whose writer was surely killed: it lives for milliseconds."""

BACKUPS = "backups"
"""The folder, in the state folder, that keeps what was there before."""

OURS = "postroom"
"""How the backup of a file of Postroom's own is labelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file as it was read.

    Attributes:
        path: as it is called.
        target: where it lies, behind every symlink.
        data: what is in it; None where there is no file.
        found: what the system says of it; None where there is no file.
    """

    path: str
    target: str
    data: bytes | None
    found: os.stat_result | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What becomes of a file: other content, or None for no file."""

    file: File
    data: bytes | None


def read(path: str) -> File:
    """Reads a file whole; one that is not there too. Raises Refused."""
    target = os.path.realpath(path)
    try:
        if os.path.lexists(path) and not os.path.exists(path):
            raise Refused(f"{path} is a symlink to nothing.", f"Make {target}, or remove the link.")
        fd = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return File(path=path, target=target, data=None, found=None)
    except OSError as error:
        raise Refused(f"{path} cannot be read ({error.strerror}).") from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Refused(f"{path} is no regular file.")
        data = b""
        while len(data) <= MAX_CONFIG and (more := os.read(fd, MAX_CONFIG + 1 - len(data))):
            data += more
    except OSError as error:
        raise Refused(f"{path} cannot be read ({error.strerror}).") from error
    finally:
        os.close(fd)
    if len(data) > MAX_CONFIG:
        raise Refused(f"{path} is larger than {MAX_CONFIG:,} bytes.")
    return File(path=path, target=target, data=data, found=found)


def check(file: File) -> None:
    """Checks that a file may be written: ours, not read-only, in a folder that lets us. Raises Refused."""
    if file.found is not None:
        if file.found.st_uid != os.geteuid():
            raise Refused(
                f"{file.path} belongs to uid {file.found.st_uid}, and this is uid {os.geteuid()}.",
                "Run this as the user whose file it is.",
            )
        if not file.found.st_mode & stat.S_IWUSR:
            raise Refused(f"{file.path} is read-only.", f"Run `chmod u+w {file.target}` first.")
    folder = os.path.dirname(file.target)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise Refused(f"{file.path} cannot be written: {folder} is no folder.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Refused(f"{file.path} cannot be written: this user may not write in {folder}.")


def write(
    edits: Sequence[Edit], label: str, environ: Mapping[str, str], *, own: Sequence[str] = ()
) -> list[str | None]:
    """Writes all of the files, or none.

    Args:
        edits: each with what it shall be.
        label: whose configuration it is, for the names of the backups.
        environ: where the state folder lies.
        own: those of the files that are Postroom's, whose backups are called so.

    Returns the path of each file's backup, None where there was no file. Raises Refused.
    """
    for edit in edits:
        check(edit.file)
        _sweep(os.path.dirname(edit.file.target))
    backups = [_keep(edit.file, OURS if edit.file.path in own else label, environ) for edit in edits]
    temporary: list[str | None] = []
    done: list[Edit] = []
    try:
        for edit in edits:
            temporary.append(_prepared(edit))
        for edit in edits:
            _unchanged(edit.file)
        for at, edit in enumerate(edits):
            _unchanged(edit.file)
            _put(edit.file.target, temporary[at])
            temporary[at] = None
            done.append(edit)
    except BaseException as error:
        for path in filter(None, temporary):
            os.unlink(path)
        left = [edit.file.path for edit in reversed(done) if not _put_back(edit)]
        if not isinstance(error, OSError):
            raise
        name = edits[len(done)].file.path
        state = (
            f"{', '.join(left)} could not be put back: the backup has it." if left else "Nothing is changed."
        )
        raise Refused(f"{name} could not be written ({error.strerror}). {state}") from error
    return backups


def _sweep(folder: str) -> None:
    """Removes what one that was killed while it wrote has left in a folder."""
    try:
        names = [name for name in os.listdir(folder) if state_files.is_temporary(name)]
    except OSError:
        return
    for path in (os.path.join(folder, name) for name in names):
        try:
            found = os.lstat(path)
            if found.st_uid == os.geteuid() and found.st_mtime + LEFT_SECONDS < time.time():
                os.unlink(path)
        except OSError:
            pass  # it stays, and harms nobody


def _keep(file: File, label: str, environ: Mapping[str, str]) -> str | None:
    """Keeps what is in a file."""
    if file.data is None:
        return None
    name = f"{time.strftime('%Y%m%dT%H%M%S')}-{label}-{os.path.basename(file.path).lstrip('.')}"
    try:
        folder = os.path.join(places.needed_state_folder(environ)[0], BACKUPS)
        state_files.private_folder(folder)
        path, number = os.path.join(folder, name), 1
        while os.path.lexists(path):
            number += 1
            path = os.path.join(folder, f"{name}.{number}")
        state_files.write_atomic(path, file.data)
    except PostroomError as error:
        raise Refused(
            f"The backup of {file.path} cannot be written: {error.message} Nothing is changed.", error.hint
        ) from error
    return path


def _prepared(edit: Edit) -> str | None:
    """Writes what a file shall be beside it; None where there shall be none."""
    if edit.data is None:
        return None
    found, folder = edit.file.found, os.path.dirname(edit.file.target)
    os.makedirs(folder, 0o700, exist_ok=True)
    path = os.path.join(folder, state_files.temporary_name())
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as opened:
            opened.write(edit.data)
            if found is not None:
                if os.fstat(fd).st_gid != found.st_gid:
                    os.chown(path, -1, found.st_gid)
                os.fchmod(fd, stat.S_IMODE(found.st_mode))
            opened.flush()
            os.fsync(fd)
    except BaseException:
        os.unlink(path)
        raise
    return path


def _unchanged(file: File) -> None:
    """Checks that a file is what it was when it was read. Raises Refused."""
    try:
        now = read(file.path)
    except Refused:
        now = None
    if now is None or (now.target, now.data) != (file.target, file.data):
        raise Refused(
            f"{file.path} was changed meanwhile. Nothing is changed here.", "Run the command again."
        )


def _put(target: str, prepared: str | None) -> None:
    """Puts what was prepared in a file's place, or takes the file away."""
    if prepared is None:
        os.unlink(target)
    else:
        os.replace(prepared, target)


def _put_back(edit: Edit) -> bool:
    """Makes a file again what it was before; False where that fails."""
    try:
        before = edit.file
        _put(before.target, _prepared(Edit(file=before, data=before.data)))
    except OSError:
        return False
    return True
