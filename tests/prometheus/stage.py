"""The set-up of these tests: two nodes on real servers, and a Prometheus that scrapes them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.runtime.embedded.ports import free_port
from tests.ledger.world import ProcessWorld
from tests.prometheus import expressions, load
from tests.prometheus.api import Api
from tests.prometheus.load import Load
from tests.prometheus.seen import Lane, Node, Seen, by_kind
from tests.prometheus.server import Prometheus

NODES = ("node-a", "node-b")
_SECOND = 1_000_000_000


class Stage:
    """The set-up. `api` queries Prometheus; `bases` has the addresses of the nodes by name, `processes` the nodes."""

    def __init__(self, world: ProcessWorld, api: Api, bases: dict[str, str]) -> None:
        self.world, self.api, self.bases = world, api, bases
        self.processes = {node.name: node for node in world.nodes}

    async def seen(self, load: Load) -> Seen:
        """The true state at this instant, at which all later queries are evaluated."""
        self.api.at, now = time.time(), now_ns()
        ledger, waited = by_kind(self.world.entries()), (now - load.began_at) / _SECOND
        nodes, generation, lanes = await self.nodes(), await self._generation(), await self._lanes()
        return Seen(now, waited, load.putting_s, nodes, generation, load.put, ledger, lanes)

    async def _lanes(self) -> dict[int, Lane]:
        found = {}
        for partition in range(load.PARTITIONS):
            stream = names.stream("online", names.LaneId("lanes", partition))
            state = (await self.world.api(f"STREAM.INFO.{stream}"))["state"]
            found[partition] = Lane(state["first_seq"], state["last_seq"])
        return found

    async def nodes(self) -> tuple[Node, ...]:
        leader = (await self._values("leader"))[""]["id"]
        owners = await self._owners()
        return tuple(
            Node(name, urlsplit(base).netloc, self.processes[name].pid, name == leader, owners.get(name, {}))
            for name, base in self.bases.items()
        )

    async def _owners(self) -> dict[str, dict[int, int]]:
        """Epochs by node and partition."""
        prefix = names.key("online", "owners") + "/"
        found: dict[str, dict[int, int]] = {}
        for item in (await self.world.etcd.list(prefix)).items:
            owner = msgspec.json.decode(item.value)
            found.setdefault(owner["id"], {})[int(item.key.removeprefix(prefix))] = owner["epoch"]
        return found

    async def _generation(self) -> int:
        return max(value["generation"] for value in (await self._values("plan")).values())

    async def _values(self, kind: str) -> dict[str, dict]:
        prefix = names.key("online", kind)
        items = (await self.world.etcd.list(prefix)).items
        return {item.key.removeprefix(prefix): msgspec.json.decode(item.value) for item in items}


@contextlib.asynccontextmanager
async def stage(folder: Path, **settings: object) -> AsyncIterator[Stage]:
    few = {"partitions": load.PARTITIONS, "concurrency": load.SLOTS, "metrics_projects": load.LABELS}
    few |= {"read_ahead": load.READ_AHEAD, "lease_ttl": 10}
    async with ProcessWorld(folder, **(few | settings)) as world:
        await asyncio.gather(*(world.node(name=name, http_port=free_port()) for name in NODES))
        bases = {name: await world.address(name) for name in NODES}
        data = folder / "prometheus"
        data.mkdir()
        server = Prometheus(data, bases, expressions.quick_rules(data))
        await server.start()
        try:
            async with Api(server.url) as api:
                yield Stage(world, api, bases)
        finally:
            await server.kill()
