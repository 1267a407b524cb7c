"""`postroom demo`: the main job on real processes, narrated (10.20).

Opens sessions in a folder of its own, passes messages both ways, shows two refusals, kills a receiver and brings it
back with its mail, and prints a trace. Ends non-zero when anything did not arrive.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.arguments import Values

STEP_SECONDS = 60.0
"""How long one command of the demo may take before it counts as failed."""


class Failed(Exception):
    """Something did not happen that had to."""


class Stage:
    """A private place with sessions in it, and the commands that a person would type there."""

    def __init__(self, folder: str) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("POSTROOM_")}
        self.environ = {**kept, "POSTROOM_HOME": f"{folder}/state", "XDG_RUNTIME_DIR": f"{folder}/run"}
        os.mkdir(f"{folder}/run", 0o700)
        self.folder = folder

    def run(self, *words: str, code: int = 0) -> dict[str, Any]:
        """Runs one command with --json and returns its document; Failed for another exit code."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "postroom", *words, "--json"],
            env=self.environ,
            cwd=self.folder,
            capture_output=True,
            timeout=STEP_SECONDS,
            check=False,
        )
        if done.returncode != code:
            raise Failed(
                f"`postroom {' '.join(words)}` ended with {done.returncode}: {done.stderr.decode().strip()}"
            )
        return dict(json.loads(done.stdout))

    def open(self, name: str, *more: str) -> dict[str, Any]:
        """Opens a detached session."""
        return self.run("open", *(("--name", name) if name else ()), "--detach", *more)


def say(text: str = "") -> None:
    """One line of the story."""
    print(text, flush=True)


def typed(command: str) -> None:
    """A command as a person would type it."""
    say(f"  $ postroom {command}")


def check(what: str, holds: bool) -> None:
    """Failed unless it holds."""
    if not holds:
        raise Failed(f"{what} did not hold")


def run(args: Values, argv: Sequence[str]) -> int:
    """Runs the demo; 0 when everything arrived."""
    del args, argv
    folder = tempfile.mkdtemp(prefix="postroom-demo-", dir="/tmp")
    opened: list[str] = []
    stage = Stage(folder)
    try:
        story(stage, opened)
    except (Failed, subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        say(f"\nThe demo failed: {error}")
        return 1
    finally:
        for session_id in opened:
            subprocess.run(
                [sys.executable, "-P", "-m", "postroom", "--session", session_id, "close"],
                env=stage.environ,
                cwd=folder,
                capture_output=True,
                timeout=STEP_SECONDS,
                check=False,
            )
        shutil.rmtree(folder, ignore_errors=True)
    say("\nEverything arrived.")
    return 0


def story(stage: Stage, opened: list[str]) -> None:
    """The story, step by step."""
    say("Two sessions, each a process of its own:")
    typed("open --name alice --detach")
    alice = stage.open("alice")
    opened.append(alice["session_id"])
    typed("open --name bob --detach")
    bob = stage.open("bob")
    opened.append(bob["session_id"])
    listed = stage.run("--session", "alice", "list")
    say(f"  alice sees: {', '.join(row['name'] for row in listed['rows'])}")
    check("alice sees bob", [row["name"] for row in listed["rows"]] == ["bob"])

    say("\nAlice tells Bob a fact:")
    text = "The column is now tenant_id; rebasing on main is safe."
    typed(f'--session alice send bob "{text}" --summary "schema"')
    sent = stage.run("--session", "alice", "send", "bob", text, "--summary", "schema")
    say(f"  {sent['status']}: {sent['note']}")
    check("the message is queued", sent["status"] == "queued")
    typed("--session bob inbox --take")
    got = stage.run("--session", "bob", "inbox", "--take")["messages"]
    check("bob has exactly that message", [message["text"] for message in got] == [text])
    say(f"  from {got[0]['from']['address']}, verified: {got[0]['text']}")
    check("the sender is verified", got[0]["from"]["verified"])
    check("it is handed out once", stage.run("--session", "bob", "inbox", "--take")["messages"] == [])

    say("\nBob answers, to the address that he was shown:")
    address = got[0]["from"]["address"]
    typed(f'--session bob send "{address}" "Thanks, rebasing." --in-reply-to {sent["msg_id"]}')
    reply = stage.run(
        "--session", "bob", "send", address, "Thanks, rebasing.", "--in-reply-to", sent["msg_id"]
    )
    typed("--session alice wait --timeout 10")
    back = stage.run("--session", "alice", "wait", "--timeout", "10")["messages"]
    check("alice has the answer", [message["msg_id"] for message in back] == [reply["msg_id"]])
    say(f"  from {back[0]['from']['address']}: {back[0]['text']}")

    say("\nA name that could mean two sessions is not guessed:")
    for name in ("api-worker", "api-writer"):
        opened.append(stage.open(name)["session_id"])
    typed('--session alice send api-w "hello"')
    error = stage.run("--session", "alice", "send", "api-w", "hello", code=4)["error"]
    check("the code is ambiguous", error["code"] == "ambiguous")
    say(f"  {error['code']}: {error['message']} {error['hint']}")
    for one in error["candidates"]:
        say(f"    {one['name']} [{one['ref']}]")
    typed('--session alice send bbo "hello"')
    error = stage.run("--session", "alice", "send", "bbo", "hello", code=3)["error"]
    check(
        "the code is not_found and bob is offered",
        error["code"] == "not_found" and error["candidates"][0]["name"] == "bob",
    )
    say(f"  {error['code']}: {error['message']} {error['hint']} Near: {error['candidates'][0]['name']}")

    say("\nBob is killed with a message unread, and comes back with it:")
    kept = "This must survive."
    stage.run("--session", "alice", "send", "bob", kept)
    os.kill(bob["pid"], signal.SIGKILL)
    wait_gone(bob["pid"])
    say(f"  killed process {bob['pid']} with SIGKILL")
    typed('--session alice send bob "are you there?"')
    error = stage.run("--session", "alice", "send", "bob", "are you there?", code=3)["error"]
    say(f"  {error['code']}: {error['message']}")
    typed(f"open --resume {bob['session_id']} --detach")
    again = stage.open("", "--resume", bob["session_id"])
    check("the same session is back", again["session_id"] == bob["session_id"] and again["name"] == "bob")
    got = stage.run("--session", "bob", "inbox", "--take")["messages"]
    check("the message is still there", [message["text"] for message in got] == [kept])
    say(f"  bob has: {got[0]['text']}")

    say("\nWhat happened to the first message:")
    typed(f"trace {sent['msg_id']}")
    steps = stage.run("trace", sent["msg_id"])["steps"]
    for step in steps:
        say(f"  {step['at']}  {step['where']:6} {step['state']:9} {step['detail']}")
    states = [step["state"] for step in steps]
    check(
        "the trace is whole",
        {"queued", "received", "accepted", "leased", "consumed", "answered"} <= set(states),
    )


def wait_gone(pid: int) -> None:
    """Waits until a killed process is no more, or only its entry is."""
    end = time.monotonic() + STEP_SECONDS
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
                if stat.read().rpartition(")")[2].split()[0] in ("Z", "X"):
                    return
        except OSError:
            return
        time.sleep(0.01)
    raise Failed(f"process {pid} did not end")
