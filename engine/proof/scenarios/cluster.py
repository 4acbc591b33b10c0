"""etcd, topics and node processes of `rebalance`, `delay` and `live`, and what is known of them."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.scenarios.cluster_history import History
from evenlane.engine.proof.scenarios.cluster_node import NODE, NodeProcess
from evenlane.engine.proof.scenarios.cluster_records import SERVICE_S, Ledger
from evenlane.engine.proof.scenarios.environment import environment
from evenlane.engine.proof.scenarios.puts import Puts
from evenlane.engine.runtime.embedded import child
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.store.jetstream.client.connection import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore
from evenlane.quota.topics.topic import encode
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import Put

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.proof.scenarios.cluster_records import Record
    from evenlane.engine.proof.scenarios.load import Tenant

ENV = "bench"
PATIENCE_S = 60.0
_AT_ONCE = 100  # keys in a transaction; etcd takes 128
_LOOK_S = 0.02


class Projects(Protocol):
    """Who there is; `lease_ttl` is in s."""

    @property
    def facts(self) -> ClusterConfig: ...

    @property
    def all(self) -> Sequence[Tenant]: ...

    @property
    def lease_ttl(self) -> int: ...


class Cluster:
    """`puts` is a connection of the scenario's own; `nodes` are those that were ever started, by name."""

    def __init__(
        self,
        url: str,
        endpoint: str,
        folder: Path,
        projects: Projects,
        history: History,
        store: JetStreamStore,
        *,
        env: str,
        service_s: float,
        settings: Mapping[str, object],
    ) -> None:
        self._env = env
        self._service_s, self._settings = service_s, dict(settings)
        self.url, self.endpoint, self._folder, self._projects = url, endpoint, folder, projects
        self.records = folder / "records"
        self.records.mkdir()
        self.history, self._store = history, store
        self.puts = Puts(store, env, projects.facts, {each.name: each.topic.spread for each in projects.all})
        self.nodes: dict[str, NodeProcess] = {}
        self.ledger = Ledger(self.records)
        self._watches: list[asyncio.Task[None]] = []

    async def stored(self) -> int:
        """How many messages all lanes have ever taken. Raises Lost."""
        lanes = [LaneId("lanes", partition) for partition in range(self._projects.facts.partitions)]
        return sum(state.last for state in [await self._store.state(lane) for lane in lanes])

    async def spawn(self, name: str, program: str = NODE) -> NodeProcess:
        settings = {
            "nats": self.url, "etcd": self.endpoint, "env": self._env, "lease_ttl": self._projects.lease_ttl,
        } | self._settings  # fmt: skip
        node = self.nodes[name] = NodeProcess(
            name, self._folder, self.records, settings, service_s=self._service_s, program=program
        )
        await node.spawn()
        self._watches.append(asyncio.create_task(self._watch(node)))
        return node

    async def _watch(self, node: NodeProcess) -> None:
        status = await node.ended()
        if not node.told_to_end:
            self.history.break_off(f"{node.name} ended {child.how(status)}; it last said: {node.last_words()}")

    async def start(self, *wanted: str, program: str = NODE) -> None:
        """At once; returns when everything is owned as planned. Raises EvenlaneError."""
        nodes = [await self.spawn(name, program) for name in wanted]
        await asyncio.gather(*(node.ready() for node in nodes))
        await self.carried_out(*wanted)

    async def carried_out(self, *wanted: str) -> None:
        """Wait until these own everything as planned, and no others are there. Raises EvenlaneError."""
        partitions = self._projects.facts.partitions
        await self.history.until(
            lambda: self.history.carried_out(set(wanted), partitions),
            PATIENCE_S,
            f"{', '.join(wanted)} to own all",
        )

    async def seen(self, wanted: Callable[[Record], bool], what: str) -> None:
        """Wait for a record that hasn't been read yet. Raises EvenlaneError, which says `what` was waited for."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not any(map(wanted, self.ledger.read())):  # noqa: ASYNC110 - a file tells nobody
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise EvenlaneError(f"the scenario broke off: waited {PATIENCE_S:g} s in vain for {what}") from None

    async def end(self) -> None:
        await asyncio.gather(*(node.end() for node in self.nodes.values()), *self._watches)


@asynccontextmanager
async def cluster(
    url: str, projects: Projects, *, env: str = ENV, service_s: float = SERVICE_S, **settings: object
) -> AsyncIterator[Cluster]:
    """The topics of all projects are in force, and no node runs yet; `settings` are those of all nodes, and their
    handlers take `service_s`. `env` tells apart those that share the nats-server at the same time. Raises
    EvenlaneError, CoordinationError.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evenlane-bench-")))
        etcd = EtcdServer(folder)
        stack.push_async_callback(etcd.stop)
        await etcd.start()
        await stack.enter_async_context(environment(url, env, projects.facts, projects.all))
        history = await stack.enter_async_context(History(etcd.endpoint, env))
        await _in_force(etcd.endpoint, env, projects, history)
        store = JetStreamStore(NatsOptions((url,)), env, feeds_apart=False)
        stack.push_async_callback(store.close)
        await store.open()
        made = Cluster(
            url, etcd.endpoint, folder, projects, history, store, env=env, service_s=service_s, settings=settings
        )
        stack.push_async_callback(made.end)
        yield made


async def _in_force(endpoint: str, env: str, projects: Projects, history: History) -> None:
    """Topics as people wish them, accepted as a leader would, so that the first plan knows all loads."""
    coordination = EtcdCoordination((endpoint,))
    facts = await agree_cluster_config(coordination, env, asdict(projects.facts))
    acceptor = TopicController(coordination, env, facts, env)
    try:
        await acceptor.start()
        for some in _parts([_wish(env, each) for each in projects.all]):
            await coordination.txn([], some)
        await history.until(lambda: history.accepted >= len(projects.all), PATIENCE_S, "all topics to be in force")
    finally:
        await acceptor.close()
        await coordination.close()


def _wish(env: str, of: Tenant) -> Put:
    return Put(names.key(env, "topics", of.name), encode(of.topic))


def _parts(puts: list[Put]) -> Iterable[list[Put]]:
    return (puts[start : start + _AT_ONCE] for start in range(0, len(puts), _AT_ONCE))
