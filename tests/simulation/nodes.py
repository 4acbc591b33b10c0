"""Processes of a simulation: nodes and their connections to the servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.base import names
from evenlane.engine.base.aio.loop_thread import SameLoop
from tests.simulation.etcd import SimCoordination
from tests.simulation.loop import Actor
from tests.simulation.store import SimStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.runtime.engine import Engine
    from tests.simulation.network import Link
    from tests.simulation.world import Simulation

ENV = "online"
AUDIT = names.cluster_name(ENV, "audit")
"""The nodes of the named subscription."""


class SimNode(Actor):
    """One process; `cluster` is the name of the cluster that it belongs to."""

    def __init__(self, own: str, name: str, cluster: str, etcd: Link, nats: Link) -> None:
        super().__init__(name)
        self.id, self.cluster, self.etcd, self.nats = own, cluster, etcd, nats
        self.engine: Engine | None = None
        self.coordinations: list[SimCoordination] = []
        self.stores: list[SimStore] = []
        self.questions: list[SimQuestions] = []
        self.leaving = False
        self.back: float | None = None  # seconds from its end until it is started again


class SimConnect:
    """`evenlane.engine.cluster.connections.Connections` of one node."""

    def __init__(self, world: Simulation, node: SimNode) -> None:
        self._world, self._node = world, node

    def etcd(self, _settings: Settings | None = None) -> Any:
        made = SimCoordination(self._world.loop, self._world.etcd, self._node.etcd)
        self._node.coordinations.append(made)
        return made

    def lease_runner(self) -> SameLoop:
        return SameLoop()

    def store(self, _settings: Settings, _name: str, *, feeds: bool = False) -> Any:
        return self.store_of(self._node.cluster)

    def store_of(self, cluster: str) -> SimStore:
        made = SimStore(self._world.loop, self._world.server, cluster, self._node.nats)
        self._node.stores.append(made)
        return made

    def questions(self, _settings: Settings, _name: str) -> Any:
        return SimQuestions(self._node)


class SimQuestions:
    """A connection that receives questions; the answers are dropped."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self.listeners: dict[str, Callable[[bytes, bytes, bytes, bytes], None]] = {}

    async def open(self) -> None:
        self._node.questions.append(self)

    def listen(self, subject: str, on_message: Callable[[bytes, bytes, bytes, bytes], None]) -> int:
        self.listeners[subject] = on_message
        return len(self.listeners)

    def new_inbox(self) -> str:
        return f"_INBOX.{self._node.id}.{len(self.listeners)}"

    def unlisten(self, sid: int) -> None:
        pass

    def send(self, _subject: str, _body: bytes, _headers: bytes = b"", reply: str = "") -> None:
        pass

    async def close(self) -> None:
        if self in self._node.questions:
            self._node.questions.remove(self)
