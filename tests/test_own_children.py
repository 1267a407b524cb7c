"""What a session starts may post to its inbox: by what it is known, and what does not count (05.25, 03.13).

The receivers never ask for permission, so they hold whatever is neither their own child's nor of their own class: that
a text waits to be read shows that its sender was taken for a child. The posts are raw lines on the inbox socket, written
by programs that run inside a session; `INSIDE` is what each of them begins with.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom import Receipt, Session, open_session
from tests.desk import COMMAND, SECONDS, Desk, Done
from tests.room import texts
from tests.strangers import as_line, enveloped, frame, needs_root
from tests.transports.ends import run, until

BYPASSING = ("--mode", "bypassPermissions")

A_CHILD = {
    "address": None,
    "name": "a process of this session",
    "kind": "session",
    "verified": True,
    "class": None,
}
"""The `from` of what an own child sends, its ref apart, which tells one process from another."""

NOBODY = {**A_CHILD, "name": None, "verified": False}
"""The `from` of bare text from anybody else."""

INSIDE = f"""
import glob, json, os, signal, socket, subprocess, sys, uuid

SOCKET, TOKEN = os.environ["POSTROOM_SOCKET"], os.environ["POSTROOM_TOKEN"]

def post(text, token="", path=SOCKET, stays=True, mode="", name=""):
    # One message, on a connection of its own. Who stays waits for the acknowledgement.
    said = "".join(f' {{key}}="{{value}}"' for key, value in (("from-name", name), ("from-mode", mode)) if value)
    content = f"<cross-session-message{{said}}>\\n{{text}}\\n</cross-session-message>" if said else text
    frame = {{"type": "user", "msg_id": str(uuid.uuid4()), "ack": True, "message": {{"content": content}}}}
    lines = [*([{{"type": "auth", "token": token}}] if token else []), frame]
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout({SECONDS})
        line.connect(path)
        line.sendall("".join(json.dumps(each) + "\\n" for each in lines).encode())
        if stays:
            assert json.loads(line.makefile().readline())["status"] == "queued", text

def child(work):
    # Forks a child that does something and ends; it has gone when this returns.
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0

def descendant(steps, work):
    # Something done so many steps below this process, all of whom stay meanwhile.
    work() if steps == 0 else child(lambda: descendant(steps - 1, work))

def adopted(work):
    # Something done by a grandchild whose parent has gone, so that the system has adopted it.
    reading, writing = os.pipe()
    def fork_again():
        middle = os.getpid()
        if os.fork() == 0:
            while os.getppid() == middle:
                pass
            try:
                work()
                os.write(writing, b"done")
            finally:
                os._exit(0)
    child(fork_again)
    os.close(writing)
    assert os.read(reading, 4) == b"done"
    os.close(reading)

def tell(*words):
    return json.loads(subprocess.run([{COMMAND!r}, *words, "--json"], stdout=subprocess.PIPE).stdout)

def report():
    held = tell("held")["held"]
    print(json.dumps({{"inbox": tell("inbox", "--take")["messages"], "held": held, "counts": tell("status")["counts"]}}))
"""


@pytest.fixture
def desk(home: Path) -> Iterator[Desk]:
    """A private desk."""
    desk = Desk(home, os.environ)
    yield desk
    desk.leave()


def reported(done: Done) -> Any:
    """What a program inside a session printed at its end."""
    assert done.code == 0, done.err
    return json.loads(done.out.splitlines()[-1])


def said(messages: list[dict[str, Any]]) -> list[str]:
    """The texts of messages."""
    return [message["text"] for message in messages]


def senders(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The `from` of messages, their refs apart."""
    return [{key: value for key, value in each["from"].items() if key != "ref"} for each in messages]


# ── descent ──────────────────────────────────────────────────────────────────────────────────────

DESCENT = (
    INSIDE
    + """
def gone(work):
    # A child's post of which the child has gone before the session comes to accept it.
    session = os.getppid()
    os.kill(session, signal.SIGSTOP)
    while open(f"/proc/{session}/stat").read().rpartition(")")[2].split()[0] != "T":
        pass
    child(work)
    os.kill(session, signal.SIGCONT)

for mode in ("bypass", "prompting", ""):
    post(f"a hook, {mode or 'nothing'} said", mode=mode, name="the boss")
child(lambda: post("a shell's child"))
child(lambda: (os.setsid(), post("in a terminal session of its own")))
descendant(31, lambda: post("32 steps away"))
descendant(32, lambda: post("33 steps away"))
adopted(lambda: post("adopted by the system"))
adopted(lambda: post("adopted, with the token", TOKEN))
gone(lambda: post("gone", stays=False))
gone(lambda: post("gone, with the token", TOKEN, stays=False))
child(lambda: post("after them"))
report()
"""
)


@pytest.mark.rule("05.25", "03.13", "03.22")
def test_a_process_is_a_child_by_its_descent_and_else_by_the_token(desk: Desk) -> None:
    """What descends from the session and is still there at the accept needs nothing; who has left its family, or has
    gone, needs the token, and is without it a sender without a name that is held. What it calls itself does not count.
    """
    found = reported(desk.run("open", "--name", "bold", *BYPASSING, "--", sys.executable, "-c", DESCENT))
    hooks = [f"a hook, {mode} said" for mode in ("bypass", "prompting", "nothing")]
    assert said(found["inbox"]) == [
        *hooks,
        "a shell's child",
        "in a terminal session of its own",
        "32 steps away",
        "adopted, with the token",
        "gone, with the token",
        "after them",
    ]
    assert [message["from"]["class"] for message in found["inbox"]][:3] == ["bypassing", "prompting", None]
    assert [{**each, "class": None} for each in senders(found["inbox"])] == [A_CHILD] * 9
    assert said(found["held"]) == ["33 steps away", "adopted by the system", "gone"]
    assert {one["cause"] for one in found["held"]} == {"no-mode-asserted"}
    assert senders(found["held"]) == [NOBODY] * 3
    assert found["counts"] == {}


@pytest.mark.rule("03.11", "03.6")
def test_a_setting_comes_before_the_rule_for_children(desk: Desk) -> None:
    """What a person has set holds children too, whatever evidence they have."""
    program = INSIDE + 'child(lambda: post("held", TOKEN)); report()'
    found = reported(
        desk.run(
            *("open", "--name", "bold", *BYPASSING, "--settings", '{"crossSessionInbound": "hold"}'),
            *("--", sys.executable, "-c", program),
        )
    )
    assert (said(found["inbox"]), said(found["held"])) == ([], ["held"])
    assert (found["held"][0]["cause"], senders(found["held"])) == ("explicit-setting", [A_CHILD])


# ── tokens, and sessions inside sessions ─────────────────────────────────────────────────────────

WITHIN = (
    INSIDE
    + """
outer_token, outer_socket = sys.argv[1:]
home = os.environ["POSTROOM_HOME"]
pid = os.path.basename(SOCKET).removesuffix(".sock")
[key] = glob.glob(f"{home}/sessions/{pid}.*.key")
peer_token = json.load(open(key))["peerToken"]
adopted(lambda: post("with the outer session's token", outer_token))
adopted(lambda: post("with a token of nobody", "0" * 32))
adopted(lambda: post("with the token for peers", peer_token))
adopted(lambda: post("with its own token", TOKEN))
adopted(lambda: post("with the inner session's token", TOKEN, outer_socket, mode="bypass"))
adopted(lambda: post("with the token of the outer one", outer_token, outer_socket, mode="bypass"))
child(lambda: post("a child's child", path=outer_socket, mode="bypass"))
def send():
    sent = tell("send", "outer", "from a session of its own")
    assert sent["status"] == "queued", sent
adopted(send)
report()
"""
)

AROUND = """
import json, subprocess, sys
COMMAND, program, token, socket = sys.argv[1:]
inner = [COMMAND, "open", "--name", "inner", "--mode", "bypassPermissions", "--", sys.executable, "-c", program, token, socket]
found = json.loads(subprocess.run(inner, stdout=subprocess.PIPE, check=True).stdout)
def tell(*words):
    return json.loads(subprocess.run([COMMAND, *words, "--json"], stdout=subprocess.PIPE).stdout)
own = {"held": tell("held")["held"], "inbox": tell("inbox", "--take")["messages"], "counts": tell("status")["counts"]}
answer = tell("send", own["inbox"][-1]["from"]["address"], "too late")
print(json.dumps({"inner": found, "outer": own, "answer": answer}))
"""


@pytest.mark.rule("05.20", "05.25", "03.13", "04.15")
def test_a_token_counts_at_its_own_session_and_a_session_inside_another_keeps_its_name(desk: Desk) -> None:
    """Another session's child token, one of nobody, and the one for peers are no evidence; the first two are counted.

    The outer session asks for permission and the inner does not, so that at either only a child's message gets in.
    `postroom send` shows the token too: it sends in its session's name although it has left that family.
    """
    shell = 'exec "$0" -c "$1" "$2" "$3" "$POSTROOM_TOKEN" "$POSTROOM_SOCKET"'
    found = reported(
        desk.run(
            *("open", "--name", "outer", "--", "sh", "-c", shell),
            *(sys.executable, AROUND, COMMAND, WITHIN),
        )
    )
    inner, outer = found["inner"], found["outer"]
    assert said(inner["inbox"]) == ["with its own token"]
    assert said(inner["held"]) == [
        "with the outer session's token",
        "with a token of nobody",
        "with the token for peers",
    ]
    assert senders(inner["held"]) == [NOBODY] * 3
    assert inner["counts"] == {"wrong-token": 2}

    assert said(outer["held"]) == ["with the inner session's token"]
    assert outer["counts"] == {"wrong-token": 1}
    assert said(outer["inbox"]) == [
        "with the token of the outer one",
        "a child's child",
        "from a session of its own",
    ]
    assert senders(outer["inbox"])[:2] == [{**A_CHILD, "class": "bypassing"}] * 2
    last = outer["inbox"][-1]["from"]
    assert (last["name"], last["verified"], last["class"]) == ("inner", True, "bypassing")
    assert last["address"] == f"inner [{last['ref']}]"
    assert found["answer"]["error"]["code"] == "not_found", "it is another session, which has ended by now"


@pytest.mark.rule("05.25", "03.13", "04.15")
def test_two_sessions_of_one_process_are_no_children_of_each_other(home: Path) -> None:
    """Nobody started the other. What the process itself writes without an address is a child's, at each of them."""

    async def write(session: Session, text: str) -> None:
        assert session.address is not None
        reader, writer = await asyncio.open_unix_connection(session.address.removeprefix("uds:"))
        writer.write(as_line({**frame(""), "message": enveloped(text, ' from-mode="bypass"')}))
        assert json.loads(await reader.readline())["status"] == "queued"
        writer.close()
        await writer.wait_closed()

    async def work() -> None:
        async with open_session("shy") as shy, open_session("bold", mode=BYPASSING[1]) as bold:
            for sender, receiver in ((shy, "bold"), (bold, "shy")):
                assert isinstance(await sender.send(receiver, "hello", summary="hello"), Receipt)
            await write(shy, "by the process")
            for session, peer in ((shy, "bold"), (bold, "shy")):
                await until(session.held)
                [hold] = session.held()
                origin = hold.message.origin
                assert (origin.kind, origin.name, origin.verified) == ("peer", peer, True)
                assert hold.cause == "mode-mismatch"
            assert texts(shy.drain()) == ["by the process"]

    run(work())


# ── where nothing is known of processes ──────────────────────────────────────────────────────────

FIRST = (
    INSIDE
    + """
assert os.getppid() == 1
child(lambda: post("a child"))
child(lambda: post("a child, with the token", TOKEN))
adopted(lambda: post("adopted by the session"))
adopted(lambda: post("adopted by the session, with the token", TOKEN))
report()
"""
)

PROC = {
    "its own": ("--pid", "--fork", "--kill-child", "--mount-proc"),
    "the host's": ("--pid", "--fork", "--kill-child"),
    "none": ("--pid", "--fork", "--kill-child", "--mount"),
}
"""What a container shows at /proc → what `unshare` makes of it."""


@needs_root
@pytest.mark.rule("05.25")
@pytest.mark.parametrize("proc", PROC)
def test_where_the_session_is_process_1_the_token_is_the_evidence(desk: Desk, proc: str) -> None:
    """Every orphan of the container is adopted by it, whoever's it was: to descend from it says nothing there."""
    hide = "mount -t tmpfs none /proc; " if proc == "none" else ""
    command = (COMMAND, "open", "--name", "bold", *BYPASSING, "--", sys.executable, "-c", FIRST)
    done = subprocess.run(
        ["unshare", *PROC[proc], "sh", "-ec", f'{hide}exec "$@"', "sh", *command],
        env=desk.environ,
        cwd=desk.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    found = reported(Done(done.returncode, done.stdout, done.stderr))
    assert said(found["inbox"]) == ["a child, with the token", "adopted by the session, with the token"]
    assert senders(found["inbox"]) == [A_CHILD] * 2
    assert said(found["held"]) == ["a child", "adopted by the session"]
    assert senders(found["held"]) == [NOBODY] * 2
