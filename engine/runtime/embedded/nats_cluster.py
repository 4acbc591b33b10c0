"""Several nats-servers on loopback as one cluster, for tests and benchmarks."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from evenlane.engine.runtime.embedded import ports
from evenlane.engine.runtime.embedded.nats import NatsServer


class NatsCluster:
    """A server for each data directory. They run inside `async with`; single ones can be killed and started again.

    `fast` and `config` are those of `NatsServer`. Routes have fixed ports, which are free when the cluster is made. One
    data directory makes a plain server, because a cluster of one never gets a leader.
    """

    def __init__(self, data_dirs: Sequence[Path], *, config: str = "", fast: bool = False) -> None:
        routes = [ports.free_port() for _ in data_dirs]
        urls = ", ".join(f'"nats://{ports.HOST}:{port}"' for port in routes)

        def cluster(port: int) -> str:
            block = f"cluster {{ name: evenlane, listen: {ports.HOST}:{port}, routes: [{urls}] }}"
            return block if len(routes) > 1 else ""

        self.servers = [
            NatsServer(data_dir, config=f"{cluster(port)}\n{config}", fast=fast)
            for data_dir, port in zip(data_dirs, routes, strict=True)
        ]

    @property
    def url(self) -> str:
        """The addresses of all servers, separated by commas."""
        return ",".join(server.url for server in self.servers)

    @property
    def is_running(self) -> bool:
        """Whether all servers run."""
        return all(server.is_running for server in self.servers)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start those that don't run, and return once they have a leader."""
        await asyncio.gather(*(server.start() for server in self.servers if not server.is_running))

    async def stop(self) -> None:
        await asyncio.gather(*(server.stop() for server in self.servers))

    async def kill(self) -> None:
        """End all servers by SIGKILL."""
        await asyncio.gather(*(server.kill() for server in self.servers))
