"""Three nats-servers that form a cluster, and an etcd."""

import asyncio
from pathlib import Path

from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats_cluster import NatsCluster


class NatsTrio:
    """Three nats-servers, and an etcd."""

    def __init__(self, folder: Path) -> None:
        folders = [folder / f"nats-{number}" for number in range(3)]
        for each in (folder / "etcd", *folders):
            each.mkdir()
        self.nats = NatsCluster(folders, fast=True)
        self.etcd = EtcdServer(folder / "etcd", fast=True)

    async def start(self) -> None:
        await asyncio.gather(self.nats.start(), self.etcd.start())

    async def stop(self) -> None:
        await asyncio.gather(self.nats.stop(), self.etcd.stop())
