"""Visual Studio Code's agent: reached over MCP alone (chapter 09). Written from its documentation; not run."""

from __future__ import annotations

from postroom.client import MCP, WAIT, Client

CLIENT = Client(
    name="vscode",
    title="VS Code",
    programs=("code", "Code", "code-insiders"),
    doors=(
        MCP,
        WAIT,
    ),
)
