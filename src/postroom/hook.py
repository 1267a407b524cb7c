"""The short way of a client's hooks: `postroom hook CLIENT EVENT`, over C modules alone (09.12, 12.15, 12.16).

It finds the session of the client that runs it, hands over what the client says on standard input, and prints what that
session answers: the client's own JSON, or nothing. Like `ask`, on which it stands, it decides nothing about messages
and loads nothing that the interpreter does not have compiled in or as an extension.

WHICH SESSION. That of the client which started this process, and of no program further up: an agent that runs another
agent in its shell keeps its mail to itself, though the inner one has inherited its `POSTROOM_SESSION`. A client that is
an agent inside a program's session, by the token in its environment, has no session, and gets none. Above the
client's own process only its own launcher, and a shell in which a person has opened a session, may have one; the same
client above a shell is an agent that runs this one. `lineage.find` has the same rule, and a test holds the two together. Where the first event of a client finds no session, it starts one in the background.

It never fails a turn. Whatever happens, the exit code is 0, nothing half is printed, and after TURN_SECONDS it has
ended; why is a line in the log of the session, or of all hooks where there is none. The background hook `wake` apart:
it waits as long as its client lives, and ends with 2 once it has shown mail on standard error.

Weak: what was printed and not confirmed, because the time was up in between, is handed out once more, marked. Without
`/proc` no session is found.
"""

from __future__ import annotations

import os
import posix
import sys
import time

from postroom import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as signals
    from collections.abc import Iterable, Iterator, Mapping
else:
    import _signal as signals  # what `signal` is made of, without the enumerations that cost it its time

TURN_SECONDS = 5.0
"""The longest that a turn waits for its hook (09.12); the clients' own limits are longer."""

START_SECONDS = 5.0
"""How long the first event of a client waits for its session to be opened."""

LOOK_SECONDS = 60.0
"""How often a waiting `wake` looks whether its client lives: its session tells it at once, unless that was killed too."""

AGAIN_SECONDS = 5.0
"""How long `wake` looks for a session that has ended: an MCP server may be taking it over (09.11)."""

PAUSE_SECONDS = 0.1
"""Between two such looks."""

CLAIM_SECONDS = 15.0
"""How long a claim of `presence` counts."""

WAKE, WOKEN, MOVED = "wake", 2, 4
"""The background hook; the exit code with which it wakes its client; the code by which a session tells it that it ends."""

ATTENDED = b"CLAUDE_CODE_SESSION_ATTENDED"
"""Claude Code's word for whether somebody sits in front of it: 0 for `claude -p`."""

STARTERS = ("SessionStart", "sessionStart", "UserPromptSubmit", "BeforeAgent", "beforeSubmitPrompt", WAKE)
"""Events for which a session is started where there is none, or none any more (09.11)."""

ENDERS = ("SessionEnd", "sessionEnd")
"""Events at which the session may be gone already: the MCP server that was it ends with the same client."""

PROGRAMS = {
    "claude-code": ("claude", "claude.exe", "@anthropic-ai/claude-code"),
    "codex": ("codex", "@openai/codex"),
    "gemini-cli": ("gemini", "@google/gemini-cli"),
    "qwen-code": ("qwen", "@qwen-code/qwen-code"),
    "opencode": ("opencode", "opencode-ai"),
    "cursor": ("cursor", "cursor-agent", "Cursor"),
    "vscode": ("code", "Code", "code-insiders"),
    "generic": (),
}
"""By what each client's process is recognised, as its file in `clients` says."""

PID_VARIABLES = {"claude-code": "CLAUDE_PID", "opencode": "OPENCODE_PID"}
"""The variables in which a client says which process it is, as its file says."""

THREADS = ("codex",)
"""Clients whose processes may hold several conversations, each a session, as their files say."""

BETWEEN = (
    *("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "busybox", "tcsh", "csh"),
    *("env", "timeout", "setsid", "nohup", "uv", "uvx", "npx", "npm", "pipx"),
)
"""Programs that only stand between a client and its hook, as `presence` has them."""

MAX_LOG = 1_048_576
"""Bytes of a log; then it becomes the old one, of which one is kept (05.4)."""

_MAX_WORD = 60
"""Characters of an argument that a log repeats."""

ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
MAX_ID = 80
"""What the id of a conversation may be to name a file, as `state.record` has it."""


class TimeIsUp(Exception):
    """The hook has taken as long as it may."""


class Failed(Exception):
    """Nothing can be handed over; the argument says why."""


def main(argv: list[str]) -> int:
    """Runs one hook and returns its exit code, which is 0 whatever happens; 2 for `wake` that has shown mail.

    Args:
        argv: `hook`, the client, the event.
    """
    words = [*argv[1:3], "", ""]
    hook = Hook(words[0], words[1])
    try:
        why = ended(hook)
        _within(0.0)
        if why:
            hook.log(why)
    except BaseException:
        pass  # not even the log can be written
    return WOKEN if hook.woken else 0


def ended(hook: Hook) -> str:
    """Runs one hook to its end, and returns why nothing came of it; empty where all is well."""
    try:
        ask.keep_closed()
        signals.signal(signals.SIGALRM, _time_is_up)
        _within(TURN_SECONDS)
        hook.run()
    except Failed as failure:
        return str(failure)
    except (TimeIsUp, TimeoutError):
        return "the session does not answer in time"
    except ask.Unanswered:
        return "" if hook.event in ENDERS else "the session ended before it had answered"
    except OSError as error:
        return f"what the session answered could not be handed on: {error.strerror}"
    except BaseException as error:
        return type(error).__name__
    return ""


def _time_is_up(number: int, frame: object) -> None:
    raise TimeIsUp


def _within(seconds: float) -> None:
    """Has TimeIsUp raised once so many seconds have passed; 0 takes that back."""
    signals.setitimer(signals.ITIMER_REAL, seconds)


class Hook:
    """One call of a hook.

    Attributes:
        client, event: as the command line names them.
        state: the folder of all state; empty while it is not known.
        session: the id of the session; empty while it is not known.
        woken: something was shown to a client that is to be woken by it.
    """

    def __init__(self, client: str, event: str) -> None:
        self.client = client
        self.event = event
        self.state = ""
        self.session = ""
        self.woken = False

    def run(self) -> None:
        """Finds the session, hands the event over, prints the answer."""
        if self.event == WAKE and posix.environ.get(ATTENDED) == b"0":
            return  # a run that ends with its turn is never idle, and would wait for this hook
        said = standard_input()
        self.state = ask.state_folder(posix.environ) or ""
        if not self.state:
            raise Failed("no folder for state is known")
        conversation = conversation_of(said)
        connected = self.connected(conversation) or self.claimed(conversation)
        if connected is None and posix.environ.get(b"POSTROOM_TOKEN", b"").startswith(ask.INSIDE.encode()):
            return  # an agent inside another session: it is no session of its own
        if connected is None and self.event in STARTERS and self.client in PROGRAMS:
            self.start(conversation)
            connected = self.connected(conversation)
        if connected is None:
            if self.event in ENDERS:
                return
            raise Failed("this client has no session")
        if self.event == WAKE:
            self.watch(connected, conversation)
            return
        try:
            self.hand_over(connected, said)
        except ask.Unanswered:  # the session was just being handed over, and has not taken the event
            connected = self.claimed(conversation)
            if connected is None:
                raise
            self.hand_over(connected, said)

    def hand_over(self, connected: tuple[ask.sockets.socket, str], said: str | int) -> None:
        """Hands the event over on a connection, and prints the answer."""
        socket, token = connected
        try:
            self.converse(socket, ask.compose(token, ["hook", self.client, self.event], said))
        finally:
            socket.close()

    def claimed(self, conversation: str) -> tuple[ask.sockets.socket, str] | None:
        """A connection to the session that another process is just opening; None where none is (09.11)."""
        client = client_process(self.client, posix.environ)
        while client is not None and is_fresh(f"{self.state}/sessions/.claim-{client.pid}"):
            time.sleep(PAUSE_SECONDS)
            connected = self.connected(conversation)
            if connected is not None:
                return connected
        return None

    def connected(self, conversation: str) -> tuple[ask.sockets.socket, str] | None:
        """A connection to the session's process and the token to show; None where there is no live session."""
        self.session = session_of(self.state, self.client, conversation, upwards(), posix.environ) or ""
        found = ask.credentials(self.state, self.session)
        if found is None:
            return None
        try:
            return ask.dial(found[0]), found[1]
        except ask.Unanswered:
            return None

    # ── the exchange ─────────────────────────────────────────────────────────────────────────────

    def converse(self, socket: ask.sockets.socket, request: bytes, client: Ancestor | None = None) -> int:
        """Hands one request over and prints what the session answers: all of it, or nothing.

        Args:
            socket: a connection to the session.
            request: from `ask.compose`.
            client: for `wake`, which waits as long as this lives; what it prints goes to standard error.

        Returns the code of the answer.
        """
        try:
            socket.sendall(request)
        except ConnectionError:
            pass  # a refusal may have been written before the whole request was read
        taken = False
        while True:
            if client is not None and taken and not waited(socket, client):
                return 0
            kind, code, out, err = ask.next_frame(socket)
            taken = True
            if kind == "confirm":
                ask.write(1 if client is None else 2, out)
                self.woken = client is not None
                socket.sendall(b"ok\n")
            elif kind == "done":
                if err:  # a refusal: its code comes first
                    raise Failed(err.decode(errors="replace").partition("\n")[0])
                return code

    def watch(self, connected: tuple[ask.sockets.socket, str] | None, conversation: str) -> None:
        """Waits for mail as long as the client lives; where its session moves to another process, there (09.11)."""
        client = client_process(self.client, posix.environ)
        if client is None:
            raise Failed("the process of the client is not seen")
        while connected is not None:
            socket, token = connected
            try:
                code = self.converse(socket, ask.compose(token, ["hook", self.client, WAKE], ""), client)
            except ask.Unanswered:
                code = MOVED
            finally:
                socket.close()
            if code != MOVED or self.woken:
                return
            connected = self.found_again(client, conversation)

    def found_again(self, client: Ancestor, conversation: str) -> tuple[ask.sockets.socket, str] | None:
        """A connection to where the session has moved to; None where it has ended, or its client has."""
        end = time.monotonic() + AGAIN_SECONDS
        while client.lives() and time.monotonic() < end:
            connected = self.connected(conversation)
            if connected is not None:
                return connected
            time.sleep(PAUSE_SECONDS)
        return None

    # ── starting a session ───────────────────────────────────────────────────────────────────────

    def start(self, conversation: str) -> None:
        """Starts the presence of this client in the background, and waits until it is there (09.11)."""
        process = client_process(self.client, posix.environ)
        if process is None:
            raise Failed("the process of the client is not seen")
        words = ["attend", self.client, "--client-pid", str(process.pid), "--client-start", process.start]
        if conversation:
            words += ["--conversation", conversation]
        ready, tell = posix.pipe()
        log = self.open_log(f"{self.state}/hooks.log")
        if not posix.fork():
            try:
                detach(log, tell)
                argv = [sys.executable, "-I", "-m", "postroom", *words, "--ready-fd", str(tell)]
                posix.execve(sys.executable, argv, posix.environ)
            finally:
                os._exit(127)
        posix.close(tell)
        if log is not None:
            posix.close(log)
        _within(START_SECONDS)
        told = posix.read(ready, 64)
        posix.close(ready)
        _within(TURN_SECONDS)
        if not told:
            raise Failed("no session could be started for this client")

    # ── the log ──────────────────────────────────────────────────────────────────────────────────

    def log(self, why: str) -> None:
        """Writes one line where the person will look: into the session's log, else into that of all hooks."""
        if not self.state:
            return
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        words = " ".join(shortened(word) for word in ("hook", self.client, self.event))
        folder = f"{self.state}/sessions/{self.session}" if self.session else self.state
        fd = self.open_log(f"{folder}/{'log' if self.session else 'hooks.log'}")
        if fd is None:
            return
        try:
            posix.write(fd, f"{stamp} {words}: {shortened(why, 200)}\n".encode(errors="replace"))
        except OSError:
            pass  # a full disk costs the line
        finally:
            posix.close(fd)

    def open_log(self, path: str) -> int | None:
        """A descriptor at the end of a log; None where there can be none. A long one is set aside first."""
        flags = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_NOFOLLOW | posix.O_NONBLOCK
        try:
            if not ask.closed_to_others(path.rpartition("/")[0]):
                return None
            fd = posix.open(path, flags | posix.O_CLOEXEC, 0o600)
            if not ask.is_private(posix.fstat(fd), ask.FILE):
                posix.close(fd)
                return None
            if posix.fstat(fd).st_size > MAX_LOG:
                posix.close(fd)
                posix.rename(path, f"{path}.1")
                fd = posix.open(path, flags | posix.O_CLOEXEC, 0o600)
        except OSError:
            return None
        return fd


def is_fresh(path: str) -> bool:
    """Whether a claim was made so lately that whoever made it may still be at work; one that was killed leaves it."""
    try:
        return time.time() - posix.lstat(path).st_mtime < CLAIM_SECONDS
    except OSError:
        return False


def waited(socket: ask.sockets.socket, client: Ancestor) -> bool:
    """Waits, as long as it takes, until a session has something to say; False once the client has gone."""
    _within(0.0)
    socket.settimeout(LOOK_SECONDS)
    while True:
        try:
            more = socket.recv(1, ask.sockets.MSG_PEEK)
        except TimeoutError:
            if not client.lives():
                return False
        except ConnectionError:
            raise ask.Unanswered from None
        else:
            if not more:
                raise ask.Unanswered
            socket.settimeout(ask.ANSWER_SECONDS)
            return True


def shortened(text: str, limit: int = _MAX_WORD) -> str:
    """A text as a log shows it: on one line, cut."""
    return "".join(character for character in text[:limit] if character.isprintable())


def detach(log: int | None, tell: int) -> None:
    """Makes this process one of its own, that keeps nothing of the hook but its log and the way to say that it is there."""
    posix.setsid()
    signals.signal(signals.SIGALRM, signals.SIG_DFL)
    signals.setitimer(signals.ITIMER_REAL, 0.0)
    null = posix.open("/dev/null", posix.O_RDWR)
    for fd, kept in ((0, null), (1, null), (2, null if log is None else log)):
        posix.dup2(kept, fd)
    posix.set_inheritable(tell, True)


def standard_input() -> str | int:
    """What the client says; the number of its characters where that is more than a session is told."""
    chunks: list[bytes] = []
    size = characters = 0
    try:
        while chunk := posix.read(0, 1_048_576):
            size += len(chunk)
            characters += len(chunk.translate(None, ask.CONTINUED))
            if size <= ask.MAX_STDIN:
                chunks.append(chunk)
    except OSError:
        pass  # it was closed
    return b"".join(chunks).decode(errors="replace") if size <= ask.MAX_STDIN else characters


def conversation_of(said: str | int) -> str:
    """The client's own id of the conversation, by a look at its JSON; empty where there is none to be seen."""
    if not isinstance(said, str):
        return ""
    for key in ("session_id", "conversation_id"):
        found = ask.value_of(said, key)
        if found and len(found) <= MAX_ID and ID_CHARACTERS.issuperset(found):
            return "" if found.startswith(("client-", "talk-", "-")) else found
    return ""


# ── processes ────────────────────────────────────────────────────────────────────────────────────


class Ancestor:
    """A process above this one: its pid, when it started, its parent's pid, what the kernel calls its program."""

    __slots__ = ("name", "parent", "pid", "start")

    def __init__(self, pid: int, start: str, parent: int, name: str) -> None:
        self.pid = pid
        self.start = start
        self.parent = parent
        self.name = name

    def lives(self) -> bool:
        """Whether it still runs."""
        now = looked_at(self.pid)
        return now is not None and now.start == self.start

    def runs(self, client: str) -> bool:
        """Whether it runs this client: by its executable, or by the script that its interpreter runs."""
        programs = PROGRAMS.get(client, ())
        words = ask.slurp(f"/proc/{self.pid}/cmdline").split("\0")
        try:
            executable = posix.readlink(f"/proc/{self.pid}/exe")
        except OSError:
            executable = ""
        if base(executable) in programs or base(words[0]) in programs:
            return True
        script = next((word for word in words[1:] if word and word[0] != "-"), "")
        stem = base(script).partition(".")[0]
        return any(f"/{program}/" in script or stem == program for program in programs)


def base(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def looked_at(pid: int) -> Ancestor | None:
    """A process as its stat shows it; None where there is none."""
    stat = ask.slurp(f"/proc/{pid}/stat")
    end = stat.rfind(")")
    fields = stat[end + 2 :].split()
    if len(fields) < 20 or fields[0] in "ZXx":
        return None
    return Ancestor(pid, fields[19], int(fields[1]), stat[stat.find("(") + 1 : end])


def upwards() -> Iterator[Ancestor]:
    """The processes above this one, the nearest first, as far as a client can be."""
    pid = posix.getppid()
    for _ in range(ask.ANCESTORS):
        one = looked_at(pid) if pid > 0 else None
        if one is None:
            return
        yield one
        pid = one.parent


def client_process(client: str, environ: Mapping[bytes, bytes]) -> Ancestor | None:
    """The process of the client that started this one, as `lineage.client_process` finds it."""
    line = list(upwards())
    named = environ.get(PID_VARIABLES.get(client, "").encode(), b"").decode(errors="replace")
    for one in line:
        if str(one.pid) == named:
            return one
    for one in line:
        if one.runs(client):
            return one
        if one.name not in BETWEEN:
            break
    return next((one for one in line if one.name not in BETWEEN), None)


# ── sessions ─────────────────────────────────────────────────────────────────────────────────────


def session_of(
    state: str, client: str, conversation: str, line: Iterable[Ancestor], environ: Mapping[bytes, bytes]
) -> str | None:
    """The session of the client that started this process, as `lineage.find` finds it; None where there is none.

    Args:
        state: the folder of all state.
        client: which client is meant.
        conversation: the client's own id of the conversation; empty: not known.
        line: the processes above this one.
        environ: of this process. `POSTROOM_SESSION` counts only among the sessions of that client.
    """
    sessions = f"{state}/sessions"
    talk = ask.slurp(f"{sessions}/talk-{client}-{conversation}", private=True).strip() if conversation else ""
    inside = False  # below the client's own process
    shelled = False  # which runs in a shell
    for one in line:
        between = one.name in BETWEEN
        if inside and (shelled if one.runs(client) else not between):
            break
        here = sessions_at(sessions, one)
        if here:
            named = environ.get(b"POSTROOM_SESSION", b"").decode(errors="replace")
            meant = talk if talk in here else named if named in here else here[0]
            return None if conversation and client in THREADS and meant != talk else meant
        if between:
            shelled = inside
        elif not inside and PROGRAMS.get(client) and not one.runs(client):
            break
        else:
            inside = True
    return talk or None


def sessions_at(sessions: str, one: Ancestor) -> list[str]:
    """The ids of the sessions whose client, or else whose process, this is, the newest first."""
    if listed := ask.slurp(f"{sessions}/client-{one.pid}-{one.start}", private=True).split():
        return listed
    record = ask.slurp(f"{sessions}/{one.pid}.json", private=True)
    if record and ask.value_of(record, "procStart") == one.start:
        return [ask.value_of(record, "sessionId") or ""]
    return []
