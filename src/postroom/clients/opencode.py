"""opencode: how its sessions are recognised, its permission modes, its doors (chapter 09)."""

from __future__ import annotations

from types import MappingProxyType

from postroom.client import MCP, WAIT, Client, DoorFact

CLIENT = Client(
    name="opencode",
    title="opencode",
    programs=("opencode", "opencode-ai"),
    pid_variable="OPENCODE_PID",
    modes=MappingProxyType({}),
    doors=(
        DoorFact(
            name="opencode-http",
            wakes=True,
            during_turn="yes",
            confirms="accepted",
            needs="It serves on a port (`opencode serve`, or the terminal program with `--port`), and a session has had a turn.",
        ),
        MCP,
        WAIT,
    ),
)
