"""A cluster: etcd, topics and node processes, and their observed history."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from evenlane.engine.base.names import LaneId
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.broker.environment import environment, open_store
from evenlane.engine.proof.broker.puts import Puts
from evenlane.engine.proof.cluster.history import OwnershipHistory
from evenlane.engine.proof.cluster.node import NODE, NodeProcess
from evenlane.engine.proof.cluster.records import SERVICE_S, HandlerRecords
from evenlane.engine.proof.cluster.topics import accept_topics
from evenlane.engine.runtime.embedded import child
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.quota.topics.topic import encode
from evenlane.ring.coordination.etcd.client import EtcdCoordination

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.proof.cluster.records import HandlerRecord
    from evenlane.engine.proof.load.load import LoadTenant
    from evenlane.engine.store.jetstream.store import JetStreamStore

ENV = "bench"
PATIENCE_S = 60.0
_LOOK_S = 0.02


class Cluster:
    """A running cluster. `puts` is the scenario's own connection; `nodes` are all nodes that were ever started, by
    name.
    """

    def __init__(
        self,
        folder: Path,
        history: OwnershipHistory,
        store: JetStreamStore,
        puts: Puts,
        partitions: int,
        settings: Mapping[str, object],
        service_s: float,
    ) -> None:
        self.url, self.endpoint = str(settings["nats"]), str(settings["etcd"])
        self._folder, self.records_folder = folder, folder / "records"
        self.records_folder.mkdir()
        self.history, self._store, self.puts = history, store, puts
        self._partitions, self._settings, self._service_s = partitions, settings, service_s
        self.nodes: dict[str, NodeProcess] = {}
        self.handlers = HandlerRecords(self.records_folder)
        self._watches: list[asyncio.Task[None]] = []

    async def count_stored(self) -> int:
        """The number of messages that all lanes have ever taken. Raises Lost."""
        lanes = [LaneId("lanes", partition) for partition in range(self._partitions)]
        return sum(state.last for state in [await self._store.state(lane) for lane in lanes])

    async def spawn(self, name: str, program: str = NODE) -> NodeProcess:
        node = self.nodes[name] = NodeProcess(
            name, self._folder, self.records_folder, self._settings, service_s=self._service_s, program=program
        )
        await node.spawn()
        self._watches.append(asyncio.create_task(self._watch(node)))
        return node

    async def _watch(self, node: NodeProcess) -> None:
        status = await node.wait_for_end()
        if not node.is_ending:
            self.history.break_off(
                f"{node.name} ended {child.describe_exit(status)}; its last output was: {node.last_words()}"
            )

    async def start(self, *names: str, program: str = NODE) -> None:
        """Start nodes concurrently. Returns when everything is owned as planned. Raises EvenlaneError."""
        nodes = [await self.spawn(name, program) for name in names]
        await asyncio.gather(*(node.ready() for node in nodes))
        await self.wait_until_carried_out(*names)

    async def wait_until_carried_out(self, *names: str) -> None:
        """Wait until these nodes own everything as planned, and there are no others. Raises EvenlaneError."""
        await self.history.wait_until(
            lambda: self.history.is_carried_out(set(names), self._partitions),
            PATIENCE_S,
            f"{', '.join(names)} to own all",
        )

    async def wait_for_record(self, matches: Callable[[HandlerRecord], bool], what: str) -> None:
        """Wait for a record that hasn't been read yet. Raises EvenlaneError, which says `what` was waited for."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not any(map(matches, self.handlers.read())):  # noqa: ASYNC110 - a file notifies nobody
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise EvenlaneError(
                f"the scenario was aborted: waited {PATIENCE_S:g} s for {what} without success"
            ) from None

    async def end(self) -> None:
        await asyncio.gather(*(node.end() for node in self.nodes.values()), *self._watches)


@asynccontextmanager
async def cluster(
    url: str,
    tenants: Sequence[LoadTenant],
    cluster_config: ClusterConfig,
    settings: Mapping[str, object],
    *,
    env: str = ENV,
    service_s: float = SERVICE_S,
) -> AsyncIterator[Cluster]:
    """Put the topics of all tenants in effect, without a running node yet. `settings` are those of all nodes, whose
    handlers take `service_s`. Clusters that share a nats-server at the same time need different `env`. Raises
    EvenlaneError, CoordinationError.
    """
    topics = {each.name: each.topic for each in tenants}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evenlane-bench-")))
        etcd = EtcdServer(folder)
        stack.push_async_callback(etcd.stop)
        await etcd.start()
        await stack.enter_async_context(environment(url, env, cluster_config, topics.get))
        history = await stack.enter_async_context(OwnershipHistory(etcd.endpoint, env))
        await _accept(etcd.endpoint, env, cluster_config, {name: encode(topic) for name, topic in topics.items()})
        store = await stack.enter_async_context(open_store(url, env))
        puts = Puts(store, env, cluster_config, {name: topic.spread for name, topic in topics.items()})
        of_nodes = {"nats": url, "etcd": etcd.endpoint, "env": env, **settings}
        made = Cluster(folder, history, store, puts, cluster_config.partitions, of_nodes, service_s)
        stack.push_async_callback(made.end)
        yield made


async def _accept(endpoint: str, env: str, cluster_config: ClusterConfig, specs: Mapping[str, bytes]) -> None:
    """Accept the topics before any node starts, so that the first plan knows all loads."""
    coordination = EtcdCoordination((endpoint,))
    try:
        async with accept_topics(coordination, env, cluster_config, specs):
            pass
    finally:
        await coordination.close()
