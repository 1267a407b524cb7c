"""A box for programs of other people: no network but this machine's own, no sight of other processes, its own /tmp.

`enter` starts a command in new network, mount and pid namespaces and waits for it. The command, and all that it starts,
sees a loopback that nobody else is on, an empty /tmp, a few variables, and no process but its own. Whatever is still
running when the command ends is killed by the kernel.

What lies below /tmp and has to be seen inside is named (`shown`). The first process of the box stays in it to bury
what others leave behind, as the first process of a machine does: without it the dead would look alive.

How it fails: without root, or without one of the programs that are needed, a sentence and exit code 2.

What is weak: it is no sandbox. The rest of the file system is there as it is, and root inside is root outside.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["enter"]

TMP = Path("/tmp")
NEEDED = ("unshare", "mount", "tmux")
"""What a machine has to have: the first two are util-linux."""

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def enter(command: Sequence[str], environ: Mapping[str, str], shown: Sequence[Path] = ()) -> int:
    """Runs a command in a box of its own; returns its exit code.

    Args:
        command: what runs; its folder is the present one.
        environ: all the variables that it has.
        shown: folders that it must see; those that lie below /tmp would be hidden otherwise.
    """
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        why = f"there is no {' and no '.join(missing)}" if missing else "that needs root"
        print(f"The clients run in namespaces and terminals of their own, and {why}.", file=sys.stderr)
        return 2
    scratch = Path(tempfile.mkdtemp(prefix="postroom-box-", dir="/var/tmp"))
    scratch.chmod(0o1777)
    below = [str(path) for path in shown if path.is_relative_to(TMP)]
    inside = [sys.executable, "-m", "tests.clients.box", str(scratch), *below, "--", *command]
    try:
        return subprocess.run(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", *inside],
            env=environ,
            check=False,
        ).returncode
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def furnish(scratch: Path, shown: Sequence[Path]) -> None:
    """Makes the box out of new namespaces: its own /tmp, and a loopback that is up."""
    _mount("--make-rprivate", "/")
    for path in shown:
        inside = scratch / path.relative_to(TMP)
        inside.mkdir(parents=True, exist_ok=True)
        _mount("--rbind", str(path), str(inside))
    _mount("--rbind", str(scratch), str(TMP))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", asked)[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def attend(command: Sequence[str]) -> int:
    """Starts a command and buries every process that ends without a parent, until the command itself has ended."""
    started = os.posix_spawnp(command[0], list(command), dict(os.environ))
    while True:
        pid, status = os.wait()
        if pid == started:
            return os.waitstatus_to_exitcode(status)


def main(words: Sequence[str]) -> int:
    """The first process of the box: SCRATCH [SHOWN…] -- COMMAND…"""
    places, command = words[: words.index("--")], words[words.index("--") + 1 :]
    furnish(Path(places[0]), [Path(place) for place in places[1:]])
    return attend(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
