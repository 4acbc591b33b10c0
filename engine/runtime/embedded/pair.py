"""Runs nats-server and etcd together, for `demo`, `up` and tests."""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Self

from evenlane.engine.runtime.embedded import child
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats import NatsServer


class Servers:
    """A pair of servers that run inside `async with`, and are stopped after it.

    `fast` leaves out fsync, for tests; `nats_config` is added to nats-server's configuration file, and with `mqtt_port`
    it serves MQTT. Raises what `Server.start` raises, for the server that failed first; the other one is then stopped.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        nats_port: int | None = None,
        etcd_port: int | None = None,
        mqtt_port: int | None = None,
        nats_config: str = "",
        fast: bool = False,
    ) -> None:
        self.nats = NatsServer(data_dir, port=nats_port, config=nats_config, mqtt_port=mqtt_port, fast=fast)
        self.etcd = EtcdServer(data_dir, port=etcd_port, fast=fast)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.nats.start())
                group.create_task(self.etcd.start())
        except BaseExceptionGroup as failures:
            await self.stop()
            raise failures.exceptions[0] from None
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        await asyncio.gather(self.nats.stop(), self.etcd.stop())

    async def wait(self) -> str:
        """Wait until one of the servers ends; return a sentence with its name, exit status and last words."""
        ends = {asyncio.ensure_future(server.wait()): server for server in (self.nats, self.etcd)}
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        first = done.pop()
        server = ends[first]
        return f"{server.title} ended {child.describe_exit(first.result())}; its last output was: {server.last_words()}"
