"""The MCP server's own server object over the SDK's HTTP transport, for the protocol's conformance suite.

Postroom offers no HTTP: the suite speaks nothing else. What is served is the object that `postroom mcp` serves on its
standard streams, with the tools of a session in this process. Prints the address once it listens; ends at SIGTERM.
"""

from __future__ import annotations

import asyncio
import socket

import uvicorn

from postroom.clients.lodging import Here
from postroom.clients.mcp import Serving, server_of
from postroom.opening import open_session


async def main() -> None:
    """Serves until it is told to end."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    async with open_session("conformer", handle_signals=False) as session:
        serving = Serving()
        serving.lodge(Here(session))
        app = server_of(serving).streamable_http_app()
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
        listens = asyncio.get_running_loop().create_task(server.serve(sockets=[listening]))
        while not server.started and not listens.done():
            await asyncio.sleep(0.01)
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
        await listens


asyncio.run(main())
