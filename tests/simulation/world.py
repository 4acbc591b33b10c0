"""One simulation: nodes, servers and faults, from a seed to the last check."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from evenlane.engine.base import names
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.runtime.engine import Engine
from tests.simulation import surroundings
from tests.simulation.etcd import SimEtcd
from tests.simulation.etcd_faults import backup_age
from tests.simulation.events import PRIORITIES
from tests.simulation.faults import Faults
from tests.simulation.handling import Handling
from tests.simulation.loop import NODE, SECOND, SimLoop, Stuck, bury
from tests.simulation.network import Link
from tests.simulation.nodes import ENV, SimConnect, SimNode
from tests.simulation.promises import Promises
from tests.simulation.putting import Putting
from tests.simulation.script import Script, written
from tests.simulation.store import SimServer
from tests.support.promises.history import Broken, Fault

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

_TICK_S = 0.1  # between two looks of etcd for ended leases
_RESTART_S = 1.0  # until a process that ended by itself is started again


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
    """One life of a cluster. `trace` is called with a line for each event."""

    def __init__(self, script: Script, trace: Callable[[str], None] | None = None) -> None:
        self.script, self._trace = script, trace
        self.chance = Random(f"world {script.seed}")
        self.loop = SimLoop(Random(f"order {script.seed}"), self._failed)
        self.etcd = SimEtcd(self.loop)
        self.etcd.revision = script.revision
        self.promises = Promises(
            self.loop, self.etcd, ENV, script.bounds, self.note, self._server_now, script.topics, script.poison,
            script.unsteady,
        )  # fmt: skip
        self.etcd.on_event = self.promises.owners.changed
        self.etcd.on_restore = self._etcd_went_back
        self.server = SimServer(self.loop, script.epoch_ns, self.promises)
        self.faults = Faults(self)
        self.nodes: list[SimNode] = []
        self._graves: list[Any] = []
        self._started = 0
        self._leaving = False
        self._handling = Handling(self)

    # ---- trace and log

    def _server_now(self) -> int:
        return self.server.clock()

    def _etcd_went_back(self) -> None:
        self.promises.owners.went_back(self.etcd.list("").items, self.etcd.rolled_back_until)

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
                self._failed(f"{event} {fields}", cause)

    def _failed(self, what: str, error: BaseException | None) -> None:
        broken = Broken("defect", f"{what}: {error!r}")
        broken.__cause__ = error
        if self.promises.broken is None:
            self.promises.broken = broken

    # ---- the whole

    def run(self) -> Result:
        script = self.script
        with surroundings.of(script.seed, lambda: self.loop.now, self._logged, quiet=self._trace is None):
            try:
                self.loop.run(self._main())
            except Broken as broken:
                self.promises.broken = self.promises.broken or broken
            except Stuck as stuck:
                self.promises.broken = self.promises.broken or Broken("defect", str(stuck))
            finally:
                self._tidy()
        promises = self.promises
        return Result(
            script.seed, promises.counts, self.loop.time() - 1_000, self.loop.steps,
            [gap / SECOND for gap in promises.owners.gaps], promises.broken,
        )  # fmt: skip

    def _tidy(self) -> None:
        """End everything. Nothing that happens from here on counts."""
        self.loop.close()
        for actor in (*self.nodes, self.loop.world):
            self._graves += self.loop.kill(actor)
        bury(self._graves)
        self._graves.clear()

    async def _main(self) -> None:
        script, loop = self.script, self.loop
        putting = Putting(self)
        putting.prepare()
        self.apply_topics = putting.apply
        for at in script.first_joins:
            loop.call_later(at, self.start_node)
        for put in script.puts:
            loop.call_later(put.at, putting.put, put)
        for action in script.actions:
            if action.kind == "etcd restored":
                loop.call_later(max(0.05, action.at - backup_age(action)), self.faults.back_up, action)
            loop.call_later(action.at, self.faults.begin, action)
        await self._until(lambda: loop.time() - 1_000 >= script.ends, script.ends + 1)
        self.faults.end_all()
        if all(node.leaving for node in self.nodes):
            self.start_node()
        bound = 3 * script.ttl + 25 + 10 * script.delays.slow
        last_kill = -1
        while last_kill != self.promises.attempts.last_kill:  # each kill is a fault, and their number is limited
            last_kill = self.promises.attempts.last_kill
            done = await self._until(self._is_done, bound)
        if not done:
            self._fail_late(bound)
        await self._leave()
        self._check()
        if script.graceful and (self.counts["exits"] or self.counts["unclean"]):
            raise Broken("stop", "a node ended badly, although nothing was wrong")

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
        if self.promises.broken is not None:
            raise self.promises.broken

    def _is_done(self) -> bool:
        return not self.promises.unfinished() and not self._unowned()

    def _unowned(self) -> list[int]:
        """Partitions without an owner, or whose owner doesn't run."""
        living = {node.id for node in self.nodes if not node.leaving}
        keys = [self.etcd.get(names.key(ENV, "owners", p)) for p in range(self.script.partitions)]
        return [
            number
            for number, key in enumerate(keys)
            if key is None or not any(f'"{own}"'.encode() in key.value for own in living)
        ]

    def _fail_late(self, bound: float) -> None:
        waiting, unowned = self.promises.unfinished(), self._unowned()
        if unowned:
            raise Broken("Z1", f"partitions {unowned} have no living owner {bound} s after the last fault")
        raise Broken("L", f"{len(waiting)} things are open {bound} s after the last fault: {waiting[:5]}")

    async def _leave(self) -> None:
        """Stop all nodes. Each must end, and end cleanly."""
        self._leaving = True
        for node in list(self.nodes):
            self.stop_node(node, None)
        if not await self._until(lambda: not self.nodes, 20):
            raise Broken("stop", f"{self.nodes} do not end within 20 s of SIGTERM")

    # ---- nodes

    def start_node(self, own: str | None = None) -> None:
        if self._leaving:
            return
        self._started += 1
        own = own or f"n{self._started}"
        links = [Link(Random(self.chance.random()), self.script.delays) for _ in range(2)]
        node = SimNode(own, f"{own}.{self._started}", *links)
        self.nodes.append(node)
        self.faults.touch_new(node)
        if self.promises.owners.able_since is None:
            self.promises.owners.able_since = self.loop.now
        self.counts["starts"] += 1
        self.note("starts", node=node)
        task = self.loop.create_task(self._process(node), name="process", context=node.context)
        task.add_done_callback(lambda _: self._ended(node), context=self.loop.world.context)

    async def _process(self, node: SimNode) -> None:
        script = self.script
        settings = Settings(
            env=ENV, node=node.id, concurrency=script.concurrency, lease_ttl=float(script.ttl), drain_grace=14.0,
            partitions=script.partitions, priorities=PRIORITIES, group_qps=1e6, max_group_qps=1e6,
            read_ahead=script.read_ahead, index_limit=script.index_limit, meter_interval=0.0,
        )  # fmt: skip
        try:
            node.engine = Engine(self._handling.handle, settings=settings, connect=SimConnect(self, node))
            async with node.engine as engine:
                if not await engine.run():
                    self.counts["unclean"] += 1
        except EvenlaneError as error:
            self.counts["exits"] += 1
            self.counts[f"exit: {type(error).__name__}"] += 1
            self.note("exits", error=error)
        except Exception as error:  # noqa: BLE001 - a traceback is a defect
            self._failed(f"{node} ends", error)

    def _ended(self, node: SimNode) -> None:
        """The process has ended. Its supervisor starts it again after `_RESTART_S`. If it was asked to end, it is
        started again only if `back` is set, after `back` seconds.
        """
        self.note("ended", node=node)
        back = node.back if node.leaving else _RESTART_S
        self.remove(node)
        if back is not None:
            self.loop.call_later(back, self.start_node, node.id)

    def stop_node(self, node: SimNode, back: float | None, own: str | None = None) -> None:
        """Send SIGTERM. `back` seconds later another process takes its place; one of the same id waits for its end."""
        node.leaving = True
        self.note("gets SIGTERM", node=node)
        if node.engine is None:
            self.remove(node)
        else:
            self.loop.call_soon(node.engine.stop, context=node.context)
        self._update_able_since()
        if back is not None and own == node.id:
            node.back = back
        elif back is not None:
            self.loop.call_later(back, self.start_node, own)

    def die(self, node: Any, uid: str) -> None:
        """A handler of this message has killed its process. Its supervisor restarts it unless it was asked to end."""
        self.promises.attempts.kills(uid, node)
        now = self.loop.now
        self.promises.faults.append(Fault("crash", now, node, end=now, by=uid))
        self.counts["kills"] += 1
        self.note("KILLED", by=uid)
        back = node.back if node.leaving else self.chance.choice((0.05, 0.5, 2.0)) * (0.5 + self.chance.random())
        own = node.id if node.leaving or self.chance.random() < 0.5 else None
        self.remove(node)
        if back is not None:
            self.loop.call_later(back, self.start_node, own, context=self.loop.world.context)

    def remove(self, node: SimNode) -> None:
        """The process is gone: nothing of it runs any more."""
        if node.dead:
            return
        self._graves += self.loop.kill(node)
        self.nodes.remove(node)
        for client in node.coordinations:
            client.discard()
        for store in node.stores:
            store.discard()
        self._update_able_since()

    def _update_able_since(self) -> None:
        if all(node.leaving for node in self.nodes):
            self.promises.owners.able_since = None


def simulate(seed: int, trace: Callable[[str], None] | None = None, *, script: int | None = None) -> Result:
    """Run one seed, or the script of the seed `script` in this seed's order of events. Call it within
    `surroundings.replaced()`.
    """
    return Simulation(written(seed) if script is None else replace(written(script), seed=seed), trace).run()
