"""Serves until a signal, then stops gracefully."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable

from .server import Server
from .service import DRAIN_S, SIGNALS


def serve(
    server: Server,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    on_start: Callable[[Server], None] = lambda server: None,
    drain_s: float = DRAIN_S,
) -> bool:
    """Serve until SIGTERM or SIGINT, then answer what has come; whether all was answered.

    A second signal ends it at once.
    """

    async def run() -> bool:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for kind in SIGNALS:
            loop.add_signal_handler(kind, stopping.set)
        server.start(host, port)
        on_start(server)
        await stopping.wait()
        for kind in SIGNALS:
            loop.remove_signal_handler(kind)
        return await server.stop(drain_s)

    return asyncio.run(run())


def is_loopback(host: str) -> bool:
    """Whether a host's address is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
