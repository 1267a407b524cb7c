"""One request to a session's control socket, over C modules alone.

The short way of the command line (10.21): it hands the arguments to the process that owns the inbox, which
parses, answers and renders; what comes back are bytes for stdout and stderr and an exit code. It decides
nothing, imports nothing of ours and loads no module that the interpreter has not compiled in or as an
extension (12.16).

`main` answers None for everything that needs more than this: another command, no session, a socket that
does not answer. The whole command line takes over then and says what is wrong.

The exchange, one connection a command:

    → {"type":"auth","token":"…"}\\n
    → {"argv":["send","bob","…"],"stdin":"…"}\\n
    ← KIND EXIT OUT ERR\\n, then OUT bytes for stdout and ERR bytes for stderr

KIND is `part` (more follows), `confirm` (print it, then say `ok\\n`: only now do the messages count as
taken, 11.1) or `done`. The first frame comes at once and says that the request was taken; the answer comes in
its own time. A process that does not even say that hangs, and the command does not wait for it.
"""

from __future__ import annotations

import posix
import sys

try:
    import _socket as sockets
    from _json import encode_basestring as quote
except ImportError:  # another interpreter: the plain modules do, more slowly
    import socket as sockets
    from json.encoder import encode_basestring as quote

SO_PEERCRED: int = getattr(sockets, "SO_PEERCRED", 0)
"""Zero on a system without it; the folder's mode is then what keeps others out (05.6)."""

SESSION_COMMANDS = (
    *("send", "inbox", "wait", "held", "approve", "deny", "explain", "rules"),
    *("status", "rename", "list", "peers", "log", "trace", "doors", "task"),
)
"""The commands that a session answers for itself. `close` is none: it waits until the session is gone."""

MAX_STDIN = 4_194_304
"""Bytes of standard input that are handed over: any message fits, four bytes a character (01.19). Of more, only how
many characters they are."""

CONTINUED = bytes(range(0x80, 0xC0))
"""The bytes of UTF-8 that continue a character: the others count."""

ANSWER_SECONDS = 5.0
"""Until the session's process has said that it took the request; it answers in its own time (`wait`)."""

INSIDE = "inside-"
"""How the token begins of an agent or an observer inside a session (06.14): whoever has one speaks as that one alone."""

FILE, FOLDER, SOCKET = 0o100000, 0o040000, 0o140000
"""Kinds of file, as the mode of each says them."""

SEND_VALUES = ("--summary", "--in-reply-to", "--msg-id", "--wait-reply")
"""The options of `send` that take the next word."""

HOW_BACK = "`postroom list` shows who is there; `postroom open --resume ID` brings one back with its mail."
"""The next step where a session has gone."""

PROGRAM_ENDED = "The program that ran this agent has ended. Let it start again and start this agent anew."
"""The next step of an agent whose host has gone: its session is not this process's to bring back (05.26)."""

ANCESTORS = 32
"""How far up a caller's session is looked for (05.25)."""


class Unanswered(Exception):
    """The session's process closed the connection, or cannot be reached."""


class Interrupted(Unanswered):
    """The session's process took the request and ended before it had answered."""


class Unread(Exception):
    """Standard input is closed, or is nothing that can be read."""


def main(argv: list[str]) -> int | None:
    """Hands one command over to its session.

    Args:
        argv: the command line without the program's name.

    Returns the exit code, or None where the whole command line has to decide (no session is meant, the
    command is another, …).
    """
    keep_closed()
    session, rest = split_session(argv)
    if not rest or rest[0] not in SESSION_COMMANDS:
        return None
    try:
        found = locate(session, posix.environ)
        line = dial(found[0]) if found else None
    except (UnicodeError, Unanswered):
        return None
    except KeyboardInterrupt:
        return 130
    return hand_over(line, found[1], rest) if line and found else None


def hand_over(line: sockets.socket, token: str, argv: list[str]) -> int:
    """Runs one command over an open connection to the process that answers it, and closes that.

    Args:
        line: from `dial`.
        token: a token of the session.
        argv: the command and its arguments, `--session` taken out.

    Returns the exit code. What goes wrong on the way is said here.
    """
    try:
        return converse(line, compose(token, argv, standard_input(argv)))
    except UnicodeError:
        complain(argv, "usage", "The text is not UTF-8.", "Convert it to UTF-8 and send it again.")
        return 2
    except Unread:
        complain(
            argv,
            "usage",
            "Standard input cannot be read.",
            "Give it a file or a pipe, or give the text itself.",
        )
        return 2
    except Interrupted:
        if argv[0] != "send":
            ended(token, argv)
        else:
            complain(
                argv,
                "unknown",
                "The session took the message and ended before it was known whether it left.",
                f"It may have arrived. {PROGRAM_ENDED}"
                if token.startswith(INSIDE)
                else "It may have arrived. `postroom log` of that session, once it is back, shows its id and what became of it.",
            )
        return 1
    except Unanswered:
        ended(token, argv)
        return 1
    except TimeoutError:
        complain(
            argv,
            "timeout",
            "The session's process does not answer.",
            "It hangs or was stopped: whoever runs it must let it go on."
            if token.startswith(INSIDE)
            else "It hangs or was stopped: let it go on, or end it and bring it back with `postroom open --resume ID`.",
        )
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        line.close()


def ended(token: str, argv: list[str]) -> None:
    """Says that the session ended before it had answered, and what whoever showed this token does next."""
    inside = token.startswith(INSIDE)
    complain(
        argv,
        "not_your_session" if inside else "no_session",
        "The session ended before it had answered.",
        PROGRAM_ENDED if inside else HOW_BACK,
    )


def keep_closed() -> None:
    """Sees to it that nothing is opened in the place of a standard stream that the caller has closed.

    It can still not be read or written, so the command says so, or ends with 1 for what it could not print.
    """
    for fd, useless in ((0, posix.O_WRONLY), (1, posix.O_RDONLY), (2, posix.O_RDONLY)):
        try:
            posix.fstat(fd)
        except OSError:
            posix.open("/dev/null", useless)


def split_session(argv: list[str]) -> tuple[str | None, list[str]]:
    """Takes `--session NAME` out of the arguments; after a bare `--` everything is text (10.38).

    Returns the name or id, or None, and the command with its arguments. `--json` before the command is
    moved behind it.
    """
    session: str | None = None
    rest: list[str] = []
    moved: list[str] = []
    i = 0
    while i < len(argv):
        word = argv[i]
        if word == "--":
            rest += argv[i:]
            break
        if word == "--session" and i + 1 < len(argv):
            session = argv[i + 1]
            i += 2
            continue
        if word.startswith("--session="):
            session = word[10:]
        elif word == "--json" and not rest:
            moved.append(word)
        else:
            rest.append(word)
        i += 1
    if moved and rest:
        rest[1:1] = moved
    return session, rest or moved


def wants_input(argv: list[str]) -> bool:
    """Whether `send` is to read its text from standard input: a `-` stands where the text is taken (10.2).

    The same answer as the whole grammar gives (`arguments.parse`); a test holds them together.
    """
    places = 0
    value = True  # the next word belongs to the one before it: the command itself
    for word in argv if argv[0] == "send" else ():
        if value:
            value = False
        elif word == "--":
            return False
        elif word in SEND_VALUES:
            value = True
        elif word == "-" or word[:1] != "-" or len(word.partition("=")[0].split()) > 1 or word[1:2].isspace():
            places += 1
            if places == 2:
                return word == "-"
    return False


def standard_input(argv: list[str]) -> str | int | None:
    """Reads stdin for `send TO -`: the text, its size in characters where it is over MAX_STDIN, or None.

    UnicodeError for what is not UTF-8, Unread where it cannot be read.
    """
    if not wants_input(argv):
        return None
    chunks: list[bytes] = []
    size = characters = 0
    try:
        while chunk := posix.read(0, 1_048_576):
            size += len(chunk)
            characters += len(chunk.translate(None, CONTINUED))
            if size <= MAX_STDIN:
                chunks.append(chunk)
    except OSError:
        raise Unread from None
    return b"".join(chunks).decode() if size <= MAX_STDIN else characters


# ── which session ────────────────────────────────────────────────────────────────────────────────


def state_folder(environ: dict[bytes, bytes]) -> str | None:
    """Where the state lies (05.2): `POSTROOM_HOME`, else below `XDG_STATE_HOME`, else below `HOME`."""
    if given := environ.get(b"POSTROOM_HOME"):
        return given.decode()
    if given := environ.get(b"XDG_STATE_HOME"):
        return given.decode() + "/postroom"
    if given := environ.get(b"HOME"):
        return given.decode() + "/.local/state/postroom"
    return None


def locate(session: str | None, environ: dict[bytes, bytes]) -> tuple[str, str] | None:
    """Finds the control socket of the session that is meant, and the token to show there (10.38).

    An agent or an observer of a session shows its own token, whichever session is meant: any other refuses it.

    Args:
        session: what `--session` named, if it did.
        environ: the process environment.

    Returns (path of the control socket, token), or None.
    """
    named = environ.get(b"POSTROOM_SESSION", b"").decode() or None if session is None else session
    path = environ.get(b"POSTROOM_SOCKET", b"").decode()
    token = environ.get(b"POSTROOM_TOKEN", b"").decode()
    given = session is None and token and path.endswith(".sock") and exists(path)
    if given and named is None:
        return path[:-5] + ".ctl.sock", token
    found = lying(named, environ)
    if not token.startswith(INSIDE):
        return found
    if found is not None:
        return found[0], token
    return (path[:-5] + ".ctl.sock", token) if given else None


def lying(session: str | None, environ: dict[bytes, bytes]) -> tuple[str, str] | None:
    """The same by what lies in the state folder; without a name it is the session of an ancestor."""
    state = state_folder(environ)
    if state is None or not closed_to_others(state):
        return None
    if session is None:
        session = of_ancestor(state)
        if session is None:
            return None
    return credentials(state, session) or credentials(state, holder(state, session))


def exists(path: str) -> bool:
    """Whether something lies at this path."""
    try:
        posix.lstat(path)
    except OSError:
        return False
    return True


def credentials(state: str, session_id: str | None) -> tuple[str, str] | None:
    """Reads a session's `client.token`: (path of its control socket, token), or None."""
    if not session_id or "/" in session_id or session_id.startswith("."):
        return None
    folder = f"{state}/sessions/{session_id}"
    if not (closed_to_others(f"{state}/sessions") and closed_to_others(folder)):
        return None
    lines = slurp(f"{folder}/client.token", private=True).split("\n")
    return (lines[1], lines[0]) if len(lines) > 1 and lines[0] and lines[1] else None


def holder(state: str, name: str) -> str | None:
    """Whose name this is: one read of the claim file (02.3)."""
    key = sha256_of(normal_form(name).encode())[:32]
    words = slurp(f"{state}/names/{key}", private=True).split()
    return words[0] if words else None


def sha256_of(data: bytes) -> str:
    """Its SHA-256 in hex, from the first module that has it: CPython moved the one in C (3.12)."""
    for module in ("_sha256", "_sha2", "hashlib"):
        try:
            return str(__import__(module).sha256(data).hexdigest())
        except ImportError:
            continue
    raise Unanswered


def normal_form(name: str) -> str:
    """The normal form of a name (02.5), the same as `core.address.normal_form`; a test holds them together."""
    if not name.isascii():
        from unicodedata import normalize

        name = normalize("NFKC", normalize("NFKC", name).casefold())
    for separator in "_.-":
        name = name.replace(separator, " ")
    return "-".join(name.lower().split() if name.isascii() else name.split())


def of_ancestor(state: str) -> str | None:
    """The session whose process, or whose client, is an ancestor of this process (10.38)."""
    pid = posix.getppid()
    for _ in range(ANCESTORS):
        if pid <= 1:
            return None
        stat = slurp(f"/proc/{pid}/stat")
        fields = stat[stat.rfind(")") + 2 :].split()
        if len(fields) < 20:
            return None
        start = fields[19]
        if client := slurp(f"{state}/sessions/client-{pid}-{start}", private=True).strip():
            return client
        record = slurp(f"{state}/sessions/{pid}.json", private=True)
        if record and value_of(record, "procStart") == start:
            # One of several in that process: the whole command line says so, and nothing is guessed here.
            several = [name for name in posix.listdir(f"{state}/sessions") if name.startswith(f"{pid}-")]
            return None if several else value_of(record, "sessionId")
        pid = int(fields[1])
    return None


def value_of(record: str, key: str) -> str | None:
    """The plain string value of a key in a record that our own roster wrote: no escapes in ids and starts."""
    parts = record.partition(f'"{key}":')[2].split('"', 2)
    return parts[1] if len(parts) == 3 and not parts[0].strip() else None


def is_private(found: posix.stat_result, kind: int) -> bool:
    """Whether what was looked at is of this kind, ours, and closed to everybody else (05.6)."""
    return found.st_mode & 0o170077 == kind and found.st_uid == posix.geteuid()


def closed_to_others(folder: str) -> bool:
    """Whether a folder is fit at first sight; what lies above it is for `state.files`, which names the reason."""
    try:
        return is_private(posix.lstat(folder), FOLDER)
    except OSError:
        return False


def slurp(path: str, *, private: bool = False) -> str:
    """The text of a small file, or an empty string; a private one must be a real file of ours alone (05.6)."""
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_NONBLOCK | posix.O_NOFOLLOW | posix.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if private and not is_private(posix.fstat(fd), FILE):
            return ""
        return posix.read(fd, 65536).decode()
    except (OSError, UnicodeError):
        return ""
    finally:
        posix.close(fd)


# ── the exchange ─────────────────────────────────────────────────────────────────────────────────


def compose(token: str, argv: list[str], stdin: str | int | None) -> bytes:
    """The two lines of a request. UnicodeError for an argument that is not UTF-8."""
    text = "null" if stdin is None else quote(stdin) if isinstance(stdin, str) else str(stdin)
    words = ",".join([quote(word) for word in argv])
    return f'{{"type":"auth","token":{quote(token)}}}\n{{"argv":[{words}],"stdin":{text}}}\n'.encode()


def dial(path: str) -> sockets.socket:
    """Connects to a control socket that a process of this user serves; Unanswered otherwise."""
    try:
        if not is_private(posix.lstat(path), SOCKET):
            raise Unanswered
    except OSError:
        raise Unanswered from None
    line = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    try:
        line.settimeout(ANSWER_SECONDS)
        line.connect(path)
        if SO_PEERCRED:
            peer = line.getsockopt(sockets.SOL_SOCKET, SO_PEERCRED, 12)
            if int.from_bytes(peer[4:8], sys.byteorder) != posix.geteuid():
                raise Unanswered
    except (OSError, Unanswered):
        line.close()
        raise Unanswered from None
    return line


def converse(line: sockets.socket, request: bytes) -> int:
    """Runs one request over an open connection and prints what the session answers.

    Returns the exit code; 1 where stdout could not be written: what was taken then goes back (11.1).
    Raises Unanswered where the connection ended before an answer was whole, TimeoutError where the request
    was not even taken.
    """
    try:
        line.sendall(request)
    except ConnectionError:
        pass  # a refusal may have been written before the whole request was read
    taken = False
    while True:
        try:
            kind, code, out, err = next_frame(line)
        except Unanswered:
            if taken:
                raise Interrupted from None
            raise
        taken = True
        line.settimeout(None)
        try:
            write(1, out)
            write(2, err)
        except BrokenPipeError:
            return 1
        except OSError:
            unwritten()
            return 1
        if kind == "done":
            return code
        if kind == "confirm":
            try:
                line.sendall(b"ok\n")
            except OSError:
                raise Interrupted from None


def answer_of(path: str, token: str, argv: list[str]) -> bytes:
    """What a session answers on stdout to a command that takes nothing. Raises Unanswered."""
    line = dial(path)
    try:
        line.sendall(compose(token, argv, None))
        out = b""
        while True:
            kind, _, more, _ = next_frame(line)
            out += more
            if kind == "done":
                return out
    except OSError:
        raise Unanswered from None
    finally:
        line.close()


def next_frame(line: sockets.socket) -> tuple[str, int, bytes, bytes]:
    """Reads one frame of an answer: (kind, exit code, bytes for stdout, bytes for stderr)."""
    buffer = b""
    while b"\n" not in buffer:
        buffer += receive(line, 1)
    kind, code, size, errors = buffer.split()
    wanted = int(size) + int(errors)
    body = b""
    while len(body) < wanted:
        body += receive(line, wanted - len(body))
    return kind.decode(), int(code), body[: int(size)], body[int(size) :]


def receive(line: sockets.socket, size: int) -> bytes:
    """At most `size` bytes of what comes next; Unanswered once the other end has gone."""
    try:
        data = line.recv(size)
    except ConnectionError:
        data = b""
    if not data:
        raise Unanswered
    return data


def write(fd: int, data: bytes) -> None:
    """Writes all of it; OSError where the reader has gone."""
    while data:
        data = data[posix.write(fd, data) :]


def unwritten() -> None:
    """Says that standard output could not be written; what the command did before that stays done."""
    try:
        write(
            2,
            b"postroom: standard output could not be written.\n"
            b"  What was taken waits again; what was sent stays sent: `postroom log` shows it.\n",
        )
    except OSError:
        pass


def complain(argv: list[str], code: str, message: str, hint: str) -> None:
    """Says an error as the whole command line would: with `--json` as a document, else in words (10.37)."""
    words = argv[: argv.index("--")] if "--" in argv else argv
    try:
        if "--json" in words:
            said = (
                f'"code": {quote(code)}, "message": {quote(message)}, "hint": {quote(hint)}, "candidates": []'
            )
            write(1, f'{{"error": {{{said}}}}}\n'.encode())
            write(2, f"{code}\n".encode())
        else:
            write(2, f"{code}\npostroom: {message}\n  {hint}\n".encode())
    except OSError:
        pass
