"""How each client is started against a scripted model: its configuration, its variables, its command line.

A `House` is one person's machine: a home in which every client is configured, one Postroom for all of them, and a
project folder for each. An `Agent` is one client in it, with a model of its own. Only what the client needs to run
without an account and without questions is written here; what Postroom needs is left to `postroom setup`, as a
person would.

What is weak: each client's own files are written as its version of `install.PARTNERS` reads them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

from tests.clients.dialects import Body
from tests.clients.gate import Gate, server
from tests.clients.install import Found
from tests.clients.model import MODEL, SECONDS, Asked, Model, say
from tests.clients.tmux import Window, window
from tests.desk import Desk

__all__ = ["AGENTS", "MENU", "Agent", "House", "Session", "house"]

KEY = "sk-no-key-is-needed-here-0000000"
"""What stands for the key of an account; the scripted model reads none."""

HEADLESS_SECONDS = 120

MENU = 10.0
"""How long a choice may take to show: a key that is pressed twice would choose something else."""

TRIES = 20
"""So many turns a client may need until it has connected to a server that starts beside it."""


class House:
    """One person's machine.

    Attributes:
        folder: the home.
        gate: the tool that takes as long as the test wants.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "XDG_CONFIG_HOME": str(folder / ".config"),
            "TMPDIR": str(folder / "tmp"),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
        }
        for name, mode in (("run", 0o700), ("tmp", 0o700), ("projects", 0o755), (".config", 0o755)):
            (folder / name).mkdir(mode=mode)
        self.desk = Desk(folder, self.environ)
        self.gate = Gate(folder / "gate.sock")
        self.models: list[Model] = []
        self.screens: list[Window] = []

    def write(self, path: str, content: str | Body) -> Path:
        """Writes a file of the home; an object becomes JSON."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content, indent=2) + "\n")
        return file

    def drop(self, path: str, key: str) -> None:
        """Takes a key out of a JSON file of the home."""
        document = cast("Body", json.loads((self.folder / path).read_text()))
        del document[key]
        self.write(path, document)

    def setup(self, *clients: str) -> None:
        """Sets clients up for Postroom, as a person does."""
        for client in clients:
            done = self.desk.run("setup", client, "--yes")
            assert done.code == 0, done

    def end(self) -> None:
        """Ends whatever still runs in this home, such as the server that Codex leaves behind."""
        mine = f"HOME={self.folder}".encode()
        for place in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if mine in place.read_bytes().split(b"\0"):
                    os.kill(int(place.parent.name), signal.SIGKILL)

    def story(self) -> str:
        """What Postroom knows of this house, for whoever looks for what went wrong."""
        state = self.folder / ".local/state/postroom"
        logs = (file for file in state.rglob("*") if file.name in ("log", "hooks.log"))
        told = [f"{file.relative_to(state)}:\n{file.read_text(errors='replace')[-3000:]}" for file in logs]
        ran = [
            " ".join(place.read_bytes().decode(errors="replace").split("\0"))
            for place in Path("/proc").glob("[0-9]*/cmdline")
        ]
        ours = [line for line in ran if "postroom" in line]
        asked = [
            f"{model.port}: {each.number} {each.step}"[:300] for model in self.models for each in model.asked
        ]
        screens = [f"{screen.name}:\n{screen.text.strip()}" for screen in self.screens]
        return "\n".join([self.desk.run("list").out, *told, *ours, *asked, *screens])

    def steps(self, session: str, msg_id: str) -> list[str]:
        """What a session's journal says of a message, in order: `STATE DETAIL`."""
        steps = self.desk.ok("--session", session, "trace", msg_id)["steps"]
        return [f"{step['state']} {step['detail']}".strip() for step in steps]

    def traced(self, session: str, msg_id: str, *wanted: str) -> None:
        """Waits until a session's journal has steps that begin so; fails with what it has instead."""

        def missing() -> list[str]:
            steps = self.steps(session, msg_id)
            return [each for each in wanted if not any(step.startswith(each) for step in steps)]

        end = time.monotonic() + SECONDS
        while lacking := missing():
            assert time.monotonic() < end, (lacking, self.steps(session, msg_id))

    def rows(self, client: str) -> list[Body]:
        """The rows of `postroom list` whose sessions are this client's."""
        rows = cast("list[Body]", self.desk.ok("list")["rows"])
        return [row for row in rows if row["program"] == client]

    def row(self, client: str) -> Body:
        """The one such row; fails while there is none."""
        found = self.rows(client)
        assert len(found) == 1, found
        return found[0]


class Agent(ABC):
    """One client in a house."""

    name: ClassVar[str]
    ready: ClassVar[str]
    """What its screen shows once it takes a line."""
    native: ClassVar[tuple[str, ...]] = ()
    """Its own tools for messages: the one that lists, and the one that sends."""
    pushed: ClassVar[bool] = False
    """Whether mail is pushed into its turn, and not taken by a hook of it."""

    def __init__(self, house: House, model: Model, found: Found) -> None:
        self.house = house
        self.model = model
        house.models.append(model)
        self.program = found.command
        self.windows = 0
        self.project = house.folder / "projects" / self.name
        self.project.mkdir()
        self.configure()

    @abstractmethod
    def configure(self) -> None:
        """Writes its configuration."""

    @abstractmethod
    def variables(self) -> Mapping[str, str]:
        """Its variables beside the house's."""

    @abstractmethod
    def headless(self, prompt: str) -> Sequence[str]:
        """The words behind the program for one turn without a terminal."""

    def interactive(self, *more: str) -> Sequence[str]:
        """The words behind the program for a session on a terminal; `more` are those that a test asks for."""
        return more

    def welcome(self, screen: Window) -> None:
        """Answers what it asks before it takes a line; most ask nothing."""
        del screen

    @property
    def environ(self) -> dict[str, str]:
        """All its variables."""
        return {**self.house.environ, **self.variables()}

    def run(self, prompt: str) -> str:
        """One turn without a terminal; must succeed. Returns what it printed."""
        done = subprocess.run(
            [*self.program, *self.headless(prompt)],
            cwd=self.project,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HEADLESS_SECONDS,
            check=False,
        )
        assert done.returncode == 0, (self.name, done)
        return done.stdout

    @contextmanager
    def opened(self, *more: str) -> Generator[Session]:
        """A session on a terminal, ready for a line; `more` are words of its command line."""
        command = [*self.program, *self.interactive(*more)]
        self.windows += 1
        with window(
            f"{self.name}-{self.windows}",
            command,
            folder=self.project,
            environ=self.environ,
            place=self.house.folder / "run",
        ) as screen:
            self.house.screens.append(screen)
            self.welcome(screen)
            screen.shows(self.ready)
            yield Session(self, screen)


class Session:
    """An agent on its terminal, with somebody who types."""

    def __init__(self, agent: Agent, screen: Window) -> None:
        self.agent = agent
        self.screen = screen
        self.model = agent.model

    def prompt(self, text: str) -> Asked:
        """Types a prompt; returns the first request with it."""
        before = self.model.count

        def taken() -> bool:
            return any(text in asked.told and asked.tools for asked in self.model.asked[before:])

        self.screen.submit(text, taken)
        return self.model.told(text, after=before)

    def command(self, text: str, until: Callable[[], bool]) -> None:
        """Types a command of the client's own, which asks no model, and waits for what it brings about."""
        self.screen.submit(text, until)

    def settle(self, server: str = "postroom") -> None:
        """Has turns until the client has connected to a server; some begin without those that are slow to start."""
        for number in range(TRIES):
            asked = self.turn(say(f"HERE-{number}"), f"HERE-{number}")
            if any(server in tool.name or server in tool.space for tool in asked.tools):
                return
            if f"mcp__{server}__" in asked.told:  # a client that keeps tools back names them
                return
        raise AssertionError(f"{self.agent.name} never offered the tools of {server}")

    def turn(self, text: str, said: str) -> Asked:
        """A whole turn: types a prompt, and waits until the model has ended it with these words."""
        self.prompt(text)
        return self.model.said(said)


class ClaudeCode(Agent):
    name = "claude-code"
    ready = "❯"
    native = ("ListAgents", "SendMessage")

    def configure(self) -> None:
        command, *words = server(self.house.gate.place)
        trusted: Body = {
            "hasTrustDialogAccepted": True,
            "hasCompletedProjectOnboarding": True,
            "allowedTools": [],
        }
        self.house.write(
            ".claude.json",
            {
                "hasCompletedOnboarding": True,
                "lastOnboardingVersion": "2.1.332",
                "numStartups": 9,
                "theme": "dark",
                "autoUpdates": False,
                "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
                "projects": {str(self.project): trusted},
                "mcpServers": {"gate": {"type": "stdio", "command": command, "args": words}},
            },
        )
        self.house.write(".claude/settings.json", {"permissions": {"allow": ["mcp__gate", "mcp__postroom"]}})

    def variables(self) -> Mapping[str, str]:
        url = f"http://127.0.0.1:{self.model.port}"
        return {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": KEY,
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        }

    def headless(self, prompt: str) -> Sequence[str]:
        return ("-p", prompt)

    def interactive(self, *more: str) -> Sequence[str]:
        return ("--name", "claude-web", *(more or ("--permission-mode", "default")))

    def welcome(self, screen: Window) -> None:
        """Accepts what it asks of whoever skips its permissions."""
        screen.wait(lambda: self.ready in screen.text, "a first screen")
        if "Bypass Permissions mode" in screen.text and "Yes, I accept" in screen.text:
            screen.press(
                "Down",
                until=lambda: "❯ Yes, I accept" in screen.text,
                what="the choice to accept",
                patience=MENU,
            )
            screen.press("Enter", until=lambda: "Yes, I accept" not in screen.text, what="yes", patience=MENU)


class Codex(Agent):
    name = "codex"
    ready = "Ask Codex to do anything"

    def configure(self) -> None:
        command, *words = server(self.house.gate.place)
        self.house.write(
            ".codex/config.toml",
            f"""\
model = "{MODEL}"
model_provider = "tests"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.tests]
name = "tests"
base_url = "http://127.0.0.1:{self.model.port}/v1"
env_key = "NO_KEY"
wire_api = "responses"

[mcp_servers.gate]
command = {json.dumps(command)}
args = {json.dumps(words)}
tool_timeout_sec = 120

[projects.{json.dumps(str(self.project))}]
trust_level = "trusted"
""",
        )

    def variables(self) -> Mapping[str, str]:
        return {"NO_KEY": KEY}

    def headless(self, prompt: str) -> Sequence[str]:
        return ("exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", prompt)

    def welcome(self, screen: Window) -> None:
        """Trusts the hooks that were set up, as their setup tells a person to."""
        if not (self.house.folder / ".codex/hooks.json").exists() or self._trusts():
            return
        screen.shows("Trust all")
        screen.press("Down", until=lambda: "› 2." in screen.text, what="the choice to trust", patience=MENU)
        screen.press("Enter", until=self._trusts, what="trust", patience=MENU)

    def _trusts(self) -> bool:
        return "trusted_hash" in (self.house.folder / ".codex/config.toml").read_text()


class GeminiCli(Agent):
    name = "gemini-cli"
    ready = "Type your message"

    def configure(self) -> None:
        command, *words = server(self.house.gate.place)
        self.house.write(
            ".gemini/settings.json",
            {
                "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
                "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
                "privacy": {"usageStatisticsEnabled": False},
                "mcpServers": {"gate": {"command": command, "args": words, "trust": True, "timeout": 120000}},
            },
        )

        rule = """\
[[rule]]
mcpName = "postroom"
toolName = "*"
decision = "allow"
priority = 100
"""
        self.house.write(".gemini/policies/tests.toml", rule)

    def variables(self) -> Mapping[str, str]:
        return {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{self.model.port}"}

    def headless(self, prompt: str) -> Sequence[str]:
        return ("-p", prompt, "--yolo")


class QwenCode(Agent):
    name = "qwen-code"
    ready = "Type your message"
    native = ("list_agents", "send_message")

    def configure(self) -> None:
        command, *words = server(self.house.gate.place)
        self.house.write(
            ".qwen/settings.json",
            {
                "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
                "general": {"enableAutoUpdate": False},
                "permissions": {"allow": ["mcp__postroom__*", "send_message"]},
                "privacy": {"usageStatisticsEnabled": False},
                "mcpServers": {"gate": {"command": command, "args": words, "trust": True, "timeout": 120000}},
            },
        )

    def variables(self) -> Mapping[str, str]:
        url = f"http://127.0.0.1:{self.model.port}/v1"
        return {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": url, "OPENAI_MODEL": MODEL}

    def headless(self, prompt: str) -> Sequence[str]:
        return ("-p", prompt, "--yolo")

    def interactive(self, *more: str) -> Sequence[str]:
        return ("--approval-mode", "default", *more)


class OpenCode(Agent):
    name = "opencode"
    ready = "Ask anything"
    pushed = True
    port = 4096
    """Where its terminal program serves; nobody else is on the box's loopback."""

    def configure(self) -> None:
        url = f"http://127.0.0.1:{self.model.port}/v1"
        models = {MODEL: {"name": MODEL, "limit": {"context": 100_000, "output": 4_000}}}
        provider: Body = {"npm": "@ai-sdk/openai-compatible", "name": "tests", "models": models}
        provider["options"] = {"baseURL": url, "apiKey": KEY}
        gate = {"type": "local", "command": server(self.house.gate.place), "enabled": True}
        self.house.write(
            ".config/opencode/opencode.json",
            {
                "model": f"tests/{MODEL}",
                "small_model": f"tests/{MODEL}",
                "autoupdate": False,
                "share": "disabled",
                "provider": {"tests": provider},
                "mcp": {"gate": gate},
                "permission": {"*": "allow"},
            },
        )

    def variables(self) -> Mapping[str, str]:
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}

    def headless(self, prompt: str) -> Sequence[str]:
        return ("run", prompt)

    def interactive(self, *more: str) -> Sequence[str]:
        return ("--port", str(self.port), *more)


AGENTS: Mapping[str, type[Agent]] = {
    agent.name: agent for agent in cast("Iterable[Any]", (ClaudeCode, Codex, GeminiCli, QwenCode, OpenCode))
}
"""The clients that can be started here, by the project's names for them."""


@contextmanager
def house() -> Generator[House]:
    """A house for as long as the block runs; sessions that were opened in it have ended afterwards.

    Directly under /tmp, because the path of a Unix socket is short.
    """
    folder = Path(tempfile.mkdtemp(prefix="h", dir="/tmp"))
    made = House(folder)
    try:
        yield made
    finally:
        made.desk.leave()
        made.gate.close()
        made.end()
        shutil.rmtree(folder, ignore_errors=True)
