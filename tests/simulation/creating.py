"""The creation of a named subscription in a simulation, as `evenlane subscriptions create` does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.subscriptions.registry import read_view, registry_key
from evenlane.engine.control.subscriptions.creation import Stores, SubscriptionCreation
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.errors import EvenlaneError
from evenlane.ring.coordination.ports import CoordinationError
from tests.simulation.nodes import AUDIT, ENV, SimConnect
from tests.simulation.subscription_promises import SubscriptionPromises

if TYPE_CHECKING:
    from evenlane.engine.cluster.subscriptions.registry import Subscription
    from tests.simulation.nodes import SimNode
    from tests.simulation.world import Simulation

_NAME = names.subscription_of(AUDIT)
_AGAIN_S = 0.5  # after a creator has failed or died, until the next one


class Creating:
    """Creators, one after another until the subscription is created. Its nodes start then."""

    def __init__(self, world: Simulation) -> None:
        self._w = world
        audit = world.script.audit
        self._deaths = list(audit.deaths) if audit is not None else []

    @property
    def is_done(self) -> bool:
        return self._w.script.audit is None or (AUDIT in self._w.active and self._is_active())

    def begin(self) -> None:
        world = self._w
        creator = world.processes.new("creator", AUDIT)
        world.processes.others.append(creator)
        world.faults.touch_new(creator)
        world.note("starts", node=creator)
        world.loop.create_task(self._run(creator), name="creator", context=creator.context)
        if self._deaths:
            world.loop.call_later(self._deaths.pop(0), self._die, creator)

    def repeat(self) -> None:
        """Create the subscription again if etcd has lost it since."""
        if AUDIT in self._w.active and not self._is_active():
            self._w.counts["subscriptions lost"] += 1
            self.begin()

    def _die(self, creator: SimNode) -> None:
        if not creator.dead:
            self._w.note("KILLED", node=creator)
            self._w.counts["creators killed"] += 1
            self._w.processes.remove(creator)
            self._again()

    def _again(self) -> None:
        self._w.loop.call_later(_AGAIN_S, self.begin, context=self._w.loop.world.context)

    async def _run(self, creator: SimNode) -> None:
        world = self._w
        try:
            await self._create(creator)
        except (EvenlaneError, CoordinationError, Lost, Refused) as error:
            world.note("not created", error=error)
            world.counts["creations repeated"] += 1
            if self._is_active():  # by a creator that didn't live to see it
                self._created()
            else:
                self._again()
        except Exception as error:  # noqa: BLE001 - a traceback is a defect
            world.failed(f"{creator} ends", error)
        else:
            self._created()
        world.loop.call_soon(world.processes.remove, creator, context=world.loop.world.context)

    async def _create(self, creator: SimNode) -> None:
        connect = SimConnect(self._w, creator)
        stores = Stores(connect.store_of(ENV), connect.store_of(AUDIT))
        for store in stores:
            await store.open()
        config = ClusterConfig(partitions=self._w.script.partitions)
        await SubscriptionCreation(connect.etcd(), ENV, _NAME, config, stores).run()

    def _created(self) -> None:
        """The creation is acknowledged."""
        world = self._w
        world.note("CREATED", subscription=_NAME)
        if AUDIT in world.active:
            return
        world.counts["subscriptions"] += 1
        world.active.append(AUDIT)
        assert world.script.audit is not None
        for number, at in enumerate(world.script.audit.joins, 1):
            start = world.processes.start
            world.loop.call_later(at, start, f"a{number}", AUDIT, context=world.loop.world.context)
        world.resetting.schedule()

    def _entry(self) -> Subscription | None:
        return (read_view(self._w.etcd.get(registry_key(ENV))).subscriptions or {}).get(_NAME)

    def _is_active(self) -> bool:
        entry = self._entry()
        return entry is not None and entry.state == "active"

    def look(self) -> None:
        """The registry in etcd may be another one."""
        promises, entry = self._w.clusters.get(AUDIT), self._entry()
        if entry is not None and isinstance(promises, SubscriptionPromises):
            promises.look(entry.due_from, entry.start or 0, entry.reset)
