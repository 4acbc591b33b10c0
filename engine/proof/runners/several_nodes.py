"""The broker runner for several nodes: each is a process with an engine, on a real nats-server and etcd. So leader,
leases, plans and the lending of quota shares are real.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.proof.broker.putter import Putter
from evenlane.engine.proof.cluster.cluster import cluster
from evenlane.engine.proof.figures import percentile
from evenlane.engine.proof.load.placement import NAMES, Placement
from evenlane.engine.proof.load.trace import NEVER, Trace

if TYPE_CHECKING:
    from array import array
    from asyncio import Task
    from collections.abc import Callable, Iterable, Sequence

    from evenlane.engine.proof.arms import Arm
    from evenlane.engine.proof.cluster.cluster import Cluster
    from evenlane.engine.proof.cluster.records import HandlerRecord
    from evenlane.engine.proof.load.load import Load

_LEAD_NS = 200_000_000  # from the moment all are ready to the load's first instant
_TICK_S = 0.1
_SECOND, _MILLISECOND = 1e9, 1e6
_MUCH = 2**40  # bytes
_MOST_AHEAD = 16_384  # messages of a queue
_LEASE_TTL = 10  # s
_environments = count(1)


class NodesBroker:
    """Runs arms on the nats-server at `url`, on `nodes` nodes unless an arm says on how many."""

    def __init__(self, url: str, slots: int, nodes: int) -> None:
        self.url, self.slots, self.nodes = url, slots, nodes

    async def run(self, arm: Arm, passed: Callable[[float], None]) -> Trace:
        """`passed` gets the share of the load's time that is over. Raises EvenlaneError, CoordinationError."""
        env, names = f"bench-nodes-{next(_environments)}", NAMES[: arm.nodes or self.nodes]
        tenants, cluster_config = arm.load.tenants, arm.load.cluster_config
        limits = {"read_ahead": _MOST_AHEAD, "payload_budget": _MUCH} if arm.prefetched else {}
        settings = {"lease_ttl": _LEASE_TTL, "concurrency": self.slots, **limits}
        async with cluster(self.url, tenants, cluster_config, settings, env=env) as made:
            await made.start(*names, program=_program(arm, len(names)))
            owners = made.history.owners
            where = Placement(
                cluster_config, [names.index(owners[each]) for each in range(cluster_config.partitions)], len(names)
            )
            load = arm.aim(arm.load, where)
            async with Putter(self.url, env, load, with_service=True) as putter:
                origin = now_ns() + _LEAD_NS
                put = await _through(load, origin, made, asyncio.create_task(putter.put(origin)), passed)
            trace = Trace(load, put, where)
            trace.figures["put_late_p99_ms"] = _late(trace)
            trace.figures["handled_twice"] = fill(trace, origin, made.handlers.read(), names)
            return trace


def _program(arm: Arm, nodes: int) -> str:
    whole, shares = nodes if arm.quotas == "whole" else 0, arm.quotas == "shared"
    module = "evenlane.engine.proof.runners.node_process"
    return f"from {module} import main; main({arm.make.__name__!r}, {whole}, shares={shares})"


async def _through(
    load: Load, origin: int, made: Cluster, put: Task[array[int]], passed: Callable[[float], None]
) -> array[int]:
    """Run to the end of the load's time; returns when each message was put. Raises EvenlaneError."""
    try:
        while (now := now_ns() - origin) < load.until:
            passed(max(0.0, now / load.until))
            made.history.check()
            if put.done():
                put.result()
            await asyncio.sleep(_TICK_S)
        return await put
    finally:
        put.cancel()
        await asyncio.gather(put, return_exceptions=True)


def fill(trace: Trace, origin: int, records: Iterable[HandlerRecord], names: Sequence[str]) -> int:
    """Read the records of the nodes of these names into the trace; returns how many messages began more than once."""
    begun: Counter[int] = Counter()
    for record in records:
        number, at = record.number, record.at - origin
        if record.began:
            begun[number] += 1
            if begun[number] == 1 or at < trace.started[number]:
                trace.started[number], trace.node[number] = at, names.index(record.node)
        elif trace.ended[number] == NEVER:
            trace.ended[number] = at
    return sum(count > 1 for count in begun.values())


def _late(trace: Trace) -> float:
    """The p99 delay of puts in ms, which a busy machine adds."""
    late = sorted((put - at) / _MILLISECOND for put, at in zip(trace.put, trace.load.at, strict=True))
    return percentile(late, 0.99) or 0.0
