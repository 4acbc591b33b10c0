"""Resets of the named subscription in a simulation, as `evenlane subscriptions reset` does them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.subscriptions.creation import Stores
from evenlane.engine.control.subscriptions.reset import SubscriptionReset
from evenlane.engine.control.subscriptions.start_point import StartPoint
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.errors import EvenlaneError
from evenlane.ring.coordination.ports import CoordinationError
from tests.simulation.loop import SECOND
from tests.simulation.nodes import AUDIT, ENV, SimConnect
from tests.simulation.subscription_promises import SubscriptionPromises

if TYPE_CHECKING:
    from tests.simulation.audits import ResetAt
    from tests.simulation.nodes import SimNode
    from tests.simulation.world import Simulation

_NAME = names.subscription_of(AUDIT)
_AGAIN_S = 0.5  # after a process has failed or died, until the next one
_LIMIT_S = 10.0


class Resetting:
    """Processes that reset the subscription, one after another."""

    def __init__(self, world: Simulation) -> None:
        self._w = world
        audit = world.script.audit
        self._due = list(audit.resets) if audit is not None else []
        self._deaths: list[float] = []

    @property
    def is_done(self) -> bool:
        return not self._due

    def schedule(self) -> None:
        """The subscription is created."""
        if self._due:
            self._deaths = list(self._due[0].deaths)
            self._call_later(self._due[0].at)

    def _call_later(self, seconds: float) -> None:
        self._w.loop.call_later(seconds, self._begin, context=self._w.loop.world.context)

    def _begin(self) -> None:
        world = self._w
        process = world.processes.new("resetter", AUDIT)
        world.processes.others.append(process)
        world.faults.touch_new(process)
        world.note("starts", node=process)
        world.loop.create_task(self._run(process, self._due[0]), name="resetter", context=process.context)
        if self._deaths:
            world.loop.call_later(self._deaths.pop(0), self._die, process)

    def _die(self, process: SimNode) -> None:
        if not process.dead:
            self._w.note("KILLED", node=process)
            self._w.counts["resetters killed"] += 1
            self._w.processes.remove(process)
            self._call_later(_AGAIN_S)

    async def _run(self, process: SimNode, asked: ResetAt) -> None:
        world = self._w
        try:
            await self._reset(process, asked)
        except (EvenlaneError, CoordinationError, Lost, Refused) as error:
            world.note("not reset", error=error)
            world.counts["resets repeated"] += 1
            self._call_later(_AGAIN_S)
        except Exception as error:  # noqa: BLE001 - a traceback is a defect
            world.failed(f"{process} ends", error)
        else:
            self._acknowledged()
        world.loop.call_soon(world.processes.remove, process, context=world.loop.world.context)

    async def _reset(self, process: SimNode, asked: ResetAt) -> None:
        connect = SimConnect(self._w, process)
        stores = Stores(connect.store_of(ENV), connect.store_of(AUDIT))
        for store in stores:
            await store.open()
        at = 0 if asked.ago is None else None if asked.ago < 0 else self._w.server.clock() - int(asked.ago * SECOND)
        config = ClusterConfig(partitions=self._w.script.partitions)
        reset = SubscriptionReset(connect.etcd(), ENV, _NAME, config, stores, limit_s=_LIMIT_S)
        await reset.run(StartPoint("asked", at))

    def _acknowledged(self) -> None:
        world = self._w
        world.note("RESET", subscription=_NAME)
        world.counts["resets"] += 1
        promises = world.clusters[AUDIT]
        assert isinstance(promises, SubscriptionPromises)
        promises.acknowledge_reset()
        self._due.pop(0)
        self.schedule()
