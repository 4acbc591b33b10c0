"""The processes of a simulation: nodes that start, end, die, and are started again."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from evenlane.engine.base import names
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.runtime.engine import Engine
from tests.simulation.events import PRIORITIES
from tests.simulation.handling import Handling
from tests.simulation.network import Link
from tests.simulation.nodes import ENV, SimConnect, SimNode
from tests.support.promises.history import Fault

if TYPE_CHECKING:
    from tests.simulation.loop import Actor
    from tests.simulation.world import Simulation

_RESTART_S = 1.0  # until a process that ended by itself is started again


class Processes:
    """`nodes` are those that run, of all clusters; `others` are processes that run beside them."""

    def __init__(self, world: Simulation) -> None:
        self._w = world
        self.nodes: list[SimNode] = []
        self.others: list[SimNode] = []
        self.graves: list[Any] = []
        self._started = 0
        self.leaving = False
        self._handling = {cluster: Handling(world, promises) for cluster, promises in world.clusters.items()}

    @property
    def connected(self) -> list[SimNode]:
        """All that have connections to the servers."""
        return [*self.nodes, *self.others]

    def of(self, cluster: str) -> list[SimNode]:
        return [node for node in self.nodes if node.cluster == cluster]

    def new(self, own: str, cluster: str = ENV) -> SimNode:
        """A process that doesn't run yet."""
        self._started += 1
        links = [Link(Random(self._w.chance.random()), self._w.script.delays) for _ in range(2)]
        return SimNode(own, f"{own}.{self._started}", cluster, *links)

    def start(self, own: str | None = None, cluster: str = ENV) -> None:
        """Start a node."""
        world = self._w
        if self.leaving:
            return
        node = self.new(own or f"n{self._started + 1}", cluster)
        self.nodes.append(node)
        world.faults.touch_new(node)
        owners = world.clusters[cluster].owners
        if owners.able_since is None:
            owners.able_since = world.loop.now
        world.counts["starts"] += 1
        world.note("starts", node=node)
        task = world.loop.create_task(self._run(node), name="process", context=node.context)
        task.add_done_callback(lambda _: self._ended(node), context=world.loop.world.context)

    async def _run(self, node: SimNode) -> None:
        world, script = self._w, self._w.script
        settings = Settings(
            env=ENV, node=node.id, concurrency=script.concurrency, lease_ttl=float(script.ttl), drain_grace=14.0,
            partitions=script.partitions, priorities=PRIORITIES, group_qps=1e6, max_group_qps=1e6,
            read_ahead=script.read_ahead, index_limit=script.index_limit, meter_interval=0.0,
            subscription=names.subscription_of(node.cluster) or None,
        )  # fmt: skip
        try:
            handle = self._handling[node.cluster].handle
            node.engine = Engine(handle, settings=settings, connect=SimConnect(world, node))
            async with node.engine as engine:
                if not await engine.run():
                    world.counts["unclean"] += 1
        except EvenlaneError as error:
            world.counts["exits"] += 1
            world.counts[f"exit: {type(error).__name__}"] += 1
            world.note("exits", error=error)
        except Exception as error:  # noqa: BLE001 - a traceback is a defect
            world.failed(f"{node} ends", error)

    def _ended(self, node: SimNode) -> None:
        """The process has ended. Its supervisor starts it again after `_RESTART_S`. If it was asked to end, it is
        started again only if `back` is set, after `back` seconds.
        """
        self._w.note("ended", node=node)
        back = node.back if node.leaving else _RESTART_S
        self.remove(node)
        if back is not None:
            self._w.loop.call_later(back, self.start, node.id, node.cluster)

    def stop(self, node: SimNode, back: float | None, own: str | None = None) -> None:
        """Send SIGTERM. `back` seconds later another process takes its place; one of the same id waits for its end."""
        node.leaving = True
        self._w.note("gets SIGTERM", node=node)
        if node.engine is None:
            self.remove(node)
        else:
            self._w.loop.call_soon(node.engine.stop, context=node.context)
        self._update_able_since(node.cluster)
        if back is not None and own == node.id:
            node.back = back
        elif back is not None:
            self._w.loop.call_later(back, self.start, own, node.cluster)

    def die(self, node: Actor | None, uid: str) -> None:
        """A handler of this message has killed its process. Its supervisor restarts it unless it was asked to end."""
        assert isinstance(node, SimNode)
        world = self._w
        world.clusters[node.cluster].attempts.kills(uid, node)
        now = world.loop.now
        world.add_fault(Fault("crash", now, node, end=now, by=uid))
        world.counts["kills"] += 1
        world.note("KILLED", by=uid)
        back = node.back if node.leaving else world.chance.choice((0.05, 0.5, 2.0)) * (0.5 + world.chance.random())
        own = node.id if node.leaving or world.chance.random() < 0.5 else None
        self.remove(node)
        if back is not None:
            world.loop.call_later(back, self.start, own, node.cluster, context=world.loop.world.context)

    def remove(self, node: SimNode) -> None:
        """The process is gone: nothing of it runs any more."""
        if node.dead:
            return
        self.graves += self._w.loop.kill(node)
        (self.nodes if node in self.nodes else self.others).remove(node)
        for client in node.coordinations:
            client.discard()
        for store in node.stores:
            store.discard()
        self._update_able_since(node.cluster)

    def _update_able_since(self, cluster: str) -> None:
        if all(node.leaving for node in self.of(cluster)):
            self._w.clusters[cluster].owners.able_since = None

    def unowned(self, cluster: str) -> list[int]:
        """Partitions of a cluster without an owner, or whose owner doesn't run."""
        living = {node.id for node in self.of(cluster) if not node.leaving}
        keys = [self._w.etcd.get(names.key(cluster, "owners", p)) for p in range(self._w.script.partitions)]
        return [
            number
            for number, key in enumerate(keys)
            if key is None or not any(f'"{own}"'.encode() in key.value for own in living)
        ]
