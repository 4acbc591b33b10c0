"""A cluster of node processes, with proxies to etcd and nats-server if needed, and a load that reaches everywhere."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Self

from evenlane.engine.base.clock import now_ns
from evenlane.engine.producer.put import Put
from evenlane.ring.hashing import partition_of
from tests.ledger.history import EtcdHistory
from tests.ledger.process import NodeProcess
from tests.ledger.world import ProcessWorld
from tests.support.etcd.proxy import Proxy
from tests.support.until import until

TTL_S = 2
PARTITIONS = 12
EVERY_S = 0.1  # between two rounds of the load


class ProcessCluster(ProcessWorld):
    """A world with many nodes; `history` has the changes of etcd's keys."""

    def __init__(self, folder: Path, **settings: object) -> None:
        super().__init__(folder, **({"partitions": PARTITIONS, "lease_ttl": TTL_S} | settings))
        self.partitions = int(str(self._defaults["partitions"]))
        self.projects = one_for_each(self.partitions)
        self.rounds = 0  # of all loads so far: the ids of each are new

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.history = await self._open.enter_async_context(EtcdHistory(self.settings.etcd))
        return self

    async def start(
        self, *names: str, handler: str = "obey", within_s: float = 60.0, **settings: object
    ) -> list[NodeProcess]:
        """Start nodes at the same time, and wait until they serve."""
        nodes = await self.spawn(*names, handler=handler, **settings)
        await asyncio.gather(*(node.ready(within_s) for node in nodes))
        return nodes

    async def spawn(self, *names: str, handler: str = "obey", **settings: object) -> list[NodeProcess]:
        """Start nodes without waiting for them: a partition whose owner is cut off keeps its next one from serving."""
        nodes = [self.add_node(handler, name=name, **settings) for name in names]
        for node in nodes:
            await node.spawn()
        return nodes

    async def serve(self, *names: str) -> list[NodeProcess]:
        """Start nodes and create the topics; return once the nodes own all partitions."""
        nodes = await self.start(*names)
        await self.topics(*self.projects)
        await self.owned_by(*nodes)
        return nodes

    def newest(self, name: str) -> NodeProcess:
        """The newest node of that name."""
        return next(node for node in reversed(self.nodes) if node.name == name)

    async def owned_by(self, *nodes: NodeProcess, timeout: float = 60.0) -> None:
        """Wait until these nodes own all partitions as planned, and have confirmed it."""
        names = {node.name for node in nodes}

        def so_far() -> bool:
            for node in nodes:
                assert node.running, f"{node.name} has ended: {node.last_words()}"
            return self.history.is_owned_by(names, self.partitions)

        try:
            await until(so_far, timeout, f"{sorted(names)} to own all as planned")
        except AssertionError as error:
            raise AssertionError(f"{error}; etcd: {self.etcd_state()}") from None

    def etcd_state(self) -> dict[str, str]:
        """The cluster's keys in etcd, for a person to read."""
        kinds = ("leader", "nodes/", "plan/", "owners/", "done/", "held/", "generation")
        keys = self.history.keys
        return {key: keys[key].value.decode(errors="replace")[:120] for key in sorted(keys) if key.startswith(kinds)}

    @contextlib.asynccontextmanager
    async def load(self, *, round_s: float = EVERY_S, **put: Any) -> AsyncIterator["Load"]:
        """Put one message per round and project while the block runs. At the end, wait until all are handled."""
        load = Load(self, round_s, put)
        await load.start()
        try:
            yield load
        finally:
            await load.stop()
        await self.handled(timeout=60)

    @contextlib.asynccontextmanager
    async def proxied(self, endpoint: str) -> AsyncIterator[Proxy]:
        proxy = Proxy(endpoint)
        await proxy.start()
        try:
            yield proxy
        finally:
            await proxy.cut()

    async def etcdctl_put(self, key: str, value: bytes) -> int:
        """Write a key under no lease, as anyone may. Return the revision."""
        return await self.etcd.put(f"/evenlane/online/{key}", value)


class Load:
    """A load. The last of the cluster's `rounds` has perhaps been put only in part."""

    def __init__(self, cluster: ProcessCluster, round_s: float, put: dict[str, Any]) -> None:
        self._cluster, self._round_s, self._put = cluster, round_s, put
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        producer = await self._cluster.producer()

        async def put() -> None:
            cluster, clock = self._cluster, asyncio.get_running_loop().time
            start, first = clock(), cluster.rounds
            while not self._stop.is_set():
                name = f"r{cluster.rounds}"
                puts = [Put(each, b"", id=f"{each}-{name}", **self._put) for each in cluster.projects]
                await cluster.put(producer, puts)
                cluster.rounds += 1
                await asyncio.sleep(max(0.0, start + (cluster.rounds - first) * self._round_s - clock()))

        self._task = asyncio.create_task(put())

    async def stop(self) -> None:
        assert self._task is not None
        self._stop.set()
        await self._task

    async def reaches_all(self, timeout: float = 60.0) -> int:
        """Wait until a message put from now on has begun in each partition. Return the time (ns since boot)."""
        since, missing, read = self._cluster.rounds + 1, set(self._cluster.projects), len(self._cluster.entries())

        def reached() -> bool:
            nonlocal read
            fresh = self._cluster.entries()[read:]
            read += len(fresh)
            missing.difference_update(entry.project for entry in fresh if _round(entry.id) >= since)
            return not missing

        await until(reached, timeout, "a message of each partition to be begun")
        return now_ns()


def _round(own: str) -> int:
    """The round of a message of the load; -1 for other messages."""
    word = own.rpartition("-r")[2]
    return int(word) if word.isdigit() else -1


def one_for_each(partitions: int) -> list[str]:
    """A project for each partition, in their order."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        project = f"tenant-{number}"
        found.setdefault(partition_of(project, 0, 1, partitions, "hashed"), project)
        number += 1
    return [found[number] for number in range(partitions)]


def plan(generation: int, partitions: Sequence[int]) -> bytes:
    return json.dumps({"generation": generation, "partitions": list(partitions)}).encode()
