"""The simulator: the production scheduler on a virtual clock, in front of W slots; one node, or several that share the
quotas. Same load and seed, same trace.

An event is an arrival, the end of a handler, a message between nodes, or the `wake_at` of a scheduler.
At each of them the ends of handlers come first, then messages, then arrivals, then `next` is called for as long as a
slot is free and it gives something: exactly what the node does. A scheduler that names an instant which isn't in the
future would make the node spin: that raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.node.queues.quota_share import WHOLE, node_share
from evenlane.engine.proof.arms import as_it_is
from evenlane.engine.proof.load.placement import place_groups
from evenlane.engine.proof.load.trace import Trace
from evenlane.engine.proof.simulator.lending import LendingLeader
from evenlane.engine.proof.simulator.node import SimNode
from evenlane.engine.proof.simulator.wire import NOT_DUE, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenlane.engine.proof.arms import Make, Quotas
    from evenlane.engine.proof.load.load import Load
    from evenlane.engine.proof.load.placement import Placement


class Simulator:
    """`nodes` are new and their schedulers know nothing yet. Times are ns from 0, the load's start."""

    def __init__(self, load: Load, nodes: Sequence[SimNode], where: Placement, quotas: Quotas = "shared") -> None:
        self.load, self.nodes, self.where = load, nodes, where
        self.trace = nodes[0].trace
        self.wire = Wire()
        self._quotas = quotas
        self._next_arrival = 0
        self._node_of: dict[tuple[int, int], SimNode] = {}  # of a tenant's group

    def run(self) -> Trace:
        """Run to the end of the load's time. The trace also has the ends of handlers that still run then. Raises
        SpinError.
        """
        nodes, wire, until = self.nodes, self.wire, self.load.until
        self._configure()
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

    def _configure(self) -> None:
        """Give all schedulers their rules, and start the lending of quota shares."""
        for node in self.nodes:
            own_partitions = self.where.partitions[node.number]
            for each in self.load.tenants:
                own = node_share(each.name, each.topic, (), own_partitions.__contains__, self.load.cluster_config)
                node.learn(each, own)
                node.configure(each.name, WHOLE if self._quotas == "whole" else own.part, 0)
        if self._quotas == "shared" and len(self.nodes) > 1:
            LendingLeader(self.nodes, self.wire).begin()

    def _take_arrivals(self, now: int) -> int:
        """Hand over all arrivals that are due; returns the instant of the next one."""
        load, number = self.load, self._next_arrival
        at = load.at
        while number < len(at) and at[number] <= now:
            key = (load.tenant[number], load.group[number])
            node = self._node_of.get(key)
            if node is None:
                node = self._node_of[key] = self.nodes[self.where.node_of(load.tenants[key[0]], key[1])]
            node.receive(number, now)
            number += 1
        self._next_arrival = number
        return at[number] if number < len(at) else NOT_DUE


def simulate(
    load: Load,
    make: Make,
    slots: int,
    nodes: int = 1,
    quotas: Quotas = "shared",
    aim: Callable[[Load, Placement], Load] = as_it_is,
) -> Trace:
    """Run a load to its end; `make(slots, arrived_at)` gives the scheduler of a node with these slots. Partitions are
    where the leader would place them; `aim` makes the load of that, see `Arm`.
    """
    where = place_groups(load, nodes)
    load = aim(load, where)
    trace = Trace(load, where=where)
    made = [SimNode(number, make, slots, trace) for number in range(nodes)]
    return Simulator(load, made, where, quotas).run()
