"""Resolves host names in threads of its own.

The event loop has few threads; names whose servers don't answer would occupy them, and all other endpoints would wait.
aiohttp asks for each name once at a time, so one bad name occupies one thread.
"""

from __future__ import annotations

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from evenlane.engine.node.handlers.threads import Threads

_THREADS = 64
_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


class Resolver(AbstractResolver):
    def __init__(self) -> None:
        self._threads = Threads(_THREADS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises OSError."""
        found: list[ResolveResult] = []

        def look_up() -> None:
            try:
                infos = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
            except UnicodeError as error:  # of a label that is too long
                raise OSError(f"{host} is not a host name") from error
            for of, _type, proto, _canonical, address in infos:
                to = str(address[0])
                found.append(ResolveResult(hostname=host, host=to, port=port, family=of, proto=proto, flags=_NUMERIC))

        await self._threads.run(look_up)
        return found

    async def close(self) -> None:
        self._threads.close()
