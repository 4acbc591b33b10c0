"""One simulation: nodes, servers and faults, from a seed to the last check."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.subscriptions.registry import registry_key
from tests.simulation import surroundings
from tests.simulation.creating import Creating
from tests.simulation.etcd import SimEtcd
from tests.simulation.etcd_faults import backup_age
from tests.simulation.faults import Faults
from tests.simulation.loop import NODE, SECOND, SimLoop, Stuck, bury
from tests.simulation.nodes import AUDIT, ENV, SimNode
from tests.simulation.processes import Processes
from tests.simulation.promises import Promises
from tests.simulation.putting import Putting
from tests.simulation.resetting import Resetting
from tests.simulation.script import Script, written
from tests.simulation.store import SimServer
from tests.simulation.subscription_promises import SubscriptionPromises, Witnesses
from tests.support.promises.history import Broken

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from evenlane.ring.coordination.ports import Event
    from tests.support.promises.history import Fault

_TICK_S = 0.1  # between two looks of etcd for ended leases
_REMOVED_S = 30.0  # from when all is settled until all is removed


@dataclass
class Result:
    """The result of a simulation. `broken` is None if all promises held. `gaps` are the seconds that partitions were
    without an owner when they changed owners while nothing was wrong. `virtual` is in seconds, too.
    """

    seed: int
    counts: Counter[str]
    virtual: float
    steps: int
    gaps: list[float]
    broken: Broken | None


class Simulation:
    """One life of an environment. `trace` is called with a line for each event.

    `clusters` has the checkers of each cluster, `promises` are those of the unnamed one. `active` are the clusters that
    may have nodes: the named one once its subscription is created. `began` (s) is the time that the script counts from.
    """

    def __init__(self, script: Script, trace: Callable[[str], None] | None = None) -> None:
        self.script, self._trace = script, trace
        self.chance = Random(f"world {script.seed}")
        self.loop = SimLoop(Random(f"order {script.seed}"), self.failed)
        self.etcd = SimEtcd(self.loop)
        self.etcd.revision = script.revision
        self.promises = self._checkers(Promises, ENV)
        self.clusters = {ENV: self.promises}
        if script.audit is not None:
            self.clusters[AUDIT] = self._checkers(SubscriptionPromises, AUDIT)
        self.active = [ENV]
        self.began = self.loop.time()
        self.etcd.on_event = self._etcd_changed
        self.etcd.on_restore = self._etcd_went_back
        self.server = SimServer(self.loop, script.epoch_ns, Witnesses(self.clusters))
        self.faults = Faults(self)
        self.processes = Processes(self)
        self.creating = Creating(self)
        self.resetting = Resetting(self)
        self._broken: Broken | None = None

    def _checkers(self, kind: type[Promises], cluster: str) -> Promises:
        script = self.script
        return kind(
            self.loop, self.etcd, cluster, script.bounds, self.note, self._server_now, script.topics, script.poison,
            script.unsteady,
        )  # fmt: skip

    # ---- trace and log

    def _server_now(self) -> int:
        return self.server.clock()

    def _etcd_changed(self, event: Event) -> None:
        for promises in self.clusters.values():
            promises.owners.changed(event)
        if "/owners/" not in event.item.key:
            self.note(f"etcd {event.kind}", key=event.item.key, value=event.item.value[:160])
        if event.item.key == registry_key(ENV):
            self.creating.look()

    def _etcd_went_back(self) -> None:
        for promises in self.clusters.values():
            promises.owners.went_back(self.etcd.list("").items, self.etcd.rolled_back_until)
        self.creating.look()

    def add_fault(self, fault: Fault) -> None:
        for cluster, promises in self.clusters.items():
            if fault.node is None or (isinstance(fault.node, SimNode) and fault.node.cluster == cluster):
                promises.faults.append(fault)

    def cut_back(self, stream: str, above: int) -> None:
        """A shared stream loses all messages after `above`."""
        for promises in self.clusters.values():
            promises.cut_back(stream, above)

    @property
    def counts(self) -> Counter[str]:
        return self.promises.counts

    def note(self, event: str, /, **fields: Any) -> None:
        if self._trace is not None:
            node = NODE.get()
            reported = " ".join(f"{name}={value}" for name, value in fields.items())
            self._trace(f"{self.loop.time():12.6f} {node or '-'!s:8} {event} {reported}")

    def _logged(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if self.loop.is_closed():
            return
        error = fields.pop("exc_info", None)
        self.note(f"[{level}] {event}", **fields, **({"error": repr(error)} if error else {}))
        if level in {"exception", "error"}:
            cause = error or sys.exc_info()[1]
            self.counts[f"log: {event}"] += 1
            if level == "exception" or error is not None:
                self.failed(f"{event} {fields}", cause)

    def failed(self, what: str, error: BaseException | None) -> None:
        broken = Broken("defect", f"{what}: {error!r}")
        broken.__cause__ = error
        if self._broken is None and not self.loop.is_closed():
            self._broken = broken

    def _find_broken(self) -> Broken | None:
        """The first promise that was found broken."""
        for cluster, promises in self.clusters.items():
            if self._broken is None and promises.broken is not None:
                self._broken = promises.broken
                if cluster != ENV:
                    self._broken.args = (f"{promises.broken}, in {cluster}",)
        return self._broken

    # ---- the whole

    def run(self) -> Result:
        script = self.script
        with surroundings.of(script.seed, lambda: self.loop.now, self._logged, quiet=self._trace is None):
            try:
                self.loop.run(self._main())
            except Broken as broken:
                self._broken = self._find_broken() or broken
            except Stuck as stuck:
                self._broken = self._find_broken() or Broken("defect", str(stuck))
            finally:
                self._tidy()
        for cluster, promises in self.clusters.items():
            if cluster != ENV:
                self.counts.update({f"{cluster}: {name}": count for name, count in promises.counts.items()})
        gaps = [gap / SECOND for promises in self.clusters.values() for gap in promises.owners.gaps]
        return Result(script.seed, self.counts, self.loop.time() - 1_000, self.loop.steps, gaps, self._find_broken())

    def _tidy(self) -> None:
        """End everything. Nothing that happens from here on counts."""
        self.loop.close()
        graves = self.processes.graves
        for actor in (*self.processes.connected, self.loop.world):
            graves += self.loop.kill(actor)
        bury(graves)
        graves.clear()

    async def _main(self) -> None:
        script, loop = self.script, self.loop
        putting = Putting(self)
        putting.prepare()
        self.apply_topics = putting.apply
        bound = 3 * script.ttl + 25 + 10 * script.delays.slow
        if script.audit is not None and script.audit.at is None:
            await self._create(bound)
        self._schedule(putting)
        await self._until(lambda: loop.time() - self.began >= script.ends, script.ends + 1)
        self.faults.end_all()
        await self._end(bound)
        await self._leave()
        self._check()
        if script.graceful and (self.counts["exits"] or self.counts["unclean"]):
            raise Broken("stop", "a node ended badly, although nothing was wrong")

    def _schedule(self, putting: Putting) -> None:
        script, loop = self.script, self.loop
        self.began = loop.time()
        for at in script.first_joins:
            loop.call_later(at, self.processes.start)
        for put in script.puts:
            loop.call_later(put.at, putting.put, put)
        for action in script.actions:
            if action.kind == "etcd restored":
                loop.call_later(max(0.05, action.at - backup_age(action)), self.faults.back_up, action)
            loop.call_later(action.at, self.faults.begin, action)
        if script.audit is not None and script.audit.at is not None:
            loop.call_later(script.audit.at, self.creating.begin)

    async def _create(self, bound: float) -> None:
        self.creating.begin()
        await self._until(lambda: self.creating.is_done, bound)

    async def _end(self, bound: float) -> None:
        """Nothing goes wrong any more, so all must become owned, handled and removed."""
        if not await self._until(lambda: self.creating.is_done, bound):
            raise Broken("K10", f"the subscription isn't created {bound} s after the last fault")
        if not await self._until(lambda: self.resetting.is_done, 2 * bound):
            raise Broken("K10", f"the subscription isn't reset {2 * bound} s after the last fault")
        for cluster in self.clusters:
            if all(node.leaving for node in self.processes.of(cluster)):
                self.processes.start(None, cluster)
        last_kill = -1
        while last_kill != self._last_kill():  # each kill is a fault, and their number is limited
            last_kill = self._last_kill()
            done = await self._until(self._is_done, bound)
        if not done:
            self._fail_late(bound)
        if not await self._until(lambda: not self._full_streams(), _REMOVED_S):
            raise Broken("K10", f"{self._full_streams()} aren't empty {_REMOVED_S} s after all was settled")

    def _last_kill(self) -> int:
        return max(promises.attempts.last_kill for promises in self.clusters.values())

    def _full_streams(self) -> list[str]:
        """The streams that have messages, although all are settled."""
        kinds: list[names.Kind] = ["lanes"] if AUDIT in self.clusters else ["lanes", "later"]
        lanes = [LaneId(kind, partition) for kind in kinds for partition in range(self.script.partitions)]
        streams = [names.stream(ENV, lane) for lane in lanes]
        if AUDIT in self.clusters:
            streams.append(names.again_stream(AUDIT))
        return [name for name in streams if self.server.stream(name).messages]

    async def _until(self, holds: Callable[[], bool], seconds: float) -> bool:
        until = self.loop.time() + seconds
        while not holds():
            if self.loop.time() >= until:
                return False
            await asyncio.sleep(_TICK_S)
            self.etcd.pass_time()
            self._check()
        return True

    def _check(self) -> None:
        if (broken := self._find_broken()) is not None:
            raise broken

    def _is_done(self) -> bool:
        return not any(
            promises.unfinished() or self.processes.unowned(cluster) for cluster, promises in self.clusters.items()
        )

    def _fail_late(self, bound: float) -> None:
        late = f"{bound} s after the last fault"
        for cluster, promises in self.clusters.items():
            waiting, unowned = promises.unfinished(), self.processes.unowned(cluster)
            if unowned:
                raise Broken("Z1", f"partitions {unowned} of {cluster} have no living owner {late}")
            if waiting:
                raise Broken("L", f"{len(waiting)} things are open in {cluster} {late}: {waiting[:5]}")

    async def _leave(self) -> None:
        """Stop all nodes. Each must end, and end cleanly."""
        processes = self.processes
        processes.leaving = True
        for node in list(processes.nodes):
            processes.stop(node, None)
        if not await self._until(lambda: not processes.nodes, 20):
            raise Broken("stop", f"{processes.nodes} do not end within 20 s of SIGTERM")


def simulate(seed: int, trace: Callable[[str], None] | None = None, *, script: int | None = None) -> Result:
    """Run one seed, or the script of the seed `script` in this seed's order of events. Call it within
    `surroundings.replaced()`.
    """
    return Simulation(written(seed) if script is None else replace(written(script), seed=seed), trace).run()
