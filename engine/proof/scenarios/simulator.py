"""The simulator: the production scheduler on a virtual clock, in front of W slots; one node, or several that share the
quotas. Same load and seed, same trace.

An event is an arrival, the end of a handler, a letter between nodes, or the instant that a scheduler named (`wake_at`).
At each of them first ends are told, then what came from other nodes, then arrivals, then `next` is asked for as long as
a slot is free and it gives something: exactly what the node does. A scheduler that names an instant which isn't in the
future would make the node spin: that raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.proof.scenarios.arm import as_it_is
from evenlane.engine.proof.scenarios.placed import placed
from evenlane.engine.proof.scenarios.sim_node import SimNode
from evenlane.engine.proof.scenarios.sim_shares import begin
from evenlane.engine.proof.scenarios.sim_wire import NEVER, Wire
from evenlane.engine.proof.scenarios.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.proof.scenarios.arm import Quotas
    from evenlane.engine.proof.scenarios.load import Load
    from evenlane.engine.proof.scenarios.placed import Placed
    from evenlane.engine.proof.scenarios.sim_node import SimQueue


class Simulator:
    """`nodes` are new and their schedulers know nothing yet. Times are ns from 0, the load's start."""

    def __init__(self, load: Load, nodes: Sequence[SimNode], where: Placed, quotas: Quotas = "shared") -> None:
        self.load, self.nodes, self.where = load, nodes, where
        self.trace = nodes[0].trace
        self.wire = Wire()
        self._quotas = quotas
        self._next_arrival = 0
        self._node_of: dict[tuple[int, int], SimNode] = {}  # of a tenant's group

    def run(self) -> Trace:
        """To the end of the load's time; what runs then gets its end all the same. Raises SpinError."""
        nodes, wire, until = self.nodes, self.wire, self.load.until
        begin(self._quotas, self.load, self.where, nodes, wire)
        now = 0
        while now <= until:
            for node in nodes:
                if node.due <= now:
                    node.end_handlers(now)
            if wire.due <= now:
                wire.deliver(now)
            arrival_at = self._take_arrivals(now)
            following = min(wire.due, arrival_at)
            for node in nodes:
                if node.due <= now:
                    node.start_handlers(now)
                following = min(following, node.due)
            now = following
        return self.trace

    def _take_arrivals(self, now: int) -> int:
        """The next one's instant."""
        load, number = self.load, self._next_arrival
        at = load.at
        while number < len(at) and at[number] <= now:
            key = (load.tenant[number], load.group[number])
            node = self._node_of.get(key)
            if node is None:
                node = self._node_of[key] = self.nodes[self.where.node_of(load.tenants[key[0]], key[1])]
            node.take(number, now)
            number += 1
        self._next_arrival = number
        return at[number] if number < len(at) else NEVER


def simulate(
    load: Load,
    make: Callable[[int, Callable[[SimQueue], int]], Scheduler[SimQueue]],
    slots: int,
    nodes: int = 1,
    quotas: Quotas = "shared",
    aim: Callable[[Load, Placed], Load] = as_it_is,
) -> Trace:
    """Run a load to its end; `make(slots, arrived_at)` gives the scheduler of a node with so many slots. Partitions are
    where the leader would place them; `aim` makes the load of that, see `Arm`.
    """
    where = placed(load, nodes)
    load = aim(load, where)
    trace = Trace(load, where=where)
    made = [SimNode(number, make, slots, trace) for number in range(nodes)]
    return Simulator(load, made, where, quotas).run()
